//! The shape of a tree over time, without data: flushes, picks and compactions as metadata. It
//! shows how much a policy writes and how many tables a get probes, at sizes that no test can load.
//! It does not model time, caches or concurrency: each flush is followed by all the jobs that it
//! causes.
//!
//! Model. Keys are big-endian u64 below `key_space`. A table is its bounds and a number of distinct
//! keys, spread evenly. Where sets of a and b keys cover the same w possible keys, a compaction
//! keeps a + b - a b / w there, the expected union of independent even spreads. All numbers are
//! integers. Outputs are cut by the number of entries, so they are narrower where inputs were
//! denser. The prefix of a key is one of `prefix_count` equal buckets of the key space; a
//! compaction that cuts by prefix ends tables where the prefix changes. Partitioners that plan
//! cells get a histogram of the spread.
//!
//! Operands count as puts. If a merge operator makes one operand of two, they join as equal keys
//! do. A get counts every table that covers its key, like a get that looks for the base of
//! operands.
//!
//! Reads. Gets are spread evenly over the key space. They cost nothing except the heat that they
//! leave on tables which overlap others of their level ([`Simulator::run_gets`]).
//!
//! Accuracy. The engine itself, loaded with 80 MiB under Garnering (T = 5, level 1 of 256 KiB,
//! `runstone paper autumn`), writes 12.5 and 12.4 bytes per byte at c = 1 and 0.4 if level 0 waits;
//! the model gives 12.0 and 12.1. With outputs spread evenly over a compaction's range the model
//! gave 13.9 and 15.9: a level is dense just after its round-robin cursor, and dense tables overlap
//! less of the level below.
//!
//! Cost. A policy sums over all tables in each decision, so a step costs O(tables): sizes of
//! terabytes need larger tables than a store would have ([`Coarsening`]).

pub mod by_paper;
mod coarsen;
mod deletes;
mod expiry;
pub mod flash;
mod gets;
mod loads;
mod report;
mod spread;
pub mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

pub use coarsen::Coarsening;
pub use deletes::RangeDeletes;
pub use loads::Loads;
pub use report::{SimGets, SimLevel, SimPoint, SimReport};

use deletes::Deleted;
use report::{covered_keys, permille_of, sought_keys};
use runstone_policy::edit::edit_for;
use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::partition::{Histogram, Input, Point};
use runstone_policy::policy::space;
use runstone_policy::policy::{CompactionPolicy, LevelTarget};
use runstone_policy::prefix::MAX_TABLE_PREFIXES;
use runstone_policy::shape::plan::{Busy, Compaction, Cut, Heat, Partitioner, Plan};
use runstone_policy::shape::{Edit, EditError, Level, Placement, RunSlot, Shape, Table, TableId};
use runstone_random::mix64;
use spread::{Buckets, Spread, mul_div, number, thrown_into};

/// Entries up to this fraction of a table are planned together.
const GRAINS_PER_TABLE: u64 = 16;

/// The number of measurements of the tree for a point of the curve. Reads cost less after a
/// compaction than before it, so one measurement would say little.
const LOOKS_PER_POINT: u64 = 32;

/// How keys arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyOrder {
    /// Every flush spreads over the whole key space. The overwritten share follows from the number
    /// of entries relative to `key_space`.
    Uniform,
    /// Ascending: a flush starts after the one before it and takes one key per entry. A flush that
    /// does not fit before the end of the key space starts at its beginning.
    Sequential,
}

/// The data to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The number of key prefixes, 1 to `key_space`. Only compactions that cut by prefix look at
    /// it.
    pub prefix_count: u64,
}

impl SimWorkload {
    /// The expected number of distinct keys among this many entries.
    pub fn distinct_keys(&self, entries: u64) -> u64 {
        let space = self.key_space.max(1);
        match self.order {
            KeyOrder::Uniform => thrown_into(entries, space),
            KeyOrder::Sequential => {
                // A flush that does not fit before the end starts again at the beginning, so no key
                // is written there.
                let flush = self.entries_per_flush();
                entries.min(space - if flush < space { space % flush } else { 0 })
            }
        }
    }

    /// Entries of a flush, at least one.
    fn entries_per_flush(&self) -> u64 {
        (self.flush_bytes / self.entry_bytes.max(1)).max(1)
    }

