//! The rows of redb's own benchmark (`lmdb_benchmark` of its repository): the same sizes and order,
//! and, as further rows, sorted inserts and pops. Unlike in redb's benchmark, every get and every
//! range is a separate read of the newest state, as the common trait defines a get.

use runstone::Durability;
use runstone_kv::{Direction, KvStore, KvWrite};
use runstone_workloads::generators::Rng;

use super::{BATCH, Bench, Figures, Lap, megabytes, readers};
use crate::Result;
use crate::data::SEED;
use crate::disk::allocated_bytes;

const LOADED: u64 = 5_000_000;
const SINGLE: u64 = 1_000;
const BATCHES: u64 = 100;
const BATCH_PUTS: u64 = 1_000;
const UNSYNCED: u64 = 50_000;
const GETS: u64 = 1_000_000;
const RANGES: u64 = 500_000;
const RANGE_LENGTH: u64 = 10;
const POPS: u64 = 50_000;
const SORTED: u64 = 500_000;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let mut figures = Figures::default();
    let all = writes(bench, store, &mut figures)?;
    for threads in [1, 4, 8, 16, 32] {
        let gets = bench.scaled(GETS);
        let lap = readers::by_threads(bench, store, all, threads, gets)?;
        figures.rate(&format!("gets, {threads} thread(s)"), &lap, gets);
    }
    ranges(bench, store, all, &mut figures)?;
    removals(bench, store, all / 2, &mut figures)?;
    pops(bench, store, &mut figures)?;
    sorted_inserts(bench, store, &mut figures)?;
    figures.add("size, MB", megabytes(allocated_bytes(bench.path)?));
    figures.took("compaction", &Lap::of(|| Ok(store.compact()?))?.1);
    store.wait_idle()?;
    figures.add("compacted size, MB", megabytes(allocated_bytes(bench.path)?));
    Ok(figures)
}

/// Makes the writes of the benchmark, and returns how many keys there are afterwards.
fn writes(bench: &Bench<'_>, store: &dyn KvStore, figures: &mut Figures) -> Result<u64> {
    let loaded = bench.scaled(LOADED);
    figures.took("bulk load", &Lap::of(|| bench.load(store, 0..loaded))?.1);
    let put = |first: u64, count: u64, at_once: u64, durability: Durability| {
        let mut keys = vec![Vec::new(); at_once as usize];
        for start in (first..first + count).step_by(at_once as usize) {
            let numbered = keys.iter_mut().zip(start..);
            numbered.for_each(|(key, number)| bench.data.keys.encode(number, key));
            let value = |number| bench.data.value(number);
            let puts: Vec<_> = keys
                .iter()
                .zip(start..)
                .map(|(key, number)| KvWrite::Put { key, value: value(number) })
                .collect();
            store.write(&puts, durability)?;
        }
        Ok(())
    };
    let mut next = loaded;
    for (what, count, at_once, durability) in [
        ("single synced put", bench.scaled(SINGLE), 1, Durability::Sync),
        ("synced batch of 1,000", bench.scaled(BATCHES) * BATCH_PUTS, BATCH_PUTS, Durability::Sync),
        ("unsynced put", bench.scaled(UNSYNCED), 1, Durability::Buffered),
    ] {
        let (_, lap) = Lap::of(|| put(next, count, at_once, durability))?;
        figures.rate(what, &lap, count / at_once);
        next += count;
    }
    Ok(next)
}

fn ranges(bench: &Bench<'_>, store: &dyn KvStore, all: u64, figures: &mut Figures) -> Result<()> {
    let (mut rng, mut key, count) =
        (Rng::stream(SEED, "ranges", 0), Vec::new(), bench.scaled(RANGES));
    let (_, lap) = Lap::of(|| {
        for _ in 0..count {
            bench.data.keys.encode(rng.below(all), &mut key);
            let (mut entries, mut is_there) = (0, false);
            store.scan(Some(&key), Direction::Forward, &mut |found, _| {
                is_there |= found == &key[..];
                entries += 1;
                entries < RANGE_LENGTH
            })?;
            if !is_there {
                return bench.fault("a range lacks its first key");
            }
        }
        Ok(())
    })?;
    figures.rate("range of 10", &lap, count);
    Ok(())
}

/// Removes half of the keys, in one transaction if the store loads in one, else in batches.
fn removals(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    count: u64,
    figures: &mut Figures,
) -> Result<()> {
    let at_once = if bench.peer.loads_in_any_order { count } else { BATCH };
    let (_, lap) = Lap::of(|| {
        for start in (0..count).step_by(at_once.max(1) as usize) {
            let end = count.min(start + at_once);
            let mut keys = vec![Vec::new(); (end - start) as usize];
            let numbered = keys.iter_mut().zip(start..);
            numbered.for_each(|(key, number)| bench.data.keys.encode(number, key));
            let deletes: Vec<_> = keys.iter().map(|key| KvWrite::Delete { key }).collect();
            let is_last = end == count;
            store.write(&deletes, if is_last { Durability::Sync } else { Durability::Buffered })?;
        }
        Ok(())
    })?;
    figures.took("removal of half", &lap);
    Ok(())
}

/// Gets and deletes the first key again and again, unsynced.
fn pops(bench: &Bench<'_>, store: &dyn KvStore, figures: &mut Figures) -> Result<()> {
    let count = bench.scaled(POPS);
    let (_, lap) = Lap::of(|| {
        let mut first = Vec::new();
        for _ in 0..count {
            let before = std::mem::take(&mut first);
            store.scan(None, Direction::Forward, &mut |key, _| {
                first.extend_from_slice(key);
                false
            })?;
            if first <= before {
                return bench.fault("a key that was popped is there again");
            }
            store.delete(&first, Durability::Buffered)?;
        }
        Ok(())
    })?;
    figures.rate("pop", &lap, count);
    Ok(())
}

/// Inserts keys after all others, in order, all at once.
fn sorted_inserts(bench: &Bench<'_>, store: &dyn KvStore, figures: &mut Figures) -> Result<()> {
    let count = bench.scaled(SORTED);
    let pair = |number: u64| {
        let key = [&[0xff; 16][..], &number.to_be_bytes()].concat();
        (key, bench.data.value(number).to_vec())
    };
    let (loaded, lap) = Lap::of(|| Ok(store.load(&mut (0..count).map(pair))?))?;
    if loaded != count {
        return bench.fault("a sorted load lost entries");
    }
    figures.rate("sorted insert", &lap, count);
    Ok(())
}
