//! Entries that expire: when they are hidden, from whom, and how their space comes back.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use runstone::policy::custom;
use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Batch, Clock, Compression, Expiry, GcPointers, Keyspace, KeyspaceOptions, Options,
    ReadOptions, Store, TransactionOptions, ValuePlacement, WriteOptions,
};
use runstone_policy::registry;
use runstone_sim::clock::TestClock;
use runstone_sim::found::holds_and_finds;
use runstone_sim::random::Random;
use runstone_simulator::{FRESH_KEYS, KeyOrder, SimWorkload, Simulator};

fn seconds(count: u64) -> u64 {
    count * 1000
}

struct World {
    clock: Arc<TestClock>,
    storage: MemoryStorage,
    options: Options,
    store: Option<Store>,
}

impl World {
    fn new(change: impl FnOnce(&mut KeyspaceOptions)) -> World {
        let clock = TestClock::at(seconds(1000));
        let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
        unstable::numbers_mut(&mut keyspace).table_bytes = 64 << 10;
        change(&mut keyspace);
        let options = Options::default()
            .background(Background::Manual)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .keyspace(keyspace);
        let mut world = World { clock, storage: MemoryStorage::new(), options, store: None };
        world.reopen();
        world
    }

    fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().expect("closes");
        }
        let store = Store::open_on(Arc::new(self.storage.clone()), self.options.clone());
        self.store = Some(store.expect("opens"));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn keyspace(&self) -> &Keyspace {
        self.store().default_keyspace()
    }

    fn put(&self, key: &str, value: &str, ttl: u64) {
        self.keyspace().put_with_ttl(key, value, Duration::from_secs(ttl)).expect("writes");
    }

    fn get(&self, key: &str) -> Option<String> {
        let value = self.keyspace().get(key).expect("reads");
        let found = self.keyspace().multi_get(&[key]).expect("reads").swap_remove(0);
        assert_eq!(value.as_deref(), found.as_deref());
        value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
    }

    fn keys(&self, options: ReadOptions) -> Vec<String> {
        let mut keys = Vec::new();
        let mut cursor = self.keyspace().cursor(options).expect("opens");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        cursor.seek_to_first().expect("seeks");
        while cursor.valid() {
            keys.push(text(cursor.key()));
            cursor.next().expect("steps");
        }
        let mut back = Vec::new();
        cursor.seek_to_last().expect("seeks");
        while cursor.valid() {
            back.push(text(cursor.key()));
            cursor.prev().expect("steps");
        }
        back.reverse();
        assert_eq!(keys, back);
        keys
    }

    fn entries(&self) -> u64 {
        unstable::shape(self.keyspace()).tables().map(|(_, table)| table.entries).sum()
    }
}

/// Options that keep values inline, in hash groups, in hash groups whose pointers are written back,
/// without and with a cold stream, and in a log.
fn placements() -> [fn(&mut KeyspaceOptions); 5] {
    fn apart(keyspace: &mut KeyspaceOptions, placement: ValuePlacement, pointers: GcPointers) {
        (keyspace.values.placement, keyspace.values.gc_pointers) = (placement, pointers);
        (keyspace.values.separate_at, keyspace.values.cold_stream) = (4, false);
        (keyspace.values.groups, keyspace.values.slot_bytes) = (2, 4096);
        keyspace.values.vlog_chunk_bytes = 8192;
    }
    [
        |_| (),
        |keyspace| apart(keyspace, ValuePlacement::HashGrouped, GcPointers::Stable),
        |keyspace| apart(keyspace, ValuePlacement::HashGrouped, GcPointers::Writeback),
        |keyspace| {
            apart(keyspace, ValuePlacement::HashGrouped, GcPointers::Writeback);
            keyspace.values.cold_stream = true;
        },
        |keyspace| apart(keyspace, ValuePlacement::Vlog, GcPointers::Stable),
    ]
}

