//! Samples of the formats: small stores as files, how they are made, and which formats they cover.
//! `tests/formats/compatibility.rs` says what a later release must do with them.
//!
//! ```text
//! sample  (name length u8 | name | file length u64 | runs u32
//!          | (offset u64 | length u32 | bytes) x runs)*        what is in no run is 0
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use runstone::policy::Policy;
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Compression, Expiry, GcPointers, KeyspaceOptions, Options, SortedWriter, Store,
    ValuePlacement, WalMode,
};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::kvssd::{
    Durability, KvSsd, KvSsdOptions, Partitioner, ValuePlacement as DeviceValues,
};
use runstone_flash::nand::{Image, MemoryImage, Timing};

use crate::clock::{LASTING, PASSING, WorkloadClock};
use crate::fuzz::flash::{BLOCK_SSD, KVSSD};
use crate::oracle::{Change, OPERATOR, State, Write, apply};
use crate::random::Random;

/// Shortest run of zeros that a sample leaves out.
const LEAST_GAP: usize = 64;

/// The name of the file in a sample of sorted entries, which is to be ingested.
pub const SORTED: &str = "sorted.table";

/// Files by name. A device is the files `flash` and `saved`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A sample that this release makes, with the content that it must show.
#[derive(Debug)]
pub struct Sample {
    /// Its name.
    pub name: &'static str,
    /// Its files.
    pub files: Files,
    /// The content that was written.
    pub state: State,
}

/// Makes a sample for each placement and device with a format of its own.
pub fn make() -> Vec<Sample> {
    let mut plain = keyspace("fragmented-leveling");
    plain.compression = vec![Compression::None, Compression::Lz4, Compression::Zstd];
    plain.hash_index = true;
    let mut prefixes = keyspace("adaptive-tiering");
    prefixes.prefix = "fixed(4)".to_string();
    let mut cold = apart(ValuePlacement::HashGrouped);
    cold.values.cold_stream = true;
    let mut early = apart(ValuePlacement::Vlog);
    early.values.early = true;
    let mut writeback = apart(ValuePlacement::HashGrouped);
    writeback.values.gc_pointers = GcPointers::Writeback;
    let mut cold_back = writeback.clone();
    cold_back.values.cold_stream = true;
    let mut ranges = keyspace("fragmented-leveling");
    ranges.merge_operator = OPERATOR.to_string();
    let mut expiring = apart(ValuePlacement::HashGrouped);
    expiring.ttl_seconds = 9_000 * 365 * 24 * 3600;
    vec![
        of_files("expiring", expiring, true, Some(expire)),
        of_files("ranges-and-operands", ranges, true, Some(change)),
        of_files("loaded", keyspace("tiering"), true, Some(load)),
        of_files("edits", keyspace("leveling"), true, Some(edit)),
        of_files("plain", plain.clone(), false, None),
        of_files("log", plain, true, None),
        of_files("prefixes", prefixes, true, None),
        of_files("vlog", apart(ValuePlacement::Vlog), true, None),
        of_files("vlog-early", early, true, None),
        of_files("hash-grouped", apart(ValuePlacement::HashGrouped), false, None),
        of_files("cold-stream", cold, false, None),
        of_files("writeback", writeback, true, None),
        of_files("cold-stream-writeback", cold_back, false, None),
        kvssd("kvssd", Durability::Capacitor, Partitioner::Size, DeviceValues::Inline),
        kvssd(
            "kvssd-global-range",
            Durability::Log,
            Partitioner::GlobalRange,
            DeviceValues::Inline,
        ),
        kvssd("kvssd-values", Durability::Capacitor, Partitioner::Size, DeviceValues::Groups),
        block_ssd(),
    ]
}

/// Options to make and open samples. The store keeps the keyspace options. The clock is the system
/// clock, so entries that had expired when a sample was made are still expired.
pub fn options(keyspace: Option<KeyspaceOptions>) -> Options {
    Options::default()
        .memory_budget_bytes(2 << 20)
        .background(Background::Manual)
        .wal_segment_bytes(64 << 10)
        .max_wal_bytes(512 << 10)
        .wal_mode(WalMode::Write)
        .seed(1)
        .keyspace(keyspace)
}

