//! What a collection of a hash group keeps, and which segments it rewrites for that. Pure: no I/O,
//! no locks.

use std::collections::BTreeMap;
use std::ops::Range;

use runstone_policy::sketch::Sketch;

use crate::key::SeqNo;
use crate::value::layout::Segment;
use crate::value::record::footer_bytes;
use crate::value::store::ValueStore;

/// A record of the group being collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Where its key is in the arena.
    pub(super) key_at: usize,
    pub(super) key_bytes: u32,
    /// Of the key: most comparisons end here.
    pub(super) head: u64,
    pub(super) seq: SeqNo,
    pub(super) voff: u64,
    /// Index of the segment, and the place in it.
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) keys: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    /// Bytes of segments, as far as they are held.
    pub(super) held: Vec<Option<Vec<u8>>>,
}

impl Scanned {
    pub(super) fn key(&self, entry: &Entry) -> &[u8] {
        &self.keys[entry.key_at..entry.key_at + entry.key_bytes as usize]
    }
}

/// What stays of a group.
#[derive(Debug)]
pub(super) struct Survivors {
    /// By voff.
    pub(super) entries: Vec<Entry>,
    pub(super) keys: Sketch,
    /// Bytes of the newest versions.
    pub(super) live_bytes: u64,
    /// Bytes that only snapshots need.
    pub(super) pinned_bytes: u64,
}

/// The segments that are worth rewriting, as indices.
///
/// 1. Those at the front that lost nothing stay: copying them would free nothing.
/// 2. So do those at the end without which as many slots come free: the newest, in which least has
///    died. What garbage they hold is found the next time. The segment that is being filled is
///    mostly one of them, so that a group does not leave a partly filled one behind each time.
/// 3. If nothing comes free, all are rewritten: no garbage is left then, and nobody tries again.
pub(super) fn rewritten(
    segments: &[Segment],
    survivors: &[Entry],
    slot_bytes: u64,
) -> Range<usize> {
    let from = whole_front(segments, survivors, slot_bytes);
    let mut bytes = vec![Vec::new(); segments.len()];
    survivors.iter().for_each(|entry| bytes[entry.segment as usize].push(entry.bytes));
    let mut outputs = Packing { slot_bytes, slots: 0, open_bytes: 0, open_records: 0 };
    let mut inputs = 0;
    // Slots that come free when the rewriting ends behind each segment.
    let mut freed = vec![0];
    for (segment, bytes) in segments.iter().zip(bytes).skip(from) {
        inputs += i64::from(segment.slots);
        bytes.into_iter().for_each(|bytes| outputs.add(bytes.into()));
        freed.push(inputs - outputs.slots);
    }
    let all = freed.last().copied().unwrap_or(0);
    let enough = freed.iter().position(|slots| *slots >= all).filter(|_| all > 0);
    from..enough.map_or(segments.len(), |count| from + count)
}

/// How many slots records take, packed as the copy packs them.
struct Packing {
    slot_bytes: u64,
    slots: i64,
    open_bytes: u64,
    open_records: u32,
}

impl Packing {
    fn add(&mut self, bytes: u64) {
        let stored = self.open_bytes + bytes + footer_bytes(self.open_records + 1);
        if self.open_records == 0 || stored > self.slot_bytes {
            self.slots += (bytes + footer_bytes(1)).div_ceil(self.slot_bytes) as i64;
            (self.open_bytes, self.open_records) = (0, 0);
        }
        self.open_bytes += bytes;
        self.open_records += 1;
    }
}

/// Segments at the front of which every record stays, as long as they are about full.
fn whole_front(segments: &[Segment], survivors: &[Entry], slot_bytes: u64) -> usize {
    let mut counts = vec![0u32; segments.len()];
    survivors.iter().for_each(|entry| counts[entry.segment as usize] += 1);
    let whole = |(segment, count): (&Segment, &u32)| {
        let room = u64::from(segment.slots) * slot_bytes;
        segment.records == *count && segment.stored_bytes() * 8 >= room * 7
    };
    segments.iter().zip(&counts).take_while(|pair| whole(*pair)).count()
}

/// Which versions stay: of each key the newest and, for each point, the newest that it sees; not
/// those that merges found dead.
pub(super) fn survivors(
    scanned: &mut Scanned,
    points: &[SeqNo],
    dead: &BTreeMap<u64, u32>,
) -> Survivors {
    let keys = std::mem::take(&mut scanned.keys);
    let key = |entry: &Entry| &keys[entry.key_at..entry.key_at + entry.key_bytes as usize];
    scanned.entries.sort_unstable_by(|a, b| {
        let keys = a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b)));
        keys.then(b.seq.cmp(&a.seq)).then(b.voff.cmp(&a.voff))
    });
    let mut out = Survivors {
        entries: Vec::new(),
        keys: Sketch::of_nothing(),
        live_bytes: 0,
        pinned_bytes: 0,
    };
    let mut last: Option<(&[u8], usize)> = None;
    for entry in &scanned.entries {
        let own = key(entry);
        let stripe = points.partition_point(|point| *point < entry.seq);
        let newest = last.is_none_or(|(key, _)| key != own);
        let shadowed = !newest && last.is_some_and(|(_, s)| s == stripe && stripe < points.len());
        last = Some((own, stripe));
        let shadowed = shadowed || (!newest && seeded!(CollectionForgetsSnapshots));
        if shadowed || dead.contains_key(&entry.voff) {
            continue;
        }
        if newest {
            out.live_bytes += u64::from(entry.bytes);
        } else {
            out.pinned_bytes += u64::from(entry.bytes);
        }
        out.keys.add(ValueStore::sketch_hash(own));
        out.entries.push(*entry);
    }
    out.entries.sort_unstable_by_key(|entry| entry.voff);
    scanned.keys = keys;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_BYTES: u64 = 4096;

    fn segments(count: u32) -> Vec<Segment> {
        let segment = |slot: u32| Segment {
            slot,
            slots: 1,
            collected: false,
            generation: slot.into(),
            voff: u64::from(slot) * SLOT_BYTES,
            bytes: 4000,
            records: 4,
        };
        (0..count).map(segment).collect()
    }

    /// Four records of 1,000 bytes to a segment; of each so many are left.
    fn left(counts: &[u32]) -> Vec<Entry> {
        let entry = |segment: usize, i: u32| Entry {
            key_at: 0,
            key_bytes: 0,
            head: 0,
            seq: 1,
            voff: segment as u64 * SLOT_BYTES + u64::from(i),
            segment: segment as u32,
            offset: i * 1000,
            bytes: 1000,
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
}
