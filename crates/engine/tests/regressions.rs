//! Bugs that were found, each with its story. The tests keep them from coming back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, SystemTime};

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Batch, Changes, ChangesFrom, Error, Event, EventListener, KeyspaceOptions, Options,
    ReadOptions, Store, ValuePlacement, WalMode, WriteOptions,
};

fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 32 << 10;
    shape.base_bytes = 128 << 10;
    Options::default().memory_budget_bytes(8 << 20).wal_segment_bytes(256 << 10).keyspace(keyspace)
}

/// A handle outlives its keyspace. Once, a compaction through such a handle appended an edit for a
/// keyspace that the manifest had dropped. The store did not open again: "names unknown keyspace".
#[test]
fn a_handle_of_a_dropped_keyspace_cannot_write_the_manifest() {
    let storage = MemoryStorage::new();
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    let gone = store.open_keyspace("gone", None).expect("new");
    for i in 0..100u32 {
        gone.put(i.to_be_bytes(), [7; 100]).expect("put");
    }
    store.flush().expect("flush");
    gone.put("more", "writes").expect("put");
    store.flush().expect("flush");
    store.drop_keyspace("gone").expect("drop");
    let refused = gone.compact().expect_err("dropped");
    assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
    store.put("still", "writable").expect("put");
    store.close().expect("close");
    Store::open_on(Arc::new(storage), options()).expect("opens").close().expect("close");
}

/// A handle outlives its store. Once, work that was started through such a handle after `close` ran
/// without the store's lock.
#[test]
fn a_handle_of_a_closed_store_does_no_more() {
    let storage = MemoryStorage::new();
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    let keyspace = store.default_keyspace().clone();
    for i in 0..5_000u32 {
        keyspace.put(i.to_be_bytes(), [7; 100]).expect("put");
    }
    store.close().expect("close");
    assert!(matches!(keyspace.put("a", "b"), Err(Error::Closed)));
    assert!(matches!(keyspace.compact(), Err(Error::Closed)));
    assert!(matches!(keyspace.get(7u32.to_be_bytes()), Err(Error::Closed)));
    let again = Store::open_on(Arc::new(storage), options()).expect("the lock is free");
    assert!(again.verify().expect("verify").is_clean());
}

/// Once, a checkpoint flushed all memtables and then read the trees. In between, a batch over two
/// keyspaces was committed, and only one of the keyspaces was flushed again. The copy had half of
/// the batch (P3).
#[test]
fn a_checkpoint_never_splits_a_batch() {
    let storage = MemoryStorage::new();
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    let left = store.open_keyspace("left", None).expect("new");
    let right = store.open_keyspace("right", None).expect("new");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u64;
            while !done.load(Relaxed) {
                let mut batch = Batch::new();
                // Different sizes, so that the memtables are full at different moments.
                batch.put(&left, round.to_be_bytes(), [1; 2_000]).expect("push");
                batch.put(&right, round.to_be_bytes(), [2; 70]).expect("push");
                store.write(&batch, WriteOptions::default()).expect("write");
                round += 1;
            }
        });
        for i in 0..12 {
            let place = format!("/checkpoint-{i}");
            store.checkpoint(&place).expect("checkpoint");
            let copy = storage.open_sibling(place.as_ref()).expect("made");
            let copy = Store::open_on(Arc::new(copy), options()).expect("opens");
            let count = |name: &str| {
                let keyspace = copy.keyspace(name).expect("exists");
                keyspace.iter().expect("iter").inspect(|item| assert!(item.is_ok())).count()
            };
            assert_eq!(count("left"), count("right"), "checkpoint {i}");
            assert!(copy.verify().expect("verify").is_clean());
        }
        done.store(true, Relaxed);
    });
}

