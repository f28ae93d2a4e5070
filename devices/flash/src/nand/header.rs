//! The first 4 KiB of an image. Little-endian:
//!
//! ```text
//!  0 magic "RUNSNAND" | 8 format u32 | 12 page_bytes u32 | 16 spare_bytes u32 | 20 block_pages u32
//! 24 block_count u32 | 28 channel_count u32 | 32 die_count u32 | zeros | 4092 crc32c of the rest
//! ```
//!
//! Every format keeps magic, format and checksum where they are, so that a newer format can be
//! distinguished from a damaged header.

use super::image::Image;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::rest::u32_at;

/// Newest format that is understood.
pub(super) const FORMAT: u32 = 1;
/// Where the blocks begin.
pub(super) const HEADER_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"RUNSNAND";
const CRC_AT: usize = HEADER_BYTES - 4;

pub(super) fn write(image: &dyn Image, geometry: &Geometry) -> Result<()> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    let fields = [
        FORMAT,
        geometry.page_bytes,
        geometry.spare_bytes,
        geometry.block_pages,
        geometry.block_count,
        geometry.channel_count,
        geometry.die_count,
    ];
    for (field, place) in fields.iter().zip(bytes[8..].chunks_exact_mut(4)) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    image.write_at(0, &bytes)
}

/// Reads and checks the header: magic, checksum, format, geometry.
pub(super) fn read(image: &dyn Image) -> Result<Geometry> {
    let found_bytes = image.len_bytes()?;
    if found_bytes < HEADER_BYTES as u64 {
        return Err(Error::CutShort { found_bytes, expected_bytes: HEADER_BYTES as u64 });
    }
    let mut bytes = vec![0; HEADER_BYTES];
    image.read_at(0, &mut bytes)?;
    if !bytes.starts_with(MAGIC) {
        return Err(Error::NotAnImage);
    }
    let field = |at| u32_at(&bytes, at).ok_or(Error::HeaderDamaged);
    if field(CRC_AT)? != crc32c::crc32c(&bytes[..CRC_AT]) {
        return Err(Error::HeaderDamaged);
    }
    let found = field(8)?;
    if found != FORMAT {
        return Err(Error::NewerFormat { found, supported: FORMAT });
    }
    let geometry = Geometry {
        page_bytes: field(12)?,
        spare_bytes: field(16)?,
        block_pages: field(20)?,
        block_count: field(24)?,
        channel_count: field(28)?,
        die_count: field(32)?,
    };
    geometry.check().map_err(Error::BadGeometry)?;
    Ok(geometry)
}
