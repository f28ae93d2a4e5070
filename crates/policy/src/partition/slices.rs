//! Divides one compaction into parts that run in parallel. This module only plans: a policy chooses
//! the input tables, and the engine reads and writes them.
//!
//! *Paper mode*, [`components`] and [`slice_by_components`]: the connected components of the
//! inputs' [min, max] overlap. A component of one table moves. Any other component is a
//! sub-compaction. Tables are never divided. A flushed table that spans all keys joins everything,
//! as happens in most compactions of a stack.
//!
//! *Sliced mode*, [`slice()`]:
//!
//! 1. A table moves if no block of another input overlaps its range and it has theta / 4 bytes or
//!    more (T_s / 4, by prefix). A smaller table is compacted, because otherwise small tables would
//!    stay small for ever. A table with tombstones is compacted too, since the compaction may drop
//!    them. In a level whose tables may overlap, nothing moves: the purpose of such a compaction is
//!    to cut overlapping tables.
//! 2. The blocks of the other inputs are the histogram, which the partitioner cuts. The bounds of
//!    moved tables are cuts as well: an output that spanned a moved table would overlap it. No key
//!    of the compaction lies inside such bounds, by rule 1.
//! 3. The cells between the cuts are packed, in order, into at most W slices [lo, hi), so that the
//!    largest slice is as small as possible. A slice reads its inputs bounded to [lo, hi).
//!
//! The cuts do not depend on W, and every slice begins and ends at a cut. So the outputs, table by
//! table, are the same for every W, which the engine checks byte by byte.
//!
//! The critical path of a compaction is its largest part, and no number of cores makes it shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::partition::{CutKey, Histogram, Input, Partitioner, Point, cells, successor};
use crate::prefix::Prefixer;
use crate::shape::plan::Compaction;
use crate::shape::{RunSlot, Table, TableId, bounds};

/// A table moves if it has at least the size of a usual table divided by this.
pub const MOVE_DIVISOR: u64 = 4;

/// A slice is worth a thread if it writes this many tables.
pub const TABLES_PER_SLICE: u64 = 4;

/// How a compaction is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SubCompactions {
    /// At cell boundaries, where the parts are of equal size according to the index blocks.
    #[default]
    Slices,
    /// By whole tables, as in the paper.
    Components,
}

/// A compaction in paper mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Components {
    /// Tables that overlap no other, in key order.
    pub moves: Vec<TableId>,
    /// The other components, in key order; ids ascend by smallest key.
    pub compactions: Vec<Vec<TableId>>,
    /// Bytes of each of the compactions.
    pub compaction_bytes: Vec<u64>,
}

/// Paper mode. O(n log n).
pub fn components(inputs: &[Arc<Table>]) -> Components {
    let mut sorted: Vec<&Arc<Table>> = inputs.iter().collect();
    sorted.sort_by_key(|table| (&table.min_key, &table.max_key, table.id));
    let mut found = Components::default();
    let mut at = 0;
    while let Some(first) = sorted.get(at) {
        let mut reach = &first.max_key;
        let mut to = at + 1;
        while let Some(table) = sorted.get(to).filter(|table| table.min_key <= *reach) {
            reach = reach.max(&table.max_key);
            to += 1;
        }
        match &sorted[at..to] {
            [lone] => found.moves.push(lone.id),
            group => {
                found.compactions.push(group.iter().map(|table| table.id).collect());
                found.compaction_bytes.push(group.iter().map(|table| table.bytes).sum());
            }
        }
        at = to;
    }
    found
}

/// An input table with its blocks.
#[derive(Clone, Debug)]
pub struct SliceInput {
    /// The table.
    pub table: Arc<Table>,
    /// Its data blocks, in key order.
    pub blocks: Vec<Block>,
}

/// A data block, as the index of its table describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// No user key of the block is below this. The last key of the previous block is such a key. A
    /// tighter bound lets more tables move.
    pub from_key: Box<[u8]>,
    /// Its last user key.
    pub last_key: Box<[u8]>,
    /// Its size.
    pub bytes: u64,
}

/// A compaction in sliced mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Tables that change place without being read, in key order.
    pub moves: Vec<TableId>,
    /// Where the outputs are cut, ascending strictly; the same for every W.
    pub cuts: Vec<CutKey>,
    /// The parts, in key order. Together they cover all keys. Empty if everything moves.
    pub slices: Vec<Slice>,
}

/// A key range [lo, hi) of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// First key, inclusive; `None` for the smallest there is.
    pub lo: Option<CutKey>,
    /// First key after the slice; `None` if there is no upper bound.
    pub hi: Option<CutKey>,
    /// Bytes to read, according to the histogram.
    pub bytes: u64,
}

