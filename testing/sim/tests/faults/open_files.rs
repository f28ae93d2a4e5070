//! A process with a low limit on open files. Tables and value files that were not used for long are
//! closed. A store that gets no descriptor at all waits for one and then continues.

use std::process::Command;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::unstable;
use runstone::{
    Background, Error, KeyspaceOptions, Options, ReadOptions, SortedWriter, Store, ValuePlacement,
};
use runstone_fault_storage::SimStorage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Keys of one round; each round is flushed to a table of its own.
const KEYS: u32 = 20;

fn options(placement: ValuePlacement) -> Options {
    let mut keyspace = KeyspaceOptions::default();
    // Nothing is compacted, so that each flush leaves a table.
    unstable::numbers_mut(&mut keyspace).l0_trigger = 1 << 10;
    keyspace.l0_slowdown_runs = 1 << 11;
    keyspace.l0_stop_runs = 1 << 12;
    keyspace.write_buffer_bytes = 256 << 10;
    keyspace.values.placement = placement;
    keyspace.values.separate_at = 100;
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .seed(1)
        .keyspace(keyspace)
}

fn key(round: u32, i: u32) -> String {
    format!("{i:04}-{round:04}")
}

fn value(round: u32, i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(2) { 10 } else { 300 };
    key(round, i).bytes().cycle().take(len).collect()
}

fn write_round(store: &Store, round: u32) -> Result<(), Error> {
    (0..KEYS).try_for_each(|i| store.put(key(round, i), value(round, i)))?;
    store.flush()
}

fn check(store: &Store, rounds: u32) {
    for round in 0..rounds {
        for i in 0..KEYS {
            let found = store.get(key(round, i)).unwrap_or_else(|error| panic!("{round}: {error}"));
            assert_eq!(found.as_deref(), Some(&value(round, i)[..]), "round {round}, key {i}");
        }
    }
}

fn check_by_scan(store: &Store, rounds: u32) {
    let all = store.default_keyspace().iter().expect("cursor");
    let count = all.inspect(|item| assert!(item.is_ok(), "{item:?}")).count();
    assert_eq!(count, (rounds * KEYS) as usize);
}

/// Once, with 144 tables and a limit of 100 descriptors gets failed, and the next flush stopped the
/// store. Now the tables of a store share the descriptors it may keep open.
#[test]
fn tables_share_few_descriptors() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog] {
        let disk = SimStorage::new(1);
        disk.set_most_handles(Some(40));
        let options = || options(placement).max_open_files(20);
        let store = Store::open_on(Arc::new(disk.clone()), options()).expect("open");
        for round in 0..60 {
            write_round(&store, round).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        check(&store, 60);
        assert!(disk.handle_count() <= 30, "{} handles", disk.handle_count());
        store.close().expect("close");
        let store = Store::open_on(Arc::new(disk.clone()), options()).expect("reopen");
        check(&store, 60);
        // A compaction has all its inputs open at once, but not their files.
        store.compact().expect("compact");
        check_by_scan(&store, 60);
        assert!(store.verify().expect("verify").is_clean());
        store.close().expect("close");
    }
}

/// A cursor's tables stay readable when they are compacted away. A value file that is dropped with
/// its keyspace stays readable too. The files were closed before that.
#[test]
fn a_file_that_was_closed_and_removed_can_be_read_to_the_end() {
    let disk = SimStorage::new(2);
    let options = options(ValuePlacement::HashGrouped).max_open_files(8);
    let store = Store::open_on(Arc::new(disk.clone()), options.clone()).expect("open");
    let gone = store.open_keyspace("gone", options.keyspace.clone()).expect("keyspace");
    (0..KEYS).for_each(|i| gone.put(key(0, i), value(0, i)).expect("put"));
    (0..30).for_each(|round| write_round(&store, round).expect("write"));
    let mut cursor = gone.cursor(ReadOptions::default()).expect("cursor");
    let snapshot = store.snapshot();
    cursor.seek_to_first().expect("seek");
    check(&store, 30);
    store.drop_keyspace("gone").expect("drop");
    store.compact().expect("compact");
    check(&store, 30);
    for i in 0..KEYS {
        assert_eq!(cursor.value(), &value(0, i)[..], "key {i}");
        cursor.next().expect("next");
    }
    drop((cursor, snapshot));
    store.close().expect("close");
}

