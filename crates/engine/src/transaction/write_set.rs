//! The writes of a transaction, in order of keys, until it commits. Does no I/O.
//!
//! 1. Only the last write of each key is kept. A range delete removes the earlier writes of its
//!    keys; later writes apply on top of it. So the batch of a commit has the ranges of a keyspace
//!    first.
//! 2. Ranges that touch become one range. So the ranges of a keyspace are disjoint, and one search
//!    finds the range over a key.
//! 3. From the first savepoint on, each write notes what it replaced. A rollback undoes the notes,
//!    newest first. A copy of the set per savepoint would cost the size of the set each time.
//! 4. The memory for all of this is counted, and a write beyond the limit is refused before it
//!    changes anything.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, Kind};
use crate::values::Value;
use crate::wal::batch::Batch;

/// The memory that a write or a range needs besides its bytes: its part of the map, and two
/// allocations.
const OVERHEAD_BYTES: usize = 100;

/// The new value of a key; `None` deletes the key.
type Write = Option<Put>;

/// A value, and when it expires, in milliseconds since 1970. The transaction itself sees it until
/// the transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) value: Value,
    pub(crate) expiry_ms: Option<u64>,
}

/// Deleted ranges: the first key, and the least key after the range, if there is one.
type Ranges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The writes of a transaction.
#[derive(Debug)]
pub(crate) struct WriteSet {
    keyspaces: BTreeMap<KeyspaceId, KeyspaceWrites>,
    undo: Vec<Undo>,
    /// At each savepoint, the length of `undo` and the memory that the set used.
    savepoints: Vec<(usize, usize)>,
    bytes: usize,
    limit_bytes: usize,
}

/// The writes to one keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceWrites {
    pub(crate) core: Arc<KeyspaceCore>,
    pub(crate) keys: BTreeMap<Vec<u8>, Write>,
    pub(crate) ranges: Ranges,
}

/// What a write replaced.
#[derive(Debug)]
enum Undo {
    Key(KeyspaceId, Vec<u8>, Option<Write>),
    /// The first key of the present range, and the ranges and writes that it replaced.
    Range(KeyspaceId, Vec<u8>, Ranges, BTreeMap<Vec<u8>, Write>),
}

impl WriteSet {
    /// A set without writes, with a limit of this many bytes.
    pub(crate) fn new(limit_bytes: usize) -> WriteSet {
        let (keyspaces, undo, savepoints) = (BTreeMap::new(), Vec::new(), Vec::new());
        WriteSet { keyspaces, undo, savepoints, bytes: 0, limit_bytes }
    }

    /// Writes a value, or deletes the key.
    pub(crate) fn write(
        &mut self,
        core: &Arc<KeyspaceCore>,
        key: &[u8],
        write: Write,
    ) -> Result<()> {
        let notes = !self.savepoints.is_empty();
        let note = if notes { OVERHEAD_BYTES + key.len() } else { 0 };
        let added = bytes_of(key, &write) + note;
        let old = self.in_keyspace(core.id).filter(|_| !notes);
        let old = old.and_then(|writes| writes.keys.get(key));
        let replaced = old.map_or(0, |old| bytes_of(key, old));
        self.check(added.saturating_sub(replaced))?;
        let old = self.of(core).keys.insert(key.to_vec(), write);
        self.bytes = self.bytes + added - replaced;
        if notes {
            self.undo.push(Undo::Key(core.id, key.to_vec(), old));
        }
        Ok(())
    }

    /// Deletes the keys from `start` to `end`, or to the last one. O(log n) for each write and each
    /// range that this removes.
    pub(crate) fn delete_range(
        &mut self,
        core: &Arc<KeyspaceCore>,
        start: Vec<u8>,
        end: Option<Vec<u8>>,
    ) -> Result<()> {
        let notes = !self.savepoints.is_empty();
        let note = if notes { OVERHEAD_BYTES + start.len() } else { 0 };
        self.check(note + bytes_of_range(&start, &end))?;
        let writes = self.of(core);
        let inside = match &end {
            Some(end) if *end <= start => return Ok(()),
            Some(end) => (Bound::Included(&start[..]), Bound::Excluded(&end[..])),
            None => (Bound::Included(&start[..]), Bound::Unbounded),
        };
        let keys: Vec<Vec<u8>> =
            writes.keys.range::<[u8], _>(inside).map(|(key, _)| key.clone()).collect();
        let taken: BTreeMap<Vec<u8>, Write> =
            keys.into_iter().filter_map(|key| writes.keys.remove_entry(&key)).collect();
        let (first, replaced) = add_range(&mut writes.ranges, start, end);
        let added = writes.ranges.get(&first).map_or(0, |end| bytes_of_range(&first, end));
        self.bytes += added;
        // Writes that savepoints may restore still use memory.
        if notes {
            self.bytes += note;
            self.undo.push(Undo::Range(core.id, first, replaced, taken));
        } else {
            self.bytes -= taken.iter().map(|(key, old)| bytes_of(key, old)).sum::<usize>();
            self.bytes -=
                replaced.iter().map(|(low, high)| bytes_of_range(low, high)).sum::<usize>();
        }
        Ok(())
    }

