//! The runs of figure 7, with their reads and writes. The first run, which is also that of table
//! I, loads and runs A, B, C, F and D; the second loads and runs E. After the compactions that gets
//! cause, scans are measured as well; the paper has no such scans.

use runstone_kv::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::{Latest, ScrambledZipfian};

use super::tree::{KEY_BYTES, Phase, Tree, each, sides_of, write_amplification};
use super::{DIVISOR, EVERY, LAST, LEVELED, Rival, TIERED, budgets, figure_7, rivals, table_1};
use crate::engine::table_bytes_written;
use crate::numbers::{list, ratio};
use crate::report::{bars, line, rows};
use crate::verdict::Rule::Beside;
use crate::{Context, PaperReport};

/// 100 M records of 16 + 100 bytes.
pub(super) const RECORDS: u64 = 100_000_000 / DIVISOR;
pub(super) const VALUE_BYTES: usize = 100;
/// The operations of mix E are the records divided by this number, because a scan reads 100
/// entries.
pub(super) const SCAN_DIVISOR: u64 = 4;

/// The mixes of the first run, with percentages of updates and read-modify-writes.
const MIXES: [(&str, u64, u64); 5] =
    [("A", 50, 0), ("B", 5, 0), ("C", 0, 0), ("F", 0, 50), ("D", 5, 0)];
/// Positions of B, C and F, and of E after them.
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
pub(super) const F: usize = 3;
pub(super) const E: usize = MIXES.len();
pub(super) const INSERTS_IN_E: u64 = 5;
/// Scans after the gets, and the stores that their row compares. There are twice as many gets as
/// records; with all nine stores they took a tenth of the time of this part.
const SETTLED_SCANS: u64 = 1_000;
const SETTLED: [usize; 2] = [LEVELED, EVERY];

rows! {
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
    pub(super) load: Phase,
    /// The mixes A, B, C, F, D and, in the second run, E.
    pub(super) mixes: Vec<Phase>,
    pub(super) bytes: u64,
    /// How many records there are after the first run.
    records: u64,
    space: Vec<(f64, f64)>,
    /// Scans after the gets of the second run, for the stores that have them.
    settled: Option<Phase>,
}

impl Run {
    /// The phases of the first run.
    pub(super) fn phases(&self) -> impl Iterator<Item = &Phase> {
        std::iter::once(&self.load).chain(self.mixes.iter().take(E))
    }

    pub(super) fn write_amplification(&self) -> f64 {
        write_amplification(self.phases())
    }

    /// The size after the first run, divided by the bytes of the keys and values of all records.
    pub(super) fn bytes_over_records(&self) -> f64 {
        self.bytes as f64 / (self.records * (KEY_BYTES + VALUE_BYTES) as u64) as f64
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
    let compressed = table_1::run(context, report, &runs, records)?;
    budgets::show(context, report, [&runs, &compressed], records)?;
    report.compare(&sides_of(&rivals), &[])?;
    figure_7::judge(report, &runs);
    show_peaks(context, report, &runs);
    show_reads(report, &runs);
    draw(report, &runs);
    Ok(())
}

fn both_runs(rival: &Rival, records: u64, settled_scans: Option<u64>) -> Result<Run> {
    let mut run = first_run(Tree::open(rival, VALUE_BYTES)?, records, E)?;
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

/// Runs the load, and the first `mixes` of A, B, C, F and D.
pub(super) fn first_run(mut tree: Tree, records: u64, mixes: usize) -> Result<Run> {
    let load = tree.phase(records, Tree::insert)?;
    let wanted = &MIXES[..mixes];
    let mut mixes = Vec::new();
    for (name, updates, modifies) in wanted.iter().copied() {
        let chooser = ScrambledZipfian::new(tree.records);
        let mut latest = Latest::new(tree.records);
        mixes.push(tree.phase(records, |tree, count| match name {
            "D" => tree.latest(&mut latest, count, updates),
            _ => tree.mix(&chooser, count, (updates, modifies)),
        })?);
    }
    let bytes = tree.bytes();
    let (name, records, space) = (tree.name, tree.records, tree.space);
    Ok(Run { name, load, mixes, bytes, records, space, settled: None })
}

/// Shows the largest size that each store had. A small tree has only level 0.
fn show_peaks(context: &Context<'_>, report: &mut PaperReport, runs: &[Run]) {
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

fn draw(report: &mut PaperReport, runs: &[Run]) {
    let mixes = MIXES.iter().map(|(name, ..)| format!("YCSB {name}"));
    let probes = |run: &Run| bars(run.name, run.mixes[..E].iter().map(Phase::tables_per_get));
    let titles = ["Tables probed per get", "mix", "tables"];
    report.draw_bars("probes", titles, mixes, runs.iter().map(probes).collect());
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
