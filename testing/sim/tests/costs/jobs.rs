//! What the search for a job costs with many keyspaces and many readers.

use allocation_counter::measure;
use runstone::{Keyspace, KeyspaceOptions, Snapshot, Store};

/// A file of such a keyspace takes far more than its limit, for the snapshots.
const CROWDED: &str = "[values]\nplacement = \"hash-grouped\"\nseparate_at = 100\n\
                       slot_bytes = 4096\ngroups = 1";

fn settle(store: &Store) {
    while store.run_one_job().expect("runs") {}
}

/// Overwrites large values in each keyspace, and keeps a snapshot of each time.
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

/// A snapshot of each of some writes.
fn snapshots(store: &Store, count: u64) -> Vec<Snapshot> {
    let put = |number: u64| {
        store.put(number.to_be_bytes(), "value").expect("puts");
        store.snapshot()
    };
    (0..count).map(put).collect()
}

/// The bytes that a search allocates which finds no job: there are so many keyspaces, and the
/// garbage in all their value files is held by snapshots.
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

/// Once, each search took a list of all snapshots and cursors for each keyspace with a value file,
/// under the lock of the jobs.
#[test]
fn a_search_takes_the_readers_once_for_all_keyspaces() {
    let (few, many) = (searched(3), searched(60));
    println!("{few} bytes a search with few keyspaces, {many} with many");
    assert!(many < 2 * few, "{many} bytes a search with many keyspaces, {few} with few");
}
