//! Stores that follow another store, change by change.

use std::sync::Arc;
use std::time::Duration;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JObject, JString};
use jni::sys::jlong;
use runstone::Mirror;
use runstone_boundary::mirrors::OpenMirror;
use runstone_boundary::{Handles, options};

use crate::answers::Answer;
use crate::calls::{call, handle, text};
use crate::events::Listener;

/// Open mirrors.
static MIRRORS: Handles<OpenMirror> = Handles::new(11, "mirror");

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openMirror<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    source: JString<'l>,
    target: JString<'l>,
    options: JString<'l>,
    events: JObject<'l>,
) -> jlong {
    call(env, |env| {
        let source = text(env, &source, "path of the store")?;
        let target = text(env, &target, "path of the mirror")?;
        let mut options = options::of_store(&text(env, &options, "options")?)?;
        options.listener = Some(Arc::new(Listener::new(env, &events)?));
        let mirror = Mirror::open(source, target, options)?;
        Ok(MIRRORS.keep(OpenMirror::new(mirror))?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeMirror<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    mirror: jlong,
) {
    call(env, |_| {
        let open = MIRRORS.get(handle(mirror))?;
        open.check_caller()?;
        MIRRORS.close(handle(mirror))?;
        open.close()
    });
}

/// Refuses a call from a callback of a mirror, as closing the mirror does. Does nothing if the
/// mirror is closed.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_checkMirrorCloser<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    mirror: jlong,
) {
    call(env, |_| MIRRORS.get(handle(mirror)).map_or(Ok(()), |mirror| mirror.check_caller()));
}

/// Java waits in short calls, so that other threads can use the mirror between them.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_advanceMirror<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    mirror: jlong,
    wait_ms: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let most = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
        let round = MIRRORS.get(handle(mirror))?.later(|mirror| mirror.advance(most))?;
        let numbers = [round.changes, round.bytes, u64::from(round.is_drained)];
        Answer::default().numbers(numbers).give(env)
    })
}

/// The position in the other store that the mirror has reached.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_mirrored<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    mirror: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let found = MIRRORS.get(handle(mirror))?.later(|mirror| Ok(mirror.position()))?;
        Answer::default().numbers([found.seq(), found.history()]).give(env)
    })
}
