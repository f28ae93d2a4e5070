//! Shared by the tiered policies: levels keep several runs, and sink whole. Not a policy: tiering,
//! lazy leveling and fluid are [`Tiered`] under different [`Keep`]s.
//!
//! A level keeps at most `max_runs` runs, and its runs are formed in one of two ways:
//!
//! * *arrivals stay separate* (tiering): each sinking level makes one new run below and reads
//!   nothing there. A level sinks when it would have `max_runs + 1` runs, whatever its size is.
//! * *arrivals gather* (leveling, and everything between): sinking tables compact with the newest
//!   run below if both fit in a share of capacity / `max_runs`, or if no further run is allowed.
//!   The level sinks above its capacity, base * T^(i-1) bytes.
//!
//! The capacity of a last level that gathers below levels of arrivals (lazy leveling) is T times
//! the bytes that sink into it, and is computed at that time: the size of a level of arrivals
//! depends on the size of flushes, not on `base_bytes`. With the capacities of leveling, and a
//! level 1 no larger than level 0 (the default), each arrival alone would outgrow the last level.
//!
//! The last level is the deepest that contains a table, but at least level 1. A pick is the first
//! of these:
//!
//! 1. Deepen: the last level becomes the next deeper level if it gathers, contains one run and is
//!    outgrown. This changes only metadata. (A last level of several runs sinks, which makes them
//!    one.)
//! 2. Reshape, in place, into one run: a level of overlapping tables; a gathering level with more
//!    runs than allowed that is within its capacity. Such levels remain from another policy, or
//!    after the last level became empty.
//! 3. Sink the level with the highest score. A blocked level yields to the next one. All its runs
//!    sink into one run of the next level. (Level 0 sinks at `l0_trigger`, and only the runs that
//!    are idle from the oldest on.) A component of key overlap that is one table moves, or stays if
//!    it is in the target already: a load in key order rewrites nothing.
//! 4. If nothing can sink, a level that waits with [`waiting::PATIENCE`] times too many runs
//!    compacts its newest runs inside itself. The job that blocks it may rewrite the last level and
//!    take long. Without this rule, reads would have to probe a further run for each arrival
//!    meanwhile.
//!
//! Age order (I1), after the running jobs finish in any order:
//!
//! * Runs leave a level oldest first and without gaps ([`Job::idle_suffix`]), and arrive in the
//!   level below, as its newest run or in that run. So a single job keeps the order.
//! * One job at a time writes into a level from above. Two might finish in the wrong order.
//! * A job reads only the newest run of its target, and owns the tables that it overlaps there. If
//!   that run is busy, it is sinking (no other job writes there), and the job makes a new run.
//! * A job that writes inside a level owns the runs that it compacts, and the output gets the slot
//!   of the newest.
//!
//! Run ids: outputs get the id of the run that they join, or else of the newest sinking run, which
//! leaves its level. If the target already has that id (leveled policies name runs after levels),
//! outputs get the next free one. It stays free, since no other job writes there.

use crate::options::PolicyOptions;
use crate::overlap::{Output, Row, bytes, connect, plan_groups, run_rows};
use crate::policies::leveled::{self, Over};
use crate::policies::waiting;
use crate::policy::{CompactionPolicy, Job, LevelTarget};
use crate::shape::plan::Plan;
use crate::shape::{Level, Run, RunId, RunSlot, Shape};
use crate::text::format_bytes;

/// How many runs a level keeps, and how they are formed.
#[derive(Clone, Copy)]
pub(crate) struct Keep {
    /// The most runs. At least 1.
    pub max_runs: u32,
    /// Whether arrivals gather in runs; otherwise each is a run of its own.
    pub gathers: bool,
}

impl Keep {
    /// T - 1 runs, one per arrival: the T-th makes the level sink.
    pub fn arrivals(options: &PolicyOptions) -> Keep {
        Keep { max_runs: options.numbers.size_ratio - 1, gathers: false }
    }

