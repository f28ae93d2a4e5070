//! Fragmented leveling, as LevelDB and RocksDB do it: one table at a time sinks, together with the
//! tables that it overlaps below. Jobs are small, and many run at once. This is the default policy.
//!
//! 1. When level 0 has `l0_trigger` idle runs, counted from the oldest, these runs sink together
//!    with the level-1 tables that they overlap. Each component of key overlap is one compaction; a
//!    table that overlaps nothing moves, so a load in key order rewrites nothing. Compacting a
//!    small level 0 into a large level 1 rewrites many bytes to sort few. So this compaction waits
//!    until the size of level 0 is `l0_share_percent` of what it would rewrite, but no longer than
//!    until level 0 has [`L0_PATIENCE`] times the trigger, because each waiting run makes reads
//!    slower. While a store slows writers down, it uses a share of 0.
//! 2. When level i >= 1 is above base * T^(i-1) bytes, one table sinks: the next one after the
//!    level's cursor whose overlap is free. The cursor is in the manifest, so every table gets its
//!    turn. Sources are widened while that needs no further target table and stays within
//!    [`EXPANSION_TABLES`]. Where tables are cut by Global-Range, sources are widened by all tables
//!    that the hull of the job overlaps, and by the target tables that this requires. Bounds are
//!    shared there, so the hull rarely changes, and a cell that sinks as a whole is rewritten once.
//!    If that would make the job too large, sources are widened as without Global-Range. If at
//!    least a quarter of a table's entries are tombstones, and at least twice the share in its
//!    level as a whole, the table sinks before its turn, and the cursor stays: until a tombstone is
//!    compacted with the entries that it deletes, scans must skip them. Such a table that overlaps
//!    nothing below is rewritten without its tombstones: a move would keep them for good.
//! 3. The level with the highest score sinks first. A blocked level yields to the next one.
//! 4. If nothing else can sink and level 0 has [`L0_PATIENCE`] times the trigger of idle runs, the
//!    newest of them compact into one run of level 0, to keep reads bounded while level 1 is busy.
//!    Last, with `seek_compaction`, tables that reads searched in vain are compacted (`seeks`).
//!
//! Age order (I1). Level-0 runs sink from the oldest on, without gaps. In deeper levels, versions
//! of a key never overtake each other: tables of a level are disjoint, and the job owns (or waits
//! for) every target-level table that it overlaps, and the range that it writes. Source: LevelDB's
//! `PickCompaction` and `SetupOtherInputs`.

use std::sync::Arc;

use crate::overlap::{
    Group, Row, bytes, collides, compaction_of, connect, level_rows, plan_groups, run_rows,
};
use crate::policies::leveled::{self, Leveled, Over};
use crate::policies::seeks::compact_sought;
use crate::policies::waiting;
use crate::policy::Job;
use crate::shape::plan::Plan;
use crate::shape::{Level, Table, bounds};
use crate::text::{format_bytes, format_key};

/// At this many times the trigger, level 0 sinks at any cost.
pub const L0_PATIENCE: u32 = waiting::PATIENCE;

/// A widened job reads at most the bytes of this many tables (LevelDB's
/// `kExpandedCompactionByteSizeLimit`).
pub const EXPANSION_TABLES: u64 = 25;

pub(crate) static FRAGMENTED_LEVELING: Leveled = Leveled {
    name: "fragmented-leveling",
    doc: "one run per level; tables sink one at a time with their overlap (LevelDB, RocksDB)",
    targets: leveled::targets,
    first: leveled::nothing,
    sink,
    idle: |job| compact_inside_l0(job).or_else(|| compact_sought(job)),
};

/// Rules 1 and 2. These rules do not depend on capacities: Garnering sinks its tables by the same
/// rules, with other capacities.
pub(super) fn sink(job: &Job, over: &Over) -> Option<Plan> {
    match over.level {
        0 => job.sink_runs(over),
        _ => job.sink_table(over),
    }
}

/// Rule 4.
pub(super) fn compact_inside_l0(job: &Job) -> Option<Plan> {
    waiting::compact_newest(job, 0, job.options.numbers.l0_trigger)
}

