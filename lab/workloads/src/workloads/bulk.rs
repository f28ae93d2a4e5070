//! bulkload: the keys of fillseq in order, by one bulk load. Its time is that of the whole load,
//! which is visible and durable at its end, unlike the puts of fillseq.

use runstone_kv::Result;

use crate::bench::{Bench, End, Tally};

/// The benchmark `bulkload`. The first thread loads all keys with one load.
pub fn load(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, keys) = (bench.spec, bench.spec.keys());
    bench.threads(1, End::Count, |worker| {
        if worker.meter.take(1).is_none() {
            return Ok(());
        }
        let mut numbers = 0..spec.num;
        let mut user_bytes = 0;
        let values = &mut worker.values;
        let mut entries = std::iter::from_fn(|| {
            let mut key = Vec::new();
            keys.encode(numbers.next()?, &mut key);
            let value = values.next(spec.value_bytes).to_vec();
            user_bytes += (key.len() + value.len()) as u64;
            Some((key, value))
        });
        worker.meter.time(spec.num, || bench.store.load(&mut entries))?;
        worker.meter.tally.user_bytes += user_bytes;
        Ok(())
    })
}
