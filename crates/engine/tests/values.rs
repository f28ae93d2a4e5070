//! Separated values against a model: every placement, with snapshots, deletes, updates between
//! small and large, collection, reopening and a change of placement.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use runstone::storage::MemoryStorage;
use runstone::{
    Background, KeyspaceOptions, Options, Snapshot, Store, ValueOptions, ValuePlacement,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Get(u8),
    Scan,
    Snapshot,
    Release,
    Flush,
    Job,
    Collect,
    Compact,
    Reopen,
    Place(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<u8>(), 0..3000u16).prop_map(|(key, len)| Step::Put(key % 40, len)),
        4 => any::<u8>().prop_map(|key| Step::Delete(key % 40)),
        4 => any::<u8>().prop_map(|key| Step::Get(key % 40)),
        1 => Just(Step::Scan),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Release),
        3 => Just(Step::Flush),
        3 => Just(Step::Job),
        2 => Just(Step::Collect),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => any::<u8>().prop_map(Step::Place),
    ]
}

fn options(placement: ValuePlacement) -> KeyspaceOptions {
    KeyspaceOptions {
        write_buffer_bytes: 64 << 10,
        values: ValueOptions {
            placement,
            separate_at: 200,
            groups: 3,
            slot_bytes: 4096,
            ..ValueOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

fn open(storage: &Arc<MemoryStorage>, placement: Option<ValuePlacement>) -> Store {
    let options = Options {
        background: Background::Manual,
        memory_budget_bytes: 8 << 20,
        keyspace: placement.map(options),
        ..Options::default()
    };
    Store::open_on(Arc::<MemoryStorage>::clone(storage), options).expect("opens")
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(key: u8) -> Vec<u8> {
    format!("key{key:03}").into_bytes()
}

fn value(key: u8, len: u16, turn: usize) -> Vec<u8> {
    let seed = format!("{key}/{turn}/");
    seed.bytes().cycle().take(len.into()).collect()
}

fn check(store: &Store, model: &Model, snapshot: Option<&Snapshot>) {
    let keyspace = store.default_keyspace();
    let mut read = runstone::ReadOptions::default();
    if let Some(snapshot) = snapshot {
        read = read.at(snapshot);
    }
    let mut cursor = keyspace.cursor(read).expect("cursor");
    cursor.seek_to_first().expect("seeks");
    for (key, value) in model {
        assert!(cursor.valid() && cursor.key() == key, "{:?}", key.escape_ascii().to_string());
        assert!(cursor.value() == value);
        cursor.next().expect("steps");
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().expect("seeks");
    for (key, value) in model.iter().rev() {
        assert!(cursor.valid() && cursor.key() == key && cursor.value() == value);
        cursor.prev().expect("steps");
    }
    for (key, value) in model {
        let got = match snapshot {
            Some(snapshot) => keyspace.get_at(key, snapshot),
            None => keyspace.get(key),
        };
        assert_eq!(got.expect("reads").as_deref(), Some(&value[..]));
    }
}

fn placement(number: u8) -> ValuePlacement {
    use ValuePlacement::{HashGrouped, Inline, Vlog};
    [Inline, Vlog, HashGrouped][usize::from(number % 3)]
}

fn run(first: ValuePlacement, steps: &[Step], changes: bool) {
    let storage = Arc::new(MemoryStorage::new());
    let mut store = open(&storage, Some(first));
    let mut model = Model::new();
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    for (turn, step) in steps.iter().enumerate() {
        match step {
            Step::Put(k, len) => {
                let value = value(*k, *len, turn);
                store.put(key(*k), &value).expect("puts");
                model.insert(key(*k), value);
            }
            Step::Delete(k) => {
                store.delete(key(*k)).expect("deletes");
                model.remove(&key(*k));
            }
            Step::Get(k) => {
                let got = store.get(key(*k)).expect("reads");
                assert_eq!(got.as_deref(), model.get(&key(*k)).map(|value| &value[..]));
            }
            Step::Scan => check(&store, &model, None),
            Step::Snapshot => held.push((store.snapshot(), model.clone())),
            Step::Release if !held.is_empty() => drop(held.remove(turn % held.len())),
            Step::Release => {}
            Step::Flush => store.flush().expect("flushes"),
            Step::Job => drop(store.run_one_job().expect("works")),
            Step::Collect => store.collect_values().expect("collects"),
            Step::Compact => store.compact().expect("compacts"),
            Step::Reopen => {
                held.clear();
                store.close().expect("closes");
                store = open(&storage, None);
            }
            Step::Place(number) if changes => {
                let options = options(placement(*number));
                store.open_keyspace("default", Some(options)).expect("changes");
            }
            Step::Place(_) => {}
        }
        for (snapshot, model) in &held {
            if turn % 7 == 0 {
                check(&store, model, Some(snapshot));
            }
        }
    }
    check(&store, &model, None);
    let report = store.verify().expect("verifies");
    assert!(report.is_clean(), "{:?}", report.damage);
    held.clear();
    store.compact().expect("compacts");
    store.collect_values().expect("collects");
    check(&store, &model, None);
    store.close().expect("closes");
    check(&open(&storage, None), &model, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hash_grouped_values_match_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::HashGrouped, &steps, false);
    }

    #[test]
    fn logged_values_match_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::Vlog, &steps, false);
    }

    #[test]
    fn placements_change_under_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::Inline, &steps, true);
    }
}
