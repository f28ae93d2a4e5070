//! What followers and backups cost in a store, or a directory, that contains very many things.
//!
//! A step is repeated, and its cost is counted: calls of the allocator, files opened, files listed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allocation_counter::{measure, opt_out};
use runstone::storage::{Category, Counters, Error, FileInfo, LockMode, MemoryStorage, Operation};
use runstone::storage::{Result, Storage, StorageFile, StorageLock};
use runstone::{Background, Backups, Keyspace, KeyspaceOptions, Options, Store};
use runstone_fault_storage::forward;

/// A storage that counts operations. If a test wants it, the storage also fails, or lists files
/// that are gone.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    inner: MemoryStorage,
    pub(crate) opened: AtomicU64,
    listings: AtomicU64,
    /// Whether descriptions of backups cannot be made.
    is_cut_short: AtomicBool,
    /// Files that a listing names although they are gone.
    gone: Mutex<Vec<FileInfo>>,
}

impl Storage for Counted {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        if name.ends_with(".backup.part") && self.is_cut_short.load(SeqCst) {
            let source = std::io::ErrorKind::Other.into();
            return Err(Error::new(Operation::Create, name.to_string(), source));
        }
        self.inner.create(name, category)
    }
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.opened.fetch_add(1, SeqCst);
        self.inner.open(name, category)
    }
    fn list(&self) -> Result<Vec<FileInfo>> {
        self.listings.fetch_add(1, SeqCst);
        // Listings are counted, but not the memory of their names.
        let mut listed = Ok(Vec::new());
        opt_out(|| {
            listed = self.inner.list();
            if let Ok(files) = &mut listed {
                files.extend(self.gone.lock().expect("no panic").iter().cloned());
            }
        });
        listed
    }
    forward! {
        Result:
        create_mapped open_mapped rename remove sync_dir lock create_sibling link_into
        counters location
    }
}

pub(crate) fn storage(of: &Arc<Counted>) -> Arc<dyn Storage> {
    Arc::clone(of) as _
}

fn open(disk: &Arc<Counted>) -> Store {
    let options = Options::default().background(Background::Manual);
    Store::open_on(storage(disk), options).expect("opens")
}

/// A step is repeated this often.
const TIMES: u64 = 20;

/// The calls of the allocator per refresh, if a follower refreshes after each of some steps.
fn refreshes(disk: &Arc<Counted>, mut step: impl FnMut(u64)) -> u64 {
    let follower = Store::follow_on(storage(disk), Options::default()).expect("follows");
    let mut calls = 0;
    for time in 0..TIMES {
        step(time);
        let refresh = || assert!(follower.refresh().expect("refreshes"), "something is new");
        calls += measure(refresh).count_total;
    }
    calls / TIMES
}

fn refresh_with_keyspaces(count: u64) -> u64 {
    let disk = Arc::new(Counted::default());
    let store = open(&disk);
    let make = |number| store.open_keyspace(&format!("keyspace{number}"), None).expect("made");
    let keyspaces: Vec<Keyspace> = (0..count).map(make).collect();
    keyspaces.iter().for_each(|one| one.put("key", "value").expect("puts"));
    refreshes(&disk, |time| keyspaces[time as usize].put("key", "newer").expect("puts"))
}

/// Once, each view of a follower needed two maps with all keyspaces: a refresh after one put took
/// 70 ms in a store with 100,000 keyspaces.
#[test]
fn a_refresh_costs_the_same_with_any_number_of_keyspaces() {
    let (few, many) = (refresh_with_keyspaces(100), refresh_with_keyspaces(20_000));
    println!("{few} calls for a refresh with few keyspaces, {many} with many");
    assert!(many < 2 * few, "{many} calls for a refresh with many keyspaces, {few} with few");
}

fn refresh_with_tables(count: u64) -> u64 {
    let disk = Arc::new(Counted::default());
    let store = open(&disk);
    let load = |number: u64| {
        let entry = (format!("key{number:08}"), "value");
        store.default_keyspace().bulk_load([entry]).expect("loads");
    };
    (0..count).for_each(load);
    refreshes(&disk, |time| load(count + time))
}

/// Once, a follower made handles of all tables of a keyspace whenever a new table arrived.
#[test]
fn a_refresh_costs_the_same_with_any_number_of_tables() {
    let (few, many) = (refresh_with_tables(50), refresh_with_tables(3_000));
    println!("{few} calls for a refresh with few tables, {many} with many");
    assert!(many < 2 * few, "{many} calls for a refresh with many tables, {few} with few");
}

