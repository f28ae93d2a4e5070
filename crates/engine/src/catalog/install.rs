//! Appends edits to the manifest, and makes the versions that result. The manifest is the sole
//! commit point: a change that is not in it has not happened.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::shape::Edit;
use runstone_random::mix64;

use crate::catalog::keyspace::{KeyspaceCore, NextVersion};
use crate::catalog::{Catalog, ManifestState};
use crate::error::Result;
use crate::keys::SeqNo;
use crate::table::handle::TableHandle;
use crate::tree::manifest::{Manifest, manifest_name};
use crate::tree::record::Change;
use crate::tree::version::RangeChange;
use crate::values::separation::ValueChanges;

impl Catalog {
    /// The version after `edit`; it is not in force yet. Called with the manifest lock held, so
    /// that no other edit comes between.
    pub(crate) fn next_version(
        &self,
        keyspace: &KeyspaceCore,
        edit: &Edit,
        range_deletes: RangeChange<'_>,
    ) -> Result<NextVersion> {
        let after = Arc::clone(&keyspace.view.load().version);
        let shape = after.apply(edit)?;
        let mut version = after.next(shape, range_deletes, |table| {
            Arc::new(TableHandle::new(Arc::clone(&self.tables), Arc::clone(table)))
        });
        version.count_memory(&after, &self.tables.cache);
        Ok(NextVersion { version, after })
    }

    /// Appends changes together with the store's counters.
    pub(crate) fn append_edit(
        &self,
        manifest: &mut ManifestState,
        changes: Vec<Change>,
        (log_floor, log_start_seq): (u64, SeqNo),
    ) -> Result<()> {
        let last_seq = manifest.flushed.last();
        let edit_seq = changes.iter().map(|change| match change {
            Change::Edit { flushed_seq, .. } => *flushed_seq,
            _ => 0,
        });
        let edit_seq = edit_seq.max().unwrap_or(0);
        let counters = Change::Counters {
            next_file: self.env.next_file.load(Relaxed),
            last_seq: last_seq.max(edit_seq),
            log_floor,
            log_start_seq,
        };
        let log = self.log_change(manifest);
        let all: Vec<Change> = [counters, log].into_iter().chain(changes).collect();
        manifest.append(&all)
    }

    /// The last sequence number that is surely durable in the log. Every edit records it, because a
    /// reader applies an edit that frees values only once it knows the writes that made those
    /// values garbage.
    pub(crate) fn log_change(&self, manifest: &ManifestState) -> Change {
        let synced_seq = self.told_synced_seq();
        Change::Log { synced_seq, next_keyspace: manifest.next_keyspace }
    }

    /// Like [`Catalog::append_edit`], for changes that name these values. Returns the values if the
    /// edit is logged. If nobody knows whether it is logged, the slots of the values are not
    /// reused: the next open may find the edit, and a compaction that still runs would overwrite
    /// the values.
    pub(crate) fn append_with_values(
        &self,
        manifest: &mut ManifestState,
        changes: Vec<Change>,
        log_start: (u64, SeqNo),
        values: Vec<ValueChanges>,
    ) -> Result<Vec<ValueChanges>> {
        match self.append_edit(manifest, changes, log_start) {
            Ok(()) => Ok(values),
            Err(error) => {
                let is_unknown = manifest.log.as_ref().is_some_and(Manifest::is_broken);
                if is_unknown && !seeded!(UnknownSlotsFreed) {
                    values.into_iter().for_each(ValueChanges::abandon);
                }
                Err(error)
            }
        }
    }

    /// Syncs the part of the manifest that no sync has covered, so that its file can be closed.
    pub(crate) fn rest_manifest(&self) -> Result<()> {
        // The thread that holds the lock is about to sync the manifest.
        let Some(mut manifest) = self.manifest.try_lock() else { return Ok(()) };
        manifest.log.as_mut().map_or(Ok(()), Manifest::rest)
    }

    /// Starts a new manifest if the old one has grown enough. After a failure the old one stays in
    /// force. Also records the length of the manifest in `CURRENT` when that is due.
    pub(crate) fn rotate_manifest_if_due(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        if let Some(log) = manifest.log.as_mut().filter(|log| log.wants_naming()) {
            log.prepare_current()?;
            log.switch_current()?;
        }
        if !manifest.log.as_ref().is_some_and(Manifest::wants_rotation) {
            return Ok(());
        }
        let number = self.env.new_file();
        let state = self.store_state(&manifest);
        let id = mix64(state.uid ^ number);
        let fresh = Manifest::create(Arc::clone(&self.env.storage), number, id, &state)?;
        if let Err(error) = fresh.switch_current() {
            // `CURRENT` may name the new manifest, so an edit appended to the old one could be
            // lost.
            manifest.log.iter_mut().for_each(Manifest::set_broken);
            self.env.stop_writes(&error);
            return Err(error);
        }
        self.env.manifest.store(number, Release);
        if let Some(old) = manifest.log.replace(fresh) {
            let name = manifest_name(old.number());
            if let Err(error) = self.env.storage.remove(&name) {
                // The next open removes it as an orphan.
                tracing::warn!(%error, "the previous manifest was left behind");
            }
        }
        Ok(())
    }

    /// Whether an edit failed and nobody knows if it is on disk.
    pub(crate) fn is_manifest_broken(&self) -> bool {
        self.manifest.lock().log.as_ref().is_some_and(Manifest::is_broken)
    }

    /// Logs no further edit, because nobody knows what is on disk.
    pub(crate) fn break_manifest(&self) {
        self.manifest.lock().log.iter_mut().for_each(Manifest::set_broken);
    }
}
