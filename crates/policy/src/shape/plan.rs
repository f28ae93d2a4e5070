//! The decision of a policy: a [`Plan`] of moves and compactions, with its reason. Also [`Busy`],
//! which a policy must leave alone: the tables and key ranges of the running jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::shape::{Run, RunSlot, Shape, Table, TableId, bounds};

/// A decision. Installed as one atomic edit once all of its compactions are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Tables that move without being rewritten.
    pub moves: Vec<Move>,
    /// Tables to be rewritten.
    pub compactions: Vec<Compaction>,
    /// Tables that are dropped without being read, because no reader can see any of their entries.
    pub drops: Vec<TableId>,
    /// Round-robin cursors to store.
    pub cursors: Vec<(u32, Box<[u8]>)>,
    /// A new last level to store.
    pub last_level: Option<u32>,
    /// Levels that get another number, (from, to), untouched. The target is empty.
    pub relabel: Vec<(u32, u32)>,
    /// One line for people: which limit was exceeded and why these inputs.
    pub why: String,
}

/// A table that changes level or run, untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Move {
    /// Which table.
    pub table: TableId,
    /// Where it is.
    pub from_level: u32,
    /// The level that it moves to.
    pub to_level: u32,
    /// Into which run.
    pub slot: RunSlot,
}

/// Tables of one or more levels that become one sorted output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Inputs by level, shallow levels first; inside a level newest run first.
    pub inputs: Vec<CompactionInput>,
    /// The level of the outputs.
    pub output_level: u32,
    /// The run of the outputs.
    pub slot: RunSlot,
    /// Where one output table ends and the next begins; always between two user keys (I2).
    pub cut: Cut,
}

/// Where the outputs of a compaction are cut. The manifest has a tag for each kind, so its encoder
/// must name all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At the first user key after a table has reached this many bytes.
    Size(u64),
    /// Where the prefix changes, if the table has `split_bytes` (T_s) and at least as much input is
    /// left. Once it has `cap_bytes`, at the next user key in any case.
    Prefix {
        /// Least size of a table, and of the remaining input.
        split_bytes: u64,
        /// Size at which even one prefix is cut.
        cap_bytes: u64,
    },
    /// Before the keys that a partitioner finds from the histogram of the inputs; by size if there
    /// is no histogram.
    Cells {
        /// Finds the keys.
        partitioner: Partitioner,
        /// theta: largest table wanted.
        table_bytes: u64,
    },
}

/// Names a partitioner in options and in a compaction's cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Partitioner {
    /// One table per compaction.
    None,
    /// Tables of equal size, whatever their keys.
    #[default]
    Size,
    /// Halves of the key range of the inputs.
    LocalRange,
    /// Halves of the space of all keys: the same bounds in every run.
    GlobalRange,
    /// As `GlobalRange`, but with larger cells, each of which is cut evenly by size.
    GroupedGlobalRange,
    /// Where the key prefix changes.
    Prefix,
}

impl Cut {
    /// The partitioner that makes the same cuts from a histogram, and its theta.
    pub fn cells(&self) -> (Partitioner, u64) {
        match *self {
            Cut::Size(bytes) => (Partitioner::Size, bytes),
            Cut::Prefix { cap_bytes, .. } => (Partitioner::Prefix, cap_bytes),
            Cut::Cells { partitioner, table_bytes } => (partitioner, table_bytes),
        }
    }

    /// Size at which a table is closed, whatever its keys are.
    pub fn cap_bytes(&self) -> u64 {
        self.cells().1
    }
}

/// The tables of one run (or of one overlapping level) that take part in a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionInput {
    /// Their level.
    pub level: u32,
    /// In key order.
    pub tables: Vec<TableId>,
}

impl Move {
    /// A table that moves from one level to another, into a run of it.
    pub fn new(table: TableId, (from_level, to_level): (u32, u32), slot: RunSlot) -> Move {
        Move { table, from_level, to_level, slot }
    }
}

impl CompactionInput {
    /// Tables of a level, in key order.
    pub fn new(level: u32, tables: impl IntoIterator<Item = TableId>) -> CompactionInput {
        CompactionInput { level, tables: tables.into_iter().collect() }
    }
}

impl Compaction {
    /// Rewrites these inputs into a run of a level. Inputs of shallow levels come first, and in a
    /// level those of newer runs.
    pub fn new(
        inputs: impl IntoIterator<Item = CompactionInput>,
        (output_level, slot): (u32, RunSlot),
        cut: Cut,
    ) -> Compaction {
        Compaction { inputs: inputs.into_iter().collect(), output_level, slot, cut }
    }

    /// All input ids.
    pub fn input_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.inputs.iter().flat_map(|input| input.tables.iter().copied())
    }
}

impl Plan {
    /// A plan without a step, and the reason for the steps to come.
    pub fn new(why: impl Into<String>) -> Plan {
        Plan { why: why.into(), ..Plan::default() }
    }

    /// Adds tables that are rewritten.
    #[must_use]
    pub fn compact(mut self, compaction: Compaction) -> Plan {
        self.compactions.push(compaction);
        self
    }

    /// Adds a table that changes its place without being rewritten.
    #[must_use]
    pub fn move_table(mut self, step: Move) -> Plan {
        self.moves.push(step);
        self
    }

