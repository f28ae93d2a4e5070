//! Tests which tables a plan owns, and which ranges it writes, while it runs. Not how plans are
//! made.

mod support;

use runstone_policy::edit::edit_for;
use runstone_policy::plan::{Busy, Plan};
use runstone_policy::shape::{RunSlot, Shape};
use support::{placing, table};

/// Two tables in level 2, one in level 1.
fn shape() -> Shape {
    let upper = placing(1, RunSlot::New(1), &[table(1, ("a", "z"), (5, 6), 100)]);
    let tables = [table(2, ("c", "f"), (1, 2), 100), table(3, ("m", "p"), (3, 4), 100)];
    let lower = placing(2, RunSlot::New(2), &tables);
    Shape::default().apply(&upper).unwrap().apply(&lower).unwrap()
}

#[test]
fn a_relabelled_level_is_owned_whole_and_written_below() {
    let mut plan = Plan::default();
    plan.relabel = vec![(2, 3)];
    let busy = Busy::of(&shape(), [&plan]);
    assert_eq!(busy.tables.iter().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(busy.writes_into(3) && !busy.writes_into(2) && !busy.writes_into(1));
    assert!(busy.writes(3, b"g", b"h"), "between its tables too");
    assert!(!busy.writes(3, b"q", b"z"));
    // After the plan is installed, a claim that still exists owns nothing, because level 2 is
    // empty.
    let next = shape().apply(&edit_for(&shape(), &plan, &[])).unwrap();
    assert_eq!(next.deepest(), Some(3));
    assert_eq!(Busy::of(&next, [&plan]), Busy::default());
}

#[test]
fn a_plan_that_only_stores_the_last_level_owns_nothing_and_fits() {
    let mut plan = Plan::default();
    plan.last_level = Some(4);
    assert_eq!(Busy::of(&shape(), [&plan]), Busy::default());
    // Two workers may pick the same plan. Applying it twice gives the same as once.
    let once = shape().apply(&edit_for(&shape(), &plan, &[])).unwrap();
    let twice = once.apply(&edit_for(&once, &plan, &[])).unwrap();
    assert_eq!((once.state.last_level, &once), (4, &twice));
}
