//! Shared by the stack-based policies: all data is in level 0, a stack of runs by age, and a
//! compaction replaces neighbouring runs with one run. Not a policy: a [`Choose`] decides which
//! runs are compacted.
//!
//! A pick is the first of these:
//!
//! 1. Take over: tables that another policy left below level 0 move up. The shallowest such level
//!    comes first: its runs become the oldest of level 0, in their order, and nothing is rewritten.
//!    A level of overlapping tables first becomes one run in place.
//! 2. The compaction that the policy chooses. Tables of the chosen runs that overlap no other move
//!    to the output run, so a load in key order rewrites nothing.
//!
//! Age order (I1), after the running jobs finish in any order:
//!
//! * A compaction uses runs that are neighbours and idle, and owns all of their tables, including
//!   those that move from the newest run into itself. The output gets the slot and the id of the
//!   newest of these runs, which keeps its slot until then because it is busy. Runs that arrive
//!   meanwhile are added on top (flushes) or at the bottom (rule 1).
//! * Tables that move up by rule 1 are older than all of level 0 and newer than all tables that
//!   stay below. Neither would be true if a job put newer data below level 0 meanwhile. So rule 1
//!   waits for every job that involves a level below 0; and while it runs, it owns the key range of
//!   its tables in all levels that they pass ([`Plan::ranges`]). So if the store is switched to
//!   another policy at that time, that policy writes nothing there either.
//!
//! Run ids. Runs that move up get the smallest ids from 1 on that level 0 does not use. These are
//! no larger than the number of runs in the tree, which is no larger than the number of tables,
//! which is no larger than the largest table id. Flushes name their runs after future tables, so no
//! id occurs twice.
//!
//! Runs that move up have no flush number (0): they count as older than all flushes.

use std::ops::Range;

use crate::options::PolicyOptions;
use crate::overlap::{Output, Row, bytes, connect, plan_groups, run_rows};
use crate::policies::binomial_layout::{self, Tree};
use crate::policy::{CompactionPolicy, Job, LevelTarget};
use crate::shape::plan::Plan;
use crate::shape::{Level, Run, RunId, RunSlot, Shape};
use crate::text::format_bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Their slots in level 0, at least two.
    pub slots: Range<usize>,
    /// For the plan's why.
    pub reason: String,
}

pub(crate) enum Choose {
    /// By the sizes of the newest runs, newest first. While a compaction runs, the runs on top of
    /// it are a stack of their own. They do not wait for the compaction, so their number stays
    /// bounded.
    BySizes(fn(&[u64], &PolicyOptions) -> Option<Choice>),
    /// By age: the runs of the wanted layout end at certain flushes. Several compactions may be due
    /// at once.
    ByEnds(Tree),
}

pub(crate) struct Stack {
    pub name: &'static str,
    pub doc: &'static str,
    /// The most runs for which no compaction is due.
    pub max_runs: fn(&PolicyOptions) -> u32,
    pub choose: Choose,
}

impl CompactionPolicy for Stack {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    /// Below level 0 no run is wanted.
    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        let target = |max_runs| LevelTarget { capacity_bytes: u64::MAX, max_runs };
        let below = shape.levels.len().max(1);
        let stack = target((self.max_runs)(options));
        std::iter::once(stack).chain((0..below).map(|_| target(0))).collect()
    }

    /// The bytes of the wanted compactions without the largest run of each. That run is in its
    /// place already, and the others wait to join it. The compaction rewrites them all. But even a
    /// stack without a backlog may rewrite the whole store, which is no reason to slow writers
    /// down. O(tables).
    fn debt_bytes(&self, shape: &Shape, options: &PolicyOptions) -> u64 {
        let runs = shape.level(0).runs();
        let sizes: Vec<u64> = runs.iter().map(Run::bytes).collect();
        let joining = |choice: Choice| {
            let sizes = &sizes[choice.slots];
            sizes.iter().sum::<u64>() - sizes.iter().max().copied().unwrap_or(0)
        };
        match self.choose {
            Choose::BySizes(choose) => choose(&sizes, options).map_or(0, joining),
            Choose::ByEnds(tree) => groups(tree, shape, options).into_iter().map(joining).sum(),
        }
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        let runs = job.shape.level(0).runs();
        take_over(job).or_else(|| Some(plan_of(runs, self.choice(runs, job)?, job.options)))
    }
}

