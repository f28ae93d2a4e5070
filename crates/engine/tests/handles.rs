//! The forms of calls: builders, ranges, removals from either end, and which handles may be moved
//! to other threads.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{
    Archiver, Background, Backups, Batch, Changes, Commit, Cursor, Durability, Error, Expiry,
    Follower, Keyspace, KeyspaceOptions, LiveRequest, Mirror, Options, ReadOptions, Resources,
    Scan, Snapshot, SortedFile, SortedWriter, Store, StoreBuilder, Transaction, TransactionCursor,
    TransactionOptions, TransactionScan, Value, Watch, WriteOptions,
};
use runstone_fault_storage::SimStorage;

const HOUR: Duration = Duration::from_secs(3600);

fn open() -> Store {
    Store::builder_on(Arc::new(MemoryStorage::new())).threads(1).open().expect("opens")
}

fn filled(keys: &[&str]) -> Store {
    let store = open();
    keys.iter().try_for_each(|key| store.put(key, key)).expect("puts");
    store
}

fn keys(store: &Store) -> String {
    let keys = store.default_keyspace().iter().expect("scans").keys();
    let text = keys.map(|key| String::from_utf8(key.expect("reads")).expect("text"));
    text.collect::<Vec<_>>().join(",")
}

/// Some handles may be used by several threads at once, and others may only be moved to another
/// thread.
#[test]
fn handles_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Store>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Resources>();
    shared::<Value>();
    shared::<Batch>();
    shared::<Options>();
    shared::<ReadOptions>();
    shared::<Error>();
    shared::<SortedFile>();
    shared::<Follower>();
    shared::<Watch>();
    shared::<Backups>();
    shared::<LiveRequest>();
    sent::<StoreBuilder>();
    sent::<Cursor>();
    sent::<Scan>();
    sent::<Transaction>();
    sent::<TransactionCursor<'_>>();
    sent::<TransactionScan<'_>>();
    sent::<SortedWriter>();
    sent::<Commit>();
    sent::<Changes>();
    sent::<Mirror>();
    sent::<Archiver>();
}

#[test]
fn a_builder_says_what_options_say() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    let absent = Store::builder(&path).create_if_missing(false).open().expect_err("absent");
    assert!(matches!(absent, Error::NotAStore { .. }), "{absent}");
    let keyspace = KeyspaceOptions::preset("read-heavy").expect("known");
    let builder = Store::builder(&path).memory_budget(8 << 20).threads(1);
    let store = builder.keyspace(keyspace.clone()).durability(Durability::Sync).open();
    let store = store.expect("opens");
    assert_eq!(*store.default_keyspace().options(), keyspace);
    assert_eq!(store.metrics().memory.budget_bytes, 8 << 20);
    let again = Store::builder(&path).open().expect_err("in use");
    assert!(again.is_in_use() && !again.is_invalid(), "{again}");
    store.close().expect("closes");
    let none = Store::builder(&path).threads(0).open().expect_err("no thread");
    assert!(none.is_invalid() && none.to_string().contains("at least 1"), "{none}");
    let resources = Resources::builder().memory_budget(16 << 20).threads(1).build();
    let resources = resources.expect("builds");
    let store = Store::builder(&path).resources(&resources).open().expect("opens");
    assert_eq!(resources.stores(), 1);
    assert_eq!(*store.default_keyspace().options(), keyspace, "stored");
    store.close().expect("closes");
    let reader = Store::builder(&path).read_only(true).open().expect("opens");
    assert!(matches!(reader.put("a", "1"), Err(Error::ReadOnly)));
}

