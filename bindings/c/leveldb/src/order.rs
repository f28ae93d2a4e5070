//! An order of the caller's, held against that of bytes, which is the only one that this library
//! has. Keys that are neighbours by their bytes are compared as the caller does: at each write, the
//! key with those around it; at each step of an iterator, the one before with the one after; at a
//! look-up, the key asked for with those around it. All neighbours that agree make all keys agree.
//! The first that do not are an error that stays: keys of that order would come in another one.
//!
//! The caller's function sees keys that the program wrote or asked for, and no others: it may rely
//! on their form.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use runstone::{Cursor, Keyspace, ReadOptions};
use runstone_boundary::Failure;

use crate::Result;
use crate::options::Comparator;

/// The function that compares.
pub type Compare =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;

/// The order of an open database.
pub struct Order {
    comparator: Arc<Comparator>,
    /// What did not agree.
    broken: OnceLock<String>,
    /// Held by who writes: two that write neighbours at once would not see each other.
    writing: Mutex<()>,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Order {
    pub(crate) fn new(comparator: Arc<Comparator>) -> Order {
        Order { comparator, broken: OnceLock::new(), writing: Mutex::default() }
    }

    /// Refuses everything once keys did not agree.
    pub(crate) fn check(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |what| Err(Failure::invalid(what.clone())))
    }

    /// Checks that a key comes before another one, as it does by its bytes.
    pub(crate) fn check_pair(&self, low: &[u8], high: &[u8]) -> Result<()> {
        self.check()?;
        assert!(low < high, "in the order of bytes");
        let found = self.comparator.compare(low, high);
        if found < 0 {
            return Ok(());
        }
        let says = if found == 0 { "the same key as" } else { "behind" };
        let (name, low, high) = (self.comparator.name(), low.escape_ascii(), high.escape_ascii());
        let what = format!(
            "comparator {name} puts \"{low}\" {says} \"{high}\", and this library orders keys by \
             their bytes only; encode keys so that their bytes order as you want"
        );
        let _ = self.broken.set(what);
        self.check()
    }

    /// Checks keys that are about to be written. Other writers wait until the guard is dropped.
    pub(crate) fn check_writes<'k>(
        &self,
        keyspace: &Keyspace,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<MutexGuard<'_, ()>> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let keys: BTreeSet<&[u8]> = keys.collect();
        let mut cursor = keyspace.cursor(ReadOptions::default().keys_only())?;
        let mut before = None;
        for key in keys {
            if let Some(before) = before.replace(key) {
                self.check_pair(before, key)?;
            }
            self.check_around(&mut cursor, key)?;
        }
        Ok(writing)
    }

    /// Checks a key with its neighbours, and leaves the cursor at the first key from it on. A key
    /// that is there was checked when it was written.
    pub(crate) fn check_around(&self, cursor: &mut Cursor, key: &[u8]) -> Result<()> {
        self.check()?;
        cursor.seek_for_prev(key)?;
        if cursor.valid() && cursor.key() < key {
            self.check_pair(cursor.key(), key)?;
        }
        if !cursor.valid() || cursor.key() != key {
            cursor.seek(key)?;
        }
        match cursor.valid() && cursor.key() > key {
            true => self.check_pair(key, cursor.key()),
            false => Ok(()),
        }
    }
}
