//! The stores in which work may be due, for the threads that serve one store or many.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::sync::{Condvar, Mutex, rank};

use crate::schedule::POLL;

/// Whether a thread runs all jobs, or leaves compactions to others so that flushes never wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Flushes and what they need.
    Flushes,
    /// Whatever is due.
    Everything,
}

/// What a thread does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It checks the store with this number.
    Store(u64),
    /// It checks the stores that are idle.
    Tick,
    /// Nothing is noted, and the thread did not want to wait.
    Nothing,
    /// It ends.
    End,
}

/// Stores that wait to be checked, first come first served, each once.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<u64>,
    listed: HashSet<u64>,
}

impl Queue {
    fn add(&mut self, store: u64) {
        if self.listed.insert(store) {
            self.order.push_back(store);
        }
    }

    fn take(&mut self) -> Option<u64> {
        let store = self.order.pop_front()?;
        self.listed.remove(&store);
        Some(store)
    }
}

#[derive(Debug)]
struct State {
    /// Both kinds of threads look at each store that was noted.
    flushes: Queue,
    everything: Queue,
    /// Each kind has its own ticks, because the two kinds do different things at a tick. When they
    /// shared ticks, threads that only flush, which are not niced, got every tick.
    flush_tick_at: Instant,
    tick_at: Instant,
    is_ended: bool,
}

/// Whether some threads should end although others continue.
#[derive(Debug, Default)]
pub(crate) struct Dismissed(AtomicBool);

/// Which stores to look at. Its lock is a leaf.
#[derive(Debug)]
pub(crate) struct Ready {
    state: Mutex<rank::ReadyStores, State>,
    wake: Condvar,
}

impl Ready {
    /// No store yet.
    pub(crate) fn new() -> Ready {
        let (flushes, everything) = (Queue::default(), Queue::default());
        let tick_at = Instant::now() + POLL;
        let flush_tick_at = tick_at;
        let state = State { flushes, everything, flush_tick_at, tick_at, is_ended: false };
        Ready { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Notes that something may be due in this store.
    pub(crate) fn note(&self, store: u64) {
        let mut state = self.state.lock();
        state.flushes.add(store);
        state.everything.add(store);
        drop(state);
        self.wake.notify_all();
    }

    /// What the calling thread does next. Waits for it, unless the thread has other work. Every
    /// `POLL`, one thread of each kind gets a tick, however many stores are noted meanwhile.
    pub(crate) fn next(&self, serves: Serves, dismissed: &Dismissed, has_work: bool) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.is_ended || dismissed.0.load(Relaxed) {
                return Next::End;
            }
            let State { flushes, everything, flush_tick_at, tick_at, .. } = &mut *state;
            let (queue, tick_at) = match serves {
                Serves::Flushes => (flushes, flush_tick_at),
                Serves::Everything => (everything, tick_at),
            };
            let now = Instant::now();
            if now >= *tick_at {
                *tick_at = now + POLL;
                return Next::Tick;
            }
            if let Some(store) = queue.take() {
                return Next::Store(store);
            }
            if has_work {
                return Next::Nothing;
            }
            let until = *tick_at;
            self.wake.wait_until(&mut state, until);
        }
    }

    /// Ends the threads that call `next` with this value, each after its present job.
    pub(crate) fn dismiss(&self, some: &Dismissed) {
        let state = self.state.lock();
        some.0.store(true, Relaxed);
        drop(state);
        self.wake.notify_all();
    }

    /// Ends all threads, each after its present job.
    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_thread_looks_once_at_what_was_noted() {
        let ready = Ready::new();
        [3, 1, 3].iter().for_each(|store| ready.note(*store));
        let staying = Dismissed::default();
        let next = |serves| ready.next(serves, &staying, false);
        assert_eq!(
            [next(Serves::Flushes), next(Serves::Flushes)],
            [Next::Store(3), Next::Store(1)]
        );
        ready.note(1);
        let all = [next(Serves::Everything), next(Serves::Everything), next(Serves::Flushes)];
        assert_eq!(all, [Next::Store(3), Next::Store(1), Next::Store(1)]);
        // Only the tick is left: each kind has its own.
        assert_eq!([next(Serves::Everything), next(Serves::Flushes)], [Next::Tick, Next::Tick]);
        let others = Dismissed::default();
        ready.dismiss(&others);
        ready.note(1);
        assert_eq!(ready.next(Serves::Flushes, &others, true), Next::End);
        assert_eq!(next(Serves::Flushes), Next::Store(1));
        assert_eq!(ready.next(Serves::Flushes, &staying, true), Next::Nothing);
        ready.end();
        assert_eq!(next(Serves::Flushes), Next::End);
    }
}
