//! Reads the log and the manifest as one history.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use runstone_random::Random;
use runstone_storage::fork::Process;
use runstone_storage::{Category, Storage, StorageFile};

use super::{Change, Changed, ChangesFrom, Load, Position};
use crate::error::{Error, Gone, Result};
use crate::format::record::{ChecksumSeed, Pointer, record_bytes};
use crate::keys::codec::{Reader, take_list, take_u32, u32_at};
use crate::keys::{KeyspaceId, Kind, NO_KEYSPACE, SeqNo};
use crate::lease::EditPlace;
use crate::lease::holder::{Lease, LeasePart};
use crate::store::follow::cut::noted;
use crate::store::unfinished::check_finished;
use crate::table::handle::file_uid;
use crate::tree::history::History;
use crate::tree::manifest::{Current, StoreState};
use crate::tree::tail::ManifestTail;
use crate::values::early::EarlyPlace;
use crate::values::file::{FIRST_SLOT, slot_bytes_of, values_name};
use crate::wal::batch::{Batch, Operation};
use crate::wal::note::{Note, NotedKeyspace};
use crate::wal::recovery::LogStart;
use crate::wal::segments::segment_name;
use crate::wal::tail::{Flow, LogRecord, LogTail, Says};

/// About how many bytes of changes are read ahead.
const AHEAD_BYTES: usize = 1 << 20;
/// How many times one call may read the manifest, without reading more of the log, before the two
/// agree.
const MOST_ROUNDS: usize = 16;

/// Reads the committed changes, in order.
#[derive(Debug)]
pub(super) struct HistoryReader {
    /// The storage for reads.
    storage: Arc<dyn Storage>,
    /// The same storage, for leases and syncs.
    own: Arc<dyn Storage>,
    process: Process,
    lease: Option<Arc<Lease>>,
    /// This reader's part of the lease. It keeps everything that was freed by edits after `kept`.
    part: Option<LeasePart>,
    kept: EditPlace,
    /// A load whose end is sought, and how far the log was read for it.
    sought: Option<(SeqNo, LogTail)>,
    /// The manifest may not have shown the tables of loads up to this sequence number.
    watched_from: SeqNo,
    manifest: ManifestTail,
    log: LogTail,
    /// The history of the changes read so far.
    history: History,
    /// Whether changes are synced before they are returned.
    pub(super) syncs: bool,
    values: EarlyValues,
    read: Ahead,
    /// Whether a read failed.
    has_failed: bool,
}

/// Changes that were read from the log and not returned yet.
#[derive(Debug, Default)]
struct Ahead {
    /// Changes with their sequence numbers.
    changes: VecDeque<(SeqNo, Change)>,
    bytes: usize,
    /// The sequence number of the last original write. Writes that an open logged again do not
    /// count.
    own_seq: SeqNo,
    /// Whether the next record repeats earlier ones.
    repeats: bool,
    /// Whether the manifest must be read before the next record.
    is_behind: bool,
    /// The last load that was reported.
    load: SeqNo,
    /// What the log says about the next load.
    logged: Logged,
    /// Segments and value files that were read since the last sync.
    segments: BTreeSet<u64>,
    value_files: BTreeSet<u64>,
}

/// What the reader needs before the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nothing: there is no next record, or enough was read.
    Nothing,
    /// More of the manifest.
    Manifest,
    /// The end of a load.
    Load(SeqNo),
}

