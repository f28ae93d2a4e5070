//! A store with its records on a machine of its own, driven operation by operation, and the costs
//! of its phases.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use runstone::metrics::CounterValues;
use runstone::unstable;
use runstone::{Options, Store};
use runstone_kv::Result;
use runstone_random::mix64;
use runstone_workloads::generators::{Latest, Rng, ScrambledZipfian, ValueGenerator};

use super::Rival;
use super::machine::Machine;
use super::reasons::Reasons;
use crate::Context;
use crate::engine::{do_jobs, scan_values, stepped_options, table_bytes_written};
use crate::sides::Side;

pub(super) const KEY_BYTES: usize = 16;
const KEY_DIGITS: u64 = 10_000_000_000_000_000;
/// Operations between two checks for jobs: there is a flush every 3 to 23 checks, depending on the
/// entries' size.
const OPERATIONS_PER_LOOK: u64 = 32;
/// Checks for jobs between two measurements of the store's size, several per compaction of level 0.
const LOOKS_PER_SIZE: u64 = 32;
/// Seed of the operations and the values.
const SEED: u64 = 7;
/// Entries of a scan.
pub(super) const SCAN_ENTRIES: u64 = 100;
/// Memory of a store itself, the least that it accepts. LevelDB, by default, keeps indexes and
/// filters of 990 tables and 8 MB of blocks, which is half of that at this scale.
pub(super) const MEMORY_BYTES: u64 = 1 << 20;

/// The results of a phase.
pub(super) struct Phase {
    pub(super) counters: CounterValues,
    /// Time of the machine per operation, with all files in the page cache.
    pub(super) us: f64,
    /// Time of the machine per operation, with all reads from the SSD.
    pub(super) ssd_us: f64,
    /// The processor's part of this time.
    pub(super) processor_us: f64,
}

impl Phase {
    pub(super) fn tables_per_get(&self) -> f64 {
        self.counters.tables_probed as f64 / self.counters.gets.max(1) as f64
    }

    /// The table reads that gets would leave out if they stopped at their first hit.
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

/// Bytes written to tables and value files over key and value bytes written, for several phases.
pub(super) fn write_amplification<'a>(phases: impl IntoIterator<Item = &'a Phase>) -> f64 {
    let sums = phases.into_iter().fold((0, 0), |(written, user), phase| {
        (written + phase.written_bytes(), user + phase.counters.user_bytes_written)
    });
    sums.0 as f64 / sums.1.max(1) as f64
}

/// The settings of each side of a comparison.
pub(super) fn sides_of(rivals: &[Rival]) -> Vec<Side> {
    sides_with(rivals, MEMORY_BYTES)
}

/// The settings of each side of a comparison, with this much memory.
pub(super) fn sides_with(rivals: &[Rival], memory_bytes: u64) -> Vec<Side> {
    let side = |rival: &Rival| {
        let (name, keyspace) = rival;
        let side = Side::store(name, &options(rival, memory_bytes));
        let shape = unstable::numbers(keyspace);
        match keyspace.policy.as_str() {
            "guards" => side.apart_by(&format!("K = {}", shape.max_runs)),
            "adaptive-tiering" => side.apart_by(&format!(
                "{} bytes an access, {} or more",
                shape.access_bytes, shape.access_limit
            )),
            _ => side.apart_by(keyspace.values.placement.name()),
        }
    };
    rivals.iter().map(side).collect()
}

fn options((_, keyspace): &Rival, memory_bytes: u64) -> Options {
    stepped_options(Some(keyspace.clone()), memory_bytes)
        .wal_segment_bytes(1 << 20)
        .max_wal_bytes(16 << 20)
}

/// See the module docs.
pub(super) struct Tree {
    pub(super) name: &'static str,
    pub(super) store: Store,
    pub(super) reasons: Arc<Reasons>,
    pub(super) rng: Rng,
    /// The keys are those of the numbers below this one.
    pub(super) records: u64,
    /// At some numbers of operations: bytes of tables and values, divided by the bytes of all
    /// records.
    pub(super) space: Vec<(f64, f64)>,
    /// The time of each operation in nanoseconds of the machine, if wanted.
    pub(super) latencies: Option<Vec<u64>>,
    machine: Machine,
    values: ValueGenerator,
    value_bytes: usize,
    /// Whether gets are made. If not, they only count as operations.
    makes_gets: bool,
    operations: u64,
    /// The store's counters when the last phase ended.
    before: CounterValues,
    /// The store's counters when the processor's time was last added.
    computed: CounterValues,
}

impl Tree {
    /// Opens an empty store for values of this size that do not compress.
    pub(super) fn open(rival: &Rival, value_bytes: usize) -> Result<Tree> {
        Tree::with_memory(rival, value_bytes, MEMORY_BYTES)
    }

    /// Does the same for a store with this much memory.
    pub(super) fn with_memory(
        rival: &Rival,
        value_bytes: usize,
        memory_bytes: u64,
    ) -> Result<Tree> {
        let reasons = Arc::new(Reasons::default());
        let machine = Machine::new();
        let options = options(rival, memory_bytes).listener(reasons.clone());
        let store = Store::open_on(machine.storage.clone(), options)?;
        let mut rng = Rng::new(SEED);
        let values = ValueGenerator::new(&mut rng, 1.0, value_bytes);
        let before = unstable::counters(&store);
        Ok(Tree {
            name: rival.0,
            store,
            reasons,
            rng,
            records: 0,
            space: Vec::new(),
            latencies: None,
            machine,
            values,
            value_bytes,
            makes_gets: true,
            operations: 0,
            computed: before.clone(),
            before,
        })
    }

