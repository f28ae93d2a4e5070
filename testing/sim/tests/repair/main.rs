//! Repairs of damaged stores. Random workloads make stores of every policy and placement. A file of
//! each store is lost or damaged, and the result of the repair is compared with the oracle.
//!
//! 1. Every key of the repaired store is right, or a doubt covers it. A doubt must be true too: a
//!    key that may be back was deleted, and a value that may be old was put under the key.
//! 2. Everything that the report calls lost was damaged.
//! 3. The damaged store is not changed, and the repaired one verifies, compacts and stays the same.
//!
//! Damage to the end of the log looks like a power loss, so there the store of an earlier moment is
//! right too: `docs/design/durability.md`, "Honest limits".

mod carried;
mod damage;
mod scenarios;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use damage::{Damage, Family};
use runstone::seeded::{self, Bug};
use runstone::storage::{Category, Storage};
use runstone::{
    Background, DoubtReason, Options, RepairBasis, RepairOptions, RepairReport, Store,
    ValuePlacement,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::found::panics;
use runstone_sim::oracle::{Change, Oracle, State};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::{
    KEYSPACES, Operation, Run, cooled, early, generate, generate_large, keyspaces, logless,
    options, placed, read_keyspaces, without_operands, written_back,
};

/// A key of a keyspace.
type Place = (usize, Vec<u8>);

/// A store that a workload left, and the contents that it must have.
struct Left {
    storage: SimStorage,
    options: Options,
    /// The content after each batch; the last is the content of the store.
    states: Vec<State>,
    oracle: Oracle,
    /// What was ever put under each key. A batch may put twice.
    put: BTreeSet<(Place, Vec<u8>)>,
}

/// Runs a workload, and closes the store or kills its process.
fn left(seed: u64, options: Options, operations: &[Operation]) -> Left {
    WorkloadClock::restart();
    let storage = SimStorage::new(seed);
    let open = || {
        let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(&options);
    let mut states = vec![State::new()];
    // Removals are not synced, so files that were removed may come back after a power loss.
    let mut removed = BTreeMap::new();
    for (step, operation) in operations.iter().enumerate() {
        run.apply(operation, open).expect("no faults");
        if step % 5 == 0 {
            removed.extend(files(&storage));
        }
        if states.last() != Some(run.oracle.state()) {
            states.push(run.oracle.state().clone());
        }
    }
    let has_log = options.wal_mode != runstone::WalMode::Off;
    let oracle = run.oracle.clone();
    let storage = match Random::new(seed ^ 0x0ff).one_in(2) && has_log {
        true => storage.process_crash(),
        false => {
            drop(run);
            storage
        }
    };
    let mut random = Random::new(seed ^ 0xbac);
    let is_there = files(&storage);
    if random.one_in(2) {
        removed.retain(|name, _| name.ends_with(".table") && !is_there.contains_key(name));
        for (name, bytes) in removed.iter().filter(|_| random.one_in(3)) {
            storage.create(name, Category::Table).expect("it comes back");
            storage.overwrite(name, bytes).expect("with its content");
        }
    }
    let writes = operations.iter().flat_map(|operation| match operation {
        Operation::Write { writes, .. } => &writes[..],
        _ => &[],
    });
    let put = writes.filter_map(|write| match write.change.clone().without_operand() {
        Change::Put(value) | Change::PutLasting(value) => {
            Some(((write.keyspace, write.key.clone()), value))
        }
        _ => None,
    });
    Left { storage, options, states, oracle, put: put.collect() }
}

/// The content of all files.
fn files(storage: &SimStorage) -> BTreeMap<String, Vec<u8>> {
    let listed = storage.list().expect("it can be listed");
    let read = |name: String| (name.clone(), storage.read_all(&name).expect("it can be read"));
    listed.into_iter().map(|file| file.name).filter(|name| name != "LOCK").map(read).collect()
}

/// Repairs a store into a new one. Checks that the source stays as it is.
fn repair(from: &SimStorage, options: &Options, lost_log: bool) -> (RepairReport, SimStorage) {
    let before = files(from);
    let target = SimStorage::new(1);
    let wanted = RepairOptions::default().store(options.clone()).lost_log(lost_log);
    let source: Arc<dyn Storage> = Arc::new(from.clone());
    let report = Store::repair_on(&source, || Ok(Arc::new(target.clone())), wanted);
    let report = report.unwrap_or_else(|error| panic!("the repair fails: {error}"));
    assert_eq!(files(from), before, "the damaged store is only read");
    (report, target)
}

/// The content of a repaired store, which also must verify.
fn content(storage: &SimStorage, options: &Options) -> State {
    let store = Store::open_on(Arc::new(storage.clone()), options.clone()).expect("it opens");
    for name in store.keyspaces() {
        // A keyspace whose options are lost gets its former options.
        store.open_keyspace(&name, options.keyspace.clone()).expect("its options can be given");
    }
    let read = || -> State {
        let found = read_keyspaces(&store).unwrap_or_else(|error| panic!("it is read: {error}"));
        let number = |name: &str| match KEYSPACES.iter().position(|one| *one == name) {
            Some(number) => number,
            None => name.strip_prefix("keyspace-").and_then(|id| id.parse().ok()).expect("an id"),
        };
        let of = |(name, content): (String, runstone_sim::oracle::Content)| {
            let number = number(&name);
            content.into_iter().map(move |(key, value)| ((number, key), value))
        };
        found.into_iter().flat_map(of).collect()
    };
    let found = read();
    assert!(store.verify().expect("it can be verified").is_clean());
    store.compact().expect("it can be compacted");
    assert_eq!(read(), found, "after a compaction");
    found
}

/// The names that a doubt may have for a keyspace.
fn names(number: usize) -> Vec<String> {
    vec![KEYSPACES[number].to_string(), format!("keyspace-{number}")]
}

/// Whether a key ever had this value.
fn was(left: &Left, key: &Place, value: &[u8]) -> bool {
    left.put.contains(&(key.clone(), value.to_vec()))
        || left.states.iter().any(|state| state.get(key).is_some_and(|one| *one == value))
}

/// Whether the report explains a key whose value differs from that in the store's last state.
fn is_said(left: &Left, report: &RepairReport, key: &(usize, Vec<u8>), found: &State) -> bool {
    let names = names(key.0);
    let doubts = names.iter().flat_map(|name| report.doubts_of(name, &key.1));
    let truth = left.states.last().expect("one").get(key);
    let found = found.get(key);
    let was = |value: &Vec<u8>| was(left, key, value);
    doubts.into_iter().any(|doubt| match doubt.reason {
        DoubtReason::MayBeBack => truth.is_none() && found.is_some_and(was),
        DoubtReason::MayBeOld => found.is_none_or(was) || has_operands(left),
        DoubtReason::ValueLost => found.is_none(),
        DoubtReason::OperandsMayRepeat => found.is_some(),
        DoubtReason::FromLostLog => true,
        _ => false,
    })
}

fn has_operands(left: &Left) -> bool {
    left.options.keyspace.as_ref().is_some_and(|keyspace| !keyspace.merge_operator.is_empty())
}

/// Damages a store, repairs it, and judges the result.
fn check(left: &Left, damage: &Damage, place: &str) -> Option<RepairReport> {
    let damaged = left.storage.process_crash();
    let file = damage.apply(&damaged)?;
    let place = format!("{place}, {damage:?} of {file}");
    let (report, target) = repair(&damaged, &left.options, false);
    if report.is_healthy {
        // The damage hit bytes that the store does not need.
        let found = content(&damaged, &left.options);
        // A manifest whose end is cut off may be that of an earlier moment, without a trace.
        let is_cut = damage.family == Family::Manifest && damage.how == damage::How::Cut;
        let is_right = match is_cut {
            true => found.iter().all(|(key, value)| was(left, key, value)),
            false => ends(left, damage).contains(&found),
        };
        assert!(is_right, "{place}: it is not healthy");
        return Some(report);
    }
    let found = content(&target, &left.options);
    let mut wrong = Vec::new();
    let is_right = ends(left, damage).iter().rev().any(|end| {
        let keys: BTreeSet<_> = end.keys().chain(found.keys()).collect();
        let differs = |key: &&(usize, Vec<u8>)| end.get(*key) != found.get(*key);
        let is_unsaid = |key: &&(usize, Vec<u8>)| !is_said(left, &report, key, &found);
        let unsaid: Vec<_> = keys.into_iter().filter(differs).filter(is_unsaid).collect();
        if wrong.is_empty() {
            wrong =
                unsaid.iter().map(|key| format!("{}/{}", key.0, key.1.escape_ascii())).collect();
        }
        unsaid.is_empty()
    });
    assert!(is_right, "{place}: wrong and not listed: {wrong:?}; {report:#?}");
    check_lost(damage, &file, &report, &place);
    Some(report)
}

/// The states that the store may be in. A log whose end was cut off looks like a power loss, and so
/// does a value that is not in its file although a write in the log needs it there.
fn ends<'a>(left: &'a Left, damage: &Damage) -> &'a [State] {
    match damage.family {
        Family::Log | Family::Values => &left.states,
        _ => &left.states[left.states.len() - 1..],
    }
}

