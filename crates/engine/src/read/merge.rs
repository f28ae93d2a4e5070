//! Merges sorted streams with a loser tree. A step costs one comparison per level of the tree, and
//! most comparisons are decided by eight-byte key heads, which are kept beside the tree.
//!
//! 1. `tree[1..n]` contains the losers of a tournament over n leaves, and `winner` is its winner.
//! 2. After the winner's stream has moved, its leaf is replayed against the losers on its way up.
//! 3. An exhausted stream loses against every other one. In reverse, the larger key wins.

use std::cmp::Ordering;

use crate::error::Result;
use crate::format::block::{AFTER_ALL_VERSIONS, BEFORE_ALL_VERSIONS};
use crate::keys::{HeadRule, SeqNo, compare};
use crate::read::source::Source;
use crate::table::iterator::TableIter;
use crate::values::Value;

/// Sorted streams merged into one.
#[derive(Debug)]
pub struct MergeIter {
    sources: Vec<Source>,
    /// How heads are taken: after the prefix that the keys of all runs share. The keys of memtables
    /// do not count for this prefix.
    head_rule: HeadRule,
    /// The head of each stream's current key; meaningless for an exhausted stream.
    heads: Vec<u64>,
    live: Vec<bool>,
    tree: Vec<u32>,
    /// Room for the winners of a whole tournament.
    winners: Vec<u32>,
    winner: u32,
    reverse: bool,
}

impl MergeIter {
    /// Merges `sources`. Seek before use.
    pub fn new(sources: Vec<Source>) -> MergeIter {
        let count = sources.len();
        let rules = sources.iter().filter_map(Source::head_rule);
        MergeIter {
            head_rule: rules.reduce(HeadRule::or).unwrap_or(HeadRule::WHOLE),
            sources,
            heads: vec![0; count],
            live: vec![false; count],
            tree: vec![0; count.max(1)],
            winners: vec![0; 2 * count],
            winner: 0,
            reverse: false,
        }
    }

    /// How many of the streams are runs of tables.
    pub fn run_count(&self) -> usize {
        self.sources.iter().filter(|source| matches!(source, Source::Run(_))).count()
    }

    /// Moves to the first entry at or after the internal key, to walk forward.
    pub fn seek(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        self.approach(key)?;
        self.start(false, |source| source.finish_seek(key, trailer))
    }

