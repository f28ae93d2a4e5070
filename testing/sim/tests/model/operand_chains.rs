//! Long chains of operands on one key: what each way to read or fold them costs, by counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone::unstable;
use runstone::{
    Background, Keyspace, KeyspaceOptions, MergeOperator, Options, ReadOptions, Store,
    TransactionOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::random::Random;

/// Bytes of an operand: some thirty in a block.
const OPERAND_BYTES: usize = 100;

/// An operator that counts. Each operand is the number after that of the previous operand. No two
/// operands join into one.
#[derive(Debug, Default)]
struct Relay {
    /// How many operands the operator was given.
    given: AtomicU64,
}

impl Relay {
    fn number(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes[..8].try_into().expect("a number"))
    }

    fn operand(number: u64) -> [u8; OPERAND_BYTES] {
        let mut operand = [b'.'; OPERAND_BYTES];
        operand[..8].copy_from_slice(&number.to_le_bytes());
        operand
    }
}

impl MergeOperator for Relay {
    fn name(&self) -> &str {
        "relay"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        self.given.fetch_add(operands.len() as u64, Relaxed);
        let mut last = base.map_or(0, Relay::number);
        for operand in operands {
            let next = Relay::number(operand);
            if next != last + 1 {
                return Err(format!("{next} follows on {last}"));
            }
            last = next;
        }
        Ok(last.to_le_bytes().to_vec())
    }
}

/// Where the operands are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Memtable,
    OneTable,
    ManyTables,
}

/// A store with a chain of operands on key `m`, between two other keys.
struct Scene {
    storage: SimStorage,
    store: Store,
    relay: Arc<Relay>,
    count: u64,
}

impl Scene {
    fn new(place: Place, count: u64) -> Scene {
        let mut keyspace = KeyspaceOptions::default().merge_operator("relay");
        keyspace.write_buffer_bytes = 64 << 20;
        let relay = Arc::new(Relay::default());
        let options = Options::default()
            .background(Background::Manual)
            .keyspace(keyspace)
            .merge_operators(vec![Arc::clone(&relay) as Arc<dyn MergeOperator>]);
        let storage = SimStorage::new(1);
        let open = || Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
        let mut store = open();
        for key in ["a", "m", "z"] {
            store.put(key, 0_u64.to_le_bytes()).expect("puts");
        }
        store.compact().expect("compacts");
        let parts = match place {
            Place::Memtable | Place::OneTable => 1,
            Place::ManyTables => 8,
        };
        for number in 1..=count {
            let keyspace = store.default_keyspace();
            keyspace.merge("m", Relay::operand(number)).expect("merges");
            let is_part = number % count.div_ceil(parts) == 0 || number == count;
            if is_part && place != Place::Memtable {
                store.flush().expect("flushes");
            }
        }
        if place != Place::Memtable {
            // Blocks that a flush wrote are not in the cache after a reopen.
            store.close().expect("closes");
            store = open();
        }
        Scene { storage, store, relay, count }
    }

    fn keyspace(&self) -> &Keyspace {
        self.store.default_keyspace()
    }

    /// What a read does: operands and blocks that it visited, operands that the operator got,
    /// hidden entries that it skipped, and reads of files.
    fn cost(&self, read: impl FnOnce(&Scene)) -> u64 {
        let before = (self.store.metrics().counters, self.relay.given.load(Relaxed));
        let reads = self.storage.reads();
        read(self);
        let counters = self.store.metrics().counters.since(&before.0);
        let given = self.relay.given.load(Relaxed) - before.1;
        assert!(given == 0 || given == self.count, "the operator gets each operand once: {given}");
        counters.operands_read
            + counters.blocks_searched
            + counters.hidden_passed
            + given
            + (self.storage.reads() - reads)
    }
}

/// A way to read the chain.
type Read = fn(&Scene);

fn is_last(scene: &Scene, value: &[u8]) {
    assert_eq!(Relay::number(value), scene.count);
}

fn by_snapshot(scene: &Scene) {
    let snapshot = scene.store.snapshot();
    is_last(scene, &scene.keyspace().get_at("m", &snapshot).expect("reads").expect("is there"));
}

fn by_cursor_up(scene: &Scene) {
    let options = ReadOptions::default().fill_cache(false);
    let mut cursor = scene.keyspace().cursor(options).expect("opens");
    cursor.seek_to_first().expect("seeks");
    cursor.next().expect("steps");
    is_last(scene, cursor.value());
    cursor.next().expect("steps");
    assert_eq!(cursor.key(), b"z");
}

fn by_cursor_down(scene: &Scene) {
    let options = ReadOptions::default().fill_cache(false);
    let mut cursor = scene.keyspace().cursor(options).expect("opens");
    cursor.seek("z").expect("seeks");
    cursor.prev().expect("steps");
    is_last(scene, cursor.value());
    cursor.prev().expect("steps");
    assert_eq!(cursor.key(), b"a");
}

