//! Figure 2: leveling, lazy leveling, tiering and fragmented leveling at T = 6 with entries of 256
//! bytes, load and mix A, with files in memory. Without filters: with them hardly any block is read
//! in vain, whatever the policy.

use runstone::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::ScrambledZipfian;

use super::tree::{KEY_BYTES, Tree, in_turns, write_amplification};
use super::{DIVISOR, options, sides_of};
use crate::numbers::{list, strokes};
use crate::report::{bars, line, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 100 M writes, and as many operations of mix A.
const RECORDS: u64 = 100_000_000 / DIVISOR;
const ENTRY_BYTES: usize = 256;
/// In thousandths of a percent.
const PERCENTILES: [usize; 6] = [50_000, 90_000, 99_000, 99_900, 99_990, 100_000];

rows! {
    WRITTEN = "write amplification: leveling, lazy leveling, tiering (figure 2)",
        "leveling worst, lazy leveling between" => Falls;
    BLOCKS = "data blocks per get: leveling, lazy leveling, tiering (figure 2)",
        "leveling best, lazy leveling between" => Rises;
    LATENCY = "processor time per operation, leveling over the slower of the two (figure 2)",
        "leveling worst" => Rises;
    SPACE = "bytes over those of all records: {} (figure 2)",
        "" => NotComparable("the text gives neither order nor size");
    LATENCIES = "us per operation: {} (figure 2)",
        "" => NotComparable("the figure prints no numbers");
    DISTRIBUTION = "us at 50, 90, 99, 99.9, 99.99, 100% of the operations, {} (figure 2)",
        "leveling has a long tail" => NotComparable("here the thread that writes also compacts");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = ["leveling", "lazy-leveling", "tiering", "fragmented-leveling"].map(|policy| {
        let mut options = options(policy, 6);
        options.filter_bits_per_key_x10 = 0;
        (policy, options)
    });
    report.compare(&sides_of(&rivals), &[])?;
    let records = context.scaled(RECORDS);
    let mut trees = Vec::new();
    for rival in &rivals {
        let value_bytes = ENTRY_BYTES - KEY_BYTES;
        let mut tree = Tree::open(rival, value_bytes, None)?;
        tree.latencies = Some(Vec::new());
        trees.push(tree);
    }
    context.say("entries of 256 bytes, T = 6: load");
    let loads = in_turns(&mut trees, records, |_| Box::new(Tree::insert))?;
    context.say("mix A");
    let mixes = in_turns(&mut trees, records, |tree| {
        let chooser = ScrambledZipfian::new(tree.records);
        Box::new(move |tree, count| tree.mix(&chooser, count, (50, 0)))
    })?;
    let both = || loads.iter().zip(&mixes);
    let written: Vec<f64> = both().map(|(load, mix)| write_amplification([load, mix])).collect();
    report.judge(WRITTEN, strokes(&written[..3], 2), &written[..3]);
    let blocks: Vec<f64> = mixes.iter().map(|mix| mix.blocks_per_get()).collect();
    report.judge(BLOCKS, strokes(&blocks[..3], 4), &blocks[..3]);
    let took: Vec<f64> = both().map(|(load, mix)| (load.us + mix.us) / 2.0).collect();
    let slower = took[0] / took[1].max(took[2]);
    report.judge(LATENCY, format!("{slower:.2}"), &[1.0, slower]);
    let names = rivals.each_ref().map(|(name, _)| *name).join("; ");
    report.show(LATENCIES.of(&[&names]), list(&took, 2));
    let space: Vec<f64> = trees
        .iter()
        .map(|tree| tree.bytes() as f64 / (records * ENTRY_BYTES as u64) as f64)
        .collect();
    report.show(SPACE.of(&[&names]), list(&space, 2));
    draw(report, &trees, [&written, &space, &blocks, &took]);
    distributions(report, trees);
    Ok(())
}

/// Relative to leveling, as in the paper.
fn draw(report: &mut PaperReport, trees: &[Tree], measures: [&[f64]; 4]) {
    let of = |(at, tree): (usize, &Tree)| {
        bars(tree.name, measures.iter().map(|values| values[at] / values[0]))
    };
    let titles = ["Load and mix A, over leveling", "measure", "ratio"];
    let categories = ["bytes written", "space", "blocks per get", "time"];
    let each = trees.iter().enumerate().map(of).collect();
    report.draw_bars("figure-2", titles, categories, each);
}

/// The right half of the figure.
fn distributions(report: &mut PaperReport, trees: Vec<Tree>) {
    let mut lines = Vec::new();
    for tree in trees {
        let mut latencies = tree.latencies.unwrap_or_default();
        latencies.sort_unstable();
        // The least latency that so many operations do not exceed.
        let at = |share: usize| {
            let place = (latencies.len() * share).div_ceil(100_000).max(1);
            latencies[place - 1] as f64
        };
        let us = PERCENTILES.map(|share| at(share) / 1e3);
        report.show(DISTRIBUTION.of(&[&tree.name]), list(us, 1));
        let points = (1..=1000).map(|permille| (at(permille * 100), permille as f64 / 10.0));
        lines.push(line(tree.name, points));
    }
    let x = Axis::bytes("nanoseconds of processor time (K = 1024)");
    report.draw_lines("figure-2-cdf", "Latency of load and mix A", x, "% of operations", lines);
}
