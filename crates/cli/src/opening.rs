//! Opens the store whose name a user typed, and explains why a store does not open.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone::policy::Policy;
use runstone::policy::custom;
use runstone::storage::{Access, LockMode, MemoryStorage, PosixStorage, Storage};
use runstone::{DEFAULT_KEYSPACE, Error, Follower, Keyspace, KeyspaceOptions, Options, Store};
use runstone_kv::Error as KvError;

use crate::arguments::MakeArguments;
use crate::devices::Url;
use crate::failure::{Exit, Failure, Result};
use crate::files::FileStore;
use crate::keyspaces::{self, Wish, refuse_reserved};
use crate::lost_log;
use crate::nesting;
use crate::opened::{Figures, Opened};
use crate::output::{Output, note};

/// Size of the log segments of a command that writes little. Such a command needs no larger ones,
/// and a disk that is nearly full has no room for them.
const SMALL_SEGMENT_BYTES: u64 = 256 << 10;

/// Where a store is. A store in memory lasts as long as this value, so that it can be opened again.
#[derive(Debug)]
pub struct Location {
    path: PathBuf,
    place: Place,
    /// Whether a store was made there.
    made: Cell<bool>,
    /// Whether the user was told that another process has the store open.
    followed: Cell<bool>,
}

#[derive(Debug)]
enum Place {
    Directory,
    Memory(Arc<MemoryStorage>),
    Device(Box<Url>),
}

impl Location {
    /// Reads a path or URL. A path that looks like a URL is written as `./mem:`.
    pub fn of(store: &Path) -> Result<Location> {
        let text = store.to_string_lossy();
        if text.is_empty() {
            return Err(Failure::usage("the path of the store is empty", "name a directory"));
        }
        let place = match Url::parse(&text)? {
            Some(url) => Place::Device(Box::new(url)),
            None if text == "mem:" => Place::Memory(Arc::default()),
            None => Place::Directory,
        };
        let (made, followed) = (Cell::new(false), Cell::new(false));
        Ok(Location { path: store.to_path_buf(), place, made, followed })
    }

    /// Whether a store was made there, rather than found.
    pub fn was_made(&self) -> bool {
        self.made.get()
    }

    /// Reports to people that a store was made, because a misspelt path makes one too.
    pub fn tell_made(&self, output: &Output) {
        if self.was_made() && !output.is_json {
            note(format!("made a new store in {}", self.path.display()));
        }
    }

    /// Opens what exists, of either kind, for reading.
    pub fn to_read(&self, keyspace: &str) -> Result<Box<dyn Opened>> {
        self.existing(keyspace, || self.open(reading()), keyspaces::find)
    }

    /// Does the same for a command that itself reports the unused end of the log.
    pub fn to_verify(&self) -> Result<Box<dyn Opened>> {
        self.existing(DEFAULT_KEYSPACE, || self.look(), keyspaces::find)
    }

    /// Opens what exists, of either kind; the options are for a store of files.
    pub fn to_change(&self, keyspace: &str, options: Options) -> Result<Box<dyn Opened>> {
        refuse_reserved(keyspace)?;
        let find = keyspaces::find_to_change;
        self.existing(keyspace, || self.open(options.create_if_missing(false)), find)
    }

    /// Opens or makes a store of either kind; `base` is for a store of files without options.
    pub fn to_make(
        &self,
        make: &MakeArguments,
        keyspace: &str,
        base: Option<KeyspaceOptions>,
    ) -> Result<Box<dyn Opened>> {
        if let Some(device) = self.device_to_make(keyspace, make.has_engine_options())? {
            return Ok(device);
        }
        let (store, keyspace) = self.make(make, keyspace, base)?;
        Ok(Box::new(FileStore::new(store, keyspace, &self.path)))
    }

    /// Opens or makes the device, if the location is a device that is a store. Refuses options that
    /// only a store of files has.
    pub fn device_to_make(
        &self,
        keyspace: &str,
        has_engine_options: bool,
    ) -> Result<Option<Box<dyn Opened>>> {
        self.device(keyspace, has_engine_options, true)
    }

    fn device(
        &self,
        keyspace: &str,
        has_engine_options: bool,
        may_make: bool,
    ) -> Result<Option<Box<dyn Opened>>> {
        let Place::Device(url) = &self.place else { return Ok(None) };
        if !url.is_store() {
            return Ok(None);
        }
        url.check(keyspace, has_engine_options)?;
        let is_new = may_make && !url.exists();
        let opened = url.open(may_make).map_err(|error| self.explain(error, may_make))?;
        self.made.set(is_new);
        if is_new {
            url.forget_import()?;
        }
        Ok(Some(opened))
    }

