//! Table I and figure 7. The first run loads and goes through A, B, C, F and D; the second loads
//! and goes through E. Not in the paper: scans once the compactions that gets ask for are done.
//!
//! All stores run with files in memory; leveled and PTierDB once more on the disk, for the judged
//! latencies: there a byte written costs what the system does for it. In memory it costs a copy, so
//! that leveling's bytes are nearly free.

use std::path::PathBuf;

use runstone::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::{Latest, ScrambledZipfian};

use super::tree::{Phase, Tree, in_rounds, in_turns, median_ratio, write_amplification};
use super::{DIVISOR, Rival, rivals, sides_of};
use crate::engine::table_bytes_written;
use crate::numbers::{list, ratio};
use crate::report::{bars, bars_beside, line, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 100 M records of 16 + 100 bytes.
const RECORDS: u64 = 100_000_000 / DIVISOR;
const VALUE_BYTES: usize = 100;
/// Mix E has so many times fewer operations than there are records: a scan is 100 entries.
const SCAN_DIVISOR: u64 = 4;

/// The mixes of the first run, with percentages of updates and read-modify-writes.
const MIXES: [(&str, u64, u64); 5] =
    [("A", 50, 0), ("B", 5, 0), ("C", 0, 0), ("F", 0, 50), ("D", 5, 0)];
/// Place of C, and of E behind them.
const C: usize = 2;
const E: usize = MIXES.len();
const INSERTS_IN_E: u64 = 5;

/// Why the guards are shown and not judged.
const GUARDS: &str = "depends on the tables between two guards: T - 1 here, two in PebblesDB";

rows! {
    WRITTEN_RATIO = "write amplification of PTierDB over leveled (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_LAST = "the same with merges inside the last level only, the paper's rule (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_TIERED = "write amplification of tiered over leveled (table I)",
        "4.91 / 25.34 = 0.19" => Ratios(&[0.194]);
    WRITTEN_LAZY = "write amplification of lazy leveling over leveled (table I)",
        "7.3 / 25.34 = 0.29" => Ratios(&[0.288]);
    WRITTEN_GUARDS = "write amplification of guards over leveled, for PebblesDB (table I)",
        "6.32 / 25.34 = 0.25" => NotComparable(GUARDS);
    WRITTEN_WISCKEY = "bytes written to tables and log by WiscKey over leveled (table I)",
        "2.8 / 25.34 = 0.11" => Ratios(&[0.110]);
    WRITTEN_SILK = "write amplification of fragmented leveling over leveled, for SILK (table I)",
        "17.54 / 25.34 = 0.69" => NotComparable("its tree is LevelDB's, its scheduler is not here");
    SIZE_PTIERDB = "size of PTierDB over leveled (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_LAST = "the same with merges inside the last level only, the paper's rule (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_TIERED = "size of tiered over leveled (table I)",
        "14.84 / 7.91 GB = 1.88" => Ratios(&[1.876]);
    SIZE_LAZY = "size of lazy leveling over leveled (table I)",
        "7.9 / 7.91 GB = 1.00" => Alike(0.1);
    SIZE_GUARDS = "size of guards over leveled, for PebblesDB (table I)",
        "12.7 / 7.91 GB = 1.61" => NotComparable(GUARDS);
    SIZE_WISCKEY = "size of WiscKey over leveled, without collection (table I)",
        "27.2 / 7.91 GB = 3.44" => Ratios(&[3.439]);
    SIZE_FLUSHED = "size of all that tiered flushed over leveled: a tree that never compacts",
        "" => NotComparable("no tree can hold more");
    SIZE_PEAK = "largest size over the bytes of all records: {}",
        "" => NotComparable("not in the paper: at any time from a tenth of the load on");
    PROBES_C = "tables probed per get in YCSB C, PTierDB over leveled",
        "" => NotComparable("not in the paper");
    MIX_WRITTEN = "MB written in A, B, C, F, D: PTierDB; leveled; last level",
        "" => NotComparable("not in the paper: what reads trigger is in B and C");
    MIX_PROBES = "tables probed per get in A, B, C, F, D: PTierDB; leveled; last level",
        "" => NotComparable("not in the paper; filters asked included");
    AFTER_HIT = "those of them behind the first hit, in A, B, C, F, D: PTierDB; last level",
        "none: the first hit is taken" => NotComparable("what the paper's unsafe numbering saves");
    BLOCKS_C = "data blocks per get in YCSB C: PTierDB, leveled, tiered",
        "" => NotComparable("with filters of 10 bits hardly a block is read in vain");
    LATENCIES = "us of processor time in YCSB {}, in memory: {} (figure 7)",
        "" => NotComparable("a byte written costs a copy; the figure prints no numbers");
    LATENCY = "processor time of YCSB {} on files, PTierDB over leveled (section I, figure 7)",
        "1.2 to 2.5 times as fast: 0.83" => Ratios(&[0.833]);
    LATENCY_LAST = "the same with merges inside the last level only, the paper's rule",
        "1.2 to 2.5 times as fast: 0.83" => Ratios(&[0.833]);
    FILES = "us of processor time in YCSB {} on files, a twentieth of the records: {} (figure 7)",
        "" => NotComparable("the figure prints no numbers; leveled and PTierDB are judged above");
    SCANS_SETTLED = "time of scans of 100 entries once gets have compacted, PTierDB over leveled",
        "" => NotComparable("not in the paper");
}

/// What one store did.
struct Run {
    name: &'static str,
    load: Phase,
    /// A, B, C, F, D and, in the second run, E.
    mixes: Vec<Phase>,
    bytes: u64,
    space: Vec<(f64, f64)>,
}

impl Run {
    /// Of the first run.
    fn phases(&self) -> impl Iterator<Item = &Phase> {
        std::iter::once(&self.load).chain(&self.mixes[..E])
    }

    fn write_amplification(&self) -> f64 {
        write_amplification(self.phases())
    }
}

/// All stores, in memory.
pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let open = || open(&rivals, || None);
    let mut second = open()?;
    let records = context.scaled(RECORDS);
    let runs = both_runs(context, records, open()?, &mut second)?;
    let runs = runs.try_into().unwrap_or_else(|_| unreachable!("a run for each store"));
    judge_writes(report, &runs);
    judge_sizes(context, report, &runs);
    show_reads(report, &runs);
    let names = names(&runs);
    for (at, mix) in mix_names().enumerate() {
        let all = list(runs.each_ref().map(|run| run.mixes[at].us), 2);
        report.show(LATENCIES.of(&[&mix, &names]), all);
    }
    draw(report, &runs);
    let settled = ["leveled", "PTierDB, every level"];
    second.retain(|tree| settled.contains(&tree.name));
    scans(context, report, second)
}

