//! Scrubs: everything is read slowly while the store continues, and damage is reported.

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::storage::Storage;
use runstone::{
    Background, Error, Event, EventListener, KeyspaceOptions, Options, Store, ValueOptions,
    ValuePlacement,
};
use runstone_fault_storage::SimStorage;

const FAST: u64 = 1 << 40;

#[derive(Debug, Default)]
struct Damaged(Mutex<Vec<String>>);

impl EventListener for Damaged {
    fn on_event(&self, event: &Event) {
        if let Event::DamageFound { file, .. } = event {
            self.0.lock().expect("no panic").push(file.clone());
        }
    }
}

/// A store with tables and, depending on its placement, value files.
fn filled(storage: &SimStorage, placement: ValuePlacement, options: Options) -> Store {
    let values = ValueOptions::default().placement(placement).separate_at(200);
    let options = options.keyspace(KeyspaceOptions::default().values(values));
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("it opens");
    for round in 0..3 {
        for number in 0..1_000 {
            let value = vec![round; if number % 2 == 0 { 20 } else { 500 }];
            store.put(format!("key{number:05}"), value).expect("a put");
        }
        store.flush().expect("a flush");
    }
    store
}

fn manual() -> Options {
    Options::default().background(Background::Manual)
}

fn awaited(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "it never came");
        sleep(Duration::from_millis(10));
    }
}

/// Files of the store that have this extension.
fn files(storage: &SimStorage, extension: &str) -> Vec<(String, u64)> {
    let all = storage.list().expect("a directory").into_iter();
    let all = all.filter(|file| file.name.ends_with(extension));
    all.map(|file| (file.name, file.len_bytes)).collect()
}

/// Each byte of a table is checked, even if the store has kept it in memory since the write.
#[test]
fn every_flipped_byte_of_a_table_is_told() {
    let storage = SimStorage::new(1);
    let damaged = Arc::new(Damaged::default());
    let options = manual().listener(Arc::clone(&damaged) as Arc<dyn EventListener>);
    let store = filled(&storage, ValuePlacement::Inline, options);
    assert!(store.default_keyspace().iter().expect("a scan").count() > 0, "it is in memory");
    let report = store.scrub(FAST).expect("readable");
    assert!(report.is_clean() && report.entries == 3_000, "{report:?}");
    let counters = store.metrics().counters;
    assert_eq!((counters.scrubs, counters.scrub_errors), (1, 0));
    assert!(counters.scrub_bytes > 100_000, "{}", counters.scrub_bytes);
    let (name, len) = files(&storage, ".table").remove(0);
    let mut errors = 0;
    for at in (0..len).step_by(len as usize / 97) {
        storage.flip_bit(&name, at, 3).expect("a file");
        let report = store.scrub(FAST).expect("readable");
        let told: Vec<&str> = report.damage.iter().map(|one| one.file.as_str()).collect();
        assert_eq!(told, [name.as_str()], "byte {at} of {len}: {report:?}");
        errors += 1;
        storage.flip_bit(&name, at, 3).expect("a file");
    }
    assert_eq!(store.metrics().counters.scrub_errors, errors);
    assert_eq!(damaged.0.lock().expect("no panic").len() as u64, errors);
    assert!(store.scrub(FAST).expect("readable").is_clean(), "all was put right");
    store.put("key", "value").expect("the store goes on");
}

#[test]
fn flipped_bytes_of_values_are_told() {
    for placement in [ValuePlacement::Vlog, ValuePlacement::HashGrouped] {
        let storage = SimStorage::new(2);
        let store = filled(&storage, placement, manual());
        let report = store.scrub(FAST).expect("readable");
        assert!(report.is_clean() && report.records >= 1_500, "{placement:?}: {report:?}");
        let (name, len) = files(&storage, ".values").remove(0);
        let mut found = 0;
        for at in (0..len).step_by(len as usize / 300) {
            storage.flip_bit(&name, at, 3).expect("a file");
            let report = store.scrub(FAST).expect("readable");
            assert!(report.damage.iter().all(|one| one.file == name), "{placement:?}: {report:?}");
            found += usize::from(!report.is_clean());
            storage.flip_bit(&name, at, 3).expect("a file");
        }
        assert!(found >= 10, "{placement:?}: {found}, the rest is free");
    }
}

