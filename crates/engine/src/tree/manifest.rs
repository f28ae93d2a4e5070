//! The manifest: a log of edits, and the `CURRENT` file that names it. It is the sole commit point:
//! a table exists if and only if the manifest says so.
//!
//! - An edit is durable when `append` returns: everything that it names was synced first, and then
//!   the record. A seal (a record without changes) follows unsynced, so that damage to the last
//!   edit is not mistaken for a torn tail.
//! - Every record says up to which offset the log was synced before the record was written. A
//!   damaged record is corruption if a later valid record says that the damaged one was synced.
//!   Otherwise it is the remains of an edit that was never acknowledged, after a power loss or in a
//!   copy of the disk of a running machine.
//! - `CURRENT` also records the length of the manifest when `CURRENT` was written: at creation, at
//!   close, and whenever [`NAMED_STEP_BYTES`] were added. A shorter manifest has lost its end.
//! - When the log has grown to twice its first record, a new manifest with whole shapes is written
//!   and synced. Then a rename replaces `CURRENT`. A crash in between leaves the old manifest in
//!   force.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::shape::{SeqNo, Shape};
use runstone_storage::{Category, Storage, StorageFile};

use crate::error::{Error, Result};
use crate::keys::KeyspaceId;
use crate::keys::codec::{Reader, put_varint};
use crate::log::{
    FRAME_BYTES, HEADER_BYTES, LogHeader, LogKind, LogReader, LogWriter, Next, newer_format,
};
use crate::tree::history::History;
use crate::tree::record::{self, BadRecord, Change};
use crate::tree::replay::Replay;
use crate::values::layout::Layout;

/// Names the manifest in force.
pub const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";
/// `CURRENT` has this after the length once the store is closed.
const CLOSED: &str = " closed";
/// A manifest is not rewritten below this size.
const MIN_ROTATE_BYTES: u64 = 1 << 20;
/// `CURRENT` is written again when the manifest has grown by this many bytes. So if the manifest
/// has lost its end and no later record shows the loss, fewer bytes than this were lost. An edit
/// takes 100 to 1,000 bytes.
const NAMED_STEP_BYTES: u64 = 16 << 10;

/// File name of a manifest.
pub fn manifest_name(number: u64) -> String {
    format!("{number:06}.manifest")
}

/// A keyspace as the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Name.
    pub name: String,
    /// Options as TOML.
    pub options: String,
    /// All writes up to this sequence number are in tables.
    pub flushed_seq: SeqNo,
    /// The tree.
    pub shape: Shape,
    /// Value files; at most one of them, the last, is not retired.
    pub values: Vec<Layout>,
}

impl KeyspaceState {
    /// A keyspace without data.
    pub fn new(name: String, options: String) -> KeyspaceState {
        KeyspaceState { name, options, flushed_seq: 0, shape: Shape::default(), values: Vec::new() }
    }

    pub(super) fn value_file(&mut self, number: u64) -> std::result::Result<&mut Layout, String> {
        let found = self.values.iter_mut().find(|layout| layout.number == number);
        found.ok_or_else(|| format!("names unknown value file {number}"))
    }
}

/// The whole state that a manifest records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Random id of the store.
    pub uid: u64,
    /// Next file number.
    pub next_file: u64,
    /// Largest sequence number in a table.
    pub last_seq: SeqNo,
    /// First log segment still needed.
    pub log_floor: u64,
    /// Sequence number of the first record of that segment.
    pub log_start_seq: SeqNo,
    /// Everything up to this sequence number was durable, in tables or in the log.
    pub log_synced_seq: SeqNo,
    /// Every keyspace that was ever made has a smaller id; 0 if no record gives this number.
    pub next_keyspace: KeyspaceId,
    /// The history that sequence numbers belong to.
    pub history: History,
    /// Whether writes do not go to a log, so that nobody can read the history.
    pub has_no_log: bool,
    /// Keyspaces by id.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
}

impl StoreState {
    /// Applies one change. O(tables) if it is an edit of a tree; see [`Replay`] for many changes.
    pub fn apply(&mut self, change: &Change) -> std::result::Result<(), String> {
        Replay::of(self).apply(change)
    }

    pub(super) fn keyspace(
        &mut self,
        id: KeyspaceId,
    ) -> std::result::Result<&mut KeyspaceState, String> {
        self.keyspaces.get_mut(&id).ok_or_else(|| format!("names unknown keyspace {id}"))
    }

