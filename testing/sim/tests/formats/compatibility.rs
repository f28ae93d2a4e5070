//! Stores of each release are opened (P11): the samples in `samples/RELEASE/`, each a store or
//! device as that release wrote it, with hashes of its contents and of its bytes in
//! `samples/golden.txt`. Samples are never made again; `SAMPLES=RELEASE` adds those of a release
//! (CONTRIBUTING.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{Error, ReadOptions, Store};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::kvssd::{Direction, KvSsd};
use runstone_flash::nand::Timing;
use runstone_sim::oracle::State;
use runstone_sim::samples::{
    Files, SORTED, Sample, decode, encode, formats, image_of, make, options, sorted,
    sorted_expiring, storage_of,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MOST_BYTES: u64 = 576 << 10;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

/// What must be found in a sample.
struct Golden {
    /// Hash of all entries.
    state: u64,
    entries: usize,
    /// Hash of the sample's file.
    bytes: u64,
}

/// What must be found, by place (`0.1/plain`).
fn golden() -> BTreeMap<String, Golden> {
    let text = fs::read_to_string(directory().join("golden.txt")).expect("committed");
    let hash = |word: &str| u64::from_str_radix(word, 16).expect("a hash");
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [place, state, entries, bytes] = words[..] else { panic!("four words: {line}") };
        let entries = entries.parse().expect("entries");
        (place.to_string(), Golden { state: hash(state), entries, bytes: hash(bytes) })
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

/// The samples, as they were committed.
fn samples() -> Vec<(String, Files)> {
    let read = |(place, golden): (String, Golden)| {
        let bytes = fs::read(directory().join(&place).with_extension("sample"));
        let bytes = bytes.unwrap_or_else(|error| panic!("{place}: {error}"));
        let is_same = xxh3_64(&bytes) == golden.bytes;
        assert!(is_same, "{place} was changed: {:016x}; users have the old one", xxh3_64(&bytes));
        (place, decode(&bytes))
    };
    golden().into_iter().map(read).collect()
}

fn hash_of(state: &State) -> u64 {
    state.iter().fold(0, |hash, ((keyspace, key), value)| {
        xxh3_64_with_seed(value, xxh3_64_with_seed(key, hash ^ *keyspace as u64))
    })
}

/// The samples of this release.
fn made() -> impl Iterator<Item = Sample> {
    make().into_iter().chain([sorted(), sorted_expiring()])
}

/// The store or device that was opened.
enum Opened {
    Store(Store),
    Device(Box<KvSsd>),
}

fn open(files: &Files) -> Result<Opened, String> {
    if files.contains_key(SORTED) {
        return ingest(files).map_err(text);
    }
    let Some(flash) = files.get("flash") else {
        return open_on(Arc::new(storage_of(files)));
    };
    let (image, side) = (Box::new(image_of(flash)), Box::new(image_of(&files["saved"])));
    match KvSsd::open(image.clone(), side, None, Timing::PAPER, None) {
        Ok(device) => Ok(Opened::Device(Box::new(device))),
        Err(runstone_flash::Error::NotAKvSsd { .. }) => {
            let storage = BlockStorage::open(image, None, BlockOptions::default());
            open_on(Arc::new(storage.map_err(|error| error.to_string())?))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Ingests a file of sorted entries into a fresh store.
fn ingest(files: &Files) -> Result<Opened, Error> {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options(None))?;
    store.open_keyspace("other", None)?;
    store.default_keyspace().ingest_from(&storage_of(files), &[SORTED])?;
    Ok(Opened::Store(store))
}

/// Opens the store with the options that it has stored.
fn open_on(storage: Arc<dyn Storage>) -> Result<Opened, String> {
    let store = Store::open_on(storage, options(None)).map_err(|error| error.to_string())?;
    Ok(Opened::Store(store))
}

fn read(opened: &mut Opened) -> Result<State, String> {
    let mut state = State::new();
    match opened {
        Opened::Store(store) => {
            for (i, name) in ["default", "other"].iter().enumerate() {
                let keyspace = store.keyspace(name).map_err(text)?;
                let mut cursor = keyspace.cursor(ReadOptions::default()).map_err(text)?;
                cursor.seek_to_first().map_err(text)?;
                while cursor.valid() {
                    let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
                    let found = keyspace.get(&key).map_err(text)?;
                    assert_eq!(found.as_deref(), Some(&value[..]), "get and scan agree");
                    state.insert((i, key), value);
                    cursor.next().map_err(text)?;
                }
            }
            let report = store.verify().map_err(text)?;
            assert!(report.is_clean(), "{:?}", report.damage);
        }
        Opened::Device(device) => {
            device.verify().map_err(|error| error.to_string())?;
            let snapshot = device.snapshot();
            let scanned = device.scan(None, Direction::Forward, snapshot, &mut |key, value| {
                state.insert((0, key.to_vec()), value.to_vec());
                true
            });
            scanned.map_err(|error| error.to_string())?;
            device.release(snapshot);
        }
    }
    Ok(state)
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Writes to the opened store, compacts it and reads it again.
fn go_on(opened: &mut Opened, state: &mut State) {
    state.insert((0, b"new".to_vec()), b"of today".to_vec());
    match opened {
        Opened::Store(store) => {
            store.put("new", "of today").expect("writable");
            store.flush().expect("writable");
            store.compact().expect("writable");
            store.collect_values().expect("writable");
        }
        Opened::Device(device) => {
            device.put(b"new", b"of today").expect("writable");
            device.flush().expect("writable");
        }
    }
    assert!(read(opened).expect("readable") == *state, "the same, and what is new");
}

#[test]
fn every_sample_opens_and_goes_on() {
    let golden = golden();
    for (place, files) in samples() {
        let mut opened = open(&files).unwrap_or_else(|error| panic!("{place}: {error}"));
        let mut state = read(&mut opened).unwrap_or_else(|error| panic!("{place}: {error}"));
        let Golden { state: hash, entries, .. } = golden[&place];
        assert_eq!((hash_of(&state), state.len()), (hash, entries), "{place}");
        go_on(&mut opened, &mut state);
    }
}

/// A store has a cold stream from its first write, but tags only when a collection has moved
/// records there: in the first sample no collection had.
#[test]
fn a_sample_has_tags_that_lead_to_the_cold_stream() {
    let cold_bytes = |(place, files): (String, Files)| {
        let Ok(Opened::Store(store)) = open(&files) else { panic!("{place} is a store") };
        let usage = store.default_keyspace().value_usage();
        let groups = usage.iter().flat_map(|file| &file.groups);
        groups.map(|group| group.cold_bytes).sum::<u64>()
    };
    let cold = samples().into_iter().filter(|(place, _)| place.contains("cold-stream"));
    let (back, stable): (Vec<_>, Vec<_>) = cold.partition(|(place, _)| place.contains("writeback"));
    for samples in [back, stable] {
        let all: Vec<u64> = samples.into_iter().map(cold_bytes).collect();
        assert!(all.iter().any(|bytes| *bytes > 0), "cold bytes of the samples: {all:?}");
    }
}

/// A later release increases a format number: this release says so instead of guessing.
#[test]
fn a_newer_format_is_refused() {
    let mut refused = BTreeSet::new();
    for (place, files) in samples() {
        for name in files.keys() {
            let mut newer = files.clone();
            let Some(what) = count_up(name, newer.get_mut(name).expect("listed")) else { continue };
            let outcome = open(&newer).and_then(|mut opened| read(&mut opened));
            let error = outcome.err().unwrap_or_else(|| panic!("{place}: {name} was read"));
            assert!(error.contains("format"), "{place}: {name}: {error}");
            refused.insert(what);
        }
    }
    let expected = ["flash", "manifest", "table", "values", "wal"];
    assert!(refused.into_iter().eq(expected), "each kind of file was met");
}

/// Gives a file a later format under valid checksums. Returns its kind.
fn count_up(name: &str, bytes: &mut [u8]) -> Option<&'static str> {
    let mut seal = |at: usize, covered: usize, sum_at: usize| {
        bytes[at] += 1;
        let from = at & !63;
        let sum = xxh3_64(&bytes[from..from + covered]) as u32;
        bytes[from + sum_at..from + sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    };
    match name.rsplit('.').next()? {
        kind @ ("wal" | "manifest") => {
            seal(8, 60, 60);
            seal(72, 60, 60);
            Some(if kind == "wal" { "wal" } else { "manifest" })
        }
        "values" => {
            seal(8, 24, 24);
            Some("values")
        }
        "table" => {
            let footer = bytes.len() - 56;
            bytes[footer + 40] += 1;
            let sum = xxh3_64(&bytes[footer..footer + 44]) as u32;
            bytes[footer + 44..footer + 48].copy_from_slice(&sum.to_le_bytes());
            Some("table")
        }
        "flash" => {
            bytes[8] += 1;
            let sum = crc32c::crc32c(&bytes[..4092]);
            bytes[4092..4096].copy_from_slice(&sum.to_le_bytes());
            Some("flash")
        }
        _ => None,
    }
}

/// Whoever increases a format number, or writes a new tag, adds samples of the old form and of the
/// new one.
#[test]
fn what_is_written_today_has_a_sample() {
    if let Some(release) = std::env::var_os("SAMPLES") {
        add(&release.to_string_lossy());
    }
    let known: BTreeSet<String> = samples().iter().flat_map(|(_, files)| formats(files)).collect();
    for sample in made() {
        for format in formats(&sample.files) {
            let name = sample.name;
            assert!(known.contains(&format), "{name}: no sample of {format}; see CONTRIBUTING.md");
        }
        let mut opened = open(&sample.files).expect("just made");
        assert!(read(&mut opened).expect("just made") == sample.state, "{}", sample.name);
    }
}

/// Writes the samples of a release. Existing ones stay.
fn add(release: &str) {
    let place = directory().join(release);
    fs::create_dir_all(&place).expect("writable");
    let mut lines = fs::read_to_string(directory().join("golden.txt")).unwrap_or_else(|_| {
        "# place, hash of all entries, entries, hash of the file; written with SAMPLES, see \
         CONTRIBUTING.md\n"
            .into()
    });
    for sample in made() {
        let file = place.join(sample.name).with_extension("sample");
        if file.exists() {
            continue;
        }
        let bytes = encode(&sample.files);
        let (name, hash, entries) = (sample.name, hash_of(&sample.state), sample.state.len());
        let of_bytes = xxh3_64(&bytes);
        fs::write(file, bytes).expect("writable");
        lines.push_str(&format!("{release}/{name} {hash:016x} {entries} {of_bytes:016x}\n"));
    }
    fs::write(directory().join("golden.txt"), lines).expect("writable");
}

#[test]
fn samples_are_small_and_each_is_opened() {
    let golden = golden();
    let (mut bytes, mut count) = (0, 0);
    for release in fs::read_dir(directory()).expect("committed") {
        let release = release.expect("readable").path();
        if !release.is_dir() {
            continue;
        }
        for file in fs::read_dir(&release).expect("readable") {
            let file = file.expect("readable").path();
            let place = file.strip_prefix(directory()).expect("inside").with_extension("");
            assert!(golden.contains_key(&*place.to_string_lossy()), "{}", file.display());
            bytes += file.metadata().expect("readable").len();
            count += 1;
        }
    }
    assert!(count == golden.len() && bytes < MOST_BYTES, "{count} samples of {bytes} bytes");
}
