//! The range deletes of a memtable, or of all tables of a tree. A set finds the sequence number
//! that deletes a key, for a reader at some sequence number. Sets are immutable; a set with more
//! range deletes shares most of the old set. In this directory, the number of a range delete is its
//! sequence number.
//!
//! A range delete hides each older entry of its keys, wherever that entry is. So a reader looks for
//! the largest number over a key: all older entries are hidden. The order of the sources does not
//! matter.
//!
//! 1. A [`skyline`] has the largest number over each key, in arrays. It can be neither changed nor
//!    split, so it cannot serve readers that see fewer range deletes.
//! 2. So a set keeps its range deletes by number, in blocks of 64, of 16 x 64, and so on. Each
//!    block has a skyline, and the blocks that it was made of. A reader sees a handful of whole
//!    blocks and fewer than 64 single range deletes. The newest of these that covers the key
//!    decides. Adding a range delete costs O(log n) comparisons and bytes, amortised. Rejected: a
//!    persistent map of steps, which took 3.5 KB for each range delete.
//! 3. Most readers see all of a set, and a single skyline over the whole set can answer them. It is
//!    made once their searches have cost as much as making it.

mod list;
mod skyline;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use runstone_policy::shape::range_delete::RangeDelete;

use crate::keys::SeqNo;
use list::{LEAF, Leaf, List};
pub(crate) use skyline::Stretch;
use skyline::{High, Skyline, Step, lay_all, steps_of};

/// This many blocks of a level become one block of the next level.
const FANOUT: usize = 16;

/// Whether the number over a key deletes an entry of the key, because the entry is older.
#[inline]
pub(crate) fn deletes(over: SeqNo, entry: SeqNo) -> bool {
    over > entry || over > 0 && seeded!(RangeDeletesHideNewer)
}

/// Successive range deletes: 64 of them, or those of several smaller blocks.
#[derive(Debug)]
struct Block {
    skyline: Skyline,
    /// How many times blocks were joined to make this block.
    level: u32,
    /// Bytes taken, including the parts.
    bytes: usize,
    /// The smaller blocks, oldest first; none if the block has only 64 range deletes.
    parts: Vec<Arc<Block>>,
}

impl Block {
    fn of_leaf(ranges: &[Arc<RangeDelete>]) -> Block {
        let mut list = List::default();
        list.push(Arc::new(Leaf::of(ranges)));
        let parts = (0..list.len()).map(|at| steps_of(&list, at)).collect();
        let steps = lay_all(&list, parts);
        let skyline = Skyline::new(list, steps);
        let bytes = size_of::<Block>() + skyline.bytes() + skyline.list().leaf_bytes();
        Block { skyline, level: 0, bytes, parts: Vec::new() }
    }

    fn of_parts(parts: Vec<Arc<Block>>, level: u32) -> Block {
        let (list, steps) = shifted(&parts);
        let steps = lay_all(&list, steps);
        let skyline = Skyline::new(list, steps);
        let of_parts: usize = parts.iter().map(|part| part.bytes).sum();
        let bytes = size_of::<Block>() + skyline.bytes() + of_parts;
        Block { skyline, level, bytes, parts }
    }

    /// Visits the pieces that a reader at `seq` sees, the newest first.
    fn visit<'a, F>(&'a self, seq: SeqNo, f: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Piece<'a>) -> ControlFlow<()>,
    {
        if self.skyline.last_seq() <= seq {
            return f(Piece::Many(&self.skyline));
        }
        if self.skyline.first_seq() > seq {
            return Continue(());
        }
        if !self.parts.is_empty() {
            return self.parts.iter().rev().try_for_each(|part| part.visit(seq, f));
        }
        let list = self.skyline.list();
        (0..list.above(seq)).rev().try_for_each(|at| {
            let (start, end) = list.bounds(at);
            f(Piece::One(start, end, list.seq(at)))
        })
    }
}

/// The list of all range deletes of blocks, and the steps of each block with their places in that
/// list.
fn shifted(blocks: &[Arc<Block>]) -> (List, Vec<Vec<Step>>) {
    let (mut list, mut steps) = (List::default(), Vec::new());
    for block in blocks {
        steps.push(block.skyline.shifted(list.len()));
        list.append(block.skyline.list());
    }
    (list, steps)
}

/// Some of the range deletes that a reader sees.
enum Piece<'a> {
    Many(&'a Skyline),
    /// Start, end and number.
    One(&'a [u8], Option<&'a [u8]>, SeqNo),
}

