//! Questions to a keyspace that need no walk over it: whether a key is there, which is the first or
//! the last, about how much a range holds.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::key::{Kind, kind_of};
use crate::memtable::MemtableIter;
use crate::read::cursor::ReadOptions;
use crate::store::keyspace::{Keyspace, range_of};
use crate::table::handle::TableHandle;
use crate::values::Value;

/// About how much a range holds, versions that readers no longer see included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeEstimate {
    /// Entries.
    pub entries: u64,
    /// Bytes of tables and memtables, separated values not included.
    pub bytes: u64,
}

impl Keyspace {
    /// Whether the key has a value. A value that lies apart is not read.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// assert!(keyspace.is_empty()?);
    /// keyspace.put("b", "2")?;
    /// keyspace.put("a", "1")?;
    /// assert!(keyspace.contains_key("a")? && !keyspace.contains_key("c")?);
    /// let (key, value) = keyspace.first_key_value()?.expect("there are two");
    /// assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
    /// assert_eq!(keyspace.last_key_value()?.expect("there are two").0, b"b");
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        if self.inner.values.load().is_empty() {
            return Ok(self.get(key)?.is_some());
        }
        let mut cursor = self.cursor(ReadOptions::default().keys_only())?;
        cursor.seek(key)?;
        Ok(cursor.valid() && cursor.key() == key)
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> Result<bool> {
        let mut cursor = self.cursor(ReadOptions::default().keys_only())?;
        cursor.seek_to_first()?;
        Ok(!cursor.valid())
    }

    /// The smallest key with its value.
    pub fn first_key_value(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter()?.next().transpose()
    }

    /// The largest key with its value.
    pub fn last_key_value(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter()?.next_back().transpose()
    }

    /// About how much a range holds. Tables that lie inside count as a whole, those at its ends by
    /// the place of the bound among their blocks, so the error is at most the blocks at the ends,
    /// and what newer versions replace or delete counts too. Reads at most two index partitions of
    /// a table. O(tables + entries in memtables).
    ///
    /// # Errors
    /// If the range ends before it starts.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let keyspace = store.default_keyspace();
    /// (0..100u8).try_for_each(|key| keyspace.put([key], "value"))?;
    /// assert_eq!(keyspace.estimate([10u8]..[60u8])?.entries, 50);
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimate<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<RangeEstimate> {
        self.inner.check_readable()?;
        let Some((from, to)) = range_of(&range)? else { return Ok(RangeEstimate::default()) };
        let to = (!to.is_empty()).then_some(to);
        let mut sum = RangeEstimate::default();
        let view = self.inner.view.load_full();
        for memtable in view.memtables() {
            let mut iter = MemtableIter::new(Arc::clone(memtable));
            iter.seek(&from, u64::MAX);
            let is_inside = |key: &[u8]| to.as_deref().is_none_or(|to| key < to);
            while let Some(record) = iter.record().filter(|record| is_inside(record.key())) {
                if kind_of(record.trailer()) != Kind::RangeDelete as u8 {
                    sum.entries += 1;
                    sum.bytes += (record.key().len() + record.value().len()) as u64;
                }
                iter.next();
            }
        }
        for table in view.version.handles() {
            let share = share_of(table, &from, to.as_deref())?;
            let meta = table.meta();
            sum.bytes += (meta.bytes as u128 * share / WHOLE) as u64;
            sum.entries += (meta.entries as u128 * share / WHOLE) as u64;
        }
        Ok(sum)
    }
}

/// Shares of a table are given in parts of this.
const WHOLE: u128 = 1 << 32;

/// The share of a table's blocks that lie in a range.
fn share_of(table: &TableHandle, from: &[u8], to: Option<&[u8]>) -> Result<u128> {
    let meta = table.meta();
    if to.is_some_and(|to| to <= &*meta.min_key || to <= from) || *from > *meta.max_key {
        return Ok(0);
    }
    let place = |key: &[u8]| -> Result<u128> {
        let (offset, end) = table.reader()?.place_of(key)?;
        Ok(u128::from(offset) * WHOLE / u128::from(end.max(1)))
    };
    let start = if *from <= *meta.min_key { 0 } else { place(from)? };
    let end = match to {
        Some(to) if *to <= *meta.max_key => place(to)?,
        _ => WHOLE,
    };
    Ok(end.saturating_sub(start))
}
