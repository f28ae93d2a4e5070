//! deleterandom: deletes of keys drawn at random, alone or in batches; absent ones count as well.

use runstone_kv::KvWrite;
use runstone_kv::Result;

use crate::bench::{Bench, End, Tally};

/// The benchmark `deleterandom`.
pub fn random(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, keys, durability) = (bench.spec, bench.spec.keys(), bench.spec.durability());
    bench.threads(spec.num, End::CountOrDuration, |worker| {
        let mut batch_keys = Vec::new();
        while let Some(turn) = worker.meter.take(spec.batch_size) {
            batch_keys.resize_with(turn.count(), Vec::new);
            for key in &mut batch_keys {
                keys.encode(worker.rng.below(spec.num), key);
            }
            let batch: Vec<KvWrite<'_>> =
                batch_keys.iter().map(|key| KvWrite::Delete { key }).collect();
            worker.meter.time(batch.len() as u64, || match batch[..] {
                [KvWrite::Delete { key }] => bench.store.delete(key, durability),
                _ => bench.store.write(&batch, durability),
            })?;
            worker.meter.tally.user_bytes += (batch.len() * spec.key_bytes) as u64;
        }
        Ok(())
    })
}
