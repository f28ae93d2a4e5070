//! Finds tables that a range delete covers. Nobody sees any of their entries, so they are dropped
//! without being read. This module does no I/O.

use std::sync::Arc;

use runstone_policy::plan::{Busy, Plan};
use runstone_policy::shape::Table;

use crate::keys::SeqNo;
use crate::ranges::RangeDeletes;
use crate::tree::version::Version;

/// A plan that drops all covered tables that no job uses. `newer` are range deletes of memtables.
/// `points` are the sequence numbers that readers read at, ascending. O(tables), and O(points) if
/// there are range deletes.
pub(super) fn covered_tables<'a>(
    version: &Version,
    newer: &[Arc<RangeDeletes>],
    points: impl FnOnce() -> &'a [SeqNo],
    busy: &Busy,
) -> Option<Plan> {
    let ranges: Vec<_> = version.range_deletes.iter().chain(newer).collect();
    if ranges.is_empty() {
        return None;
    }
    let points = points();
    let tables = version.shape.tables().map(|(_, table)| table);
    // The range deletes of a table may reach beyond its keys.
    let covered = tables.filter(|table| {
        table.range_deletes == 0
            && !busy.tables.contains(&table.id)
            && ranges.iter().any(|ranges| is_covered(table, ranges, points))
    });
    let drops: Vec<u64> = covered.map(|table| table.id).collect();
    let why = format!("{} tables hold only what range deletes hide", drops.len());
    (!drops.is_empty()).then(|| Plan::new(why).drop_tables(drops))
}

/// Whether the first reader that sees any entry of a table sees the whole table deleted. Then every
/// later reader does too.
fn is_covered(table: &Table, ranges: &RangeDeletes, points: &[SeqNo]) -> bool {
    let first = match seeded!(CoveredTablesDroppedUnderSnapshots) {
        true => points.last(),
        false => points.get(points.partition_point(|point| *point < table.min_seq)),
    };
    let over = |point: &SeqNo| ranges.over_all(&table.min_key, &table.max_key, *point);
    first.is_some_and(|point| over(point) > table.max_seq)
}
