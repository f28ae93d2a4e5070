//! readseq, readreverse: one scan of everything, one operation per entry.
//!
//! Several threads scan a part of the key range each. At most one entry in sixteen is timed: two
//! readings of the clock cost as much as an entry does.

use std::time::Instant;

use runstone_kv::Direction;
use runstone_kv::Result;

use crate::bench::{Bench, End, Tally, Worker};

const TIMED_EVERY: u64 = 16;

/// The benchmark `readseq`.
pub fn forward(bench: &Bench<'_>) -> Result<Tally> {
    bench.threads(bench.spec.reads(), End::Count, |worker| scan(bench, worker, Direction::Forward))
}

/// The benchmark `readreverse`.
pub fn reverse(bench: &Bench<'_>) -> Result<Tally> {
    bench.threads(bench.spec.reads(), End::Count, |worker| scan(bench, worker, Direction::Reverse))
}

fn scan(bench: &Bench<'_>, worker: &mut Worker<'_>, direction: Direction) -> Result<()> {
    let part = Part::of(bench, worker.index);
    let from = match direction {
        Direction::Forward => part.low.as_deref(),
        Direction::Reverse => part.high.as_deref(),
    };
    // Without a count, everything in the part is read: other benchmarks may have written more than
    // `num` keys.
    let most = bench.spec.reads.map_or(u64::MAX, |_| worker.meter.remaining());
    if most == 0 {
        return Ok(());
    }
    let meter = &mut worker.meter;
    let every = meter.latency_every.max(TIMED_EVERY);
    let (mut seen, mut started) = (0_u64, Instant::now());
    bench.store.scan(from, direction, &mut |key, value| {
        match part.place(key, direction) {
            Place::Before => return true,
            Place::Inside => {}
            Place::Behind => return false,
        }
        if seen.is_multiple_of(every) {
            meter.tally.latency.record(started.elapsed());
        }
        meter.tally.user_bytes += (key.len() + value.len()) as u64;
        meter.count(1);
        seen += 1;
        if seen.is_multiple_of(every) {
            started = Instant::now();
        }
        seen < most
    })
}

/// The keys of one thread: `low <= key < high`; `None` means no bound.
struct Part {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

enum Place {
    Before,
    Inside,
    Behind,
}

impl Part {
    fn of(bench: &Bench<'_>, index: u64) -> Part {
        let (spec, parts) = (bench.spec, u64::from(bench.spec.threads));
        let bound = |part: u64| {
            let mut key = Vec::new();
            spec.keys().split(part, parts, spec.num, &mut key);
            key
        };
        Part {
            low: (index > 0).then(|| bound(index)),
            high: (index + 1 < parts).then(|| bound(index + 1)),
        }
    }

    fn place(&self, key: &[u8], direction: Direction) -> Place {
        let low = self.low.as_deref().is_some_and(|low| key < low);
        let high = self.high.as_deref().is_some_and(|high| key >= high);
        match (low, high, direction) {
            (false, false, _) => Place::Inside,
            (true, _, Direction::Forward) | (_, true, Direction::Reverse) => Place::Before,
            _ => Place::Behind,
        }
    }
}
