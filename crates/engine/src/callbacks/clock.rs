//! The time of day, for entries that expire. Nothing else in the store depends on it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// Tells the time by which entries expire.
pub trait Clock: Debug + Send + Sync {
    /// Milliseconds since 1970, UTC.
    fn unix_millis(&self) -> u64;
}

/// The clock of the operating system.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that never goes back while the store is open: an entry that has expired for one reader
/// has expired for all later readers.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Arc<dyn Clock>,
    latest_ms: AtomicU64,
}

impl Watch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Watch {
        Watch { clock, latest_ms: AtomicU64::new(0) }
    }

    /// Milliseconds since 1970, UTC.
    pub(crate) fn now_ms(&self) -> u64 {
        let now = self.clock.unix_millis();
        if seeded!(ClockGoesBack) {
            return now;
        }
        now.max(self.latest_ms.fetch_max(now, Relaxed))
    }

    /// The instant at which a write made now expires, in milliseconds since 1970.
    pub(crate) fn after(&self, ttl: Duration) -> Result<u64> {
        let millis = u64::try_from(ttl.as_millis()).ok();
        if millis == Some(0) {
            return Err(Error::invalid(
                format!("a time to live of {ttl:?} has ended when the write begins"),
                "give at least a millisecond, or delete the key",
            ));
        }
        millis.and_then(|millis| self.now_ms().checked_add(millis)).ok_or_else(|| {
            Error::invalid(
                format!("a time to live of {} seconds ends beyond the clock", ttl.as_secs()),
                "give less, or put the value without one: it never expires then",
            )
        })
    }
}
