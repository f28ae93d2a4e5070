//! Little-endian and varint encoding, and a reader of untrusted bytes that never panics.
//!
//! Every `take_*` function checks the bytes that are left, and returns a value or [`Truncated`]. A
//! length is checked against the input before anything of that length is allocated.

/// The input ended early or a varint was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

/// Result of decoding.
pub type Decoded<T> = Result<T, Truncated>;

/// Appends a LEB128 varint: 7 bits a byte, low bits first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint in ten bytes, whatever its value.
pub fn put_wide_varint(out: &mut Vec<u8>, value: u64) {
    (0..9).for_each(|place| out.push((value >> (7 * place)) as u8 | 0x80));
    out.push((value >> 63) as u8);
}

/// Appends a varint length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Decodes a varint at `at`; returns the value and the position after it.
#[inline(always)]
pub fn varint_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((u64::from(first), at + 1));
    }
    long_varint_at(bytes, at, first)
}

/// Decodes a varint of several bytes. It is out of line, so that the common case stays small where
/// it is inlined.
fn long_varint_at(bytes: &[u8], at: usize, first: u8) -> Option<(u64, usize)> {
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7;
    let mut at = at + 1;
    loop {
        let byte = *bytes.get(at)?;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        at += 1;
        if byte < 0x80 {
            return Some((value, at));
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Decodes three varints, with one load and one test if each of them is a single byte.
#[inline(always)]
pub fn three_varints_at(bytes: &[u8], at: usize) -> Option<([u64; 3], usize)> {
    if let Some(word) = u32_at(bytes, at)
        && word & 0x0080_8080 == 0
    {
        let byte = |i: u32| u64::from(word >> (8 * i) & 0x7f);
        return Some(([byte(0), byte(1), byte(2)], at + 3));
    }
    let (first, at) = varint_at(bytes, at)?;
    let (second, at) = varint_at(bytes, at)?;
    let (third, at) = varint_at(bytes, at)?;
    Some(([first, second, third], at))
}

/// Reads a u32 at `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads a u64 at `at`.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline(always)]
    pub fn take(&mut self, n: usize) -> Decoded<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// One byte.
    pub fn take_u8(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian u64.
    pub fn take_u64(&mut self) -> Decoded<u64> {
        u64_at(self.take(8)?, 0).ok_or(Truncated)
    }

    /// A varint. Always inlined: a write decodes three or four, and a call would be half the cost
    /// of each.
    #[inline(always)]
    pub fn take_varint(&mut self) -> Decoded<u64> {
        let (value, at) = varint_at(self.rest, 0).ok_or(Truncated)?;
        self.rest = &self.rest[at..];
        Ok(value)
    }

    /// A varint that must fit in a usize and not exceed the bytes that are left. It is for lengths,
    /// and for counts of elements of at least one byte each.
    #[inline(always)]
    pub fn take_len(&mut self) -> Decoded<usize> {
        let value = self.take_varint()?;
        if value > self.rest.len() as u64 { Err(Truncated) } else { Ok(value as usize) }
    }

    /// A length followed by that many bytes.
    #[inline(always)]
    pub fn take_bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.take_len()?;
        self.take(len)
    }
}

/// A varint that fits in 32 bits.
pub fn take_u32(reader: &mut Reader<'_>) -> Decoded<u32> {
    u32::try_from(reader.take_varint()?).map_err(|_| Truncated)
}

/// Sequence numbers, places in streams, and numbers of files, runs and generations stay below this
/// limit, because they grow by one or by the bytes written. A larger number is damage, and sums of
/// larger numbers could overflow.
pub const NUMBER_LIMIT: u64 = 1 << 56;
/// Bytes, entries and keys of one object stay below this limit, so that 65,536 of them can be
/// summed.
pub const SIZE_LIMIT: u64 = 1 << 48;

/// A varint below [`NUMBER_LIMIT`].
pub fn take_number(reader: &mut Reader<'_>) -> Decoded<u64> {
    reader.take_varint().and_then(|number| below(number, NUMBER_LIMIT))
}

/// A varint below [`SIZE_LIMIT`].
pub fn take_size(reader: &mut Reader<'_>) -> Decoded<u64> {
    reader.take_varint().and_then(|size| below(size, SIZE_LIMIT))
}

fn below(value: u64, limit: u64) -> Decoded<u64> {
    if value < limit { Ok(value) } else { Err(Truncated) }
}

/// A list whose elements take at least one byte each.
pub fn take_list<T>(
    reader: &mut Reader<'_>,
    mut element: impl FnMut(&mut Reader<'_>) -> Decoded<T>,
) -> Decoded<Vec<T>> {
    let count = reader.take_len()?;
    let mut list = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        list.push(element(reader)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_overlong_input() {
        for value in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(varint_at(&out, 0), Some((value, out.len())));
            for cut in 0..out.len() {
                assert_eq!(varint_at(&out[..cut], 0), None);
            }
        }
        let mut out = Vec::new();
        for value in [1, 300, 5, 127, 128, 1, 2, 3, 4] {
            put_varint(&mut out, value);
        }
        let mut at = 0;
        for expected in [[1, 300, 5], [127, 128, 1], [2, 3, 4]] {
            let (values, behind) = three_varints_at(&out, at).expect("whole");
            assert_eq!(values, expected);
            at = behind;
        }
        assert_eq!((at, three_varints_at(&out, at)), (out.len(), None));
        assert_eq!(varint_at(&[0xff; 10], 0), None);
        assert_eq!(varint_at(&[0x80; 11], 0), None);
    }

    #[test]
    fn lengths_never_exceed_the_input() {
        let mut out = Vec::new();
        put_varint(&mut out, 1 << 40);
        out.extend_from_slice(b"abc");
        assert_eq!(Reader::new(&out).take_bytes(), Err(Truncated));
    }
}
