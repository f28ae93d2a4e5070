//! How Python objects hold parts of a store, and how they release them.
//!
//! Closing a store ends everything. Otherwise cursors would hold tables, and transactions and
//! keyspaces would hold the whole store, with its files and memory, for as long as Python keeps the
//! objects (for example in a traceback). So a store lists its objects, and closing it makes each
//! release its part. If an object is in use, its part is dropped when that use ends. A store that
//! is not closed explicitly is closed with its last object.
//!
//! Python drops objects while it holds its own lock, in any thread that drops the last reference:
//!
//! 1. The drop may wait for threads of the store, and those may wait for Python to run a merge
//!    operator. So Python's lock is released during the drop.
//! 2. A merge operator or filter may drop the last reference to its own store. The job that called
//!    it would wait for itself, so another thread drops the object.
//! 3. A fork has none of the store's threads, but it has the locks that they held. So in a fork
//!    nothing is used or dropped, and the memory stays allocated until the fork exits.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::thread;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use pyo3::{Py, PyAny, Python};
use runstone::{Error, Store};
use runstone_boundary::alone::Alone;
use runstone_boundary::stores::OpenStore;
use runstone_boundary::transactions::SharedTransaction;
use runstone_boundary::{Failure, Result};
use runstone_storage::fork::Process;

use crate::programs::is_inside;

/// An open store, and the list of its objects.
pub struct Family {
    store: Shared<OpenStore>,
    /// The functions that the store calls, which must be visible to Python's collector.
    functions: Vec<Arc<Py<PyAny>>>,
    members: Mutex<Members>,
    process: Process,
}

#[derive(Default)]
struct Members {
    /// Objects by slot. A slot is `None` while it is free.
    objects: Vec<Option<Weak<dyn LetGo>>>,
    free: Vec<usize>,
    is_closed: bool,
}

impl Family {
    pub fn new(store: OpenStore, functions: Vec<Arc<Py<PyAny>>>) -> Arc<Family> {
        let (store, process) = (Shared::new(store), Process::current());
        Arc::new(Family { store, functions, members: Mutex::default(), process })
    }

    /// The functions that the store calls.
    pub fn functions(&self) -> &[Arc<Py<PyAny>>] {
        &self.functions
    }

    /// The store.
    ///
    /// # Errors
    /// Once it is closed, and in a fork of the process that opened it.
    pub fn store(&self) -> Result<InUse<OpenStore>> {
        self.check()?;
        self.store.get()
    }

    /// Moves the store and its keyspaces to the newest commits of another process. Returns whether
    /// there were any.
    pub fn refresh(&self) -> Result<bool> {
        let open = OpenStore::clone(&*self.store()?);
        open.refresh(|now| {
            let mut before = Vec::new();
            let members = self.members.lock();
            if members.is_closed {
                return Err(Error::Closed.into());
            }
            for object in members.objects.iter().flatten().filter_map(Weak::upgrade) {
                before.push(object.show(&now));
            }
            self.store.put(now);
            // This may drop the last reference to the earlier view, which takes a while.
            drop(members);
            drop(before);
            Ok(())
        })
    }

    /// Closes the store, and makes its objects release their parts. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        self.check()?;
        let Ok(store) = self.store.get().map(|open| Store::clone(&open)) else { return Ok(()) };
        let outcome = store.close();
        if let Err(refused @ Error::InsideCallback) = outcome {
            return Err(refused.into());
        }
        let objects = {
            let mut members = self.members.lock();
            members.is_closed = true;
            mem::take(&mut members.objects)
        };
        objects.iter().flatten().filter_map(Weak::upgrade).for_each(|object| object.let_go());
        self.store.0.store(None);
        Ok(outcome?)
    }

    fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    #[inline]
    fn check(&self) -> Result<()> {
        if self.is_foreign() { Err(Error::OtherProcess.into()) } else { Ok(()) }
    }

    /// Adds an object to the list, and returns its slot. O(1).
    fn add(&self, object: Weak<dyn LetGo>) -> usize {
        let mut members = self.members.lock();
        if members.is_closed {
            drop(members);
            object.upgrade().inspect(|object| object.let_go());
            return usize::MAX;
        }
        match members.free.pop() {
            Some(slot) => {
                members.objects[slot] = Some(object);
                slot
            }
            None => {
                members.objects.push(Some(object));
                members.objects.len() - 1
            }
        }
    }

    /// Removes an object from the list. O(1).
    fn remove(&self, slot: usize) {
        let mut members = self.members.lock();
        if let Some(object) = members.objects.get_mut(slot) {
            *object = None;
            members.free.push(slot);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.is_foreign() {
            mem::forget(self.store.0.load_full());
        } else {
            self.store.end();
        }
    }
}

/// An object that can release its part of a store while Python keeps the object.
pub trait LetGo: Send + Sync {
    /// Releases the part. This may wait for threads that use it, and these may wait for Python, so
    /// the caller must not hold Python's lock.
    fn let_go(&self);

    /// Moves the object to a later moment of the store, if it shows one. Returns its previous part.
    fn show(&self, _: &Store) -> Option<Arc<dyn Send + Sync>> {
        None
    }
}

