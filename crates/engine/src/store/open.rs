//! Opens a store: lock, manifest, log, orphans, a new manifest, background threads.
//!
//! 1. Take the lock; find out what the directory is.
//! 2. Read the manifest that `CURRENT` names. Open no table.
//! 3. Where values lie apart and there is a log: make durable, in a manifest of its own, what was
//!    read.
//! 4. Replay the log into memtables, and write those to level-0 tables.
//! 5. Write a new manifest with the whole state, the new tables and a log floor behind every old
//!    segment, and make it current: the commit point of recovery. A crash before it repeats 2-5.
//! 6. Remove files that the manifest does not name (P10).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use runstone_policy::prefix::{PrefixExtractor, PrefixRule, Prefixer};
use runstone_policy::shape::{Edit, Placement, RunSlot, Table};
use runstone_storage::{Access, LockMode, PosixStorage, Storage, StorageLock};

use super::directory::SharedDirectory;
use super::{DEFAULT_KEYSPACE, Inner, Keyspace, KeyspaceInner, ManifestState, Store, View};
use crate::base::codec::NUMBER_LIMIT;
use crate::base::error::{Error, Result};
use crate::base::event::check_outside;
use crate::base::key::{SeqNo, pack};
use crate::base::metrics::Metrics;
use crate::base::options::{Background, KeyspaceOptions, Options};
use crate::base::threads::Bell;
use crate::base::value_options::{ValueOptions, ValuePlacement};
use crate::cache::Cache;
use crate::catalog::dead_ranges::DeadRanges;
use crate::jobs::flush::write_memtable;
use crate::jobs::scheduler::{self, Scheduler};
use crate::log::{LOG_FORMAT, LogHeader, newer_format, number_in};
use crate::memtable::Memtable;
use crate::memtable::arena::ChunkPool;
use crate::table::handle::{DiskUse, TableContext, TableHandle};
use crate::tree::manifest::{
    CURRENT, Current, KeyspaceState, Manifest, StoreState, read_current, read_manifest,
};
use crate::tree::record::Change;
use crate::tree::version::Version;
use crate::values::file::{FIRST_SLOT, ValueFile};
use crate::values::layout::Layout;
use crate::values::separation::{Separated, ValueFiles};
use crate::visibility::publish::{Publisher, Syncer};
use crate::wal::batch::KeyspaceId;
use crate::wal::recovery::{self, LogStart};
use crate::wal::segments::{Wal, WalFiles};
use crate::write::commit::CommitState;
use crate::write::pressure::Throttle;

const LOCK_NAME: &str = "LOCK";
/// Memtable chunks kept for the next memtable while there are writers, and the part of the budget
/// that they never exceed.
const POOL_BYTES: u64 = 64 << 20;
const POOL_FRACTION: u64 = 8;

pub(super) fn open_path(path: &Path, options: Options) -> Result<Store> {
    // Before a directory is made.
    options.check()?;
    let access = match (options.read_only, options.create_if_missing) {
        (true, _) => Access::ReadOnly,
        (false, true) => Access::CreateIfMissing,
        (false, false) => Access::MustExist,
    };
    let storage = PosixStorage::open(path, access).map_err(|error| {
        if error.is_not_found() {
            return Error::NotAStore { path: path.display().to_string() };
        }
        error.into()
    })?;
    let storage = if options.io_uring { storage.with_io_uring() } else { storage };
    open_on(Arc::new(storage), options)
}

pub(super) fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Store> {
    options.check()?;
    let storage: Arc<dyn Storage> = Arc::new(SharedDirectory::new(storage));
    let current = find_store(&*storage, &options)?;
    let lock = take_lock(&*storage, options.read_only)?;
    // Again under the lock: another process may have made the store meanwhile.
    let current = match current {
        Some(found) => Some(read_current(&*storage)?.unwrap_or(found)),
        None => find_store(&*storage, &options)?,
    };
    let mut random = options.seed.unwrap_or_else(crate::base::random::entropy);
    let (mut state, same_boot) = match current {
        Some(current) => read_manifest(&*storage, current)?,
        None => (new_state(&mut random), true),
    };
    apply_options(&mut state, &options)?;
    let inner = Arc::new(assemble(storage, options, lock, state, random)?);
    recover(&inner, same_boot, random)?;
    finish(inner)
}