impl Stack {
    /// The choice of rule 2.
    fn choice(&self, runs: &[Run], job: &Job<'_>) -> Option<Choice> {
        let is_idle = |run: &Run| job.is_idle(&run.tables);
        match self.choose {
            Choose::BySizes(choose) => {
                let idle = runs.iter().take_while(|run| is_idle(run));
                choose(&idle.map(Run::bytes).collect::<Vec<u64>>(), job.options)
            }
            Choose::ByEnds(tree) => {
                let mut due = groups(tree, job.shape, job.options).into_iter();
                due.find(|choice| runs[choice.slots.clone()].iter().all(is_idle))
            }
        }
    }
}

/// Rule 2.
fn plan_of(runs: &[Run], choice: Choice, options: &PolicyOptions) -> Plan {
    let Choice { slots, reason } = choice;
    assert!(slots.len() >= 2, "one run is compacted already");
    let slot = RunSlot::New(runs[slots.start].id);
    let output = Output { level: 0, slot, cut: options.cut() };
    let rows = run_rows(0, &runs[slots.clone()]);
    let size = format_bytes(bytes(&rows));
    let plan = plan_groups(connect(rows), output, |_| false);
    let why = format!("{reason}; {} of {} runs, {size}", slots.len(), runs.len());
    Plan { why, ..plan }
}

/// Rule 1.
fn take_over(job: &Job<'_>) -> Option<Plan> {
    let Job { shape, busy, options, .. } = *job;
    let below = || (1u32..).zip(shape.levels.iter().skip(1));
    let (index, level) = below().find(|(_, level)| !level.is_empty())?;
    let is_busy = !busy.tables.is_empty()
        && below().any(|(_, level)| level.tables().any(|table| busy.tables.contains(&table.id)));
    if is_busy || busy.ranges.iter().any(|range| range.level > 0) {
        return None;
    }
    let Level::Runs(runs) = level else {
        let plan = job.make_one_run(index)?;
        let why = format!("L{index} holds overlapping tables; one run of them comes up next");
        return Some(Plan { why, ..plan });
    };
    let ids = free_ids(shape.level(0).runs(), runs.len());
    let to = |row: &Row<'_>| Output {
        level: 0,
        slot: RunSlot::Oldest(ids[row.run]),
        cut: options.cut(),
    };
    let rows = run_rows(index, runs);
    Some(Plan {
        moves: rows.iter().flat_map(|row| row.moves(to(row))).collect(),
        why: format!("all data belongs in L0: {} runs of L{index} become its oldest", runs.len()),
        ..Plan::default()
    })
}

/// The smallest ids from 1 on that no run has.
fn free_ids(runs: &[Run], count: usize) -> Vec<RunId> {
    let is_free = |id: &RunId| runs.iter().all(|run| run.id != *id);
    (1..).filter(is_free).take(count).collect()
}

/// The compactions that bring the stack to its layout, newest first. Each compacts the runs that
/// belong to one run of the layout, if there are several. A run belongs to the first run of the
/// layout that ends at or after it. Flush numbers decrease from slot to slot, so each such group is
/// contiguous.
fn groups(tree: Tree, shape: &Shape, options: &PolicyOptions) -> Vec<Choice> {
    let runs = shape.level(0).runs();
    let ends =
        binomial_layout::ends(tree, shape.state.flush_count, options.numbers.stack_runs.into());
    let place = |run: &Run| ends.partition_point(|end| *end < run.last_flush);
    let mut found = Vec::new();
    let mut from = 0;
    for group in runs.chunk_by(|a, b| place(a) == place(b)) {
        let slots = from..from + group.len();
        from = slots.end;
        if slots.len() >= 2 {
            let place = place(&group[0]);
            let first = place.checked_sub(1).map_or(1, |older| ends[older] + 1);
            let last = ends.get(place).or(ends.last()).copied().unwrap_or(0);
            let reason = format!("run {place} of the layout is flushes {first} to {last}");
            found.push(Choice { slots, reason });
        }
    }
    found
}
