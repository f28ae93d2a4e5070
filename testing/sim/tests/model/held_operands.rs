//! How many operands of a key flushes and compactions hold in memory, and what they leave of chains
//! that are too long to hold.

use std::sync::{Arc, Mutex};

use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Event, EventListener, KeyspaceOptions, MergeOperator, Options, ReadOptions,
    Snapshot, Store, ValuePlacement,
};
use runstone_sim::random::Random;

/// Appends. No operand can replace two.
#[derive(Debug)]
struct Glue;

impl MergeOperator for Glue {
    fn name(&self) -> &str {
        "glue"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        Ok([&[base.unwrap_or_default()], operands].concat().concat())
    }
}

/// What events report of operands that passed unfolded: how often, the first key, operands, bytes,
/// and the limit.
type Told = (u64, Vec<u8>, u64, u64, u64);

/// Notes the operands that passed unfolded.
#[derive(Debug, Default)]
struct Passed(Mutex<Vec<Told>>);

impl EventListener for Passed {
    fn on_event(&self, event: &Event) {
        if let Event::OperandsPassed { keyspace, times, key, operands, bytes, limit_bytes } = event
        {
            assert_eq!(keyspace, "default");
            let told = (*times, key.clone(), *operands, *bytes, *limit_bytes);
            self.0.lock().expect("sound").push(told);
        }
    }
}

impl Passed {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().expect("sound"))
    }
}

fn entries(store: &Store) -> u64 {
    unstable::shape(store.default_keyspace()).tables().map(|(_, table)| table.entries).sum()
}

/// Options with this much memory. A chain may take an eighth of it.
fn limited(operator: &str, budget_bytes: u64, passed: &Arc<Passed>) -> Options {
    let mut keyspace = KeyspaceOptions::default().merge_operator(operator);
    keyspace.write_buffer_bytes = 256 << 10;
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(budget_bytes)
        .keyspace(keyspace)
        .listener(Arc::clone(passed) as Arc<dyn EventListener>)
}

fn open(storage: &MemoryStorage, options: &Options) -> Store {
    Store::open_on(Arc::new(storage.clone()) as Arc<dyn Storage>, options.clone()).expect("opens")
}

