//! Checks the end of a commit with a model checker: sequence numbers, inserts and publication while
//! others read, and syncs in groups. Also checks the owners of cursors against threads that want
//! their memory. The same files are compiled against primitives that shuttle schedules. Test code
//! only. The log is not modelled; sequence numbers represent it.

mod sync {
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};

    pub fn pause(_is_long: bool) {
        shuttle::thread::yield_now();
    }

    pub fn rest() {
        shuttle::thread::yield_now();
    }

    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no panic under a lock")
    }

    pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).expect("no panic under a lock")
    }

    /// Memory is sequentially consistent here.
    pub fn light_barrier() {}

    pub fn heavy_barrier() -> bool {
        true
    }
}

#[path = "publish.rs"]
mod publish;
#[path = "standing.rs"]
mod standing;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shuttle::scheduler::RandomScheduler;
    use shuttle::sync::Mutex;
    use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
    use shuttle::{Config, Runner, thread};

    use super::publish::{Publisher, Syncer};
    use super::standing::{Owner, visit};
    use crate::keys::{Kind, pack, seek_trailer};
    use crate::memtable::arena::{Arena, ChunkPool};
    use crate::memtable::model::btree::Tree;

    const WRITERS: u64 = 3;
    /// Sequence numbers that the store gave out before it was opened.
    const RECOVERED: u64 = 7;

    fn run(executions: usize, execution: impl Fn() + Send + Sync + 'static) {
        let scheduler = RandomScheduler::new_from_seed(0x5eed, executions);
        Runner::new(scheduler, Config::new()).run(execution);
    }

    /// The parts of a store that a commit needs.
    struct Store {
        tree: Tree,
        next_seq: Mutex<u64>,
        publisher: Publisher,
    }

    /// Steps 2 to 5 of the commit pipeline, with batches of one and of two.
    fn commit(store: &Store, writer: u64) {
        let key = |seq: u64| seq.to_be_bytes();
        let early = [b'w', writer as u8];
        let prepared = writer.is_multiple_of(2).then(|| store.tree.prepare(&early, &early));
        let count = if prepared.is_some() { 1 } else { 2 };
        let first_seq = {
            let mut next_seq = store.next_seq.lock().expect("no panic under the lock");
            *next_seq += count;
            *next_seq - count
        };
        let last_seq = first_seq + count - 1;
        match prepared {
            Some(prepared) => prepared.insert(pack(first_seq, Kind::Put)),
            None => {
                for seq in first_seq..=last_seq {
                    store.tree.insert(&key(seq), pack(seq, Kind::Put), b"batch");
                }
            }
        }
        store.publisher.publish(first_seq, last_seq);
        assert!(store.publisher.visible() >= last_seq, "a writer sees what it wrote");
        look(store);
    }

    /// Checks that everything up to the visible sequence number is inserted.
    fn look(store: &Store) {
        let visible = store.publisher.visible();
        let writers = (0..WRITERS).map(|writer| vec![b'w', writer as u8]);
        let batches = (1..=visible).map(|seq| seq.to_be_bytes().to_vec());
        let seen = writers.chain(batches).filter_map(|key| {
            let record = store.tree.lower_bound(&key, seek_trailer(visible))?;
            (record.key() == key && record.trailer() >> 8 <= visible).then_some(())
        });
        assert_eq!(seen.count() as u64, visible, "each visible number is that of an entry");
    }

    fn commit_and_look() {
        let pool = ChunkPool::new(0, None, Default::default());
        let store = Arc::new(Store {
            tree: Tree::new(Arena::new(pool, 1 << 20)),
            next_seq: Mutex::new(1),
            publisher: Publisher::new(0),
        });
        let writers = (0..WRITERS).map(|writer| {
            let store = Arc::clone(&store);
            thread::spawn(move || commit(&store, writer))
        });
        let writers: Vec<_> = writers.collect();
        look(&store);
        look(&store);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert_eq!(store.publisher.visible(), 4, "two of one, one of two");
        look(&store);
    }

    #[test]
    fn what_is_visible_is_there() {
        run(1_000, commit_and_look);
    }

    /// Only sequence numbers, with so few marks that batches compete for them.
    struct Numbers {
        next_seq: Mutex<u64>,
        inserted: [AtomicBool; 16],
        publisher: Publisher<2>,
    }

    impl Numbers {
        fn look(&self) {
            let visible = self.publisher.visible();
            let recent = &self.inserted[..(visible - RECOVERED) as usize];
            let all = recent.iter().all(|inserted| inserted.load(Acquire));
            assert!(all, "{visible} is visible, and something below it not inserted");
        }

        fn write(&self, count: u64) {
            let first_seq = {
                let mut next_seq = self.next_seq.lock().expect("no panic under the lock");
                *next_seq += count;
                *next_seq - count
            };
            let recent = &self.inserted[(first_seq - RECOVERED - 1) as usize..];
            recent[..count as usize].iter().for_each(|inserted| inserted.store(true, Release));
            self.publisher.publish(first_seq, first_seq + count - 1);
            let visible = self.publisher.visible();
            assert!(visible >= first_seq + count - 1, "a writer sees what it wrote");
            self.look();
        }
    }

    fn publish_in_order() {
        let numbers = Arc::new(Numbers {
            next_seq: Mutex::new(RECOVERED + 1),
            inserted: Default::default(),
            publisher: Publisher::new(0),
        });
        numbers.publisher.set_visible(RECOVERED);
        let writers = (0..4).map(|writer| {
            let numbers = Arc::clone(&numbers);
            thread::spawn(move || {
                numbers.write(1);
                numbers.write(1 + writer % 2);
            })
        });
        let writers: Vec<_> = writers.collect();
        for count in [2, 6] {
            numbers.publisher.wait_visible(RECOVERED + count);
            numbers.look();
        }
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert_eq!(
            numbers.publisher.visible(),
            RECOVERED + 10,
            "four of one, two of one, two of two"
        );
    }

    #[test]
    fn numbers_become_visible_in_order_and_to_those_who_took_them() {
        run(5_000, publish_in_order);
    }

    /// A log of sequence numbers. Its second sync fails if `fails`.
    #[derive(Default)]
    struct Log {
        appended: AtomicU64,
        durable: AtomicU64,
        /// The sequence numbers that the device keeps.
        kept: AtomicU64,
        syncs: AtomicU64,
        running: AtomicU64,
    }

    impl Log {
        fn sync(&self, fails: bool) -> Result<(), u64> {
            assert_eq!(self.running.fetch_add(1, AcqRel), 0, "one sync at a time");
            let number = self.syncs.fetch_add(1, AcqRel);
            let through = self.appended.load(Acquire);
            thread::yield_now();
            self.running.fetch_sub(1, AcqRel);
            if fails && number == 1 {
                return Err(number);
            }
            self.kept.fetch_max(through, AcqRel);
            self.durable.fetch_max(through, AcqRel);
            Ok(())
        }
    }

    fn sync_in_groups(fails: bool) {
        let (log, syncer) = (Arc::new(Log::default()), Arc::new(Syncer::<u64>::default()));
        let writers = (0..WRITERS).map(|_| {
            let (log, syncer) = (Arc::clone(&log), Arc::clone(&syncer));
            thread::spawn(move || {
                for _ in 0..2 {
                    let seq = log.appended.fetch_add(1, AcqRel) + 1;
                    let has_failed = log.syncs.load(Acquire) > 1 && fails;
                    let stopped = has_failed && log.running.load(Acquire) == 0;
                    let is_durable = || log.durable.load(Acquire) >= seq;
                    match syncer.until(is_durable, || log.sync(fails)) {
                        Ok(()) => {
                            assert!(log.kept.load(Acquire) >= seq, "P1: acknowledged, not kept");
                            assert!(!stopped, "P7: acknowledged after a sync failed");
                        }
                        Err(number) => assert!(fails && number == 1),
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        let syncs = log.syncs.load(Acquire);
        assert!(if fails { syncs <= 2 } else { syncs <= 2 * WRITERS }, "{syncs} syncs");
    }

    #[test]
    fn one_sync_serves_all_that_came_before() {
        run(2_000, || sync_in_groups(false));
    }

    #[test]
    fn nothing_is_acknowledged_after_a_failed_sync() {
        run(2_000, || sync_in_groups(true));
    }

    /// Adds one, in two steps. Another thread may run between them.
    fn add_one(sum: &mut u64) {
        let before = *sum;
        thread::yield_now();
        *sum = before + 1;
    }

    /// Runs an owner that enters three times, and two visitors that visit once each.
    fn enter_and_visit() {
        let mut owner = Owner::new(0);
        let visits = Arc::new(AtomicU64::new(0));
        let visitors = (0..2).map(|_| {
            let (standing, visits) = ([Arc::clone(owner.standing())], Arc::clone(&visits));
            thread::spawn(move || {
                visit(&standing, |sum| {
                    add_one(sum);
                    visits.fetch_add(1, Relaxed);
                });
            })
        });
        let visitors: Vec<_> = visitors.collect();
        let calls = (0..3).filter(|_| {
            let mut inside = owner.enter();
            add_one(&mut inside);
            inside.is_called
        });
        let calls = calls.count() as u64;
        visitors.into_iter().for_each(|visitor| visitor.join().expect("no panic"));
        let calls = calls + u64::from(owner.enter().is_called);
        let visits = visits.load(Relaxed);
        assert_eq!(*owner.look(), 3 + visits, "each is alone with the state");
        assert!((1..=2).contains(&calls), "each call is heard, perhaps together");
    }

    #[test]
    fn an_owner_and_its_visitors_are_alone_with_the_state() {
        run(5_000, enter_and_visit);
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn each_seeded_bug_is_found() {
        use crate::seeded::{Bug, with, without_assertions};
        type Work = (Bug, fn(), Option<&'static str>);
        let works: [Work; 6] = [
            (Bug::PublishedOutOfOrder, commit_and_look, Some("is published before an earlier one")),
            (
                Bug::PublishedOutOfOrder,
                publish_in_order,
                Some("is published before an earlier one"),
            ),
            (
                Bug::MarkOverwritten,
                publish_in_order,
                Some("mark of a batch that waits is replaced"),
            ),
            (Bug::VisitedWhileInside, enter_and_visit, None),
            (Bug::SyncNotChecked, || sync_in_groups(false), Some("before a sync covered it")),
            (Bug::FailedSyncForgotten, || sync_in_groups(true), None),
        ];
        for (bug, work, assertion) in works {
            let find = || with(bug, || run(2_000, work));
            if let Some(what) = assertion {
                let said = panic_of(find).unwrap_or_default();
                assert!(said.contains(what), "{bug:?} is found by another check: {said}");
            }
            let said = panic_of(|| without_assertions(find));
            assert!(said.is_some(), "{bug:?} is not found without the assertion");
        }
    }

    /// The message of the panic of `work`.
    #[cfg(feature = "seeded-bugs")]
    fn panic_of(work: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
        let panic = std::panic::catch_unwind(work).err()?;
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }
}
