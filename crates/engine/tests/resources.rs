//! Stores that share a memory budget, threads and open files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use runstone::{
    Background, Error, Event, EventListener, Follower, KeyspaceOptions, Options, Resources, Store,
    WalMode, WriteOptions,
};

/// The tests count threads and descriptors of the process, so they run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|panicked| panicked.into_inner())
}

/// The number of background threads of the process, once there are `expected`, or after some
/// seconds. A thread that has just begun has no name yet, and a thread that was joined may still be
/// listed.
fn threads(expected: usize) -> usize {
    let counts = (0..1000).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        threads_now()
    });
    counts.into_iter().find(|count| *count == expected).unwrap_or_else(threads_now)
}

fn threads_now() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with("runstone")).count()
}

/// The number of open descriptors of files below a directory.
fn descriptors(below: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let target =
        |one: std::io::Result<std::fs::DirEntry>| std::fs::read_link(one.ok()?.path()).ok();
    all.filter_map(target).filter(|target: &PathBuf| target.starts_with(below)).count()
}

fn settles(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn three_hundred_stores_take_few_threads_and_descriptors() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let resources = Resources::builder()
        .memory_budget(64 << 20)
        .threads(3)
        .max_open_files(40)
        .build()
        .expect("resources");
    let path = |n: usize| dir.path().join(n.to_string());
    let open = |n| resources.open(path(n), Options::default()).expect("a store");
    let stores: Vec<Store> = (0..300).map(open).collect();
    assert_eq!((threads(3), resources.stores()), (3, 300));
    for round in 0..3 {
        for (n, store) in stores.iter().enumerate() {
            (0..20).for_each(|key| store.put([round, key], n.to_be_bytes()).expect("a put"));
            if n % 3 == usize::from(round) {
                store.flush().expect("a flush");
            }
        }
    }
    // Each store holds the descriptor of its lock. Logs are mapped if the file system allows it.
    let is_mapped = descriptors(dir.path()) < 600;
    let most = if is_mapped { 345 } else { 645 };
    settles("idle stores close their files", || descriptors(dir.path()) <= most);
    for (n, store) in stores.iter().enumerate() {
        let value = store.get([(n % 3) as u8, 7]).expect("a get").expect("found");
        assert_eq!(&value[..], n.to_be_bytes());
        // A manifest whose file was closed still accepts an edit.
        store.open_keyspace("later", None).expect("a keyspace").put("k", "v").expect("a put");
    }
    settles("also behind more edits", || descriptors(dir.path()) <= most);
    assert!(resources.memory().memtable_bytes <= 64 << 20);
    for store in stores {
        store.close().expect("a close");
    }
    assert_eq!((threads(3), resources.stores()), (3, 0));
    settles("nothing stays open", || descriptors(dir.path()) == 0);
    for n in [0, 150, 299] {
        let store = open(n);
        assert!(store.keyspace("later").expect("there").get("k").expect("a get").is_some());
    }
    drop(resources);
    assert_eq!(threads(0), 0);
}

/// Sixty followers share threads, descriptors and memory, and each of them reads the writes of its
/// writer.
#[test]
fn sixty_followers_take_few_threads_and_descriptors() {
    const COUNT: usize = 60;
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = |n: usize| dir.path().join(n.to_string());
    let of_writers = Resources::builder().threads(1).build().expect("resources");
    let writers: Vec<Store> = (0..COUNT)
        .map(|n| of_writers.open(path(n), Options::default()).expect("a store"))
        .collect();
    for (n, writer) in writers.iter().enumerate() {
        writer.put("flushed", n.to_be_bytes()).expect("a put");
        writer.flush().expect("a flush");
    }
    settles("the writers rest", || descriptors(dir.path()) <= 4 * COUNT);
    let before = descriptors(dir.path());
    let budget = Resources::builder().memory_budget(32 << 20).threads(2).max_open_files(20);
    let resources = budget.build().expect("resources");
    let follow = |n| resources.follow(path(n), Options::default()).expect("a store");
    let followers: Vec<Follower> = (0..COUNT).map(follow).collect();
    assert_eq!((threads(3), resources.stores()), (3, COUNT as u64));
    for (n, (writer, follower)) in writers.iter().zip(&followers).enumerate() {
        writer.put("logged", n.to_be_bytes()).expect("a put");
        assert!(follower.refresh().expect("readable"));
        for key in ["flushed", "logged"] {
            let value = follower.store().get(key).expect("a get").expect("there");
            assert_eq!(&value[..], n.to_be_bytes());
        }
    }
    let taken = || descriptors(dir.path()) - before;
    settles("followers share descriptors", || taken() <= 3 * COUNT + 20);
    let memory = resources.memory();
    assert!(memory.memtable_bytes > 0, "what the log has counts");
    assert!(memory.memtable_bytes + memory.cache_bytes <= 32 << 20, "{memory:?}");
    // A view outlives its follower, and keeps the resources that it needs for reading.
    let view = followers[7].store();
    drop(followers);
    assert_eq!(resources.stores(), 0);
    drop(resources);
    assert!(view.get("logged").expect("a get").is_some());
    drop(view);
    assert_eq!(threads(1), 1, "those of the writers");
    for writer in writers {
        writer.close().expect("a close");
    }
    drop(of_writers);
    settles("nothing stays open", || descriptors(dir.path()) == 0);
}