    fn existing(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<Store>,
        find: fn(&Store, &str) -> Result<Keyspace>,
    ) -> Result<Box<dyn Opened>> {
        if let Some(device) = self.device(name, false, false)? {
            return Ok(device);
        }
        let store = open()?;
        let keyspace = find(&store, name)?;
        Ok(Box::new(FileStore::new(store, keyspace, &self.path).beside(self.beside())))
    }

    /// Whether somebody has the store in a directory open for writing.
    pub fn is_in_use(&self) -> Result<bool> {
        if !self.is_directory() {
            return Ok(false);
        }
        // The open that follows reports what is wrong with the place.
        let Ok(storage) = PosixStorage::open(&self.path, Access::ReadOnly) else {
            return Ok(false);
        };
        let lock = storage.lock("LOCK", LockMode::Shared);
        Ok(lock.map_err(|error| self.explain(Error::from(error), false))?.is_none())
    }

    /// The directory, if another process has its store open and this process reads beside it.
    pub fn beside(&self) -> Option<PathBuf> {
        self.followed.get().then(|| self.path.clone())
    }

    /// Whether the store is in a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.place, Place::Directory)
    }

    /// Whether the files of the store are on a device.
    pub fn has_files_on_device(&self) -> bool {
        matches!(&self.place, Place::Device(url) if !url.is_store())
    }

    /// Opens the store of files there.
    pub fn open(&self, options: Options) -> Result<Store> {
        let may_make = options.create_if_missing && !options.read_only;
        let is_directory = matches!(self.place, Place::Directory);
        if may_make && is_directory && !nesting::is_store(&self.path) {
            nesting::refuse_inside(&self.path)?;
        }
        let opened = self.try_open(lost_log::telling(options));
        opened.map_err(|error| self.explain(error, may_make))
    }

    /// Opens the store for reading, but does not report an end of the log that the open did not
    /// use. The next open reports it, or the caller does.
    pub fn look(&self) -> Result<Store> {
        self.try_open(reading()).map_err(|error| self.explain(error, false))
    }

    /// The writes of the flash below the files, if they are on a device that was opened.
    pub fn flash(&self, user_bytes: u64) -> Option<Figures> {
        match &self.place {
            Place::Device(url) => url.flash(user_bytes),
            _ => None,
        }
    }

    /// Whether there is a store with an entry in its default keyspace. This changes nothing, not
    /// even the stored options.
    pub fn holds_data(&self) -> Result<bool> {
        match self.try_open(Options::default().read_only(true)) {
            Ok(store) => Ok(store.default_keyspace().iter()?.next().is_some()),
            Err(KvError::Store(Error::NotAStore { .. })) => Ok(false),
            Err(error) => Err(self.explain(error, true)),
        }
    }

    /// The files of the store, which is not opened; `None` if the store is a device.
    pub fn files(&self) -> Result<Option<Arc<dyn Storage>>> {
        let opened: runstone_kv::Result<Arc<dyn Storage>> = match &self.place {
            Place::Memory(memory) => Ok(Arc::<MemoryStorage>::clone(memory)),
            Place::Device(url) if url.is_store() => return Ok(None),
            Place::Device(url) => url.storage(false),
            Place::Directory => match PosixStorage::open(&self.path, Access::ReadOnly) {
                Ok(files) => Ok(Arc::new(files)),
                Err(error) => Err(Error::from(error).into()),
            },
        };
        opened.map(Some).map_err(|error| self.explain(error, false))
    }

    fn try_open(&self, options: Options) -> runstone_kv::Result<Store> {
        let opened = match &self.place {
            Place::Memory(memory) => Store::open_on(Arc::<MemoryStorage>::clone(memory), options),
            Place::Device(url) => {
                let may_make = options.create_if_missing && !options.read_only;
                Store::open_on(url.storage(may_make)?, options)
            }
            Place::Directory if options.read_only => self.open_beside(options),
            Place::Directory => Store::open(&self.path, options),
        };
        Ok(opened?)
    }

    /// Opens the store for reading. If another process has it open, this process reads beside that
    /// one.
    fn open_beside(&self, options: Options) -> runstone::Result<Store> {
        let process = match Store::open(&self.path, options.clone()) {
            Err(Error::InUse { process, .. }) => process,
            opened => return opened,
        };
        let follower = Store::follow(&self.path, options)?;
        if !self.followed.replace(true) {
            let by = process.map_or_else(String::new, |id| format!(" (process {id})"));
            let lease = if follower.has_lease() { "" } else { ", without a lease on its files" };
            note(format!("another process{by} has the store open; read as of now{lease}"));
        }
        Ok(follower.store())
    }

    /// Opens or makes a store of files and a keyspace. The given options are for a new keyspace; an
    /// existing one keeps its own, and refuses others.
    pub fn make(
        &self,
        make: &MakeArguments,
        keyspace: &str,
        base: Option<KeyspaceOptions>,
    ) -> Result<(Store, Keyspace)> {
        refuse_reserved(keyspace)?;
        let wish = wish(make, base)?;
        let mut options = if make.is_little { little() } else { Options::default() };
        options.create_if_missing = false;
        if let Some(bytes) = make.memory_budget {
            options.memory_budget_bytes = bytes;
        }
        match self.try_open(lost_log::telling(options.clone())) {
            Ok(store) => {
                let found = keyspaces::open_or_make(&store, keyspace, &wish);
                let found = found.map_err(|failure| match failure.place {
                    Some(_) => failure,
                    None => failure.at(self.path.display()),
                })?;
                Ok((store, found))
            }
            Err(KvError::Store(Error::NotAStore { .. })) => {
                if matches!(self.place, Place::Directory) {
                    nesting::check_new(&self.path)?;
                }
                self.made.set(!matches!(self.place, Place::Memory(_)));
                options.create_if_missing = true;
                let of_new = wish.of_new();
                options.keyspace = (keyspace == DEFAULT_KEYSPACE).then(|| of_new.clone());
                let store = self.open(options)?;
                let made = store.open_keyspace(keyspace, Some(of_new));
                Ok((store, made.map_err(|error| self.explain(error, true))?))
            }
            Err(error) => Err(self.explain(error, true)),
        }
    }

    /// The failure for an error of the store there.
    pub fn explain(&self, error: impl Into<KvError>, may_make: bool) -> Failure {
        let error = match error.into() {
            KvError::Store(error) => error,
            other => return Failure::from(other),
        };
        let (store, path) = (&self.path, self.path.display());
        match &error {
            Error::NotAStore { .. } => Failure::from(error)
                .at(path)
                .hint("check the path; `runstone put` and `runstone import` make a store"),
            Error::ForeignFiles { example, .. } if !may_make => {
                let what = format!("{path} is not a store: it holds {example}");
                Failure::new(Exit::CannotOpen, what).at(path).hint("check the path")
            }
            // The damage is in the image itself, not in a file on it.
            Error::Corruption { file, .. } if store.to_string_lossy().contains(file.as_str()) => {
                Failure::from(error.clone()).at(file).hint("restore the image from a copy")
            }
            Error::Corruption { file, offset, .. } => {
                let at = store.join(file);
                Failure::from(error.clone()).at(format!("{} byte {offset}", at.display()))
            }
            Error::Storage(cause) if !error.is_no_space() => {
                let failure = Failure::from(error.clone());
                if failure.exit == Exit::Damaged {
                    return failure;
                }
                let is_device = matches!(self.place, Place::Device(_));
                let hint = match cause.kind() {
                    std::io::ErrorKind::IsADirectory if is_device => {
                        "the URL names a directory; an image is a file".to_string()
                    }
                    std::io::ErrorKind::NotADirectory if is_device => "check the path".to_string(),
                    std::io::ErrorKind::NotADirectory => "a store is a directory".to_string(),
                    std::io::ErrorKind::PermissionDenied
                    | std::io::ErrorKind::ReadOnlyFilesystem
                        if !may_make =>
                    {
                        "make the directory and its files writable, or readable to get, scan, \
                         export or `shell --read-only`, which need no more"
                            .to_string()
                    }
                    std::io::ErrorKind::PermissionDenied
                    | std::io::ErrorKind::ReadOnlyFilesystem => {
                        "choose a directory that can be written".to_string()
                    }
                    _ => failure.hint.clone().unwrap_or_default(),
                };
                Failure { exit: Exit::CannotOpen, ..failure }.at(path).hint(hint)
            }
            // The options do not fit the existing store.
            Error::InvalidArgument { .. } => Failure::from(error).at(path),
            _ => Failure::from(error),
        }
    }
}

