//! Looking at a store from the inside: metrics, verification, checkpoints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::partition::slices::{self, CellRule, Slices, slice_count};
use runstone_policy::plan::{Compaction, Plan};
use runstone_policy::policy::compaction_debt_bytes;
use runstone_policy::shape::Table;
use runstone_storage::Category;
use serde::Serialize;

use super::{Inner, KeyspaceInner, Snapshot, View};
use crate::base::error::{Error, Result};
use crate::base::event::check_outside;
use crate::base::key::{Kind, SeqNo, compare, kind_of, seq_of};
use crate::base::metrics::{IoCounters, MetricsSnapshot};
use crate::format::filter;
use crate::jobs::compaction::slices::{is_sliced, slice_inputs};
use crate::read::cursor::ReadOptions;
use crate::table::handle::TableHandle;
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::TableReader;
use crate::table::table_name;
use crate::tree::manifest::{Manifest, StoreState, read_current, read_manifest};
use crate::values::separation::ValueFiles;

/// What a verification found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Entries read.
    pub entries: u64,
    /// Records of value files read.
    pub records: u64,
    /// Bytes of those tables and records.
    pub bytes: u64,
    /// One line per damaged file.
    pub damage: Vec<Damage>,
}

/// A damaged file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// File name inside the store.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
}

/// Metadata of a live table, for reports.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TableDump {
    pub id: u64,
    pub level: u32,
    pub bytes: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub user_bytes: u64,
}

impl VerifyReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }
}

impl Inner {
    pub(crate) fn metrics_snapshot(&self) -> MetricsSnapshot {
        let counters = self.metrics.counters();
        let io: Vec<IoCounters> = Category::ALL
            .iter()
            .map(|category| {
                let counted = self.storage.counters().snapshot(*category);
                IoCounters {
                    category: category.name(),
                    written_bytes: counted.written_bytes,
                    read_bytes: counted.read_bytes,
                    writes: counted.writes,
                    reads: counted.reads,
                    syncs: counted.syncs,
                }
            })
            .collect();
        let written: u64 = io.iter().map(|io| io.written_bytes).sum();
        let mut table_bytes = 0;
        let mut table_entries = 0;
        let mut filter_bits = 0;
        let mut compaction_debt = 0;
        let keyspaces = self.keyspaces.read().clone();
        for keyspace in keyspaces.values() {
            let version = Arc::clone(&keyspace.view.load().version);
            for (_, table) in version.shape.tables() {
                table_bytes += table.bytes;
                table_entries += table.entries;
                filter_bits += table.filter_bits;
            }
            let options = keyspace.options.load();
            if let Ok(policy) = options.compaction_policy() {
                compaction_debt += compaction_debt_bytes(&version.shape, policy, &options.shape);
            }
        }
        let user_bytes = counters.user_bytes_written.max(1);
        let (table_file_bytes, peak_table_file_bytes) = self.tables.disk.now_and_peak();
        MetricsSnapshot {
            memory: self.cache.usage(),
            io,
            table_bytes,
            table_file_bytes,
            peak_table_file_bytes,
            table_entries,
            filter_bits,
            wal_bytes: self.commit.lock().wal.bytes(),
            write_amplification_permille: written.saturating_mul(1000) / user_bytes,
            pressure: self.throttle.report(),
            compaction_debt_bytes: compaction_debt,
            commit: self.metrics.commit_ns.percentiles(),
            get: self.metrics.get_ns.percentiles(),
            stall: self.metrics.stall_ns.percentiles(),
            sync: self.metrics.sync_ns.percentiles(),
            counters,
        }
    }

    /// Bytes of all value files.
    pub(crate) fn value_file_bytes(&self) -> u64 {
        let keyspaces = self.keyspaces.read();
        let values = keyspaces.values().map(|keyspace| keyspace.values.load_full());
        values.map(|values| values.all().map(|store| store.file_bytes()).sum::<u64>()).sum()
    }

