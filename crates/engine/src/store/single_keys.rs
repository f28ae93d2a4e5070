//! Changes that depend on the current value: small optimistic transactions, which are repeated
//! until nobody interferes.

use crate::error::{Error, Result};
use crate::keys::range::KeyRange;
use crate::metrics::Counter;
use crate::options::store::WriteOptions;
use crate::read::ends::Entry;
use crate::read::options::ReadOptions;
use crate::store::{Keyspace, Transaction};
use crate::transaction::cursor::TransactionScan as Scan;
use crate::transaction::locks::Locks;
use crate::transaction::options::TransactionOptions;
use crate::values::Value;

/// The largest size of the entries that are removed together. Their deletes must fit in one
/// transaction, too.
const MOST_TAKEN_BYTES: usize = 64 << 20;
/// About how many bytes an entry needs besides its key and value.
const TAKEN_BYTES: usize = 64;

/// The current value of a key whose change was refused.
type Refused = Option<Value>;

impl Keyspace {
    /// Gives a key a new value, or deletes it, if it has the expected value. `None` means an absent
    /// key. The inner error is the current value of the key. This and the methods
    /// below wait up to a second for a pessimistic transaction that holds the key.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// keyspace.put("leader", "alice")?;
    /// assert!(keyspace.compare_and_swap("leader", Some(b"alice"), Some(b"bob"))?.is_ok());
    /// let refused = keyspace.compare_and_swap("leader", Some(b"alice"), None)?;
    /// assert_eq!(refused.unwrap_err().as_deref(), Some(&b"bob"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if a pessimistic transaction holds the key for longer.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<std::result::Result<(), Refused>> {
        self.compare_and_swap_with(key, expected, new, WriteOptions::default())
    }

    /// The same with the durability and the time to live in `options`.
    ///
    /// # Errors
    /// As [`Keyspace::compare_and_swap`], and if there is a time to live but no new value.
    pub fn compare_and_swap_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<std::result::Result<(), Refused>> {
        if new.is_none() {
            options.check_no_ttl("a delete")?;
        }
        self.change(key.as_ref(), options, |old| match old == expected {
            true => Change::To(new.map(<[u8]>::to_vec)),
            false => Change::None,
        })
        .map(|(old, is_changed)| if is_changed { Ok(()) } else { Err(old) })
    }

    /// Stores a value if the key has none. Otherwise returns the current value.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// assert!(keyspace.put_if_absent("id/alice", "1")?.is_none());
    /// assert_eq!(keyspace.put_if_absent("id/alice", "2")?.as_deref(), Some(&b"1"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.put_if_absent_with(key, value, WriteOptions::default())
    }

    /// The same with the durability and the time to live in `options`.
    pub fn put_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<Option<Value>> {
        let (old, _) = self.change(key.as_ref(), options, |old| match old {
            None => Change::To(Some(value.as_ref().to_vec())),
            Some(_) => Change::None,
        })?;
        Ok(old)
    }

    /// Gives a key the value that `update` makes from its old one, or deletes the key if `update`
    /// returns `None`. Returns the old value. `update` is called again if somebody else changes the
    /// key meanwhile.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let visits = store.open_keyspace("visits", None)?;
    /// for _ in 0..3 {
    ///     visits.fetch_update("page", |old| Some([old.unwrap_or_default(), b"|"].concat()))?;
    /// }
    /// assert_eq!(visits.get("page")?.as_deref(), Some(&b"|||"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        self.fetch_update_with(key, update, WriteOptions::default())
    }

    /// The same with the durability and, for a new value, the time to live in `options`.
    pub fn fetch_update_with(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
        options: WriteOptions,
    ) -> Result<Option<Value>> {
        Ok(self.change(key.as_ref(), options, |old| Change::To(update(old)))?.0)
    }

    /// Removes the first entry and returns it; `None` if the keyspace is empty. Concurrent callers
    /// get different entries.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let queue = store.open_keyspace("queue", None)?;
    /// ["1", "2", "3"].iter().try_for_each(|key| queue.put(key, "work"))?;
    /// assert_eq!(queue.pop_first()?.map(|(key, _)| key), Some(b"1".to_vec()));
    /// assert_eq!(queue.pop_last()?.map(|(key, _)| key), Some(b"3".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if a pessimistic transaction holds the key for longer than a second,
    /// and the reason if the value of the entry cannot be read or made: then the entry is not
    /// removed. If a sync fails that the options ask for, the entry is removed for readers, and a
    /// reopen shows whether it is removed for good.
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.pop_first_with(WriteOptions::default())
    }

    /// The same with the durability in `options`.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_first_with(&self, options: WriteOptions) -> Result<Option<(Vec<u8>, Value)>> {
        Ok(self.take(ReadOptions::default(), 1, options, |scan| scan.next())?.pop())
    }

    /// Removes the last entry and returns it, as [`Keyspace::pop_first`] does the first.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.pop_last_with(WriteOptions::default())
    }

    /// The same with the durability in `options`.
    ///
    /// # Errors
    /// As [`Keyspace::pop_first`].
    pub fn pop_last_with(&self, options: WriteOptions) -> Result<Option<(Vec<u8>, Value)>> {
        Ok(self.take(ReadOptions::default(), 1, options, |scan| scan.next_back())?.pop())
    }

    /// Removes the first entries of a range, up to `most` of them, and returns them in order.
    /// Either all of them are removed or none. The call returns fewer if others remove some
    /// meanwhile, or once it has 64 MiB. It returns none only if the range has none, or `most` is
    /// 0.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let queue = store.open_keyspace("queue", None)?;
    /// (0..5u8).try_for_each(|key| queue.put([key], "work"))?;
    /// assert_eq!(queue.drain(.., 2)?.len(), 2);
    /// assert_eq!(queue.drain([3]..[9], 100)?.len(), 2);
    /// assert_eq!(queue.iter()?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range ends before it starts, and as [`Keyspace::pop_first`].
    pub fn drain(&self, range: impl KeyRange, most: usize) -> Result<Vec<(Vec<u8>, Value)>> {
        self.drain_with(range, most, WriteOptions::default())
    }

    /// The same with the durability in `options`.
    ///
    /// # Errors
    /// As [`Keyspace::drain`].
    pub fn drain_with(
        &self,
        range: impl KeyRange,
        most: usize,
        options: WriteOptions,
    ) -> Result<Vec<(Vec<u8>, Value)>> {
        self.take(ReadOptions::default().with_range(range), most, options, |scan| scan.next())
    }

    /// Removes the first entries of a range as [`Keyspace::drain_with`] does, up to the first for
    /// which `is_wanted` returns `false`: work that is due, say. An error of `is_wanted` ends the
    /// call, and nothing is removed. If others change one of the entries meanwhile, `is_wanted` is
    /// asked again, from the start of the range on.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// # use runstone::WriteOptions;
    /// let alarms = store.open_keyspace("alarms", None)?;
    /// ["07:00", "08:30", "12:00"].iter().try_for_each(|key| alarms.put(key, "ring"))?;
    /// let is_due = |key: &[u8], _: &[u8]| Ok(key < &b"09"[..]);
    /// assert_eq!(alarms.drain_while(.., 100, WriteOptions::default(), is_due)?.len(), 2);
    /// assert_eq!(alarms.iter()?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::drain`], and those of `is_wanted`.
    pub fn drain_while(
        &self,
        range: impl KeyRange,
        most: usize,
        options: WriteOptions,
        mut is_wanted: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Vec<(Vec<u8>, Value)>> {
        self.take(ReadOptions::default().with_range(range), most, options, |scan| {
            let (key, value) = match scan.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            match is_wanted(&key, &value) {
                Ok(true) => Some(Ok((key, value))),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// Removes up to `most` entries that `next` returns, and returns them.
    fn take(
        &self,
        options: ReadOptions,
        mut most: usize,
        how: WriteOptions,
        mut next: impl FnMut(&mut Scan<'_>) -> Option<Result<Entry>>,
    ) -> Result<Vec<Entry>> {
        how.check_no_ttl("a removal")?;
        loop {
            let mut transaction = Transaction::begin(&self.store, TransactionOptions::default())?;
            self.inner.check_readable()?;
            let mut scan = transaction.scan(self, options.clone())?;
            let (mut taken, mut bytes) = (Vec::new(), 0);
            while taken.len() < most && bytes < MOST_TAKEN_BYTES {
                let Some((key, value)) = next(&mut scan).transpose()? else { break };
                bytes += key.len() + value.len() + TAKEN_BYTES;
                taken.push((key, value));
            }
            drop(scan);
            if taken.is_empty() {
                return Ok(taken);
            }
            taken.iter().try_for_each(|(key, _)| transaction.delete(self, key))?;
            match transaction.commit(how) {
                // A caller that wants many entries conflicts with others each time, so the next
                // attempt takes fewer.
                Err(Error::Conflict { key, .. }) => {
                    most = (taken.len() / 2).max(1);
                    self.wait_for_lock(&key)?;
                }
                outcome => return outcome.map(|()| taken),
            }
        }
    }

    /// Changes a key as `decide` says for its value. Returns the value, and whether it was changed.
    /// Each repetition means that another write of the key succeeded, or that the key's lock is
    /// free again.
    fn change(
        &self,
        key: &[u8],
        options: WriteOptions,
        mut decide: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<(Option<Value>, bool)> {
        let commit = WriteOptions { ttl: None, ..options };
        loop {
            let mut transaction = Transaction::begin(&self.store, TransactionOptions::default())?;
            self.inner.check_readable()?;
            let old = transaction.get(self, key)?;
            match decide(old.as_deref()) {
                Change::None => return Ok((old, false)),
                Change::To(Some(new)) => match options.ttl {
                    Some(ttl) => transaction.put_with_ttl(self, key, new, ttl)?,
                    None => transaction.put(self, key, new)?,
                },
                Change::To(None) => transaction.delete(self, key)?,
            }
            match transaction.commit(commit) {
                Err(Error::Conflict { .. }) => self.wait_for_lock(key)?,
                outcome => return outcome.map(|()| (old, true)),
            }
        }
    }

    /// Waits until no pessimistic transaction holds the key.
    fn wait_for_lock(&self, key: &[u8]) -> Result<()> {
        let table = &self.store.locks;
        if !table.is_used() {
            return Ok(());
        }
        let mut locks = Locks::new(table, 1, TransactionOptions::default().lock_timeout);
        locks.acquire(&self.inner, key).inspect_err(|_| {
            self.store.env.metrics.add(Counter::lock_timeouts, 1);
        })
    }
}

/// What happens to a key.
enum Change {
    /// The key stays as it is.
    None,
    /// The key gets a value, or is deleted.
    To(Option<Vec<u8>>),
}
