//! Reads of a transaction: its own writes over a snapshot, compared with a model map. Savepoints
//! are compared with copies of the model.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use runstone::storage::MemoryStorage;
use runstone::{
    Background, CompactionFilter, FilterDecision, Keyspace, KeyspaceOptions, ReadOptions, Store,
    Transaction, TransactionOptions, WriteOptions,
};
use runstone_sim::random::Random;
use runstone_sim::workload::options as drawn;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Random) -> Vec<u8> {
    format!("{:02}", random.below(24)).into_bytes()
}

fn bounds(random: &mut Random) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let some = |random: &mut Random| random.one_in(2).then(|| key(random));
    let (start, end) = (some(random), some(random));
    match start.is_some() && end.is_some() && start > end {
        true => (end, start),
        false => (start, end),
    }
}

/// A random change to a transaction, and to its model.
fn change(
    transaction: &mut Transaction,
    keyspace: &Keyspace,
    model: &mut Model,
    random: &mut Random,
) {
    let name = key(random);
    match random.below(8) {
        0..4 => {
            let value = vec![b'v'; random.below(300) as usize];
            transaction.put(keyspace, &name, &value).expect("puts");
            model.insert(name, value);
        }
        4..7 => {
            transaction.delete(keyspace, &name).expect("deletes");
            model.remove(&name);
        }
        _ => {
            let end = random.one_in(2).then(|| format!("{:02}", random.below(26)).into_bytes());
            let end = end.filter(|end| *end >= name);
            match &end {
                Some(end) => transaction.delete_range(keyspace, &name[..]..&end[..]),
                None => transaction.delete_range(keyspace, &name[..]..),
            }
            .expect("deletes a range");
            model.retain(|key, _| *key < name || end.as_ref().is_some_and(|end| key >= end));
        }
    }
}

/// Walks with a cursor and in the model at the same time.
fn walk(transaction: &Transaction, keyspace: &Keyspace, model: &Model, random: &mut Random) {
    let (start, end) = bounds(random);
    let options = ReadOptions::default().with_bounds(start.as_deref(), end.as_deref());
    let inside: Vec<(&[u8], &[u8])> = model
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .filter(|(key, _)| start.as_deref().is_none_or(|start| *key >= start))
        .filter(|(key, _)| end.as_deref().is_none_or(|end| *key < end))
        .collect();
    let mut cursor = transaction.cursor(keyspace, options.clone()).expect("opens");
    let mut at: Option<usize> = None;
    for _ in 0..40 {
        let to = key(random);
        match random.below(8) {
            0 => {
                cursor.seek(&to).expect("seeks");
                at = inside.iter().position(|(key, _)| *key >= &to[..]);
            }
            1 => {
                cursor.seek_for_prev(&to).expect("seeks");
                at = inside.iter().rposition(|(key, _)| *key <= &to[..]);
            }
            2 => {
                cursor.seek_to_first().expect("seeks");
                at = (!inside.is_empty()).then_some(0);
            }
            3 => {
                cursor.seek_to_last().expect("seeks");
                at = inside.len().checked_sub(1);
            }
            4 | 5 => {
                cursor.next().expect("steps");
                at = at.map(|at| at + 1).filter(|at| *at < inside.len());
            }
            _ => {
                cursor.prev().expect("steps");
                at = at.and_then(|at| at.checked_sub(1));
            }
        }
        let expected = at.map(|at| inside[at]);
        let shown = cursor.valid().then(|| (cursor.key(), cursor.value()));
        assert_eq!(shown, expected);
        assert_eq!(
            cursor.valid().then(|| cursor.pin_value().to_vec()).as_deref(),
            expected.map(|e| e.1)
        );
    }
    scan(transaction, keyspace, &options, &inside, random);
}

/// Takes entries from both ends at random.
fn scan(
    transaction: &Transaction,
    keyspace: &Keyspace,
    options: &ReadOptions,
    inside: &[(&[u8], &[u8])],
    random: &mut Random,
) {
    let mut scan = transaction.scan(keyspace, options.clone()).expect("opens");
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let is_front = random.one_in(2);
        let item = if is_front { scan.next() } else { scan.next_back() };
        let Some(item) = item else { break };
        let (key, value) = item.expect("reads");
        if is_front { &mut front } else { &mut back }.push((key, value.to_vec()));
    }
    front.extend(back.into_iter().rev());
    let expected: Vec<_> =
        inside.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(front, expected);
}

fn check_gets(transaction: &Transaction, keyspace: &Keyspace, model: &Model) {
    let keys: Vec<Vec<u8>> = (0..26).rev().map(|n| format!("{n:02}").into_bytes()).collect();
    let found = transaction.multi_get(keyspace, &keys).expect("reads");
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{}", key.escape_ascii());
    }
}

