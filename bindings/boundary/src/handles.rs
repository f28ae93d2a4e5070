//! Handles: numbers that other languages keep in place of our objects.
//!
//! A handle is a number, not an address. No number is used twice. So a handle that was closed, a
//! number that never was a handle, and a handle of another kind are all refused, and nothing is
//! read through them. An object that one thread closes while another uses it is dropped when that
//! use ends.
//!
//! ```text
//! handle := kind u8 | earlier uses of the slot, 28 bits | slot, 28 bits
//! ```
//!
//! 1. An object is stored in the slot that was freed last, or in a new one, together with its whole
//!    handle.
//! 2. A look-up finds the slot by its number and compares the handle.
//! 3. A close removes the object if it still belongs to the handle. The thread that succeeds frees
//!    the slot. A slot whose uses are spent is retired instead: it stays empty for ever, and costs
//!    its 24 bytes for 268 million closed handles.
//!
//! No step waits for another thread, because a fork has no other threads but may open objects of
//! its own.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use arc_swap::ArcSwapOption;
use runstone::Error;
use runstone_storage::fork::Process;

use crate::failure::{Code, Failure, Result};

/// A handle; never 0.
pub type Handle = NonZeroU64;

/// Bits of the number of a slot, and of its uses.
const BITS: u32 = 28;
const MOST: u32 = 1 << BITS;

/// All open objects of one type, in a `static`.
pub struct Handles<T: Send + Sync + 'static> {
    slots: boxcar::Vec<Slot<T>>,
    /// Low half: the first free slot, counted from 1, or 0 if there is none. High half: how often
    /// this changed, which shows whether a slot was taken and freed in between.
    free: AtomicU64,
    uses: u32,
    kind: u8,
    name: &'static str,
    is_inherited: bool,
}

struct Slot<T> {
    entry: ArcSwapOption<Entry<T>>,
    /// The number of earlier uses. Only the thread that has taken the slot changes it.
    used: AtomicU32,
    /// The next free slot after this one, as in [`Handles::free`].
    next: AtomicU32,
}

struct Entry<T> {
    handle: u64,
    /// The process that made the object.
    process: Process,
    /// The object, or why it no longer exists.
    object: Result<T>,
}

