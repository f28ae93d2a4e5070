//! Values of 4 KiB that are replaced again and again, once inline and once separated from the tree.
//! Compactions rewrite each inline value. A separated value is written once, and again when its
//! group is collected. The program prints the bytes that each case writes, and the bytes that it
//! takes on disk.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::{
    Compression, KeyspaceOptions, MetricsSnapshot, Result, Store, ValueOptions, ValuePlacement,
};

const DOCUMENTS: u64 = 500;
const ROUNDS: u64 = 8;
const VALUE_BYTES: usize = 4096;

/// Bytes written to tables and value files; the log gets the same bytes in both cases.
fn written(metrics: &MetricsSnapshot) -> u64 {
    let files = metrics.io.iter().filter(|io| ["table", "value"].contains(&&*io.category));
    files.map(|io| io.written_bytes).sum()
}

/// Loads and updates, and returns bytes written per byte put, and bytes on disk.
fn run(placement: ValuePlacement) -> Result<(f64, u64)> {
    let values =
        ValueOptions::default().placement(placement).separate_at(1024).groups(4).reserve(0.5);
    // Small levels and tables, so that a few megabytes have the shape of a large store.
    let options = KeyspaceOptions::default()
        .policy(Policy::fragmented_leveling().base_bytes(1 << 20).table_bytes(128 << 10))
        .values(values)
        .compression(vec![Compression::None])
        .write_buffer_bytes(128 << 10);
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).keyspace(options).open()?;
    for round in 0..ROUNDS {
        for document in 0..DOCUMENTS {
            // The documents are written in a scattered order.
            let key = (document * 7919 % DOCUMENTS).to_be_bytes();
            store.put(key, [round as u8; VALUE_BYTES])?;
        }
    }
    store.compact()?;
    store.collect_values()?;
    assert!(
        store
            .default_keyspace()
            .iter()?
            .values()
            .all(|value| { value.is_ok_and(|value| *value == [ROUNDS as u8 - 1; VALUE_BYTES]) })
    );
    let put = ROUNDS * DOCUMENTS * VALUE_BYTES as u64;
    let metrics = store.metrics();
    let of_values = store.default_keyspace().value_usage();
    let on_disk = metrics.table_bytes + of_values.iter().map(|usage| usage.disk_bytes).sum::<u64>();
    store.close()?;
    Ok((written(&metrics) as f64 / put as f64, on_disk))
}

pub(crate) fn main() -> Result<()> {
    let (inline, inline_disk) = run(ValuePlacement::Inline)?;
    let (separated, separated_disk) = run(ValuePlacement::HashGrouped)?;
    println!("inline: {inline:.2} bytes written per byte put, {} KiB on disk", inline_disk >> 10);
    println!("separated: {separated:.2}, {} KiB on disk", separated_disk >> 10);
    assert!(separated < inline, "separation writes less");
    assert!(separated_disk > inline_disk, "and takes space for garbage");
    Ok(())
}
