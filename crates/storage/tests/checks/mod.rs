//! Checks of what the engine relies on in every storage. Each check gets a fresh storage and a path
//! for a sibling. The crates that implement storages run all checks. Not here: loss and faults.

mod model;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

pub use model::any_calls_do_as_a_model_says;
use runstone_storage::{Category, LockMode, MemoryStorage, Result, Storage, StorageFile};

/// Makes a test for each check. The test passes the check to `$each`, which makes the storages.
macro_rules! tests_of_checks {
    ($each:path) => {
        tests_of_checks! { $each:
            create_and_open,
            reads_and_writes_at_offsets,
            written_back_bytes_stay,
            lengths_and_holes,
            rename_replaces_and_handles_follow,
            remove_keeps_open_handles,
            list_is_sorted_and_has_lengths,
            names_stay_inside,
            locks_exclude,
            mapped_files_have_a_fixed_capacity,
            a_mapped_file_takes_concurrent_writes,
            a_mapped_file_takes_writes_of_any_place_and_length,
            counters_count,
            siblings_take_links,
            links_between_kinds_are_copies,
            any_calls_do_as_a_model_says,
        }
    };
    ($each:path: $($check:ident,)*) => {
        $(
            #[test]
            fn $check() {
                $each(checks::$check);
            }
        )*
    };
}

pub fn contents(file: &dyn StorageFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

pub fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage.create(name, Category::Table).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

pub fn names(storage: &dyn Storage) -> Vec<String> {
    storage.list().unwrap().into_iter().map(|file| file.name).collect()
}

pub fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("should have failed"),
        Err(error) => error.kind(),
    }
}

pub fn create_and_open(storage: &dyn Storage, _: &Path) {
    assert_eq!(kind(storage.open("a", Category::Wal)), ErrorKind::NotFound);
    let file = storage.create("a", Category::Wal).unwrap();
    assert!(file.is_empty().unwrap());
    assert_eq!(kind(storage.create("a", Category::Wal)), ErrorKind::AlreadyExists);
    assert_eq!(
        kind(storage.create_mapped("a", Category::Wal, 1)),
        ErrorKind::AlreadyExists,
        "and the file that was there stays"
    );
    file.write_at(0, b"hello").unwrap();
    assert_eq!(contents(&*storage.open("a", Category::Wal).unwrap()), b"hello");
    storage.sync_dir().unwrap();
}

pub fn reads_and_writes_at_offsets(storage: &dyn Storage, _: &Path) {
    let file = storage.create("a", Category::Table).unwrap();
    file.write_at(5000, b"end").unwrap();
    assert_eq!(file.len().unwrap(), 5003);
    let mut gap = [1; 5000];
    file.read_at(0, &mut gap).unwrap();
    assert!(gap.iter().all(|&byte| byte == 0));
    file.write_at(4999, b"xE").unwrap();
    let mut tail = [0; 4];
    file.read_at(4999, &mut tail).unwrap();
    assert_eq!(&tail, b"xEnd");
    assert_eq!(kind(file.read_at(5000, &mut [0; 4])), ErrorKind::UnexpectedEof);
    assert_eq!(kind(file.read_at(9000, &mut [0; 1])), ErrorKind::UnexpectedEof);
    file.read_at(5003, &mut []).unwrap();
    assert_eq!(file.read_vec(4999, 4).unwrap(), b"xEnd");
    assert_eq!(file.read_vec(1, 4998).unwrap(), [0; 4998]);
    assert_eq!(kind(file.read_vec(5000, 4)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(file.read_vec(9000, 1)), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_vec(5003, 0).unwrap(), []);
    file.sync().unwrap();
}

/// A write-back does not count as a read, a write or a sync, for any range.
pub fn written_back_bytes_stay(storage: &dyn Storage, _: &Path) {
    let file = storage.create("back", Category::Table).unwrap();
    for at in 0..4u64 {
        file.write_at(at * 5000, &[at as u8 + 1; 5000]).unwrap();
        let before = at.saturating_sub(1) * 5000..at * 5000;
        file.write_back(at * 5000..(at + 1) * 5000, before).unwrap();
    }
    file.write_back(0..0, 0..0).unwrap();
    file.write_back(15_000..1 << 20, 0..40_000).unwrap();
    file.sync().unwrap();
    let expected: Vec<u8> = (1..=4).flat_map(|byte| [byte; 5000]).collect();
    assert_eq!(contents(&*file), expected);
    let counted = storage.counters().snapshot(Category::Table);
    assert_eq!((counted.writes, counted.syncs), (4, 1));
}

pub fn lengths_and_holes(storage: &dyn Storage, _: &Path) {
    let file = put(storage, "a", &[7; 20_000]);
    file.punch(4096, 8192).unwrap();
    file.punch(0, 0).unwrap();
    let bytes = contents(&*file);
    assert_eq!(bytes.len(), 20_000);
    assert_eq!(bytes.iter().filter(|&&byte| byte == 0).count(), 8192);
    file.set_len(100).unwrap();
    file.set_len(200).unwrap();
    assert_eq!(contents(&*file), [[7; 100], [0; 100]].concat());
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 200, "a reservation is not a length");
    file.read_ahead(0, 1 << 30);
    file.prepare(0, 1 << 20).unwrap();
}

