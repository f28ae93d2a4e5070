//! The write-ahead log: segments of framed records. Their files are reused. Not here: what a commit
//! is (`commit`), and how records are framed (`log`).
//!
//! ```text
//! record := first_seq varint | unsynced varint | count varint | operation*
//! edits  := first_seq varint | unsynced varint | 0 varint | manifest varint | durable bytes varint
//!           | ended load varint, or nothing | note bytes, or nothing (`note`)
//! ```
//!
//! `unsynced` is how many sequence numbers before `first_seq` were not known to be synced when the
//! record was written. Recovery uses it. Damage below a sequence number that a later record calls
//! synced is corruption; a power loss can leave damage above it. Writes that a flush made durable
//! count as synced once the log is not needed for them. A record without operations uses no
//! sequence number. It says how much of which manifest is durable, which load ended, and what
//! readers of the history need. A store that is closed cleanly flushes its memtables and leaves no
//! log behind.
//!
//! Segments are `NNNNNN.wal` files, which `files` makes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_random::Random;
use runstone_storage::{Category, Storage, StorageFile};

use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::keys::codec::{put_varint, put_wide_varint};
use crate::log::{FRAME_BYTES, LogKind, LogWriter, Place, PreparedRecord, number_in};
use crate::options::store::{MIN_SEGMENT_BYTES, WalMode};
use crate::sync::threads;
use crate::wal::files::{SegmentFile, WalFiles};

/// The most bytes that the three numbers before the operations of a record may need. A record that
/// is written in advance reserves this many, whatever the values are.
const HEAD_BYTES: usize = 30;

/// File name of a segment.
pub fn segment_name(number: u64) -> String {
    format!("{number:06}.wal")
}

/// File name of a segment that no store uses. It is kept because a replay could not use its end.
pub fn lost_name(number: u64) -> String {
    format!("lost-{}", segment_name(number))
}

/// The file number in the name of a lost segment.
pub fn lost_number(name: &str) -> Option<u64> {
    number_in(name.strip_prefix("lost-")?, "wal")
}

/// How far the file number of a large segment is ahead of the store's file numbers. This many files
/// may be made while the segment is written, and their file numbers stay below its own.
const AHEAD: u64 = 1 << 20;
/// A smaller record is written under the commit lock, however small segments are. The value is
/// smaller in builds with `seeded-bugs`, so that small stores have large batches.
const LEAST_LARGE_BYTES: u64 = if cfg!(feature = "seeded-bugs") { 2 } else { 8 } * FRAME_BYTES;
/// A segment of one record that is larger than a usual segment. It is written and synced except for
/// its beginning. The segment that will follow it is made as well. Dropping this value removes both
/// files.
#[derive(Debug)]
pub struct LargeSegment {
    record: PreparedRecord,
    capacity_bytes: u64,
    next: Option<SegmentFile>,
    files: Arc<WalFiles>,
    is_appended: bool,
}

impl LargeSegment {
    /// Writes the operations of a batch, without the commit lock. Only one such segment exists at a
    /// time.
    pub fn write(files: &Arc<WalFiles>, id: u64, operations: &[u8]) -> Result<LargeSegment> {
        let number = files.next_file.load(Relaxed) + AHEAD;
        let name = segment_name(number);
        let file = files.storage.create(&name, Category::Wal)?;
        let header = files.header(number, id);
        let written = PreparedRecord::write(file, header, HEAD_BYTES, operations);
        let record = written.inspect_err(|_| files.leave(&name))?;
        let capacity_bytes = record.file().len().inspect_err(|_| files.leave(&name))?;
        let files = Arc::clone(files);
        let mut large =
            LargeSegment { record, capacity_bytes, next: None, files, is_appended: false };
        large.next = Some(large.make_next()?);
        Ok(large)
    }

    fn make_next(&self) -> Result<SegmentFile> {
        let (number, bytes) = (self.record.number() + 1, self.files.segment_bytes);
        let parked = self.files.spares.lock().parked.pop();
        let next = self.files.make(number, parked, bytes)?;
        let prepared = next.file.prepare(0, bytes);
        prepared.inspect_err(|_| self.files.leave(&segment_name(number)))?;
        Ok(next)
    }

