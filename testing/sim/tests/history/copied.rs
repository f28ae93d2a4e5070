//! Two copies of a closed store that were made by hand, both written to. They share their past, and
//! continue with the same file numbers and sequence numbers.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runstone::{
    Background, Changes, ChangesFrom, Compression, Error, Moment, Options, Store, ValuePlacement,
    WalMode,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::workload::{options, placed};

use crate::attacks::{archiver, backups, contents, differ, mirror, restored};

const PLACEMENTS: [ValuePlacement; 3] =
    [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];

fn options_of(placement: ValuePlacement) -> Options {
    let mut options = placed(options(1, Background::Manual), placement).keep_log_bytes(1 << 30);
    options.keyspace.get_or_insert_default().compression = vec![Compression::None];
    options
}

/// A closed store, and a mirror and an archive of it.
fn closed(options: &Options, target: &SimStorage, disk: &SimStorage) -> SimStorage {
    let source = SimStorage::new(1);
    let store = Store::open_on(Arc::new(source.clone()), options.clone()).expect("opens");
    store.put("before", "").expect("no faults");
    store.sync().expect("no faults");
    mirror(&source, target, options).expect("it begins").close().expect("no faults");
    archiver(disk, &source).expect("begins").advance(Duration::ZERO).expect("no faults");
    store.close().expect("no faults");
    source
}

/// Makes writes that differ between two copies, but only in the middle of a file.
fn write(store: &Store, byte: u8) {
    for i in 0..40 {
        let value = vec![if i == 3 { byte } else { 0 }; 4000];
        store.put(format!("key{i:02}"), value).expect("no faults");
    }
    store.flush().expect("no faults");
}

/// The footer of a table has a hash of the whole table. Once, only the last 4 KiB were compared,
/// and a backup of one copy took a table of the other for its own.
#[test]
fn a_backup_tells_tables_apart_whose_histories_cannot_be_told_apart() {
    let (disk, options) = (SimStorage::new(2), options_of(ValuePlacement::Inline));
    let source = closed(&options, &SimStorage::new(3), &SimStorage::new(4));
    for byte in [1, 2] {
        // This is like a copy of the whole disk.
        let copy = source.process_crash();
        let store = Store::open_on(Arc::new(copy.clone()), options.clone()).expect("opens");
        write(&store, byte);
        let made = backups(&disk).create_on(Arc::new(copy));
        assert_eq!(made.is_ok(), byte == 1, "{made:?}");
    }
}

/// The copy begins a history of its own, because its lock file is a different file. So its values
/// are compared as a whole, and old mirrors and archives recognise it as another store.
#[test]
fn copies_by_hand_have_histories_of_their_own() {
    for placement in PLACEMENTS {
        let options = options_of(placement);
        let (target, disk, archive) = (SimStorage::new(2), SimStorage::new(3), SimStorage::new(4));
        let source = closed(&options, &target, &archive);
        let copy = source.copy_by_hand(7);
        let first = Store::open_on(Arc::new(source.clone()), options.clone()).expect("opens");
        write(&first, 1);
        backups(&disk).create_on(Arc::new(source.clone())).expect("the first");
        // After a close the history is the same, so the mirror and the archive continue.
        let mut mirrored = mirror(&source, &target, &options).expect("goes on");
        mirrored.advance(Duration::ZERO).expect("no faults");
        assert_eq!(contents(mirrored.store()), contents(&first), "{placement:?}");
        mirrored.close().expect("no faults");
        archiver(&archive, &source).expect("goes on").advance(Duration::ZERO).expect("no faults");

        let second = Store::open_on(Arc::new(copy.clone()), options.clone()).expect("opens");
        write(&second, 2);
        second.put("more", "").expect("no faults");
        second.sync().expect("no faults");
        if let Ok(made) = backups(&disk).create_on(Arc::new(copy.clone())) {
            let to = SimStorage::new(9);
            backups(&disk).restore_on(made.number, &(Arc::new(to.clone()) as _)).expect("restores");
            let found = contents(&Store::open_on(Arc::new(to), options.clone()).expect("opens"));
            assert!(found == contents(&second), "{placement:?}: the backup has the other's values");
        }
        let found = mirror(&copy, &target, &options).map(drop);
        assert!(matches!(found, Err(Error::HistoryForked { .. })), "{placement:?}: {found:?}");
        archiver(&archive, &copy).expect("forks").advance(Duration::ZERO).expect("no faults");
        let (found, state) =
            (restored(&archive, Moment::End, &options).expect("it is there"), contents(&second));
        assert_eq!(found, state, "{placement:?}: {}", differ(&found, Some(&state)));
    }
}

