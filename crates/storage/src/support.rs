//! What implementations of [`crate::Storage`] have in common, for those outside this crate. Users
//! of a storage need none of it.

pub use crate::copy::copy_into;
pub use crate::handle::{Handle, check_len};
pub use crate::locks::LockTable;
pub use crate::names::{check_name, checked_end, fixed_capacity};
