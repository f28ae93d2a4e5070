//! Counts the work of a plan, for counters and events.

use std::sync::Arc;

use runstone_policy::plan::{Compaction, Plan};
use runstone_policy::shape::Table;

use crate::jobs::compaction::Outcome;
use crate::jobs::output::Written;
use crate::tree::version::Version;

/// What a plan did, for counters and events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) input_tables: usize,
    pub(super) output_tables: usize,
    pub(super) moved_tables: usize,
    pub(super) parts: usize,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) moved_bytes: u64,
    pub(super) dropped: u64,
}

impl Totals {
    pub(super) fn of(version: &Version, plan: &Plan, done: &[Outcome]) -> Totals {
        let bytes_of = |id: u64| version.handle(id).map_or(0, |handle| handle.meta().bytes);
        let mut totals = Totals::default();
        for outcome in done {
            totals.add_outputs(&outcome.written);
            totals.add_moves(&outcome.moved);
            totals.parts += outcome.parts;
        }
        for id in plan.compactions.iter().flat_map(Compaction::input_ids) {
            totals.input_tables += 1;
            totals.read_bytes += bytes_of(id);
        }
        totals.read_bytes -= totals.moved_bytes;
        totals.input_tables += plan.drops.len();
        totals.moved_tables += plan.moves.len();
        totals.moved_bytes += plan.moves.iter().map(|step| bytes_of(step.table)).sum::<u64>();
        totals
    }

    pub(super) fn add_outputs(&mut self, compacted: &Written) {
        self.output_tables += compacted.tables.len();
        self.written_bytes += compacted.tables.iter().map(|table| table.bytes).sum::<u64>();
        self.dropped += compacted.dropped;
    }

    pub(super) fn add_moves(&mut self, moved: &[Arc<Table>]) {
        self.moved_tables += moved.len();
        self.moved_bytes += moved.iter().map(|table| table.bytes).sum::<u64>();
    }
}
