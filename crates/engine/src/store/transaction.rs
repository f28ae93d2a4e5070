//! Transactions as users see them: begun by a store, and committed to it. The code that keeps,
//! iterates over and checks their writes is in `transaction/`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::sync::{Mutex, rank};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::range::KeyRange;
use crate::metrics::Counter;
use crate::options::store::WriteOptions;
use crate::read::options::ReadOptions;
use crate::store::engine::Engine;
use crate::store::keyspace::range_of;
use crate::store::{Keyspace, Store};
use crate::transaction::check::Check;
use crate::transaction::cursor::{Source, TransactionCursor, TransactionScan};
use crate::transaction::locks::Locks;
use crate::transaction::options::{Isolation, TransactionMode, TransactionOptions};
use crate::transaction::read_set::ReadSet;
use crate::transaction::write_set::{Put, WriteSet};
use crate::values::Value;
use crate::visibility::snapshot::Snapshot;
use crate::wal::batch::check_sizes;

/// Reads and writes in any of a store's keyspaces, which take effect together or not at all. They
/// are isolated from concurrent writes. See [`Store::begin`].
///
/// Nobody else sees the writes of a transaction before its commit, and it does not see writes of
/// others after its beginning, except in [`Transaction::get_for_update`]. Dropping it rolls it
/// back. While it is open, the store keeps what its snapshot sees.
#[derive(Debug)]
pub struct Transaction {
    store: Arc<Engine>,
    snapshot: Snapshot,
    writes: WriteSet,
    /// Set if reads are tracked.
    reads: Option<Mutex<rank::Reads, ReadSet>>,
    /// Set if keys are locked.
    locks: Option<Locks>,
}

