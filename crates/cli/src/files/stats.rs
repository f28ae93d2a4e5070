//! The sizes and counters of a store of files. Counters begin at zero at each open, so the counters
//! of a store that is opened only to print them are mostly zero. If an application has the store
//! open, its counters are read instead.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use runstone::unstable;
use runstone::{Keyspace, LiveState, MetricsSnapshot, Store, ValueUsage};
use runstone_policy::shape::Table;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::keyspaces;
use crate::layout::plural;
use crate::live;
use crate::opened::Figures;
use crate::output::{columns, duration, size};
use crate::range::Range;

/// The process that measured the printed numbers.
pub enum Measured {
    /// This process.
    Here(Box<MetricsSnapshot>),
    /// The process that has the store open.
    There(Box<LiveState>),
    /// The process that has the store open, which does not report its counters.
    Untold,
}

impl Measured {
    /// Reads the counters of another process that has the store open, if `beside` names the store's
    /// directory; else those of this process.
    pub fn of(store: &Store, beside: Option<&Path>) -> Result<Measured> {
        let Some(path) = beside else { return Ok(Measured::Here(Box::new(store.metrics()))) };
        let told = live::told(path)?;
        Ok(told.map_or(Measured::Untold, |state| Measured::There(Box::new(state))))
    }

    fn metrics(&self) -> Option<&MetricsSnapshot> {
        match self {
            Measured::Here(metrics) => Some(metrics),
            Measured::There(state) => Some(&state.metrics),
            Measured::Untold => None,
        }
    }

    /// The owner of the counters, and since when they have counted.
    fn since(&self) -> String {
        match self {
            Measured::There(state) => {
                let age = duration(state.age);
                format!("since process {} opened it, as of {age} ago", state.process)
            }
            _ => "since it was opened".to_string(),
        }
    }

    fn writer(&self) -> Value {
        match self {
            Measured::There(state) => json!({
                "process": state.process,
                "written_ms": state.written_ms,
                "age_ms": state.age.as_millis() as u64,
            }),
            _ => Value::Null,
        }
    }
}

/// Numbers of one keyspace.
struct KeyspaceStats {
    tables: u64,
    runs: u64,
    bytes: u64,
    entries: u64,
    tombstones: u64,
    range_deletes: u64,
    expiring: u64,
    /// About how many of these entries have expired.
    expired: u64,
    /// About how many keys the range contains, including those in memtables.
    about: u64,
}

/// The statistics of the tables that overlap the range.
fn keyspace_stats(keyspace: &Keyspace, range: &Range) -> Result<KeyspaceStats> {
    let shape = unstable::shape(keyspace);
    let meets = |table: &Table| range.meets(&table.min_key, &table.max_key);
    let tables = || shape.tables().map(|(_, table)| table).filter(|table| meets(table));
    let sum = |pick: fn(&Table) -> u64| tables().map(|table| pick(table)).sum();
    let now_ms = now_ms();
    let runs = shape.levels.iter().flat_map(|level| level.runs());
    let about = match range.is_empty() {
        true => 0,
        false => keyspace.approximate_count(range.bounds())?,
    };
    Ok(KeyspaceStats {
        about,
        tables: tables().count() as u64,
        runs: runs.filter(|run| run.tables.iter().any(|table| meets(table))).count() as u64,
        bytes: sum(|table| table.bytes),
        entries: sum(|table| table.entries),
        tombstones: sum(|table| table.tombstones),
        range_deletes: sum(|table| table.range_deletes),
        expiring: sum(|table| table.expiries.entries),
        expired: tables().map(|table| table.expiries.expired(now_ms)).sum(),
    })
}

/// Statistics of one keyspace or of all, over the tables that overlap the range. The shell uses
/// this function too.
pub fn figures(
    store: &Store,
    beside: Option<&Path>,
    keyspace: Option<&str>,
    range: &Range,
) -> Result<Figures> {
    let names = keyspace.map_or_else(|| store.keyspaces(), |name| vec![name.to_string()]);
    let keyspaces = names.iter().map(|name| keyspaces::find(store, name));
    let keyspaces: Vec<Keyspace> = keyspaces.collect::<Result<_>>()?;
    let stats = keyspaces.iter().map(|keyspace| keyspace_stats(keyspace, range));
    let stats: Vec<KeyspaceStats> = stats.collect::<Result<_>>()?;
    let measured = Measured::of(store, beside)?;
    let text = to_text(store, &measured, (&keyspaces, &stats), range.is_everything());
    Ok(Figures { text, json: to_json(store, &measured, &keyspaces, &stats) })
}

fn to_json(
    store: &Store,
    measured: &Measured,
    keyspaces: &[Keyspace],
    stats: &[KeyspaceStats],
) -> Value {
    let object = |(keyspace, stats): (&Keyspace, &KeyspaceStats)| {
        json!({
            "name": keyspace.name(),
            "tables": stats.tables,
            "runs": stats.runs,
            "bytes": stats.bytes,
            "entries": stats.entries,
            "tombstones": stats.tombstones,
            "range_deletes": stats.range_deletes,
            "expiring": stats.expiring,
            "expired": stats.expired,
            "about_keys": stats.about,
            "memtable_bytes": keyspace.memtable_bytes(),
            "values": keyspace.value_usage(),
            "options": &*keyspace.options(),
            "missing_compaction_filter": keyspace.missing_compaction_filter(),
        })
    };
    json!({
        "keyspaces": keyspaces.iter().zip(stats).map(object).collect::<Vec<_>>(),
        "disk_bytes": store.disk_bytes(),
        "last_sequence_number": runstone::unstable::visible_seq(store),
        "writer": measured.writer(),
        "metrics": measured.metrics(),
    })
}

