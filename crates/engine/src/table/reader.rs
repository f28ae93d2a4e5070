//! Opens a table file and answers point reads. Iteration is in `iterator`.
//!
//! A get goes from the root array to a partition (filter, then separators), to a block and to an
//! entry. If the partition is pinned, the filter costs one cache miss, and a negative answer ends
//! the search.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use runstone_policy::shape::Table;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_storage::{Category, Storage, StorageFile};

use crate::cache::{Cache, CacheKey, Cached, Reservation};
use crate::error::{Error, Result};
use crate::format::block::{Block, Found};
use crate::format::frame;
use crate::format::index::{KeyArray, Partition};
use crate::format::properties::{BadProperties, Properties};
use crate::keys::SeqNo;
use crate::keys::codec::{Reader, u32_at, u64_at};
use crate::memory::slabs::Buffer;
use crate::sync::threads;
use crate::table::behind::{Behind, Warmth};
use crate::table::{FOOTER_BYTES, TABLE_FORMAT, TABLE_MAGIC, table_name};

/// Frames of at most this size are read into a buffer that the thread keeps.
const SCRATCH_BYTES: u64 = 16 << 10;

thread_local! {
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The place of a partition, and its pinned form once it was read.
#[derive(Debug)]
struct Slot {
    offset: u64,
    len: u64,
    pinned: OnceLock<(Arc<Partition>, Reservation)>,
}

/// An open table.
#[derive(Debug)]
pub struct TableReader {
    name: String,
    uid: u64,
    file: Arc<dyn StorageFile>,
    file_len: u64,
    /// Last separator of each partition.
    root: KeyArray,
    slots: Vec<Slot>,
    /// The properties without the range deletes.
    properties: Properties,
    /// The offset and length of the properties.
    properties_at: (u64, u64),
    /// The sequence number of all entries, if they were written without one.
    number: Option<SeqNo>,
    cache: Arc<Cache>,
    warmth: Arc<Warmth>,
}

/// Counts what a point read did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeStats {
    /// Tables whose filter or index was consulted.
    pub tables: u64,
    /// The tables that were consulted after a hit: by rule I3, a search continues while a newer
    /// version is possible.
    pub tables_after_hit: u64,
    /// Filters that excluded the key.
    pub filter_negatives: u64,
    /// Blocks searched.
    pub blocks: u64,
    /// Blocks read from the file.
    pub block_reads: u64,
    /// Blocks searched in vain after a filter passed the key.
    pub false_positives: u64,
    /// Whether a memtable held the key.
    pub in_memtable: bool,
    /// Level of the table that held the key.
    pub hit_level: Option<usize>,
    /// Whether gets have searched a table so often that a policy may react.
    pub hot: bool,
}

/// What is known in memory about a key in a table.
#[derive(Clone, Debug)]
pub enum Seen {
    /// The newest version of the key, and the block that holds it.
    Hit(Found, Arc<Block>),
    /// The table does not hold the key.
    Nothing,
    /// Only a read of the file can tell.
    NotInMemory,
}

/// A partition, borrowed from the reader or shared with the cache.
pub enum PartitionRef<'a> {
    /// Pinned in the reader.
    Pinned(&'a Arc<Partition>),
    /// Held by the cache.
    Shared(Arc<Partition>),
}

impl Deref for PartitionRef<'_> {
    type Target = Arc<Partition>;
    fn deref(&self) -> &Arc<Partition> {
        match self {
            PartitionRef::Pinned(partition) => partition,
            PartitionRef::Shared(partition) => partition,
        }
    }
}

/// The footer's content.
struct Footer {
    root: (u64, u64),
    properties: (u64, u64),
}

impl TableReader {
    /// Opens table `meta.id`, checking footer, root and properties against the manifest's `meta`.
    pub fn open(
        storage: &dyn Storage,
        meta: &Table,
        uid: u64,
        cache: Arc<Cache>,
    ) -> Result<TableReader> {
        TableReader::open_file(storage, &table_name(meta.id), meta, uid, cache)
    }

