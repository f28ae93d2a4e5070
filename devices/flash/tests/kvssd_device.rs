//! The KVSSD against a model: variants and thresholds, snapshots, reopening; power cuts at every
//! program and erase; failing programs and erases; a full device; damaged images; accounting.

#[path = "support/failing.rs"]
mod failing;
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use failing::Failing;
use runstone_flash::kvssd::{
    Direction, Durability, Form, KvSsd, KvSsdOptions, Partitioner, Placement, ValuePlacement,
};
use runstone_flash::nand::{FaultPlan, Geometry, Image, MemoryImage, Timing};
use runstone_flash::{Error, Result};
use support::{Random, State, Step, apply, model, scanned};

const TINY: Geometry = Geometry {
    page_bytes: 1024,
    spare_bytes: 64,
    block_pages: 8,
    block_count: 40,
    channel_count: 1,
    die_count: 1,
};

fn tiny() -> KvSsdOptions {
    KvSsdOptions {
        over_provision_percent: 5,
        memtable_pages: 8,
        level1_pages: 24,
        size_ratio: 4,
        l0_trigger: 2,
        checkpoint_commits: 8,
        wear_gap: 1,
        cuts: Partitioner::Size,
        ..KvSsdOptions::default()
    }
}

/// An image, its side file, and what they must hold.
#[derive(Clone)]
struct Images {
    flash: MemoryImage,
    side: MemoryImage,
}

impl Images {
    fn new() -> Images {
        Images { flash: MemoryImage::new(), side: MemoryImage::new() }
    }

    fn duplicate(&self) -> Images {
        Images { flash: self.flash.duplicate(), side: self.side.duplicate() }
    }

    fn create(&self, options: &KvSsdOptions) -> KvSsd {
        self.create_on(geometry(options), options)
    }

    fn create_on(&self, geometry: Geometry, options: &KvSsdOptions) -> KvSsd {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::create(flash, side, geometry, Timing::PAPER, options.clone()).unwrap()
    }

    fn open(&self) -> Result<KvSsd> {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::open(flash, side, None, Timing::PAPER, None)
    }
}

fn key(at: u64) -> Vec<u8> {
    format!("key{at:05}").into_bytes()
}

/// Up to four writes.
fn step(random: &mut Random, keys: u64) -> Step {
    let count = if random.below(8) == 0 { 1 + random.below(4) } else { 1 };
    let write = |random: &mut Random| {
        let size = if random.below(150) == 0 { 2500 } else { random.below(120) };
        let value = vec![random.below(256) as u8; size as usize];
        (key(random.below(keys)), (random.below(7) > 0).then_some(value))
    };
    (0..count).map(|_| write(random)).collect()
}

fn expect(device: &mut KvSsd, state: &State, snapshot: u64, keys: u64) {
    for at in 0..keys + 2 {
        let key = key(at);
        assert_eq!(device.get_at(&key, snapshot).unwrap().as_ref(), state.get(&key), "{at}");
    }
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert!(scanned(device, Direction::Forward, snapshot) == expected);
    let backwards: Vec<_> = expected.into_iter().rev().collect();
    assert!(scanned(device, Direction::Reverse, snapshot) == backwards);
}

/// Tables of lLSM reserve room, streams of values keep blocks open, and runs hold what newer ones
/// hide, so that they need a larger device.
fn geometry(options: &KvSsdOptions) -> Geometry {
    let block_count = match (options.form, options.values) {
        (_, ValuePlacement::Log | ValuePlacement::Groups) => 54,
        (Form::Append, _) => 46,
        _ if options.policy == "tiering" => 50,
        _ => TINY.block_count,
    };
    Geometry { block_count, ..TINY }
}

/// Values apart, the larger half of them. The tree is small, and so are its levels.
fn apart(values: ValuePlacement) -> KvSsdOptions {
    KvSsdOptions { values, values_from: 60, level1_pages: 6, threshold: 4, ..tiny() }
}

/// lLSM.
fn appended() -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::llsm();
    KvSsdOptions { form, threshold, placement, ..tiny() }
}

/// dLSM.
fn delayed() -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::dlsm();
    KvSsdOptions { form, threshold, placement, ..tiny() }
}

/// Levels of several runs, which merge by remapping where they are few.
fn tiered() -> KvSsdOptions {
    KvSsdOptions { threshold: 6, ..under("tiering") }
}

fn under(policy: &str) -> KvSsdOptions {
    KvSsdOptions { policy: policy.to_string(), ..tiny() }
}

/// What five papers give a device at once, but for runs.
fn combined() -> KvSsdOptions {
    KvSsdOptions {
        policy: "garnering".to_string(),
        cuts: Partitioner::GlobalRange,
        has_filters: true,
        ..apart(ValuePlacement::Groups)
    }
}

/// Tables that were not rewritten: remapped, virtual, or appended to.
fn reused(device: &KvSsd) -> u64 {
    device.counters().remapped_tables + device.counters().appended_segments
}

