//! Measures how much of other programs' page cache a compaction or a collection of values leaves:
//! how much of a neighbour's file, which was in memory before, is still there afterwards. First
//! limit the memory so that the files of the work do not fit, for example by
//!
//! ```text
//! mkdir /sys/fs/cgroup/memory/bound; cd /sys/fs/cgroup/memory/bound
//! echo 200M > memory.limit_in_bytes; echo $$ > cgroup.procs
//! ```
//!
//! and then run, in a directory on the disk to be measured: `cargo run --release -p runstone-limits
//! --example page_cache [MEBIBYTES] [collection]`. The store works alternately as it does now and
//! as an earlier version did, for which its storage does not report what is in memory. The
//! neighbour's file is read before and after the work: the second read gets from the disk what the
//! work has evicted.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone::storage::{
    Access, Category, Counters, FileInfo, LockMode, PosixStorage, Result, Storage, StorageFile,
    StorageLock,
};
use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options, Store, ValuePlacement};

/// The size of the neighbour's file.
const NEIGHBOUR_BYTES: u64 = 64 << 20;
const VALUE_BYTES: usize = 1000;
const ROUNDS: usize = 3;

/// A directory whose files do not report what the system has in memory.
#[derive(Debug)]
struct Silent(PosixStorage);

#[derive(Debug)]
struct SilentFile(Arc<dyn StorageFile>);

impl Storage for Silent {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(SilentFile(self.0.create(name, category)?)))
    }
    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        self.0.create_mapped(name, category, capacity_bytes)
    }
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(SilentFile(self.0.open(name, category)?)))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn list(&self) -> Result<Vec<FileInfo>> {
        self.0.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.0.sync_dir()
    }
    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        self.0.lock(name, mode)
    }
    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        self.0.create_sibling(path)
    }
    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        self.0.link_into(name, category, target)
    }
    fn counters(&self) -> &Counters {
        self.0.counters()
    }
    fn location(&self) -> String {
        self.0.location()
    }
}

impl StorageFile for SilentFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn write_back(&self, begin: std::ops::Range<u64>, wait: std::ops::Range<u64>) -> Result<()> {
        self.0.write_back(begin, wait)
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.0.set_len(len_bytes)
    }
    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.0.allocate(offset, len_bytes)
    }
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.0.punch(offset, len_bytes)
    }
}

/// Reads a file whole.
fn read(file: &dyn StorageFile, bytes: u64) -> Duration {
    let began = Instant::now();
    for offset in (0..bytes).step_by(1 << 20) {
        file.read_vec(offset, (bytes - offset).min(1 << 20) as usize).expect("it is read");
    }
    began.elapsed()
}

/// Thousandths of the file that are in memory, if the system reports it.
fn cached(file: &dyn StorageFile) -> Option<u64> {
    Some(file.cached_bytes(0, NEIGHBOUR_BYTES)? * 1000 / NEIGHBOUR_BYTES)
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Compaction,
    Collection,
}

fn options(work: Work) -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 8 << 20;
    unstable::numbers_mut(&mut keyspace).table_bytes = 16 << 20;
    if work == Work::Collection {
        keyspace.values.placement = ValuePlacement::HashGrouped;
        keyspace.values.separate_at = 100;
        // There is so much room that no collection runs before it is called for.
        keyspace.values.reserve = 2.0.into();
    }
    Options::default()
        .memory_budget_bytes(32 << 20)
        .keyspace(keyspace)
        .background(Background::Threads(1))
}

/// Writes random keys for a compaction, and each key twice for a collection.
fn fill(path: &Path, mebibytes: u64, work: Work) {
    let store = Store::open(path, options(work)).expect("an open");
    store.set_live("compactions", "paused").expect("paused");
    let mut word = 7u64;
    let mut draw = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        word >> 33
    };
    let count = mebibytes << 20 >> 10;
    for number in 0..count {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| draw() as u8).collect();
        let key = match work {
            Work::Compaction => draw(),
            Work::Collection => number * 7919 % (count / 2),
        };
        store.put(key.to_be_bytes(), value).expect("a put");
    }
    store.close().expect("a close");
    // Drops the store's files from the page cache, as if they had been written long ago.
    let directory = PosixStorage::open(path, Access::ReadOnly).expect("there");
    for info in directory.list().expect("a list") {
        let file = directory.open(&info.name, Category::Other).expect("a file");
        file.drop_cached(0, info.len_bytes);
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let mebibytes = given.first().map_or(600, |text| text.parse().expect("a number"));
    let work = match given.get(1).map(String::as_str) {
        None => Work::Compaction,
        Some("collection") => Work::Collection,
        Some(other) => panic!("{other} is not known; \"collection\" is"),
    };
    let place = tempfile::tempdir_in(".").expect("a directory");
    let beside = PosixStorage::open(place.path(), Access::CreateIfMissing).expect("a directory");
    let neighbour = beside.create("neighbour", Category::Other).expect("a file");
    for offset in (0..NEIGHBOUR_BYTES).step_by(1 << 20) {
        neighbour.write_at(offset, &vec![7; 1 << 20]).expect("written");
    }
    neighbour.sync().expect("synced");
    println!("work         of MiB  seconds  neighbour in memory: before, after   read again");
    for round in 0..2 * ROUNDS {
        let path = place.path().join(format!("store{round}"));
        fill(&path, mebibytes, work);
        read(&*neighbour, NEIGHBOUR_BYTES);
        read(&*neighbour, NEIGHBOUR_BYTES);
        let before = cached(&*neighbour);
        let directory = PosixStorage::open(&path, Access::MustExist).expect("there");
        let (name, storage): (_, Arc<dyn Storage>) = match round % 2 {
            0 => ("as before", Arc::new(Silent(directory))),
            _ => ("now", Arc::new(directory)),
        };
        let store = Store::open_on(storage, options(work)).expect("an open");
        let began = Instant::now();
        match work {
            Work::Compaction => store.compact().expect("a compaction"),
            Work::Collection => store.collect_values().expect("a collection"),
        }
        let seconds = began.elapsed().as_secs_f64();
        let (after, again) = (cached(&*neighbour), read(&*neighbour, NEIGHBOUR_BYTES));
        let share = |one: Option<u64>| {
            one.map_or("not told".into(), |one| format!("{}.{}%", one / 10, one % 10))
        };
        println!(
            "{name:11} {mebibytes:>7} {seconds:>8.2} {:>28}, {} {:>9} ms",
            share(before),
            share(after),
            again.as_millis()
        );
        store.close().expect("a close");
        std::fs::remove_dir_all(path).expect("removed");
    }
}
