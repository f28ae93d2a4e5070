//! Memory: single puts, gets of all keys, updates during compactions; then the reports of the
//! kernel and the store. Run it under both allocators: `--engines runstone,runstone@glibc`.

use runstone::Durability;
use runstone_kv::{Direction, KvStore};
use runstone_storage::process;
use runstone_workloads::generators::Rng;

use super::{Bench, Figures, Lap, mebibytes};
use crate::Result;
use crate::data::SEED;

const LOADED: u64 = 5_000_000;
const GETS: u64 = 1_000_000;
const SCANS: u64 = 50_000;
const SCAN_LENGTH: u64 = 100;
const UPDATES: u64 = 2_000_000;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let loaded = bench.scaled(LOADED);
    let mut figures = Figures::default();
    figures.add("budget, MiB", mebibytes(bench.setup.budget_bytes()));
    let peak = |what: &str, figures: &mut Figures| {
        figures.add(format!("peak {what}, MiB"), mebibytes(process::peak_resident_bytes()));
    };
    put(bench, store, 0..loaded)?;
    peak("after puts", &mut figures);
    super::readers::by_threads(bench, store, loaded, 2, bench.scaled(GETS))?;
    peak("after gets", &mut figures);
    scans(bench, store, loaded)?;
    peak("after scans", &mut figures);
    let mut rng = Rng::stream(SEED, "memory", 0);
    let updates = bench.scaled(UPDATES);
    let (_, lap) = Lap::of(|| put(bench, store, (0..updates).map(|_| rng.below(loaded))))?;
    figures.rate("update", &lap, updates);
    peak("after updates", &mut figures);
    store.compact()?;
    store.wait_idle()?;
    peak("after a compaction", &mut figures);
    figures.add("resident then, MiB", mebibytes(process::resident_bytes()));
    figures.add("of it anonymous, MiB", mebibytes(anonymous_bytes()?));
    figures.add("by the store's count, MiB", mebibytes(store.metrics()?.memory_bytes));
    Ok(figures)
}

fn put(bench: &Bench<'_>, store: &dyn KvStore, numbers: impl Iterator<Item = u64>) -> Result<()> {
    let mut key = Vec::new();
    for number in numbers {
        bench.data.keys.encode(number, &mut key);
        store.put(&key, bench.data.value(number), Durability::Buffered)?;
    }
    Ok(())
}

fn scans(bench: &Bench<'_>, store: &dyn KvStore, loaded: u64) -> Result<()> {
    let (mut rng, mut key) = (Rng::stream(SEED, "scans", 0), Vec::new());
    for _ in 0..bench.scaled(SCANS) {
        bench.data.keys.encode(rng.below(loaded), &mut key);
        let mut entries = 0;
        store.scan(Some(&key), Direction::Forward, &mut |_, _| {
            entries += 1;
            entries < SCAN_LENGTH
        })?;
        if entries == 0 {
            return bench.fault("a scan from a key saw nothing");
        }
    }
    Ok(())
}

/// Resident memory that is not a mapping of a file.
fn anonymous_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kibibytes.map_or(Ok(0), str::parse::<u64>)? << 10)
}