fn by_transaction(scene: &Scene) {
    let transaction = scene.store.begin(TransactionOptions::default()).expect("begins");
    let mut cursor = transaction.cursor(scene.keyspace(), ReadOptions::default()).expect("opens");
    cursor.seek("b").expect("seeks");
    is_last(scene, cursor.value());
    cursor.next().expect("steps");
    assert_eq!(cursor.key(), b"z");
}

/// This must be the last of the reads, because it writes the value back.
fn by_get(scene: &Scene) {
    is_last(scene, &scene.keyspace().get("m").expect("reads").expect("is there"));
}

/// Once, a read of 16,000 operands in a table took seconds: the look-up of each began at the first
/// block of their key. Now each operand costs the same in a chain of any length, wherever it is and
/// however it is read.
#[test]
fn an_operand_costs_the_same_in_a_chain_of_any_length() {
    let reads: [(&str, Read); 5] = [
        ("snapshot", by_snapshot),
        ("cursor up", by_cursor_up),
        ("cursor down", by_cursor_down),
        ("transaction", by_transaction),
        ("get", by_get),
    ];
    for place in [Place::Memtable, Place::OneTable, Place::ManyTables] {
        let mut costs: Vec<(u64, Vec<u64>)> = Vec::new();
        for count in [10, 1_000, 100_000] {
            let scene = Scene::new(place, count);
            costs.push((count, reads.iter().map(|(_, read)| scene.cost(read)).collect()));
        }
        for pair in costs.windows(2) {
            let [(few, less), (many, more)] = pair else { continue };
            for ((name, _), (less, more)) in reads.iter().zip(less.iter().zip(more)) {
                let place = format!("{place:?}, by {name}: {few} cost {less}, {many} cost {more}");
                assert!(more * few <= 2 * less * many, "{place}");
                assert!(more >= many, "{place}: they are counted");
            }
        }
    }
}

/// A step away from a chain does not walk through it.
#[test]
fn a_step_off_a_chain_costs_the_same_at_any_length() {
    for place in [Place::OneTable, Place::ManyTables] {
        for count in [10, 1_000, 100_000] {
            let scene = Scene::new(place, count);
            let options = ReadOptions::default().fill_cache(false);
            let mut cursor = scene.keyspace().cursor(options).expect("opens");
            cursor.seek("m").expect("seeks");
            let before = scene.storage.reads();
            cursor.next().expect("steps");
            assert_eq!(cursor.key(), b"z");
            let reads = scene.storage.reads() - before;
            assert!(reads < 50, "{place:?}: {reads} reads of files for {count} operands");
        }
    }
}

/// A compaction gives the operator each operand once.
#[test]
fn a_compaction_folds_a_chain_at_once() {
    for place in [Place::OneTable, Place::ManyTables] {
        for count in [10, 1_000, 100_000] {
            let scene = Scene::new(place, count);
            scene.store.compact().expect("compacts");
            let counters = scene.store.metrics().counters;
            let given = scene.relay.given.load(Relaxed);
            assert_eq!((counters.operands_folded, given), (count, count), "{place:?}");
            by_get(&scene);
            assert_eq!(entries(&scene.store), 3, "{place:?}: {count} are folded");
        }
    }
}

/// Once, a cursor or snapshot between a base and its operands kept all later operands from being
/// folded: every compaction wrote the whole chain again, and writers had to wait for it.
#[test]
fn a_standing_reader_leaves_no_chain_behind() {
    for first in [0, 1, 300] {
        let scene = Scene::new(Place::OneTable, first.max(1));
        let (snapshot, mut last) = (scene.store.snapshot(), first.max(1));
        let seen = last;
        let mut cursor = scene.keyspace().cursor(ReadOptions::default()).expect("opens");
        cursor.seek("m").expect("seeks");
        for round in 0..6 {
            for _ in 0..1_000 {
                last += 1;
                scene.keyspace().merge("m", Relay::operand(last)).expect("merges");
            }
            scene.store.compact().expect("compacts");
            let then = scene.keyspace().get_at("m", &snapshot).expect("reads").expect("is there");
            assert_eq!(Relay::number(&then), seen);
            assert_eq!(Relay::number(cursor.value()), seen);
            // A get here would write the value back.
            let newest = scene.store.snapshot();
            let now = scene.keyspace().get_at("m", &newest).expect("reads").expect("is there");
            assert_eq!(Relay::number(&now), last);
            // The first compaction writes the base for the older readers, and later ones fold onto
            // it.
            let most = if round == 0 { 1_004 } else { 4 };
            assert!(entries(&scene.store) <= most, "{first}, {round}: {}", entries(&scene.store));
        }
    }
}

