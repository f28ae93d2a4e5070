//! One sorted stream of internal keys: a memtable, or a run whose tables are opened one at a time.

use std::sync::Arc;

use crate::catalog::keyspace::View;
use crate::error::Result;
use crate::format::block::{BEFORE_ALL_VERSIONS, BlockCursor};
use crate::keys::{HeadRule, SeqNo};
use crate::memtable::btree::Record;
use crate::memtable::{Memtable, MemtableIter};
use crate::table::iterator::{Access, TableIter};
use crate::tree::level::{ReadLevel, RunTables};
use crate::values::Value;

/// A run, walked table by table.
#[derive(Debug)]
pub struct RunIter {
    run: Arc<RunTables>,
    access: Access,
    table: usize,
    iter: Option<TableIter>,
}

impl RunIter {
    /// An iterator that is on no entry. Seek before use.
    pub fn new(run: Arc<RunTables>, access: Access) -> RunIter {
        RunIter { run, access, table: 0, iter: None }
    }

    fn open(&mut self, table: usize) -> Result<Option<&mut TableIter>> {
        if table >= self.run.tables.len() {
            self.iter = None;
            return Ok(None);
        }
        if self.iter.is_none() || self.table != table {
            let handle = &self.run.tables[table];
            let reader = Arc::clone(handle.reader()?);
            let iter = TableIter::new(reader, self.access).starting_at(handle.trim_key());
            self.iter = Some(iter.after(self.iter.take()));
            self.table = table;
        }
        Ok(self.iter.as_mut())
    }

    /// The cursor in the current block, without the rest of the iterator.
    pub(super) fn into_cursor(self) -> Option<BlockCursor> {
        self.iter.and_then(TableIter::into_cursor)
    }

    fn approach(&mut self, key: &[u8]) -> Result<()> {
        let at = self.run.lower_bound(key);
        self.open(at)?.map_or(Ok(()), |iter| iter.approach(key))
    }

    fn finish_seek(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.finish_seek(key, trailer)?;
        }
        // The versions of a key may continue in the next table.
        while self.iter.as_ref().is_some_and(|iter| !iter.valid()) {
            if let Some(iter) = self.open(self.table + 1)? {
                iter.seek(key, trailer)?;
            }
        }
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        if let Some(iter) = self.open(0)? {
            iter.seek_to_first()?;
        }
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        if let Some(iter) = self.open(self.run.tables.len().wrapping_sub(1))? {
            iter.seek_to_last()?;
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.next()?;
            if !iter.valid() {
                return self.skip_forward();
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.prev()?;
        }
        while self.iter.as_ref().is_some_and(|iter| !iter.valid()) {
            match self.table.checked_sub(1) {
                Some(table) => {
                    if let Some(iter) = self.open(table)? {
                        iter.seek_to_last()?;
                    }
                }
                None => self.iter = None,
            }
        }
        Ok(())
    }

    /// See [`Source::skip_older`].
    fn skip_older(&mut self, bound: Option<&[u8]>, seq: SeqNo) -> Result<bool> {
        let mut moved = false;
        while let Some((handle, iter)) = self.run.tables.get(self.table).zip(self.iter.as_mut()) {
            let is_before = |cursor: &&BlockCursor| bound.is_none_or(|bound| cursor.key() < bound);
            let cursor = iter.cursor().filter(|cursor| cursor.valid());
            if cursor.filter(is_before).is_none() || handle.meta().max_seq > seq {
                break;
            }
            moved = true;
            match bound {
                Some(bound) if *handle.meta().max_key >= *bound => {
                    iter.seek(bound, BEFORE_ALL_VERSIONS)?;
                    self.skip_forward()?;
                }
                _ => {
                    if let Some(iter) = self.open(self.table + 1)? {
                        iter.seek_to_first()?;
                    }
                }
            }
        }
        Ok(moved)
    }

