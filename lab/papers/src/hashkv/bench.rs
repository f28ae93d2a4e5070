//! A store that is loaded and updated in phases, and what each phase cost.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runstone::metrics::{CounterValues, IoCounters};
use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{Background, Event, EventListener, Options, Store, WalMode};
use runstone_flash::block::BlockStorage;
use runstone_kv::Result;
use runstone_random::mix64;
use runstone_workloads::generators::{Rng, ScrambledZipfian, ValueGenerator};

use super::designs::{Design, HEADER_BYTES, KEY_BYTES, Workload};
use crate::engine::{cpu_time, do_jobs, scan_values, stepped_options};
use crate::numbers::mib;
use crate::report::Row;

/// Operations between two checks for jobs; flushes are hundreds of operations apart.
const OPERATIONS_PER_LOOK: u64 = 16;

/// The results of a phase.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) operations: u64,
    pub(super) took: Duration,
    pub(super) counters: CounterValues,
    /// Bytes of keys and values.
    pub(super) user_bytes: u64,
    /// The counters of the store at the beginning and end of the phase.
    io: [Vec<IoCounters>; 2],
}

/// Categories of files that are compared.
pub(super) const ALL: &[&str] = &["wal", "table", "value", "manifest", "other"];
/// Categories that are judged: the paper's stores write to devices with a volatile cache, and
/// without a log.
pub(super) const UNLOGGED: &[&str] = &["table", "value", "manifest"];
pub(super) const DATA: &[&str] = &["table", "value"];

impl Phase {
    /// A counter, summed over categories of files.
    pub(super) fn io(&self, categories: &[&str], of: fn(&IoCounters) -> u64) -> u64 {
        let [before, after] = self.io.each_ref().map(|all| -> u64 {
            all.iter().filter(|one| categories.contains(&&*one.category)).map(of).sum()
        });
        after - before
    }

    pub(super) fn written(&self, categories: &[&str]) -> u64 {
        self.io(categories, |io| io.written_bytes)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }

    pub(super) fn mib_per_second(&self) -> f64 {
        mib(self.user_bytes) / self.took.as_secs_f64()
    }

    pub(super) fn us(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Bytes per byte that the user wrote.
    pub(super) fn part(&self, bytes: u64) -> f64 {
        bytes as f64 / self.user_bytes as f64
    }

    /// Bytes written to a category of files per byte that the user wrote.
    pub(super) fn written_part(&self, category: &str) -> f64 {
        self.part(self.written(&[category]))
    }

    /// Bytes written per byte that the user wrote, without the log.
    pub(super) fn amplification(&self) -> f64 {
        self.part(self.written(UNLOGGED))
    }

    /// Bytes written per byte that the user wrote, with the log.
    pub(super) fn logged_amplification(&self) -> f64 {
        self.part(self.written(ALL))
    }

    pub(super) fn value_amplification(&self) -> f64 {
        self.written_part("value")
    }

    /// Records of values written per record that the user wrote.
    pub(super) fn value_records(&self) -> f64 {
        let user_bytes = self.user_bytes + self.operations * HEADER_BYTES;
        self.written(&["value"]) as f64 / user_bytes as f64
    }

    pub(super) fn bytes_text(&self) -> String {
        let [values, tables, log] =
            ["value", "table", "wal"].map(|category| self.written_part(category));
        let all = self.logged_amplification();
        format!("{all:.2} (values {values:.2}, tables {tables:.2}, log {log:.2})")
    }
}

/// The space that files take, or the most that they have taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileBytes {
    pub(super) values: u64,
    pub(super) tables: u64,
}

/// Looks at files when a flush, compaction or collection ends: at that moment its inputs and
/// outputs both exist.
#[derive(Debug)]
struct Peak {
    storage: Arc<MemoryStorage>,
    bytes: Mutex<FileBytes>,
}

impl Peak {
    fn now(&self) -> FileBytes {
        // A file that vanishes during the listing is no reason to end a measurement.
        let files = self.storage.list().unwrap_or_default();
        let sum = |ending: &str| -> u64 {
            let those = files.iter().filter(|file| file.name.ends_with(ending));
            those.map(|file| file.len_bytes).sum()
        };
        FileBytes { values: sum(".values"), tables: sum(".table") }
    }

    fn look(&self) {
        let now = self.now();
        let mut most = self.bytes.lock().expect("no holder panics");
        most.values = most.values.max(now.values);
        most.tables = most.tables.max(now.tables);
    }
}

impl EventListener for Peak {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::ValuesCollected { .. } | Event::Compacted { .. }) {
            self.look();
        }
    }
}

/// The clock that is used, which also decides who runs the jobs.
enum Clock {
    /// The processor's clock, with files in memory and jobs between operations.
    Processor(Arc<Peak>),
    /// The wall clock, with background threads.
    Wall(Instant),
    /// The simulated clock of a block SSD, with jobs between operations.
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
    seen: (CounterValues, Vec<IoCounters>, Duration),
    operations: u64,
    user_bytes: u64,
    lane: Option<Lane>,
}

