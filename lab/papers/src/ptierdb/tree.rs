//! A store with its records, driven operation by operation, and what its phases cost.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::storage::MemoryStorage;
use runstone::storage::random::mix64;
use runstone::{Options, Result, Store};
use runstone_workloads::generators::{Latest, Rng, ScrambledZipfian, ValueGenerator};
use runstone_workloads::median;

use super::Rival;
use super::reasons::Reasons;
use crate::engine::{cpu_time, do_jobs, scan_values, stepped_options, table_bytes_written};

pub(super) const KEY_BYTES: usize = 16;
const KEY_DIGITS: u64 = 10_000_000_000_000_000;
/// Operations between two looks for jobs: a flush is hundreds of times that.
const OPERATIONS_PER_LOOK: u64 = 32;
/// Looks for jobs between two looks at the size of the store, several per compaction of level 0.
const LOOKS_PER_SIZE: u64 = 32;
/// Stores take so many turns within a phase.
const TURNS: u64 = 40;
/// Entries of a scan.
pub(super) const SCAN_ENTRIES: u64 = 100;

/// What a phase did.
pub(super) struct Phase {
    pub(super) counters: CounterValues,
    /// Per operation, of processor time.
    pub(super) us: f64,
    /// Per operation, of time on the clock.
    pub(super) wall_us: f64,
}

impl Phase {
    pub(super) fn tables_per_get(&self) -> f64 {
        self.counters.tables_probed as f64 / self.counters.gets.max(1) as f64
    }

    /// Those of them that a get would leave out if it stopped at its first hit.
    pub(super) fn tables_after_hit(&self) -> f64 {
        self.counters.tables_probed_after_hit as f64 / self.counters.gets.max(1) as f64
    }

    pub(super) fn blocks_per_get(&self) -> f64 {
        self.counters.blocks_searched as f64 / self.counters.gets.max(1) as f64
    }

    pub(super) fn written_bytes(&self) -> u64 {
        table_bytes_written(&self.counters) + self.counters.value_bytes_written
    }
}

/// Bytes written to tables and value files over key and value bytes written, of several phases.
pub(super) fn write_amplification<'a>(phases: impl IntoIterator<Item = &'a Phase>) -> f64 {
    let sums = phases.into_iter().fold((0, 0), |(written, user), phase| {
        (written + phase.written_bytes(), user + phase.counters.user_bytes_written)
    });
    sums.0 as f64 / sums.1.max(1) as f64
}

/// See the module docs.
pub(super) struct Tree {
    pub(super) name: &'static str,
    pub(super) store: Store,
    pub(super) reasons: Arc<Reasons>,
    pub(super) rng: Rng,
    /// Keys are those of the numbers below this.
    pub(super) records: u64,
    /// At some numbers of operations: bytes of tables and values over those of all records.
    pub(super) space: Vec<(f64, f64)>,
    /// Of each operation in nanoseconds of processor time, if that is wanted.
    pub(super) latencies: Option<Vec<u64>>,
    values: ValueGenerator,
    value_bytes: usize,
    operations: u64,
    operation_started: Duration,
    before: CounterValues,
}

impl Tree {
    /// In memory, or in a directory.
    pub(super) fn open(
        (name, keyspace): &Rival,
        value_bytes: usize,
        directory: Option<PathBuf>,
    ) -> Result<Tree> {
        let reasons = Arc::new(Reasons::default());
        let options = Options {
            listener: Some(reasons.clone()),
            wal_segment_bytes: 1 << 20,
            max_wal_bytes: 16 << 20,
            // All stores of a part are open at once.
            max_open_files: Some(1 << 10),
            ..stepped_options(Some(keyspace.clone()), 64 << 20)
        };
        let store = match directory {
            Some(path) => Store::open(path, options)?,
            None => Store::open_on(Arc::new(MemoryStorage::new()), options)?,
        };
        let mut rng = Rng::new(7);
        let values = ValueGenerator::new(&mut rng, 1.0, value_bytes);
        let before = store.metrics().counters;
        Ok(Tree {
            name,
            store,
            reasons,
            rng,
            records: 0,
            space: Vec::new(),
            latencies: None,
            values,
            value_bytes,
            operations: 0,
            operation_started: Duration::ZERO,
            before,
        })
    }

