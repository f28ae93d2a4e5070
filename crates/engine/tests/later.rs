//! Commits that can be awaited, without a runtime: threads poll the futures themselves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use runstone::storage::{Category, MemoryStorage};
use runstone::{
    Background, Batch, Commit, Durability, Error, Keyspace, Options, Resources, Store,
    TransactionOptions, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end in this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls once; `None` if the commit is not ready.
fn poll(commit: &mut Commit, count: &Arc<Count>) -> Option<Result<(), Error>> {
    let waker = Waker::from(Arc::clone(count));
    match Pin::new(commit).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn options(background: Background) -> Options {
    Options::default().background(background).wal_mode(WalMode::Write).seed(1)
}

fn by_hand(storage: &SimStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), options(Background::Manual)).expect("opens")
}

fn with_threads(storage: &SimStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), options(Background::Threads(2))).expect("opens")
}

fn put_later(keyspace: &Keyspace, i: u32) -> Commit {
    keyspace.put_later(i.to_be_bytes(), "value").expect("writes")
}

fn has(store: &Store, i: u32) -> bool {
    store.get(i.to_be_bytes()).expect("reads").is_some()
}

fn syncs(store: &Store) -> u64 {
    store.metrics().counters.wal_syncs
}

#[test]
fn commits_go_between_threads() {
    fn is_send_and_sync<T: Send + Sync + Unpin + 'static>() {}
    is_send_and_sync::<Commit>();
}

#[test]
fn a_commit_is_visible_at_once_and_survives_power_loss_once_it_is_ready() {
    let storage = SimStorage::new(1);
    let store = with_threads(&storage);
    for i in 0..20 {
        let commit = put_later(store.default_keyspace(), i);
        assert!(has(&store, i));
        block_on(commit).expect("syncs");
    }
    let mut batch = Batch::new();
    batch.put(store.default_keyspace(), "batch", "all").expect("fits");
    let commit = store.write_later(&batch, WriteOptions::sync()).expect("writes");
    block_on(commit).expect("syncs");
    block_on(store.default_keyspace().delete_later(0u32.to_be_bytes()).expect("writes"))
        .expect("syncs");
    let (left, _) = storage.power_cut(5);
    let store = by_hand(&left);
    assert!(!has(&store, 0));
    assert!((1..20).all(|i| has(&store, i)));
    assert!(store.get("batch").expect("reads").is_some());
}

/// One explicit sync serves all commits, and wakes each of them once.
#[test]
fn a_sync_by_hand_serves_all_commits_before_it() {
    let storage = SimStorage::new(2);
    let store = by_hand(&storage);
    let wake_by: [fn(&Store); 4] = [
        |store| assert!(store.run_one_job().expect("syncs")),
        |store| store.sync().expect("syncs"),
        |store| store.default_keyspace().put_with("k", "v", WriteOptions::sync()).expect("syncs"),
        |store| {
            store.default_keyspace().put_later("k", "v").expect("writes").wait().expect("syncs")
        },
    ];
    for (round, wakes) in wake_by.iter().enumerate() {
        let mut commits: Vec<_> = (0..1000)
            .map(|i| (put_later(store.default_keyspace(), i), Arc::new(Count::default())))
            .collect();
        assert!(commits.iter_mut().all(|(commit, count)| poll(commit, count).is_none()));
        let before = syncs(&store);
        wakes(&store);
        assert_eq!(syncs(&store) - before, 1, "round {round}");
        for (commit, count) in &mut commits {
            assert_eq!(count.0.load(SeqCst), 1, "round {round}");
            assert!(matches!(poll(commit, count), Some(Ok(()))));
            assert!(matches!(poll(commit, count), Some(Ok(()))), "it stays ready");
        }
        store.wait_idle().expect("is idle");
        assert!(!store.run_one_job().expect("nothing is due"));
    }
}