impl HistoryReader {
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        own: &Arc<dyn Storage>,
        from: ChangesFrom,
    ) -> Result<HistoryReader> {
        check_finished(&*storage)?;
        // A directory that is not a store gets no lease.
        ManifestTail::open(&storage)?;
        let lease = match Lease::take(own, Random::from_entropy().draw()) {
            Err(Error::Storage(error)) if error.is_refused() => None,
            taken => Some(taken?),
        };
        let mut manifest = ManifestTail::open(&storage)?;
        check_log(&manifest)?;
        manifest.watch_loads();
        let history = manifest.state.history.clone();
        let log = LogTail::new(&storage, log_start(&manifest.state));
        let own = Arc::clone(own);
        let values = EarlyValues::new(&storage, manifest.state.uid);
        let mut reader = HistoryReader {
            storage,
            own,
            process: Process::current(),
            lease,
            part: None,
            kept: EditPlace::START,
            sought: None,
            watched_from: manifest.state.last_seq,
            manifest,
            log,
            history,
            syncs: true,
            values,
            read: Ahead::default(),
            has_failed: false,
        };
        let begun = match from {
            // Earlier changes are not read here: `Everything` gets them as state.
            ChangesFrom::Now | ChangesFrom::Everything => reader.pass_all(),
            ChangesFrom::Oldest => reader.begin_oldest(),
            ChangesFrom::After(position) => reader.pass(position),
        };
        begun.map_err(|error| reader.explain(error))?;
        // A reader at the end of the log may wait a long time for its first read, while a copy is
        // made.
        reader.free_read()?;
        Ok(reader)
    }

    /// Moves to the end of the log, or to a load that has not ended: a copy of the store has
    /// neither this load nor the writes after it.
    fn pass_all(&mut self) -> Result<()> {
        let mut ended = self.manifest.state.last_seq;
        loop {
            let mut load = None;
            self.log.read(|record| {
                let Says::Load(seq) = record.says()? else { return Ok(Flow::Next) };
                load = Some(seq).filter(|seq| *seq > ended);
                Ok(if load.is_some() { Flow::Hold } else { Flow::Next })
            })?;
            match load {
                Some(seq) if self.has_ended(seq)? => ended = seq,
                _ => break,
            }
        }
        let floor = self.manifest.state.log_floor;
        self.read.segments = self.log.segments_from(floor).map(|(number, _)| number).collect();
        self.read.own_seq = self.log.last_seq();
        self.read_manifest()
    }

    /// Moves to the beginning of the remaining log.
    fn begin_oldest(&mut self) -> Result<()> {
        let start = log_start(&self.manifest.state);
        let oldest = LogTail::oldest(&self.storage, start)?;
        if let Some(log) = oldest.filter(|log| log.begins_at() <= start.seq) {
            self.log = log;
        }
        self.read.own_seq = self.log.last_seq();
        Ok(())
    }

    /// Moves to a position.
    fn pass(&mut self, position: Position) -> Result<()> {
        let common = self.history.last_common(position.history());
        let common = common.ok_or_else(|| self.gone(Gone::History))?;
        if position.seq() > common {
            return Err(self.forked(common));
        }
        let start_seq = self.manifest.state.log_start_seq;
        let found = LogTail::after(&self.storage, position.seq())?;
        let end = found.as_ref().map_or(start_seq - 1, LogTail::last_seq);
        let is_inside = found.as_ref().is_some_and(|log| log.last_seq() > position.seq());
        match found.filter(|_| end == position.seq()) {
            Some(log) => {
                let reaches_back = log.begins_at() <= position.seq();
                self.log = log;
                if !reaches_back {
                    self.tell_keyspaces(position.seq())?;
                }
            }
            // Everything up to the position is in tables, and the log begins after it.
            None if start_seq == position.seq() + 1 => self.tell_keyspaces(position.seq())?,
            None if start_seq > position.seq() && !is_inside => return Err(self.gone(Gone::Log)),
            None => return Err(no_position(position, end)),
        }
        self.read.own_seq = position.seq();
        Ok(())
    }

    /// Reports which keyspaces exist, for a log that begins after the position: the notes about
    /// keyspaces that were logged just after the position are gone.
    fn tell_keyspaces(&mut self, seq: SeqNo) -> Result<()> {
        let Some(mut ahead) = self.log.look_ahead()? else { return Err(self.gone(Gone::Log)) };
        let known = &self.manifest.state.keyspaces;
        let (mut made, mut repeats) = (BTreeSet::new(), false);
        let (mut is_written, mut is_told, mut is_gone) = (false, false, false);
        ahead.read(|record| {
            match record.note()? {
                Some(Note::Repeats(_)) => repeats = true,
                Some(Note::Opened { .. }) if !is_written => is_told = true,
                Some(Note::Keyspace(keyspace)) => drop(made.insert(keyspace.id)),
                // The manifest has forgotten this keyspace, and earlier writes may belong to it.
                Some(Note::Dropped(_)) => is_gone = true,
                Some(Note::Opened { .. } | Note::Time(_)) => {}
                None if matches!(record.says()?, Says::Edits(..)) => {}
                None if std::mem::take(&mut repeats) => {}
                None => record.each(|_, operation| {
                    is_written = true;
                    let id = operation.keyspace;
                    is_gone |= id != NO_KEYSPACE && !known.contains_key(&id) && !made.contains(&id);
                    Ok(())
                })?,
            }
            Ok(if is_told || is_gone { Flow::Hold } else { Flow::Next })
        })?;
        if is_gone {
            return Err(self.gone(Gone::Keyspace));
        }
        if !is_told {
            self.read.changes.push_back((seq, Change::Keyspaces(self.keyspaces())));
        }
        Ok(())
    }

    /// Skips everything up to a sequence number, and syncs it: the caller has a copy of it and
    /// continues from there, so a power loss must not undo it.
    pub(super) fn pass_through(&mut self, seq: SeqNo) -> Result<()> {
        debug_assert!(self.read.changes.is_empty(), "changes that were read are passed over");
        // The copy may be newer than the log read so far: it may have other value files, and may
        // belong to a history that began since.
        self.read_manifest()?;
        let HistoryReader { log, read, .. } = self;
        log.read(|record| {
            let is_wanted = record.before() < seq;
            if is_wanted {
                read.segments.insert(record.segment());
            }
            Ok(if is_wanted { Flow::Next } else { Flow::Hold })
        })?;
        // Tables may have writes that are no longer in the log.
        self.log.pass_to(seq);
        self.read.own_seq = self.read.own_seq.max(self.log.last_seq());
        // It is not known which value files have values to which only the log points, so all are
        // synced.
        let layouts = self.manifest.state.keyspaces.values().flat_map(|one| &one.values);
        self.read.value_files = layouts.map(|layout| layout.number).collect();
        self.sync_read()
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    pub(super) fn store_uid(&self) -> u64 {
        self.manifest.state.uid
    }

    pub(super) fn forked(&self, last_common: SeqNo) -> Error {
        Error::HistoryForked { path: self.storage.location(), last_common }
    }

    fn gone(&self, why: Gone) -> Error {
        let start = log_start(&self.manifest.state);
        let oldest = LogTail::oldest(&self.storage, start).ok().flatten();
        let first = oldest.map_or(start.seq, |oldest| oldest.begins_at().min(start.seq));
        let (path, first) = (self.storage.location(), first.saturating_sub(1));
        Error::HistoryGone { path, first, why }
    }

    /// The error for a read that failed: a file may be gone because the lease was revoked.
    fn explain(&self, error: Error) -> Error {
        let error = self.lease.iter().fold(error, |error, lease| lease.explain(error));
        match &error {
            // The lease keeps everything that later edits freed, so the file was freed earlier.
            Error::Storage(storage) if storage.is_not_found() => self.gone(Gone::Log),
            _ => error,
        }
    }

    pub(super) fn position(&self) -> Position {
        Position::new(self.history.id, self.read.own_seq)
    }

    pub(super) fn keyspaces(&self) -> Vec<NotedKeyspace> {
        noted(&self.manifest.state)
    }

    pub(super) fn next(&mut self) -> Result<Option<Changed>> {
        if self.read.changes.is_empty() {
            // A fork would move the lease of its parent.
            if !self.process.is_current() {
                return Err(Error::OtherProcess);
            }
            if self.lease.as_ref().is_some_and(|lease| lease.is_revoked()) {
                return Err(Error::LeaseRevoked { path: self.storage.location() });
            }
            self.check_whole()?;
            if let Err(error) = self.fill() {
                // The changes read so far may be neither durable nor of this history, and the log
                // reader is past them. So nothing more is returned: the caller begins again at its
                // position.
                self.read.changes.clear();
                self.has_failed = true;
                return Err(self.explain(error));
            }
        }
        let Some((seq, change)) = self.read.changes.pop_front() else { return Ok(None) };
        Ok(Some(Changed { position: Position::new(self.history.id, seq), change }))
    }

    fn check_whole(&self) -> Result<()> {
        match self.has_failed {
            false => Ok(()),
            true => Err(Error::invalid(
                "the reader of changes has failed before",
                "begin again at the position of the last change",
            )),
        }
    }

    /// Reads ahead. At the end everything read is durable, if the caller requested that.
    fn fill(&mut self) -> Result<()> {
        self.read.bytes = 0;
        let mut rounds = 0;
        loop {
            let place = self.log.place();
            match self.read_records()? {
                Asked::Load(seq) if !self.has_ended(seq)? => break,
                Asked::Load(seq) => {
                    // The edit was written before the end of the load was logged.
                    self.read_manifest()?;
                    self.take_load(seq)?;
                }
                // The manifest is also read at the end: the lease then keeps less, and the reader
                // notices if the store was opened again.
                asked => {
                    self.read_manifest()?;
                    let is_missing = self.manifest.state.log_start_seq > self.log.last_seq() + 1;
                    let is_full = self.read.bytes >= AHEAD_BYTES;
                    if is_full || (asked == Asked::Nothing && !is_missing) {
                        break;
                    }
                    // A busy writer may log one edit after another.
                    rounds = if self.log.place() == place { rounds + 1 } else { 0 };
                    if rounds == MOST_ROUNDS {
                        return Err(self.gone(Gone::Log));
                    }
                }
            }
        }
        self.sync_read()?;
        self.free_read()
    }

    /// Adds a load that has ended.
    fn take_load(&mut self, seq: SeqNo) -> Result<()> {
        let Logged { keyspace, tables: logged } = std::mem::take(&mut self.read.logged);
        let tables = self.manifest.loaded(seq);
        if seq <= self.watched_from {
            // A compaction may have rewritten some tables of the load, or dropped some of its
            // entries and left the rest under its sequence number. Tables that no compaction
            // touched keep their ids. It is not known whether the load failed.
            let mut left: Vec<u64> = tables.iter().map(|table| table.id).collect();
            left.sort_unstable();
            if left.is_empty() || left != logged {
                return Err(self.gone(Gone::Load));
            }
        }
        if !tables.is_empty() {
            let part = self.lease.as_ref().map(|lease| lease.part(self.kept)).transpose()?;
            let load = Load::new(keyspace, tables, (&self.storage, self.manifest.state.uid), part);
            self.read.bytes = AHEAD_BYTES;
            self.read.changes.push_back((seq, Change::Loaded(load)));
        }
        self.read.load = seq;
        Ok(())
    }

    fn read_records(&mut self) -> Result<Asked> {
        let mut asked = Asked::Nothing;
        let HistoryReader { log, read, values, history, .. } = self;
        log.read(|record| {
            if read.bytes >= AHEAD_BYTES {
                return Ok(Flow::Hold);
            }
            asked = read.take(record, values, history)?;
            Ok(if asked == Asked::Nothing { Flow::Next } else { Flow::Hold })
        })?;
        Ok(asked)
    }

    /// Whether the log says that a load has ended.
    fn has_ended(&mut self, load: SeqNo) -> Result<bool> {
        let known = self.sought.take().filter(|(sought, _)| *sought == load);
        let ahead = match known {
            Some((_, ahead)) => Some(ahead),
            None => self.log.look_ahead()?,
        };
        let Some(mut ahead) = ahead else {
            // The segment of the load is below the floor of the log, and was removed.
            return Ok(self.manifest.state.log_start_seq > load);
        };
        let mut has_ended = false;
        ahead.read(|record| {
            // Records that a later opening of the store logged came after the load had ended.
            has_ended |= matches!(record.says()?, Says::Edits(_, ended) if ended == load)
                || matches!(record.note()?, Some(Note::Opened { .. } | Note::Repeats(_)));
            Ok(if has_ended { Flow::Hold } else { Flow::Next })
        })?;
        // A load may take a long time, and callers check often.
        self.sought = (!has_ended).then_some((load, ahead));
        Ok(has_ended)
    }

    /// Reads more of the manifest.
    fn read_manifest(&mut self) -> Result<()> {
        if self.manifest.advance()?.is_none() {
            // Edits in between may have been missed.
            self.watched_from = self.manifest.state.last_seq;
            check_log(&self.manifest)?;
        }
        self.read.is_behind = false;
        let now = &self.manifest.state.history;
        if now.id != self.history.id {
            let common = now.last_common(self.history.id);
            let common = common.ok_or_else(|| self.gone(Gone::History))?;
            if self.read.own_seq > common {
                return Err(self.forked(common));
            }
            self.history = now.clone();
        }
        Ok(())
    }

    /// Allows the writer to free everything that was read and synced.
    fn free_read(&mut self) -> Result<()> {
        let state = &self.manifest.state;
        // Unread records may point to values that a later edit freed.
        if self.log.last_seq() + 1 >= state.log_start_seq.max(state.log_synced_seq + 1) {
            let Current { number, least_bytes, .. } = self.manifest.place();
            let place = EditPlace { manifest: number, bytes: least_bytes };
            // The new part is made first: without any part, the lease would keep everything for a
            // moment.
            let part = self.lease.as_ref().map(|lease| lease.part(place)).transpose()?;
            (self.part, self.kept) = (part, place);
            self.log.forget_below(state.log_floor);
            self.manifest.forget_loads(self.log.last_seq());
        }
        Ok(())
    }

    /// Syncs everything that was read: values before the log that points to them, and the log in
    /// order.
    fn sync_read(&mut self) -> Result<()> {
        if !self.syncs || seeded!(HistoryNotSynced) {
            return Ok(());
        }
        for number in &self.read.value_files {
            match self.own.open(&values_name(*number), Category::Value) {
                // Nothing points to the missing file any more.
                Err(error) if error.is_not_found() => {}
                file => file?.sync()?,
            }
        }
        if !self.read.segments.is_empty() {
            self.own.sync_dir()?;
        }
        let floor = self.manifest.state.log_floor;
        for number in &self.read.segments {
            match self.own.open(&segment_name(*number), Category::Wal) {
                // The segment was removed after an edit that is durable: all of it is in tables.
                Err(error) if error.is_not_found() && *number < floor => {}
                segment => segment?.sync()?,
            }
        }
        self.read.value_files.clear();
        self.read.segments.clear();
        Ok(())
    }
}

