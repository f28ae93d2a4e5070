//! A skyline: for each key, the largest number of some range deletes over the key. The number
//! changes at some keys, and arrays contain these steps in order. A skyline is immutable.

use std::cmp::Ordering;
use std::ops::Range;

use crate::keys::{HeadRule, SeqNo};
use crate::ranges::list::{Edge, List};

#[cfg(test)]
thread_local! {
    /// The number of steps that this thread has laid over others.
    pub(super) static LAID: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The number of steps whose extremes are kept together.
const CHUNK: usize = 16;

/// A step reaches from one key up to the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The key.
    pub(super) edge: Edge,
    /// The index of the range delete over the keys, counted from one; 0 if there is none.
    pub(super) owner: u32,
}

/// Keys with one number over them: from `start` to `end`, or without a bound on that side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch<'a> {
    /// The first key.
    pub(crate) start: Option<&'a [u8]>,
    /// The least key after the stretch.
    pub(crate) end: Option<&'a [u8]>,
    /// The number over the keys, which deletes older entries; 0 if there is none.
    pub(crate) seq: SeqNo,
}

impl<'a> Stretch<'a> {
    /// Narrows to the keys that are also in another stretch, and takes over the number of that
    /// stretch.
    pub(super) fn narrow(&mut self, other: Stretch<'a>) {
        self.start = self.start.max(other.start);
        self.end = match (self.end, other.end) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.seq = other.seq;
    }
}

/// The largest number over each key.
#[derive(Debug)]
pub(super) struct Skyline {
    /// All range deletes, including those that own no step.
    list: List,
    rule: HeadRule,
    /// Heads of the keys, which decide most searches.
    heads: Box<[u64]>,
    steps: Box<[Step]>,
    owners: Extremes,
}

/// The steps of one range delete.
pub(super) fn steps_of(list: &List, at: usize) -> Vec<Step> {
    let edge = 2 * at as u32;
    let own = Step { edge: Edge(edge), owner: at as u32 + 1 };
    match list.bounds(at) {
        (start, Some(end)) if end <= start => Vec::new(),
        (_, None) => vec![own],
        (_, Some(_)) => vec![own, Step { edge: Edge(edge + 1), owner: 0 }],
    }
}

/// At most this many parts are laid over each other at once, because each part has a bit in a word.
const MOST_PARTS: usize = u64::BITS as usize;

/// A step of one of several parts.
#[derive(Clone, Copy)]
struct PartStep {
    head: u64,
    step: Step,
    part: u32,
}

/// Steps in order, with their heads.
#[derive(Default)]
pub(super) struct Laid {
    rule: HeadRule,
    heads: Vec<u64>,
    pub(super) steps: Vec<Step>,
}

/// Lays the parts, given oldest first, over each other. O(n log parts): each part is in order
/// already, and the sort makes use of that.
pub(super) fn lay_all(list: &List, mut parts: Vec<Vec<Step>>) -> Laid {
    while parts.len() > MOST_PARTS {
        let some = parts.chunks(MOST_PARTS).map(|some| lay(list, some).steps);
        parts = some.collect();
    }
    lay(list, &parts)
}

fn lay(list: &List, parts: &[Vec<Step>]) -> Laid {
    let first = parts.iter().filter_map(|part| Some(list.key(part.first()?.edge))).min();
    let last = parts.iter().filter_map(|part| Some(list.key(part.last()?.edge))).max();
    let Some((first, last)) = first.zip(last) else { return Laid::default() };
    let rule = HeadRule::between(first, last);
    let mut all = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    for (part, steps) in (0..).zip(parts) {
        for step in steps {
            all.push(PartStep { head: rule.head(list.key(step.edge)), step: *step, part });
        }
    }
    #[cfg(test)]
    LAID.set(LAID.get() + all.len() as u64);
    all.sort_by(|one, other| match one.head.cmp(&other.head) {
        Ordering::Equal => list.key(one.step.edge).cmp(list.key(other.step.edge)),
        order => order,
    });
    sweep(list, rule, &all)
}