impl<'a> Piece<'a> {
    /// The stretch around a key.
    fn stretch(&self, key: &[u8]) -> Stretch<'a> {
        match *self {
            Piece::Many(skyline) => skyline.stretch(key),
            Piece::One(start, end, _) if end.is_some_and(|end| end <= start) => Stretch::default(),
            Piece::One(start, ..) if key < start => {
                Stretch { end: Some(start), ..Stretch::default() }
            }
            Piece::One(_, Some(end), _) if end <= key => {
                Stretch { start: Some(end), ..Stretch::default() }
            }
            Piece::One(start, end, seq) => Stretch { start: Some(start), end, seq },
        }
    }

    /// The number over a key; 0 if none covers the key.
    #[inline]
    fn over(&self, key: &[u8]) -> SeqNo {
        match self {
            Piece::Many(skyline) => skyline.over(key),
            Piece::One(start, end, seq) => {
                let covers = *start <= key && end.is_none_or(|end| key < end);
                if covers { *seq } else { 0 }
            }
        }
    }

    /// The largest number.
    #[inline]
    fn last_seq(&self) -> SeqNo {
        match self {
            Piece::Many(skyline) => skyline.last_seq(),
            Piece::One(_, _, seq) => *seq,
        }
    }
}

/// All range deletes of a set, laid over each other.
#[derive(Debug)]
struct Whole {
    skyline: Skyline,
    /// For each range delete, whether it is the newest over any key.
    seen: Vec<bool>,
}

/// Appends a block. Every 16 blocks of a level become one block of the next level. If a larger
/// block is appended, the smaller ones before it also become one block, so that levels never rise
/// from one block to the next.
fn push(blocks: &mut Vec<Arc<Block>>, block: Arc<Block>) {
    let level = block.level;
    let smaller = blocks.partition_point(|other| other.level >= level);
    if smaller < blocks.len() {
        let parts = blocks.split_off(smaller);
        push(blocks, Arc::new(Block::of_parts(parts, level)));
    }
    blocks.push(block);
    let alike = blocks.partition_point(|other| other.level > level);
    if blocks.len() - alike >= FANOUT {
        let parts = blocks.split_off(alike);
        push(blocks, Arc::new(Block::of_parts(parts, level + 1)));
    }
}

/// Pads the range deletes so that they fill whole leaves, because only the last leaf of a list may
/// have room. The first leaf is filled with ranges that have no keys. They have the number of the
/// range delete that follows them, so that a search by number still ends at that range delete.
fn filled(ranges: Vec<Arc<RangeDelete>>) -> Vec<Arc<RangeDelete>> {
    let Some(first) = ranges.first() else { return ranges };
    let nothing = RangeDelete { start: [0].into(), end: Some([0].into()), seq: first.seq };
    let missing = ranges.len().next_multiple_of(LEAF) - ranges.len();
    std::iter::repeat_n(Arc::new(nothing), missing).chain(ranges).collect()
}

/// Memory of a range delete that is in no block.
fn bytes_of(range: &RangeDelete) -> usize {
    let bounds = range.start.len() + range.end.as_ref().map_or(0, |end| end.len());
    2 * size_of::<usize>() + size_of::<RangeDelete>() + bounds
}

/// A set of range deletes, by number: first those in blocks, then the waiting ones, then the
/// freshest.
#[derive(Debug, Default)]
pub struct RangeDeletes {
    /// Oldest first. No block has a higher level than the one before it.
    blocks: Arc<Vec<Arc<Block>>>,
    waiting: Arc<Vec<Arc<RangeDelete>>>,
    /// The newest range deletes. They are few, because each write copies them.
    fresh: Vec<Arc<RangeDelete>>,
    len: usize,
    /// Bytes of the range deletes that are in no block.
    loose_bytes: usize,
    /// The number of pieces that readers searched while there was no `whole`.
    searched: AtomicUsize,
    whole: OnceLock<Whole>,
}

/// A set is copied in order to add to it. That drops the skyline over the whole set, so the copy
/// has none.
impl Clone for RangeDeletes {
    fn clone(&self) -> RangeDeletes {
        RangeDeletes {
            blocks: Arc::clone(&self.blocks),
            waiting: Arc::clone(&self.waiting),
            fresh: self.fresh.clone(),
            len: self.len,
            loose_bytes: self.loose_bytes,
            searched: AtomicUsize::new(self.searched.load(Relaxed)),
            whole: OnceLock::new(),
        }
    }
}