/// Once, a handle that outlived its store reported a missing file. A handle that outlived its
/// keyspace continued to read the dropped data.
#[test]
fn a_handle_that_outlives_its_store_or_its_keyspace_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), options()).expect("open");
    let (kept, dropped) = (store.default_keyspace().clone(), store.open_keyspace("gone", None));
    let dropped = dropped.expect("new");
    for keyspace in [&kept, &dropped] {
        keyspace.put("key", "value").expect("put");
    }
    let before = store.snapshot();
    store.drop_keyspace("gone").expect("drop");
    let is_unknown = |error: &Error| matches!(error, Error::UnknownKeyspace { .. });
    assert!(dropped.get("key").is_err_and(|error| is_unknown(&error)));
    assert!(dropped.cursor(ReadOptions::default()).is_err_and(|error| is_unknown(&error)));
    assert!(dropped.iter().is_err_and(|error| is_unknown(&error)));
    assert!(dropped.get_at("key", &before).expect("a snapshot is stable").is_some());
    store.close().expect("close");
    assert!(matches!(kept.get("key"), Err(Error::Closed)));
    assert!(matches!(kept.get_at("key", &before), Err(Error::Closed)));
    assert!(matches!(kept.multi_get(&["key"]), Err(Error::Closed)));
    assert!(matches!(kept.cursor(ReadOptions::default()), Err(Error::Closed)));
    assert!(matches!(kept.put("key", "value"), Err(Error::Closed)));
}

/// A thread-local variable that writes when it is dropped.
struct Farewell(runstone::Keyspace);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.put("last", vec![7; 3000]).expect("put");
        assert_eq!(self.0.get("last").expect("get").as_deref(), Some(&[7; 3000][..]));
        assert!(self.0.get("flushed").expect("get").is_some());
    }
}

thread_local! {
    static FAREWELL: std::cell::RefCell<Option<Farewell>> = const { std::cell::RefCell::new(None) };
}

/// Once, the destructor of a thread-local variable called put after the store's buffers of that
/// thread had been destroyed, and the process aborted.
#[test]
fn a_thread_that_ends_may_still_use_the_store() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
        let mut options = options();
        if let Some(keyspace) = &mut options.keyspace {
            keyspace.values.placement = placement;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), options).expect("open");
        let keyspace = store.default_keyspace().clone();
        std::thread::scope(|scope| {
            let farewell = Farewell(keyspace.clone());
            let thread = scope.spawn(|| {
                // Initialised before the store's own thread-locals, so it is destroyed after them.
                FAREWELL.set(Some(farewell));
                keyspace.put("flushed", vec![8; 3000]).expect("put");
                store.flush().expect("flush");
                assert!(keyspace.get("flushed").expect("get").is_some());
            });
            // The end of the scope does not wait for the thread's destructors.
            thread.join().expect("no panic");
        });
        assert!(keyspace.get("last").expect("get").is_some());
        drop(keyspace);
        store.close().expect("close");
    }
}

/// Once, a keyspace that was dropped while at its stop limit held up the writers of all other
/// keyspaces for ever.
#[test]
fn the_pressure_of_a_dropped_keyspace_goes_with_it() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options()).expect("open");
    let mut crowded = KeyspaceOptions::default();
    crowded.write_buffer_bytes = 64 << 10;
    // Full leveling keeps level 0 until the trigger while the base level is never over its target.
    unstable::numbers_mut(&mut crowded).l0_trigger = 90;
    crowded.l0_slowdown_runs = 91;
    crowded.l0_stop_runs = 92;
    let keyspace = store.open_keyspace("crowded", Some(crowded)).expect("new");
    for i in 0..40u32 {
        keyspace.put(i.to_be_bytes(), [7; 100]).expect("put");
        store.flush().expect("flush");
    }
    let mut tight = (*keyspace.options()).clone();
    unstable::numbers_mut(&mut tight).l0_trigger = 1;
    tight.l0_slowdown_runs = 2;
    tight.l0_stop_runs = 3;
    store.open_keyspace("crowded", Some(tight)).expect("options change");
    store.drop_keyspace("crowded").expect("drop");
    store.put("others", "go on").expect("put");
    assert_eq!(store.metrics().pressure.level.parts(), 0);
}

