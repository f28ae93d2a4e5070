//! Garbage collection of a hash group, by the group alone (HashKV §3.3; spec: value placement §3).
//!
//! 1. Choose the group that promises to free most; less than a slot is not worth it.
//! 2. Seal it: what is appended from now on goes to new segments behind.
//! 3. Only then take the numbers that readers look from. A version that is written later lies
//!    behind the seal.
//! 4. Scan the sealed segments. Of each key keep the newest version and, for each snapshot, the
//!    newest that it sees; of those drop what merges found dead.
//! 5. Copy the survivors, in order, to fresh slots, each with its voff; sync. Segments at the front
//!    and at the end whose copying would free nothing stay as they are (`keep`).
//! 6. One manifest edit replaces the segments. The tree is neither read nor written: pointers are
//!    voffs, and a put that happens meanwhile cannot be lost.
//! 7. Slots are free when the last reader of the old segments has gone.
//!
//! A damaged record ends the collection and quarantines the group: nothing of it is dropped.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::sketch::Sketch;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::key::{SeqNo, head};
use crate::memtable::{Memtable, MemtableIter};
use crate::metrics::Counter;
use crate::store::{Inner, KeyspaceInner};
use crate::value::keep::{Entry, Scanned, rewritten, survivors};
use crate::value::layout::{GroupEdit, Segment, ValueEdit};
use crate::value::options::{ValueOptions, ValuePlacement};
use crate::value::record::{Record, footer_bytes, record_bytes};
use crate::value::store::{State, ValueStore};
use crate::version::manifest::Manifest;
use crate::version::record::Change;

/// Segments of a group are held in memory between scan and copy up to this size; beyond it
/// survivors are read again.
const HELD_BYTES: u64 = 64 << 20;

/// How an attempt to collect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Slots were freed, or will be when readers let go.
    Freed,
    /// Another collection, or a flush, is at work.
    Busy,
    /// No group promises a slot.
    Nothing,
}

/// A sealed group.
#[derive(Debug)]
struct Sealed {
    group: u32,
    segments: Arc<Vec<Segment>>,
    dead: BTreeMap<u64, u32>,
    /// The segment that was being filled, if there was one.
    open: Option<Segment>,
}

impl ValueStore {
    /// Whether collection should run before `need_slots` more are taken.
    pub(crate) fn wants_collection(
        &self,
        options: &ValueOptions,
        need_slots: u64,
        points: &[SeqNo],
    ) -> bool {
        if self.retired_at() != 0 {
            return false;
        }
        let mut state = self.state.lock();
        state.reclaim();
        state.pool.used() + need_slots > self.limit_slots(&state, options)
            && self.choose(&state, points).is_some()
    }

    /// Slots that these bytes take beyond the open segments.
    fn planned_slots(&self, state: &State, bytes: &BTreeMap<u32, u64>) -> u64 {
        let slots = |(group, bytes): (&u32, &u64)| {
            let open = state.open.get(group);
            let room = open.map_or(0, |open| self.slot_bytes.saturating_sub(open.bytes));
            bytes.saturating_sub(room).div_ceil(self.slot_bytes)
        };
        bytes.iter().map(slots).sum()
    }

    /// Whether neither a collection nor an appender runs. If so, looking further is worth it.
    pub(crate) fn may_collect(&self) -> bool {
        let state = self.state.lock();
        !state.collecting && state.appenders == 0
    }

    /// The group to collect. A linear look at some hundred numbers costs less than keeping a heap
    /// right over every append would.
    fn choose(&self, state: &State, points: &[SeqNo]) -> Option<u32> {
        if self.placement == ValuePlacement::Vlog {
            return self.log_wants_collection(state, points).then_some(0);
        }
        let gain = |(i, group): (u32, &crate::value::layout::Group)| {
            let freed = group.garbage_bytes().saturating_sub(state.pinned_bytes(i, points));
            (freed, i)
        };
        let groups = (0..).zip(&state.layout.groups);
        let best = groups.filter(|(i, _)| !state.quarantined.contains(i)).map(gain).max()?;
        (best.0 >= self.slot_bytes).then_some(best.1)
    }

