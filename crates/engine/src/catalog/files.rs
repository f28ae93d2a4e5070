//! Removes and forgets files outside the manifest: tables that were written but not installed, and
//! files that an edit left behind. The next open removes the rest as orphans.

use std::sync::Arc;

use runstone_policy::shape::Table;

use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::table::table_name;
use crate::values::file::values_name;
use crate::values::separation::ValueFiles;

impl Catalog {
    /// Removes the files of tables that no reader needs any more. If `evicts`, their blocks leave
    /// the cache too.
    pub(crate) fn purge_files(&self, evicts: bool) {
        let obsolete = std::mem::take(&mut *self.tables.purge.lock());
        for table in obsolete {
            if evicts {
                table.evict(&self.tables);
            }
            // The file is removed while nobody holds it. Otherwise it would be opened to stay
            // readable.
            let meta = table.into_meta();
            match self.env.storage.remove(&table_name(meta.id)) {
                Ok(()) => self.tables.disk.remove(meta.bytes),
                // The next open removes it as an orphan.
                Err(error) => tracing::warn!(%error, "an obsolete table was left behind"),
            }
        }
    }

    /// Removes tables after a failed install, unless the manifest may name them.
    pub(crate) fn discard_uninstalled(&self, tables: &[Arc<Table>]) {
        if !self.is_manifest_broken() {
            self.discard(tables);
        }
    }

    /// Removes tables that were written but not installed.
    pub(crate) fn discard(&self, tables: &[Arc<Table>]) {
        for table in tables {
            // If a file stays, the next open removes it as an orphan.
            if self.env.storage.remove(&table_name(table.id)).is_ok() {
                self.tables.disk.remove(table.bytes);
            }
        }
    }

    /// Forgets value files that the manifest no longer names. A reader of such a file may continue,
    /// because the file lives as long as it is open.
    pub(crate) fn forget_value_files(&self, keyspace: &KeyspaceCore, gone: &[u64]) {
        if gone.is_empty() {
            return;
        }
        let old = keyspace.values.load_full();
        let kept = old.retired.iter().filter(|store| !gone.contains(&store.number));
        let retired = kept.cloned().collect();
        keyspace.values.store(Arc::new(ValueFiles { current: old.current.clone(), retired }));
        self.remove_value_files(gone);
    }

    /// Removes files that the manifest does not name. The caller's work is done already, so a file
    /// that cannot be removed does not make it fail.
    pub(crate) fn remove_value_files(&self, numbers: &[u64]) {
        for number in numbers {
            if let Err(error) = self.env.storage.remove(&values_name(*number)) {
                // The next open removes it as an orphan.
                tracing::warn!(%error, "an obsolete value file was left behind");
            }
        }
    }
}
