//! Replays the log onto the manifest's state at open: steps 3 to 6 of [`super::open`].
//!
//! The writes of a small log are not worth a table: a program that is started for each write would
//! leave one table each time. The log is written again instead, as one batch with new sequence
//! numbers, in a segment after the new log floor. Until the manifest with that floor is current,
//! the old log counts, and the new segment continues it. A crash in between replays the same writes
//! twice, which has the same result as once.
//!
//! An operand, however, would count twice. And a pointer that a collection wrote would become two
//! versions that share a record: a compaction that drops one of them would count the record as
//! dead. A log with such an operand or pointer is written to tables. The old segments cannot stay:
//! after a failed sync, the kernel treats unwritten bytes as written, and no later sync writes
//! them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::SystemTime;

use runstone_policy::shape::Table;
use runstone_random::{Random, mix64};
use runstone_storage::{Category, StorageFile};

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::{Error, Result};
use crate::format::record::Pointer;
use crate::jobs::flush::write_memtable;
use crate::jobs::install::flush_edit;
use crate::keys::{KeyspaceId, Kind, NO_KEYSPACE, SeqNo, is_delete, pack, range_delete};
use crate::lease::{EditPlace, HeldFile};
use crate::log::number_in;
use crate::memtable::Memtable;
use crate::ranges::RangeDeletes;
use crate::store::DEFAULT_KEYSPACE;
use crate::store::engine::Engine;
use crate::store::live;
use crate::store::lost_log::{self, LostLog};
use crate::tree::manifest::{CURRENT, Current, Manifest, manifest_name};
use crate::tree::version::RangeChange;
use crate::values::early::EarlyPlace;
use crate::values::separation::Separated;
use crate::wal::batch::{Batch, Operation};
use crate::wal::note::{Note, NotedKeyspace};
use crate::wal::recovery::{self, LogStart, Recovered};
use crate::wal::segments::segment_name;
use crate::write::buffers::buffer_limits;

/// Keeps the ids of histories apart from other random numbers of an open.
const HISTORY: u64 = 0x6869_7374_6f72_7921;

/// A log with more unflushed key and value bytes than this is written to tables.
const SMALL_LOG_BYTES: u64 = 64 << 10;

/// The tables that recovery wrote, by keyspace.
type NewTables = BTreeMap<KeyspaceId, Spilled>;

/// The tables written from the memtables of a keyspace, oldest first.
#[derive(Default)]
struct Spilled {
    flushes: Vec<Vec<Arc<Table>>>,
    range_deletes: RangeDeletes,
    /// The sequence numbers of the range deletes that the tables lack.
    range_deletes_left: Vec<SeqNo>,
}

/// Where a replay puts the writes of the log.
enum Target<'a> {
    /// Tables. They are written when a memtable is full, and at the end.
    Tables(&'a mut NewTables),
    /// Memtables, which are flushed once there is space.
    Memory,
    /// One memtable per keyspace. The store is opened for reading.
    Reading,
}

/// The result of a replay.
struct Replay {
    last_seq: SeqNo,
    /// The writes that are in no table, if they are few.
    small: Option<Batch>,
    /// Segments with writes that are not in tables, and the first sequence number of each.
    segments: Vec<(u64, SeqNo)>,
    /// If the log was torn, the segment in which its valid part ends. The segments after it are
    /// dropped.
    torn_behind: Option<u64>,
    /// The records whose values are missing: segments and offsets.
    without_values: Vec<(u64, u64)>,
    /// Where the valid part of the log ends: segment and offset.
    end: (u64, u64),
    lost: LostLog,
}

/// The error for a manifest that does not belong to the log.
const STALE: &str = "names an older manifest than the log; if a copy of the store was laid over \
                     the directory, lay it over an empty one";