/// A store that is opened for reading replays the log into memory. Once, a checkpoint of such a
/// store left these data out without an error.
#[test]
fn a_read_only_checkpoint_has_the_log() {
    let storage = runstone_fault_storage::SimStorage::new(5);
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    store.put("only in", "the log").expect("put");
    let left = storage.process_crash();
    drop(store);
    let read_only = options().read_only(true);
    let store = Store::open_on(Arc::new(left.clone()), read_only).expect("open");
    assert_eq!(store.get("only in").expect("get").as_deref(), Some(&b"the log"[..]));
    store.checkpoint("/copy").expect("copies");
    let copy = left.open_sibling("/copy".as_ref()).expect("it was made");
    let copy = Store::open_on(Arc::new(copy), options()).expect("open");
    assert_eq!(copy.get("only in").expect("get").as_deref(), Some(&b"the log"[..]));
}

/// Once, a keyspace remembered only eight dead ranges. With more queues than that, each pop walked
/// over all entries that its queue had deleted before.
#[test]
fn forty_queues_in_one_keyspace_do_not_slow_down() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).expect("open");
    let queues = store.default_keyspace();
    let key = |queue: u64, number: u64| format!("{queue:02}/{number:06}");
    let pops = 8_000;
    for step in 0..pops {
        let (queue, number) = (step % 40, step / 40);
        queues.put(key(queue, number), "first").expect("put");
        queues.put(key(queue, number + 1), "second").expect("put");
        let mut cursor = queues.cursor(ReadOptions::default()).expect("cursor");
        cursor.seek(key(queue, 0).as_bytes()).expect("seek");
        assert_eq!(cursor.key(), key(queue, number).as_bytes());
        drop(cursor);
        queues.delete(key(queue, number)).expect("delete");
    }
    let passed = store.metrics().counters.hidden_passed;
    assert!(passed < 60 * pops, "{} hidden entries a pop", passed / pops);
}

/// Once, a store that was opened for reading reported a log of 0 bytes, although it had replayed a
/// log.
#[test]
fn a_read_only_store_counts_the_log_that_it_replayed() {
    let storage = runstone_fault_storage::SimStorage::new(6);
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    store.put("only in", "the log").expect("put");
    let log_bytes = store.metrics().wal_bytes;
    let left = storage.process_crash();
    drop(store);
    let read_only = options().read_only(true);
    let store = Store::open_on(Arc::new(left), read_only).expect("open");
    assert!(log_bytes > 0 && store.metrics().wal_bytes == log_bytes);
}

/// Once, the filter of a partition left out the partition's first key if the previous partition had
/// versions of that key. A snapshot that needed a version after the boundary found nothing.
#[test]
fn versions_on_both_sides_of_a_partition_are_found() {
    let mut options = options();
    let keyspace = options.keyspace.as_mut().expect("set above");
    // There is a block per entry, one table for all entries, and 512 blocks per partition.
    keyspace.block_bytes = 256;
    keyspace.write_buffer_bytes = 1 << 20;
    unstable::numbers_mut(keyspace).table_bytes = 64 << 20;
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open");
    for i in 0..400u32 {
        store.put(format!("a{i:03}"), [0; 250]).expect("put");
        store.put(format!("z{i:03}"), [0; 250]).expect("put");
    }
    let versions: Vec<_> = (0..300u32)
        .map(|i| {
            let value = vec![i as u8; 250];
            store.put("m", &value).expect("put");
            (store.snapshot(), value)
        })
        .collect();
    store.flush().expect("flush");
    for (snapshot, value) in &versions {
        let found = store.default_keyspace().get_at("m", snapshot).expect("get");
        assert_eq!(found.as_deref(), Some(&value[..]));
    }
}

