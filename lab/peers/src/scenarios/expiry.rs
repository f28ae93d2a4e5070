//! Expired entries before live ones: looks at the first key, before and after a compaction. In a
//! store without expiry the instant is in the values. RocksDB then drops expired entries by a
//! compaction filter; the others keep them.

use std::time::{Duration, SystemTime};

use super::{Bench, Figures, Lap, megabytes};
use crate::Result;
use crate::disk::allocated_bytes;
use crate::extras::{ByReader, Expiring};

const EXPIRED: u64 = 300_000;
const ALIVE: u64 = 1_000;
const LOOKS: u64 = 20;
/// The times from the first put until the expired entries expire, and until the live ones do.
const SOON: Duration = Duration::from_secs(4);
const LATER: Duration = Duration::from_secs(100_000);

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let path = bench.path.join("store");
    let opened: Box<dyn Expiring> = match bench.peer.open_expiring {
        Some(open) => open(&path, bench.setup)?,
        None => Box::new(ByReader((bench.peer.open)(&path, bench.setup)?)),
    };
    let (expired, alive) = (bench.scaled(EXPIRED), bench.scaled(ALIVE));
    let (store, start) = (opened.store(), SystemTime::now());
    let mut figures = Figures::default();
    let (_, lap) = Lap::of(|| {
        for number in 0..expired + alive {
            let end = start + if number < expired { SOON } else { LATER };
            opened.put_until(&number.to_be_bytes(), bench.data.value(number), end)?;
        }
        Ok(())
    })?;
    figures.rate("put", &lap, expired + alive);
    store.flush()?;
    store.wait_idle()?;
    let left = (start + SOON).duration_since(SystemTime::now()).unwrap_or_default();
    std::thread::sleep(left + Duration::from_millis(10));

    look(bench, opened.as_ref(), expired, 1, "first look", &mut figures)?;
    look(bench, opened.as_ref(), expired, LOOKS, "later look", &mut figures)?;
    let compact = || {
        store.compact()?;
        Ok(store.wait_idle()?)
    };
    figures.took("compact", &Lap::of(compact)?.1);
    look(bench, opened.as_ref(), expired, LOOKS, "look after it", &mut figures)?;
    figures.add("disk at the end, MB", megabytes(allocated_bytes(bench.path)?));
    Ok(figures)
}

fn look(
    bench: &Bench<'_>,
    expiring: &dyn Expiring,
    expired: u64,
    looks: u64,
    what: &str,
    figures: &mut Figures,
) -> Result<()> {
    let (first, lap) = Lap::of(|| {
        let mut first = None;
        for _ in 0..looks {
            first = expiring.first()?;
        }
        Ok(first)
    })?;
    if first.as_deref() != Some(&expired.to_be_bytes()[..]) {
        return bench.fault("the first key alive is another one");
    }
    figures.add(format!("{what}, us"), lap.seconds() * 1e6 / looks as f64);
    Ok(())
}
