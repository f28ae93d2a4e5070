//! Edits of the manifest, and the versions that they lead to. The manifest is the sole commit
//! point: what it does not say has not happened.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::shape::Edit;

use crate::base::error::Result;
use crate::base::key::SeqNo;
use crate::base::random;
use crate::catalog::keyspace::KeyspaceCore;
use crate::catalog::{Catalog, ManifestState};
use crate::table::handle::TableHandle;
use crate::tree::manifest::{Manifest, manifest_name};
use crate::tree::record::Change;
use crate::tree::version::Version;
use crate::values::separation::ValueChanges;

impl Catalog {
    /// The version after `edit`; nothing changes yet. Called with the manifest lock held, so that
    /// no other edit comes between.
    pub(crate) fn next_version(&self, keyspace: &KeyspaceCore, edit: &Edit) -> Result<Version> {
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
        let last_seq = manifest.flushed.values().copied().max().unwrap_or(0);
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
        let all: Vec<Change> = std::iter::once(counters).chain(changes).collect();
        manifest.append(&all)
    }

    /// [`Catalog::append_edit`] of changes that name these values, which come back if it is logged.
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

    /// Starts a new manifest if the old one has grown. A failure leaves the old one in force.
    pub(crate) fn rotate_manifest_if_due(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        if !manifest.log.as_ref().is_some_and(Manifest::wants_rotation) {
            return Ok(());
        }
        let number = self.env.new_file();
        let state = self.store_state(&manifest);
        let mut seed = state.uid ^ number;
        let id = random::next(&mut seed);
        let fresh = Manifest::create(Arc::clone(&self.env.storage), number, id, &state)?;
        if let Err(error) = fresh.switch_current() {
            // `CURRENT` may name the new one: an edit appended to the old one could be lost.
            manifest.log.iter_mut().for_each(Manifest::set_broken);
            self.env.stop_writes(&error);
            return Err(error);
        }
        if let Some(old) = manifest.log.replace(fresh) {
            let name = manifest_name(old.number());
            if let Err(error) = self.env.storage.remove(&name) {
                // The next open removes it as an orphan.
                tracing::warn!(%error, "the manifest before was left behind");
            }
        }
        Ok(())
    }

    /// Whether an edit failed of which nobody knows whether it is on disk.
    pub(crate) fn is_manifest_broken(&self) -> bool {
        self.manifest.lock().log.as_ref().is_some_and(Manifest::is_broken)
    }

    /// Nobody knows what is on disk: no further edit is logged.
    pub(crate) fn break_manifest(&self) {
        self.manifest.lock().log.iter_mut().for_each(Manifest::set_broken);
    }
}
