//! Java's bytes as slices. Arrays are copied, because the collector may move them while the store
//! waits; direct buffers stay where they are.
//!
//! Obligations of the unsafe code:
//!
//! * O1 `i8` and `u8` have the same size and alignment, and every pattern is valid for both.
//! * O2 Between getting and releasing the elements of an array, no JNI function is called and
//!   nothing waits, because the collector may be stopped.
//! * O3 A direct buffer is alive while Java's call runs, because the call has a reference to it.
//! * O4 No thread writes to the buffers of a call while the call runs. The documentation of the
//!   Java side requires this. A caller that breaks the rule stores bytes that it did not intend.

use std::cell::Cell;
use std::slice;

use jni::Env;
use jni::elements::ReleaseMode;
use jni::objects::{JByteArray, JByteBuffer};
use jni::sys::{jint, jsize};
use runstone_boundary::{Failure, Result};

use crate::calls::refused;

/// A larger buffer is not kept.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The buffer for the key and value of one call. It is taken out while in use.
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of an array, copied into a buffer that the thread keeps.
#[derive(Debug)]
pub struct Copied(Vec<u8>);

impl Copied {
    /// The bytes of an array.
    pub fn of(env: &Env<'_>, array: &JByteArray<'_>, what: &str) -> Result<Copied> {
        if array.is_null() {
            return Err(Failure::invalid(format!("the {what} is null")));
        }
        let count = array.len(env).map_err(refused(what))?;
        let mut copied = Copied(KEPT.take());
        copied.0.resize(count, 0);
        array.get_region(env, 0, signed_mut(&mut copied.0)).map_err(refused(what))?;
        Ok(copied)
    }

    /// The bytes of an array that may be null.
    pub fn of_optional(env: &Env<'_>, array: &JByteArray<'_>, what: &str) -> Result<Option<Self>> {
        if array.is_null() { Ok(None) } else { Copied::of(env, array, what).map(Some) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT_BYTES {
            KEPT.set(std::mem::take(&mut self.0));
        }
    }
}

/// A new array with these bytes.
pub fn array<'l>(env: &mut Env<'l>, bytes: &[u8]) -> Result<JByteArray<'l>> {
    let array = JByteArray::new(env, bytes.len()).map_err(refused("an array for a value"))?;
    array.set_region(env, 0, signed(bytes)).map_err(refused("an array for a value"))?;
    Ok(array)
}

/// Copies bytes to the beginning of an array.
pub fn fill(env: &Env<'_>, array: &JByteArray<'_>, bytes: &[u8]) -> Result<()> {
    array.set_region(env, 0, signed(bytes)).map_err(refused("an array for entries"))
}

/// Passes the first `count` bytes of an array to `take` in place. `take` must not wait, and gets no
/// environment (O2).
pub fn in_place<T>(
    env: &Env<'_>,
    array: &JByteArray<'_>,
    count: jint,
    take: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    if array.is_null() {
        return Err(Failure::invalid("the operations are null"));
    }
    let all = array.len(env).map_err(refused("the operations"))?;
    let count = usize::try_from(count).ok().filter(|count| *count <= all);
    let count = count.ok_or_else(|| Failure::invalid("more operations than the array holds"))?;
    // SAFETY: O2, as `take` has no environment; O4.
    let elements = unsafe { array.get_elements_critical(env, ReleaseMode::NoCopyBack) };
    let elements = elements.map_err(refused("the operations"))?;
    // SAFETY: the elements are `all` bytes that live as long as `elements`; O1.
    let bytes = unsafe { slice::from_raw_parts(elements.as_ptr().cast::<u8>(), count) };
    Ok(take(bytes))
}

/// A part of a direct buffer.
pub fn direct<'b>(
    env: &Env<'_>,
    buffer: &'b JByteBuffer<'_>,
    from: jint,
    count: jint,
    what: &str,
) -> Result<&'b [u8]> {
    let (address, count) = stretch(env, buffer, from, count, what)?;
    // SAFETY: `stretch` checked that the bytes are inside the buffer; O3, O4.
    Ok(unsafe { slice::from_raw_parts(address, count) })
}

/// Copies as many bytes as fit to a part of a direct buffer.
pub fn fill_direct(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    (from, count): (jint, jint),
    bytes: &[u8],
) -> Result<()> {
    let (address, count) = stretch(env, buffer, from, count, "buffer for the value")?;
    let count = count.min(bytes.len());
    // SAFETY: `stretch` checked that the bytes are inside the buffer; O3, O4. The store's bytes do
    // not overlap it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, count) };
    Ok(())
}

fn stretch(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    from: jint,
    count: jint,
    what: &str,
) -> Result<(*mut u8, usize)> {
    if buffer.is_null() {
        return Err(Failure::invalid(format!("the {what} is null")));
    }
    let outside = || Failure::invalid(format!("the {what} reaches outside of its buffer"));
    let capacity = env.get_direct_buffer_capacity(buffer).map_err(refused(what))?;
    let from = usize::try_from(from).map_err(|_| outside())?;
    let count = usize::try_from(count).map_err(|_| outside())?;
    if from.checked_add(count).is_none_or(|end| end > capacity) {
        return Err(outside());
    }
    if count == 0 {
        return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
    }
    let address = env.get_direct_buffer_address(buffer).map_err(refused(what))?;
    // SAFETY: the offset is inside the buffer.
    Ok((unsafe { address.add(from) }, count))
}

fn signed(bytes: &[u8]) -> &[i8] {
    // SAFETY: O1; same length and lifetime.
    unsafe { slice::from_raw_parts(bytes.as_ptr().cast::<i8>(), bytes.len()) }
}

fn signed_mut(bytes: &mut [u8]) -> &mut [i8] {
    // SAFETY: O1; same length and lifetime, and the result has the exclusive borrow.
    unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<i8>(), bytes.len()) }
}

/// Java's sizes are `int`.
pub fn size(bytes: usize) -> Result<jsize> {
    jsize::try_from(bytes)
        .map_err(|_| Failure::invalid(format!("{bytes} bytes are more than a Java array holds")))
}
