//! The gate that writers pass: how far they are slowed down, and where they wait when they must
//! stop. `write/pressure.rs` measures the pressure.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, rank};
use runstone_policy::units::Thousandths;

use crate::metrics::PressureState;
use crate::options::store::STALL_POLL;

/// Writers never get slower than this fraction of the highest rate before they stop.
const MIN_RATE_FRACTION: f64 = 0.005;
/// Shorter delays are added up, because a sleep takes longer than requested.
const MIN_SLEEP: Duration = Duration::from_micros(100);
/// One write sleeps at most for its own cost, clamped to this range; the rest is carried over. So a
/// small write sleeps no longer than the start of the range, however slow the store has become.
const MAX_SLEEP: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(5);

/// The most that is carried over. Otherwise one large write would slow small ones long after the
/// pressure has ended.
const MAX_DEBT: Duration = Duration::from_millis(100);

/// How far a keyspace is from stopping its writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) permille: u32,
    pub(crate) cause: &'static str,
}

impl Pressure {
    pub(crate) const NONE: Pressure = Pressure { permille: 0, cause: "none" };

    /// The larger pressure; the first one if they are equal.
    pub(crate) fn max(self, other: Pressure) -> Pressure {
        if other.permille > self.permille { other } else { self }
    }
}

/// The fraction of the way from `slowdown` to `stop`, in thousandths.
pub(crate) fn fraction(value: u64, slowdown: u64, stop: u64) -> u32 {
    if value < slowdown || stop == 0 {
        return 0;
    }
    let way = u128::from(stop.saturating_sub(slowdown).max(1));
    // The slowdown value itself is the first step of the way.
    let taken = u128::from(value - slowdown) + u128::from(value < stop);
    (taken * 1000 / (way + 1)).min(1000) as u32
}

/// Pressure of the whole store.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Largest permille of all keyspaces. A write without pressure reads nothing else.
    permille: AtomicU32,
    state: Mutex<rank::Throttling, ThrottleState>,
    changed: Condvar,
    /// Held while pressure is measured and set.
    refreshing: Mutex<rank::Refreshing, ()>,
    max_bytes_per_second: f64,
}

#[derive(Debug)]
struct ThrottleState {
    cause: &'static str,
    since: Instant,
    /// When the bytes admitted so far are paid for.
    paid_until: Instant,
}

impl Throttle {
    pub(crate) fn new(max_bytes_per_second: u64) -> Throttle {
        let now = Instant::now();
        Throttle {
            permille: AtomicU32::new(0),
            state: Mutex::new(ThrottleState {
                cause: Pressure::NONE.cause,
                since: now,
                paid_until: now,
            }),
            changed: Condvar::new(),
            refreshing: Mutex::new(()),
            max_bytes_per_second: max_bytes_per_second as f64,
        }
    }

    /// The state for the metrics.
    pub(crate) fn report(&self) -> PressureState {
        let state = self.state.lock();
        PressureState {
            level: Thousandths::of_parts(self.permille.load(Relaxed)),
            cause: state.cause.into(),
            since_ms: state.since.elapsed().as_millis() as u64,
        }
    }

    fn set(&self, pressure: Pressure) -> bool {
        let mut state = self.state.lock();
        self.permille.store(pressure.permille, Relaxed);
        let changed = state.cause != pressure.cause;
        if changed {
            state.cause = pressure.cause;
            state.since = Instant::now();
        }
        self.changed.notify_all();
        changed
    }

    /// Charges `bytes` at the current rate; returns how long to sleep now.
    pub(crate) fn charge(&self, bytes: u64, permille: u32) -> Duration {
        let open = (1.0 - f64::from(permille) / 1000.0).max(MIN_RATE_FRACTION);
        let cost = Duration::from_secs_f64(bytes as f64 / (self.max_bytes_per_second * open));
        let now = Instant::now();
        let mut state = self.state.lock();
        state.paid_until = (state.paid_until.max(now) + cost).min(now + MAX_DEBT);
        let owed = state.paid_until - now;
        let most = cost.clamp(*MAX_SLEEP.start(), *MAX_SLEEP.end());
        if owed < MIN_SLEEP { Duration::ZERO } else { owed.min(most) }
    }

    /// How far the store is from stopping its writers, in thousandths.
    #[inline]
    pub(crate) fn permille(&self) -> u32 {
        self.permille.load(Relaxed)
    }

    /// The limit that the store is nearest to.
    pub(crate) fn cause(&self) -> &'static str {
        self.state.lock().cause
    }

    /// Measures and sets the pressure, and returns it if its cause changed. Only one caller does so
    /// at a time: otherwise a value measured before a flush could overwrite the one measured after
    /// it, and writers would wait for ever.
    pub(crate) fn refresh(&self, measure: impl FnOnce() -> Pressure) -> Option<Pressure> {
        let _one_at_a_time = self.refreshing.lock();
        let pressure = measure();
        self.set(pressure).then_some(pressure)
    }

    /// Waits a while for pressure to fall; `true` once writers may continue.
    pub(crate) fn wait_a_while(&self) -> bool {
        let mut state = self.state.lock();
        if self.permille() < 1000 {
            return true;
        }
        self.changed.wait_for(&mut state, STALL_POLL);
        false
    }

    /// Wakes every waiting writer.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_evenly_from_slowdown_to_stop() {
        assert_eq!(fraction(15, 16, 32), 0);
        let steps: Vec<u32> = (16..32).map(|runs| fraction(runs, 16, 32)).collect();
        assert!(steps.windows(2).all(|pair| pair[1] > pair[0] && pair[1] - pair[0] <= 60));
        assert!(steps[0] > 0 && steps[15] < 1000, "{steps:?}");
    }

    #[test]
    fn the_rate_follows_the_formula_and_no_write_pays_more_than_its_share_at_once() {
        let throttle = Throttle::new(100 << 20);
        // 1 MiB at half of 100 MiB/s costs 20 ms; a single sleep is capped.
        let sleep = throttle.charge(1 << 20, 500);
        assert_eq!(sleep, *MAX_SLEEP.end());
        let sleep = throttle.charge(100, 500);
        assert_eq!(sleep, *MAX_SLEEP.start(), "a small write does not pay for a large one at once");
        let throttle = Throttle::new(100 << 20);
        let small: Duration = (0..1000).map(|_| throttle.charge(116, 0)).max().unwrap_or_default();
        assert!(small < Duration::from_millis(3), "116 KB at full rate cost about a millisecond");
    }
}