    /// The changes that record this whole state.
    pub fn snapshot(&self) -> Vec<Change> {
        let mut changes = vec![
            Change::Store { uid: self.uid },
            Change::Counters {
                next_file: self.next_file,
                last_seq: self.last_seq,
                log_floor: self.log_floor,
                log_start_seq: self.log_start_seq,
            },
            Change::Log { synced_seq: self.log_synced_seq, next_keyspace: self.next_keyspace },
            Change::History(self.history.clone()),
        ];
        changes.extend(self.has_no_log.then_some(Change::NoLog));
        for (id, keyspace) in &self.keyspaces {
            changes.push(Change::Keyspace {
                id: *id,
                name: keyspace.name.clone(),
                options: keyspace.options.clone(),
            });
            changes.push(Change::Shape {
                id: *id,
                flushed_seq: keyspace.flushed_seq,
                shape: keyspace.shape.clone(),
            });
            let files = keyspace.values.iter().cloned();
            changes.extend(files.map(|layout| Change::ValueFile { id: *id, layout }));
        }
        changes
    }
}

/// Rebuilds a decoded shape through `apply`, which checks every invariant.
pub(super) fn check_shape(shape: &Shape) -> std::result::Result<Shape, String> {
    use runstone_policy::shape::{Edit, Level, Placement, RunSlot};
    let mut edit = Edit::default();
    for (level, tables) in (0u32..).zip(&shape.levels) {
        let mut place = |slot, table: &Arc<_>| {
            edit.place.push(Placement { level, slot, table: Arc::clone(table) });
        };
        match tables {
            // New runs are placed on top, so the oldest is placed first.
            Level::Runs(runs) => runs.iter().rev().for_each(|run| {
                run.tables.iter().for_each(|table| place(RunSlot::New(run.id), table));
            }),
            Level::Overlapping(tables) => {
                tables.iter().for_each(|table| place(RunSlot::Overlapping, table));
            }
        }
    }
    let mut checked = Shape::default().into_applied(&edit).map_err(|bad| bad.to_string())?;
    for (new, old) in checked.levels.iter_mut().zip(&shape.levels) {
        let Level::Runs(runs) = new else { continue };
        for run in runs {
            let stored = old.runs().iter().find(|stored| stored.id == run.id);
            run.last_flush = stored.map_or(0, |stored| stored.last_flush);
        }
        if old.runs().iter().any(|run| run.last_flush > shape.state.flush_count) {
            return Err("a run says that it was flushed after the last flush".to_owned());
        }
    }
    checked.state = shape.state.clone();
    check_pending(shape)?;
    checked.trims = shape.trims.clone();
    checked.pending = shape.pending.clone();
    Ok(checked)
}

/// Checks that trims and a pending plan name tables of the tree.
fn check_pending(shape: &Shape) -> std::result::Result<(), String> {
    let keys: BTreeMap<u64, &[u8]> =
        shape.tables().map(|(_, table)| (table.id, &*table.min_key)).collect();
    for (id, file_min_key) in &shape.trims {
        if keys.get(id).is_none_or(|min_key| **file_min_key > **min_key) {
            return Err(format!("table {id} is trimmed to more than its file, or not there"));
        }
    }
    let named = shape.pending.iter().flat_map(|plan| plan.table_ids());
    match named.into_iter().find(|id| !keys.contains_key(id)) {
        Some(id) => Err(format!("a pending plan names table {id}, which is not in the tree")),
        None => Ok(()),
    }
}

/// The open manifest.
#[derive(Debug)]
pub struct Manifest {
    storage: Arc<dyn Storage>,
    number: u64,
    log: LogWriter,
    /// Everything before this offset is synced.
    synced_to: u64,
    /// The end of the file when everything, including the seal, was last synced.
    rested_at: u64,
    /// Size at which a new manifest is written.
    rotate_at_bytes: u64,
    /// The length of this manifest that `CURRENT` records.
    named_bytes: u64,
    /// Set by a failed append. Nobody knows then what is on disk, so nothing more may be appended.
    broken: bool,
}

