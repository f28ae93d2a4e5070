//! A few seconds of the work that `--bin soak` does for as long as one likes: random work in a
//! child that is killed, and a comparison after each kill. It runs in each placement, and with
//! changes of placements and of compaction policies between kills.

use std::process::{Command, Stdio};

fn soak(placement: &str, policy: &str) {
    soak_with(placement, policy, &[]);
}

fn soak_with(placement: &str, policy: &str, more: &[&str]) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let alone = super::alone();
    let child = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["--seconds", "6", "--keys", "500", "--placement", placement])
        .args(["--policy", policy])
        .args(more)
        .arg("--directory")
        .arg(directory.path().join("store"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(alone);
    let outcome = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&outcome.stdout);
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{placement}, {policy}: {said}{errors}");
}

#[test]
fn hash_groups() {
    soak("hash-grouped", "fragmented-leveling");
}

#[test]
fn groups_whose_pointers_are_written_back() {
    soak("written-back", "fragmented-leveling");
}

#[test]
fn a_log() {
    soak("vlog", "fragmented-leveling");
}

#[test]
fn placements_that_change() {
    soak("changing", "fragmented-leveling");
}

#[test]
fn trees_and_placements_that_change() {
    soak("changing", "changing");
}

#[test]
fn many_keyspaces_and_large_values() {
    soak_with("inline", "changing", &["--keyspaces", "40", "--large-bytes", "4000000"]);
}
