//! Loads in simulated device time: one client writes as fast as it may. Flushes gather while a
//! compaction runs, so that the next compaction reads more of them.
//!
//! Gets are measured at eight moments of the load's last quarter, because the number of runs that
//! wait at its end is a matter of chance: at half the scale the order of two trees was reversed.
//! Scans are measured when the load ends, while the background continues. Gets are shown at that
//! moment too, and once nothing is left to do.
//!
//! The paper keeps RocksDB's defaults. One flush and one compaction run at a time: these are the
//! two background jobs. Writers are slowed at 20 runs and stop at 36; the bytes that a leveled tree
//! has to compact may also slow or stop them, and two waiting memtables stop them. Entries of 1 KiB
//! set the pace of writes. The time of 100,000 gets and 10,000 scans is the time that the
//! background has while they run. Everything is divided by 1,024, like the data. We chose the
//! device: it is that of our page about Autumn. How fast a compaction is depends on the device, and
//! not on the number of threads.

use runstone::KeyspaceOptions;
use runstone_kv::Result;
use runstone_policy::partition::Partitioner;

use super::load::{STACKED, Seen};
use super::reads::{GETS, SCAN_ENTRIES, SCANS};
use super::{FLUSH_BYTES, Flushes, THREADS, paper_stack, side_of, tree};
use crate::device_time::{self, Lanes, Limits};
use crate::engine::{Loaded, write_amplification};
use crate::numbers::strokes;
use crate::report::{bars, bars_beside, rows};
use crate::sides::{self, SUB_COMPACTIONS};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// The data and the tree are smaller than in the paper by this factor.
pub(super) const DIVISOR: u64 = 1024;
pub(super) const ENTRY_BYTES: u64 = 1024;
const MOMENTS: u64 = 8;
const PAPER_GETS: u64 = 100_000;
const PAPER_SCANS: u64 = 10_000;
const SLOW_AND_STOP_RUNS: [usize; 2] = [20, 36];
const SLOW_AND_STOP_BYTES: [u64; 2] = [(64 << 30) / DIVISOR, (256 << 30) / DIVISOR];

rows! {
    LEVELED_WRITES = "write amplification, Global-Range and leveled; {}",
        "leveled writes most" => Rises;
    ALL = "write amplification of all five; simulated seconds of the load; of these waited by \
           writers; runs at its end; runs at rest; {}",
        "" => Beside("the figures are not in the text; a compaction is bound by the device alone");
    SWITCH = "write amplification, Global-Range and leveled, all due jobs between two flushes; {}",
        "leveled writes most" => Rises;
    SWITCH_GETS = "blocks of a get that hits, leveled and Global-Range, all due jobs between two \
                   flushes; {}",
        "leveled excels, with fewer runs" => Rises;
    PARTS = "bytes compacted per byte of the critical path; time of the writes by its bytes; in \
             lanes, {}",
        "Global-Range up to 30% above Size; 8% faster than none, 13% than Size"
        => Ratios(&[1.3, 1.08, 1.13]);
    SCAN_READS =
        "file reads of a scan of 1,000 keys without a cache, {}: Global-Range over Size",
        "range queries at most 10% slower" => AtMost(1.1);
    GETS_THAT_HIT = "blocks of a get that hits, {}: Global-Range over Size",
        "point queries as fast or faster" => AtMost(1.02);
    LEVELED_GETS = "blocks of a get that hits, leveled and Global-Range; {}",
        "leveled excels, with fewer runs" => Rises;
    MOMENTS_APART = "the same when the load ends; when nothing is left to do; {}",
        "leveled excels, with fewer runs" => Beside("one moment, which is chance");
}

pub(super) const LEVELED: &str = "leveled";
const NAMES: &str = "none / size / local / global / leveled";

/// The results of a load in lanes, and the cost of reads of its tree.
struct Measured {
    load: Seen,
    /// Simulated time, and the part of it in which writers waited.
    seconds: [f64; 2],
    /// The number of runs at the end of the load, and when nothing is left to do.
    runs: [f64; 2],
    /// Mean of the moments; from the load's end on; when nothing is left to do.
    get_blocks: f64,
    last_get_blocks: f64,
    calm_get_blocks: f64,
    scan_reads: f64,
}