impl Job<'_> {
    /// Rule 1. The range check finds jobs of other origin: a range compaction, or jobs of a policy
    /// that was used before a switch. The jobs of this policy always show as busy tables as well.
    fn sink_runs(&self, over: &Over) -> Option<Plan> {
        let groups = self.runs_job()?;
        let [source_bytes, met_bytes] =
            [0, 1].map(|level| bytes(&rows_of(level, &groups).collect::<Vec<_>>()));
        let wanted = u128::from(met_bytes) * u128::from(self.options.numbers.l0_share_percent);
        let is_worth = u128::from(source_bytes) * 100 >= wanted;
        // The score of level 0 is 1 at the trigger.
        let is_patient = over.score < L0_PATIENCE.into();
        if !is_worth && is_patient {
            return None;
        }
        let mut plan = plan_groups(groups, self.output_to(1), |_| false);
        let (own, below) = (format_bytes(source_bytes), format_bytes(met_bytes));
        plan.why = format!("{}; {own} with {below} of L1", over.reason);
        Some(plan)
    }

    /// The job that sinks all runs of level 0 that are idle from the oldest on; `None` if any part
    /// of it is busy.
    pub(super) fn runs_job(&self) -> Option<Vec<Group<'_>>> {
        let sources = run_rows(0, self.idle_suffix(0));
        let below = level_rows(1, self.shape.level(1));
        let groups = sinking(0, [sources, below].concat());
        let is_busy = rows_of(1, &groups).any(|row| !self.is_idle(row.tables));
        (!is_busy && !collides(&groups, 1, self.busy)).then_some(groups)
    }

    /// Rule 2. The first table after the cursor that is free to sink.
    fn sink_table(&self, over: &Over) -> Option<Plan> {
        let tables = leveled::plain_tables(self.shape.level(over.level));
        let cursor = self.shape.state.cursors.get(&over.level);
        let start = cursor.map_or(0, |key| tables.partition_point(|t| *t.min_key <= **key));
        let turn = (start..tables.len()).chain(0..start);
        let share = Share::of(tables);
        let dense = turn.clone().filter(|at| is_dense(&tables[*at], share));
        let (at, groups) =
            dense.chain(turn).find_map(|at| Some((at, self.table_job(over.level, at)?)))?;
        let sources: Vec<&Arc<Table>> =
            rows_of(over.level, &groups).flat_map(|row| row.tables).collect();
        let last_key = sources.last()?.max_key.clone();
        let widened = sources.len() - 1;
        let is_early = at != start % tables.len() && is_dense(&tables[at], share);
        let mut plan = self.sinking_plan(over.level, groups, share);
        if !is_early {
            plan.cursors = vec![(over.level, last_key)];
        }
        let turn = match cursor {
            _ if is_early => {
                let percent = Share::of(&tables[at..=at]).permille / 10;
                format!("table {} is {percent}% tombstones", tables[at].id)
            }
            None => "first table".to_owned(),
            Some(key) if at >= start => format!("next after cursor {}", format_key(key)),
            Some(key) => format!("wrapped at cursor {}", format_key(key)),
        };
        let extra = match widened {
            0 => String::new(),
            count if self.options.numbers.partitioner.is_global() => {
                format!("; {count} more within its hull")
            }
            count => format!("; {count} more at no further overlap"),
        };
        plan.why = format!("{}; {turn}{extra}", over.reason);
        Some(plan)
    }

    /// Plans moves and compactions. A dense table with nothing below it is rewritten, which drops
    /// its tombstones.
    pub(super) fn sinking_plan(&self, level: u32, groups: Vec<Group<'_>>, share: Share) -> Plan {
        let output = self.output_to(level + 1);
        if let [Group::Apart(row)] = groups.as_slice()
            && let [lone] = row.tables
            && is_dense(lone, share)
            && self.is_last_of_its_keys(level + 1, lone)
        {
            let compaction = compaction_of(vec![*row], output);
            return Plan { compactions: vec![compaction], ..Plan::default() };
        }
        plan_groups(groups, output, |_| false)
    }

    /// Whether no table of this level or a deeper one overlaps `table`.
    fn is_last_of_its_keys(&self, from_level: u32, table: &Table) -> bool {
        let (min_key, max_key) = (&*table.min_key, &*table.max_key);
        let meets = |level: &Level| match level {
            Level::Runs(runs) => runs.iter().any(|r| !r.overlapping(min_key, max_key).is_empty()),
            Level::Overlapping(_) => level.tables().any(|t| t.overlaps(min_key, max_key)),
        };
        let levels = from_level..self.shape.levels.len() as u32;
        levels.into_iter().all(|level| !meets(self.shape.level(level)))
    }

    /// The job that sinks table `at` of the level, widened if it can be; `None` if any part of it
    /// is busy.
    pub(super) fn table_job(&self, level: u32, at: usize) -> Option<Vec<Group<'_>>> {
        let tables = leveled::plain_tables(self.shape.level(level));
        let chosen = &tables[at..at + 1];
        let met = self.met_below(level, chosen);
        if !self.is_idle(chosen) || !self.is_idle(met) {
            return None;
        }
        let groups_of = |sources| {
            let groups = connect(vec![Row::new(level, 0, sources), Row::new(level + 1, 0, met)]);
            (!collides(&groups, level + 1, self.busy)).then_some(groups)
        };
        let hull = self.hull_job(level, chosen, met);
        let wide = || self.widened(level, chosen, met).and_then(groups_of);
        hull.or_else(wide).or_else(|| groups_of(chosen))
    }

    /// Rule 2 under Global-Range. The job consists of the chosen table, the target tables that it
    /// overlaps, all tables of the level that the hull of these overlaps, and the target tables
    /// that this hull overlaps. One round is enough: cells are nested or disjoint, so a further
    /// round would add only chance overlaps. `None` if it adds nothing, is larger than
    /// [`EXPANSION_TABLES`] or partly busy.
    fn hull_job(
        &self,
        level: u32,
        chosen: &[Arc<Table>],
        met: &[Arc<Table>],
    ) -> Option<Vec<Group<'_>>> {
        if !self.options.numbers.partitioner.is_global() {
            return None;
        }
        let (min_key, max_key) = hull(chosen, met)?;
        let sources = self.shape.level(level).runs().first()?.overlapping(min_key, max_key);
        let met = self.met_below(level, sources);
        let limit_bytes = self.options.numbers.table_bytes.saturating_mul(EXPANSION_TABLES);
        let bytes: u64 = sources.iter().chain(met).map(|table| table.bytes).sum();
        let is_idle = || self.is_idle(sources) && self.is_idle(met);
        if sources.len() == chosen.len() || bytes > limit_bytes || !is_idle() {
            return None;
        }
        let rows = vec![Row::new(level, 0, sources), Row::new(level + 1, 0, met)];
        let groups = sinking(level, rows);
        (!collides(&groups, level + 1, self.busy)).then_some(groups)
    }

    /// All tables of the level inside the hull of the job, if they overlap no further target table,
    /// are idle and few enough. Each overlaps the job: where the hull extends beyond the chosen
    /// table, it is the first or last target table. All or nothing, as in LevelDB: finding a part
    /// of them would need a search.
    fn widened<'b>(
        &'b self,
        level: u32,
        chosen: &[Arc<Table>],
        met: &[Arc<Table>],
    ) -> Option<&'b [Arc<Table>]> {
        met.first()?;
        let (min_key, max_key) = hull(chosen, met)?;
        let wide = self.shape.level(level).runs().first()?.overlapping(min_key, max_key);
        let limit = self.options.numbers.table_bytes.saturating_mul(EXPANSION_TABLES);
        let total: u64 = wide.iter().chain(met).map(|table| table.bytes).sum();
        let fits = wide.len() > chosen.len()
            && total <= limit
            && self.is_idle(wide)
            && self.met_below(level, wide).len() == met.len();
        fits.then_some(wide)
    }

    /// Tables of the next level inside the hull of `sources` (neighbours of one run). For several
    /// sources, this may include tables in the gaps between them, but it never misses one.
    fn met_below(&self, level: u32, sources: &[Arc<Table>]) -> &[Arc<Table>] {
        let run = self.shape.level(level + 1).runs().first();
        match (run, sources.first(), sources.last()) {
            (Some(run), Some(first), Some(last)) => run.overlapping(&first.min_key, &last.max_key),
            _ => &[],
        }
    }
}

