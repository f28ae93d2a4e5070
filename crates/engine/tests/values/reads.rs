//! The cost of reads of separated values, counted at the storage. A get takes one device read
//! wherever collections have moved the record, and none once the value has been read twice. A scan
//! without read-ahead reads one value at a time. A scan that defers the read of a value finds the
//! value wherever it is by then.

use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{
    Background, Cursor, GcPointers, KeyspaceOptions, Options, ReadOptions, Store,
    TransactionOptions, ValueOptions, ValuePlacement,
};
use runstone_fault_storage::SimStorage;

const KEYS: u64 = 60;

fn open(change: impl FnOnce(&mut ValueOptions)) -> Store {
    open_on(Arc::new(MemoryStorage::new()), change)
}

fn open_on(storage: Arc<dyn Storage>, change: impl FnOnce(&mut ValueOptions)) -> Store {
    let mut values = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .separate_at(100)
        .groups(2)
        .slot_bytes(16 << 10)
        .vlog_chunk_bytes(32 << 10);
    change(&mut values);
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(4 << 20).values(values);
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(32 << 20)
        .keyspace(keyspace);
    Store::open_on(storage, options).expect("opens")
}

fn key(number: u64) -> String {
    format!("key{number:03}")
}

fn value(number: u64, turn: u64) -> Vec<u8> {
    (0..1000).map(|i| (i * 3 + number * 7 + turn) as u8).collect()
}

/// Writes every key once, then the even keys again and again, and collects in between.
fn fill(store: &Store) {
    for turn in 0..6 {
        for k in (0..KEYS).filter(|k| turn == 0 || k % 2 == 0) {
            store.put(key(k), value(k, turn)).expect("puts");
        }
        store.flush().expect("flushes");
        if turn > 0 {
            store.collect_values().expect("collects");
        }
    }
    store.flush().expect("flushes what collections wrote");
}

fn expected(k: u64) -> Vec<u8> {
    value(k, if k.is_multiple_of(2) { 5 } else { 0 })
}

/// The numbers of reads of tables and of value files so far.
fn reads(store: &Store) -> (u64, u64) {
    let io = store.metrics().io;
    let of = |category| io.iter().filter(|one| one.category == category).map(|one| one.reads).sum();
    (of("table"), of("value"))
}

fn gets_are_one_read(store: &Store, place: &str) {
    // This brings tables and footers into the cache, but no values.
    for options in [ReadOptions::default().keys_only(), ReadOptions::default().fill_cache(false)] {
        let mut cursor = store.default_keyspace().cursor(options).expect("opens");
        cursor.seek_to_first().expect("seeks");
        while cursor.valid() {
            cursor.next().expect("walks");
        }
    }
    for turn in 0..2 {
        for k in 0..KEYS {
            let (tables, values) = reads(store);
            let got = store.get(key(k)).expect("reads");
            assert_eq!(got.as_deref(), Some(&expected(k)[..]), "{place}, key {k}");
            assert_eq!(reads(store), (tables, values + 1), "{place}, key {k}, turn {turn}");
        }
    }
    // Values that were read twice are cached, except a few that overwrote each other's marks.
    let before = reads(store);
    for k in 0..KEYS {
        assert_eq!(store.get(key(k)).expect("reads").as_deref(), Some(&expected(k)[..]));
    }
    let (tables, values) = reads(store);
    assert_eq!(tables, before.0, "{place}");
    assert!(values - before.1 < KEYS / 4, "{place}: {} reads", values - before.1);
}