    /// See [`Source::skip_older_back`].
    fn skip_older_back(&mut self, bound: Option<&[u8]>, seq: SeqNo) -> Result<bool> {
        let mut moved = false;
        while let Some((handle, iter)) = self.run.tables.get(self.table).zip(self.iter.as_mut()) {
            let is_behind = |cursor: &&BlockCursor| bound.is_none_or(|bound| cursor.key() >= bound);
            let cursor = iter.cursor().filter(|cursor| cursor.valid());
            if cursor.filter(is_behind).is_none() || handle.meta().max_seq > seq {
                break;
            }
            moved = true;
            match (bound, self.table.checked_sub(1)) {
                (Some(bound), _) if *handle.meta().min_key < *bound => {
                    iter.seek(bound, BEFORE_ALL_VERSIONS)?;
                    self.prev()?;
                }
                (_, Some(table)) => {
                    if let Some(iter) = self.open(table)? {
                        iter.seek_to_last()?;
                    }
                }
                (_, None) => self.iter = None,
            }
        }
        Ok(moved)
    }

    fn skip_block(&mut self) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.skip_block()?;
        }
        self.skip_forward()
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.iter.as_ref().is_some_and(|iter| !iter.valid()) {
            if let Some(iter) = self.open(self.table + 1)? {
                iter.seek_to_first()?;
            }
        }
        Ok(())
    }
}

/// One stream per memtable and per run, newest first. An overlapping level has one stream per chain
/// of tables.
pub(crate) fn sources(view: &View, access: Access) -> Vec<Source> {
    let memtables = view.memtables();
    let mut sources: Vec<Source> =
        memtables.filter(|memtable| !memtable.is_empty()).map(Source::memtable).collect();
    for level in &view.version.levels {
        match &**level {
            ReadLevel::Runs(runs) => sources
                .extend(runs.iter().map(|run| Source::Run(RunIter::new(Arc::clone(run), access)))),
            ReadLevel::Overlapping(index) => sources.extend(
                index.chains.iter().map(|row| Source::Run(RunIter::new(Arc::clone(row), access))),
            ),
        }
    }
    sources
}

/// A sorted stream of entries.
// Few streams exist at a time, and each step of a scan uses one: a box would cost more than it
// saves.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Source {
    /// A memtable and its iterator.
    Memtable(Arc<Memtable>, MemtableIter),
    /// A run of tables.
    Run(RunIter),
}

impl Source {
    /// A stream over a memtable.
    pub fn memtable(memtable: &Arc<Memtable>) -> Source {
        Source::Memtable(Arc::clone(memtable), MemtableIter::new(Arc::clone(memtable)))
    }

