//! Callbacks that use the store which calls them: merge operators, compaction filters, sources of
//! loads. (Listeners: `jobs.rs`.) No call waits for its own callback, and a call that could do so
//! is refused with an error that names it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use runstone::storage::MemoryStorage;
use runstone::{
    Background, Batch, CompactionFilter, Error, FilterDecision, Keyspace, KeyspaceOptions,
    MergeOperator, Options, Store, TransactionOptions, WriteOptions,
};
use runstone_sim::random::{Random, for_seeds};

/// Far longer than any call takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Call = fn(&Store) -> Result<(), Error>;

/// Calls that wait, or could wait, for a job, a lock or a load.
const CALLS: [(&str, Call); 19] = [
    ("put", |store| store.put("own", "1")),
    ("synced put", |store| store.default_keyspace().put_with("own", "1", WriteOptions::sync())),
    ("delete", |store| store.delete("own")),
    ("merge", |store| store.default_keyspace().merge("own", "1")),
    ("delete_range", |store| store.default_keyspace().delete_range("own".."p")),
    ("write", |store| {
        let mut batch = Batch::new();
        batch.put(store.default_keyspace(), "own", "1")?;
        store.write(&batch, WriteOptions::default())
    }),
    ("put_if_absent", |store| store.default_keyspace().put_if_absent("own", "1").map(drop)),
    ("transaction", |store| {
        let mut transaction = store.begin(TransactionOptions::default())?;
        transaction.put(store.default_keyspace(), "own", "1")?;
        transaction.commit(WriteOptions::default())
    }),
    ("sync", |store| store.sync()),
    ("flush", |store| store.flush()),
    ("compact", |store| store.compact()),
    ("compact_range", |store| store.default_keyspace().compact_range("a".."z")),
    ("collect_values", |store| store.collect_values()),
    ("run_one_job", |store| store.run_one_job().map(drop)),
    ("wait_idle", |store| store.wait_idle()),
    ("open_keyspace", |store| store.open_keyspace("fresh", None).map(drop)),
    ("change options", |store| {
        let options = KeyspaceOptions::default().ttl_seconds(1 << 20);
        store.open_keyspace("other", Some(options)).map(drop)
    }),
    ("drop_keyspace", |store| store.drop_keyspace("other")),
    ("close", |store| store.clone().close()),
];

/// The calls that would wait for the load whose source makes the call.
const REFUSED_IN_SOURCES: [&str; 4] = ["wait_idle", "change options", "drop_keyspace", "close"];

/// A call that a callback makes once, and its outcome.
#[derive(Default)]
struct Trap {
    /// Whether the filter makes the call, not the operator.
    is_filter: bool,
    store: OnceLock<Store>,
    call: Mutex<Option<Call>>,
    told: Mutex<Option<mpsc::Sender<Result<(), Error>>>>,
}

impl std::fmt::Debug for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trap")
    }
}

impl Trap {
    fn arm(&self, call: Call) -> mpsc::Receiver<Result<(), Error>> {
        let (told, outcome) = mpsc::channel();
        *self.told.lock().expect("sound") = Some(told);
        *self.call.lock().expect("sound") = Some(call);
        outcome
    }

    fn spring(&self) {
        let call = self.call.lock().expect("sound").take();
        if let (Some(store), Some(call)) = (self.store.get(), call) {
            let outcome = call(store);
            if let Some(told) = self.told.lock().expect("sound").take() {
                told.send(outcome).expect("the test waits");
            }
        }
    }
}

impl CompactionFilter for Trap {
    fn name(&self) -> &str {
        "trap"
    }

    fn decide(&self, _level: u32, _key: &[u8], _value: &[u8]) -> FilterDecision {
        if self.is_filter {
            self.spring();
        }
        FilterDecision::Keep
    }
}

/// Concatenates.
impl MergeOperator for Trap {
    fn name(&self) -> &str {
        "trap"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        if !self.is_filter {
            self.spring();
        }
        Ok([&[base.unwrap_or_default()], operands].concat().concat())
    }
}

fn open(background: Background, is_filtered: bool) -> (Store, Arc<Trap>) {
    let trap = Arc::new(Trap { is_filter: is_filtered, ..Trap::default() });
    let mut keyspace = KeyspaceOptions::default().merge_operator("trap");
    if is_filtered {
        keyspace.compaction_filter = "trap".into();
    }
    let options = Options::default()
        .background(background)
        .merge_operators(vec![Arc::clone(&trap) as Arc<dyn MergeOperator>])
        .compaction_filters(vec![Arc::clone(&trap) as Arc<dyn CompactionFilter>])
        .keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    store.open_keyspace("other", None).expect("makes");
    store.put("based", "0").expect("writes");
    store.put("plain", "1").expect("writes");
    store.flush().expect("flushes");
    store.default_keyspace().merge("based", "1").expect("merges");
    store.default_keyspace().merge("based", "2").expect("merges");
    trap.store.set(store.clone()).expect("once");
    (store, trap)
}

