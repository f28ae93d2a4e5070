//! A table: blocks of entries, an index of them, and in RocksDB further blocks that the metaindex
//! names. Every block is verified before it is used.

use std::collections::BTreeMap;
use std::path::Path;

use crate::block::BlockCursor;
use crate::bytes::Input;
use crate::checksum::{Checksum, context};
use crate::compression::Decompressor;
use crate::error::{Error, Fault, Result};
use crate::file::SourceFile;
use crate::footer::{Footer, Handle, TRAILER_BYTES};
use crate::index::IndexCursor;
use crate::keys::{Dialect, Kind, parts};
use crate::properties::{IndexKind, Properties};
use crate::tombstones::Tombstone;

/// The eight bytes of this property may be written after the checksum of their block was computed.
const NUMBER_OF_INGESTED: &[u8] = b"rocksdb.external_sst_file.global_seqno";

/// An open table.
#[derive(Debug)]
pub struct Table {
    file: SourceFile,
    dialect: Dialect,
    footer: Footer,
    decompressor: Decompressor,
    properties: Properties,
    index: Handle,
    range_deletes: Option<Handle>,
    /// The number of all its entries, if it was ingested.
    seq: Option<u64>,
}

impl Table {
    /// Opens a table; `bytes` and, in RocksDB, `largest_seq` come from the manifest.
    pub fn open(
        path: &Path,
        dialect: Dialect,
        bytes: u64,
        largest_seq: Option<u64>,
    ) -> Result<Table> {
        let file = SourceFile::open(path)?;
        if file.bytes != bytes {
            let what = format!("it has {} bytes, and {bytes} in the manifest", file.bytes);
            return Err(file.damaged(file.bytes.min(bytes), what));
        }
        let footer = Footer::read(&file, dialect)?;
        let decompressor = Decompressor::new(dialect, footer.version);
        let index = footer.index.unwrap_or(Handle { offset: 0, bytes: 0 });
        let properties = Properties::default();
        let mut table = Table {
            file,
            dialect,
            footer,
            decompressor,
            properties,
            index,
            range_deletes: None,
            seq: None,
        };
        if dialect == Dialect::RocksDb {
            table.read_meta()?;
            table.seq = table.number_of_all(largest_seq)?;
        }
        Ok(table)
    }

