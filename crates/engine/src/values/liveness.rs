//! Decides which records a collection of a hash group keeps, and which segments it rewrites. Pure
//! functions: no I/O, no locks.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use runstone_policy::sketch::Sketch;

use crate::cache::Reservation;
use crate::format::record::{Record, footer_bytes, tag_bytes};
use crate::keys::{SeqNo, head};
use crate::memory::region::MappedVec;
use crate::values::file::ValueFile;
use crate::values::layout::{DeadRecord, Segment, SegmentList};
use crate::values::scan::HeldSegment;
use crate::values::shared_list::SharedList;

/// A record of the group that is being collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordEntry {
    /// The place of the record's key in the arena.
    pub(crate) key_at: usize,
    pub(crate) key_bytes: u32,
    pub(crate) seq: SeqNo,
    pub(crate) stream_offset: u64,
    /// The index of the record's segment; `offset` is the place in that segment.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// For a tag, the record that it names.
    pub(crate) tag: Option<Tag>,
    /// Whether it is a marker: its version is a deletion or is inline.
    pub(crate) is_marker: bool,
    /// Whether the record goes to the cold stream, if its segment is rewritten.
    pub(crate) cools: bool,
}

/// A record in the cold stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) stream_offset: u64,
    pub(crate) bytes: u32,
}

impl RecordEntry {
    /// Bytes that the group keeps: the bytes of the record, or of its tag if the record cools.
    pub(crate) fn kept_bytes(&self) -> u64 {
        if self.cools { tag_bytes(self.key_bytes as usize) } else { self.bytes.into() }
    }

    /// The record among the bytes of its segment, which the scan has checked.
    pub(crate) fn checked<'a>(&self, segment: &'a [u8]) -> Result<Record<'a>, &'static str> {
        Record::of_checked(&segment[self.offset as usize..])
    }

    /// The end of the record in its segment.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }

    /// Bytes that move from the group to the cold stream.
    pub(crate) fn cooling_bytes(&self) -> u64 {
        if self.cools { self.bytes.into() } else { 0 }
    }

    /// Whether the group keeps a tag of the record.
    pub(crate) fn becomes_tag(&self) -> bool {
        self.cools || self.tag.is_some()
    }
}

/// The records that a scan found.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) keys: Vec<u8>,
    pub(crate) entries: MappedVec<RecordEntry>,
    /// What the entries take from the memory budget.
    pub(crate) charge: Option<Reservation>,
    /// The bytes of each segment that is held.
    pub(crate) held: Vec<Option<HeldSegment>>,
    /// Whether some segments are not held, because there are too many.
    pub(crate) is_too_large: bool,
    /// Whether most of the segments' bytes were not in the system's page cache.
    pub(crate) is_cold: bool,
    /// Spreads the hashes of keys. Nobody outside the store knows this value, so nobody can choose
    /// keys whose hashes collide.
    pub(crate) mix: u64,
}

impl Scanned {
    pub(crate) fn key(&self, entry: &RecordEntry) -> &[u8] {
        &self.keys[entry.key_at..entry.key_at + entry.key_bytes as usize]
    }

    /// Indices of the entries, sorted by key and then as `order` says. The sort moves pairs of a
    /// head and an index, because they are small and most comparisons end at the head.
    fn by_key(&self) -> Vec<u32> {
        let heads = self.entries.iter().map(|entry| head(self.key(entry), 0));
        let mut sorted: Vec<(u64, u32)> = heads.zip(0..).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| self.order(a.1, b.1)));
        sorted.into_iter().map(|(_, at)| at).collect()
    }

    /// Compares by key. The newest version of a key comes first. Of two records of a version, the
    /// later one comes first. A record comes before a marker of the same version: such a version
    /// was first inline, and was separated later.
    fn order(&self, one: u32, other: u32) -> Ordering {
        let order = |at: u32| {
            let entry = &self.entries[at as usize];
            (self.key(entry), Reverse(entry.seq), entry.is_marker, Reverse(entry.stream_offset))
        };
        order(one).cmp(&order(other))
    }

    fn is_same_key(&self, one: u32, other: u32) -> bool {
        self.key(&self.entries[one as usize]) == self.key(&self.entries[other as usize])
    }

    fn hashes(&self) -> Vec<u64> {
        self.entries.iter().map(|entry| ValueFile::sketch_hash(self.key(entry))).collect()
    }
}

