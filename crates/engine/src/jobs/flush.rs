//! Writes a memtable to a level-0 run, which is one table unless the partitioner cuts flushes too.
//! Small memtables of several keyspaces are flushed together: they share steps 3 to 5, whose syncs
//! cost more than a small table.
//!
//! 1. Wait until every announced write is inserted and visible. Sequence numbers become visible in
//!    order, so the memtable's last one decides.
//! 2. Write and sync the tables. They leave out versions that no reader can see, and keep
//!    tombstones.
//! 3. If other memtables have writes up to the last sequence number, sync the log up to that
//!    number. Otherwise a power loss could undo an earlier write, usually of another keyspace, but
//!    not what this flush made durable (P2). Without a log there are no such writes
//!    (`write/generations.rs`).
//! 4. Append one manifest edit: the tables, the flushed sequence numbers, the new log floor.
//! 5. Replace the views; recycle log segments below the floor.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Instant;

use runstone_policy::plan::Cut;
use runstone_policy::shape::Table;

use crate::callbacks::event::Event;
use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::Result;
use crate::jobs::collection::Collector;
use crate::jobs::cutter::Cutter;
use crate::jobs::flush_cuts;
use crate::jobs::folding::Folding;
use crate::jobs::install::{FlushedMemtable, Installer};
use crate::jobs::liveness::{Liveness, Past};
use crate::jobs::output::{KeyRange, Output, Written, write_streams};
use crate::jobs::prepare::Preparer;
use crate::keys::SeqNo;
use crate::memtable::Memtable;
use crate::metrics::Counter;
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

/// Writes a memtable to the tables of a level-0 run, and the values that it separates to the value
/// file. There is no table if no reader can see any of its entries.
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
    let layout = TableLayout::of_level(&options, shape, 0).in_keyspace(keyspace.id);
    let separation = Separation::new(&keyspace.values.load_full(), &options.values);
    let separation = separation.map(Separation::naming_early);
    let cutter = match options.partition_flushes {
        false => Cutter::new(Cut::Size(u64::MAX), 0, 0),
        true => {
            let policy = options.compaction_policy()?;
            let (_, cut) = policy.whole_output(shape, 0, &options.shape);
            flush_cuts::cutter(memtable, cut, separation.as_ref())
        }
    };
    let mut output = Output::new(catalog, layout, cutter);
    output.separation = separation;
    output.folding = Folding::of(keyspace, catalog.env.memory_budget_bytes());
    let past = Past::now(&catalog.env, visibility);
    let live = Liveness::new(visibility.points(), None).with_past(past);
    let live = live.with_range_deletes(memtable.range_deletes(), None);
    // If values are separated, only compactions drop what a range delete hides, because they note
    // dead records.
    let live = if keyspace.values.load().is_empty() { live } else { live.keep_hidden() };
    let sources = vec![Source::memtable(memtable)];
    write_streams(sources, KeyRange::default(), output, live, now_and_then)
}

impl Flusher {
    /// Flushes the oldest waiting memtable of each keyspace, with one edit for all. Returns `false`
    /// if none waits. If a memtable cannot be written, those written before it are installed.
    /// Without a log, `keyspaces` are all those of the oldest generation, which is installed as a
    /// whole or not at all.
    pub(crate) fn flush_oldest(&self, keyspaces: &[Arc<KeyspaceCore>]) -> Result<bool> {
        let moment = match self.env.options.has_log() {
            true => None,
            false => match self.committer.generations.oldest() {
                None => return Ok(false),
                oldest => oldest,
            },
        };
        let oldest = |keyspace: &KeyspaceCore| {
            let oldest = keyspace.view.load().immutable.last().cloned();
            oldest.filter(|one| moment.is_none_or(|moment| one.first_seq() <= moment))
        };
        let mut waiting: Vec<_> =
            keyspaces.iter().filter_map(|keyspace| Some((keyspace, oldest(keyspace)?))).collect();
        for (keyspace, memtable) in &waiting {
            // Without a log, a load or the drop of a keyspace may wait for this flush, and block
            // all writers. Then the value file grows instead.
            let waits =
                moment.is_some() && (self.committer.is_loading() || keyspace.dropped.load(Acquire));
            if !waits {
                self.collector.make_room(keyspace, memtable)?;
            }
        }
        let files: Vec<_> =
            waiting.iter().map(|(keyspace, _)| keyspace.values.load_full()).collect();
        let logs = files.iter().filter_map(|values| values.log());
        let _no_collection: Vec<_> = logs.map(|log| log.flushing.lock()).collect();
        if moment.is_some() && seeded!(GenerationsInPieces) {
            waiting.truncate(1);
        }
        let flushed = self.write_and_install(waiting, moment)?;
        Ok(flushed | (moment.is_some() && self.committer.remove_empty_generations()))
    }

