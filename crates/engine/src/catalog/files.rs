//! Removes and forgets files outside the manifest: tables that were written but not installed, and
//! files that an edit made obsolete. The next open removes, as orphans, any files that are left.

use std::sync::Arc;

use runstone_policy::shape::Table;

use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::lease::HeldFile;
use crate::table::table_name;
use crate::values::file::{ValueFile, values_name};
use crate::values::separation::ValueFiles;

impl Catalog {
    /// Removes the files of tables that no reader needs any more. If `evicts` is set, their blocks
    /// are removed from the cache too.
    pub(crate) fn purge_files(&self, evicts: bool) {
        let obsolete = std::mem::take(&mut *self.tables.purge.lock());
        for table in obsolete {
            if evicts {
                table.evict(&self.tables);
            }
            // The handle is dropped before the file is removed: otherwise the removal would open
            // the file, to keep it readable.
            let meta = table.into_meta();
            self.leave_file(HeldFile::Table(meta.id, meta.bytes), meta.bytes);
        }
        self.release_held();
    }

    /// Removes a file that edits have made obsolete, or keeps it as long as a lease needs it.
    pub(crate) fn leave_file(&self, file: HeldFile, bytes: u64) {
        if let Some(file) = self.tables.leases.hold_file(file, bytes) {
            self.remove_left(file);
        }
    }

    /// Removes the files that no lease needs any more.
    pub(crate) fn release_held(&self) {
        self.tables.leases.release().into_iter().for_each(|file| self.remove_left(file));
    }

    fn remove_left(&self, file: HeldFile) {
        let name = match &file {
            HeldFile::Table(id, _) => table_name(*id),
            HeldFile::Values(number) => values_name(*number),
            HeldFile::Orphan(name) => name.clone(),
        };
        match (self.env.storage.remove(&name), file) {
            (Ok(()), HeldFile::Table(_, bytes)) => self.tables.disk.remove(bytes),
            (Ok(()), _) => {}
            // The next open removes it as an orphan.
            (Err(error), _) => tracing::warn!(%error, "an obsolete file was left behind"),
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
    /// because the file exists as long as it is open.
    pub(crate) fn forget_value_files(&self, keyspace: &KeyspaceCore, gone: &[u64]) {
        if gone.is_empty() {
            return;
        }
        let old = keyspace.values.load_full();
        let kept = old.retired.iter().filter(|store| !gone.contains(&store.number));
        let retired = kept.cloned().collect();
        let left = old.retired.iter().filter(|store| gone.contains(&store.number)).cloned();
        let left: Vec<_> = left.collect();
        keyspace.values.store(Arc::new(ValueFiles { current: old.current.clone(), retired }));
        self.remove_value_files(left.iter());
    }

    /// Removes files that the manifest does not name. The caller's work is done already, so a file
    /// that cannot be removed does not make it fail.
    pub(crate) fn remove_value_files<'a>(&self, files: impl Iterator<Item = &'a Arc<ValueFile>>) {
        for file in files {
            self.leave_file(HeldFile::Values(file.number), file.file_bytes());
        }
    }
}
