//! Compactions that are installed part by part. A crash between any two of their I/O operations
//! leaves a sound tree. Installed parts are not done again, and closing loses no finished part.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::seeded::Bug;
use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, CompactionInstall, Compression, KeyspaceOptions, Options, Snapshot, Store,
    SubCompactions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_policy::partition::Partitioner;
use runstone_sim::found::holds_and_finds;
use runstone_sim::random::Random;

const THETA: u64 = 4 << 10;
const KEYS: u64 = 1500;

fn options(policy: &str, partitioner: Partitioner) -> Options {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.write_buffer_bytes = 64 << 10;
    keyspace.block_bytes = 512;
    keyspace.compression = vec![Compression::None];
    keyspace.compaction_install = CompactionInstall::Incremental;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.partitioner = partitioner;
    shape.table_bytes = THETA;
    shape.split_bytes = THETA;
    shape.base_bytes = 4 << 20;
    keyspace.l0_slowdown_runs = 100;
    keyspace.l0_stop_runs = 200;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.l0_trigger = 50;
    shape.universal_trigger = 50;
    shape.stack_runs = 50;
    Options::default()
        .background(Background::Manual)
        .compaction_slices(1)
        .seed(7)
        .memory_budget_bytes(4 << 20)
        .keyspace(keyspace)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes runs that overlap, with keys overwritten and deleted. So checks notice an older value
/// that comes back, and versions that are read in the wrong order.
fn fill(store: &Store, seed: u64, rounds: u8) -> Model {
    let mut random = Random::new(seed);
    let mut model = Model::new();
    for round in 0..rounds {
        for _ in 0..400 {
            let key = format!("key{:04}", random.below(KEYS)).into_bytes();
            if random.one_in(3) {
                store.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![round; 40 + random.below(100) as usize];
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        store.flush().unwrap();
    }
    model
}

fn content(store: &Store, snapshot: Option<&Snapshot>) -> Model {
    let options = match snapshot {
        Some(snapshot) => runstone::ReadOptions::default().at(snapshot),
        None => runstone::ReadOptions::default(),
    };
    let keyspace = store.default_keyspace();
    let (mut forward, mut backward) = (Model::new(), Model::new());
    let mut cursor = keyspace.cursor(options).unwrap();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        forward.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        backward.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.prev().unwrap();
    }
    assert!(forward == backward, "both directions show the same");
    forward
}

/// Checks all keys, present and absent.
fn check(store: &Store, model: &Model, place: &str) {
    assert!(content(store, None) == *model, "{place}");
    for number in 0..KEYS {
        let key = format!("key{number:04}").into_bytes();
        let found = store.get(&key).unwrap();
        assert_eq!(found.as_deref(), model.get(&key).map(|v| &v[..]), "{place}: {key:?}");
        if number % 16 > 0 {
            continue;
        }
        let mut cursor = store.default_keyspace().cursor(Default::default()).unwrap();
        cursor.seek(&key).unwrap();
        let next = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
        assert_eq!(cursor.valid().then(|| cursor.key()), next, "{place}: seek {key:?}");
    }
    assert!(store.verify().unwrap().is_clean(), "{place}");
}

/// The numbers of I/O operations until the store is filled and until it is compacted, and of bytes
/// compacted.
fn plain_run(options: &Options) -> (u64, u64, u64) {
    let storage = SimStorage::new(7);
    let store = Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
    let model = fill(&store, 1, 8);
    let filled = storage.ops();
    store.compact().unwrap();
    let done = store.metrics().counters;
    assert!(done.compaction_parts > 4, "{done:?}");
    check(&store, &model, "without a crash");
    (filled, storage.ops(), done.compaction_bytes_written)
}

fn crash_everywhere(options: &Options) {
    let (filled, compacted, whole_bytes) = plain_run(options);
    let (mut resumed, mut least_bytes) = (0, u64::MAX);
    // Every third operation is enough, because the pattern of writes, syncs, edits and removals
    // does not repeat every three operations.
    for at in (filled..compacted).step_by(3) {
        let storage = SimStorage::new(7);
        let store = Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
        let model = fill(&store, 1, 8);
        storage.inject(Fault { at_op: at, kind: FaultKind::Crash, sticky: true, category: None });
        // A compaction succeeds even if it cannot remove a file.
        let outcome = store.compact();
        assert!(outcome.is_err() || !storage.fired().is_empty(), "the fault at {at} never fired");
        drop(store);
        for left in [storage.process_crash(), storage.power_cut(at).0] {
            let place = format!("crash at operation {at}");
            let storage: Arc<dyn Storage> = Arc::new(left);
            let store = Store::open_on(storage, options.clone()).unwrap();
            check(&store, &model, &place);
            let is_pending = unstable::shape(store.default_keyspace()).pending.is_some();
            store.put("key", "newer").unwrap();
            store.delete("key").unwrap();
            store.flush().unwrap();
            store.wait_idle().unwrap();
            check(&store, &model, &place);
            let shape = unstable::shape(store.default_keyspace());
            assert!(shape.pending.is_none() && shape.trims.is_empty(), "{place}");
            if is_pending {
                resumed += 1;
                let again = store.metrics().counters.compaction_bytes_written;
                // The rest gets new cells, so the ends of some tables may differ in size.
                assert!(again < whole_bytes, "{place}: {again} of {whole_bytes}");
                least_bytes = least_bytes.min(again);
            }
        }
    }
    assert!(resumed > 10, "{resumed} crashes left a pending compaction");
    assert!(least_bytes < whole_bytes / 3, "{least_bytes} of {whole_bytes}: parts are done twice");
}

#[test]
fn a_crash_between_parts_of_a_stack() {
    crash_everywhere(&options("universal", Partitioner::GlobalRange));
}

/// The compaction chooses its cutting rule and stores it with its first part.
#[test]
fn a_crash_between_parts_cut_by_prefix() {
    crash_everywhere(&options("universal", Partitioner::Prefix));
}

#[test]
fn a_crash_between_parts_of_a_leveled_tree() {
    crash_everywhere(&options("leveling", Partitioner::Size));
}

/// An error ends the compaction between parts or inside one. Installed parts stay, nothing is
/// missing, and the next open continues from there.
#[test]
fn an_error_anywhere_leaves_installed_parts() {
    let options = options("universal", Partitioner::GlobalRange);
    let (filled, compacted, _) = plain_run(&options);
    for (kind, step) in [(FaultKind::NoSpace, 7), (FaultKind::Eio, 11)] {
        for at_op in (filled..compacted).step_by(step) {
            let storage = SimStorage::new(7);
            let store = Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
            let model = fill(&store, 1, 8);
            storage.inject(Fault { at_op, kind, sticky: false, category: None });
            // Removals and the like may fail without harm.
            let _ = store.compact();
            let place = format!("{kind:?} at {at_op}");
            assert!(content(&store, None) == model, "{place}");
            drop(store);
            let store = Store::open_on(Arc::new(storage), options.clone()).unwrap();
            store.compact().unwrap();
            check(&store, &model, &place);
        }
    }
}

/// The same compaction in one edit and in parts gives every snapshot the same content. That
/// includes snapshots taken between parts by a reader that runs during the compaction.
#[test]
fn readers_and_snapshots_beside_a_compaction_in_parts() {
    for slices in [1, 4] {
        // If the first slice ends last, there is only one part. That depends on the threads, so
        // rounds repeat until a compaction has several parts.
        let parts = (2..22).map(|seed| parts_beside_readers(slices, seed)).find(|parts| *parts > 1);
        assert!(parts.is_some(), "{slices} slices never gave parts");
    }
}

/// Returns the number of parts in which the compaction was installed.
fn parts_beside_readers(slices: usize, seed: u64) -> u64 {
    let mut options = options("universal", Partitioner::GlobalRange);
    options.background = Background::Threads(2);
    options.compaction_slices = Some(slices);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let old = (store.snapshot(), Model::new());
    let model = fill(&store, seed, 8);
    let snapshots = [old, (store.snapshot(), model.clone())];
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| store.compact().unwrap());
        while !compaction.is_finished() {
            assert!(content(&store, None) == model);
            for (snapshot, model) in &snapshots {
                assert!(content(&store, Some(snapshot)) == *model);
            }
        }
    });
    check(&store, &model, "after it");
    store.metrics().counters.compaction_parts
}

