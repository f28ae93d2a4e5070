//! Mirrors: a store that follows another one, change by change.

use std::ffi::c_char;
use std::time::Duration;

use runstone::{Mirror, Mirroring, Options};
use runstone_boundary::handle;
use runstone_boundary::mirrors::OpenMirror;
use runstone_boundary::pointers::Kept;

use crate::archiver::runstone_position;
use crate::bytes::{Place, text};
use crate::handles::{runstone_mirror, runstone_options};
use crate::status::{answer, runstone_status};

handle!(13 "mirror" runstone_mirror: OpenMirror);

/// The result of a round of mirroring.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_mirroring {
    /// Changes applied.
    pub changes: u64,
    /// Their size in bytes, approximately.
    pub bytes: u64,
    /// Whether no changes are left. A round ends after about 16 MiB even if some are.
    pub is_drained: bool,
}

impl From<Mirroring> for runstone_mirroring {
    fn from(done: Mirroring) -> runstone_mirroring {
        let Mirroring { changes, bytes, is_drained, .. } = done;
        runstone_mirroring { changes, bytes, is_drained }
    }
}

/// Continues the mirror of a store, or makes it in a new or empty directory. A mirror is a store
/// that equals the other one at some moment in the past. The other store may be open in this
/// process or in another one, or closed. `options`, which may be null, are the options of the
/// mirror: it needs the merge operators and the filters of the other store. A mirror that did not
/// advance for too long is refused with RUNSTONE_HISTORY_GONE, and needs a new directory. To read
/// the mirror while it is open, follow it. Close it with runstone_mirror_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_mirror_open(
    source_path: *const c_char,
    target_path: *const c_char,
    options: *const runstone_options,
    mirror: *mut *mut runstone_mirror,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (source, target, place) = unsafe {
            let (source, target) =
                (text("source_path", source_path)?, text("target_path", target_path)?);
            (source, target, Place::new("mirror", mirror)?)
        };
        let options = match runstone_options::get_some(options)? {
            Some(options) => options.lock()?.without_resources("a mirror is opened")?,
            None => Options::default(),
        };
        place.keep(OpenMirror::new(Mirror::open(source, target, options)?))
    })
}

/// Waits for a change for at most `wait_ms`, then applies the changes committed since. After an
/// error the mirror is at its position, and the next call continues there. `done` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_mirror_advance(
    mirror: *mut runstone_mirror,
    wait_ms: u64,
    done: *mut runstone_mirroring,
) -> runstone_status {
    answer(|| {
        let most = Duration::from_millis(wait_ms);
        let round = runstone_mirror::get(mirror)?.now(|mirror| mirror.advance(most))?;
        if !done.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("done", done) }?.set(round.into());
        }
        Ok(())
    })
}

/// The position in the other store that the mirror has reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_mirror_position(
    mirror: *const runstone_mirror,
    position: *mut runstone_position,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("position", position) }?;
        place.set(runstone_mirror::get(mirror)?.now(|mirror| Ok(mirror.position()))?.into());
        Ok(())
    })
}

/// Closes a mirror, as runstone_close() closes a store. A running round ends first. The directory
/// is a store, and runstone_mirror_open() can continue the mirror. A call from a callback of the
/// mirror is refused with RUNSTONE_INSIDE_CALLBACK. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_mirror_close(mirror: *mut runstone_mirror) -> runstone_status {
    answer(|| {
        // In a fork, the mirror is only forgotten.
        let open = runstone_mirror::get(mirror).ok();
        open.as_ref().map_or(Ok(()), |open| open.check_caller())?;
        runstone_mirror::close(mirror)?;
        open.map_or(Ok(()), |open| open.close())
    })
}
