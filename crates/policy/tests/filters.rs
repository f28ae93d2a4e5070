//! Filter memory of whole trees: the population that is planned for each level, stale filters, and
//! a budget that is never exceeded. The formula itself is tested in its own module.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use runstone_policy::filters::{FilterAllocation, millibits_per_key, optimal};
use runstone_policy::policy::LevelTarget;
use runstone_policy::shape::{Edit, RunSlot, Shape, Table};
use support::{placing, table};

const UNBOUNDED: LevelTarget = LevelTarget::UNBOUNDED;

fn target(capacity_bytes: u64, max_runs: u32) -> LevelTarget {
    UNBOUNDED.capacity_bytes(capacity_bytes).max_runs(max_runs)
}

fn grown(edits: &[Edit]) -> Shape {
    edits.iter().fold(Shape::default(), |shape, edit| shape.apply(edit).unwrap())
}

/// A table of this many bytes, 100 per entry, with a filter.
fn filtered(id: u64, keys: (&str, &str), bytes: u64, filter_bits: u64) -> Arc<Table> {
    let plain = table(id, keys, (1, 1), bytes);
    Arc::new(Table { filter_bits, ..(*plain).clone() })
}

fn whole(level: u32, id: u64, bytes: u64, filter_bits: u64) -> Edit {
    placing(level, RunSlot::New(id), &[filtered(id, ("a", "z"), bytes, filter_bits)])
}

fn planned(shape: &Shape, targets: &[LevelTarget], output_level: u32) -> u32 {
    millibits_per_key(shape, targets, FilterAllocation::Optimal, 100, output_level)
}

/// Two runs differ by ln 10 / ln^2 2 = 4.792 bits per key if one is ten times as large as the
/// other.
fn is_tenfold(millibits: u32) -> bool {
    (4_791..=4_793).contains(&millibits)
}

#[test]
fn names_in_options() {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};
    let parse = |name: &'static str| {
        let text: StrDeserializer<Error> = name.into_deserializer();
        <FilterAllocation as serde::Deserialize>::deserialize(text)
    };
    assert_eq!(parse("none"), Ok(FilterAllocation::None));
    assert_eq!(parse("uniform"), Ok(FilterAllocation::Uniform));
    assert_eq!(parse("optimal"), Ok(FilterAllocation::Optimal));
    assert_eq!(FilterAllocation::default(), FilterAllocation::Uniform);
}

#[test]
fn none_and_uniform_do_not_look_at_the_tree() {
    let shape = grown(&[whole(1, 1, 1000, 0), whole(2, 2, 1_000_000, 0)]);
    for level in 0..4 {
        assert_eq!(millibits_per_key(&shape, &[], FilterAllocation::None, 100, level), 0);
        assert_eq!(millibits_per_key(&shape, &[], FilterAllocation::Uniform, 105, level), 10_500);
    }
    // An empty tree gives no information for a plan.
    assert_eq!(planned(&Shape::default(), &[UNBOUNDED; 2], 0), 10_000);
}

#[test]
fn ten_times_the_keys_are_ten_times_the_errors() {
    let shape = grown(&[whole(1, 1, 100_000, 0), whole(2, 2, 1_000_000, 0)]);
    let targets = [UNBOUNDED; 3];
    let (small, large) = (planned(&shape, &targets, 1), planned(&shape, &targets, 2));
    assert!(is_tenfold(small - large), "{small} {large}");
    // The mean over all 11 parts is 10.
    assert!((9_999..=10_000).contains(&((small + 10 * large) / 11)));
}

#[test]
fn a_level_counts_with_half_of_its_capacity_at_least() {
    let shape = grown(&[whole(1, 1, 100_000, 0), whole(2, 2, 100_000, 0)]);
    let even = [UNBOUNDED, UNBOUNDED, target(200_000, 1)];
    assert_eq!(planned(&shape, &even, 1), planned(&shape, &even, 2));
    let uneven = [UNBOUNDED, UNBOUNDED, target(2_000_000, 1)];
    assert!(is_tenfold(planned(&shape, &uneven, 1) - planned(&shape, &uneven, 2)));
    // A deeper level counts once it is written to.
    let deep = [UNBOUNDED, UNBOUNDED, UNBOUNDED, target(20_000_000, 1)];
    assert_eq!(planned(&shape, &deep, 2), 10_000);
    assert!(planned(&shape, &deep, 3) < 10_000);
}

#[test]
fn several_runs_are_smaller_runs() {
    let one = grown(&[whole(1, 1, 100_000, 0), whole(2, 2, 100_000, 0)]);
    let ten = |level| (10..20).map(move |id| whole(level, id, 10_000, 0));
    let many = grown(&ten(1).chain([whole(2, 2, 100_000, 0)]).collect::<Vec<_>>());
    let targets = [UNBOUNDED; 3];
    assert_eq!(planned(&one, &targets, 1), 10_000);
    assert!(is_tenfold(planned(&many, &targets, 1) - planned(&many, &targets, 2)));
    // The same holds for a level that may have ten runs once it is as full as planned.
    let allowed = [UNBOUNDED, target(1_000_000, 10), target(1_000_000, 1)];
    assert!(is_tenfold(planned(&one, &allowed, 1) - planned(&one, &allowed, 2)));
    // It also holds for tables of which ten overlap at one key; disjoint ones do not count.
    let tables: Vec<_> = (10..20).map(|id| filtered(id, ("b", "c"), 9_000, 0)).collect();
    let beside = filtered(30, ("d", "e"), 10_000, 0);
    let edits = [
        placing(1, RunSlot::Overlapping, &tables),
        placing(1, RunSlot::Overlapping, &[beside]),
        whole(2, 2, 100_000, 0),
    ];
    let overlapping = grown(&edits);
    assert!(is_tenfold(planned(&overlapping, &targets, 1) - planned(&overlapping, &targets, 2)));
}

