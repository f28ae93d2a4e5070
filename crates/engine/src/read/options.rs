//! Options of a cursor: the moment that it sees, and its bounds.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::keys::prefix_successor;
use crate::keys::range::KeyRange;
use crate::visibility::snapshot::Snapshot;

/// Options of a cursor: the moment that it sees, its bounds, and whether it fills the cache.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
/// use runstone::ReadOptions;
///
/// for key in ["user/1", "user/2", "zone/1"] {
///     store.put(key, "")?;
/// }
/// let options = ReadOptions::default().with_prefix(b"user/").keys_only();
/// let mut cursor = store.default_keyspace().cursor(options)?;
/// cursor.seek_to_last()?;
/// assert_eq!(cursor.key(), b"user/2");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadOptions {
    pub(super) snapshot: Option<Snapshot>,
    pub(super) start: Option<Vec<u8>>,
    pub(super) end: Option<Vec<u8>>,
    pub(super) fill_cache: bool,
    pub(super) keys_only: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { snapshot: None, start: None, end: None, fill_cache: true, keys_only: false }
    }
}

impl ReadOptions {
    /// Reads as of a snapshot instead of now.
    pub fn at(mut self, snapshot: &Snapshot) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// Shows only keys of a range.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::ReadOptions;
    ///
    /// ["a", "b", "c"].iter().try_for_each(|key| store.put(key, ""))?;
    /// let keyspace = store.default_keyspace();
    /// assert_eq!(keyspace.scan(ReadOptions::default().with_range("b"..="c"))?.count(), 2);
    /// assert!(keyspace.scan(ReadOptions::default().with_range("c".."b")).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A read with these options fails if the range ends before it starts.
    pub fn with_range(mut self, range: impl KeyRange) -> Self {
        (self.start, self.end) = ends_of(&range);
        self
    }

    /// Shows only keys from `start` (inclusive) to `end` (exclusive).
    ///
    /// # Errors
    /// As [`ReadOptions::with_range`].
    pub fn with_bounds(mut self, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        self.start = start.map(<[u8]>::to_vec);
        self.end = end.map(<[u8]>::to_vec);
        self
    }

    /// Shows only keys that start with `prefix`.
    pub fn with_prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        let end = prefix_successor(prefix.as_ref());
        self.with_bounds(Some(prefix.as_ref()), end.as_deref())
    }

    /// The first key to show, and the smallest key after the keys to show.
    pub(crate) fn bounds(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.start.as_deref(), self.end.as_deref())
    }

    /// Refuses bounds whose end comes before their start.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        match self.bounds() {
            (start, Some(end)) => check_order(start.unwrap_or_default(), end),
            _ => Ok(()),
        }
    }

    /// Whether the cursor reads as of a snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Does not read separated values. A cursor then shows them as empty.
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Whether blocks that the cursor reads enter the block cache. Turn this off for a scan that
    /// reads everything once.
    pub fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }
}

/// The first key of a range, and the smallest key after the range.
pub(crate) fn ends_of(range: &impl KeyRange) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let at = |key: &[u8]| Some(key.to_vec());
    let behind = |key: &[u8]| Some([key, &[0]].concat());
    let start = match range.start() {
        Bound::Included(key) => at(key),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => None,
    };
    let end = match range.end() {
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => at(key),
        Bound::Unbounded => None,
    };
    (start, end)
}

/// Refuses a range that ends before it starts.
pub(crate) fn check_order(start: &[u8], end: &[u8]) -> Result<()> {
    if start <= end {
        return Ok(());
    }
    let (start, end) = (start.escape_ascii(), end.escape_ascii());
    let what = format!("the range from \"{start}\" to \"{end}\" ends before it starts");
    Err(Error::invalid(what, "give the smaller key first"))
}
