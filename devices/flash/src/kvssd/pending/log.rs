//! The write-ahead log on flash: groups of frames in consecutive pages. Little-endian:
//!
//! ```text
//! group: magic u32 | length u32 | frames | zeros to the end of the last page
//! ```
//!
//! The owner in the spare bytes of a page is the number of its group. If a group cannot be read, a
//! power cut has torn it or it is corrupted. A torn group was never acknowledged, and its sequence
//! numbers were given out again. A corrupted group leaves a gap in the sequence numbers
//! (`boot.rs`).

use std::collections::VecDeque;

use crate::error::Result;
use crate::kvssd::pending::Write;
use crate::kvssd::pending::frames::{self, Frame};
use crate::kvssd::space::{Owner, Space, Stream};
use crate::nand::SharedBytes;
use crate::rest::Rest;

const MAGIC: u32 = 0x474f_4c52; // "RLOG"
const HEADER_BYTES: usize = 8;

/// A group on flash.
#[derive(Clone, Copy, Debug)]
struct Group {
    page: u32,
    page_count: u32,
    last_seq: u64,
}

/// The log: the groups on flash, and the writes that wait for the next group.
#[derive(Debug, Default)]
pub(crate) struct Log {
    groups: VecDeque<Group>,
    /// Largest group number ever used.
    last_number: u64,
    waiting: Vec<u8>,
    waiting_seq: u64,
}

/// A group found at boot.
pub(crate) struct FoundGroup {
    pub(crate) number: u64,
    pub(crate) page: u32,
    /// The bytes of its pages, if all can be read.
    pub(crate) bytes: Option<SharedBytes>,
}

impl Log {
    /// Adds a group of writes; it is durable after the next `write_out`.
    pub(crate) fn append(&mut self, first_seq: u64, writes: &[Write<'_>]) {
        if self.waiting.is_empty() {
            self.waiting.resize(HEADER_BYTES, 0);
        }
        frames::encode(first_seq, writes, &mut self.waiting);
        self.waiting_seq = first_seq + writes.len() as u64 - 1;
    }

    /// How many bytes wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    /// Live pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().flat_map(|group| group.page..group.page + group.page_count)
    }

    /// Programs the bytes that wait.
    pub(crate) fn write_out(&mut self, space: &mut Space, txn: u64) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let len = self.waiting.len() as u32;
        self.waiting[..4].copy_from_slice(&MAGIC.to_le_bytes());
        self.waiting[4..8].copy_from_slice(&len.to_le_bytes());
        let mut bytes = self.waiting.clone();
        bytes.resize(bytes.len().next_multiple_of(space.page_bytes()), 0);
        self.last_number += 1;
        let number = self.last_number;
        let owner = Owner { txn, id: number, ..Owner::default() };
        let page_count = (bytes.len() / space.page_bytes()) as u32;
        let page = space.program(Stream::Log, bytes.into(), owner)?;
        space.keep();
        self.groups.push_back(Group { page, page_count, last_seq: self.waiting_seq });
        self.waiting.clear();
        Ok(())
    }

    /// Forgets the groups whose writes, up to this sequence number, are in tables.
    pub(crate) fn forget(&mut self, flushed_seq: u64, space: &mut Space) {
        if self.waiting_seq <= flushed_seq {
            self.waiting.clear();
        }
        while self.groups.front().is_some_and(|group| group.last_seq <= flushed_seq) {
            if let Some(group) = self.groups.pop_front() {
                space.release(group.page, group.page_count);
            }
        }
    }

    /// Takes over the groups that boot found, in order of their numbers. Returns the frames of
    /// whole groups.
    pub(crate) fn recover(
        &mut self,
        mut found: Vec<FoundGroup>,
        flushed_seq: u64,
        space: &mut Space,
    ) -> Vec<Frame> {
        found.sort_by_key(|group| group.number);
        self.last_number = found.last().map_or(0, |group| group.number);
        let mut recovered = Vec::new();
        for group in found {
            let Some(bytes) = group.bytes else { continue };
            let Some(frames) = decode(&bytes.flat()) else { continue };
            let last_seq = frames.iter().map(Frame::last_seq).max().unwrap_or(0);
            if last_seq > flushed_seq {
                let page_count = (bytes.len() / space.page_bytes()) as u32;
                space.hold(group.page, page_count);
                self.groups.push_back(Group { page: group.page, page_count, last_seq });
                recovered.extend(frames);
            }
        }
        recovered
    }
}

/// The frames of a whole group.
fn decode(bytes: &[u8]) -> Option<Vec<Frame>> {
    let mut rest = Rest(bytes);
    let (magic, len) = (rest.u32()?, rest.u32()? as usize);
    let used = bytes.get(HEADER_BYTES..len).filter(|_| magic == MAGIC)?;
    let decoded = frames::decode_all(used);
    let is_whole = decoded.used_bytes() == used.len();
    is_whole.then(|| decoded.frames.into_iter().map(|(frame, _)| frame).collect())
}
