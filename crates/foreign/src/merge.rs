//! Merges all versions of all keys from logs and levels in order, and finds the newest version of
//! each key.
//!
//! 1. Each level below the first is one source, whose tables are opened one after another. Each
//!    table of level 0 is a source, and the contents of the logs are another.
//! 2. A heap of sources has the smallest key on top, and of equal keys the newest version.
//! 3. The first version of a key decides; the others are skipped. If that version is a delete, or
//!    if a newer range delete covers the key, the key is left out.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use crate::batch::Held;
use crate::error::{Error, Fault, Result};
use crate::keys::Dialect;
use crate::table::{Head, Table, TableCursor};
use crate::tombstones::Tombstones;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A table that is still to be opened.
#[derive(Clone, Debug)]
pub struct Unopened {
    pub path: PathBuf,
    pub bytes: u64,
    pub largest_seq: Option<u64>,
}

impl Unopened {
    pub fn open(&self, dialect: Dialect) -> Result<Table> {
        Table::open(&self.path, dialect, self.bytes, self.largest_seq)
    }
}

/// Entries in the order of their keys.
pub enum Source {
    Level(Box<Level>),
    Memory(InMemory),
}

/// Newest versions, sorted by key.
pub type Sorted = Vec<(Vec<u8>, Held)>;

/// Tables whose ranges of keys follow one another.
pub struct Level {
    dialect: Dialect,
    waiting: VecDeque<Unopened>,
    cursor: Option<TableCursor>,
    after: Option<Vec<u8>>,
    /// Bytes read from the tables that are finished.
    read_bytes: u64,
}

/// The entries of a family in the logs.
pub struct InMemory {
    entries: Arc<Sorted>,
    /// The index of the next entry.
    next: usize,
    /// The path that errors name.
    place: PathBuf,
    /// Bytes of the keys and values that were returned.
    read_bytes: u64,
}

impl Source {
    pub fn level(
        dialect: Dialect,
        tables: impl IntoIterator<Item = Unopened>,
        after: Option<Vec<u8>>,
    ) -> Source {
        let waiting = tables.into_iter().collect();
        let level = Level { dialect, waiting, cursor: None, after, read_bytes: 0 };
        Source::Level(Box::new(level))
    }

    pub fn memory(entries: Arc<Sorted>, place: PathBuf, after: Option<&[u8]>) -> Source {
        let is_left_out = |key: &[u8]| after.is_some_and(|after| key <= after);
        let next = entries.partition_point(|(key, _)| is_left_out(key));
        Source::Memory(InMemory { entries, next, place, read_bytes: 0 })
    }

    fn next(&mut self) -> Result<bool> {
        match self {
            Source::Level(level) => level.next(),
            Source::Memory(held) => {
                held.next += 1;
                let read = held.at().map_or(0, |(key, held)| key.len() + held.value.len());
                held.read_bytes += read as u64;
                Ok(held.next <= held.entries.len())
            }
        }
    }

    fn head(&self) -> Option<Head<'_>> {
        match self {
            Source::Level(level) => level.cursor.as_ref().map(TableCursor::head),
            Source::Memory(held) => {
                let (key, held) = held.at()?;
                Some((key, held.seq, held.kind))
            }
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Source::Level(level) => level.cursor.as_ref().map_or(&[], TableCursor::value),
            Source::Memory(held) => held.at().map_or(&[], |(_, held)| &held.value),
        }
    }

    fn fault(&self, fault: Fault) -> Error {
        match self {
            Source::Level(level) => match &level.cursor {
                Some(cursor) => cursor.fault(fault),
                None => fault.at(&PathBuf::new(), None),
            },
            Source::Memory(held) => fault.at(&held.place, None),
        }
    }

    fn read_bytes(&self) -> u64 {
        match self {
            Source::Level(level) => {
                level.read_bytes + level.cursor.as_ref().map_or(0, |cursor| cursor.read_bytes)
            }
            Source::Memory(held) => held.read_bytes,
        }
    }
}

impl InMemory {
    fn at(&self) -> Option<&(Vec<u8>, Held)> {
        self.entries.get(self.next.checked_sub(1)?)
    }
}

impl Level {
    fn next(&mut self) -> Result<bool> {
        loop {
            if let Some(cursor) = &mut self.cursor {
                if cursor.next()? {
                    return Ok(true);
                }
                self.read_bytes += cursor.read_bytes;
                self.cursor = None;
            }
            let Some(next) = self.waiting.pop_front() else { return Ok(false) };
            let table = next.open(self.dialect)?;
            self.cursor = Some(TableCursor::new(table, self.after.clone())?);
        }
    }
}

/// See the module docs.
pub struct Merge {
    sources: Vec<Source>,
    /// Indices of the sources that have an entry.
    heap: Vec<usize>,
    tombstones: Tombstones,
    /// The last key that was examined.
    last: Option<Vec<u8>>,
}

impl Merge {
    pub fn new(mut sources: Vec<Source>, tombstones: Tombstones) -> Result<Merge> {
        let mut heap = Vec::new();
        for (number, source) in sources.iter_mut().enumerate() {
            if source.next()? {
                heap.push(number);
            }
        }
        let mut merge = Merge { sources, heap, tombstones, last: None };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        Ok(merge)
    }

    /// Bytes of blocks that were read.
    pub fn read_bytes(&self) -> u64 {
        self.sources.iter().map(Source::read_bytes).sum()
    }

    /// The next key that has a value.
    pub fn next(&mut self) -> Result<Option<Pair>> {
        while let Some(top) = self.heap.first().copied() {
            let source = &self.sources[top];
            let Some((key, seq, kind)) = source.head() else { return Ok(None) };
            match self.last.as_deref().map_or(Ordering::Greater, |last| key.cmp(last)) {
                Ordering::Equal => {}
                Ordering::Less => {
                    let what = format!("the keys of a table descend at {}", key.escape_ascii());
                    return Err(source.fault(Fault::damaged(what)));
                }
                Ordering::Greater => {
                    let last = self.last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key);
                    if !self.tombstones.cover(key, seq) {
                        let value = kind.visible(source.value());
                        let value = value.map_err(|fault| source.fault(named(fault, key)))?;
                        if let Some(value) = value {
                            let pair = (key.to_vec(), value.to_vec());
                            self.advance()?;
                            return Ok(Some(pair));
                        }
                    }
                }
            }
            self.advance()?;
        }
        Ok(None)
    }

    /// Advances the source on top.
    fn advance(&mut self) -> Result<()> {
        if !self.sources[self.heap[0]].next()? {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2];
            let there = children.into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = there.min_by(|one, two| self.compare(*one, *two)) else { return };
            if self.compare(at, least) != Ordering::Greater {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// Orders by key, then the newest first, then by source.
    fn compare(&self, one: usize, two: usize) -> Ordering {
        let (one, two) = (self.heap[one], self.heap[two]);
        match (self.sources[one].head(), self.sources[two].head()) {
            (Some((key, seq, _)), Some((other, other_seq, _))) => {
                key.cmp(other).then(other_seq.cmp(&seq)).then(one.cmp(&two))
            }
            (one, two) => two.is_some().cmp(&one.is_some()),
        }
    }
}

/// Names the key for which something is not supported.
fn named(fault: Fault, key: &[u8]) -> Fault {
    match fault {
        Fault::Unsupported { what, hint } => {
            Fault::Unsupported { what: format!("key {}: {what}", key.escape_ascii()), hint }
        }
        damaged => damaged,
    }
}
