//! A store that is opened with and without a log, keeps the log or does not, and consumers at
//! every position that it ever handed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::{
    Background, Batch, Change, Changes, ChangesFrom, Kind, OnGap, Options, Position, Store,
    WalMode, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::random::{Random, seeds};

use super::attacks::contents;
use super::open;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(store: &Store) -> Content {
    contents(store).remove("default").expect("it is there")
}

fn apply(content: &mut Content, change: &Change) {
    let (Change::Writes(batch) | Change::State(batch)) = change else { return };
    for one in batch.operations() {
        match one.kind {
            Kind::Put => drop(content.insert(one.key.to_vec(), one.value.to_vec())),
            Kind::Delete => drop(content.remove(one.key)),
            other => panic!("{other:?} is handed out"),
        }
    }
}

fn write(store: &Store, random: &mut Random) {
    let key = format!("key{}", random.below(9));
    match random.one_in(4) {
        true => store.delete(key),
        false => store.put(key, random.draw().to_be_bytes()),
    }
    .expect("no faults");
    if random.one_in(6) {
        store.flush().expect("no faults");
    }
}

fn era(random: &mut Random) -> Options {
    let mode = [WalMode::Mapped, WalMode::Write, WalMode::Off][random.below(3) as usize];
    Options::default()
        .background(Background::Manual)
        .wal_mode(mode)
        .keep_log_bytes(random.below(2) << 30)
        .flush_at_close(mode == WalMode::Off || random.one_in(2))
}

#[test]
fn every_position_leads_to_the_present() {
    let (mut gaps, mut logged) = (0, 0);
    for seed in seeds(40) {
        let mut random = Random::new(seed ^ 0xe2a5);
        let (mut disk, mut points) = (SimStorage::new(seed), Vec::new());
        for _ in 0..8 {
            let options = era(&mut random);
            let store = open(&disk, &options).expect("it opens");
            for _ in 0..random.below(12) {
                write(&store, &mut random);
                let changes = store.changes(ChangesFrom::Now);
                assert!(changes.is_ok() == (options.wal_mode != WalMode::Off), "seed {seed}");
                if let Ok(changes) = changes
                    && random.one_in(3)
                {
                    store.sync().expect("no faults");
                    points.push((changes.position(), content(&store)));
                }
            }
            let wanted = content(&store);
            for (position, known) in points.iter().filter(|_| options.wal_mode != WalMode::Off) {
                let (place, mut known) = (format!("seed {seed}, from {position}"), known.clone());
                let on_gap = OnGap::State(Box::new(options.clone()));
                let changes = Changes::resume_on(Arc::new(disk.clone()), *position, on_gap);
                let mut changes = changes.unwrap_or_else(|error| panic!("{place}: {error}"));
                let mut has_gap = false;
                while let Some(one) = changes.next().expect("no faults") {
                    has_gap |= matches!(one.change, Change::Gap(_));
                    apply(&mut known, &one.change);
                }
                // Deletes that a compaction dropped do not arrive.
                known.retain(|key, _| !has_gap || wanted.contains_key(key));
                assert_eq!(known, wanted, "{place}");
                (gaps, logged) = (gaps + u32::from(has_gap), logged + u32::from(!has_gap));
            }
            disk = match random.below(3) {
                0 => store.close().map(|()| disk).expect("no faults"),
                1 => disk.process_crash(),
                _ => disk.power_cut(random.draw()).0,
            };
        }
    }
    assert!(gaps > 40 && logged > 40, "{gaps} gaps, {logged} without");
}

/// A store forgets old forks. Once, a reader with a position in such a fork, or in another store,
/// got an error that said that the log begins after number 0, and advised to keep more of it.
#[test]
fn a_position_of_a_forgotten_history_is_told_as_such() {
    let options = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let mut disk = SimStorage::new(1);
    let mut store = open(&disk, &options).expect("it opens");
    store.put("key", "").expect("no faults");
    let position = store.changes(ChangesFrom::Now).expect("it has a log").position();
    let after = |disk: &SimStorage, position: Position| {
        let from = ChangesFrom::After(position);
        let opened = Changes::open_on(Arc::new(disk.clone()), from);
        let refused = opened.map(drop).expect_err("refused");
        (refused.to_string(), refused.hint())
    };
    let far: Position = format!("99@{}", position.to_string().split_once('@').expect("both").1)
        .parse()
        .expect("a position");
    let (what, hint) = after(&disk, far);
    let end = format!("lies past the end of the log, number {}", position.seq());
    assert!(what.contains(&end), "{what}");
    assert!(hint.contains("begin anew"), "{hint}");
    // The position is inside a batch whose log was flushed, and is kept.
    let mut batch = Batch::new();
    ["a", "b"].iter().for_each(|key| batch.put(store.default_keyspace(), key, "").expect("puts"));
    store.write(&batch, WriteOptions::default()).expect("no faults");
    store.flush().expect("no faults");
    let history = position.to_string().split_once('@').expect("both").1.to_string();
    let inside = format!("{}@{history}", position.seq() + 1).parse().expect("a position");
    let (what, _) = after(&disk, inside);
    assert!(what.contains("lies inside a batch that ends at number"), "{what}");
    for _ in 0..70 {
        disk = disk.process_crash();
        store = open(&disk, &options).expect("it opens");
        store.put("key", "").expect("no faults");
    }
    let (what, hint) = after(&disk, position);
    assert!(what.contains("does not know the history"), "{what}");
    assert!(hint.contains("begin anew") && !hint.contains("keep_log_bytes"), "{hint}");
}
