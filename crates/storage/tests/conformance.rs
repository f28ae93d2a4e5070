//! One suite for every storage: what the engine may rely on. Loss and faults are in `sim.rs`; a
//! full disk under a real file system needs a mount and is tested elsewhere.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone_storage::{
    Access, Category, LockMode, MemoryStorage, PosixStorage, Result, SimStorage, Storage,
    StorageFile,
};

/// Runs a check on a fresh storage of each kind. The path is free for a sibling.
fn each(check: impl Fn(&dyn Storage, &Path)) {
    let root = tempfile::tempdir().unwrap();
    let posix = PosixStorage::open(&root.path().join("store"), Access::CreateIfMissing).unwrap();
    check(&posix, &root.path().join("sibling"));
    check(&MemoryStorage::new(), Path::new("sibling"));
    check(&SimStorage::new(1), Path::new("sibling"));
}

fn contents(file: &dyn StorageFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage.create(name, Category::Table).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

fn names(storage: &dyn Storage) -> Vec<String> {
    storage.list().unwrap().into_iter().map(|file| file.name).collect()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("should have failed"),
        Err(error) => error.kind(),
    }
}

#[test]
fn create_and_open() {
    each(|storage, _| {
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
    });
}

#[test]
fn reads_and_writes_at_offsets() {
    each(|storage, _| {
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
        file.sync().unwrap();
    });
}

#[test]
fn lengths_and_holes() {
    each(|storage, _| {
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
    });
}

#[test]
fn rename_replaces_and_handles_follow() {
    each(|storage, _| {
        let old = put(storage, "current", b"old");
        let new = put(storage, "next", b"new");
        storage.rename("next", "current").unwrap();
        assert_eq!(names(storage), ["current"]);
        assert_eq!(contents(&*old), b"old");
        new.write_at(3, b"er").unwrap();
        assert_eq!(contents(&*storage.open("current", Category::Manifest).unwrap()), b"newer");
        assert_eq!(kind(storage.rename("next", "x")), ErrorKind::NotFound);
    });
}

#[test]
fn remove_keeps_open_handles() {
    each(|storage, _| {
        let file = put(storage, "a", b"bytes");
        storage.remove("a").unwrap();
        storage.sync_dir().unwrap();
        assert!(names(storage).is_empty());
        assert_eq!(contents(&*file), b"bytes");
        assert_eq!(kind(storage.remove("a")), ErrorKind::NotFound);
        put(storage, "a", b"other");
        assert_eq!(contents(&*file), b"bytes");
    });
}

#[test]
fn list_is_sorted_and_has_lengths() {
    each(|storage, _| {
        for name in ["b", "c", "a", "000010.table"] {
            put(storage, name, name.as_bytes());
        }
        assert_eq!(names(storage), ["000010.table", "a", "b", "c"]);
        assert_eq!(storage.list().unwrap()[0].len_bytes, 12);
    });
}

#[test]
fn names_stay_inside() {
    each(|storage, _| {
        put(storage, "a", b"");
        for bad in ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\0b"] {
            assert_eq!(kind(storage.create(bad, Category::Other)), ErrorKind::InvalidInput);
            assert_eq!(
                kind(storage.create_mapped(bad, Category::Other, 1)),
                ErrorKind::InvalidInput
            );
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
    });
}

#[test]
fn locks_exclude() {
    each(|storage, _| {
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
    });
}

#[test]
fn mapped_files_have_a_fixed_capacity() {
    const CAPACITY_BYTES: u64 = (3 << 20) + 123;
    each(|storage, _| {
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
    });
}

#[test]
fn a_mapped_file_takes_concurrent_writes() {
    const WRITERS: u64 = 4;
    const PIECE_BYTES: u64 = 777;
    const ROUNDS: u64 = 500;
    each(|storage, _| {
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
    });
}

#[test]
fn counters_count() {
    each(|storage, _| {
        let file = storage.create("a", Category::Value).unwrap();
        file.write_at(0, &[1; 100]).unwrap();
        file.write_at(100, &[1; 50]).unwrap();
        file.read_at(0, &mut [0; 30]).unwrap();
        file.read_at(1000, &mut [0; 30]).unwrap_err();
        file.sync().unwrap();
        let counted = storage.counters().snapshot(Category::Value);
        assert_eq!((counted.written_bytes, counted.writes), (150, 2));
        assert_eq!((counted.read_bytes, counted.reads), (30, 1));
        assert_eq!(counted.syncs, 1);
        assert_eq!(storage.counters().snapshot(Category::Wal), Default::default());
    });
}

#[test]
fn siblings_take_links() {
    each(|storage, path| {
        put(storage, "a", &[9; 3_000_000]);
        let sibling = storage.create_sibling(path).unwrap();
        assert!(storage.create_sibling(path).is_ok(), "it is still empty");
        storage.link_into("a", Category::Table, &*sibling).unwrap();
        sibling.sync_dir().unwrap();
        assert_eq!(
            kind(storage.link_into("a", Category::Table, &*sibling)),
            ErrorKind::AlreadyExists
        );
        assert_eq!(kind(storage.link_into("b", Category::Table, &*sibling)), ErrorKind::NotFound);
        assert_eq!(kind(storage.create_sibling(path)), ErrorKind::AlreadyExists);
        storage.remove("a").unwrap();
        let linked = sibling.open("a", Category::Table).unwrap();
        assert_eq!(contents(&*linked), vec![9; 3_000_000]);
        assert_eq!(names(&*sibling), ["a"]);
    });
}

