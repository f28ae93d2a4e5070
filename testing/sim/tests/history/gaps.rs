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

/// Another store that applies what it is told.
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

    /// Takes up everything that there is. `stops_at` may end it in the middle.
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

/// Runs a workload beside a consumer that is away for long. Returns its gaps. It may then have
/// extra keys, whose deletes a compaction dropped.
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
        // An operand that comes later would apply to a value whose delete was dropped.
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

/// Deletes, range deletes, operands and a load lie only in tables.
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
