//! Replays the log onto the manifest's state at open: steps 3 to 6 of [`super::open`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::shape::{Edit, Placement, RunSlot, Table};

use crate::base::error::Result;
use crate::base::key::{KeyspaceId, Kind, SeqNo, pack};
use crate::base::random;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::jobs::flush::write_memtable;
use crate::log::number_in;
use crate::memtable::Memtable;
use crate::store::engine::Engine;
use crate::tree::manifest::Manifest;
use crate::values::separation::Separated;
use crate::wal::recovery::{self, LogStart};

/// The tables that recovery wrote, by keyspace.
type NewTables = BTreeMap<KeyspaceId, Vec<Arc<Table>>>;

/// Runs steps 3 to 6.
pub(super) fn recover(inner: &Arc<Engine>, random: u64) -> Result<()> {
    let mut new_tables = NewTables::new();
    if !inner.env.options.read_only {
        make_base_durable(inner, random)?;
    }
    let fresh = replay_log(inner, &mut new_tables).and_then(|last_seq| {
        let writes = !inner.env.options.read_only;
        writes.then(|| make_first_manifest(inner, &new_tables, last_seq, random)).transpose()
    });
    // Nothing names these tables yet. On a full disk they would take the room that the next try
    // needs.
    let fresh = fresh.inspect_err(|_| {
        new_tables.values().for_each(|tables| inner.catalog.discard(tables));
    })?;
    let Some(fresh) = fresh else { return Ok(()) };
    fresh.switch_current()?;
    inner.catalog.manifest.lock().log = Some(fresh);
    remove_orphans(inner)
}

/// Makes the manifest that was read durable, in a manifest of its own. Recovery writes values to
/// slots that this manifest calls free. But its last edit may not be durable, and a sync that
/// failed may have lost it for good. The slots that this edit frees would then be overwritten
/// although the older manifest uses them.
fn make_base_durable(inner: &Engine, random: u64) -> Result<()> {
    let has_values = |keyspace: &Arc<KeyspaceCore>| !keyspace.values.load().is_empty();
    let manifest = inner.catalog.manifest.lock();
    let storage = &inner.env.storage;
    if !inner.catalog.keyspaces.read().values().any(has_values)
        || recovery::segments(&**storage, manifest.log_start.0)?.is_empty()
    {
        return Ok(());
    }
    let number = inner.env.new_file();
    let id = random::next(&mut (random ^ number));
    let state = inner.catalog.store_state(&manifest);
    Manifest::create(Arc::clone(storage), number, id, &state)?.switch_current()
}

/// Replays the log into memtables, and writes those to tables unless the store is read-only.
/// Returns the last sequence number.
fn replay_log(inner: &Engine, new_tables: &mut NewTables) -> Result<SeqNo> {
    let (segment, seq) = inner.catalog.manifest.lock().log_start;
    let start = LogStart { segment, seq };
    let flushed = inner.catalog.manifest.lock().flushed.clone();
    let keyspaces = inner.catalog.keyspaces.read().clone();
    let recovered = recovery::replay(&*inner.env.storage, start, |seq, operation| {
        // The log may still hold writes to a dropped keyspace.
        let Some(keyspace) = keyspaces.get(&operation.keyspace) else { return Ok(()) };
        if seq <= flushed.get(&operation.keyspace).copied().unwrap_or(0) {
            return Ok(());
        }
        let active = Arc::clone(&keyspace.view.load().active);
        let deletes = u64::from(operation.kind == Kind::Delete);
        if active.announce(seq, 1, deletes, 0) {
            inner.catalog.unflushed.add(keyspace);
        }
        active.insert(operation.key, pack(seq, operation.kind), operation.value);
        inner.visibility.publisher.set_visible(seq);
        if active.is_full() && !inner.env.options.read_only {
            spill(inner, keyspace, &active, new_tables)?;
        }
        Ok(())
    })?;
    let last_seq = recovered.last_seq.max(inner.visibility.publisher.visible());
    inner.committer.begin_after(last_seq);
    if recovered.torn {
        tracing::warn!(last_seq, "an unsynced suffix of the log was lost");
    }
    for keyspace in keyspaces.values().filter(|_| !inner.env.options.read_only) {
        let active = Arc::clone(&keyspace.view.load().active);
        spill(inner, keyspace, &active, new_tables)?;
    }
    Ok(last_seq)
}

