//! The snapshots that are held. They are in RAM: they end with the device.

use std::collections::BTreeMap;

/// See the module docs.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// How many readers hold each, by sequence number.
    held: BTreeMap<u64, u32>,
    /// Bytes of the largest record written while snapshots were held. Reset by a snapshot that is
    /// taken while no other is held.
    largest_bytes: usize,
}

impl Snapshots {
    pub(super) fn hold(&mut self, seq: u64) {
        if self.held.is_empty() {
            self.largest_bytes = 0;
        }
        *self.held.entry(seq).or_insert(0) += 1;
    }

    /// Releases a snapshot. Returns whether nobody holds it any more.
    pub(super) fn release(&mut self, seq: u64) -> bool {
        let Some(count) = self.held.get_mut(&seq) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.held.remove(&seq);
        }
        is_last
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.held.first_key_value().map(|(seq, _)| *seq)
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.newest_before(u64::MAX)
    }

    pub(super) fn newest_before(&self, end: u64) -> Option<u64> {
        self.held.range(..end).next_back().map(|(seq, _)| *seq)
    }

    /// All of them, ascending.
    pub(super) fn all(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    /// Notes the bytes of a record that is written.
    pub(super) fn note(&mut self, record_bytes: usize) {
        if !self.held.is_empty() {
            self.largest_bytes = self.largest_bytes.max(record_bytes);
        }
    }

    /// The most bytes that one key's versions may take if snapshots see them; `None` without
    /// snapshots. At most one of these versions was written before there were snapshots, and it
    /// takes up to `most_record` bytes. The others are no larger than the largest record since.
    pub(super) fn most_bytes(&self, most_record: usize) -> Option<usize> {
        let others = self.held.len().checked_sub(1)?;
        Some(most_record + others * self.largest_bytes)
    }
}