pub fn rename_replaces_and_handles_follow(storage: &dyn Storage, _: &Path) {
    let old = put(storage, "current", b"old");
    let new = put(storage, "next", b"new");
    storage.rename("next", "current").unwrap();
    assert_eq!(names(storage), ["current"]);
    assert_eq!(contents(&*old), b"old");
    new.write_at(3, b"er").unwrap();
    assert_eq!(contents(&*storage.open("current", Category::Manifest).unwrap()), b"newer");
    assert_eq!(kind(storage.rename("next", "x")), ErrorKind::NotFound);
}

pub fn remove_keeps_open_handles(storage: &dyn Storage, _: &Path) {
    let file = put(storage, "a", b"bytes");
    storage.remove("a").unwrap();
    storage.sync_dir().unwrap();
    assert!(names(storage).is_empty());
    assert_eq!(contents(&*file), b"bytes");
    assert_eq!(kind(storage.remove("a")), ErrorKind::NotFound);
    put(storage, "a", b"other");
    assert_eq!(contents(&*file), b"bytes");
}

pub fn list_is_sorted_and_has_lengths(storage: &dyn Storage, _: &Path) {
    for name in ["b", "c", "a", "000010.table"] {
        put(storage, name, name.as_bytes());
    }
    assert_eq!(names(storage), ["000010.table", "a", "b", "c"]);
    assert_eq!(storage.list().unwrap()[0].len_bytes, 12);
}

pub fn names_stay_inside(storage: &dyn Storage, _: &Path) {
    put(storage, "a", b"");
    for bad in ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\0b"] {
        assert_eq!(kind(storage.create(bad, Category::Other)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.create_mapped(bad, Category::Other, 1)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.open(bad, Category::Other)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.rename("a", bad)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.rename(bad, "a")), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.remove(bad)), ErrorKind::InvalidInput);
        assert_eq!(kind(storage.lock(bad, LockMode::Shared)), ErrorKind::InvalidInput);
        assert_eq!(
            kind(storage.link_into(bad, Category::Other, &MemoryStorage::new())),
            ErrorKind::InvalidInput
        );
    }
}

pub fn locks_exclude(storage: &dyn Storage, _: &Path) {
    let take = |mode| storage.lock("LOCK", mode).unwrap();
    let first = take(LockMode::Shared).unwrap();
    let second = take(LockMode::Shared).unwrap();
    assert!(take(LockMode::Exclusive).is_none());
    drop(first);
    assert!(take(LockMode::Exclusive).is_none());
    drop(second);
    let writer = take(LockMode::Exclusive).unwrap();
    assert!(take(LockMode::Shared).is_none());
    assert!(take(LockMode::Exclusive).is_none());
    assert!(storage.lock("OTHER", LockMode::Exclusive).unwrap().is_some());
    drop(writer);
    assert!(take(LockMode::Exclusive).is_some());
}

pub fn mapped_files_have_a_fixed_capacity(storage: &dyn Storage, _: &Path) {
    const CAPACITY_BYTES: u64 = (3 << 20) + 123;
    let file = storage.create_mapped("w", Category::Wal, CAPACITY_BYTES).unwrap();
    assert_eq!(file.len().unwrap(), CAPACITY_BYTES);
    assert_eq!(storage.list().unwrap()[0].len_bytes, CAPACITY_BYTES);
    file.prepare(0, 4096).unwrap();
    file.prepare(CAPACITY_BYTES - 1, 1 << 30).unwrap();
    file.prepare(CAPACITY_BYTES + 1, 1).unwrap();
    file.write_at(0, b"first").unwrap();
    file.sync().unwrap();
    file.write_at(5, b"second").unwrap();
    file.write_at(2 << 20, b"far").unwrap();
    file.write_at(CAPACITY_BYTES - 4, b"last").unwrap();
    file.write_at(CAPACITY_BYTES, b"").unwrap();
    file.sync().unwrap();
    for offset in [CAPACITY_BYTES - 3, CAPACITY_BYTES, u64::MAX] {
        assert_eq!(kind(file.write_at(offset, b"last")), ErrorKind::InvalidInput);
    }
    assert!(file.set_len(10).is_err());
    assert!(file.punch(0, 10).is_err());
    file.allocate(0, CAPACITY_BYTES).unwrap();
    let bytes = contents(&*storage.open("w", Category::Wal).unwrap());
    assert_eq!(bytes, contents(&*file));
    assert_eq!(bytes.len() as u64, CAPACITY_BYTES);
    assert_eq!(&bytes[..11], b"firstsecond");
    assert_eq!(&bytes[2 << 20..(2 << 20) + 3], b"far");
    assert_eq!(&bytes[bytes.len() - 4..], b"last");
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 18);
    drop(file);
    storage.open("w", Category::Wal).unwrap().set_len(11).unwrap();
    assert_eq!(contents(&*storage.open("w", Category::Wal).unwrap()), b"firstsecond");
    storage.create_mapped("empty", Category::Wal, 0).unwrap();
}

