//! The work under the commit lock is bounded, whatever a user does: a bounded number of entries are
//! looked at, and a bounded number of bytes are copied, under one hold of the lock. The largest
//! number of each that has occurred is recorded.

use crate::keys::SeqNo;
use crate::wal::batch::Batch;
use crate::write::commit::CommitState;
use crate::write::recent::Recent;

/// The most entries that are looked at: this takes about 100 us. The following count as entries:
/// the keyspaces of a batch or of a step of a rotation, writes that are reported to dead ranges or
/// conditional commits, writes that a conditional commit looks at, and values that a collection
/// moved.
pub(crate) const MOST_ENTRIES: u64 = 4_096;

/// The most entries of one kind. The kinds are the keyspaces of a batch, writes that are reported
/// to dead ranges, writes that are reported to conditional commits, and writes that one of these
/// commits looks at.
pub(crate) const MOST_OF_A_KIND: u64 = 1_000;

const _: () = assert!(4 * MOST_OF_A_KIND <= MOST_ENTRIES, "four kinds do not fit");

/// The most bytes of a batch that are copied, together with the keys that are copied for
/// conditional commits: this takes about 50 us. Records of larger batches are written without the
/// lock (`apart`, `large`).
pub(crate) const MOST_BYTES: u64 = 256 << 10;

/// The most work that was done under one hold since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Work under a hold of the lock in addition to its usual work. Usually there is none.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// The number of conditional commits for which writes are noted.
    watchers: usize,
    pub(super) recent: Recent,
    /// The last sequence number of a checkpoint of a store without a log, while it replaces the
    /// memtables that have writes up to it.
    pub(super) moment: Option<SeqNo>,
    /// The first sequence numbers of batches whose records have a place in the log and are not
    /// written yet.
    pub(super) unwritten: Vec<SeqNo>,
    /// Entries that this hold of the lock has looked at.
    looked: u64,
}

impl Extra {
    pub(super) fn is_empty(&self) -> bool {
        self.watchers == 0 && self.moment.is_none() && self.looked == 0
    }

    /// Begins to note writes for a conditional commit. Writes up to `last_seq` are not noted.
    pub(super) fn watch(&mut self, last_seq: SeqNo) {
        if self.watchers == 0 {
            self.recent.begin(last_seq);
        }
        self.watchers += 1;
    }

    /// Stops noting writes for a conditional commit.
    pub(super) fn unwatch(&mut self) {
        self.watchers -= 1;
        if self.watchers == 0 {
            self.recent.begin(0);
        }
    }

    /// Notes a batch for the conditional commits. Returns how many entries were looked at for this,
    /// and how many bytes were copied.
    pub(super) fn note(&mut self, batch: &Batch, last_seq: SeqNo) -> (u64, u64) {
        if self.watchers == 0 { (0, 0) } else { self.recent.note(batch, last_seq) }
    }

    /// Returns the count of entries that this hold has looked at, and resets it.
    pub(super) fn take_looked(&mut self) -> u64 {
        std::mem::take(&mut self.looked)
    }

    /// Tells the conditional commits that the writes up to this sequence number are not noted.
    pub(super) fn pass_over(&mut self, last_seq: SeqNo) {
        if self.watchers > 0 {
            self.recent.forget(last_seq);
        }
    }
}

impl CommitState {
    /// Counts the work under this hold of the lock, which is within the limits.
    pub(super) fn note_held(&mut self, entries: u64, bytes: u64) {
        debug_assert!(entries <= MOST_ENTRIES, "{entries} entries under the commit lock");
        debug_assert!(bytes <= MOST_BYTES, "{bytes} bytes copied under the commit lock");
        self.note_unbounded(entries, bytes);
    }

    /// Counts the work for batches that have no limit. One kind writes to more keyspaces than the
    /// limit. The other is a long batch whose record is written under the lock (`apart`), because
    /// no space can be reserved for it. The second kind fits into a segment, unless it
    /// only deletes.
    pub(super) fn note_unbounded(&mut self, entries: u64, bytes: u64) {
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        self.most_entries = self.most_entries.max(clamp(entries));
        self.most_bytes = self.most_bytes.max(clamp(bytes));
    }

    /// Whether this is more than any hold did before.
    #[inline]
    pub(super) fn is_more(&self, entries: u64, bytes: u64) -> bool {
        entries > u64::from(self.most_entries) || bytes > u64::from(self.most_bytes)
    }

    /// Notes how many entries were looked at for a batch that follows under the same hold.
    pub(super) fn note_looks(&mut self, entries: u64) {
        self.extra.looked = entries;
        self.has_extra = !self.extra.is_empty();
    }

    /// Does the same for entries in addition to those noted before.
    pub(super) fn note_more_looks(&mut self, entries: u64) {
        self.note_looks(self.extra.looked + entries);
    }

    /// Called when no batch follows under the hold that has looked.
    pub(super) fn end_looks(&mut self) {
        let looked = self.extra.take_looked();
        self.has_extra = !self.extra.is_empty();
        self.note_held(looked, 0);
    }

    /// The most work of a hold so far.
    pub(super) fn most_held(&self) -> Held {
        Held { entries: self.most_entries.into(), bytes: self.most_bytes.into() }
    }
}