/// How many of the entries are tombstones.
#[derive(Clone, Copy)]
pub(super) struct Share {
    permille: u64,
}

impl Share {
    pub(super) fn of(tables: &[Arc<Table>]) -> Share {
        let sum = |of: fn(&Table) -> u64| tables.iter().map(|t| u128::from(of(t))).sum::<u128>();
        let (tombstones, entries) = (sum(|table| table.tombstones), sum(|table| table.entries));
        Share { permille: (tombstones * 1000 / entries.max(1)) as u64 }
    }
}

/// Whether a table has many tombstones, and a larger share of them than its level as a whole. So
/// where all tables have many, none is preferred.
fn is_dense(table: &Arc<Table>, level: Share) -> bool {
    let own = Share::of(std::slice::from_ref(table)).permille;
    own >= 250 && own >= 2 * level.permille
}

/// Smallest and largest key of neighbouring tables in one run and neighbouring tables in another.
fn hull<'a>(a: &'a [Arc<Table>], b: &'a [Arc<Table>]) -> Option<(&'a [u8], &'a [u8])> {
    bounds([a.first(), a.last(), b.first(), b.last()].into_iter().flatten())
}

/// The groups that have tables of the level. A table below that overlaps none of these is in a
/// group of its own, which is left out.
fn sinking(level: u32, rows: Vec<Row<'_>>) -> Vec<Group<'_>> {
    let mut groups = connect(rows);
    groups.retain(|group| group.rows().iter().any(|row| row.level == level));
    groups
}

/// The tables that the groups have in a level, in key order.
fn rows_of<'a>(level: u32, groups: &[Group<'a>]) -> impl Iterator<Item = Row<'a>> {
    let rows = groups.iter().flat_map(Group::rows).copied();
    rows.filter(move |row| row.level == level)
}