    /// Steps 1 and 2.
    fn seal_group(&self, points: &[SeqNo]) -> std::result::Result<Sealed, Collected> {
        let mut state = self.state.lock();
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        let group = self.choose(&state, points).ok_or(Collected::Nothing)?;
        state.collecting = true;
        let seals = !seeded!(CollectionWithoutSeal);
        let open = if seals { state.open.remove(&group) } else { None };
        state.fresh = Some((group, Sketch::of_nothing()));
        let at = &state.layout.groups[group as usize];
        Ok(Sealed { group, segments: Arc::clone(&at.segments), dead: at.dead.clone(), open })
    }

    fn unseal(&self) {
        let mut state = self.state.lock();
        state.collecting = false;
        if self.placement == ValuePlacement::HashGrouped {
            state.fresh = None;
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Step 4, first half.
    pub(super) fn scan(
        &self,
        segments: &[Segment],
        cancelled: &dyn Fn() -> Result<()>,
    ) -> Result<Scanned> {
        let mut scanned = Scanned::default();
        let mut held_bytes = 0;
        for (i, segment) in (0..).zip(segments) {
            cancelled()?;
            let bytes = self.read_segment(segment)?;
            self.scan_segment(i, segment, &bytes, &mut scanned)?;
            held_bytes += segment.bytes;
            scanned.held.push((held_bytes <= HELD_BYTES).then_some(bytes));
        }
        Ok(scanned)
    }

    fn read_segment(&self, segment: &Segment) -> Result<Vec<u8>> {
        let mut bytes = vec![0; segment.bytes as usize];
        self.file.read_at(self.position(segment), &mut bytes)?;
        Ok(bytes)
    }

    fn scan_segment(
        &self,
        index: u32,
        segment: &Segment,
        bytes: &[u8],
        scanned: &mut Scanned,
    ) -> Result<()> {
        let footer = match segment.collected {
            true => Some(self.footer(segment)?),
            false => None,
        };
        let place = self.position(segment);
        let mut offset = 0;
        let mut count = 0;
        while offset < segment.bytes {
            let record = self.seal(segment).take(&bytes[offset as usize..], offset);
            let record = record.map_err(|what| self.corrupt(place + offset, what))?;
            let voff = match &footer {
                None => segment.voff + offset,
                Some(footer) => match footer.entry(count) {
                    Some((voff, at)) if u64::from(at) == offset => voff,
                    _ => return Err(self.corrupt(place + offset, "the footer misses a record")),
                },
            };
            scanned.entries.push(Entry {
                key_at: scanned.keys.len(),
                key_bytes: record.key.len() as u32,
                head: head(record.key, 0),
                seq: record.seq,
                voff,
                segment: index,
                offset: offset as u32,
                bytes: record.len as u32,
            });
            scanned.keys.extend_from_slice(record.key);
            offset += record.len as u64;
            count += 1;
        }
        if count as u64 != u64::from(segment.records) {
            return Err(self.corrupt(place, "the segment has another number of records"));
        }
        Ok(())
    }

    /// Reads every record of a layout; tells how many there are.
    pub(crate) fn verify(&self, segments: &[Segment]) -> Result<u64> {
        let mut records = 0;
        for segment in segments {
            let mut scanned = Scanned::default();
            self.scan_segment(0, segment, &self.read_segment(segment)?, &mut scanned)?;
            records += scanned.entries.len() as u64;
        }
        Ok(records)
    }

    /// Step 5: the segments that are rewritten, and new ones.
    fn copy(
        &self,
        sealed: &Sealed,
        scanned: &Scanned,
        survivors: &[Entry],
    ) -> Result<(Range<usize>, Vec<Segment>)> {
        let leaving = rewritten(&sealed.segments, survivors, self.slot_bytes);
        let moving = survivors.iter().filter(|entry| leaving.contains(&(entry.segment as usize)));
        let mut writer = OutputWriter { store: self, done: Vec::new(), open: None };
        let outcome = moving.into_iter().try_for_each(|entry| {
            let segment = &sealed.segments[entry.segment as usize];
            let place = self.position(segment) + u64::from(entry.offset);
            let bad = |what| self.corrupt(place, what);
            match &scanned.held[entry.segment as usize] {
                // The scan has checked it.
                Some(bytes) => {
                    let record = Record::of_checked(&bytes[entry.offset as usize..]);
                    writer.add(&record.map_err(bad)?, entry)
                }
                None => {
                    let mut bytes = vec![0; entry.bytes as usize];
                    self.file.read_at(place, &mut bytes)?;
                    let record = self.seal(segment).take(&bytes, entry.offset.into());
                    writer.add(&record.map_err(bad)?, entry)
                }
            }
        });
        let outcome = outcome.and_then(|()| writer.close()).and_then(|()| {
            match writer.done.is_empty() || seeded!(CollectionNotSynced) {
                true => Ok(()),
                false => self.sync(),
            }
        });
        let OutputWriter { done, open, .. } = writer;
        if let Err(error) = outcome {
            self.give_back(done.iter().chain(open.iter().map(|open| &open.segment)));
            return Err(error);
        }
        Ok((leaving, done))
    }

    fn give_back<'a>(&self, segments: impl Iterator<Item = &'a Segment>) {
        let mut state = self.state.lock();
        segments.for_each(|segment| state.pool.give(segment.slot, segment.slots));
    }
}

/// Fills fresh segments with survivors.
struct OutputWriter<'a> {
    store: &'a ValueStore,
    done: Vec<Segment>,
    open: Option<OpenOutput>,
}