/// A store closes during a compaction. The tree keeps the finished parts, and the next open
/// continues from there, even with other options.
#[test]
fn closing_keeps_finished_parts() {
    for (install, other) in [
        (CompactionInstall::Incremental, CompactionInstall::Atomic),
        (CompactionInstall::Atomic, CompactionInstall::Incremental),
    ] {
        let mut stopped = 0;
        // Whether a close happens during the compaction depends on the threads, so rounds repeat
        // until one does.
        for round in 0.. {
            if round >= 6 && stopped > 0 {
                break;
            }
            assert!(round < 200, "no close met a compaction, {install:?}");
            stopped += u64::from(close_meets_a_compaction(round, install, other));
        }
    }
}

/// Returns whether the close left work of the compaction undone.
fn close_meets_a_compaction(
    round: u64,
    install: CompactionInstall,
    other: CompactionInstall,
) -> bool {
    let storage = MemoryStorage::new();
    let mut options = options("universal", Partitioner::GlobalRange);
    options.background = Background::Threads(2);
    options.compaction_slices = Some(1 + (round as usize % 3) * 2);
    options.keyspace.as_mut().unwrap().compaction_install = install;
    let open =
        |options: &Options| Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
    let store = open(&options);
    let model = fill(&store, round, 60);
    let keyspace = store.keyspace("default").unwrap();
    let flushed = storage.list().unwrap().len();
    let done = std::thread::scope(|scope| {
        let compaction = scope.spawn(move || keyspace.compact());
        let is_far = || match install {
            CompactionInstall::Incremental => store.metrics().counters.compaction_parts >= 2,
            _ => storage.list().unwrap().len() > flushed + 8,
        };
        while !is_far() && !compaction.is_finished() {
            std::thread::yield_now();
        }
        store.close().unwrap();
        compaction.join().unwrap().is_ok()
    });
    options.background = Background::Manual;
    if round % 2 == 1 {
        options.keyspace.as_mut().unwrap().compaction_install = other;
    }
    let store = open(&options);
    check(&store, &model, "after the close");
    let shape = unstable::shape(store.default_keyspace());
    // A close after the last part leaves no work, although the call reports that the store was
    // closed.
    assert!(shape.pending.is_none() || !done, "{shape:?}");
    let is_left = shape.pending.is_some();
    store.compact().unwrap();
    check(&store, &model, "after the rest");
    let shape = unstable::shape(store.default_keyspace());
    assert!(shape.pending.is_none() && shape.trims.is_empty());
    is_left
}

