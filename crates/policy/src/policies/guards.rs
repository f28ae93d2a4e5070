//! Guards (PebblesDB's fragmented LSM tree, FLSM): tables collect between the guards of a level. To
//! sink, they are cut at the guards of the next level, and nothing there is rewritten.
//!
//! Here a *guard* means the tables between two bounds: a group of tables of a level whose keys
//! overlap. Outputs are cut by Global-Range, whose cells are nested or disjoint. So the group is
//! one cell, and a cell of a level is a union of cells of the level below: each level has the
//! guards of the level above and more. PebblesDB chooses guards by the hashes of keys instead; the
//! manifest would have to store those.
//!
//! 1. A level that another policy left as runs becomes an overlapping one.
//! 2. When level 0 has `l0_trigger` idle runs, they compact into level 1, which is not read.
//! 3. A guard where more than K (`max_runs`) tables overlap sinks. If a level exceeds base *
//!    T^(i-1) bytes, its guards sink too, those with the most tables first, until the level is
//!    within this limit. The tables of a guard are compacted and cut into at least as many tables
//!    as there are guards of the next level in its range, and the next level is not read. A lone
//!    table that overlaps at most one guard moves.
//! 4. In the deepest level a guard of more than K tables is compacted in place instead. The
//!    compaction leaves out the largest table if it is larger than all the others together. So a
//!    byte is rewritten there each time the guard doubles, not for each arriving table. (If K is 1,
//!    the table is not left out, because there is no room for two.)
//!
//! Why it ends. Rule 4 leaves one table over each key of the guard, plus the largest table if that
//! was left out: no more than K in all. Everything else sinks.
//!
//! Age order. A guard sinks whole, and none of its tables is busy, so no older table with its keys
//! stays above the sinking tables. Tables that enter the level meanwhile are newer and stay there.
//! They form one guard with the sinking tables, and that guard waits. Source: Raju et al., SOSP
//! 2017.

use std::cmp::Reverse;

use crate::options::{MIN_TABLE_BYTES, PolicyOptions};
use crate::overlap::{Group, Row, bytes, compaction_of, connect, level_rows};
use crate::policies::{leveled, overlapped};
use crate::policy::{CompactionPolicy, Job, LevelTarget};
use crate::shape::overlapping::sublevels;
use crate::shape::plan::{Cut, Partitioner, Plan};
use crate::shape::{Level, RunSlot, Shape, bounds};
use crate::text::format_bytes;

/// See the module docs.
pub struct Guards;

impl CompactionPolicy for Guards {
    fn name(&self) -> &'static str {
        "guards"
    }

    fn doc(&self) -> &'static str {
        "tables collect between guards and sink without reading the next level (PebblesDB's FLSM)"
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        overlapped::targets(shape, options)
    }

    fn own_partitioner(&self) -> Option<Partitioner> {
        Some(Partitioner::GlobalRange)
    }

    fn whole_output(&self, _: &Shape, _: u32, options: &PolicyOptions) -> (RunSlot, Cut) {
        (RunSlot::Overlapping, cut(guard_bytes(options)))
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        let cut = cut(job.options.numbers.table_bytes);
        job.adopt(cut).or_else(|| job.compact_and_split(cut)).or_else(|| job.sink_guards())
    }
}

fn cut(table_bytes: u64) -> Cut {
    Cut::Cells { partitioner: Partitioner::GlobalRange, table_bytes }
}

/// The bytes that a guard collects before it sinks. Guards of the deepest level grow to this size.
/// If they were as small as a table, sinking tables would be cut into pieces of 1/K table.
fn guard_bytes(options: &PolicyOptions) -> u64 {
    options.numbers.table_bytes.saturating_mul(u64::from(options.numbers.max_runs) + 1)
}

/// The tables of a level between two guards.
struct Guard<'a> {
    rows: Vec<Row<'a>>,
    bytes: u64,
    /// The largest number of tables that overlap at one key.
    depth: u64,
}

impl<'a> Guard<'a> {
    fn new(rows: Vec<Row<'a>>) -> Guard<'a> {
        let tables = rows.iter().flat_map(|row| row.tables).map(|table| &**table);
        Guard { bytes: bytes(&rows), depth: sublevels(tables).len() as u64, rows }
    }

    /// Rule 4: the tables that are compacted in place.
    fn smaller(&self, leaves_largest: bool) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = self.rows.iter().flat_map(|row| row.split()).collect();
        let bytes_of = |row: &Row<'_>| row.tables[0].bytes;
        let largest = (0..rows.len()).max_by_key(|at| (bytes_of(&rows[*at]), Reverse(*at)));
        if let Some(at) = largest.filter(|at| bytes_of(&rows[*at]) > self.bytes / 2)
            && leaves_largest
        {
            rows.remove(at);
        }
        rows
    }
}

