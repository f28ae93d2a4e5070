//! A memtable becomes a level-0 run of one table.
//!
//! 1. Wait until every announced write is inserted and visible: numbers become visible in order,
//!    so that is when the memtable's last one is.
//! 2. Write and sync the table. Versions that no reader can see are left out, tombstones are kept.
//! 3. If other keyspaces have unflushed writes, sync the log through the memtable's last number:
//!    what is made durable here must not survive a power loss that takes an earlier write of
//!    another keyspace (P2).
//! 4. One manifest edit: the table, the flushed sequence number, the new log floor.
//! 5. Replace the view; recycle log segments below the floor.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use runstone_policy::plan::Cut;
use runstone_policy::shape::{Edit, Placement, RunSlot};
use runstone_storage::Category;

use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::base::key::SeqNo;
use crate::base::metrics::Counter;
use crate::jobs::compaction::job::{Compacted, KeyRange, Liveness, Output, merge_streams};
use crate::jobs::cutter::Cutter;
use crate::memtable::Memtable;
use crate::read::source::Source;
use crate::store::{Inner, KeyspaceInner};
use crate::table::builder::TableLayout;
use crate::tree::record::Change;
use crate::values::separation::{Separation, ValueChanges};
use crate::wal::segments::segment_name;

/// Writes a memtable to one table at level 0 and what it separates to the value file; no table if
/// nothing in it is visible to anyone.
pub(crate) fn write_memtable(
    inner: &Inner,
    keyspace: &KeyspaceInner,
    memtable: &Arc<Memtable>,
    now_and_then: &dyn Fn() -> Result<()>,
) -> Result<Compacted> {
    inner.wait_visible(memtable.max_seq());
    let options = keyspace.options.load();
    let shape = &keyspace.view.load().version.shape;
    let whole = Cutter::new(Cut::Size(u64::MAX), 0, 0);
    let mut output = Output::new(inner, TableLayout::of_level(&options, shape, 0), whole);
    output.separation = Separation::new(&keyspace.values.load_full(), &options.values);
    let keep = Liveness::new(inner.visible_points(), None);
    let sources = vec![Source::memtable(memtable)];
    merge_streams(sources, KeyRange::default(), output, keep, now_and_then)
}

impl Inner {
    /// Flushes the oldest waiting memtable of a keyspace; `false` if none waits.
    pub(crate) fn flush_oldest(&self, keyspace: &Arc<KeyspaceInner>) -> Result<bool> {
        let started = Instant::now();
        let Some(memtable) = keyspace.view.load().immutable.last().cloned() else {
            return Ok(false);
        };
        self.make_value_room(keyspace, &memtable)?;
        let values = keyspace.values.load_full();
        let _no_collection = values.log().map(|log| log.flushing.lock());
        let now_and_then = || {
            self.prepare_for_writers();
            keyspace.check_exists()
        };
        let Compacted { tables, placed, .. } =
            write_memtable(self, keyspace, &memtable, &now_and_then)?;
        let table = tables.into_iter().next();
        if self.others_unflushed(keyspace) && !seeded!(FlushOutrunsTheLog) {
            self.sync_through(memtable.max_seq())
                .inspect_err(|_| self.discard(table.as_slice()))?;
        }
        let edit = Edit {
            place: table
                .iter()
                .map(|table| Placement {
                    level: 0,
                    slot: RunSlot::New(table.id),
                    table: Arc::clone(table),
                })
                .collect(),
            flushes: 1,
            ..Edit::default()
        };
        let floor = self
            .install_flush(keyspace, &edit, &memtable, ValueChanges::of_flush(placed))
            .inspect_err(|_| self.discard_uninstalled(table.as_slice()))?;
        if let Some(table) = &table {
            self.metrics
                .add_all(&[(Counter::flushes, 1), (Counter::flush_bytes_written, table.bytes)]);
            self.emit(|| Event::Flushed {
                keyspace: keyspace.name.clone(),
                table: table.id,
                bytes: table.bytes,
                entries: table.entries,
                took: started.elapsed(),
            });
        }
        self.retire_log_below(floor);
        Ok(true)
    }

    /// Whether another keyspace holds writes that are only in the log.
    fn others_unflushed(&self, keyspace: &KeyspaceInner) -> bool {
        let keyspaces = self.keyspaces.read();
        keyspaces.values().any(|other| other.id != keyspace.id && holds_writes(other))
    }