fn variants() -> Vec<KvSsdOptions> {
    let mut variants = vec![
        KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..tiny() },
        KvSsdOptions { placement: Placement::Mixed, ..tiny() },
        KvSsdOptions { durability: Durability::Log, ..tiny() },
        KvSsdOptions { policy: "leveling".to_string(), ..tiny() },
        KvSsdOptions { policy: "garnering".to_string(), ..tiny() },
        KvSsdOptions { threshold: 0, cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { threshold: 4, cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GroupedGlobalRange, ..tiny() },
    ];
    for threshold in [0, 2, 3, 4, 6] {
        variants.push(KvSsdOptions { threshold, ..tiny() });
    }
    variants.extend([delayed(), appended()]);
    variants.push(KvSsdOptions { threshold: 2, placement: Placement::PerTable, ..appended() });
    variants.push(KvSsdOptions { has_filters: true, ..tiny() });
    variants.extend([apart(ValuePlacement::Log), apart(ValuePlacement::Groups)]);
    let values = ValuePlacement::Groups;
    variants.push(KvSsdOptions { values, durability: Durability::Log, ..apart(values) });
    variants.extend([combined(), tiered()]);
    variants.push(KvSsdOptions { threshold: 0, placement: Placement::PerTable, ..tiered() });
    let policy = tiered().policy;
    variants.push(KvSsdOptions { policy, ..combined() });
    variants
}

/// A filter goes with its page into remapped tables, through collections and restarts, and saves
/// gets the pages that do not have their key. `verify` compares each filter with its page.
#[test]
fn filters_save_pages_that_gets_would_read_in_vain() {
    let pages_per_get = |has_filters| {
        let images = Images::new();
        let options = KvSsdOptions { has_filters, ..tiny() };
        let mut device = images.create(&options);
        let mut random = Random(3);
        for _ in 0..3_000 {
            let key = 2 * random.below(400);
            device.put(&key.to_be_bytes(), &[7; 40]).unwrap();
        }
        assert!(device.counters().remapped_tables > 0);
        drop(device);
        let mut device = images.open().unwrap();
        assert_eq!(device.options().has_filters, has_filters, "a device keeps its options");
        device.verify().unwrap();
        let before = device.counters();
        for key in 0..800_u64 {
            assert_eq!(device.get(&key.to_be_bytes()).unwrap().is_some(), key % 2 == 0);
        }
        let after = device.counters();
        let pages = after.get_pages - before.get_pages;
        pages - (after.get_meta_pages - before.get_meta_pages)
    };
    let (without, with) = (pages_per_get(false), pages_per_get(true));
    assert!(with * 3 < without * 2, "{with} pages of records, {without} without filters");
}

#[test]
fn every_variant_is_a_map_with_snapshots_across_restarts() {
    const KEYS: u64 = 500;
    for (seed, options) in variants().into_iter().enumerate() {
        let images = Images::new();
        let block_count = geometry(&options).block_count + 2;
        let mut device = images.create_on(Geometry { block_count, ..TINY }, &options);
        let mut random = Random(seed as u64);
        let mut state = State::new();
        let mut snapshots: Vec<(u64, State)> = Vec::new();
        let (mut remapped, mut collections) = (0, 0);
        for round in 0..6000 {
            let step = step(&mut random, KEYS);
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
            if round % 300 == 120 {
                snapshots.push((device.snapshot(), state.clone()));
            }
            if snapshots.len() > 2 {
                device.release(snapshots.remove(0).0);
            }
            if round % 500 == 499 {
                for (snapshot, state) in &snapshots {
                    expect(&mut device, state, *snapshot, KEYS);
                }
                expect(&mut device, &state, u64::MAX, KEYS);
                device.verify().unwrap();
                device.write_amplification();
            }
            if round % 1500 == 1499 {
                device.sync().unwrap();
                remapped += reused(&device);
                collections += device.counters().collections;
                snapshots.clear();
                drop(device);
                device = images.open().unwrap();
                assert_eq!(device.options(), &options);
                device.verify().unwrap();
                expect(&mut device, &state, u64::MAX, KEYS);
            }
        }
        // A delayed compaction makes one virtual table where rLSM makes several, and few runs that
        // sink together have as few strata as TH.
        let are_few = options.form == Form::Delay || options.policy == "tiering";
        let least = if are_few { 5 } else { 20 };
        assert_eq!(remapped > least, options.threshold > 0, "{options:?}: {remapped} remapped");
        assert!(collections > 10, "{options:?}: {collections} collections");
    }
}

/// Steps of the workload under power cuts: overwrites and deletes on a device that is two thirds
/// full.
fn cut_workload() -> Vec<Step> {
    let mut random = Random(5);
    (0..2600).map(|_| step(&mut random, 500)).collect()
}

/// Runs the steps. Returns where it stopped and why; `state` then holds what was acknowledged.
fn run(device: &mut KvSsd, steps: &[Step], state: &mut State) -> (usize, Option<Error>) {
    for (at, step) in steps.iter().enumerate() {
        if let Err(error) = apply(device, step) {
            return (at, Some(error));
        }
        model(state, step);
    }
    (steps.len(), None)
}