    /// Refuses a write that would exceed the limit.
    fn check(&self, added: usize) -> Result<()> {
        if self.bytes.saturating_add(added) <= self.limit_bytes {
            return Ok(());
        }
        Err(Error::invalid(
            format!("the transaction would hold more than {} bytes of writes", self.limit_bytes),
            "raise max_write_bytes, or do the work in several transactions or by a bulk load",
        ))
    }

    /// The write of a key that a reader in the transaction sees. `None` means that the store
    /// decides.
    pub(crate) fn get(&self, id: KeyspaceId, key: &[u8]) -> Option<&Write> {
        const DELETED: &Write = &None;
        let writes = self.keyspaces.get(&id)?;
        writes.keys.get(key).or_else(|| writes.range_over(key).map(|_| DELETED))
    }

    /// The writes to a keyspace.
    pub(crate) fn in_keyspace(&self, id: KeyspaceId) -> Option<&KeyspaceWrites> {
        self.keyspaces.get(&id)
    }

    /// The writes to each keyspace that has any.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeyspaceWrites> {
        self.keyspaces.values().filter(|writes| !writes.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keyspaces.values().all(KeyspaceWrites::is_empty)
    }

    pub(crate) fn set_savepoint(&mut self) {
        self.savepoints.push((self.undo.len(), self.bytes));
    }

    /// Undoes all writes since the last savepoint, and removes the savepoint. Returns `false` if
    /// there is none.
    pub(crate) fn rollback_to_savepoint(&mut self) -> bool {
        let Some((len, bytes)) = self.savepoints.pop() else { return false };
        for undo in self.undo.drain(len..).rev() {
            match undo {
                Undo::Key(id, key, old) => {
                    let Some(writes) = self.keyspaces.get_mut(&id) else { continue };
                    match old {
                        Some(old) => _ = writes.keys.insert(key, old),
                        None => _ = writes.keys.remove(&key),
                    }
                }
                Undo::Range(id, first, replaced, taken) => {
                    let Some(writes) = self.keyspaces.get_mut(&id) else { continue };
                    writes.ranges.remove(&first);
                    writes.ranges.extend(replaced);
                    writes.keys.extend(taken);
                }
            }
        }
        self.bytes = bytes;
        true
    }

    /// All writes, in the form in which they are logged.
    pub(crate) fn to_batch(&self, opening: u64) -> Result<Batch> {
        let mut batch = Batch::new();
        batch.bind(opening)?;
        for writes in self.all() {
            let id = writes.core.id;
            for (start, end) in &writes.ranges {
                batch.push(Kind::RangeDelete, id, start, end.as_deref().unwrap_or_default())?;
            }
            for (key, write) in &writes.keys {
                match write {
                    Some(Put { value, expiry_ms: None }) => {
                        batch.push(Kind::Put, id, key, value)?
                    }
                    Some(Put { value, expiry_ms: Some(at_ms) }) => {
                        batch.push_expiring(id, key, value, *at_ms)?;
                    }
                    None => batch.push(Kind::Delete, id, key, &[])?,
                }
            }
        }
        Ok(batch)
    }

    fn of(&mut self, core: &Arc<KeyspaceCore>) -> &mut KeyspaceWrites {
        self.keyspaces.entry(core.id).or_insert_with(|| KeyspaceWrites {
            core: Arc::clone(core),
            keys: BTreeMap::new(),
            ranges: Ranges::new(),
        })
    }
}

impl KeyspaceWrites {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// The deleted range that covers a key.
    pub(crate) fn range_over(&self, key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let from = (Bound::Unbounded, Bound::Included(key));
        let (start, end) = self.ranges.range::<[u8], _>(from).next_back()?;
        let end = end.as_deref();
        end.is_none_or(|end| key < end).then_some((start, end))
    }
}

/// Approximately how many bytes a write uses.
fn bytes_of(key: &[u8], write: &Write) -> usize {
    OVERHEAD_BYTES + key.len() + write.as_ref().map_or(0, |put| put.value.len())
}

/// Approximately how many bytes a range uses.
fn bytes_of_range(start: &[u8], end: &Option<Vec<u8>>) -> usize {
    OVERHEAD_BYTES + start.len() + end.as_ref().map_or(0, Vec::len)
}

/// Adds a range to disjoint ones, and joins it with those that it touches. Returns the first key of
/// the result, and the ranges that it replaced.
fn add_range(
    ranges: &mut Ranges,
    mut start: Vec<u8>,
    mut end: Option<Vec<u8>>,
) -> (Vec<u8>, Ranges) {
    let mut replaced = Ranges::new();
    loop {
        let last = match &end {
            Some(end) => ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(&end[..]))),
            None => ranges.range::<[u8], _>(..),
        };
        let mut last = last;
        let Some((low, high)) = last.next_back() else { break };
        if high.as_ref().is_some_and(|high| *high < start) {
            break;
        }
        let low = low.clone();
        if let Some(high) = ranges.remove(&low) {
            end = end.zip(high.clone()).map(|(one, two)| one.max(two));
            replaced.insert(low.clone(), high);
        }
        start = start.min(low);
    }
    ranges.insert(start.clone(), end);
    (start, replaced)
}
