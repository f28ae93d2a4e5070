//! Every adapter must behave in the same way.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use runstone::Durability;
use runstone_kv::{Direction, KvWrite};
use runstone_workloads::generators::Rng;
use runstone_workloads::{BenchSpec, NoProgress, WORKLOADS};

use super::*;
use crate::extras::ByReader;

/// The default setup, but with little memory.
fn setup() -> Setup {
    let flags = ["peers", "--cache-mib", "64", "--memtable-mib", "16", "--keyspaces", "20"];
    <crate::plan::Flags as clap::Parser>::parse_from(flags).setup
}

/// Runs `check` on every peer, each in a temporary directory of its own.
fn on_each(name: &str, check: impl Fn(&dyn KvStore)) {
    for peer in PEERS {
        let directory = format!("peers-test-{name}-{}-{}", peer.name, std::process::id());
        let path = std::env::temp_dir().join(directory);
        let store = (peer.open)(&path, &setup()).expect("opens");
        check(store.as_ref());
        drop(store);
        std::fs::remove_dir_all(&path).expect("is removed");
    }
}

fn keys(store: &dyn KvStore, from: Option<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        keys.len() < 3
    };
    store.scan(from, direction, &mut visit).expect("scans");
    keys
}

#[test]
fn adapters_mean_the_same() {
    on_each("same", |store| {
        let put = |key, value| store.put(key, value, Durability::Buffered).expect("puts");
        for key in [b"a", b"c", b"e", b"g"] {
            put(key, b"1");
        }
        let batch = [KvWrite::Put { key: b"i", value: b"2" }, KvWrite::Delete { key: b"e" }];
        store.write(&batch, Durability::Sync).expect("writes");
        store.delete(b"absent", Durability::Sync).expect("deletes");
        let get = |key: &[u8]| store.get(key).expect("gets").map(|value| value.to_vec());
        assert_eq!(get(b"i"), Some(b"2".to_vec()));
        assert_eq!(get(b"e"), None);
        let several = store.multi_get(&[b"a", b"e"]).expect("gets");
        assert_eq!((several[0].is_some(), several[1].is_none()), (true, true));
        assert_eq!(keys(store, None, Direction::Forward), [b"a", b"c", b"g"]);
        assert_eq!(keys(store, Some(b"d"), Direction::Forward), [b"g", b"i"]);
        assert_eq!(keys(store, Some(b"d"), Direction::Reverse), [b"c", b"a"]);
        assert_eq!(keys(store, None, Direction::Reverse), [b"i", b"g", b"c"]);
        store.flush().expect("flushes");
        store.wait_idle().expect("waits");
        store.compact().expect("compacts");
        assert_eq!(keys(store, Some(b"c"), Direction::Reverse), [b"c", b"a"]);
        assert!(store.metrics().expect("counts").disk_bytes > 0);
    });
}

#[test]
fn keyspaces_are_filled_in_turn() {
    for peer in PEERS {
        let Some(open) = peer.open_keyspaces else { continue };
        let directory = format!("peers-test-keyspaces-{}-{}", peer.name, std::process::id());
        let path = std::env::temp_dir().join(directory);
        let put = open(&path, &setup()).expect("opens");
        (0..100usize).for_each(|n| put(n % 20, &n.to_be_bytes(), b"value").expect("puts"));
        drop(put);
        std::fs::remove_dir_all(&path).expect("is removed");
    }
}

#[test]
fn every_way_counts() {
    for peer in PEERS {
        let Some(open) = peer.open_counters else { continue };
        for way in [Way::Merge, Way::Optimistic, Way::Pessimistic] {
            let name = format!("peers-test-{way:?}-{}-{}", peer.name, std::process::id());
            let path = std::env::temp_dir().join(name);
            let Some(counters) = open(&path, &setup(), way).expect("opens") else { continue };
            (0..10).for_each(|by| counters.add(b"a", by).expect("adds"));
            let found = [b"a", b"b"].map(|key| counters.get(key).expect("gets"));
            assert_eq!(found, [45, 0], "{} by {way:?}", peer.name);
            drop(counters);
            std::fs::remove_dir_all(&path).expect("is removed");
        }
    }
}

#[test]
fn ranges_are_deleted() {
    on_each("ranges", |store| {
        for key in [b"a", b"c", b"e", b"g"] {
            store.put(key, b"1", Durability::Buffered).expect("puts");
        }
        store.delete_range(b"b", Some(b"e"), Durability::Buffered).expect("deletes");
        assert_eq!(keys(store, None, Direction::Forward), [b"a", b"e", b"g"]);
        store.delete_range(b"e", None, Durability::Buffered).expect("deletes");
        assert_eq!(keys(store, None, Direction::Forward), [b"a"]);
    });
}

#[test]
fn every_workload_runs_on_every_peer() {
    let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let spec = BenchSpec { num: 1000, scan_length: 10, ..BenchSpec::default() };
    on_each("workloads", |store| {
        let report = runstone_workloads::run(store, &names, &spec, &NoProgress).expect("runs");
        assert_eq!(report.benchmarks.len(), names.len());
    });
}

/// The contents of a store.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The first three entries from `from` on, as the model has them.
fn expected(model: &Model, from: Option<&[u8]>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match direction {
        Direction::Forward => {
            let is_in = |(key, _): &(&Vec<u8>, _)| from.is_none_or(|from| &key[..] >= from);
            model.iter().filter(is_in).take(3).map(owned).collect()
        }
        Direction::Reverse => {
            let is_in = |(key, _): &(&Vec<u8>, _)| from.is_none_or(|from| &key[..] <= from);
            model.iter().rev().filter(is_in).take(3).map(owned).collect()
        }
    }
}