struct OpenOutput {
    segment: Segment,
    bytes: Vec<u8>,
    /// By voff, less that of the segment.
    places: Vec<(u32, u32)>,
}

impl OutputWriter<'_> {
    fn add(&mut self, record: &Record<'_>, entry: &Entry) -> Result<()> {
        let store = self.store;
        let room = |open: &OpenOutput| {
            let stored = open.segment.bytes
                + u64::from(entry.bytes)
                + footer_bytes(open.segment.records + 1);
            stored <= u64::from(open.segment.slots) * store.slot_bytes
                && entry.voff - open.segment.voff <= u64::from(u32::MAX)
        };
        if !self.open.as_ref().is_some_and(room) {
            self.close()?;
            let stored = u64::from(entry.bytes) + footer_bytes(1);
            let slots = stored.div_ceil(store.slot_bytes) as u32;
            let segment = store.state.lock().take_output(slots)?;
            let segment = Segment { voff: entry.voff, ..segment };
            self.open = Some(OpenOutput { segment, bytes: Vec::new(), places: Vec::new() });
            store.file.allocate(store.position(&segment), u64::from(slots) * store.slot_bytes)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let voff = (entry.voff - open.segment.voff) as u32;
        open.places.push((voff, open.segment.bytes as u32));
        let seal = store.seal(&open.segment);
        seal.put(&mut open.bytes, open.segment.bytes, record.seq, record.key, record.value);
        open.segment.bytes += u64::from(entry.bytes);
        open.segment.records += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let seal = self.store.seal(&open.segment);
        seal.put_footer(&mut open.bytes, open.segment.bytes, &open.places);
        let written = self.store.file.write_at(self.store.position(&open.segment), &open.bytes);
        self.done.push(open.segment);
        Ok(written?)
    }
}

impl Inner {
    /// Collects the group of a keyspace's value file that promises most.
    pub(crate) fn collect_values(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        store: &Arc<ValueStore>,
    ) -> Result<Collected> {
        if store.placement == ValuePlacement::Vlog {
            return self.collect_log(keyspace, store);
        }
        let sealed = match store.seal_group(&self.visible_points()) {
            Ok(sealed) => sealed,
            Err(outcome) => return Ok(outcome),
        };
        let group = sealed.group;
        let outcome = self.collect_sealed(keyspace, store, sealed);
        self.end_collection(store, group, outcome)
    }

    /// Lets the next collection begin; a damaged group is set aside.
    pub(super) fn end_collection(
        &self,
        store: &ValueStore,
        group: u32,
        outcome: Result<()>,
    ) -> Result<Collected> {
        store.unseal();
        match outcome {
            Err(error @ Error::Corruption { .. }) => {
                store.state.lock().quarantined.insert(group);
                tracing::error!(%error, group, "a group is damaged; it is not collected");
                self.emit(|| Event::BackgroundError { error });
                Ok(Collected::Freed)
            }
            other => other.map(|()| Collected::Freed),
        }
    }

