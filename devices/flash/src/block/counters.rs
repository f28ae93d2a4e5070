//! The blocks that the file system sends to the device, by purpose, and the write amplification of
//! the layers below.

use runstone_storage::Category;

use crate::ftl::WriteAmplification;

/// Host blocks of 4 KiB written since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounters {
    categories: [u64; Category::ALL.len()],
    /// Blocks of the journal's transactions: creations, removals and lengths of files.
    pub journal_blocks: u64,
    /// Blocks of the snapshots of the directory. Each area of the ring begins with one.
    pub snapshot_blocks: u64,
}

impl BlockCounters {
    /// Blocks of the files of a category.
    pub fn of(&self, category: Category) -> u64 {
        self.categories[category as usize]
    }

    /// All blocks.
    pub fn total(&self) -> u64 {
        self.categories.iter().sum::<u64>() + self.journal_blocks + self.snapshot_blocks
    }

    pub(super) fn wrote(&mut self, category: Category, block_count: u64) {
        self.categories[category as usize] += block_count;
    }
}

/// The share of each layer in the bytes that reach flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerReport {
    /// Blocks that the file system wrote.
    pub blocks: BlockCounters,
    /// What the device wrote for these blocks. `device.host_bytes` is the number of bytes in
    /// `blocks`.
    pub device: WriteAmplification,
    /// Name of the preset for simulated time.
    pub timing: &'static str,
    /// The simulated time since opening.
    pub elapsed_ns: u64,
}
