//! A consumer that was away longer than the log is kept continues with the state instead of the
//! changes that it missed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use runstone::{
    Background, Batch, Change, Changes, ChangesFrom, Error, Expiry, KeyspaceOptions, Kind, OnGap,
    Options, Position, Store, ValuePlacement, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::{Oracle, State};
use runstone_sim::random::{Random, seeds};
use runstone_sim::workload::{
    Operation, Run, cooled, early, generate, options, placed, read_all, without_operands,
    written_back,
};

use super::attacks::load;
use super::open;

/// Another store that applies the changes it receives.
struct Consumer {
    store: Store,
    options: Options,
    /// Names of keyspaces by their ids in the other store.
    names: BTreeMap<u32, String>,
    position: Position,
    /// Gaps that were reported to it.
    gaps: u64,
}

impl Consumer {
    fn new(options: &Options, source: &SimStorage) -> Consumer {
        let store = open(&SimStorage::new(1), options).expect("no faults");
        let changes = Changes::open_on(Arc::new(source.clone()), ChangesFrom::Now);
        let changes = changes.expect("it has a log");
        let names = changes.keyspaces().into_iter().map(|one| (one.id, one.name)).collect();
        let position = changes.position();
        Consumer { store, options: options.clone(), names, position, gaps: 0 }
    }

    /// A consumer that has nothing yet.
    fn empty(options: &Options) -> Consumer {
        let store = open(&SimStorage::new(1), options).expect("no faults");
        let (names, position) = (BTreeMap::new(), Position::START);
        Consumer { store, options: options.clone(), names, position, gaps: 0 }
    }

    /// Applies everything that there is. `stops` may end it in the middle.
    fn advance(&mut self, source: &SimStorage, mut stops: impl FnMut() -> bool) {
        let state = OnGap::State(Box::new(self.options.clone()));
        let changes = Changes::resume_on(Arc::new(source.clone()), self.position, state);
        let mut changes = changes.expect("the log or the state is there");
        changes.keyspaces().into_iter().for_each(|one| drop(self.names.insert(one.id, one.name)));
        while let Some(changed) = changes.next().expect("no faults") {
            match changed.change {
                Change::Writes(batch) | Change::State(batch) => self.apply(&batch),
                Change::Gap(gap) => {
                    assert!(gap.through >= gap.after && gap.after == self.position.seq());
                    self.gaps += 1;
                    if gap.after == 0 {
                        self.forget();
                    }
                }
                Change::Loaded(load) => load
                    .read(|batch| {
                        self.apply(batch);
                        Ok(())
                    })
                    .expect("no faults"),
                _ => {}
            }
            self.position = changed.position;
            if stops() {
                return;
            }
        }
    }

    fn forget(&self) {
        for name in self.store.keyspaces() {
            self.store.keyspace(&name).and_then(|one| one.clear()).expect("no faults");
        }
    }

    fn apply(&self, batch: &Batch) {
        let mut own = Batch::new();
        for one in batch.operations() {
            let keyspace = self.store.keyspace(&self.names[&one.keyspace]).expect("it is there");
            let added = match one.kind {
                Kind::Put => own.put(&keyspace, one.key, one.value),
                Kind::ExpiringPut => {
                    let at_ms = one.expires_ms().expect("it says when");
                    let at = UNIX_EPOCH + std::time::Duration::from_millis(at_ms);
                    own.put_with_expiry(&keyspace, one.key, one.plain_value(), Expiry::At(at))
                }
                Kind::Delete => own.delete(&keyspace, one.key),
                Kind::Merge => own.merge(&keyspace, one.key, one.value),
                Kind::RangeDelete if one.value.is_empty() => own.delete_range(&keyspace, one.key..),
                Kind::RangeDelete => own.delete_range(&keyspace, one.key..one.value),
                other => panic!("{other:?} is handed out"),
            };
            added.expect("it fits");
        }
        self.store.write(&own, WriteOptions::default()).expect("no faults");
    }

    fn state(&self) -> State {
        read_all(&self.store, None).expect("no faults")
    }
}

