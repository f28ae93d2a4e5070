//! Writes one table file from entries in internal-key order. `jobs/cutter.rs` decides where one
//! table ends and the next begins, and the plan of a compaction decides its level.
//!
//! 1. Entries fill a block; a block is cut before it would exceed `block_bytes`, so that in memory
//!    it fits an allocator size class of that size.
//! 2. After every `PARTITION_BLOCKS` blocks, or earlier once they have many keys, the filter and
//!    index of these blocks are written as a partition.
//! 3. At the end, the root (separators of the partitions), the properties and the footer are
//!    written; then there is one sync.
//!
//! Memory is bounded by one partition plus the write buffer, whatever the table's size.

use std::ops::Range;
use std::sync::Arc;

use runstone_policy::prefix::{MAX_TABLE_PREFIXES, Prefixer};
use runstone_policy::shape::expiry::ExpiryCounts;
use runstone_policy::shape::{Shape, Table};
use runstone_policy::sketch::Sketch;
use runstone_storage::{Category, StorageFile};

use crate::cache::{Cache, CacheKey};
use crate::error::{Error, Result};
use crate::format::block::BlockBuilder;
use crate::format::filter::{self, Filter};
use crate::format::frame;
use crate::format::index::{KeyArray, PartitionBuilder};
use crate::format::properties::{Home, Properties};
use crate::keys::codec::put_varint;
use crate::keys::expiry::expiry_of;
use crate::keys::{KeyspaceId, Kind, compare, is_delete, kind_of, range_delete, separator, seq_of};
use crate::options::store::{Compression, KeyspaceOptions};
use crate::pace::write_back::WriteBack;
use crate::table::behind::Warmth;
use crate::table::copy::{Summary, WholeBlock};
use crate::table::handle::{DiskUse, TableContext};
use crate::table::{FOOTER_BYTES, TABLE_FORMAT, TABLE_MAGIC, table_name};

const WRITE_BUFFER_BYTES: usize = 256 << 10;
/// What a builder holds of a table of usual entries: the write buffer, and a partition.
pub(crate) const BUILDER_BYTES: u64 = (WRITE_BUFFER_BYTES + (128 << 10)) as u64;
/// A partition covers this many blocks: 2 MiB of 4 KiB blocks, about 40 KiB of index and filter.
const PARTITION_BLOCKS: usize = 512;
/// A partition ends once it covers this many keys, which only large blocks of small entries reach.
/// Their hashes are held in memory until then: 2 MiB. Estimates divide a table evenly among its
/// partitions, so a lower number would make them worse for tables of usual blocks.
const PARTITION_KEYS: usize = 256 << 10;

/// How a table is laid out.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// Raw size at which a data block is closed.
    pub block_bytes: usize,
    /// The number of entries after which a key is stored whole.
    pub restart_interval: usize,
    /// Whether blocks carry a hash index for point reads.
    pub hash_index: bool,
    /// Compression of data blocks.
    pub compression: Compression,
    /// Filter size in thousandths of a bit per key; below 700 there is no filter.
    pub filter_millibits_per_key: u32,
    /// Collects the prefixes of the keys, if a rule is set.
    pub prefixer: Option<Prefixer>,
    /// Whether the manifest gives all entries one sequence number. They are added with sequence
    /// number 0.
    pub is_numbered_later: bool,
    /// The keyspace of the table, if the table belongs to one.
    pub keyspace: Option<KeyspaceId>,
}

impl TableLayout {
    /// The layout of tables that are about to be written to `level` of a tree of this shape.
    pub fn of_level(options: &KeyspaceOptions, shape: &Shape, level: u32) -> TableLayout {
        let last = options.compression.last().copied().unwrap_or(Compression::None);
        TableLayout {
            block_bytes: options.block_bytes as usize,
            restart_interval: options.restart_interval as usize,
            hash_index: options.hash_index,
            compression: options.compression.get(level as usize).copied().unwrap_or(last),
            filter_millibits_per_key: options.filter_millibits_per_key(shape, level),
            prefixer: None,
            is_numbered_later: false,
            keyspace: None,
        }
    }

    /// The same layout for a table of this keyspace.
    pub fn in_keyspace(self, keyspace: KeyspaceId) -> TableLayout {
        TableLayout { keyspace: Some(keyspace), ..self }
    }
}

