//! Step 5 of a collection: survivors go to fresh slots of their group, and those that cool to the
//! cold stream, where the group keeps a tag of each.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::value::appender::Appender;
use crate::value::keep::{Entry, Scanned, Tag, rewritten};
use crate::value::layout::{Segment, ValueEdit};
use crate::value::record::{Record, footer_bytes, record_bytes, tag_bytes};
use crate::value::store::ValueStore;

/// What was copied, durably; no edit names it yet.
pub(super) struct Copied {
    /// Segments that are replaced, as indices.
    pub(super) leaving: Range<usize>,
    /// Those that replace them.
    pub(super) outputs: Vec<Segment>,
    /// What the cold stream gets.
    pub(super) cold: Option<(Appender, ValueEdit)>,
    /// Bytes that went there out of the group.
    pub(super) cooled_bytes: u64,
    /// Bytes of the tags that it left behind.
    pub(super) tag_bytes: u64,
}

impl ValueStore {
    /// Copies what survives of segments that are worth it.
    pub(super) fn copy(
        self: &Arc<Self>,
        segments: &[Segment],
        scanned: &Scanned,
        survivors: &[Entry],
    ) -> Result<Copied> {
        let leaving = rewritten(segments, survivors, self.slot_bytes);
        let mut writer = OutputWriter {
            store: self,
            done: Vec::new(),
            open: None,
            spare: Vec::new(),
            cold: None,
            cooled_bytes: 0,
            tag_bytes: 0,
        };
        let moving = survivors.iter().filter(|entry| leaving.contains(&(entry.segment as usize)));
        let outcome = moving.into_iter().try_for_each(|entry| {
            let segment = &segments[entry.segment as usize];
            let place = self.position(segment) + u64::from(entry.offset);
            let bad = |what| self.corrupt(place, what);
            match &scanned.held[entry.segment as usize] {
                // The scan has checked it.
                Some(bytes) => {
                    let record = Record::of_checked(&bytes[entry.offset as usize..]);
                    writer.add(&record.map_err(bad)?, entry)
                }
                None => {
                    let bytes = self.file.read_vec(place, entry.bytes as usize)?;
                    let record = self.seal(segment).take(&bytes, entry.offset.into());
                    writer.add(&record.map_err(bad)?, entry)
                }
            }
        });
        match outcome.and_then(|()| writer.finish()) {
            Ok(cold) => {
                let OutputWriter { done: outputs, cold: appender, .. } = writer;
                let (cooled_bytes, tag_bytes) = (writer.cooled_bytes, writer.tag_bytes);
                Ok(Copied { leaving, outputs, cold: appender.zip(cold), cooled_bytes, tag_bytes })
            }
            Err(error) => {
                let open = writer.open.iter().map(|open| &open.segment);
                self.give_back(writer.done.iter().chain(open));
                Err(error)
            }
        }
    }

    /// Frees the slots of segments that no edit names.
    pub(super) fn give_back<'a>(&self, segments: impl Iterator<Item = &'a Segment>) {
        let mut state = self.state.lock();
        segments.for_each(|segment| state.pool.give(segment.slot, segment.slots));
    }
}

/// Fills fresh segments with survivors.
struct OutputWriter<'a> {
    store: &'a Arc<ValueStore>,
    done: Vec<Segment>,
    open: Option<OpenOutput>,
    /// Memory of the last output, for the next one.
    spare: Vec<u8>,
    cold: Option<Appender>,
    cooled_bytes: u64,
    tag_bytes: u64,
}

struct OpenOutput {
    segment: Segment,
    bytes: Vec<u8>,
    /// By voff, less that of the segment: offsets of records, and what tags stand for.
    places: Vec<(u32, u32)>,
    tags: Vec<(u32, u64)>,
}

impl OutputWriter<'_> {
    fn add(&mut self, record: &Record<'_>, entry: &Entry) -> Result<()> {
        let tag = match (entry.tag, self.store.cold) {
            (None, Some(cold)) if entry.cools => {
                let appender = self.cold.get_or_insert_with(|| Appender::new(self.store));
                let pointer = appender.append_to(cold, record.key, record.seq, record.value)?;
                self.cooled_bytes += u64::from(entry.bytes);
                self.tag_bytes += tag_bytes(record.key.len());
                Some(Tag { voff: pointer.voff, bytes: entry.bytes })
            }
            (tag, _) => tag,
        };
        let value_bytes = if tag.is_some() { 0 } else { record.value.len() };
        let bytes = record_bytes(record.key.len(), value_bytes);
        self.open_for(bytes, entry.voff, tag.is_some())?;
        let Some(open) = &mut self.open else { return Ok(()) };
        let (seal, offset) = (self.store.seal(&open.segment), open.segment.bytes);
        let voff = (entry.voff - open.segment.voff) as u32;
        match tag {
            None => {
                open.places.push((voff, offset as u32));
                seal.put(&mut open.bytes, offset, record.seq, record.key, record.value);
            }
            Some(tag) => {
                open.tags.push((voff, tag.voff));
                open.segment.tags += 1;
                open.segment.cold_bytes += u64::from(tag.bytes);
                let value_bytes = record.value_bytes;
                seal.put_tag(&mut open.bytes, offset, record.seq, record.key, value_bytes);
            }
        }
        open.segment.bytes += bytes;
        open.segment.records += 1;
        Ok(())
    }

    /// Sees to it that an output with room for a record is open.
    fn open_for(&mut self, bytes: u64, voff: u64, is_tag: bool) -> Result<()> {
        let store = self.store;
        let tag = u32::from(is_tag);
        let has_room = self.open.as_ref().is_some_and(|OpenOutput { segment, .. }| {
            let footer = footer_bytes(segment.records + 1, segment.tags + tag);
            segment.bytes + bytes + footer <= u64::from(segment.slots) * store.slot_bytes
                && voff - segment.voff <= u64::from(u32::MAX)
        });
        if has_room {
            return Ok(());
        }
        self.close()?;
        let slots = (bytes + footer_bytes(1, tag)).div_ceil(store.slot_bytes) as u32;
        let segment = Segment { voff, ..store.state.lock().take_output(slots)? };
        let (position, room) = (store.position(&segment), u64::from(slots) * store.slot_bytes);
        let (places, tags) = (Vec::new(), Vec::new());
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.reserve(room as usize);
        self.open = Some(OpenOutput { segment, bytes, places, tags });
        Ok(store.file.allocate(position, room)?)
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let seal = self.store.seal(&open.segment);
        seal.put_footer(&mut open.bytes, open.segment.bytes, &open.places, &open.tags);
        let written = self.store.file.write_at(self.store.position(&open.segment), &open.bytes);
        self.done.push(open.segment);
        open.bytes.clear();
        self.spare = open.bytes;
        Ok(written?)
    }

    /// Writes what is left. One sync makes all of it durable.
    fn finish(&mut self) -> Result<Option<ValueEdit>> {
        self.close()?;
        match &mut self.cold {
            Some(cold) => cold.finish().map(Some),
            None if self.done.is_empty() || seeded!(CollectionNotSynced) => Ok(None),
            None => self.store.sync().map(|()| None),
        }
    }
}
