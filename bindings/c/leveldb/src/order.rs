//! The caller's own key order, checked against the order of bytes, which is the only one that this
//! library has. Keys that are neighbours in the order of bytes are also compared with the caller's
//! function. A write compares its key with the keys around it; a step of an iterator compares the
//! keys before and after the step; a move to an end compares the two keys there; a look-up compares
//! its key with the keys around it. If all neighbours agree, all keys agree. The first pair that
//! does not agree is an error from then on, because the caller's order would show the keys in a
//! different sequence.
//!
//! The caller's function sees only keys that the program wrote or asked for, so it may rely on
//! their form.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use runstone::{Cursor, Keyspace, ReadOptions};
use runstone_boundary::Failure;

use crate::Result;

/// The function that compares.
pub type Compare =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;

/// The pointer that the caller gave, which is freed with the caller's own function.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pointer: *mut c_void,
    pub(crate) destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: LevelDB calls comparators and filter policies from several threads too.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller's function, with the pointer that came with it.
            unsafe { destructor(self.pointer) }
        }
    }
}

/// A key order that the caller gave.
#[derive(Debug)]
pub struct Comparator {
    pub(crate) state: State,
    pub(crate) compare: Compare,
    pub(crate) name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

impl Comparator {
    pub(crate) fn name(&self) -> String {
        // SAFETY: the caller's function; LevelDB asks for a string that ends with a zero byte.
        let name = unsafe { (self.name)(self.state.pointer) };
        if name.is_null() {
            return "without a name".into();
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Negative if `a` comes before `b`, 0 if they are the same key.
    pub(crate) fn compare(&self, a: &[u8], b: &[u8]) -> c_int {
        let (at_a, at_b) = (a.as_ptr().cast(), b.as_ptr().cast());
        // SAFETY: the caller's function, with the pointer that came with it, and bytes that outlive
        // the call.
        unsafe { (self.compare)(self.state.pointer, at_a, a.len(), at_b, b.len()) }
    }
}

/// The order of an open database.
pub struct Order {
    comparator: Arc<Comparator>,
    /// The pair of keys that did not agree.
    broken: OnceLock<String>,
    /// Held by each writer: two that write neighbours at the same time would not see each other's
    /// keys.
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

    /// Refuses everything after a pair of keys did not agree.
    pub(crate) fn check(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |what| Err(Failure::invalid(what.clone())))
    }

    /// Checks that a key comes before another one in this order, as it does in the order of bytes.
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

    /// Checks a key with its neighbours, and leaves the cursor at the first key at or after it. A
    /// key that is present was checked when it was written.
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
