//! The shape of a tree over time, without data: flushes, picks and merges as metadata. Tells what
//! a policy writes and how many runs a get meets, at sizes that no test can load. Not a model of
//! time, of caches or of concurrency: each flush is followed by all the jobs that it causes.
//!
//! Model. Keys are big-endian u64 below `key_space`. A table is its bounds and a number of distinct
//! keys, spread evenly. A merge of sets of a and b keys within a range of w possible keys holds
//! a + b - a b / w, the expected union of independent even spreads; all integers. Outputs share the
//! range of the merge in proportion to their entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::edit::edit_for;
use crate::options::PolicyOptions;
use crate::plan::{Busy, Heat, Merge, Plan};
use crate::policy::{LevelTarget, MergePolicy};
use crate::shape::{Edit, EditError, Placement, RunSlot, Shape, Table, TableId};

/// How keys arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Every flush spreads over the whole key space. How much is overwritten follows from the
    /// number of entries against `key_space`.
    Uniform,
    /// Ascending: a flush starts after the one before it and takes one key per entry. Wraps around
    /// at the end of the key space.
    Sequential,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimWorkload {
    /// User bytes per flush.
    pub flush_bytes: u64,
    /// Bytes of an entry, key and value. At least 1.
    pub entry_bytes: u64,
    /// Number of possible keys. At least the entries of one flush.
    pub key_space: u64,
    /// How keys arrive.
    pub order: KeyOrder,
    /// Varies the bounds of flushed tables. The same seed gives the same report.
    pub seed: u64,
}

/// One level at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimLevel {
    /// Level number.
    pub level: u32,
    /// Bytes held.
    pub bytes: u64,
    /// Tables held.
    pub table_count: u64,
    /// Runs held.
    pub run_count: u64,
    /// Capacity; `u64::MAX` if unbounded.
    pub capacity_bytes: u64,
}

/// What happened since the simulator was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimReport {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// Bytes that flushes wrote (duplicates within a flush are gone).
    pub flushed_bytes: u64,
    /// Bytes that merges read.
    pub merge_read_bytes: u64,
    /// Bytes that merges wrote.
    pub merged_bytes: u64,
    /// Bytes that changed place without being written.
    pub moved_bytes: u64,
    /// (flushed + merged) / user, in thousandths.
    pub write_amplification_permille: u64,
    /// Runs whose tables cover a key, averaged over the key space, in thousandths: what a get of an
    /// absent key probes without filters.
    pub runs_probed_per_get_permille: u64,
    /// Most level-0 runs at any time.
    pub max_l0_run_count: u64,
    /// Plans carried out.
    pub plan_count: u64,
    /// Non-empty levels, shallow first.
    pub levels: Vec<SimLevel>,
}

/// A tree under one policy and one workload.
pub struct Simulator<'a> {
    policy: &'a dyn MergePolicy,
    options: PolicyOptions,
    workload: SimWorkload,
    shape: Shape,
    next_id: TableId,
    flush_count: u64,
    next_key: u64,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    user_bytes: u64,
    flushed_bytes: u64,
    merge_read_bytes: u64,
    merged_bytes: u64,
    moved_bytes: u64,
    max_l0_run_count: u64,
    plan_count: u64,
}

impl<'a> Simulator<'a> {
    /// An empty tree. The caller has had the policy check the options.
    pub fn new(policy: &'a dyn MergePolicy, options: PolicyOptions, workload: SimWorkload) -> Self {
        Simulator {
            policy,
            options,
            workload,
            shape: Shape::default(),
            next_id: 1,
            flush_count: 0,
            next_key: 0,
            totals: Totals::default(),
        }
    }

    /// Flushes that many memtables, each followed by all the jobs that it causes; then reports on
    /// everything so far. An error means that the policy made a plan that does not fit the shape.
    pub fn run(&mut self, flushes: u64) -> Result<SimReport, EditError> {
        for _ in 0..flushes {
            self.flush()?;
            while let Some(plan) = self.pick() {
                self.carry_out(&plan)?;
            }
        }
        Ok(self.report())
    }

    fn pick(&self) -> Option<Plan> {
        self.policy.pick(&self.shape, &Busy::default(), &Heat::default(), &self.options)
    }

    /// Other numbers from now on, as a store that is reopened with them. The caller has had the
    /// policy check them.
    pub fn set_options(&mut self, options: PolicyOptions) {
        self.options = options;
    }

