//! Figure 6: uniform writes, then uniform reads, of entries of four sizes. Reads are judged once
//! the compactions that they cause are done. The same writes in the simulator show how far its
//! computation of table I can be trusted.

use std::collections::HashSet;

use runstone::ValuePlacement;
use runstone_kv::Result;

use super::reasons::taken_apart;
use super::simulated::uniform_writes;
use super::tree::{KEY_BYTES, Tree, each, sides_of, write_amplification};
use super::{
    DIVISOR, EVERY, FRAGMENTED, LAST, LAZY, LEVELED, OTHERS, Rival, TIERED, WISCKEY, rivals,
};
use crate::numbers::{list, ratio};
use crate::report::{bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// 50 M writes, and as many reads.
pub(super) const OPERATIONS: u64 = 50_000_000 / DIVISOR;
/// Bytes of keys and values.
pub(super) const SIZES: [usize; 4] = [124, 256, 512, 1024];

rows! {
    WRITES_TIERED = "time of writes of 124 to 1024 B, PTierDB over tiered (6a)",
        "close" => Close(0.1);
    WRITES_LAZY = "time of writes of 124 to 1024 B, PTierDB over lazy leveling (6a)",
        "close" => Close(0.1);
    WRITES_LEVELED = "time of writes of 124 to 1024 B, PTierDB over leveled (6a)",
        "better" => AtMost(1.0);
    WRITES_SILK = "time of writes of 124 to 1024 B, PTierDB over SILK's fragmented leveling (6a)",
        "better" => AtMost(1.0);
    WRITES_WISCKEY = "time of writes of 124 to 1024 B, WiscKey over the fastest other (6a)",
        "outperforms the others" => AtMost(1.0);
    WRITES_APART = "the writes of {} at 124 B taken apart, per byte of the user (6a)",
        "" => Beside("in brackets what is left of the bytes that compactions read");
    WRITES = "us per write at {} B, all nine (6a)",
        "" => Beside("the figure prints no numbers");
    WRITTEN = "bytes written per byte of the user at {} B, all nine (6a)",
        "" => Beside("the figure prints no numbers");
    SIMULATED = "bytes of the writes at 124 B by the simulator over the engine's: all but WiscKey",
        "" => Beside("not in the paper; what tables add to entries, 8%, is left out");
    READS_TIERED = "time per get of 124 to 1024 B, tiered over PTierDB (section I, 6b)",
        "reads 1.5 to 2 times as fast" => Ratios(&[1.5; 4]);
    READS_EVERY = "the same, merges inside every level (6b)",
        "reads 1.5 to 2 times as fast" => Ratios(&[1.5; 4]);
    READS_BEST = "time per get at 124 and 1024 B, PTierDB over the fastest other (6b)",
        "outperforms the others" => AtMost(1.0);
    READS_CLOSE = "time per get at 256, 512 B, PTierDB over leveled (6b)",
        "close" => Close(0.1);
    READS_WISCKEY = "time per get at 124, 256, 512 B, WiscKey over the slowest other (6b)",
        "the worst" => Rises;
    READS = "us per get at {} B, all nine (6b)",
        "" => Beside("the figure prints no numbers");
    READS_SSD = "us per get at {} B with all reads from the SSD, all nine",
        "" => Beside("the paper's databases fit into its page cache");
    PROBED = "tables probed per get at {} B, all nine (6b)",
        "" => Beside("not in the paper; filters asked included");
    BLOCKS = "blocks per get of 124 B without filters, tiered over PTierDB (6b)",
        "reads 1.5 to 2 times as fast" => Beside("the paper has filters of 10 bits");
}

/// A number among the results of one store.
type Measure = fn(&Uniform) -> f64;

/// The results of one store with entries of one size.
pub(super) struct Uniform {
    written: f64,
    put_us: f64,
    pub(super) get_us: f64,
    get_ssd_us: f64,
    get_tables: f64,
    get_blocks: f64,
    /// A breakdown of the bytes that the writes wrote.
    apart: String,
}

/// The results of all stores with entries of one size, in their order.
struct Seen(Vec<Uniform>);

impl Seen {
    fn all(&self, value: Measure) -> Vec<f64> {
        self.0.iter().map(value).collect()
    }

    /// The time per put of one store, divided by that of another.
    fn puts(&self, one: usize, other: usize) -> f64 {
        self.0[one].put_us / self.0[other].put_us
    }

    /// The time per get of one store, divided by that of another.
    fn gets(&self, one: usize, other: usize) -> f64 {
        self.0[one].get_us / self.0[other].get_us
    }

    /// The value of one store, divided by the least value of the paper's other stores.
    fn over_least(&self, one: usize, value: Measure) -> f64 {
        let others = OTHERS.into_iter().filter(|other| *other != one);
        let least = others.map(|other| value(&self.0[other])).fold(f64::INFINITY, f64::min);
        value(&self.0[one]) / least
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let rivals = rivals();
    report.compare(&sides_of(&rivals), &[])?;
    let mut seen = Vec::new();
    for bytes in SIZES {
        let one = measure(context, &rivals, bytes)?;
        report.show(WRITES.of(&[&bytes]), list(one.all(|one| one.put_us), 2));
        report.show(WRITTEN.of(&[&bytes]), list(one.all(|one| one.written), 2));
        report.show(READS.of(&[&bytes]), list(one.all(|one| one.get_us), 2));
        report.show(READS_SSD.of(&[&bytes]), list(one.all(|one| one.get_ssd_us), 1));
        report.show(PROBED.of(&[&bytes]), list(one.all(|one| one.get_tables), 2));
        seen.push(one);
    }
    for at in [TIERED, EVERY] {
        report.show(WRITES_APART.of(&[&rivals[at].0]), &*seen[0].0[at].apart);
    }
    judge(report, &seen);
    show_simulated(context, report, &rivals, &seen[0]);
    draw(report, &seen);
    // Filters hide that tables overlap. Without filters, the blocks show it.
    let rivals = [TIERED, EVERY].map(|at| {
        let (name, mut options) = rivals[at].clone();
        options.filter_bits_per_key = 0.0.into();
        (name, options)
    });
    report.compare(&sides_of(&rivals), &[])?;
    let blocks = measure(context, &rivals, SIZES[0])?.all(|one| one.get_blocks);
    report.show(BLOCKS, ratio(blocks[0], blocks[1], 2, "").0);
    Ok(())
}

fn measure(context: &Context<'_>, rivals: &[Rival], bytes: usize) -> Result<Seen> {
    let operations = context.scaled(OPERATIONS);
    let what = format!("uniform writes and reads of {bytes} bytes");
    let seen = each(context, &what, rivals, |rival| {
        uniform(Tree::open(rival, bytes - KEY_BYTES)?, operations)
    })?;
    Ok(Seen(seen))
}

/// Runs this many writes, and then gets, once the compactions that the gets cause are done.
pub(super) fn uniform(mut tree: Tree, operations: u64) -> Result<Uniform> {
    let mut rng = tree.rng.clone();
    let distinct: HashSet<u64> = (0..operations).map(|_| rng.below(operations)).collect();
    tree.records = operations;
    let puts = tree.phase(operations, Tree::uniform_puts)?;
    let apart = taken_apart(&tree, &puts, distinct.len());
    tree.phase(2 * operations, Tree::uniform_gets)?;
    let gets = tree.phase(operations, Tree::uniform_gets)?;
    Ok(Uniform {
        written: write_amplification([&puts]),
        put_us: puts.us,
        get_us: gets.us,
        get_ssd_us: gets.ssd_us,
        get_tables: gets.tables_per_get(),
        get_blocks: gets.blocks_per_get(),
        apart,
    })
}

fn judge(report: &mut PaperReport, seen: &[Seen]) {
    let rows = [
        (WRITES_TIERED, TIERED),
        (WRITES_LAZY, LAZY),
        (WRITES_LEVELED, LEVELED),
        (WRITES_SILK, FRAGMENTED),
    ];
    for (row, other) in rows {
        let times: Vec<f64> = seen.iter().map(|seen| seen.puts(LAST, other)).collect();
        report.judge(row, list(&times, 2), &times);
    }
    let over = |seen: &Seen| seen.over_least(WISCKEY, |one| one.put_us);
    let times: Vec<f64> = seen.iter().map(over).collect();
    report.judge(WRITES_WISCKEY, list(&times, 2), &times);
    for (row, at) in [(READS_TIERED, LAST), (READS_EVERY.uncounted(), EVERY)] {
        let times: Vec<f64> = seen.iter().map(|seen| seen.gets(TIERED, at)).collect();
        report.judge(row, list(&times, 2), &times);
    }
    let times = [&seen[1], &seen[2]].map(|seen| seen.gets(LAST, LEVELED));
    report.judge(READS_CLOSE, list(times, 2), &times);
    let times = [&seen[0], &seen[3]].map(|seen| seen.over_least(LAST, |one| one.get_us));
    report.judge(READS_BEST, list(times, 2), &times);
    let least = |all: &mut dyn Iterator<Item = f64>| all.fold(f64::INFINITY, f64::min);
    let over_slowest = |seen: &Seen| {
        let others = OTHERS.into_iter().chain([LAST]).filter(|other| *other != WISCKEY);
        least(&mut others.map(|other| seen.gets(WISCKEY, other)))
    };
    let times: Vec<f64> = seen[..3].iter().map(over_slowest).collect();
    report.judge(READS_WISCKEY, list(&times, 2), &[1.0, least(&mut times.iter().copied())]);
}

fn show_simulated(context: &Context<'_>, report: &mut PaperReport, rivals: &[Rival], seen: &Seen) {
    let inline = |(_, options): &Rival| options.values.placement == ValuePlacement::Inline;
    let mut over = Vec::new();
    for ((_, options), one) in rivals.iter().zip(&seen.0).filter(|(rival, _)| inline(rival)) {
        let operations = context.scaled(OPERATIONS);
        over.push(uniform_writes(options, operations, SIZES[0] as u64) / one.written);
    }
    report.show(SIMULATED, list(over, 2));
}

fn draw(report: &mut PaperReport, seen: &[Seen]) {
    let sizes = SIZES.map(|bytes| format!("{bytes} B"));
    let rivals = rivals();
    let pictures: [(&str, [&str; 3], Measure); 3] = [
        ("figure-6a", ["Uniform writes", "size of an entry", "us per put"], |one| one.put_us),
        ("figure-6b", ["Uniform reads", "size of an entry", "us per get"], |one| one.get_us),
        (
            "figure-6a-bytes",
            ["Uniform writes", "size of an entry", "bytes written / user bytes"],
            |one| one.written,
        ),
    ];
    // The least speed-up of reads in section I, for the paper's own rule.
    let faster = |seen: &Seen| seen.0[TIERED].get_us / 1.5;
    for (picture, titles, value) in pictures {
        let of = |(at, (name, _)): (usize, &Rival)| {
            let paper = match (picture, at) {
                ("figure-6b", LAST) => seen.iter().map(faster).collect(),
                _ => Vec::new(),
            };
            bars_beside(name, seen.iter().map(|seen| value(&seen.0[at])), paper)
        };
        report.draw_bars(
            picture,
            titles,
            sizes.clone(),
            rivals.iter().enumerate().map(of).collect(),
        );
    }
}