    /// The name of the order of its keys, if the table records that.
    pub fn comparator(&self) -> Option<&str> {
        self.properties.comparator.as_deref()
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Its range deletes, each with its original bounds.
    pub fn tombstones(&self) -> Result<Vec<Tombstone>> {
        let Some(handle) = self.range_deletes else { return Ok(Vec::new()) };
        let at = |fault| self.file.fault(handle.offset, fault);
        let mut cursor = BlockCursor::new(self.read_block(handle)?, self.dialect).map_err(at)?;
        let mut found = Vec::new();
        while cursor.next().map_err(at)? {
            let Some(parts) = parts(&cursor.key) else {
                return Err(at(Fault::damaged("the key of a range delete is too short")));
            };
            let (start, seq) = (parts.user.to_vec(), self.seq.unwrap_or(parts.seq));
            found.push(Tombstone { start, end: cursor.value().to_vec(), seq });
        }
        Ok(found)
    }

    fn read_meta(&mut self) -> Result<()> {
        let metaindex = self.pairs(self.footer.metaindex, Table::read_block)?;
        let handle = |name: &str| {
            let value = metaindex.get(name.as_bytes())?;
            Some(Handle::read(&mut Input(value)))
        };
        let damaged = |name: &str| {
            let what = format!("the metaindex gives no place for {name}");
            self.file.damaged(self.footer.metaindex.offset, what)
        };
        let place = |name: &str| match handle(name) {
            Some(None) => Err(damaged(name)),
            found => Ok(found.flatten()),
        };
        let index = place("rocksdb.index")?.or(self.footer.index);
        let index = index.ok_or_else(|| damaged("rocksdb.index"))?;
        let range_deletes = place("rocksdb.range_del")?;
        let dictionary = place("rocksdb.compression_dict")?;
        if let Some(properties) = place("rocksdb.properties")? {
            let found = self.pairs(properties, Table::read_properties)?;
            let at = |fault| self.file.fault(properties.offset, fault);
            self.properties = Properties::of(&found).map_err(at)?;
        }
        if self.properties.has_other_index {
            let hint = "compact it all without user-defined indexes, then import again";
            let fault = Fault::unsupported("its only index is of the program's own form", hint);
            return Err(self.file.fault(index.offset, fault));
        }
        if let Some(dictionary) = dictionary {
            let bytes = self.read_block(dictionary)?;
            let decompressor = Decompressor::new(self.dialect, self.footer.version);
            self.decompressor = decompressor.with_dictionary(bytes);
        }
        (self.index, self.range_deletes) = (index, range_deletes);
        Ok(())
    }

    fn number_of_all(&self, largest_seq: Option<u64>) -> Result<Option<u64>> {
        let Some(stored) = self.properties.ingested else { return Ok(None) };
        match largest_seq {
            Some(largest) if stored == 0 || stored == largest => Ok(Some(largest)),
            None => Ok(Some(stored)),
            Some(largest) => {
                let what = format!("its number is {stored}, and {largest} in the manifest");
                Err(self.file.damaged(self.footer.metaindex.offset, what))
            }
        }
    }

    /// A block as names and values.
    fn pairs(
        &self,
        handle: Handle,
        read: fn(&Table, Handle) -> Result<Vec<u8>>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let at = |fault| self.file.fault(handle.offset, fault);
        let mut cursor = BlockCursor::new(read(self, handle)?, self.dialect).map_err(at)?;
        let mut pairs = BTreeMap::new();
        while cursor.next().map_err(at)? {
            pairs.insert(cursor.key.clone(), cursor.value().to_vec());
        }
        Ok(pairs)
    }

    /// The block as it is stored, with the byte that names its compression and its checksum.
    fn read_stored(&self, handle: Handle) -> Result<(Vec<u8>, u32)> {
        let Some(bytes) = handle.bytes.checked_add(TRAILER_BYTES) else {
            return Err(self.file.damaged(handle.offset, "a block as large as that cannot be"));
        };
        let mut stored = self.file.read(handle.offset, bytes)?;
        let trailer = stored.split_off(stored.len() - 4);
        let sum = trailer.try_into().map(u32::from_le_bytes).unwrap_or_default();
        Ok((stored, sum.wrapping_sub(context(self.footer.base, handle.offset))))
    }

    fn fits(&self, stored: &[u8], sum: u32) -> bool {
        let checksum = self.footer.checksum;
        checksum == Checksum::None || checksum.compute(stored) == sum
    }

    fn unpack(&self, handle: Handle, mut stored: Vec<u8>) -> Result<Vec<u8>> {
        let codec = stored.pop().unwrap_or(0);
        let contents = self.decompressor.decompress(codec, stored);
        contents.map_err(|fault| self.file.fault(handle.offset, fault))
    }

    /// The contents of a block.
    fn read_block(&self, handle: Handle) -> Result<Vec<u8>> {
        let (stored, sum) = self.read_stored(handle)?;
        if !self.fits(&stored, sum) {
            return Err(self.mismatch(handle));
        }
        self.unpack(handle, stored)
    }

    fn mismatch(&self, handle: Handle) -> Error {
        self.file.damaged(handle.offset, "the checksum of a block does not match")
    }

    /// The properties. Their checksum was computed before the table was ingested.
    fn read_properties(&self, handle: Handle) -> Result<Vec<u8>> {
        let (stored, sum) = self.read_stored(handle)?;
        if self.fits(&stored, sum) {
            return self.unpack(handle, stored);
        }
        let is_plain = stored.last() == Some(&0);
        let contents = stored[..stored.len() - 1].to_vec();
        if let Ok(mut cursor) = BlockCursor::new(contents, self.dialect)
            && is_plain
        {
            while let Ok(true) = cursor.next() {
                let place = cursor.value_place();
                if cursor.key == NUMBER_OF_INGESTED && place.len() == 8 {
                    let mut before = stored.clone();
                    before[place].fill(0);
                    if self.fits(&before, sum) {
                        return self.unpack(handle, stored);
                    }
                }
            }
        }
        Err(self.mismatch(handle))
    }

    fn index_at(&self, handle: Handle) -> Result<IndexCursor> {
        let cursor = IndexCursor::new(self.read_block(handle)?, self.dialect, &self.properties);
        cursor.map_err(|fault| self.file.fault(handle.offset, fault))
    }
}

/// Walks over the entries of a table.
#[derive(Debug)]
pub struct TableCursor {
    table: Table,
    /// The place of each part of the index and a cursor over it. In a partitioned index, the cursor
    /// over the partitions comes first.
    indexes: Vec<(Handle, IndexCursor)>,
    depth: usize,
    block: Option<(Handle, BlockCursor)>,
    /// Keys up to this one are skipped.
    after: Option<Vec<u8>>,
    kind: Kind,
    /// Bytes of the blocks that were read.
    pub read_bytes: u64,
}

/// A key, its sequence number, and the kind of the entry.
pub type Head<'a> = (&'a [u8], u64, Kind);

