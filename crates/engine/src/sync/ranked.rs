//! Locks with ranks. A thread takes locks only in the order of their ranks, so threads never wait
//! for each other in a cycle. With debug assertions, each lock is checked when it is taken; without
//! them, these are the plain locks of `parking_lot`.
//!
//! A `try_lock` may be out of order, because it does not wait.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

pub use parking_lot::WaitTimeoutResult;

use super::rank::Rank;

/// A lock of rank `R`.
pub struct Ranked<R, L> {
    inner: L,
    rank: PhantomData<fn() -> R>,
}

/// A lock that only one thread can hold at a time.
pub type Mutex<R, T> = Ranked<R, parking_lot::Mutex<T>>;

/// A lock that readers can share.
pub type RwLock<R, T> = Ranked<R, parking_lot::RwLock<T>>;

/// Access to the data that a lock guards. Dropping the guard releases the lock.
pub struct Guard<G> {
    guard: G,
    held: Held,
}

/// Access to the data that a [`Mutex`] guards.
pub type MutexGuard<'a, T> = Guard<parking_lot::MutexGuard<'a, T>>;

impl<R: Rank, T> Mutex<R, T> {
    pub const fn new(value: T) -> Mutex<R, T> {
        Ranked { inner: parking_lot::Mutex::new(value), rank: PhantomData }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::checked::<R>();
        Guard { guard: self.inner.lock(), held }
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.inner.try_lock()?;
        Some(Guard { guard, held: Held::tried::<R>() })
    }

    #[inline]
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<R: Rank, T> RwLock<R, T> {
    #[inline]
    pub fn read(&self) -> Guard<parking_lot::RwLockReadGuard<'_, T>> {
        let held = Held::checked::<R>();
        Guard { guard: self.inner.read(), held }
    }

    #[inline]
    pub fn write(&self) -> Guard<parking_lot::RwLockWriteGuard<'_, T>> {
        let held = Held::checked::<R>();
        Guard { guard: self.inner.write(), held }
    }
}

impl<R, L: Default> Default for Ranked<R, L> {
    fn default() -> Ranked<R, L> {
        Ranked { inner: L::default(), rank: PhantomData }
    }
}

impl<R, L: fmt::Debug> fmt::Debug for Ranked<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Runs `between` without the lock. Threads that wait for the lock get it first.
    pub fn unlocked_fair<U>(this: &mut Self, between: impl FnOnce() -> U) -> U {
        this.held.leave();
        let outcome = parking_lot::MutexGuard::unlocked_fair(&mut this.guard, between);
        this.held.enter();
        outcome
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// Wakes threads that wait for a change of the data that a lock guards.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits for a notification, and releases the lock meanwhile.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.guard);
    }

    /// Waits as `wait` does, but for at most this long.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> WaitTimeoutResult {
        self.0.wait_for(&mut guard.guard, most)
    }

    /// Waits as `wait` does, but at most until this instant.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, end: Instant) -> WaitTimeoutResult {
        self.0.wait_until(&mut guard.guard, end)
    }

    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}

#[cfg(debug_assertions)]
use checked::Held;
#[cfg(all(debug_assertions, any(test, feature = "seeded-bugs")))]
pub use checked::most_looked;
#[cfg(debug_assertions)]
pub use checked::{Aside, looked};
#[cfg(not(debug_assertions))]
use unchecked::Held;
#[cfg(not(debug_assertions))]
pub use unchecked::{Aside, looked};

/// The ranks that a thread holds, and how much it looks at meanwhile.
#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::super::rank::{NAMES, Rank};

    thread_local! {
        /// The places of the locks, and how much was looked at under each since it was taken.
        static HELD: RefCell<Vec<(u8, u64)>> = const { RefCell::new(Vec::new()) };
        /// The most that was looked at under one hold of a lock, by the place of its rank.
        static MOST: RefCell<[u64; NAMES.len()]> = const { RefCell::new([0; NAMES.len()]) };
    }

    /// Counts things that a loop looks at or copies, for all locks that this thread holds.
    pub fn looked(count: u64) {
        let _ = HELD.try_with(|held| held.borrow_mut().iter_mut().for_each(|one| one.1 += count));
    }

    /// The most that this thread looked at under one hold of a lock of this rank, since it last
    /// asked.
    #[cfg(any(test, feature = "seeded-bugs"))]
    pub fn most_looked(rank: &str) -> u64 {
        let place = NAMES.iter().position(|name| *name == rank).expect("a rank of this name");
        MOST.with(|most| std::mem::take(&mut most.borrow_mut()[place]))
    }

    /// A lock that this thread holds.
    pub(super) struct Held(u8);

    impl Held {
        /// Fails if the thread holds a lock of this rank or of a later one.
        #[track_caller]
        pub(super) fn checked<R: Rank>() -> Held {
            let places = |held: &RefCell<Vec<(u8, u64)>>| {
                held.borrow().iter().map(|(place, _)| *place).max()
            };
            let taken = HELD.try_with(places);
            if let Ok(Some(last)) = taken {
                assert!(
                    last < R::PLACE || R::IS_SHARED && last == R::PLACE,
                    "lock order: a thread that holds {} takes {}, which comes no later",
                    NAMES[usize::from(last)],
                    NAMES[usize::from(R::PLACE)],
                );
            }
            Held::tried::<R>()
        }

        pub(super) fn tried<R: Rank>() -> Held {
            let mut held = Held(R::PLACE);
            held.enter();
            held
        }

        pub(super) fn enter(&mut self) {
            let _ = HELD.try_with(|held| held.borrow_mut().push((self.0, 0)));
        }

        pub(super) fn leave(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let Some(at) = held.iter().rposition(|(place, _)| *place == self.0) else { return };
                let (place, looked) = held.swap_remove(at);
                let _ = MOST.try_with(|most| {
                    let most = &mut most.borrow_mut()[usize::from(place)];
                    *most = looked.max(*most);
                });
            });
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.leave();
        }
    }

    /// While this lives, the locks that the thread holds are set aside: code of a program runs, and
    /// may use other stores, whose locks have an order of their own.
    pub struct Aside(Vec<(u8, u64)>);

    impl Aside {
        pub fn begin() -> Aside {
            Aside(HELD.try_with(|held| held.take()).unwrap_or_default())
        }
    }

    impl Drop for Aside {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.replace(std::mem::take(&mut self.0)));
        }
    }
}

