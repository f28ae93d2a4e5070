//! From what the user calls a store to an open one, and why it does not open.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone::storage::{Access, MemoryStorage, PosixStorage, Storage};
use runstone::{DEFAULT_KEYSPACE, Error, Keyspace, KeyspaceOptions, Options, Store};
use runstone_device::{DeviceUrl, Kind, KvSsdStore};
use runstone_flash::block::{BlockStorage, LayerReport};

use crate::arguments::MakeArguments;
use crate::failure::{Exit, Failure, Result};
use crate::kvssd::progress_files;
use crate::transfer::progress;

/// Log segments of a command that writes little: it needs no room for more, on a disk that is
/// nearly full least of all.
const SMALL_SEGMENT_BYTES: u64 = 256 << 10;

/// Where a store is. Memory lasts as long as this, so that a store there can be opened again.
#[derive(Clone, Debug)]
pub struct Location {
    path: PathBuf,
    memory: Option<Arc<MemoryStorage>>,
    device: Option<DeviceUrl>,
    /// The block SSD of the URL, once it is open: one device for everything that is opened on it.
    block: OnceCell<BlockStorage>,
}

impl Location {
    /// Reads a path or URL. A path that looks like a URL is written as `./mem:`.
    pub fn of(store: &Path) -> Result<Location> {
        let path = store.to_path_buf();
        let text = store.to_string_lossy();
        let device = DeviceUrl::parse(&text).transpose()?;
        let memory = (text == "mem:").then(Arc::default);
        if text.is_empty() {
            return Err(Failure::usage("the path of the store is empty", "name a directory"));
        }
        Ok(Location { path, memory, device, block: OnceCell::new() })
    }

    /// Whether the files of the store are on a block SSD.
    pub fn is_block_ssd(&self) -> bool {
        self.device.as_ref().is_some_and(|url| url.kind == Kind::BlockSsd)
    }

    /// The KVSSD there, if the URL is of one.
    pub fn kvssd(&self, may_make: bool) -> Result<Option<KvSsdStore>> {
        let url = self.device.as_ref().filter(|url| url.kind == Kind::KvSsd);
        let opened = url.map(|url| url.open_kvssd(may_make)).transpose();
        opened.map_err(|error| explain(&self.path, error, may_make))
    }

    /// Opens the store there.
    pub fn open(&self, options: Options) -> Result<Store> {
        let may_make = options.create_if_missing && !options.read_only;
        self.try_open(options).map_err(|error| explain(&self.path, error, may_make))
    }

    /// What the layers of the block SSD wrote, if the store is on one that was opened.
    pub fn layers(&self) -> Option<LayerReport> {
        self.block.get().map(BlockStorage::layers)
    }

    /// Whether there is a store with an entry in its default keyspace. Changes nothing, not even
    /// the options that a store keeps.
    pub fn holds_data(&self) -> Result<bool> {
        match self.try_open(Options { read_only: true, ..Options::default() }) {
            Ok(store) => Ok(store.default_keyspace().iter()?.next().is_some()),
            Err(Error::NotAStore { .. }) => Ok(false),
            Err(error) => Err(explain(&self.path, error, true)),
        }
    }

    /// Opens the store there, which exists, for reading only.
    pub fn to_read(&self) -> Result<Store> {
        self.open(Options { read_only: true, create_if_missing: false, ..Options::default() })
    }

    /// The files of the store there, not opened as a store.
    pub fn files(&self) -> Result<Arc<dyn Storage>> {
        let opened: runstone::Result<Arc<dyn Storage>> = match (&self.memory, &self.device) {
            (Some(memory), _) => return Ok(Arc::<MemoryStorage>::clone(memory)),
            (None, Some(url)) => self.storage(url, false).map(|open| Arc::new(open) as _),
            (None, None) => match PosixStorage::open(&self.path, Access::ReadOnly) {
                Ok(files) => Ok(Arc::new(files)),
                Err(error) => Err(Error::from(error)),
            },
        };
        opened.map_err(|error| explain(&self.path, error, false))
    }