    /// Checks the manifest and every table; damage is collected, other errors end the walk.
    pub(crate) fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        check_outside(self.opening)?;
        let mut report = VerifyReport::default();
        // Under the manifest lock, so that no rotation replaces what `CURRENT` names meanwhile.
        let manifest = self.manifest.lock();
        let read = read_current(&*self.storage).and_then(|number| match number {
            Some(current) => read_manifest(&*self.storage, current).map(drop),
            None => Err(Error::corruption("CURRENT", 0, "the file is missing")),
        });
        drop(manifest);
        report.note(read)?;
        let keyspaces = self.keyspaces.read().clone();
        for keyspace in keyspaces.values() {
            let version = Arc::clone(&keyspace.view.load().version);
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
                    let records = store.verify(&group.segments);
                    report.records += records.as_ref().copied().unwrap_or(0);
                    report.bytes += group.bytes();
                    report.note(records.map(drop))?;
                }
            }
            if !values.is_empty() {
                report.note(verify_pointers(super::Keyspace::new(
                    Arc::clone(self),
                    Arc::clone(keyspace),
                )))?;
            }
        }
        Ok(report)
    }

    /// Flushes, then links all tables into a new directory with a manifest of its own.
    pub(crate) fn checkpoint(self: &Arc<Self>, path: &Path) -> Result<()> {
        if self.options.read_only {
            // What the log holds is in memtables here, which only a writer can flush.
            let keyspaces = self.keyspaces.read();
            if keyspaces.values().any(|keyspace| !keyspace.view.load().active.is_empty()) {
                return Err(Error::ReadOnly);
            }
        }
        let target = self.storage.create_sibling(path)?;
        let (mut state, pinned) = match self.options.read_only {
            true => self.pin_state(SeqNo::MAX).unwrap_or_default(),
            false => self.pin_flushed_state()?,
        };
        for handle in pinned.iter().flat_map(|keyspace| keyspace.view.version.handles()) {
            let name = table_name(handle.meta().id);
            self.storage.link_into(&name, Category::Table, &*target)?;
        }
        // Value files are written in place: what the state names is copied. The state holds the
        // segments, so that their slots are not used again meanwhile.
        for (keyspace, described) in pinned.iter().zip(state.keyspaces.values()) {
            for layout in &described.values {
                if let Some(store) = keyspace.values.file(layout.number) {
                    store.copy_to(layout, &*target)?;
                }
            }
        }
        let number = state.next_file;
        state.next_file += 1;
        state.log_floor = state.next_file;
        state.log_start_seq = state.last_seq + 1;
        let mut seed = state.uid ^ number.rotate_left(32);
        let id = crate::base::random::next(&mut seed);
        Manifest::create(target, number, id, &state)?.switch_current()
    }
}

/// Lets newer memtables be flushed again, however the checkpoint ends.
struct Unlimited<'a>(&'a Inner);

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        self.0.flush_limit.store(u64::MAX, Release);
        self.0.wake_background();
    }
}

/// A keyspace's files, held.
struct Pinned {
    view: Arc<View>,
    values: Arc<ValueFiles>,
}

impl Inner {
    /// What the manifest says now, with the tables held. `None` if something up to `last_seq` is
    /// not in tables and can be: the drop of a keyspace has failed.
    fn pin_state(&self, last_seq: SeqNo) -> Option<(StoreState, Vec<Pinned>)> {
        let manifest = self.manifest.lock();
        let mut keyspaces: BTreeMap<u32, Arc<KeyspaceInner>> = self.keyspaces.read().clone();
        let is_flushed = |keyspace: &KeyspaceInner| keyspace.is_flushed(last_seq);
        // Nobody flushes what one holds that is being dropped.
        keyspaces.retain(|_, keyspace| is_flushed(keyspace) || !keyspace.dropped.load(Acquire));
        if !self.options.read_only && !keyspaces.values().all(|keyspace| is_flushed(keyspace)) {
            return None;
        }
        let pin = |keyspace: &Arc<KeyspaceInner>| Pinned {
            view: keyspace.view.load_full(),
            values: keyspace.values.load_full(),
        };
        let pinned = keyspaces.values().map(pin).collect();
        let mut state = self.store_state(&manifest);
        state.keyspaces.retain(|id, _| keyspaces.contains_key(id));
        Some((state, pinned))
    }

    /// The same, of one moment for all keyspaces, with everything before it in tables: memtables
    /// are replaced together, and no newer one is flushed until the state is taken. Else a batch
    /// over two keyspaces could be in the copy by half (P3).
    fn pin_flushed_state(self: &Arc<Self>) -> Result<(StoreState, Vec<Pinned>)> {
        self.check_writable()?;
        let _one_at_a_time = self.checkpointing.lock();
        // Until the moment is known, no flush begins; one that runs takes an older memtable. A
        // flush that finds no room blames the snapshot only where no checkpoint waits.
        self.flush_limit.store(0, Release);
        let _unlimited = Unlimited(self);
        // A collection, which a flush may begin, moves values and writes pointers that come after
        // the moment. Those of the copy lead to the old places, which stay for a snapshot.
        let _old_values = Snapshot::new(Arc::clone(self));
        let (keyspaces, last_seq) = self.rotate_all();
        reached!(MemtablesReplaced);
        self.flush_limit.store(last_seq, Release);
        // Nobody flushes what is being dropped; it may yet stay.
        let is_settled = |keyspace: &Arc<KeyspaceInner>| {
            keyspace.is_flushed(last_seq) || keyspace.dropped.load(Acquire)
        };
        loop {
            self.wait_until(|| keyspaces.iter().all(is_settled))?;
            reached!(FlushesAwaited);
            if let Some(pinned) = self.pin_state(last_seq) {
                return Ok(pinned);
            }
        }
    }

