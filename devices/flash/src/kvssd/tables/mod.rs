//! Operations on the pages of tables, wherever the pages are: lookups and merges over clipped
//! pages, and rewrites of tables.

pub(super) mod lookup;
pub(super) mod merge;
pub(super) mod rewrite;

use super::format::meta_page::{Entry, Real};
use crate::error::Result;
use crate::nand::SharedBytes;

/// Reads the bytes of an entry's page, followed by its extension pages.
pub trait PageReader {
    /// Reads all pages of the entry.
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes>;
    /// Reads the metadata of a real table whose content is known.
    fn look_at(&mut self, _real: &Real) -> Result<()> {
        Ok(())
    }
}

/// Writes pages. The group of a large value is contiguous.
pub trait PageWriter {
    /// Writes whole pages and returns the number of the first.
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32>;
}
