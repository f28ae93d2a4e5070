//! Reads the records of a log file, and the bytes after the first bad one.

use std::sync::Arc;

use runstone_storage::StorageFile;

use super::{
    FIRST, FRAGMENT_HEADER_BYTES, FRAME_BYTES, FULL, HEADER_BYTES, LAST, LogHeader, LogResult,
    MIDDLE, checksum,
};
use crate::keys::codec::u32_at;

/// The next thing in the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A record, and where it starts.
    Record {
        /// Offset of its first fragment.
        offset: u64,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// No valid fragment here: the end of the log, a torn tail, or corruption.
    End {
        /// Its offset.
        offset: u64,
    },
}

/// Reads one file from its header on.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn StorageFile>,
    id: u64,
    manifest: u64,
    file_len: u64,
    position: u64,
    frame: Vec<u8>,
    /// Start of the frame in `frame`; `u64::MAX` before the first.
    frame_at: u64,
    /// Length of the frame without the zeros at its end.
    frame_used: usize,
}

/// A fragment that verified.
struct Fragment {
    kind: u8,
    start: usize,
    end: usize,
}

impl LogReader {
    /// A reader of a file whose header was decoded.
    pub fn new(file: Arc<dyn StorageFile>, header: &LogHeader) -> LogResult<LogReader> {
        let file_len = file.len()?;
        Ok(LogReader {
            file,
            id: header.id,
            manifest: header.manifest,
            file_len,
            position: HEADER_BYTES,
            frame: Vec::new(),
            frame_at: u64::MAX,
            frame_used: 0,
        })
    }

    /// The manifest that its header names.
    pub fn manifest(&self) -> u64 {
        self.manifest
    }

