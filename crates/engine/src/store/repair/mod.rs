//! Makes a new store out of the contents of a damaged one. The damaged store is only read.
//!
//! 1. If the store opens, and all of it verifies, there is nothing to do.
//! 2. `basis`: what manifests say. They decide which tables are in force, as far as they can be
//!    read.
//! 3. `logs`: the records of the log, before and after damage, are written to tables of their own
//!    (`scratch`).
//! 4. `tables`: which tables are used, for which keyspace; `salvage` reads a table past its damage.
//! 5. `decide`: whether the tables of a keyspace are carried over as they are (`check`, `carry`).
//! 6. If not, `merge`: all versions of a key by their numbers; `values`, `slots`: what pointers
//!    lead to. Values become part of the entries. The new store separates them again as it
//!    compacts.
//! 7. `output`: the new tables, then a manifest, then `CURRENT`. An interrupted repair leaves a
//!    directory that is marked as unfinished ([`super::unfinished`]).
//!
//! The [`report`] lists what may be wrong. `docs/design/repair.md` describes the hazards.

mod basis;
mod carry;
mod check;
mod decide;
mod logs;
mod merge;
mod output;
pub mod report;
mod salvage;
mod scratch;
mod slots;
mod tables;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::{Shape, TableId};
use runstone_random::{Random, mix64};
use runstone_storage::{Access, LockMode, Operation, PosixStorage, Storage};

use self::basis::Basis;
use self::carry::{Carried, first_free_file, whole_state};
use self::logs::{FoundLog, LogScan};
use self::merge::{Input, Merge, NO_ASIDE, Purpose};
use self::output::{Output, tree_of};
use self::report::{Doubt, DoubtReason, RepairBasis, RepairReport};
use self::salvage::Salvage;
use self::scratch::Scratch;
use self::tables::FoundTables;
use self::values::FoundValues;
use super::open::{open_on, take_lock};
use super::unfinished::{Unfinished, check_finished};
use super::verify::Damage;
use super::{DEFAULT_KEYSPACE, Store};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::log::number_in;
use crate::options::store::{Background, KeyspaceOptions, Options};
use crate::ranges::RangeDeletes;
use crate::table::builder::TableLayout;
use crate::table::handle::TableContext;
use crate::table::reader::TableReader;
use crate::tree::history::History;
use crate::tree::manifest::{CURRENT, KeyspaceState, Manifest, StoreState};
use crate::wal::segments::lost_number;

/// The options of a repair.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// The options with which the damaged store is opened to see whether it is healthy: what
    /// programs registered in it, such as merge operators and policies, and the memory budget.
    pub store: Options,
    /// Whether writes of `lost-NNNNNN.wal` are restored, for keys that were not written since.
    /// Writes before them are missing.
    pub lost_log: bool,
}

impl RepairOptions {
    /// Sets [`RepairOptions::store`].
    pub fn store(self, store: Options) -> RepairOptions {
        RepairOptions { store, ..self }
    }

    /// Sets [`RepairOptions::lost_log`].
    pub fn lost_log(self, lost_log: bool) -> RepairOptions {
        RepairOptions { lost_log, ..self }
    }
}

/// Where the new store is made.
struct Target<'a> {
    context: &'a TableContext,
    next_file: &'a mut u64,
}

/// The sources that were found for a keyspace.
struct Sources {
    id: KeyspaceId,
    tables: FoundTables,
    /// The entries of the log that are not in the tables.
    log: Vec<Input>,
    log_ranges: Vec<RangeDelete>,
    has_logged_pointers: bool,
    /// Writes of a log that was kept aside.
    aside: Vec<Input>,
}

