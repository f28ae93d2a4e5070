//! Power cuts at every program and erase, and programs and erases that fail.

use std::collections::BTreeSet;

use crate::support::{Random, State, Step, apply, model, scanned};
use crate::tiny::{
    Images, apart, appended, combined, cut_workload, delayed, expect, reused, run, step, tiered,
    tiny,
};
use runstone_flash::Error;
use runstone_flash::kvssd::{
    Direction, Durability, KvSsdOptions, Partitioner, Placement, ValuePlacement,
};
use runstone_flash::nand::FaultPlan;

/// Cuts the power during every program and erase of the last part of a workload, each time with
/// another seed. After reopening, the device has the acknowledged writes and nothing else, and it
/// continues to work. A second cut follows soon after.
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
            // The second cut may be past the end of the workload.
            let is_over = error.is_none() && cut_at != at;
            assert!(is_over || matches!(error, Some(Error::PowerCut)), "cut {at}: {error:?}");
            cuts.insert(device.nand().mutation_count());
            if options.durability == Durability::Log {
                // The last group was not synced. The cut decides whether that group, and the step
                // during which the power was cut, are there.
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

/// With the log, the device must be in the state after one of the last steps.
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
    let mut random = Random::new(9);
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
