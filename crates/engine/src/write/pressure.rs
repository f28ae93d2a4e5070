//! Back-pressure: smooth, never a cliff. Writers are slowed down before they must be stopped:
//!
//!   rate = max rate x (1 - the largest fraction of the way from slowdown to stop)
//!
//! over four limits of each keyspace (memtables that wait for their flush, level-0 runs, compaction
//! debt, and garbage of value files that snapshots hold) and one of the store: the memtables' share
//! of the memory budget. Before writers are slowed down for that, the largest memtable is flushed,
//! full or not. The state (which limit, since when) is in the metrics and in events.

use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use runstone_policy::policy::compaction_debt_bytes;

use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::base::metrics::{Counter, PressureState};
use crate::base::options::{
    Background, KeyspaceOptions, MAPPED_SEGMENTS, Options, STALL_POLL, WalMode,
};
use crate::base::value_options::WhenFull;
use crate::memtable::Memtable;
use crate::store::{Inner, KeyspaceInner, View};

/// Writers never get slower than this fraction of the highest rate before they stop.
const MIN_RATE_FRACTION: f64 = 0.005;
/// Delays shorter than this are saved up: a sleep costs more than it says.
const MIN_SLEEP: Duration = Duration::from_micros(100);
/// One write never sleeps longer than the last of these, nor longer than what it costs itself or
/// the first, whichever is more; the rest is carried over. A small write then meets no more than
/// the first, however slow the store has become.
const MAX_SLEEP: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(5);

/// No more than this is carried over, or one large write would slow small ones long after pressure
/// has gone.
const MAX_DEBT: Duration = Duration::from_millis(100);

/// How far a keyspace is from stopping its writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) permille: u32,
    pub(crate) cause: &'static str,
}

impl Pressure {
    /// The larger one; the first if they are equal.
    fn max(self, other: Pressure) -> Pressure {
        if other.permille > self.permille { other } else { self }
    }
}

const NONE: Pressure = Pressure { permille: 0, cause: "none" };
const RESERVE_PINNED: &str = "snapshots hold the reserve for values";

