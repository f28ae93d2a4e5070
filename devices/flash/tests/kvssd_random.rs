//! Random devices under random faults, against a model. The draws cover geometry, options (also
//! other options at each opening), lengths of keys and values, fill, power cuts in a row, failing
//! programs and erases, writes that the images refuse, snapshots, and reopening. They combine cases
//! that the tests of single rules do not combine.
//!
//! To test more devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo
//! test --release -p runstone-flash --test kvssd_random`.

#[path = "support/failing.rs"]
mod failing;
mod support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use failing::Failing;

use runstone_flash::kvssd::{
    Direction, Durability, FilterAllocation, Form, KvSsd, KvSsdOptions, Partitioner, Placement,
    ValuePlacement,
};
use runstone_flash::nand::{Geometry, Image, MemoryImage, Timing};
use runstone_flash::{Error, Result};
use support::{Random, State, Step, apply, fault_plan, model, one_of, scanned, seeds};

const SEEDS: Range<u64> = 12..28;
const ROUNDS: u64 = 12;

/// The parameters of the data and of the device.
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
            block_pages: one_of(random, &[5, 7, 8, 16]).min(most_pages),
            block_count: 48 + random.below(40) as u32,
            channel_count: 1,
            die_count: 1,
        };
        let options = options(random);
        let key_bytes = 8 + random.below(u64::from(page_bytes) / 16 - 8) as usize;
        let value_bytes = 1 + random.below(u64::from(page_bytes) / 4);
        // From a fifth of the capacity to more than all of it, so that full devices occur.
        let record_bytes = 20 + key_bytes as u64 + value_bytes / 2;
        let share = 20 + random.below(70);
        let keys = (geometry.data_bytes() * share / 100 / record_bytes).clamp(20, 1500);
        Case { geometry, options, keys, key_bytes, value_bytes }
    }

    /// Draws the size of a value; sometimes close to the largest that the device accepts.
    fn value_bytes(&self, random: &mut Random) -> u64 {
        let page_bytes = u64::from(self.geometry.page_bytes);
        match random.below(1000) {
            0 => u64::from(self.geometry.block_pages * 3 / 4) * page_bytes - page_bytes / 16 - 40,
            // Over several pages.
            1..10 => 2 * page_bytes,
            10..50 => 0,
            _ => random.below(self.value_bytes),
        }
    }

    /// Spreads numbers over the key space, after a prefix that all keys share.
    fn key(&self, at: u64) -> Vec<u8> {
        let mut spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        // Some keys end the range of a bit prefix, and some of these are equal.
        if at.is_multiple_of(5) {
            spread[1..6].fill(0xff);
        }
        let mut key = vec![b'k'; self.key_bytes - spread.len()];
        key.extend_from_slice(&spread);
        // Keys of several lengths; the short ones are prefixes of no other key.
        key.truncate(self.key_bytes - (at % 3) as usize);
        key
    }

    fn step(&self, random: &mut Random, deletes: u64) -> Step {
        let count = match random.below(400) {
            // Far more than fits a log page or a memtable.
            0 => 20 + random.below(150),
            1..50 => 1 + random.below(4),
            _ => 1,
        };
        let write = |random: &mut Random| {
            let size = self.value_bytes(random);
            let value = vec![random.below(256) as u8; size as usize];
            (self.key(random.below(self.keys)), (random.below(100) >= deletes).then_some(value))
        };
        (0..count).map(|_| write(random)).collect()
    }
}