    /// The block SSD of a URL, opened once.
    fn storage(&self, url: &DeviceUrl, may_make: bool) -> runstone::Result<BlockStorage> {
        if let Some(open) = self.block.get() {
            return Ok(open.clone());
        }
        let opened = url.open_block(may_make)?;
        Ok(self.block.get_or_init(|| opened).clone())
    }

    fn try_open(&self, options: Options) -> runstone::Result<Store> {
        match (&self.memory, &self.device) {
            (Some(memory), _) => Store::open_on(Arc::<MemoryStorage>::clone(memory), options),
            (None, Some(url)) if url.kind == Kind::BlockSsd => {
                let may_make = options.create_if_missing && !options.read_only;
                Store::open_on(Arc::new(self.storage(url, may_make)?), options)
            }
            (None, Some(_)) => {
                let hint = "put, get, delete, scan, count, import, export, demo, bench, shape, \
                            stats, verify, compact and dump take it";
                Err(Error::invalid("this command does not work on a KVSSD", hint))
            }
            (None, None) => Store::open(&self.path, options),
        }
    }

    /// Opens or makes the store; options that are given replace those of the keyspace.
    pub fn make(
        &self,
        make: &MakeArguments,
        keyspace: &str,
        base: Option<KeyspaceOptions>,
    ) -> Result<(Store, Keyspace)> {
        refuse_reserved(keyspace)?;
        let given = given_options(make)?.or(base);
        let mut options = Options::default();
        if make.is_little {
            options.wal_segment_bytes = SMALL_SEGMENT_BYTES;
        }
        if let Some(bytes) = make.memory_budget {
            options.memory_budget_bytes = bytes;
        }
        if keyspace == DEFAULT_KEYSPACE {
            options.keyspace.clone_from(&given);
        }
        let store = self.open(options)?;
        let change = |to| {
            store.open_keyspace(keyspace, to).map_err(|error| explain(&self.path, error, true))
        };
        let mut opened = change(given)?;
        if let Some(policy) = &make.policy
            && opened.options().policy != *policy
        {
            let stored = KeyspaceOptions::clone(&opened.options());
            let changed = KeyspaceOptions { policy: policy.clone(), ..stored };
            opened = change(Some(changed))?;
        }
        Ok((store, opened))
    }
}

/// The directory or files that a store lies in, without links; none where there is no store yet.
pub fn places(store: &Path) -> Vec<PathBuf> {
    let location = Location::of(store).ok().filter(|found| found.memory.is_none());
    let places = location.map(|found| match found.device {
        Some(url) => [url.files(), progress_files(&url.path).to_vec()].concat(),
        None => vec![found.path],
    });
    places.into_iter().flatten().filter_map(|place| place.canonicalize().ok()).collect()
}

/// The KVSSD of a URL; `None` for any other store. It has one keyspace and its own options.
pub fn kvssd(store: &Path, keyspace: &str, may_make: bool) -> Result<Option<KvSsdStore>> {
    let found = Location::of(store)?.kvssd(may_make)?;
    if found.is_some() && keyspace != DEFAULT_KEYSPACE {
        let what = "a KVSSD has no keyspaces";
        return Err(Failure::usage(what, "leave out --keyspace").at(store.display()));
    }
    Ok(found)
}

/// The same for a command that may make it: options of the engine are refused.
pub fn kvssd_to_make(
    store: &Path,
    make: &MakeArguments,
    keyspace: &str,
) -> Result<Option<KvSsdStore>> {
    let is_plain = make.preset.is_none()
        && make.options.is_none()
        && make.policy.is_none()
        && make.memory_budget.is_none();
    if is_kvssd(store) && !is_plain {
        return Err(no_engine_options());
    }
    kvssd(store, keyspace, true)
}

/// Whether the text is the URL of a KVSSD.
pub fn is_kvssd(store: &Path) -> bool {
    store.to_string_lossy().starts_with("kvssd:")
}

