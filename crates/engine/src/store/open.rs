//! Opens a store: lock, manifest, log, orphans, a new manifest, background threads.
//!
//! 1. Take the lock; find out what the directory is.
//! 2. Read the manifest that `CURRENT` names. Open no table.
//! 3. If the store has value files and a log, write what was read to a new manifest and make that
//!    durable.
//! 4. Replay the log into memtables, and write those to level-0 tables, or, if they are small, to a
//!    new segment of the log.
//! 5. Write a new manifest with the whole state, the new tables and a log floor after every old
//!    segment, and make it current: the commit point of recovery. A crash before it repeats 2-5.
//! 6. Remove the files that the manifest does not name (P10).
//!
//! If the disk is too full for that, the log stays as it is and its writes stay in memory, as in a
//! store that is opened for reading. Steps 5 and 6 take their space from the reserve. The store
//! then opens in the state of a full disk (P9), so that somebody can delete entries or drop
//! keyspaces to free space.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use runstone_random::Random;
use runstone_storage::{Access, LockMode, PosixStorage, Storage, StorageLock};

use super::directory::SharedDirectory;
use super::live::is_live;
use super::resources::Parts;
use super::unfinished::{RESTORING, check_finished};
use super::{DEFAULT_KEYSPACE, Keyspace, Opening, Store};
use crate::cache::Cache;
use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::catalog::settle::settle_placement;
use crate::catalog::{Catalog, ManifestState};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::workers::Workers;
use crate::keys::codec::NUMBER_LIMIT;
use crate::keys::{KeyspaceId, NO_KEYSPACE};
use crate::lease::{KeepLimits, Leases, is_lease};
use crate::log::number_in;
use crate::memory::limit::limit_bytes;
use crate::options::store::{KeyspaceOptions, Options, READY_SEGMENTS};
use crate::schedule::CORES;
use crate::store::engine::Engine;
use crate::store::recovery::{recover, recover_in_memory, tell_options};
use crate::table::handle::{DiskUse, TableContext};
use crate::tree::history::History;
use crate::tree::manifest::{
    CURRENT, Current, KeyspaceState, StoreState, read_current, read_manifest,
};
use crate::values::file::FIRST_SLOT;
use crate::visibility::snapshot::Visibility;
use crate::wal::files::WalFiles;
use crate::wal::recovery::{is_begun, segments};
use crate::wal::reserve::RESERVE;
use crate::wal::segments::{Wal, lost_number, segment_name};

pub(super) const LOCK_NAME: &str = "LOCK";

pub(super) fn open_path(
    path: &Path,
    options: Options,
    parts: Option<&Arc<Parts>>,
) -> Result<Store> {
    // The options are checked before the storage makes a directory.
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
    let storage = if parts.is_some() { storage.with_few_descriptors() } else { storage };
    open_on(Arc::new(storage), options, parts)
}

/// Opens a store that uses `parts`, or parts of its own.
pub(super) fn open_on(
    storage: Arc<dyn Storage>,
    options: Options,
    parts: Option<&Arc<Parts>>,
) -> Result<Store> {
    open_with(storage, options, parts, None)
}

/// Opens a store whose files the caller is still writing. The caller passes the lock that it holds.
pub(super) fn open_unfinished(
    storage: Arc<dyn Storage>,
    options: Options,
    lock: Option<Box<dyn StorageLock>>,
) -> Result<Store> {
    open_with(storage, options, None, lock)
}

