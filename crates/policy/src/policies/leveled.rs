//! What the leveled policies share: level 0 holds flush runs, every deeper level one run, each T
//! times the capacity of the one above. Not a policy: one is a [`Leveled`] with its own rules.
//!
//! 1. A level that another policy left behind becomes one run first ([`reshape`]).
//! 2. Then the levels over target get their turn, highest score first. One that is blocked lets
//!    the next one go.
//! 3. If nothing sinks, the policy's `idle` rule has the last word.
//!
//! Run ids. A flush chooses the id of its level-0 run (the engine's business). The one run of a
//! level i >= 1 has id i: run ids are looked up per level, so that is unique. A level that another
//! policy left with one run keeps that run's id. Outputs always go to `RunSlot::New`, which joins
//! the run if it is there: `Join` would fail at install if a job that ran meanwhile emptied the
//! level and its run with it.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::overlap::{Output, collides, connect, level_rows, plan_groups};
use crate::policy::{CompactionPolicy, LevelTarget};
use crate::shape::plan::{Busy, Heat, Plan};
use crate::shape::{Level, Run, RunSlot, Shape, Table};
use crate::text::format_bytes;

/// A leveled policy.
pub(crate) struct Leveled {
    pub name: &'static str,
    pub doc: &'static str,
    pub targets: fn(&Shape, &PolicyOptions) -> Vec<LevelTarget>,
    /// Goes before all levels over target.
    pub first: fn(&Job) -> Option<Plan>,
    /// What becomes of a level over target.
    pub sink: fn(&Job, &Over) -> Option<Plan>,
    /// What is left to do if nothing sinks.
    pub idle: fn(&Job) -> Option<Plan>,
}

/// The arguments of `pick`, once.
pub(crate) struct Job<'a> {
    pub shape: &'a Shape,
    pub busy: &'a Busy,
    pub options: &'a PolicyOptions,
}

/// A rule of a [`Leveled`] that has none.
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

    fn pick(
        &self,
        shape: &Shape,
        busy: &Busy,
        _heat: &Heat,
        options: &PolicyOptions,
    ) -> Option<Plan> {
        let job = Job { shape, busy, options };
        reshape(shape, busy, options)
            .or_else(|| (self.first)(&job))
            .or_else(|| {
                let over = over_target(shape, busy, &self.targets(shape, options));
                over.iter().find_map(|over| (self.sink)(&job, over))
            })
            .or_else(|| (self.idle)(&job))
    }
}

/// A level over target.
pub(crate) struct Over {
    pub level: u32,
    /// How far, in thousandths of its target.
    pub score_permille: u64,
    /// `L1 over target: 128M of 50M`, for the plan's why.
    pub reason: String,
}

impl Over {
    /// What that much is of the limit. The reason names runs if it is they that are too many.
    pub fn new(level: u32, limit: &LevelTarget, bytes: u64, run_count: usize) -> Over {
        let (have, most) = match bytes > limit.capacity_bytes {
            true => (format_bytes(bytes), format_bytes(limit.capacity_bytes)),
            // The count that triggers is one more than the level may hold.
            false => (format!("{run_count} runs"), (u64::from(limit.max_runs) + 1).to_string()),
        };
        Over {
            level,
            score_permille: limit.score_permille(bytes, run_count),
            reason: format!("L{level} over target: {have} of {most}"),
        }
    }
}

/// Capacity of a level in bytes: base * T^(level - 1), saturating. Unbounded at level 0 (judged
/// by runs) and at the deepest level that a shape can have, below which nothing can go.
///
/// With T >= 2 and a base of 4 KiB or more, the capacity saturates at level 53, so that data never
/// reaches the deepest level by growth alone.
pub(crate) fn capacity_bytes(level: u32, options: &PolicyOptions) -> u64 {
    if level == 0 || level + 1 >= Shape::MAX_LEVELS {
        return u64::MAX;
    }
    u64::from(options.size_ratio).saturating_pow(level - 1).saturating_mul(options.base_bytes)
}

/// Target of one level.
pub(crate) fn target(level: u32, options: &PolicyOptions) -> LevelTarget {
    let max_runs = match level {
        0 => options.l0_trigger.saturating_sub(1),
        _ => 1,
    };
    LevelTarget { capacity_bytes: capacity_bytes(level, options), max_runs }
}

/// Targets of all levels down to one below the deepest in use.
pub(crate) fn targets(shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
    let last = shape.deepest().map_or(1, |deepest| deepest + 1);
    (0..=last).map(|level| target(level, options)).collect()
}