/// The current manifest, or `None` for a place where a store may be made.
fn find_store(storage: &dyn Storage, options: &Options) -> Result<Option<Current>> {
    if let Some(current) = read_current(storage)? {
        return Ok(Some(current));
    }
    let files = storage.list()?;
    let ours = |name: &str| {
        let known = ["manifest", "wal", "table", "values"];
        name == LOCK_NAME
            || name.starts_with(CURRENT)
            || known.iter().any(|extension| number_in(name, extension).is_some())
    };
    if let Some(foreign) = files.iter().find(|file| !ours(&file.name)) {
        let example = foreign.name.clone();
        return Err(Error::ForeignFiles { path: storage.location(), example });
    }
    // Tables or a log without `CURRENT`: not a fresh directory, but a store that lost its root.
    // A value file without slots is made before the first manifest, and holds nothing.
    let needed = [("table", 0), ("wal", 0), ("values", FIRST_SLOT)];
    let lost = files.iter().find(|file| {
        needed.iter().any(|(extension, empty_bytes)| {
            number_in(&file.name, extension).is_some() && file.len_bytes > *empty_bytes
        })
    });
    if let Some(lost) = lost {
        return Err(Error::corruption(
            CURRENT,
            0,
            format!("the file is missing, but the directory holds {}", lost.name),
        ));
    }
    if options.read_only || !options.create_if_missing {
        return Err(Error::NotAStore { path: storage.location() });
    }
    Ok(None)
}

fn take_lock(storage: &dyn Storage, read_only: bool) -> Result<Box<dyn StorageLock>> {
    let mode = if read_only { LockMode::Shared } else { LockMode::Exclusive };
    let lock = storage.lock(LOCK_NAME, mode)?;
    lock.ok_or_else(|| Error::InUse { path: storage.location() })
}

fn new_state(random: &mut u64) -> StoreState {
    StoreState {
        uid: crate::base::random::next(random),
        next_file: 1,
        log_start_seq: 1,
        ..StoreState::default()
    }
}

/// Makes the default keyspace if absent, and lets given options replace stored ones.
fn apply_options(state: &mut StoreState, options: &Options) -> Result<()> {
    let given = options.keyspace.as_ref();
    match state.keyspaces.values_mut().find(|keyspace| keyspace.name == DEFAULT_KEYSPACE) {
        Some(keyspace) => {
            if let Some(given) = given {
                keyspace.options = given.to_toml();
            }
        }
        None => {
            let options = given.cloned().unwrap_or_default().to_toml();
            let fresh = KeyspaceState::new(DEFAULT_KEYSPACE.to_string(), options);
            state.keyspaces.insert(0, fresh);
        }
    }
    Ok(())
}