#[test]
fn an_expired_entry_is_hidden_wherever_it_lies() {
    for change in placements() {
        let mut world = World::new(change);
        for step in 0..6 {
            world.clock.set(seconds(1000));
            if step > 0 {
                world.reopen();
            }
            world.keyspace().put("old", "older").expect("writes");
            world.put("old", "newer", 10);
            world.put("long", "12345678", 100);
            world.keyspace().put("plain", "abcdefgh").expect("writes");
            match step {
                1 => world.store().flush().expect("flushes"),
                2 => world.store().compact().expect("compacts"),
                3 => world.reopen(),
                _ => {}
            }
            assert_eq!(world.get("old").as_deref(), Some("newer"));
            assert_eq!(world.keys(ReadOptions::default()), ["long", "old", "plain"]);
            world.clock.set(seconds(1009));
            assert_eq!(world.get("old").as_deref(), Some("newer"));
            world.clock.set(seconds(1010));
            if step == 4 {
                world.store().flush().expect("flushes");
            }
            if step == 5 {
                world.store().compact().expect("compacts");
            }
            assert_eq!(world.get("old"), None, "what it replaced stays hidden");
            assert_eq!(world.keys(ReadOptions::default()), ["long", "plain"]);
            assert_eq!(world.get("long").as_deref(), Some("12345678"));
            assert!(world.store().verify().expect("verifies").is_clean());
        }
        world.clock.set(seconds(2000));
        world.store().compact().expect("compacts");
        assert_eq!(world.entries(), 1, "only the plain entry is left");
        world.clock.set(seconds(1));
        world.reopen();
        assert_eq!(world.keys(ReadOptions::default()), ["plain"], "nothing comes back");
    }
}

/// An expired entry that a compaction finds above an older version continues to hide it.
#[test]
fn what_it_replaced_stays_hidden_below() {
    holds_and_finds(Bug::ExpiredDroppedEarly, || {
        let world = World::new(|keyspace| {
            keyspace.policy = "universal".into();
            unstable::numbers_mut(keyspace).l0_trigger = 3;
        });
        world.keyspace().put("old", "older").expect("writes");
        // These entries make a run so large that the merges of small runs leave it alone.
        (0..2000).for_each(|i| world.put(&format!("large{i}"), &"7".repeat(100), 1 << 30));
        world.store().compact().expect("compacts");
        world.put("old", "newer", 10);
        world.store().flush().expect("flushes");
        world.clock.set(seconds(1010));
        let expired = || world.store().metrics().counters.entries_expired;
        for round in 0..20 {
            if expired() > 0 {
                break;
            }
            // These keys surround `old`, so that the table of `old` is not moved as it is.
            for side in ["a", "z"] {
                world.put(&format!("{side}{round}"), "", 1 << 30);
            }
            world.store().flush().expect("flushes");
            world.store().wait_idle().expect("works");
        }
        assert_eq!(expired(), 1, "a compaction has met it");
        assert_eq!(world.get("old"), None);
    });
}

/// A table whose entries all expired leaves the tree unread, by what it says of their expiry.
#[test]
fn a_table_stays_until_its_last_entry_expires() {
    holds_and_finds(Bug::ExpiriesNotedEarly, || {
        let world = World::new(|_| ());
        (0..100).for_each(|i| world.put(&format!("short{i}"), "1", 10 + i));
        world.put("long", "2", 3000);
        world.store().flush().expect("flushes");
        world.clock.set(seconds(2500));
        while world.store().run_one_job().expect("runs") {}
        assert_eq!(world.get("long").as_deref(), Some("2"), "it lives until 4000");
        world.clock.set(seconds(4001));
        while world.store().run_one_job().expect("runs") {}
        assert_eq!(world.entries(), 0, "the table is gone");
    });
}

#[test]
fn what_a_cursor_saw_stays_readable_until_it_ends() {
    holds_and_finds(Bug::ExpiryIgnoresSnapshots, || {
        for change in placements() {
            let world = World::new(change);
            for i in 0..200 {
                world.put(&format!("{i:03}"), &format!("value {i}"), 10 + i);
            }
            world.store().flush().expect("flushes");
            let snapshot = world.store().snapshot();
            let mut cursor = world.keyspace().cursor(ReadOptions::default()).expect("opens");
            cursor.seek(b"050").expect("seeks");
            world.clock.set(seconds(2000));
            assert!(
                world.keys(ReadOptions::default().at(&snapshot)).is_empty(),
                "past for snapshots"
            );
            assert!(world.keyspace().get_at("050", &snapshot).expect("reads").is_none());
            world.store().compact().expect("compacts");
            world.store().collect_values().expect("collects");
            for i in 50..200 {
                assert_eq!(cursor.key(), format!("{i:03}").as_bytes());
                assert_eq!(cursor.value(), format!("value {i}").as_bytes());
                cursor.next().expect("steps");
            }
            assert!(!cursor.valid());
            drop((cursor, snapshot));
            world.store().compact().expect("compacts");
            assert_eq!(world.entries(), 0);
        }
    });
}