/// The error for a position at which no change ends. `end` is the end of the batch that contains
/// the position, or of the log.
fn no_position(position: Position, end: SeqNo) -> Error {
    if position.seq() < end {
        let what = format!("position {position} lies inside a batch that ends at number {end}");
        return Error::invalid(what, "begin at a position that a reader returned");
    }
    let what = format!("position {position} lies past the end of the log, number {end}");
    let hint = "check the position; if a reader returned it, the store is an older copy, which \
                lacks what came after: begin anew from its state";
    Error::invalid(what, hint)
}

/// Refuses a store without a log, because nothing keeps its writes in order.
fn check_log(manifest: &ManifestTail) -> Result<()> {
    if !manifest.state.has_no_log {
        return Ok(());
    }
    let what = format!("{} has no log, so nobody can read its changes", manifest.location());
    Err(Error::invalid(what, "open it with a wal_mode other than \"off\", or make backups"))
}

fn log_start(state: &StoreState) -> LogStart {
    LogStart { segment: state.log_floor, seq: state.log_start_seq }
}

impl Ahead {
    /// Processes a record, or returns what is needed first.
    fn take(
        &mut self,
        record: &LogRecord<'_>,
        values: &mut EarlyValues,
        history: &History,
    ) -> Result<Asked> {
        if self.is_behind {
            return Ok(Asked::Manifest);
        }
        match record.says()? {
            Says::Edits(..) => {
                if let Some(note) = record.note()? {
                    return Ok(self.take_note(record.before(), note, history));
                }
            }
            Says::Load(seq) if seq <= self.load => self.own_seq = seq,
            Says::Load(seq) => {
                self.logged = logged_load(record)?;
                return Ok(Asked::Load(seq));
            }
            Says::Writes(seq) => {
                let is_repeated = std::mem::take(&mut self.repeats);
                self.segments.insert(record.segment());
                if is_repeated {
                    // The next record was logged when the store was opened.
                    self.is_behind = true;
                    return Ok(Asked::Nothing);
                }
                let Some(batch) = self.writes_of(record, values)? else {
                    return Ok(Asked::Manifest);
                };
                self.own_seq = seq;
                self.bytes += batch.encoded().len();
                if !batch.is_empty() {
                    self.changes.push_back((seq, Change::Writes(batch)));
                }
            }
        }
        self.segments.insert(record.segment());
        Ok(Asked::Nothing)
    }

