//! What a store of files holds and measures. Counters begin at each open, so those of a store that
//! is opened only for this are mostly zero; an application prints its own with `metrics()`.

use runstone::{Keyspace, Store};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::output::{columns, size};

/// Numbers of one keyspace.
struct KeyspaceStats {
    tables: u64,
    runs: u64,
    bytes: u64,
    entries: u64,
    tombstones: u64,
}

fn keyspace_stats(keyspace: &Keyspace) -> KeyspaceStats {
    let shape = keyspace.shape();
    let sum = |pick: fn(&runstone::policy::shape::Table) -> u64| {
        shape.tables().map(|(_, table)| pick(table)).sum()
    };
    KeyspaceStats {
        tables: shape.tables().count() as u64,
        runs: shape.levels.iter().map(|level| level.runs().len() as u64).sum(),
        bytes: sum(|table| table.bytes),
        entries: sum(|table| table.entries),
        tombstones: sum(|table| table.tombstones),
    }
}

/// The object for machines.
pub fn to_json(store: &Store) -> Result<Value> {
    let mut keyspaces = Vec::new();
    for name in store.keyspaces() {
        let keyspace = store.keyspace(&name)?;
        let stats = keyspace_stats(&keyspace);
        keyspaces.push(json!({
            "name": name,
            "tables": stats.tables,
            "runs": stats.runs,
            "bytes": stats.bytes,
            "entries": stats.entries,
            "tombstones": stats.tombstones,
            "memtable_bytes": keyspace.memtable_bytes(),
            "values": keyspace.value_usage(),
            "options": &*keyspace.options(),
        }));
    }
    Ok(json!({
        "keyspaces": keyspaces,
        "disk_bytes": store.disk_bytes(),
        "last_sequence_number": runstone::unstable::visible_seq(store),
        "metrics": store.metrics(),
    }))
}

/// The lines for people; the shell prints them too.
pub fn to_text(store: &Store) -> Result<String> {
    let mut rows = Vec::new();
    for name in store.keyspaces() {
        let keyspace = store.keyspace(&name)?;
        let stats = keyspace_stats(&keyspace);
        rows.push(vec![
            name,
            stats.tables.to_string(),
            stats.runs.to_string(),
            size(stats.bytes),
            stats.entries.to_string(),
            stats.tombstones.to_string(),
            size(keyspace.memtable_bytes()),
            keyspace.options().policy.clone(),
        ]);
    }
    let header =
        ["keyspace", "tables", "runs", "bytes", "entries", "tombstones", "not flushed", "policy"];
    let mut text = columns(&header, &rows);
    let metrics = store.metrics();
    let (memory, counters) = (&metrics.memory, &metrics.counters);
    text.push_str(&format!(
        "\non disk {}, of it log {}; last sequence number {}; to be compacted {}\n\
         memory: cache {}, index and filters {}, buffers {} of a budget of {}\n\
         since it was opened: {} gets, {} writes, {} flushes, {} compactions; \
         user bytes {}, write amplification {:.2}\n",
        size(store.disk_bytes()),
        size(metrics.wal_bytes),
        runstone::unstable::visible_seq(store),
        size(metrics.compaction_debt_bytes),
        size(memory.cache_bytes),
        size(memory.pinned_bytes),
        size(memory.memtable_bytes),
        size(memory.budget_bytes),
        counters.gets,
        counters.writes,
        counters.flushes,
        counters.compactions,
        size(counters.user_bytes_written),
        metrics.write_amplification_permille as f64 / 1000.0,
    ));
    text.push_str(&values_text(store)?);
    if metrics.pressure.permille > 0 {
        let (permille, cause) = (metrics.pressure.permille, metrics.pressure.cause);
        text.push_str(&format!("writers are held back: {permille} of 1000, by {cause}\n"));
    }
    Ok(text)
}

/// One line per value file.
fn values_text(store: &Store) -> Result<String> {
    let mut text = String::new();
    for name in store.keyspaces() {
        for file in store.keyspace(&name)?.value_usage() {
            text.push_str(&format!(
                "values of {name}: {} ({}) holds {} in {} groups, garbage {}, for snapshots {}, \
                 cold {}, on disk {}\n",
                file.file,
                file.placement.name(),
                size(file.bytes()),
                file.groups.len(),
                size(file.garbage_bytes()),
                size(file.sum(|group| group.pinned_bytes)),
                size(file.sum(|group| group.cold_bytes)),
                size(file.disk_bytes),
            ));
        }
    }
    Ok(text)
}