/// The lanes of a tree of this name.
pub(super) fn lanes_of(name: &str) -> Lanes {
    // For a stack, RocksDB does not limit the bytes to compact.
    let debt_bytes = if name == LEVELED { SLOW_AND_STOP_BYTES } else { [u64::MAX; 2] };
    let flushes = device_time::Flushes::First;
    Lanes::new(Limits { runs: SLOW_AND_STOP_RUNS, debt_bytes, flushes, background_speed: 1 })
}

/// The five trees of the paper.
fn trees() -> Vec<(&'static str, KeyspaceOptions)> {
    let stacks = STACKED.map(|(name, one)| (name, paper_stack(one, FLUSH_BYTES, Flushes::Whole)));
    let leveled = tree("fragmented-leveling", Partitioner::Size, FLUSH_BYTES);
    stacks.into_iter().chain([(LEVELED, leveled)]).collect()
}

pub(super) fn lanes(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (is_skewed, at, figure) in
        [(false, "random keys", "figure-8"), (true, "skewed keys", "figure-11")]
    {
        let side = |(name, one): &(&str, _)| side_of(name, one).with(sides::THREADS, THREADS);
        report.compare(&trees().iter().map(side).collect::<Vec<_>>(), &[SUB_COMPACTIONS])?;
        let mut seen = Vec::new();
        for (name, options) in trees() {
            context.say(&format!("load in lanes, {name}, {at}"));
            seen.push(measure(context, name, options, is_skewed)?);
        }
        judge_writes(report, &seen, at);
        if !is_skewed {
            switch_off(context, report, at)?;
        }
        judge_reads(report, &seen, at, figure);
        if !is_skewed {
            cut_flushes(context, report, at)?;
        }
    }
    Ok(())
}

/// Loads a tree whose compactions have 16 threads, as in almost all loads here. Returns the results
/// of the load, the tree, and the mean number of blocks that a get reads near the end of the load.
fn load(
    context: &Context<'_>,
    options: KeyspaceOptions,
    is_skewed: bool,
    lanes: Option<Lanes>,
) -> Result<(Seen, Loaded, f64)> {
    let mut blocks = Vec::new();
    let mut look = |tree: &mut Loaded| {
        blocks.push(get_blocks(tree, GETS / MOMENTS, 0.0)?);
        Ok(())
    };
    let (seen, tree) = Seen::with_tree(context, options, is_skewed, THREADS, lanes, &mut look)?;
    Ok((seen, tree, blocks.iter().sum::<f64>() / blocks.len() as f64))
}

fn measure(
    context: &Context<'_>,
    name: &str,
    options: KeyspaceOptions,
    is_skewed: bool,
) -> Result<Measured> {
    let lanes = lanes_of(name).of_entries(ENTRY_BYTES);
    let (load, tree, get_blocks) = load(context, options, is_skewed, Some(lanes))?;
    let (seconds, runs) = (tree.seconds(), run_count(&tree));
    let mut tree = tree.without_cache()?;
    let share = |of: u64, count| context.scale * of as f64 / (count * DIVISOR) as f64;
    let last_get_blocks = self::get_blocks(&mut tree, GETS, share(PAPER_GETS, GETS))?;
    let before = tree.table_reads();
    for _ in 0..SCANS {
        tree.timed(share(PAPER_SCANS, SCANS), |tree| tree.scan(1, SCAN_ENTRIES))?;
    }
    let scan_reads = (tree.table_reads() - before) as f64 / SCANS as f64;
    let mut tree = tree.calm()?;
    let runs = [runs, run_count(&tree)];
    let calm_get_blocks = self::get_blocks(&mut tree, GETS, 0.0)?;
    Ok(Measured { load, seconds, runs, get_blocks, last_get_blocks, scan_reads, calm_get_blocks })
}

fn get_blocks(tree: &mut Loaded, gets: u64, share: f64) -> Result<f64> {
    let before = tree.counters().blocks_searched;
    for _ in 0..gets {
        tree.timed(share, |tree| tree.get_present(1))?;
    }
    Ok((tree.counters().blocks_searched - before) as f64 / gets as f64)
}

fn run_count(tree: &Loaded) -> f64 {
    tree.shape().levels.iter().map(|level| level.runs().len()).sum::<usize>() as f64
}