#[test]
fn without_a_sync_to_wait_for_a_commit_is_ready() {
    let storage = SimStorage::new(3);
    let store = by_hand(&storage);
    let mut batch = Batch::new();
    batch.put(store.default_keyspace(), "k", "v").expect("fits");
    let count = Arc::new(Count::default());
    for options in [WriteOptions::default(), WriteOptions::buffered()] {
        let mut commit = store.write_later(&batch, options).expect("writes");
        assert!(matches!(poll(&mut commit, &count), Some(Ok(()))));
        commit.wait().expect("is ready");
    }
    assert_eq!(syncs(&store), 0);
    // An empty batch waits for all earlier writes.
    let mut all = store.write_later(&Batch::new(), WriteOptions::sync()).expect("is taken");
    assert!(poll(&mut all, &count).is_none());
    all.wait().expect("syncs");
    assert_eq!(syncs(&store), 1);
    let mut again = store.write_later(&Batch::new(), WriteOptions::sync()).expect("is taken");
    assert!(matches!(poll(&mut again, &count), Some(Ok(()))), "it is durable");
    let refused = store.write_later(&batch, WriteOptions::sync().ttl(Duration::from_secs(1)));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
}

#[test]
fn without_a_log_there_is_nothing_to_await() {
    let options = options(Background::Manual).wal_mode(WalMode::Off);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let refused = store.default_keyspace().put_later("k", "v").expect_err("refused");
    assert!(refused.to_string().contains("a synced write needs the log"), "{refused}");
    assert!(store.get("k").expect("reads").is_none());
    let mut batch = Batch::new();
    batch.put(store.default_keyspace(), "k", "v").expect("fits");
    let commit = store.write_later(&batch, WriteOptions::default()).expect("writes");
    block_on(commit).expect("is ready");
}

/// A commit that is dropped, polled or not, is still written, and a store with threads syncs it.
#[test]
fn a_dropped_commit_changes_nothing() {
    let storage = SimStorage::new(4);
    let store = with_threads(&storage);
    drop(put_later(store.default_keyspace(), 1));
    let mut polled = put_later(store.default_keyspace(), 2);
    let count = Arc::new(Count::default());
    let _ = poll(&mut polled, &count);
    drop(polled);
    while Arc::strong_count(&count) > 1 {
        std::thread::yield_now();
    }
    // A later commit is not ready before these.
    block_on(put_later(store.default_keyspace(), 3)).expect("syncs");
    let (left, _) = storage.power_cut(1);
    let left = by_hand(&left);
    assert!([1, 2, 3].into_iter().all(|i| has(&left, i)));
}

#[test]
fn dropped_commits_leave_no_waker_behind() {
    let store = by_hand(&SimStorage::new(5));
    let mut commits: Vec<_> = (0..100).map(|i| put_later(store.default_keyspace(), i)).collect();
    let count = Arc::new(Count::default());
    assert!(commits.iter_mut().all(|commit| poll(commit, &count).is_none()));
    assert_eq!(Arc::strong_count(&count), 101);
    commits.truncate(50);
    assert_eq!(Arc::strong_count(&count), 51);
    store.sync().expect("syncs");
    assert_eq!((count.0.load(SeqCst), Arc::strong_count(&count)), (50, 1));
}

fn fail_syncs(storage: &SimStorage) {
    let (kind, category) = (FaultKind::FailedSync, Some(Category::Wal));
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: true, category });
}

/// A failed sync fails all commits that wait for it, and all later ones (P7). Writes that were
/// durable before stay durable.
#[test]
fn a_failed_sync_is_the_error_of_all_that_wait() {
    for background in [Background::Manual, Background::Threads(2)] {
        let storage = SimStorage::new(6);
        let store = Store::open_on(Arc::new(storage.clone()), options(background)).expect("opens");
        let mut early = put_later(store.default_keyspace(), 0);
        store.sync().expect("syncs");
        fail_syncs(&storage);
        let commits: Vec<_> = (1..100)
            .map_while(|i| store.default_keyspace().put_later(i.to_string(), "value").ok())
            .collect();
        assert!(!commits.is_empty());
        if background == Background::Manual {
            assert!(matches!(store.run_one_job(), Err(Error::Stopped { .. })));
        }
        let count = Arc::new(Count::default());
        assert!(matches!(poll(&mut early, &count), Some(Ok(()))));
        for (i, commit) in commits.into_iter().enumerate() {
            let outcome = if i % 2 == 0 { block_on(commit) } else { commit.wait() };
            assert!(matches!(outcome, Err(Error::Stopped { .. })), "{i}: {outcome:?}");
        }
        let refused = store.default_keyspace().put_later("late", "value");
        assert!(matches!(refused, Err(Error::Stopped { .. })));
        assert!(!store.run_one_job().expect("nothing is due"));
        drop(store);
    }
}

