//! A store that is loaded and updated in phases, and what each phase cost.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::storage::random::mix64;
use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, Event, EventListener, Options, Result, Store, WalMode};
use runstone_flash::block::BlockStorage;
use runstone_workloads::generators::{Rng, ScrambledZipfian, ValueGenerator};

use super::designs::{Design, KEY_BYTES, Workload};
use crate::engine::{cpu_time, do_jobs, scan_values, stepped_options};
use crate::numbers::mib;

/// A flush is hundreds of operations.
const OPERATIONS_PER_LOOK: u64 = 16;

/// What a store moved to and from its files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Io {
    pub(super) wal: u64,
    pub(super) table: u64,
    pub(super) value: u64,
    pub(super) manifest: u64,
    /// Syncs of all files.
    pub(super) syncs: u64,
    /// Reads of tables and value files, and their bytes.
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
}

impl Io {
    fn of(store: &Store) -> Io {
        let mut io = Io::default();
        for one in store.metrics().io {
            io.syncs += one.syncs;
            match one.category {
                "wal" => io.wal = one.written_bytes,
                "table" => io.table = one.written_bytes,
                "value" => io.value = one.written_bytes,
                "manifest" => io.manifest = one.written_bytes,
                _ => {}
            }
            if matches!(one.category, "table" | "value") {
                io.reads += one.reads;
                io.read_bytes += one.read_bytes;
            }
        }
        io
    }

    fn since(&self, before: &Io) -> Io {
        Io {
            wal: self.wal - before.wal,
            table: self.table - before.table,
            value: self.value - before.value,
            manifest: self.manifest - before.manifest,
            syncs: self.syncs - before.syncs,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.wal + self.table + self.value + self.manifest
    }
}

/// What a phase did.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) operations: u64,
    pub(super) took: Duration,
    pub(super) counters: CounterValues,
    pub(super) io: Io,
    /// Bytes of keys and values.
    pub(super) user_bytes: u64,
}

impl Phase {
    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }

    pub(super) fn us(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Bytes per byte of the user.
    pub(super) fn part(&self, bytes: u64) -> f64 {
        bytes as f64 / self.user_bytes as f64
    }

    /// All bytes written per byte of the user.
    pub(super) fn amplification(&self) -> f64 {
        self.part(self.io.written())
    }

    pub(super) fn mib_per_second(&self) -> f64 {
        mib(self.user_bytes) / self.took.as_secs_f64()
    }

    pub(super) fn value_amplification(&self) -> f64 {
        self.part(self.io.value)
    }

    pub(super) fn bytes_text(&self) -> String {
        format!(
            "{:.2} (values {:.2}, tables {:.2}, log {:.2})",
            self.amplification(),
            self.value_amplification(),
            self.part(self.io.table),
            self.part(self.io.wal)
        )
    }
}

/// The most that files took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakBytes {
    pub(super) values: u64,
    pub(super) tables: u64,
    pub(super) both: u64,
}

/// Looks at files when a flush, compaction or collection ends: then its output exists beside what
/// it replaces.
#[derive(Debug)]
struct Peak {
    storage: Arc<MemoryStorage>,
    bytes: Mutex<PeakBytes>,
}

impl Peak {
    fn look(&self) {
        // A file that vanishes meanwhile is no reason to end a measurement.
        let files = self.storage.list().unwrap_or_default();
        let sum = |ending: &str| -> u64 {
            let those = files.iter().filter(|file| file.name.ends_with(ending));
            those.map(|file| file.len_bytes).sum()
        };
        let (values, tables) = (sum(".values"), sum(".table"));
        let mut most = self.bytes.lock().expect("no holder panics");
        most.values = most.values.max(values);
        most.tables = most.tables.max(tables);
        most.both = most.both.max(values + tables);
    }
}

impl EventListener for Peak {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::ValuesCollected { .. } | Event::Compacted { .. }) {
            self.look();
        }
    }
}

/// How time is told, and with it who runs the jobs.
enum Clock {
    /// The processor's, with files in memory and jobs between operations.
    Processor(Arc<Peak>),
    /// The wall's, with background threads.
    Wall(Instant),
    /// The simulated one of a block SSD, with jobs between operations.
    Device(BlockStorage),
}

impl Clock {
    fn now(&self) -> Duration {
        match self {
            Clock::Processor(_) => cpu_time(),
            Clock::Wall(started) => started.elapsed(),
            Clock::Device(device) => Duration::from_nanos(device.layers().elapsed_ns),
        }
    }

    fn has_threads(&self) -> bool {
        matches!(self, Clock::Wall(_))
    }
}

/// A store with its workload.
pub(super) struct Bench {
    pub(super) store: Store,
    clock: Clock,
    rng: Rng,
    values: ValueGenerator,
    workload: Workload,
    zipfian: ScrambledZipfian,
    seen: (CounterValues, Io, Duration),
    operations: u64,
    user_bytes: u64,
}