fn assemble(
    storage: Arc<dyn Storage>,
    options: Options,
    lock: Box<dyn StorageLock>,
    state: StoreState,
    random: u64,
) -> Result<Inner> {
    let next_file = Arc::new(AtomicU64::new(state.next_file.max(highest_file(&*storage)? + 1)));
    let cache = Arc::new(Cache::new(options.memory_budget_bytes));
    let pool_bytes = POOL_BYTES.min(options.memory_budget_bytes / POOL_FRACTION) as usize;
    let bell = Arc::<Bell>::default();
    let pool = ChunkPool::new(pool_bytes, Some(Arc::clone(&cache)), Arc::clone(&bell));
    let tables = table_context(&storage, &cache, &state);
    let wal_files = Arc::new(WalFiles::new(
        Arc::clone(&storage),
        options.wal_mode,
        options.log_segment_bytes(),
        Arc::clone(&next_file),
        Arc::clone(&cache),
        Arc::clone(&bell),
    ));
    let (mut keyspaces, mut flushed) = (BTreeMap::new(), BTreeMap::new());
    for (id, keyspace) in &state.keyspaces {
        flushed.insert(*id, keyspace.flushed_seq);
        let made = make_keyspace(*id, keyspace, &tables, &pool, &options.prefix_extractors)?;
        if !options.read_only {
            settle_placement(&made, &tables, &next_file)?;
        }
        keyspaces.insert(*id, Arc::new(made));
    }
    let next_keyspace = next_keyspace(&state)?;
    static OPENINGS: AtomicU64 = AtomicU64::new(0);
    Ok(Inner {
        opening: OPENINGS.fetch_add(1, Relaxed),
        throttle: Throttle::new(options.max_delayed_bytes_per_second),
        commit: CachePadded::new(Mutex::new(CommitState {
            wal: Wal::new(Arc::clone(&wal_files), random),
            next_seq: state.last_seq + 1,
            closed: false,
            last_segment: 0,
        })),
        options,
        storage,
        tables,
        cache,
        pool,
        metrics: Metrics::default(),
        next_file,
        wal_files,
        keyspaces: RwLock::new(keyspaces),
        publisher: Publisher::new(state.last_seq),
        durable_seq: CachePadded::new(AtomicU64::new(state.last_seq)),
        log_too_long: AtomicBool::new(false),
        flush_limit: AtomicU64::new(u64::MAX),
        checkpointing: Mutex::new(()),
        syncer: Syncer::default(),
        snapshots: Mutex::default(),
        manifest: Mutex::new(ManifestState {
            log: None,
            flushed,
            next_keyspace,
            uid: state.uid,
            log_start: (state.log_floor, state.log_start_seq),
        }),
        scheduler: Scheduler::default(),
        bell,
        health: Default::default(),
        lock: Mutex::new(Some(lock)),
    })
}

/// The id of one that was dropped may come again: recovery ends with a log floor behind every
/// record that names it, before a keyspace can be made.
fn next_keyspace(state: &StoreState) -> Result<KeyspaceId> {
    let largest = state.keyspaces.keys().max().copied().unwrap_or(0);
    let next = largest.checked_add(1);
    next.ok_or_else(|| Error::corruption("manifest", 0, "a keyspace has the largest id"))
}

fn table_context(
    storage: &Arc<dyn Storage>,
    cache: &Arc<Cache>,
    state: &StoreState,
) -> Arc<TableContext> {
    Arc::new(TableContext {
        storage: Arc::clone(storage),
        cache: Arc::clone(cache),
        store_uid: state.uid,
        purge: Mutex::default(),
        disk: Arc::new(DiskUse::of(state.keyspaces.values().map(|k| k.shape.bytes()).sum())),
    })
}

/// The largest number in any file name: numbers are never reused, not even those of orphans.
fn highest_file(storage: &dyn Storage) -> Result<u64> {
    let files = storage.list()?;
    let number = |name: &str| {
        let stem = name.split('.').next()?;
        let number = stem.bytes().all(|byte| byte.is_ascii_digit()).then(|| stem.parse().ok())?;
        // A larger one is no number of ours, and there would be none above it.
        number.filter(|number: &u64| *number < NUMBER_LIMIT)
    };
    Ok(files.iter().filter_map(|file| number(&file.name)).max().unwrap_or(0))
}