/// Visits the steps of all parts in the order of their keys. At each key, the newest part with a
/// range delete over the key decides.
fn sweep(list: &List, rule: HeadRule, all: &[PartStep]) -> Laid {
    let (mut owners, mut covering) = ([0u32; MOST_PARTS], 0u64);
    let (heads, steps) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
    let mut laid = Laid { rule, heads, steps };
    let mut last = 0;
    for (at, PartStep { head, step, part }) in all.iter().enumerate() {
        owners[*part as usize] = step.owner;
        let bit = 1 << part;
        covering = if step.owner > 0 { covering | bit } else { covering & !bit };
        // Another step at the same key may follow.
        let is_same =
            |next: &PartStep| next.head == *head && list.key(next.step.edge) == list.key(step.edge);
        if all.get(at + 1).is_some_and(is_same) {
            continue;
        }
        let newest = covering.checked_ilog2().map_or(0, |newest| owners[newest as usize]);
        if newest != last {
            laid.heads.push(*head);
            laid.steps.push(Step { edge: step.edge, owner: newest });
            last = newest;
        }
    }
    laid
}

impl Skyline {
    pub(super) fn new(list: List, laid: Laid) -> Skyline {
        let Laid { rule, heads, steps } = laid;
        let owners = Extremes::of(&steps);
        Skyline { list, rule, heads: heads.into(), steps: steps.into(), owners }
    }

    pub(super) fn list(&self) -> &List {
        &self.list
    }

    /// The steps, for a list in which these range deletes follow `before` others.
    pub(super) fn shifted(&self, before: usize) -> Vec<Step> {
        let before = before as u32;
        let shift = |Step { edge, owner }: &Step| Step {
            edge: Edge(edge.0 + 2 * before),
            owner: if *owner > 0 { owner + before } else { 0 },
        };
        self.steps.iter().map(shift).collect()
    }

    /// The number of the newest range delete.
    #[inline]
    pub(super) fn last_seq(&self) -> SeqNo {
        self.list.seq(self.list.len() - 1)
    }

    pub(super) fn first_seq(&self) -> SeqNo {
        self.list.seq(0)
    }

    #[inline]
    fn seq_of(&self, owner: u32) -> SeqNo {
        if owner == 0 { 0 } else { self.list.seq(owner as usize - 1) }
    }

    /// How many steps begin below a key; with `or_at`, also those that begin at it. O(log steps).
    #[inline]
    fn steps_below(&self, key: &[u8], or_at: bool) -> usize {
        let head = self.rule.head(key);
        let low = self.heads.partition_point(|other| *other < head);
        let alike = match self.heads.get(low) {
            Some(other) if *other == head => {
                self.heads[low..].partition_point(|other| *other == head)
            }
            _ => return low,
        };
        let alike = &self.steps[low..low + alike];
        let is_below = |step: &Step| {
            let other = self.list.key(step.edge);
            if or_at { other <= key } else { other < key }
        };
        low + alike.partition_point(is_below)
    }

    /// The number over a key; 0 if there is none. O(log steps).
    #[inline]
    pub(super) fn over(&self, key: &[u8]) -> SeqNo {
        match self.steps_below(key, true) {
            0 => 0,
            behind => self.seq_of(self.steps[behind - 1].owner),
        }
    }

