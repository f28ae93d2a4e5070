//! Plans that are installed part by part: for each key, every tree in between is either the tree
//! before the plan or the tree after it, and the last tree is the one that a single edit makes. Not
//! here: how the engine installs plans in parts.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use runstone_policy::edit::edit_for;
use runstone_policy::parts::{can_be_parted, part_edit};
use runstone_policy::plan::{Busy, Compaction, CompactionInput, Cut, Move, Plan};
use runstone_policy::shape::{Edit, EditError, Placement, RunSlot, Shape, Table, TableId};
use support::table;

/// A table over keys of one byte.
fn over(id: TableId, from: u8, to: u8) -> Arc<Table> {
    let plain = table(id, ("", ""), (id, id), 10);
    let (min_key, max_key) = (Box::from([from]), Box::from([to]));
    Arc::new(Table { min_key, max_key, ..(*plain).clone() })
}

/// Makes level-0 runs, oldest first. The tables of each run end at these keys and leave no gap.
fn stack_of(runs: &[BTreeSet<u8>]) -> Shape {
    let mut shape = Shape::default();
    let mut id = 0;
    for (run, ends) in (1..).zip(runs) {
        let mut from = 0;
        let mut place = Vec::new();
        for end in ends {
            id += 1;
            let slot = RunSlot::New(run);
            place.push(Placement { level: 0, slot, table: over(id, from, *end) });
            from = end + 1;
        }
        shape = shape.apply(&Edit { place, flushes: 1, ..Edit::default() }).unwrap();
    }
    shape
}

/// Compacts all runs except the oldest and the newest into one.
fn middle_compaction(shape: &Shape) -> Plan {
    let runs = shape.level(0).runs();
    let inputs = runs[1..runs.len() - 1]
        .iter()
        .map(|run| CompactionInput::new(0, run.tables.iter().map(|table| table.id)));
    let compaction = Compaction::new(inputs, (0, RunSlot::New(runs[1].id)), Cut::Size(10));
    let mut plan = Plan::new("").compact(compaction);
    plan.cursors = vec![(0, (*b"c").into())];
    plan
}

/// Ids of the tables that show a key, newest first.
fn showing(shape: &Shape, key: u8) -> Vec<TableId> {
    let meets = shape.tables().filter(|(_, table)| table.overlaps(&[key], &[key]));
    meets.map(|(_, table)| table.id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_key_is_in_the_tree_before_or_after(
        runs in prop::collection::vec(prop::collection::btree_set(0u8..60, 1..6), 4..7),
        bounds in prop::collection::btree_set(1u8..60, 1..8),
        lost in 0usize..9,
    ) {
        let before = stack_of(&runs);
        let plan = middle_compaction(&before);
        prop_assert!(can_be_parted(&before, &plan));
        let inputs: BTreeSet<TableId> = plan.table_ids().collect();
        let inputs = before.tables().filter(|(_, table)| inputs.contains(&table.id));
        let last = inputs.map(|(_, table)| table.max_key[0]).max().unwrap();
        let mut bounds: Vec<u8> = bounds.into_iter().filter(|bound| *bound <= last).collect();
        bounds.push(last + 1);
        let starts = [0].into_iter().chain(bounds.iter().copied());
        // One part has no output. It is never the first part, because the engine waits for an
        // output before it installs the first part.
        let part = |(at, (from, to)): (usize, (u8, &u8))| {
            (at == 0 || at != lost).then(|| over(100 + at as u64, from, to - 1))
        };
        let outputs: Vec<Option<Arc<Table>>> = starts.zip(&bounds).enumerate().map(part).collect();
        let all: Vec<Arc<Table>> = outputs.iter().flatten().cloned().collect();
        let after = before.apply(&edit_for(&before, &plan, &[all])).unwrap();
        let (mut shape, mut rest) = (before.clone(), plan.clone());
        for (at, (bound, output)) in bounds.iter().zip(&outputs).enumerate() {
            let is_last = at + 1 == bounds.len();
            let key = [*bound];
            let upto = (!is_last).then_some(&key[..]);
            let placed: Vec<Arc<Table>> = output.iter().cloned().collect();
            let edit = part_edit(&shape, &rest, &placed, &BTreeSet::new(), upto);
            shape = shape.apply(&edit).unwrap();
            for key in 0..=last {
                let of = if key < *bound { &after } else { &before };
                prop_assert_eq!(showing(&shape, key), showing(of, key), "key {} at {}", key, bound);
            }
            if let Some(pending) = edit.pending {
                prop_assert_eq!(shape.pending.as_ref(), Some(&pending));
                let ids: Vec<TableId> = pending.table_ids().collect();
                prop_assert!(ids.iter().all(|id| shape.tables().any(|(_, t)| t.id == *id)));
                prop_assert!(shape.trims.keys().all(|id| ids.contains(id)));
                // The run that the parts join keeps its place in the stack.
                let busy = Busy::of(&shape, []);
                let run = shape.level(0).runs().iter().find(|run| run.id == plan_run(&plan));
                prop_assert!(run.unwrap().tables.iter().all(|t| busy.tables.contains(&t.id)));
                rest = (*pending).clone();
            }
        }
        prop_assert_eq!(shape, after);
    }
}

fn plan_run(plan: &Plan) -> u64 {
    plan.compactions[0].slot.run().unwrap()
}

#[test]
fn steps_that_share_keys_are_installed_at_once() {
    let shape = stack_of(&[[9, 19].into(), [19].into(), [9, 19].into(), [19].into()]);
    let plan = middle_compaction(&shape);
    assert!(can_be_parted(&shape, &plan));
    let with = |change: fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        plan
    };
    let step = || Move::new(1, (0, 1), RunSlot::New(9));
    assert!(!can_be_parted(&shape, &plan.clone().move_table(step())));
    assert!(!can_be_parted(&shape, &with(|plan| plan.relabel = vec![(1, 2)])));
    assert!(!can_be_parted(&shape, &with(|plan| plan.last_level = Some(3))));
    let mut overlapping = plan.clone();
    overlapping.compactions[0].slot = RunSlot::Overlapping;
    assert!(!can_be_parted(&shape, &overlapping));
}

