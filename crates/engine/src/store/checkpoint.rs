//! A copy of the store as of one moment, in a new directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_storage::Storage;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::store::engine::Engine;
use crate::store::follow::cut::{Cut, Tables, copy_table, write_manifest};
use crate::store::unfinished::Unfinished;
use crate::sync::looked;
use crate::tree::manifest::StoreState;
use crate::values::separation::ValueFiles;

impl Engine {
    /// Writes a store of this moment into a new directory.
    pub(crate) fn checkpoint(self: &Arc<Self>, path: &Path, tables: Tables) -> Result<()> {
        self.env.check_caller()?;
        // After a close, another process may own the directory.
        self.check_usable()?;
        if self.lock.lock().is_none() {
            let hint = "copy it with `Follower::checkpoint`, which keeps the files of the writer";
            return Err(Error::invalid("the view of a follower makes no checkpoint", hint));
        }
        // A full disk is a good reason for a copy elsewhere.
        if self.env.is_stopped() {
            self.env.check_healthy()?;
        }
        let target = self.env.storage.create_sibling(path)?;
        let copy = Unfinished::begin(&target)?;
        // A read-only store may have replayed a log, whatever its options say.
        copy.end(match self.env.options.has_log() || self.env.options.read_only {
            true => self.write_with_log(&target, tables),
            false => self.write_flushed(&target, tables),
        })
    }

    /// Copies what the manifest names, and the log. A lease could be revoked while a large store is
    /// copied to another disk, so the files are kept without one.
    fn write_with_log(&self, target: &Arc<dyn Storage>, tables: Tables) -> Result<()> {
        let copied = self.copy_with_log(target, tables);
        self.runner.release_held();
        // A close keeps nothing for a checkpoint. What is missing then is no damage.
        copied.map_err(|error| self.check_usable().err().unwrap_or(error))
    }

    fn copy_with_log(&self, target: &Arc<dyn Storage>, tables: Tables) -> Result<()> {
        let mut held = self.catalog.tables.leases.hold();
        let cut = Cut::take_held(Arc::clone(&self.env.storage))?;
        held.narrow(cut.state.next_file);
        reached!(CutTaken);
        cut.copy_log(target)?;
        held.release_log();
        cut.copy_files(target, tables)?;
        self.check_usable()?;
        cut.finish_store(target)
    }

    /// Copies the tables and values, which contain everything once the memtables are flushed.
    fn write_flushed(self: &Arc<Self>, target: &Arc<dyn Storage>, tables: Tables) -> Result<()> {
        self.env.check_writable()?;
        let (mut state, pinned) = self.pin_flushed_state()?;
        for handle in pinned.iter().flat_map(|keyspace| keyspace.view.version.handles()) {
            let meta = handle.meta();
            copy_table(&*self.env.storage, (meta.id, meta.bytes), &**target, tables)?;
        }
        // Value files are written in place, so a linked file would change later. The segments that
        // the state names are therefore copied. The state holds the segments, so their slots are
        // not reused meanwhile.
        for (keyspace, described) in pinned.iter().zip(state.keyspaces.values()) {
            for layout in &described.values {
                if let Some(store) = keyspace.values.file(layout.number) {
                    store.copy_to(layout, &**target)?;
                }
            }
        }
        // The copy has no log.
        state.log_floor = state.next_file + 1;
        state.log_start_seq = state.last_seq + 1;
        let last_seq = state.last_seq;
        write_manifest(target, state, last_seq)
    }
}

/// Lifts the limit on flushes when the checkpoint ends, also after an error.
struct Unlimited<'a>(&'a Engine);

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        self.0.schedule.set_flush_limit(u64::MAX);
        self.0.schedule.wake();
    }
}

/// The files of a keyspace, held so that they are not removed.
struct Pinned {
    view: Arc<View>,
    values: Arc<ValueFiles>,
}

impl Engine {
    /// The state that the manifest records, with its tables held. `None` if a write up to
    /// `last_seq` is not in tables yet and can still get there. That happens when the drop of a
    /// keyspace has failed.
    fn pin_state(&self, last_seq: SeqNo) -> Option<(StoreState, Vec<Pinned>)> {
        let manifest = self.catalog.manifest.lock();
        let all = self.catalog.keyspaces.read().clone();
        looked(all.size() as u64);
        let mut keyspaces: BTreeMap<u32, Arc<KeyspaceCore>> =
            all.iter().map(|(id, keyspace)| (*id, Arc::clone(keyspace))).collect();
        let is_flushed = |keyspace: &KeyspaceCore| keyspace.is_flushed(last_seq);
        // Nobody flushes a keyspace that is being dropped, so the copy leaves it out.
        keyspaces.retain(|_, keyspace| is_flushed(keyspace) || !keyspace.dropped.load(Acquire));
        if !keyspaces.values().all(|keyspace| is_flushed(keyspace)) {
            return None;
        }
        let pin = |keyspace: &Arc<KeyspaceCore>| Pinned {
            view: keyspace.view.load_full(),
            values: keyspace.values.load_full(),
        };
        let pinned = keyspaces.values().map(pin).collect();
        let mut state = self.catalog.store_state(&manifest);
        state.keyspaces.retain(|id, _| keyspaces.contains_key(id));
        // The copy has no log.
        state.log_synced_seq = 0;
        Some((state, pinned))
    }

    /// The state of all keyspaces at one moment, with every earlier write in tables. All memtables
    /// are replaced together, and no newer one is flushed until the state is taken. Otherwise the
    /// copy could contain half of a batch that writes to two keyspaces (P3).
    fn pin_flushed_state(self: &Arc<Self>) -> Result<(StoreState, Vec<Pinned>)> {
        let _one_at_a_time = self.checkpointing.lock();
        // No flush begins until the moment is known, and a flush that is already running writes an
        // older memtable. The limit also shows that one snapshot is the checkpoint's own, and not
        // the reason why a flush finds no room.
        self.schedule.set_flush_limit(0);
        let _unlimited = Unlimited(self);
        // A flush may begin a collection, which moves values and writes pointers after the moment.
        // The pointers in the copy point to the old places, and the snapshot keeps these places.
        let _old_values = self.visibility.snapshot();
        let (keyspaces, last_seq) = self.committer.rotate_all();
        reached!(MemtablesReplaced);
        self.schedule.set_flush_limit(last_seq);
        // Nobody flushes a keyspace that is being dropped. If the drop fails, the keyspace stays.
        let is_settled = |keyspace: &Arc<KeyspaceCore>| {
            keyspace.is_flushed(last_seq) || keyspace.dropped.load(Acquire)
        };
        loop {
            self.runner.wait_until_all(&keyspaces, is_settled)?;
            reached!(FlushesAwaited);
            if let Some(pinned) = self.pin_state(last_seq) {
                return Ok(pinned);
            }
        }
    }
}