impl Job<'_> {
    /// Rules 3 and 4, for the shallowest level with a guard that is due.
    fn sink_guards(&self) -> Option<Plan> {
        let deepest = self.shape.deepest()?;
        (1..=deepest).find_map(|index| {
            let Level::Overlapping(tables) = self.shape.level(index) else { return None };
            let capacity = leveled::capacity_bytes(index, self.options);
            if tables.stats().bytes <= capacity && !self.is_deep(tables.stats().depth.into()) {
                return None;
            }
            let mut guards = self.idle_guards(index);
            // The sort is stable, so equal depths stay in key order.
            guards.sort_by_key(|guard| Reverse(guard.depth));
            let deep_count = guards.partition_point(|guard| self.is_deep(guard.depth));
            if index == deepest && deep_count > 0 {
                guards.truncate(deep_count);
                return Some(self.compact_guards(index, &guards));
            }
            let mut left: u64 = guards.iter().map(|guard| guard.bytes).sum();
            let reason = match left > capacity {
                true => format!("{} of {}", format_bytes(left), format_bytes(capacity)),
                false => format!("guards of more than {} tables", self.options.numbers.max_runs),
            };
            guards.retain(|guard| {
                let is_due = self.is_deep(guard.depth) || left > capacity;
                left -= if is_due { guard.bytes } else { 0 };
                is_due
            });
            let can_sink = !guards.is_empty() && self.can_receive(index + 1);
            can_sink.then(|| self.sink(index, guards, &reason))
        })
    }

    fn is_deep(&self, depth: u64) -> bool {
        depth > u64::from(self.options.numbers.max_runs)
    }

    /// The idle guards, in key order. A guard with a busy table is already sinking.
    fn idle_guards(&self, index: u32) -> Vec<Guard<'_>> {
        let groups = connect(level_rows(index, self.shape.level(index)));
        let each = groups.into_iter().flat_map(|group| match group {
            Group::Apart(row) => row.split().map(|lone| vec![lone]).collect(),
            Group::Joined(component) => vec![component.rows],
        });
        let is_idle = |rows: &Vec<Row<'_>>| rows.iter().all(|row| self.is_idle(row.tables));
        each.filter(is_idle).map(Guard::new).collect()
    }

    /// Rule 4.
    fn compact_guards(&self, index: u32, guards: &[Guard<'_>]) -> Plan {
        let output = overlapped::output(index, cut(guard_bytes(self.options)));
        let leaves_largest = self.options.numbers.max_runs > 1;
        let compact = |guard: &Guard<'_>| compaction_of(guard.smaller(leaves_largest), output);
        Plan {
            compactions: guards.iter().map(compact).collect(),
            why: format!(
                "L{index} is the deepest; {} guards of more than {} tables, compacted in place",
                guards.len(),
                self.options.numbers.max_runs
            ),
            ..Plan::default()
        }
    }

    /// Rule 3.
    fn sink(&self, index: u32, guards: Vec<Guard<'_>>, reason: &str) -> Plan {
        let mut plan = Plan::default();
        for Guard { rows, bytes, .. } in guards {
            let below = self.count_guards(index + 1, &rows);
            let fragment = (bytes / below.max(1)).min(self.options.numbers.table_bytes);
            let output = overlapped::output(index + 1, cut(fragment.max(MIN_TABLE_BYTES)));
            match rows.as_slice() {
                [lone] if lone.tables.len() == 1 && below <= 1 => {
                    plan.moves.extend(lone.moves(output))
                }
                _ => plan.compactions.push(compaction_of(rows, output)),
            }
        }
        let (sunk, moved, next) = (plan.compactions.len(), plan.moves.len(), index + 1);
        plan.why = format!(
            "L{index} over target: {reason}; {sunk} guards are compacted, {moved} move, L{next} is \
             not read"
        );
        plan
    }

    /// How many guards of level `index` these tables from above overlap.
    fn count_guards(&self, index: u32, rows: &[Row<'_>]) -> u64 {
        let Level::Overlapping(tables) = self.shape.level(index) else { return 0 };
        let Some((min_key, max_key)) = bounds(rows.iter().flat_map(|row| row.tables)) else {
            return 0;
        };
        let (mut count, mut end): (u64, Option<&[u8]>) = (0, None);
        for table in tables.meeting(min_key, max_key) {
            count += u64::from(end.is_none_or(|end| *table.min_key > *end));
            end = end.max(Some(&table.max_key));
        }
        count
    }
}
