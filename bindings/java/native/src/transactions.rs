//! Transactions.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jint, jlong};
use runstone::TransactionOptions;
use runstone_boundary::transactions::SharedTransaction;
use runstone_boundary::{Failure, Handles};

use crate::bytes::{Copied, array};
use crate::calls::{call, handle};
use crate::keyspaces::write_options;
use crate::stores::{KEYSPACES, STORES};

/// Open transactions. A committed transaction stays until it is closed, and is refused.
static TRANSACTIONS: Handles<SharedTransaction> = Handles::new(5, "transaction");

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
        let transaction = SharedTransaction::begin(&*STORES.get(handle(store))?, options)?;
        Ok(TRANSACTIONS.keep(transaction)?.get() as jlong)
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
        let transaction = TRANSACTIONS.get(handle(transaction))?;
        let value = match for_update {
            false => transaction.read(|inner| Ok(inner.get(&keyspace, key.bytes())?))?,
            true => transaction.write(|inner| inner.get_for_update(&keyspace, key.bytes()))?,
        };
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
        let transaction = TRANSACTIONS.get(handle(transaction))?;
        transaction.write(|inner| inner.put(&keyspace, key.bytes(), value.bytes()))
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
        let transaction = TRANSACTIONS.get(handle(transaction))?;
        transaction.write(|inner| inner.delete(&keyspace, key.bytes()))
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_commit<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |_| {
        TRANSACTIONS.get(handle(transaction))?.commit(write_options(durability, ttl_ms)?)
    });
}
