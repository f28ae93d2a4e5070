//! A store and its only client in simulated device time: a job begins as soon as the simulated
//! background is free. The time of a phase is reported per operation, and for reads alone.
//!
//! A get is charged only its data blocks: the indexes of all levels count as being in memory, like
//! those of the tables that RocksDB keeps open. A scan is charged its reads of indexes too.

use std::sync::Arc;

use runstone::metrics::CounterValues;
use runstone::storage::{Category, MemoryStorage};
use runstone::unstable;
use runstone::{ReadOptions, Store};
use runstone_kv::Result;
use runstone_random::mix64;
use runstone_workloads::generators::{Rng, ValueGenerator};

use super::Setting;
use crate::Context;
use crate::device_time::{Lanes, Limits};
use crate::engine::{MEMORY_BYTES, do_jobs, padded, stepped_options};

const BLOCK_BYTES: u64 = 4096;
/// After at most this many writes, memtable and level 0 are empty.
const MOST_EXTRA_WRITES: u64 = 1 << 14;
/// Memory that leaves almost no cache.
const UNCACHED_BYTES: u64 = 1 << 20;

/// The times of a phase.
pub(super) struct Phase {
    pub(super) kops_per_s: f64,
    /// Average, 95% and 99% of the reads.
    pub(super) read_us: [f64; 3],
    /// Reads of indexes for each get. They are not charged.
    pub(super) index_reads: f64,
    pub(super) counters: CounterValues,
}

impl Phase {
    /// The average time of all operations, in microseconds.
    pub(super) fn us(&self) -> f64 {
        1e3 / self.kops_per_s
    }
}

/// See the module docs.
pub(super) struct Client {
    store: Store,
    storage: Arc<MemoryStorage>,
    pub(super) lanes: Lanes,
    key_bytes: usize,
    value_bytes: usize,
    flush_bytes: u64,
    unflushed_bytes: u64,
    /// Numbers below this one are present, unless they are written with [`Client::put`] only.
    pub(super) records: u64,
    is_ascending: bool,
    values: ValueGenerator,
    pub(super) rng: Rng,
    read_ns: Vec<u64>,
    index_reads: u64,
}

impl Client {
    /// An empty store. The bytes of the limits grow with the scale.
    pub(super) fn new(context: &Context<'_>, setting: &Setting, limits: Limits) -> Result<Client> {
        let storage = Arc::new(MemoryStorage::new());
        let options = stepped_options(Some(setting.options(context)), MEMORY_BYTES);
        let mut rng = Rng::new(1);
        let debt_bytes = limits.debt_bytes.map(|bytes| context.scaled(bytes));
        Ok(Client {
            store: Store::open_on(storage.clone(), options)?,
            storage,
            lanes: Lanes::new(Limits { debt_bytes, ..limits }),
            key_bytes: setting.key_bytes,
            value_bytes: setting.value_bytes,
            flush_bytes: setting.data(context).flush_bytes,
            unflushed_bytes: 0,
            records: 0,
            is_ascending: false,
            values: ValueGenerator::new(&mut rng, 1.0, setting.value_bytes),
            rng,
            read_ns: Vec::new(),
            index_reads: 0,
        })
    }

    /// The same client, but its records get ascending keys.
    pub(super) fn ascending(self) -> Client {
        Client { is_ascending: true, ..self }
    }

    fn counters(&self) -> CounterValues {
        unstable::counters(&self.store)
    }

    /// Runs this many operations, one after another.
    pub(super) fn phase(
        &mut self,
        operations: u64,
        mut operate: impl FnMut(&mut Client) -> Result<()>,
    ) -> Result<Phase> {
        let (before, from_ns) = (self.counters(), self.lanes.clock.now_ns());
        self.read_ns.clear();
        self.index_reads = 0;
        for _ in 0..operations {
            operate(self)?;
        }
        let took_ms = (self.lanes.clock.now_ns() - from_ns) as f64 / 1e6;
        let counters = self.counters().since(&before);
        let kops_per_s = operations as f64 / took_ms;
        let index_reads = self.index_reads as f64 / counters.gets.max(1) as f64;
        let read_us = percentiles_us(&mut self.read_ns);
        Ok(Phase { kops_per_s, read_us, index_reads, counters })
    }