/// With this many runs in level 0, writers wait for compactions, as in LevelDB.
const MOST_RUNS: usize = 12;

/// One thread that does all compactions, as in LevelDB. The client and this thread take turns on
/// the device: the next compaction begins when the client has had the device for as long as the
/// last compaction took, and the thread is done with the bytes of the last compaction.
#[derive(Debug, Default)]
struct Lane {
    /// How long the thread has had the device.
    took: Duration,
    /// When the thread will be done, by the time of the client alone.
    free_at: Duration,
    /// Table bytes that the thread processes in a microsecond, besides the time of the device.
    /// `None` if the thread's own work takes no time.
    bytes_per_us: Option<u64>,
    /// The thread's own time for the last compaction.
    worked: Duration,
    /// How long writers waited for the thread while the device did nothing for it.
    waited: Duration,
}

impl Lane {
    /// How much of the thread's own time the compactions between these counters took.
    fn work(&self, before: &CounterValues, after: &CounterValues) -> Duration {
        let bytes = |of: &CounterValues| of.compaction_bytes_read + of.compaction_bytes_written;
        let ns = |rate: u64| (bytes(after) - bytes(before)) * 1000 / rate;
        Duration::from_nanos(self.bytes_per_us.map_or(0, ns))
    }
}

impl Bench {
    /// Makes a store in memory, with jobs between the operations: bytes are functions of the
    /// options.
    pub(super) fn in_memory(design: &Design, workload: &Workload) -> Result<Bench> {
        let storage = Arc::new(MemoryStorage::new());
        let peak = Arc::new(Peak { storage: storage.clone(), bytes: Mutex::default() });
        let listener = Arc::clone(&peak) as Arc<dyn EventListener>;
        let options = stepped(design).listener(listener);
        let store = Store::open_on(storage, options)?;
        Ok(Bench::new(store, Clock::Processor(peak), workload))
    }

    /// Makes a store on a block SSD, with jobs between the operations. The SSD holds back the last
    /// 64 KiB of a file, which would be all of a small log segment.
    pub(super) fn on_device(
        design: &Design,
        workload: &Workload,
        device: &BlockStorage,
    ) -> Result<Bench> {
        let options = stepped(design).wal_segment_bytes(1 << 20);
        let store = Store::open_on(Arc::new(device.clone()), options)?;
        Ok(Bench::new(store, Clock::Device(device.clone()), workload))
    }

    /// Makes a store in a directory, with background threads.
    pub(super) fn on_files(design: &Design, workload: &Workload, path: &Path) -> Result<Bench> {
        let options = stepped(design)
            .background(Background::Threads(2))
            .compaction_slices(None)
            .wal_mode(WalMode::default());
        Ok(Bench::new(Store::open(path, options)?, Clock::Wall(Instant::now()), workload))
    }

    fn new(store: Store, clock: Clock, workload: &Workload) -> Bench {
        let (values, rng) = value_bytes_and_draws(workload);
        let mut bench = Bench {
            store,
            clock,
            rng,
            values,
            workload: workload.clone(),
            zipfian: workload.draws(),
            seen: Default::default(),
            operations: 0,
            user_bytes: 0,
            lane: None,
        };
        bench.seen = bench.look();
        bench
    }

    fn look(&self) -> (CounterValues, Vec<IoCounters>, Duration) {
        let metrics = self.store.metrics();
        (metrics.counters, metrics.io, self.now())
    }

    fn now(&self) -> Duration {
        self.clock.now() + self.lane.as_ref().map_or(Duration::ZERO, |lane| lane.waited)
    }