/// Those of the claims on latencies, on the disk.
pub(super) fn on_files(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let [leveled, .., every, last] = rivals();
    let rivals = [leveled, every, last];
    report.compare(&sides_of(&rivals), &[])?;
    let open = || open(&rivals, || Some(context.directory()));
    let runs = both_runs(context, context.scaled(RECORDS), open()?, &mut open()?)?;
    for (at, mix) in mix_names().enumerate() {
        for (row, run) in [(LATENCY, &runs[1]), (LATENCY_LAST, &runs[2])] {
            let of = |value: fn(&Phase) -> f64| {
                ratio(value(&run.mixes[at]), value(&runs[0].mixes[at]), 2, " us")
            };
            let ((text, faster), (wall, _)) = (of(|phase| phase.us), of(|phase| phase.wall_us));
            report.judge(row.of(&[&mix]), format!("{text}; by the clock {wall}"), &[faster]);
        }
    }
    Ok(())
}

/// All stores on the disk, which is shown and not judged: a twentieth of the records, since each
/// store syncs what it writes.
pub(super) fn all_on_files(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let open = || open(&rivals, || Some(context.directory()));
    let runs = both_runs(context, context.scaled(RECORDS / 20), open()?, &mut open()?)?;
    let names: Vec<&str> = runs.iter().map(|run| run.name).collect();
    for (at, mix) in mix_names().enumerate() {
        let of = |value: fn(&Phase) -> f64| list(runs.iter().map(|run| value(&run.mixes[at])), 2);
        let here = format!("{}; by the clock {}", of(|phase| phase.us), of(|phase| phase.wall_us));
        report.show(FILES.of(&[&mix, &names.join("; ")]), here);
    }
    Ok(())
}

fn open(rivals: &[Rival], directory: impl Fn() -> Option<PathBuf>) -> Result<Vec<Tree>> {
    rivals.iter().map(|rival| Tree::open(rival, VALUE_BYTES, directory())).collect()
}

