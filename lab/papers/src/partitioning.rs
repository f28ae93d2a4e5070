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
use runstone::{CompactionInstall, KeyspaceOptions, Result};
use runstone_workloads::generators::Rng;

use super::context::Part;
use super::engine::{Data, Loaded, plain_options, write_amplification};
use super::numbers::{percent_less, strokes};
use super::report::{bars, rows};
use super::sides::Side;
use super::verdict::Rule::*;
use super::{Context, PaperReport};

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

rows! {
    FIGURE_2 = "sub-compactions and moves of {1,3..13} and {4,6..14}, theta = 3 (figure 2)",
        "Size 1, 0; Global-Range 2, 1" => Exactly(&[1.0, 0.0, 2.0, 1.0]);
    FIGURE_3 = "cuts of 8-bit keys from 4 to 254, in key order (figure 3)",
        "Local 66, 129, 191; Global 63, 127, 191"
        => Exactly(&[66.0, 129.0, 191.0, 63.0, 127.0, 191.0]);
    LARGE_TABLES = "critical path in slices, {}, {}",
        "" => NotComparable("tables larger than a flush, of which four make four cells");
    RATIOS =
        "bytes of compactions by the ratio of universal compaction, size / prefix, theta = a flush",
        "" => NotComparable("not in the paper: what small tables cost by themselves");
    TABLES = "tables at the end; {}, {}",
        "global +8% over size" => AtMost(1.08);
    BYTES = "bytes written and moved by compactions, prefix apart; {}, {}",
        "write amplification unchanged but for moves" => Alike(0.01);
    CRITICAL_TABLE = "critical path by whole tables; {}, {}",
        "writes 13% faster by global than by size" => Ratios(&[1.13]);
    MODEL_WHOLE =
        "critical path by whole tables of a merge of four flushes of one table each and a run of \
         sixteen, size / local / global",
        "" => NotComparable("a model of one merge: a flush spans all keys and joins all tables");
    MODEL_CUT = "the same where the partitioner cuts flushes too, theta a sixteenth of a flush",
        "" => NotComparable("a model of one merge: what the paper's effect needs");
    CRITICAL_SLICE = "critical path in slices, {}, {}",
        "" => NotComparable("slices are ours: the paper's sub-compactions take whole tables");
    SIZE = "size of the store, {}, {}",
        "" => NotComparable("the same data");
    SCAN_READS =
        "file reads of a scan of 1,000 keys without a cache, size / global, theta = one flush",
        "scans somewhat slower" => AtMost(1.1);
    GETS_THAT_HIT =
        "tables and blocks of a get that hits, size / global, theta = one flush",
        "point reads unchanged" => Alike(0.02);
    READ_TIME = "time of these scans and gets, global over size",
        "" => NotComparable("by the clock: the counters above are judged");
    BORROWED =
        "peak of table files over live bytes in a compaction of everything, atomic / incremental",
        "groups give back their space one by one" => Falls;
    ASCENDING = "ascending keys: bytes rewritten",
        "none: 100% moves" => Exactly(&[0.0]);
    LEVELED = "write amplification of leveling, T = {}, Size against Global-Range",
        "" => NotComparable("not in the paper, which leaves leveled trees to future work");
}

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "the critical path is the largest part of each compaction over all that compactions read, \
         at W = 16; whole tables: the paper's sub-compactions; slices: the default here",
    );
    let parts: [Part<Context<'_>>; 8] = [
        ("figures", figures),
        ("universal", universal),
        ("cut-flushes", cut_flushes),
        ("ratios", ratios),
        ("reads", reads),
        ("borrowed-space", borrowed_space),
        ("ascending", ascending),
        ("leveled", leveled),
    ];
    context.measure(context, report, &parts)
}

/// Where a run of these keys is cut, each counting as one byte.
fn cuts_of<const N: usize>(partitioner: Partitioner, keys: &[[u8; N]], most: u64) -> Vec<CutKey> {
    let points = keys.iter().map(|key| Point { last_key: Box::new(*key), bytes: 1 });
    let histogram = Histogram::new(points.collect());
    let input = Input {
        histogram: &histogram,
        min_key: &keys[0],
        max_key: &keys[keys.len() - 1],
        table_bytes: most,
        prefixer: None,
    };
    partitioner.rule().cuts(&input)
}

/// The tables of runs of these keys, each run with its largest table.
fn tables_of<const N: usize>(
    partitioner: Partitioner,
    runs: &[(Vec<[u8; N]>, u64)],
) -> Vec<Arc<Table>> {
    let mut tables = Vec::new();
    for (keys, most) in runs {
        let cuts = cuts_of(partitioner, keys, *most);
        let cell = |key: &[u8; N]| cuts.partition_point(|cut| **cut <= key[..]);
        for table in keys.chunk_by(|a, b| cell(a) == cell(b)) {
            tables.push(meta(tables.len() as u64 + 1, table));
        }
    }
    tables
}