impl<T: Send + Sync + 'static> Handles<T> {
    /// A table without objects. `kind` distinguishes them from others: at least 1, and unique for
    /// each type. `name` is the name of such an object in messages, such as "store".
    pub const fn new(kind: u8, name: &'static str) -> Handles<T> {
        assert!(kind != 0, "a handle is never 0");
        Handles {
            slots: boxcar::Vec::new(),
            free: AtomicU64::new(0),
            uses: MOST,
            kind,
            name,
            is_inherited: false,
        }
    }

    /// A table whose objects forks may use as well, because they consist only of memory. The
    /// objects of other tables are refused in a fork, since their locks may be held by threads that
    /// do not exist there.
    pub const fn inherited(kind: u8, name: &'static str) -> Handles<T> {
        let mut table = Handles::new(kind, name);
        table.is_inherited = true;
        table
    }

    /// Stores an object, and returns its handle.
    ///
    /// # Errors
    /// If there are too many: 268 million open ones.
    pub fn keep(&self, object: T) -> Result<Handle> {
        let number = match self.take_free() {
            Some(number) => number,
            None if self.slots.count() < MOST as usize => self.slots.push(Slot::new()) as u32,
            None => MOST,
        };
        let slot = self.slots.get(number as usize).filter(|_| number < MOST);
        let used = slot.map_or(0, |slot| u64::from(slot.used.load(Relaxed)));
        let handle = self.tag() | used << BITS | u64::from(number);
        let (Some(slot), Some(given)) = (slot, Handle::new(handle)) else {
            let what = format!("there are too many {}s", self.name);
            return Err(Failure::new(Code::InvalidArgument, what));
        };
        let process = Process::current();
        slot.entry.store(Some(Arc::new(Entry { handle, process, object: Ok(object) })));
        Ok(given)
    }

    /// Replaces the object of a handle by another one, or by a reason why it no longer exists.
    /// Current users of the old object keep it.
    ///
    /// # Errors
    /// If the handle was closed, or never was one of this kind, and in a fork.
    pub fn replace(&self, handle: u64, object: Result<T>) -> Result<()> {
        let slot = self.slot(handle).ok_or_else(|| self.refuse(handle))?;
        let before = slot.entry.load();
        let found = before.as_ref().filter(|entry| entry.handle == handle);
        let found = found.ok_or_else(|| self.refuse(handle))?;
        self.check(found)?;
        let entry = Arc::new(Entry { handle, process: found.process, object });
        let was = slot.entry.compare_and_swap(&*before, Some(entry));
        // Otherwise the handle was closed in between. Callers of this function exclude each other.
        let is_replaced = was.as_ref().is_some_and(|was| Arc::ptr_eq(was, found));
        if is_replaced { Ok(()) } else { Err(self.refuse(handle)) }
    }

    /// Whether a handle is open, that is, it has an object or the reason why the object no longer
    /// exists.
    pub fn is_open(&self, handle: u64) -> bool {
        let entry = self.slot(handle).and_then(|slot| slot.entry.load_full());
        entry.is_some_and(|entry| entry.handle == handle)
    }

    /// The object of a handle, which stays alive while the result lives. O(1), without a lock.
    ///
    /// # Errors
    /// If the handle is 0, was closed, or never was one of this kind, and in a fork.
    pub fn get(&self, handle: u64) -> Result<impl Deref<Target = T> + use<T>> {
        let slot = self.slot(handle).ok_or_else(|| self.refuse(handle))?;
        let entry = slot.entry.load_full().filter(|entry| entry.handle == handle);
        let entry = entry.ok_or_else(|| self.refuse(handle))?;
        self.check(&entry)?;
        match &entry.object {
            Ok(_) => Ok(InUse(entry)),
            Err(reason) => Err(reason.clone()),
        }
    }

    /// Passes the object of a handle to `work` and returns its result. This replaces
    /// [`Handles::get`] in functions that are called once per key: it counts no users of the
    /// object.
    ///
    /// # Errors
    /// Those of [`Handles::get`], and those of `work`.
    #[inline]
    pub fn with<R>(&self, handle: u64, work: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let Some(slot) = self.slot(handle) else { return Err(self.refuse(handle)) };
        let entry = slot.entry.load();
        match &*entry {
            Some(entry) if entry.handle == handle => {
                self.check(entry)?;
                match &entry.object {
                    Ok(object) => work(object),
                    Err(reason) => Err(reason.clone()),
                }
            }
            _ => Err(self.refuse(handle)),
        }
    }

    /// Closes a handle, which is refused from now on. Its object is dropped when its last use ends.
    /// In a fork it is only forgotten, because dropping it would take locks and remove files.
    ///
    /// # Errors
    /// If the handle is 0, was closed, or never was one of this kind.
    pub fn close(&self, handle: u64) -> Result<()> {
        let slot = self.slot(handle).ok_or_else(|| self.refuse(handle))?;
        loop {
            let entry = slot.entry.load();
            let found = entry.as_ref().filter(|entry| entry.handle == handle);
            let found = found.ok_or_else(|| self.refuse(handle))?;
            let before = slot.entry.compare_and_swap(&*entry, None);
            // Otherwise another thread closed it, or replaced its object.
            if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, found)) {
                if self.check(found).is_err() {
                    std::mem::forget(Arc::clone(found));
                }
                break;
            }
        }
        // Only one thread arrives here for each use of the slot.
        let used = slot.used.load(Relaxed) + 1;
        if used < self.uses {
            slot.used.store(used, Relaxed);
            self.give_back(slot, handle as u32 % MOST);
        }
        Ok(())
    }

    #[inline]
    fn check(&self, entry: &Entry<T>) -> Result<()> {
        match self.is_inherited || entry.process.is_current() {
            true => Ok(()),
            false => Err(Error::OtherProcess.into()),
        }
    }

    fn tag(&self) -> u64 {
        u64::from(self.kind) << (2 * BITS)
    }

    /// The slot of a handle, if it is of this kind. The caller checks whether the slot still
    /// belongs to the handle.
    #[inline]
    fn slot(&self, handle: u64) -> Option<&Slot<T>> {
        match handle >> (2 * BITS) == u64::from(self.kind) {
            true => self.slots.get((handle as u32 % MOST) as usize),
            false => None,
        }
    }

    /// Takes the slot that was freed last.
    fn take_free(&self) -> Option<u32> {
        let mut free = self.free.load(Acquire);
        loop {
            let number = (free as u32).checked_sub(1)?;
            // The value read here is out of date if another thread took the slot, but then `free`
            // has changed.
            let next = self.slots.get(number as usize)?.next.load(Relaxed);
            match self.free.compare_exchange_weak(free, after(free, next), AcqRel, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => free = now,
            }
        }
    }

    fn give_back(&self, slot: &Slot<T>, number: u32) {
        let mut free = self.free.load(Acquire);
        loop {
            slot.next.store(free as u32, Relaxed);
            match self.free.compare_exchange_weak(free, after(free, number + 1), AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    #[cold]
    fn refuse(&self, handle: u64) -> Failure {
        match handle {
            0 => Failure::new(Code::InvalidArgument, format!("the {} is null", self.name)),
            _ => Failure::new(Code::Closed, format!("the {} was closed, or is none", self.name)),
        }
    }
}

/// The value of [`Handles::free`] after `before`, with another first slot.
fn after(before: u64, first: u32) -> u64 {
    ((before >> 32).wrapping_add(1) << 32) | u64::from(first)
}

impl<T> Slot<T> {
    fn new() -> Slot<T> {
        Slot { entry: ArcSwapOption::empty(), used: AtomicU32::new(0), next: AtomicU32::new(0) }
    }
}

/// An object in use.
struct InUse<T>(Arc<Entry<T>>);

impl<T> Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0.object {
            Ok(object) => object,
            Err(_) => unreachable!("an entry with an object never loses it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    static TEXTS: Handles<Arc<str>> = Handles::new(1, "text");
    static NUMBERS: Handles<u64> = Handles::new(2, "number");

    /// A table whose slots retire early.
    const fn short<T: Send + Sync>(kind: u8, uses: u32) -> Handles<T> {
        let mut table = Handles::new(kind, "object");
        table.uses = uses;
        table
    }

    fn code<T>(result: Result<T>) -> Code {
        result.map(|_| ()).expect_err("refused").code
    }

    #[test]
    fn a_handle_works_until_it_is_closed() {
        let handle = TEXTS.keep("one".into()).expect("room").get();
        assert_eq!(&**TEXTS.get(handle).expect("open"), "one");
        assert_eq!(TEXTS.with(handle, |text| Ok(text.len())), Ok(3));
        TEXTS.close(handle).expect("open");
        assert_eq!(code(TEXTS.with(handle, |_| Ok(()))), Code::Closed);
        assert_eq!(code(TEXTS.get(handle)), Code::Closed);
        assert_eq!(code(TEXTS.close(handle)), Code::Closed);
        // The slot is used again, but the old handle does not lead to the new object.
        let handles: Vec<u64> =
            (0..100).map(|_| TEXTS.keep("other".into()).expect("room").get()).collect();
        assert_eq!(code(TEXTS.get(handle)), Code::Closed);
        handles.into_iter().for_each(|handle| TEXTS.close(handle).expect("open"));
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let number = NUMBERS.keep(7).expect("room").get();
        assert_eq!(code(TEXTS.get(number)), Code::Closed, "of another kind");
        assert_eq!(code(NUMBERS.get(0)), Code::InvalidArgument);
        for bits in [1, u64::MAX, 0xdead_beef, number ^ 1 << 40, number + 1] {
            assert_eq!(code(NUMBERS.get(bits)), Code::Closed, "{bits:x}");
        }
        NUMBERS.close(number).expect("open");
    }

    /// After a refresh of a follower, the handles that a program has lead to the new keyspaces.
    #[test]
    fn a_handle_takes_another_object() {
        let handle = TEXTS.keep("old".into()).expect("room").get();
        let old = TEXTS.get(handle).expect("open");
        TEXTS.replace(handle, Ok("new".into())).expect("open");
        assert_eq!((&**old, &**TEXTS.get(handle).expect("open")), ("old", "new"));
        let gone = Failure::new(Code::UnknownKeyspace, "it was dropped");
        TEXTS.replace(handle, Err(gone)).expect("open");
        assert_eq!(code(TEXTS.get(handle)), Code::UnknownKeyspace);
        assert_eq!(code(TEXTS.with(handle, |_| Ok(()))), Code::UnknownKeyspace);
        assert!(TEXTS.is_open(handle));
        TEXTS.close(handle).expect("it is still to be closed");
        assert!(!TEXTS.is_open(handle) && TEXTS.replace(handle, Ok("late".into())).is_err());
        assert_eq!(code(TEXTS.get(handle)), Code::Closed);
    }

    /// A close during a refresh still closes, and the slot is freed once.
    #[test]
    fn a_close_wins_over_those_who_replace() {
        static BOTH: Handles<u64> = Handles::new(6, "both");
        for round in 0..2000 {
            let handle = BOTH.keep(round).expect("room").get();
            let begin = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    while BOTH.replace(handle, Ok(round + 1)).is_ok() {}
                });
                begin.wait();
                BOTH.close(handle).expect("open");
            });
            assert_eq!(code(BOTH.close(handle)), Code::Closed);
        }
        assert_eq!(BOTH.slots.count(), 1);
    }

    #[test]
    fn an_object_in_use_outlives_its_handle() {
        let text: Arc<str> = "kept".into();
        let handle = TEXTS.keep(Arc::clone(&text)).expect("room").get();
        let in_use = TEXTS.get(handle).expect("open");
        let outlives = TEXTS.with(handle, |inside| {
            TEXTS.close(handle).expect("open");
            assert_eq!(code(TEXTS.get(handle)), Code::Closed);
            Ok(&**inside == "kept")
        });
        assert_eq!((outlives, &**in_use, Arc::strong_count(&text)), (Ok(true), "kept", 2));
        drop(in_use);
        assert_eq!(Arc::strong_count(&text), 1);
    }

    /// A program opened and closed cursors by the million, and by mistake closed one of the first
    /// again. Its number had been reused after 31 uses of the slot, so this closed the cursor of
    /// another thread. Now a number is never reused.
    #[test]
    fn a_closed_handle_is_never_that_of_another() {
        static ROUNDS: Handles<u64> = Handles::new(3, "round");
        let mut seen = HashSet::new();
        for round in 0..100_000 {
            let handle = ROUNDS.keep(round).expect("room").get();
            assert!(seen.insert(handle), "{handle:x} is given out again in round {round}");
            if round % 1000 == 0 {
                for old in seen.iter().filter(|old| **old != handle).take(500) {
                    assert_eq!(code(ROUNDS.get(*old)), Code::Closed);
                    assert_eq!(code(ROUNDS.close(*old)), Code::Closed);
                }
            }
            assert_eq!(ROUNDS.with(handle, |found| Ok(*found)), Ok(round));
            ROUNDS.close(handle).expect("open");
        }
        assert_eq!(ROUNDS.slots.count(), 1, "one slot was enough");
    }

    /// A slot whose uses are spent is not used again: its next handle would be its first one.
    #[test]
    fn a_slot_retires_when_its_uses_are_spent() {
        const USES: u32 = 10;
        static FEW: Handles<u32> = short(4, USES);
        let handles: Vec<u64> = (0..10 * USES)
            .map(|round| {
                let handle = FEW.keep(round).expect("room").get();
                FEW.close(handle).expect("open");
                handle
            })
            .collect();
        assert_eq!(handles.iter().collect::<HashSet<_>>().len(), handles.len());
        handles.iter().for_each(|handle| assert_eq!(code(FEW.close(*handle)), Code::Closed));
        assert_eq!(FEW.slots.count(), 10);
        assert_eq!(size_of::<Slot<Arc<str>>>(), 16, "and a mark of eight bytes beside it");
    }

    /// Threads that store, look up and close objects at once get separate handles, and only as many
    /// slots as objects existed at one time.
    #[test]
    fn threads_never_share_a_slot() {
        const THREADS: u64 = 8;
        static SHARED: Handles<u64> = short(5, 1000);
        let begin = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    for round in 0..20_000 {
                        let own = thread << 32 | round;
                        let handle = SHARED.keep(own).expect("room").get();
                        assert_eq!(SHARED.with(handle, |found| Ok(*found)), Ok(own));
                        SHARED.close(handle).expect("open");
                        assert_eq!(code(SHARED.close(handle)), Code::Closed);
                    }
                });
            }
        });
        let most = THREADS + THREADS * 20_000 / 1000;
        assert!(SHARED.slots.count() as u64 <= most, "{} slots", SHARED.slots.count());
    }
}