#[test]
fn a_table_that_is_past_leaves_unread() {
    let world = World::new(|keyspace| keyspace.ttl_seconds = 100);
    for round in 0..4 {
        world.clock.set(seconds(1000 + round));
        for i in 0..2000 {
            world.keyspace().put(format!("{i:05}"), [9; 100]).expect("writes");
        }
        world.store().flush().expect("flushes");
        world.store().wait_idle().expect("works");
    }
    assert!(world.entries() >= 2000);
    let read = || world.store().metrics().counters.compaction_bytes_read;
    let before = read();
    let snapshot = world.store().snapshot();
    world.clock.set(seconds(1200));
    world.store().wait_idle().expect("works");
    assert!(world.entries() >= 2000, "the snapshot keeps what it saw");
    drop(snapshot);
    // The drop alone notifies nobody; the next change or the next check does.
    world.keyspace().put_with_ttl("later", "", Duration::from_secs(1 << 40)).expect("writes");
    world.store().flush().expect("flushes");
    world.store().wait_idle().expect("works");
    assert_eq!(world.entries(), 1);
    assert_eq!(read(), before, "no table was read");
}

#[test]
fn a_settled_tree_is_looked_at_again_when_a_table_is_past() {
    let world = World::new(|keyspace| keyspace.ttl_seconds = 100);
    for i in 0..1000 {
        world.keyspace().put(format!("{i:05}"), [9; 100]).expect("writes");
    }
    world.store().flush().expect("flushes");
    world.store().wait_idle().expect("works");
    world.clock.set(seconds(1099));
    world.store().wait_idle().expect("works");
    assert_eq!(world.entries(), 1000);
    world.clock.set(seconds(1100));
    world.store().wait_idle().expect("works");
    assert_eq!(world.entries(), 0);
    assert_eq!(world.store().metrics().counters.compaction_bytes_read, 0);
}

/// No reader of an open store sees an entry that an earlier reader found expired.
#[test]
fn a_clock_that_is_set_back_shows_nothing_again() {
    holds_and_finds(Bug::ClockGoesBack, || {
        let world = World::new(|_| ());
        world.put("short", "value", 10);
        world.clock.set(seconds(1010));
        assert_eq!(world.get("short"), None);
        world.clock.set(seconds(1000));
        assert_eq!(world.get("short"), None);
        assert!(world.keys(ReadOptions::default()).is_empty());
        world.put("later", "value", 10);
        world.clock.set(seconds(1019));
        assert_eq!(world.get("later").as_deref(), Some("value"), "counted from the later time");
    });
}

/// A cursor that began before entries expired still sees them after later walks have passed them as
/// expired.
#[test]
fn a_cursor_that_began_earlier_sees_what_others_pass() {
    let world = World::new(|_| ());
    for i in 0..100u64 {
        world.put(&format!("{i:03}"), "value", if i < 50 { 10 } else { 100 });
    }
    world.clock.set(seconds(1010));
    let mut early = world.keyspace().cursor(ReadOptions::default()).expect("opens");
    early.seek_to_first().expect("seeks");
    assert_eq!(early.key(), b"050");
    world.clock.set(seconds(2000));
    for _ in 0..4 {
        assert!(world.keys(ReadOptions::default()).is_empty());
    }
    early.seek_to_first().expect("seeks");
    assert_eq!(early.key(), b"050", "it keeps its time");
    early.seek_to_last().expect("seeks");
    assert_eq!(early.key(), b"099");
}

/// The values of an all-expired keyspace are dead records, whose space comes back.
#[test]
fn expired_values_die_in_their_groups() {
    holds_and_finds(Bug::ExpiredValuesLive, || {
        let world = World::new(|keyspace| {
            placements()[1](keyspace);
            keyspace.ttl_seconds = 100;
        });
        for i in 0..2000 {
            world.keyspace().put(format!("{i:05}"), [9; 1000]).expect("writes");
        }
        world.store().flush().expect("flushes");
        let used = |world: &World| -> u64 {
            world.keyspace().value_usage().iter().map(|usage| usage.disk_bytes).sum()
        };
        let before = used(&world);
        world.clock.set(seconds(2000));
        world.store().compact().expect("compacts");
        assert!(used(&world) * 20 < before, "{} of {before}", used(&world));
    });
}

#[test]
fn an_operand_counts_from_nothing_once_its_base_has_expired() {
    for flushes in [false, true] {
        let world = World::new(|keyspace| keyspace.merge_operator = "append(,)".into());
        world.put("k", "base", 10);
        world.keyspace().merge("k", "a").expect("writes");
        if flushes {
            world.store().flush().expect("flushes");
            world.keyspace().merge("k", "b").expect("writes");
            world.store().compact().expect("compacts");
            assert_eq!(world.entries(), 2, "the operands are one, and apart from their base");
        } else {
            world.keyspace().merge("k", "b").expect("writes");
        }
        assert_eq!(world.get("k").as_deref(), Some("base,a,b"));
        world.clock.set(seconds(1010));
        assert_eq!(world.get("k").as_deref(), Some("a,b"));
        world.store().compact().expect("compacts");
        assert_eq!(world.get("k").as_deref(), Some("a,b"));
        assert_eq!(world.entries(), 1, "folded");
    }
}