impl Bench {
    /// In memory, with jobs between the operations: bytes are functions of the options.
    pub(super) fn in_memory(design: &Design, workload: &Workload) -> Result<Bench> {
        let storage = Arc::new(MemoryStorage::new());
        let peak = Arc::new(Peak { storage: storage.clone(), bytes: Mutex::default() });
        let listener = Some(Arc::clone(&peak) as Arc<dyn EventListener>);
        let options = Options { listener, ..stepped(design) };
        let store = Store::open_on(storage, options)?;
        Ok(Bench::new(store, Clock::Processor(peak), workload))
    }

    /// On a block SSD, with jobs between the operations. It keeps the last 64 KiB of a file back,
    /// which would be all of a small log segment.
    pub(super) fn on_device(
        design: &Design,
        workload: &Workload,
        device: &BlockStorage,
    ) -> Result<Bench> {
        let options = Options { wal_segment_bytes: 1 << 20, ..stepped(design) };
        let store = Store::open_on(Arc::new(device.clone()), options)?;
        Ok(Bench::new(store, Clock::Device(device.clone()), workload))
    }

    /// In a directory, with background threads.
    pub(super) fn on_files(design: &Design, workload: &Workload, path: &Path) -> Result<Bench> {
        let options = Options {
            background: Background::Threads(2),
            compaction_slices: None,
            wal_mode: WalMode::default(),
            ..stepped(design)
        };
        Ok(Bench::new(Store::open(path, options)?, Clock::Wall(Instant::now()), workload))
    }

    fn new(store: Store, clock: Clock, workload: &Workload) -> Bench {
        let mut rng = Rng::new(1);
        let values = ValueGenerator::new(&mut rng, 1.0, workload.most_value_bytes());
        let mut bench = Bench {
            store,
            clock,
            rng,
            values,
            workload: workload.clone(),
            zipfian: ScrambledZipfian::new(workload.records),
            seen: (CounterValues::default(), Io::default(), Duration::ZERO),
            operations: 0,
            user_bytes: 0,
        };
        bench.seen = bench.look();
        bench
    }

    fn look(&self) -> (CounterValues, Io, Duration) {
        (self.store.metrics().counters, Io::of(&self.store), self.clock.now())
    }

    fn put(&mut self, record: u64) -> Result<()> {
        let bytes = self.workload.value_bytes(record);
        self.store.put(key(record), self.values.next(bytes))?;
        self.operations += 1;
        self.user_bytes += (KEY_BYTES + bytes) as u64;
        if !self.clock.has_threads() && self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            do_jobs(&self.store)?;
        }
        Ok(())
    }

    /// P0.
    pub(super) fn load(&mut self) -> Result<Phase> {
        for record in 0..self.workload.records {
            self.put(record)?;
        }
        self.phase()
    }

    /// One of P1 to P3: as many updates as there are records.
    pub(super) fn update(&mut self) -> Result<Phase> {
        for _ in 0..self.workload.records {
            let record = self.zipfian.next(&mut self.rng);
            self.put(record)?;
        }
        self.phase()
    }

    /// Load and that many phases of updates; what the last one cost.
    pub(super) fn through(&mut self, phases: usize) -> Result<Phase> {
        let mut last = self.load()?;
        for _ in 0..phases {
            last = self.update()?;
        }
        Ok(last)
    }

    /// Gets of records, as popular as updates make them.
    pub(super) fn gets(&mut self, count: u64) -> Result<Phase> {
        for _ in 0..count {
            let record = self.zipfian.next(&mut self.rng);
            assert!(self.store.get(key(record))?.is_some(), "record {record} was written");
            self.operations += 1;
        }
        self.phase()
    }

    /// Scans of so many entries, from popular records.
    pub(super) fn scans(&mut self, count: u64, entries: u64) -> Result<Phase> {
        for _ in 0..count {
            let record = self.zipfian.next(&mut self.rng);
            self.user_bytes += scan_values(&self.store, &key(record), entries)?;
            self.operations += 1;
        }
        self.phase()
    }

    /// What was done since the last phase ended; work that threads still do counts.
    pub(super) fn phase(&mut self) -> Result<Phase> {
        if self.clock.has_threads() {
            self.store.wait_idle()?;
        }
        let now = self.look();
        let (counters, io, since) = std::mem::replace(&mut self.seen, now);
        let now = &self.seen;
        Ok(Phase {
            operations: std::mem::take(&mut self.operations),
            took: now.2 - since,
            counters: now.0.since(&counters),
            io: now.1.since(&io),
            user_bytes: std::mem::take(&mut self.user_bytes),
        })
    }

    /// Nothing unless files are in memory.
    pub(super) fn peak(&self) -> PeakBytes {
        match &self.clock {
            Clock::Processor(peak) => *peak.bytes.lock().expect("no holder panics"),
            _ => PeakBytes::default(),
        }
    }
}

/// Jobs run between the operations, one at a time.
fn stepped(design: &Design) -> Options {
    Options {
        compaction_slices: Some(1),
        wal_segment_bytes: 64 << 10,
        max_wal_bytes: 16 << 20,
        io_uring: design.io_uring,
        ..stepped_options(Some(design.keyspace.clone()), design.memory_bytes)
    }
}

/// A number as a key: eight mixed bytes, then zeros.
fn key(record: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix64(record).to_be_bytes());
    key
}