/// Once, the memory budget did not bound the memtables. Twenty keyspaces with write buffers of an
/// eighth of the budget took two and a half times the budget.
#[test]
fn memtables_of_many_keyspaces_stay_within_the_budget() {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 1 << 20;
    let budget = 8 << 20;
    for background in [Background::Manual, Background::Threads(2)] {
        let options = Options::default()
            .memory_budget_bytes(budget)
            .wal_mode(WalMode::Write)
            .background(background)
            .keyspace(keyspace.clone());
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open");
        let open = |n: u32| store.open_keyspace(&format!("k{n}"), Some(keyspace.clone()));
        let keyspaces: Vec<_> = (0..20).map(|n| open(n).expect("new")).collect();
        let mut peak_bytes = 0;
        for i in 0..40_000u32 {
            // Some keyspaces are busier than others.
            let keyspace = &keyspaces[(i.isqrt() % 20) as usize];
            keyspace.put(i.to_be_bytes(), [7; 1000]).expect("put");
            peak_bytes = peak_bytes.max(store.metrics().memory.memtable_bytes);
        }
        // The bound is three quarters of the budget plus the excess of one chunk.
        assert!(peak_bytes < budget / 8 * 7, "{peak_bytes} of {budget}");
        assert!(peak_bytes > budget / 4, "{peak_bytes}: flushed long before it had to be");
        for i in 0..40_000u32 {
            let found = keyspaces[(i.isqrt() % 20) as usize].get(i.to_be_bytes()).expect("get");
            assert!(found.is_some(), "{i}");
        }
    }
}

/// Once, every empty keyspace took 64 KiB, so many of them filled the budget. From then on, each
/// write flushed a memtable of one or two entries, one flush at a time, without end.
#[test]
fn hundreds_of_keyspaces_share_a_small_budget() {
    const KEYSPACES: usize = 500;
    const PUTS: usize = 100_000;
    for background in [Background::Manual, Background::Threads(2)] {
        let mut keyspace = KeyspaceOptions::default();
        keyspace.write_buffer_bytes = 1 << 20;
        let options = Options::default()
            .memory_budget_bytes(8 << 20)
            .wal_mode(WalMode::Write)
            .background(background)
            .keyspace(keyspace.clone());
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open");
        let before = store.metrics().memory.memtable_bytes;
        let open = |n: usize| store.open_keyspace(&format!("k{n}"), Some(keyspace.clone()));
        let keyspaces: Vec<_> = (0..KEYSPACES).map(|n| open(n).expect("new")).collect();
        assert_eq!(store.metrics().memory.memtable_bytes, before, "an idle keyspace takes nothing");
        for i in 0..PUTS {
            keyspaces[i % KEYSPACES].put(i.to_be_bytes(), [7; 100]).expect("put");
        }
        let flushes = store.metrics().counters.flushes as usize;
        assert!(flushes > KEYSPACES, "{flushes}: the budget was full several times");
        assert!(flushes < PUTS / 10, "{flushes} flushes of {PUTS} writes");
        for i in (0..PUTS).step_by(7) {
            let found = keyspaces[i % KEYSPACES].get(i.to_be_bytes()).expect("get");
            assert!(found.is_some(), "{i}");
        }
    }
}

/// Once, under a small budget, memtables were flushed too late and then too often. Writers stopped
/// for a quarter of a second until the first flush was over, with small memtables waiting behind
/// it.
#[test]
fn a_memtable_that_takes_half_of_what_is_meant_for_all_is_flushed() {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 4 << 20;
    let options = Options::default()
        // Memtables are flushed early once half of the budget is in use.
        .memory_budget_bytes(8 << 20)
        .wal_mode(WalMode::Write)
        .background(Background::Manual)
        .keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open");
    let mut keys = 0..u32::MAX;
    let mut fill = |up_to_bytes: u64| {
        while store.default_keyspace().memtable_bytes() < up_to_bytes {
            let key = keys.next().expect("enough").to_be_bytes();
            store.put(key, [7; 1000]).expect("put");
        }
    };
    let flushes = || {
        store.wait_idle().expect("idle");
        store.metrics().counters.flushes
    };
    fill(3 << 19);
    assert_eq!(flushes(), 0, "before half of the half");
    fill(9 << 18);
    assert_eq!(flushes(), 1, "behind it");
    // One memtable waits already. A second one would wait for the same flush, so it continues to
    // fill.
    fill(9 << 19);
    assert_eq!(flushes(), 2, "nobody flushed meanwhile");
    assert!(store.default_keyspace().memtable_bytes() > 1 << 20, "the rest is in one memtable");
}