/// All commits in the queue get the error, whoever finds the failure first.
#[test]
fn a_sync_that_fails_for_a_blocking_writer_wakes_the_others() {
    let storage = SimStorage::new(7);
    let store = by_hand(&storage);
    let mut commit = put_later(store.default_keyspace(), 1);
    let count = Arc::new(Count::default());
    assert!(poll(&mut commit, &count).is_none());
    fail_syncs(&storage);
    store.default_keyspace().put_with("k", "v", WriteOptions::sync()).expect_err("fails");
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(matches!(poll(&mut commit, &count), Some(Err(Error::Stopped { .. }))));
}

/// A close makes the waiting commits durable, by a flush or a sync, and wakes them.
#[test]
fn a_close_ends_what_waits() {
    for (flushes, drops) in [(true, false), (false, false), (true, true), (false, true)] {
        let storage = SimStorage::new(8);
        let options = options(Background::Manual).flush_at_close(flushes);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let mut commits: Vec<_> =
            (0..100).map(|i| put_later(store.default_keyspace(), i)).collect();
        let late = put_later(store.default_keyspace(), 100);
        let count = Arc::new(Count::default());
        assert!(commits.iter_mut().all(|commit| poll(commit, &count).is_none()));
        let keyspace = store.default_keyspace().clone();
        if drops {
            drop(store)
        } else {
            store.close().expect("closes")
        }
        assert_eq!(count.0.load(SeqCst), 100);
        assert!(commits.iter_mut().all(|commit| matches!(poll(commit, &count), Some(Ok(())))));
        late.wait().expect("is durable");
        assert!(matches!(keyspace.put_later("k", "v"), Err(Error::Closed)));
        let store = by_hand(&storage.power_cut(3).0);
        assert!((0..=100).all(|i| has(&store, i)), "flush at close: {flushes}");
    }
}

#[test]
fn a_close_of_a_stopped_store_ends_what_waits_with_the_error() {
    let storage = SimStorage::new(9);
    let store = by_hand(&storage);
    let mut commit = put_later(store.default_keyspace(), 1);
    let late = put_later(store.default_keyspace(), 2);
    let count = Arc::new(Count::default());
    assert!(poll(&mut commit, &count).is_none());
    let (kind, category) = (FaultKind::Eio, Some(Category::Wal));
    storage.inject(Fault { at_op: storage.ops(), kind, sticky: false, category });
    store.put("k", "v").expect_err("the log cannot be written");
    assert!(poll(&mut commit, &count).is_none(), "a sync might still succeed");
    let _ = store.close();
    assert_eq!(count.0.load(SeqCst), 1);
    assert!(matches!(poll(&mut commit, &count), Some(Err(Error::Stopped { .. }))));
    assert!(matches!(late.wait(), Err(Error::Stopped { .. })));
}

/// Many threads make awaited and blocking commits while the store closes. Each commit ends.
#[test]
fn nobody_hangs_when_a_store_closes() {
    for round in 0..20 {
        let storage = SimStorage::new(round);
        let store = with_threads(&storage);
        let keyspace = store.default_keyspace().clone();
        let durable = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (keyspace, durable) = (&keyspace, &durable);
                scope.spawn(move || {
                    for i in (thread * 100_000..).step_by(1) {
                        let Ok(commit) = keyspace.put_later(i.to_be_bytes(), "value") else {
                            return;
                        };
                        if block_on(commit).is_ok() {
                            durable.lock().expect("no panic").push(i);
                        }
                    }
                });
            }
            while durable.lock().expect("no panic").len() < 50 {
                std::thread::yield_now();
            }
            store.close().expect("closes");
        });
        let store = by_hand(&storage.power_cut(round).0);
        let durable = durable.into_inner().expect("no panic");
        assert!(durable.iter().all(|i| has(&store, *i)), "round {round}");
    }
}

