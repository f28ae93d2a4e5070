//! The layout of a value file, as metadata: groups of segments, each an extent of slots. It changes
//! only by edits, which the manifest logs. Nothing here does I/O.
//!
//! After the hash groups there is one more group, the cold stream. It has records that were not
//! updated between two collections. The hash group keeps a tag of each such record, which leads to
//! the record.
//!
//! ```text
//! layout     := number | placement | slot bytes | retired at | group count | group*
//! group      := end stream offset | live bytes | live keys | sketch | segment count | segment*
//!               | dead count | (stream offset | bytes)*
//! segment    := slot | slots << 2 | tagged << 1 | collected | generation | stream offset | bytes
//!               | records | if tagged: tags | cold bytes
//! edit       := number | group edit count | group edit*
//! group edit := group | end stream offset | removed count | generation* | segment count | segment*
//!               | dead count | (stream offset | bytes)* | forgotten count | stream offset*
//!               | sketch | 1 + collection (live bytes | live keys) or 0
//! ```
//!
//! `placement` is 1 for a log, 2 for hash groups, 3 for hash groups whose pointers are written
//! back, and 4 for the same with a cold stream after the groups. Placement 2 always has a cold
//! stream.
//!
//! Numbers are varints. Counts are checked against the bytes that are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::format::record::{Pointer, footer_bytes};
use crate::keys::codec::{
    Decoded, Reader, Truncated, put_bytes, put_varint, take_list, take_number, take_size, take_u32,
};
use crate::options::values::{ValueOptions, ValuePlacement};
use crate::values::shared_list::{Keyed, SharedList};

/// The code of hash groups whose pointers are written back.
const WRITTEN_BACK: u64 = 3;
/// The same with a cold stream.
const WRITTEN_BACK_AND_COLD: u64 = 4;

/// Records in one extent of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first slot.
    pub slot: u32,
    /// The number of consecutive slots: one, unless the segment contains a record larger than a
    /// slot.
    pub slots: u32,
    /// Whether a collection wrote the segment. If so, a footer after the records gives the offset
    /// for each stream offset. In other segments, the offset of a record is its stream offset minus
    /// that of the segment.
    pub collected: bool,
    /// Distinguishes the uses of the same slots. It is never reused in the file.
    pub generation: u64,
    /// The smallest stream offset.
    pub stream_offset: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Number of records, tags included.
    pub records: u32,
    /// Number of tags; zero except in segments of hash groups that a collection wrote or, if
    /// pointers are written back, appended to.
    pub tags: u32,
    /// Bytes of the records in the cold stream that the tags name.
    pub cold_bytes: u64,
}

impl Segment {
    /// Bytes on disk, including the footer.
    pub fn stored_bytes(&self) -> u64 {
        self.bytes + if self.collected { footer_bytes(self.records, self.tags) } else { 0 }
    }
}

impl Keyed for Segment {
    fn key(&self) -> u64 {
        self.stream_offset
    }
}

/// The segments of a group, by stream offset.
pub type SegmentList = SharedList<Segment>;

/// A dead record: its stream offset and its bytes.
pub type DeadRecord = (u64, u32);

impl Keyed for DeadRecord {
    fn key(&self) -> u64 {
        self.0
    }
}

/// The records of a hash group, of a whole log, or of the cold stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Shared with readers.
    pub segments: Arc<SegmentList>,
    /// Every stream offset that was given out so far is smaller.
    pub stream_end: u64,
    /// Records that look live in the group but that no version of the tree points to, because their
    /// values were deleted or replaced by inline ones.
    pub dead: SharedList<DeadRecord>,
    /// Bytes that the last collection kept.
    pub live_bytes: u64,
    /// The number of distinct keys that the last collection kept, estimated by the sketch.
    pub live_keys: u64,
    /// The keys of all records.
    pub keys: Sketch,
    /// Sums over the fields above.
    totals: Totals,
}

/// Sums over a group. They are kept because every search for work needs them. An edit changes them
/// by what it adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    bytes: u64,
    records: u64,
    slots: u64,
    cold_bytes: u64,
    dead_bytes: u64,
    garbage_bytes: u64,
}

impl Totals {
    /// Sums over a whole group, without its garbage.
    fn of(segments: &SegmentList, dead: &SharedList<DeadRecord>) -> Totals {
        let mut totals = Totals::default();
        segments.iter().for_each(|segment| totals.add(segment));
        totals.dead_bytes = dead.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        totals
    }