/// Keys of a flush in the model, and of the largest table it is cut into.
const MODEL_FLUSH: usize = 1024;
const MODEL_THETA: u64 = MODEL_FLUSH as u64 / 16;

/// The largest sub-compaction by whole tables over all that is compacted, of four flushes and a
/// run of sixteen, with random keys.
fn model_critical_path(partitioner: Partitioner, are_flushes_cut: bool) -> f64 {
    let mut rng = Rng::new(1);
    let mut run = |flushes: usize, most: u64| {
        let mut keys: Vec<[u8; 8]> =
            (0..flushes * MODEL_FLUSH).map(|_| rng.next_u64().to_be_bytes()).collect();
        keys.sort_unstable();
        (keys, most)
    };
    let flush_theta = if are_flushes_cut { MODEL_THETA } else { u64::MAX };
    let mut runs: Vec<_> = (0..4).map(|_| run(1, flush_theta)).collect();
    runs.push(run(16, MODEL_THETA));
    let tables = tables_of(partitioner, &runs);
    let largest = components(&tables).compaction_bytes.into_iter().max().unwrap_or(0);
    largest as f64 / tables.iter().map(|table| table.bytes).sum::<u64>() as f64
}

/// Why the partitioner decides nothing where a flush is one table.
fn cut_flushes(_: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let three = [Partitioner::Size, Partitioner::LocalRange, Partitioner::GlobalRange];
    for (row, are_cut) in [(MODEL_WHOLE, false), (MODEL_CUT, true)] {
        report.show(row, strokes(three.map(|one| model_critical_path(one, are_cut)), 3));
    }
    Ok(())
}

fn figures(_: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let parts = |partitioner| {
        let runs: [&[u8]; 2] = [&[1, 3, 5, 7, 9, 11, 13], &[4, 6, 8, 10, 12, 14]];
        let parts = components(&tables_of(partitioner, &runs.map(|run| (single(run), 3))));
        (parts.compactions.len(), parts.moves.len())
    };
    let (size, global) = (parts(Partitioner::Size), parts(Partitioner::GlobalRange));
    report.judge(
        FIGURE_2,
        format!("Size {}, {}; Global-Range {}, {}", size.0, size.1, global.0, global.1),
        &[size.0, size.1, global.0, global.1].map(|count| count as f64),
    );
    let spread = |from: u8, to: u8| (0..10u8).map(move |i| from + i * ((to - from) / 10));
    let keys = [(4, 63), (67, 127), (130, 191), (192, 254)].into_iter();
    let keys: Vec<u8> = keys.flat_map(|(from, to)| spread(from, to)).chain([254]).collect();
    let lasts = |partitioner| -> Vec<u8> {
        let cuts = cuts_of(partitioner, &single(&keys), 10);
        let last = |cut: &CutKey| (0..=255).rev().find(|key| [*key].as_slice() < &**cut);
        cuts.iter().filter_map(last).collect()
    };
    let (local, global) = (lasts(Partitioner::LocalRange), lasts(Partitioner::GlobalRange));
    let cuts = local.iter().take(3).chain(global.iter().take(3));
    let cuts: Vec<f64> = cuts.map(|key| f64::from(*key)).collect();
    report.judge(FIGURE_3, format!("Local {local:?}; Global {global:?}"), &cuts);
    Ok(())
}

/// Keys of one byte.
fn single(keys: &[u8]) -> Vec<[u8; 1]> {
    keys.iter().map(|key| [*key]).collect()
}

fn meta<const N: usize>(id: u64, keys: &[[u8; N]]) -> Arc<Table> {
    Arc::new(Table {
        id,
        min_key: Box::new(keys[0]),
        max_key: Box::new(keys[keys.len() - 1]),
        bytes: keys.len() as u64,
        entries: keys.len() as u64,
        min_seq: id,
        max_seq: id,
        ..Table::default()
    })
}

/// What one partitioner did.
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

    /// Under universal compaction, whose runs wait in level 0.
    fn universal(context: &Context<'_>, options: KeyspaceOptions) -> Result<Seen> {
        Ok(Seen::of(&Loaded::empty(options, &data(context), Some(SLICES))?.load()?))
    }

    fn critical(&self, bytes: u64) -> f64 {
        bytes as f64 / self.counters.sliced_bytes.max(1) as f64
    }

    fn critical_table(&self) -> f64 {
        self.critical(self.counters.component_critical_bytes)
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

    fn handled_mb(&self) -> f64 {
        self.handled() as f64 / 1e6
    }
}

