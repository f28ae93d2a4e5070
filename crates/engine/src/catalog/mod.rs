//! The keyspaces of an open store, their state, and the manifest that describes them.
//!
//! - [`keyspace`]: the state that all handles to a keyspace share.
//! - [`keyspaces`]: which keyspaces exist, and which hold writes that are only in the log.
//! - [`settle`]: adapts a keyspace to its options.
//! - [`install`]: appends edits to the manifest, and makes the versions that result from them.
//! - [`files`]: removes files that the manifest does not name.
//! - [`dead_ranges`]: stretches of hidden entries that walks jump over.

pub(crate) mod dead_ranges;
mod files;
mod install;
pub(crate) mod keyspace;
pub(crate) mod keyspaces;
pub(crate) mod settle;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::sync::{Mutex, RwLock, looked, rank};
use crossbeam_utils::CachePadded;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::lease::{EditPlace, Leases};
use crate::memtable::Memtable;
use crate::memtable::arena::ChunkPool;
use crate::options::store::KeyspaceOptions;
use crate::table::handle::TableContext;
use crate::tree::history::History;
use crate::tree::manifest::{Current, KeyspaceState, Manifest, StoreState};
use crate::tree::record::Change;
use keyspace::KeyspaceCore;
use keyspaces::{Flushed, Keyspaces, Unflushed};

/// The manifest, and the state that it last recorded.
#[derive(Debug)]
pub(crate) struct ManifestState {
    /// `None` in a store that is opened read-only.
    pub(crate) log: Option<Manifest>,
    /// The files that readers in other processes need. The leases must learn of every edit.
    pub(crate) leases: Arc<Leases>,
    /// The flushed sequence number of each keyspace.
    pub(crate) flushed: Flushed,
    pub(crate) next_keyspace: KeyspaceId,
    /// The random id of the store.
    pub(crate) uid: u64,
    /// The history that sequence numbers belong to.
    pub(crate) history: History,
    /// The id of the history that the open found.
    pub(crate) found_history: u64,
    /// The first log segment that a recovery would read, and the sequence number of its first
    /// record.
    pub(crate) log_start: (u64, SeqNo),
    /// The manifest that the open found, and the length of its valid part.
    pub(crate) found: Current,
    /// The id for the next keyspace, as the found manifest records it: above the ids of all
    /// keyspaces, dropped ones included; 0 if the manifest has no such record.
    pub(crate) found_next_keyspace: KeyspaceId,
}

/// The keyspaces, their tables, and the manifest that names them.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) env: Arc<Env>,
    pub(crate) tables: Arc<TableContext>,
    pub(crate) pool: Arc<ChunkPool>,
    pub(crate) keyspaces: RwLock<rank::Keyspaces, Keyspaces>,
    pub(crate) unflushed: Unflushed,
    pub(crate) manifest: Mutex<rank::Manifest, ManifestState>,
    /// Largest sequence number that is known to survive a power loss. The committer advances it,
    /// and edits record it.
    pub(crate) durable_seq: CachePadded<AtomicU64>,
    pub(crate) load: NumberedLoad,
}

/// The load that has a sequence number and is not in the tree yet. No edit records it as durable or
/// as below the floor of the log. If an edit did, readers in other processes would assume that the
/// load has ended.
#[derive(Debug)]
pub(crate) struct NumberedLoad {
    seq: AtomicU64,
    segment: AtomicU64,
}

impl NumberedLoad {
    fn none() -> NumberedLoad {
        NumberedLoad { seq: AtomicU64::new(u64::MAX), segment: AtomicU64::new(u64::MAX) }
    }

    /// Called under the commit lock, and so before a sync covers the sequence number.
    pub(crate) fn begin(&self, seq: SeqNo, segment: u64) {
        self.segment.store(segment, Relaxed);
        self.seq.store(seq, Release);
    }

    pub(crate) fn end(&self) {
        self.seq.store(u64::MAX, Release);
        self.segment.store(u64::MAX, Relaxed);
    }

    /// The segment of the log that has the load's record.
    pub(crate) fn segment(&self) -> Option<u64> {
        Some(self.segment.load(Relaxed)).filter(|segment| *segment < u64::MAX)
    }
}

impl Catalog {
    pub(crate) fn new(
        env: &Arc<Env>,
        tables: Arc<TableContext>,
        pool: Arc<ChunkPool>,
        manifest: ManifestState,
        durable_seq: SeqNo,
    ) -> Catalog {
        Catalog {
            env: Arc::clone(env),
            tables,
            pool,
            keyspaces: RwLock::default(),
            unflushed: Unflushed::default(),
            manifest: Mutex::new(manifest),
            durable_seq: CachePadded::new(AtomicU64::new(durable_seq)),
            load: NumberedLoad::none(),
        }
    }

