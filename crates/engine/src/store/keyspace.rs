//! The handle to a keyspace: an ordered map inside a store, with its own tree and options. Batches
//! and snapshots span all keyspaces of a store.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::Result;
use crate::keys::expiry::Expiry;
use crate::keys::range::KeyRange;
use crate::keys::{KeyspaceId, Kind, MAX_KEY_BYTES};
use crate::options::store::{Durability, KeyspaceOptions, WriteOptions};
use crate::read::cached::CachedGet;
use crate::read::cursor::Cursor;
use crate::read::options::{ReadOptions, check_order, ends_of};
use crate::read::scan::Scan;
use crate::store::engine::Engine;
use crate::sync::threads;
use crate::values::Value;
use crate::values::usage::ValueUsage;
use crate::visibility::snapshot::Snapshot;
use crate::wal::batch::Batch;
use crate::write::later::Commit;

/// A handle to a keyspace: an ordered map from keys to values. Cloning it is cheap.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use runstone::{Options, Store};
///
/// let store = Store::open(dir.path(), Options::default())?;
/// let fruits = store.open_keyspace("fruits", None)?;
/// fruits.put("apple", "red")?;
/// fruits.put("banana", "yellow")?;
/// fruits.delete("apple")?;
/// assert!(fruits.get("apple")?.is_none());
/// assert_eq!(fruits.get("banana")?.as_deref(), Some(&b"yellow"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) store: Arc<Engine>,
    pub(crate) inner: Arc<KeyspaceCore>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Engine>, inner: Arc<KeyspaceCore>) -> Keyspace {
        Keyspace { store, inner }
    }

    /// The id of the keyspace, unique while the store is open. A later open may give the id of a
    /// dropped keyspace to a new one; by then no record in the log names the dropped one.
    pub fn id(&self) -> KeyspaceId {
        self.inner.id
    }

    /// The name that the keyspace was made with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The options in force. [`crate::Store::open_keyspace`] changes them.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        self.inner.options.load_full()
    }

    /// The compaction filter that the options name, if nobody has registered it in
    /// [`crate::Options::compaction_filters`]. Without it, all entries are kept.
    pub fn missing_compaction_filter(&self) -> Option<String> {
        self.inner.filtering.load().missing().map(str::to_string)
    }

    /// Stores a value with the durability that the store was opened with.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Stores a value with the durability and the time to live in `options`.
    ///
    /// # Errors
    /// If the time to live is less than a millisecond, or ends beyond the range of the clock.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let at_ms = match options.ttl {
            Some(ttl) => Some(self.store.env.watch.after(ttl)?),
            None => self.own_expiry_ms(),
        };
        match at_ms {
            None => self.write_one(Kind::Put, key.as_ref(), value.as_ref(), options),
            Some(at_ms) => self.write_expiring(key.as_ref(), value.as_ref(), at_ms, options),
        }
    }

    /// Stores a value that expires after `ttl`. From then on nobody sees it, not even at a
    /// snapshot. `ttl` replaces the keyspace's `ttl_seconds`.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use std::time::Duration;
    ///
    /// let sessions = store.open_keyspace("sessions", None)?;
    /// sessions.put_with_ttl("alice", "token", Duration::from_secs(3600))?;
    /// assert!(sessions.contains_key("alice")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put_with`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_with(key, value, WriteOptions::default().ttl(ttl))
    }

    /// When the value of a key expires, see [`Cursor::expiry`]; `None` if the key has no value.
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        self.expiry_by(key.as_ref(), ReadOptions::default())
    }

    /// When the value of a key at a snapshot of the same store expires.
    pub fn expiry_at(&self, key: impl AsRef<[u8]>, snapshot: &Snapshot) -> Result<Option<Expiry>> {
        self.expiry_by(key.as_ref(), ReadOptions::default().at(snapshot))
    }

    fn expiry_by(&self, key: &[u8], options: ReadOptions) -> Result<Option<Expiry>> {
        let behind = [key, &[0]].concat();
        let options = options.with_bounds(Some(key), Some(&behind)).keys_only();
        let mut cursor = self.cursor(options)?;
        cursor.seek(key)?;
        (cursor.valid() && cursor.key() == key).then(|| cursor.expiry()).transpose()
    }

    /// When a put made now would expire according to the keyspace's options.
    #[inline]
    pub(crate) fn own_expiry_ms(&self) -> Option<u64> {
        match self.inner.ttl_ms.load(Relaxed) {
            0 => None,
            ttl_ms => Some(self.store.env.watch.now_ms().saturating_add(ttl_ms)),
        }
    }

    /// Removes a key with the durability that the store was opened with. Removing an absent key is
    /// not an error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::default())
    }

    /// Removes a key with the durability in `options`. Removing an absent key is not an error.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        options.check_no_ttl("a delete")?;
        self.write_one(Kind::Delete, key.as_ref(), &[], options)
    }

    /// Stores a value, and returns as soon as readers see it. The commit is ready when the value
    /// survives a power loss, see [`Commit`]. [`crate::Store::write_later`] accepts several writes
    /// at once, and any durability.
    ///
    /// # Errors
    /// Those of a put with [`WriteOptions::sync`], if nothing was written. A store without a log
    /// (`wal_mode = "off"`) refuses the call.
    pub fn put_later(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        self.write_later(|batch| batch.push_put(self, key.as_ref(), value.as_ref()))
    }

    /// Removes a key as [`Keyspace::put_later`] stores one. Removing an absent key is not an error.
    ///
    /// # Errors
    /// As [`Keyspace::put_later`].
    pub fn delete_later(&self, key: impl AsRef<[u8]>) -> Result<Commit> {
        self.write_later(|batch| batch.push(Kind::Delete, self.inner.id, key.as_ref(), &[]))
    }

    /// Changes a value with an operand of the keyspace's merge operator, without reading the value.
    /// The durability is that with which the store was opened. Reads, flushes and compactions apply
    /// the operand.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::KeyspaceOptions;
    ///
    /// let options = KeyspaceOptions::default().merge_operator("add-i64");
    /// let counters = store.open_keyspace("counters", Some(options))?;
    /// for _ in 0..3 {
    ///     counters.merge("visits", 1i64.to_le_bytes())?;
    /// }
    /// assert_eq!(counters.get("visits")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the keyspace has no merge operator, or the operator refuses the operand.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, WriteOptions::default())
    }

    /// Changes a value with an operand, with the durability in `options`.
    ///
    /// # Errors
    /// If the keyspace has no merge operator, or the operator refuses the operand.
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        options.check_no_ttl("an operand")?;
        self.inner.merging.load().check(self.name(), operand.as_ref())?;
        self.write_one(Kind::Merge, key.as_ref(), operand.as_ref(), options)
    }

    /// Removes the keys of a range, with the durability that the store was opened with. The call
    /// writes one small record, however many keys there are; for an empty range it writes nothing.
    /// Readers jump over the range at once; flushes and compactions free its space.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// for day in 1..=31 {
    ///     keyspace.put(format!("log/{day:02}"), "...")?;
    /// }
    /// keyspace.delete_range(&b"log/01"[..]..b"log/15")?;
    /// assert_eq!(keyspace.iter()?.count(), 17);
    /// keyspace.clear()?;
    /// assert_eq!(keyspace.iter()?.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.delete_range_with(range, WriteOptions::default())
    }

    /// Removes the keys of a range, with the durability in `options`.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn delete_range_with(&self, range: impl KeyRange, options: WriteOptions) -> Result<()> {
        options.check_no_ttl("a range delete")?;
        let Some((start, end)) = range_of(&range)? else { return Ok(()) };
        self.write_one(Kind::RangeDelete, &start, &end, options)
    }

    /// Removes all keys, with one range delete.
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    fn write_one(&self, kind: Kind, key: &[u8], value: &[u8], options: WriteOptions) -> Result<()> {
        self.write_batch(options, |batch| batch.push(kind, self.inner.id, key, value))
    }

    fn write_expiring(
        &self,
        key: &[u8],
        value: &[u8],
        at_ms: u64,
        options: WriteOptions,
    ) -> Result<()> {
        self.write_batch(options, |batch| batch.push_expiring(self.inner.id, key, value, at_ms))
    }

    /// Commits a batch with one write, built in the thread's buffer.
    #[inline]
    fn write_batch(
        &self,
        options: WriteOptions,
        fill: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        self.with_batch(fill, |batch| {
            self.store.committer.commit(
                batch,
                std::slice::from_ref(&self.inner),
                self.store.env.durability(options),
                &*self.store.runner,
            )
        })
    }

    /// Does the same, and returns a commit that is ready once the write survives a power loss.
    fn write_later(&self, fill: impl FnOnce(&mut Batch) -> Result<()>) -> Result<Commit> {
        self.with_batch(fill, |batch| {
            self.store.committer.commit_later(
                batch,
                std::slice::from_ref(&self.inner),
                Durability::Sync,
                &*self.store.runner,
            )
        })
    }

    #[inline(always)]
    fn with_batch<T>(
        &self,
        fill: impl FnOnce(&mut Batch) -> Result<()>,
        commit: impl FnOnce(&Batch) -> Result<T>,
    ) -> Result<T> {
        thread_local! {
            static BATCH: Cell<Batch> = Cell::new(Batch::new());
        }
        // The buffer is taken, not borrowed: the commit may call a listener, which may write to
        // another store.
        let mut batch = threads::take(&BATCH);
        batch.clear();
        fill(&mut batch)?;
        let outcome = commit(&batch);
        batch.shrink();
        threads::keep(&BATCH, batch);
        outcome
    }

    /// Looks up a key. The value borrows its block from the cache if that saves a copy.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let (core, key) = (&self.inner, key.as_ref());
        self.store.reader.get_with(core, key, |folded| self.store.write_back(core, key, folded))
    }

    /// Looks up a key without I/O: it opens no table, reads no filter, block or value from a file,
    /// and waits for no thread that does. It is for threads that must not block, such as those of
    /// an async runtime. A value made of merge operands is known only if memtables contain all of
    /// them, and a separated value only if it is cached. A lookup that returns
    /// [`CachedGet::NeedsIo`] changes nothing: a [`Keyspace::get`] on another thread reads the
    /// value, and may bring it into the cache.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::CachedGet;
    ///
    /// let keyspace = store.default_keyspace();
    /// keyspace.put("k", "v")?;
    /// let value = match keyspace.get_if_cached("k")? {
    ///     CachedGet::Value(value) => Some(value),
    ///     CachedGet::Absent => None,
    ///     CachedGet::NeedsIo => keyspace.get("k")?, // on a thread that may block
    /// };
    /// assert_eq!(value.as_deref(), Some(&b"v"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_if_cached(&self, key: impl AsRef<[u8]>) -> Result<CachedGet> {
        self.store.reader.get_if_cached(&self.inner, key.as_ref())
    }

    /// Looks up a key as of a snapshot of the same store.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// keyspace.put("k", "old")?;
    /// let snapshot = store.snapshot();
    /// keyspace.put("k", "new")?;
    /// assert_eq!(keyspace.get_at("k", &snapshot)?.as_deref(), Some(&b"old"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_at(&self, key: impl AsRef<[u8]>, snapshot: &Snapshot) -> Result<Option<Value>> {
        self.store.reader.get_at(&self.inner, key.as_ref(), snapshot)
    }

    /// Looks up many keys at one moment, and returns the results in the order of the keys. The
    /// search is in sorted order, so that neighbours share a block while it is in the
    /// processor's cache.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.store.reader.multi_get(&self.inner, keys, None)
    }

    /// Looks up many keys as of a snapshot of the same store, as [`Keyspace::multi_get`] does.
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: &Snapshot,
    ) -> Result<Vec<Option<Value>>> {
        self.store.reader.multi_get(&self.inner, keys, Some(snapshot))
    }

    /// How much data the keyspace's value files contain; empty if all values are inline.
    pub fn value_usage(&self) -> Vec<ValueUsage> {
        if !self.inner.is_at_home() {
            return Vec::new();
        }
        let readers = self.store.visibility.readers();
        self.inner.values.load().all().map(|store| store.usage(&readers)).collect()
    }

    /// A cursor over the keyspace as of now. Position it before use.
    pub fn cursor(&self, options: ReadOptions) -> Result<Cursor> {
        Cursor::open(&self.store.reader, &self.inner, options)
    }

    /// Iterates over the keys of a range, in both directions.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// for key in ["a", "b", "c"] {
    ///     keyspace.put(key, "")?;
    /// }
    /// assert_eq!(keyspace.range("a".."c")?.count(), 2);
    /// assert_eq!(keyspace.range("b"..)?.rev().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn range(&self, range: impl KeyRange) -> Result<Scan> {
        self.scan(ReadOptions::default().with_range(range))
    }

    /// Iterates as the options say: at a snapshot, inside bounds or a prefix, in both directions.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::ReadOptions;
    ///
    /// store.put("a", "old")?;
    /// let snapshot = store.snapshot();
    /// store.delete("a")?;
    /// for name in store.keyspaces() {
    ///     let keyspace = store.keyspace(&name)?;
    ///     assert_eq!(keyspace.scan(ReadOptions::default().at(&snapshot))?.count(), 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, options: ReadOptions) -> Result<Scan> {
        Scan::open(&self.store.reader, &self.inner, options)
    }

    /// Iterates over the keys that start with `prefix`, in both directions.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan> {
        self.scan(ReadOptions::default().with_prefix(prefix))
    }

    /// Iterates over the whole keyspace, in both directions.
    pub fn iter(&self) -> Result<Scan> {
        self.scan(ReadOptions::default())
    }

    /// Bytes in memtables that are not flushed yet.
    pub fn memtable_bytes(&self) -> u64 {
        self.inner.view.load().memtable_bytes()
    }

    /// Flushes the store, compacts this keyspace into a single run, and collects the garbage in its
    /// value files.
    pub fn compact(&self) -> Result<()> {
        self.store.runner.flush_all()?;
        self.store.runner.compact_whole(std::slice::from_ref(&self.inner))
    }

    /// Flushes the store, and compacts the tables with keys of a range. This removes the deleted
    /// and replaced entries of the range. If tables can only be compacted together, the whole
    /// keyspace is compacted. O(bytes of the tables that the range overlaps); an empty range does
    /// nothing.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// store.put("log:2025", "old")?;
    /// store.delete("log:2025")?;
    /// store.default_keyspace().compact_range("log:2025".."log:2026")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        let Some((from, to)) = range_of(&range)? else { return Ok(()) };
        self.store.runner.flush_all()?;
        let to = (!to.is_empty()).then_some(&to[..]);
        self.store.runner.compact(&self.inner, Some((&from, to)))
    }
}

