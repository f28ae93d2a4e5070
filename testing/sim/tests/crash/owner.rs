//! Two processes that both believe they own a store: after a fork, and after a second open when the
//! lock file was removed or replaced. The process that is not the owner changes nothing.
//!
//! Obligations of the unsafe code:
//! * O1 the child does only what waits for no lock. Either only one thread of the process runs at
//!   the fork, or the test is about calls in the child that must not wait, and the parent checks
//!   that the child ends.
//! * O2 the child ends without returning to the test harness.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use runstone::{
    Background, Backups, ChangesFrom, Commit, Cursor, Error, Follower, KeyspaceOptions, Options,
    ReadOptions, Resources, Scan, Snapshot, SortedWriter, Store, Transaction, TransactionOptions,
    ValuePlacement, WriteOptions,
};
use runstone_sim::random::{Random, for_seeds};
use rustix::process::{Pid, WaitOptions, waitpid};

const CHILD: &str = "RUNSTONE_FORK_TEST_STORE";
const DYING: &str = "RUNSTONE_FORK_TEST_DYING";
const MOVING: &str = "RUNSTONE_FORK_TEST_MOVING";
const PUTS: u32 = 1_000;

fn options(placement: ValuePlacement, background: Background) -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
    keyspace.values.placement = placement;
    keyspace.values.separate_at = 50;
    Options::default()
        .background(background)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .keyspace(keyspace)
}

fn manual() -> Options {
    options(ValuePlacement::HashGrouped, Background::Manual)
}

fn put(store: &Store, i: u32) -> Result<(), Error> {
    store.default_keyspace().put_with(i.to_be_bytes(), [i as u8; 100], WriteOptions::sync())
}

fn check(store: &Store, puts: u32) {
    for i in 0..puts {
        assert_eq!(store.get(i.to_be_bytes()).expect("get").as_deref(), Some(&[i as u8; 100][..]));
    }
}

fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(path).expect("lists").map(|entry| entry.expect("reads"));
    let read = |path: &Path| std::fs::read(path).expect("reads");
    entries.map(|e| (e.file_name().into_string().expect("text"), read(&e.path()))).collect()
}

/// What a fork of the process does with the store it inherits.
fn use_in_a_fork(store: Store) -> Result<(), String> {
    let refused = |what: &str, outcome: Result<(), Error>| match outcome {
        Err(Error::OtherProcess) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    };
    refused("put", put(&store, 0))?;
    refused("get", store.get([0]).map(drop))?;
    refused("scan", store.default_keyspace().iter().map(drop))?;
    refused("sync", store.sync())?;
    refused("flush", store.flush())?;
    refused("compact", store.compact())?;
    refused("job", store.run_one_job().map(drop))?;
    refused("wait", store.wait_idle())?;
    refused("keyspace", store.open_keyspace("new", None).map(drop))?;
    refused("drop", store.drop_keyspace("other"))?;
    refused("collect", store.collect_values())?;
    refused("verify", store.verify().map(drop))?;
    refused("close", store.close())
}

/// Not a test of its own: the process that forks. Once, under `Background::Manual`, the child
/// dropped the store and deleted the log of its parent, and 1,000 synced puts were lost.
#[test]
fn child_that_forks() {
    let Ok(path) = std::env::var(CHILD) else { return };
    for background in [Background::Manual, Background::Threads(2)] {
        let path = format!("{path}-{background:?}");
        let store = Store::open(&path, options(ValuePlacement::Inline, background)).expect("open");
        store.open_keyspace("other", None).expect("keyspace");
        (0..PUTS).for_each(|i| put(&store, i).expect("put"));
        // SAFETY: O1.
        match unsafe { libc::fork() } {
            0 => {
                let outcome = use_in_a_fork(store);
                if let Err(wrong) = &outcome {
                    println!("{wrong}");
                }
                // SAFETY: O2.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            child => {
                let child = Pid::from_raw(child).expect("a fork");
                let (_, status) = waitpid(Some(child), WaitOptions::empty())
                    .expect("waits")
                    .expect("the child has ended");
                assert_eq!(status.exit_status(), Some(0));
            }
        }
        (PUTS..PUTS + 10).for_each(|i| put(&store, i).expect("the parent goes on"));
        // As if killed: synced writes are in the log.
        std::mem::forget(store);
    }
    close_beside_a_fork(&format!("{path}-closed"));
    for_seeds(3, |seed| fork_beside_threads(&format!("{path}-busy-{seed}"), seed));
    values_beside_a_fork(&format!("{path}-values"));
    questions_beside_a_fork(&format!("{path}-asked"));
    readers_beside_a_fork(&format!("{path}-read"));
    archiver_beside_a_fork(&format!("{path}-archived"));
}

