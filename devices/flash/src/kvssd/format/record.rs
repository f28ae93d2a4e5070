//! Keys and their versions in RAM. How pages store them is in `kv_page.rs`.

use std::ops::Range;

use crate::kvssd::format::kv_page::{KvPage, record_bytes};
use crate::nand::SharedValue;
use crate::rest::u32_at;

/// What a record says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key is deleted.
    Delete = 2,
    /// The key has a separated value, which is found by key and sequence number. The record
    /// contains the length of that value.
    Pointer = 3,
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        match number {
            1 => Some(Kind::Put),
            2 => Some(Kind::Delete),
            3 => Some(Kind::Pointer),
            _ => None,
        }
    }
}

/// A version of a key, without the key. A clone shares the value.
#[derive(Clone, Debug)]
pub struct Version {
    /// Position in the history of writes, below 2^56.
    pub seq: u64,
    /// Put, delete or pointer.
    pub kind: Kind,
    /// crc32c of the value. It is computed when the value is written, and copied from page to page.
    pub checksum: u32,
    /// Value; empty for a delete.
    pub value: SharedValue,
}

impl Version {
    /// A version with a value of its own.
    pub fn new(seq: u64, kind: Kind, value: &[u8]) -> Version {
        Version { seq, kind, checksum: crc32c::crc32c(value), value: value.into() }
    }

    /// The version that the tree keeps instead of a version whose value is separated.
    pub(crate) fn pointer(&self) -> Version {
        Version::new(self.seq, Kind::Pointer, &(self.value.len() as u32).to_le_bytes())
    }

    /// Length of the value that a pointer points to; `None` if this is not a pointer.
    pub(crate) fn apart_bytes(&self) -> Option<usize> {
        let len = u32_at(&self.value, 0).unwrap_or_default();
        (self.kind == Kind::Pointer).then_some(len as usize)
    }
}

/// A version with its key.
#[derive(Clone)]
pub struct Record {
    key: Box<[u8]>,
    version: Version,
}

impl Record {
    /// A record with bytes of its own. The key is shorter than 64 KiB. A delete has no value.
    pub fn new(seq: u64, kind: Kind, key: &[u8], value: &[u8]) -> Record {
        Record::of(key, Version::new(seq, kind, value))
    }

    pub(crate) fn of(key: &[u8], version: Version) -> Record {
        Record { key: key.into(), version }
    }

    /// User key, shorter than 64 KiB.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Position in the history of writes.
    pub fn seq(&self) -> u64 {
        self.version.seq
    }

    /// Put, delete or pointer.
    pub fn kind(&self) -> Kind {
        self.version.kind
    }

    /// Value; empty for a delete.
    pub fn value(&self) -> &[u8] {
        &self.version.value
    }

    /// The version without the key.
    pub fn version(&self) -> &Version {
        &self.version
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        let parts = |record: &Record| (record.seq(), record.kind());
        parts(self) == parts(other) && self.key == other.key && self.value() == other.value()
    }
}

impl Eq for Record {}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, value) = (self.key().escape_ascii(), self.value().escape_ascii());
        write!(f, "{key}@{} {:?} {value}", self.seq(), self.kind())
    }
}

/// The versions of one key, newest first, or a run of a page. It is allocated once and filled for
/// key after key.
#[derive(Clone, Default)]
pub struct KeyBlock {
    /// The key. It means nothing if there are no versions.
    pub key: Vec<u8>,
    /// The versions.
    pub versions: Vec<Version>,
    /// In place of the versions: a run of records of a page, each of which is the only version of
    /// its key. The run moves to another page in one piece.
    pub(crate) run: Option<(KvPage, Range<usize>)>,
}

impl KeyBlock {
    /// Adds a version that is older than those present. The first version sets the key.
    pub fn push(&mut self, key: &[u8], version: Version) {
        if self.versions.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.versions.push(version);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.run.is_none()
    }

    /// Moves everything below a key to an empty block. Returns whether anything moved.
    pub(crate) fn move_below(&mut self, limit: &[u8], block: &mut KeyBlock) -> bool {
        let Some((page, run)) = &mut self.run else {
            let is_below = *self.key < *limit;
            if is_below {
                std::mem::swap(self, block);
            }
            return is_below;
        };
        let below = run.clone().take_while(|at| page.key(*at) < limit).count();
        let taken = run.start..run.start + below;
        run.start = taken.end;
        block.run = (below > 0).then(|| (page.clone(), taken));
        self.run.take_if(|(_, run)| run.start == run.end);
        below > 0
    }

    /// Bytes that its versions take in a page.
    pub(crate) fn page_bytes(&self) -> usize {
        let bytes = |version: &Version| record_bytes(self.key.len(), version.value.len());
        self.versions.iter().map(bytes).sum()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.versions.iter().map(|version| Record::of(&self.key, version.clone()))
    }
}