/// When the original is backed up, neither store has used a number that the other lacks. But the
/// open of the copy logs the records of a small log again, under new sequence numbers. Its records
/// of values contain these numbers, outside the last 4 KiB of the file.
#[test]
fn values_of_a_copy_are_told_apart_before_either_store_goes_on() {
    for placement in PLACEMENTS {
        let (disk, source, options) =
            (SimStorage::new(2), SimStorage::new(1), options_of(placement));
        let open =
            |at: &SimStorage| Store::open_on(Arc::new(at.clone()), options.clone()).expect("opens");
        let first = open(&source);
        (0..4).for_each(|i| first.put([i], vec![i; 5000]).expect("no faults"));
        let copy = source.copy_by_hand(7);
        first.flush().expect("no faults");
        backups(&disk).create_on(Arc::new(source.clone())).expect("the first");
        let second = open(&copy);
        second.flush().expect("no faults");
        let made = backups(&disk).create_on(Arc::new(copy.clone()));
        let made = made.unwrap_or_else(|e| panic!("{placement:?}: {e}"));
        let to = SimStorage::new(9);
        backups(&disk).restore_on(made.number, &(Arc::new(to.clone()) as _)).expect("restores");
        assert_eq!(contents(&open(&to)), contents(&second), "{placement:?}");
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).expect("it is new");
    lay_over(from, to);
}

/// Copies like `cp -r`: writes into the existing files.
fn lay_over(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("listed");
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}

/// In real directories, a copy is noticed, and a moved directory is not taken for a copy.
#[test]
fn a_reader_goes_on_in_a_moved_directory_but_not_in_a_copy() {
    let dir = tempfile::tempdir().expect("a directory");
    let [path, copy, moved] = ["store", "copy", "moved"].map(|name| dir.path().join(name));
    let open = |path: &Path| {
        let store = Store::open(path, options_of(ValuePlacement::Inline)).expect("opens");
        store.put("key", "value").expect("no faults");
        store.sync().expect("no faults");
        store
    };
    open(&path).close().expect("no faults");
    copy_files(&path, &copy);
    let store = open(&path);
    let position = Changes::open(&path, ChangesFrom::Now).expect("begins").position();
    store.close().expect("no faults");
    fs::rename(&path, &moved).expect("on one file system");
    let (_moved, _copy) = (open(&moved), open(&copy));
    let after = |path: &Path| Changes::open(path, ChangesFrom::After(position))?.next();
    assert!(matches!(after(&moved), Ok(Some(_))));
    let found = after(&copy);
    assert!(matches!(found, Err(Error::HistoryForked { .. })), "{found:?}");
}

/// A copy that was made before the last writes is laid back over its store: by `cp -r`, which
/// writes into the existing files, or by `rsync --delete`, which leaves the lock file alone.
#[test]
fn a_store_that_was_laid_back_begins_another_history() {
    for is_emptied in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let [path, copy] = ["store", "copy"].map(|name| dir.path().join(name));
        let write = |keys: [&str; 2]| {
            // A log that is left would show that `CURRENT` is an old one.
            let keep_bytes = if is_emptied { 1 << 30 } else { 0 };
            let options = options_of(ValuePlacement::Inline).keep_log_bytes(keep_bytes);
            let store = Store::open(&path, options).expect("opens");
            keys.iter().for_each(|key| store.put(*key, *key).expect("no faults"));
            store.sync().expect("no faults");
            let position = Changes::open(&path, ChangesFrom::Now).expect("begins").position();
            store.close().expect("no faults");
            position
        };
        let before = write(["one", "two"]);
        copy_files(&path, &copy);
        let lost = write(["three", "four"]);
        if is_emptied {
            for file in fs::read_dir(&path).expect("a directory") {
                let file = file.expect("listed");
                if file.file_name() != "LOCK" {
                    fs::remove_file(file.path()).expect("removed");
                }
            }
        }
        lay_over(&copy, &path);
        write(["five", "six"]);
        write(["seven", "eight"]);
        let after = |position| Changes::open(&path, ChangesFrom::After(position))?.next();
        assert_eq!(matches!(after(before), Ok(Some(_))), is_emptied, "it has nothing that is gone");
        let found = after(lost);
        assert!(matches!(found, Err(Error::HistoryForked { .. })), "{is_emptied}: {found:?}");
    }
}

