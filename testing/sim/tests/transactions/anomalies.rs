//! The anomalies of Hermitage (github.com/ept/hermitage), one test each, on keys 1 and 2 with
//! values 10 and 20. Each says which level prevents it: `Snapshot`, `Serializable`, or locks, which
//! are pessimistic transactions that read for update.

use std::time::Duration;

use runstone::{
    Error, Isolation, Keyspace, ReadOptions, Store, Transaction, TransactionOptions, WriteOptions,
};

use crate::{is_conflict_of, store};

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

/// A store with the two keys.
struct Table {
    store: Store,
    keys: Keyspace,
}

impl Table {
    fn new() -> Table {
        let store = store();
        let keys = store.default_keyspace().clone();
        keys.put("1", "10").expect("writes");
        keys.put("2", "20").expect("writes");
        Table { store, keys }
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        self.store.begin(TransactionOptions::default().isolation(isolation)).expect("begins")
    }

    /// A transaction that takes locks, and does not wait for them.
    fn lock(&self) -> Transaction {
        let lock_timeout = Duration::ZERO;
        let options = TransactionOptions::pessimistic().lock_timeout(lock_timeout);
        self.store.begin(options).expect("begins")
    }

    fn put(&self, transaction: &mut Transaction, key: &str, value: &str) {
        transaction.put(&self.keys, key, value).expect("writes");
    }

    fn get(&self, transaction: &Transaction, key: &str) -> String {
        text(transaction.get(&self.keys, key).expect("reads").as_deref())
    }

    /// The keys whose value satisfies a condition.
    fn find(&self, transaction: &Transaction, is_it: impl Fn(u64) -> bool) -> Vec<String> {
        let scan = transaction.scan(&self.keys, ReadOptions::default()).expect("scans");
        let items = scan.map(|item| item.expect("reads"));
        let found = items.filter(|(_, value)| is_it(text(Some(value)).parse().expect("a number")));
        found.map(|(key, _)| text(Some(&key))).collect()
    }

    fn now(&self) -> [String; 2] {
        ["1", "2"].map(|key| text(self.keys.get(key).expect("reads").as_deref()))
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8(bytes.unwrap_or(b"none").to_vec()).expect("text")
}

fn commit(transaction: Transaction) -> Result<(), Error> {
    transaction.commit(WriteOptions::default())
}

fn is_locked<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::LockTimeout { .. }))
}

/// Two transactions write the same keys in opposite orders. Prevented by every level: only the
/// writes of one take effect.
#[test]
fn g0_write_cycles() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        table.put(&mut one, "1", "11");
        table.put(&mut two, "1", "12");
        table.put(&mut one, "2", "21");
        commit(one).expect("the first");
        table.put(&mut two, "2", "22");
        assert!(is_conflict_of(&commit(two), "1"));
        assert_eq!(table.now(), ["11", "21"]);
    }
    let table = Table::new();
    let (mut one, mut two) = (table.lock(), table.lock());
    table.put(&mut one, "1", "11");
    assert!(is_locked(two.put(&table.keys, "1", "12")));
}

/// A read of a value that is rolled back. Prevented by every level.
#[test]
fn g1a_aborted_reads() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, two) = (table.begin(level), table.begin(level));
        table.put(&mut one, "1", "101");
        assert_eq!(table.get(&two, "1"), "10");
        one.rollback();
        assert_eq!(table.get(&two, "1"), "10");
        commit(two).expect("it wrote nothing");
        assert_eq!(table.now(), ["10", "20"]);
    }
    let table = Table::new();
    let (mut one, two) = (table.lock(), table.lock());
    table.put(&mut one, "1", "101");
    assert_eq!(table.get(&two, "1"), "10");
}

/// A read of a value that is overwritten before the commit. Prevented by every level.
#[test]
fn g1b_intermediate_reads() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, two) = (table.begin(level), table.begin(level));
        table.put(&mut one, "1", "101");
        assert_eq!(table.get(&two, "1"), "10");
        table.put(&mut one, "1", "11");
        commit(one).expect("the first");
        assert_eq!(table.get(&two, "1"), "10");
        assert_eq!(table.now(), ["11", "20"]);
    }
}

/// Two transactions that each see what the other wrote. Prevented by every level: neither sees the
/// other. That leaves a write skew, which only `Serializable` and locks prevent.
#[test]
fn g1c_circular_information_flow() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        table.put(&mut one, "1", "11");
        table.put(&mut two, "2", "22");
        assert_eq!(table.get(&one, "2"), "20");
        assert_eq!(table.get(&two, "1"), "10");
        commit(one).expect("the first");
        let second = commit(two);
        match level {
            Isolation::Snapshot => second.expect("a write skew is no conflict"),
            _ => assert!(is_conflict_of(&second, "1")),
        }
    }
    let table = Table::new();
    let (mut one, mut two) = (table.lock(), table.lock());
    table.put(&mut one, "1", "11");
    table.put(&mut two, "2", "22");
    assert!(is_locked(one.get_for_update(&table.keys, "2")));
}