fn open_with(
    storage: Arc<dyn Storage>,
    options: Options,
    parts: Option<&Arc<Parts>>,
    lock: Option<Box<dyn StorageLock>>,
) -> Result<Store> {
    options.check()?;
    // The cores are counted now: a fork that happens while a thread counts them would wait for that
    // thread.
    LazyLock::force(&CORES);
    let parts = parts.map_or_else(|| Parts::of(&options), Arc::clone);
    let options = parts.apply(options);
    let (files, io_rate) = (Arc::clone(&parts.files), Arc::clone(&parts.common.io_rate));
    let directory = SharedDirectory::new(storage, files, io_rate);
    let lock = lock.map(|lock| directory.hold(lock));
    let storage: Arc<dyn Storage> = Arc::new(directory);
    let current = find_store(&*storage, &options)?;
    let lock = match lock {
        Some(lock) => lock,
        None => {
            let mode = if options.read_only { LockMode::Shared } else { LockMode::Exclusive };
            let lock = take_lock(&*storage, mode)?;
            check_finished(&*storage)?;
            lock
        }
    };
    // `CURRENT` is read again under the lock, because another process may have made the store
    // meanwhile.
    let current = match current {
        Some(found) => Some(read_current(&*storage)?.unwrap_or(found)),
        None => find_store(&*storage, &options)?,
    };
    let mut random = options.seed.map_or_else(Random::from_entropy, Random::new);
    let (mut state, found) = match current {
        Some(current) => {
            let (state, valid_bytes) = read_manifest(&*storage, current)?;
            (state, Current { least_bytes: valid_bytes, ..current })
        }
        None => (new_state(&mut random), Current::default()),
    };
    let are_other = apply_options(&mut state, &options)?;
    let read = (&state, found);
    let inner = Arc::new(assemble(storage, options, lock, read, random.clone(), &parts)?);
    let inner = match recover(&inner, random.clone()) {
        Ok(()) => inner,
        Err(error) if error.is_no_space() => open_full(inner, read, random, &error, &parts)?,
        Err(error) => return Err(error),
    };
    if are_other {
        tell_options(&inner);
    }
    finish(inner, parts)
}

/// Opens a store for writing on a full disk, after the first attempt at a recovery found the disk
/// full.
fn open_full(
    full: Arc<Engine>,
    read: (&StoreState, Current),
    random: Random,
    error: &Error,
    parts: &Parts,
) -> Result<Arc<Engine>> {
    let lock = full.lock.lock().take().ok_or(Error::Closed)?;
    let (storage, options) = (Arc::clone(&full.env.storage), full.env.options.clone());
    // `full` is dropped first: otherwise the contents of the log would be in memory twice.
    drop(full);
    spend_reserves(&*storage, read.0.log_floor)?;
    let inner = Arc::new(assemble(storage, options, lock, read, random.clone(), parts)?);
    recover_in_memory(&inner, random, error)?;
    inner.env.note_job_error(error);
    Ok(inner)
}

