//! `kill -9` of a process that writes, twenty times: every write that it acknowledged over a pipe
//! exists after the reopen. The test runs its own executable as the child.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use runstone::unstable;
use runstone::{KeyspaceOptions, Options, Store};
use runstone_sim::random::Random;

const CHILD: &str = "RUNSTONE_KILL_TEST_STORE";
const START: &str = "RUNSTONE_KILL_TEST_START";

fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(256 << 10);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 128 << 10;
    shape.base_bytes = 512 << 10;
    Options::default().memory_budget_bytes(8 << 20).wal_segment_bytes(256 << 10).keyspace(keyspace)
}

fn key(i: u64) -> String {
    format!("{:010}", i.wrapping_mul(2_654_435_761) % 10_000_000_000)
}

fn value(i: u64) -> Vec<u8> {
    let mut random = Random::new(i);
    (0..20 + i % 300).map(|_| random.draw() as u8).collect()
}

/// Not a test of its own: the child's work when the environment names a store.
#[test]
fn child_writes_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let start: u64 = std::env::var(START).expect("set").parse().expect("a number");
    let store = Store::open(&path, options()).expect("open");
    let mut out = std::io::stdout().lock();
    for i in start.. {
        store.put(key(i), value(i)).expect("put");
        if i % 16 == 15 {
            writeln!(out, "acknowledged {i}").expect("pipe");
        }
    }
}

fn run_and_kill(path: &Path, start: u64, lines: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["kill::child_writes_until_killed", "--exact", "--nocapture"])
        .env(CHILD, path)
        .env(START, start.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut acknowledged = start;
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("utf-8");
        if let Some((_, number)) = line.split_once("acknowledged ") {
            acknowledged = number.parse::<u64>().expect("a number") + 1;
            seen += 1;
        }
        if seen == lines {
            child.kill().expect("SIGKILL");
        }
    }
    child.wait().expect("reaped");
    assert!(seen >= lines, "the child died by itself after {seen} lines");
    acknowledged
}

#[test]
fn twenty_kills_lose_nothing_that_was_acknowledged() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let _alone = super::alone();
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    let mut random = Random::new(20);
    let mut next = 0;
    for kill in 0..20 {
        next = run_and_kill(&path, next, 1 + random.below(400));
        let store = Store::open(&path, options()).unwrap_or_else(|e| panic!("kill {kill}: {e}"));
        for i in 0..next {
            let found = store.get(key(i)).expect("get");
            assert_eq!(found.as_deref(), Some(&value(i)[..]), "kill {kill}: write {i} of {next}");
        }
        let report = store.verify().expect("verify");
        assert!(report.is_clean(), "kill {kill}: {:?}", report.damage);
        store.close().expect("close");
    }
    assert!(next > 10_000, "{next} writes");
}