/// The directory or files that contain a store, with links resolved; none where there is no store
/// yet.
pub fn places(store: &Path) -> Vec<PathBuf> {
    let places = match Location::of(store) {
        Ok(Location { place: Place::Device(url), .. }) => url.places(),
        Ok(Location { place: Place::Directory, path, .. }) => vec![path],
        Ok(Location { place: Place::Memory(_), .. }) | Err(_) => Vec::new(),
    };
    places.into_iter().filter_map(|place| place.canonicalize().ok()).collect()
}

/// Options to read a store of files that exists.
pub fn reading() -> Options {
    Options::default().read_only(true).create_if_missing(false)
}

/// Options for a command that writes little: see [`SMALL_SEGMENT_BYTES`]. It leaves the log to the
/// next command, because otherwise each command would add a small table.
pub fn little() -> Options {
    let wal_segment_bytes = SMALL_SEGMENT_BYTES;
    Options::default().wal_segment_bytes(wal_segment_bytes).flush_at_close(false)
}

/// A store that is open for writing, or for reading if another process has it open.
pub enum Beside {
    Alone(Store),
    Follower(Box<Follower>),
}

/// Opens an existing store of files for writing, or else follows the process that writes to it.
pub fn beside(store: &Path) -> Result<Beside> {
    let location = Location::of(store)?;
    let options = lost_log::telling(Options::default().create_if_missing(false));
    match location.try_open(options) {
        Ok(store) => Ok(Beside::Alone(store)),
        Err(KvError::Store(Error::InUse { .. })) if location.is_directory() => {
            let followed = Store::follow(&location.path, reading());
            let followed = followed.map_err(|error| location.explain(error, false))?;
            Ok(Beside::Follower(Box::new(followed)))
        }
        Err(error) => Err(location.explain(error, false)),
    }
}

