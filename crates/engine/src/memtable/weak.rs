//! Checks the latch of tree nodes with loom, which tries every execution that the memory model
//! allows. It compiles the same file against loom's atomics. Test code only. Each ordering of the
//! latch is removed in turn, and a torn read must then occur.

use std::cell::Cell;
use std::sync::Arc;

use latch::Latch;
use loom::sync::atomic::{AtomicU64, Ordering::*};

#[path = "latch.rs"]
mod latch;

thread_local! {
    static WITHOUT: Cell<Option<Without>> = const { Cell::new(None) };
}

/// An ordering that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    AcquireFence,
    ReleaseFence,
    AcquireLoad,
    ReleaseStore,
}

/// `super::sync` of the latch: loom's atomics, without the removed ordering.
mod sync {
    /// As in `std`.
    pub mod atomic {
        use super::super::{WITHOUT, Without};
        pub use loom::sync::atomic::Ordering;

        #[derive(Debug)]
        pub struct AtomicU64(loom::sync::atomic::AtomicU64);

        fn weakened(order: Ordering, without: Without) -> Ordering {
            if WITHOUT.get() == Some(without) { Ordering::Relaxed } else { order }
        }

        impl AtomicU64 {
            pub fn new(value: u64) -> AtomicU64 {
                AtomicU64(loom::sync::atomic::AtomicU64::new(value))
            }

            pub fn load(&self, order: Ordering) -> u64 {
                self.0.load(weakened(order, Without::AcquireLoad))
            }

            pub fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, weakened(order, Without::ReleaseStore));
            }

            pub fn compare_exchange(
                &self,
                now: u64,
                next: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(now, next, success, failure)
            }
        }

        pub fn fence(order: Ordering) {
            let without = match order {
                Ordering::Acquire => Without::AcquireFence,
                _ => Without::ReleaseFence,
            };
            if WITHOUT.get() != Some(without) {
                loom::sync::atomic::fence(order);
            }
        }
    }

    pub fn pause(_is_long: bool) {
        loom::thread::yield_now();
    }
}

/// Two numbers that change together.
struct Pair {
    latch: Latch,
    first: AtomicU64,
    second: AtomicU64,
}

/// Adds one to both, unless another writer was faster.
fn add(pair: &Pair) -> u64 {
    let version = pair.latch.read();
    let before = pair.first.load(Relaxed);
    if pair.latch.lock(version).is_err() {
        return 0;
    }
    pair.first.store(before + 1, Relaxed);
    pair.second.store(before + 1, Relaxed);
    pair.latch.unlock(version);
    1
}

fn look(pair: &Pair) {
    let version = pair.latch.read();
    let (first, second) = (pair.first.load(Relaxed), pair.second.load(Relaxed));
    if pair.latch.check(version).is_ok() {
        assert_eq!(first, second, "a torn read passed its check");
    }
}

fn explore() {
    loom::model(|| {
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        let pair = Arc::new(Pair { latch: Latch::default(), first, second });
        let writer = loom::thread::spawn({
            let pair = Arc::clone(&pair);
            move || add(&pair)
        });
        look(&pair);
        let added = add(&pair);
        let added = added + writer.join().expect("no panic");
        assert_eq!(pair.first.load(Relaxed), added, "no addition is lost");
        look(&pair);
    });
}

/// Tries all executions of two writers, one of which reads first.
#[test]
fn no_torn_read_passes_its_check() {
    explore();
}

#[test]
fn each_ordering_of_the_latch_is_needed() {
    use Without::{AcquireFence, AcquireLoad, ReleaseFence, ReleaseStore};
    for without in [AcquireFence, ReleaseFence, AcquireLoad, ReleaseStore] {
        WITHOUT.set(Some(without));
        let outcome = std::panic::catch_unwind(explore);
        WITHOUT.set(None);
        assert!(outcome.is_err(), "nothing is lost without {without:?}");
    }
}
