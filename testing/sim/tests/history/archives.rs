//! A restore to any moment of an archive shows the store exactly as it was after a batch.

use std::sync::Arc;
use std::time::Duration;

use runstone::{Archiver, Background, Backups, Moment, Options, ValuePlacement};
use runstone_fault_storage::SimStorage;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::{Oracle, State, assert_same};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, generate, generate_large, options, placed, read_all, separated,
};

use super::open;

const OPERATIONS: usize = 300;

/// Counts of what a test did.
#[derive(Debug, Default)]
struct Seen {
    /// Moments that were restored.
    restored: u64,
    /// How often an archive began again.
    bases: u64,
    /// Changes of the archives that a deep check applied.
    replayed: u64,
}

struct Test {
    options: Options,
    random: Random,
    backups: SimStorage,
    /// The states that the archive has, and their numbers.
    moments: Vec<(u64, State)>,
    seen: Seen,
}

impl Test {
    fn archiver(&mut self, source: &SimStorage) -> Archiver {
        let backups = Backups::open_on(Arc::new(self.backups.clone())).expect("it is its own");
        backups.archive_on(Arc::new(source.clone())).expect("it can be archived")
    }

    fn advance(&mut self, archiver: &mut Archiver, state: &State, place: &str) {
        let done = archiver.advance(Duration::ZERO).unwrap_or_else(|e| panic!("{place}: {e}"));
        self.seen.bases += u64::from(done.based.is_some());
        self.moments.push((archiver.position().seq(), state.clone()));
    }

    /// Restores to a moment, and compares.
    fn restore(&mut self, place: &str) {
        if self.moments.is_empty() {
            return;
        }
        let at = self.random.below(self.moments.len() as u64) as usize;
        let (seq, state) = &self.moments[at];
        let backups = Backups::open_on(Arc::new(self.backups.clone())).expect("it is its own");
        let target = SimStorage::new(*seq);
        let place = format!("{place}: restored to {seq}");
        let to = Arc::new(target.clone()) as _;
        let restored = backups.restore_to_on(Moment::Number(*seq), &to);
        let restored = restored.unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(restored.last_seq <= *seq, "{place}: {restored:?}");
        let store = open(&target, &self.options).unwrap_or_else(|e| panic!("{place}: {e}"));
        assert_same(&read_all(&store, None).expect("no faults"), state, &place);
        self.seen.restored += 1;
    }
}

/// Runs a workload beside an archiver; each of them, and the disk of each, fails now and then.
fn check(options: &Options, operations: &[Operation]) -> Seen {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut storage = SimStorage::new(seed);
    let store = open(&storage, options).expect("no faults");
    let mut run = Run::new(store, Oracle::default()).with(options);
    let mut test = Test {
        options: options.clone(),
        random: Random::new(seed ^ 0xa5c4),
        backups: SimStorage::new(!seed),
        moments: Vec::new(),
        seen: Seen::default(),
    };
    let mut archiver = Some(test.archiver(&storage));
    for (step, operation) in operations.iter().enumerate() {
        let disk = storage.clone();
        run.apply(operation, || open(&disk, options)).expect("no faults");
        let place = format!("seed {seed}, step {step}");
        if test.random.one_in(5)
            && let Some(archiver) = &mut archiver
        {
            test.advance(archiver, run.oracle.state(), &place);
        }
        if test.random.one_in(40) {
            archiver = None;
            let cut = test.random.draw();
            // Changes that were reported as archived are durable.
            test.backups = test.backups.power_cut(cut).0;
        }
        if archiver.is_none() && test.random.one_in(8) {
            archiver = Some(test.archiver(&storage));
        }
        if test.random.one_in(50) {
            let is_there = archiver.take().is_some();
            storage = storage.power_cut(test.random.draw()).0;
            let store = open(&storage, options).unwrap_or_else(|error| panic!("{place}: {error}"));
            let state = read_all(&store, None).expect("no faults");
            run = Run::new(store, Oracle::from_state(state)).with(options);
            archiver = is_there.then(|| test.archiver(&storage));
        }
        if test.random.one_in(60) {
            test.restore(&place);
        }
    }
    drop(archiver);
    test.restore(&format!("seed {seed}, at the end"));
    let backups = Backups::open_on(Arc::new(test.backups.clone())).expect("a directory");
    if let Some(deep) = backups.verify_archive_deep().expect("no faults") {
        assert_eq!(deep.report.damage, [], "seed {seed}");
        test.seen.replayed += deep.changes;
    }
    test.seen
}

#[test]
fn any_moment_of_any_options() {
    let (mut restored, mut replayed) = (0, 0);
    for seed in 1000..1016 {
        let options = options(seed, Background::Manual);
        let seen = check(&options, &generate(seed, OPERATIONS));
        (restored, replayed) = (restored + seen.restored, replayed + seen.replayed);
    }
    assert!(restored > 40 && replayed > 100, "{restored}, {replayed}");
}

#[test]
fn any_moment_with_large_batches() {
    for seed in 1100..1104 {
        check(&options(seed, Background::Manual), &generate_large(seed, OPERATIONS / 2));
    }
}

#[test]
fn any_moment_with_separated_values() {
    for seed in 1200..1204 {
        let operations = generate(seed, OPERATIONS);
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, &operations);
        }
    }
}

/// If the store keeps its log, an archive needs one backup and never begins again.
#[test]
fn a_log_that_is_kept_spares_bases() {
    let bases = |keep_log_bytes| -> u64 {
        let options = |seed| {
            let options = options(seed, Background::Manual).keep_log_bytes(keep_log_bytes);
            placed(options, ValuePlacement::Inline)
        };
        let seeds = 1300..1306;
        seeds.map(|seed| check(&options(seed), &generate(seed, OPERATIONS)).bases).sum()
    };
    assert!(bases(0) > 10);
    assert_eq!(bases(1 << 30), 6);
}