fn options(random: &mut Random) -> KvSsdOptions {
    let placements =
        [Placement::PerTable, Placement::Mixed, Placement::PerLevel, Placement::PerLevel];
    let cuts = [Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange];
    let durabilities = [Durability::Capacitor, Durability::Capacitor, Durability::Log];
    let form = one_of(random, &[Form::Remap, Form::Remap, Form::Delay, Form::Append]);
    let cuts = if form == Form::Append { &cuts[..1] } else { &cuts };
    let policies = ["tiering", "fragmented-leveling", "leveling", "garnering"];
    let policies = if form == Form::Remap { &policies[..] } else { &policies[1..] };
    KvSsdOptions {
        placement: one_of(random, &placements),
        threshold: one_of(random, &[0, 1, 2, 2, 3, 6, 20]),
        durability: one_of(random, &durabilities),
        over_provision_percent: 5 + random.below(15) as u32,
        memtable_pages: one_of(random, &[1, 1, 1, 40]) + random.below(12) as u32,
        level1_pages: 8 + random.below(40) as u32,
        size_ratio: 2 + random.below(6) as u32,
        l0_trigger: 1 + random.below(4) as u32,
        checkpoint_commits: 1 + random.below(16) as u32,
        wear_gap: 1 + random.below(3) as u32,
        policy: one_of(random, policies).to_string(),
        cuts: one_of(random, cuts),
        form,
        filters: one_of(random, &FilterAllocation::ALL),
        values: one_of(random, &ValuePlacement::ALL),
        values_from: one_of(random, &[1, 20, 60, 200]),
    }
}

/// A device, its expected content, and the contents of its snapshots.
struct Run {
    case: Case,
    flash: MemoryImage,
    side: MemoryImage,
    /// How many writes the flash image and the side image still accept before they refuse one.
    left: [Arc<AtomicU64>; 2],
    device: KvSsd,
    state: State,
    snapshots: Vec<(u64, State)>,
    /// The state at the last sync and the steps since, including a step that a power cut
    /// interrupted. With a log the newest steps may be lost.
    unsynced: (State, Vec<Step>),
    cuts: u64,
    refusals: u64,
}

impl Run {
    fn new(case: Case) -> Run {
        let (flash, side) = (MemoryImage::new(), MemoryImage::new());
        let ([of_flash, of_side], left) = failing(&flash, &side);
        let (geometry, options) = (case.geometry, case.options.clone());
        let device = KvSsd::create(of_flash, of_side, geometry, Timing::PAPER, options);
        let (state, snapshots, unsynced) = Default::default();
        let device = device.expect("the options were checked");
        Run { case, flash, side, left, device, state, snapshots, unsynced, cuts: 0, refusals: 0 }
    }