/// Pressure of the whole store.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Largest permille of all keyspaces; the only thing that an unhindered write looks at.
    permille: AtomicU32,
    state: Mutex<ThrottleState>,
    changed: Condvar,
    /// Held while pressure is measured and set.
    refreshing: Mutex<()>,
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
            state: Mutex::new(ThrottleState { cause: NONE.cause, since: now, paid_until: now }),
            changed: Condvar::new(),
            refreshing: Mutex::new(()),
            max_bytes_per_second: max_bytes_per_second as f64,
        }
    }

    /// The state for the metrics.
    pub(crate) fn report(&self) -> PressureState {
        let state = self.state.lock();
        PressureState {
            permille: self.permille.load(Relaxed),
            cause: state.cause,
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
    fn charge(&self, bytes: u64, permille: u32) -> Duration {
        let open = (1.0 - f64::from(permille) / 1000.0).max(MIN_RATE_FRACTION);
        let cost = Duration::from_secs_f64(bytes as f64 / (self.max_bytes_per_second * open));
        let now = Instant::now();
        let mut state = self.state.lock();
        state.paid_until = (state.paid_until.max(now) + cost).min(now + MAX_DEBT);
        let owed = state.paid_until - now;
        let most = cost.clamp(*MAX_SLEEP.start(), *MAX_SLEEP.end());
        if owed < MIN_SLEEP { Duration::ZERO } else { owed.min(most) }
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

/// Fraction of the way from `slowdown` to `stop`, in thousandths.
fn fraction(value: u64, slowdown: u64, stop: u64) -> u32 {
    if value < slowdown || stop == 0 {
        return 0;
    }
    let way = u128::from(stop.saturating_sub(slowdown).max(1));
    // The slowdown value itself counts: one step of the way is taken there.
    let taken = u128::from(value - slowdown) + u128::from(value < stop);
    (taken * 1000 / (way + 1)).min(1000) as u32
}

fn measure(view: &View, options: &KeyspaceOptions) -> Pressure {
    let level_0 = view.version.shape.level(0).runs().len() as u64;
    let (slow, stop) = (u64::from(options.l0_slowdown_runs), u64::from(options.l0_stop_runs));
    let runs = if level_0 >= stop { 1000 } else { fraction(level_0, slow, stop) };
    let debt = match (options.debt_slowdown_bytes, options.compaction_policy()) {
        (0, _) | (_, Err(_)) => 0,
        (slow, Ok(policy)) => {
            let debt = compaction_debt_bytes(&view.version.shape, policy, &options.shape);
            fraction(debt, slow, slow.saturating_mul(2))
        }
    };
    let all = [
        (memtable_permille(view, options), "memtables wait for their flush"),
        (runs, "level 0 has too many runs"),
        (debt, "compaction debt"),
    ];
    let all = all.map(|(permille, cause)| Pressure { permille, cause });
    all.into_iter().fold(NONE, Pressure::max)
}

/// One waiting memtable is the normal course of a flush; at the last one allowed, writers slow down
/// as the active one fills, so that the stop is met at a crawl.
fn memtable_permille(view: &View, options: &KeyspaceOptions) -> u32 {
    let waiting = view.immutable.len() as u64;
    match waiting.cmp(&u64::from(options.max_immutable_memtables)) {
        Ordering::Greater => 1000,
        Ordering::Equal => {
            let filled = view.active.allocated_bytes() as u64 * 1000;
            (filled / options.write_buffer_bytes.max(1)).clamp(1, 999) as u32
        }
        Ordering::Less => 0,
    }
}

/// Memory of all memtables.
struct Buffers {
    used_bytes: u64,
    /// Whether a flush will give some back.
    is_any_waiting: bool,
    /// The largest that is written to: of a keyspace that waits for no flush, if there is one.
    largest: Option<Largest>,
}

struct Largest {
    keyspace: Arc<KeyspaceInner>,
    memtable: Arc<Memtable>,
    bytes: u64,
    /// Behind another of its keyspace, its flush would not begin at once.
    is_first: bool,
}

/// From here on memtables are flushed early and writers slowed down, and there they stop: half and
/// three quarters of the budget, less what mapped segments of the log take.
fn buffer_limits(options: &Options) -> (u64, u64) {
    let budget = options.memory_budget_bytes;
    let log = match options.wal_mode {
        WalMode::Mapped => options.log_segment_bytes() * MAPPED_SEGMENTS,
        WalMode::Write => 0,
    };
    let rest = budget - log;
    (rest / 2, rest / 4 * 3)
}

impl Inner {
    /// Garbage that snapshots keep from being collected, against the reserve, from half of it on.
    /// Never a stop: when the reserve is full, flushes wait or fail as `when_full` says. Where the
    /// file may grow, or follows its data, nothing runs out.
    fn reserve_pressure(&self, keyspace: &KeyspaceInner) -> Pressure {
        let options = &keyspace.options.load().values;
        let values = keyspace.values.load();
        let permille = match &values.current {
            Some(store) if options.when_full != WhenFull::Grow => {
                let reserve = u128::from(options.capacity_bytes);
                let reserve = (reserve * u128::from(options.reserve_permille) / 1000) as u64;
                let pinned = store.all_pinned_bytes(&self.visible_points());
                fraction(pinned, (reserve / 2).max(1), reserve).min(999)
            }
            _ => 0,
        };
        Pressure { permille, cause: RESERVE_PINNED }
    }

    fn buffers(&self) -> Buffers {
        let mut buffers = Buffers { used_bytes: 0, is_any_waiting: false, largest: None };
        for keyspace in self.keyspaces.read().values() {
            let view = keyspace.view.load();
            let is_first = view.immutable.is_empty();
            buffers.is_any_waiting |= !is_first;
            let waiting = view.immutable.iter().map(|memtable| memtable.reserved_bytes() as u64);
            let bytes = view.active.reserved_bytes() as u64;
            buffers.used_bytes += waiting.sum::<u64>() + bytes;
            let rank = |largest: &Largest| (largest.is_first, largest.bytes);
            if !view.active.is_empty()
                && buffers.largest.as_ref().map(rank) < Some((is_first, bytes))
            {
                let (keyspace, memtable) = (Arc::clone(keyspace), Arc::clone(&view.active));
                buffers.largest = Some(Largest { keyspace, memtable, bytes, is_first });
            }
        }
        buffers
    }

    /// Memtables have grown. Once the largest takes half of what is meant for all, its flush
    /// begins, full or not, so that the other half lasts until that is done; a later start ends in
    /// a stop. Once all together take what is meant for them, the same, unless others wait and it
    /// is small yet.
    pub(crate) fn relieve_memory(&self) {
        let (soft, _) = buffer_limits(&self.options);
        let Buffers { used_bytes, is_any_waiting, largest } = self.buffers();
        let Some(Largest { keyspace, memtable, bytes, is_first }) = largest else { return };
        let least_bytes = if is_any_waiting { soft / 4 } else { 0 };
        let is_wanted = used_bytes >= soft && bytes >= least_bytes;
        let is_half = !is_any_waiting && bytes >= soft / 2;
        if is_first && (is_wanted || is_half) {
            self.rotate_if_active(&keyspace, &memtable);
        } else if used_bytes >= soft {
            self.refresh_pressure(&keyspace);
        }
    }

    /// Zero while no flush would give memory back.
    fn buffer_permille(&self) -> u32 {
        let (soft, hard) = buffer_limits(&self.options);
        let buffers = self.buffers();
        match buffers.is_any_waiting {
            true => fraction(buffers.used_bytes, soft, hard),
            false => 0,
        }
    }

    /// Takes the pressure of a keyspace anew, after its view changed or it was dropped.
    pub(crate) fn refresh_pressure(&self, keyspace: &KeyspaceInner) {
        // One at a time: what one measured before a flush must not come after what the flush says,
        // or writers would wait for ever.
        let refreshing = self.throttle.refreshing.lock();
        let pressure = measure(&keyspace.view.load(), &keyspace.options.load());
        let pressure = pressure.max(self.reserve_pressure(keyspace));
        keyspace.pressure_permille.store(pressure.permille, Relaxed);
        let others = self.keyspaces.read();
        // Nobody flushes or compacts what was dropped meanwhile.
        let pressure = if others.contains_key(&keyspace.id) { pressure } else { NONE };
        let worst = others
            .values()
            .filter(|other| other.id != keyspace.id)
            .map(|other| other.pressure_permille.load(Relaxed))
            .max()
            .unwrap_or(0);
        drop(others);
        let others = Pressure { permille: worst, cause: "another keyspace" };
        let buffers = Pressure {
            permille: self.buffer_permille(),
            cause: "memtables fill their share of the memory budget",
        };
        let largest = [others, buffers].into_iter().fold(pressure, Pressure::max);
        let is_changed = self.throttle.set(largest);
        drop(refreshing);
        if is_changed {
            self.emit(|| Event::Pressure {
                keyspace: keyspace.name.clone(),
                permille: largest.permille,
                cause: largest.cause,
            });
        }
    }

    /// Slows a writer down, or holds it until pressure falls. Costs one load without pressure.
    #[inline]
    pub(crate) fn throttle(&self, bytes: u64) -> Result<()> {
        match self.throttle.permille.load(Relaxed) {
            0 => Ok(()),
            permille => self.throttle_slow(bytes, permille),
        }
    }

    fn throttle_slow(&self, bytes: u64, mut permille: u32) -> Result<()> {
        if self.throttle.state.lock().cause == RESERVE_PINNED {
            // Snapshots go without a change of any view.
            let keyspaces: Vec<_> = self.keyspaces.read().values().cloned().collect();
            keyspaces.iter().for_each(|keyspace| self.refresh_pressure(keyspace));
            permille = self.throttle.permille.load(Relaxed);
        }
        if self.options.background == Background::Manual {
            // Nobody else will relieve the pressure.
            while self.throttle.permille.load(Relaxed) >= 1000 && self.run_one_job()? {}
            return Ok(());
        }
        let started = Instant::now();
        if permille < 1000 {
            let permille = self.memtables_permille().max(permille);
            let sleep = self.throttle.charge(bytes, permille);
            if sleep > Duration::ZERO {
                std::thread::sleep(sleep);
                self.count_stall(Counter::delayed_ns, started);
            }
            return Ok(());
        }
        self.wake_background();
        loop {
            self.check_writable()?;
            if self.commit.lock().closed {
                return Err(Error::Closed);
            }
            let mut state = self.throttle.state.lock();
            if self.throttle.permille.load(Relaxed) < 1000 {
                break;
            }
            self.throttle.changed.wait_for(&mut state, STALL_POLL);
        }
        self.count_stall(Counter::stopped_ns, started);
        Ok(())
    }

    /// The memtables' part, taken anew: they fill between two changes of a view.
    fn memtables_permille(&self) -> u32 {
        let keyspaces = self.keyspaces.read();
        let parts = keyspaces.values().map(|keyspace| {
            memtable_permille(&keyspace.view.load(), &keyspace.options.load()).min(999)
        });
        let fullest = parts.max().unwrap_or(0);
        // The lock is taken again below, and a waiting writer would come in between.
        drop(keyspaces);
        fullest.max(self.buffer_permille().min(999))
    }

    fn count_stall(&self, counter: Counter, started: Instant) {
        let took = started.elapsed();
        self.metrics.add(counter, took.as_nanos() as u64);
        self.metrics.stall_ns.record(took);
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