    /// The same tree with values that compress to this share.
    pub(super) fn compressing(mut self, compressibility: f64) -> Tree {
        self.rng = Rng::new(SEED);
        self.values = ValueGenerator::new(&mut self.rng, compressibility, self.value_bytes);
        self
    }

    /// The same tree, but gets are left out. Checks for jobs are made at the same operations, so
    /// a store that counts no accesses writes the same bytes.
    pub(super) fn without_gets(self) -> Tree {
        Tree { makes_gets: false, ..self }
    }

    /// Runs this many operations as one phase. Returns their costs.
    pub(super) fn phase(
        &mut self,
        operations: u64,
        operate: impl FnOnce(&mut Tree, u64) -> Result<()>,
    ) -> Result<Phase> {
        self.machine.operated();
        self.compute();
        let from = self.machine.busy();
        operate(self, operations)?;
        self.machine.operated();
        let now = self.compute();
        let to = self.machine.busy();
        let per_operation = |ns: u64| ns as f64 / 1e3 / operations.max(1) as f64;
        let us = per_operation(to.cached_ns - from.cached_ns);
        let ssd_us = per_operation(to.ssd_ns - from.ssd_ns);
        let processor_us = per_operation(to.processor_ns - from.processor_ns);
        let before = std::mem::replace(&mut self.before, now.clone());
        Ok(Phase { counters: now.since(&before), us, ssd_us, processor_us })
    }

    /// Adds the processor's time for the work that the store has counted since the last call.
    /// Returns the counters.
    fn compute(&mut self) -> CounterValues {
        let now = unstable::counters(&self.store);
        let before = std::mem::replace(&mut self.computed, now.clone());
        self.machine.computed(&now.since(&before));
        now
    }

    /// Inserts new records.
    pub(super) fn insert(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.put(self.records)?;
            self.records += 1;
        }
        Ok(())
    }

    /// Runs operations on zipfian records, with these percentages of updates and
    /// read-modify-writes; the rest are reads.
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

    /// Reads the latest records; `inserts` percent of the operations are inserts.
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

    /// Scans, each beginning at a zipfian record; `inserts` percent of the operations are inserts.
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
                scan_values(&self.store, &key(record), SCAN_ENTRIES)?;
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

    /// Writes records drawn uniformly.
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
            scan_values(&self.store, &key(record), SCAN_ENTRIES)?;
            self.look()?;
        }
        Ok(())
    }

    fn get(&mut self, record: u64) -> Result<()> {
        if self.makes_gets {
            let value = self.store.get(key(record))?;
            assert!(value.is_some(), "record {record} was written");
        }
        self.look()
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.store.put(key(record), self.values.next(self.value_bytes))?;
        self.look()
    }

    /// Ends an operation: does the jobs that are due, once every few operations.
    fn look(&mut self) -> Result<()> {
        self.operations += 1;
        let from = self.machine.busy();
        let is_timed = self.latencies.is_some();
        let is_due = self.operations.is_multiple_of(OPERATIONS_PER_LOOK);
        if is_timed || is_due {
            self.machine.operated();
        }
        if is_due {
            do_jobs(&self.store)?;
            self.machine.worked();
        }
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK * LOOKS_PER_SIZE) {
            let records_bytes = self.records * (KEY_BYTES + self.value_bytes) as u64;
            let space = self.bytes() as f64 / records_bytes.max(1) as f64;
            self.space.push((self.operations as f64, space));
        }
        if is_timed {
            self.compute();
        }
        if let Some(latencies) = &mut self.latencies {
            latencies.push(self.machine.busy().cached_ns - from.cached_ns);
        }
        Ok(())
    }

    /// Bytes of tables and value files.
    pub(super) fn bytes(&self) -> u64 {
        let keyspace = self.store.default_keyspace();
        let values: u64 = keyspace.value_usage().iter().map(|usage| usage.disk_bytes).sum();
        unstable::shape(keyspace).bytes() + values
    }
}

/// Measures each store on a thread of its own, as many at once as there are processors: each
/// has a machine with its own time. The results are in the order of the stores.
pub(super) fn each<T: Send>(
    context: &Context<'_>,
    what: &str,
    rivals: &[Rival],
    measure: impl Fn(&Rival) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let measured: Vec<_> = rivals.iter().map(|_| Mutex::new(None)).collect();
    let (sender, begun) = mpsc::channel();
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..threads.min(rivals.len()) {
            let (next, measured, measure, sender) = (&next, &measured, &measure, sender.clone());
            scope.spawn(move || {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(rival) = rivals.get(at)
                {
                    // The receiver is gone only if the whole run has ended.
                    let _ = sender.send(rival.0);
                    *measured[at].lock().expect("its one holder") = Some(measure(rival));
                }
            });
        }
        drop(sender);
        begun.iter().for_each(|name| context.say(&format!("{what}: {name}")));
    });
    let done = measured.into_iter().map(|one| one.into_inner().expect("no holder panics"));
    done.map(|one| one.expect("each was measured")).collect()
}

/// Sixteen digits of a mixed number, so keys are in random order. The digits are written by hand,
/// because `format!` takes as long as a get that finds its table's filter in memory.
fn key(record: u64) -> [u8; KEY_BYTES] {
    let mut rest = mix64(record) % KEY_DIGITS;
    let mut digits = [b'0'; KEY_BYTES];
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}
