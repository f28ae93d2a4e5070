//! Compactions in slices: every number of slices produces the same files, byte by byte; tables that
//! overlap nothing are moved; no key that is hard to partition is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, CompactionInstall, Compression, KeyspaceOptions, Options, Store, SubCompactions,
};
use runstone_policy::partition::{PARTITIONERS, Partitioner};
use runstone_policy::registry::POLICIES;

const THETA: u64 = 8 << 10;

fn options(policy: &str, partitioner: Partitioner, slices: usize) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.write_buffer_bytes = 64 << 10;
    keyspace.compression = vec![Compression::None];
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.partitioner = partitioner;
    shape.table_bytes = THETA;
    shape.split_bytes = THETA / 2;
    shape.base_bytes = 64 << 10;
    shape.l0_trigger = 2;
    Options::default()
        .background(Background::Manual)
        .compaction_slices(slices)
        .seed(3)
        .keyspace(keyspace)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes in rounds, so that runs overlap, and compacts after each round.
fn fill(store: &Store, keys: &[Vec<u8>]) -> Model {
    let mut model = Model::new();
    for (round, keys) in keys.chunks(keys.len().div_ceil(9)).enumerate() {
        for (i, key) in keys.iter().enumerate() {
            if i % 11 == 3 {
                store.delete(key).unwrap();
                model.remove(key);
            } else {
                let value = vec![(i + round) as u8; 20 + i % 90];
                store.put(key, &value).unwrap();
                model.insert(key.clone(), value);
            }
        }
        store.flush().unwrap();
        store.wait_idle().unwrap();
    }
    model
}

fn check(store: &Store, model: &Model, place: &str) {
    let found: Model = store
        .default_keyspace()
        .iter()
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key, value.to_vec())).unwrap())
        .collect();
    assert!(found == *model, "{place}: {} found, {} expected", found.len(), model.len());
    for key in model.keys() {
        assert!(store.get(key).unwrap().is_some(), "{place}: {key:?}");
    }
    assert!(store.verify().unwrap().is_clean(), "{place}");
}

fn mixed(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn key_sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let numbers = mixed(6000).map(|n| n.to_be_bytes().to_vec()).collect();
    let nulls = mixed(3000).map(|n| vec![0; (n >> 55) as usize]).collect();
    let urls = mixed(6000)
        .map(|n| format!("https://example.org/{}/{:03}", n >> 62, n >> 53).into_bytes())
        .collect();
    let one = mixed(6000).map(|n| format!("same/{:02}", n >> 59).into_bytes()).collect();
    // Keys that are longer than an index entry should be, and equal in the bits that usually differ
    // first.
    let long = mixed(3000).map(|n| [&[b'p'; 600][..], &n.to_be_bytes()[..2]].concat()).collect();
    vec![
        ("numbers", numbers),
        ("trailing NULs", nulls),
        ("URLs", urls),
        ("few keys", one),
        ("one long prefix", long),
    ]
}

#[test]
fn every_partitioner_under_a_stack_and_a_leveled_policy() {
    for (name, keys) in key_sets() {
        for partitioner in PARTITIONERS {
            for policy in ["universal", "fragmented-leveling", "leveling"] {
                for mode in [std::convert::identity, by_components, with_cut_flushes] {
                    let options = mode(options(policy, *partitioner, 3));
                    let of = options.keyspace.as_ref().unwrap();
                    let mode = (of.sub_compactions, of.partition_flushes);
                    let place = format!("{name}, {partitioner:?}, {policy}, {mode:?}");
                    let storage = Arc::new(MemoryStorage::new());
                    let store = Store::open_on(storage, options).unwrap();
                    let model = fill(&store, &keys);
                    check(&store, &model, &place);
                    store.compact().unwrap();
                    check(&store, &model, &place);
                }
            }
        }
    }
}

/// The same options, with compactions installed part by part.
fn incremental(mut options: Options) -> Options {
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.compaction_install = CompactionInstall::Incremental;
    }
    options
}

/// The same options, with compactions that are split by whole tables.
fn by_components(mut options: Options) -> Options {
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.sub_compactions = SubCompactions::Components;
    }
    options
}

/// The same options, with the partitioner cutting flushes too.
fn with_cut_flushes(options: Options) -> Options {
    let mut options = by_components(options);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.partition_flushes = true;
    }
    options
}

