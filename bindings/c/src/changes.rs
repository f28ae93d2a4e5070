//! Reads the changes committed to a store, in order.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;
use std::{ptr, vec};

use runstone::{ChangesFrom, Position};
use runstone_boundary::Failure;
use runstone_boundary::alone::Alone;
use runstone_boundary::changes::{
    ChangeKind, ChangeReader, OneChange, OneWrite, Reading, WriteKind, WriteReader,
};
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;
use serde_json::json;

use crate::Result;
use crate::archiver::runstone_position;
use crate::bytes::{Place, runstone_bytes, text};
use crate::handles::{runstone_changes, runstone_options};
use crate::status::{answer, runstone_status};

handle!(12 "reader of changes" runstone_changes: Alone<Reader>);

/// A reader, and its data about the last change.
#[derive(Debug)]
pub struct Reader {
    reader: ChangeReader,
    change: Option<OneChange>,
    /// The writes of the last change, once the caller has read one.
    writes: Option<WriteReader>,
    page: vec::IntoIter<OneWrite>,
    /// The current write, and the name of its keyspace.
    write: Option<OneWrite>,
    keyspace: (Arc<str>, CString),
}

/// Where changes begin.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_changes_from {
    /// The oldest change that the log of the store has.
    RUNSTONE_FROM_OLDEST = 0,
    /// Commits from now on.
    RUNSTONE_FROM_NOW = 1,
    /// Everything after `after`.
    RUNSTONE_FROM_POSITION = 2,
    /// The state of all keys, and then everything after it: for a caller that has no data yet. The
    /// state appears as a gap after 0. Its position has the number 0 and the history 0: reading
    /// from that position returns everything again.
    RUNSTONE_FROM_EVERYTHING = 3,
}

/// Where changes begin, and how they are read. All zero means everything that the log has.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_changes_options {
    /// Where to begin: a runstone_changes_from.
    pub from: i32,
    /// With RUNSTONE_FROM_POSITION, the changes begin after this position. Give the position of the
    /// last change whose effects the caller has.
    pub after: runstone_position,
    /// If the log no longer reaches back to that position, returns the current state of the keys
    /// written since (RUNSTONE_CHANGE_GAP), and then the log. If not set, such a reader fails with
    /// RUNSTONE_HISTORY_GONE.
    pub state: bool,
    /// Options with the merge operators that reading this state needs; null if the store has none.
    pub state_options: *const runstone_options,
    /// Also returns changes that are not durable yet. If they are lost in a power loss, the reader
    /// fails with RUNSTONE_HISTORY_FORKED.
    pub unsynced: bool,
}

/// The kind of a change.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_change_kind {
    /// There is no further change for now.
    RUNSTONE_CHANGE_NONE = 0,
    /// Writes that became visible together.
    RUNSTONE_CHANGE_WRITES = 1,
    /// A load into a keyspace: many writes that became visible together.
    RUNSTONE_CHANGE_LOADED = 2,
    /// A keyspace was made, or its options changed.
    RUNSTONE_CHANGE_KEYSPACE = 3,
    /// A keyspace was dropped.
    RUNSTONE_CHANGE_DROPPED = 4,
    /// Lists all keyspaces: after a crash, in a gap before its state, or if the log begins after
    /// the position.
    RUNSTONE_CHANGE_KEYSPACES = 5,
    /// The time of day, by the clock of the writer, which may go back. All earlier changes had been
    /// committed by then.
    RUNSTONE_CHANGE_TIME = 6,
    /// The log lacks the next changes. RUNSTONE_CHANGE_STATE follows until RUNSTONE_CHANGE_GAP_END.
    /// If it is a gap after 0, this is the state of all keys: discard all earlier data. Overwritten
    /// values are not returned, nor are deletes that a compaction dropped together with the values
    /// they hid. So the caller may keep a key that the store no longer has.
    RUNSTONE_CHANGE_GAP = 7,
    /// The state of keys at the end of the gap: range deletes, then a put or a delete of each key.
    RUNSTONE_CHANGE_STATE = 8,
    /// The gap has ended.
    RUNSTONE_CHANGE_GAP_END = 9,
}

use runstone_change_kind::*;

/// A change.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_change {
    /// Its kind.
    pub kind: runstone_change_kind,
    /// The position after it. Write it in one batch with the effects of the change, and each change
    /// takes effect exactly once. Inside a gap it is the position before the gap.
    pub position: runstone_position,
    /// For a time: milliseconds since 1970. Otherwise 0.
    pub time_ms: u64,
    /// For a gap: the state has the keys written after this number; 0 means all keys. Otherwise 0.
    pub gap_after: u64,
    /// For a gap: the state is as of this number. Otherwise 0.
    pub gap_through: u64,
}

