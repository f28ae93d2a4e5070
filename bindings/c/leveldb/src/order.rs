//! Checks the caller's key order against the order of bytes, which is the only order of this
//! library. Keys that are neighbours in the order of bytes are also compared with the caller's
//! function. A write or a look-up compares its key with the keys around it. A step of an iterator
//! compares the keys before and after the step. A move to an end compares the two keys there. If
//! all neighbours agree, all keys agree. After the first pair that disagrees, every call fails,
//! because the caller's order would show the keys in a different sequence.
//!
//! The caller's function sees only keys that the program wrote or looked up, so it may rely on
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

/// The caller's pointer, which is freed with the caller's own function.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pointer: *mut c_void,
    pub(crate) destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: LevelDB also calls comparators and filter policies from several threads.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller's function, with its own pointer.
            unsafe { destructor(self.pointer) }
        }
    }
}

/// The caller's key order.
#[derive(Debug)]
pub struct Comparator {
    pub(crate) state: State,
    pub(crate) compare: Compare,
    pub(crate) name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

impl Comparator {
    pub(crate) fn name(&self) -> String {
        // SAFETY: the caller's function, which by LevelDB's rules returns a string that ends with a
        // zero byte.
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
        // SAFETY: the caller's function, with its own pointer and with bytes that outlive the call.
        unsafe { (self.compare)(self.state.pointer, at_a, a.len(), at_b, b.len()) }
    }
}

/// The order of an open database.
pub struct Order {
    comparator: Arc<Comparator>,
    /// The message about the first pair of keys that disagreed.
    broken: OnceLock<String>,
    /// Each writer holds this lock, because two that write neighbours at the same time would not
    /// see each other's keys.
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

    /// Refuses every call after a pair of keys disagreed.
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

    /// Checks a key against its neighbours, and leaves the cursor at the first key at or after it.
    /// A key that is present was checked when it was written.
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
