//! One benchmark at work: threads, clocks, counters. Its operations are in [`crate::workloads`],
//! and the code that runs it is in [`crate::runner`].

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use runstone_kv::KvStore;
use runstone_kv::Result;

use crate::generators::{Rng, ValueGenerator};
use crate::latency::Latency;
use crate::spec::BenchSpec;

/// Workers report progress once in this many operations.
const PROGRESS_LUMP: u64 = 1024;
/// Workers look at the clock for the end of the run once in this many calls.
const CLOCK_LUMP: u64 = 64;

/// Receives the progress of a benchmark. Called from all threads.
pub trait Progress: Sync {
    /// Reports that a benchmark begins; `total` is 0 if time ends it.
    fn start(&self, name: &str, total: u64);
    /// Reports that `operations` more are done.
    fn advance(&self, operations: u64);
    /// Reports that the benchmark is over.
    fn finish(&self);
}

/// Ignores progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _name: &str, _total: u64) {}
    fn advance(&self, _operations: u64) {}
    fn finish(&self) {}
}

/// A running benchmark, as a workload sees it.
pub struct Bench<'a> {
    /// The store under test.
    pub store: &'a dyn KvStore,
    /// The numbers of the run.
    pub spec: &'a BenchSpec,
    /// Name of the benchmark; part of its seed.
    pub name: &'static str,
    /// Receives its progress.
    pub progress: &'a dyn Progress,
}

/// The condition that ends a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The number of operations: each has its own key.
    Count,
    /// The number of operations, or the duration if one was given.
    CountOrDuration,
}

/// The results of a benchmark.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Keys looked up.
    pub lookups: u64,
    /// Keys found.
    pub found: u64,
    /// Key and value bytes written or read.
    pub user_bytes: u64,
    /// The latency of each timed call.
    pub latency: Latency,
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// The elapsed time summed over the threads.
    pub busy: Duration,
    /// A remark besides the numbers.
    pub note: String,
    /// A longer text that is the result, as for `stats`.
    pub text: Option<String>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.lookups += other.lookups;
        self.found += other.found;
        self.user_bytes += other.user_bytes;
        self.busy += other.busy;
        self.latency.add(&other.latency);
    }
}

impl Bench<'_> {
    /// Divides `total` operations among threads that each run `body`, and adds up their results.
    pub fn threads(
        &self,
        total: u64,
        end: End,
        body: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
    ) -> Result<Tally> {
        let failed = AtomicBool::new(false);
        let duration = self.spec.duration.filter(|_| end == End::CountOrDuration);
        let mut workers: Vec<Worker<'_>> =
            (0..u64::from(self.spec.threads)).map(|i| self.worker(i, total, &failed)).collect();
        self.progress.start(self.name, if duration.is_some() { 0 } else { total });
        let start = Instant::now();
        workers
            .iter_mut()
            .for_each(|worker| worker.meter.until = duration.map(|after| start + after));
        let body = &body;
        let results: Vec<Result<Tally>> = std::thread::scope(|scope| {
            let spawn = |worker| scope.spawn(move || run_worker(worker, start, body));
            let handles: Vec<_> = workers.into_iter().map(spawn).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| handle.join();
            handles.into_iter().map(|handle| join(handle).expect("a worker panicked")).collect()
        });
        let mut all = Tally { elapsed: start.elapsed(), ..Tally::default() };
        for result in results {
            all.add(&result?);
        }
        Ok(all)
    }

    /// Puts the worker's next value at a key.
    pub fn put(&self, worker: &mut Worker<'_>, key: &[u8]) -> Result<()> {
        let value = worker.values.next(self.spec.value_bytes);
        let durability = self.spec.durability();
        worker.meter.time(1, || self.store.put(key, value, durability))?;
        worker.meter.tally.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Runs one operation that has no parts.
    pub fn once(&self, action: impl FnOnce() -> Result<()>) -> Result<Tally> {
        self.progress.start(self.name, 1);
        let start = Instant::now();
        action()?;
        let elapsed = start.elapsed();
        let mut tally = Tally { operations: 1, elapsed, busy: elapsed, ..Tally::default() };
        tally.latency.record(elapsed);
        Ok(tally)
    }

    /// Reports progress of an operation that one thread does.
    pub fn advance(&self, operations: u64) {
        self.progress.advance(operations);
    }

    fn worker<'a>(&'a self, index: u64, total: u64, failed: &'a AtomicBool) -> Worker<'a> {
        let parts = u64::from(self.spec.threads);
        let cut = |part: u64| (u128::from(total) * u128::from(part) / u128::from(parts)) as u64;
        let mut rng = Rng::stream(self.spec.seed, self.name, index);
        let values = ValueGenerator::new(&mut rng, 0.5, self.spec.value_bytes);
        let meter = Meter {
            tally: Tally::default(),
            rest: cut(index)..cut(index + 1),
            until: None,
            latency_every: self.spec.latency_every,
            calls: 0,
            untold: 0,
            progress: self.progress,
            failed,
        };
        Worker { index, rng, values, meter }
    }
}

