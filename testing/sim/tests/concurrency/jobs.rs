//! Threads that wait for jobs, and jobs that end badly: jobs that panic, keyspaces dropped in the
//! middle of a compaction, stores closed while a caller collects, listeners that call back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Waypoint};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, CompactionFilter, Compression, Error, Event, EventListener, FilterDecision,
    GcPointers, Keyspace, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement, WalMode,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

/// Longer than any wait should be for work that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn keyspace_options() -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    options.write_buffer_bytes = 64 << 10;
    options.max_immutable_memtables = 1;
    let shape = unstable::numbers_mut(&mut options);
    shape.l0_trigger = 1;
    shape.table_bytes = 32 << 10;
    options.values = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .separate_at(500)
        .groups(2)
        .slot_bytes(4096)
        .capacity_bytes(32 << 10);
    options
}

fn options(background: Background) -> Options {
    Options::default()
        .background(background)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .keyspace(keyspace_options())
}

/// A store without a log, whose checkpoints flush.
fn without_log() -> Options {
    let mut keyspace = keyspace_options();
    keyspace.values = keyspace.values.gc_pointers(GcPointers::Stable);
    options(Background::Manual).keyspace(keyspace).wal_mode(WalMode::Off)
}

/// A listener that runs the test's closure at the first event of a kind.
#[derive(Default)]
struct Trap(Mutex<Option<Armed>>);

type Armed = (&'static str, Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trap")
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Flushed { .. } => "flush",
        Event::Compacted { .. } => "compaction",
        Event::ValuesCollected { .. } => "collection",
        Event::Pressure { level, .. } if level.parts() == 0 => "relief",
        Event::Pressure { .. } => "pressure",
        Event::BackgroundError { .. } => "error",
        _ => "other",
    }
}

impl Trap {
    fn arm(&self, kind: &'static str, work: impl FnOnce() + Send + 'static) {
        *self.0.lock().expect("sound") = Some((kind, Box::new(work)));
    }
}

impl EventListener for Trap {
    fn on_event(&self, event: &Event) {
        let armed = self.0.lock().expect("sound").take_if(|(wanted, _)| *wanted == kind(event));
        if let Some((_, work)) = armed {
            work();
        }
    }
}

/// Runs `work` in a thread of its own. The receiver gets its outcome.
fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (is_done, done) = mpsc::channel();
    std::thread::spawn(move || is_done.send(work()));
    done
}

fn write_all(keyspace: &Keyspace, turn: u8) -> Result<(), Error> {
    (0..40u8).try_for_each(|k| keyspace.put([k], [turn; 600]))
}

/// A store with a job that waits in an event until the test makes it panic.
struct Stuck {
    store: Arc<Store>,
    storage: MemoryStorage,
    go: Sender<()>,
    writer: Receiver<()>,
}

impl Stuck {
    fn at(kind: &'static str, background: Background) -> Stuck {
        let trap = Arc::new(Trap::default());
        let listener: Arc<dyn EventListener> = Arc::clone(&trap) as _;
        let storage = MemoryStorage::new();
        let options = options(background).listener(listener);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let busy = store.open_keyspace("busy", Some(keyspace_options())).expect("new");
        store.put("kept", "value").expect("puts");
        (0..4).for_each(|turn| write_all(&busy, turn).expect("puts"));
        let ((go, may_go), (here, is_here)) = (mpsc::channel(), mpsc::channel());
        trap.arm(kind, move || {
            here.send(()).expect("is awaited");
            may_go.recv_timeout(PATIENCE).expect("comes");
            panic!("a listener that panics");
        });
        let writer = beside(move || {
            for turn in (0..=u8::MAX).cycle() {
                let round = || write_all(&busy, turn).and_then(|()| busy.compact());
                if !matches!(catch_unwind(AssertUnwindSafe(round)), Ok(Ok(()))) {
                    return;
                }
            }
        });
        is_here.recv_timeout(PATIENCE).expect("such a job runs");
        Stuck { store: Arc::new(store), storage, go, writer }
    }