impl Manifest {
    /// Writes a new manifest with the whole `state`; `switch_current` then puts it in force.
    /// `state.next_file` must be above the manifest's own number.
    pub fn create(
        storage: Arc<dyn Storage>,
        number: u64,
        id: u64,
        state: &StoreState,
    ) -> Result<Manifest> {
        debug_assert!(state.next_file > number, "a later file may get the number of the manifest");
        let file = storage.create(&manifest_name(number), Category::Manifest)?;
        let made = Manifest::fill(
            Arc::clone(&storage),
            file,
            LogHeader { number, id, manifest: 0 },
            state,
        );
        // On a full disk, an incomplete file would keep the space that it has taken.
        made.inspect_err(|_| drop(storage.remove(&manifest_name(number))))
    }

    fn fill(
        storage: Arc<dyn Storage>,
        file: Arc<dyn StorageFile>,
        header: LogHeader,
        state: &StoreState,
    ) -> Result<Manifest> {
        let number = header.number;
        let mut changes = state.snapshot();
        for change in &mut changes {
            if let Change::History(history) = change {
                history.file = storage.file_number(&manifest_name(number));
            }
        }
        let log = LogWriter::create(file, LogKind::Manifest, header)?;
        let mut manifest = Manifest {
            storage,
            number,
            log,
            synced_to: 0,
            rested_at: 0,
            rotate_at_bytes: 0,
            named_bytes: 0,
            broken: false,
        };
        manifest.try_append(&changes)?;
        // The seal of the snapshot is synced too: the first record has no earlier copy.
        manifest.log.file().sync()?;
        manifest.rested_at = manifest.log.position();
        manifest.rotate_at_bytes = (manifest.log.position() * 2).max(MIN_ROTATE_BYTES);
        manifest.prepare_current()?;
        Ok(manifest)
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Appends an edit and syncs it. The files that the edit names must be synced already; this
    /// call syncs the directory before it writes the record.
    pub fn append(&mut self, changes: &[Change]) -> Result<()> {
        if self.broken {
            let what = "the manifest may lack an edit that failed";
            let cause = Box::new(Error::invalid(what, "reopen the store"));
            return Err(Error::Stopped { cause });
        }
        let appended = self.try_append(changes);
        appended.map_err(|error| if self.broken { error.of_failed_sync() } else { error })
    }

    /// Whether an append failed and nobody knows what is on disk.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    fn try_append(&mut self, changes: &[Change]) -> Result<()> {
        // After any failure or panic nobody knows what is on disk (P7), except after a write that
        // fails on a full disk, see below.
        self.broken = true;
        if !seeded!(DirectoryNotSynced) {
            self.storage.sync_dir()?;
        }
        // On a full disk the write fails. The bytes that it left are garbage after the end, and the
        // next record overwrites them.
        let put = self.put(&record::encode(changes));
        put.inspect_err(|error| self.broken = !error.is_no_space())?;
        if !seeded!(EditNotSynced) {
            self.log.file().sync()?;
        }
        self.broken = false;
        self.synced_to = self.log.position();
        // The edit is committed. A seal that cannot be written does not undo it.
        let _ = self.put(&[]);
        Ok(())
    }

    /// Syncs what the last append left unsynced, so that the file can be closed while nobody
    /// writes.
    pub fn rest(&mut self) -> Result<()> {
        if self.broken || self.rested_at == self.log.position() {
            return Ok(());
        }
        // As in `try_append`: after a failure nobody knows what is on disk.
        self.broken = true;
        self.log.file().sync().map_err(|error| Error::from(error).of_failed_sync())?;
        self.broken = false;
        self.rested_at = self.log.position();
        Ok(())
    }

    fn put(&mut self, changes: &[u8]) -> Result<()> {
        let mut head = Vec::new();
        put_varint(&mut head, self.synced_to);
        self.log.append(&[&head, changes])
    }

    /// Writes the next content of `CURRENT`: this manifest's name and synced length.
    pub fn prepare_current(&mut self) -> Result<()> {
        self.prepare(self.current())
    }

    /// Records in `CURRENT` that the store was closed.
    pub fn name_closed(&mut self) -> Result<()> {
        self.prepare(Current { is_closed: true, ..self.current() })?;
        self.switch_current()
    }

    fn prepare(&mut self, current: Current) -> Result<()> {
        let storage = &*self.storage;
        match storage.remove(CURRENT_NEW) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let file = storage.create(CURRENT_NEW, Category::Manifest)?;
        file.write_at(0, current.to_line().as_bytes())?;
        file.sync()?;
        self.named_bytes = self.synced_to;
        Ok(())
    }

