//! Entries that an iterator has read ahead. Reading them may wait, so it is done while other
//! threads of Python run, for many at a time; the objects of Python are made of them later.

/// An iterator first reads this many entries, and each later page is half as large again, up to the
/// largest. So when its user stops, the unused entries are fewer than half of the used ones and a
/// first page. With pages that double, there could be as many unused entries as used ones.
pub const FIRST_ENTRIES: usize = 8;
const MOST_ENTRIES: usize = 512;
/// A page ends after this many bytes.
pub const MOST_BYTES: usize = 256 << 10;

/// The number of entries of the page after a page of `entries`.
pub fn more(entries: usize) -> usize {
    (entries + entries.div_ceil(2)).min(MOST_ENTRIES)
}

/// Entries in the direction in which they were read, and how many of them were given.
#[derive(Default)]
pub struct Page {
    bytes: Vec<u8>,
    /// For each entry, where its key and its value end. They begin where the entry before ends.
    ends: Vec<(usize, usize)>,
    given: usize,
    /// Where the next one begins.
    at: usize,
}

impl Page {
    /// The next entry, which is given.
    #[inline]
    pub fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let (key_end, value_end) = *self.ends.get(self.given)?;
        self.given += 1;
        let start = std::mem::replace(&mut self.at, value_end);
        Some((&self.bytes[start..key_end], &self.bytes[key_end..value_end]))
    }

    /// The entry that was given last, which is taken back.
    #[inline]
    pub fn back(&mut self) -> Option<(&[u8], &[u8])> {
        self.given = self.given.checked_sub(1)?;
        self.at = self.given.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.look()
    }

    /// The entry that would be given next.
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

    /// Whether all were given.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.given == self.ends.len()
    }

    /// Whether none was given.
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
