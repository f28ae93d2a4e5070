//! A range tombstone, as metadata of the table that holds it. It acts by its sequence number alone:
//! whatever is older is deleted, in whichever table it lies. So a table's bounds need not cover the
//! range, and a table may change its place without regard to it. Only the drop of a tombstone
//! depends on what else the tree holds: see [`crate::drop_guard::RangeGuard`].

use crate::shape::SeqNo;

/// Deletes the keys of a range in all entries with smaller numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The first key.
    pub start: Box<[u8]>,
    /// The least key after the range; `None` if it has no end.
    pub end: Option<Box<[u8]>>,
    /// The number of the write.
    pub seq: SeqNo,
}

impl RangeDelete {
    /// Whether this deletes every key between the two, both included.
    pub fn covers(&self, min_key: &[u8], max_key: &[u8]) -> bool {
        *self.start <= *min_key && self.end.as_ref().is_none_or(|end| *max_key < **end)
    }
}
