//! Values that compress to about half, as db_bench makes them: one buffer of 1 MiB has pieces of
//! 100 bytes, half of each piece random printable bytes that are then repeated. A value is a slice
//! of the buffer.

use std::ops::Range;

use super::Rng;

const PIECE_BYTES: usize = 100;
const BUFFER_BYTES: usize = 1 << 20;

/// Generates values.
#[derive(Clone, Debug)]
pub struct ValueGenerator {
    buffer: Vec<u8>,
    at: usize,
}

impl ValueGenerator {
    /// Values up to `most_bytes` that compress to `compressibility` of their size (0.5: to half).
    pub fn new(rng: &mut Rng, compressibility: f64, most_bytes: usize) -> ValueGenerator {
        let target = BUFFER_BYTES.max(most_bytes * 2);
        let random_bytes = ((PIECE_BYTES as f64 * compressibility) as usize).clamp(1, PIECE_BYTES);
        let mut buffer = Vec::with_capacity(target + PIECE_BYTES);
        while buffer.len() < target {
            let start = buffer.len();
            buffer.extend((0..random_bytes).map(|_| b' ' + rng.below(95) as u8));
            while buffer.len() < start + PIECE_BYTES {
                let rest = start + PIECE_BYTES - buffer.len();
                buffer.extend_from_within(start..start + random_bytes.min(rest));
            }
        }
        ValueGenerator { buffer, at: 0 }
    }

    /// The next value.
    pub fn next(&mut self, value_bytes: usize) -> &[u8] {
        let place = self.place(value_bytes);
        self.at_place(place)
    }

    /// The place of the next value, for callers that use several at once.
    pub fn place(&mut self, value_bytes: usize) -> Range<usize> {
        if self.at + value_bytes > self.buffer.len() {
            self.at = 0;
        }
        self.at += value_bytes;
        self.at - value_bytes..self.at
    }

    /// The value at such a place.
    pub fn at_place(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_size_asked_and_repeat_themselves() {
        let mut values = ValueGenerator::new(&mut Rng::new(3), 0.5, 4096);
        let value = values.next(PIECE_BYTES).to_vec();
        assert_eq!(value[..50], value[50..], "half of a piece repeats");
        assert_ne!(values.next(PIECE_BYTES), value);
        for value_bytes in [0, 1, 99, 4096] {
            assert!((0..1000).all(|_| values.next(value_bytes).len() == value_bytes));
        }
    }
}
