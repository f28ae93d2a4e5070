//! Clocks of tests. The clock of a workload advances only with the workload's writes, so the
//! workload alone decides which entries have expired; the other clock is set by hand.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runstone::Clock;

/// A time long before that of any other clock of the tests, so that entries that have expired by
/// this clock have expired by all of them.
const START_MS: u64 = 1_000_000;

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(START_MS) };
}

/// The time to live of entries that do not expire in a workload.
pub const LASTING: Duration = Duration::from_secs(1 << 40);

/// The time to live of entries that have expired once the clock has moved on.
pub const PASSING: Duration = Duration::from_millis(1);

/// One clock for all stores of a thread. Threads that a store starts read `START_MS`, so for them
/// the store uses the latest time that it has seen.
#[derive(Debug)]
pub struct WorkloadClock;

impl WorkloadClock {
    /// Moves on, so that passing entries have expired.
    pub fn tick() {
        NOW_MS.set(NOW_MS.get() + 2);
    }

    /// Returns to the start, for a fresh store. So a workload writes the same bytes each time.
    pub fn restart() {
        NOW_MS.set(START_MS);
    }
}

impl Clock for WorkloadClock {
    fn unix_millis(&self) -> u64 {
        NOW_MS.get()
    }
}

/// A clock that a test sets, in milliseconds.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    /// A clock that shows this time.
    pub fn at(now_ms: u64) -> Arc<TestClock> {
        Arc::new(TestClock(AtomicU64::new(now_ms)))
    }

    /// Sets the time, forward or back.
    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Relaxed);
    }
}

impl Clock for TestClock {
    fn unix_millis(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
