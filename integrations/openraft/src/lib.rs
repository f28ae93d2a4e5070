//! Log and state machine of openraft 0.9 in one Runstone store: all that a node of a Raft cluster
//! keeps on disk. Raft itself, the network and the requests are openraft's and the application's.
//!
//! ```
//! use openraft::storage::RaftStateMachine;
//! use runstone::{MAX_KEY_BYTES, Store};
//! use runstone_openraft::{Machine, Settings, SnapshotData, State, open};
//!
//! openraft::declare_raft_types!(
//!     /// A register of texts.
//!     pub Types:
//!         D = (String, String),
//!         R = Option<String>,
//!         SnapshotData = SnapshotData,
//! );
//!
//! /// What a request does: it replaces a value, and returns the old one.
//! struct Registers;
//!
//! impl Machine<Types> for Registers {
//!     fn apply(
//!         &self,
//!         state: &mut State<'_>,
//!         (key, value): (String, String),
//!     ) -> runstone::Result<Option<String>> {
//!         let old = state.get(&key)?;
//!         state.put(&key, &value)?;
//!         Ok(old.map(|old| String::from_utf8_lossy(&old).into_owned()))
//!     }
//!
//!     fn nothing(&self) -> Option<String> {
//!         None
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Store::builder(directory.path().join("store")).open()?;
//! let (log, machine) = open::<Types, _>(store, Registers, Settings::default())?;
//! // Both go to openraft::Raft::new. Whoever answers reads keeps a reader.
//! let reader = machine.reader();
//! assert!(reader.get("key")?.is_none());
//! # drop(log);
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! | keyspace | keys | values |
//! |---|---|---|
//! | `log` | index, 8 bytes, big-endian | the entry |
//! | `state-N` | the machine's | the machine's; N grows with each installed snapshot |
//! | `meta` | `vote`, `committed`, `purged`, `applied`, `membership`, ... | what the name says |
//!
//! `machine` in `meta` has the present N. Entries and the values of `meta` are MessagePack with
//! names, so a request type may get a field with a default later.
//!
//! # Why one store
//!
//! A store loses only the newest writes at a power loss, whichever keyspace they are in: the writes
//! before some moment survive (P2). So only what Raft has promised to others is synced: votes, and
//! appended entries before they are acknowledged. The effects of an entry on the machine are
//! written in one batch with the number of the entry, and unsynced. After a power loss, the
//! machine, the purge and the commit are those of one earlier moment, and openraft applies the
//! missing entries again, from the log that is still there.
//!
//! # Snapshots
//!
//! A snapshot is the machine's keyspace as one stream of sorted entries with checksums
//! ([`SnapshotData`]). Taking one is cheap: it pins a snapshot of the store and writes nothing. The
//! bytes are written when another node needs them, to a file without a name, while the machine
//! continues to apply entries. An installed snapshot is loaded into a fresh keyspace, then one
//! batch switches to it. A checkpoint of the store would not be a snapshot: it has the vote and the
//! log of the node that made it, and a node that installed it would vote twice.

#![forbid(unsafe_code)]

mod base;
mod codec;
mod error;
mod log;
mod machine;
mod open;
mod snapshot;
mod stream;

#[cfg(feature = "seeded-bugs")]
pub use base::Bug;
pub use base::Settings;
pub use error::Error;
pub use log::{LogReader, LogStore};
pub use machine::{Machine, Reader, State, StateMachine};
pub use open::open;
pub use snapshot::{Builder, SnapshotData};
