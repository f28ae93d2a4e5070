//! A data block of one table that could be copied into another: its stored bytes, and what the
//! properties, filter and sketch of the new table need to know about its entries. `jobs/copier.rs`
//! decides whether a compaction may copy it, which depends on the other inputs.
//!
//! Copying saves building, compressing and comparing. It does not save decoding, because the new
//! table's filter and sketch need each key.

use std::sync::Arc;

use crate::format::block::{BadBlock, Block, BlockCursor};
use crate::format::filter;
use crate::format::frame;
use crate::format::record::{Place, Pointer};
use crate::keys::{Kind, is_pointer, kind_of, seq_of};
use crate::options::store::Compression;
use crate::table::builder::TableLayout;

/// A block whose first entry is a compaction's current entry.
#[derive(Clone, Copy, Debug)]
pub struct WholeBlock<'a> {
    /// The stored bytes.
    pub stored: &'a [u8],
    /// The decoded block.
    pub block: &'a Arc<Block>,
}

/// A summary of all entries of a block. Its memory is reused from block to block.
#[derive(Debug, Default)]
pub struct Summary {
    /// Hashes of the user keys.
    pub hashes: Vec<u64>,
    /// The last key.
    pub last_key: Vec<u8>,
    /// The trailer of the last key.
    pub last_trailer: u64,
    /// The place that the last entry points to, if it is a pointer.
    pub(crate) last_place: Option<Place>,
    /// The first key.
    pub first_key: Vec<u8>,
    /// Smallest sequence number.
    pub min_seq: u64,
    /// Largest sequence number.
    pub max_seq: u64,
    /// Key and value bytes.
    pub user_bytes: u64,
    /// Bit `1 << kind` for each kind that occurs.
    pub kinds: u64,
}

impl WholeBlock<'_> {
    /// Whether the block is similar to a block that the layout would build: it has the same
    /// compression and index, is not longer, and is not so short that a table of such blocks would
    /// have many more blocks. A block that is stored uncompressed is not copied into a compressed
    /// layout, because it may come from a level without compression.
    pub fn fits(&self, layout: &TableLayout) -> bool {
        let wanted = match layout.compression {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        };
        let bytes = self.block.raw().len();
        frame::kind(self.stored) == Some(wanted)
            && self.block.has_hash_index() == layout.hash_index
            && bytes <= layout.block_bytes
            && bytes >= layout.block_bytes / 2
    }

    /// Fills `summary`. Returns `false`, with an unfinished summary, if a key has two versions, an
    /// entry is a tombstone or expires, or the interval of the restarts is not `restart_interval`.
    /// If it returns `true`, each key has one version here. Every rule keeps that version, unless
    /// another input of the compaction has the key. O(entries).
    pub fn summarize(
        &self,
        restart_interval: usize,
        summary: &mut Summary,
    ) -> Result<bool, BadBlock> {
        summary.restart();
        let mut cursor =
            BlockCursor::new(Arc::clone(self.block), std::mem::take(&mut summary.last_key));
        cursor.seek_to_first()?;
        summary.first_key.extend_from_slice(cursor.key());
        let mut last_value = (0, 0);
        while cursor.valid() {
            let (key, trailer) = (cursor.key(), cursor.trailer());
            let hash = filter::hash(key);
            let is_value = matches!(
                Kind::from_u8(kind_of(trailer)),
                Some(Kind::Put | Kind::ValuePointer | Kind::Relocate)
            );
            // Versions of a key are neighbours. If two different keys have the same hash, the block
            // is just not copied.
            if !is_value || summary.hashes.last() == Some(&hash) {
                return Ok(false);
            }
            summary.hashes.push(hash);
            let seq = seq_of(trailer);
            summary.min_seq = summary.min_seq.min(seq);
            summary.max_seq = summary.max_seq.max(seq);
            summary.user_bytes += (key.len() + cursor.value().len()) as u64;
            summary.kinds |= 1 << kind_of(trailer);
            summary.last_trailer = trailer;
            let (_, at, len) = cursor.pin();
            last_value = (at, len);
            cursor.next()?;
        }
        if is_pointer(summary.last_trailer) {
            let (at, len) = last_value;
            summary.last_place = Pointer::place_of_entry(self.block.slice(at, len));
        }
        summary.last_key = cursor.into_buffer();
        let restarts = summary.hashes.len().div_ceil(restart_interval.max(1));
        Ok(self.block.restart_count() == restarts)
    }
}

impl Summary {
    /// Empties the summary, but keeps its buffers.
    fn restart(&mut self) {
        self.hashes.clear();
        self.first_key.clear();
        (self.min_seq, self.max_seq) = (u64::MAX, 0);
        (self.user_bytes, self.kinds) = (0, 0);
        (self.last_trailer, self.last_place) = (0, None);
    }
}