pub(super) fn make_keyspace(
    id: KeyspaceId,
    state: &KeyspaceState,
    tables: &Arc<TableContext>,
    pool: &Arc<ChunkPool>,
    extractors: &[Arc<dyn PrefixExtractor>],
) -> Result<KeyspaceInner> {
    // The record's checksum holds, so this is not corruption: the text is of a release that knows
    // more.
    let options = KeyspaceOptions::from_toml(&state.options).map_err(|error| {
        tracing::error!(keyspace = state.name, %error, "stored options are not understood");
        newer_format("manifest (options of a keyspace)", LOG_FORMAT + 1)
    })?;
    let prefixer = settle_prefixer(state.shape.state.prefix.as_ref(), &options, extractors)?;
    let version = Version::default().next(state.shape.clone(), |table| {
        Arc::new(TableHandle::new(Arc::clone(tables), Arc::clone(table)))
    });
    let active = Memtable::new(pool, options.write_buffer_bytes as usize);
    let mut values = ValueFiles::default();
    for layout in &state.values {
        let store = Arc::new(ValueFile::open(tables, layout.clone())?);
        match store.retired_at() {
            0 => values.current = Some(store),
            _ => values.retired.push(store),
        }
    }
    Ok(KeyspaceInner {
        id,
        name: state.name.clone(),
        options: ArcSwap::from_pointee(options),
        view: ArcSwap::from_pointee(View {
            active: Arc::new(active),
            immutable: Vec::new(),
            version: Arc::new(version),
        }),
        view_lock: Mutex::new(()),
        pressure_permille: AtomicU32::new(0),
        dropped: AtomicBool::new(false),
        dead_ranges: DeadRanges::default(),
        changes: AtomicU64::new(1),
        quiet_at: AtomicU64::new(0),
        prefixer: Mutex::new(prefixer),
        values: ArcSwap::from_pointee(values),
        parting: Mutex::new(()),
    })
}

/// Brings a keyspace's value files in line with its options.
fn settle_placement(
    keyspace: &KeyspaceInner,
    tables: &TableContext,
    next_file: &AtomicU64,
) -> Result<()> {
    let options = &keyspace.options.load().values;
    let settled = settle_values(keyspace, options, tables, next_file, 0)?;
    keyspace.values.store(Arc::new(settled));
    Ok(())
}

/// The value files that go with these options: the present one if it fits, else a new one (or
/// none, for inline values) beside the retired ones. `last_seq`: the last write that the present
/// one may have a value of.
fn settle_values(
    keyspace: &KeyspaceInner,
    options: &ValueOptions,
    tables: &TableContext,
    next_file: &AtomicU64,
    last_seq: SeqNo,
) -> Result<ValueFiles> {
    let old = keyspace.values.load_full();
    let mut values = ValueFiles { current: None, retired: old.retired.clone() };
    if let Some(current) = &old.current {
        let layout = current.layout();
        if layout.is_of(options) {
            check_same_file(&layout, options)?;
            values.current = Some(Arc::clone(current));
            return Ok(values);
        }
        values.retired.push(Arc::clone(current));
    }
    if options.placement != ValuePlacement::Inline {
        let number = next_file.fetch_add(1, Relaxed);
        let layout = Layout::new(number, options);
        values.current = Some(Arc::new(ValueFile::create(tables, layout)?));
    }
    if let Some(current) = &old.current {
        current.retire(next_file.load(Relaxed), last_seq);
    }
    Ok(values)
}

/// Groups and slots are for ever: pointers and places depend on them.
fn check_same_file(layout: &Layout, options: &ValueOptions) -> Result<()> {
    let fixed = [
        ("values.groups", u64::from(layout.group_count()), u64::from(options.group_count())),
        ("values.slot_bytes", layout.slot_bytes.into(), options.slot_bytes.into()),
    ];
    for (name, stored, given) in fixed {
        if stored != given {
            return Err(Error::invalid(
                format!("option {name} is {given}, but the keyspace was made with {stored}"),
                format!(
                    "it cannot change: set {name} to {stored}, or copy the entries into a new \
                     keyspace"
                ),
            ));
        }
    }
    Ok(())
}

/// How tables are cut by prefix: as they were, or as the options say if none was yet.
fn settle_prefixer(
    stored: Option<&PrefixRule>,
    options: &KeyspaceOptions,
    extractors: &[Arc<dyn PrefixExtractor>],
) -> Result<Option<Prefixer>> {
    let given = options.prefix_rule()?;
    if let (Some(stored), Some(given)) = (stored, &given)
        && stored != given
    {
        return Err(Error::invalid(
            format!("tables of this keyspace are cut by prefix {stored}, not by {given}"),
            format!(
                "the rule cannot change: set prefix to \"{stored}\" or \"auto\", or copy the \
                 entries into a new keyspace"
            ),
        ));
    }
    let rule = stored.or(given.as_ref());
    let resolved = rule.map(|rule| rule.resolve(extractors)).transpose();
    resolved.map_err(|error| {
        Error::invalid(error.to_string(), "register it under this name, as when the store was made")
    })
}

