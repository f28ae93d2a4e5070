//! The key-range tree: which tables there are, and where their metadata pages are. It is in RAM;
//! checkpoint and journal rebuild it. It changes in only one way, at run time and at boot:
//! [`Tree::apply`] of a [`Commit`].

pub(super) mod commit;
pub(super) mod journal;
pub(super) mod references;

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::shape::{PolicyState, Shape, Table};
use runstone_policy::sketch::Sketch;
use runstone_rules::bands::Bands;

use crate::error::{Error, Result};
use crate::kvssd::format::meta_page::Clip;
use crate::kvssd::options::scaled_bytes;
pub use commit::{Commit, Node, ValueEntry, Values};

/// The tree and the counters that are committed with it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Level 0 oldest first, the other levels by key.
    levels: Vec<Vec<Arc<Node>>>,
    /// The same tables by number.
    nodes: BTreeMap<u64, Arc<Node>>,
    /// How many levels of the tree each level of the policy has. Not committed, because it follows
    /// from the options.
    pub(super) bands: Bands,
    /// Longest key of the device.
    pub(super) max_key_bytes: usize,
    /// The groups of separated values, and their pages by number.
    group_count: u8,
    value_pages: BTreeMap<u32, ValueEntry>,
    pub(super) txn: u64,
    pub(super) next_table_id: u64,
    pub(super) flushed_seq: u64,
    pub(super) last_seq: u64,
    pub(super) last_level: u32,
    pub(super) cursors: BTreeMap<u32, Box<[u8]>>,
}

impl Tree {
    /// An empty tree.
    pub(super) fn new(bands: Bands, max_key_bytes: usize) -> Tree {
        Tree { bands, max_key_bytes, ..Tree::default() }
    }

    /// The tables of a level.
    pub fn level(&self, level: usize) -> &[Arc<Node>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Number of levels, including empty ones in between.
    pub fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// All tables, level by level.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.levels.iter().flatten()
    }

    /// Pages of separated values.
    pub fn value_pages(&self) -> impl Iterator<Item = &ValueEntry> {
        self.value_pages.values()
    }

    /// How many groups of separated values there are; `None` if there are no such values.
    pub fn group_count(&self) -> Option<u8> {
        (!self.value_pages.is_empty()).then_some(self.group_count)
    }

    /// The table of this number.
    pub fn node(&self, id: u64) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    /// Largest sequence number given out; 0 on a device that was never written.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Tables of a level that may have a key in common with the range, in order.
    pub fn overlapping(&self, level: usize, range: &Clip) -> Vec<Arc<Node>> {
        let tables = self.level(level);
        if level == 0 {
            return tables.iter().filter(|node| node.fence.overlaps(range)).cloned().collect();
        }
        let from = tables.partition_point(|node| node.fence.hi <= range.lo);
        let inside = tables[from..].iter().take_while(|node| node.fence.lo < range.hi);
        inside.cloned().collect()
    }

    /// Tables that may have the key. Those with newer versions come first.
    pub fn candidates(&self, key: &[u8]) -> Vec<Arc<Node>> {
        let stacked = self.level(0).iter().rev().filter(|node| node.fence.contains(key));
        let deeper = self.levels.iter().skip(1).filter_map(|tables| table_of(tables, key));
        stacked.chain(deeper).cloned().collect()
    }

    /// Whether a level below `level` may have the key.
    pub fn is_below(&self, level: usize, key: &[u8]) -> bool {
        self.levels.iter().skip(level + 1).any(|tables| table_of(tables, key).is_some())
    }

    /// Applies a commit. It is an error if the commit does not fit, because of a damaged journal or
    /// a bug.
    pub fn apply(&mut self, commit: &Commit) -> Result<()> {
        let corrupt = |why: String| Error::Corrupt { what: "journal", why };
        for id in &commit.removed {
            let node = self.nodes.remove(id);
            let node = node.ok_or_else(|| corrupt(format!("table {id} is not there")))?;
            self.levels[usize::from(node.level)].retain(|other| other.id != *id);
        }
        for (id, meta_page) in &commit.moved {
            let node = self.nodes.get_mut(id);
            let node = node.ok_or_else(|| corrupt(format!("table {id} is not there")))?;
            Arc::make_mut(node).meta_page = *meta_page;
            let level = &mut self.levels[usize::from(node.level)];
            let slot = level.iter_mut().find(|other| other.id == *id);
            *slot.ok_or_else(|| corrupt(format!("table {id} is not there")))? = Arc::clone(node);
        }
        for node in &commit.added {
            self.place(node).map_err(corrupt)?;
        }
        self.apply_values(&commit.values).map_err(corrupt)?;
        while self.levels.last().is_some_and(Vec::is_empty) {
            self.levels.pop();
        }
        self.txn = commit.txn;
        self.next_table_id = commit.next_table_id;
        self.flushed_seq = commit.flushed_seq;
        self.last_seq = self.last_seq.max(commit.last_seq);
        self.last_level = commit.last_level;
        self.cursors.extend(commit.cursors.iter().cloned());
        Ok(())
    }

