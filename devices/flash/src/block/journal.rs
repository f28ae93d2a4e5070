//! The journal of the directory: a ring of two areas at the front of the device.
//!
//! ```text
//! area: snapshot | transaction | transaction | ...      each begins at a host block:
//!  0 magic u32 | 4 kind u32 | 8 epoch u64 | 16 index u32 | 20 block_count u32
//! 24 payload length u32 | 28 crc32c of the payload u32 | 32 crc32c of bytes 0..32 u32 | payload
//! ```
//!
//! 1. An epoch begins with a snapshot in the area that the last epoch did not use; transactions
//!    follow it. The other area is not touched, so a torn snapshot leaves the last epoch whole.
//! 2. Opening uses the newest epoch with a whole snapshot. The transactions of the epoch are
//!    applied up to the first incomplete one, which was never acknowledged. Then a new epoch
//!    begins.
//!
//! Corruption does not end a journal early: the flash pages have checksums of their own.

use super::records::{Record, corrupt};
use crate::error::Result;
use crate::ftl::{Ftl, HOST_BLOCK_BYTES};

const MAGIC: u32 = 0x4c4e_4a52; // "RJNL"
const HEADER_BYTES: usize = 36;
const BLOCK: usize = HOST_BLOCK_BYTES as usize;
pub(super) const REQUEST_BLOCKS: usize = 16;
const SNAPSHOT: u32 = 1;
const TRANSACTION: u32 = 2;

/// The place of the next transaction.
#[derive(Debug)]
pub(super) struct Journal {
    area_blocks: u64,
    pub(super) epoch: u64,
    /// Number of transactions of this epoch, including the snapshot.
    index: u32,
    /// Next free block of the area in use.
    next: u64,
}

/// A complete snapshot or transaction of the journal.
struct Part {
    epoch: u64,
    block_count: u32,
    payload: Vec<u8>,
}

impl Journal {
    /// Blocks of an area on a device: 1/256 of the device, so the two areas take 1/128.
    pub(super) fn area_blocks(device_blocks: u64) -> u64 {
        (device_blocks / 256).max(32)
    }

    /// The journal of a new device; nothing is written yet.
    pub(super) fn new(device_blocks: u64) -> Journal {
        let area_blocks = Journal::area_blocks(device_blocks);
        Journal { area_blocks, epoch: 0, index: 0, next: area_blocks }
    }

    /// Finds the newest directory: the records of its snapshot and transactions, in order.
    pub(super) fn recover(ftl: &mut Ftl) -> Result<(Journal, Vec<Record>)> {
        let mut journal = Journal::new(ftl.block_count());
        let mut newest: Option<(u64, Part)> = None;
        for area in 0..2 {
            let start = area * journal.area_blocks;
            if let Some(part) = journal.read_part(ftl, start, SNAPSHOT, 0)?
                && newest.as_ref().is_none_or(|(_, other)| other.epoch < part.epoch)
            {
                newest = Some((start, part));
            }
        }
        let (start, snapshot) = newest.ok_or_else(|| corrupt("no whole snapshot is found"))?;
        journal.epoch = snapshot.epoch;
        let mut records = Record::decode_all(&snapshot.payload)?;
        let end = start + journal.area_blocks;
        let mut next = start + u64::from(snapshot.block_count);
        for index in 1.. {
            if next >= end {
                break;
            }
            let Some(part) = journal.read_part(ftl, next, TRANSACTION, index)? else { break };
            if part.epoch != journal.epoch {
                break;
            }
            records.append(&mut Record::decode_all(&part.payload)?);
            next += u64::from(part.block_count);
        }
        Ok((journal, records))
    }

    /// Whether a transaction of this many blocks fits after the last one.
    pub(super) fn has_room(&self, block_count: u64) -> bool {
        let area = self.epoch % 2;
        self.next + block_count <= (area + 1) * self.area_blocks
    }

    /// Begins a new epoch. Returns the blocks written; `None` if the snapshot does not fit. The
    /// snapshot may fill a whole area. Everything committed is in one area, so the directory can
    /// always be opened again.
    pub(super) fn write_snapshot(
        &mut self,
        ftl: &mut Ftl,
        records: &[Record],
    ) -> Result<Option<u64>> {
        let payload = encode(records);
        let block_count = blocks_for(payload.len());
        if block_count > self.area_blocks {
            return Ok(None);
        }
        let epoch = self.epoch + 1;
        let start = epoch % 2 * self.area_blocks;
        write_part(ftl, start, SNAPSHOT, epoch, 0, block_count, &payload)?;
        (self.epoch, self.index, self.next) = (epoch, 1, start + block_count);
        Ok(Some(block_count))
    }

    /// The number of blocks that a transaction of these records takes.
    pub(super) fn transaction_blocks(records: &[Record]) -> u64 {
        blocks_for(encode(records).len())
    }

    /// Appends a transaction of `block_count` blocks, for which there is room.
    pub(super) fn append(
        &mut self,
        ftl: &mut Ftl,
        records: &[Record],
        block_count: u64,
    ) -> Result<()> {
        let payload = encode(records);
        write_part(ftl, self.next, TRANSACTION, self.epoch, self.index, block_count, &payload)?;
        self.index += 1;
        self.next += block_count;
        Ok(())
    }

    /// Reads a snapshot or transaction; `None` if it is not complete.
    fn read_part(&self, ftl: &mut Ftl, at: u64, kind: u32, index: u32) -> Result<Option<Part>> {
        let mut block = vec![0; BLOCK];
        ftl.read(at, &mut block)?;
        let word = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().unwrap_or(&[0; 4]));
        let is_header = word(0) == MAGIC
            && word(4) == kind
            && word(16) == index
            && word(32) == crc32c::crc32c(&block[..32]);
        let (block_count, payload_len) = (word(20), word(24) as usize);
        let area_end = (at / self.area_blocks + 1) * self.area_blocks;
        let fits = blocks_for(payload_len) <= u64::from(block_count)
            && at + u64::from(block_count) <= area_end;
        if !is_header || !fits {
            return Ok(None);
        }
        let mut bytes = vec![0; blocks_for(payload_len) as usize * BLOCK];
        ftl.read(at, &mut bytes)?;
        let payload = bytes[HEADER_BYTES..HEADER_BYTES + payload_len].to_vec();
        let is_whole = crc32c::crc32c(&payload) == word(28);
        let epoch = u64::from(word(8)) | u64::from(word(12)) << 32;
        Ok(is_whole.then_some(Part { epoch, block_count, payload }))
    }
}

fn encode(records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::new();
    records.iter().for_each(|record| record.encode(&mut payload));
    payload
}

fn blocks_for(payload_len: usize) -> u64 {
    (HEADER_BYTES + payload_len).div_ceil(BLOCK) as u64
}

fn write_part(
    ftl: &mut Ftl,
    at: u64,
    kind: u32,
    epoch: u64,
    index: u32,
    block_count: u64,
    payload: &[u8],
) -> Result<()> {
    let mut bytes = Vec::with_capacity(block_count as usize * BLOCK);
    for word in [MAGIC, kind, epoch as u32, (epoch >> 32) as u32, index, block_count as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(block_count as usize * BLOCK, 0);
    for (piece, data) in (0..).zip(bytes.chunks(REQUEST_BLOCKS * BLOCK)) {
        ftl.write(at + piece * REQUEST_BLOCKS as u64, data)?;
    }
    Ok(())
}
