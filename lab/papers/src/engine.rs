//! The real engine, driven so that every counter is a function of the options: nothing runs in the
//! background, memtables are flushed at fixed counts, and all jobs are done before the next write.
//! Its files are in memory: counters are the same there, and thousands of small tables need no
//! sync.

use std::sync::Arc;
use std::time::Duration;

use runstone::metrics::CounterValues;
use runstone::policy::Policy;
use runstone::storage::{Category, MemoryStorage};
use runstone::unstable;
use runstone::{
    Background, Compression, EventListener, KeyspaceOptions, Options, ReadOptions, Store, WalMode,
};
use runstone_kv::Result;
use runstone_policy::shape::Shape;
use runstone_random::mix64;
use runstone_workloads::generators::{Rng, ValueGenerator};

use crate::device_time::Lanes;

/// Memory of a store: enough to cache every tree.
pub const MEMORY_BYTES: u64 = 256 << 20;

/// Memory of a memtable: never reached, since flushes are requested by count.
const WRITE_BUFFER_BYTES: u64 = 16 << 20;

/// Level 0 is empty at least once in this many flushes, whatever its trigger.
const MOST_EXTRA_FLUSHES: u64 = 64;

/// The data that a tree is loaded with.
#[derive(Clone, Debug)]
pub struct Data {
    /// Records, each with a key of its own.
    pub records: u64,
    /// Bytes of a key; at least 8.
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Key and value bytes per flush.
    pub flush_bytes: u64,
}

impl Data {
    /// Bytes of a key and its value.
    pub fn entry_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }

    fn records_per_flush(&self) -> u64 {
        (self.flush_bytes / self.entry_bytes()).max(1)
    }
}

/// A loaded store.
pub struct Loaded {
    pub store: Store,
    storage: Arc<MemoryStorage>,
    data: Data,
    values: ValueGenerator,
    rng: Rng,
    /// Records written so far: all smaller numbers are present.
    records: u64,
    unflushed: u64,
    /// Whether small keys are more frequent, see [`Loaded::skewed`].
    is_skewed: bool,
    lanes: Option<Lanes>,
}

/// Options of a keyspace without compression, filters and back-pressure, so that sizes are exact.
pub fn plain_options(policy: &str) -> KeyspaceOptions {
    KeyspaceOptions::default()
        .policy(Policy::named(policy))
        .write_buffer_bytes(WRITE_BUFFER_BYTES)
        .filter_bits_per_key(0.0)
        .compression(vec![Compression::None])
        .l0_slowdown_runs(1 << 18)
        .l0_stop_runs(1 << 19)
        .debt_slowdown_bytes(0)
}

/// Options of a store whose jobs run when they are asked to, so that its files are a function of
/// the options.
pub fn stepped_options(keyspace: Option<KeyspaceOptions>, memory_budget_bytes: u64) -> Options {
    Options::default()
        .background(Background::Manual)
        .seed(1)
        .wal_mode(WalMode::Write)
        .memory_budget_bytes(memory_budget_bytes)
        .keyspace(keyspace)
}

/// Does all jobs that are due.
pub fn do_jobs(store: &Store) -> Result<()> {
    while store.run_one_job()? {}
    Ok(())
}

impl Loaded {
    /// Makes a store and writes all records, and a few more until level 0 is empty: the number of
    /// runs that wait there at the end is a matter of chance, and each would count as much as a
    /// level. At the end nothing is left to compact.
    pub fn new(keyspace: KeyspaceOptions, data: &Data) -> Result<Loaded> {
        let mut loaded = Loaded::empty(keyspace, data, None)?.load()?;
        loaded.insert_until_calm()?;
        Ok(loaded)
    }

    /// Makes a store whose compactions have this many slices.
    pub fn empty(
        keyspace: KeyspaceOptions,
        data: &Data,
        compaction_slices: Option<usize>,
    ) -> Result<Loaded> {
        Loaded::listening(keyspace, data, compaction_slices, None)
    }

