//! The description of a backup, in bytes.
//!
//! ```text
//! marker      := magic "RunBckps" | uid u64 | checksum u64
//! description := magic "RunBckup" | format u32 | body bytes u64 | body | checksum u64
//! body        := time varint | last seq varint | added varint | tables | segments | log | state
//! tables      := count varint | (id varint | bytes varint | hash u64)*
//! segments    := count varint | (file varint | stored varint | place varint{6} | content)*
//! log         := count varint | (number varint | content)*
//! content     := pack varint | offset varint | bytes varint | hash u64
//! state       := a record of the manifest with the whole state
//! ```
//!
//! A hash is xxh3 of the content. `place` and `stored` are the description of a segment of values:
//! offset in its file, generation, stream offset, bytes of records, records, tags.

use std::collections::BTreeMap;

use super::BackupInfo;
use crate::keys::SeqNo;
use crate::keys::codec::{Reader, put_varint, u32_at, u64_at};
use crate::store::follow::cut::Piece;
use crate::tree::manifest::StoreState;
use crate::tree::record;
use crate::values::layout::Segment;

const MARKER_MAGIC: &[u8; 8] = b"RunBckps";
const MAGIC: &[u8; 8] = b"RunBckup";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 20;

/// Bytes in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) pack: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) hash: u64,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) hash: u64,
}

/// Names a segment of values: two segments with the same name are equal if their ends are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentName {
    pub(super) file: u64,
    pub(super) offset: u64,
    generation: u64,
    stream_offset: u64,
    bytes: u64,
    records: u64,
    tags: u64,
}

impl SegmentName {
    pub(super) fn of(piece: &Piece, segment: &Segment) -> SegmentName {
        SegmentName {
            file: piece.file,
            offset: piece.offset,
            generation: segment.generation,
            stream_offset: segment.stream_offset,
            bytes: segment.bytes,
            records: segment.records.into(),
            tags: segment.tags.into(),
        }
    }

    /// Names a record to which only the log points. Such a record has no description, and is always
    /// copied.
    pub(super) fn of_early(piece: &Piece) -> SegmentName {
        SegmentName { file: piece.file, offset: piece.offset, ..SegmentName::default() }
    }

    /// Whether an earlier copy may be used instead.
    pub(super) fn is_named(&self) -> bool {
        self.generation > 0
    }

    fn fields(&mut self) -> [&mut u64; 7] {
        [
            &mut self.file,
            &mut self.offset,
            &mut self.generation,
            &mut self.stream_offset,
            &mut self.bytes,
            &mut self.records,
            &mut self.tags,
        ]
    }
}

/// Everything that a backup consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) number: u64,
    pub(super) time_ms: u64,
    pub(super) last_seq: SeqNo,
    pub(super) added_bytes: u64,
    pub(super) tables: Vec<TableFile>,
    pub(super) segments: Vec<(SegmentName, Content)>,
    /// Segments of the log by number.
    pub(super) log: Vec<(u64, Content)>,
    pub(super) state: StoreState,
}

impl Description {
    pub(super) fn info(&self) -> BackupInfo {
        let contents = self.segments.iter().map(|(_, one)| one);
        let contents = contents.chain(self.log.iter().map(|(_, one)| one));
        let bytes: u64 = contents.map(|one| one.bytes).sum();
        BackupInfo {
            number: self.number,
            time_ms: self.time_ms,
            last_seq: self.last_seq,
            tables: self.tables.len() as u64,
            value_segments: self.segments.len() as u64,
            bytes: bytes + self.tables.iter().map(|table| table.bytes).sum::<u64>(),
            added_bytes: self.added_bytes,
            copied_again: 0,
        }
    }

    pub(super) fn table_ids(&self) -> impl Iterator<Item = u64> {
        self.tables.iter().map(|table| table.id)
    }

    pub(super) fn pack_numbers(&self) -> impl Iterator<Item = u64> {
        let segments = self.segments.iter().map(|(_, content)| content.pack);
        segments.chain(self.log.iter().map(|(_, content)| content.pack))
    }

