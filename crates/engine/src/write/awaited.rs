//! The commits of a store for which somebody waits, and their wakers. This file neither writes nor
//! syncs; `later` does both.
//!
//! A commit enters the queue when it is first polled, at the place of its last sequence number. A
//! sync makes everything up to some sequence number durable, so the commits that it served are the
//! front of the queue. They are taken out together: each commit is put in once and taken out once,
//! however many wait. Rejected: a list that each sync searches, which would look at all waiting
//! commits each time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::task::Waker;

use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::sync::{Aside, Mutex, rank};

/// The commits that wait for a sync.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Everything up to here must become durable, because somebody awaits it.
    wanted_seq: AtomicU64,
    /// Whether a sync was requested and has not begun.
    is_noted: AtomicBool,
    waiting: Mutex<rank::Awaited, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Sorted by sequence number, and by ticket if the numbers are equal.
    queue: VecDeque<Waiter>,
    last_ticket: u64,
    /// The reason why there will be no later sync: a sync failed, or the store is closed.
    ended: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    seq: SeqNo,
    ticket: u64,
    /// `None` if the commit was dropped.
    waker: Option<Waker>,
}

impl Awaited {
    /// Requests a sync up to this sequence number. Returns `true` if the caller must notify the
    /// thread or the jobs.
    pub(super) fn want(&self, seq: SeqNo) -> bool {
        self.wanted_seq.fetch_max(seq, AcqRel);
        // A swap, not a load: if it finds the request of another commit, the thread that takes this
        // request sees the sequence number set here.
        !self.is_noted.swap(true, AcqRel)
    }

    /// Whether a sync is wanted that has not begun.
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted.load(Acquire)
    }

    /// Begins a sync. Returns the sequence number up to which it is wanted.
    pub(super) fn begin(&self) -> SeqNo {
        self.is_noted.swap(false, AcqRel);
        self.wanted_seq.load(Acquire)
    }

    /// The outcome of a commit; `None` if it waits. `is_durable` is called under the lock under
    /// which commits are woken, so a commit that enters the queue is woken by the next sync.
    pub(super) fn poll(
        &self,
        (seq, ticket): (SeqNo, &mut Option<u64>),
        waker: &Waker,
        is_durable: impl Fn() -> bool,
    ) -> Option<Result<()>> {
        let mut waiting = self.waiting.lock();
        if is_durable() {
            return Some(Ok(()));
        }
        if let Some(error) = &waiting.ended {
            return Some(Err(error.clone()));
        }
        let replaced = match *ticket {
            Some(ticket) => {
                let waiter = waiting.find(seq, ticket);
                invariant!(waiter.is_some(), "a commit that waits has left the queue");
                waiter.and_then(|waiter| match &mut waiter.waker {
                    Some(known) if known.will_wake(waker) => None,
                    known => known.replace(waker.clone()),
                })
            }
            None => {
                *ticket = Some(waiting.add(seq, waker.clone()));
                None
            }
        };
        drop(waiting);
        // Dropping a waker may run a program's code.
        drop(replaced);
        None
    }

    /// The outcome of a commit that nobody polls; `None` if it waits.
    pub(super) fn outcome(&self, is_durable: impl Fn() -> bool) -> Option<Result<()>> {
        let waiting = self.waiting.lock();
        let ended = waiting.ended.as_ref().map(|error| Err(error.clone()));
        if is_durable() { Some(Ok(())) } else { ended }
    }

    /// Forgets the waker of a commit that is dropped. The next sync removes its place.
    pub(super) fn forget(&self, seq: SeqNo, ticket: u64) {
        let waker = self.waiting.lock().find(seq, ticket).and_then(|waiter| waiter.waker.take());
        drop(waker);
    }

    /// Wakes the commits up to a number that is durable.
    pub(super) fn wake_through(&self, durable_seq: SeqNo) {
        let served: Vec<Waiter> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.queue.partition_point(|waiter| waiter.seq <= durable_seq);
            waiting.queue.drain(..count).collect()
        };
        wake(served);
    }

    /// Wakes all commits, because there will be no further sync: those that are not durable end
    /// with this error, unless there was an earlier one.
    pub(super) fn end(&self, error: Error) {
        let all = {
            let mut waiting = self.waiting.lock();
            waiting.ended.get_or_insert(error);
            std::mem::take(&mut waiting.queue)
        };
        wake(all);
    }

    /// Whether there will be no further sync.
    pub(super) fn has_ended(&self) -> bool {
        self.waiting.lock().ended.is_some()
    }
}

