//! Entries that expire. The clock of the model is the number of flushes. An entry expires when a
//! given number of bytes has been written after it.
//!
//! As in the engine, a policy sees expired entries as tombstones, and a table with nothing else is
//! dropped without being read. A compaction drops expired entries and tombstones if no table
//! outside it and none below its output covers their keys. Otherwise an expired entry becomes a
//! tombstone, which has the size of an entry here. The model assumes that the remaining entries are
//! spread evenly over the keys, and that each output has its share of every instant.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Simulator, mul_div};
use runstone_policy::policy::expired_plan;
use runstone_policy::shape::expiry::{Expiries, ExpiryCounts, ExpiryStep};
use runstone_policy::shape::plan::{Busy, Compaction, Plan};
use runstone_policy::shape::{Table, TableId};

/// The entries of its inputs that a compaction keeps, before it joins equal keys.
pub(super) struct Left {
    /// First key, last key and number of entries of each input that keeps any.
    pub(super) spreads: Vec<(u64, u64, u64)>,
    entries: u64,
    tombstones: u64,
    expiries: ExpiryCounts,
}

impl Simulator<'_> {
    /// The same tree, but an entry expires once `ttl_bytes` bytes have been written after it.
    pub fn with_expiry(self, ttl_bytes: u64) -> Self {
        let ttl_flushes = ttl_bytes.div_ceil(self.workload.flush_bytes.max(1)).max(1);
        Simulator { ttl_flushes: Some(ttl_flushes), ..self }
    }

    /// The expiries of a memtable that is flushed now.
    pub(super) fn new_expiries(&self, entries: u64) -> Expiries {
        self.ttl_flushes.map_or(Expiries::default(), |ttl| {
            let at = self.flush_count + ttl;
            Expiries::even(entries, at, at)
        })
    }

    /// The tables whose entries have all expired, which are dropped without being read.
    pub(super) fn unread_drops(&self) -> Option<Plan> {
        self.ttl_flushes?;
        expired_plan(&self.shape, &Busy::default(), |_| self.flush_count)
    }

    /// Counts what a plan drops, and returns the deepest level from which it drops tables.
    pub(super) fn count_drops(&mut self, plan: &Plan) -> u32 {
        let drops: BTreeSet<TableId> = plan.drops.iter().copied().collect();
        let mut deepest = 0;
        if !drops.is_empty() {
            for (level, table) in self.shape.tables().filter(|(_, one)| drops.contains(&one.id)) {
                deepest = deepest.max(level);
                self.totals.dropped_bytes += u128::from(table.bytes);
            }
        }
        deepest
    }

    /// How many of this many entries have not expired.
    pub(super) fn unexpired(&self, entries: u64) -> u64 {
        let ttl = self.ttl_flushes.map(|ttl| ttl * self.workload.entries_per_flush());
        entries.min(ttl.unwrap_or(u64::MAX))
    }

    /// The entries that a compaction keeps of its inputs.
    pub(super) fn left_of(&self, compaction: &Compaction, inputs: &[Arc<Table>]) -> Left {
        let is_lowest = self.ttl_flushes.is_some() && self.is_lowest(compaction, inputs);
        let expiries = ExpiryCounts::default();
        let mut left = Left { spreads: Vec::new(), entries: 0, tombstones: 0, expiries };
        for table in inputs {
            let expired = table.expiries.surely_expired(self.flush_count);
            let tombstones = table.tombstones + expired;
            let gone = if is_lowest { tombstones } else { 0 };
            let pieces = self.pieces_of(table, table.entries.saturating_sub(gone));
            let entries: u64 = pieces.iter().map(|(.., entries)| entries).sum();
            left.spreads.extend(pieces);
            left.entries += entries;
            left.tombstones += (tombstones - gone).min(entries);
            left.add_expiries(&table.expiries, self.flush_count);
        }
        left
    }

    /// Whether no table outside a compaction holds older versions of its keys.
    fn is_lowest(&self, compaction: &Compaction, inputs: &[Arc<Table>]) -> bool {
        let Some(min_key) = inputs.iter().map(|table| &table.min_key).min() else { return true };
        let Some(max_key) = inputs.iter().map(|table| &table.max_key).max() else { return true };
        let newest = inputs.iter().map(|table| table.max_seq).max().unwrap_or(0);
        let levels = self.shape.levels.iter().skip(compaction.output_level as usize);
        let mut others = levels.flat_map(|level| level.tables());
        !others.any(|table| {
            table.overlaps(min_key, max_key)
                && table.min_seq < newest
                && !inputs.iter().any(|input| input.id == table.id)
        })
    }
}

impl Left {
    fn add_expiries(&mut self, of_table: &Expiries, now: u64) {
        let lasting = of_table.steps().iter().filter(|step| step.at_ms > now);
        lasting.for_each(|step| self.expiries.add_all(*step));
    }

    /// Gives an output its share of the expiring entries and of the tombstones.
    pub(super) fn share_with(&self, table: &mut Table) {
        let share = |all: u64| mul_div(all, table.entries, self.entries).min(table.entries);
        table.tombstones = share(self.tombstones);
        let mut all = 0;
        let steps = self.expiries.clone().finish();
        let part = |step: &ExpiryStep| {
            let before = share(all);
            all += step.entries;
            ExpiryStep { at_ms: step.at_ms, entries: share(all) - before }
        };
        let parts: Vec<_> =
            steps.steps().iter().map(part).filter(|step| step.entries > 0).collect();
        let first_ms = parts.first().map_or(0, |step| step.at_ms.min(steps.first_ms));
        table.expiries = Expiries::of(first_ms, parts).unwrap_or_default();
    }
}
