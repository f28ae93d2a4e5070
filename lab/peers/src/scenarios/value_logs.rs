//! Measures what a tree of pointers writes if values are separated, as in HashKV's experiment 1.
//! Values are only counted, by the papers' rules. Each store keeps their pointers with the settings
//! of LevelDB's library: no filter, a write buffer of 4 MiB, a cache of 8 MiB. WiscKey's log looks
//! up every record that it collects, and LevelDB compacts tables that look-ups searched in vain.
//! The same log without look-ups shows what these cost.

use std::collections::BTreeSet;

use runstone::Durability;
use runstone_kv::{KvStore, KvWrite};
use runstone_simulator::by_paper::{CircularLog, Pointers, SegmentGroups};
use runstone_workloads::generators::{Permutation, Rng, ScrambledZipfian};

use super::{Bench, Figures};
use crate::Result;
use crate::data::SEED;

/// A 32nd of the paper's 40 GiB in pairs of 1 KiB.
const KEYS: u64 = 1_310_720;
const PAPER_KEYS: u64 = 41_943_040;
/// The paper's write cache, and the records that a collection of the log frees at once.
const PAPER_CACHE_RECORDS: u64 = 65_536;
/// The number of records in a log segment of 1 MiB, as in the paper.
const PAPER_SEGMENT_RECORDS: u64 = 1024;
const LEAST_SEGMENT_RECORDS: u64 = 8;
const GROUPS: u32 = 640;
const RESERVE_PERMILLE: u32 = 300;
const PAIR_BYTES: u64 = 1024;
const THETA: f64 = 0.99;
/// Pointers that are written at once.
const BATCH: usize = 4096;

/// The value file, in which values are only counted.
enum Values {
    Log(CircularLog),
    Groups(SegmentGroups),
}

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let mut figures = Figures::default();
    let keys = bench.scaled(KEYS);
    let scale = (PAPER_KEYS / keys).max(1);
    let chunk = (PAPER_CACHE_RECORDS / scale).max(1);
    let segment = (PAPER_SEGMENT_RECORDS / scale).max(LEAST_SEGMENT_RECORDS);
    let groups = GROUPS.min((keys / 20) as u32).max(1);
    for (name, looks_up) in [("log", true), ("log that looks nothing up", false), ("groups", true)]
    {
        let Some(open) = bench.peer.open_pointers else { return Ok(figures) };
        let values = match name {
            "groups" => Values::Groups(SegmentGroups::new(keys, groups, segment, RESERVE_PERMILLE)),
            _ => Values::Log(CircularLog::new(keys, chunk, RESERVE_PERMILLE)),
        };
        let store = open(&bench.path.join(name), bench.setup)?;
        let tree = Tree { bench, store, looks_up, batch: Vec::new(), place: 0, failed: None };
        let mut side = Side { values, tree, cache: BTreeSet::new(), cache_records: chunk };
        let loaded = Permutation::new(keys, SEED);
        side.phase((0..keys).map(|at| loaded.get(at)))?;
        let (draws, mut rng) =
            (ScrambledZipfian::of_own_curve(keys, THETA), Rng::stream(SEED, "value-logs", 0));
        side.phase((0..keys).map(|_| draws.next(&mut rng)))?;
        let before = (side.written(), side.table_bytes()?);
        side.phase((0..keys).map(|_| draws.next(&mut rng)))?;
        let records = side.written() - before.0;
        let bytes = side.table_bytes()? - before.1;
        figures.add(format!("{name}: values in P2, of the user's"), records as f64 / keys as f64);
        let tables = bytes as f64 / (keys * PAIR_BYTES) as f64;
        figures.add(format!("{name}: tables in P2, of the user's"), tables);
    }
    Ok(figures)
}

/// One way to keep values, and its pointers in a store.
struct Side<'a> {
    values: Values,
    tree: Tree<'a>,
    cache: BTreeSet<u64>,
    cache_records: u64,
}

impl Side<'_> {
    /// Writes keys, and waits until the store is idle.
    fn phase(&mut self, keys: impl Iterator<Item = u64>) -> Result<()> {
        for key in keys {
            self.cache.insert(key);
            if self.cache.len() as u64 >= self.cache_records {
                let cache = std::mem::take(&mut self.cache);
                match &mut self.values {
                    Values::Log(log) => log.flush(&cache, &mut self.tree),
                    Values::Groups(groups) => groups.flush(&cache, &mut self.tree),
                }
                self.tree.write()?;
            }
        }
        Ok(self.tree.store.wait_idle()?)
    }

    fn written(&self) -> u64 {
        match &self.values {
            Values::Log(log) => log.written,
            Values::Groups(groups) => groups.written,
        }
    }

    fn table_bytes(&self) -> Result<u64> {
        let metrics = self.tree.store.metrics()?;
        Ok(metrics.flush_bytes_written + metrics.compaction_bytes_written)
    }
}

struct Tree<'a> {
    bench: &'a Bench<'a>,
    store: Box<dyn KvStore>,
    looks_up: bool,
    batch: Vec<(Vec<u8>, [u8; 12])>,
    place: u64,
    /// The first failure of a look-up or of a batch.
    failed: Option<runstone_kv::Error>,
}

impl Tree<'_> {
    fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.bench.data.keys.encode(number, &mut key);
        key
    }

    /// Writes the waiting pointers. Returns the first failure so far.
    fn write(&mut self) -> Result<()> {
        self.write_batch();
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn write_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let puts: Vec<_> =
            batch.iter().map(|(key, value)| KvWrite::Put { key, value: &value[..] }).collect();
        if let Err(error) = self.store.write(&puts, Durability::Buffered) {
            self.failed.get_or_insert(error);
        }
    }
}

impl Pointers for Tree<'_> {
    fn put(&mut self, key: u64) {
        self.place += 1;
        let mut pointer = [0; 12];
        pointer[..4].copy_from_slice(&996_u32.to_le_bytes());
        pointer[4..].copy_from_slice(&self.place.to_le_bytes());
        self.batch.push((self.key(key), pointer));
        if self.batch.len() >= BATCH {
            self.write_batch();
        }
    }

    fn get(&mut self, key: u64) {
        if self.looks_up
            && let Err(error) = self.store.get(&self.key(key))
        {
            self.failed.get_or_insert(error);
        }
    }
}
