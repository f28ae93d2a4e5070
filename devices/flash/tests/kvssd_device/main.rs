//! The KVSSD against a model. Here: variants and thresholds, snapshots, reopening with other
//! options. [`power`]: power cuts at every program and erase. [`full`]: a device without room.
//! [`damage`]: damaged images, and images that refuse writes.

mod damage;
#[path = "../support/failing.rs"]
mod failing;
mod full;
mod power;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

use runstone_flash::kvssd::{FilterAllocation, Form, KvSsd, KvSsdOptions, Partitioner};
use runstone_flash::nand::{Geometry, Timing};
use support::{Random, State, apply, model};
use tiny::{
    Images, TINY, appended, delayed, expect, geometry, key, reused, step, tiered, tiny, under,
    variants,
};

/// The number of pages of records that are read by gets of these keys.
fn pages_of_gets(device: &mut KvSsd, keys: impl Iterator<Item = u64>, is_there: bool) -> u64 {
    let before = device.counters();
    for key in keys {
        assert_eq!(device.get(&key.to_be_bytes()).unwrap().is_some(), is_there);
    }
    let after = device.counters();
    let pages = after.get_pages - before.get_pages;
    pages - (after.get_meta_pages - before.get_meta_pages)
}

/// A filter moves with its page into remapped tables, through collections and restarts, and saves
/// gets from reading pages without their key. `verify` compares each filter with its page.
#[test]
fn filters_save_pages_that_gets_would_read_in_vain() {
    let pages = |filters| {
        let images = Images::new();
        let options = KvSsdOptions { filters, ..tiny() };
        let mut device = images.create(&options);
        let mut random = Random::new(3);
        for _ in 0..3_000 {
            let key = 2 * random.below(400);
            device.put(&key.to_be_bytes(), &[7; 40]).unwrap();
        }
        assert!(device.counters().remapped_tables > 0);
        drop(device);
        let mut device = images.open().unwrap();
        assert_eq!(device.options().filters, filters, "a device keeps its options");
        device.verify().unwrap();
        let [absent, present] = [1, 0].map(|first| (first..800).step_by(2));
        pages_of_gets(&mut device, absent, false) + pages_of_gets(&mut device, present, true)
    };
    let [without, uniform, optimal] = FilterAllocation::ALL.map(pages);
    assert!(uniform * 3 < without * 2, "{uniform} pages of records, {without} without filters");
    assert!(optimal * 3 < without * 2, "{optimal} pages of records, {without} without filters");
}

/// Divided among the levels, the same memory saves more reads. The test counts the pages that gets
/// of absent keys read, and the bytes of all filters, at several times in a tree's life.
#[test]
fn optimal_filters_err_less_than_uniform_ones_of_the_same_memory() {
    const KEYS: u64 = 4000;
    let seen = |filters, options: &KvSsdOptions| {
        let images = Images::new();
        let options = KvSsdOptions { filters, ..options.clone() };
        let mut device = images.create_on(Geometry { block_count: 400, ..TINY }, &options);
        let (mut random, mut pages, mut bytes) = (Random::new(3), 0, 0);
        for at in 1..=12 * KEYS {
            device.put(&(2 * random.below(KEYS)).to_be_bytes(), &[7; 40]).unwrap();
            if at < 2 * KEYS || !at.is_multiple_of(KEYS / 4) {
                continue;
            }
            let absent = (1..2 * KEYS).step_by(4);
            pages += pages_of_gets(&mut device, absent, false);
            let ids: Vec<u64> = device.tree().nodes().map(|node| node.id).collect();
            let tables = ids.into_iter().map(|id| device.table(id).unwrap());
            let sizes = tables.flat_map(|table| table.entries);
            bytes += sizes.map(|entry| entry.filter.bytes().len() as u64).sum::<u64>();
        }
        device.verify().unwrap();
        (pages, bytes)
    };
    // Segments and virtual tables consist mostly of pages of shallower levels, which keep their
    // bits.
    let cases =
        [(tiny(), 70, 103), (tiered(), 80, 103), (appended(), 60, 115), (delayed(), 50, 120)];
    for (options, most_pages, most_bytes) in cases {
        let uniform = seen(FilterAllocation::Uniform, &options);
        let optimal = seen(FilterAllocation::Optimal, &options);
        let what = format!("{} {}: {uniform:?} {optimal:?}", options.name(), options.policy);
        assert!(optimal.0 * 100 <= uniform.0 * most_pages, "{what}");
        assert!(optimal.1 * 100 <= uniform.1 * most_bytes, "{what}");
    }
}

#[test]
fn every_variant_is_a_map_with_snapshots_across_restarts() {
    const KEYS: u64 = 500;
    // From this seed on each variant fits its device, and shows what is counted below.
    for (seed, options) in (396..).zip(variants()) {
        let images = Images::new();
        let block_count = geometry(&options).block_count + 2;
        let mut device = images.create_on(Geometry { block_count, ..TINY }, &options);
        let mut random = Random::new(seed);
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
        // A delayed compaction makes one virtual table where rLSM makes several. Under tiering, few
        // of the runs that sink together have at most TH strata.
        let are_few = options.form == Form::Delay || options.policy == "tiering";
        let least = if are_few { 5 } else { 20 };
        assert_eq!(remapped > least, options.threshold > 0, "{options:?}: {remapped} remapped");
        assert!(collections > 10, "{options:?}: {collections} collections");
    }
}

/// Under tiering a level has several runs, and less is written.
#[test]
fn tiering_keeps_runs_and_writes_less() {
    let written = |options: &KvSsdOptions| {
        let images = Images::new();
        let geometry = Geometry { block_count: 160, ..TINY };
        let mut device = images.create_on(geometry, options);
        let (mut state, mut random, mut most_runs) = (State::new(), Random::new(9), 0);
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

/// A device that kept runs is opened by a policy that keeps none, and the other way round. The
/// order of the tables is kept.
#[test]
fn the_policy_can_change_when_a_device_is_opened() {
    let images = Images::new();
    let (mut state, mut random) = (State::new(), Random::new(4));
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

/// Each opening may name another partitioner. Existing tables stay and read the same.
#[test]
fn the_cutting_can_change_when_a_device_is_opened() {
    let images = Images::new();
    let (mut state, mut random) = (State::new(), Random::new(3));
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

/// Garnering removes the last level when the tree is too small for the number of its levels. Once,
/// the tables that rose from it were stacked above the tables there, although they are older, and
/// gets returned old values.
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
        let (mut random, mut state) = (Random::new(seed), State::new());
        let mut most_levels = 0;
        for at in 0..4000 {
            if at == 2000 {
                // Opens the same tree with options under which fewer levels have the same capacity.
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
