//! Writes small databases in the formats of LevelDB and RocksDB, for tests. It writes only the
//! parts of the formats that readers must know, and does not make the choices of a real store.

use std::fs;
use std::path::Path;

use runstone_foreign::Dialect;
use xxhash_rust::{xxh3::xxh3_64, xxh32::xxh32, xxh64::xxh64};

pub const PUT: u8 = 1;
pub const DELETE: u8 = 0;
pub const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// An entry of a table: key, number, kind, value.
pub type Entry<'a> = (&'a str, u64, u8, &'a str);

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u64)[..], bytes].concat()
}

pub fn stored_key(key: &str, seq: u64, kind: u8) -> Vec<u8> {
    [key.as_bytes(), &(seq << 8 | u64::from(kind)).to_le_bytes()].concat()
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Encodes records as a log. If there is a number, it is a log that may be overwritten.
pub fn log(records: &[Vec<u8>], number: Option<u32>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let header = if number.is_some() { 11 } else { 7 };
    for record in records {
        let (mut rest, mut is_first) = (&record[..], true);
        loop {
            let room = 32768 - bytes.len() % 32768;
            if room < header {
                bytes.resize(bytes.len() + room, 0);
                continue;
            }
            let (piece, left) = rest.split_at(rest.len().min(room - header));
            let kind = match (is_first, left.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            let kind = if number.is_some() { kind + 4 } else { kind };
            let named = number.map_or(vec![], |number| number.to_le_bytes().to_vec());
            let covered = [&[kind][..], &named, piece].concat();
            bytes.extend(masked(&covered).to_le_bytes());
            bytes.extend((piece.len() as u16).to_le_bytes());
            bytes.extend(covered);
            (rest, is_first) = (left, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    bytes
}

/// A write batch of entries that are encoded already.
pub fn batch(seq: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let count = entries.len() as u32;
    [&seq.to_le_bytes()[..], &count.to_le_bytes(), &entries.concat()].concat()
}

/// An entry of a write batch, with a kind that names its family.
pub fn operation(kind: u8, family: Option<u64>, key: &str, value: Option<&str>) -> Vec<u8> {
    let family = family.map_or(vec![], varint);
    let value = value.map_or(vec![], |value| string(value.as_bytes()));
    [&[kind][..], &family, &string(key.as_bytes()), &value].concat()
}

/// How a table is written.
#[derive(Clone)]
pub struct Form {
    pub dialect: Dialect,
    /// The compression, by its number.
    pub compression: u8,
    pub version: u32,
    pub checksum: u8,
    pub is_partitioned: bool,
    /// Whether buckets follow the restarts.
    pub has_buckets: bool,
    pub properties: Vec<(&'static str, Vec<u8>)>,
    /// Start, sequence number and end.
    pub range_deletes: Vec<(&'static str, u64, &'static str)>,
}

impl Form {
    pub fn leveldb(compression: u8) -> Form {
        Form { dialect: Dialect::LevelDb, version: 0, ..Form::rocksdb(0, 1, compression) }
    }

    pub fn rocksdb(version: u32, checksum: u8, compression: u8) -> Form {
        Form {
            dialect: Dialect::RocksDb,
            compression,
            version,
            checksum,
            is_partitioned: false,
            has_buckets: false,
            properties: Vec::new(),
            range_deletes: Vec::new(),
        }
    }

    fn has_deltas(&self) -> bool {
        self.version >= 4
    }
}

const BASE: u32 = 0x1234_5678;

struct TableWriter<'a> {
    form: &'a Form,
    bytes: Vec<u8>,
}

type Handle = (u64, u64);

impl TableWriter<'_> {
    fn checksum(&self, bytes: &[u8], offset: u64) -> u32 {
        let (last, rest) = bytes.split_last().expect("not empty");
        let sum = match self.form.checksum {
            0 => 0,
            1 => masked(bytes),
            2 => xxh32(bytes, 0),
            3 => xxh64(bytes, 0) as u32,
            _ => xxh3_64(rest) as u32 ^ u32::from(*last).wrapping_mul(0x6b90_83d9),
        };
        let context = BASE ^ (offset as u32).wrapping_add((offset >> 32) as u32);
        if self.form.version >= 6 { sum.wrapping_add(context) } else { sum }
    }

    fn write(&mut self, contents: Vec<u8>, compression: u8) -> Handle {
        let offset = self.bytes.len() as u64;
        let mut stored = compressed(self.form.dialect, compression, self.form.version, &contents);
        let handle = (offset, stored.len() as u64);
        stored.push(compression);
        let sum = self.checksum(&stored, offset);
        self.bytes.extend(stored);
        self.bytes.extend(sum.to_le_bytes());
        handle
    }

    /// The index of blocks, whose keys are the last ones.
    fn index(&self, blocks: &[(Vec<u8>, Handle)]) -> Vec<u8> {
        let mut last: Option<Handle> = None;
        let mut entries = Vec::new();
        for (key, (offset, bytes)) in blocks {
            let value = match last {
                Some((_, before)) if self.form.has_deltas() => {
                    let delta = *bytes as i64 - before as i64;
                    varint((delta << 1 ^ delta >> 63) as u64)
                }
                _ => [varint(*offset), varint(*bytes)].concat(),
            };
            last = Some((*offset, *bytes));
            let key = if self.form.has_deltas() { &key[..key.len() - 8] } else { key };
            entries.push((key.to_vec(), value));
        }
        block(&entries, 100, self.form.has_deltas(), false)
    }
}

fn compressed(dialect: Dialect, codec: u8, version: u32, contents: &[u8]) -> Vec<u8> {
    let size = match (codec, version) {
        (4 | 5, ..=1) => (contents.len() as u64).to_le_bytes().to_vec(),
        (2, ..=1) => Vec::new(),
        _ => varint(contents.len() as u64),
    };
    let zstd = || zstd::bulk::compress(contents, 3).expect("compresses");
    let stored = match (codec, dialect) {
        (0, _) => return contents.to_vec(),
        (1, _) => return snap::raw::Encoder::new().compress_vec(contents).expect("compresses"),
        (2, Dialect::LevelDb) => return zstd(),
        (2, _) => {
            let mut bytes = Vec::new();
            let level = flate2::Compression::default();
            let mut encoder = flate2::read::DeflateEncoder::new(contents, level);
            std::io::Read::read_to_end(&mut encoder, &mut bytes).expect("compresses");
            bytes
        }
        (4 | 5, _) => lz4_flex::block::compress(contents),
        (7, _) => zstd(),
        _ => contents.to_vec(),
    };
    [size, stored].concat()
}

/// Encodes entries as a block. If `is_unsized` is set, the values of keys that share bytes are
/// written without their lengths.
fn block(
    entries: &[(Vec<u8>, Vec<u8>)],
    interval: usize,
    is_unsized: bool,
    has_buckets: bool,
) -> Vec<u8> {
    let (mut bytes, mut restarts, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (key, value)) in entries.iter().enumerate() {
        let common = key.iter().zip(&last).take_while(|(one, two)| one == two).count();
        let mut shared = if number % interval == 0 { 0 } else { common };
        // With a delta for a value, a key must share a byte: these tests' keys do.
        if is_unsized && number > 0 {
            assert!(common > 0, "keys of a test share a byte");
            shared = common;
        }
        if shared == 0 {
            restarts.push(bytes.len() as u32);
        }
        bytes.extend(varint(shared as u64));
        bytes.extend(varint((key.len() - shared) as u64));
        if !is_unsized {
            bytes.extend(varint(value.len() as u64));
        }
        bytes.extend(&key[shared..]);
        bytes.extend(value);
        last.clone_from(key);
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    restarts.iter().for_each(|restart| bytes.extend(restart.to_le_bytes()));
    let mut count = restarts.len() as u32;
    if has_buckets {
        bytes.extend([255, 254, 0, 3, 0]);
        count |= 1 << 31;
    }
    bytes.extend(count.to_le_bytes());
    bytes
}

/// A table of entries, which are in order.
pub fn table(form: &Form, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = TableWriter { form, bytes: Vec::new() };
    let mut blocks = Vec::new();
    for chunk in entries.chunks(3) {
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = chunk
            .iter()
            .map(|(key, seq, kind, value)| (stored_key(key, *seq, *kind), (*value).into()))
            .collect();
        let contents = block(&pairs, 2, false, form.has_buckets);
        let handle = writer.write(contents, form.compression);
        blocks.push((pairs[pairs.len() - 1].0.clone(), handle));
    }
    if form.is_partitioned {
        let parts = blocks.chunks(2).map(|part| (part[part.len() - 1].0.clone(), part));
        let parts: Vec<_> = parts.collect();
        let write = |(key, part): (Vec<u8>, &[(Vec<u8>, Handle)])| {
            let contents = writer.index(part);
            (key, writer.write(contents, form.compression))
        };
        blocks = parts.into_iter().map(write).collect();
    }
    let index = writer.index(&blocks);
    let index = writer.write(index, form.compression);
    let mut meta: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let place = |(offset, bytes)| [varint(offset), varint(bytes)].concat();
    if form.dialect == Dialect::RocksDb {
        let properties = writer.write(block(&properties(form), 1, false, false), 0);
        meta.push((b"rocksdb.index".to_vec(), place(index)));
        meta.push((b"rocksdb.properties".to_vec(), place(properties)));
        let deletes = form.range_deletes.iter();
        let deletes = deletes.map(|(from, seq, to)| (stored_key(from, *seq, 15), (*to).into()));
        let deletes: Vec<_> = deletes.collect();
        if !deletes.is_empty() {
            let handle = writer.write(block(&deletes, 1, false, false), 0);
            meta.push((b"rocksdb.range_del".to_vec(), place(handle)));
        }
        meta.sort();
    }
    let metaindex = writer.write(block(&meta, 1, false, false), 0);
    footer(writer, metaindex, index)
}

fn properties(form: &Form) -> Vec<(Vec<u8>, Vec<u8>)> {
    let kind = if form.is_partitioned { 2_u32 } else { 0 };
    let mut all = vec![
        ("rocksdb.block.based.table.index.type", kind.to_le_bytes().to_vec()),
        ("rocksdb.comparator", BYTEWISE.into()),
        ("rocksdb.index.key.is.user.key", vec![u8::from(form.has_deltas())]),
        ("rocksdb.index.value.is.delta.encoded", vec![u8::from(form.has_deltas())]),
    ];
    all.extend(form.properties.iter().cloned());
    let mut all: Vec<_> = all.into_iter().map(|(name, value)| (name.into(), value)).collect();
    all.sort();
    all
}

fn footer(mut writer: TableWriter<'_>, metaindex: Handle, index: Handle) -> Vec<u8> {
    let place = |(offset, bytes)| [varint(offset), varint(bytes)].concat();
    let mut handles = [place(metaindex), place(index)].concat();
    handles.resize(40, 0);
    if writer.form.version == 0 {
        writer.bytes.extend(handles);
        writer.bytes.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        return writer.bytes;
    }
    let offset = writer.bytes.len() as u64;
    if writer.form.version >= 6 {
        handles = vec![0x3e, 0, 0x7a, 0, 0, 0, 0, 0];
        handles.extend(BASE.to_le_bytes());
        handles.extend((metaindex.1 as u32).to_le_bytes());
        handles.resize(40, 0);
    }
    let mut bytes = vec![writer.form.checksum];
    bytes.extend(handles);
    bytes.extend(writer.form.version.to_le_bytes());
    bytes.extend(0x88e2_41b7_85f4_cff7_u64.to_le_bytes());
    if writer.form.version >= 6 {
        let sum = writer.checksum(&bytes, offset);
        bytes[5..9].copy_from_slice(&sum.to_le_bytes());
    }
    writer.bytes.extend(bytes);
    writer.bytes
}

/// Fields of an edit that adds a table of these bounds.
pub fn added(
    dialect: Dialect,
    level: u64,
    number: u64,
    bytes: usize,
    bounds: [&[u8]; 2],
) -> Vec<u8> {
    let tag = if dialect == Dialect::RocksDb { 103 } else { 7 };
    let mut edit = [varint(tag), varint(level), varint(number), varint(bytes as u64)].concat();
    bounds.iter().for_each(|bound| edit.extend(string(bound)));
    if dialect == Dialect::RocksDb {
        // The numbers of its entries, a field that may be ignored, and the end of fields.
        edit.extend([varint(0), varint(1000), varint(6), string(b"1"), varint(1)].concat());
    }
    edit
}

/// The field that names the order of keys.
pub fn comparator(name: &str) -> Vec<u8> {
    [varint(1), string(name.as_bytes())].concat()
}

/// Writes a directory: tables and logs by number, and a manifest of these edits.
pub fn directory(
    path: &Path,
    dialect: Dialect,
    edits: &[Vec<u8>],
    tables: &[(u64, Vec<u8>)],
    logs: &[(u64, Vec<u8>)],
) {
    let put = |name: String, bytes: &[u8]| fs::write(path.join(name), bytes).expect("writes");
    put("CURRENT".into(), b"MANIFEST-000003\n");
    put("LOCK".into(), b"");
    put("MANIFEST-000003".into(), &log(edits, None));
    if dialect == Dialect::RocksDb {
        put("IDENTITY".into(), b"a name");
    }
    let extension = if dialect == Dialect::RocksDb { "sst" } else { "ldb" };
    tables.iter().for_each(|(number, bytes)| put(format!("{number:06}.{extension}"), bytes));
    logs.iter().for_each(|(number, bytes)| put(format!("{number:06}.log"), bytes));
}
