//! Finds the tables that cover a key, for keys in ascending order, as a compaction visits them.
//! `drop_guard.rs` uses the results.

use std::sync::Arc;

use crate::shape::overlapping::OverlappingTables;
use crate::shape::{Level, Run, Shape, Table, bounds};

/// A set of tables, and the tables among them that cover the key of the last seek.
///
/// The cover changes only at a table's bounds, so a step costs four key comparisons, plus O(depth
/// of overlap) at a bound; O(1) amortised over ascending keys. A smaller key starts over: correct,
/// but slow.
pub(crate) struct Covering {
    /// By `min_key`.
    tables: Vec<Arc<Table>>,
    /// The first table not yet reached.
    next: usize,
    /// Tables reached and not yet passed, which cover the key of the last seek.
    cover: Vec<usize>,
    /// The table of `cover` with the smallest `max_key`.
    first_to_leave: Option<usize>,
    /// The passed table with the largest `max_key`.
    last_passed: Option<usize>,
}

impl Covering {
    /// O(n log n).
    pub(crate) fn new(mut tables: Vec<Arc<Table>>) -> Covering {
        tables.sort_by(|a, b| a.min_key.cmp(&b.min_key).then(a.id.cmp(&b.id)));
        let (next, cover) = (0, Vec::new());
        Covering { tables, next, cover, first_to_leave: None, last_passed: None }
    }

    /// All tables, by `min_key`.
    pub(crate) fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Moves to a key. Returns whether the cover may have changed.
    pub(crate) fn seek(&mut self, key: &[u8]) -> bool {
        let is_behind = self.is_behind(key);
        if is_behind {
            self.rewind();
        }
        let leaves = self.first_to_leave.is_some_and(|at| *self.tables[at].max_key < *key);
        let enters = self.tables.get(self.next).is_some_and(|table| *table.min_key <= *key);
        if leaves || enters {
            self.advance(key);
        }
        is_behind || leaves || enters
    }

    /// The tables that cover the key of the last seek.
    pub(crate) fn cover(&self) -> impl Iterator<Item = &Table> {
        self.cover.iter().map(|&at| &*self.tables[at])
    }

    /// Whether the state belongs to larger keys than `key`: a reached table begins after `key`, or
    /// a passed table ends at or after `key`.
    fn is_behind(&self, key: &[u8]) -> bool {
        let met = self.next.checked_sub(1).is_some_and(|at| *self.tables[at].min_key > *key);
        met || self.last_passed.is_some_and(|at| *self.tables[at].max_key >= *key)
    }

    fn rewind(&mut self) {
        self.next = 0;
        self.cover.clear();
        self.first_to_leave = None;
        self.last_passed = None;
    }

    fn advance(&mut self, key: &[u8]) {
        while self.tables.get(self.next).is_some_and(|table| *table.min_key <= *key) {
            self.cover.push(self.next);
            self.next += 1;
        }
        let Covering { tables, cover, last_passed, .. } = self;
        cover.retain(|&at| {
            let covers = *tables[at].max_key >= *key;
            if !covers && last_passed.is_none_or(|old| tables[old].max_key < tables[at].max_key) {
                *last_passed = Some(at);
            }
            covers
        });
        self.first_to_leave = cover.iter().copied().min_by_key(|&at| &tables[at].max_key);
    }
}

/// A run, or a level whose tables may overlap. Between layers, rule I1 says which versions of a key
/// are newer.
#[derive(Clone, Copy)]
pub(crate) enum Layer<'a> {
    Run(&'a Run),
    Overlapping(&'a OverlappingTables),
}

impl<'a> Layer<'a> {
    /// The layers of a tree, newest first.
    pub(crate) fn all(shape: &'a Shape) -> Vec<Layer<'a>> {
        let of_level = |level: &'a Level| -> Vec<Layer<'a>> {
            match level {
                Level::Runs(runs) => runs.iter().map(Layer::Run).collect(),
                Level::Overlapping(tables) => vec![Layer::Overlapping(tables)],
            }
        };
        shape.levels.iter().flat_map(of_level).collect()
    }

    /// Whether its tables may overlap.
    pub(crate) fn overlaps(self) -> bool {
        matches!(self, Layer::Overlapping(_))
    }

    fn tables(self) -> &'a [Arc<Table>] {
        match self {
            Layer::Run(run) => &run.tables,
            Layer::Overlapping(tables) => tables,
        }
    }

    /// The tables whose bounds overlap `[min_key, max_key]`.
    fn meeting(self, min_key: &'a [u8], max_key: &'a [u8]) -> Vec<&'a Arc<Table>> {
        match self {
            Layer::Run(run) => run.overlapping(min_key, max_key).iter().collect(),
            Layer::Overlapping(tables) => tables.meeting(min_key, max_key).collect(),
        }
    }
}

/// The tables outside a compaction that overlap the key range of its inputs (`is_own`) in the
/// layers so far, including the current one. `None` if there is no input.
pub(crate) fn met_outside<'a>(
    layers: impl IntoIterator<Item = Layer<'a>>,
    is_own: impl Fn(&Table) -> bool,
) -> Option<Vec<Arc<Table>>> {
    let mut range: Option<(&[u8], &[u8])> = None;
    let mut met = Vec::new();
    for layer in layers {
        let own = bounds(layer.tables().iter().filter(|table| is_own(table)));
        range = range
            .into_iter()
            .chain(own)
            .reduce(|(min_key, max_key), (min, max)| (min_key.min(min), max_key.max(max)));
        let Some((min_key, max_key)) = range else { continue };
        let near = layer.meeting(min_key, max_key).into_iter();
        met.extend(near.filter(|table| !is_own(table)).map(Arc::clone));
    }
    range.map(|_| met)
}
