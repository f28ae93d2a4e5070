//! Writes the new pointers of values that a collection moved, each only if no user has written its
//! key since. Only collections of a log and of groups that write back use this module.
//!
//! A few pointers at a time become a batch, whose condition is checked like that of a transaction
//! (`conditional`). But if a key was written meanwhile, only its own pointer is refused.

use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::format::record::{MOST_POINTER_BYTES, Pointer, record_bytes};
use crate::keys::{Kind, MAX_SEQ, SeqNo, is_relocation, seq_of};
use crate::metrics::Counter;
use crate::sync::cores::rest;
use crate::values::file::ValueFile;
use crate::visibility::snapshot::Visibility;
use crate::wal::batch::{Batch, Operation};
use crate::write::commit::Committer;
use crate::write::conditional::Condition;
use crate::write::recent::Noted;

/// The most pointers that are written under one hold of the commit lock, and the most bytes of
/// pointers and keys. The hold lasts about a tenth of a millisecond.
const AT_ONCE: usize = 256;
const AT_ONCE_BYTES: usize = 128 << 10;

/// A value that a collection moved. A collection keeps as many of these as it has live records.
#[derive(Debug)]
pub(crate) struct Relocation<'a> {
    pub(crate) key: &'a [u8],
    /// The sequence number of the version that points to the old place, or of the record there. A
    /// later write of the key by a user has a larger number.
    pub(crate) seq: SeqNo,
    /// The new place.
    pub(crate) pointer: Pointer,
}

/// Finds the moves whose keys users have written since.
struct Check<'a> {
    visibility: &'a Visibility,
    keyspace: &'a Arc<KeyspaceCore>,
    store: &'a ValueFile,
    /// The moves in order of keys, each with whether a user wrote the key. Moves in `deleted` are
    /// left out.
    moves: Vec<(&'a Relocation<'a>, bool)>,
    /// Moves whose keys are in a range that a user deleted. Each move is put here once, so all
    /// looks together are linear in the number of writes and moves.
    deleted: Vec<&'a Relocation<'a>>,
    /// Every write up to this sequence number was looked at. No moved version has a larger number.
    seen_seq: SeqNo,
}

impl Condition for Check<'_> {
    fn prepare(&mut self) -> Result<SeqNo> {
        self.seen_seq = self.visibility.now();
        let view = self.keyspace.view.load();
        let is_deleted = |Relocation { key, seq, .. }: &Relocation<'_>| {
            view.hides(key, *seq, MAX_SEQ) && !seeded!(RelocationsIgnoreRangeDeletes)
        };
        let deleted = self.moves.extract_if(.., |(one, _)| is_deleted(one));
        self.deleted.extend(deleted.map(|(one, _)| one));
        for (Relocation { key, seq, .. }, is_replaced) in &mut self.moves {
            let newest = view.memtables().find_map(|memtable| memtable.get(key, MAX_SEQ));
            let newest = newest.filter(|_| !seeded!(RelocationOverwritesNewer));
            // An earlier relocation may have moved the same version. It does not count as a user's
            // write.
            let replaces = |trailer: u64| {
                let is_user = !is_relocation(trailer) || seeded!(RelocationsTakenForWrites);
                seq_of(trailer) > *seq && is_user
            };
            // The memtables are read first: a flush notes its keys before its memtables leave the
            // view.
            *is_replaced |= newest.is_some_and(|record| replaces(record.trailer()))
                || self.store.is_dirty(key, *seq);
        }
        Ok(self.seen_seq)
    }

    /// O(log n) for each write that is noted.
    fn look(&mut self, noted: &Noted) -> Result<()> {
        for Operation { kind, keyspace, key, value, .. } in noted.after(self.seen_seq) {
            if keyspace != self.keyspace.id {
                continue;
            }
            let from = self.moves.partition_point(|(one, _)| one.key < key);
            if kind == Kind::RangeDelete {
                let ends = |one: &Relocation<'_>| value.is_empty() || one.key < value;
                let count = self.moves[from..].partition_point(|(one, _)| ends(one));
                let deleted = self.moves.drain(from..from + count);
                self.deleted.extend(deleted.map(|(one, _)| one));
            } else {
                let written = self.moves[from..].iter_mut().take_while(|(one, _)| one.key == key);
                written.for_each(|(_, is_replaced)| *is_replaced = true);
            }
        }
        Ok(())
    }

    fn has_seen(&mut self, last_seq: SeqNo) {
        self.seen_seq = last_seq;
    }

    fn outrun(&self) -> Error {
        Error::Conflict { keyspace: self.keyspace.name.clone(), key: Vec::new() }
    }
}

impl Committer {
    /// Writes value pointers that a collection moved. One of two things must hold: no memtable of
    /// the keyspace is flushed between the look-up of those versions and this call, or flushes note
    /// what they write (`ValueFile::is_dirty`). Returns the last sequence number that was assigned.
    /// Copies whose keys were deleted by a range delete are added to `deleted`, with their bytes.
    pub(crate) fn commit_relocations(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &ValueFile,
        moves: &[Relocation<'_>],
        deleted: &mut Vec<(Pointer, u32)>,
    ) -> Result<SeqNo> {
        let mut rest = moves;
        loop {
            let mut bytes = 0;
            let fits = |one: &&Relocation<'_>| {
                bytes += one.key.len() + MOST_POINTER_BYTES;
                bytes <= AT_ONCE_BYTES
            };
            // At least one fits, because keys are shorter than the limit.
            let count = rest.iter().take(AT_ONCE).take_while(fits).count();
            let (some, others) = rest.split_at(count);
            let last_seq = self.commit_some(keyspace, store, some, deleted)?;
            if others.is_empty() {
                return Ok(last_seq);
            }
            rest = others;
        }
    }

    fn commit_some(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &ValueFile,
        moves: &[Relocation<'_>],
        deleted: &mut Vec<(Pointer, u32)>,
    ) -> Result<SeqNo> {
        let mut moves: Vec<_> = moves.iter().map(|one| (one, false)).collect();
        moves.sort_by_key(|(one, _)| one.key);
        let looked = moves.len() as u64;
        let (visibility, gone) = (&*self.visibility, Vec::new());
        let mut check = Check { visibility, keyspace, store, moves, deleted: gone, seen_seq: 0 };
        let mut state = loop {
            self.env.check_not_stopped()?;
            match self.lock_when(&mut check, true) {
                // No user waits for the pointers, so this tries again until other writers leave it
                // enough time.
                Err(Error::Conflict { .. }) => rest(),
                outcome => break outcome?,
            }
        };
        state.note_more_looks(looked);
        for Relocation { key, pointer, .. } in &check.deleted {
            let bytes = record_bytes(key.len(), pointer.value_bytes as usize);
            deleted.push((*pointer, u32::try_from(bytes).unwrap_or(u32::MAX)));
        }
        let (mut batch, mut encoded) = (Batch::new(), Vec::new());
        for (Relocation { key, pointer, .. }, _) in check.moves.iter().filter(|(_, gone)| !gone) {
            pointer.encode(&mut encoded);
            batch.push(Kind::Relocate, keyspace.id, key, &encoded)?;
        }
        if batch.is_empty() {
            state.end_looks();
            return Ok(state.next_seq - 1);
        }
        let last_seq = self.commit_locked(state, &batch, std::slice::from_ref(keyspace))?;
        self.note_space(&batch);
        self.env.metrics.add(Counter::value_pointers_written, batch.len());
        Ok(last_seq)
    }
}
