//! What the manifests say about the store: its keyspaces, its tables, where the log begins.
//!
//! The levels do not matter to a repair that merges all versions by their numbers. So the state is
//! flat, and an edit after a damaged one can be applied too: what it removes is certainly obsolete,
//! and what it places is in force, whatever the lost edit did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::shape::{Edit, Shape, Table};
use runstone_storage::Storage;

use super::report::RepairBasis;
use crate::error::{Error, Result};
use crate::keys::codec::Reader;
use crate::keys::{KeyspaceId, SeqNo};
use crate::log::{Next, number_in};
use crate::tree::manifest::{Current, manifest_name, open_manifest, read_current};
use crate::tree::record::{self, Change};
use crate::values::layout::Layout;

/// A keyspace, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct KnownKeyspace {
    /// The name and the options, if a manifest has them.
    pub(super) named: Option<(String, String)>,
    /// All writes up to this number are in tables.
    pub(super) flushed_seq: SeqNo,
    pub(super) values: Vec<Layout>,
}

/// A table that a manifest names.
#[derive(Clone, Debug)]
pub(super) struct KnownTable {
    pub(super) keyspace: KeyspaceId,
    /// The table as the tree shows it: a trimmed table begins at its `min_key`.
    pub(super) meta: Arc<Table>,
}

/// What is known about the store.
#[derive(Debug, Default)]
pub(super) struct Basis {
    pub(super) kind: RepairBasis,
    /// The store's uid, if a manifest has it.
    pub(super) uid: Option<u64>,
    pub(super) keyspaces: BTreeMap<KeyspaceId, KnownKeyspace>,
    pub(super) tables: BTreeMap<u64, KnownTable>,
    /// The ids of `tables` by keyspace: there may be 100,000 of both.
    own: BTreeMap<KeyspaceId, BTreeSet<u64>>,
    /// Tables that were removed from the tree.
    pub(super) gone: BTreeSet<u64>,
    /// Every keyspace that was ever made has a smaller id; 0 if that is not known.
    pub(super) next_keyspace: KeyspaceId,
    pub(super) last_seq: SeqNo,
    /// Files of the store have smaller numbers; 0 if that is not known.
    pub(super) next_file: u64,
    /// The first segment of the log, and the number of its first record; zeros if not known.
    pub(super) log_floor: u64,
    pub(super) log_start_seq: SeqNo,
    /// Everything up to this number was durable.
    pub(super) synced_seq: SeqNo,
    /// The manifest, and how far it could be read.
    pub(super) found: Current,
    /// Whether the manifest names, or named, every table of the directory.
    pub(super) knows_all: bool,
    /// What is wrong with the manifests.
    pub(super) lost: Vec<(String, String)>,
}

impl Basis {
    /// Reads the manifests of the directory, as far as they can be read.
    ///
    /// # Errors
    /// If the files belong to another database, or to a newer release.
    pub(super) fn read(storage: &dyn Storage) -> Result<Basis> {
        let mut lost = Vec::new();
        let current = noted(read_current(storage), &mut lost)?.flatten();
        if current.is_none() && lost.is_empty() {
            lost.push(("CURRENT".to_string(), "the file is missing".to_string()));
        }
        let mut numbers: Vec<u64> =
            storage.list()?.iter().filter_map(|file| number_in(&file.name, "manifest")).collect();
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        if let Some(current) = current {
            // A newer manifest may have been made, but is not in force.
            numbers.retain(|number| *number < current.number);
            numbers.insert(0, current.number);
        }
        for (tries, number) in numbers.into_iter().enumerate() {
            let found = noted(Basis::read_one(storage, number), &mut lost)?;
            let Some((mut basis, is_whole)) = found else { continue };
            let least = current.filter(|current| current.number == number);
            let least_bytes = least.map_or(0, |current| current.least_bytes);
            let is_short = basis.found.least_bytes < least_bytes;
            if is_short {
                let what = format!("{least_bytes} bytes were written");
                lost.push((manifest_name(number), what));
            }
            let is_whole = is_whole && !is_short && tries == 0;
            // The end of the manifest may be missing nevertheless: then it does not know the newest
            // tables, and the tables that these replaced are gone. If there is a `CURRENT`, unknown
            // tables alone are no evidence of that: a crash leaves such tables too.
            let (knows_all, has_all) = basis.compare(storage)?;
            basis.knows_all = knows_all;
            let is_whole = is_whole && (knows_all || has_all && current.is_some());
            basis.kind = match is_whole {
                true => RepairBasis::Manifest,
                false => RepairBasis::PartOfManifest,
            };
            basis.lost.extend(lost);
            return Ok(basis);
        }
        Ok(Basis { lost, ..Basis::default() })
    }

    /// Whether the manifest knows every table of the directory, and whether the directory has every
    /// table in force.
    fn compare(&self, storage: &dyn Storage) -> Result<(bool, bool)> {
        let files = storage.list()?;
        let tables: BTreeSet<u64> =
            files.iter().filter_map(|file| number_in(&file.name, "table")).collect();
        let is_known = |id: &u64| self.tables.contains_key(id) || self.gone.contains(id);
        Ok((tables.iter().all(is_known), self.tables.keys().all(|id| tables.contains(id))))
    }

