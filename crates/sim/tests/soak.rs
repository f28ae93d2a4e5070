//! A few seconds of what `--bin soak` does for as long as one likes: random work in a child that is
//! killed, compared after each kill, in each placement and with changes between them.

use std::process::Command;

fn soak(placement: &str) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let outcome = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["--seconds", "6", "--keys", "500", "--placement", placement, "--directory"])
        .arg(directory.path().join("store"))
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&outcome.stdout);
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{placement}: {said}{errors}");
}

#[test]
fn hash_groups() {
    soak("hash-grouped");
}

#[test]
fn groups_whose_pointers_are_written_back() {
    soak("written-back");
}

#[test]
fn a_log() {
    soak("vlog");
}

#[test]
fn placements_that_change() {
    soak("changing");
}