    fn take_note(&mut self, seq: SeqNo, note: Note, history: &History) -> Asked {
        let change = match note {
            Note::Keyspace(keyspace) => Change::Keyspace(keyspace),
            Note::Dropped(id) => Change::Dropped(id),
            Note::Time(ms) => Change::Time(ms),
            Note::Opened { history: begun, .. } if history.last_common(begun).is_none() => {
                return Asked::Manifest;
            }
            Note::Opened { keyspaces, .. } => Change::Keyspaces(keyspaces),
            Note::Repeats(_) => {
                self.repeats = true;
                return Asked::Nothing;
            }
        };
        self.own_seq = self.own_seq.max(seq);
        self.changes.push_back((seq, change));
        Asked::Nothing
    }

    /// The writes of a record, without values that a collection moved. `None` if a value is
    /// missing.
    fn writes_of(
        &mut self,
        record: &LogRecord<'_>,
        values: &mut EarlyValues,
    ) -> Result<Option<Batch>> {
        let (mut batch, mut is_whole) = (Batch::with_capacity(record.operation_bytes()), true);
        record.each(|_, operation| {
            match operation.kind {
                Kind::Relocate => {}
                Kind::ValuePointer => match values.read(&operation)? {
                    Some(value) => {
                        batch.push(Kind::Put, operation.keyspace, operation.key, &value)?;
                        self.value_files.insert(values.number);
                    }
                    None => is_whole = false,
                },
                _ => batch.push_same(&operation),
            }
            Ok(())
        })?;
        Ok(is_whole.then_some(batch))
    }
}

