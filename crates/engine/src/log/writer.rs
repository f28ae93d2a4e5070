//! Appends records to a log file. Not here: syncing, which the owner does when it promises
//! anything.

use std::cell::RefCell;
use std::sync::Arc;

use runstone_storage::StorageFile;

use super::{
    FIRST, FRAGMENT_HEADER_BYTES, FRAME_BYTES, FULL, HEADER_BYTES, LAST, LogHeader, LogKind,
    LogResult, MIDDLE, checksum,
};
use crate::base::threads;

/// A larger scratch buffer is freed after use.
const KEPT_SCRATCH_BYTES: usize = 1 << 20;

/// Appends records to one file. The fields that each record changes come first.
#[derive(Debug)]
#[repr(C)]
pub struct LogWriter {
    position: u64,
    id: u64,
    file: Arc<dyn StorageFile>,
}

impl LogWriter {
    /// Writes the header and appends behind it.
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

    /// Where the next fragment goes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Most bytes that a record of `len` bytes takes, wherever it starts.
    pub fn max_stored_bytes(len: usize) -> u64 {
        let payload = FRAME_BYTES - FRAGMENT_HEADER_BYTES as u64;
        let fragments = len as u64 / payload + 2;
        len as u64 + (fragments + 1) * FRAGMENT_HEADER_BYTES as u64
    }

    /// Appends the concatenation of `parts` as one record, by one write.
    pub fn append(&mut self, parts: &[&[u8]]) -> LogResult<()> {
        // Of the thread, not of the log: writers on different cores would pass the lines around.
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

    fn encode(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> u64 {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        let mut offset = self.position;
        let mut first = true;
        loop {
            let room = FRAME_BYTES - offset % FRAME_BYTES;
            if room < FRAGMENT_HEADER_BYTES as u64 {
                out.resize(out.len() + room as usize, 0);
                offset += room;
                continue;
            }
            let len = left.min(room as usize - FRAGMENT_HEADER_BYTES);
            let kind = match (first, len == left) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            let start = out.len();
            out.extend_from_slice(&[0; FRAGMENT_HEADER_BYTES]);
            let mut wanted = len;
            while wanted > 0 {
                if part.is_empty() {
                    part = parts.next().unwrap_or(&[]);
                    continue;
                }
                let (taken, rest) = part.split_at(wanted.min(part.len()));
                out.extend_from_slice(taken);
                wanted -= taken.len();
                part = rest;
            }
            let sum = checksum(self.id, offset, kind, &out[start + FRAGMENT_HEADER_BYTES..]);
            out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
            out[start + 4..start + 6].copy_from_slice(&(len as u16).to_le_bytes());
            out[start + 6] = kind;
            offset += (FRAGMENT_HEADER_BYTES + len) as u64;
            left -= len;
            first = false;
            if left == 0 {
                return offset;
            }
        }
    }
}
