//! Keys with many versions. A cursor seeks past the versions that no reader needs, in both
//! directions, and shows the same as it would step by step.

use std::sync::Arc;

use runstone::seeded::{self, Bug};
use runstone::storage::MemoryStorage;
use runstone::{Background, Keyspace, Options, ReadOptions, Snapshot, Store};
use runstone_sim::found::panics;

const KEYS: u64 = 10;
const VERSIONS: u64 = 1_000;

fn key(number: u64) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

/// Writes `VERSIONS` versions of each key, with a flush at the start of each quarter of them.
fn write(store: &Store, stem: &str) {
    let hot = store.default_keyspace();
    for version in 0..VERSIONS {
        (0..KEYS).for_each(|k| hot.put(key(k), format!("{stem}{version}")).expect("puts"));
        if version % (VERSIONS / 4) == 0 {
            store.flush().expect("flushes");
        }
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries in order, seen by a walk in either direction.
fn walk(keyspace: &Keyspace, at: Option<&Snapshot>, is_upward: bool) -> Entries {
    let options = ReadOptions::default();
    let options = at.map_or(options.clone(), |snapshot| options.at(snapshot));
    let mut cursor = keyspace.cursor(options).expect("opens");
    if is_upward { cursor.seek_to_first() } else { cursor.seek_to_last() }.expect("seeks");
    let mut entries = Entries::new();
    while cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        if is_upward { cursor.next() } else { cursor.prev() }.expect("steps");
    }
    if !is_upward {
        entries.reverse();
    }
    entries
}

fn expected(value: &str) -> Entries {
    (0..KEYS).map(|number| (key(number), value.as_bytes().to_vec())).collect()
}

/// Walks over the newest versions, and over those of a snapshot between the old and the new ones.
fn check(is_upward: bool) {
    let options = Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    write(&store, "old");
    let snapshot = store.snapshot();
    write(&store, "new");
    let passed = || store.metrics().counters.hidden_passed;
    for (at, last) in [(None, "new999"), (Some(&snapshot), "old999")] {
        let before = passed();
        assert_eq!(walk(store.default_keyspace(), at, is_upward), expected(last));
        // About ten streams contain versions of each key. Single steps would pass thousands of
        // entries.
        let hidden = passed() - before;
        assert!(hidden < KEYS * 100, "{hidden} hidden entries passed, upward: {is_upward}");
    }
}

#[test]
fn a_walk_seeks_behind_the_versions_of_a_key() {
    check(true);
    check(false);
}

#[test]
fn versions_that_a_snapshot_sees_are_not_skipped() {
    let bug = Bug::VersionsSkippedForAllSnapshots;
    assert!(panics(|| seeded::with(bug, || check(true))), "{bug:?} is not found");
}