    /// Steps 3 to 6.
    fn collect_sealed(
        &self,
        keyspace: &KeyspaceInner,
        store: &Arc<ValueStore>,
        sealed: Sealed,
    ) -> Result<()> {
        let points = self.visible_points();
        let mut scanned = store.scan(&sealed.segments, &|| self.check_open())?;
        let kept = survivors(&mut scanned, &points, &sealed.dead);
        if seeded!(SlotsFreedBeforeTheEdit) {
            store.give_back(sealed.segments.iter());
        }
        let (leaving, outputs) = store.copy(&sealed, &scanned, &kept.entries)?;
        reached!(GroupCopied);
        let before: u64 = sealed.segments.iter().map(|segment| segment.bytes).sum();
        let read: u64 = sealed.segments.iter().map(Segment::stored_bytes).sum();
        let written: u64 = outputs.iter().map(Segment::stored_bytes).sum();
        // Segments at the end may stay, with what is dead in them: that is known to be garbage and
        // must not be taken for written since as well.
        let end_voff = sealed.segments.get(leaving.end).map_or(u64::MAX, |segment| segment.voff);
        let mut buried = sealed.dead;
        let known = buried.split_off(&end_voff);
        let known_bytes: u64 = known.values().map(|bytes| u64::from(*bytes)).sum();
        let left_bytes = kept.live_bytes + known_bytes;
        let reopened = sealed.open.filter(|open| {
            sealed.segments[leaving.end..].iter().any(|one| one.generation == open.generation)
        });
        let edit = GroupEdit {
            group: sealed.group,
            remove: sealed.segments[leaving.clone()].iter().map(|one| one.generation).collect(),
            place: outputs.clone(),
            buried: buried.keys().copied().collect(),
            collected: Some((left_bytes, kept.keys.estimate().unwrap_or(0))),
            keys: kept.keys,
            ..GroupEdit::default()
        };
        let edit = ValueEdit { store: store.number, groups: vec![edit] };
        drop(sealed.segments);
        self.install_values(keyspace, store, edit)
            .inspect_err(|_| self.give_back_uninstalled(store, &outputs))?;
        let after = kept.live_bytes + kept.pinned_bytes;
        {
            let mut state = store.state.lock();
            state.pinned.insert(sealed.group, (kept.pinned_bytes, snapshots_of(&points)));
            if let Some(open) = reopened {
                // An appender may have opened another meanwhile; then this one stays as it is.
                state.open.entry(sealed.group).or_insert(open);
            }
        }
        self.metrics.add_all(&[
            (Counter::value_collections, 1),
            (Counter::value_gc_bytes_read, read),
            (Counter::value_gc_bytes_written, written),
        ]);
        self.emit(|| Event::ValuesCollected {
            keyspace: keyspace.name.clone(),
            group: sealed.group,
            bytes_before: before,
            bytes_after: after,
            bytes_written: written,
        });
        store.shrink(false)
    }

    /// Logs an edit of a value file and makes it visible.
    pub(super) fn install_values(
        &self,
        keyspace: &KeyspaceInner,
        store: &ValueStore,
        mut edit: ValueEdit,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.check_open()?;
        if keyspace.dropped.load(Acquire) {
            return Err(Error::UnknownKeyspace { name: keyspace.name.clone() });
        }
        // Keys that flushes added behind the seal count as well; no edit comes between now.
        if let Some((_, fresh)) = &store.state.lock().fresh {
            edit.groups.iter_mut().for_each(|group| group.keys.merge(fresh));
        }
        store.check(&edit)?;
        if seeded!(CollectionNotLogged) {
            store.publish(&edit);
            return Ok(());
        }
        manifest.append(&[Change::Values { id: keyspace.id, edit: edit.clone() }])?;
        store.publish(&edit);
        Ok(())
    }

    /// After a failed install: frees slots, unless the manifest may name them.
    fn give_back_uninstalled(&self, store: &ValueStore, segments: &[Segment]) {
        if !self.manifest.lock().log.as_ref().is_some_and(Manifest::is_broken) {
            store.give_back(segments.iter());
        }
    }

