//! Device blocks that were read ahead: the part of a machine's page cache that hints fill. The
//! oldest blocks are dropped first.

use std::collections::{BTreeMap, VecDeque};

use super::extents::Run;

/// The most blocks that are kept: 8 MiB, room for the hints of a few walks.
const MOST_BLOCKS: usize = 2048;

/// A block, and the simulated moment at which it arrives.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) bytes: Box<[u8]>,
    pub(super) at_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ahead {
    blocks: BTreeMap<u64, Arrival>,
    /// Blocks in the order in which they were requested. Some may have been dropped since.
    order: VecDeque<u64>,
}

impl Ahead {
    pub(super) fn get(&self, block: u64) -> Option<&Arrival> {
        self.blocks.get(&block)
    }

    /// The number of blocks from `block` on, up to `limit`, that were not read ahead.
    pub(super) fn missing(&self, block: u64, limit: u64) -> u64 {
        self.blocks.range(block..).next().map_or(limit, |(&next, _)| limit.min(next - block))
    }

    pub(super) fn insert(&mut self, block: u64, arrival: Arrival) {
        if self.blocks.insert(block, arrival).is_none() {
            self.order.push_back(block);
        }
        while self.order.len() > MOST_BLOCKS {
            self.order.pop_front().map(|oldest| self.blocks.remove(&oldest));
        }
    }

    /// Drops blocks that the host writes.
    pub(super) fn drop_run(&mut self, run: Run) {
        while let Some((&block, _)) = self.blocks.range(run.start..run.start + run.count).next() {
            self.blocks.remove(&block);
            self.order.retain(|other| *other != block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_and_written_ones_are_dropped() {
        let mut ahead = Ahead::default();
        let put = |ahead: &mut Ahead, block| {
            ahead.insert(block, Arrival { bytes: vec![1].into(), at_ns: block });
        };
        (0..=MOST_BLOCKS as u64).for_each(|block| put(&mut ahead, block));
        assert!(ahead.get(0).is_none() && ahead.get(1).is_some_and(|one| one.at_ns == 1));
        assert_eq!((ahead.missing(0, 9), ahead.missing(1, 9)), (1, 0));
        ahead.drop_run(Run { start: 5, count: 3 });
        assert_eq!((ahead.missing(5, 9), ahead.missing(6, 1)), (3, 1));
        assert_eq!((ahead.order.len(), ahead.blocks.len()), (MOST_BLOCKS - 3, MOST_BLOCKS - 3));
        put(&mut ahead, 5);
        put(&mut ahead, 1);
        assert_eq!(ahead.order.len(), ahead.blocks.len(), "each is listed once");
    }
}
