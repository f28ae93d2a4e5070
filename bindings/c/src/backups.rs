//! Directories of backups: create, list, verify, restore, prune.

use std::ffi::c_char;

use runstone::{ArchiveInfo, BackupInfo, Backups, Damage, Moment, Position};
use runstone_boundary::{Code, Failure};

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::archiver::runstone_position;
use crate::bytes::{Place, places, runstone_bytes, text};
use crate::handles::runstone_backups;
use crate::status::{answer, runstone_status};

handle!(10 "backups object" runstone_backups: Backups);

/// A backup.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_backup {
    /// Its number, from 1 up. Later backups have larger numbers.
    pub number: u64,
    /// When it was made, in milliseconds since 1970, by the clock of the machine.
    pub time_ms: u64,
    /// The number of the last write in it.
    pub last_seq: u64,
    /// The number of its tables.
    pub tables: u64,
    /// The number of its value segments.
    pub value_segments: u64,
    /// Bytes that a restore writes.
    pub bytes: u64,
    /// Bytes by which it enlarged the directory when it was made.
    pub added_bytes: u64,
}

impl From<&BackupInfo> for runstone_backup {
    fn from(info: &BackupInfo) -> runstone_backup {
        runstone_backup {
            number: info.number,
            time_ms: info.time_ms,
            last_seq: info.last_seq,
            tables: info.tables,
            value_segments: info.value_segments,
            bytes: info.bytes,
            added_bytes: info.added_bytes,
        }
    }
}

/// A part of an archive without a gap.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_archive {
    /// The archive has the changes after this number.
    pub from_seq: u64,
    /// The archive has the changes up to this number, inclusive.
    pub through_seq: u64,
    /// The history of its end, as in a runstone_position.
    pub history: u64,
    /// The first time recorded in it, in milliseconds since 1970; 0 if there is none.
    pub from_ms: u64,
    /// The last time recorded in it; 0 if there is none.
    pub through_ms: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

impl From<&ArchiveInfo> for runstone_archive {
    fn from(info: &ArchiveInfo) -> runstone_archive {
        runstone_archive {
            from_seq: info.from_seq,
            through_seq: info.through.seq(),
            history: info.through.history(),
            from_ms: info.from_ms.unwrap_or(0),
            through_ms: info.through_ms.unwrap_or(0),
            bytes: info.bytes,
        }
    }
}

/// The result of a restore to a moment.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_restored {
    /// The number of the backup that it began with.
    pub backup: u64,
    /// Changes of the archive that were applied to it.
    pub changes: u64,
    /// The last number of the original store that the new one has.
    pub last_seq: u64,
}

/// How runstone_backups_restore_to() names a moment.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_moment {
    /// The end of the archive. The value is ignored.
    RUNSTONE_AT_END = 0,
    /// After all changes that had been committed by this time, in milliseconds since 1970. The
    /// archive knows the time of a change to about a second.
    RUNSTONE_AT_TIME = 1,
    /// After the last batch whose number is at most this one. This is exact. After a power loss or
    /// a restore, a store reuses numbers: runstone_backups_restore_to_position() chooses the
    /// history.
    RUNSTONE_AT_NUMBER = 2,
}

use runstone_moment::*;

fn moment(kind: i32, value: u64) -> Result<Moment> {
    match kind {
        kind if kind == RUNSTONE_AT_END as i32 => Ok(Moment::End),
        kind if kind == RUNSTONE_AT_TIME as i32 => Ok(Moment::Time(value)),
        kind if kind == RUNSTONE_AT_NUMBER as i32 => Ok(Moment::Number(value)),
        _ => Err(Failure::invalid(format!("moment is {kind}, but must be a runstone_moment"))),
    }
}

/// The number of the backup that the caller chose; 0 is the newest.
fn number_of(backups: &Backups, number: u64) -> Result<u64> {
    match number {
        0 => Ok(runstone_boundary::backups::newest(backups)?),
        _ => Ok(number),
    }
}

/// Opens a directory of backups of one store. If `may_create`, it may be new or empty. A directory
/// that contains a store or anything else is refused. It may, and should, be on another disk than
/// the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_open(
    path: *const c_char,
    may_create: bool,
    backups: *mut *mut runstone_backups,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (path, place) = unsafe { (text("path", path)?, Place::new("backups", backups)?) };
        place.keep(match may_create {
            true => Backups::open(path)?,
            false => Backups::open_existing(path)?,
        })
    })
}

/// Closes a directory of backups. Its files stay, and a running archiver continues. Null is not an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_backups_close(backups: *mut runstone_backups) -> runstone_status {
    answer(|| runstone_backups::close(backups))
}

/// Adds a backup of the store in a directory, as it is now. The store may be open in this process
/// or in another one, or closed; its writers do not wait. Only files that the directory lacks are
/// copied. A second backup in the same directory at the same time is refused with RUNSTONE_IN_USE.
/// `made`, which may be null, gets the backup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_create(
    backups: *const runstone_backups,
    store_path: *const c_char,
    made: *mut runstone_backup,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let path = unsafe { text("store_path", store_path) }?;
        let info = runstone_backups::get(backups)?.create(path)?;
        if !made.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("made", made) }?.set((&info).into());
        }
        Ok(())
    })
}