/// A table that is being written. Dropping it without `finish` leaves an orphan file, which the
/// next open removes.
#[derive(Debug)]
pub struct TableBuilder {
    layout: TableLayout,
    file: Arc<dyn StorageFile>,
    cache: Arc<Cache>,
    disk: Arc<DiskUse>,
    id: u64,
    uid: u64,
    block: BlockBuilder,
    /// The last block that was written. It gets a separator once the first key of its successor is
    /// known.
    pending: Option<PendingBlock>,
    partition: PartitionBuilder,
    hashes: Vec<u64>,
    root_keys: Vec<Vec<u8>>,
    root_ranges: Vec<(u64, u64)>,
    properties: Properties,
    /// Bytes of the keys of `properties.range_deletes`.
    range_delete_bytes: u64,
    expiries: ExpiryCounts,
    /// The trailer of the last entry.
    last_trailer: u64,
    raw: Vec<u8>,
    /// Sealed bytes not yet handed to the file; they start at `written_bytes`.
    out: Vec<u8>,
    written_bytes: u64,
    /// The combined hashes of all frames so far. The seed of each hash includes the place of the
    /// frame.
    content: u64,
    write_back: WriteBack,
    /// How much of each input of the table was in memory; empty if that does not matter.
    inputs: Vec<Arc<Warmth>>,
}

#[derive(Debug)]
struct PendingBlock {
    last_key: Vec<u8>,
    offset: u64,
    stored_len: u64,
}

impl TableBuilder {
    /// Creates the file of table `id`.
    pub fn create(context: &TableContext, id: u64, layout: TableLayout) -> Result<Self> {
        let file = context.storage.create(&table_name(id), Category::Table)?;
        let shared = (Arc::clone(&context.cache), Arc::clone(&context.disk));
        let home = layout.keyspace.map(|keyspace| Home { keyspace, store: context.store_uid });
        let mut made = TableBuilder::new(file, (id, context.table_uid(id)), shared, layout);
        made.properties.home = home;
        Ok(made)
    }

    /// A table that belongs to no store, in a file that is empty.
    pub fn outside(file: Arc<dyn StorageFile>, uid: u64, layout: TableLayout) -> Self {
        // The file is not read again, so the cache may be small.
        TableBuilder::new(file, (0, uid), (Arc::new(Cache::new(0)), Arc::default()), layout)
    }

    fn new(
        file: Arc<dyn StorageFile>,
        (id, uid): (u64, u64),
        (cache, disk): (Arc<Cache>, Arc<DiskUse>),
        layout: TableLayout,
    ) -> Self {
        TableBuilder {
            block: BlockBuilder::new(layout.restart_interval, layout.hash_index),
            file,
            cache,
            disk,
            id,
            uid,
            pending: None,
            partition: PartitionBuilder::default(),
            hashes: Vec::new(),
            root_keys: Vec::new(),
            root_ranges: Vec::new(),
            properties: Properties {
                min_seq: u64::MAX,
                sketch: Sketch::of_nothing(),
                is_numbered_later: layout.is_numbered_later,
                ..Properties::default()
            },
            range_delete_bytes: 0,
            expiries: ExpiryCounts::default(),
            last_trailer: 0,
            layout,
            raw: Vec::new(),
            out: Vec::with_capacity(WRITE_BUFFER_BYTES + (64 << 10)),
            written_bytes: 0,
            content: 0,
            write_back: WriteBack::default(),
            inputs: Vec::new(),
        }
    }

