//! Files of sorted entries: which files a store accepts, and which it refuses.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use runstone::seeded::{self, Bug};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::testing::{TableBuilder, TableLayout};
use runstone::unstable;
use runstone::{
    Background, Clock, Compression, Error, Expiry, Keyspace, KeyspaceOptions, Options, PRESETS,
    SortedWriter, Store,
};
use runstone_policy::shape::Shape;
use runstone_sim::clock::{LASTING, WorkloadClock};

/// Writes the entries to this many files of any layout, on a disk without faults, and ingests them,
/// the last file first.
pub fn ingest(
    keyspace: &Keyspace,
    entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    files: usize,
) -> Result<u64, Error> {
    let storage = MemoryStorage::new();
    let all: Vec<_> = entries.iter().collect();
    let mut names = Vec::new();
    for (number, some) in all.chunks(all.len().div_ceil(files).max(1)).enumerate() {
        let mut options = KeyspaceOptions::default().block_bytes(256 << number);
        options.compression = vec![[Compression::None, Compression::Zstd][number % 2]];
        names.insert(0, format!("{number}.sorted"));
        let shared = Arc::new(storage.clone());
        let mut writer = SortedWriter::create_on(shared, &names[0], &options).expect("makes");
        for (key, value) in some {
            let added = match value {
                Some(value) => writer.put(key, value),
                None => writer.delete(key),
            };
            added.expect("ascends");
        }
        assert_eq!(writer.finish().expect("finishes").entries, some.len() as u64);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    keyspace.ingest_from(&storage, &names)
}

fn store() -> Store {
    let options = Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    store.put("m", "kept").expect("puts");
    store
}

/// A file with these keys. A third of them expire in the far future.
fn write(path: &Path, keys: std::ops::Range<u32>) {
    let mut writer = SortedWriter::create(path, &KeyspaceOptions::default()).expect("makes");
    for key in keys {
        let (name, value) = (format!("k{key:06}"), vec![key as u8; 100]);
        match key % 3 {
            0 => writer.put_with_ttl(name, value, LASTING).expect("puts"),
            _ => writer.put(name, value).expect("puts"),
        }
    }
    writer.finish().expect("finishes");
}

/// Checks that the store refuses the files, keeps its contents and accepts writes. Returns the
/// error.
fn refused(store: &Store, paths: &[&Path]) -> Error {
    let keyspace = store.default_keyspace();
    let error = keyspace.ingest(paths).expect_err("refused");
    assert_eq!(keyspace.iter().expect("opens").count(), 1, "{error}");
    assert_eq!(unstable::shape(keyspace).tables().count(), 0, "{error}");
    keyspace.put("m", "kept").expect("goes on");
    assert!(!error.hint().is_empty());
    error
}

#[test]
fn every_preset_takes_and_makes_files() {
    let dir = tempfile::tempdir().expect("a directory");
    for preset in PRESETS {
        let options = KeyspaceOptions::preset(preset.name).expect("known");
        let path = dir.path().join(preset.name);
        let mut writer = SortedWriter::create(&path, &options).expect("makes");
        (0..1000u32).try_for_each(|n| writer.put(n.to_be_bytes(), [7; 2000])).expect("puts");
        let file = writer.finish().expect("finishes");
        assert_eq!(file.bytes, path.metadata().expect("is there").len());
        let store = store();
        let keyspace = store.open_keyspace("other", Some(options)).expect("makes");
        assert_eq!(keyspace.ingest(&[&path]).expect("ingests"), 1000);
        assert_eq!(keyspace.ingest(&[&path]).expect("ingests it again"), 1000);
        store.compact().expect("compacts");
        assert_eq!(keyspace.iter().expect("opens").count(), 1000);
        assert!(store.verify().expect("verifies").is_clean());
    }
}

#[test]
fn a_file_that_is_damaged_anywhere_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, bad) = (dir.path().join("good"), dir.path().join("bad"));
    write(&path, 0..2000);
    let store = store();
    let bytes = std::fs::read(&path).expect("reads");
    for at in (0..bytes.len()).step_by(bytes.len() / 100).chain(bytes.len() - 56..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&bad, damaged).expect("writes");
        let told = refused(&store, &[&path.with_file_name("good"), &bad]);
        // If both files were complete, they would overlap. So damage that is not noticed leads to
        // another error.
        let shown = bad.display().to_string();
        assert!(told.to_string().contains(&shown), "byte {at}: {told}");
    }
    for len in [0, 1, 47, 48, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&bad, &bytes[..len]).expect("writes");
        let told = refused(&store, &[&bad]).to_string();
        assert!(told.contains("cannot be ingested"), "{len} bytes: {told}");
    }
    std::fs::write(&bad, b"apple,red\nbanana,yellow\n".repeat(9)).expect("writes");
    assert!(refused(&store, &[&bad]).to_string().contains("not a table"));
}