/// Lists the backups, the oldest first: at most `capacity` of them, from the one at `first` on.
/// `count` gets the number of all backups. Backups with a damaged description are not included: see
/// runstone_backups_damaged().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_list(
    backups: *const runstone_backups,
    first: usize,
    capacity: usize,
    list: *mut runstone_backup,
    count: *mut usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid places.
        let (list, place) =
            unsafe { (places("list", list, capacity)?, Place::new("count", count)?) };
        let all = runstone_backups::get(backups)?.list()?;
        for (place, info) in list.zip(all.iter().skip(first)) {
            place.set(info.into());
        }
        place.set(all.len());
        Ok(())
    })
}

/// Lists the parts of the archive without a gap, the oldest first, as runstone_backups_list() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_archives(
    backups: *const runstone_backups,
    first: usize,
    capacity: usize,
    list: *mut runstone_archive,
    count: *mut usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid places.
        let (list, place) =
            unsafe { (places("list", list, capacity)?, Place::new("count", count)?) };
        let all = runstone_backups::get(backups)?.archives()?;
        for (place, info) in list.zip(all.iter().skip(first)) {
            place.set(info.into());
        }
        place.set(all.len());
        Ok(())
    })
}

/// The backups with a damaged description, which cannot be restored, as a JSON list of objects with
/// `number` and `what`. While there is one, prune does not remove files that no readable backup
/// needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_damaged(
    backups: *const runstone_backups,
    list: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("list", list) }?;
        let all = runstone_backups::get(backups)?.damaged()?;
        let json = |(number, what)| serde_json::json!({ "number": number, "what": what });
        let all: Vec<_> = all.into_iter().map(json).collect();
        place.set(runstone_bytes::of_text(serde_json::json!(all).to_string()));
        Ok(())
    })
}

/// Reads every byte of a backup and checks it. `number` 0 is the newest. `report` gets the damage
/// as a JSON list of objects with `file` and `what`; damage makes the status RUNSTONE_CORRUPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_verify(
    backups: *const runstone_backups,
    number: u64,
    report: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("report", report) }?;
        let backups = runstone_backups::get(backups)?;
        told(&backups.verify(number_of(&backups, number)?)?, place)
    })
}

/// Reads every byte of the archive and checks it, as runstone_backups_verify() does for a backup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_verify_archives(
    backups: *const runstone_backups,
    report: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("report", report) }?;
        told(&runstone_backups::get(backups)?.verify_archives()?, place)
    })
}

/// Reports damage.
fn told(damage: &[Damage], place: Place<runstone_bytes>) -> Result<()> {
    place.set(runstone_bytes::of_text(serde_json::to_string(damage).unwrap_or_default()));
    match damage.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            Code::Corruption,
            runstone_boundary::backups::damage_message(damage.len(), first),
        )),
    }
}

/// Restores a backup to a new or empty directory, and checks every byte. `number` 0 is the newest
/// backup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_restore(
    backups: *const runstone_backups,
    number: u64,
    path: *const c_char,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let path = unsafe { text("path", path) }?;
        let backups = runstone_backups::get(backups)?;
        Ok(backups.restore(number_of(&backups, number)?, path)?)
    })
}

/// Makes a store as of a moment of the archive in a directory that is new or empty. `moment` is a
/// runstone_moment, which defines the meaning of `value`. A moment that neither a backup nor the
/// archive has is refused with RUNSTONE_INVALID_ARGUMENT. So is a time that the clock showed twice;
/// the message then lists the numbers. `restored` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_restore_to(
    backups: *const runstone_backups,
    moment: i32,
    value: u64,
    path: *const c_char,
    restored: *mut runstone_restored,
) -> runstone_status {
    // SAFETY: the caller's promises are those of the function.
    answer(|| unsafe { restore_to(backups, self::moment(moment, value)?, path, restored) })
}

/// As runstone_backups_restore_to(), but with the number and the history of a position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_restore_to_position(
    backups: *const runstone_backups,
    position: runstone_position,
    path: *const c_char,
    restored: *mut runstone_restored,
) -> runstone_status {
    let moment = Moment::Position(Position::new(position.history, position.seq));
    // SAFETY: the caller's promises are those of the function.
    answer(|| unsafe { restore_to(backups, moment, path, restored) })
}

/// `path` must be a valid string, and `restored` null or a valid place.
unsafe fn restore_to(
    backups: *const runstone_backups,
    moment: Moment,
    path: *const c_char,
    restored: *mut runstone_restored,
) -> Result<()> {
    // SAFETY: the caller promises valid strings.
    let path = unsafe { text("path", path) }?;
    let made = runstone_backups::get(backups)?.restore_to(moment, path)?;
    if !restored.is_null() {
        // SAFETY: the caller promises a valid place.
        unsafe { Place::new("restored", restored) }?.set(runstone_restored {
            backup: made.backup,
            changes: made.changes,
            last_seq: made.last_seq,
        });
    }
    Ok(())
}

/// Removes all backups except the newest `keep`, at least 1, and the files that only they needed,
/// including the beginning of the archive. `removed`, which may be null, gets the number of removed
/// backups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_backups_prune(
    backups: *const runstone_backups,
    keep: usize,
    removed: *mut u64,
) -> runstone_status {
    answer(|| {
        let count = runstone_backups::get(backups)?.prune(keep)?;
        if !removed.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("removed", removed) }?.set(count);
        }
        Ok(())
    })
}