/// Cuts the power during every program and erase of the last part of a workload, each time with
/// another seed. After reopening, the device holds what was acknowledged and nothing else, and it
/// goes on working. A second cut follows soon after.
fn cut_everywhere(options: KvSsdOptions, stride: u64) {
    let steps = cut_workload();
    let (before, after) = steps.split_at(2000);
    let images = Images::new();
    let mut device = images.create(&options);
    let mut state = State::new();
    assert!(run(&mut device, before, &mut state).1.is_none());
    device.sync().unwrap();
    drop(device);
    let mut device = images.duplicate().open().unwrap();
    device.nand_mut().set_faults(FaultPlan::default());
    assert!(run(&mut device, after, &mut state.clone()).1.is_none());
    let counters = device.counters();
    assert!(reused(&device) > 0 || options.threshold == 0, "{counters:?}");
    assert!(counters.collections > 0 && counters.checkpoints > 1, "{counters:?}");
    assert!(counters.wear_moves > 0, "{counters:?}");
    let mutations = device.nand().mutation_count();
    let mut cuts = BTreeSet::new();
    for at in (0..mutations).step_by(stride as usize) {
        let images = images.duplicate();
        let mut state = state.clone();
        let mut rest = after;
        for cut_at in [at, at % 7] {
            let mut device = images.open().unwrap();
            let seed = at * 31 + cut_at;
            let plan = FaultPlan { power_cut_at: Some(cut_at), seed, ..FaultPlan::default() };
            device.nand_mut().set_faults(plan);
            let base = state.clone();
            let (done, error) = run(&mut device, rest, &mut state);
            // The second cut may lie past the end of the workload.
            let is_over = error.is_none() && cut_at != at;
            assert!(is_over || matches!(error, Some(Error::PowerCut)), "cut {at}: {error:?}");
            cuts.insert(device.nand().mutation_count());
            if options.durability == Durability::Log {
                // The last group was not synced. The cut decides whether that group, and the step
                // that met the cut, are there.
                state = lost_tail(&images, base, &rest[..rest.len().min(done + 1)]);
            }
            rest = &rest[done..];
        }
        let mut device = images.open().unwrap_or_else(|error| panic!("cut {at}: {error}"));
        device.verify().unwrap_or_else(|error| panic!("cut {at}: {error}"));
        let expected: Vec<_> = state.clone().into_iter().collect();
        assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected, "cut {at}");
        let rest = &rest[..rest.len().min(60)];
        let stopped = run(&mut device, rest, &mut state).1;
        assert!(stopped.is_none(), "cut {at}: {stopped:?}");
        let expected: Vec<_> = state.into_iter().collect();
        assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected, "cut {at}");
    }
    assert!(cuts.len() > 3);
}

/// With the log, the device must hold the state after one of the last steps.
fn lost_tail(images: &Images, mut known: State, steps: &[Step]) -> State {
    let mut device = images.open().unwrap();
    let found: State = scanned(&mut device, Direction::Forward, u64::MAX).into_iter().collect();
    let mut is_known = steps.len() < 40 && known == found;
    for (at, step) in steps.iter().enumerate() {
        model(&mut known, step);
        is_known |= at + 40 > steps.len() && known == found;
    }
    assert!(is_known, "the device holds a state that never was");
    found
}

#[test]
fn power_cut_at_every_program_and_erase() {
    cut_everywhere(tiny(), 1);
}

#[test]
fn power_cuts_of_the_other_variants() {
    cut_everywhere(KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..tiny() }, 5);
    cut_everywhere(KvSsdOptions { placement: Placement::Mixed, ..tiny() }, 5);
    cut_everywhere(KvSsdOptions { durability: Durability::Log, ..tiny() }, 5);
    cut_everywhere(delayed(), 3);
    cut_everywhere(appended(), 3);
}

#[test]
fn power_cut_at_every_program_and_erase_under_global_range() {
    cut_everywhere(KvSsdOptions { cuts: Partitioner::GlobalRange, ..tiny() }, 1);
}

#[test]
fn power_cut_at_every_program_and_erase_with_values_in_groups() {
    cut_everywhere(apart(ValuePlacement::Groups), 1);
}

#[test]
fn power_cut_at_every_program_and_erase_with_values_in_a_log() {
    cut_everywhere(apart(ValuePlacement::Log), 1);
    let values = ValuePlacement::Groups;
    cut_everywhere(KvSsdOptions { durability: Durability::Log, ..apart(values) }, 5);
}

#[test]
fn power_cut_at_every_program_and_erase_under_all_axes_at_once() {
    cut_everywhere(combined(), 1);
}

#[test]
fn power_cut_at_every_program_and_erase_under_tiering() {
    cut_everywhere(tiered(), 1);
}

#[test]
fn programs_and_erases_that_fail_lose_nothing() {
    for options in [tiny(), tiered(), apart(ValuePlacement::Log), apart(ValuePlacement::Groups)] {
        programs_and_erases_fail(&options);
    }
}

fn programs_and_erases_fail(options: &KvSsdOptions) {
    let images = Images::new();
    let mut device = images.create(options);
    let failing_programs = (0..4).map(|at| 150 + at * 180).collect();
    let failing_erases = [3, 40].into_iter().collect();
    let plan = FaultPlan { failing_programs, failing_erases, ..FaultPlan::default() };
    device.nand_mut().set_faults(plan);
    let mut state = State::new();
    let mut random = Random(9);
    for _ in 0..3000 {
        let step = step(&mut random, 300);
        apply(&mut device, &step).unwrap();
        model(&mut state, &step);
    }
    let fired = device.nand().fired_faults();
    assert_eq!((fired.failed_programs, fired.failed_erases), (4, 2));
    assert_eq!(device.nand().wear().retired_count, 6);
    device.verify().unwrap();
    device.write_amplification();
    expect(&mut device, &state, u64::MAX, 300);
    drop(device);
    let mut device = images.open().unwrap();
    device.verify().unwrap();
    expect(&mut device, &state, u64::MAX, 300);
}