    /// The stretch around a key. O(log steps).
    pub(super) fn stretch(&self, key: &[u8]) -> Stretch<'_> {
        let behind = self.steps_below(key, true);
        let before = behind.checked_sub(1).map(|at| &self.steps[at]);
        Stretch {
            start: before.map(|step| self.list.key(step.edge)),
            end: self.steps.get(behind).map(|step| self.list.key(step.edge)),
            seq: before.map_or(0, |step| self.seq_of(step.owner)),
        }
    }

    /// The steps over the keys from `low` up to `high`, and whether the first of these keys are
    /// before all steps.
    fn between(&self, low: &[u8], high: High<'_>) -> (Range<usize>, bool) {
        let from = self.steps_below(low, true);
        let to = match high {
            High::Including(high) => self.steps_below(high, true),
            High::Below(high) => self.steps_below(high, false),
            High::None => self.steps.len(),
        };
        (from.saturating_sub(1)..to.max(from), from == 0)
    }

    /// The smallest number over the keys from `low` up to `high`. O(log steps).
    pub(super) fn least(&self, low: &[u8], high: High<'_>) -> SeqNo {
        match self.between(low, high) {
            (_, true) => 0,
            (steps, false) => self.seq_of(self.owners.least(&self.steps, steps)),
        }
    }

    /// The largest number over the keys from `low` up to `high`. O(log steps).
    pub(super) fn most(&self, low: &[u8], high: High<'_>) -> SeqNo {
        let (steps, _) = self.between(low, high);
        self.seq_of(self.owners.most(&self.steps, steps))
    }

    /// For each range delete, whether it is the newest over any key. O(n).
    pub(super) fn seen(&self) -> Vec<bool> {
        let mut seen = vec![false; self.list.len()];
        for step in self.steps.iter().filter(|step| step.owner > 0) {
            seen[step.owner as usize - 1] = true;
        }
        seen
    }

    /// Bytes taken, without the leaves, which other skylines share.
    pub(super) fn bytes(&self) -> usize {
        let steps = self.steps.len() * (size_of::<u64>() + size_of::<Step>());
        steps + self.owners.bytes() + self.list.len() / super::list::LEAF * size_of::<usize>()
    }
}

/// The end of a range of keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum High<'a> {
    Including(&'a [u8]),
    Below(&'a [u8]),
    None,
}

/// The least and the largest owner of each chunk of steps, of each pair of chunks, of each pair of
/// these pairs, and so on: a segment tree, with its root at 1.
#[derive(Debug, Default)]
struct Extremes(Box<[(u32, u32)]>);

const NOTHING: (u32, u32) = (u32::MAX, 0);

fn both((least, most): (u32, u32), other: (u32, u32)) -> (u32, u32) {
    (least.min(other.0), most.max(other.1))
}

fn extremes(steps: &[Step]) -> (u32, u32) {
    steps.iter().fold(NOTHING, |all, step| both(all, (step.owner, step.owner)))
}

impl Extremes {
    fn of(steps: &[Step]) -> Extremes {
        let count = steps.len().div_ceil(CHUNK);
        let mut tree = vec![NOTHING; 2 * count];
        for (at, chunk) in steps.chunks(CHUNK).enumerate() {
            tree[count + at] = extremes(chunk);
        }
        for at in (1..count).rev() {
            tree[at] = both(tree[2 * at], tree[2 * at + 1]);
        }
        Extremes(tree.into())
    }

    fn least(&self, steps: &[Step], range: Range<usize>) -> u32 {
        let least = self.of_range(steps, range).0;
        if least == u32::MAX { 0 } else { least }
    }

    fn most(&self, steps: &[Step], range: Range<usize>) -> u32 {
        self.of_range(steps, range).1
    }

    fn of_range(&self, steps: &[Step], range: Range<usize>) -> (u32, u32) {
        let (first, last) = (range.start.div_ceil(CHUNK), range.end / CHUNK);
        if first >= last {
            return extremes(&steps[range]);
        }
        let ends = [range.start..first * CHUNK, last * CHUNK..range.end];
        let mut all = ends.map(|end| extremes(&steps[end])).into_iter().fold(NOTHING, both);
        let count = self.0.len() / 2;
        let (mut low, mut high) = (count + first, count + last);
        while low < high {
            if low % 2 == 1 {
                all = both(all, self.0[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                all = both(all, self.0[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        all
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
