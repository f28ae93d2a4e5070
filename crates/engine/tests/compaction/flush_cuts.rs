//! Flushes that the partitioner cuts into one run of several tables, and the effect on compactions
//! that are split by whole tables.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Compression, KeyspaceOptions, Options, Store, SubCompactions, ValuePlacement,
};
use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::shape::Level;

const THETA: u64 = 8 << 10;

fn options(partitioner: Partitioner, are_cut: bool) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named("universal"));
    keyspace.partition_flushes = are_cut;
    keyspace.sub_compactions = SubCompactions::Components;
    keyspace.compression = vec![Compression::None];
    keyspace.block_bytes = 1024;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.partitioner = partitioner;
    shape.table_bytes = THETA;
    shape.split_bytes = THETA / 2;
    Options::default()
        .background(Background::Manual)
        .compaction_slices(16)
        .seed(5)
        .keyspace(keyspace)
}

fn open(partitioner: Partitioner, are_cut: bool) -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options(partitioner, are_cut)).unwrap()
}

/// Flushes 2,000 entries of about 60 KiB, spread over all keys.
fn write(store: &Store, round: u8) {
    for i in 0..2_000u64 {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        store.put(key, [round; 22]).unwrap();
    }
    store.flush().unwrap();
}

/// The number of tables of each run of level 0, newest run first. Checks the order of the tables.
fn runs(store: &Store) -> Vec<usize> {
    let shape = unstable::shape(store.default_keyspace());
    let Level::Runs(runs) = shape.level(0) else { panic!("level 0 has runs") };
    for run in runs {
        for pair in run.tables.windows(2) {
            assert!(pair[0].max_key < pair[1].min_key, "tables of a run are in key order");
        }
    }
    runs.iter().map(|run| run.tables.len()).collect()
}

#[test]
fn every_partitioner_cuts_flushes_into_a_run() {
    for partitioner in PARTITIONERS {
        let store = open(*partitioner, true);
        (1..=3).for_each(|round| write(&store, round));
        let runs = runs(&store);
        let expected = match partitioner {
            Partitioner::None | Partitioner::Prefix => 1..=1,
            _ => 6..=20,
        };
        assert!(runs.iter().all(|tables| expected.contains(tables)), "{partitioner:?} {runs:?}");
        assert_eq!(runs, [runs[0]; 3], "{partitioner:?}: the same keys, the same cuts");
        assert_eq!(store.metrics().counters.flushes, 3);
        assert_eq!(store.default_keyspace().iter().unwrap().count(), 2_000);
        assert!(store.verify().unwrap().is_clean());
    }
}

/// Mao and Hristidis, section III-B: a chain of overlaps joins all tables into one part, unless
/// runs share their bounds.
#[test]
fn whole_tables_are_parts_only_if_flushes_are_cut_at_shared_bounds() {
    let largest_part = |partitioner, are_cut| {
        let store = open(partitioner, are_cut);
        (1..=4).for_each(|round| write(&store, round));
        store.wait_idle().unwrap();
        assert_eq!(runs(&store).len(), 1, "four flushes of one size are one run now");
        let counters = store.metrics().counters;
        counters.slice_critical_bytes as f64 / counters.sliced_bytes as f64
    };
    assert!(largest_part(Partitioner::GlobalRange, false) > 0.9, "a flush spans all keys");
    assert!(largest_part(Partitioner::GlobalRange, true) < 0.2);
    assert!(largest_part(Partitioner::None, true) > 0.9);
}

/// A value that goes to a value file counts as its pointer.
#[test]
fn separated_values_do_not_cut_tables() {
    let mut options = options(Partitioner::GlobalRange, true);
    let keyspace = options.keyspace.as_mut().unwrap();
    keyspace.values.placement = ValuePlacement::Vlog;
    keyspace.values.separate_at = 1_000;
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    for i in 0..100u64 {
        store.put(i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [7; 1_000]).unwrap();
    }
    store.flush().unwrap();
    assert_eq!(runs(&store), [1]);
}
