//! Limits the bytes that flushes, compactions and collections write in a second. Every byte counts,
//! but only compactions and collections wait. They also make up for the bytes of flushes, because
//! writers wait for flushes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::pace::target::{Seen, Target};
use crate::sync::{Mutex, rank};

/// Bytes may be written this much early, so that waits are few.
const BURST: Duration = Duration::from_millis(50);

/// Counts bytes against a rate.
#[derive(Debug)]
pub(crate) struct IoRate {
    /// 0 for no limit.
    bytes_per_second: AtomicU64,
    /// A lower limit that follows the latency of reads and writes; 0 for none.
    followed: AtomicU64,
    /// All bytes.
    written: AtomicU64,
    pub(crate) target: Target,
    /// When the bytes written so far are paid for.
    paid_until: Mutex<rank::IoRate, Instant>,
}

impl IoRate {
    /// A rate of at most this many bytes in a second, if there is a limit.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> IoRate {
        IoRate {
            bytes_per_second: AtomicU64::new(bytes_per_second.unwrap_or(0)),
            followed: AtomicU64::new(0),
            written: AtomicU64::new(0),
            target: Target::default(),
            paid_until: Mutex::new(Instant::now()),
        }
    }

    /// The limit that was set, if there is one.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// Changes the limit. Bytes that were written under the previous limit count as paid for.
    pub(crate) fn set(&self, bytes_per_second: Option<u64>) {
        let mut paid_until = self.paid_until.lock();
        self.bytes_per_second.store(bytes_per_second.unwrap_or(0), Relaxed);
        *paid_until = Instant::now();
    }

    /// The limit that follows from the target, if there is one.
    pub(crate) fn followed(&self) -> Option<u64> {
        Some(self.followed.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// The limit in force.
    pub(crate) fn now(&self) -> Option<u64> {
        match (self.get(), self.followed()) {
            (Some(set), Some(followed)) => Some(set.min(followed)),
            (set, followed) => set.or(followed),
        }
    }

    /// Adds the measurements of a store to the present step of the target, and changes the limit at
    /// the end of the step.
    pub(crate) fn follow(&self, seen: Seen, now: Instant) {
        let (rate, written) = (self.followed(), self.written.load(Relaxed));
        if let Some(next) = self.target.step(seen, rate, written, now) {
            self.follow_at(next, now);
        }
    }

    /// Sets a target, or removes the present one together with its limit.
    pub(crate) fn set_target(&self, p99: Option<Duration>) {
        self.target.set(p99);
        if p99.is_none() {
            self.follow_at(None, Instant::now());
        }
    }

    /// Changes the limit that follows the target. The debt is kept in bytes: otherwise a flush at a
    /// low limit would delay compactions long after the limit is gone.
    fn follow_at(&self, next: Option<u64>, now: Instant) {
        let mut paid_until = self.paid_until.lock();
        let before = self.now();
        self.followed.store(next.unwrap_or(0), Relaxed);
        let owed = paid_until.saturating_duration_since(now);
        let owed_ns = match (before, self.now()) {
            (Some(before), Some(next)) => owed.as_nanos() * u128::from(before) / u128::from(next),
            _ => 0,
        };
        *paid_until = now + Duration::from_nanos(u64::try_from(owed_ns).unwrap_or(u64::MAX));
    }

    /// Counts bytes that are being written.
    pub(crate) fn charge(&self, bytes: usize) {
        self.charge_at(bytes, Instant::now());
    }

    /// How long callers that can wait have to wait now.
    pub(crate) fn wait(&self) -> Duration {
        match self.now() {
            None => Duration::ZERO,
            Some(_) => self.wait_at(Instant::now()),
        }
    }

    fn charge_at(&self, bytes: usize, now: Instant) {
        self.written.fetch_add(bytes as u64, Relaxed);
        let Some(rate) = self.now() else { return };
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

    /// At a low limit a flush of 64 MiB is paid for only after a minute. The limit is removed
    /// earlier.
    #[test]
    fn what_is_owed_shrinks_as_the_limit_grows() {
        let (rate, now) = (IoRate::new(Some(256 << 20)), Instant::now());
        rate.follow_at(Some(1 << 20), now);
        assert_eq!((rate.get(), rate.followed()), (Some(256 << 20), Some(1 << 20)));
        rate.charge_at(64 << 20, now);
        assert_eq!(rate.wait_at(now), Duration::from_secs(64) - BURST);
        rate.follow_at(Some(16 << 20), now);
        assert_eq!(rate.wait_at(now), Duration::from_secs(4) - BURST);
        rate.follow_at(None, now);
        assert_eq!(
            rate.wait_at(now),
            Duration::from_millis(250) - BURST,
            "what was set still holds"
        );
    }
}