#[test]
fn the_first_run_of_a_level_without_capacity() {
    let shape = grown(&[whole(2, 1, 100_000, 0), whole(3, 2, 1_000_000, 0)]);
    let targets = [UNBOUNDED; 6];
    // A run above others gets as many bits as the smallest run below. A run below all others will
    // contain what they contain.
    let plan = optimal(&shape, &targets, 100, 0).millibits_per_key;
    assert_eq!(plan[0], plan[2]);
    assert_eq!(plan[1], 0, "empty and not written to");
    let deepest = planned(&shape, &targets, 4);
    assert!(deepest > 0 && deepest < optimal(&shape, &targets, 100, 4).millibits_per_key[3]);
}

/// Filters of small tables are up to a block larger than planned. All of them once counted as
/// stale, and used so much of the budget that the smallest levels got no filter.
#[test]
fn filters_that_are_rounded_up_to_blocks_are_not_stale() {
    let targets = [UNBOUNDED; 3];
    let sizes = [(1, 5_000), (2, 90_000)];
    let tree = |millibits: &[u32]| {
        let bits = |(level, bytes): (u32, u64)| {
            let planned = bytes / 100 * u64::from(millibits[level as usize]) / 1000;
            planned.next_multiple_of(512)
        };
        grown(&sizes.map(|(level, bytes)| whole(level, level.into(), bytes, bits((level, bytes)))))
    };
    let plan = optimal(&tree(&[0; 3]), &targets, 20, 2);
    let again = optimal(&tree(&plan.millibits_per_key), &targets, 20, 2);
    assert_eq!((again.stale_bits, again.millibits_per_key), (0, plan.millibits_per_key));
}

#[test]
fn stale_filters_are_taken_off_the_budget() {
    let targets = [UNBOUNDED; 3];
    // 1,000 keys have 30 bits each, where the plan gives about 10. Of the budget of 20,000 bits,
    // nothing is left for the other 1,000 keys.
    let full = grown(&[whole(1, 1, 100_000, 30_000), whole(2, 2, 100_000, 0)]);
    assert_eq!(planned(&full, &targets, 2), 0);
    let some = grown(&[whole(1, 1, 100_000, 15_000), whole(2, 2, 100_000, 0)]);
    assert_eq!(planned(&some, &targets, 2), 5_000);
    // As planned, or rounded up a little: not stale.
    for bits in [10_000, 10_600] {
        let shape = grown(&[whole(1, 1, 100_000, bits), whole(2, 2, 100_000, bits)]);
        assert_eq!(planned(&shape, &targets, 2), 10_000);
        assert_eq!(optimal(&shape, &targets, 100, 2).stale_bits, 0);
    }
}

/// Per level, runs of (bytes, filter bits per key).
fn trees() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
    let run = (100u64..1_000_000, prop_oneof![Just(0u64), 0u64..40]);
    prop::collection::vec(prop::collection::vec(run, 0..4), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_is_never_exceeded(
        tree in trees(),
        capacities in prop::collection::vec(prop_oneof![Just(u64::MAX), 1000u64..10_000_000], 7),
        budget_tenths in 0u32..200,
        output_level in 0u32..7,
    ) {
        let mut edits = Vec::new();
        for (level, runs) in (0u32..).zip(&tree) {
            for (bytes, bits) in runs {
                edits.push(whole(level, edits.len() as u64 + 1, *bytes, bytes / 100 * bits));
            }
        }
        let shape = grown(&edits);
        let targets: Vec<_> = capacities.iter().map(|bytes| target(*bytes, 3)).collect();
        let plan = optimal(&shape, &targets, budget_tenths, output_level);
        let used = plan.planned_bits + plan.stale_bits;
        prop_assert!(used <= plan.budget_bits.max(plan.stale_bits) + 1, "{plan:?}");
        let bits = &plan.millibits_per_key;
        prop_assert!(bits.iter().all(|bits| *bits == 0 || *bits >= 699), "{bits:?}");
        let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
        prop_assert!(plan.budget_bits + 1 >= entries * u64::from(budget_tenths) / 10);
        // If nothing is stale and there is something to plan for, the budget is spent.
        if plan.stale_bits == 0 && bits.iter().any(|bits| *bits > 0) {
            let rounding = plan.budget_bits / 500 + 2;
            prop_assert!(plan.planned_bits + rounding >= plan.budget_bits, "{plan:?}");
        }
    }
}
