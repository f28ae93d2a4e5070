//! Counters of amounts that are currently held.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Subtracts an amount that was added to the counter before.
#[inline]
#[track_caller]
pub fn subtract(counter: &AtomicU64, amount: u64) {
    let before = counter.fetch_sub(amount, Relaxed);
    assert!(before >= amount, "a counter of {before} is to lose {amount}");
}