fn run_worker(
    mut worker: Worker<'_>,
    start: Instant,
    body: impl Fn(&mut Worker<'_>) -> Result<()>,
) -> Result<Tally> {
    let result = body(&mut worker);
    let mut meter = worker.meter;
    meter.tally.busy = start.elapsed();
    meter.progress.advance(meter.untold);
    if result.is_err() {
        // The other threads stop soon, because a run without a report need not be finished.
        meter.failed.store(true, Ordering::Relaxed);
    }
    result.map(|()| meter.tally)
}

/// One thread of a benchmark.
pub struct Worker<'a> {
    /// Which thread, from 0.
    pub index: u64,
    /// Random numbers of this thread.
    pub rng: Rng,
    /// Values of this thread.
    pub values: ValueGenerator,
    /// Assigns operations to this thread and counts them.
    pub meter: Meter<'a>,
}

/// Assigns the operations of one thread, and counts and times them.
pub struct Meter<'a> {
    /// The results of this thread so far.
    pub tally: Tally,
    /// Times one call in this many.
    pub latency_every: u64,
    rest: Range<u64>,
    until: Option<Instant>,
    calls: u64,
    untold: u64,
    progress: &'a dyn Progress,
    failed: &'a AtomicBool,
}

impl Meter<'_> {
    /// The numbers of the next operations, at most `most`; `None` when the run is over.
    pub fn take(&mut self, most: u64) -> Option<Range<u64>> {
        if self.calls.is_multiple_of(CLOCK_LUMP) && self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let Some(until) = self.until else {
            let turn = self.rest.start..self.rest.end.min(self.rest.start + most);
            self.rest.start = turn.end;
            return (!turn.is_empty()).then_some(turn);
        };
        if self.calls.is_multiple_of(CLOCK_LUMP) && Instant::now() >= until {
            return None;
        }
        self.rest.start += most;
        Some(self.rest.start - most..self.rest.start)
    }

    /// Operations of this thread's share that have not been taken yet.
    pub fn remaining(&self) -> u64 {
        self.rest.end.saturating_sub(self.rest.start)
    }

    /// Runs one call that does `operations` operations of the benchmark, and times it if it is its
    /// turn.
    pub fn time<T>(&mut self, operations: u64, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = match self.calls.is_multiple_of(self.latency_every) {
            true => {
                let start = Instant::now();
                let result = action();
                self.tally.latency.record(start.elapsed());
                result
            }
            false => action(),
        }?;
        self.calls += 1;
        self.count(operations);
        Ok(result)
    }

    /// Counts operations that were timed elsewhere.
    pub fn count(&mut self, operations: u64) {
        self.tally.operations += operations;
        self.untold += operations;
        if self.untold >= PROGRESS_LUMP {
            self.progress.advance(self.untold);
            self.untold = 0;
        }
    }

    /// Counts a lookup and the bytes that it yielded.
    pub fn looked_up(&mut self, value_bytes: Option<usize>, key_bytes: usize) {
        self.tally.lookups += 1;
        if let Some(value_bytes) = value_bytes {
            self.tally.found += 1;
            self.tally.user_bytes += (key_bytes + value_bytes) as u64;
        }
    }
}
