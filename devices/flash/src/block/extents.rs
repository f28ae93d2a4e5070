//! Which device blocks a file has, and which device blocks are free. Arithmetic only.

use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks of a file: runs that map file blocks to device blocks. Blocks that no run covers read
/// as zeros.
///
/// Invariant: runs do not overlap. A run that continues the previous run is joined to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extents {
    runs: BTreeMap<u64, Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Extents {
    /// The device block of a file block, and the number of contiguous blocks from it on.
    pub(super) fn find(&self, file_block: u64) -> Option<Run> {
        let (&first, run) = self.runs.range(..=file_block).next_back()?;
        let skipped = file_block - first;
        (skipped < run.count)
            .then(|| Run { start: run.start + skipped, count: run.count - skipped })
    }

    /// The number of blocks from a file block on, up to `limit`, that have no device block.
    pub(super) fn hole(&self, file_block: u64, limit: u64) -> u64 {
        match self.runs.range(file_block..).next() {
            _ if self.find(file_block).is_some() => 0,
            Some((&next, _)) => limit.min(next - file_block),
            None => limit,
        }
    }

    /// Adds a run where there is a hole.
    pub(super) fn insert(&mut self, file_block: u64, run: Run) {
        debug_assert_eq!(self.hole(file_block, run.count), run.count, "a run covers another");
        if let Some((&first, before)) = self.runs.range_mut(..file_block).next_back()
            && first + before.count == file_block
            && before.start + before.count == run.start
        {
            before.count += run.count;
            return;
        }
        self.runs.insert(file_block, run);
    }

    /// Makes the range a hole, and returns the blocks that were there.
    pub(super) fn remove(&mut self, range: Range<u64>) -> Vec<Run> {
        let from = self.runs.range(..=range.start).next_back().map_or(range.start, |(&f, _)| f);
        let touched: Vec<(u64, Run)> =
            self.runs.range(from..range.end.max(from)).map(|(&first, &run)| (first, run)).collect();
        let mut removed = Vec::new();
        for (first, run) in touched {
            let cut_from = range.start.max(first);
            let cut_to = range.end.min(first + run.count);
            if cut_from >= cut_to {
                continue;
            }
            self.runs.remove(&first);
            if cut_from > first {
                self.runs.insert(first, Run { start: run.start, count: cut_from - first });
            }
            if cut_to < first + run.count {
                let start = run.start + (cut_to - first);
                self.runs.insert(cut_to, Run { start, count: first + run.count - cut_to });
            }
            removed.push(Run { start: run.start + (cut_from - first), count: cut_to - cut_from });
        }
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Run)> + '_ {
        self.runs.iter().map(|(&first, &run)| (first, run))
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }
}

/// Free device blocks, allocated next-fit: each search continues where the last one ended, so that
/// files are placed one after another without regard to flash pages.
#[derive(Clone, Debug)]
pub(super) struct FreeSpace {
    runs: BTreeMap<u64, u64>,
    free_count: u64,
    cursor: u64,
}

impl FreeSpace {
    pub(super) fn new(range: Range<u64>) -> FreeSpace {
        let free_count = range.end - range.start;
        let runs = BTreeMap::from([(range.start, free_count)]);
        FreeSpace { runs, free_count, cursor: range.start }
    }

    pub(super) fn count(&self) -> u64 {
        self.free_count
    }

    /// Takes up to `wanted` contiguous blocks; `None` if nothing is free.
    pub(super) fn take(&mut self, wanted: u64) -> Option<Run> {
        let around = self.runs.range(..=self.cursor).next_back();
        let around = around.filter(|&(start, count)| start + count > self.cursor);
        let (&run_start, &run_count) = around
            .or_else(|| self.runs.range(self.cursor..).next())
            .or_else(|| self.runs.iter().next())?;
        let inside = self.cursor > run_start && self.cursor < run_start + run_count;
        let start = if inside { self.cursor } else { run_start };
        let count = wanted.min(run_start + run_count - start);
        self.claim(Run { start, count });
        self.cursor = start + count;
        Some(Run { start, count })
    }

    /// Takes exactly this run; `false` if not all of it is free.
    pub(super) fn claim(&mut self, run: Run) -> bool {
        let Some((&first, &count)) = self.runs.range(..=run.start).next_back() else {
            return false;
        };
        let Some(end) = run.start.checked_add(run.count).filter(|&end| end <= first + count) else {
            return false;
        };
        self.runs.remove(&first);
        if run.start > first {
            self.runs.insert(first, run.start - first);
        }
        if end < first + count {
            self.runs.insert(end, first + count - end);
        }
        self.free_count -= run.count;
        true
    }

    pub(super) fn release(&mut self, run: Run) {
        let (mut start, mut count) = (run.start, run.count);
        if let Some((&before, &length)) = self.runs.range(..start).next_back()
            && before + length == start
        {
            self.runs.remove(&before);
            (start, count) = (before, length + count);
        }
        if let Some(after) = self.runs.remove(&(run.start + run.count)) {
            count += after;
        }
        self.runs.insert(start, count);
        self.free_count += run.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, count: u64) -> Run {
        Run { start, count }
    }

    #[test]
    fn runs_join_split_and_leave_holes() {
        let mut extents = Extents::default();
        extents.insert(0, run(100, 4));
        extents.insert(4, run(104, 4));
        assert_eq!(extents.len(), 1, "they continue each other");
        extents.insert(10, run(200, 5));
        assert_eq!((extents.find(5), extents.find(8)), (Some(run(105, 3)), None));
        assert_eq!((extents.hole(8, 9), extents.hole(15, 9), extents.hole(3, 9)), (2, 9, 0));
        assert_eq!(extents.remove(2..12), [run(102, 6), run(200, 2)]);
        assert_eq!(extents.iter().collect::<Vec<_>>(), [(0, run(100, 2)), (12, run(202, 3))]);
        assert_eq!(extents.remove(13..14), [run(203, 1)]);
        assert_eq!(extents.len(), 3);
        assert!(extents.remove(3..12).is_empty());
        assert_eq!(extents.remove(0..u64::MAX).iter().map(|run| run.count).sum::<u64>(), 4);
    }

    #[test]
    fn free_space_is_taken_next_fit() {
        let mut free = FreeSpace::new(10..30);
        assert_eq!(free.take(5), Some(run(10, 5)));
        assert_eq!(free.take(5), Some(run(15, 5)));
        free.release(run(10, 5));
        assert_eq!(free.take(8), Some(run(20, 8)), "not back to the front yet");
        assert_eq!(free.take(8), Some(run(28, 2)), "what is left there");
        assert_eq!(free.take(8), Some(run(10, 5)), "round again");
        assert_eq!((free.take(1), free.count()), (None, 0));
        free.release(run(12, 2));
        free.release(run(16, 2));
        free.release(run(14, 2));
        assert_eq!(free.runs, BTreeMap::from([(12, 6)]), "neighbours join");
        assert!(!free.claim(run(11, 2)) && !free.claim(run(17, 2)) && free.claim(run(14, 2)));
        assert!(!free.claim(run(u64::MAX, u64::MAX)));
        assert_eq!((free.runs.len(), free.count()), (2, 4));
    }
}