    /// Sees to it that a flush finds room, collecting as long as that frees something. What happens
    /// when nothing can be freed is the keyspace's choice.
    pub(crate) fn make_value_room(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        memtable: &Arc<Memtable>,
    ) -> Result<()> {
        let values = keyspace.values.load_full();
        let Some(store) = &values.current else { return Ok(()) };
        if self.scheduler.is_closing() {
            return Ok(());
        }
        let options = &keyspace.options.load().values;
        let follows = options.capacity_bytes == 0;
        let bytes = if follows { BTreeMap::new() } else { planned_bytes(store, options, memtable) };
        let started = std::time::Instant::now();
        loop {
            let points = self.visible_points();
            let over = {
                let mut state = store.state.lock();
                state.reclaim();
                let need = store.planned_slots(&state, &bytes);
                state.pool.used() + need > store.limit_slots(&state, options)
            };
            if !over {
                return Ok(());
            }
            match self.collect_values(keyspace, store)? {
                Collected::Freed => {}
                Collected::Busy => {
                    self.scheduler.while_held_up(|| self.wait_for_collection(store))?;
                }
                Collected::Nothing if follows => return Ok(()),
                Collected::Nothing => {
                    if !self.wait_for_snapshots(options, started, &points)? {
                        return self.values_full(keyspace, options, &points);
                    }
                }
            }
        }
    }

    /// Collects as long as that frees something, then gives free slots back to the file system.
    pub(crate) fn collect_all_values(&self, keyspace: &Arc<KeyspaceInner>) -> Result<()> {
        let values = keyspace.values.load_full();
        let Some(store) = &values.current else { return Ok(()) };
        loop {
            match self.collect_values(keyspace, store)? {
                Collected::Freed => {}
                Collected::Busy => self.wait_for_collection(store)?,
                Collected::Nothing => return store.shrink(true),
            }
        }
    }

    fn wait_for_collection(&self, store: &ValueStore) -> Result<()> {
        self.check_open()?;
        let mut state = store.state.lock();
        if state.collecting || state.appenders > 0 {
            store.ended.wait_for(&mut state, std::time::Duration::from_millis(50));
        }
        Ok(())
    }

    /// With `when_full = "stall"`: waits a little; `false` when the wait is over.
    fn wait_for_snapshots(
        &self,
        options: &ValueOptions,
        started: std::time::Instant,
        points: &[SeqNo],
    ) -> Result<bool> {
        use crate::value::options::WhenFull;
        let waits = options.when_full == WhenFull::Stall
            && started.elapsed().as_millis() < u128::from(options.stall_ms)
            && points.len() > 1;
        if waits {
            self.check_open()?;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(waits)
    }

    /// Data that are larger than the capacity grow the file in any case: were the flush refused,
    /// so would be the deletions that could help.
    fn values_full(
        &self,
        keyspace: &KeyspaceInner,
        options: &ValueOptions,
        points: &[SeqNo],
    ) -> Result<()> {
        use crate::value::options::WhenFull;
        if options.when_full != WhenFull::Error || points.len() == 1 {
            self.metrics.add(Counter::value_grown, 1);
            return Ok(());
        }
        Err(Error::NoSpace {
            path: format!("the value file of keyspace {:?}", keyspace.name),
            what: format!(
                "{} bytes and the reserve are taken, and no garbage is free of snapshots",
                options.capacity_bytes
            ),
        })
    }
}

/// Bytes of records that a flush of the memtable adds to each group, at most.
fn planned_bytes(
    store: &ValueStore,
    options: &ValueOptions,
    memtable: &Arc<Memtable>,
) -> BTreeMap<u32, u64> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek_to_first();
    while let Some(record) = iter.record() {
        let (key, value) = (record.key(), record.value());
        if value.len() >= options.separate_at as usize {
            *bytes.entry(store.group_of(key)).or_default() += record_bytes(key.len(), value.len());
        }
        iter.next();
    }
    bytes
}

/// Snapshots among the points: all but the present.
fn snapshots_of(points: &[SeqNo]) -> Vec<SeqNo> {
    points.split_last().map(|(_, snapshots)| snapshots.to_vec()).unwrap_or_default()
}