    /// The tree as it is.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    fn flush(&mut self) -> Result<(), EditError> {
        let table = Arc::new(self.flush_table());
        self.totals.user_bytes += self.workload.flush_bytes;
        self.totals.flushed_bytes += table.bytes;
        // A flush's run is named after its table: new, and the same on every machine.
        let slot = RunSlot::New(table.id);
        let place = vec![Placement { level: 0, slot, table }];
        self.install(&Edit { place, flushes: 1, ..Edit::default() })?;
        let l0_run_count = self.shape.level(0).runs().len() as u64;
        self.totals.max_l0_run_count = self.totals.max_l0_run_count.max(l0_run_count);
        Ok(())
    }

    fn flush_table(&mut self) -> Table {
        let space = self.workload.key_space.max(1);
        let written = (self.workload.flush_bytes / self.workload.entry_bytes.max(1)).max(1);
        self.flush_count += 1;
        let (min_key, max_key, entries) = match self.workload.order {
            KeyOrder::Uniform => {
                // The outermost of n even keys are about space / n from the ends.
                let gap = space / written.saturating_add(1);
                let spread = gap.saturating_mul(2).saturating_add(1);
                let low = mix(self.workload.seed ^ (self.flush_count * 2)) % spread;
                let high = mix(self.workload.seed ^ (self.flush_count * 2 + 1)) % spread;
                let low = low.min((space - 1) / 2);
                let high = space - 1 - high.min((space - 1) / 2);
                (low, high.max(low), thrown_into(written, space))
            }
            KeyOrder::Sequential => {
                let low = if space - self.next_key < written { 0 } else { self.next_key };
                let entries = written.min(space);
                self.next_key = low + entries;
                (low, low + entries - 1, entries)
            }
        };
        let entries = entries.min(max_key - min_key + 1);
        let seq = self.totals.user_bytes / self.workload.entry_bytes.max(1);
        self.table(min_key, max_key, entries, (seq + 1, seq + written))
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<(), EditError> {
        let mut outputs = Vec::new();
        if !plan.merges.is_empty() {
            let mut inputs = self.merge_inputs(plan);
            for (at, merge) in plan.merges.iter().enumerate() {
                let tables = self.merge_tables(merge, &inputs.remove(&at).unwrap_or_default());
                outputs.push(tables);
            }
        }
        let edit = edit_for(&self.shape, plan, &outputs);
        self.totals.plan_count += 1;
        let placed: u64 = edit.place.iter().map(|placement| placement.table.bytes).sum();
        let merged: u64 = outputs.iter().flatten().map(|table| table.bytes).sum();
        self.totals.merged_bytes += merged;
        self.totals.moved_bytes += placed - merged;
        self.install(&edit)
    }

    /// The input tables of each merge: per merge, per (level, run), found in one pass.
    fn merge_inputs(&self, plan: &Plan) -> BTreeMap<usize, Vec<Vec<Arc<Table>>>> {
        let mut wanted: BTreeMap<TableId, (usize, usize)> = BTreeMap::new();
        let mut found: BTreeMap<usize, Vec<Vec<Arc<Table>>>> = BTreeMap::new();
        let mut levels: Vec<u32> = Vec::new();
        for (at, merge) in plan.merges.iter().enumerate() {
            found.insert(at, vec![Vec::new(); merge.inputs.len()]);
            for (part, input) in merge.inputs.iter().enumerate() {
                wanted.extend(input.tables.iter().map(|id| (*id, (at, part))));
                levels.push(input.level);
            }
        }
        levels.sort_unstable();
        levels.dedup();
        for table in levels.into_iter().flat_map(|level| self.shape.level(level).tables()) {
            if let Some((at, part)) = wanted.get(&table.id)
                && let Some(parts) = found.get_mut(at)
            {
                parts[*part].push(Arc::clone(table));
            }
        }
        found
    }

    /// The outputs of one merge, by the model of the module docs.
    fn merge_tables(&mut self, merge: &Merge, parts: &[Vec<Arc<Table>>]) -> Vec<Arc<Table>> {
        let tables = || parts.iter().flatten();
        let keys = tables().map(|table| (number(&table.min_key), number(&table.max_key)));
        let bounds = keys.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let Some((low, high)) = bounds else {
            return Vec::new();
        };
        let seqs = tables().map(|table| (table.min_seq, table.max_seq));
        let seqs = seqs.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        self.totals.merge_read_bytes += tables().map(|table| table.bytes).sum::<u64>();
        let width = high - low + 1;
        let entries = parts.iter().fold(0, |union, part| {
            let own: u64 = part.iter().map(|table| table.entries).sum();
            union_of(union, own.min(width), width)
        });
        let per_table = (merge.cut.cap_bytes() / self.workload.entry_bytes.max(1)).max(1);
        let mut outputs = Vec::new();
        let mut done = 0;
        while done < entries {
            let count = per_table.min(entries - done);
            // entries <= width, so each entry has a key of its own, and so has each table.
            let key_at = |entry| low + mul_div(width, entry, entries);
            let table = self.table(key_at(done), key_at(done + count) - 1, count, seqs);
            outputs.push(Arc::new(table));
            done += count;
        }
        outputs
    }

    fn table(&mut self, low: u64, high: u64, entries: u64, seqs: (u64, u64)) -> Table {
        let id = self.next_id;
        self.next_id += 1;
        Table {
            id,
            min_key: Box::new(low.to_be_bytes()),
            max_key: Box::new(high.to_be_bytes()),
            bytes: entries * self.workload.entry_bytes.max(1),
            entries,
            tombstones: 0,
            min_seq: seqs.0,
            max_seq: seqs.1,
            filter_bits: 0,
            prefixes: Vec::new(),
            sketch: Default::default(),
        }
    }

    fn install(&mut self, edit: &Edit) -> Result<(), EditError> {
        self.shape = std::mem::take(&mut self.shape).into_applied(edit)?;
        Ok(())
    }

    fn report(&self) -> SimReport {
        let targets = self.policy.targets(&self.shape, &self.options);
        let target = |level: u32| targets.get(level as usize).unwrap_or(&LevelTarget::UNBOUNDED);
        let levels = (0u32..).zip(&self.shape.levels).filter(|(_, level)| !level.is_empty());
        let levels = levels.map(|(index, level)| SimLevel {
            level: index,
            bytes: level.bytes(),
            table_count: level.table_count() as u64,
            run_count: level.runs().len() as u64,
            capacity_bytes: target(index).capacity_bytes,
        });
        let covered: u128 = self.shape.tables().map(|(_, table)| width_of(table)).sum();
        let probed = covered * 1000 / u128::from(self.workload.key_space.max(1));
        let totals = &self.totals;
        let written = totals.flushed_bytes + totals.merged_bytes;
        SimReport {
            user_bytes: totals.user_bytes,
            flushed_bytes: totals.flushed_bytes,
            merge_read_bytes: totals.merge_read_bytes,
            merged_bytes: totals.merged_bytes,
            moved_bytes: totals.moved_bytes,
            write_amplification_permille: mul_div(written, 1000, totals.user_bytes.max(1)),
            runs_probed_per_get_permille: u64::try_from(probed).unwrap_or(u64::MAX),
            max_l0_run_count: totals.max_l0_run_count,
            plan_count: totals.plan_count,
            levels: levels.collect(),
        }
    }
}

