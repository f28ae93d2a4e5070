//! hotfill, hotscan: ten keys written over and over, and scans over them. A store must find the
//! newest versions among all that no compaction has dropped yet.

use runstone_kv::Result;

use super::seek::read_on;
use crate::bench::{Bench, End, Tally};

/// How many keys are hot.
const HOT_KEYS: u64 = 10;

/// hotfill.
pub fn fill(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, keys, durability) = (bench.spec, bench.spec.keys(), bench.spec.durability());
    bench.threads(spec.num, End::CountOrDuration, |worker| {
        let mut key = Vec::new();
        while let Some(turn) = worker.meter.take(1) {
            keys.encode(turn.start % HOT_KEYS.min(spec.num), &mut key);
            let value = worker.values.next(spec.value_bytes);
            worker.meter.time(1, || bench.store.put(&key, value, durability))?;
            worker.meter.tally.user_bytes += (key.len() + value.len()) as u64;
        }
        Ok(())
    })
}

/// hotscan.
pub fn scan(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, keys) = (bench.spec, bench.spec.keys());
    bench.threads(spec.reads(), End::CountOrDuration, |worker| {
        let mut key = Vec::new();
        while worker.meter.take(1).is_some() {
            keys.encode(worker.rng.below(HOT_KEYS.min(spec.num)), &mut key);
            read_on(bench, worker, &key, HOT_KEYS)?;
        }
        Ok(())
    })
}
