//! Puts and gets of single keys are linearizable: each seems to happen at one moment between its
//! call and its return, whatever flushes, compactions and other threads do meanwhile.
//!
//! Every put writes a different value, so a history of one key can be judged exactly (Gibbons and
//! Korach, *Testing Shared Memories*, 1997, zones). A *cluster* is a put together with the gets
//! that saw its value. Between its earliest return and its latest call, the value must have been
//! there. If that is an interval (the earliest return comes before the latest call), no other such
//! interval may overlap it, and no other cluster may be entirely inside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_sim::found::panics;
use runstone_sim::random::Random;

const THREADS: u64 = 4;
const KEYS: u64 = 5;
const OPERATIONS: u64 = 40_000;

/// A put or a get: the value that it wrote or saw, and when it was called and returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    key: u64,
    value: u64,
    is_put: bool,
    called: u64,
    returned: u64,
}

/// The calls of one value.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    put_called: Option<u64>,
    earliest_return: u64,
    latest_call: u64,
}

/// Panics if no register could have given these answers to the calls of one key.
fn judge(calls: &[Call]) {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    for call in calls {
        let new = Cluster { put_called: None, earliest_return: u64::MAX, latest_call: 0 };
        let cluster = clusters.entry(call.value).or_insert(new);
        cluster.earliest_return = cluster.earliest_return.min(call.returned);
        cluster.latest_call = cluster.latest_call.max(call.called);
        if call.is_put {
            cluster.put_called = Some(call.called);
        }
    }
    for call in calls.iter().filter(|call| !call.is_put) {
        let put_called = clusters[&call.value].put_called.expect("a value that nobody wrote");
        assert!(put_called < call.returned, "{call:?} saw a value of the future");
    }
    let is_forward = |cluster: &&Cluster| cluster.earliest_return < cluster.latest_call;
    let mut forward: Vec<&Cluster> = clusters.values().filter(is_forward).collect();
    forward.sort_by_key(|cluster| cluster.earliest_return);
    for pair in forward.windows(2) {
        assert!(pair[0].latest_call < pair[1].earliest_return, "two values at a time: {pair:?}");
    }
    for cluster in clusters.values().filter(|cluster| !is_forward(cluster)) {
        let after = forward.partition_point(|zone| zone.earliest_return < cluster.latest_call);
        let around = after.checked_sub(1).map(|at| forward[at]);
        let is_apart = around.is_none_or(|zone| zone.latest_call < cluster.earliest_return);
        assert!(is_apart, "{cluster:?} fits nowhere beside {around:?}");
    }
}

/// Threads that put and get at random. Returns their calls by key.
fn histories(store: &Store, seed: u64) -> BTreeMap<u64, Vec<Call>> {
    let clock = AtomicU64::new(1);
    let now = || clock.fetch_add(1, SeqCst);
    let work = |thread: u64| {
        let mut random = Random::new(seed * THREADS + thread);
        let mut calls = Vec::new();
        for operation in 0..OPERATIONS {
            let (key, is_put) = (random.below(KEYS), random.one_in(3));
            let mut value = 1 + operation * THREADS + thread;
            let called = now();
            if is_put {
                // A size that makes memtables change often.
                let bytes = [&value.to_be_bytes()[..], &[7; 200]].concat();
                store.put(key.to_be_bytes(), bytes).expect("put");
            } else {
                let found = store.get(key.to_be_bytes()).expect("get").expect("written first");
                value = u64::from_be_bytes(found[..8].try_into().expect("a number"));
            }
            calls.push(Call { key, value, is_put, called, returned: now() });
        }
        calls
    };
    let first = |key: u64| {
        // Values that no thread writes.
        let (value, called) = (u64::MAX - key, now());
        store.put(key.to_be_bytes(), value.to_be_bytes()).expect("put");
        Call { key, value, is_put: true, called, returned: now() }
    };
    let mut all: Vec<Call> = (0..KEYS).map(first).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().for_each(|thread| all.extend(thread.join().expect("no panic")));
    });
    let mut by_key: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    all.into_iter().for_each(|call| by_key.entry(call.key).or_default().push(call));
    by_key
}

#[test]
fn single_keys_are_linearizable() {
    for (seed, policy) in (0..).zip(["fragmented-leveling", "universal", "adaptive-tiering"]) {
        let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
        keyspace.write_buffer_bytes = 64 << 10;
        unstable::numbers_mut(&mut keyspace).base_bytes = 128 << 10;
        let options = Options::default()
            .background(Background::Threads(2))
            .memory_budget_bytes(4 << 20)
            .keyspace(keyspace);
        let store = Store::open_on(std::sync::Arc::new(MemoryStorage::new()), options);
        let store = store.expect("opens");
        histories(&store, seed).values().for_each(|calls| judge(calls));
        let flushes = store.metrics().counters.flushes;
        assert!(flushes > 20, "{policy}: {flushes} flushes");
    }
}

/// The judge rejects histories that no register could have.
#[test]
fn what_no_register_does_is_told() {
    let call = |value, is_put, called, returned| Call { key: 0, value, is_put, called, returned };
    let (first, second) = (call(1, true, 1, 2), call(2, true, 3, 6));
    judge(&[first, second, call(1, false, 4, 8), call(2, false, 5, 9)]);
    // An old value after a put has returned.
    assert!(panics(|| judge(&[first, second, call(1, false, 7, 8)])));
    // The new value, then the old one, while the put of the new one is under way.
    let put = call(2, true, 3, 9);
    judge(&[first, put, call(1, false, 4, 5), call(2, false, 6, 7)]);
    assert!(panics(|| judge(&[first, put, call(2, false, 4, 5), call(1, false, 6, 7)])));
    // A value is seen before its put.
    assert!(panics(|| judge(&[first, call(2, false, 3, 4), call(2, true, 5, 6)])));
}
