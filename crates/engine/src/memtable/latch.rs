//! The version word of a tree node: a lock for writers, which readers only read.
//!
//! 1. The lowest bit is the lock. Unlocking sets a version that the word never had before.
//! 2. A reader notes an unlocked version, reads the node, and checks that the version is still the
//!    same.
//! 3. A writer locks at a version that it noted, so that everything it read before is still true.
//!
//! Data under a latch are atomics, which may be read and written with relaxed ordering. Four
//! orderings make a torn read fail its check: the acquire load and fence of readers, and the
//! release fence and store of writers. All are needed: `weak` removes them one by one.

use super::sync::atomic::{AtomicU64, Ordering::*, fence};
use super::sync::pause;

/// A version check failed, or a node was locked: start over.
#[derive(Debug)]
pub struct Restart;

/// The version word.
#[derive(Debug)]
pub struct Latch(AtomicU64);

impl Default for Latch {
    /// Unlocked, at the first version.
    fn default() -> Latch {
        Latch(AtomicU64::new(0))
    }
}

impl Latch {
    /// Waits until the latch is unlocked, and returns the version.
    #[inline]
    pub fn read(&self) -> u64 {
        let mut spins = 0u32;
        loop {
            // Acquire: sees all that was written before the unlock that stored this version.
            let version = self.0.load(Acquire);
            if version & 1 == 0 {
                return version;
            }
            spins += 1;
            pause(spins.is_multiple_of(64));
        }
    }

    /// Checks that nothing was written since the version was noted.
    #[inline]
    pub fn check(&self, version: u64) -> Result<(), Restart> {
        // Orders the data loads before the load below.
        fence(Acquire);
        if self.0.load(Relaxed) == version { Ok(()) } else { Err(Restart) }
    }

    /// Locks, unless something was written since the version was noted.
    #[inline]
    pub fn lock(&self, version: u64) -> Result<(), Restart> {
        match self.0.compare_exchange(version, version | 1, Acquire, Relaxed) {
            Ok(_) => {
                // Orders the lock bit before the data stores, for readers that see the latter.
                fence(Release);
                Ok(())
            }
            Err(_) => Err(Restart),
        }
    }

    /// Unlocks a latch that was locked at this version.
    #[inline]
    pub fn unlock(&self, version: u64) {
        self.0.store(version + 2, Release);
    }
}