/// A copy of an open store that has no log yet is laid back into the existing files. Since then the
/// store has used the numbers that follow those of the copy.
#[test]
fn a_copy_of_an_open_store_without_a_log_begins_another_history() {
    let dir = tempfile::tempdir().expect("a directory");
    let [path, copy] = ["store", "copy"].map(|name| dir.path().join(name));
    let open = || {
        let options = options_of(ValuePlacement::Inline).keep_log_bytes(0);
        Store::open(&path, options).expect("opens")
    };
    let write = |store: &Store, key: &str| {
        store.put(key, key).expect("no faults");
        store.sync().expect("no faults");
        Changes::open(&path, ChangesFrom::Now).expect("begins").position()
    };
    let store = open();
    let before = write(&store, "one");
    store.close().expect("no faults");
    let store = open();
    copy_files(&path, &copy);
    let lost = write(&store, "two");
    store.close().expect("no faults");
    lay_over(&copy, &path);
    let store = open();
    let kept = write(&store, "three");
    assert_eq!((lost.history(), lost.seq()), (before.history(), kept.seq()));
    let after = |position| Changes::open(&path, ChangesFrom::After(position))?.next();
    assert!(matches!(after(before), Ok(Some(_))), "it has nothing that is gone");
    let found = after(lost);
    assert!(matches!(found, Err(Error::HistoryForked { .. })), "{found:?}");
}

/// The copy names the same manifest with the same length, but the store has been closed since.
#[test]
fn a_reader_at_rest_notices_a_copy_from_before_the_close() {
    let dir = tempfile::tempdir().expect("a directory");
    let [path, copy] = ["store", "copy"].map(|name| dir.path().join(name));
    let store = Store::open(&path, options_of(ValuePlacement::Inline)).expect("opens");
    copy_files(&path, &copy);
    let mut reader = Changes::open(&path, ChangesFrom::Now).expect("begins");
    store.close().expect("no faults");
    while reader.next().expect("no faults").is_some() {}
    lay_over(&copy, &path);
    let found = reader.next();
    assert!(matches!(found, Err(Error::LeaseRevoked { .. })), "{found:?}");
}

/// An older copy is laid over the directory of a process that was killed. The log of the process
/// continued the numbers of the copy. Once, the open replayed it: the store had the later writes of
/// the log, and lacked the writes that had been flushed before them.
#[test]
fn a_log_that_a_copy_was_laid_over_is_refused() {
    for (flushes, wal_mode) in
        [(false, WalMode::Mapped), (true, WalMode::Mapped), (false, WalMode::Write)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let [path, copy, left] = ["store", "copy", "left"].map(|name| dir.path().join(name));
        let open = |path: &Path| {
            Store::open(
                path,
                options_of(ValuePlacement::Inline).keep_log_bytes(0).wal_mode(wal_mode),
            )
        };
        let store = open(&path).expect("opens");
        store.put("kept", "").expect("no faults");
        store.close().expect("no faults");
        copy_files(&path, &copy);
        let store = open(&path).expect("opens");
        store.put("later", "").expect("no faults");
        if flushes {
            store.flush().expect("no faults");
        }
        store.put("last", "").expect("no faults");
        store.sync().expect("no faults");
        // As if the process were killed.
        copy_files(&path, &left);
        lay_over(&copy, &left);
        let opened = open(&left);
        let what = format!("{opened:?}");
        assert!(matches!(opened, Err(Error::Corruption { .. })), "{flushes}, {wal_mode:?}: {what}");
        assert!(what.contains("an older manifest than the log"), "{what}");
    }
}
