//! From what the user calls a store to an open one, and why it does not open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{DEFAULT_KEYSPACE, Error, Keyspace, KeyspaceOptions, Options, Store};

use crate::arguments::MakeArguments;
use crate::failure::{Exit, Failure, Result};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Directory(PathBuf),
    Memory,
}

/// Reads a path or URL. A path that looks like a URL is written as `./mem:`.
pub fn place(store: &Path) -> Result<Place> {
    let text = store.to_string_lossy();
    match text.split_once(':') {
        Some(("mem", "")) => Ok(Place::Memory),
        Some((scheme @ ("kvssd" | "blockssd"), _)) => {
            Err(Failure::usage(format!("{scheme}: is not in this release"), "use a directory")
                .at(text))
        }
        _ if store.as_os_str().is_empty() => {
            Err(Failure::usage("the path of the store is empty", "name a directory"))
        }
        _ => Ok(Place::Directory(store.to_path_buf())),
    }
}

/// Opens a store that exists, for reading only.
pub fn to_read(store: &Path) -> Result<Store> {
    open(store, Options { read_only: true, create_if_missing: false, ..Options::default() })
}

/// Opens a store that exists, for writing.
pub fn to_change(store: &Path) -> Result<Store> {
    open(store, Options { create_if_missing: false, ..Options::default() })
}

/// Opens or makes a store; options that are given replace those of the keyspace.
pub fn to_make(
    store: &Path,
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
        options.keyspace = given.clone();
        if let (Some(policy), Some(keyspace)) = (&make.policy, &mut options.keyspace) {
            keyspace.policy.clone_from(policy);
        }
    }
    let store = open(store, options)?;
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

/// Opens a store with the options given.
pub fn open(store: &Path, options: Options) -> Result<Store> {
    let may_make = options.create_if_missing && !options.read_only;
    let opened = match place(store)? {
        Place::Directory(path) => Store::open(path, options),
        Place::Memory => Store::open_on(Arc::new(MemoryStorage::new()), options),
    };
    opened.map_err(|error| explain(store, error, may_make))
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
        assert_eq!(place(Path::new("mem:")).ok(), Some(Place::Memory));
        assert_eq!(place(Path::new("./mem:")).ok(), Some(Place::Directory("./mem:".into())));
        assert!(place(Path::new("")).is_err());
        let refused = place(Path::new("kvssd:image")).err();
        assert!(refused.is_some_and(|failure| failure.what.contains("not in this release")));
    }
}