/// A large value is a piece of a memtable. Once, copying or dropping such a value in a fork waited
/// for a lock that a thread of the other process held.
fn values_beside_a_fork(path: &str) {
    let mut options = manual();
    options.memory_budget_bytes = 64 << 20;
    let store = Store::open(path, options).expect("open");
    store.put("large", [7; 5_000]).expect("put");
    let large = || store.get("large").expect("get").expect("is there");
    let ends = AtomicBool::new(false);
    let hung = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    drop(large().clone())
                }
            });
        }
        let hung = (0..500).find(|_| {
            let value = large();
            // SAFETY: O1.
            match unsafe { libc::fork() } {
                0 => {
                    let copy = value.clone();
                    let is_whole = copy == [7; 5_000][..];
                    drop((value, copy));
                    // SAFETY: O2.
                    unsafe { libc::_exit(i32::from(!is_whole)) }
                }
                child => status_of(Pid::from_raw(child).expect("a fork")) != Some(0),
            }
        });
        ends.store(true, Relaxed);
        hung
    });
    assert_eq!(hung, None, "a child hangs, or has other bytes");
}

/// Calls in a fork, some of which have no error to return. Once, such a call waited for a lock of
/// the cache, of the catalog or of a follower that a thread of the other process held.
fn questions_beside_a_fork(path: &str) {
    let resources = Resources::builder().memory_budget(8 << 20).build().expect("resources");
    let options = options(ValuePlacement::Vlog, Background::Threads(1));
    let store = resources.open(path, options.clone()).expect("open");
    (0..100_000).for_each(|i: u32| store.put(i.to_be_bytes(), [7; 100]).expect("put"));
    let follower = resources.follow(path, options).expect("follows");
    let transaction = store.begin(TransactionOptions::serializable()).expect("begins");
    let ends = AtomicBool::new(false);
    let hung = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                transaction.get(store.default_keyspace(), [0; 4]).expect("reads");
            }
        });
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                assert!(store.default_keyspace().iter().expect("opens").count() >= 100_000);
            }
        });
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                store.put("again", "and again").expect("put");
                follower.refresh().expect("refreshes");
                store.metrics();
            }
        });
        let hung = (0..150).find(|_| {
            // SAFETY: O1.
            match unsafe { libc::fork() } {
                0 => {
                    let outcome = ask_in_a_fork(&resources, &store, &follower, &transaction);
                    // SAFETY: O2.
                    unsafe { libc::_exit(outcome.err().unwrap_or(0)) }
                }
                child => status_of(Pid::from_raw(child).expect("a fork")) != Some(0),
            }
        });
        ends.store(true, Relaxed);
        hung
    });
    assert_eq!(hung, None, "a child hangs, or was told something");
    store.close().expect("closes");
}

/// Returns the number of the question to which the answer was wrong.
fn ask_in_a_fork(
    resources: &Resources,
    store: &Store,
    follower: &Follower,
    transaction: &Transaction,
) -> Result<(), i32> {
    let expect = |number: i32, is_right: bool| if is_right { Ok(()) } else { Err(number) };
    let refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::OtherProcess));
    expect(1, resources.memory().cache_bytes == 0)?;
    expect(2, store.metrics().memory.budget_bytes == 0)?;
    expect(3, store.heat().is_empty())?;
    expect(4, store.disk_bytes() == 0)?;
    expect(5, store.keyspaces().is_empty())?;
    expect(6, store.default_keyspace().value_usage().is_empty())?;
    expect(7, refused(follower.refresh().map(drop)))?;
    expect(8, follower.age() == Duration::MAX && !follower.has_lease())?;
    expect(9, refused(follower.live().map(drop)))?;
    expect(10, refused(follower.checkpoint("/dev/null/copy")))?;
    expect(11, refused(transaction.get(store.default_keyspace(), "k").map(drop)))?;
    expect(12, refused(store.keyspace("default").map(drop)))?;
    expect(13, refused(store.sync()))?;
    expect(14, refused(store.changes(ChangesFrom::Now).map(drop)))?;
    expect(15, refused(store.checkpoint("/dev/null/copy")))?;
    expect(16, refused(store.begin(TransactionOptions::default()).map(drop)))?;
    expect(17, refused(store.open_keyspace("new", None).map(drop)))?;
    expect(18, refused(store.drop_keyspace("other")))
}

