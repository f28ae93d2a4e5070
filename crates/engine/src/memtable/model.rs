//! The tree under a model checker: the same files, compiled against primitives that shuttle
//! schedules, at random and by priorities. Test code only. Memory is sequentially consistent here;
//! `weak` checks orderings. The arena is not modelled, and uses the real primitives.

/// `super::sync` of the tree: shuttle's atomics. At each access, shuttle may switch threads.
pub mod sync {
    pub use shuttle::sync::atomic;

    /// Lets another thread run.
    pub fn pause(_is_long: bool) {
        shuttle::thread::yield_now();
    }
}

/// Few, so that nodes split.
const NODE_KEYS: usize = 4;

#[path = "btree/mod.rs"]
#[expect(dead_code, reason = "a model needs a part of the tree")]
pub mod btree;
#[path = "latch.rs"]
pub mod latch;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::sync::atomic::{AtomicU64, Ordering::*};
    use shuttle::{Config, Runner, thread};

    use super::btree::{Position, RecordRef, Tree};
    use crate::keys::{Kind, pack, seek_trailer};
    use crate::memtable::arena::{Arena, ChunkPool};
    use crate::sync::threads::Bell;

    const WRITERS: u64 = 2;
    const KEYS: u64 = 7;

    fn tree() -> Arc<Tree> {
        let pool = ChunkPool::new(0, None, Arc::<Bell>::default());
        Arc::new(Tree::new(Arena::new(pool, 1 << 20)))
    }

    /// Keys of the writers alternate, so that they share nodes; some share an eight-byte head.
    fn key(writer: u64, i: u64) -> Vec<u8> {
        format!("shared/prefix/{:02}", (i * WRITERS + writer) * 5 % 16).into_bytes()
    }

    fn seq(writer: u64, i: u64) -> u64 {
        1 + i * WRITERS + writer
    }

    fn write(tree: &Tree, writer: u64, done: &AtomicU64) {
        for i in 0..KEYS {
            let (key, trailer) = (key(writer, i), pack(seq(writer, i), Kind::Put));
            let value = [writer as u8, i as u8];
            if i % 3 == 2 {
                tree.insert(&key, trailer, &value);
            } else {
                tree.prepare(&key, &value).insert(trailer);
            }
            done.store(i + 1, Release);
        }
    }

    /// Checks that everything that was done before this read began is visible, whatever happens
    /// meanwhile.
    fn read(tree: &Tree, done: &[AtomicU64]) {
        let there: Vec<u64> = done.iter().map(|count| count.load(Acquire)).collect();
        let mut found = Vec::new();
        let mut position = Position::default();
        position.seek_to_first(tree);
        while let Some(record) = position.record(tree) {
            found.push(record.key().to_vec());
            position.next(tree);
        }
        assert!(found.is_sorted_by(|one, two| one < two), "in order, each once: {found:?}");
        for (writer, there) in (0..).zip(there) {
            for i in 0..there {
                let key = key(writer, i);
                assert!(found.contains(&key), "an entry that was there is walked over");
                let record = tree.lower_bound(&key, seek_trailer(seq(writer, i)));
                let record =
                    RecordRef::new(record.expect("an entry that was there is found")).get(tree);
                assert_eq!(
                    (record.key(), record.value()),
                    (&key[..], &[writer as u8, i as u8][..])
                );
            }
        }
    }

    /// Writers and a reader use one tree; in the end the tree holds everything.
    fn write_and_read() {
        let tree = tree();
        let done: Arc<[AtomicU64; 2]> = Arc::default();
        let writers = (0..WRITERS).map(|writer| {
            let (tree, done) = (Arc::clone(&tree), Arc::clone(&done));
            thread::spawn(move || write(&tree, writer, &done[writer as usize]))
        });
        let writers: Vec<_> = writers.collect();
        for _ in 0..3 {
            read(&tree, &*done);
        }
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert!(done.iter().all(|count| count.load(Acquire) == KEYS));
        read(&tree, &*done);
    }

    fn at_random(executions: usize) {
        let scheduler = RandomScheduler::new_from_seed(0x5eed, executions);
        Runner::new(scheduler, Config::new()).run(write_and_read);
    }

    #[test]
    fn writers_and_readers_at_random() {
        at_random(400);
    }

    #[test]
    fn writers_and_readers_by_priorities() {
        let scheduler = PctScheduler::new_from_seed(0x5eed, 3, 200);
        Runner::new(scheduler, Config::new()).run(write_and_read);
    }

    /// If any one of the tree's checks is removed, the tree loses entries, or shows them twice.
    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn each_check_that_is_left_out_is_found() {
        use crate::seeded::{Bug, with};
        for bug in [Bug::LeafNotChecked, Bug::ChildNotChecked, Bug::LookupNotChecked] {
            let outcome = std::panic::catch_unwind(|| with(bug, || at_random(4_000)));
            assert!(outcome.is_err(), "{bug:?} is not found");
        }
    }
}