/// Marks the absence of an entry.
const NONE: u32 = u32::MAX;

/// Entries by hash. Each entry leads to the previous entry with the same hash, which usually has
/// the same key.
struct Chains {
    before: Vec<u32>,
    /// For each entry, whether no later entry has the same hash.
    is_last: Vec<bool>,
}

impl Chains {
    /// Builds the chains. At most half of the slots of the hash table are taken, so that a search
    /// is short.
    fn of(hashes: &[u64], mix: u64) -> Chains {
        let bits = (2 * hashes.len()).next_power_of_two().trailing_zeros().max(1);
        let mut slots = vec![NONE; 1 << bits];
        let mut chains =
            Chains { before: vec![NONE; hashes.len()], is_last: vec![true; hashes.len()] };
        for (i, hash) in (0..).zip(hashes) {
            let mut at = (hash.wrapping_mul(mix | 1) >> (u64::BITS - bits)) as usize;
            while slots[at] != NONE && hashes[slots[at] as usize] != *hash {
                at = (at + 1) % slots.len();
            }
            let before = std::mem::replace(&mut slots[at], i);
            chains.before[i as usize] = before;
            if before != NONE {
                chains.is_last[before as usize] = false;
            }
        }
        chains
    }

    /// Fills `out` with the entries of the chain that ends with `last`.
    fn list(&self, last: u32, out: &mut Vec<u32>) {
        out.clear();
        out.extend(std::iter::successors(Some(last), |at| {
            Some(self.before[*at as usize]).filter(|before| *before != NONE)
        }));
    }
}

/// The records of a group that a collection keeps.
#[derive(Debug)]
pub(crate) struct Survivors {
    /// The records, by stream offset.
    pub(crate) entries: Vec<RecordEntry>,
    pub(crate) keys: Sketch,
    /// Bytes of the newest versions.
    pub(crate) live_bytes: u64,
    /// Bytes that only snapshots need.
    pub(crate) pinned_bytes: u64,
    /// Tags of versions that no reader sees.
    pub(crate) dropped_tags: Vec<RecordEntry>,
}

impl Survivors {
    fn none() -> Survivors {
        Survivors {
            entries: Vec::new(),
            keys: Sketch::of_nothing(),
            live_bytes: 0,
            pinned_bytes: 0,
            dropped_tags: Vec::new(),
        }
    }
}

/// The indices of the segments that are worth rewriting.
///
/// 1. Segments at the front that have lost nothing stay, because copying them would free nothing.
/// 2. Segments at the end stay if rewriting the rest frees as many slots without them. They are the
///    newest, so they have the smallest dead part. A later collection finds their garbage. The open
///    segment is usually among them, so a collection does not leave a partly filled segment behind
///    each time.
/// 3. If no slot becomes free, all segments are rewritten. Then no garbage is left, and no
///    collection tries again.
pub(crate) fn rewritten(
    segments: &[Segment],
    survivors: &[RecordEntry],
    slot_bytes: u64,
) -> Range<usize> {
    let from = whole_front(segments, survivors, slot_bytes);
    let mut left = vec![Vec::new(); segments.len()];
    survivors.iter().for_each(|entry| left[entry.segment as usize].push(entry));
    let mut outputs = Packing { slot_bytes, ..Packing::default() };
    let mut inputs = 0;
    // The slots that become free if the rewriting ends after each segment.
    let mut freed = vec![0];
    for (segment, left) in segments.iter().zip(left).skip(from) {
        inputs += i64::from(segment.slots);
        left.into_iter().for_each(|entry| outputs.add(entry));
        freed.push(inputs - outputs.slots());
    }
    let all = freed.last().copied().unwrap_or(0);
    let enough = freed.iter().position(|slots| *slots >= all).filter(|_| all > 0);
    from..enough.map_or(segments.len(), |count| from + count)
}

/// Counts the slots that records take if they are packed as the copy packs them.
#[derive(Default)]
struct Packing {
    slot_bytes: u64,
    slots: i64,
    open_bytes: u64,
    open_records: u32,
    open_tags: u32,
    cold_bytes: u64,
}