/// Compares what the manifest and the log say about each other. Each can show that the end of the
/// other was lost, which the shortened file itself cannot show.
fn check_ends(inner: &Engine, recovered: &Recovered) -> Result<()> {
    let (found, logged) = (inner.catalog.manifest.lock().found, recovered.manifest);
    if logged > found {
        let (file, what) = match logged.number > found.number {
            true => (CURRENT.to_string(), STALE.to_string()),
            false => {
                let what = format!(
                    "valid to here, but the log says that {} bytes were durable",
                    logged.least_bytes
                );
                (manifest_name(found.number), what)
            }
        };
        return Err(Error::corruption(file, found.least_bytes, what));
    }
    // Until the replay ends, this is the number from the manifest.
    let synced_seq = inner.catalog.durable_seq.load(Acquire);
    if recovered.last_seq < synced_seq && !seeded!(ShortLogsPass) {
        let what = format!(
            "the log is valid up to sequence number {}, but the manifest says that {synced_seq} \
             was durable",
            recovered.last_seq
        );
        return Err(Error::corruption(segment_name(recovered.end.0), recovered.end.1, what));
    }
    Ok(())
}

/// Runs steps 3 to 6.
pub(super) fn recover(inner: &Arc<Engine>, random: Random) -> Result<()> {
    if inner.env.options.read_only {
        let replay = replay_log(inner, Target::Reading, None)?;
        lost_log::tell(&inner.env, &replay.lost);
        return keep_segments(inner, &replay, |_| Ok(()));
    }
    let without_values = make_base_durable(inner, random.clone())?;
    let (mut new_tables, mut lost) = (NewTables::new(), LostLog::default());
    let mut usable = None;
    let fresh =
        replay_log(inner, Target::Tables(&mut new_tables), without_values).and_then(|replay| {
            lost = replay.lost;
            // A record without its value looks whole to a reader.
            usable = Some(replay.end.0).filter(|_| replay.without_values.is_empty());
            begin_history(inner, replay.last_seq, random.clone())?;
            let small =
                replay.small.filter(|_| new_tables.is_empty() && inner.env.options.has_log());
            if !small.map_or(Ok(false), |small| log_again(inner, &small))? {
                for keyspace in inner.catalog.unflushed.all() {
                    let active = Arc::clone(&keyspace.view.load().active);
                    spill(inner, &keyspace, &active, &mut new_tables)?;
                }
            }
            make_first_manifest(inner, &new_tables, Some(replay.last_seq), random)
        });
    // Nothing names these tables yet. On a full disk they would use the space that the next attempt
    // needs.
    let fresh = fresh.inspect_err(|_| {
        let flushes = new_tables.values().flat_map(|spilled| &spilled.flushes);
        flushes.for_each(|tables| inner.catalog.discard(tables));
        inner.committer.remove_log();
    })?;
    begin_manifest(inner, fresh, &lost, usable)?;
    tell_history(inner);
    Ok(())
}

/// Begins another history if the store was not closed: unsynced writes that others have read may be
/// lost, or the files are a copy of an open store, which has written more since. It also begins
/// another history if there is a log, or if the manifest is a copy: then another store uses the
/// same numbers, or this store did before the copy replaced its files.
fn begin_history(inner: &Engine, last_seq: SeqNo, mut random: Random) -> Result<()> {
    let mut manifest = inner.catalog.manifest.lock();
    let (storage, found) = (&*inner.env.storage, manifest.found);
    let file = storage.file_number(&manifest_name(found.number));
    let is_new = found.number == 0;
    let is_whole = found.is_closed && manifest.history.file == file;
    let has_log = !recovery::segments(storage, manifest.log_start.0)?.is_empty();
    if has_log || !(is_new || is_whole) {
        // Even with a fixed seed, each history has an id of its own.
        let id = mix64(random.draw() ^ HISTORY ^ inner.env.next_file.load(Relaxed) ^ file);
        manifest.history.fork(id, last_seq);
    }
    Ok(())
}

/// Tells readers of the log about a history that has begun. A crash may have happened between an
/// edit and its note, so the note lists all keyspaces. A crash may also have removed the segment of
/// the note after the edit that moves the log's beginning past it: then no history begins.
fn tell_history(inner: &Engine) {
    let manifest = inner.catalog.manifest.lock();
    let current = manifest.current().unwrap_or_default();
    let is_same = manifest.history.id == manifest.found_history;
    if current.number == 0 || (is_same && !inner.committer.has_readers()) {
        return;
    }
    let keyspaces = inner.catalog.keyspaces.read();
    let note = Note::Opened {
        history: manifest.history.id,
        forked_at: manifest.history.forks.last().map_or(0, |(_, last)| *last),
        keyspaces: keyspaces.values().map(|keyspace| describe(keyspace)).collect(),
    };
    inner.committer.log_opening(current, &note);
}

