//! PTierDB: what adaptive tiering writes, reads and holds beside leveling, tiering and lazy
//! leveling (Liu and Zhou), on the engine. All sizes are the paper's divided by one number, 64 or
//! 100: memtable, capacity of level 1, T_s, the bytes that a compaction may rewrite per access, and
//! the data.
//!
//! 1. Table I and figure 7: load, then the mixes A, B, C, F, D in the order of the paper. By 64.
//! 2. Figure 2: leveling, tiering and lazy leveling at T = 6, load and mix A. By 100: 1M records
//!    and operations for the paper's 100M.
//! 3. Figure 6: uniform writes, then uniform reads. By 100: 500,000 of each for 50M.
//! 4. Figure 7: the mixes of 1 with files on the disk.
//!
//! Jobs run between operations, so that a latency is the work of an operation with its share of the
//! compactions; files are in memory but for 4, so that counters are functions of the options.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::policy::options::{IntraLevel, PolicyOptions};
use runstone::policy::shape::Level;
use runstone::storage::MemoryStorage;
use runstone::storage::random::mix64;
use runstone::{Event, EventListener, KeyspaceOptions, Options, Result, Store};
use runstone_workloads::generators::{Latest, Rng, ScrambledZipfian, ValueGenerator};

use super::context::Part;
use super::engine::{
    cpu_time, do_jobs, plain_options, scan_values, stepped_options, table_bytes_written,
    write_amplification,
};
use super::numbers::{list, ratio, strokes};
use super::report::{bars, rows};
use super::sides::Side;
use super::verdict::Rule::*;
use super::{Context, PaperReport};

/// What the paper's sizes are divided by in table I and figure 7, and in figures 2 and 6.
const DIVISOR: u64 = 64;
const FIGURES_DIVISOR: u64 = 100;
/// The paper's memtable, level 1 and T_s.
const FLUSH_BYTES: u64 = 16 << 20;
const BASE_BYTES: u64 = 10 << 20;
const SPLIT_BYTES: u64 = 4 << 20;
/// The default.
const ACCESS_BYTES: u64 = 28 << 10;
/// 100 M records of 16 + 100 bytes.
const RECORDS: u64 = 100_000_000 / DIVISOR;
const KEY_DIGITS: u64 = 10_000_000_000_000_000;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// Operations between two looks for jobs: a flush is hundreds of times that.
const OPERATIONS_PER_LOOK: u64 = 32;
/// Looks for jobs between two looks at the size of the store, about two per flush of a load.
const LOOKS_PER_SIZE: u64 = 32;
/// Policies take turns within a phase.
const TURNS: u64 = 40;

/// The mixes of the first run, with percentages of updates and read-modify-writes.
const MIXES: [(&str, u64, u64); 5] =
    [("A", 50, 0), ("B", 5, 0), ("C", 0, 0), ("F", 0, 50), ("D", 5, 0)];

