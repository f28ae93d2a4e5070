//! The durability of a write.

use runstone::{Durability, WriteOptions};
use runstone_boundary::Failure;

/// The failures that a write survives after it has returned.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_durability {
    /// As the store's options specify; by default, a crash of the process.
    RUNSTONE_AS_OPENED = 0,
    /// A crash of the process.
    RUNSTONE_BUFFERED = 1,
    /// A power loss.
    RUNSTONE_SYNC = 2,
}

/// Write options from a number of C. It may be any number, because an enum of C is an int.
pub(crate) fn write_options(durability: i32) -> crate::Result<WriteOptions> {
    Ok(WriteOptions::default().durability(match durability {
        0 => None,
        1 => Some(Durability::Buffered),
        2 => Some(Durability::Sync),
        other => return Err(Failure::invalid(format!("durability {other} is none"))),
    }))
}
