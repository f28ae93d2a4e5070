//! Reads every byte of a store and checks it against checksums, order and metadata.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_policy::shape::expiry::{Expiries, MOST_STEPS};
use runstone_policy::shape::{Table, TableId};
use runstone_storage::Category;
use serde::Serialize;

use crate::catalog::ManifestState;
use crate::error::{Error, Result};
use crate::format::filter;
use crate::keys::expiry::expiry_of;
use crate::keys::{compare, is_delete, is_range_delete, range_delete, seq_of};
use crate::log::{HEADER_BYTES, LogHeader, LogKind};
use crate::memtable::{Memtable, MemtableIter};
use crate::read::options::ReadOptions;
use crate::store::Keyspace;
use crate::store::engine::Engine;
use crate::table::handle::TableHandle;
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::TableReader;
use crate::tree::manifest::{Current, manifest_name, read_current, read_manifest};
use crate::wal::segments::segment_name;

/// What a verification found.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Entries of those tables.
    pub entries: u64,
    /// Entries that are in no table yet. They are in memory, and after a crash they are in the log,
    /// which every open checks as a whole.
    pub log_entries: u64,
    /// Valid records of the log that this open did not use, because something before them was lost.
    /// A power loss can leave such a log, so this is not damage.
    pub lost_records: u64,
    /// Records of value files read.
    pub records: u64,
    /// Bytes of those tables and records.
    pub bytes: u64,
    /// The damage found. One file can occur more than once.
    pub damage: Vec<Damage>,
}

/// One finding of damage in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Damage {
    /// The name of the file inside the store.
    pub file: String,
    /// A description of the damage.
    pub what: String,
}

impl Damage {
    /// Damage in a file.
    pub fn new(file: impl Into<String>, what: impl Into<String>) -> Damage {
        Damage { file: file.into(), what: what.into() }
    }
}

impl VerifyReport {
    /// Whether no damage was found.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }
}

impl Engine {
    /// Checks the manifest, every table and every value file, and counts the entries in memtables.
    /// Damage is added to the report; any other error ends the verification.
    pub(crate) fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        self.env.check_caller()?;
        let lost_records = self.env.metrics.counters().log_records_lost;
        let mut report = VerifyReport { lost_records, ..VerifyReport::default() };
        // Takes the manifest lock, so that no rotation replaces the manifest that `CURRENT` names.
        let manifest = self.catalog.manifest.lock();
        // The store knows how long its manifest is, even if the file no longer shows it.
        let written = manifest.log.as_ref().map_or(0, |log| log.current().least_bytes);
        let read = read_current(&*self.env.storage).and_then(|number| match number {
            Some(current) => {
                let least_bytes = current.least_bytes.max(written);
                read_manifest(&*self.env.storage, Current { least_bytes, ..current }).map(drop)
            }
            None => Err(Error::corruption("CURRENT", 0, "the file is missing")),
        });
        report.note(read)?;
        report.note(self.verify_headers(&manifest))?;
        drop(manifest);
        let keyspaces = self.catalog.keyspaces.read().clone();
        for keyspace in keyspaces.values() {
            let view = keyspace.view.load_full();
            for memtable in view.memtables() {
                report.log_entries += entries_of(memtable);
            }
            let version = Arc::clone(&view.version);
            for handle in version.handles() {
                report.tables += 1;
                report.bytes += handle.meta().bytes;
                let entries = verify_table(handle);
                report.entries += entries.as_ref().copied().unwrap_or(0);
                report.note(entries.map(drop))?;
            }
            let values = keyspace.values.load_full();
            for store in values.all() {
                for group in &store.layout().groups {
                    let records = store.verify(group.segments.iter());
                    report.records += records.as_ref().copied().unwrap_or(0);
                    report.bytes += group.bytes();
                    report.note(records.map(drop))?;
                }
            }
            if !values.is_empty() {
                report
                    .note(verify_pointers(Keyspace::new(Arc::clone(self), Arc::clone(keyspace))))?;
            }
        }
        Ok(report)
    }
}

impl Engine {
    /// The tables of all trees.
    pub(super) fn table_ids(&self) -> BTreeSet<TableId> {
        let keyspaces = self.catalog.keyspaces.read().clone();
        let views = keyspaces.values().map(|keyspace| keyspace.view.load_full());
        views
            .flat_map(|view| view.version.handles().map(|one| one.meta().id).collect::<Vec<_>>())
            .collect()
    }

    /// Checks both copies of the headers of the manifest and of the log. If one copy is damaged,
    /// the file can still be read, but not if the other copy is damaged too.
    fn verify_headers(&self, manifest: &ManifestState) -> Result<()> {
        let number = manifest.current().unwrap_or(manifest.found).number;
        let log = self.committer.segment_numbers().into_iter();
        let log = log.map(|number| (segment_name(number), Category::Wal, LogKind::Wal));
        let own = (manifest_name(number), Category::Manifest, LogKind::Manifest);
        for (name, category, kind) in log.chain([own]) {
            let file = match self.env.storage.open(&name, category) {
                Ok(file) => file,
                // A flush has retired the segment meanwhile.
                Err(error) if error.is_not_found() && kind == LogKind::Wal => continue,
                Err(error) => return Err(error.into()),
            };
            let bytes = file.read_vec(0, file.len()?.min(HEADER_BYTES) as usize)?;
            if LogHeader::decode(&bytes, kind).is_ok() && !LogHeader::is_whole(&bytes, kind) {
                return Err(Error::corruption(
                    name,
                    0,
                    "one of two copies of the header is damaged",
                ));
            }
        }
        Ok(())
    }
}

