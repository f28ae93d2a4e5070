//! Plans where a flush is cut, if the partitioner cuts flushes too (`partition_flushes`). A
//! compaction plans from the index blocks of its inputs; a memtable has none, so this file walks
//! its entries once.

use std::sync::Arc;

use runstone_policy::partition::{Histogram, Input, Point};
use runstone_policy::plan::Cut;

use crate::jobs::cutter::Cutter;
use crate::memtable::{Memtable, MemtableIter};
use crate::values::separation::Separation;

/// The largest group of neighbouring entries that is planned as one, as a fraction of a table.
const GRAINS_PER_TABLE: u64 = 64;

/// Cuts a memtable as the partitioner cuts the outputs of a compaction. It does not cut by prefix,
/// because a compaction chooses the rule for prefixes. A value that is written to a value file
/// counts as its pointer. O(entries), and the memory of 64 keys for each table, if cells are
/// planned.
pub(super) fn cutter(
    memtable: &Arc<Memtable>,
    cut: Cut,
    separation: Option<&Separation>,
) -> Cutter {
    let Cut::Cells { partitioner, table_bytes } = cut else {
        let most_bytes = if let Cut::Size(bytes) = cut { bytes } else { u64::MAX };
        return Cutter::new(Cut::Size(most_bytes), 0, 0);
    };
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek_to_first();
    let min_key = iter.record().map(|first| Box::from(first.key())).unwrap_or_default();
    let mut points = Vec::<Point>::new();
    while let Some(record) = iter.record() {
        let (key, value_bytes) = (record.key(), record.value().len());
        let stored = separation.map_or(value_bytes, |separation| separation.stored(value_bytes));
        let bytes = (key.len() + stored) as u64;
        let last = points.last_mut();
        match last.filter(|last| last.bytes + bytes <= table_bytes / GRAINS_PER_TABLE) {
            Some(last) => *last = Point { last_key: key.into(), bytes: last.bytes + bytes },
            None => points.push(Point { last_key: key.into(), bytes }),
        }
        iter.next();
    }
    let max_key = points.last().map(|last| last.last_key.clone()).unwrap_or_default();
    let histogram = Histogram::new(points);
    let input = Input {
        histogram: &histogram,
        min_key: &min_key,
        max_key: &max_key,
        table_bytes,
        prefixer: None,
    };
    Cutter::cells(partitioner.rule().cuts(&input).into(), None)
}