/// What the log says about a load.
#[derive(Debug, Default)]
struct Logged {
    keyspace: KeyspaceId,
    /// The ids of its tables, ascending. Empty if the release that wrote the log did not record
    /// them.
    tables: Vec<u64>,
}

fn logged_load(record: &LogRecord<'_>) -> Result<Logged> {
    let mut logged = Logged { keyspace: NO_KEYSPACE, tables: Vec::new() };
    record.each(|_, operation| {
        let mut reader = Reader::new(operation.value);
        logged.keyspace = take_u32(&mut reader).unwrap_or(NO_KEYSPACE);
        logged.tables = take_list(&mut reader, |reader| reader.take_varint()).unwrap_or_default();
        Ok(())
    })?;
    logged.tables.sort_unstable();
    Ok(logged)
}

/// Reads values that were in their files before their writes were logged.
#[derive(Debug)]
struct EarlyValues {
    storage: Arc<dyn Storage>,
    store_uid: u64,
    /// The file of the last value.
    number: u64,
    file: Option<(Arc<dyn StorageFile>, u64)>,
}

impl EarlyValues {
    fn new(storage: &Arc<dyn Storage>, store_uid: u64) -> EarlyValues {
        EarlyValues { storage: Arc::clone(storage), store_uid, number: 0, file: None }
    }

