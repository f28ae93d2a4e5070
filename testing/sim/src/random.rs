//! The random numbers of simulations, and numbers from environment variables.

use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use runstone_random::Random as Stream;

/// A stream of numbers. Samples, corpora and pinned seeds of tests depend on where the stream of
/// each seed begins.
#[derive(Clone, Debug)]
pub struct Random(Stream);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(Stream::new(seed ^ 0x9e37_79b9_7f4a_7c15))
    }
}

impl Deref for Random {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl DerefMut for Random {
    fn deref_mut(&mut self) -> &mut Stream {
        &mut self.0
    }
}

/// The seeds of a test, as many as `usual` unless the environment says otherwise:
/// `RUNSTONE_SEED` is the first, `RUNSTONE_SEEDS` how many.
pub fn seeds(usual: u64) -> Range<u64> {
    let first = number("RUNSTONE_SEED", 0);
    first..first + number("RUNSTONE_SEEDS", usual)
}

/// Runs a test with each of its seeds. A panic names the seed.
pub fn for_seeds(usual: u64, mut run: impl FnMut(u64)) {
    for seed in seeds(usual) {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}");
            resume_unwind(panic);
        }
    }
}

/// A number from an environment variable, for long runs by hand.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
