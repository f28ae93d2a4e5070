//! What reading a log of many segments costs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use runstone::storage::{Category, Counters, FileInfo, LockMode, MemoryStorage};
use runstone::storage::{Result, Storage, StorageFile, StorageLock};
use runstone::{Background, Backups, Changes, ChangesFrom, Options, Store};
use runstone_fault_storage::forward;

/// A storage that counts how many files its listings show.
#[derive(Debug)]
struct Listed {
    inner: MemoryStorage,
    files: AtomicU64,
}

impl Storage for Listed {
    fn list(&self) -> Result<Vec<FileInfo>> {
        let list = self.inner.list()?;
        self.files.fetch_add(list.len() as u64, SeqCst);
        Ok(list)
    }
    forward! {
        Result:
        create open create_mapped open_mapped rename remove sync_dir lock create_sibling link_into
        counters location
    }
}

/// The files that listings show to each kind of reader, per segment of the log.
fn shown(segments: u64) -> Vec<(&'static str, u64)> {
    let disk = Arc::new(Listed { inner: MemoryStorage::new(), files: AtomicU64::new(0) });
    let own = || Arc::clone(&disk) as Arc<dyn Storage>;
    let options = || Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let store = Store::open_on(own(), options().wal_segment_bytes(64 << 10)).expect("opens");
    // A value of this size has a segment of its own.
    let value = vec![7; 65 << 10];
    let put = |number: u64| store.put(number.to_be_bytes(), &value).expect("puts");
    let archive = Backups::open_on(Arc::new(MemoryStorage::new())).expect("a directory");
    let mut archiver = archive.archive_on(own()).expect("archives");
    let mut changes = Changes::open_on(own(), ChangesFrom::Now).expect("begins");
    let follower = Store::follow_on(own(), options()).expect("follows");
    (0..segments).for_each(put);
    let mut shown = Vec::new();
    let mut step = |name, work: &mut dyn FnMut()| {
        let before = disk.files.load(SeqCst);
        work();
        shown.push((name, (disk.files.load(SeqCst) - before) / segments));
    };
    step("a follower", &mut || {
        follower.refresh().expect("refreshes");
        let last = follower.store().get((segments - 1).to_be_bytes()).expect("reads");
        assert!(last.is_some_and(|read| *read == *value), "the last put is not there");
    });
    let count = |changes: &mut Changes| {
        let mut read = 0;
        while changes.next().expect("reads").is_some() {
            read += 1;
        }
        assert!(read >= segments, "{read} changes");
    };
    step("a reader of changes", &mut || count(&mut changes));
    step("one that begins", &mut || {
        count(&mut Changes::open_on(own(), ChangesFrom::Oldest).expect("begins"));
    });
    step("an archiver", &mut || {
        while !archiver.advance(Duration::ZERO).expect("archives").is_drained {}
    });
    shown
}

#[test]
fn readers_of_the_log_do_not_list_the_directory_for_each_segment() {
    let (few, many) = (shown(50), shown(500));
    for ((name, few), (_, many)) in few.into_iter().zip(many) {
        println!("{name}: {few} files a segment with 50 segments, {many} with 500");
        assert!(many <= 2 * few.max(8), "{name}: {many} with 500 segments, {few} with 50");
    }
}

/// The bytes of the log that a reader reads, per segment, until it is at its position.
fn read_to_begin(segments: u64) -> u64 {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let own = || Arc::clone(&disk);
    let options = Options::default().background(Background::Manual).keep_log_bytes(1 << 30);
    let store = Store::open_on(own(), options.wal_segment_bytes(64 << 10)).expect("opens");
    // A value of this size has a segment of its own.
    let value = vec![7; 1 << 20];
    (0..segments).for_each(|n| store.put(n.to_be_bytes(), &value).expect("puts"));
    let position = store.changes(ChangesFrom::Now).expect("begins").position();
    let read = || disk.counters().snapshot(Category::Wal).read_bytes;
    let before = read();
    Changes::open_on(own(), ChangesFrom::After(position)).expect("begins");
    (read() - before) / segments
}

/// Once, a reader that began read the first record of each segment to its end. In a log of large
/// batches, that is the whole log.
#[test]
fn a_reader_that_begins_reads_little_of_each_segment() {
    let read = read_to_begin(60);
    println!("{read} bytes of each segment");
    assert!(read < 200_000, "{read} bytes of each segment");
}
