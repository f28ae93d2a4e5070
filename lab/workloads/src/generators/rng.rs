//! The random numbers of the benchmarks: xoshiro256** seeded by splitmix64. The stream is not the
//! standard one of these generators: the published figures of papers and peers depend on its keys.
//! The same seed gives the same numbers on every machine and in every release. The numbers are not
//! fit for secrets.

use runstone_random::mix64;

/// xoshiro256**.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose numbers are a function of `seed`.
    pub fn new(seed: u64) -> Rng {
        // splitmix64 never yields four zeros in a row, the one state that xoshiro cannot leave.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        Rng { state: [0, 1, 2, 3].map(|i: u64| mix64(seed.wrapping_add(step.wrapping_mul(i)))) }
    }

    /// One of the streams of a seed: one per benchmark and thread.
    pub fn stream(seed: u64, name: &str, thread: u64) -> Rng {
        let name_hash = super::fnv1a_64_bytes(name.as_bytes());
        Rng::new(mix64(seed ^ name_hash).wrapping_add(thread))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// Uniform in `0..bound`; the bias of the multiplication is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range to draw from is not empty");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything_and_streams_differ() {
        let take = |mut rng: Rng| -> Vec<u64> { (0..8).map(|_| rng.next_u64()).collect() };
        assert_eq!(take(Rng::new(7)), take(Rng::new(7)));
        assert_ne!(take(Rng::new(7)), take(Rng::new(8)));
        assert_ne!(take(Rng::stream(7, "a", 0)), take(Rng::stream(7, "a", 1)));
        assert_ne!(take(Rng::stream(7, "a", 0)), take(Rng::stream(7, "b", 0)));
    }

    #[test]
    fn below_is_even() {
        let (mut rng, mut counts) = (Rng::new(1), [0_u32; 10]);
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
