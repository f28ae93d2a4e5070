//! Garnering in the simulator: how many levels it makes, and that it equals fragmented leveling
//! for c = 1. Its capacities are tested next to the policy.

use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::plan::{Busy, Heat};
use runstone_policy::policies::garnering::last_level;
use runstone_policy::registry::find;
use runstone_policy::units::Thousandths;
use runstone_simulator::{KeyOrder, SimReport, SimWorkload, Simulator};

/// B: the size of level 0 when it is due.
const BUFFER_BYTES: u64 = 1 << 20;

fn options(size_ratio: u32, c_permille: u32) -> PolicyOptions {
    Numbers {
        size_ratio,
        c: Thousandths::of_parts(c_permille),
        l0_trigger: 4,
        base_bytes: BUFFER_BYTES * u64::from(size_ratio),
        table_bytes: BUFFER_BYTES / 4,
        ..Numbers::default()
    }
    .into_options()
}

fn simulator(policy: &str, options: &PolicyOptions, key_space: u64) -> Simulator<'static> {
    let flush_bytes = BUFFER_BYTES / 4;
    let order = KeyOrder::Uniform;
    let workload =
        SimWorkload { flush_bytes, entry_bytes: 128, key_space, order, seed: 3, prefix_count: 1 };
    Simulator::new(find(policy).unwrap(), options.clone(), workload)
}

#[test]
fn the_policy_makes_that_many_levels() {
    for (c, levels) in [(1000, 5), (800, 4), (400, 3)] {
        let mut simulator = simulator("garnering", &options(5, c), 1 << 60);
        simulator.run(1280 * 4).unwrap();
        assert_eq!(last_level(simulator.shape()), levels, "c = {c}");
    }
}

/// Compares pick by pick: a plan of Garnering equals that of fragmented leveling, or only stores
/// the last level.
#[test]
fn without_widening_it_is_fragmented_leveling() {
    for key_space in [1 << 60, 100_000] {
        let options = options(4, 1000);
        let garnering = find("garnering").unwrap();
        let mut leveled = simulator("fragmented-leveling", &options, key_space);
        let mut garnered = simulator("garnering", &options, key_space);
        for _ in 0..500 {
            let (expected, actual) = (leveled.run(1).unwrap(), garnered.run(1).unwrap());
            assert_eq!(leveled.shape().levels, garnered.shape().levels);
            assert_eq!(leveled.shape().state.cursors, garnered.shape().state.cursors);
            // L is 1 before it is stored.
            let stored = u64::from(garnered.shape().state.last_level.saturating_sub(1));
            assert_eq!(actual.plan_count, expected.plan_count + stored);
            assert_eq!(actual.compacted_bytes, expected.compacted_bytes);
        }
        let (busy, heat) = (Busy::default(), Heat::default());
        assert_eq!(garnering.pick(garnered.shape(), &busy, &heat, &options), None);
        assert!(garnered.shape().deepest() >= Some(2));
    }
}

/// From c = 0.5 to leveling and back: levels deepen while the debt drains, and shrink again.
#[test]
fn capacities_may_change_at_run_time() {
    let mut tree = simulator("garnering", &options(3, 500), 1 << 60);
    let wide = tree.run(600).unwrap();
    let last = last_level(tree.shape());
    tree.set_options(options(3, 1000));
    let narrow = tree.run(1).unwrap();
    assert!(last_level(tree.shape()) > last, "leveling needs more levels for the same data");
    let within = |report: &SimReport| {
        report.levels.iter().skip(1).all(|level| level.bytes <= level.capacity_bytes)
    };
    assert!(within(&wide) && within(&narrow));
    tree.set_options(options(3, 300));
    assert!(within(&tree.run(1).unwrap()));
    assert!(last_level(tree.shape()) <= last, "and fewer if they are wider");
}