    /// Skips all segments that were prepared before, because their numbers are smaller. Returns
    /// them, to be dropped once the commit lock is free.
    fn pass(&mut self) -> PassedOver {
        let number = self.record.number() + 1;
        self.files.next_file.fetch_max(number + 1, Relaxed);
        let mut spares = self.files.spares.lock();
        spares.last_number = number;
        let next = self.next.take().map(|next| (number, next));
        let prepared = std::mem::replace(&mut spares.prepared, next.into_iter().collect());
        PassedOver { prepared, files: Arc::clone(&self.files) }
    }
}

impl Drop for LargeSegment {
    fn drop(&mut self) {
        if !self.is_appended {
            self.files.leave(&segment_name(self.record.number()));
            if self.next.take().is_some() {
                self.files.leave(&segment_name(self.record.number() + 1));
            }
        }
    }
}

/// Prepared segments that nobody will use. Dropping this value removes their files.
#[derive(Debug)]
pub struct PassedOver {
    prepared: VecDeque<(u64, SegmentFile)>,
    files: Arc<WalFiles>,
}

impl Drop for PassedOver {
    fn drop(&mut self) {
        self.files.remove_prepared(std::mem::take(&mut self.prepared));
    }
}

/// A record that has its place in the log and is not written yet.
#[derive(Debug)]
pub struct PlacedRecord {
    place: Place,
    head: Vec<u8>,
}

impl PlacedRecord {
    /// Writes the record, without the commit lock.
    pub fn write(&self, operations: &[u8]) -> Result<()> {
        self.place.write(&[&self.head, operations])
    }
}

/// A segment in use.
#[derive(Debug)]
struct Segment {
    number: u64,
    /// Sequence number of its first record.
    first_seq: SeqNo,
    capacity_bytes: u64,
    /// Present until a sync has covered the finished segment.
    unsynced: Option<Arc<dyn StorageFile>>,
    /// Held by a finished segment until its file is unmapped.
    mapping: Option<SegmentFile>,
}

/// The writing end of the log, under the commit lock. The writer's position comes first; see
/// `CommitState`.
#[derive(Debug)]
#[repr(C)]
pub struct Wal {
    writer: Option<LogWriter>,
    files: Arc<WalFiles>,
    /// The file that the writer writes to.
    current: Option<SegmentFile>,
    /// The offset at which the records of the current segment end at the latest.
    room_to: u64,
    /// Oldest first; the last one is being written.
    segments: VecDeque<Segment>,
    /// Number of the last segment that was used; 0 before there is one.
    last_number: u64,
    /// Whether the name of a segment may not be durable yet.
    dir_dirty: bool,
    /// The operations of records without writes with which the next segment begins.
    opening: Vec<Vec<u8>>,
    /// Whether there was no room for one of these records before.
    owes: bool,
    /// Whether an append failed. Its bytes may be after the last record.
    is_soiled: bool,
    random: Random,
}

/// The files that a sync has to cover, captured under the commit lock.
#[derive(Debug, Default)]
pub struct SyncWork {
    /// Sealed segments, oldest first, then the current one if it is needed.
    files: Vec<(u64, Arc<dyn StorageFile>)>,
    /// The number of the current segment, if it is among the files.
    current: Option<u64>,
    /// Sequence number of the first record in a segment that is not among the files.
    uncovered_seq: Option<SeqNo>,
    sync_dir: bool,
}

impl Wal {
    /// A log without a segment; the first append makes one.
    pub fn new(files: Arc<WalFiles>, random: Random) -> Wal {
        Wal {
            files,
            writer: None,
            current: None,
            room_to: 0,
            segments: VecDeque::new(),
            last_number: 0,
            dir_dirty: false,
            opening: Vec::new(),
            owes: false,
            is_soiled: false,
            random,
        }
    }