    /// The next record, or where the valid part ends. After an error the reader is where it was
    /// before the call: from the middle of a record, the rest would look like the end.
    // This is not an iterator, because it can fail. It is visible through `testing`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> LogResult<Next> {
        let before = self.position;
        self.read_record().inspect_err(|_| {
            (self.position, self.frame_at) = (before, u64::MAX);
        })
    }

    fn read_record(&mut self) -> LogResult<Next> {
        let mut start = self.position;
        let mut bytes = Vec::new();
        let mut open = false;
        loop {
            let room = FRAME_BYTES - self.position % FRAME_BYTES;
            if room < FRAGMENT_HEADER_BYTES as u64 {
                self.position += room;
                // A record begins after the padding. So a first fragment whose record is incomplete
                // proves nothing about the bytes before that fragment.
                if !open {
                    start = self.position;
                }
                continue;
            }
            let at = self.position;
            let Some(fragment) = self.fragment(at)? else { return Ok(Next::End { offset: start }) };
            let fits =
                matches!((open, fragment.kind), (false, FULL | FIRST) | (true, MIDDLE | LAST));
            if !fits {
                return Ok(Next::End { offset: start });
            }
            bytes.extend_from_slice(&self.frame[fragment.start..fragment.end]);
            self.position = self.frame_at + fragment.end as u64;
            match fragment.kind {
                FULL | LAST => return Ok(Next::Record { offset: start, bytes }),
                _ => open = true,
            }
        }
    }

    /// The first fragment of the next record, if it verifies. The rest may be missing. A record may
    /// be 256 MiB large, and its head is in the first fragment.
    pub fn beginning(&mut self) -> LogResult<Option<Vec<u8>>> {
        let found = self.fragment(self.position)?;
        let first = found.filter(|fragment| matches!(fragment.kind, FULL | FIRST));
        Ok(first.map(|first| self.frame[first.start..first.end].to_vec()))
    }

    /// Where the next record is expected.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes back to an earlier position, and forgets what it has read: somebody may be writing to
    /// the file.
    pub fn rewind(&mut self, position: u64) -> LogResult<()> {
        (self.position, self.frame_at) = (position, u64::MAX);
        self.file_len = self.file.len()?;
        Ok(())
    }

    /// Looks for valid fragments after a bad fragment at `offset`. Calls `found` with the offset
    /// and the bytes of each that starts a record (its first fragment only). The length field of a
    /// bad fragment cannot be trusted, so every later byte is tried; frames that are all zeros from
    /// some point on are skipped. O(bytes after `offset`), but it runs only where something is
    /// missing.
    pub fn scan_after(&mut self, offset: u64, mut found: impl FnMut(u64, &[u8])) -> LogResult<()> {
        self.search(offset + 1, |at, bytes| {
            found(at, bytes);
            false
        })
    }

    /// Continues after a bad fragment at `offset`, at the next valid fragment that starts a record,
    /// and returns its offset. For people who inspect a damaged log: a store never reads beyond a
    /// gap. O(bytes up to there).
    pub fn pass_gap(&mut self, offset: u64) -> LogResult<Option<u64>> {
        let mut next = None;
        self.search(offset + 1, |at, _| {
            next = Some(at);
            true
        })?;
        if let Some(at) = next {
            self.position = at;
        }
        Ok(next)
    }

    /// Tries every byte from `at` on. Ends at the first fragment that starts a record and for which
    /// `is_enough` returns `true`.
    fn search(
        &mut self,
        mut at: u64,
        mut is_enough: impl FnMut(u64, &[u8]) -> bool,
    ) -> LogResult<()> {
        while at < self.file_len {
            match self.fragment(at)? {
                Some(fragment) => {
                    let bytes = &self.frame[fragment.start..fragment.end];
                    if matches!(fragment.kind, FULL | FIRST) && is_enough(at, bytes) {
                        return Ok(());
                    }
                    at = self.frame_at + fragment.end as u64;
                }
                None => at += 1,
            }
            let in_frame = at % FRAME_BYTES;
            if at - in_frame == self.frame_at && in_frame as usize >= self.frame_used {
                at = self.frame_at + FRAME_BYTES;
            }
        }
        Ok(())
    }

    /// The fragment at `offset`, if one verifies there.
    fn fragment(&mut self, offset: u64) -> LogResult<Option<Fragment>> {
        self.load_frame(offset - offset % FRAME_BYTES)?;
        let at = (offset - self.frame_at) as usize;
        let header = |at: usize| {
            let sum = u32_at(&self.frame, at)?;
            let len = u16::from_le_bytes(self.frame.get(at + 4..at + 6)?.try_into().ok()?);
            Some((sum, usize::from(len), *self.frame.get(at + 6)?))
        };
        let Some((sum, len, kind)) = header(at) else { return Ok(None) };
        if !(FULL..=LAST).contains(&kind) {
            return Ok(None);
        }
        let start = at + FRAGMENT_HEADER_BYTES;
        let end = start + len;
        let verified = self
            .frame
            .get(start..end)
            .is_some_and(|bytes| checksum(self.id, offset, kind, bytes) == sum);
        Ok(verified.then_some(Fragment { kind, start, end }))
    }

    fn load_frame(&mut self, frame_at: u64) -> LogResult<()> {
        if self.frame_at == frame_at {
            return Ok(());
        }
        // A read that fails leaves no frame.
        self.frame_at = u64::MAX;
        let len = FRAME_BYTES.min(self.file_len.saturating_sub(frame_at));
        self.frame.resize(len as usize, 0);
        if len > 0 {
            self.file.read_at(frame_at, &mut self.frame)?;
        }
        self.frame_at = frame_at;
        self.frame_used = self.frame.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{BadHeader, LogKind, LogWriter};
    use runstone_storage::{Category, MemoryStorage, Storage};

    const HEADER: LogHeader = LogHeader { number: 3, id: 0xfeed, manifest: 7 };

    fn records() -> Vec<Vec<u8>> {
        let lens = [0, 1, 100, 32_760, 32_761, 7, 100_000, 5, 32_000, 700, 3];
        lens.iter().enumerate().map(|(i, len)| vec![i as u8 + 1; *len]).collect()
    }

    fn written() -> (MemoryStorage, Arc<dyn StorageFile>, Vec<u64>) {
        let storage = MemoryStorage::new();
        let file = storage.create("000003.wal", Category::Wal).expect("new file");
        let mut writer =
            LogWriter::create(Arc::clone(&file), LogKind::Wal, HEADER).expect("header");
        let mut ends = Vec::new();
        for record in records() {
            let before = writer.position();
            let (head, tail) = record.split_at(record.len() / 3);
            writer.append(&[head, tail]).expect("memory");
            assert!(writer.position() - before <= LogWriter::max_stored_bytes(record.len()));
            ends.push(writer.position());
        }
        (storage, file, ends)
    }

    fn read_all(file: &Arc<dyn StorageFile>) -> (Vec<Vec<u8>>, u64) {
        let mut reader = LogReader::new(Arc::clone(file), &HEADER).expect("length");
        let mut all = Vec::new();
        loop {
            match reader.next().expect("memory") {
                Next::Record { bytes, .. } => all.push(bytes),
                Next::End { offset } => return (all, offset),
            }
        }
    }

    #[test]
    fn records_of_every_size_round_trip() {
        let (_storage, file, ends) = written();
        let (all, end) = read_all(&file);
        assert_eq!(all, records());
        assert_eq!(Some(&end), ends.last());
    }

    #[test]
    fn a_flip_stops_the_reader_and_the_scan_finds_what_lies_behind() {
        let (_storage, file, ends) = written();
        for (i, end) in ends.iter().enumerate().take(ends.len() - 1) {
            let mut byte = [0];
            file.read_at(end - 1, &mut byte).expect("inside");
            file.write_at(end - 1, &[byte[0] ^ 4]).expect("memory");
            let (all, stop) = read_all(&file);
            assert_eq!(all, records()[..i]);
            let mut reader = LogReader::new(Arc::clone(&file), &HEADER).expect("length");
            let mut later = Vec::new();
            reader.scan_after(stop, |offset, _| later.push(offset)).expect("memory");
            assert!(later.iter().all(|offset| *offset >= *end));
            assert!(!later.is_empty(), "record {i}: later ones are found");
            assert_eq!(reader.pass_gap(stop).expect("memory"), later.first().copied());
            let next = reader.next().expect("memory");
            let wanted = Next::Record { offset: later[0], bytes: records()[i + 1].clone() };
            assert_eq!(next, wanted, "record {i}: it goes on with the next whole one");
            file.write_at(end - 1, &byte).expect("memory");
        }
    }

    #[test]
    fn another_life_of_the_file_does_not_verify() {
        let (_storage, file, _) = written();
        let other = LogHeader { id: 0xbeef, ..HEADER };
        let mut reader = LogReader::new(Arc::clone(&file), &other).expect("length");
        assert_eq!(reader.next().expect("memory"), Next::End { offset: HEADER_BYTES });
        let mut later = 0;
        reader.scan_after(HEADER_BYTES, |_, _| later += 1).expect("memory");
        assert_eq!(later, 0);
    }

    #[test]
    fn headers_say_what_they_are() {
        let bytes = HEADER.encode(LogKind::Wal);
        assert_eq!(LogHeader::decode(&bytes, LogKind::Wal), Ok(HEADER));
        assert_eq!(LogHeader::decode(&bytes, LogKind::Manifest), Err(BadHeader::Invalid));
        for at in 0..64 {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(LogHeader::decode(&bad, LogKind::Wal), Ok(HEADER), "the other copy serves");
            bad[at + 64] ^= 1;
            assert_eq!(LogHeader::decode(&bad, LogKind::Wal), Err(BadHeader::Invalid));
        }
    }
}
