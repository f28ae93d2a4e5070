//! Key numbers as bytes: fixed width, a different key for each number.
//!
//! ```text
//! decimal  "0000000000004711"                key_bytes digits; keys sort as their numbers do
//! hashed   [mix64(number) BE][mix64 of it..] random bytes: neither order nor common prefixes
//! ycsb     "user" + 20 decimal digits of FNV-1a(number), whatever key_bytes says
//! ```

use std::io::Write;

use runstone_random::mix64;

use super::fnv1a_64;

/// How a number becomes a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// Zero-padded decimal digits.
    #[default]
    Decimal,
    /// Random-looking bytes that are a function of the number.
    Hashed,
}

/// Encodes key numbers.
#[derive(Clone, Copy, Debug)]
pub struct KeyCodec {
    key_bytes: usize,
    format: KeyFormat,
}

impl KeyCodec {
    /// Keys of `key_bytes` bytes. [`crate::BenchSpec::check`] bounds the numbers.
    pub fn new(key_bytes: usize, format: KeyFormat) -> KeyCodec {
        KeyCodec { key_bytes, format }
    }

    /// How many numbers have distinct keys at this width.
    pub fn capacity(&self) -> u64 {
        match self.format {
            KeyFormat::Decimal => 10_u64.saturating_pow(self.key_bytes as u32),
            KeyFormat::Hashed if self.key_bytes >= 8 => u64::MAX,
            KeyFormat::Hashed => 0,
        }
    }

    /// Puts the key of `number` into `key`, which is cleared before.
    pub fn encode(&self, number: u64, key: &mut Vec<u8>) {
        debug_assert!(number < self.capacity(), "key {number} does not fit {self:?}");
        match self.format {
            KeyFormat::Decimal => decimal(number, self.key_bytes, key),
            KeyFormat::Hashed => hashed(mix64(number), self.key_bytes, key),
        }
    }

    /// Puts into `key` the least key of part `part`, if the keys of `0..num` are cut into `parts`
    /// parts of equal size.
    pub fn split(&self, part: u64, parts: u64, num: u64, key: &mut Vec<u8>) {
        let scaled = |of: u128| (of * u128::from(part) / u128::from(parts)) as u64;
        match self.format {
            KeyFormat::Decimal => decimal(scaled(u128::from(num)), self.key_bytes, key),
            KeyFormat::Hashed => {
                key.clear();
                key.extend_from_slice(&scaled(1 << 64).to_be_bytes());
            }
        }
    }
}

/// Puts the YCSB key of record `number` into `key`.
pub fn ycsb_key(number: u64, key: &mut Vec<u8>) {
    key.clear();
    write!(key, "user{:020}", fnv1a_64(number)).expect("a vector takes every byte");
}

fn decimal(mut number: u64, width: usize, key: &mut Vec<u8>) {
    key.clear();
    key.resize(width, b'0');
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn hashed(mut word: u64, width: usize, key: &mut Vec<u8>) {
    key.clear();
    while key.len() < width {
        let bytes = word.to_be_bytes();
        key.extend_from_slice(&bytes[..bytes.len().min(width - key.len())]);
        word = mix64(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_unique_and_of_the_width_asked() {
        for (width, format) in
            [(16, KeyFormat::Decimal), (5, KeyFormat::Decimal), (8, KeyFormat::Hashed)]
        {
            let (codec, mut key) = (KeyCodec::new(width, format), Vec::new());
            let mut seen = BTreeSet::new();
            for number in 0..10_000 {
                codec.encode(number, &mut key);
                assert_eq!(key.len(), width);
                assert!(seen.insert(key.clone()), "{format:?} {number}");
            }
        }
    }

    #[test]
    fn decimal_keys_look_like_those_of_db_bench() {
        let mut key = Vec::new();
        KeyCodec::new(16, KeyFormat::Decimal).encode(4711, &mut key);
        assert_eq!(key, b"0000000000004711");
        ycsb_key(0, &mut key);
        assert_eq!(key.len(), 24);
        assert!(key.starts_with(b"user"));
    }
}
