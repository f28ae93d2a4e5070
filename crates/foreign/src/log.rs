//! Reads the records of logs and manifests, which have the same form. What LevelDB and RocksDB
//! would skip silently is an error here, except a record that a crash cut short.
//!
//! A file consists of blocks of 32 KiB. A record is in one block, or in pieces in several:
//!
//! ```text
//! crc (4, masked)  length (2)  type (1)  [log number (4)]  bytes
//! ```
//!
//! The crc covers everything from the type on. RocksDB has record types that contain the file
//! number of the log, for files that are overwritten: in such a file, records of an older log may
//! follow the last record. Fewer than seven bytes at the end of a block are not used.

use crate::bytes::Input;
use crate::checksum::masked;
use crate::compression::zstd_stream;
use crate::error::{Fault, Result};
use crate::file::SourceFile;
use crate::keys::Dialect;

const BLOCK_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;
const NUMBERED_HEADER_BYTES: usize = 11;

/// A record and the offset at which it begins.
#[derive(Debug)]
pub struct Record {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// Which piece of a record this is, or another type that RocksDB writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Full,
    First,
    Middle,
    Last,
    Compression,
    Timestamps,
    /// A record that is not needed.
    Note,
}

/// The next item in the file.
enum Found {
    Piece(Piece, u64, Vec<u8>),
    End,
}

/// Reads the records of one file.
pub struct LogReader {
    file: SourceFile,
    dialect: Dialect,
    /// The number of the log, for records that name it.
    number: u64,
    block: Vec<u8>,
    /// The offset of the block in the file, and of the next byte in the block.
    block_offset: u64,
    at: usize,
    /// Whether records have a log number; `None` before the first record.
    is_numbered: Option<bool>,
    is_compressed: bool,
    is_torn: bool,
}

impl LogReader {
    pub fn new(file: SourceFile, dialect: Dialect, number: u64) -> Result<LogReader> {
        let mut reader = LogReader {
            file,
            dialect,
            number,
            block: Vec::new(),
            block_offset: 0,
            at: 0,
            is_numbered: None,
            is_compressed: false,
            is_torn: false,
        };
        reader.read_block(0)?;
        Ok(reader)
    }

    pub fn file(&self) -> &SourceFile {
        &self.file
    }

    /// After all records are read: whether the last one was cut short.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The next whole record.
    pub fn next(&mut self) -> Result<Option<Record>> {
        let mut record: Option<Record> = None;
        loop {
            let (piece, offset, bytes) = match self.next_piece(record.is_some())? {
                Found::Piece(piece, offset, bytes) => (piece, offset, bytes),
                Found::End => {
                    self.is_torn |= record.is_some();
                    return Ok(None);
                }
            };
            let whole = match (piece, record.take()) {
                (Piece::Note, _) => continue,
                (Piece::Compression, None) => {
                    self.set_compression(offset, &bytes)?;
                    continue;
                }
                (Piece::Timestamps, _) => {
                    let hint = "import a copy of the data without timestamps";
                    let fault = Fault::unsupported("the log has user-defined timestamps", hint);
                    return Err(self.file.fault(offset, fault));
                }
                // Old writers left an empty first piece at the end of a block.
                (Piece::Full, begun) if is_empty(&begun) => Record { offset, bytes },
                (Piece::First, begun) if is_empty(&begun) => {
                    record = Some(Record { offset, bytes });
                    continue;
                }
                (Piece::Middle, Some(mut begun)) => {
                    begun.bytes.extend_from_slice(&bytes);
                    record = Some(begun);
                    continue;
                }
                (Piece::Last, Some(mut begun)) => {
                    begun.bytes.extend_from_slice(&bytes);
                    begun
                }
                (_, Some(_)) => return Err(self.file.damaged(offset, "a record without its end")),
                (_, None) => return Err(self.file.damaged(offset, "a record without its begin")),
            };
            return self.unpacked(whole).map(Some);
        }
    }

