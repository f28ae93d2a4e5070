//! Step 5 of a collection: copies survivors to fresh slots of their group. Records that cool go to
//! the cold stream, and the group keeps a tag of each.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::record::{Record, footer_bytes, tag_bytes};
use crate::memory::prefetch::{LINE_BYTES, prefetch};
use crate::pace::write_back::WriteBack;
use crate::values::again::ReadAgain;
use crate::values::appender::Appender;
use crate::values::file::ValueFile;
use crate::values::layout::{Segment, ValueEdit};
use crate::values::liveness::{RecordEntry, Scanned, Tag, rewritten};

/// While a record is copied, at most this many cache lines of the next record are prefetched.
const MOST_LINES: usize = 32;

/// The copies of a collection. They are durable, but no edit names them yet.
pub(crate) struct Copied {
    /// The indices of the segments that are replaced.
    pub(crate) leaving: Range<usize>,
    /// The segments that replace those at `leaving`.
    pub(crate) outputs: Vec<Segment>,
    /// The records for the cold stream.
    pub(crate) cold: Option<(Appender, ValueEdit)>,
    /// Bytes that moved from the group to the cold stream.
    pub(crate) cooled_bytes: u64,
    /// Bytes of the tags that the group keeps of these records.
    pub(crate) tag_bytes: u64,
}

impl ValueFile {
    /// Copies the survivors of the segments that are worth copying.
    pub(crate) fn copy(
        self: &Arc<Self>,
        segments: &[Segment],
        scanned: &Scanned,
        survivors: &[RecordEntry],
    ) -> Result<Copied> {
        let leaving = rewritten(segments, survivors, self.slot_bytes);
        let mut writer = OutputWriter {
            store: self,
            done: Vec::new(),
            open: None,
            spare: Default::default(),
            write_back: WriteBack::default(),
            cold: None,
            cooled_bytes: 0,
            tag_bytes: 0,
        };
        let mut again = ReadAgain::default();
        let mut runs = survivors.chunk_by(|one, next| one.segment == next.segment);
        let outcome = runs.try_for_each(|run| {
            let at = run[0].segment as usize;
            if !leaving.contains(&at) {
                return Ok(());
            }
            let held = scanned.held[at].as_deref();
            self.copy_run(&segments[at], (held, &mut again), run, &mut writer)
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

    /// Copies records of one segment, as many at a time as the output has room for. While a
    /// callback views the bytes of a file, it must not write to that file. A record that cools may
    /// be written at once, so it is copied alone.
    fn copy_run(
        &self,
        segment: &Segment,
        (held, again): (Option<&[u8]>, &mut ReadAgain),
        mut left: &[RecordEntry],
        writer: &mut OutputWriter<'_>,
    ) -> Result<()> {
        while let Some(first) = left.first() {
            writer.open_for(first)?;
            let mut outcome = Ok(0);
            let mut see = |bytes: &[u8]| outcome = writer.put_run(segment, bytes, left);
            let is_seen = match held {
                _ if first.cools => false,
                Some(bytes) => {
                    see(bytes);
                    true
                }
                None => self.file.show(self.position(segment), segment.bytes, &mut see),
            };
            if is_seen {
                left = &left[outcome?..];
                continue;
            }
            let record = again.record(self, (segment, held), left.iter())?;
            writer.add(&record, first)?;
            left = &left[1..];
        }
        Ok(())
    }

    /// Frees the slots of segments that no edit names.
    pub(crate) fn give_back<'a>(&self, segments: impl Iterator<Item = &'a Segment>) {
        let mut state = self.state.lock();
        segments.for_each(|segment| state.pool.give(segment.slot, segment.slots));
    }
}

/// Fills fresh segments with survivors.
struct OutputWriter<'a> {
    store: &'a Arc<ValueFile>,
    done: Vec<Segment>,
    open: Option<OpenOutput>,
    /// The memory of the previous output, for the next one.
    spare: (Vec<u8>, Vec<(u32, u32)>),
    write_back: WriteBack,
    cold: Option<Appender>,
    cooled_bytes: u64,
    tag_bytes: u64,
}

struct OpenOutput {
    segment: Segment,
    bytes: Vec<u8>,
    /// The offset of each record, by its stream offset relative to the segment's.
    places: Vec<(u32, u32)>,
    tags: Vec<(u32, u64)>,
}

impl OutputWriter<'_> {
    /// Copies records of a segment that the scan has checked, as long as they do not cool and the
    /// open output has room for them. Returns how many it copied.
    fn put_run(&mut self, segment: &Segment, bytes: &[u8], run: &[RecordEntry]) -> Result<usize> {
        let store = self.store;
        let bad = |entry: &RecordEntry, what| {
            store.corrupt(store.position(segment) + u64::from(entry.offset), what)
        };
        for (i, entry) in run.iter().enumerate() {
            if entry.cools || !self.has_room(entry) {
                return Ok(i);
            }
            if let Some(next) = run.get(i + 1) {
                let lines = next.offset as usize..(next.offset + next.bytes) as usize;
                lines.step_by(LINE_BYTES).take(MOST_LINES).for_each(|at| prefetch(bytes, at));
            }
            let record = entry.checked(bytes).map_err(|what| bad(entry, what))?;
            self.put(&record, entry, entry.tag);
        }
        Ok(run.len())
    }