/// A fork has the leases of its parent's readers. Once, a fork that continued to read reported to
/// the writer that its parent no longer needed the part of the log that the fork had passed.
fn readers_beside_a_fork(path: &str) {
    let store = Store::open(path, manual()).expect("open");
    let mut changes = store.changes(ChangesFrom::Now).expect("reads");
    let leases = || {
        let mut files = files(path.as_ref());
        files.retain(|name, _| name.ends_with(".lease"));
        files
    };
    put(&store, 1).expect("put");
    store.flush().expect("flushes");
    let before = leases();
    assert!(!before.is_empty());
    // SAFETY: O1.
    let child = match unsafe { libc::fork() } {
        0 => {
            let outcome = (0..3).try_for_each(|_| changes.next().map(drop));
            drop(changes);
            let is_refused = matches!(outcome, Err(Error::OtherProcess));
            // SAFETY: O2.
            unsafe { libc::_exit(i32::from(!is_refused)) }
        }
        child => Pid::from_raw(child).expect("a fork"),
    };
    assert_eq!(status_of(child), Some(0), "a fork reads on");
    assert!(leases() == before, "a fork changed a lease");
    assert!(changes.next().expect("reads").is_some());
    store.close().expect("closes");
}

/// A fork that continued to archive would truncate its parent's file to the length that it had at
/// the fork.
fn archiver_beside_a_fork(path: &str) {
    let store = Store::open(path, manual()).expect("open");
    let directory = format!("{path}-backups");
    let backups = Backups::open(&directory).expect("opens");
    let mut archiver = backups.archive(path).expect("begins");
    put(&store, 1).expect("put");
    archiver.advance(Duration::ZERO).expect("archives");
    let (mut child_waits, mut parent_goes_on) = std::io::pipe().expect("a pipe");
    // SAFETY: O1.
    let child = match unsafe { libc::fork() } {
        0 => {
            let _ = child_waits.read(&mut [0]);
            let outcomes = [(); 3].map(|()| archiver.advance(Duration::ZERO));
            let are_refused =
                outcomes.iter().all(|outcome| matches!(outcome, Err(Error::OtherProcess)));
            // SAFETY: O2.
            unsafe { libc::_exit(i32::from(!are_refused)) }
        }
        child => Pid::from_raw(child).expect("a fork"),
    };
    put(&store, 2).expect("put");
    archiver.advance(Duration::ZERO).expect("archives");
    let before = files(directory.as_ref());
    parent_goes_on.write_all(&[1]).expect("writes");
    assert_eq!(status_of(child), Some(0), "a fork goes on archiving");
    assert!(files(directory.as_ref()) == before, "a fork changed the archive");
    put(&store, 3).expect("put");
    archiver.advance(Duration::ZERO).expect("archives");
    assert!(backups.verify_archives().expect("reads").is_empty());
    store.close().expect("closes");
}

/// The objects that a fork inherits and may drop, in any order or not at all.
struct Held {
    snapshot: Option<Snapshot>,
    cursor: Option<Cursor>,
    scan: Option<Scan>,
    transaction: Option<Transaction>,
    writer: Option<SortedWriter>,
    commit: Option<Commit>,
    store: Option<Store>,
}