/// Other code in the process took every descriptor. The error says what to do, nothing stops, and
/// the store continues once there are descriptors again.
#[test]
fn a_store_without_descriptors_waits_for_them() {
    let disk = SimStorage::new(3);
    let options = options(ValuePlacement::Inline).max_open_files(8);
    let store = Store::open_on(Arc::new(disk.clone()), options).expect("open");
    (0..20).for_each(|round| write_round(&store, round).expect("write"));
    disk.set_most_handles(Some(0));
    let refused = write_round(&store, 20).expect_err("a flush needs a descriptor");
    let hint = refused.hint();
    assert!(hint.contains("max_open_files") && hint.contains("ulimit -n"), "{refused}: {hint}");
    assert!(!matches!(refused, Error::Stopped { .. }), "{refused}");
    disk.set_most_handles(None);
    let started = std::time::Instant::now();
    while let Err(error) = write_round(&store, 20) {
        assert!(!matches!(error, Error::Stopped { .. }), "{error}");
        assert!(started.elapsed().as_secs() < 30, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    check(&store, 21);
    store.close().expect("close");
}

const CHILD: &str = "RUNSTONE_OPEN_FILES_TEST_STORE";

/// Not a test of its own: the work of the child. It runs with default options, so the store finds
/// the limit of the process by itself.
#[test]
fn child_with_few_descriptors() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let most = Rlimit { current: Some(100), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, most).expect("lower the limit");
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
        let path = format!("{path}-{placement:?}");
        let options =
            || options(placement).background(Background::Threads(2)).memory_budget_bytes(160 << 20);
        let store = Store::open(&path, options()).expect("open");
        (0..144).for_each(|round| write_round(&store, round).expect("write"));
        check(&store, 144);
        // All of this stays in the log, unsynced, in more segments than there are descriptors.
        let filling = store.open_keyspace("filling", None).expect("keyspace");
        (0..300).for_each(|i| filling.put(key(0, i), vec![7; 40_000]).expect("put"));
        check_by_scan(&store, 144);
        store.close().expect("close");
        let store = Store::open(&path, options()).expect("reopen");
        check(&store, 144);
        assert!(store.verify().expect("verify").is_clean());
        store.close().expect("close");
    }
}

#[test]
fn a_process_may_open_a_hundred_files() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["open_files::child_with_few_descriptors", "--exact", "--nocapture"])
        .env(CHILD, directory.path().join("store"))
        .output()
        .expect("spawn");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Once, eleven hundred files were open at a time, more than most processes may have.
#[test]
fn an_ingest_has_one_of_its_files_open_at_a_time() {
    let (disk, files) = (SimStorage::new(4), SimStorage::new(5));
    let store = Store::open_on(Arc::new(disk), options(ValuePlacement::Inline)).expect("open");
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}.sorted")).collect();
    for (number, name) in names.iter().enumerate() {
        let shared: Arc<dyn Storage> = Arc::new(files.clone());
        let writer = SortedWriter::create_on(shared, name, &KeyspaceOptions::default());
        let mut writer = writer.expect("a file");
        for i in 0..KEYS {
            writer.put(format!("{number:03}-{i:03}"), value(number as u32, i)).expect("an entry");
        }
        writer.finish().expect("it ends");
    }
    files.set_most_handles(Some(files.handle_count() + 2));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ingested = store.default_keyspace().ingest_from(&files, &names).expect("an ingest");
    assert_eq!(ingested, 200 * u64::from(KEYS));
    check_by_scan(&store, 200);
}
