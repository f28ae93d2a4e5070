//! Range deletes that overlap: each ends where the fourth after it begins, and together they hide
//! every key. Then they are flushed and compacted away. The scenario is only for stores that write
//! a range delete as one record. Other stores scan the range and delete each key.

use runstone::Durability;
use runstone_kv::KvStore;
use runstone_storage::process;

use super::{Bench, Figures, Lap, megabytes};
use crate::Result;
use crate::disk::allocated_bytes;

const KEYS: u64 = 100_000;
const DELETES: u64 = 100_000;
const OVERLAP: u64 = 4;
const GETS: u64 = 20_000;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let mut figures = Figures::default();
    if !bench.peer.has_range_deletes {
        return Ok(figures);
    }
    let (keys, deletes) = (bench.scaled(KEYS), bench.scaled(DELETES));
    let opened = bench.open()?;
    let store = opened.as_ref();
    bench.load(store, 0..keys)?;
    store.flush()?;
    store.wait_idle()?;

    let resident = process::resident_bytes();
    let at = |number: u64| (u128::from(number) * (1 << 64) / u128::from(deletes)) as u64;
    let (_, lap) = Lap::of(|| {
        for number in 0..deletes {
            let end = (number + OVERLAP).min(deletes);
            let end_key = at(end).to_be_bytes();
            let end = (end < deletes).then_some(&end_key[..]);
            store.delete_range(&at(number).to_be_bytes(), end, Durability::Buffered)?;
        }
        Ok(())
    })?;
    figures.took("write", &lap);
    let grown = process::resident_bytes().saturating_sub(resident);
    figures.add("memory grown, MB", megabytes(grown));
    gets(bench, store, keys, "get before the flush", &mut figures)?;
    figures.took("flush", &Lap::of(|| Ok(store.flush()?))?.1);
    gets(bench, store, keys, "get after it", &mut figures)?;
    let compact = || {
        store.compact()?;
        Ok(store.wait_idle()?)
    };
    figures.took("compact", &Lap::of(compact)?.1);
    figures.add("disk at the end, MB", megabytes(allocated_bytes(bench.path)?));
    Ok(figures)
}

/// Gets keys, none of which is found.
fn gets(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    keys: u64,
    what: &str,
    figures: &mut Figures,
) -> Result<()> {
    let (count, mut key) = (bench.scaled(GETS), Vec::new());
    let (found, lap) = Lap::of(|| {
        let mut found = 0;
        for turn in 0..count {
            bench.data.keys.encode(turn % keys, &mut key);
            found += u64::from(store.get(&key)?.is_some());
        }
        Ok(found)
    })?;
    if found > 0 {
        return bench.fault("range deletes left keys");
    }
    figures.rate(what, &lap, count);
    Ok(())
}