#[test]
fn a_get_is_one_device_read() {
    type Change = fn(&mut ValueOptions);
    let placements: [(&str, Change); 5] = [
        ("a log", |values| values.placement = ValuePlacement::Vlog),
        ("groups", |_| {}),
        ("groups with a cold stream", |values| values.cold_stream = true),
        ("groups written back", |values| values.gc_pointers = GcPointers::Writeback),
        ("groups with a cold stream, written back", |values| {
            (values.cold_stream, values.gc_pointers) = (true, GcPointers::Writeback);
        }),
    ];
    for (place, change) in placements {
        let store = open(change);
        for k in 0..KEYS {
            store.put(key(k), expected(k)).expect("puts");
        }
        store.flush().expect("flushes");
        gets_are_one_read(&store, &format!("{place}, as flushed"));
        let store = open(change);
        fill(&store);
        assert!(store.metrics().counters.value_collections > 1, "{place}");
        let usage = store.default_keyspace().value_usage().swap_remove(0);
        let cold_bytes = usage.cold.map_or(0, |cold| cold.bytes);
        assert_eq!(cold_bytes > 20_000, place.contains("cold"), "{place}: {cold_bytes}");
        gets_are_one_read(&store, &format!("{place}, collected"));
    }
}

/// The number of reads of the value file by a scan of everything that leaves no values in the
/// cache.
fn scan(store: &Store) -> u64 {
    let before = reads(store).1;
    let options = ReadOptions::default().fill_cache(false);
    let mut cursor = store.default_keyspace().cursor(options).expect("opens");
    cursor.seek_to_first().expect("seeks");
    for k in 0..KEYS {
        assert!(cursor.valid() && cursor.key() == key(k).as_bytes(), "key {k}");
        assert!(cursor.value() == expected(k), "key {k}");
        cursor.next().expect("steps");
    }
    assert!(!cursor.valid());
    reads(store).1 - before
}

#[test]
fn a_scan_reads_ahead_unless_it_is_told_not_to() {
    let on_disk = || Arc::new(SimStorage::new(1));
    let ahead = open_on(on_disk(), |_| {});
    fill(&ahead);
    scan(&ahead);
    assert!(scan(&ahead) < KEYS / 2, "{} reads", scan(&ahead));
    let one_by_one = open_on(on_disk(), |values| values.scan_ahead_bytes = 0);
    fill(&one_by_one);
    scan(&one_by_one);
    assert_eq!(scan(&one_by_one), KEYS);
    // In memory, read-ahead has nothing to announce.
    let in_memory = open(|_| {});
    fill(&in_memory);
    scan(&in_memory);
    assert_eq!(scan(&in_memory), KEYS);
}

/// A cursor that has deferred the reads of values, and remembers their places.
struct Walk {
    store: Store,
    cursor: Cursor,
    /// The number of the key at which the cursor is.
    at: u64,
    /// The length of the values, in repetitions of the base value.
    times: usize,
}

impl Walk {
    /// Begins a walk over values so large that no two of them are read together.
    fn begun(change: impl FnOnce(&mut ValueOptions)) -> Walk {
        Walk::begun_on(Arc::new(SimStorage::new(1)), 40, change)
    }

    /// Begins a walk over everything and takes a few steps. Values have `times` kilobytes.
    fn begun_on(
        storage: Arc<dyn Storage>,
        times: usize,
        change: impl FnOnce(&mut ValueOptions),
    ) -> Walk {
        let store = open_on(storage, |values| {
            // One value per slot.
            values.slot_bytes = times as u32 * 1638;
            values.vlog_chunk_bytes = 2 * u64::from(values.slot_bytes);
            values.reserve = 100.0.into();
            change(values);
        });
        let put = |k| store.put(key(k), value(k, 0).repeat(times)).expect("puts");
        (0..KEYS).for_each(put);
        store.flush().expect("flushes");
        let options = ReadOptions::default().fill_cache(false);
        let mut cursor = store.default_keyspace().cursor(options).expect("opens");
        cursor.seek_to_first().expect("seeks");
        // The cursor reads one value, then two, four and seven at once, and is on the first of the
        // seven. In memory it reads one, two, three and then four, and is on the first of the four.
        (0..7).for_each(|_| cursor.next().expect("steps"));
        Walk { store, cursor, at: 7, times }
    }

    /// Rewrites, moves and collects everything until slots are reused.
    fn disturb(&self) {
        for turn in 1..8 {
            for k in (0..KEYS).filter(|k| turn % 2 == 0 || k % 2 == 0) {
                self.store.put(key(k), value(k, turn).repeat(self.times)).expect("puts");
            }
            self.store.flush().expect("flushes");
            self.store.collect_values().expect("collects");
        }
    }

