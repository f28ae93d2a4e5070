//! Transactions, and cursors over the entries that they see.

use std::ffi::c_void;
use std::time::Duration;

use runstone::{Isolation, Keyspace, Transaction, TransactionMode, TransactionOptions};
use runstone_boundary::Code;
use runstone_boundary::cursors::AnyCursor;
use runstone_boundary::transactions::{PagedCursor, SharedTransaction};

use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, range, required, runstone_bytes};
use crate::cursor::{read_options, runstone_read_options};
use crate::durability::write_options;
use crate::handles::{runstone_cursor, runstone_keyspace, runstone_store, runstone_transaction};
use crate::status::{answer, runstone_status};

handle!(6 "transaction" runstone_transaction: SharedTransaction);

/// How a transaction runs. All zero means optimistic, with snapshot isolation.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct runstone_transaction_options {
    /// Whether the transaction locks the keys that it writes or reads for update, and waits for the
    /// locks of others. If not, its commit fails if another writer wrote the same keys.
    pub is_pessimistic: bool,
    /// Whether its commit also fails if another writer wrote a key that it read.
    pub is_serializable: bool,
    /// How long a pessimistic transaction waits for a lock; 0 means a second.
    pub lock_timeout_ms: u64,
}

/// Ends a transaction, and closes its handle unless another thread is using it.
fn end(
    handle: *mut runstone_transaction,
    how: impl FnOnce(&SharedTransaction) -> Result<()>,
) -> Result<()> {
    let ending = SharedTransaction::clone(&*runstone_transaction::get(handle)?);
    let outcome = how(&ending);
    if !matches!(&outcome, Err(failure) if failure.code == Code::Busy) {
        // Another thread may have closed the handle in between, because it saw that the transaction
        // had ended. Only the outcome of the transaction counts.
        let _ = runstone_transaction::close(handle);
    }
    outcome
}

/// Begins a transaction. `options` may be null. End it with runstone_commit() or
/// runstone_rollback().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_begin(
    store: *const runstone_store,
    options: *const runstone_transaction_options,
    transaction: *mut *mut runstone_transaction,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid options and a valid place.
        let (given, place) = unsafe { (options.as_ref(), Place::new("transaction", transaction)?) };
        let mut options = TransactionOptions::default();
        if let Some(given) = given {
            if given.is_pessimistic {
                options.mode = TransactionMode::Pessimistic;
            }
            if given.is_serializable {
                options.isolation = Isolation::Serializable;
            }
            if given.lock_timeout_ms > 0 {
                options.lock_timeout = Duration::from_millis(given.lock_timeout_ms);
            }
        }
        let begun = SharedTransaction::begin(&*runstone_store::get(store)?, options)?;
        place.keep(begun)
    })
}

/// Makes all writes of a transaction visible at once. The transaction has then ended, even if this
/// fails. RUNSTONE_CONFLICT means that nothing was written. A new transaction may try again.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_commit(
    transaction: *mut runstone_transaction,
    durability: i32,
) -> runstone_status {
    answer(|| {
        let options = write_options(durability)?;
        end(transaction, |ending| ending.commit(options))
    })
}

/// Ends a transaction without its writes. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_rollback(transaction: *mut runstone_transaction) -> runstone_status {
    answer(|| match transaction.is_null() {
        true => Ok(()),
        false => end(transaction, SharedTransaction::rollback),
    })
}

/// Sets a savepoint, to which the writes can be rolled back. There may be several.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_set_savepoint(
    transaction: *mut runstone_transaction,
) -> runstone_status {
    answer(|| {
        runstone_transaction::get(transaction)?.write(|transaction| {
            transaction.set_savepoint();
            Ok(())
        })
    })
}

/// Undoes the writes since the last savepoint, and removes that savepoint.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_rollback_to_savepoint(
    transaction: *mut runstone_transaction,
) -> runstone_status {
    answer(|| runstone_transaction::get(transaction)?.write(Transaction::rollback_to_savepoint))
}

/// Looks up a key: the transaction's own last write, or else the value as of its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_get(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (place, key) =
            unsafe { (Place::empty("value", value)?, required("key", key, key_size)?) };
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        let found = transaction.read(|transaction| Ok(transaction.get(&keyspace, key)?))?;
        place.set(found.map_or(runstone_bytes::NONE, runstone_bytes::of));
        Ok(())
    })
}

/// Looks up a key that a pessimistic transaction will write, as of now, and takes its lock, so that
/// no other such transaction writes it before the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_get_for_update(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (place, key) =
            unsafe { (Place::empty("value", value)?, required("key", key, key_size)?) };
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        let found = transaction.write(|transaction| transaction.get_for_update(&keyspace, key))?;
        place.set(found.map_or(runstone_bytes::NONE, runstone_bytes::of));
        Ok(())
    })
}

/// Stores a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_put(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        transaction.write(|transaction| transaction.put(&keyspace, key, value))
    })
}

/// Removes a key. Removing an absent key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_delete(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        transaction.write(|transaction| transaction.delete(&keyspace, key))
    })
}

/// Changes a value with an operand of the keyspace's merge operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_merge(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    operand: *const c_void,
    operand_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, operand) = unsafe {
            (required("key", key, key_size)?, required("operand", operand, operand_size)?)
        };
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        transaction.write(|transaction| transaction.merge(&keyspace, key, operand))
    })
}

/// Removes all keys from `from` (null: the first key) up to but not including `to` (null: no
/// bound). A pessimistic transaction refuses this, because it locks single keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_delete_range(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let range = unsafe { range(from, from_size, to, to_size) }?;
        let keyspace = runstone_keyspace::get(keyspace)?;
        let transaction = runstone_transaction::get(transaction)?;
        transaction.write(|transaction| transaction.delete_range(&keyspace, range))
    })
}

/// Makes a cursor over the entries that a transaction sees: its own writes, including later ones,
/// on top of the store as of its beginning. The cursor fails once the transaction has ended, but
/// must still be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_transaction_cursor(
    transaction: *mut runstone_transaction,
    keyspace: *const runstone_keyspace,
    options: *const runstone_read_options,
    cursor: *mut *mut runstone_cursor,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid options and a valid place.
        let (options, place) = unsafe { (read_options(options)?, Place::new("cursor", cursor)?) };
        let keyspace = Keyspace::clone(&*runstone_keyspace::get(keyspace)?);
        let transaction = SharedTransaction::clone(&*runstone_transaction::get(transaction)?);
        let made = PagedCursor::new(transaction, keyspace, options)?;
        place.keep(Alone::new(AnyCursor::Transaction(made)))
    })
}

#[cfg(test)]
mod tests {
    use runstone::{Options, Store, WriteOptions};

    use super::*;

    /// Two threads ended a transaction at once: one committed it, the other found that it had ended
    /// and closed the handle. The first thread then could not close the handle, and reported CLOSED
    /// although its writes were visible. Now each thread reports the outcome of its own call.
    #[test]
    fn a_commit_whose_handle_another_thread_closes_is_a_commit() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        let begun = SharedTransaction::begin(&store, TransactionOptions::default()).expect("room");
        begun.write(|inner| inner.put(store.default_keyspace(), "k", "v")).expect("open");
        let handle = runstone_transaction::keep(begun).expect("room");
        let outcome = end(handle, |ending| {
            ending.commit(WriteOptions::default())?;
            runstone_transaction::close(handle)
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(store.get("k").expect("readable").as_deref(), Some(&b"v"[..]));
        assert_eq!(end(handle, SharedTransaction::rollback).expect_err("ended").code, Code::Closed);
    }
}
