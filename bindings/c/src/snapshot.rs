//! Snapshots.

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;
use runstone_boundary::stores::Moment;

use crate::bytes::Place;
use crate::handles::{runstone_snapshot, runstone_store};
use crate::status::{answer, runstone_status};

handle!(4 "snapshot" runstone_snapshot: Moment);

/// Takes a snapshot. Close it with runstone_snapshot_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_snapshot_create(
    store: *const runstone_store,
    snapshot: *mut *mut runstone_snapshot,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("snapshot", snapshot) }?;
        place.keep(Moment::of(&*runstone_store::get(store)?))
    })
}

/// Closes a snapshot. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_snapshot_close(snapshot: *mut runstone_snapshot) -> runstone_status {
    answer(|| runstone_snapshot::close(snapshot))
}