/// Any other use of a table of a pending plan ends the plan; a flush does not.
#[test]
fn a_pending_plan_ends_when_its_tables_are_taken() {
    let shape = stack_of(&[[19].into(), [19].into(), [19].into(), [19].into()]);
    let plan = middle_compaction(&shape);
    let part = part_edit(&shape, &plan, &[over(90, 0, 4)], &BTreeSet::new(), Some(&[5]));
    let shape = shape.apply(&part).unwrap();
    assert_eq!(shape.trims.len(), 2);
    let slot = RunSlot::New(50);
    let flush = Placement { level: 0, slot, table: over(50, 0, 19) };
    let shape = shape.apply(&Edit { place: vec![flush], ..Edit::default() }).unwrap();
    assert!(shape.pending.is_some());
    let taken: Vec<TableId> = plan.table_ids().collect();
    let shape = shape.apply(&Edit { remove: taken, ..Edit::default() }).unwrap();
    assert!(shape.pending.is_none() && shape.trims.is_empty());
}

#[test]
fn a_table_is_trimmed_inside_of_what_it_shows() {
    let shape = stack_of(&[[9, 19].into()]);
    let trim =
        |id, key: u8| shape.apply(&Edit { trim: vec![(id, Box::from([key]))], ..Edit::default() });
    assert_eq!(trim(2, 20), Err(EditError::Trim(2)), "nothing would be left");
    assert_eq!(trim(2, 9), Err(EditError::Trim(2)), "keys do not come back");
    assert_eq!(trim(7, 15), Err(EditError::Trim(7)));
    let shape = trim(2, 15).unwrap();
    assert_eq!(*shape.trims[&2], [10]);
    assert_eq!((showing(&shape, 14), showing(&shape, 15)), (vec![], vec![2]));
    let moved = Arc::clone(&shape.level(0).runs()[0].tables[1]);
    let place = vec![Placement { level: 3, slot: RunSlot::New(9), table: moved }];
    let shape = shape.apply(&Edit { remove: vec![2], place, ..Edit::default() }).unwrap();
    assert_eq!(*shape.trims[&2], [10], "a trimmed table that moves stays trimmed");
}