impl Batch {
    /// Adds a put. A key may have up to 64 KiB - 1 bytes, a value up to 4 GiB - 1; both may be
    /// empty. All keyspaces of a batch must belong to one store.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::{Batch, WriteOptions};
    ///
    /// let accounts = store.open_keyspace("accounts", None)?;
    /// let log = store.open_keyspace("log", None)?;
    /// let mut batch = Batch::new();
    /// batch.put(&accounts, "alice", "10")?;
    /// batch.put(&log, "0001", "alice gets 10")?;
    /// store.write(&batch, WriteOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.bind(keyspace.store.env.opening)?;
        self.push_put(keyspace, key.as_ref(), value.as_ref())
    }

    /// Adds a put that expires after `ttl`, counted from now.
    ///
    /// # Errors
    /// If the time to live is less than a millisecond, or ends beyond the range of the clock.
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let at_ms = keyspace.store.env.watch.after(ttl)?;
        self.bind(keyspace.store.env.opening)?;
        self.push_expiring(keyspace.id(), key.as_ref(), value.as_ref(), at_ms)
    }

    /// Adds a put with an expiry such as [`Keyspace::expiry`] returns. With [`Expiry::Never`] this
    /// is an ordinary put, which expires by the keyspace's `ttl_seconds`, if it has any. An instant
    /// that has passed hides the earlier value of the key, as a delete does.
    ///
    /// # Errors
    /// If the instant is beyond the range of the clock.
    pub fn put_with_expiry(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        let Some(at_ms) = expiry.at_ms()? else { return self.put(keyspace, key, value) };
        self.bind(keyspace.store.env.opening)?;
        self.push_expiring(keyspace.id(), key.as_ref(), value.as_ref(), at_ms)
    }

    /// Adds a put that expires as the keyspace's options say.
    pub(crate) fn push_put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        match keyspace.own_expiry_ms() {
            None => self.push(Kind::Put, keyspace.id(), key, value),
            Some(at_ms) => self.push_expiring(keyspace.id(), key, value, at_ms),
        }
    }

    /// Adds a delete. Deleting an absent key is not an error.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.bind(keyspace.store.env.opening)?;
        self.push(Kind::Delete, keyspace.id(), key.as_ref(), &[])
    }

    /// Adds an operand of the keyspace's merge operator.
    ///
    /// # Errors
    /// If the keyspace has no merge operator, or the operator refuses the operand.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        keyspace.inner.merging.load().check(keyspace.name(), operand.as_ref())?;
        self.bind(keyspace.store.env.opening)?;
        self.push(Kind::Merge, keyspace.id(), key.as_ref(), operand.as_ref())
    }

    /// Adds a range delete. It also removes earlier puts of the batch, but no later ones. An empty
    /// range adds nothing.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn delete_range(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> Result<()> {
        self.bind(keyspace.store.env.opening)?;
        let Some((start, end)) = range_of(&range)? else { return Ok(()) };
        self.push(Kind::RangeDelete, keyspace.id(), &start, &end)
    }
}

/// Turns a key of the greatest length with a zero appended, which is too long for a key, into the
/// smallest key after the original one. Returns `false` if there is none.
fn follow_longest(key: &mut Vec<u8>) -> bool {
    key.pop();
    while key.pop_if(|last| *last == 0xff).is_some() {}
    key.last_mut().map(|last| *last += 1).is_some()
}

/// The first key of a range and the smallest key after it (empty if there is none); `None` for an
/// empty range.
pub(super) fn range_of(range: &impl KeyRange) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (start, end) = ends_of(range);
    let mut start = start.unwrap_or_default();
    let is_excluded = matches!(range.start(), Bound::Excluded(_));
    if is_excluded && start.len() == MAX_KEY_BYTES + 1 && !follow_longest(&mut start) {
        return Ok(None);
    }
    let Some(end) = end else { return Ok(Some((start, Vec::new()))) };
    check_order(&start, &end)?;
    Ok((start < end).then_some((start, end)))
}