    fn put(&mut self, record: u64) -> Result<()> {
        let bytes = self.workload.value_bytes(record);
        self.store.put(key(record), self.values.next(bytes))?;
        self.operations += 1;
        self.user_bytes += (KEY_BYTES + bytes) as u64;
        if !self.clock.has_threads() && self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            self.do_jobs()?;
        }
        Ok(())
    }

    /// Does the jobs that are due, but only the compactions that the lane has time for.
    fn do_jobs(&mut self) -> Result<()> {
        let Some(lane) = &mut self.lane else { return do_jobs(&self.store) };
        loop {
            let shape = unstable::shape(self.store.default_keyspace());
            let (begun, is_stopped) = (self.clock.now(), shape.level(0).runs().len() >= MOST_RUNS);
            let of_client = begun + lane.waited - lane.took;
            if of_client < lane.free_at && !is_stopped {
                match unstable::run_flush_or_housekeeping(&self.store)? {
                    true => continue,
                    false => return Ok(()),
                }
            }
            let before = unstable::counters(&self.store);
            if !self.store.run_one_job()? {
                return Ok(());
            }
            let after = unstable::counters(&self.store);
            if after.compactions > before.compactions {
                let (took, worked) = (self.clock.now() - begun, lane.work(&before, &after));
                if is_stopped {
                    // The device has done its part of the compaction already; the thread has not.
                    lane.waited += lane.free_at.saturating_sub(of_client).min(lane.worked) + worked;
                }
                lane.took += took;
                lane.free_at = self.clock.now() + lane.waited - lane.took
                    + if is_stopped { Duration::ZERO } else { took + worked };
                lane.worked = worked;
            }
        }
    }

    /// Gives all compactions one lane.
    pub(super) fn in_one_lane(self) -> Bench {
        self.in_lane_of(None)
    }

    /// Gives all compactions one lane, whose thread processes this many table bytes in a
    /// microsecond.
    pub(super) fn in_lane_of(self, bytes_per_us: Option<u64>) -> Bench {
        Bench { lane: Some(Lane { bytes_per_us, ..Lane::default() }), ..self }
    }

    /// Runs P0, the load.
    pub(super) fn load(&mut self) -> Result<Phase> {
        for record in 0..self.workload.records {
            self.put(record)?;
        }
        self.phase()
    }

    /// Runs one of P1 to P3: as many updates as there are records.
    pub(super) fn update(&mut self) -> Result<Phase> {
        for _ in 0..self.workload.records {
            let record = self.zipfian.next(&mut self.rng);
            self.put(record)?;
        }
        self.phase()
    }

    /// Runs the load and this many phases of updates. Returns the cost of the last one.
    pub(super) fn through(&mut self, phases: usize) -> Result<Phase> {
        let mut last = self.load()?;
        for _ in 0..phases {
            last = self.update()?;
        }
        Ok(last)
    }

    /// Gets records, which are drawn as the updates are.
    pub(super) fn gets(&mut self, count: u64) -> Result<Phase> {
        for _ in 0..count {
            let record = self.zipfian.next(&mut self.rng);
            assert!(self.store.get(key(record))?.is_some(), "record {record} was written");
            self.operations += 1;
        }
        self.phase()
    }

    /// Scans `entries` entries at a time, from records that are drawn as the updates are.
    pub(super) fn scans(&mut self, count: u64, entries: u64) -> Result<Phase> {
        for _ in 0..count {
            let record = self.zipfian.next(&mut self.rng);
            self.user_bytes += scan_values(&self.store, &key(record), entries)?;
            self.operations += 1;
        }
        self.phase()
    }

    /// Ends a phase. Returns the work since the last phase ended, including work that threads still
    /// had to do.
    pub(super) fn phase(&mut self) -> Result<Phase> {
        if self.clock.has_threads() {
            self.store.wait_idle()?;
        }
        let (counters, io, now) = self.look();
        let seen = std::mem::replace(&mut self.seen, (counters.clone(), io.clone(), now));
        Ok(Phase {
            operations: std::mem::take(&mut self.operations),
            took: now - seen.2,
            counters: counters.since(&seen.0),
            user_bytes: std::mem::take(&mut self.user_bytes),
            io: [seen.1, io],
        })
    }

    /// The most space that files took, and the space that they take now. `None` unless they are in
    /// memory.
    pub(super) fn files(&self) -> [FileBytes; 2] {
        match &self.clock {
            Clock::Processor(peak) => [*peak.bytes.lock().expect("no holder panics"), peak.now()],
            _ => Default::default(),
        }
    }
}

/// The ratio of `one` to `other`; 1 if both are equal, as when a tiny scale writes
/// neither.
pub(super) fn times(one: f64, other: f64) -> f64 {
    if one == other { 1.0 } else { one / other }
}

/// Numbers under their names. This text is too long for a page, so only the results have it.
pub(super) fn named(names: &[&str], numbers: &[f64]) -> String {
    let parts = names.iter().zip(numbers).map(|(name, number)| format!("{name} {number:.2}"));
    format!("by size, share or design: {}", parts.collect::<Vec<_>>().join(", "))
}

/// The row for bytes with the log, which is listed next to the row without it.
pub(super) fn with_log(row: &Row) -> Row {
    let claim = format!("{}, with the log", row.claim).into();
    Row { claim, ..row.clone().uncounted() }
}

/// The generator of values, and the random numbers that draw the updates.
pub(super) fn value_bytes_and_draws(workload: &Workload) -> (ValueGenerator, Rng) {
    let mut rng = Rng::new(1);
    (ValueGenerator::new(&mut rng, 1.0, workload.most_value_bytes()), rng)
}

/// Options with which jobs run between the operations, one at a time.
fn stepped(design: &Design) -> Options {
    stepped_options(Some(design.keyspace.clone()), design.memory_bytes)
        .compaction_slices(1)
        .wal_segment_bytes(64 << 10)
        .max_wal_bytes(16 << 20)
        .io_uring(design.io_uring)
}

/// A number as a key: eight mixed bytes, then zeros.
fn key(record: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix64(record).to_be_bytes());
    key
}
