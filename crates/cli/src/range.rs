//! A range of keys from the command line, and the walk over it.

use std::path::Path;

use runstone::kv::{Direction, KvStore};
use runstone::{Keyspace, ReadOptions, Snapshot, Store};
use runstone_device::KvSsdStore;

use crate::arguments::{KeyFormat, RangeArguments};
use crate::failure::{Failure, Result};
use crate::opening;

/// Which keys, in which order.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub start: Option<Vec<u8>>,
    pub end: Option<Vec<u8>>,
    pub limit: Option<u64>,
    pub reverse: bool,
    pub snapshot: Option<Snapshot>,
}

impl Range {
    /// Only keys that start with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Range {
        let start = (!prefix.is_empty()).then(|| prefix.to_vec());
        Range { start, end: prefix_end(prefix), ..Range::default() }
    }

    /// What the arguments say; `--prefix` and the bounds all hold.
    pub fn read(arguments: &RangeArguments, format: KeyFormat) -> Result<Range> {
        let key = |text: &Option<std::ffi::OsString>| {
            text.as_deref().map(|text| format.read(text)).transpose()
        };
        let prefix = key(&arguments.prefix)?.unwrap_or_default();
        let mut range = Range::of_prefix(&prefix);
        range.limit = arguments.limit;
        range.reverse = arguments.reverse;
        let (from, to) = (key(&arguments.from)?, key(&arguments.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            let what = "--from is behind --to: no key lies between them";
            let hint = "exchange them; --reverse turns the order, not the bounds";
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

    /// Visits the entries in order; returns how many.
    pub fn walk(
        &self,
        keyspace: &Keyspace,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        if let (Some(start), Some(end)) = (&self.start, &self.end)
            && start >= end
        {
            return Ok(0);
        }
        let mut options = ReadOptions::default()
            .with_bounds(self.start.as_deref(), self.end.as_deref())
            .fill_cache(false);
        if let Some(snapshot) = &self.snapshot {
            options = options.at(snapshot);
        }
        let mut cursor = keyspace.cursor(options)?;
        let mut count = 0;
        if self.limit == Some(0) {
            return Ok(0);
        }
        match self.reverse {
            false => cursor.seek_to_first()?,
            true => cursor.seek_to_last()?,
        }
        while cursor.valid() {
            visit(cursor.key(), cursor.value())?;
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

    fn walk_while(
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

/// What a range is walked over: a keyspace, or a device that has only one.
pub enum Entries {
    /// The store is open for as long as it is read.
    Keyspace {
        keyspace: Keyspace,
        _store: Store,
    },
    KvSsd(Box<KvSsdStore>),
}

impl Entries {
    /// Opens what exists, for reading.
    pub fn open(store: &Path, keyspace: &str) -> Result<Entries> {
        if let Some(device) = opening::kvssd(store, keyspace, false)? {
            return Ok(Entries::KvSsd(Box::new(device)));
        }
        let store = opening::to_read(store)?;
        let keyspace = opening::keyspace(&store, keyspace)?;
        Ok(Entries::Keyspace { keyspace, _store: store })
    }

    /// About how many entries there are.
    pub fn estimate(&self) -> u64 {
        match self {
            Entries::Keyspace { keyspace, .. } => {
                keyspace.shape().tables().map(|(_, table)| table.entries).sum()
            }
            Entries::KvSsd(device) => {
                device.device().tree().nodes().map(|node| node.record_count).sum()
            }
        }
    }

    /// Visits the entries of a range in order; returns how many.
    pub fn walk(
        &self,
        range: &Range,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let device = match self {
            Entries::Keyspace { keyspace, .. } => return range.walk(keyspace, visit),
            Entries::KvSsd(device) => &**device,
        };
        let mut outcome = Ok(());
        let count = range.walk_while(device, |key, value| {
            outcome = visit(key, value);
            outcome.is_ok()
        })?;
        outcome.map(|()| count)
    }
}

/// The first key behind all that start with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes() {
        assert_eq!(prefix_end(b""), None);
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    }
}
