//! `Shape::apply`: which edits fit, where tables are placed, and which edits are refused. Not
//! policies.

mod support;

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;

use proptest::prelude::*;
use runstone_policy::drop_guard::RangeGuard;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::replay::Replay;
use runstone_policy::shape::{Edit, EditError, Level, Placement, RunSlot, Shape, Table};
use runstone_random::Random;
use support::{placing, table};

fn run_ids(shape: &Shape, level: u32) -> Vec<u64> {
    shape.level(level).runs().iter().map(|run| run.id).collect()
}

/// The shape after all edits, each of which must fit.
fn grown(edits: &[Edit]) -> Shape {
    edits.iter().fold(Shape::default(), |shape, edit| shape.apply(edit).unwrap())
}

#[test]
fn a_new_run_is_the_newest() {
    let shape = grown(&[
        placing(0, RunSlot::New(1), &[table(1, ("a", "z"), (1, 2), 100)]),
        placing(0, RunSlot::New(2), &[table(2, ("a", "z"), (3, 4), 100)]),
    ]);
    assert_eq!(run_ids(&shape, 0), [2, 1]);
}

#[test]
fn a_run_takes_the_slot_of_the_newest_run_it_replaces() {
    let edits: Vec<Edit> = (1..=4)
        .map(|id| placing(0, RunSlot::New(id), &[table(id, ("a", "z"), (id, id), 100)]))
        .collect();
    let shape = grown(&edits);
    let mut edit = placing(0, RunSlot::New(9), &[table(9, ("a", "z"), (2, 3), 200)]);
    edit.remove = vec![2, 3];
    assert_eq!(run_ids(&shape.apply(&edit).unwrap(), 0), [4, 9, 1]);
    // The same edit under the id of the newest input, whose run the edit empties.
    edit.place[0].slot = RunSlot::Join(3);
    assert_eq!(run_ids(&shape.apply(&edit).unwrap(), 0), [4, 3, 1]);
}

#[test]
fn empty_levels_at_the_end_vanish_and_in_the_middle_stay() {
    let shape = grown(&[
        placing(1, RunSlot::New(1), &[table(1, ("a", "b"), (1, 1), 100)]),
        placing(3, RunSlot::New(3), &[table(2, ("a", "b"), (1, 1), 100)]),
    ]);
    assert_eq!((shape.levels.len(), shape.deepest()), (4, Some(3)));
    let shape = shape.apply(&Edit { remove: vec![2], ..Edit::default() }).unwrap();
    assert_eq!((shape.levels.len(), shape.deepest(), shape.bytes()), (2, Some(1), 100));
    let shape = shape.apply(&Edit { remove: vec![1], ..Edit::default() }).unwrap();
    assert_eq!(shape, Shape::default());
}

#[test]
fn refusals() {
    let shape = grown(&[
        placing(1, RunSlot::New(1), &[table(1, ("c", "f"), (1, 1), 100)]),
        placing(2, RunSlot::Overlapping, &[table(2, ("c", "f"), (1, 1), 100)]),
    ]);
    let error = |edit: &Edit| shape.apply(edit).unwrap_err();
    let place = |level, slot, id, keys| placing(level, slot, &[table(id, keys, (1, 1), 9)]);
    let overlap = EditError::Overlap { level: 1, run: 1, table: 3, other: 1 };
    for keys in [("a", "c"), ("f", "g"), ("d", "e"), ("a", "z")] {
        assert_eq!(error(&place(1, RunSlot::Join(1), 3, keys)), overlap);
    }
    assert!(shape.apply(&place(1, RunSlot::Join(1), 3, ("a", "b"))).is_ok());
    assert_eq!(
        error(&place(1, RunSlot::Join(7), 3, ("a", "b"))),
        EditError::NoRun { level: 1, run: 7 }
    );
    assert_eq!(error(&place(4, RunSlot::New(1), 2, ("a", "b"))), EditError::Duplicate(2));
    assert_eq!(error(&place(1, RunSlot::New(1), 3, ("b", "a"))), EditError::Inverted(3));
    assert_eq!(error(&place(2, RunSlot::New(1), 3, ("a", "b"))), EditError::Layout { level: 2 });
    assert_eq!(
        error(&place(1, RunSlot::Overlapping, 3, ("a", "b"))),
        EditError::Layout { level: 1 }
    );
    assert_eq!(
        error(&place(Shape::MAX_LEVELS, RunSlot::New(1), 3, ("a", "b"))),
        EditError::TooDeep(Shape::MAX_LEVELS)
    );
    assert_eq!(error(&Edit { remove: vec![1, 5], ..Edit::default() }), EditError::Missing(5));
}

#[test]
fn overlapping_levels_sort_by_key_and_become_runs_when_emptied() {
    let tables = [
        table(5, ("b", "z"), (1, 1), 100),
        table(4, ("b", "c"), (1, 1), 100),
        table(6, ("a", "z"), (1, 1), 100),
    ];
    let shape = grown(&[placing(1, RunSlot::Overlapping, &tables)]);
    let ids: Vec<u64> = shape.level(1).tables().map(|table| table.id).collect();
    assert_eq!(ids, [6, 4, 5]);
    assert!(matches!(shape.level(1), Level::Overlapping(_)));
    let mut edit = placing(1, RunSlot::New(1), &[table(7, ("a", "z"), (1, 1), 300)]);
    edit.remove = vec![4, 5, 6];
    assert_eq!(run_ids(&shape.apply(&edit).unwrap(), 1), [1]);
}