    /// Appends a record, and returns the number of its segment. After an error, a later append
    /// overwrites whatever this one wrote.
    pub fn append(
        &mut self,
        first_seq: SeqNo,
        unsynced: u64,
        count: u64,
        operations: &[u8],
    ) -> Result<u64> {
        // The buffer belongs to the thread. A buffer of the log would move between the cores of two
        // writers.
        thread_local! {
            static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        threads::lend(&HEAD, |head| {
            head.clear();
            put_varint(head, first_seq);
            put_varint(head, unsynced);
            put_varint(head, count);
            self.append_record(first_seq, &[head, operations])
        })
    }

    /// Adds a record without writes that will precede all later records. A store without writes
    /// gets no segment for it.
    pub fn begin_with(&mut self, next_seq: SeqNo, edits: Vec<u8>) -> Result<()> {
        self.opening.push(edits);
        if self.writer.is_some() { self.put_opening(next_seq) } else { Ok(()) }
    }

    /// Puts a record without writes, for which there was no room, before all later ones. The later
    /// records begin a new segment. Otherwise a small write could still fit into the old segment,
    /// and precede the record.
    pub fn owe(&mut self, edits: Vec<u8>) {
        self.opening.push(edits);
        (self.owes, self.room_to) = (true, 0);
    }

    /// Whether there was no room for some records.
    pub fn owes(&self) -> bool {
        self.owes
    }

    /// Begins a segment with the opening records, if no segment has them yet.
    pub fn tell_opening(&mut self, next_seq: SeqNo) -> Result<()> {
        match self.opening.is_empty() {
            true => Ok(()),
            false => self.make_room(0, next_seq),
        }
    }

    fn put_opening(&mut self, next_seq: SeqNo) -> Result<()> {
        if self.opening.is_empty() {
            return Ok(());
        }
        // These records say nothing about durability. The buffer of the thread may be in use.
        let mut head = Vec::with_capacity(HEAD_BYTES);
        [next_seq, next_seq - 1, 0].into_iter().for_each(|n| put_varint(&mut head, n));
        let mut left = std::mem::take(&mut self.opening).into_iter();
        while let Some(edits) = left.next() {
            if let Err(error) = self.append_record(next_seq, &[&head, &edits]) {
                self.opening = std::iter::once(edits).chain(left).collect();
                return Err(error);
            }
        }
        self.owes = false;
        Ok(())
    }

    /// Bytes that the opening records need in a segment.
    fn opening_bytes(&self) -> u64 {
        let stored_bytes = |edits: &Vec<u8>| LogWriter::max_stored_bytes(edits.len() + HEAD_BYTES);
        self.opening.iter().map(stored_bytes).sum()
    }

    /// Reserves room for a record whose operations have this many bytes. Returns the number of its
    /// segment, and a value that writes the record. Returns `None` if no space can be reserved for
    /// certain, because then the write may fail for lack of space.
    pub fn reserve(
        &mut self,
        (first_seq, unsynced, count): (SeqNo, u64, u64),
        operations_bytes: usize,
    ) -> Result<Option<(u64, PlacedRecord)>> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        [first_seq, unsynced, count].into_iter().for_each(|n| put_varint(&mut head, n));
        let bytes = head.len() + operations_bytes;
        self.make_room(LogWriter::max_stored_bytes(bytes), first_seq)?;
        let Some(writer) = self.writer.as_mut() else { return Ok(None) };
        let before = writer.position();
        if !writer.file().is_mapped() {
            if !writer.file().can_reserve() {
                return Ok(None);
            }
            match writer.file().allocate(before, LogWriter::max_stored_bytes(bytes)) {
                Err(error) if error.is_no_space() => return Ok(None),
                allocated => allocated?,
            }
        }
        let place = writer.reserve(bytes);
        Ok(Some((self.note_filled(before), PlacedRecord { place, head })))
    }

    /// Whether a batch of this many encoded bytes is written as a [`LargeSegment`]. Never without a
    /// log.
    pub fn is_large(files: &WalFiles, operations_bytes: usize) -> bool {
        let stored_bytes = LogWriter::max_stored_bytes(operations_bytes) + FRAME_BYTES;
        files.mode != WalMode::Off && stored_bytes > files.segment_bytes.max(LEAST_LARGE_BYTES)
    }

