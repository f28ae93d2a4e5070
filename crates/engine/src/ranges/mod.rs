//! The range deletes of a memtable, or of all tables of a tree: which sequence number deletes a
//! key, for a reader at some sequence number. Immutable; a set with more of them shares most of the
//! old one.
//!
//! A range delete hides each older entry of its keys, wherever that lies. So a reader asks for the
//! largest number over a key: older entries are hidden. No order of sources is needed.
//!
//! 1. A [`skyline`] is the largest number over each key, in arrays. It can be neither changed nor
//!    split, so it cannot serve readers that see fewer range deletes.
//! 2. So a set keeps its range deletes by number, in blocks of 64, of 16 x 64, and so on: each with
//!    a skyline, and the blocks that it was made of. What a reader sees is a handful of whole
//!    blocks and less than 64 single ones. The newest of these that covers the key decides. To add
//!    one costs O(log n) comparisons and bytes, amortised. A persistent map of steps instead took
//!    3.5 KB for each range delete.
//! 3. Most readers see all of a set. When they asked often enough to pay for it, one skyline over
//!    the whole set answers them.

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

/// So many blocks of a level become one of the next.
const FANOUT: usize = 16;

/// Whether the number over a key deletes an entry of the key: one that is older.
#[inline]
pub(crate) fn deletes(over: SeqNo, entry: SeqNo) -> bool {
    over > entry || over > 0 && seeded!(RangeDeletesHideNewer)
}

/// Successive range deletes: 64, or those of several smaller blocks.
#[derive(Debug)]
struct Block {
    skyline: Skyline,
    /// How often blocks were joined to make it.
    level: u32,
    /// Bytes taken, with the parts.
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

    /// Visits what a reader at `seq` sees, the newest first.
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

/// All range deletes of blocks, and the steps of each block in that list.
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

    /// The number over a key; 0 if none is.
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

/// All of the range deletes that existed at some moment, laid over each other.
#[derive(Debug)]
struct Whole {
    skyline: Skyline,
    /// Whether each is the newest over any key.
    seen: Vec<bool>,
}

/// Appends a block. Every 16 blocks of a level become one block of the next level. So do fewer
/// blocks before a larger one, so that levels never rise from one block to the next.
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

/// The range deletes in full leaves: all leaves of a list but its last one are full. Ranges without
/// keys fill the first one. They have the number of the range delete that follows them, so that a
/// search by number still ends at that one.
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

/// A set of range deletes, by number: those in blocks, then those waiting, then the freshest.
#[derive(Debug, Default)]
pub struct RangeDeletes {
    /// Oldest first. No block has a higher level than the one before it.
    blocks: Arc<Vec<Arc<Block>>>,
    waiting: Arc<Vec<Arc<RangeDelete>>>,
    /// The newest ones. They are few, because each write copies them.
    fresh: Vec<Arc<RangeDelete>>,
    len: usize,
    /// Bytes of the range deletes that are in no block.
    loose_bytes: usize,
    /// Pieces that readers searched while `whole` was not there.
    searched: AtomicUsize,
    whole: OnceLock<Whole>,
}

/// Whoever copies a set adds to it, which drops the skyline over the whole set.
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
    /// This many wait together.
    const FRESH: usize = 8;

    /// The set of these, in any order. O(n log n).
    pub fn of(mut all: Vec<Arc<RangeDelete>>) -> RangeDeletes {
        all.sort_by_key(|range| range.seq);
        let mut set = RangeDeletes::default();
        set.add(all, SeqNo::MAX);
        set
    }

    /// Adds range deletes, given by number. No later ones have numbers up to `settled`: writers
    /// insert side by side, so a smaller number may come after a larger one. O(log n) each,
    /// amortised; O(square root of the numbers above `settled`) while there are many of these.
    pub fn add(&mut self, ranges: Vec<Arc<RangeDelete>>, settled: SeqNo) {
        self.whole = OnceLock::new();
        // A batch brings its range deletes before its own numbers are settled.
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

    /// Makes blocks of those waiting up to a number.
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

    /// Appends a set whose numbers are all larger. It is shared, except for the range deletes here
    /// that are in no block. O(log n).
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
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

    /// Memory taken, with the skyline over the whole set, whether it exists or not. O(log n).
    pub fn bytes(&self) -> usize {
        let block = |block: &Arc<Block>| block.bytes + block.skyline.bytes();
        self.blocks.iter().map(block).sum::<usize>() + 2 * self.loose_bytes + self.len
    }

    /// The range deletes in no block, by number.
    fn loose(&self) -> impl DoubleEndedIterator<Item = &Arc<RangeDelete>> {
        self.waiting.iter().chain(&self.fresh)
    }

    /// Visits what a reader at `seq` sees, the newest first.
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

    /// Makes the skyline over the whole set once readers have paid for it.
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

    /// The same; 0 if the number is not above `floor`.
    fn over_from(&self, key: &[u8], seq: SeqNo, floor: SeqNo) -> SeqNo {
        // The newest of all is the answer for a reader who sees it.
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

    /// Whether one that a reader at `seq` sees hides an entry of this number. O(1) if the entry is
    /// newer than all of them, else O(log n). Not inlined: most stores have no range deletes.
    #[inline(never)]
    pub fn hide(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        let floor = if seeded!(RangeDeletesHideNewer) { 0 } else { entry };
        deletes(self.last_seq(), entry) && deletes(self.over_from(key, seq, floor), entry)
    }

    /// Narrows a stretch around a key, in which nothing newer covers the key, to that around the
    /// key here, for a reader at `seq`. O(log n).
    pub(crate) fn narrow<'a>(&'a self, key: &[u8], seq: SeqNo, stretch: &mut Stretch<'a>) {
        self.visit(seq, |piece| {
            stretch.narrow(piece.stretch(key));
            if stretch.seq > 0 { Break(()) } else { Continue(()) }
        });
    }

    /// A lower bound of the smallest number over the keys from one to the other, both included, for
    /// a reader at `seq`: one piece of the set gives it. O(log n).
    pub fn over_all(&self, min_key: &[u8], max_key: &[u8], seq: SeqNo) -> SeqNo {
        self.most(seq, |piece| match *piece {
            Piece::Many(skyline) => skyline.least(min_key, High::Including(max_key)),
            Piece::One(start, end, seq) => {
                let covers = start <= min_key && end.is_none_or(|end| max_key < end);
                if covers { seq } else { 0 }
            }
        })
    }

    /// The largest number over a key between the two, both included. O(log n).
    pub fn over_any(&self, min_key: &[u8], max_key: &[u8]) -> SeqNo {
        self.newest(min_key, High::Including(max_key))
    }

    /// The largest number over a key from `low` on and below `high`, if there is one. O(log n).
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

    /// The largest of the numbers of pieces that a reader at `seq` sees.
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

    /// Whether newer range deletes cover all of this one, for a reader at `seq`. If that reader
    /// sees the whole set (`is_last`), the answer is exact: O(n) at the first call, then O(log n).
    /// If not, one piece of the set must cover it alone, so a range delete that could be dropped
    /// may stay: O(log n).
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