rows! {
    WRITTEN_RATIO = "write amplification of PTierDB over leveled (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_TIERED = "write amplification of tiered over leveled (table I)",
        "4.91 / 25.34 = 0.19" => Ratios(&[0.194]);
    WRITTEN_LAZY = "write amplification of lazy leveling over leveled (table I)",
        "7.3 / 25.34 = 0.29" => Ratios(&[0.288]);
    WRITTEN_LAST = "the same with merges inside the last level only, the paper's rule (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_FRAGMENTED = "write amplification of PTierDB over fragmented leveling",
        "" => NotComparable("LevelDB's way: the paper's leveled tree compacts whole levels");
    SIZE_TIERED = "size of tiered over leveled (table I)",
        "14.84 / 7.91 GB = 1.88" => Ratios(&[1.876]);
    SIZE_FLUSHED = "size of all that tiered flushed over leveled: a tree that never compacts",
        "" => NotComparable("no tree can hold more");
    SIZE_PEAK = "largest size over the bytes of all records: leveled, tiered, PTierDB",
        "" => NotComparable("not in the paper: at any time from a tenth of the load on");
    SIZE_PTIERDB = "size of PTierDB over leveled (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_LAST = "the same with merges inside the last level only, the paper's rule (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    PROBES_C = "tables probed per get in YCSB C, PTierDB over leveled",
        "" => NotComparable("not in the paper");
    MIX_LATENCY = "average latency of YCSB {} with files in memory, PTierDB over leveled",
        "" => NotComparable("processor time in memory, where a byte written costs a copy");
    MIX_WRITTEN = "MB written in A, B, C, F, D: PTierDB; leveled; last level",
        "" => NotComparable("not in the paper: what reads trigger is in B and C");
    MIX_PROBES = "tables probed per get in A, B, C, F, D: PTierDB; leveled; last level",
        "" => NotComparable("not in the paper; filters asked included");
    BLOCKS_C = "data blocks per get in YCSB C: PTierDB, leveled, tiered",
        "" => NotComparable("with filters of 10 bits hardly a block is read in vain");
    FIGURE_2_WRITTEN = "write amplification: leveling, lazy leveling, tiering (figure 2)",
        "leveling worst, lazy leveling between" => Falls;
    FIGURE_2_BLOCKS = "data blocks per get: leveling, lazy leveling, tiering (figure 2)",
        "leveling best, lazy leveling between" => Rises;
    FIGURE_6B = "time per get with filters of 10 bits, tiered over PTierDB (figure 6b)",
        "reads 1.5 to 2 times as fast" => Ratios(&[1.5]);
    FIGURE_6B_BLOCKS = "blocks per get without filters, tiered over PTierDB (figure 6b)",
        "reads 1.5 to 2 times as fast" => NotComparable("the paper has filters of 10 bits");
    FIGURE_6A = "bytes of the writes, for their throughput, PTierDB over tiered (figure 6a)",
        "close to tiered" => Alike(0.3);
    FIGURE_6A_APART = "the writes of {} taken apart, per byte of the user (figure 6a)",
        "" => NotComparable("in brackets what is left of the bytes that compactions read");
    SCANS_SETTLED = "time of scans of 100 entries once settled, PTierDB over leveled (figure 7)",
        "PTierDB faster" => Falls;
    MIX_LATENCY_FILES =
        "processor time of YCSB {} on files, PTierDB over leveled (section I, figure 7)",
        "1.2 to 2.5 times as fast: 0.83" => Ratios(&[0.833]);
    MIX_LATENCY_FRAGMENTED = "the same against fragmented leveling",
        "" => NotComparable("LevelDB's way, not the paper's baseline");
}

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "leveled is full leveling, as in the paper; latencies are processor time per operation, \
         compactions included",
    );
    let parts: [Part<Context<'_>>; 5] = [
        ("files", on_files),
        ("table-one", table_one),
        ("baselines", baselines),
        ("uniform", microbenchmark),
        ("scans", scans),
    ];
    context.measure(context, report, &parts)
}

/// What one policy did in the first run.
struct FirstRun {
    name: &'static str,
    load: Phase,
    mixes: Vec<Phase>,
    live_bytes: u64,
    peak_space: f64,
}

impl FirstRun {
    fn sum(&self, value: fn(&CounterValues) -> u64) -> u64 {
        let phases = std::iter::once(&self.load).chain(&self.mixes);
        phases.map(|phase| value(&phase.counters)).sum()
    }

    fn write_amplification(&self) -> f64 {
        self.sum(table_bytes_written) as f64 / self.sum(|of| of.user_bytes_written) as f64
    }
}

/// One phase.
struct Phase {
    counters: CounterValues,
    /// Of processor time.
    us_per_operation: f64,
    /// Of time on the clock.
    wall_us: f64,
}

impl Phase {
    fn tables_per_get(&self) -> f64 {
        self.counters.tables_probed as f64 / self.counters.gets.max(1) as f64
    }

    fn blocks_per_get(&self) -> f64 {
        self.counters.blocks_searched as f64 / self.counters.gets.max(1) as f64
    }
}