impl RangeDeletes {
    /// A search costs about as much as laying this many steps over others.
    const STEPS_A_SEARCH: usize = 4;
    /// Fewer range deletes than this are searched one by one.
    const LEAST_WHOLE: usize = 16;
    /// The freshest range deletes begin to wait once there are at least this many.
    const FRESH: usize = 8;

    /// The set of these range deletes, which may be in any order. O(n log n).
    pub fn of(mut all: Vec<Arc<RangeDelete>>) -> RangeDeletes {
        all.sort_by_key(|range| range.seq);
        let mut set = RangeDeletes::default();
        set.add(all, SeqNo::MAX);
        set
    }

    /// Adds range deletes, in the order of their numbers. Range deletes that are added later have
    /// numbers above `settled`: writers insert concurrently, so a smaller number may be added after
    /// a larger one. O(log n) each, amortised; O(square root of the count of numbers above
    /// `settled`) while there are many of these.
    pub fn add(&mut self, ranges: Vec<Arc<RangeDelete>>, settled: SeqNo) {
        self.whole = OnceLock::new();
        // A batch adds its range deletes before its own numbers are settled.
        self.settle(settled);
        self.len += ranges.len();
        for range in ranges {
            debug_assert!(
                self.blocks.last().is_none_or(|block| block.skyline.last_seq() < range.seq),
                "what is settled is complete"
            );
            self.loose_bytes += bytes_of(&range);
            if self.waiting.last().is_some_and(|other| other.seq > range.seq) {
                let newer = std::mem::take(&mut self.fresh);
                self.fresh = std::mem::take(Arc::make_mut(&mut self.waiting));
                self.fresh.extend(newer);
            }
            let at = self.fresh.partition_point(|other| other.seq <= range.seq);
            self.fresh.insert(at, range);
        }
        if self.fresh.len() >= RangeDeletes::FRESH.max(self.waiting.len().isqrt()) {
            Arc::make_mut(&mut self.waiting).append(&mut self.fresh);
            self.settle(settled);
        }
    }

    /// Makes blocks of the waiting range deletes up to a number.
    fn settle(&mut self, settled: SeqNo) {
        if self.waiting.len() < LEAF {
            return;
        }
        let settled = self.waiting.partition_point(|range| range.seq <= settled);
        let full = settled / LEAF * LEAF;
        if full == 0 {
            return;
        }
        let waiting = Arc::make_mut(&mut self.waiting);
        let rest = waiting.split_off(full);
        let blocks = Arc::make_mut(&mut self.blocks);
        for leaf in std::mem::replace(waiting, rest).chunks(LEAF) {
            self.loose_bytes -= leaf.iter().map(|range| bytes_of(range)).sum::<usize>();
            push(blocks, Arc::new(Block::of_leaf(leaf)));
        }
    }

    /// Appends a set whose numbers are all larger. Its blocks are shared. Range deletes of this set
    /// that are in no block are put into blocks first. O(log n).
    pub fn append(&mut self, newer: &RangeDeletes) {
        assert!(newer.first_seq() > self.last_seq(), "all numbers are larger");
        if newer.blocks.is_empty() {
            self.add(newer.loose().cloned().collect(), SeqNo::MAX);
            return;
        }
        self.whole = OnceLock::new();
        self.len += newer.len;
        let loose: Vec<Arc<RangeDelete>> = self.loose().cloned().collect();
        let blocks = Arc::make_mut(&mut self.blocks);
        for leaf in filled(loose).chunks(LEAF) {
            push(blocks, Arc::new(Block::of_leaf(leaf)));
        }
        newer.blocks.iter().for_each(|block| push(blocks, Arc::clone(block)));
        self.waiting = Arc::clone(&newer.waiting);
        self.fresh = newer.fresh.clone();
        self.loose_bytes = newer.loose_bytes;
    }

    /// How many range deletes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no range deletes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number; 0 if there are none.
    #[inline]
    pub fn last_seq(&self) -> SeqNo {
        match self.fresh.last().or(self.waiting.last()) {
            Some(range) => range.seq,
            None => self.blocks.last().map_or(0, |block| block.skyline.last_seq()),
        }
    }

    /// The smallest number; [`SeqNo::MAX`] if there are none.
    fn first_seq(&self) -> SeqNo {
        match self.blocks.first() {
            Some(block) => block.skyline.first_seq(),
            None => self.loose().next().map_or(SeqNo::MAX, |range| range.seq),
        }
    }

