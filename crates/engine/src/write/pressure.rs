//! Back-pressure that grows smoothly, without a cliff. Writers are slowed down before they must
//! stop:
//!
//!   rate = max rate x (1 - the largest fraction of the way from slowdown to stop)
//!
//! Six limits count. Each keyspace has five: memtables that wait for their flush, level-0 runs,
//! compaction debt, the space bound, and garbage in value files that snapshots keep. The store has
//! one: the share of memtables in the memory budget. Before writers are slowed down for that limit,
//! the largest memtable is flushed, full or not. Metrics and events show which limit slows writers
//! down, and since when.

use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, looked, rank};
use runstone_policy::policy::{compaction_debt_bytes, space_percent};
use runstone_policy::shape::Shape;
use runstone_policy::units::Thousandths;

use crate::cache::Cache;
use crate::callbacks::callback::Inside;
use crate::callbacks::event::Event;
use crate::catalog::Catalog;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::env::Env;
use crate::error::Result;
use crate::keys::KeyspaceId;
use crate::metrics::Counter;
use crate::options::store::KeyspaceOptions;
use crate::options::values::WhenFull;
use crate::pace::throttle::{Pressure, fraction};
use crate::schedule::Relief;
use crate::sync::threads;
use crate::visibility::snapshot::{Readers, Visibility};
use crate::write::buffers::{Buffers, Part, buffer_limits};
use crate::write::siblings::{Candidate, Sibling, Siblings};

/// Memtables are looked at each time they have grown by this fraction of their limit.
const LOOKS_PER_LIMIT: u64 = 64;

/// How many keyspaces are measured under one hold of the lock of those that exert pressure.
const MEASURED_AT_ONCE: usize = 256;

/// If no more keyspaces than this exert pressure, each delayed write looks at all of them.
const MOST_LOOKED_AT: usize = 16;

const BUFFERS: &str = "memtables fill their share of the memory budget";
const RESERVE_PINNED: &str = "snapshots hold the reserve for values";

/// Measures how near the store is to its limits, and slows writers down.
#[derive(Debug)]
pub(crate) struct BackPressure {
    env: Arc<Env>,
    catalog: Arc<Catalog>,
    visibility: Arc<Visibility>,
    siblings: Arc<Siblings>,
    pressed: Mutex<rank::Pressed, Pressed>,
    /// The value of [`Visibility::released`] when writers last looked at what snapshots keep.
    released: AtomicU64,
    /// The memory of memtables when it was last measured, and the turn of that measurement.
    buffers: Mutex<rank::MeasuredBuffers, (u64, Buffers)>,
    /// The turn of the last measurement that began. Measurements run beside each other, because
    /// there may be very many memtables. One with a later turn saw all that one with an earlier
    /// turn did, so it stays.
    turns: AtomicU64,
    /// How much memory memtables had taken in total when some were last chosen for a flush.
    looked_at_bytes: AtomicU64,
}

/// The keyspaces that exert pressure. Usually there are none, however many keyspaces exist.
#[derive(Debug, Default)]
struct Pressed {
    by_id: BTreeMap<KeyspaceId, (Arc<KeyspaceCore>, Pressure)>,
    /// The same, by pressure.
    by_permille: BTreeSet<(u32, KeyspaceId)>,
    /// The pressure of their memtables when it was last measured, and how much memory memtables had
    /// taken in total by then.
    memtables: Option<(u32, u64)>,
}

impl Pressed {
    fn set(&mut self, keyspace: &Arc<KeyspaceCore>, pressure: Pressure) {
        let id = keyspace.id;
        let before = match pressure.permille {
            0 => self.by_id.remove(&id),
            permille => {
                self.by_permille.insert((permille, id));
                self.by_id.insert(id, (Arc::clone(keyspace), pressure))
            }
        };
        if let Some((_, before)) = before.filter(|(_, old)| old.permille != pressure.permille) {
            self.by_permille.remove(&(before.permille, id));
        }
    }