/// Runs, in a thread of its own, the work that makes the store call the trap.
fn beside(work: impl FnOnce() + Send + 'static) -> mpsc::Receiver<()> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    is_done
}

/// Once, a filter that made a put waited for ever for the compaction that had called it. A filter
/// that flushed waited for itself. A filter that closed the store closed it during its own call.
#[test]
fn a_callback_waits_for_nobody() {
    for background in [Background::Manual, Background::Threads(1)] {
        for (what, call) in CALLS {
            for place in ["filter", "operator of a read", "operator of a compaction"] {
                let (store, trap) = open(background, place == "filter");
                let outcome = trap.arm(call);
                let working = store.clone();
                let done = beside(move || match place {
                    "operator of a read" => drop(working.get("based").expect("reads")),
                    _ => working.compact().expect("compacts"),
                });
                let outcome = outcome.recv_timeout(PATIENCE);
                let outcome = outcome.unwrap_or_else(|_| panic!("{what} in {place} hangs"));
                assert!(matches!(outcome, Err(Error::InsideCallback)), "{what}, {place}");
                done.recv_timeout(PATIENCE).expect("goes on");
                assert_eq!(store.get("based").expect("reads").as_deref(), Some(&b"012"[..]));
                store.put("after", "it").expect("goes on");
                // Once, a refused sync ended all commits that can be awaited.
                let later = store.default_keyspace().put_later("later", "it").expect("writes");
                later.wait().expect("goes on");
                store.flush().expect("goes on");
            }
        }
    }
}

/// The place from which a callback is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    FilterOrOperatorOfACompaction,
    OperatorOfARead,
    Source,
    OperatorOfAReadOfASource,
}

const PLACES: [Place; 4] = [
    Place::FilterOrOperatorOfACompaction,
    Place::OperatorOfARead,
    Place::Source,
    Place::OperatorOfAReadOfASource,
];

/// A load into `other` whose source makes a call, or a read whose operator makes it.
fn load_that_calls(store: &Store, call: Option<Call>, told: mpsc::Sender<Result<(), Error>>) {
    let other = store.open_keyspace("other", None).expect("is there, or is made");
    let source = (0..3u8).inspect(|n| match (*n, call) {
        (1, Some(call)) => told.send(call(store)).expect("the test waits"),
        (1, None) => drop(store.get("based").expect("reads")),
        _ => {}
    });
    assert_eq!(other.bulk_load(source.map(|n| ([n], "loaded"))).expect("loads"), 3);
}

/// Many calls to one store, while another thread writes. The seed chooses each call, and whether it
/// comes from a filter, from an operator in reads or compactions, or from the source of a load.
fn live_with_callbacks(seed: u64) {
    let mut random = Random::new(seed);
    let threads = random.below(3) as usize;
    let background = if threads == 0 { Background::Manual } else { Background::Threads(threads) };
    let is_filtered = random.one_in(2);
    let (store, trap) = open(background, is_filtered);
    let (ends, writer) = (Arc::new(AtomicBool::new(false)), store.clone());
    let end = Arc::clone(&ends);
    let written = beside(move || {
        for n in (0u64..).take_while(|_| !end.load(Relaxed)) {
            writer.put((n % 500).to_be_bytes(), n.to_be_bytes()).expect("writes");
        }
    });
    let mut expected = b"012".to_vec();
    for turn in 0..8 {
        let (what, call) = CALLS[random.below(CALLS.len() as u64) as usize];
        let place = match is_filtered {
            true => [PLACES[0], PLACES[2]][random.below(2) as usize],
            false => PLACES[random.below(4) as usize],
        };
        let (told, of_source) = mpsc::channel();
        let outcome = match place {
            Place::Source => of_source,
            _ => trap.arm(call),
        };
        store.default_keyspace().merge("based", [b'0' + turn]).expect("merges");
        expected.push(b'0' + turn);
        let working = store.clone();
        let done = beside(move || match place {
            Place::FilterOrOperatorOfACompaction => working.compact().expect("compacts"),
            Place::OperatorOfARead => drop(working.get("based").expect("reads")),
            Place::Source => load_that_calls(&working, Some(call), told),
            Place::OperatorOfAReadOfASource => load_that_calls(&working, None, told),
        });
        let outcome = outcome.recv_timeout(PATIENCE);
        let outcome = outcome.unwrap_or_else(|_| panic!("{what} in {place:?}, {turn}: hangs"));
        let is_refused = place != Place::Source || REFUSED_IN_SOURCES.contains(&what);
        let holds = match is_refused {
            true => matches!(outcome, Err(Error::InsideCallback)),
            false => outcome.is_ok(),
        };
        assert!(holds, "{what} in {place:?}: {outcome:?}");
        done.recv_timeout(PATIENCE).expect("goes on");
        assert_eq!(store.get("based").expect("reads").as_deref(), Some(&expected[..]));
    }
    ends.store(true, Relaxed);
    written.recv_timeout(PATIENCE).expect("goes on");
    store.close().expect("closes");
}

