//! `kill -9` of a writer that is followed, of followers and of mirrors. The test runs its own
//! executable as the children. `RUNSTONE_KILLS` says how many die in each part of a test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::unstable;
use runstone::{
    Batch, Error, Follower, KeyspaceOptions, Mirror, Options, Store, ValueOptions, ValuePlacement,
    WriteOptions,
};
use runstone_sim::random::Random;

const CHILD: &str = "RUNSTONE_FOLLOW_TEST_STORE";
const PLACEMENT: &str = "RUNSTONE_FOLLOW_TEST_PLACEMENT";
/// How many processes are killed by default.
const KILLS: u64 = 6;
/// Keys of a keyspace. Write `i` goes to key `i % KEYS` of both keyspaces.
const KEYS: u64 = 1_500;

fn placement(name: &str) -> ValuePlacement {
    match name {
        "vlog" => ValuePlacement::Vlog,
        "hash-grouped" => ValuePlacement::HashGrouped,
        _ => ValuePlacement::Inline,
    }
}

fn keyspace_options(placement: ValuePlacement) -> KeyspaceOptions {
    let values = ValueOptions::default().placement(placement).separate_at(400).groups(4);
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(256 << 10).values(values);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 64 << 10;
    shape.base_bytes = 256 << 10;
    keyspace
}

fn options(placement: ValuePlacement) -> Options {
    let options = Options::default().memory_budget_bytes(8 << 20).wal_segment_bytes(128 << 10);
    options.keep_log_bytes(64 << 20).keyspace(keyspace_options(placement))
}

fn value(i: u64) -> Vec<u8> {
    let mut bytes = i.to_le_bytes().to_vec();
    bytes.resize(20 + (i * 7 % 1_000) as usize, i as u8);
    bytes
}

/// Not a test of its own: the child's work when the environment names a store.
#[test]
fn child_writes_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let placement = placement(&std::env::var(PLACEMENT).expect("set"));
    let store = Store::open(&path, options(placement)).expect("open");
    let other = store.open_keyspace("other", Some(keyspace_options(placement))).expect("made");
    let last = store.get("last").expect("get").map_or(0, |found| number_in(&found));
    for i in last + 1.. {
        let mut batch = Batch::new();
        let (key, value) = ((i % KEYS).to_be_bytes(), value(i));
        batch.put(store.default_keyspace(), key, &value).expect("put");
        batch.put(&other, key, &value).expect("put");
        batch.put(store.default_keyspace(), "last", i.to_le_bytes()).expect("put");
        store.write(&batch, WriteOptions::default()).expect("write");
        // Lets a mirror on the same cores keep up.
        if i % 8 == 0 {
            sleep(Duration::from_micros(500));
        }
    }
}

fn kills() -> u64 {
    std::env::var("RUNSTONE_KILLS").map_or(KILLS, |text| text.parse().expect("a number"))
}

fn number_in(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

/// The file in which a child reports its findings.
fn said(path: &Path, test: &str) -> PathBuf {
    path.with_extension(test.replace("::", "."))
}

fn spawn(test: &str, path: &Path, placement: &str) -> Child {
    let said = std::fs::File::create(said(path, test)).expect("a file");
    Command::new(std::env::current_exe().expect("own path"))
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, path)
        .env(PLACEMENT, placement)
        .stdout(said.try_clone().expect("a handle"))
        .stderr(said)
        .spawn()
        .expect("spawn")
}

/// Checks that a view is the store after some write, and returns the number of that write.
fn check(view: &Store, place: &str) -> u64 {
    let Some(last) = view.get("last").unwrap_or_else(|e| panic!("{place}: {e}")) else { return 0 };
    let last = number_in(&last);
    for keyspace in [Ok(view.default_keyspace().clone()), view.keyspace("other")] {
        let keyspace = keyspace.unwrap_or_else(|error| panic!("{place}: {error}"));
        for key in 0..KEYS {
            // The last write of the key.
            let back = (last % KEYS + KEYS - key) % KEYS;
            let wanted = (back < last).then(|| value(last - back));
            let found = keyspace.get(key.to_be_bytes());
            let found = found.unwrap_or_else(|error| panic!("{place}: key {key}: {error}"));
            assert_eq!(found.as_deref(), wanted.as_deref(), "{place}: key {key} of {last}");
        }
    }
    last
}

fn wait_for(path: &Path) -> Follower {
    let began = Instant::now();
    loop {
        match Store::follow(path, Options::default().memory_budget_bytes(8 << 20)) {
            Ok(follower) if follower.store().keyspace("other").is_ok() => return follower,
            _ => sleep(Duration::from_millis(5)),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the child makes a store");
    }
}

fn follow_through_kills(name: &str, kills: u64) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path: PathBuf = directory.path().join("store");
    let mut random = Random::new(kills);
    let mut child = spawn("kill::child_writes_until_killed", &path, name);
    let follower = wait_for(&path);
    let (mut last, mut old) = (0, follower.store());
    for kill in 0..kills {
        let until = Instant::now() + Duration::from_millis(100 + random.below(400));
        let place = format!("{name}, kill {kill}");
        while Instant::now() < until {
            follower.refresh().unwrap_or_else(|error| panic!("{place}: {error}"));
            let now = check(&follower.store(), &place);
            assert!(now >= last, "{place}: {now} after {last}");
            last = now;
            let was = check(&old, &format!("{place}, an old view"));
            assert!(was <= now);
            if random.one_in(3) {
                old = follower.store();
            }
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
        child = spawn("kill::child_writes_until_killed", &path, name);
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("reaped");
    assert!(last > 1_000, "{last} writes were seen");
}

#[test]
fn a_follower_sees_only_moments_while_its_writer_is_killed() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    for name in ["inline", "vlog", "hash-grouped"] {
        follow_through_kills(name, kills());
    }
}

/// Not a test of its own: a child that follows and checks each view. It ends if one is wrong.
#[test]
fn child_checks_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let follower = wait_for(Path::new(&path));
    let mut last = 0;
    loop {
        follower.refresh().expect("refreshed");
        let now = check(&follower.store(), "the child's view");
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
}

/// Not a test of its own: a child that mirrors the store into the directory beside it.
#[test]
fn child_mirrors_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let mut mirror = mirror(Path::new(&path));
    loop {
        match mirror.advance(Duration::from_millis(20)) {
            // Nothing was written for too long, or the writer is being opened.
            Err(Error::LeaseRevoked { .. }) => return,
            advanced => drop(advanced.expect("advanced")),
        }
    }
}

