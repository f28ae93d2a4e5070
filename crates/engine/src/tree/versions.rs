//! Walks the versions of one key through the tables of a tree, newest first. If a get looked up
//! each older version separately, it would search the blocks of the key from the first one each
//! time, because the index has only keys.
//!
//! 1. Levels are visited from shallow to deep, and the runs of a level newest first. The versions
//!    of a key in one run are newer than its versions in the next runs (I1), and a run has all of
//!    them in one table (I2).
//! 2. In an overlapping level, a heap gives the newest version among the open tables. A table is
//!    opened when its `max_seq` is not below the sequence number of that version (I3).
//! 3. There is one seek in each table, followed by steps. So n versions in t tables cost O(n + t)
//!    steps, and O(n log t) comparisons where tables overlap.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::error::Result;
use crate::format::block::BlockCursor;
use crate::format::filter;
use crate::keys::{SeqNo, seek_trailer, seq_of};
use crate::table::handle::TableHandle;
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::ProbeStats;
use crate::tree::level::{IntervalIndex, ReadLevel};
use crate::tree::version::Version;

/// A callback that gets a version, and returns whether it wants the next older one.
type Take<'t> = dyn FnMut(&BlockCursor) -> Result<bool> + 't;

/// A walk over the versions of a key that a reader at `seq` sees.
pub(crate) struct VersionWalk<'a> {
    key: &'a [u8],
    hash: u64,
    seq: SeqNo,
    access: Access,
    stats: ProbeStats,
}