pub(super) fn describe(keyspace: &KeyspaceCore) -> NotedKeyspace {
    NotedKeyspace {
        id: keyspace.id,
        name: keyspace.name.clone(),
        options: keyspace.options.load().to_toml(),
    }
}

/// Tells readers of the log that the open changed the options of the default keyspace.
pub(super) fn tell_options(inner: &Engine) {
    let manifest = inner.catalog.manifest.lock();
    let current = manifest.current().unwrap_or_default();
    // A note with all keyspaces includes this change.
    if let Some(keyspace) = inner.catalog.find_keyspace(DEFAULT_KEYSPACE)
        && current.number > 0
        && manifest.history.id == manifest.found_history
        && !inner.committer.has_readers()
    {
        inner.committer.log_opening(current, &Note::Keyspace(describe(&keyspace)));
    }
}

/// Does what [`recover`] does, on a disk without room for tables: the log stays, and its writes are
/// kept in memory. Returns `full` if there is a log and the store is to run without one.
pub(super) fn recover_in_memory(inner: &Arc<Engine>, random: Random, full: &Error) -> Result<()> {
    let replay = replay_log(inner, Target::Memory, None)?;
    // If everything is in tables, the log is not kept: its end may be lost, and new sequence
    // numbers would not continue it.
    let is_kept = !inner.catalog.unflushed.all().is_empty();
    if is_kept && !inner.env.options.has_log() {
        return Err(full.clone());
    }
    if is_kept {
        keep_retired_files(inner);
        keep_log(inner, &replay)?;
    }
    let settled = Some(replay.last_seq).filter(|_| !is_kept);
    begin_history(inner, replay.last_seq, random.clone())?;
    let fresh = make_first_manifest(inner, &NewTables::new(), settled, random)?;
    begin_manifest(inner, fresh, &replay.lost, None)?;
    tell_history(inner);
    Ok(())
}