fn universal(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let total = (context.scaled(FLUSHES) * FLUSH_BYTES) as f64;
    // A table is at most a flush, as with the default options. Then the largest table that breaks
    // this, to show what it costs.
    let power = |fill: f64| (total / FLUSH_BYTES as f64 / fill).log2();
    let judged = FILLS.map(|fill| (fill, power(fill).ceil().max(3.0), true));
    let shown = (0.93, power(0.93).floor().max(3.0), false);
    for (fill, power, is_judged) in judged.into_iter().chain([shown]) {
        let theta = (total / (fill * power.exp2())) as u64;
        let sides = COMPARED.map(|one| Side::keyspace(one.rule().name(), &stack(one, theta)));
        report.compare(&sides, &[])?;
        let mut seen = Vec::new();
        for partitioner in COMPARED {
            context.say(&format!("universal, {partitioner:?}, N / theta = {fill} x 2^{power}"));
            seen.push(Seen::universal(context, stack(partitioner, theta))?);
        }
        let at = format!(
            "theta = {:.2} flushes, N / theta = {fill} x 2^{power}",
            theta as f64 / FLUSH_BYTES as f64
        );
        if is_judged {
            judge_universal(report, &at, &seen);
            draw(report, &format!("critical-path-{}", (fill * 100.0) as u32), &at, &seen);
        } else {
            report.show(
                LARGE_TABLES.of(&[&NAMES, &at]),
                strokes(seen.iter().map(Seen::critical_slice), 3),
            );
        }
    }
    Ok(())
}

/// Why compactions by prefix write more: universal compaction gathers runs of nearly equal size,
/// and at the default of 1% the few percent that small tables cost by prefix make equal runs
/// unequal.
fn ratios(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut here = Vec::new();
    for percent in [0, 1, 10] {
        let mut seen = Vec::new();
        for partitioner in [Partitioner::Size, Partitioner::Prefix] {
            context.say(&format!("universal, {partitioner:?}, size ratio of {percent}%"));
            let mut options = stack(partitioner, FLUSH_BYTES);
            options.shape.universal_ratio_percent = percent;
            seen.push(Seen::universal(context, options)?);
        }
        here.push(format!(
            "{percent}%: {} M in {} compactions",
            strokes(seen.iter().map(Seen::handled_mb), 1),
            strokes(seen.iter().map(|one| one.counters.compactions as f64), 0)
        ));
    }
    report.show(RATIOS, here.join("; "));
    Ok(())
}

const NAMES: &str = "size / local / global / grouped / prefix";

fn judge_universal(report: &mut PaperReport, at: &str, seen: &[Seen]) {
    let [size, _, global, ..] = seen else { return };
    let here = |value: fn(&Seen) -> f64, digits| strokes(seen.iter().map(value), digits);
    report.judge(
        TABLES.of(&[&NAMES, &at]),
        here(|one| one.tables as f64, 0),
        &[global.tables as f64 / size.tables as f64],
    );
    let megabytes = |value: fn(&Seen) -> f64| {
        let texts = seen.iter().map(|one| format!("{:.1} M", value(one)));
        texts.collect::<Vec<_>>().join(" / ")
    };
    // The paper's claim is of its partitioners; why prefix differs is a row of its own.
    let handled: Vec<f64> = seen[..4].iter().map(|one| one.handled() as f64).collect();
    report.judge(BYTES.of(&[&NAMES, &at]), megabytes(Seen::handled_mb), &handled);
    report.judge(
        CRITICAL_TABLE.of(&[&NAMES, &at]),
        here(Seen::critical_table, 2),
        &[size.critical_table() / global.critical_table()],
    );
    report.show(CRITICAL_SLICE.of(&[&NAMES, &at]), here(Seen::critical_slice, 3));
    report.show(SIZE.of(&[&NAMES, &at]), megabytes(|one| one.bytes as f64 / 1e6));
}

fn draw(report: &mut PaperReport, name: &str, at: &str, seen: &[Seen]) {
    let title = format!("Critical path of compactions, {at}");
    let by_tables = bars("whole tables", seen.iter().map(Seen::critical_table));
    let by_slices = bars("slices", seen.iter().map(Seen::critical_slice));
    let titles = [&title[..], "partitioner", "largest part / all"];
    report.draw_bars(name, titles, NAMES.split(" / "), vec![by_tables, by_slices]);
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
    let mut trees = Vec::new();
    for partitioner in [Partitioner::Size, Partitioner::GlobalRange] {
        context.say(&format!("reads, {partitioner:?}"));
        let tree =
            Loaded::empty(stack(partitioner, FLUSH_BYTES), &data(context), Some(1))?.load()?;
        trees.push(tree.without_cache()?);
    }
    let seen = trees.iter_mut().map(read).collect::<Result<Vec<_>>>()?;
    let [size, global] = &seen[..] else { return Ok(()) };
    report.judge(
        SCAN_READS,
        format!("{:.1} / {:.1}", size.scan_reads, global.scan_reads),
        &[global.scan_reads / size.scan_reads],
    );
    report.judge(
        GETS_THAT_HIT,
        format!(
            "{:.3} and {:.3} / {:.3} and {:.3}",
            size.get_tables, size.get_blocks, global.get_tables, global.get_blocks
        ),
        &[1.0, global.get_tables / size.get_tables, global.get_blocks / size.get_blocks],
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
        READ_TIME,
        format!("{:.2} and {:.2}", least[1][0] / least[0][0], least[1][1] / least[0][1]),
    );
    Ok(())
}