    /// Appends the record of a large segment; the write itself is short. Returns the segment's
    /// number, and what to drop without the commit lock.
    pub fn append_large(
        &mut self,
        large: &mut LargeSegment,
        (first_seq, unsynced, count): (SeqNo, u64, u64),
    ) -> Result<(u64, PassedOver)> {
        self.tell_opening(first_seq).or_else(|error| self.go_without_opening(error))?;
        let number = large.record.number();
        if self.segments.back().is_some_and(|last| last.number >= number) {
            let what = format!("more than {AHEAD} files were made while a batch was written");
            return Err(Error::invalid(what, "write the batch again"));
        }
        let mut head = Vec::with_capacity(HEAD_BYTES);
        [first_seq, unsynced, count].into_iter().for_each(|n| put_wide_varint(&mut head, n));
        self.seal()?;
        large.record.finish(LogKind::Wal, &head)?;
        large.is_appended = true;
        self.segments.push_back(Segment {
            number,
            first_seq,
            capacity_bytes: large.capacity_bytes,
            unsynced: Some(Arc::clone(large.record.file())),
            mapping: None,
        });
        self.last_number = number;
        self.dir_dirty = true;
        Ok((number, large.pass()))
    }

    /// A random id for a file of the log.
    pub fn next_id(&mut self) -> u64 {
        self.random.draw()
    }

    fn append_record(&mut self, first_seq: SeqNo, parts: &[&[u8]]) -> Result<u64> {
        let wanted = LogWriter::max_stored_bytes(parts.iter().map(|part| part.len()).sum());
        self.make_room(wanted, first_seq)?;
        let Some(writer) = &mut self.writer else {
            unreachable!("make_room leaves a segment to write to");
        };
        let before = writer.position();
        if let Err(failed) = writer.append(parts) {
            // Readers in other processes may look before a later append overwrites the record. A
            // record that ends with zeros may be whole.
            let capacity_bytes = self.segments.back().map_or(0, |segment| segment.capacity_bytes);
            self.is_soiled = writer.void_rest(capacity_bytes).is_err();
            return Err(failed);
        }
        Ok(self.note_filled(before))
    }

    /// Requests a spare when a write has filled the first quarter of the current segment. `before`
    /// is the writer's position before that write. Returns the segment's number.
    #[inline]
    fn note_filled(&self, before: u64) -> u64 {
        let (Some(writer), Some(segment)) = (&self.writer, self.segments.back()) else {
            unreachable!("something was just written to it");
        };
        let quarter = segment.capacity_bytes / 4;
        if before < quarter && writer.position() >= quarter {
            self.files.spare_wanted.store(true, Relaxed);
            self.files.bell.ring();
        }
        segment.number
    }

    /// Removes every segment at close, because none is needed. If one stays, the segments after it
    /// stay too: a log without its middle would look damaged.
    pub fn remove_all(&mut self) {
        self.writer = None;
        self.current = None;
        while let Some(segment) = self.segments.pop_front() {
            if let Err(error) = self.files.storage.remove(&segment_name(segment.number)) {
                tracing::warn!(%error, "log segments were left behind");
                break;
            }
        }
        self.files.remove_spares();
    }

    // Inlined, because a call would be 40 of the 4,700 instructions of a put.
    #[inline(always)]
    fn make_room(&mut self, wanted: u64, first_seq: SeqNo) -> Result<()> {
        if let Some(writer) = &self.writer
            && writer.position() + wanted <= self.room_to
        {
            return Ok(());
        }
        let wanted = wanted + self.opening_bytes();
        let capacity_bytes = (wanted + FRAME_BYTES).max(self.files.segment_bytes);
        let (number, taken) = self.files.take(capacity_bytes)?;
        self.begin(number, taken, capacity_bytes, first_seq)
    }

    /// Makes room on a full disk for a record of deletes, which free space.
    pub fn make_room_to_delete(&mut self, bytes: usize, first_seq: SeqNo) -> Result<()> {
        let wanted = LogWriter::max_stored_bytes(bytes + HEAD_BYTES) + self.opening_bytes();
        let capacity_bytes = (wanted + FRAME_BYTES).max(MIN_SEGMENT_BYTES);
        let (number, taken) = self.files.take_small(capacity_bytes)?;
        self.begin(number, taken, capacity_bytes, first_seq)
    }

