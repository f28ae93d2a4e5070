//! Compares synced writes that tasks await with synced writes for which threads block: `cargo run
//! --release -p runstone-limits --example awaited -- [SECONDS] [ROUNDS] [TASKS]`. It works in a
//! temporary directory below the working directory. Two loads take turns on one store: 64 threads,
//! and 10,000 tokio tasks on two threads. Each thread and each task has one write under way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runstone::{Keyspace, Result, Store, WriteOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const THREADS: u64 = 64;
const VALUE: [u8; 100] = [7; 100];

/// The results of a turn.
struct Turn {
    writes_per_second: f64,
    writes_per_sync: f64,
    /// The latencies of some of the writes, ascending.
    latencies: Vec<Duration>,
}

/// The state of a turn: its writes, and whether it is over.
#[derive(Default)]
struct Work {
    writes: AtomicU64,
    is_over: AtomicBool,
    latencies: Mutex<Vec<Duration>>,
}

impl Work {
    fn count(&self, own: u64, began: Instant) {
        self.writes.fetch_add(1, Relaxed);
        if own.is_multiple_of(8) {
            self.latencies.lock().expect("no panic").push(began.elapsed());
        }
    }
}

/// A key that no other writer has. Each writer has 64 of them.
fn key(writer: u64, own: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(own % 64).to_be_bytes());
    key[8..].copy_from_slice(&writer.to_be_bytes());
    key
}

fn block(keyspace: &Keyspace, writer: u64, work: &Work) -> Result<()> {
    for own in 0.. {
        if work.is_over.load(Relaxed) {
            break;
        }
        let began = Instant::now();
        keyspace.put_with(key(writer, own), VALUE, WriteOptions::sync())?;
        work.count(own, began);
    }
    Ok(())
}

async fn wait(keyspace: Keyspace, writer: u64, work: Arc<Work>) -> Result<()> {
    for own in 0.. {
        if work.is_over.load(Relaxed) {
            break;
        }
        let began = Instant::now();
        keyspace.put_later(key(writer, own), VALUE)?.await?;
        work.count(own, began);
    }
    Ok(())
}

/// Runs the work for a while, and returns the results.
fn turn(
    store: &Store,
    span: Duration,
    work: &Arc<Work>,
    run: impl FnOnce() -> Result<()> + Send,
) -> Result<Turn> {
    let (began, before) = (Instant::now(), store.metrics().counters.wal_syncs);
    std::thread::scope(|scope| {
        let run = scope.spawn(run);
        std::thread::sleep(span);
        work.is_over.store(true, Relaxed);
        run.join().expect("no panic")
    })?;
    let writes = work.writes.load(Relaxed) as f64;
    let syncs = store.metrics().counters.wal_syncs - before;
    let mut latencies = std::mem::take(&mut *work.latencies.lock().expect("no panic"));
    latencies.sort_unstable();
    let writes_per_second = writes / began.elapsed().as_secs_f64();
    Ok(Turn { writes_per_second, writes_per_sync: writes / syncs.max(1) as f64, latencies })
}

fn threads(store: &Store, span: Duration) -> Result<Turn> {
    let (work, keyspace) = (Arc::new(Work::default()), store.default_keyspace());
    turn(store, span, &work, || {
        std::thread::scope(|scope| {
            let run = |writer| {
                scope.spawn({
                    let work = &work;
                    move || block(keyspace, writer, work)
                })
            };
            let all: Vec<_> = (0..THREADS).map(run).collect();
            all.into_iter().try_for_each(|one| one.join().expect("no panic"))
        })
    })
}

fn tasks(store: &Store, runtime: &Runtime, count: u64, span: Duration) -> Result<Turn> {
    let (work, keyspace) = (Arc::new(Work::default()), store.default_keyspace());
    turn(store, span, &work, || {
        runtime.block_on(async {
            let mut all = JoinSet::new();
            for writer in 0..count {
                drop(all.spawn(wait(keyspace.clone(), writer, Arc::clone(&work))));
            }
            all.join_all().await.into_iter().collect()
        })
    })
}

fn print(who: &str, turn: &Turn) {
    let at = |permille: usize| turn.latencies.get(turn.latencies.len() * permille / 1000);
    println!(
        "{who:>12}: {:>9.0} writes/s, {:>7.1} per sync, median {:.1?}, p99 {:.1?}",
        turn.writes_per_second,
        turn.writes_per_sync,
        at(500).copied().unwrap_or_default(),
        at(990).copied().unwrap_or_default(),
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (seconds, rounds) = (numbers.next().unwrap_or(5), numbers.next().unwrap_or(5));
    let count = numbers.next().unwrap_or(10_000);
    let span = Duration::from_secs(seconds);
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let store = Store::builder(directory.path().join("store")).open()?;
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let (mut blocking, mut awaited) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let turn = threads(&store, span)?;
        print("64 threads", &turn);
        blocking.push(turn.writes_per_second);
        let turn = tasks(&store, &runtime, count, span)?;
        print(&format!("{count} tasks"), &turn);
        awaited.push(turn.writes_per_second);
    }
    let (blocking, awaited) = (median(blocking), median(awaited));
    println!("medians: {blocking:.0} and {awaited:.0} writes/s, ratio {:.2}", awaited / blocking);
    store.close()
}