/// A listener that panics at a flush.
#[derive(Debug)]
struct Panics;

impl EventListener for Panics {
    fn on_event(&self, event: &Event) {
        assert!(!matches!(event, Event::Flushed { .. }), "a listener that panics");
    }
}

/// Once, a job that panicked in a user's thread kept its claim, and nothing reported it. Writes
/// continued, and closing the store waited for the job for ever.
#[test]
fn a_job_that_panics_stops_the_store_in_every_thread() {
    let mut options = options();
    options.background = Background::Manual;
    options.listener = Some(Arc::new(Panics));
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    store.put("key", "value").expect("puts");
    let flush = std::panic::AssertUnwindSafe(|| store.flush());
    assert!(std::panic::catch_unwind(flush).is_err(), "the listener panics");
    let refused = store.put("more", "writes");
    assert!(matches!(refused, Err(Error::Stopped { .. })), "{refused:?}");
    let (is_done, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        is_done.send(())
    });
    done.recv_timeout(std::time::Duration::from_secs(20)).expect("nobody waits for the job");
}

/// Once, the scheduler always chose the first keyspace with a compaction due. Writes to one
/// keyspace kept the compactions of another waiting until back-pressure slowed both down.
#[test]
fn keyspaces_take_turns_in_compaction() {
    let mut options = options().background(Background::Manual);
    unstable::numbers_mut(options.keyspace.as_mut().expect("given")).l0_share_percent = 0;
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options.clone()).expect("open");
    let second = store.open_keyspace("second", options.keyspace).expect("new");
    let keyspaces = [store.default_keyspace(), &second];
    let level_0 =
        |at: usize| unstable::shape(keyspaces[at]).levels.first().map_or(0, |l| l.runs().len());
    let mut next = 0u32;
    let mut flush = |at: usize| {
        for _ in 0..100 {
            next = next.wrapping_add(0x9E37_79B9);
            keyspaces[at].put(next.to_be_bytes(), [7; 100]).expect("put");
        }
        store.flush().expect("flush");
    };
    for at in [0, 1] {
        while level_0(at) < 12 {
            flush(at);
        }
    }
    let mut compacted = [0, 0];
    for _ in 0..40 {
        // The first keyspace always has a compaction due.
        while level_0(0) < 12 {
            flush(0);
        }
        let before = [0, 1].map(level_0);
        assert!(store.run_one_job().expect("a job"));
        for at in [0, 1] {
            compacted[at] += usize::from(level_0(at) < before[at]);
        }
    }
    assert!(compacted[0] > 0 && compacted[1] > 0, "{compacted:?}");
}

/// A store whose memtables take 4 MiB of a budget of 64 MiB, and a writer of one key that fills
/// them.
fn with_small_memtables() -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 4 << 20;
    let options = Options::default()
        .memory_budget_bytes(64 << 20)
        .wal_mode(WalMode::Write)
        .background(Background::Manual)
        .keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open")
}

fn fill_memtable(store: &Store) {
    (0..4_000u32).for_each(|i| store.put(i.to_be_bytes(), [7; 1000]).expect("put"));
    store.flush().expect("flush");
}

/// Once, each value of 300 bytes that a caller kept also kept the memtable that it was read from.
/// Sixty such values took 538 MiB under a budget of 64 MiB.
#[test]
fn small_values_that_are_kept_hold_no_memtable() {
    let store = with_small_memtables();
    let mut kept = Vec::new();
    for _ in 0..20 {
        store.put("small", [1; 300]).expect("put");
        kept.push(store.get("small").expect("get").expect("is there"));
        fill_memtable(&store);
    }
    let memory = store.metrics().memory;
    assert_eq!(memory.held_bytes, 0);
    assert!(kept.iter().all(|value| *value == [1; 300]));
}

