//! readrandom, readmissing, multireadrandom: point lookups.
//!
//! readrandom draws from `0..num` as db_bench does, so after fillrandom about 63% are found.
//! readmissing appends a '.' to such a key, as LevelDB's db_bench does: the key falls between
//! written ones, so only filters, not key bounds, can show that it is absent.

use runstone_kv::Result;

use crate::bench::{Bench, End, Tally, Worker};

/// The benchmark `readrandom`.
pub fn random(bench: &Bench<'_>) -> Result<Tally> {
    bench.threads(bench.spec.reads(), End::CountOrDuration, |worker| get_each(bench, worker, b""))
}

/// The benchmark `readmissing`.
pub fn missing(bench: &Bench<'_>) -> Result<Tally> {
    bench.threads(bench.spec.reads(), End::CountOrDuration, |worker| get_each(bench, worker, b"."))
}

/// The benchmark `multireadrandom`.
pub fn multi(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, keys) = (bench.spec, bench.spec.keys());
    bench.threads(spec.reads(), End::CountOrDuration, |worker| {
        let mut batch = Vec::new();
        while let Some(turn) = worker.meter.take(spec.batch_size) {
            batch.resize_with(turn.clone().count(), Vec::new);
            for key in &mut batch {
                keys.encode(worker.rng.below(spec.num), key);
            }
            let slices: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            let values =
                worker.meter.time(slices.len() as u64, || bench.store.multi_get(&slices))?;
            for (key, value) in slices.iter().zip(values) {
                worker.meter.looked_up(value.map(|value| value.len()), key.len());
            }
        }
        Ok(())
    })
}

pub(super) fn get_each(bench: &Bench<'_>, worker: &mut Worker<'_>, suffix: &[u8]) -> Result<()> {
    let (spec, keys) = (bench.spec, bench.spec.keys());
    let mut key = Vec::new();
    while worker.meter.take(1).is_some() {
        keys.encode(worker.rng.below(spec.num), &mut key);
        key.extend_from_slice(suffix);
        let value = worker.meter.time(1, || bench.store.get(&key))?;
        worker.meter.looked_up(value.map(|value| value.len()), key.len());
    }
    Ok(())
}