    /// Continues in a new segment.
    fn begin(
        &mut self,
        number: u64,
        taken: SegmentFile,
        capacity_bytes: u64,
        first_seq: SeqNo,
    ) -> Result<()> {
        let id = self.next_id();
        let header = self.files.header(number, id);
        let writer = LogWriter::create(Arc::clone(&taken.file), LogKind::Wal, header)
            .inspect_err(|_| self.files.leave(&segment_name(number)))?;
        self.seal().inspect_err(|_| self.files.leave(&segment_name(number)))?;
        self.writer = Some(writer);
        (self.current, self.room_to) = (Some(taken), capacity_bytes);
        self.segments.push_back(Segment {
            number,
            first_seq,
            capacity_bytes,
            unsynced: None,
            mapping: None,
        });
        self.last_number = number;
        self.dir_dirty = true;
        self.put_opening(first_seq).or_else(|error| self.go_without_opening(error))
    }

    /// Usually no writer fails if the record of an opening, which only readers of the history need,
    /// cannot be written. But if there was no room for a note about a keyspace, readers need this
    /// record to know the keyspace.
    fn go_without_opening(&mut self, error: Error) -> Result<()> {
        if self.owes {
            self.room_to = 0;
            return Err(error);
        }
        tracing::debug!(%error, "an opening was not logged");
        Ok(())
    }

    /// Takes over a segment that an earlier open left. It is synced.
    pub fn keep(&mut self, number: u64, first_seq: SeqNo, capacity_bytes: u64) {
        let (unsynced, mapping) = (None, None);
        self.last_number = number;
        self.segments.push_back(Segment { number, first_seq, capacity_bytes, unsynced, mapping });
    }

