//! Bulk loads, as users call them.

use crate::error::{Error, Result};
use crate::keys::Kind;
use crate::store::keyspace::Keyspace;

impl Keyspace {
    /// Stores sorted entries. They are written straight to tables, each byte once, without the log
    /// and without a memtable. All of them become visible and durable together when the call
    /// returns. After an error or a crash before that, none of them exists. Returns the number of
    /// entries.
    ///
    /// Keys must ascend strictly, by their bytes. They may exist in the keyspace already: then the
    /// load replaces them. Other threads may write meanwhile, even to the same keys. The last phase
    /// of the load waits for running compactions of the keyspace and flushes its memtables. The
    /// load is newer than all writes that were acknowledged before this phase.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let squares = store.open_keyspace("squares", None)?;
    /// let entries = (0..10_000u32).map(|n| (n.to_be_bytes(), (n * n).to_string()));
    /// assert_eq!(squares.bulk_load(entries)?, 10_000);
    /// assert_eq!(squares.get(12u32.to_be_bytes())?.as_deref(), Some(&b"144"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Values stay in the tables even if the keyspace separates large values. The first compaction
    /// that rewrites the tables moves the large ones.
    ///
    /// While the iterator runs, a close of the store, a drop of the keyspace, a change of its
    /// options and [`crate::Store::wait_idle`] wait for it. So the iterator must not call any of
    /// these.
    ///
    /// # Errors
    /// If two keys do not ascend (the message names both); if a key or value is too long; if
    /// the disk is full. Then nothing is stored, and the store continues.
    /// [`crate::GcPointers::Writeback`] also refuses a range that already has keys.
    pub fn bulk_load<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.try_bulk_load(entries.into_iter().map(Ok::<_, Error>))
    }

    /// Stores sorted entries of a source that can fail, as [`Keyspace::bulk_load`] does. The first
    /// error of the source is returned, and nothing is stored.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use std::io::BufRead;
    ///
    /// let lines = std::io::Cursor::new("apple\nbanana\n").lines();
    /// let entries = lines.map(|line| Ok::<_, Box<dyn std::error::Error>>((line?, "a fruit")));
    /// assert_eq!(store.default_keyspace().try_bulk_load(entries)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the source, and those of [`Keyspace::bulk_load`].
    pub fn try_bulk_load<K, V, E>(
        &self,
        entries: impl IntoIterator<Item = std::result::Result<(K, V), E>>,
    ) -> std::result::Result<u64, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        E: From<Error>,
    {
        self.inner.check_open()?;
        let mut load = self.store.runner.begin_load(&self.inner)?;
        for entry in entries {
            let (key, value) = entry?;
            load.add(Kind::Put, key.as_ref(), value.as_ref())?;
        }
        Ok(load.finish(&self.store.checkpointing)?)
    }
}