/// Runs a workload beside a consumer that is away for long. Returns the number of its gaps. After a
/// gap it may have extra keys, whose deletes a compaction dropped.
fn check(options: &Options, operations: &[Operation]) -> u64 {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut random = Random::new(seed ^ 0x6761_7073);
    let storage = SimStorage::new(seed);
    let store = open(&storage, options).expect("no faults");
    let mut run = Run::new(store, Oracle::default()).with(options);
    let mut consumer = Consumer::new(options, &storage);
    for operation in operations {
        let disk = storage.clone();
        run.apply(operation, || open(&disk, options)).expect("no faults");
        if random.one_in(40) {
            // Some consumers are interrupted, and begin again where they were.
            consumer.advance(&storage, || random.one_in(20));
        }
    }
    consumer.advance(&storage, || false);
    let (found, wanted) = (consumer.state(), run.oracle.state());
    for (key, value) in wanted {
        assert_eq!(found.get(key), Some(value), "seed {seed}: {key:?}");
    }
    let extra = found.keys().filter(|key| !wanted.contains_key(*key)).count();
    assert!(consumer.gaps > 0 || extra == 0, "seed {seed}: {extra} without a gap");
    consumer.gaps
}

#[test]
fn a_consumer_that_was_away_has_every_value() {
    let mut gaps = 0;
    for seed in seeds(24) {
        let own = options(seed, Background::Manual);
        // A later operand would apply to a value whose delete was dropped.
        let operations = without_operands(generate(seed, 400));
        gaps += match seed % 6 {
            0 => check(&placed(own, ValuePlacement::HashGrouped), &operations),
            1 => check(&early(own), &operations),
            2 => check(&cooled(own), &operations),
            3 => check(&written_back(own), &operations),
            _ => check(&own, &operations),
        };
    }
    assert!(gaps > 24, "{gaps} gaps");
}

/// Deletes, range deletes, operands and a load are only in tables.
#[test]
fn the_state_has_deletes_that_tables_hold_and_loads() {
    let adding = KeyspaceOptions::default().merge_operator("add-i64");
    let options = Options::default().background(Background::Manual).keyspace(adding);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    let add = |store: &Store, n: i64| {
        store.default_keyspace().merge("count", n.to_le_bytes()).expect("no faults");
    };
    add(&store, 1);
    for n in 0..100 {
        store.put(format!("{n:03}"), "old").expect("no faults");
    }
    store.flush().expect("no faults");
    let mut consumer = Consumer::new(&options, &source);
    let copied = store.default_keyspace();
    for n in 0..100 {
        consumer.store.put(format!("{n:03}"), "old").expect("no faults");
    }
    add(&consumer.store, 1);
    add(&store, 10);
    store.delete("007").expect("no faults");
    copied.delete_range("020".."030").expect("no faults");
    copied.delete_range((Bound::Included("090"), Bound::Unbounded)).expect("no faults");
    store.put("025", "new").expect("no faults");
    store.flush().expect("no faults");
    store.close().expect("no faults");
    let store = open(&source, &options).expect("no faults");
    add(&store, 100);
    load(&store, "default", &[("200".into(), Some("loaded".into())), ("201".into(), None)]);
    consumer.advance(&source, || false);
    add(&store, 1000);
    consumer.advance(&source, || false);
    assert_eq!(consumer.gaps, 1);
    assert_eq!(consumer.state(), read_all(&store, None).expect("no faults"));
}

/// Once, a new consumer could begin only with the oldest change of the log. A flush had removed
/// earlier changes, so the consumer lacked most of the store, and no error said so.
#[test]
fn a_consumer_that_begins_with_everything_equals_the_store() {
    for seed in seeds(12) {
        let own = options(seed, Background::Manual).keep_log_bytes(1 << 30);
        let options = match seed % 4 {
            0 => placed(own, ValuePlacement::HashGrouped),
            1 => cooled(own),
            2 => written_back(own),
            _ => own,
        };
        WorkloadClock::restart();
        let mut random = Random::new(seed ^ 0x0061_6c6c);
        let storage = SimStorage::new(seed);
        let store = open(&storage, &options).expect("no faults");
        let mut run = Run::new(store, Oracle::default()).with(&options);
        let mut consumers: Vec<Consumer> = Vec::new();
        for operation in generate(seed, 300) {
            let disk = storage.clone();
            run.apply(&operation, || open(&disk, &options)).expect("no faults");
            if random.one_in(60) {
                consumers.push(Consumer::empty(&options));
            }
            for consumer in &mut consumers {
                if random.one_in(20) {
                    consumer.advance(&storage, || random.one_in(10));
                }
            }
        }
        for mut consumer in consumers {
            consumer.advance(&storage, || false);
            assert_eq!(consumer.state(), *run.oracle.state(), "seed {seed}");
        }
    }
}