/// Large values are not copied. Each keeps its pages of a dropped memtable. The pages are counted,
/// but the cache does not shrink for them. Once, a value kept the whole memtable.
#[test]
fn large_values_that_are_kept_are_counted_beside_the_budget() {
    let store = with_small_memtables();
    let mut kept = Vec::new();
    for _ in 0..20 {
        store.put("large", [1; 100_000]).expect("put");
        kept.push(store.get("large").expect("get").expect("is there"));
        fill_memtable(&store);
    }
    let memory = store.metrics().memory;
    let (held, page) = (memory.held_bytes / 20, 4 << 10);
    assert!((100_000..=100_000 + 2 * page).contains(&held), "{held} bytes for each value");
    assert!(memory.memtable_bytes < 32 << 20, "{}", memory.memtable_bytes);
    assert!(kept.iter().all(|value| *value == [1; 100_000]));
    drop(kept);
    assert_eq!(store.metrics().memory.held_bytes, 0);
    assert!(store.metrics().memory.memtable_bytes < 32 << 20);
}

/// The memory of flushed memtables that a cursor may hold: the pages of its entry.
const HELD_BYTES: u64 = 8 << 10;

/// Once, a scan kept the memtable in which it began until the scan was dropped; after a first fix,
/// until the scan moved.
#[test]
fn a_scan_lets_go_of_memtables_that_were_flushed() {
    let store = with_small_memtables();
    (0..10_000u32).for_each(|i| store.put(i.to_be_bytes(), [7; 100]).expect("put"));
    let mut scan = store.default_keyspace().iter().expect("scans");
    let first: Vec<_> = scan.by_ref().take(3).map(|entry| entry.expect("reads").0).collect();
    fill_memtable(&store);
    (0..10_000u32).for_each(|i| store.delete(i.to_be_bytes()).expect("deletes"));
    assert!(store.metrics().memory.held_bytes <= HELD_BYTES, "though it stands");
    let next: Vec<_> = scan.by_ref().take(5_000).map(|entry| entry.expect("reads").0).collect();
    assert!(store.metrics().memory.held_bytes <= HELD_BYTES);
    let rest: Vec<_> = scan.map(|entry| entry.expect("reads").0).collect();
    let all = [first, next, rest].concat();
    assert!(
        all.iter().eq((0..10_000u32).map(|i| i.to_be_bytes().to_vec()).collect::<Vec<_>>().iter())
    );
}

/// As in the test above, but with separated values, which are read ahead.
#[test]
fn a_scan_over_separated_values_lets_go_of_memtables_that_were_flushed() {
    for placement in [ValuePlacement::HashGrouped, ValuePlacement::Vlog] {
        let mut keyspace = KeyspaceOptions::default();
        keyspace.write_buffer_bytes = 4 << 20;
        keyspace.values.placement = placement;
        keyspace.values.separate_at = 200;
        let options = Options::default()
            .memory_budget_bytes(64 << 20)
            .wal_mode(WalMode::Write)
            .background(Background::Manual)
            .keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open");
        (0..10_000u32).for_each(|i| store.put(i.to_be_bytes(), [7; 250]).expect("put"));
        let mut scan = store.default_keyspace().iter().expect("scans");
        assert_eq!(scan.by_ref().take(3).count(), 3);
        fill_memtable(&store);
        assert!(store.metrics().memory.held_bytes <= HELD_BYTES, "though it stands");
        assert_eq!(scan.by_ref().take(8_000).filter(|entry| entry.is_ok()).count(), 8_000);
        assert!(store.metrics().memory.held_bytes <= HELD_BYTES, "{placement:?}");
    }
}

/// Once, a scan that had begun in memtables continued in the tables that the close had written.
/// These tables belong to the next process that opens the store.
#[test]
fn a_scan_that_outlives_its_store_stays_on_what_it_holds() {
    let storage = MemoryStorage::new();
    let options = || options().background(Background::Manual);
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("open");
    let put_all = |store: &Store| {
        (0..3_000u32).for_each(|i| store.put(i.to_be_bytes(), [7; 8]).expect("put"));
    };
    put_all(&store);
    let mut scan = store.default_keyspace().iter().expect("scans");
    assert_eq!(scan.by_ref().take(3).count(), 3);
    store.close().expect("close");
    let again = Store::open_on(Arc::new(storage), options()).expect("the lock is free");
    put_all(&again);
    again.compact().expect("compact");
    again.wait_idle().expect("idle");
    let rest: Result<Vec<_>, Error> = scan.collect();
    assert_eq!(rest.expect("it holds what it reads").len(), 2_997);
}