#[test]
fn a_full_device_refuses_puts_and_recovers_by_deletes() {
    for options in [
        tiny(),
        KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GlobalRange, ..tiny() },
        delayed(),
        appended(),
        apart(ValuePlacement::Log),
        apart(ValuePlacement::Groups),
    ] {
        let images = Images::new();
        let mut device = images.create(&options);
        let mut state = State::new();
        for turn in 0..3 {
            let value = vec![turn; 100];
            let refused = (0..100_000).find(|at| match device.put(&key(*at), &value) {
                Ok(()) => {
                    state.insert(key(*at), value.clone());
                    false
                }
                Err(error) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    true
                }
            });
            let count = refused.expect("it is finite");
            assert!(device.put(&key(count), &value).is_err(), "still full");
            device.verify().unwrap();
            for at in (0..count).filter(|at| at % 3 > 0) {
                device.delete(&key(at)).unwrap();
                state.remove(&key(at));
            }
            let expected: Vec<_> = state.clone().into_iter().collect();
            assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected);
            device = images.open().unwrap();
            for at in 0..count / 3 {
                device.put(&key(200_000 + at), &value).unwrap();
                state.insert(key(200_000 + at), value.clone());
            }
            let expected: Vec<_> = state.clone().into_iter().collect();
            assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected);
            for at in 0..count / 3 {
                device.delete(&key(200_000 + at)).unwrap();
                state.remove(&key(200_000 + at));
            }
            device.verify().unwrap();
        }
    }
}

/// What a table keeps for its segments is nobody else's: fewer keys fit, and a restart finds the
/// same budget. Under other forms nothing is reserved.
#[test]
fn tables_of_llsm_reserve_room() {
    let fill = |options: KvSsdOptions| {
        let images = Images::new();
        let mut device = images.create_on(TINY, &options);
        let mut random = Random(4);
        let count = (0..).take_while(|_| device.put(&key(random.below(90_000)), &[7; 90]).is_ok());
        let count = count.count();
        let reserved = device.reserved_pages();
        assert!(device.live_pages() + reserved + 8 > device.limit_pages(), "it is full");
        drop(device);
        assert_eq!(images.open().unwrap().reserved_pages(), reserved);
        (count, reserved)
    };
    let (nlsm, none) = fill(KvSsdOptions { form: Form::Remap, threshold: 0, ..appended() });
    let (llsm, some) = fill(appended());
    assert!(none == 0 && some > 20, "{some} pages reserved");
    assert!(llsm * 10 < nlsm * 9, "{llsm} keys fit, {nlsm} without reserved room");
}

/// Blocks that turn bad can push the limit below the data already stored. Deletes still go through.
#[test]
fn a_full_device_with_fewer_blocks_recovers_by_deletes() {
    let images = Images::new();
    let mut device = images.create(&tiny());
    let value = [7; 100];
    let count = (0..).take_while(|at| device.put(&key(*at), &value).is_ok()).count() as u64;
    for block in (0..TINY.block_count).step_by(16) {
        device.nand_mut().retire(block).unwrap();
    }
    drop(device);
    let mut device = images.open().unwrap();
    assert!(device.live_pages() > device.limit_pages() + 8, "not even a memtable of deletes");
    assert!(device.put(&key(count), &value).is_err(), "still full");
    (0..count).filter(|at| at % 3 > 0).for_each(|at| device.delete(&key(at)).unwrap());
    device.put(&key(count), &value).unwrap();
    device.verify().unwrap();
    for at in 0..=count {
        let is_there = at % 3 == 0 || at == count;
        assert_eq!(device.get(&key(at)).unwrap().is_some(), is_there, "{at}");
    }
}

/// A device with tables, a journal, checkpoints and a memtable, and what it holds.
fn filled() -> (Images, State) {
    let images = Images::new();
    let mut device = images.create(&tiny());
    let mut state = State::new();
    let steps = cut_workload();
    assert!(run(&mut device, &steps[..1200], &mut state).1.is_none());
    // What was never synced and is damaged counts as lost by the machine.
    device.sync().unwrap();
    (images, state)
}

/// Opens a damaged device and reads everything. Each answer is right or an error.
fn judge(images: &Images, state: &State, place: &str) -> bool {
    let Ok(mut device) = images.open() else { return false };
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        true
    };
    let scanned = device.scan(None, Direction::Forward, u64::MAX, &mut visit);
    let expected: Vec<_> = state.clone().into_iter().collect();
    if scanned.is_ok() {
        assert!(found == expected, "{place}: a wrong answer");
    }
    for (key, value) in state.iter().step_by(16) {
        if let Ok(found) = device.get(key) {
            assert_eq!(found.as_ref(), Some(value), "{place}: a wrong answer");
        }
    }
    scanned.is_ok()
}

