//! What separated values cost in a store that contains very many of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use allocation_counter::measure;
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{Background, KeyspaceOptions, Options, Store, WalMode};

use crate::READS;
use crate::copies::{Counted, storage};

/// A slot holds one value of this size.
const VALUE: [u8; 2100] = [7; 2100];
/// Level 0 may have any number of tables, and the file has much room, so a flush causes no
/// compaction and no collection.
const LOG: &str = "l0_slowdown_runs = 2000\nl0_stop_runs = 3000\n[shape]\nl0_trigger = 1000\n\
                   [values]\nplacement = \"vlog\"\nseparate_at = 100\nslot_bytes = 4096\n\
                   capacity_bytes = 1073741824";

fn options(toml: &str) -> Options {
    let keyspace = KeyspaceOptions::from_toml(toml).expect("options");
    // Mapped segments of the log are large, and are prepared now and then.
    let options = Options::default().wal_mode(WalMode::Write);
    options.background(Background::Manual).keyspace(keyspace)
}

/// Puts `count` values from a number on, and flushes after every `at_once` of them.
fn fill(store: &Store, from: u64, count: u64, at_once: u64) {
    for number in from..from + count {
        store.put(number.to_be_bytes(), VALUE).expect("puts");
        if number % at_once == at_once - 1 {
            store.flush().expect("flushes");
        }
    }
}

/// The bytes that the allocator gives for a put and a flush.
fn flush_bytes(store: &Store, from: u64) -> u64 {
    measure(|| fill(store, from, READS, 1)).bytes_total / READS
}

/// Once, each edit of a value file copied and walked over all of its segments.
#[test]
fn a_flush_costs_the_same_with_any_number_of_segments() {
    let flush = |count: u64| {
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options(LOG)).expect("opens");
        fill(&store, 0, count, 1_000);
        flush_bytes(&store, count)
    };
    let (few, many) = (flush(1_000), flush(20_000));
    println!("{few} bytes for a flush with 1,000 segments, {many} with 20,000");
    assert!(many < 2 * few, "{many} bytes for a flush with 20,000 segments, {few} with 1,000");
}

/// Once, an open also copied and walked over all segments for each edit that it read.
#[test]
fn an_open_costs_the_same_for_each_of_any_number_of_edits() {
    let opening = |count| {
        let disk = Arc::new(MemoryStorage::new());
        let own = || Arc::clone(&disk) as Arc<dyn Storage>;
        let store = Store::open_on(own(), options(LOG)).expect("opens");
        fill(&store, 0, count, 10);
        store.close().expect("closes");
        measure(|| drop(Store::open_on(own(), options(LOG)).expect("opens"))).bytes_total
    };
    let (few, many) = (opening(500), opening(5_000));
    println!("{few} bytes for an open with 500 segments, {many} with 5,000");
    assert!(many < 20 * few, "{many} bytes for an open with 5,000 segments, {few} with 500");
}

/// Once, each edit of a value file copied and walked over all records that are known to be dead.
#[test]
fn a_flush_costs_the_same_with_any_number_of_dead_values() {
    let flush = |count: u64| {
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options(LOG)).expect("opens");
        (0..count).for_each(|number| store.put(number.to_be_bytes(), [7; 120]).expect("puts"));
        store.flush().expect("flushes");
        (0..count).for_each(|number| store.delete(number.to_be_bytes()).expect("deletes"));
        // Unlike `Store::compact`, it collects nothing.
        store.default_keyspace().compact_range([0]..[255]).expect("compacts");
        let usage = store.default_keyspace().value_usage();
        assert!(usage.iter().any(|one| one.sum(|group| group.dead_bytes) > 100 * count));
        flush_bytes(&store, count)
    };
    let (few, many) = (flush(1_000), flush(100_000));
    println!("{few} bytes for a flush with 1,000 dead values, {many} with 100,000");
    assert!(many < 2 * few, "{many} bytes for a flush with 100,000 dead values, {few} with 1,000");
}

const EARLY: &str = "[values]\nplacement = \"vlog\"\nseparate_at = 100\nearly = true";

/// Reads of value files per refresh of a follower, while this many values are in no table.
fn reads_of_a_refresh(count: u64, mut also: impl FnMut(&Store, u64)) -> u64 {
    const TIMES: u64 = 20;
    let disk = Arc::new(MemoryStorage::new());
    let own = || Arc::clone(&disk) as Arc<dyn Storage>;
    let store = Store::open_on(own(), options(EARLY)).expect("opens");
    let put = |number: u64| store.put(number.to_be_bytes(), VALUE).expect("puts");
    (0..count).for_each(put);
    let follower = Store::follow_on(own(), Options::default()).expect("follows");
    let reads = || disk.counters().snapshot(Category::Value).reads;
    let before = reads();
    for time in 0..TIMES {
        put(count + time);
        also(&store, time);
        assert!(follower.refresh().expect("refreshes"), "something is new");
    }
    let each = (reads() - before) / TIMES;
    for number in 0..count + TIMES {
        let read = follower.store().get(number.to_be_bytes()).expect("reads");
        assert!(read.is_some_and(|read| read == VALUE), "value {number}");
    }
    each
}

/// Once, each refresh read again all values that were in no table.
#[test]
fn a_refresh_reads_only_values_that_are_new() {
    let (few, many) = (reads_of_a_refresh(10, |_, _| {}), reads_of_a_refresh(1_000, |_, _| {}));
    println!("{few} reads for a refresh with few values, {many} with many");
    assert!(many <= 2 * few, "{many} reads for a refresh with many values, {few} with few");
    // Each edit of the keyspace makes a follower open the value file again.
    let edit = |store: &Store, time| {
        let toml = format!("[shape]\nl0_trigger = {}\n{EARLY}", 5 + time % 2);
        let options = KeyspaceOptions::from_toml(&toml).expect("options");
        store.open_keyspace("default", Some(options)).expect("changes an option");
    };
    let (few, many) = (reads_of_a_refresh(10, edit), reads_of_a_refresh(1_000, edit));
    println!("{few} reads for a refresh after an edit with few values, {many} with many");
    assert!(many <= 2 * few, "{many} reads for a refresh with many values, {few} with few");
}

/// Once, each call of `metrics` opened the value files that were closed, and closed tables to make
/// room for them.
#[test]
fn metrics_open_no_value_file() {
    let disk = Arc::new(Counted::default());
    let store = Store::open_on(storage(&disk), options(LOG).max_open_files(64)).expect("opens");
    for number in 0..300 {
        let keyspace = KeyspaceOptions::from_toml(LOG).expect("options");
        let made = store.open_keyspace(&format!("keyspace{number}"), Some(keyspace));
        made.expect("made").put("key", VALUE).expect("puts");
    }
    store.flush().expect("flushes");
    let before = disk.opened.load(SeqCst);
    let bytes: u64 = store.metrics().keyspaces.iter().map(|one| one.value_file_bytes).sum();
    assert!(bytes > 300 * 4096 && store.disk_bytes() > bytes, "{bytes} bytes of value files");
    assert_eq!(disk.opened.load(SeqCst), before);
}
