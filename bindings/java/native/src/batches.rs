//! Many writes in one call. Java puts them into one array, from which this module reads them:
//!
//! ```text
//! operation := kind u8 | keyspace u8 | key size u32 | value size u32 | key | value
//! kind      := 1 put, 2 delete (no value), 3 operand of the merge operator,
//!              4 delete of a range: from the key to before the value, or to the end if it is empty
//! keyspace  := index into the array of handles that comes with it
//! ```
//!
//! Numbers are little-endian.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray};
use jni::sys::{jint, jlong};
use runstone::{Batch, Keyspace};
use runstone_boundary::{Failure, Result};

use crate::bytes::in_place;
use crate::calls::{call, handle, refused};
use crate::keyspaces::write_options;
use crate::stores::{KEYSPACES, STORES};

const HEAD_BYTES: usize = 10;

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_write<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    keyspaces: JLongArray<'l>,
    operations: JByteArray<'l>,
    count: jint,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |env| {
        if keyspaces.is_null() {
            return Err(Failure::invalid("the keyspaces are null"));
        }
        let used = keyspaces.len(env).map_err(refused("the keyspaces"))?;
        let mut handles = vec![0; used];
        keyspaces.get_region(env, 0, &mut handles).map_err(refused("the keyspaces"))?;
        let keyspaces = handles.into_iter().map(|one| Ok(KEYSPACES.get(handle(one))?.clone()));
        let keyspaces = keyspaces.collect::<Result<Vec<Keyspace>>>()?;
        let batch = in_place(env, &operations, count, |bytes| decode(bytes, &keyspaces))??;
        Ok(STORES.get(handle(store))?.write(&batch, write_options(durability, ttl_ms)?)?)
    });
}

fn decode(mut bytes: &[u8], keyspaces: &[Keyspace]) -> Result<Batch> {
    let broken = || Failure::invalid("the operations are cut off");
    let mut batch = Batch::with_capacity(bytes.len());
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(broken)?;
        let [kind, place, sizes @ ..] = *head;
        let sizes = u64::from_le_bytes(sizes);
        let (key, rest) = rest.split_at_checked(sizes as u32 as usize).ok_or_else(broken)?;
        let (value, rest) = rest.split_at_checked((sizes >> 32) as usize).ok_or_else(broken)?;
        let keyspace = keyspaces.get(usize::from(place)).ok_or_else(broken)?;
        match kind {
            1 => batch.put(keyspace, key, value)?,
            2 => batch.delete(keyspace, key)?,
            3 => batch.merge(keyspace, key, value)?,
            4 if value.is_empty() => batch.delete_range(keyspace, key..)?,
            4 => batch.delete_range(keyspace, key..value)?,
            _ => return Err(Failure::invalid(format!("there is no operation {kind}"))),
        }
        bytes = rest;
    }
    Ok(batch)
}
