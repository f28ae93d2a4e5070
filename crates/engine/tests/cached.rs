//! Gets that read no file: whatever they answer, a get gives the same answer. They never read or
//! open a file, and never wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use runstone::policy::Policy;
use runstone::storage::{
    Category, Counters, FileInfo, LockMode, MemoryStorage, Result as StorageResult, Storage,
    StorageFile, StorageLock,
};
use runstone::{
    Background, CachedGet, Error, Keyspace, KeyspaceOptions, Options, Store, ValueOptions,
    ValuePlacement, WalMode,
};
use runstone_fault_storage::{SimStorage, forward};

fn keyspace(policy: &str, placement: ValuePlacement) -> KeyspaceOptions {
    let values = ValueOptions::default().placement(placement).separate_at(200);
    let options = KeyspaceOptions::default()
        .policy(Policy::named(policy))
        .write_buffer_bytes(64 << 10)
        .values(values);
    match placement {
        // Collections of a log write pointers, so a log has no operands.
        ValuePlacement::Vlog => options,
        _ => options.merge_operator("add-i64"),
    }
}

fn open(storage: Arc<dyn Storage>, keyspace: KeyspaceOptions) -> Store {
    let options = Options::default()
        .background(Background::Manual)
        .wal_mode(WalMode::Write)
        .memory_budget_bytes(8 << 20)
        .seed(3)
        .keyspace(keyspace);
    Store::open_on(storage, options).expect("opens")
}

/// A fast pseudo-random sequence.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

fn key(number: u64) -> String {
    format!("key{number:04}")
}

/// Counts of the answers that were known in memory, and of the others.
#[derive(Debug, Default)]
struct Answers {
    values: u32,
    absent: u32,
    unknown: u32,
}

/// Looks a key up in both ways.
fn compare(keyspace: &Keyspace, storage: &SimStorage, key: &str, answers: &mut Answers) {
    let before = (storage.reads(), storage.ops());
    let cached = keyspace.get_if_cached(key).expect("looks");
    assert_eq!((storage.reads(), storage.ops()), before, "{key}: {cached:?} took I/O");
    let value = keyspace.get(key).expect("reads");
    match cached {
        CachedGet::NeedsIo => answers.unknown += 1,
        CachedGet::Absent => {
            answers.absent += 1;
            assert_eq!(value, None, "{key}");
        }
        CachedGet::Value(cached) => {
            answers.values += 1;
            assert_eq!(Some(cached), value, "{key}");
        }
    }
}

fn change(keyspace: &Keyspace, draw: &mut Draw, now: u64) -> Result<(), Error> {
    let own = key(draw.below(600));
    match draw.below(20) {
        0 => keyspace.delete(own),
        1 => {
            let from = draw.below(600);
            keyspace.delete_range(key(from)..key(from + draw.below(9)))
        }
        2..5 if keyspace.options().values.placement != ValuePlacement::Vlog => {
            keyspace.merge(format!("count{}", draw.below(40)), 1i64.to_le_bytes())
        }
        5 => keyspace.delete(format!("count{}", draw.below(40))),
        6 => keyspace.put_with_ttl(own, "soon gone", std::time::Duration::from_secs(3600)),
        _ => keyspace.put(own, vec![now as u8; 8 + draw.below(400) as usize]),
    }
}

#[test]
fn what_memory_knows_is_what_a_get_finds_and_it_takes_no_io() {
    let mut all = Answers::default();
    let policies = ["leveling", "tiering", "adaptive-tiering", "fragmented-leveling"];
    let placements = [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
    for (seed, policy) in (1..).zip(policies) {
        for placement in placements {
            let (storage, mut draw) = (SimStorage::new(seed), Draw(seed));
            let mut answers = Answers::default();
            let mut store = open(Arc::new(storage.clone()), keyspace(policy, placement));
            for now in 0..6_000 {
                let own = store.default_keyspace().clone();
                change(&own, &mut draw, now).expect("writes");
                if now % 7 == 0 {
                    compare(&own, &storage, &key(draw.below(620)), &mut answers);
                    let count = format!("count{}", draw.below(45));
                    compare(&own, &storage, &count, &mut answers);
                }
                if now % 400 == 0 {
                    store.wait_idle().expect("is idle");
                }
                if now % 2_500 == 2_000 {
                    drop((own, store));
                    store = open(Arc::new(storage.clone()), keyspace(policy, placement));
                }
            }
            let Answers { values, absent, unknown } = answers;
            assert!(
                values > 0 && absent > 0 && unknown > 0,
                "{policy}, {placement:?}: {answers:?}"
            );
            all.values += values;
        }
    }
    assert!(all.values > 3_000, "{all:?}");
}

#[test]
fn a_get_brings_into_memory_what_the_next_look_finds() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
        let storage = SimStorage::new(5);
        let options = || keyspace("leveling", placement);
        let store = open(Arc::new(storage.clone()), options());
        for number in 0..100 {
            store.put(key(number), vec![number as u8; 1000]).expect("puts");
        }
        store.close().expect("closes");
        let store = open(Arc::new(storage.clone()), options());
        let own = store.default_keyspace();
        assert_eq!(own.get_if_cached(key(7)).expect("looks"), CachedGet::NeedsIo);
        assert_eq!(own.get_if_cached("z").expect("looks"), CachedGet::Absent, "outside of all");
        let gets = store.metrics().counters.gets;
        // A separated value enters the cache when it is read for the second time.
        let value =
            own.get(key(7)).and_then(|_| own.get(key(7))).expect("reads").expect("is there");
        assert_eq!(own.get_if_cached(key(7)).expect("looks"), CachedGet::Value(value));
        let counters = store.metrics().counters;
        assert_eq!(counters.gets - gets, 3, "answers count, and others do not");
        if placement == ValuePlacement::HashGrouped {
            let other = own.get_if_cached(key(8)).expect("looks");
            assert_eq!(other, CachedGet::NeedsIo, "its pointer is known, its value is not");
            assert!(own.contains_key(key(8)).expect("looks"));
        }
    }
}

