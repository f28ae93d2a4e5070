//! Damage to a sample of each format, one byte or cut at a time. The sample is opened, scanned,
//! read key by key, verified and dumped. Each step gives the right data or an error that names the
//! file (P6), never a panic, and uses no more memory than a few times the size of the files.
//! `every_byte.rs` damages every byte of one store. Here each placement and device is damaged, at
//! fewer bytes.
//!
//! To damage them all: `RUNSTONE_EVERY=1 cargo test --release -p runstone-sim --test corruption
//! samples`.

use std::sync::Arc;

use runstone::dump::dump_file;
use runstone::storage::Storage;
use runstone::{Error, Keyspace, ReadOptions, Store, VerifyReport};
use runstone_flash::Error as FlashError;
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::kvssd::{Direction, KvSsd};
use runstone_flash::nand::Timing;
use runstone_sim::oracle::State;
use runstone_sim::samples::{Files, Sample, image_of, make, options, storage_of};

/// More memory than these tests use. A store that trusts a damaged length ends the process.
const MOST_MEMORY_BYTES: u64 = 3 << 30;

fn every(usual: usize) -> usize {
    std::env::var("RUNSTONE_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn limit_memory() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::As).maximum;
    let limit = Rlimit { current: Some(MOST_MEMORY_BYTES), maximum };
    setrlimit(Resource::As, limit).expect("a process may limit itself");
}

/// What was damaged and how.
struct Damaged {
    files: Files,
    what: String,
    /// How many keys may be wrong without an error, because no check can find it.
    most_wrong: usize,
}

impl Damaged {
    fn new(files: &Files, name: &str, what: String, change: impl FnOnce(&mut Vec<u8>)) -> Damaged {
        let mut files = files.clone();
        change(files.get_mut(name).expect("listed"));
        Damaged { files, what: format!("{name} {what}"), most_wrong: 0 }
    }
}

/// Changes bytes in turn, each in three ways, and cuts files short.
fn damages(files: &Files, step: usize) -> impl Iterator<Item = Damaged> + '_ {
    let flips = files.iter().flat_map(move |(name, bytes)| {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let flip = move |at: usize| {
            let byte = [bytes[at] ^ 1 << (at % 8), 0, 0xff][at / step % 3];
            let what = format!("byte {at} is {byte:#x}");
            let damaged = Damaged::new(files, name, what, |bytes| bytes[at] = byte);
            // Corruption of the last record of a log that was not closed may go unnoticed.
            let most_wrong = usize::from(name.ends_with(".wal"));
            (byte != bytes[at]).then_some(Damaged { most_wrong, ..damaged })
        };
        (name.len() % step..used).step_by(step).filter_map(flip)
    });
    let is_closed = !files.keys().any(|name| name.ends_with(".wal"));
    let cuts = files.iter().flat_map(move |(name, bytes)| {
        // Nothing records the length of a file that was still being written.
        let is_open = name.ends_with(".wal") || name == "saved";
        let is_open = is_open || (!is_closed && name.ends_with(".manifest"));
        (0..bytes.len()).step_by(step * 7 + 1).map(move |len| {
            let what = format!("cut to {len} of {}", bytes.len());
            let damaged = Damaged::new(files, name, what, |bytes| bytes.truncate(len));
            Damaged { most_wrong: if is_open { usize::MAX } else { 0 }, ..damaged }
        })
    });
    flips.chain(cuts)
}

/// The content that was found, and whether everything is sound.
struct Looked {
    state: Result<State, Error>,
    /// The number of expected keys for which a get returned something else.
    wrong_gets: usize,
    report: Option<VerifyReport>,
}

fn look(storage: Arc<dyn Storage>, read_only: bool, expected: &State) -> Looked {
    let of = options(None).read_only(read_only);
    for file in storage.list().expect("memory") {
        told(dump_file(&*storage, &file.name, true).map(drop), &file.name);
    }
    let store = match Store::open_on(storage, of) {
        Ok(store) => store,
        Err(error) => return Looked { state: Err(error), wrong_gets: 0, report: None },
    };
    let (mut state, mut wrong_gets) = (Ok(State::new()), 0);
    for (i, name) in ["default", "other"].iter().enumerate() {
        let Ok(keyspace) = store.keyspace(name) else { continue };
        state = state.and_then(|state| scan(&keyspace, i, state));
        wrong_gets += get_all(&keyspace, i, expected);
    }
    Looked { state, wrong_gets, report: store.verify().ok() }
}

fn scan(keyspace: &Keyspace, i: usize, mut state: State) -> Result<State, Error> {
    let mut cursor = keyspace.cursor(ReadOptions::default())?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        state.insert((i, cursor.key().to_vec()), cursor.value().to_vec());
        cursor.next()?;
    }
    Ok(state)
}

/// Gets every key separately, since gets use filters and hash indexes and scans do not. Returns how
/// many values differ from the expected ones.
fn get_all(keyspace: &Keyspace, i: usize, expected: &State) -> usize {
    let of_keyspace = expected.iter().filter(|((of, _), _)| *of == i);
    let is_wrong = |(key, value): &(&[u8], &Vec<u8>)| match keyspace.get(key) {
        Ok(found) => found.as_deref() != Some(&value[..]),
        Err(error) => {
            told(Err(error), "a get");
            false
        }
    };
    of_keyspace.map(|((_, key), value)| (&key[..], value)).filter(is_wrong).count()
}

