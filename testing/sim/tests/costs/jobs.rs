//! What the search for a job, and a write that is held up, cost with many keyspaces and readers.

use allocation_counter::measure;
use runstone::{Keyspace, KeyspaceOptions, Snapshot, Store};

use crate::READS;

/// A value file of a keyspace with these options is far larger than its limit, because of the
/// snapshots.
const CROWDED: &str = "[values]\nplacement = \"hash-grouped\"\nseparate_at = 100\n\
                       slot_bytes = 4096\ngroups = 1";

fn settle(store: &Store) {
    while store.run_one_job().expect("runs") {}
}

/// Overwrites large values in each keyspace, and keeps a snapshot of each round.
fn crowd(store: &Store, keyspaces: &[Keyspace]) -> Vec<Snapshot> {
    let write = |keyspace: &Keyspace| {
        (0..40u8).for_each(|number| keyspace.put([number], [0; 1_000]).expect("puts"));
    };
    let one = |_| {
        keyspaces.iter().for_each(write);
        store.flush().expect("flushes");
        settle(store);
        store.snapshot()
    };
    (0..6).map(one).collect()
}

/// Takes a snapshot after each of `count` writes.
fn snapshots(store: &Store, count: u64) -> Vec<Snapshot> {
    let put = |number: u64| {
        store.put(number.to_be_bytes(), "value").expect("puts");
        store.snapshot()
    };
    (0..count).map(put).collect()
}

/// The bytes that a search allocates if it finds no job in `count` keyspaces. Snapshots hold the
/// garbage in all their value files.
fn searched(count: u64) -> u64 {
    let store = crate::open(KeyspaceOptions::default());
    let options = KeyspaceOptions::from_toml(CROWDED).expect("options");
    let make = |number| {
        let options = Some(options.clone());
        store.open_keyspace(&format!("keyspace{number}"), options).expect("made")
    };
    let keyspaces: Vec<Keyspace> = (0..count).map(make).collect();
    let held = crowd(&store, &keyspaces);
    let many = snapshots(&store, 2_000);
    settle(&store);
    let allocated = measure(|| assert!(!store.run_one_job().expect("searches"), "none is due"));
    let files = keyspaces.iter().map(|one| one.value_usage()[0].sum(|group| group.pinned_bytes));
    assert!(files.min() > Some(100_000), "the snapshots hold garbage");
    drop((held, many));
    allocated.bytes_total
}

/// Once, each search made a list of all snapshots and cursors for each keyspace with a value file,
/// under the lock of the jobs.
#[test]
fn a_search_takes_the_readers_once_for_all_keyspaces() {
    let (few, many) = (searched(3), searched(60));
    println!("{few} bytes a search with few keyspaces, {many} with many");
    assert!(many < 2 * few, "{many} bytes a search with many keyspaces, {few} with few");
}

/// The bytes that a put allocates while snapshots hold more than half of the reserve for values.
fn held_up(count: u64) -> u64 {
    let store = crate::open(KeyspaceOptions::default());
    let more = "capacity_bytes = 1000000\nreserve = 0.3\nwhen_full = \"stall\"\nstall_ms = 1";
    let options = KeyspaceOptions::from_toml(&format!("{CROWDED}\n{more}")).expect("options");
    let keyspace = store.open_keyspace("values", Some(options)).expect("made");
    let write = || {
        (0..250u8).for_each(|number| keyspace.put([number], [0; 1_000]).expect("puts"));
        store.flush().expect("flushes");
        store.snapshot()
    };
    let held = [write(), write()];
    store.collect_values().expect("collects");
    let many = snapshots(&store, count);
    let put = || (0..READS).for_each(|number| store.put(number.to_be_bytes(), "").expect("puts"));
    put();
    let allocated = measure(put);
    let metrics = store.metrics();
    assert_eq!(metrics.pressure.cause, "snapshots hold the reserve for values", "{metrics:?}");
    drop((held, many));
    put();
    assert_eq!(store.metrics().pressure.cause, "none");
    allocated.bytes_total / READS
}

/// Once, each put made a list of all snapshots and cursors while they held so much of the reserve.
#[test]
fn a_put_that_snapshots_hold_up_costs_the_same_with_any_number_of_them() {
    let (few, many) = (held_up(10), held_up(10_000));
    println!("{few} bytes a put with few snapshots, {many} with many");
    assert!(many < 2 * few.max(512), "{many} bytes a put with many snapshots, {few} with few");
}