    /// The same workload with the smallest key space in which at most this share (in thousandths)
    /// of this many entries overwrites an earlier one. O(log^2 of the key space).
    pub fn overwriting(self, overwrite_permille: u64, entries: u64) -> SimWorkload {
        let wanted = mul_div(entries, 1000 - overwrite_permille.min(999), 1000).max(1);
        let (mut low, mut high) = (1, FRESH_KEYS);
        while low < high {
            let middle = low + (high - low) / 2;
            let key_space = middle;
            match (SimWorkload { key_space, ..self.clone() }).distinct_keys(entries) < wanted {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        SimWorkload { key_space: low, ..self }
    }
}

/// A key space so large that hardly any key is drawn twice.
pub const FRESH_KEYS: u64 = 1 << 60;

/// A tree under one policy and one workload.
pub struct Simulator<'a> {
    policy: &'a dyn CompactionPolicy,
    options: PolicyOptions,
    workload: SimWorkload,
    shape: Shape,
    heat: Heat,
    next_id: TableId,
    flush_count: u64,
    next_key: u64,
    totals: Totals,
    largest_job: LargestJob,
    looks: Looks,
    curve: Vec<SimPoint>,
    cuts_flushes: bool,
    /// The number of flushes after which an entry has expired.
    ttl_flushes: Option<u64>,
    range_deletes: Option<RangeDeletes>,
    /// The range deletes that are not replaced by another one, oldest first.
    deleted: Vec<Deleted>,
    loads: Option<Loads>,
    load_count: u64,
}

/// Sums of bytes have wide types, because compactions write many times as much as a user wrote.
#[derive(Clone, Copy, Default)]
struct Totals {
    user_bytes: u128,
    user_entries: u64,
    flushed_bytes: u128,
    /// The part of `user_bytes` that came from loads.
    loaded_user_bytes: u128,
    loaded_bytes: u128,
    compaction_read_bytes: u128,
    compacted_bytes: u128,
    moved_bytes: u128,
    critical_read_bytes: u128,
    dropped_bytes: u128,
    max_l0_run_count: u64,
    plan_count: u64,
}

/// The job that read the most bytes.
#[derive(Default)]
struct LargestJob {
    bytes: u64,
    why: String,
}

/// The cost of reads since the last point of the curve.
#[derive(Default)]
struct Looks {
    count: u64,
    probed_permille: u64,
    sought_permille: u64,
}

impl<'a> Simulator<'a> {
    /// An empty tree. The policy must have checked the options.
    pub fn new(
        policy: &'a dyn CompactionPolicy,
        options: PolicyOptions,
        workload: SimWorkload,
    ) -> Self {
        Simulator {
            policy,
            options,
            workload,
            shape: Shape::default(),
            heat: Heat::default(),
            next_id: 1,
            flush_count: 0,
            next_key: 0,
            totals: Totals::default(),
            largest_job: LargestJob::default(),
            looks: Looks::default(),
            curve: Vec::new(),
            cuts_flushes: false,
            ttl_flushes: None,
            range_deletes: None,
            deleted: Vec::new(),
            loads: None,
            load_count: 0,
        }
    }

    /// The same tree, but the partitioner cuts flushes too, unless it cuts by prefix.
    pub fn with_cut_flushes(self) -> Self {
        Simulator { cuts_flushes: true, ..self }
    }

    /// Flushes this many memtables, each followed by all the jobs that it causes. Then reports on
    /// everything so far. An error means that the policy made a plan that does not fit the shape.
    pub fn run(&mut self, flushes: u64) -> Result<SimReport, EditError> {
        for _ in 0..flushes {
            self.flush()?;
            self.delete_in_time();
            self.settle()?;
            self.load_in_time()?;
            self.look();
        }
        Ok(self.report())
    }

    /// Flushes one memtable, and does none of the jobs that it causes: the caller runs them
    /// ([`Simulator::run_one_job`]). Returns the bytes written.
    pub fn flush_alone(&mut self) -> Result<u64, EditError> {
        let before = self.totals.flushed_bytes;
        self.flush()?;
        self.delete_in_time();
        self.load_in_time()?;
        Ok(narrow(self.totals.flushed_bytes - before))
    }

    /// Does one job. Returns the bytes that it read and wrote, `None` if no job is due.
    pub fn run_one_job(&mut self) -> Result<Option<u64>, EditError> {
        let Some(plan) = self.next_plan() else { return Ok(None) };
        let rewritten = |totals: &Totals| totals.compaction_read_bytes + totals.compacted_bytes;
        let before = rewritten(&self.totals);
        self.carry_out(&plan)?;
        Ok(Some(narrow(rewritten(&self.totals) - before)))
    }