/// A copy of a store has the uid of the store, and its files have the same numbers but different
/// content.
#[test]
fn a_store_and_its_copy_beside_it_keep_apart() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let resources = Resources::builder().memory_budget(16 << 20).build().expect("resources");
    let small = KeyspaceOptions::default().write_buffer_bytes(256 << 10);
    let options = || Options::default().keyspace(small.clone());
    let one = resources.open(dir.path().join("one"), options()).expect("a store");
    let key = |n: u32| n.to_be_bytes();
    (0..5_000).for_each(|n| one.put(key(n), [1; 200]).expect("a put"));
    one.checkpoint(dir.path().join("two")).expect("a copy");
    let two = resources.open(dir.path().join("two"), options()).expect("the copy");
    for (store, byte) in [(&one, 2), (&two, 3)] {
        (0..5_000).step_by(2).for_each(|n| store.put(key(n), [byte; 200]).expect("a put"));
        store.compact().expect("a compaction");
    }
    for round in 0..3 {
        for (store, byte) in [(&one, 2), (&two, 3)] {
            for n in 0..5_000 {
                let value = store.get(key(n)).expect("a get").expect("found");
                let wanted = if n % 2 == 0 { byte } else { 1 };
                assert_eq!(&value[..], [wanted; 200], "round {round}: {n} of {byte}");
            }
        }
    }
}