    /// Makes the job panic. Checks that everything acknowledged is in the store when it is opened
    /// again.
    fn check_after<T>(self, what: &str, waiting: &Receiver<T>) -> T {
        std::thread::sleep(Duration::from_millis(50));
        self.go.send(()).expect("is awaited");
        let outcome = waiting.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: waits"));
        self.writer.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: a writer waits"));
        let store = self.store;
        let closing = beside(move || drop(store));
        closing.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: the close waits"));
        let options = options(Background::Manual);
        let store = Store::open_on(Arc::new(self.storage), options).expect("opens again");
        assert!(store.get("kept").expect("reads").is_some(), "{what}");
        assert!(store.verify().expect("verifies").is_clean(), "{what}");
        outcome
    }
}

/// A call that waits for jobs.
type Call = (&'static str, fn(&Store) -> Result<(), Error>);

const CALLS: [Call; 8] = [
    ("drop_keyspace", |store| store.drop_keyspace("busy")),
    ("open_keyspace", |store| {
        let changed = keyspace_options().restart_interval(8);
        store.open_keyspace("busy", Some(changed)).map(drop)
    }),
    ("wait_idle", Store::wait_idle),
    ("flush", |store| {
        store.put("more", "to flush")?;
        store.flush()
    }),
    ("compact", Store::compact),
    ("collect_values", Store::collect_values),
    ("checkpoint", |store| store.checkpoint("/copy")),
    ("run_one_job", |store| store.run_one_job().map(drop)),
];

/// Once, a job that panicked kept its claim, and a compaction or collection also kept the resources
/// that it held. Every caller that waited for the job waited for ever: the drop of a keyspace, a
/// change of options, a compaction, a collection.
#[test]
fn nobody_waits_for_a_job_that_panicked() {
    for background in [Background::Manual, Background::Threads(2)] {
        for kind in ["flush", "compaction", "collection"] {
            for (name, call) in CALLS {
                let what = format!("{name} beside a {kind}, {background:?}");
                let stuck = Stuck::at(kind, background);
                let store = Arc::clone(&stuck.store);
                let waiting = beside(move || call(&store));
                let outcome = stuck.check_after(&what, &waiting);
                let is_told = matches!(outcome, Ok(()) | Err(Error::Stopped { .. }));
                assert!(is_told, "{what}: {outcome:?}");
            }
        }
    }
}

/// The same check for the close of the store, during the job and after it.
#[test]
fn a_store_closes_beside_a_job_that_panics() {
    for background in [Background::Manual, Background::Threads(2)] {
        for kind in ["flush", "compaction", "collection"] {
            let what = format!("close beside a {kind}, {background:?}");
            let mut stuck = Stuck::at(kind, background);
            let other = Store::open_on(Arc::<MemoryStorage>::default(), options(background));
            let store = std::mem::replace(&mut stuck.store, Arc::new(other.expect("opens")));
            let store = Arc::into_inner(store).expect("nobody else has it");
            let waiting = beside(move || store.close());
            stuck.check_after(&what, &waiting).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// Once, a listener panicked again when it received the event of its first panic, and the process
/// aborted.
#[test]
fn a_listener_may_panic_twice() {
    #[derive(Debug)]
    struct Panics;
    impl EventListener for Panics {
        fn on_event(&self, event: &Event) {
            let is_told_by_job = !matches!(event, Event::Pressure { .. });
            assert!(!is_told_by_job, "a listener that panics at {event:?}");
        }
    }
    let options = options(Background::Manual).listener(Arc::new(Panics));
    let store = Store::open_on(Arc::<MemoryStorage>::default(), options).expect("opens");
    store.put("key", "value").expect("puts");
    assert!(catch_unwind(AssertUnwindSafe(|| store.flush())).is_err());
    let refused = store.put("more", "writes");
    assert!(matches!(refused, Err(Error::Stopped { .. })), "{refused:?}");
}

/// Once, a listener that panicked at the error of a failed sync left that sync marked as running,
/// for all who waited for it.
#[test]
fn a_listener_may_panic_at_a_failed_sync() {
    #[derive(Debug)]
    struct Panics;
    impl EventListener for Panics {
        fn on_event(&self, event: &Event) {
            assert!(!matches!(event, Event::BackgroundError { .. }), "told to");
        }
    }
    let storage = SimStorage::new(1);
    let options = options(Background::Manual).listener(Arc::new(Panics));
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    let later = store.default_keyspace().put_later("a", "1").expect("writes");
    let (at_op, kind) = (storage.ops(), FaultKind::FailedSync);
    storage.inject(Fault { at_op, kind, sticky: false, category: Some(Category::Wal) });
    let keyspace = store.default_keyspace().clone();
    let writing = beside(move || {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            keyspace.put_with("b", "2", runstone::WriteOptions::sync())
        }));
        Ok::<(), Error>(())
    });
    writing.recv_timeout(PATIENCE).expect("the write ends").expect("as told");
    let waiting = beside(move || later.wait());
    let outcome = waiting.recv_timeout(PATIENCE).expect("the wait ends");
    assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
}

/// Once, a checkpoint panicked because its listener did so at an event of pressure. It left behind
/// the mark that holds flushes back, and the next flush waited for ever.
#[test]
fn a_checkpoint_that_panics_holds_no_flush_back() {
    let trap = Arc::new(Trap::default());
    let options = without_log().listener(Arc::clone(&trap) as _);
    let store = Store::open_on(Arc::<MemoryStorage>::default(), options).expect("opens");
    store.put("key", "value").expect("puts");
    seeded::step_in(Waypoint::MemtablesReplaced, || panic!("a step that panics"));
    assert!(catch_unwind(AssertUnwindSafe(|| store.checkpoint("/copy"))).is_err());
    let waiting = beside(move || store.put("more", "writes").and_then(|()| store.flush()));
    waiting.recv_timeout(PATIENCE).expect("the flush ends").expect("flushes");
}

/// Once, a collection that a caller had begun through a handle continued after the store was
/// closed, and wrote to slots that the next process to open the store may use.
#[test]
fn a_close_waits_for_a_collection_of_a_caller() {
    let storage = MemoryStorage::new();
    let open = || Store::open_on(Arc::new(storage.clone()), options(Background::Manual));
    let store = open().expect("opens");
    for turn in 0..4 {
        write_all(store.default_keyspace(), turn).expect("puts");
        store.flush().expect("flushes");
    }
    let keyspace = store.default_keyspace().clone();
    let ((here, is_here), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let collecting = beside(move || {
        seeded::step_in(Waypoint::GroupCopied, move || {
            here.send(()).expect("is awaited");
            let _ = may_go.recv();
        });
        keyspace.compact()
    });
    is_here.recv_timeout(PATIENCE).expect("collects");
    let closing = beside(move || store.close());
    assert!(closing.recv_timeout(Duration::from_millis(300)).is_err(), "closed beside it");
    drop(go);
    closing.recv_timeout(PATIENCE).expect("ends").expect("closes");
    let collected = collecting.recv_timeout(PATIENCE).expect("ends");
    assert!(matches!(collected, Err(Error::Closed)), "{collected:?}");
    assert!(open().expect("opens").verify().expect("verifies").is_clean());
}

/// Once, the drop of a keyspace waited for the whole of a running compaction, whose output nothing
/// needed any more.
#[test]
fn a_compaction_ends_when_its_keyspace_is_dropped() {
    for compaction_slices in [None, Some(4)] {
        let storage = MemoryStorage::new();
        let options = options(Background::Manual).compaction_slices(compaction_slices);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let store = Arc::new(store);
        let mut plain =
            keyspace_options().values(ValueOptions::default()).compression(vec![Compression::None]);
        unstable::numbers_mut(&mut plain).table_bytes = 512 << 10;
        let gone = store.open_keyspace("gone", Some(plain)).expect("new");
        // The keys are in no order, so no table moves without being merged.
        for i in 0..200_000u32 {
            gone.put(i.wrapping_mul(0x9E37_79B9).to_be_bytes(), [7; 60]).expect("puts");
        }
        let written = move || storage.counters().snapshot(Category::Table).written_bytes;
        let (at_drop, measured) = (Arc::new(AtomicU64::new(0)), written.clone());
        let (left, dropping, handle) = (Arc::clone(&at_drop), Arc::clone(&store), gone.clone());
        let (is_done, done) = mpsc::channel();
        store.flush().expect("flushes");
        let before = written();
        seeded::step_in(Waypoint::CompactionGoesOn, move || {
            std::thread::spawn(move || is_done.send(dropping.drop_keyspace("gone")));
            while handle.put("still", "there").is_ok() {
                std::thread::yield_now();
            }
            left.store(measured(), SeqCst);
        });
        let refused = gone.compact().expect_err("it is gone");
        assert!(seeded::has_stepped_in());
        assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
        done.recv_timeout(PATIENCE).expect("ends").expect("drops");
        let after = written() - at_drop.load(SeqCst);
        assert!(after < 4 << 20, "{after} bytes behind {}", at_drop.load(SeqCst) - before);
        store.put("others", "go on").expect("puts");
    }
}

/// Counts how often this thread reaches a waypoint.
fn count_at(place: Waypoint, count: Arc<AtomicU64>) {
    seeded::step_in(place, move || {
        count.fetch_add(1, SeqCst);
        count_at(place, count);
    });
}

/// Once, with jobs run by hand, a checkpoint polled the state without a pause while another thread
/// flushed.
#[test]
fn a_checkpoint_rests_while_another_thread_flushes() {
    let trap = Arc::new(Trap::default());
    let options = without_log().listener(Arc::clone(&trap) as _);
    let store = Store::open_on(Arc::<MemoryStorage>::default(), options).expect("opens");
    let store = Arc::new(store);
    let ((here, is_here), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    trap.arm("collection", move || {
        here.send(()).expect("is awaited");
        let _ = may_go.recv();
    });
    let flushing = Arc::clone(&store);
    let flushing = beside(move || {
        (0..9).try_for_each(|turn| {
            write_all(flushing.default_keyspace(), turn)?;
            flushing.flush()
        })
    });
    is_here.recv_timeout(PATIENCE).expect("makes room for what it flushes");
    let looks = Arc::new(AtomicU64::new(0));
    let (copying, counted) = (Arc::clone(&store), Arc::clone(&looks));
    let copying = beside(move || {
        count_at(Waypoint::FlushesAwaited, counted);
        copying.checkpoint("/copy")
    });
    assert!(copying.recv_timeout(Duration::from_millis(300)).is_err(), "copied beside it");
    assert!(looks.load(SeqCst) < 10, "{} looks", looks.load(SeqCst));
    drop(go);
    flushing.recv_timeout(PATIENCE).expect("ends").expect("flushes");
    copying.recv_timeout(PATIENCE).expect("ends").expect("copies");
}

/// Once, a listener that called back into the store waited for the job that waited for the
/// listener, or for a lock held during the event. Now it may read, and any other call returns an
/// error that says to use another thread.
#[test]
fn a_listener_may_read_and_is_told_so() {
    for background in [Background::Manual, Background::Threads(2)] {
        for kind in ["flush", "compaction", "collection", "pressure", "relief", "error"] {
            for (name, call) in CALLS.into_iter().chain([
                ("put", (|store| store.put("more", "writes")) as fn(&Store) -> _),
                ("sync", Store::sync),
                ("metrics", |store| {
                    store.metrics();
                    Ok(())
                }),
                ("get", |store| store.get("kept").map(|value| assert!(value.is_some()))),
            ]) {
                let what = format!("{name} at an event of kind {kind}, {background:?}");
                let outcome = call_at(kind, background, call);
                let outcome = outcome.unwrap_or_else(|_| panic!("{what}: hangs"));
                match name {
                    "get" | "metrics" => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
                    _ => {
                        let is_told = matches!(outcome, Err(Error::InsideCallback));
                        assert!(is_told, "{what}: {outcome:?}");
                    }
                }
            }
        }
    }
}

/// Returns the outcome of a call that a listener makes at the first event of a kind.
fn call_at(
    kind: &'static str,
    background: Background,
    call: fn(&Store) -> Result<(), Error>,
) -> Result<Result<(), Error>, mpsc::RecvTimeoutError> {
    let trap = Arc::new(Trap::default());
    let storage = SimStorage::new(1);
    let options = options(background).listener(Arc::clone(&trap) as _);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    let store = Arc::new(store);
    let busy = store.open_keyspace("busy", Some(keyspace_options())).expect("new");
    store.put("kept", "value").expect("puts");
    let (is_done, done) = mpsc::channel();
    let calling = Arc::clone(&store);
    trap.arm(kind, move || drop(is_done.send(call(&calling))));
    let writer = beside(move || {
        for turn in 0..30 {
            if kind == "error" && turn == 3 {
                let category = Some(Category::Wal);
                let (at_op, kind) = (storage.ops(), FaultKind::Eio);
                storage.inject(Fault { at_op, kind, sticky: true, category });
            }
            if write_all(&busy, turn).and_then(|()| busy.compact()).is_err() {
                return;
            }
        }
    });
    let outcome = done.recv_timeout(PATIENCE)?;
    writer.recv_timeout(PATIENCE)?;
    let closing = beside(move || drop(store));
    closing.recv_timeout(PATIENCE).map(|()| outcome)
}

/// A listener may close the store; the memtables stay in the log.
#[test]
fn a_listener_may_end_the_store() {
    for background in [Background::Manual, Background::Threads(2)] {
        let trap = Arc::new(Trap::default());
        let listener: Arc<dyn EventListener> = Arc::clone(&trap) as _;
        let storage = MemoryStorage::new();
        let open = |options| Store::open_on(Arc::new(storage.clone()), options);
        let store = open(options(background).listener(listener)).expect("opens");
        store.put("key", "value").expect("puts");
        let keyspace = store.default_keyspace().clone();
        let (is_done, done) = mpsc::channel();
        trap.arm("flush", move || drop(is_done.send(store.close())));
        let writer = beside(move || drop(keyspace.compact()));
        let closed = done.recv_timeout(PATIENCE).expect("does not hang");
        assert!(matches!(closed, Err(Error::InsideCallback)), "{closed:?}");
        writer.recv_timeout(PATIENCE).expect("does not hang");
        let mut reopened = open(options(background));
        while matches!(reopened, Err(Error::InUse { .. })) {
            std::thread::sleep(Duration::from_millis(5));
            reopened = open(options(background));
        }
        assert!(reopened.expect("opens").get("key").expect("reads").is_some());
    }
}

/// Once, a sync of the log that panicked never ended, so a thread that needed another sync waited
/// for ever.
#[test]
fn nobody_waits_for_a_sync_that_panicked() {
    let store = Store::open_on(Arc::<MemoryStorage>::default(), options(Background::Manual));
    let store = store.expect("opens");
    store.put("key", "value").expect("puts");
    seeded::step_in(Waypoint::LogSyncBegun, || panic!("a step that panics"));
    let synced = catch_unwind(AssertUnwindSafe(|| store.sync()));
    assert!(!matches!(synced, Ok(Ok(()))), "{synced:?}");
    let again = beside(move || store.sync());
    let again = again.recv_timeout(PATIENCE).expect("ends");
    assert!(matches!(again, Err(Error::Stopped { .. })), "{again:?}");
}

/// Once, the listener of one store wrote to another store during an event in the middle of a write.
/// The thread's write buffer was already in use, and the listener panicked.
#[test]
fn a_listener_may_write_to_another_store() {
    let trap = Arc::new(Trap::default());
    let plain = options(Background::Manual);
    let open = |options| Store::open_on(Arc::<MemoryStorage>::default(), options).expect("opens");
    let store = open(plain.clone().listener(Arc::clone(&trap) as _));
    let other = Arc::new(open(plain));
    let heard = Arc::clone(&other);
    trap.arm("pressure", move || heard.put("heard of", "pressure").expect("puts"));
    for i in 0..1000u32 {
        store.put(i.to_be_bytes(), [7; 400]).expect("puts");
    }
    assert!(other.get("heard of").expect("reads").is_some());
}

/// Once, a caller collected a value file while its keyspace changed its placement. The next round
/// logged an edit of a file that was gone, and the store did not open again.
#[test]
fn a_collection_of_a_caller_ends_with_its_value_file() {
    let storage = MemoryStorage::new();
    let open = || Store::open_on(Arc::new(storage.clone()), options(Background::Manual));
    let store = Arc::new(open().expect("opens"));
    let busy = store.open_keyspace("busy", Some(keyspace_options())).expect("new");
    for turn in 0..4 {
        write_all(&busy, turn).expect("puts");
        store.flush().expect("flushes");
    }
    let (changing, (told, changed)) = (Arc::clone(&store), mpsc::channel());
    seeded::step_in(Waypoint::GroupCopied, move || {
        std::thread::spawn(move || {
            let inline = keyspace_options().values(ValueOptions::default());
            let outcome = changing.open_keyspace("busy", Some(inline));
            let _ = told.send(outcome.and_then(|busy| busy.compact()));
        });
        // The change of options waits for now. During the second group it proceeds as far as it
        // can.
        std::thread::sleep(Duration::from_millis(200));
        seeded::step_in(Waypoint::GroupCopied, move || {
            let _ = changed.recv_timeout(Duration::from_secs(1));
        });
    });
    store.collect_values().expect("collects");
    busy.compact().expect("compacts");
    drop(busy);
    let mut store = Some(store);
    while let Some(Err(left)) = store.take().map(Arc::try_unwrap) {
        store = Some(left);
    }
    let store = open().expect("opens again");
    assert_eq!(store.keyspace("busy").expect("is there").iter().expect("opens").count(), 40);
}

/// Once, with jobs run by hand, a caller with a handle began a flush while the store was being
/// closed. Both flushed the same memtable.
#[test]
fn a_close_flushes_alone() {
    let trap = Arc::new(Trap::default());
    let options = options(Background::Manual).listener(Arc::clone(&trap) as _);
    let store = Store::open_on(Arc::<MemoryStorage>::default(), options).expect("opens");
    store.put("key", "value").expect("puts");
    let keyspace = store.default_keyspace().clone();
    seeded::step_in(Waypoint::MemtableReplaced, move || {
        let (tell, told) = mpsc::channel();
        trap.arm("flush", move || {
            // When the close itself flushes, the receiver is gone.
            let _ = tell.send(());
        });
        let refused = beside(move || keyspace.compact()).recv_timeout(PATIENCE).expect("ends");
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
        assert!(told.try_recv().is_err(), "it flushed beside the close");
    });
    store.close().expect("closes");
    assert!(seeded::has_stepped_in());
}

/// A filter that holds the first compaction until it is released.
#[derive(Debug, Default)]
struct Gate(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl CompactionFilter for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn decide(&self, _level: u32, _key: &[u8], _value: &[u8]) -> FilterDecision {
        let held = self.0.lock().expect("no panic").take();
        if let Some((here, go)) = held {
            here.send(()).expect("it is awaited");
            go.recv().expect("it is released");
        }
        FilterDecision::Keep
    }
}

/// The search for a job of an idle store releases the claims now and then. Once, it continued when
/// another thread had begun a compaction meanwhile: two compactions had the same tables, and the
/// store stopped as corrupt.
#[test]
fn an_idle_search_ends_when_another_job_begins() {
    const KEYSPACES: u32 = 1_100;
    let gate = Arc::new(Gate::default());
    let keyspace = KeyspaceOptions::default().compaction_filter("gate");
    let options = Options::default().background(Background::Manual);
    let options = options.compaction_filters(vec![Arc::clone(&gate) as _]);
    let storage = MemoryStorage::new();
    let open = || Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
    let store = open();
    for n in 0..KEYSPACES {
        store.open_keyspace(&format!("k{n}"), Some(keyspace.clone())).expect("makes");
    }
    store.close().expect("closes");
    // An open does not know which keyspaces are tidy.
    let store = open();
    let last = store.keyspace(&format!("k{}", KEYSPACES - 1)).expect("is there");
    while store.run_one_job().expect("runs") {}
    let ((here, is_here), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    *gate.0.lock().expect("no panic") = Some((here, may_go));
    let (beside, (begun, has_begun)) = (store.clone(), mpsc::channel());
    seeded::step_in(Waypoint::ClaimsReleased, move || {
        for run in 0..8u32 {
            (0..1_000u32).for_each(|n| match run % 2 {
                0 => last.put((n * 8 + run).to_be_bytes(), "value").expect("puts"),
                _ => last.delete((n * 8 + run).to_be_bytes()).expect("deletes"),
            });
            beside.flush().expect("flushes");
        }
        let compacting = thread::spawn(move || beside.wait_idle());
        is_here.recv_timeout(PATIENCE).expect("a compaction has begun");
        begun.send(compacting).expect("the test waits");
    });
    assert!(!store.run_idle_job().expect("searches"), "another job runs");
    assert!(seeded::has_stepped_in());
    go.send(()).expect("it waits");
    let compacting = has_begun.recv().expect("it stepped in");
    compacting.join().expect("no panic").expect("compacts");
    store.put("key", "value").expect("the store is whole");
}
