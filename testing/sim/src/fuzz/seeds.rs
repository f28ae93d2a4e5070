//! Seeds of the corpora: inputs made from the files of real stores.

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::testing::{
    Access, Cache, Change, LogHeader, LogKind, LogReader, Next, Reader, StoreState, TableIter,
    TableReader, decode, encode,
};
use runstone::{Background, Batch, GcPointers, Options, Store, ValueOptions, ValuePlacement};

use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::kvssd::{
    Durability, KvSsd, KvSsdOptions, Placement, ValuePlacement as DeviceValues,
};
use runstone_flash::nand::{Image, MemoryImage, Timing};

use super::flash::{BLOCK_SSD, KVSSD, input_of};
use super::parts::{get_file, put_part, put_varint};
use super::values::LOG_START_SEQ;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::workload::{Operation, Run, generate, keyspaces, options};

/// A few dozen operations in a small store, dropped without a close.
fn store_of(options: &Options, seed: u64, count: usize) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options.clone()).expect("fresh");
    keyspaces(&store).expect("fresh");
    let mut run = Run::new(store, Oracle::default());
    for operation in generate(seed, count) {
        if !matches!(operation, Operation::Reopen) {
            run.apply(&operation, || unreachable!("no reopen")).expect("no faults");
        }
    }
    // The store is not closed, because a close would leave no log.
    std::mem::forget(run);
    storage
}

fn files(storage: &MemoryStorage, extension: &str) -> Vec<(u64, Vec<u8>)> {
    let files = storage.list().expect("memory");
    let ours = files.iter().filter_map(|file| {
        let number = file.name.strip_suffix(extension)?.parse().ok()?;
        Some((number, get_file(storage, &file.name)))
    });
    ours.collect()
}

/// The records of a log file.
fn records(storage: &MemoryStorage, number: u64, kind: LogKind) -> Vec<Vec<u8>> {
    let (name, category) = match kind {
        LogKind::Wal => (format!("{number:06}.wal"), Category::Wal),
        LogKind::Manifest => (format!("{number:06}.manifest"), Category::Manifest),
        LogKind::Archive => (format!("{number:06}.archive"), Category::Other),
    };
    let bytes = get_file(storage, &name);
    let Ok(header) = LogHeader::decode(&bytes, kind) else { return Vec::new() };
    let file = storage.open(&name, category).expect("listed");
    let mut reader = LogReader::new(file, &header).expect("memory");
    let mut records = Vec::new();
    while let Next::Record { bytes, .. } = reader.next().expect("memory") {
        records.push(bytes);
    }
    records
}

/// The records of a manifest.
pub fn manifest_records(storage: &MemoryStorage, number: u64) -> Vec<Vec<u8>> {
    records(storage, number, LogKind::Manifest)
}

fn flagged(flags: u8, bytes: &[u8]) -> Vec<u8> {
    [&[flags], bytes].concat()
}

/// A log of plain writes, raw and as records, in one segment and in two.
pub fn wal() -> Vec<Vec<u8>> {
    let storage = MemoryStorage::new();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let options = options(3, Background::Manual);
    let store = Store::open_on(shared, options).expect("fresh");
    let keyspace = store.default_keyspace();
    for i in 0..12u32 {
        let mut batch = Batch::new();
        batch.put(keyspace, i.to_be_bytes(), vec![i as u8; 20 * i as usize]).expect("small");
        if i % 3 == 0 {
            batch.delete(keyspace, [i as u8]).expect("small");
        }
        store.write(&batch, Default::default()).expect("memory");
    }
    std::mem::forget(store);
    let mut seeds = Vec::new();
    for (number, bytes) in files(&storage, ".wal") {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let records = records(&storage, number, LogKind::Wal);
        if records.is_empty() {
            continue;
        }
        // Renumbered: the target reads segment 1.
        let mut raw = bytes[..used].to_vec();
        renumber(&mut raw);
        seeds.extend([flagged(0, &raw), flagged(2, &raw)]);
        for (flags, cut) in [(1, records.len()), (1, 5), (3, 5), (3, 0)] {
            let mut parts = Vec::new();
            for (i, record) in records.iter().enumerate() {
                put_part(&mut parts, i == cut, record);
            }
            seeds.push(flagged(flags, &parts));
        }
    }
    seeds
}

