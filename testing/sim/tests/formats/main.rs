//! docs/formats.md describes what is on disk. The reader here was written from that page alone, and
//! shares no code with the store. It reads the files of a store under each placement and on each
//! device, finds the entries that were put, and compares everything in the files with the page.

mod bytes;
mod compatibility;
mod flash;
mod log;
mod manifest;
mod newer;
mod options;
mod table;
mod values;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Batch, CompactionInstall, Compression, GcPointers, KeyspaceOptions, Store, ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_policy::partition::Partitioner;
use runstone_sim::oracle::State;
use runstone_sim::samples::{Files, files_of, make, options};
use table::Entry;

/// The features that were seen in all files together.
#[derive(Debug, Default)]
struct Met {
    tables: table::Seen,
    tags: BTreeSet<u64>,
    planned: BTreeSet<u64>,
    record_kinds: BTreeSet<u8>,
    entry_kinds: BTreeSet<u8>,
    has_log: bool,
}

/// All versions by keyspace and key, newest first.
type Versions = BTreeMap<(u64, Vec<u8>), Vec<Entry>>;

fn number_of(name: &str) -> u64 {
    name.split('.').next().and_then(|digits| digits.parse().ok()).expect("a number")
}

fn manifest_of(files: &Files) -> manifest::Store {
    let (name, length) = log::current(&files["CURRENT"]);
    let log = log::read(&files[&name], b"RunstMan", number_of(&name)).expect("a header");
    assert!(log.end >= length, "valid to {} of {length}", log.end);
    let mut store = manifest::Store::default();
    log.records.iter().for_each(|(offset, record)| store.apply(*offset, record));
    store
}

fn versions_of(files: &Files, store: &manifest::Store, met: &mut Met) -> Versions {
    let mut versions = Versions::new();
    let mut add = |id: u64, entry: Entry| {
        versions.entry((id, entry.key.clone())).or_default().push(entry);
    };
    for (id, keyspace) in &store.keyspaces {
        for (_, _, table) in keyspace.tables.values() {
            let file = &files[&format!("{:06}.table", table.id)];
            let entries = table::read(file, store.uid, table, &mut met.tables);
            entries.into_iter().filter(|entry| entry.key >= table.min_key).for_each(|entry| {
                met.entry_kinds.insert(entry.kind);
                add(*id, entry);
            });
        }
    }
    let wals = files.iter().filter(|(name, _)| name.ends_with(".wal"));
    let segments: Vec<(u64, &[u8])> = wals
        .map(|(name, bytes)| (number_of(name), &bytes[..]))
        .filter(|(number, _)| *number >= store.log_floor)
        .collect();
    for write in log::operations(&segments, store.log_start_seq) {
        let Some(keyspace) = store.keyspaces.get(&write.keyspace) else { continue };
        met.has_log = true;
        if write.seq > keyspace.flushed_seq {
            let (mut kind, mut value) = (write.kind, write.value);
            if kind == 4 {
                let mut pointer = bytes::at(&value, 0);
                let number = pointer.varint();
                let file = &files[&format!("{number:06}.values")];
                let described = (store.uid, number, &keyspace.values[&number]);
                let place = bytes::at(&write.place, 0);
                (kind, value) = (1, values::early(file, described, &write.key, pointer, place));
            }
            let (key, seq) = (write.key, write.seq);
            add(write.keyspace, Entry { key, seq, kind, value });
        }
    }
    versions.values_mut().for_each(|all| all.sort_by_key(|entry| Reverse(entry.seq)));
    versions
}

/// What is left of the versions of a key: operands, newest first, and the value that they apply to.
fn visible<'a>(versions: &'a [Entry], ranges: &[&Entry]) -> (Vec<&'a Entry>, Option<&'a Entry>) {
    let key = versions[0].key.as_slice();
    let is_over = |range: &&&Entry| {
        range.key.as_slice() <= key && (range.value.is_empty() || key < range.value.as_slice())
    };
    let deleted = ranges.iter().filter(is_over).map(|range| range.seq).max().unwrap_or(0);
    let mut operands = Vec::new();
    for entry in versions.iter().take_while(|entry| entry.seq > deleted) {
        match entry.kind {
            0 | 3 => break,
            2 => operands.push(entry),
            6 | 7 if is_past(entry) => break,
            _ => return (operands, Some(entry)),
        }
    }
    (operands, None)
}

/// Whether an entry has expired. In the samples, those that have expired did so in 1970.
fn is_past(entry: &Entry) -> bool {
    bytes::at(&entry.value, entry.value.len() as u64 - 8).u64() < 365 * 24 * 3600 * 1000
}