    /// Makes this manifest the one in force. After an error, either manifest may be in force.
    pub fn switch_current(&self) -> Result<()> {
        self.storage.rename(CURRENT_NEW, CURRENT)?;
        self.storage.sync_dir()?;
        Ok(())
    }

    /// Refuses every later append, because nobody knows which manifest is in force.
    pub fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Whether it is time for a new manifest.
    pub fn wants_rotation(&self) -> bool {
        !self.broken && self.log.position() >= self.rotate_at_bytes
    }

    /// Whether it is time to write `CURRENT` again.
    pub fn wants_naming(&self) -> bool {
        !self.broken && self.synced_to >= self.named_bytes + NAMED_STEP_BYTES
    }

    /// What `CURRENT` would record now. The edits up to that length are durable.
    pub fn current(&self) -> Current {
        Current::at(self.number, self.synced_to)
    }

    /// Bytes of the file that are in use.
    pub fn bytes(&self) -> u64 {
        self.log.position()
    }
}

/// The content of `CURRENT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Current {
    /// Number of the manifest in force.
    pub number: u64,
    /// The manifest is valid at least to this offset.
    pub least_bytes: u64,
    /// Whether the store was closed with this manifest. Then nobody has read a later write.
    pub is_closed: bool,
}

impl Current {
    /// The content of `CURRENT` that names the manifest of an open store.
    pub fn at(number: u64, least_bytes: u64) -> Current {
        Current { number, least_bytes, is_closed: false }
    }

    fn to_line(self) -> String {
        let closed = if self.is_closed { CLOSED } else { "" };
        let said = format!("{} {}{closed}", manifest_name(self.number), self.least_bytes);
        format!("{said} {:016x}\n", xxhash_rust::xxh3::xxh3_64(said.as_bytes()))
    }

    fn parse(said: &str) -> Option<Current> {
        let open = said.strip_suffix(CLOSED);
        let (name, len) = open.unwrap_or(said).split_once(' ')?;
        let number = crate::log::number_in(name, "manifest")?;
        Some(Current { number, least_bytes: len.parse().ok()?, is_closed: open.is_some() })
    }
}

/// Reads `CURRENT`; `None` if there is none.
pub fn read_current(storage: &dyn Storage) -> Result<Option<Current>> {
    let file = match storage.open(CURRENT, Category::Manifest) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bad = |what: &str| Error::corruption(CURRENT, 0, what);
    let len = file.len()?;
    if len > 128 {
        return Err(bad("longer than a file name"));
    }
    let bytes = file.read_vec(0, len as usize)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| bad("not text"))?;
    // LevelDB and RocksDB give their manifests such names.
    if text.starts_with("MANIFEST-") {
        return Err(Error::OtherDatabase { path: storage.location() });
    }
    let (said, sum) = text
        .strip_suffix('\n')
        .and_then(|line| line.rsplit_once(' '))
        .ok_or_else(|| bad("not of the form `NAME LENGTH [closed] CHECKSUM`"))?;
    if sum != format!("{:016x}", xxhash_rust::xxh3::xxh3_64(said.as_bytes())) {
        return Err(bad("checksum does not match"));
    }
    Current::parse(said).map(Some).ok_or_else(|| bad("does not name a manifest"))
}

/// Reads a manifest to its end, and returns the state and the number of valid bytes. A torn last
/// record is ignored, because its edit was never acknowledged.
pub fn read_manifest(storage: &dyn Storage, current: Current) -> Result<(StoreState, u64)> {
    let Current { number, least_bytes, .. } = current;
    let name = manifest_name(number);
    let mut reader = open_manifest(storage, number)?;
    let mut state = StoreState::default();
    let mut replay = Replay::of(&mut state);
    let mut records = 0;
    loop {
        match reader.next()? {
            Next::Record { offset, bytes } => {
                records += 1;
                apply_record(&mut replay, &name, offset, &bytes)?;
            }
            Next::End { offset } => {
                drop(replay);
                refuse_corruption(&mut reader, &name, offset)?;
                if records == 0 {
                    return Err(Error::corruption(name, offset, "the first record is damaged"));
                }
                if state.log_start_seq == 0 {
                    return Err(Error::corruption(name, offset, "no record says where the log is"));
                }
                if offset < least_bytes {
                    let what = format!("valid to here, but {least_bytes} bytes were written");
                    return Err(Error::corruption(name, offset, what));
                }
                return Ok((state, offset));
            }
        }
    }
}

