//! Entries that a walk forward has read ahead, so that their separated values are read together.

use std::mem;

use crate::error::{Error, Result};
use crate::format::record::Pointer;
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::lookup::{FoundValue, Spare, ValueLookup};
use crate::values::separation::ValueFiles;

/// Entries read ahead, in key order. Their memory is reused.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Keys, one after another.
    keys: Vec<u8>,
    /// The end of each key in `keys`, and the rest of its entry.
    entries: Vec<(usize, Next)>,
    /// Index of the current entry.
    at: usize,
    /// The error that ended the read-ahead, after the last entry.
    pub(super) error: Option<Error>,
    /// The memory of a value that the walk has passed.
    spare: Spare,
}

/// An entry that was read ahead.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) trailer: u64,
    /// When the entry expires.
    pub(super) expiry_ms: Option<u64>,
    /// The pointer of a separated value.
    pub(super) pointer: Option<Pointer>,
    pub(super) found: Result<FoundValue>,
}

impl ReadAhead {
    pub(super) fn step(&mut self) {
        if let Some((_, next)) = self.entries.get_mut(self.at) {
            let found = mem::replace(&mut next.found, Ok(FoundValue::Gone));
            if let Ok(FoundValue::Value(value)) = found {
                self.spare = Spare::of(value);
            }
        }
        self.at += 1;
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.error = None;
        self.at = 0;
    }

    /// Releases all values but the current one.
    pub(super) fn forget_others(&mut self) {
        let others = self.entries.iter_mut().enumerate().filter(|(i, _)| *i != self.at);
        others.for_each(|(_, (_, next))| next.found = Ok(FoundValue::Gone));
        self.spare = Spare::default();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.error.is_none()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.at >= self.entries.len()
    }

    pub(super) fn push(&mut self, key: &[u8], next: Next) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), next));
    }

    /// Reads the separated values, or finds where they are.
    pub(super) fn fetch(&mut self, values: &ValueFiles, access: Access) {
        let mut which = Vec::with_capacity(self.len());
        let mut wanted = Vec::with_capacity(self.len());
        for (i, (_, next)) in self.entries.iter().enumerate() {
            if let Some(pointer) = next.pointer {
                which.push(i);
                wanted.push(ValueLookup { pointer, key: self.key_of(i), trailer: next.trailer });
            }
        }
        let mut all: Vec<(usize, Result<FoundValue>)> = Vec::with_capacity(wanted.len());
        values.resolve_many(&wanted, access, &mut |i, found| all.push((which[i], found)));
        for (i, found) in all {
            self.entries[i].1.found = found;
        }
    }

    /// Reads the current value if its read was deferred. Returns whether the value is separated.
    pub(super) fn arrive(&mut self, values: &ValueFiles, access: Access) -> Result<bool> {
        let spare = mem::take(&mut self.spare);
        let Some((_, next)) = self.entries.get(self.at) else { return Ok(false) };
        let value = match (&next.found, next.pointer) {
            (Ok(FoundValue::Value(_)), pointer) => return Ok(pointer.is_some()),
            (Ok(FoundValue::Later(place)), Some(pointer)) => {
                let wanted = ValueLookup { pointer, key: self.key(), trailer: next.trailer };
                let store = values.file(pointer.store);
                store.map_or(Ok(None), |store| store.read_later(*place, &wanted, access, spare))?
            }
            (Ok(_), _) => None,
            (Err(error), _) => return Err(error.clone()),
        };
        let value = value.map_or_else(|| gone(self.key()), Ok)?;
        self.entries[self.at].1.found = Ok(FoundValue::Value(value));
        Ok(true)
    }

    /// The key of the current entry.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.key_of(self.at)
    }

    #[inline]
    fn key_of(&self, at: usize) -> &[u8] {
        let before = at.checked_sub(1).and_then(|before| self.entries.get(before));
        let start = before.map_or(0, |(end, _)| *end);
        self.entries.get(at).map_or(&[], |(end, _)| &self.keys[start..*end])
    }

    pub(super) fn expiry(&self) -> (u64, Option<u64>) {
        self.entries.get(self.at).map_or((0, None), |(_, next)| (next.trailer, next.expiry_ms))
    }

    #[inline]
    pub(super) fn value(&self) -> Option<&Value> {
        match self.entries.get(self.at) {
            Some((_, Next { found: Ok(FoundValue::Value(value)), .. })) => Some(value),
            _ => None,
        }
    }
}

/// Reports a missing value. A missing value is corruption, because a registered reader keeps its
/// values.
pub(super) fn gone<T>(key: &[u8]) -> Result<T> {
    let what = format!("the value of key \"{}\" is gone", key.escape_ascii());
    Err(Error::corruption("a value file", 0, what))
}