    /// Puts a record into the output, which has room for it. If the record cools, puts its tag
    /// instead.
    fn add(&mut self, record: &Record<'_>, entry: &RecordEntry) -> Result<()> {
        let tag = match (entry.tag, self.store.cold) {
            (None, Some(cold)) if entry.cools => {
                let appender = self.cold.get_or_insert_with(|| Appender::new(self.store));
                let pointer = appender.append_to(cold, record.key, record.seq, record.value)?;
                self.cooled_bytes += u64::from(entry.bytes);
                self.tag_bytes += tag_bytes(record.key.len());
                Some(Tag { stream_offset: pointer.stream_offset, bytes: entry.bytes })
            }
            (tag, _) => tag,
        };
        self.put(record, entry, tag);
        Ok(())
    }

    fn put(&mut self, record: &Record<'_>, entry: &RecordEntry, tag: Option<Tag>) {
        let Some(open) = &mut self.open else { return };
        let (seal, offset) = (self.store.checksum_seed(&open.segment), open.segment.bytes);
        let stream_offset = (entry.stream_offset - open.segment.stream_offset) as u32;
        match tag {
            None => {
                open.places.push((stream_offset, offset as u32));
                seal.put(&mut open.bytes, offset, record.seq, record.key, record.value);
            }
            Some(tag) => {
                open.tags.push((stream_offset, tag.stream_offset));
                open.segment.tags += 1;
                open.segment.cold_bytes += u64::from(tag.bytes);
                let value_bytes = record.value_bytes;
                seal.put_tag(&mut open.bytes, offset, record.seq, record.key, value_bytes);
            }
        }
        open.segment.bytes = open.bytes.len() as u64;
        open.segment.records += 1;
    }

    /// Whether the open output has room for the record or its tag.
    fn has_room(&self, entry: &RecordEntry) -> bool {
        self.open.as_ref().is_some_and(|OpenOutput { segment, .. }| {
            let tag = u32::from(entry.becomes_tag());
            let footer = footer_bytes(segment.records + 1, segment.tags + tag);
            let room = u64::from(segment.slots) * self.store.slot_bytes;
            segment.bytes + entry.kept_bytes() + footer <= room
                && entry.stream_offset - segment.stream_offset <= u64::from(u32::MAX)
        })
    }

    /// Opens an output with room for the record or its tag, unless one is open.
    fn open_for(&mut self, entry: &RecordEntry) -> Result<()> {
        if self.has_room(entry) {
            return Ok(());
        }
        self.close()?;
        let store = self.store;
        let bytes = entry.kept_bytes() + footer_bytes(1, u32::from(entry.becomes_tag()));
        let slots = bytes.div_ceil(store.slot_bytes) as u32;
        let segment = Segment {
            stream_offset: entry.stream_offset,
            ..store.state.lock().take_output(slots)?
        };
        let (position, room) = (store.position(&segment), u64::from(slots) * store.slot_bytes);
        let (mut bytes, places) = std::mem::take(&mut self.spare);
        bytes.reserve(room as usize);
        self.open = Some(OpenOutput { segment, bytes, places, tags: Vec::new() });
        Ok(store.file.allocate(position, room)?)
    }

    fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let seal = self.store.checksum_seed(&open.segment);
        seal.put_footer(&mut open.bytes, open.segment.bytes, &open.places, &open.tags);
        let at = self.store.position(&open.segment);
        let written = self.store.write_at(at, &open.bytes, &mut self.write_back);
        self.done.push(open.segment);
        open.bytes.clear();
        open.places.clear();
        self.spare = (open.bytes, open.places);
        written
    }

    /// Writes the last output. One sync makes everything durable.
    fn finish(&mut self) -> Result<Option<ValueEdit>> {
        self.close()?;
        match &mut self.cold {
            Some(cold) => cold.finish().map(Some),
            None if self.done.is_empty() || seeded!(CollectionNotSynced) => Ok(None),
            None => self.store.sync().map(|()| None),
        }
    }
}
