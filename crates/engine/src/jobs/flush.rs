//! Writes a memtable to a level-0 run of one table.
//!
//! 1. Wait until every announced write is inserted and visible. Sequence numbers become visible in
//!    order, so the memtable's last one tells.
//! 2. Write and sync the table. It leaves out versions that no reader can see, and keeps
//!    tombstones.
//! 3. If other keyspaces have unflushed writes, sync the log up to the memtable's last number.
//!    Otherwise a power loss could take an earlier write of another keyspace, and leave what this
//!    flush made durable (P2).
//! 4. Append one manifest edit: the table, the flushed sequence number, the new log floor.
//! 5. Replace the view; recycle log segments below the floor.

use std::sync::Arc;
use std::time::Instant;

use runstone_policy::plan::Cut;
use runstone_policy::shape::{Edit, Placement, RunSlot};

use crate::base::env::Env;
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::metrics::Counter;
use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::jobs::collection::Collector;
use crate::jobs::cutter::Cutter;
use crate::jobs::install::Installer;
use crate::jobs::liveness::Liveness;
use crate::jobs::output::{KeyRange, Output, Written, write_streams};
use crate::jobs::prepare::Preparer;
use crate::memtable::Memtable;
use crate::read::source::Source;
use crate::table::builder::TableLayout;
use crate::values::separation::{Separation, ValueChanges};
use crate::visibility::snapshot::Visibility;
use crate::write::commit::Committer;

/// Flushes memtables.
#[derive(Debug)]
pub(crate) struct Flusher {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) installer: Arc<Installer>,
    pub(crate) preparer: Arc<Preparer>,
    pub(crate) collector: Arc<Collector>,
}

/// Writes a memtable to one level-0 table, and the values that it separates to the value file.
/// There is no table if no reader can see any of it.
pub(crate) fn write_memtable(
    catalog: &Catalog,
    visibility: &Visibility,
    keyspace: &KeyspaceCore,
    memtable: &Arc<Memtable>,
    now_and_then: &dyn Fn() -> Result<()>,
) -> Result<Written> {
    visibility.publisher.wait_visible(memtable.max_seq());
    let options = keyspace.options.load();
    let shape = &keyspace.view.load().version.shape;
    let whole = Cutter::new(Cut::Size(u64::MAX), 0, 0);
    let mut output = Output::new(catalog, TableLayout::of_level(&options, shape, 0), whole);
    output.separation = Separation::new(&keyspace.values.load_full(), &options.values);
    let live = Liveness::new(visibility.points(), None);
    let sources = vec![Source::memtable(memtable)];
    write_streams(sources, KeyRange::default(), output, live, now_and_then)
}

impl Flusher {
    /// Flushes the oldest waiting memtable of a keyspace; `false` if none waits.
    pub(crate) fn flush_oldest(&self, keyspace: &Arc<KeyspaceCore>) -> Result<bool> {
        let started = Instant::now();
        let Some(memtable) = keyspace.view.load().immutable.last().cloned() else {
            return Ok(false);
        };
        self.collector.make_room(keyspace, &memtable)?;
        let values = keyspace.values.load_full();
        let _no_collection = values.log().map(|log| log.flushing.lock());
        let now_and_then = || {
            self.preparer.prepare_for_writers();
            keyspace.check_exists()
        };
        let Written { tables, separated, .. } =
            write_memtable(&self.catalog, &self.visibility, keyspace, &memtable, &now_and_then)?;
        let table = tables.into_iter().next();
        if self.catalog.others_unflushed(keyspace) && !seeded!(FlushOutrunsTheLog) {
            self.committer
                .sync_through(memtable.max_seq())
                .inspect_err(|_| self.catalog.discard(table.as_slice()))?;
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
        let log_start = || {
            self.committer.log_floor_without(|other, waiting| {
                other.id == keyspace.id && std::ptr::eq(waiting, &*memtable)
            })
        };
        let values = ValueChanges::of_flush(separated);
        let floor = self
            .installer
            .install_flush(keyspace, &edit, &memtable, values, log_start)
            .inspect_err(|_| self.catalog.discard_uninstalled(table.as_slice()))?;
        if let Some(table) = &table {
            self.env
                .metrics
                .add_all(&[(Counter::flushes, 1), (Counter::flush_bytes_written, table.bytes)]);
            self.env.emit(|| Event::Flushed {
                keyspace: keyspace.name.clone(),
                table: table.id,
                bytes: table.bytes,
                entries: table.entries,
                took: started.elapsed(),
            });
        }
        self.committer.retire_log_below(floor);
        Ok(true)
    }
}