/// The tables of a flush may not fit one journal page, because a large batch makes too many of them
/// or because long keys make their fences too large. The device took these writes, and after them
/// no other.
#[test]
fn a_flush_larger_than_a_journal_page_is_one_commit() {
    const ROOMY: Geometry = Geometry { block_count: 64, ..TINY };
    let value = vec![7; 900];
    let batch: Step = (0..130).map(|at| (key(at), Some(value.clone()))).collect();
    let long_key = |at: u64| ([&[b'k'; 56][..], &at.to_be_bytes()].concat(), vec![1; 10]);
    let long_keys = (0..900).map(long_key).map(|(key, value)| vec![(key, Some(value))]);
    let plain = KvSsdOptions { memtable_pages: 100, ..tiny() };
    let cases: [(KvSsdOptions, Vec<Step>); 3] = [
        (tiny(), vec![batch.clone(), step(&mut Random(1), 9)]),
        (KvSsdOptions { durability: Durability::Log, ..tiny() }, vec![batch]),
        (plain, long_keys.collect()),
    ];
    for (options, steps) in cases {
        let fill = |device: &mut KvSsd| -> Result<()> {
            steps.iter().try_for_each(|step| apply(device, step))?;
            device.flush()
        };
        let mut whole = Images::new().create_on(ROOMY, &options);
        fill(&mut whole).unwrap();
        let mut state = State::new();
        steps.iter().for_each(|step| model(&mut state, step));
        assert!(whole.verify().unwrap().tables > 10);
        for cut in 2..whole.nand().mutation_count() {
            let images = Images::new();
            let mut device = images.create_on(ROOMY, &options);
            let plan = FaultPlan { power_cut_at: Some(cut - 1), seed: cut, ..FaultPlan::default() };
            device.nand_mut().set_faults(plan);
            assert!(fill(&mut device).is_err());
            device = images.open().unwrap();
            let found = device.tree().last_seq() as usize;
            let ends = steps.iter().scan(0, |end, step| {
                *end += step.len();
                Some(*end)
            });
            assert!(found == 0 || ends.into_iter().any(|end| end == found), "cut {cut}: {found}");
            fill(&mut device).unwrap();
            expect(&mut device, &state, u64::MAX, 130);
            device.verify().unwrap();
        }
    }
}

/// Flips a byte of the data or the spare area of one page at a time. A read returns an error or the
/// old data.
#[test]
fn flipped_bytes_are_found() {
    let (images, state) = filled();
    let len = images.flash.len_bytes().unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for at in (4096..len).step_by(397) {
        let damaged = images.duplicate();
        let mut byte = [0];
        damaged.flash.read_at(at, &mut byte).unwrap();
        if byte[0] == 0 {
            continue;
        }
        damaged.flash.write_at(at, &[byte[0] ^ 0x24]).unwrap();
        match judge(&damaged, &state, &format!("byte {at}")) {
            true => harmless += 1,
            false => refused += 1,
        }
    }
    assert!(refused > 50 && harmless > 50, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_damaged_side_file_is_refused_or_cut() {
    let (images, state) = filled();
    let len = images.side.len_bytes().unwrap();
    assert!(len > 500, "the memtable holds something");
    for at in (0..len).step_by(13) {
        let damaged = images.duplicate();
        let mut byte = [0];
        damaged.side.read_at(at, &mut byte).unwrap();
        damaged.side.write_at(at, &[byte[0] ^ 0x24]).unwrap();
        assert!(!judge(&damaged, &state, &format!("byte {at}")));
    }
    let mut cut = images.duplicate();
    cut.side.set_len(len - 1).unwrap();
    assert!(!judge(&cut, &state, "the last write was synced"));
    let mut device = images.open().unwrap();
    device.put(b"one more", b"never synced").unwrap();
    drop(device);
    let longer_len = images.side.len_bytes().unwrap();
    for at in [len, longer_len - 1] {
        cut = images.duplicate();
        cut.side.write_at(at, &[0x24]).unwrap();
        assert!(judge(&cut, &state, "the machine lost the last write"));
        cut = images.duplicate();
        cut.side.set_len(at).unwrap();
        assert!(judge(&cut, &state, "the last write was cut short"));
    }
    cut = images.duplicate();
    cut.flash.set_len(len).unwrap();
    assert!(matches!(cut.open().err(), Some(Error::CutShort { .. })));
}

#[test]
fn other_devices_are_refused_by_name() {
    let (images, _) = filled();
    let other = Geometry { block_count: TINY.block_count + 1, ..TINY };
    let open = |geometry, options| {
        let (flash, side) = (Box::new(images.flash.clone()), Box::new(images.side.clone()));
        KvSsd::open(flash, side, Some(geometry), Timing::PAPER, options)
    };
    assert!(matches!(open(other, None).err(), Some(Error::OtherGeometry { .. })));
    let of = |policy: &str, options| KvSsdOptions { policy: policy.to_string(), ..options };
    for (wrong, why) in [
        (of("universal", tiny()), "choose among: fragmented-leveling"),
        (KvSsdOptions { size_ratio: 16, ..tiered() }, "tiering with a size ratio of 16"),
        (of("tiering", delayed()), "tiering: dlsm keeps runs in a form of its own"),
        (of("tiering", appended()), "tiering: llsm keeps runs in a form of its own"),
    ] {
        let error = open(TINY, Some(wrong)).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{error:?}");
    }
    let wrong = KvSsdOptions { cuts: Partitioner::Prefix, ..tiny() };
    let error = open(TINY, Some(wrong)).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("size, global-range")));
    let mut device = open(TINY, Some(KvSsdOptions { threshold: 4, ..tiny() })).unwrap();
    assert_eq!(device.options().threshold, 4);
    let limit = device.max_key_bytes();
    assert!(matches!(device.put(&vec![1; limit + 1], b""), Err(Error::KeySize { .. })));
    assert!(matches!(device.put(b"", b""), Err(Error::KeySize { .. })));
    let limit = device.max_value_bytes();
    assert!(matches!(device.put(b"k", &vec![1; limit + 1]), Err(Error::ValueSize { .. })));
    device.put(b"k", &vec![1; limit]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.get(b"k").unwrap().map(|value| value.len()), Some(limit));
    let fresh = MemoryImage::new();
    let (flash, side) = (Box::new(fresh.clone()), Box::new(MemoryImage::new()));
    let options = runstone_flash::ftl::FtlOptions::default();
    let geometry = Geometry { page_bytes: 4096, ..TINY };
    let mut ftl =
        runstone_flash::ftl::Ftl::create(flash, geometry, Timing::PAPER, options).unwrap();
    ftl.write(0, &[1; 4096]).unwrap();
    let error = KvSsd::open(Box::new(fresh), side, None, Timing::PAPER, None).err();
    assert!(matches!(error, Some(Error::NotAKvSsd { .. })), "{error:?}");
}

