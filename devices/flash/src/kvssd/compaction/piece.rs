//! The inputs of a compaction, whole or cut at a key.

use std::sync::Arc;

use crate::kvssd::format::key::Key;
use crate::kvssd::format::meta_page::{Clip, Entry, TableMeta};
use crate::kvssd::tree::Node;

/// The inputs of one transaction, and the rest of the tables that it cuts.
pub(super) struct Piece {
    pub(super) upper: Vec<TableMeta>,
    pub(super) lower: Vec<TableMeta>,
    /// Metadata pages of all inputs, those of upper tables first.
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) rest: Vec<TableMeta>,
    pub(super) page_count: u64,
    /// The key at which the inputs were cut.
    pub(super) end: Option<Key>,
}

impl Piece {
    /// The upper tables by run, oldest first.
    pub(super) fn runs(&self) -> Vec<&[TableMeta]> {
        let mut at = 0;
        let of_a_run = |one: &Arc<Node>, next: &Arc<Node>| one.level > 0 && one.level == next.level;
        let runs = self.nodes[..self.upper.len()].chunk_by(of_a_run);
        runs.map(|run| {
            at += run.len();
            &self.upper[at - run.len()..at]
        })
        .collect()
    }

    /// Makes a remapped table. The number of its deletes is estimated from the pages that have
    /// some.
    pub(super) fn remapped(&self, entries: Vec<Entry>, counter: u8) -> TableMeta {
        let inputs = || self.upper.iter().chain(&self.lower);
        let flagged = |entries: &[Entry]| -> u64 {
            let with_deletes = entries.iter().filter(|entry| entry.has_tombstones);
            with_deletes.map(|entry| u64::from(entry.record_count)).sum()
        };
        let all: u64 = inputs().map(|table| flagged(&table.entries)).sum();
        let deletes: u64 = inputs().map(|table| table.tombstones).sum();
        TableMeta {
            counter,
            min_seq: inputs().map(|table| table.min_seq).min().unwrap_or(0),
            max_seq: inputs().map(|table| table.max_seq).max().unwrap_or(0),
            tombstones: deletes * flagged(&entries) / all.max(1),
            entries,
            ..TableMeta::default()
        }
    }
}

/// The range from the first to the last key of some tables.
pub(super) fn hull(nodes: &[Arc<Node>]) -> Clip {
    let lo = nodes.iter().map(|node| &node.fence.lo).min().cloned().unwrap_or_default();
    let hi = nodes.iter().map(|node| &node.fence.hi).max().cloned().unwrap_or_default();
    Clip { lo, hi }
}

/// The part of the inputs up to a key, with about `most_pages` pages. The part beyond the key
/// becomes `rest`. Inputs that begin beyond the key are left out. Nothing is cut if all inputs
/// begin at one key.
pub(super) fn cut(piece: Piece, most_pages: u64) -> Piece {
    let mut starts: Vec<(&[u8], u64)> = Vec::new();
    for entry in piece.upper.iter().chain(&piece.lower).flat_map(|table| &table.entries) {
        starts.push((&entry.clip.lo, u64::from(entry.page_count)));
    }
    starts.sort();
    let first = starts.first().map_or(&[][..], |(lo, _)| lo);
    let mut page_count = 0;
    let at = starts.iter().find(|(lo, count)| {
        let is_full = page_count >= most_pages && *lo > first;
        page_count += if is_full { 0 } else { *count };
        is_full
    });
    let Some(key) = at.map(|(lo, _)| Key::from(*lo)) else { return piece };
    let upper_count = piece.upper.len();
    let (upper, lower, nodes, rest) = Default::default();
    let mut done = Piece { upper, lower, nodes, rest, page_count, end: Some(key.clone()) };
    let tables = piece.upper.into_iter().chain(piece.lower);
    for (at, (table, node)) in tables.zip(piece.nodes).enumerate() {
        let before = table.clipped(&Clip { lo: Key::default(), hi: key.clone() });
        if before.entries.is_empty() {
            continue;
        }
        let mut beyond = table.clipped(&Clip { lo: key.clone(), hi: table_end(&table) });
        if !table.reals.is_empty() {
            // The virtual table loses the real tables that end before the key.
            beyond = TableMeta::over([(&beyond, node.meta_page)], u8::MAX).unwrap_or_default();
            beyond = TableMeta {
                entries: beyond.entries,
                reals: beyond.reals,
                counter: beyond.counter,
                ..table.clone()
            };
        }
        done.rest.extend(Some(TableMeta { level: node.level, ..beyond }));
        if at < upper_count {
            done.upper.push(before)
        } else {
            done.lower.push(before)
        }
        done.nodes.push(node);
    }
    done.rest.retain(|table| !table.entries.is_empty());
    done
}

fn table_end(table: &TableMeta) -> Key {
    table.fence().map_or(Key::default(), |fence| fence.hi)
}