/// W: one slice for each idle core, but no more than the limit, and no more than are worth a thread
/// each; at least one. So a compaction uses the free cores.
pub fn slice_count(limit: usize, idle_cores: usize, bytes: u64, usual_bytes: u64) -> usize {
    let worth = bytes / usual_bytes.saturating_mul(TABLES_PER_SLICE).max(1);
    let worth = usize::try_from(worth).unwrap_or(usize::MAX);
    limit.min(idle_cores).min(worth).max(1)
}

/// How a compaction is cut.
#[derive(Clone, Copy, Debug)]
pub struct CellRule<'a> {
    /// Which partitioner.
    pub partitioner: Partitioner,
    /// theta: largest table wanted, in bytes.
    pub table_bytes: u64,
    /// For the partitioner that cuts by prefix.
    pub prefixer: Option<&'a Prefixer>,
    /// Whether inputs may move without being read.
    pub may_move: bool,
}

impl CellRule<'_> {
    /// The rule of a compaction.
    pub fn of<'p>(compaction: &Compaction, prefixer: Option<&'p Prefixer>) -> CellRule<'p> {
        let (partitioner, table_bytes) = compaction.cut.cells();
        CellRule {
            partitioner,
            table_bytes,
            prefixer,
            may_move: compaction.slot != RunSlot::Overlapping,
        }
    }

    /// See [`Partitioner::usual_bytes`].
    pub fn usual_bytes(&self) -> u64 {
        self.partitioner.usual_bytes(self.table_bytes)
    }
}

/// Cuts a compaction in the given mode. Only sliced mode looks at W.
pub fn sub_compactions(
    mode: SubCompactions,
    inputs: &[SliceInput],
    rule: CellRule<'_>,
    slice_count: usize,
) -> Slices {
    match mode {
        SubCompactions::Slices => slice(inputs, rule, slice_count),
        SubCompactions::Components => slice_by_components(inputs, rule),
    }
}

/// Sliced mode. O(blocks log blocks + tables * rows * log blocks), plus the cost of the
/// partitioner. The number of rows is the largest number of tables that overlap at one key: at most
/// the number of runs.
pub fn slice(inputs: &[SliceInput], rule: CellRule<'_>, slice_count: usize) -> Slices {
    let mut moving: Vec<&SliceInput> = Vec::new();
    let mut compacted: Vec<&SliceInput> = Vec::new();
    let rows = sublevels(inputs);
    for input in inputs {
        let is_large = input.table.bytes >= rule.usual_bytes().div_ceil(MOVE_DIVISOR)
            && input.table.tombstones == 0;
        if rule.may_move && is_large && is_alone(input, &rows) {
            moving.push(input)
        } else {
            compacted.push(input)
        };
    }
    moving.sort_by(|a, b| a.table.min_key.cmp(&b.table.min_key));
    let moves = moving.iter().map(|input| input.table.id).collect();
    let Some(Cells { mut cuts, histogram, .. }) = cells_of(&compacted, rule) else {
        return Slices { moves, ..Slices::default() };
    };
    for table in moving.iter().map(|input| &input.table) {
        cuts.push(table.min_key.clone());
        cuts.push(successor(&table.max_key));
    }
    cuts.sort_unstable();
    cuts.dedup();
    let slices = pack(&histogram, &cuts, slice_count);
    Slices { moves, cuts, slices }
}

/// Paper mode with the cuts of the outputs: one slice, which the partitioner cuts by itself, for
/// each component of two tables or more, and for each lone table with tombstones. Other lone tables
/// move, whatever their size, unless the rule forbids moves. O(blocks log blocks).
pub fn slice_by_components(inputs: &[SliceInput], rule: CellRule<'_>) -> Slices {
    let tables: Vec<Arc<Table>> = inputs.iter().map(|input| Arc::clone(&input.table)).collect();
    let by_id: BTreeMap<TableId, &SliceInput> =
        inputs.iter().map(|input| (input.table.id, input)).collect();
    let mut found = components(&tables);
    let is_rewritten = |id: &mut TableId| !rule.may_move || by_id[id].table.tombstones > 0;
    found.compactions.extend(found.moves.extract_if(.., is_rewritten).map(|id| vec![id]));
    found.compactions.sort_by_key(|group| &by_id[&group[0]].table.min_key);
    let mut cuts: BTreeSet<CutKey> = BTreeSet::new();
    for id in &found.moves {
        let table = &by_id[id].table;
        cuts.extend([table.min_key.clone(), successor(&table.max_key)]);
    }
    let mut slices: Vec<Slice> = Vec::new();
    for group in &found.compactions {
        let group: Vec<&SliceInput> = group.iter().map(|id| by_id[id]).collect();
        let Some(part) = cells_of(&group, rule) else { continue };
        if let Some(before) = slices.last_mut() {
            before.hi = Some(part.min_key.clone());
            cuts.insert(part.min_key.clone());
        }
        let lo = (!slices.is_empty()).then_some(part.min_key);
        slices.push(Slice { lo, hi: None, bytes: part.histogram.bytes() });
        cuts.extend(part.cuts);
    }
    Slices { moves: found.moves, cuts: cuts.into_iter().collect(), slices }
}

