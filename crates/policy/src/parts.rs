//! Installs a plan part by part, in key order, while it runs. Below a key K the tree is as if the
//! plan were done; from K on it is as if the plan had never begun. Pure: the engine chooses the
//! parts and reports when one is done.
//!
//! 1. An input that ends below K is removed. An input that extends beyond K is *trimmed*: only its
//!    keys from K on remain visible ([`crate::shape::Edit::trim`]). An input that begins at or
//!    above K stays as it is.
//! 2. Outputs of the keys below K arrive in the run where the whole plan would put them, and so do
//!    inputs below K that move as they are.
//! 3. The rest of the plan is noted in the shape ([`crate::shape::Shape::pending`]), so that
//!    whoever opens the store next continues with it.
//!
//! Why every such tree is sound. I1, I3 and I4 concern one user key at a time, and for each user
//! key the tree is either the one before the plan or the one after it: below K, all versions of the
//! key are in the outputs and none in an input; from K on, the reverse. Both trees are sound. As
//! for the order among runs, an input and the output run have no key in common, and inputs are
//! neighbours in age, so it does not matter which of their slots the output run takes. Entries
//! deleted by a tombstone that the outputs dropped may still be in files in use, but they are below
//! K, where nobody reads those files. I2: K is a cut between two user keys. I6: each step is one
//! edit.
//!
//! So the note is a hint, not an obligation. An edit that uses a noted table in another way
//! invalidates the note, and the tree is sound without it.
//!
//! Only plans whose steps share no key are installed in this way: otherwise a key could be after
//! one step and before another, which is neither of the two trees. Levels that overlap and plans
//! that relabel levels are left out for the same reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::edit::edit_for;
use crate::shape::plan::{CompactionInput, Plan};
use crate::shape::{Edit, Level, Placement, RunSlot, Shape, Table, TableId, bounds};

/// Whether the plan may be installed part by part (see the module docs). O(tables log tables).
pub fn can_be_parted(shape: &Shape, plan: &Plan) -> bool {
    let keeps_levels = plan.relabel.is_empty() && plan.last_level.is_none();
    let in_runs = plan.compactions.iter().all(|compaction| {
        let level = |input: &CompactionInput| matches!(shape.level(input.level), Level::Runs(_));
        compaction.inputs.iter().all(level) && compaction.slot != RunSlot::Overlapping
    });
    let tables: BTreeMap<TableId, &Arc<Table>> =
        shape.tables().map(|(_, table)| (table.id, table)).collect();
    let table = |id: TableId| tables.get(&id).copied();
    let moves = plan.moves.iter().map(|step| bounds(table(step.table).into_iter()));
    let compactions = plan.compactions.iter();
    let compactions =
        compactions.map(|compaction| bounds(compaction.input_ids().filter_map(table)));
    let Some(mut steps) = moves.chain(compactions).collect::<Option<Vec<_>>>() else {
        return false;
    };
    steps.sort_unstable();
    keeps_levels && in_runs && steps.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// The edit after which the first compaction of `rest` is done for all keys below `bound`, or for
/// all keys (`None`). `rest` is the remainder of the plan: first the plan itself, then the
/// `pending` of the previous edit. `placed`: outputs below the bound that are not in the tree yet,
/// and inputs below it that move. `waiting`: inputs that will move later; they are not trimmed,
/// since no output contains their keys. The edit for the last part of the last compaction also
/// contains the plan's moves and cursors. O(tables).
///
/// # Panics
/// If no compaction is left.
pub fn part_edit(
    shape: &Shape,
    rest: &Plan,
    placed: &[Arc<Table>],
    waiting: &BTreeSet<TableId>,
    bound: Option<&[u8]>,
) -> Edit {
    if let (None, [_]) = (bound, rest.compactions.as_slice()) {
        return edit_for(shape, rest, &[placed.to_vec()]);
    }
    let compaction = &rest.compactions[0];
    let placement = |table: &Arc<Table>| Placement {
        level: compaction.output_level,
        slot: compaction.slot,
        table: Arc::clone(table),
    };
    let mut edit = Edit { place: placed.iter().map(placement).collect(), ..Edit::default() };
    let inputs: BTreeSet<TableId> =
        compaction.input_ids().filter(|id| !waiting.contains(id)).collect();
    for (_, table) in shape.tables().filter(|(_, table)| inputs.contains(&table.id)) {
        match bound {
            Some(bound) if *table.min_key >= *bound => {}
            Some(bound) if *table.max_key >= *bound => edit.trim.push((table.id, bound.into())),
            _ => edit.remove.push(table.id),
        }
    }
    let gone: BTreeSet<TableId> = edit.remove.iter().copied().collect();
    let mut left = rest.clone();
    for input in &mut left.compactions[0].inputs {
        input.tables.retain(|id| !gone.contains(id));
    }
    left.compactions[0].inputs.retain(|input| !input.tables.is_empty());
    left.compactions.retain(|compaction| !compaction.inputs.is_empty());
    edit.pending = Some(Arc::new(left));
    edit
}