/// The contents of a store's files.
fn read_store(files: &Files, met: &mut Met) -> State {
    let store = manifest_of(files);
    met.tags.extend(&store.tags);
    met.planned.extend(&store.planned);
    let versions = versions_of(files, &store, met);
    let mut values = BTreeMap::new();
    for keyspace in store.keyspaces.values() {
        for (number, file) in &keyspace.values {
            let bytes = &files[&format!("{number:06}.values")];
            let place = (store.uid, *number);
            let opened = values::Values::open(bytes, place, file, &mut met.record_kinds);
            values.insert(*number, opened);
        }
    }
    let mut state = State::new();
    for ((id, key), all) in &versions {
        let in_keyspace = versions.iter().filter(|((of, _), _)| of == id).flat_map(|(_, all)| all);
        let ranges: Vec<&Entry> = in_keyspace.filter(|entry| entry.kind == 3).collect();
        let (operands, base) = visible(all, &ranges);
        let base = base.map(|entry| match entry.kind {
            1 => entry.value.clone(),
            6 => entry.value[..entry.value.len() - 8].to_vec(),
            4 | 5 | 7 => {
                let mut pointer = bytes::at(&entry.value, 0);
                values[&pointer.varint()].value(entry, &mut pointer)
            }
            kind => panic!("an entry of kind {kind}"),
        });
        // The samples have operands of `append(,)`.
        let parts = base.into_iter().chain(operands.iter().rev().map(|one| one.value.clone()));
        let Some(value) = parts.reduce(|one, other| [&one[..], b",", &other].concat()) else {
            continue;
        };
        let names = ["default", "other"];
        let name = &store.keyspaces[id].name;
        state
            .insert((names.iter().position(|one| one == name).expect("known"), key.clone()), value);
    }
    state
}

#[test]
fn every_placement_and_device_is_as_the_document_says() {
    let mut met = Met::default();
    for sample in make() {
        let state = match sample.files.get("flash").map(|flash| flash::Image::read(flash)) {
            None => read_store(&sample.files, &mut met),
            Some(image) if image.is_block_ssd() => read_store(&flash::files(&image), &mut met),
            Some(image) => {
                let content = flash::kvssd(&image, &sample.files["saved"]);
                content.into_iter().map(|(key, value)| ((0, key), value)).collect()
            }
        };
        assert!(state == sample.state, "{}: {} keys", sample.name, state.len());
    }
    assert!(met.tables.has_hash_index && met.tables.has_loaded && met.has_log);
    assert_eq!(met.record_kinds, [1, 2, 3, 4].into(), "values, tags of two kinds and markers");
    assert_eq!(met.entry_kinds, [0, 1, 2, 3, 4, 5, 6, 7].into());
    let expected: BTreeSet<u64> = [1, 2, 3, 5, 6, 7, 8, 10].into();
    assert!(met.tags.is_superset(&expected), "{:?}", met.tags);
}

/// A store with keys that are updated and keys that are written once. Its values are collected a
/// dozen times.
fn collected(of: KeyspaceOptions) -> (Files, State) {
    let storage = MemoryStorage::new();
    let store = Store::open_on(Arc::new(storage.clone()), options(Some(of))).expect("fresh");
    let mut state = State::new();
    for round in 0..12usize {
        for i in 0..60 {
            let key = format!("key{:04}", if i % 3 > 0 { i } else { 1000 + round * 60 + i });
            let value = vec![(round * 60 + i) as u8; 20 + 2 * i];
            store.put(&key, &value).expect("memory");
            state.insert((0, key.into_bytes()), value);
        }
        store.flush().expect("memory");
        store.collect_values().expect("memory");
    }
    store.flush().expect("memory");
    (files_of(&storage), state)
}

/// Tags and what they lead to, markers, and pointers that collections wrote.
#[test]
fn collected_values_are_as_the_document_says() {
    let (log, groups) = (ValuePlacement::Vlog, ValuePlacement::HashGrouped);
    for (placement, gc_pointers, cold_stream, records, entries) in [
        (groups, GcPointers::Stable, true, vec![1, 2], vec![1, 4]),
        (groups, GcPointers::Writeback, false, vec![1, 3], vec![1, 4, 5]),
        (groups, GcPointers::Writeback, true, vec![1, 3, 4], vec![1, 4, 5]),
        (log, GcPointers::default(), false, vec![1], vec![1, 4, 5]),
    ] {
        let mut of = KeyspaceOptions::default().policy(Policy::named("leveling"));
        of.write_buffer_bytes = 64 << 10;
        (of.values.placement, of.values.gc_pointers) = (placement, gc_pointers);
        (of.values.separate_at, of.values.groups, of.values.slot_bytes) = (40, 2, 4096);
        (of.values.cold_stream, of.values.reserve) = (cold_stream, 0.1.into());
        of.values.vlog_chunk_bytes = 4096;
        let (files, state) = collected(of);
        let mut met = Met::default();
        assert!(read_store(&files, &mut met) == state, "{placement:?} {gc_pointers:?}");
        assert!(met.record_kinds.into_iter().eq(records), "{placement:?} {gc_pointers:?}");
        assert!(met.entry_kinds.into_iter().eq(entries), "{placement:?} {gc_pointers:?}");
    }
}

