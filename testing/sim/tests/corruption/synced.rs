//! Damage to synced data is refused, and damage to unsynced data never is (P6, P8). The log and the
//! manifest say which data is synced. They do not say whether the machine has rebooted since: a
//! copy of the disk of a running machine looks like that of a machine that lost power. The tests
//! also show damage that no check can find, and bound it.

use std::path::Path;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::unstable;
use runstone::{Background, Error, KeyspaceOptions, Options, Store, WriteOptions};
use runstone_fault_storage::SimStorage;
use runstone_sim::oracle::{Change, Oracle, Write};
use runstone_sim::workload::read_all;

/// No test makes this many puts.
const MOST_PUTS: u32 = 400;

fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
    unstable::numbers_mut(&mut keyspace).l0_trigger = 1 << 10;
    keyspace.l0_slowdown_runs = 1 << 11;
    keyspace.l0_stop_runs = 1 << 12;
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .keyspace(keyspace)
}

fn open(disk: &SimStorage) -> Result<Store, Error> {
    Store::open_on(Arc::new(disk.clone()), options())
}

fn put(store: &Store, i: u32, sync: bool) {
    let options = if sync { WriteOptions::sync() } else { WriteOptions::default() };
    let key = i.to_be_bytes();
    store.default_keyspace().put_with(key, [i as u8; 1000], options).expect("put");
}

/// How many writes the store shows, which must be the first ones.
fn keys(store: &Store) -> usize {
    let mut oracle = Oracle::default();
    for i in 0..MOST_PUTS {
        let change = Change::Put(vec![i as u8; 1000]);
        oracle.attempt(&[Write { keyspace: 0, key: i.to_be_bytes().to_vec(), change }]);
        oracle.acknowledge();
    }
    oracle.crash(true);
    oracle.judge(&read_all(store, None).expect("reads")).expect("no hole").batches
}

/// The last file of a kind that has content: segments of the log are prepared ahead.
pub(super) fn last_of(disk: &SimStorage, ending: &str) -> String {
    let names = disk.list().expect("lists").into_iter().map(|file| file.name);
    let begun = names.filter(|name| name.ends_with(ending) && used(disk, name) > 0);
    begun.max().expect("there is one")
}

/// The length up to the last byte that is not zero.
pub(super) fn used(disk: &SimStorage, name: &str) -> usize {
    let bytes = disk.read_all(name).expect("is there");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

pub(super) fn zero(disk: &SimStorage, name: &str, range: std::ops::Range<usize>) {
    let mut bytes = disk.read_all(name).expect("is there");
    bytes[range].fill(0);
    disk.overwrite(name, &bytes).expect("is there");
}

fn named_bytes(disk: &SimStorage) -> usize {
    let text = String::from_utf8(disk.read_all("CURRENT").expect("is there")).expect("text");
    text.split(' ').nth(1).expect("a length").parse().expect("a number")
}

/// The directory of an open store is copied file by file, and a page of the log has not reached the
/// disk. The machine has not rebooted since, so such a copy was once refused as corrupt.
#[test]
fn a_copy_of_a_disk_in_use_opens() {
    let root = tempfile::tempdir().expect("temporary directory");
    let (path, copy) = (root.path().join("store"), root.path().join("copy"));
    let store = Store::open(&path, options()).expect("open");
    (0..20).for_each(|i| put(&store, i, i < 10));
    copy_files(&path, &copy);
    let log = std::fs::read_dir(&copy).expect("lists").map(|entry| entry.expect("reads").path());
    let log = log.filter(|name| name.extension().is_some_and(|e| e == "wal")).min().expect("a log");
    let whole = std::fs::read(&log).expect("reads");
    // A record takes a little more than 1,000 bytes.
    let mut torn = whole.clone();
    torn[128 + 15 * 1000..][..1000].fill(0);
    std::fs::write(&log, &torn).expect("writes");
    let opened = Store::open(&copy, options()).expect("P8: an unsynced suffix is damaged");
    let survived = keys(&opened);
    assert!((10..16).contains(&survived), "{survived}");
    drop(opened);
    std::fs::remove_dir_all(&copy).expect("removes");
    copy_files(&path, &copy);
    torn = whole;
    torn[128 + 5 * 1000..][..1000].fill(0);
    std::fs::write(&log, &torn).expect("writes");
    let refused = Store::open(&copy, options()).expect_err("P6: what was synced is damaged");
    assert!(refused.is_corruption(), "{refused}");
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new name");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("reads");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copies");
    }
}

