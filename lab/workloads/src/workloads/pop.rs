//! pop: takes the first key and deletes it, as a queue does. If other keys are left, each pop
//! counts as found.

use runstone_kv::Direction;
use runstone_kv::Result;

use crate::bench::{Bench, End, Tally};

/// The benchmark `pop`.
pub fn first(bench: &Bench<'_>) -> Result<Tally> {
    let (spec, durability) = (bench.spec, bench.spec.durability());
    bench.threads(spec.reads(), End::CountOrDuration, |worker| {
        let mut key = Vec::new();
        while worker.meter.take(1).is_some() {
            let mut value_bytes = None;
            worker.meter.time(1, || {
                bench.store.scan(None, Direction::Forward, &mut |found, value| {
                    key.clear();
                    key.extend_from_slice(found);
                    value_bytes = Some(value.len());
                    false
                })?;
                match value_bytes {
                    Some(_) => bench.store.delete(&key, durability),
                    None => Ok(()),
                }
            })?;
            worker.meter.looked_up(value_bytes, key.len());
        }
        Ok(())
    })
}