fn table_one(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let policies = [
        ("leveled", options("leveling", 10, DIVISOR)),
        ("tiered", options("tiering", 10, DIVISOR)),
        ("lazy-leveled", options("lazy-leveling", 10, DIVISOR)),
        ("PTierDB, every level", options("adaptive-tiering", 10, DIVISOR)),
        ("PTierDB, last level", {
            let mut last = options("adaptive-tiering", 10, DIVISOR);
            last.shape.intra_level = IntraLevel::Last;
            last
        }),
        ("fragmented", options("fragmented-leveling", 10, DIVISOR)),
    ];
    report.compare(&sides_of(&policies), &[])?;
    let runs = first_runs(context, policies, || None)?;
    judge_writes(report, &runs);
    show_reads(report, &runs);
    draw(report, &runs);
    Ok(())
}

fn judge_writes(report: &mut PaperReport, runs: &[FirstRun; 6]) {
    let [leveled, tiered, _, every, last, _] = runs;
    let [of_leveled, of_tiered, of_lazy, of_every, of_last, of_fragmented] =
        runs.each_ref().map(FirstRun::write_amplification);
    for (row, one) in [
        (WRITTEN_RATIO, of_every),
        (WRITTEN_LAST, of_last),
        (WRITTEN_TIERED, of_tiered),
        (WRITTEN_LAZY, of_lazy),
    ] {
        let (text, of_all) = ratio(one, of_leveled, 2, "");
        report.judge(row, text, &[of_all]);
    }
    report.show(WRITTEN_FRAGMENTED, ratio(of_every, of_fragmented, 2, "").0);
    let size = |run: &FirstRun| run.live_bytes as f64 / leveled.live_bytes as f64;
    report.judge(SIZE_TIERED, format!("{:.2}", size(tiered)), &[size(tiered)]);
    let flushed = tiered.sum(|counters| counters.flush_bytes_written);
    report.show(SIZE_FLUSHED, format!("{:.2}", flushed as f64 / leveled.live_bytes as f64));
    report.show(SIZE_PEAK, list([leveled, tiered, every].map(|run| run.peak_space), 2));
    report.judge(SIZE_PTIERDB, format!("{:.2}", size(every)), &[1.0, size(every)]);
    report.judge(SIZE_LAST, format!("{:.2}", size(last)), &[1.0, size(last)]);
}

fn show_reads(report: &mut PaperReport, runs: &[FirstRun; 6]) {
    let [leveled, tiered, _, every, last, _] = runs;
    let probes = |run: &FirstRun| run.mixes[2].tables_per_get();
    let (text, _) = ratio(probes(every), probes(leveled), 2, "");
    let (probes_last, probes_tiered) = (probes(last), probes(tiered));
    report
        .show(PROBES_C, format!("{text}; last level {probes_last:.2}, tiered {probes_tiered:.2}"));
    for (at, (mix, ..)) in MIXES.iter().enumerate() {
        let took = |run: &FirstRun| run.mixes[at].us_per_operation;
        let (text, _) = ratio(took(every), took(leveled), 2, " us");
        report.show(MIX_LATENCY.of(&[&mix]), format!("{text}; last level {:.2} us", took(last)));
    }
    let per_mix = |value: fn(&Phase) -> f64| {
        let of = |run: &FirstRun| list(run.mixes.iter().map(value), 2);
        format!("{}; {}; {}", of(every), of(leveled), of(last))
    };
    report.show(MIX_WRITTEN, per_mix(|phase| table_bytes_written(&phase.counters) as f64 / 1e6));
    report.show(MIX_PROBES, per_mix(Phase::tables_per_get));
    report
        .show(BLOCKS_C, list([every, leveled, tiered].map(|run| run.mixes[2].blocks_per_get()), 3));
}

