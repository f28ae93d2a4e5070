//! Coordinated partitioning: what bounds shared by all runs do to tables, moves and the critical
//! path of compactions (Mao and Hristidis), on the engine, and what they do to a leveled tree,
//! which the paper leaves to future work.
//!
//! 1. Figures 2 and 3, exactly, by the partitioners alone.
//! 2. Universal compaction of 640 flushes under four partitioners: tables, bytes written and moved,
//!    critical path if compactions were split by whole tables (the paper) and in slices (the
//!    default).
//! 3. What reads pay for more tables: blocks of scans, probes of gets.
//! 4. Space that a compaction of everything borrows, installed at once and part by part.
//! 5. Ascending keys: nothing is rewritten.
//! 6. Leveled trees under Global-Range and under cuts by size, at the same number of tables.

use std::sync::Arc;

use runstone::metrics::CounterValues;
use runstone::policy::options::{MIN_TABLE_BYTES, PolicyOptions};
use runstone::policy::partition::prefix::CAP_FACTOR;
use runstone::policy::partition::slices::components;
use runstone::policy::partition::{CutKey, Histogram, Input, Partitioner, Point};
use runstone::policy::shape::Table;
use runstone::storage::Category;
use runstone::{CompactionInstall, KeyspaceOptions, Result};

use super::engine::{Data, Loaded, plain_options};
use super::{Context, PaperReport};
use runstone_plot::{Axis, BarChart, Bars, Chart};

/// Slices that a compaction may have.
const SLICES: usize = 16;
const FLUSHES: u64 = 640;
const FLUSH_BYTES: u64 = 64 << 10;
/// N / theta is this times a power of two: the worst case but for rounding, and nearly the best.
const FILLS: [f64; 2] = [1.25, 0.93];
/// Scans and gets that are measured, and the entries of a scan.
const SCANS: u64 = 300;
const GETS: u64 = 20_000;
const SCAN_ENTRIES: u64 = 1_000;

const COMPARED: [Partitioner; 5] = [
    Partitioner::Size,
    Partitioner::LocalRange,
    Partitioner::GlobalRange,
    Partitioner::GroupedGlobalRange,
    Partitioner::Prefix,
];

/// Measures all claims.
pub fn run(context: &Context<'_>) -> Result<PaperReport> {
    let mut report = PaperReport::new("partitioning", context.scale);
    report.notes.push(
        "the critical path is the largest part of each compaction over all that compactions read, \
         at W = 16; whole tables: the paper's sub-compactions; slices: the default here"
            .into(),
    );
    figures(&mut report);
    universal(context, &mut report)?;
    ratios(context, &mut report)?;
    reads(context, &mut report)?;
    borrowed_space(context, &mut report)?;
    ascending(context, &mut report)?;
    leveled(context, &mut report)?;
    Ok(report)
}

/// Keys of one byte, each counting as one.
fn cuts_of(partitioner: Partitioner, keys: &[u8], most: u64) -> Vec<CutKey> {
    let points = keys.iter().map(|key| Point { last_key: Box::new([*key]), bytes: 1 });
    let histogram = Histogram::new(points.collect());
    let (min_key, max_key) = ([keys[0]], [keys[keys.len() - 1]]);
    let input = Input {
        histogram: &histogram,
        min_key: &min_key,
        max_key: &max_key,
        table_bytes: most,
        prefixer: None,
    };
    partitioner.rule().cuts(&input)
}

