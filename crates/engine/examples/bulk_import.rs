//! Loads sorted data without the log: from one iterator, or from files. Several threads or another
//! process write the files, and then the store ingests all of them together.

use std::thread;

use runstone::{KeyspaceOptions, Result, SortedWriter, Store};

const ENTRIES: u64 = 20_000;

fn key(number: u64) -> String {
    format!("key/{number:08}")
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::builder(directory.path().join("store")).open()?;

    // All entries of a load become visible and durable at once, or none does.
    let plain = store.open_keyspace("plain", None)?;
    let loaded = plain.bulk_load((0..ENTRIES).map(|number| (key(number), "value")))?;
    assert_eq!(loaded, ENTRIES);

    // The keys of the source must ascend. If they do not, the error names both keys, and nothing is
    // stored.
    let refused = plain.bulk_load([("zz", ""), ("za", "")]).expect_err("za comes before zz");
    assert!(refused.is_invalid() && !plain.contains_key("zz")?);
    println!("refused: {refused}");

    // Four threads write a file each; their ranges do not overlap.
    let options = KeyspaceOptions::default();
    let write = |part: u64| {
        let path = directory.path().join(format!("part-{part}"));
        let mut writer = SortedWriter::create(&path, &options)?;
        for number in part * ENTRIES / 4..(part + 1) * ENTRIES / 4 {
            writer.put(key(number), "value")?;
        }
        let file = writer.finish()?;
        println!("part {part}: {} entries in {} bytes", file.entries, file.bytes);
        Ok(path)
    };
    let files = thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|part| scope.spawn(move || write(part)));
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into_iter()
            .collect::<Result<Vec<_>>>()
    })?;
    let from_files = store.open_keyspace("from-files", Some(options.clone()))?;
    assert_eq!(from_files.ingest(&files)?, ENTRIES);
    assert_eq!(from_files.last_key_value()?, plain.last_key_value()?);

    // Neither load went through the log or a memtable.
    let counters = store.metrics().counters;
    assert_eq!((counters.bulk_loads, counters.flushes), (2, 0));
    println!("loaded {} bytes of tables", counters.bulk_bytes_written);
    store.close()
}
