//! The state that replaces changes which the log no longer has. If the log does not reach back to a
//! position, this is the newest value of each key that was written since, and the deletes that
//! tables still contain.
//!
//! 1. Writes after the position are in memtables, in tables with larger sequence numbers, and
//!    nowhere else. Their keys are returned with their present values.
//! 2. Writes that no longer exist are not returned: values that were overwritten meanwhile, and
//!    deletes that compactions have dropped together with the entries that they hid.
//! 3. All of the state belongs to one view, and the log is read from that view on.
//! 4. For a consumer that has nothing, the state is each key of the view with its value. Deletes
//!    are left out, because the consumer does not have their keys.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Change, Position};
use crate::catalog::keyspace::View;
use crate::error::Result;
use crate::keys::{Kind, SeqNo, seq_of};
use crate::read::cursor::Cursor;
use crate::read::merge::MergeIter;
use crate::read::options::ReadOptions;
use crate::read::source::{RunIter, Source};
use crate::store::follow::Follower;
use crate::store::recovery::describe;
use crate::store::{Keyspace, Store};
use crate::table::handle::TableHandle;
use crate::table::iterator::Access;
use crate::tree::level::{ReadLevel, RunTables};
use crate::wal::batch::Batch;

/// About how large a batch becomes.
const BATCH_BYTES: usize = 1 << 20;

/// A part of the history that the log does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The state of each key that was written after this number follows. 0 if the history of the
    /// position is no longer known, and at the beginning of [`super::ChangesFrom::Everything`]:
    /// then it is the state of all keys.
    pub after: SeqNo,
    /// The state is as of this sequence number, and the log continues after it.
    pub through: SeqNo,
}

/// Returns the state after a gap.
#[derive(Debug)]
pub(super) struct StateReader {
    /// Keeps the files of the view.
    _follower: Follower,
    /// Only the state of keys that were written after this number is returned; `None` for all keys
    /// of the view.
    since: Option<SeqNo>,
    /// The position before the gap: a caller that is interrupted begins there again.
    before: Position,
    /// The changes that are returned before the keys.
    first: VecDeque<Change>,
    left: VecDeque<Keyspace>,
    current: Option<KeyspaceReader>,
}

impl StateReader {
    /// The state of `follower` for keys that were written in the gap, or for all of them.
    pub(super) fn new(follower: Follower, gap: Gap, before: Position) -> Result<StateReader> {
        let store: Store = follower.store();
        // The keyspaces of the view: the store may have others by now, and the log will report
        // them.
        let keyspaces = store.inner.catalog.all().iter().map(|one| describe(one)).collect();
        let names = store.keyspaces();
        let left: Result<VecDeque<Keyspace>> =
            names.iter().map(|name| store.keyspace(name)).collect();
        let left = left?;
        let since = (before != Position::START).then_some(gap.after);
        let first = [Change::Gap(gap), Change::Keyspaces(keyspaces)].into();
        Ok(StateReader { _follower: follower, since, before, first, left, current: None })
    }

    /// The position before the gap.
    pub(super) fn before(&self) -> Position {
        self.before
    }

    /// The next part; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Change>> {
        if let Some(change) = self.first.pop_front() {
            return Ok(Some(change));
        }
        loop {
            if let Some(keyspace) = &mut self.current {
                let batch = keyspace.next()?;
                if !batch.is_empty() {
                    return Ok(Some(Change::State(batch)));
                }
                self.current = None;
            }
            let Some(next) = self.left.pop_front() else { return Ok(None) };
            self.current = Some(KeyspaceReader::new(&next, self.since)?);
        }
    }
}

/// Returns the state of a keyspace.
#[derive(Debug)]
struct KeyspaceReader {
    keyspace: Keyspace,
    values: Cursor,
    /// Finds the keys to return. If `None`, the cursor over the values walks all keys.
    newer: Option<Newer>,
    /// Range deletes are returned first: a key that was written after a range delete follows with
    /// its present value.
    range_deletes: Batch,
}

/// The keys that were written after a number.
#[derive(Debug)]
struct Newer {
    after: SeqNo,
    /// Everything that may have newer entries.
    entries: MergeIter,
    /// The last key that was returned, if any was.
    last: Option<Vec<u8>>,
}

