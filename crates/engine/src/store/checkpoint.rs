//! A copy of the store as of one moment, in a new directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_storage::Category;

use crate::base::error::{Error, Result};
use crate::base::key::SeqNo;
use crate::base::random;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::store::engine::Engine;
use crate::table::table_name;
use crate::tree::manifest::{Manifest, StoreState};
use crate::values::separation::ValueFiles;

impl Engine {
    /// Flushes, then links all tables into a new directory with a manifest of its own.
    pub(crate) fn checkpoint(self: &Arc<Self>, path: &Path) -> Result<()> {
        if self.env.options.read_only {
            // What the log holds is in memtables here, which only a writer can flush.
            let keyspaces = self.catalog.keyspaces.read();
            if keyspaces.values().any(|keyspace| !keyspace.view.load().active.is_empty()) {
                return Err(Error::ReadOnly);
            }
        }
        let target = self.env.storage.create_sibling(path)?;
        let (mut state, pinned) = match self.env.options.read_only {
            true => self.pin_state(SeqNo::MAX).unwrap_or_default(),
            false => self.pin_flushed_state()?,
        };
        for handle in pinned.iter().flat_map(|keyspace| keyspace.view.version.handles()) {
            let name = table_name(handle.meta().id);
            self.env.storage.link_into(&name, Category::Table, &*target)?;
        }
        // Value files are written in place: what the state names is copied. The state holds the
        // segments, so that their slots are not used again meanwhile.
        for (keyspace, described) in pinned.iter().zip(state.keyspaces.values()) {
            for layout in &described.values {
                if let Some(store) = keyspace.values.file(layout.number) {
                    store.copy_to(layout, &*target)?;
                }
            }
        }
        let number = state.next_file;
        state.next_file += 1;
        state.log_floor = state.next_file;
        state.log_start_seq = state.last_seq + 1;
        let mut seed = state.uid ^ number.rotate_left(32);
        let id = random::next(&mut seed);
        Manifest::create(target, number, id, &state)?.switch_current()
    }
}

/// Lets newer memtables be flushed again, however the checkpoint ends.
struct Unlimited<'a>(&'a Engine);

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        self.0.schedule.set_flush_limit(u64::MAX);
        self.0.schedule.wake();
    }
}

/// A keyspace's files, held.
struct Pinned {
    view: Arc<View>,
    values: Arc<ValueFiles>,
}

impl Engine {
    /// What the manifest says now, with the tables held. `None` if something up to `last_seq` is
    /// not in tables and can be: the drop of a keyspace has failed.
    fn pin_state(&self, last_seq: SeqNo) -> Option<(StoreState, Vec<Pinned>)> {
        let manifest = self.catalog.manifest.lock();
        let mut keyspaces: BTreeMap<u32, Arc<KeyspaceCore>> = self.catalog.keyspaces.read().clone();
        let is_flushed = |keyspace: &KeyspaceCore| keyspace.is_flushed(last_seq);
        // Nobody flushes what one holds that is being dropped.
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
        Some((state, pinned))
    }

    /// The same, of one moment for all keyspaces, with everything before it in tables: memtables
    /// are replaced together, and no newer one is flushed until the state is taken. Else a batch
    /// over two keyspaces could be in the copy by half (P3).
    fn pin_flushed_state(self: &Arc<Self>) -> Result<(StoreState, Vec<Pinned>)> {
        self.env.check_writable()?;
        let _one_at_a_time = self.checkpointing.lock();
        // Until the moment is known, no flush begins; one that runs takes an older memtable. A
        // flush that finds no room blames the snapshot only where no checkpoint waits.
        self.schedule.set_flush_limit(0);
        let _unlimited = Unlimited(self);
        // A collection, which a flush may begin, moves values and writes pointers that come after
        // the moment. Those of the copy lead to the old places, which stay for a snapshot.
        let _old_values = self.visibility.snapshot();
        let (keyspaces, last_seq) = self.rotate_all();
        reached!(MemtablesReplaced);
        self.schedule.set_flush_limit(last_seq);
        // Nobody flushes what is being dropped; it may yet stay.
        let is_settled = |keyspace: &Arc<KeyspaceCore>| {
            keyspace.is_flushed(last_seq) || keyspace.dropped.load(Acquire)
        };
        loop {
            self.runner.wait_until(|| keyspaces.iter().all(is_settled))?;
            reached!(FlushesAwaited);
            if let Some(pinned) = self.pin_state(last_seq) {
                return Ok(pinned);
            }
        }
    }

    /// Replaces the memtables of all keyspaces that exist at one moment; returns them and the last
    /// sequence number before it.
    fn rotate_all(&self) -> (Vec<Arc<KeyspaceCore>>, SeqNo) {
        loop {
            let listed = self.catalog.keyspaces.read().clone();
            reached!(KeyspacesListed);
            let keyspaces: Vec<_> = listed.values().cloned().collect();
            let last_seq = self.committer.rotate(&keyspaces, |_| true);
            // One made since may have been written to before that moment.
            if self.catalog.keyspaces.read().keys().eq(listed.keys()) {
                return (keyspaces, last_seq);
            }
        }
    }
}
