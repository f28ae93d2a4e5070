//! Chooses the rate of background I/O from the latency of reads and writes. This file only decides:
//! the owner of a store measures, and a step is half a second.
//!
//! 1. While the latency is above the target, the rate falls by a quarter a step, or by half if the
//!    latency is more than twice the target. It starts from the actual rate: a limit far above that
//!    would take many steps to have an effect. It never falls below [`LEAST`], because a tree that
//!    is not compacted slows everybody down in the end.
//! 2. If the background writes at most [`LEAST`] already, it is not the cause, and the rate stays.
//! 3. While the latency is well below the target, the rate grows by an eighth a step.
//! 4. While nobody reads or writes, the rate doubles each step. From [`UNLIMITED_FROM`] on there is
//!    no limit, which takes ten steps from the least rate.
//! 5. While writers are slowed down for lack of a compaction, there is no limit: a target must not
//!    cause the delays that it should prevent.
//!
//! Flushes count against the rate, and never wait for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, rank};

/// Bytes a second that compactions may always write.
const LEAST: u64 = 1 << 20;
/// A limit at or above this counts as no limit.
const UNLIMITED_FROM: u64 = 1 << 30;
/// How often the rate changes.
const STEP: Duration = Duration::from_millis(500);

/// What happened since the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The latency that 99 of 100 reads and writes did not exceed; `None` if too few were measured.
    pub(crate) p99: Option<Duration>,
    /// Whether anybody read or wrote.
    pub(crate) is_busy: bool,
    /// Whether writers are slowed down.
    pub(crate) is_pressing: bool,
}

/// The next limit in bytes a second, if flushes and compactions wrote this many; `None` for no
/// limit.
fn next_rate(rate: Option<u64>, target: Duration, written: u64, seen: Seen) -> Option<u64> {
    let up_to = |rate: u64| Some(rate).filter(|rate| *rate < UNLIMITED_FROM);
    if seen.is_pressing {
        return None;
    }
    if !seen.is_busy {
        return up_to(rate?.saturating_mul(2));
    }
    match seen.p99 {
        Some(p99) if p99 > target => {
            let real = rate.unwrap_or(u64::MAX).min(written);
            if real <= LEAST {
                return rate;
            }
            let left = if p99 > target * 2 { real / 2 } else { real / 4 * 3 };
            Some(left.max(LEAST))
        }
        Some(p99) if p99 < target / 8 * 7 => up_to(rate? + rate? / 8),
        _ => rate,
    }
}

/// The target, if one is set, and the measurements in this step of the stores that share it.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// 0 for none.
    p99_ns: AtomicU64,
    state: Mutex<rank::Target, State>,
}

#[derive(Debug, Default)]
struct State {
    seen: Seen,
    began: Option<Instant>,
    /// Bytes that had been written when the step began.
    written: u64,
}