    /// Makes an empty store with a listener.
    pub fn listening(
        keyspace: KeyspaceOptions,
        data: &Data,
        compaction_slices: Option<usize>,
        listener: Option<Arc<dyn EventListener>>,
    ) -> Result<Loaded> {
        let stepped = stepped_options(Some(keyspace), MEMORY_BYTES);
        let mut options = stepped.compaction_slices(compaction_slices);
        options.listener = listener;
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), options)?;
        let mut rng = Rng::new(1);
        let values = ValueGenerator::new(&mut rng, 1.0, data.value_bytes);
        let data = data.clone();
        let (records, unflushed, is_skewed) = (0, 0, false);
        let lanes = None;
        Ok(Loaded { store, storage, data, values, rng, records, unflushed, is_skewed, lanes })
    }

    /// Makes the keys of an empty tree skewed: the share of keys in the first part x of the key
    /// space is the square root of x. This is a Zipfian distribution with q = 0.5 over
    /// the space.
    pub fn skewed(self) -> Loaded {
        Loaded { is_skewed: true, ..self }
    }

    /// Makes the jobs of an empty tree run in simulated time, beside the writes.
    pub fn in_lanes(self, lanes: Lanes) -> Loaded {
        Loaded { lanes: Some(lanes), ..self }
    }

    /// Writes all records and does all jobs, unless they run in lanes. Level 0 stays as it is:
    /// under a policy that stacks runs, it is the whole tree.
    pub fn load(self) -> Result<Loaded> {
        self.load_watched(&mut |_| Ok(()))
    }

    /// Loads the tree in the same way, but looks at it at eight moments of the last quarter,
    /// including the end. How many runs wait at one moment is a matter of chance.
    pub fn load_watched(
        mut self,
        look: &mut dyn FnMut(&mut Loaded) -> Result<()>,
    ) -> Result<Loaded> {
        for part in 25..=32 {
            while self.records < self.data.records * part / 32 {
                self.insert()?;
            }
            if part == 32 {
                self.settle()?;
            }
            look(&mut self)?;
        }
        Ok(self)
    }

    /// Writes all records in ascending order of their keys, and does all jobs.
    pub fn load_ascending(mut self) -> Result<Loaded> {
        while self.records < self.data.records {
            self.put(padded(self.records, self.data.key_bytes))?;
        }
        self.settle()?;
        Ok(self)
    }

    /// The same tree with almost no cache, so that the counters of block reads show what reads
    /// need, and with fresh counters.
    pub fn without_cache(self) -> Result<Loaded> {
        self.reopened(1 << 20)
    }

    /// The same tree in a store with this much memory, with fresh counters.
    pub fn reopened(self, memory_budget_bytes: u64) -> Result<Loaded> {
        self.store.close()?;
        let options = stepped_options(None, memory_budget_bytes);
        Ok(Loaded { store: Store::open_on(self.storage.clone(), options)?, ..self })
    }

    /// Blocks and index partitions that were read from table files.
    pub fn table_reads(&self) -> u64 {
        self.table_io().0
    }

    /// Reads of table files, and their bytes.
    fn table_io(&self) -> (u64, u64) {
        let tables = unstable::file_counters(&self.store, Category::Table);
        (tables.reads, tables.read_bytes)
    }

    /// Writes a new record. Keys are mixed numbers, so they are in random order.
    pub fn insert(&mut self) -> Result<()> {
        self.put(self.key(self.records))
    }

    fn put(&mut self, key: Vec<u8>) -> Result<()> {
        if let Some(lanes) = &mut self.lanes {
            lanes.write(&mut &self.store, self.data.entry_bytes())?;
        }
        self.store.put(key, self.values.next(self.data.value_bytes))?;
        self.records += 1;
        self.unflushed += 1;
        if self.unflushed >= self.data.records_per_flush() {
            self.settle()?;
        }
        Ok(())
    }

    /// Continues until memtable and level 0 are empty.
    pub fn insert_until_calm(&mut self) -> Result<()> {
        for _ in 0..MOST_EXTRA_FLUSHES * self.data.records_per_flush() {
            if self.unflushed == 0 && self.shape().level(0).is_empty() {
                break;
            }
            self.insert()?;
        }
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of all live tables over key and value bytes of all records.
    pub fn space_amplification(&self) -> f64 {
        self.shape().bytes() as f64 / (self.records * self.data.entry_bytes()) as f64
    }

    pub fn counters(&self) -> CounterValues {
        unstable::counters(&self.store)
    }

    pub fn shape(&self) -> Shape {
        unstable::shape(self.store.default_keyspace())
    }

    /// The key of a record: eight mixed bytes, so that keys are spread evenly in no order, then
    /// zeros. Numbers that were never written give absent keys, spread just as evenly.
    pub fn key(&self, record: u64) -> Vec<u8> {
        let place = mix64(record);
        let skewed = ((u128::from(place) * u128::from(place)) >> 64) as u64;
        padded(if self.is_skewed { skewed } else { place }, self.data.key_bytes)
    }

    /// Gets this many absent keys. Returns their number.
    pub fn get_absent(&mut self, gets: u64) -> Result<u64> {
        for _ in 0..gets {
            let record = (1 << 40) + self.rng.below(1 << 40);
            let value = self.store.get(self.key(record))?;
            assert!(value.is_none(), "record {record} was never written");
        }
        Ok(gets)
    }

    /// Gets this many existing records.
    pub fn get_present(&mut self, gets: u64) -> Result<()> {
        for _ in 0..gets {
            let record = self.rng.below(self.records);
            let value = self.store.get(self.key(record))?;
            assert!(value.is_some(), "record {record} was written");
        }
        Ok(())
    }

    /// Runs `operate` on the tree. The time of its reads passes in the tree's lanes; for the
    /// background only this share of it passes. Returns the whole time in nanoseconds.
    pub fn timed(
        &mut self,
        share: f64,
        operate: impl FnOnce(&mut Loaded) -> Result<()>,
    ) -> Result<u64> {
        let (reads, bytes) = self.table_io();
        operate(self)?;
        let (reads, bytes) = (self.table_io().0 - reads, self.table_io().1 - bytes);
        let Some(lanes) = &mut self.lanes else { return Ok(0) };
        let took_ns = lanes.read_share(reads, bytes, share);
        lanes.catch_up(&mut &self.store)?;
        Ok(took_ns)
    }

    /// Does all jobs of the tree, and returns it without lanes.
    pub fn calm(self) -> Result<Loaded> {
        do_jobs(&self.store)?;
        Ok(Loaded { lanes: None, ..self })
    }

    /// Simulated time so far, and the part of it in which writers waited.
    pub fn seconds(&self) -> [f64; 2] {
        let clock = self.lanes.as_ref().map(|lanes| &lanes.clock);
        let times_ns = clock.map_or([0, 0], |clock| [clock.now_ns(), clock.stalled_ns]);
        times_ns.map(|ns| ns as f64 / 1e9)
    }

    /// Seeks this many times and reads `length` entries each.
    pub fn scan(&mut self, scans: u64, length: u64) -> Result<()> {
        let mut cursor = self.store.default_keyspace().cursor(ReadOptions::default())?;
        for _ in 0..scans {
            cursor.seek(self.rng.next_u64().to_be_bytes())?;
            for _ in 0..length {
                if !cursor.valid() {
                    break;
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Flushes, and does all jobs unless they run in lanes.
    fn settle(&mut self) -> Result<()> {
        self.unflushed = 0;
        if let Some(lanes) = &mut self.lanes {
            return lanes.flush(&mut &self.store);
        }
        self.store.flush()?;
        do_jobs(&self.store)
    }
}

/// Bytes written to tables over key and value bytes written.
pub fn write_amplification(counters: &CounterValues) -> f64 {
    table_bytes_written(counters) as f64 / counters.user_bytes_written.max(1) as f64
}

/// Bytes that flushes and compactions wrote.
pub fn table_bytes_written(counters: &CounterValues) -> u64 {
    counters.flush_bytes_written + counters.compaction_bytes_written
}

/// Reads the values of `entries` entries from a key on, with a cursor of its own. Returns their
/// bytes.
pub fn scan_values(store: &Store, key: &[u8], entries: u64) -> Result<u64> {
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default())?;
    cursor.seek(key)?;
    let mut bytes = 0;
    for _ in 0..entries {
        if !cursor.valid() {
            break;
        }
        bytes += std::hint::black_box(cursor.value()).len() as u64;
        cursor.next()?;
    }
    Ok(bytes)
}

/// Processor time of this thread, which does all the work: time that the machine gives to
/// others does not count.
pub fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A number as the head of a key of this many bytes.
pub fn padded(number: u64, key_bytes: usize) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(key_bytes.max(8), 0);
    key
}
