//! Keys, sequence numbers and kinds of entries, and how numbers and bytes are encoded.

pub(crate) mod codec;
pub(crate) mod expiry;
pub(crate) mod heaviest;
mod key;
pub(crate) mod range;

pub use key::*;