impl VerifyReport {
    pub(super) fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::Corruption { file, offset, what }) => {
                self.damage.push(Damage { file, what: format!("byte {offset}: {what}") });
                Ok(())
            }
            Err(Error::Storage(error)) if error.is_not_found() => {
                let what = "the file is missing".to_string();
                let name = error.path.rsplit('/').next().unwrap_or(&error.path);
                let damage = Damage { file: name.to_string(), what };
                // The check of the tables and the check of the pointers may both find that a file
                // is missing.
                if !self.damage.contains(&damage) {
                    self.damage.push(damage);
                }
                Ok(())
            }
            other => other,
        }
    }
}

fn entries_of(memtable: &Arc<Memtable>) -> u64 {
    let mut iter = MemtableIter::new(Arc::clone(memtable));
    iter.seek_to_first();
    let mut count = 0;
    while iter.record().is_some() {
        count += 1;
        iter.next();
    }
    count
}

/// Follows the pointer of every visible version. The pointers of hidden versions may point to
/// nothing.
fn verify_pointers(keyspace: Keyspace) -> Result<()> {
    let options = ReadOptions::default().keys_only().fill_cache(false);
    let mut cursor = keyspace.cursor(options)?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        if !cursor.value_is_there()? {
            let what = format!("the value of key \"{}\" is gone", cursor.key().escape_ascii());
            return Err(Error::corruption("a value file", 0, what));
        }
        cursor.next()?;
    }
    Ok(())
}

/// Reads a whole table, and returns the number of its entries.
fn verify_table(handle: &TableHandle) -> Result<u64> {
    verify_entries(handle.reader()?, handle.file_meta(), &mut |_| Ok(()))
}

/// Reads a whole table. `passed` is called with the bytes of each entry, and may end the read.
pub(super) fn verify_entries(
    reader: &Arc<TableReader>,
    meta: &Table,
    passed: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<u64> {
    let mut iter = TableIter::new(Arc::clone(reader), Access::Sequential);
    iter.seek_to_first()?;
    let mut last: Option<(Vec<u8>, u64)> = None;
    let (mut entries, mut tombstones, mut range_deletes) = (0, 0, Vec::new());
    let mut expiries = SeenExpiries::default();
    while let Some(cursor) = iter.cursor().filter(|cursor| cursor.valid()) {
        let (key, trailer) = (cursor.key(), cursor.trailer());
        let bad = |what: &str| {
            reader.corrupt(0, &format!("{what} at key {:?}", key.escape_ascii().to_string()))
        };
        if last.as_ref().is_some_and(|(k, t)| compare(k, *t, key, trailer).is_ge()) {
            return Err(bad("entries are out of order"));
        }
        if !(*meta.min_key <= *key && *key <= *meta.max_key) {
            return Err(bad("entry is outside of the table's bounds"));
        }
        if !(meta.min_seq..=meta.max_seq).contains(&seq_of(trailer)) {
            return Err(bad("sequence number is outside of the table's bounds"));
        }
        let partition = reader.partition(reader.find_partition(key))?;
        let hash = filter::hash(key);
        if partition.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
            return Err(bad("the filter denies an entry"));
        }
        passed(key.len() + cursor.value().len())?;
        entries += 1;
        tombstones += u64::from(is_delete(trailer));
        if let Some(at_ms) = expiry_of(trailer, cursor.value()) {
            expiries.add(&meta.expiries, at_ms);
        }
        if is_range_delete(trailer) {
            range_deletes.push(range_delete(key, seq_of(trailer), cursor.value()));
        }
        last = Some((key.to_vec(), trailer));
        iter.next()?;
    }
    if entries != meta.entries || tombstones != meta.tombstones {
        return Err(reader.corrupt(0, "number of entries differs from what the manifest recorded"));
    }
    if range_deletes != reader.range_deletes()? {
        return Err(reader.corrupt(0, "range deletes differ from the list of them"));
    }
    if !expiries.agree_with(&meta.expiries) {
        return Err(reader.corrupt(0, "expiries differ from what the manifest recorded"));
    }
    Ok(entries)
}

/// The entries of a table that expire, counted by the steps that the manifest recorded.
#[derive(Default)]
struct SeenExpiries {
    /// For each step, the entries that expire by that step but after the previous one.
    by_step: [u64; MOST_STEPS],
    entries: u64,
    first_ms: Option<u64>,
}

impl SeenExpiries {
    fn add(&mut self, recorded: &Expiries, at_ms: u64) {
        self.first_ms = Some(self.first_ms.map_or(at_ms, |first_ms| first_ms.min(at_ms)));
        self.entries += 1;
        let step = recorded.steps().partition_point(|step| step.at_ms < at_ms);
        if let Some(count) = self.by_step.get_mut(step).filter(|_| at_ms <= recorded.last_ms) {
            *count += 1;
        }
    }

    /// Whether all entries are recorded, and none is recorded as expired before it expires.
    fn agree_with(&self, recorded: &Expiries) -> bool {
        let (mut seen, mut wanted) = (0, 0);
        let is_early = recorded.steps().iter().zip(self.by_step).any(|(step, count)| {
            (seen, wanted) = (seen + count, wanted + step.entries);
            seen < wanted
        });
        let ends = (self.entries, self.first_ms.unwrap_or_default());
        !is_early && seen == self.entries && ends == (recorded.entries, recorded.first_ms)
    }
}
