//! The one error of this crate. Bytes of an image never panic; they end here, with the place.

use std::io;

use crate::geometry::{Geometry, Ppa};

/// Result of an operation on flash.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    /// The image file itself.
    #[error("cannot {what} the image {place}: {source}")]
    Image { what: &'static str, place: String, source: io::Error },
    #[error("the image {place} is in use by another process")]
    InUse { place: String },
    #[error("not a NAND image: it does not begin with the magic number")]
    NotAnImage,
    #[error("the header of the image is damaged")]
    HeaderDamaged,
    #[error("the image has format {found}; this release reads up to {supported}")]
    NewerFormat { found: u32, supported: u32 },
    #[error("the image is {image}, not {asked}")]
    OtherGeometry { image: Geometry, asked: Geometry },
    #[error("no such flash: {0}")]
    BadGeometry(&'static str),
    #[error("the image is cut short: {found_bytes} of {expected_bytes} bytes")]
    CutShort { found_bytes: u64, expected_bytes: u64 },
    /// The emulator's own record, which is no page.
    #[error("the record of block {block} in the image is damaged")]
    BlockRecordDamaged { block: u32 },
    /// By a fault; open the image again.
    #[error("the power is cut")]
    PowerCut,
    /// The page is lost, and the block is to be retired.
    #[error("program of {0} failed")]
    ProgramFailed(Ppa),
    /// The block is to be retired.
    #[error("erase of block {block} failed")]
    EraseFailed { block: u32 },
    #[error("{0} cannot be corrected")]
    Uncorrectable(Ppa),
    /// The bytes are not what was programmed.
    #[error("{0} is damaged: {1}")]
    PageDamaged(Ppa, &'static str),
    #[error("{0} is erased")]
    PageErased(Ppa),
    /// A bug of the firmware.
    #[error("{0}: {1}")]
    RuleBroken(Ppa, Rule),
    #[error("there is no {0}")]
    NoSuchPage(Ppa),
    #[error("blocks {first}..{end} are past the end at {limit}")]
    PastTheEnd { first: u64, end: u64, limit: u64 },
    #[error("a request of {bytes} bytes is not of whole host blocks")]
    BadRequest { bytes: usize },
    /// Too many blocks are bad, or the device is smaller than its firmware needs.
    #[error("no erased block is left")]
    OutOfBlocks,
    /// Of the pages that tables and their metadata need, `limit_pages` leave room to work.
    #[error(
        "the device is full: {live_pages} of {limit_pages} pages hold what is needed; delete \
             something"
    )]
    Full { live_pages: u64, limit_pages: u64 },
    #[error("a key of {bytes} bytes is too long: this geometry takes 1 to {limit_bytes}")]
    KeySize { bytes: usize, limit_bytes: usize },
    #[error("a value of {bytes} bytes is too long: this geometry takes up to {limit_bytes}")]
    ValueSize { bytes: usize, limit_bytes: usize },
    /// All versions of a key that snapshots hold must fit one block, with the new one.
    #[error(
        "with what snapshots hold of its history, a key would take {bytes} bytes of at most \
             {limit_bytes}; release a snapshot"
    )]
    VersionsHeld { bytes: usize, limit_bytes: usize },
    /// It is a block SSD's, or another firmware's.
    #[error("the image {place} is not a KVSSD's: {why}")]
    NotAKvSsd { place: String, why: &'static str },
    #[error("a transaction does not fit a journal page: keys are too long for this geometry")]
    JournalFull,
    #[error("option {name}: {why}")]
    BadOption { name: &'static str, why: String },
    /// What is stored does not fit together.
    #[error("corrupt {what}: {why}")]
    Corrupt { what: &'static str, why: String },
}

/// The rules of NAND flash that an operation can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Rule {
    /// Once between two erases.
    #[error("only an erased page is programmed")]
    ProgramErasedOnly,
    #[error("pages of a block are programmed in order")]
    ProgramInOrder,
    /// Before the block is erased.
    #[error("nothing is programmed past a torn page")]
    NotPastTorn,
    /// It is neither programmed nor erased.
    #[error("a retired block is left alone")]
    NotRetired,
    #[error("a page is programmed and read whole")]
    WholePage,
}
