//! The properties that LevelDB documents, and `runstone.metrics`: all counters, for Prometheus.

use std::fmt::Write as _;

use runstone::Store;
use runstone::unstable;
use runstone_policy::shape::Shape;

/// LevelDB's number of levels.
const LEVELDB_LEVELS: usize = 7;

/// The value of a property; `None` if the property does not exist.
pub fn property(store: &Store, name: &str) -> Option<String> {
    if name == "runstone.metrics" {
        return Some(store.metrics().to_prometheus());
    }
    let name = name.strip_prefix("leveldb.")?;
    let shape = unstable::shape(store.default_keyspace());
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        return tables_at(&shape, level);
    }
    match name {
        "stats" => Some(stats(&shape)),
        "sstables" => Some(tables(&shape)),
        "approximate-memory-usage" => {
            let memory = store.metrics().memory;
            Some((memory.memtable_bytes + memory.cache_bytes).to_string())
        }
        _ => None,
    }
}

/// The number of tables of a level. Programs read one level after another until there is none, and
/// LevelDB has seven levels, including empty ones.
fn tables_at(shape: &Shape, level: &str) -> Option<String> {
    let is_number = level.bytes().all(|digit| digit.is_ascii_digit());
    let level: usize = level.parse().ok().filter(|_| is_number)?;
    let tables = shape.levels.get(level).map(|level| level.table_count());
    tables.or((level < LEVELDB_LEVELS).then_some(0)).map(|tables| tables.to_string())
}

/// One line per level: tables and megabytes.
fn stats(shape: &Shape) -> String {
    let mut text = String::from("Level  Files Size(MB)\n---------------------\n");
    for (number, level) in shape.levels.iter().enumerate().filter(|(_, level)| !level.is_empty()) {
        let megabytes = level.bytes() as f64 / f64::from(1 << 20);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number:5} {:6} {megabytes:8.0}", level.table_count());
    }
    text
}

/// Each table with its size and its first and last key.
fn tables(shape: &Shape) -> String {
    let mut text = String::new();
    for (number, level) in shape.levels.iter().enumerate() {
        let _ = writeln!(text, "--- level {number} ---");
        for table in level.tables() {
            let (first, last) = (table.min_key.escape_ascii(), table.max_key.escape_ascii());
            let _ = writeln!(text, " {}:{}['{first}' .. '{last}']", table.id, table.bytes);
        }
    }
    text
}
