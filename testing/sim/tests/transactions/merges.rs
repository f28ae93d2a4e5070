//! Operands inside transactions: a read and a put of the merged value.

use runstone::{Error, Keyspace, KeyspaceOptions, Store, TransactionOptions, WriteOptions};

use crate::store;

fn counters(store: &Store) -> Keyspace {
    let options = KeyspaceOptions::default().merge_operator("add-u64");
    store.open_keyspace("counters", Some(options)).expect("opens")
}

fn one() -> [u8; 8] {
    1u64.to_le_bytes()
}

fn number(value: Option<runstone::Value>) -> Option<u64> {
    value.map(|value| u64::from_le_bytes(value[..].try_into().expect("eight bytes")))
}

#[test]
fn operands_apply_to_own_writes_and_to_the_store() {
    let store = store();
    let counters = counters(&store);
    for _ in 0..3 {
        counters.merge("old", one()).expect("merges");
    }
    for options in [TransactionOptions::serializable(), TransactionOptions::pessimistic()] {
        let mut transaction = store.begin(options).expect("begins");
        let value = |transaction: &runstone::Transaction, key: &str| {
            number(transaction.get(&counters, key).expect("reads"))
        };
        let old = value(&transaction, "old").expect("it is there");
        transaction.merge(&counters, "old", one()).expect("merges");
        transaction.set_savepoint();
        transaction.merge(&counters, "old", one()).expect("merges");
        transaction.merge(&counters, "new", one()).expect("merges");
        assert_eq!(value(&transaction, "old"), Some(old + 2));
        assert_eq!(value(&transaction, "new"), Some(1));
        transaction.rollback_to_savepoint().expect("there is one");
        assert_eq!(value(&transaction, "old"), Some(old + 1));
        assert_eq!(value(&transaction, "new"), None);
        transaction.delete(&counters, "old").expect("deletes");
        transaction.merge(&counters, "old", (old + 1).to_le_bytes()).expect("merges");
        transaction.commit(WriteOptions::default()).expect("commits");
        assert_eq!(number(counters.get("old").expect("reads")), Some(old + 1));
    }
    assert_eq!(number(counters.get("old").expect("reads")), Some(5));
}

#[test]
fn an_operand_from_outside_is_a_conflict() {
    let store = store();
    let counters = counters(&store);
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.merge(&counters, "k", one()).expect("merges");
    counters.merge("k", one()).expect("merges");
    let outcome = transaction.commit(WriteOptions::default());
    assert!(matches!(outcome, Err(Error::Conflict { key, .. }) if key == b"k"));
    assert_eq!(number(counters.get("k").expect("reads")), Some(1));
}

/// The increments of all threads are counted, whichever way conflicts are avoided.
#[test]
fn nothing_is_counted_twice_or_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    let store = store();
    let counters = counters(&store);
    let count = |options: TransactionOptions| {
        let mut done = 0;
        while done < EACH {
            let mut transaction = store.begin(options).expect("begins");
            transaction.merge(&counters, "k", one()).expect("merges");
            match transaction.commit(WriteOptions::default()) {
                Ok(()) => done += 1,
                Err(Error::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    for (round, options) in
        [TransactionOptions::default(), TransactionOptions::pessimistic()].into_iter().enumerate()
    {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| count(options));
            }
        });
        let expected = (round as u64 + 1) * THREADS * EACH;
        assert_eq!(number(counters.get("k").expect("reads")), Some(expected));
    }
}

#[test]
fn an_operand_that_is_refused_changes_nothing() {
    let store = store();
    let counters = counters(&store);
    counters.put("text", "not a number").expect("puts");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    let refused = transaction.merge(&counters, "k", "x").expect_err("not an operand");
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    let none = transaction.merge(store.default_keyspace(), "k", one()).expect_err("no operator");
    assert!(none.hint().contains("merge_operator"), "{none}");
    let failed = transaction.merge(&counters, "text", one()).expect_err("not a number");
    assert!(matches!(failed, Error::MergeFailed { .. }), "{failed}");
    transaction.merge(&counters, "k", one()).expect("it goes on");
    transaction.commit(WriteOptions::default()).expect("commits");
    assert_eq!(counters.get("text").expect("reads").as_deref(), Some(&b"not a number"[..]));
    assert_eq!(number(counters.get("k").expect("reads")), Some(1));
}
