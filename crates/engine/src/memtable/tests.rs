//! Compares the tree with an ordered map, and tests it with real threads. `model` tests it with
//! scheduled threads.

use std::cmp::Ordering::Less;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Memtable;
use super::arena::{Arena, ChunkPool};
use super::btree::{Position, Tree};
use crate::keys::compare;
use runstone_random::Random;

fn tree() -> Tree {
    Tree::new(Arena::new(ChunkPool::new(4 << 20, None, Arc::default()), usize::MAX))
}

type KeyMaker = fn(u64) -> Vec<u8>;
const SHAPES: [KeyMaker; 4] = [
    |n| (n % 5_000).to_be_bytes().to_vec(),
    |n| format!("user{:012}", n % 3_000).into_bytes(),
    |n| vec![b'k'; (n % 40) as usize],
    |n| [&b"a long and equal beginning of every key "[..], &n.to_le_bytes()[..3]].concat(),
];

#[test]
fn agrees_with_an_ordered_map() {
    for make in SHAPES {
        let tree = tree();
        let mut model = BTreeMap::new();
        let mut random = Random::new(7);
        for seq in 1..6_000u64 {
            let key = make(random.draw());
            let trailer = seq << 8 | 1;
            tree.insert(&key, trailer, &seq.to_le_bytes());
            model.insert((key, std::cmp::Reverse(trailer)), seq);
        }
        let mut position = Position::default();
        position.seek_to_first(&tree);
        for ((key, trailer), seq) in &model {
            let record = position.record(&tree).expect("as many as the model");
            assert_eq!((record.key(), record.trailer()), (&key[..], trailer.0));
            assert_eq!(record.value(), seq.to_le_bytes());
            position.next(&tree);
        }
        assert!(position.record(&tree).is_none());
        position.seek_to_last(&tree);
        for (key, trailer) in model.keys().rev() {
            let record = position.record(&tree).expect("as many as the model");
            assert_eq!((record.key(), record.trailer()), (&key[..], trailer.0));
            position.prev(&tree);
        }
        assert!(position.record(&tree).is_none());
        for _ in 0..2_000 {
            let key = make(random.draw());
            let trailer = (random.draw() % 7_000) << 8 | 0xff;
            let from = (key.clone(), std::cmp::Reverse(trailer));
            let expected = model.range(from..).next().map(|((k, t), _)| (&k[..], t.0));
            let found = tree.lower_bound(&key, trailer).map(|r| (r.key(), r.trailer()));
            assert_eq!(found, expected);
            position.seek(&tree, &key, trailer);
            let found = position.record(&tree).map(|r| (r.key(), r.trailer()));
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn ascending_inserts_fill_the_leaves() {
    let tree = tree();
    for seq in 1..=20_000u64 {
        tree.insert(&seq.to_be_bytes(), seq << 8 | 1, b"");
    }
    let record_bytes = 20_000 * 24;
    let node_bytes = tree.allocated_bytes() - record_bytes;
    assert!(node_bytes < 20_000 * 22, "{node_bytes} bytes of nodes");
}

#[test]
fn concurrent_writers_and_readers_lose_nothing() {
    let tree = Arc::new(tree());
    let (writers, each) = (4u64, 20_000u64);
    let numbers = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (tree, numbers) = (Arc::clone(&tree), &numbers);
            scope.spawn(move || {
                let mut random = Random::new(writer);
                for _ in 0..each {
                    let key = format!("user{:06}", random.draw() % 9_000);
                    let key = key.as_bytes();
                    let number = || numbers.fetch_add(1, Relaxed) << 8 | 1;
                    let trailer = match writer % 2 {
                        0 => {
                            let trailer = number();
                            tree.insert(key, trailer, key);
                            trailer
                        }
                        _ => {
                            let prepared = tree.prepare(key, key);
                            let trailer = number();
                            prepared.insert(trailer);
                            trailer
                        }
                    };
                    // A writer sees its own entry at once.
                    let found = tree.lower_bound(key, trailer);
                    let found = found.map(|record| (record.key(), record.trailer()));
                    assert_eq!(found, Some((key, trailer)));
                }
            });
        }
        let tree = Arc::clone(&tree);
        scope.spawn(move || {
            for _ in 0..20 {
                let mut position = Position::default();
                position.seek_to_first(&tree);
                let mut last: Option<(Vec<u8>, u64)> = None;
                while let Some(record) = position.record(&tree) {
                    assert_eq!(record.key(), record.value());
                    if let Some((key, trailer)) = &last {
                        let order = compare(key, *trailer, record.key(), record.trailer());
                        assert_eq!(order, Less);
                    }
                    last = Some((record.key().to_vec(), record.trailer()));
                    position.next(&tree);
                }
            }
        });
    });
    let mut position = Position::default();
    position.seek_to_first(&tree);
    let mut count = 0;
    while position.record(&tree).is_some() {
        count += 1;
        position.next(&tree);
    }
    assert_eq!(count, writers * each);
}

/// A memtable with a filter returns the same as one without a filter, for present and absent keys.
#[test]
fn a_filter_hides_nothing() {
    let pool = ChunkPool::new(4 << 20, None, Arc::default());
    drop(Memtable::filtered(&pool, 1 << 20));
    pool.prepare_spare();
    for make in SHAPES {
        let (plain, filtered) = (Memtable::new(&pool, 1 << 20), Memtable::filtered(&pool, 1 << 20));
        assert!(filtered.filter.is_some());
        let mut random = Random::new(3);
        for seq in 1..3_000u64 {
            let key = make(random.draw());
            for memtable in [&plain, &filtered] {
                let _ = memtable.announce(seq, 1, 0, 1);
                match seq % 2 {
                    0 => memtable.insert(&key, seq << 8 | 1, &seq.to_le_bytes()),
                    _ => memtable.prepare(&key, &seq.to_le_bytes()).insert(seq << 8 | 1),
                }
            }
        }
        for _ in 0..6_000 {
            let (key, seq) = (make(random.draw()), random.draw() % 3_000);
            let found = [&plain, &filtered].map(|memtable| {
                memtable.get(&key, seq).map(|record| (record.trailer(), record.value().to_vec()))
            });
            assert_eq!(found[0], found[1], "{key:?} at {seq}");
        }
    }
}
