//! Transactions.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jint, jlong};
use parking_lot::Mutex;
use runstone::{Transaction, TransactionOptions};
use runstone_boundary::{Code, Failure, Handles, Result};

use crate::bytes::{Copied, array};
use crate::calls::{call, handle};
use crate::keyspaces::{KEYSPACES, durability};
use crate::stores::STORES;

/// Open transactions. A commit takes the transaction out.
static TRANSACTIONS: Handles<Mutex<Option<Transaction>>> = Handles::new(5, "transaction");

fn with<T>(transaction: jlong, work: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
    let slot = TRANSACTIONS.get(handle(transaction))?;
    let mut slot = slot.try_lock().ok_or_else(|| {
        Failure::new(Code::Busy, "another thread uses the transaction; begin one for each thread")
    })?;
    work(slot.as_mut().ok_or_else(ended)?)
}

fn ended() -> Failure {
    Failure::new(Code::Closed, "the transaction has ended; begin another")
}

/// `mode` is 0 for a snapshot, 1 for serializable, 2 for pessimistic.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_begin<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    mode: jint,
) -> jlong {
    call(env, |_| {
        let options = match mode {
            0 => TransactionOptions::default(),
            1 => TransactionOptions::serializable(),
            2 => TransactionOptions::pessimistic(),
            _ => return Err(Failure::invalid(format!("there is no transaction mode {mode}"))),
        };
        let transaction = STORES.get(handle(store))?.begin(options)?;
        Ok(TRANSACTIONS.keep(Mutex::new(Some(transaction)))?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeTransaction<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
) {
    call(env, |_| TRANSACTIONS.close(handle(transaction)));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_transactionGet<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
    for_update: jboolean,
) -> JByteArray<'l> {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let key = Copied::of(env, &key, "key")?;
        let value = with(transaction, |transaction| {
            Ok(match for_update {
                false => transaction.get(&keyspace, key.bytes())?,
                true => transaction.get_for_update(&keyspace, key.bytes())?,
            })
        })?;
        value.map_or_else(|| Ok(JByteArray::default()), |value| array(env, &value))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_transactionPut<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
    value: JByteArray<'l>,
) {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let key = Copied::of(env, &key, "key")?;
        let value = Copied::of(env, &value, "value")?;
        let put = |to: &mut Transaction| Ok(to.put(&keyspace, key.bytes(), value.bytes())?);
        with(transaction, put)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_transactionDelete<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let key = Copied::of(env, &key, "key")?;
        with(transaction, |transaction| Ok(transaction.delete(&keyspace, key.bytes())?))
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_commit<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    sync: jboolean,
) {
    call(env, |_| {
        let taken = {
            let slot = TRANSACTIONS.get(handle(transaction))?;
            let mut slot = slot.try_lock().ok_or_else(ended)?;
            slot.take().ok_or_else(ended)?
        };
        Ok(taken.commit(durability(sync))?)
    });
}
