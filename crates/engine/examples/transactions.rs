//! Money moves between accounts and is never lost: in an optimistic transaction, which begins again
//! if another was faster, and in a pessimistic one, which waits for its turn.

use std::sync::Arc;
use std::thread;

use runstone::storage::MemoryStorage;
use runstone::{Keyspace, Result, Store, TransactionOptions, Value, WriteOptions};

fn amount(value: Option<Value>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value[..].try_into().expect("eight bytes")))
}

/// Nobody waits. If an account changed since it was read, the transfer begins again.
fn optimistic(store: &Store, accounts: &Keyspace, from: &str, to: &str) -> Result<u32> {
    let mut attempts = 0;
    store.transact(TransactionOptions::default(), WriteOptions::default(), |transaction| {
        attempts += 1;
        let [paid, got] = [from, to].map(|account| transaction.get(accounts, account));
        transaction.put(accounts, from, (amount(paid?) - 1).to_le_bytes())?;
        transaction.put(accounts, to, (amount(got?) + 1).to_le_bytes())
    })?;
    Ok(attempts)
}

/// `get_for_update` takes the lock of the key or waits for it, so the commit finds no conflict.
/// Transfers in both directions lock in the same order. Otherwise two transfers might wait for each
/// other, and one would fail.
fn pessimistic(store: &Store, accounts: &Keyspace, from: &str, to: &str) -> Result<u32> {
    let mut transaction = store.begin(TransactionOptions::pessimistic())?;
    let mut changes = [(from, -1), (to, 1)];
    changes.sort();
    for (account, change) in changes {
        let held = amount(transaction.get_for_update(accounts, account)?);
        transaction.put(accounts, account, (held + change).to_le_bytes())?;
    }
    transaction.commit(WriteOptions::default())?;
    Ok(1)
}

type Transfer = fn(&Store, &Keyspace, &str, &str) -> Result<u32>;

pub(crate) fn main() -> Result<()> {
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).open()?;
    let accounts = store.open_keyspace("accounts", None)?;
    let both: [(&str, Transfer); 2] = [("optimistic", optimistic), ("pessimistic", pessimistic)];
    for (name, transfer) in both {
        ["alice", "bob"].iter().try_for_each(|who| accounts.put(who, 1000i64.to_le_bytes()))?;
        let pay = |from, to| -> Result<u32> {
            (0..500).map(|_| transfer(&store, &accounts, from, to)).sum()
        };
        let attempts = thread::scope(|scope| -> Result<u32> {
            let other = scope.spawn(|| pay("bob", "alice"));
            Ok(pay("alice", "bob")? + other.join().expect("no panic")?)
        })?;
        println!("{name}: 1000 transfers took {attempts} attempts");
        assert_eq!(amount(accounts.get("alice")?), 1000);
        assert_eq!(amount(accounts.get("bob")?), 1000);
    }
    store.close()
}
