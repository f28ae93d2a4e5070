//! Counts of what a device has done since it was opened, and its wear.

use super::oob::PageType;

/// Operations on pages of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeCounters {
    /// Pages programmed, including failed ones.
    pub programs: u64,
    /// Pages read, either the whole page or only its spare bytes.
    pub reads: u64,
    /// Blocks erased whose first page was of this type.
    pub erases: u64,
}

/// Operations by page type, and the simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NandCounters {
    types: [TypeCounters; PageType::ALL.len()],
    /// Reads and erases of blocks that contain nothing of a known type.
    pub untyped: TypeCounters,
}

impl NandCounters {
    /// Counters of a type.
    pub fn of(&self, page_type: PageType) -> TypeCounters {
        self.types[page_type as usize]
    }

    /// Sum over all types.
    pub fn total(&self) -> TypeCounters {
        self.types.iter().fold(self.untyped, |sum, one| TypeCounters {
            programs: sum.programs + one.programs,
            reads: sum.reads + one.reads,
            erases: sum.erases + one.erases,
        })
    }

    pub(super) fn live(&mut self, page_type: Option<PageType>) -> &mut TypeCounters {
        match page_type {
            Some(page_type) => &mut self.types[page_type as usize],
            None => &mut self.untyped,
        }
    }
}

/// Erase counts over the blocks that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Least worn block.
    pub min: u64,
    /// Most worn block.
    pub max: u64,
    /// All erases in the life of the device.
    pub sum: u64,
    /// Blocks that are not retired.
    pub block_count: u32,
    /// Blocks that are retired.
    pub retired_count: u32,
}