/// Continues the mirror beside a store, or makes one. Removes the remains of a child that was
/// killed while it made one.
fn mirror(path: &Path) -> Mirror {
    let target = path.with_extension("mirror");
    let began = Instant::now();
    loop {
        match Mirror::open(path, &target, options(ValuePlacement::Inline)) {
            Ok(mirror) => return mirror,
            Err(Error::HistoryForked { last_common, .. }) => panic!("forked at {last_common}"),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&target);
                assert!(began.elapsed() < Duration::from_secs(60), "it is made: {error}");
                sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Checks that a child still runs. A child that has ended has found something.
fn check_runs(test: &str, child: &mut Child, path: &Path, place: &str) {
    let ended = child.try_wait().expect("a child").is_some();
    let said = || std::fs::read_to_string(said(path, test)).unwrap_or_default();
    assert!(!ended, "{place}: {test} ended by itself: {}", said());
}

/// Kills a writer and its reader in turn.
fn kill_either(name: &str, reader: &str, mut killed: impl FnMut(&Path, &str)) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path: PathBuf = directory.path().join("store");
    let mut random = Random::new(kills());
    let mut children =
        ["kill::child_writes_until_killed", reader].map(|test| (test, spawn(test, &path, name)));
    for kill in 0..kills() {
        sleep(Duration::from_millis(200 + random.below(400)));
        let place = format!("{name}, kill {kill}");
        let (test, child) = &mut children[usize::from(random.one_in(2))];
        check_runs(test, child, &path, &place);
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
        if *test == reader {
            killed(&path, &place);
        }
        *child = spawn(test, &path, name);
    }
    for (test, mut child) in children {
        check_runs(test, &mut child, &path, name);
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
    }
    killed(&path, name);
}

#[test]
fn followers_see_only_moments_whoever_is_killed() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    for name in ["inline", "vlog", "hash-grouped"] {
        kill_either(name, "kill::child_checks_until_killed", |path, place| {
            check(&wait_for(path).store(), place);
        });
    }
}

/// A killed mirror shows a moment of the store that it mirrors, and in the end the two are equal.
#[test]
fn a_mirror_is_equal_after_kills_of_either() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    for name in ["inline", "vlog", "hash-grouped"] {
        let mut ends = (PathBuf::new(), 0);
        kill_either(name, "kill::child_mirrors_until_killed", |path, place| {
            let mut mirror = mirror(path);
            let last = check(mirror.store(), place);
            mirror.advance(Duration::ZERO).unwrap_or_else(|error| panic!("{place}: {error}"));
            let now = check(mirror.store(), place);
            assert!(now >= last && last >= ends.1, "{place}: {} to {last} to {now}", ends.1);
            ends = (path.to_path_buf(), now);
            let follower = wait_for(path);
            if place == name {
                // Nobody writes any more.
                assert_eq!(check(&follower.store(), place), now);
            }
        });
        assert!(ends.1 > 500, "{} writes were seen", ends.1);
    }
}

/// Not a test of its own: a child that follows and does nothing else.
#[test]
fn child_follows_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let _follower = Store::follow(&path, Options::default()).expect("followed");
    std::fs::write(Path::new(&path).with_extension("followed"), "").expect("a file");
    sleep(Duration::from_secs(600));
}

/// The lease of a follower that was killed lapses: the files that it held are removed.
#[test]
fn a_follower_that_is_killed_holds_nothing() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    let store = Store::open(&path, options(ValuePlacement::Inline)).expect("open");
    let write = || {
        (0..4_000u64).for_each(|i| store.put((i % KEYS).to_be_bytes(), value(i)).expect("put"));
        store.compact().expect("compact");
    };
    write();
    let mut child = spawn("kill::child_follows_until_killed", &path, "inline");
    let began = Instant::now();
    while !path.with_extension("followed").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the child follows");
        sleep(Duration::from_millis(5));
    }
    write();
    let held = store.metrics();
    assert_eq!(held.followers, 1);
    assert!(held.follower_held_bytes > 500_000, "{}", held.follower_held_bytes);
    child.kill().expect("SIGKILL");
    child.wait().expect("reaped");
    write();
    store.wait_idle().expect("idle");
    let left = store.metrics();
    assert_eq!((left.followers, left.follower_held_bytes), (0, 0));
    let tables = std::fs::read_dir(&path).expect("a directory").flatten();
    let tables = tables.filter(|file| file.path().extension().is_some_and(|e| e == "table"));
    assert_eq!(tables.count() as u64, left.keyspaces[0].tables, "only those of the tree are there");
}
