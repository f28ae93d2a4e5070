//! Repairs an image after a power loss of the machine that runs the emulator, before the firmware
//! sees it. Then the device looks as it does after a power cut of its own.
//!
//! 1. The programs after the mark (`order.rs`) are examined in their order, up to the first missing
//!    one. A program that is incomplete was torn, and is the last one.
//! 2. All later programs are undone, even complete ones: the first such page of each block becomes
//!    a page that looks erased but is not, and the other pages become erased. No firmware continues
//!    to program a block that it did not open itself, so those blocks are erased before they are
//!    used.
//! 3. Erases need no repair: whether an unsynced erase is on the disk or not, everything that was
//!    needed of its block is elsewhere, at or before the mark.
//!
//! The disk may contain the spare bytes of an unsynced program together with the earlier data of
//! the page. A CRC does not show this: two pages that differ only in a header, which ends with a
//! CRC of its own, have the same CRC. So the stamp has a check of another kind.
//!
//! The mark is synced before the firmware may reuse the numbers of undone programs. Damage of a
//! page at or before the mark is corruption, and is left for its reader to find.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use super::oob::{Oob, Spare};
use super::shared::SharedBytes;
use super::{Nand, Ppa};
use crate::error::Result;
use crate::rest::u32_at;

impl Nand {
    /// See the module docs. `is_whole` judges the bytes of a page if the checksum in the spare
    /// bytes covers only its front.
    pub(super) fn settle(&mut self, is_whole: &dyn Fn(&SharedBytes) -> bool) -> Result<()> {
        let mark = self.cells.order.mark;
        let marked_seq = mark.map_or(0, |mark| mark.seq);
        self.cells.order.note = mark.map_or(0, |mark| mark.note);
        let mut newer = self.programs_after(marked_seq)?;
        let mut last_seq = marked_seq;
        let mut is_torn = false;
        for (&seq, (ppa, oob, check)) in newer.iter().filter(|_| mark.is_some()) {
            if is_torn || last_seq.checked_add(1) != Some(seq) {
                break;
            }
            is_torn = !self.is_page_whole(*ppa, oob, *check, is_whole)?;
            last_seq = seq;
        }
        if mark.is_none() {
            // Nothing was ever synced, or it is unknown whether anything was. So every program
            // found counts.
            last_seq = newer.last_key_value().map_or(0, |(seq, _)| *seq);
        }
        let gone = last_seq.checked_add(1).map(|first| newer.split_off(&first));
        let gone = gone.unwrap_or_default();
        let mut firsts: BTreeMap<u32, u32> = BTreeMap::new();
        for (ppa, ..) in gone.values() {
            let first = firsts.entry(ppa.block).or_insert(ppa.page);
            *first = (*first).min(ppa.page);
        }
        for (&block, &page) in &firsts {
            self.cells.take_back(Ppa { block, page })?;
        }
        self.cells.order.last_seq = last_seq;
        if mark.is_none() || is_torn || !firsts.is_empty() {
            self.cells.fence(last_seq)?;
        }
        Ok(())
    }

    /// Intact spare bytes with a larger program number than the mark, by that number.
    fn programs_after(&self, marked_seq: u64) -> Result<BTreeMap<u64, (Ppa, Oob, u32)>> {
        let (mut found, mut spares) = (BTreeMap::new(), Vec::new());
        for block in 0..self.geometry.block_count {
            if self.looks_erased(block) {
                continue;
            }
            self.cells.read_spares(block, &mut spares)?;
            for (page, slot) in (0..).zip(spares.chunks_exact(self.cells.slot_bytes())) {
                let ppa = Ppa { block, page };
                let (spare, stamp) = slot.split_at(self.geometry.spare_bytes as usize);
                if let Spare::Valid(oob) = self.judge(ppa, spare)
                    && oob.tag.program_seq > marked_seq
                {
                    let check = u32_at(stamp, 8).unwrap_or_default() >> 8;
                    found.insert(oob.tag.program_seq, (ppa, oob, check));
                }
            }
        }
        Ok(found)
    }

    fn is_page_whole(
        &self,
        ppa: Ppa,
        oob: &Oob,
        stamped: u32,
        is_whole: &dyn Fn(&SharedBytes) -> bool,
    ) -> Result<bool> {
        let data = self.cells.read_data_shared(ppa)?;
        let front_bytes = match oob.front_bytes {
            0 => data.len(),
            front_bytes => usize::from(front_bytes),
        };
        let is_front_whole = match data.front().get(..front_bytes) {
            Some(front) => oob.covers(&data) && (stamped == 0 || check(front) == stamped),
            None => false,
        };
        Ok(is_front_whole && (oob.front_bytes == 0 || is_whole(&data)))
    }
}

/// The check of the bytes that the checksum covers: 24 bits, never 0.
pub(super) fn check(front: &[u8]) -> u32 {
    (xxh3_64(front) as u32 >> 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A random test found this. The disk had the new spare bytes of a page of the block SSD's
    /// journal, but the earlier data of the page. Both were snapshots that differ only in their
    /// headers, so the checksum matched, and a removed file came back.
    #[test]
    fn pages_whose_headers_end_with_a_crc_are_told_apart() {
        let page = |epoch: u8| {
            let mut bytes = vec![epoch; 32];
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
            bytes.resize(4096, 7);
            bytes
        };
        let (one, other) = (page(15), page(16));
        assert_eq!(crc32c::crc32c(&one), crc32c::crc32c(&other));
        assert_ne!(check(&one), check(&other));
    }
}
