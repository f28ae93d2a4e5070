//! Atomic groups of writes as bytes, as the capacitor saves them and log pages contain them.
//! Little-endian:
//!
//! ```text
//! frame: length u32 | crc32c of the body u32 | crc32c of bytes 0..8 u32 | body
//! body: first_seq u64 | count u32 | writes
//! write: kind u8 | key length u16 | value length u32 | key | value
//! ```
//!
//! The header has a checksum of its own. It distinguishes a frame that was cut short, and so was
//! never acknowledged, from a damaged one.

use crate::kvssd::format::record::Kind;
use crate::kvssd::pending::Write;
use crate::rest::Rest;

const HEADER_BYTES: usize = 12;

/// The writes of one group, the first at `first_seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) first_seq: u64,
    pub(crate) writes: Vec<(Kind, Vec<u8>, Vec<u8>)>,
}

impl Frame {
    pub(crate) fn last_seq(&self) -> u64 {
        self.first_seq + (self.writes.len() as u64).saturating_sub(1)
    }
}

/// Appends the frame of a group.
pub(crate) fn encode(first_seq: u64, writes: &[Write<'_>], bytes: &mut Vec<u8>) {
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

/// The frames, and the damage that ends them.
pub(crate) struct Decoded {
    /// Each frame, with the offset after it.
    pub(crate) frames: Vec<(Frame, usize)>,
    /// The damage after the last frame, and its place. `None` if that frame was only cut short.
    pub(crate) damage: Option<(&'static str, usize)>,
}

impl Decoded {
    /// How many bytes the frames take.
    pub(crate) fn used_bytes(&self) -> usize {
        self.frames.last().map_or(0, |(_, end)| *end)
    }
}

/// Decodes frames up to the end, to zeros, or to a frame that was cut short or damaged.
pub(crate) fn decode_all(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded { frames: Vec::new(), damage: None };
    let mut rest = bytes;
    while rest.len() >= HEADER_BYTES && rest.iter().take(HEADER_BYTES).any(|byte| *byte != 0) {
        let at = bytes.len() - rest.len();
        let (header, after) = rest.split_at(HEADER_BYTES);
        let mut words = Rest(header);
        let (len, crc, header_crc) = (words.u32(), words.u32(), words.u32());
        if header_crc != Some(crc32c::crc32c(&header[..8])) {
            decoded.damage = Some(("a damaged frame", at));
            break;
        }
        let Some(body) = len.and_then(|len| after.get(..len as usize)) else { break };
        if crc != Some(crc32c::crc32c(body)) {
            decoded.damage = Some(("a damaged frame", at));
            break;
        }
        let Some(frame) = decode_body(body) else {
            decoded.damage = Some(("a frame of another layout", at));
            break;
        };
        rest = &after[body.len()..];
        decoded.frames.push((frame, bytes.len() - rest.len()));
    }
    decoded
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
        let whole = decode_all(&bytes);
        let [(one, end), (other, _)] = &whole.frames[..] else { panic!("two frames") };
        assert_eq!((*end, whole.used_bytes(), one.last_seq()), (first, bytes.len(), 6));
        assert_eq!(other.writes, [(Kind::Put, b"c".to_vec(), b"333".to_vec())]);
        for cut in first..bytes.len() {
            let cut_short = decode_all(&bytes[..cut]);
            assert_eq!((cut_short.used_bytes(), cut_short.damage), (first, None), "cut at {cut}");
        }
        let padded = [&bytes[..], &[0; 40]].concat();
        assert_eq!(decode_all(&padded).used_bytes(), bytes.len());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let expected = if at < first { 0 } else { first };
            let found = decode_all(&damaged).damage;
            assert_eq!(found, Some(("a damaged frame", expected)), "byte {at}");
        }
    }
}
