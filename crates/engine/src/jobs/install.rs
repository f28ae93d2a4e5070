//! Makes finished work part of the tree: one manifest edit, then a new view for readers (I6).

use std::sync::Arc;

use runstone_policy::shape::{Edit, Table};

use crate::base::error::Result;
use crate::base::key::SeqNo;
use crate::store::{Inner, KeyspaceInner, ManifestState, View};
use crate::table::handle::TableHandle;
use crate::table::table_name;
use crate::tree::manifest::Manifest;
use crate::tree::record::Change;
use crate::tree::version::Version;
use crate::values::separation::ValueChanges;

impl Inner {
    /// The version after `edit`; nothing changes yet. Called with the manifest lock held, so that
    /// no other edit comes between.
    pub(crate) fn next_version(&self, keyspace: &KeyspaceInner, edit: &Edit) -> Result<Version> {
        let version = Arc::clone(&keyspace.view.load().version);
        let shape = version.apply(edit)?;
        Ok(version.next(shape, |table| {
            Arc::new(TableHandle::new(Arc::clone(&self.tables), Arc::clone(table)))
        }))
    }

    /// Appends an edit with the counters that go with it; starts a new manifest when due.
    pub(crate) fn append_edit(
        &self,
        manifest: &mut ManifestState,
        changes: Vec<Change>,
        (log_floor, log_start_seq): (u64, SeqNo),
    ) -> Result<()> {
        use std::sync::atomic::Ordering::*;
        let last_seq = manifest.flushed.values().copied().max().unwrap_or(0);
        let edit_seq = changes.iter().map(|change| match change {
            Change::Edit { flushed_seq, .. } => *flushed_seq,
            _ => 0,
        });
        let edit_seq = edit_seq.max().unwrap_or(0);
        let counters = Change::Counters {
            next_file: self.next_file.load(Relaxed),
            last_seq: last_seq.max(edit_seq),
            log_floor,
            log_start_seq,
        };
        let all: Vec<Change> = std::iter::once(counters).chain(changes).collect();
        manifest.append(&all)
    }

    /// Replaces the version of a keyspace; the `flushed` oldest waiting memtables leave with it.
    pub(crate) fn swap_version(&self, keyspace: &KeyspaceInner, version: Version, flushed: usize) {
        let version = Arc::new(version);
        {
            let _view = keyspace.view_lock.lock();
            let old = keyspace.view.load_full();
            let keep = old.immutable.len() - flushed;
            keyspace.view.store(Arc::new(View {
                active: Arc::clone(&old.active),
                immutable: old.immutable[..keep].to_vec(),
                version: Arc::clone(&version),
            }));
            keyspace.changes.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            old.version.left_by(&version).for_each(|handle| handle.mark_obsolete());
        }
        self.refresh_pressure(keyspace);
    }

    /// [`Inner::append_edit`] of changes that name these values, which come back if it is logged.
    /// If it is not known whether it is, their places are not used again: the next open may find
    /// the edit, and a compact that still runs would write over them.
    pub(crate) fn append_with_values(
        &self,
        manifest: &mut ManifestState,
        changes: Vec<Change>,
        log_start: (u64, SeqNo),
        values: ValueChanges,
    ) -> Result<ValueChanges> {
        match self.append_edit(manifest, changes, log_start) {
            Ok(()) => Ok(values),
            Err(error) => {
                let is_unknown = manifest.log.as_ref().is_some_and(Manifest::is_broken);
                if is_unknown && !seeded!(UnknownSlotsFreed) {
                    values.abandon();
                }
                Err(error)
            }
        }
    }

    /// Both steps without a manifest record: recovery, which writes a whole manifest afterwards.
    pub(crate) fn install(
        &self,
        keyspace: &KeyspaceInner,
        edit: &Edit,
        flushed: usize,
    ) -> Result<()> {
        let version = self.next_version(keyspace, edit)?;
        self.swap_version(keyspace, version, flushed);
        Ok(())
    }

    /// Starts a new manifest if the old one has grown. A failure leaves the old one in force.
    pub(crate) fn rotate_manifest_if_due(&self) -> Result<()> {
        use std::sync::atomic::Ordering::*;
        let mut manifest = self.manifest.lock();
        if !manifest.log.as_ref().is_some_and(Manifest::wants_rotation) {
            return Ok(());
        }
        let number = self.next_file.fetch_add(1, Relaxed);
        let state = self.store_state(&manifest);
        let mut seed = state.uid ^ number;
        let id = crate::base::random::next(&mut seed);
        let fresh = Manifest::create(Arc::clone(&self.storage), number, id, &state)?;
        if let Err(error) = fresh.switch_current() {
            // `CURRENT` may name the new one: an edit appended to the old one could be lost.
            manifest.log.iter_mut().for_each(Manifest::set_broken);
            self.stop_writes(&error);
            return Err(error);
        }
        if let Some(old) = manifest.log.replace(fresh) {
            let name = crate::tree::manifest::manifest_name(old.number());
            if let Err(error) = self.storage.remove(&name) {
                // The next open removes it as an orphan.
                tracing::warn!(%error, "the manifest before was left behind");
            }
        }
        Ok(())
    }

    /// Removes the files of tables that no reader needs any more.
    pub(crate) fn purge_files(&self) {
        let obsolete = std::mem::take(&mut *self.tables.purge.lock());
        for table in &obsolete {
            if !self.scheduler.is_closing() {
                table.evict(&self.tables);
            }
            match self.storage.remove(&table_name(table.meta.id)) {
                Ok(()) => self.tables.disk.remove(table.meta.bytes),
                // The next open removes it as an orphan.
                Err(error) => tracing::warn!(%error, "an obsolete table was left behind"),
            }
        }
    }

    /// After a failed install: removes the tables, unless the manifest may name them.
    pub(crate) fn discard_uninstalled(&self, tables: &[Arc<Table>]) {
        if !self.is_manifest_broken() {
            self.discard(tables);
        }
    }

    /// Whether an edit failed of which nobody knows whether it is on disk.
    pub(crate) fn is_manifest_broken(&self) -> bool {
        self.manifest.lock().log.as_ref().is_some_and(Manifest::is_broken)
    }

    /// Removes tables that were written but not installed.
    pub(crate) fn discard(&self, tables: &[Arc<Table>]) {
        for table in tables {
            // Whatever stays is removed as an orphan at the next open.
            if self.storage.remove(&table_name(table.id)).is_ok() {
                self.tables.disk.remove(table.bytes);
            }
        }
    }
}
