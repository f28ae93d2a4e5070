//! Merges all versions of a keyspace by their numbers, and decides which of them the repaired store
//! gets.
//!
//! 1. The sources are the store's tables, and tables made of the log's entries. Each is opened when
//!    the merge reaches its first key, and closed after its last one: there may be ten thousand.
//! 2. The versions of a key are read newest first. Those that a range delete hides are skipped. A
//!    put ends the key. A delete ends it too, but is not written, because nothing is below it.
//!    Operands above are written as they are.
//! 3. If two versions have the same number, the table of one was compacted into the table of the
//!    other. Folding makes puts of operands and expiry makes deletes of puts, never the reverse, so
//!    the smaller kind is the newer.
//! 4. A version from a log that was kept aside counts only if the key has no later version.
//!
//! The same walk serves a keyspace whose tables are carried over: it writes the entries of the log,
//! with deletes, and finds out whether each visible pointer leads to a value.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use runstone_policy::shape::TableId;
use runstone_policy::shape::range_delete::RangeDelete;

use super::Repairing;
use super::report::{Doubt, DoubtReason};
use super::salvage::{Hole, Salvage};
use crate::error::Result;
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::{
    Kind, MAX_SEQ, SeqNo, compare, expires, is_delete, is_operand, is_pointer, kind_of, pack,
    seq_of,
};
use crate::ranges::RangeDeletes;

/// A table to merge.
pub(super) struct Input {
    /// The table of the damaged store. `None` if the input has entries of the log.
    pub(super) table: Option<TableId>,
    /// The name of the input in the report.
    pub(super) name: String,
    /// All range deletes of a table of the damaged store.
    pub(super) range_deletes: Vec<RangeDelete>,
    pub(super) min_key: Vec<u8>,
    /// The smallest and largest number of its entries.
    pub(super) numbers: (SeqNo, SeqNo),
    /// Opens the table.
    pub(super) open: Box<dyn Fn() -> Result<Salvage>>,
    /// Whether it has writes of a log that was kept aside.
    pub(super) is_aside: bool,
}

/// What a merge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To write all entries of a keyspace.
    All,
    /// To write the entries on top of tables that are carried over.
    Top,
    /// To check whether values exist.
    Probe,
}

/// The value of [`Merge::aside_from`] if no log was kept aside.
pub(super) const NO_ASIDE: SeqNo = SeqNo::MAX;

/// The position of a source.
struct At {
    key: Vec<u8>,
    trailer: u64,
    input: usize,
}

/// The heap has the largest on top, so the order is reversed: the smallest internal key is first.
impl Ord for At {
    fn cmp(&self, other: &At) -> Ordering {
        compare(&other.key, other.trailer, &self.key, self.trailer)
            .then(other.input.cmp(&self.input))
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for At {
    fn eq(&self, other: &At) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for At {}

/// The key that is being judged.
#[derive(Default)]
struct Judged {
    key: Vec<u8>,
    /// Whether the following versions are hidden.
    is_done: bool,
    /// Versions to write, newest first.
    kept: Vec<(u64, Vec<u8>)>,
    /// The version that was read last: another one with its number may follow.
    waiting: Option<(u64, Vec<u8>)>,
    /// Why the value cannot be read.
    lost: Option<String>,
    /// Whether `kept` has a version from a log that was kept aside.
    has_aside: bool,
    /// The newest version from such a log, until the key's own versions are known.
    aside: Vec<(u64, Vec<u8>)>,
    /// The largest sequence number of the key's versions. Hidden versions and deletes count too.
    newest: SeqNo,
}

/// A merge of one keyspace.
pub(super) struct Merge<'a> {
    pub(super) name: &'a str,
    pub(super) ranges: &'a RangeDeletes,
    /// Versions from this number on are newer than a log that was kept aside.
    pub(super) aside_from: SeqNo,
    inputs: Vec<&'a Input>,
    purpose: Purpose,
    pub(super) duplicates: u64,
    pub(super) has_operands: bool,
    /// Whether a value is missing, or an entry could not be read. Only a probe sets it.
    pub(super) misses: bool,
    /// The reason for the last doubt, if it is about a key and may be joined with the next doubt.
    joined: Option<DoubtReason>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        name: &'a str,
        ranges: &'a RangeDeletes,
        inputs: Vec<&'a Input>,
        purpose: Purpose,
    ) -> Merge<'a> {
        Merge {
            name,
            ranges,
            aside_from: NO_ASIDE,
            inputs,
            purpose,
            duplicates: 0,
            has_operands: false,
            misses: false,
            joined: None,
        }
    }