/// The options to make a sample.
fn clocked(keyspace: Option<KeyspaceOptions>) -> Options {
    options(keyspace).clock(Arc::new(WorkloadClock))
}

fn keyspace(policy: &str) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default().policy(Policy::named(policy));
    options.write_buffer_bytes = 64 << 10;
    options.block_bytes = 1024;
    let shape = unstable::numbers_mut(&mut options);
    shape.l0_trigger = 2;
    shape.size_ratio = 3;
    shape.base_bytes = 8 << 10;
    shape.table_bytes = 8 << 10;
    shape.split_bytes = 4 << 10;
    options
}

fn apart(placement: ValuePlacement) -> KeyspaceOptions {
    let mut options = keyspace("leveling");
    options.values.placement = placement;
    options.values.separate_at = 40;
    options.values.groups = 2;
    options.values.slot_bytes = 4096;
    options.values.reserve = 0.1.into();
    options.values.vlog_chunk_bytes = 4096;
    options
}

/// The files of a closed store, or of a store that stopped with a log. `further` is called before
/// and after a reopen, because a new manifest describes the tree as a whole.
fn of_files(
    name: &'static str,
    options_of: KeyspaceOptions,
    has_log: bool,
    further: Option<fn(&Store, &mut State)>,
) -> Sample {
    let storage = MemoryStorage::new();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let has_cold_stream = options_of.values.cold_stream;
    let mut store = Store::open_on(Arc::clone(&shared), clocked(Some(options_of))).expect("fresh");
    let mut state = fill(&store, 220);
    if has_cold_stream {
        cool(&store, &mut state);
    }
    if let Some(further) = further {
        further(&store, &mut state);
        store.close().expect("memory");
        store = Store::open_on(shared, clocked(None)).expect("opens");
        further(&store, &mut state);
    }
    match has_log {
        true => std::mem::forget(store),
        false => store.close().expect("memory"),
    }
    Sample { name, files: files_of(&storage), state }
}

/// All files of a storage.
pub fn files_of(storage: &dyn Storage) -> Files {
    let files = storage.list().expect("memory");
    let content = |name: &str| crate::fuzz::get_file(storage, name);
    files.iter().map(|file| (file.name.clone(), content(&file.name))).collect()
}

/// Keys of two keyspaces, some replaced and some deleted, in tables of several levels.
fn fill(store: &Store, writes: u64) -> State {
    let options = store.default_keyspace().options();
    let other = store.open_keyspace("other", Some((*options).clone())).expect("new");
    let keyspaces = [store.default_keyspace().clone(), other];
    let mut state = State::new();
    let mut random = Random::new(20);
    for i in 0..writes {
        let place = usize::from(random.one_in(4));
        let key = match random.below(40) {
            0 => Vec::new(),
            1 => vec![0xff; 300],
            // Half of the keys are written once, so that a cold stream gets values.
            draw if draw < 20 => format!("user{:03}", random.below(40)).into_bytes(),
            _ => format!("once{i:03}").into_bytes(),
        };
        if random.one_in(6) {
            keyspaces[place].delete(&key).expect("memory");
            state.remove(&(place, key));
        } else {
            let len = [0, 10, 45, 90][random.below(4) as usize];
            let value: Vec<u8> = (0..len).map(|at| (random.draw() >> (at % 30)) as u8).collect();
            keyspaces[place].put(&key, &value).expect("memory");
            state.insert((place, key), value);
        }
        // Recovery reports damage in a log only if a later record says that the log was synced.
        store.sync().expect("memory");
        match i % 40 {
            // The last writes stay in the log.
            39 if i + 30 < writes => store.flush().expect("memory"),
            25 => store.collect_values().expect("memory"),
            _ => {}
        }
        let _ = store.run_one_job().expect("memory");
    }
    state
}

