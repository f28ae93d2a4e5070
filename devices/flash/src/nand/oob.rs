//! The spare bytes of a page: their fields and their checksums. Little-endian:
//!
//! ```text
//!  0 magic u32 | 4 type u8 | 5 level u8 | 6 front_bytes u16 | 8 program_seq u64 | 16 txn u64
//! 24 owner u64 | 32 index u32 | 36 erase_count u64 | 44 crc32c of the data's front u32
//! 48 crc32c of bytes 0..48 and of the page's address u32 | the rest is 0xFF
//! ```
//!
//! `front_bytes` is the number of data bytes that the checksum covers; 0 means all. The front
//! contains the checksums of the data after it.
//!
//! The address in the checksum detects a page that the image returns in place of another.

use super::shared::SharedBytes;
use crate::geometry::{Geometry, Ppa};
use crate::rest::{u32_at, u64_at};

const MAGIC: u32 = 0x424f_4f52; // "ROOB"
const CHECKED_BYTES: usize = 48;
/// Spare bytes that are used; the smallest spare area of a geometry is larger.
pub(super) const ENCODED_BYTES: usize = 52;

/// The type of a page. A block contains pages of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageType {
    /// Records of keys and values.
    Kv,
    /// Metadata of a table.
    Meta,
    /// Commits.
    Journal,
    /// Checkpoints of the firmware's tables.
    Checkpoint,
    /// Write-ahead log.
    Log,
    /// Host blocks of an ordinary block SSD.
    Host,
    /// Separated values.
    Value,
}

impl PageType {
    /// Every type, in the order of the counters and of the numbers on flash (from 1).
    pub const ALL: [PageType; 7] = [
        PageType::Kv,
        PageType::Meta,
        PageType::Journal,
        PageType::Checkpoint,
        PageType::Log,
        PageType::Host,
        PageType::Value,
    ];

    /// Short name for reports.
    pub fn name(self) -> &'static str {
        match self {
            PageType::Kv => "kv",
            PageType::Meta => "meta",
            PageType::Journal => "journal",
            PageType::Checkpoint => "checkpoint",
            PageType::Log => "log",
            PageType::Host => "host",
            PageType::Value => "value",
        }
    }

    /// Whether boot reads the spare bytes of all pages of a block of this type, because nothing
    /// else says where these pages are.
    pub(crate) fn is_own(self) -> bool {
        !matches!(self, PageType::Kv | PageType::Meta | PageType::Value)
    }

    fn from_number(number: u8) -> Option<PageType> {
        PageType::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// The firmware's tag of a page, which it gives when it programs the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTag {
    /// The type of the page.
    pub page_type: PageType,
    /// Level of the table; 0 if there is none.
    pub level: u8,
    /// Position in the history of programs: larger is newer.
    pub program_seq: u64,
    /// Transaction that wrote the page; 0 if there is none.
    pub txn: u64,
    /// Table of the page, or the logical page of a block SSD.
    pub owner: u64,
    /// Position of the page in its owner.
    pub index: u32,
}

/// The decoded spare bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oob {
    /// The tag from the firmware.
    pub tag: PageTag,
    /// Erases of the block when the page was programmed.
    pub erase_count: u64,
    /// How many bytes of the data the checksum covers; 0 is all of them.
    pub front_bytes: u16,
    /// Checksum of these bytes of the data.
    pub data_crc: u32,
}

/// What the spare bytes of a page show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// Nothing was programmed since the last erase.
    Erased,
    /// Intact.
    Valid(Oob),
    /// Torn, failed or corrupted.
    Damaged,
}

impl Oob {
    /// Whether the data that the checksum covers are the programmed ones.
    pub(super) fn covers(&self, data: &SharedBytes) -> bool {
        if self.front_bytes == 0 || !data.is_flat() {
            let covered = if data.is_flat() { 0 } else { data.front().len() };
            return covered == usize::from(self.front_bytes) && data.checksum() == self.data_crc;
        }
        let front = data.front().get(..usize::from(self.front_bytes));
        front.is_some_and(|front| crc32c::crc32c(front) == self.data_crc)
    }

    pub(super) fn encode(&self, geometry: &Geometry, ppa: Ppa, spare: &mut [u8]) {
        spare.fill(0xff);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            spare[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&[self.tag.page_type as u8 + 1, self.tag.level]);
        put(&self.front_bytes.to_le_bytes());
        put(&self.tag.program_seq.to_le_bytes());
        put(&self.tag.txn.to_le_bytes());
        put(&self.tag.owner.to_le_bytes());
        put(&self.tag.index.to_le_bytes());
        put(&self.erase_count.to_le_bytes());
        put(&self.data_crc.to_le_bytes());
        let crc = checksum(geometry, ppa, &spare[..CHECKED_BYTES]);
        spare[CHECKED_BYTES..ENCODED_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None` for anything except what `encode` made for this page.
    pub(super) fn decode(geometry: &Geometry, ppa: Ppa, spare: &[u8]) -> Option<Oob> {
        let checked = spare.get(..CHECKED_BYTES)?;
        let stored = u32_at(spare, CHECKED_BYTES)?;
        let unused = spare.get(ENCODED_BYTES..)?;
        let is_intact = stored == checksum(geometry, ppa, checked)
            && u32_at(spare, 0)? == MAGIC
            && unused.iter().all(|&byte| byte == 0xff);
        if !is_intact {
            return None;
        }
        let tag = PageTag {
            page_type: PageType::from_number(*spare.get(4)?)?,
            level: *spare.get(5)?,
            program_seq: u64_at(spare, 8)?,
            txn: u64_at(spare, 16)?,
            owner: u64_at(spare, 24)?,
            index: u32_at(spare, 32)?,
        };
        Some(Oob {
            tag,
            erase_count: u64_at(spare, 36)?,
            front_bytes: u16::from_le_bytes(*spare.get(6..)?.first_chunk()?),
            data_crc: u32_at(spare, 44)?,
        })
    }
}

/// The checksum over bytes and the address of their page.
pub(super) fn checksum(geometry: &Geometry, ppa: Ppa, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(bytes), &geometry.flat(ppa).to_le_bytes())
}
