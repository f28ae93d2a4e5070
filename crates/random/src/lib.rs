//! Pseudo-random numbers for file ids, faults, demonstrations and simulations: splitmix64 (Steele,
//! Lea, Flood, 2014). Equal seeds give equal numbers on every platform and in every release. Not
//! for secrets.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher, Hasher, RandomState};

/// What splitmix64 adds to its state with each number: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number. Different numbers give different results.
pub fn mix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A stream that differs between processes and calls. Its seed comes from the system's entropy,
    /// as the hash keys of the standard library do.
    pub fn from_entropy() -> Random {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        Random::new(hasher.finish())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let drawn = mix64(self.state);
        self.state = self.state.wrapping_add(STEP);
        drawn
    }

    /// A number below `bound`; 0 if `bound` is 0. Small numbers are likelier by at most `bound` in
    /// 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// True with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills the buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.draw() as u8);
    }

    /// Puts the items into a random order; all orders are equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_published_ones() {
        let mut random = Random::new(0);
        let drawn = [random.draw(), random.draw(), random.draw()];
        let published = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(drawn, published);
    }
}
