//! Figure 6: uniform writes, then uniform reads, of entries of four sizes, with files in memory:
//! writes are judged by their bytes, reads by processor time once the compactions that they ask for
//! are done.

use std::collections::HashSet;

use runstone::Result;
use runstone_workloads::median;

use super::reasons::taken_apart;
use super::tree::{KEY_BYTES, Tree, in_rounds, in_turns, median_ratio, write_amplification};
use super::{DIVISOR, Rival, rivals, sides_of};
use crate::numbers::{list, ratio};
use crate::report::{bars, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 50 M writes, and as many reads; here a third as many for the sizes of the tree, or the trees of
/// large entries would take longer than all else.
const OPERATIONS: u64 = 50_000_000 / DIVISOR / 3;
/// Bytes of keys and values.
const SIZES: [usize; 4] = [124, 256, 512, 1024];

rows! {
    WRITES_TIERED = "bytes of the writes of {} B, for their throughput, PTierDB over tiered (6a)",
        "close to tiered" => Alike(0.3);
    WRITES_LAST = "the same with merges inside the last level only, the paper's rule (6a)",
        "close to tiered" => Alike(0.3);
    WRITES_LEVELED = "bytes of the writes at 124, 256, 512, 1024 B, PTierDB over leveled (6a)",
        "better than leveled and SILK" => AtMost(1.0);
    WRITES_WISCKEY = "the same of WiscKey over the least of the others (6a)",
        "WiscKey outperforms the others" => AtMost(1.0);
    WRITES_APART = "the writes of {} at 124 B taken apart, per byte of the user (6a)",
        "" => NotComparable("in brackets what is left of the bytes that compactions read");
    WRITES = "bytes written per byte of the user at {} B: {} (6a)",
        "" => NotComparable("the figure prints no numbers");
    READS_TIERED = "time per get of {} B with filters of 10 bits, tiered over PTierDB (6b)",
        "reads 1.5 to 2 times as fast" => Ratios(&[1.5]);
    READS_LAST = "the same with merges inside the last level only, the paper's rule (6b)",
        "reads 1.5 to 2 times as fast" => Ratios(&[1.5]);
    READS_LEVELED = "time per get at 124 and 1024 B, PTierDB over leveled (6b)",
        "outperforms" => AtMost(1.0);
    READS_CLOSE = "time per get at {} B, PTierDB over leveled (6b)",
        "close" => Alike(0.1);
    READS_WISCKEY = "time per get at 124, 256, 512 B, WiscKey over the slowest of the others (6b)",
        "WiscKey is the worst" => Rises;
    READS = "us per get at {} B: {} (6b)",
        "" => NotComparable("the figure prints no numbers");
    BLOCKS = "blocks per get of 124 B without filters, tiered over PTierDB (6b)",
        "reads 1.5 to 2 times as fast" => NotComparable("the paper has filters of 10 bits");
}

/// What the stores did with entries of one size, in their order.
struct Uniform {
    written: Vec<f64>,
    /// Of the writes of each store.
    apart: Vec<String>,
    get_us: Vec<[f64; 5]>,
    get_blocks: Vec<f64>,
}

impl Uniform {
    fn us(&self) -> Vec<f64> {
        self.get_us.iter().map(|us| median(us.to_vec())).collect()
    }

    /// Time per get, one store over another.
    fn reads(&self, (one, other): (usize, usize)) -> (String, f64) {
        median_ratio(&self.get_us[one], &self.get_us[other])
    }

    fn writes(&self, (one, other): (usize, usize)) -> (String, f64) {
        ratio(self.written[one], self.written[other], 2, "")
    }
}

/// Places among the stores.
const LEVELED: usize = 0;
const TIERED: usize = 1;
const WISCKEY: usize = 5;
const EVERY: usize = 6;
const LAST: usize = 7;

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let names = rivals.each_ref().map(|(name, _)| *name);
    let mut seen = Vec::new();
    for bytes in SIZES {
        let uniform = measure(context, &rivals, bytes)?;
        judge(report, bytes, &uniform);
        report.show(WRITES.of(&[&bytes, &names.join("; ")]), list(&uniform.written, 2));
        report.show(READS.of(&[&bytes, &names.join("; ")]), list(uniform.us(), 2));
        seen.push(uniform);
    }
    for at in [TIERED, EVERY] {
        report.show(WRITES_APART.of(&[&names[at]]), &*seen[0].apart[at]);
    }
    judge_all(report, &seen);
    draw(report, &names, &seen);
    // Filters hide what overlaps: without them the blocks tell.
    let rivals = [TIERED, EVERY].map(|at| {
        let (name, mut options) = rivals[at].clone();
        options.filter_bits_per_key_x10 = 0;
        (name, options)
    });
    report.compare(&sides_of(&rivals), &[])?;
    let blocks = measure(context, &rivals, SIZES[0])?.get_blocks;
    report.show(BLOCKS, ratio(blocks[0], blocks[1], 2, "").0);
    Ok(())
}

