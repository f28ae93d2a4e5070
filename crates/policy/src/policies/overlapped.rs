//! Shared by the policies whose levels below level 0 have tables that may overlap. Not a policy:
//! adaptive tiering and guards decide which tables leave such a level.
//!
//! Inside such a level there is no order; reads follow rule I3 and compactions drop by rule I4.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::overlap::{Output, connect, plan_groups, run_rows};
use crate::policies::leveled;
use crate::policy::{Job, LevelTarget};
use crate::shape::plan::{Cut, Plan};
use crate::shape::{Level, RunSlot, Shape, Table};

/// The capacities of leveling, without a limit on runs below level 0.
pub(crate) fn targets(shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
    let mut targets = leveled::targets(shape, options);
    for target in targets.iter_mut().skip(1) {
        target.max_runs = u32::MAX;
    }
    targets
}

/// Outputs are added to a level beside its tables.
pub(crate) fn output(level: u32, cut: Cut) -> Output {
    Output { level, slot: RunSlot::Overlapping, cut }
}

impl Job<'_> {
    /// A level that another policy left as runs becomes an overlapping one; nothing is rewritten.
    /// Waits for jobs that write runs into the level.
    pub(crate) fn adopt(&self, cut: Cut) -> Option<Plan> {
        (1..self.shape.levels.len() as u32).find_map(|index| {
            let level = self.shape.level(index);
            let Level::Runs(runs) = level else { return None };
            if runs.is_empty() || self.busy.writes_into(index) || !self.is_level_idle(index) {
                return None;
            }
            let rows = run_rows(index, runs);
            Some(Plan {
                moves: rows.iter().flat_map(|row| row.moves(output(index, cut))).collect(),
                why: format!("L{index} holds {} runs; their tables may overlap now", runs.len()),
                ..Plan::default()
            })
        })
    }

    /// When level 0 has `l0_trigger` idle runs, they are compacted into level 1, each component by
    /// itself. A lone table is moved. Level 1 is not read.
    pub(crate) fn compact_and_split(&self, cut: Cut) -> Option<Plan> {
        let idle = self.idle_suffix(0);
        if idle.len() < self.options.numbers.l0_trigger as usize || !self.can_receive(1) {
            return None;
        }
        let mut plan = plan_groups(connect(run_rows(0, idle)), output(1, cut), |_| false);
        let (have, most) = (idle.len(), self.options.numbers.l0_trigger);
        plan.why =
            format!("L0 over target: {have} runs of {most}; compaction and split, L1 is not read");
        Some(plan)
    }

    pub(crate) fn is_level_idle(&self, index: u32) -> bool {
        let is_busy = |table: &Arc<Table>| self.busy.tables.contains(&table.id);
        self.busy.tables.is_empty() || !self.shape.level(index).tables().any(is_busy)
    }

    /// Whether tables may be placed in a level now. An empty level that a job writes to may become
    /// a level of runs.
    pub(crate) fn can_receive(&self, index: u32) -> bool {
        index < Shape::MAX_LEVELS
            && match self.shape.level(index) {
                Level::Overlapping(_) => true,
                Level::Runs(runs) => runs.is_empty() && !self.busy.writes_into(index),
            }
    }
}
