//! Pages of keys and values in the making; their layout is in `kv_page.rs`.

use super::kv_page::{
    CHECKSUM_AT, HEADER_BYTES, KEY_END_AT, KvPage, MAGIC, SLOT_BYTES, VALUE_END_AT,
};
use super::record::{KeyBlock, Version};
use crate::error::Result;
use crate::nand::{SharedBytes, SharedValue};

/// A page that is being made. Its memory serves page after page.
#[derive(Default)]
pub(super) struct Draft {
    slots: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<SharedValue>,
    value_bytes: usize,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn used_bytes(&self) -> usize {
        HEADER_BYTES + self.slots.len() + self.keys.len() + self.value_bytes
    }

    pub(super) fn push(&mut self, key: &[u8], version: Version) {
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

    /// The page of what was pushed: at least one record. The draft is empty again.
    pub(super) fn finish(&mut self, page_bytes: usize) -> KvPage {
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
/// block and returns `false` behind the last; `emit` gets each group.
pub fn build_pages(
    mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
    page_bytes: usize,
    mut emit: impl FnMut(KvPage) -> Result<()>,
) -> Result<()> {
    let mut block = KeyBlock::default();
    let mut draft = Draft::default();
    while next_key(&mut block)? {
        if draft.used_bytes() + block.page_bytes() > page_bytes && !draft.is_empty() {
            emit(draft.finish(page_bytes))?;
        }
        let KeyBlock { key, versions } = &mut block;
        versions.drain(..).for_each(|version| draft.push(key, version));
    }
    if !draft.is_empty() {
        emit(draft.finish(page_bytes))?;
    }
    Ok(())
}
