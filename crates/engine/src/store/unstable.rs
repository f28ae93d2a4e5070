//! Looks inside an open store, for pictures, reports and measurements. Semantic versioning does not
//! cover this module: any release may change it.

use std::sync::Arc;

use runstone_policy::options::Numbers;
use runstone_policy::partition::slices::{self, CellRule, Slices, slice_count};
use runstone_policy::plan::{Compaction, Plan};
use runstone_policy::policy::LevelTarget;
use runstone_policy::shape::Shape;
use runstone_storage::{Category, CountersSnapshot};
use serde::Serialize;

use crate::error::Result;
use crate::jobs::compaction::slicing::{is_sliced, parts_wanted, slice_inputs};
use crate::keys::{Kind, SeqNo, pack};
use crate::memtable;
use crate::memtable::arena::ChunkPool;
use crate::metrics::CounterValues;
use crate::options::policy::Policy;
use crate::options::store::KeyspaceOptions;
use crate::store::metrics::debt_bytes;
use crate::store::{Keyspace, Store};
use crate::wal::batch::check_sizes;

pub use crate::memory::limit::limit_bytes;

/// Metadata of a live table, for reports.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct TableDump {
    pub id: u64,
    pub level: u32,
    pub bytes: u64,
    pub entries: u64,
    pub tombstones: u64,
    pub user_bytes: u64,
}

/// How the compactions of a plan would be divided into cells and parts if `cores` cores were idle:
/// one result per compaction, in the order of the plan. A compaction that is not planned by cells
/// has no cuts and no parts. Reads the indexes of the inputs.
pub fn slices(keyspace: &Keyspace, plan: &Plan, cores: usize) -> Result<Vec<Slices>> {
    let version = Arc::clone(&keyspace.inner.view.load().version);
    let options = keyspace.inner.options.load();
    let fixed = keyspace.store.env.options.compaction_slices;
    let (mode, install) = (options.sub_compactions, options.compaction_install);
    let sliced = |compaction: &Compaction| {
        let inputs = slice_inputs(&version, compaction)?;
        let bytes: u64 = inputs.iter().map(|input| input.table.bytes).sum();
        if !is_sliced(mode, compaction.cut, bytes) {
            return Ok(Slices::default());
        }
        let prefixer = keyspace.inner.prefixer.lock().clone();
        let rule = CellRule::of(compaction, prefixer.as_ref());
        let usual_bytes = rule.usual_bytes();
        let threads = slice_count(cores, cores, bytes, usual_bytes);
        let count = parts_wanted(install, fixed, (bytes, usual_bytes), threads);
        Ok(slices::sub_compactions(mode, &inputs, rule, count))
    };
    plan.compactions.iter().map(sliced).collect()
}

/// The shape of the tree, which is all that a compaction policy sees.
pub fn shape(keyspace: &Keyspace) -> Shape {
    keyspace.inner.view.load().version.shape.clone()
}

/// The counters of [`Store::metrics`], but not its sizes and percentiles, which take longer than a
/// get. It is for measurements that read the counters at each operation.
pub fn counters(store: &Store) -> CounterValues {
    store.inner.env.metrics.counters()
}

/// The operations on the files of a category so far.
pub fn file_counters(store: &Store, category: Category) -> CountersSnapshot {
    store.inner.env.storage.counters().snapshot(category)
}

/// See [`KeyspaceMetrics::compaction_debt_bytes`](crate::metrics::KeyspaceMetrics). O(tables).
pub fn compaction_debt_bytes(keyspace: &Keyspace) -> u64 {
    debt_bytes(&keyspace.inner)
}

/// Runs one job as [`Store::run_one_job`] does, but no compaction, and a collection of values only
/// if a flush needs the room.
pub fn run_flush_or_housekeeping(store: &Store) -> Result<bool> {
    store.inner.runner.run_one(false)
}

/// All numbers of a keyspace's policy.
pub fn numbers(options: &KeyspaceOptions) -> &Numbers {
    options.numbers()
}

/// The same, to change them whatever the policy is.
pub fn numbers_mut(options: &mut KeyspaceOptions) -> &mut Numbers {
    Numbers::of_mut(&mut options.shape)
}

/// A policy by its name, with all numbers at once. It ignores those that it does not use.
pub fn policy(name: &str, numbers: Numbers) -> Policy {
    Policy { name: name.into(), options: numbers.into_options(), refused: None }
}

/// How large each level may become before the policy compacts it.
pub fn level_targets(keyspace: &Keyspace) -> Vec<LevelTarget> {
    let options = keyspace.inner.options.load();
    let view = keyspace.inner.view.load();
    match options.compaction_policy() {
        Ok(policy) => policy.targets(&view.version.shape, &options.shape),
        Err(_) => Vec::new(),
    }
}

/// Lists every live table with its level, shallow levels first.
pub fn tables(keyspace: &Keyspace) -> Result<Vec<TableDump>> {
    let view = keyspace.inner.view.load();
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

/// Refuses what [`Store::close`] refuses at once: a call from inside a callback of the store, for
/// which the close would wait, and one from a fork. A caller that closes other objects together
/// with a store calls this first, so that a refused close changes nothing.
pub fn check_caller(store: &Store) -> Result<()> {
    store.inner.env.check_caller()
}

/// The sequence number of the newest visible write.
pub fn visible_seq(store: &Store) -> SeqNo {
    store.inner.visibility.now()
}

/// A memtable without a store, so that it can be compared with other ordered maps.
#[derive(Debug)]
pub struct Memtable(memtable::Memtable);

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable(memtable::Memtable::new(&ChunkPool::new(0, None, Arc::default()), usize::MAX))
    }
}

impl Memtable {
    /// Adds a version of a key.
    ///
    /// # Errors
    /// Refuses keys of 64 KiB or more and values of 4 GiB or more.
    pub fn insert(&self, key: &[u8], seq: SeqNo, value: &[u8]) -> Result<()> {
        check_sizes(key.len(), value.len())?;
        self.0.insert(key, pack(seq, Kind::Put), value);
        Ok(())
    }

    /// Whether the key has a version numbered `seq` or lower.
    pub fn contains(&self, key: &[u8], seq: SeqNo) -> bool {
        self.0.get(key, seq).is_some()
    }
}