/// Each pair is tested with two of the five sets of keys.
#[test]
fn part_by_part_under_every_partitioner_and_policy() {
    for (at, (name, keys)) in key_sets().into_iter().enumerate() {
        for (cut, partitioner) in PARTITIONERS.iter().enumerate() {
            for (rule, policy) in POLICIES.iter().enumerate() {
                let is_other = policy.own_partitioner().is_some_and(|own| own != *partitioner);
                if is_other || (at + cut + rule) % 5 > 1 {
                    continue;
                }
                let place = format!("{name}, {partitioner:?}, {}, part by part", policy.name());
                let storage = Arc::new(MemoryStorage::new());
                let mut options = incremental(options(policy.name(), *partitioner, 3));
                if at % 2 == 1 {
                    options = by_components(options);
                }
                if at % 3 == 1 {
                    options = with_cut_flushes(options);
                }
                let store = Store::open_on(storage.clone(), options.clone()).unwrap();
                let snapshot = store.snapshot();
                let model = fill(&store, &keys);
                check(&store, &model, &place);
                store.compact().unwrap();
                check(&store, &model, &place);
                assert!(snapshot_is_empty(&store, &snapshot), "{place}");
                let shape = unstable::shape(store.default_keyspace());
                assert!(shape.pending.is_none() && shape.trims.is_empty(), "{place}: {shape:?}");
                drop(snapshot);
                store.close().unwrap();
                check(&Store::open_on(storage, options).unwrap(), &model, &place);
            }
        }
    }
}

fn snapshot_is_empty(store: &Store, snapshot: &runstone::Snapshot) -> bool {
    let options = runstone::ReadOptions::default().at(snapshot);
    let mut cursor = store.default_keyspace().cursor(options).unwrap();
    cursor.seek_to_first().unwrap();
    !cursor.valid()
}

/// All table files of a store after it was filled and compacted.
fn files(options: Options) -> BTreeMap<String, Vec<u8>> {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), options).unwrap();
    let keys: Vec<Vec<u8>> = mixed(8000).map(|n| n.to_be_bytes().to_vec()).collect();
    fill(&store, &keys);
    store.compact().unwrap();
    store.close().unwrap();
    let mut files = BTreeMap::new();
    for file in storage.list().unwrap() {
        if file.name.ends_with(".table") {
            let mut bytes = vec![0; file.len_bytes as usize];
            let open = storage.open(&file.name, Category::Table).unwrap();
            open.read_at(0, &mut bytes).unwrap();
            files.insert(file.name, bytes);
        }
    }
    files
}

#[test]
fn the_number_of_slices_does_not_show_in_the_files() {
    let by_keys = [Partitioner::GlobalRange, Partitioner::LocalRange, Partitioner::Prefix];
    for partitioner in [Partitioner::Size].into_iter().chain(by_keys) {
        // Adaptive tiering cuts by prefix, whatever the partitioner.
        let policies = match partitioner {
            Partitioner::Prefix => &["universal", "leveling", "adaptive-tiering"][..],
            _ => &["universal", "leveling"],
        };
        for policy in policies {
            for install in [std::convert::identity, incremental, by_components] {
                let files = |slices| files(install(options(policy, partitioner, slices)));
                let one = files(1);
                assert!(one.len() > 8, "{partitioner:?}: {}", one.len());
                for slices in [2, 8] {
                    let many = files(slices);
                    assert_eq!(
                        one.keys().collect::<Vec<_>>(),
                        many.keys().collect::<Vec<_>>(),
                        "{partitioner:?}, {policy}, {slices} slices"
                    );
                    assert!(one == many, "{partitioner:?}, {policy}, {slices} slices");
                }
            }
        }
    }
}

#[test]
fn a_value_larger_than_a_table_and_inputs_of_tombstones_only() {
    let storage = Arc::new(MemoryStorage::new());
    let options = options("universal", Partitioner::GlobalRange, 4);
    let store = Store::open_on(storage, options).unwrap();
    for i in 0..40u32 {
        store.put(format!("key{i:03}"), vec![7; 3 * THETA as usize]).unwrap();
    }
    store.flush().unwrap();
    store.wait_idle().unwrap();
    store.compact().unwrap();
    assert_eq!(store.default_keyspace().iter().unwrap().count(), 40);
    for i in 0..40u32 {
        store.delete(format!("key{i:03}")).unwrap();
    }
    store.compact().unwrap();
    assert_eq!(
        unstable::shape(store.default_keyspace()).bytes(),
        0,
        "nothing is left of what is deleted"
    );
    store.put("again", "x").unwrap();
    store.compact().unwrap();
    assert_eq!(store.default_keyspace().iter().unwrap().count(), 1);
}