/// The objects of a store at a later moment.
pub trait Later: Sized {
    /// The object at that moment, or the reason why it does not exist. `None` if the object keeps
    /// its moment.
    fn later(&self, _: &Store) -> Option<Result<Self>> {
        None
    }
}

impl Later for runstone::Keyspace {
    fn later(&self, store: &Store) -> Option<Result<Self>> {
        Some(store.keyspace(self.name()).map_err(Failure::from))
    }
}

impl Later for (SharedTransaction, runstone::Keyspace) {}

/// An object that several threads use at once.
pub struct Shared<T>(ArcSwapOption<State<T>>);

/// An object, or the reason why it cannot be used.
struct State<T> {
    object: T,
    gone: Option<Failure>,
}

impl<T> Shared<T> {
    pub fn new(object: T) -> Shared<T> {
        Shared(ArcSwapOption::from_pointee(State { object, gone: None }))
    }

    /// Replaces the object by another one.
    fn put(&self, object: T) {
        self.0.store(Some(Arc::new(State { object, gone: None })));
    }

    /// The object, which stays while the result lives.
    ///
    /// # Errors
    /// Once it is released.
    #[inline]
    pub fn get(&self) -> Result<InUse<T>> {
        let object = self.0.load();
        match object.as_deref() {
            Some(State { gone: None, .. }) => Ok(InUse(object)),
            Some(State { gone: Some(reason), .. }) => Err(reason.clone()),
            None => Err(Error::Closed.into()),
        }
    }
}

impl<T: Later + Clone + Send + Sync + 'static> LetGo for Shared<T> {
    fn let_go(&self) {
        self.0.store(None);
    }

    fn show(&self, store: &Store) -> Option<Arc<dyn Send + Sync>> {
        let before = self.0.load_full()?;
        let (object, gone) = match before.object.later(store)? {
            Ok(object) => (object, None),
            Err(reason) => (before.object.clone(), Some(reason)),
        };
        let before: Arc<dyn Send + Sync> = self.0.swap(Some(Arc::new(State { object, gone })))?;
        Some(before)
    }
}

impl<T: Send> LetGo for Alone<Option<T>> {
    fn let_go(&self) {
        // The wait fails only in a fork.
        if let Ok(mut object) = self.wait() {
            *object = None;
        }
    }
}

/// The part of a store that a Python object holds.
pub struct Held<T: LetGo + 'static> {
    /// `None` only while the object is being dropped.
    object: Option<Arc<T>>,
    family: Arc<Family>,
    slot: usize,
    /// A copy of the family's process, for quicker access.
    process: Process,
}

impl<T: LetGo + 'static> Held<T> {
    pub fn new(object: T, family: &Arc<Family>) -> Held<T> {
        let object = Arc::new(object);
        let listed: Weak<dyn LetGo> = Arc::<T>::downgrade(&object);
        let slot = family.add(listed);
        let process = family.process;
        Held { object: Some(object), family: Arc::clone(family), slot, process }
    }

    /// The object.
    ///
    /// # Errors
    /// In a fork of the process that made it.
    #[inline]
    pub fn get(&self) -> Result<&T> {
        match &self.object {
            Some(object) if !self.is_foreign() => Ok(object),
            _ => Err(Error::OtherProcess.into()),
        }
    }

    /// The store to which the object belongs.
    pub fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Whether this is a fork of the process that made it.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }
}

impl<T: LetGo + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            mem::forget(self.object.take());
        } else {
            self.family.remove(self.slot);
            end(self.object.take());
        }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Drops the object once it is no longer used. The drop may wait, so Python's lock is released.
    pub fn end(&self) {
        end(self.0.swap(None));
    }
}

/// An object in use.
pub struct InUse<T>(Guard<Option<Arc<State<T>>>>);

impl<T> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &*self.0 {
            Some(state) => &state.object,
            None => unreachable!("it was there, and the guard keeps it"),
        }
    }
}

/// A value that a Python object holds by itself, not as part of an open store.
pub struct Own<T: Send + Sync + 'static> {
    /// `None` only while the object is being dropped.
    object: Option<Arc<T>>,
    process: Process,
}

impl<T: Send + Sync + 'static> Own<T> {
    pub fn new(object: T) -> Own<T> {
        Own { object: Some(Arc::new(object)), process: Process::current() }
    }

    /// The object.
    ///
    /// # Errors
    /// In a fork of the process that made it.
    pub fn get(&self) -> Result<&T> {
        match &self.object {
            Some(object) if !self.is_foreign() => Ok(object),
            _ => Err(Error::OtherProcess.into()),
        }
    }

    /// Whether this is a fork of the process that made it.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }
}

impl<T: Send + Sync + 'static> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            mem::forget(self.object.take());
        } else {
            end(self.object.take());
        }
    }
}

/// Drops an object in a place where waiting is allowed.
fn end<T: Send + Sync + 'static>(object: Option<Arc<T>>) {
    if object.is_none() {
    } else if is_inside() {
        // If no thread can be started, the object is dropped here.
        let _ = thread::Builder::new().spawn(move || drop(object));
    } else {
        // If Python has ended already, the object is dropped together with the closure that should
        // drop it.
        Python::try_attach(|py| py.detach(move || drop(object)));
    }
}