impl Packing {
    fn add(&mut self, entry: &RecordEntry) {
        let (bytes, tag) = (entry.kept_bytes(), u32::from(entry.becomes_tag()));
        let footer = footer_bytes(self.open_records + 1, self.open_tags + tag);
        if self.open_records == 0 || self.open_bytes + bytes + footer > self.slot_bytes {
            self.slots += (bytes + footer_bytes(1, tag)).div_ceil(self.slot_bytes) as i64;
            (self.open_bytes, self.open_records, self.open_tags) = (0, 0, 0);
        }
        self.open_bytes += bytes;
        self.open_records += 1;
        self.open_tags += tag;
        self.cold_bytes += entry.cooling_bytes();
    }

    /// The slots that the records take. The cold stream continues in a partly filled slot, so its
    /// records take fractions of slots.
    fn slots(&self) -> i64 {
        self.slots + self.cold_bytes.div_ceil(self.slot_bytes) as i64
    }
}

/// The number of segments at the front that have lost no record and are nearly full.
fn whole_front(segments: &[Segment], survivors: &[RecordEntry], slot_bytes: u64) -> usize {
    let mut counts = vec![0u32; segments.len()];
    survivors.iter().for_each(|entry| counts[entry.segment as usize] += 1);
    let whole = |(segment, count): (&Segment, &u32)| {
        let room = u64::from(segment.slots) * slot_bytes;
        segment.records == *count && segment.stored_bytes() * 8 >= room * 7
    };
    segments.iter().zip(&counts).take_while(|pair| whole(*pair)).count()
}

/// Finds the versions that stay. For each key, these are the newest version and, for each snapshot
/// point, the newest version that the snapshot sees, except versions that compactions found dead.
/// Versions that are held stay too, whatever else is known about them. With `cools`, a record goes
/// to the cold stream if it is the only record of its key in the scan: the key has had no update
/// since the record was written or last moved (HashKV §3.4).
pub(crate) fn survivors(
    scanned: &Scanned,
    points: &[SeqNo],
    (dead, held): (&BTreeMap<u64, u32>, &BTreeSet<u64>),
    cools: bool,
) -> Survivors {
    let kept = Vec::with_capacity(scanned.entries.len());
    let judge = Judge { scanned, points, dead, held, cools, out: Survivors::none(), kept };
    judge.by_hash(&scanned.hashes())
}

/// Finds the survivors, key by key.
struct Judge<'a> {
    scanned: &'a Scanned,
    points: &'a [SeqNo],
    dead: &'a BTreeMap<u64, u32>,
    held: &'a BTreeSet<u64>,
    cools: bool,
    out: Survivors,
    /// The index of each kept entry, and whether it cools.
    kept: Vec<(u32, bool)>,
}

impl Judge<'_> {
    /// Finds the entries of a key by hash. It sorts only entries that share a hash.
    fn by_hash(mut self, hashes: &[u64]) -> Survivors {
        let scanned = self.scanned;
        let chains = Chains::of(hashes, scanned.mix);
        let mut same = Vec::new();
        for (last, hash) in (0..).zip(hashes).filter(|(i, _)| chains.is_last[*i as usize]) {
            chains.list(last, &mut same);
            same.sort_unstable_by(|a, b| scanned.order(*a, *b));
            let keys = same.chunk_by(|a, b| scanned.is_same_key(*a, *b));
            keys.for_each(|versions| self.see(versions, *hash));
        }
        self.finish()
    }

    /// Judges all versions of a key, the newest first. A version has two records if a compaction
    /// filter changed its value. The original record was dropped, which says nothing about the
    /// other record, which may be before it in the stream.
    fn see(&mut self, versions: &[u32], hash: u64) {
        let before = self.kept.len();
        let mut last = None;
        let mut dropped: Option<(SeqNo, Option<usize>)> = None;
        for at in versions {
            let entry = &self.scanned.entries[*at as usize];
            if let Some((seq, above)) = dropped.take()
                && seq == entry.seq
            {
                last = above;
            }
            let stripe = self.points.partition_point(|point| *point < entry.seq);
            let newest = last.is_none();
            let shadowed = last == Some(stripe) && stripe < self.points.len();
            let above = last.replace(stripe);
            let shadowed = shadowed || (!newest && seeded!(CollectionForgetsSnapshots));
            let is_dead = self.dead.contains_key(&entry.stream_offset);
            if !newest && !is_dead {
                // The key of the entry was updated, so its newest version is hot.
                self.kept[before..].last_mut().into_iter().for_each(|(_, cools)| *cools = false);
            }
            let is_held = self.held.contains(&entry.stream_offset);
            dropped = (is_dead || is_held).then_some((entry.seq, above));
            if (shadowed || is_dead) && !is_held {
                self.out.dropped_tags.extend(entry.tag.map(|_| *entry));
                continue;
            }
            // A held record is garbage. If the group lists it as dead, the group's count of dead
            // bytes includes it.
            if is_dead || newest && !is_held {
                self.out.live_bytes += u64::from(entry.bytes);
            } else if !is_held {
                self.out.pinned_bytes += u64::from(entry.bytes);
            }
            self.out.keys.add(hash);
            self.kept.push((*at, self.cools && newest && !is_held && entry.tag.is_none()));
        }
    }

    fn finish(self) -> Survivors {
        let Judge { scanned, mut out, mut kept, .. } = self;
        // Back to the order of the scan, which is by stream offset.
        kept.sort_unstable();
        let entry = |(at, cools)| RecordEntry { cools, ..scanned.entries[at as usize] };
        out.entries = kept.into_iter().map(entry).collect();
        debug_assert!(
            out.entries.is_sorted_by_key(|entry| entry.stream_offset),
            "the survivors of a group are not in the order of their records"
        );
        out
    }
}