fn figures(report: &mut PaperReport) {
    let parts = |partitioner| {
        let runs: [&[u8]; 2] = [&[1, 3, 5, 7, 9, 11, 13], &[4, 6, 8, 10, 12, 14]];
        let mut tables = Vec::new();
        for keys in runs {
            let cuts = cuts_of(partitioner, keys, 3);
            let cell = |key: &u8| cuts.partition_point(|cut| **cut <= [*key][..]);
            for table in keys.chunk_by(|a, b| cell(a) == cell(b)) {
                tables.push(meta(tables.len() as u64 + 1, table));
            }
        }
        let parts = components(&tables);
        (parts.compactions.len(), parts.moves.len())
    };
    let (size, global) = (parts(Partitioner::Size), parts(Partitioner::GlobalRange));
    report.judge(
        "sub-compactions and moves of {1,3..13} and {4,6..14}, theta = 3 (figure 2)",
        "Size 1, 0; Global-Range 2, 1",
        format!("Size {}, {}; Global-Range {}, {}", size.0, size.1, global.0, global.1),
        "exactly",
        size == (1, 0) && global == (2, 1),
    );
    let spread = |from: u8, to: u8| (0..10u8).map(move |i| from + i * ((to - from) / 10));
    let keys = [(4, 63), (67, 127), (130, 191), (192, 254)].into_iter();
    let keys: Vec<u8> = keys.flat_map(|(from, to)| spread(from, to)).chain([254]).collect();
    let lasts = |partitioner| -> Vec<u8> {
        let cuts = cuts_of(partitioner, &keys, 10);
        let last = |cut: &CutKey| (0..=255).rev().find(|key| [*key].as_slice() < &**cut);
        cuts.iter().filter_map(last).collect()
    };
    let (local, global) = (lasts(Partitioner::LocalRange), lasts(Partitioner::GlobalRange));
    report.judge(
        "cuts of 8-bit keys from 4 to 254 (figure 3)",
        "Local 129, 66, 191; Global 127, 63, 191",
        format!("Local {local:?}; Global {global:?}"),
        "exactly, in key order; the figure's own keys are not printed",
        local.starts_with(&[66, 129, 191]) && global.starts_with(&[63, 127, 191]),
    );
}

fn meta(id: u64, keys: &[u8]) -> Arc<Table> {
    Arc::new(Table {
        id,
        min_key: Box::new([keys[0]]),
        max_key: Box::new([keys[keys.len() - 1]]),
        bytes: keys.len() as u64,
        entries: keys.len() as u64,
        min_seq: id,
        max_seq: id,
        ..Table::default()
    })
}

/// What one partitioner did under universal compaction.
struct Seen {
    counters: CounterValues,
    tables: usize,
    bytes: u64,
}

impl Seen {
    fn of(tree: &Loaded) -> Seen {
        let shape = tree.shape();
        Seen { counters: tree.counters(), tables: shape.tables().count(), bytes: shape.bytes() }
    }

    fn critical(&self, bytes: u64) -> f64 {
        bytes as f64 / self.counters.sliced_bytes.max(1) as f64
    }

    /// 1 if no compaction was split.
    fn critical_slice(&self) -> f64 {
        match self.counters.sliced_bytes {
            0 => 1.0,
            _ => self.critical(self.counters.slice_critical_bytes),
        }
    }

    fn handled(&self) -> u64 {
        self.counters.compaction_bytes_written + self.counters.bytes_moved
    }
}

fn universal(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let flushes = context.scaled(FLUSHES);
    let data = data(flushes);
    let total = (flushes * FLUSH_BYTES) as f64;
    // A table is at most a flush, as with the default options. Then the largest table that breaks
    // this, to show what it costs.
    let power = |fill: f64| (total / FLUSH_BYTES as f64 / fill).log2();
    let judged = FILLS.map(|fill| (fill, power(fill).ceil().max(3.0), true));
    let shown = (0.93, power(0.93).floor().max(3.0), false);
    for (fill, power, is_judged) in judged.into_iter().chain([shown]) {
        let theta = (total / (fill * power.exp2())) as u64;
        let mut seen = Vec::new();
        for partitioner in COMPARED {
            context.say(&format!("universal, {partitioner:?}, N / theta = {fill} x 2^{power}"));
            let mut tree = Loaded::empty(stack(partitioner, theta), &data, Some(SLICES))?;
            tree.load()?;
            seen.push(Seen::of(&tree));
        }
        let at = format!(
            "theta = {:.2} flushes, N / theta = {fill} x 2^{power}",
            theta as f64 / FLUSH_BYTES as f64
        );
        if is_judged {
            judge_universal(report, &at, &seen);
            report.draw(&format!("critical-path-{}", (fill * 100.0) as u32), chart(&at, &seen));
        } else {
            report.show(
                &format!("critical path in slices, {NAMES}, {at}"),
                "",
                each(&seen, &|one| format!("{:.3}", one.critical_slice())),
                "compactions of four flushes have four cells: tables larger than a flush limit it",
            );
        }
    }
    Ok(())
}