#[test]
fn links_between_kinds_are_copies() {
    each(|storage, _| {
        put(storage, "a", &[9; 3_000_000]);
        put(storage, "empty", b"");
        let target = MemoryStorage::new();
        storage.link_into("a", Category::Table, &target).unwrap();
        storage.link_into("empty", Category::Table, &target).unwrap();
        assert_eq!(names(&target), ["a", "empty"]);
        assert_eq!(contents(&*target.open("a", Category::Table).unwrap()).len(), 3_000_000);
    });
}

#[test]
fn siblings_can_be_opened_again() {
    let memory = MemoryStorage::new();
    put(&*memory.create_sibling(Path::new("x/y")).unwrap(), "a", b"1");
    assert_eq!(names(&memory.open_sibling(Path::new("x/y")).unwrap()), ["a"]);
    assert!(memory.open_sibling(Path::new("x")).is_none());
    let sim = SimStorage::new(1);
    put(&*sim.create_sibling(Path::new("x/y")).unwrap(), "a", b"1");
    assert_eq!(names(&sim.open_sibling(Path::new("x/y")).unwrap()), ["a"]);
    assert!(sim.open_sibling(Path::new("x")).is_none());
}

fn mode(path: PathBuf) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn posix_permissions_are_private() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("new/deep/store");
    let storage = PosixStorage::open(&directory, Access::CreateIfMissing).unwrap();
    put(&storage, "a", b"");
    storage.create_mapped("w", Category::Wal, 8192).unwrap();
    storage.lock("LOCK", LockMode::Exclusive).unwrap().unwrap();
    for directory in ["new", "new/deep", "new/deep/store"] {
        assert_eq!(mode(root.path().join(directory)), 0o700);
    }
    for file in ["a", "w", "LOCK"] {
        assert_eq!(mode(directory.join(file)), 0o600);
    }
    assert_eq!(storage.open("LOCK", Category::Other).unwrap().len().unwrap(), 0);
}

#[test]
fn posix_opens_what_it_should() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("missing");
    assert_eq!(kind(PosixStorage::open(&missing, Access::MustExist)), ErrorKind::NotFound);
    assert_eq!(kind(PosixStorage::open(&missing, Access::ReadOnly)), ErrorKind::NotFound);
    std::fs::write(root.path().join("file"), b"").unwrap();
    let on_file = PosixStorage::open(&root.path().join("file"), Access::CreateIfMissing);
    assert_eq!(kind(on_file), ErrorKind::NotADirectory);
    let storage = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    std::fs::create_dir(root.path().join("subdirectory")).unwrap();
    assert_eq!(names(&storage), ["file"]);
    assert_ne!(storage.boot_id(), 0);
    let again = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    assert_eq!(storage.boot_id(), again.boot_id());
    assert!(storage.free_bytes().unwrap() > 0);
}

#[test]
fn posix_read_only_refuses_mutation() {
    const REFUSED: ErrorKind = ErrorKind::ReadOnlyFilesystem;
    let root = tempfile::tempdir().unwrap();
    let writer = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    put(&writer, "a", b"bytes");
    let reader = PosixStorage::open(root.path(), Access::ReadOnly).unwrap();
    assert!(reader.is_read_only());
    assert_eq!(kind(reader.create("b", Category::Table)), REFUSED);
    assert_eq!(kind(reader.create_mapped("b", Category::Table, 10)), REFUSED);
    assert_eq!(kind(reader.rename("a", "b")), REFUSED);
    assert_eq!(kind(reader.remove("a")), REFUSED);
    assert_eq!(kind(reader.lock("LOCK", LockMode::Exclusive)), REFUSED);
    assert_eq!(
        kind(MemoryStorage::new().link_into("a", Category::Table, &reader)),
        ErrorKind::NotFound
    );
    assert_eq!(kind(writer.link_into("a", Category::Table, &reader)), REFUSED);
    let file = reader.open("a", Category::Table).unwrap();
    assert_eq!(contents(&*file), b"bytes");
    assert_eq!(kind(file.write_at(0, b"x")), REFUSED);
    assert_eq!(kind(file.set_len(0)), REFUSED);
    assert_eq!(kind(file.allocate(0, 10)), REFUSED);
    assert_eq!(kind(file.punch(0, 10)), REFUSED);
    // Without a lock file there is nothing to lock, and none is made.
    assert!(reader.lock("LOCK", LockMode::Shared).unwrap().is_some());
    assert_eq!(names(&reader), ["a"]);
    let held = writer.lock("LOCK", LockMode::Exclusive).unwrap().unwrap();
    assert!(reader.lock("LOCK", LockMode::Shared).unwrap().is_none());
    drop(held);
    let shared = reader.lock("LOCK", LockMode::Shared).unwrap().unwrap();
    assert!(writer.lock("LOCK", LockMode::Exclusive).unwrap().is_none());
    drop(shared);
}

#[test]
fn posix_mapped_file_cannot_shrink_under_its_mapping() {
    let root = tempfile::tempdir().unwrap();
    let storage = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    let mapped = storage.create_mapped("w", Category::Wal, 1 << 20).unwrap();
    if !format!("{mapped:?}").contains("PosixMappedFile") {
        eprintln!("skipped: the file system of the temporary directory is not mapped");
        return;
    }
    let other = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    let file = other.open("w", Category::Wal).unwrap();
    assert_eq!(kind(file.set_len(0)), ErrorKind::ResourceBusy);
    assert_eq!(kind(file.punch(0, 4096)), ErrorKind::ResourceBusy);
    drop(mapped);
    file.set_len(0).unwrap();
}

/// A length no file system has. One that merely exceeds the free space would do as well, but ext4
/// takes all of it before it finds out, from everybody else on the machine.
#[test]
fn posix_mapped_file_that_cannot_be_made_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let storage = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    storage.create_mapped("w", Category::Wal, u64::MAX).unwrap_err();
    assert!(names(&storage).is_empty());
}