    /// The keyspace with the largest pressure, and that pressure.
    fn worst(&self) -> (Option<Arc<KeyspaceCore>>, Pressure) {
        let worst = self.by_permille.last().and_then(|(_, id)| self.by_id.get(id));
        let (keyspace, pressure) = worst.cloned().unzip();
        (keyspace, pressure.unwrap_or(Pressure::NONE))
    }
}

fn measure(view: &View, options: &KeyspaceOptions, cache: &Cache) -> Pressure {
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
        (memtable_permille(view, options, cache), "memtables wait for their flush"),
        (runs, "level 0 has too many runs"),
        (debt, "compaction debt"),
        (space_permille(view, options), "tables take more than the space bound"),
    ];
    let all = all.map(|(permille, cause)| Pressure { permille, cause });
    all.into_iter().fold(Pressure::NONE, Pressure::max)
}

/// The pressure from garbage in tables beyond the space bound. Writers are slowed down above the
/// bound, and are slowest at twice the garbage that the bound allows. They never stop: only a
/// compaction of the whole tree frees the space, and it may have to wait for a load or for other
/// compactions.
fn space_permille(view: &View, options: &KeyspaceOptions) -> u32 {
    let bound = options.numbers().max_space_percent;
    let percent = space_percent(&view.version.shape, bound);
    let stop = (u64::from(bound) * 2).saturating_sub(100);
    fraction(percent, u64::from(bound) + 1, stop).min(999)
}

/// Whether writers are slowed down until level 0 shrinks: because of its runs, or because of a debt
/// that includes them. O(1) below the trigger, O(tables) above it.
pub(crate) fn level_0_slows_writers(shape: &Shape, options: &KeyspaceOptions) -> bool {
    let runs = shape.level(0).runs().len() as u64;
    if runs < u64::from(options.shape.l0_trigger()) {
        return false;
    }
    let debt = |slow| {
        let policy = options.compaction_policy().ok()?;
        Some(compaction_debt_bytes(shape, policy, &options.shape) >= slow)
    };
    runs >= u64::from(options.l0_slowdown_runs)
        || options.debt_slowdown_bytes > 0 && debt(options.debt_slowdown_bytes) == Some(true)
}

/// How near the tree of a keyspace is to slowing writers down, in thousandths. At 1000 they are
/// slowed down. Memtables are left out, because flushes relieve them and compactions do not.
pub(crate) fn fullness_permille(keyspace: &KeyspaceCore) -> u64 {
    let (view, options) = (keyspace.view.load(), keyspace.options.load());
    let shape = &view.version.shape;
    let part = |value: u64, slowdown: u64| value.saturating_mul(1000) / slowdown.max(1);
    let runs = part(shape.level(0).runs().len() as u64, options.l0_slowdown_runs.into());
    let bound = options.numbers().max_space_percent;
    let full = runs.max(part(space_percent(shape, bound), u64::from(bound) + 1));
    match (options.debt_slowdown_bytes, options.compaction_policy()) {
        (0, _) | (_, Err(_)) => full,
        (slow, Ok(policy)) => {
            full.max(part(compaction_debt_bytes(shape, policy, &options.shape), slow))
        }
    }
}

/// The pressure of the memtables of one keyspace. During a flush it is normal that one memtable
/// waits. When the last allowed memtable waits, writers slow down as the active memtable fills, so
/// that they are slow by the time they must stop.
fn memtable_permille(view: &View, options: &KeyspaceOptions, cache: &Cache) -> u32 {
    let waiting = view.immutable.len() as u64;
    match waiting.cmp(&u64::from(options.max_immutable_memtables)) {
        Ordering::Greater => 1000,
        Ordering::Equal => {
            let filled = view.active.allocated_bytes() as u64 * 1000;
            (filled / cache.memtable_bytes(options.write_buffer_bytes).max(1)).clamp(1, 999) as u32
        }
        Ordering::Less => 0,
    }
}

