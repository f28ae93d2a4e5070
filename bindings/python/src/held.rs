//! What the objects of Python hold of a store, and how that ends.
//!
//! A close ends everything: cursors hold tables, transactions and keyspaces the whole store, and so
//! their files and memory, for as long as Python keeps the objects, such as in a traceback. So the
//! objects of a store are listed, and its close takes from each what it holds. What is being used
//! meanwhile goes when that use ends. Without a close, the store is closed with its last object.
//!
//! Python ends objects while it holds its own lock, in whichever thread drops the last reference:
//!
//! 1. An end may wait for threads of the store, and those may wait for Python to run a merge
//!    operator. So Python's lock is let go meanwhile.
//! 2. A merge operator or filter may drop the last reference to its own store. The job that called
//!    it would wait for itself, so another thread ends the object.
//! 3. A fork has none of the store's threads, but their locks. There nothing is used or ended: the
//!    memory is the fork's until it exits.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::thread;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use pyo3::{Py, PyAny, Python};
use runstone::storage::fork::Process;
use runstone::{Error, Store};
use runstone_boundary::Result;

use crate::programs::is_inside;

/// An open store, and what its objects hold.
pub struct Family {
    store: Place<Store>,
    /// What the store calls, which Python's collector has to see.
    functions: Vec<Arc<Py<PyAny>>>,
    members: Mutex<Members>,
    process: Process,
}

#[derive(Default)]
struct Members {
    /// By slot. A slot is `None` while it is free.
    places: Vec<Option<Weak<dyn LetGo>>>,
    free: Vec<usize>,
    is_closed: bool,
}

impl Family {
    pub fn new(store: Store, functions: Vec<Arc<Py<PyAny>>>) -> Arc<Family> {
        let (store, process) = (Place::new(store), Process::current());
        Arc::new(Family { store, functions, members: Mutex::default(), process })
    }

    /// What the store calls.
    pub fn functions(&self) -> &[Arc<Py<PyAny>>] {
        &self.functions
    }

    /// The store.
    ///
    /// # Errors
    /// Once it is closed, and in a fork of the process that opened it.
    pub fn store(&self) -> Result<InUse<Store>> {
        self.check()?;
        self.store.get()
    }

    /// Closes the store, and takes from its objects what they hold. It does nothing more the second
    /// time.
    pub fn close(&self) -> Result<()> {
        self.check()?;
        let Some(store) = self.store.0.load_full() else { return Ok(()) };
        let outcome = Store::clone(&store).close();
        if let Err(refused @ Error::InsideCallback) = outcome {
            return Err(refused.into());
        }
        let places = {
            let mut members = self.members.lock();
            members.is_closed = true;
            mem::take(&mut members.places)
        };
        places.iter().flatten().filter_map(Weak::upgrade).for_each(|place| place.let_go());
        self.store.let_go();
        Ok(outcome?)
    }

    fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    #[inline]
    fn check(&self) -> Result<()> {
        if self.is_foreign() { Err(Error::OtherProcess.into()) } else { Ok(()) }
    }

    /// Lists a place, and gives its slot. O(1).
    fn add(&self, place: Weak<dyn LetGo>) -> usize {
        let mut members = self.members.lock();
        if members.is_closed {
            drop(members);
            place.upgrade().inspect(|place| place.let_go());
            return usize::MAX;
        }
        match members.free.pop() {
            Some(slot) => {
                members.places[slot] = Some(place);
                slot
            }
            None => {
                members.places.push(Some(place));
                members.places.len() - 1
            }
        }
    }

    /// Takes a place from the list. O(1).
    fn remove(&self, slot: usize) {
        let mut members = self.members.lock();
        if let Some(place) = members.places.get_mut(slot) {
            *place = None;
            members.free.push(slot);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.is_foreign() {
            mem::forget(self.store.0.load_full());
        } else {
            end(self.store.0.swap(None));
        }
    }
}

/// Where an object is, until it is let go.
struct Place<T>(ArcSwapOption<T>);

trait LetGo: Send + Sync {
    fn let_go(&self);
}

impl<T: Send + Sync> LetGo for Place<T> {
    fn let_go(&self) {
        self.0.store(None);
    }
}

impl<T> Place<T> {
    fn new(object: T) -> Place<T> {
        Place(ArcSwapOption::from_pointee(object))
    }

    #[inline]
    fn get(&self) -> Result<InUse<T>> {
        let object = self.0.load();
        if object.is_some() { Ok(InUse(object)) } else { Err(Error::Closed.into()) }
    }
}

/// What an object of Python holds of a store.
pub struct Held<T: Send + Sync + 'static> {
    place: Arc<Place<T>>,
    family: Arc<Family>,
    slot: usize,
}

impl<T: Send + Sync + 'static> Held<T> {
    pub fn new(object: T, family: &Arc<Family>) -> Held<T> {
        let place = Arc::new(Place::new(object));
        let family = Arc::clone(family);
        let listed: Weak<dyn LetGo> = Arc::<Place<T>>::downgrade(&place);
        let slot = family.add(listed);
        Held { place, family, slot }
    }

    /// The object, which stays while the result lives.
    ///
    /// # Errors
    /// Once its store is closed, and in a fork of the process that made it.
    #[inline]
    pub fn get(&self) -> Result<InUse<T>> {
        self.family.check()?;
        self.place.get()
    }

    /// Whose object it is.
    pub fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Whether there is nothing to close: in a fork of the process that made it, or because its
    /// store is closed.
    pub fn is_over(&self) -> bool {
        self.family.is_foreign() || self.place.0.load().is_none()
    }
}

impl<T: Send + Sync + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        if self.family.is_foreign() {
            mem::forget(Arc::clone(&self.place));
        } else {
            self.family.remove(self.slot);
            end(self.place.0.swap(None));
        }
    }
}

/// An object that somebody uses.
pub struct InUse<T>(Guard<Option<Arc<T>>>);

impl<T> Deref for InUse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &*self.0 {
            Some(object) => object,
            None => unreachable!("it was there, and the guard keeps it"),
        }
    }
}

/// Ends an object where that may wait.
fn end<T: Send + Sync + 'static>(object: Option<Arc<T>>) {
    if object.is_none() {
    } else if is_inside() {
        // Without a thread to spare, it ends here.
        let _ = thread::Builder::new().spawn(move || drop(object));
    } else {
        // Without Python, at its very end, the object goes with what was to end it.
        Python::try_attach(|py| py.detach(move || drop(object)));
    }
}
