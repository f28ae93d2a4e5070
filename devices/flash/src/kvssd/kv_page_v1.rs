//! Pages of keys and values as devices of checkpoint formats 1 and 2 have them: read, never
//! written. Little-endian:
//!
//! ```text
//! 0 magic u32 | 4 page_count u32 | 8 record_count u32 | 12 used_bytes u32
//! 16 slots: record_count x u32, offset of each record from the start
//! record: seq u64 | kind u8 | zero u8 | key length u16 | value length u32 | key | value
//! ```
//!
//! The checksums in the spare bytes cover all of such a page.

use super::record::{Kind, Version};
use crate::rest::Rest;

const MAGIC: u32 = 0x564b_5352; // "RSKV"
const HEADER_BYTES: usize = 16;
const SLOT_BYTES: usize = 4;

/// Whether these are the bytes of such a page.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    Rest(bytes).u32() == Some(MAGIC)
}

/// Its records as they stand there, in order; whether they are sorted is not checked.
pub(super) fn decode(bytes: &[u8], page_bytes: usize) -> Option<Vec<(&[u8], Version)>> {
    let mut header = Rest(bytes);
    let (_, page_count, record_count) = (header.u32()?, header.u32()?, header.u32()?);
    let used = bytes.get(..header.u32()? as usize)?;
    if (page_count as usize).checked_mul(page_bytes)? != bytes.len() {
        return None;
    }
    let slots_bytes = (record_count as usize).checked_mul(SLOT_BYTES)?;
    let mut rest = Rest(used.get(HEADER_BYTES + slots_bytes..)?);
    let mut records = Vec::new();
    for _ in 0..record_count {
        let (seq, kind, key_len) = (rest.u64()?, rest.u16()?, rest.u16()?);
        let kind = match kind {
            1 => Kind::Put,
            2 => Kind::Delete,
            _ => return None,
        };
        let value_len = rest.u32()?;
        let key = rest.bytes(usize::from(key_len))?;
        records.push((key, Version::new(seq, kind, rest.bytes(value_len as usize)?)));
    }
    rest.0.is_empty().then_some(records)
}

#[cfg(test)]
pub(super) fn encode(records: &[(&[u8], Version)], page_bytes: usize) -> Vec<u8> {
    let (mut slots, mut bodies) = (Vec::new(), Vec::new());
    let slots_end = HEADER_BYTES + SLOT_BYTES * records.len();
    for (key, version) in records {
        slots.extend_from_slice(&((slots_end + bodies.len()) as u32).to_le_bytes());
        bodies.extend_from_slice(&version.seq.to_le_bytes());
        bodies.extend_from_slice(&[version.kind as u8, 0]);
        bodies.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bodies.extend_from_slice(&(version.value.len() as u32).to_le_bytes());
        bodies.extend_from_slice(key);
        bodies.extend_from_slice(&version.value);
    }
    let used_bytes = slots_end + bodies.len();
    let page_count = used_bytes.div_ceil(page_bytes);
    let words = [MAGIC, page_count as u32, records.len() as u32, used_bytes as u32];
    let mut bytes = words.map(u32::to_le_bytes).concat();
    bytes.extend([slots, bodies].concat());
    bytes.resize(page_count * page_bytes, 0);
    bytes
}