fn both_runs(
    context: &Context<'_>,
    records: u64,
    first: Vec<Tree>,
    second: &mut [Tree],
) -> Result<Vec<Run>> {
    let mut runs = first_run(context, records, first)?;
    for (run, phase) in runs.iter_mut().zip(second_run(context, records, second)?) {
        run.mixes.push(phase);
    }
    Ok(runs)
}

fn first_run(context: &Context<'_>, records: u64, mut trees: Vec<Tree>) -> Result<Vec<Run>> {
    context.say("load");
    let load = in_turns(&mut trees, records, |_| Box::new(Tree::insert))?;
    let mut mixes = Vec::new();
    for (name, updates, modifies) in MIXES {
        context.say(&format!("mix {name}"));
        mixes.push(in_turns(&mut trees, records, |tree| match name {
            "D" => {
                let mut chooser = Latest::new(tree.records);
                Box::new(move |tree, count| tree.latest(&mut chooser, count, updates))
            }
            _ => {
                let chooser = ScrambledZipfian::new(tree.records);
                Box::new(move |tree, count| tree.mix(&chooser, count, (updates, modifies)))
            }
        })?);
    }
    let mut mixes: Vec<_> = mixes.into_iter().map(Vec::into_iter).collect();
    let run = |(tree, load): (Tree, Phase)| Run {
        name: tree.name,
        load,
        mixes: mixes.iter_mut().filter_map(Iterator::next).collect(),
        bytes: tree.bytes(),
        space: tree.space,
    };
    Ok(trees.into_iter().zip(load).map(run).collect())
}

/// Load, and mix E.
fn second_run(context: &Context<'_>, records: u64, trees: &mut [Tree]) -> Result<Vec<Phase>> {
    context.say("load once more");
    in_turns(trees, records, |_| Box::new(Tree::insert))?;
    context.say("mix E");
    in_turns(trees, records / SCAN_DIVISOR, |tree| {
        let chooser = ScrambledZipfian::new(tree.records);
        Box::new(move |tree, count| tree.scan_mix(&chooser, count, INSERTS_IN_E))
    })
}

fn judge_writes(report: &mut PaperReport, runs: &[Run; 8]) {
    let [leveled, tiered, lazy, fragmented, guards, wisckey, every, last] =
        runs.each_ref().map(Run::write_amplification);
    let rows = [
        (WRITTEN_RATIO, every),
        (WRITTEN_LAST, last),
        (WRITTEN_TIERED, tiered),
        (WRITTEN_LAZY, lazy),
        (WRITTEN_GUARDS, guards),
        (WRITTEN_WISCKEY, wisckey),
    ];
    for (row, one) in rows {
        let (text, of_all) = ratio(one, leveled, 2, "");
        report.judge(row, text, &[of_all]);
    }
    report.show(WRITTEN_SILK, ratio(fragmented, leveled, 2, "").0);
}

fn judge_sizes(context: &Context<'_>, report: &mut PaperReport, runs: &[Run; 8]) {
    let [leveled, tiered, lazy, _, guards, wisckey, every, last] = runs;
    let size = |run: &Run| run.bytes as f64 / leveled.bytes as f64;
    for (row, run) in [(SIZE_PTIERDB, every), (SIZE_LAST, last), (SIZE_LAZY, lazy)] {
        report.judge(row, format!("{:.2}", size(run)), &[1.0, size(run)]);
    }
    for (row, run) in [(SIZE_TIERED, tiered), (SIZE_GUARDS, guards), (SIZE_WISCKEY, wisckey)] {
        report.judge(row, format!("{:.2}", size(run)), &[size(run)]);
    }
    let flushed: u64 = tiered.phases().map(|phase| phase.counters.flush_bytes_written).sum();
    report.show(SIZE_FLUSHED, format!("{:.2}", flushed as f64 / leveled.bytes as f64));
    // A small tree is all level 0.
    let from = context.scaled(RECORDS) as f64 / 10.0;
    let peak = |run: &Run| {
        let later = run.space.iter().filter(|(operations, _)| *operations >= from);
        later.map(|(_, space)| *space).fold(0.0, f64::max)
    };
    report.show(SIZE_PEAK.of(&[&names(runs)]), list(runs.each_ref().map(peak), 2));
}

