//! The space bound (`max_space_percent`) under every policy, by bytes of tables. Jobs are run one
//! by one by hand, so that all runs of a test are the same. The decisions themselves are tested in
//! the policy crate.

use std::borrow::Cow;
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Compression, KeyspaceOptions, Options, Store};
use runstone_policy::registry::POLICIES;

const KEY_COUNT: u32 = 3_000;
const ROUNDS: u32 = 5;
/// The bound of these tests, and the excess allowed for errors of the estimate.
const BOUND_PERCENT: u32 = 130;
const ERROR_PERCENT: u64 = 15;
/// The number of writes between two checks: as many as fill a memtable.
const STEP: usize = 250;
/// If more jobs than this run in a row without a write, the jobs never end.
const MOST_JOBS: usize = 200;

fn open(policy: &str, max_space_percent: u32) -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.policy = policy.to_owned();
    keyspace.compression = vec![Compression::None];
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 32 << 10;
    shape.base_bytes = 128 << 10;
    shape.split_bytes = 16 << 10;
    shape.size_ratio = 4;
    shape.l0_trigger = 4;
    shape.max_space_percent = max_space_percent;
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(4 << 20)
        .wal_segment_bytes(256 << 10)
        .keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("open")
}

/// Runs the jobs that are due, and returns their number.
fn settle(store: &Store) -> usize {
    let jobs = (0..MOST_JOBS).take_while(|_| store.run_one_job().expect("a job")).count();
    assert!(jobs < MOST_JOBS, "compacting does not end");
    jobs
}

fn table_bytes(store: &Store) -> u64 {
    unstable::shape(store.default_keyspace()).bytes()
}

/// All keys, in a different order in each round.
fn keys(round: u32) -> impl Iterator<Item = u32> {
    (0..KEY_COUNT).map(move |at| (at * 1_009 + round * 577) % KEY_COUNT)
}

/// Writes all keys. Returns the most table bytes that there were when no job was due.
fn overwrite(store: &Store, round: u32) -> u64 {
    let mut most = 0;
    let all: Vec<u32> = keys(round).collect();
    for some in all.chunks(STEP) {
        for key in some {
            store.put(key.to_be_bytes(), [round as u8; 200]).expect("put");
        }
        store.flush().expect("flush");
        settle(store);
        most = most.max(table_bytes(store));
    }
    most
}

/// The size of the tree without any garbage.
fn compacted_bytes(store: &Store) -> u64 {
    store.compact().expect("compact");
    settle(store);
    table_bytes(store)
}

fn percent(bytes: u64, of: u64) -> u64 {
    bytes * 100 / of
}

/// The largest space in percent of the live data, over rounds that write every key.
fn most_percent_of(policy: &str, max_space_percent: u32) -> u64 {
    let store = open(policy, max_space_percent);
    overwrite(&store, 0);
    let most = (1..ROUNDS).map(|round| overwrite(&store, round)).max().expect("rounds");
    percent(most, compacted_bytes(&store))
}

#[test]
fn every_policy_keeps_to_the_bound() {
    let mut above = Vec::new();
    for policy in POLICIES {
        let bounded = most_percent_of(policy.name(), BOUND_PERCENT);
        let free = most_percent_of(policy.name(), 0);
        println!("{}: {bounded}% with the bound, {free}% without", policy.name());
        let allowed = u64::from(BOUND_PERCENT) + ERROR_PERCENT;
        assert!(bounded <= allowed, "{} takes {bounded}%", policy.name());
        above.extend((free > allowed).then_some(policy.name()));
    }
    assert!(above.contains(&"tiering"), "the bound is tried where it matters: {above:?}");
}

/// Deletes are small, and the deleted data are in another run.
#[test]
fn what_was_deleted_does_not_stay() {
    for policy in POLICIES {
        let store = open(policy.name(), BOUND_PERCENT);
        overwrite(&store, 0);
        for key in keys(0).filter(|key| key % 3 != 0) {
            store.delete(key.to_be_bytes()).expect("delete");
        }
        store.flush().expect("flush");
        settle(&store);
        let bytes = table_bytes(&store);
        let found = percent(bytes, compacted_bytes(&store));
        println!("{}: {found}%", policy.name());
        let allowed = u64::from(BOUND_PERCENT) + ERROR_PERCENT;
        assert!(found <= allowed, "{} takes {found}%", policy.name());
    }
}

