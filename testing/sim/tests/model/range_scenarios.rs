//! Scenarios from other stores' tests of range deletes: tombstones and table bounds, snapshots in
//! between, overlaps, the last level. Each scenario runs under every policy, everything is compared
//! with a map after every step, and each scenario finds a bug. `range_deletes` tests the rules one
//! by one.

use std::ops::Range;
use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Error, Keyspace, Options, ReadOptions, SortedWriter, Store};
use runstone_policy::registry::POLICIES;
use runstone_sim::found::holds_and_finds;
use runstone_sim::oracle::{Change, Oracle, Write};
use runstone_sim::random::Random;
use runstone_sim::workload::Operation::{self, CheckSnapshot, Compact, Flush, Reopen, Snapshot};
use runstone_sim::workload::{Run, keyspaces, options_for};

fn key(number: u64) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

fn write(key: impl AsRef<[u8]>, change: Change) -> Write {
    Write { keyspace: 0, key: key.as_ref().to_vec(), change }
}

/// Values that do not compress, so that there are many tables.
fn put(numbers: Range<u64>, turn: u64) -> Vec<Write> {
    let value = |number| {
        let mut random = Random::new(number << 8 | turn);
        (0..100).map(|_| random.draw() as u8).collect()
    };
    numbers.map(|number| write(key(number), Change::Put(value(number)))).collect()
}

fn delete(from: u64, to: u64) -> Vec<Write> {
    vec![write(key(from), Change::DeleteRange(Some(key(to))))]
}

/// A store beside a map.
struct Scene {
    storage: MemoryStorage,
    options: Options,
    run: Run,
}