    /// Uses other options from now on, like a store that is reopened with them. The policy must
    /// have checked them.
    pub fn set_options(&mut self, options: PolicyOptions) {
        self.options = options;
    }

    /// Does all jobs that the policy and the space bound want now.
    fn settle(&mut self) -> Result<(), EditError> {
        while let Some(plan) = self.next_plan() {
            self.carry_out(&plan)?;
        }
        Ok(())
    }

    /// [`next_plan`](runstone_policy::policy::next_plan), with the model's knowledge of the keys in
    /// place of sketches.
    fn next_plan(&self) -> Option<Plan> {
        let (policy, options) = (self.policy, &self.options);
        let shape = &*self.shape.at(|_| self.flush_count);
        let busy = Busy::default();
        let bound = || {
            space::bound_plan(
                policy,
                shape,
                &busy,
                options,
                Numbers::of(options).max_space_percent,
                |_| self.live_bytes(),
            )
        };
        let wanted = || policy.pick(shape, &busy, &self.heat, options);
        self.unread_drops().or_else(|| self.covered_drops()).or_else(wanted).or_else(bound)
    }

    /// The entries that a compaction of all tables would leave.
    fn live_bytes(&self) -> Option<u64> {
        let left = self.left_in(self.shape.tables().map(|(_, table)| table))?;
        Some(left.entries * self.workload.entry_bytes.max(1))
    }

    /// The present tree.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    fn flush(&mut self) -> Result<(), EditError> {
        let whole = self.flush_table();
        self.totals.user_bytes += u128::from(self.workload.flush_bytes);
        self.totals.user_entries += self.workload.entries_per_flush();
        self.totals.flushed_bytes += u128::from(whole.bytes);
        // The run of a flush is named after the table that it would be if it were not cut. So the
        // name is new, and the same on every machine.
        let slot = RunSlot::New(whole.id);
        let (_, cut) = self.policy.whole_output(&self.shape, 0, &self.options);
        let tables = match Spread::of(&[spread_of(&whole)]).filter(|_| self.cuts_flushes) {
            Some(spread) if !matches!(cut, Cut::Prefix { .. }) => {
                let seqs = (whole.min_seq, whole.max_seq);
                let mut parts = self.outputs(cut, &spread, whole.entries, seqs);
                let expiries = |part: &Table| self.new_expiries(part.entries);
                parts.iter_mut().for_each(|part| part.expiries = expiries(part));
                parts
            }
            _ => vec![whole],
        };
        let place = |table| Placement { level: 0, slot, table: Arc::new(table) };
        let place = tables.into_iter().map(place).collect();
        self.install(&Edit { place, flushes: 1, ..Edit::default() }, 0)?;
        self.note_level_0();
        Ok(())
    }

    fn note_level_0(&mut self) {
        let l0_run_count = self.shape.level(0).runs().len() as u64;
        self.totals.max_l0_run_count = self.totals.max_l0_run_count.max(l0_run_count);
    }

    fn flush_table(&mut self) -> Table {
        self.flush_count += 1;
        let table = self.arriving(self.workload.entries_per_flush(), self.flush_count);
        Table { expiries: self.new_expiries(table.entries), ..table }
    }