    fn open_file(
        storage: &dyn Storage,
        name: &str,
        meta: &Table,
        uid: u64,
        cache: Arc<Cache>,
    ) -> Result<TableReader> {
        let name = name.to_string();
        let file = storage.open(&name, Category::Table)?;
        let file_len = file.len()?;
        if file_len != meta.bytes {
            let what = format!("length is {file_len}, the manifest says {}", meta.bytes);
            return Err(Error::corruption(name, file_len, what));
        }
        let footer = read_footer(&name, &*file, file_len, uid)?;
        let part = |(offset, len): (u64, u64)| {
            let stored = read_exact(&name, &*file, file_len, offset, len)?;
            frame::open(&stored, uid, offset).map_err(|what| Error::corruption(&name, offset, what))
        };
        let properties_at = footer.properties;
        let mut properties = decode_properties(&part(properties_at)?, &name, footer.properties.0)?;
        check_properties(&name, footer.properties.0, &properties, meta)?;
        let (root, slots) = decode_root(&part(footer.root)?, footer.root.0)
            .ok_or_else(|| Error::corruption(&name, footer.root.0, "root does not decode"))?;
        let number = properties.is_numbered_later.then_some(meta.max_seq);
        properties.range_deletes = Vec::new();
        Ok(TableReader {
            name,
            uid,
            file,
            file_len,
            root,
            slots,
            properties,
            properties_at,
            number,
            cache,
            warmth: Arc::default(),
        })
    }

    /// Opens a table that no manifest describes, from its own footer and properties, for offline
    /// tools. Its uid cannot be checked.
    pub fn inspect(storage: &dyn Storage, id: u64, cache: Arc<Cache>) -> Result<TableReader> {
        TableReader::inspect_file(storage, &table_name(id), id, cache)
    }

    /// As `inspect`, for a table that may belong to no store. `id` is the caller's name for it.
    pub fn inspect_file(
        storage: &dyn Storage,
        name: &str,
        id: u64,
        cache: Arc<Cache>,
    ) -> Result<TableReader> {
        let file = storage.open(name, Category::Table)?;
        let file_len = file.len()?;
        let footer_at = file_len.checked_sub(FOOTER_BYTES as u64);
        let uid_at = footer_at.ok_or_else(|| Error::corruption(name, 0, "no footer"))? + 24;
        let mut bytes = [0; 8];
        file.read_at(uid_at, &mut bytes)?;
        let uid = u64::from_le_bytes(bytes);
        let footer = read_footer(name, &*file, file_len, uid)?;
        let (offset, len) = footer.properties;
        let stored = read_exact(name, &*file, file_len, offset, len)?;
        let raw = frame::open(&stored, uid, offset)
            .map_err(|what| Error::corruption(name, offset, what))?;
        let found = decode_properties(&raw, name, offset)?;
        let meta = Table {
            id,
            min_key: found.min_key.into(),
            max_key: found.max_key.into(),
            bytes: file_len,
            entries: found.entries,
            tombstones: found.tombstones,
            min_seq: found.min_seq,
            max_seq: found.max_seq,
            filter_bits: found.filter_bits,
            prefixes: found.prefixes,
            sketch: found.sketch,
            range_deletes: found.range_deletes.len() as u64,
            expiries: found.expiries,
        };
        TableReader::open_file(storage, name, &meta, uid, cache)
    }

    /// The same table, whose entries all have this sequence number if they are stored without one.
    pub fn numbered(mut self, seq: SeqNo) -> TableReader {
        self.number = self.number.map(|_| seq);
        self
    }

    /// The uid in the table's file.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// The largest separator of a partition: no key inside is larger.
    pub fn last_separator(&self, partition: usize) -> Vec<u8> {
        self.root.key(partition)
    }

    /// Whether the table's blocks have sequence numbers, so that another table may copy the blocks.
    pub fn holds_numbers(&self) -> bool {
        self.number.is_none()
    }

    /// The range deletes among the entries, by start. Reads them from the file.
    pub fn range_deletes(&self) -> Result<Vec<RangeDelete>> {
        let (offset, len) = self.properties_at;
        let raw = self.read_frame(offset, len, frame::zeroed)?;
        Ok(decode_properties(&raw, &self.name, offset)?.range_deletes)
    }