/// The newest version of each key, by key, in a group whose pointers are written back. A key is
/// left out if a marker or a compaction shows that this version is not the key's newest. A version
/// may have several records, because a collection that ended after its copies and before its
/// pointers left both. If one of them is known to be dead, all of them are. Older versions stay
/// where they are as long as a snapshot needs them.
///
/// Such a collection may also leave a record and a tag of the same version. The tree may point to
/// either. The record is used: it moves, so its pointer is written in any case, and the tag is
/// dropped. If the tag were used, no pointer would be written, although the tree might point to the
/// record. With `cools`, a record goes to the cold stream if its group has no other version of its
/// key (HashKV §3.4).
pub(crate) fn newest(scanned: &Scanned, dead: &BTreeMap<u64, u32>, cools: bool) -> Survivors {
    let mut out = Survivors::none();
    let entry = |at: &u32| &scanned.entries[*at as usize];
    for versions in scanned.by_key().chunk_by(|a, b| scanned.is_same_key(*a, *b)) {
        let newest = entry(&versions[0]);
        let same = || versions.iter().map(entry).take_while(|one| one.seq == newest.seq);
        let is_dead = same().any(|one| dead.contains_key(&one.stream_offset));
        let is_record = |one: &&RecordEntry| one.tag.is_none() && !one.is_marker;
        let record = same().find(is_record).filter(|_| !seeded!(TagsTrustedOverRecords));
        let kept = record.unwrap_or(newest);
        let kept = Some(kept).filter(|one| !one.is_marker && !is_dead);
        let tags = versions.iter().map(entry).filter(|one| one.tag.is_some());
        // Two tags of a version may name the same record.
        let is_kept = |one: &&RecordEntry| kept.is_some_and(|kept| kept.tag == one.tag);
        out.dropped_tags.extend(tags.filter(|one| !is_kept(one)));
        let Some(kept) = kept else { continue };
        let is_hot = kept.tag.is_some() || versions.iter().any(|at| entry(at).seq != kept.seq);
        out.live_bytes += u64::from(kept.bytes);
        out.keys.add(ValueFile::sketch_hash(scanned.key(kept)));
        out.entries.push(RecordEntry { cools: cools && !is_hot, ..*kept });
    }
    out
}

/// The markers that are the newest entries of their keys, by key, in a group whose pointers are
/// written back.
pub(crate) fn newest_markers(scanned: &Scanned) -> Vec<RecordEntry> {
    let entry = |at: &u32| &scanned.entries[*at as usize];
    let sorted = scanned.by_key();
    let keys = sorted.chunk_by(|a, b| scanned.is_same_key(*a, *b));
    let newest = keys.map(|versions| entry(&versions[0]));
    newest.filter(|entry| entry.is_marker).copied().collect()
}