/// Logs the writes of a small log again. Returns `false` if there is no room: a table may need
/// less.
fn log_again(inner: &Engine, small: &Batch) -> Result<bool> {
    let keyspaces = inner.catalog.unflushed.all();
    let (_, start_seq) = inner.catalog.manifest.lock().log_start;
    match inner.committer.log_again(small, start_seq) {
        Ok(segment) => {
            keyspaces.iter().for_each(|keyspace| replace_memtable(inner, keyspace));
            inner.committer.take_up(small, &keyspaces, segment);
            keep_retired_files(inner);
            Ok(true)
        }
        Err(error) if error.is_no_space() => {
            inner.committer.remove_log();
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Keeps value files that receive no new values. The memtables may contain pointers into these
/// files, which a flush would have followed.
fn keep_retired_files(inner: &Engine) {
    let last_seq = inner.visibility.publisher.visible();
    for keyspace in inner.catalog.unflushed.all() {
        let values = keyspace.values.load();
        values.retired.iter().for_each(|store| store.keep_for(last_seq));
    }
}

/// Makes the first manifest current, and removes the files that it does not name. The log up to
/// the `usable` segment may be kept for readers of the history.
fn begin_manifest(
    inner: &Engine,
    fresh: Manifest,
    lost: &LostLog,
    usable: Option<u64>,
) -> Result<()> {
    keep_history(inner, usable)?;
    fresh.switch_current()?;
    let Current { number, least_bytes, .. } = fresh.current();
    inner.env.manifest.store(number, Release);
    inner.catalog.tables.leases.edited(EditPlace { manifest: number, bytes: least_bytes });
    let bytes = fresh.bytes();
    inner.catalog.manifest.lock().log = Some(fresh);
    for keyspace in inner.catalog.all() {
        let unflushed_from = keyspace.unflushed_from();
        keyspace.values.load().all().for_each(|store| store.release_found(unflushed_from));
    }
    remove_orphans(inner, lost)?;
    lost_log::tell(&inner.env, lost);
    inner.committer.begin_reserve(bytes);
    Ok(())
}

/// Keeps segments that no open needs any more, if readers of the history should have them. Segments
/// after a torn end were never part of the history.
fn keep_history(inner: &Engine, usable: Option<u64>) -> Result<()> {
    let storage = &*inner.env.storage;
    let in_use = inner.committer.segment_numbers();
    let (Some(last), true) = (usable, inner.committer.kept().keeps()) else { return Ok(()) };
    for number in recovery::segments(storage, 0)? {
        if number <= last && !in_use.contains(&number) && recovery::is_begun(storage, number)? {
            let file = storage.open(&segment_name(number), Category::Wal)?;
            // After a crash of the process, the end of the segment may not be durable.
            file.sync()?;
            let bytes = file.len()?;
            let now = SystemTime::now();
            let written = file.modified().ok().flatten();
            let age = written.and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
            inner.committer.keep_found(number, bytes, age);
        }
    }
    Ok(())
}

/// Makes the log durable, and keeps it, because the sequence numbers of later writes continue those
/// in it. Segments after a torn end are removed first, because their sequence numbers are assigned
/// again.
fn keep_log(inner: &Engine, replay: &Replay) -> Result<()> {
    let storage = &*inner.env.storage;
    if let Some(last) = replay.torn_behind {
        for number in recovery::segments(storage, last + 1)? {
            match replay.lost.segments.contains(&number) {
                true => lost_log::keep(storage, number)?,
                false => storage.remove(&segment_name(number))?,
            }
        }
    }
    for keyspace in inner.catalog.unflushed.all() {
        let values = keyspace.values.load();
        values.all().filter(|store| store.has_early()).try_for_each(|store| store.sync())?;
    }
    // A record without its value is itself intact. The next open must not mistake it for the writes
    // that now get its sequence numbers.
    for (segment, offset) in &replay.without_values {
        let file = storage.open(&segment_name(*segment), Category::Wal)?;
        file.set_len(*offset)?;
        file.sync()?;
    }
    keep_segments(inner, replay, |file| file.sync())?;
    Ok(storage.sync_dir()?)
}

/// Adds the replayed segments to the store's log. `prepare` is called for each one first.
fn keep_segments(
    inner: &Engine,
    replay: &Replay,
    prepare: fn(&dyn StorageFile) -> runstone_storage::Result<()>,
) -> Result<()> {
    for (number, first_seq) in &replay.segments {
        let file = inner.env.storage.open(&segment_name(*number), Category::Wal)?;
        prepare(&*file)?;
        inner.committer.keep_segment(*number, *first_seq, file.len()?);
    }
    Ok(())
}

/// Makes the manifest that was read durable, as a new manifest. Recovery writes values to slots
/// that this manifest calls free. But its last edit may not be durable, and a failed sync may have
/// lost that edit for good. The slots that the edit frees would then be overwritten although the
/// manifest without the edit uses them.
///
/// The log may show that the manifest has lost its end. A new manifest would hide that, so the log
/// is checked first. The values to which only the log points are found too, because their slots
/// must not be reused. Returns the records whose values are missing; `None` if they were not
/// searched for.
fn make_base_durable(inner: &Engine, mut random: Random) -> Result<Option<Vec<(u64, u64)>>> {
    let has_values = |keyspace: &Arc<KeyspaceCore>| !keyspace.values.load().is_empty();
    let storage = &inner.env.storage;
    let (segment, seq) = inner.catalog.manifest.lock().log_start;
    if !inner.catalog.keyspaces.read().values().any(has_values)
        || recovery::segments(&**storage, segment)?.is_empty()
    {
        return Ok(None);
    }
    let is_whole = |_, seq, operation: &Operation<'_>| has_value(inner, seq, operation);
    let start = LogStart { segment, seq };
    let recovered = recovery::replay(&**storage, start, is_whole, |_, _, _| Ok(()))?;
    check_ends(inner, &recovered)?;
    let manifest = inner.catalog.manifest.lock();
    let number = inner.env.new_file();
    let id = mix64(random.draw() ^ number);
    let state = inner.catalog.store_state(&manifest);
    Manifest::create(Arc::clone(storage), number, id, &state)?.switch_current()?;
    Ok(Some(recovered.without_values))
}

/// Whether the value of a logged write is in its value file, if the value was written there first.
/// Writes that are in tables are not checked.
fn has_value(inner: &Engine, seq: SeqNo, operation: &Operation<'_>) -> Result<bool> {
    let keyspace = inner.catalog.keyspaces.read().get(&operation.keyspace).cloned();
    let Some(keyspace) = keyspace else { return Ok(true) };
    let flushed = inner.catalog.manifest.lock().flushed.of(operation.keyspace);
    if seq <= flushed || seeded!(EarlyValuesUnchecked) {
        return Ok(true);
    }
    let place = EarlyPlace::decode(operation.place);
    let (Ok(place), pointer) = (place, Pointer::of_entry(operation.value)?) else {
        return Err(Error::corruption("the log", 0, "the place of a value does not decode"));
    };
    let files = keyspace.values.load();
    match files.file(pointer.store) {
        Some(file) => file.find_early((operation.key, seq), &pointer, &place),
        None => Ok(false),
    }
}

/// If other stores are open, a replay writes tables once its memtables use this fraction of the
/// limit.
const LEAST_SPILL_FRACTION: u64 = 16;

/// Replays the log into memtables, and writes those to the target. `without_values` are the records
/// whose values are known to be missing; `None` if they were not searched for.
fn replay_log(
    inner: &Engine,
    mut target: Target<'_>,
    without_values: Option<Vec<(u64, u64)>>,
) -> Result<Replay> {
    let (segment, seq) = inner.catalog.manifest.lock().log_start;
    let start = LogStart { segment, seq };
    let flushed = inner.catalog.manifest.lock().flushed.clone();
    let keyspaces = inner.catalog.keyspaces.read().clone();
    let mut segments: Vec<(u64, SeqNo)> = Vec::new();
    let next_keyspace = inner.catalog.manifest.lock().found_next_keyspace;
    let mut small = Some(Batch::new());
    let (most_bytes, _) = buffer_limits(&inner.env);
    let mut own_bytes = memtable_bytes(inner);
    let is_whole = |place, seq, operation: &Operation<'_>| match &without_values {
        Some(known) => Ok(!known.contains(&place)),
        None => has_value(inner, seq, operation),
    };
    let apply = |segment, seq, operation: Operation<'_>| {
        if segments.last().is_none_or(|(last, _)| *last != segment) {
            segments.push((segment, seq));
        }
        let Some(keyspace) = keyspaces.get(&operation.keyspace) else {
            // The log may still contain writes to a dropped keyspace.
            return check_known(operation.keyspace, next_keyspace, segment, seq);
        };
        if seq <= flushed.of(operation.keyspace) {
            return Ok(());
        }
        let active = Arc::clone(&keyspace.view.load().active);
        own_bytes += insert(inner, (keyspace, &active), (segment, seq), &operation);
        if let Some(batch) = &mut small {
            batch.push(operation.kind, operation.keyspace, operation.key, operation.value)?;
            let is_small = |batch: &mut Batch| batch.user_bytes() <= SMALL_LOG_BYTES;
            small = small.take_if(|batch| may_repeat(operation.kind) && is_small(batch));
        }
        inner.visibility.publisher.set_visible(seq);
        match &mut target {
            Target::Tables(tables) if active.is_full() => {
                spill(inner, keyspace, &active, tables)?;
                own_bytes = memtable_bytes(inner);
            }
            Target::Tables(tables) if holds_much(inner, most_bytes, own_bytes) => {
                spill_largest(inner, tables, most_bytes / 2)?;
                own_bytes = memtable_bytes(inner);
            }
            Target::Memory if active.is_full() => {
                inner.committer.rotate_if_active(keyspace, &active);
            }
            _ => {}
        }
        Ok(())
    };
    let recovered = recovery::replay(&*inner.env.storage, start, is_whole, apply)?;
    check_ends(inner, &recovered)?;
    let last_seq = recovered.last_seq.max(inner.visibility.publisher.visible());
    inner.committer.begin_after(last_seq);
    if recovered.torn {
        tracing::warn!(last_seq, "an unsynced suffix of the log was lost");
    }
    let lost =
        LostLog { records: recovered.lost_records, segments: recovered.lost_segments.clone() };
    let torn_behind = recovered.torn.then_some(recovered.end.0);
    let small = small.filter(|batch| !batch.is_empty());
    let (without_values, end) = (recovered.without_values, recovered.end);
    Ok(Replay { last_seq, small, segments, torn_behind, without_values, end, lost })
}

/// Inserts a write of the log into a memtable. Returns by how many bytes the memory of the nonempty
/// memtables grew.
fn insert(
    inner: &Engine,
    (keyspace, active): (&Arc<KeyspaceCore>, &Arc<Memtable>),
    (segment, seq): (u64, SeqNo),
    operation: &Operation<'_>,
) -> u64 {
    let mut before = active.reserved_bytes();
    let deletes = u64::from(is_delete(operation.kind as u64));
    if active.announce(seq, 1, deletes, segment) {
        inner.catalog.unflushed.add(keyspace);
        before = 0;
    }
    active.insert(operation.key, pack(seq, operation.kind), operation.value);
    if operation.kind == Kind::RangeDelete {
        let range = range_delete(operation.key, seq, operation.value);
        active.note_range_deletes(vec![Arc::new(range)], seq);
    }
    active.reserved_bytes().saturating_sub(before) as u64
}

/// The memory of the nonempty memtables. O(keyspaces with such memtables).
fn memtable_bytes(inner: &Engine) -> u64 {
    let mut bytes = 0;
    inner.catalog.unflushed.for_each(|keyspace| {
        if keyspace.holds_writes() {
            bytes += keyspace.view.load().active.reserved_bytes() as u64;
        }
    });
    bytes
}

/// Whether a write may be logged again: two replays of it must have the result of one.
fn may_repeat(kind: Kind) -> bool {
    !matches!(kind, Kind::Relocate | Kind::ValuePointer | Kind::Merge)
}

/// Refuses a write to a keyspace that was never made. In that case the manifest has lost the edit
/// that made the keyspace.
fn check_known(id: KeyspaceId, next: KeyspaceId, segment: u64, seq: SeqNo) -> Result<()> {
    if id < next || next == 0 || id == NO_KEYSPACE {
        return Ok(());
    }
    let what = format!(
        "sequence number {seq} in {} writes to keyspace {id}, which no edit has made",
        segment_name(segment)
    );
    Err(Error::corruption("manifest", 0, what))
}

/// Whether memtables use more than `most_bytes`. If other stores share the budget, their memtables
/// count too, and this store waits until its own, which use `own_bytes`, are worth a table. O(1),
/// because it is called for each write of the log.
fn holds_much(inner: &Engine, most_bytes: u64, own_bytes: u64) -> bool {
    inner.catalog.pool.in_use_bytes() > most_bytes
        && (!inner.env.is_sharing || own_bytes > most_bytes / LEAST_SPILL_FRACTION)
}

/// Makes room in the memory budget: many memtables may exceed it together although none of them is
/// full. The largest are written until the others use only `left_bytes`. Finding them one at a time
/// would cost a search of all memtables for each of thousands of small ones.
fn spill_largest(inner: &Engine, new_tables: &mut NewTables, left_bytes: u64) -> Result<()> {
    let active = |keyspace: &Arc<KeyspaceCore>| Arc::clone(&keyspace.view.load().active);
    let mut keyspaces = inner.catalog.unflushed.all();
    keyspaces.sort_by_cached_key(|keyspace| Reverse(active(keyspace).reserved_bytes()));
    for keyspace in keyspaces {
        if inner.catalog.pool.in_use_bytes() <= left_bytes {
            break;
        }
        spill(inner, &keyspace, &active(&keyspace), new_tables)?;
    }
    Ok(())
}

/// Writes a recovered memtable to tables and puts an empty one in its place.
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
    if !flushed.tables.is_empty() {
        let spilled = new_tables.entry(keyspace.id).or_default();
        spilled.flushes.push(flushed.tables);
        spilled.range_deletes_left.extend(flushed.range_deletes_left);
        if let Some(own) = memtable.range_deletes() {
            spilled.range_deletes.append(&own);
        }
    }
    // The manifest at the end of recovery describes these values too.
    flushed.separated.into_iter().for_each(Separated::publish);
    replace_memtable(inner, keyspace);
    Ok(())
}