impl TableCursor {
    pub fn new(table: Table, after: Option<Vec<u8>>) -> Result<TableCursor> {
        let depth = if table.properties.index == IndexKind::Partitioned { 2 } else { 1 };
        let indexes = vec![(table.index, table.index_at(table.index)?)];
        let (block, kind) = (None, Kind::Delete);
        Ok(TableCursor { table, indexes, depth, block, after, kind, read_bytes: 0 })
    }

    /// Steps to the next entry; `false` at the end.
    pub fn next(&mut self) -> Result<bool> {
        loop {
            let Some((handle, cursor)) = &mut self.block else {
                match self.next_block()? {
                    true => continue,
                    false => return Ok(false),
                }
            };
            let (table, handle) = (&self.table, *handle);
            let at = |fault| table.file.fault(handle.offset, fault);
            if !cursor.next().map_err(at)? {
                self.block = None;
                continue;
            }
            let Some(parts) = parts(&cursor.key) else {
                return Err(at(Fault::damaged("a key is too short")));
            };
            if self.after.as_deref().is_some_and(|after| parts.user <= after) {
                continue;
            }
            let Some(kind) = Kind::of(parts.kind, table.dialect) else {
                let what = format!("an entry of the unknown kind {}", parts.kind);
                return Err(at(Fault::damaged(what)));
            };
            self.kind = kind;
            return Ok(true);
        }
    }

    /// The current entry.
    pub fn head(&self) -> Head<'_> {
        let parts = self.block.as_ref().and_then(|(_, cursor)| parts(&cursor.key));
        let seq = |found: u64| self.table.seq.unwrap_or(found);
        parts.map_or((&[][..], 0, self.kind), |parts| (parts.user, seq(parts.seq), self.kind))
    }

    pub fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(_, cursor)| cursor.value())
    }

    /// Makes an error from a fault of the current entry.
    pub fn fault(&self, fault: Fault) -> Error {
        let offset = self.block.as_ref().map_or(0, |(handle, _)| handle.offset);
        self.table.file.fault(offset, fault)
    }

    fn next_block(&mut self) -> Result<bool> {
        loop {
            let Some((place, index)) = self.indexes.last_mut() else { return Ok(false) };
            let next = index.next(self.after.as_deref());
            let next = next.map_err(|fault| self.table.file.fault(place.offset, fault))?;
            let Some(handle) = next else {
                self.indexes.pop();
                continue;
            };
            self.read_bytes = self.read_bytes.saturating_add(handle.bytes);
            if self.indexes.len() < self.depth {
                let part = self.table.index_at(handle)?;
                self.indexes.push((handle, part));
                continue;
            }
            let cursor = BlockCursor::new(self.table.read_block(handle)?, self.table.dialect);
            let cursor = cursor.map_err(|fault| self.table.file.fault(handle.offset, fault))?;
            self.block = Some((handle, cursor));
            return Ok(true);
        }
    }
}