fn show_reads(report: &mut PaperReport, runs: &[Run; 8]) {
    let [leveled, tiered, .., every, last] = runs;
    let probes = |run: &Run| run.mixes[C].tables_per_get();
    let (text, _) = ratio(probes(every), probes(leveled), 2, "");
    let (probes_last, probes_tiered) = (probes(last), probes(tiered));
    report
        .show(PROBES_C, format!("{text}; last level {probes_last:.2}, tiered {probes_tiered:.2}"));
    let per_mix = |value: fn(&Phase) -> f64| {
        let of = |run: &Run| list(run.mixes[..E].iter().map(value), 2);
        format!("{}; {}; {}", of(every), of(leveled), of(last))
    };
    report.show(MIX_WRITTEN, per_mix(|phase| table_bytes_written(&phase.counters) as f64 / 1e6));
    report.show(MIX_PROBES, per_mix(Phase::tables_per_get));
    let after_hit = |run: &Run| list(run.mixes[..E].iter().map(Phase::tables_after_hit), 3);
    report.show(AFTER_HIT, format!("{}; {}", after_hit(every), after_hit(last)));
    report
        .show(BLOCKS_C, list([every, leveled, tiered].map(|run| run.mixes[C].blocks_per_get()), 3));
}

/// The names of the stores.
fn names(runs: &[Run; 8]) -> String {
    runs.each_ref().map(|run| run.name).join("; ")
}

/// The names of the mixes of both runs.
fn mix_names() -> impl Iterator<Item = &'static str> {
    MIXES.iter().map(|(name, ..)| *name).chain(["E"])
}

/// The write amplification that table I prints for a store, or no number.
fn printed(name: &str) -> f64 {
    match name {
        "leveled" => 25.34,
        "tiered" => 4.91,
        "lazy-leveled" => 7.3,
        "guards" => 6.32,
        "WiscKey" => 2.8,
        "PTierDB, last level" => 12.34,
        _ => f64::NAN,
    }
}

fn draw(report: &mut PaperReport, runs: &[Run]) {
    let mixes: Vec<String> = mix_names().map(|mix| format!("YCSB {mix}")).collect();
    let latencies = |run: &Run| bars(run.name, run.mixes.iter().map(|phase| phase.us));
    let titles = ["Average latency, files in memory", "mix", "us of processor time per operation"];
    report.draw_bars("figure-7", titles, mixes.clone(), runs.iter().map(latencies).collect());
    let probes = |run: &Run| bars(run.name, run.mixes[..E].iter().map(Phase::tables_per_get));
    let titles = ["Tables probed per get", "mix", "tables"];
    report.draw_bars("probes", titles, mixes[..E].to_vec(), runs.iter().map(probes).collect());
    let written = |run: &Run| {
        let here = [write_amplification([&run.load]), run.write_amplification()];
        bars_beside(run.name, here, [f64::NAN, printed(run.name)])
    };
    let titles = ["Write amplification of load and mixes", "phase", "bytes written / user bytes"];
    report.draw_bars("table-1", titles, ["load", "all"], runs.iter().map(written).collect());
    let space = |run: &Run| {
        line(run.name, run.space.iter().map(|(operations, space)| (operations / 1e6, *space)))
    };
    report.draw_lines(
        "space",
        "Space over time: load, A, B, C, F, D",
        Axis::linear("million operations"),
        "bytes of tables and values / bytes of all records",
        runs.iter().map(space).collect(),
    );
}

fn scans(context: &Context<'_>, report: &mut PaperReport, mut trees: Vec<Tree>) -> Result<()> {
    context.say("scans once gets have compacted");
    for tree in &mut trees {
        tree.uniform_gets(2 * tree.records)?;
        tree.counted();
    }
    let took = in_rounds(&mut trees, context.scaled(1_000), Tree::uniform_scans)?;
    let sought = trees.iter_mut().map(|tree| {
        let counters = tree.counted();
        counters.runs_sought as f64 / counters.seeks.max(1) as f64
    });
    let sought = list(sought.collect::<Vec<_>>(), 1);
    let (text, _) = median_ratio(&took[1], &took[0]);
    report.show(SCANS_SETTLED, format!("{text}; runs sought by leveled, PTierDB {sought}"));
    Ok(())
}
