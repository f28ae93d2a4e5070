//! Writes that are in no table yet, by key, versions newest first. They are in RAM. The side file
//! of the capacitor or the log makes them survive.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use crate::kvssd::format::key::Key;
use crate::kvssd::format::kv_page::{page_room_bytes, record_bytes};
use crate::kvssd::format::record::{KeyBlock, Version};

/// The versions of a key. Most keys have one, which needs no list.
#[derive(Clone, Debug)]
pub(crate) struct Versions {
    newest: Version,
    /// Newest first.
    older: Vec<Version>,
}

impl Versions {
    /// All versions, newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    fn block(&self, key: &[u8]) -> KeyBlock {
        let mut block = KeyBlock::default();
        self.all().for_each(|version| block.push(key, version.clone()));
        block
    }
}

/// See the module docs.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    keys: BTreeMap<Key, Versions>,
    small_bytes: u64,
    small_count: u64,
    /// Pages of those records that take more than one page.
    large_pages: u64,
}

impl Memtable {
    /// Adds the newest version of a key. A version that no snapshot can see is replaced.
    /// `newest_snapshot` is the largest sequence number of a snapshot that is held, if any is.
    pub(crate) fn insert(
        &mut self,
        key: &[u8],
        version: Version,
        newest_snapshot: Option<u64>,
        page_bytes: usize,
    ) {
        self.weigh(key, &version, page_bytes, true);
        // One search finds the place. If the key is present already, the copy of the key is wasted,
        // which is rare.
        let versions = match self.keys.entry(key.into()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                place.insert(Versions { newest: version, older: Vec::new() });
                return;
            }
        };
        let old = std::mem::replace(&mut versions.newest, version);
        if newest_snapshot.is_some_and(|newest| newest >= old.seq) {
            versions.older.insert(0, old);
        } else {
            self.weigh(key, &old, page_bytes, false);
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

    /// About how many pages a flush would make. Exact for records of one size.
    pub(crate) fn page_count(&self, page_bytes: usize) -> u64 {
        if self.small_count == 0 {
            return self.large_pages;
        }
        let mean_bytes = (self.small_bytes / self.small_count).max(1);
        let per_page = (page_room_bytes(page_bytes) as u64 / mean_bytes).max(1);
        self.small_count.div_ceil(per_page) + self.large_pages
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key and value bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.small_bytes
    }

    /// The newest version that a reader at `snapshot` sees.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<&Version> {
        self.keys.get(key)?.all().find(|version| version.seq <= snapshot)
    }

    /// Up to `count` keys after this bound, in order.
    pub(crate) fn after(&self, from: Bound<&[u8]>, count: usize) -> Vec<KeyBlock> {
        let range = self.keys.range::<[u8], _>((from, Bound::Unbounded));
        range.take(count).map(|(key, versions)| versions.block(key)).collect()
    }

    /// Up to `count` keys before this bound, in reverse order.
    pub(crate) fn before(&self, to: Bound<&[u8]>, count: usize) -> Vec<KeyBlock> {
        let range = self.keys.range::<[u8], _>((Bound::Unbounded, to));
        range.rev().take(count).map(|(key, versions)| versions.block(key)).collect()
    }

    /// Every key with its versions, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&[u8], &Versions)> {
        self.keys.iter().map(|(key, versions)| (&**key, versions))
    }
}
