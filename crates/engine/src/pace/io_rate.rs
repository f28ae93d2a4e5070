//! A limit to what flushes, compactions and collections write in a second. Every byte counts, and
//! compactions and collections wait: what a flush writes they make up for, because writers wait for
//! flushes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, rank};

/// Bytes may come this much early, so that waits are few.
const BURST: Duration = Duration::from_millis(50);

/// Counts bytes against a rate.
#[derive(Debug)]
pub(crate) struct IoRate {
    /// 0 for no limit.
    bytes_per_second: AtomicU64,
    /// When the bytes written so far are paid for.
    paid_until: Mutex<rank::IoRate, Instant>,
}

impl IoRate {
    /// At most this many bytes in a second, if there is a limit.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> IoRate {
        let bytes_per_second = AtomicU64::new(bytes_per_second.unwrap_or(0));
        IoRate { bytes_per_second, paid_until: Mutex::new(Instant::now()) }
    }

    /// The limit, if there is one.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// Changes the limit. What was written under the last one is paid for.
    pub(crate) fn set(&self, bytes_per_second: Option<u64>) {
        let mut paid_until = self.paid_until.lock();
        self.bytes_per_second.store(bytes_per_second.unwrap_or(0), Relaxed);
        *paid_until = Instant::now();
    }

    /// Counts bytes that are being written.
    pub(crate) fn charge(&self, bytes: usize) {
        self.charge_at(bytes, Instant::now());
    }

    /// How long callers that can wait do so now.
    pub(crate) fn wait(&self) -> Duration {
        match self.get() {
            None => Duration::ZERO,
            Some(_) => self.wait_at(Instant::now()),
        }
    }

    fn charge_at(&self, bytes: usize, now: Instant) {
        let Some(rate) = self.get() else { return };
        let cost = Duration::from_nanos((bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64);
        let mut paid_until = self.paid_until.lock();
        *paid_until = (*paid_until).max(now) + cost;
    }

    fn wait_at(&self, now: Instant) -> Duration {
        self.paid_until.lock().saturating_duration_since(now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_bytes_takes_a_second_and_rest_is_not_saved_up() {
        let rate = IoRate::new(Some(100 << 20));
        let start = Instant::now();
        assert_eq!(rate.wait_at(start), Duration::ZERO);
        let idle = start + Duration::from_secs(60);
        (0..100).for_each(|_| rate.charge_at(1 << 20, idle));
        assert_eq!(rate.wait_at(idle), Duration::from_secs(1) - BURST);
        assert_eq!(rate.wait_at(idle + Duration::from_secs(1)), Duration::ZERO);
        rate.set(None);
        rate.charge(usize::MAX);
        assert_eq!((rate.get(), rate.wait()), (None, Duration::ZERO));
        rate.set(Some(1 << 20));
        assert_eq!((rate.get(), rate.wait()), (Some(1 << 20), Duration::ZERO));
        rate.charge_at(1 << 20, idle);
        assert_eq!(rate.wait_at(idle), Duration::from_secs(1) - BURST);
    }
}