impl Sources {
    /// The sources of each keyspace, by id.
    fn of_all(
        basis: &Basis,
        (log, scratch): (&FoundLog, &Scratch),
        (lost, aside): (&FoundLog, &Scratch),
        mut tables: BTreeMap<KeyspaceId, FoundTables>,
        passing: &Arc<TableContext>,
    ) -> Vec<Sources> {
        let of_logs = log.keyspaces.iter().chain(&lost.keyspaces);
        let ids: BTreeSet<KeyspaceId> =
            basis.keyspaces.keys().chain(of_logs).chain(tables.keys()).copied().collect();
        let of_one = |id: KeyspaceId| Sources {
            id,
            tables: tables.remove(&id).unwrap_or_default(),
            log: scratch_inputs(passing, scratch, id, false),
            log_ranges: log.range_deletes.get(&id).cloned().unwrap_or_default(),
            has_logged_pointers: log.with_pointers.contains(&id),
            aside: scratch_inputs(passing, aside, id, true),
        };
        ids.into_iter().map(of_one).collect()
    }

    fn inputs(&self) -> Vec<&Input> {
        self.tables.inputs.iter().chain(&self.log).chain(&self.aside).collect()
    }

    fn range_deletes(&self) -> impl Iterator<Item = RangeDelete> {
        let of_tables = self.tables.inputs.iter().flat_map(|input| &input.range_deletes);
        of_tables.chain(&self.log_ranges).cloned()
    }

    /// The smallest number of the log's writes.
    fn first_logged(&self) -> Option<SeqNo> {
        let entries = self.log.iter().map(|input| input.numbers.0);
        entries.chain(self.log_ranges.iter().map(|range| range.seq)).min()
    }
}

/// A repair under way.
struct Repairing {
    values: FoundValues,
    report: RepairReport,
    /// The losses in the report, each with file and reason.
    told: BTreeSet<(String, String)>,
    last_seq: SeqNo,
}

impl Repairing {
    /// Reports damage, unless it was reported before. There may be 100,000 tables, and all may be
    /// lost.
    fn lose(&mut self, file: &str, what: impl Into<String>) {
        let what = what.into();
        if self.told.insert((file.to_string(), what.clone())) {
            self.report.lost.push(Damage::new(file, what));
        }
    }

    /// Doubts all keys of one keyspace, or of all keyspaces.
    fn doubt_all(&mut self, keyspace: Option<String>, reason: DoubtReason, what: String) {
        let (from, to, numbers) = (Vec::new(), None, None);
        self.report.doubts.push(Doubt { keyspace, from, to, numbers, reason, what });
    }
}

/// Repairs the store in a directory.
pub(super) fn repair(from: &Path, to: &Path, options: RepairOptions) -> Result<RepairReport> {
    let source = PosixStorage::open(from, Access::ReadOnly).map_err(|error| {
        if error.is_not_found() {
            return Error::NotAStore { path: from.display().to_string() };
        }
        error.into()
    })?;
    let source: Arc<dyn Storage> = Arc::new(source);
    let target = || Ok(source.create_sibling(to)?);
    repair_on(&source, target, options)
}

/// Repairs the store on a storage. `target` makes the storage of the new store.
pub(super) fn repair_on(
    source: &Arc<dyn Storage>,
    target: impl FnOnce() -> Result<Arc<dyn Storage>>,
    options: RepairOptions,
) -> Result<RepairReport> {
    check_finished(&**source)?;
    let files = source.list()?;
    if !files.iter().any(|file| is_of_store(&file.name)) {
        return Err(Error::NotAStore { path: source.location() });
    }
    let has_lost_log = files.iter().any(|file| lost_number(&file.name).is_some());
    let verified = match verify(source, options.store.clone())? {
        Verified::Whole if !(options.lost_log && has_lost_log) => {
            return Ok(RepairReport { is_healthy: true, ..RepairReport::default() });
        }
        Verified::Whole => BTreeSet::new(),
        Verified::Damaged(verified) => verified,
    };
    let _lock = take_lock(&**source, LockMode::Shared)?;
    let basis = Basis::read(&**source)?;
    let target = target()?;
    let store = Unfinished::begin(&target)?;
    let lost_log = options.lost_log && has_lost_log;
    let mut report = store.end(rebuild(source, &target, basis, (lost_log, &verified)))?;
    if has_lost_log && !lost_log {
        let what = "writes that an earlier recovery kept aside in lost-NNNNNN.wal were not used";
        report.notes.push(what.to_string());
    }
    Ok(report)
}

