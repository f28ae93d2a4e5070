//! Decides for each entry of a flush or compaction whether its value moves to the value file or
//! back from it.
//!
//! A flush separates large values. A compaction leaves pointers as they are, unless the placement
//! of the keyspace has changed since the inputs were written. Then large inline values go to the
//! current value file, and values of a retired file move there or back into the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::format::record::{Pointer, fits_record};
use crate::keys::expiry::{self, expiry_of};
use crate::keys::{Kind, SeqNo, kind_of, pack, seq_of};
use crate::metrics::{Counter, Metrics};
use crate::options::values::{ValueOptions, ValuePlacement};
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::appender::Appender;
use crate::values::file::ValueFile;
use crate::values::layout::ValueEdit;
use crate::values::lookup::{FoundValue, Give, ValueLookup};

/// About how many bytes a table stores in place of a separated value.
const POINTER_BYTES: usize = 16;

/// How many entries a walk reads ahead, at first and at most. The longer a walk, the more it reads
/// at once.
const LEAST_AHEAD: usize = 2;
const MOST_AHEAD: usize = 256;
/// The limit for files in memory: large enough that cache misses overlap, and small enough that a
/// short walk looks up few entries that it does not need.
const MOST_IN_MEMORY: usize = 8;
/// A larger value takes time mostly for its copy, not for the wait for its first cache lines.
const BYTES_IN_MEMORY: u64 = 16 << 10;

/// How far a walk looks ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The number of entries that are gathered at first.
    pub(crate) least: usize,
    /// The largest number of entries that are gathered.
    most: usize,
    /// Whether the number doubles each time, or grows by one.
    doubles: bool,
    /// A batch ends when its values reach this many bytes.
    pub(crate) bytes: u64,
}

impl Pace {
    /// The number of entries to gather after a batch of `count`. In memory, an unneeded look-up
    /// costs about as much as a needed one saves, so a short walk looks ahead only a little.
    pub(crate) fn after(&self, count: usize) -> usize {
        let more = if self.doubles { count * 2 } else { count + 1 };
        more.min(self.most)
    }
}

/// The value files of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct ValueFiles {
    /// The file to which new values are written; `None` if they stay inline.
    pub(crate) current: Option<Arc<ValueFile>>,
    /// Earlier files, kept as long as a table may point to them.
    pub(crate) retired: Vec<Arc<ValueFile>>,
}