/// The cells into which the partitioner cuts the tables of a compaction.
struct Cells {
    min_key: CutKey,
    cuts: Vec<CutKey>,
    /// The blocks of the tables.
    histogram: Histogram,
}

/// `None` if there are no tables.
fn cells_of(compacted: &[&SliceInput], rule: CellRule<'_>) -> Option<Cells> {
    let CellRule { partitioner, table_bytes, prefixer, .. } = rule;
    let (min_key, max_key) = bounds(compacted.iter().map(|input| &input.table))?;
    let blocks = compacted.iter().flat_map(|input| &input.blocks);
    let points = blocks.map(|b| Point { last_key: b.last_key.clone(), bytes: b.bytes });
    let histogram = Histogram::new(points.collect());
    let whole = Input { histogram: &histogram, min_key, max_key, table_bytes, prefixer };
    let cuts = partitioner.rule().cuts(&whole);
    Some(Cells { min_key: min_key.into(), cuts, histogram })
}

/// Arranges the inputs in sublevels: each table joins the first row that ends before the table
/// begins.
fn sublevels(inputs: &[SliceInput]) -> Vec<Vec<&SliceInput>> {
    let mut sorted: Vec<&SliceInput> = inputs.iter().collect();
    sorted.sort_by_key(|input| (&input.table.min_key, &input.table.max_key));
    let mut rows: Vec<Vec<&SliceInput>> = Vec::new();
    for input in sorted {
        let has_room = |row: &&mut Vec<&SliceInput>| {
            row.last().is_none_or(|last| last.table.max_key < input.table.min_key)
        };
        match rows.iter_mut().find(has_room) {
            Some(row) => row.push(input),
            None => rows.push(vec![input]),
        }
    }
    rows
}

/// Rule 1: whether no block of another input overlaps the table. The tables of a row do not
/// overlap.
fn is_alone(input: &SliceInput, rows: &[Vec<&SliceInput>]) -> bool {
    let Table { min_key, max_key, .. } = &*input.table;
    rows.iter().all(|row| {
        let from = row.partition_point(|other| other.table.max_key < *min_key);
        let near = row[from..].iter().take_while(|other| other.table.min_key <= *max_key);
        near.filter(|other| other.table.id != input.table.id).all(|o| !o.meets(&input.table))
    })
}

impl SliceInput {
    /// Whether a block may contain a key within the table's bounds. O(log blocks).
    fn meets(&self, table: &Table) -> bool {
        let at = self.blocks.partition_point(|block| *block.last_key < *table.min_key);
        self.blocks.get(at).is_some_and(|block| *block.from_key <= *table.max_key)
    }
}

/// Rule 3: finds by bisection the least size for which this many slices suffice. A size suffices if
/// filling slices in order, each as full as possible, needs no more slices. Greedy filling needs
/// the fewest: a slice that ends earlier only leaves more to the next ones. O(cells log bytes).
fn pack(histogram: &Histogram, cuts: &[CutKey], slice_count: usize) -> Vec<Slice> {
    let sizes: Vec<u64> =
        cells(histogram, cuts).iter().map(|cell| histogram.bytes_of(cell)).collect();
    let (mut too_small, mut enough) = (0, histogram.bytes().max(1));
    while enough - too_small > 1 {
        let size = too_small + (enough - too_small) / 2;
        match fill(&sizes, size).is_some_and(|ends| ends.len() <= slice_count.max(1)) {
            true => enough = size,
            false => too_small = size,
        }
    }
    let ends = fill(&sizes, enough).unwrap_or_else(|| vec![sizes.len()]);
    let mut slices = Vec::with_capacity(ends.len());
    let mut from: usize = 0;
    for to in ends {
        slices.push(Slice {
            lo: from.checked_sub(1).map(|cut| cuts[cut].clone()),
            hi: cuts.get(to - 1).cloned(),
            bytes: sizes[from..to].iter().sum(),
        });
        from = to;
    }
    slices
}

/// The cell indices at which slices of at most `size` end; `None` if a cell is larger. The last one
/// ends with the last cell.
fn fill(sizes: &[u64], size: u64) -> Option<Vec<usize>> {
    let mut ends = Vec::new();
    let mut filled: u64 = 0;
    for (at, bytes) in sizes.iter().enumerate() {
        if *bytes > size {
            return None;
        }
        // A cell without bytes joins the slice before it.
        if filled + bytes > size {
            ends.push(at);
            filled = 0;
        }
        filled += bytes;
    }
    ends.push(sizes.len());
    Some(ends)
}