/// The result of opening and verifying the store.
enum Verified {
    Whole,
    /// The store is not whole, but these tables are, and they stay whole, because no store changes
    /// a table.
    Damaged(BTreeSet<TableId>),
}

/// Opens the store, and verifies all of it.
fn verify(source: &Arc<dyn Storage>, options: Options) -> Result<Verified> {
    let options = Options {
        read_only: true,
        create_if_missing: false,
        background: Background::Manual,
        keyspace: None,
        ..options
    };
    let mut tables = BTreeSet::new();
    let verified = open_on(Arc::clone(source), options, None).and_then(|store: Store| {
        tables = store.inner.table_ids();
        let report = store.verify();
        store.close()?;
        report
    });
    match verified {
        Ok(report) if report.is_clean() => Ok(Verified::Whole),
        Ok(report) => {
            for damage in &report.damage {
                match number_in(&damage.file, "table") {
                    Some(id) => _ = tables.remove(&id),
                    None if is_of_store(&damage.file) => {}
                    // The damage does not name a file.
                    None => tables.clear(),
                }
            }
            Ok(Verified::Damaged(tables))
        }
        Err(Error::Corruption { .. } | Error::NotAStore { .. } | Error::ForeignFiles { .. }) => {
            Ok(Verified::Damaged(BTreeSet::new()))
        }
        // A file is missing, or a sector cannot be read.
        Err(Error::Storage(error)) if error.operation != Operation::Lock => {
            Ok(Verified::Damaged(BTreeSet::new()))
        }
        Err(other) => Err(other),
    }
}

/// Whether a store uses such a file name.
fn is_of_store(name: &str) -> bool {
    let numbered = ["manifest", "table", "wal", "values"];
    name == CURRENT || numbered.iter().any(|extension| number_in(name, extension).is_some())
}

/// Runs steps 3 to 7.
fn rebuild(
    source: &Arc<dyn Storage>,
    target: &Arc<dyn Storage>,
    mut basis: Basis,
    (lost_log, verified): (bool, &BTreeSet<TableId>),
) -> Result<RepairReport> {
    let mut random = Random::from_entropy();
    let cache = Arc::new(Cache::new(0));
    let context_of = |uid| Arc::new(TableContext::new(Arc::clone(target), Arc::clone(&cache), uid));
    let passing = context_of(random.draw());
    let values = FoundValues::open(source, &basis)?;
    let mut scratch = Scratch::new(Arc::clone(&passing), first_free_file(&**source, &basis)?);
    let log = LogScan::new(&**source, &basis, &values, &mut scratch).read_log()?;
    let mut aside = Scratch::new(Arc::clone(&passing), scratch.next_file());
    let lost = match lost_log {
        true => LogScan::new(&**source, &basis, &values, &mut aside).read_lost()?,
        false => FoundLog::default(),
    };
    settle_basis(&mut basis, &log);
    let (report, told) = (RepairReport::default(), BTreeSet::new());
    let mut repairing = Repairing { values, report, told, last_seq: log.last_seq };
    repairing.report.basis = basis.kind;
    repairing.note_basis(&basis, &log, &lost);
    let tables = tables::find(&mut repairing, source, &basis)?;
    repairing.note_gaps(&basis, &log, &tables);
    let all = Sources::of_all(&basis, (&log, &scratch), (&lost, &aside), tables, &passing);
    let ways = repairing.decide_all((&**source, verified), &basis, &all)?;
    // Tables that are carried over keep their numbers and the store's id.
    let is_carried = ways.iter().any(|way| way.is_some());
    let uid = basis.uid.filter(|_| is_carried).unwrap_or_else(|| random.draw());
    let context = context_of(uid);
    let mut next_file = aside.next_file();
    let mut keyspaces = BTreeMap::new();
    for (sources, way) in all.iter().zip(ways) {
        let mut to = Target { context: &context, next_file: &mut next_file };
        let made = match way {
            Some(carried) => repairing.carry(&**source, carried, sources, &mut to)?,
            None => repairing.write_merged(&basis, sources, &lost, &mut to)?,
        };
        keyspaces.insert(sources.id, made);
    }
    scratch.remove();
    aside.remove();
    repairing.report.last_seq = repairing.last_seq.max(lost.last_seq);
    let state = StoreState {
        uid,
        next_file: next_file + 1,
        last_seq: repairing.report.last_seq,
        log_floor: next_file + 1,
        log_start_seq: repairing.report.last_seq + 1,
        log_synced_seq: 0,
        next_keyspace: keyspaces.keys().max().map_or(1, |id| id + 1).max(basis.next_keyspace),
        history: History::first(random.draw()),
        has_no_log: false,
        keyspaces,
    };
    target.sync_dir()?;
    let id = mix64(random.draw() ^ next_file);
    Manifest::create(Arc::clone(target), next_file, id, &state)?.switch_current()?;
    Ok(repairing.report)
}