    /// Installs the flushed table; returns the new log floor.
    fn install_flush(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        edit: &Edit,
        memtable: &Memtable,
        values: ValueChanges,
    ) -> Result<u64> {
        let mut manifest = self.manifest.lock();
        let version = self.next_version(keyspace, edit)?;
        let log_start = self.log_floor_without(|other, waiting| {
            other.id == keyspace.id && std::ptr::eq(waiting, memtable)
        });
        let flushed_seq = memtable.max_seq();
        let mut changes = vec![Change::Edit { id: keyspace.id, flushed_seq, edit: edit.clone() }];
        changes.extend(
            values.edits().map(|edit| Change::ValueFiles { id: keyspace.id, edit: edit.clone() }),
        );
        if seeded!(PointersLoggedBeforeValues) {
            let values = changes.split_off(1);
            self.append_edit(&mut manifest, changes, log_start)?;
            changes = values;
        }
        let values = self.append_with_values(&mut manifest, changes, log_start, values)?;
        manifest.flushed.insert(keyspace.id, flushed_seq);
        manifest.log_start = log_start;
        // ValueFiles before the pointers to them.
        self.publish_values(keyspace, values);
        self.swap_version(keyspace, version, 1);
        Ok(log_start.0)
    }

    /// First log segment that is needed without the memtables that are `settled`, flushed or
    /// dropped, and where it starts.
    pub(crate) fn log_floor_without(
        &self,
        settled: impl Fn(&KeyspaceInner, &Memtable) -> bool,
    ) -> (u64, SeqNo) {
        let commit = self.commit.lock();
        let mut needed: Option<u64> = None;
        for other in self.keyspaces.read().values() {
            let view = other.view.load();
            for memtable in std::iter::once(&view.active).chain(&view.immutable) {
                let is_needed = !settled(other, memtable);
                if let Some(segment) = memtable.first_segment().filter(|_| is_needed) {
                    needed = Some(needed.map_or(segment, |least| least.min(segment)));
                }
            }
        }
        commit.wal.floor(needed, commit.next_seq)
    }

    /// Gives back the segments below the log's floor. What cannot be removed fails nobody: the
    /// manifest says that it is not needed.
    pub(crate) fn retire_log_below(&self, floor: u64) {
        let obsolete = self.commit.lock().wal.take_obsolete(floor);
        obsolete.into_iter().for_each(|segment| segment.retire(&self.wal_files));
    }

    /// Prepares the next log segment, and gives back the mappings of finished ones.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        self.wal_files.prepare_spare()?;
        let finished = self.commit.lock().wal.mapped_finished();
        for number in finished {
            let name = segment_name(number);
            match self.storage.open(&name, Category::Wal) {
                Ok(ordinary) => drop(self.commit.lock().wal.unmap(number, ordinary)),
                // Flushed and retired meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Asks for a flush of every memtable and waits for it.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        let keyspaces = self.unflushed_keyspaces();
        let last_seq = self.rotate(&keyspaces, |_| true);
        self.wait_flushed(&keyspaces, last_seq)
    }

    /// Keyspaces whose active memtable holds anything.
    pub(crate) fn unflushed_keyspaces(&self) -> Vec<Arc<KeyspaceInner>> {
        let keyspaces = self.keyspaces.read();
        keyspaces.values().filter(|keyspace| holds_writes(keyspace)).cloned().collect()
    }

    /// Waits for [`Inner::are_flushed`].
    pub(crate) fn wait_flushed(
        &self,
        keyspaces: &[Arc<KeyspaceInner>],
        last_seq: SeqNo,
    ) -> Result<()> {
        self.wait_until(|| self.are_flushed(keyspaces, last_seq))
    }

    /// Whether no memtable with a number up to `last_seq` waits for its flush, or its keyspace is
    /// gone. One that is being dropped may yet stay, if that fails.
    pub(crate) fn are_flushed(&self, keyspaces: &[Arc<KeyspaceInner>], last_seq: SeqNo) -> bool {
        let is_gone = |keyspace: &KeyspaceInner| {
            keyspace.dropped.load(Acquire) && !self.keyspaces.read().contains_key(&keyspace.id)
        };
        keyspaces.iter().all(|keyspace| keyspace.is_flushed(last_seq) || is_gone(keyspace))
    }

    /// Whether a memtable of the keyspace waits and may be flushed now.
    pub(crate) fn flush_is_due(&self, keyspace: &KeyspaceInner) -> bool {
        let limit = self.flush_limit.load(Acquire);
        keyspace.view.load().immutable.last().is_some_and(|oldest| oldest.first_seq() <= limit)
    }
}

impl KeyspaceInner {
    /// Refuses what is dropped.
    pub(crate) fn check_exists(&self) -> Result<()> {
        match self.dropped.load(Acquire) {
            true => Err(Error::UnknownKeyspace { name: self.name.clone() }),
            false => Ok(()),
        }
    }

    /// Whether no memtable with a number up to `last_seq` waits for its flush.
    pub(crate) fn is_flushed(&self, last_seq: SeqNo) -> bool {
        self.view.load().immutable.last().is_none_or(|oldest| oldest.first_seq() > last_seq)
    }
}

/// Whether a keyspace holds writes that are only in the log.
fn holds_writes(keyspace: &KeyspaceInner) -> bool {
    let view = keyspace.view.load();
    !view.active.is_empty() || !view.immutable.is_empty()
}
