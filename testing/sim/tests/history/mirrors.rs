//! Mirrors equal the store that they follow, whatever it does and whoever dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use runstone::seeded::Bug;
use runstone::storage::{Category, Storage};
use runstone::{Background, Error, MIRROR_KEYSPACE, Mirror, Options, ValuePlacement};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_policy::registry::POLICIES;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::found::holds_and_finds;
use runstone_sim::oracle::{Oracle, assert_same};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, generate, generate_large, options, options_for, placed, read_all, separated,
};

use super::attacks::{contents, mirror};
use super::hooked::Hooked;
use super::open;

const OPERATIONS: usize = 400;

/// A mirror and its place.
struct Target {
    storage: SimStorage,
    options: Options,
    /// How many copies were made.
    copies: u64,
}

impl Target {
    /// Opens the mirror; makes another one if it cannot continue.
    fn open(&mut self, source: &SimStorage) -> Mirror {
        let source = Arc::new(source.clone());
        let target = Arc::new(self.storage.clone());
        match Mirror::open_on(Arc::clone(&source) as _, target, self.options.clone()) {
            Err(Error::HistoryGone { .. }) => {
                self.copies += 1;
                self.storage = SimStorage::new(self.copies);
                let target = Arc::new(self.storage.clone());
                Mirror::open_on(source, target, self.options.clone()).expect("it can be copied")
            }
            mirror => mirror.expect("it goes on"),
        }
    }
}

/// Runs a workload beside a mirror that is advanced, killed and left alone now and then.
fn check(options: &Options, operations: &[Operation]) -> u64 {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut random = Random::new(seed ^ 0x6d69_7272);
    let mut storage = SimStorage::new(seed);
    let store = open(&storage, options).expect("no faults");
    let mut run = Run::new(store, Oracle::default()).with(options);
    let mut target =
        Target { storage: SimStorage::new(!seed), options: options.clone(), copies: 0 };
    let mut mirror = Some(target.open(&storage));
    for (step, operation) in operations.iter().enumerate() {
        let disk = storage.clone();
        run.apply(operation, || open(&disk, options)).expect("no faults");
        let place = format!("seed {seed}, step {step}");
        if random.one_in(4)
            && let Some(mirror) = &mut mirror
        {
            mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{place}: {error}"));
            let found = read_all(mirror.store(), None).expect("no faults");
            assert_same(&found, run.oracle.state(), &format!("{place}: the mirror"));
        }
        if random.one_in(50) {
            // The lease lapses. What retention keeps is enough to continue.
            mirror = None;
            target.storage = target.storage.process_crash();
        }
        if mirror.is_none() && random.one_in(8) {
            mirror = Some(target.open(&storage));
        }
        if random.one_in(60) {
            let is_there = mirror.take().is_some();
            let loses_power = random.one_in(2);
            let state = run.oracle.state().clone();
            storage = match loses_power {
                true => storage.power_cut(random.draw()).0,
                false => storage.process_crash(),
            };
            let store = open(&storage, options).unwrap_or_else(|error| panic!("{place}: {error}"));
            // Which writes a power loss may lose is judged elsewhere.
            let state = if loses_power { read_all(&store, None).expect("reads") } else { state };
            run = Run::new(store, Oracle::from_state(state)).with(options);
            mirror = is_there.then(|| target.open(&storage));
        }
    }
    target.copies
}

/// A reader of changes that are not durable may later have more than the store, which says so.
#[test]
fn changes_that_are_not_synced_are_found() {
    let check = || {
        for seed in 500..510 {
            check(&options(seed, Background::Manual), &generate(seed, OPERATIONS));
        }
    };
    holds_and_finds(Bug::HistoryNotSynced, check);
}

#[test]
fn mirrors_follow_every_policy() {
    for (seed, policy) in (0..).zip(POLICIES) {
        let options = options_for(policy.name(), seed, Background::Manual);
        check(&options, &generate(seed, OPERATIONS));
    }
}

#[test]
fn mirrors_follow_any_options() {
    for seed in 100..120 {
        check(&options(seed, Background::Manual), &generate(seed, OPERATIONS));
    }
}

#[test]
fn mirrors_follow_large_batches() {
    for seed in 200..206 {
        check(&options(seed, Background::Manual), &generate_large(seed, OPERATIONS / 2));
    }
}

/// A mirror that was away continues where it was.
#[test]
fn a_log_that_is_kept_spares_copies() {
    let copies = |keep_log_bytes| -> u64 {
        let options = |seed| {
            let options = options(seed, Background::Manual).keep_log_bytes(keep_log_bytes);
            // The log has only the places of early values, which collections free.
            placed(options, ValuePlacement::Inline)
        };
        (600..610).map(|seed| check(&options(seed), &generate(seed, OPERATIONS))).sum()
    };
    assert!(copies(0) > 5);
    assert_eq!(copies(1 << 30), 0);
}

#[test]
fn mirrors_follow_separated_values() {
    for seed in 300..306 {
        let operations = generate(seed, OPERATIONS);
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, &operations);
        }
    }
}

