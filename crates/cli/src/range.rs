//! A range of keys from the command line, and the walk over it.

use std::ops::Bound;
use std::time::UNIX_EPOCH;

use runstone::{Cursor, Error, Expiry, Keyspace, ReadOptions, Snapshot, prefix_successor};
use runstone_kv::{Direction, KvStore};

use crate::arguments::{Part, Selection};
use crate::counters::Counter;
use crate::encoding::shown;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt;

/// An entry that a walk passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// A key whose value could not be made or read. The values of other keys may still be readable.
#[derive(Clone, Debug)]
pub struct Failed<'a> {
    pub key: &'a [u8],
    pub error: Error,
}

impl Failed<'_> {
    /// The cause of the failure, without the key.
    pub fn what(&self) -> String {
        match &self.error {
            Error::MergeFailed { operator, what, .. } => {
                format!("merge operator {operator} failed: {what}")
            }
            error => error.to_string(),
        }
    }

    /// Whether a file is damaged.
    pub fn is_damage(&self) -> bool {
        Failure::from(self.error.clone()).exit == Exit::Damaged
    }
}

impl From<Failed<'_>> for Failure {
    fn from(failed: Failed<'_>) -> Failure {
        let failure = Failure::from(failed.error.clone());
        let ends_operands = "`runstone put` or `runstone delete` of the key ends its operands";
        let hint = failure.hint.unwrap_or_default();
        let (what, hint, exit) = match &failed.error {
            Error::MergeFailed { operator, .. } if Counter::of(operator).is_some() => {
                let hint = "`runstone delete` of the key ends its operands, and `runstone merge` \
                            begins the counter anew; a `put` takes no number";
                (failure.what, hint.to_string(), Exit::Damaged)
            }
            Error::MergeFailed { .. } => (failure.what, ends_operands.to_string(), Exit::Damaged),
            // The operator is not registered.
            Error::InvalidArgument { .. } => {
                let hint = "read it by a program that registers the operator";
                (failure.what, format!("{hint}; {ends_operands}"), Exit::Damaged)
            }
            _ => {
                let key = shown(failed.key);
                let what = format!("the value of key {key} cannot be read: {}", failure.what);
                let hint = match failure.exit {
                    Exit::Damaged => format!("{hint}; `runstone put` writes the key anew"),
                    // A failing device is not damage, and may work again.
                    _ => hint,
                };
                (what, hint, failure.exit)
            }
        };
        Failure { what, hint: Some(hint), exit, ..failure }
    }
}

/// The result of a walk for one key.
pub type Found<'a> = std::result::Result<Entry<'a>, Failed<'a>>;

/// Keys that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first of them; `None` for the first key of all.
    pub from: Option<Vec<u8>>,
    /// The first key after them; `None` if the rest of the keys is among them.
    pub before: Option<Vec<u8>>,
    /// The error of the first read that failed.
    pub what: String,
}

/// Called with each key that a walk reaches; an error ends the walk.
pub type Visit<'a> = dyn FnMut(Found<'_>) -> Result<()> + 'a;

/// An expiry in milliseconds since 1970; `None` for never.
pub fn expires_ms(expiry: Expiry) -> Option<u64> {
    let Expiry::At(at) = expiry else { return None };
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Which keys, in which order, and whether with their values.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub start: Option<Vec<u8>>,
    pub end: Option<Vec<u8>>,
    pub limit: Option<u64>,
    pub reverse: bool,
    /// Whether a walk may show values as empty. Then no value can fail.
    pub keys_only: bool,
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

    /// The keys of a part; `--prefix` and the bounds all apply.
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

    /// Whether it can contain no key. Several bounds together may exclude every key: `--prefix a
    /// --from b`.
    pub fn is_empty(&self) -> bool {
        let ends = self.start.as_ref().zip(self.end.as_ref());
        self.limit == Some(0) || ends.is_some_and(|(start, end)| start >= end)
    }

    /// Whether it has no bound.
    pub fn is_everything(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.limit.is_none()
    }

    /// Whether some key from `min` to `max` is in it.
    pub fn meets(&self, min: &[u8], max: &[u8]) -> bool {
        self.start.as_deref().is_none_or(|start| start <= max)
            && self.end.as_deref().is_none_or(|end| min < end)
    }

    /// Visits the keys in order. Returns the number of keys.
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
        if self.keys_only {
            options = options.keys_only();
        }
        let mut cursor = keyspace.cursor(options)?;
        let mut count = 0;
        let mut stepped = match self.reverse {
            false => cursor.seek_to_first(),
            true => cursor.seek_to_last(),
        };
        loop {
            interrupt::check()?;
            let ahead = match stepped {
                Err(error) => Some(self.visit_failed(&mut cursor, error, visit)?),
                Ok(()) if cursor.valid() => {
                    let (key, value) = (cursor.key(), cursor.value());
                    visit(Ok(Entry { key, value, expires_ms: expires_ms(cursor.expiry()?) }))?;
                    None
                }
                Ok(()) => return Ok(count),
            };
            count += 1;
            if self.limit.is_some_and(|limit| count >= limit) {
                return Ok(count);
            }
            stepped = match ahead {
                Some(ahead) => ahead,
                None => self.step(&mut cursor),
            };
        }
    }

    fn step(&self, cursor: &mut Cursor) -> runstone::Result<()> {
        match self.reverse {
            false => cursor.next(),
            true => cursor.prev(),
        }
    }

    /// Visits the key that a failed step reached, and returns the outcome of the next step. Fails
    /// if the step reached no key: the walk then has no position, so the next step fails too. If
    /// the key is empty but the next step succeeds, the failed step did reach the empty key.
    fn visit_failed(
        &self,
        cursor: &mut Cursor,
        error: Error,
        visit: &mut Visit<'_>,
    ) -> Result<runstone::Result<()>> {
        let key = cursor.key().to_vec();
        let next = self.step(cursor);
        if key.is_empty() && next.is_err() && cursor.key().is_empty() {
            return Err(error.into());
        }
        visit(Err(Failed { key: &key, error }))?;
        Ok(next)
    }

    /// Visits the keys of a store of any kind in the same way. The scans of [`KvStore`] have only
    /// one bound.
    pub fn walk_store(
        &self,
        store: &dyn KvStore,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> runstone_kv::Result<u64> {
        self.walk_while(store, |key, value| {
            visit(key, value);
            true
        })
    }

    /// Does the same until the visitor returns false.
    pub fn walk_while(
        &self,
        store: &dyn KvStore,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> runstone_kv::Result<u64> {
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
