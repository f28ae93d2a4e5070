//! The changes committed to a store, in order.

use std::time::Duration;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JString};
use jni::sys::{jboolean, jint, jlong};
use parking_lot::Mutex;
use runstone::{ChangesFrom, Position};
use runstone_boundary::changes::{
    ChangeKind, ChangeReader, OneChange, OneWrite, Reading, WriteReader,
};
use runstone_boundary::{Failure, Handle, Handles, Result, options};

use crate::answers::Answer;
use crate::calls::{call, handle, optional_text, text};

/// Open readers of changes.
static CHANGES: Handles<Mutex<ChangeReader>> = Handles::new(9, "reader of changes");
/// Changes whose writes Java has not read completely.
static WRITES: Handles<Mutex<WriteReader>> = Handles::new(10, "change");

/// Where changes begin. Java uses the same numbers.
const OLDEST: jint = 0;
const NOW: jint = 1;
const AFTER: jint = 2;
const EVERYTHING: jint = 3;

/// If options for the state are given, a gap in the log is not an error.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openChanges<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: JString<'l>,
    from: jint,
    number: jlong,
    history: jlong,
    state: JString<'l>,
    unsynced: jboolean,
) -> jlong {
    call(env, |env| {
        let store = text(env, &store, "path of the store")?;
        let from = match from {
            OLDEST => ChangesFrom::Oldest,
            NOW => ChangesFrom::Now,
            AFTER => ChangesFrom::After(Position::new(history as u64, number as u64)),
            EVERYTHING => ChangesFrom::Everything,
            _ => return Err(Failure::invalid(format!("there is no beginning {from}"))),
        };
        let state = optional_text(env, &state, "options for the state")?;
        let state = state.map(|text| options::of_store(&text)).transpose()?;
        let reader = ChangeReader::open(store, Reading { from, state, unsynced })?;
        Ok(CHANGES.keep(Mutex::new(reader))?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeChanges<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    changes: jlong,
) {
    call(env, |_| CHANGES.close(handle(changes)));
}

/// The next change, or null. Java waits in short calls, so that other threads can use the reader
/// between them. The first page of writes follows the change; the handle of the rest is 0 if there
/// are no more.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_nextChange<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    changes: jlong,
    wait_ms: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
        let reader = CHANGES.get(handle(changes))?;
        let given = reader.lock().hand_over(wait, |change| {
            let (answer, rest) = tell(change)?;
            let given = answer.give(env);
            if let (Err(_), Some(rest)) = (&given, rest) {
                WRITES.close(rest.get())?;
            }
            given
        })?;
        Ok(given.unwrap_or_default())
    })
}

/// The answer, and the handle of the remaining writes, which the answer contains.
fn tell(change: &OneChange) -> Result<(Answer, Option<Handle>)> {
    let mut writes = change.writes()?;
    let first = writes.read()?;
    // A plain change has all of its writes in one page.
    let rest = match (&first, change.kind == ChangeKind::Loaded) {
        (Some(_), true) => Some(WRITES.keep(Mutex::new(writes))?),
        _ => None,
    };
    let answer = Answer::default()
        .numbers([change.position.seq(), change.position.history(), change.kind as u64])
        .list(&change.keyspaces, |answer, (name, options)| {
            answer.bytes(name).optional(options.as_ref(), Answer::bytes)
        })
        .optional(change.time_ms, Answer::number)
        .optional(change.gap, |answer, (after, through)| answer.numbers([after, through]));
    Ok((page(answer, first).number(rest.map_or(0, Handle::get)), rest))
}

fn page(answer: Answer, writes: Option<Vec<OneWrite>>) -> Answer {
    answer.list(writes.unwrap_or_default(), |answer, one| {
        answer
            .number(one.kind as u64)
            .bytes(one.keyspace.as_bytes())
            .bytes(one.key)
            .optional(one.value, Answer::bytes)
            .optional(one.expires_ms, Answer::number)
            .number(u64::from(one.is_folded))
    })
}

/// The next writes of a change; empty if there are no more.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_nextWrites<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    writes: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let more = WRITES.get(handle(writes))?.lock().read()?;
        page(Answer::default(), more).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeWrites<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    writes: jlong,
) {
    call(env, |_| WRITES.close(handle(writes)));
}

/// The position after the last returned change.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_changesPosition<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    changes: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let found = CHANGES.get(handle(changes))?.lock().position();
        Answer::default().numbers([found.seq(), found.history()]).give(env)
    })
}