/// A user key is never split (I2), however many of its versions snapshots keep.
#[test]
fn one_user_key_larger_than_a_table() {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage, options("universal", Partitioner::GlobalRange, 4)).unwrap();
    let long = vec![b'k'; 3 * THETA as usize];
    let mut snapshots = Vec::new();
    for round in 0..60u8 {
        store.put("fat", vec![round; 1000]).unwrap();
        store.put(&long, [round]).unwrap();
        store.put(format!("zz{round:02}"), [round; 300]).unwrap();
        snapshots.push(store.snapshot());
        if round % 5 == 4 {
            store.flush().unwrap();
        }
    }
    store.compact().unwrap();
    let shape = unstable::shape(store.default_keyspace());
    let holding = |key: &[u8]| shape.tables().filter(|(_, table)| table.overlaps(key, key)).count();
    assert_eq!((holding(b"fat"), holding(&long)), (1, 1), "{shape:?}");
    assert!(shape.tables().count() > 2, "the rest is cut");
    for (round, snapshot) in (0u8..).zip(&snapshots) {
        assert_eq!(store.default_keyspace().get_at("fat", snapshot).unwrap().unwrap()[0], round);
        assert_eq!(store.default_keyspace().get_at(&long, snapshot).unwrap().unwrap()[0], round);
    }
    assert!(store.verify().unwrap().is_clean());
}

/// A compaction without inputs does nothing, and a compaction without output leaves no table.
#[test]
fn empty_compactions() {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage, options("leveling", Partitioner::GlobalRange, 4)).unwrap();
    store.compact().unwrap();
    assert_eq!(store.metrics().counters.compactions, 0);
    for round in 0..3 {
        for i in 0..2000u32 {
            match round {
                1 => store.delete(i.to_be_bytes()).unwrap(),
                _ => store.delete((i ^ 0x5500).to_be_bytes()).unwrap(),
            }
        }
        store.flush().unwrap();
    }
    store.compact().unwrap();
    assert_eq!(
        unstable::shape(store.default_keyspace()).tables().count(),
        0,
        "tombstones of nothing"
    );
    assert_eq!(store.default_keyspace().iter().unwrap().count(), 0);
}

#[test]
fn options_that_cannot_partition_are_refused_at_open() {
    let refused = |options: Options| {
        let opened = Store::open_on(Arc::new(MemoryStorage::new()), options);
        opened.expect_err("refused").to_string()
    };
    let with = |change: &dyn Fn(&mut Options, &mut KeyspaceOptions)| {
        let mut options = options("universal", Partitioner::Prefix, 1);
        let mut keyspace = options.keyspace.take().unwrap();
        change(&mut options, &mut keyspace);
        options.keyspace = Some(keyspace);
        refused(options)
    };
    let small = with(&|_, keyspace| keyspace.block_bytes = 2 * THETA as u32);
    assert!(small.contains("less than a block"), "{small}");
    let zero = with(&|options, _| options.compaction_slices = Some(0));
    assert!(zero.contains("compaction_slices is 0"), "{zero}");
    let unknown = with(&|_, keyspace| keyspace.prefix = "custom(tenant)".into());
    assert!(unknown.contains("tenant"), "{unknown}");
}

/// Only the lowest sixteenth of the key range is written again, so most tables are moved, not
/// rewritten.
#[test]
fn untouched_tables_move() {
    let storage = Arc::new(MemoryStorage::new());
    let options = options("leveling", Partitioner::GlobalRange, 2);
    let store = Store::open_on(storage, options).unwrap();
    let keys: Vec<Vec<u8>> = mixed(6000).map(|n| n.to_be_bytes().to_vec()).collect();
    for key in &keys {
        store.put(key, [1; 60]).unwrap();
    }
    store.compact().unwrap();
    let before = store.metrics().counters;
    for key in keys.iter().filter(|key| key[0] < 16) {
        store.put(key, [2; 60]).unwrap();
    }
    store.compact().unwrap();
    let done = store.metrics().counters.since(&before);
    assert!(done.bytes_moved > 4 * done.compaction_bytes_written, "{done:?}");
    assert_eq!(store.default_keyspace().iter().unwrap().count(), 6000);
    assert!(store.verify().unwrap().is_clean());
}