fn scanned(
    store: &dyn KvStore,
    from: Option<&[u8]>,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        entries.push((key.to_vec(), value.to_vec()));
        entries.len() < 3
    };
    store.scan(from, direction, &mut visit).expect("scans");
    entries
}

/// Makes one random change to the store and to the model.
fn change(store: &dyn KvStore, model: &mut Model, rng: &mut Rng) {
    let key = |rng: &mut Rng| format!("key{}", rng.below(60)).into_bytes();
    let durability = if rng.below(50) == 0 { Durability::Sync } else { Durability::Buffered };
    match rng.below(20) {
        0 => {
            let (one, other) = (key(rng), key(rng));
            let (start, end) = if one <= other { (one, other) } else { (other, one) };
            store.delete_range(&start, Some(&end), durability).expect("deletes");
            model.retain(|key, _| key < &start || key >= &end);
        }
        1 => {
            let start = b"key9".to_vec();
            store.delete_range(&start, None, durability).expect("deletes");
            model.retain(|key, _| key < &start);
        }
        2..6 => {
            let (dead, alive, value) = (key(rng), key(rng), vec![7; rng.below(3000) as usize]);
            let writes =
                [KvWrite::Put { key: &alive, value: &value }, KvWrite::Delete { key: &dead }];
            store.write(&writes, durability).expect("writes");
            model.insert(alive, value);
            model.remove(&dead);
        }
        6..9 => {
            let dead = key(rng);
            store.delete(&dead, durability).expect("deletes");
            model.remove(&dead);
        }
        _ => {
            let (alive, value) = (key(rng), vec![rng.below(256) as u8; rng.below(900) as usize]);
            store.put(&alive, &value, durability).expect("puts");
            model.insert(alive, value);
        }
    }
}

/// After any changes, a store has the contents of the model, before and after it is opened again.
#[test]
fn every_store_is_the_model() {
    for peer in PEERS {
        let name = format!("peers-test-model-{}-{}", peer.name, std::process::id());
        let path = std::env::temp_dir().join(name);
        let (mut model, mut rng) = (Model::new(), Rng::new(7));
        for _ in 0..3 {
            let store = (peer.open)(&path, &setup()).expect("opens");
            for turn in 0..400 {
                change(store.as_ref(), &mut model, &mut rng);
                match turn {
                    150 => store.flush().expect("flushes"),
                    250 => store.compact().expect("compacts"),
                    _ => {}
                }
                let from = format!("key{}", rng.below(100)).into_bytes();
                let value = store.get(&from).expect("gets").map(|value| value.to_vec());
                assert_eq!(value.as_ref(), model.get(&from), "{}, turn {turn}", peer.name);
                for from in [None, Some(&from[..]), Some(&[][..])] {
                    for direction in [Direction::Forward, Direction::Reverse] {
                        let found = scanned(store.as_ref(), from, direction);
                        let wanted = expected(&model, from, direction);
                        assert_eq!(found, wanted, "{} from {from:?} {direction:?}", peer.name);
                    }
                }
            }
            store.flush().expect("flushes");
        }
        std::fs::remove_dir_all(&path).expect("is removed");
    }
}

#[test]
fn operands_are_put_behind_one_another() {
    for peer in PEERS {
        let Some(open) = peer.open_appending else { continue };
        let name = format!("peers-test-append-{}-{}", peer.name, std::process::id());
        let path = std::env::temp_dir().join(name);
        let appending = open(&path, &setup()).expect("opens");
        let store = appending.store();
        store.put(b"a", b"0", Durability::Buffered).expect("puts");
        for (key, operand) in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"4")] {
            appending.append(key, operand).expect("appends");
            store.flush().expect("flushes");
        }
        let get = |key| store.get(key).expect("gets").map(|value| value.to_vec());
        for _ in 0..2 {
            assert_eq!([get(b"a"), get(b"b")], [Some(b"013".to_vec()), Some(b"24".to_vec())]);
            store.compact().expect("compacts");
        }
        drop(appending);
        std::fs::remove_dir_all(&path).expect("is removed");
    }
}

/// Uses an instant that has passed and one that is never reached, so that the test need not sleep.
#[test]
fn what_has_expired_is_passed() {
    for peer in PEERS {
        let name = format!("peers-test-expiry-{}-{}", peer.name, std::process::id());
        let path = std::env::temp_dir().join(name);
        let expiring: Box<dyn Expiring> = match peer.open_expiring {
            Some(open) => open(&path, &setup()).expect("opens"),
            None => Box::new(ByReader((peer.open)(&path, &setup()).expect("opens"))),
        };
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        for (key, end) in [(b"a", now - hour), (b"b", now), (b"c", now + hour), (b"d", now - hour)]
        {
            expiring.put_until(key, b"value", end).expect("puts");
        }
        for _ in 0..2 {
            assert_eq!(expiring.first().expect("looks"), Some(b"c".to_vec()), "{}", peer.name);
            expiring.store().flush().expect("flushes");
            expiring.store().compact().expect("compacts");
        }
        if peer.open_expiring.is_some() {
            assert_eq!(keys(expiring.store(), None, Direction::Forward), [b"c"], "{}", peer.name);
        }
        drop(expiring);
        std::fs::remove_dir_all(&path).expect("is removed");
    }
}