    /// Runs the first half of a seek, see [`TableIter::approach`].
    pub fn approach(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Source::Memtable(..) => Ok(()),
            Source::Run(iter) => iter.approach(key),
        }
    }

    /// After [`Source::approach`], moves to the first entry at or after the internal key.
    pub fn finish_seek(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        match self {
            Source::Memtable(_, iter) => iter.seek(key, trailer),
            Source::Run(iter) => iter.finish_seek(key, trailer)?,
        }
        Ok(())
    }

    /// After [`Source::approach`], moves to the last entry before the internal key.
    pub fn finish_seek_before(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        self.finish_seek(key, trailer)?;
        if self.current().is_some() { self.prev() } else { self.seek_to_last() }
    }

    pub fn seek_to_first(&mut self) -> Result<()> {
        match self {
            Source::Memtable(_, iter) => iter.seek_to_first(),
            Source::Run(iter) => iter.seek_to_first()?,
        }
        Ok(())
    }

    pub fn seek_to_last(&mut self) -> Result<()> {
        match self {
            Source::Memtable(_, iter) => iter.seek_to_last(),
            Source::Run(iter) => iter.seek_to_last()?,
        }
        Ok(())
    }

    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match self {
            Source::Memtable(_, iter) => iter.next(),
            Source::Run(iter) => iter.next()?,
        }
        Ok(())
    }

    pub fn prev(&mut self) -> Result<()> {
        match self {
            Source::Memtable(_, iter) => iter.prev(),
            Source::Run(iter) => iter.prev()?,
        }
        Ok(())
    }

    /// Seeks to the first entry at or after `bound`, or to the end, but skips only entries with
    /// sequence number `seq` or smaller: it stops before a table that may contain a newer entry.
    /// Returns whether it moved.
    pub fn skip_older(&mut self, bound: Option<&[u8]>, seq: SeqNo) -> Result<bool> {
        match self {
            Source::Run(iter) => iter.skip_older(bound, seq),
            Source::Memtable(memtable, iter) => {
                let is_before = |record: &&Record| bound.is_none_or(|bound| record.key() < bound);
                let moves = memtable.max_seq() <= seq && iter.record().filter(is_before).is_some();
                match bound.filter(|_| moves) {
                    Some(bound) => iter.seek(bound, BEFORE_ALL_VERSIONS),
                    None if moves => iter.leave(),
                    None => {}
                }
                Ok(moves)
            }
        }
    }

    /// Seeks to the last entry before `bound`, or before the first entry, see
    /// [`Source::skip_older`].
    pub fn skip_older_back(&mut self, bound: Option<&[u8]>, seq: SeqNo) -> Result<bool> {
        match self {
            Source::Run(iter) => iter.skip_older_back(bound, seq),
            Source::Memtable(memtable, iter) => {
                let is_behind = |record: &&Record| bound.is_none_or(|bound| record.key() >= bound);
                let moves = memtable.max_seq() <= seq && iter.record().filter(is_behind).is_some();
                match bound.filter(|_| moves) {
                    Some(bound) => {
                        iter.seek(bound, BEFORE_ALL_VERSIONS);
                        if iter.record().is_some() { iter.prev() } else { iter.seek_to_last() }
                    }
                    None if moves => iter.leave(),
                    None => {}
                }
                Ok(moves)
            }
        }
    }

    /// The user key and trailer of the current entry.
    #[inline]
    pub fn current(&self) -> Option<(&[u8], u64)> {
        match self {
            Source::Memtable(_, iter) => {
                iter.record().map(|record| (record.key(), record.trailer()))
            }
            Source::Run(iter) => {
                let cursor = iter.iter.as_ref()?.cursor()?;
                cursor.valid().then(|| (cursor.key(), cursor.trailer()))
            }
        }
    }

    /// User key, trailer and value of the current entry.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], u64, &[u8])> {
        match self {
            Source::Memtable(_, iter) => {
                iter.record().map(|record| (record.key(), record.trailer(), record.value()))
            }
            Source::Run(iter) => {
                let cursor = iter.iter.as_ref()?.cursor()?;
                cursor.valid().then(|| (cursor.key(), cursor.trailer(), cursor.value()))
            }
        }
    }

    /// The trailer of the current entry, if the entry is a version of `key`.
    #[inline]
    pub fn version_of(&self, key: &[u8]) -> Option<u64> {
        self.current().filter(|(found, _)| *found == key).map(|(_, trailer)| trailer)
    }

    /// How the heads of the keys are computed, if the source is a run.
    pub fn head_rule(&self) -> Option<HeadRule> {
        match self {
            Source::Memtable(..) => None,
            Source::Run(iter) => Some(iter.run.head_rule),
        }
    }

    /// The table of the current entry, if the source is a run.
    #[inline]
    pub fn table(&self) -> Option<&TableIter> {
        match self {
            Source::Memtable(..) => None,
            Source::Run(iter) => iter.iter.as_ref(),
        }
    }

    /// Moves a run to the first entry of the next block; does nothing for a memtable.
    pub fn skip_block(&mut self) -> Result<()> {
        match self {
            Source::Memtable(..) => Ok(()),
            Source::Run(iter) => iter.skip_block(),
        }
    }

    /// Value of the current entry; empty if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self {
            Source::Memtable(_, iter) => iter.record().map_or(&[], |record| record.value()),
            Source::Run(iter) => {
                iter.iter.as_ref().and_then(TableIter::cursor).map_or(&[], |c| c.value())
            }
        }
    }

    /// The value of the current entry, which stays valid after the next step.
    pub fn pin_value(&self) -> Value {
        match self {
            Source::Memtable(memtable, iter) => {
                iter.record().map(|record| Value::in_memtable(memtable, record))
            }
            Source::Run(iter) => iter.iter.as_ref().and_then(TableIter::cursor).map(|cursor| {
                let (block, at, len) = cursor.pin();
                Value::in_block(block, at, len)
            }),
        }
        .unwrap_or_else(|| Value::owned([]))
    }
}
