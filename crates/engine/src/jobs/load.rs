//! Bulk loads: sorted entries become tables of the tree without a memtable and without the log.
//!
//! 1. The caller's thread writes the tables while writers, flushes and compactions continue. The
//!    sequence number of the entries is not known yet: the tables contain 0 in its place, and the
//!    manifest will give them the real one. So even a load of an hour keeps no writer waiting.
//! 2. Compactions of the keyspace are held back. Its memtables are flushed, and then its flushes
//!    and collections are held back as well. Writes that were made meanwhile are flushed and synced
//!    here, again and again until few are left.
//! 3. The load gets one sequence number, and a new memtable receives later writes
//!    (`write/load.rs`). Until that number is published, no later write is visible, so the
//!    following steps must be short. The earlier memtable, with the writes since step 2, is
//!    flushed: older data must not be above the load (I1). The log is synced up to the load's
//!    sequence number, because no earlier write may be lost when the load is durable (P2), and
//!    because recovery continues after the largest sequence number of the log. In a store without a
//!    log, steps 2 and 3 hold back only compactions, and wait until all earlier writes are flushed
//!    (`write/generations.rs`).
//! 4. One manifest edit adds the tables at the deepest level such that neither it nor a level above
//!    it has keys in their range ([`load_edit`]).
//! 5. The sequence number is published: readers see all of the load or nothing.
//!
//! A crash before the edit leaves tables that no manifest names. The next open removes them. After
//! an error the sequence number is published too, and shows nothing.
//!
//! Rejected: a sequence number that is taken first, which would hold up all writers for the whole
//! load; entries that are written again once the sequence number is known; a sequence number far
//! ahead, which would leave a gap in the log that recovery could not tell from a lost record.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use crate::sync::{Mutex, rank};
use runstone_policy::plan::Cut;
use runstone_policy::policy::load_edit;
use runstone_policy::shape::Table;

use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::jobs::cutter::Cutter;
use crate::jobs::install::Installer;
use crate::jobs::runner::Runner;
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::{Kind, SeqNo, pack};
use crate::metrics::Counter;
use crate::schedule::{Claim, Held, Schedule};
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::table_name;
use crate::tree::record::Change;
use crate::tree::version::RangeChange;
use crate::wal::batch::check_sizes;

/// The number of entries between two checks of what writers need.
const PREPARE_INTERVAL: u64 = 4096;

/// How many times a load flushes the writes that were made during its previous flush.
const MOST_ROUNDS: u32 = 16;

/// The number of entries that may be left to the flush under the load's sequence number.
const FEW_ENTRIES: u64 = 1_000;

/// The tables of a load that is not installed. Dropping it removes them.
pub(crate) struct Load<'a> {
    runner: &'a Runner,
    keyspace: &'a Arc<KeyspaceCore>,
    layout: TableLayout,
    cutter: Cutter,
    open: Option<(u64, TableBuilder)>,
    tables: Vec<Arc<Table>>,
    last_key: Vec<u8>,
    entries: u64,
    user_bytes: u64,
    /// The buffer for a value with its instant of expiry.
    expiring: Vec<u8>,
    started: Instant,
    /// Closing the store, changing the options and dropping the keyspace wait until this claim
    /// ends.
    _claim: LoadClaim<'a>,
}

/// The claim of a load. A load runs code of the caller. A panic there leaves nothing half done, so
/// unlike a job's panic it does not stop the store.
struct LoadClaim<'a> {
    schedule: &'a Schedule,
    claim: u64,
}

impl Drop for LoadClaim<'_> {
    fn drop(&mut self) {
        self.schedule.release(self.claim);
    }
}