    fn unpacked(&self, record: Record) -> Result<Record> {
        if !self.is_compressed {
            return Ok(record);
        }
        let bytes = zstd_stream(&record.bytes);
        let bytes = bytes.map_err(|fault| self.file.fault(record.offset, fault))?;
        Ok(Record { bytes, ..record })
    }

    fn set_compression(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match Input(bytes).fixed32() {
            Some(0) => Ok(()),
            Some(7) => {
                self.is_compressed = true;
                Ok(())
            }
            _ => {
                let hint = "open it with RocksDB and flush it, then import again";
                let fault = Fault::unsupported("the log is compressed, and not by zstd", hint);
                Err(self.file.fault(offset, fault))
            }
        }
    }

    fn read_block(&mut self, offset: u64) -> Result<()> {
        let bytes = self.file.bytes.saturating_sub(offset).min(BLOCK_BYTES);
        self.block = self.file.read(offset.min(self.file.bytes), bytes)?;
        self.block_offset = offset;
        self.at = 0;
        Ok(())
    }

    fn is_last_block(&self) -> bool {
        self.block_offset + self.block.len() as u64 >= self.file.bytes
    }

    fn next_piece(&mut self, is_begun: bool) -> Result<Found> {
        loop {
            let rest = &self.block[self.at..];
            if rest.len() < HEADER_BYTES {
                if self.is_last_block() {
                    self.is_torn |= rest.iter().any(|byte| *byte != 0);
                    return Ok(Found::End);
                }
                self.read_block(self.block_offset + BLOCK_BYTES)?;
                continue;
            }
            if rest[4..HEADER_BYTES] == [0, 0, 0] {
                return self.zeros(is_begun);
            }
            return self.piece();
        }
    }

    /// Reads space that was allocated ahead. No record may follow.
    fn zeros(&mut self, is_begun: bool) -> Result<Found> {
        let begin = self.block_offset + self.at as u64;
        loop {
            if let Some(at) = self.block[self.at..].iter().position(|byte| *byte != 0) {
                let offset = self.block_offset + (self.at + at) as u64;
                let what = format!("bytes behind the zeros at byte {begin}, where the log ends");
                return Err(self.file.damaged(offset, what));
            }
            if self.is_last_block() {
                self.at = self.block.len();
                self.is_torn |= is_begun;
                return Ok(Found::End);
            }
            self.read_block(self.block_offset + BLOCK_BYTES)?;
        }
    }

    fn piece(&mut self) -> Result<Found> {
        let offset = self.block_offset + self.at as u64;
        let rest = &self.block[self.at..];
        let crc = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let length = usize::from(u16::from_le_bytes([rest[4], rest[5]]));
        let number = rest[6];
        let is_numbered = self.dialect == Dialect::RocksDb && is_numbered(number);
        let header = if is_numbered { NUMBERED_HEADER_BYTES } else { HEADER_BYTES };
        let is_of_another = is_numbered && rest.len() >= header && {
            let named = u32::from_le_bytes([rest[7], rest[8], rest[9], rest[10]]);
            named != self.number as u32
        };
        if is_numbered && self.is_numbered == Some(false) {
            return Err(self.file.damaged(offset, "a record with a log number, unlike the others"));
        }
        let Some(found) = rest.get(header..header + length) else {
            return self.cut_short(offset, crc, length);
        };
        let is_whole = masked(crc32c::crc32c(&rest[6..header + length])) == crc;
        // If a log has no record of its own yet, its first record is a whole record of an older
        // log.
        let may_end = match self.is_numbered {
            Some(before) => before && is_of_another,
            None => is_whole && is_of_another,
        };
        if may_end || (!is_whole && self.is_numbered == Some(true)) {
            return self.older(offset);
        }
        if !is_whole {
            return Err(self.file.damaged(offset, "the checksum of a record does not match"));
        }
        let Some(piece) = piece_of(number, self.dialect) else {
            let what = format!("a record of the unknown type {number}");
            let hint = "open it with the program that wrote it, flush it, and import again";
            return Err(self.file.fault(offset, Fault::unsupported(what, hint)));
        };
        let found = found.to_vec();
        if matches!(piece, Piece::Full | Piece::First | Piece::Middle | Piece::Last) {
            if self.is_numbered.is_some_and(|before| before != is_numbered) {
                return Err(self.file.damaged(offset, "records with and without a log number"));
            }
            self.is_numbered = Some(is_numbered);
        }
        self.at += header + length;
        Ok(Found::Piece(piece, offset, found))
    }