/// Nothing is checked.
#[cfg(not(debug_assertions))]
mod unchecked {
    use super::super::rank::Rank;

    pub(super) struct Held;

    impl Held {
        #[inline(always)]
        pub(super) fn checked<R: Rank>() -> Held {
            Held
        }

        #[inline(always)]
        pub(super) fn tried<R: Rank>() -> Held {
            Held
        }

        #[inline(always)]
        pub(super) fn enter(&mut self) {}

        #[inline(always)]
        pub(super) fn leave(&mut self) {}
    }

    /// Nothing is counted.
    #[inline(always)]
    pub fn looked(_count: u64) {}

    /// There are no ranks to set aside.
    pub struct Aside;

    impl Aside {
        #[inline(always)]
        pub fn begin() -> Aside {
            Aside
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::rank::{Commit, Flushing, Manifest};
    use super::*;

    fn is_refused<T>(take: impl FnOnce() -> T) -> bool {
        catch_unwind(AssertUnwindSafe(take)).is_err()
    }

    #[test]
    fn locks_are_taken_in_order() {
        let (manifest, commit) = (Mutex::<Manifest, _>::new(1), Mutex::<Commit, _>::new(2));
        let outer = manifest.lock();
        assert_eq!(*outer + *commit.lock(), 3);
        drop(outer);
        let inner = commit.lock();
        assert!(is_refused(|| manifest.lock()));
        assert!(manifest.try_lock().is_some(), "nobody waits for a lock that is only tried");
        drop(inner);
        let inner = commit.try_lock().expect("is free");
        assert!(is_refused(|| manifest.lock()), "what was tried is held too");
        drop(inner);
        manifest.lock();
    }

    #[test]
    fn one_rank_is_held_once() {
        let (one, two) = (RwLock::<Manifest, ()>::default(), Mutex::<Manifest, _>::new(()));
        let held = one.read();
        assert!(is_refused(|| two.lock()));
        assert!(is_refused(|| one.write()));
        drop(held);
        drop(one.write());
        let (one, two) = (Mutex::<Flushing, _>::new(()), Mutex::<Flushing, _>::new(()));
        let _held = (one.lock(), two.lock());
    }

    #[test]
    fn callbacks_have_an_order_of_their_own() {
        let (manifest, commit) = (Mutex::<Manifest, _>::new(()), Mutex::<Commit, _>::new(()));
        let _inner = commit.lock();
        let aside = Aside::begin();
        let other = manifest.lock();
        drop(other);
        drop(aside);
        assert!(is_refused(|| manifest.lock()));
    }

    #[test]
    fn what_is_looked_at_counts_for_the_locks_that_are_held() {
        let (manifest, commit) = (Mutex::<Manifest, _>::new(()), Mutex::<Commit, _>::new(()));
        for _ in 0..2 {
            let _outer = manifest.lock();
            looked(1);
            let mut inner = commit.lock();
            looked(2);
            MutexGuard::unlocked_fair(&mut inner, || looked(4));
            looked(8);
        }
        looked(16);
        assert_eq!((most_looked("Manifest"), most_looked("Commit")), (15, 8));
        assert_eq!((most_looked("Manifest"), most_looked("Commit")), (0, 0), "since last asked");
    }

    #[test]
    fn a_lock_is_not_held_between() {
        let (manifest, commit) = (Mutex::<Manifest, _>::new(()), Mutex::<Commit, _>::new(()));
        let mut inner = commit.lock();
        MutexGuard::unlocked_fair(&mut inner, || drop(manifest.lock()));
        assert!(is_refused(|| manifest.lock()));
    }
}