impl Runner {
    /// Begins a load.
    pub(crate) fn begin_load<'a>(&'a self, keyspace: &'a Arc<KeyspaceCore>) -> Result<Load<'a>> {
        self.env.check_writable()?;
        let thread = std::thread::current().id();
        let claim = {
            let mut claims = self.schedule.lock();
            loop {
                self.installer.check_wanted(keyspace)?;
                if !claims.frozen.contains(&keyspace.id) {
                    break self.schedule.claim(&mut claims, Claim::Load(keyspace.id, thread));
                }
                self.schedule.wait_for_change(&mut claims, self.env.is_manual());
            }
        };
        let claim = LoadClaim { schedule: &self.schedule, claim };
        let options = keyspace.options.load();
        let policy = options.compaction_policy()?;
        let shape = keyspace.view.load().version.shape.clone();
        // The level of the load is known only at the end. Its tables are laid out for the deepest
        // level.
        let level = shape.deepest().unwrap_or(0).max(1);
        let mut layout = TableLayout::of_level(&options, &shape, level).in_keyspace(keyspace.id);
        layout.is_numbered_later = true;
        layout.prefixer = keyspace.prefixer.lock().clone();
        let (_, cut) = policy.whole_output(&shape, level, &options.shape);
        Ok(Load {
            runner: self,
            keyspace,
            layout,
            cutter: cutter(cut),
            open: None,
            tables: Vec::new(),
            last_key: Vec::new(),
            entries: 0,
            user_bytes: 0,
            expiring: Vec::new(),
            started: Instant::now(),
            _claim: claim,
        })
    }

    /// Runs steps 2 to 5. A checkpoint holds `checkpoint` while it waits for flushes.
    fn install_load(
        &self,
        load: &Load<'_>,
        checkpoint: &Mutex<rank::Checkpoint, ()>,
    ) -> Result<()> {
        let keyspace = load.keyspace;
        let held = Held::compactions(&self.schedule, keyspace.id);
        let alone = std::slice::from_ref(keyspace);
        let last_seq = self.committer.rotate(alone, |_| true);
        // Nobody flushes a keyspace that is being dropped, and the drop waits for this load.
        let is_settled = || keyspace.is_flushed(last_seq) || keyspace.check_exists().is_err();
        self.wait_until(is_settled)?;
        // Without a log, a checkpoint limits flushes to those of its own moment, and the next
        // flushes would exceed it.
        let _no_checkpoint = checkpoint.lock();
        let has_log = self.env.options.has_log();
        if has_log {
            held.freeze();
        }
        reached!(LoadSettled);
        match has_log {
            true => self.settle_writes(keyspace)?,
            false => self.settle_generations(keyspace)?,
        }
        let number = self.committer.number_load(keyspace, &load.tables)?;
        let seq = number.seq();
        if seeded!(LoadsPublishedFirst) {
            drop(number);
        }
        reached!(LoadNumbered);
        // Newer memtables may wait already, because somebody else flushes or commits a large batch.
        // Their writes become visible only after the load, so a flush of them would wait for
        // itself.
        if has_log {
            while !seeded!(LoadsAboveOlderWrites) && self.flusher.flush_frozen(keyspace, seq)? {}
            if !seeded!(LoadsOutrunTheLog) {
                self.committer.sync_through(seq)?;
            }
        } else {
            self.wait_for_generations(keyspace, seq - 1)?;
        }
        let log_start = (!has_log).then(|| self.committer.log_start_after(seq));
        match self.installer.install_load(keyspace, &load.tables, seq, log_start) {
            Err(refused @ Error::InvalidArgument { .. }) => Err(refused),
            installed => self.note_outcome(installed),
        }
    }
}

impl Runner {
    /// Flushes and syncs the writes to a keyspace in which no job runs, before the load takes its
    /// sequence number. Writes made during one round are left to the next, until few are left.
    fn settle_writes(&self, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
        if seeded!(LoadsOutrunTheLog) {
            return Ok(());
        }
        for _ in 0..MOST_ROUNDS {
            self.committer.sync_all()?;
            let view = keyspace.view.load_full();
            if view.memtables().map(|memtable| memtable.entries()).sum::<u64>() < FEW_ENTRIES {
                break;
            }
            let last_seq = self.committer.rotate(std::slice::from_ref(keyspace), |_| true);
            while self.flusher.flush_frozen(keyspace, last_seq + 1)? {}
        }
        Ok(())
    }
}

