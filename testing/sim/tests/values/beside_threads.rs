//! Collection of values beside threads that write and read: a get races the collection of its
//! value, a put races the relocation of the value it replaces, and snapshots are held all the
//! while. Not deterministic; a failure should be turned into a stepped test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use runstone::storage::MemoryStorage;
use runstone::{
    Background, GcPointers, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement,
};

const KEYS: u64 = 40;
const VALUE_BYTES: usize = 600;

fn open(placement: ValuePlacement, gc_pointers: GcPointers, cold_stream: bool) -> Store {
    let values = ValueOptions::default()
        .placement(placement)
        .separate_at(100)
        .groups(2)
        .slot_bytes(16 << 10)
        .reserve(0.05)
        .vlog_chunk_bytes(32 << 10)
        .gc_pointers(gc_pointers)
        .cold_stream(cold_stream);
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10).values(values);
    let options = Options::default()
        .background(Background::Threads(2))
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("fresh")
}

fn key(number: u64) -> String {
    format!("key{number:04}")
}

fn value(count: u64) -> Vec<u8> {
    let mut value = count.to_le_bytes().to_vec();
    value.resize(VALUE_BYTES, count as u8);
    value
}

fn count_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

/// One writer increments the count of each key, a reader sees no count go back, a third thread
/// collects; a fourth holds snapshots and reads them twice. `Err` says what was wrong.
fn run(
    placement: ValuePlacement,
    gc_pointers: GcPointers,
    cold_stream: bool,
) -> Result<u64, String> {
    let (store, time) = (open(placement, gc_pointers, cold_stream), Duration::from_secs(4));
    let written: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let collect = || {
        let mut collections = 0;
        while !done.load(Relaxed) {
            store.collect_values().map_err(|error| error.to_string())?;
            collections += 1;
        }
        Ok(collections)
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&store, &written, &done, time));
        let reader = scope.spawn(|| read(&store, &written, &done));
        let snapshots = scope.spawn(|| hold(&store, &done));
        let collector = scope.spawn(collect);
        let outcomes = [writer.join(), reader.join(), snapshots.join()];
        let collected = collector.join().expect("no panic");
        for outcome in outcomes {
            outcome.expect("no panic")?;
        }
        collected
    })
}

fn write(
    store: &Store,
    written: &[AtomicU64],
    done: &AtomicBool,
    time: Duration,
) -> Result<(), String> {
    let started = Instant::now();
    let mut outcome = Ok(());
    for turn in 1.. {
        if started.elapsed() > time || outcome.is_err() || done.load(Relaxed) {
            break;
        }
        // Most writes go to a quarter of the keys, so that the others cool.
        let number = if turn % 8 == 0 { turn / 8 % KEYS } else { turn * 7 % (KEYS / 4) };
        let put = store.put(key(number), value(turn));
        outcome = put.map_err(|error| error.to_string());
        written[number as usize].store(turn, Release);
    }
    done.store(true, Relaxed);
    outcome
}

fn read(store: &Store, written: &[AtomicU64], done: &AtomicBool) -> Result<(), String> {
    let mut turn = 0u64;
    while !done.load(Relaxed) {
        turn += 1;
        let number = turn * 11 % KEYS;
        let least = written[number as usize].load(Acquire);
        let got = store.get(key(number)).map_err(|error| error.to_string());
        let problem = match got {
            Err(error) => Some(error),
            Ok(None) if least > 0 => Some(format!("key {number} is gone")),
            Ok(None) => None,
            Ok(Some(got)) => {
                let count = count_of(&got);
                let whole = *got == value(count)[..];
                let stale = count < least;
                (stale || !whole).then(|| format!("key {number}: {count}, written {least}"))
            }
        };
        if let Some(problem) = problem {
            done.store(true, Relaxed);
            return Err(problem);
        }
    }
    Ok(())
}

fn hold(store: &Store, done: &AtomicBool) -> Result<(), String> {
    let keyspace = store.default_keyspace();
    while !done.load(Relaxed) {
        let snapshot = store.snapshot();
        let read = || -> Result<Vec<Option<u64>>, String> {
            (0..KEYS)
                .map(|number| {
                    let got = keyspace.get_at(key(number), &snapshot);
                    Ok(got.map_err(|error| error.to_string())?.map(|value| count_of(&value)))
                })
                .collect()
        };
        let before = read()?;
        std::thread::sleep(Duration::from_millis(5));
        if read()? != before {
            done.store(true, Relaxed);
            return Err("a snapshot changed".to_string());
        }
    }
    Ok(())
}

#[test]
fn groups_are_collected_beside_readers_and_writers() {
    let collections = run(ValuePlacement::HashGrouped, GcPointers::Stable, false);
    assert!(collections.expect("nothing goes wrong") > 0);
}

#[test]
fn groups_write_pointers_back_beside_readers_and_writers() {
    let collections = run(ValuePlacement::HashGrouped, GcPointers::Writeback, false);
    assert!(collections.expect("nothing goes wrong") > 0);
}

#[test]
fn what_cools_is_written_back_beside_readers_and_writers() {
    let collections = run(ValuePlacement::HashGrouped, GcPointers::Writeback, true);
    assert!(collections.expect("nothing goes wrong") > 0);
}

#[test]
fn a_log_is_collected_beside_readers_and_writers() {
    let collections = run(ValuePlacement::Vlog, GcPointers::Stable, false);
    assert!(collections.expect("nothing goes wrong") > 0);
}
