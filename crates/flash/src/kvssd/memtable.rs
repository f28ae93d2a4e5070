//! Writes that are in no table yet, by key, versions newest first. In RAM; the capacitor's side
//! file or the log makes them survive.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::kv_page::{KeyBlock, Kind, Record, page_room_bytes, record_bytes};

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) seq: u64,
    pub(super) kind: Kind,
    pub(super) value: Vec<u8>,
}

/// See the module docs.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    small_bytes: u64,
    small_count: u64,
    /// Pages of the records that take more than one.
    large_pages: u64,
}

impl Memtable {
    /// Adds the newest version of a key. A version that no snapshot can see is replaced:
    /// `newest_snapshot` is the largest sequence number that one was taken at, if any is held.
    pub(super) fn insert(
        &mut self,
        key: &[u8],
        version: Version,
        newest_snapshot: Option<u64>,
        page_bytes: usize,
    ) {
        self.weigh(key, &version, page_bytes, true);
        let Some(versions) = self.keys.get_mut(key) else {
            self.keys.insert(key.to_vec(), vec![version]);
            return;
        };
        let is_needed = |old: &Version| newest_snapshot.is_some_and(|newest| newest >= old.seq);
        if versions.first().is_some_and(|newest| !is_needed(newest)) {
            let old = std::mem::replace(&mut versions[0], version);
            self.weigh(key, &old, page_bytes, false);
        } else {
            versions.insert(0, version);
        }
    }

    fn weigh(&mut self, key: &[u8], version: &Version, page_bytes: usize, is_added: bool) {
        let bytes = record_bytes(key.len(), version.value.len());
        let room = page_room_bytes(page_bytes);
        let (small, count, large) = match bytes <= room {
            true => (bytes as u64, 1, 0),
            false => (0, 0, (bytes.div_ceil(page_bytes) + 1) as u64),
        };
        let change = |field: &mut u64, by: u64| match is_added {
            true => *field += by,
            false => *field -= by,
        };
        change(&mut self.small_bytes, small);
        change(&mut self.small_count, count);
        change(&mut self.large_pages, large);
    }

    /// Pages that a flush makes of it, close enough: exact for records of one size.
    pub(super) fn page_count(&self, page_bytes: usize) -> u64 {
        if self.small_count == 0 {
            return self.large_pages;
        }
        let mean_bytes = (self.small_bytes / self.small_count).max(1);
        let per_page = (page_room_bytes(page_bytes) as u64 / mean_bytes).max(1);
        self.small_count.div_ceil(per_page) + self.large_pages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key and value bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.small_bytes
    }

    /// The newest version that a reader at `snapshot` sees.
    pub(super) fn get(&self, key: &[u8], snapshot: u64) -> Option<&Version> {
        self.keys.get(key)?.iter().find(|version| version.seq <= snapshot)
    }

    /// Up to `count` keys from one on, in order.
    pub(super) fn after(&self, from: Bound<&[u8]>, count: usize) -> Vec<KeyBlock> {
        let range = self.keys.range::<[u8], _>((from, Bound::Unbounded));
        range.take(count).map(|(key, versions)| block(key, versions)).collect()
    }

    /// Up to `count` keys up to one, in reverse order.
    pub(super) fn before(&self, to: Bound<&[u8]>, count: usize) -> Vec<KeyBlock> {
        let range = self.keys.range::<[u8], _>((Bound::Unbounded, to));
        range.rev().take(count).map(|(key, versions)| block(key, versions)).collect()
    }

    /// Every key with its versions, in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = KeyBlock> + '_ {
        self.keys.iter().map(|(key, versions)| block(key, versions))
    }
}

fn block(key: &[u8], versions: &[Version]) -> KeyBlock {
    let record = |version: &Version| Record {
        key: key.to_vec(),
        seq: version.seq,
        kind: version.kind,
        value: version.value.clone(),
    };
    versions.iter().map(record).collect()
}