fn draw(report: &mut PaperReport, runs: &[FirstRun]) {
    let mixes = MIXES.map(|(mix, ..)| format!("YCSB {mix}"));
    let per_mix = |value: fn(&Phase) -> f64| {
        runs.iter().map(|run| bars(run.name, run.mixes.iter().map(value))).collect()
    };
    let titles = ["Average latency", "mix", "us per operation"];
    report.draw_bars("figure-7", titles, &mixes, per_mix(|phase| phase.us_per_operation));
    let titles = ["Tables probed per get", "mix", "tables"];
    report.draw_bars("probes", titles, &mixes, per_mix(Phase::tables_per_get));
    let written = |run: &FirstRun| {
        let values = [write_amplification(&run.load.counters), run.write_amplification()];
        bars(run.name, values)
    };
    report.draw_bars(
        "table-1",
        ["Write amplification of load and mixes", "phase", "table bytes written / user bytes"],
        ["load", "all"],
        runs.iter().map(written).collect(),
    );
}

/// Figure 2: 256 B entries, T = 6, load and mix A.
fn baselines(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let (mut written, mut blocks) = (Vec::new(), Vec::new());
    let policies = ["leveling", "lazy-leveling", "tiering"].map(|policy| {
        let mut options = options(policy, 6, FIGURES_DIVISOR);
        // With filters hardly any block is read in vain, whatever the policy.
        options.filter_bits_per_key_x10 = 0;
        (policy, options)
    });
    report.compare(&sides_of(&policies), &[])?;
    for (policy, options) in policies {
        context.say(&format!("1M entries of 256 bytes, T = 6, mix A: {policy}"));
        let mut tree = Tree::in_memory(options, 240)?;
        let records = context.scaled(1_000_000);
        tree.load(records)?;
        tree.mix(&ScrambledZipfian::new(records), records, 50, 0)?;
        let all = tree.phase();
        written.push(write_amplification(&all.counters));
        blocks.push(all.blocks_per_get());
    }
    report.judge(FIGURE_2_WRITTEN, strokes(&written, 2), &written);
    report.judge(FIGURE_2_BLOCKS, strokes(&blocks, 4), &blocks);
    Ok(())
}

/// Figure 6: half a million uniform writes, as many uniform reads, then reads again once the
/// compactions that reads ask for have settled.
fn microbenchmark(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let policies = [("tiered", "tiering"), ("PTierDB", "adaptive-tiering")]
        .map(|(name, policy)| (name, options(policy, 10, FIGURES_DIVISOR)));
    report.compare(&sides_of(&policies), &[])?;
    let [tiered, ptierdb] = uniform(context, &policies)?;
    let (text, more) = ratio(ptierdb.written, tiered.written, 2, "");
    report.judge(FIGURE_6A, text, &[1.0, more]);
    for (name, one) in [("tiered", &tiered), ("PTierDB", &ptierdb)] {
        report.show(FIGURE_6A_APART.of(&[&name]), &*one.apart);
    }
    let (text, faster) = ratio(tiered.get_us, ptierdb.get_us, 2, " us");
    report.judge(FIGURE_6B, text, &[faster]);
    // Filters hide what overlaps: without them the blocks tell.
    let policies = policies.map(|(name, mut options)| {
        options.filter_bits_per_key_x10 = 0;
        (name, options)
    });
    report.compare(&sides_of(&policies), &[])?;
    let [tiered, ptierdb] = uniform(context, &policies)?;
    report.show(FIGURE_6B_BLOCKS, ratio(tiered.get_blocks, ptierdb.get_blocks, 2, "").0);
    Ok(())
}

/// What one policy did in figure 6.
struct Uniform {
    written: f64,
    /// Its writes taken apart.
    apart: String,
    get_blocks: f64,
    /// Of processor time.
    get_us: f64,
}