/// Writes values and updates only the even ones, until a collection moves the odd ones to the cold
/// stream and leaves tags. The values are mostly zeros, which a sample leaves out.
fn cool(store: &Store, state: &mut State) {
    for turn in 1..5 {
        for number in (0..10).filter(|number| turn == 1 || number % 2 == 0) {
            let (key, mut value) = (format!("cool{number}").into_bytes(), vec![0; 900]);
            value[..2].copy_from_slice(&[turn, number]);
            store.put(&key, &value).expect("memory");
            state.insert((0, key), value);
        }
        store.flush().expect("memory");
    }
    store.collect_values().expect("memory");
}

/// Deletes ranges and writes operands, into tables and into the log.
fn change(store: &Store, state: &mut State) {
    let keyspace = store.default_keyspace();
    for round in 0..4u8 {
        let write = |change| Write { keyspace: 0, key: vec![b'r', round], change };
        let ranges = [(&b"once0"[..], Some(&b"once02"[..])), (b"user03", None)];
        let (start, end) = ranges[usize::from(round) % 2];
        let range = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
        keyspace.delete_range(range).expect("memory");
        store.sync().expect("memory");
        let range = Change::DeleteRange(end.map(<[u8]>::to_vec));
        let mut writes = vec![Write { key: start.to_vec(), ..write(range) }];
        for operand in [b"1", b"2"] {
            for key in [&b"user01"[..], b"merged"] {
                keyspace.merge(key, operand).expect("memory");
                store.sync().expect("memory");
                let operand = Change::Merge(operand.to_vec());
                writes.push(Write { key: key.to_vec(), ..write(operand) });
            }
        }
        apply(state, &writes);
        // The last writes stay in the log.
        if round < 3 {
            store.flush().expect("memory");
        }
    }
}

/// Writes entries that have expired, over others and on their own, into tables and into the log.
fn expire(store: &Store, state: &mut State) {
    let keyspace = store.default_keyspace();
    for round in 0..3u8 {
        for key in [&b"user02"[..], b"once1", b"brief"] {
            let (key, value) = ([key, &[b'0' + round]].concat(), [round; 60]);
            keyspace.put_with_ttl(&key, value, PASSING).expect("memory");
            store.sync().expect("memory");
            state.remove(&(0, key));
        }
        let (key, value) = ([&b"lasting"[..], &[b'0' + round]].concat(), vec![round; 9]);
        keyspace.put(&key, &value).expect("memory");
        store.sync().expect("memory");
        state.insert((0, key), value);
        WorkloadClock::tick();
        // The last writes stay in the log.
        if round < 2 {
            store.flush().expect("memory");
        }
    }
}

/// Makes a keyspace and drops it, so that the log mentions edits and contains writes to a dropped
/// keyspace.
fn edit(store: &Store, state: &mut State) {
    let passing = store.open_keyspace("passing", None).expect("new");
    passing.put("gone", "with its keyspace").expect("memory");
    store.sync().expect("memory");
    store.drop_keyspace("passing").expect("there");
    store.put("edited", "behind it").expect("memory");
    store.sync().expect("memory");
    state.insert((0, b"edited".to_vec()), b"behind it".to_vec());
}

/// Loads entries over existing keys and after all keys, and ingests a file that also deletes.
fn load(store: &Store, state: &mut State) {
    let keyspace = store.default_keyspace();
    // The second call writes different values.
    let round = unstable::shape(keyspace).tables().count() as u8;
    let entries = |stem: &'static str| {
        (0..20).map(move |i| (format!("{stem}{i:02}").into_bytes(), vec![round; 50]))
    };
    for stem in ["once0", "zebra"] {
        keyspace.bulk_load(entries(stem)).expect("memory");
        state.extend(entries(stem).map(|(key, value)| ((0, key), value)));
    }
    let files = write_sorted(entries("user0"), state);
    keyspace.ingest_from(&files, &[SORTED]).expect("memory");
    // The last write stays in the log.
    keyspace.put("zebra05", "logged").expect("memory");
    store.sync().expect("memory");
    state.insert((0, b"zebra05".to_vec()), b"logged".to_vec());
}