/// Checks that everything reported as lost was damaged.
fn check_lost(damage: &Damage, file: &str, report: &RepairReport, place: &str) {
    for lost in &report.lost {
        let is_it = lost.file == file
            || match damage.family {
                Family::Log => lost.file == "the log" || lost.file.ends_with(".manifest"),
                // The end of a manifest may be cut off unnoticed, and zeros there look the same.
                // Then the log and the value files are not as its last edit says.
                Family::Current | Family::Manifest => {
                    ["CURRENT", "the log"].contains(&&*lost.file)
                        || lost.file.ends_with(".manifest")
                        || matches!(damage.how, damage::How::Cut | damage::How::Zero)
                            && lost.file.ends_with(".values")
                }
                Family::Table => lost.file.ends_with(".manifest"),
                Family::Values => false,
            };
        assert!(is_it, "{place}: {} is called lost: {}", lost.file, lost.what);
    }
    // Missing data beside a table that no manifest names looks like a lost edit.
    if damage.family == Family::Values {
        assert_eq!(report.basis, RepairBasis::Manifest, "{place}");
    }
}

/// The workload and the options of a seed.
fn make(seed: u64) -> Left {
    // Some keep a log that no open needs.
    let kept_bytes = if seed % 3 == 1 { 1 << 20 } else { 0 };
    let own = options(seed, Background::Manual).keep_log_bytes(kept_bytes);
    let operations = generate(seed, 150);
    match seed % 7 {
        0 => left(seed, placed(own, ValuePlacement::HashGrouped), &operations),
        1 => left(seed, early(own), &without_operands(operations)),
        2 => left(seed, cooled(own), &operations),
        3 => left(seed, written_back(own), &without_operands(operations)),
        4 => left(seed, logless(own, ValuePlacement::Inline), &operations),
        5 => left(seed, own, &generate_large(seed, 100)),
        _ => left(seed, placed(own, ValuePlacement::Inline), &operations),
    }
}

/// Returns how many damaged stores were repaired and compared.
fn check_seed(seed: u64) -> usize {
    let left = make(seed);
    let all = Damage::all(seed);
    let place = format!("seed {seed}");
    all.iter().filter(|damage| check(&left, damage, &place).is_some()).count()
}

#[test]
fn every_key_is_right_or_listed() {
    let mut repaired = 0;
    for_seeds(14, |seed| repaired += check_seed(seed));
    println!("{repaired} damaged stores");
}

/// Each bug is found by some seed.
#[test]
fn seeded_bugs_are_found() {
    let bugs = [
        Bug::RepairPassesGaps,
        Bug::RepairTrustsTables,
        Bug::RepairPassesHoles,
        Bug::RepairTrustsContent,
    ];
    for bug in bugs {
        let finds = |seed| panics(|| seeded::with(bug, || _ = check_seed(seed)));
        assert!((1..40).any(finds), "{bug:?} is not found");
    }
}