fn measure(context: &Context<'_>, rivals: &[Rival], bytes: usize) -> Result<Uniform> {
    let operations = context.scaled(OPERATIONS);
    context.say(&format!("uniform writes and reads of {bytes} bytes"));
    let open = |rival| Tree::open(rival, bytes - KEY_BYTES, None);
    let mut trees = rivals.iter().map(open).collect::<Result<Vec<_>>>()?;
    // Every tree draws the same.
    let mut rng = trees[0].rng.clone();
    let distinct: HashSet<u64> = (0..operations).map(|_| rng.below(operations)).collect();
    for tree in &mut trees {
        tree.records = operations;
    }
    let writes = in_turns(&mut trees, operations, |_| Box::new(Tree::uniform_puts))?;
    let each = trees.iter().zip(&writes);
    let apart = each.map(|(tree, phase)| taken_apart(tree, phase, distinct.len())).collect();
    for tree in &mut trees {
        tree.uniform_gets(2 * operations)?;
        tree.counted();
    }
    let get_us = in_rounds(&mut trees, operations / 5, Tree::uniform_gets)?;
    let blocks = |tree: &mut Tree| {
        let counters = tree.counted();
        counters.blocks_searched as f64 / counters.gets.max(1) as f64
    };
    Ok(Uniform {
        written: writes.iter().map(|phase| write_amplification([phase])).collect(),
        apart,
        get_us,
        get_blocks: trees.iter_mut().map(blocks).collect(),
    })
}

/// The rows of one size.
fn judge(report: &mut PaperReport, bytes: usize, seen: &Uniform) {
    for (row, at) in [(WRITES_TIERED, EVERY), (WRITES_LAST, LAST)] {
        let (text, more) = seen.writes((at, TIERED));
        report.judge(row.of(&[&bytes]), text, &[1.0, more]);
    }
    for (row, at) in [(READS_TIERED, EVERY), (READS_LAST, LAST)] {
        let (text, faster) = seen.reads((TIERED, at));
        report.judge(row.of(&[&bytes]), text, &[faster]);
    }
    if [256, 512].contains(&bytes) {
        let (text, slower) = seen.reads((EVERY, LEVELED));
        report.judge(READS_CLOSE.of(&[&bytes]), text, &[1.0, slower]);
    }
}

/// The rows of several sizes.
fn judge_all(report: &mut PaperReport, seen: &[Uniform]) {
    let writes: Vec<f64> = seen.iter().map(|seen| seen.writes((EVERY, LEVELED)).1).collect();
    report.judge(WRITES_LEVELED, list(&writes, 2), &writes);
    let others = |at: &usize| *at != WISCKEY;
    let writes: Vec<f64> = seen
        .iter()
        .map(|seen| {
            let written = (0..seen.written.len()).filter(others).map(|at| seen.written[at]);
            seen.written[WISCKEY] / written.fold(f64::INFINITY, f64::min)
        })
        .collect();
    report.judge(WRITES_WISCKEY, list(&writes, 2), &writes);
    let reads = [&seen[0], &seen[3]].map(|seen| seen.reads((EVERY, LEVELED)).1);
    report.judge(READS_LEVELED, list(reads, 2), &reads);
    let reads: Vec<f64> = seen[..3]
        .iter()
        .map(|seen| {
            let over = |at| seen.reads((WISCKEY, at)).1;
            (0..seen.get_us.len()).filter(others).map(over).fold(f64::INFINITY, f64::min)
        })
        .collect();
    let least = reads.iter().copied().fold(f64::INFINITY, f64::min);
    report.judge(READS_WISCKEY, list(&reads, 2), &[1.0, least]);
}

fn draw(report: &mut PaperReport, names: &[&str], seen: &[Uniform]) {
    let sizes = SIZES.map(|bytes| format!("{bytes} B"));
    let numbered = || names.iter().enumerate();
    let writes = numbered().map(|(at, name)| bars(name, seen.iter().map(|seen| seen.written[at])));
    let titles = ["Uniform writes", "size of an entry", "bytes written / user bytes"];
    report.draw_bars("figure-6a", titles, sizes.clone(), writes.collect());
    let reads = numbered().map(|(at, name)| bars(name, seen.iter().map(|seen| seen.us()[at])));
    let titles = ["Uniform reads", "size of an entry", "us of processor time per get"];
    report.draw_bars("figure-6b", titles, sizes, reads.collect());
}