/// The end of the last edit that moved the start of the log is lost together with its seal. Any
/// later log record says that the edit was durable. Without such a record, the writes of that
/// single flush can be missing, and no more.
#[test]
fn a_lost_edit_is_told_by_the_log() {
    for logged_since in [false, true] {
        let disk = SimStorage::new(1);
        let store = open(&disk).expect("open");
        (0..100).for_each(|i| put(&store, i, false));
        store.flush().expect("flush");
        let manifest = last_of(&disk, ".manifest");
        let before = used(&disk, &manifest);
        (100..300).for_each(|i| put(&store, i, false));
        store.flush().expect("flush");
        let after = used(&disk, &manifest);
        if logged_since {
            // Segments from before the flush are reused.
            (300..340).for_each(|i| put(&store, i, false));
            while store.run_one_job().expect("job") {}
        }
        let left = disk.process_crash();
        // The seal of the previous edit stays, or damage to that edit would be reported.
        zero(&left, &manifest, before..after);
        match (open(&left), logged_since) {
            (Err(refused), true) => assert!(refused.is_corruption(), "{refused}"),
            (Ok(store), false) => assert!(keys(&store) >= 100),
            (outcome, _) => panic!("logged since: {logged_since}, {outcome:?}"),
        }
    }
}

/// An open store knows how long its manifest is, and `verify` compares the file with that.
#[test]
fn verify_tells_of_a_lost_edit() {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("open");
    let manifest = last_of(&disk, ".manifest");
    let before = used(&disk, &manifest);
    put(&store, 0, false);
    store.flush().expect("flush");
    assert!(store.verify().expect("verify").is_clean());
    zero(&disk, &manifest, before..used(&disk, &manifest));
    let report = store.verify().expect("verify");
    assert!(report.damage.iter().any(|damage| damage.file == manifest), "{:?}", report.damage);
}

/// Once, a manifest that was cut off at a record was noticed only if it was shorter than at the
/// open of the store. Now `CURRENT` is updated as the manifest grows.
#[test]
fn little_of_a_manifest_can_be_cut_off_unnoticed() {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("open");
    let manifest = last_of(&disk, ".manifest");
    let opened = named_bytes(&disk);
    let mut ends = vec![opened];
    while used(&disk, &manifest) < opened + (20 << 10) {
        put(&store, 0, false);
        store.flush().expect("flush");
        ends.push(used(&disk, &manifest));
    }
    let named = named_bytes(&disk);
    let end = *ends.last().expect("some");
    assert!(named > opened && end - named < 17 << 10, "{opened}, {named}, {end}");
    let left = disk.process_crash();
    for cut in ends.into_iter().filter(|cut| *cut < named).step_by(7) {
        let cut_off = left.process_crash();
        zero(&cut_off, &manifest, cut..end);
        let refused = open(&cut_off).expect_err("the manifest lost its end");
        assert!(refused.is_corruption(), "{refused}");
    }
}

/// Nothing follows the last segment of a log, so a missing end goes unnoticed. A missing end of an
/// earlier segment shows in the next one.
#[test]
fn a_short_segment_is_told_by_the_next() {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("open");
    (0..200).for_each(|i| put(&store, i, true));
    let left = disk.process_crash();
    let names = left.list().expect("lists").into_iter().map(|file| file.name);
    let mut logs: Vec<String> = names.filter(|name| name.ends_with(".wal")).collect();
    logs.retain(|name| used(&left, name) > 128);
    assert!(logs.len() >= 3, "{logs:?}");
    let last = logs.pop().expect("some");
    for (name, is_last) in logs.iter().map(|name| (name, false)).chain([(&last, true)]) {
        for len in [0, 100, 128, 5_000, used(&left, name) as u64 - 500] {
            let short = left.process_crash();
            short.truncate(name, len).expect("is there");
            match (open(&short), is_last) {
                (Err(refused), false) => assert!(refused.is_corruption(), "{refused}"),
                (Ok(store), true) => assert!(keys(&store) >= 200 - 65, "{name} cut to {len}"),
                (outcome, _) => panic!("{name} cut to {len}: {outcome:?}"),
            }
        }
    }
}

/// The next segment has begun and has no record yet. Once, recovery did not check the bytes beyond
/// the damage in the segment before it.
#[test]
fn damage_before_a_segment_that_was_only_begun_is_told() {
    let disk = SimStorage::new(1);
    let store = open(&disk).expect("open");
    (0..20).for_each(|i| put(&store, i, true));
    let log = last_of(&disk, ".wal");
    let end = used(&disk, &log);
    // The record does not fit, and half of it reaches the disk.
    let writes = store.default_keyspace().put_with([1], vec![1; 50_000], WriteOptions::default());
    writes.expect("put");
    let left = disk.process_crash();
    let next = last_of(&left, ".wal");
    assert_ne!(log, next);
    let begun = used(&left, &next);
    zero(&left, &next, 130..begun);
    zero(&left, &log, end / 2..end / 2 + 100);
    let refused = open(&left).expect_err("what was synced is damaged");
    assert!(refused.is_corruption(), "{refused}");
}
