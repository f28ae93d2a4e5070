//! Any compaction policy gives the same answers; a store may change its policy at any time; and
//! known mistakes in the handling of overlapping tables are found.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::seeded::{self, Bug};
use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options, Snapshot, Store, ValuePlacement};
use runstone_policy::registry::POLICIES;
use runstone_sim::found::{panic_of, panics};
use runstone_sim::oracle::{Oracle, State};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, generate, keyspaces, options, options_for, placed, read_all, separated,
    without_operands,
};

fn open(storage: &MemoryStorage, options: &Options) -> Result<Store, runstone::Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(storage, options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

fn run(options: &Options, operations: &[Operation]) -> Run {
    let storage = MemoryStorage::new();
    let mut run = Run::new(open(&storage, options).expect("fresh"), Oracle::default());
    for operation in operations {
        run.apply(operation, || open(&storage, options)).expect("no faults");
    }
    run
}

/// A metamorphic test: one list of operations gives equal answers under every policy. Each answer
/// is also compared with the oracle.
#[test]
fn every_policy_answers_alike() {
    for seed in 0..12 {
        let operations = generate(seed, 1500);
        let answers: Vec<State> = POLICIES
            .iter()
            .map(|policy| {
                let options = options_for(policy.name(), seed, Background::Manual);
                let run = run(&options, &operations);
                read_all(run.store.as_ref().expect("open"), None).expect("reads")
            })
            .collect();
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
    }
}

/// The same test over placements of values, under a few policies.
#[test]
fn every_placement_answers_alike() {
    for seed in 20..28 {
        let operations = without_operands(generate(seed, 1500));
        let options = options(seed, Background::Manual);
        let inline = placed(options.clone(), ValuePlacement::Inline);
        let answers: Vec<State> = [inline]
            .into_iter()
            .chain(separated(&options))
            .map(|options| {
                let run = run(&options, &operations);
                read_all(run.store.as_ref().expect("open"), None).expect("reads")
            })
            .collect();
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
    }
}

/// A store of several levels in which keys were overwritten and deleted while snapshots were held.
struct Aged {
    store: Store,
    state: State,
    snapshots: Vec<(Snapshot, State)>,
}

impl Aged {
    fn new(storage: &MemoryStorage, options: &Options, random: &mut Random) -> Aged {
        let store = open(storage, options).expect("fresh");
        let mut aged = Aged { store, state: State::new(), snapshots: Vec::new() };
        for round in 0..12 {
            aged.write(400, random);
            if round % 4 == 1 {
                aged.snapshots.push((aged.store.snapshot(), aged.state.clone()));
            }
        }
        aged
    }

    fn write(&mut self, count: u64, random: &mut Random) {
        for _ in 0..count {
            let key =
                format!("{}/{:03}", ["a", "bb", "c"][random.below(3) as usize], random.below(400));
            let slot = (0, key.clone().into_bytes());
            if random.one_in(5) {
                self.store.delete(&key).expect("delete");
                self.state.remove(&slot);
            } else {
                let value = vec![random.draw() as u8; random.below(200) as usize];
                self.store.put(&key, &value).expect("put");
                self.state.insert(slot, value);
            }
        }
        self.store.flush().expect("flush");
    }

    fn check(&self, place: &str) {
        assert_eq!(read_all(&self.store, None).expect("reads"), self.state, "{place}");
        for (snapshot, state) in &self.snapshots {
            assert_eq!(&read_all(&self.store, Some(snapshot)).expect("reads"), state, "{place}");
        }
    }
}

/// Tests every ordered pair of policies. The policy changes first while the store is open, with
/// snapshots and concurrent writes, and then back at a reopen.
#[test]
fn a_store_changes_from_any_policy_to_any_other() {
    for (i, from) in POLICIES.iter().enumerate() {
        for (j, to) in POLICIES.iter().enumerate().filter(|(j, _)| *j != i) {
            let place = format!("{} to {}", from.name(), to.name());
            let seed = (i * POLICIES.len() + j) as u64;
            let mut random = Random::new(seed);
            let storage = MemoryStorage::new();
            let old = options_for(from.name(), seed, Background::Manual);
            let new = options_for(to.name(), seed, Background::Manual);
            let mut aged = Aged::new(&storage, &old, &mut random);
            aged.store.open_keyspace("default", new.keyspace.clone()).expect(&place);
            aged.check(&place);
            aged.store.run_one_job().expect(&place);
            aged.write(300, &mut random);
            aged.store.wait_idle().expect(&place);
            aged.check(&place);
            check_targets(&aged.store, &place);
            let Aged { store, state, snapshots } = aged;
            drop(snapshots);
            store.close().expect(&place);
            let store = open(&storage, &old).expect(&place);
            store.wait_idle().expect(&place);
            check_targets(&store, &place);
            assert_eq!(read_all(&store, None).expect("reads"), state, "{place} and back");
            assert!(store.verify().expect("verify").is_clean(), "{place}");
        }
    }
}

/// Checks that the tree has the form that the current policy wants.
fn check_targets(store: &Store, place: &str) {
    let keyspace = store.default_keyspace();
    let (shape, targets) = (unstable::shape(keyspace), unstable::level_targets(keyspace));
    for (index, level) in shape.levels.iter().enumerate().skip(1) {
        let target = targets.get(index).expect("a target for every level");
        assert!(!target.is_over(level.bytes(), level.runs().len()), "{place}: level {index}");
    }
}

/// Whether a run with the bug stops at this assertion for at least one of some seeds, and without
/// the assertions gives a wrong answer.
fn trips_and_finds(bug: Bug, what: &str) -> bool {
    let options = |seed| options_for("adaptive-tiering", seed, Background::Manual);
    let said = (0..40).find_map(|seed| {
        panic_of(|| seeded::with(bug, || drop(run(&options(seed), &generate(seed, 1500)))))
    });
    said.is_some_and(|said| said.contains(what))
        && seeded::without_assertions(|| finds_with(bug, options))
}

/// Whether a run with the bug gives a wrong answer for at least one of some seeds.
fn finds_with(bug: Bug, options: impl Fn(u64) -> Options) -> bool {
    (0..40).any(|seed| {
        let options = options(seed);
        panics(|| seeded::with(bug, || drop(run(&options, &generate(seed, 1500)))))
    })
}

#[test]
fn a_get_that_stops_at_the_first_hit_is_found() {
    assert!(trips_and_finds(Bug::FirstHitInOverlappingLevel, "may hold a newer version (I3)"));
}

#[test]
fn a_tombstone_dropped_by_depth_is_found() {
    assert!(trips_and_finds(
        Bug::TombstonesDroppedByDepth,
        "above an older version of its key (I4)"
    ));
}

#[test]
fn a_collection_that_forgets_snapshots_is_found() {
    let options = |seed| placed(options(seed, Background::Manual), ValuePlacement::HashGrouped);
    assert!(finds_with(Bug::CollectionForgetsSnapshots, options));
}

/// A policy leaves a small level 0 alone while its compaction would rewrite much data below. Once,
/// writers that stopped at the number of runs of such a level, or at the debt of that compaction,
/// waited for ever.
#[test]
fn writers_do_not_wait_for_a_policy_that_waits_for_them() {
    let by_runs = |keyspace: KeyspaceOptions| keyspace.l0_slowdown_runs(9).l0_stop_runs(10);
    let by_debt = |keyspace: KeyspaceOptions| keyspace.debt_slowdown_bytes(256 << 10);
    let limits: [(&str, &dyn Fn(KeyspaceOptions) -> KeyspaceOptions); 2] =
        [("runs", &by_runs), ("debt", &by_debt)];
    for (name, limit) in limits {
        for policy in ["fragmented-leveling", "garnering"] {
            let keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
            let options =
                Options::default().background(Background::Manual).keyspace(limit(keyspace));
            let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
            let mut random = Random::new(7);
            for number in 0..2_000 {
                let value: Vec<u8> = (0..1024).map(|_| random.draw() as u8).collect();
                store.put(format!("k{number:04}"), value).expect("puts");
            }
            store.compact().expect("compacts");
            for _ in 0..10 {
                ["k0000", "k1999"].iter().for_each(|key| store.put(key, "new").expect("puts"));
                store.flush().expect("flushes");
                store.wait_idle().expect("rests");
            }
            let pressure = store.metrics().pressure.level.parts();
            assert!(pressure < 1000, "{policy}, {name}: {pressure}");
        }
    }
}