    fn apply_values(&mut self, values: &Values) -> std::result::Result<(), String> {
        for (first, count) in &values.emptied {
            let range = *first..first.saturating_add(*count);
            let gone: Vec<u32> = self.value_pages.range(range).map(|(page, _)| *page).collect();
            gone.iter().for_each(|page| drop(self.value_pages.remove(page)));
        }
        if values.group_count > 0 {
            let is_other = self.group_count().is_some_and(|count| count != values.group_count);
            if is_other {
                return Err("values are in other groups".to_string());
            }
            self.group_count = values.group_count;
        }
        for entry in &values.added {
            let is_sound = entry.group < values.group_count
                && entry.page_count > 0
                && !entry.starts.is_empty()
                && entry.starts.is_sorted_by(|one, next| one < next);
            if !is_sound || self.value_pages.insert(entry.page, entry.clone()).is_some() {
                return Err(format!("page {} of values has no place", entry.page));
            }
        }
        Ok(())
    }

    fn place(&mut self, node: &Node) -> std::result::Result<(), String> {
        let level = usize::from(node.level);
        if level >= Shape::MAX_LEVELS as usize || node.fence.lo >= node.fence.hi {
            return Err(format!("table {} has no place", node.id));
        }
        self.levels.resize_with(self.levels.len().max(level + 1), Vec::new);
        let tables = &mut self.levels[level];
        let at = match level {
            0 => tables.partition_point(|other| other.max_seq <= node.max_seq),
            _ => tables.partition_point(|other| other.fence.lo < node.fence.lo),
        };
        let is_clear = level == 0
            || (tables.get(at).is_none_or(|next| node.fence.hi <= next.fence.lo)
                && at.checked_sub(1).is_none_or(|i| tables[i].fence.hi <= node.fence.lo));
        if !is_clear {
            return Err(format!("table {} overlaps another of level {level}", node.id));
        }
        let node = Arc::new(node.clone());
        tables.insert(at, Arc::clone(&node));
        if self.nodes.insert(node.id, node).is_some() {
            return Err("a table is there twice".to_string());
        }
        Ok(())
    }

    /// The whole tree as one commit: what a checkpoint contains.
    pub fn snapshot(&self) -> Commit {
        Commit {
            txn: self.txn,
            cursors: self.cursors.iter().map(|(level, key)| (*level, key.clone())).collect(),
            added: self.nodes().map(|node| Node::clone(node)).collect(),
            values: Values {
                group_count: self.group_count().unwrap_or(0),
                emptied: Vec::new(),
                added: self.value_pages.values().cloned().collect(),
            },
            ..self.next_commit()
        }
    }

    /// A commit that changes nothing yet.
    pub fn next_commit(&self) -> Commit {
        Commit {
            txn: self.txn + 1,
            next_table_id: self.next_table_id,
            flushed_seq: self.flushed_seq,
            last_seq: self.last_seq,
            last_level: self.last_level,
            ..Commit::default()
        }
    }

    /// The level of the policy that a table is in.
    pub fn band(&self, node: &Node) -> u8 {
        self.bands.band(node.level.into()) as u8
    }

    /// The tree as policies see it. O(tables).
    pub fn shape(&self) -> Shape {
        let table = |node: &Arc<Node>| Arc::new(shape_table(node, self.max_key_bytes));
        let runs = self.levels.iter().skip(1).map(|tables| tables.iter().map(table).collect());
        let levels = self.bands.seen(self.level(0).iter().rev().map(table), runs);
        let state = PolicyState {
            cursors: self.cursors.clone(),
            last_level: self.last_level,
            ..PolicyState::default()
        };
        Shape { levels, state, ..Shape::default() }
    }
}

/// The table of a level below level 0 that may have the key.
fn table_of<'a>(tables: &'a [Arc<Node>], key: &[u8]) -> Option<&'a Arc<Node>> {
    let at = tables.partition_point(|node| *node.fence.hi <= *key);
    tables.get(at).filter(|node| node.fence.contains(key))
}

fn shape_table(node: &Node, max_key_bytes: usize) -> Table {
    Table {
        id: node.id,
        min_key: node.fence.lo.to_vec().into_boxed_slice(),
        max_key: node.fence.last_inside(max_key_bytes).into_boxed_slice(),
        bytes: scaled_bytes(node.charged_pages),
        entries: node.record_count,
        // For tables with many deletes the device has a rule of its own that knows the snapshots.
        // A move costs the device no page.
        tombstones: 0,
        min_seq: node.min_seq,
        max_seq: node.max_seq,
        filter_bits: 0,
        prefixes: Vec::new(),
        sketch: Sketch::of_nothing(),
        range_deletes: Default::default(),
        expiries: Default::default(),
    }
}
