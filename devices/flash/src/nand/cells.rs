//! The cells as bytes of an image, and what the emulator notes about them. Rules and faults are
//! elsewhere.
//!
//! ```text
//! header 4 KiB | block 0 | block 1 | ...
//! block: record 4 KiB | spare area, to a multiple of 4 KiB | data of all pages
//! record: magic u32 | flags u32 | erase_count u64 | block u32 | crc32c u32 | mark
//!         512 in block 0: mark; zeros where nothing was written
//! mark: see `order.rs`
//! spare area: per page the spare bytes and a stamp
//! stamp: generation u64 | state u8 | check u24 | crc32c u32
//! ```
//!
//! A page counts as programmed if its stamp carries the block's generation, which is one more than
//! its erase count. So an erase writes one record, not four megabytes, and a fresh image is a
//! sparse file. Data are written first and the stamp last, so a program that the end of the process
//! cuts short leaves the page erased. The order in which bytes reach the disk is in `order.rs`.

use super::header::HEADER_BYTES;
use super::image::Image;
use super::oob::checksum;
use super::order::{MARK_BYTES, Mark, Order};
use super::shared::SharedBytes;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Ppa};
use crate::rest::{u32_at, u64_at};

const RECORD_MAGIC: u32 = 0x4b4c_4252; // "RBLK"
const RECORD_BYTES: usize = 24;
const RECORD_AREA_BYTES: u64 = 4096;
/// The place of the mark of the last sync, in the record area of block 0. It has a sector of its
/// own.
const MARK_AT: u64 = 512;
const STAMP_BYTES: usize = 16;
const IS_RETIRED: u32 = 1;
const IS_HALF_ERASED: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Programmed = 1,
    /// A torn program, after which the page still looks erased.
    Disturbed = 2,
}

/// The emulator's record of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockState {
    pub(super) erase_count: u64,
    pub(super) is_retired: bool,
    pub(super) is_half_erased: bool,
    /// Pages below this one are programmed, correctly or not. The others read as erased.
    pub(super) programmed_pages: u32,
    /// Whether the first page after the programmed ones is disturbed.
    pub(super) is_disturbed: bool,
    /// The number of syncs before the record was written.
    pub(super) recorded_at: u64,
}

impl BlockState {
    fn encode(&self, block: u32) -> [u8; RECORD_BYTES] {
        let flags = if self.is_retired { IS_RETIRED } else { 0 }
            | if self.is_half_erased { IS_HALF_ERASED } else { 0 };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.erase_count.to_le_bytes());
        bytes[16..20].copy_from_slice(&block.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if the record is damaged.
    fn decode(block: u32, bytes: &[u8]) -> Option<BlockState> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Some(BlockState::default());
        }
        let flags = u32_at(bytes, 4)?;
        let is_intact = u32_at(bytes, 0)? == RECORD_MAGIC
            && flags & !(IS_RETIRED | IS_HALF_ERASED) == 0
            && u32_at(bytes, 16)? == block
            && u32_at(bytes, 20)? == crc32c::crc32c(bytes.get(..20)?);
        is_intact.then_some(BlockState {
            erase_count: u64_at(bytes, 8)?,
            is_retired: flags & IS_RETIRED != 0,
            is_half_erased: flags & IS_HALF_ERASED != 0,
            ..BlockState::default()
        })
    }
}

pub(super) struct Cells {
    pub(super) image: Box<dyn Image>,
    pub(super) geometry: Geometry,
    pub(super) blocks: Vec<BlockState>,
    pub(super) order: Order,
    /// A buffer for the spare bytes and the stamp of one page.
    slot: Vec<u8>,
}

impl Cells {
    /// Creates the image; all blocks are erased. It is extended to its length, and synced.
    pub(super) fn create(image: Box<dyn Image>, geometry: Geometry) -> Result<Cells> {
        image.set_len(image_bytes(&geometry))?;
        let mut cells = Cells::over(image, geometry);
        cells.fence(0)?;
        Ok(cells)
    }