/// Replaces the active memtable with an empty one.
fn replace_memtable(inner: &Engine, keyspace: &KeyspaceCore) {
    let options = keyspace.options.load();
    let version = Arc::clone(&keyspace.view.load().version);
    let active = Arc::new(inner.catalog.new_memtable(&options, None));
    keyspace.view.store(Arc::new(View { active, immutable: Vec::new(), version, loaded: 0 }));
    inner.catalog.unflushed.remove_if_flushed(keyspace);
}

/// Writes a manifest with the whole state, but does not make it current. With a `last_seq`,
/// everything up to it is in tables or logged again, and the log that was found is not needed.
fn make_first_manifest(
    inner: &Engine,
    new_tables: &NewTables,
    last_seq: Option<SeqNo>,
    mut random: Random,
) -> Result<Manifest> {
    let mut manifest = inner.catalog.manifest.lock();
    for (id, spilled) in new_tables {
        let keyspaces = inner.catalog.keyspaces.read();
        let Some(keyspace) = keyspaces.get(id) else { continue };
        let edit = flush_edit(&spilled.flushes);
        let (flushed, left) = (Some(&spilled.range_deletes), &*spilled.range_deletes_left);
        let change = RangeChange { flushed, left };
        let next = inner.catalog.next_version(keyspace, &edit, change)?;
        keyspace.swap_version(next, 0);
        if let Some(last_seq) = last_seq {
            manifest.flushed.insert(*id, last_seq);
        }
    }
    // The manifest's file number is taken first: the log floor must be after every segment found.
    let number = inner.env.new_file();
    if last_seq.is_some() {
        manifest.log_start = inner.committer.log_floor_without(|_, _| false);
    }
    let state = inner.catalog.store_state(&manifest);
    let id = random.draw();
    Manifest::create(Arc::clone(&inner.env.storage), number, id, &state)
}