    /// In a file that can be opened, nothing overflows, because its segments share no slots.
    fn add(&mut self, segment: &Segment) {
        self.bytes = self.bytes.saturating_add(segment.bytes);
        self.records += u64::from(segment.records);
        self.slots += u64::from(segment.slots);
        self.cold_bytes = self.cold_bytes.saturating_add(segment.cold_bytes);
    }

    fn subtract(&mut self, segment: &Segment) {
        self.bytes = self.bytes.saturating_sub(segment.bytes);
        self.records -= u64::from(segment.records);
        self.slots -= u64::from(segment.slots);
        self.cold_bytes = self.cold_bytes.saturating_sub(segment.cold_bytes);
    }
}

impl Default for Group {
    fn default() -> Self {
        Group {
            segments: Arc::default(),
            stream_end: 0,
            dead: SharedList::default(),
            live_bytes: 0,
            live_keys: 0,
            keys: Sketch::of_nothing(),
            totals: Totals::default(),
        }
    }
}

impl Group {
    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.totals.records
    }

    /// Slots of all segments.
    pub fn slots(&self) -> u64 {
        self.totals.slots
    }

    /// A value that changes when records are added, removed or found dead.
    pub fn fingerprint(&self) -> (u64, u64) {
        (self.totals.bytes, self.totals.dead_bytes)
    }

    /// Bytes of the records in the cold stream that have a tag here.
    pub fn cold_bytes(&self) -> u64 {
        self.totals.cold_bytes
    }

    /// Bytes of records that are known to be dead. Compactions have found them dead; in the cold
    /// stream, collections have.
    pub fn dead_bytes(&self) -> u64 {
        self.totals.dead_bytes
    }

    /// Bytes that a collection would probably free: the bytes written since the last collection,
    /// minus those of keys that are new since then, plus the bytes known to be dead. For updates of
    /// known keys this is exact (HashKV §3.3 chooses the group with the most writes). For new keys
    /// it is as exact as the sketch. The two estimates of the sketch share their error.
    pub fn garbage_bytes(&self) -> u64 {
        self.totals.garbage_bytes
    }

    fn estimate_garbage(&self) -> u64 {
        let bytes = self.bytes();
        let written = bytes.saturating_sub(self.live_bytes);
        let records = self.records().max(1);
        let keys = self.keys.estimate().unwrap_or(records).min(records);
        let new_keys = keys.saturating_sub(self.live_keys);
        // A tag represents a record in the cold stream. Without the bytes of these records, new
        // keys would seem as small as tags.
        let whole_bytes = u128::from(bytes) + u128::from(self.cold_bytes());
        let new_bytes = (u128::from(new_keys) * whole_bytes / u128::from(records)) as u64;
        written.saturating_sub(new_bytes).saturating_add(self.dead_bytes()).min(bytes)
    }

    /// Applies an edit. Returns the new group and the removed segments, or the reason why the edit
    /// does not fit. The lists of the two groups share their chunks, so this costs O(log n) for
    /// each element that the edit names, and a pointer for each chunk. The search for the segments
    /// to remove begins at the front.
    pub fn apply(
        &self,
        edit: &GroupEdit,
        slot_bytes: u64,
    ) -> Result<(Group, Vec<Segment>), String> {
        let mut next = self.clone();
        let segments = Arc::make_mut(&mut next.segments);
        let removed = remove_all(segments, &edit.remove)?;
        removed.iter().for_each(|segment| next.totals.subtract(segment));
        for segment in &edit.place {
            let known = segments.get(segment.stream_offset);
            if known.is_some_and(|known| known.generation == segment.generation) {
                segments.put(*segment).iter().for_each(|old| next.totals.subtract(old));
            } else {
                segments.insert(*segment);
            }
            next.totals.add(segment);
        }
        next.stream_end = self.stream_end.max(edit.stream_end);
        for segment in &edit.place {
            // All other segments fitted before.
            let near = segments.around(segment.stream_offset);
            check_segments(near, next.stream_end, slot_bytes)?;
        }
        for dead in &edit.dead {
            let known_bytes = next.dead.put(*dead).map_or(0, |(_, bytes)| bytes);
            next.totals.dead_bytes += u64::from(dead.1);
            next.totals.dead_bytes -= u64::from(known_bytes);
        }
        for stream_offset in &edit.forgotten {
            let known_bytes = next.dead.remove(*stream_offset).map_or(0, |(_, bytes)| bytes);
            next.totals.dead_bytes -= u64::from(known_bytes);
        }
        match edit.collected {
            Some((live_bytes, live_keys)) => {
                (next.live_bytes, next.live_keys) = (live_bytes, live_keys);
                next.keys = edit.keys.clone();
            }
            None => next.keys.merge(&edit.keys),
        }
        next.totals.garbage_bytes = next.estimate_garbage();
        Ok((next, removed))
    }
}