/// Removes the reserve, and the log segments that were prepared but are still empty.
fn spend_reserves(storage: &dyn Storage, log_floor: u64) -> Result<()> {
    // If a segment was begun, so was every earlier segment, even if its header is damaged. The
    // replay reports such damage.
    let needed = |number: &u64| *number >= log_floor;
    let mut kept = 0;
    for number in segments(storage, 0)?.into_iter().filter(|number| !needed(number)) {
        // Such a segment is kept only for readers of the history.
        storage.remove(&segment_name(number))?;
        kept += 1;
    }
    if kept > 0 {
        tracing::warn!(segments = kept, "the disk is full: the log kept for readers is given up");
    }
    for number in segments(storage, log_floor)?.into_iter().rev() {
        if is_begun(storage, number)? {
            break;
        }
        storage.remove(&segment_name(number))?;
    }
    match storage.remove(RESERVE) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The current manifest, or `None` if a store may be made here.
fn find_store(storage: &dyn Storage, options: &Options) -> Result<Option<Current>> {
    if let Some(current) = read_current(storage)? {
        return Ok(Some(current));
    }
    check_finished(storage)?;
    let files = storage.list()?;
    // Files like `metrics` are made only in the directory of a store, so in a directory without a
    // store they belong to somebody else.
    let is_foreign = |name: &str| !is_own_file(name) || is_live(name);
    if let Some(foreign) = files.iter().find(|file| is_foreign(&file.name)) {
        let example = foreign.name.clone();
        return Err(Error::ForeignFiles { path: storage.location(), example });
    }
    // A directory with tables or a log but without `CURRENT` is not fresh: it is a store that lost
    // its root. A value file without slots is made before the first manifest, and contains nothing.
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

/// Whether a store uses such a file name.
pub(super) fn is_own_file(name: &str) -> bool {
    let known = ["manifest", "wal", "table", "values"];
    name == LOCK_NAME
        || name == RESERVE
        || name == RESTORING
        || name.starts_with(CURRENT)
        || known.iter().any(|extension| number_in(name, extension).is_some())
        || lost_number(name).is_some()
        || is_lease(name)
        || is_live(name)
}

pub(super) fn take_lock(storage: &dyn Storage, mode: LockMode) -> Result<Box<dyn StorageLock>> {
    let lock = storage.lock(LOCK_NAME, mode)?;
    let in_use =
        || Error::InUse { path: storage.location(), process: storage.lock_holder(LOCK_NAME) };
    lock.ok_or_else(in_use)
}

fn new_state(random: &mut Random) -> StoreState {
    let (uid, history) = (random.draw(), History::first(random.draw()));
    StoreState { uid, history, next_file: 1, log_start_seq: 1, ..StoreState::default() }
}

/// Makes the default keyspace if it is absent, and replaces its stored options with the given ones.
/// Returns whether the stored options changed.
fn apply_options(state: &mut StoreState, options: &Options) -> Result<bool> {
    let given = options.keyspace.as_ref();
    match state.keyspaces.values_mut().find(|keyspace| keyspace.name == DEFAULT_KEYSPACE) {
        Some(keyspace) => {
            if let Some(given) = given {
                if let Ok(stored) = KeyspaceOptions::from_toml(&keyspace.options) {
                    given.check_same_operator(&stored)?;
                }
                let stored = std::mem::replace(&mut keyspace.options, given.to_toml());
                return Ok(stored != keyspace.options);
            }
        }
        None => {
            let options = given.cloned().unwrap_or_default().to_toml();
            let fresh = KeyspaceState::new(DEFAULT_KEYSPACE.to_string(), options);
            state.keyspaces.insert(0, fresh);
        }
    }
    Ok(false)
}

/// Warns of a budget that is larger than the system allows.
pub(super) fn tell_limit(env: &Env, limit_bytes: Option<u64>) {
    let budget_bytes = env.memory_budget_bytes();
    if let Some(limit_bytes) = limit_bytes.filter(|limit| *limit < budget_bytes) {
        tracing::warn!(budget_bytes, limit_bytes, "the control group allows less than the budget");
        env.emit(|| Event::BudgetAboveLimit { budget_bytes, limit_bytes });
    }
}

fn assemble(
    storage: Arc<dyn Storage>,
    options: Options,
    lock: Box<dyn StorageLock>,
    (state, found): (&StoreState, Current),
    random: Random,
    parts: &Parts,
) -> Result<Engine> {
    let next_file = state.next_file.max(highest_file(&*storage)? + 1);
    let next_file = Arc::new(AtomicU64::new(next_file));
    let env = Arc::new(Env::new(options, Arc::clone(&storage), next_file, &parts.common));
    env.manifest.store(found.number, Relaxed);
    let options = &env.options;
    tell_limit(&env, limit_bytes());
    let cache = Arc::new(parts.new_cache());
    let pool = Arc::clone(&parts.pool);
    let wal_files = Arc::new(WalFiles::new(
        Arc::clone(&storage),
        options.wal_mode,
        (options.log_segment_bytes(), if env.is_sharing { 1 } else { READY_SEGMENTS }),
        (Arc::clone(&env.next_file), Arc::clone(&env.manifest)),
        Arc::clone(&cache),
        Arc::clone(&env.bell),
    ));
    let tables = table_context(&env, &cache, state);
    if !options.read_only {
        tables.leases.open(found.number);
    }
    let manifest = ManifestState {
        log: None,
        leases: Arc::clone(&tables.leases),
        flushed: state.keyspaces.iter().map(|(id, k)| (*id, k.flushed_seq)).collect(),
        next_keyspace: next_keyspace(state)?,
        uid: state.uid,
        history: state.history.clone(),
        found_history: state.history.id,
        log_start: (state.log_floor, state.log_start_seq),
        found,
        found_next_keyspace: state.next_keyspace,
    };
    let (tables_of, pool_of, synced_seq) =
        (Arc::clone(&tables), Arc::clone(&pool), state.log_synced_seq);
    let catalog = Catalog::new(&env, tables_of, pool_of, manifest, synced_seq);
    for (id, keyspace) in &state.keyspaces {
        let made = KeyspaceCore::open(*id, keyspace, &tables, &pool, &env)?;
        if !options.read_only {
            settle_placement(&made, &tables, &env.next_file)?;
        }
        catalog.keyspaces.write().insert(Arc::new(made));
    }
    let wal = (Wal::new(Arc::clone(&wal_files), random), wal_files);
    let ready = parts.workers.as_ref().map(Workers::ready);
    let shared = (ready.filter(|_| !env.is_manual()), &parts.siblings);
    let (catalog, syncing) = (Arc::new(catalog), &parts.syncing);
    let visibility = Visibility::new(state.last_seq);
    Ok(Engine::new(env, catalog, wal, visibility, Some(lock), shared, syncing))
}

/// The id for the next keyspace. No id is assigned twice.
fn next_keyspace(state: &StoreState) -> Result<KeyspaceId> {
    let largest = state.keyspaces.keys().max().copied().unwrap_or(0);
    let next = largest.saturating_add(1).max(state.next_keyspace);
    let has_one = next < NO_KEYSPACE;
    has_one
        .then_some(next)
        .ok_or_else(|| Error::corruption("manifest", 0, "a keyspace has the largest id"))
}

fn table_context(env: &Env, cache: &Arc<Cache>, state: &StoreState) -> Arc<TableContext> {
    let storage = Arc::clone(&env.storage);
    let limits = KeepLimits {
        bytes: env.options.follower_keep_bytes,
        time: Duration::from_secs(env.options.follower_keep_seconds),
    };
    Arc::new(TableContext {
        leases: Arc::new(Leases::new(Arc::clone(&storage), limits)),
        disk: Arc::new(DiskUse::of(state.keyspaces.values().map(|k| k.shape.bytes()).sum())),
        ..TableContext::new(storage, Arc::clone(cache), state.uid)
    })
}

/// The largest number in any file name. Numbers are never reused, not even those of orphans.
fn highest_file(storage: &dyn Storage) -> Result<u64> {
    let files = storage.list()?;
    let number = |name: &str| {
        let stem = name.split('.').next()?;
        let number = stem.bytes().all(|byte| byte.is_ascii_digit()).then(|| stem.parse().ok())?;
        // A larger number is not ours, and would leave no number above it.
        number.filter(|number: &u64| *number < NUMBER_LIMIT)
    };
    Ok(files.iter().filter_map(|file| number(&file.name)).max().unwrap_or(0))
}

fn finish(inner: Arc<Engine>, parts: Arc<Parts>) -> Result<Store> {
    let found = inner.catalog.find_keyspace(DEFAULT_KEYSPACE);
    let keyspace = found.ok_or_else(|| Error::corruption("manifest", 0, "no default keyspace"))?;
    for keyspace in inner.catalog.keyspaces.read().values() {
        // The new policy reshapes levels that another policy left.
        let options = keyspace.options.load();
        options.check()?;
        inner.env.options.check_log_for(&keyspace.name, &options)?;
    }
    let keyspaces = inner.catalog.all();
    inner.pressure.refresh(&keyspaces);
    keyspaces.iter().for_each(|keyspace| keyspace.tell_missing_filter(&inner.env));
    keyspaces.iter().for_each(|keyspace| inner.schedule.stir(keyspace.id));
    if !parts.is_sharing() {
        parts.start()?;
    }
    let default = Keyspace::new(Arc::clone(&inner), keyspace);
    let opening = Arc::new(Opening::begin(Arc::clone(&inner), parts));
    Ok(Store { inner, default, opening })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use runstone_storage::MemoryStorage;

    use super::*;
    use crate::callbacks::event::EventListener;
    use crate::env::Common;

    #[test]
    fn a_manifest_that_leaves_no_keyspace_id_is_refused() {
        let mut state = StoreState::default();
        let mut add = |id| {
            state.keyspaces.insert(id, KeyspaceState::new(String::new(), String::new()));
            next_keyspace(&state)
        };
        assert!(matches!(add(0), Ok(1)));
        assert!(matches!(add(u32::MAX - 2), Ok(id) if id == u32::MAX - 1));
        assert!(add(u32::MAX - 1).is_err_and(|error| error.is_corruption()));
    }

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<String>>);

    impl EventListener for Told {
        fn on_event(&self, event: &Event) {
            self.0.lock().push(format!("{event:?}"));
        }
    }

    #[test]
    fn a_limit_below_the_budget_is_told() {
        let told = Arc::new(Told::default());
        let listener = Some(Arc::clone(&told) as Arc<dyn EventListener>);
        let options = Options { listener, ..Options::default() };
        let next_file = Arc::new(AtomicU64::new(1));
        let budget_bytes = Arc::new(AtomicU64::new(8 << 20));
        let common = Common { budget_bytes, ..Common::default() };
        let env = Env::new(options, Arc::new(MemoryStorage::new()), next_file, &common);
        for limit in [None, Some(8 << 20), Some(4 << 20)] {
            tell_limit(&env, limit);
        }
        let wanted = "BudgetAboveLimit { budget_bytes: 8388608, limit_bytes: 4194304 }";
        assert_eq!(*told.0.lock(), [wanted]);
    }
}