/// Each form of range covers the right keys, and needs no type annotation.
#[test]
fn ranges_need_no_type() {
    let all = ["a", "b", "c", "d"];
    let left = |delete: &dyn Fn(&Keyspace) -> runstone::Result<()>| {
        let store = filled(&all);
        delete(store.default_keyspace()).expect("deletes");
        keys(&store)
    };
    assert_eq!(left(&|all| all.delete_range(..)), "");
    assert_eq!(left(&|all| all.delete_range("b"..)), "a");
    assert_eq!(left(&|all| all.delete_range(.."c")), "c,d");
    assert_eq!(left(&|all| all.delete_range(..="c")), "d");
    assert_eq!(left(&|all| all.delete_range("b".."d")), "a,d");
    assert_eq!(left(&|all| all.delete_range(String::from("b")..=String::from("c"))), "a,d");
    assert_eq!(left(&|all| all.delete_range(&(b"a"..b"c"))), "c,d");
    let behind = (Bound::Excluded("a"), Bound::Unbounded);
    assert_eq!(left(&|all| all.delete_range(behind)), "a");
    assert_eq!(left(&Keyspace::clear), "");
    let store = filled(&all);
    assert_eq!(store.default_keyspace().approximate_count(..).expect("counts"), 4);
    let mut batch = Batch::new();
    batch.delete_range(store.default_keyspace(), "a"..="b").expect("adds");
    store.write(&batch, WriteOptions::buffered()).expect("writes");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.delete_range(store.default_keyspace(), "d"..).expect("deletes");
    transaction.commit(WriteOptions::default()).expect("commits");
    assert_eq!(keys(&store), "c");
}

/// A time to live is only for a put. Any other call refuses it, and writes nothing.
#[test]
fn only_puts_take_a_time_to_live() {
    let store = filled(&["a"]);
    let keyspace = store.default_keyspace();
    let hour = WriteOptions::sync().ttl(Duration::from_secs(3600));
    keyspace.put_with("b", "1", hour).expect("puts");
    assert!(keyspace.expiry("b").expect("reads") != Some(runstone::Expiry::Never));
    let mut batch = Batch::new();
    batch.delete(keyspace, "a").expect("adds");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.delete(keyspace, "a").expect("deletes");
    let refused = [
        keyspace.delete_with("a", hour),
        keyspace.merge_with("a", "1", hour),
        keyspace.delete_range_with(.., hour),
        store.write(&batch, hour),
        transaction.commit(hour),
        keyspace.put_with("a", "1", WriteOptions::default().ttl(Duration::ZERO)),
    ];
    for refusal in refused {
        let error = refusal.expect_err("refused");
        assert!(error.is_invalid(), "{error}");
    }
    assert_eq!(keys(&store), "a,b");
}

#[test]
fn entries_are_taken_from_both_ends() {
    let store = filled(&["a", "b", "c", "d", "e"]);
    let keyspace = store.default_keyspace();
    let first = keyspace.pop_first().expect("pops").expect("there is one");
    assert_eq!((&*first.0, &*first.1), (&b"a"[..], &b"a"[..]));
    assert_eq!(keyspace.pop_last().expect("pops").expect("there is one").0, b"e");
    assert_eq!(keyspace.drain("c".., 0).expect("drains"), []);
    let drained = keyspace.drain("c".., 10).expect("drains");
    assert_eq!(drained.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"c", b"d"]);
    assert!(keyspace.drain("c".."b", 1).expect_err("ends before it starts").is_invalid());
    assert_eq!(keys(&store), "b");
    assert!(keyspace.pop_first().expect("pops").is_some());
    assert!(keyspace.pop_first().expect("pops").is_none());
    assert!(keyspace.pop_last().expect("pops").is_none());
}

/// What was taken with a sync stays taken after a power loss, and a removal has no time to live.
#[test]
fn removals_and_swaps_take_write_options() {
    let disk = SimStorage::new(1);
    let options = || Options::default().background(Background::Manual);
    let store = Store::open_on(Arc::new(disk.clone()), options()).expect("opens");
    let keyspace = store.default_keyspace();
    let (sync, hour) = (WriteOptions::sync(), WriteOptions::default().ttl(HOUR));
    for key in ["a", "b", "c", "d", "e"] {
        keyspace.put_with(key, key, sync).expect("puts");
    }
    let syncs = || disk.counters().snapshot(Category::Wal).syncs;
    // A later sync would make an earlier call durable, so each call must sync by itself.
    let synced = |call: &dyn Fn()| {
        let before = syncs();
        call();
        assert!(syncs() > before);
    };
    synced(&|| drop(keyspace.pop_first_with(sync).expect("pops").expect("there is one")));
    synced(&|| drop(keyspace.pop_last_with(sync).expect("pops").expect("there is one")));
    synced(&|| assert_eq!(keyspace.drain_with(.."c", 9, sync).expect("drains").len(), 1));
    synced(&|| {
        keyspace
            .compare_and_swap_with("c", Some(b"c"), Some(b"2"), sync.ttl(HOUR))
            .expect("swaps")
            .expect("it had that value");
    });
    synced(&|| drop(keyspace.put_if_absent_with("f", "3", sync.ttl(HOUR)).expect("puts")));
    synced(&|| {
        keyspace.fetch_update_with("d", |_| Some(b"4".into()), sync).expect("updates");
    });
    assert!(keyspace.pop_first_with(hour).expect_err("refused").is_invalid());
    assert!(keyspace.drain_with(.., 9, hour).expect_err("refused").is_invalid());
    let refused = keyspace.compare_and_swap_with("c", Some(b"2"), None, hour);
    assert!(refused.expect_err("refused").is_invalid());

    let (after, _) = disk.power_cut(2);
    let store = Store::open_on(Arc::new(after), options()).expect("opens again");
    let keyspace = store.default_keyspace();
    let entries: Vec<_> =
        keyspace.iter().expect("reads").map(|entry| entry.expect("reads")).collect();
    let shown = entries.iter().map(|(key, value)| [key, &**value].concat()).collect::<Vec<_>>();
    assert_eq!(shown, [b"c2", b"d4", b"f3"]);
    let expires = |key| keyspace.expiry(key).expect("reads") != Some(Expiry::Never);
    assert_eq!(["c", "d", "f"].map(expires), [true, false, true]);
}