impl Runner {
    /// Does the same in a store without a log, where all writes before the load must be in tables
    /// (P2). The usual flushes write them to tables in whole generations.
    fn settle_generations(&self, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
        for _ in 0..MOST_ROUNDS {
            let unflushed = self.catalog.unflushed.all();
            let entries = |keyspace: &Arc<KeyspaceCore>| -> u64 {
                keyspace.view.load().memtables().map(|memtable| memtable.entries()).sum()
            };
            if unflushed.iter().map(entries).sum::<u64>() < FEW_ENTRIES {
                break;
            }
            let last_seq = self.committer.rotate(&unflushed, |_| true);
            self.wait_for_generations(keyspace, last_seq)?;
        }
        Ok(())
    }

    /// Waits until all writes up to a sequence number are flushed. Gives up if the keyspace is
    /// being dropped: the drop waits for the load.
    fn wait_for_generations(&self, keyspace: &KeyspaceCore, seq: SeqNo) -> Result<()> {
        let generations = &self.committer.generations;
        let is_wanted = || keyspace.check_exists().is_ok();
        self.wait_until(|| generations.are_flushed(seq) || !is_wanted())?;
        keyspace.check_exists()
    }
}

impl Load<'_> {
    /// Adds a put or a delete of a key above all earlier ones. The bytes of a put that expires end
    /// with its instant. Other puts expire by the keyspace's options.
    pub(crate) fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let expiry_ms = self.expiry_ms().filter(|_| kind == Kind::Put);
        check_sizes(key.len(), value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES))?;
        if self.entries > 0 && *key <= *self.last_key {
            return Err(self.unsorted(key));
        }
        self.runner.installer.check_wanted(self.keyspace)?;
        if self.entries.is_multiple_of(PREPARE_INTERVAL) {
            self.runner.env.check_writable()?;
            self.runner.preparer.let_flushes_pass();
        }
        let table_bytes = self.open.as_ref().map_or(0, |(_, table)| table.estimated_bytes());
        let prefixer = self.layout.prefixer.as_ref();
        if self.cutter.cuts_before(key, prefixer, table_bytes, self.entries) {
            self.close_table()?;
        }
        let (_, table) = match &mut self.open {
            Some(open) => open,
            None => {
                let (catalog, id) = (&self.runner.catalog, self.runner.env.new_file());
                let table = TableBuilder::create(&catalog.tables, id, self.layout.clone())?;
                self.open.insert((id, table))
            }
        };
        match expiry_ms {
            None => table.add(key, pack(0, kind), value)?,
            Some(at_ms) => {
                self.expiring.clear();
                self.expiring.extend_from_slice(value);
                self.expiring.extend_from_slice(&at_ms.to_le_bytes());
                table.add(key, pack(0, Kind::ExpiringPut), &self.expiring)?;
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        let instant = if kind == Kind::ExpiringPut { EXPIRY_BYTES } else { 0 };
        self.user_bytes += (key.len() + value.len() - instant) as u64;
        Ok(())
    }

    /// When an entry that is added now expires by the keyspace's options. Entries may arrive
    /// slowly, so the clock is read for each.
    fn expiry_ms(&self) -> Option<u64> {
        match self.keyspace.ttl_ms.load(Relaxed) {
            0 => None,
            ttl_ms => Some(self.runner.env.watch.now_ms().saturating_add(ttl_ms)),
        }
    }

    /// Makes all added entries part of the keyspace, and returns their count.
    pub(crate) fn finish(mut self, checkpoint: &Mutex<rank::Checkpoint, ()>) -> Result<u64> {
        self.close_table()?;
        if self.tables.is_empty() {
            return Ok(0);
        }
        self.runner.install_load(&self, checkpoint)?;
        let bytes = self.tables.iter().map(|table| table.bytes).sum();
        let tables = self.tables.len() as u64;
        self.tables.clear();
        self.runner.env.metrics.add_all(&[
            (Counter::bulk_loads, 1),
            (Counter::bulk_bytes_written, bytes),
            (Counter::writes, self.entries),
            (Counter::user_bytes_written, self.user_bytes),
        ]);
        self.runner.env.emit(|| Event::Loaded {
            keyspace: self.keyspace.name.clone(),
            tables,
            entries: self.entries,
            bytes,
            took: self.started.elapsed(),
        });
        Ok(self.entries)
    }

    fn close_table(&mut self) -> Result<()> {
        let Some((id, table)) = self.open.take() else { return Ok(()) };
        let table = table.finish().inspect_err(|_| self.remove(id))?;
        self.tables.push(Arc::new(table));
        Ok(())
    }

    fn remove(&self, id: u64) {
        // If a file stays, the next open removes it as an orphan.
        let _ = self.runner.env.storage.remove(&table_name(id));
    }

    fn unsorted(&self, key: &[u8]) -> Error {
        let (before, key_shown) = (self.last_key.escape_ascii(), key.escape_ascii());
        let (what, hint) = match *key == *self.last_key {
            true => ("twice", "a load takes each key once: leave one of them out"),
            false => ("out of order", "sort the entries by their bytes, or put them one by one"),
        };
        let place = self.entries + 1;
        let what = format!("key \"{key_shown}\", entry {place}, comes {what}: behind \"{before}\"");
        Error::invalid(what, hint)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if let Some((id, table)) = self.open.take() {
            drop(table);
            self.remove(id);
        }
        self.runner.catalog.discard_uninstalled(&self.tables);
    }
}