    /// The segments of each value file. There may be 100,000 files and as many segments.
    pub(super) fn segments_by_file(&self) -> BTreeMap<u64, Vec<&(SegmentName, Content)>> {
        let mut by_file: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for one in &self.segments {
            by_file.entry(one.0.file).or_default().push(one);
        }
        by_file
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [self.time_ms, self.last_seq, self.added_bytes, self.tables.len() as u64] {
            put_varint(&mut body, number);
        }
        for table in &self.tables {
            put_varint(&mut body, table.id);
            put_varint(&mut body, table.bytes);
            body.extend(table.hash.to_le_bytes());
        }
        put_varint(&mut body, self.segments.len() as u64);
        for (name, content) in &self.segments {
            let mut name = *name;
            name.fields().into_iter().for_each(|field| put_varint(&mut body, *field));
            put_content(&mut body, content);
        }
        put_varint(&mut body, self.log.len() as u64);
        for (number, content) in &self.log {
            put_varint(&mut body, *number);
            put_content(&mut body, content);
        }
        body.extend(record::encode(&self.state.snapshot()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.append(&mut body);
        bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the description of a backup, or says what is wrong.
    pub(super) fn decode(number: u64, bytes: &[u8]) -> Result<Description, String> {
        let body_bytes = u64_at(bytes, 12).filter(|_| bytes.starts_with(MAGIC));
        let body_bytes = body_bytes.ok_or("it has no header")?;
        match u32_at(bytes, 8) {
            Some(FORMAT) => {}
            found => return Err(format!("format {found:?}; this release reads {FORMAT}")),
        }
        let end = bytes.len().checked_sub(8).ok_or("it is cut short")?;
        let (covered, sum) = bytes.split_at(end);
        let is_whole = u64_at(sum, 0) == Some(xxhash_rust::xxh3::xxh3_64(covered));
        let body = covered.get(HEAD_BYTES..).filter(|body| body.len() as u64 == body_bytes);
        let body = body.filter(|_| is_whole).ok_or("it does not verify")?;
        take_body(number, &mut Reader::new(body)).ok_or_else(|| "it does not decode".to_string())
    }
}

fn put_content(out: &mut Vec<u8>, content: &Content) {
    [content.pack, content.offset, content.bytes].iter().for_each(|n| put_varint(out, *n));
    out.extend(content.hash.to_le_bytes());
}

fn take_content(reader: &mut Reader<'_>) -> Option<Content> {
    let mut next = || reader.take_varint().ok();
    let (pack, offset, bytes) = (next()?, next()?, next()?);
    Some(Content { pack, offset, bytes, hash: reader.take_u64().ok()? })
}

fn take_body(number: u64, reader: &mut Reader<'_>) -> Option<Description> {
    let mut next = || reader.take_varint().ok();
    let (time_ms, last_seq, added_bytes, tables) = (next()?, next()?, next()?, next()?);
    let mut description = Description {
        number,
        time_ms,
        last_seq,
        added_bytes,
        tables: Vec::new(),
        segments: Vec::new(),
        log: Vec::new(),
        state: StoreState::default(),
    };
    for _ in 0..tables {
        let (id, bytes) = (reader.take_varint().ok()?, reader.take_varint().ok()?);
        description.tables.push(TableFile { id, bytes, hash: reader.take_u64().ok()? });
    }
    for _ in 0..reader.take_varint().ok()? {
        let mut name = SegmentName::default();
        for field in name.fields() {
            *field = reader.take_varint().ok()?;
        }
        description.segments.push((name, take_content(reader)?));
    }
    for _ in 0..reader.take_varint().ok()? {
        let number = reader.take_varint().ok()?;
        description.log.push((number, take_content(reader)?));
    }
    let changes = record::decode(reader.take(reader.remaining()).ok()?).ok()?;
    changes.iter().try_for_each(|change| description.state.apply(change)).ok()?;
    Some(description)
}

pub(super) fn put_marker(uid: u64) -> Vec<u8> {
    let mut bytes = MARKER_MAGIC.to_vec();
    bytes.extend(uid.to_le_bytes());
    bytes.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    bytes
}

pub(super) fn take_marker(bytes: &[u8]) -> Option<u64> {
    let sum = xxhash_rust::xxh3::xxh3_64(bytes.get(..16)?);
    let is_whole = bytes.starts_with(MARKER_MAGIC) && u64_at(bytes, 16) == Some(sum);
    u64_at(bytes, 8).filter(|_| is_whole)
}