/// Why compactions by prefix write more: universal compaction gathers runs of nearly equal size,
/// and at the default of 1% the few percent that small tables cost by prefix make equal runs
/// unequal.
fn ratios(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let data = data(context.scaled(FLUSHES));
    let mut here = Vec::new();
    for percent in [0, 1, 10] {
        let mut seen = Vec::new();
        for partitioner in [Partitioner::Size, Partitioner::Prefix] {
            context.say(&format!("universal, {partitioner:?}, size ratio of {percent}%"));
            let mut options = stack(partitioner, FLUSH_BYTES);
            options.shape.universal_ratio_percent = percent;
            let mut tree = Loaded::empty(options, &data, Some(SLICES))?;
            tree.load()?;
            seen.push(Seen::of(&tree));
        }
        here.push(format!(
            "{percent}%: {} M in {} compactions",
            each(&seen, &|one| format!("{:.1}", one.handled() as f64 / 1e6)),
            each(&seen, &|one| one.counters.compactions.to_string())
        ));
    }
    report.show(
        "bytes of compactions by the ratio of universal compaction, size / prefix, theta = a flush",
        "",
        here.join("; "),
        "by prefix, tables of small runs are small; what they cost by themselves is a few percent",
    );
    Ok(())
}

const NAMES: &str = "size / local / global / grouped / prefix";

fn each(seen: &[Seen], value: &dyn Fn(&Seen) -> String) -> String {
    let values: Vec<String> = seen.iter().map(value).collect();
    values.join(" / ")
}

fn judge_universal(report: &mut PaperReport, at: &str, seen: &[Seen]) {
    let [size, _, global, grouped, _] = seen else { return };
    let here = |value: &dyn Fn(&Seen) -> String| each(seen, value);
    report.judge(
        &format!("tables at the end, {NAMES}, {at}"),
        "global +8% over size",
        here(&|one| one.tables.to_string()),
        "global 2^ceil of N / theta for each large run; grouped at most 25% over size",
        grouped.tables * 4 <= size.tables * 5,
    );
    // The paper's claim is of its partitioners; why prefix differs is a row of its own.
    let handled: Vec<u64> = seen[..4].iter().map(Seen::handled).collect();
    let (least, most) = (handled.iter().min().unwrap_or(&0), handled.iter().max().unwrap_or(&0));
    report.judge(
        &format!("bytes written and moved by compactions, {NAMES}, {at}"),
        "write amplification unchanged but for moves",
        here(&|one| format!("{:.1} M", one.handled() as f64 / 1e6)),
        "equal within 1%, prefix apart",
        (most - least) * 100 <= *most,
    );
    report.show(
        &format!("critical path by whole tables, {NAMES}, {at}"),
        "size: one sub-compaction",
        here(&|one| format!("{:.2}", one.critical(one.counters.component_critical_bytes))),
        "a flush that spans all keys joins everything, whatever the partitioner",
    );
    report.judge(
        &format!("critical path in slices, {NAMES}, {at}"),
        "throughput +8 to 30%",
        here(&|one| format!("{:.3}", one.critical_slice())),
        "global and grouped at most 0.15, whole tables of size give 1.0",
        global.critical_slice() <= 0.15
            && grouped.critical_slice() <= 0.15
            && size.critical(size.counters.component_critical_bytes) >= 0.95,
    );
    report.show(
        &format!("size of the store, {NAMES}, {at}"),
        "",
        here(&|one| format!("{:.1} M", one.bytes as f64 / 1e6)),
        "the same data",
    );
}

fn chart(at: &str, seen: &[Seen]) -> Chart {
    let bars = |name: &str, value: &dyn Fn(&Seen) -> f64| Bars {
        name: name.into(),
        values: seen.iter().map(value).collect(),
    };
    Chart::Bar(BarChart {
        title: format!("Critical path of compactions, {at}"),
        x: "partitioner".into(),
        y: Axis::linear("largest part / all"),
        categories: NAMES.split(" / ").map(String::from).collect(),
        bars: vec![
            bars("whole tables", &|one| one.critical(one.counters.component_critical_bytes)),
            bars("slices", &Seen::critical_slice),
        ],
    })
}