#[test]
fn state_is_stored() {
    let edit = Edit {
        cursors: vec![(1, Box::from(*b"k"))],
        last_level: Some(3),
        flushes: 2,
        ..Edit::default()
    };
    let state = Shape::default().apply(&edit).unwrap().apply(&edit).unwrap().state;
    assert_eq!((state.last_level, state.flush_count), (3, 4));
    assert_eq!(state.cursors.get(&1).map(|key| &**key), Some(&b"k"[..]));
}

proptest! {
    /// The guard of range tombstones gives the same answers as a search through all tables.
    #[test]
    fn range_tombstones_stay_while_a_table_outside_holds_what_they_delete(
        tables in prop::collection::vec((0..20u8, 0..6u8, 1..40u64, any::<bool>()), 0..12),
        ranges in prop::collection::vec((0..22u8, prop::option::of(1..6u8), 1..40u64), 1..12),
    ) {
        let name = |key: u8| ((b'a' + key) as char).to_string();
        let mut shape = Shape::default();
        let mut rewritten = BTreeSet::new();
        for (id, (min, wide, seq, is_rewritten)) in (1..).zip(&tables) {
            let (min_key, max_key) = (name(*min), name(min + wide));
            let keys = (min_key.as_str(), max_key.as_str());
            let new = table(id, keys, (*seq, *seq), 9);
            shape = shape.apply(&placing(0, RunSlot::New(id), &[new])).unwrap();
            rewritten.extend(is_rewritten.then_some(id));
        }
        let guard = RangeGuard::new(&shape, &rewritten);
        for (start, wide, seq) in ranges {
            let (start_key, end) = (name(start), wide.map(|wide| name(start + wide)));
            let outside = shape.tables().filter(|(_, table)| !rewritten.contains(&table.id));
            let holds = outside.map(|(_, table)| table).any(|table| {
                table.min_seq < seq
                    && *table.max_key >= *start_key.as_bytes()
                    && end.as_ref().is_none_or(|end| *table.min_key < *end.as_bytes())
            });
            let range = RangeDelete {
                start: start_key.as_bytes().into(),
                end: end.map(|end| end.as_bytes().into()),
                seq,
            };
            prop_assert_eq!(guard.allows(&range), !holds);
        }
    }
}

/// An edit that may fit the shape or not. Tables may overlap in level 2.
fn any_edit(shape: &Shape, random: &mut Random, next_id: &mut u64) -> Edit {
    let known: Vec<Arc<Table>> = shape.tables().map(|(_, table)| Arc::clone(table)).collect();
    let mut edit = Edit { flushes: random.below(2), ..Edit::default() };
    for _ in 0..random.below(5).min(known.len() as u64) {
        let table = &known[random.below(known.len() as u64) as usize];
        match random.below(20) {
            0 => edit.remove.push(*next_id + 7),
            1..5 => {
                edit.trim.push((table.id, format!("{:04}", random.below(400)).as_bytes().into()))
            }
            _ => edit.remove.push(table.id),
        }
    }
    if random.one_in(20) {
        edit.relabel.push((random.below(4) as u32, random.below(6) as u32));
    }
    let (level, run) = (random.below(4) as u32, 1 + random.below(3));
    let slot = match (level, random.below(8)) {
        (2, 1..) => RunSlot::Overlapping,
        (_, 0) => RunSlot::Join(run),
        (_, 1) => RunSlot::Oldest(run),
        _ => RunSlot::New(run),
    };
    let mut low = random.below(400);
    for _ in 0..random.below(6) {
        let high = low + random.below(12);
        *next_id += 1;
        let keys = (format!("{low:04}"), format!("{high:04}"));
        let new = table(*next_id, (&keys.0, &keys.1), (1, 2), 100 + random.below(900));
        let moved = known.get(random.below(60) as usize).filter(|_| random.one_in(4));
        let table = Arc::clone(moved.unwrap_or(&new));
        edit.place.push(Placement { level, slot, table });
        low = if random.one_in(10) { random.below(400) } else { high + 1 + random.below(5) };
    }
    edit
}

/// The replay of a manifest applies many edits in a row, with an index, and settles once.
#[test]
fn edits_in_a_row_give_what_each_by_itself_gives() {
    let mut fitted = 0;
    for seed in 0..40 {
        let (mut random, mut next_id) = (Random::new(seed), 0);
        let (mut shape, mut replay) = (Shape::default(), Replay::of(Shape::default()));
        for step in 0..400 {
            let edit = any_edit(&shape, &mut random, &mut next_id);
            let mut next = replay.clone();
            let outcome = next.apply(&edit);
            match shape.apply(&edit) {
                Err(refused) => {
                    let kinds =
                        (Some(discriminant(&refused)), outcome.err().as_ref().map(discriminant));
                    assert_eq!(kinds.0, kinds.1, "seed {seed}, step {step}: {refused}");
                }
                Ok(applied) => {
                    assert_eq!(outcome, Ok(()), "seed {seed}, step {step}");
                    (shape, replay) = (applied, next);
                    fitted += 1;
                }
            }
            if step % 20 == 0 {
                // This compares the derived fields of overlapping levels too.
                let replayed = format!("{:?}", replay.clone().finish());
                assert_eq!(replayed, format!("{shape:?}"), "seed {seed}, step {step}");
            }
        }
    }
    assert!(fitted > 4_000, "only {fitted} edits fit");
}
