//! Compression of blocks. The stated size of a block is trusted only if its codec can reach it, so
//! that damaged bytes do not cause a large allocation.

use std::io::Read;

use crate::bytes::Input;
use crate::error::Fault;
use crate::keys::Dialect;

/// The most bytes to which one byte can expand in each codec's format. A snappy copy encodes 64
/// bytes in three. A match expands by 255 in lz4 and by 1032 in deflate. A zstd block that repeats
/// a byte encodes 128 KiB in four bytes.
const MOST_SNAPPY: u64 = 22;
const MOST_LZ4: u64 = 255;
const MOST_DEFLATE: u64 = 1032;
const MOST_ZSTD: u64 = 32 << 10;

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    None,
    Snappy,
    Zlib,
    Lz4,
    Zstd,
}

/// Decompresses the blocks of one table.
#[derive(Debug)]
pub struct Decompressor {
    dialect: Dialect,
    /// The format version of the table. Before 2, RocksDB wrote sizes differently.
    version: u32,
    /// Bytes that every block may refer to; usually none.
    dictionary: Vec<u8>,
}

impl Decompressor {
    pub fn new(dialect: Dialect, version: u32) -> Decompressor {
        Decompressor { dialect, version, dictionary: Vec::new() }
    }

    pub fn with_dictionary(self, dictionary: Vec<u8>) -> Decompressor {
        Decompressor { dictionary, ..self }
    }

    /// The contents of a block, decompressed with the codec of this number, which follows the
    /// block.
    pub fn decompress(&self, number: u8, stored: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let codec = self.codec(number)?;
        match codec {
            Codec::None => return Ok(stored),
            Codec::Snappy => return snappy(&stored),
            _ if self.dialect == Dialect::LevelDb => return unsized_zstd(&stored),
            _ => {}
        }
        let mut input = Input(&stored);
        let size = match (codec, self.version) {
            (Codec::Zlib, 0 | 1) => Some(0),
            (Codec::Lz4, 0 | 1) => input.fixed64(),
            _ => input.varint64(),
        };
        let Some(size) = size else { return Err(Fault::damaged("a block without its size")) };
        match codec {
            Codec::Zlib if self.version < 2 => inflate(input.0, None),
            Codec::Zlib if !self.dictionary.is_empty() => Err(Fault::unsupported(
                "zlib with a dictionary",
                "compact it with RocksDB and another compression, such as lz4 or zstd",
            )),
            Codec::Zlib => inflate(input.0, Some(checked(size, input.0, MOST_DEFLATE)?)),
            Codec::Lz4 => self.lz4(input.0, checked(size, input.0, MOST_LZ4)?),
            _ => self.zstd(input.0, checked(size, input.0, MOST_ZSTD)?),
        }
    }

    fn codec(&self, number: u8) -> Result<Codec, Fault> {
        const AGAIN: &str = "compact it all with another compression, such as lz4 or zstd";
        let unsupported = |name: &str| {
            let what = format!("blocks are compressed by {name}, which is not read here");
            Err(Fault::unsupported(what, AGAIN))
        };
        match (number, self.dialect) {
            (0, _) => Ok(Codec::None),
            (1, _) => Ok(Codec::Snappy),
            (2, Dialect::LevelDb) => Ok(Codec::Zstd),
            (2, Dialect::RocksDb) => Ok(Codec::Zlib),
            (4 | 5, Dialect::RocksDb) => Ok(Codec::Lz4),
            (7 | 0x40, Dialect::RocksDb) => Ok(Codec::Zstd),
            (3, Dialect::RocksDb) => unsupported("bzip2"),
            (6, Dialect::RocksDb) => unsupported("xpress"),
            (0x80.., Dialect::RocksDb) => unsupported("a codec of the program"),
            _ => Err(Fault::damaged(format!("no compression has the number {number}"))),
        }
    }

    fn lz4(&self, stored: &[u8], size: usize) -> Result<Vec<u8>, Fault> {
        let mut buffer = vec![0; size];
        let found = match self.dictionary.is_empty() {
            true => lz4_flex::block::decompress_into(stored, &mut buffer),
            false => {
                let dictionary = &self.dictionary;
                lz4_flex::block::decompress_into_with_dict(stored, &mut buffer, dictionary)
            }
        };
        fits(found.ok(), buffer, size, "lz4")
    }

    fn zstd(&self, stored: &[u8], size: usize) -> Result<Vec<u8>, Fault> {
        let opened = match self.dictionary.is_empty() {
            true => zstd::bulk::Decompressor::new(),
            false => zstd::bulk::Decompressor::with_dictionary(&self.dictionary),
        };
        let found = opened.and_then(|mut decompressor| decompressor.decompress(stored, size));
        let buffer = found.unwrap_or_default();
        fits(Some(buffer.len()), buffer, size, "zstd")
    }
}

/// The whole contents of a zstd stream, which a log may contain.
pub fn zstd_stream(stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let most = (stored.len() as u64 + 1) * MOST_ZSTD;
    let mut buffer = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(stored);
    let read = decoder.and_then(|decoder| decoder.take(most).read_to_end(&mut buffer));
    match read {
        Ok(_) => Ok(buffer),
        Err(_) => Err(Fault::damaged("the zstd stream cannot be decompressed")),
    }
}

fn snappy(stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let size = snap::raw::decompress_len(stored).unwrap_or(usize::MAX);
    let size = checked(size as u64, stored, MOST_SNAPPY)?;
    let found = snap::raw::Decoder::new().decompress_vec(stored).unwrap_or_default();
    fits(Some(found.len()), found, size, "snappy")
}

/// LevelDB writes no separate size, because the zstd frame contains it.
fn unsized_zstd(stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let size = match zstd::zstd_safe::get_frame_content_size(stored) {
        Ok(Some(size)) => size,
        Ok(None) => return zstd_stream(stored),
        Err(_) => return Err(Fault::damaged("the zstd block cannot be decompressed")),
    };
    let size = checked(size, stored, MOST_ZSTD)?;
    let found = zstd::bulk::decompress(stored, size).unwrap_or_default();
    fits(Some(found.len()), found, size, "zstd")
}

/// Decompresses deflate without a header. If no size is given, returns as many bytes as there are.
fn inflate(stored: &[u8], size: Option<usize>) -> Result<Vec<u8>, Fault> {
    let most = size.map_or(stored.len() as u64 * MOST_DEFLATE, |size| size as u64 + 1);
    let mut buffer = Vec::with_capacity(size.unwrap_or(0));
    let mut decoder = flate2::read::DeflateDecoder::new(stored).take(most);
    let found = decoder.read_to_end(&mut buffer).ok();
    let size = size.unwrap_or(buffer.len());
    fits(found, buffer, size, "zlib")
}

fn checked(size: u64, stored: &[u8], most: u64) -> Result<usize, Fault> {
    let limit = (stored.len() as u64 + 64).saturating_mul(most);
    let size = Some(size).filter(|size| *size <= limit).and_then(|size| size.try_into().ok());
    size.ok_or_else(|| Fault::damaged("a block claims to be larger than it can be"))
}

fn fits(found: Option<usize>, buffer: Vec<u8>, size: usize, codec: &str) -> Result<Vec<u8>, Fault> {
    match found == Some(size) && buffer.len() == size {
        true => Ok(buffer),
        false => Err(Fault::damaged(format!("the {codec} block cannot be decompressed"))),
    }
}