/// Blocks that readers use stay in the cache, and no other blocks enter it.
#[test]
fn a_scrub_leaves_the_cache_as_it_found_it() {
    let storage = SimStorage::new(3);
    drop(filled(&storage, ValuePlacement::Inline, manual()));
    let store = Store::open_on(Arc::new(storage), manual()).expect("it opens");
    let before = store.metrics().memory;
    assert!(store.scrub(FAST).expect("readable").entries > 0);
    let after = store.metrics().memory;
    assert_eq!((after.cache_bytes, after.pinned_bytes), (before.cache_bytes, before.pinned_bytes));
}

/// A compaction, a collection or a drop during the scrub is not mistaken for damage.
#[test]
fn what_changes_during_a_scrub_is_no_damage() {
    let storage = SimStorage::new(4);
    let store = filled(&storage, ValuePlacement::HashGrouped, Options::default());
    let other = store.open_keyspace("other", None).expect("a keyspace");
    other.put("key", vec![1; 1000]).expect("a put");
    std::thread::scope(|scope| {
        let scrubbing = scope.spawn(|| {
            let all = (0..30).map(|_| store.scrub(FAST).expect("readable"));
            all.flat_map(|report| report.damage).collect::<Vec<_>>()
        });
        let mut round = 0;
        while !scrubbing.is_finished() {
            for number in 0..1_000 {
                store.put(format!("key{number:05}"), vec![round; 500]).expect("a put");
            }
            store.compact().expect("it compacts");
            round = round.wrapping_add(1);
        }
        assert_eq!(scrubbing.join().expect("it ends"), []);
    });
    store.drop_keyspace("other").expect("dropped");
    assert!(store.scrub(FAST).expect("readable").is_clean());
}

#[test]
fn a_close_ends_a_scrub_and_so_does_a_setting() {
    let storage = SimStorage::new(5);
    let store = filled(&storage, ValuePlacement::Inline, Options::default());
    for wrong in ["0", "1K", "fast"] {
        assert!(store.set_live("scrub", wrong).is_err(), "{wrong}");
    }
    assert!(matches!(store.scrub(0), Err(Error::InvalidArgument { .. })));
    // At this rate the scrub takes a minute.
    let started = store.set_live("scrub", "16K").expect("it starts");
    assert_eq!((started.old.as_str(), started.new.as_str()), ("off", "16384"));
    awaited(|| store.metrics().counters.scrub_bytes > 0);
    assert!(store.scrub(FAST).expect_err("one at a time").to_string().contains("another scrub"));
    let faster = store.set_live("scrub", "17K").expect("faster");
    assert_eq!((faster.old.as_str(), faster.new.as_str()), ("16384", "17408"));
    store.set_live("scrub", "off").expect("it ends");
    awaited(|| !matches!(store.scrub(FAST), Err(Error::InvalidArgument { .. })));
    let before = store.metrics().counters.scrubs;
    store.set_live("scrub", "1T").expect("it starts");
    awaited(|| store.metrics().counters.scrubs > before);
    awaited(|| store.set_live("scrub", "16K").expect("it starts").old == "off");
    store.close().expect("it closes without waiting for the end");
    let manual = Store::open_on(Arc::new(storage), manual()).expect("it opens");
    assert!(manual.set_live("scrub", "1M").is_err(), "nobody would run it");
}

/// A store that is opened every day must be scrubbed every week.
#[test]
fn the_background_scrubs_when_the_last_is_long_ago() {
    let storage = SimStorage::new(6);
    let every = |seconds| Options::default().scrub_every(Some(Duration::from_secs(seconds)));
    let store = filled(&storage, ValuePlacement::Inline, every(3600));
    awaited(|| storage.read_all("scrubbed").is_ok());
    assert_eq!(store.metrics().counters.scrubs, 0, "the first is due in an hour");
    store.close().expect("it closes");
    let written = String::from_utf8(storage.read_all("scrubbed").expect("kept")).expect("text");
    let written: u64 = written.trim().parse().expect("a number");
    for (last_ms, is_due) in [(written, false), (written - 3_600_000, true), (u64::MAX, true)] {
        storage.overwrite("scrubbed", last_ms.to_string().as_bytes()).expect("a file");
        let store = Store::open_on(Arc::new(storage.clone()), every(3600)).expect("it opens");
        match is_due {
            true => awaited(|| store.metrics().counters.scrubs == 1),
            false => {
                sleep(Duration::from_millis(1500));
                assert_eq!(store.metrics().counters.scrubs, 0);
            }
        }
        store.close().expect("it closes");
    }
}
