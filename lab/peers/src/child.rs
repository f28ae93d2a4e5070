//! One store in one process: the phases, the clocks, and what the kernel reports afterwards.
//!
//! Only puts are timed one by one, for their tail: reading the clock twice would add a twentieth to
//! a fast get. One hit in 64 is compared with what was loaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use runstone::Durability;
use runstone_kv::{Direction, KvStore};
use runstone_storage::process;
use runstone_workloads::generators::{Rng, ScrambledZipfian};
use runstone_workloads::{BenchSpec, Latency, NoProgress};

use crate::Result;
use crate::data::{Data, SEED};
use crate::disk::allocated_bytes;
use crate::model;
use crate::peers::{self, Peer, WrittenFrom};
use crate::plan::{KEY_BYTES, Measured, Opened, Plan, Setup, Task};
use crate::scenarios;

const COMPARED_EVERY: u64 = 64;
/// The time that the host has taken away is read once in this many puts, and after each put that is
/// the longest so far.
const STOLEN_LOOKS: u64 = 16_384;
/// Keys in the queue.
const QUEUED: u64 = 1000;
/// How many times the space of a store is measured while it is updated.
const SPACE_LOOKS: u64 = 200;

/// Carries out the plan, and returns a line of JSON.
pub fn run(plan: &Plan) -> Result<String> {
    Ok(match &plan.task {
        Task::Measure => serde_json::to_string(&measure(plan)?)?,
        Task::Open => serde_json::to_string(&open(plan)?)?,
        Task::Scenario { name, part } => {
            serde_json::to_string(&scenarios::run(name, *part, plan)?)?
        }
    })
}

fn measure(plan: &Plan) -> Result<Measured> {
    let (peer, setup) = (peers::find(&plan.engine)?, &plan.setup);
    let written_before = process::written_bytes();
    let opened = (peer.open)(&plan.path, setup)?;
    let store = opened.as_ref();
    let data = Data::new(setup);
    let mut measured = Measured { engine: store.name(), ..Measured::default() };
    load(store, setup, &data, &mut measured)?;
    if setup.settle {
        let start = Instant::now();
        store.flush()?;
        store.wait_idle()?;
        measured.settle_seconds = start.elapsed().as_secs_f64();
    }
    if setup.runs > 0 {
        compact_runs(store, &mut measured)?;
    }
    measured.hits_per_second = hits(store, setup, &data)?;
    measured.misses_per_second = misses(store, setup, &data)?;
    measured.scans_per_second = scans(store, setup, &data)?;
    if setup.updates > 0 {
        update(store, setup, &data, &plan.path, &mut measured)?;
    }
    if setup.pops > 0 {
        measured.pops_per_second = pop(store, setup, &data)?;
    }
    if !setup.benchmarks.is_empty() {
        measured.benchmarks = benchmarks(peer, plan)?;
    }
    if setup.keyspaces > 0 {
        measured.keyspace_puts_per_second = put_in_turn(peer, plan, &data)?;
    }
    if setup.increments > 0 {
        measured.counted = model::count(peer, plan)?;
    }
    if setup.range_deletes > 0 && peer.has_range_deletes {
        measured.range_deleted = model::delete_ranges(peer, plan, &data)?;
    }
    measured.peak_bytes = process::peak_resident_bytes();
    measured.disk_open_bytes = allocated_bytes(&plan.path)?;
    measured.write_call_bytes = process::written_bytes() - written_before;
    measured.written_bytes = match peer.written_from {
        WrittenFrom::Process => measured.write_call_bytes,
        WrittenFrom::Store => store.metrics()?.bytes_written,
    };
    drop(opened);
    measured.disk_bytes = allocated_bytes(&plan.path)?;
    Ok(measured)
}

fn open(plan: &Plan) -> Result<Opened> {
    let peer = peers::find(&plan.engine)?;
    let mut key = Vec::new();
    Data::new(&plan.setup).keys.encode(plan.setup.num / 2, &mut key);
    let start = Instant::now();
    let store = (peer.open)(&plan.path, &plan.setup)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let found = store.get(&key)?.is_some();
    let first_get_us = start.elapsed().as_secs_f64() * 1e6;
    if !found {
        return Err(format!("{} lost a key over a reopen", peer.name).into());
    }
    Ok(Opened { open_ms, first_get_us })
}

