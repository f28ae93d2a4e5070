//! hotfill, hotscan: ten keys written over and over, and scans over them. A store must find the
//! newest versions among all that no compaction has dropped yet.

use runstone_kv::Result;

use super::fill::put_each;
use super::seek::scans;
use crate::bench::{Bench, End, Tally};
use crate::generators::Rng;

/// How many keys are hot.
const HOT_KEYS: u64 = 10;

/// The benchmark `hotfill`.
pub fn fill(bench: &Bench<'_>) -> Result<Tally> {
    let keys = HOT_KEYS.min(bench.spec.num);
    bench.threads(bench.spec.num, End::CountOrDuration, |worker| {
        put_each(bench, worker, &|_: &mut Rng, number| number % keys)
    })
}

/// The benchmark `hotscan`.
pub fn scan(bench: &Bench<'_>) -> Result<Tally> {
    scans(bench, HOT_KEYS.min(bench.spec.num), HOT_KEYS)
}