    /// Properties of the table, without its range deletes.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> usize {
        self.slots.len()
    }

    /// The partition that may hold `key`; past the end if none does.
    #[inline]
    pub fn find_partition(&self, key: &[u8]) -> usize {
        self.root.lower_bound(key).0
    }

    /// The offset of the data block with the first key at or above `key`, and the end of the data
    /// blocks, both in the file. Reads at most one partition.
    pub fn place_of(&self, key: &[u8]) -> Result<(u64, u64)> {
        // The last partition follows the last data block.
        let end = self.slots.last().map_or(self.file_len, |slot| slot.offset);
        let part = self.find_partition(key);
        if part >= self.slots.len() {
            return Ok((end, end));
        }
        let partition = self.partition(part)?;
        let (block, _) = partition.separators.lower_bound(key);
        Ok((partition.block_range(block).map_or(end, |(offset, _)| offset), end))
    }

    /// A key at about this place among the data blocks, in 2^32nds of their total length. Reads at
    /// most one partition.
    pub fn key_at(&self, place: u128) -> Result<Option<Vec<u8>>> {
        let Some((part, block)) = self.block_at(place)? else { return Ok(None) };
        Ok(Some(self.partition(part)?.separators.key(block)))
    }

    /// The partition and the number of the block at this place among the data blocks, in 2^32nds of
    /// their total length. Reads at most one partition.
    pub fn block_at(&self, place: u128) -> Result<Option<(usize, usize)>> {
        let end = self.slots.last().map_or(self.file_len, |slot| slot.offset);
        let offset = ((u128::from(end) * place) >> 32) as u64;
        // A partition follows its blocks.
        let part = self.slots.partition_point(|slot| slot.offset <= offset);
        if part >= self.slots.len() {
            return Ok(None);
        }
        let partition = self.partition(part)?;
        let begins_before =
            |block: &usize| partition.block_range(*block).is_some_and(|(start, _)| start <= offset);
        let block = (0..partition.block_count()).rev().find(begins_before);
        Ok(block.map(|block| (part, block)))
    }

    /// Finds a partition in memory, or reads it.
    #[inline]
    pub fn partition(&self, i: usize) -> Result<PartitionRef<'_>> {
        let slot = &self.slots[i];
        match slot.pinned.get() {
            Some((partition, _)) => Ok(PartitionRef::Pinned(partition)),
            None => self.load_partition(slot),
        }
    }

    fn load_partition<'a>(&'a self, slot: &'a Slot) -> Result<PartitionRef<'a>> {
        let key = CacheKey { uid: self.uid, offset: slot.offset };
        if let Some(Cached::Partition(partition)) = self.cache.get(key) {
            return Ok(PartitionRef::Shared(partition));
        }
        let raw = self.read_frame(slot.offset, slot.len, frame::zeroed)?;
        let partition = Partition::decode(&raw, self.file_len)
            .ok_or_else(|| self.corrupt(slot.offset, "partition does not decode"))?;
        let partition = Arc::new(partition);
        if let Some(reservation) = self.cache.try_pin(partition.size_bytes() as u64) {
            // A racing reader may have pinned the partition first. Then this copy is dropped.
            let (partition, _) = slot.pinned.get_or_init(|| (partition, reservation));
            return Ok(PartitionRef::Pinned(partition));
        }
        self.cache.insert(key, Cached::Partition(Arc::clone(&partition)));
        Ok(PartitionRef::Shared(partition))
    }

    /// The partition that may hold `key`, for [`TableReader::get`]. Prefetches the cache line that
    /// a probe of its filter reads. Reads nothing from the file.
    #[inline]
    pub fn find_ahead(&self, key: &[u8], hash: u64) -> usize {
        let part = self.find_partition(key);
        let pinned = self.slots.get(part).and_then(|slot| slot.pinned.get());
        if let Some(filter) = pinned.and_then(|(partition, _)| partition.filter.as_ref()) {
            filter.prefetch(hash);
        }
        part
    }

    /// Whether the table may hold a key that is within its bounds. Only the filter is consulted;
    /// without a filter, the answer is yes.
    pub fn may_contain(&self, key: &[u8], hash: u64) -> Result<bool> {
        let part = self.find_partition(key);
        if part >= self.slots.len() {
            return Ok(false);
        }
        let partition = self.partition(part)?;
        Ok(partition.filter.as_ref().is_none_or(|filter| filter.may_contain(hash)))
    }

    /// The newest version of `key` at or below `seek_trailer`, with the block that holds it. `part`
    /// is the partition that may hold the key.
    #[inline]
    pub fn get(
        &self,
        mut part: usize,
        key: &[u8],
        hash: u64,
        seek_trailer: u64,
        stats: &mut ProbeStats,
    ) -> Result<Option<(Found, Arc<Block>)>> {
        stats.tables += 1;
        while part < self.slots.len() {
            let partition = self.partition(part)?;
            if let Some(filter) = &partition.filter
                && !filter.may_contain(hash)
            {
                stats.filter_negatives += 1;
                return Ok(None);
            }
            let (mut i, mut spans) = partition.separators.lower_bound(key);
            while i < partition.block_count() {
                let block = self.block(&partition, i, true, stats)?;
                stats.blocks += 1;
                match block.get(key, seek_trailer) {
                    Ok(Some(found)) => return Ok(Some((found, block))),
                    Ok(None) => {}
                    Err(what) => return Err(self.corrupt_block(&partition, i, what)),
                }
                if !spans {
                    stats.false_positives += 1;
                    return Ok(None);
                }
                // Versions of this key continue in the next block, whose separator may be the key
                // too.
                i += 1;
                spans = i < partition.block_count() && partition.separators.key(i) == key;
            }
            part += 1;
        }
        Ok(None)
    }

    /// As [`TableReader::get`], if the answer is in memory. Reads nothing from the file.
    pub fn get_in_memory(&self, key: &[u8], hash: u64, seek_trailer: u64) -> Result<Seen> {
        let mut part = self.find_partition(key);
        while let Some(slot) = self.slots.get(part) {
            let partition = match slot.pinned.get() {
                Some((partition, _)) => PartitionRef::Pinned(partition),
                None => match self.cache.get(CacheKey { uid: self.uid, offset: slot.offset }) {
                    Some(Cached::Partition(partition)) => PartitionRef::Shared(partition),
                    _ => return Ok(Seen::NotInMemory),
                },
            };
            if partition.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
                return Ok(Seen::Nothing);
            }
            let (mut i, mut spans) = partition.separators.lower_bound(key);
            while i < partition.block_count() {
                let Some(block) = self.block_in_memory(&partition, i) else {
                    return Ok(Seen::NotInMemory);
                };
                match block.get(key, seek_trailer) {
                    Ok(Some(found)) => return Ok(Seen::Hit(found, block)),
                    Ok(None) if !spans => return Ok(Seen::Nothing),
                    Ok(None) => {}
                    Err(what) => return Err(self.corrupt_block(&partition, i, what)),
                }
                // As in `get`.
                i += 1;
                spans = i < partition.block_count() && partition.separators.key(i) == key;
            }
            part += 1;
        }
        Ok(Seen::Nothing)
    }

    /// A data block, if it is in memory.
    fn block_in_memory(&self, partition: &Partition, i: usize) -> Option<Arc<Block>> {
        let known = partition.residents.get(i);
        if known.as_ref().is_some_and(|block| !self.cache.is_due(&block.told)) {
            return known;
        }
        let (offset, _) = partition.block_range(i)?;
        match self.cache.get(CacheKey { uid: self.uid, offset }) {
            Some(Cached::Block(block)) => {
                self.cache.note_told(&block.told);
                partition.residents.note(i, &block);
                Some(block)
            }
            // The block may have been evicted from the cache while a reader holds it.
            _ => known,
        }
    }

    /// A data block, from memory or from the file. If `fill` is set, a block that was read enters
    /// the cache.
    #[inline]
    pub fn block(
        &self,
        partition: &Partition,
        i: usize,
        fill: bool,
        stats: &mut ProbeStats,
    ) -> Result<Arc<Block>> {
        match partition.residents.get(i) {
            Some(block) if !self.cache.is_due(&block.told) => Ok(block),
            known => self.find_block(partition, i, known, fill, stats),
        }
    }

    /// Finds a block that is not known to be in memory, or whose use should be reported to the
    /// cache.
    fn find_block(
        &self,
        partition: &Partition,
        i: usize,
        known: Option<Arc<Block>>,
        fill: bool,
        stats: &mut ProbeStats,
    ) -> Result<Arc<Block>> {
        let Some((offset, len)) = partition.block_range(i) else {
            return Err(self.corrupt(0, "block number out of range"));
        };
        let key = CacheKey { uid: self.uid, offset };
        if let Some(Cached::Block(block)) = self.cache.get(key) {
            self.cache.note_told(&block.told);
            partition.residents.note(i, &block);
            return Ok(block);
        }
        let block = match known {
            // The block was evicted from the cache, but a reader holds it.
            Some(block) => block,
            None => {
                stats.block_reads += 1;
                let memory = |len| self.cache.take(len, key);
                Arc::new(self.parse_block(offset, self.read_frame(offset, len, memory)?)?)
            }
        };
        if fill {
            self.cache.insert(key, Cached::Block(Arc::clone(&block)));
        }
        Ok(block)
    }

    /// Decodes a stored block that the caller has read itself (compactions read in large pieces).
    pub fn open_block(&self, stored: &[u8], offset: u64) -> Result<Block> {
        let raw =
            frame::open(stored, self.uid, offset).map_err(|what| self.corrupt(offset, what))?;
        self.parse_block(offset, raw)
    }

    fn parse_block(&self, offset: u64, raw: impl Into<Buffer>) -> Result<Block> {
        let block = Block::parse(raw).and_then(|block| match self.number {
            Some(number) => block.numbered(number),
            None => Ok(block),
        });
        block.map_err(|what| self.corrupt(offset, what))
    }

    fn read_frame<B: DerefMut<Target = [u8]>>(
        &self,
        offset: u64,
        len: u64,
        memory: impl FnOnce(usize) -> Option<B>,
    ) -> Result<B> {
        let open = |stored: &[u8]| {
            let opened = frame::open_in(stored, self.uid, offset, memory);
            opened.map_err(|what| self.corrupt(offset, what))
        };
        // Frames of usual sizes are read into a buffer of the thread, which need not be cleared or
        // freed.
        if len > SCRATCH_BYTES {
            let stored = read_exact(&self.name, &*self.file, self.file_len, offset, len)?;
            return open(&stored);
        }
        check_inside(&self.name, self.file_len, offset, len)?;
        // The buffer is taken, not borrowed: the storage may itself use another store, and read
        // that store meanwhile.
        let mut scratch = threads::take(&STORED);
        scratch.resize(SCRATCH_BYTES as usize, 0);
        let stored = &mut scratch[..len as usize];
        let raw = self.file.read_at(offset, stored).map_err(Error::from).and_then(|_| open(stored));
        threads::keep(&STORED, scratch);
        raw
    }

    /// Reads raw file bytes into a buffer that is reused, because allocating and clearing memory
    /// costs a compaction more than reading. After an error, the content of the buffer has no
    /// meaning.
    pub fn read_raw(&self, offset: u64, len: u64, buffer: &mut Vec<u8>) -> Result<()> {
        read_into(&self.name, &*self.file, self.file_len, offset, len, buffer)
    }

    /// Called when a walk will read a stretch once. The walk no longer needs anything before the
    /// stretch.
    pub(crate) fn enter(&self, behind: &mut Behind, offset: u64, len: u64) {
        behind.enter((&*self.file, self.file_len), offset..offset + len, &self.warmth);
    }

    /// Called when that walk has ended.
    pub(crate) fn leave(&self, behind: &mut Behind) {
        behind.leave(&*self.file);
    }

    /// How much of the table was in memory when walks reached it.
    pub fn warmth(&self) -> &Arc<Warmth> {
        &self.warmth
    }

    /// Announces to the storage that a stretch will be read.
    pub fn read_ahead(&self, offset: u64, len: u64) {
        self.file.read_ahead(offset, len);
    }

    /// Removes all blocks and partitions of this table from the cache.
    pub fn evict(&self) {
        let forget = |offset| self.cache.remove(CacheKey { uid: self.uid, offset });
        for (i, slot) in self.slots.iter().enumerate() {
            let Ok(partition) = self.partition(i) else { continue };
            for block in 0..partition.block_count() {
                if let Some((offset, _)) = partition.block_range(block) {
                    forget(offset);
                }
            }
            // The search for the partition's blocks may have loaded the partition into the cache.
            forget(slot.offset);
        }
    }

    /// An error that names this file.
    pub fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::corruption(&self.name, offset, what)
    }

    /// An error that names a block of this file.
    pub fn corrupt_block(&self, partition: &Partition, i: usize, what: &str) -> Error {
        self.corrupt(partition.block_range(i).map_or(0, |(offset, _)| offset), what)
    }
}