fn to_text(
    store: &Store,
    measured: &Measured,
    (keyspaces, stats): (&[Keyspace], &[KeyspaceStats]),
    is_everything: bool,
) -> String {
    let row = |(keyspace, stats): (&Keyspace, &KeyspaceStats)| {
        vec![
            keyspace.name().to_string(),
            stats.tables.to_string(),
            stats.runs.to_string(),
            size(stats.bytes),
            stats.entries.to_string(),
            stats.tombstones.to_string(),
            size(keyspace.memtable_bytes()),
            keyspace.options().policy.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = keyspaces.iter().zip(stats).map(row).collect();
    let header =
        ["keyspace", "tables", "runs", "bytes", "entries", "tombstones", "not flushed", "policy"];
    let mut text = columns(&header, &rows);
    text.push_str(&measured_text(store, measured));
    for keyspace in keyspaces {
        let features = keyspaces::features(keyspace);
        if !features.is_empty() {
            text.push_str(&format!("{}: {}\n", keyspace.name(), features.join("; ")));
        }
    }
    for (keyspace, stats) in keyspaces.iter().zip(stats) {
        if !is_everything {
            let keys = plural(stats.about, "key");
            text.push_str(&format!("the range holds about {keys} of {}\n", keyspace.name()));
        }
        text.push_str(&ranges_and_expiry(keyspace.name(), stats));
    }
    keyspaces.iter().for_each(|keyspace| text.push_str(&values_text(keyspace)));
    if let Some(pressure) = measured.metrics().map(|metrics| &metrics.pressure)
        && pressure.level.parts() > 0
    {
        let (permille, cause) = (pressure.level.parts(), &pressure.cause);
        text.push_str(&format!("writers are held back: {permille} of 1000, by {cause}\n"));
    }
    text
}

/// The lines about the whole store.
fn measured_text(store: &Store, measured: &Measured) -> String {
    // The log of another process was not written by this store, so its size comes from that
    // process.
    let log_bytes = match measured {
        Measured::There(state) => state.metrics.wal_bytes,
        _ => 0,
    };
    let disk = size(store.disk_bytes() + log_bytes);
    let seq = runstone::unstable::visible_seq(store);
    let Some(metrics) = measured.metrics() else {
        return format!(
            "\non disk {disk} without its log; last sequence number {seq}\n\
             log, memory and counters: not told by the process that has the store open\n"
        );
    };
    let (memory, counters) = (&metrics.memory, &metrics.counters);
    format!(
        "\non disk {disk}, of it log {}; last sequence number {seq}; to be compacted {}\n\
         {}memory: cache {}, index and filters {}, buffers {} of a budget of {}\n\
         {}: {}, {}, {}, {}; \
         user bytes {}, write amplification {:.2}\n",
        size(metrics.wal_bytes),
        size(metrics.compaction_debt_bytes),
        kept_text(metrics),
        size(memory.cache_bytes),
        size(memory.pinned_bytes),
        size(memory.memtable_bytes),
        size(memory.budget_bytes),
        measured.since(),
        plural(counters.gets, "get"),
        plural(counters.writes, "write"),
        plural(counters.flushes, "flush"),
        plural(counters.compactions, "compaction"),
        size(counters.user_bytes_written),
        metrics.write_amplification,
    )
}

/// The line about space that is kept for readers of the history and for followers.
fn kept_text(metrics: &MetricsSnapshot) -> String {
    let (log, held) = (metrics.kept_log_bytes, metrics.follower_held_bytes);
    let mut parts = Vec::new();
    if log > 0 {
        parts.push(format!("{} of log", size(log)));
    }
    if held > 0 {
        parts.push(format!("{} for {}", size(held), plural(metrics.followers, "follower")));
    }
    let given_up = metrics.counters.kept_log_bytes_given_up;
    if given_up > 0 {
        parts.push(format!("{} of log were given up on a full disk", size(given_up)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("besides, kept for readers: {}\n", parts.join(", ")),
    }
}

/// The line of a keyspace whose tables contain range deletes, or entries that expire.
fn ranges_and_expiry(name: &str, stats: &KeyspaceStats) -> String {
    let mut parts = Vec::new();
    if stats.range_deletes > 0 {
        parts.push(plural(stats.range_deletes, "range delete"));
    }
    if stats.expiring > 0 {
        let (expiring, expired) = (plural(stats.expiring, "entry"), stats.expired);
        parts.push(format!("{expiring} with an expiry, about {expired} expired"));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("tables of {name}: {}\n", parts.join("; ")),
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// One line per value file.
fn values_text(keyspace: &Keyspace) -> String {
    let name = keyspace.name();
    let line = |file: &ValueUsage| {
        format!(
            "values of {name}: {} ({}) holds {} in {}, garbage {}, for snapshots {}, \
             cold {}, on disk {}\n",
            file.file,
            file.placement.name(),
            size(file.bytes()),
            plural(file.groups.len() as u64, "group"),
            size(file.garbage_bytes()),
            size(file.sum(|group| group.pinned_bytes)),
            size(file.sum(|group| group.cold_bytes)),
            size(file.disk_bytes),
        )
    };
    keyspace.value_usage().iter().map(line).collect()
}
