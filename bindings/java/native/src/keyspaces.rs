//! Keyspaces: reads and single writes.

use std::ops::Bound;
use std::time::Duration;

use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use runstone::{Durability, Value, WriteOptions};
use runstone_boundary::stores::keep_keyspace;
use runstone_boundary::{Failure, Result, options};

use crate::bytes::{Copied, array, direct, fill_direct, size};
use crate::calls::{call, handle, optional_text, refused, text};
use crate::snapshots::moment;
use crate::stores::{KEYSPACES, STORES};

/// The result in place of a size when a key has no value.
const ABSENT: jint = -1;

/// The most bytes of an answer with several entries. What is drained is removed before Java has an
/// array for it, so the array is small.
const MOST_DRAINED: usize = 4 << 20;

/// Virtual machines refuse arrays of the last few sizes.
const MOST_ARRAY: usize = i32::MAX as usize - 8;

/// Options of a write: the place of the durability in `WriteOptions.Durability`, and the time to
/// live, which is -1 for none.
pub fn write_options(durability: jint, ttl_ms: jlong) -> Result<WriteOptions> {
    let options = WriteOptions::default().durability(match durability {
        0 => None,
        1 => Some(Durability::Buffered),
        2 => Some(Durability::Sync),
        other => return Err(Failure::invalid(format!("durability {other} is none"))),
    });
    match u64::try_from(ttl_ms) {
        Ok(ttl_ms) => Ok(options.ttl(Duration::from_millis(ttl_ms))),
        Err(_) => Ok(options),
    }
}

fn value(keyspace: jlong, key: &[u8], snapshot: jlong) -> Result<Option<Value>> {
    let keyspace = KEYSPACES.get(handle(keyspace))?;
    Ok(match moment(snapshot)? {
        None => keyspace.get(key)?,
        Some(at) => at.keyspace(&keyspace)?.get_at(key, &at.snapshot)?,
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openKeyspace<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    name: JString<'l>,
    options: JString<'l>,
    may_make: jboolean,
) -> jlong {
    call(env, |env| {
        let name = text(env, &name, "name of the keyspace")?;
        let options = optional_text(env, &options, "options")?;
        let options = options.map(|text| options::of_keyspace(&text)).transpose()?;
        let kept = keep_keyspace((&STORES, handle(store)), &KEYSPACES, |store| {
            let existing = if may_make { None } else { Some(store.keyspace(&name)?) };
            Ok(match existing {
                Some(keyspace) if options.is_none() => keyspace,
                _ => store.open_keyspace(&name, options)?,
            })
        });
        Ok(kept?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeKeyspace<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
) {
    call(env, |_| KEYSPACES.close(handle(keyspace)));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_get<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    snapshot: jlong,
    key: JByteArray<'l>,
) -> JByteArray<'l> {
    call(env, |env| {
        let key = Copied::of(env, &key, "key")?;
        match value(keyspace, key.bytes(), snapshot)? {
            Some(value) => array(env, &value),
            None => Ok(JByteArray::default()),
        }
    })
}

/// A get between direct buffers. Copies as much of the value as fits, and returns its whole size.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_getDirect<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    snapshot: jlong,
    key: JByteBuffer<'l>,
    key_from: jint,
    key_count: jint,
    out: JByteBuffer<'l>,
    out_from: jint,
    out_count: jint,
) -> jint {
    call(env, |env| {
        let key = direct(env, &key, key_from, key_count, "key")?;
        let Some(value) = value(keyspace, key, snapshot)? else { return Ok(ABSENT) };
        fill_direct(env, &out, (out_from, out_count), &value)?;
        size(value.len())
    })
}

/// Values of many keys. In `keys`, each key follows its size. In the answer, each value follows its
/// size, which is -1 for a key without a value. All numbers are little-endian `int`s.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_multiGet<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    keys: JByteArray<'l>,
) -> JByteArray<'l> {
    call(env, |env| {
        let copied = Copied::of(env, &keys, "keys")?;
        let keys = split(copied.bytes())?;
        let values = KEYSPACES.get(handle(keyspace))?.multi_get(&keys)?;
        let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
        let mut answer = Vec::with_capacity(bytes + 4 * values.len());
        for value in &values {
            let count = value.as_ref().map_or(Ok(ABSENT), |value| size(value.len()))?;
            answer.extend_from_slice(&count.to_le_bytes());
            answer.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        size(answer.len())?;
        array(env, &answer)
    })
}

fn split(mut bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let broken = || Failure::invalid("the keys are cut off");
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let count = u32::from_le_bytes(*count) as usize;
        let (key, rest) = rest.split_at_checked(count).ok_or_else(broken)?;
        keys.push(key);
        bytes = rest;
    }
    Ok(keys)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_put<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    key: JByteArray<'l>,
    value: JByteArray<'l>,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let key = Copied::of(env, &key, "key")?;
        let value = Copied::of(env, &value, "value")?;
        Ok(keyspace.put_with(key.bytes(), value.bytes(), write_options(durability, ttl_ms)?)?)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_putDirect<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    key: JByteBuffer<'l>,
    key_from: jint,
    key_count: jint,
    value: JByteBuffer<'l>,
    value_from: jint,
    value_count: jint,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let key = direct(env, &key, key_from, key_count, "key")?;
        let value = direct(env, &value, value_from, value_count, "value")?;
        Ok(keyspace.put_with(key, value, write_options(durability, ttl_ms)?)?)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_delete<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    key: JByteArray<'l>,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |env| {
        let key = Copied::of(env, &key, "key")?;
        Ok(KEYSPACES
            .get(handle(keyspace))?
            .delete_with(key.bytes(), write_options(durability, ttl_ms)?)?)
    });
}

