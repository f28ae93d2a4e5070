//! A copy of the store as of one moment, in a new directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_random::mix64;
use runstone_storage::{Category, Storage};

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::store::engine::Engine;
use crate::store::unfinished::Unfinished;
use crate::table::table_name;
use crate::tree::manifest::{Manifest, StoreState};
use crate::values::separation::ValueFiles;

impl Engine {
    /// Flushes, then links all tables into a new directory that gets a manifest of its own.
    pub(crate) fn checkpoint(self: &Arc<Self>, path: &Path) -> Result<()> {
        // After a close, another process may own the directory.
        self.check_usable()?;
        if self.env.options.read_only {
            // A read-only store keeps what it replayed from the log in memtables, and only a writer
            // can flush those.
            let keyspaces = self.catalog.keyspaces.read();
            if keyspaces.values().any(|keyspace| !keyspace.view.load().active.is_empty()) {
                return Err(Error::ReadOnly);
            }
        }
        let target = self.env.storage.create_sibling(path)?;
        let copy = Unfinished::begin(&target)?;
        copy.end(self.write_copy(&target))
    }

    /// Writes a copy into an empty directory.
    fn write_copy(self: &Arc<Self>, target: &Arc<dyn Storage>) -> Result<()> {
        let (mut state, pinned) = match self.env.options.read_only {
            true => self.pin_state(SeqNo::MAX).unwrap_or_default(),
            false => self.pin_flushed_state()?,
        };
        for handle in pinned.iter().flat_map(|keyspace| keyspace.view.version.handles()) {
            let name = table_name(handle.meta().id);
            self.check_length(&name, handle.meta().bytes)?;
            self.env.storage.link_into(&name, Category::Table, &**target)?;
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
        let number = state.next_file;
        state.next_file += 1;
        state.log_floor = state.next_file;
        state.log_start_seq = state.last_seq + 1;
        state.history.fork_copy(state.last_seq);
        let id = mix64(state.uid ^ number.rotate_left(32));
        Manifest::create(Arc::clone(target), number, id, &state)?.switch_current()
    }

    /// Refuses a table that is shorter or longer than the manifest says. Its content is not read: a
    /// checkpoint consists of links, and does not take longer for more data.
    fn check_length(&self, name: &str, bytes: u64) -> Result<()> {
        let found = self.env.storage.open(name, Category::Table)?.len()?;
        if found != bytes {
            let what = format!("length is {found}, the manifest says {bytes}");
            return Err(Error::corruption(name, found.min(bytes), what));
        }
        Ok(())
    }
}

/// Lifts the limit on flushes when the checkpoint ends, on errors too.
struct Unlimited<'a>(&'a Engine);

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        self.0.schedule.set_flush_limit(u64::MAX);
        self.0.schedule.wake();
    }
}

/// The files of a keyspace, held so that they stay.
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
        let mut keyspaces: BTreeMap<u32, Arc<KeyspaceCore>> =
            all.iter().map(|(id, keyspace)| (*id, Arc::clone(keyspace))).collect();
        let is_flushed = |keyspace: &KeyspaceCore| keyspace.is_flushed(last_seq);
        // Nobody flushes a keyspace that is being dropped, so the copy leaves it out.
        keyspaces.retain(|_, keyspace| is_flushed(keyspace) || !keyspace.dropped.load(Acquire));
        if !self.env.options.read_only && !keyspaces.values().all(|keyspace| is_flushed(keyspace)) {
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
    /// copy could hold half of a batch that writes to two keyspaces (P3).
    fn pin_flushed_state(self: &Arc<Self>) -> Result<(StoreState, Vec<Pinned>)> {
        self.env.check_writable()?;
        let _one_at_a_time = self.checkpointing.lock();
        // No flush begins until the moment is known, and a flush that is already running takes an
        // older memtable. A flush that finds no room blames this snapshot only if no checkpoint
        // waits.
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
