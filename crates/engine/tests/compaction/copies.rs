//! Blocks that compactions copy: the content stays the same, whatever surrounds the blocks; files
//! do not depend on the number of slices; damage is found before it is copied.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::metrics::CounterValues;
use runstone::policy::Policy;
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, CompactionInstall, Compression, KeyspaceOptions, Options, ReadOptions, Store,
    ValuePlacement,
};
use runstone_policy::partition::Partitioner;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(partitioner: Partitioner, compression: Compression, slices: usize) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named("universal"));
    keyspace.write_buffer_bytes = 16 << 20;
    keyspace.block_bytes = 1 << 10;
    keyspace.compression = vec![compression];
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.partitioner = partitioner;
    shape.table_bytes = 64 << 10;
    // Nothing is compacted except by `compact`.
    shape.universal_trigger = 20;
    shape.stack_runs = 20;
    Options::default()
        .background(Background::Manual)
        .compaction_slices(slices)
        .seed(5)
        .keyspace(keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    // The value compresses by about half.
    let mut value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    value.extend(std::iter::repeat_n(round as u8, 8 + (number % 30) as usize));
    value
}

/// Writes runs that contain stretches of `stretch` keys in turn.
fn fill(store: &Store, model: &mut Model, runs: u64, stretch: u64) {
    const KEYS: u64 = 12_000;
    for run in 0..runs {
        for number in (0..KEYS).filter(|number| number / stretch % runs == run) {
            store.put(key(number), value(number, run)).unwrap();
            model.insert(key(number), value(number, run));
        }
        store.flush().unwrap();
    }
}

fn content(store: &Store, options: ReadOptions) -> Model {
    let mut cursor = store.default_keyspace().cursor(options).unwrap();
    let mut found = Model::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    found
}

fn check(store: &Store, model: &Model, place: &str) {
    let found = content(store, ReadOptions::default());
    assert!(found == *model, "{place}: {} found, {} expected", found.len(), model.len());
    for key in model.keys().step_by(7) {
        assert_eq!(store.get(key).unwrap().as_deref(), model.get(key).map(|v| &v[..]), "{place}");
    }
    // Verification compares each entry with the index, filter, bounds and counts.
    assert!(store.verify().unwrap().is_clean(), "{place}");
}

fn compacted(store: &Store) -> CounterValues {
    let before = store.metrics().counters;
    store.compact().unwrap();
    store.metrics().counters.since(&before)
}

#[test]
fn stretches_of_keys_are_copied() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for partitioner in [Partitioner::None, Partitioner::Size, Partitioner::GlobalRange] {
            for (runs, stretch, least_percent) in [(2, 1000, 80), (5, 200, 50), (3, 1, 0)] {
                let place = format!("{compression:?}, {partitioner:?}, {stretch} keys each");
                let storage = Arc::new(MemoryStorage::new());
                let options = options(partitioner, compression, 1);
                let store = Store::open_on(storage.clone(), options.clone()).unwrap();
                let mut model = Model::new();
                fill(&store, &mut model, runs, stretch);
                let done = compacted(&store);
                let handled = done.compaction_bytes_written + done.bytes_moved;
                let spared = done.block_bytes_copied + done.bytes_moved;
                assert!(spared * 100 >= handled * least_percent, "{place}: {done:?}");
                assert_eq!(done.blocks_copied > 0, least_percent > 0, "{place}: {done:?}");
                check(&store, &model, &place);
                store.close().unwrap();
                check(&Store::open_on(storage, options).unwrap(), &model, &place);
            }
        }
    }
}

/// Everything that keeps a block from being copied, in every part of the block: versions that
/// snapshots hold, versions that nothing needs, tombstones, and keys that other runs overwrite.
#[test]
fn blocks_with_more_than_one_version_are_compacted() {
    for partitioner in [Partitioner::Size, Partitioner::GlobalRange] {
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage, options(partitioner, Compression::Lz4, 2)).unwrap();
        let mut model = Model::new();
        fill(&store, &mut model, 3, 400);
        let (old, snapshot) = (model.clone(), store.snapshot());
        for number in (0..12_000).filter(|number| number % 1000 < 90) {
            match number % 3 {
                0 => drop((store.delete(key(number)).unwrap(), model.remove(&key(number)))),
                _ => {
                    store.put(key(number), value(number, 9)).unwrap();
                    model.insert(key(number), value(number, 9));
                }
            }
        }
        store.flush().unwrap();
        let place = format!("{partitioner:?}, with a snapshot");
        assert!(compacted(&store).blocks_copied > 0, "{place}");
        check(&store, &model, &place);
        assert!(content(&store, ReadOptions::default().at(&snapshot)) == old, "{place}");
        drop(snapshot);
        // Compacts again, now that blocks contain versions that nothing needs. A run of one key
        // triggers a compaction.
        store.put("a", "first").unwrap();
        model.insert(b"a".to_vec(), b"first".to_vec());
        store.flush().unwrap();
        let done = compacted(&store);
        assert!(done.blocks_copied > 0 && done.entries_dropped > 0, "{done:?}");
        check(&store, &model, &format!("{partitioner:?}, without"));
        let entries: u64 = unstable::shape(store.default_keyspace())
            .tables()
            .map(|(_, table)| table.entries)
            .sum();
        assert_eq!(entries, model.len() as u64);
    }
}

