//! Seek compaction, as LevelDB does it: if reads too often probe a table first and in vain, the
//! table sinks, so that later reads probe one table less. Not a policy: `fragmented-leveling` and
//! `leveling` call it last, when no size calls for a compaction and `seek_compaction` is on.
//!
//! 1. Of the tables that have used up their allowed seeks, the most charged comes first. A blocked
//!    table yields to the next one.
//! 2. A table of level i >= 1 sinks with the tables that it overlaps below, or moves if there are
//!    none, by the rules of fragmented leveling for one table. The cursor of its level stays.
//! 3. A table of level 0 sinks with all runs that are idle from the oldest on, as when that level
//!    is due, so that no run passes another (I1). LevelDB leaves behind the runs that overlap none
//!    of the others.
//! 4. A table of the deepest level stays. Reads find nothing below it, so it was charged before it
//!    arrived there. Hence each plan brings a table nearer to that level or merges it, and picking
//!    ends even if nobody resets the counters.
//!
//! Source: LevelDB's `Version::Get`, `Version::UpdateStats` and `VersionSet::PickCompaction`.

use std::cmp::Reverse;

use crate::overlap::plan_groups;
use crate::policies::fragmented_leveling::Share;
use crate::policies::leveled;
use crate::policy::Job;
use crate::shape::Table;
use crate::shape::plan::Plan;

/// The compaction of the most charged table that has used up its seeks and can sink.
pub(super) fn compact_sought(job: &Job) -> Option<Plan> {
    if !job.options.numbers.seek_compaction || job.heat.seeks.is_empty() {
        return None;
    }
    let deepest = job.shape.deepest()?;
    let charged = job.shape.tables().filter_map(|(level, table)| {
        let seeks = *job.heat.seeks.get(&table.id)?;
        let is_spent = seeks >= job.options.numbers.allowed_seeks(table.bytes);
        (is_spent && (level < deepest || level == 0)).then_some((Reverse(seeks), level, table))
    });
    let mut spent: Vec<_> = charged.collect();
    spent.sort_by_key(|(seeks, level, table)| (*seeks, *level, table.id));
    spent.into_iter().find_map(|(Reverse(seeks), level, table)| {
        let (id, allowed) = (table.id, job.options.numbers.allowed_seeks(table.bytes));
        let why = format!("L{level} table {id}: {seeks} seeks of {allowed}");
        Some(Plan { why, ..job.sink_sought(level, table)? })
    })
}

impl Job<'_> {
    /// Rules 2 and 3; `None` if a part is busy, or if another policy left one of the levels behind.
    fn sink_sought(&self, level: u32, table: &Table) -> Option<Plan> {
        if !leveled::is_plain(self.shape.level(level + 1)) {
            return None;
        }
        if level == 0 {
            let mut sinking = self.idle_suffix(0).iter().flat_map(|run| &run.tables);
            let groups = sinking.any(|other| other.id == table.id).then(|| self.runs_job())??;
            return Some(plan_groups(groups, self.output_to(1), |_| false));
        }
        let from = self.shape.level(level);
        let tables = leveled::plain_tables(from);
        let at = tables.partition_point(|other| other.min_key < table.min_key);
        let is_it = leveled::is_plain(from) && tables.get(at)?.id == table.id;
        let groups = is_it.then(|| self.table_job(level, at))??;
        Some(self.sinking_plan(level, groups, Share::of(tables)))
    }
}