#[test]
fn batches_transactions_and_conditional_writes_expire() {
    let world = World::new(|keyspace| keyspace.ttl_seconds = 10);
    let (store, keyspace) = (world.store(), world.keyspace());
    let ttl = Duration::from_secs(20);
    let mut batch = Batch::new();
    batch.put(keyspace, "a", "1").expect("adds");
    batch.put_with_ttl(keyspace, "b", "1", ttl).expect("adds");
    store.write(&batch, WriteOptions::default()).expect("writes");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(keyspace, "c", "1").expect("writes");
    transaction.put_with_ttl(keyspace, "d", "1", ttl).expect("writes");
    transaction.commit(WriteOptions::default()).expect("commits");
    assert!(keyspace.put_if_absent("e", "1").expect("writes").is_none());
    let at = |key: &str| match keyspace.expiry(key).expect("reads") {
        Some(Expiry::At(at)) => at.duration_since(UNIX_EPOCH).expect("after").as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(["a", "b", "c", "d", "e"].map(at), [1010, 1020, 1010, 1020, 1010]);
    world.clock.set(seconds(1010));
    assert_eq!(world.keys(ReadOptions::default()), ["b", "d"]);
    assert!(keyspace.put_if_absent("a", "2").expect("writes").is_none(), "it has expired");
    assert_eq!(keyspace.expiry("c").expect("reads"), None);
    let options = (*keyspace.options()).clone().ttl_seconds(0);
    store.open_keyspace("default", Some(options)).expect("changes");
    keyspace.put("a", "3").expect("writes");
    assert_eq!(keyspace.expiry("a").expect("reads"), Some(Expiry::Never));
}

/// Once, a batch accepted only times to live, so an entry with an absolute expiry time, such as an
/// imported entry, could not be written.
#[test]
fn a_batch_takes_instants() {
    let world = World::new(|keyspace| keyspace.ttl_seconds = 10);
    let (store, keyspace) = (world.store(), world.keyspace());
    let at = |seconds| Expiry::At(UNIX_EPOCH + Duration::from_secs(seconds));
    keyspace.put("past", "old").expect("writes");
    let mut batch = Batch::new();
    batch.put_with_expiry(keyspace, "late", "1", at(5000)).expect("adds");
    batch.put_with_expiry(keyspace, "past", "1", at(999)).expect("adds");
    batch.put_with_expiry(keyspace, "own", "1", Expiry::Never).expect("adds");
    store.write(&batch, WriteOptions::default()).expect("writes");
    assert_eq!(keyspace.expiry("late").expect("reads"), Some(at(5000)));
    assert_eq!(keyspace.expiry("own").expect("reads"), Some(at(1010)));
    assert_eq!(world.get("past"), None, "it hides the older value");
    assert_eq!(world.keys(ReadOptions::default()), ["late", "own"]);
}

#[test]
fn a_senseless_time_to_live_is_refused() {
    let world = World::new(|_| ());
    let refused = |ttl| {
        let error = world.keyspace().put_with_ttl("k", "v", ttl).expect_err("refused");
        let batched = Batch::new().put_with_ttl(world.keyspace(), "k", "v", ttl);
        assert_eq!(batched.expect_err("refused").to_string(), error.to_string());
        error.to_string()
    };
    assert!(refused(Duration::ZERO).contains("has ended when the write begins"));
    assert!(refused(Duration::from_micros(999)).contains("has ended"));
    assert!(refused(Duration::MAX).contains("ends beyond the clock"));
    assert!(refused(Duration::from_millis(u64::MAX)).contains("ends beyond the clock"));
    assert_eq!(world.get("k"), None);
    let error = KeyspaceOptions::from_toml("ttl_seconds = 999_999_999_999_999").expect_err("long");
    assert!(error.to_string().contains("ttl_seconds"), "{error}");
}

/// The simulator of policies predicts what the engine does with random keys that expire: the bytes
/// compacted to within a tenth, and the bytes stored to within a fifth.
#[test]
fn the_simulator_agrees_with_the_engine() {
    const FLUSHES: u64 = 160;
    const TTL_FLUSHES: u64 = 24;
    const ENTRIES: u64 = 500;
    const VALUE_BYTES: usize = 104;
    for name in ["fragmented-leveling", "leveling", "tiering", "universal", "garnering"] {
        let world = World::new(|keyspace| {
            keyspace.policy = name.into();
            keyspace.compression = vec![Compression::None];
            keyspace.ttl_seconds = TTL_FLUSHES;
            let shape = unstable::numbers_mut(keyspace);
            shape.l0_trigger = 4;
            shape.base_bytes = 256 << 10;
            shape.table_bytes = 64 << 10;
        });
        let mut random = Random::new(11);
        for flush in 1..=FLUSHES {
            world.clock.set(seconds(1000 + flush));
            for _ in 0..ENTRIES {
                let key = random.draw().to_be_bytes();
                world.keyspace().put(key, [flush as u8; VALUE_BYTES]).expect("writes");
            }
            world.store().flush().expect("flushes");
            world.store().wait_idle().expect("works");
        }
        let counters = world.store().metrics().counters;
        let shape = custom::options_of(&world.keyspace().options()).clone();
        let entry_bytes = counters.flush_bytes_written / FLUSHES / ENTRIES;
        let workload = SimWorkload {
            flush_bytes: entry_bytes * ENTRIES,
            entry_bytes,
            key_space: FRESH_KEYS,
            order: KeyOrder::Uniform,
            seed: 1,
            prefix_count: 1,
        };
        let policy = registry::find(name).expect("known");
        let mut simulator = Simulator::new(policy, shape, workload);
        simulator = simulator.with_expiry(TTL_FLUSHES * entry_bytes * ENTRIES);
        let report = simulator.run(FLUSHES).expect("sound plans");
        let held: u64 = report.levels.iter().map(|level| level.bytes).sum();
        // With flushes of 470 to 530 entries the model writes 0.98 to 1.02 of the engine's bytes,
        // and stores 1.08 to 1.15 under fragmented leveling, 0.99 to 1.13 under garnering. Why it
        // stores more is not known.
        let figures = [
            (counters.compaction_bytes_written, report.compacted_bytes, 10),
            (world.entries() * entry_bytes, held, 5),
        ];
        for (engine, model, part) in figures {
            let apart = engine.abs_diff(model) * part;
            assert!(apart < engine, "{name}: {engine}, and {model} by model");
        }
    }
}

/// A cursor has one time, which also counts for the values below operands.
#[test]
fn a_merged_value_does_not_change_under_a_cursor() {
    let world = World::new(|keyspace| keyspace.merge_operator = "append(,)".into());
    world.put("a", "first", 10);
    world.put("k", "base", 10);
    world.keyspace().merge("k", "operand").expect("writes");
    let mut cursor = world.keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek_to_first().expect("seeks");
    assert_eq!(cursor.key(), b"a");
    world.clock.set(seconds(2000));
    cursor.next().expect("steps");
    assert_eq!((cursor.key(), cursor.value()), (&b"k"[..], &b"base,operand"[..]));
    assert_eq!(world.get("k").as_deref(), Some("operand"), "a get has the time of now");
}

/// Once, for operands merged into a value that expires, `expiry` said that the result would never
/// expire, yet the result changed when that value expired. Now `expiry` returns the time of that
/// change, wherever the operands are.
#[test]
fn a_merged_value_tells_when_its_base_expires() {
    let world = World::new(|keyspace| keyspace.merge_operator = "append(,)".into());
    let store = world.store.as_ref().expect("open");
    let keyspace = store.default_keyspace();
    let at = |seconds| Some(Expiry::At(UNIX_EPOCH + Duration::from_secs(seconds)));
    keyspace.put_with_ttl("k", "a", Duration::from_secs(10)).expect("writes");
    keyspace.merge("k", "b").expect("merges");
    keyspace.merge("fresh", "b").expect("merges");
    for place in ["in memory", "in a table", "folded"] {
        assert_eq!(keyspace.expiry("k").expect("reads"), at(1010), "{place}");
        assert_eq!(keyspace.expiry("fresh").expect("reads"), Some(Expiry::Never), "{place}");
        for is_upward in [true, false] {
            let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
            match is_upward {
                true => cursor.seek("k").expect("seeks"),
                false => cursor.seek_to_last().expect("seeks"),
            }
            assert_eq!((cursor.key(), cursor.value()), (&b"k"[..], &b"a,b"[..]));
            assert_eq!(Some(cursor.expiry().expect("reads")), at(1010), "{place}");
        }
        match place {
            "in memory" => store.flush().expect("flushes"),
            _ => store.compact().expect("compacts"),
        }
    }
    world.clock.set(seconds(1010));
    assert_eq!(keyspace.get("k").expect("reads").as_deref(), Some(&b"b"[..]));
    assert_eq!(keyspace.expiry("k").expect("reads"), Some(Expiry::Never));
}