/// Gives a log file the number 1. Its records are bound to its id, not to its number.
fn renumber(bytes: &mut [u8]) {
    for at in [0, 64] {
        bytes[at + 16..at + 24].copy_from_slice(&1u64.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[at..at + 60]) as u32;
        bytes[at + 60..at + 64].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Tables of all codecs, small enough for a fuzzer.
pub fn table() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for seed in 0..12 {
        let storage = store_of(&options(seed, Background::Manual), seed, 90);
        let mut tables = files(&storage, ".table");
        tables.retain(|(_, bytes)| bytes.len() < 6_000);
        for (i, (_, bytes)) in tables.iter().enumerate().take(2) {
            seeds.push(flagged(seed as u8 % 4 * 2 + i as u8, bytes));
        }
    }
    seeds
}

/// Manifests of all policies, raw and as records.
pub fn manifest() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for seed in 0..14 {
        let storage = store_of(&options(seed, Background::Manual), seed, 60);
        for (number, bytes) in files(&storage, ".manifest") {
            let mut raw = bytes;
            renumber(&mut raw);
            if seed < 3 {
                seeds.push(flagged(seed as u8 & 2, &raw));
            }
            let mut parts = Vec::new();
            let records = records(&storage, number, LogKind::Manifest);
            records.iter().for_each(|record| put_part(&mut parts, false, record));
            seeds.push(flagged(1 | seed as u8 & 2, &parts));
        }
    }
    seeds
}

/// Value files of each placement with the pointers of their tables.
pub fn values() -> Vec<Vec<u8>> {
    let log = ValuePlacement::Vlog;
    let groups = ValuePlacement::HashGrouped;
    let mut seeds = Vec::new();
    for (i, (placement, cold_stream, writes_back)) in (0u8..).zip([
        (log, false, false),
        (groups, false, false),
        (groups, true, false),
        (groups, false, true),
        (groups, true, true),
    ]) {
        let mut options = options(1, Background::Manual);
        let keyspace = options.keyspace.as_mut().expect("given");
        keyspace.merge_operator.clear();
        keyspace.values = ValueOptions::default()
            .placement(placement)
            .separate_at(1)
            .groups(1)
            .slot_bytes(4096)
            .vlog_chunk_bytes(4096)
            .reserve(0.05)
            .cold_stream(cold_stream)
            .gc_pointers(if writes_back { GcPointers::Writeback } else { GcPointers::Stable });
        let bytes = values_of(&options);
        seeds.extend([flagged(i % 2 * 2, &bytes), flagged(1 + i / 2 * 2, &bytes)]);
    }
    seeds
}

fn values_of(options: &Options) -> Vec<u8> {
    let storage = MemoryStorage::new();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options.clone()).expect("fresh");
    let mut random = Random::new(4);
    for round in 0..6u8 {
        for key in 0..8u8 {
            // The first keys are written in each round; the last ones are cold.
            if key < 4 || round == 0 {
                let value = vec![random.draw() as u8; 40 + random.below(200) as usize];
                store.put([b'k', key], value).expect("memory");
            }
        }
        store.flush().expect("memory");
    }
    store.delete([b'k', 0]).expect("memory");
    store.compact().expect("memory");
    store.collect_values().expect("memory");
    store.flush().expect("memory");
    store.close().expect("memory");
    let (manifest, _) = files(&storage, ".manifest").pop().expect("one");
    let (number, file) = files(&storage, ".values").pop().expect("one");
    let (uid, layout) = described(&storage, manifest, number);
    let mut bytes = Vec::new();
    put_part(&mut bytes, false, &layout);
    put_part(&mut bytes, false, &pointers(&storage));
    put_part(&mut bytes, false, &uid.to_le_bytes());
    bytes.extend_from_slice(&file);
    bytes
}

/// The store's uid, and the change that describes its value file now.
fn described(storage: &MemoryStorage, manifest: u64, number: u64) -> (u64, Vec<u8>) {
    let mut uid = 0;
    let mut state = StoreState::default();
    for record in records(storage, manifest, LogKind::Manifest) {
        let mut reader = Reader::new(&record);
        reader.take_varint().expect("own bytes");
        let rest = reader.take(reader.remaining()).expect("what remains");
        for change in decode(rest).expect("own bytes") {
            if let Change::Store { uid: said } = change {
                uid = said;
            }
            state.apply(&change).expect("own changes");
        }
    }
    let mut files = state.keyspaces[&0].values.iter();
    let layout = files.find(|layout| layout.number == number).expect("described").clone();
    (uid, encode(&[Change::ValueFile { id: 0, layout }]))
}

