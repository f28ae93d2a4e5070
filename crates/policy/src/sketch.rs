//! Estimates from metadata how many distinct keys a set of tables contains. Each table has a
//! HyperLogLog sketch (Flajolet et al. 2007); a union takes the larger of each pair of registers.
//! The estimate is for triggers and reports; nothing that must be exact uses it.
//!
//! 256 registers: a standard error of 1.04 / sqrt(256) = 6.5%.

use std::fmt;

/// Registers.
pub const REGISTER_COUNT: usize = 256;
const INDEX_BITS: u32 = REGISTER_COUNT.trailing_zeros();
/// The largest register: no bit of the hash after the index is set.
const MAX_RANK: u8 = (u64::BITS - INDEX_BITS + 1) as u8;

/// The sketch of a set of keys. An empty sketch means that nothing is known (a table of an older
/// release). That is not the same as the sketch of an empty set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    registers: Option<Box<[u8; REGISTER_COUNT]>>,
}

impl Sketch {
    /// The sketch of no keys.
    pub fn of_nothing() -> Sketch {
        Sketch { registers: Some(Box::new([0; REGISTER_COUNT])) }
    }

    /// Reads the stored form: no bytes, or one per register.
    pub fn from_bytes(bytes: &[u8]) -> Option<Sketch> {
        if bytes.is_empty() {
            return Some(Sketch::default());
        }
        let registers: [u8; REGISTER_COUNT] = bytes.try_into().ok()?;
        let valid = registers.iter().all(|register| *register <= MAX_RANK);
        valid.then(|| Sketch { registers: Some(Box::new(registers)) })
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        self.registers.as_ref().map_or(&[], |registers| &registers[..])
    }

    /// Adds a key by its 64-bit hash.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if let Some(registers) = &mut self.registers {
            let index = (hash >> (u64::BITS - INDEX_BITS)) as usize;
            let rank = (hash << INDEX_BITS).leading_zeros().min(u64::BITS - INDEX_BITS) as u8 + 1;
            registers[index] = registers[index].max(rank);
        }
    }

    /// Adds all keys of another set. The result is unknown if either set is.
    pub fn merge(&mut self, other: &Sketch) {
        match (&mut self.registers, &other.registers) {
            (Some(own), Some(others)) => {
                for (own, other) in own.iter_mut().zip(others.iter()) {
                    *own = (*own).max(*other);
                }
            }
            (registers, _) => *registers = None,
        }
    }

    /// Estimated number of distinct keys; `None` if unknown.
    pub fn estimate(&self) -> Option<u64> {
        let registers = self.registers.as_ref()?;
        let m = REGISTER_COUNT as f64;
        // Powers of a half are summed as whole multiples of the smallest one, which is fast and
        // exact in any order.
        let parts = |register: &u8| u128::from(1u64 << (MAX_RANK - register));
        let sum = registers.iter().map(parts).sum::<u128>() as f64 / (1u64 << MAX_RANK) as f64;
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let zeros = registers.iter().filter(|register| **register == 0).count();
        // For few keys, counting the empty registers is more exact.
        let few = raw <= 2.5 * m && zeros > 0;
        let estimate = if few { m * (m / zeros as f64).ln() } else { raw };
        Some(estimate.round() as u64)
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.estimate() {
            Some(estimate) => write!(f, "Sketch(about {estimate} keys)"),
            None => write!(f, "Sketch(unknown)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_random::mix64;

    fn sketch(keys: std::ops::Range<u64>) -> Sketch {
        let mut sketch = Sketch::of_nothing();
        keys.for_each(|key| sketch.add(mix64(key)));
        sketch
    }

    #[test]
    fn estimates_are_within_three_standard_errors() {
        for count in [0u64, 10, 100, 1_000, 100_000] {
            let estimate = sketch(0..count).estimate().unwrap();
            let allowed = count / 5 + 2;
            assert!(estimate.abs_diff(count) <= allowed, "{estimate} for {count}");
        }
    }

    #[test]
    fn unions_count_shared_keys_once_and_bytes_survive() {
        let mut union = sketch(0..60_000);
        union.merge(&sketch(30_000..90_000));
        assert_eq!(union, sketch(0..90_000));
        assert_eq!(Sketch::from_bytes(union.as_bytes()), Some(union.clone()));
        union.merge(&Sketch::default());
        assert_eq!(union.estimate(), None);
        assert_eq!(Sketch::from_bytes(&[]), Some(Sketch::default()));
        assert_eq!(Sketch::from_bytes(&[1, 2]), None);
        assert_eq!(Sketch::from_bytes(&[99; REGISTER_COUNT]), None);
    }
}
