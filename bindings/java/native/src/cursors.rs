//! Cursors, which give Java a page of entries per call: a call costs more than many entries.
//!
//! ```text
//! page  := entry*
//! entry := key size u32 | value size u32 | key | value        (little-endian)
//! ```
//!
//! A cursor is on the first entry that Java has not received yet.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jint, jlong};
use parking_lot::Mutex;
use runstone::{Cursor, ReadOptions};
use runstone_boundary::{Code, Failure, Handles, Result};

use crate::bytes::{Copied, fill, size};
use crate::calls::{call, handle, refused};
use crate::keyspaces::bounds;
use crate::snapshots::moment;
use crate::stores::KEYSPACES;

/// Open cursors.
static CURSORS: Handles<Mutex<Walk>> = Handles::new(4, "cursor");

/// Set in an answer if no entry follows those of the page.
const IS_LAST: jlong = 1 << 32;
const HEAD_BYTES: usize = 8;

/// Where a page begins. Java uses the same numbers.
const FIRST: jint = 0;
const LAST: jint = 1;
/// At the given key or after it.
const SEEK: jint = 2;
/// At the given key or before it.
const SEEK_BACK: jint = 3;
/// After the given key.
const AFTER: jint = 4;
/// Before the given key.
const BEFORE: jint = 5;
/// Where the last page ended.
const ON: jint = 6;

struct Walk {
    cursor: Cursor,
    is_forward: bool,
    page: Vec<u8>,
    /// The error after the page, which is reported in place of the next page.
    failure: Option<Failure>,
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_cursor<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    snapshot: jlong,
    from: JByteArray<'l>,
    to: JByteArray<'l>,
    fill_cache: jboolean,
) -> jlong {
    call(env, |env| {
        let (from, to) = bounds(env, &from, &to)?;
        let options = ReadOptions::default().with_bounds(from.as_deref(), to.as_deref());
        let options = options.fill_cache(fill_cache);
        let keyspace = KEYSPACES.get(handle(keyspace))?;
        let cursor = match moment(snapshot)? {
            None => keyspace.cursor(options)?,
            Some(at) => at.keyspace(&keyspace)?.cursor(options.at(&at.snapshot))?,
        };
        let walk = Walk { cursor, is_forward: true, page: Vec::new(), failure: None };
        Ok(CURSORS.keep(Mutex::new(walk))?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeCursor<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    cursor: jlong,
) {
    call(env, |_| CURSORS.close(handle(cursor)));
}

/// Fills a page. Returns the bytes used, with [`IS_LAST`] if there are no more entries. If not even
/// the first entry fits, returns the size that the page must have, as a negative number, and the
/// cursor does not move.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_fetch<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    cursor: jlong,
    start: jint,
    key: JByteArray<'l>,
    page: JByteArray<'l>,
) -> jlong {
    call(env, |env| {
        let walk = CURSORS.get(handle(cursor))?;
        let mut walk = walk.try_lock().ok_or_else(|| {
            Failure::new(Code::Busy, "another thread uses the cursor; open one for each thread")
        })?;
        if page.is_null() {
            return Err(Failure::invalid("the page is null"));
        }
        let room = page.len(env).map_err(refused("the page"))?;
        match start {
            FIRST | LAST | ON => walk.start(start, &[])?,
            _ => walk.start(start, Copied::of(env, &key, "key")?.bytes())?,
        }
        let answer = walk.fetch(room)?;
        fill(env, &page, &walk.page)?;
        Ok(answer)
    })
}

impl Walk {
    fn start(&mut self, start: jint, key: &[u8]) -> Result<()> {
        let failure = self.failure.take().filter(|_| start == ON);
        failure.map_or(Ok(()), Err)?;
        let Walk { cursor, is_forward, .. } = self;
        if start != ON {
            *is_forward = matches!(start, FIRST | SEEK | AFTER);
        }
        match start {
            FIRST => cursor.seek_to_first()?,
            LAST => cursor.seek_to_last()?,
            SEEK | AFTER => cursor.seek(key)?,
            SEEK_BACK | BEFORE => cursor.seek_for_prev(key)?,
            ON => {}
            _ => return Err(Failure::invalid(format!("there is no start {start}"))),
        }
        if matches!(start, AFTER | BEFORE) && cursor.valid() && cursor.key() == key {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let stepped = if self.is_forward { self.cursor.next() } else { self.cursor.prev() };
        Ok(stepped?)
    }

    fn fetch(&mut self, room: usize) -> Result<jlong> {
        self.page.clear();
        while self.cursor.valid() {
            let (key, value) = (self.cursor.key(), self.cursor.value());
            let needed = HEAD_BYTES + key.len() + value.len();
            if self.page.len() + needed > room {
                let is_first = self.page.is_empty();
                let (used, needed) = (size(self.page.len())?, size(needed)?);
                return Ok(jlong::from(if is_first { -needed } else { used }));
            }
            self.page.extend_from_slice(&(key.len() as u32).to_le_bytes());
            self.page.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.page.extend_from_slice(key);
            self.page.extend_from_slice(value);
            if let Err(failure) = self.step() {
                self.failure = Some(failure);
                return Ok(jlong::from(size(self.page.len())?));
            }
        }
        Ok(jlong::from(size(self.page.len())?) | IS_LAST)
    }
}