/// The files opened per refresh, if a follower refreshes after each of some flushes of range
/// deletes.
fn refresh_with_range_deletes(count: u64) -> u64 {
    let disk = Arc::new(Counted::default());
    let mut options = KeyspaceOptions::default();
    (options.l0_slowdown_runs, options.l0_stop_runs) = (10_000, 20_000);
    let options = Options::default().background(Background::Manual).keyspace(options);
    let store = Store::open_on(storage(&disk), options).expect("opens");
    let keyspace = store.default_keyspace();
    let flush = |number: u64| {
        let key = |number: u64| format!("key{number:08}");
        keyspace.delete_range(key(number)..key(number + 1)).expect("deletes");
        store.flush().expect("flushes");
    };
    (0..count).for_each(flush);
    let follower = Store::follow_on(storage(&disk), Options::default()).expect("follows");
    let before = disk.opened.load(SeqCst);
    for time in 0..TIMES {
        flush(count + time);
        assert!(follower.refresh().expect("refreshes"), "something is new");
    }
    (disk.opened.load(SeqCst) - before) / TIMES
}

/// Once, a follower opened every table with range deletes whenever a new table arrived, and merged
/// all of their range deletes again.
#[test]
fn a_refresh_opens_the_same_with_any_number_of_range_deletes() {
    let (few, many) = (refresh_with_range_deletes(20), refresh_with_range_deletes(500));
    println!("{few} files opened for a refresh with few range deletes, {many} with many");
    assert!(many < 2 * few, "{many} files opened with many range deletes, {few} with few");
}

/// A follower does not learn which range deletes a compaction drops. It must not keep them for
/// ever.
#[test]
fn a_follower_forgets_range_deletes_that_are_dropped() {
    let disk = Arc::new(Counted::default());
    let store = open(&disk);
    let keyspace = store.default_keyspace();
    let follower = Store::follow_on(storage(&disk), Options::default()).expect("follows");
    let mut held = Vec::new();
    for round in 0..12u64 {
        for number in 0..1_000 {
            let key = format!("key{round:04}{number:08}");
            keyspace.put(&key, "value").expect("puts");
            keyspace.delete_range(key.as_str()..format!("{key}x").as_str()).expect("deletes");
        }
        store.flush().expect("flushes");
        assert!(follower.refresh().expect("refreshes"), "something is new");
        store.compact().expect("compacts");
        // One of them is in a table, so that the others are not forgotten with the last table.
        keyspace.delete_range("kept".."kept2").expect("deletes");
        store.flush().expect("flushes");
        assert!(follower.refresh().expect("refreshes"), "something is new");
        let view = follower.store();
        assert_eq!(view.default_keyspace().iter().expect("reads").count(), 0);
        held.push(view.metrics().memory.pinned_bytes);
    }
    assert!(held[11] < 4 * held[0], "the bytes that a follower holds grow: {held:?}");
}

/// Makes backups of a store that flushes now and then. Returns the directory.
fn backed_up(store: &Store, of: &Arc<Counted>, count: u64) -> (Arc<Counted>, Backups) {
    let disk = Arc::new(Counted::default());
    let backups = Backups::open_on(storage(&disk)).expect("it is empty");
    for number in 0..count {
        store.put(number.to_be_bytes(), "value").expect("puts");
        if number % 8 == 7 {
            store.compact().expect("compacts");
        }
        backups.create_on(storage(of)).expect("a backup");
    }
    (disk, backups)
}

/// Once, a backup read the description of each earlier backup twice, kept all descriptions in
/// memory, and listed the directory six times. Each description covers a whole store.
#[test]
fn a_backup_costs_the_same_after_any_number_of_others() {
    let next = |count| {
        let source = Arc::new(Counted::default());
        let store = open(&source);
        let (disk, backups) = backed_up(&store, &source, count);
        let counts = || [&disk.opened, &disk.listings].map(|one| one.load(SeqCst));
        let before = counts();
        for number in 0..TIMES {
            store.put(number.to_be_bytes(), "newer").expect("puts");
            backups.create_on(storage(&source)).expect("a backup");
        }
        let after = counts();
        [0, 1].map(|i| (after[i] - before[i]) / TIMES)
    };
    let ([few, _], [many, listings]) = (next(20), next(1_000));
    println!("{few} files opened after few backups, {many} after many, {listings} listings");
    assert!(many <= few + 2, "{many} files opened after many backups, {few} after few");
    assert!(listings <= 2, "{listings} listings of the directory");
}

