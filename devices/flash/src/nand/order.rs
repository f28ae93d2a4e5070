//! The order in which the bytes of the image reach the disk. The order matters if the machine that
//! runs the emulator loses power: then any bytes that were written since the last sync may be lost.
//! This module syncs no more than the order requires. The next open repairs the image
//! (`settle.rs`).
//!
//! 1. Before a block is erased, all programs are synced up to the one (a copy or a commit) after
//!    which the block's content was no longer needed. If the firmware does not name that program,
//!    all programs are synced.
//! 2. Before the first page of a block is programmed, its erase is synced: otherwise the page may
//!    be on the disk in a block that still has its earlier content. Usually a sync for step 1 has
//!    happened since the erase.
//! 3. A mark says up to which `program_seq` all programs are synced. A mark follows each block's
//!    record and is written with it, so an erase never hides a gap. A separate mark is written
//!    after each sync. The newest mark counts. It may be older than the last sync, but never newer.
//! 4. Programs are numbered without gaps, so missing programs after the mark are noticed. Before
//!    the firmware leaves a gap or goes back, the mark is synced.

use super::cells::Cells;
use super::oob::checksum;
use crate::error::Result;
use crate::geometry::{Geometry, Ppa};
use crate::rest::{u32_at, u64_at};

const MAGIC: u32 = 0x4b52_4d52; // "RMRK"
/// Bytes of a mark: magic u32, seq u64, note u64, crc32c of these and of the block u32.
pub(super) const MARK_BYTES: usize = 24;

/// See step 3 of the module docs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) seq: u64,
    /// A number of the firmware, as it was at that sync. It never decreases.
    pub(super) note: u64,
}

impl Mark {
    pub(super) fn encode(&self, geometry: &Geometry, block: u32) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.seq.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.note.to_le_bytes());
        let crc = checksum(geometry, Ppa { block, page: 0 }, &bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if the mark is damaged; `Some(None)` if there is none.
    pub(super) fn decode(geometry: &Geometry, block: u32, bytes: &[u8]) -> Option<Option<Mark>> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Some(None);
        }
        let crc = checksum(geometry, Ppa { block, page: 0 }, bytes.get(..20)?);
        let is_intact = u32_at(bytes, 0)? == MAGIC && u32_at(bytes, 20)? == crc;
        is_intact.then_some(Some(Mark { seq: u64_at(bytes, 4)?, note: u64_at(bytes, 12)? }))
    }
}

/// The state of syncs: which programs and records are not synced yet.
#[derive(Debug)]
pub(super) struct Order {
    has_programs: bool,
    has_records: bool,
    /// The largest number of any program.
    pub(super) last_seq: u64,
    /// All programs up to here are synced.
    synced_seq: u64,
    /// The number for the next mark.
    pub(super) note: u64,
    /// The newest mark; `None` on an image that has none.
    pub(super) mark: Option<Mark>,
    pub(super) sync_count: u64,
}

impl Order {
    /// The state before the image is read: it is unknown what an earlier process synced.
    pub(super) fn new() -> Order {
        let (last_seq, synced_seq, note, sync_count) = (0, 0, 0, 0);
        let (has_programs, has_records, mark) = (true, true, None);
        Order { has_programs, has_records, last_seq, synced_seq, note, mark, sync_count }
    }

    /// Takes over a mark that the image has.
    pub(super) fn found(&mut self, mark: Mark) {
        let newest = self.mark.get_or_insert(mark);
        newest.seq = newest.seq.max(mark.seq);
        newest.note = newest.note.max(mark.note);
    }
}

impl Cells {
    /// Called before any part of a program is written.
    pub(super) fn before_program(&mut self, ppa: Ppa, seq: u64) -> Result<()> {
        if self.order.last_seq.checked_add(1) != Some(seq) {
            self.fence(seq.saturating_sub(1))?;
        }
        let recorded_at = self.block(ppa.block).recorded_at;
        if ppa.page == 0 && recorded_at == self.order.sync_count {
            self.flush()?;
        }
        self.order.has_programs = true;
        Ok(())
    }

    /// Called once a program is written.
    pub(super) fn after_program(&mut self, seq: u64) {
        self.order.last_seq = self.order.last_seq.max(seq);
    }

    /// Called before the record of a block changes, after the programs up to a number. Returns the
    /// mark for the record.
    pub(super) fn before_record(&mut self, seq: u64) -> Result<Mark> {
        if self.order.has_programs && seq > self.order.synced_seq {
            self.flush()?;
        }
        self.order.has_records = true;
        Ok(self.next_mark())
    }

    /// Makes everything survive a power loss of the machine that runs the emulator.
    pub(super) fn sync(&mut self) -> Result<()> {
        if self.order.has_programs || self.order.has_records {
            self.flush()?;
        }
        if self.order.mark == Some(self.next_mark()) { Ok(()) } else { self.write_mark() }
    }

    /// Makes sure that everything up to a number is synced and that the mark says so, whatever
    /// happens to the rest.
    pub(super) fn fence(&mut self, seq: u64) -> Result<()> {
        self.order.last_seq = self.order.last_seq.max(seq);
        self.flush()?;
        self.write_mark()?;
        self.flush()
    }

    fn next_mark(&self) -> Mark {
        Mark { seq: self.order.synced_seq, note: self.order.note }
    }

    fn write_mark(&mut self) -> Result<()> {
        let mark = self.next_mark();
        self.image.write_at(self.mark_offset(), &mark.encode(&self.geometry, 0))?;
        self.order.mark = Some(mark);
        Ok(())
    }

    /// Syncs everything written, without writing a mark.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.image.sync()?;
        (self.order.has_programs, self.order.has_records) = (false, false);
        self.order.synced_seq = self.order.last_seq;
        self.order.sync_count += 1;
        Ok(())
    }
}
