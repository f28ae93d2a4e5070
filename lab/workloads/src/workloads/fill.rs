//! fillseq, fillrandom, filluniquerandom, overwrite: puts, alone or in batches.
//!
//! fillrandom draws with repetitions, as db_bench does: about 63% of the keys get written.
//! filluniquerandom writes each key once, which comparisons of space and hits need.

use runstone_kv::KvWrite;
use runstone_kv::Result;

use crate::bench::{Bench, End, Tally, Worker};
use crate::generators::{Permutation, Rng};

/// The benchmark `fillseq`.
pub fn sequential(bench: &Bench<'_>) -> Result<Tally> {
    fill(bench, End::Count, |_, number| number)
}

/// The benchmarks `fillrandom` and `overwrite`.
pub fn random(bench: &Bench<'_>) -> Result<Tally> {
    let num = bench.spec.num;
    fill(bench, End::CountOrDuration, |rng, _| rng.below(num))
}

/// The benchmark `filluniquerandom`.
pub fn unique_random(bench: &Bench<'_>) -> Result<Tally> {
    let order = Permutation::new(bench.spec.num, bench.spec.seed);
    fill(bench, End::Count, |_, number| order.get(number))
}

fn fill(
    bench: &Bench<'_>,
    end: End,
    choose: impl Fn(&mut Rng, u64) -> u64 + Sync,
) -> Result<Tally> {
    bench.threads(bench.spec.num, end, |worker| match bench.spec.batch_size {
        1 => put_each(bench, worker, &choose),
        _ => put_batches(bench, worker, &choose),
    })
}

pub(super) fn put_each(
    bench: &Bench<'_>,
    worker: &mut Worker<'_>,
    choose: &impl Fn(&mut Rng, u64) -> u64,
) -> Result<()> {
    let (keys, mut key) = (bench.spec.keys(), Vec::new());
    while let Some(turn) = worker.meter.take(1) {
        keys.encode(choose(&mut worker.rng, turn.start), &mut key);
        bench.put(worker, &key)?;
    }
    Ok(())
}

fn put_batches(
    bench: &Bench<'_>,
    worker: &mut Worker<'_>,
    choose: &impl Fn(&mut Rng, u64) -> u64,
) -> Result<()> {
    let (spec, keys, durability) = (bench.spec, bench.spec.keys(), bench.spec.durability());
    let mut entries = Vec::new();
    while let Some(turn) = worker.meter.take(spec.batch_size) {
        entries.resize_with(turn.clone().count(), || (Vec::new(), 0..0));
        for ((key, place), number) in entries.iter_mut().zip(turn) {
            keys.encode(choose(&mut worker.rng, number), key);
            *place = worker.values.place(spec.value_bytes);
        }
        let values = &worker.values;
        let puts = entries.iter().map(|(key, place)| {
            let value = values.at_place(place.clone());
            KvWrite::Put { key, value }
        });
        let batch: Vec<KvWrite<'_>> = puts.collect();
        let count = batch.len() as u64;
        worker.meter.time(count, || bench.store.write(&batch, durability))?;
        worker.meter.tally.user_bytes += count * (spec.key_bytes + spec.value_bytes) as u64;
    }
    Ok(())
}