/// Tables that recovery wrote, by keyspace.
type NewTables = BTreeMap<KeyspaceId, Vec<Arc<Table>>>;

/// Steps 3 to 6.
fn recover(inner: &Arc<Inner>, same_boot: bool, random: u64) -> Result<()> {
    let mut new_tables = NewTables::new();
    if !inner.options.read_only {
        make_base_durable(inner, same_boot, random)?;
    }
    let fresh = replay_log(inner, same_boot, &mut new_tables).and_then(|last_seq| {
        let writes = !inner.options.read_only;
        writes.then(|| make_first_manifest(inner, &new_tables, last_seq, random)).transpose()
    });
    // Nothing names them yet. On a full disk they would hold what the next try needs.
    let fresh = fresh.inspect_err(|_| {
        new_tables.values().for_each(|tables| inner.discard(tables));
    })?;
    let Some(fresh) = fresh else { return Ok(()) };
    fresh.switch_current()?;
    inner.manifest.lock().log = Some(fresh);
    remove_orphans(inner)
}

/// Recovery writes values to slots that are free by the manifest it read. The last edit of that may
/// not be durable, and a sync that failed may have lost it for good: slots that it frees would be
/// written over, and then be in use again. So what was read is made durable in a manifest of its
/// own first. The log goes on to belong to the boot that it was written in.
fn make_base_durable(inner: &Inner, same_boot: bool, random: u64) -> Result<()> {
    let has_values = |keyspace: &Arc<KeyspaceInner>| !keyspace.values.load().is_empty();
    let manifest = inner.manifest.lock();
    let storage = &inner.storage;
    if !inner.keyspaces.read().values().any(has_values)
        || recovery::segments(&**storage, manifest.log_start.0)?.is_empty()
    {
        return Ok(());
    }
    let number = inner.next_file.fetch_add(1, Relaxed);
    let id = crate::base::random::next(&mut (random ^ number));
    let boot_id = if same_boot { storage.boot_id() } else { 0 };
    let state = inner.store_state(&manifest);
    let header = LogHeader { number, id, boot_id };
    Manifest::create_for(Arc::clone(storage), header, &state)?.switch_current()
}

/// Replays the log into memtables, and writes those to tables if that is allowed. Returns the last
/// sequence number.
fn replay_log(inner: &Inner, same_boot: bool, new_tables: &mut NewTables) -> Result<SeqNo> {
    let (segment, seq) = inner.manifest.lock().log_start;
    let start = LogStart { segment, seq, same_boot };
    let flushed = inner.manifest.lock().flushed.clone();
    let keyspaces = inner.keyspaces.read().clone();
    let recovered = recovery::replay(&*inner.storage, start, |seq, operation| {
        // A dropped keyspace's writes may still be in the log.
        let Some(keyspace) = keyspaces.get(&operation.keyspace) else { return Ok(()) };
        if seq <= flushed.get(&operation.keyspace).copied().unwrap_or(0) {
            return Ok(());
        }
        let active = Arc::clone(&keyspace.view.load().active);
        let user_bytes = (operation.key.len() + operation.value.len()) as u64;
        active.announce(seq, 1, 1, user_bytes, 0);
        active.insert(operation.key, pack(seq, operation.kind), operation.value);
        inner.publisher.set_visible(seq);
        if active.is_full() && !inner.options.read_only {
            spill(inner, keyspace, &active, new_tables)?;
        }
        Ok(())
    })?;
    let last_seq = recovered.last_seq.max(inner.publisher.visible());
    inner.publisher.set_visible(last_seq);
    inner.durable_seq.store(last_seq, Release);
    inner.commit.lock().next_seq = last_seq + 1;
    if recovered.torn {
        tracing::warn!(last_seq, "an unsynced suffix of the log was lost with the power");
    }
    for keyspace in keyspaces.values().filter(|_| !inner.options.read_only) {
        let active = Arc::clone(&keyspace.view.load().active);
        spill(inner, keyspace, &active, new_tables)?;
    }
    Ok(last_seq)
}