/// Removes the segments of these generations.
fn remove_all(segments: &mut SegmentList, generations: &[u64]) -> Result<Vec<Segment>, String> {
    let mut leaving: BTreeSet<u64> = generations.iter().copied().collect();
    let removed = segments.extract(leaving.len(), |one| leaving.contains(&one.generation));
    for segment in &removed {
        leaving.remove(&segment.generation);
    }
    match leaving.first() {
        Some(generation) => Err(format!("removes unknown segment {generation}")),
        None => Ok(removed),
    }
}

/// Checks that segments are sorted, disjoint, within their slots and below the end of the group's
/// stream.
fn check_segments<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    stream_end: u64,
    slot_bytes: u64,
) -> Result<(), String> {
    let mut behind = 0;
    for segment in segments {
        let room = u64::from(segment.slots).checked_mul(slot_bytes);
        let footer = footer_bytes(segment.records, segment.tags);
        let fits = segment.slots > 0
            && segment.tags <= segment.records
            && segment.slot.checked_add(segment.slots).is_some()
            && segment.bytes.checked_add(footer).is_some()
            && room.is_some_and(|room| segment.stored_bytes() <= room);
        // A collected segment may keep any of the stream offsets of the segments that it replaced.
        let extent = if segment.collected { 1 } else { segment.bytes };
        let end = segment.stream_offset.checked_add(extent).filter(|end| *end <= stream_end);
        match end {
            Some(end) if fits && segment.stream_offset >= behind => behind = end,
            _ => return Err(format!("segment {} does not fit", segment.generation)),
        }
    }
    Ok(())
}

/// An atomic change of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEdit {
    /// The group that changes.
    pub group: u32,
    /// The new end of the stream, if larger.
    pub stream_end: u64,
    /// Generations of the segments to remove.
    pub remove: Vec<u64>,
    /// Segments to add. A segment with a known generation replaces the known segment, and must
    /// begin at the same stream offset.
    pub place: Vec<Segment>,
    /// The stream offsets and bytes of records that were found dead.
    pub dead: Vec<DeadRecord>,
    /// Stream offsets of dead records that were removed.
    pub forgotten: Vec<u64>,
    /// The keys of the records to add; with `collected`, the keys of all remaining records.
    pub keys: Sketch,
    /// Set by a collection: the bytes and the number of distinct keys that it kept.
    pub collected: Option<(u64, u64)>,
}

impl Default for GroupEdit {
    fn default() -> Self {
        GroupEdit {
            group: 0,
            stream_end: 0,
            remove: Vec::new(),
            place: Vec::new(),
            dead: Vec::new(),
            forgotten: Vec::new(),
            keys: Sketch::of_nothing(),
            collected: None,
        }
    }
}

/// An atomic change to a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueEdit {
    /// The number of the value file.
    pub store: u64,
    /// One edit for each group that changes.
    pub groups: Vec<GroupEdit>,
}

impl ValueEdit {
    /// An edit that notes records of a file as dead. Each record is given with its bytes.
    pub(crate) fn of_dead(store: u64, dead: &[(Pointer, u32)]) -> ValueEdit {
        let mut groups: BTreeMap<u32, Vec<DeadRecord>> = BTreeMap::new();
        for (pointer, bytes) in dead {
            groups.entry(pointer.group).or_default().push((pointer.stream_offset, *bytes));
        }
        let group_edit = |(group, dead)| GroupEdit { group, dead, ..GroupEdit::default() };
        ValueEdit { store, groups: groups.into_iter().map(group_edit).collect() }
    }
}