/// One partitioner's reads: reads of table files per scan, tables and blocks per get, seconds of
/// all scans and of all gets.
struct Reads {
    scan_reads: f64,
    get_tables: f64,
    get_blocks: f64,
    seconds: [f64; 2],
}

fn reads(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let data = data(context.scaled(FLUSHES));
    let mut trees = Vec::new();
    for partitioner in [Partitioner::Size, Partitioner::GlobalRange] {
        context.say(&format!("reads, {partitioner:?}"));
        let mut tree = Loaded::empty(stack(partitioner, FLUSH_BYTES), &data, Some(1))?;
        tree.load()?;
        trees.push(tree.without_cache()?);
    }
    let mut seen = Vec::new();
    for tree in &mut trees {
        seen.push(read(tree)?);
    }
    let [size, global] = &seen[..] else { return Ok(()) };
    report.judge(
        "file reads of a scan of 1,000 keys without a cache, size / global, theta = one flush",
        "scans somewhat slower",
        format!("{:.1} / {:.1}", size.scan_reads, global.scan_reads),
        "at most 10% more",
        global.scan_reads <= 1.10 * size.scan_reads,
    );
    report.judge(
        "tables and blocks of a get that hits, size / global, theta = one flush",
        "point reads unchanged",
        format!(
            "{:.3} and {:.3} / {:.3} and {:.3}",
            size.get_tables, size.get_blocks, global.get_tables, global.get_blocks
        ),
        "equal within 2%",
        (global.get_blocks / size.get_blocks - 1.0).abs() <= 0.02
            && (global.get_tables / size.get_tables - 1.0).abs() <= 0.02,
    );
    // In turns, so that what else the machine does meets both; the least is the least disturbed.
    let mut least = [[f64::MAX; 2]; 2];
    for _ in 0..5 {
        for (tree, least) in trees.iter_mut().zip(&mut least) {
            let seconds = read(tree)?.seconds;
            *least = [least[0].min(seconds[0]), least[1].min(seconds[1])];
        }
    }
    report.show(
        "time of these scans and gets, global / size",
        "",
        format!("{:.2} and {:.2}", least[1][0] / least[0][0], least[1][1] / least[0][1]),
        "by the clock: the counters above are what is judged",
    );
    Ok(())
}

fn read(tree: &mut Loaded) -> Result<Reads> {
    let started = std::time::Instant::now();
    let reads_before = table_reads(tree);
    tree.scan(SCANS, SCAN_ENTRIES)?;
    let reads_between = table_reads(tree);
    let before = tree.counters();
    let scan_seconds = started.elapsed().as_secs_f64();
    tree.get_present(GETS)?;
    let gets = tree.counters().since(&before);
    Ok(Reads {
        scan_reads: (reads_between - reads_before) as f64 / SCANS as f64,
        get_tables: gets.tables_probed as f64 / GETS as f64,
        get_blocks: gets.blocks_searched as f64 / GETS as f64,
        seconds: [scan_seconds, started.elapsed().as_secs_f64() - scan_seconds],
    })
}

/// Blocks and index partitions that were read from table files.
fn table_reads(tree: &Loaded) -> u64 {
    let io = tree.store.metrics().io;
    io.iter().filter(|io| io.category == Category::Table.name()).map(|io| io.reads).sum()
}

/// A compaction of everything holds inputs and outputs at once, or a part of them.
fn borrowed_space(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let data = data(context.scaled(FLUSHES));
    let mut here = Vec::new();
    for install in [CompactionInstall::Atomic, CompactionInstall::Incremental] {
        context.say(&format!("space of a full compaction, {install:?}"));
        let options = stack(Partitioner::GlobalRange, FLUSH_BYTES);
        let options = KeyspaceOptions { compaction_install: install, ..options };
        let mut tree = Loaded::empty(options, &data, Some(1))?;
        tree.load()?;
        let before = tree.store.metrics().table_bytes;
        tree.store.compact()?;
        let after = tree.store.metrics();
        let live = before.max(after.table_bytes);
        here.push((
            after.peak_table_file_bytes as f64 / live as f64,
            after.counters.compaction_parts,
        ));
    }
    let [(atomic, _), (incremental, parts)] = here[..] else { return Ok(()) };
    report.judge(
        "peak of table files over live bytes in a compaction of everything, atomic / incremental",
        "groups give back their space one by one",
        format!("{atomic:.2} / {incremental:.2}, in {parts} edits of parts"),
        "atomic about 2; incremental at most 1.25",
        incremental <= 1.25,
    );
    Ok(())
}

