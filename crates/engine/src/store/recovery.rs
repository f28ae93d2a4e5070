//! Replays the log onto the manifest's state at open: steps 3 to 6 of [`super::open`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::shape::{Edit, Placement, RunSlot, Table};
use runstone_storage::Category;

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
use crate::wal::segments::segment_name;

/// A log stays if its unflushed keys and values take at most this. A program that is started for
/// each write would otherwise leave a table each time.
const SMALL_LOG_BYTES: u64 = 64 << 10;

/// The segments of a log that stays take at most this.
const SMALL_LOG_FILE_BYTES: u64 = 8 << 20;

/// The tables that recovery wrote, by keyspace.
type NewTables = BTreeMap<KeyspaceId, Vec<Arc<Table>>>;

/// What a replay puts the writes of the log in.
enum Target<'a> {
    /// Tables, when a memtable is full and at the end.
    Tables(&'a mut NewTables),
    /// Memtables, which are flushed when there is space.
    Memory,
    /// One memtable per keyspace, of a store that is opened for reading.
    Reading,
}

/// What a replay found.
struct Replay {
    last_seq: SeqNo,
    /// Bytes of keys and values that no table had.
    unflushed_bytes: u64,
    /// Segments with writes that are not in tables, and the numbers of their first ones.
    segments: Vec<(u64, SeqNo)>,
    /// The segments behind this one hold what was dropped, if the log was torn.
    torn_behind: Option<u64>,
}

/// Runs steps 3 to 6.
pub(super) fn recover(inner: &Arc<Engine>, random: u64) -> Result<()> {
    if inner.env.options.read_only {
        return replay_log(inner, Target::Reading).map(drop);
    }
    make_base_durable(inner, random)?;
    let mut new_tables = NewTables::new();
    let fresh = replay_log(inner, Target::Tables(&mut new_tables)).and_then(|replay| {
        if new_tables.is_empty() && is_small(inner, &replay)? {
            keep_log(inner, &replay)?;
            return make_first_manifest(inner, &new_tables, None, random);
        }
        for keyspace in inner.catalog.unflushed.all() {
            let active = Arc::clone(&keyspace.view.load().active);
            spill(inner, &keyspace, &active, &mut new_tables)?;
        }
        make_first_manifest(inner, &new_tables, Some(replay.last_seq), random)
    });
    // Nothing names these tables yet. On a full disk they would take the room that the next try
    // needs.
    let fresh = fresh.inspect_err(|_| {
        new_tables.values().for_each(|tables| inner.catalog.discard(tables));
    })?;
    begin_manifest(inner, fresh)
}

/// The same where the disk has no room for tables: the log stays, and what it holds is in memory.
pub(super) fn recover_in_memory(inner: &Arc<Engine>, random: u64) -> Result<()> {
    let replay = replay_log(inner, Target::Memory)?;
    keep_log(inner, &replay)?;
    let fresh = make_first_manifest(inner, &NewTables::new(), None, random)?;
    begin_manifest(inner, fresh)
}

/// Whether what the log holds is not worth tables yet.
fn is_small(inner: &Engine, replay: &Replay) -> Result<bool> {
    let mut file_bytes = 0;
    for (number, _) in &replay.segments {
        file_bytes += inner.env.storage.open(&segment_name(*number), Category::Wal)?.len()?;
    }
    let (least, most) = (1, SMALL_LOG_BYTES);
    Ok((least..=most).contains(&replay.unflushed_bytes) && file_bytes <= SMALL_LOG_FILE_BYTES)
}

/// Puts the first manifest in force, and removes what it does not name.
fn begin_manifest(inner: &Engine, fresh: Manifest) -> Result<()> {
    fresh.switch_current()?;
    let bytes = fresh.bytes();
    inner.catalog.manifest.lock().log = Some(fresh);
    remove_orphans(inner)?;
    inner.committer.begin_reserve(bytes);
    Ok(())
}

