//! The writes of the log that no table has yet, as a follower keeps them.
//!
//! Each memtable of the writer ends where the writer replaced it. A follower learns of that place
//! only when the flush is in the manifest, so its own memtables are small. Memtables below the
//! flush are dropped. The memtable in which the flush ends is built again, without the entries that
//! are in tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::keyspace::View;
use crate::error::{Error, Result};
use crate::format::record::{Pointer, record_bytes};
use crate::keys::{KeyspaceId, Kind, SeqNo, is_delete, kind_of, pack, range_delete, seq_of};
use crate::memtable::arena::ChunkPool;
use crate::memtable::{Memtable, MemtableIter};
use crate::values::early::EarlyPlace;
use crate::values::separation::ValueFiles;
use crate::wal::batch::Operation;

/// Size of a memtable of a follower.
const MEMTABLE_BYTES: usize = 4 << 20;

/// The writes of all keyspaces that are only in the log.
#[derive(Debug)]
pub(super) struct Recent {
    pool: Arc<ChunkPool>,
    /// Whether anybody reads the writes. A copy of the log needs no writes.
    keeps_writes: bool,
    /// The newest memtable of each keyspace comes last.
    by_id: BTreeMap<KeyspaceId, Vec<Arc<Memtable>>>,
    /// The writes among them whose values are in their file already.
    early: BTreeMap<KeyspaceId, EarlyWrites>,
}

/// The writes of a keyspace whose values only the log points to.
#[derive(Debug, Default)]
struct EarlyWrites {
    /// The writes that the open value files know of.
    shown: Vec<EarlyWrite>,
    hidden: Vec<EarlyWrite>,
}

#[derive(Debug)]
struct EarlyWrite {
    seq: SeqNo,
    key: Vec<u8>,
    pointer: Pointer,
    place: EarlyPlace,
    /// Whether the value was read. It does not move as long as only the log points to it.
    is_checked: bool,
}

impl EarlyWrite {
    /// Registers the value with its value file. Returns whether the file contains it.
    fn show(&mut self, files: &ValueFiles) -> Result<bool> {
        let EarlyWrite { seq, key, pointer, place, is_checked } = self;
        let Some(file) = files.file(pointer.store) else { return Ok(false) };
        if *is_checked {
            return Ok(file.find_again((key, *seq), pointer, place));
        }
        *is_checked = file.find_early((key, *seq), pointer, place)?;
        Ok(*is_checked)
    }
}

impl Recent {
    pub(super) fn new(pool: &Arc<ChunkPool>, keeps_writes: bool) -> Recent {
        let (by_id, early) = (BTreeMap::new(), BTreeMap::new());
        Recent { pool: Arc::clone(pool), keeps_writes, by_id, early }
    }

    /// Adds a write. Readers of earlier numbers do not see it.
    pub(super) fn add(
        &mut self,
        segment: u64,
        seq: SeqNo,
        operation: &Operation<'_>,
    ) -> Result<()> {
        if !operation.place.is_empty() {
            let (Ok(place), pointer) =
                (EarlyPlace::decode(operation.place), Pointer::of_entry(operation.value)?)
            else {
                return Err(Error::corruption(
                    "the log",
                    0,
                    "the place of a value does not decode",
                ));
            };
            let key = operation.key.to_vec();
            let early = self.early.entry(operation.keyspace).or_default();
            early.hidden.push(EarlyWrite { seq, key, pointer, place, is_checked: false });
        }
        if !self.keeps_writes {
            return Ok(());
        }
        let memtables = self.by_id.entry(operation.keyspace).or_default();
        if memtables.last().is_none_or(|last| last.is_full()) {
            memtables.push(Arc::new(Memtable::new(&self.pool, MEMTABLE_BYTES)));
        }
        if let Some(last) = memtables.last() {
            insert(last, segment, (seq, operation.kind), operation.key, operation.value);
        }
        Ok(())
    }

    /// Registers with the value files the values to which only the log points, unless they are
    /// registered already.
    pub(super) fn show_early(&mut self, id: KeyspaceId, files: &ValueFiles) -> Result<()> {
        let Some(early) = self.early.get_mut(&id) else { return Ok(()) };
        let mut failed = None;
        let shown = early.hidden.extract_if(.., |one| {
            failed.is_none()
                && one.show(files).unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
        });
        early.shown.extend(shown);
        failed.map_or(Ok(()), Err)
    }