/// The log can show that the manifest lacks an edit, in three ways. A record says so. A record
/// writes to a keyspace that no edit has made. Or the log begins late and there are tables that the
/// manifest does not name: a flush has written them, and has moved the beginning of the log.
fn settle_basis(basis: &mut Basis, log: &FoundLog) {
    if basis.kind != RepairBasis::Manifest {
        return;
    }
    let is_flushed = log.begins_late && !basis.knows_all;
    if log.manifest > basis.found || log.has_new_keyspace || is_flushed {
        basis.kind = RepairBasis::PartOfManifest;
        let name = crate::tree::manifest::manifest_name(basis.found.number);
        basis.lost.push((name, "the log shows that its end is missing".to_string()));
    }
}

/// The tables of a log's entries.
fn scratch_inputs(
    context: &Arc<TableContext>,
    scratch: &Scratch,
    keyspace: KeyspaceId,
    is_aside: bool,
) -> Vec<Input> {
    let tables = scratch.tables.get(&keyspace).into_iter().flatten();
    tables
        .map(|table| {
            let (own, context) = (Arc::clone(table), Arc::clone(context));
            let open = move || {
                let (uid, cache) = (context.table_uid(own.id), Arc::clone(&context.cache));
                let reader = TableReader::open(&*context.storage, &own, uid, cache)?;
                Ok(Salvage::new(Arc::new(reader), b""))
            };
            Input {
                table: None,
                name: "the log".to_string(),
                range_deletes: Vec::new(),
                min_key: table.min_key.to_vec(),
                numbers: (table.min_seq, table.max_seq),
                open: Box::new(open),
                is_aside,
            }
        })
        .collect()
}

