//! seekrandom: a seek to a random key and the next scan-length entries; shortscan: the next ten.
//! The seek and its entries are one operation. "Found" counts the seeks that found their key.

use runstone_kv::Direction;
use runstone_kv::Result;

use crate::bench::{Bench, End, Tally, Worker};

/// Entries that shortscan reads.
const SHORT_SCAN: u64 = 10;

/// The benchmark `seekrandom`.
pub fn random(bench: &Bench<'_>) -> Result<Tally> {
    scans(bench, bench.spec.num, bench.spec.scan_length)
}

/// The benchmark `shortscan`.
pub fn short(bench: &Bench<'_>) -> Result<Tally> {
    scans(bench, bench.spec.num, SHORT_SCAN)
}

/// Scans of `length` entries from one of the first keys on.
pub(super) fn scans(bench: &Bench<'_>, first_keys: u64, length: u64) -> Result<Tally> {
    let keys = bench.spec.keys();
    bench.threads(bench.spec.reads(), End::CountOrDuration, |worker| {
        let mut key = Vec::new();
        while worker.meter.take(1).is_some() {
            keys.encode(worker.rng.below(first_keys), &mut key);
            read_on(bench, worker, &key, length)?;
        }
        Ok(())
    })
}

/// Reads `length` entries from a key on. The key counts as found if it is the first entry.
pub(super) fn read_on(
    bench: &Bench<'_>,
    worker: &mut Worker<'_>,
    key: &[u8],
    length: u64,
) -> Result<()> {
    let (mut entries, mut bytes, mut met) = (0, 0, None);
    worker.meter.time(1, || {
        bench.store.scan(Some(key), Direction::Forward, &mut |found, value| {
            if entries == 0 && found == key {
                met = Some(0);
            }
            entries += 1;
            bytes += found.len() + value.len();
            entries < length
        })
    })?;
    worker.meter.looked_up(met, 0);
    worker.meter.tally.user_bytes += bytes as u64;
    Ok(())
}
