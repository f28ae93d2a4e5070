//! A double-ended standard iterator, made of two cursors, one for each end.

use crate::error::Result;
use crate::values::Value;

/// The operations that such an iterator needs from a cursor.
pub(crate) trait Walking {
    fn go_to_first(&mut self) -> Result<()>;
    fn go_to_last(&mut self) -> Result<()>;
    fn go_up(&mut self) -> Result<()>;
    fn go_down(&mut self) -> Result<()>;
    /// Whether the cursor is on an entry. If it is on one after an error, the entry has no value,
    /// and the walk may continue.
    fn has_entry(&self) -> bool;
    fn key(&self) -> &[u8];
    fn value(&self) -> Value;
}

/// An owned entry.
pub(crate) type Entry = (Vec<u8>, Value);

/// Two cursors that walk towards each other, until they meet or one fails.
#[derive(Debug)]
pub(crate) struct Ends<C> {
    front: Option<C>,
    back: Option<C>,
    done: bool,
}

impl<C> Default for Ends<C> {
    fn default() -> Self {
        Ends { front: None, back: None, done: false }
    }
}

impl<C: Walking> Ends<C> {
    /// The next entry from the lower or the upper end. `open` makes a cursor.
    pub(crate) fn advance(
        &mut self,
        is_upward: bool,
        open: impl FnOnce() -> Result<C>,
    ) -> Option<Result<Entry>> {
        if self.done {
            return None;
        }
        let item = self.step(is_upward, open).transpose();
        let cursor = if is_upward { &self.front } else { &self.back };
        self.done |= match &item {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(_)) => !cursor.as_ref().is_some_and(C::has_entry),
        };
        item
    }

    fn step(&mut self, is_upward: bool, open: impl FnOnce() -> Result<C>) -> Result<Option<Entry>> {
        let slot = if is_upward { &mut self.front } else { &mut self.back };
        let (cursor, outcome) = match (slot, is_upward) {
            (Some(cursor), true) => {
                let outcome = cursor.go_up();
                (cursor, outcome)
            }
            (Some(cursor), false) => {
                let outcome = cursor.go_down();
                (cursor, outcome)
            }
            (slot, true) => {
                let cursor = slot.insert(open()?);
                let outcome = cursor.go_to_first();
                (cursor, outcome)
            }
            (slot, false) => {
                let cursor = slot.insert(open()?);
                let outcome = cursor.go_to_last();
                (cursor, outcome)
            }
        };
        if !cursor.has_entry() {
            return outcome.map(|()| None);
        }
        let entry = outcome.map(|()| (cursor.key().to_vec(), cursor.value()));
        if self.have_met() { Ok(None) } else { entry.map(Some) }
    }

    /// Whether the cursors have met, or one of them has passed all entries.
    fn have_met(&self) -> bool {
        let Some((front, back)) = self.front.as_ref().zip(self.back.as_ref()) else { return false };
        !front.has_entry() || !back.has_entry() || front.key() >= back.key()
    }
}
