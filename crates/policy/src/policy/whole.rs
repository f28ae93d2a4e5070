//! Compactions of a whole tree into one run. Other modules decide when one runs: users request a
//! full compaction, and [`crate::space`] requests one when too little of the tree is live.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::{CompactionPolicy, LevelTarget};
use crate::shape::plan::{Compaction, CompactionInput, Plan};
use crate::shape::{Level, Shape, Table, TableId};

/// The plan of a full compaction. `None` if the tree is already one run without tombstones, and no
/// table is older than `settled_from`, the first table whose values are stored as the options
/// require.
pub fn full_plan(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
    settled_from: TableId,
) -> Option<Plan> {
    let deepest = shape.deepest()?;
    // A stack keeps nothing below level 0, so its one run belongs in level 0.
    let targets = policy.targets(shape, options);
    let is_stack = targets.get(1).is_some_and(|below| below.max_runs == 0);
    let is_settled = shape.tables().all(|(_, table)| table.id >= settled_from);
    if is_settled && is_compact(shape, deepest) && (deepest > 0 || is_stack) {
        return None;
    }
    let compaction = whole_compaction(shape, policy, options)?;
    let (bytes, level) = (shape.bytes(), compaction.output_level);
    Some(Plan {
        why: format!("full compaction asked for: {bytes} bytes into level {level}"),
        compactions: vec![compaction],
        ..Plan::default()
    })
}

/// Compacts everything into the shallowest level that may hold it, but not above level 1 or above
/// the deepest level in use. `None` if there are no tables. O(tables).
pub fn whole_compaction(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
) -> Option<Compaction> {
    shape.deepest()?;
    let output_level = whole_level(shape, &policy.targets(shape, options), shape.bytes());
    let mut inputs = Vec::new();
    for (level, tables) in (0u32..).zip(&shape.levels) {
        let ids = |tables: &[Arc<Table>]| CompactionInput {
            level,
            tables: tables.iter().map(|table| table.id).collect(),
        };
        match tables {
            Level::Runs(runs) => inputs.extend(runs.iter().map(|run| ids(&run.tables))),
            Level::Overlapping(tables) => inputs.push(ids(tables)),
        }
    }
    let (slot, cut) = policy.whole_output(shape, output_level, options);
    Some(Compaction { inputs, output_level, slot, cut })
}

/// The shallowest level that may hold this many bytes, but not above level 1 or above the deepest
/// level in use.
pub(super) fn whole_level(shape: &Shape, targets: &[LevelTarget], bytes: u64) -> u32 {
    let fits = |level: &u32| {
        targets.get(*level as usize).is_none_or(|target| target.capacity_bytes >= bytes)
    };
    let least = shape.deepest().unwrap_or(0).max(1);
    (least..Shape::MAX_LEVELS).find(fits).unwrap_or(least)
}

/// Whether the tree is one run without tombstones.
fn is_compact(shape: &Shape, deepest: u32) -> bool {
    let occupied = shape.levels.iter().filter(|level| !level.is_empty()).count();
    let is_one_run = match shape.level(deepest) {
        Level::Runs(runs) => runs.len() == 1,
        Level::Overlapping(tables) => tables.stats().depth == 1,
    };
    let tombstones: u64 = shape.tables().map(|(_, table)| table.tombstones).sum();
    occupied == 1 && is_one_run && tombstones == 0
}
