//! The bytes of one simulated file: sparse, and cheap to copy, because every crash point of every
//! workload copies the whole disk. Pages are shared until written to.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Space is counted in pages of this size.
pub(super) const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

/// A length and the pages that are not all zero. Bytes of the last page past the length are zero,
/// so that extending the file shows zeros there.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    len_bytes: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Image {
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Fills `buf`. Bytes past the end read as zeros; the caller checks lengths.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        for_each_page(offset, buf.len(), |page, in_page, in_buf, len| {
            let target = &mut buf[in_buf..in_buf + len];
            match self.pages.get(&page) {
                Some(bytes) => target.copy_from_slice(&bytes[in_page..in_page + len]),
                None => target.fill(0),
            }
        });
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.len_bytes = self.len_bytes.max(offset + data.len() as u64);
        for_each_page(offset, data.len(), |page, in_page, in_data, len| {
            let bytes =
                self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
            Arc::make_mut(bytes)[in_page..in_page + len]
                .copy_from_slice(&data[in_data..in_data + len]);
        });
    }

    pub(super) fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.clear(len_bytes, self.len_bytes);
        }
        self.len_bytes = len_bytes;
    }

    /// Zeros a range inside the file; the length stays.
    pub(super) fn punch(&mut self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes).min(self.len_bytes);
        if offset < end {
            self.clear(offset, end);
        }
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// How many bytes of a write of `len` at `offset` fit in `free_bytes` of new pages.
    pub(super) fn fitting_len(&self, offset: u64, len: usize, free_bytes: u64) -> usize {
        let mut free_pages = free_bytes / PAGE_BYTES;
        let mut fitting = 0;
        let mut is_full = false;
        for_each_page(offset, len, |page, _, _, len| {
            if !self.pages.contains_key(&page) {
                is_full |= free_pages == 0;
                free_pages = free_pages.saturating_sub(1);
            }
            if !is_full {
                fitting += len;
            }
        });
        fitting
    }

    /// Zeros `[start, end)`: whole pages are removed, the edges are overwritten. The last page
    /// counts as whole, because there are only zeros past the length.
    fn clear(&mut self, start: u64, end: u64) {
        let whole_end = if end == self.len_bytes { u64::MAX } else { end / PAGE_BYTES };
        let whole_start = start.div_ceil(PAGE_BYTES);
        self.pages.retain(|&page, _| page < whole_start || page >= whole_end);
        for edge in [start / PAGE_BYTES, end / PAGE_BYTES] {
            if let Some(bytes) = self.pages.get_mut(&edge) {
                let page_start = edge * PAGE_BYTES;
                let from = start.clamp(page_start, page_start + PAGE_BYTES) - page_start;
                let to = end.clamp(page_start, page_start + PAGE_BYTES) - page_start;
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }
}

/// Calls `f(page, offset in page, offset in range, length)` for each piece of a range.
fn for_each_page(offset: u64, len: usize, mut f: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let in_page = (at % PAGE_BYTES) as usize;
        let step = (len - done).min(PAGE_BYTES as usize - in_page);
        f(at / PAGE_BYTES, in_page, done, step);
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_random::Random;

    #[test]
    fn agrees_with_a_plain_vector() {
        let mut random = Random::new(7);
        let mut image = Image::default();
        let mut model: Vec<u8> = Vec::new();
        for _ in 0..2000 {
            let offset = random.below(20_000) as usize;
            let len = random.below(9000) as usize;
            match random.below(4) {
                0 => {
                    image.set_len(offset as u64);
                    model.resize(offset, 0);
                }
                1 => {
                    image.punch(offset as u64, len as u64);
                    let end = (offset + len).min(model.len());
                    model[offset.min(end)..end].fill(0);
                }
                _ => {
                    let mut data = vec![0; len + 1];
                    random.fill(&mut data);
                    image.write(offset as u64, &data);
                    model.resize(model.len().max(offset + data.len()), 0);
                    model[offset..offset + data.len()].copy_from_slice(&data);
                }
            }
            assert_eq!(image.to_vec(), model);
        }
    }
}
