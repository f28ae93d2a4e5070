//! Scenarios: one file each, one registry line each. A scenario runs one store in its own process
//! and yields figures by name. A scenario leaves out what a store does not offer.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use runstone::Durability;
use runstone_kv::{KvStore, KvWrite};
use runstone_storage::process;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::data::Data;
use crate::peers::{self, Peer};
use crate::plan::{Plan, Setup};

mod budgets;
mod expiry;
mod hot_scans;
mod memory;
mod merge_chains;
mod overwriting;
pub mod parent;
mod range_deletes;
mod readers;
mod redb_benchmark;
mod synced_puts;
#[cfg(test)]
mod tests;
mod value_logs;

/// The sizes of redb's benchmark, which all scenarios use.
const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 150;
/// Pairs of a batch for stores that cannot load everything in one batch. redb's benchmark splits
/// RocksDB's loads at this size too.
const BATCH: u64 = 100_000;

/// A scenario that can be run.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Its description in one line.
    what: &'static str,
    /// Each part runs in a process of its own.
    parts: usize,
    run: fn(&Bench<'_>) -> Result<Figures>,
}

const fn scenario(
    name: &'static str,
    what: &'static str,
    run: fn(&Bench<'_>) -> Result<Figures>,
) -> Scenario {
    Scenario { name, what, parts: 1, run }
}

/// A scenario whose parts must not share a process.
const fn in_parts(parts: usize, scenario: Scenario) -> Scenario {
    Scenario { parts, ..scenario }
}

pub static SCENARIOS: &[Scenario] = &[
    scenario("redb-benchmark", "the rows of redb's benchmark", redb_benchmark::run),
    scenario("synced-puts", "1, 4, 16 threads, idle and right after a load", synced_puts::run),
    scenario("readers", "gets by 1, 2, 4, 16 threads", readers::run),
    scenario("overwriting", "13.5 million puts over a million keys beside gets", overwriting::run),
    scenario("hot-scans", "scans of ten keys, each put 20,000 times", hot_scans::run),
    scenario("memory", "peak resident memory of loads, gets and updates", memory::run),
    in_parts(
        budgets::CASES.len(),
        scenario("budgets", "peak memory under 96 MiB, nine cases by pairs", budgets::run),
    ),
    scenario("range-deletes", "100,000 that overlap: write, flush, compact", range_deletes::run),
    scenario("merge-chains", "16,000 operands of 1 KB on one key in tables", merge_chains::run),
    scenario("expiry", "300,000 expired entries before 1,000 alive ones", expiry::run),
    scenario("value-logs", "pointers into logs and groups of values", value_logs::run),
];

/// The scenarios with these names; `all` means all.
pub fn find(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if names == ["all"] {
        return Ok(SCENARIOS.iter().collect());
    }
    names.iter().map(|name| by_name(name)).collect()
}

fn by_name(name: &str) -> Result<&'static Scenario> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("no scenario is named {name:?}:\n{}", list()).into())
}

/// The list of scenarios, one line each.
pub fn list() -> String {
    SCENARIOS.iter().map(|one| format!("{:<16} {}\n", one.name, one.what)).collect()
}

/// Runs a part of a scenario in this process.
pub fn run(name: &str, part: usize, plan: &Plan) -> Result<Figures> {
    let scenario = by_name(name)?;
    let bench = Bench {
        peer: peers::find(&plan.engine)?,
        setup: &plan.setup,
        path: &plan.path,
        data: Data::of_sizes(KEY_BYTES, VALUE_BYTES),
        part,
    };
    let cpu = process::cpu_seconds();
    let mut figures = (scenario.run)(&bench)?;
    if !figures.0.is_empty() && scenario.parts == 1 {
        figures.add("whole run, cpu s", process::cpu_seconds() - cpu);
        figures.add("whole run, peak MiB", mebibytes(process::peak_resident_bytes()));
    }
    Ok(figures)
}

/// The store and setup of a scenario.
pub struct Bench<'a> {
    pub peer: &'static Peer,
    pub setup: &'a Setup,
    /// An empty directory.
    pub path: &'a Path,
    pub data: Data,
    /// Which of the scenario's parts this is.
    pub part: usize,
}

impl Bench<'_> {
    pub fn open(&self) -> Result<Box<dyn KvStore>> {
        Ok((self.peer.open)(&self.path.join("store"), self.setup)?)
    }

    /// A size, scaled by the factor on the command line; at least 20.
    pub fn scaled(&self, full: u64) -> u64 {
        ((full as f64 * self.setup.scale) as u64).max(20)
    }

    /// Puts the pairs of these numbers at once: in one transaction, or in batches of which the last
    /// one syncs.
    pub fn load(&self, store: &dyn KvStore, numbers: Range<u64>) -> Result<()> {
        let pair = |number| {
            let mut key = Vec::new();
            self.data.keys.encode(number, &mut key);
            (key, self.data.value(number))
        };
        if self.peer.loads_in_any_order {
            let mut pairs = numbers.map(pair).map(|(key, value)| (key, value.to_vec()));
            store.load(&mut pairs)?;
            return Ok(());
        }
        for start in numbers.clone().step_by(BATCH as usize) {
            let end = numbers.end.min(start + BATCH);
            let pairs: Vec<_> = (start..end).map(pair).collect();
            let puts: Vec<_> =
                pairs.iter().map(|(key, value)| KvWrite::Put { key, value }).collect();
            let is_last = end == numbers.end;
            store.write(&puts, if is_last { Durability::Sync } else { Durability::Buffered })?;
        }
        Ok(())
    }

    /// An error that names the store.
    pub fn fault<T>(&self, what: &str) -> Result<T> {
        Err(format!("{}: {what}", self.peer.name).into())
    }
}

/// A number with its name, which includes the unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
}

/// The figures of a scenario, in its order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push(Figure { name: name.into(), value });
    }

    /// Adds how long something took, by the clock and by the processor.
    pub fn took(&mut self, what: &str, lap: &Lap) {
        self.add(format!("{what}, s"), lap.seconds());
        self.add(format!("{what}, cpu s"), lap.cpu_seconds());
    }

    /// Adds how often something was done in a second, and how much processor time each time took.
    pub fn rate(&mut self, what: &str, lap: &Lap, count: u64) {
        self.add(format!("{what}/s"), count as f64 / lap.seconds());
        self.add(format!("{what}, cpu us each"), lap.cpu_seconds() * 1e6 / count as f64);
    }
}

/// Measures from the start of a call to its end. Processor time is that of all threads of the
/// process.
pub struct Lap {
    took: Duration,
    cpu_seconds: f64,
}

impl Lap {
    /// Times a call.
    pub fn of<T>(call: impl FnOnce() -> Result<T>) -> Result<(T, Lap)> {
        let (start, cpu) = (Instant::now(), process::cpu_seconds());
        let result = call()?;
        let cpu_seconds = process::cpu_seconds() - cpu;
        Ok((result, Lap { took: start.elapsed(), cpu_seconds }))
    }

    pub fn seconds(&self) -> f64 {
        self.took.as_secs_f64().max(1e-9)
    }

    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
