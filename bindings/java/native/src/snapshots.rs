//! Snapshots: states of a store, which readers name by their handles.

use jni::EnvUnowned;
use jni::objects::JClass;
use jni::sys::jlong;
use runstone_boundary::stores::Moment;
use runstone_boundary::{Handles, Result};

use crate::calls::{call, handle};
use crate::stores::STORES;

/// Open snapshots.
pub static SNAPSHOTS: Handles<Moment> = Handles::new(3, "snapshot");

/// The snapshot of a handle; `None` for 0, which means now.
pub fn moment(snapshot: jlong) -> Result<Option<Moment>> {
    match snapshot {
        0 => Ok(None),
        _ => Ok(Some(SNAPSHOTS.get(handle(snapshot))?.clone())),
    }
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_snapshot<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> jlong {
    call(env, |_| {
        let snapshot = Moment::of(&*STORES.get(handle(store))?);
        Ok(SNAPSHOTS.keep(snapshot)?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeSnapshot<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    snapshot: jlong,
) {
    call(env, |_| SNAPSHOTS.close(handle(snapshot)));
}