/// A value file: its identity and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of the file.
    pub number: u64,
    /// `Vlog` or `HashGrouped`.
    pub placement: ValuePlacement,
    /// For hash groups: whether collections write pointers into the tree, and groups have markers.
    pub writes_back: bool,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Zero while values are written to this file. Otherwise, tables whose file number is below
    /// this may still point to it.
    pub retired_at: u64,
    /// Whether the last of the groups is the cold stream.
    pub has_cold: bool,
    /// The groups.
    pub groups: Vec<Group>,
}

impl Layout {
    /// An empty file for these options.
    pub fn new(number: u64, options: &ValueOptions) -> Layout {
        let (placement, slot_bytes) = (options.placement, options.slot_bytes);
        let writes_back = options.writes_back();
        // Hash groups always have a cold stream. If pointers are written back, it is an option.
        let has_cold =
            placement == ValuePlacement::HashGrouped && (!writes_back || options.cold_stream);
        let count = options.group_count() + u32::from(has_cold);
        let groups = (0..count).map(|_| Group::default()).collect();
        Layout { number, placement, writes_back, slot_bytes, retired_at: 0, has_cold, groups }
    }

    /// Whether the file suits values that are placed by these options.
    pub fn is_of(&self, options: &ValueOptions) -> bool {
        let wants_cold = options.writes_back() && options.cold_stream;
        self.placement == options.placement
            && self.writes_back == options.writes_back()
            && (self.has_cold || !wants_cold)
    }

    /// The cold stream's index among the groups.
    pub fn cold(&self) -> Option<u32> {
        self.has_cold.then(|| (self.groups.len() as u32).saturating_sub(1))
    }

    /// The number of groups to which keys are assigned.
    pub fn group_count(&self) -> u32 {
        (self.groups.len() as u32).saturating_sub(self.cold().is_some().into())
    }

    /// The group with this index.
    pub fn group(&self, group: u32) -> Result<&Group, String> {
        self.groups.get(group as usize).ok_or_else(|| format!("names unknown group {group}"))
    }

    /// Applies an edit, or returns why it does not fit.
    pub fn apply(&mut self, edit: &ValueEdit) -> Result<(), String> {
        for group in &edit.groups {
            let (next, _) = self.group(group.group)?.apply(group, self.slot_bytes.into())?;
            self.groups[group.group as usize] = next;
        }
        Ok(())
    }