#[derive(Debug)]
struct PanicsAtRecovery;

impl EventListener for PanicsAtRecovery {
    fn on_event(&self, event: &Event) {
        assert!(!matches!(event, Event::Recovered), "the listener panics");
    }
}

/// The first write after a full disk calls the listener after it got its sequence number and before
/// it inserts. Once, if the listener panicked, that sequence number was never published, and every
/// later write waited for ever.
#[test]
fn a_listener_that_panics_at_a_write_holds_no_other_write_up() {
    let disk = runstone_fault_storage::SimStorage::new(1);
    disk.set_capacity_bytes(Some(2 << 20));
    let mut options = options()
        .background(Background::Manual)
        .listener(Arc::new(PanicsAtRecovery))
        .memory_budget_bytes(256 << 20);
    // The log fills the disk before anything is flushed.
    options.keyspace.as_mut().expect("given").write_buffer_bytes = 32 << 20;
    let store = Store::open_on(Arc::new(disk.clone()), options).expect("open");
    let full = (0..1_000u32).find_map(|i| store.put(i.to_be_bytes(), [7; 5_000]).err());
    assert!(full.expect("the disk is full").is_no_space());
    disk.set_capacity_bytes(None);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.put("a", "b")));
    assert!(told.is_err(), "the listener was told");
    let keyspace = store.default_keyspace().clone();
    // A drop of the store would hang too if the test failed here.
    std::mem::forget(store);
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(keyspace.put("c", "d").is_ok()));
    wait.recv_timeout(std::time::Duration::from_secs(10)).expect("the next write ends");
}

/// Once, making or dropping a keyspace after the close failed at the lock, which was released, and
/// a transaction could begin.
#[test]
fn a_closed_store_says_that_it_is_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), options()).expect("open");
    store.open_keyspace("old", None).expect("open");
    let late = store.clone();
    store.close().expect("close");
    for name in ["old", "new"] {
        assert!(matches!(late.open_keyspace(name, None), Err(runstone::Error::Closed)), "{name}");
    }
    let keyspace = late.default_keyspace();
    let late_calls: [(&str, runstone::Result<()>); 6] = [
        ("drop a keyspace", late.drop_keyspace("old")),
        ("checkpoint", late.checkpoint(dir.path().join("copy"))),
        ("put", late.put("k", "v")),
        ("get", late.get("k").map(drop)),
        ("load", keyspace.bulk_load([("k", "v")]).map(drop)),
        ("compact", late.compact()),
    ];
    for (call, outcome) in late_calls {
        assert!(matches!(outcome, Err(runstone::Error::Closed)), "{call}: {outcome:?}");
    }
    let begun = late.begin(runstone::TransactionOptions::default());
    assert!(matches!(begun, Err(runstone::Error::Closed)));
}

/// A store whose removal was cut short is no longer a store, and the next removal completes the
/// first.
#[test]
fn a_removal_that_was_cut_short_is_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    Store::open(dir.path(), options()).and_then(|store| store.put("k", "v")).expect("a store");
    std::fs::remove_file(dir.path().join("CURRENT")).expect("there is one");
    std::fs::write(dir.path().join("notes.txt"), "not ours").expect("room");
    Store::destroy(dir.path()).expect("completes it");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    assert_eq!(left.iter().map(|file| file.file_name()).collect::<Vec<_>>(), ["notes.txt"]);
}

/// Writes each event into another store.
#[derive(Debug)]
struct Notes(Store);

