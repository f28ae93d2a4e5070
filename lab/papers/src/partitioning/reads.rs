//! The cost of additional tables for reads when nothing is left to compact: point and range
//! queries on the trees of the loads, by counters, and by processor time measured alternately.

use runstone_kv::Result;
use runstone_policy::partition::Partitioner;
use runstone_workloads::median;

use super::load::STACKED;
use super::{FLUSH_BYTES, Flushes, data, paper_stack, side_of, tree};
use crate::engine::{Loaded, cpu_time};
use crate::numbers::strokes;
use crate::report::rows;
use crate::sides::{SUB_COMPACTIONS, Side};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// Scans and gets that are measured, and the entries of a scan.
pub(super) const SCANS: u64 = 300;
pub(super) const GETS: u64 = 20_000;
pub(super) const SCAN_ENTRIES: u64 = 1_000;

rows! {
    READS = "file reads of a scan of 1,000 keys without a cache; blocks of a get that hits; \
             nothing left to do, {}: Global-Range over Size",
        "at most 10% slower; as fast or faster" => AtMost(1.1);
    TIME = "processor time of scans, and of gets, Global-Range over Size; {}",
        "at most 10% more, and no more" => AtMost(1.1);
}

/// The cost of one tree's reads: reads of table files per scan, blocks per get, processor time of
/// all scans and of all gets.
struct Reads {
    scan_reads: f64,
    get_blocks: f64,
    cpu_seconds: [f64; 2],
}

/// Measures reads as in figures 8 and 11. Tables are as large as a flush.
pub(super) fn reads(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (is_skewed, at) in [(false, "random keys"), (true, "skewed keys")] {
        let stacks =
            STACKED.map(|(name, one)| (name, paper_stack(one, FLUSH_BYTES, Flushes::Whole)));
        let leveled = tree("fragmented-leveling", Partitioner::Size, FLUSH_BYTES);
        let all: Vec<_> = stacks.into_iter().chain([("leveled", leveled)]).collect();
        let sides: Vec<Side> = all.iter().map(|(name, one)| side_of(name, one)).collect();
        report.compare(&sides, &[SUB_COMPACTIONS])?;
        let mut trees = Vec::new();
        for (name, options) in all {
            context.say(&format!("reads, {name}, {at}"));
            let mut tree = Loaded::empty(options, &data(context), None)?;
            if is_skewed {
                tree = tree.skewed();
            }
            trees.push(tree.load()?.without_cache()?);
        }
        judge(report, &mut trees, at)?;
    }
    Ok(())
}

fn judge(report: &mut PaperReport, trees: &mut [Loaded], at: &str) -> Result<()> {
    let seen = trees.iter_mut().map(read).collect::<Result<Vec<_>>>()?;
    let scans: Vec<f64> = seen.iter().map(|one| one.scan_reads).collect();
    let gets: Vec<f64> = seen.iter().map(|one| one.get_blocks).collect();
    let ratios = [scans[3] / scans[1], gets[3] / gets[1]];
    let here = format!("{}; {}", strokes(&scans, 1), strokes(&gets, 3));
    report.judge(READS.of(&[&at]).uncounted(), here, &ratios);
    // The two run alternately, so that other load on the machine affects both alike.
    let mut ratios = [vec![], vec![]];
    for _ in 0..5 {
        let [size, global] = [1, 3].map(|at: usize| read(&mut trees[at]));
        let [size, global] = [size?.cpu_seconds, global?.cpu_seconds];
        (0..2).for_each(|at| ratios[at].push(global[at] / size[at]));
    }
    let medians = ratios.map(median);
    report.judge(TIME.of(&[&at]).uncounted(), strokes(medians, 2), &medians);
    Ok(())
}

fn read(tree: &mut Loaded) -> Result<Reads> {
    let (started, reads_before) = (cpu_time(), tree.table_reads());
    tree.scan(SCANS, SCAN_ENTRIES)?;
    let (scanned, reads_between) = (cpu_time(), tree.table_reads());
    let before = tree.counters();
    tree.get_present(GETS)?;
    let gets = tree.counters().since(&before);
    Ok(Reads {
        scan_reads: (reads_between - reads_before) as f64 / SCANS as f64,
        get_blocks: gets.blocks_searched as f64 / GETS as f64,
        cpu_seconds: [scanned - started, cpu_time() - scanned].map(|one| one.as_secs_f64()),
    })
}
