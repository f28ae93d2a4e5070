//! Checksums of blocks and records.

use xxhash_rust::{xxh3::xxh3_64, xxh32::xxh32, xxh64::xxh64};

use crate::error::Fault;

/// The checksum type of a table's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    None,
    Crc32c,
    XxHash,
    XxHash64,
    Xxh3,
}

impl Checksum {
    /// The type with this number in a footer.
    pub fn of(number: u8) -> Result<Checksum, Fault> {
        Ok(match number {
            0 => Checksum::None,
            1 => Checksum::Crc32c,
            2 => Checksum::XxHash,
            3 => Checksum::XxHash64,
            4 => Checksum::Xxh3,
            _ => return Err(Fault::damaged(format!("no checksum has the number {number}"))),
        })
    }

    /// The checksum of a block and the following byte, which names its compression.
    pub fn compute(self, bytes: &[u8]) -> u32 {
        match (self, bytes.split_last()) {
            (Checksum::None, _) => 0,
            (Checksum::Crc32c, _) => masked(crc32c::crc32c(bytes)),
            (Checksum::XxHash, _) => xxh32(bytes, 0),
            (Checksum::XxHash64, _) => xxh64(bytes, 0) as u32,
            (Checksum::Xxh3, None) => 0,
            // The last byte is not an input of the hash: it is mixed in by a multiplication.
            (Checksum::Xxh3, Some((last, rest))) => {
                xxh3_64(rest) as u32 ^ u32::from(*last).wrapping_mul(0x6b90_83d9)
            }
        }
    }
}

/// A CRC as it is stored: rotated, plus a constant, because the CRC of bytes that contain their own
/// CRC is a weak check.
pub fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The number that is added to the checksum of a block at this offset, from format version 6 on.
/// With it, a block from another offset or another file does not match. Base 0 adds nothing.
pub fn context(base: u32, offset: u64) -> u32 {
    match base {
        0 => 0,
        _ => base ^ (offset as u32).wrapping_add((offset >> 32) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(Checksum::Crc32c.compute(b"123456789"), masked(0xe306_9283));
        assert_eq!(Checksum::XxHash.compute(b""), 0x02cc_5d05);
        assert_eq!(Checksum::XxHash64.compute(b""), 0x51d8_e999);
        assert_eq!((Checksum::Xxh3.compute(b""), Checksum::None.compute(b"a")), (0, 0));
        assert_eq!((context(0, 99), context(5, 1 << 32 | 2)), (0, 5 ^ 3));
        assert!(Checksum::of(5).is_err());
    }
}
