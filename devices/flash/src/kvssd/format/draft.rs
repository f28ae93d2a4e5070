//! Pages of keys and values while they are being built. Their layout is in `kv_page.rs`.

use std::ops::Range;

use crate::error::Result;
use crate::kvssd::format::kv_page::{
    CHECKSUM_AT, HEADER_BYTES, KEY_END_AT, KvPage, MAGIC, SLOT_BYTES, VALUE_END_AT,
};
use crate::kvssd::format::record::{KeyBlock, Version};
use crate::nand::{SharedBytes, SharedValue};

/// A page that is being built. Its memory is reused for page after page.
#[derive(Default)]
pub(crate) struct Draft {
    slots: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<SharedValue>,
    value_bytes: usize,
}

impl Draft {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn used_bytes(&self) -> usize {
        HEADER_BYTES + self.slots.len() + self.keys.len() + self.value_bytes
    }

    pub(crate) fn push(&mut self, key: &[u8], version: Version) {
        self.keys.extend_from_slice(key);
        self.value_bytes += version.value.len();
        let mut slot = [0; SLOT_BYTES];
        let stamp = version.seq << 8 | version.kind as u64;
        slot[..KEY_END_AT].copy_from_slice(&stamp.to_le_bytes());
        slot[KEY_END_AT..VALUE_END_AT].copy_from_slice(&(self.keys.len() as u32).to_le_bytes());
        slot[VALUE_END_AT..CHECKSUM_AT].copy_from_slice(&(self.value_bytes as u32).to_le_bytes());
        slot[CHECKSUM_AT..].copy_from_slice(&version.checksum.to_le_bytes());
        self.slots.extend_from_slice(&slot);
        self.values.push(version.value);
    }

    /// Takes as many records from a run as fit, or at least one if the draft is empty. In the new
    /// page only the two ends in each slot differ, and they are computed by additions, so nothing
    /// is read twice.
    fn push_run(&mut self, page: &KvPage, run: &mut Range<usize>, page_bytes: usize) {
        let (keys_from, values_from) = page.ends(run.start);
        let (keys_to, values_to) = (self.keys.len(), self.value_bytes);
        let other_bytes = HEADER_BYTES + self.slots.len() + keys_to + values_to;
        let (slots, keys) = page.slots_and_keys(run.clone());
        let (mut count, mut key_bytes) = (0, 0);
        for slot in slots.chunks_exact(SLOT_BYTES) {
            let end =
                |at: usize| slot[at..].first_chunk().map_or(0, |end| u32::from_le_bytes(*end));
            let run_keys = end(KEY_END_AT) as usize - keys_from;
            let run_values = end(VALUE_END_AT) as usize - values_from;
            let bytes = (count + 1) * SLOT_BYTES + run_keys + run_values;
            if other_bytes + bytes > page_bytes && (count > 0 || !self.is_empty()) {
                break;
            }
            (count, key_bytes) = (count + 1, run_keys);
            self.value_bytes = values_to + run_values;
            self.slots.extend_from_slice(&slot[..KEY_END_AT]);
            self.slots.extend_from_slice(&((keys_to + run_keys) as u32).to_le_bytes());
            self.slots.extend_from_slice(&(self.value_bytes as u32).to_le_bytes());
            self.slots.extend_from_slice(&slot[CHECKSUM_AT..]);
        }
        self.keys.extend_from_slice(&keys[..key_bytes]);
        let taken = run.start..run.start + count;
        run.start = taken.end;
        self.values.extend_from_slice(&page.bytes().values()[taken]);
    }

    /// Makes a page of the pushed records, of which there is at least one. The draft is empty
    /// again.
    pub(crate) fn finish(&mut self, page_bytes: usize) -> KvPage {
        let len = self.used_bytes().next_multiple_of(page_bytes);
        let mut front = Vec::with_capacity(HEADER_BYTES + self.slots.len() + self.keys.len());
        for word in [MAGIC, 0, 0, self.values.len() as u32] {
            front.extend_from_slice(&word.to_le_bytes());
        }
        front.extend_from_slice(&self.slots);
        front.extend_from_slice(&self.keys);
        self.slots.clear();
        self.keys.clear();
        self.value_bytes = 0;
        let next_values = Vec::with_capacity(self.values.len());
        let values = std::mem::replace(&mut self.values, next_values);
        KvPage::of(SharedBytes::gathered(front, values, len))
    }
}

/// Packs keys in order into page groups. `next_key` adds the versions of the next key to an empty
/// block, and returns `false` after the last key. `emit` receives each group.
pub fn build_pages(
    mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
    page_bytes: usize,
    mut emit: impl FnMut(KvPage) -> Result<()>,
) -> Result<()> {
    let mut block = KeyBlock::default();
    let mut draft = Draft::default();
    while next_key(&mut block)? {
        if let Some((page, mut run)) = block.run.take() {
            draft.push_run(&page, &mut run, page_bytes);
            while !run.is_empty() {
                emit(draft.finish(page_bytes))?;
                draft.push_run(&page, &mut run, page_bytes);
            }
            continue;
        }
        if draft.used_bytes() + block.page_bytes() > page_bytes && !draft.is_empty() {
            emit(draft.finish(page_bytes))?;
        }
        let KeyBlock { key, versions, .. } = &mut block;
        versions.drain(..).for_each(|version| draft.push(key, version));
    }
    if !draft.is_empty() {
        emit(draft.finish(page_bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::format::record::Kind;

    fn pages(blocks: Vec<KeyBlock>) -> Vec<SharedBytes> {
        let (mut blocks, mut pages) = (blocks.into_iter(), Vec::new());
        let next_key = |block: &mut KeyBlock| {
            let next = blocks.next();
            let is_there = next.is_some();
            *block = next.unwrap_or_default();
            Ok(is_there)
        };
        let emit = |page: KvPage| {
            pages.push(page.bytes().clone());
            Ok(())
        };
        build_pages(next_key, 512, emit).unwrap();
        pages
    }

    /// Tests runs from pages of any kind, and a value that is larger than a page.
    #[test]
    fn runs_make_the_pages_that_their_records_make() {
        let mut random = runstone_random::Random::new(7);
        for round in 0..200 {
            let lens: Vec<usize> = (0..20).map(|_| random.below(120) as usize).collect();
            let block = |at: usize| {
                let len = if at == round { 1300 } else { lens[at] };
                let mut block = KeyBlock::default();
                let version = Version::new(at as u64 + 1, Kind::Put, &vec![at as u8; len]);
                block.push(format!("{at:02}{}", "x".repeat(at % 3)).as_bytes(), version);
                block
            };
            let expected = pages((0..20).map(block).collect());
            let mut runs = pages((0..3).map(block).collect());
            runs.extend(pages((3..20).map(block).collect()));
            let of_run = |bytes: SharedBytes| {
                let page = KvPage::decode(bytes, 512).unwrap();
                let (run, middle) = (page.record_count(), page.record_count() / 2);
                let run = [0..middle, middle..run].map(|run| Some((page.clone(), run)));
                run.map(|run| KeyBlock { run, ..KeyBlock::default() })
            };
            let is_run =
                |block: &KeyBlock| block.run.as_ref().is_some_and(|(_, run)| !run.is_empty());
            let found = pages(runs.into_iter().flat_map(of_run).filter(is_run).collect());
            let flat = |pages: &[SharedBytes]| -> Vec<Vec<u8>> {
                pages.iter().map(|page| page.flat().into_owned()).collect()
            };
            assert_eq!(flat(&found), flat(&expected));
        }
    }
}
