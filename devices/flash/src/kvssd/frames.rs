//! Atomic groups of writes as bytes: what the capacitor saves and log pages hold. Little-endian:
//!
//! ```text
//! frame: length u32 | crc32c of the body u32 | crc32c of bytes 0..8 u32 | body
//! body: first_seq u64 | count u32 | writes
//! write: kind u8 | key length u16 | value length u32 | key | value
//! ```
//!
//! The header has a checksum of its own, which tells a frame that was cut short (and never
//! acknowledged) from one that is damaged.

use super::Write;
use super::record::Kind;
use crate::error::{Error, Result};
use crate::rest::Rest;

const HEADER_BYTES: usize = 12;

/// The writes of one group, the first at `first_seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) first_seq: u64,
    pub(super) writes: Vec<(Kind, Vec<u8>, Vec<u8>)>,
}

impl Frame {
    pub(super) fn last_seq(&self) -> u64 {
        self.first_seq + (self.writes.len() as u64).saturating_sub(1)
    }
}

/// Appends the frame of a group.
pub(super) fn encode(first_seq: u64, writes: &[Write<'_>], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.resize(start + HEADER_BYTES, 0);
    bytes.extend_from_slice(&first_seq.to_le_bytes());
    bytes.extend_from_slice(&(writes.len() as u32).to_le_bytes());
    for write in writes {
        let (kind, key, value) = write.parts();
        bytes.push(kind as u8);
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    let body = &bytes[start + HEADER_BYTES..];
    let (len, crc) = (body.len() as u32, crc32c::crc32c(body));
    let header = &mut bytes[start..start + HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&header[..8]);
    header[8..].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes frames up to the end, or to zeros, or to a frame that was cut short. Also how many
/// bytes the whole ones take. `place` is for the error.
pub(super) fn decode_all(bytes: &[u8], place: &str) -> Result<(Vec<Frame>, usize)> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while rest.len() >= HEADER_BYTES && rest.iter().take(HEADER_BYTES).any(|byte| *byte != 0) {
        let at = bytes.len() - rest.len();
        let corrupt = |what: &str| Error::Corrupt {
            what: "saved memtable",
            why: format!("{what} at byte {at} of {place}; writes from there on are lost"),
        };
        let (header, after) = rest.split_at(HEADER_BYTES);
        let mut words = Rest(header);
        let (len, crc, header_crc) = (words.u32(), words.u32(), words.u32());
        if header_crc != Some(crc32c::crc32c(&header[..8])) {
            return Err(corrupt("a damaged frame"));
        }
        let Some(body) = len.and_then(|len| after.get(..len as usize)) else { break };
        if crc != Some(crc32c::crc32c(body)) {
            return Err(corrupt("a damaged frame"));
        }
        frames.push(decode_body(body).ok_or_else(|| corrupt("a frame of another layout"))?);
        rest = &after[body.len()..];
    }
    Ok((frames, bytes.len() - rest.len()))
}

fn decode_body(body: &[u8]) -> Option<Frame> {
    let mut rest = Rest(body);
    let (first_seq, count) = (rest.u64()?, rest.u32()?);
    let mut writes = Vec::new();
    for _ in 0..count {
        let [kind] = rest.array()?;
        let kind = Kind::from_number(kind)?;
        let (key_len, value_len) = (rest.u16()?, rest.u32()?);
        let key = rest.bytes(usize::from(key_len))?.to_vec();
        writes.push((kind, key, rest.bytes(value_len as usize)?.to_vec()));
    }
    rest.0.is_empty().then_some(Frame { first_seq, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_frames_come_back_and_the_cut_one_does_not() {
        let mut bytes = Vec::new();
        encode(
            5,
            &[Write::Put { key: b"a", value: b"1" }, Write::Delete { key: b"b" }],
            &mut bytes,
        );
        let first = bytes.len();
        encode(7, &[Write::Put { key: b"c", value: b"333" }], &mut bytes);
        let (frames, used) = decode_all(&bytes, "test").unwrap();
        assert_eq!((frames.len(), used, frames[0].last_seq()), (2, bytes.len(), 6));
        assert_eq!(frames[1].writes, [(Kind::Put, b"c".to_vec(), b"333".to_vec())]);
        for cut in first..bytes.len() {
            let (frames, used) = decode_all(&bytes[..cut], "test").unwrap();
            assert_eq!((frames.len(), used), (1, first), "cut at {cut}");
        }
        let padded = [&bytes[..], &[0; 40]].concat();
        assert_eq!(decode_all(&padded, "test").unwrap().1, bytes.len());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode_all(&damaged, "test").is_err(), "byte {at}");
        }
    }
}
