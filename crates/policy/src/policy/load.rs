//! Where the tables of a bulk load are placed. Their data are in key order, newer than everything
//! in the tree, and were never in a memtable. Not a compaction: no existing table is rewritten.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::CompactionPolicy;
use crate::policy::whole::whole_level;
use crate::shape::plan::Busy;
use crate::shape::{Edit, Level, Placement, RunId, RunSlot, Shape, Table, bounds};

/// The edit that places the tables of a load, which are disjoint. O(levels log tables).
///
/// 1. The load is placed as deep as possible, as long as neither that level nor one above it
///    contains a key in the range of its tables (I1: a load is newer than the whole tree). It is
///    placed no deeper than a compaction of the whole tree would go.
/// 2. If level 0 already contains such a key, or the policy keeps everything there (a stack), the
///    load becomes a new run on top of level 0. Such a run counts as a flush.
///
/// The rest of an interrupted plan will also write into levels, so its key ranges count as
/// occupied. The caller makes sure that no other plan runs.
pub fn load_edit(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
    tables: &[Arc<Table>],
) -> Edit {
    let Some(range) = bounds(tables.iter()) else { return Edit::default() };
    let busy = Busy::of(shape, shape.pending.as_deref());
    let is_free = |level: &u32| {
        let is_met = match shape.level(*level) {
            Level::Runs(runs) => {
                runs.iter().any(|run| !run.overlapping(range.0, range.1).is_empty())
            }
            Level::Overlapping(tables) => tables.meeting(range.0, range.1).next().is_some(),
        };
        !is_met && !busy.writes_into(*level)
    };
    let targets = policy.targets(shape, options);
    let is_stack = targets.get(1).is_some_and(|below| below.max_runs == 0);
    let bytes = tables.iter().map(|table| table.bytes).sum::<u64>() + shape.bytes();
    let deepest = if is_stack { 0 } else { whole_level(shape, &targets, bytes) };
    let level = (0..=deepest).take_while(is_free).last().unwrap_or(0);
    let run: RunId = tables[0].id;
    let slot = match shape.level(level) {
        _ if level == 0 => RunSlot::New(run),
        Level::Runs(runs) => match runs.first() {
            Some(newest) => RunSlot::New(newest.id),
            None => policy.whole_output(shape, level, options).0,
        },
        Level::Overlapping(_) => RunSlot::Overlapping,
    };
    let place = |table: &Arc<Table>| Placement { level, slot, table: Arc::clone(table) };
    Edit {
        place: tables.iter().map(place).collect(),
        flushes: u64::from(level == 0),
        ..Edit::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::POLICIES;

    fn table(id: u64, min: &str, max: &str, seq: u64) -> Arc<Table> {
        Arc::new(Table {
            id,
            min_key: min.as_bytes().into(),
            max_key: max.as_bytes().into(),
            bytes: 1 << 20,
            entries: 1000,
            min_seq: seq,
            max_seq: seq,
            ..Table::default()
        })
    }

    /// Checks the levels of two loads whose ranges do not overlap, and of a third load that
    /// overlaps both.
    #[test]
    fn every_policy_gets_a_load_as_deep_as_nothing_lies_above_or_there() {
        for policy in POLICIES {
            let options = PolicyOptions::default();
            let mut shape = Shape::default();
            let mut levels = Vec::new();
            let loads = [("a", "f"), ("g", "z"), ("e", "h"), ("zz", "zzz")];
            for (id, (min, max)) in (1u64..).zip(loads) {
                let tables = [table(id, min, max, id)];
                let edit = load_edit(&shape, *policy, &options, &tables);
                levels.push(edit.place[0].level);
                let before = shape.state.flush_count;
                shape = shape.apply(&edit).expect("it fits");
                let flushes = shape.state.flush_count - before;
                assert_eq!(flushes, u64::from(levels[levels.len() - 1] == 0));
            }
            let is_stack = policy.targets(&shape, &options)[1].max_runs == 0;
            let wanted = if is_stack { [0, 0, 0, 0] } else { [1, 1, 0, 1] };
            assert_eq!(levels, wanted, "{}", policy.name());
            let newest = shape.level(0).runs().first().expect("the third load").tables[0].id;
            assert_eq!(newest, if is_stack { 4 } else { 3 }, "{}", policy.name());
        }
    }
}