/// Under tiering a level has several runs, and less is written.
#[test]
fn tiering_keeps_runs_and_writes_less() {
    let written = |options: &KvSsdOptions| {
        let images = Images::new();
        let geometry = Geometry { block_count: 160, ..TINY };
        let mut device = images.create_on(geometry, options);
        let (mut state, mut random, mut most_runs) = (State::new(), Random(9), 0);
        for _ in 0..6000 {
            let step = step(&mut random, 1500);
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
            let shape = device.tree().shape();
            let runs = shape.levels.iter().skip(1).map(|level| level.runs().len());
            most_runs = most_runs.max(runs.max().unwrap_or(0));
        }
        device.verify().unwrap();
        expect(&mut device, &state, u64::MAX, 1500);
        (device.write_amplification().total_milli(), most_runs)
    };
    let (leveled, one) = written(&KvSsdOptions { threshold: 0, ..tiny() });
    let (tiered, runs) = written(&KvSsdOptions { threshold: 0, ..tiered() });
    assert_eq!(one, 1);
    assert_eq!(runs as u32, tiny().size_ratio - 1, "one more sinks before the next write");
    assert!(tiered * 4 < leveled * 3, "{tiered} {leveled}");
}

/// A device that kept runs is opened by a policy that keeps none, and the other way. The order of
/// the tables stays.
#[test]
fn the_policy_can_change_when_a_device_is_opened() {
    let images = Images::new();
    let (mut state, mut random) = (State::new(), Random(4));
    drop(images.create(&tiered()));
    let other = |policy: &str, size_ratio| KvSsdOptions { size_ratio, ..under(policy) };
    for options in [
        tiered(),
        other("tiering", 2),
        other("leveling", 4),
        other("tiering", 7),
        other("garnering", 3),
        tiered(),
        other("fragmented-leveling", 4),
    ] {
        let (flash, side) = (Box::new(images.flash.clone()), Box::new(images.side.clone()));
        let mut device =
            KvSsd::open(flash, side, None, Timing::PAPER, Some(options.clone())).unwrap();
        expect(&mut device, &state, u64::MAX, 500);
        for _ in 0..1200 {
            let step = step(&mut random, 500);
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
        }
        device.verify().unwrap();
        expect(&mut device, &state, u64::MAX, 500);
        device.sync().unwrap();
        drop(device);
        let mut device = images.duplicate().open().unwrap();
        device.compact().unwrap();
        device.verify().unwrap();
        expect(&mut device, &state, u64::MAX, 500);
    }
}

/// Where room is short, runs sink up to a key at a time; what is beyond stays above.
#[test]
fn runs_sink_in_parts_where_room_is_short() {
    let images = Images::new();
    let geometry = Geometry { block_count: 44, ..TINY };
    let mut device = images.create_on(geometry, &tiered());
    let (mut state, mut random) = (State::new(), Random(2));
    for round in 0..6000 {
        let step = step(&mut random, 500);
        apply(&mut device, &step).unwrap();
        model(&mut state, &step);
        if round % 1000 == 999 {
            device.verify().unwrap();
            expect(&mut device, &state, u64::MAX, 500);
        }
    }
    assert!(device.counters().split_compactions > 1, "{:?}", device.counters());
}

/// Each opening may ask for another partitioner. Existing tables stay and read the same.
#[test]
fn the_cutting_can_change_when_a_device_is_opened() {
    let images = Images::new();
    let (mut state, mut random) = (State::new(), Random(3));
    drop(images.create(&tiny()));
    let mut device = images.open().unwrap();
    for cuts in [Partitioner::GlobalRange, Partitioner::Size, Partitioner::GroupedGlobalRange] {
        drop(device);
        let (flash, side) = (Box::new(images.flash.clone()), Box::new(images.side.clone()));
        let options = KvSsdOptions { cuts, ..tiny() };
        device = KvSsd::open(flash, side, None, Timing::PAPER, Some(options)).unwrap();
        for _ in 0..1500 {
            let step = step(&mut random, 500);
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
        }
        assert!(device.counters().compactions > 10);
        device.verify().unwrap();
        expect(&mut device, &state, u64::MAX, 500);
        device.sync().unwrap();
        drop(device);
        device = images.open().unwrap();
        assert_eq!(device.options().cuts, cuts);
        expect(&mut device, &state, u64::MAX, 500);
    }
}

