//! Framed records in an append-only file: the format of WAL segments and of the manifest.
//!
//! ```text
//! file      header (64 bytes) | the same header again | frames
//! header    magic u64 | format u32 | 0 u32 | number u64 | id u64 | unused u128 | manifest u64
//!           | 0 u32 | checksum u32
//! frame     32 KiB of the file, counted from byte 0: fragments, then zeros where < 7 bytes are
//!           left
//! fragment  checksum u32 | len u16 | kind u8 | len bytes
//! kind      1 full, 2 first, 3 middle, 4 last
//! ```
//!
//! The checksum covers kind and bytes, seeded with the file's random id and the fragment's offset.
//! So fragments from an earlier use of a recycled file never verify, and neither does a swapped
//! fragment. Since every frame begins with a fragment, a reader that found a bad fragment can look
//! for valid ones after it. The caller judges whether these fragments show corruption or a torn
//! tail.

mod reader;
mod writer;

pub use reader::{LogReader, Next};
pub use writer::{LogWriter, Place, PreparedRecord};

use crate::error::{Error, Result};
use crate::keys::codec::{NUMBER_LIMIT, u32_at, u64_at};

/// Bytes of a frame.
pub const FRAME_BYTES: u64 = 32 << 10;
/// Bytes of a fragment's header.
pub const FRAGMENT_HEADER_BYTES: usize = 7;
/// Bytes of both copies of the file header. There are two copies because no record verifies without
/// the id in the header: a damaged header must not look like a file that was never begun.
pub const HEADER_BYTES: u64 = 128;
const COPY_BYTES: usize = 64;
/// Format version of log files.
pub const LOG_FORMAT: u32 = 1;

const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// The kind of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// A WAL segment.
    Wal,
    /// A manifest.
    Manifest,
    /// A part of an archive.
    Archive,
}

impl LogKind {
    fn magic(self) -> u64 {
        match self {
            LogKind::Wal => u64::from_le_bytes(*b"RunstWAL"),
            LogKind::Manifest => u64::from_le_bytes(*b"RunstMan"),
            LogKind::Archive => u64::from_le_bytes(*b"RunstArc"),
        }
    }
}

/// The first bytes of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// Number of the file, which is also in its name.
    pub number: u64,
    /// Random id of this use of the file.
    pub id: u64,
    /// For a WAL segment, the number of a manifest that was in force when the segment began.
    /// `CURRENT` must name this manifest or a later one; otherwise an older copy of the store was
    /// copied over the directory. 0 for other files.
    pub manifest: u64,
}

/// Why a header does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Not a header, torn, or corrupted.
    Invalid,
    /// The format of a newer release.
    Newer(u32),
}

impl BadHeader {
    /// The error for a file with such a header.
    pub fn in_file(self, file: &str) -> Error {
        match self {
            BadHeader::Newer(found) => newer_format(file, found),
            BadHeader::Invalid => Error::corruption(file, 0, "header is damaged"),
        }
    }
}

impl LogHeader {
    /// The stored form.
    pub fn encode(&self, kind: LogKind) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0u8; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&kind.magic().to_le_bytes());
        bytes[8..12].copy_from_slice(&LOG_FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.id.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.manifest.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..60]) as u32;
        bytes[60..COPY_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes.copy_within(..COPY_BYTES, COPY_BYTES);
        bytes
    }

    /// Reads the stored form; one good copy is enough.
    pub fn decode(bytes: &[u8], kind: LogKind) -> std::result::Result<LogHeader, BadHeader> {
        let second = bytes.get(COPY_BYTES..).ok_or(BadHeader::Invalid)?;
        LogHeader::decode_copy(bytes, kind).or_else(|first| match first {
            BadHeader::Invalid => LogHeader::decode_copy(second, kind),
            newer => Err(newer),
        })
    }

    /// Whether both copies of the stored form are good.
    pub fn is_whole(bytes: &[u8], kind: LogKind) -> bool {
        let copies = bytes.split_at_checked(COPY_BYTES);
        copies.is_some_and(|(first, second)| {
            [first, second].iter().all(|copy| LogHeader::decode_copy(copy, kind).is_ok())
        })
    }

    fn decode_copy(bytes: &[u8], kind: LogKind) -> std::result::Result<LogHeader, BadHeader> {
        let word = |at| u64_at(bytes, at).ok_or(BadHeader::Invalid);
        let covered = bytes.get(..60).ok_or(BadHeader::Invalid)?;
        let sum = xxhash_rust::xxh3::xxh3_64(covered) as u32;
        if word(0)? != kind.magic() || u32_at(bytes, 60) != Some(sum) {
            return Err(BadHeader::Invalid);
        }
        match u32_at(bytes, 8) {
            Some(LOG_FORMAT) => {}
            Some(newer) => return Err(BadHeader::Newer(newer)),
            None => return Err(BadHeader::Invalid),
        }
        Ok(LogHeader { number: word(16)?, id: word(24)?, manifest: word(48)? })
    }
}

fn checksum(id: u64, offset: u64, kind: u8, bytes: &[u8]) -> u32 {
    let seed = id ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(kind) << 56;
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed) as u32
}

/// The error for a header of a newer release.
pub fn newer_format(file: &str, found: u32) -> Error {
    Error::NewerFormat { file: file.to_string(), found, supported: LOG_FORMAT }
}

/// The number in a file name like `000012.wal`; `None` if it is larger than any file number of a
/// store.
pub fn number_in(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_suffix(extension)?.strip_suffix('.')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| *number < NUMBER_LIMIT);
    if plain { number } else { None }
}

/// The result type of reader and writer.
type LogResult<T> = Result<T>;
