//! What a demonstration cost the store that it ran on, in the words of that store.

use runstone::storage::process;
use runstone::{Keyspace, MetricsSnapshot, Store};
use serde_json::{Value, json};

use super::phases::{FULL_SCAN, Phase};
use crate::failure::Result;
use crate::output::{ratio, rounded, size};
use crate::picture::{Picture, terminal};

/// Taken before the store is closed.
pub trait Costs {
    /// A drawing of the store.
    fn picture(&self, terminal_columns: usize) -> String;
    /// Figures for people.
    fn lines(&self) -> String;
    /// Fields of the report for machines.
    fn json(&self) -> Value;
}

/// Key and value bytes that a reader sees, as the full scan among the phases tells.
pub fn live_bytes(phases: &[Phase]) -> u64 {
    let scan = phases.iter().find(|phase| phase.name == FULL_SCAN);
    scan.map_or(0, |phase| phase.bytes)
}

/// Costs of a store of files.
pub struct FileCosts {
    metrics: MetricsSnapshot,
    disk_bytes: u64,
    picture: Picture,
    live_bytes: u64,
}

impl FileCosts {
    /// Of a keyspace and its store.
    pub fn of(store: &Store, keyspace: &Keyspace, phases: &[Phase]) -> Result<FileCosts> {
        Ok(FileCosts {
            metrics: store.metrics(),
            disk_bytes: store.disk_bytes(),
            picture: Picture::of(keyspace)?,
            live_bytes: live_bytes(phases),
        })
    }

    fn written(&self, category: &str) -> u64 {
        let found = self.metrics.io.iter().find(|io| io.category == category);
        found.map_or(0, |io| io.written_bytes)
    }

    fn read(&self) -> u64 {
        self.metrics.io.iter().map(|io| io.read_bytes).sum()
    }

    fn write_amplification(&self) -> f64 {
        self.metrics.write_amplification_permille as f64 / 1000.0
    }

    fn space_amplification(&self) -> f64 {
        ratio(self.disk_bytes, self.live_bytes)
    }
}

impl Costs for FileCosts {
    fn picture(&self, terminal_columns: usize) -> String {
        terminal::draw(&self.picture, terminal_columns)
    }

    fn lines(&self) -> String {
        let (counters, memory) = (&self.metrics.counters, &self.metrics.memory);
        format!(
            "amplification: write {:.2} (written {} for {} from the user), \
             space {:.2} (on disk {} for {} live)\n\
             per get: {:.2} tables asked, {:.2} blocks searched, {:.3} read from files; \
             read from files {} in all\n\
             written: log {}, flushes {}, compactions {} (and moved {}), manifest {}; live tables {}\n\
             memory: cache {}, index and filters {}, buffers {} of a budget of {}; \
             process {} (peak {})\n",
            self.write_amplification(),
            size(self.metrics.io.iter().map(|io| io.written_bytes).sum()),
            size(counters.user_bytes_written),
            self.space_amplification(),
            size(self.disk_bytes),
            size(self.live_bytes),
            ratio(counters.tables_probed, counters.gets),
            ratio(counters.blocks_searched, counters.gets),
            ratio(counters.blocks_read, counters.gets),
            size(self.read()),
            size(self.written("wal")),
            size(counters.flush_bytes_written),
            size(counters.compaction_bytes_written),
            size(counters.bytes_moved),
            size(self.written("manifest")),
            size(self.metrics.table_bytes),
            size(memory.cache_bytes),
            size(memory.pinned_bytes),
            size(memory.memtable_bytes),
            size(memory.budget_bytes),
            size(process::resident_bytes()),
            size(process::peak_resident_bytes()),
        )
    }

    fn json(&self) -> Value {
        let counters = &self.metrics.counters;
        json!({
            "write_amplification": rounded(self.write_amplification()),
            "space_amplification": rounded(self.space_amplification()),
            "tables_per_get": rounded(ratio(counters.tables_probed, counters.gets)),
            "blocks_per_get": rounded(ratio(counters.blocks_searched, counters.gets)),
            "blocks_read_per_get": rounded(ratio(counters.blocks_read, counters.gets)),
            "bytes": {
                "user": counters.user_bytes_written,
                "wal": self.written("wal"),
                "flush": counters.flush_bytes_written,
                "compaction": counters.compaction_bytes_written,
                "moved": counters.bytes_moved,
                "manifest": self.written("manifest"),
                "read": self.read(),
                "live_tables": self.metrics.table_bytes,
                "live_user": self.live_bytes,
                "disk": self.disk_bytes,
            },
            "memory": {
                "store": self.metrics.memory,
                "resident_bytes": process::resident_bytes(),
                "peak_resident_bytes": process::peak_resident_bytes(),
            },
            "shape": self.picture.to_json(),
        })
    }
}
