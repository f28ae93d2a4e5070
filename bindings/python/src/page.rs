//! Entries that an iterator has read ahead. Reading may wait, so many entries are read at a time
//! while other Python threads run. The Python objects are made from them later.

/// An iterator first reads this many entries, and each later page is half as large again, up to the
/// largest. So when its user stops, the unused entries are fewer than half of the used ones plus a
/// first page. With pages that double, there could be as many unused entries as used ones.
pub const FIRST_ENTRIES: usize = 8;
const MOST_ENTRIES: usize = 512;
/// A page ends after this many bytes.
pub const MOST_BYTES: usize = 256 << 10;

/// The number of entries of the page after a page of `entries`.
pub fn more(entries: usize) -> usize {
    (entries + entries.div_ceil(2)).min(MOST_ENTRIES)
}

/// Entries in the direction in which they were read, and how many of them were returned.
#[derive(Default)]
pub struct Page {
    bytes: Vec<u8>,
    /// For each entry, where its key and its value end. They begin where the previous entry ends.
    ends: Vec<(usize, usize)>,
    given: usize,
    /// The index of the next entry to return.
    at: usize,
}

impl Page {
    /// Returns the next entry, and advances.
    #[inline]
    pub fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end) = *self.ends.get(self.given)?;
        self.given += 1;
        let start = std::mem::replace(&mut self.at, value_end);
        Some((&self.bytes[start..key_end], &self.bytes[key_end..value_end]))
    }

    /// Returns the last returned entry again, and steps back.
    #[inline]
    pub fn back(&mut self) -> Option<(&[u8], &[u8])> {
        self.given = self.given.checked_sub(1)?;
        self.at = self.given.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.look()
    }

    /// The entry that would be returned next.
    #[inline]
    pub fn look(&self) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end) = *self.ends.get(self.given)?;
        Some((&self.bytes[self.at..key_end], &self.bytes[key_end..value_end]))
    }

    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether all entries were returned.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.given == self.ends.len()
    }

    /// Whether no entry was returned yet.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.given == 0
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.given, self.at) = (0, 0);
    }
}