    /// Adds an entry; internal keys must ascend.
    pub fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        // With this bug, a test makes files that are out of order, to see that a store refuses
        // them.
        if !self.ascends(key, trailer) && !seeded!(SortedFilesUnsorted) {
            return Err(self.out_of_order());
        }
        self.last_trailer = trailer;
        let grown = self.block.size_bytes() + key.len() + value.len() + 16;
        if !self.block.is_empty() && grown > self.layout.block_bytes {
            self.finish_block()?;
        }
        self.settle_pending(key)?;
        self.count(key, trailer, value);
        self.block.add(key, trailer, value);
        Ok(())
    }

    /// Whether an entry sorts after all entries that were added. Bulk loads number their entries
    /// later.
    #[inline]
    fn ascends(&self, key: &[u8], trailer: u64) -> bool {
        match self.last_key() {
            None => true,
            Some(last) if self.layout.is_numbered_later => last < key,
            Some(last) => compare(last, self.last_trailer, key, trailer).is_lt(),
        }
    }

    /// An error, not a panic: entries may come from tables, and bytes from disk must not make a job
    /// panic.
    #[cold]
    fn out_of_order(&self) -> Error {
        let (table, entry) = (table_name(self.id), self.properties.entries);
        let what = format!("entry {entry} of the new {table} is not above the one before");
        Error::corruption("a table or memtable that is rewritten", 0, what)
    }

    /// The last key added.
    fn last_key(&self) -> Option<&[u8]> {
        match (&self.pending, self.block.is_empty()) {
            (_, false) => Some(self.block.last_key()),
            (Some(pending), true) => Some(&pending.last_key),
            (None, true) => None,
        }
    }

    /// Whether a copied block can follow without leaving a short one behind: the open block is
    /// empty or nearly full.
    pub fn is_near_block_end(&self) -> bool {
        self.block.is_empty() || self.block.size_bytes() >= self.layout.block_bytes / 4 * 3
    }

    /// Adds all entries of a block unchanged. They must sort after all entries that were added. The
    /// layout must have no prefixer, because the prefixes of a copied block are not collected.
    pub fn add_whole(&mut self, block: &WholeBlock<'_>, summary: &Summary) -> Result<()> {
        assert!(self.layout.prefixer.is_none(), "prefixes of a copied block are not collected");
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        if self.last_key().is_some_and(|last| *last > *summary.first_key) {
            return Err(self.out_of_order());
        }
        self.last_trailer = summary.last_trailer;
        self.settle_pending(&summary.first_key)?;
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.min_key.clone_from(&summary.first_key);
        }
        properties.entries += summary.hashes.len() as u64;
        properties.kinds |= summary.kinds;
        properties.min_seq = properties.min_seq.min(summary.min_seq);
        properties.max_seq = properties.max_seq.max(summary.max_seq);
        properties.user_bytes += summary.user_bytes;
        properties.block_count += 1;
        if self.layout.filter_millibits_per_key > 0 {
            self.hashes.extend_from_slice(&summary.hashes);
        }
        summary.hashes.iter().for_each(|hash| self.properties.sketch.add(*hash));
        let offset = self.position();
        self.content ^= frame::rebind(block.stored, self.uid, offset, &mut self.out);
        if self.out.len() >= WRITE_BUFFER_BYTES {
            self.write_out()?;
        }
        self.cache.insert_if_room(CacheKey { uid: self.uid, offset }, block.block.raw());
        let (last_key, stored_len) = (summary.last_key.clone(), block.stored.len() as u64);
        self.pending = Some(PendingBlock { last_key, offset, stored_len });
        Ok(())
    }

    /// Puts the waiting block into the index, because the first key of its successor is known now.
    fn settle_pending(&mut self, key: &[u8]) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let middle = match pending.last_key == key {
            true => pending.last_key,
            false => separator(&pending.last_key, key),
        };
        self.partition.add_block(middle, pending.offset, pending.stored_len);
        if self.partition.block_count() >= PARTITION_BLOCKS || self.hashes.len() >= PARTITION_KEYS {
            self.finish_partition()?;
        }
        Ok(())
    }

    fn count(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.min_key = key.to_vec();
        }
        let kind = kind_of(trailer);
        properties.entries += 1;
        properties.kinds |= 1 << (kind & 63);
        properties.tombstones += u64::from(is_delete(trailer));
        if let Some(at_ms) = expiry_of(trailer, value) {
            self.expiries.add(if seeded!(ExpiriesNotedEarly) { at_ms / 2 } else { at_ms });
        }
        if kind == Kind::RangeDelete as u8 {
            properties.range_deletes.push(range_delete(key, seq_of(trailer), value));
            self.range_delete_bytes += (key.len() + value.len()) as u64;
        }
        // A block that has just begun still has the last key of the previous block.
        if self.block.is_empty() || self.block.last_key() != key {
            self.note_key(key);
        }
        let properties = &mut self.properties;
        let seq = seq_of(trailer);
        properties.min_seq = properties.min_seq.min(seq);
        properties.max_seq = properties.max_seq.max(seq);
        properties.user_bytes += (key.len() + value.len()) as u64;
    }

    /// Notes a user key. A key whose versions span two blocks is noted twice.
    fn note_key(&mut self, key: &[u8]) {
        let hash = filter::hash(key);
        if self.layout.filter_millibits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
        self.properties.sketch.add(hash);
        let Some(prefixer) = &self.layout.prefixer else { return };
        let prefix = prefixer.prefix(key);
        let prefixes = &mut self.properties.prefixes;
        if prefixes.last().is_none_or(|last| **last != *prefix)
            && prefixes.len() <= MAX_TABLE_PREFIXES
        {
            prefixes.push(prefix.into());
        }
    }

    /// Drops the list of prefixes if it is too long to help; the bounds of the table remain.
    fn settle_prefixes(&mut self) {
        let prefixes = &mut self.properties.prefixes;
        if prefixes.len() > MAX_TABLE_PREFIXES {
            prefixes.clear();
        }
        // The prefixes of a user's own extractor need not ascend with the keys.
        prefixes.sort();
        prefixes.dedup();
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0
    }

    /// Bytes of the file so far. The open block counts uncompressed, and range deletes count again,
    /// because the properties repeat them.
    pub fn estimated_bytes(&self) -> u64 {
        self.position() + self.block.size_bytes() as u64 + self.range_delete_bytes
    }

    fn position(&self) -> u64 {
        self.written_bytes + self.out.len() as u64
    }

    fn seal(&mut self, compression: Compression) -> Result<(u64, u64)> {
        let offset = self.position();
        self.content ^= frame::seal(&self.raw, compression, self.uid, offset, &mut self.out);
        let len = self.position() - offset;
        if self.out.len() >= WRITE_BUFFER_BYTES {
            self.write_out()?;
        }
        Ok((offset, len))
    }

    /// Names the table's inputs. If most of their bytes were not in memory, the table need not be
    /// in memory either.
    pub(crate) fn made_of(mut self, inputs: &[Arc<Warmth>]) -> TableBuilder {
        self.inputs = inputs.to_vec();
        self
    }

    fn is_cold(&self) -> bool {
        Warmth::is_cold(self.inputs.iter().map(|one| &**one))
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_at(self.written_bytes, &self.out)?;
        if let Some(step) = self.write_back.wrote(self.written_bytes, self.out.len()) {
            let Range { start, end } = step.wait_for;
            self.file.write_back(step.begin, start..end)?;
            // The range is on disk, so it can be dropped from memory.
            if start < end && self.is_cold() {
                self.file.drop_cached(start, end - start);
            }
        }
        self.written_bytes += self.out.len() as u64;
        self.out.clear();
        // After a large value, the small values that follow do not need so much memory.
        self.out.shrink_to(2 * WRITE_BUFFER_BYTES);
        self.raw.shrink_to(2 * WRITE_BUFFER_BYTES);
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        let last_key = self.block.last_key().to_vec();
        let mut raw = std::mem::take(&mut self.raw);
        self.block.finish(&mut raw);
        self.raw = raw;
        let (offset, stored_len) = self.seal(self.layout.compression)?;
        // A block in the cache must have the sequence numbers of its entries.
        if !self.layout.is_numbered_later {
            self.cache.insert_if_room(CacheKey { uid: self.uid, offset }, &self.raw);
        }
        self.properties.block_count += 1;
        self.pending = Some(PendingBlock { last_key, offset, stored_len });
        Ok(())
    }

    fn finish_partition(&mut self) -> Result<()> {
        // The open block belongs to the next partition, and so may the first key of that block.
        let filter = Filter::build(&self.hashes, self.layout.filter_millibits_per_key);
        self.hashes.clear();
        let filter_bytes = filter.as_ref().map_or(0, Filter::size_bytes);
        self.properties.filter_bits += filter_bytes as u64 * 8;
        self.raw.clear();
        let last = self.partition.finish(filter.as_ref(), &mut self.raw);
        let range = self.seal(Compression::Lz4)?;
        self.root_keys.push(last);
        self.root_ranges.push(range);
        Ok(())
    }

    /// Completes and syncs the file. The caller must sync the directory entry.
    pub fn finish(mut self) -> Result<Table> {
        assert!(!self.is_empty(), "a table has at least one entry");
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        if let Some(last) = self.pending.take() {
            self.properties.max_key.clone_from(&last.last_key);
            self.partition.add_block(last.last_key, last.offset, last.stored_len);
        }
        self.finish_partition()?;
        self.settle_prefixes();
        self.raw.clear();
        KeyArray::encode(&self.root_keys, &mut self.raw);
        for (offset, len) in &self.root_ranges {
            put_varint(&mut self.raw, *offset);
            put_varint(&mut self.raw, *len);
        }
        let root = self.seal(Compression::Lz4)?;
        self.raw.clear();
        self.properties.expiries = std::mem::take(&mut self.expiries).finish();
        self.properties.encode(&mut self.raw);
        let properties = self.seal(Compression::None)?;
        self.put_footer(root, properties)?;
        self.write_out()?;
        if !seeded!(TableNotSynced) {
            self.file.sync()?;
        }
        if self.is_cold() {
            self.file.drop_cached(0, self.written_bytes);
        }
        self.disk.add(self.written_bytes);
        let properties = self.properties;
        Ok(Table {
            id: self.id,
            min_key: properties.min_key.into(),
            max_key: properties.max_key.into(),
            bytes: self.written_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            min_seq: properties.min_seq,
            max_seq: properties.max_seq,
            filter_bits: properties.filter_bits,
            prefixes: properties.prefixes,
            sketch: properties.sketch,
            range_deletes: properties.range_deletes.len() as u64,
            expiries: properties.expiries,
        })
    }

    /// `root offset u64 | root len u32 | properties offset u64 | len u32 | uid u64 | content u64
    /// | format u32 | checksum u32 | magic u64`
    fn put_footer(&mut self, root: (u64, u64), properties: (u64, u64)) -> Result<()> {
        let start = self.out.len();
        for (offset, len) in [root, properties] {
            let len = u32::try_from(len).map_err(|_| {
                let hint = "write fewer range deletes between two flushes";
                Error::invalid("the index of a table has 4 GiB or more", hint)
            })?;
            self.out.extend_from_slice(&offset.to_le_bytes());
            self.out.extend_from_slice(&len.to_le_bytes());
        }
        self.out.extend_from_slice(&self.uid.to_le_bytes());
        self.out.extend_from_slice(&self.content.to_le_bytes());
        self.out.extend_from_slice(&TABLE_FORMAT.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64(&self.out[start..]) as u32;
        self.out.extend_from_slice(&sum.to_le_bytes());
        self.out.extend_from_slice(&TABLE_MAGIC.to_le_bytes());
        debug_assert_eq!(self.out.len() - start, FOOTER_BYTES, "a footer of another size");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use runstone_policy::shape::Shape;
    use runstone_storage::MemoryStorage;

    use super::*;
    use crate::keys::pack;

    /// Whether a table accepts the second entry after the first.
    fn takes(first: (&[u8], u64), second: (&[u8], u64)) -> Result<()> {
        let context =
            TableContext::new(Arc::new(MemoryStorage::new()), Arc::new(Cache::new(1 << 20)), 7);
        let layout = TableLayout::of_level(&KeyspaceOptions::default(), &Shape::default(), 0);
        // A large entry ends its block, so that the last key is once in the open block and once in
        // the pending one.
        for (id, value) in [(1, &[7; 10][..]), (2, &[7; 100_000])] {
            let mut builder = TableBuilder::create(&context, id, layout.clone())?;
            builder.add(first.0, pack(first.1, Kind::Put), value)?;
            builder.add(second.0, pack(second.1, Kind::Put), value)?;
        }
        Ok(())
    }

    /// A table with valid checksums may contain anything. Once, entries that were out of order
    /// reached the next table unchecked.
    #[test]
    fn entries_out_of_order_are_corruption() {
        takes((b"a", 5), (b"b", 9)).expect("a larger key");
        takes((b"a", 5), (b"a", 4)).expect("an older version");
        for second in [(&b"a"[..], 5), (b"a", 6), (b"", 1)] {
            let refused = takes((b"a", 5), second).expect_err("is refused");
            assert!(refused.is_corruption(), "{refused}");
        }
    }
}