pub fn a_mapped_file_takes_concurrent_writes(storage: &dyn Storage, _: &Path) {
    const WRITERS: u64 = 4;
    const PIECE_BYTES: u64 = 777;
    const ROUNDS: u64 = 500;
    let capacity_bytes = WRITERS * ROUNDS * PIECE_BYTES;
    let file = storage.create_mapped("w", Category::Wal, capacity_bytes).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = &file;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let piece = [writer as u8 + 1; PIECE_BYTES as usize];
                    let offset = (round * WRITERS + writer) * PIECE_BYTES;
                    file.write_at(offset, &piece).unwrap();
                    if round % 100 == writer {
                        file.sync().unwrap();
                    }
                }
            });
        }
    });
    for (index, piece) in contents(&*file).chunks(PIECE_BYTES as usize).enumerate() {
        let writer = index as u64 % WRITERS;
        assert!(piece.iter().all(|&byte| byte == writer as u8 + 1));
    }
}

pub fn a_mapped_file_takes_writes_of_any_place_and_length(storage: &dyn Storage, _: &Path) {
    // Not a whole number of words, so that the last word is only partly used.
    const CAPACITY_BYTES: usize = 4099;
    let file = storage.create_mapped("w", Category::Wal, CAPACITY_BYTES as u64).unwrap();
    let mut expected = vec![0; CAPACITY_BYTES];
    for step in 0..4000 {
        let len_bytes = [step % 20, step % 300][step % 2];
        let offset = match step % 5 {
            0 => CAPACITY_BYTES - len_bytes,
            _ => step * 7919 % (CAPACITY_BYTES - len_bytes),
        };
        let piece: Vec<u8> = (0..len_bytes).map(|at| (at + step) as u8 | 1).collect();
        expected[offset..offset + len_bytes].copy_from_slice(&piece);
        file.write_at(offset as u64, &piece).unwrap();
    }
    assert_eq!(contents(&*file), expected);
}

pub fn counters_count(storage: &dyn Storage, _: &Path) {
    let file = storage.create("a", Category::Value).unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    file.write_at(100, &[1; 50]).unwrap();
    file.read_at(0, &mut [0; 30]).unwrap();
    file.read_at(1000, &mut [0; 30]).unwrap_err();
    file.read_vec(100, 20).unwrap();
    file.read_vec(1000, 30).unwrap_err();
    file.sync().unwrap();
    let counted = storage.counters().snapshot(Category::Value);
    assert_eq!((counted.written_bytes, counted.writes), (150, 2));
    assert_eq!((counted.read_bytes, counted.reads), (50, 2));
    assert_eq!(counted.syncs, 1);
    assert_eq!(storage.counters().snapshot(Category::Wal), Default::default());
}

pub fn siblings_take_links(storage: &dyn Storage, path: &Path) {
    put(storage, "a", &[9; 3_000_000]);
    let sibling = storage.create_sibling(path).unwrap();
    assert!(storage.create_sibling(path).is_ok(), "it is still empty");
    storage.link_into("a", Category::Table, &*sibling).unwrap();
    sibling.sync_dir().unwrap();
    assert_eq!(kind(storage.link_into("a", Category::Table, &*sibling)), ErrorKind::AlreadyExists);
    assert_eq!(kind(storage.link_into("b", Category::Table, &*sibling)), ErrorKind::NotFound);
    assert_eq!(kind(storage.create_sibling(path)), ErrorKind::AlreadyExists);
    storage.remove("a").unwrap();
    let linked = sibling.open("a", Category::Table).unwrap();
    assert_eq!(contents(&*linked), vec![9; 3_000_000]);
    assert_eq!(names(&*sibling), ["a"]);
}

pub fn links_between_kinds_are_copies(storage: &dyn Storage, _: &Path) {
    put(storage, "a", &[9; 3_000_000]);
    put(storage, "empty", b"");
    let target = MemoryStorage::new();
    storage.link_into("a", Category::Table, &target).unwrap();
    storage.link_into("empty", Category::Table, &target).unwrap();
    assert_eq!(names(&target), ["a", "empty"]);
    assert_eq!(contents(&*target.open("a", Category::Table).unwrap()).len(), 3_000_000);
}