/// Once, a compaction held all operands of a key in memory, however many there were. Now operands
/// beyond an eighth of the memory budget stay as they are, an event reports it, and a compaction
/// with more memory folds them.
#[test]
fn a_chain_beyond_the_memory_passes_unfolded() {
    let (storage, passed) = (MemoryStorage::new(), Arc::new(Passed::default()));
    let small = limited("json-merge-patch", 1 << 20, &passed);
    let store = open(&storage, &small);
    let keyspace = store.default_keyspace();
    keyspace.put("long", r#"{"base":1}"#).expect("puts");
    keyspace.put("short", r#"{"base":1}"#).expect("puts");
    store.compact().expect("compacts");
    let operand = |number: u32| format!(r#"{{"n":{number},"pad":"{}"}}"#, "x".repeat(1000));
    let mut bytes = 0;
    for number in 0..400 {
        keyspace.merge("long", operand(number)).expect("merges");
        bytes += operand(number).len() as u64;
        if number % 100 == 99 {
            keyspace.merge("short", operand(number)).expect("merges");
            store.flush().expect("flushes");
            assert_eq!(passed.take(), [], "a part is within the limit");
        }
    }
    let value = format!(r#"{{"base":1,"n":399,"pad":"{}"}}"#, "x".repeat(1000));
    let reads_right = |store: &Store| {
        let snapshot = store.snapshot();
        for key in ["long", "short"] {
            let found = store.default_keyspace().get_at(key, &snapshot).expect("reads");
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
        assert!(store.verify().expect("verifies").is_clean());
    };
    for _ in 0..2 {
        store.compact().expect("compacts");
        reads_right(&store);
        store.put("other", "[]").expect("puts");
    }
    assert_eq!(entries(&store), 403, "the chain with its base, and the folded one");
    let told = (1, b"long".to_vec(), 400, bytes, 128 << 10);
    assert_eq!(passed.take()[0], told);
    assert!(store.metrics().counters.operands_passed >= 400);
    assert_eq!(store.metrics().counters.operands_folded, 4);
    store.close().expect("closes");
    let store = open(&storage, &limited("json-merge-patch", 64 << 20, &passed));
    passed.take();
    store.put("more", "[]").expect("puts");
    store.compact().expect("compacts");
    reads_right(&store);
    assert_eq!((passed.take(), entries(&store)), (vec![], 4));
}

/// Operands that one operand can replace never fill the memory.
#[test]
fn counts_are_folded_in_pieces() {
    let (storage, passed) = (MemoryStorage::new(), Arc::new(Passed::default()));
    let store = open(&storage, &limited("add-i64", 1 << 20, &passed));
    let keyspace = store.default_keyspace();
    for _ in 0..10_000 {
        keyspace.merge("k", 1_i64.to_le_bytes()).expect("merges");
        if store.metrics().memory.memtable_bytes > 200 << 10 {
            store.flush().expect("flushes");
        }
    }
    store.flush().expect("flushes");
    store.compact().expect("compacts");
    assert_eq!(keyspace.get("k").expect("reads").as_deref(), Some(&10_000_i64.to_le_bytes()[..]));
    assert_eq!((passed.take(), entries(&store)), (vec![], 1));
    assert_eq!(store.metrics().counters.operands_folded, 10_000);
}

/// A store that folds operands shows the same as a store that may not fold them, now and at every
/// snapshot, whatever else happened to the keys, with inline and with separated values.
#[test]
fn what_passes_unfolded_reads_the_same() {
    let mut passed_in_all = 0;
    for seed in 0..24 {
        let passed = Arc::new(Passed::default());
        let stores = [1 << 20, 256 << 20].map(|budget| {
            let operator = if seed % 4 < 2 { "append(,)" } else { "glue" };
            let mut options = limited(operator, budget, &passed);
            options.merge_operators = vec![Arc::new(Glue)];
            let keyspace = options.keyspace.as_mut().expect("given");
            if seed % 2 == 1 {
                keyspace.values.placement = ValuePlacement::HashGrouped;
                keyspace.values.separate_at = 2_000;
            }
            keyspace.policy = ["leveling", "guards", "adaptive-tiering"][seed % 3].into();
            open(&MemoryStorage::new(), &options)
        });
        let mut random = Random::new(seed as u64);
        let mut snapshots: Vec<[Snapshot; 2]> = Vec::new();
        for _ in 0..1_000 {
            let (draw, key) = (random.below(250), format!("k{}", random.below(2)));
            let operand = vec![b'a' + random.below(26) as u8; random.below(4_000) as usize];
            for store in &stores {
                let keyspace = store.default_keyspace();
                match draw {
                    0 => keyspace.put(&key, &operand).expect("puts"),
                    1 => keyspace.delete(&key).expect("deletes"),
                    2 => keyspace.delete_range("k0".."k1").expect("deletes"),
                    3..8 => store.flush().expect("flushes"),
                    8 => store.wait_idle().expect("idle"),
                    9 => store.compact().expect("compacts"),
                    10 | 11 => {}
                    _ => {
                        keyspace.merge(&key, &operand).expect("merges");
                        if store.metrics().memory.memtable_bytes > 200 << 10 {
                            store.flush().expect("flushes");
                        }
                    }
                }
            }
            match draw {
                10 => snapshots.push([stores[0].snapshot(), stores[1].snapshot()]),
                11 if snapshots.len() > 2 => _ = snapshots.remove(0),
                8 | 9 => assert_same(&stores, &snapshots, seed),
                _ => {}
            }
        }
        assert_same(&stores, &snapshots, seed);
        passed_in_all += stores[0].metrics().counters.operands_passed;
        assert_eq!(stores[1].metrics().counters.operands_passed, 0);
    }
    assert!(passed_in_all > 1_000, "{passed_in_all}");
}

fn assert_same(stores: &[Store; 2], snapshots: &[[Snapshot; 2]], seed: usize) {
    let now = [stores[0].snapshot(), stores[1].snapshot()];
    for pair in snapshots.iter().chain([&now]) {
        let all = [0, 1].map(|at| {
            let options = ReadOptions::default().at(&pair[at]);
            let scan = stores[at].default_keyspace().scan(options).expect("opens");
            scan.map(|entry| entry.expect("reads")).collect::<Vec<_>>()
        });
        let [one, other] = &all;
        assert_eq!(one.len(), other.len(), "seed {seed}");
        assert!(one == other, "seed {seed}");
        for (key, value) in one {
            let found = stores[0].default_keyspace().get_at(key, &pair[0]).expect("reads");
            assert!(found.as_ref() == Some(value), "seed {seed}");
        }
    }
}
