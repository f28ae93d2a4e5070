//! The stores compared, one registry line each. An adapter makes a store a `KvStore` and sets it up
//! under the terms of [`Setup`]; it tunes nothing beyond them.

use std::path::Path;

use runstone_kv::KvStore;
use runstone_kv::{Error, Result};

use crate::counters::{Counters, Way};
use crate::extras::{Appending, Expiring};
use crate::plan::Setup;

mod fjall;
mod leveldb;
mod lmdb;
mod redb;
mod rocksdb;
mod runstone_store;
#[cfg(test)]
mod tests;

/// The source of the number of bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenFrom {
    /// The kernel's count of bytes passed to `write` (`wchar` of /proc/self/io).
    Process,
    /// The store's own counter: bytes stored through a mapping go through no `write`.
    Store,
}

pub struct Peer {
    pub name: &'static str,
    pub written_from: WrittenFrom,
    /// Makes or opens a store.
    pub open: Open,
    /// Makes a store with `Setup::keyspaces` keyspaces, whatever the store calls them.
    pub open_keyspaces: Option<OpenKeyspaces>,
    /// Makes a store of counters that counts in a given way; `None` if it does not have this way.
    pub open_counters: Option<OpenCounters>,
    /// Makes a store with a merge operator that appends.
    pub open_appending: Option<OpenAppending>,
    /// Makes a store that drops expired entries; without it, readers skip them.
    pub open_expiring: Option<OpenExpiring>,
    /// Makes a store for small entries, with the settings of LevelDB's library.
    pub open_pointers: Option<Open>,
    /// Whether a range delete is one record.
    pub has_range_deletes: bool,
    /// Whether `KvStore::load` takes keys in any order, as one transaction.
    pub loads_in_any_order: bool,
}

type Open = fn(&Path, &Setup) -> Result<Box<dyn KvStore>>;

/// Puts a key and a value into the keyspace of a number.
pub type PutInto = Box<dyn Fn(usize, &[u8], &[u8]) -> Result<()>>;

type OpenKeyspaces = fn(&Path, &Setup) -> Result<PutInto>;

type OpenCounters = fn(&Path, &Setup, Way) -> Result<Option<Box<dyn Counters>>>;

type OpenAppending = fn(&Path, &Setup) -> Result<Box<dyn Appending>>;

type OpenExpiring = fn(&Path, &Setup) -> Result<Box<dyn Expiring>>;

const fn own(name: &'static str, open: Open) -> Peer {
    Peer { written_from: WrittenFrom::Store, ..other(name, open) }
}

const fn other(name: &'static str, open: Open) -> Peer {
    Peer {
        name,
        written_from: WrittenFrom::Process,
        open,
        open_keyspaces: None,
        open_counters: None,
        open_appending: None,
        open_expiring: None,
        open_pointers: None,
        has_range_deletes: true,
        loads_in_any_order: false,
    }
}

/// A store that offers column families, ways to count, operands and expiry.
const fn with_all(
    peer: Peer,
    keyspaces: OpenKeyspaces,
    counters: OpenCounters,
    appending: OpenAppending,
    expiring: OpenExpiring,
) -> Peer {
    Peer {
        open_keyspaces: Some(keyspaces),
        open_counters: Some(counters),
        open_appending: Some(appending),
        open_expiring: Some(expiring),
        ..peer
    }
}

/// A store that is a tree in one file, changed by transactions.
const fn in_one_file(peer: Peer) -> Peer {
    Peer { has_range_deletes: false, loads_in_any_order: true, ..peer }
}

pub static PEERS: &[Peer] = &[
    with_all(
        Peer {
            open_pointers: Some(runstone_store::open_pointers),
            ..own("runstone", runstone_store::open)
        },
        runstone_store::open_keyspaces,
        runstone_store::open_counters,
        runstone_store::open_appending,
        runstone_store::open_expiring,
    ),
    with_all(
        other("rocksdb", rocksdb::open),
        rocksdb::open_keyspaces,
        rocksdb::open_counters,
        rocksdb::open_appending,
        rocksdb::open_expiring,
    ),
    own("runstone-universal", runstone_store::open_universal),
    other("rocksdb-universal", rocksdb::open_universal),
    own("runstone-hashkv", runstone_store::open_hashkv),
    other("rocksdb-blobdb", rocksdb::open_blobdb),
    other("rocksdb-blobdb-tight", rocksdb::open_blobdb_tight),
    Peer {
        open_keyspaces: Some(fjall::open_keyspaces),
        open_counters: Some(fjall::open_counters),
        has_range_deletes: false,
        ..other("fjall", fjall::open)
    },
    Peer {
        open_pointers: Some(leveldb::open_pointers),
        has_range_deletes: false,
        ..other("leveldb", leveldb::open)
    },
    in_one_file(other("lmdb", lmdb::open)),
    in_one_file(other("redb", redb::open)),
];

pub fn find(name: &str) -> Result<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        Error::invalid(
            format!("no store is named {name:?}; known are {}", names.join(", ")),
            "choose among the known",
        )
    })
}

/// An error of another store.
fn foreign(engine: &str, error: impl std::fmt::Display) -> Error {
    Error::Foreign { engine: engine.into(), what: error.to_string() }
}
