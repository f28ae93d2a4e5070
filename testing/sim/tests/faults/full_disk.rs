//! A real file system of 8 MiB that fills up (P9): acknowledged writes stay readable, writes are
//! refused with the reason, and are accepted again once space is back. The test needs the right to
//! mount; without it, it says so and ends.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use runstone::unstable;
use runstone::{KeyspaceOptions, Options, Store};

fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(512 << 10);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 256 << 10;
    shape.base_bytes = 1 << 20;
    Options::default().memory_budget_bytes(8 << 20).wal_segment_bytes(512 << 10).keyspace(keyspace)
}

/// Unmounts when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn mount<'a>(place: &'a Path, size: &str) -> Option<Mounted<'a>> {
    let arguments = ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"];
    let mounted = Command::new("mount").args(arguments).arg(place).output();
    mounted.is_ok_and(|output| output.status.success()).then_some(Mounted(place))
}

/// Runs a test with the path of a store and a file of `filler_bytes` beside it, on a disk of
/// `size`. One test runs at a time: a process that another test starts holds a copy of the store's
/// lock until it has become `mount` or `umount`.
fn on_small_disk(size: &str, filler_bytes: usize, test: impl FnOnce(&Path, &Path)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(mounted) = mount(directory.path(), size) else {
        println!("skipped: mounting a tmpfs needs root");
        return;
    };
    let filler = directory.path().join("somebody else's file");
    std::fs::write(&filler, vec![1; filler_bytes]).expect("room");
    test(&directory.path().join("store"), &filler);
    drop(mounted);
}

/// The length of values so short that a flush of a small memtable checks the disk now and then.
const SHORT_BYTES: usize = 100;

fn value(i: u32) -> Vec<u8> {
    (0..1_000u32).map(|at| (i.wrapping_mul(2_654_435_761) >> (at % 24)) as u8 ^ at as u8).collect()
}

#[test]
fn eight_mebibytes_fill_up_and_come_back() {
    on_small_disk("8m", 3 << 20, |path, filler| {
        let store = Store::open(path, options()).expect("open");
        let acknowledged = fill(&store, value);
        assert!(acknowledged > 1_000, "{acknowledged}");
        check(&store, acknowledged, value);
        std::fs::remove_file(filler).expect("there");
        let patience = Instant::now() + Duration::from_secs(30);
        while let Err(error) = store.put("again", "writable") {
            assert!(error.is_no_space(), "{error}");
            assert!(Instant::now() < patience, "space is back, and the store does not notice");
            std::thread::sleep(Duration::from_millis(20));
        }
        check(&store, acknowledged, value);
        store.close().expect("close");
        let store = Store::open(path, options()).expect("reopen");
        check(&store, acknowledged, value);
        assert!(store.verify().expect("verify").is_clean());
    });
}

/// Once, a preparation for writers failed, stayed due, and was tried again for ever, both in the
/// flush at the close of a store and in compactions that waited for a flush.
#[test]
fn a_store_closes_on_a_disk_that_is_full() {
    let options = || {
        let mut options = options();
        // All data is in the log when the next segment does not fit, and a table of that data fits
        // only in part.
        options.memory_budget_bytes = 256 << 20;
        options.wal_segment_bytes = 4 << 20;
        options.keyspace.as_mut().expect("set").write_buffer_bytes = 64 << 20;
        options
    };
    on_small_disk("40m", 22 << 20, |path, filler| {
        let store = Store::open(path, options()).expect("open");
        let acknowledged = fill(&store, short);
        // Whether the store can flush its memtables depends on luck. The log holds the data that it
        // cannot flush.
        let _ = store.close();
        std::fs::remove_file(filler).expect("there");
        let store = Store::open(path, options()).expect("reopen");
        check(&store, acknowledged, short);
        assert!(store.verify().expect("verify").is_clean());
    });
}

fn short(i: u32) -> Vec<u8> {
    value(i)[..SHORT_BYTES].to_vec()
}

/// Puts until the disk is full. Returns how many puts were acknowledged.
fn fill(store: &Store, value: fn(u32) -> Vec<u8>) -> u32 {
    for i in 0..1_000_000 {
        if let Err(refused) = store.put(acknowledged_key(i), value(i)) {
            assert!(refused.is_no_space(), "{refused}");
            return i;
        }
    }
    panic!("a disk of some mebibytes is never full");
}

fn acknowledged_key(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn check(store: &Store, acknowledged: u32, value: fn(u32) -> Vec<u8>) {
    for i in 0..acknowledged {
        let found = store.get(acknowledged_key(i)).expect("reads go on");
        assert_eq!(found.as_deref(), Some(&value(i)[..]), "{i} of {acknowledged}");
    }
}