impl ValueFiles {
    /// All files, the current one last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ValueFile>> {
        self.retired.iter().chain(&self.current)
    }

    /// Whether collections of some of these files write pointers.
    pub(crate) fn write_pointers(&self) -> bool {
        self.all().any(|file| file.placement == ValuePlacement::Vlog || file.writes_back)
    }

    /// The current file, if it is a log.
    pub(crate) fn log(&self) -> Option<&ValueFile> {
        self.current.as_deref().filter(|store| store.placement == ValuePlacement::Vlog)
    }

    /// The current file, if it is a log, as a shared handle.
    pub(crate) fn log_file(&self) -> Option<&Arc<ValueFile>> {
        self.current.as_ref().filter(|store| store.placement == ValuePlacement::Vlog)
    }

    /// The file with this file number.
    pub(crate) fn file(&self, number: u64) -> Option<&Arc<ValueFile>> {
        self.all().find(|store| store.number == number)
    }

    /// Whether the keyspace has no value file.
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.retired.is_empty()
    }

    /// How far a walk looks ahead, with at most `bytes` of values.
    pub(crate) fn pace(&self, bytes: u64) -> Pace {
        let gains =
            |store: &Arc<ValueFile>| store.file.heeds_hints() || store.file.reads_together();
        if self.all().any(gains) {
            return Pace { least: LEAST_AHEAD, most: MOST_AHEAD, doubles: true, bytes };
        }
        let is_memory = self.all().any(|store| store.file.is_memory());
        let (most, bytes) =
            if is_memory { (MOST_IN_MEMORY, bytes.min(BYTES_IN_MEMORY)) } else { (1, 0) };
        Pace { least: 1, most, doubles: false, bytes }
    }

    /// Tables whose file number is below this were written under another placement.
    pub(crate) fn settled_from(&self) -> u64 {
        let retired = self.retired.iter().map(|store| store.retired_at()).max().unwrap_or(0);
        retired.max(self.current.as_ref().map_or(0, |store| store.number))
    }

    /// The value of a version whose entry contains `bytes`; `None` if its record is gone.
    pub(crate) fn resolve(
        &self,
        key: &[u8],
        trailer: u64,
        bytes: &[u8],
        access: Access,
    ) -> Result<Option<Value>> {
        let pointer = Pointer::of_entry(bytes)?;
        match self.file(pointer.store) {
            Some(store) => store.read(&ValueLookup { pointer, key, trailer }, access),
            None => Ok(None),
        }
    }

    /// Gives each of many versions its value or its place. Versions of unknown files get nothing.
    pub(crate) fn resolve_many(
        &self,
        wanted: &[ValueLookup<'_>],
        access: Access,
        give: &mut Give<'_>,
    ) {
        for store in self.all() {
            let mut missing: Vec<usize> = Vec::new();
            let those = |(_, one): &(usize, &ValueLookup<'_>)| one.pointer.store == store.number;
            for (i, one) in wanted.iter().enumerate().filter(those) {
                match store.cached(one, access) {
                    Some(value) => give(i, Ok(FoundValue::Value(value))),
                    None => missing.push(i),
                }
            }
            if !missing.is_empty() {
                store.read_many(wanted, missing, access, give);
            }
        }
    }
}

/// Rewrites the entries of one flush or compaction.
#[derive(Debug)]
pub(crate) struct Separation {
    values: Arc<ValueFiles>,
    appender: Option<Appender>,
    separate_at: usize,
    /// Whether values that expire are separated too. Collections that write pointers into the tree
    /// do not know about expiry, so with such files these values stay inline.
    separates_expiring: bool,
    /// Whether the job's edit names the early values of the current file.
    names_early: bool,
    /// The bytes of the entry to store.
    entry: Vec<u8>,
    fetched: Option<Value>,
}

impl Separation {
    /// Rewrites entries according to the current options. `None` if there is nothing to rewrite.
    pub(crate) fn new(values: &Arc<ValueFiles>, options: &ValueOptions) -> Option<Separation> {
        if values.is_empty() {
            return None;
        }
        Some(Separation {
            appender: values.current.as_ref().map(Appender::new),
            values: Arc::clone(values),
            separate_at: options.separate_at as usize,
            separates_expiring: values
                .current
                .as_ref()
                .is_some_and(|file| file.placement != ValuePlacement::Vlog && !file.writes_back),
            names_early: false,
            entry: Vec::new(),
            fetched: None,
        })
    }

    /// Rewrites entries of a compaction whose smallest input is table `least_id`.
    pub(crate) fn of_compaction(
        values: &Arc<ValueFiles>,
        options: &ValueOptions,
        least_id: u64,
    ) -> Option<Separation> {
        if least_id >= values.settled_from() { None } else { Separation::new(values, options) }
    }

    /// The same object, for the flush of a memtable that may point to early values.
    pub(crate) fn naming_early(mut self) -> Separation {
        self.names_early = true;
        self
    }

    /// About how many bytes a table stores for a value of this size.
    pub(crate) fn stored(&self, value_bytes: usize) -> usize {
        match self.appender {
            Some(_) if value_bytes >= self.separate_at => POINTER_BYTES,
            _ => value_bytes,
        }
    }

    /// The trailer and value to store for a version.
    pub(crate) fn place<'a>(
        &'a mut self,
        key: &[u8],
        trailer: u64,
        value: &'a [u8],
    ) -> Result<(u64, &'a [u8])> {
        let kind = Kind::from_u8(kind_of(trailer));
        let expiry_ms = expiry_of(trailer, value);
        let value = match kind {
            Some(Kind::ValuePointer | Kind::Relocate | Kind::ExpiringPointer) => {
                let pointer = Pointer::of_entry(value)?;
                let current = self.values.current.as_ref().map(|store| store.number);
                if Some(pointer.store) == current && !self.is_found(&pointer) {
                    return Ok((trailer, value));
                }
                match self.values.resolve(key, trailer, value, Access::Sequential)? {
                    Some(found) => &**self.fetched.insert(found),
                    // The record was collected, and its file may be gone. Every reader sees a newer
                    // version, which is outside this compaction. This version keeps hiding older
                    // versions until a compaction reads it together with the newer one. A reader
                    // that reached it would get an error.
                    None => return Ok((trailer, value)),
                }
            }
            Some(Kind::Put) => value,
            Some(Kind::ExpiringPut) => expiry::split(value).0,
            _ => {
                self.mark(key, seq_of(trailer))?;
                return Ok((trailer, value));
            }
        };
        let seq = seq_of(trailer);
        let separates = value.len() >= self.separate_at
            && (expiry_ms.is_none() || self.separates_expiring)
            && fits_record(key.len(), value.len());
        if let Some(appender) = self.appender.as_mut().filter(|_| separates) {
            appender.append(key, seq, value)?.encode(&mut self.entry);
            let Some(at_ms) = expiry_ms else {
                return Ok((pack(seq, Kind::ValuePointer), &self.entry));
            };
            self.entry.extend_from_slice(&at_ms.to_le_bytes());
            return Ok((pack(seq, Kind::ExpiringPointer), &self.entry));
        }
        if let Some(appender) = &mut self.appender {
            appender.mark(key, seq)?;
        }
        let Some(at_ms) = expiry_ms else { return Ok((pack(seq, Kind::Put), value)) };
        self.entry.clear();
        self.entry.extend_from_slice(value);
        self.entry.extend_from_slice(&at_ms.to_le_bytes());
        Ok((pack(seq, Kind::ExpiringPut), &self.entry))
    }

    /// Whether a flush writes the value elsewhere, although it is in the current file.
    fn is_found(&self, pointer: &Pointer) -> bool {
        let file = self.values.current.as_ref().filter(|_| self.names_early);
        file.is_some_and(|file| file.is_found(pointer.stream_offset))
    }

    fn mark(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.appender.as_mut().map_or(Ok(()), |appender| appender.mark(key, seq))
    }

    /// Makes the appended values durable.
    pub(crate) fn finish(self) -> Result<Option<Separated>> {
        let Some(mut appender) = self.appender else { return Ok(None) };
        let syncs = !appender.writes_any();
        let early = match self.names_early {
            true => appender.store().name_early(syncs)?,
            false => None,
        };
        // The appender syncs the file for both.
        let edit = appender.finish()?;
        Ok(Some(Separated { appender, edit, early }))
    }
}