/// Once, a mirror wrote the list of all keyspaces for each keyspace that was made or dropped, and
/// also once a second. 100,000 keyspaces that were made one by one would have cost it 100 GB.
#[test]
fn keyspaces_that_come_one_by_one_are_recorded_one_by_one() {
    let options = Options::default().background(Background::Manual);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    let mirror = || {
        let (source, target) = (Arc::new(source.clone()), Arc::new(target.clone()));
        Mirror::open_on(source, target, options.clone()).expect("it goes on")
    };
    store.put("first", "").expect("no faults");
    let mut first = mirror();
    let make = |name: &str| store.open_keyspace(name, None).map(drop).expect("no faults");
    (0..1000).for_each(|i| make(&format!("keyspace {i}")));
    (0..5).for_each(|i| store.drop_keyspace(&format!("keyspace {i}")).expect("it is there"));
    make("keyspace 3");
    first.advance(Duration::ZERO).expect("no faults");
    let bytes = first.store().metrics().counters.user_bytes_written;
    assert!(bytes < 200_000, "{bytes}");
    first.close().expect("no faults");
    store.drop_keyspace("keyspace 7").expect("it is there");
    store.keyspace("keyspace 3").expect("it is there").put("key", "value").expect("no faults");
    for _ in 0..2 {
        let mut next = mirror();
        let own = next.store().keyspace("runstone.mirror").expect("there");
        assert_eq!(own.iter().expect("opens").count(), 2, "the list and the position");
        next.advance(Duration::ZERO).expect("no faults");
        let mut names = next.store().keyspaces();
        names.retain(|name| name != MIRROR_KEYSPACE);
        assert_eq!(names, store.keyspaces());
        let own = next.store().keyspace("keyspace 3").expect("it is there");
        assert_eq!(own.get("key").expect("reads").as_deref(), Some(&b"value"[..]));
        next.close().expect("no faults");
    }
}

/// Once, a first copy that found no room left its files, and the mirror could not be made there: it
/// was reported as a damaged store that a repair might help.
#[test]
fn a_mirror_that_had_no_room_begins_again() {
    let options = Options::default().background(Background::Manual);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    store.put("key", "value").expect("no faults");
    store.flush().expect("no faults");
    store.put("logged", "value").expect("no faults");
    let mut struck = 0;
    for at_op in 0..60 {
        let target = SimStorage::new(2);
        let begin = || mirror(&source, &target, &options);
        target.inject(Fault { at_op, kind: FaultKind::NoSpace, sticky: true, category: None });
        struck += u32::from(begin().is_err());
        target.clear_faults();
        let mut mirror = begin().unwrap_or_else(|error| panic!("{at_op}: {error}"));
        mirror.advance(Duration::ZERO).expect("no faults");
        assert_eq!(contents(mirror.store()), contents(&store), "{at_op}");
    }
    assert!(struck > 10, "{struck}");
}

/// Once, two mirrors that began in one directory mixed their files.
#[test]
fn two_mirrors_do_not_begin_in_one_directory() {
    let options = Options::default().background(Background::Manual);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    let store = open(&source, &options).expect("no faults");
    store.put("key", "value").expect("no faults");
    store.flush().expect("no faults");
    let met = Arc::new(AtomicBool::new(false));
    let hook = {
        let (source, target, options) = (source.clone(), target.clone(), options.clone());
        let met = Arc::clone(&met);
        move |name: &str| {
            let has_begun = !target.list().expect("a list").is_empty();
            if name.ends_with("wal") && has_begun && !met.swap(true, SeqCst) {
                let other = mirror(&source, &target, &options).map(drop);
                assert!(matches!(other, Err(Error::InUse { .. })), "{other:?}");
            }
        }
    };
    let hooked = Hooked::new(&source, Box::new(hook));
    let mirror = Mirror::open_on(hooked, Arc::new(target.clone()), options).expect("it is first");
    assert!(met.load(SeqCst));
    assert_eq!(contents(mirror.store()), contents(&store));
}

/// A directory that a mirror refuses is left as it was.
#[test]
fn a_mirror_that_is_refused_leaves_no_lock() {
    let options = Options::default().background(Background::Manual);
    let (source, target) = (SimStorage::new(1), SimStorage::new(2));
    assert!(mirror(&source, &target, &options).is_err(), "the source is no store");
    assert!(target.list().expect("a list").is_empty());
    drop(open(&source, &options).expect("no faults"));
    target.create("letter.txt", Category::Other).expect("no faults");
    let refused = mirror(&source, &target, &options).map(drop).expect_err("files of others");
    assert_eq!(target.list().expect("a list").len(), 1, "{refused}");
}

/// A first copy that was killed is reported as such.
#[test]
fn a_mirror_that_was_not_made_to_its_end_is_told() {
    let options = Options::default().background(Background::Manual);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    store.put("key", "value").expect("no faults");
    store.flush().expect("no faults");
    for at_op in 0..60 {
        let target = SimStorage::new(2);
        target.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
        let is_made = mirror(&source, &target, &options).is_ok();
        let target = target.process_crash();
        match mirror(&source, &target, &options) {
            Ok(mirror) => assert_eq!(contents(mirror.store()), contents(&store), "{at_op}"),
            Err(refused) => {
                assert!(!is_made, "{at_op}: {refused}");
                let (what, hint) = (refused.to_string(), refused.hint());
                let is_told = ["did not end", "was not made to its end"];
                assert!(is_told.iter().any(|told| what.contains(told)), "{at_op}: {what}");
                assert!(hint.contains("new directory"), "{at_op}: {hint}");
            }
        }
    }
}
