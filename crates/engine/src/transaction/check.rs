//! Checks whether anybody, since the snapshot of a transaction, has written what it wrote or read.
//!
//! 1. *In the tree:* take the visible sequence number, then the view of each keyspace. Every write
//!    up to that number is in the view. Look for versions newer than the snapshot in its memtables
//!    and tables. Memtables and tables whose largest sequence number was checked before are
//!    skipped.
//! 2. *In the writes that were noted since:* each write is looked up among the keys and stretches.
//!    `write/conditional.rs` decides when and how often each of the two checks is made. A commit
//!    looks at few writes under the commit lock, however large the transaction is.
//! 3. Before the commit lock is taken for the last time, the locks of the keys are taken, if
//!    anybody uses locks.
//!
//! A compaction may have dropped a version, but never one that makes a difference. The snapshot is
//! registered, so a key that has the same newest version as at the snapshot reads the same. If all
//! trace of the writes of an absent key is gone, the key is absent again.
//!
//! A pointer that a collection wrote does not count as a write. A memtable also contains the
//! version that it moved, and that version decides. A table may contain only the pointer, and the
//! version may be from before the snapshot or after it. Then the two values are compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::{Error, Result};
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::keys::{KeyspaceId, Kind, MAX_SEQ, SeqNo, is_relocation, seq_of};
use crate::memtable::{Memtable, MemtableIter};
use crate::ranges::RangeDeletes;
use crate::read::get::Reader;
use crate::read::source::{RunIter, Source};
use crate::table::handle::TableHandle;
use crate::table::iterator::Access;
use crate::transaction::locks::{LockTable, Locks};
use crate::transaction::read_set::ReadSet;
use crate::transaction::write_set::WriteSet;
use crate::tree::level::RunTables;
use crate::visibility::snapshot::Snapshot;
use crate::wal::batch::Operation;
use crate::write::conditional::Condition;
use crate::write::recent::Noted;

/// The check of a transaction.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    reader: &'a Reader,
    snapshot: &'a Snapshot,
    parts: BTreeMap<KeyspaceId, Part<'a>>,
    /// No write up to this sequence number conflicts.
    checked: SeqNo,
    /// Held if there are pessimistic transactions.
    locks: Locks,
    has_locks: bool,
    writes: &'a WriteSet,
}

/// What is checked in one keyspace.
#[derive(Debug)]
struct Part<'a> {
    core: &'a Arc<KeyspaceCore>,
    /// The keys that are written, and then the keys that were read, each in order.
    keys: Vec<&'a [u8]>,
    written: usize,
    /// The stretches that were read, in order and without overlaps.
    spans: Vec<Stretch<'a>>,
}

/// Keys from the first one on and below the second one, if there is a second one.
type Stretch<'a> = (&'a [u8], Option<&'a [u8]>);

impl<'a> Check<'a> {
    pub(crate) fn new(
        reader: &'a Reader,
        locks: &Arc<LockTable>,
        snapshot: &'a Snapshot,
        writes: &'a WriteSet,
        reads: Option<&'a ReadSet>,
    ) -> Check<'a> {
        let mut parts: BTreeMap<KeyspaceId, Part> = BTreeMap::new();
        for written in writes.all() {
            let part = Part::of(&mut parts, &written.core);
            part.keys.extend(written.keys.keys().map(Vec::as_slice));
            part.written = part.keys.len();
            part.spans.extend(written.ranges.iter().map(|(low, high)| (&low[..], high.as_deref())));
        }
        for read in reads.into_iter().flat_map(ReadSet::all) {
            let part = Part::of(&mut parts, &read.core);
            part.keys.extend(read.keys.iter().map(Vec::as_slice));
            part.spans.extend(read.spans.iter().map(|span| (&span.low[..], span.high.as_deref())));
        }
        parts.values_mut().for_each(|part| join(&mut part.spans));
        let locks = Locks::new(locks, usize::MAX, std::time::Duration::ZERO);
        let checked = snapshot.seq();
        Check { reader, snapshot, parts, checked, locks, has_locks: false, writes }
    }
}

