//! Back-pressure: smooth, never a cliff. Writers are slowed down before they must be stopped:
//!
//!   rate = max rate x (1 - the largest fraction of the way from slowdown to stop)
//!
//! over five limits. Each keyspace has four: memtables that wait for their flush, level-0 runs,
//! compaction debt, and garbage in value files that snapshots hold. The store has one: the
//! memtables' share of the memory budget. Before writers are slowed down for that one, the largest
//! memtable is flushed, full or not. Metrics and events show the state: which limit, since when.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use runstone_policy::policy::compaction_debt_bytes;

use crate::base::env::Env;
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::metrics::Counter;
use crate::base::options::{KeyspaceOptions, MAPPED_SEGMENTS, Options, WalMode};
use crate::base::throttle::Pressure;
use crate::base::value_options::WhenFull;
use crate::catalog::Catalog;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::memtable::Memtable;
use crate::schedule::Relief;
use crate::visibility::snapshot::Visibility;

const RESERVE_PINNED: &str = "snapshots hold the reserve for values";

/// Measures how near the store is to its limits, and slows writers down.
#[derive(Debug)]
pub(crate) struct BackPressure {
    env: Arc<Env>,
    catalog: Arc<Catalog>,
    visibility: Arc<Visibility>,
}

/// The fraction of the way from `slowdown` to `stop`, in thousandths.
fn fraction(value: u64, slowdown: u64, stop: u64) -> u32 {
    if value < slowdown || stop == 0 {
        return 0;
    }
    let way = u128::from(stop.saturating_sub(slowdown).max(1));
    // The slowdown value itself is the first step of the way.
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
    all.into_iter().fold(Pressure::NONE, Pressure::max)
}

/// The pressure of one keyspace's memtables. One that waits is the normal course of a flush. When
/// the last one allowed waits, writers slow down as the active memtable fills, so that they are
/// slow by the time they must stop.
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

/// The memory of all memtables.
struct Buffers {
    used_bytes: u64,
    /// Whether a flush will release some of it.
    is_any_waiting: bool,
    /// The largest active memtable, preferably of a keyspace where no other memtable waits.
    largest: Option<Largest>,
}

struct Largest {
    keyspace: Arc<KeyspaceCore>,
    memtable: Arc<Memtable>,
    bytes: u64,
    /// Whether no memtable of its keyspace waits before it, so that its flush can begin at once.
    is_first: bool,
}

/// The two limits on memtable memory: half and three quarters of the budget, less the mapped
/// segments of the log. At the first, memtables are flushed early and writers slow down; at the
/// second, writers stop.
fn buffer_limits(options: &Options) -> (u64, u64) {
    let budget = options.memory_budget_bytes;
    let log = match options.wal_mode {
        WalMode::Mapped => options.log_segment_bytes() * MAPPED_SEGMENTS,
        WalMode::Write => 0,
    };
    let rest = budget - log;
    (rest / 2, rest / 4 * 3)
}

impl BackPressure {
    pub(crate) fn new(
        env: &Arc<Env>,
        catalog: &Arc<Catalog>,
        visibility: &Arc<Visibility>,
    ) -> BackPressure {
        BackPressure {
            env: Arc::clone(env),
            catalog: Arc::clone(catalog),
            visibility: Arc::clone(visibility),
        }
    }

    /// Measures the pressure of a keyspace again, after its view changed or it was dropped.
    pub(crate) fn refresh(&self, keyspace: &KeyspaceCore) {
        let changed = self.env.throttle.refresh(|| {
            let pressure = measure(&keyspace.view.load(), &keyspace.options.load());
            let pressure = pressure.max(self.reserve_pressure(keyspace));
            keyspace.pressure_permille.store(pressure.permille, Relaxed);
            let others = self.catalog.keyspaces.read();
            // Nobody flushes or compacts a keyspace that was dropped meanwhile, so it exerts no
            // pressure.
            let pressure =
                if others.contains_key(&keyspace.id) { pressure } else { Pressure::NONE };
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
            [others, buffers].into_iter().fold(pressure, Pressure::max)
        });
        if let Some(Pressure { permille, cause }) = changed {
            let keyspace = keyspace.name.clone();
            self.env.emit(|| Event::Pressure { keyspace, permille, cause });
        }
    }

    /// Measures the pressure of every keyspace again.
    pub(crate) fn refresh_all(&self) {
        self.catalog.all().iter().for_each(|keyspace| self.refresh(keyspace));
    }