impl Store {
    /// Begins a transaction.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::{Error, Options, Store, TransactionOptions, WriteOptions};
    ///
    /// let store = Store::open(dir.path(), Options::default())?;
    /// let accounts = store.open_keyspace("accounts", None)?;
    /// accounts.put("alice", "10")?;
    ///
    /// let mut transfer = store.begin(TransactionOptions::default())?;
    /// assert_eq!(transfer.get(&accounts, "alice")?.as_deref(), Some(&b"10"[..]));
    /// transfer.put(&accounts, "alice", "7")?;
    /// transfer.put(&accounts, "bob", "3")?;
    /// assert!(accounts.get("bob")?.is_none(), "nobody sees it yet");
    /// transfer.commit(WriteOptions::sync())?;
    /// assert!(accounts.get("bob")?.is_some());
    ///
    /// // The second writer loses, and begins again.
    /// let mut late = store.begin(TransactionOptions::default())?;
    /// late.put(&accounts, "alice", "6")?;
    /// accounts.put("alice", "5")?;
    /// let outcome = late.commit(WriteOptions::default());
    /// assert!(matches!(outcome, Err(Error::Conflict { key, .. }) if key == b"alice"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Refuses pessimistic transactions with [`Isolation::Serializable`], a closed store and a
    /// fork.
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(&self.inner, options)
    }

    /// Runs `work` in a transaction, commits it and returns the result of `work`. After a conflict
    /// or a deadlock, everything begins again in a new transaction: up to a hundred attempts, with
    /// pauses that grow to 10 ms. So `work` should change nothing but the transaction.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::{Store, TransactionOptions, WriteOptions};
    ///
    /// let store = Store::builder(dir.path()).open()?;
    /// let tickets = store.open_keyspace("tickets", None)?;
    /// let number = store.transact(TransactionOptions::default(), WriteOptions::sync(), |work| {
    ///     let last = work.get(&tickets, "last")?.map_or(0, |last| last[0]);
    ///     work.put(&tickets, "last", [last + 1])?;
    ///     Ok(last + 1)
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Store::begin`] and of the commit, and those of `work`, which roll the transaction
    /// back. The last conflict, if no attempt succeeded. [`Error::LockTimeout`] is returned at
    /// once, because the transaction has waited already.
    pub fn transact<T>(
        &self,
        options: TransactionOptions,
        write: WriteOptions,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = 1;
        loop {
            let mut transaction = self.begin(options)?;
            let outcome =
                work(&mut transaction).and_then(|made| transaction.commit(write).map(|()| made));
            match outcome {
                Err(Error::Conflict { .. } | Error::Deadlock { .. })
                    if attempts < MOST_ATTEMPTS => {}
                outcome => return outcome,
            }
            thread::sleep((FIRST_PAUSE * attempts * attempts).min(LONGEST_PAUSE));
            attempts += 1;
        }
    }
}

/// How many times the work is tried if others interfere, and the pauses in between. The first pause
/// is as long as a commit or two, and later pauses grow with the square of the attempts.
const MOST_ATTEMPTS: u32 = 100;
const FIRST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

impl Transaction {
    pub(crate) fn begin(store: &Arc<Engine>, options: TransactionOptions) -> Result<Transaction> {
        store.env.check_caller()?;
        store.check_usable()?;
        let is_serializable = options.isolation == Isolation::Serializable;
        let reads = is_serializable.then(|| Mutex::new(ReadSet::new(options.max_tracked_bytes)));
        let locks = match options.mode {
            TransactionMode::Optimistic => None,
            TransactionMode::Pessimistic if is_serializable => {
                return Err(Error::invalid(
                    "a pessimistic transaction tracks no reads, so it cannot be serializable",
                    "read for update what must not change, or use TransactionMode::Optimistic",
                ));
            }
            TransactionMode::Pessimistic => {
                let mut locks = Locks::new(&store.locks, options.max_locks, options.lock_timeout);
                locks.begin_use();
                // After this call, every commit that began before locks were in use is visible.
                store.committer.wait_for_writers();
                Some(locks)
            }
        };
        let (store, snapshot) = (Arc::clone(store), store.visibility.snapshot());
        let writes = WriteSet::new(options.max_write_bytes);
        Ok(Transaction { store, snapshot, writes, reads, locks })
    }

    /// The snapshot from which the transaction reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number by which errors of other transactions name this one; `None` if it takes no locks.
    pub fn id(&self) -> Option<u64> {
        self.locks.as_ref().map(Locks::id)
    }

    /// Looks up a key: the transaction's own last write, or else the value as of its beginning.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let (core, key) = (self.own(keyspace)?, key.as_ref());
        if let Some(write) = self.writes.get(core.id, key) {
            return Ok(write.as_ref().map(|put| put.value.clone()));
        }
        if let Some(reads) = &self.reads {
            reads.lock().add_key(core, key)?;
        }
        self.store.reader.get_at(core, key, &self.snapshot)
    }

    /// Whether the key has a value: after the transaction's own last write, or else as of its
    /// beginning.
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let (core, key) = (self.own(keyspace)?, key.as_ref());
        if let Some(write) = self.writes.get(core.id, key) {
            return Ok(write.is_some());
        }
        if let Some(reads) = &self.reads {
            reads.lock().add_key(core, key)?;
        }
        self.store.reader.contains(core, key, Some(&self.snapshot))
    }

    /// Looks up many keys, and returns the results in the order of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        // In sorted order, so that neighbours share a block while the processor caches it.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|a, b| keys[*a].as_ref().cmp(keys[*b].as_ref()));
        let mut values = vec![None; keys.len()];
        for at in order {
            values[at] = self.get(keyspace, &keys[at])?;
        }
        Ok(values)
    }

    /// Locks a key, and looks it up as it is now: the transaction's own last write, or else the
    /// newest value that was committed. So the value stays the same until the commit, as long as
    /// others use transactions too. Only pessimistic transactions can do this.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::{TransactionOptions, WriteOptions};
    ///
    /// let seats = store.open_keyspace("seats", None)?;
    /// let mut booking = store.begin(TransactionOptions::pessimistic())?;
    /// if booking.get_for_update(&seats, "12A")?.is_none() {
    ///     booking.put(&seats, "12A", "alice")?;
    /// }
    /// booking.commit(WriteOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], or too many locks. Locks that the transaction
    /// already holds stay held.
    pub fn get_for_update(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        let (core, key) = (Arc::clone(self.own(keyspace)?), key.as_ref());
        if self.locks.is_none() {
            return Err(Error::invalid(
                "an optimistic transaction takes no locks",
                "use TransactionMode::Pessimistic, or get with Isolation::Serializable",
            ));
        }
        core.check_readable()?;
        self.lock(&core, key)?;
        match self.writes.get(core.id, key) {
            Some(write) => Ok(write.as_ref().map(|put| put.value.clone())),
            None => self.store.reader.get(&core, key),
        }
    }

    /// Stores a value. A pessimistic transaction locks the key.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let expiry_ms = keyspace.own_expiry_ms();
        check_sizes(key.len(), value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES))?;
        self.write(keyspace, key, Some(Put { value: Value::owned(value), expiry_ms }))
    }

    /// Stores a value that expires after `ttl`, counted from now. The transaction itself sees the
    /// value until the transaction ends.
    ///
    /// # Errors
    /// If the time to live is less than a millisecond, or ends beyond the range of the clock. Also
    /// those of [`Transaction::put`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_sizes(key.len(), value.len() + EXPIRY_BYTES)?;
        let expiry_ms = Some(self.store.env.watch.after(ttl)?);
        self.write(keyspace, key, Some(Put { value: Value::owned(value), expiry_ms }))
    }

    /// Changes a value with an operand of the keyspace's merge operator: reads the value and puts
    /// the merged one, whereas [`Keyspace::merge`] writes only the operand. So it conflicts as a
    /// get and a put do, and the value gets the keyspace's time to live.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::{KeyspaceOptions, TransactionOptions, WriteOptions};
    ///
    /// let options = KeyspaceOptions::default().merge_operator("add-u64");
    /// let counters = store.open_keyspace("counters", Some(options))?;
    /// counters.merge("seats", 3u64.to_le_bytes())?;
    /// let mut booking = store.begin(TransactionOptions::default())?;
    /// booking.merge(&counters, "seats", 2u64.to_le_bytes())?;
    /// assert_eq!(booking.get(&counters, "seats")?.as_deref(), Some(&5u64.to_le_bytes()[..]));
    /// booking.commit(WriteOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each call rewrites the whole value, so its cost grows with the length of the value.
    ///
    /// # Errors
    /// Those of [`Keyspace::merge`], [`Transaction::get`] and [`Transaction::put`].
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.writable(keyspace)?;
        let merging = keyspace.inner.merging.load();
        merging.check(keyspace.name(), operand)?;
        let base = match self.locks.is_some() {
            true => self.get_for_update(keyspace, key)?,
            false => self.get(keyspace, key)?,
        };
        let value = merging.full(key, base.as_deref(), &[operand])?;
        self.put(keyspace, key, value)
    }

    /// Removes a key. Removing an absent key is not an error. A pessimistic transaction locks the
    /// key.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        check_sizes(key.as_ref().len(), 0)?;
        self.write(keyspace, key.as_ref(), None)
    }

    /// Removes the keys of a range, including those that the transaction has written so far. At the
    /// commit, a write by somebody else anywhere in the range is a conflict.
    ///
    /// # Errors
    /// If the range ends before it starts, and in a pessimistic transaction, which can only lock
    /// single keys.
    pub fn delete_range(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> Result<()> {
        let core = Arc::clone(self.writable(keyspace)?);
        if self.locks.is_some() {
            return Err(Error::invalid(
                "a pessimistic transaction locks keys, not ranges",
                "delete the keys one by one, or use TransactionMode::Optimistic",
            ));
        }
        let Some((start, end)) = range_of(&range)? else { return Ok(()) };
        check_sizes(start.len(), end.len())?;
        self.writes.delete_range(&core, start, Some(end).filter(|end| !end.is_empty()))
    }

    /// A cursor over a keyspace as the transaction sees it. Position it before use. While the
    /// cursor exists, the transaction cannot write.
    ///
    /// # Errors
    /// If the options name a snapshot: a transaction has its own.
    pub fn cursor(
        &self,
        keyspace: &Keyspace,
        options: ReadOptions,
    ) -> Result<TransactionCursor<'_>> {
        let options = self.at_snapshot(options)?;
        TransactionCursor::open(self.source(keyspace)?, options)
    }

    /// Iterates over keys inside the bounds or the prefix of the options, in either direction.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::{ReadOptions, TransactionOptions};
    ///
    /// let keyspace = store.default_keyspace();
    /// keyspace.put("a", "of the store")?;
    /// let mut transaction = store.begin(TransactionOptions::default())?;
    /// transaction.put(keyspace, "b", "own")?;
    /// let scan = transaction.scan(keyspace, ReadOptions::default())?;
    /// let keys = scan.rev().map(|item| Ok(item?.0)).collect::<runstone::Result<Vec<_>>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::cursor`].
    pub fn scan(&self, keyspace: &Keyspace, options: ReadOptions) -> Result<TransactionScan<'_>> {
        let options = self.at_snapshot(options)?;
        Ok(TransactionScan::new(self.source(keyspace)?, options))
    }

    /// Iterates over the keys of a range, in either direction.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<TransactionScan<'_>> {
        self.scan(keyspace, ReadOptions::default().with_range(range))
    }

    /// Iterates over the keys that start with `prefix`, in either direction.
    pub fn prefix(
        &self,
        keyspace: &Keyspace,
        prefix: impl AsRef<[u8]>,
    ) -> Result<TransactionScan<'_>> {
        self.scan(keyspace, ReadOptions::default().with_prefix(prefix))
    }

    /// Iterates over a whole keyspace, in either direction.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionScan<'_>> {
        self.scan(keyspace, ReadOptions::default())
    }

    /// Sets a savepoint, to which the writes can be rolled back. There may be several.
    pub fn set_savepoint(&mut self) {
        self.writes.set_savepoint();
    }

    /// Undoes the writes since the last savepoint, and removes the savepoint. Reads stay tracked,
    /// and locks stay held.
    ///
    /// # Errors
    /// If there is no savepoint.
    pub fn rollback_to_savepoint(&mut self) -> Result<()> {
        match self.writes.rollback_to_savepoint() {
            true => Ok(()),
            false => Err(Error::invalid(
                "the transaction has no savepoint",
                "set one first; going back to a savepoint removes it",
            )),
        }
    }

    /// Discards all writes and releases all locks. Dropping the transaction does the same.
    pub fn rollback(self) {}

    /// Makes all writes visible at once, durable as the options say. A transaction without writes
    /// has nothing to check, because all its reads come from one snapshot. Its commit does not
    /// sync.
    ///
    /// A transaction cannot be used after a commit or a rollback: the compiler ensures that.
    ///
    /// ```compile_fail,E0382
    /// # fn main() -> runstone::Result<()> {
    /// # let store = runstone::Store::open("store", runstone::Options::default())?;
    /// # let keyspace = store.default_keyspace();
    /// let transaction = store.begin(Default::default())?;
    /// transaction.commit(Default::default())?;
    /// transaction.get(keyspace, "key")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After [`Error::Conflict`] and errors of the checks and of the log, nothing is written.
    /// Others write while a large transaction is checked, so their new writes are checked again. If
    /// there are still too many new writes after sixteen checks, that is a conflict too. If the
    /// sync of a durable commit fails, the store has stopped, and a reopen shows all of the
    /// transaction or nothing (P3, P7).
    pub fn commit(self, options: WriteOptions) -> Result<()> {
        options.check_no_ttl("a transaction")?;
        let env = Arc::clone(&self.store.env);
        let outcome = self.commit_uncounted(options);
        match &outcome {
            Ok(()) => env.metrics.add(Counter::transactions_committed, 1),
            Err(Error::Conflict { .. }) => env.metrics.add(Counter::transaction_conflicts, 1),
            Err(_) => {}
        }
        outcome
    }

    fn commit_uncounted(mut self, options: WriteOptions) -> Result<()> {
        if self.writes.is_empty() {
            return self.store.env.check_caller();
        }
        let batch = self.writes.to_batch(self.store.env.opening)?;
        let cores = self.writes.all().map(|writes| Arc::clone(&writes.core));
        let cores: Vec<Arc<KeyspaceCore>> = cores.collect();
        let durability = self.store.env.durability(options);
        let (committer, relief) = (&self.store.committer, &*self.store.runner);
        if self.locks.is_some() {
            return committer.commit(&batch, &cores, durability, relief);
        }
        let reads = self.reads.as_mut().map(|reads| &*reads.get_mut());
        let (reader, locks) = (&self.store.reader, &self.store.locks);
        let mut check = Check::new(reader, locks, &self.snapshot, &self.writes, reads);
        committer.commit_if(&batch, &cores, durability, relief, &mut check)
    }

    /// Locks a key, if the transaction is pessimistic.
    fn lock(&mut self, core: &KeyspaceCore, key: &[u8]) -> Result<()> {
        let outcome = self.locks.as_mut().map_or(Ok(()), |locks| locks.acquire(core, key));
        match &outcome {
            Err(Error::LockTimeout { .. }) => self.count(Counter::lock_timeouts),
            Err(Error::Deadlock { .. }) => self.count(Counter::deadlocks),
            _ => {}
        }
        outcome
    }

    fn count(&self, counter: Counter) {
        self.store.env.metrics.add(counter, 1);
    }

    fn write(&mut self, keyspace: &Keyspace, key: &[u8], write: Option<Put>) -> Result<()> {
        let core = Arc::clone(self.writable(keyspace)?);
        self.lock(&core, key)?;
        if seeded!(WrittenBeforeCommit) {
            match &write {
                Some(put) => keyspace.put(key, &put.value)?,
                None => keyspace.delete(key)?,
            }
        }
        self.writes.write(&core, key, write)
    }

    /// The state of a keyspace of the same store.
    fn own<'k>(&self, keyspace: &'k Keyspace) -> Result<&'k Arc<KeyspaceCore>> {
        // Checked before any lock is taken: in a fork a lock may be held for ever.
        self.store.env.check_process()?;
        match Arc::ptr_eq(&self.store, &keyspace.store) {
            true => Ok(&keyspace.inner),
            false => Err(Error::invalid(
                "the keyspace belongs to another store, or is from before a reopen",
                "use keyspaces of the store that began the transaction",
            )),
        }
    }

    /// Does the same, and checks that the transaction may write to the keyspace.
    fn writable<'k>(&self, keyspace: &'k Keyspace) -> Result<&'k Arc<KeyspaceCore>> {
        let core = self.own(keyspace)?;
        core.check_readable()?;
        if self.store.env.options.read_only { Err(Error::ReadOnly) } else { Ok(core) }
    }

    fn at_snapshot(&self, options: ReadOptions) -> Result<ReadOptions> {
        options.check_bounds()?;
        if options.has_snapshot() {
            return Err(Error::invalid(
                "a transaction reads at its own snapshot",
                "leave the snapshot out, or use a cursor of the keyspace",
            ));
        }
        Ok(options.at(&self.snapshot))
    }

    fn source<'t>(&'t self, keyspace: &Keyspace) -> Result<Source<'t>> {
        let core = Arc::clone(self.own(keyspace)?);
        let writes = self.writes.in_keyspace(core.id);
        Ok(Source { reader: &self.store.reader, core, writes, reads: self.reads.as_ref() })
    }
}
