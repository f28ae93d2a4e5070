//! The plan of a full compaction: every table into one run. Pure; for users who ask for it, no
//! policy does.

use runstone_policy::options::PolicyOptions;
use runstone_policy::plan::{Merge, MergeInput, Plan};
use runstone_policy::policy::MergePolicy;
use runstone_policy::shape::{Level, Shape, Table, TableId};

/// Merges everything into the shallowest level that may hold it, from level 1 on; `None` if the
/// tree is one run without tombstones already, and no table is older than `settled_from`, the first
/// whose values are placed as they are to be.
pub(crate) fn full_plan(
    shape: &Shape,
    policy: &dyn MergePolicy,
    options: &PolicyOptions,
    settled_from: TableId,
) -> Option<Plan> {
    let deepest = shape.deepest()?;
    let targets = policy.targets(shape, options);
    // A stack wants nothing below level 0: there its one run is where it belongs.
    let is_stack = targets.get(1).is_some_and(|below| below.max_runs == 0);
    let is_settled = shape.tables().all(|(_, table)| table.id >= settled_from);
    if is_settled && is_compact(shape, deepest) && (deepest > 0 || is_stack) {
        return None;
    }
    let bytes = shape.bytes();
    let fits = |level: &u32| {
        targets.get(*level as usize).is_none_or(|target| target.capacity_bytes >= bytes)
    };
    let output_level = (deepest.max(1)..Shape::MAX_LEVELS).find(fits).unwrap_or(deepest.max(1));
    let mut inputs = Vec::new();
    for (level, tables) in (0u32..).zip(&shape.levels) {
        let ids = |tables: &[std::sync::Arc<Table>]| MergeInput {
            level,
            tables: tables.iter().map(|table| table.id).collect(),
        };
        match tables {
            Level::Runs(runs) => inputs.extend(runs.iter().map(|run| ids(&run.tables))),
            Level::Overlapping(tables) => inputs.push(ids(tables)),
        }
    }
    let (slot, cut) = policy.whole_output(shape, output_level, options);
    Some(Plan {
        merges: vec![Merge { inputs, output_level, slot, cut }],
        why: format!("full compaction asked for: {bytes} bytes into level {output_level}"),
        ..Plan::default()
    })
}

/// Whether the tree is one run, without tombstones.
fn is_compact(shape: &Shape, deepest: u32) -> bool {
    let occupied = shape.levels.iter().filter(|level| !level.is_empty()).count();
    let is_one_run = match shape.level(deepest) {
        Level::Runs(runs) => runs.len() == 1,
        Level::Overlapping(tables) => tables.stats().depth == 1,
    };
    let tombstones: u64 = shape.tables().map(|(_, table)| table.tombstones).sum();
    occupied == 1 && is_one_run && tombstones == 0
}
