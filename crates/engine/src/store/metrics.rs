//! Gathers the counters and sizes of a store at one moment.

use std::sync::Arc;
use std::time::Instant;

use runstone_policy::policy::compaction_debt_bytes;
use runstone_storage::Category;

use crate::catalog::keyspace::KeyspaceCore;
use crate::metrics::{IoCounters, KeyspaceHeat, KeyspaceMetrics, MetricsSnapshot};
use crate::store::engine::Engine;
use crate::tree::manifest::Manifest;

impl Engine {
    /// The values of all metrics; zeros in a fork, where locks may be held for ever.
    pub(crate) fn metrics_snapshot(&self) -> MetricsSnapshot {
        if self.env.check_process().is_err() {
            return MetricsSnapshot::default();
        }
        let counters = self.env.metrics.counters();
        let io: Vec<IoCounters> = Category::ALL
            .iter()
            .map(|category| {
                let counted = self.env.storage.counters().snapshot(*category);
                IoCounters {
                    category: category.name().into(),
                    written_bytes: counted.written_bytes,
                    read_bytes: counted.read_bytes,
                    writes: counted.writes,
                    reads: counted.reads,
                    syncs: counted.syncs,
                }
            })
            .collect();
        let written: u64 = io.iter().map(|io| io.written_bytes).sum();
        let keyspaces = self.catalog.keyspaces.read().clone();
        let filter_bits = keyspaces.values().map(filter_bits).sum();
        let keyspaces: Vec<KeyspaceMetrics> = keyspaces.values().map(keyspace_metrics).collect();
        let sum = |of: fn(&KeyspaceMetrics) -> u64| keyspaces.iter().map(of).sum();
        let user_bytes = counters.user_bytes_written.max(1);
        let (table_file_bytes, peak_table_file_bytes) = self.catalog.tables.disk.now_and_peak();
        let held = self.committer.most_held();
        let leases = self.catalog.tables.leases.usage();
        MetricsSnapshot {
            memory: self.catalog.tables.cache.usage(),
            io,
            table_bytes: sum(|keyspace| keyspace.table_bytes),
            table_file_bytes,
            peak_table_file_bytes,
            table_entries: sum(|keyspace| keyspace.table_entries),
            filter_bits,
            wal_bytes: self.committer.log_bytes(),
            commit_lock_peak_entries: held.entries,
            commit_lock_peak_bytes: held.bytes,
            followers: leases.leases,
            follower_held_bytes: leases.bytes,
            kept_log_bytes: self.committer.kept().bytes(),
            follower_leases_revoked: leases.revoked,
            write_amplification: (written.saturating_mul(1000) / user_bytes) as f64 / 1000.0,
            pressure: self.env.throttle.report(),
            background_io_limit_bytes: self.env.io_rate.now(),
            compaction_debt_bytes: sum(|keyspace| keyspace.compaction_debt_bytes),
            keyspaces,
            commit: self.env.metrics.commit_ns.percentiles(),
            get: self.env.metrics.get_ns.percentiles(),
            stall: self.env.metrics.stall_ns.percentiles(),
            sync: self.env.metrics.sync_ns.percentiles(),
            counters,
        }
    }

    /// The keys that are read most, of the keyspaces with the most reads. Empty in a fork.
    pub(crate) fn heat(&self, now: Instant) -> Vec<KeyspaceHeat> {
        if self.env.check_process().is_err() {
            return Vec::new();
        }
        let keyspaces = self.catalog.keyspaces.read().clone();
        let name = |id| keyspaces.get(&id).map(|keyspace| keyspace.name.clone());
        self.env.metrics.heat.told(now, name)
    }

    /// Bytes of the value files of all keyspaces.
    pub(crate) fn value_file_bytes(&self) -> u64 {
        // Copied, so that the lock is free while the system is queried for each file.
        let keyspaces = self.catalog.keyspaces.read().clone();
        keyspaces.values().map(value_file_bytes).sum()
    }

    /// Bytes that the store uses on disk now: tables, values, log and manifest. Zero in a fork.
    pub(crate) fn disk_bytes(&self) -> u64 {
        if self.env.check_process().is_err() {
            return 0;
        }
        let log = self.committer.log_bytes();
        let manifest = self.catalog.manifest.lock().log.as_ref().map_or(0, Manifest::bytes);
        let tables: u64 = self
            .catalog
            .keyspaces
            .read()
            .values()
            .map(|keyspace| keyspace.view.load().version.shape.bytes())
            .sum();
        tables + self.value_file_bytes() + log + manifest
    }
}

fn filter_bits(keyspace: &Arc<KeyspaceCore>) -> u64 {
    keyspace.view.load().version.shape.tables().map(|(_, table)| table.filter_bits).sum()
}

fn value_file_bytes(keyspace: &Arc<KeyspaceCore>) -> u64 {
    keyspace.values.load_full().all().map(|store| store.file_bytes()).sum()
}

pub(super) fn debt_bytes(keyspace: &KeyspaceCore) -> u64 {
    let (view, options) = (keyspace.view.load(), keyspace.options.load());
    let policy = options.compaction_policy().ok();
    let debt = |policy| compaction_debt_bytes(&view.version.shape, policy, &options.shape);
    policy.map_or(0, debt)
}

fn keyspace_metrics(keyspace: &Arc<KeyspaceCore>) -> KeyspaceMetrics {
    let view = keyspace.view.load_full();
    let shape = &view.version.shape;
    keyspace.work.add_to(KeyspaceMetrics {
        name: keyspace.name.clone(),
        tables: shape.tables().count() as u64,
        runs: shape.levels.iter().map(|level| level.runs().len() as u64).sum(),
        level_0_runs: shape.level(0).runs().len() as u64,
        table_bytes: shape.bytes(),
        table_entries: shape.tables().map(|(_, table)| table.entries).sum(),
        memtable_bytes: view.memtable_bytes(),
        value_file_bytes: value_file_bytes(keyspace),
        compaction_debt_bytes: debt_bytes(keyspace),
        ..KeyspaceMetrics::default()
    })
}