/// A log page could not be programmed. The write reported an error, but readers saw it all the
/// same, and a later flush would have kept it.
#[test]
fn a_write_that_is_refused_is_not_there() {
    let options = KvSsdOptions { durability: Durability::Log, ..tiny() };
    let mut device = Images::new().create(&options);
    let failing_programs = (0..10_000).collect();
    device.nand_mut().set_faults(FaultPlan { failing_programs, ..FaultPlan::default() });
    let mut taken = State::new();
    let refused = loop {
        let key = (taken.len() as u32).to_be_bytes().to_vec();
        match device.put(&key, &[1; 300]) {
            Ok(()) => taken.insert(key, vec![1; 300]),
            Err(error) => break error,
        };
    };
    assert!(matches!(refused, Error::OutOfBlocks) && taken.len() > 1, "{refused}, {taken:?}");
    let found = scanned(&mut device, Direction::Forward, u64::MAX);
    assert!(found.into_iter().eq(taken), "what was taken, and nothing else");
}

/// All versions of a key that snapshots hold end in one page group, and a group lies in one block.
/// A flush programmed past the end of the block, and the device took no more writes.
#[test]
fn versions_that_snapshots_hold_never_outgrow_a_block() {
    for durability in [Durability::Capacitor, Durability::Log] {
        let mut device = Images::new().create(&KvSsdOptions { durability, ..tiny() });
        let large = vec![1; device.max_value_bytes()];
        device.put(b"k", &large).unwrap();
        let mut snapshots = vec![device.snapshot()];
        let refused = device.put(b"k", &large);
        assert!(matches!(refused, Err(Error::VersionsHeld { .. })), "{refused:?}");
        device.put(b"other", &large).unwrap();
        // Both snapshots see the same version, so it is stored once.
        snapshots.push(device.snapshot());
        let mut newest = large.clone();
        loop {
            match device.put(b"k", &[snapshots.len() as u8; 200]) {
                Ok(()) => newest = vec![snapshots.len() as u8; 200],
                Err(error) => break assert!(matches!(error, Error::VersionsHeld { .. })),
            }
            snapshots.push(device.snapshot());
            device.flush().unwrap();
        }
        assert!((6..12).contains(&snapshots.len()), "{}", snapshots.len());
        assert_eq!(device.get(b"k").unwrap(), Some(newest), "what is refused is not there");
        device.compact().unwrap();
        assert_eq!(device.get_at(b"k", snapshots[0]).unwrap().as_ref(), Some(&large));
        assert_eq!(device.get_at(b"k", snapshots[3]).unwrap(), Some(vec![3; 200]));
        snapshots.drain(..).for_each(|snapshot| device.release(snapshot));
        device.put(b"k", &large).unwrap();
        device.flush().unwrap();
        assert_eq!(device.get(b"k").unwrap(), Some(large));
        device.verify().unwrap();
    }
}

/// The image took part of a page group. The retry began the group again at the same page.
#[test]
fn a_flush_that_the_image_refuses_can_be_tried_again() {
    let mut refusals = 0;
    for place in 0.. {
        let images = Images::new();
        let (flash, side) = (Failing::refuses_one(&images.flash), Box::new(images.side.clone()));
        let left = Arc::clone(&flash.left);
        let mut device = KvSsd::create(Box::new(flash), side, TINY, Timing::PAPER, tiny()).unwrap();
        let large = vec![1; device.max_value_bytes()];
        for key in [b"a", b"k"] {
            device.put(key, &large).unwrap();
        }
        left.store(place, Ordering::Relaxed);
        let Err(error) = device.flush() else { break };
        assert!(matches!(error, Error::Image { .. }), "write {place}: {error}");
        refusals += 1;
        device.flush().unwrap_or_else(|error| panic!("after write {place}: {error}"));
        device.write_amplification();
        drop(device);
        let mut device = images.open().unwrap();
        device.verify().unwrap();
        assert_eq!(device.get(b"a").unwrap(), Some(large.clone()));
        assert_eq!(device.get(b"k").unwrap(), Some(large));
    }
    assert!(refusals > 20, "{refusals}");
}

