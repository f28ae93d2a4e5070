//! Common parts of implementations of [`crate::Storage`], for implementations outside this crate.
//! Users of a storage do not need them.

pub use crate::copy::copy_into;
pub use crate::handle::{Handle, check_len};
pub use crate::locks::LockTable;
pub use crate::names::{check_name, checked_end, fixed_capacity};
