//! One suite for every storage: it tests what the engine relies on. Loss and faults are tested with
//! the simulated disk. A full disk under a real file system needs a mount and is tested elsewhere.

#[macro_use]
mod checks;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use checks::{contents, kind, names, put};
use runstone_storage::{
    Access, Category, LockMode, MemoryStorage, PosixStorage, ReadRequest, Storage,
};

/// Runs a check on a fresh storage of each kind. The path is for a sibling and does not exist yet.
fn each(check: impl Fn(&dyn Storage, &Path)) {
    let root = tempfile::tempdir().unwrap();
    let posix = PosixStorage::open(&root.path().join("store"), Access::CreateIfMissing).unwrap();
    check(&posix, &root.path().join("sibling"));
    let path = root.path().join("by rings");
    let rings = PosixStorage::open(&path, Access::CreateIfMissing).unwrap().with_io_uring();
    check(&rings, &root.path().join("sibling of rings"));
    check(&MemoryStorage::new(), Path::new("sibling"));
}

tests_of_checks!(each);

/// `show` passes the same bytes as a read returns, but only for files in memory, and is not
/// counted.
#[test]
fn memory_is_shown() {
    each(|storage, _| {
        let file = put(storage, "shown", b"0123456789");
        let mut seen = Vec::new();
        let mut show = |offset, len| {
            seen.clear();
            let was_shown = file.show(offset, len, &mut |bytes| seen.extend_from_slice(bytes));
            was_shown.then(|| seen.clone())
        };
        let is_memory = file.is_memory();
        assert_eq!(show(2, 3), is_memory.then(|| b"234".to_vec()));
        assert_eq!(show(10, 0), is_memory.then(Vec::new));
        assert_eq!((show(8, 3), show(11, 0), show(u64::MAX, 2)), (None, None, None));
        assert_eq!(storage.counters().snapshot(Category::Table).reads, 0);
    });
    assert!(put(&MemoryStorage::new(), "memory", b"").is_memory());
}

/// In a directory, holes use no space, whatever the length is. In other storages, the length
/// counts.
#[test]
fn punched_bytes_take_no_space() {
    each(|storage, _| {
        let file = put(storage, "punched", &[7; 256 << 10]);
        file.sync().unwrap();
        assert!(file.disk_bytes().unwrap() >= 256 << 10);
        file.punch(64 << 10, 128 << 10).unwrap();
        assert_eq!(file.len().unwrap(), 256 << 10);
        assert!(file.disk_bytes().unwrap() <= 256 << 10);
    });
    let root = tempfile::tempdir().unwrap();
    let posix = PosixStorage::open(root.path(), Access::CreateIfMissing).unwrap();
    let file = put(&posix, "punched", &[7; 256 << 10]);
    file.punch(64 << 10, 128 << 10).unwrap();
    assert!(file.disk_bytes().unwrap() < 256 << 10);
}

/// Makes more reads than can be pending at once, in any order, of all sizes, some of the same
/// place.
#[test]
fn many_reads_fill_their_buffers() {
    each(|storage, _| {
        let file = storage.create("many", Category::Value).unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        let place = |i: u64| (i * 7_919 % 290_000, (i * 37 % 4_000) as usize);
        let request = |(offset, len): (u64, usize)| ReadRequest { offset, buffer: vec![0; len] };
        let mut reads: Vec<ReadRequest> = (0..500).map(place).map(request).collect();
        file.read_many(&mut reads).unwrap();
        for (read, (offset, len)) in reads.iter().zip((0..500).map(place)) {
            assert!(read.buffer == bytes[offset as usize..offset as usize + len], "{offset}");
        }
        file.read_many(&mut []).unwrap();
        let beyond = [(10, 100), (299_950, 100), (50, 20)];
        let mut reads: Vec<ReadRequest> = beyond.into_iter().map(request).collect();
        let error = file.read_many(&mut reads).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{}", storage.location());
        let mut reads = vec![request((5, 10)), request((100, 10))];
        file.read_many(&mut reads).unwrap();
        assert_eq!(reads[0].buffer, &bytes[5..15]);
    });
}

#[test]
fn siblings_can_be_opened_again() {
    let memory = MemoryStorage::new();
    put(&*memory.create_sibling(Path::new("x/y")).unwrap(), "a", b"1");
    assert_eq!(names(&memory.open_sibling(Path::new("x/y")).unwrap()), ["a"]);
    assert!(memory.open_sibling(Path::new("x")).is_none());
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
    assert!(storage.free_bytes().unwrap() > 0);
}

/// A link to a write-protected file could once not be opened, because it has the permissions of the
/// file.
#[test]
fn posix_files_that_nobody_may_write_are_copied() {
    let root = tempfile::tempdir().unwrap();
    let storage = PosixStorage::open(&root.path().join("one"), Access::CreateIfMissing).unwrap();
    put(&storage, "free", b"bytes");
    put(&storage, "protected", b"bytes");
    let path = |name: &str| root.path().join("one").join(name);
    std::fs::set_permissions(path("protected"), Permissions::from_mode(0o400)).unwrap();
    let sibling = storage.create_sibling(&root.path().join("two")).unwrap();
    for (name, links) in [("free", 2), ("protected", 1)] {
        storage.link_into(name, Category::Table, &*sibling).unwrap();
        assert_eq!(std::fs::metadata(path(name)).unwrap().nlink(), links, "{name}");
        assert_eq!(mode(root.path().join("two").join(name)) & 0o600, 0o600, "{name}");
        assert_eq!(contents(&*sibling.open(name, Category::Table).unwrap()), b"bytes");
    }
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

/// A process may have thousands of stores, each with a log, so these must need no descriptors.
#[test]
fn posix_mapped_file_and_a_frugal_directory_need_no_descriptor() {
    let root = tempfile::tempdir().unwrap();
    let storage = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    let storage = storage.with_few_descriptors();
    let mapped = storage.create_mapped("w", Category::Wal, 1 << 20).unwrap();
    mapped.write_at(5, b"record").unwrap();
    mapped.sync().unwrap();
    storage.sync_dir().unwrap();
    assert_eq!(mapped.read_vec(5, 6).unwrap(), b"record");
    if format!("{mapped:?}").contains("PosixMappedFile") {
        let below = |path: std::path::PathBuf| path.starts_with(root.path());
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut targets = descriptors.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok());
        assert!(!targets.any(below));
        // Another file has this name now. It is not read by mistake.
        storage.rename("w", "v").unwrap();
        storage.create("w", Category::Wal).unwrap();
        mapped.read_vec(5, 6).unwrap_err();
    }
}

/// The length is larger than any file system. A length above the free space would do as well, but
/// ext4 would first allocate all free space, which others on the machine need.
#[test]
fn posix_mapped_file_that_cannot_be_made_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let storage = PosixStorage::open(root.path(), Access::MustExist).unwrap();
    storage.create_mapped("w", Category::Wal, u64::MAX).unwrap_err();
    assert!(names(&storage).is_empty());
}