/// Distinct keys among two even spreads of `a` and `b` keys over `width` keys.
fn union_of(a: u64, b: u64, width: u64) -> u64 {
    (a + (b - mul_div(a, b, width))).min(width)
}

/// Distinct keys after `draws` independent draws out of `space`: the union rule, doubling, in
/// fixed point where there is room, since rounding adds up over small numbers. O(log draws).
fn thrown_into(draws: u64, space: u64) -> u64 {
    let shift = space.leading_zeros().min(20);
    let (one, space) = (1 << shift, space << shift);
    let mut distinct = 0;
    for bit in (0..u64::BITS - draws.leading_zeros()).rev() {
        distinct = union_of(distinct, distinct, space);
        if draws >> bit & 1 == 1 {
            distinct = union_of(distinct, one, space);
        }
    }
    (distinct >> shift).max(1)
}

fn mul_div(a: u64, b: u64, divisor: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(divisor)).unwrap_or(u64::MAX)
}

fn width_of(table: &Table) -> u128 {
    u128::from(number(&table.max_key) - number(&table.min_key)) + 1
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("the simulator makes 8-byte keys only"))
}

/// splitmix64: one well-mixed number per input.
fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_unions() {
        assert_eq!(union_of(0, 10, 10), 10);
        assert_eq!(union_of(500, 500, 1000), 750);
        // 1000 draws of 1000 leave 1/e of the keys undrawn.
        let distinct = thrown_into(1000, 1000);
        assert!((631..=633).contains(&distinct), "{distinct}");
        assert_eq!(thrown_into(1, 1), 1);
    }
}
