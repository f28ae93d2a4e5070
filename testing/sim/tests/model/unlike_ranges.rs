//! Operands, and compaction filters, where tables of one level have different ranges: a compaction
//! may leave out a table whose age is between those of its inputs (rule I7). Random workloads
//! rarely make such tables, so the generator here makes them on purpose, by local writes, wide
//! writes, loads and hot gets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use runstone::policy::Policy;
use runstone::seeded::Bug;
use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, CompactionFilter, Error, FilterDecision, KeyspaceOptions, Options, ReadOptions,
    Store,
};
use runstone_policy::options::IntraLevel;
use runstone_policy::registry::POLICIES;
use runstone_sim::found::{holds_and_finds, panics};
use runstone_sim::oracle::{Change, OPERATOR, Oracle, Write, assert_same};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::{Operation, Run, keyspaces, options_for, read_all};

fn open(storage: &MemoryStorage, options: &Options) -> Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    Store::open_on(storage, options.clone())
}

fn options(policy: &str, change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.merge_operator = OPERATOR.into();
    unstable::numbers_mut(&mut keyspace).l0_trigger = 1;
    change(&mut keyspace);
    Options::default().background(Background::Manual).keyspace(keyspace)
}

fn fresh(options: &Options) -> Store {
    open(&MemoryStorage::new(), options).expect("fresh")
}

fn settle(store: &Store) {
    store.flush().expect("flushes");
    store.wait_idle().expect("idle");
}