    /// Refuses a layout whose segments share generations or do not fit, or whose groups do not suit
    /// its placement.
    pub fn check(&self) -> Result<(), String> {
        let mut generations = BTreeSet::new();
        for group in &self.groups {
            check_segments(group.segments.iter(), group.stream_end, self.slot_bytes.into())?;
            if !group.segments.iter().all(|segment| generations.insert(segment.generation)) {
                return Err("two segments have one generation".to_string());
            }
        }
        match self.placement {
            ValuePlacement::Inline => Err("a value file of inline values".to_string()),
            ValuePlacement::HashGrouped if self.has_cold && self.groups.len() < 2 => {
                Err("hash groups without a group or a cold stream".to_string())
            }
            _ if self.groups.is_empty() || self.slot_bytes == 0 => {
                Err("a value file without groups or slots".to_string())
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
    let placement = match layout.placement {
        ValuePlacement::Vlog => 1,
        _ if layout.writes_back && layout.has_cold => WRITTEN_BACK_AND_COLD,
        _ if layout.writes_back => WRITTEN_BACK,
        _ => 2,
    };
    let numbers = [layout.number, placement, layout.slot_bytes.into(), layout.retired_at];
    numbers.into_iter().for_each(|number| put_varint(out, number));
    put_varint(out, layout.groups.len() as u64);
    for group in &layout.groups {
        for number in [group.stream_end, group.live_bytes, group.live_keys] {
            put_varint(out, number);
        }
        put_sketch(out, &group.keys);
        put_segments(out, group.segments.len(), group.segments.iter());
        put_dead(out, group.dead.len(), group.dead.iter());
    }
}

pub(crate) fn take_layout(reader: &mut Reader<'_>) -> Decoded<Layout> {
    let number = take_number(reader)?;
    let (placement, writes_back, has_cold) = match reader.take_varint()? {
        1 => (ValuePlacement::Vlog, false, false),
        2 => (ValuePlacement::HashGrouped, false, true),
        WRITTEN_BACK => (ValuePlacement::HashGrouped, true, false),
        WRITTEN_BACK_AND_COLD => (ValuePlacement::HashGrouped, true, true),
        _ => return Err(Truncated),
    };
    let slot_bytes = take_u32(reader)?;
    let retired_at = take_number(reader)?;
    let groups = take_list(reader, |reader| {
        let stream_end = take_number(reader)?;
        let live_bytes = take_size(reader)?;
        let live_keys = take_size(reader)?;
        let keys = take_sketch(reader)?;
        let segments = Arc::new(SegmentList::of(&take_list(reader, take_segment)?));
        let mut dead = SharedList::default();
        for record in take_list(reader, take_dead)? {
            dead.put(record);
        }
        let totals = Totals::of(&segments, &dead);
        let mut group = Group { segments, stream_end, dead, live_bytes, live_keys, keys, totals };
        group.totals.garbage_bytes = group.estimate_garbage();
        Ok(group)
    })?;
    Ok(Layout { number, placement, writes_back, slot_bytes, retired_at, has_cold, groups })
}

pub(crate) fn put_edit(out: &mut Vec<u8>, edit: &ValueEdit) {
    put_varint(out, edit.store);
    put_varint(out, edit.groups.len() as u64);
    for group in &edit.groups {
        put_varint(out, u64::from(group.group));
        put_varint(out, group.stream_end);
        put_varint(out, group.remove.len() as u64);
        group.remove.iter().for_each(|generation| put_varint(out, *generation));
        put_segments(out, group.place.len(), group.place.iter());
        put_dead(out, group.dead.len(), group.dead.iter());
        put_varint(out, group.forgotten.len() as u64);
        group.forgotten.iter().for_each(|stream_offset| put_varint(out, *stream_offset));
        put_sketch(out, &group.keys);
        match group.collected {
            Some((live_bytes, live_keys)) => {
                [1, live_bytes, live_keys].into_iter().for_each(|n| put_varint(out, n));
            }
            None => put_varint(out, 0),
        }
    }
}

pub(crate) fn take_edit(reader: &mut Reader<'_>) -> Decoded<ValueEdit> {
    let store = reader.take_varint()?;
    let groups = take_list(reader, |reader| {
        Ok(GroupEdit {
            group: take_u32(reader)?,
            stream_end: take_number(reader)?,
            remove: take_list(reader, |reader| reader.take_varint())?,
            place: take_list(reader, take_segment)?,
            dead: take_list(reader, take_dead)?,
            forgotten: take_list(reader, |reader| reader.take_varint())?,
            keys: take_sketch(reader)?,
            collected: match reader.take_varint()? {
                0 => None,
                1 => Some((take_size(reader)?, take_size(reader)?)),
                _ => return Err(Truncated),
            },
        })
    })?;
    Ok(ValueEdit { store, groups })
}

fn put_segments<'a>(out: &mut Vec<u8>, count: usize, segments: impl Iterator<Item = &'a Segment>) {
    put_varint(out, count as u64);
    for segment in segments {
        let is_tagged = segment.tags > 0;
        let bits = u64::from(is_tagged) << 1 | u64::from(segment.collected);
        let numbers = [
            segment.slot.into(),
            u64::from(segment.slots) << 2 | bits,
            segment.generation,
            segment.stream_offset,
            segment.bytes,
            segment.records.into(),
            segment.tags.into(),
            segment.cold_bytes,
        ];
        let count = numbers.len() - if is_tagged { 0 } else { 2 };
        numbers[..count].iter().for_each(|number| put_varint(out, *number));
    }
}

fn take_segment(reader: &mut Reader<'_>) -> Decoded<Segment> {
    let slot = take_u32(reader)?;
    let slots = reader.take_varint()?;
    let is_tagged = slots & 2 != 0;
    let segment = Segment {
        slot,
        slots: u32::try_from(slots >> 2).map_err(|_| Truncated)?,
        collected: slots & 1 == 1,
        generation: take_number(reader)?,
        stream_offset: take_number(reader)?,
        bytes: take_size(reader)?,
        records: take_u32(reader)?,
        tags: 0,
        cold_bytes: 0,
    };
    if !is_tagged {
        return Ok(segment);
    }
    Ok(Segment { tags: take_u32(reader)?, cold_bytes: take_size(reader)?, ..segment })
}

fn put_dead<'a>(out: &mut Vec<u8>, count: usize, dead: impl Iterator<Item = &'a DeadRecord>) {
    put_varint(out, count as u64);
    for (stream_offset, bytes) in dead {
        put_varint(out, *stream_offset);
        put_varint(out, u64::from(*bytes));
    }
}

fn take_dead(reader: &mut Reader<'_>) -> Decoded<DeadRecord> {
    Ok((take_number(reader)?, take_u32(reader)?))
}

/// Encodes a sketch of few keys as pairs of register and rank, and any other sketch whole.
fn put_sketch(out: &mut Vec<u8>, sketch: &Sketch) {
    let registers = sketch.as_bytes();
    let set: Vec<(usize, u8)> =
        registers.iter().copied().enumerate().filter(|(_, rank)| *rank > 0).collect();
    if registers.is_empty() || set.len() * 2 >= registers.len() {
        return put_bytes(out, registers);
    }
    let pairs: Vec<u8> = set.into_iter().flat_map(|(at, rank)| [at as u8, rank]).collect();
    // The list is one byte longer than the pairs. So its length is odd, and the length of a whole
    // sketch is even.
    put_varint(out, pairs.len() as u64 + 1);
    out.push(0);
    out.extend_from_slice(&pairs);
}

fn take_sketch(reader: &mut Reader<'_>) -> Decoded<Sketch> {
    let bytes = reader.take_bytes()?;
    if bytes.len() % 2 == 0 {
        return Sketch::from_bytes(bytes).ok_or(Truncated);
    }
    let mut registers = [0; runstone_policy::sketch::REGISTER_COUNT];
    for pair in bytes[1..].chunks_exact(2) {
        registers[usize::from(pair[0])] = pair[1];
    }
    Sketch::from_bytes(&registers).ok_or(Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::values::GcPointers;

    fn segment(slot: u32, generation: u64, stream_offset: u64, bytes: u64) -> Segment {
        let (slots, records) = (1, 3);
        let (collected, tags, cold_bytes) = (false, 0, 0);
        Segment {
            slot,
            slots,
            collected,
            generation,
            stream_offset,
            bytes,
            records,
            tags,
            cold_bytes,
        }
    }

    fn tagged(segment: Segment) -> Segment {
        Segment { collected: true, tags: 2, cold_bytes: 700, ..segment }
    }

    fn keys(hashes: impl Iterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch::of_nothing();
        hashes.for_each(|i| sketch.add(xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes())));
        sketch
    }

    fn options(gc_pointers: GcPointers) -> ValueOptions {
        let placement = ValuePlacement::HashGrouped;
        ValueOptions { placement, gc_pointers, slot_bytes: 4096, groups: 2, ..Default::default() }
    }

    fn layout() -> Layout {
        let mut layout = Layout::new(9, &options(GcPointers::Stable));
        let edit = GroupEdit {
            group: 1,
            stream_end: 8192,
            place: vec![segment(0, 1, 0, 4000), segment(1, 2, 4096, 100)],
            keys: keys(0..6),
            ..GroupEdit::default()
        };
        layout.apply(&ValueEdit { store: 9, groups: vec![edit] }).expect("fits");
        layout
    }

    #[test]
    fn edits_grow_replace_and_forget() {
        let mut layout = layout();
        let grow = GroupEdit {
            group: 1,
            place: vec![segment(1, 2, 4096, 900)],
            dead: vec![(40, 30), (4096, 50)],
            ..GroupEdit::default()
        };
        layout.apply(&ValueEdit { store: 9, groups: vec![grow] }).expect("fits");
        assert_eq!(layout.groups[1].bytes(), 4900);
        let collect = GroupEdit {
            group: 1,
            remove: vec![1, 2],
            place: vec![tagged(segment(2, 3, 80, 1000))],
            forgotten: vec![40],
            keys: keys(0..2),
            collected: Some((1000, 2)),
            ..GroupEdit::default()
        };
        layout.apply(&ValueEdit { store: 9, groups: vec![collect] }).expect("fits");
        let group = &layout.groups[1];
        assert_eq!(
            (group.bytes(), group.stream_end),
            (1000, 8192),
            "stream_offsets are never used again"
        );
        assert_eq!(group.cold_bytes(), 700);
        assert_eq!(group.dead.to_vec(), [(4096, 50)]);
        assert_eq!(group.garbage_bytes(), 50, "nothing was written since");
        layout.check().expect("holds");
        let mut out = Vec::new();
        put_layout(&mut out, &layout);
        assert_eq!(take_layout(&mut Reader::new(&out)), Ok(layout));
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let refused = |edit: GroupEdit| {
            let edit = ValueEdit { store: 9, groups: vec![edit] };
            layout().apply(&edit).expect_err("does not fit")
        };
        let group = |edit: GroupEdit| GroupEdit { group: 1, stream_end: 1 << 40, ..edit };
        refused(GroupEdit { group: 3, ..GroupEdit::default() });
        refused(group(GroupEdit { remove: vec![7], ..GroupEdit::default() }));
        let place = |segment| group(GroupEdit { place: vec![segment], ..GroupEdit::default() });
        refused(place(segment(3, 3, 3999, 10)));
        refused(place(segment(3, 3, 4090, 10)));
        refused(place(segment(3, 3, 9000, 4097)));
        refused(place(Segment { collected: true, ..segment(3, 3, 9000, 4090) }));
        refused(place(segment(3, 3, u64::MAX, 10)));
        refused(place(Segment { slots: 0, ..segment(3, 3, 9000, 0) }));
        refused(place(Segment { tags: 4, ..segment(3, 3, 9000, 10) }));
        refused(place(Segment { records: 1, ..tagged(segment(3, 3, 9000, 10)) }));
    }

    #[test]
    fn garbage_is_what_updates_wrote() {
        let write = |hashes: std::ops::Range<u64>, end: u64, live: Option<(u64, u64)>| {
            let records = (hashes.end - hashes.start) as u32;
            let bytes = u64::from(records) * 100;
            let place = vec![Segment { records, ..segment(0, end, end - bytes, bytes) }];
            let keys = keys(hashes);
            let collected = live.map(|bytes| (bytes.0, keys.estimate().unwrap_or(0)));
            GroupEdit { stream_end: end, place, keys, collected, ..GroupEdit::default() }
        };
        let apply = |group: Group, edit| group.apply(&edit, 1 << 20).expect("fits").0;
        let loaded = apply(Group::default(), write(0..1000, 100_000, None));
        assert!(loaded.garbage_bytes() < 13_000, "new keys are no garbage");
        let collected = apply(Group::default(), write(0..1000, 100_000, Some((100_000, 0))));
        assert_eq!(collected.garbage_bytes(), 0);
        let updated = apply(collected.clone(), write(0..200, 120_000, None));
        assert_eq!(updated.garbage_bytes(), 20_000, "updates are garbage, exactly");
        let grown = apply(collected, write(1000..1200, 120_000, None));
        assert!(grown.garbage_bytes() < 8_000, "{}", grown.garbage_bytes());
    }

    #[test]
    fn edits_round_trip() {
        let edit = ValueEdit {
            store: 9,
            groups: vec![
                GroupEdit { group: 3, keys: keys(0..5), ..GroupEdit::default() },
                GroupEdit {
                    group: 70_000,
                    stream_end: 1 << 50,
                    remove: vec![1, 1 << 40],
                    place: vec![segment(1, 2, 3, 4), tagged(segment(9, 8, 7, 6))],
                    dead: vec![(1 << 33, 7)],
                    forgotten: vec![0, 5],
                    keys: keys(0..5000),
                    collected: Some((1, 2)),
                },
            ],
        };
        let mut out = Vec::new();
        put_edit(&mut out, &edit);
        assert_eq!(take_edit(&mut Reader::new(&out)), Ok(edit));
        for cut in 0..out.len() {
            assert!(take_edit(&mut Reader::new(&out[..cut])).is_err());
        }
    }

    #[test]
    fn groups_with_markers_have_a_cold_stream_if_asked() {
        let warm = options(GcPointers::Writeback);
        let cooling = ValueOptions { cold_stream: true, ..warm.clone() };
        for (of, cold, fits_cooling) in [(&warm, None, false), (&cooling, Some(2), true)] {
            let layout = Layout::new(9, of);
            let count = 2 + usize::from(cold.is_some());
            assert_eq!((layout.group_count(), layout.cold()), (2, cold));
            assert_eq!(layout.groups.len(), count);
            layout.check().expect("holds");
            assert!(layout.is_of(&warm), "the option can be taken back");
            assert_eq!(layout.is_of(&cooling), fits_cooling, "a stream cannot be added");
            assert!(!layout.is_of(&options(GcPointers::Stable)));
            let mut out = Vec::new();
            put_layout(&mut out, &layout);
            assert_eq!(take_layout(&mut Reader::new(&out)), Ok(layout));
        }
    }
}
