//! The only error type of this crate. Bytes of an image never cause a panic; they lead to an error
//! that names the place.

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
    /// The file does not begin like an image.
    #[error("not a NAND image: it does not begin with the magic number")]
    NotAnImage,
    /// The checksum of the image's header does not match.
    #[error("the header of the image is damaged")]
    HeaderDamaged,
    /// Written by a newer release.
    #[error("the image has format {found}; this release reads up to {supported}")]
    NewerFormat {
        /// Format of the image.
        found: u32,
        /// The newest format that this release understands.
        supported: u32,
    },
    /// The requested geometry is not that of the image.
    #[error("the image is {image}, not {asked}")]
    OtherGeometry {
        /// The geometry of the image.
        image: Geometry,
        /// The requested geometry.
        asked: Geometry,
    },
    /// An impossible geometry.
    #[error("no such flash: {0}")]
    BadGeometry(&'static str),
    /// The image ends before its last block.
    #[error("the image is cut short: {found_bytes} of {expected_bytes} bytes")]
    CutShort {
        /// The length of the file.
        found_bytes: u64,
        /// The length that its geometry requires.
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
    /// The device reported that a program failed: the page is lost and the block must be retired.
    #[error("program of {0} failed")]
    ProgramFailed(Ppa),
    /// The device reported that an erase failed: the block must be retired.
    #[error("erase of block {block} failed")]
    EraseFailed {
        /// Which block.
        block: u32,
    },
    /// More bits are wrong than the error correction can repair.
    #[error("{0} cannot be corrected")]
    Uncorrectable(Ppa),
    /// The bytes of a page are not the programmed ones.
    #[error("{0} is damaged: {1}")]
    PageDamaged(Ppa, &'static str),
    /// The page is erased, but was expected to have content.
    #[error("{0} is erased")]
    PageErased(Ppa),
    /// A rule of NAND flash was about to be broken: a bug of the firmware.
    #[error("{0}: {1}")]
    RuleBroken(Ppa, Rule),
    /// An address beyond the end.
    #[error("there is no {0}")]
    NoSuchPage(Ppa),
    /// A host address beyond the end of the device.
    #[error("blocks {first}..{end} are past the end at {limit}")]
    PastTheEnd {
        /// First host block.
        first: u64,
        /// The host block after the last.
        end: u64,
        /// Number of host blocks.
        limit: u64,
    },
    /// A host request that does not consist of whole blocks.
    #[error("a request of {bytes} bytes is not of whole host blocks")]
    BadRequest {
        /// Its length.
        bytes: usize,
    },
    /// Too many blocks are bad, or the device is smaller than its firmware needs.
    #[error("no erased block is left")]
    OutOfBlocks,
    /// The device is full.
    #[error(
        "the device is full: {live_pages} of {limit_pages} pages hold what is needed; delete \
             something"
    )]
    Full {
        /// Pages that tables and their metadata need.
        live_pages: u64,
        /// The largest number that leaves room to work.
        limit_pages: u64,
    },
    /// A key that is too long for the device.
    #[error("a key of {bytes} bytes is too long: this geometry takes 1 to {limit_bytes}")]
    KeySize {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit_bytes: usize,
    },
    /// A value that is too long for the device.
    #[error("a value of {bytes} bytes is too long: this geometry takes up to {limit_bytes}")]
    ValueSize {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit_bytes: usize,
    },
    /// The versions of a key that snapshots hold leave no room for another version: all must fit
    /// one block.
    #[error(
        "with what snapshots hold of its history, a key would take {bytes} bytes of at most \
             {limit_bytes}; release a snapshot"
    )]
    VersionsHeld {
        /// Bytes of all its versions.
        bytes: usize,
        /// The most bytes that fit a block.
        limit_bytes: usize,
    },
    /// The image belongs to a block SSD or to another firmware.
    #[error("the image {place} is not a KVSSD's: {why}")]
    NotAKvSsd {
        /// Path or name of the image.
        place: String,
        /// What the image contains instead.
        why: &'static str,
    },
    /// The changes of one transaction do not fit a page of the journal or of metadata.
    #[error("a transaction does not fit a journal page: keys are too long for this geometry")]
    JournalFull,
    /// An option that the firmware cannot work with.
    #[error("option {name}: {why}")]
    BadOption {
        /// The name of the option.
        name: &'static str,
        /// What is wrong, and which values are possible.
        why: String,
    },
    /// The stored data contradict each other.
    #[error("corrupt {what}: {why}")]
    Corrupt {
        /// The structure.
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
    /// Nothing is programmed after a torn page before the block is erased.
    #[error("nothing is programmed past a torn page")]
    NotPastTorn,
    /// A retired block is neither programmed nor erased.
    #[error("a retired block is left alone")]
    NotRetired,
    /// A page is programmed and read as a whole.
    #[error("a page is programmed and read whole")]
    WholePage,
}
