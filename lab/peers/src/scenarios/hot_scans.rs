//! Scans over ten keys that were put again and again: for each key, a store passes over the old
//! versions that it keeps.

use runstone::Durability;
use runstone_kv::{Direction, KvStore};

use super::{Bench, Figures, Lap};
use crate::Result;

pub(super) const KEYS: u64 = 10;
pub(super) const PUTS_EACH: u64 = 20_000;
const SCANS: u64 = 20_000;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let (mut figures, puts, mut key) = (Figures::default(), bench.scaled(PUTS_EACH), Vec::new());
    let (_, lap) = Lap::of(|| {
        for number in 0..puts * KEYS {
            bench.data.keys.encode(number % KEYS, &mut key);
            store.put(&key, bench.data.value(number), Durability::Buffered)?;
        }
        Ok(())
    })?;
    figures.rate("put", &lap, puts * KEYS);
    scans(bench, store, None, "scan of all ten", &mut figures)?;
    store.flush()?;
    store.wait_idle()?;
    scans(bench, store, None, "the same, flushed", &mut figures)?;
    Ok(figures)
}

/// Scans the hot keys. If scans are slow, it runs as many as fit into a tenth of the time.
pub(super) fn scans(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    from: Option<&[u8]>,
    what: &str,
    figures: &mut Figures,
) -> Result<()> {
    let scan = || {
        let mut entries = 0;
        store.scan(from, Direction::Forward, &mut |_, _| {
            entries += 1;
            true
        })?;
        Ok(entries)
    };
    let (entries, first) = Lap::of(scan)?;
    if entries != KEYS {
        return bench.fault("a scan of ten keys saw others");
    }
    let count = bench.scaled(SCANS).min((MOST_SECONDS / first.seconds()) as u64).max(3);
    let (_, lap) = Lap::of(|| (0..count).try_for_each(|_| scan().map(drop)))?;
    figures.rate(what, &lap, count);
    Ok(())
}

/// The most seconds of these scans: scans that step over all old versions take a hundred thousand
/// times as long as others.
const MOST_SECONDS: f64 = 5.0;
