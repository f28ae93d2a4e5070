//! Archivers, which store every change of a store beside its backups.

use std::ffi::c_char;
use std::time::Duration;

use runstone::{Archiver, Position};
use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::bytes::{Place, text};
use crate::handles::{runstone_archiver, runstone_backups};
use crate::status::{answer, runstone_status};

handle!(11 "archiver" runstone_archiver: Alone<Archiver>);

/// A place in the history of a store, after a write. After a power loss, the same number can mean
/// another write; the history distinguishes the two. As text for the command line, a position is
/// the number, `@`, and the history in 16 hexadecimal digits.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_position {
    /// The number of the last write before it.
    pub seq: u64,
    /// The id of the history.
    pub history: u64,
}

/// The result of a round of archiving.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_archiving {
    /// Changes that were appended.
    pub changes: u64,
    /// Bytes that were appended.
    pub bytes: u64,
    /// If the archive began, or began again, the number of its first backup. 0 if it continued.
    pub backup: u64,
    /// If the archive began again, it lacks all changes after this number.
    pub lacks_after: u64,
    /// The last change that the archive lacks. 0 if it lacks nothing.
    pub lacks_through: u64,
    /// Whether no changes are left. A round ends after about 16 MiB even if some are.
    pub is_drained: bool,
}

impl From<Position> for runstone_position {
    fn from(position: Position) -> runstone_position {
        runstone_position { seq: position.seq(), history: position.history() }
    }
}

/// Continues the archive of the store in a directory, or begins it with a backup. The store may be
/// open in this process or in another one, or closed. It keeps its log for the archiver, within its
/// limits. A second archiver of one directory is refused with RUNSTONE_IN_USE. Close it with
/// runstone_archiver_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_archiver_create(
    backups: *const runstone_backups,
    store_path: *const c_char,
    archiver: *mut *mut runstone_archiver,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (path, place) =
            unsafe { (text("store_path", store_path)?, Place::new("archiver", archiver)?) };
        let begun = runstone_backups::get(backups)?.archive(path)?;
        place.keep(Alone::new(begun))
    })
}

/// Waits for a change for at most `wait_ms`, then appends the changes committed since. They are
/// durable when this returns. After an error the archive is intact, and the next call continues it.
/// `done` may be null. Call it every second, or in a loop with a wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_archiver_advance(
    archiver: *mut runstone_archiver,
    wait_ms: u64,
    done: *mut runstone_archiving,
) -> runstone_status {
    answer(|| {
        let archiver = runstone_archiver::get(archiver)?;
        let round = archiver.lock()?.advance(Duration::from_millis(wait_ms))?;
        if !done.is_null() {
            let lacks = round.based.as_ref().and_then(|based| based.lacks).unwrap_or((0, 0));
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("done", done) }?.set(runstone_archiving {
                changes: round.changes,
                bytes: round.bytes,
                backup: round.based.map_or(0, |based| based.backup.number),
                lacks_after: lacks.0,
                lacks_through: lacks.1,
                is_drained: round.is_drained,
            });
        }
        Ok(())
    })
}

/// The position up to which the archive is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_archiver_position(
    archiver: *const runstone_archiver,
    position: *mut runstone_position,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("position", position) }?;
        place.set(runstone_archiver::get(archiver)?.lock()?.position().into());
        Ok(())
    })
}

/// Closes an archiver. A running round ends first. The archive stays, and another archiver
/// continues it. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_archiver_close(archiver: *mut runstone_archiver) -> runstone_status {
    answer(|| runstone_archiver::close(archiver))
}