impl Target {
    pub(crate) fn get(&self) -> Option<Duration> {
        let nanos = self.p99_ns.load(Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn set(&self, p99: Option<Duration>) {
        let nanos = p99.map_or(0, |p99| u64::try_from(p99.as_nanos()).unwrap_or(u64::MAX));
        self.p99_ns.store(nanos, Relaxed);
        *self.state.lock() = State::default();
    }

    /// Adds the measurements of one store. At the end of a step it returns the next limit. `rate`
    /// is the present one, and `written` counts all bytes of flushes and compactions.
    pub(crate) fn step(
        &self,
        seen: Seen,
        rate: Option<u64>,
        written: u64,
        now: Instant,
    ) -> Option<Option<u64>> {
        let target = self.get()?;
        let mut state = self.state.lock();
        state.seen.p99 = state.seen.p99.max(seen.p99);
        state.seen.is_busy |= seen.is_busy;
        state.seen.is_pressing |= seen.is_pressing;
        let Some(began) = state.began else {
            *state = State { began: Some(now), written, ..State::default() };
            return None;
        };
        let took = now.saturating_duration_since(began);
        if took < STEP {
            return None;
        }
        let bytes = u128::from(written.saturating_sub(state.written));
        let a_second = u64::try_from(bytes * 1_000_000_000 / took.as_nanos()).unwrap_or(u64::MAX);
        let next = next_rate(rate, target, a_second, state.seen);
        *state = State { began: Some(now), written, ..State::default() };
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    const MIB: u64 = 1 << 20;

    /// One row: the limit and what is written in MiB a second, the latency in milliseconds, and the
    /// next limit in KiB a second; 0 for none.
    #[test]
    fn the_rate_follows_the_latency() {
        let rows = [
            // Too slow: the rate falls from what was written.
            ("unlimited, above", 0, 200, 6, 150 << 10),
            ("unlimited, far above", 0, 200, 11, 100 << 10),
            ("a limit that nobody reached", 900, 40, 6, 30 << 10),
            ("down to the least", 1, 4, 50, 1 << 10),
            ("never below it", 2, 2, 50, 1 << 10),
            ("not the background's fault", 64, 0, 50, 64 << 10),
            ("nor then", 0, 1, 50, 0),
            // Near the target.
            ("just below", 64, 64, 5, 64 << 10),
            // Fast.
            ("well below", 64, 64, 4, 72 << 10),
            ("up to none", 1000, 64, 1, 0),
            ("no limit stays none", 0, 64, 1, 0),
        ];
        for (what, rate, written, p99, next) in rows {
            let seen = Seen { p99: Some(MILLI * p99), is_busy: true, is_pressing: false };
            let limit = |mib: u64| (mib > 0).then_some(mib * MIB);
            let found = next_rate(limit(rate), MILLI * 5, written * MIB, seen);
            assert_eq!(found.map_or(0, |bytes| bytes >> 10), next, "{what}");
            let pressing = Seen { is_pressing: true, ..seen };
            assert_eq!(next_rate(limit(rate), MILLI * 5, written * MIB, pressing), None, "{what}");
            let few = Seen { p99: None, ..seen };
            assert_eq!(
                next_rate(limit(rate), MILLI * 5, written * MIB, few),
                limit(rate),
                "{what}"
            );
        }
        let idle = next_rate(Some(3 * MIB), MILLI, 0, Seen::default());
        assert_eq!(idle, Some(6 * MIB));
    }

    /// A disk of 400 MiB a second, on which reads wait for the background. Returns the rate and the
    /// latency after this many steps. In each step the background uses the whole rate.
    fn run(
        (target, rate): (&Target, &mut Option<u64>),
        (clock, written): (&mut Instant, &mut u64),
        steps: u32,
        is_busy: bool,
    ) -> Duration {
        let mut p99 = Duration::ZERO;
        for _ in 0..steps {
            let real = rate.unwrap_or(u64::MAX).min(390 * MIB);
            // A queue: the wait grows as the disk fills up.
            p99 = Duration::from_micros(500 * 400 / (400 - real / MIB));
            *written += real / 2;
            *clock += STEP;
            let seen = Seen { p99: is_busy.then_some(p99), is_busy, is_pressing: false };
            if let Some(next) = target.step(seen, *rate, *written, *clock) {
                *rate = next;
            }
        }
        p99
    }

    #[test]
    fn a_busy_disk_comes_to_the_target_and_an_idle_one_back_to_its_full_rate() {
        let (target, mut rate) = (Target::default(), None);
        let (mut clock, mut written) = (Instant::now(), 0);
        let mut go = |target: &Target, rate: &mut Option<u64>, steps, is_busy| {
            run((target, rate), (&mut clock, &mut written), steps, is_busy)
        };
        assert_eq!(go(&target, &mut rate, 10, true), Duration::from_millis(20));
        assert_eq!(rate, None, "no target, no limit");
        target.set(Some(MILLI * 2));
        go(&target, &mut rate, 20, true);
        for step in 0..50 {
            let p99 = go(&target, &mut rate, 1, true);
            assert!(p99 <= MILLI * 5 / 2, "step {step}: {p99:?}");
            let bytes = rate.expect("a limit");
            assert!((200 * MIB..320 * MIB).contains(&bytes), "step {step}: {} MiB", bytes / MIB);
        }
        // A target that cannot be reached still leaves compactions the least rate.
        target.set(Some(MILLI / 10));
        go(&target, &mut rate, 40, true);
        assert_eq!(rate, Some(LEAST));
        go(&target, &mut rate, 11, false);
        assert_eq!(rate, None, "ten steps of nobody, after one that only begins");
    }

    #[test]
    fn stores_that_share_a_rate_share_its_step() {
        let (target, now) = (Target::default(), Instant::now());
        target.set(Some(MILLI));
        let slow = Seen { p99: Some(MILLI * 3), is_busy: true, is_pressing: false };
        assert_eq!(target.step(Seen::default(), None, 0, now), None, "the first begins the step");
        assert_eq!(target.step(slow, None, 50 * MIB, now + STEP / 2), None);
        let next = target.step(Seen::default(), None, 100 * MIB, now + STEP);
        assert_eq!(next, Some(Some(100 * MIB)), "half of 200 MiB a second: the other one is slow");
    }
}
