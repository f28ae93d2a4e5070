//! Makes finished work part of the tree: one manifest edit, then a new view for readers (I6), then
//! the pressure on writers.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use runstone_policy::shape::{Edit, Placement, RunSlot, Shape, Table};

use crate::catalog::Catalog;
use crate::catalog::keyspace::{KeyspaceCore, NextVersion};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::output::Written;
use crate::keys::SeqNo;
use crate::memtable::Memtable;
use crate::schedule::Schedule;
use crate::tree::record::Change;
use crate::tree::version::RangeChange;
use crate::values::file::ValueFile;
use crate::values::layout::ValueEdit;
use crate::values::separation::ValueChanges;
use crate::visibility::snapshot::Visibility;
use crate::write::pressure::BackPressure;

/// Installs the results of jobs.
#[derive(Debug)]
pub(crate) struct Installer {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) pressure: Arc<BackPressure>,
    pub(crate) visibility: Arc<Visibility>,
}

/// A memtable that was written to tables, with the values that were separated. There are no tables
/// if no reader can see any of its entries.
#[derive(Debug)]
pub(crate) struct FlushedMemtable {
    pub(crate) keyspace: Arc<KeyspaceCore>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) values: ValueChanges,
    /// The sequence numbers of the range deletes that the tables lack.
    pub(crate) range_deletes_left: Vec<SeqNo>,
    /// The time that writing took.
    pub(crate) took: Duration,
}

impl FlushedMemtable {
    fn edit(&self) -> Edit {
        flush_edit(std::slice::from_ref(&self.tables))
    }
}

/// The edit that places the tables of each flush on level 0 as a run, the oldest flush first.
pub(crate) fn flush_edit(flushes: &[Vec<Arc<Table>>]) -> Edit {
    let run = |tables: &Vec<Arc<Table>>| {
        let slot = RunSlot::New(tables.first().map_or(0, |first| first.id));
        let place = |table| Placement { level: 0, slot, table };
        tables.iter().cloned().map(place).collect::<Vec<_>>()
    };
    let place = flushes.iter().flat_map(run).collect();
    Edit { place, flushes: flushes.len() as u64, ..Edit::default() }
}

impl Installer {
    /// Fails if a job's result for the keyspace is no longer wanted. The drop of a keyspace waits
    /// for its jobs.
    pub(crate) fn check_wanted(&self, keyspace: &KeyspaceCore) -> Result<()> {
        self.schedule.check_open()?;
        keyspace.check_exists()
    }

