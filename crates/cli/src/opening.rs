//! From what the user calls a store to an open one, and why it does not open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{DEFAULT_KEYSPACE, Error, Keyspace, KeyspaceOptions, Options, Store};

use crate::arguments::MakeArguments;
use crate::failure::{Exit, Failure, Result};

/// Where a store is. Memory lasts as long as this, so that a store there can be opened again.
#[derive(Clone, Debug)]
pub struct Location {
    path: PathBuf,
    memory: Option<Arc<MemoryStorage>>,
}

impl Location {
    /// Reads a path or URL. A path that looks like a URL is written as `./mem:`.
    pub fn of(store: &Path) -> Result<Location> {
        let path = store.to_path_buf();
        let text = store.to_string_lossy();
        match text.split_once(':') {
            Some(("mem", "")) => Ok(Location { path, memory: Some(Arc::default()) }),
            Some((scheme @ ("kvssd" | "blockssd"), _)) => {
                let what = format!("{scheme}: is not in this release");
                Err(Failure::usage(what, "use a directory").at(text))
            }
            _ if text.is_empty() => {
                Err(Failure::usage("the path of the store is empty", "name a directory"))
            }
            _ => Ok(Location { path, memory: None }),
        }
    }

    /// Opens the store there.
    pub fn open(&self, options: Options) -> Result<Store> {
        let may_make = options.create_if_missing && !options.read_only;
        self.try_open(options).map_err(|error| explain(&self.path, error, may_make))
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

    fn try_open(&self, options: Options) -> runstone::Result<Store> {
        match &self.memory {
            None => Store::open(&self.path, options),
            Some(memory) => Store::open_on(Arc::<MemoryStorage>::clone(memory), options),
        }
    }

    /// Opens or makes the store; options that are given replace those of the keyspace.
    pub fn make(
        &self,
        make: &MakeArguments,
        keyspace: &str,
        base: Option<KeyspaceOptions>,
    ) -> Result<(Store, Keyspace)> {
        let given = given_options(make)?.or(base);
        let mut options = Options::default();
        if let Some(bytes) = make.memory_budget {
            options.memory_budget_bytes = bytes;
        }
        if keyspace == DEFAULT_KEYSPACE {
            options.keyspace.clone_from(&given);
        }
        let store = self.open(options)?;
        let mut opened = store.open_keyspace(keyspace, given)?;
        if let Some(policy) = &make.policy
            && opened.options().policy != *policy
        {
            let stored = KeyspaceOptions::clone(&opened.options());
            let changed = KeyspaceOptions { policy: policy.clone(), ..stored };
            opened = store.open_keyspace(keyspace, Some(changed))?;
        }
        Ok((store, opened))
    }
}

/// Opens a store that exists, for reading only.
pub fn to_read(store: &Path) -> Result<Store> {
    let options = Options { read_only: true, create_if_missing: false, ..Options::default() };
    Location::of(store)?.open(options)
}

/// Opens a store that exists, for writing.
pub fn to_change(store: &Path) -> Result<Store> {
    Location::of(store)?.open(Options { create_if_missing: false, ..Options::default() })
}

/// Opens or makes a store.
pub fn to_make(store: &Path, make: &MakeArguments, keyspace: &str) -> Result<(Store, Keyspace)> {
    Location::of(store)?.make(make, keyspace, None)
}

/// The options of `--preset` or `--options`. A wrong `--policy` is refused before a store is made.
pub fn given_options(make: &MakeArguments) -> Result<Option<KeyspaceOptions>> {
    if let Some(policy) = &make.policy {
        KeyspaceOptions { policy: policy.clone(), ..KeyspaceOptions::default() }.merge_policy()?;
    }
    if let Some(name) = &make.preset {
        return Ok(Some(KeyspaceOptions::preset(name)?));
    }
    let Some(path) = &make.options else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file(path, "read the options", &error))?;
    let options = KeyspaceOptions::from_toml(&text);
    Ok(Some(options.map_err(|error| Failure::from(error).at(path.display()))?))
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
        Error::Corruption { file, offset, .. } => {
            let at = store.join(file);
            Failure::from(error.clone()).at(format!("{} byte {offset}", at.display()))
        }
        Error::Storage(cause) if !error.is_no_space() => {
            let hint = match cause.kind() {
                std::io::ErrorKind::NotADirectory => "a store is a directory".to_string(),
                _ => error.hint(),
            };
            Failure::new(Exit::CannotOpen, &error).at(path).hint(hint)
        }
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
        let refused = location("kvssd:image").err();
        assert!(refused.is_some_and(|failure| failure.what.contains("not in this release")));
    }
}