    /// Replaces the memtables of all keyspaces that exist at one moment; returns them and the last
    /// sequence number before it.
    fn rotate_all(&self) -> (Vec<Arc<KeyspaceInner>>, SeqNo) {
        loop {
            let listed = self.keyspaces.read().clone();
            reached!(KeyspacesListed);
            let keyspaces: Vec<_> = listed.values().cloned().collect();
            let last_seq = self.rotate(&keyspaces, |_| true);
            // One made since may have been written to before that moment.
            if self.keyspaces.read().keys().eq(listed.keys()) {
                return (keyspaces, last_seq);
            }
        }
    }
}

impl VerifyReport {
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::Corruption { file, offset, what }) => {
                self.damage.push(Damage { file, what: format!("byte {offset}: {what}") });
                Ok(())
            }
            Err(Error::Storage(error)) if error.is_not_found() => {
                let what = "the file is missing".to_string();
                let name = error.path.rsplit('/').next().unwrap_or(&error.path);
                let damage = Damage { file: name.to_string(), what };
                // The walks over tables and over pointers may both meet it.
                if !self.damage.contains(&damage) {
                    self.damage.push(damage);
                }
                Ok(())
            }
            other => other,
        }
    }
}

/// Follows the pointer of every visible version; others may lead nowhere.
fn verify_pointers(keyspace: super::Keyspace) -> Result<()> {
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

/// Reads a whole table; returns its entries.
fn verify_table(handle: &TableHandle) -> Result<u64> {
    verify_entries(handle.reader()?, handle.file_meta())
}

fn verify_entries(reader: &Arc<TableReader>, meta: &Table) -> Result<u64> {
    let mut iter = TableIter::new(Arc::clone(reader), Access::Sequential);
    iter.seek_to_first()?;
    let mut last: Option<(Vec<u8>, u64)> = None;
    let (mut entries, mut tombstones) = (0, 0);
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
        entries += 1;
        tombstones += u64::from(kind_of(trailer) == Kind::Delete as u8);
        last = Some((key.to_vec(), trailer));
        iter.next()?;
    }
    if entries != meta.entries || tombstones != meta.tombstones {
        return Err(reader.corrupt(0, "number of entries differs from what the manifest recorded"));
    }
    Ok(entries)
}

impl super::Keyspace {
    /// How the compactions of a plan would fall into cells and into parts, if `cores` were idle;
    /// one answer per compaction, in the plan's order. A compact that is not planned by cells has
    /// no cut and no part. Reads the indexes of the inputs.
    pub fn compaction_slices(&self, plan: &Plan, cores: usize) -> Result<Vec<Slices>> {
        let version = Arc::clone(&self.inner.view.load().version);
        let options = self.inner.options.load();
        let (mode, install) = (options.sub_compactions, options.compaction_install);
        let sliced = |compaction: &Compaction| {
            let inputs = slice_inputs(&version, compaction)?;
            let bytes: u64 = inputs.iter().map(|input| input.table.bytes).sum();
            if !is_sliced(mode, compaction.cut, bytes) {
                return Ok(Slices::default());
            }
            let prefixer = self.inner.prefixer.lock().clone();
            let rule = CellRule::of(compaction, prefixer.as_ref());
            let usual_bytes = rule.usual_bytes();
            let threads = slice_count(cores, cores, bytes, usual_bytes);
            let count = self.store.parts_wanted(install, bytes, usual_bytes, threads);
            Ok(slices::sub_compactions(mode, &inputs, rule, count))
        };
        plan.compactions.iter().map(sliced).collect()
    }

    /// Every live table with its level, shallow levels first.
    pub fn tables(&self) -> Result<Vec<TableDump>> {
        let view = self.inner.view.load();
        let version = &view.version;
        version
            .shape
            .tables()
            .map(|(level, table)| {
                let handle = version.handle(table.id);
                let user_bytes = match handle {
                    Some(handle) => handle.reader()?.properties().user_bytes,
                    None => 0,
                };
                Ok(TableDump {
                    id: table.id,
                    level,
                    bytes: table.bytes,
                    entries: table.entries,
                    tombstones: table.tombstones,
                    user_bytes,
                })
            })
            .collect()
    }

    /// Bytes that the store takes on disk now: tables, values, log and manifest.
    pub fn store_disk_bytes(&self) -> u64 {
        let log = self.store.commit.lock().wal.bytes();
        let manifest = self.store.manifest.lock().log.as_ref().map_or(0, Manifest::bytes);
        let tables: u64 = self
            .store
            .keyspaces
            .read()
            .values()
            .map(|keyspace| keyspace.view.load().version.shape.bytes())
            .sum();
        tables + self.store.value_file_bytes() + log + manifest
    }

    /// Sequence number of the newest visible write.
    pub fn visible_seq(&self) -> u64 {
        self.store.publisher.visible()
    }
}
