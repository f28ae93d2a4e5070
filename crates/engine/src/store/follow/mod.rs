//! Reads a store while another process writes to it.
//!
//! 1. Take a lease, so that the files stay while they are read (`lease`).
//! 2. Read the manifest, and then the log from its floor on. Each refresh reads more of both. It
//!    reads the log first and then the manifest, because a record may need an edit that was written
//!    before it: a collection logs pointers to values that its edit has named.
//! 3. A view is published only at a number at or above that of every table and every flush in it,
//!    and below that of a load whose end is not known. So a view shows the store as of one moment,
//!    for all keyspaces (P2, P3).
//! 4. A view never changes: each refresh that finds new writes makes a new view. Readers of an old
//!    view keep it, and through it the lease on its files.
//!
//! The view need not be durable: a follower sees the same as the writer's readers see, or saw a
//! moment ago.

pub(crate) mod cut;
mod recent;

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use runstone_random::Random;
use runstone_storage::Storage;

use super::directory::SharedDirectory;
use super::resources::{Member, Parts, Resources};
use super::unfinished::{Unfinished, check_finished};
use super::{DEFAULT_KEYSPACE, Keyspace, Opening, Store};
use crate::catalog::keyspace::KeyspaceCore;
use crate::catalog::keyspaces::{Flushed, Keyspaces};
use crate::catalog::{Catalog, ManifestState};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, NO_KEYSPACE, SeqNo};
use crate::lease::EditPlace;
use crate::lease::holder::{Lease, LeasePart};
use crate::options::store::{Options, READY_SEGMENTS};
use crate::store::engine::Engine;
use crate::sync::{Mutex, MutexGuard, rank};
use crate::table::handle::TableContext;
use crate::tree::manifest::Current;
use crate::tree::tail::ManifestTail;
use crate::tree::version::Version;
use crate::visibility::snapshot::Visibility;
use crate::wal::files::WalFiles;
use crate::wal::recovery::LogStart;
use crate::wal::segments::Wal;
use crate::wal::tail::{Flow, LogTail, Says};
use recent::Recent;

/// How many times a refresh reads manifest and log until they agree.
const MOST_ROUNDS: usize = 16;

/// Reads a store while another process writes to it, or without such a process.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use runstone::{Options, Store};
///
/// let writer = Store::open(dir.path(), Options::default())?;
/// writer.put("key", "old")?;
/// // Usually in another process.
/// let follower = Store::follow(dir.path(), Options::default())?;
/// let old = follower.store();
/// writer.put("key", "new")?;
/// assert!(follower.refresh()?);
/// assert_eq!(follower.store().get("key")?.as_deref(), Some(&b"new"[..]));
/// assert_eq!(old.get("key")?.as_deref(), Some(&b"old"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Follower {
    /// Not shared, but reference-counted, so that a fork can leave it to its parent.
    following: Arc<Mutex<rank::Following, Following>>,
    view: ArcSwap<Store>,
}

impl Drop for Follower {
    /// Freeing memory takes locks of the budget. In a fork, a thread that does not exist there may
    /// hold them for ever.
    fn drop(&mut self) {
        if self.view.load().inner.env.check_process().is_err() {
            mem::forget((Arc::clone(&self.following), self.view.load_full()));
        }
    }
}

#[derive(Debug)]
struct Following {
    /// The storages that the caller gave: for reading, and for leases.
    storages: (Arc<dyn Storage>, Arc<dyn Storage>),
    env: Arc<Env>,
    parts: Member,
    tables: Arc<TableContext>,
    lease: Option<Arc<Lease>>,
    manifest: ManifestTail,
    log: LogTail,
    wal_files: Arc<WalFiles>,
    random: Random,
    recent: Recent,
    /// The keyspaces of the last view.
    keyspaces: Keyspaces,
    /// How far the keyspaces are flushed.
    flushed: Flushed,
    /// The keyspaces whose trees changed since the last view.
    changed: BTreeSet<KeyspaceId>,
    /// The keyspaces whose memtables changed since the last view.
    written: BTreeSet<KeyspaceId>,
    /// The largest sequence number in a table or of a flush.
    needed_seq: SeqNo,
    /// The last load whose end the log has shown.
    ended_load: SeqNo,
    /// Whether the last read of the manifest showed that a keyspace was dropped.
    has_dropped: bool,
    /// When the last refresh that succeeded began.
    as_of: Instant,
}