fn check_inside(name: &str, file_len: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len).is_none_or(|end| end > file_len) {
        true => Err(Error::corruption(name, offset, "a part lies beyond the end of the file")),
        false => Ok(()),
    }
}

fn read_exact(
    name: &str,
    file: &dyn StorageFile,
    file_len: u64,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(name, file, file_len, offset, len, &mut bytes)?;
    Ok(bytes)
}

fn read_into(
    name: &str,
    file: &dyn StorageFile,
    file_len: u64,
    offset: u64,
    len: u64,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    check_inside(name, file_len, offset, len)?;
    let oom = |_| Error::corruption(name, offset, "a part is larger than memory");
    bytes.try_reserve_exact((len as usize).saturating_sub(bytes.len())).map_err(oom)?;
    bytes.resize(len as usize, 0);
    file.read_at(offset, bytes)?;
    Ok(())
}

fn read_footer(name: &str, file: &dyn StorageFile, file_len: u64, uid: u64) -> Result<Footer> {
    let footer_len = FOOTER_BYTES as u64;
    let Some(at) = file_len.checked_sub(footer_len) else {
        return Err(Error::corruption(name, 0, "shorter than a footer"));
    };
    let bytes = read_exact(name, file, file_len, at, footer_len)?;
    let bad = |what: &str| Error::corruption(name, at, what);
    let word = |at: usize| u64_at(&bytes, at).ok_or_else(|| bad("footer is short"));
    let half = |at: usize| u32_at(&bytes, at).ok_or_else(|| bad("footer is short"));
    if word(48)? != TABLE_MAGIC {
        return Err(bad("not a table: the last eight bytes are not its magic number"));
    }
    if half(44)? != xxhash_rust::xxh3::xxh3_64(&bytes[..44]) as u32 {
        return Err(bad("footer checksum does not match"));
    }
    let format = half(40)?;
    if format != TABLE_FORMAT {
        return Err(Error::NewerFormat {
            file: name.to_string(),
            found: format,
            supported: TABLE_FORMAT,
        });
    }
    if word(24)? != uid {
        return Err(bad("this file belongs to another store or another table"));
    }
    Ok(Footer {
        root: (word(0)?, u64::from(half(8)?)),
        properties: (word(12)?, u64::from(half(20)?)),
    })
}