/// Checks that an error says where the damage is and what to do.
fn told(outcome: Result<(), Error>, what: &str) {
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty() && !error.hint().is_empty(), "{what}: {error:?}");
        let is_place = error.place().is_some() || matches!(error, Error::InvalidArgument { .. });
        assert!(is_place, "{what}: no place: {error:?}");
    }
}

/// The number of keys whose values differ.
fn differences(found: &State, expected: &State) -> usize {
    let keys = found.keys().chain(expected.keys());
    let mut keys: Vec<_> = keys.filter(|key| found.get(*key) != expected.get(*key)).collect();
    keys.sort();
    keys.dedup();
    keys.len()
}

fn judge(looked: Looked, damaged: &Damaged, expected: &State) -> bool {
    let what = &damaged.what;
    let most = damaged.most_wrong;
    assert!(looked.wrong_gets <= most, "{what}: a wrong answer to a get");
    match looked.state {
        Err(error) => {
            let is_clean = looked.report.is_some_and(|report| report.is_clean());
            assert!(!is_clean, "{what}: {error}, and yet it verifies");
            told(Err(error), what);
            true
        }
        Ok(state) => {
            assert!(differences(&state, expected) <= most, "{what}: a wrong answer");
            looked.report.is_some_and(|report| !report.is_clean())
        }
    }
}

fn stores() -> Vec<Sample> {
    make().into_iter().filter(|sample| !sample.files.contains_key("flash")).collect()
}

#[test]
fn damaged_stores_tell_it_or_are_right() {
    limit_memory();
    for sample in stores() {
        let (mut found, mut harmless) = (0, 0);
        for (i, damaged) in damages(&sample.files, every(53)).enumerate() {
            let looked = look(Arc::new(storage_of(&damaged.files)), i % 2 == 0, &sample.state);
            match judge(looked, &damaged, &sample.state) {
                true => found += 1,
                false => harmless += 1,
            }
        }
        println!("{}: {found} told, {harmless} harmless", sample.name);
        assert!(found > 50, "{}: {found} told, {harmless} harmless", sample.name);
    }
}

fn device_sample(name: &str) -> Sample {
    make().into_iter().find(|sample| sample.name == name).expect("a sample")
}

/// The content of a KVSSD, and whether it verifies; an error if it reports damage.
fn look_at_device(files: &Files) -> Result<(State, bool), FlashError> {
    let (image, side) = (image_of(&files["flash"]), image_of(&files["saved"]));
    let mut device = KvSsd::open(Box::new(image), Box::new(side), None, Timing::PAPER, None)?;
    let verified = device.verify().is_ok();
    let mut state = State::new();
    device.scan(None, Direction::Forward, u64::MAX, &mut |key, value| {
        state.insert((0, key.to_vec()), value.to_vec());
        true
    })?;
    for ((_, key), value) in &state {
        assert_eq!(device.get(key)?.as_ref(), Some(value), "get and scan agree");
    }
    Ok((state, verified))
}

#[test]
fn a_damaged_kvssd_tells_it_or_is_right() {
    limit_memory();
    // The last group of a log may look like one that was never whole.
    for (name, last_group) in [("kvssd", 0), ("kvssd-global-range", 8)] {
        let sample = device_sample(name);
        let (mut told, mut harmless, mut lost) = (0, 0, 0);
        for damaged in damages(&sample.files, every(31)) {
            match look_at_device(&damaged.files) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    told += 1;
                }
                Ok((state, _)) if state == sample.state => harmless += 1,
                Ok((state, _)) => {
                    let count = differences(&state, &sample.state);
                    let most = last_group.max(damaged.most_wrong);
                    assert!(count <= most, "{}: a wrong answer", damaged.what);
                    lost += 1;
                }
            }
        }
        println!("{name}: {told} told, {harmless} harmless, {lost} lost the end of the log");
        assert!(told > 50 && harmless > 50, "{told} told, {harmless} harmless");
    }
}

#[test]
fn a_damaged_block_ssd_tells_it_or_is_right() {
    limit_memory();
    let sample = device_sample("block-ssd");
    let (mut found, mut harmless) = (0, 0);
    for (i, damaged) in damages(&sample.files, every(173)).enumerate() {
        let image = Box::new(image_of(&damaged.files["flash"]));
        let storage = match BlockStorage::open(image, None, BlockOptions::default()) {
            Ok(storage) => storage,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                found += 1;
                continue;
            }
        };
        let looked = look(Arc::new(storage), i % 2 == 0, &sample.state);
        match judge(looked, &damaged, &sample.state) {
            true => found += 1,
            false => harmless += 1,
        }
    }
    println!("block-ssd: {found} told, {harmless} harmless");
    assert!(found > 20 && harmless > 20, "{found} told, {harmless} harmless");
}