    /// Writes the versions that count, key by key.
    pub(super) fn run(
        &mut self,
        repairing: &mut Repairing,
        mut write: impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut open: Vec<Option<Salvage>> = self.inputs.iter().map(|_| None).collect();
        let mut heap: BinaryHeap<At> = (0..)
            .zip(&self.inputs)
            .map(|(input, one)| {
                let (key, trailer) = (one.min_key.clone(), BEFORE_ALL_VERSIONS);
                At { key, trailer, input }
            })
            .collect();
        let mut judged = Judged::default();
        let mut is_first = true;
        while let Some(mut at) = heap.pop() {
            let input = at.input;
            if let Some((key, trailer, value)) = open[input].as_ref().and_then(Salvage::entry) {
                if is_first || judged.key != key {
                    if !is_first {
                        self.finish_key(repairing, &mut judged, &mut write)?;
                    }
                    is_first = false;
                    judged.begin(key);
                }
                self.take(repairing, &mut judged, input, trailer, value);
            } else {
                match (self.inputs[input].open)() {
                    Ok(opened) => open[input] = Some(opened),
                    Err(error) => return Err(error),
                }
            }
            let Some(source) = &mut open[input] else { continue };
            if source.next() {
                if let Some((key, trailer, _)) = source.entry() {
                    at.key.clear();
                    at.key.extend_from_slice(key);
                    at.trailer = trailer;
                    heap.push(at);
                }
                continue;
            }
            let holes = std::mem::take(&mut source.holes);
            open[input] = None;
            holes.into_iter().for_each(|hole| self.note_hole(repairing, input, hole));
        }
        if !is_first {
            self.finish_key(repairing, &mut judged, &mut write)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        repairing: &mut Repairing,
        judged: &mut Judged,
        input: usize,
        trailer: u64,
        value: &[u8],
    ) {
        if kind_of(trailer) == Kind::RangeDelete as u8 {
            return;
        }
        self.has_operands |= is_operand(trailer);
        if self.inputs[input].is_aside {
            judged.aside.push((trailer, value.to_vec()));
            return;
        }
        judged.newest = judged.newest.max(seq_of(trailer));
        let is_same = |last: &(u64, Vec<u8>)| seq_of(last.0) == seq_of(trailer);
        if judged.waiting.as_ref().is_some_and(is_same) {
            self.duplicates += 1;
            // Versions with the same number are in the order of their kinds, the largest first.
            judged.waiting = Some((trailer, value.to_vec()));
            return;
        }
        if let Some((trailer, value)) = judged.waiting.take() {
            self.judge(repairing, judged, trailer, value);
        }
        if !judged.is_done {
            judged.waiting = Some((trailer, value.to_vec()));
        }
    }

    /// Keeps a version, or ends the key.
    fn judge(
        &mut self,
        repairing: &mut Repairing,
        judged: &mut Judged,
        trailer: u64,
        value: Vec<u8>,
    ) {
        if judged.is_done {
            return;
        }
        let is_hidden = self.ranges.hide(&judged.key, seq_of(trailer), MAX_SEQ);
        judged.is_done = is_hidden || !is_operand(trailer);
        let is_needed = self.purpose == Purpose::Top && !seeded!(RepairForgetsDeletes);
        if is_hidden || is_delete(trailer) && !is_needed {
            return;
        }
        if self.purpose == Purpose::Probe {
            self.misses |= is_pointer(trailer) && !repairing.values.holds(&value);
            return;
        }
        if !is_pointer(trailer) {
            judged.kept.push((trailer, value));
            return;
        }
        match repairing.values.read(&judged.key, trailer, &value) {
            Ok(mut found) => {
                let kind = if expires(trailer) { Kind::ExpiringPut } else { Kind::Put };
                if expires(trailer) {
                    found.extend_from_slice(&value[value.len().saturating_sub(EXPIRY_BYTES)..]);
                }
                judged.kept.push((pack(seq_of(trailer), kind), found));
            }
            Err(why) => judged.lost = Some(why),
        }
    }

    fn finish_key(
        &mut self,
        repairing: &mut Repairing,
        judged: &mut Judged,
        write: &mut impl FnMut(&[u8], u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if let Some((trailer, value)) = judged.waiting.take() {
            self.judge(repairing, judged, trailer, value);
        }
        self.settle_aside(repairing, judged);
        if let Some(why) = judged.lost.take() {
            self.doubt(repairing, &judged.key, DoubtReason::ValueLost, why);
            judged.kept.clear();
        } else if judged.has_aside {
            let what = "writes of a log that was kept aside".to_string();
            self.doubt(repairing, &judged.key, DoubtReason::FromLostLog, what);
        } else if !judged.kept.is_empty() {
            self.joined = None;
        }
        for (trailer, value) in judged.kept.drain(..) {
            write(&judged.key, trailer, &value)?;
        }
        Ok(())
    }

    /// Adds the versions of a log that was kept aside on top, if the key's own are all older.
    fn settle_aside(&mut self, repairing: &mut Repairing, judged: &mut Judged) {
        if judged.aside.is_empty() {
            return;
        }
        let over = self.ranges.over(&judged.key, MAX_SEQ);
        let aside = std::mem::take(&mut judged.aside);
        if judged.newest >= self.aside_from || over >= self.aside_from {
            // It is not known which version is newer if the recovery assigned the numbers again.
            judged.has_aside = true;
            return;
        }
        let own = std::mem::take(&mut judged.kept);
        let lost = judged.lost.take();
        (judged.is_done, judged.has_aside) = (false, true);
        for (trailer, value) in aside {
            self.judge(repairing, judged, trailer, value);
        }
        if !judged.is_done {
            judged.kept.extend(own);
            judged.lost = judged.lost.take().or(lost);
        }
    }

    /// Notes a doubt about a key. Neighbouring keys with the same doubt are one range.
    fn doubt(&mut self, repairing: &mut Repairing, key: &[u8], reason: DoubtReason, what: String) {
        if self.joined == Some(reason)
            && let Some(last) = repairing.report.doubts.last_mut()
        {
            last.to = Some(key.to_vec());
            return;
        }
        self.joined = Some(reason);
        repairing.report.doubts.push(Doubt {
            keyspace: Some(self.name.to_string()),
            from: key.to_vec(),
            to: Some(key.to_vec()),
            numbers: None,
            reason,
            what,
        });
    }

    fn note_hole(&mut self, repairing: &mut Repairing, input: usize, hole: Hole) {
        self.joined = None;
        match self.purpose {
            Purpose::Probe => self.misses = true,
            _ => repairing.note_hole(self.name, self.inputs[input], hole),
        }
    }
}

impl Repairing {
    /// Notes a part of a table that cannot be read.
    pub(super) fn note_hole(&mut self, keyspace: &str, input: &Input, hole: Hole) {
        if seeded!(RepairPassesHoles) {
            return;
        }
        let what = format!("{}: {}", input.name, hole.what);
        self.lose(&input.name, &hole.what);
        self.report.doubts.push(Doubt {
            keyspace: Some(keyspace.to_string()),
            from: hole.from,
            to: Some(hole.to),
            numbers: Some(input.numbers),
            reason: DoubtReason::MayBeOld,
            what,
        });
    }
}

impl Judged {
    fn begin(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.is_done = false;
        self.kept.clear();
        (self.waiting, self.lost) = (None, None);
        (self.has_aside, self.newest) = (false, 0);
        self.aside.clear();
    }
}
