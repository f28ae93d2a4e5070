//! Devices drawn at random under faults drawn at random, against a model: geometry, options,
//! lengths of keys and values, how full it is, power cuts in a row, programs and erases that fail,
//! snapshots, reopening. What the tests of single rules do not combine.
//!
//! More devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo test
//! --release -p runstone-flash --test kvssd_random`.

mod support;

use std::ops::Range;

use runstone_flash::kvssd::{Direction, Durability, KvSsd, KvSsdOptions, Partitioner, Placement};
use runstone_flash::nand::{Geometry, MemoryImage, Timing};
use runstone_flash::{Error, Result};
use support::{Random, State, Step, apply, fault_plan, model, one_in, one_of, scanned, seeds};

const SEEDS: Range<u64> = 12..28;
const ROUNDS: u64 = 12;

/// What is stored, and on what.
#[derive(Debug)]
struct Case {
    geometry: Geometry,
    options: KvSsdOptions,
    keys: u64,
    key_bytes: usize,
    value_bytes: u64,
}

impl Case {
    fn of(random: &mut Random) -> Case {
        let page_bytes = one_of(random, &[1024, 1024, 2048, 4096]);
        let most_pages = ((page_bytes - 256) / 96).min(16);
        let geometry = Geometry {
            page_bytes,
            spare_bytes: 64,
            block_pages: one_of(random, &[7, 8, 16]).min(most_pages),
            block_count: 48 + random.below(40) as u32,
            channel_count: 1,
            die_count: 1,
        };
        let options = KvSsdOptions {
            placement: one_of(
                random,
                &[Placement::PerTable, Placement::Mixed, Placement::PerLevel, Placement::PerLevel],
            ),
            threshold: one_of(random, &[0, 1, 2, 2, 3, 6]),
            durability: one_of(
                random,
                &[Durability::Capacitor, Durability::Capacitor, Durability::Log],
            ),
            over_provision_percent: 5 + random.below(15) as u32,
            memtable_pages: one_of(random, &[1, 1, 1, 40]) + random.below(12) as u32,
            level1_pages: 8 + random.below(40) as u32,
            size_ratio: 2 + random.below(6) as u32,
            l0_trigger: 1 + random.below(4) as u32,
            checkpoint_commits: 1 + random.below(16) as u32,
            wear_gap: 1 + random.below(3) as u32,
            policy: one_of(random, &["fragmented-leveling", "leveling", "garnering"]).to_string(),
            cuts: one_of(
                random,
                &[Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange],
            ),
        };
        let key_bytes = 8 + random.below(u64::from(page_bytes) / 16 - 8) as usize;
        let value_bytes = 1 + random.below(u64::from(page_bytes) / 4);
        // From a fifth to past all of it: a full device is part of life.
        let record_bytes = 20 + key_bytes as u64 + value_bytes / 2;
        let share = 20 + random.below(70);
        let keys = (geometry.data_bytes() * share / 100 / record_bytes).clamp(20, 1500);
        Case { geometry, options, keys, key_bytes, value_bytes }
    }

    /// Numbers lie far apart in the key space, behind a prefix that all share.
    fn key(&self, at: u64) -> Vec<u8> {
        let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut key = vec![b'k'; self.key_bytes - spread.len()];
        key.extend_from_slice(&spread);
        // Keys of several lengths, some a prefix of nothing.
        key.truncate(self.key_bytes - (at % 3) as usize);
        key
    }

    fn step(&self, random: &mut Random, deletes: u64) -> Step {
        let count = match random.below(400) {
            // Far more than a log page or a memtable takes.
            0 => 20 + random.below(150),
            1..50 => 1 + random.below(4),
            _ => 1,
        };
        let write = |random: &mut Random| {
            let size = match random.below(100) {
                // Over several pages.
                0 => 2 * u64::from(self.geometry.page_bytes),
                1..5 => 0,
                _ => random.below(self.value_bytes),
            };
            let value = vec![random.below(256) as u8; size as usize];
            (self.key(random.below(self.keys)), (random.below(100) >= deletes).then_some(value))
        };
        (0..count).map(|_| write(random)).collect()
    }
}

/// A device, what it must hold, and what its snapshots must show.
struct Run {
    case: Case,
    flash: MemoryImage,
    side: MemoryImage,
    device: KvSsd,
    state: State,
    snapshots: Vec<(u64, State)>,
    /// The state at the last sync and the steps since, the one that met a cut as well: with a log
    /// the newest may be lost.
    unsynced: (State, Vec<Step>),
    cuts: u64,
    refusals: u64,
}

impl Run {
    fn new(case: Case) -> Run {
        let (flash, side) = (MemoryImage::new(), MemoryImage::new());
        let device = KvSsd::create(
            Box::new(flash.clone()),
            Box::new(side.clone()),
            case.geometry,
            Timing::PAPER,
            case.options.clone(),
        );
        let (state, snapshots, unsynced) = Default::default();
        let device = device.expect("the options were checked");
        Run { case, flash, side, device, state, snapshots, unsynced, cuts: 0, refusals: 0 }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        self.device = KvSsd::open(flash, side, None, Timing::PAPER, None).expect("it opens");
        self.device.verify().expect("nothing is damaged");
    }

