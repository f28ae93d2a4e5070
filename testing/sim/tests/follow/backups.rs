//! Backups of a store that is being written: each restores to the store as of its moment, whatever
//! the directory of backups went through.

use std::path::Path;
use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{Background, Backups, Options, Store, ValuePlacement};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::{Oracle, State, assert_same};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, generate, keyspaces, options, placed, read_all, separated,
};

const OPERATIONS: usize = 300;

/// Compares a restored backup with the state of its moment.
fn compare(backups: &Backups, number: u64, options: &Options, state: &State, place: &str) {
    let restored = SimStorage::new(7);
    let target: Arc<dyn Storage> = Arc::new(restored.clone());
    let outcome = backups.restore_on(number, &target);
    outcome.unwrap_or_else(|error| panic!("{place}: restore: {error}"));
    let opened = Store::open_on(Arc::new(restored.clone()), options.clone());
    let store = opened.unwrap_or_else(|error| panic!("{place}: open: {error}"));
    let found = read_all(&store, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_same(&found, state, place);
    let report = store.verify().unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(report.is_clean(), "{place}: {:?}", report.damage);
    store.put("after", "life goes on").unwrap_or_else(|error| panic!("{place}: {error}"));
}

/// Makes backups at random moments of a workload, prunes some, and restores each that is left.
fn check(options: &Options, operations: &[Operation]) {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut random = Random::new(seed ^ 0xbac_ca95);
    let (storage, disk) = (SimStorage::new(seed), SimStorage::new(seed + 1));
    let open = || {
        let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(options);
    let backups = Backups::open_on(Arc::new(disk.clone())).expect("a new directory");
    let mut states: Vec<(u64, State)> = Vec::new();
    for (step, operation) in operations.iter().enumerate() {
        run.apply(operation, open).expect("no faults");
        let place = format!("seed {seed}, step {step}");
        if random.one_in(25) {
            let made = backups.create_on(Arc::new(storage.clone()));
            let made = made.unwrap_or_else(|error| panic!("{place}: {error}"));
            states.push((made.number, run.oracle.state().clone()));
        }
        if random.one_in(80) && states.len() > 2 {
            backups.prune(2).expect("no faults");
            states.drain(..states.len() - 2);
        }
    }
    let numbers: Vec<u64> = backups.list().expect("whole").iter().map(|one| one.number).collect();
    assert_eq!(numbers, states.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    for (number, state) in &states {
        let place = format!("seed {seed}, backup {number}");
        assert_eq!(backups.verify(*number).expect("no faults"), [], "{place}");
        let deep = backups.verify_deep(*number).expect("no faults");
        assert_eq!(deep.report.damage, [], "{place}");
        compare(&backups, *number, options, state, &place);
    }
}

#[test]
fn backups_are_moments_for_any_options() {
    for seed in 500..520 {
        check(&options(seed, Background::Manual), &generate(seed, OPERATIONS));
    }
}

#[test]
fn backups_of_separated_values_are_moments() {
    for seed in 600..604 {
        let operations = generate(seed, OPERATIONS);
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, &operations);
        }
    }
}

/// A crash at every I/O operation of a backup, with or without a loss of power, leaves the earlier
/// backup whole, and the next one works.
#[test]
fn a_backup_that_is_cut_short_harms_no_other() {
    for seed in 700..704 {
        let options = options(seed, Background::Manual);
        WorkloadClock::restart();
        let storage = SimStorage::new(seed);
        let open = || {
            let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
            keyspaces(&store)?;
            Ok(store)
        };
        let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(&options);
        let disk = SimStorage::new(seed + 1);
        let operations = generate(seed, OPERATIONS);
        let (before, after) = operations.split_at(OPERATIONS / 2);
        before.iter().for_each(|one| run.apply(one, open).expect("no faults"));
        let backups = Backups::open_on(Arc::new(disk.clone())).expect("a new directory");
        backups.create_on(Arc::new(storage.clone())).expect("no faults");
        let first = run.oracle.state().clone();
        after.iter().for_each(|one| run.apply(one, open).expect("no faults"));
        let second = run.oracle.state().clone();
        for at in 0.. {
            let copy = disk.process_crash();
            let at_op = copy.ops() + at;
            copy.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
            let outcome = Backups::open_on(Arc::new(copy.clone()))
                .and_then(|backups| backups.create_on(Arc::new(storage.clone())));
            let place = format!("seed {seed}, crash at operation {at}");
            let left = if at % 2 == 0 { copy.process_crash() } else { copy.power_cut(at).0 };
            let backups = Backups::open_on(Arc::new(left)).expect("it opens");
            let numbers = backups.list().unwrap_or_else(|error| panic!("{place}: {error}"));
            for one in &numbers {
                assert_eq!(backups.verify(one.number).expect("no faults"), [], "{place}");
            }
            compare(&backups, 1, &options, &first, &place);
            let made = backups.create_on(Arc::new(storage.clone()));
            let made = made.unwrap_or_else(|error| panic!("{place}: the next one: {error}"));
            compare(&backups, made.number, &options, &second, &place);
            if outcome.is_ok() {
                assert!(at > 5, "{place}: a backup touches the disk");
                break;
            }
        }
    }
}

/// A checkpoint that a follower makes is the store as of its moment.
#[test]
fn a_checkpoint_beside_the_writer_is_a_moment() {
    for seed in 800..806 {
        WorkloadClock::restart();
        let options = options(seed, Background::Manual);
        let storage = SimStorage::new(seed);
        let open = || {
            let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
            keyspaces(&store)?;
            Ok(store)
        };
        let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(&options);
        let follower = Store::follow_on(Arc::new(storage.clone()), options.clone());
        let follower = follower.expect("it can be followed");
        for (step, operation) in generate(seed, OPERATIONS).iter().enumerate() {
            run.apply(operation, open).expect("no faults");
            if step % 50 != 49 {
                continue;
            }
            let (path, place) = (format!("copy{step}"), format!("seed {seed}, step {step}"));
            follower.checkpoint(Path::new(&path)).unwrap_or_else(|e| panic!("{place}: {e}"));
            let copy = storage.open_sibling(Path::new(&path)).expect("it was made");
            let store = Store::open_on(Arc::new(copy), options.clone());
            let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
            let found = read_all(&store, None).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert_same(&found, run.oracle.state(), &place);
        }
    }
}

/// A flipped byte anywhere in a backup is found, and the rest can still be read. A missing table is
/// found too; it keeps the store from being read but not from being opened.
#[test]
fn a_deep_check_finds_damage_and_goes_on() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = placed(options(7, Background::Manual), ValuePlacement::HashGrouped);
    let store = Store::open_on(Arc::clone(&storage), options).expect("no faults");
    for round in 0..4 {
        for number in 0..500 {
            let value = vec![round; if number % 3 == 0 { 2000 } else { 50 }];
            store.put(format!("key{number:04}"), value).expect("no faults");
        }
        if round < 3 {
            store.flush().expect("no faults");
        }
    }
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let backups = Backups::open_on(Arc::clone(&disk)).expect("a new directory");
    let made = backups.create_on(storage).expect("no faults");
    let whole = backups.verify_deep(made.number).expect("no faults");
    assert!(whole.report.is_clean() && whole.read == 500, "{whole:?}");
    assert!(backups.verify_archive_deep().expect("no faults").is_none());
    let mut random = Random::new(7);
    for file in disk.list().expect("a list") {
        if !["table", "pack"].iter().any(|kind| file.name.ends_with(kind)) {
            continue;
        }
        for _ in 0..20 {
            let at = random.below(file.len_bytes);
            let open = disk.open(&file.name, Category::Other).expect("it is there");
            let was = open.read_vec(at, 1).expect("inside");
            open.write_at(at, &[was[0] ^ 1 << random.below(8)]).expect("written");
            let found = backups.verify_deep(made.number).expect("damage is in the report");
            assert!(!found.report.is_clean(), "{} byte {at}", file.name);
            open.write_at(at, &was).expect("written");
        }
        if file.name.ends_with("table") {
            disk.rename(&file.name, "aside").expect("renamed");
            let found = backups.verify_deep(made.number).expect("damage is in the report");
            assert!(found.report.damage.iter().any(|one| one.file == file.name), "{found:?}");
            disk.rename("aside", &file.name).expect("renamed");
        }
    }
    assert!(backups.verify_deep(made.number).expect("no faults").report.is_clean());
}