    /// The value of a logged write; `None` if its file or its place is gone.
    fn read(&mut self, operation: &Operation<'_>) -> Result<Option<Vec<u8>>> {
        let pointer = Pointer::of_entry(operation.value)?;
        let place = EarlyPlace::decode(operation.place)
            .map_err(|_| Error::corruption("the log", 0, "the place of a value does not decode"))?;
        if self.number != pointer.store || self.file.is_none() {
            (self.number, self.file) = (pointer.store, self.open(pointer.store)?);
        }
        let Some((file, slot_bytes)) = &self.file else { return Ok(None) };
        let bytes = record_bytes(operation.key.len(), pointer.value_bytes as usize);
        let position = FIRST_SLOT + u64::from(place.slot) * slot_bytes + place.offset;
        if file.len()? < position + bytes {
            return Ok(None);
        }
        let record = file.read_vec(position, bytes as usize)?;
        let seed = ChecksumSeed::new(file_uid(self.store_uid, pointer.store), place.generation);
        let found = seed.take(&record, place.offset).ok();
        let is_it = u32_at(&record, 0) == Some(place.checksum);
        let found = found.filter(|one| is_it && one.key == operation.key);
        Ok(found.map(|one| one.value.to_vec()))
    }

    /// A value file, and the size of its slots from its header.
    fn open(&self, number: u64) -> Result<Option<(Arc<dyn StorageFile>, u64)>> {
        let file = match self.storage.open(&values_name(number), Category::Value) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        let uid = file_uid(self.store_uid, number);
        Ok(slot_bytes_of(&*file, uid, number)?.map(|slot_bytes| (file, slot_bytes)))
    }
}