    fn apply(&mut self, step: &Step) -> Result<()> {
        let written = apply(&mut self.device, step);
        if matches!(written, Ok(()) | Err(Error::PowerCut)) {
            self.unsynced.1.push(step.clone());
        }
        written?;
        model(&mut self.state, step);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.device.sync()?;
        self.unsynced = (self.state.clone(), Vec::new());
        Ok(())
    }

    /// One step, now and then with a snapshot, a sync or a read.
    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<()> {
        let step = self.case.step(random, deletes);
        if one_in(random, 100) && self.snapshots.len() < 3 {
            self.snapshots.push((self.device.snapshot(), self.state.clone()));
        }
        if one_in(random, 100) && !self.snapshots.is_empty() {
            let (snapshot, state) = self.snapshots.remove(0);
            self.compare(&state, snapshot);
            self.device.release(snapshot);
        }
        if one_in(random, 150) {
            self.sync()?;
        }
        let key = self.case.key(random.below(self.case.keys));
        assert_eq!(self.device.get(&key)?.as_ref(), self.state.get(&key));
        match self.apply(&step) {
            Err(Error::Full { .. } | Error::VersionsHeld { .. }) => {
                self.refusals += 1;
                Ok(())
            }
            other => other,
        }
    }

    fn compare(&mut self, state: &State, snapshot: u64) {
        let found = scanned(&mut self.device, Direction::Forward, snapshot);
        let expected: Vec<_> = state.clone().into_iter().collect();
        assert!(found == expected, "{}", difference(&expected, &found));
        let backwards = scanned(&mut self.device, Direction::Reverse, snapshot);
        assert!(backwards.into_iter().rev().eq(expected));
    }

    /// After a power cut. The step that met it was not acknowledged.
    fn recover(&mut self) {
        self.cuts += 1;
        self.reopen();
        if self.case.options.durability == Durability::Log {
            let found: State =
                scanned(&mut self.device, Direction::Forward, u64::MAX).into_iter().collect();
            let (mut known, steps) = std::mem::take(&mut self.unsynced);
            let is_known = known == found
                || steps.iter().any(|step| {
                    model(&mut known, step);
                    known == found
                });
            assert!(is_known, "the device holds a state that never was");
            self.state = found;
        }
        self.compare(&self.state.clone(), u64::MAX);
        self.unsynced = (self.state.clone(), Vec::new());
    }
}

fn difference(expected: &[(Vec<u8>, Vec<u8>)], found: &[(Vec<u8>, Vec<u8>)]) -> String {
    let at = expected.iter().zip(found).take_while(|(one, other)| one == other).count();
    let of = |entry: Option<&(Vec<u8>, Vec<u8>)>| {
        entry.map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.len()))
    };
    format!("entry {at}: expected {:?}, found {:?}", of(expected.get(at)), of(found.get(at)))
}

/// Cuts, refusals and collections of a seed's device.
fn run(seed: u64) -> [u64; 3] {
    let mut random = Random(seed ^ 0x6b76_7373);
    let case = Case::of(&mut random);
    if case.options.check(&case.geometry).is_err() {
        return [0; 3];
    }
    let mut run = Run::new(case);
    let mut collections = 0;
    for _ in 0..ROUNDS {
        run.device.nand_mut().set_faults(fault_plan(&mut random));
        let deletes = one_of(&mut random, &[5, 15, 15, 60]);
        let refused = run.refusals;
        for _ in 0..400 {
            // A full device is emptied for the rest of the round.
            let deletes = if run.refusals > refused { 90 } else { deletes };
            match run.step(&mut random, deletes) {
                Ok(()) => {}
                Err(Error::PowerCut) => {
                    collections += run.device.counters().collections;
                    run.recover();
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        run.compare(&run.state.clone(), u64::MAX);
        for (snapshot, state) in std::mem::take(&mut run.snapshots) {
            run.compare(&state, snapshot);
            run.device.release(snapshot);
        }
        run.device.verify().expect("nothing is damaged");
        run.device.write_amplification();
    }
    [run.cuts, run.refusals, collections + run.device.counters().collections]
}

#[test]
fn random_devices_under_random_faults_are_maps() {
    let mut sums = [0; 3];
    for seed in seeds(SEEDS) {
        let done = std::panic::catch_unwind(|| run(seed));
        let Ok(done) = done else { panic!("seed {seed}: see above") };
        sums.iter_mut().zip(done).for_each(|(sum, one)| *sum += one);
    }
    let [cuts, refusals, collections] = sums;
    println!("{cuts} power cuts, {refusals} refusals, {collections} collections");
    let is_enough = cuts > 50 && refusals > 50 && collections > 100;
    assert!(is_enough || seeds(SEEDS) != SEEDS, "{sums:?}");
}
