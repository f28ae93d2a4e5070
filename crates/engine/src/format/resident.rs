//! Finds the blocks of a partition that are in memory, by their number. So a search goes from the
//! separator straight to the block. The cache would have to search its hash table and update the
//! list of a shard, under a lock. That would be a fifth of the time of a get that finds everything
//! in memory.
//!
//! The cache alone decides what stays. From a block's second use on, a partition knows where the
//! block is, for as long as the cache or a reader holds it. A block that is dropped removes itself
//! here. The cache does not see most uses, so a use is reported to the cache once in each of its
//! turns (`Cache::is_due`).

use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapWeak;

use crate::format::block::Block;

type Places = Box<[ArcSwapWeak<Block>]>;

/// The blocks of a partition that are in memory.
#[derive(Debug)]
pub struct Residents(Arc<Places>);

/// The partition that knows a block, and the block's number there. At most one partition does.
#[derive(Debug, Default)]
pub struct Home(OnceLock<(Weak<Places>, u32)>);

impl Residents {
    /// A partition of `count` blocks, none of which is known.
    pub fn new(count: usize) -> Residents {
        Residents(Arc::new((0..count).map(|_| ArcSwapWeak::new(Weak::new())).collect()))
    }

    /// Block `i`, if it is known to be in memory. Takes no lock.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Arc<Block>> {
        self.0.get(i)?.load().upgrade()
    }

    /// Notes that block `i` is in the cache. If another partition already knows the block, nothing
    /// changes: the same part of the file was read twice.
    pub fn note(&self, i: usize, block: &Arc<Block>) {
        let Ok(number) = u32::try_from(i) else { return };
        let (places, at) = block.home.0.get_or_init(|| (Arc::downgrade(&self.0), number));
        if let Some(place) = self.0.get(i)
            && *at == number
            && std::ptr::addr_eq(places.as_ptr(), Arc::as_ptr(&self.0))
        {
            place.store(Arc::downgrade(block));
        }
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        size_of_val(&**self.0)
    }
}

impl Drop for Block {
    /// Removes the block from the partition that knows it. Its memory is freed with the last weak
    /// pointer.
    fn drop(&mut self) {
        let Some((places, at)) = self.home.0.get() else { return };
        let Some(places) = places.upgrade() else { return };
        let Some(place) = places.get(*at as usize) else { return };
        // If another copy has taken its place, nothing changes.
        place.compare_and_swap(std::ptr::from_ref(self), Weak::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::BlockBuilder;

    fn block() -> Arc<Block> {
        let (mut builder, mut raw) = (BlockBuilder::new(4, false), Vec::new());
        builder.add(b"key", 256, b"value");
        builder.finish(&mut raw);
        Arc::new(Block::parse(raw).expect("own block"))
    }

    #[test]
    fn a_block_is_known_for_as_long_as_somebody_holds_it() {
        let residents = Residents::new(3);
        let first = block();
        residents.note(1, &first);
        assert!(residents.get(1).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(residents.get(0).is_none() && residents.get(2).is_none());
        assert!(residents.get(3).is_none(), "no such block");
        let reader = Arc::clone(&first);
        drop(first);
        assert!(residents.get(1).is_some(), "a reader holds it");
        let place = residents.0[1].load_full();
        drop(reader);
        assert!(residents.get(1).is_none());
        assert_eq!(place.weak_count(), 0, "no value is left to count");
        assert!(Weak::ptr_eq(&residents.0[1].load(), &Weak::new()), "and it left nothing behind");
    }

    #[test]
    fn a_copy_that_goes_takes_nothing_of_the_other() {
        let residents = Residents::new(1);
        let (first, second) = (block(), block());
        residents.note(0, &first);
        residents.note(0, &second);
        drop(first);
        assert!(residents.get(0).is_some_and(|found| Arc::ptr_eq(&found, &second)));
    }

    #[test]
    fn a_block_is_known_to_one_partition_which_may_go_first() {
        let (old, new) = (Residents::new(2), Residents::new(2));
        let block = block();
        old.note(0, &block);
        new.note(0, &block);
        old.note(1, &block);
        assert!(old.get(0).is_some() && old.get(1).is_none() && new.get(0).is_none());
        drop(old);
        new.note(0, &block);
        assert!(new.get(0).is_none(), "it could not take itself away again");
        drop(block);
    }
}