#[test]
fn each_byte_of_a_block_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, bad) = (dir.path().join("good"), dir.path().join("bad"));
    write(&path, 0..20);
    let store = store();
    let bytes = std::fs::read(&path).expect("reads");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&bad, damaged).expect("writes");
        refused(&store, &[&bad]);
    }
}

#[test]
fn a_newer_format_asks_for_a_newer_release() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("new");
    write(&path, 0..10);
    let mut bytes = std::fs::read(&path).expect("reads");
    let footer = bytes.len() - 56;
    bytes[footer + 40] += 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[footer..footer + 44]) as u32;
    bytes[footer + 44..footer + 48].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, bytes).expect("writes");
    match refused(&store(), &[&path]) {
        Error::NewerFormat { file, .. } => assert_eq!(file, path.display().to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn files_that_overlap_are_both_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    write(&path("one"), 0..100);
    write(&path("two"), 100..200);
    write(&path("three"), 199..300);
    let store = store();
    let told = refused(&store, &[&path("three"), &path("one"), &path("two")]).to_string();
    assert!(
        told.contains("two and ") && told.contains("three overlap at key \"k000199\""),
        "{told}"
    );
    let keyspace = store.default_keyspace();
    let both = [path("two"), path("one")];
    assert_eq!(keyspace.ingest(&both).expect("ingests"), 200);
    assert_eq!(keyspace.ingest::<&Path>(&[]).expect("nothing is no error"), 0);
    assert_eq!(keyspace.iter().expect("opens").count(), 201);
}

fn at(ms: u64) -> Expiry {
    Expiry::At(UNIX_EPOCH + Duration::from_millis(ms))
}

/// The expiry times in a file are valid in any keyspace that ingests it. Entries without an expiry
/// time expire by that keyspace's options, from the ingest on.
#[test]
fn entries_expire_at_the_instants_of_their_file() {
    WorkloadClock::restart();
    let now = WorkloadClock.unix_millis();
    let (files, storage) = (MemoryStorage::new(), MemoryStorage::new());
    let shared = Arc::new(files.clone());
    let mut writer =
        SortedWriter::create_on(shared, "file", &KeyspaceOptions::default()).expect("makes");
    let before_1970 = Expiry::At(UNIX_EPOCH - Duration::from_secs(1));
    for (key, expiry) in
        [("a", at(now + 1)), ("b", at(now + 9_000)), ("c", Expiry::Never), ("d", before_1970)]
    {
        writer.put_with_expiry(key, "new", expiry).expect("puts");
    }
    writer.finish().expect("finishes");
    let options = Options::default().background(Background::Manual).clock(Arc::new(WorkloadClock));
    let open = || Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
    let mut store = open();
    let of = KeyspaceOptions::default().ttl_seconds(5);
    let mut keyspace = store.open_keyspace("sessions", Some(of)).expect("makes");
    for key in ["a", "b", "c", "d"] {
        keyspace.put(key, "old").expect("puts");
    }
    assert_eq!(keyspace.ingest_from(&files, &["file"]).expect("ingests"), 4);
    let expiries =
        |keyspace: &Keyspace| ["a", "b", "c", "d"].map(|key| keyspace.expiry(key).expect("reads"));
    let first = [Some(at(now + 1)), Some(at(now + 9_000)), Some(at(now + 5_000)), None];
    assert_eq!(expiries(&keyspace), first);
    assert_eq!(keyspace.iter().expect("opens").count(), 3);
    WorkloadClock::tick();
    for _ in 0..2 {
        assert_eq!(expiries(&keyspace), [None, first[1], first[2], None]);
        assert_eq!(keyspace.get("a").expect("reads"), None);
        assert!(store.verify().expect("verifies").is_clean());
        store.compact().expect("compacts");
        store.close().expect("closes");
        store = open();
        keyspace = store.keyspace("sessions").expect("is there");
    }
    assert_eq!(unstable::shape(&keyspace).tables().map(|(_, table)| table.entries).sum::<u64>(), 2);
}

/// A table whose entries came from a file is dropped without being read when all have expired.
#[test]
fn a_loaded_table_that_is_past_leaves_unread() {
    WorkloadClock::restart();
    let soon = at(WorkloadClock.unix_millis() + 1);
    let files = MemoryStorage::new();
    let shared = Arc::new(files.clone());
    let mut writer =
        SortedWriter::create_on(shared, "file", &KeyspaceOptions::default()).expect("makes");
    for n in 0..2000u32 {
        writer.put_with_expiry(n.to_be_bytes(), [7; 100], soon).expect("puts");
    }
    writer.finish().expect("finishes");
    let options = Options::default().background(Background::Manual).clock(Arc::new(WorkloadClock));
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let keyspace = store.default_keyspace();
    assert_eq!(keyspace.ingest_from(&files, &["file"]).expect("ingests"), 2000);
    assert_eq!(keyspace.iter().expect("opens").count(), 2000);
    assert_eq!(store.metrics().counters.user_bytes_written, 2000 * 104);
    WorkloadClock::tick();
    store.wait_idle().expect("works");
    assert_eq!(unstable::shape(keyspace).tables().count(), 0);
    assert_eq!(store.metrics().counters.compaction_bytes_read, 0);
}

/// A value that is too short for its expiry time is damage, even under a valid checksum, because
/// readers of a store would mistake it for expired.
#[test]
fn an_entry_without_its_instant_is_refused() {
    const EXPIRING_PUT: u64 = 6;
    let files = MemoryStorage::new();
    for (name, value) in [("short", &[7; 7][..]), ("empty value", &[7; 8][..])] {
        let file = files.create(name, Category::Table).expect("memory");
        let options = KeyspaceOptions::default();
        let mut layout = TableLayout::of_level(&options, &Shape::default(), 0);
        layout.is_numbered_later = true;
        let mut table = TableBuilder::outside(file, 1, layout);
        table.add(b"k", EXPIRING_PUT, value).expect("memory");
        table.finish().expect("memory");
    }
    let store = store();
    let keyspace = store.default_keyspace();
    let told = keyspace.ingest_from(&files, &["short"]).expect_err("refused").to_string();
    assert!(told.contains("short cannot be ingested") && told.contains("no instant"), "{told}");
    assert_eq!(keyspace.iter().expect("opens").count(), 1);
    assert_eq!(keyspace.ingest_from(&files, &["empty value"]).expect("ingests"), 1);
}

#[test]
fn an_instant_that_no_clock_reaches_is_refused() {
    let storage = MemoryStorage::new();
    let options = KeyspaceOptions::default();
    let mut writer = SortedWriter::create_on(Arc::new(storage), "file", &options).expect("makes");
    for ttl in [Duration::ZERO, Duration::MAX] {
        let refused = writer.put_with_ttl("a", "1", ttl).expect_err("refused");
        assert!(!refused.hint().is_empty(), "{refused}");
    }
    let late = Expiry::At(UNIX_EPOCH + Duration::from_secs(1 << 60));
    let refused = writer.put_with_expiry("a", "1", late).expect_err("refused").to_string();
    assert!(refused.contains("beyond the clock"), "{refused}");
    writer.put_with_expiry("a", "1", at(u64::MAX)).expect("the last one");
    assert_eq!(writer.finish().expect("finishes").entries, 1);
}

#[test]
fn keys_that_do_not_ascend_are_refused_by_the_writer_and_by_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let options = KeyspaceOptions::default();
    let mut writer = SortedWriter::create(&path, &options).expect("makes");
    writer.put("b", "1").expect("puts");
    for key in ["b", "a"] {
        let told = writer.put(key, "2").expect_err("refused").to_string();
        let wanted = format!("key \"{key}\" does not come behind \"b\", the one before");
        assert_eq!(told, wanted);
        writer.delete(key).expect_err("refused");
    }
    writer.put("b".repeat(1 << 16), "2").expect_err("too long");
    writer.put("c", "3").expect("the writer goes on");
    assert_eq!(writer.finish().expect("finishes").entries, 2);
    let told = SortedWriter::create(&path, &options).expect_err("it exists").to_string();
    assert!(told.ends_with("file exists"), "{told}");

    let bad = dir.path().join("bad");
    seeded::with(Bug::SortedFilesUnsorted, || {
        let mut writer = SortedWriter::create(&bad, &options).expect("makes");
        for key in ["b", "a", "c"] {
            writer.put(key, "1").expect("puts");
        }
        writer.finish().expect("finishes");
    });
    let told = refused(&store(), &[&bad]).to_string();
    let shown = bad.display();
    assert_eq!(told, format!("{shown}: key \"a\", entry 2, comes out of order: behind \"b\""));
}