impl Store {
    /// Reads the store in a directory, whether or not another process writes to it. Of the
    /// `options`, only those that concern reading apply.
    ///
    /// A store on a read-only file system is followed without a lease: see [`Follower::has_lease`].
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Corruption`], an invalid option, or a
    /// storage error.
    pub fn follow(path: impl AsRef<Path>, options: Options) -> Result<Follower> {
        let (storage, leases) = cut::open(path.as_ref())?;
        Follower::begin(storage, &leases, options)
    }

    /// Does the same as [`Store::follow`] on a storage.
    pub fn follow_on(storage: Arc<dyn Storage>, options: Options) -> Result<Follower> {
        Follower::begin(Arc::clone(&storage), &storage, options)
    }
}

impl Resources {
    /// Reads the store in a directory, as [`Store::follow`] does, with these resources: see
    /// [`Resources::open`]. Its copy of the writer's log counts against their budget too.
    ///
    /// # Errors
    /// Those of [`Store::follow`].
    pub fn follow(&self, path: impl AsRef<Path>, options: Options) -> Result<Follower> {
        let (storage, leases) = cut::open_one_of_many(path.as_ref())?;
        Follower::with(storage, &leases, options, Some(self.parts()?))
    }

    /// Does the same as [`Resources::follow`] on a storage.
    ///
    /// # Errors
    /// Those of [`Store::follow`].
    pub fn follow_on(&self, storage: Arc<dyn Storage>, options: Options) -> Result<Follower> {
        Follower::with(Arc::clone(&storage), &storage, options, Some(self.parts()?))
    }
}

impl Follower {
    /// Begins to follow a store. `leases` is the same storage, used only for the lease.
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        options: Options,
    ) -> Result<Follower> {
        Follower::with(storage, leases, options, None)
    }

    fn with(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        options: Options,
        parts: Option<&Arc<Parts>>,
    ) -> Result<Follower> {
        let options = options.read_only(true).create_if_missing(false);
        options.check()?;
        let parts = parts.map_or_else(|| Parts::of(&options), Arc::clone);
        let options = parts.apply(options);
        let mut following = Following::begin((storage, Some(leases)), options, parts, true)?;
        let view = following.refresh()?;
        let view = view.map_or_else(|| following.publish(), Ok)?;
        let following = Arc::new(Mutex::new(following));
        Ok(Follower { following, view: ArcSwap::from_pointee(view) })
    }

    /// The store as of the last refresh. It never changes, and writes to it fail with
    /// [`Error::ReadOnly`]. Cheap.
    pub fn store(&self) -> Store {
        Store::clone(&self.view.load())
    }

    /// Looks for new writes. Returns whether there is a newer view. O(what was written since).
    ///
    /// # Errors
    /// [`Error::LeaseRevoked`] if the writer could not wait any longer. [`Error::LeaseRevoked`] or
    /// [`Error::HistoryGone`] if the store was replaced with another copy of it. Also
    /// [`Error::Corruption`], or a storage error. The view stays as it was.
    pub fn refresh(&self) -> Result<bool> {
        let mut following = self.lock()?;
        let Some(view) = following.refresh()? else { return Ok(false) };
        self.view.store(Arc::new(view));
        Ok(true)
    }

    /// Copies the store, as of now, into a new directory. Tables are hard links where possible. The
    /// writer does not flush, and waits for nothing.
    ///
    /// # Errors
    /// If the directory is not empty. Also those of [`Follower::refresh`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_checkpoint(path.as_ref(), cut::Tables::Linked)
    }

    /// Does the same as [`Follower::checkpoint`], and copies the tables too: damage to a file of
    /// the store does not reach the copy.
    ///
    /// # Errors
    /// Those of [`Follower::checkpoint`].
    pub fn checkpoint_copied(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_checkpoint(path.as_ref(), cut::Tables::Copied)
    }

    fn write_checkpoint(&self, path: &Path, tables: cut::Tables) -> Result<()> {
        let (storage, leases) = self.lock()?.storages.clone();
        let cut = cut::Cut::take(storage, &leases)?;
        let target = cut.storage.create_sibling(path)?;
        let copy = Unfinished::begin(&target)?;
        copy.end(cut.write_store(&target, tables))
    }

    /// How old the view may be: the time since the beginning of the last refresh that succeeded.
    /// Everything that was committed before that beginning is in the view. [`Duration::MAX`] in a
    /// fork of the process.
    pub fn age(&self) -> Duration {
        self.lock().map_or(Duration::MAX, |following| following.as_of.elapsed())
    }

    /// The storage of the store.
    pub(super) fn storage(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::clone(&self.lock()?.storages.0))
    }

    /// Whether the writer keeps the files of the view. A lease needs a writable directory. Without
    /// a lease, a read fails once its files are removed. A fork of the process has no lease.
    pub fn has_lease(&self) -> bool {
        self.lock().is_ok_and(|following| following.lease.is_some())
    }

    /// Locks the state, but not in a fork: a thread that does not exist there may hold the lock for
    /// ever, and a refresh would change the lease of its parent.
    fn lock(&self) -> Result<MutexGuard<'_, Following>> {
        self.view.load().inner.env.check_process()?;
        Ok(self.following.lock())
    }
}

/// What a round of reading the log needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Nothing: every usable record was read.
    Done,
    /// More of the manifest.
    Manifest,
    /// The log from its floor on.
    Log,
    /// More of the log.
    Again,
}

impl Following {
    /// Begins to follow a store. Without `leases`, the caller keeps the files.
    fn begin(
        (storage, leases): (Arc<dyn Storage>, Option<&Arc<dyn Storage>>),
        options: Options,
        parts: Arc<Parts>,
        keeps_writes: bool,
    ) -> Result<Following> {
        let mut random = options.seed.map_or_else(Random::from_entropy, Random::new);
        let parts = Member::new(parts);
        let (files, io_rate) = (Arc::clone(&parts.files), Arc::clone(&parts.common.io_rate));
        let storages = (Arc::clone(&storage), Arc::clone(leases.unwrap_or(&storage)));
        let storage: Arc<dyn Storage> = Arc::new(SharedDirectory::new(storage, files, io_rate));
        check_finished(&*storage)?;
        // A directory that is not a store gets no lease.
        ManifestTail::open(&storage)?;
        let lease = match leases.map(|leases| Lease::take(leases, random.draw())) {
            Some(Err(Error::Storage(error))) if error.is_refused() => None,
            taken => taken.transpose()?,
        };
        let manifest = ManifestTail::open(&storage)?;
        let next_file = Arc::new(AtomicU64::new(manifest.state.next_file));
        let env = Env::new(options, Arc::clone(&storage), next_file, &parts.common);
        let cache = Arc::new(parts.new_cache());
        let wal_files = WalFiles::new(
            Arc::clone(&storage),
            env.options.wal_mode,
            (env.options.log_segment_bytes(), READY_SEGMENTS),
            (Arc::clone(&env.next_file), Arc::clone(&env.manifest)),
            Arc::clone(&cache),
            Arc::clone(&env.bell),
        );
        let uid = manifest.state.uid;
        let tables = TableContext::new(Arc::clone(&storage), cache, uid);
        let mut following = Following {
            storages,
            env: Arc::new(env),
            recent: Recent::new(&parts.pool, keeps_writes),
            parts,
            tables: Arc::new(TableContext { lease: lease.clone(), ..tables }),
            lease,
            log: LogTail::new(&storage, log_start(&manifest)),
            manifest,
            wal_files: Arc::new(wal_files),
            random,
            keyspaces: Keyspaces::default(),
            flushed: Flushed::default(),
            changed: BTreeSet::new(),
            written: BTreeSet::new(),
            needed_seq: 0,
            ended_load: 0,
            has_dropped: false,
            as_of: Instant::now(),
        };
        following.note_all_changed();
        Ok(following)
    }

    /// Reads what was written since, and makes a view of it if there is anything new.
    fn refresh(&mut self) -> Result<Option<Store>> {
        let began = Instant::now();
        if self.lease.as_ref().is_some_and(|lease| lease.is_revoked()) {
            return Err(Error::LeaseRevoked { path: self.env.storage.location() });
        }
        let view = self.read_on().map_err(|error| self.explain(error))?;
        self.as_of = began;
        Ok(view)
    }

    fn read_on(&mut self) -> Result<Option<Store>> {
        self.read_until_whole()?;
        let is_new = !self.changed.is_empty() || !self.written.is_empty();
        is_new.then(|| self.publish()).transpose()
    }

    /// Reads until log and manifest agree.
    fn read_until_whole(&mut self) -> Result<()> {
        for round in 0..MOST_ROUNDS {
            // Some writers drop keyspaces all the time, so the later rounds ignore drops.
            if self.read_round(round == 0, round < MOST_ROUNDS / 2)? {
                return Ok(());
            }
        }
        // A running writer has logged every write that its tables have. So no writer is running:
        // the last one died between the removal of the log and the end of a close, or a power loss
        // removed the end of the log. As at an open, the tables have the rest.
        let is_durable = self.log.last_seq() >= self.manifest.state.log_synced_seq;
        if is_durable && self.log.last_seq() < self.needed_seq {
            self.log.pass_to(self.needed_seq);
            return Ok(());
        }
        Err(self.behind())
    }

    /// The error for a read that failed: a file may be gone because the lease was revoked.
    fn explain(&self, error: Error) -> Error {
        self.lease.iter().fold(error, |error, lease| lease.explain(error))
    }

    /// Reads the log, the manifest, and then the log as far as the manifest needs it. Returns
    /// whether the two agree. The log may have unread writes to a keyspace that the manifest has
    /// dropped, and a reader of the changes after this view would not know that keyspace. With
    /// `heeds_drops`, a drop requires another round.
    fn read_round(&mut self, is_first: bool, heeds_drops: bool) -> Result<bool> {
        let asked = self.read_log(SeqNo::MAX)?;
        self.has_dropped = false;
        let is_same_history = !self.read_manifest()?;
        self.log.forget_below(self.manifest.state.log_floor);
        // A collection syncs the pointers that it moved before an edit frees the old places.
        self.needed_seq = self.needed_seq.max(self.manifest.state.log_synced_seq);
        // A record that needs a newer edit was logged after that edit. So in later rounds it was
        // logged after the refresh began, and the view may end before it.
        let mut is_whole = asked == Round::Done || (asked == Round::Manifest && !is_first);
        if self.log.last_seq() < self.needed_seq {
            // These records were logged before the edit that needs them, and so they need no later
            // edit. Without this step, a writer that always flushes would always be ahead.
            is_whole &= self.read_log(self.needed_seq)? == Round::Done;
        }
        is_whole &= self.log.last_seq() >= self.needed_seq;
        Ok(is_same_history && is_whole && !(self.has_dropped && heeds_drops))
    }

    fn behind(&self) -> Error {
        let what = format!(
            "the log is valid up to sequence number {}, but the manifest knows of {}",
            self.log.last_seq(),
            self.needed_seq
        );
        Error::corruption("the log", 0, what)
    }

    /// Reads more of the manifest. The log begins again at its floor if some of it was flushed
    /// unseen, or if another history has begun. Returns whether another history has begun: then it
    /// is not known how much of its log existed when the refresh began.
    fn read_manifest(&mut self) -> Result<bool> {
        let history = self.manifest.state.history.id;
        match self.manifest.advance()? {
            Some(changed) => changed.into_iter().for_each(|id| self.note_changed(id)),
            None => {
                // A writer that opened the store again may reuse the generation of a removed
                // segment of values, and footers are cached by generation.
                let cache = Arc::new(self.parts.new_cache());
                let tables = TableContext::new(Arc::clone(&self.env.storage), cache, self.uid());
                self.tables = Arc::new(TableContext { lease: self.lease.clone(), ..tables });
                if self.is_other_history(history) {
                    self.needed_seq = 0;
                    // The other history may reuse ids of keyspaces and tables.
                    self.keyspaces = Keyspaces::default();
                }
                self.flushed = Flushed::default();
                self.recent.doubt_early();
                self.note_all_changed();
                // It is not known which keyspaces the edits in between have dropped.
                self.has_dropped = true;
            }
        }
        // The last records that were read from the log may belong to the end of the previous
        // history. Or the next writer may have logged them before the manifest was read. No number
        // shows which is the case.
        let is_other = self.is_other_history(history);
        if is_other || self.manifest.state.log_start_seq > self.log.last_seq() + 1 {
            self.begin_log();
        }
        Ok(is_other)
    }

    fn is_other_history(&self, id: u64) -> bool {
        self.manifest.state.history.id != id
    }

    /// Begins the log again at its floor. Everything before the floor is in tables.
    fn begin_log(&mut self) {
        self.recent.clear();
        self.written.extend(self.keyspaces.keys());
        self.log = LogTail::new(&self.env.storage, log_start(&self.manifest));
    }

    fn uid(&self) -> u64 {
        self.manifest.state.uid
    }

    fn note_all_changed(&mut self) {
        let state = &self.manifest.state;
        let all: Vec<KeyspaceId> =
            state.keyspaces.keys().chain(self.keyspaces.keys()).copied().collect();
        all.into_iter().for_each(|id| self.note_changed(id));
    }

    /// Applies the present state of a keyspace from the manifest.
    fn note_changed(&mut self, id: KeyspaceId) {
        self.changed.insert(id);
        match self.manifest.state.keyspaces.get(&id) {
            Some(state) => {
                let largest = state.shape.tables().map(|(_, table)| table.max_seq).max();
                let largest = largest.unwrap_or(0).max(state.flushed_seq);
                self.needed_seq = self.needed_seq.max(largest);
                self.recent.flushed(id, state.flushed_seq);
                self.flushed.insert(id, state.flushed_seq);
            }
            None => {
                self.has_dropped = true;
                self.recent.forget(id);
                self.flushed.remove(id);
            }
        }
    }

    /// Reads the log up to a sequence number, or until it needs something.
    fn read_log(&mut self, through: SeqNo) -> Result<Round> {
        loop {
            match self.read_records(through)? {
                Round::Again => {}
                Round::Log => {
                    self.begin_log();
                    return Ok(Round::Log);
                }
                asked => return Ok(asked),
            }
        }
    }

    fn read_records(&mut self, through: SeqNo) -> Result<Round> {
        let Following { manifest, log, recent, written, needed_seq, ended_load, .. } = self;
        let (state, read_to) = (&manifest.state, manifest.place());
        let (mut asked, mut load) = (Round::Done, None);
        log.read(|record| {
            if record.before() >= through {
                return Ok(Flow::Hold);
            }
            match record.says()? {
                Says::Edits(durable, _) if durable > read_to => asked = Round::Manifest,
                Says::Edits(..) => return Ok(Flow::Next),
                Says::Load(seq) if seq <= *needed_seq || seq <= *ended_load => {
                    return Ok(Flow::Next);
                }
                Says::Load(seq) => load = Some(seq),
                Says::Writes(_) => {
                    record.each(|seq, operation| {
                        match state.keyspaces.get(&operation.keyspace) {
                            Some(keyspace) if seq <= keyspace.flushed_seq => {}
                            Some(_) => {
                                recent.add(record.segment(), seq, &operation)?;
                                written.insert(operation.keyspace);
                            }
                            // The keyspace was dropped.
                            None if operation.keyspace < state.next_keyspace => {}
                            None if operation.keyspace == NO_KEYSPACE => {}
                            // The record that should name the keyspace had no room in the log.
                            None => asked = Round::Log,
                        }
                        Ok(())
                    })?;
                    return Ok(if asked == Round::Log { Flow::Hold } else { Flow::Next });
                }
            }
            Ok(Flow::Hold)
        })?;
        match load {
            Some(seq) => self.look_for_end(seq),
            None => Ok(asked),
        }
    }

    /// Finds out whether a load that the manifest does not show has ended.
    fn look_for_end(&mut self, load: SeqNo) -> Result<Round> {
        let mut end = None;
        let Some(mut ahead) = self.log.look_ahead()? else { return Ok(Round::Done) };
        ahead.read(|record| match record.says()? {
            Says::Edits(durable, ended) if ended == load => {
                end = Some(durable);
                Ok(Flow::Hold)
            }
            _ => Ok(Flow::Next),
        })?;
        match end {
            Some(durable) if durable > self.manifest.place() => Ok(Round::Manifest),
            Some(_) => {
                // The load failed.
                self.ended_load = load;
                Ok(Round::Again)
            }
            None => Ok(Round::Done),
        }
    }

    /// A part of the lease, for a view or a copy.
    fn lease_part(&self) -> Result<Option<LeasePart>> {
        let Current { number, least_bytes, .. } = self.manifest.place();
        let place = EditPlace { manifest: number, bytes: least_bytes };
        self.lease.as_ref().map(|lease| lease.part(place)).transpose()
    }

    /// Makes a view of the state read so far.
    fn publish(&mut self) -> Result<Store> {
        let state = &self.manifest.state;
        for id in self.changed.clone() {
            let Some(described) = state.keyspaces.get(&id) else {
                if let Some(gone) = self.keyspaces.get(&id).cloned() {
                    self.keyspaces.remove(&gone);
                }
                continue;
            };
            let (none, before) = (Version::default(), self.keyspaces.get(&id));
            let before = before.map(|core| Arc::clone(&core.view.load().version));
            let before = before.as_deref().unwrap_or(&none);
            let (tables, pool) = (&self.tables, &self.parts.pool);
            let made = KeyspaceCore::open_after(before, (id, described), tables, pool, &self.env)?;
            self.written.insert(id);
            self.recent.hide_early(id);
            self.keyspaces.insert(Arc::new(made));
        }
        for id in self.written.clone() {
            let Some(core) = self.keyspaces.get(&id) else { continue };
            self.recent.show_early(id, &core.values.load())?;
            let view = self.recent.view(id, &core.view.load());
            let seen = Arc::new(core.with_view(view));
            self.keyspaces.insert(seen);
        }
        let view = self.assemble()?;
        // Cleared only now: after a failure the next refresh begins with the same keyspaces.
        self.changed.clear();
        self.written.clear();
        Ok(view)
    }

    fn assemble(&mut self) -> Result<Store> {
        let part = self.lease_part()?;
        let visibility = Visibility::leased(self.log.last_seq(), part);
        let state = &self.manifest.state;
        let described = ManifestState {
            log: None,
            leases: Arc::clone(&self.tables.leases),
            flushed: self.flushed.clone(),
            next_keyspace: state.next_keyspace,
            uid: state.uid,
            history: state.history.clone(),
            found_history: state.history.id,
            log_start: (state.log_floor, state.log_start_seq),
            found: self.manifest.place(),
            found_next_keyspace: state.next_keyspace,
        };
        let (tables, pool) = (Arc::clone(&self.tables), Arc::clone(&self.parts.pool));
        let catalog = Catalog::new(&self.env, tables, pool, described, state.log_synced_seq);
        *catalog.keyspaces.write() = self.keyspaces.clone();
        let wal = Wal::new(Arc::clone(&self.wal_files), self.random.clone());
        let wal = (wal, Arc::clone(&self.wal_files));
        let (env, catalog) = (Arc::clone(&self.env), Arc::new(catalog));
        let (siblings, syncing) = (&self.parts.siblings, &self.parts.syncing);
        let engine = Engine::new(env, catalog, wal, visibility, None, (None, siblings), syncing);
        let default = engine.catalog.find_keyspace(DEFAULT_KEYSPACE);
        let default =
            default.ok_or_else(|| Error::corruption("manifest", 0, "no default keyspace"))?;
        let engine = Arc::new(engine);
        let default = Keyspace::new(Arc::clone(&engine), default);
        let opening = Arc::new(Opening::of_view(Arc::clone(&engine), &self.parts));
        Ok(Store { inner: engine, default, opening })
    }
}

fn log_start(manifest: &ManifestTail) -> LogStart {
    let state = &manifest.state;
    LogStart { segment: state.log_floor, seq: state.log_start_seq }
}
