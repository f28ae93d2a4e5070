//! Runstone: an embedded LSM key-value store whose shape is a choice.
//!
//! ```
//! use runstone::{Batch, Options, ReadOptions, Store, WriteOptions};
//!
//! # fn main() -> runstone::Result<()> {
//! # let directory = tempfile::tempdir().expect("temporary directory");
//! # let path = directory.path().join("store");
//! let store = Store::open(&path, Options::default())?;
//!
//! // Point operations on the default keyspace.
//! store.put("fruit/apple", "red")?;
//! store.put("fruit/banana", "yellow")?;
//! assert_eq!(store.get("fruit/apple")?.as_deref(), Some(&b"red"[..]));
//!
//! // A snapshot does not change.
//! let snapshot = store.snapshot();
//! store.delete("fruit/apple")?;
//! assert!(store.get("fruit/apple")?.is_none());
//! let fruits = store.default_keyspace();
//! assert!(fruits.get_at("fruit/apple", &snapshot)?.is_some());
//!
//! // Batches are atomic across keyspaces, and durable when they say so.
//! let ages = store.open_keyspace("ages", None)?;
//! let mut batch = Batch::new();
//! batch.put(fruits, "fruit/cherry", "dark")?;
//! batch.put(&ages, "cherry", "3 days")?;
//! store.write(&batch, WriteOptions::sync())?;
//!
//! // Iterators go both ways, inside bounds or a prefix.
//! let keys: Vec<Vec<u8>> =
//!     fruits.prefix(b"fruit/")?.rev().map(|item| Ok(item?.0)).collect::<runstone::Result<_>>()?;
//! assert_eq!(keys, [b"fruit/cherry".to_vec(), b"fruit/banana".to_vec()]);
//!
//! // Cursors seek.
//! let mut cursor = fruits.cursor(ReadOptions::default())?;
//! cursor.seek(b"fruit/c")?;
//! assert_eq!((cursor.key(), cursor.value()), (&b"fruit/cherry"[..], &b"dark"[..]));
//! store.close()
//! # }
//! ```
//!
//! Start reading at [`Store`]; ARCHITECTURE.md shows the paths through the rooms.

#![deny(unsafe_code)]

/// Whether a bug of `seeded::Bug` is on: never, unless tests ask for the feature.
#[cfg(feature = "seeded-bugs")]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::seeded::is_on($crate::seeded::Bug::$bug)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! seeded {
    ($bug:ident) => {
        false
    };
}
/// Lets a test step in at a place of `seeded::Place`.
#[cfg(feature = "seeded-bugs")]
macro_rules! reached {
    ($place:ident) => {
        $crate::seeded::at($crate::seeded::Place::$place)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! reached {
    ($place:ident) => {};
}

mod batch;
pub mod cache;
mod codec;
#[cfg(feature = "seeded-bugs")]
#[doc(hidden)]
pub mod doors;
pub mod dump;
mod error;
mod event;
mod key;
pub mod kv;
mod log;
#[doc(hidden)]
pub mod memtable;
mod merge;
pub mod metrics;
mod options;
mod prefetch;
mod random;
mod read;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
mod store;
mod sync;
mod table;
mod threads;
mod value;
mod version;
mod write;

pub use batch::{Batch, KeyspaceId, Operation};
pub use error::{Error, Result};
pub use event::{Event, EventListener};
pub use key::{Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo};
pub use metrics::MetricsSnapshot;
pub use options::{
    Background, Compression, Durability, KeyspaceOptions, MergeInstall, Options, PRESETS, Preset,
    SubMerges, WalMode, WriteOptions,
};
pub use read::cursor::{Cursor, ReadOptions, Scan};
pub use runstone_policy as policy;
pub use runstone_storage as storage;
pub use store::{DEFAULT_KEYSPACE, Damage, Keyspace, Snapshot, Store, TableDump, VerifyReport};
pub use value::Value;
pub use value::options::{GcPointers, ValueOptions, ValuePlacement, WhenFull};
pub use value::store::{GroupUsage, ValueUsage};
