//! Measures features beyond puts and gets: ways to count, and range deletes. Each runs on a store
//! of its own.

use std::fs;
use std::time::Instant;

use runstone::Durability;
use runstone_kv::{Direction, KvStore};
use runstone_workloads::generators::{KeyCodec, KeyFormat, Rng};

use crate::Result;
use crate::counters::{Counters, Way, number};
use crate::data::{Data, SEED};
use crate::peers::Peer;
use crate::plan::{Counted, KEY_BYTES, Plan, RangeDeleted};

/// How many counters are incremented.
const COUNTERS: u64 = 1000;
/// Each of the many range deletes ends where the one this many places later begins.
const OVERLAP: u64 = 4;
/// Keys from here on are not deleted: half of all, because keys are hashes.
const MIDDLE: [u8; 1] = [0x80];
/// One key in this many is put again into the deleted half, if it falls there.
const PUT_AGAIN: u64 = 4;

/// Increments by an unprotected get and put, or by a put alone, which adds to 0.
struct Plain {
    store: Box<dyn KvStore>,
    reads: bool,
}

impl Counters for Plain {
    fn add(&self, key: &[u8], by: u64) -> runstone_kv::Result<()> {
        let old = if self.reads { self.get(key)? } else { 0 };
        self.store.put(key, &(old + by).to_le_bytes(), Durability::Buffered)
    }

    fn get(&self, key: &[u8]) -> runstone_kv::Result<u64> {
        number(self.store.get(key)?.as_deref())
    }
}

/// Increments counters in every way that the store has.
pub fn count(peer: &Peer, plan: &Plan) -> Result<Counted> {
    let rate = |way: Way| count_by(peer, plan, way);
    Ok(Counted {
        puts_per_second: rate(Way::Put)?,
        merges_per_second: rate(Way::Merge)?,
        gets_and_puts_per_second: rate(Way::GetAndPut)?,
        optimistic_per_second: rate(Way::Optimistic)?,
        pessimistic_per_second: rate(Way::Pessimistic)?,
    })
}

/// Additions per second; 0 if the store cannot count that way.
fn count_by(peer: &Peer, plan: &Plan, way: Way) -> Result<f64> {
    let (setup, path) = (&plan.setup, plan.path.with_extension("counters"));
    let counters: Box<dyn Counters> = match (way, peer.open_counters) {
        (Way::Put | Way::GetAndPut, _) => {
            Box::new(Plain { store: (peer.open)(&path, setup)?, reads: way == Way::GetAndPut })
        }
        (_, None) => return Ok(0.0),
        (_, Some(open)) => match open(&path, setup, way)? {
            None => return Ok(0.0),
            Some(counters) => counters,
        },
    };
    let (keys, mut key) = (KeyCodec::new(KEY_BYTES, KeyFormat::Hashed), Vec::new());
    let mut rng = Rng::stream(SEED, "counters", 0);
    let start = Instant::now();
    for _ in 0..setup.increments {
        keys.encode(rng.below(COUNTERS), &mut key);
        counters.add(&key, 1)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut sum = 0;
    for number in 0..COUNTERS {
        keys.encode(number, &mut key);
        sum += counters.get(&key)?;
    }
    drop(counters);
    fs::remove_dir_all(&path)?;
    if way != Way::Put && sum != setup.increments {
        return Err(format!("{}: {way:?} counted up to {sum}", peer.name).into());
    }
    Ok(setup.increments as f64 / seconds)
}

/// Deletes half of the keys with one call, then with many overlapping range deletes.
pub fn delete_ranges(peer: &Peer, plan: &Plan, data: &Data) -> Result<RangeDeleted> {
    let (setup, path) = (&plan.setup, plan.path.with_extension("ranges"));
    let opened = (peer.open)(&path, setup)?;
    let store = opened.as_ref();
    data.put_each(store, 0..setup.num)?;
    store.flush()?;
    store.wait_idle()?;

    let mut measured = RangeDeleted::default();
    let start = Instant::now();
    store.delete_range(&[], Some(&MIDDLE), Durability::Buffered)?;
    measured.half_us = micros(start);
    let (start, mut first) = (Instant::now(), Vec::new());
    store.scan(None, Direction::Forward, &mut |key, _| {
        first.extend_from_slice(key);
        false
    })?;
    measured.step_us = micros(start);
    if first < MIDDLE.to_vec() {
        return Err(format!("{}: the deleted half is still there", store.name()).into());
    }

    let again = data.in_lower_half(setup.num / PUT_AGAIN);
    if again.is_empty() {
        return Err("--range-deletes needs more keys: raise --num".into());
    }
    data.put_each(store, again.iter().copied())?;
    measured.gets_before_per_second = data.get_each(store, &again, setup.reads)?;
    let start = Instant::now();
    for number in 0..setup.range_deletes {
        let at = |number: u64| (number * ((1 << 63) / setup.range_deletes)).to_be_bytes();
        let end = (number + OVERLAP).min(setup.range_deletes);
        store.delete_range(&at(number), Some(&at(end)), Durability::Buffered)?;
    }
    measured.deletes_per_second = setup.range_deletes as f64 / start.elapsed().as_secs_f64();
    data.put_each(store, again.iter().copied())?;
    measured.gets_under_per_second = data.get_each(store, &again, setup.reads)?;
    store.flush()?;
    measured.gets_flushed_per_second = data.get_each(store, &again, setup.reads)?;
    drop(opened);
    fs::remove_dir_all(&path)?;
    Ok(measured)
}

impl Data {
    fn put_each(&self, store: &dyn KvStore, numbers: impl Iterator<Item = u64>) -> Result<()> {
        let mut key = Vec::new();
        for number in numbers {
            self.keys.encode(number, &mut key);
            store.put(&key, self.value(number), Durability::Buffered)?;
        }
        Ok(())
    }

    /// Gets per second, of keys drawn evenly from these numbers. Each key must exist.
    fn get_each(&self, store: &dyn KvStore, numbers: &[u64], count: u64) -> Result<f64> {
        let (mut rng, mut key) = (Rng::stream(SEED, "under", 0), Vec::new());
        let start = Instant::now();
        for _ in 0..count {
            self.keys.encode(numbers[rng.below(numbers.len() as u64) as usize], &mut key);
            if store.get(&key)?.is_none() {
                return Err(format!("{}: a key put again is lost", store.name()).into());
            }
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// The numbers below `count` whose keys are in the half that is deleted.
    fn in_lower_half(&self, count: u64) -> Vec<u64> {
        let mut key = Vec::new();
        let is_lower = |number: &u64| {
            self.keys.encode(*number, &mut key);
            key[..] < MIDDLE[..]
        };
        (0..count).filter(is_lower).collect()
    }
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