/// A refused save left bytes behind the next, shorter save. They were taken for damage, and the
/// device did not open again. A refused clearing had the same effect.
#[test]
fn what_the_side_file_refuses_leaves_nothing_behind() {
    for is_flushed in [false, true] {
        let images = Images::new();
        let (flash, side) = (Box::new(images.flash.clone()), Failing::refuses_one(&images.side));
        let left = Arc::clone(&side.left);
        let mut device = KvSsd::create(flash, Box::new(side), TINY, Timing::PAPER, tiny()).unwrap();
        device.put(b"a", b"1").unwrap();
        device.put(b"k", &[7; 700]).unwrap();
        left.store(0, Ordering::Relaxed);
        let refused = match is_flushed {
            true => device.flush(),
            false => device.put(b"k", &[8; 900]),
        };
        assert!(matches!(refused, Err(Error::Image { .. })), "{refused:?}");
        device.put(b"bb", b"2").unwrap();
        for _ in 0..2 {
            assert_eq!(device.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(device.get(b"k").unwrap().as_deref(), Some(&[7; 700][..]));
            assert_eq!(device.get(b"bb").unwrap().as_deref(), Some(&b"2"[..]));
            drop(device);
            device = images.open().unwrap();
            device.verify().unwrap();
        }
    }
}

/// Blocks in use that hold no live page.
fn idle_blocks(device: &KvSsd) -> BTreeSet<u32> {
    let is_idle = |block: &u32| {
        let report = device.block(*block);
        report.page_type.is_some() && report.live_pages == 0 && !report.is_retired
    };
    (0..device.nand().geometry().block_count).filter(is_idle).collect()
}

/// A program failed in a block, and the image refused to mark the block as bad. The block was then
/// neither free nor collected until the device was opened again.
#[test]
fn a_block_that_could_not_be_marked_as_bad_is_not_lost() {
    let mut refusals = 0;
    for place in 0..20 {
        let images = Images::new();
        let (flash, side) = (Failing::refuses_one(&images.flash), Box::new(images.side.clone()));
        let left = Arc::clone(&flash.left);
        let options = KvSsdOptions { placement: Placement::Mixed, ..tiny() };
        let mut device =
            KvSsd::create(Box::new(flash), side, TINY, Timing::PAPER, options).unwrap();
        let cycle = |device: &mut KvSsd, round: u64| -> Result<()> {
            (0..30).try_for_each(|at| device.put(&key(at), &[round as u8; 300]))?;
            device.flush()?;
            device.compact()?;
            device.checkpoint()
        };
        cycle(&mut device, 0).unwrap();
        let mut plan = FaultPlan::default();
        plan.failing_programs.insert(2);
        device.nand_mut().set_faults(plan);
        left.store(place, Ordering::Relaxed);
        refusals += u64::from(cycle(&mut device, 1).is_err());
        left.store(u64::MAX, Ordering::Relaxed);
        // Open blocks are filled and new ones begun. A block that stays idle is lost.
        let mut idle: BTreeSet<u32> = (0..TINY.block_count).collect();
        for round in 2..60 {
            cycle(&mut device, round).unwrap();
            if round > 20 {
                idle = &idle & &idle_blocks(&device);
            }
        }
        assert!(idle.is_empty(), "write {place}: {idle:?}");
        device.verify().unwrap();
    }
    assert!(refusals > 10, "{refusals}");
}

/// A full device whose blocks have few pages can be emptied like any other.
#[test]
fn full_devices_of_small_blocks_take_deletes() {
    for (block_pages, block_count) in
        [(2, 40), (3, 32), (4, 24), (4, 28), (4, 40), (5, 24), (6, 24)]
    {
        let geometry = Geometry { block_pages, block_count, ..TINY };
        for memtable_pages in [1, 4] {
            let options = KvSsdOptions { memtable_pages, ..tiny() };
            let place = format!("{block_count} blocks of {block_pages}, {memtable_pages}");
            let images = Images::new();
            let mut device = images.create_on(geometry, &options);
            let mut written = 0;
            while device.put(&key(written), &[1; 200]).is_ok() {
                written += 1;
            }
            for at in 0..written {
                device.delete(&key(at)).unwrap_or_else(|error| panic!("{place}: {at}: {error}"));
            }
            device.compact().unwrap_or_else(|error| panic!("{place}: {error}"));
            let mut again = 0;
            while device.put(&key(again), &[1; 200]).is_ok() {
                again += 1;
            }
            assert!(again * 10 >= written * 8, "{place}: {again} after {written}");
        }
    }
}

/// With long keys, no part of a compaction of level 0 had a commit that fits a journal page. The
/// device reported that it was full when a third of it was in use, and level 0 kept growing.
#[test]
fn compactions_of_long_keys_find_a_commit() {
    let long_key = |at: u64| {
        let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        [&[b'k'; 56][..], &spread].concat()
    };
    for l0_trigger in [2, 4, 8] {
        let device_options = KvSsdOptions { l0_trigger, ..tiny() };
        let images = Images::new();
        let mut device = images.create(&device_options);
        let mut state = State::new();
        for at in 0..1500 {
            let (key, value) = (long_key(at % 150), vec![at as u8; 60]);
            device.put(&key, &value).unwrap_or_else(|error| panic!("{l0_trigger}: {at}: {error}"));
            state.insert(key, value);
        }
        assert!(device.tree().level(0).len() <= l0_trigger as usize + 1);
        drop(device);
        let mut device = images.open().unwrap();
        device.verify().unwrap();
        let found: State = scanned(&mut device, Direction::Forward, u64::MAX).into_iter().collect();
        assert!(found == state);
        device.write_amplification();
    }
}

/// Garnering removes the last level when the tree is small for its levels. The tables that rose
/// from it were stacked above the tables they met, although they are older, and gets returned old
/// values.
#[test]
fn what_rises_to_a_level_is_older_than_what_is_there() {
    let mut risen = 0;
    for seed in 0..12 {
        let options = KvSsdOptions {
            policy: "garnering".to_string(),
            threshold: 6,
            size_ratio: 2,
            level1_pages: 8,
            memtable_pages: 4,
            ..tiny()
        };
        let geometry = Geometry { block_count: 96, ..TINY };
        let images = Images::new();
        let mut device = images.create_on(geometry, &options);
        let (mut random, mut state) = (Random(seed), State::new());
        let mut most_levels = 0;
        for at in 0..4000 {
            if at == 2000 {
                // The same tree with options under which fewer levels hold as much.
                drop(device);
                let wide = KvSsdOptions { size_ratio: 6, level1_pages: 16, ..options.clone() };
                let (flash, side) = (Box::new(images.flash.clone()), Box::new(images.side.clone()));
                device = KvSsd::open(flash, side, None, Timing::PAPER, Some(wide)).unwrap();
            }
            let step = vec![(key(random.below(500)), Some(vec![at as u8; 150]))];
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
            let levels = device.tree().level_count();
            risen += u64::from(levels < most_levels);
            most_levels = levels;
            if at % 100 == 99 {
                expect(&mut device, &state, u64::MAX, 500);
            }
        }
    }
    assert!(risen > 0, "no tree has shrunk");
}
