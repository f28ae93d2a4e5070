//! The skiplist with which the memtable was compared: in an arena, towers of up to 12 links, keys
//! and values beside their tower, links by index. It allows one writer at a time. Only `limits`
//! uses it, not the store.

use runstone_workloads::generators::Rng;

const MAX_HEIGHT: usize = 12;
/// Index of the head's first link.
const HEAD: usize = 0;
/// Link that leads nowhere.
const END: u32 = 0;

/// A node is an index into `links`, which contains the node's tower; `records` says where its key
/// starts.
pub struct Skiplist {
    /// Per node: record number, then one link per level.
    links: Vec<u32>,
    /// Per record: where the record's bytes start, and its trailer.
    records: Vec<(u32, u64)>,
    bytes: Vec<u8>,
    random: Rng,
}

impl Skiplist {
    /// An empty list with room for half a million entries of 16 + 100 bytes.
    pub fn new() -> Skiplist {
        let mut links = Vec::with_capacity(2 << 20);
        links.resize(1 + MAX_HEIGHT, END);
        Skiplist {
            links,
            records: Vec::with_capacity(1 << 19),
            bytes: Vec::with_capacity(64 << 20),
            random: Rng::new(3),
        }
    }

    fn key(&self, node: u32) -> &[u8] {
        let (at, _) = self.records[self.links[node as usize] as usize];
        &self.bytes[at as usize..at as usize + 16]
    }

    fn next(&self, node: usize, level: usize) -> u32 {
        self.links[node + 1 + level]
    }

    /// Per level, the last node before `key`.
    fn path(&self, key: &[u8]) -> [usize; MAX_HEIGHT] {
        let mut path = [HEAD; MAX_HEIGHT];
        let mut node = HEAD;
        for level in (0..MAX_HEIGHT).rev() {
            loop {
                let next = self.next(node, level);
                if next == END || self.key(next) >= key {
                    break;
                }
                node = next as usize;
            }
            path[level] = node;
        }
        path
    }

    /// Inserts a 16-byte key.
    pub fn insert(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        let path = self.path(key);
        let height = 1 + (self.random.next_u64().trailing_zeros() / 2) as usize;
        let node = self.links.len();
        self.links.push(self.records.len() as u32);
        self.records.push((self.bytes.len() as u32, trailer));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        for (level, before) in path.iter().enumerate().take(height.min(MAX_HEIGHT)) {
            self.links.push(self.next(*before, level));
            self.links[before + 1 + level] = node as u32;
        }
    }

    /// Whether the list contains a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        let found = self.next(self.path(key)[0], 0);
        found != END && self.key(found) == key
    }
}