    /// Slows a writer down, or holds it until pressure falls. Without pressure it costs one load.
    /// `check` says whether the writer may go on waiting; `relief` runs jobs if no worker does.
    #[inline]
    pub(crate) fn admit(
        &self,
        bytes: u64,
        check: &dyn Fn() -> Result<()>,
        relief: &dyn Relief,
    ) -> Result<()> {
        match self.env.throttle.permille() {
            0 => Ok(()),
            permille => self.hold_up(bytes, permille, check, relief),
        }
    }

    fn hold_up(
        &self,
        bytes: u64,
        mut permille: u32,
        check: &dyn Fn() -> Result<()>,
        relief: &dyn Relief,
    ) -> Result<()> {
        let throttle = &self.env.throttle;
        if throttle.cause() == RESERVE_PINNED {
            // A snapshot is dropped without a change of any view.
            self.refresh_all();
            permille = throttle.permille();
        }
        if self.env.is_manual() {
            // No worker relieves the pressure, so the writer does.
            while throttle.permille() >= 1000 && relief.run_one_job()? {}
            return Ok(());
        }
        let started = Instant::now();
        if permille < 1000 {
            let permille = self.memtables_permille().max(permille);
            let sleep = throttle.charge(bytes, permille);
            if sleep > Duration::ZERO {
                std::thread::sleep(sleep);
                self.count_stall(Counter::delayed_ns, started);
            }
            return Ok(());
        }
        relief.wake();
        loop {
            check()?;
            if throttle.wait_a_while() {
                break;
            }
        }
        self.count_stall(Counter::stopped_ns, started);
        Ok(())
    }

    /// Returns the memtable to flush early, after memtables have grown. If none waits, the flush of
    /// the largest begins once that takes half of the limit for all, so that the other half lasts
    /// until the flush is done; a later start ends in a stop. Once all together reach the limit,
    /// the largest is flushed too, unless others wait and it is still small.
    pub(crate) fn memtable_to_flush(&self) -> Option<(Arc<KeyspaceCore>, Arc<Memtable>)> {
        let (soft, _) = buffer_limits(&self.env.options);
        let Buffers { used_bytes, is_any_waiting, largest } = self.buffers();
        let Largest { keyspace, memtable, bytes, is_first } = largest?;
        let least_bytes = if is_any_waiting { soft / 4 } else { 0 };
        let is_wanted = used_bytes >= soft && bytes >= least_bytes;
        let is_half = !is_any_waiting && bytes >= soft / 2;
        if is_first && (is_wanted || is_half) {
            return Some((keyspace, memtable));
        }
        if used_bytes >= soft {
            self.refresh(&keyspace);
        }
        None
    }

    /// The pressure from garbage that snapshots keep from being collected. It begins when that
    /// garbage takes half of the reserve. It never stops writers: when the reserve is full, flushes
    /// wait or fail as `when_full` says. There is none if the file may grow, because then nothing
    /// runs out.
    fn reserve_pressure(&self, keyspace: &KeyspaceCore) -> Pressure {
        let options = &keyspace.options.load().values;
        let values = keyspace.values.load();
        let permille = match &values.current {
            Some(store) if options.when_full != WhenFull::Grow => {
                let reserve = u128::from(options.capacity_bytes);
                let reserve = (reserve * u128::from(options.reserve_permille) / 1000) as u64;
                let pinned = store.all_pinned_bytes(&self.visibility.points());
                fraction(pinned, (reserve / 2).max(1), reserve).min(999)
            }
            _ => 0,
        };
        Pressure { permille, cause: RESERVE_PINNED }
    }

    fn buffers(&self) -> Buffers {
        let mut buffers = Buffers { used_bytes: 0, is_any_waiting: false, largest: None };
        for keyspace in self.catalog.keyspaces.read().values() {
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

    /// The pressure from memtable memory; zero while no flush would release any.
    fn buffer_permille(&self) -> u32 {
        let (soft, hard) = buffer_limits(&self.env.options);
        let buffers = self.buffers();
        match buffers.is_any_waiting {
            true => fraction(buffers.used_bytes, soft, hard),
            false => 0,
        }
    }

    /// Measures the memtables' part again, because they fill between two changes of a view.
    fn memtables_permille(&self) -> u32 {
        let keyspaces = self.catalog.keyspaces.read();
        let parts = keyspaces.values().map(|keyspace| {
            memtable_permille(&keyspace.view.load(), &keyspace.options.load()).min(999)
        });
        let fullest = parts.max().unwrap_or(0);
        // The lock is taken again below, and a thread that waits to write-lock it could come
        // between.
        drop(keyspaces);
        fullest.max(self.buffer_permille().min(999))
    }

    fn count_stall(&self, counter: Counter, started: Instant) {
        let took = started.elapsed();
        self.env.metrics.add(counter, took.as_nanos() as u64);
        self.env.metrics.stall_ns.record(took);
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
}
