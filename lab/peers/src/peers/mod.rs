//! The stores compared, one registry line each. An adapter makes a store a `KvStore` and sets it up
//! under the terms of [`Setup`]; it tunes nothing beyond them.

use std::path::Path;

use runstone::kv::KvStore;
use runstone::{Error, Result};

use crate::counters::{Counters, Way};
use crate::plan::Setup;

mod fjall;
mod rocksdb;
mod runstone_store;

/// Where the bytes written are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenFrom {
    /// The kernel's count of bytes passed to `write` (`wchar` of /proc/self/io).
    Process,
    /// The store's own counter: what it stores through a mapping passes no `write`.
    Store,
}

pub struct Peer {
    pub name: &'static str,
    pub written_from: WrittenFrom,
    /// Makes or opens a store.
    pub open: Open,
    /// Makes a store with `Setup::keyspaces` keyspaces, or whatever it calls them.
    pub open_keyspaces: Option<OpenKeyspaces>,
    /// Makes a store of counters that counts in a way; `None` if it has no such way.
    pub open_counters: Option<OpenCounters>,
    /// Whether a range delete is one record.
    pub has_range_deletes: bool,
}

type Open = fn(&Path, &Setup) -> Result<Box<dyn KvStore>>;

/// Puts a key and a value into the keyspace of a number.
pub type PutInto = Box<dyn Fn(usize, &[u8], &[u8]) -> Result<()>>;

type OpenKeyspaces = fn(&Path, &Setup) -> Result<PutInto>;

type OpenCounters = fn(&Path, &Setup, Way) -> Result<Option<Box<dyn Counters>>>;

const fn own(name: &'static str, open: Open) -> Peer {
    Peer {
        name,
        written_from: WrittenFrom::Store,
        open,
        open_keyspaces: None,
        open_counters: None,
        has_range_deletes: true,
    }
}

const fn other(name: &'static str, open: Open) -> Peer {
    Peer { written_from: WrittenFrom::Process, ..own(name, open) }
}

const fn with(peer: Peer, open: OpenKeyspaces, count: OpenCounters) -> Peer {
    Peer { open_keyspaces: Some(open), open_counters: Some(count), ..peer }
}