fn decode_properties(raw: &[u8], name: &str, at: u64) -> Result<Properties> {
    Properties::decode(raw).map_err(|bad| match bad {
        BadProperties::Newer => Error::NewerFormat {
            file: name.to_string(),
            found: TABLE_FORMAT + 1,
            supported: TABLE_FORMAT,
        },
        BadProperties::Malformed => Error::corruption(name, at, "properties do not decode"),
    })
}

fn check_properties(name: &str, at: u64, found: &Properties, meta: &Table) -> Result<()> {
    let numbers = match found.is_numbered_later {
        true => (0, 0, meta.min_seq == meta.max_seq),
        false => (meta.min_seq, meta.max_seq, true),
    };
    let same = *found.min_key == *meta.min_key
        && *found.max_key == *meta.max_key
        && found.entries == meta.entries
        && found.tombstones == meta.tombstones
        && found.range_deletes.len() as u64 == meta.range_deletes
        && (found.min_seq, found.max_seq, true) == numbers;
    if same {
        return Ok(());
    }
    Err(Error::corruption(name, at, "properties differ from what the manifest recorded"))
}

fn decode_root(raw: &[u8], data_end: u64) -> Option<(KeyArray, Vec<Slot>)> {
    let mut reader = Reader::new(raw);
    let root = KeyArray::decode(&mut reader)?;
    let mut slots = Vec::with_capacity(root.len());
    for _ in 0..root.len() {
        let offset = reader.take_varint().ok()?;
        let len = reader.take_varint().ok()?;
        if offset.checked_add(len)? > data_end {
            return None;
        }
        slots.push(Slot { offset, len, pinned: OnceLock::new() });
    }
    (reader.is_empty() && !slots.is_empty()).then_some((root, slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Kind, pack};
    use crate::options::store::KeyspaceOptions;
    use crate::table::builder::TableBuilder;
    use crate::table::builder::TableLayout;
    use crate::table::handle::TableContext;
    use runstone_policy::shape::Shape;
    use runstone_storage::MemoryStorage;

    /// Once, the blocks of a removed table were removed from the cache, but its unpinned partitions
    /// stayed, and were even loaded if they were absent.
    #[test]
    fn a_table_that_is_forgotten_leaves_nothing_in_the_cache() {
        let cache = Arc::new(Cache::new(1 << 20));
        let _all = cache.try_pin(512 << 10).expect("half of the budget");
        let context = TableContext::new(Arc::new(MemoryStorage::new()), Arc::clone(&cache), 7);
        let layout = TableLayout::of_level(&KeyspaceOptions::default(), &Shape::default(), 0);
        let mut builder = TableBuilder::create(&context, 1, layout).unwrap();
        for number in 0..1000u32 {
            builder.add(&number.to_be_bytes(), pack(1, Kind::Put), &[7; 50]).unwrap();
        }
        let meta = builder.finish().unwrap();
        let uid = context.table_uid(1);
        let open = || TableReader::open(&*context.storage, &meta, uid, Arc::clone(&cache));
        assert!(cache.usage().cache_bytes > 50_000, "what was written is there");
        open().unwrap().evict();
        assert_eq!(cache.usage().cache_bytes, 0);
    }
}
