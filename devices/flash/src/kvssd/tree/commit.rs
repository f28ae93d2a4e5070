//! What a commit changes, as one journal page describes it. Its bytes are in `journal.rs`.

use crate::kvssd::format::meta_page::Clip;

/// A table as the tree knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique for ever.
    pub id: u64,
    /// Its level.
    pub level: u8,
    /// Number of its metadata page.
    pub meta_page: u32,
    /// Number of strata.
    pub counter: u8,
    /// Pages that count towards its size.
    pub charged_pages: u32,
    /// Records in its pages, including those outside its clips.
    pub record_count: u64,
    /// How many of these records are deletes; an estimate after a remapping.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: u64,
    /// Largest sequence number, by which level 0 is ordered.
    pub max_seq: u64,
    /// The keys for which the table answers.
    pub fence: Clip,
}

impl Node {
    /// RAM of a node in a controller: addresses, counters, and the keys of its fence.
    pub fn ram_bytes(&self) -> u64 {
        const FIXED_BYTES: u64 = 16;
        FIXED_BYTES + (self.fence.lo.len() + self.fence.hi.len()) as u64
    }
}

/// A page of separated values, or the pages of one large value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueEntry {
    /// Number of the first page.
    pub page: u32,
    /// How many pages there are.
    pub page_count: u16,
    /// Group of its keys.
    pub group: u8,
    /// Ascending sequence numbers of the group. This page contains the values from each of these
    /// numbers up to the next number at which any page of the group starts.
    pub starts: Vec<u64>,
}

/// What a commit does to pages of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// How many groups there are; 0 if the commit knows of no values.
    pub group_count: u8,
    /// Ranges of pages that no longer contain needed values: first page and count.
    pub emptied: Vec<(u32, u32)>,
    /// Pages that are added.
    pub added: Vec<ValueEntry>,
}

/// A change to the tree, as one journal page describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Number of the transaction; each is one more than the number before.
    pub txn: u64,
    /// The first table number that is not used yet.
    pub next_table_id: u64,
    /// Writes up to this sequence number are in tables.
    pub flushed_seq: u64,
    /// Largest sequence number given out.
    pub last_seq: u64,
    /// The policy's last level.
    pub last_level: u32,
    /// New cursors of the policy, by level.
    pub cursors: Vec<(u32, Box<[u8]>)>,
    /// Tables that are removed.
    pub removed: Vec<u64>,
    /// Tables that have a new metadata page.
    pub moved: Vec<(u64, u32)>,
    /// Tables that are added.
    pub added: Vec<Node>,
    /// Changes to separated values.
    pub values: Values,
}
