//! Handles: what another language holds in place of an object of ours.
//!
//! A handle is a number, not an address. It names a slot, the slot's generation and the kind of
//! the object. So a handle that was closed, a number that never was one, and a handle of another
//! kind are all refused, and nothing is read through them. An object that one thread closes while
//! another uses it goes when that use ends.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};
use sharded_slab::{Config, Slab};

use crate::failure::{Code, Failure, Result};

/// A handle; never 0.
pub type Handle = NonZeroU64;

/// The highest bits of a handle are its kind.
const KIND_BITS: u32 = 8;

struct Layout;

impl Config for Layout {
    const RESERVED_BITS: usize = KIND_BITS as usize;
}

/// All open objects of one type, in a `static`.
#[derive(Debug)]
pub struct Handles<T: Send + Sync + 'static> {
    slab: LazyLock<Slab<T, Layout>>,
    kind: u8,
    name: &'static str,
}

impl<T: Send + Sync + 'static> Handles<T> {
    /// No objects yet. `kind` tells them from others: at least 1, and each type's own. `name` is
    /// what a message calls one, such as "store".
    pub const fn new(kind: u8, name: &'static str) -> Handles<T> {
        assert!(kind != 0, "a handle is never 0");
        Handles { slab: LazyLock::new(|| Slab::new_with_config::<Layout>()), kind, name }
    }

    /// Takes an object, and gives its handle.
    ///
    /// # Errors
    /// If there are too many: more than the memory of any machine holds.
    pub fn keep(&self, object: T) -> Result<Handle> {
        let key = self.slab.insert(object);
        let handle = key.and_then(|key| Handle::new(key as u64 | self.tag()));
        handle.ok_or_else(|| {
            Failure::new(Code::InvalidArgument, format!("there are too many {}s", self.name))
        })
    }

    /// The object of a handle, which stays alive while the result lives. O(1), without a lock.
    ///
    /// # Errors
    /// If the handle is 0, was closed, or never was one of this kind.
    pub fn get(&self, handle: u64) -> Result<impl Deref<Target = T> + '_> {
        self.key(handle).and_then(|key| self.slab.get(key)).ok_or_else(|| self.refuse(handle))
    }

    /// What `work` makes of the object of a handle: [`Handles::get`] for what is called once per
    /// key. `get` moves what the slab gives, a wide load right behind the narrow stores that wrote
    /// it; a look-up of a key took 20 ns longer with it.
    ///
    /// # Errors
    /// As of [`Handles::get`], and those of `work`.
    #[inline]
    pub fn with<R>(&self, handle: u64, work: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let object = self.key(handle).and_then(|key| self.slab.get(key));
        let Some(object) = &object else { return Err(self.refuse(handle)) };
        work(object)
    }

    /// Closes a handle: from now on it is refused. Its object goes when nobody uses it any more.
    ///
    /// # Errors
    /// If the handle is 0, was closed, or never was one of this kind.
    pub fn close(&self, handle: u64) -> Result<()> {
        let was_open = self.key(handle).is_some_and(|key| self.slab.remove(key));
        was_open.then_some(()).ok_or_else(|| self.refuse(handle))
    }

    fn tag(&self) -> u64 {
        u64::from(self.kind) << (u64::BITS - KIND_BITS)
    }

    fn key(&self, handle: u64) -> Option<usize> {
        let key = handle ^ self.tag();
        (key >> (u64::BITS - KIND_BITS) == 0).then_some(key as usize)
    }

    #[cold]
    fn refuse(&self, handle: u64) -> Failure {
        match handle {
            0 => Failure::new(Code::InvalidArgument, format!("the {} is null", self.name)),
            _ => Failure::new(Code::Closed, format!("the {} was closed, or is none", self.name)),
        }
    }
}

/// An object that one thread at a time may use.
#[derive(Debug)]
pub struct Alone<T>(Mutex<T>);

impl<T> Alone<T> {
    /// Nobody is using it yet.
    pub fn new(object: T) -> Alone<T> {
        Alone(Mutex::new(object))
    }

    /// The object, until the result goes.
    ///
    /// # Errors
    /// If another thread is using it.
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.0.try_lock().ok_or_else(|| {
            let what = "another thread is using this object, which one thread at a time may use";
            Failure::new(Code::Busy, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    static TEXTS: Handles<Arc<str>> = Handles::new(1, "text");
    static NUMBERS: Handles<u64> = Handles::new(2, "number");

    fn code<T>(result: Result<T>) -> Code {
        result.map(|_| ()).expect_err("refused").code
    }

    #[test]
    fn a_handle_works_until_it_is_closed() {
        let handle = TEXTS.keep("one".into()).expect("room").get();
        assert_eq!(&**TEXTS.get(handle).expect("open"), "one");
        assert_eq!(TEXTS.with(handle, |text| Ok(text.len())), Ok(3));
        TEXTS.close(handle).expect("open");
        assert_eq!(code(TEXTS.with(handle, |_| Ok(()))), Code::Closed);
        assert_eq!(code(TEXTS.get(handle)), Code::Closed);
        assert_eq!(code(TEXTS.close(handle)), Code::Closed);
        // The slot is used again; the old handle does not show the new object.
        let handles: Vec<u64> =
            (0..100).map(|_| TEXTS.keep("other".into()).expect("room").get()).collect();
        assert_eq!(code(TEXTS.get(handle)), Code::Closed);
        handles.into_iter().for_each(|handle| TEXTS.close(handle).expect("open"));
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let number = NUMBERS.keep(7).expect("room").get();
        assert_eq!(code(TEXTS.get(number)), Code::Closed, "of another kind");
        assert_eq!(code(NUMBERS.get(0)), Code::InvalidArgument);
        for bits in [1, u64::MAX, 0xdead_beef, number ^ 1 << 40, number + 1] {
            assert_eq!(code(NUMBERS.get(bits)), Code::Closed, "{bits:x}");
        }
        NUMBERS.close(number).expect("open");
    }

    #[test]
    fn an_object_in_use_outlives_its_handle() {
        let text: Arc<str> = "kept".into();
        let handle = TEXTS.keep(Arc::clone(&text)).expect("room").get();
        let in_use = TEXTS.get(handle).expect("open");
        let outlives = TEXTS.with(handle, |inside| {
            TEXTS.close(handle).expect("open");
            assert_eq!(code(TEXTS.get(handle)), Code::Closed);
            Ok(&**inside == "kept")
        });
        assert_eq!((outlives, &**in_use, Arc::strong_count(&text)), (Ok(true), "kept", 2));
        drop(in_use);
        assert_eq!(Arc::strong_count(&text), 1);
    }
}