    /// Writes until level 0 is empty and nothing is left to do, and empties the cache.
    pub(super) fn calm(mut self) -> Result<Client> {
        for _ in 0..MOST_EXTRA_WRITES {
            self.lanes.clock.rest();
            do_jobs(&self.store)?;
            let shape = unstable::shape(self.store.default_keyspace());
            if self.unflushed_bytes == 0 && shape.level(0).is_empty() {
                break;
            }
            self.insert()?;
        }
        self.lanes.clock.rest();
        self.store.close()?;
        let options = stepped_options(None, UNCACHED_BYTES);
        Ok(Client { store: Store::open_on(self.storage.clone(), options)?, ..self })
    }

    /// Writes the next record.
    pub(super) fn insert(&mut self) -> Result<()> {
        self.records += 1;
        self.put(self.records - 1)
    }

    pub(super) fn put(&mut self, record: u64) -> Result<()> {
        let bytes = (self.key_bytes + self.value_bytes) as u64;
        self.lanes.write(&mut &self.store, bytes)?;
        self.store.put(self.key(record), self.values.next(self.value_bytes))?;
        self.unflushed_bytes += bytes;
        if self.unflushed_bytes + bytes > self.flush_bytes {
            self.unflushed_bytes = 0;
            self.lanes.flush(&mut &self.store)?;
        }
        Ok(())
    }

    /// Gets a record that exists.
    pub(super) fn get(&mut self, record: u64) -> Result<()> {
        assert!(self.find(record)?, "record {record} was written");
        Ok(())
    }

    /// Gets a record. Returns whether it exists.
    pub(super) fn find(&mut self, record: u64) -> Result<bool> {
        self.lanes.catch_up(&mut &self.store)?;
        let (before, (reads, _)) = (self.counters(), self.table_reads());
        let value = self.store.get(self.key(record))?;
        let seen = self.counters().since(&before);
        let blocks = seen.blocks_searched;
        self.index_reads += (self.table_reads().0 - reads).saturating_sub(seen.blocks_read);
        self.count_read(blocks, blocks * BLOCK_BYTES);
        Ok(value.is_some())
    }

    /// Seeks a record and steps over this many entries.
    pub(super) fn scan(&mut self, record: u64, steps: u64) -> Result<()> {
        self.lanes.catch_up(&mut &self.store)?;
        let (reads, bytes) = self.table_reads();
        let options = ReadOptions::default().fill_cache(false);
        let mut cursor = self.store.default_keyspace().cursor(options)?;
        cursor.seek(self.key(record))?;
        for _ in 0..steps {
            if !cursor.valid() {
                break;
            }
            cursor.next()?;
        }
        drop(cursor);
        let (reads_by_now, bytes_by_now) = self.table_reads();
        self.count_read(reads_by_now - reads, bytes_by_now - bytes);
        Ok(())
    }

    /// Reads of table files so far, and their bytes.
    fn table_reads(&self) -> (u64, u64) {
        let tables = unstable::file_counters(&self.store, Category::Table);
        (tables.reads, tables.read_bytes)
    }

    fn count_read(&mut self, reads: u64, bytes: u64) {
        self.read_ns.push(self.lanes.read(reads, bytes));
    }

    fn key(&self, record: u64) -> Vec<u8> {
        let number = if self.is_ascending { record } else { mix64(record) };
        padded(number, self.key_bytes)
    }
}

/// The average, the 95th and the 99th percentile of some times.
fn percentiles_us(times_ns: &mut [u64]) -> [f64; 3] {
    times_ns.sort_unstable();
    let at = |percent: usize| {
        let place = (times_ns.len() * percent / 100).min(times_ns.len().saturating_sub(1));
        times_ns.get(place).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    let average_us = times_ns.iter().sum::<u64>() as f64 / 1e3 / times_ns.len() as f64;
    [average_us, at(95), at(99)]
}