    /// Checks that the walk shows the values as of its beginning.
    fn ends_well(&mut self) {
        for k in self.at..KEYS {
            assert!(self.cursor.valid() && self.cursor.key() == key(k).as_bytes(), "key {k}");
            assert!(self.cursor.value() == value(k, 0).repeat(self.times), "key {k}");
            self.cursor.next().expect("steps");
        }
        assert!(!self.cursor.valid());
    }
}

/// The options for all ways in which values are collected.
const PLACEMENTS: [fn(&mut ValueOptions); 5] = [
    |values| values.placement = ValuePlacement::Vlog,
    |_| {},
    |values| values.cold_stream = true,
    |values| values.gc_pointers = GcPointers::Writeback,
    |values| (values.cold_stream, values.gc_pointers) = (true, GcPointers::Writeback),
];

/// Ends a walk that has found `found` values at once and has read the first. Each of the others is
/// read at its old place and, if its slot was used again, also at its new place.
fn reads_again(mut walk: Walk, found: u64) {
    walk.disturb();
    let before = reads(&walk.store).1;
    (1..found).for_each(|_| walk.cursor.next().expect("steps"));
    let again = reads(&walk.store).1 - before;
    assert!(again > found - 1, "{again} reads: no slot was used again");
    walk.at += found - 1;
    walk.ends_well();
}

#[test]
fn what_is_read_later_is_looked_for_again_if_its_slot_was_used_again() {
    for change in PLACEMENTS {
        let mut walk = Walk::begun(change);
        walk.disturb();
        walk.ends_well();
    }
    reads_again(Walk::begun(|_| {}), 7);
}

/// In memory, read-ahead only prefetches cache lines.
#[test]
fn what_was_found_in_memory_is_looked_for_again_if_its_slot_was_used_again() {
    let begun = |times, change| Walk::begun_on(Arc::new(MemoryStorage::new()), times, change);
    for (change, times) in PLACEMENTS.into_iter().flat_map(|change| [5, 40].map(|n| (change, n))) {
        let mut walk = begun(times, change);
        walk.disturb();
        walk.ends_well();
    }
    reads_again(begun(5, |_| {}), 4);
}

#[test]
fn what_is_read_later_is_found_after_a_change_of_placement() {
    for placement in [ValuePlacement::Inline, ValuePlacement::Vlog] {
        let mut walk = Walk::begun(|_| {});
        let mut options = (*walk.store.default_keyspace().options()).clone();
        options.values.placement = placement;
        walk.store.open_keyspace("default", Some(options)).expect("changes");
        walk.disturb();
        walk.store.compact().expect("compacts");
        walk.ends_well();
    }
}

#[test]
fn a_damaged_value_that_is_read_later_is_told_and_the_walk_goes_on() {
    let storage = Arc::new(SimStorage::new(1));
    let mut walk = Walk::begun_on(Arc::<SimStorage>::clone(&storage), 40, |_| {});
    let name = walk.store.default_keyspace().value_usage().swap_remove(0).file;
    let mut bytes = storage.read_all(&name).expect("is there");
    bytes.iter_mut().skip(4096).for_each(|byte| *byte ^= 1);
    storage.overwrite(&name, &bytes).expect("is there");
    let before = reads(&walk.store).1;
    let error = walk.cursor.next().expect_err("nothing is right");
    assert!(error.to_string().contains("is corrupt"), "{error}");
    assert!(reads(&walk.store).1 - before <= 2, "once where it was, once where it is");
    let first = walk.cursor.key().to_vec();
    assert!(!walk.cursor.valid() && !first.is_empty(), "it tells which entry that is");
    walk.cursor.next().expect_err("nor is the next");
    assert!(walk.cursor.key() > &first[..]);
}