#[test]
fn a_keyspace_that_cannot_be_read_says_so() {
    let store = open(Arc::new(MemoryStorage::new()), keyspace("leveling", ValuePlacement::Inline));
    let other = store.open_keyspace("other", None).expect("opens");
    store.drop_keyspace("other").expect("drops");
    assert!(matches!(other.get_if_cached("k"), Err(Error::UnknownKeyspace { .. })));
    let own = store.default_keyspace().clone();
    store.close().expect("closes");
    assert!(matches!(own.get_if_cached("k"), Err(Error::Closed)));
}

/// Reads of tables wait here until they are let through.
#[derive(Debug, Default)]
struct Gate {
    is_shut: AtomicBool,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Gated<S> {
    inner: S,
    gate: Arc<Gate>,
    is_table: bool,
}

impl<S: Storage> Gated<S> {
    fn file(&self, inner: Arc<dyn StorageFile>, of: Category) -> Arc<dyn StorageFile> {
        Arc::new(Gated { inner, gate: Arc::clone(&self.gate), is_table: of == Category::Table })
    }
}

impl<S: Storage> Storage for Gated<S> {
    fn create(&self, name: &str, category: Category) -> StorageResult<Arc<dyn StorageFile>> {
        Ok(self.file(self.inner.create(name, category)?, category))
    }
    fn create_mapped(
        &self,
        name: &str,
        of: Category,
        bytes: u64,
    ) -> StorageResult<Arc<dyn StorageFile>> {
        Ok(self.file(self.inner.create_mapped(name, of, bytes)?, of))
    }
    fn open(&self, name: &str, category: Category) -> StorageResult<Arc<dyn StorageFile>> {
        Ok(self.file(self.inner.open(name, category)?, category))
    }
    forward! {
        StorageResult:
        rename remove list sync_dir lock create_sibling link_into counters location
    }
}

impl StorageFile for Gated<Arc<dyn StorageFile>> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<()> {
        self.gate.waiting.fetch_add(1, SeqCst);
        while self.is_table && self.gate.is_shut.load(SeqCst) {
            std::thread::yield_now();
        }
        self.gate.waiting.fetch_sub(1, SeqCst);
        self.inner.read_at(offset, buffer)
    }
    forward!(StorageResult: write_at sync len set_len allocate punch);
}

/// Another thread opens the table, and the disk hangs. A get from memory does not wait for that
/// thread.
#[test]
fn a_look_waits_for_nobody_who_reads() {
    let (inner, gate) = (MemoryStorage::new(), Arc::new(Gate::default()));
    let storage: Arc<dyn Storage> =
        Arc::new(Gated { inner, gate: Arc::clone(&gate), is_table: false });
    let options = || keyspace("leveling", ValuePlacement::Inline);
    let store = open(Arc::clone(&storage), options());
    (0..100).for_each(|number| store.put(key(number), "value").expect("puts"));
    store.close().expect("closes");
    let store = open(storage, options());
    let own = store.default_keyspace();
    gate.is_shut.store(true, SeqCst);
    std::thread::scope(|scope| {
        let get = scope.spawn(|| own.get(key(7)));
        while gate.waiting.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let seen = own.get_if_cached(key(7));
        gate.is_shut.store(false, SeqCst);
        assert_eq!(seen.expect("looks"), CachedGet::NeedsIo);
        assert!(get.join().expect("no panic").expect("reads").is_some());
    });
    assert!(matches!(own.get_if_cached(key(7)).expect("looks"), CachedGet::Value(_)));
}
