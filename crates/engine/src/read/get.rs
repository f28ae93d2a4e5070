//! Point reads: memtables, then the levels, then the value file. They take no lock.

use std::sync::Arc;
use std::time::Instant;

use crate::catalog::dead_ranges::WalkNotes;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::filter;
use crate::keys::expiry;
use crate::keys::{
    Kind, SeqNo, is_delete, is_operand, is_pointer, kind_of, seq_of, unsupported_kind,
};
use crate::metrics::{Counter, sampled};
use crate::read::fold::Folded;
use crate::schedule::Schedule;
use crate::table::iterator::Access;
use crate::table::reader::ProbeStats;
use crate::values::Value;
use crate::values::separation::ValueFiles;
use crate::visibility::snapshot::{Snapshot, Visibility};

/// The state that a reader keeps for several look-ups, see [`Reader::moment`].
struct Moment {
    view: Arc<View>,
    /// Set if the keyspace separates values.
    held: Option<Snapshot>,
}

/// Reads keyspaces.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) env: Arc<Env>,
    pub(crate) visibility: Arc<Visibility>,
    schedule: Arc<Schedule>,
    /// Receives the hidden entries that walks pass.
    pub(super) walks: Arc<dyn WalkNotes>,
}

impl Reader {
    pub(crate) fn new(
        env: &Arc<Env>,
        visibility: &Arc<Visibility>,
        schedule: &Arc<Schedule>,
        walks: Arc<dyn WalkNotes>,
    ) -> Reader {
        Reader {
            env: Arc::clone(env),
            visibility: Arc::clone(visibility),
            schedule: Arc::clone(schedule),
            walks,
        }
    }

