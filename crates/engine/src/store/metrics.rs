//! Gathers the counters and sizes of a store at one moment.

use std::sync::Arc;

use runstone_policy::policy::compaction_debt_bytes;
use runstone_storage::Category;

use crate::base::metrics::{IoCounters, MetricsSnapshot};
use crate::store::engine::Engine;
use crate::tree::manifest::Manifest;

impl Engine {
    pub(crate) fn metrics_snapshot(&self) -> MetricsSnapshot {
        let counters = self.env.metrics.counters();
        let io: Vec<IoCounters> = Category::ALL
            .iter()
            .map(|category| {
                let counted = self.env.storage.counters().snapshot(*category);
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
        let keyspaces = self.catalog.keyspaces.read().clone();
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
        let (table_file_bytes, peak_table_file_bytes) = self.catalog.tables.disk.now_and_peak();
        let held = self.committer.most_held();
        MetricsSnapshot {
            memory: self.catalog.tables.cache.usage(),
            io,
            table_bytes,
            table_file_bytes,
            peak_table_file_bytes,
            table_entries,
            filter_bits,
            wal_bytes: self.committer.log_bytes(),
            commit_lock_peak_entries: held.entries,
            commit_lock_peak_bytes: held.bytes,
            write_amplification_permille: written.saturating_mul(1000) / user_bytes,
            pressure: self.env.throttle.report(),
            compaction_debt_bytes: compaction_debt,
            commit: self.env.metrics.commit_ns.percentiles(),
            get: self.env.metrics.get_ns.percentiles(),
            stall: self.env.metrics.stall_ns.percentiles(),
            sync: self.env.metrics.sync_ns.percentiles(),
            counters,
        }
    }

    /// Bytes of the value files of all keyspaces.
    pub(crate) fn value_file_bytes(&self) -> u64 {
        let keyspaces = self.catalog.keyspaces.read();
        let values = keyspaces.values().map(|keyspace| keyspace.values.load_full());
        values.map(|values| values.all().map(|store| store.file_bytes()).sum::<u64>()).sum()
    }

    /// Bytes that the store takes on disk now: tables, values, log and manifest.
    pub(crate) fn disk_bytes(&self) -> u64 {
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