    /// Memory taken, including the skyline over the whole set, even if there is none yet. O(log n).
    pub fn bytes(&self) -> usize {
        let block = |block: &Arc<Block>| block.bytes + block.skyline.bytes();
        self.blocks.iter().map(block).sum::<usize>() + 2 * self.loose_bytes + self.len
    }

    /// The range deletes that are in no block, by number.
    fn loose(&self) -> impl DoubleEndedIterator<Item = &Arc<RangeDelete>> {
        self.waiting.iter().chain(&self.fresh)
    }

    /// Visits the pieces that a reader at `seq` sees, the newest first.
    fn visit<'a, F>(&'a self, seq: SeqNo, mut f: F)
    where
        F: FnMut(Piece<'a>) -> ControlFlow<()>,
    {
        let seq = if seeded!(RangeDeletesForAllSnapshots) { SeqNo::MAX } else { seq };
        if seq >= self.last_seq()
            && let Some(whole) = self.whole.get()
        {
            let _ = f(Piece::Many(&whole.skyline));
            return;
        }
        let mut searched = 0;
        let mut f = |piece| {
            searched += 1;
            f(piece)
        };
        let of = |ranges: &'a [Arc<RangeDelete>]| {
            ranges[..ranges.partition_point(|range| range.seq <= seq)].iter().rev()
        };
        let seen = of(&self.fresh).chain(of(&self.waiting));
        let mut seen = seen.map(|range| Piece::One(&range.start, range.end.as_deref(), range.seq));
        if seen.try_for_each(&mut f).is_continue() {
            let _ = self.blocks.iter().rev().try_for_each(|block| block.visit(seq, &mut f));
        }
        self.note_searched(searched, seq);
    }

    /// Makes the skyline over the whole set once searches have cost as much as making it.
    fn note_searched(&self, pieces: usize, seq: SeqNo) {
        let pieces = self.searched.fetch_add(pieces, Relaxed) + pieces;
        let is_worth = self.len >= RangeDeletes::LEAST_WHOLE
            && pieces >= self.len / RangeDeletes::STEPS_A_SEARCH;
        if is_worth && seq >= self.last_seq() {
            self.searched.store(0, Relaxed);
            self.whole();
        }
    }

    fn whole(&self) -> &Whole {
        self.whole.get_or_init(|| {
            let (mut list, mut parts) = shifted(&self.blocks);
            let before = list.len();
            let loose: Vec<Arc<RangeDelete>> = self.loose().cloned().collect();
            loose.chunks(LEAF).for_each(|leaf| list.push(Arc::new(Leaf::of(leaf))));
            let loose = (before..list.len()).map(|at| steps_of(&list, at)).collect();
            parts.push(lay_all(&list, loose).steps);
            let steps = lay_all(&list, parts);
            let skyline = Skyline::new(list, steps);
            let seen = skyline.seen();
            Whole { skyline, seen }
        })
    }

    /// The number that deletes older entries of a key, as a reader at `seq` sees it; 0 if none
    /// does. O(log n).
    pub fn over(&self, key: &[u8], seq: SeqNo) -> SeqNo {
        self.over_from(key, seq, 0)
    }

    /// As `over`, but 0 if the number is not above `floor`.
    fn over_from(&self, key: &[u8], seq: SeqNo, floor: SeqNo) -> SeqNo {
        // The newest of all range deletes is the answer for a reader that sees it.
        let newest = self.whole.get().map(|whole| whole.skyline.over(key));
        if let Some(newest) = newest.filter(|newest| *newest <= seq) {
            return newest;
        }
        let mut over = 0;
        self.visit(seq, |piece| {
            if piece.last_seq() <= floor {
                return Break(());
            }
            over = piece.over(key);
            if over > 0 { Break(()) } else { Continue(()) }
        });
        over
    }

    /// Whether a range delete that a reader at `seq` sees hides an entry with this sequence number.
    /// O(1) if the entry is newer than all range deletes, otherwise O(log n). Not inlined: most
    /// stores have no range deletes.
    #[inline(never)]
    pub fn hide(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        let floor = if seeded!(RangeDeletesHideNewer) { 0 } else { entry };
        deletes(self.last_seq(), entry) && deletes(self.over_from(key, seq, floor), entry)
    }

    /// Narrows a stretch around a key to the stretch that this set has around the key, for a reader
    /// at `seq`. In the given stretch, no newer range delete may cover the key. O(log n).
    pub(crate) fn narrow<'a>(&'a self, key: &[u8], seq: SeqNo, stretch: &mut Stretch<'a>) {
        self.visit(seq, |piece| {
            stretch.narrow(piece.stretch(key));
            if stretch.seq > 0 { Break(()) } else { Continue(()) }
        });
    }

    /// A lower bound of the smallest number over the keys from `min_key` to `max_key`, both
    /// included, for a reader at `seq`. It is the best bound that a single piece of the set gives.
    /// O(log n).
    pub fn over_all(&self, min_key: &[u8], max_key: &[u8], seq: SeqNo) -> SeqNo {
        self.most(seq, |piece| match *piece {
            Piece::Many(skyline) => skyline.least(min_key, High::Including(max_key)),
            Piece::One(start, end, seq) => {
                let covers = start <= min_key && end.is_none_or(|end| max_key < end);
                if covers { seq } else { 0 }
            }
        })
    }

    /// The largest number over any key from `min_key` to `max_key`, both included. O(log n).
    pub fn over_any(&self, min_key: &[u8], max_key: &[u8]) -> SeqNo {
        self.newest(min_key, High::Including(max_key))
    }

    /// The largest number over any key from `low` on and, if `high` is given, below it. O(log n).
    pub fn newest_in(&self, low: &[u8], high: Option<&[u8]>) -> SeqNo {
        match high {
            Some(high) if high <= low => 0,
            high => self.newest(low, high.map_or(High::None, High::Below)),
        }
    }

    fn newest(&self, low: &[u8], high: High<'_>) -> SeqNo {
        self.most(SeqNo::MAX, |piece| match *piece {
            Piece::Many(skyline) => skyline.most(low, high),
            Piece::One(start, end, seq) => {
                let begins = match high {
                    High::Including(high) => start <= high,
                    High::Below(high) => start < high,
                    High::None => true,
                };
                let meets = begins && end.is_none_or(|end| low < end && start < end);
                if meets { seq } else { 0 }
            }
        })
    }

    /// The largest `number` of the pieces that a reader at `seq` sees.
    fn most(&self, seq: SeqNo, number: impl Fn(&Piece<'_>) -> SeqNo) -> SeqNo {
        let mut most = 0;
        self.visit(seq, |piece| {
            if piece.last_seq() <= most {
                return Break(());
            }
            most = most.max(number(&piece));
            Continue(())
        });
        most
    }

    /// Whether newer range deletes cover all of this range delete, for a reader at `seq`. If that
    /// reader sees the whole set (`is_last`), the answer is exact, and costs O(n) at the first
    /// call, then O(log n). If not, a single piece of the set must cover the range delete, so a
    /// range delete that could be dropped may stay. That costs O(log n).
    pub fn hides_range(&self, range: &RangeDelete, seq: SeqNo, is_last: bool) -> bool {
        let is_hidden = |over| over > range.seq || seeded!(RangeTombstonesHideThemselves);
        if range.end.as_ref().is_some_and(|end| **end <= *range.start) {
            return true;
        }
        if is_last {
            let Whole { skyline, seen } = self.whole();
            let at = skyline.list().above(range.seq);
            let is_known = |at: &usize| skyline.list().seq(*at) == range.seq;
            let at = at.checked_sub(1).filter(is_known);
            return at.is_some_and(|at| !seen[at] || seeded!(RangeTombstonesHideThemselves));
        }
        let high = range.end.as_deref().map_or(High::None, High::Below);
        let over = self.most(seq, |piece| match *piece {
            Piece::Many(skyline) => skyline.least(&range.start, high),
            Piece::One(start, end, seq) => {
                let ends = match (end, &range.end) {
                    (None, _) => true,
                    (Some(end), Some(other)) => **other <= *end,
                    (Some(_), None) => false,
                };
                if start <= &*range.start && ends { seq } else { 0 }
            }
        });
        is_hidden(over)
    }

    /// All range deletes that are not empty, by block and number.
    pub fn iter(&self) -> impl Iterator<Item = RangeDelete> {
        let of_block = |block: &Arc<Block>| block.skyline.list().clone();
        let lists = self.blocks.iter().map(of_block);
        let packed = lists.flat_map(|list| {
            (0..list.len()).map(move |at| {
                let (start, end) = list.bounds(at);
                RangeDelete { start: start.into(), end: end.map(Into::into), seq: list.seq(at) }
            })
        });
        let all = packed.chain(self.loose().map(|range| RangeDelete::clone(range)));
        all.filter(|range| range.end.as_ref().is_none_or(|end| range.start < *end))
    }
}