/// Makes a log that stays durable, because later writes are numbered behind it. Segments behind a
/// torn end go first: the numbers in them are given out again.
fn keep_log(inner: &Engine, replay: &Replay) -> Result<()> {
    let storage = &*inner.env.storage;
    if let Some(last) = replay.torn_behind {
        for number in recovery::segments(storage, last + 1)? {
            storage.remove(&segment_name(number))?;
        }
    }
    for (number, first_seq) in &replay.segments {
        let file = storage.open(&segment_name(*number), Category::Wal)?;
        file.sync()?;
        inner.committer.keep_segment(*number, *first_seq, file.len()?);
    }
    Ok(storage.sync_dir()?)
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

/// Replays the log into memtables, and those into the target.
fn replay_log(inner: &Engine, mut target: Target<'_>) -> Result<Replay> {
    let (segment, seq) = inner.catalog.manifest.lock().log_start;
    let start = LogStart { segment, seq };
    let flushed = inner.catalog.manifest.lock().flushed.clone();
    let keyspaces = inner.catalog.keyspaces.read().clone();
    let mut segments: Vec<(u64, SeqNo)> = Vec::new();
    let (mut unflushed_bytes, mut last_keyspace) = (0, 0);
    let recovered = recovery::replay(&*inner.env.storage, start, |segment, seq, operation| {
        if segments.last().is_none_or(|(last, _)| *last != segment) {
            segments.push((segment, seq));
        }
        last_keyspace = last_keyspace.max(operation.keyspace);
        // The log may still hold writes to a dropped keyspace.
        let Some(keyspace) = keyspaces.get(&operation.keyspace) else { return Ok(()) };
        if seq <= flushed.get(&operation.keyspace).copied().unwrap_or(0) {
            return Ok(());
        }
        let active = Arc::clone(&keyspace.view.load().active);
        let deletes = u64::from(operation.kind == Kind::Delete);
        if active.announce(seq, 1, deletes, segment) {
            inner.catalog.unflushed.add(keyspace);
        }
        active.insert(operation.key, pack(seq, operation.kind), operation.value);
        unflushed_bytes += (operation.key.len() + operation.value.len()) as u64;
        inner.visibility.publisher.set_visible(seq);
        match &mut target {
            Target::Tables(tables) if active.is_full() => spill(inner, keyspace, &active, tables),
            Target::Memory if active.is_full() => {
                inner.committer.rotate_if_active(keyspace, &active);
                Ok(())
            }
            _ => Ok(()),
        }
    })?;
    let last_seq = recovered.last_seq.max(inner.visibility.publisher.visible());
    inner.committer.begin_after(last_seq);
    if recovered.torn {
        tracing::warn!(last_seq, "an unsynced suffix of the log was lost");
    }
    // If the log stays, its writes to a dropped keyspace must not become those of a new one.
    let mut manifest = inner.catalog.manifest.lock();
    manifest.next_keyspace = manifest.next_keyspace.max(last_keyspace.saturating_add(1));
    drop(manifest);
    let torn_behind = recovered.torn.then_some(recovered.last_segment);
    Ok(Replay { last_seq, unflushed_bytes, segments, torn_behind })
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

/// Writes a manifest with the whole state, but does not make it current. With a `last_seq`
/// everything up to there is in tables, and nothing of the log is needed any more.
fn make_first_manifest(
    inner: &Engine,
    new_tables: &NewTables,
    last_seq: Option<SeqNo>,
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
        manifest.flushed.extend(last_seq.map(|last_seq| (*id, last_seq)));
    }
    // Takes the manifest's number first: the log floor must lie behind every segment that exists.
    let number = inner.env.new_file();
    if let Some(last_seq) = last_seq {
        manifest.log_start = (inner.env.next_file.load(Relaxed), last_seq + 1);
    }
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
    let log: BTreeSet<u64> = inner.committer.segment_numbers().into_iter().collect();
    for file in inner.env.storage.list()? {
        let name = &file.name;
        let data = number_in(name, "table").or(number_in(name, "values"));
        let orphan = match (data, number_in(name, "manifest")) {
            (Some(id), _) => !live.contains(&id),
            (_, Some(number)) => Some(number) != current,
            _ => number_in(name, "wal").is_some_and(|n| !log.contains(&n)) || name == "CURRENT.new",
        };
        if orphan && let Err(error) = inner.env.storage.remove(name) {
            tracing::warn!(%error, "a file that is not needed was left behind");
        }
    }
    Ok(())
}
