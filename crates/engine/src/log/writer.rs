//! Appends records to a log file. Not here: the syncs, which the owner makes before it promises
//! anything.

use std::cell::RefCell;
use std::sync::Arc;

use runstone_storage::StorageFile;

use super::{
    FIRST, FRAGMENT_HEADER_BYTES, FRAME_BYTES, FULL, HEADER_BYTES, LAST, LogHeader, LogKind,
    LogResult, MIDDLE, checksum,
};
use crate::sync::threads;

/// A larger scratch buffer is freed after use.
const KEPT_SCRATCH_BYTES: usize = 1 << 20;
/// How much of a record that fills a file is written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Appends records to one file. The fields that each record changes come first.
#[derive(Debug)]
#[repr(C)]
pub struct LogWriter {
    position: u64,
    id: u64,
    file: Arc<dyn StorageFile>,
}

impl LogWriter {
    /// Writes the header and appends after it.
    pub fn create(
        file: Arc<dyn StorageFile>,
        kind: LogKind,
        header: LogHeader,
    ) -> LogResult<LogWriter> {
        file.write_at(0, &header.encode(kind))?;
        Ok(LogWriter { file, id: header.id, position: HEADER_BYTES })
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// The place of the next fragment.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The most bytes that a record of `len` bytes can need, wherever it starts.
    pub fn max_stored_bytes(len: usize) -> u64 {
        let payload = FRAME_BYTES - FRAGMENT_HEADER_BYTES as u64;
        let fragments = len as u64 / payload + 2;
        len as u64 + (fragments + 1) * FRAGMENT_HEADER_BYTES as u64
    }

    /// Appends the concatenation of `parts` as one record, with one write.
    pub fn append(&mut self, parts: &[&[u8]]) -> LogResult<()> {
        // The buffer belongs to the thread, not to the log: otherwise its cache lines would move
        // between the cores of writers.
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        threads::lend(&SCRATCH, |scratch| {
            scratch.clear();
            let end = self.encode(parts, scratch);
            self.file.write_at(self.position, scratch)?;
            self.position = end;
            if scratch.capacity() > KEPT_SCRATCH_BYTES {
                *scratch = Vec::new();
            }
            Ok(())
        })
    }

    /// Does the same with several writes, so that a long record needs little memory. A crash or an
    /// error may leave the beginning of the record, which does not count as a record.
    pub fn append_in_pieces(&mut self, parts: &[&[u8]]) -> LogResult<()> {
        let mut fragments = Fragments::new(self.id, self.position, parts);
        let mut piece = Vec::new();
        while !fragments.is_done() {
            let at = fragments.offset;
            piece.clear();
            while piece.len() < PIECE_BYTES && !fragments.is_done() {
                fragments.encode_one(&mut piece);
            }
            self.file.write_at(at, &piece)?;
        }
        self.position = fragments.offset;
        Ok(())
    }

    /// Makes sure that no record follows the last one, in a file that ends at `capacity_bytes`.
    pub fn void_rest(&self, capacity_bytes: u64) -> LogResult<()> {
        // The header of a record begins here, or in the next frame if this one has no room for it.
        const ZEROS: [u8; 2 * FRAGMENT_HEADER_BYTES] = [0; 2 * FRAGMENT_HEADER_BYTES];
        let room = capacity_bytes.saturating_sub(self.position);
        let len = ZEROS.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(self.file.write_at(self.position, &ZEROS[..len])?)
    }

    /// Leaves room for a record of this many bytes, to be written later or never. The next record
    /// follows it.
    pub fn reserve(&mut self, bytes: usize) -> Place {
        let (file, id, offset) = (Arc::clone(&self.file), self.id, self.position);
        self.position = end_of(offset, bytes);
        Place { file, id, offset }
    }

    fn encode(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> u64 {
        let mut fragments = Fragments::new(self.id, self.position, parts);
        while !fragments.is_done() {
            fragments.encode_one(out);
        }
        fragments.offset
    }
}

/// Where a record of this length ends if it begins at `offset`.
fn end_of(mut offset: u64, bytes: usize) -> u64 {
    let (mut left, mut is_first) = (bytes as u64, true);
    while left > 0 || is_first {
        let mut room = FRAME_BYTES - offset % FRAME_BYTES;
        if room < FRAGMENT_HEADER_BYTES as u64 {
            offset += room;
            room = FRAME_BYTES;
        }
        let len = left.min(room - FRAGMENT_HEADER_BYTES as u64);
        offset += FRAGMENT_HEADER_BYTES as u64 + len;
        left -= len;
        is_first = false;
    }
    offset
}

/// Room for a record.
#[derive(Debug)]
pub struct Place {
    file: Arc<dyn StorageFile>,
    id: u64,
    offset: u64,
}

impl Place {
    /// Writes the record, which has exactly the reserved length.
    pub fn write(&self, parts: &[&[u8]]) -> LogResult<()> {
        let mut bytes = Vec::new();
        let mut fragments = Fragments::new(self.id, self.offset, parts);
        while !fragments.is_done() {
            fragments.encode_one(&mut bytes);
        }
        Ok(self.file.write_at(self.offset, &bytes)?)
    }
}

/// A record that is being cut into fragments.
struct Fragments<'a> {
    id: u64,
    /// The place of the next fragment.
    offset: u64,
    parts: std::slice::Iter<'a, &'a [u8]>,
    part: &'a [u8],
    left: usize,
    is_first: bool,
}

impl<'a> Fragments<'a> {
    /// The concatenation of `parts`, from `offset` on.
    fn new(id: u64, offset: u64, parts: &'a [&'a [u8]]) -> Fragments<'a> {
        let left = parts.iter().map(|part| part.len()).sum();
        Fragments { id, offset, parts: parts.iter(), part: &[], left, is_first: true }
    }

    fn is_done(&self) -> bool {
        self.left == 0 && !self.is_first
    }

    /// Appends the next fragment, after the padding before it.
    fn encode_one(&mut self, out: &mut Vec<u8>) {
        let mut room = FRAME_BYTES - self.offset % FRAME_BYTES;
        if room < FRAGMENT_HEADER_BYTES as u64 {
            out.resize(out.len() + room as usize, 0);
            self.offset += room;
            room = FRAME_BYTES;
        }
        let len = self.left.min(room as usize - FRAGMENT_HEADER_BYTES);
        let kind = match (self.is_first, len == self.left) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        let start = out.len();
        out.extend_from_slice(&[0; FRAGMENT_HEADER_BYTES]);
        let mut wanted = len;
        while wanted > 0 {
            if self.part.is_empty() {
                self.part = self.parts.next().copied().unwrap_or(&[]);
                continue;
            }
            let (taken, rest) = self.part.split_at(wanted.min(self.part.len()));
            out.extend_from_slice(taken);
            wanted -= taken.len();
            self.part = rest;
        }
        seal_fragment(self.id, self.offset, kind, &mut out[start..]);
        self.offset += (FRAGMENT_HEADER_BYTES + len) as u64;
        self.left -= len;
        self.is_first = false;
    }
}