/// A batch that does not fit a segment, and a batch whose record is written outside the lock.
#[test]
fn large_batches_can_be_awaited() {
    for bytes in [300 << 10, 3 << 20] {
        let storage = SimStorage::new(10);
        let options = options(Background::Threads(2)).wal_segment_bytes(1 << 20);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let mut batch = Batch::new();
        for i in 0..10u32 {
            let value = vec![7; bytes / 10];
            batch.put(store.default_keyspace(), i.to_be_bytes(), value).expect("fits");
        }
        let commit = store.write_later(&batch, WriteOptions::sync()).expect("writes");
        assert!(has(&store, 9));
        block_on(commit).expect("syncs");
        let store = by_hand(&storage.power_cut(2).0);
        assert!((0..10).all(|i| has(&store, i)));
    }
}

/// A transaction treats awaited writes like any others: they cause conflicts, and the sync of its
/// commit covers them.
#[test]
fn transactions_meet_awaited_commits_as_other_writes() {
    let storage = SimStorage::new(11);
    let store = by_hand(&storage);
    let keyspace = store.default_keyspace();
    let mut late = store.begin(TransactionOptions::default()).expect("begins");
    late.put(keyspace, "k", "transaction").expect("fits");
    let mut commit = keyspace.put_later("k", "awaited").expect("writes");
    let refused = late.commit(WriteOptions::sync());
    assert!(matches!(refused, Err(Error::Conflict { .. })));
    let count = Arc::new(Count::default());
    assert!(poll(&mut commit, &count).is_none(), "what was refused synced nothing");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(keyspace, "other", "transaction").expect("fits");
    transaction.commit(WriteOptions::sync()).expect("commits");
    assert!(matches!(poll(&mut commit, &count), Some(Ok(()))));
}

/// The number of syncing threads of the process, found by their name.
fn syncing_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "runstone-sync").count()
}

/// Many stores that share resources share the thread. Other tests of this process may have their
/// own.
#[test]
fn stores_that_share_resources_share_the_thread() {
    let resources = Resources::builder().threads(2).memory_budget(64 << 20).build().expect("made");
    let stores: Vec<Store> = (0..50)
        .map(|seed| {
            let storage = Arc::new(SimStorage::new(seed));
            let options = Options::default().wal_mode(WalMode::Write);
            resources.open_on(storage, options).expect("opens")
        })
        .collect();
    for _ in 0..10 {
        let commits: Vec<_> =
            stores.iter().map(|store| put_later(store.default_keyspace(), 1)).collect();
        commits.into_iter().for_each(|commit| block_on(commit).expect("syncs"));
    }
    assert!(syncing_threads() < 50);
    let (closed, open) = stores.split_at(25);
    closed.iter().for_each(|store| store.clone().close().expect("closes"));
    open.iter().for_each(|store| {
        block_on(put_later(store.default_keyspace(), 2)).expect("syncs");
    });
}

/// A waker may own a task, and the task may own the last handle of a store. Dropping the waker then
/// closes the store on the syncing thread, which must not wait for itself.
#[test]
fn a_waker_may_drop_the_last_handle() {
    struct Owns(Mutex<Option<Store>>, Arc<AtomicBool>);
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().expect("no panic").take());
            self.1.store(true, SeqCst);
        }
    }
    for _ in 0..20 {
        let storage = SimStorage::new(12);
        let store = with_threads(&storage);
        let (is_dropped, keyspace) = (Arc::new(AtomicBool::new(false)), store.default_keyspace());
        let mut commit = put_later(keyspace, 1);
        let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(store)), Arc::clone(&is_dropped))));
        let polled = Pin::new(&mut commit).poll(&mut Context::from_waker(&waker));
        drop(waker);
        while polled.is_pending() && !is_dropped.load(SeqCst) {
            std::thread::yield_now();
        }
        block_on(commit).expect("is durable");
        assert!(has(&by_hand(&storage), 1), "the store was closed");
    }
}

/// The default durability of the store applies to `write_later`, as it does to `write`.
#[test]
fn a_store_that_syncs_each_write_syncs_awaited_ones() {
    let options = options(Background::Manual).durability(Durability::Sync);
    let store = Store::open_on(Arc::new(SimStorage::new(13)), options).expect("opens");
    let mut batch = Batch::new();
    batch.put(store.default_keyspace(), "k", "v").expect("fits");
    let mut commit = store.write_later(&batch, WriteOptions::default()).expect("writes");
    assert!(poll(&mut commit, &Arc::default()).is_none());
    commit.wait().expect("syncs");
    assert_eq!(syncs(&store), 1);
}