/// How a commit ended; `None` if it waits.
fn poll(commit: &mut Commit) -> Option<Result<(), Error>> {
    match Pin::new(commit).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

impl Held {
    fn new(random: &mut Random, store: &Store, file: &str, round: u32) -> Held {
        let keyspace = store.default_keyspace();
        let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
        cursor.seek_to_first().expect("reads");
        let mut scan = keyspace.iter().expect("opens");
        if random.one_in(2) {
            scan.next().expect("an entry").expect("reads");
        }
        let kind = [TransactionOptions::pessimistic(), TransactionOptions::default()];
        let mut transaction = store.begin(kind[random.below(2) as usize]).expect("begins");
        transaction.put(keyspace, round.to_be_bytes(), "own").expect("locks");
        let mut writer = SortedWriter::create(file, &KeyspaceOptions::default()).expect("makes");
        writer.put("a", "1").expect("writes");
        let mut commit = keyspace.put_later([9; 9], "awaited").expect("writes");
        // Usually it waits now, and has left a waker.
        assert!(poll(&mut commit).is_none_or(|outcome| outcome.is_ok()));
        let mut held = || !random.one_in(4);
        Held {
            snapshot: held().then(|| store.snapshot()),
            cursor: held().then_some(cursor),
            scan: held().then_some(scan),
            transaction: held().then_some(transaction),
            writer: held().then_some(writer),
            commit: held().then_some(commit),
            store: held().then(|| store.clone()),
        }
    }

    /// What the child does with one of the objects; `false` if it was not refused.
    fn end(&mut self, one: u32, uses: bool) -> bool {
        let refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::OtherProcess));
        match one {
            0 => {
                let copy = self.snapshot.clone();
                drop((copy, self.snapshot.take()));
                true
            }
            1 => {
                let told = |one: &mut Cursor| {
                    refused(one.next()) && refused(one.prev()) && refused(one.seek("a"))
                };
                self.cursor.take().is_none_or(|mut one| !uses || told(&mut one))
            }
            2 => {
                let told = |one: &mut Scan| {
                    one.next().is_some_and(|next| refused(next.map(drop))) && one.next().is_none()
                };
                self.scan.take().is_none_or(|mut one| !uses || told(&mut one))
            }
            3 => {
                let end = |one: Transaction| match uses {
                    true => refused(one.commit(WriteOptions::default())),
                    false => {
                        one.rollback();
                        true
                    }
                };
                self.transaction.take().is_none_or(end)
            }
            4 => self.writer.take().is_none_or(|mut one| !uses || refused(one.put("b", "2"))),
            5 => {
                let told =
                    |mut one: Commit| poll(&mut one).is_some_and(refused) && refused(one.wait());
                self.commit.take().is_none_or(|one| !uses || told(one))
            }
            _ => self.store.take().is_none_or(|one| !uses || refused(one.close())),
        }
    }

    /// Continues the work of the parent.
    fn go_on(self, store: &Store, file: &str) {
        if let Some(mut writer) = self.writer {
            writer.put("b", "2").expect("writes");
            writer.finish().expect("finishes");
            assert_eq!(store.default_keyspace().ingest(&[file]).expect("the file is there"), 2);
            std::fs::remove_file(file).expect("is there");
        }
        if let Some(transaction) = self.transaction {
            transaction.commit(WriteOptions::default()).expect("commits");
        }
        self.commit.into_iter().for_each(|commit| commit.wait().expect("syncs"));
        assert!(self.cursor.is_none_or(|cursor| cursor.valid()));
        assert!(self.scan.is_none_or(|mut scan| scan.next().is_some()));
    }
}

/// A fork has copies of snapshots, cursors, transactions and writers, and of locks that were held
/// by threads which do not exist in the fork. Once, dropping a copy waited for such a lock for
/// ever. Dropping the copy of a writer removed the parent's file, and the parent's `finish` then
/// reported success.
///
/// The seed chooses the placement, the threads, whether the store and a follower share resources,
/// which objects there are, in which order the child uses or drops them, and which it leaves alone.
fn fork_beside_threads(path: &str, seed: u64) {
    let mut random = Random::new(seed);
    let placements = [ValuePlacement::HashGrouped, ValuePlacement::Inline, ValuePlacement::Vlog];
    let placement = placements[random.below(3) as usize];
    let threads = Background::Threads(1 + random.below(2) as usize);
    let options = options(placement, threads);
    let resources = random.one_in(2).then(|| {
        let builder = Resources::builder().memory_budget(8 << 20).threads(2);
        builder.build().expect("resources")
    });
    let opened = match &resources {
        Some(resources) => resources.open(path, options.clone()),
        None => Store::open(path, options.clone()),
    };
    let store = opened.expect("open");
    (1_000..1_200).for_each(|i| put(&store, i).expect("put"));
    let ends = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2u8).map(|one| keep_busy(&store, one, &ends)).collect();
    let file = format!("{path}.sorted");
    let mut own = Vec::new();
    for round in 0..40u32 {
        let mut held = Held::new(&mut random, &store, &file, round);
        own.extend(held.transaction.as_ref().map(|_| round));
        let mut order: Vec<(u32, bool)> = (0..7).map(|one| (one, random.one_in(2))).collect();
        random.shuffle(&mut order);
        order.truncate(random.below(8) as usize);
        let mut followed = Some(follow(&mut random, resources.as_ref(), path, &options));
        let leaves = random.one_in(4);
        // SAFETY: O1.
        let child = match unsafe { libc::fork() } {
            0 => {
                let opens = resources.clone().is_some_and(|shared| {
                    !matches!(shared.open(path, options.clone()), Err(Error::OtherProcess))
                });
                let wrong = order.iter().find(|(one, uses)| !held.end(*one, *uses));
                let code = wrong.map_or(0, |(one, _)| 1 + *one as i32);
                let is_kept = keeps(resources.as_ref(), followed.take_if(|_| !leaves));
                let code = if is_kept { code } else { 98 };
                // SAFETY: O2.
                unsafe { libc::_exit(if opens { 99 } else { code }) }
            }
            child => Pid::from_raw(child).expect("a fork"),
        };
        assert_eq!(status_of(child), Some(0), "seed {seed}, round {round}: {order:?}");
        held.go_on(&store, &file);
        let (view, follower) = followed.expect("the child had copies");
        assert!(follower.is_none_or(|follower| follower.refresh().is_ok()), "seed {seed}");
        assert!(view.get(1_000u32.to_be_bytes()).expect("reads").is_some(), "seed {seed}");
    }
    ends.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(store.verify().expect("verifies").is_clean());
    store.close().expect("closes");
    let store = Store::open(path, options).expect("reopens");
    let get = |key: u32| store.get(key.to_be_bytes()).expect("reads");
    assert!((1_000..1_200).all(|i| get(i).as_deref() == Some(&[i as u8; 100][..])), "seed {seed}");
    for round in 0..40 {
        let expected = own.contains(&round).then_some(&b"own"[..]);
        assert_eq!(get(round).as_deref(), expected, "seed {seed}, round {round}");
    }
    assert!(store.verify().expect("verifies").is_clean());
    store.close().expect("closes");
}

