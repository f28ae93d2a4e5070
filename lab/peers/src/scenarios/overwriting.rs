//! Puts over the same keys again and again while a thread gets. Shows how much disk space the store
//! takes for its live data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use runstone::Durability;
use runstone_kv::KvStore;
use runstone_workloads::generators::Rng;

use super::{Bench, Figures, KEY_BYTES, Lap, VALUE_BYTES, hot_scans, megabytes};
use crate::Result;
use crate::data::SEED;
use crate::disk::allocated_bytes;

const KEYS: u64 = 1_000_000;
const PUTS: u64 = 13_500_000;
/// How often the space on disk is measured.
const LOOKS: u64 = 100;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let (keys, puts) = (bench.scaled(KEYS), bench.scaled(PUTS));
    bench.load(store, 0..keys)?;
    let (is_done, gets) = (AtomicBool::new(false), AtomicU64::new(0));
    let (most, lap) = Lap::of(|| {
        thread::scope(|scope| {
            let reader = scope.spawn(|| get_until(bench, store, keys, &is_done, &gets));
            let most = overwrite(bench, store, keys, puts);
            is_done.store(true, Relaxed);
            reader.join().expect("the reader panicked")?;
            most
        })
    })?;
    let mut figures = Figures::default();
    figures.add("put/s", puts as f64 / lap.seconds());
    figures.add("get/s beside", gets.load(Relaxed) as f64 / lap.seconds());
    figures.add("put and its share of gets, cpu us", lap.cpu_seconds() * 1e6 / puts as f64);
    let live = keys * (KEY_BYTES + VALUE_BYTES) as u64;
    figures.add("alive, MB", megabytes(live));
    let mut disk = |what: &str, bytes: u64| {
        figures.add(format!("disk {what}, of what is alive"), bytes as f64 / live as f64);
    };
    disk("at most", most);
    disk("right after", allocated_bytes(bench.path)?);
    hot_scans(bench, store, &mut figures)?;
    let mut disk = |what: &str, bytes: u64| {
        figures.add(format!("disk {what}, of what is alive"), bytes as f64 / live as f64);
    };
    store.flush()?;
    store.wait_idle()?;
    disk("once idle", allocated_bytes(bench.path)?);
    store.compact()?;
    store.wait_idle()?;
    disk("compacted", allocated_bytes(bench.path)?);
    drop(opened);
    disk("closed", allocated_bytes(bench.path)?);
    Ok(figures)
}

/// Measures scans of ten keys that are put again and again after all others, in a store that is
/// still busy.
fn hot_scans(bench: &Bench<'_>, store: &dyn KvStore, figures: &mut Figures) -> Result<()> {
    let hot = |number: u64| {
        let mut key = [0xff; KEY_BYTES];
        key[KEY_BYTES - 1] = (number % hot_scans::KEYS) as u8;
        key
    };
    for number in 0..bench.scaled(hot_scans::PUTS_EACH) * hot_scans::KEYS {
        store.put(&hot(number), bench.data.value(number), Durability::Buffered)?;
    }
    hot_scans::scans(bench, store, Some(&hot(0)), "scan of ten hot keys then", figures)
}

/// Overwrites the keys. Returns the most bytes on disk during this time.
fn overwrite(bench: &Bench<'_>, store: &dyn KvStore, keys: u64, puts: u64) -> Result<u64> {
    let (mut rng, mut key, mut most) = (Rng::stream(SEED, "overwriting", 0), Vec::new(), 0);
    for turn in 0..puts {
        bench.data.keys.encode(rng.below(keys), &mut key);
        store.put(&key, bench.data.value(turn), Durability::Buffered)?;
        if turn.is_multiple_of((puts / LOOKS).max(1)) {
            most = most.max(allocated_bytes(bench.path)?);
        }
    }
    Ok(most)
}

fn get_until(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    keys: u64,
    is_done: &AtomicBool,
    gets: &AtomicU64,
) -> Result<()> {
    let (mut rng, mut key) = (Rng::stream(SEED, "beside", 0), Vec::new());
    while !is_done.load(Relaxed) {
        bench.data.keys.encode(rng.below(keys), &mut key);
        if store.get(&key)?.is_none() {
            return bench.fault("a key is lost");
        }
        gets.fetch_add(1, Relaxed);
    }
    Ok(())
}