    /// The changes that compactions made to value files: the values they separated and the records
    /// they found dead.
    pub(crate) fn value_changes<'a>(
        &self,
        keyspace: &KeyspaceCore,
        done: impl Iterator<Item = &'a mut Written>,
    ) -> ValueChanges {
        let (mut separated, mut dead, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
        for written in done {
            separated.extend(written.separated.take());
            dead.append(&mut written.dead);
            filtered.append(&mut written.filtered);
        }
        ValueChanges::of_jobs(separated, &dead, filtered, &keyspace.values.load())
    }

    /// Installs the edit that `make` builds from the current tree, and returns it.
    /// `range_deletes_left` are the sequence numbers of the range deletes that are not written
    /// again.
    pub(crate) fn install(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        values: ValueChanges,
        range_deletes_left: &[SeqNo],
        make: impl FnOnce(&Shape) -> Edit,
    ) -> Result<Edit> {
        let edit = self.install_edit(keyspace, values, range_deletes_left, make)?;
        self.park_cursors();
        Ok(edit)
    }

    fn install_edit(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        mut values: ValueChanges,
        range_deletes_left: &[SeqNo],
        make: impl FnOnce(&Shape) -> Edit,
    ) -> Result<Edit> {
        let mut manifest = self.catalog.manifest.lock();
        keyspace.check_exists()?;
        values.forget_dead_in_others(&keyspace.values.load());
        let edit = make(&keyspace.view.load().version.shape);
        let change = RangeChange { left: range_deletes_left, ..RangeChange::default() };
        let next = self.catalog.next_version(keyspace, &edit, change)?;
        let flushed_seq = manifest.flushed.of(keyspace.id);
        let log_start = manifest.log_start;
        let id = keyspace.id;
        let mut changes = vec![Change::Edit { id, flushed_seq, edit: edit.clone() }];
        changes.extend(values.edits().map(|edit| Change::Values { id, edit: edit.clone() }));
        let gone = keyspace.files_left_behind(&next.version);
        changes.extend(gone.iter().map(|number| Change::ValueFileGone { id, number: *number }));
        let values =
            self.catalog.append_with_values(&mut manifest, changes, log_start, vec![values])?;
        let (files, mut holds) = (keyspace.values.load(), false);
        // Values become visible before the pointers to them.
        for mut values in values {
            holds |= values.hold_filtered(&files, self.visibility.epoch());
            values.publish(&files, &self.env.metrics);
        }
        reached!(ValuesPublished);
        self.swap_version(keyspace, next, 0);
        if holds {
            // Later readers start from this version or a newer one, so they reach none of the
            // records that filters dropped.
            self.visibility.end_epoch();
            let readers = self.visibility.readers();
            files.all().for_each(|store| store.state.lock().held.release(readers.oldest_epoch));
        }
        self.pressure.refresh([keyspace]);
        self.catalog.forget_value_files(keyspace, &gone);
        Ok(edit)
    }

    /// Installs the tables of flushed memtables with one edit. `log_start` returns where the log
    /// begins without those memtables. It is called once no other edit can come in between.
    pub(crate) fn install_flushes(
        &self,
        flushed: &mut [FlushedMemtable],
        log_start: impl FnOnce() -> (u64, SeqNo),
        moment: Option<SeqNo>,
    ) -> Result<u64> {
        let floor = self.install_flush_edits(flushed, log_start, moment)?;
        self.park_cursors();
        Ok(floor)
    }

    fn install_flush_edits(
        &self,
        flushed: &mut [FlushedMemtable],
        log_start: impl FnOnce() -> (u64, SeqNo),
        moment: Option<SeqNo>,
    ) -> Result<u64> {
        let mut manifest = self.catalog.manifest.lock();
        for one in flushed.iter().filter(|_| moment.is_some()) {
            self.check_there(&one.keyspace)?;
        }
        let (mut changes, mut of_values) = (Vec::new(), Vec::new());
        let (mut versions, mut values) = (Vec::new(), Vec::new());
        for one in &mut *flushed {
            let (id, edit) = (one.keyspace.id, one.edit());
            let view = one.keyspace.view.load();
            let is_oldest =
                view.immutable.last().is_some_and(|old| Arc::ptr_eq(old, &one.memtable));
            assert!(is_oldest, "a memtable is flushed before an older one of its keyspace (I1)");
            let flushed = one.memtable.range_deletes();
            let change = RangeChange { flushed: flushed.as_deref(), left: &one.range_deletes_left };
            versions.push(self.catalog.next_version(&one.keyspace, &edit, change)?);
            changes.push(Change::Edit { id, flushed_seq: one.memtable.max_seq(), edit });
            values.push(std::mem::take(&mut one.values));
        }
        for (one, values) in flushed.iter().zip(&values) {
            let id = one.keyspace.id;
            of_values.extend(values.edits().map(|edit| Change::Values { id, edit: edit.clone() }));
        }
        let log_start = log_start();
        self.check_log(flushed);
        if seeded!(PointersLoggedBeforeValues) {
            let edits = std::mem::take(&mut changes);
            self.catalog.append_edit(&mut manifest, edits, log_start)?;
        }
        changes.append(&mut of_values);
        let values = self.catalog.append_with_values(&mut manifest, changes, log_start, values)?;
        manifest.log_start = log_start;
        if let Some(moment) = moment {
            // Done before the lock is released: the next edit continues from both numbers.
            self.catalog.durable_seq.fetch_max(moment, AcqRel);
        }
        for ((one, values), next) in flushed.iter().zip(values).zip(versions) {
            manifest.flushed.insert(one.keyspace.id, one.memtable.max_seq());
            // Values become visible before the pointers to them.
            let files = one.keyspace.values.load();
            values.publish(&files, &self.env.metrics);
            self.swap_version(&one.keyspace, next, 1);
            let unflushed_from = one.keyspace.unflushed_from();
            files.all().for_each(|store| store.state.lock().note_flushed(unflushed_from));
        }
        self.pressure.refresh(flushed.iter().map(|one| &one.keyspace));
        Ok(log_start.0)
    }

    /// Refuses a keyspace that was dropped while its generation was written. A keyspace that is
    /// only being dropped still exists.
    fn check_there(&self, keyspace: &KeyspaceCore) -> Result<()> {
        match self.catalog.keyspaces.read().contains_key(&keyspace.id) {
            true => Ok(()),
            false => Err(Error::UnknownKeyspace { name: keyspace.name.clone() }),
        }
    }

    /// Checks that a power loss cannot undo earlier writes in other keyspaces but not this flush
    /// (P3).
    fn check_log(&self, flushed: &[FlushedMemtable]) {
        let memtables: Vec<_> = flushed.iter().map(|one| Arc::clone(&one.memtable)).collect();
        let last_seq = memtables.iter().map(|memtable| memtable.max_seq()).max().unwrap_or(0);
        invariant!(
            self.catalog.durable_seq.load(Acquire) >= last_seq
                || !self.catalog.others_unflushed(&memtables, last_seq),
            "a flush is installed before the log is synced up to it"
        );
    }

    /// Logs an edit of a value file and makes it visible.
    pub(crate) fn install_values(
        &self,
        keyspace: &KeyspaceCore,
        store: &ValueFile,
        mut edit: ValueEdit,
    ) -> Result<()> {
        let mut manifest = self.catalog.manifest.lock();
        self.check_wanted(keyspace)?;
        // Keys that flushes appended after the closed segments count too. From here on, no edit can
        // come in between.
        if let Some((closed, fresh)) = &store.state.lock().fresh {
            let own = edit.groups.iter_mut().filter(|group| group.group == *closed);
            own.for_each(|group| group.keys.merge(fresh));
        }
        store.check(&edit)?;
        if seeded!(CollectionNotLogged) {
            store.publish(&edit);
            return Ok(());
        }
        let log = self.catalog.log_change(&manifest);
        manifest.append(&[log, Change::Values { id: keyspace.id, edit: edit.clone() }])?;
        store.publish(&edit);
        Ok(())
    }

    /// Releases the files of earlier trees that cursors hold. Runs without the manifest's lock,
    /// because cursors may be the last to hold a file. When a store closes, cursors keep what they
    /// hold, because afterwards they could not load anything else.
    fn park_cursors(&self) {
        if self.schedule.check_open().is_ok() {
            self.visibility.cursors.park();
        }
    }

    fn swap_version(&self, keyspace: &Arc<KeyspaceCore>, next: NextVersion, flushed: usize) {
        keyspace.swap_version(next, flushed);
        self.schedule.stir(keyspace.id);
        if flushed > 0 {
            self.catalog.unflushed.remove_if_flushed(keyspace);
        }
    }
}