/// A view, with its follower or without it.
type Followed = (Store, Option<Follower>);

fn follow(
    random: &mut Random,
    resources: Option<&Resources>,
    path: &str,
    options: &Options,
) -> Followed {
    let followed = match resources {
        Some(resources) => resources.follow(path, options.clone()),
        None => Store::follow(path, options.clone()),
    };
    let follower = followed.expect("follows");
    (follower.store(), random.one_in(2).then_some(follower))
}

/// Drops the copies that a fork has. Returns whether none of the shared memory was freed, because
/// that would need locks of the budget.
fn keeps(resources: Option<&Resources>, followed: Option<Followed>) -> bool {
    let taken = || resources.map(|shared| shared.memory().memtable_bytes);
    let before = taken();
    drop(followed);
    taken() == before
}

/// Takes and drops every kind of object that a store hands out, in a thread.
fn keep_busy(store: &Store, one: u8, ends: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (store, ends) = (store.clone(), Arc::clone(ends));
    std::thread::spawn(move || {
        while !ends.load(Relaxed) {
            let snapshot = store.snapshot();
            drop((snapshot.clone(), snapshot));
            let mut transaction = store.begin(TransactionOptions::pessimistic()).expect("begins");
            transaction.put(store.default_keyspace(), [one; 9], "x").expect("locks");
            transaction.commit(WriteOptions::default()).expect("commits");
            let mut commit = store.default_keyspace().put_later([one; 9], "y").expect("writes");
            assert!(poll(&mut commit).is_none_or(|outcome| outcome.is_ok()));
            assert!(store.default_keyspace().iter().expect("opens").count() > 100);
        }
    })
}

/// How a child ended; `None` if it hangs and had to be killed.
fn status_of(child: Pid) -> Option<i32> {
    for _ in 0..3_000 {
        match waitpid(Some(child), WaitOptions::NOHANG).expect("waits") {
            Some((_, status)) => return status.exit_status(),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    None
}

/// The lock of a closed store is free, although a fork has copies of all its files.
fn close_beside_a_fork(path: &str) {
    let store = Store::open(path, manual()).expect("open");
    let (reader, writer) = std::io::pipe().expect("pipe");
    // SAFETY: O1.
    let child = match unsafe { libc::fork() } {
        0 => {
            drop(writer);
            let _ = (&reader).read(&mut [0]);
            // SAFETY: O2.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child).expect("a fork"),
    };
    store.close().expect("close");
    let store = Store::open(path, manual()).expect("the lock is free");
    store.close().expect("close");
    drop(writer);
    waitpid(Some(child), WaitOptions::empty()).expect("waits");
}

#[test]
fn a_fork_of_the_process_changes_nothing() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let _alone = super::alone();
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["owner::child_that_forks", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, &path)
        .output()
        .expect("spawn");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    for background in ["Manual", "Threads(2)"] {
        let path = format!("{}-{background}", path.display());
        let store = Store::open(path, manual()).expect("reopen");
        check(&store, PUTS + 10);
        assert!(store.verify().expect("verify").is_clean());
    }
}

/// Not a test of its own: a process that opens a store by a relative path and then changes its
/// directory.
#[test]
fn child_that_changes_its_directory() {
    let Ok(elsewhere) = std::env::var(MOVING) else { return };
    let store = Store::open("store", manual()).expect("open");
    (0..PUTS).for_each(|i| put(&store, i).expect("put"));
    std::env::set_current_dir(elsewhere).expect("is there");
    (PUTS..2 * PUTS).for_each(|i| put(&store, i).expect("put"));
    store.flush().expect("flush");
    assert!(store.verify().expect("verify").is_clean());
    store.close().expect("close");
}

/// Once, files were made in the directory to which the process had changed, and the store stopped
/// because its lock was not there.
#[test]
fn a_store_stays_where_it_was_opened() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let elsewhere = tempfile::tempdir().expect("temporary directory");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["owner::child_that_changes_its_directory", "--exact", "--nocapture"])
        .current_dir(&directory)
        .env(MOVING, elsewhere.path())
        .output()
        .expect("spawn");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(files(elsewhere.path()).is_empty());
    let store = Store::open(directory.path().join("store"), manual()).expect("reopen");
    check(&store, 2 * PUTS);
}

