//! Shared by the leveled policies: level 0 contains flush runs, and every deeper level contains one
//! run. Each level has T times the capacity of the one above. This is no policy: each policy is a
//! [`Leveled`] with its own rules.
//!
//! 1. A level that another policy left behind becomes one run first ([`Job::reshape`]).
//! 2. Then the levels over target get their turn, highest score first. A blocked level yields to
//!    the next one.
//! 3. If nothing sinks, the policy's `idle` rule decides.
//!
//! Run ids. A flush chooses the id of its level-0 run (the engine's business). The one run of a
//! level i >= 1 has id i: run ids are looked up per level, so this id is unique. A level that
//! another policy left with one run keeps that run's id. Outputs always use `RunSlot::New`, which
//! joins the run if it exists. `Join` would fail at install if a concurrent job had emptied the
//! level and so removed its run.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::overlap::{Output, collides, connect, level_rows, plan_groups};
use crate::policy::{CompactionPolicy, Job, LevelTarget};
use crate::shape::plan::Plan;
use crate::shape::{Level, Run, RunSlot, Shape, Table};
use crate::text::format_bytes;
use crate::units::Thousandths;

pub(crate) struct Leveled {
    pub name: &'static str,
    pub doc: &'static str,
    pub targets: fn(&Shape, &PolicyOptions) -> Vec<LevelTarget>,
    /// The plan that comes before those for levels over target.
    pub first: fn(&Job) -> Option<Plan>,
    /// The plan for a level over target.
    pub sink: fn(&Job, &Over) -> Option<Plan>,
    /// The plan if nothing sinks.
    pub idle: fn(&Job) -> Option<Plan>,
}

/// The rule of a [`Leveled`] that plans nothing.
pub(crate) fn nothing(_: &Job) -> Option<Plan> {
    None
}

impl CompactionPolicy for Leveled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        (self.targets)(shape, options)
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        job.reshape()
            .or_else(|| (self.first)(job))
            .or_else(|| {
                let over = job.over_target(&self.targets(job.shape, job.options));
                over.iter().find_map(|over| (self.sink)(job, over))
            })
            .or_else(|| (self.idle)(job))
    }
}

/// A level over target.
pub(crate) struct Over {
    pub level: u32,
    /// How full it is.
    pub score: Thousandths,
    /// `L1 over target: 128M of 50M`, for the plan's why.
    pub reason: String,
}

impl Over {
    /// The amount and the limit. The reason names runs if there are too many runs.
    pub fn new(level: u32, limit: &LevelTarget, bytes: u64, run_count: usize) -> Over {
        let (have, most) = match bytes > limit.capacity_bytes {
            true => (format_bytes(bytes), format_bytes(limit.capacity_bytes)),
            // The count that triggers a compaction is one more than the level may have.
            false => (format!("{run_count} runs"), (u64::from(limit.max_runs) + 1).to_string()),
        };
        Over {
            level,
            score: limit.score(bytes, run_count),
            reason: format!("L{level} over target: {have} of {most}"),
        }
    }
}

/// Capacity of a level in bytes: base * T^(level - 1), saturating. Unbounded at level 0 (judged by
/// runs) and at the deepest level that a shape can have, below which nothing can sink.
///
/// With T >= 2 and a base of 4 KiB or more, the capacity saturates at level 53, so that data never
/// reaches the deepest level by growth alone.
pub(crate) fn capacity_bytes(level: u32, options: &PolicyOptions) -> u64 {
    if level == 0 || level + 1 >= Shape::MAX_LEVELS {
        return u64::MAX;
    }
    u64::from(options.numbers.size_ratio)
        .saturating_pow(level - 1)
        .saturating_mul(options.numbers.base_bytes)
}

pub(crate) fn target(level: u32, options: &PolicyOptions) -> LevelTarget {
    let max_runs = match level {
        0 => options.numbers.l0_trigger.saturating_sub(1),
        _ => 1,
    };
    LevelTarget { capacity_bytes: capacity_bytes(level, options), max_runs }
}

/// Targets of all levels down to one below the deepest in use.
pub(crate) fn targets(shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
    let last = shape.deepest().map_or(1, |deepest| deepest + 1);
    (0..=last).map(|level| target(level, options)).collect()
}

/// Whether the level has the form that a leveled policy wants: at most one run, and no overlapping
/// tables.
pub(crate) fn is_plain(level: &Level) -> bool {
    match level {
        Level::Runs(runs) => runs.len() <= 1,
        Level::Overlapping(tables) => tables.is_empty(),
    }
}