fn read(tree: &mut Loaded) -> Result<Reads> {
    let started = std::time::Instant::now();
    let reads_before = tree.table_reads();
    tree.scan(SCANS, SCAN_ENTRIES)?;
    let reads_between = tree.table_reads();
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

/// A compaction of everything holds inputs and outputs at once, or a part of them.
fn borrowed_space(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut here = Vec::new();
    for install in [CompactionInstall::Atomic, CompactionInstall::Incremental] {
        context.say(&format!("space of a full compaction, {install:?}"));
        let options = stack(Partitioner::GlobalRange, FLUSH_BYTES);
        let options = KeyspaceOptions { compaction_install: install, ..options };
        let tree = Loaded::empty(options, &data(context), Some(1))?.load()?;
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
        BORROWED,
        format!("{atomic:.2} / {incremental:.2}, in {parts} edits of parts"),
        &[atomic, incremental],
    );
    Ok(())
}

fn ascending(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    context.say("ascending keys");
    let data = data_of(context.scaled(FLUSHES / 4));
    let options = stack(Partitioner::GlobalRange, FLUSH_BYTES);
    let counters = Loaded::empty(options, &data, Some(1))?.load_ascending()?.counters();
    report.judge(
        ASCENDING,
        format!("{} rewritten, {} moved", counters.compaction_bytes_written, counters.bytes_moved),
        &[counters.compaction_bytes_written as f64],
    );
    Ok(())
}

/// Global-Range inside a leveled tree. Size is given the table size that makes as many tables.
fn leveled(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (size_ratio, c) in [(2, 1000), (5, 1000)] {
        context.say(&format!("leveled, T = {size_ratio}, Size against Global-Range"));
        let tree = |partitioner, theta: u64| -> Result<Seen> {
            let options = garnering(size_ratio, c, partitioner, theta);
            Ok(Seen::of(&Loaded::empty(options, &data(context), Some(1))?.load()?))
        };
        let global = tree(Partitioner::GlobalRange, FLUSH_BYTES / 2)?;
        let theta = global.bytes / global.tables.max(1) as u64;
        let size = tree(Partitioner::Size, theta)?;
        let [by_size, by_range] = [&size, &global].map(|one| write_amplification(&one.counters));
        let gain = percent_less(by_size, by_range);
        report.show(
            LEVELED.of(&[&size_ratio]),
            format!(
                "{by_size:.2} with {} tables -> {by_range:.2} with {}: {gain:.1}% less",
                size.tables, global.tables
            ),
        );
    }
    Ok(())
}

fn data(context: &Context<'_>) -> Data {
    data_of(context.scaled(FLUSHES))
}

fn data_of(flushes: u64) -> Data {
    let (key_bytes, value_bytes) = (16, 100);
    let records = flushes * FLUSH_BYTES / (key_bytes + value_bytes) as u64;
    Data { records, key_bytes, value_bytes, flush_bytes: FLUSH_BYTES }
}

fn stack(partitioner: Partitioner, theta: u64) -> KeyspaceOptions {
    // A table of a prefix is cut at sixteen times this.
    let split_bytes = (theta / CAP_FACTOR).max(MIN_TABLE_BYTES);
    tree("universal", partitioner, theta, PolicyOptions { split_bytes, ..Default::default() })
}

fn garnering(
    size_ratio: u32,
    c_permille: u32,
    partitioner: Partitioner,
    theta: u64,
) -> KeyspaceOptions {
    let shape = PolicyOptions {
        size_ratio,
        c_permille,
        l0_trigger: 4,
        base_bytes: 4 * FLUSH_BYTES * u64::from(size_ratio),
        ..PolicyOptions::default()
    };
    tree("garnering", partitioner, theta, shape)
}

fn tree(
    policy: &str,
    partitioner: Partitioner,
    theta: u64,
    shape: PolicyOptions,
) -> KeyspaceOptions {
    let table_bytes = theta.max(MIN_TABLE_BYTES);
    let shape = PolicyOptions { partitioner, table_bytes, ..shape };
    KeyspaceOptions { shape, block_bytes: 1024, ..plain_options(policy) }
}