/// Not a test of its own: a process that forks and dies, with a writer and a follower. The fork
/// lives until its standard input ends.
#[test]
fn parent_that_dies() {
    let Ok(path) = std::env::var(DYING) else { return };
    let writer = Store::open(&path, manual()).expect("open");
    put(&writer, 0).expect("put");
    let _follower = Store::follow(&path, manual()).expect("follow");
    // The fork gives up the locks when it first runs, so its parent waits for that.
    let (mut told, mut tell) = std::io::pipe().expect("a pipe");
    let mut byte = [0];
    // SAFETY: O1.
    match unsafe { libc::fork() } {
        0 => {
            let _ = tell.write_all(&[1]);
            let _ = std::io::stdin().read(&mut byte);
            // SAFETY: O2.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let _ = told.read(&mut byte);
            // SAFETY: nothing of the process runs after this.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Locks belong to open files, which a fork has too. Once, the fork still held them when its parent
/// was dead.
#[test]
fn a_fork_holds_no_lock_of_a_dead_parent() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let _alone = super::alone();
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    let mut parent = Command::new(std::env::current_exe().expect("own path"))
        .args(["owner::parent_that_dies", "--exact", "--test-threads=1"])
        .env(DYING, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("spawn");
    // The fork has the other end of this pipe too, and lives until the pipe is closed.
    let input = parent.stdin.take();
    parent.wait().expect("it dies");
    let store = Store::open(&path, manual()).expect("the lock is free while the fork lives");
    check(&store, 1);
    for i in 1..20 {
        put(&store, i).expect("put");
        store.flush().expect("flush");
    }
    assert_eq!(store.metrics().followers, 0, "the lease has ended too");
    drop(input);
    store.close().expect("close");
}

#[test]
fn a_lock_that_was_removed_or_replaced_is_noticed() {
    let _alone = super::alone();
    for replaced in [false, true] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("store");
        let first = Store::open(&path, manual()).expect("open");
        (0..PUTS).for_each(|i| put(&first, i).expect("put"));
        std::fs::remove_file(path.join("LOCK")).expect("is there");
        let second = replaced.then(|| Store::open(&path, manual()).expect("a new lock"));
        let before = files(&path);
        let told = |what: &str, outcome: Result<(), Error>| {
            let error = outcome.err().unwrap_or_else(|| panic!("{what} is done, {replaced}"));
            assert!(error.to_string().contains("LOCK"), "{what}: {error}");
        };
        told("a flush", first.flush());
        told("a put that is synced", put(&first, PUTS));
        told("a new keyspace", first.open_keyspace("new", None).map(drop));
        told("a collection", first.collect_values());
        // Data in memory can be read.
        check(&first, PUTS);
        let _ = first.close();
        let after = files(&path);
        let changed = before.iter().filter(|(name, bytes)| after.get(*name) != Some(bytes));
        let changed: Vec<&String> = changed.map(|(name, _)| name).collect();
        assert!(changed.iter().all(|name| name.ends_with(".wal")), "{changed:?}");
        assert_eq!(before.len(), after.len());
        let store = second.unwrap_or_else(|| Store::open(&path, manual()).expect("reopen"));
        check(&store, PUTS);
        assert!(store.verify().expect("verify").is_clean());
        store.close().expect("close");
    }
}
