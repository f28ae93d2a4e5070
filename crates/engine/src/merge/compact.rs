//! The plan of a full compaction: every table into one run. Pure; for users who ask for it, no
//! policy does.

use runstone_policy::plan::{Cut, Merge, MergeInput, Plan};
use runstone_policy::policy::LevelTarget;
use runstone_policy::shape::{Level, RunSlot, Shape};

/// Merges everything into the shallowest level that may hold it, from level 1 on; `None` if the
/// tree is one run without tombstones already.
pub(crate) fn full_plan(shape: &Shape, targets: &[LevelTarget], cut: Cut) -> Option<Plan> {
    let deepest = shape.deepest()?;
    let occupied = shape.levels.iter().filter(|level| !level.is_empty()).count();
    let tombstones: u64 = shape.tables().map(|(_, table)| table.tombstones).sum();
    if occupied == 1 && deepest > 0 && shape.level(deepest).runs().len() == 1 && tombstones == 0 {
        return None;
    }
    let bytes = shape.bytes();
    let fits = |level: &u32| {
        targets.get(*level as usize).is_none_or(|target| target.capacity_bytes >= bytes)
    };
    let output_level = (deepest.max(1)..Shape::MAX_LEVELS).find(fits).unwrap_or(deepest.max(1));
    let mut inputs = Vec::new();
    for (level, tables) in (0u32..).zip(&shape.levels) {
        let ids = |tables: &[std::sync::Arc<runstone_policy::shape::Table>]| MergeInput {
            level,
            tables: tables.iter().map(|table| table.id).collect(),
        };
        match tables {
            Level::Runs(runs) => inputs.extend(runs.iter().map(|run| ids(&run.tables))),
            Level::Overlapping(tables) => inputs.push(ids(tables)),
        }
    }
    let slot = RunSlot::New(
        shape.level(output_level).runs().first().map_or(u64::from(output_level), |run| run.id),
    );
    Some(Plan {
        merges: vec![Merge { inputs, output_level, slot, cut }],
        why: format!("full compaction asked for: {bytes} bytes into level {output_level}"),
        ..Plan::default()
    })
}
