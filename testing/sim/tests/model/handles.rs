//! Objects that a program holds: handles of a store, values, and a compaction policy of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Batch, Error, KeyspaceOptions, Options, Store, WriteOptions};
use runstone_policy::options::PolicyOptions;
use runstone_policy::plan::Plan;
use runstone_policy::policy::{CompactionPolicy, Job, LevelTarget};
use runstone_policy::registry;
use runstone_policy::shape::Shape;

fn open(storage: &MemoryStorage, options: Options) -> Result<Store, Error> {
    Store::open_on(Arc::new(storage.clone()), options)
}

#[test]
fn the_last_handle_closes_the_store() {
    let storage = MemoryStorage::new();
    let store = open(&storage, Options::default()).expect("opens");
    let other = store.clone();
    let thread = std::thread::spawn(move || other.put("a", "1").map(|()| other));
    let other = thread.join().expect("no panic").expect("writes");
    drop(store);
    assert_eq!(other.get("a").expect("reads").as_deref(), Some(&b"1"[..]));
    assert!(matches!(open(&storage, Options::default()), Err(Error::InUse { .. })), "still open");
    drop(other);
    let store = open(&storage, Options::default()).expect("it was closed");
    let other = store.clone();
    store.close().expect("closes");
    assert!(matches!(other.put("a", "2"), Err(Error::Closed)));
    assert!(matches!(other.get("a"), Err(Error::Closed)));
    other.close().expect("is closed");
    let store = open(&storage, Options::default()).expect("opens");
    assert_eq!(store.get("a").expect("reads").as_deref(), Some(&b"1"[..]));
}

#[test]
fn ranges_are_those_of_the_standard_library() {
    let store = open(&MemoryStorage::new(), Options::default()).expect("opens");
    let keyspace = store.default_keyspace();
    let mut map = BTreeMap::new();
    let mut batch = Batch::with_capacity(100);
    for key in ["", "a", "aa", "b", "c"] {
        batch.put(keyspace, key, key).expect("adds");
        map.insert(key.as_bytes(), ());
    }
    store.write(&batch, WriteOptions::default()).expect("writes");
    macro_rules! check {
        ($($range:expr),+) => {$(
            let scan = keyspace.range($range).expect("opens");
            let found: Vec<_> = scan.map(|item| item.expect("reads").0).collect();
            let expected = map.range::<&[u8], _>($range).map(|(key, _)| key.to_vec());
            assert_eq!(found, expected.collect::<Vec<_>>(), stringify!($range));
        )+};
    }
    check!(.., &b"a"[..].., &b"a"[..]..&b"b"[..], &b"a"[..]..=&b"b"[..], ..&b"b"[..], ..=&b"a"[..]);
    check!(&b"a"[..]..&b"a"[..], ..&b""[..], ..=&b""[..]);
    assert!(keyspace.range("b".."a").is_err(), "it ends before it starts");
    let value = store.get("aa").expect("reads").expect("is there");
    assert_eq!(Vec::from(value), b"aa");
}

/// Leveling under another name.
struct Own;

impl CompactionPolicy for Own {
    fn name(&self) -> &'static str {
        "own-of-a-test"
    }

    fn doc(&self) -> &'static str {
        "leveling under another name"
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        registry::find("leveling").expect("built in").targets(shape, options)
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        registry::find("leveling").expect("built in").decide(job)
    }
}

#[test]
fn a_program_brings_a_policy() {
    let options = || {
        let mut keyspace = KeyspaceOptions::default().policy(Policy::named("own-of-a-test"));
        keyspace.write_buffer_bytes = 64 << 10;
        let keyspace = Some(keyspace);
        Options::default().background(Background::Manual).keyspace(keyspace)
    };
    let storage = MemoryStorage::new();
    let unknown = open(&storage, options()).expect_err("not yet known");
    assert!(unknown.to_string().contains("no compaction policy is named"), "{unknown}");
    registry::register(&Own).expect("free");
    let taken = registry::register(&Own).expect_err("taken");
    assert!(taken.to_string().contains("choose another name"), "{taken}");
    let store = open(&storage, options()).expect("opens");
    for i in 0..5000u32 {
        store.put(i.to_be_bytes(), [7; 100]).expect("writes");
    }
    store.flush().expect("flushes");
    store.wait_idle().expect("works");
    let shape = unstable::shape(store.default_keyspace());
    assert!(shape.levels.len() > 1 && shape.level(1).table_count() > 0, "it compacted");
    store.close().expect("closes");
    let store = open(&storage, options().keyspace(None)).expect("its name is stored");
    assert_eq!(store.default_keyspace().options().policy, "own-of-a-test");
    assert_eq!(store.default_keyspace().iter().expect("opens").count(), 5000);
}