/// Even with only one operand between two readers, compactions make the value that newer operands
/// are folded onto.
#[test]
fn one_operand_between_two_readers_keeps_no_chain_apart() {
    let scene = Scene::new(Place::OneTable, 1);
    let first = scene.store.snapshot();
    scene.keyspace().merge("m", Relay::operand(2)).expect("merges");
    let second = scene.store.snapshot();
    let mut last = 2;
    for round in 0..6 {
        for _ in 0..1_000 {
            last += 1;
            scene.keyspace().merge("m", Relay::operand(last)).expect("merges");
        }
        scene.store.compact().expect("compacts");
        for (snapshot, seen) in [(&first, 1), (&second, 2), (&scene.store.snapshot(), last)] {
            let value = scene.keyspace().get_at("m", snapshot).expect("reads").expect("is there");
            assert_eq!(Relay::number(&value), seen);
        }
        assert!(round < 2 || entries(&scene.store) <= 5, "{round}: {}", entries(&scene.store));
    }
}

/// Ten snapshots of a large value with small operands between them do not make ten copies of it.
#[test]
fn small_operands_do_not_copy_a_large_base() {
    let storage = SimStorage::new(1);
    let options = Options::default()
        .background(Background::Manual)
        .keyspace(KeyspaceOptions::default().merge_operator("relay"))
        .merge_operators(vec![Arc::new(Relay::default())]);
    let store = Store::open_on(Arc::new(storage), options).expect("opens");
    let keyspace = store.default_keyspace();
    // Bytes that do not compress, after the number.
    let mut random = Random::new(1);
    let mut base: Vec<u8> = (0..1 << 20).map(|_| random.below(256) as u8).collect();
    base[..8].copy_from_slice(&0_u64.to_le_bytes());
    store.put("m", &base).expect("puts");
    let mut snapshots = Vec::new();
    for round in 0..10 {
        snapshots.push(store.snapshot());
        for number in [1, 2] {
            keyspace.merge("m", Relay::operand(2 * round + number)).expect("merges");
        }
        store.compact().expect("compacts");
    }
    let bytes: u64 = unstable::shape(keyspace).tables().map(|(_, table)| table.bytes).sum();
    assert!(bytes < 3 << 20, "{bytes} bytes of tables");
}

/// Below the operands is a delete, a value that expires, a separated value, or a value that a range
/// delete hides from all readers or from newer ones. It stays for a reader who sees it.
#[test]
fn operands_are_folded_onto_what_older_readers_see() {
    for below in ["delete", "range", "newer range", "expiring", "apart"] {
        let relay = Arc::new(Relay::default());
        let keyspace = KeyspaceOptions::from_toml(
            "merge_operator = \"relay\"\n[values]\nplacement = \"hash-grouped\"\nseparate_at = 8",
        );
        let options = Options::default()
            .background(Background::Manual)
            .keyspace(keyspace.expect("options"))
            .merge_operators(vec![Arc::clone(&relay) as Arc<dyn MergeOperator>]);
        let store = Store::open_on(Arc::new(SimStorage::new(1)), options).expect("opens");
        let keyspace = store.default_keyspace();
        store.put("m", 7_u64.to_le_bytes()).expect("puts");
        match below {
            "delete" => store.delete("m").expect("deletes"),
            "range" => keyspace.delete_range("a".."z").expect("deletes"),
            "expiring" => {
                let hour = std::time::Duration::from_secs(3600);
                keyspace.put_with_ttl("m", 0_u64.to_le_bytes(), hour).expect("puts");
            }
            "apart" => store.put("m", 0_u64.to_le_bytes()).expect("puts"),
            _ => {}
        }
        let snapshot = store.snapshot();
        let then = store.get("m").expect("reads").map(|value| value.to_vec());
        if below == "newer range" {
            keyspace.delete_range("a".."z").expect("deletes");
        }
        let mut last = 0;
        for round in 0..3 {
            for _ in 0..100 {
                last += 1;
                keyspace.merge("m", Relay::operand(last)).expect("merges");
            }
            store.compact().expect("compacts");
            let newest = store.snapshot();
            let now = keyspace.get_at("m", &newest).expect("reads").expect("is there");
            assert_eq!(Relay::number(&now), last, "{below}");
            let seen = keyspace.get_at("m", &snapshot).expect("reads").map(|value| value.to_vec());
            assert_eq!(seen, then, "{below}");
            // Operands on a value that expires are not folded onto it.
            let most = if below == "expiring" { 100 * round + 101 } else { 3 };
            assert!(round == 0 || entries(&store) <= most, "{below}: {}", entries(&store));
        }
        drop(snapshot);
        store.compact().expect("compacts");
        let now = keyspace.get("m").expect("reads").expect("is there");
        assert_eq!(Relay::number(&now), last, "{below}");
        assert!(store.verify().expect("verifies").is_clean());
    }
}

fn entries(store: &Store) -> u64 {
    unstable::shape(store.default_keyspace()).tables().map(|(_, table)| table.entries).sum()
}
