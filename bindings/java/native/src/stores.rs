//! Stores: opening, closing, and functions that concern a whole store.

use std::sync::Arc;

use jni::objects::{JByteArray, JClass, JObject, JString};
use jni::sys::{jboolean, jlong};
use jni::{Env, EnvUnowned};
use runstone::{Keyspace, Options, Resources, unstable};
use runstone_boundary::stores::{self, OpenStore};
use runstone_boundary::{Handles, Result, options};

use crate::answers::Answer;
use crate::calls::{call, handle, string, text};
use crate::events::Listener;

/// Open stores.
pub static STORES: Handles<OpenStore> = Handles::new(1, "store");
/// Open keyspaces. A refresh of their store replaces the objects of the handles.
pub static KEYSPACES: Handles<Keyspace> = Handles::new(2, "keyspace");
/// Resources that stores share.
static RESOURCES: Handles<Resources> = Handles::new(6, "resources object");

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_version<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
) -> JObject<'l> {
    call(env, |env| string(env, env!("CARGO_PKG_VERSION")))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openResources<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    options: JString<'l>,
) -> jlong {
    call(env, |env| {
        let resources = options::of_resources(&text(env, &options, "options")?)?;
        Ok(RESOURCES.keep(resources)?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_storesOf<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    resources: jlong,
) -> jlong {
    call(env, |_| Ok(RESOURCES.get(handle(resources))?.stores() as jlong))
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeResources<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    resources: jlong,
) {
    call(env, |_| RESOURCES.close(handle(resources)));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_open<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JString<'l>,
    options: JString<'l>,
    resources: jlong,
    events: JObject<'l>,
) -> jlong {
    call(env, |env| {
        let (path, shared) = (text(env, &path, "path")?, shared(resources)?);
        let options = options_of(env, &options, &events, shared.is_some())?;
        let store = match shared {
            None => OpenStore::open(path, options)?,
            Some(resources) => OpenStore::open_sharing(&resources, path, options)?,
        };
        Ok(STORES.keep(store)?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeStore<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(env, |_| stores::close((&STORES, handle(store)), &KEYSPACES));
}

/// Refuses a call from a callback of a store, as closing the store does. Does nothing if the store
/// is closed.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_checkCloser<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(env, |_| match STORES.get(handle(store)) {
        Ok(store) => Ok(unstable::check_caller(&store)?),
        Err(_) => Ok(()),
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_follow<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JString<'l>,
    options: JString<'l>,
    resources: jlong,
    events: JObject<'l>,
) -> jlong {
    call(env, |env| {
        let (path, shared) = (text(env, &path, "path")?, shared(resources)?);
        let options = options_of(env, &options, &events, shared.is_some())?;
        let store = match shared {
            None => OpenStore::follow(path, options)?,
            Some(resources) => OpenStore::follow_sharing(&resources, path, options)?,
        };
        Ok(STORES.keep(store)?.get() as jlong)
    })
}

/// The resources of a handle; `None` for 0. This is a copy, because opening takes long and the
/// handle may be closed before it is done.
fn shared(resources: jlong) -> Result<Option<Resources>> {
    match resources {
        0 => Ok(None),
        _ => Ok(Some(RESOURCES.get(handle(resources))?.clone())),
    }
}

fn options_of(
    env: &mut Env<'_>,
    toml: &JString<'_>,
    events: &JObject<'_>,
    is_sharing: bool,
) -> Result<Options> {
    let toml = text(env, toml, "options")?;
    let mut options = options::of_store(&toml)?;
    if is_sharing {
        options::check_sharing(&toml)?;
    }
    options.listener = Some(Arc::new(Listener::new(env, events)?));
    Ok(options)
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_refresh<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> jboolean {
    call(env, |_| stores::refresh((&STORES, handle(store)), &KEYSPACES))
}

/// The age of the view, in nanoseconds.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_age<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> jlong {
    call(env, |_| {
        let age = STORES.get(handle(store))?.age()?;
        Ok(jlong::try_from(age.as_nanos()).unwrap_or(jlong::MAX))
    })
}

/// The last report of the process that writes to a store, or null.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_live<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let Some(told) = STORES.get(handle(store))?.live()? else {
            return Ok(JByteArray::default());
        };
        let age_ms = u64::try_from(told.age.as_millis()).unwrap_or(u64::MAX);
        Answer::default()
            .numbers([u64::from(told.process), age_ms, u64::from(told.is_current())])
            .bytes(told.metrics.to_prometheus())
            .give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_dropKeyspace<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    name: JString<'l>,
) {
    call(env, |env| {
        let name = text(env, &name, "name of the keyspace")?;
        Ok(STORES.get(handle(store))?.drop_keyspace(&name)?)
    });
}

/// The names of all keyspaces, separated by zero bytes.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_keyspaces<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> JObject<'l> {
    call(env, |env| {
        let names = STORES.get(handle(store))?.keyspaces().join("\0");
        string(env, &names)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_flush<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(env, |_| Ok(STORES.get(handle(store))?.flush()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_sync<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(env, |_| Ok(STORES.get(handle(store))?.sync()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_waitIdle<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(env, |_| Ok(STORES.get(handle(store))?.wait_idle()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_checkpoint<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    path: JString<'l>,
    copies: jboolean,
) {
    call(env, |env| {
        let path = text(env, &path, "path")?;
        let store = STORES.get(handle(store))?;
        Ok(if copies { store.checkpoint_copied(path) } else { store.checkpoint(path) }?)
    });
}

/// The measurements of the store, in Prometheus' text format.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_metrics<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> JObject<'l> {
    call(env, |env| {
        let text = STORES.get(handle(store))?.metrics().to_prometheus();
        string(env, &text)
    })
}