    /// The last sequence number that an edit may record as durable.
    fn told_synced_seq(&self) -> SeqNo {
        // Acquire: all that was synced up to this number is durable before the edit is.
        let durable_seq = self.durable_seq.load(Acquire);
        durable_seq.min(self.load.seq.load(Acquire) - 1)
    }

    /// All keyspaces, in order of creation.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceCore>> {
        self.keyspaces.read().values().cloned().collect()
    }

    pub(crate) fn find_keyspace(&self, name: &str) -> Option<Arc<KeyspaceCore>> {
        self.keyspaces.read().find(name).cloned()
    }

    /// Removes a keyspace that the manifest no longer names.
    pub(crate) fn remove_keyspace(&self, keyspace: &KeyspaceCore) {
        self.keyspaces.write().remove(keyspace);
        keyspace.removed.store(true, Release);
        self.unflushed.remove(keyspace.id);
    }

    /// A new memtable. It gets a filter if the previous memtable was at least half full, because
    /// then the new one will probably fill too.
    pub(crate) fn new_memtable(
        &self,
        options: &KeyspaceOptions,
        before: Option<&Memtable>,
    ) -> Memtable {
        let limit_bytes = self.tables.cache.memtable_bytes(options.write_buffer_bytes) as usize;
        match before.is_some_and(|before| before.allocated_bytes() >= limit_bytes / 2) {
            true => Memtable::filtered(&self.pool, limit_bytes),
            false => Memtable::new(&self.pool, limit_bytes),
        }
    }

    /// Whether any write up to `last_seq` is unflushed, apart from those in `flushed`.
    /// O(memtables): without a log, a flush has a memtable of each keyspace.
    pub(crate) fn others_unflushed(&self, flushed: &[Arc<Memtable>], last_seq: SeqNo) -> bool {
        let flushed: HashSet<_> = flushed.iter().map(Arc::as_ptr).collect();
        let is_other = |memtable: &Arc<Memtable>| {
            memtable.first_seq() <= last_seq && !flushed.contains(&Arc::as_ptr(memtable))
        };
        let holds = |keyspace: &Arc<KeyspaceCore>| {
            let view = keyspace.view.load();
            is_other(&view.active) || view.immutable.iter().any(is_other)
        };
        self.unflushed.find_map(|keyspace| holds(keyspace).then_some(())).is_some()
    }

    /// Whether each keyspace is dropped, or has no memtable with a sequence number up to `last_seq`
    /// that waits for its flush. A keyspace that is being dropped does not count as dropped yet,
    /// because the drop can fail.
    pub(crate) fn are_flushed(&self, keyspaces: &[Arc<KeyspaceCore>], last_seq: SeqNo) -> bool {
        let is_gone = |keyspace: &KeyspaceCore| {
            keyspace.dropped.load(Acquire) && !self.keyspaces.read().contains_key(&keyspace.id)
        };
        keyspaces.iter().all(|keyspace| keyspace.is_flushed(last_seq) || is_gone(keyspace))
    }

    /// The whole state that a manifest records, as of now. Called with the manifest lock held.
    pub(crate) fn store_state(&self, manifest: &ManifestState) -> StoreState {
        let keyspaces = self.keyspaces.read();
        looked(keyspaces.size() as u64);
        let describe = |keyspace: &Arc<KeyspaceCore>| KeyspaceState {
            name: keyspace.name.clone(),
            options: keyspace.options.load().to_toml(),
            flushed_seq: manifest.flushed.of(keyspace.id),
            shape: keyspace.view.load().version.shape.clone(),
            values: keyspace.values.load().all().map(|store| store.layout()).collect(),
        };
        StoreState {
            uid: manifest.uid,
            next_file: self.env.next_file.load(Relaxed),
            last_seq: manifest.flushed.last(),
            log_floor: manifest.log_start.0,
            log_start_seq: manifest.log_start.1,
            log_synced_seq: self.told_synced_seq(),
            next_keyspace: manifest.next_keyspace,
            history: manifest.history.clone(),
            has_no_log: !self.env.options.has_log(),
            keyspaces: keyspaces.iter().map(|(id, k)| (*id, describe(k))).collect(),
        }
    }
}

impl ManifestState {
    /// The manifest, and the length of its durable part; `None` in a store that is opened
    /// read-only.
    pub(crate) fn current(&self) -> Option<Current> {
        self.log.as_ref().map(Manifest::current)
    }

    /// Appends changes to the manifest. A read-only store has no manifest to append to.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<()> {
        let says_log = changes.iter().any(|change| matches!(change, Change::Log { .. }));
        invariant!(says_log, "an edit does not say what the log holds");
        self.log.as_mut().map_or(Err(Error::ReadOnly), |log| log.append(changes))?;
        // This follows the append, so a lease that is not seen here was taken after the edit.
        if let Some(Current { number, least_bytes, .. }) = self.current() {
            self.leases.edited(EditPlace { manifest: number, bytes: least_bytes });
        }
        Ok(())
    }
}