/// A reader that begins with everything gets neither deletes nor the entries that they hid, and
/// continues with the log.
#[test]
fn everything_is_each_key_with_its_value_and_then_the_log() {
    let adding = KeyspaceOptions::default().merge_operator("add-i64");
    let options = Options::default().background(Background::Manual).keyspace(adding);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    let own = store.default_keyspace();
    let other = store.keyspace("other").expect("it is there");
    for n in 0..100 {
        store.put(format!("{n:03}"), vec![7; 2000]).expect("no faults");
    }
    own.merge("count", 1i64.to_le_bytes()).expect("no faults");
    load(&store, "other", &[("200".into(), Some("loaded".into())), ("201".into(), None)]);
    store.compact().expect("no faults");
    own.merge("count", 2i64.to_le_bytes()).expect("no faults");
    store.delete("007").expect("no faults");
    own.delete_range("020".."090").expect("no faults");
    other.put("202", "flushed").expect("no faults");
    // The close removes the log.
    store.close().expect("no faults");
    let store = open(&source, &options).expect("no faults");
    let own = store.default_keyspace();
    let other = store.keyspace("other").expect("it is there");
    other.put("203", "in a memtable").expect("no faults");

    let all: Arc<SimStorage> = Arc::new(source.clone());
    let state = OnGap::State(Box::new(options.clone()));
    let from_log = Changes::open_on(all.clone(), ChangesFrom::Oldest).expect("it has a log");
    assert!(from_log.position().seq() > 0, "the log reaches back to the first write");
    for from in [ChangesFrom::Everything, ChangesFrom::After(Position::START)] {
        let mut changes = Changes::resume_on(all.clone(), from, state.clone()).expect("a store");
        let (mut keys, mut is_over) = (Vec::new(), false);
        store.put("later", "beside the reader").expect("no faults");
        while let Some(changed) = changes.next().expect("no faults") {
            match changed.change {
                Change::State(batch) => {
                    assert!(batch.operations().all(|one| one.kind == Kind::Put));
                    keys.extend(batch.operations().map(|one| one.key.to_vec()));
                }
                Change::GapEnd => is_over = true,
                Change::Writes(batch) => {
                    assert_eq!(batch.operations().next().expect("one").key, b"later");
                    keys.push(b"later".to_vec());
                }
                _ => {}
            }
            assert_eq!(changed.position == Position::START, !is_over);
        }
        let count = keys.iter().filter(|key| **key != b"later").count();
        // 100 without 007 and 020 to 089, the count, and three of the other keyspace.
        assert_eq!((count, keys.last()), (33, Some(&b"later".to_vec())));
        store.delete("later").expect("no faults");
        store.flush().expect("no faults");
    }
    let mut consumer = Consumer::empty(&options);
    consumer.advance(&source, || false);
    own.merge("count", 10i64.to_le_bytes()).expect("no faults");
    store.delete("000").expect("no faults");
    load(&store, "default", &[("300".into(), Some("loaded".into()))]);
    consumer.advance(&source, || false);
    assert_eq!(consumer.gaps, 1);
    assert_eq!(consumer.state(), read_all(&store, None).expect("no faults"));
}

/// A consumer that does not accept gaps gets an error.
#[test]
fn a_gap_is_an_error_for_others() {
    let options = Options::default().background(Background::Manual);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    store.put("first", "1").expect("no faults");
    let consumer = Consumer::new(&options, &source);
    store.put("second", "2").expect("no faults");
    store.close().expect("no faults");
    let own: Arc<SimStorage> = Arc::new(source.clone());
    let fails = Changes::resume_on(own, consumer.position, OnGap::Fail);
    let next = fails.and_then(|mut changes| changes.next().map(drop));
    assert!(matches!(next, Err(Error::HistoryGone { .. })), "{next:?}");
}

/// Segments that wait to be used again still have their records. Once, a reader began with the
/// oldest of them, and failed at the first segment after it that was removed.
#[test]
fn the_log_goes_on_from_its_oldest_change() {
    let options = Options::default().background(Background::Manual).wal_segment_bytes(64 << 10);
    let source = SimStorage::new(1);
    let store = open(&source, &options).expect("no faults");
    for round in 0..6u8 {
        (0..100u8).for_each(|key| store.put([round, key], vec![7; 2000]).expect("no faults"));
    }
    store.flush().expect("no faults");
    store.put("last", "").expect("no faults");
    let mut changes = store.changes(ChangesFrom::Oldest).expect("it has a log");
    let mut last = None;
    while let Some(changed) = changes.next().expect("it goes on") {
        last = Some(changed.position.seq());
    }
    assert_eq!(last, Some(601));
}