/// Writes the header of a fragment before its bytes.
fn seal_fragment(id: u64, offset: u64, kind: u8, fragment: &mut [u8]) {
    let (header, bytes) = fragment.split_at_mut(FRAGMENT_HEADER_BYTES);
    header[..4].copy_from_slice(&checksum(id, offset, kind, bytes).to_le_bytes());
    header[4..6].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
    header[6] = kind;
}

/// A record that fills a file by itself and is written except for the beginning. The beginning is
/// the header of the file, and the first fragment with the first bytes of the record. Until the
/// beginning is written, the file counts as never begun.
#[derive(Debug)]
pub struct PreparedRecord {
    file: Arc<dyn StorageFile>,
    header: LogHeader,
    /// The first fragment.
    first: Vec<u8>,
}

impl PreparedRecord {
    /// Writes `body` and syncs it. `head_bytes` bytes precede it. Body and head must fill more
    /// than a frame.
    pub fn write(
        file: Arc<dyn StorageFile>,
        header: LogHeader,
        head_bytes: usize,
        body: &[u8],
    ) -> LogResult<PreparedRecord> {
        debug_assert!(
            (head_bytes + body.len()) as u64 > FRAME_BYTES,
            "a record that fits a frame is written ahead"
        );
        let (head, mut first) = (vec![0; head_bytes], Vec::new());
        let parts = [&head[..], body];
        let mut fragments = Fragments::new(header.id, HEADER_BYTES, &parts);
        fragments.encode_one(&mut first);
        let mut piece = Vec::with_capacity(PIECE_BYTES + FRAME_BYTES as usize);
        while !fragments.is_done() {
            let at = fragments.offset;
            piece.clear();
            while piece.len() < PIECE_BYTES && !fragments.is_done() {
                fragments.encode_one(&mut piece);
            }
            file.write_at(at, &piece)?;
        }
        file.sync()?;
        Ok(PreparedRecord { file, header, first })
    }

    /// Writes the beginning, with `head`, which has as many bytes as were announced.
    pub fn finish(&mut self, kind: LogKind, head: &[u8]) -> LogResult<()> {
        let at = FRAGMENT_HEADER_BYTES;
        self.first[at..at + head.len()].copy_from_slice(head);
        seal_fragment(self.header.id, HEADER_BYTES, FIRST, &mut self.first);
        let beginning = [&self.header.encode(kind)[..], &self.first].concat();
        Ok(self.file.write_at(0, &beginning)?)
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.header.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_left_for_exactly_the_record() {
        let lens = [0, 1, 6, 7, 8, 32_753, 32_754, 32_755, 32_760, 32_761, 65_500, 300_000];
        for offset in [128, 129, 32_000, 32_760, 32_761, 32_762, 32_767, 32_768] {
            for bytes in lens {
                let body = vec![7; bytes];
                let parts = [&body[..]];
                let (mut fragments, mut out) = (Fragments::new(1, offset, &parts), Vec::new());
                while !fragments.is_done() {
                    fragments.encode_one(&mut out);
                }
                assert_eq!(end_of(offset, bytes), offset + out.len() as u64, "{offset}, {bytes}");
                assert_eq!(end_of(offset, bytes), fragments.offset);
            }
        }
    }
}
