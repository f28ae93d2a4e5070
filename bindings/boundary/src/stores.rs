//! Open stores, including those that follow another process.
//!
//! A store that follows another process shows the data of that process as of one moment. A refresh
//! moves the store and its keyspaces to a later moment:
//!
//! 1. The later commits are read, while other calls continue with the earlier moment.
//! 2. The object of the store's handle is replaced, and then the object of the handle of each
//!    keyspace. A reader that began earlier ends with the earlier moment.
//! 3. Snapshots and cursors keep their moments. So do transactions, but they refuse the keyspaces
//!    of a later moment: transactions are for writes, which a store that is only read does not
//!    have.
//!
//! This costs readers of other stores nothing, since a following keyspace is a plain keyspace.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runstone::{
    Error, Follower, Keyspace, LiveState, Options, Resources, Snapshot, Store, unstable,
};

use crate::failure::{Code, Failure, Result};
use crate::handles::{Handle, Handles};

/// The reason why a store that is open for writing is not refreshed.
const SHOWS_THE_NEWEST: &str = "always shows the newest";

/// An open store.
#[derive(Clone, Debug)]
pub struct OpenStore {
    store: Store,
    following: Option<Arc<Following>>,
    is_read_only: bool,
}

/// A store that another process may write to.
struct Following {
    follower: Follower,
    /// A refresh holds this lock until the data that it read is visible. Otherwise another refresh,
    /// which finds nothing new, would return earlier.
    refreshing: Mutex<()>,
    /// When the visible data was read. The follower's own age would wait for a refresh.
    as_of: Mutex<Instant>,
    shown: Shown,
}

/// The handles of keyspaces that a refresh has to replace, with their names. While a thread holds
/// the lock, the store does not move to another moment.
type Shown = Mutex<Names>;

/// Names by handles.
#[derive(Default)]
struct Names {
    by_handle: HashMap<u64, String>,
    /// Once there are more than this, closed handles are forgotten.
    most: usize,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.follower.fmt(f)
    }
}

impl Deref for OpenStore {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl OpenStore {
    /// Opens a store. An open for reading follows the process that has the store open, if there is
    /// one.
    ///
    /// # Errors
    /// Those of [`Store::open`] and [`Store::follow`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> runstone::Result<OpenStore> {
        let is_read_only = options.read_only;
        match Store::open(&path, options.clone()) {
            Err(Error::InUse { .. }) if is_read_only => OpenStore::follow(path, options),
            opened => Ok(OpenStore { store: opened?, following: None, is_read_only }),
        }
    }

    /// Opens a store that shares resources. If it is opened for reading and another process has it
    /// open, it follows that process.
    ///
    /// # Errors
    /// Those of [`Resources::open`] and [`Resources::follow`].
    pub fn open_sharing(
        resources: &Resources,
        path: impl AsRef<Path>,
        options: Options,
    ) -> runstone::Result<OpenStore> {
        let is_read_only = options.read_only;
        match resources.open(&path, options.clone()) {
            Err(Error::InUse { .. }) if is_read_only => {
                OpenStore::follow_sharing(resources, path, options)
            }
            opened => Ok(OpenStore { store: opened?, following: None, is_read_only }),
        }
    }

    /// Follows a store, whether or not another process has it open.
    ///
    /// # Errors
    /// Those of [`Store::follow`].
    pub fn follow(path: impl AsRef<Path>, options: Options) -> runstone::Result<OpenStore> {
        OpenStore::following(|| Store::follow(path, options))
    }

    /// Follows a store, as [`OpenStore::follow`] does, with shared resources.
    ///
    /// # Errors
    /// Those of [`Resources::follow`].
    pub fn follow_sharing(
        resources: &Resources,
        path: impl AsRef<Path>,
        options: Options,
    ) -> runstone::Result<OpenStore> {
        OpenStore::following(|| resources.follow(path, options))
    }

    fn following(
        follow: impl FnOnce() -> runstone::Result<Follower>,
    ) -> runstone::Result<OpenStore> {
        let as_of = Mutex::new(Instant::now());
        let follower = follow()?;
        let store = follower.store();
        let (refreshing, shown) = (Mutex::default(), Shown::default());
        let following = Following { follower, refreshing, as_of, shown };
        Ok(OpenStore { store, following: Some(Arc::new(following)), is_read_only: true })
    }

    /// Runs `work` while no refresh can move the store to another moment.
    pub fn at_one_moment<T>(&self, work: impl FnOnce() -> T) -> T {
        let _names = self.following.as_ref().map(|following| following.shown.lock());
        work()
    }

    /// Reads the commits of the other process since the last refresh. If there are any, calls
    /// `show`, which makes the present store visible; no other refresh does so at the same time.
    /// Returns whether there were any.
    ///
    /// # Errors
    /// If the store is open for writing. Also those of [`Follower::refresh`] and of `show`.
    pub fn refresh(&self, show: impl FnOnce(OpenStore) -> Result<()>) -> Result<bool> {
        self.refresh_names(|store, _| show(store))
    }

    fn refresh_names(
        &self,
        show: impl FnOnce(OpenStore, &mut Names) -> Result<()>,
    ) -> Result<bool> {
        self.check_reading(SHOWS_THE_NEWEST)?;
        // If a store is open for reading and does not follow, no process can write to it.
        let Some(following) = &self.following else { return Ok(false) };
        let _alone = following.refreshing.lock();
        let began = Instant::now();
        let is_newer = following.follower.refresh()?;
        if is_newer {
            let store = following.follower.store();
            let mut names = following.shown.lock();
            show(OpenStore { store, ..self.clone() }, &mut names)?;
        }
        *following.as_of.lock() = began;
        Ok(is_newer)
    }