#[test]
fn a_drain_ends_where_it_is_told_to() {
    let store = filled(&["a", "b", "c", "d"]);
    let keyspace = store.default_keyspace();
    let way = WriteOptions::default();
    let taken = keyspace.drain_while(.., 9, way, |key, _| Ok(key < &b"c"[..])).expect("drains");
    assert_eq!(taken.len(), 2);
    let is_known = |key: &[u8], _: &[u8]| match key {
        b"c" => Ok(true),
        _ => Err(runstone::Error::invalid("an unknown key", "none")),
    };
    keyspace.drain_while(.., 9, way, is_known).expect_err("of the closure");
    assert_eq!(keys(&store), "c,d", "nothing was removed");
}

/// Each of several concurrent callers gets entries that no other caller gets.
#[test]
fn nothing_is_taken_twice() {
    let store = open();
    let keyspace = store.default_keyspace();
    (0..600u32).try_for_each(|key| keyspace.put(key.to_be_bytes(), "x")).expect("puts");
    let taken: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
        let takers = [0, 1, 2].map(|way| {
            scope.spawn(move || {
                let mut taken = Vec::new();
                loop {
                    let some = match way {
                        0 => Vec::from_iter(keyspace.pop_first().expect("pops")),
                        1 => Vec::from_iter(keyspace.pop_last().expect("pops")),
                        _ => keyspace.drain(.., 50).expect("drains"),
                    };
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some.into_iter().map(|(key, _)| key));
                }
            })
        });
        takers.map(|taker| taker.join().expect("ends")).into()
    });
    let all: Vec<Vec<u8>> = taken.concat();
    let different: BTreeSet<&Vec<u8>> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (600, 600));
}

/// A caller that waits for work must not mistake a dropped keyspace for an empty one.
#[test]
fn a_dropped_keyspace_is_no_empty_one() {
    let store = open();
    let queue = store.open_keyspace("queue", None).expect("made");
    assert_eq!(queue.drain(.., 9).expect("is there"), []);
    store.drop_keyspace("queue").expect("drops");
    queue.pop_first().expect_err("dropped");
    queue.pop_last().expect_err("dropped");
    queue.drain(.., 9).expect_err("dropped");
}

#[test]
fn scans_give_keys_or_values_alone() {
    let store = filled(&["a", "b", "c"]);
    let keyspace = store.default_keyspace();
    let backwards = keyspace.range("b"..).expect("scans").keys().rev();
    assert_eq!(backwards.map(Result::unwrap).collect::<Vec<_>>(), [b"c", b"b"]);
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(keyspace, "aa", "own").expect("puts");
    let values = transaction.iter(keyspace).expect("scans").values();
    let values: Vec<Value> = values.collect::<runstone::Result<_>>().expect("reads");
    assert_eq!(
        values.iter().map(|value| &**value).collect::<Vec<_>>(),
        [&b"a"[..], b"own", b"b", b"c"]
    );
    assert_eq!(transaction.iter(keyspace).expect("scans").keys().count(), 4);
}
