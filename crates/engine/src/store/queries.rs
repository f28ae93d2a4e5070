//! Queries of a keyspace that need no walk over it: whether a key exists, the first and the last
//! key, and about how many entries and bytes a range has.

use std::sync::Arc;

use crate::error::Result;
use crate::keys::is_range_delete;
use crate::keys::range::KeyRange;
use crate::memtable::btree::tally::Tally;
use crate::memtable::{Memtable, MemtableIter};
use crate::read::options::ReadOptions;
use crate::store::keyspace::{Keyspace, range_of};
use crate::table::handle::TableHandle;
use crate::values::Value;
use crate::values::usage::ValueUsage;
use crate::visibility::snapshot::Snapshot;

/// An estimate of the size of a range, including versions that readers no longer see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Entries.
    pub entries: u64,
    /// Bytes of tables, memtables and separated values.
    pub bytes: u64,
}

impl Keyspace {
    /// Whether the key has a value. Filters answer for most absent keys, and a separated value is
    /// not read.
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
        self.store.reader.contains(&self.inner, key.as_ref(), None)
    }

    /// Whether the key has a value at a snapshot of the same store.
    pub fn contains_key_at(&self, key: impl AsRef<[u8]>, snapshot: &Snapshot) -> Result<bool> {
        self.store.reader.contains(&self.inner, key.as_ref(), Some(snapshot))
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

    /// About how many entries and bytes a range has. Tables that are inside the range count as a
    /// whole. Tables at its ends count by the place of the bound among their blocks, so the error
    /// is at most the content of the blocks at the ends of the range. Replaced and deleted entries
    /// count too. Memtables are sampled. Separated values count as if all entries of the tables had
    /// an equal share of them. The call reads at most two index partitions of a table. O(tables),
    /// and O(log n) per memtable.
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
    pub fn estimate(&self, range: impl KeyRange) -> Result<RangeEstimate> {
        self.inner.check_readable()?;
        let Some((from, to)) = range_of(&range)? else { return Ok(RangeEstimate::default()) };
        let to = (!to.is_empty()).then_some(to);
        let (view, to) = (self.inner.view.load_full(), to.as_deref());
        let (mut sum, mut all_entries) = (RangeEstimate::default(), 0);
        for table in view.version.handles() {
            let (share, meta) = (share_of(table, &from, to)?, table.meta());
            sum.bytes += (u128::from(meta.bytes) * share / WHOLE) as u64;
            sum.entries += (u128::from(meta.entries) * share / WHOLE) as u64;
            all_entries += meta.entries;
        }
        // A value file knows no keys, so each entry of the tables gets an equal share of it.
        let apart = self.value_usage().iter().map(records_bytes).sum::<u64>();
        let of_entries = u128::from(apart) * u128::from(sum.entries);
        sum.bytes += of_entries.checked_div(all_entries.into()).unwrap_or(0) as u64;
        for memtable in view.memtables() {
            let tally = tally_of(memtable, &from, to);
            sum.entries += tally.entries;
            sum.bytes += tally.bytes;
        }
        Ok(sum)
    }

    /// About how many bytes a range has, see [`Keyspace::estimate`].
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        Ok(self.estimate(range)?.bytes)
    }
}

/// Up to this many entries of a memtable are counted one by one, so that small ranges are exact. If
/// there are more, the memtable's tree gives an estimate.
const COUNTED: usize = 256;

/// About how many entries and bytes of a range a memtable has.
pub(super) fn tally_of(memtable: &Arc<Memtable>, from: &[u8], to: Option<&[u8]>) -> Tally {
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek(from, u64::MAX);
    let mut tally = Tally::default();
    for _ in 0..COUNTED {
        let inside = |key: &[u8]| to.is_none_or(|to| key < to);
        let Some(record) = iter.record().filter(|record| inside(record.key())) else {
            return tally;
        };
        if !is_range_delete(record.trailer()) {
            tally.entries += 1;
            tally.bytes += (record.key().len() + record.value().len()) as u64;
        }
        iter.next();
    }
    memtable.tally(from, to)
}

/// Bytes of the records of a value file.
pub(super) fn records_bytes(usage: &ValueUsage) -> u64 {
    usage.groups.iter().chain(&usage.cold).map(|group| group.bytes).sum()
}

/// Shares of a table are given in parts of this.
pub(super) const WHOLE: u128 = 1 << 32;

/// The share of a table's blocks that are in a range.
fn share_of(table: &TableHandle, from: &[u8], to: Option<&[u8]>) -> Result<u128> {
    let (start, end) = places_of(table, from, to)?;
    Ok(end.saturating_sub(start))
}

/// Where a range begins and ends among a table's blocks, in parts of [`WHOLE`].
pub(super) fn places_of(
    table: &TableHandle,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<(u128, u128)> {
    let meta = table.meta();
    if to.is_some_and(|to| to <= &*meta.min_key || to <= from) || *from > *meta.max_key {
        return Ok((0, 0));
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
    Ok((start, end))
}