    /// How old the view may be: the time since the last refresh began. Zero if no process can write
    /// to the store.
    ///
    /// # Errors
    /// If the store is open for writing.
    pub fn age(&self) -> Result<Duration> {
        self.check_reading(SHOWS_THE_NEWEST)?;
        let as_of = self.following.as_ref().map(|following| *following.as_of.lock());
        Ok(as_of.map_or(Duration::ZERO, |as_of| as_of.elapsed()))
    }

    /// The latest measurements that the process that writes to a store has published. `None` if
    /// there are none, because no process writes to the store or the writer began less than a
    /// second ago.
    ///
    /// # Errors
    /// If the store is open for writing. Also those of [`Follower::live`].
    pub fn live(&self) -> Result<Option<LiveState>> {
        self.check_reading("tells by its own metrics what it measures")?;
        match &self.following {
            Some(following) => Ok(following.follower.live()?),
            // No process can write to it.
            None => Ok(None),
        }
    }

    /// Copies the store, as of now, into a new directory.
    ///
    /// # Errors
    /// The errors of [`Store::checkpoint`] or [`Follower::checkpoint`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> runstone::Result<()> {
        match &self.following {
            Some(following) => following.follower.checkpoint(path),
            None => self.store.checkpoint(path),
        }
    }

    /// Does the same as [`OpenStore::checkpoint`], and copies the tables too.
    ///
    /// # Errors
    /// The errors of [`Store::checkpoint_copied`] or [`Follower::checkpoint_copied`].
    pub fn checkpoint_copied(&self, path: impl AsRef<Path>) -> runstone::Result<()> {
        match &self.following {
            Some(following) => following.follower.checkpoint_copied(path),
            None => self.store.checkpoint_copied(path),
        }
    }

    fn check_reading(&self, instead: &str) -> Result<()> {
        match self.is_read_only {
            true => Ok(()),
            false => Err(Failure::invalid(format!(
                "the store is open for writing, so it {instead}; this is for one that is open for \
                 reading"
            ))),
        }
    }
}

/// A snapshot. If its store may have moved to another moment by now, also the store as it was then.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The snapshot.
    pub snapshot: Snapshot,
    view: Option<Store>,
}

impl Moment {
    /// The present moment of a store.
    pub fn of(open: &OpenStore) -> Moment {
        let view = open.following.as_ref().map(|_| open.store.clone());
        Moment { snapshot: open.snapshot(), view }
    }

    /// A keyspace through which the snapshot can be read.
    ///
    /// # Errors
    /// If there was no keyspace of that name.
    pub fn keyspace<'k>(&self, keyspace: &'k Keyspace) -> runstone::Result<Cow<'k, Keyspace>> {
        Ok(match &self.view {
            None => Cow::Borrowed(keyspace),
            Some(view) => Cow::Owned(view.keyspace(keyspace.name())?),
        })
    }
}

/// Finds a keyspace of a store, and gives it a handle.
///
/// # Errors
/// If the store is closed, and those of `find`.
pub fn keep_keyspace(
    (stores, store): (&Handles<OpenStore>, u64),
    keyspaces: &Handles<Keyspace>,
    find: impl FnOnce(&Store) -> Result<Keyspace>,
) -> Result<Handle> {
    let open = stores.get(store)?;
    let Some(following) = &open.following else { return keyspaces.keep(find(&open)?) };
    let mut names = following.shown.lock();
    // The store is looked up again, because from here on no refresh changes it.
    let now = stores.get(store)?;
    let keyspace = find(&now)?;
    let name = keyspace.name().to_string();
    let handle = keyspaces.keep(keyspace)?;
    names.by_handle.insert(handle.get(), name);
    if names.by_handle.len() > names.most {
        names.by_handle.retain(|handle, _| keyspaces.is_open(*handle));
        names.most = 2 * names.by_handle.len() + 16;
    }
    Ok(handle)
}

/// Makes later commits visible through the handles of a store and of its keyspaces. Returns whether
/// there were any. A dropped keyspace is refused from then on.
///
/// # Errors
/// Those of [`OpenStore::refresh`].
pub fn refresh(
    (stores, store): (&Handles<OpenStore>, u64),
    keyspaces: &Handles<Keyspace>,
) -> Result<bool> {
    let open = OpenStore::clone(&*stores.get(store)?);
    open.refresh_names(|now, names| {
        stores.replace(store, Ok(now.clone()))?;
        names.by_handle.retain(|handle, name| {
            let found = now.keyspace(name).map_err(Failure::from);
            keyspaces.replace(*handle, found).is_ok()
        });
        Ok(())
    })
}

/// Closes a store and its handle. The handles of its keyspaces are refused from then on. A call
/// from a callback of the store is refused and changes nothing: the store and its handle stay open.
///
/// # Errors
/// If the handle is not open. Also those of [`Store::close`].
pub fn close(
    (stores, store): (&Handles<OpenStore>, u64),
    keyspaces: &Handles<Keyspace>,
) -> Result<()> {
    let open = OpenStore::clone(&*stores.get(store)?);
    unstable::check_caller(&open)?;
    // From here on the handle is closed, whether or not closing the store succeeds.
    stores.close(store)?;
    if let Some(following) = &open.following {
        let names = std::mem::take(&mut following.shown.lock().by_handle);
        for handle in names.into_keys() {
            let closed = Failure::new(Code::Closed, Error::Closed.to_string());
            // The keyspace's own handle may be closed already.
            let _ = keyspaces.replace(handle, Err(closed));
        }
    }
    let OpenStore { store, .. } = open;
    Ok(store.close()?)
}
