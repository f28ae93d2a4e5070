//! The open cursors of a store. The list is needed to take back outdated memory that cursors hold.
//! Otherwise a cursor that its user does not move would keep memtables that were flushed long ago,
//! and tables that compactions have replaced.

use std::fmt::Debug;
use std::sync::Arc;

use crate::sync::{Mutex, looked, rank};

use crate::visibility::standing::{Standing, visit};

/// The number of cursors that are blocked at a time while they are visited.
const VISITED_TOGETHER: usize = 64;

/// How many slots are looked at under one hold of their lock, which each cursor takes when it
/// begins and ends.
const PAGE: usize = 1024;

/// Memory that a cursor released, to be dropped when the cursor is no longer blocked.
pub(crate) type Left = Box<dyn Send>;

/// A cursor, as threads that need its memory see it.
pub(crate) trait Park: Debug + Send {
    /// Releases memory that is out of date. The entry that the cursor shows stays where it is.
    fn park(&mut self) -> Option<Left>;
}

/// All open cursors.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<rank::StandingCursors, Slots>);

#[derive(Debug, Default)]
struct Slots {
    cursors: Vec<Option<Arc<Standing<dyn Park>>>>,
    free: Vec<usize>,
}

impl Cursors {
    /// Adds a cursor. Returns its slot. O(1).
    pub(crate) fn add(&self, cursor: Arc<Standing<dyn Park>>) -> usize {
        let mut slots = self.0.lock();
        match slots.free.pop() {
            Some(slot) => {
                slots.cursors[slot] = Some(cursor);
                slot
            }
            None => {
                slots.cursors.push(Some(cursor));
                slots.cursors.len() - 1
            }
        }
    }

    /// Removes a cursor. O(1).
    pub(crate) fn remove(&self, slot: usize) {
        let mut slots = self.0.lock();
        let removed = slots.cursors[slot].take();
        slots.free.push(slot);
        drop(slots);
        drop(removed);
    }

    /// Parks the idle cursors. Cursors in use park themselves at their next step. O(cursors): a few
    /// microseconds for each 64 of them.
    pub(crate) fn park(&self) {
        let mut from = 0;
        loop {
            // A cursor that begins meanwhile has its memory of what is there now.
            let slots = self.0.lock();
            let to = slots.cursors.len().min(from + PAGE);
            let some: Vec<_> = slots.cursors[from.min(to)..to].iter().flatten().cloned().collect();
            looked((to - from.min(to)) as u64);
            drop(slots);
            for together in some.chunks(VISITED_TOGETHER) {
                let mut left = Vec::new();
                visit(together, |cursor| left.extend(cursor.park()));
            }
            if to < from + PAGE {
                return;
            }
            from = to;
        }
    }
}