    /// A table of this many entries that arrive at once. `number` varies the bounds of the
    /// table.
    fn arriving(&mut self, written: u64, number: u64) -> Table {
        let space = self.workload.key_space.max(1);
        let (min_key, max_key, entries) = match self.workload.order {
            KeyOrder::Uniform => {
                // The outermost of n even keys are about space / n from the ends.
                let gap = space / written.saturating_add(1);
                let spread = gap.saturating_mul(2).saturating_add(1);
                let low = mix64(self.workload.seed ^ number.wrapping_mul(2)) % spread;
                let high =
                    mix64(self.workload.seed ^ number.wrapping_mul(2).wrapping_add(1)) % spread;
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
        let seq = self.totals.user_entries;
        self.table(min_key, max_key, entries, (seq + 1, seq + written))
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<(), EditError> {
        let mut outputs = Vec::new();
        let read_before = self.totals.compaction_read_bytes;
        if !plan.compactions.is_empty() {
            let inputs = self.compaction_inputs(plan);
            let bytes = |tables: &Vec<Arc<Table>>| tables.iter().map(|table| table.bytes).sum();
            self.totals.critical_read_bytes +=
                u128::from(inputs.iter().map(bytes).max().unwrap_or(0_u64));
            for (compaction, inputs) in plan.compactions.iter().zip(&inputs) {
                outputs.push(self.compact_tables(compaction, inputs));
            }
        }
        let deepest = self.count_drops(plan).max(deepest_of(plan));
        let edit = edit_for(&self.shape, plan, &outputs);
        self.totals.plan_count += 1;
        let placed: u128 =
            edit.place.iter().map(|placement| u128::from(placement.table.bytes)).sum();
        let compacted: u128 = outputs.iter().flatten().map(|table| u128::from(table.bytes)).sum();
        self.totals.compacted_bytes += compacted;
        self.totals.moved_bytes += placed - compacted;
        let job_bytes = narrow(self.totals.compaction_read_bytes - read_before);
        if job_bytes > self.largest_job.bytes {
            self.largest_job = LargestJob { bytes: job_bytes, why: plan.why.clone() };
        }
        self.install(&edit, deepest)
    }

    /// The input tables of each compaction, found in one pass.
    fn compaction_inputs(&self, plan: &Plan) -> Vec<Vec<Arc<Table>>> {
        let mut wanted: BTreeMap<TableId, usize> = BTreeMap::new();
        let mut levels: BTreeSet<u32> = BTreeSet::new();
        for (at, compaction) in plan.compactions.iter().enumerate() {
            for input in &compaction.inputs {
                wanted.extend(input.tables.iter().map(|id| (*id, at)));
                levels.insert(input.level);
            }
        }
        let mut found = vec![Vec::new(); plan.compactions.len()];
        for table in levels.into_iter().flat_map(|level| self.shape.level(level).tables()) {
            if let Some(at) = wanted.get(&table.id) {
                found[*at].push(Arc::clone(table));
            }
        }
        found
    }

    /// The outputs of one compaction, by the model of the module docs.
    fn compact_tables(
        &mut self,
        compaction: &Compaction,
        inputs: &[Arc<Table>],
    ) -> Vec<Arc<Table>> {
        let tables = || inputs.iter();
        self.totals.compaction_read_bytes +=
            tables().map(|table| u128::from(table.bytes)).sum::<u128>();
        let left = self.left_of(compaction, inputs);
        let Some(spread) = Spread::of(&left.spreads) else {
            return Vec::new();
        };
        let seqs = tables().map(|table| (table.min_seq, table.max_seq));
        let seqs = seqs.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        let input_entries: u64 = tables().map(|table| table.entries).sum();
        let mut outputs = self.outputs(compaction.cut, &spread, input_entries, seqs);
        outputs.iter_mut().for_each(|table| left.share_with(table));
        outputs.into_iter().map(Arc::new).collect()
    }

    /// The tables into which this cut divides a spread.
    fn outputs(
        &mut self,
        cut: Cut,
        spread: &Spread,
        input_entries: u64,
        seqs: (u64, u64),
    ) -> Vec<Table> {
        let (mut done, mut from_key) = (0, spread.key_at(0));
        let mut outputs = Vec::new();
        for (to, end_key) in self.ends(cut, spread, input_entries) {
            let mut table = self.table(from_key, end_key - 1, to - done, seqs);
            if let Cut::Prefix { .. } = cut {
                table.prefixes = self.buckets().prefixes(spread, done, to, MAX_TABLE_PREFIXES);
            }
            outputs.push(table);
            (done, from_key) = (to, end_key);
        }
        outputs
    }

    /// The ends of the tables of a spread: for each table, the entry and the key after it.
    fn ends(&self, cut: Cut, spread: &Spread, input_entries: u64) -> Vec<(u64, u64)> {
        if let Cut::Cells { partitioner, table_bytes } = cut {
            return cell_ends(spread, partitioner, table_bytes, self.workload.entry_bytes.max(1));
        }
        let mut ends: Vec<(u64, u64)> = Vec::new();
        while let done = ends.last().map_or(0, |end| end.0)
            && done < spread.entries
        {
            ends.push(self.next_cut(cut, spread, input_entries, done));
        }
        ends
    }

    fn buckets(&self) -> Buckets {
        let key_space = self.workload.key_space.max(1);
        Buckets { key_space, count: self.workload.prefix_count.clamp(1, key_space) }
    }

    /// The end of the output that begins with entry `done`: the entry and the key after it.
    ///
    /// 1. At the cap, for any keys.
    /// 2. Cut by prefix: at the first bucket that begins once the table has `split_bytes`, if that
    ///    is before the cap and as much input follows it.
    fn next_cut(&self, cut: Cut, spread: &Spread, input_entries: u64, done: u64) -> (u64, u64) {
        let entry_bytes = self.workload.entry_bytes.max(1);
        let cap = (cut.cap_bytes() / entry_bytes).max(1);
        let capped = done.saturating_add(cap).min(spread.entries);
        if let Cut::Prefix { split_bytes, .. } = cut {
            let least = split_bytes.div_ceil(entry_bytes).max(1);
            let full = done.saturating_add(least);
            if full < capped {
                let bucket = self.buckets().of(spread.key_at(full - 1)) + 1;
                let end_key = self.buckets().start(bucket);
                let entry = spread.entry_from(end_key);
                let left = mul_div(spread.entries - entry, input_entries, spread.entries);
                if entry < capped && left >= least {
                    return (entry, end_key);
                }
            }
        }
        (capped, spread.key_at(capped))
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
            min_seq: seqs.0,
            max_seq: seqs.1,
            ..Table::default()
        }
    }

    /// Applies an edit that changes no level below `deepest`. The deeper levels are set aside for
    /// this time, because applying an edit looks at every table, and most tables are deep.
    fn install(&mut self, edit: &Edit, deepest: u32) -> Result<(), EditError> {
        let mut shape = std::mem::take(&mut self.shape);
        let kept = shape.levels.len().min(deepest as usize + 1);
        let deeper = shape.levels.split_off(kept);
        self.shape = shape.into_applied(edit)?;
        if !deeper.is_empty() {
            // Applying the edit removed empty levels at the end, but here they are not at the end.
            self.shape.levels.resize_with(kept, || Level::Runs(Vec::new()));
            self.shape.levels.extend(deeper);
        }
        Ok(())
    }

    /// Notes the present cost of reads. At each doubling of the number of flushes, adds a point to
    /// the curve.
    fn look(&mut self) {
        let is_point = self.flush_count.is_power_of_two();
        let every = (self.flush_count.next_power_of_two() / 2 / LOOKS_PER_POINT).max(1);
        if !is_point && !self.flush_count.is_multiple_of(every) {
            return;
        }
        self.looks.count += 1;
        self.looks.probed_permille += self.probed_permille();
        self.looks.sought_permille += self.sought_permille();
        if is_point {
            let point = self.point();
            self.curve.push(point);
            self.looks = Looks::default();
        }
    }

    fn point(&self) -> SimPoint {
        let count = self.looks.count.max(1);
        SimPoint {
            user_bytes: narrow(self.totals.user_bytes),
            write_amplification_permille: self.write_amplification_permille(),
            tables_probed_per_get_permille: self.looks.probed_permille / count,
            runs_sought_per_scan_permille: self.looks.sought_permille / count,
            level_count: self.shape.levels.iter().filter(|level| !level.is_empty()).count() as u64,
        }
    }

    fn probed_permille(&self) -> u64 {
        let tables = self.shape.tables().map(|(_, table)| table);
        permille_of(covered_keys(tables), self.workload.key_space)
    }

    fn sought_permille(&self) -> u64 {
        permille_of(sought_keys(&self.shape), self.workload.key_space)
    }

    fn write_amplification_permille(&self) -> u64 {
        let Totals { flushed_bytes, loaded_bytes, compacted_bytes, .. } = self.totals;
        let written = flushed_bytes + loaded_bytes + compacted_bytes;
        narrow(written * 1000 / self.totals.user_bytes.max(1))
    }

    /// A report on everything so far.
    pub fn report(&self) -> SimReport {
        let totals = &self.totals;
        let mut curve = self.curve.clone();
        if self.looks.count > 0 {
            curve.push(self.point());
        }
        SimReport {
            user_bytes: narrow(totals.user_bytes),
            flushed_bytes: narrow(totals.flushed_bytes),
            loaded_bytes: narrow(totals.loaded_bytes),
            compaction_read_bytes: narrow(totals.compaction_read_bytes),
            compacted_bytes: narrow(totals.compacted_bytes),
            moved_bytes: narrow(totals.moved_bytes),
            critical_read_bytes: narrow(totals.critical_read_bytes),
            dropped_bytes: narrow(totals.dropped_bytes),
            write_amplification_permille: self.write_amplification_permille(),
            space_amplification_permille: self.space_amplification_permille(),
            tables_probed_per_get_permille: self.probed_permille(),
            runs_sought_per_scan_permille: self.sought_permille(),
            max_l0_run_count: totals.max_l0_run_count,
            largest_job_bytes: self.largest_job.bytes,
            largest_job_why: self.largest_job.why.clone(),
            plan_count: totals.plan_count,
            levels: self.levels(),
            curve,
        }
    }

    /// The ratio of entries stored to distinct keys that were written and not deleted, by the
    /// model.
    fn space_amplification_permille(&self) -> u64 {
        let distinct = match self.range_deletes {
            None => self.workload.distinct_keys(self.unexpired(self.totals.user_entries)),
            Some(_) => {
                let left = self.left_in(self.shape.tables().map(|(_, table)| table));
                left.map_or(0, |left| left.entries)
            }
        };
        let held: u64 = self.shape.tables().map(|(_, table)| table.entries).sum();
        mul_div(held, 1000, distinct.max(1))
    }

    fn levels(&self) -> Vec<SimLevel> {
        let targets = self.policy.targets(&self.shape, &self.options);
        let target = |level: u32| targets.get(level as usize).unwrap_or(&LevelTarget::UNBOUNDED);
        let levels = (0u32..).zip(&self.shape.levels).filter(|(_, level)| !level.is_empty());
        let levels = levels.map(|(index, level)| SimLevel {
            level: index,
            bytes: level.bytes(),
            table_count: level.table_count() as u64,
            run_count: level.runs().len() as u64,
            capacity_bytes: target(index).capacity_bytes,
            overlapping: matches!(level, Level::Overlapping(_)),
            tables_probed_per_get_permille: permille_of(
                covered_keys(level.tables()),
                self.workload.key_space,
            ),
        });
        levels.collect()
    }
}

/// The ends of the tables of a spread if a partitioner plans its cells, from a histogram such as an
/// index would give. A cell that contains no entry, because the histogram is coarser than the cell,
/// joins the next cell.
fn cell_ends(
    spread: &Spread,
    partitioner: Partitioner,
    table_bytes: u64,
    entry_bytes: u64,
) -> Vec<(u64, u64)> {
    let grain = (table_bytes / GRAINS_PER_TABLE / entry_bytes).max(1);
    let key = |entry: u64| Box::<[u8]>::from(spread.key_at(entry).to_be_bytes());
    let point = |from: u64| {
        let to = from.saturating_add(grain).min(spread.entries);
        Point { last_key: key(to - 1), bytes: (to - from) * entry_bytes }
    };
    let grains = (0..spread.entries.div_ceil(grain)).map(|at| point(at * grain));
    let histogram = Histogram::new(grains.collect());
    let cuts = partitioner.rule().cuts(&Input {
        histogram: &histogram,
        min_key: &key(0),
        max_key: &key(spread.entries - 1),
        table_bytes,
        prefixer: None,
    });
    let mut ends: Vec<(u64, u64)> = Vec::with_capacity(cuts.len() + 1);
    let numbers = cuts.iter().map(|cut| least_number(cut));
    let cells = numbers.map(|key| (spread.entry_from(key), key));
    for end in cells.chain([(spread.entries, spread.end)]) {
        if end.0 > ends.last().map_or(0, |before| before.0) {
            ends.push(end);
        }
    }
    ends
}

/// The smallest key of eight bytes that is not below a cut.
fn least_number(cut: &[u8]) -> u64 {
    let mut head = [0; 8];
    let kept = cut.len().min(8);
    head[..kept].copy_from_slice(&cut[..kept]);
    u64::from_be_bytes(head).saturating_add(u64::from(cut.len() > 8))
}

/// The first key, the last key and the number of entries of a table.
fn spread_of(table: &Table) -> (u64, u64, u64) {
    (number(&table.min_key), number(&table.max_key), table.entries)
}

/// A sum as it is reported, saturating.
fn narrow(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The deepest level of the inputs and outputs of a plan.
fn deepest_of(plan: &Plan) -> u32 {
    let compacted = plan.compactions.iter().flat_map(|compaction| {
        let inputs = compaction.inputs.iter().map(|input| input.level);
        inputs.chain([compaction.output_level])
    });
    let moved = plan.moves.iter().flat_map(|step| [step.from_level, step.to_level]);
    let relabelled = plan.relabel.iter().flat_map(|(from, to)| [*from, *to]);
    compacted.chain(moved).chain(relabelled).max().unwrap_or(0)
}