    /// Reads every block's record and stamps.
    pub(super) fn open(image: Box<dyn Image>, geometry: Geometry) -> Result<Cells> {
        let (found_bytes, expected_bytes) = (image.len_bytes()?, image_bytes(&geometry));
        if found_bytes < expected_bytes {
            return Err(Error::CutShort { found_bytes, expected_bytes });
        }
        let mut cells = Cells::over(image, geometry);
        let mut spares = Vec::new();
        for block in 0..geometry.block_count {
            let mut record = [0; RECORD_BYTES + MARK_BYTES];
            cells.image.read_at(cells.block_offset(block), &mut record)?;
            let (record, mark) = record.split_at(RECORD_BYTES);
            let state = BlockState::decode(block, record);
            cells.blocks[block as usize] = state.ok_or(Error::BlockRecordDamaged { block })?;
            cells.find_mark(block, mark)?;
            cells.read_spares(block, &mut spares)?;
            cells.find_programmed(block, &spares);
        }
        let mut mark = [0; MARK_BYTES];
        cells.image.read_at(cells.mark_offset(), &mut mark)?;
        cells.find_mark(0, &mark)?;
        Ok(cells)
    }

    fn find_mark(&mut self, block: u32, bytes: &[u8]) -> Result<()> {
        let mark = Mark::decode(&self.geometry, block, bytes);
        if let Some(mark) = mark.ok_or(Error::BlockRecordDamaged { block })? {
            self.order.found(mark);
        }
        Ok(())
    }

    fn over(image: Box<dyn Image>, geometry: Geometry) -> Cells {
        let blocks = vec![BlockState::default(); geometry.block_count as usize];
        let slot = vec![0; geometry.spare_bytes as usize + STAMP_BYTES];
        Cells { image, geometry, blocks, slot, order: Order::new() }
    }

    pub(super) fn block(&self, block: u32) -> &BlockState {
        &self.blocks[block as usize]
    }

    pub(super) fn place(&self) -> String {
        self.image.place()
    }

    pub(super) fn write_data(&self, ppa: Ppa, data: &SharedBytes) -> Result<()> {
        self.image.write_shared(self.data_offset(ppa), data)
    }

    /// Writes spare bytes and stamp: from then on the stamp decides what the page is. `check` is
    /// the check of the data, see `settle.rs`.
    pub(super) fn write_spare(
        &mut self,
        ppa: Ppa,
        spare: &[u8],
        stamp: Stamp,
        check: u32,
    ) -> Result<()> {
        let state = self.block(ppa.block);
        let generation = state.erase_count + 1;
        let spare_bytes = self.geometry.spare_bytes as usize;
        self.slot[..spare_bytes].copy_from_slice(spare);
        let place = &mut self.slot[spare_bytes..];
        place[..8].copy_from_slice(&generation.to_le_bytes());
        place[8..12].copy_from_slice(&(stamp as u32 | check << 8).to_le_bytes());
        let crc = checksum(&self.geometry, ppa, &place[..12]);
        place[12..].copy_from_slice(&crc.to_le_bytes());
        self.image.write_at(self.spare_offset(ppa), &self.slot)?;
        let state = &mut self.blocks[ppa.block as usize];
        match stamp {
            Stamp::Programmed => state.programmed_pages = ppa.page + 1,
            Stamp::Disturbed => state.is_disturbed = true,
        }
        Ok(())
    }

    pub(super) fn read_data(&self, ppa: Ppa, data: &mut [u8]) -> Result<()> {
        self.image.read_at(self.data_offset(ppa), data)
    }

    pub(super) fn read_data_shared(&self, ppa: Ppa) -> Result<SharedBytes> {
        self.image.read_shared(self.data_offset(ppa), self.geometry.page_bytes as usize)
    }

    pub(super) fn read_spare(&self, ppa: Ppa, spare: &mut [u8]) -> Result<()> {
        self.image.read_at(self.spare_offset(ppa), spare)
    }

    /// The spare bytes and stamps of a whole block, `slot_bytes` apart.
    pub(super) fn read_spares(&self, block: u32, spares: &mut Vec<u8>) -> Result<()> {
        spares.resize(self.slot_bytes() * self.geometry.block_pages as usize, 0);
        self.image.read_at(self.spare_offset(Ppa { block, page: 0 }), spares)
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.geometry.spare_bytes as usize + STAMP_BYTES
    }