    /// New records.
    pub(super) fn insert(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.put(self.records)?;
            self.records += 1;
        }
        Ok(())
    }

    /// Zipfian over the records: percentages of updates and read-modify-writes, else reads.
    pub(super) fn mix(
        &mut self,
        chooser: &ScrambledZipfian,
        operations: u64,
        (updates, modifies): (u64, u64),
    ) -> Result<()> {
        for _ in 0..operations {
            let record = chooser.next(&mut self.rng);
            let dice = self.rng.below(100);
            if dice >= updates {
                self.get(record)?;
            }
            if dice < updates + modifies {
                self.put(record)?;
            }
        }
        Ok(())
    }

    /// The latest records are read; as many percent are inserts.
    pub(super) fn latest(&mut self, chooser: &mut Latest, count: u64, inserts: u64) -> Result<()> {
        for _ in 0..count {
            if self.rng.below(100) < inserts {
                self.insert(1)?;
            } else {
                let record = chooser.next(&mut self.rng, self.records);
                self.get(record)?;
            }
        }
        Ok(())
    }

    /// Scans from zipfian records on; as many percent are inserts.
    pub(super) fn scan_mix(
        &mut self,
        chooser: &ScrambledZipfian,
        operations: u64,
        inserts: u64,
    ) -> Result<()> {
        for _ in 0..operations {
            if self.rng.below(100) < inserts {
                self.insert(1)?;
            } else {
                let record = chooser.next(&mut self.rng);
                scan_values(&self.store, key(record).as_bytes(), SCAN_ENTRIES)?;
                self.look()?;
            }
        }
        Ok(())
    }

    pub(super) fn uniform_gets(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let record = self.rng.below(self.records);
            self.store.get(key(record))?;
            self.look()?;
        }
        Ok(())
    }

    /// Writes of any records.
    pub(super) fn uniform_puts(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let record = self.rng.below(self.records);
            self.put(record)?;
        }
        Ok(())
    }

    pub(super) fn uniform_scans(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let record = self.rng.below(self.records);
            scan_values(&self.store, key(record).as_bytes(), SCAN_ENTRIES)?;
        }
        Ok(())
    }

    fn get(&mut self, record: u64) -> Result<()> {
        let value = self.store.get(key(record))?;
        assert!(value.is_some(), "record {record} was written");
        self.look()
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.store.put(key(record), self.values.next(self.value_bytes))?;
        self.look()
    }

    /// Ends an operation: does the jobs that are due, once in some operations.
    fn look(&mut self) -> Result<()> {
        self.operations += 1;
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            do_jobs(&self.store)?;
        }
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK * LOOKS_PER_SIZE) {
            let records_bytes = self.records * (KEY_BYTES + self.value_bytes) as u64;
            let space = self.bytes() as f64 / records_bytes.max(1) as f64;
            self.space.push((self.operations as f64, space));
        }
        if let Some(latencies) = &mut self.latencies {
            let now = cpu_time();
            latencies.push((now - self.operation_started).as_nanos() as u64);
            self.operation_started = now;
        }
        Ok(())
    }

    /// Bytes of tables and value files.
    pub(super) fn bytes(&self) -> u64 {
        let keyspace = self.store.default_keyspace();
        let values: u64 = keyspace.value_usage().iter().map(|usage| usage.disk_bytes).sum();
        keyspace.shape().bytes() + values
    }

    /// What was counted since the last call.
    pub(super) fn counted(&mut self) -> CounterValues {
        let now = self.store.metrics().counters;
        let counters = now.since(&self.before);
        self.before = now;
        counters
    }
}

/// Does a number of operations to one tree.
pub(super) type Step = Box<dyn FnMut(&mut Tree, u64) -> Result<()>>;

/// A phase of `operations` operations on each tree. The trees take turns.
///
/// The whole phase counts, no median of its turns: the compaction of a whole level falls into one
/// turn and belongs to the average, as in the paper.
pub(super) fn in_turns(
    trees: &mut [Tree],
    operations: u64,
    step_for: impl Fn(&Tree) -> Step,
) -> Result<Vec<Phase>> {
    let mut steps: Vec<Step> = trees.iter().map(step_for).collect();
    let mut took = vec![(Duration::ZERO, Duration::ZERO); trees.len()];
    for turn in 0..TURNS {
        let count = operations * (turn + 1) / TURNS - operations * turn / TURNS;
        for ((tree, step), took) in trees.iter_mut().zip(&mut steps).zip(&mut took) {
            let (cpu_started, started) = (cpu_time(), Instant::now());
            tree.operation_started = cpu_started;
            step(tree, count)?;
            took.0 += cpu_time() - cpu_started;
            took.1 += started.elapsed();
        }
    }
    let us = |took: Duration| took.as_secs_f64() * 1e6 / operations.max(1) as f64;
    let phase = |(tree, (cpu, wall)): (&mut Tree, _)| Phase {
        counters: tree.counted(),
        us: us(cpu),
        wall_us: us(wall),
    };
    Ok(trees.iter_mut().zip(took).map(phase).collect())
}

/// Rounds of [`in_rounds`].
const ROUNDS: usize = 5;

/// Microseconds of processor time per operation of each tree, in five rounds of the same work in
/// which the trees take turns: per tree, in the order of the rounds.
pub(super) fn in_rounds(
    trees: &mut [Tree],
    operations: u64,
    step: impl Fn(&mut Tree, u64) -> Result<()>,
) -> Result<Vec<[f64; ROUNDS]>> {
    let mut took = vec![[0.0; ROUNDS]; trees.len()];
    for round in 0..ROUNDS {
        for (tree, took) in trees.iter_mut().zip(&mut took) {
            let started = cpu_time();
            step(tree, operations)?;
            let spent = cpu_time() - started;
            took[round] = spent.as_secs_f64() * 1e6 / operations.max(1) as f64;
        }
    }
    Ok(took)
}

/// The medians of two trees' rounds and the median ratio, as text; and that ratio.
pub(super) fn median_ratio(a: &[f64; ROUNDS], b: &[f64; ROUNDS]) -> (String, f64) {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    let ratio = median(ratios);
    (format!("{:.2} / {:.2} us = {ratio:.2}", median(a.to_vec()), median(b.to_vec())), ratio)
}

/// Sixteen digits of a mixed number: keys come in random order.
fn key(record: u64) -> String {
    format!("{:016}", mix64(record) % KEY_DIGITS)
}