fn ascending(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    context.say("ascending keys");
    let data = data(context.scaled(FLUSHES / 4));
    let mut tree = Loaded::empty(stack(Partitioner::GlobalRange, FLUSH_BYTES), &data, Some(1))?;
    tree.load_ascending()?;
    let counters = tree.counters();
    report.judge(
        "ascending keys: bytes rewritten, bytes moved",
        "100% moves",
        format!("{} rewritten, {} moved", counters.compaction_bytes_written, counters.bytes_moved),
        "no byte rewritten",
        counters.compaction_bytes_written == 0 && counters.bytes_moved > 0,
    );
    Ok(())
}

/// Global-Range inside a leveled tree. Size is given the table size that makes as many tables.
fn leveled(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (size_ratio, c, expected) in [(2, 1000, 24.5), (5, 1000, 18.9)] {
        context.say(&format!("leveled, T = {size_ratio}, Size against Global-Range"));
        let data = data(context.scaled(FLUSHES));
        let tree = |partitioner, theta: u64| -> Result<Seen> {
            let mut tree =
                Loaded::empty(garnering(size_ratio, c, partitioner, theta), &data, Some(1))?;
            tree.load()?;
            Ok(Seen::of(&tree))
        };
        let global = tree(Partitioner::GlobalRange, FLUSH_BYTES / 2)?;
        let theta = global.bytes / global.tables.max(1) as u64;
        let size = tree(Partitioner::Size, theta)?;
        let written = |one: &Seen| {
            let counters = &one.counters;
            let bytes = counters.flush_bytes_written + counters.compaction_bytes_written;
            bytes as f64 / counters.user_bytes_written.max(1) as f64
        };
        let gain = 100.0 * (1.0 - written(&global) / written(&size));
        report.judge(
            &format!(
                "write amplification of leveling, T = {size_ratio}, Size against Global-Range"
            ),
            &format!("not in the paper; modelled {expected}% less"),
            format!(
                "{:.2} with {} tables -> {:.2} with {}: {gain:.1}% less",
                written(&size),
                size.tables,
                written(&global),
                global.tables
            ),
            "at least 12% less",
            gain >= 12.0,
        );
    }
    Ok(())
}

fn data(flushes: u64) -> Data {
    let (key_bytes, value_bytes) = (16, 100);
    let records = flushes * FLUSH_BYTES / (key_bytes + value_bytes) as u64;
    Data { records, key_bytes, value_bytes, flush_bytes: FLUSH_BYTES }
}

fn stack(partitioner: Partitioner, theta: u64) -> KeyspaceOptions {
    KeyspaceOptions {
        shape: PolicyOptions {
            partitioner,
            table_bytes: theta.max(MIN_TABLE_BYTES),
            // A table of a prefix is cut at sixteen times this.
            split_bytes: (theta / CAP_FACTOR).max(MIN_TABLE_BYTES),
            ..PolicyOptions::default()
        },
        block_bytes: 1024,
        ..plain_options("universal")
    }
}

fn garnering(
    size_ratio: u32,
    c_permille: u32,
    partitioner: Partitioner,
    theta: u64,
) -> KeyspaceOptions {
    KeyspaceOptions {
        shape: PolicyOptions {
            size_ratio,
            c_permille,
            partitioner,
            table_bytes: theta.max(MIN_TABLE_BYTES),
            l0_trigger: 4,
            base_bytes: 4 * FLUSH_BYTES * u64::from(size_ratio),
            ..PolicyOptions::default()
        },
        block_bytes: 1024,
        ..plain_options("garnering")
    }
}