/// A flush appends to each group in as few writes as the group's segments allow. So the batches are
/// at least 4 KiB (a page), as in HashKV, if a flush has that much for the group.
#[test]
fn groups_are_written_in_batches() {
    let store = open(|values| {
        values.groups = 4;
        values.slot_bytes = 64 << 10;
    });
    let written = || {
        let io = store.metrics().io;
        let value = io.iter().find(|one| one.category == "value").expect("values were written");
        (value.writes, value.written_bytes)
    };
    for turn in 0..4 {
        let (writes, bytes) = if turn == 0 { (0, 0) } else { written() };
        for k in 0..KEYS {
            store.put(key(k), value(k, turn)).expect("puts");
        }
        store.flush().expect("flushes");
        let (writes, bytes) = (written().0 - writes, written().1 - bytes);
        // A group's segment may end in between, which takes one more write.
        assert!(writes <= 8, "{writes} writes for 4 groups");
        assert!(bytes / writes >= 4096, "{bytes} bytes in {writes} writes");
    }
}

/// Once, if values were separated, the check whether a key exists used a cursor, which seeks in
/// every run. Now the check works like a get: filters answer for absent keys, and no value is read.
#[test]
fn contains_key_asks_filters_and_reads_no_value() {
    let store = open(|_| ());
    fill(&store);
    let keyspace = store.default_keyspace();
    let snapshot = store.snapshot();
    store.delete(key(7)).expect("deletes");
    let before = (store.metrics().counters, reads(&store).1);
    for k in (0..KEYS).filter(|k| *k != 7) {
        assert!(keyspace.contains_key(key(k)).expect("looks"), "{k}");
        assert!(!keyspace.contains_key(key(k) + "x").expect("looks"), "{k}");
    }
    assert!(!keyspace.contains_key(key(7)).expect("looks"));
    assert!(keyspace.contains_key_at(key(7), &snapshot).expect("looks"));
    let after = store.metrics().counters;
    assert_eq!((after.values_read, reads(&store).1), (before.0.values_read, before.1));
    assert!(after.filter_negatives - before.0.filter_negatives >= KEYS - 10);
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(keyspace, "own", "").expect("puts");
    transaction.delete(keyspace, key(1)).expect("deletes");
    let there = |key: &str| transaction.contains_key(keyspace, key).expect("looks");
    assert_eq!(
        [there("own"), there(&key(1)), there(&key(2)), there(&key(7))],
        [true, false, true, false]
    );
}

/// A collection that does not fit in memory reads its survivors again. They are neighbours, and a
/// separate read for each would be a separate wait for each.
#[test]
fn a_collection_reads_neighbours_together() {
    const RECORDS: u64 = 4_000;
    type Change = fn(&mut ValueOptions);
    let placements: [(&str, Change); 3] = [
        ("stable", |values| values.groups = 1),
        ("written back", |values| (values.groups, values.gc_pointers) = (1, GcPointers::Writeback)),
        ("log", |values| values.placement = ValuePlacement::Vlog),
    ];
    for (place, change) in placements {
        let mut values = ValueOptions::default()
            .placement(ValuePlacement::HashGrouped)
            .separate_at(100)
            .slot_bytes(64 << 10);
        change(&mut values);
        let keyspace = KeyspaceOptions::default().values(values);
        let options = Options::default()
            .background(Background::Manual)
            .memory_budget_bytes(2 << 20)
            .keyspace(keyspace);
        let store = Store::open_on(Arc::new(SimStorage::new(1)), options).expect("opens");
        let put = |k| store.put(format!("{k:06}"), value(k, 0)).expect("puts");
        (0..RECORDS).for_each(put);
        store.flush().expect("flushes");
        (0..RECORDS).filter(|k| k % 4 == 0).for_each(put);
        store.flush().expect("flushes");
        let (_, before) = reads(&store);
        store.collect_values().expect("collects");
        let (_, after) = reads(&store);
        let copied = store.metrics().counters.value_gc_bytes_written / 1_000;
        assert!(copied > RECORDS / 2, "{place}: {copied} records copied");
        assert!(after - before < copied / 8, "{place}: {} reads for {copied}", after - before);
        store.verify().expect("is whole");
    }
}
