//! A range tombstone, as metadata of the table that contains it. It acts by its sequence number
//! alone: every older entry in its range is deleted, in whichever table it is. So a table's bounds
//! need not cover the range, and a table may move regardless of it. Only dropping a tombstone
//! depends on the other tables of the tree: see [`crate::drop_guard::RangeGuard`].

use crate::shape::SeqNo;

/// Deletes all entries with keys in a range and with smaller sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The first key.
    pub start: Box<[u8]>,
    /// The least key after the range; `None` if it has no end.
    pub end: Option<Box<[u8]>>,
    /// The sequence number of the write.
    pub seq: SeqNo,
}

impl RangeDelete {
    /// Whether this deletes every key from `min_key` to `max_key`, both included.
    pub fn covers(&self, min_key: &[u8], max_key: &[u8]) -> bool {
        *self.start <= *min_key && self.end.as_ref().is_none_or(|end| *max_key < **end)
    }
}