/// The kind of a write.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_write_kind {
    /// There are no further writes.
    RUNSTONE_WRITE_NONE = 0,
    /// Stores a value.
    RUNSTONE_WRITE_PUT = 1,
    /// Removes a key.
    RUNSTONE_WRITE_DELETE = 2,
    /// Adds an operand of the merge operator.
    RUNSTONE_WRITE_MERGE = 3,
    /// Removes a range of keys.
    RUNSTONE_WRITE_DELETE_RANGE = 4,
}

use runstone_write_kind::*;

/// A write of a change. Its bytes are valid until the next call with the same reader.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_change_write {
    /// Its kind.
    pub kind: runstone_write_kind,
    /// The name of the keyspace.
    pub keyspace: *const c_char,
    /// The key; for a range, the first one.
    pub key: *const c_void,
    /// Its size.
    pub key_size: usize,
    /// The value or operand; for a range, the key before which it ends. Null for a delete, and for
    /// a range without an end.
    pub value: *const c_void,
    /// Its size.
    pub value_size: usize,
    /// When the value expires, in milliseconds since 1970; 0 if it does not.
    pub expires_ms: u64,
    /// Whether the store made this put itself: a get stored the value that it had merged from many
    /// operands of the key. The put does not change the value that a read of the key returns.
    pub is_folded: bool,
}

impl runstone_change_write {
    const NONE: runstone_change_write = runstone_change_write {
        kind: RUNSTONE_WRITE_NONE,
        keyspace: ptr::null(),
        key: ptr::null(),
        key_size: 0,
        value: ptr::null(),
        value_size: 0,
        expires_ms: 0,
        is_folded: false,
    };
}

/// Reads the changes of the store in a directory, whether or not a process has it open. `options`
/// may be null. The store keeps its log for the reader, within limits: a reader that falls too far
/// behind fails with RUNSTONE_LEASE_REVOKED. If the log was already gone, it fails with
/// RUNSTONE_HISTORY_GONE (`keep_log_bytes` keeps more). RUNSTONE_HISTORY_FORKED means that a power
/// loss removed changes that the caller has. Close it with runstone_changes_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_changes_open(
    store_path: *const c_char,
    options: *const runstone_changes_options,
    changes: *mut *mut runstone_changes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings, options and a valid place.
        let (path, place, options) = unsafe {
            let place = Place::new("changes", changes)?;
            (text("store_path", store_path)?, place, options.as_ref())
        };
        let reading = match options {
            Some(options) => reading_of(options)?,
            None => ChangesFrom::Oldest.into(),
        };
        place.keep(Alone::new(Reader::new(ChangeReader::open(path, reading)?)))
    })
}

fn reading_of(options: &runstone_changes_options) -> Result<Reading> {
    let from = match options.from {
        from if from == runstone_changes_from::RUNSTONE_FROM_OLDEST as i32 => ChangesFrom::Oldest,
        from if from == runstone_changes_from::RUNSTONE_FROM_NOW as i32 => ChangesFrom::Now,
        from if from == runstone_changes_from::RUNSTONE_FROM_POSITION as i32 => {
            let runstone_position { seq, history } = options.after;
            ChangesFrom::After(Position::new(history, seq))
        }
        from if from == runstone_changes_from::RUNSTONE_FROM_EVERYTHING as i32 => {
            ChangesFrom::Everything
        }
        from => {
            let what = format!("from is {from}, but must be a runstone_changes_from");
            return Err(Failure::invalid(what));
        }
    };
    let own = runstone_options::get_some(options.state_options)?;
    if own.is_some() && !options.state {
        return Err(Failure::invalid("state_options are for the state; set `state`, too"));
    }
    let own = own.map(|own| own.lock()?.without_resources("the state is read")).transpose()?;
    let state = options.state.then(|| own.unwrap_or_default());
    Ok(Reading { from, state, unsynced: options.unsynced })
}

/// Moves to the next change, and waits for it for at most `wait_ms`. Its kind is
/// RUNSTONE_CHANGE_NONE if there is none; call again later. After an error, the previous change
/// stays valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_changes_next(
    changes: *mut runstone_changes,
    wait_ms: u64,
    change: *mut runstone_change,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("change", change) }?;
        let changes = runstone_changes::get(changes)?;
        place.set(changes.lock()?.next(Duration::from_millis(wait_ms))?);
        Ok(())
    })
}

/// Moves to the next write of the change. After the last write, and if the change has none, the
/// kind is RUNSTONE_WRITE_NONE. The writes of a load are read a megabyte at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_changes_next_write(
    changes: *mut runstone_changes,
    write: *mut runstone_change_write,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("write", write) }?;
        runstone_changes::with(changes, |changes| {
            // The bytes belong to the reader. They stay in place until it moves. A move needs the
            // lock, so none can be in progress now.
            place.set(changes.lock()?.next_write()?);
            Ok(())
        })
    })
}