impl Condition for Check<'_> {
    fn prepare(&mut self) -> Result<SeqNo> {
        let upto = self.reader.visibility.now();
        let look = Look { reader: self.reader, snapshot: self.snapshot, checked: self.checked };
        for part in self.parts.values() {
            // The content of a dropped keyspace is gone with it.
            part.core.check_readable()?;
            if upto > self.checked {
                let view = part.core.view.load_full();
                for memtable in view.memtables() {
                    look.in_memtable(part, memtable)?;
                }
                look.in_tables(part, &view)?;
            }
        }
        self.checked = self.checked.max(upto);
        Ok(self.checked)
    }

    fn look(&mut self, noted: &Noted) -> Result<()> {
        noted.after(self.checked).try_for_each(|write| match self.parts.get(&write.keyspace) {
            Some(part) => part.look_at(&write),
            None => Ok(()),
        })
    }

    fn has_seen(&mut self, last_seq: SeqNo) {
        self.checked = last_seq;
    }

    /// Takes the locks of the keys that are written, and of the ranges that are deleted, if anybody
    /// uses locks. A pessimistic transaction that reads one of these keys for update after this
    /// call waits for the commit.
    fn lock(&mut self) -> Result<()> {
        if self.has_locks || !self.locks.table().is_used() {
            return Ok(());
        }
        for writes in self.writes.all() {
            // The ranges are locked first: this transaction holds no locks inside them yet.
            for (start, end) in &writes.ranges {
                let held = self.locks.try_acquire_range(&writes.core, start, end.as_deref());
                if let Some(key) = held {
                    return conflict(&writes.core, &key);
                }
            }
            for key in writes.keys.keys() {
                if !self.locks.try_acquire(&writes.core, key) {
                    return conflict(&writes.core, key);
                }
            }
        }
        self.has_locks = true;
        Ok(())
    }

    fn holds(&mut self) -> Result<bool> {
        for part in self.parts.values() {
            part.core.check_exists()?;
        }
        // A transaction that begins to use locks after this check waits until the commit is
        // visible.
        Ok(self.has_locks || !self.locks.table().is_used())
    }

    fn outrun(&self) -> Error {
        let mut all = self.writes.all();
        let Some(writes) = all.next() else { unreachable!("the batch is not empty") };
        let first = writes.keys.keys().next().or_else(|| writes.ranges.keys().next());
        let key = first.cloned().unwrap_or_default();
        Error::Conflict { keyspace: writes.core.name.clone(), key }
    }

    fn end(&mut self, last_seq: SeqNo) {
        if !self.locks.is_empty() {
            self.reader.visibility.publisher.wait_visible(last_seq);
            self.locks.release_all();
        }
    }
}

impl<'a> Part<'a> {
    fn of<'p>(
        parts: &'p mut BTreeMap<KeyspaceId, Part<'a>>,
        core: &'a Arc<KeyspaceCore>,
    ) -> &'p mut Part<'a> {
        let new = || Part { core, keys: Vec::new(), written: 0, spans: Vec::new() };
        parts.entry(core.id).or_insert_with(new)
    }

    /// Checks whether a write conflicts. O(log n).
    fn look_at(&self, write: &Operation<'_>) -> Result<()> {
        let low = write.key;
        let keys = self.keys.split_at(self.written);
        let keys = [keys.0, keys.1];
        if write.kind != Kind::RangeDelete {
            let before = self.spans.partition_point(|(start, _)| *start <= low);
            let span = before.checked_sub(1).map(|at| self.spans[at]);
            let is_inside = span.is_some_and(|(_, end)| end.is_none_or(|end| low < end));
            let is_key = |keys: &&[&[u8]]| keys.binary_search(&low).is_ok();
            let is_in_the_way = is_inside || keys.iter().any(is_key);
            return if is_in_the_way { conflict(self.core, low) } else { Ok(()) };
        }
        let is_below = |key: &[u8]| write.value.is_empty() || key < write.value;
        let key = keys.iter().filter_map(|keys| keys.get(keys.partition_point(|key| *key < low)));
        let ends_before = |(_, end): &Stretch| end.is_some_and(|end| end <= low);
        let span = self.spans.get(self.spans.partition_point(ends_before));
        let first = key.chain(span.map(|(start, _)| start)).find(|key| is_below(key));
        match first.filter(|_| !seeded!(RangeDeletesNotChecked)) {
            Some(key) => conflict(self.core, key),
            None => Ok(()),
        }
    }
}

/// Joins stretches that touch, so that no entry is looked at twice: a program may scan the same
/// keys as often as it likes. Empty stretches, which a cursor notes when it seeks beyond its
/// bounds, are removed: a search by the ends needs ascending ends. O(n log n).
fn join(stretches: &mut Vec<Stretch<'_>>) {
    stretches.retain(|(low, high)| high.is_none_or(|high| *low < high));
    stretches.sort();
    stretches.dedup_by(|next, last| {
        let meets = last.1.is_none_or(|high| next.0 <= high);
        if meets {
            last.1 = last.1.zip(next.1).map(|(one, two)| one.max(two));
        }
        meets
    });
}

/// The search for writes since a snapshot that were not checked before.
struct Look<'a> {
    reader: &'a Reader,
    snapshot: &'a Snapshot,
    checked: SeqNo,
}

