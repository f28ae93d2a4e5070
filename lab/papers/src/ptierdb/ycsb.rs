//! Table I, and the runs of figure 7. The first run loads and runs A, B, C, F and D; the second
//! loads and runs E. Not in the paper: scans once the compactions that gets ask for are done.

use runstone_kv::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::{Latest, ScrambledZipfian};

use super::tree::{Phase, Tree, each, sides_of, write_amplification};
use super::{
    DIVISOR, EVERY, FRAGMENTED, GUARDS, GUARDS_T, LAST, LAZY, LEVELED, Rival, TIERED, WISCKEY,
    budgets, figure_7, rivals,
};
use crate::engine::table_bytes_written;
use crate::numbers::{list, ratio};
use crate::report::{bars, bars_beside, line, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 100 M records of 16 + 100 bytes.
const RECORDS: u64 = 100_000_000 / DIVISOR;
const VALUE_BYTES: usize = 100;
/// Mix E has this many times fewer operations than there are records: a scan is 100 entries.
const SCAN_DIVISOR: u64 = 4;

/// The mixes of the first run, with percentages of updates and read-modify-writes.
const MIXES: [(&str, u64, u64); 5] =
    [("A", 50, 0), ("B", 5, 0), ("C", 0, 0), ("F", 0, 50), ("D", 5, 0)];
/// Positions of B, C and F, and of E after them.
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
pub(super) const F: usize = 3;
pub(super) const E: usize = MIXES.len();
const INSERTS_IN_E: u64 = 5;
/// Scans after the gets, which are twice the records, and the stores of their row. The gets of all
/// nine took a tenth of the part.
const SETTLED_SCANS: u64 = 1_000;
const SETTLED: [usize; 2] = [LEVELED, EVERY];

const NOT_PEBBLESDB: &str = "PebblesDB keeps two tables between two guards";

rows! {
    WRITTEN_LAST = "write amplification of PTierDB over leveled (table I)",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_EVERY = "write amplification of PTierDB over leveled, merges inside every level",
        "12.34 / 25.34 = 0.49" => Ratios(&[0.487]);
    WRITTEN_TIERED = "write amplification of tiered over leveled (table I)",
        "4.91 / 25.34 = 0.19" => Ratios(&[0.194]);
    WRITTEN_LAZY = "write amplification of lazy leveling over leveled (table I)",
        "7.3 / 25.34 = 0.29" => Ratios(&[0.288]);
    WRITTEN_GUARDS = "write amplification of guards over leveled, for PebblesDB (table I)",
        "6.32 / 25.34 = 0.25" => Ratios(&[0.249]);
    WRITTEN_GUARDS_T = "write amplification of guards over leveled, K = T - 1",
        "6.32 / 25.34 = 0.25" => Beside(NOT_PEBBLESDB);
    WRITTEN_WISCKEY = "bytes written to tables and log by WiscKey over leveled (table I)",
        "2.8 / 25.34 = 0.11" => Ratios(&[0.110]);
    WRITTEN_SILK = "write amplification of fragmented leveling over leveled, for SILK (table I)",
        "17.54 / 25.34 = 0.69" => Ratios(&[0.692]);
    SIZE_LAST = "size of PTierDB over leveled (table I)",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_EVERY = "size of PTierDB over leveled, merges inside every level",
        "8.1 / 7.91 GB = 1.02" => Alike(0.1);
    SIZE_TIERED = "size of tiered over leveled (table I)",
        "14.84 / 7.91 GB = 1.88" => Ratios(&[1.876]);
    SIZE_LAZY = "size of lazy leveling over leveled (table I)",
        "7.9 / 7.91 GB = 1.00" => Alike(0.1);
    SIZE_GUARDS = "size of guards over leveled, for PebblesDB (table I)",
        "12.7 / 7.91 GB = 1.61" => Ratios(&[1.606]);
    SIZE_GUARDS_T = "size of guards over leveled, K = T - 1",
        "12.7 / 7.91 GB = 1.61" => Beside(NOT_PEBBLESDB);
    SIZE_SILK = "size of fragmented leveling over leveled, for SILK (table I)",
        "10.5 / 7.91 GB = 1.33" => Ratios(&[1.327]);
    SIZE_WISCKEY = "size of WiscKey over leveled, without collection (table I)",
        "27.2 / 7.91 GB = 3.44" => Ratios(&[3.439]);
    SIZE_FLUSHED = "size of all that tiered flushed over leveled: a tree that never compacts",
        "" => Beside("no tree can hold more");
    SIZE_PEAK = "largest size over the bytes of all records, all nine",
        "" => Beside("not in the paper: at any time from a tenth of the load on");
    PROBES_C = "tables probed per get in YCSB C, PTierDB over leveled",
        "" => Beside("not in the paper");
    MIX_WRITTEN = "MB written in A, B, C, F, D: PTierDB; leveled; last level",
        "" => Beside("not in the paper: what reads trigger is in B and C");
    MIX_PROBES = "tables probed per get in A, B, C, F, D: PTierDB; leveled; last level",
        "" => Beside("not in the paper; filters asked included");
    AFTER_HIT = "those of them behind the first hit, in A, B, C, F, D: PTierDB; last level",
        "none: the first hit is taken" => Beside("what the paper's unsafe numbering saves");
    BLOCKS_C = "data blocks per get in YCSB C: PTierDB, leveled, tiered",
        "" => Beside("with filters of 10 bits hardly a block is read in vain");
    SCANS_SETTLED = "time of scans of 100 entries once gets have compacted, PTierDB over leveled",
        "" => Beside("not in the paper");
}

/// The results of one store.
pub(super) struct Run {
    pub(super) name: &'static str,
    load: Phase,
    /// A, B, C, F, D and, in the second run, E.
    pub(super) mixes: Vec<Phase>,
    pub(super) bytes: u64,
    space: Vec<(f64, f64)>,
    /// Scans after the gets of the second run, for the stores that have them.
    settled: Option<Phase>,
}

impl Run {
    /// The phases of the first run.
    fn phases(&self) -> impl Iterator<Item = &Phase> {
        std::iter::once(&self.load).chain(&self.mixes[..E])
    }

    pub(super) fn write_amplification(&self) -> f64 {
        write_amplification(self.phases())
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let records = context.scaled(RECORDS);
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let scans = context.scaled(SETTLED_SCANS);
    let settling = SETTLED.map(|at| rivals[at].0);
    let runs = each(context, "load, A, B, C, F, D; load, E", &rivals, |rival| {
        both_runs(rival, records, settling.contains(&rival.0).then_some(scans))
    })?;
    judge_writes(report, &runs);
    judge_sizes(context, report, &runs);
    budgets::show(context, report, &runs, records)?;
    report.compare(&sides_of(&rivals), &[])?;
    figure_7::judge(report, &runs);
    show_reads(report, &runs);
    draw(report, &runs);
    Ok(())
}

fn both_runs(rival: &Rival, records: u64, settled_scans: Option<u64>) -> Result<Run> {
    let mut run = first_run(rival, records)?;
    let mut second = Tree::open(rival, VALUE_BYTES)?;
    second.phase(records, Tree::insert)?;
    let chooser = ScrambledZipfian::new(second.records);
    run.mixes.push(second.phase(records / SCAN_DIVISOR, |tree, count| {
        tree.scan_mix(&chooser, count, INSERTS_IN_E)
    })?);
    let mut settle = |scans: u64| {
        second.phase(2 * records, Tree::uniform_gets)?;
        second.phase(scans, Tree::uniform_scans)
    };
    run.settled = settled_scans.map(&mut settle).transpose()?;
    Ok(run)
}

/// Load, A, B, C, F and D.
pub(super) fn first_run(rival: &Rival, records: u64) -> Result<Run> {
    let mut tree = Tree::open(rival, VALUE_BYTES)?;
    let load = tree.phase(records, Tree::insert)?;
    let mut mixes = Vec::new();
    for (name, updates, modifies) in MIXES {
        let chooser = ScrambledZipfian::new(tree.records);
        let mut latest = Latest::new(tree.records);
        mixes.push(tree.phase(records, |tree, count| match name {
            "D" => tree.latest(&mut latest, count, updates),
            _ => tree.mix(&chooser, count, (updates, modifies)),
        })?);
    }
    let bytes = tree.bytes();
    Ok(Run { name: tree.name, load, mixes, bytes, space: tree.space, settled: None })
}

fn judge_writes(report: &mut PaperReport, runs: &[Run]) {
    let of = |store: usize| {
        let [one, leveled] = [store, LEVELED].map(|at| runs[at].write_amplification());
        ratio(one, leveled, 2, "")
    };
    let rows = [
        (WRITTEN_LAST, LAST),
        (WRITTEN_EVERY.uncounted(), EVERY),
        (WRITTEN_TIERED, TIERED),
        (WRITTEN_LAZY, LAZY),
        (WRITTEN_GUARDS, GUARDS),
        (WRITTEN_WISCKEY, WISCKEY),
        (WRITTEN_SILK, FRAGMENTED),
    ];
    for (row, store) in rows {
        let (text, of_all) = of(store);
        report.judge(row, text, &[of_all]);
    }
    report.show(WRITTEN_GUARDS_T, of(GUARDS_T).0);
}

fn judge_sizes(context: &Context<'_>, report: &mut PaperReport, runs: &[Run]) {
    let size = |store: usize| runs[store].bytes as f64 / runs[LEVELED].bytes as f64;
    let text = |store: usize| format!("{:.2}", size(store));
    let alike = [(SIZE_LAST, LAST), (SIZE_EVERY.uncounted(), EVERY), (SIZE_LAZY, LAZY)];
    for (row, store) in alike {
        report.judge(row, text(store), &[1.0, size(store)]);
    }
    let others = [
        (SIZE_TIERED, TIERED),
        (SIZE_GUARDS, GUARDS),
        (SIZE_SILK, FRAGMENTED),
        (SIZE_WISCKEY, WISCKEY),
    ];
    for (row, store) in others {
        report.judge(row, text(store), &[size(store)]);
    }
    report.show(SIZE_GUARDS_T, text(GUARDS_T));
    let phases = runs[TIERED].phases();
    let flushed: u64 = phases.map(|phase| phase.counters.flush_bytes_written).sum();
    report.show(SIZE_FLUSHED, format!("{:.2}", flushed as f64 / runs[LEVELED].bytes as f64));
    // A small tree is all level 0.
    let from = context.scaled(RECORDS) as f64 / 10.0;
    let peak = |run: &Run| {
        let later = run.space.iter().filter(|(operations, _)| *operations >= from);
        later.map(|(_, space)| *space).fold(0.0, f64::max)
    };
    report.show(SIZE_PEAK, list(runs.iter().map(peak), 2));
}

fn show_reads(report: &mut PaperReport, runs: &[Run]) {
    let [leveled, tiered, every, last] = [LEVELED, TIERED, EVERY, LAST].map(|at| &runs[at]);
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
    let [leveled, every] =
        [leveled, every].map(|run| run.settled.as_ref().expect("both were scanned once more"));
    let sought =
        |Phase { counters, .. }: &Phase| counters.runs_sought as f64 / counters.seeks.max(1) as f64;
    let (text, _) = ratio(every.us, leveled.us, 2, " us");
    let sought = list([leveled, every].map(sought), 1);
    report.show(SCANS_SETTLED, format!("{text}; runs sought by leveled, PTierDB {sought}"));
}

/// The names of the mixes of both runs.
pub(super) fn mix_names() -> impl Iterator<Item = &'static str> {
    MIXES.iter().map(|(name, ..)| *name).chain(["E"])
}

/// Write amplification and gigabytes that table I prints for each store, in their order; none for
/// stores that only we have.
const TABLE_1: [[f64; 2]; 9] = [
    [25.34, 7.91],
    [4.91, 14.84],
    [7.3, 7.9],
    [17.54, 10.5],
    [6.32, 12.7],
    [2.8, 27.2],
    [f64::NAN, f64::NAN],
    [12.34, 8.1],
    [f64::NAN, f64::NAN],
];

fn draw(report: &mut PaperReport, runs: &[Run]) {
    let mixes = MIXES.iter().map(|(name, ..)| format!("YCSB {name}"));
    let probes = |run: &Run| bars(run.name, run.mixes[..E].iter().map(Phase::tables_per_get));
    let titles = ["Tables probed per get", "mix", "tables"];
    report.draw_bars("probes", titles, mixes, runs.iter().map(probes).collect());
    let beside = || runs.iter().zip(TABLE_1);
    let written = |(run, [paper, _]): (&Run, [f64; 2])| {
        let here = [write_amplification([&run.load]), run.write_amplification()];
        bars_beside(run.name, here, [f64::NAN, paper])
    };
    let titles = ["Write amplification of load and mixes", "phase", "bytes written / user bytes"];
    report.draw_bars("table-1", titles, ["load", "all"], beside().map(written).collect());
    let size = |(run, [_, paper]): (&Run, [f64; 2])| {
        let here = run.bytes as f64 / runs[LEVELED].bytes as f64;
        bars_beside(run.name, [here], [paper / TABLE_1[LEVELED][1]])
    };
    let titles = ["Size of the store", "after load, A, B, C, F and D", "over leveled"];
    report.draw_bars("table-1-sizes", titles, ["size"], beside().map(size).collect());
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
