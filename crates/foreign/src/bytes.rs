//! Reads numbers and strings of both formats: little-endian numbers, varints, and strings preceded
//! by their length. Nothing is read beyond the end; `None` means that bytes are missing or wrong.

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    pub fn fixed32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn fixed64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Seven bits per byte, the lowest first; the high bit means that more bytes follow.
    pub fn varint64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub fn varint32(&mut self) -> Option<u32> {
        self.varint64()?.try_into().ok()
    }

    /// A varint that encodes a signed number: even values mean 0, 1, 2 and so on, odd values -1, -2
    /// and so on.
    pub fn signed64(&mut self) -> Option<i64> {
        let value = self.varint64()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A string preceded by its length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let bytes = self.varint32()?;
        self.take(bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut input = Input(&[0xac, 0x02, 1, 0, 0, 0, 3, b'a', b'b', b'c', 3]);
        assert_eq!(input.varint64(), Some(300));
        assert_eq!(input.fixed32(), Some(1));
        assert_eq!(input.string(), Some(&b"abc"[..]));
        assert_eq!(input.signed64(), Some(-2));
        assert_eq!((input.is_empty(), input.byte()), (true, None));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Input(&[0xff; 9]).varint64(), None);
        assert_eq!(Input(&[0xff; 11]).varint64(), None);
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Input(&most).varint64(), Some(u64::MAX));
        assert_eq!(Input(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint32(), None);
        assert_eq!(Input(&[9, b'a']).string(), None);
    }
}
