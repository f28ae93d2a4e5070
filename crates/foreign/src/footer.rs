//! The last bytes of a table, which contain the place of its index and the type of its checksums.
//!
//! ```text
//! LevelDB, RocksDB version 0    metaindex, index (handles, padded to 40)  magic (8)
//! RocksDB versions 1 to 5       checksum (1)  the same 40  version (4)  magic (8)
//! RocksDB version 6             checksum (1)  3e 00 7a 00  checksum of the footer (4)  base (4)
//!                               bytes of the metaindex (4)  zeros (24)  version (4)  magic (8)
//! ```
//!
//! A handle is the offset and the length of a block, as varints. The length excludes the block's
//! trailer of five bytes. From version 6 on, the metaindex is right before the footer and names the
//! index.

use crate::bytes::Input;
use crate::checksum::{Checksum, context};
use crate::error::{Error, Fault, Result};
use crate::file::SourceFile;
use crate::keys::Dialect;

/// After each block: its compression (1) and checksum (4).
pub const TRAILER_BYTES: u64 = 5;

const OLD_BYTES: usize = 48;
const NEW_BYTES: usize = 53;
const EXTENDED_MAGIC: u32 = 0x007a_003e;

const LEVELDB: u64 = 0xdb47_7524_8b80_fb57;
const ROCKSDB: u64 = 0x88e2_41b7_85f4_cff7;
const PLAIN: [u64; 2] = [0x8242_2296_63bf_9564, 0x4f34_18eb_7a8f_13b8];
const CUCKOO: u64 = 0x9267_89d0_c5f1_7873;

/// The offset and the length of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub offset: u64,
    pub bytes: u64,
}

impl Handle {
    pub fn read(input: &mut Input<'_>) -> Option<Handle> {
        Some(Handle { offset: input.varint64()?, bytes: input.varint64()? })
    }
}

/// See the module docs.
#[derive(Clone, Debug)]
pub struct Footer {
    pub metaindex: Handle,
    /// `None` from version 6 on, where the metaindex names it.
    pub index: Option<Handle>,
    pub version: u32,
    pub checksum: Checksum,
    /// From version 6 on: makes checksums depend on the file and the offset.
    pub base: u32,
}

impl Footer {
    pub fn read(file: &SourceFile, dialect: Dialect) -> Result<Footer> {
        let Some(offset) = file.bytes.checked_sub(OLD_BYTES as u64) else {
            return Err(file.damaged(0, "the file is too short for a table"));
        };
        let bytes = file.read(offset, OLD_BYTES as u64)?;
        let magic = u64::from_le_bytes(bytes[40..].try_into().unwrap_or_default());
        match (magic, dialect) {
            (LEVELDB, _) => old(&bytes).map_err(|fault| file.fault(offset, fault)),
            (ROCKSDB, Dialect::RocksDb) => {
                let Some(offset) = file.bytes.checked_sub(NEW_BYTES as u64) else {
                    return Err(file.damaged(0, "the file is too short for a table"));
                };
                let bytes = file.read(offset, NEW_BYTES as u64)?;
                new(&bytes, offset).map_err(|fault| file.fault(offset, fault))
            }
            _ => Err(refused(file, offset, magic)),
        }
    }
}

fn refused(file: &SourceFile, offset: u64, magic: u64) -> Error {
    let hint = "compact it all with block-based tables, then import again";
    let fault = match magic {
        ROCKSDB => {
            let hint = "write rocksdb: before the directory";
            Fault::unsupported("this is a table of RocksDB", hint)
        }
        CUCKOO => Fault::unsupported("it is a cuckoo table, which is not read here", hint),
        _ if PLAIN.contains(&magic) => {
            Fault::unsupported("it is a plain table, which is not read here", hint)
        }
        _ => Fault::damaged(format!("no table ends with {magic:016x}, as this file does")),
    };
    file.fault(offset + 40, fault)
}

fn old(bytes: &[u8]) -> std::result::Result<Footer, Fault> {
    let (metaindex, index) = handles(bytes)?;
    let checksum = Checksum::Crc32c;
    Ok(Footer { metaindex, index: Some(index), version: 0, checksum, base: 0 })
}

fn handles(bytes: &[u8]) -> std::result::Result<(Handle, Handle), Fault> {
    let mut input = Input(&bytes[..40]);
    let handles = (Handle::read(&mut input), Handle::read(&mut input));
    let (Some(metaindex), Some(index)) = handles else {
        return Err(Fault::damaged("the footer holds no handles"));
    };
    Ok((metaindex, index))
}

fn new(bytes: &[u8], offset: u64) -> std::result::Result<Footer, Fault> {
    let checksum = Checksum::of(bytes[0])?;
    let version = Input(&bytes[41..]).fixed32().unwrap_or(0);
    match version {
        ..=5 => {
            let (metaindex, index) = handles(&bytes[1..])?;
            Ok(Footer { metaindex, index: Some(index), version, checksum, base: 0 })
        }
        6 => sixth(bytes, offset, checksum),
        _ => {
            let what = format!("it has format version {version}; versions up to 6 are read here");
            let hint = "set format_version to 6, compact it all, then import again";
            Err(Fault::unsupported(what, hint))
        }
    }
}

fn sixth(bytes: &[u8], offset: u64, checksum: Checksum) -> std::result::Result<Footer, Fault> {
    let mut input = Input(&bytes[1..]);
    let mut next = || input.fixed32().unwrap_or(0);
    let (magic, stored, base, metaindex_bytes) = (next(), next(), next(), next());
    if magic != EXTENDED_MAGIC {
        return Err(Fault::damaged("the footer lacks the mark of version 6"));
    }
    let mut cleared = bytes.to_vec();
    cleared[5..9].fill(0);
    let computed = checksum.compute(&cleared).wrapping_add(context(base, offset));
    if base == 0 || (checksum != Checksum::None && computed != stored) {
        return Err(Fault::damaged("the checksum of the footer does not match"));
    }
    if bytes[33..41] != [0; 8] {
        let hint = "import with a newer release of this program";
        return Err(Fault::unsupported("the footer uses a later feature", hint));
    }
    let bytes = u64::from(metaindex_bytes);
    let Some(begin) = offset.checked_sub(bytes + TRAILER_BYTES) else {
        return Err(Fault::damaged("the metaindex is larger than the file"));
    };
    let metaindex = Handle { offset: begin, bytes };
    Ok(Footer { metaindex, index: None, version: 6, checksum, base })
}
