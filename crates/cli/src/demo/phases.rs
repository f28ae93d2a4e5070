//! The phases of a demonstration, one function each. Every call is timed; files are read outside of
//! the timing.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use runstone::metrics::{Histogram, Percentiles};
use runstone::{Durability, Value};
use runstone_kv::KvStore;
use runstone_random::Random;

use super::input::{Input, State};
use crate::encoding::shown;
use crate::failure::Result;
use crate::output::Output;
use crate::range::Range;

/// Enough reads for the 99.9th percentile to mean something.
const READS: std::ops::RangeInclusive<u64> = 20_000..=200_000;
const PREFIX_SCANS: usize = 2_000;
/// Name of the phase that sees every live entry.
const FULL_SCAN: &str = "scan, forward";
/// At most this many differences are named one by one.
const MOST_TOLD: usize = 20;

/// The result of a phase.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: &'static str,
    pub operations: u64,
    /// Key and value bytes written or returned.
    pub bytes: u64,
    /// The time from start to end.
    pub took: Duration,
    /// Time inside the store.
    pub in_store: Duration,
    /// The latencies of single operations; empty for phases that are timed as a whole.
    pub latency: Percentiles,
}

/// Differences from the files.
#[derive(Clone, Debug, Default)]
pub struct Check {
    pub values_equal: u64,
    pub absences_right: u64,
    /// Files that changed while the demonstration ran.
    pub changed_meanwhile: u64,
    pub differences: u64,
    pub told: Vec<String>,
}

impl Check {
    fn differs(&mut self, key: &[u8], what: &str) {
        self.differences += 1;
        if self.told.len() < MOST_TOLD {
            self.told.push(format!("{}: {what}", shown(key)));
        }
    }
}

/// One phase being run.
struct Meter {
    phase: Phase,
    latency: Histogram,
    started: Instant,
    bar: ProgressBar,
}

impl Meter {
    fn start(output: &Output, name: &'static str, total: u64) -> Meter {
        let phase = Phase {
            name,
            operations: 0,
            bytes: 0,
            took: Duration::ZERO,
            in_store: Duration::ZERO,
            latency: Percentiles::default(),
        };
        let bar = output.count_bar(name, Some(total));
        Meter { phase, latency: Histogram::default(), started: Instant::now(), bar }
    }

    fn time<T>(&mut self, action: impl FnOnce() -> runstone_kv::Result<T>) -> Result<T> {
        let start = Instant::now();
        let value = action()?;
        let took = start.elapsed();
        self.latency.record(took);
        self.phase.in_store += took;
        self.phase.operations += 1;
        self.bar.inc(1);
        Ok(value)
    }

    fn finish(mut self) -> Phase {
        self.phase.took = self.started.elapsed();
        self.phase.latency = self.latency.percentiles();
        self.bar.finish_and_clear();
        self.phase
    }
}

/// Runs the phases on one store.
pub struct Run<'a> {
    pub input: Input,
    pub output: &'a Output,
    pub random: Random,
    /// Reads and prefix scans stop after this long in each phase.
    pub most_per_phase: Duration,
    pub check: Check,
    pub phases: Vec<Phase>,
}