impl Repairing {
    /// Notes what the basis and the log lack.
    fn note_basis(&mut self, basis: &Basis, log: &FoundLog, lost: &FoundLog) {
        let mut values = std::mem::take(&mut self.values.lost);
        if basis.kind == RepairBasis::Manifest {
            values.append(&mut self.values.unlike_layout);
        }
        let all = basis.lost.iter().chain(&log.lost).chain(&lost.lost).chain(&values);
        let all: Vec<(String, String)> = all.cloned().collect();
        all.into_iter().for_each(|(file, what)| self.lose(&file, what));
        self.report.log_records = log.records + lost.records;
        self.values.is_exact = basis.kind == RepairBasis::Manifest;
        for (keyspace, key) in &log.without_values {
            self.report.doubts.push(Doubt {
                keyspace: Some(basis.name_of(*keyspace)),
                from: key.clone(),
                to: Some(key.clone()),
                numbers: None,
                reason: DoubtReason::MayBeOld,
                what: "a write of the log lacks its value".to_string(),
            });
        }
        for (keyspace, ranges) in &lost.range_deletes {
            for range in ranges {
                self.report.doubts.push(Doubt {
                    keyspace: Some(basis.name_of(*keyspace)),
                    from: range.start.to_vec(),
                    to: range.end.as_ref().map(|end| end.to_vec()),
                    numbers: Some((range.seq, range.seq)),
                    reason: DoubtReason::FromLostLog,
                    what: "a range delete of a log that was kept aside was not done".to_string(),
                });
            }
        }
    }

    /// Doubts the keys that the writes missing from the log may have changed.
    fn note_gaps(
        &mut self,
        basis: &Basis,
        log: &FoundLog,
        tables: &BTreeMap<KeyspaceId, FoundTables>,
    ) {
        let is_whole = basis.kind == RepairBasis::Manifest;
        // Sorted only once: there may be many gaps and 100,000 tables.
        let inputs = tables.values().flat_map(|found| &found.inputs).filter(|_| !is_whole);
        let covered = covered(inputs.map(|input| input.numbers).collect());
        for (first, last) in log.gaps.iter().copied() {
            if is_covered((first, last), &covered) {
                continue;
            }
            let what = format!("the log lacks the writes {first} to {last}");
            if is_whole {
                self.lose("the log", what.clone());
            }
            let flushed = |id: &KeyspaceId| basis.keyspaces[id].flushed_seq;
            let names = basis.keyspaces.keys().filter(|id| flushed(id) < last);
            let names: Vec<Option<String>> = match is_whole {
                true => names.map(|id| Some(basis.name_of(*id))).collect(),
                false => vec![None],
            };
            for keyspace in names {
                self.report.doubts.push(Doubt {
                    keyspace,
                    from: Vec::new(),
                    to: None,
                    numbers: Some((first, last)),
                    reason: DoubtReason::MayBeOld,
                    what: what.clone(),
                });
            }
        }
    }

    /// Decides for each keyspace whether its tables are carried over. `None`: they are merged.
    fn decide_all(
        &mut self,
        source: (&dyn Storage, &BTreeSet<TableId>),
        basis: &Basis,
        all: &[Sources],
    ) -> Result<Vec<Option<Carried>>> {
        let state = whole_state(source.0, basis);
        let mut ways = Vec::new();
        for sources in all {
            let own = state.as_ref().and_then(|state| state.keyspaces.get(&sources.id));
            let way = self.decide(source, basis, own, sources)?;
            if let Err(why) = &way {
                let keyspace = basis.name_of(sources.id);
                tracing::info!(keyspace, ?why, "all tables of a keyspace are merged");
            }
            ways.push(way.ok());
        }
        Ok(ways)
    }

