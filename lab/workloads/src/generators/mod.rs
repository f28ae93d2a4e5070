//! The ingredients of the workloads: random numbers, keys, values, popularity. All are functions of
//! a seed; nothing here uses a store or a clock.

pub mod keys;
pub mod permutation;
pub mod rng;
pub mod values;
pub mod zipfian;

pub use keys::{KeyCodec, KeyFormat};
pub use permutation::Permutation;
pub use rng::Rng;
pub use values::ValueGenerator;
pub use zipfian::{Latest, ScrambledZipfian, THETA, Zipfian};

/// FNV-1a over the eight bytes of `number`, low byte first: the hash of YCSB.
pub fn fnv1a_64(number: u64) -> u64 {
    fnv1a_64_bytes(&number.to_le_bytes())
}

/// FNV-1a over bytes.
pub fn fnv1a_64_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(fnv1a_64_bytes(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64_bytes(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64_bytes(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