/// Writes a recovered memtable to a table and puts an empty one in its place.
fn spill(
    inner: &Inner,
    keyspace: &KeyspaceInner,
    memtable: &Arc<Memtable>,
    new_tables: &mut NewTables,
) -> Result<()> {
    if memtable.is_empty() {
        return Ok(());
    }
    let flushed = write_memtable(inner, keyspace, memtable, &|| Ok(()))?;
    if let Some(table) = flushed.tables.into_iter().next() {
        new_tables.entry(keyspace.id).or_default().push(table);
    }
    // The manifest that recovery ends with describes all of it.
    flushed.placed.into_iter().for_each(Separated::publish);
    let options = keyspace.options.load();
    let version = Arc::clone(&keyspace.view.load().version);
    let active = Arc::new(inner.new_memtable(&options, None));
    keyspace.view.store(Arc::new(View { active, immutable: Vec::new(), version }));
    Ok(())
}

/// A manifest with the whole state; it is not in force yet.
fn make_first_manifest(
    inner: &Inner,
    new_tables: &NewTables,
    last_seq: SeqNo,
    mut random: u64,
) -> Result<Manifest> {
    let mut manifest = inner.manifest.lock();
    for (id, tables) in new_tables {
        let keyspaces = inner.keyspaces.read();
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
        inner.install(keyspace, &edit, 0)?;
        manifest.flushed.insert(*id, last_seq);
    }
    // The manifest's number first: the floor must be behind every segment that exists.
    let number = inner.next_file.fetch_add(1, Relaxed);
    manifest.log_start = (inner.next_file.load(Relaxed), last_seq + 1);
    let state = inner.store_state(&manifest);
    let id = crate::base::random::next(&mut random);
    Manifest::create(Arc::clone(&inner.storage), number, id, &state)
}

/// Removes files that nothing names (P10). Only names of our own form are touched. One that stays
/// takes space, and no more: numbers of files are never used again.
fn remove_orphans(inner: &Inner) -> Result<()> {
    let manifest = inner.manifest.lock();
    let current = manifest.log.as_ref().map(Manifest::number);
    let keyspaces = inner.keyspaces.read();
    let mut live: BTreeSet<u64> = BTreeSet::new();
    for keyspace in keyspaces.values() {
        live.extend(keyspace.view.load().version.handles().map(|handle| handle.meta().id));
        live.extend(keyspace.values.load().all().map(|store| store.number));
    }
    for file in inner.storage.list()? {
        let name = &file.name;
        let data = number_in(name, "table").or(number_in(name, "values"));
        let orphan = match (data, number_in(name, "manifest")) {
            (Some(id), _) => !live.contains(&id),
            (_, Some(number)) => Some(number) != current,
            _ => number_in(name, "wal").is_some() || name == "CURRENT.new",
        };
        if orphan && let Err(error) = inner.storage.remove(name) {
            tracing::warn!(%error, "a file that is not needed was left behind");
        }
    }
    Ok(())
}

fn finish(inner: Arc<Inner>) -> Result<Store> {
    let found = inner.find_keyspace(DEFAULT_KEYSPACE);
    let keyspace = found.ok_or_else(|| Error::corruption("manifest", 0, "no default keyspace"))?;
    for keyspace in inner.keyspaces.read().values() {
        // Levels that another policy left behind are the new policy's to reshape.
        keyspace.options.load().check()?;
    }
    for keyspace in inner.keyspaces.read().clone().values() {
        inner.refresh_pressure(keyspace);
    }
    let threads = match inner.options.background {
        Background::Threads(count) if !inner.options.read_only => scheduler::start(&inner, count)
            .map_err(|error| {
            // Those that did start would hold the store.
            inner.scheduler.close();
            Error::invalid(
                format!("cannot start background threads: {error}"),
                "raise the limit of threads, or use fewer",
            )
        })?,
        _ => Vec::new(),
    };
    let default = Keyspace::new(Arc::clone(&inner), keyspace);
    Ok(Store { inner, default, threads, closed: false })
}

