//! The one rule for file names. Not a parser: only the engine knows the meaning of names.

use std::io;

use crate::{Error, Operation, Result};

/// Refuses a name that could leave the storage's directory. Names come from the engine, but a name
/// from a damaged manifest must not reach another directory. So the check is made here, before any
/// use.
pub fn check_name(operation: Operation, name: &str) -> Result<()> {
    let refused = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if refused {
        let reason = "a file name must be one plain path component";
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        return Err(Error::new(operation, format!("{name:?}"), source));
    }
    Ok(())
}

/// Whether a name ends with a dot and this extension.
pub fn has_extension(name: &str, extension: &str) -> bool {
    name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'))
}

/// The end of a range, or an error if it exceeds `limit_bytes` or the largest number.
pub fn checked_end(offset: u64, len_bytes: usize, limit_bytes: u64) -> io::Result<u64> {
    match offset.checked_add(len_bytes as u64) {
        Some(end) if end <= limit_bytes => Ok(end),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "past the capacity of the file")),
    }
}

/// The error of `set_len` and `punch` on a file of fixed capacity.
pub fn fixed_capacity() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the file has a fixed capacity")
}
