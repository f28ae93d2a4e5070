//! The keys that were written lately, for commits that are allowed only if no conflicting write
//! came in between (`conditional`). They are kept only while such a commit is under way, and never
//! use more than a megabyte.
//!
//! Without them, a commit would have to wait under the commit lock until other writers have
//! inserted, and search the memtables there for each key that it had read. A large commit would
//! hold everybody up. With them, it finds exactly what was written, whether or not that is
//! inserted.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::keys::codec::{Reader, put_bytes, put_varint};
use crate::keys::{Kind, SeqNo};
use crate::wal::batch::{Batch, Operation, take_operation};
use crate::write::held::{MOST_BYTES, MOST_OF_A_KIND};

/// A part of this size is closed.
const PART_ENTRIES: u64 = 1_000;
const PART_BYTES: usize = 64 << 10;

/// At most this many parts are kept. A commit that needs older ones looks at the tree again.
const MOST_PARTS: usize = 128;
const MOST_PARTS_BYTES: usize = 1 << 20;

/// The writes that were noted under the commit lock.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Every write above this sequence number is noted.
    since: SeqNo,
    /// Closed parts, oldest first.
    parts: VecDeque<Arc<Noted>>,
    parts_bytes: usize,
    open: Noted,
}

/// The writes of successive batches. The last ones may be looked at without the commit lock.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The last sequence number of each batch, and where its writes end.
    batches: Vec<(SeqNo, usize)>,
    entries: u64,
    /// Encoded as in a batch, without values.
    bytes: Vec<u8>,
}

/// Whether a batch has so few writes that they are noted: the log and the notes each get a copy.
/// The writer of any other batch holds `Committer::unnoted` when it takes the commit lock.
#[inline]
pub(super) fn is_noted(batch: &Batch) -> bool {
    batch.len() <= MOST_OF_A_KIND && batch.encoded().len() as u64 <= MOST_BYTES / 2
}

impl Recent {
    /// Begins to note writes. Writes up to this sequence number are not noted.
    pub(super) fn begin(&mut self, last_seq: SeqNo) {
        *self = Recent { since: last_seq, ..Recent::default() };
    }

    /// Forgets all writes up to a sequence number, because some of them are not noted.
    pub(super) fn forget(&mut self, last_seq: SeqNo) {
        self.begin(last_seq);
    }

    /// Notes the writes of a batch. Returns how many there are, and how many bytes were copied.
    pub(super) fn note(&mut self, batch: &Batch, last_seq: SeqNo) -> (u64, u64) {
        if !is_noted(batch) {
            self.forget(last_seq);
            return (0, 0);
        }
        let before = self.open.bytes.len();
        for Operation { kind, keyspace, key, value, .. } in batch.operations() {
            let out = &mut self.open.bytes;
            match kind {
                // A value that a collection moved does not count as a write.
                kind if kind.is_relocation() => continue,
                Kind::RangeDelete => out.push(kind as u8),
                _ => out.push(Kind::Delete as u8),
            }
            put_varint(out, u64::from(keyspace));
            put_bytes(out, key);
            if kind == Kind::RangeDelete {
                put_bytes(out, value);
            }
        }
        let end = self.open.bytes.len();
        self.open.batches.push((last_seq, end));
        self.open.entries += batch.len();
        if self.open.entries >= PART_ENTRIES || end >= PART_BYTES {
            self.close_open();
        }
        (batch.len(), (end - before) as u64)
    }

    /// The writes after a sequence number; `None` if they are not all known.
    pub(super) fn after(&self, seq: SeqNo) -> Option<impl Iterator<Item = &Noted>> {
        let closed = self.parts.iter().rev().take_while(move |part| part.last_seq() > seq);
        let all = std::iter::once(&self.open).chain(closed.map(|part| &**part));
        (self.since <= seq).then_some(all)
    }

    /// Returns the same writes, to look at them without the commit lock.
    pub(super) fn take_after(&mut self, seq: SeqNo) -> Option<Vec<Arc<Noted>>> {
        if self.open.entries > 0 {
            self.close_open();
        }
        let closed = self.parts.iter().rev().take_while(|part| part.last_seq() > seq);
        (self.since <= seq).then(|| closed.cloned().collect())
    }

    fn close_open(&mut self) {
        let part = std::mem::take(&mut self.open);
        self.parts_bytes += part.bytes.len();
        self.parts.push_back(Arc::new(part));
        while self.parts.len() > MOST_PARTS || self.parts_bytes > MOST_PARTS_BYTES {
            let Some(oldest) = self.parts.pop_front() else { return };
            self.parts_bytes -= oldest.bytes.len();
            self.since = oldest.last_seq();
        }
    }
}

impl Noted {
    fn last_seq(&self) -> SeqNo {
        self.batches.last().map_or(0, |(last_seq, _)| *last_seq)
    }

    /// The writes of the batches after a sequence number: deletes of ranges, and deletes that
    /// represent any write of a key.
    pub(crate) fn after(&self, seq: SeqNo) -> impl Iterator<Item = Operation<'_>> {
        let first = self.batches.partition_point(|(last_seq, _)| *last_seq <= seq);
        let start = first.checked_sub(1).map_or(0, |before| self.batches[before].1);
        let mut reader = Reader::new(&self.bytes[start..]);
        std::iter::from_fn(move || {
            (!reader.is_empty()).then(|| take_operation(&mut reader).ok())?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &mut Recent, seq: SeqNo, key: &[u8]) {
        let mut batch = Batch::new();
        batch.push(Kind::Put, 1, key, &[7; 100]).expect("fits");
        recent.note(&batch, seq);
    }

    fn keys(recent: &Recent, after: SeqNo) -> Option<Vec<Vec<u8>>> {
        let parts: Vec<&Noted> = recent.after(after)?.collect();
        let keys = parts.iter().rev().flat_map(|part| part.after(after));
        Some(keys.map(|write| write.key.to_vec()).collect())
    }

    #[test]
    fn what_came_behind_a_number_is_told_once() {
        let mut recent = Recent::default();
        recent.begin(5);
        for seq in 6..3_106 {
            note(&mut recent, seq, &seq.to_be_bytes());
        }
        for is_taken in [false, true] {
            assert!(recent.after(4).is_none(), "before the beginning");
            for after in [5u64, 6, 1_004, 1_005, 1_006, 3_004, 3_005, 3_104, 3_105] {
                let wanted = (after + 1..3_106).map(|seq| seq.to_be_bytes().to_vec());
                assert_eq!(keys(&recent, after), Some(wanted.collect()), "behind {after}");
            }
            let taken = is_taken.then(|| recent.take_after(3_000).expect("is known"));
            let count = |part: &Arc<Noted>| part.after(3_000).count();
            assert!(taken.is_none_or(|parts| parts.iter().map(count).sum::<usize>() == 105));
            recent.take_after(3_105);
        }
    }

    #[test]
    fn no_more_is_kept_than_a_megabyte() {
        let mut recent = Recent::default();
        recent.begin(0);
        for seq in 1..10_000 {
            note(&mut recent, seq, &[1; 1_000]);
            assert!(recent.parts_bytes <= MOST_PARTS_BYTES);
        }
        assert!(recent.after(8_000).is_none() && recent.after(9_500).is_some());
        recent.forget(10_000);
        assert!(recent.after(9_999).is_none());
        assert_eq!(keys(&recent, 10_000), Some(Vec::new()));
    }
}