/// Puts every number once. Keys are hashes, so the order of numbers is a random order of keys.
fn load(store: &dyn KvStore, setup: &Setup, data: &Data, measured: &mut Measured) -> Result<()> {
    let start = Instant::now();
    let results: Vec<Result<Puts>> = std::thread::scope(|scope| {
        let cut = |part: u64| setup.num * part / setup.writers;
        let run = setup.num.checked_div(setup.runs).unwrap_or(u64::MAX).max(1);
        let spawn =
            |part| scope.spawn(move || put_each(store, data, run, cut(part)..cut(part + 1)));
        let handles: Vec<_> = (0..setup.writers).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a writer panicked")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut puts = Puts::default();
    for result in results {
        let one = result?;
        puts.latency.add(&one.latency);
        puts.own_worst = puts.own_worst.max(one.own_worst);
    }
    measured.loads_per_second = setup.num as f64 / seconds;
    measured.put_p50_us = puts.latency.quantile_us(0.5);
    measured.put_p999_us = puts.latency.quantile_us(0.999);
    measured.put_worst_ms = puts.latency.max_us() / 1e3;
    measured.put_own_worst_ms = puts.own_worst.as_secs_f64() * 1e3;
    Ok(())
}

/// How long puts took.
#[derive(Debug, Default)]
struct Puts {
    latency: Latency,
    /// The longest put during which the host of a virtual machine took no processor time away.
    own_worst: Duration,
}

impl Puts {
    /// Records a put. If it is the longest so far, or one in many, also reads the time that the
    /// host has taken away so far.
    fn record(&mut self, number: u64, took: Duration, stolen_seconds: &mut f64) {
        self.latency.record(took);
        if took > self.own_worst || number.is_multiple_of(STOLEN_LOOKS) {
            let before = std::mem::replace(stolen_seconds, process::stolen_seconds());
            if took > self.own_worst && before == *stolen_seconds {
                self.own_worst = took;
            }
        }
    }
}

/// Puts each number, and flushes after every `run` puts.
fn put_each(
    store: &dyn KvStore,
    data: &Data,
    run: u64,
    numbers: std::ops::Range<u64>,
) -> Result<Puts> {
    let (mut puts, mut key) = (Puts::default(), Vec::new());
    let mut stolen_seconds = process::stolen_seconds();
    for number in numbers {
        data.keys.encode(number, &mut key);
        let value = data.value(number);
        let start = Instant::now();
        store.put(&key, value, Durability::Buffered)?;
        puts.record(number, start.elapsed(), &mut stolen_seconds);
        if (number + 1).is_multiple_of(run) {
            store.flush()?;
        }
    }
    Ok(puts)
}

/// Compacts all runs into one.
fn compact_runs(store: &dyn KvStore, measured: &mut Measured) -> Result<()> {
    store.flush()?;
    store.wait_idle()?;
    measured.compacted_bytes = store.metrics()?.disk_bytes;
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    store.compact()?;
    store.wait_idle()?;
    measured.compaction_seconds = start.elapsed().as_secs_f64();
    measured.compaction_cpu_seconds = process::cpu_seconds() - cpu;
    Ok(())
}

/// Replaces values of keys drawn from a zipfian distribution, waits until the compactions and
/// collections that follow are done, and measures the space on disk from time to time.
fn update(
    store: &dyn KvStore,
    setup: &Setup,
    data: &Data,
    path: &Path,
    measured: &mut Measured,
) -> Result<()> {
    let (mut rng, mut key) = (Rng::stream(SEED, "updates", 0), Vec::new());
    let zipfian = ScrambledZipfian::new(setup.num);
    let looks = (setup.updates / SPACE_LOOKS).max(1);
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    for turn in 1..=setup.updates {
        let number = zipfian.next(&mut rng);
        data.keys.encode(number, &mut key);
        store.put(&key, data.value(number + turn), Durability::Buffered)?;
        if turn.is_multiple_of(looks) {
            measured.update_disk_bytes = measured.update_disk_bytes.max(allocated_bytes(path)?);
        }
    }
    store.flush()?;
    store.wait_idle()?;
    measured.updates_per_second = setup.updates as f64 / start.elapsed().as_secs_f64();
    measured.update_cpu_us = (process::cpu_seconds() - cpu) * 1e6 / setup.updates as f64;
    Ok(())
}

/// Measures a queue of [`QUEUED`] keys before all others, so that each scan begins at deleted keys.
fn pop(store: &dyn KvStore, setup: &Setup, data: &Data) -> Result<f64> {
    let key = |number: u64| u128::from(number).to_be_bytes();
    let push = |number| store.put(&key(number), data.value(number), Durability::Buffered);
    (0..QUEUED).try_for_each(push)?;
    let start = Instant::now();
    for number in 0..setup.pops {
        push(number + QUEUED)?;
        let mut first = Vec::new();
        store.scan(None, Direction::Forward, &mut |found, _| {
            first.extend_from_slice(found);
            false
        })?;
        if first != key(number) {
            return Err(format!("{}: key {number} of the queue is lost", store.name()).into());
        }
        store.delete(&first, Durability::Buffered)?;
    }
    Ok(setup.pops as f64 / start.elapsed().as_secs_f64())
}

/// Runs the requested benchmarks, one after another, on a store of their own.
fn benchmarks(peer: &Peer, plan: &Plan) -> Result<BTreeMap<String, f64>> {
    let (setup, path) = (&plan.setup, plan.path.with_extension("benchmarks"));
    let store = (peer.open)(&path, setup)?;
    let spec = BenchSpec {
        num: setup.num,
        reads: Some(setup.reads),
        value_bytes: setup.value_bytes,
        measure_space: false,
        ..BenchSpec::default()
    };
    let names: Vec<&str> = setup.benchmarks.iter().map(String::as_str).collect();
    let report = runstone_workloads::run(store.as_ref(), &names, &spec, &NoProgress)?;
    drop(store);
    fs::remove_dir_all(&path)?;
    Ok(report.benchmarks.into_iter().map(|run| (run.name, run.ops_per_second)).collect())
}

/// Puts into a tenth of many keyspaces in turn.
fn put_in_turn(peer: &Peer, plan: &Plan, data: &Data) -> Result<f64> {
    let (setup, path) = (&plan.setup, plan.path.with_extension("keyspaces"));
    let Some(open) = peer.open_keyspaces else {
        return Err(format!("{} is not set up with many keyspaces", peer.name).into());
    };
    let put = open(&path, setup)?;
    let (written, mut key) = ((setup.keyspaces / 10).max(1), Vec::new());
    let start = Instant::now();
    for number in 0..setup.num {
        data.keys.encode(number, &mut key);
        put(number as usize % written, &key, data.value(number))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(put);
    fs::remove_dir_all(&path)?;
    Ok(setup.num as f64 / seconds)
}

fn hits(store: &dyn KvStore, setup: &Setup, data: &Data) -> Result<f64> {
    let (mut rng, mut key) = (Rng::stream(SEED, "hits", 0), Vec::new());
    let start = Instant::now();
    for turn in 0..setup.reads {
        let number = rng.below(setup.num);
        data.keys.encode(number, &mut key);
        let Some(value) = store.get(&key)? else {
            return Err(format!("{}: key {number} is lost", store.name()).into());
        };
        if turn.is_multiple_of(COMPARED_EVERY) && value[..] != *data.value(number) {
            return Err(format!("{}: key {number} has the wrong value", store.name()).into());
        }
    }
    Ok(setup.reads as f64 / start.elapsed().as_secs_f64())
}

fn misses(store: &dyn KvStore, setup: &Setup, data: &Data) -> Result<f64> {
    let (mut rng, mut key) = (Rng::stream(SEED, "misses", 0), Vec::new());
    let start = Instant::now();
    for _ in 0..setup.reads {
        let number = setup.num + rng.below(setup.num);
        data.keys.encode(number, &mut key);
        if store.get(&key)?.is_some() {
            return Err(format!("{}: key {number} was never written", store.name()).into());
        }
    }
    Ok(setup.reads as f64 / start.elapsed().as_secs_f64())
}

fn scans(store: &dyn KvStore, setup: &Setup, data: &Data) -> Result<f64> {
    let (mut rng, mut key) = (Rng::stream(SEED, "scans", 0), Vec::new());
    let start = Instant::now();
    for _ in 0..setup.scans {
        data.keys.encode(rng.below(setup.num), &mut key);
        let (mut entries, mut bytes) = (0, 0);
        store.scan(Some(&key), Direction::Forward, &mut |found, value| {
            entries += 1;
            bytes += found.len() + value.len();
            entries < setup.scan_length
        })?;
        if bytes != entries as usize * (KEY_BYTES + setup.value_bytes) || entries == 0 {
            return Err(format!("{}: a scan saw {bytes} bytes", store.name()).into());
        }
    }
    Ok(setup.scans as f64 / start.elapsed().as_secs_f64())
}