/// Opens a store of files that exists, for writing.
pub fn to_change(store: &Path) -> Result<Store> {
    Location::of(store)?.open(Options::default().create_if_missing(false))
}

/// The options that the arguments name; `base` is for a new keyspace without options.
pub fn wish(make: &MakeArguments, base: Option<KeyspaceOptions>) -> Result<Wish> {
    Ok(Wish { given: given_options(make)?, policy: make.policy.clone(), base })
}

/// The options of `--preset` or `--options`. A wrong `--policy` is refused before a store is made.
pub fn given_options(make: &MakeArguments) -> Result<Option<KeyspaceOptions>> {
    if let Some(policy) = &make.policy {
        custom::policy_of(&KeyspaceOptions::default().policy(Policy::named(policy)))?;
    }
    if let Some(name) = &make.preset {
        return Ok(Some(KeyspaceOptions::preset(name)?));
    }
    make.options.as_deref().map(options_in).transpose()
}

/// The options in a TOML file; those that it does not name have their defaults.
pub fn options_in(path: &Path) -> Result<KeyspaceOptions> {
    options_over(&KeyspaceOptions::default(), path)
}

/// The options in a TOML file; those that it does not name stay as they were.
pub fn options_over(old: &KeyspaceOptions, path: &Path) -> Result<KeyspaceOptions> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file(path, "read the options", &error))?;
    options_of(old, &text).map_err(|failure| failure.at(path.display()))
}

/// The options in TOML; those that it does not name stay as they were.
pub fn options_of(old: &KeyspaceOptions, text: &str) -> Result<KeyspaceOptions> {
    let options = old.with_toml(text)?;
    // The command registers no operator, and a misspelt name could never be changed.
    if options.merge_operator != old.merge_operator {
        options.check_built_in_operator()?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let location = |text: &str| Location::of(Path::new(text));
        let is = |text, fits: fn(&Place) -> bool| location(text).is_ok_and(|at| fits(&at.place));
        assert!(is("mem:", |place| matches!(place, Place::Memory(_))));
        assert!(is("./mem:", |place| matches!(place, Place::Directory)));
        assert!(is("./kvssd:image", |place| matches!(place, Place::Directory)));
        assert!(location("").is_err());
        let has_devices = cfg!(feature = "devices");
        for url in ["kvssd:image?th=3", "blockssd:image"] {
            assert_eq!(is(url, |place| matches!(place, Place::Device(_))), has_devices);
            assert_eq!(location(url).is_err(), !has_devices);
        }
        assert!(location("kvssd:image?speed=9").is_err());
    }
}