/// The tables of a plain level, in key order.
pub(crate) fn plain_tables(level: &Level) -> &[Arc<Table>] {
    level.runs().first().map_or(&[], |run| &run.tables)
}

/// Sorts by score, highest first. Levels with equal scores stay shallow first.
pub(crate) fn by_score(mut found: Vec<Over>) -> Vec<Over> {
    found.sort_by_key(|over| std::cmp::Reverse(over.score));
    found
}

impl<'a> Job<'a> {
    /// The runs of a level that may sink: from the oldest up to the first that has a busy table. A
    /// newer run never sinks past an older one (I1), so a busy run blocks all newer ones.
    pub(crate) fn idle_suffix(&self, level: u32) -> &'a [Run] {
        let runs = self.shape.level(level).runs();
        let busy = runs.iter().rposition(|run| !self.is_idle(&run.tables));
        &runs[busy.map_or(0, |at| at + 1)..]
    }

    /// Whether no table is busy.
    pub(crate) fn is_idle(&self, tables: &[Arc<Table>]) -> bool {
        let is_busy = |table: &Arc<Table>| self.busy.tables.contains(&table.id);
        self.busy.tables.is_empty() || !tables.iter().any(is_busy)
    }

    /// Where outputs of a level are placed: in its newest run, or in a new one with the level's
    /// number as its id.
    pub(crate) fn output_to(&self, level: u32) -> Output {
        let newest = self.shape.level(level).runs().first();
        let id = newest.map_or(u64::from(level), |run| run.id);
        Output { level, slot: RunSlot::New(id), cut: self.options.cut() }
    }

    /// Levels over their `targets`, highest score first, shallow first among equals. Busy tables do
    /// not count: they are already sinking. A level that is not plain is left out, because
    /// [`Job::reshape`] runs first there. A level directly above such a level is left out too.
    /// O(tables log busy).
    fn over_target(&self, targets: &[LevelTarget]) -> Vec<Over> {
        let over = |level: u32| {
            let is_source = level == 0 || is_plain(self.shape.level(level));
            if !is_source || !is_plain(self.shape.level(level + 1)) {
                return None;
            }
            let limit = targets.get(level as usize).unwrap_or(&LevelTarget::UNBOUNDED);
            let (bytes, run_count) = match level {
                0 => (0, self.idle_suffix(0).len()),
                _ => (self.idle_bytes(plain_tables(self.shape.level(level))), 1),
            };
            limit.is_over(bytes, run_count).then(|| Over::new(level, limit, bytes, run_count))
        };
        by_score((0..self.shape.levels.len() as u32).filter_map(over).collect())
    }

    fn idle_bytes(&self, tables: &[Arc<Table>]) -> u64 {
        let is_idle = |table: &&Arc<Table>| self.is_idle(std::slice::from_ref(table));
        tables.iter().filter(is_idle).map(|table| table.bytes).sum()
    }

    /// Brings a level that another policy left behind (several runs, or overlapping tables) into
    /// one run, in place: a store may be reopened under any policy. Chooses the shallowest such
    /// level that is idle. O(levels) if there is none.
    fn reshape(&self) -> Option<Plan> {
        (1..self.shape.levels.len() as u32).find_map(|index| {
            let why = match self.shape.level(index) {
                level if is_plain(level) => return None,
                Level::Runs(runs) => format!("L{index} holds {} runs, not 1", runs.len()),
                Level::Overlapping(_) => format!("L{index} holds overlapping tables, not 1 run"),
            };
            Some(Plan { why, ..self.make_one_run(index)? })
        })
    }

    /// Makes one run of all tables of a level: lone tables move, the rest is compacted. `None` if a
    /// table of the level is busy, or if a job writes to the same keys there. If the tables
    /// overlap, a job that writes anywhere in the level counts, since it would find the level with
    /// another layout. The caller adds the reason to the plan.
    pub(crate) fn make_one_run(&self, index: u32) -> Option<Plan> {
        let level = self.shape.level(index);
        let is_runs = matches!(level, Level::Runs(_));
        let is_taken = level.tables().any(|table| self.busy.tables.contains(&table.id));
        if is_taken || !is_runs && self.busy.writes_into(index) {
            return None;
        }
        let groups = connect(level_rows(index, level));
        if collides(&groups, index, self.busy) {
            return None;
        }
        // A lone table of the newest run is already in the output run. Overlapping tables must all
        // leave, because otherwise the level could not become a level of runs.
        Some(plan_groups(groups, self.output_to(index), |lone| is_runs && lone.run == 0))
    }
}