    /// Moves to the first entry, to walk forward.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.start(false, Source::seek_to_first)
    }

    /// Moves to the last entry before the internal key, to walk backward.
    pub fn seek_before(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        self.approach(key)?;
        self.start(true, |source| source.finish_seek_before(key, trailer))
    }

    /// Moves to the last entry, to walk backward.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.start(true, Source::seek_to_last)
    }

    /// Moves one step in the direction of the last seek.
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        let winner = self.winner as usize;
        let source = &mut self.sources[winner];
        if self.reverse {
            source.prev()?
        } else {
            source.next()?
        }
        self.note(winner);
        self.replay(winner);
        Ok(())
    }

    /// Skips versions of `key` that nobody needs, with a seek in each stream that is on such a
    /// version. Forward, these are the versions before the internal key. Backward, they are the
    /// versions after the first one at or after the internal key, or all versions if the remaining
    /// ones are before it. The merge may stay where it is.
    pub fn skip_versions(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        // The index of a table can find the block after all versions only by a search for the next
        // key.
        let behind = (trailer == AFTER_ALL_VERSIONS && !self.reverse).then(|| [key, &[0]].concat());
        for i in 0..self.sources.len() {
            let source = &mut self.sources[i];
            let Some(mut at) = source.version_of(key) else { continue };
            if !self.reverse && at > trailer {
                // Most runs have one version of a key, and a step costs a twentieth of a seek.
                source.next()?;
                let Some(next) = source.version_of(key) else {
                    self.note(i);
                    continue;
                };
                at = next;
            }
            match (self.reverse, at.cmp(&trailer), &behind) {
                (false, Ordering::Greater, Some(behind)) => {
                    source.approach(behind)?;
                    source.finish_seek(behind, BEFORE_ALL_VERSIONS)?;
                }
                (false, Ordering::Greater, None) | (true, Ordering::Less, _) => {
                    source.approach(key)?;
                    source.finish_seek(key, trailer)?;
                }
                (true, Ordering::Greater, _) => {
                    source.approach(key)?;
                    source.finish_seek_before(key, BEFORE_ALL_VERSIONS)?;
                }
                _ => {}
            }
            self.note(i);
        }
        self.build();
        Ok(())
    }

    /// Skips entries that a range delete of sequence number `seq` hides up to `bound`, or to the
    /// end: each stream that is on a hidden entry seeks to the bound, unless it may contain newer
    /// entries before the bound. Forward, the bound is the first key that is not hidden; backward,
    /// it is the last hidden key. Returns whether the current entry was skipped.
    pub fn skip_covered(&mut self, bound: Option<&[u8]>, seq: SeqNo) -> Result<bool> {
        let winner = self.winner as usize;
        let mut skipped = false;
        for i in 0..self.sources.len() {
            let moved = match self.reverse {
                false => self.sources[i].skip_older(bound, seq)?,
                true => self.sources[i].skip_older_back(bound, seq)?,
            };
            if moved {
                self.note(i);
                skipped |= i == winner;
            }
        }
        self.build();
        Ok(skipped)
    }

    /// User key and trailer of the current entry.
    #[inline]
    pub fn current(&self) -> Option<(&[u8], u64)> {
        self.sources.get(self.winner as usize)?.current()
    }

    /// User key, trailer and value of the current entry.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], u64, &[u8])> {
        self.sources.get(self.winner as usize)?.entry()
    }

    /// The stream of the current entry, and the others.
    pub fn into_current(mut self) -> (Option<Source>, Vec<Source>) {
        let winner = self.winner as usize;
        let current = self.current().is_some().then(|| self.sources.swap_remove(winner));
        (current, self.sources)
    }

    /// The current entry's table, if a run contains the entry.
    #[inline]
    pub fn table(&self) -> Option<&TableIter> {
        self.sources.get(self.winner as usize)?.table()
    }

    /// Whether the current entries of all other streams are above this key. O(streams).
    pub fn others_are_above(&self, key: &[u8]) -> bool {
        let wanted = self.head_rule.head(key);
        (0..self.sources.len()).all(|i| {
            i == self.winner as usize
                || !self.live[i]
                || self.heads[i] > wanted
                || self.heads[i] == wanted
                    && self.sources[i].current().is_some_and(|(other, _)| other > key)
        })
    }

    /// Moves forward to the first entry after the current block.
    pub fn skip_block(&mut self) -> Result<()> {
        let winner = self.winner as usize;
        self.sources[winner].skip_block()?;
        self.note(winner);
        self.replay(winner);
        Ok(())
    }

    /// Value of the current entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.sources.get(self.winner as usize).map_or(&[], Source::value)
    }

    /// The value of the current entry, which stays valid after the next step.
    pub fn pin_value(&self) -> Value {
        match self.sources.get(self.winner as usize) {
            Some(source) => source.pin_value(),
            None => Value::owned([]),
        }
    }

    fn approach(&mut self, key: &[u8]) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.approach(key))
    }

    fn start(
        &mut self,
        reverse: bool,
        mut position: impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        self.reverse = reverse;
        self.sources.iter_mut().try_for_each(&mut position)?;
        for i in 0..self.sources.len() {
            self.note(i);
        }
        self.build();
        Ok(())
    }

    #[inline]
    fn note(&mut self, i: usize) {
        match self.sources[i].current() {
            Some((key, _)) => {
                self.heads[i] = self.head_rule.head(key);
                self.live[i] = true;
            }
            None => self.live[i] = false,
        }
    }

    /// Plays the whole tournament: leaves are n..2n, and halving an index gives the parent.
    fn build(&mut self) {
        let count = self.sources.len();
        if count == 0 {
            return;
        }
        for (i, winner) in self.winners[count..].iter_mut().enumerate() {
            *winner = i as u32;
        }
        for node in (1..count).rev() {
            let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let first = self.wins(a as usize, b as usize);
            (self.winners[node], self.tree[node]) = if first { (a, b) } else { (b, a) };
        }
        self.winner = if count == 1 { 0 } else { self.winners[1] };
    }

    #[inline]
    fn replay(&mut self, leaf: usize) {
        let mut winner = leaf as u32;
        let mut node = (leaf + self.sources.len()) / 2;
        while node >= 1 {
            let loser = self.tree[node];
            if self.wins(loser as usize, winner as usize) {
                self.tree[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.winner = winner;
    }

    /// Whether stream `a` comes before stream `b`.
    #[inline]
    fn wins(&self, a: usize, b: usize) -> bool {
        if !self.live[a] || !self.live[b] {
            return self.live[a];
        }
        let order = match self.heads[a].cmp(&self.heads[b]) {
            Ordering::Equal => self.compare_whole(a, b),
            decided => decided,
        };
        if self.reverse { order == Ordering::Greater } else { order == Ordering::Less }
    }

    fn compare_whole(&self, a: usize, b: usize) -> Ordering {
        match (self.sources[a].current(), self.sources[b].current()) {
            (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
                compare(a_key, a_trailer, b_key, b_trailer)
            }
            _ => Ordering::Equal,
        }
    }
}