impl<'a> VersionWalk<'a> {
    pub(crate) fn new(key: &'a [u8], seq: SeqNo, access: Access) -> VersionWalk<'a> {
        let (hash, stats) = (filter::hash(key), ProbeStats::default());
        VersionWalk { key, hash, seq, access, stats }
    }

    /// Counts of what the walks have done so far.
    pub(crate) fn stats(&self) -> &ProbeStats {
        &self.stats
    }

    /// Shows the versions in the tables of a tree until `take` has enough.
    pub(crate) fn run(&mut self, tree: &Version, take: &mut Take) -> Result<()> {
        for level in &tree.levels {
            let goes_on = match &**level {
                ReadLevel::Runs(runs) => {
                    let mut tables = runs.iter().filter_map(|run| run.find(self.key));
                    tables.try_fold(true, |goes_on, table| {
                        if goes_on { self.walk_table(table, take) } else { Ok(false) }
                    })?
                }
                ReadLevel::Overlapping(index) => self.walk_overlapping(index, take)?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn walk_table(&mut self, table: &TableHandle, take: &mut Take) -> Result<bool> {
        let Some(mut iter) = self.open(table)? else { return Ok(true) };
        let mut goes_on = true;
        while goes_on && let Some(cursor) = self.version(&iter) {
            goes_on = take(cursor)?;
            if goes_on {
                iter.next()?;
            }
        }
        self.count(&iter);
        Ok(goes_on)
    }

    fn walk_overlapping(&mut self, index: &IntervalIndex, take: &mut Take) -> Result<bool> {
        let mut waiting = index.cover(self.key).iter().peekable();
        let mut iters: Vec<TableIter> = Vec::new();
        let mut newest: BinaryHeap<(u64, usize)> = BinaryHeap::new();
        let goes_on = loop {
            let at_hand = newest.peek().map(|(trailer, _)| seq_of(*trailer));
            let may_be_newer = |at: &&u32| at_hand.is_none_or(|seq| index.seqs_of(**at).1 >= seq);
            if let Some(at) = waiting.next_if(may_be_newer) {
                if index.seqs_of(*at).0 <= self.seq
                    && let Some(iter) = self.open(&index.tables[*at as usize])?
                {
                    newest.extend(self.version(&iter).map(|at| (at.trailer(), iters.len())));
                    iters.push(iter);
                }
                continue;
            }
            let Some((_, at)) = newest.pop() else { break true };
            let iter = &mut iters[at];
            if let Some(cursor) = self.version(iter)
                && !take(cursor)?
            {
                break false;
            }
            iter.next()?;
            newest.extend(self.version(iter).map(|cursor| (cursor.trailer(), at)));
        };
        iters.iter().for_each(|iter| self.count(iter));
        Ok(goes_on)
    }

    /// An iterator on the newest version that the reader sees, if the table may hold such a
    /// version.
    fn open(&mut self, table: &TableHandle) -> Result<Option<TableIter>> {
        let reader = table.reader()?;
        self.stats.tables += 1;
        if !reader.may_contain(self.key, self.hash)? {
            self.stats.filter_negatives += 1;
            return Ok(None);
        }
        let mut iter = TableIter::new(Arc::clone(reader), self.access);
        iter.seek(self.key, seek_trailer(self.seq))?;
        Ok(Some(iter))
    }

    /// The iterator's entry, if it is a version of the key.
    fn version<'i>(&self, iter: &'i TableIter) -> Option<&'i BlockCursor> {
        iter.cursor().filter(|cursor| cursor.valid() && *cursor.key() == *self.key)
    }

    fn count(&mut self, iter: &TableIter) {
        self.stats.blocks += iter.stats().blocks;
        self.stats.block_reads += iter.stats().block_reads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::keys::{Kind, MAX_SEQ, pack};
    use crate::options::store::KeyspaceOptions;
    use crate::table::builder::{TableBuilder, TableLayout};
    use crate::table::handle::TableContext;
    use crate::tree::version::RangeChange;
    use runstone_policy::overlapping::OverlappingTables;
    use runstone_policy::shape::{Level, Run, Shape, Table};
    use runstone_random::Random;
    use runstone_storage::MemoryStorage;

    /// A tree whose levels contain these sequence numbers of key `k`, one list per table. The first
    /// level has runs, and the second has tables that overlap.
    fn tree(runs: &[Vec<SeqNo>], overlapping: &[Vec<SeqNo>]) -> Version {
        let context = Arc::new(TableContext::new(
            Arc::new(MemoryStorage::new()),
            Arc::new(Cache::new(1 << 20)),
            7,
        ));
        let mut id = 0;
        let mut write = |numbers: &Vec<SeqNo>| {
            id += 1;
            let layout = TableLayout::of_level(&KeyspaceOptions::default(), &Shape::default(), 1);
            let mut builder = TableBuilder::create(&context, id, layout).unwrap();
            builder.add(b"a", pack(1, Kind::Put), b"").unwrap();
            for seq in numbers.iter().rev() {
                builder.add(b"k", pack(*seq, Kind::Merge), &[b'v'; 100]).unwrap();
            }
            builder.add(b"z", pack(1, Kind::Put), b"").unwrap();
            Arc::new(builder.finish().unwrap())
        };
        let run = |table: Arc<Table>| Run { id: table.id, tables: vec![table], last_flush: 0 };
        let runs = runs.iter().map(&mut write).map(run).collect();
        let tables = overlapping.iter().map(&mut write).collect();
        let levels = vec![Level::Runs(runs), Level::Overlapping(OverlappingTables::new(tables))];
        Version::default().next(
            Shape { levels, ..Shape::default() },
            RangeChange::default(),
            |table| Arc::new(TableHandle::new(Arc::clone(&context), Arc::clone(table))),
        )
    }

    /// At most this many sequence numbers of a key, as a walk shows them, and the counts of the
    /// walk.
    fn shown(tree: &Version, key: &[u8], seq: SeqNo, most: usize) -> (Vec<SeqNo>, ProbeStats) {
        let mut walk = VersionWalk::new(key, seq, Access::Cached { fill: true });
        let mut numbers = Vec::new();
        walk.run(tree, &mut |cursor| {
            numbers.push(seq_of(cursor.trailer()));
            Ok(numbers.len() < most)
        })
        .unwrap();
        (numbers, *walk.stats())
    }

    /// A walk shows the versions of a key in order, from any sequence number on, whichever tables
    /// of an overlapping level contain them. It stops where its caller says.
    #[test]
    fn versions_come_newest_first() {
        let mut random = Random::new(7);
        for _ in 0..40 {
            let mut overlapping = vec![Vec::new(); 6];
            for seq in 1..300 {
                if random.chance(70) {
                    // Stretches of several versions are in one table.
                    let table = if random.chance(50) { seq / 60 } else { random.below(6) };
                    overlapping[table as usize].push(seq);
                }
            }
            let runs = [(350..400).collect(), Vec::new(), (300..350).collect()];
            let tree = tree(&runs, &overlapping);
            let mut all: Vec<SeqNo> = runs.iter().chain(&overlapping).flatten().copied().collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            for seq in [MAX_SEQ, 370, 320, 250, 100, 1, 0] {
                let visible: Vec<SeqNo> = all.iter().copied().filter(|at| *at <= seq).collect();
                for most in [1, 20, 120, 1000] {
                    let wanted = &visible[..visible.len().min(most)];
                    assert_eq!(shown(&tree, b"k", seq, most).0, wanted, "at {seq}");
                }
            }
            assert!(shown(&tree, b"kk", MAX_SEQ, 1).0.is_empty());
        }
    }

    /// Each block is searched once, even in tables that overlap, and a table that is older than the
    /// wanted versions is not opened.
    #[test]
    fn each_block_is_searched_once() {
        let mut blocks = Vec::new();
        for count in [10, 1_000, 100_000] {
            let numbers = |at: SeqNo| (1..=count).filter(|seq| seq % 4 == at).collect();
            let tree = tree(&[], &[numbers(0), numbers(1), numbers(2), numbers(3)]);
            let (found, stats) = shown(&tree, b"k", MAX_SEQ, usize::MAX);
            assert_eq!((found.len() as u64, stats.tables), (count, 4));
            blocks.push(stats.blocks);
        }
        assert!(blocks[1] <= 2 * 100 * blocks[0] && blocks[2] <= 2 * 100 * blocks[1], "{blocks:?}");
        assert!(blocks[2] < 100_000 / 20, "{blocks:?}");
        let tree = tree(&[], &[(1..100).collect(), (100..200).collect()]);
        assert_eq!(shown(&tree, b"k", MAX_SEQ, 50).1.tables, 1);
    }
}
