//! The one error of this crate. Bytes of an image never panic; they end here, with the place.

use std::io;

use crate::geometry::{Geometry, Ppa};

/// Result of an operation on flash.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image file itself cannot be read, written or locked.
    #[error("cannot {what} the image {place}: {source}")]
    Image {
        /// What was attempted.
        what: &'static str,
        /// Path or name of the image.
        place: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process has the image open.
    #[error("the image {place} is in use by another process")]
    InUse {
        /// Path of the image.
        place: String,
    },
    /// The file does not begin as an image does.
    #[error("not a NAND image: it does not begin with the magic number")]
    NotAnImage,
    /// The checksum of the image's header does not hold.
    #[error("the header of the image is damaged")]
    HeaderDamaged,
    /// Written by a newer release.
    #[error("the image has format {found}; this release reads up to {supported}")]
    NewerFormat {
        /// Format of the image.
        found: u32,
        /// Newest format that is understood.
        supported: u32,
    },
    /// The geometry asked for is not the image's.
    #[error("the image is {image}, not {asked}")]
    OtherGeometry {
        /// What the image has.
        image: Geometry,
        /// What was asked for.
        asked: Geometry,
    },
    /// A geometry that cannot be.
    #[error("no such flash: {0}")]
    BadGeometry(&'static str),
    /// The image ends before its last block.
    #[error("the image is cut short: {found_bytes} of {expected_bytes} bytes")]
    CutShort {
        /// Length of the file.
        found_bytes: u64,
        /// Length that its geometry asks for.
        expected_bytes: u64,
    },
    /// The emulator's own record of a block is damaged.
    #[error("the record of block {block} in the image is damaged")]
    BlockRecordDamaged {
        /// Which block.
        block: u32,
    },
    /// The power was cut by a fault; open the image again.
    #[error("the power is cut")]
    PowerCut,
    /// The device reported that a program failed: the page is lost and the block is to be retired.
    #[error("program of {0} failed")]
    ProgramFailed(Ppa),
    /// The device reported that an erase failed: the block is to be retired.
    #[error("erase of block {block} failed")]
    EraseFailed {
        /// Which block.
        block: u32,
    },
    /// More bits are wrong than the error correction corrects.
    #[error("{0} cannot be corrected")]
    Uncorrectable(Ppa),
    /// The bytes of a page are not what was programmed.
    #[error("{0} is damaged: {1}")]
    PageDamaged(Ppa, &'static str),
    /// The page was expected to hold something.
    #[error("{0} is erased")]
    PageErased(Ppa),
    /// A rule of NAND flash was about to be broken: a bug of the firmware.
    #[error("{0}: {1}")]
    RuleBroken(Ppa, Rule),
    /// An address past the end.
    #[error("there is no {0}")]
    NoSuchPage(Ppa),
    /// A host address past the end of the device.
    #[error("blocks {first}..{end} are past the end at {limit}")]
    PastTheEnd {
        /// First host block.
        first: u64,
        /// One past the last.
        end: u64,
        /// Number of host blocks.
        limit: u64,
    },
    /// A host request that is not of whole blocks.
    #[error("a request of {bytes} bytes is not of whole host blocks")]
    BadRequest {
        /// Its length.
        bytes: usize,
    },
    /// Too many blocks are bad, or the device is smaller than its firmware needs.
    #[error("no erased block is left")]
    OutOfBlocks,
    /// The device holds as much as it can.
    #[error(
        "the device is full: {live_pages} of {limit_pages} pages hold what is needed; delete \
             something"
    )]
    Full {
        /// Pages that tables and their metadata need.
        live_pages: u64,
        /// Most that leave room to work.
        limit_pages: u64,
    },
    /// A key longer than the device takes.
    #[error("a key of {bytes} bytes is too long: this geometry takes 1 to {limit_bytes}")]
    KeySize {
        /// Its length.
        bytes: usize,
        /// Longest.
        limit_bytes: usize,
    },
    /// A value longer than the device takes.
    #[error("a value of {bytes} bytes is too long: this geometry takes up to {limit_bytes}")]
    ValueSize {
        /// Its length.
        bytes: usize,
        /// Longest.
        limit_bytes: usize,
    },
    /// The versions of a key that snapshots hold leave no room for another: all must fit one block.
    #[error(
        "with what snapshots hold of its history, a key would take {bytes} bytes of at most \
             {limit_bytes}; release a snapshot"
    )]
    VersionsHeld {
        /// Bytes of all its versions.
        bytes: usize,
        /// Most that a block takes.
        limit_bytes: usize,
    },
    /// The image is a block SSD's or another firmware's.
    #[error("the image {place} is not a KVSSD's: {why}")]
    NotAKvSsd {
        /// Path or name of the image.
        place: String,
        /// What it holds instead.
        why: &'static str,
    },
    /// What one transaction changes does not fit a page of the journal or of metadata.
    #[error("a transaction does not fit a journal page: keys are too long for this geometry")]
    JournalFull,
    /// An option that the firmware cannot work with.
    #[error("option {name}: {why}")]
    BadOption {
        /// Name of the value.
        name: &'static str,
        /// What is wrong, and what is possible.
        why: String,
    },
    /// What is stored does not fit together.
    #[error("corrupt {what}: {why}")]
    Corrupt {
        /// Which structure.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// The rules of NAND flash that an operation can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// A page is programmed once between two erases.
    #[error("only an erased page is programmed")]
    ProgramErasedOnly,
    /// Pages of a block are programmed in order.
    #[error("pages of a block are programmed in order")]
    ProgramInOrder,
    /// Nothing is programmed past a torn page before the block is erased.
    #[error("nothing is programmed past a torn page")]
    NotPastTorn,
    /// A retired block is neither programmed nor erased.
    #[error("a retired block is left alone")]
    NotRetired,
    /// A page is programmed and read whole.
    #[error("a page is programmed and read whole")]
    WholePage,
}