    /// Reopens the device, sometimes with other options.
    fn reopen(&mut self, random: &mut Random) {
        self.snapshots.clear();
        let ([flash, side], mut left) = failing(&self.flash, &self.side);
        let options = options(random);
        let is_possible = options.check(&self.case.geometry).is_ok();
        let options = (is_possible && random.one_in(3)).then_some(options);
        let mut opened = KvSsd::open(flash, side, None, Timing::PAPER, options);
        // Separated values stay as they are.
        if matches!(&opened, Err(Error::BadOption { name: "values", .. })) {
            let ([flash, side], again) = failing(&self.flash, &self.side);
            (opened, left) = (KvSsd::open(flash, side, None, Timing::PAPER, None), again);
        }
        (self.device, self.left) = (opened.expect("it opens"), left);
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

    /// One step, sometimes with a snapshot, a sync or a read.
    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<()> {
        let step = self.case.step(random, deletes);
        if random.one_in(100) && self.snapshots.len() < 3 {
            self.snapshots.push((self.device.snapshot(), self.state.clone()));
        }
        if random.one_in(100) && !self.snapshots.is_empty() {
            let (snapshot, state) = self.snapshots.remove(0);
            self.compare(&state, snapshot);
            self.device.release(snapshot);
        }
        if random.one_in(150) {
            self.sync()?;
        }
        match random.below(1500) {
            0 => self.device.flush()?,
            1 => self.device.compact()?,
            2 => self.device.checkpoint()?,
            _ => {}
        }
        if random.one_in(40) {
            self.look_from(random);
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

    /// Whether the device still has power. An image may refuse to store the torn write of a power
    /// cut, but the power is gone all the same.
    fn has_power(&self) -> bool {
        self.device.nand().fired_faults().power_cuts == 0
    }

    /// Reads the first entries from a key on, in either direction.
    fn look_from(&mut self, random: &mut Random) {
        let from = self.case.key(random.below(self.case.keys));
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let (direction, expected): (Direction, Vec<_>) = match random.one_in(2) {
            true => {
                (Direction::Forward, self.state.range(from.clone()..).take(5).map(owned).collect())
            }
            false => {
                let before = self.state.range(..=from.clone()).rev();
                (Direction::Reverse, before.take(5).map(owned).collect())
            }
        };
        let mut found = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < 5
        };
        self.device.scan(Some(&from), direction, u64::MAX, &mut visit).expect("it can be read");
        assert!(found == expected, "{}", difference(&expected, &found));
    }

    fn compare(&mut self, state: &State, snapshot: u64) {
        let found = scanned(&mut self.device, Direction::Forward, snapshot);
        let expected: Vec<_> = state.clone().into_iter().collect();
        assert!(found == expected, "{}", difference(&expected, &found));
        let backwards = scanned(&mut self.device, Direction::Reverse, snapshot);
        assert!(backwards.into_iter().rev().eq(expected));
    }

    /// Recovers after a power cut or the end of the process. The interrupted step was not
    /// acknowledged.
    fn recover(&mut self, random: &mut Random) {
        self.cuts += 1;
        self.reopen(random);
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

/// Images that refuse a write on demand.
fn failing(flash: &MemoryImage, side: &MemoryImage) -> ([Box<dyn Image>; 2], [Arc<AtomicU64>; 2]) {
    let images = [flash, side].map(Failing::refuses_one);
    let left = images.each_ref().map(|image| Arc::clone(&image.left));
    (images.map(|image| Box::new(image) as Box<dyn Image>), left)
}

fn difference(expected: &[(Vec<u8>, Vec<u8>)], found: &[(Vec<u8>, Vec<u8>)]) -> String {
    let at = expected.iter().zip(found).take_while(|(one, other)| one == other).count();
    let of = |entry: Option<&(Vec<u8>, Vec<u8>)>| {
        entry.map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.len()))
    };
    format!("entry {at}: expected {:?}, found {:?}", of(expected.get(at)), of(found.get(at)))
}

/// Tests the device of a seed. Returns the numbers of cuts, refusals and collections.
fn run(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed ^ 0x6b76_7373);
    let case = Case::of(&mut random);
    if case.options.check(&case.geometry).is_err() {
        return [0; 3];
    }
    let mut run = Run::new(case);
    let mut collections = 0;
    for _ in 0..ROUNDS {
        run.device.nand_mut().set_faults(fault_plan(&mut random));
        for left in &run.left {
            let soon = one_of(&mut random, &[10, 200, 2000]);
            let count = if random.one_in(3) { random.below(soon) } else { u64::MAX };
            left.store(count, Ordering::Relaxed);
        }
        let deletes = one_of(&mut random, &[5, 15, 15, 60]);
        let refused = run.refusals;
        for _ in 0..400 {
            // A full device is emptied for the rest of the round.
            let deletes = if run.refusals > refused { 90 } else { deletes };
            match run.step(&mut random, deletes) {
                Ok(()) => {}
                // The device may refuse a flush too.
                Err(Error::Full { .. }) => run.refusals += 1,
                // The refused step was not done. The device accepts the next one.
                Err(Error::Image { .. }) if run.has_power() => {}
                Err(Error::PowerCut | Error::Image { .. }) => {
                    collections += run.device.counters().collections;
                    run.recover(&mut random);
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
        run.left.iter().for_each(|left| left.store(u64::MAX, Ordering::Relaxed));
        if random.one_in(4) {
            collections += run.device.counters().collections;
            run.recover(&mut random);
        }
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