fn open(storage: &MemoryStorage, options: &Options) -> Result<Store, Error> {
    let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

impl Scene {
    fn new(options: Options) -> Scene {
        let storage = MemoryStorage::new();
        let run = Run::new(open(&storage, &options).expect("fresh"), Oracle::default());
        Scene { storage, options, run }
    }

    /// Applies operations, and compares everything after each.
    fn go(&mut self, operations: impl IntoIterator<Item = Operation>) {
        for operation in operations {
            for step in [operation, Operation::Scan] {
                let reopen = || open(&self.storage, &self.options);
                self.run.apply(&step, reopen).expect("no faults");
            }
        }
    }

    fn write(&mut self, writes: Vec<Write>) {
        self.go([Operation::Write { writes, sync: false }]);
    }

    fn keyspace(&self) -> &Keyspace {
        self.run.store.as_ref().expect("open").default_keyspace()
    }

    fn writes_back(&self) -> bool {
        self.keyspace().options().values.writes_back()
    }

    /// The first and the last key of each table.
    fn bounds(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let shape = unstable::shape(self.keyspace());
        shape.tables().map(|(_, table)| (table.min_key.to_vec(), table.max_key.to_vec())).collect()
    }
}

/// Runs a scenario under every policy, without a bug and with one.
fn scenario(bug: Bug, tell: impl Fn(&mut Scene)) {
    holds_and_finds(bug, || {
        for policy in POLICIES {
            for seed in 0..4 {
                let mut scene = Scene::new(options_for(policy.name(), seed, Background::Manual));
                tell(&mut scene);
                scene.go([Flush, CheckSnapshot, Compact, Reopen]);
            }
        }
    });
}

/// The tables with the ends of a range are compacted before those in its middle.
#[test]
fn a_range_over_many_tables() {
    scenario(Bug::RangeTombstonesDroppedEarly, |scene| {
        scene.write(put(0..900, 1));
        scene.go([Flush, Compact]);
        scene.write(delete(150, 750));
        for end in [150, 749] {
            scene.write(put(end..end + 1, 2));
            scene.go([Flush]);
            scene.keyspace().compact_range(key(end)..=key(end)).expect("compacts");
            scene.go([Operation::RunOneJob]);
        }
    });
}

#[test]
fn snapshots_between_ranges() {
    scenario(Bug::RangeDeletesForAllSnapshots, |scene| {
        scene.write(put(0..60, 1));
        scene.go([Snapshot]);
        scene.write(delete(10, 50));
        scene.go([Snapshot]);
        scene.write(put(20..30, 2));
        scene.go([Snapshot]);
        scene.write(delete(0, 25));
        scene.go([Flush, Compact, CheckSnapshot, Compact, CheckSnapshot, Compact]);
    });
}

/// Ranges that begin or end at a bound of a table include that key, or exclude it.
#[test]
fn ranges_that_end_with_a_table() {
    scenario(Bug::CoveredBlocksCopied, |scene| {
        scene.write(put(0..300, 1));
        scene.go([Flush, Compact]);
        for (at, (first, last)) in scene.bounds().into_iter().enumerate() {
            let behind = [&last[..], &[0]].concat();
            let (from, to) = [(first.clone(), last.clone()), (last, behind)][at % 2].clone();
            scene.write(vec![write(from, Change::DeleteRange(Some(to)))]);
            scene.go([Flush]);
        }
    });
}

/// Ranges that overlap are in runs of their own, with puts between them.
#[test]
fn ranges_that_overlap() {
    scenario(Bug::RangeTombstonesHideThemselves, |scene| {
        scene.write(put(0..100, 1));
        scene.go([Flush, Compact]);
        for (turn, from, to) in [(2, 10, 60), (3, 40, 90), (4, 20, 30), (5, 30, 80), (6, 0, 15)] {
            scene.write(delete(from, to));
            scene.write(put(from + 5..from + 8, turn));
            scene.go([Flush, Operation::RunOneJob]);
        }
    });
}

/// An ingested file is above an older range delete and below a newer one.
#[test]
fn a_file_between_ranges() {
    scenario(Bug::RangeDeletesHideNewer, |scene| {
        if scene.writes_back() {
            // A keyspace that writes pointers back refuses a file over existing keys.
            return;
        }
        scene.write(put(0..100, 1));
        scene.go([Flush]);
        scene.write(delete(20, 80));
        let (storage, entries) = (MemoryStorage::new(), put(10..90, 2));
        let shared = Arc::new(storage.clone());
        let mut file = SortedWriter::create_on(shared, "file", &Default::default()).expect("makes");
        for Write { key, change, .. } in &entries {
            let Change::Put(value) = change else { continue };
            file.put(key, value).expect("ascends");
        }
        file.finish().expect("finishes");
        scene.keyspace().ingest_from(&storage, &["file"]).expect("ingests");
        scene.run.oracle.attempt(&entries);
        scene.run.oracle.acknowledge();
        scene.go([Snapshot]);
        scene.write(delete(40, 60));
        scene.go([Flush, Compact]);
    });
}

/// A cursor reaches a hidden range from both sides, and turns around inside it and at its ends.
#[test]
fn a_cursor_that_turns_around() {
    scenario(Bug::RangeDeletesHideNewer, |scene| {
        scene.write(put(0..100, 1));
        scene.go([Flush]);
        scene.write(delete(20, 80));
        scene.write(put(50..51, 2));
        for _ in 0..2 {
            let mut cursor = scene.keyspace().cursor(ReadOptions::default()).expect("opens");
            cursor.seek(key(30)).expect("seeks");
            assert_eq!(cursor.key(), key(50));
            cursor.next().expect("steps");
            assert_eq!(cursor.key(), key(80));
            cursor.prev().expect("steps");
            cursor.prev().expect("steps");
            assert_eq!(cursor.key(), key(19));
            cursor.next().expect("steps");
            assert_eq!(cursor.key(), key(50));
            drop(cursor);
            scene.go([Flush, Operation::RunOneJob]);
        }
    });
}

/// Hidden entries in the last level are dropped when no snapshot sees them, and the tombstone with
/// them.
#[test]
fn nothing_is_left_in_the_last_level() {
    scenario(Bug::CoveredTablesDroppedUnderSnapshots, |scene| {
        scene.write(put(0..300, 1));
        scene.go([Flush, Compact, Snapshot]);
        scene.write(delete(0, 300));
        scene.go([Flush, Operation::RunOneJob, CheckSnapshot, Compact]);
        let shape = unstable::shape(scene.keyspace());
        // Groups whose pointers are written back need every range delete.
        assert!(shape.tables().count() == 0 || scene.writes_back(), "{shape:?}");
    });
}

/// In one batch, ranges overlap, and two are the same.
#[test]
fn ranges_of_one_batch() {
    scenario(Bug::RangeDeletesHideNewer, |scene| {
        scene.write(put(0..20, 1));
        let between = [delete(5, 15), put(8..12, 2), delete(10, 18), delete(10, 18)].concat();
        scene.write([put(3..7, 3), between, put(11..12, 4)].concat());
        scene.go([Flush, Compact]);
    });
}

/// Operands above and below a range delete: those above it have no base.
#[test]
fn operands_around_a_range() {
    let merge = |number, operand: &str| vec![write(key(number), Change::Merge(operand.into()))];
    scenario(Bug::OperandsFoldedAcrossSnapshots, |scene| {
        scene.write(put(0..10, 1));
        scene.write(merge(5, "before"));
        scene.go([Snapshot]);
        scene.write(merge(5, "and after"));
        scene.write(delete(3, 8));
        scene.write([merge(5, "1"), merge(6, "1"), merge(9, "1")].concat());
        scene.go([Snapshot]);
        scene.write([merge(5, "2"), merge(5, "3")].concat());
        scene.go([Flush, Compact, CheckSnapshot, Compact]);
    });
}

/// A tombstone that a snapshot keeps sinks below later writes.
#[test]
fn a_range_below_newer_puts() {
    scenario(Bug::RangeDeletesHideNewer, |scene| {
        scene.write(put(0..100, 1));
        scene.go([Snapshot]);
        scene.write(delete(0, 100));
        scene.go([Flush, Compact]);
        scene.write(put(20..40, 2));
        scene.go([Flush, Operation::RunOneJob, Compact, CheckSnapshot, Compact]);
    });
}

/// Range deletes that are only in the log come back with it, in their order among puts.
#[test]
fn ranges_come_back_with_the_log() {
    scenario(Bug::RangeDeletesHideNewer, |scene| {
        scene.write(put(0..50, 1));
        scene.go([Flush]);
        scene.write(delete(10, 40));
        scene.write(put(20..25, 2));
        scene.go([Reopen]);
        scene.write(delete(0, 22));
        scene.go([Reopen]);
    });
}

/// Ranges without an end, and from the empty key on.
#[test]
fn ranges_without_bounds() {
    scenario(Bug::RangeTombstonesShadowed, |scene| {
        let ends = ["", "\u{0}", "zzz"].map(|key| write(key, Change::Put(vec![1; 100])));
        scene.write([put(0..40, 1), ends.to_vec()].concat());
        scene.go([Flush, Snapshot]);
        scene.write(vec![write(key(30), Change::DeleteRange(None))]);
        scene.write(put(30..33, 2));
        scene.go([Flush]);
        scene.write(vec![write("", Change::DeleteRange(Some(key(10))))]);
        scene.write(vec![write("", Change::Put(vec![3; 100]))]);
        scene.go([Flush, Compact]);
    });
}