    /// Adds tables that are dropped without being read.
    #[must_use]
    pub fn drop_tables(mut self, tables: impl IntoIterator<Item = TableId>) -> Plan {
        self.drops.extend(tables);
        self
    }

    /// All ids that the plan touches.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        let compacted = self.compactions.iter().flat_map(Compaction::input_ids);
        let moved = self.moves.iter().map(|step| step.table);
        moved.chain(compacted).chain(self.drops.iter().copied())
    }

    /// The ranges that the plan writes. For a move: the table's bounds in its target level and, if
    /// it moves up, also in all levels down to its old level. For a compaction: the bounds of its
    /// inputs, outside which it writes no key. For a relabelled level: the bounds of all its
    /// tables. Tables that left the shape are skipped. O(tables of the shape).
    pub fn ranges(&self, shape: &Shape) -> Vec<BusyRange> {
        let ids: BTreeSet<TableId> = self.table_ids().collect();
        let wanted = shape.tables().filter(|(_, table)| ids.contains(&table.id));
        let tables: BTreeMap<TableId, &Arc<Table>> =
            wanted.map(|(_, table)| (table.id, table)).collect();
        // Tables that move up pass levels in which no newer data may arrive meanwhile, because that
        // data would end up below older data (I1).
        let moved = self.moves.iter().flat_map(|step| {
            let is_up = step.to_level < step.from_level;
            let lowest = if is_up { step.from_level } else { step.to_level };
            (step.to_level..=lowest).map(|level| (level, vec![step.table]))
        });
        let compacted = self.compactions.iter().map(|m| (m.output_level, m.input_ids().collect()));
        let written = moved.chain(compacted).filter_map(|(level, ids): (u32, Vec<TableId>)| {
            range_of(level, ids.iter().filter_map(|id| tables.get(id).copied()))
        });
        let relabelled = self.relabel.iter();
        let relabelled =
            relabelled.filter_map(|(from, to)| range_of(*to, shape.level(*from).tables()));
        written.chain(relabelled).collect()
    }
}

/// The range of a job that writes these tables into a level.
fn range_of<'a>(level: u32, tables: impl Iterator<Item = &'a Arc<Table>>) -> Option<BusyRange> {
    let (min_key, max_key) = bounds(tables)?;
    Some(BusyRange { level, min_key: min_key.into(), max_key: max_key.into() })
}

/// A closed range of user keys that a running job writes into a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct BusyRange {
    /// Output level of the job.
    pub level: u32,
    /// Smallest key that it may write.
    pub min_key: Box<[u8]>,
    /// Largest key that it may write.
    pub max_key: Box<[u8]>,
}

impl BusyRange {
    /// A closed range of keys in a level.
    pub fn new(level: u32, min_key: Box<[u8]>, max_key: Box<[u8]>) -> BusyRange {
        BusyRange { level, min_key, max_key }
    }
}

/// How often reads probed each table in vain, for policies that compact tables with too many such
/// reads. The engine counts them; the policy sets the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heat {
    /// Charged accesses since the table was written (PTierDB §III-C). A table that is not listed
    /// has few.
    pub accesses: BTreeMap<TableId, u64>,
    /// Charged seeks since the table was written or moved. Lists only tables that have used up
    /// their [`allowed_seeks`](crate::options::Numbers::allowed_seeks).
    pub seeks: BTreeMap<TableId, u64>,
}

/// The tables and ranges that running jobs own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// Tables being moved or compacted.
    pub tables: BTreeSet<TableId>,
    /// Ranges being written.
    pub ranges: Vec<BusyRange>,
}

impl Busy {
    /// The tables and ranges that the given plans own while they run. O(plans * tables).
    ///
    /// A relabelled level is owned with all its tables, though none is rewritten: relabelling the
    /// same level twice would not fit the shape the second time.
    ///
    /// The run of level 0 into which a pending plan writes is owned as well: in a stack, the run
    /// represents an interval of flushes, which it keeps only as long as it keeps its place.
    pub fn of<'a>(shape: &Shape, running: impl IntoIterator<Item = &'a Plan>) -> Busy {
        let mut busy = Busy::default();
        for plan in running {
            busy.tables.extend(plan.table_ids());
            let renamed = plan.relabel.iter().flat_map(|(from, _)| shape.level(*from).tables());
            busy.tables.extend(renamed.map(|table| table.id));
            busy.ranges.extend(plan.ranges(shape));
        }
        for compaction in shape.pending.iter().flat_map(|plan| &plan.compactions) {
            let is_output =
                |run: &&Run| compaction.output_level == 0 && compaction.slot.run() == Some(run.id);
            let output = shape.level(0).runs().iter().filter(is_output);
            busy.tables.extend(output.flat_map(|run| &run.tables).map(|table| table.id));
        }
        busy
    }

    /// Whether a job already writes into any part of `level`.
    pub fn writes_into(&self, level: u32) -> bool {
        self.ranges.iter().any(|range| range.level == level)
    }

    /// Whether a job already writes into `level` inside `[min_key, max_key]`.
    pub fn writes(&self, level: u32, min_key: &[u8], max_key: &[u8]) -> bool {
        let meets = |range: &BusyRange| *range.min_key <= *max_key && *range.max_key >= *min_key;
        self.ranges.iter().any(|range| range.level == level && meets(range))
    }
}
