//! The core workloads of YCSB. A record is one value of value_bytes (YCSB: ten fields of 100
//! bytes); an update replaces it whole; a read-modify-write is a get and a put, timed as one
//! operation.
//!
//! Popularity: A, B, C, E and F draw scrambled zipfian from the records that exist and those that
//! inserts will add; a record that does not exist is drawn again, at most [`MOST_DRAWS`] times. D
//! draws the latest. Inserts begin at the record count.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use runstone_kv::Result;

use super::seek::read_on;
use crate::bench::{Bench, End, Tally, Worker};
use crate::generators::keys::ycsb_key;
use crate::generators::{Latest, Rng, ScrambledZipfian};

/// The most records that are drawn until one exists. If a duration ends the run, hardly any may
/// exist, because the draws cover all records that the operations could insert. After this many, a
/// draw is taken modulo the number of existing records.
const MOST_DRAWS: usize = 1024;

/// The benchmark `ycsb-load`.
pub fn load(bench: &Bench<'_>) -> Result<Tally> {
    bench.threads(bench.spec.ycsb_records(), End::Count, |worker| {
        let mut key = Vec::new();
        while let Some(turn) = worker.meter.take(1) {
            ycsb_key(turn.start, &mut key);
            bench.put(worker, &key)?;
        }
        Ok(())
    })
}

/// Percentages that add up to 100.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    reads: u64,
    updates: u64,
    inserts: u64,
    scans: u64,
    modifies: u64,
    latest: bool,
}

const NONE: Mix = Mix { reads: 0, updates: 0, inserts: 0, scans: 0, modifies: 0, latest: false };
/// Updates as often as reads.
pub const A: Mix = Mix { reads: 50, updates: 50, ..NONE };
/// Few updates.
pub const B: Mix = Mix { reads: 95, updates: 5, ..NONE };
/// Reads only.
pub const C: Mix = Mix { reads: 100, ..NONE };
/// Reads of the latest, few inserts.
pub const D: Mix = Mix { reads: 95, inserts: 5, latest: true, ..NONE };
/// Short scans, few inserts.
pub const E: Mix = Mix { scans: 95, inserts: 5, ..NONE };
/// Read-modify-writes as often as reads.
pub const F: Mix = Mix { reads: 50, modifies: 50, ..NONE };

/// Runs one of the mixes.
pub fn run(bench: &Bench<'_>, mix: &Mix) -> Result<Tally> {
    debug_assert_eq!(mix.reads + mix.updates + mix.inserts + mix.scans + mix.modifies, 100);
    let (records, operations) = (bench.spec.ycsb_records(), bench.spec.ycsb_operations());
    let inserted = Inserted::new(records);
    let chooser = match mix.latest {
        true => Chooser::Latest(Latest::new(records)),
        false => {
            // YCSB reckons with twice the likely number of inserts.
            let inserts = u128::from(operations) * u128::from(mix.inserts) * 2 / 100;
            let items = u64::try_from(u128::from(records) + inserts).unwrap_or(u64::MAX);
            Chooser::Zipfian(ScrambledZipfian::new(items))
        }
    };
    bench.threads(operations, End::CountOrDuration, |worker| {
        let (mut chooser, mut key) = (chooser.clone(), Vec::new());
        while worker.meter.take(1).is_some() {
            step(bench, worker, mix, &mut chooser, &inserted, &mut key)?;
        }
        Ok(())
    })
}

fn step(
    bench: &Bench<'_>,
    worker: &mut Worker<'_>,
    mix: &Mix,
    chooser: &mut Chooser,
    inserted: &Inserted,
    key: &mut Vec<u8>,
) -> Result<()> {
    let mut dice = worker.rng.below(100);
    let mut falls = |percent: u64| {
        let hit = dice < percent;
        dice = dice.wrapping_sub(percent);
        hit
    };
    if falls(mix.inserts) {
        let number = inserted.begin();
        ycsb_key(number, key);
        bench.put(worker, key)?;
        inserted.end(number);
        return Ok(());
    }
    ycsb_key(chooser.next(&mut worker.rng, inserted.count()), key);
    if falls(mix.reads) {
        let value = worker.meter.time(1, || bench.store.get(key))?;
        worker.meter.looked_up(value.map(|value| value.len()), key.len());
        Ok(())
    } else if falls(mix.updates) {
        bench.put(worker, key)
    } else if falls(mix.scans) {
        let length = 1 + worker.rng.below(bench.spec.scan_length);
        read_on(bench, worker, key, length)
    } else {
        modify(bench, worker, key)
    }
}

fn modify(bench: &Bench<'_>, worker: &mut Worker<'_>, key: &[u8]) -> Result<()> {
    let durability = bench.spec.durability();
    let value = worker.values.next(bench.spec.value_bytes);
    let old = worker.meter.time(1, || {
        let old = bench.store.get(key)?;
        bench.store.put(key, value, durability)?;
        Ok(old)
    })?;
    worker.meter.tally.user_bytes += (key.len() + value.len()) as u64;
    worker.meter.looked_up(old.map(|old| old.len()), key.len());
    Ok(())
}

#[derive(Clone, Debug)]
enum Chooser {
    Zipfian(ScrambledZipfian),
    Latest(Latest),
}

impl Chooser {
    /// Draws one of the `existing` records.
    fn next(&mut self, rng: &mut Rng, existing: u64) -> u64 {
        match self {
            Chooser::Latest(latest) => latest.next(rng, existing),
            Chooser::Zipfian(zipfian) => {
                let mut draws = std::iter::repeat_with(|| zipfian.next(rng)).take(MOST_DRAWS);
                let drawn = draws.find(|record| *record < existing);
                drawn.unwrap_or_else(|| zipfian.next(rng) % existing)
            }
        }
    }
}

/// Assigns the numbers of records to insert, and knows below which number all records are stored.
/// So no thread looks for a record that another one is still writing.
struct Inserted {
    next: AtomicU64,
    stored: AtomicU64,
    /// Records above `stored` that are stored, while an earlier one is not.
    early: Mutex<BTreeSet<u64>>,
}

impl Inserted {
    fn new(records: u64) -> Inserted {
        let (next, stored) = (AtomicU64::new(records), AtomicU64::new(records));
        Inserted { next, stored, early: Mutex::new(BTreeSet::new()) }
    }

    fn count(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn end(&self, number: u64) {
        let mut early = self.early.lock().expect("no holder panics");
        early.insert(number);
        let mut stored = self.count();
        while early.remove(&stored) {
            stored += 1;
        }
        self.stored.store(stored, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_as_inserted_without_gaps() {
        let inserted = Inserted::new(10);
        let (first, second) = (inserted.begin(), inserted.begin());
        inserted.end(second);
        assert_eq!(inserted.count(), 10);
        inserted.end(first);
        assert_eq!(inserted.count(), 12);
    }
}