/// The records of the cold stream, without those known to be dead. Each is kept as long as its tag
/// is, and the tags are kept for snapshots.
pub(crate) fn cold_survivors(scanned: &Scanned, dead: &BTreeMap<u64, u32>) -> Survivors {
    let mut out = Survivors::none();
    out.entries
        .extend(scanned.entries.iter().filter(|entry| !dead.contains_key(&entry.stream_offset)));
    out.live_bytes = out.entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    out
}

/// Neighbouring segments of the cold stream that are mostly dead or unused, and the number of their
/// dead and unused bytes. They take about `most_slots` slots, and are among the first `count`
/// segments. Unused room in an extent of several slots does not count, because no other record can
/// use it.
///
/// Dead records before the first segment count as part of the first segment. If pointers are
/// written back, a compaction may find a record dead after the record is gone. Such a note is
/// forgotten when a window around its place is rewritten.
pub(crate) fn emptiest(
    segments: &SegmentList,
    count: usize,
    dead: &SharedList<DeadRecord>,
    (most_slots, slot_bytes): (u64, u64),
) -> (Range<usize>, u64) {
    let mut from = 0;
    let ends = segments.iter().skip(1).map(|next| next.stream_offset).chain([u64::MAX]);
    let dead_in = |(segment, end): (&Segment, u64)| -> u64 {
        let dead = dead.range(from..end).map(|(_, bytes)| u64::from(*bytes));
        from = end;
        let room = if segment.slots == 1 { slot_bytes } else { 0 };
        dead.sum::<u64>() + room.saturating_sub(segment.stored_bytes())
    };
    let dead: Vec<u64> = segments.iter().zip(ends).take(count).map(dead_in).collect();
    let (mut best, mut best_bytes) = (0..0, 0);
    let (mut from, mut slots, mut bytes) = (0, 0, 0);
    let mut leaving = segments.iter();
    for (i, segment) in segments.iter().enumerate().take(count) {
        slots += u64::from(segment.slots);
        bytes += dead[i];
        while from < i && slots > most_slots {
            slots -= leaving.next().map_or(0, |first| u64::from(first.slots));
            bytes -= dead[from];
            from += 1;
        }
        if bytes > best_bytes {
            (best, best_bytes) = (from..i + 1, bytes);
        }
    }
    (best, best_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SLOT_BYTES: u64 = 4096;

    fn segments(count: u32) -> Vec<Segment> {
        let segment = |slot: u32| Segment {
            slot,
            slots: 1,
            collected: false,
            generation: slot.into(),
            stream_offset: u64::from(slot) * SLOT_BYTES,
            bytes: 4000,
            records: 4,
            tags: 0,
            cold_bytes: 0,
        };
        (0..count).map(segment).collect()
    }

    /// Segments of four records of 1,000 bytes each. `counts` gives the number of records that are
    /// left in each segment.
    fn left(counts: &[u32]) -> Vec<RecordEntry> {
        let entry = |segment: usize, i: u32| RecordEntry {
            key_at: 0,
            key_bytes: 0,
            seq: 1,
            stream_offset: segment as u64 * SLOT_BYTES + u64::from(i),
            segment: segment as u32,
            offset: i * 1000,
            bytes: 1000,
            tag: None,
            is_marker: false,
            cools: false,
        };
        let of = |(segment, count): (usize, &u32)| {
            (0..*count).map(move |i| entry(segment, i)).collect::<Vec<_>>()
        };
        counts.iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn only_what_frees_a_slot_is_rewritten() {
        let rewritten =
            |counts: &[u32]| rewritten(&segments(counts.len() as u32), &left(counts), SLOT_BYTES);
        assert_eq!(rewritten(&[4, 4, 2, 2, 4, 4]), 2..4, "neither the front nor the end");
        assert_eq!(rewritten(&[2, 2, 4, 3]), 0..2, "three quarters at the end free nothing");
        assert_eq!(rewritten(&[0, 0, 0]), 0..3);
        assert_eq!(rewritten(&[3, 4, 4]), 0..3, "nothing comes free: all, so that nobody retries");
        assert_eq!(rewritten(&[]), 0..0);
        assert_eq!(rewritten(&[2, 0, 4, 2, 0]), 0..5, "the last frees a slot of its own");
    }

    #[test]
    fn what_cools_leaves_a_tag() {
        // Each record leaves a tag of 18 bytes. Four of the records fill a slot of the cold stream.
        let mut all_cool = left(&[4, 2, 2, 4]);
        all_cool.iter_mut().for_each(|entry| entry.cools = true);
        assert_eq!(rewritten(&segments(4), &all_cool, SLOT_BYTES), 1..4, "but the front");
        let mut outputs = Packing { slot_bytes: SLOT_BYTES, ..Packing::default() };
        all_cool.iter().for_each(|entry| outputs.add(entry));
        assert_eq!((outputs.slots, outputs.slots()), (1, 4), "12,000 bytes are three more slots");
    }

    fn scanned(records: &[(&str, SeqNo, u64, bool)]) -> Scanned {
        let mut scanned = Scanned::default();
        for (key, seq, stream_offset, is_tag) in records {
            scanned.entries.push(RecordEntry {
                key_at: scanned.keys.len(),
                key_bytes: key.len() as u32,
                seq: *seq,
                stream_offset: *stream_offset,
                segment: 0,
                offset: 0,
                bytes: 100,
                tag: is_tag.then_some(Tag { stream_offset: *stream_offset * 2, bytes: 100 }),
                is_marker: false,
                cools: false,
            });
            scanned.keys.extend_from_slice(key.as_bytes());
        }
        scanned
    }

    /// Finds the survivors among records (key, sequence number, stream offset, whether it is a
    /// tag).
    fn judged(records: &[(&str, SeqNo, u64, bool)], points: &[SeqNo], dead: &[u64]) -> Survivors {
        let scanned = scanned(records);
        let dead = dead.iter().map(|at| (*at, 100)).collect();
        survivors(&scanned, points, (&dead, &BTreeSet::new()), true)
    }

    /// The stream offsets that would be relocated among records (key, sequence number, stream
    /// offset, whether it is a marker).
    fn relocated(records: &[(&str, SeqNo, u64, bool)], dead: &[u64]) -> Vec<u64> {
        let mut scanned = scanned(records);
        for entry in scanned.entries.iter_mut() {
            entry.is_marker = entry.tag.take().is_some();
        }
        let dead = dead.iter().map(|at| (*at, 100)).collect();
        newest(&scanned, &dead, true).entries.iter().map(|entry| entry.stream_offset).collect()
    }

    #[test]
    fn of_each_key_the_newest_version_is_relocated_unless_marked() {
        let records = [("b", 1, 1, false), ("a", 2, 2, false), ("b", 9, 3, false)];
        assert_eq!(relocated(&records, &[]), [2, 3], "by key");
        let late = [("a", 9, 1, false), ("a", 2, 2, false)];
        assert_eq!(relocated(&late, &[]), [1], "a copy of an older version may lie behind");
        let marked = [("a", 1, 1, false), ("a", 2, 2, true), ("b", 3, 3, true), ("b", 4, 4, false)];
        assert_eq!(relocated(&marked, &[]), [4]);
        let twice = [("a", 5, 1, false), ("a", 5, 2, false)];
        assert_eq!(relocated(&twice, &[]), [2]);
        assert_eq!(relocated(&twice, &[1]), [] as [u64; 0], "one version is dead in all places");
        let older = [("a", 4, 1, false), ("a", 5, 2, false)];
        assert_eq!(relocated(&older, &[1]), [2]);
        assert_eq!(relocated(&older, &[2]), [] as [u64; 0], "nor does the older one come back");
        let separated = [("a", 5, 1, true), ("a", 5, 2, false)];
        assert_eq!(relocated(&separated, &[]), [2], "inline, then separated by a compaction");
    }

    /// The fate of the records (key, sequence number, stream offset, whether it is a tag) of a
    /// group that writes back: the kept records, each with a flag whether it cools, and the dropped
    /// tags.
    fn moved(
        records: &[(&str, SeqNo, u64, bool)],
        markers: &[u64],
    ) -> (Vec<(u64, bool)>, Vec<u64>) {
        let mut scanned = scanned(records);
        for entry in scanned.entries.iter_mut() {
            entry.is_marker = markers.contains(&entry.stream_offset);
        }
        let out = newest(&scanned, &BTreeMap::new(), true);
        let kept = out.entries.iter().map(|entry| (entry.stream_offset, entry.cools));
        let dropped = out.dropped_tags.iter().map(|entry| entry.stream_offset);
        (kept.collect(), dropped.collect())
    }

    #[test]
    fn tags_stay_until_their_key_has_a_newer_version() {
        let once = [("a", 5, 1, false), ("b", 6, 2, false), ("b", 7, 3, false)];
        assert_eq!(moved(&once, &[]), (vec![(1, true), (3, false)], vec![]));
        let tag = [("a", 5, 1, true)];
        assert_eq!(moved(&tag, &[]), (vec![(1, false)], vec![]), "it stays as it is");
        let updated = [("a", 5, 1, true), ("a", 9, 2, false)];
        assert_eq!(moved(&updated, &[]), (vec![(2, false)], vec![1]), "hot by its tag");
        let deleted = [("a", 5, 1, true), ("a", 9, 2, false)];
        assert_eq!(moved(&deleted, &[2]), (vec![], vec![1]));
        let both = [("a", 5, 1, false), ("a", 5, 2, true)];
        assert_eq!(moved(&both, &[]), (vec![(1, true)], vec![2]), "the tree may lead to either");
    }

    #[test]
    fn two_tags_of_one_record_keep_it() {
        let mut scanned = scanned(&[("a", 5, 1, true), ("a", 5, 2, true), ("a", 5, 3, true)]);
        scanned.entries[0].tag = scanned.entries[2].tag;
        let out = newest(&scanned, &BTreeMap::new(), true);
        let at = |all: &[RecordEntry]| -> Vec<u64> {
            all.iter().map(|entry| entry.stream_offset).collect()
        };
        assert_eq!((at(&out.entries), at(&out.dropped_tags)), (vec![3], vec![2]));
    }

    #[test]
    fn records_without_updates_cool() {
        let stream_offsets = |kept: &Survivors| -> Vec<(u64, bool)> {
            kept.entries.iter().map(|entry| (entry.stream_offset, entry.cools)).collect()
        };
        let dropped = |kept: &Survivors| -> Vec<u64> {
            kept.dropped_tags.iter().map(|entry| entry.stream_offset).collect()
        };
        let records = [("a", 1, 1, false), ("b", 2, 2, false), ("b", 9, 9, false)];
        assert_eq!(stream_offsets(&judged(&records, &[10], &[])), [(1, true), (9, false)]);
        // A snapshot at 5 still sees the older version. So the key has more than one record, and
        // does not cool.
        let kept = judged(&records, &[5, 10], &[]);
        assert_eq!(stream_offsets(&kept), [(1, true), (2, false), (9, false)]);
        let kept = judged(&records, &[10], &[2]);
        assert_eq!(
            stream_offsets(&kept),
            [(1, true), (9, true)],
            "what is known to be dead is no version"
        );
        let tags = [("a", 1, 1, true), ("b", 2, 2, true), ("b", 9, 9, false)];
        let kept = judged(&tags, &[10], &[]);
        assert_eq!(
            (stream_offsets(&kept), dropped(&kept)),
            (vec![(1, false), (9, false)], vec![2])
        );
        let kept = judged(&tags, &[5, 10], &[1]);
        assert_eq!(
            (stream_offsets(&kept), dropped(&kept)),
            (vec![(2, false), (9, false)], vec![1])
        );
    }

    #[test]
    fn a_record_that_a_filter_replaced_does_not_hide_the_other_of_its_version() {
        let kept = |records: &[(&str, SeqNo, u64, bool)], points: &[SeqNo], dead: &[u64]| {
            let kept = judged(records, points, dead).entries;
            kept.iter().map(|entry| entry.stream_offset).collect::<Vec<_>>()
        };
        let (old, new, other) = (("a", 5, 7, false), ("a", 5, 3, false), ("a", 2, 1, false));
        assert_eq!(kept(&[other, new, old], &[9], &[7]), [3], "the new one lies in front");
        assert_eq!(kept(&[other, new, old], &[9], &[]), [7], "the old one does");
        assert_eq!(kept(&[other, old], &[9], &[7]), [0u64; 0], "there is no new one");
        let newer = ("a", 8, 9, false);
        assert_eq!(kept(&[new, old, newer], &[9], &[7]), [9]);
        assert_eq!(kept(&[new, old, newer], &[6, 9], &[7]), [3, 9], "a snapshot needs it");
    }

    /// The survivors, found without hashes by sorting all scanned entries.
    fn by_key(mut judge: Judge<'_>, hashes: &[u64]) -> Survivors {
        let scanned = judge.scanned;
        for versions in scanned.by_key().chunk_by(|a, b| scanned.is_same_key(*a, *b)) {
            judge.see(versions, hashes[versions[0] as usize]);
        }
        judge.finish()
    }

    proptest! {
        /// Chains are sorted only where hashes are equal. Here most hashes differ in only a few
        /// bits, so that chains contain several keys.
        #[test]
        fn survivors_are_the_same_by_hash_and_by_key(
            records in vec((0u8..12, 1u64..9, any::<bool>()), 0..60),
            mut points in vec(0u64..10, 1..4),
            dead in vec(0u64..60, 0..10),
            held in vec(0u64..60, 0..3),
            (mask, mix, cools) in (0u64..16, any::<u64>(), any::<bool>()),
        ) {
            points.sort_unstable();
            let names = records.iter().map(|one| format!("key-{:03}", one.0));
            let names: Vec<String> = names.collect();
            let records = names.iter().zip(&records).zip(0..);
            let records = records.map(|((name, one), at)| (&name[..], one.1, at, one.2));
            let scanned = Scanned { mix, ..scanned(&records.collect::<Vec<_>>()) };
            let dead: BTreeMap<u64, u32> = dead.iter().map(|at| (*at, 100)).collect();
            let held: BTreeSet<u64> = held.into_iter().collect();
            let judge = || {
                let (out, kept) = (Survivors::none(), Vec::new());
                let (scanned, points, dead, held) = (&scanned, &points[..], &dead, &held);
                Judge { scanned, points, dead, held, cools, out, kept }
            };
            let hashes: Vec<u64> = scanned.hashes().iter().map(|hash| hash & mask).collect();
            let (one, other) = (judge().by_hash(&hashes), by_key(judge(), &hashes));
            let dropped = |kept: &Survivors| {
                let tags = kept.dropped_tags.iter().map(|entry| entry.stream_offset);
                tags.collect::<BTreeSet<u64>>()
            };
            prop_assert_eq!(dropped(&one), dropped(&other));
            let kept = |kept: &Survivors| -> Vec<(u64, bool)> {
                kept.entries.iter().map(|entry| (entry.stream_offset, entry.cools)).collect()
            };
            prop_assert_eq!(kept(&one), kept(&other));
            let is_kept = |at: &u64| kept(&one).iter().any(|(kept, _)| kept == at);
            let is_there = |at: &u64| scanned.entries.iter().any(|one| one.stream_offset == *at);
            prop_assert!(held.iter().filter(|at| is_there(at)).all(is_kept));
            prop_assert_eq!(
                (one.live_bytes, one.pinned_bytes, one.keys),
                (other.live_bytes, other.pinned_bytes, other.keys)
            );
        }
    }

    #[test]
    fn the_cold_stream_is_collected_where_most_is_dead_or_unused() {
        // 96 bytes of each slot are not used.
        let emptiest = |dead: &[u64], most_slots| {
            let dead: Vec<DeadRecord> = dead.iter().map(|offset| (*offset, 1000)).collect();
            emptiest(
                &SegmentList::of(&segments(6)),
                5,
                &SharedList::of(&dead),
                (most_slots, SLOT_BYTES),
            )
        };
        assert_eq!(emptiest(&[], 3), (0..3, 3 * 96));
        assert_eq!(emptiest(&[0, 4 * SLOT_BYTES, 4 * SLOT_BYTES + 9], 1), (4..5, 2096));
        let left_out = [0, 5 * SLOT_BYTES, 5 * SLOT_BYTES + 9];
        assert_eq!(emptiest(&left_out, 1), (0..1, 1096), "the sixth is left out");
        assert_eq!(emptiest(&[SLOT_BYTES, 3 * SLOT_BYTES + 1], 3), (1..4, 2288));
        let mut large = segments(2);
        (large[0].slots, large[1].bytes) = (2, 1000);
        let found =
            super::emptiest(&SegmentList::of(&large), 2, &SharedList::default(), (1, SLOT_BYTES));
        assert_eq!(found, (1..2, 3096), "an extent of two slots has nothing to give");
    }
}