    /// Reads one manifest. Returns it, and whether nothing in it is missing. A torn last edit was
    /// never acknowledged, so it is not missing.
    fn read_one(storage: &dyn Storage, number: u64) -> Result<(Basis, bool)> {
        let name = manifest_name(number);
        let mut reader = open_manifest(storage, number)?;
        let mut basis = Basis::default();
        let mut is_whole = true;
        loop {
            let at = match reader.next()? {
                Next::Record { bytes, .. } => {
                    is_whole &= basis.apply_record(&bytes);
                    continue;
                }
                Next::End { offset } => offset,
            };
            basis.found = Current::at(number, at);
            let mut is_proven = false;
            reader.scan_after(at, |_, bytes| {
                is_proven |= Reader::new(bytes).take_varint().is_ok_and(|synced| synced > at);
            })?;
            if !is_proven {
                break;
            }
            is_whole = false;
            basis.lost.push((name.clone(), format!("byte {at}: a record is damaged")));
            if reader.pass_gap(at)?.is_none() {
                break;
            }
        }
        match basis.uid {
            Some(_) => Ok((basis, is_whole)),
            None => Err(Error::corruption(name, 0, "the first record is damaged")),
        }
    }

    /// Applies a record. Returns whether all of it could be used.
    fn apply_record(&mut self, bytes: &[u8]) -> bool {
        let mut reader = Reader::new(bytes);
        let synced = reader.take_varint();
        let changes = reader.take(reader.remaining()).ok().map(record::decode);
        match (synced, changes) {
            (Ok(_), Some(Ok(changes))) => {
                // The other changes are useful even if one does not fit.
                changes.iter().filter(|change| !self.apply(change)).count() == 0
            }
            _ => false,
        }
    }

    fn keyspace(&mut self, id: KeyspaceId) -> &mut KnownKeyspace {
        self.keyspaces.entry(id).or_default()
    }

    fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Store { uid } => self.uid = Some(*uid),
            Change::Counters { next_file, last_seq, log_floor, log_start_seq } => {
                self.next_file = self.next_file.max(*next_file);
                self.last_seq = self.last_seq.max(*last_seq);
                (self.log_floor, self.log_start_seq) = (*log_floor, *log_start_seq);
            }
            // The repaired store begins a history of its own.
            Change::History(_) | Change::NoLog => {}
            Change::Log { synced_seq, next_keyspace } => {
                self.synced_seq = self.synced_seq.max(*synced_seq);
                self.next_keyspace = self.next_keyspace.max(*next_keyspace);
            }
            Change::Keyspace { id, name, options } => {
                self.next_keyspace = self.next_keyspace.max(id.saturating_add(1));
                self.keyspace(*id).named = Some((name.clone(), options.clone()));
            }
            Change::Dropped { id } => {
                self.keyspaces.remove(id);
                for table in self.own.remove(id).unwrap_or_default() {
                    self.tables.remove(&table);
                    self.gone.insert(table);
                }
            }
            Change::Edit { id, flushed_seq, edit } => {
                let keyspace = self.keyspace(*id);
                keyspace.flushed_seq = keyspace.flushed_seq.max(*flushed_seq);
                self.apply_edit(*id, edit);
            }
            Change::Shape { id, flushed_seq, shape } => {
                self.keyspace(*id).flushed_seq = *flushed_seq;
                self.apply_shape(*id, shape);
            }
            Change::ValueFile { id, layout } => {
                let values = &mut self.keyspace(*id).values;
                values.retain(|known| known.number != layout.number);
                values.push(layout.clone());
            }
            Change::Values { id, edit } => {
                let values = &mut self.keyspace(*id).values;
                let known = values.iter_mut().find(|layout| layout.number == edit.store);
                // A layout that the edit does not fit is left as it was: the records themselves are
                // checked.
                return known.is_some_and(|layout| layout.apply(edit).is_ok());
            }
            Change::ValueFileGone { id, number } => {
                self.keyspace(*id).values.retain(|known| known.number != *number);
            }
        }
        true
    }

    /// Trims are applied before removals, and removals before placements: a table that moves is
    /// removed and placed.
    fn apply_edit(&mut self, keyspace: KeyspaceId, edit: &Edit) {
        for (id, key) in &edit.trim {
            if let Some(known) = self.tables.get_mut(id) {
                let meta = Table { min_key: key.clone(), ..(*known.meta).clone() };
                known.meta = Arc::new(meta);
            }
        }
        for id in &edit.remove {
            self.take(*id);
            self.gone.insert(*id);
        }
        edit.place.iter().for_each(|placement| self.place(keyspace, &placement.table));
    }

    fn apply_shape(&mut self, keyspace: KeyspaceId, shape: &Shape) {
        shape.tables().for_each(|(_, table)| self.place(keyspace, table));
    }

    fn place(&mut self, keyspace: KeyspaceId, table: &Arc<Table>) {
        self.gone.remove(&table.id);
        self.take(table.id);
        self.tables.insert(table.id, KnownTable { keyspace, meta: Arc::clone(table) });
        self.own.entry(keyspace).or_default().insert(table.id);
    }

    fn take(&mut self, id: u64) {
        let Some(known) = self.tables.remove(&id) else { return };
        if let Some(own) = self.own.get_mut(&known.keyspace) {
            own.remove(&id);
        }
    }

    /// The tables of a keyspace.
    pub(super) fn tables_of(&self, keyspace: KeyspaceId) -> impl Iterator<Item = &KnownTable> {
        let own = self.own.get(&keyspace).into_iter().flatten();
        own.filter_map(|id| self.tables.get(id))
    }
}

/// Returns the outcome, or `None` after noting the damage.
fn noted<T>(outcome: Result<T>, lost: &mut Vec<(String, String)>) -> Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(Error::Corruption { file, offset, what }) => {
            lost.push((file, format!("byte {offset}: {what}")));
            Ok(None)
        }
        Err(Error::Storage(error)) => {
            let file = error.path.rsplit('/').next().unwrap_or(&error.path).to_string();
            lost.push((file, error.to_string()));
            Ok(None)
        }
        Err(other) => Err(other),
    }
}