/// Once, a prune read the whole archive.
#[test]
fn a_prune_reads_only_the_beginnings_of_an_archive() {
    let (source, disk) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let store = open(&source);
    let backups = Backups::open_on(storage(&disk)).expect("it is empty");
    let mut archiver = backups.archive_on(storage(&source)).expect("begins");
    for number in 0..8_000u64 {
        store.put(number.to_be_bytes(), [7; 1_000]).expect("puts");
    }
    while !archiver.advance(Duration::ZERO).expect("archives").is_drained {}
    backups.create_on(storage(&source)).expect("a backup");
    let read = || disk.inner.counters().snapshot(Category::Other).read_bytes;
    let before = read();
    assert_eq!(backups.prune(1).expect("prunes"), 1);
    let bytes = read() - before;
    assert!(bytes < 1 << 20, "{bytes} bytes");
}

fn names(disk: &Counted, kind: &str) -> usize {
    disk.inner.list().expect("a list").iter().filter(|file| file.name.ends_with(kind)).count()
}

/// A backup looks for files that no backup needs only if a change was cut short.
#[test]
fn what_a_backup_left_that_was_cut_short_goes_with_the_next() {
    let source = Arc::new(Counted::default());
    let store = open(&source);
    let (disk, backups) = backed_up(&store, &source, 3);
    assert_eq!((names(&disk, ".pack"), names(&disk, ".part")), (3, 0));
    store.compact().expect("compacts");
    disk.is_cut_short.store(true, SeqCst);
    backups.create_on(storage(&source)).expect_err("the disk is full");
    let tables = names(&disk, ".table");
    store.put("another", "value").expect("puts");
    store.compact().expect("the table of that backup is gone from the store");
    disk.is_cut_short.store(false, SeqCst);
    let made = backups.create_on(storage(&source)).expect("a backup");
    assert_eq!(made.number, 4);
    assert_eq!((names(&disk, ".pack"), names(&disk, ".part")), (4, 0));
    assert_eq!(names(&disk, ".table"), tables, "one came, and one that no backup needs went");
    for number in 1..=4 {
        assert_eq!(backups.verify(number).expect("verified"), []);
    }
}

/// Once, a list failed with "there is no backup 2" if another process pruned at that moment.
#[test]
fn a_list_leaves_out_what_is_pruned_meanwhile() {
    let source = Arc::new(Counted::default());
    let store = open(&source);
    let (disk, backups) = backed_up(&store, &source, 3);
    let before = disk.inner.list().expect("a list");
    backups.prune(1).expect("pruned");
    let is_gone = |file: &FileInfo| file.name.ends_with("1.backup");
    disk.gone.lock().expect("no panic").extend(before.into_iter().filter(is_gone));
    backups.archive_on(storage(&source)).expect("an archive");
    let archive = FileInfo { name: "000000.archive".into(), len_bytes: 100 };
    disk.gone.lock().expect("no panic").push(archive);
    assert_eq!(backups.archives().expect("another process prunes").len(), 1);
    assert_eq!(backups.verify_archives().expect("read"), []);
    let left = backups.list().expect("another process prunes");
    assert_eq!(left.iter().map(|one| one.number).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(backups.damaged().expect("read"), []);
}

/// A checkpoint once replaced all memtables and waited for their flushes, which wrote tables and
/// edits of the manifest.
#[test]
fn a_checkpoint_writes_nothing_to_the_store() {
    for count in [1, 300] {
        let written = written_by_a_checkpoint(count);
        assert_eq!(written, [0; 4], "bytes with {count} keyspaces");
    }
}

/// The bytes that a checkpoint writes to a store of keyspaces with tables. The first keyspace has a
/// write that is only in the log.
fn written_by_a_checkpoint(count: u64) -> [u64; 4] {
    let storage = MemoryStorage::new();
    let options = Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
    let make = |number| store.open_keyspace(&format!("keyspace{number}"), None).expect("made");
    let keyspaces: Vec<Keyspace> = (0..count).map(make).collect();
    keyspaces.iter().for_each(|one| one.put("key", "value").expect("puts"));
    store.flush().expect("flushes");
    keyspaces[0].put("key", "newer").expect("puts");
    let written = || {
        let categories = [Category::Table, Category::Manifest, Category::Value, Category::Wal];
        categories.map(|category| storage.counters().snapshot(category).written_bytes)
    };
    let before = written();
    store.checkpoint("copy").expect("copies");
    let after = written();
    assert_eq!(store.metrics().counters.flushes, count, "the checkpoint flushed nothing");
    let copy = storage.open_sibling(Path::new("copy")).expect("it was made");
    let copy = Store::open_on(Arc::new(copy), options).expect("opens");
    for number in 0..count {
        let found = copy.keyspace(&format!("keyspace{number}")).expect("there").get("key");
        let wanted = if number == 0 { "newer" } else { "value" };
        assert_eq!(found.expect("reads").as_deref(), Some(wanted.as_bytes()), "{number}");
    }
    [0, 1, 2, 3].map(|i| after[i] - before[i])
}