fn uniform(
    context: &Context<'_>,
    policies: &[(&'static str, KeyspaceOptions); 2],
) -> Result<[Uniform; 2]> {
    let operations = context.scaled(500_000);
    let (mut trees, mut seen) = (Vec::new(), Vec::new());
    for (name, options) in policies {
        context.say(&format!("uniform writes, then reads: {name}"));
        let mut tree = Tree::in_memory(options.clone(), VALUE_BYTES)?;
        tree.records = operations;
        let mut written = HashSet::new();
        for _ in 0..operations {
            let record = tree.rng.below(operations);
            written.insert(record);
            tree.put(record)?;
        }
        let writes = tree.phase();
        let apart = taken_apart(&tree, &writes, written.len());
        tree.uniform_gets(2 * operations)?;
        tree.phase();
        let written = write_amplification(&writes.counters);
        trees.push(tree);
        seen.push(Uniform { written, apart, get_blocks: 0.0, get_us: f64::INFINITY });
    }
    // In turns, and the least of five: what disturbs the machine disturbs both.
    for _ in 0..5 {
        for (tree, seen) in trees.iter_mut().zip(&mut seen) {
            let started = cpu_time();
            tree.uniform_gets(operations / 5)?;
            let us = (cpu_time() - started).as_secs_f64() * 1e6 / (operations / 5).max(1) as f64;
            seen.get_us = seen.get_us.min(us);
            seen.get_blocks = tree.phase().blocks_per_get();
        }
    }
    Ok(seen.try_into().unwrap_or_else(|_| unreachable!("one for each policy")))
}

fn sides_of(policies: &[(&'static str, KeyspaceOptions)]) -> Vec<Side> {
    policies.iter().map(|(name, options)| Side::keyspace(name, options)).collect()
}

/// What flushes and compactions of each reason wrote, and how much of the tree is obsolete.
fn taken_apart(tree: &Tree, phase: &Phase, distinct: usize) -> String {
    let shape = tree.store.default_keyspace().shape();
    let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
    let obsolete = obsolete_share(entries, distinct as u64);
    let user_bytes = phase.counters.user_bytes_written;
    let flushed = phase.counters.flush_bytes_written as f64 / user_bytes.max(1) as f64;
    let levels: Vec<String> = (1..)
        .zip(shape.levels.iter().skip(1))
        .filter_map(|(index, level)| match level {
            Level::Overlapping(tables) if !tables.is_empty() => {
                let percent = tables.stats().obsolete_permille() as f64 / 10.0;
                Some(format!("L{index} {percent:.0}%"))
            }
            _ => None,
        })
        .collect();
    format!(
        "flushes {flushed:.2}; {}; {:.0}% of the tree is obsolete at the end{}",
        tree.reasons.text(user_bytes),
        obsolete * 100.0,
        match levels.is_empty() {
            true => String::new(),
            false => format!(", by level as estimated {}", levels.join(", ")),
        }
    )
}

/// The share of the tables' entries that is obsolete. What is in memory counts among the distinct
/// keys, not among the entries.
fn obsolete_share(entries: u64, distinct: u64) -> f64 {
    entries.saturating_sub(distinct) as f64 / entries.max(1) as f64
}

/// The second run of the paper, mix E: scans of 100 entries when the compactions inside levels
/// are done.
fn scans(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let records = context.scaled(RECORDS / 4);
    let mut trees = Vec::new();
    let policies = [("leveled", "leveling"), ("PTierDB", "adaptive-tiering")]
        .map(|(name, policy)| (name, options(policy, 10, DIVISOR)));
    report.compare(&sides_of(&policies), &[])?;
    for (name, options) in policies {
        context.say(&format!("scans of 100 entries: {name}"));
        let mut tree = Tree::in_memory(options, VALUE_BYTES)?;
        tree.load(records)?;
        tree.uniform_gets(4 * records)?;
        trees.push(tree);
    }
    // In turns, so that what disturbs the machine disturbs both.
    let mut took = [f64::INFINITY; 2];
    for _ in 0..5 {
        for (tree, best) in trees.iter_mut().zip(&mut took) {
            *best = best.min(tree.scan_us(context.scaled(2_000), 100)?);
        }
    }
    let sought = |tree: &Tree| {
        let counters = tree.store.metrics().counters;
        counters.runs_sought as f64 / counters.seeks.max(1) as f64
    };
    let (text, _) = ratio(took[1], took[0], 1, " us");
    report.judge(
        SCANS_SETTLED,
        format!("{text}; runs sought {:.1} / {:.1}", sought(&trees[1]), sought(&trees[0])),
        &took,
    );
    Ok(())
}

/// Figure 7, with files on the disk as in the paper: a byte written costs what the system does for
/// it. In memory it costs a copy, so that leveling's bytes are nearly free.
fn on_files(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let policies = [
        ("leveled", options("leveling", 10, DIVISOR)),
        ("PTierDB", options("adaptive-tiering", 10, DIVISOR)),
        ("fragmented", options("fragmented-leveling", 10, DIVISOR)),
    ];
    report.compare(&sides_of(&policies), &[])?;
    let runs = first_runs(context, policies, || Some(context.directory()))?;
    let [leveled, ptierdb, fragmented] = &runs;
    for (at, (mix, ..)) in MIXES.iter().enumerate() {
        let against = |other: &FirstRun, value: fn(&Phase) -> f64| {
            ratio(value(&ptierdb.mixes[at]), value(&other.mixes[at]), 2, " us").0
        };
        let text = |other: &FirstRun| {
            let worked = against(other, |phase| phase.us_per_operation);
            format!("{worked}; by the clock {}", against(other, |phase| phase.wall_us))
        };
        report.judge(
            MIX_LATENCY_FILES.of(&[&mix]),
            text(leveled),
            &[ptierdb.mixes[at].us_per_operation / leveled.mixes[at].us_per_operation],
        );
        report.show(MIX_LATENCY_FRAGMENTED, text(fragmented));
    }
    Ok(())
}

/// The policies take turns, so that what disturbs the machine disturbs all of them.
fn first_runs<const N: usize>(
    context: &Context<'_>,
    policies: [(&'static str, KeyspaceOptions); N],
    directory: impl Fn() -> Option<PathBuf>,
) -> Result<[FirstRun; N]> {
    let records = context.scaled(RECORDS);
    let mut trees = Vec::new();
    for (name, options) in policies {
        let mut tree = Tree::open(options, VALUE_BYTES, directory())?;
        tree.peak_from = records / 10;
        trees.push((name, tree, Vec::new()));
    }
    context.say("load");
    in_turns(&mut trees, records, |_| Box::new(|tree, count| tree.load(tree.records + count)))?;
    for (name, updates, modifies) in MIXES {
        context.say(&format!("mix {name}"));
        in_turns(&mut trees, records, |tree| match name {
            "D" => {
                let mut chooser = Latest::new(tree.records);
                Box::new(move |tree, count| tree.latest(&mut chooser, count, updates))
            }
            _ => {
                let chooser = ScrambledZipfian::new(tree.records);
                Box::new(move |tree, count| tree.mix(&chooser, count, updates, modifies))
            }
        })?;
    }
    let run = |(name, tree, mut phases): (_, Tree, Vec<Phase>)| FirstRun {
        name,
        live_bytes: tree.store.default_keyspace().shape().bytes(),
        peak_space: tree.peak_space,
        load: phases.remove(0),
        mixes: phases,
    };
    let runs: Vec<FirstRun> = trees.into_iter().map(run).collect();
    Ok(runs.try_into().unwrap_or_else(|_| unreachable!("a run for each policy")))
}

/// Does a number of operations to one tree.
type Step = Box<dyn FnMut(&mut Tree, u64) -> Result<()>>;

/// A phase of `operations` operations on each tree. The trees take turns.
fn in_turns(
    trees: &mut [(&str, Tree, Vec<Phase>)],
    operations: u64,
    step_for: impl Fn(&Tree) -> Step,
) -> Result<()> {
    let mut steps: Vec<Step> = trees.iter().map(|(_, tree, _)| step_for(tree)).collect();
    let mut took = vec![(Duration::ZERO, Duration::ZERO); trees.len()];
    for turn in 0..TURNS {
        let count = operations * (turn + 1) / TURNS - operations * turn / TURNS;
        for (((_, tree, _), step), took) in trees.iter_mut().zip(&mut steps).zip(&mut took) {
            let (cpu_started, started) = (cpu_time(), Instant::now());
            step(tree, count)?;
            took.0 += cpu_time() - cpu_started;
            took.1 += started.elapsed();
        }
    }
    let us = |took: Duration| took.as_secs_f64() * 1e6 / operations.max(1) as f64;
    for ((_, tree, phases), (cpu, wall)) in trees.iter_mut().zip(took) {
        phases.push(Phase { us_per_operation: us(cpu), wall_us: us(wall), ..tree.phase() });
    }
    Ok(())
}

/// The paper's set-up at this scale: 10 filter bits, level 0 of four runs.
fn options(policy: &str, size_ratio: u32, divisor: u64) -> KeyspaceOptions {
    KeyspaceOptions {
        shape: PolicyOptions {
            size_ratio,
            l0_trigger: 4,
            base_bytes: BASE_BYTES / divisor,
            table_bytes: SPLIT_BYTES / divisor,
            split_bytes: SPLIT_BYTES / divisor,
            access_bytes: ACCESS_BYTES / divisor,
            ..PolicyOptions::default()
        },
        write_buffer_bytes: FLUSH_BYTES / divisor,
        filter_bits_per_key_x10: 100,
        ..plain_options(policy)
    }
}

/// What compactions read and wrote, by the policy's reason.
#[derive(Debug, Default)]
struct Reasons(Mutex<BTreeMap<&'static str, Reason>>);

#[derive(Clone, Copy, Debug, Default)]
struct Reason {
    compactions: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// Words of the reasons of adaptive tiering and tiering, and what they stand for. The first match
/// counts.
const REASONS: [(&str, &str); 7] = [
    ("compaction and split", "compaction and split of level 0"),
    ("accesses of", "inside a level, by accesses"),
    ("tables overlap at", "inside a level, deeper than T"),
    ("most overlap at", "inside a level, obsolete"),
    ("is obsolete", "sunk early, obsolete"),
    ("move, L", "compaction and move"),
    ("over target", "levels that sink"),
];

impl EventListener for Reasons {
    fn on_event(&self, event: &Event) {
        let Event::Compacted { why, read_bytes, written_bytes, .. } = event else { return };
        let found = REASONS.iter().find(|(words, _)| why.contains(words));
        let mut reasons = self.0.lock().expect("no holder panics");
        let reason = reasons.entry(found.map_or("other", |(_, name)| *name)).or_default();
        reason.compactions += 1;
        reason.read_bytes += read_bytes;
        reason.written_bytes += written_bytes;
    }
}

impl Reasons {
    /// Bytes written per byte of the user and share of what was read that was written again.
    fn text(&self, user_bytes: u64) -> String {
        let reasons = self.0.lock().expect("no holder panics");
        let text = |(name, reason): (&&str, &Reason)| {
            let Reason { compactions, read_bytes, written_bytes } = *reason;
            let per_byte = written_bytes as f64 / user_bytes.max(1) as f64;
            let kept = written_bytes as f64 / read_bytes.max(1) as f64 * 100.0;
            format!(
                "{name} {per_byte:.2} ({compactions} compactions, {kept:.0}% of what they read)"
            )
        };
        reasons.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

/// A store with the records that were written.
struct Tree {
    store: Store,
    reasons: Arc<Reasons>,
    values: ValueGenerator,
    value_bytes: usize,
    rng: Rng,
    /// Keys are those of the numbers below this.
    records: u64,
    operations: u64,
    /// The most bytes of tables over key and value bytes of all records.
    peak_space: f64,
    /// The peak counts from this number of records on: a small tree is all level 0.
    peak_from: u64,
    before: CounterValues,
}

impl Tree {
    fn in_memory(keyspace: KeyspaceOptions, value_bytes: usize) -> Result<Tree> {
        Tree::open(keyspace, value_bytes, None)
    }

    /// In memory, or in a directory.
    fn open(
        keyspace: KeyspaceOptions,
        value_bytes: usize,
        directory: Option<PathBuf>,
    ) -> Result<Tree> {
        let reasons = Arc::new(Reasons::default());
        let options = Options {
            listener: Some(reasons.clone()),
            wal_segment_bytes: 1 << 20,
            max_wal_bytes: 16 << 20,
            ..stepped_options(Some(keyspace), 64 << 20)
        };
        let store = match directory {
            Some(path) => Store::open(path, options)?,
            None => Store::open_on(Arc::new(MemoryStorage::new()), options)?,
        };
        let mut rng = Rng::new(7);
        let values = ValueGenerator::new(&mut rng, 1.0, value_bytes);
        let before = store.metrics().counters;
        Ok(Tree {
            store,
            reasons,
            values,
            value_bytes,
            rng,
            records: 0,
            operations: 0,
            peak_space: 0.0,
            peak_from: u64::MAX,
            before,
        })
    }

    fn load(&mut self, records: u64) -> Result<()> {
        while self.records < records {
            self.put(self.records)?;
            self.records += 1;
        }
        Ok(())
    }

    /// Zipfian over the records: updates, read-modify-writes, else reads.
    fn mix(
        &mut self,
        chooser: &ScrambledZipfian,
        operations: u64,
        updates: u64,
        modifies: u64,
    ) -> Result<()> {
        for _ in 0..operations {
            let record = chooser.next(&mut self.rng);
            let dice = self.rng.below(100);
            if dice >= updates {
                self.get(record)?;
            }
            if dice < updates + modifies {
                self.put(record)?;
            }
        }
        Ok(())
    }

    /// The latest records are read, new ones are inserted.
    fn latest(&mut self, chooser: &mut Latest, operations: u64, inserts: u64) -> Result<()> {
        for _ in 0..operations {
            if self.rng.below(100) < inserts {
                self.put(self.records)?;
                self.records += 1;
            } else {
                let record = chooser.next(&mut self.rng, self.records);
                self.get(record)?;
            }
        }
        Ok(())
    }

    fn uniform_gets(&mut self, gets: u64) -> Result<()> {
        for _ in 0..gets {
            let record = self.rng.below(self.records);
            self.store.get(key(record))?;
            self.look()?;
        }
        Ok(())
    }

    fn scan_us(&mut self, scans: u64, length: u64) -> Result<f64> {
        let started = cpu_time();
        for _ in 0..scans {
            scan_values(&self.store, key(self.rng.below(self.records)).as_bytes(), length)?;
        }
        Ok((cpu_time() - started).as_secs_f64() * 1e6 / scans.max(1) as f64)
    }

    fn get(&mut self, record: u64) -> Result<()> {
        let value = self.store.get(key(record))?;
        assert!(value.is_some(), "record {record} was written");
        self.look()
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.store.put(key(record), self.values.next(self.value_bytes))?;
        self.look()
    }

    /// Does the jobs that are due, once in some operations.
    fn look(&mut self) -> Result<()> {
        self.operations += 1;
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            do_jobs(&self.store)?;
        }
        if self.operations.is_multiple_of(OPERATIONS_PER_LOOK * LOOKS_PER_SIZE)
            && self.records >= self.peak_from
        {
            let bytes = self.store.default_keyspace().shape().bytes();
            let unique = self.records * (KEY_BYTES + self.value_bytes) as u64;
            self.peak_space = self.peak_space.max(bytes as f64 / unique.max(1) as f64);
        }
        Ok(())
    }

    /// What happened since the last call; whoever measured times adds them.
    fn phase(&mut self) -> Phase {
        let now = self.store.metrics().counters;
        let counters = now.since(&self.before);
        self.before = now;
        Phase { counters, us_per_operation: f64::NAN, wall_us: f64::NAN }
    }
}

/// Sixteen digits of a mixed number: keys come in random order.
fn key(record: u64) -> String {
    format!("{:016}", mix64(record) % KEY_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At small scales all keys are in memory: -31800% of the tree was said to be obsolete.
    #[test]
    fn no_less_than_nothing_is_obsolete() {
        assert_eq!(obsolete_share(0, 318), 0.0);
        assert_eq!(obsolete_share(100, 318), 0.0);
        assert_eq!(obsolete_share(100, 75), 0.25);
    }
}