/// A log record that relocates each value to where it is.
fn pointers(storage: &MemoryStorage) -> Vec<u8> {
    let mut operations = Vec::new();
    let mut count = 0u64;
    for (id, _) in files(storage, ".table") {
        let cache = Arc::new(Cache::new(1 << 20));
        let reader = Arc::new(TableReader::inspect(storage, id, cache).expect("own bytes"));
        let mut iter = TableIter::new(reader, Access::Sequential);
        iter.seek_to_first().expect("own bytes");
        while let Some(cursor) = iter.cursor().filter(|cursor| cursor.valid()) {
            if matches!(cursor.trailer() & 0xff, 4 | 5) {
                operations.extend([5, 0, cursor.key().len() as u8]);
                operations.extend_from_slice(cursor.key());
                operations.push(cursor.value().len() as u8);
                operations.extend_from_slice(cursor.value());
                count += 1;
            }
            iter.next().expect("own bytes");
        }
    }
    let mut record = Vec::new();
    for number in [LOG_START_SEQ, 0, count] {
        put_varint(&mut record, number);
    }
    [record, operations].concat()
}

/// Random bytes, because any bytes are operations.
pub fn operations() -> Vec<Vec<u8>> {
    (0..12)
        .map(|seed| {
            let mut random = Random::new(seed);
            let len = 200 + random.below(600);
            (0..len).map(|_| random.draw() as u8).collect()
        })
        .collect()
}

/// Images of small devices: a KVSSD with a capacitor and with a log, with and without separated
/// values; a block SSD.
pub fn flash() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let kinds = [
        (Placement::Mixed, 0, DeviceValues::Inline),
        (Placement::PerTable, 2, DeviceValues::Groups),
        (Placement::PerLevel, 4, DeviceValues::Log),
    ];
    for (i, (placement, threshold, values)) in (0..).zip(kinds) {
        for durability in [Durability::Capacitor, Durability::Log] {
            let options = KvSsdOptions {
                placement,
                threshold,
                durability,
                memtable_pages: 2,
                level1_pages: 4,
                size_ratio: 2,
                checkpoint_commits: 3,
                values,
                values_from: 40,
                ..KvSsdOptions::default()
            };
            seeds.push(kvssd_of(options, 40 + i * 40));
        }
    }
    seeds.push(block_ssd());
    seeds
}

fn kvssd_of(options: KvSsdOptions, writes: u64) -> Vec<u8> {
    let (image, side) = (MemoryImage::new(), MemoryImage::new());
    let (flash, saved) = (Box::new(image.clone()), Box::new(side.clone()));
    let device = KvSsd::create(flash, saved, KVSSD, Timing::PAPER, options);
    let mut device = device.expect("valid options");
    let mut random = Random::new(writes);
    for _ in 0..writes {
        let key = [b'k', random.below(30) as u8];
        match random.one_in(5) {
            true => device.delete(&key).expect("room"),
            false => {
                let len = 1 + random.below(150) as usize;
                device.put(&key, &vec![random.draw() as u8; len]).expect("room");
            }
        }
    }
    drop(device);
    let mut frames = vec![0; side.len_bytes().expect("memory") as usize];
    side.read_at(0, &mut frames).expect("memory");
    input_of(image, KVSSD, &frames)
}

fn block_ssd() -> Vec<u8> {
    let image = MemoryImage::new();
    let options = BlockOptions::default();
    let storage = BlockStorage::create(Box::new(image.clone()), BLOCK_SSD, options);
    let storage = storage.expect("a valid geometry");
    for i in 0..6u8 {
        let file = storage.create(&format!("file{i}"), Category::Other).expect("new");
        file.write_at(0, &vec![i; 100 * usize::from(i)]).expect("room");
        file.sync().expect("memory");
        storage.sync_dir().expect("memory");
    }
    storage.rename("file1", "renamed").expect("there");
    storage.remove("file2").expect("there");
    storage.sync_dir().expect("memory");
    drop(storage);
    input_of(image, BLOCK_SSD, &[])
}