/// Copies and read-only opens of a half-compacted store see all of it.
#[test]
fn a_half_compacted_store_is_copied_and_read() {
    let options = options("universal", Partitioner::GlobalRange);
    let (filled, compacted, _) = plain_run(&options);
    let storage = SimStorage::new(7);
    let store = Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
    let model = fill(&store, 1, 8);
    let at_op = (filled + compacted) / 2;
    storage.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
    store.compact().unwrap_err();
    drop(store);
    let left = Arc::new(storage.process_crash());
    let reading = options.clone().read_only(true).keyspace(None);
    let store = Store::open_on(left.clone(), reading).unwrap();
    assert!(unstable::shape(store.default_keyspace()).pending.is_some());
    check(&store, &model, "read only");
    drop(store);
    let store = Store::open_on(left.clone(), options.clone()).unwrap();
    store.checkpoint("/copy").unwrap();
    let copy = left.open_sibling(std::path::Path::new("/copy")).unwrap();
    let copy = Store::open_on(Arc::new(copy), options.clone()).unwrap();
    assert!(unstable::shape(copy.default_keyspace()).pending.is_some());
    for store in [store, copy] {
        check(&store, &model, "after the copy");
        store.compact().unwrap();
        check(&store, &model, "after the compaction");
    }
}

/// Fills a store, and deletes a range that spans most parts of a compaction.
fn fill_under_a_range_delete(store: &Store) -> Model {
    let mut model = fill(store, 1, 8);
    store.default_keyspace().delete_range("key0100".."key1400").unwrap();
    store.flush().unwrap();
    let deleted = b"key0100".to_vec()..b"key1400".to_vec();
    model.retain(|key, _| !deleted.contains(key));
    model
}

/// A range tombstone is in one part and hides entries of other parts. A crash between two parts
/// shows whether the tombstone was dropped too early.
#[test]
fn a_crash_beside_a_range_delete() {
    holds_and_finds(Bug::RangeDeletesInParts, || {
        let options = options("universal", Partitioner::GlobalRange);
        for at in (0..).step_by(5) {
            let storage = SimStorage::new(7);
            let store = Store::open_on(Arc::new(storage.clone()), options.clone()).unwrap();
            let model = fill_under_a_range_delete(&store);
            let (at_op, kind) = (storage.ops() + at, FaultKind::Crash);
            storage.inject(Fault { at_op, kind, sticky: true, category: None });
            // A compaction succeeds even if it cannot remove a file.
            let _ = store.compact();
            if storage.fired().is_empty() {
                assert!(at > 20, "the compaction took {at} operations");
                break;
            }
            drop(store);
            let storage: Arc<dyn Storage> = Arc::new(storage.process_crash());
            let store = Store::open_on(storage, options.clone()).unwrap();
            check(&store, &model, &format!("crash at operation {at} of a compaction"));
        }
    });
}

/// A compaction by whole tables is divided into slices that share no key. A range delete covers
/// them, and its tombstone is in the first slice. The tombstone is dropped with its slice, and the
/// entries that it hides are dropped in all slices.
#[test]
fn a_range_delete_acts_in_every_slice() {
    holds_and_finds(Bug::RangeDeletesEndWithTheirSlice, || {
        let mut options = options("universal", Partitioner::GlobalRange);
        options.keyspace.as_mut().unwrap().sub_compactions = SubCompactions::Components;
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
        let key = |number: u64| format!("key{number:04}").into_bytes();
        for numbers in [0..200, 100..300, 800..1000, 900..1100] {
            numbers.for_each(|number| store.put(key(number), [7; 50]).unwrap());
            store.flush().unwrap();
        }
        store.default_keyspace().delete_range(key(150)..key(1000)).unwrap();
        store.compact().unwrap();
        assert_eq!(store.metrics().counters.compaction_slices, 2);
        let left = (0..150).chain(1000..1100).map(|number| (key(number), vec![7; 50]));
        check(&store, &left.collect(), "after the compaction");
        let shape = unstable::shape(store.default_keyspace());
        assert_eq!(shape.tables().map(|(_, table)| table.entries).sum::<u64>(), 250);
    });
}
