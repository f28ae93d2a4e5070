//! Shared by the policy tests: short ways to make tables and edits. Not a test.

use std::sync::Arc;

use runstone_policy::shape::{Edit, Placement, RunSlot, SeqNo, Table, TableId};

/// A table with one entry per 100 bytes and no tombstones.
pub fn table(id: TableId, keys: (&str, &str), seqs: (SeqNo, SeqNo), bytes: u64) -> Arc<Table> {
    Arc::new(Table {
        id,
        min_key: keys.0.as_bytes().into(),
        max_key: keys.1.as_bytes().into(),
        bytes,
        entries: bytes / 100,
        min_seq: seqs.0,
        max_seq: seqs.1,
        ..Table::default()
    })
}

/// An edit that only places tables.
#[allow(dead_code, reason = "not every test file makes edits")]
pub fn placing(level: u32, slot: RunSlot, tables: &[Arc<Table>]) -> Edit {
    let place = |table: &Arc<Table>| Placement { level, slot, table: Arc::clone(table) };
    Edit { place: tables.iter().map(place).collect(), ..Edit::default() }
}