fn files(storage: &MemoryStorage) -> BTreeMap<String, Vec<u8>> {
    let tables = storage.list().unwrap().into_iter().filter(|file| file.name.ends_with(".table"));
    let read = |name: String, len: u64| {
        let mut bytes = vec![0; len as usize];
        storage.open(&name, Category::Table).unwrap().read_at(0, &mut bytes).unwrap();
        (name, bytes)
    };
    tables.map(|file| read(file.name, file.len_bytes)).collect()
}

#[test]
fn the_number_of_slices_does_not_show() {
    for partitioner in [Partitioner::Size, Partitioner::GlobalRange, Partitioner::LocalRange] {
        for install in [CompactionInstall::Atomic, CompactionInstall::Incremental] {
            let written = |slices| {
                let storage = Arc::new(MemoryStorage::new());
                let mut options = options(partitioner, Compression::Lz4, slices);
                options.keyspace.as_mut().unwrap().compaction_install = install;
                let store = Store::open_on(storage.clone(), options).unwrap();
                fill(&store, &mut Model::new(), 4, 150);
                // Blocks of the older runs begin anywhere within the stretches of this run.
                for number in (0..12_000).filter(|number| number / 700 % 5 == 2) {
                    store.put(key(number), value(number, 8)).unwrap();
                }
                store.flush().unwrap();
                assert!(compacted(&store).blocks_copied > 0);
                store.close().unwrap();
                files(&storage)
            };
            let one = written(1);
            for slices in [2, 3, 8] {
                assert!(one == written(slices), "{partitioner:?}, {install:?}, {slices} slices");
            }
        }
    }
}

#[test]
fn damage_is_found_and_not_copied() {
    let storage = Arc::new(MemoryStorage::new());
    let options = options(Partitioner::Size, Compression::Lz4, 1);
    let store = Store::open_on(storage.clone(), options.clone()).unwrap();
    fill(&store, &mut Model::new(), 2, 1000);
    store.close().unwrap();
    // Damages a byte of a data block in the middle of a table.
    let (name, bytes) = files(&storage).into_iter().next().unwrap();
    let file = storage.open(&name, Category::Table).unwrap();
    let at = bytes.len() / 3;
    file.write_at(at as u64, &[bytes[at] ^ 0x10]).unwrap();
    let store = Store::open_on(storage.clone(), options).unwrap();
    let before = files(&storage).len();
    let error = store.compact().expect_err("the block does not verify").to_string();
    assert!(error.contains(&name), "{error}");
    assert_eq!(files(&storage).len(), before, "no output is left behind");
}

/// Once, a compaction compared a dropped version with the pointer that it had read last, not with
/// the newer version in a block that it had copied in between. If that newer version was a small
/// value, the dropped record looked live for ever.
#[test]
fn what_a_copied_block_replaces_is_freed() {
    const LARGE: usize = 40_000;
    let mut options = options(Partitioner::None, Compression::None, 1);
    let values = &mut options.keyspace.as_mut().unwrap().values;
    values.placement = ValuePlacement::HashGrouped;
    (values.groups, values.slot_bytes, values.separate_at) = (1, 4096, 64);
    // In some round the small value is the last one of a block.
    for replaced in 100..140 {
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage, options.clone()).unwrap();
        store.put(key(replaced), vec![1; LARGE]).unwrap();
        store.flush().unwrap();
        let snapshot = store.snapshot();
        for k in 0..300 {
            let value = if k == replaced { vec![2; 10] } else { vec![2; 64] };
            store.put(key(k), value).unwrap();
        }
        store.compact().unwrap();
        drop(snapshot);
        store.put(key(3), "small").unwrap();
        store.compact().unwrap();
        let bytes = store.default_keyspace().value_usage()[0].bytes();
        assert!(bytes < LARGE as u64, "{bytes} bytes, key {replaced}");
    }
}