impl KeyspaceReader {
    fn new(keyspace: &Keyspace, since: Option<SeqNo>) -> Result<KeyspaceReader> {
        let mut values = keyspace.cursor(ReadOptions::default())?;
        let (mut range_deletes, mut newer) = (Batch::new(), None);
        match since {
            None => values.seek_to_first()?,
            Some(after) => {
                let view = keyspace.inner.view.load_full();
                let mut entries = MergeIter::new(sources(&view, after));
                entries.seek_to_first()?;
                range_deletes = range_deletes_of(keyspace, &view, after)?;
                newer = Some(Newer { after, entries, last: None });
            }
        }
        Ok(KeyspaceReader { keyspace: keyspace.clone(), values, newer, range_deletes })
    }

    /// The next batch; an empty one at the end.
    fn next(&mut self) -> Result<Batch> {
        let (id, values) = (self.keyspace.id(), &mut self.values);
        let mut batch = std::mem::take(&mut self.range_deletes);
        match &mut self.newer {
            None => {
                while batch.encoded().len() < BATCH_BYTES && values.valid() {
                    push_value(&mut batch, id, values)?;
                    values.next()?;
                }
            }
            Some(newer) => newer.add_to(&mut batch, id, values)?,
        }
        Ok(batch)
    }
}

impl Newer {
    fn add_to(&mut self, batch: &mut Batch, id: u32, values: &mut Cursor) -> Result<()> {
        while batch.encoded().len() < BATCH_BYTES
            && let Some((key, trailer)) = self.entries.current()
        {
            if seq_of(trailer) > self.after && self.last.as_deref() != Some(key) {
                let key = key.to_vec();
                push_state(batch, id, values, &key)?;
                self.last = Some(key);
            }
            self.entries.step()?;
        }
        Ok(())
    }
}

/// Adds the present value of a key.
fn push_state(batch: &mut Batch, id: u32, values: &mut Cursor, key: &[u8]) -> Result<()> {
    values.seek(key)?;
    if !values.valid() || values.key() != key {
        return batch.push(Kind::Delete, id, key, &[]);
    }
    push_value(batch, id, values)
}

/// Adds the current key of the cursor, with its value.
fn push_value(batch: &mut Batch, id: u32, values: &Cursor) -> Result<()> {
    match values.expiry()?.at_ms()? {
        Some(at_ms) => batch.push_expiring(id, values.key(), values.value(), at_ms),
        None => batch.push(Kind::Put, id, values.key(), values.value()),
    }
}

/// Streams over the memtables and over the tables with entries after a number.
fn sources(view: &View, after: SeqNo) -> Vec<Source> {
    let memtables = view.memtables().filter(|memtable| memtable.max_seq() > after);
    let mut sources: Vec<Source> = memtables.map(Source::memtable).collect();
    let mut add = |run: &RunTables| {
        let tables = run.tables.iter().filter(|table| table.meta().max_seq > after);
        let tables: Vec<Arc<TableHandle>> = tables.cloned().collect();
        if !tables.is_empty() {
            let run = Arc::new(RunTables::new(tables));
            sources.push(Source::Run(RunIter::new(run, Access::Sequential)));
        }
    };
    for level in &view.version.levels {
        match &**level {
            ReadLevel::Runs(runs) => runs.iter().for_each(|run| add(run)),
            ReadLevel::Overlapping(index) => index.chains.iter().for_each(|run| add(run)),
        }
    }
    sources
}

fn range_deletes_of(keyspace: &Keyspace, view: &View, after: SeqNo) -> Result<Batch> {
    let mut batch = Batch::new();
    let in_memtables = view.memtables().filter_map(|memtable| memtable.range_deletes());
    let all = in_memtables.chain(view.version.range_deletes.clone());
    for range in all.flat_map(|ranges| ranges.iter().collect::<Vec<_>>()) {
        if range.seq > after {
            let end = range.end.as_deref().unwrap_or_default();
            batch.push(Kind::RangeDelete, keyspace.id(), &range.start, end)?;
        }
    }
    Ok(batch)
}