impl BackPressure {
    pub(crate) fn new(
        env: &Arc<Env>,
        catalog: &Arc<Catalog>,
        visibility: &Arc<Visibility>,
        siblings: &Arc<Siblings>,
    ) -> BackPressure {
        BackPressure {
            env: Arc::clone(env),
            catalog: Arc::clone(catalog),
            visibility: Arc::clone(visibility),
            siblings: Arc::clone(siblings),
            pressed: Mutex::default(),
            released: AtomicU64::new(0),
            buffers: Mutex::default(),
            turns: AtomicU64::new(0),
            looked_at_bytes: AtomicU64::new(0),
        }
    }

    /// Measures the pressure of keyspaces again, after their views changed or they were dropped.
    pub(crate) fn refresh<'a>(&self, keyspaces: impl IntoIterator<Item = &'a Arc<KeyspaceCore>>) {
        let was_full = self.buffers.lock().1.is_full;
        self.refresh_with(keyspaces, || self.present_buffers());
        let (_, buffers) = *self.buffers.lock();
        if buffers.is_full || was_full {
            // The writers of other stores fill the same budget. This is not done under the
            // throttle's lock, because two stores may do it at the same time. A thread that waits
            // for an outdated measurement measures again. The caller may hold locks of this store,
            // so listeners of the other stores must not call this store.
            let _inside = Inside::of(self.env.opening);
            let siblings = self.siblings.beside(self.env.opening);
            siblings.iter().for_each(|(_, sibling)| sibling.press(buffers));
        }
    }

    /// Does the same after another store has measured all memtables.
    pub(super) fn take_over(&self, buffers: Buffers) {
        self.refresh_with([], || buffers);
    }

    fn refresh_with<'a>(
        &self,
        keyspaces: impl IntoIterator<Item = &'a Arc<KeyspaceCore>>,
        measure_buffers: impl FnOnce() -> Buffers,
    ) {
        let readers = OnceCell::new();
        let mut keyspaces = keyspaces.into_iter().peekable();
        while keyspaces.peek().is_some() {
            // They are measured under the lock, so that the last measurement of a keyspace stays.
            let mut pressed = self.pressed.lock();
            for keyspace in keyspaces.by_ref().take(MEASURED_AT_ONCE) {
                looked(1);
                pressed.set(keyspace, self.pressure_of(keyspace, &readers));
            }
        }
        let turn = self.turns.fetch_add(1, AcqRel) + 1;
        let buffers = measure_buffers();
        let mut named = None;
        let changed = self.env.throttle.refresh(|| {
            let (keyspace, pressure) = {
                let mut pressed = self.pressed.lock();
                pressed.memtables = None;
                pressed.worst()
            };
            let (_, buffers) = {
                let mut measured = self.buffers.lock();
                if measured.0 < turn {
                    *measured = (turn, buffers);
                }
                *measured
            };
            let buffers = Pressure { permille: buffers.permille(&self.env), cause: BUFFERS };
            // The pressure of the memtables belongs to the whole store.
            named = keyspace.filter(|_| pressure.permille >= buffers.permille);
            pressure.max(buffers)
        });
        if let Some(Pressure { permille, cause }) = changed {
            let keyspace = named.map_or(String::new(), |keyspace| keyspace.name.clone());
            let level = Thousandths::of_parts(permille);
            self.env.emit(|| Event::Pressure { keyspace, level, cause });
        }
    }

    /// The pressure of one keyspace. Nobody flushes or compacts a dropped keyspace, so it exerts
    /// none.
    fn pressure_of(&self, keyspace: &KeyspaceCore, readers: &OnceCell<Readers>) -> Pressure {
        if !self.catalog.keyspaces.read().contains_key(&keyspace.id) {
            return Pressure::NONE;
        }
        let pressure =
            measure(&keyspace.view.load(), &keyspace.options.load(), &self.catalog.tables.cache);
        pressure.max(self.reserve_pressure(keyspace, readers))
    }

    /// Slows a writer down, or holds it until the pressure falls. Without pressure this costs one
    /// load. `check` says whether the writer may continue to wait. `relief` runs jobs if no worker
    /// does.
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
            self.refresh_if_released();
        }
        self.refresh_if_free();
        permille = permille.min(throttle.permille());
        if self.env.is_manual() || threads::is_worker() {
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
            self.refresh_for_others();
        }
        self.count_stall(Counter::stopped_ns, started);
        Ok(())
    }

    /// Measures again what snapshots keep if any snapshot was dropped, because that changes no
    /// view. Each write that snapshots hold up calls this, and a measurement takes O(snapshots).
    fn refresh_if_released(&self) {
        let released = self.visibility.released();
        if self.released.swap(released, Relaxed) != released {
            let pressed = self.pressed.lock();
            let all: Vec<_> = pressed.by_id.values().map(|(one, _)| Arc::clone(one)).collect();
            drop(pressed);
            self.refresh(&all);
        }
    }

    /// Ends the pressure of memtables once all of them together are below the limit. Another store
    /// may have freed its memtables by closing, which notified nobody. O(1).
    fn refresh_if_free(&self) {
        let (soft, _) = buffer_limits(&self.env);
        if self.env.is_sharing && self.catalog.pool.in_use_bytes() < soft {
            self.refresh_for_others();
        }
    }

    /// Measures again, because what other stores reported about memtables in a shared budget may be
    /// out of date.
    fn refresh_for_others(&self) {
        if self.env.is_sharing && self.env.throttle.cause() == BUFFERS {
            self.refresh_with([], || self.present_buffers());
        }
    }

    /// Returns the memtables to flush early, after memtables have grown.
    ///
    /// If none waits, the flush of the largest one begins once it uses half of the limit for all.
    /// Then the other half lasts until the flush is done; a flush that begins later would make
    /// writers stop. Once all memtables together reach the limit, the largest are flushed until the
    /// waiting ones use a quarter of the limit. There may be thousands of small ones, and one flush
    /// at a time would never catch up.
    pub(crate) fn memtables_to_flush(&self) -> Vec<Candidate> {
        let (soft, _) = buffer_limits(&self.env);
        // With many memtables, most growth is small and changes nothing.
        let looked_at = self.looked_at_bytes.load(Relaxed);
        let taken = self.catalog.pool.taken_bytes();
        if taken.saturating_sub(looked_at) < soft / LOOKS_PER_LIMIT {
            return Vec::new();
        }
        self.looked_at_bytes.store(taken, Relaxed);
        let mut candidates = Vec::new();
        let buffers = self.measure_buffers(|view, keyspace, sibling| {
            let is_stuck = sibling.is_some_and(|(_, store)| !store.flushes_by_itself());
            if view.immutable.is_empty() && !view.active.is_empty() && !is_stuck {
                candidates.push(Candidate {
                    sibling: sibling.map(|(number, store)| (number, Arc::clone(store))),
                    bytes: view.active.reserved_bytes() as u64,
                    keyspace: Arc::clone(keyspace),
                    memtable: Arc::clone(&view.active),
                });
            }
        });
        let Part { used_bytes, mut waiting_bytes } = buffers.of(&self.env);
        candidates.sort_by_key(|candidate| Reverse(candidate.bytes));
        let mut chosen = Vec::new();
        for candidate in candidates {
            let bytes = candidate.bytes;
            let is_half = waiting_bytes == 0 && bytes >= soft / 2;
            let is_wanted = used_bytes >= soft && (waiting_bytes < soft / 4 || bytes >= soft / 4);
            if !is_half && !is_wanted {
                break;
            }
            waiting_bytes += bytes;
            chosen.push(candidate);
        }
        if chosen.is_empty() && used_bytes >= soft {
            self.refresh([]);
        }
        chosen
    }

    /// The pressure from garbage that snapshots keep from being collected. It begins when that
    /// garbage fills half of the reserve. It never stops writers: when the reserve is full, flushes
    /// wait or fail as `when_full` says. If the file may grow there is no such pressure, because
    /// nothing runs out.
    fn reserve_pressure(&self, keyspace: &KeyspaceCore, readers: &OnceCell<Readers>) -> Pressure {
        let options = &keyspace.options.load().values;
        let values = keyspace.values.load();
        let permille = match &values.current {
            Some(store) if options.when_full != WhenFull::Grow => {
                let reserve = u128::from(options.capacity_bytes);
                let reserve = (reserve * u128::from(options.reserve.parts()) / 1000) as u64;
                let readers = readers.get_or_init(|| self.visibility.readers());
                let pinned = store.all_pinned_bytes(readers);
                fraction(pinned, (reserve / 2).max(1), reserve).min(999)
            }
            _ => 0,
        };
        Pressure { permille, cause: RESERVE_PINNED }
    }

    /// Measures all memtables. `look` receives the view of each keyspace that has any memtables,
    /// and the other store to which it belongs, if it belongs to one.
    fn measure_buffers(
        &self,
        mut look: impl FnMut(&View, &Arc<KeyspaceCore>, Option<(u64, &Arc<dyn Sibling>)>),
    ) -> Buffers {
        let measured_at_bytes = self.catalog.pool.taken_bytes();
        let mut buffers = Buffers { measured_at_bytes, is_full: true, ..Buffers::default() };
        let Buffers { flushable, stuck, .. } = &mut buffers;
        let mut add = |part: &mut Part, keyspace: &Arc<KeyspaceCore>, sibling| {
            let view = keyspace.view.load();
            let waiting = view.immutable.iter().map(|memtable| memtable.reserved_bytes() as u64);
            let waiting: u64 = waiting.sum();
            part.waiting_bytes += waiting;
            part.used_bytes += waiting + view.active.reserved_bytes() as u64;
            look(&view, keyspace, sibling);
        };
        let own = if self.env.flushes_by_itself() { &mut *flushable } else { &mut *stuck };
        self.catalog.unflushed.for_each(|keyspace| add(own, keyspace, None));
        for (number, store) in &self.siblings.beside(self.env.opening) {
            let part = if store.flushes_by_itself() { &mut *flushable } else { &mut *stuck };
            store.unflushed().for_each(|keyspace| add(part, keyspace, Some((*number, store))));
        }
        buffers
    }

    /// The memory of memtables, measured again after a change of any view.
    fn present_buffers(&self) -> Buffers {
        let (soft, _) = buffer_limits(&self.env);
        match self.catalog.pool.in_use_bytes() < soft {
            true => Buffers::default(),
            false => self.measure_buffers(|_, _, _| {}),
        }
    }

    /// The pressure that memtables exert now: they fill between two changes of a view. Each delayed
    /// write calls this. If many keyspaces exert pressure, they are looked at only once memtables
    /// have taken more memory.
    fn memtables_permille(&self) -> u32 {
        let (_, mut buffers) = *self.buffers.lock();
        let taken = self.catalog.pool.taken_bytes();
        buffers.flushable.used_bytes += taken.saturating_sub(buffers.measured_at_bytes);
        buffers.permille(&self.env).max(self.fullest_permille(taken)).min(999)
    }

    /// The largest pressure of the memtables of one keyspace. `taken` is the memory that memtables
    /// have taken in total.
    fn fullest_permille(&self, taken: u64) -> u32 {
        let mut pressed = self.pressed.lock();
        match pressed.memtables {
            Some((permille, at)) if at == taken && pressed.by_id.len() > MOST_LOOKED_AT => permille,
            _ => {
                let own = |(keyspace, _): &(Arc<KeyspaceCore>, Pressure)| {
                    let (view, options) = (keyspace.view.load(), keyspace.options.load());
                    memtable_permille(&view, &options, &self.catalog.tables.cache)
                };
                let permille = pressed.by_id.values().map(own).max().unwrap_or(0);
                pressed.memtables = Some((permille, taken));
                permille
            }
        }
    }

    fn count_stall(&self, counter: Counter, started: Instant) {
        let took = started.elapsed();
        self.env.metrics.add(counter, took.as_nanos() as u64);
        self.env.metrics.stall_ns.record(took);
    }
}