/// Refuses options that only a store of files has.
pub fn no_engine_options() -> Failure {
    let what = "a KVSSD has no options of the file engine";
    Failure::usage(what, "write its options into the URL: kvssd:PATH?th=2")
}

/// Opens a store that exists, for reading only.
pub fn to_read(store: &Path) -> Result<Store> {
    Location::of(store)?.to_read()
}

/// Opens a store that exists, for writing.
pub fn to_change(store: &Path) -> Result<Store> {
    Location::of(store)?.open(Options { create_if_missing: false, ..Options::default() })
}

/// The same for a command that writes little: see [`SMALL_SEGMENT_BYTES`].
pub fn to_change_little(store: &Path) -> Result<Store> {
    let options = Options {
        create_if_missing: false,
        wal_segment_bytes: SMALL_SEGMENT_BYTES,
        ..Options::default()
    };
    Location::of(store)?.open(options)
}

/// Refuses to write where imports keep how far they are.
pub fn refuse_reserved(keyspace: &str) -> Result<()> {
    match keyspace == progress::KEYSPACE {
        true => Err(Failure::usage(format!("{keyspace} is reserved"), "choose another keyspace")),
        false => Ok(()),
    }
}

/// Opens or makes a store.
pub fn to_make(store: &Path, make: &MakeArguments, keyspace: &str) -> Result<(Store, Keyspace)> {
    Location::of(store)?.make(make, keyspace, None)
}

/// The options of `--preset` or `--options`. A wrong `--policy` is refused before a store is made.
pub fn given_options(make: &MakeArguments) -> Result<Option<KeyspaceOptions>> {
    if let Some(policy) = &make.policy {
        KeyspaceOptions { policy: policy.clone(), ..KeyspaceOptions::default() }
            .compaction_policy()?;
    }
    if let Some(name) = &make.preset {
        return Ok(Some(KeyspaceOptions::preset(name)?));
    }
    make.options.as_deref().map(options_in).transpose()
}

/// The options in a TOML file.
pub fn options_in(path: &Path) -> Result<KeyspaceOptions> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file(path, "read the options", &error))?;
    let options = KeyspaceOptions::from_toml(&text);
    options.map_err(|error| Failure::from(error).at(path.display()))
}

fn explain(store: &Path, error: Error, may_make: bool) -> Failure {
    let path = store.display();
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
            let is_device = Location::of(store).is_ok_and(|found| found.device.is_some());
            let hint = match cause.kind() {
                std::io::ErrorKind::IsADirectory if is_device => {
                    "the URL names a directory; an image is a file".to_string()
                }
                std::io::ErrorKind::NotADirectory if is_device => "check the path".to_string(),
                std::io::ErrorKind::NotADirectory => "a store is a directory".to_string(),
                std::io::ErrorKind::PermissionDenied if !may_make => {
                    "check the owner and mode of the directory and its files".to_string()
                }
                _ => error.hint(),
            };
            Failure { exit: Exit::CannotOpen, ..failure }.at(path).hint(hint)
        }
        // Options that do not suit what is there.
        Error::InvalidArgument { .. } => Failure::from(error).at(path),
        _ => Failure::from(error),
    }
}

/// An existing keyspace, with the known ones in the hint.
pub fn keyspace(store: &Store, name: &str) -> Result<Keyspace> {
    store.keyspace(name).map_err(|error| {
        let known = store.keyspaces();
        Failure::from(error).hint(format!("the store has: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let location = |text: &str| Location::of(Path::new(text));
        assert!(location("mem:").is_ok_and(|found| found.memory.is_some()));
        assert!(location("./mem:").is_ok_and(|found| found.memory.is_none()));
        assert!(location("").is_err());
        assert!(location("kvssd:image?th=3").is_ok_and(|found| found.device.is_some()));
        assert!(location("blockssd:image").is_ok_and(|found| found.device.is_some()));
        assert!(location("kvssd:image?speed=9").is_err());
    }
}