/// Removes the keys from `from` up to but not including `to`. A null bound leaves its end open.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_deleteRange<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    from: JByteArray<'l>,
    to: JByteArray<'l>,
    durability: jint,
    ttl_ms: jlong,
) {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let range = range(bounds(env, &from, &to)?);
        Ok(keyspace.delete_range_with(range, write_options(durability, ttl_ms)?)?)
    });
}

/// Removes the first entries of a range, up to `most` of them. In the answer, each key and each
/// value follows its size, a little-endian `int`.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_drain<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    from: JByteArray<'l>,
    to: JByteArray<'l>,
    most: jint,
    durability: jint,
    ttl_ms: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let most = usize::try_from(most).map_err(|_| Failure::invalid("fewer than no entries"))?;
        let options = write_options(durability, ttl_ms)?;
        let range = range(bounds(env, &from, &to)?);
        let (mut bytes, mut last) = (0, Vec::new());
        let fits = |key: &[u8], value: &[u8]| {
            // After a conflict, the range is read from its start again.
            let before = if last[..] < *key { bytes } else { 0 };
            bytes = before + entry_bytes(key, value)?;
            last = key.to_vec();
            Ok(before == 0 || bytes <= MOST_DRAINED)
        };
        let taken = KEYSPACES.get(handle(keyspace))?.drain_while(range, most, options, fits)?;
        pairs(env, &taken)
    })
}

/// Removes the last entry, and answers as `drain` does.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_popLast<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    durability: jint,
    ttl_ms: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let options = write_options(durability, ttl_ms)?;
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        loop {
            let Some((key, value)) = keyspace.last_key_value()? else { return pairs(env, &[]) };
            entry_bytes(&key, &value)?;
            if keyspace.compare_and_swap_with(&key, Some(&value), None, options)?.is_ok() {
                return pairs(env, &[(key, value)]);
            }
        }
    })
}

/// The bytes of an entry in an answer. What fits no array must not be removed: Java could not get
/// it.
fn entry_bytes(key: &[u8], value: &[u8]) -> runstone::Result<usize> {
    let bytes = 8 + key.len() + value.len();
    if bytes > MOST_ARRAY {
        let hint = "take it in a language whose arrays hold more";
        return Err(runstone::Error::invalid("the entry is larger than an array of Java", hint));
    }
    Ok(bytes)
}

/// Keys and values for Java.
fn pairs<'l>(env: &mut Env<'l>, entries: &[(Vec<u8>, Value)]) -> Result<JByteArray<'l>> {
    let mut answer = Vec::new();
    for part in entries.iter().flat_map(|(key, value)| [&key[..], &value[..]]) {
        answer.extend_from_slice(&size(part.len())?.to_le_bytes());
        answer.extend_from_slice(part);
    }
    array(env, &answer)
}

/// The approximate numbers of entries and bytes in a range.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_estimate<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    from: JByteArray<'l>,
    to: JByteArray<'l>,
) -> JLongArray<'l> {
    call(env, |env| {
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let estimate = match bounds(env, &from, &to)? {
            (from, Some(to)) => keyspace.estimate(from.unwrap_or_default()..to)?,
            (from, None) => keyspace.estimate(from.unwrap_or_default()..)?,
        };
        let numbers = [estimate.entries as jlong, estimate.bytes as jlong];
        let array = JLongArray::new(env, numbers.len()).map_err(refused("an estimate"))?;
        array.set_region(env, 0, &numbers).map_err(refused("an estimate"))?;
        Ok(array)
    })
}

/// Compacts a keyspace completely.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_compact<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
) {
    call(env, |_| Ok(KEYSPACES.get(handle(keyspace))?.compact()?));
}

/// Both ends of a range, each of which may be open.
pub type Bounds = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The range between bounds.
fn range((from, to): Bounds) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The bounds in Java's arguments.
pub fn bounds(env: &Env<'_>, from: &JByteArray<'_>, to: &JByteArray<'_>) -> Result<Bounds> {
    let own = |array: &JByteArray<'_>, what| {
        let copied = Copied::of_optional(env, array, what)?;
        Ok::<_, Failure>(copied.map(|copied| copied.bytes().to_vec()))
    };
    Ok((own(from, "start of the range")?, own(to, "end of the range")?))
}