    pub(crate) fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.is_of(&self.visibility) {
            return Ok(());
        }
        Err(Error::invalid("the snapshot is of another store", "take it from the same store"))
    }

    /// Refuses a read at a snapshot of another store, or after a close.
    fn check_at(&self, keyspace: &KeyspaceCore, snapshot: &Snapshot) -> Result<()> {
        keyspace.check_open()?;
        self.check_snapshot(snapshot)
    }

    /// Looks up a key. The value borrows its block from the cache where that saves a copy.
    pub(crate) fn get(&self, keyspace: &KeyspaceCore, key: &[u8]) -> Result<Option<Value>> {
        self.get_with(keyspace, key, |_| ())
    }

    /// Looks up a key. If the value was computed from many operands, `folded` gets it.
    #[inline]
    pub(crate) fn get_with(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        folded: impl FnOnce(&Folded),
    ) -> Result<Option<Value>> {
        keyspace.check_readable()?;
        // The view is loaded before the sequence number. Whatever compactions dropped from the view
        // is hidden by writes that were visible when the view was made.
        let view = keyspace.view.load();
        reached!(GetViewLoaded);
        let seq = self.visibility.now();
        reached!(GetBegun);
        if keyspace.lacks_load(&view) {
            drop(view);
            return self.get_at(keyspace, key, &self.visibility.snapshot());
        }
        match self.get_in::<true>(keyspace, &view, key, seq)? {
            Got::Value(value) => Ok(value),
            Got::Folded(many) => {
                folded(&Folded { value: &many.value, newest: many.newest, view: &view, seq });
                Ok(Some(many.value))
            }
            Got::Collected if seeded!(GetDoesNotLookAgain) => Ok(None),
            Got::Collected => {
                // The version was replaced meanwhile, and its value was collected. For a registered
                // reader this cannot happen again.
                drop(view);
                self.get_at(keyspace, key, &self.visibility.snapshot())
            }
        }
    }

    /// Looks up a key as of a snapshot of the same store.
    pub(crate) fn get_at(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        snapshot: &Snapshot,
    ) -> Result<Option<Value>> {
        self.check_at(keyspace, snapshot)?;
        self.get_registered(keyspace, key, snapshot.seq())
    }

    /// Whether a key has a value, now or at a snapshot of the same store.
    pub(crate) fn contains(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        snapshot: Option<&Snapshot>,
    ) -> Result<bool> {
        match snapshot {
            None => keyspace.check_readable()?,
            Some(snapshot) => self.check_at(keyspace, snapshot)?,
        }
        // In the same order as in `get`.
        let view = keyspace.view.load();
        let seq = snapshot.map_or_else(|| self.visibility.now(), Snapshot::seq);
        if snapshot.is_none() && keyspace.lacks_load(&view) {
            drop(view);
            return self.contains(keyspace, key, Some(&self.visibility.snapshot()));
        }
        match (self.get_in::<false>(keyspace, &view, key, seq)?, snapshot) {
            (Got::Value(value), _) => Ok(value.is_some()),
            (Got::Folded(_), _) => Ok(true),
            // The value to which the operands apply was collected meanwhile.
            (Got::Collected, None) => {
                drop(view);
                self.contains(keyspace, key, Some(&self.visibility.snapshot()))
            }
            (Got::Collected, Some(_)) => Ok(self.get_registered(keyspace, key, seq)?.is_some()),
        }
    }

    /// Looks up a key at a sequence number that a snapshot holds, so its values are kept.
    pub(super) fn get_registered(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<Option<Value>> {
        // A compaction may have moved the version's value to another file since the view was
        // loaded; the next view shows it. A file is removed after the tree that leads to it, so if
        // the view is the same, the value is gone.
        let mut view = keyspace.view.load();
        loop {
            match self.get_in::<true>(keyspace, &view, key, seq)? {
                Got::Value(value) => return Ok(value),
                Got::Folded(many) => return Ok(Some(many.value)),
                Got::Collected => {}
            }
            let before = std::mem::replace(&mut view, keyspace.view.load());
            if Arc::ptr_eq(&before, &view) {
                let what = format!("the value of key \"{}\" is gone", key.escape_ascii());
                return Err(Error::corruption("a value file", 0, what));
            }
        }
    }

    /// Looks up many keys at one moment, that of a snapshot or the present, and returns the results
    /// in the order of the keys. It searches them in sorted order, so that neighbours share a block
    /// while the processor caches it.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceCore,
        keys: &[K],
        snapshot: Option<&Snapshot>,
    ) -> Result<Vec<Option<Value>>> {
        match snapshot {
            None => keyspace.check_readable()?,
            Some(snapshot) => self.check_at(keyspace, snapshot)?,
        }
        let (Moment { view, held, .. }, now) = self.moment_now(keyspace, snapshot);
        let seq = held.as_ref().map_or(now, Snapshot::seq);
        reached!(GetBegun);
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|a, b| keys[*a].as_ref().cmp(keys[*b].as_ref()));
        let mut values = vec![None; keys.len()];
        for i in order {
            let key = keys[i].as_ref();
            values[i] = match self.get_in::<true>(keyspace, &view, key, seq)? {
                Got::Value(value) => value,
                Got::Folded(many) => Some(many.value),
                Got::Collected => self.get_registered(keyspace, key, seq)?,
            };
        }
        Ok(values)
    }

    /// The present view, and all value files that it leads to, for a reader whose sequence number
    /// is registered. Such a reader may load both again at any time. A value file is published
    /// before the tree that leads to it, and removed after that tree. So a view that was loaded
    /// while the files stayed the same leads to no other files.
    pub(crate) fn present(&self, keyspace: &KeyspaceCore) -> (Arc<View>, Arc<ValueFiles>) {
        loop {
            let values = keyspace.values.load_full();
            let view = keyspace.view.load_full();
            reached!(ViewLoaded);
            if Arc::ptr_eq(&values, &keyspace.values.load()) {
                return (view, values);
            }
        }
    }

    /// The state that several look-ups at one moment need. If the keyspace has value files, only a
    /// snapshot keeps the values of one moment, and it is taken before the view is loaded.
    /// Otherwise the view is loaded before the sequence number, as in gets; see [`Reader::present`]
    /// for the files.
    fn moment(&self, keyspace: &KeyspaceCore, given: Option<&Snapshot>) -> Moment {
        let mut held = given.cloned();
        loop {
            let values = keyspace.values.load_full();
            if held.is_none() && !values.is_empty() && !seeded!(CursorDoesNotRegister) {
                held = Some(self.visibility.snapshot());
            }
            let view = keyspace.view.load_full();
            reached!(ViewLoaded);
            if Arc::ptr_eq(&values, &keyspace.values.load()) {
                return Moment { view, held };
            }
        }
    }

    /// A moment, and the sequence number to read at if the moment holds no snapshot.
    fn moment_now(&self, keyspace: &KeyspaceCore, given: Option<&Snapshot>) -> (Moment, SeqNo) {
        let moment = self.moment(keyspace, given);
        let now = self.visibility.now();
        if moment.held.is_none() && keyspace.lacks_load(&moment.view) {
            let snapshot = self.visibility.snapshot();
            return (self.moment(keyspace, Some(&snapshot)), now);
        }
        (moment, now)
    }

    /// Without `FETCH`, a separated value is not read, and the result is empty.
    fn get_in<const FETCH: bool>(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<Got> {
        let started = sampled().then(Instant::now);
        let mut stats = ProbeStats::default();
        let value = self.get_value::<FETCH>(keyspace, view, key, seq, &mut stats)?;
        self.env.metrics.add_all(&[
            (Counter::gets, 1),
            (hit_counter(&stats), u64::from(stats.in_memtable || stats.hit_level.is_some())),
            (Counter::get_hits, u64::from(!matches!(value, Got::Value(None) | Got::Collected))),
            (Counter::tables_probed, stats.tables),
            (Counter::tables_probed_after_hit, stats.tables_after_hit),
            (Counter::filter_negatives, stats.filter_negatives),
            (Counter::filter_false_positives, stats.false_positives),
            (Counter::blocks_searched, stats.blocks),
            (Counter::blocks_read, stats.block_reads),
        ]);
        if stats.hot || view.version.wants_seek(&stats) && view.version.charge_seek(key) {
            self.stir(keyspace);
        }
        if let Some(started) = started {
            self.env.metrics.record_get(started.elapsed());
            self.env.metrics.heat.note(keyspace.id, key, started);
        }
        Ok(value)
    }

    /// Has the keyspace's policy decide again, because tables were charged often.
    pub(super) fn stir(&self, keyspace: &KeyspaceCore) {
        self.schedule.stir(keyspace.id);
    }

    fn get_value<const FETCH: bool>(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Got> {
        if let Some((memtable, record)) = view.in_memtables(key, seq) {
            stats.in_memtable = true;
            let (trailer, value) = (record.trailer(), record.value());
            if is_delete(trailer) || view.memtables_hide(key, seq_of(trailer), seq) {
                return Ok(Got::Value(None));
            }
            if kind_of(trailer) == Kind::Put as u8 {
                return Ok(Got::Value(Some(Value::in_memtable(memtable, record))));
            }
            if is_operand(trailer) {
                let (now_ms, access) = (self.env.watch.now_ms(), Access::Cached { fill: true });
                return self.fold(keyspace, view, key, seq, now_ms, access);
            }
            return match is_pointer(trailer) {
                true => self.pointed::<FETCH>(keyspace, key, trailer, value),
                false => Ok(Got::Value(self.unexpired(value).map(Value::owned))),
            };
        }
        let Some((found, block)) = view.version.search(key, filter::hash(key), seq, stats)? else {
            return Ok(Got::Value(None));
        };
        if view.hides(key, seq_of(found.trailer), seq) {
            return Ok(Got::Value(None));
        }
        match Kind::from_u8(kind_of(found.trailer)) {
            Some(Kind::Delete | Kind::RangeDelete) => Ok(Got::Value(None)),
            Some(Kind::Put) => {
                Ok(Got::Value(Some(Value::in_block(&block, found.value_at, found.value_len))))
            }
            Some(Kind::ValuePointer | Kind::Relocate | Kind::ExpiringPointer) => {
                let pointer = block.slice(found.value_at, found.value_len);
                self.pointed::<FETCH>(keyspace, key, found.trailer, pointer)
            }
            Some(Kind::Merge) => {
                let (now_ms, access) = (self.env.watch.now_ms(), Access::Cached { fill: true });
                self.fold(keyspace, view, key, seq, now_ms, access)
            }
            Some(Kind::ExpiringPut) => {
                let entry = block.slice(found.value_at, found.value_len);
                let value = self.unexpired(entry).map(|value| value.len() as u32);
                Ok(Got::Value(value.map(|len| Value::in_block(&block, found.value_at, len))))
            }
            None => Err(unsupported_kind(found.trailer)),
        }
    }

    #[inline]
    fn pointed<const FETCH: bool>(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        trailer: u64,
        pointer: &[u8],
    ) -> Result<Got> {
        match FETCH {
            true => self.follow(keyspace, key, trailer, pointer),
            false => {
                let is_there = !self.has_expired(trailer, pointer);
                Ok(Got::Value(is_there.then(|| Value::owned([]))))
            }
        }
    }

    pub(super) fn follow(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        trailer: u64,
        pointer: &[u8],
    ) -> Result<Got> {
        match self.has_expired(trailer, pointer) {
            true => Ok(Got::Value(None)),
            false => self.follow_unexpired(keyspace, key, trailer, pointer),
        }
    }

    /// The value behind a pointer. Whether the entry has expired is not checked.
    pub(super) fn follow_unexpired(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        trailer: u64,
        pointer: &[u8],
    ) -> Result<Got> {
        self.env.metrics.add(Counter::values_read, 1);
        reached!(PointerFound);
        let access = Access::Cached { fill: true };
        let value = keyspace.values.load().resolve(key, trailer, pointer, access)?;
        Ok(value.map_or(Got::Collected, |value| Got::Value(Some(value))))
    }

    /// The value of an expiring entry, if it has not expired.
    pub(super) fn unexpired<'a>(&self, entry: &'a [u8]) -> Option<&'a [u8]> {
        let (value, at_ms) = expiry::split(entry);
        (at_ms > self.env.watch.now_ms()).then_some(value)
    }

    /// Whether the entry has expired.
    pub(super) fn has_expired(&self, trailer: u64, entry: &[u8]) -> bool {
        let at_ms = expiry::expiry_of(trailer, entry);
        at_ms.is_some_and(|at_ms| at_ms <= self.env.watch.now_ms())
    }
}

/// The result of a look-up.
pub(super) enum Got {
    /// The value, or `None` if the key has none.
    Value(Option<Value>),
    /// A value that was computed from many operands. It is boxed, so that other gets do not pay for
    /// its size.
    Folded(Box<Many>),
    /// A version whose value was collected, because a newer one exists.
    Collected,
}

/// The value that was computed from many operands.
pub(super) struct Many {
    pub(super) value: Value,
    /// The sequence number of the newest operand.
    pub(super) newest: SeqNo,
}

/// The counter for the place where a get ended.
pub(super) fn hit_counter(stats: &ProbeStats) -> Counter {
    match stats.hit_level {
        None => Counter::hits_memtable,
        Some(0) => Counter::hits_level_0,
        Some(1) => Counter::hits_level_1,
        Some(2) => Counter::hits_level_2,
        Some(3) => Counter::hits_level_3,
        Some(_) => Counter::hits_deeper,
    }
}
