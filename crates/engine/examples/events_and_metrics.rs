//! What a store reports about itself: events to a listener as they happen, metrics on request, and
//! the same metrics as text for Prometheus.

use std::sync::{Arc, Mutex};

use runstone::storage::MemoryStorage;
use runstone::{Event, EventListener, Result, Store};

/// Keeps a line per event. The threads of the store call it, so it must be quick, and must not call
/// the store.
#[derive(Debug, Default)]
struct Journal(Mutex<Vec<String>>);

impl EventListener for Journal {
    fn on_event(&self, event: &Event) {
        let line = match event {
            Event::Flushed { keyspace, entries, bytes, .. } => {
                format!("{keyspace}: flushed {entries} entries, {bytes} bytes")
            }
            Event::Compacted { keyspace, why, input_tables, output_tables, .. } => {
                format!("{keyspace}: {input_tables} tables became {output_tables}: {why}")
            }
            Event::BackgroundError { error } => format!("{error}; {}", error.hint()),
            other => format!("{other:?}"),
        };
        self.0.lock().expect("no panic").push(line);
    }
}

pub(crate) fn main() -> Result<()> {
    let journal = Arc::new(Journal::default());
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::builder_on(storage).listener(journal.clone()).open()?;
    let before = store.metrics().counters;
    for round in 0..3 {
        for key in 0..1000 {
            store.put(format!("key/{key:04}"), format!("value {round}"))?;
        }
        store.flush()?;
    }
    store.compact()?;
    assert!(store.get("key/0007")?.is_some() && store.get("absent")?.is_none());

    let lines = journal.0.lock().expect("no panic").clone();
    lines.iter().for_each(|line| println!("{line}"));
    assert_eq!(lines.iter().filter(|line| line.contains("flushed 1000 entries")).count(), 3);
    assert!(lines.iter().any(|line| line.contains("tables became")));

    // Counters only grow, so the difference of two snapshots is what happened between them.
    let metrics = store.metrics();
    let since = metrics.counters.since(&before);
    assert_eq!((since.writes, since.gets, since.get_hits), (3000, 2, 1));
    let tables = &metrics.keyspaces[0];
    println!("{}: {} tables, {} entries", tables.name, tables.tables, tables.table_entries);
    assert_eq!(tables.table_entries, 1000);

    // What an HTTP handler would return to a scrape.
    let text = metrics.to_prometheus();
    let gets = text.lines().find(|line| line.starts_with("runstone_gets_total"));
    assert_eq!(gets, Some("runstone_gets_total 2"));
    println!("{} lines for Prometheus", text.lines().count());
    store.close()
}
