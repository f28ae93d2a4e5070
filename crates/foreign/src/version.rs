//! The result of the edits of a manifest: families, their tables by level, and the logs in use.

use std::collections::BTreeMap;

use crate::error::Fault;

/// The family that every database has, and the only one of LevelDB.
pub const DEFAULT_FAMILY: &str = "default";

/// A table of a level.
#[derive(Clone, Debug)]
pub struct Table {
    pub number: u64,
    pub bytes: u64,
    /// First and last key, as stored.
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// RocksDB: the largest sequence number of its entries.
    pub largest_seq: Option<u64>,
    /// RocksDB: which of several directories contains it.
    pub path: u8,
    pub has_blobs: bool,
}

/// A keyspace of RocksDB.
#[derive(Clone, Debug)]
pub struct Family {
    pub name: String,
    pub comparator: Option<String>,
    /// Logs before this one contain nothing that its tables lack.
    pub log_number: u64,
    pub levels: BTreeMap<u32, BTreeMap<u64, Table>>,
}

/// One record of a manifest.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    pub family: u32,
    pub comparator: Option<String>,
    pub log_number: Option<u64>,
    pub previous_log: Option<u64>,
    pub oldest_log: Option<u64>,
    pub deleted: Vec<(u32, u64)>,
    pub added: Vec<(u32, Table)>,
    pub added_family: Option<String>,
    pub drops_family: bool,
    /// How many edits of its group follow. A group counts only as a whole.
    pub group_rest: Option<u32>,
    /// Whether only RocksDB writes such an edit.
    pub is_of_rocksdb: bool,
}

/// See the module docs.
#[derive(Debug)]
pub struct Version {
    pub families: BTreeMap<u32, Family>,
    pub previous_log: u64,
    pub oldest_log: u64,
    pub is_of_rocksdb: bool,
    group: Vec<Edit>,
}

impl Family {
    fn new(name: String) -> Family {
        Family { name, comparator: None, log_number: 0, levels: BTreeMap::new() }
    }
}

impl Version {
    pub fn new() -> Version {
        Version {
            families: BTreeMap::from([(0, Family::new(DEFAULT_FAMILY.into()))]),
            previous_log: 0,
            oldest_log: 0,
            is_of_rocksdb: false,
            group: Vec::new(),
        }
    }

    /// Applies an edit, or keeps it until its group is whole. A group that never becomes whole was
    /// cut short by a crash and is ignored.
    pub fn apply(&mut self, edit: Edit) -> Result<(), Fault> {
        let Some(rest) = edit.group_rest else {
            if !self.group.is_empty() {
                return Err(Fault::damaged("an edit within a group of others"));
            }
            return self.apply_one(edit);
        };
        self.group.push(edit);
        if rest > 0 {
            return Ok(());
        }
        std::mem::take(&mut self.group).into_iter().try_for_each(|edit| self.apply_one(edit))
    }

    fn apply_one(&mut self, edit: Edit) -> Result<(), Fault> {
        self.is_of_rocksdb |= edit.is_of_rocksdb;
        self.previous_log = edit.previous_log.unwrap_or(self.previous_log);
        self.oldest_log = self.oldest_log.max(edit.oldest_log.unwrap_or(0));
        if let Some(name) = edit.added_family {
            self.families.insert(edit.family, Family::new(name));
        }
        if edit.drops_family {
            self.families.remove(&edit.family);
            return Ok(());
        }
        let Some(family) = self.families.get_mut(&edit.family) else {
            let what = format!("an edit of column family {}, which does not exist", edit.family);
            return Err(Fault::damaged(what));
        };
        family.comparator = edit.comparator.or(family.comparator.take());
        family.log_number = family.log_number.max(edit.log_number.unwrap_or(0));
        for (level, number) in edit.deleted {
            if let Some(tables) = family.levels.get_mut(&level) {
                tables.remove(&number);
            }
        }
        for (level, table) in edit.added {
            family.levels.entry(level).or_default().insert(table.number, table);
        }
        Ok(())
    }
}