/// Removes the files that nothing names (P10), but only files whose names have one of our forms. An
/// orphan that stays uses space but does no other harm, because file numbers are never reused. If
/// the end of the log was lost, its segment is kept under another name.
fn remove_orphans(inner: &Engine, lost: &LostLog) -> Result<()> {
    let manifest = inner.catalog.manifest.lock();
    let current = manifest.log.as_ref().map(Manifest::number);
    let keyspaces = inner.catalog.keyspaces.read();
    let mut live: BTreeSet<u64> = BTreeSet::new();
    for keyspace in keyspaces.values() {
        live.extend(keyspace.view.load().version.handles().map(|handle| handle.meta().id));
        live.extend(keyspace.values.load().all().map(|store| store.number));
    }
    let log: BTreeSet<u64> = inner.committer.segment_numbers().into_iter().collect();
    let is_log = |number: &u64| log.contains(number) || inner.committer.kept().holds(*number);
    for file in inner.env.storage.list()? {
        let name = &file.name;
        live::clear(&*inner.env.storage, name);
        let data = number_in(name, "table").or(number_in(name, "values"));
        let orphan = match (data, number_in(name, "manifest")) {
            (Some(id), _) => !live.contains(&id),
            (_, Some(number)) => Some(number) != current,
            _ => number_in(name, "wal").is_some_and(|n| !is_log(&n)) || name == "CURRENT.new",
        };
        let is_lost = number_in(name, "wal").filter(|number| lost.segments.contains(number));
        let outcome = match is_lost {
            _ if !orphan => Ok(()),
            Some(number) => lost_log::keep(&*inner.env.storage, number),
            None => {
                inner.catalog.leave_file(HeldFile::Orphan(name.clone()), file.len_bytes);
                Ok(())
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "a file that is not needed was left behind");
        }
    }
    Ok(())
}