/// Writes a recovered memtable to a table and puts an empty one in its place.
fn spill(
    inner: &Engine,
    keyspace: &KeyspaceCore,
    memtable: &Arc<Memtable>,
    new_tables: &mut NewTables,
) -> Result<()> {
    if memtable.is_empty() {
        return Ok(());
    }
    let flushed =
        write_memtable(&inner.catalog, &inner.visibility, keyspace, memtable, &|| Ok(()))?;
    if let Some(table) = flushed.tables.into_iter().next() {
        new_tables.entry(keyspace.id).or_default().push(table);
    }
    // The manifest at the end of recovery describes these values too.
    flushed.separated.into_iter().for_each(Separated::publish);
    let options = keyspace.options.load();
    let version = Arc::clone(&keyspace.view.load().version);
    let active = Arc::new(inner.catalog.new_memtable(&options, None));
    keyspace.view.store(Arc::new(View { active, immutable: Vec::new(), version }));
    inner.catalog.unflushed.remove_if_flushed(keyspace);
    Ok(())
}

/// Writes a manifest with the whole state, but does not make it current.
fn make_first_manifest(
    inner: &Engine,
    new_tables: &NewTables,
    last_seq: SeqNo,
    mut random: u64,
) -> Result<Manifest> {
    let mut manifest = inner.catalog.manifest.lock();
    for (id, tables) in new_tables {
        let keyspaces = inner.catalog.keyspaces.read();
        let Some(keyspace) = keyspaces.get(id) else { continue };
        let place = |table: &Arc<Table>| Placement {
            level: 0,
            slot: RunSlot::New(table.id),
            table: Arc::clone(table),
        };
        let edit = Edit {
            place: tables.iter().map(place).collect(),
            flushes: tables.len() as u64,
            ..Edit::default()
        };
        let version = inner.catalog.next_version(keyspace, &edit)?;
        keyspace.swap_version(version, 0);
        manifest.flushed.insert(*id, last_seq);
    }
    // Takes the manifest's number first: the log floor must lie behind every segment that exists.
    let number = inner.env.new_file();
    manifest.log_start = (inner.env.next_file.load(Relaxed), last_seq + 1);
    let state = inner.catalog.store_state(&manifest);
    let id = random::next(&mut random);
    Manifest::create(Arc::clone(&inner.env.storage), number, id, &state)
}

/// Removes the files that nothing names (P10), but only files whose name has a form of ours. An
/// orphan that stays takes space and does no other harm, because file numbers are never reused.
fn remove_orphans(inner: &Engine) -> Result<()> {
    let manifest = inner.catalog.manifest.lock();
    let current = manifest.log.as_ref().map(Manifest::number);
    let keyspaces = inner.catalog.keyspaces.read();
    let mut live: BTreeSet<u64> = BTreeSet::new();
    for keyspace in keyspaces.values() {
        live.extend(keyspace.view.load().version.handles().map(|handle| handle.meta().id));
        live.extend(keyspace.values.load().all().map(|store| store.number));
    }
    for file in inner.env.storage.list()? {
        let name = &file.name;
        let data = number_in(name, "table").or(number_in(name, "values"));
        let orphan = match (data, number_in(name, "manifest")) {
            (Some(id), _) => !live.contains(&id),
            (_, Some(number)) => Some(number) != current,
            _ => number_in(name, "wal").is_some() || name == "CURRENT.new",
        };
        if orphan && let Err(error) = inner.env.storage.remove(name) {
            tracing::warn!(%error, "a file that is not needed was left behind");
        }
    }
    Ok(())
}
