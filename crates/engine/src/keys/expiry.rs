//! Entries that expire. Such an entry has its own kind. Its last eight bytes are the instant at
//! which it expires: milliseconds since 1970, little-endian. From that instant on it acts as a
//! tombstone: nobody sees it, and older versions of its key stay hidden.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::keys::expires;

/// Bytes of the instant.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// The bytes of an expiring entry without its instant, and the instant. An entry that is too short
/// to contain an instant counts as expired. No store writes such an entry.
#[inline]
pub(crate) fn split(entry: &[u8]) -> (&[u8], u64) {
    match entry.split_last_chunk::<EXPIRY_BYTES>() {
        Some((bytes, at_ms)) => (bytes, u64::from_le_bytes(*at_ms)),
        None => (&[], 0),
    }
}

/// The instant at which an entry expires, or `None` if it never expires.
#[inline]
pub(crate) fn expiry_of(trailer: u64, entry: &[u8]) -> Option<u64> {
    expires(trailer).then(|| split(entry).1)
}

/// How long a key keeps its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Until it is replaced or deleted.
    Never,
    /// Until this instant, unless it is replaced or deleted before.
    At(SystemTime),
}

impl Expiry {
    pub(crate) fn of(at_ms: Option<u64>) -> Expiry {
        let at = |ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        at_ms.and_then(at).map_or(Expiry::Never, Expiry::At)
    }

    /// The instant in milliseconds since 1970, or `None` for never. An instant before 1970 counts
    /// as 1970.
    pub(crate) fn at_ms(self) -> Result<Option<u64>> {
        let Expiry::At(at) = self else { return Ok(None) };
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).map_err(|_| {
            Error::invalid(
                format!("an instant {} seconds after 1970 lies beyond the clock", since.as_secs()),
                "give an earlier one, or none: it never expires then",
            )
        })?;
        Ok(Some(at_ms))
    }
}