/// A reader that sees a transaction's write of one key, but then not its write of another.
/// Prevented by every level.
#[test]
fn otv_observed_transaction_vanishes() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        table.put(&mut one, "1", "11");
        table.put(&mut one, "2", "19");
        table.put(&mut two, "1", "12");
        commit(one).expect("the first");
        let three = table.begin(level);
        assert_eq!(table.get(&three, "1"), "11");
        table.put(&mut two, "2", "18");
        assert!(is_conflict_of(&commit(two), "1"));
        assert_eq!(table.get(&three, "2"), "19");
        assert_eq!(table.get(&three, "1"), "11");
    }
}

/// A predicate that another transaction makes true. Prevented by every level for reads; a delete by
/// a predicate conflicts with the write that it would have missed.
#[test]
fn pmp_predicate_many_preceders() {
    for level in LEVELS {
        let table = Table::new();
        let (one, mut two) = (table.begin(level), table.begin(level));
        assert!(table.find(&one, |value| value == 30).is_empty());
        table.put(&mut two, "3", "30");
        commit(two).expect("the first");
        assert!(table.find(&one, |value| value % 3 == 0).is_empty());

        let (mut one, mut two) = (table.begin(level), table.begin(level));
        for key in table.find(&one, |_| true) {
            let value: u64 = table.get(&one, &key).parse().expect("a number");
            table.put(&mut one, &key, &(value + 10).to_string());
        }
        for key in table.find(&two, |value| value == 20) {
            two.delete(&table.keys, key).expect("deletes");
        }
        commit(one).expect("the first");
        assert!(matches!(commit(two), Err(Error::Conflict { .. })));
        assert_eq!(table.now(), ["20", "30"]);
    }
}

/// Two increments of the same value. Prevented by every level, and by locks if both read for
/// update.
#[test]
fn p4_lost_update() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        assert_eq!((table.get(&one, "1"), table.get(&two, "1")), ("10".into(), "10".into()));
        table.put(&mut one, "1", "11");
        table.put(&mut two, "1", "11");
        commit(one).expect("the first");
        assert!(is_conflict_of(&commit(two), "1"));
    }
    let table = Table::new();
    let (mut one, mut two) = (table.lock(), table.lock());
    one.get_for_update(&table.keys, "1").expect("the first");
    assert!(is_locked(two.get_for_update(&table.keys, "1")));
    table.put(&mut one, "1", "11");
    commit(one).expect("commits");
    let seen = two.get_for_update(&table.keys, "1").expect("the lock is free");
    assert_eq!(seen.as_deref(), Some(&b"11"[..]), "the newest value, not that of the snapshot");
}

/// A reader between whose reads another transaction changes both keys. Prevented by every level.
#[test]
fn g_single_read_skew() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        assert_eq!(table.get(&one, "1"), "10");
        table.put(&mut two, "1", "12");
        table.put(&mut two, "2", "18");
        commit(two).expect("the first");
        assert_eq!(table.get(&one, "2"), "20");
        // The same with a write that depends on the old value.
        one.delete(&table.keys, "2").expect("deletes");
        assert!(is_conflict_of(&commit(one), "2"));
        assert_eq!(table.now(), ["12", "18"]);
    }
}

/// Two transactions that read both keys and write one each. Prevented by `Serializable`, and by
/// locks if both read for update.
#[test]
fn g2_item_write_skew() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        for transaction in [&one, &two] {
            assert_eq!(table.get(transaction, "1"), "10");
            assert_eq!(table.get(transaction, "2"), "20");
        }
        table.put(&mut one, "1", "11");
        table.put(&mut two, "2", "21");
        commit(one).expect("the first");
        let second = commit(two);
        match level {
            Isolation::Snapshot => second.expect("this level allows it"),
            _ => assert!(is_conflict_of(&second, "1")),
        }
    }
    let table = Table::new();
    let (mut one, mut two) = (table.lock(), table.lock());
    one.get_for_update(&table.keys, "1").expect("locks");
    one.get_for_update(&table.keys, "2").expect("locks");
    assert!(is_locked(two.get_for_update(&table.keys, "1")));
}

/// Two transactions that each add what the other's predicate would have found. Prevented by
/// `Serializable`. Locks do not prevent it, because nobody can lock keys that nobody named.
#[test]
fn g2_anti_dependency_cycles() {
    for level in LEVELS {
        let table = Table::new();
        let (mut one, mut two) = (table.begin(level), table.begin(level));
        assert!(table.find(&one, |value| value % 3 == 0).is_empty());
        assert!(table.find(&two, |value| value % 3 == 0).is_empty());
        table.put(&mut one, "3", "30");
        table.put(&mut two, "4", "42");
        commit(one).expect("the first");
        let second = commit(two);
        match level {
            Isolation::Snapshot => second.expect("this level allows it"),
            _ => assert!(is_conflict_of(&second, "3")),
        }
    }
}
