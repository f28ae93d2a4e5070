//! Turns a finished plan into the edit that installs it. It decides nothing, and repeats no check
//! of `Shape::apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::shape::plan::Plan;
use crate::shape::{Edit, Placement, Shape, Table, TableId};

/// The edit of `plan`: all inputs are removed and all outputs are added at once (I6).
///
/// `outputs` contains one list per compaction of the plan, in the plan's order; a list is empty if
/// the compaction dropped everything. `apply` refuses a moved table that is no longer in the shape.
/// O(tables of the levels moved from).
///
/// # Panics
/// If the number of output lists is not the number of compactions.
pub fn edit_for(shape: &Shape, plan: &Plan, outputs: &[Vec<Arc<Table>>]) -> Edit {
    assert_eq!(outputs.len(), plan.compactions.len(), "one output list per compaction");
    let mut edit = Edit {
        remove: plan.table_ids().collect(),
        cursors: plan.cursors.clone(),
        last_level: plan.last_level,
        relabel: plan.relabel.clone(),
        ..Edit::default()
    };
    let moved = moved_tables(shape, plan);
    for step in &plan.moves {
        if let Some(table) = moved.get(&step.table) {
            let table = Arc::clone(table);
            edit.place.push(Placement { level: step.to_level, slot: step.slot, table });
        }
    }
    for (compaction, tables) in plan.compactions.iter().zip(outputs) {
        edit.place.extend(tables.iter().map(|table| Placement {
            level: compaction.output_level,
            slot: compaction.slot,
            table: Arc::clone(table),
        }));
    }
    edit
}

fn moved_tables<'a>(shape: &'a Shape, plan: &Plan) -> BTreeMap<TableId, &'a Arc<Table>> {
    let ids: BTreeSet<TableId> = plan.moves.iter().map(|step| step.table).collect();
    let levels: BTreeSet<u32> = plan.moves.iter().map(|step| step.from_level).collect();
    let tables = levels.into_iter().flat_map(|level| shape.level(level).tables());
    tables.filter(|table| ids.contains(&table.id)).map(|table| (table.id, table)).collect()
}
