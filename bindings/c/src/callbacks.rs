//! The caller's functions that the store calls: merge operators, compaction filters, listeners.
//!
//! A callback in C can fail only through its return value. A C++ exception must not leave it;
//! `runstone.hpp` catches exceptions.

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::ptr;

use runstone::{CompactionFilter, Event, EventListener, FilterDecision, MergeOperator};
use runstone_boundary::events::Told;

use crate::Result;

/// The caller's bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_slice {
    /// The first byte.
    pub data: *const c_void,
    /// The number of bytes.
    pub size: usize,
}

impl runstone_slice {
    fn of(bytes: &[u8]) -> runstone_slice {
        runstone_slice { data: bytes.as_ptr().cast(), size: bytes.len() }
    }
}

/// The place for the result of a callback. It is valid until the callback returns.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct runstone_output {
    bytes: Result<Vec<u8>>,
}

/// Sets the result of a callback, and replaces an earlier one. The bytes are copied. If they are
/// not valid, such as null with a size, the merge fails, or the filtered entry stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_output_set(
    output: *mut runstone_output,
    data: *const c_void,
    size: usize,
) {
    // SAFETY: a callback passes the pointer that it received.
    let Some(output) = (unsafe { output.as_mut() }) else { return };
    // SAFETY: the callback promises valid bytes.
    let bytes = unsafe { crate::bytes::required("data", data, size) };
    output.bytes = bytes.map(<[u8]>::to_vec);
}

/// Makes a value from an older one (null data means that there is none) and `count` operands,
/// oldest first, and sets it as `output`. If that is impossible, it sets a message and returns
/// false. Then reads of the key fail, and the operands stay. It must give the same result at any
/// time and on any machine. Several threads may call it.
#[allow(non_camel_case_types)]
pub type runstone_merger = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: runstone_slice,
        base: runstone_slice,
        operands: *const runstone_slice,
        count: usize,
        output: *mut runstone_output,
    ) -> bool,
>;

/// The decision about an entry that a compaction reads.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_decision {
    /// It stays as it is.
    RUNSTONE_KEEP = 0,
    /// It is removed, as if its key had been deleted.
    RUNSTONE_REMOVE = 1,
    /// Its value becomes the bytes that were set as `output`.
    RUNSTONE_CHANGE = 2,
}

/// Decides what happens to an entry that a compaction writes to `level`. It returns a
/// runstone_decision. Any other number keeps the entry.
#[allow(non_camel_case_types)]
pub type runstone_filter = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        level: u32,
        key: runstone_slice,
        value: runstone_slice,
        output: *mut runstone_output,
    ) -> i32,
>;

/// Receives an event of a store. `kind` says what happened: flushed, compacted, loaded,
/// values_collected, pressure, recovered. Some kinds need attention: log_end_lost (a crash left
/// records of the log that are not used), background_error, merge_failed, budget_above_limit,
/// compaction_filter_missing, kept_log_given_up (on a full disk), damage_found (by a scrub). Later
/// releases may add kinds. `json` is an object with the kind, a warning flag, a message for people,
/// and details of the event. Both are valid until the listener returns. Several threads may call it
/// in the middle of their work, so it should return soon. It may read from its store. Other calls
/// are refused with RUNSTONE_INSIDE_CALLBACK.
#[allow(non_camel_case_types)]
pub type runstone_listener =
    Option<unsafe extern "C" fn(context: *mut c_void, kind: *const c_char, json: *const c_char)>;

/// Releases a context.
#[allow(non_camel_case_types)]
pub type runstone_end = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// The caller's pointer, which is passed to its callbacks.
pub(crate) struct Context {
    pointer: *mut c_void,
    end: runstone_end,
}

// SAFETY: the header requires callbacks that several threads may call with this pointer.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(pointer: *mut c_void, end: runstone_end) -> Context {
        Context { pointer, end }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // SAFETY: the caller's function, with its own context, which nothing else uses any
            // more.
            unsafe { end(self.pointer) }
        }
    }
}

pub(crate) struct MergeCallback {
    pub(crate) name: String,
    pub(crate) call: unsafe extern "C" fn(
        *mut c_void,
        runstone_slice,
        runstone_slice,
        *const runstone_slice,
        usize,
        *mut runstone_output,
    ) -> bool,
    pub(crate) context: Context,
}

impl fmt::Debug for MergeCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "merge operator {}", self.name)
    }
}

impl MergeOperator for MergeCallback {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, String> {
        let none = runstone_slice { data: ptr::null(), size: 0 };
        let slices: Vec<runstone_slice> =
            operands.iter().map(|bytes| runstone_slice::of(bytes)).collect();
        let base = base.map_or(none, runstone_slice::of);
        let mut output = runstone_output { bytes: Ok(Vec::new()) };
        // SAFETY: the caller's function; all pointers are valid until it returns.
        let is_made = unsafe {
            (self.call)(
                self.context.pointer,
                runstone_slice::of(key),
                base,
                slices.as_ptr(),
                slices.len(),
                &mut output,
            )
        };
        let bytes = output.bytes.map_err(|failure| failure.message)?;
        match is_made {
            true => Ok(bytes),
            false if bytes.is_empty() => Err("it failed without a message".into()),
            false => Err(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}

pub(crate) struct FilterCallback {
    pub(crate) name: String,
    pub(crate) call: unsafe extern "C" fn(
        *mut c_void,
        u32,
        runstone_slice,
        runstone_slice,
        *mut runstone_output,
    ) -> i32,
    pub(crate) context: Context,
}

impl fmt::Debug for FilterCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compaction filter {}", self.name)
    }
}

impl CompactionFilter for FilterCallback {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide(&self, level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        let mut output = runstone_output { bytes: Ok(Vec::new()) };
        let (key, value) = (runstone_slice::of(key), runstone_slice::of(value));
        // SAFETY: the caller's function; all pointers are valid until it returns.
        let decision = unsafe { (self.call)(self.context.pointer, level, key, value, &mut output) };
        match decision {
            _ if decision == runstone_decision::RUNSTONE_REMOVE as i32 => FilterDecision::Remove,
            _ if decision == runstone_decision::RUNSTONE_CHANGE as i32 => {
                output.bytes.map_or(FilterDecision::Keep, FilterDecision::Change)
            }
            _ => FilterDecision::Keep,
        }
    }
}

pub(crate) struct EventCallback {
    pub(crate) call: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char),
    pub(crate) context: Context,
}

impl fmt::Debug for EventCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("listener")
    }
}

impl EventListener for EventCallback {
    fn on_event(&self, event: &Event) {
        let Some(told) = Told::of(event) else { return };
        // Neither JSON nor a kind contains a zero byte.
        let texts = (CString::new(told.kind), CString::new(told.to_json()));
        if let (Ok(kind), Ok(json)) = texts {
            // SAFETY: the caller's function; both strings are valid until it returns.
            unsafe { (self.call)(self.context.pointer, kind.as_ptr(), json.as_ptr()) }
        }
    }
}