#[test]
fn the_memtables_of_all_stores_together_keep_the_budget() {
    let _alone = alone();
    const BUDGET_BYTES: u64 = 32 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let resources =
        Resources::builder().memory_budget(BUDGET_BYTES).threads(2).build().expect("made");
    let open = |n: usize| resources.open(dir.path().join(n.to_string()), Options::default());
    let stores: Vec<Store> = (0..24).map(|n| open(n).expect("a store")).collect();
    let most = AtomicU64::new(0);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(SeqCst) {
                most.fetch_max(resources.memory().memtable_bytes, SeqCst);
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = stores
            .chunks(6)
            .map(|some| {
                scope.spawn(move || {
                    for n in 0..80_000_u32 {
                        let store = &some[n as usize % some.len()];
                        store.put(n.to_be_bytes(), [9; 400]).expect("a put");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        is_done.store(true, SeqCst);
    });
    // 130 MB were written: 5.4 MB to each store, too little to fill a memtable of its own.
    let most = most.into_inner();
    assert!(most > BUDGET_BYTES / 4, "much of it is used: {most}");
    // The promised bound is a twentieth above the budget. Log segments and spare chunks count too.
    assert!(most <= BUDGET_BYTES + BUDGET_BYTES / 20, "{most} bytes");
    // A store to which nobody writes holds up nobody: its memtables were flushed.
    for (n, store) in stores.iter().enumerate() {
        assert!(store.metrics().counters.flushes > 0, "store {n} was never flushed");
    }
}

/// Nobody prepares or unmaps segments in the background, but the writer still keeps little of its
/// log in memory.
#[test]
fn finished_log_segments_leave_memory_without_background_work() {
    let _alone = alone();
    let memory_of = |mode: WalMode| {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::default()
            .background(Background::Manual)
            .wal_mode(mode)
            .wal_segment_bytes(64 << 10);
        let store = Store::open(dir.path(), options).expect("a store");
        (0..20_000_u32).for_each(|n| store.put(n.to_be_bytes(), [7; 400]).expect("a put"));
        store.metrics().memory.memtable_bytes
    };
    // The log has 8 MB in 130 segments. The current segment and a finished one are in memory.
    let (mapped, written) = (memory_of(WalMode::Mapped), memory_of(WalMode::Write));
    assert!(mapped <= written + (3 << 16), "{mapped} bytes, {written} without a mapped log");
}

/// A listener that panics at the first flush of its store.
#[derive(Debug)]
struct Panics;

impl EventListener for Panics {
    fn on_event(&self, event: &Event) {
        assert!(!matches!(event, Event::Flushed { .. }), "as the test wants it");
    }
}

#[test]
fn a_store_that_fails_takes_no_other_with_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let resources = Resources::builder().threads(1).build().expect("resources");
    let good = resources.open(dir.path().join("good"), Options::default()).expect("a store");
    let options = Options::default().listener(Arc::new(Panics));
    let bad = resources.open(dir.path().join("bad"), options).expect("a store");
    bad.put("k", "v").expect("a put");
    // The flush is done when its listener panics.
    let _ = bad.flush();
    settles("it stops", || matches!(bad.put("k", "w"), Err(Error::Stopped { .. })));
    good.put("k", "v").expect("a put");
    good.flush().expect("the thread goes on");
    drop(bad);
    good.put("k", "w").expect("a put");
    good.compact().expect("a compaction");
    assert_eq!(threads(1), 1);
}

#[test]
fn options_that_the_resources_set_do_not_count_in_a_store() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let refused = Resources::builder().memory_budget(1).build().expect_err("too little");
    assert!(refused.to_string().contains("memory_budget_bytes"), "{refused}");
    for (builder, told) in [
        (Resources::builder().threads(0), "threads is 0 threads, but must be at least 1"),
        (Resources::builder().threads(257), "threads is 257 threads, but must be at most 256"),
        (Resources::builder().max_open_files(1), "max_open_files is 1, but must be at least 8"),
        (
            Resources::builder().background_bytes_per_second(1),
            "background_bytes_per_second is 1, but must be at least 16384",
        ),
    ] {
        let refused = builder.build().expect_err(told).to_string();
        assert!(refused.contains(told), "{refused}");
    }
    let resources = Resources::builder().memory_budget(8 << 20).threads(1).build().expect("made");
    let options = Options::default().background(Background::Threads(9));
    let store = resources.open(dir.path().join("a"), options).expect("a store");
    assert_eq!((threads(1), store.metrics().memory.budget_bytes), (1, 8 << 20));
    // The jobs of a store that shares resources can be run by hand, too.
    let options = Options::default().background(Background::Manual);
    let manual = resources.open(dir.path().join("b"), options).expect("a store");
    manual.put("k", "v").expect("a put");
    manual.flush().expect("a flush");
    assert!(manual.metrics().counters.flushes == 1);
    // Resources last as long as a store that was opened with them.
    drop(resources);
    store.put("k", "v").expect("a put");
    store.flush().expect("a flush");
    drop((store, manual));
    assert_eq!(threads(0), 0);
}

#[test]
fn compactions_keep_the_rate_and_writers_do_not_wait_for_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let resources =
        Resources::builder().background_bytes_per_second(8 << 20).build().expect("resources");
    let store = resources.open(dir.path().join("a"), Options::default()).expect("a store");
    let random = |n: u64| {
        (0..125)
            .flat_map(move |at| (n * 125 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
    };
    for round in 0..2 {
        for n in 0..4_000_u64 {
            let value: Vec<u8> = random(n + round).collect();
            store.put(n.to_be_bytes(), value).expect("a put");
        }
        store.flush().expect("a flush");
    }
    store.compact().expect("a compaction");
    assert!(store.metrics().counters.paused_ns > 0, "8 MB flushed, 4 MB compacted");
    // A close does not wait for the rate limit.
    let synced = WriteOptions::sync();
    let mut batch = runstone::Batch::new();
    batch.put(store.default_keyspace(), "k", "v").expect("a key");
    store.write(&batch, synced).expect("a write");
    store.close().expect("a close");
}