#[test]
fn a_writer_that_is_not_finished_leaves_nothing() {
    let storage = MemoryStorage::new();
    let begin = |name: &str| {
        let shared = Arc::new(storage.clone());
        SortedWriter::create_on(shared, name, &KeyspaceOptions::default()).expect("makes")
    };
    let mut dropped = begin("dropped");
    dropped.put("a", "1").expect("puts");
    drop(dropped);
    begin("empty").finish().expect_err("it has no entries");
    assert_eq!(storage.list().expect("lists"), []);
}

/// A table that a store wrote contains sequence numbers of that store.
#[test]
fn a_table_of_a_store_is_refused() {
    let storage = MemoryStorage::new();
    let options = Options::default().background(Background::Manual);
    let other = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    other.put("a", "1").expect("puts");
    other.flush().expect("flushes");
    let names = storage.list().expect("lists");
    let name = names.iter().find(|file| file.name.ends_with(".table")).expect("one").name.clone();
    let store = store();
    let keyspace = store.default_keyspace();
    let told = keyspace.ingest_from(&storage, &[&name]).expect_err("refused").to_string();
    assert!(told.contains("is a table of a store"), "{told}");
    let missing = keyspace.ingest_from(&storage, &["missing"]).expect_err("is not there");
    assert!(missing.to_string().contains("missing"), "{missing}");
    assert!(storage.open(&name, Category::Table).is_ok(), "the file is left alone");
}