/// A reader of a manifest.
pub(crate) fn open_manifest(storage: &dyn Storage, number: u64) -> Result<LogReader> {
    let name = manifest_name(number);
    let file = storage.open(&name, Category::Manifest).map_err(|error| {
        if error.is_not_found() {
            return Error::corruption(CURRENT, 0, format!("names {name}, which does not exist"));
        }
        error.into()
    })?;
    let header = read_header(&*file, &name)?;
    if header.number != number {
        return Err(Error::corruption(name, 0, "header has another number than the name"));
    }
    LogReader::new(file, &header)
}

/// Searches after the end of the valid part for proof that there was more.
fn refuse_corruption(reader: &mut LogReader, name: &str, offset: u64) -> Result<()> {
    let mut proof = None;
    reader.scan_after(offset, |at, bytes| {
        let synced_to = Reader::new(bytes).take_varint().unwrap_or(0);
        if synced_to > offset {
            proof = proof.or(Some(at));
        }
    })?;
    match proof {
        Some(at) => {
            let what = format!("record is damaged; a valid one follows at {at}");
            Err(Error::corruption(name, offset, what))
        }
        None => Ok(()),
    }
}

fn read_header(file: &dyn runstone_storage::StorageFile, name: &str) -> Result<LogHeader> {
    let len = file.len()?;
    if len < HEADER_BYTES {
        return Err(Error::corruption(name, len, "shorter than its header"));
    }
    let mut bytes = [0; HEADER_BYTES as usize];
    file.read_at(0, &mut bytes)?;
    LogHeader::decode(&bytes, LogKind::Manifest).map_err(|bad| bad.in_file(name))
}

/// Applies the changes of a record, and returns them.
pub(super) fn apply_record(
    state: &mut Replay<'_>,
    name: &str,
    offset: u64,
    bytes: &[u8],
) -> Result<Vec<Change>> {
    let mut reader = Reader::new(bytes);
    let malformed = |_| Error::corruption(name, offset, "record does not decode");
    reader.take_varint().map_err(malformed)?;
    let rest = reader.take(reader.remaining()).map_err(malformed)?;
    let changes = record::decode(rest).map_err(|bad| match bad {
        BadRecord::Newer => newer_format(name, crate::log::LOG_FORMAT + 1),
        BadRecord::Malformed => Error::corruption(name, offset, "record does not decode"),
    })?;
    for change in &changes {
        state.apply(change).map_err(|what| Error::corruption(name, offset, what))?;
    }
    Ok(changes)
}

const _: () =
    assert!(MIN_ROTATE_BYTES > 2 * FRAME_BYTES, "a new manifest would be replaced at once");

#[cfg(test)]
mod tests {
    use runstone_fault_storage::{Fault, FaultKind, SimStorage};

    use super::*;

    fn made(storage: &SimStorage) -> Manifest {
        let state = StoreState { uid: 7, next_file: 2, log_start_seq: 1, ..StoreState::default() };
        let manifest = Manifest::create(Arc::new(storage.clone()), 1, 9, &state).expect("made");
        manifest.switch_current().expect("switched");
        manifest
    }

    /// The file may be closed after `rest`, so no failure may be left that only a later sync would
    /// report.
    #[test]
    fn rest_syncs_the_seal_once_and_a_failure_breaks_the_manifest() {
        let storage = SimStorage::new(1);
        let mut manifest = made(&storage);
        let syncs = || storage.counters().snapshot(Category::Manifest).syncs;
        let before = syncs();
        manifest.rest().expect("nothing to do");
        assert_eq!(syncs(), before);
        manifest.append(&[]).expect("appended");
        manifest.rest().expect("syncs");
        manifest.rest().expect("nothing to do");
        assert_eq!(syncs(), before + 2, "the edit's and the seal's");

        manifest.append(&[]).expect("appended");
        let at_op = storage.ops();
        storage.inject(Fault { at_op, kind: FaultKind::Eio, sticky: false, category: None });
        manifest.rest().expect_err("the sync fails");
        assert!(matches!(manifest.append(&[]), Err(Error::Stopped { .. })));
        manifest.rest().expect("it is broken already");
    }
}