    /// Flushes the oldest waiting memtable of a keyspace in which no job runs, if it is older than
    /// `seq`. Returns `false` if it is not older, or none waits. The flush makes no room for
    /// values, because that could use sequence numbers; their file grows instead.
    pub(crate) fn flush_frozen(&self, keyspace: &Arc<KeyspaceCore>, seq: SeqNo) -> Result<bool> {
        let oldest = keyspace.view.load().immutable.last().cloned();
        let oldest = oldest.filter(|memtable| memtable.first_seq() < seq);
        let waiting = oldest.map(|memtable| (keyspace, memtable)).into_iter().collect();
        self.write_and_install(waiting, None)
    }

    /// Writes memtables to tables. `moment` is the end of their generation, if there is no log.
    fn write_and_install(
        &self,
        waiting: Vec<(&Arc<KeyspaceCore>, Arc<Memtable>)>,
        moment: Option<SeqNo>,
    ) -> Result<bool> {
        let (mut written, mut outcome) = (Vec::new(), Ok(!waiting.is_empty()));
        for (keyspace, memtable) in waiting {
            match self.write(keyspace, memtable, moment.is_none()) {
                Ok(one) => written.push(one),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if outcome.is_err() && moment.is_some() {
            // A part of the generation would not be the store as of any moment.
            written.iter().for_each(|one| self.catalog.discard(&one.tables));
        } else if !written.is_empty() {
            self.install(&mut written, moment)?;
        }
        outcome
    }

    fn write(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        memtable: Arc<Memtable>,
        is_alone: bool,
    ) -> Result<FlushedMemtable> {
        let started = Instant::now();
        let now_and_then = || {
            self.preparer.prepare_for_writers();
            // A generation does not fail because one of its keyspaces is being dropped.
            if is_alone { keyspace.check_exists() } else { Ok(()) }
        };
        let Written { tables, separated, dead, range_deletes_left, .. } =
            write_memtable(&self.catalog, &self.visibility, keyspace, &memtable, &now_and_then)?;
        let separated = separated.into_iter().collect();
        let values = ValueChanges::of_jobs(separated, &dead, Vec::new(), &keyspace.values.load());
        let keyspace = Arc::clone(keyspace);
        let took = started.elapsed();
        Ok(FlushedMemtable { keyspace, memtable, tables, values, range_deletes_left, took })
    }

    fn install(&self, flushed: &mut [FlushedMemtable], moment: Option<SeqNo>) -> Result<()> {
        let tables: Vec<_> = flushed.iter().flat_map(|one| one.tables.clone()).collect();
        let memtables: Vec<_> = flushed.iter().map(|one| Arc::clone(&one.memtable)).collect();
        let last_seq = memtables.iter().map(|memtable| memtable.max_seq()).max().unwrap_or(0);
        let has_log = moment.is_none();
        // A history that is kept must not lack what the tables have.
        let is_needed = self.committer.kept().keeps()
            || self.catalog.others_unflushed(&memtables, last_seq) && !seeded!(FlushOutrunsTheLog);
        if has_log && is_needed {
            self.committer.sync_through(last_seq).inspect_err(|_| self.catalog.discard(&tables))?;
        }
        let log_start = || match moment {
            Some(moment) => self.committer.log_start_after(moment),
            None => self.committer.log_floor_without(|_, waiting| {
                memtables.iter().any(|flushed| std::ptr::eq(waiting, &**flushed))
            }),
        };
        let floor = self
            .installer
            .install_flushes(flushed, log_start, moment)
            .inspect_err(|_| self.catalog.discard_uninstalled(&tables))?;
        for one in flushed.iter() {
            let Some(first) = one.tables.first() else { continue };
            let sum = |of: fn(&Table) -> u64| one.tables.iter().map(|table| of(table)).sum();
            let bytes = sum(|table| table.bytes);
            self.env
                .metrics
                .add_all(&[(Counter::flushes, 1), (Counter::flush_bytes_written, bytes)]);
            one.keyspace.work.count_flush(bytes);
            self.env.emit(|| Event::Flushed {
                keyspace: one.keyspace.name.clone(),
                table: first.id,
                bytes,
                entries: sum(|table| table.entries),
                took: one.took,
            });
        }
        self.committer.retire_log_below(floor);
        Ok(())
    }
}