/// Writes a file of sorted entries. A third of them are deletes.
fn write_sorted(
    entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    state: &mut State,
) -> MemoryStorage {
    let files = MemoryStorage::new();
    let options = KeyspaceOptions::default();
    let mut writer =
        SortedWriter::create_on(Arc::new(files.clone()), SORTED, &options).expect("memory");
    for (key, value) in entries {
        match value[0].wrapping_add(key[6]) % 3 {
            0 => {
                writer.delete(&key).expect("memory");
                state.remove(&(0, key));
            }
            _ => {
                writer.put(&key, &value).expect("memory");
                state.insert((0, key), value);
            }
        }
    }
    writer.finish().expect("memory");
    files
}

/// A file of sorted entries that no store has ingested yet.
pub fn sorted() -> Sample {
    let mut state = State::new();
    let entries = (0..60u8).map(|i| (format!("entry{i:02}").into_bytes(), vec![i; 40]));
    let files = files_of(&write_sorted(entries, &mut state));
    Sample { name: "sorted", files, state }
}

/// A file of sorted entries: some have expired, some will not expire soon, and some never expire.
pub fn sorted_expiring() -> Sample {
    let (storage, mut state) = (MemoryStorage::new(), State::new());
    let (shared, options) = (Arc::new(storage.clone()), KeyspaceOptions::default());
    let mut writer = SortedWriter::create_on(shared, SORTED, &options).expect("memory");
    for i in 0..60u8 {
        let (key, value) = (format!("entry{i:02}").into_bytes(), vec![i; 40]);
        let expiry = match i % 3 {
            0 => Expiry::At(UNIX_EPOCH + PASSING),
            1 => Expiry::At(UNIX_EPOCH + LASTING),
            _ => Expiry::Never,
        };
        writer.put_with_expiry(&key, &value, expiry).expect("memory");
        if i % 3 > 0 {
            state.insert((0, key), value);
        }
    }
    writer.finish().expect("memory");
    Sample { name: "sorted-expiring", files: files_of(&storage), state }
}

fn kvssd(
    name: &'static str,
    durability: Durability,
    cuts: Partitioner,
    values: DeviceValues,
) -> Sample {
    let (image, side) = (MemoryImage::new(), MemoryImage::new());
    let options = KvSsdOptions {
        durability,
        cuts,
        memtable_pages: 2,
        level1_pages: 4,
        size_ratio: 2,
        checkpoint_commits: 3,
        values,
        values_from: 20,
        ..KvSsdOptions::default()
    };
    let (flash, saved) = (Box::new(image.clone()), Box::new(side.clone()));
    let device = KvSsd::create(flash, saved, KVSSD, Timing::PAPER, options);
    let mut device = device.expect("valid options");
    let mut state = State::new();
    let mut random = Random::new(30);
    // Few writes, so that all samples together stay small.
    let writes = if values == DeviceValues::Inline { 160 } else { 100 };
    for _ in 0..writes {
        let key = format!("key{:02}", random.below(50)).into_bytes();
        if random.one_in(5) {
            device.delete(&key).expect("room");
            state.remove(&(0, key));
        } else {
            let len = 1 + random.below(60);
            let value: Vec<u8> = (0..len).map(|at| (random.draw() >> (at % 30)) as u8).collect();
            device.put(&key, &value).expect("room");
            state.insert((0, key), value);
        }
    }
    device.sync().expect("room");
    drop(device);
    Sample { name, files: device_files(&image, &side), state }
}

/// The image of a device and the file beside it.
fn device_files(image: &MemoryImage, side: &MemoryImage) -> Files {
    let bytes = |image: &MemoryImage| {
        let mut bytes = vec![0; image.len_bytes().expect("memory") as usize];
        image.read_at(0, &mut bytes).expect("whole");
        bytes
    };
    [("flash".to_string(), bytes(image)), ("saved".to_string(), bytes(side))].into()
}

/// A storage in memory that contains the files.
pub fn storage_of(files: &Files) -> MemoryStorage {
    let storage = MemoryStorage::new();
    for (name, bytes) in files {
        let file = storage.create(name, Category::Other).expect("new");
        file.write_at(0, bytes).expect("memory");
    }
    storage
}