/// Cases for which samples are too small: several partitions, keys whose versions span blocks,
/// records over several frames of the log, values larger than a slot.
#[test]
fn a_larger_store_is_as_the_document_says() {
    let storage = MemoryStorage::new();
    let mut of = KeyspaceOptions::default().policy(Policy::named("leveling")).block_bytes(512);
    (of.compression, of.write_buffer_bytes) = (vec![Compression::Zstd], 512 << 10);
    of.values.placement = ValuePlacement::HashGrouped;
    (of.values.separate_at, of.values.groups, of.values.slot_bytes) = (500, 2, 4096);
    let store = Store::open_on(Arc::new(storage.clone()), options(Some(of))).expect("fresh");
    let mut state = State::new();
    let mut held = Vec::new();
    for i in 0..1800usize {
        let (key, len) = match i % 9 {
            // Snapshots keep some of the versions of this key.
            0 => (b"often".to_vec(), 300),
            _ => (format!("key{:05}", i * 7919 % 10_000).into_bytes(), 20 + i % 460),
        };
        let value = vec![i as u8; if i % 300 == 7 { 9000 } else { len }];
        store.put(&key, &value).expect("memory");
        state.insert((0, key), value);
        if i % 9 == 0 && i > 1500 {
            held.push(store.snapshot());
        }
    }
    store.flush().expect("memory");
    store.compact().expect("memory");
    let mut batch = Batch::new();
    for i in 0..400 {
        let (key, value) = (format!("late{i}").into_bytes(), vec![i as u8; 300]);
        batch.put(store.default_keyspace(), &key, &value).expect("valid");
        state.insert((0, key), value);
    }
    store.write(&batch, Default::default()).expect("memory");
    let files = files_of(&storage);
    drop(held);
    let mut met = Met::default();
    assert!(read_store(&files, &mut met) == state);
    let Met { tables, has_log, .. } = &met;
    assert_eq!(tables.frame_kinds, [0, 1, 2].into(), "raw, LZ4, zstd");
    assert!(tables.partitions > 1 && tables.spanning_keys > 3 && *has_log, "{met:?}");
}

/// Trims and the remaining plan, in the edits of a compaction in parts and in the manifest of the
/// next open.
#[test]
fn a_half_compacted_store_is_as_the_document_says() {
    let mut of = KeyspaceOptions::default().policy(Policy::named("universal"));
    (of.block_bytes, of.compaction_install) = (512, CompactionInstall::Incremental);
    unstable::numbers_mut(&mut of).partitioner = Partitioner::GlobalRange;
    of.write_buffer_bytes = 64 << 10;
    (unstable::numbers_mut(&mut of).table_bytes, unstable::numbers_mut(&mut of).split_bytes) =
        (4 << 10, 4 << 10);
    (
        unstable::numbers_mut(&mut of).l0_trigger,
        unstable::numbers_mut(&mut of).universal_trigger,
        unstable::numbers_mut(&mut of).stack_runs,
    ) = (20, 20, 20);
    let fill = |storage: &SimStorage| {
        let store = Store::open_on(Arc::new(storage.clone()), options(Some(of.clone())));
        let store = store.expect("fresh");
        let mut state = State::new();
        for i in 0..2400usize {
            let key = format!("key{:04}", i * 7919 % 1500).into_bytes();
            let value = vec![i as u8; 40 + i % 60];
            store.put(&key, &value).expect("no fault yet");
            state.insert((0, key), value);
            if i % 400 == 399 {
                store.flush().expect("no fault yet");
            }
        }
        (store, state)
    };
    let storage = SimStorage::new(7);
    let (store, _) = fill(&storage);
    let filled = storage.ops();
    store.compact().expect("no fault");
    let at_op = (filled + storage.ops()) / 2;
    let storage = SimStorage::new(7);
    let (store, state) = fill(&storage);
    storage.inject(Fault { at_op, kind: FaultKind::Crash, sticky: true, category: None });
    store.compact().expect_err("the crash");
    drop(store);
    let left = storage.process_crash();
    let mut met = Met::default();
    assert!(read_store(&files_of(&left), &mut met) == state);
    assert!(met.planned.contains(&5), "{:?}", met.planned);
    let store = Store::open_on(Arc::new(left.clone()), options(None)).expect("it opens");
    assert!(read_store(&files_of(&left), &mut met) == state);
    assert!(met.planned.contains(&6), "{:?}", met.planned);
    drop(store);
}