/// Data that a snapshot holds may look like garbage, but compacting it frees nothing. The
/// compactions end, and once the snapshot is released, the bound is kept again.
#[test]
fn a_snapshot_makes_nothing_compaction_for_ever() {
    for policy in POLICIES {
        let store = open(policy.name(), BOUND_PERCENT);
        overwrite(&store, 0);
        let snapshot = store.snapshot();
        for round in 1..ROUNDS {
            overwrite(&store, round);
        }
        let at = store.default_keyspace().get_at(7u32.to_be_bytes(), &snapshot);
        assert_eq!(&*at.expect("get").expect("there"), &[0; 200]);
        drop(snapshot);
        let most = overwrite(&store, ROUNDS).min(overwrite(&store, ROUNDS + 1));
        let found = percent(most, compacted_bytes(&store));
        let allowed = u64::from(BOUND_PERCENT) + ERROR_PERCENT;
        assert!(found <= allowed, "{} takes {found}%", policy.name());
    }
}

/// Under a snapshot, a full compaction keeps the tombstones and the data that they delete. This
/// must not cause another full compaction at every flush, however small the flush is.
#[test]
fn deletes_under_a_snapshot_do_not_compact_all_at_every_flush() {
    let written = |policy: &str, max_space_percent: u32| {
        let store = open(policy, max_space_percent);
        overwrite(&store, 0);
        let _snapshot = store.snapshot();
        for key in keys(0).filter(|key| key % 2 == 0) {
            store.delete(key.to_be_bytes()).expect("delete");
        }
        store.flush().expect("flush");
        settle(&store);
        let before = store.metrics().counters.compaction_bytes_written;
        for round in 0..20u32 {
            for key in (0..20).map(|at| (round * 20 + at) * 2 + 1) {
                store.put(key.to_be_bytes(), [9; 200]).expect("put");
            }
            store.flush().expect("flush");
            settle(&store);
        }
        (store.metrics().counters.compaction_bytes_written - before, table_bytes(&store))
    };
    for policy in POLICIES {
        let (bounded, tree_bytes) = written(policy.name(), BOUND_PERCENT);
        let (free, _) = written(policy.name(), 0);
        println!("{}: {bounded} written, {free} without; tree {tree_bytes}", policy.name());
        // The twenty flushes write less than it takes to reach the bound again, so there is at most
        // one compaction.
        assert!(bounded <= free + 2 * tree_bytes, "{}", policy.name());
    }
}

/// How far writers are on the way to a stop, in thousandths, and the limit that slows them down.
fn pressure(store: &Store) -> (u32, Cow<'static, str>) {
    let pressure = store.metrics().pressure;
    (pressure.level.parts(), pressure.cause)
}

/// Writers are slowed down, because otherwise compactions would never catch up with fast
/// overwrites.
#[test]
fn writers_are_slowed_down_above_the_bound_until_it_holds_again() {
    let store = open("fragmented-leveling", BOUND_PERCENT);
    overwrite(&store, 0);
    assert_eq!(pressure(&store), (0, "none".into()));
    let write_over = |some: &[u32]| {
        some.iter().for_each(|key| store.put(key.to_be_bytes(), [1; 200]).expect("put"));
        store.flush().expect("flush");
    };
    let all: Vec<u32> = keys(1).collect();
    let (mut last, mut steps) = (0, 0);
    for some in all.chunks(STEP) {
        write_over(some);
        let (permille, cause) = pressure(&store);
        assert!(permille < 1000, "writers never stop for the bound");
        assert!(permille >= last, "more garbage, less pressure");
        steps += u32::from(permille > last);
        assert!(permille == 0 || cause == "tables take more than the space bound", "{cause}");
        last = permille;
    }
    assert!(last > 900 && steps > 2, "{last} in {steps} steps");
    settle(&store);
    assert_eq!(pressure(&store), (0, "none".into()));
    // No writer waits for space that a snapshot holds.
    let _snapshot = store.snapshot();
    write_over(&all);
    settle(&store);
    assert_eq!(pressure(&store), (0, "none".into()));
}
