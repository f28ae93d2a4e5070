//! Garnering against the figures of its paper, and against fragmented leveling, which it is for c =
//! 1. Its rules one by one are text tests.

use runstone_policy::options::PolicyOptions;
use runstone_policy::plan::{Busy, Heat};
use runstone_policy::policies::garnering::{capacities_bytes, last_level};
use runstone_policy::registry::find;
use runstone_policy::simulator::{KeyOrder, SimReport, SimWorkload, Simulator};

/// B: what level 0 holds when it is due.
const BUFFER_BYTES: u64 = 1 << 20;

fn options(size_ratio: u32, c_permille: u32) -> PolicyOptions {
    PolicyOptions {
        size_ratio,
        c_permille,
        l0_trigger: 4,
        base_bytes: BUFFER_BYTES * u64::from(size_ratio),
        table_bytes: BUFFER_BYTES / 4,
        ..PolicyOptions::default()
    }
}

/// The least L whose levels hold `buffers` times B together.
fn levels_for(buffers: u64, options: &PolicyOptions) -> u32 {
    let holds = |last: &u32| {
        let levels = capacities_bytes(*last, options).into_iter().skip(1);
        levels.map(u128::from).sum::<u128>() >= u128::from(buffers * BUFFER_BYTES)
    };
    (1..64).find(holds).unwrap()
}

fn simulator(policy: &str, options: &PolicyOptions, key_space: u64) -> Simulator<'static> {
    let flush_bytes = BUFFER_BYTES / 4;
    let order = KeyOrder::Uniform;
    let workload =
        SimWorkload { flush_bytes, entry_bytes: 128, key_space, order, seed: 3, prefix_count: 1 };
    Simulator::new(find(policy).unwrap(), options.clone(), workload)
}

#[test]
fn level_one_holds_a_500th_of_the_data() {
    let capacities = capacities_bytes(6, &options(2, 800));
    let total: u64 = capacities[1..].iter().sum();
    let millionths = u128::from(capacities[1]) * 1_000_000 / u128::from(total);
    assert_eq!(millionths, 1_881, "the paper says 0.188 %");
}

#[test]
fn levels_of_the_paper() {
    let count = |buffers, size_ratio, c| levels_for(buffers, &options(size_ratio, c));
    assert_eq!([1000, 800, 400].map(|c| count(1280, 5, c)), [5, 4, 3]);
    assert_eq!([64, 1 << 20].map(|n| count(n, 2, 1000)), [6, 20]);
    assert_eq!([64, 1 << 20].map(|n| count(n, 2, 800)), [4, 9]);
}

#[test]
fn the_policy_makes_that_many_levels() {
    for (c, levels) in [(1000, 5), (800, 4), (400, 3)] {
        let mut simulator = simulator("garnering", &options(5, c), 1 << 60);
        simulator.run(1280 * 4).unwrap();
        assert_eq!(last_level(simulator.shape()), levels, "c = {c}");
    }
}

#[test]
fn capacities_follow_the_closed_form() {
    for (size_ratio, c_permille) in [(2, 800), (5, 400), (10, 990), (3, 1)] {
        let options = options(size_ratio, c_permille);
        for last in 1..=12u32 {
            for (level, bytes) in (1..=last).zip(&capacities_bytes(last, &options)[1..]) {
                let exponent = f64::from((2 * last - 1 - level) * level) / 2.0;
                let narrow = (f64::from(c_permille) / 1000.0).powf(exponent);
                let powers = f64::from(size_ratio).powi(level as i32) / narrow;
                let exact = (powers * BUFFER_BYTES as f64).min(u64::MAX as f64);
                let error = (*bytes as f64 - exact).abs() / exact;
                assert!(error < 1e-6, "T={size_ratio} c={c_permille} C_{level}({last}) = {bytes}");
            }
        }
    }
}

#[test]
fn without_widening_the_capacities_are_those_of_leveling() {
    let options = options(7, 1000);
    let capacities = capacities_bytes(40, &options);
    for (level, bytes) in (1u32..=40).zip(&capacities[1..]) {
        assert_eq!(*bytes, 7u64.saturating_pow(level - 1).saturating_mul(options.base_bytes));
    }
}

/// Pick by pick: a plan of Garnering is that of fragmented leveling, or only stores the last level.
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