impl Installer {
    /// Runs step 4. The memtables that wait are flushed, and later ones have larger sequence
    /// numbers. Without a log, `log_start` is where it would begin after the load.
    fn install_load(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        tables: &[Arc<Table>],
        seq: SeqNo,
        log_start: Option<(u64, SeqNo)>,
    ) -> Result<()> {
        let numbered = |table: &Arc<Table>| {
            Arc::new(Table { min_seq: seq, max_seq: seq, ..Table::clone(table) })
        };
        let tables: Vec<_> = tables.iter().map(numbered).collect();
        let mut manifest = self.catalog.manifest.lock();
        keyspace.check_exists()?;
        let view = keyspace.view.load_full();
        invariant!(self.visibility.now() < seq, "a load is visible before it is in the tree");
        let is_synced = log_start.is_some() || self.catalog.durable_seq.load(Acquire) >= seq;
        invariant!(is_synced, "a load is installed before the log is synced up to it");
        let are_newer = view.immutable.iter().all(|memtable| memtable.first_seq() > seq);
        invariant!(are_newer, "older writes wait for their flush, and would lie above a load (I1)");
        let options = keyspace.options.load();
        let shape = &view.version.shape;
        let edit = load_edit(shape, options.compaction_policy()?, &options.shape, &tables);
        let writes_back = keyspace.values.load().all().any(|store| store.writes_back);
        if writes_back && meets_any(&tables, &view.version.shape) {
            // The groups of such a value file must know every version of their keys, because
            // collections do not look into the tree.
            return Err(Error::invalid(
                "the keyspace holds keys in the range of the load, and its value file writes \
                 pointers back",
                "put the entries one by one, or change values.gc_pointers",
            ));
        }
        let next = self.catalog.next_version(keyspace, &edit, RangeChange::default())?;
        let start = log_start.unwrap_or(manifest.log_start);
        let change = Change::Edit { id: keyspace.id, flushed_seq: seq, edit };
        self.catalog.append_edit(&mut manifest, vec![change], start)?;
        if log_start.is_some() {
            manifest.log_start = start;
            self.catalog.durable_seq.fetch_max(seq, AcqRel);
        }
        manifest.flushed.insert(keyspace.id, seq);
        keyspace.swap_version(next, 0);
        self.schedule.stir(keyspace.id);
        self.pressure.refresh([keyspace]);
        Ok(())
    }
}

fn meets_any(tables: &[Arc<Table>], shape: &runstone_policy::shape::Shape) -> bool {
    let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return false };
    shape.tables().any(|(_, table)| table.overlaps(&first.min_key, &last.max_key))
}

/// The cutter for a load, which cuts tables as if the whole tree were written again. The size of
/// the load is not known, so cuts by prefix assume that it has no end.
fn cutter(cut: Cut) -> Cutter {
    Cutter::new(cut, u64::MAX, u64::MAX)
}
