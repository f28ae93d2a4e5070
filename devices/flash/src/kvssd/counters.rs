//! What a KVSSD writes and why, and the write amplification that follows. Programs are counted
//! where they are issued. The counts must explain every program that the flash counted.

use std::fmt;

use crate::nand::PageType;

/// Why a page is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The memtable became a table.
    Flush,
    /// Tables sank, or were rewritten where they are.
    Compaction,
    /// A block was emptied: garbage, wear, or a failed program in it.
    Collection,
    /// The tree was saved.
    Checkpoint,
    /// A group of writes was logged.
    Log,
}

impl Cause {
    /// Every cause, in the order of reports.
    pub const ALL: [Cause; 5] =
        [Cause::Flush, Cause::Compaction, Cause::Collection, Cause::Checkpoint, Cause::Log];

    /// Short name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Flush => "flush",
            Cause::Compaction => "compaction",
            Cause::Collection => "collection",
            Cause::Checkpoint => "checkpoint",
            Cause::Log => "log",
        }
    }
}

/// Counts of programs, by cause and type of page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    counts: [[u64; PageType::ALL.len()]; Cause::ALL.len()],
    /// Programs that failed or were cut short, whatever their cause.
    pub failed: u64,
}

impl Programs {
    pub(super) fn add(&mut self, cause: Cause, page_type: PageType, is_failed: bool) {
        match is_failed {
            true => self.failed += 1,
            false => self.counts[cause as usize][page_type as usize] += 1,
        }
    }

    /// Programs of pages of a type for a cause.
    pub fn of(&self, cause: Cause, page_type: PageType) -> u64 {
        self.counts[cause as usize][page_type as usize]
    }

    /// Programs for a cause.
    pub fn by(&self, cause: Cause) -> u64 {
        self.counts[cause as usize].iter().sum()
    }

    /// All programs.
    pub fn total(&self) -> u64 {
        Cause::ALL.iter().map(|cause| self.by(*cause)).sum::<u64>() + self.failed
    }
}

/// What a device has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvSsdCounters {
    /// Key and value bytes that users wrote.
    pub user_bytes: u64,
    /// Writes of users.
    pub writes: u64,
    /// Lookups of users.
    pub gets: u64,
    /// Bytes of keys and values that lookups returned.
    pub get_bytes: u64,
    /// Pages that lookups read, including metadata.
    pub get_pages: u64,
    /// How many of these are pages of metadata.
    pub get_meta_pages: u64,
    /// Flushes of the memtable.
    pub flushes: u64,
    /// Compactions committed.
    pub compactions: u64,
    /// Tables made by remapping.
    pub remapped_tables: u64,
    /// Segments appended to tables.
    pub appended_segments: u64,
    /// Tables made by rewriting.
    pub rewritten_tables: u64,
    /// Tables that changed their level without being rewritten.
    pub moved_tables: u64,
    /// Compactions that were cut because their outputs had no room.
    pub split_compactions: u64,
    /// How often tables were compacted only because the device was full.
    pub squeezes: u64,
    /// Tables that compactions leave alone, because one of their pages cannot be read.
    pub stuck_tables: u64,
    /// Blocks emptied by collection.
    pub collections: u64,
    /// Cold blocks moved for the sake of wear.
    pub wear_moves: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Values that flushes separated from their keys.
    pub values_apart: u64,
    /// Values that collections moved.
    pub moved_values: u64,
    /// Pages that lookups and scans read for separated values.
    pub value_pages_read: u64,
    /// How often a group was read to find hidden versions in it.
    pub group_reads: u64,
    /// How often the needed values were counted after a restart.
    pub value_counts: u64,
}

/// Write amplification by layer, in bytes of pages programmed since opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSsdAmplification {
    /// Key and value bytes that users wrote.
    pub user_bytes: u64,
    /// Bytes of the pages of flushes, compactions and checkpoints, including metadata and journal.
    pub tree_bytes: u64,
    /// The same bytes, and the bytes that collections programmed.
    pub flash_bytes: u64,
    /// Log pages. They are counted separately, because every durable store has them.
    pub log_bytes: u64,
}

impl KvSsdAmplification {
    /// Compaction: tree bytes per user byte, in thousandths.
    pub fn compaction_milli(&self) -> u64 {
        milli(self.tree_bytes, self.user_bytes)
    }

    /// Read-modify-write: always 1000, because pages are written as a whole.
    pub fn rmw_milli(&self) -> u64 {
        1000
    }

    /// Collection: flash bytes per tree byte, in thousandths.
    pub fn gc_milli(&self) -> u64 {
        milli(self.flash_bytes, self.tree_bytes)
    }

    /// The product, in thousandths: flash bytes per user byte.
    pub fn total_milli(&self) -> u64 {
        milli(self.flash_bytes, self.user_bytes)
    }
}

impl fmt::Display for KvSsdAmplification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |milli: u64| format!("{}.{:03}", milli / 1000, milli % 1000);
        let (compaction, rmw) = (text(self.compaction_milli()), text(self.rmw_milli()));
        let (gc, total) = (text(self.gc_milli()), text(self.total_milli()));
        write!(f, "compaction {compaction} x read-modify-write {rmw} x collection {gc} = {total}")
    }
}

fn milli(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1000).div_ceil(u128::from(whole.max(1))) as u64
}