impl EventListener for Notes {
    fn on_event(&self, event: &Event) {
        let event = format!("{event:?}");
        let name = event.split([' ', '{']).next().unwrap_or_default();
        self.0.put(name, &event).expect("puts");
        self.0.flush().expect("flushes");
    }
}

/// Some events are reported while a job holds locks. A listener may then use other stores, whose
/// locks have the same ranks, and debug builds must not mistake this for a wrong order.
#[test]
fn a_listener_may_write_to_another_store() {
    let open = |options: Options| {
        let storage = Arc::new(MemoryStorage::new());
        Store::open_on(storage, options.background(Background::Manual)).expect("open")
    };
    let notes = open(options());
    let store = open(options().listener(Arc::new(Notes(notes.clone()))));
    let other = store.open_keyspace("other", None).expect("new");
    for i in 0..20_000u32 {
        store.put((i % 5_000).to_be_bytes(), [i as u8; 300]).expect("puts");
        if i % 1_000 == 0 {
            other.put(i.to_be_bytes(), "a").expect("puts");
        }
    }
    store.flush().expect("flushes");
    store.compact().expect("compacts");
    store.drop_keyspace("other").expect("drops");
    store.close().expect("closes");
    let noted: Result<Vec<_>, Error> =
        notes.default_keyspace().iter().expect("reads").keys().collect();
    let noted = noted.expect("reads");
    for name in ["Flushed", "Compacted"] {
        assert!(noted.iter().any(|one| one == name.as_bytes()), "{name}: {noted:?}");
    }
}

/// A flush needs the log to be durable up to the flush's last write. Once, it synced all segments
/// that were begun meanwhile, and the prepared pages of the current segment.
#[test]
fn a_flush_syncs_the_log_up_to_its_own_writes() {
    let syncs = |later_puts: u32| {
        let storage = Arc::new(MemoryStorage::new());
        let mut keyspace = KeyspaceOptions::default();
        keyspace.write_buffer_bytes = 256 << 10;
        let options = options()
            .keyspace(keyspace)
            .background(Background::Manual)
            .wal_segment_bytes(64 << 10)
            .keep_log_bytes(1 << 30);
        let store = Store::open_on(storage.clone(), options).expect("open");
        let put = |key: u32| store.put(key.to_be_bytes(), [7; 1000]).expect("put");
        // The first memtable is full; the second one has room for the later writes.
        (0..280 + later_puts).for_each(put);
        let before = storage.counters().snapshot(Category::Wal).syncs;
        assert_eq!(store.metrics().counters.flushes, 0);
        while store.metrics().counters.flushes == 0 {
            assert!(store.run_one_job().expect("a job"));
        }
        storage.counters().snapshot(Category::Wal).syncs - before
    };
    let few = syncs(0);
    assert!(few > 0);
    assert_eq!(syncs(200), few, "200 puts begin three segments");
}

/// Once, `keep_log_seconds` alone kept nothing, although its description requires no other option.
/// Each open counted from zero, so a store that was opened daily kept its log for ever.
#[test]
fn the_log_is_kept_for_seconds_across_opens() {
    let dir = tempfile::tempdir().expect("a directory");
    let write_and_flush = || {
        let options = Options::default().background(Background::Manual).keep_log_seconds(3600);
        let store = Store::open(dir.path(), options).expect("open");
        store.put("key", "value").expect("put");
        store.flush().expect("flush");
        store.close().expect("close");
    };
    write_and_flush();
    let start = Changes::open(dir.path(), ChangesFrom::Oldest).expect("a store").position();
    let reaches_back = || match Changes::open(dir.path(), ChangesFrom::After(start)) {
        Ok(_) => true,
        Err(Error::HistoryGone { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    write_and_flush();
    assert!(start.seq() == 0 && reaches_back());
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7200);
    for file in std::fs::read_dir(dir.path()).expect("lists") {
        let path = file.expect("reads").path();
        if path.extension().is_some_and(|extension| extension == "wal") {
            let file = std::fs::File::options().write(true).open(path).expect("opens");
            file.set_modified(two_hours_ago).expect("its own file");
        }
    }
    write_and_flush();
    assert!(!reaches_back());
}