fn get(store: &Store, key: &str) -> Option<String> {
    let value = store.get(key).expect("reads");
    value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

/// Makes an oldest table, a large table and a newest table, under a policy that compacts the
/// deepest level without its largest table. Each table has one of the `versions` of key k; an
/// operand begins with `+`.
fn under_guards(versions: [&str; 3], expected: &str) {
    let store = fresh(&options("guards", |keyspace| unstable::numbers_mut(keyspace).max_runs = 2));
    for (i, version) in versions.into_iter().enumerate() {
        store.put("a", i.to_string()).expect("writes");
        if i == 1 {
            (0..2_000).for_each(|n| store.put(format!("b{n:05}"), [n as u8; 100]).expect("writes"));
        }
        match version.strip_prefix('+') {
            Some(operand) => store.default_keyspace().merge("k", operand).expect("merges"),
            None => store.put("k", version).expect("writes"),
        }
        store.put("z", i.to_string()).expect("writes");
        settle(&store);
    }
    assert_eq!(get(&store, "k").as_deref(), Some(expected));
    store.compact().expect("compacts");
    assert_eq!(get(&store, "k").as_deref(), Some(expected), "for good");
}

/// Once, an operand was folded onto the oldest value of its key, durably: `guards` compacts small
/// tables of the deepest level around a large one, which contained the value that the operand was
/// for. The same happened to two operands around a put. Now the largest table is checked too.
#[test]
fn operands_are_not_folded_past_the_largest_table() {
    holds_and_finds(Bug::OperandsFoldedPastTables, || {
        under_guards(["old", "new", "+operand"], "new,operand");
    });
    holds_and_finds(Bug::OperandsFoldedPastTables, || {
        under_guards(["+older", "new", "+operand"], "new,operand");
    });
    under_guards(["old", "+newer", "+operand"], "old,newer,operand");
}

/// The same happened under adaptive tiering, which compacts a hot table with all tables that
/// overlap it, but not with tables that overlap only the latter.
#[test]
fn operands_are_not_folded_past_what_gets_leave_alone() {
    holds_and_finds(Bug::OperandsFoldedPastTables, || {
        let store = fresh(&options("adaptive-tiering", |keyspace| {
            let shape = unstable::numbers_mut(keyspace);
            shape.access_limit = 10;
            shape.access_bytes = 1 << 20;
            shape.intra_level = IntraLevel::Every;
            keyspace.filter_bits_per_key = 0.0.into();
        }));
        let fill = |prefix: &str| {
            (0..300).for_each(|n| store.put(format!("{prefix}{n:03}"), "x").expect("writes"));
        };
        store.put("a", "old").expect("writes");
        fill("k");
        store.put("z", "1").expect("writes");
        settle(&store);
        store.put("a", "new").expect("writes");
        store.put("b", "1").expect("writes");
        settle(&store);
        store.default_keyspace().merge("a", "operand").expect("merges");
        fill("q");
        settle(&store);
        store.put("m", "1").expect("writes");
        store.put("n", "1").expect("writes");
        settle(&store);
        for _ in 0..5 {
            for _ in 0..20 {
                for key in ["m", "m", "mm"] {
                    store.get(key).expect("reads");
                }
            }
            settle(&store);
        }
        assert_eq!(get(&store, "a").as_deref(), Some("new,operand"));
    });
}

/// Once the operand is written, removes values equal to `closed`, and remembers the values of key k
/// that it saw.
#[derive(Debug, Default)]
struct Closed {
    is_reopened: AtomicBool,
    shown: Mutex<Vec<String>>,
}

impl CompactionFilter for Closed {
    fn name(&self) -> &str {
        "closed"
    }

    fn decide(&self, _level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        if key == b"k" {
            let shown = String::from_utf8_lossy(value).into_owned();
            self.shown.lock().expect("sound").push(shown);
        }
        match value {
            b"closed" if self.is_reopened.load(Relaxed) => FilterDecision::Remove,
            _ => FilterDecision::Keep,
        }
    }
}

/// Once, a compaction of older tables showed the filter a value whose operand was in a memtable, or
/// in a table above. The filter removed the value, and readers who had seen `closed,reopened` saw
/// `reopened`. Now the filter is shown the whole value, once a compaction sees all of it.
#[test]
fn a_filter_is_shown_no_base_below_an_operand() {
    for policy in ["leveling", "guards"] {
        holds_and_finds(Bug::FilterIgnoresNewer, || {
            let filter = Arc::new(Closed::default());
            let mut options = options(policy, |keyspace| {
                keyspace.compaction_filter = "closed".into();
                unstable::numbers_mut(keyspace).max_runs = 2;
            });
            options.compaction_filters = vec![Arc::clone(&filter) as Arc<dyn CompactionFilter>];
            let store = fresh(&options);
            if policy == "leveling" {
                operand_in_memory(&store, &filter);
            } else {
                operand_in_the_largest_table(&store, &filter);
            }
            assert_eq!(get(&store, "k").as_deref(), Some("closed,reopened"));
            store.compact().expect("compacts");
            store.compact().expect("compacts");
            assert_eq!(get(&store, "k").as_deref(), Some("closed,reopened"));
            let shown = filter.shown.lock().expect("sound").pop();
            assert_eq!(shown.as_deref(), Some("closed,reopened"));
        });
    }
}

/// The same happened where a cursor began between the base and its operand.
#[test]
fn a_filter_is_shown_no_base_that_a_cursor_sees_below_an_operand() {
    let filter = Arc::new(Closed::default());
    let mut options = options("leveling", |keyspace| keyspace.compaction_filter = "closed".into());
    options.compaction_filters = vec![Arc::clone(&filter) as Arc<dyn CompactionFilter>];
    let store = fresh(&options);
    store.put("k", "closed").expect("writes");
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek("k").expect("seeks");
    reopen(&store, &filter);
    store.compact().expect("compacts");
    assert_eq!(get(&store, "k").as_deref(), Some("closed,reopened"));
    assert_eq!(cursor.value(), b"closed");
    drop(cursor);
    store.compact().expect("compacts");
    store.compact().expect("compacts");
    assert_eq!(get(&store, "k").as_deref(), Some("closed,reopened"));
}

fn reopen(store: &Store, filter: &Closed) {
    store.default_keyspace().merge("k", "reopened").expect("merges");
    filter.is_reopened.store(true, Relaxed);
}

fn operand_in_memory(store: &Store, filter: &Closed) {
    store.put("k", "closed").expect("writes");
    for i in 0..5 {
        store.put("a", i.to_string()).expect("writes");
        store.put("z", i.to_string()).expect("writes");
        store.flush().expect("flushes");
    }
    reopen(store, filter);
    while store.run_one_job().expect("runs") {}
}

fn operand_in_the_largest_table(store: &Store, filter: &Closed) {
    for i in 0..5 {
        store.put("a", i.to_string()).expect("writes");
        match i {
            0 => store.put("k", "closed").expect("writes"),
            2 => reopen(store, filter),
            _ => {}
        }
        if i == 2 {
            (0..2_000).for_each(|n| store.put(format!("b{n:05}"), [n as u8; 100]).expect("writes"));
        }
        store.put("z", i.to_string()).expect("writes");
        settle(store);
    }
}

const KEYS: u64 = 200;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// The keys from some place on: usually few, sometimes all.
fn range(random: &mut Random) -> std::ops::Range<u64> {
    let len = match random.below(6) {
        0 => KEYS,
        1 => 60,
        2 => 2 + random.below(20),
        _ => 1 + random.below(3),
    };
    let from = random.below(KEYS);
    from..(from + len).min(KEYS)
}

/// Writes to some keys of a range, including its ends, so that the table gets the bounds of the
/// range.
fn writes(random: &mut Random) -> Vec<Write> {
    let keys = range(random);
    let (first, last) = (keys.start, keys.end - 1);
    let value_bytes = if random.one_in(4) { 400 } else { 8 };
    let chosen: Vec<u64> = keys.filter(|n| *n == first || *n == last || random.one_in(3)).collect();
    let write = |n: u64| {
        let change = match random.below(10) {
            0 => Change::Delete,
            1..6 => Change::Merge(format!("{}", random.below(100)).into_bytes()),
            _ => Change::Put(vec![b'a' + random.below(26) as u8; value_bytes]),
        };
        Write { keyspace: 0, key: key(n), change }
    };
    chosen.into_iter().map(write).collect()
}

/// Runs one step of a workload that gives tables unlike ranges.
fn step(random: &mut Random, run: &mut Run, reopen: impl FnOnce() -> Result<Store, Error>) {
    let usual = match random.below(20) {
        0..9 => Operation::Write { writes: writes(random), sync: false },
        9..11 => {
            let keys = range(random);
            let entries: BTreeMap<_, _> = keys.map(|n| (key(n), Some(vec![b'L'; 20]))).collect();
            let load = |to: &runstone::Keyspace| {
                to.bulk_load(entries.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))))
            };
            return run.load(0, &entries, load).expect("loads");
        }
        11..14 => {
            // Hot, so that adaptive tiering compacts the tables that overlap here.
            let probe = Write { keyspace: 0, key: key(random.below(KEYS)), change: Change::Delete };
            let get = Operation::Get(probe);
            (0..70).for_each(|_| run.apply(&get, || unreachable!("no reopen")).expect("reads"));
            return;
        }
        14..16 => Operation::Flush,
        16 => Operation::Snapshot,
        17 => Operation::CheckSnapshot,
        18 if random.one_in(5) => Operation::Reopen,
        _ => Operation::RunOneJob,
    };
    run.apply(&usual, reopen).unwrap_or_else(|error| panic!("{usual:?}: {error}"));
}