/// The keyspaces of the change, as a JSON list of objects with `name` and `options`: TOML if they
/// were made or changed, otherwise null. The list is empty for writes, because each write names its
/// keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_changes_keyspaces(
    changes: *const runstone_changes,
    keyspaces: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("keyspaces", keyspaces) }?;
        let changes = runstone_changes::get(changes)?;
        let changes = changes.lock()?;
        let all = changes.change.iter().flat_map(|change| &change.keyspaces);
        let all: Vec<_> =
            all.map(|(name, options)| json!({ "name": name, "options": options })).collect();
        place.set(runstone_bytes::of_text(json!(all).to_string()));
        Ok(())
    })
}

/// The position after the last returned change, and so after all of its writes: store it once all
/// of them have taken effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_changes_position(
    changes: *const runstone_changes,
    position: *mut runstone_position,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("position", position) }?;
        place.set(runstone_changes::get(changes)?.lock()?.reader.position().into());
        Ok(())
    })
}

/// Closes a reader of changes. The store no longer keeps its log for the reader. Null is not an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_changes_close(changes: *mut runstone_changes) -> runstone_status {
    answer(|| runstone_changes::close(changes))
}

impl Reader {
    fn new(reader: ChangeReader) -> Reader {
        let keyspace = (Arc::from(""), CString::default());
        let (change, writes, page, write) = (None, None, Vec::new().into_iter(), None);
        Reader { reader, change, writes, page, write, keyspace }
    }

    fn next(&mut self, wait: Duration) -> Result<runstone_change> {
        // After an error the previous change stays, with its unread writes.
        self.change = self.reader.next(wait)?;
        // The thread that reads a load ends with its reader.
        (self.writes, self.write) = (None, None);
        self.page = Vec::new().into_iter();
        let (gap_after, gap_through) =
            self.change.as_ref().and_then(|change| change.gap).unwrap_or((0, 0));
        Ok(runstone_change {
            kind: self.change.as_ref().map_or(RUNSTONE_CHANGE_NONE, |change| kind(change.kind)),
            position: self.reader.position().into(),
            time_ms: self.change.as_ref().and_then(|change| change.time_ms).unwrap_or(0),
            gap_after,
            gap_through,
        })
    }

    fn next_write(&mut self) -> Result<runstone_change_write> {
        self.write = self.read_write()?;
        let Some(write) = &self.write else { return Ok(runstone_change_write::NONE) };
        if *self.keyspace.0 != *write.keyspace {
            let name = CString::new(write.keyspace.replace('\0', "\\0")).unwrap_or_default();
            self.keyspace = (Arc::clone(&write.keyspace), name);
        }
        let value = write.value.as_deref();
        Ok(runstone_change_write {
            kind: match write.kind {
                WriteKind::Put => RUNSTONE_WRITE_PUT,
                WriteKind::Delete => RUNSTONE_WRITE_DELETE,
                WriteKind::Merge => RUNSTONE_WRITE_MERGE,
                WriteKind::DeleteRange => RUNSTONE_WRITE_DELETE_RANGE,
            },
            keyspace: self.keyspace.1.as_ptr(),
            key: write.key.as_ptr().cast(),
            key_size: write.key.len(),
            value: value.map_or(ptr::null(), |value| value.as_ptr().cast()),
            value_size: value.map_or(0, <[u8]>::len),
            expires_ms: write.expires_ms.unwrap_or(0),
            is_folded: write.is_folded,
        })
    }

    fn read_write(&mut self) -> Result<Option<OneWrite>> {
        loop {
            if let Some(write) = self.page.next() {
                return Ok(Some(write));
            }
            if let (None, Some(change)) = (&self.writes, &self.change) {
                self.writes = Some(change.writes()?);
            }
            let Some(writes) = &mut self.writes else { return Ok(None) };
            let Some(page) = writes.read()? else { return Ok(None) };
            self.page = page.into_iter();
        }
    }
}

fn kind(kind: ChangeKind) -> runstone_change_kind {
    match kind {
        ChangeKind::Writes => RUNSTONE_CHANGE_WRITES,
        ChangeKind::Loaded => RUNSTONE_CHANGE_LOADED,
        ChangeKind::Keyspace => RUNSTONE_CHANGE_KEYSPACE,
        ChangeKind::Dropped => RUNSTONE_CHANGE_DROPPED,
        ChangeKind::Keyspaces => RUNSTONE_CHANGE_KEYSPACES,
        ChangeKind::Time => RUNSTONE_CHANGE_TIME,
        ChangeKind::Gap => RUNSTONE_CHANGE_GAP,
        ChangeKind::State => RUNSTONE_CHANGE_STATE,
        ChangeKind::GapEnd => RUNSTONE_CHANGE_GAP_END,
    }
}