impl Look<'_> {
    /// Whether an entry is a write that the snapshot does not see.
    fn is_newer(&self, trailer: u64) -> bool {
        let is_write = !is_relocation(trailer) || seeded!(RelocationsConflict);
        seq_of(trailer) > self.snapshot.seq() && is_write
    }

    fn in_memtable(&self, part: &Part, memtable: &Arc<Memtable>) -> Result<()> {
        if memtable.max_seq() <= self.checked {
            return Ok(());
        }
        let is_deleted = |key: &[u8]| {
            memtable.hides(key, self.snapshot.seq(), MAX_SEQ) && !seeded!(RangeDeletesNotChecked)
        };
        for key in &part.keys {
            if self.has_newer(memtable, key) || is_deleted(key) {
                return conflict(part.core, key);
            }
        }
        for (low, high) in &part.spans {
            let deletes = memtable.range_deletes();
            if self.are_deleted(deletes.as_deref(), (low, *high)) {
                return conflict(part.core, low);
            }
            let source =
                Source::Memtable(Arc::clone(memtable), MemtableIter::new(memtable.clone()));
            self.walk(part, source, (low, *high))?;
        }
        Ok(())
    }

    /// Whether a memtable has a newer write of a key. If the newest version is a pointer that a
    /// collection wrote, the version before it decides.
    fn has_newer(&self, memtable: &Memtable, key: &[u8]) -> bool {
        let mut at = MAX_SEQ;
        while let Some(record) = memtable.get(key, at).filter(|_| at > self.snapshot.seq()) {
            if self.is_newer(record.trailer()) {
                return true;
            }
            at = seq_of(record.trailer()) - 1;
        }
        false
    }

    fn in_tables(&self, part: &Part, view: &View) -> Result<()> {
        if seeded!(TablesNotChecked) {
            return Ok(());
        }
        let version = &view.version;
        for key in &part.keys {
            let is_deleted = version.hides(key, self.snapshot.seq(), MAX_SEQ);
            if is_deleted && !seeded!(RangeDeletesNotChecked) {
                return conflict(part.core, key);
            }
            if let Some(trailer) = version.newest_after(key, self.checked)? {
                self.judge(part, key, trailer)?;
            }
        }
        for (low, high) in &part.spans {
            if self.are_deleted(version.range_deletes.as_deref(), (low, *high)) {
                return conflict(part.core, low);
            }
            for table in version.newer_tables(self.checked, low, *high) {
                self.walk(part, source_of(table), (low, *high))?;
            }
        }
        Ok(())
    }

    fn are_deleted(&self, deletes: Option<&RangeDeletes>, (low, high): Stretch) -> bool {
        let newest = deletes.map_or(0, |deletes| deletes.newest_in(low, high));
        newest > self.snapshot.seq() && !seeded!(RangeDeletesNotChecked)
    }

    /// Checks each entry of a stretch.
    fn walk(&self, part: &Part, mut source: Source, (low, high): Stretch) -> Result<()> {
        source.approach(low)?;
        source.finish_seek(low, BEFORE_ALL_VERSIONS)?;
        while let Some((key, trailer)) = source.current() {
            if high.is_some_and(|high| key >= high) {
                break;
            }
            let is_later = seq_of(trailer) > self.snapshot.seq();
            match source {
                // For a value that a collection moved, the version that it moved decides.
                Source::Memtable(..) if self.is_newer(trailer) => return conflict(part.core, key),
                Source::Run(_) if is_later => self.judge(part, key, trailer)?,
                _ => {}
            }
            source.next()?;
        }
        Ok(())
    }

    /// Judges an entry of a table that is newer than the snapshot.
    fn judge(&self, part: &Part, key: &[u8], trailer: u64) -> Result<()> {
        if seq_of(trailer) <= self.snapshot.seq() {
            return Ok(());
        }
        if self.is_newer(trailer) {
            return conflict(part.core, key);
        }
        let before = self.reader.get_at(part.core, key, self.snapshot)?;
        let now = self.reader.get(part.core, key)?;
        if before.as_deref() == now.as_deref() { Ok(()) } else { conflict(part.core, key) }
    }
}

/// One table as a stream.
fn source_of(table: &Arc<TableHandle>) -> Source {
    let run = Arc::new(RunTables::new(vec![Arc::clone(table)]));
    Source::Run(RunIter::new(run, Access::Cached { fill: false }))
}

fn conflict<T>(core: &KeyspaceCore, key: &[u8]) -> Result<T> {
    Err(Error::Conflict { keyspace: core.name.clone(), key: key.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_meet_become_one() {
        let joined = |mut stretches: Vec<Stretch<'static>>| {
            join(&mut stretches);
            stretches
        };
        let once: Stretch = (b"b", Some(b"d"));
        assert_eq!(joined(vec![once; 1_000]), [once]);
        let (low, high): (Stretch, Stretch) = ((b"a", Some(b"b")), (b"e", None));
        let inside: Stretch = (b"c", Some(b"cc"));
        let all: Stretch = (b"a", Some(b"d"));
        assert_eq!(joined(vec![high, inside, once, low]), [all, high]);
        assert_eq!(joined(vec![(b"f", Some(b"g")), high, (b"e", Some(b"ee"))]), [high]);
        assert_eq!(joined(vec![low, inside]), [low, inside], "a gap stays");
    }
}