    /// Notes that the value files of a keyspace were opened again. The values to which only the log
    /// points must then be registered again.
    pub(super) fn hide_early(&mut self, id: KeyspaceId) {
        if let Some(EarlyWrites { shown, hidden }) = self.early.get_mut(&id) {
            shown.append(hidden);
            std::mem::swap(shown, hidden);
        }
    }

    /// Notes that values to which only the log points may have moved.
    pub(super) fn doubt_early(&mut self) {
        let all =
            self.early.values_mut().flat_map(|one| one.shown.iter_mut().chain(&mut one.hidden));
        all.for_each(|one| one.is_checked = false);
    }

    /// The places of the records to which only the log points: value file, slot, offset in the
    /// segment, and bytes.
    pub(super) fn early_records(&self) -> impl Iterator<Item = (u64, u32, u64, u64)> {
        let all = self.early.values().flat_map(|one| one.shown.iter().chain(&one.hidden));
        all.map(|one| {
            let bytes = record_bytes(one.key.len(), one.pointer.value_bytes as usize);
            (one.pointer.store, one.place.slot, one.place.offset, bytes)
        })
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.early.clear();
    }

    /// Forgets a keyspace.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.by_id.remove(&id);
        self.early.remove(&id);
    }

    /// Forgets the writes of a keyspace up to this number, which are in tables. O(entries of one
    /// memtable).
    pub(super) fn flushed(&mut self, id: KeyspaceId, flushed_seq: SeqNo) {
        if let Some(early) = self.early.get_mut(&id) {
            early.shown.retain(|one| one.seq > flushed_seq);
            early.hidden.retain(|one| one.seq > flushed_seq);
        }
        let Some(memtables) = self.by_id.get_mut(&id) else { return };
        memtables.retain(|memtable| memtable.max_seq() > flushed_seq);
        if let Some(first) = memtables.first_mut().filter(|one| one.first_seq() <= flushed_seq) {
            *first = rest_of(first, flushed_seq, &self.pool);
        }
        if memtables.is_empty() {
            self.by_id.remove(&id);
        }
    }

    /// Puts the memtables of a keyspace into a view with its tables.
    pub(super) fn view(&self, id: KeyspaceId, tables: &View) -> View {
        let newest = self.by_id.get(&id).into_iter().flatten().rev();
        let mut newest = newest.cloned();
        let empty = || Arc::new(Memtable::new(&self.pool, MEMTABLE_BYTES));
        View {
            active: newest.next().unwrap_or_else(empty),
            immutable: newest.collect(),
            version: Arc::clone(&tables.version),
            loaded: 0,
        }
    }
}

/// The entries of a memtable above a number, in another one.
fn rest_of(memtable: &Arc<Memtable>, above: SeqNo, pool: &Arc<ChunkPool>) -> Arc<Memtable> {
    let rest = Memtable::new(pool, MEMTABLE_BYTES);
    let segment = memtable.first_segment().unwrap_or(0);
    // Entries must be inserted in the order of their numbers.
    let mut entries: Vec<(SeqNo, Kind, Vec<u8>, Vec<u8>)> = Vec::new();
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek_to_first();
    while let Some(record) = iter.record() {
        let seq = seq_of(record.trailer());
        if seq > above
            && let Some(kind) = Kind::from_u8(kind_of(record.trailer()))
        {
            entries.push((seq, kind, record.key().to_vec(), record.value().to_vec()));
        }
        iter.next();
    }
    entries.sort_unstable_by_key(|(seq, ..)| *seq);
    for (seq, kind, key, value) in entries {
        insert(&rest, segment, (seq, kind), &key, &value);
    }
    Arc::new(rest)
}

fn insert(memtable: &Memtable, segment: u64, (seq, kind): (SeqNo, Kind), key: &[u8], value: &[u8]) {
    let deletes = u64::from(is_delete(kind as u64));
    let _is_first = memtable.announce(seq, 1, deletes, segment);
    memtable.insert(key, pack(seq, kind), value);
    if kind == Kind::RangeDelete {
        memtable.note_range_deletes(vec![Arc::new(range_delete(key, seq, value))], seq);
    }
}
