//! Gets by several threads at once, of a store that does nothing else.

use std::thread;

use runstone_kv::KvStore;
use runstone_workloads::generators::Rng;

use super::{Bench, Figures, Lap};
use crate::Result;
use crate::data::SEED;

const LOADED: u64 = 2_000_000;
/// Gets of all threads together.
const GETS: u64 = 1_000_000;

pub fn run(bench: &Bench<'_>) -> Result<Figures> {
    let opened = bench.open()?;
    let store = opened.as_ref();
    let (mut figures, loaded) = (Figures::default(), bench.scaled(LOADED));
    bench.load(store, 0..loaded)?;
    store.flush()?;
    store.wait_idle()?;
    for threads in [1, 2, 4, 16] {
        let gets = bench.scaled(GETS);
        let lap = by_threads(bench, store, loaded, threads, gets)?;
        figures.rate(&format!("{threads} thread(s): get"), &lap, gets);
    }
    Ok(figures)
}

/// Measures gets of keys drawn evenly below `loaded`, each of which must exist.
pub fn by_threads(
    bench: &Bench<'_>,
    store: &dyn KvStore,
    loaded: u64,
    threads: u64,
    gets: u64,
) -> Result<Lap> {
    let get_each = |at: u64| -> Result<()> {
        let (mut rng, mut key) = (Rng::stream(SEED, "readers", at), Vec::new());
        for _ in 0..gets / threads {
            let number = rng.below(loaded);
            bench.data.keys.encode(number, &mut key);
            match store.get(&key)? {
                Some(value) if value[..] == *bench.data.value(number) => {}
                _ => return bench.fault("a key is lost, or has another value"),
            }
        }
        Ok(())
    };
    let work = || {
        thread::scope(|scope| {
            let readers: Vec<_> =
                (0..threads).map(|at| scope.spawn(move || get_each(at))).collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader panicked"))
        })
    };
    Ok(Lap::of(work)?.1)
}