    /// A record that exceeds the end of its block. At the end of the file, either a crash cut it
    /// short or its length is damaged. If the length is damaged, the crc fits a shorter record.
    fn cut_short(&mut self, offset: u64, crc: u32, length: usize) -> Result<Found> {
        let rest = &self.block[self.at..];
        if !self.is_last_block() {
            return match self.is_numbered {
                Some(true) => self.older(offset),
                _ => Err(self.file.damaged(offset, "a record runs over the end of its block")),
            };
        }
        let mut sum = crc32c::crc32c(&rest[6..HEADER_BYTES]);
        let mut fits = |byte| {
            sum = crc32c::crc32c_append(sum, std::slice::from_ref(byte));
            masked(sum) == crc
        };
        // If a damaged type implies a log number in the header, the record only seems too long.
        let shorter = rest.get(HEADER_BYTES..HEADER_BYTES + length).unwrap_or(&[]);
        let is_of_other_type = (1..=4)
            .any(|kind| masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), shorter)) == crc);
        if is_of_other_type || rest[HEADER_BYTES..].iter().any(&mut fits) {
            let what = format!("a record of {length} bytes, which its checksum does not fit");
            return Err(self.file.damaged(offset, what));
        }
        self.is_torn = true;
        self.at = self.block.len();
        Ok(Found::End)
    }

    /// In a log that was written over an older one, returns the end if no record of this log
    /// follows.
    fn older(&mut self, offset: u64) -> Result<Found> {
        self.at += 1;
        loop {
            for at in self.at..self.block.len() {
                if self.is_own(&self.block[at..]) {
                    let follows = self.block_offset + at as u64;
                    let what = format!("a damaged record; the log goes on at byte {follows}");
                    return Err(self.file.damaged(offset, what));
                }
            }
            if self.is_last_block() {
                self.at = self.block.len();
                return Ok(Found::End);
            }
            self.read_block(self.block_offset + BLOCK_BYTES)?;
        }
    }

    fn is_own(&self, bytes: &[u8]) -> bool {
        if bytes.len() < NUMBERED_HEADER_BYTES || !is_numbered(bytes[6]) {
            return false;
        }
        let length = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let number = u32::from_le_bytes([bytes[7], bytes[8], bytes[9], bytes[10]]);
        let crc = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let covered = bytes.get(6..NUMBERED_HEADER_BYTES + length);
        number == self.number as u32
            && covered.is_some_and(|covered| masked(crc32c::crc32c(covered)) == crc)
    }
}

fn is_empty(begun: &Option<Record>) -> bool {
    begun.as_ref().is_none_or(|begun| begun.bytes.is_empty())
}

/// Types whose header has the number of the log.
fn is_numbered(number: u8) -> bool {
    matches!(number, 5..=8 | 11 | 131)
}

fn piece_of(number: u8, dialect: Dialect) -> Option<Piece> {
    Some(match (number, dialect) {
        (1, _) => Piece::Full,
        (2, _) => Piece::First,
        (3, _) => Piece::Middle,
        (4, _) => Piece::Last,
        (_, Dialect::LevelDb) => return None,
        (5, _) => Piece::Full,
        (6, _) => Piece::First,
        (7, _) => Piece::Middle,
        (8, _) => Piece::Last,
        (9, _) => Piece::Compression,
        (10 | 11, _) => Piece::Timestamps,
        // RocksDB skips every type from 128 on that it does not know.
        (128.., _) => Piece::Note,
        _ => return None,
    })
}