fn check(policy: &str, seed: u64, steps: usize) {
    let mut options = options_for(policy, seed, Background::Manual);
    let mut random = Random::new(seed ^ 0x0017_a9e5);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values = Default::default();
        keyspace.merge_operator = OPERATOR.into();
        let shape = unstable::numbers_mut(keyspace);
        shape.l0_trigger = 1 + random.below(2) as u32;
        shape.max_runs = 2 + random.below(3) as u32;
        shape.access_limit = 8 + random.below(20) as u32;
        shape.access_bytes = 1 << 20;
        unstable::numbers_mut(keyspace).intra_level =
            if random.one_in(2) { IntraLevel::Every } else { IntraLevel::Last };
    }
    let storage = MemoryStorage::new();
    let reopen = || {
        let store = open(&storage, &options)?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(reopen().expect("fresh"), Oracle::default());
    for i in 0..steps {
        step(&mut random, &mut run, reopen);
        if i % 8 == 7 {
            let store = run.store.as_ref().expect("open");
            store.wait_idle().expect("idle");
            let found = read_all(store, None).expect("reads");
            assert_same(&found, run.oracle.state(), &format!("{policy}, seed {seed}, step {i}"));
        }
    }
    let store = run.store.take().expect("open");
    store.compact().expect("compacts");
    let found = read_all(&store, None).expect("reads");
    assert_same(&found, run.oracle.state(), &format!("{policy}, seed {seed}, in the end"));
}

#[test]
fn every_policy_over_unlike_ranges() {
    for policy in POLICIES {
        for_seeds(8, |seed| check(policy.name(), seed, 160));
    }
}

/// Two of 970 seeds of the usual workloads found that operands were folded across a table.
#[test]
fn the_generator_finds_operands_that_are_folded_past_tables() {
    for policy in ["guards", "adaptive-tiering"] {
        let finds = |seed: &u64| {
            let check = || check(policy, *seed, 160);
            panics(|| runstone::seeded::with(Bug::OperandsFoldedPastTables, check))
        };
        let found = (0..100).find(finds);
        assert!(found.is_some(), "{policy}: not in 100 seeds");
    }
}
