//! Reads tables as a whole, and reports those that do not verify. Tables are read on two threads,
//! so that one checks while the other waits for the disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use runstone_policy::shape::{Shape, Table, TableId};
use runstone_storage::Storage;

use crate::cache::Cache;
use crate::error::Result;
use crate::store::verify::verify_entries;
use crate::table::handle::file_uid;
use crate::table::reader::TableReader;

/// Memory for partitions: the partitions of a table stay until the whole table has been read.
const CACHE_BYTES: u64 = 32 << 20;

/// The tables of a tree that are missing or do not verify. Their entries are not used. Tables in
/// `verified` are not read again.
pub(super) fn unlike_tables(
    storage: &dyn Storage,
    store_uid: u64,
    shape: &Shape,
    verified: &BTreeSet<TableId>,
) -> BTreeSet<TableId> {
    // The whole file is carried over, so the whole file is read, even if the tree shows only a part
    // of it.
    let whole = |table: &Arc<Table>| match shape.trims.get(&table.id) {
        Some(min_key) => Arc::new(Table { min_key: min_key.clone(), ..Table::clone(table) }),
        None => Arc::clone(table),
    };
    let unread = shape.tables().filter(|(_, table)| !verified.contains(&table.id));
    let tables: Vec<Arc<Table>> = unread.map(|(_, table)| whole(table)).collect();
    let cache = Arc::new(Cache::new(CACHE_BYTES));
    let check = |table: &Table| -> Result<u64> {
        let uid = file_uid(store_uid, table.id);
        let reader = Arc::new(TableReader::open(storage, table, uid, Arc::clone(&cache))?);
        verify_entries(&reader, table, &mut |_| Ok(()))
    };
    let next = AtomicUsize::new(0);
    let check_all = || {
        let mut unlike = BTreeSet::new();
        while let Some(table) = tables.get(next.fetch_add(1, Relaxed)) {
            if check(table).is_err() {
                unlike.insert(table.id);
            }
        }
        unlike
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("runstone-check".into());
        // Without a second thread, the first one reads all tables.
        let second = match tables.len() {
            0 | 1 => None,
            _ => builder.spawn_scoped(scope, check_all).ok(),
        };
        let mut unlike = check_all();
        match second.map(|second| second.join()) {
            Some(Ok(more)) => unlike.extend(more),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        unlike
    })
}
