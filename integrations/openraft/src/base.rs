//! The store and its keyspaces, which log and machine share, and the values of `meta`.

use std::path::PathBuf;
use std::sync::Arc;

use runstone::{Batch, Keyspace, KeyspaceOptions, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{decode, encode};
use crate::error::Error;

/// How keyspaces are made, and where streams of snapshots are kept while they are sent or received.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Options of the keyspace `log`; `None` for the stored options, or else the store's. Entries
    /// are written once, read soon, and deleted from the front.
    pub log: Option<KeyspaceOptions>,
    /// The same for the keyspaces of the machine. Entries must not expire: replicas would forget
    /// them at different moments.
    pub state: Option<KeyspaceOptions>,
    /// A directory for the streams of snapshots; `None` keeps the streams in memory, where each
    /// takes as much as the machine. The files have no name: a killed process leaves none. Make it
    /// beside the store, since the directory of the store contains only the store's files.
    pub snapshots: Option<PathBuf>,
    /// A mistake, to show that tests find it.
    #[cfg(feature = "seeded-bugs")]
    pub bug: Option<Bug>,
}

/// A known mistake.
#[cfg(feature = "seeded-bugs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A vote is written but not synced.
    VoteUnsynced,
    /// Entries are reported to openraft as durable when they are written but not synced.
    FlushedEarly,
    /// The switch to an installed snapshot and the number of its last entry are in two batches.
    SwitchInTwo,
    /// The log is purged before the machine has the purged entries.
    PurgedEarly,
    /// An open keeps the keyspaces of machines that are not in use.
    LeftoversKept,
}

#[cfg(feature = "seeded-bugs")]
macro_rules! seeded {
    ($settings:expr, $bug:ident) => {
        $settings.bug == Some($crate::base::Bug::$bug)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! seeded {
    ($settings:expr, $bug:ident) => {
        false
    };
}
pub(crate) use seeded;

/// The store and settings that log and machine share.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) store: Store,
    pub(crate) log: Keyspace,
    pub(crate) meta: Keyspace,
    pub(crate) settings: Settings,
}

/// How far the machine has applied the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// One more than the last index that is applied.
    pub(crate) applied: u64,
    /// Whether the machine has failed, and will not continue.
    pub(crate) has_failed: bool,
}

/// The keys of `meta`.
pub(crate) mod key {
    pub(crate) const FORMAT: &str = "format";
    pub(crate) const VOTE: &str = "vote";
    pub(crate) const COMMITTED: &str = "committed";
    pub(crate) const PURGED: &str = "purged";
    pub(crate) const APPLIED: &str = "applied";
    pub(crate) const MEMBERSHIP: &str = "membership";
    pub(crate) const MACHINE: &str = "machine";
}

/// Number of this layout of keyspaces and keys.
const FORMAT: u32 = 1;

impl Base {
    /// Opens the keyspaces.
    pub(crate) fn open(store: Store, settings: Settings) -> Result<Arc<Base>, Error> {
        let meta = store.open_keyspace("meta", None)?;
        let log = store.open_keyspace("log", settings.log.clone())?;
        let base = Base { store, log, meta, settings };
        match base.read::<u32>(key::FORMAT)? {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(Error::Layout { what: format!("layout {other}, not {FORMAT}") });
            }
            None if base.log.is_empty()? && base.meta.is_empty()? => {
                let mut batch = Batch::new();
                base.put(&mut batch, key::FORMAT, &FORMAT)?;
                // This also fails for a store without a log, which could promise nothing.
                base.store.write_later(&batch, runstone::WriteOptions::sync())?.wait()?;
            }
            None => {
                let what = "keyspaces `log` or `meta` that something else made".to_string();
                return Err(Error::Layout { what });
            }
        }
        Ok(Arc::new(base))
    }

    /// Reads a value of the keyspace `meta`.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        let bytes = self.meta.get(key)?;
        bytes.map(|bytes| decode(|| format!("`{key}` in `meta`"), &bytes)).transpose()
    }

    /// Adds a value of `meta` to a batch.
    pub(crate) fn put<T: Serialize>(
        &self,
        batch: &mut Batch,
        key: &str,
        value: &T,
    ) -> Result<(), Error> {
        batch.put(&self.meta, key, encode(key, value)?)?;
        Ok(())
    }
}
