//! How a walk charges tables with seeks, if the keyspace's policy wants to know (`tree::seeks`).

use std::mem;

use super::Walker;
use crate::keys::is_pointer;

/// A walk tells what it has read this many bytes at a time, and its rest at its end.
const TELL_BYTES: u64 = 64 << 10;

impl Walker {
    /// Counts the entry that the walk is about to leave, as the tree holds it: without a value that
    /// is separated.
    pub(super) fn count_read(&mut self) {
        let (key, value) = self.entry();
        let inline_bytes = if is_pointer(self.trailer_and_expiry().0) { 0 } else { value.len() };
        self.untold_bytes += (key.len() + inline_bytes) as u64;
        if self.untold_bytes >= TELL_BYTES {
            self.tell_read();
        }
    }

    /// Tells the tree what was read since the last time. A parked walk has no tree.
    pub(super) fn tell_read(&mut self) {
        let bytes = mem::take(&mut self.untold_bytes);
        let Some(view) = self.view.as_ref().filter(|_| bytes > 0) else { return };
        if view.version.note_read(self.entry().0, bytes) {
            self.reader.stir(&self.keyspace);
        }
    }
}
