//! YCSB with files on a disk and background threads, with an eighth of the data of section 4.3. The
//! wall-clock time is shown but never judged: the disk and the neighbours of this machine
//! affect it.

use std::time::Instant;

use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_kv::Result;
use runstone_random::mix64;
use runstone_workloads::generators::{Latest, Rng, ScrambledZipfian, ValueGenerator};

use super::{Setting, WHOLE_DATABASE, c_name};
use crate::engine::{padded, scan_values};
use crate::numbers::strokes;
use crate::report::rows;
use crate::sides::Side;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// The data is divided by this: each flush is synced, so a load takes minutes. The smaller tree is
/// one level shallower.
const DIVISOR: u64 = 8;
const OPERATIONS: u64 = 10_000;
const ENTRIES_PER_SCAN: u64 = 100;
/// The least size that a memtable may have.
const LEAST_BUFFER_BYTES: u64 = 64 << 10;

rows! {
    BY_CLOCK = "kops/s by the clock on files with two threads, load; A; C; D; E, c = 1 / 0.8 / 0.4",
        "15% more; at par; 4% and 24% more; 20% more; at par (figure 4)"
        => Beside("the clock of a machine; the page cache holds all");
    HELD_BACK = "share of that load in which writers were held back",
        "" => Beside("the clock of a machine");
}

/// Each mix with its percentage of writes.
const MIXES: [(&str, u64); 4] = [("A", 50), ("C", 0), ("D", 5), ("E", 5)];

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let cs = [1000, 800, 400];
    let side = |c| Side::keyspace(&c_name(c), &options(context, &setting(c)));
    report.compare(&cs.map(side), &[])?;
    let mut seen = Vec::new();
    for c in cs {
        context.say(&format!("YCSB on files, {}", c_name(c)));
        seen.push(measure(context, &setting(c))?);
    }
    let column = |at: usize| strokes(seen.iter().map(|one: &Seen| one.kops[at]), 1);
    let all = (0..=MIXES.len()).map(column);
    report.show(BY_CLOCK, all.collect::<Vec<_>>().join("; "));
    report.show(HELD_BACK, strokes(seen.iter().map(|one| one.held_back_percent), 1) + " %");
    Ok(())
}

fn setting(c_permille: u32) -> Setting {
    Setting { c_permille, records: WHOLE_DATABASE.records / DIVISOR, ..WHOLE_DATABASE }
}

/// Options with RocksDB's limits, the byte limits scaled down by the same factor as the database.
fn options(context: &Context<'_>, setting: &Setting) -> KeyspaceOptions {
    setting
        .options(context)
        .write_buffer_bytes(context.scaled(setting.flush_bytes).max(LEAST_BUFFER_BYTES))
        .l0_slowdown_runs(20)
        .l0_stop_runs(36)
        .debt_slowdown_bytes(context.scaled(64 << 20))
}

struct Seen {
    /// Thousands of operations a second, of the load and then of the mixes.
    kops: Vec<f64>,
    held_back_percent: f64,
}

fn measure(context: &Context<'_>, setting: &Setting) -> Result<Seen> {
    let stored =
        Options::default().background(Background::Threads(2)).keyspace(options(context, setting));
    let store = Store::open(context.directory(), stored)?;
    let mut rng = Rng::new(1);
    let mut values = ValueGenerator::new(&mut rng, 1.0, setting.value_bytes);
    let key = |record: u64| padded(mix64(record), setting.key_bytes);
    let mut records = setting.data(context).records;
    let started = Instant::now();
    for record in 0..records {
        store.put(key(record), values.next(setting.value_bytes))?;
    }
    let loaded = started.elapsed();
    let counters = store.metrics().counters;
    let held_back_ns = counters.delayed_ns + counters.stopped_ns;
    let held_back_percent = held_back_ns as f64 * 100.0 / loaded.as_nanos() as f64;
    let mut kops = vec![records as f64 / loaded.as_secs_f64() / 1e3];
    for (mix, writes_percent) in MIXES {
        store.wait_idle()?;
        let zipfian = ScrambledZipfian::new(records);
        let mut latest = Latest::new(records);
        let operations = context.scaled(OPERATIONS);
        let started = Instant::now();
        for _ in 0..operations {
            let is_write = rng.below(100) < writes_percent;
            let record = match mix {
                "D" => latest.next(&mut rng, records),
                _ => zipfian.next(&mut rng),
            };
            match (mix, is_write) {
                ("D" | "E", true) => {
                    store.put(key(records), values.next(setting.value_bytes))?;
                    records += 1;
                }
                (_, true) => store.put(key(record), values.next(setting.value_bytes))?,
                ("E", false) => drop(scan_values(&store, &key(record), ENTRIES_PER_SCAN)?),
                (_, false) => {
                    assert!(store.get(key(record))?.is_some(), "record {record} was written");
                }
            }
        }
        kops.push(operations as f64 / started.elapsed().as_secs_f64() / 1e3);
    }
    store.close()?;
    Ok(Seen { kops, held_back_percent })
}
