//! Scans in both directions: a merge of the memtable and every table. It opens tables and pages
//! when it reaches them. It shows one consistent view: versions above the snapshot are skipped.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::View;
use crate::error::Result;
use crate::kvssd::catalog::{read_meta, read_records};
use crate::kvssd::format::meta_page::{Clip, Entry};
use crate::kvssd::format::record::{KeyBlock, Kind, Record};
use crate::kvssd::tree::Node;

/// How many keys the memtable hands out at a time.
const MEMTABLE_KEYS: usize = 64;

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// Called with each key and value; `false` ends the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// The next record of an open source.
struct Head {
    record: Record,
    rest: std::vec::IntoIter<Record>,
    /// Whether the source is the memtable, which has more keys after this part.
    is_memtable: bool,
}

/// A source that is not opened yet.
enum Item {
    Table(Arc<Node>),
    Page(Entry),
}

impl Item {
    fn clip(&self) -> &Clip {
        match self {
            Item::Table(node) => &node.fence,
            Item::Page(entry) => &entry.clip,
        }
    }
}

struct Scan<'a, 'b> {
    view: &'a mut View<'b>,
    direction: Direction,
    from: Option<Vec<u8>>,
    /// Sources that are not opened yet, sorted so that the last one is opened next.
    waiting: Vec<Item>,
    /// Open sources, sorted so that the last one is next. They are few: one for each stratum of a
    /// run.
    heads: Vec<Head>,
    /// The last key that the memtable has handed out.
    memtable_at: Option<Vec<u8>>,
    is_memtable_done: bool,
}

impl View<'_> {
    /// Visits entries as the snapshot sees them, from the first key >= `from` until `visit` returns
    /// false. In reverse it starts at the last key <= `from`. If `from` is `None`, it starts at the
    /// first key, or in reverse at the last.
    pub(crate) fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        snapshot: u64,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut scan = Scan {
            waiting: self.catalog.tree.nodes().cloned().map(Item::Table).collect(),
            view: self,
            direction,
            from: from.map(<[u8]>::to_vec),
            heads: Vec::new(),
            memtable_at: None,
            is_memtable_done: false,
        };
        scan.start();
        let mut decided: Option<Record> = None;
        while let Some(record) = scan.next()? {
            let is_decided = decided.as_ref().is_some_and(|last| last.key() == record.key());
            if record.seq() > snapshot || is_decided {
                continue;
            }
            let is_wanted = match record.kind() {
                Kind::Put => visit(record.key(), record.value()),
                Kind::Pointer => {
                    let value = scan.view.read_value(record.key(), record.seq())?;
                    visit(record.key(), &value)
                }
                Kind::Delete => true,
            };
            if !is_wanted {
                return Ok(());
            }
            decided = Some(record);
        }
        Ok(())
    }
}

impl Scan<'_, '_> {
    fn start(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter(|item| self.is_ahead(item.clip())).collect();
        self.sort();
        self.add_memtable();
    }

    /// Whether the range has keys that the scan visits.
    fn is_ahead(&self, clip: &Clip) -> bool {
        match (&self.from, self.direction) {
            (None, _) => true,
            (Some(from), Direction::Forward) => *clip.hi > **from,
            (Some(from), Direction::Reverse) => *clip.lo <= **from,
        }
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        match (&self.from, self.direction) {
            (None, _) => true,
            (Some(from), Direction::Forward) => key >= from.as_slice(),
            (Some(from), Direction::Reverse) => key <= from.as_slice(),
        }
    }

    fn sort(&mut self) {
        match self.direction {
            Direction::Forward => self.waiting.sort_by(|a, b| b.clip().lo.cmp(&a.clip().lo)),
            Direction::Reverse => self.waiting.sort_by(|a, b| a.clip().hi.cmp(&b.clip().hi)),
        }
    }

    fn next(&mut self) -> Result<Option<Record>> {
        self.open()?;
        let Some(head) = self.heads.pop() else { return Ok(None) };
        self.push(head.rest, head.is_memtable);
        Ok(Some(head.record))
    }

    /// Of two versions of one key, the newer one comes first.
    fn is_before(&self, one: &Record, other: &Record) -> bool {
        let keys = match self.direction {
            Direction::Forward => one.key().cmp(other.key()),
            Direction::Reverse => other.key().cmp(one.key()),
        };
        keys.then_with(|| other.seq().cmp(&one.seq())) == Ordering::Less
    }

    /// Opens the sources that may have a key before the first key of the open sources.
    fn open(&mut self) -> Result<()> {
        while let Some(item) = self.waiting.last() {
            let is_later = |head: &Head| match self.direction {
                Direction::Forward => *head.record.key() < *item.clip().lo,
                Direction::Reverse => *head.record.key() >= *item.clip().hi,
            };
            if self.heads.last().is_some_and(is_later) {
                break;
            }
            match self.waiting.pop() {
                Some(Item::Table(node)) => {
                    let table = read_meta(&mut self.view.catalog.space, &node)?;
                    for entry in table.entries {
                        if self.is_ahead(&entry.clip) {
                            self.waiting.push(Item::Page(entry));
                        }
                    }
                    self.sort();
                }
                Some(Item::Page(entry)) => {
                    let mut records = read_records(&mut self.view.catalog.space, &entry)?;
                    records.retain(|record| self.is_wanted(record.key()));
                    self.add(records, false);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Opens a source of records, which are in ascending order of keys.
    fn add(&mut self, mut records: Vec<Record>, is_memtable: bool) {
        // Versions of a key stay newest first in both directions.
        if self.direction == Direction::Reverse {
            records.sort_by(|a, b| (b.key(), b.seq()).cmp(&(a.key(), a.seq())));
        }
        self.push(records.into_iter(), is_memtable);
    }

    fn push(&mut self, mut rest: std::vec::IntoIter<Record>, is_memtable: bool) {
        match rest.next() {
            Some(record) => {
                let is_later = |head: &Head| self.is_before(&record, &head.record);
                let at = self.heads.partition_point(is_later);
                self.heads.insert(at, Head { record, rest, is_memtable });
            }
            None if is_memtable => self.add_memtable(),
            None => {}
        }
    }

    /// Opens the next part of the memtable.
    fn add_memtable(&mut self) {
        if self.is_memtable_done {
            return;
        }
        let bound = match (&self.memtable_at, &self.from) {
            (Some(last), _) => Bound::Excluded(last.as_slice()),
            (None, Some(from)) => Bound::Included(from.as_slice()),
            (None, None) => Bound::Unbounded,
        };
        let memtable = self.view.memtable;
        let keys = match self.direction {
            Direction::Forward => memtable.after(bound, MEMTABLE_KEYS),
            Direction::Reverse => memtable.before(bound, MEMTABLE_KEYS),
        };
        self.is_memtable_done = keys.len() < MEMTABLE_KEYS;
        self.memtable_at = keys.last().map(|block| block.key.clone());
        self.add(keys.iter().flat_map(KeyBlock::records).collect(), true);
    }
}