/// Transactions with random writes and savepoints show the same as a map, in both directions, while
/// others write. A commit leaves exactly these entries.
#[test]
fn a_transaction_reads_like_a_map() {
    for seed in 1..=60 {
        let mut random = Random::new(seed);
        let options = drawn(seed, runstone::Background::Manual);
        let store =
            Store::open_on(std::sync::Arc::new(MemoryStorage::new()), options).expect("opens");
        let keyspace = store.default_keyspace().clone();
        let mut base = Model::new();
        for _ in 0..6 {
            let level = match random.one_in(2) {
                true => TransactionOptions::serializable(),
                false => TransactionOptions::default(),
            };
            let mut transaction = store.begin(level).expect("begins");
            let mut model = base.clone();
            let mut savepoints: Vec<Model> = Vec::new();
            let is_alone = random.one_in(2);
            for _ in 0..12 {
                change(&mut transaction, &keyspace, &mut model, &mut random);
                match random.below(6) {
                    0 => {
                        transaction.set_savepoint();
                        savepoints.push(model.clone());
                    }
                    1 if !savepoints.is_empty() => {
                        transaction.rollback_to_savepoint().expect("there is one");
                        model = savepoints.pop().expect("there is one");
                    }
                    2 if !is_alone => keyspace.put("05", "of somebody else").expect("puts"),
                    3 if random.one_in(3) => store.flush().expect("flushes"),
                    _ => {}
                }
                walk(&transaction, &keyspace, &model, &mut random);
                check_gets(&transaction, &keyspace, &model);
            }
            let outcome = transaction.commit(WriteOptions::default());
            assert!(outcome.is_ok() || !is_alone, "nobody else wrote: {outcome:?}");
            let now = keyspace.iter().expect("scans").map(|item| item.expect("reads"));
            let now: Model = now.map(|(key, value)| (key, value.to_vec())).collect();
            if outcome.is_ok() && is_alone {
                assert_eq!(now, model);
            }
            base = now;
        }
    }
}

#[test]
fn savepoints_nest() {
    let store = crate::store();
    let keyspace = store.default_keyspace();
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    assert!(transaction.rollback_to_savepoint().is_err(), "there is none");
    transaction.put(keyspace, "a", "1").expect("puts");
    transaction.set_savepoint();
    transaction.put(keyspace, "a", "2").expect("puts");
    transaction.set_savepoint();
    transaction.delete_range(keyspace, ..).expect("deletes");
    assert!(transaction.get(keyspace, "a").expect("reads").is_none());
    transaction.rollback_to_savepoint().expect("the inner one");
    assert_eq!(transaction.get(keyspace, "a").expect("reads").as_deref(), Some(&b"2"[..]));
    transaction.rollback_to_savepoint().expect("the outer one");
    assert_eq!(transaction.get(keyspace, "a").expect("reads").as_deref(), Some(&b"1"[..]));
    assert!(transaction.rollback_to_savepoint().is_err(), "none is left");
    transaction.commit(WriteOptions::default()).expect("commits");
    assert_eq!(keyspace.get("a").expect("reads").as_deref(), Some(&b"1"[..]));
}

/// Removes one key, once it may continue.
#[derive(Debug)]
struct Removes {
    reached: Mutex<Sender<()>>,
    may_go: Mutex<Receiver<()>>,
}

impl CompactionFilter for Removes {
    fn name(&self) -> &str {
        "removes"
    }

    fn decide(&self, _level: u32, key: &[u8], _value: &[u8]) -> FilterDecision {
        match key {
            b"0" => {
                self.reached.lock().expect("sound").send(()).expect("is awaited");
                self.may_go.lock().expect("sound").recv().expect("is told");
                FilterDecision::Keep
            }
            b"b" => FilterDecision::Remove,
            _ => FilterDecision::Keep,
        }
    }
}

/// A compaction filter may remove the entry that a cursor is on. Once, the cursor then left out the
/// neighbour of the entry when it turned around.
#[test]
fn a_cursor_that_turns_where_its_entry_vanished_misses_no_other() {
    for is_upward in [true, false] {
        let ((reached, is_reached), (go, may_go)) = (channel(), channel());
        let filter = Removes { reached: Mutex::new(reached), may_go: Mutex::new(may_go) };
        let options = runstone::Options::default()
            .background(Background::Manual)
            .compaction_filters(vec![Arc::new(filter) as Arc<dyn CompactionFilter>])
            .keyspace(KeyspaceOptions::default().compaction_filter("removes"));
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        for keys in [["0", "a", "c"], ["1", "b", "d"]] {
            keys.iter().for_each(|key| store.put(key, "1").expect("puts"));
            store.flush().expect("flushes");
        }
        let keyspace = store.default_keyspace().clone();
        let compacting = std::thread::spawn(move || keyspace.compact());
        is_reached.recv_timeout(std::time::Duration::from_secs(20)).expect("compacts");
        let transaction = store.begin(TransactionOptions::default()).expect("begins");
        let keyspace = store.default_keyspace();
        let mut cursor = transaction.cursor(keyspace, ReadOptions::default()).expect("opens");
        match is_upward {
            true => cursor.seek_for_prev("bb").expect("seeks"),
            false => cursor.seek("b").expect("seeks"),
        }
        assert_eq!(cursor.key(), b"b");
        go.send(()).expect("compacts");
        compacting.join().expect("no panic").expect("compacts");
        match is_upward {
            true => cursor.next().expect("steps"),
            false => cursor.prev().expect("steps"),
        }
        assert_eq!(cursor.key(), if is_upward { b"c" } else { b"a" });
    }
}
