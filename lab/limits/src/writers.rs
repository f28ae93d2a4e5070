//! Two writers of a store against one. A round fills most of one memtable. The next round waits for
//! the flushes and compactions that follow, so none runs beside a writer: the second core prepares
//! the next log segments and chunks and is idle otherwise. The time that writers still wait for a
//! core is reported separately. The rates depend on how far apart the two cores are, which a host
//! may change from one minute to the next; so the time that a cache line takes from one core to the
//! other is printed as well.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use runstone::{KeyspaceOptions, Options, Store};
use runstone_storage::process;
use runstone_workloads::median;

use crate::{VALUE, keys_from};

const PUTS: usize = 400_000;
const WARM_UPS: usize = 4;
const ROUNDS: usize = 10;
/// How often a cache line travels there and back.
const PASSES: u64 = 100_000;

/// Thousands of puts a second: by the clock, and without the time that writers waited for a core.
#[derive(Clone, Copy)]
struct Rate {
    by_clock: f64,
    on_cores: f64,
}

/// Nanoseconds until one of two threads sees what the other stored.
fn line_pass_ns() -> f64 {
    let line = CachePadded::new(AtomicU64::new(0));
    let answer = |to: u64| {
        let mut looks = 0u32;
        while line.load(Acquire) != to {
            looks += 1;
            // Both threads may be on one core: then this thread has to let the other run.
            if looks.is_multiple_of(1_000) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        line.store(to + 1, Release);
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..PASSES).for_each(|pass| answer(2 * pass + 1)));
        (0..PASSES).for_each(|pass| answer(2 * pass));
    });
    started.elapsed().as_nanos() as f64 / (2 * PASSES) as f64
}

/// Puts all keys with `writers` threads, in equal shares.
fn burst(store: &Store, keys: &[[u8; 16]], writers: usize) -> Rate {
    let start = Barrier::new(writers);
    let took: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let shares = keys.chunks(keys.len().div_ceil(writers));
        let spawn = |share: &'_ [[u8; 16]]| {
            let (start, share) = (&start, share.to_vec());
            scope.spawn(move || {
                start.wait();
                let (started, waited) = (Instant::now(), process::waited_seconds());
                for key in &share {
                    let written = store.put(key, VALUE);
                    written.expect("the disk has room");
                }
                let seconds = started.elapsed().as_secs_f64();
                (seconds, seconds - (process::waited_seconds() - waited))
            })
        };
        let threads: Vec<_> = shares.map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let slowest = |of: fn(&(f64, f64)) -> f64| took.iter().map(of).fold(0.0, f64::max);
    let rate = |seconds: f64| keys.len() as f64 / seconds / 1e3;
    Rate { by_clock: rate(slowest(|took| took.0)), on_cores: rate(slowest(|took| took.1)) }
}

/// Prints both rates for one and for two writers, and the ratios of neighbouring rounds.
pub fn compare() {
    let place = std::env::temp_dir().join(format!("runstone-limits-{}", std::process::id()));
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 20);
    let options = Options::default().memory_budget_bytes(576 << 20).keyspace(keyspace);
    let store = Store::open(&place, options).expect("temporary directory");
    let mut rates: [Vec<Rate>; 2] = Default::default();
    let mut passes = Vec::new();
    for round in 0..WARM_UPS + 2 * ROUNDS {
        // The numbers of writers are one, two, two, one, so that a drift affects both alike.
        let writers = 1 + (round + round / 2) % 2;
        let rate = burst(&store, &keys_from(round as u64, PUTS), writers);
        store.flush().and_then(|()| store.wait_idle()).expect("the disk has room");
        if round >= WARM_UPS {
            rates[writers - 1].push(rate);
            passes.push(line_pass_ns());
        }
    }
    let print = |name: &str, of: fn(&Rate) -> f64| {
        let [one, two] = [&rates[0], &rates[1]].map(|all| all.iter().map(of).collect::<Vec<_>>());
        let ratios = one.iter().zip(&two).map(|(one, two)| two / one).collect();
        println!(
            "puts of 16 + 100 B, thousands a second, {name}: one writer {:.0}, two {:.0}; \
             median of the ratios {:.2}",
            median(one),
            median(two),
            median(ratios),
        );
    };
    print("by the clock", |rate| rate.by_clock);
    print("less what they waited for a core", |rate| rate.on_cores);
    passes.sort_by(f64::total_cmp);
    let at = |part: usize| passes[(passes.len() - 1) * part / 2];
    println!(
        "a cache line passes between the cores in {:.0} ns (median; {:.0} to {:.0})",
        at(1),
        at(0),
        at(2),
    );
    drop(store);
    std::fs::remove_dir_all(place).expect("own directory");
}