/// Values that are durable, and wait for the edit that names them. Dropping this object discards
/// them.
#[derive(Debug)]
pub(crate) struct Separated {
    appender: Appender,
    pub(crate) edit: ValueEdit,
    /// The edit that names early values.
    early: Option<ValueEdit>,
}

impl Separated {
    /// Bytes of records.
    pub(crate) fn bytes(&self) -> u64 {
        self.appender.bytes
    }

    /// The edits, in order.
    fn edits(&self) -> impl Iterator<Item = &ValueEdit> {
        self.early.iter().chain(std::iter::once(&self.edit))
    }

    /// Makes the values visible to readers, after the edit was logged.
    pub(crate) fn publish(self) {
        let store = self.appender.store();
        if let Some(early) = &self.early {
            store.publish(early);
            store.early_named(early);
        }
        store.publish(&self.edit);
        self.appender.commit();
    }
}

/// The changes that a flush or compaction makes to value files. They are in the same manifest
/// record as its tables.
#[derive(Debug, Default)]
pub(crate) struct ValueChanges {
    separated: Vec<Separated>,
    dead: Vec<ValueEdit>,
    /// Records that a compaction filter dropped, with their bytes.
    filtered: Vec<(Pointer, u32)>,
}

impl ValueChanges {
    /// The changes of a flush or of compactions: the values that they separated, the records that
    /// they found dead, and the records that their filters dropped, with their bytes.
    pub(crate) fn of_jobs(
        separated: Vec<Separated>,
        found_dead: &[(Pointer, u32)],
        filtered: Vec<(Pointer, u32)>,
        values: &ValueFiles,
    ) -> ValueChanges {
        let mut files: BTreeMap<u64, Vec<(Pointer, u32)>> = BTreeMap::new();
        for (pointer, bytes) in found_dead {
            let is_kept = |store: &Arc<ValueFile>| {
                store.may_note_dead(pointer) && !store.is_found(pointer.stream_offset)
            };
            if values.file(pointer.store).is_some_and(is_kept) {
                files.entry(pointer.store).or_default().push((*pointer, *bytes));
            }
        }
        let dead = files.into_iter().map(|(store, dead)| ValueEdit::of_dead(store, &dead));
        ValueChanges { separated, dead: dead.collect(), filtered }
    }

    /// Drops records that were found dead in files that no longer exist, because the manifest no
    /// longer names those files. Called with the manifest lock held.
    pub(crate) fn forget_dead_in_others(&mut self, values: &ValueFiles) {
        self.dead.retain(|edit| values.file(edit.store).is_some());
    }

    /// Keeps records that a compaction filter dropped, for readers of this epoch and earlier ones.
    /// Returns whether there are any. Called before the changes are visible.
    pub(crate) fn hold_filtered(&mut self, values: &ValueFiles, epoch: u64) -> bool {
        let filtered = std::mem::take(&mut self.filtered);
        for (pointer, bytes) in &filtered {
            if let Some(store) = values.file(pointer.store) {
                let Pointer { group, stream_offset, .. } = *pointer;
                store.state.lock().held.add(epoch, group, stream_offset, *bytes);
            }
        }
        !filtered.is_empty()
    }

    /// Makes logged changes visible.
    pub(crate) fn publish(self, values: &ValueFiles, metrics: &Metrics) {
        for separated in self.separated {
            metrics.add(Counter::value_bytes_written, separated.bytes());
            separated.publish();
        }
        for edit in &self.dead {
            if let Some(store) = values.file(edit.store) {
                store.publish(edit);
            }
        }
    }

    /// See [`Appender::abandon`].
    pub(crate) fn abandon(self) {
        self.separated.into_iter().for_each(|separated| separated.appender.abandon());
    }

    /// The edits, in the order in which they apply.
    pub(crate) fn edits(&self) -> impl Iterator<Item = &ValueEdit> {
        self.separated.iter().flat_map(Separated::edits).chain(&self.dead)
    }
}