/// The runs of a level that may sink: from the oldest up to the first that has a busy table. A
/// newer run never sinks past an older one (I1), so a busy run blocks all newer ones.
pub(crate) fn idle_suffix<'a>(shape: &'a Shape, level: u32, busy: &Busy) -> &'a [Run] {
    let runs = shape.level(level).runs();
    let from = runs.iter().rposition(|run| !is_idle(&run.tables, busy)).map_or(0, |at| at + 1);
    &runs[from..]
}

/// Whether no table is busy.
pub(crate) fn is_idle(tables: &[Arc<Table>], busy: &Busy) -> bool {
    busy.tables.is_empty() || tables.iter().all(|table| !busy.tables.contains(&table.id))
}

/// Whether the level is as a leveled policy wants it: at most one run, none that overlaps itself.
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

/// Where outputs go in a level: its newest run, or a new one under the level's own number.
pub(crate) fn output_to(shape: &Shape, level: u32, options: &PolicyOptions) -> Output {
    let id = shape.level(level).runs().first().map_or(u64::from(level), |run| run.id);
    Output { level, slot: RunSlot::New(id), cut: options.cut() }
}

/// Levels over their `targets`, highest score first, shallow first among equals. Busy tables do
/// not count: they are on their way. A level that is not plain is left out, [`reshape`] comes first
/// there; so is one above such a level. O(tables log busy).
pub(crate) fn over_target(shape: &Shape, busy: &Busy, targets: &[LevelTarget]) -> Vec<Over> {
    let mut found = Vec::new();
    for level in 0..shape.levels.len() as u32 {
        let is_source = level == 0 || is_plain(shape.level(level));
        if !is_source || !is_plain(shape.level(level + 1)) {
            continue;
        }
        let limit = targets.get(level as usize).unwrap_or(&LevelTarget::UNBOUNDED);
        let (bytes, run_count) = match level {
            0 => (0, idle_suffix(shape, 0, busy).len()),
            _ => (idle_bytes(plain_tables(shape.level(level)), busy), 1),
        };
        if !limit.is_over(bytes, run_count) {
            continue;
        }
        found.push(Over::new(level, limit, bytes, run_count));
    }
    by_score(found)
}

/// Highest score first. Stable: equal scores stay shallow first.
pub(crate) fn by_score(mut found: Vec<Over>) -> Vec<Over> {
    found.sort_by_key(|over| std::cmp::Reverse(over.score_permille));
    found
}

fn idle_bytes(tables: &[Arc<Table>], busy: &Busy) -> u64 {
    let is_free = |t: &&Arc<Table>| busy.tables.is_empty() || !busy.tables.contains(&t.id);
    tables.iter().filter(is_free).map(|table| table.bytes).sum()
}

/// Brings a level that another policy left behind (several runs, or overlapping tables) into one
/// run, in place: a store may be reopened under any policy. The shallowest such level that is idle.
/// O(levels) if there is none.
pub(crate) fn reshape(shape: &Shape, busy: &Busy, options: &PolicyOptions) -> Option<Plan> {
    (1..shape.levels.len() as u32).find_map(|index| {
        let level = shape.level(index);
        if is_plain(level) {
            return None;
        }
        let mut plan = into_one_run(shape, index, busy, options)?;
        plan.why = match level {
            Level::Runs(runs) => format!("L{index} holds {} runs, not 1", runs.len()),
            Level::Overlapping(_) => format!("L{index} holds overlapping tables, not 1 run"),
        };
        Some(plan)
    })
}

/// All of a level into one run of it: lone tables move, the rest is compacted. `None` if any of it
/// is busy, or if a job writes there: into the same keys, or, where the tables overlap, anywhere,
/// since it would find a level of another layout. The caller says why.
pub(crate) fn into_one_run(
    shape: &Shape,
    index: u32,
    busy: &Busy,
    options: &PolicyOptions,
) -> Option<Plan> {
    let level = shape.level(index);
    let is_runs = matches!(level, Level::Runs(_));
    let is_taken = level.tables().any(|table| busy.tables.contains(&table.id));
    if is_taken || !is_runs && busy.writes_into(index) {
        return None;
    }
    let groups = connect(level_rows(index, level));
    if collides(&groups, index, busy) {
        return None;
    }
    // A lone table of the newest run is where the outputs go. Overlapping tables all leave, or the
    // level could not become one of runs.
    let output = output_to(shape, index, options);
    Some(plan_groups(groups, output, |lone| is_runs && lone.run == 0))
}