fn judge_writes(report: &mut PaperReport, seen: &[Measured], at: &str) {
    let of = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { seen.iter().map(value).collect() };
    let written = of(&|one| write_amplification(&one.load.counters));
    let pair = [written[3], written[4]];
    report.judge(LEVELED_WRITES.of(&[&at]), strokes(pair, 2), &pair);
    let stacks: Vec<&Seen> = seen[..STACKED.len()].iter().map(|one| &one.load).collect();
    judge_parts(report, &stacks, at);
    let [seconds, waited] = [0, 1].map(|which: usize| of(&|one| one.seconds[which]));
    let [last, calm] = [0, 1].map(|which: usize| of(&|one| one.runs[which]));
    let all = [(written, 2), (seconds, 2), (waited, 2), (last, 0), (calm, 0)];
    report.show(ALL.of(&[&at]), all.map(|(each, digits)| strokes(each, digits)).join("; "));
}

/// Judges how much the compactions of the four stacks gain from being divided into parts.
fn judge_parts(report: &mut PaperReport, stacks: &[&Seen], at: &str) {
    let of =
        |value: fn(&Seen) -> f64| -> Vec<f64> { stacks.iter().map(|one| value(one)).collect() };
    let times = of(Seen::write_time);
    let through = of(Seen::throughput);
    let gains = [through[3] / through[1], times[0] / times[3], times[1] / times[3]];
    let here = [through, times].map(|each| strokes(each, 2)).join("; ");
    report.judge(PARTS.of(&[&at]).uncounted(), here, &gains);
}

/// If the partitioner cuts flushes too, a compaction that reads a flush is divided into parts.
fn cut_flushes(context: &Context<'_>, report: &mut PaperReport, at: &str) -> Result<()> {
    let stacks = STACKED.map(|(name, one)| (name, paper_stack(one, FLUSH_BYTES / 4, Flushes::Cut)));
    let side = |(name, one): &(&str, _)| side_of(name, one).with(sides::THREADS, THREADS);
    report.compare(&stacks.each_ref().map(side), &[])?;
    let mut seen = Vec::new();
    for (name, options) in stacks {
        context.say(&format!("load in lanes, {name}, cut flushes"));
        let lanes = lanes_of(name).of_entries(ENTRY_BYTES);
        seen.push(load(context, options, false, Some(lanes))?.0);
    }
    judge_parts(report, &seen.iter().collect::<Vec<_>>(), &format!("{at}, cut flushes"));
    Ok(())
}

/// Shows the cause: the same two trees without lanes.
fn switch_off(context: &Context<'_>, report: &mut PaperReport, at: &str) -> Result<()> {
    let (mut written, mut gets) = (Vec::new(), Vec::new());
    for (name, options) in trees().into_iter().skip(3) {
        context.say(&format!("load with all due jobs between two flushes, {name}"));
        let (seen, _, blocks) = load(context, options, false, None)?;
        written.push(write_amplification(&seen.counters));
        gets.push(blocks);
    }
    report.judge(SWITCH.of(&[&at]).uncounted(), strokes(&written, 2), &written);
    gets.reverse();
    report.judge(SWITCH_GETS.of(&[&at]).uncounted(), strokes(&gets, 3), &gets);
    Ok(())
}

fn judge_reads(report: &mut PaperReport, seen: &[Measured], at: &str, figure: &str) {
    let of = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { seen.iter().map(value).collect() };
    let (scans, gets) = (of(&|one| one.scan_reads), of(&|one| one.get_blocks));
    report.judge(SCAN_READS.of(&[&at]), strokes(&scans, 1), &[scans[3] / scans[1]]);
    report.judge(GETS_THAT_HIT.of(&[&at]), strokes(&gets, 3), &[gets[3] / gets[1]]);
    let pair = [gets[4], gets[3]];
    report.judge(LEVELED_GETS.of(&[&at]), strokes(pair, 3), &pair);
    let [last, calm] = [of(&|one| one.last_get_blocks), of(&|one| one.calm_get_blocks)];
    let apart = [last, calm].map(|each| strokes([each[4], each[3]], 3));
    report.show(MOMENTS_APART.of(&[&at]), apart.join("; "));
    let titles =
        [&format!("Reads, {at}")[..], "partitioner", "file reads per scan; blocks per get"];
    // For range queries the paper prints a bound: less than 10% slower than with Size.
    let bound = [f64::NAN, f64::NAN, f64::NAN, scans[1] / 100.0 * 1.1];
    let scans = scans.iter().map(|reads| reads / 100.0);
    let all = vec![bars_beside("scan of 1,000 / 100", scans, bound), bars("get", gets)];
    report.draw_bars(figure, titles, NAMES.split(" / "), all);
}
