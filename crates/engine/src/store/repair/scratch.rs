//! Entries of the log in order: gathered in memory, sorted, and written to tables in the new
//! directory, which is removed when the repair ends. So a log of any size needs a bounded amount of
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::shape::{Shape, Table};

use crate::error::Result;
use crate::keys::{KeyspaceId, compare};
use crate::options::store::KeyspaceOptions;
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::handle::TableContext;
use crate::table::table_name;

/// Bytes of entries that are sorted together.
const MOST_BYTES: usize = 32 << 20;
/// About how much memory an entry needs besides its key and value.
const ENTRY_BYTES: usize = 64;

/// Key, trailer, value.
type Entry = (Vec<u8>, u64, Vec<u8>);

/// See the module docs.
#[derive(Debug)]
pub(super) struct Scratch {
    context: Arc<TableContext>,
    next_file: u64,
    waiting: BTreeMap<KeyspaceId, Vec<Entry>>,
    bytes: usize,
    pub(super) tables: BTreeMap<KeyspaceId, Vec<Arc<Table>>>,
}

impl Scratch {
    /// Tables in `context`, numbered from `next_file` on.
    pub(super) fn new(context: Arc<TableContext>, next_file: u64) -> Scratch {
        let (waiting, tables) = (BTreeMap::new(), BTreeMap::new());
        Scratch { context, next_file, waiting, bytes: 0, tables }
    }

    /// The next number that no table has.
    pub(super) fn next_file(&self) -> u64 {
        self.next_file
    }

    /// Adds an entry.
    pub(super) fn add(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        trailer: u64,
        value: Vec<u8>,
    ) -> Result<()> {
        self.bytes += key.len() + value.len() + ENTRY_BYTES;
        self.waiting.entry(keyspace).or_default().push((key.to_vec(), trailer, value));
        if self.bytes >= MOST_BYTES { self.finish() } else { Ok(()) }
    }

    /// Writes the waiting entries.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.bytes = 0;
        for (keyspace, mut entries) in std::mem::take(&mut self.waiting) {
            entries.sort_by(|one, two| compare(&one.0, one.1, &two.0, two.1));
            // A log that was repeated has the same entries twice.
            entries.dedup_by(|two, one| one.0 == two.0 && one.1 == two.1);
            let layout = TableLayout::of_level(&KeyspaceOptions::default(), &Shape::default(), 0);
            let id = self.next_file;
            self.next_file += 1;
            let mut table = TableBuilder::create(&self.context, id, layout)?;
            for (key, trailer, value) in &entries {
                table.add(key, *trailer, value)?;
            }
            self.tables.entry(keyspace).or_default().push(Arc::new(table.finish()?));
        }
        Ok(())
    }

    /// Removes the tables. A table that stays is an orphan, which the first open removes.
    pub(super) fn remove(&self) {
        for table in self.tables.values().flatten() {
            let _ = self.context.storage.remove(&table_name(table.id));
        }
    }
}
