//! The costs that a demonstration reports for a store of files.

use runstone::{Keyspace, MetricsSnapshot, Store};
use runstone_storage::process;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::opened::Figures;
use crate::output::{ratio, rounded, size};
use crate::picture::Picture;

/// The figures. They are taken before the store is closed.
pub fn figures(store: &Store, keyspace: &Keyspace, live_bytes: u64) -> Result<Figures> {
    let (metrics, disk_bytes) = (&store.metrics(), store.disk_bytes());
    let costs = FileCosts { metrics, disk_bytes, live_bytes };
    let mut json = costs.to_json();
    json["shape"] = Picture::of(keyspace)?.to_json();
    Ok(Figures { text: costs.to_text(), json })
}

struct FileCosts<'a> {
    metrics: &'a MetricsSnapshot,
    disk_bytes: u64,
    live_bytes: u64,
}

impl FileCosts<'_> {
    fn written(&self, category: &str) -> u64 {
        let found = self.metrics.io.iter().find(|io| io.category == category);
        found.map_or(0, |io| io.written_bytes)
    }

    fn read(&self) -> u64 {
        self.metrics.io.iter().map(|io| io.read_bytes).sum()
    }

    fn write_amplification(&self) -> f64 {
        self.metrics.write_amplification
    }

    fn space_amplification(&self) -> f64 {
        ratio(self.disk_bytes, self.live_bytes)
    }

    fn to_text(&self) -> String {
        let (counters, memory) = (&self.metrics.counters, &self.metrics.memory);
        format!(
            "amplification: write {:.2} (written {} for {} from the user), \
             space {:.2} (on disk {} for {} live)\n\
             per get: {:.2} tables probed, {:.2} blocks searched, {:.3} read from files; \
             read from files {} in all\n\
             written: log {}, flushes {}, compactions {} (and moved {}), manifest {}; \
             live tables {}\n\
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

    fn to_json(&self) -> Value {
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
        })
    }
}
