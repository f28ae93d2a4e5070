//! Figure 2: leveling, lazy leveling, tiering and fragmented leveling at T = 6 with entries of 256
//! bytes, load and mix A. There are no filters: with them hardly any block is read in vain,
//! whatever the policy.

use runstone_kv::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::ScrambledZipfian;

use super::tree::{KEY_BYTES, Phase, Tree, each, sides_of, write_amplification};
use super::{DIVISOR, Rival, options};
use crate::numbers::{list, strokes};
use crate::report::{bars, line, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 100 M writes, and as many operations of mix A.
const RECORDS: u64 = 100_000_000 / DIVISOR;
const ENTRY_BYTES: usize = 256;
/// The percentiles of the distribution, in thousandths of a percent.
const PERCENTILES: [usize; 6] = [50_000, 90_000, 99_000, 99_900, 99_990, 100_000];

rows! {
    WRITTEN = "write amplification: leveling, lazy leveling, tiering (figure 2)",
        "leveling worst, lazy leveling between" => Falls;
    BLOCKS = "data blocks per get: leveling, lazy leveling, tiering (figure 2)",
        "leveling best, lazy leveling between" => Rises;
    LATENCY = "time per operation, leveling over the slower of the two (figure 2)",
        "leveling worst" => Rises;
    SPACE = "bytes over those of all records: {} (figure 2)",
        "" => Beside("the text gives neither order nor size");
    LATENCIES = "us per operation: {} (figure 2)",
        "" => Beside("the figure prints no numbers");
    TAIL = "ms of the slowest operation, fragmented leveling and leveling (figure 2)",
        "leveling has a long tail" => Rises;
    DISTRIBUTION = "us at 50, 90, 99, 99.9, 99.99, 100% of the operations: {} (figure 2)",
        "" => Beside("who operates also flushes and compacts here; there a thread does");
}

/// The results of one store.
struct Run {
    name: &'static str,
    load: Phase,
    mix: Phase,
    bytes: u64,
    /// The latency of each operation, in order.
    latencies: Vec<u64>,
}

impl Run {
    fn us(&self) -> f64 {
        (self.load.us + self.mix.us) / 2.0
    }

    /// The latency that this share of the operations does not exceed, in thousandths of a percent.
    fn latency_at(&self, share: usize) -> f64 {
        let place = (self.latencies.len() * share).div_ceil(100_000).max(1);
        self.latencies[place - 1] as f64 / 1e3
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = ["leveling", "lazy-leveling", "tiering", "fragmented-leveling"].map(|policy| {
        let mut options = options(policy, 6);
        options.filter_bits_per_key = 0.0.into();
        (policy, options)
    });
    let records = context.scaled(RECORDS);
    report.compare(&sides_of(&rivals), &[])?;
    let what = "entries of 256 bytes, T = 6, load and A";
    let runs = each(context, what, &rivals, |rival| measure(rival, records))?;
    let written = runs.iter().map(|run| write_amplification([&run.load, &run.mix]));
    let written: Vec<f64> = written.collect();
    report.judge(WRITTEN, strokes(&written[..3], 2), &written[..3]);
    let blocks: Vec<f64> = runs.iter().map(|run| run.mix.blocks_per_get()).collect();
    report.judge(BLOCKS, strokes(&blocks[..3], 4), &blocks[..3]);
    let took: Vec<f64> = runs.iter().map(Run::us).collect();
    let slower = took[0] / took[1].max(took[2]);
    report.judge(LATENCY, format!("{slower:.2}"), &[1.0, slower]);
    let names = rivals.each_ref().map(|(name, _)| *name).join("; ");
    report.show(LATENCIES.of(&[&names]), list(&took, 2));
    let space = runs.iter().map(|run| run.bytes as f64 / (records * ENTRY_BYTES as u64) as f64);
    let space: Vec<f64> = space.collect();
    report.show(SPACE.of(&[&names]), list(&space, 2));
    let slowest = [3, 0].map(|at: usize| runs[at].latency_at(100_000) / 1e3);
    report.judge(TAIL, list(slowest, 1), &slowest);
    let at = |run: &Run| list(PERCENTILES.map(|share| run.latency_at(share)), 1);
    let all: Vec<String> = runs.iter().map(at).collect();
    report.show(DISTRIBUTION.of(&[&names]), all.join("; "));
    draw(report, &runs, [&written, &space, &blocks, &took]);
    Ok(())
}

fn measure(rival: &Rival, records: u64) -> Result<Run> {
    let mut tree = Tree::open(rival, ENTRY_BYTES - KEY_BYTES)?;
    tree.latencies = Some(Vec::new());
    let load = tree.phase(records, Tree::insert)?;
    let chooser = ScrambledZipfian::new(tree.records);
    let mix = tree.phase(records, |tree, count| tree.mix(&chooser, count, (50, 0)))?;
    let mut latencies = tree.latencies.take().unwrap_or_default();
    latencies.sort_unstable();
    Ok(Run { name: tree.name, load, mix, bytes: tree.bytes(), latencies })
}

/// Draws the measures relative to leveling, as in the paper, and the distribution of latencies.
fn draw(report: &mut PaperReport, runs: &[Run], measures: [&[f64]; 4]) {
    let of = |(at, run): (usize, &Run)| {
        bars(run.name, measures.iter().map(|values| values[at] / values[0]))
    };
    let titles = ["Load and mix A, over leveling", "measure", "ratio"];
    let categories = ["bytes written", "space", "blocks per get", "time"];
    report.draw_bars("figure-2", titles, categories, runs.iter().enumerate().map(of).collect());
    let points = |run: &Run| {
        let at = |permille: usize| (run.latency_at(permille * 100), permille as f64 / 10.0);
        line(run.name, (1..=1000).map(at))
    };
    let x = Axis::doubling("us of the machine");
    let lines = runs.iter().map(points).collect();
    report.draw_lines("figure-2-cdf", "Latency of load and mix A", x, "% of operations", lines);
}