pub static PEERS: &[Peer] = &[
    with(
        own("runstone", runstone_store::open),
        runstone_store::open_keyspaces,
        runstone_store::open_counters,
    ),
    with(other("rocksdb", rocksdb::open), rocksdb::open_keyspaces, rocksdb::open_counters),
    own("runstone-universal", runstone_store::open_universal),
    other("rocksdb-universal", rocksdb::open_universal),
    own("runstone-hashkv", runstone_store::open_hashkv),
    other("rocksdb-blobdb", rocksdb::open_blobdb),
    other("rocksdb-blobdb-tight", rocksdb::open_blobdb_tight),
    Peer {
        has_range_deletes: false,
        ..with(other("fjall", fjall::open), fjall::open_keyspaces, fjall::open_counters)
    },
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

#[cfg(test)]
mod tests {
    use super::*;
    use runstone::Durability;
    use runstone::kv::{Direction, KvWrite};
    use runstone_workloads::{BenchSpec, NoProgress, WORKLOADS};

    fn setup() -> Setup {
        Setup {
            num: 1000,
            value_bytes: 100,
            reads: 0,
            scans: 0,
            scan_length: 10,
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            background_threads: 2,
            writers: 1,
            runs: 0,
            updates: 0,
            pops: 0,
            benchmarks: Vec::new(),
            keyspaces: 20,
            increments: 0,
            range_deletes: 0,
            settle: false,
            reopen: false,
            runstone_policy: None,
            runstone_toml: None,
        }
    }

    /// Runs `check` on every peer, each in a directory of its own that does not survive.
    fn on_each(name: &str, check: impl Fn(&dyn KvStore)) {
        for peer in PEERS {
            let directory = format!("peers-test-{name}-{}-{}", peer.name, std::process::id());
            let path = std::env::temp_dir().join(directory);
            let store = (peer.open)(&path, &setup()).expect("opens");
            check(store.as_ref());
            drop(store);
            std::fs::remove_dir_all(&path).expect("is removed");
        }
    }

    fn keys(store: &dyn KvStore, from: Option<&[u8]>, direction: Direction) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            keys.len() < 3
        };
        store.scan(from, direction, &mut visit).expect("scans");
        keys
    }

    #[test]
    fn adapters_mean_the_same() {
        on_each("same", |store| {
            let put = |key, value| store.put(key, value, Durability::Buffered).expect("puts");
            for key in [b"a", b"c", b"e", b"g"] {
                put(key, b"1");
            }
            let batch = [KvWrite::Put { key: b"i", value: b"2" }, KvWrite::Delete { key: b"e" }];
            store.write(&batch, Durability::Sync).expect("writes");
            store.delete(b"absent", Durability::Sync).expect("deletes");
            let get = |key: &[u8]| store.get(key).expect("gets").map(|value| value.to_vec());
            assert_eq!(get(b"i"), Some(b"2".to_vec()));
            assert_eq!(get(b"e"), None);
            let several = store.multi_get(&[b"a", b"e"]).expect("gets");
            assert_eq!((several[0].is_some(), several[1].is_none()), (true, true));
            assert_eq!(keys(store, None, Direction::Forward), [b"a", b"c", b"g"]);
            assert_eq!(keys(store, Some(b"d"), Direction::Forward), [b"g", b"i"]);
            assert_eq!(keys(store, Some(b"d"), Direction::Reverse), [b"c", b"a"]);
            assert_eq!(keys(store, None, Direction::Reverse), [b"i", b"g", b"c"]);
            store.flush().expect("flushes");
            store.wait_idle().expect("waits");
            store.compact().expect("compacts");
            assert_eq!(keys(store, Some(b"c"), Direction::Reverse), [b"c", b"a"]);
            assert!(store.metrics().expect("counts").disk_bytes > 0);
        });
    }

    #[test]
    fn keyspaces_are_filled_in_turn() {
        for peer in PEERS {
            let Some(open) = peer.open_keyspaces else { continue };
            let directory = format!("peers-test-keyspaces-{}-{}", peer.name, std::process::id());
            let path = std::env::temp_dir().join(directory);
            let put = open(&path, &setup()).expect("opens");
            (0..100usize).for_each(|n| put(n % 20, &n.to_be_bytes(), b"value").expect("puts"));
            drop(put);
            std::fs::remove_dir_all(&path).expect("is removed");
        }
    }

    #[test]
    fn every_way_counts() {
        for peer in PEERS {
            let Some(open) = peer.open_counters else { continue };
            for way in [Way::Merge, Way::Optimistic, Way::Pessimistic] {
                let name = format!("peers-test-{way:?}-{}-{}", peer.name, std::process::id());
                let path = std::env::temp_dir().join(name);
                let Some(counters) = open(&path, &setup(), way).expect("opens") else { continue };
                (0..10).for_each(|by| counters.add(b"a", by).expect("adds"));
                let found = [b"a", b"b"].map(|key| counters.get(key).expect("gets"));
                assert_eq!(found, [45, 0], "{} by {way:?}", peer.name);
                drop(counters);
                std::fs::remove_dir_all(&path).expect("is removed");
            }
        }
    }

    #[test]
    fn ranges_are_deleted() {
        on_each("ranges", |store| {
            for key in [b"a", b"c", b"e", b"g"] {
                store.put(key, b"1", Durability::Buffered).expect("puts");
            }
            store.delete_range(b"b", Some(b"e"), Durability::Buffered).expect("deletes");
            assert_eq!(keys(store, None, Direction::Forward), [b"a", b"e", b"g"]);
            store.delete_range(b"e", None, Durability::Buffered).expect("deletes");
            assert_eq!(keys(store, None, Direction::Forward), [b"a"]);
        });
    }

    #[test]
    fn every_workload_runs_on_every_peer() {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        let spec = BenchSpec { num: 1000, scan_length: 10, ..BenchSpec::default() };
        on_each("workloads", |store| {
            let report = runstone_workloads::run(store, &names, &spec, &NoProgress).expect("runs");
            assert_eq!(report.benchmarks.len(), names.len());
        });
    }
}
