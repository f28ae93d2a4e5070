//! readwhilewriting: readrandom in the requested threads, and one more thread that overwrites
//! random keys until they are done. Only the reads are counted and timed, as in db_bench.

use std::sync::atomic::{AtomicBool, Ordering};

use runstone_kv::Result;

use super::read::get_each;
use crate::bench::{Bench, End, Tally};
use crate::generators::{Rng, ValueGenerator};

/// The benchmark `readwhilewriting`.
pub fn run(bench: &Bench<'_>) -> Result<Tally> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(bench, &over));
        let tally = {
            let _stop = StopOnDrop(&over);
            bench.threads(bench.spec.reads(), End::CountOrDuration, |worker| {
                get_each(bench, worker, b"")
            })
        };
        let written = writer.join().expect("the writer panicked")?;
        Ok(Tally { note: format!("{written} writes meanwhile"), ..tally? })
    })
}

/// Ends the writer even if a reader panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write_until(bench: &Bench<'_>, over: &AtomicBool) -> Result<u64> {
    let (spec, keys, durability) = (bench.spec, bench.spec.keys(), bench.spec.durability());
    let mut rng = Rng::stream(spec.seed, "writer", 0);
    let mut values = ValueGenerator::new(&mut rng, 0.5, spec.value_bytes);
    let (mut key, mut written) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        keys.encode(rng.below(spec.num), &mut key);
        bench.store.put(&key, values.next(spec.value_bytes), durability)?;
        written += 1;
    }
    Ok(written)
}
