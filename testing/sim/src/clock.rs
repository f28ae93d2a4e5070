//! The clock of workloads. It stands still but for their writes, so what has expired follows from
//! the workload alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runstone::Clock;

/// Long before any other clock of the tests, so that what has expired by this one has expired by
/// all.
static NOW_MS: AtomicU64 = AtomicU64::new(1_000_000);

/// The time to live of entries that do not expire in a workload.
pub const LASTING: Duration = Duration::from_secs(1 << 40);

/// The time to live of entries that have expired once the clock moved on.
pub const PASSING: Duration = Duration::from_millis(1);

/// One clock for all stores of a process.
#[derive(Debug)]
pub struct WorkloadClock;

impl WorkloadClock {
    /// Moves on, so that passing entries have expired.
    pub fn tick() {
        NOW_MS.fetch_add(2, Relaxed);
    }
}

impl Clock for WorkloadClock {
    fn unix_millis(&self) -> u64 {
        NOW_MS.load(Relaxed)
    }
}