    /// Changes the record of a block, on the image first. The pages that this removes were no
    /// longer needed after the program with the number `seq`.
    pub(super) fn set_block(&mut self, block: u32, state: BlockState, seq: u64) -> Result<()> {
        let mark = self.before_record(seq)?;
        let mut record = [0; RECORD_BYTES + MARK_BYTES];
        record[..RECORD_BYTES].copy_from_slice(&state.encode(block));
        record[RECORD_BYTES..].copy_from_slice(&mark.encode(&self.geometry, block));
        self.image.write_at(self.block_offset(block), &record)?;
        self.blocks[block as usize] = BlockState { recorded_at: self.order.sync_count, ..state };
        Ok(())
    }

    /// Makes a page look erased although it is not, and makes the pages after it erased.
    pub(super) fn take_back(&mut self, first: Ppa) -> Result<()> {
        let behind = Ppa { page: first.page + 1, ..first };
        let count = self.block(first.block).programmed_pages.saturating_sub(behind.page);
        let zeros = vec![0; self.slot_bytes() * count as usize];
        self.image.write_at(self.spare_offset(behind), &zeros)?;
        let erased = vec![0xff; self.geometry.spare_bytes as usize];
        self.write_spare(first, &erased, Stamp::Disturbed, 0)?;
        let mut spares = Vec::new();
        self.read_spares(first.block, &mut spares)?;
        self.blocks[first.block as usize].programmed_pages = 0;
        self.find_programmed(first.block, &spares);
        Ok(())
    }

    /// A stamp that is neither zero, nor stale, nor intact was hit by corruption: its page counts
    /// as programmed, and the checksums of the page judge it.
    fn find_programmed(&mut self, block: u32, spares: &[u8]) {
        let state = &mut self.blocks[block as usize];
        let generation = state.erase_count + 1;
        let spare_bytes = self.geometry.spare_bytes as usize;
        for (page, slot) in (0..).zip(spares.chunks_exact(spare_bytes + STAMP_BYTES)) {
            let stamp = &slot[spare_bytes..];
            if stamp.iter().all(|&byte| byte == 0) {
                continue;
            }
            let crc = checksum(&self.geometry, Ppa { block, page }, &stamp[..12]);
            let is_intact = u32_at(stamp, 12) == Some(crc);
            let is_current = u64_at(stamp, 0) == Some(generation);
            let is_disturbed = u32_at(stamp, 8) == Some(Stamp::Disturbed as u32);
            match (is_intact, is_current, is_disturbed) {
                (true, false, _) => {}
                (true, true, true) => state.is_disturbed = true,
                _ => state.programmed_pages = page + 1,
            }
        }
    }

    fn block_offset(&self, block: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(block) * block_stride(&self.geometry)
    }

    pub(super) fn mark_offset(&self) -> u64 {
        self.block_offset(0) + MARK_AT
    }

    fn spare_offset(&self, ppa: Ppa) -> u64 {
        let slots = u64::from(ppa.page) * self.slot_bytes() as u64;
        self.block_offset(ppa.block) + RECORD_AREA_BYTES + slots
    }

    fn data_offset(&self, ppa: Ppa) -> u64 {
        let data = u64::from(ppa.page) * u64::from(self.geometry.page_bytes);
        let spares = spare_area_bytes(&self.geometry);
        self.block_offset(ppa.block) + RECORD_AREA_BYTES + spares + data
    }
}

fn spare_area_bytes(geometry: &Geometry) -> u64 {
    let slot_bytes = u64::from(geometry.spare_bytes) + STAMP_BYTES as u64;
    (slot_bytes * u64::from(geometry.block_pages)).next_multiple_of(4096)
}

fn block_stride(geometry: &Geometry) -> u64 {
    RECORD_AREA_BYTES + spare_area_bytes(geometry) + geometry.block_bytes()
}

/// Length of the image of a device.
pub(super) fn image_bytes(geometry: &Geometry) -> u64 {
    HEADER_BYTES as u64 + u64::from(geometry.block_count) * block_stride(geometry)
}