    /// This many runs, each with an even share of the level.
    pub fn gathered(max_runs: u32) -> Keep {
        Keep { max_runs, gathers: true }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// For the levels above the last.
    pub above: Keep,
    /// For the last level.
    pub last: Keep,
}

pub(crate) struct Tiered {
    pub name: &'static str,
    pub doc: &'static str,
    pub rules: fn(&PolicyOptions) -> Rules,
}

impl CompactionPolicy for Tiered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        let (busy, heat) = Default::default();
        let job = Job { shape, busy: &busy, heat: &heat, options };
        let tree = Tree::new(job, (self.rules)(options));
        (0..=tree.last + 1).map(|level| tree.target(level)).collect()
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        let tree = Tree::new(*job, (self.rules)(job.options));
        tree.deepen()
            .or_else(|| tree.reshape())
            .or_else(|| tree.over_target().iter().find_map(|over| tree.sink(over)))
            .or_else(|| tree.compact_waiting())
    }
}

/// A tree under some rules.
struct Tree<'a> {
    job: Job<'a>,
    rules: Rules,
    /// The deepest level that contains a table; at least 1.
    last: u32,
}

impl<'a> Tree<'a> {
    fn new(job: Job<'a>, rules: Rules) -> Tree<'a> {
        Tree { job, rules, last: job.shape.deepest().unwrap_or(0).max(1) }
    }

    fn keep(&self, level: u32) -> Keep {
        if level >= self.last { self.rules.last } else { self.rules.above }
    }

    fn target(&self, level: u32) -> LevelTarget {
        let max_runs = self.keep(level).max_runs;
        match level {
            0 => leveled::target(0, self.job.options),
            _ => LevelTarget { capacity_bytes: self.capacity_bytes(level), max_runs },
        }
    }

    /// Unbounded, unless the level gathers and has a capacity of its own.
    fn capacity_bytes(&self, level: u32) -> u64 {
        let is_fed_by_runs = level >= self.last && !self.rules.above.gathers;
        match self.keep(level).gathers && !is_fed_by_runs {
            true => leveled::capacity_bytes(level, self.job.options),
            false => u64::MAX,
        }
    }

    /// The bytes of the last level and its limit, if it gathers and exceeds this limit.
    fn outgrown(&self) -> Option<(u64, u64)> {
        if !self.keep(self.last).gathers || self.last + 1 >= Shape::MAX_LEVELS {
            return None;
        }
        let runs = self.job.shape.level(self.last).runs();
        let mut limit_bytes = self.capacity_bytes(self.last);
        if !self.rules.above.gathers {
            let above = self.last - 1;
            let arriving = self.job.idle_suffix(above);
            if !self.target(above).is_over(0, arriving.len()) {
                return None;
            }
            // Together with the arriving bytes, this makes T times those bytes.
            let times = u64::from(self.job.options.numbers.size_ratio - 1);
            limit_bytes = bytes_of(arriving).saturating_mul(times);
        }
        let bytes = bytes_of(runs);
        (bytes > limit_bytes).then_some((bytes, limit_bytes))
    }

    /// Rule 1. Jobs that write into either level would put new tables below old ones, or find that
    /// their level no longer exists.
    fn deepen(&self) -> Option<Plan> {
        let (from, to) = (self.last, self.last + 1);
        let [run] = self.job.shape.level(from).runs() else {
            return None;
        };
        let (bytes, limit_bytes) = self.outgrown()?;
        if self.job.busy.writes_into(from)
            || self.job.busy.writes_into(to)
            || !self.job.is_idle(&run.tables)
        {
            return None;
        }
        let (bytes, limit) = (format_bytes(bytes), format_bytes(limit_bytes));
        let why = format!("L{from} is the last and holds {bytes} of {limit}; it becomes L{to}");
        Some(Plan { relabel: vec![(from, to)], why, ..Plan::default() })
    }

    /// Rule 2.
    fn reshape(&self) -> Option<Plan> {
        (1..self.job.shape.levels.len() as u32).find_map(|index| {
            let level = self.job.shape.level(index);
            let why = match level {
                Level::Overlapping(_) => format!("L{index} holds overlapping tables, not runs"),
                Level::Runs(runs) if self.is_crowded(index, runs) => {
                    format!("L{index} holds {} runs of {}", runs.len(), self.keep(index).max_runs)
                }
                Level::Runs(_) => return None,
            };
            let plan = self.job.make_one_run(index)?;
            Some(Plan { why: format!("{why}; all into one"), ..plan })
        })
    }

    /// Whether a level has too many runs, and sinking does not help. Levels of arrivals sink,
    /// except the deepest that a shape can have.
    fn is_crowded(&self, level: u32, runs: &[Run]) -> bool {
        let keep = self.keep(level);
        runs.len() as u64 > u64::from(keep.max_runs)
            && (level + 1 >= Shape::MAX_LEVELS
                || keep.gathers && bytes_of(runs) <= self.capacity_bytes(level))
    }

    /// The levels of rule 3, highest score first. Busy runs do not count, because they are already
    /// sinking.
    fn over_target(&self) -> Vec<Over> {
        let levels = 0..self.last.min(Shape::MAX_LEVELS - 2) + 1;
        leveled::by_score(levels.filter_map(|level| self.over(level)).collect())
    }

    fn over(&self, level: u32) -> Option<Over> {
        let runs = self.job.idle_suffix(level);
        let mut limit = self.target(level);
        let is_due = match self.keep(level).gathers && level > 0 {
            false => limit.is_over(0, runs.len()),
            true if level < self.last => bytes_of(runs) > limit.capacity_bytes,
            // Rule 1 handles a last level of one run.
            true => match self.outgrown().filter(|_| runs.len() > 1) {
                Some((_, limit_bytes)) => {
                    limit.capacity_bytes = limit_bytes;
                    true
                }
                None => false,
            },
        };
        let bytes = if limit.capacity_bytes == u64::MAX { 0 } else { bytes_of(runs) };
        is_due.then(|| Over::new(level, &limit, bytes, runs.len()))
    }

    /// Rule 3.
    fn sink(&self, over: &Over) -> Option<Plan> {
        let to = over.level + 1;
        let below = self.job.shape.level(to);
        let is_runs = matches!(below, Level::Runs(_));
        if self.job.busy.writes_into(to) || !is_runs {
            return None;
        }
        let runs = self.job.idle_suffix(over.level);
        let mut rows = run_rows(over.level, runs);
        let joined = self.joined(to, bytes(&rows));
        if let Some(run) = joined {
            rows.push(Row::new(to, 0, &run.tables));
        }
        let id = joined.map_or_else(|| free_id(below.runs(), runs[0].id), |run| run.id);
        let cut = self.job.options.cut();
        let output = Output { level: to, slot: RunSlot::New(id), cut };
        let mut plan = plan_groups(connect(rows), output, |lone| lone.level == to);
        let what = match (plan.compactions.is_empty(), joined) {
            (true, _) => format!("nothing overlaps, {} tables move", plan.moves.len()),
            (false, Some(run)) => {
                format!("with r{id} of L{to}, {}", format_bytes(run.bytes()))
            }
            (false, None) => format!("a new run of L{to}"),
        };
        plan.why = format!("{}; {what}", over.reason);
        Some(plan)
    }

    /// The run of the target with which this many bytes from above compact; `None` if they make a
    /// run of their own. Sinking runs do not count.
    fn joined(&self, to: u32, incoming_bytes: u64) -> Option<&'a Run> {
        let runs = self.job.shape.level(to).runs();
        let is_idle = |run: &Run| self.job.is_idle(&run.tables);
        let newest = runs.first().filter(|run| is_idle(run))?;
        let keep = self.keep(to);
        if !keep.gathers {
            return None;
        }
        let is_full = runs.iter().filter(|run| is_idle(run)).count() as u64 >= keep.max_runs.into();
        let capacity = match self.capacity_bytes(to) {
            u64::MAX => incoming_bytes.saturating_mul(self.job.options.numbers.size_ratio.into()),
            bytes => bytes,
        };
        let share = capacity / u64::from(keep.max_runs);
        let fits = || newest.bytes().saturating_add(incoming_bytes) <= share;
        (is_full || fits()).then_some(newest)
    }

    /// Rule 4. A job that writes into the level from above would not find its newest run there.
    fn compact_waiting(&self) -> Option<Plan> {
        (0..self.job.shape.levels.len() as u32).find_map(|level| {
            if level > 0 && self.job.busy.writes_into(level) {
                return None;
            }
            let trigger = self.target(level).max_runs.saturating_add(1);
            waiting::compact_newest(&self.job, level, trigger)
        })
    }
}

fn bytes_of(runs: &[Run]) -> u64 {
    runs.iter().map(Run::bytes).sum()
}

/// The wanted id, or the next one that no run has.
fn free_id(runs: &[Run], wanted: RunId) -> RunId {
    let is_free = |id: &RunId| runs.iter().all(|run| run.id != *id);
    (wanted..=RunId::MAX).find(is_free).unwrap_or(0)
}