impl Inner {
    /// Everything that a manifest says, as of now. Called with the manifest lock held.
    pub(crate) fn store_state(&self, manifest: &ManifestState) -> StoreState {
        let keyspaces = self.keyspaces.read();
        let describe = |keyspace: &Arc<KeyspaceInner>| KeyspaceState {
            name: keyspace.name.clone(),
            options: keyspace.options.load().to_toml(),
            flushed_seq: manifest.flushed.get(&keyspace.id).copied().unwrap_or(0),
            shape: keyspace.view.load().version.shape.clone(),
            values: keyspace.values.load().all().map(|store| store.layout()).collect(),
        };
        StoreState {
            uid: manifest.uid,
            next_file: self.next_file.load(Relaxed),
            last_seq: manifest.flushed.values().copied().max().unwrap_or(0),
            log_floor: manifest.log_start.0,
            log_start_seq: manifest.log_start.1,
            keyspaces: keyspaces.iter().map(|(id, k)| (*id, describe(k))).collect(),
        }
    }

    pub(crate) fn open_keyspace(&self, name: &str, options: Option<KeyspaceOptions>) -> Result<()> {
        if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
            return Err(Error::invalid(
                format!("{name:?} is not a keyspace name"),
                "use 1 to 255 bytes without control characters",
            ));
        }
        if let Some(options) = &options {
            options.check()?;
        }
        check_outside(self.opening)?;
        let found = self.find_keyspace(name);
        reached!(KeyspaceFound);
        let outcome = match (found, options) {
            (Some(_), None) => Ok(()),
            (Some(existing), Some(options)) => self.change_options(&existing, options),
            (None, options) => self.make_keyspace(name, options.unwrap_or_default()),
        };
        outcome.inspect_err(|error| self.note_change_error(error))
    }

    /// A change of keyspaces failed. What options do not allow and a full disk leave all as it was;
    /// after anything else nobody knows what is on disk (P7).
    fn note_change_error(&self, error: &Error) {
        let is_fault = matches!(error, Error::Storage(_)) && !error.is_no_space();
        if is_fault || self.is_manifest_broken() {
            self.stop_writes(error);
        }
    }

    /// Options of an existing keyspace. Compactions of the old policy end first.
    fn change_options(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        options: KeyspaceOptions,
    ) -> Result<()> {
        if **keyspace.options.load() == options {
            return Ok(());
        }
        self.check_writable()?;
        self.without_jobs(keyspace, || {
            self.check_writable()?;
            let mut manifest = self.manifest.lock();
            keyspace.check_exists()?;
            let shape = &keyspace.view.load().version.shape;
            let extractors = &self.options.prefix_extractors;
            let prefixer = settle_prefixer(shape.state.prefix.as_ref(), &options, extractors)?;
            let (next_file, last_seq) = (&self.next_file, self.publisher.visible());
            let values =
                settle_values(keyspace, &options.values, &self.tables, next_file, last_seq)?;
            let mut changes = vec![Change::Keyspace {
                id: keyspace.id,
                name: keyspace.name.clone(),
                options: options.to_toml(),
            }];
            let before = keyspace.values.load().current.clone();
            let number_of = |store: &Option<Arc<ValueFile>>| store.as_ref().map(|s| s.number);
            if number_of(&values.current) != number_of(&before) {
                changes.extend(value_files(keyspace.id, &values));
            }
            manifest.append(&changes).inspect_err(|_| {
                // ValueFiles go there as before.
                before.iter().for_each(|store| store.retire(0, 0));
            })?;
            keyspace.values.store(Arc::new(values));
            *keyspace.prefixer.lock() = prefixer;
            keyspace.options.store(Arc::new(options));
            keyspace.changes.fetch_add(1, AcqRel);
            Ok::<(), Error>(())
        })?;
        self.refresh_pressure(keyspace);
        self.wake_background();
        Ok(())
    }

    fn make_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<()> {
        self.check_writable()?;
        let mut manifest = self.manifest.lock();
        if self.find_keyspace(name).is_some() {
            // Another thread was faster; what exists wins.
            return Ok(());
        }
        let state = KeyspaceState::new(name.to_string(), options.to_toml());
        let id = manifest.next_keyspace;
        let extractors = &self.options.prefix_extractors;
        let made = make_keyspace(id, &state, &self.tables, &self.pool, extractors)?;
        let values = settle_values(&made, &options.values, &self.tables, &self.next_file, 0)?;
        let (name, options) = (state.name, state.options);
        let mut changes = vec![Change::Keyspace { id, name, options }];
        changes.extend(value_files(id, &values));
        manifest.append(&changes)?;
        made.values.store(Arc::new(values));
        manifest.next_keyspace += 1;
        self.keyspaces.write().insert(id, Arc::new(made));
        Ok(())
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let unknown = || Error::UnknownKeyspace { name: name.to_string() };
        let keyspace = self.find_keyspace(name).ok_or_else(unknown)?;
        reached!(KeyspaceFound);
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid(
                "the default keyspace cannot be dropped",
                "delete its keys, or use keyspaces of your own",
            ));
        }
        {
            let _commit = self.commit.lock();
            if keyspace.dropped.swap(true, AcqRel) {
                // Another thread drops it.
                return Err(unknown());
            }
        }
        self.scheduler.wait_for_keyspace(keyspace.id);
        reached!(KeyspaceMarked);
        let mut manifest = self.manifest.lock();
        // What only its memtables needed of the log is not needed any more. A close removes the
        // log segment by segment, and who dies of it must not leave one without its beginning.
        let log_start = self.log_floor_without(|other, _| other.id == keyspace.id);
        let change = Change::Dropped { id: keyspace.id };
        let logged = self
            .check_not_stopped()
            .and_then(|()| self.append_edit(&mut manifest, vec![change], log_start));
        if let Err(error) = logged {
            // Before the lock goes: a checkpoint takes the keyspace as it is under it.
            keyspace.dropped.store(false, Release);
            drop(manifest);
            self.wake_background();
            self.note_change_error(&error);
            return Err(error);
        }
        manifest.flushed.remove(&keyspace.id);
        manifest.log_start = log_start;
        self.keyspaces.write().remove(&keyspace.id);
        drop(manifest);
        // Its pressure goes with it.
        let others: Vec<_> = self.keyspaces.read().values().cloned().collect();
        others.iter().for_each(|other| self.refresh_pressure(other));
        let view = keyspace.view.load_full();
        view.version.handles().for_each(|handle| handle.mark_obsolete());
        let files: Vec<u64> = keyspace.values.load().all().map(|store| store.number).collect();
        self.remove_value_files(&files);
        self.retire_log_below(log_start.0);
        Ok(())
    }
}

/// The manifest's description of all value files of a keyspace.
fn value_files(id: KeyspaceId, values: &ValueFiles) -> impl Iterator<Item = Change> {
    values.all().map(move |store| Change::ValueFile { id, layout: store.layout() })
}

impl ManifestState {
    /// Appends changes to the manifest; a store opened for reading has none.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<()> {
        self.log.as_mut().map_or(Err(Error::ReadOnly), |log| log.append(changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_leaves_no_keyspace_id_is_refused() {
        let mut state = StoreState::default();
        let mut add = |id| {
            state.keyspaces.insert(id, KeyspaceState::new(String::new(), String::new()));
            next_keyspace(&state)
        };
        assert!(matches!(add(0), Ok(1)));
        assert!(matches!(add(u32::MAX - 1), Ok(u32::MAX)));
        assert!(add(u32::MAX).is_err_and(|error| error.is_corruption()));
    }
}