    /// Numbers of all segments in use.
    pub fn numbers(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.number).collect()
    }

    /// Seals the current segment, so that the next record begins another. It does nothing slow,
    /// because the commit lock is held.
    pub fn seal(&mut self) -> Result<()> {
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        // A failed record that ends with zeros is whole if only its zeros were not written. The
        // next segment uses the same sequence number again, and a replay would consider the log
        // damaged.
        if let Some(writer) = self.writer.as_ref().filter(|_| self.is_soiled) {
            writer.void_rest(segment.capacity_bytes)?;
        }
        self.is_soiled = false;
        if let Some(writer) = self.writer.take() {
            segment.unsynced = Some(Arc::clone(writer.file()));
            segment.mapping = self.current.take();
        }
        Ok(())
    }

    /// Sealed segments that are still mapped, and for each whether a sync has yet to cover it.
    pub fn mapped_finished(&self) -> Vec<(u64, bool)> {
        let finished = self.segments.iter().filter(|segment| segment.mapping.is_some());
        finished.map(|segment| (segment.number, segment.unsynced.is_some())).collect()
    }

    /// How many sealed segments count against the memory budget.
    pub fn finished_in_memory(&self) -> usize {
        let mapped = self.segments.iter().filter_map(|segment| segment.mapping.as_ref());
        mapped.filter(|file| file.reservation.is_some()).count()
    }

    /// How many sealed segments stay open for a sync.
    pub fn unsynced_count(&self) -> usize {
        self.segments.iter().filter(|segment| segment.unsynced.is_some()).count()
    }

    /// Replaces the mapped handle of a finished segment with an ordinary one, which only a sync
    /// needs. Returns the mapping, which the caller drops without the commit lock.
    pub fn unmap(
        &mut self,
        number: u64,
        ordinary: Option<Arc<dyn StorageFile>>,
    ) -> Option<impl Sized + use<>> {
        let segment = self.segments.iter_mut().find(|segment| segment.number == number)?;
        let mapped = segment.unsynced.take();
        if mapped.is_some() {
            segment.unsynced = ordinary;
        }
        Some((mapped, segment.mapping.take()))
    }

    /// The work that makes all records up to `seq` durable. The current segment is left out if it
    /// began later: a sync would write its prepared pages and make its next writes fault.
    pub fn sync_work(&self, seq: SeqNo) -> SyncWork {
        let is_needed = |segment: &&Segment| segment.first_seq <= seq;
        let finished = self.segments.iter().take_while(is_needed).filter_map(|segment| {
            segment.unsynced.as_ref().map(|file| (segment.number, Arc::clone(file)))
        });
        let mut files: Vec<_> = finished.collect();
        let mut current = None;
        if let (Some(writer), Some(segment)) = (&self.writer, self.segments.back())
            && is_needed(&segment)
        {
            files.push((segment.number, Arc::clone(writer.file())));
            current = Some(segment.number);
        }
        let uncovered = self.segments.iter().find(|segment| !is_needed(segment));
        let uncovered_seq = uncovered.map(|segment| segment.first_seq);
        SyncWork { files, current, uncovered_seq, sync_dir: self.dir_dirty }
    }

    /// Notes that a sync succeeded.
    pub fn synced(&mut self, work: &SyncWork) {
        let current = self.segments.back().map(|segment| segment.number);
        for segment in &mut self.segments {
            let covered = work.files.binary_search_by_key(&segment.number, |(n, _)| *n).is_ok();
            // A segment that was finished after the work was captured was synced as the current
            // one. The sync does not cover later records in it, so it stays unsynced.
            let was_current = work.current == Some(segment.number);
            if covered && !was_current && current != Some(segment.number) {
                segment.unsynced = None;
            }
        }
        if work.sync_dir && work.current.is_some() && work.current == current {
            self.dir_dirty = false;
        }
    }

    /// Removes the segments below `floor` from the log. The caller retires them without the lock.
    pub fn take_obsolete(&mut self, floor: u64) -> Vec<ObsoleteSegment> {
        let mut obsolete = Vec::new();
        let is_obsolete = |wal: &Wal| {
            let is_last = wal.segments.len() == 1 && wal.writer.is_some();
            !is_last && wal.segments.front().is_some_and(|first| first.number < floor)
        };
        while is_obsolete(self)
            && let Some(segment) = self.segments.pop_front()
        {
            let recyclable = segment.capacity_bytes == self.files.segment_bytes;
            obsolete.push(ObsoleteSegment { number: segment.number, recyclable, segment });
        }
        obsolete
    }

    /// Sequence number of the first record that the log still has. Everything below it is in
    /// tables.
    pub fn start_seq(&self) -> Option<SeqNo> {
        self.segments.front().map(|segment| segment.first_seq)
    }

    /// The first segment that the log needs, and the sequence number of its first record. `needed`
    /// is the first segment that memtables need, if any. `next_seq` is the next sequence number to
    /// assign.
    pub fn floor(&self, needed: Option<u64>, next_seq: SeqNo) -> (u64, SeqNo) {
        if needed.is_none() && self.writer.is_none() && self.last_number > 0 {
            // No segment is needed. Later ones have larger numbers, and may be prepared already.
            return (self.last_number + 1, next_seq);
        }
        let wanted = needed.or_else(|| self.segments.back().map(|segment| segment.number));
        let found = self.segments.iter().find(|segment| Some(segment.number) >= wanted);
        match found {
            Some(segment) if wanted.is_some() => (segment.number, segment.first_seq),
            _ => (self.files.next_file.load(Relaxed), next_seq),
        }
    }

    /// Bytes of all segments in use.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.capacity_bytes).sum()
    }
}

/// A segment that no unflushed write needs.
#[derive(Debug)]
pub struct ObsoleteSegment {
    number: u64,
    recyclable: bool,
    segment: Segment,
}

impl ObsoleteSegment {
    /// Unmaps the file, because it can be mapped only once at a time. Returns its number, whether
    /// it can be used again, and its bytes.
    pub fn unmap(self) -> (u64, bool, u64) {
        let ObsoleteSegment { number, recyclable, segment } = self;
        (number, recyclable, segment.capacity_bytes)
    }
}

impl SyncWork {
    /// The last sequence number that this work makes durable, if `next_seq` is the next one of the
    /// log.
    pub fn through(&self, next_seq: SeqNo) -> SeqNo {
        self.uncovered_seq.unwrap_or(next_seq) - 1
    }

    /// Syncs the names of the segments, and then the segments, oldest first, so that a crash in
    /// between leaves a prefix of the log.
    pub fn run(&self, storage: &dyn Storage) -> Result<()> {
        if self.sync_dir {
            storage.sync_dir()?;
        }
        for (_, file) in &self.files {
            file.sync()?;
        }
        Ok(())
    }
}