impl Waiting {
    /// Adds a commit. Commits usually arrive in order, so its place is usually at the end.
    fn add(&mut self, seq: SeqNo, waker: Waker) -> u64 {
        self.last_ticket += 1;
        let waiter = Waiter { seq, ticket: self.last_ticket, waker: Some(waker) };
        match self.queue.back() {
            Some(last) if last.seq > seq => {
                let at = self.queue.partition_point(|one| one.seq <= seq);
                self.queue.insert(at, waiter);
            }
            _ => self.queue.push_back(waiter),
        }
        self.last_ticket
    }

    fn find(&mut self, seq: SeqNo, ticket: u64) -> Option<&mut Waiter> {
        let at = self.queue.binary_search_by_key(&(seq, ticket), |one| (one.seq, one.ticket));
        self.queue.get_mut(at.ok()?)
    }
}

/// Wakes commits. A waker runs code of the program, which may use other stores. If it panics, the
/// panic concerns only that task: the next commits are woken nevertheless.
fn wake(served: impl IntoIterator<Item = Waiter>) {
    let _aside = Aside::begin();
    for waiter in served {
        let _ = catch_unwind(AssertUnwindSafe(|| waiter.waker.map(Waker::wake)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    /// Polls a commit. Returns how often it was woken, and its ticket.
    fn enter(awaited: &Awaited, seq: SeqNo) -> (Arc<Count>, Option<u64>) {
        let (count, mut ticket) = (Arc::new(Count::default()), None);
        let waker = Waker::from(Arc::clone(&count));
        assert!(awaited.poll((seq, &mut ticket), &waker, || false).is_none());
        (count, ticket)
    }

    #[test]
    fn a_sync_wakes_what_it_served_in_whatever_order_it_came() {
        let awaited = Awaited::default();
        let all = [5, 3, 9, 3, 7].map(|seq| (seq, enter(&awaited, seq).0));
        awaited.wake_through(5);
        all.iter().for_each(|(seq, count)| assert_eq!(count.get(), usize::from(*seq <= 5)));
        awaited.wake_through(9);
        assert!(all.iter().all(|(_, count)| count.get() == 1));
        assert!(awaited.waiting.lock().queue.is_empty());
    }

    #[test]
    fn the_last_waker_of_a_commit_counts_and_a_dropped_one_is_let_go() {
        let awaited = Awaited::default();
        let (first, mut ticket) = enter(&awaited, 4);
        let (other, dropped) = enter(&awaited, 4);
        let second = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&second));
        assert!(awaited.poll((4, &mut ticket), &waker, || false).is_none());
        assert_eq!(Arc::strong_count(&first), 1, "the first waker is gone");
        awaited.forget(4, dropped.expect("it waits"));
        assert_eq!(Arc::strong_count(&other), 1);
        awaited.wake_through(4);
        assert_eq!([first.get(), second.get(), other.get()], [0, 1, 0]);
        awaited.forget(4, ticket.expect("it waited"));
    }

    #[test]
    fn the_first_error_is_that_of_all_that_are_not_durable() {
        let awaited = Awaited::default();
        let (count, mut ticket) = enter(&awaited, 1);
        awaited.end(Error::ReadOnly);
        awaited.end(Error::Closed);
        assert_eq!(count.get(), 1);
        let waker = Waker::from(count);
        let outcome = awaited.poll((1, &mut ticket), &waker, || false);
        assert!(matches!(outcome, Some(Err(Error::ReadOnly))));
        assert!(matches!(awaited.poll((1, &mut ticket), &waker, || true), Some(Ok(()))));
        assert!(matches!(awaited.outcome(|| false), Some(Err(Error::ReadOnly))));
    }

    /// The waker of one task is broken; the others are woken nevertheless.
    #[test]
    fn a_waker_that_panics_keeps_nobody_asleep() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("a broken waker");
            }
        }
        let awaited = Awaited::default();
        let broken = Waker::from(Arc::new(Panics));
        assert!(awaited.poll((1, &mut None), &broken, || false).is_none());
        let (count, _) = enter(&awaited, 2);
        awaited.wake_through(2);
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn one_note_asks_for_all_that_came_before_the_sync() {
        let awaited = Awaited::default();
        assert!(awaited.want(7));
        assert!(!awaited.want(3) && !awaited.want(9));
        assert!(awaited.is_noted());
        assert_eq!(awaited.begin(), 9);
        assert!(!awaited.is_noted());
        assert!(awaited.want(10), "a later one asks again");
    }
}
