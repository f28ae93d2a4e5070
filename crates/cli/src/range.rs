//! A range of keys from the command line, and the walk over it.

use std::ops::Bound;
use std::time::UNIX_EPOCH;

use runstone::kv::{Direction, KvStore};
use runstone::{Expiry, Keyspace, ReadOptions, Snapshot, prefix_successor};

use crate::arguments::{Part, Selection};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// An entry that a walk passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Keys that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first of them; `None` for the first of all.
    pub from: Option<Vec<u8>>,
    /// The first key behind them; `None` if they go on to the last of all.
    pub before: Option<Vec<u8>>,
    /// What the first read said that failed.
    pub what: String,
}

/// Called with each entry; an error ends the walk.
pub type Visit<'a> = dyn FnMut(Entry<'_>) -> Result<()> + 'a;

/// An expiry in milliseconds since 1970; `None` for never.
pub fn expires_ms(expiry: Expiry) -> Option<u64> {
    let Expiry::At(at) = expiry else { return None };
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Which keys, in which order.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub start: Option<Vec<u8>>,
    pub end: Option<Vec<u8>>,
    pub limit: Option<u64>,
    pub reverse: bool,
}

impl Range {
    /// Only keys that start with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Range {
        let start = (!prefix.is_empty()).then(|| prefix.to_vec());
        Range { start, end: prefix_successor(prefix), ..Range::default() }
    }

    /// The entries that the arguments select.
    pub fn of(selection: &Selection) -> Result<Range> {
        let range = Range::within(&selection.part)?;
        Ok(Range { limit: selection.limit, reverse: selection.reverse, ..range })
    }

    /// The keys of a part; `--prefix` and the bounds all hold.
    pub fn within(part: &Part) -> Result<Range> {
        let key = |text: &Option<std::ffi::OsString>| {
            text.as_deref().map(|text| part.encoding.read(text)).transpose()
        };
        let prefix = key(&part.prefix)?.unwrap_or_default();
        let mut range = Range::of_prefix(&prefix);
        let (from, to) = (key(&part.from)?, key(&part.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            let what = "--from is behind --to: no key lies between them";
            let hint = "swap them; --reverse turns the order, not the bounds";
            return Err(Failure::usage(what, hint));
        }
        if let Some(from) = from {
            range.start = Some(range.start.map_or(from.clone(), |start| start.max(from)));
        }
        if let Some(to) = to {
            range.end = Some(range.end.map_or(to.clone(), |end| end.min(to)));
        }
        Ok(range)
    }

    /// Its ends.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (
            self.start.as_deref().map_or(Bound::Unbounded, Bound::Included),
            self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        )
    }

    /// Whether no key can lie in it. Bounds that all hold may leave nothing: `--prefix a --from b`.
    pub fn is_empty(&self) -> bool {
        let ends = self.start.as_ref().zip(self.end.as_ref());
        self.limit == Some(0) || ends.is_some_and(|(start, end)| start >= end)
    }

    /// Whether it has no bound.
    pub fn is_everything(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.limit.is_none()
    }

    /// Whether some key from `min` to `max` lies in it.
    pub fn meets(&self, min: &[u8], max: &[u8]) -> bool {
        self.start.as_deref().is_none_or(|start| start <= max)
            && self.end.as_deref().is_none_or(|end| min < end)
    }

    /// Visits the entries in order; returns how many.
    pub fn walk(
        &self,
        keyspace: &Keyspace,
        snapshot: Option<&Snapshot>,
        visit: &mut Visit<'_>,
    ) -> Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut options = ReadOptions::default()
            .with_bounds(self.start.as_deref(), self.end.as_deref())
            .fill_cache(false);
        if let Some(snapshot) = snapshot {
            options = options.at(snapshot);
        }
        let mut cursor = keyspace.cursor(options)?;
        let mut count = 0;
        match self.reverse {
            false => cursor.seek_to_first()?,
            true => cursor.seek_to_last()?,
        }
        while cursor.valid() {
            interrupt::check()?;
            let (key, value) = (cursor.key(), cursor.value());
            visit(Entry { key, value, expires_ms: expires_ms(cursor.expiry()?) })?;
            count += 1;
            if self.limit.is_some_and(|limit| count >= limit) {
                break;
            }
            match self.reverse {
                false => cursor.next()?,
                true => cursor.prev()?,
            }
        }
        Ok(count)
    }

    /// The same over any store, whose scans have one bound.
    pub fn walk_store(
        &self,
        store: &dyn KvStore,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> runstone::Result<u64> {
        self.walk_while(store, |key, value| {
            visit(key, value);
            true
        })
    }

    /// The same until the visitor returns false.
    pub fn walk_while(
        &self,
        store: &dyn KvStore,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> runstone::Result<u64> {
        let mut count = 0;
        let (from, direction) = match self.reverse {
            false => (self.start.as_deref(), Direction::Forward),
            true => (self.end.as_deref(), Direction::Reverse),
        };
        if self.limit == Some(0) {
            return Ok(0);
        }
        store.scan(from, direction, &mut |key, value| {
            let is_before = self.start.as_deref().is_some_and(|start| key < start);
            let is_behind = self.end.as_deref().is_some_and(|end| key >= end);
            if is_behind && self.reverse {
                // The bound itself is outside.
                return true;
            }
            if is_before || is_behind {
                return false;
            }
            count += 1;
            visit(key, value) && self.limit.is_none_or(|limit| count < limit)
        })?;
        Ok(count)
    }
}