/// An image with these bytes.
pub fn image_of(bytes: &[u8]) -> MemoryImage {
    let image = MemoryImage::new();
    image.set_len(bytes.len() as u64).expect("memory");
    image.write_at(0, bytes).expect("memory");
    image
}

/// A store on a block SSD.
fn block_ssd() -> Sample {
    let image = MemoryImage::new();
    let geometry = runstone_flash::nand::Geometry { block_count: 96, ..BLOCK_SSD };
    let (flash, options_of) = (Box::new(image.clone()), BlockOptions::default());
    let storage = BlockStorage::create(flash, geometry, options_of).expect("a valid geometry");
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options(Some(keyspace("leveling")))).expect("fresh");
    let state = fill(&store, 60);
    store.close().expect("room");
    drop(storage);
    Sample { name: "block-ssd", files: device_files(&image, &MemoryImage::new()), state }
}

/// Encodes a sample for storage.
pub fn encode(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        let runs = runs(bytes);
        out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
        for (from, to) in runs {
            out.extend_from_slice(&(from as u64).to_le_bytes());
            out.extend_from_slice(&((to - from) as u32).to_le_bytes());
            out.extend_from_slice(&bytes[from..to]);
        }
    }
    out
}

/// The runs of bytes that are not 0, across short gaps.
fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
        match runs.last_mut() {
            Some((_, end)) if at - *end < LEAST_GAP => *end = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

/// Decodes a stored sample. We wrote it, so this panics if it is damaged.
pub fn decode(mut bytes: &[u8]) -> Files {
    let mut files = Files::new();
    while let Some(len) = bytes.split_off_first() {
        let name = bytes.split_off(..usize::from(*len)).expect("a name");
        let mut content = vec![0; take_u64(&mut bytes) as usize];
        for _ in 0..take_u32(&mut bytes) {
            let (from, len) = (take_u64(&mut bytes) as usize, take_u32(&mut bytes) as usize);
            let run = bytes.split_off(..len).expect("a run");
            content[from..from + len].copy_from_slice(run);
        }
        files.insert(String::from_utf8(name.to_vec()).expect("a name"), content);
    }
    files
}

fn take_u64(bytes: &mut &[u8]) -> u64 {
    u64::from_le_bytes(bytes.split_off(..8).expect("a number").try_into().expect("8"))
}

fn take_u32(bytes: &mut &[u8]) -> u32 {
    u32::from_le_bytes(bytes.split_off(..4).expect("a number").try_into().expect("4"))
}

/// The formats of these files, read from the numbers and tags in their bytes.
pub fn formats(files: &Files) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let storage = MemoryStorage::new();
    for (name, bytes) in files {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let kind = name.rsplit('.').next().unwrap_or_default();
        match kind {
            "wal" | "values" => drop(found.insert(format!("{kind} {}", word(8)))),
            "table" => drop(found.insert(format!("table {}", word(bytes.len() - 16)))),
            "manifest" => {
                found.insert(format!("manifest {}", word(8)));
                let file = storage.create(name, Category::Manifest).expect("new");
                file.write_at(0, bytes).expect("memory");
                let number = name.split('.').next().and_then(|digits| digits.parse().ok());
                found.extend(manifest_tags(&storage, number.expect("a number")));
            }
            "flash" => {
                found.insert(format!("flash {}", word(8)));
                let magic = bytes.windows(8).filter(|bytes| bytes.starts_with(b"RCKP"));
                found.extend(magic.map(|bytes| format!("checkpoint {}", bytes[4])));
            }
            _ => {}
        }
    }
    found
}

fn manifest_tags(storage: &MemoryStorage, number: u64) -> BTreeSet<String> {
    let mut tags = BTreeSet::new();
    for record in crate::fuzz::seeds::manifest_records(storage, number) {
        let mut reader = runstone::testing::Reader::new(&record);
        reader.take_varint().expect("own bytes");
        while !reader.is_empty() {
            let tag = reader.take_varint().expect("own bytes");
            reader.take_bytes().expect("own bytes");
            tags.insert(format!("manifest tag {tag}"));
        }
    }
    tags
}