    /// Merges all sources of a keyspace into new tables.
    fn write_merged(
        &mut self,
        basis: &Basis,
        sources: &Sources,
        lost: &FoundLog,
        to: &mut Target<'_>,
    ) -> Result<KeyspaceState> {
        let name = basis.name_of(sources.id);
        let text = match basis.keyspaces.get(&sources.id).and_then(|known| known.named.as_ref()) {
            Some((_, options)) => options.clone(),
            None => {
                let id = sources.id;
                self.report.notes.push(format!(
                    "name and options of keyspace {id} are lost: it is {name:?}, with the defaults"
                ));
                KeyspaceOptions::default().to_toml()
            }
        };
        let options = KeyspaceOptions::from_toml(&text).unwrap_or_default();
        let ranges = RangeDeletes::of(sources.range_deletes().map(Arc::new).collect());
        let inputs = sources.inputs();
        let has_tables = !inputs.is_empty();
        let mut merge = Merge::new(&name, &ranges, inputs, Purpose::All);
        merge.aside_from = if lost.records > 0 { lost.from_seq } else { NO_ASIDE };
        // The tables get the layout of the deepest level, because most entries stay there.
        let layout = TableLayout::of_level(&options, &Shape::default(), Shape::MAX_LEVELS - 1);
        let mut output = Output::new(to.context, to.next_file, layout.in_keyspace(sources.id));
        merge.run(self, |key, trailer, value| output.add(key, trailer, value))?;
        let (has_operands, duplicates) = (merge.has_operands, merge.duplicates);
        let tables = output.finish()?;
        self.report.bytes += tables.iter().map(|table| table.bytes).sum::<u64>();
        self.report.entries += tables.iter().map(|table| table.entries).sum::<u64>();
        if basis.kind != RepairBasis::Manifest && has_tables && !seeded!(RepairTrustsTables) {
            self.doubt_tables(&name, has_operands, duplicates);
        }
        self.report.keyspaces.push(name.clone());
        let (flushed_seq, shape) = (self.last_seq, tree_of(&tables, &options)?);
        Ok(KeyspaceState { flushed_seq, shape, ..KeyspaceState::new(name, text) })
    }
}

impl Repairing {
    /// Doubts a keyspace if no manifest says which of its tables are in force.
    fn doubt_tables(&mut self, name: &str, has_operands: bool, duplicates: u64) {
        let what = "no manifest says which tables are in force: one that was compacted already \
                    brings back what was deleted since";
        self.doubt_all(Some(name.to_string()), DoubtReason::MayBeBack, what.to_string());
        if has_operands {
            let what = "an operand and a value that it is part of may both be there".to_string();
            self.doubt_all(Some(name.to_string()), DoubtReason::OperandsMayRepeat, what);
        }
        if duplicates > 0 {
            self.report.notes.push(format!(
                "{duplicates} entries of keyspace {name:?} lie in two tables each: at least one of \
                 them was compacted already"
            ));
        }
    }
}

/// Joins the number ranges of tables, first and last, into stretches in order. Ranges that touch
/// are one stretch.
fn covered(mut numbers: Vec<(SeqNo, SeqNo)>) -> Vec<(SeqNo, SeqNo)> {
    numbers.sort_unstable();
    let mut covered: Vec<(SeqNo, SeqNo)> = Vec::new();
    for (from, to) in numbers {
        match covered.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => covered.push((from, to)),
        }
    }
    covered
}

/// Whether tables have writes around all of these numbers: if so, flushes have moved the beginning
/// of the log since the manifest's last readable edit.
fn is_covered((first, last): (SeqNo, SeqNo), covered: &[(SeqNo, SeqNo)]) -> bool {
    let at = covered.partition_point(|(from, _)| *from <= first);
    at > 0 && last <= covered[at - 1].1
}

impl Basis {
    /// The name of a keyspace. A keyspace whose name is lost is named after its id.
    fn name_of(&self, id: KeyspaceId) -> String {
        let known = self.keyspaces.get(&id).and_then(|known| known.named.as_ref());
        match known {
            Some((name, _)) => name.clone(),
            None if id == 0 => DEFAULT_KEYSPACE.to_string(),
            None => format!("keyspace-{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_meet_cover_what_lies_across_them() {
        let covered = covered(vec![(20, 25), (1, 4), (3, 9), (10, 12), (21, 22)]);
        assert_eq!(covered, [(1, 12), (20, 25)]);
        let of = |first, last| is_covered((first, last), &covered);
        assert!(of(1, 12) && of(9, 10) && of(20, 20) && of(22, 25));
        assert!(!of(12, 13) && !of(13, 19) && !of(9, 21) && !of(19, 20) && !of(25, 26));
        assert!(!is_covered((1, 1), &[]));
    }
}
