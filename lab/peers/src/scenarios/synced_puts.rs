//! Puts that are durable when they return, one by one, from several threads: on an idle store, and
//! right after a load whose compactions still run.

use std::thread;
use std::time::Instant;

use runstone::Durability;
use runstone_kv::KvStore;
use runstone_workloads::Latency;

use super::{Bench, Figures, Lap};
use crate::Result;

const LOADED: u64 = 5_000_000;
/// Puts of each thread.
const PUTS: u64 = 500;
const THREADS: [u64; 3] = [1, 4, 16];

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let (mut figures, loaded) = (Figures::default(), bench.scaled(LOADED));
    let mut next = loaded;
    all(bench, store, "idle", &mut next, &mut figures)?;
    figures.took("load", &Lap::of(|| bench.load(store, 0..loaded))?.1);
    all(bench, store, "loaded", &mut next, &mut figures)?;
    Ok(figures)
}

fn all(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    when: &str,
    next: &mut u64,
    figures: &mut Figures,
) -> Result<()> {
    for threads in THREADS {
        let puts = bench.scaled(PUTS);
        let first = *next;
        *next += threads * puts;
        let work = || {
            thread::scope(|scope| {
                let part = |at| {
                    let from = first + at * puts;
                    scope.spawn(move || put_each(bench, store, from..from + puts))
                };
                let parts: Vec<_> = (0..threads).map(part).collect();
                let mut all = Latency::default();
                for part in parts {
                    all.add(&part.join().expect("a writer panicked")?);
                }
                Ok(all)
            })
        };
        let (latency, lap) = Lap::of(work)?;
        let name = |what| format!("{when}, {threads} thread(s): {what}");
        figures.add(name("put/s"), (threads * puts) as f64 / lap.seconds());
        figures.add(name("p50 us"), latency.quantile_us(0.5));
        figures.add(name("p99 us"), latency.quantile_us(0.99));
    }
    Ok(())
}

fn put_each(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    numbers: std::ops::Range<u64>,
) -> Result<Latency> {
    let (mut latency, mut key) = (Latency::default(), Vec::new());
    for number in numbers {
        bench.data.keys.encode(number, &mut key);
        let start = Instant::now();
        store.put(&key, bench.data.value(number), Durability::Sync)?;
        latency.record(start.elapsed());
    }
    Ok(latency)
}