impl Run<'_> {
    /// Key and value bytes that a reader sees, as the full scan counts them.
    pub fn live_bytes(&self) -> u64 {
        let scan = self.phases.iter().find(|phase| phase.name == FULL_SCAN);
        scan.map_or(0, |phase| phase.bytes)
    }

    /// Runs all phases but the last, which needs the store to be opened again.
    pub fn all_phases(&mut self, store: &dyn KvStore) -> Result<()> {
        self.load(store)?;
        self.change(store)?;
        self.settle(store)?;
        self.read(store)?;
        self.scan(store)
    }

    /// Stores every file, in random order: sorted input would need no compaction.
    fn load(&mut self, store: &dyn KvStore) -> Result<()> {
        let mut order: Vec<usize> = (0..self.input.tree.files.len()).collect();
        self.random.shuffle(&mut order);
        let mut meter = Meter::start(self.output, "load", order.len() as u64);
        for index in order {
            let Some(content) = self.input.first_version(index) else { continue };
            let key = self.input.key(index);
            meter.time(|| store.put(key, &content, Durability::Buffered))?;
            meter.phase.bytes += (key.len() + content.len()) as u64;
        }
        self.phases.push(meter.finish());
        Ok(())
    }

    /// Writes a second version of a tenth of the files, and deletes a twentieth.
    fn change(&mut self, store: &dyn KvStore) -> Result<()> {
        let (updated, deleted) = self.input.draw(&mut self.random);
        let mut meter = Meter::start(self.output, "update", updated.len() as u64);
        for index in updated {
            self.input.states[index] = State::Updated;
            let Ok(content) = self.input.content(index) else {
                // The file has changed since it was stored: the store keeps its version.
                self.input.states[index] = State::Kept;
                continue;
            };
            let key = self.input.key(index);
            meter.time(|| store.put(key, &content, Durability::Buffered))?;
            meter.phase.bytes += (key.len() + content.len()) as u64;
        }
        self.phases.push(meter.finish());
        let mut meter = Meter::start(self.output, "delete", deleted.len() as u64);
        for index in deleted {
            meter.time(|| store.delete(self.input.key(index), Durability::Buffered))?;
            meter.phase.bytes += self.input.key(index).len() as u64;
            self.input.states[index] = State::Deleted;
        }
        self.phases.push(meter.finish());
        Ok(())
    }

    /// Waits for flushes and compactions, so that the figures include all costs.
    fn settle(&mut self, store: &dyn KvStore) -> Result<()> {
        let mut meter = Meter::start(self.output, "flush and compact", 1);
        meter.time(|| store.flush().and_then(|()| store.wait_idle()))?;
        self.phases.push(meter.finish());
        Ok(())
    }

    /// Reads keys that exist, and keys that do not.
    fn read(&mut self, store: &dyn KvStore) -> Result<()> {
        let live = self.input.with_state(&[State::Kept, State::Updated]);
        let gone = self.input.with_state(&[State::Deleted]);
        let reads = (2 * live.len() as u64).clamp(*READS.start(), *READS.end());
        let mut meter = Meter::start(self.output, "get, hit", reads);
        while !live.is_empty() && meter.phase.operations < reads && self.has_time(&meter) {
            let index = live[self.random.below(live.len() as u64) as usize];
            let key = self.input.key(index);
            match meter.time(|| store.get(key).inspect(touch_found))? {
                Some(value) => meter.phase.bytes += (key.len() + value.len()) as u64,
                None => self.check.differs(key, "a random read did not find it"),
            }
        }
        self.phases.push(meter.finish());
        let mut meter = Meter::start(self.output, "get, miss", reads);
        let all = self.input.tree.files.len() as u64;
        while meter.phase.operations < reads && self.has_time(&meter) {
            // One in four is a deleted key; the others directly follow existing keys.
            let key = match self.random.below(4) {
                0 if !gone.is_empty() => {
                    self.input.key(gone[self.random.below(gone.len() as u64) as usize]).to_vec()
                }
                _ => [self.input.key(self.random.below(all) as usize), b"/absent"].concat(),
            };
            if meter.time(|| store.get(&key))?.is_some() {
                self.check.differs(&key, "a random read found it, but it is absent");
            }
        }
        self.phases.push(meter.finish());
        Ok(())
    }

    fn has_time(&self, meter: &Meter) -> bool {
        !meter.phase.operations.is_multiple_of(64) || meter.started.elapsed() < self.most_per_phase
    }

    /// Scans directories, then everything in both directions, comparing the keys.
    fn scan(&mut self, store: &dyn KvStore) -> Result<()> {
        let live = self.input.with_state(&[State::Kept, State::Updated]);
        let mut prefixes = self.input.prefixes();
        let wanted = prefixes.len().min(PREFIX_SCANS);
        let mut meter = Meter::start(self.output, "scan, prefix", wanted as u64);
        while meter.phase.operations < wanted as u64 && self.has_time(&meter) {
            let prefix = prefixes.swap_remove(self.random.below(prefixes.len() as u64) as usize);
            let mut bytes = 0;
            let range = Range::of_prefix(&prefix);
            let count = meter.time(|| {
                range.walk_store(store, |key, value| {
                    touch(value);
                    bytes += (key.len() + value.len()) as u64;
                })
            })?;
            meter.phase.bytes += bytes;
            let from = live.partition_point(|index| self.input.key(*index) < &prefix[..]);
            let under = live[from..].iter();
            let right =
                under.take_while(|index| self.input.key(**index).starts_with(&prefix)).count();
            if count != right as u64 {
                let what = format!("a scan of the prefix gave {count} entries, not {right}");
                self.check.differs(&prefix, &what);
            }
        }
        self.phases.push(meter.finish());
        self.scan_all(store, FULL_SCAN, &live, false)?;
        self.scan_all(store, "scan, back", &live, true)
    }

    fn scan_all(
        &mut self,
        store: &dyn KvStore,
        name: &'static str,
        live: &[usize],
        reverse: bool,
    ) -> Result<()> {
        let mut meter = Meter::start(self.output, name, live.len() as u64);
        let start = Instant::now();
        let (mut position, mut wrong) = (0, 0_u64);
        let range = Range { reverse, ..Range::default() };
        let count = range.walk_store(store, |key, value| {
            touch(value);
            meter.phase.bytes += (key.len() + value.len()) as u64;
            let at = if reverse { live.len().wrapping_sub(1 + position) } else { position };
            let right = live.get(at).is_some_and(|index| self.input.key(*index) == key);
            wrong += u64::from(!right);
            position += 1;
        })?;
        meter.phase.in_store = start.elapsed();
        meter.phase.operations = count;
        if wrong > 0 || count != live.len() as u64 {
            let what = format!("{count} entries for {} files, {wrong} out of place", live.len());
            self.check.differs(name.as_bytes(), &what);
        }
        self.phases.push(meter.finish());
        Ok(())
    }

    /// Compares every value with its file.
    pub fn verify(&mut self, store: &dyn KvStore) -> Result<()> {
        let count = self.input.tree.files.len();
        let mut meter = Meter::start(self.output, "verify", count as u64);
        for index in 0..count {
            let key = self.input.key(index);
            let state = self.input.states[index];
            let value = meter.time(|| store.get(key))?;
            meter.phase.bytes += value.as_ref().map_or(0, |value| key.len() + value.len()) as u64;
            match (state, value) {
                (State::Deleted | State::Absent, None) => self.check.absences_right += 1,
                (State::Deleted | State::Absent, Some(_)) => {
                    self.check.differs(key, "it was deleted, but is there");
                }
                (_, None) => self.check.differs(key, "it is missing"),
                (_, Some(value)) => match self.input.content(index) {
                    Ok(content) if content == *value => self.check.values_equal += 1,
                    Ok(content) => {
                        let what = format!("{} bytes differ from {}", value.len(), content.len());
                        self.check.differs(key, &what);
                    }
                    Err(()) => self.check.changed_meanwhile += 1,
                },
            }
        }
        self.phases.push(meter.finish());
        Ok(())
    }
}

/// Reads the bytes of a value, which may still be in a pinned block, so that a rate counts only
/// bytes that were really read.
fn touch(value: &[u8]) {
    let sum = value.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

fn touch_found(value: &Option<Value>) {
    value.iter().for_each(|value| touch(value));
}
