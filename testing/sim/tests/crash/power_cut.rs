//! Power cuts on a real file system. An ext4 file system in a file is cut off by its shutdown ioctl
//! while a child process writes, then mounted again and judged. Writes acknowledged as synced are
//! kept (P1), lost writes are a suffix (P2), and batches are whole (P3). The test needs the right
//! to mount; without it, it says so and ends.
//!
//! Obligations of the unsafe code:
//! * O1 the ioctl reads one `u32` through its argument, as `Setter` passes it, and keeps no
//!   pointer.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use runstone::unstable;
use runstone::{Batch, Durability, KeyspaceOptions, Options, Store, WriteOptions};
use runstone_sim::random::Random;
use rustix::ioctl::{Setter, ioctl};

const CHILD: &str = "RUNSTONE_POWER_CUT_TEST_STORE";
const CUTS: u64 = 60;
/// Writes cycle through these keys, so that stores stay small and old versions could show.
const KEYS: u64 = 3000;
const COUNT: &[u8] = b"count";
/// One write in this many is synced.
const SYNC_EVERY: u64 = 24;

fn options(round: u64) -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(128 << 10);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 64 << 10;
    shape.base_bytes = 256 << 10;
    Options::default()
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(128 << 10)
        .wal_mode(match round % 2 {
            0 => runstone::WalMode::Mapped,
            _ => runstone::WalMode::Write,
        })
        .keyspace(keyspace)
}

fn key(write: u64) -> String {
    format!("key{:05}", write % KEYS)
}

fn value(write: u64) -> Vec<u8> {
    let mut random = Random::new(write);
    (0..20 + write % 300).map(|_| random.draw() as u8).collect()
}

/// How many writes a store contains.
fn count(store: &Store) -> u64 {
    let found = store.get(COUNT).expect("get");
    found.map_or(0, |bytes| u64::from_le_bytes(bytes.as_ref().try_into().expect("a number")))
}

/// Not a test of its own: the child's work when the environment names a store. It continues after
/// the writes that it finds, until something fails.
#[test]
fn child_writes_until_the_power_fails() {
    let Ok(argument) = std::env::var(CHILD) else { return };
    let (round, path) = argument.split_once(' ').expect("a round and a path");
    let store = Store::open(path, options(round.parse().expect("a number"))).expect("open");
    let mut out = std::io::stdout().lock();
    for write in count(&store).. {
        let mut batch = Batch::new();
        let keyspace = store.default_keyspace();
        batch.put(keyspace, key(write), value(write)).expect("fits");
        batch.put(keyspace, COUNT, (write + 1).to_le_bytes()).expect("fits");
        let is_synced = write % SYNC_EVERY == SYNC_EVERY - 1;
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        if store.write(&batch, WriteOptions::default().durability(durability)).is_err() {
            break;
        }
        if is_synced {
            writeln!(out, "synced {}", write + 1).expect("pipe");
        }
    }
}

/// A file system in a file. Unmounted when dropped.
struct Disk {
    image: PathBuf,
    root: PathBuf,
}

impl Disk {
    /// The error says why there can be no file system here.
    fn make(directory: &Path) -> Result<Disk, String> {
        let disk = Disk { image: directory.join("image"), root: directory.join("root") };
        let file = File::create(&disk.image).map_err(|e| e.to_string())?;
        file.set_len(128 << 20).map_err(|e| e.to_string())?;
        std::fs::create_dir(&disk.root).map_err(|e| e.to_string())?;
        let image = disk.image.to_str().ok_or("a path of ASCII is needed")?;
        run("mkfs.ext4", &["-q", "-F", image])?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        let (image, root) = (self.image.to_string_lossy(), self.root.to_string_lossy());
        run("mount", &["-o", "loop", &image, &root])
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&self.root.to_string_lossy()])
    }

    /// From now on nothing reaches the disk, not even the journal's content in memory.
    fn cut(&self) {
        /// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`.
        const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587D;
        const NO_LOG_FLUSH: u32 = 2;
        let root = File::open(&self.root).expect("the root of the file system");
        // SAFETY: O1.
        unsafe { ioctl(&root, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) }.expect("shutdown");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Lets a child write and cuts the power after some of its syncs. Returns how many writes the child
/// knew to be on disk before the cut began. A sync that the cut overtakes may still be
/// acknowledged, because the kernel checks for a shutdown when a sync begins and not when its pages
/// are written. A machine without power could not acknowledge it, so such an acknowledgement does
/// not count.
fn write_and_cut(disk: &Disk, round: u64, syncs: u64, delay: Duration) -> u64 {
    let store = disk.root.join("store");
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["power_cut::child_writes_until_the_power_fails", "--exact", "--nocapture"])
        .env(CHILD, format!("{round} {}", store.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (newest, (send_enough, enough)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
    let synced = newest.clone();
    let reader = std::thread::spawn(move || {
        let mut seen = 0;
        for line in lines {
            let line = line.expect("utf-8");
            let Some((_, number)) = line.split_once("synced ") else { continue };
            synced.store(number.parse().expect("a number"), Ordering::SeqCst);
            seen += 1;
            if seen == syncs {
                send_enough.send(()).expect("somebody waits");
            }
        }
    });
    let is_enough = enough.recv().is_ok();
    std::thread::sleep(delay);
    let synced = newest.load(Ordering::SeqCst);
    disk.cut();
    // The child may end by itself, because a page of a mapped log may be gone.
    let _ = child.kill();
    child.wait().expect("reaped");
    reader.join().expect("read to the end");
    assert!(is_enough, "round {round}: the child died by itself before {syncs} syncs");
    synced
}

#[test]
fn what_was_synced_survives_power_cuts() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let _alone = super::alone();
    let directory = tempfile::tempdir().expect("temporary directory");
    let disk = match Disk::make(directory.path()) {
        Ok(disk) => disk,
        Err(error) => {
            eprintln!("skipped: no ext4 can be made and mounted here ({error})");
            return;
        }
    };
    let mut random = Random::new(60);
    let mut written = 0;
    for round in 0..CUTS {
        let delay = Duration::from_micros(random.below(3000));
        let synced = write_and_cut(&disk, round, 1 + random.below(60), delay);
        disk.unmount().expect("unmount");
        disk.mount().expect("mount");
        let store = Store::open(disk.root.join("store"), options(round + 1))
            .unwrap_or_else(|error| panic!("cut {round}: {error}"));
        let count = count(&store);
        assert!(count >= synced, "cut {round}: {count} writes of {synced} that were synced");
        written = count;
        for write in count.saturating_sub(KEYS)..count {
            let found = store.get(key(write)).expect("get");
            assert_eq!(
                found.as_deref(),
                Some(&value(write)[..]),
                "cut {round}: {write} of {count}"
            );
        }
        let entries = store.default_keyspace().iter().expect("iterator").count() as u64;
        assert_eq!(entries, count.min(KEYS) + u64::from(count > 0), "cut {round}: a later write");
        let report = store.verify().expect("verify");
        assert!(report.is_clean(), "cut {round}: {:?}", report.damage);
        store.close().expect("close");
    }
    assert!(written > CUTS * SYNC_EVERY, "{written} writes");
}