#[test]
fn callbacks_beside_writers_wait_for_nobody() {
    for_seeds(6, live_with_callbacks);
}

/// Reads wait for nobody. Once, an operator that read the key whose value it was making recursed
/// until the stack was full.
#[test]
fn a_callback_may_read_but_not_what_it_makes() {
    let read: Call = |store| {
        assert!(store.get("plain")?.is_some());
        assert_eq!(store.default_keyspace().keys("p".."q")?, 1);
        Ok(())
    };
    let read_merged: Call = |store| store.get("based").map(drop);
    let scan: Call = |store| store.default_keyspace().iter()?.try_for_each(|item| item.map(drop));
    for (is_filtered, call, is_refused) in [
        (false, read, false),
        (false, read_merged, true),
        (false, scan, true),
        (true, read, false),
        (true, read_merged, false),
        (true, scan, false),
    ] {
        let (store, trap) = open(Background::Threads(1), is_filtered);
        let outcome = trap.arm(call);
        let working = store.clone();
        let done = beside(move || working.compact().expect("compacts"));
        let outcome = outcome.recv_timeout(PATIENCE).expect("ends");
        assert_eq!(matches!(outcome, Err(Error::InsideCallback)), is_refused, "{outcome:?}");
        assert!(is_refused || outcome.is_ok(), "{outcome:?}");
        done.recv_timeout(PATIENCE).expect("goes on");
    }
}

trait Keys {
    fn keys(&self, range: std::ops::Range<&str>) -> Result<usize, Error>;
}

impl Keys for Keyspace {
    fn keys(&self, range: std::ops::Range<&str>) -> Result<usize, Error> {
        self.range(range)?.try_fold(0, |count, item| item.map(|_| count + 1))
    }
}

/// The source of a load may write and read. Calls that would wait for the load are refused.
#[test]
fn a_source_of_a_load_does_not_wait_for_itself() {
    for (what, call) in CALLS {
        let is_refused = REFUSED_IN_SOURCES.contains(&what);
        let (store, _) = open(Background::Threads(1), false);
        let other = store.keyspace("other").expect("is there");
        let inner = store.clone();
        let done = beside(move || {
            let source = (0..3u8).inspect(|n| {
                if *n == 1 {
                    let outcome = call(&inner);
                    let refused = matches!(outcome, Err(Error::InsideCallback));
                    assert_eq!(refused, is_refused, "{what}: {outcome:?}");
                }
            });
            other.bulk_load(source.map(|n| ([n], "loaded"))).expect("loads");
        });
        done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} hangs, or another outcome"));
    }
}

/// The drop of a keyspace waits for its load. Once, a flush of all other keyspaces waited for both.
/// That took as long as the source of the load needed for its next entry.
#[test]
fn a_drop_beside_a_load_holds_no_flush_up() {
    let (store, _) = open(Background::Threads(1), false);
    let other = store.keyspace("other").expect("is there");
    other.put("k", "v").expect("writes");
    let ((begun, is_begun), (ends, end)) = (mpsc::channel(), mpsc::channel::<()>());
    let loading = beside(move || {
        let source = (0..2u8).inspect(|_| {
            let _ = begun.send(());
            let _ = end.recv();
        });
        let outcome = other.bulk_load(source.map(|n| ([n], "v")));
        assert!(matches!(outcome, Err(Error::UnknownKeyspace { .. })), "{outcome:?}");
    });
    is_begun.recv_timeout(PATIENCE).expect("begins");
    let dropping = store.clone();
    let dropped = beside(move || dropping.drop_keyspace("other").expect("drops"));
    let other = store.keyspace("other");
    while other.as_ref().is_ok_and(|other| other.put("k", "w").is_ok()) {
        thread::sleep(Duration::from_millis(1));
    }
    let flushing = store.clone();
    let flushed = beside(move || {
        flushing.put("k", "v").expect("writes");
        flushing.flush().expect("flushes");
    });
    flushed.recv_timeout(PATIENCE).expect("waits for no source");
    drop(ends);
    loading.recv_timeout(PATIENCE).expect("ends");
    dropped.recv_timeout(PATIENCE).expect("ends");
}
