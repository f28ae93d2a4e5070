//! Autumn: what Garnering's c does to levels, reads, writes and space (Zhao et al., 2023), on the
//! engine. Sizes are the paper's divided by 1024 where a whole database counts (section 4.3), by 64
//! in figure 3, and its own in figure 2; they scale together, so that the ratio of data to level 1,
//! which decides the shape, stays what it is.
//!
//! Latencies of the paper appear as what causes them: runs that a seek positions, tables that a get
//! probes, bytes written per byte. A load goes on until level 0 is empty, so that reads meet one
//! run per level, but for YCSB D, which writes as it reads.
//!
//! What is judged compacts level 0 at its trigger, as the paper's system does. Our default lets it
//! wait (`l0_share_percent`); what that saves is shown beside it, and what the simulator of the
//! policy says of the same trees.

use runstone::policy::filters::FilterAllocation;
use runstone::policy::options::{MIN_TABLE_BYTES, PolicyOptions};
use runstone::policy::registry;
use runstone::policy::shape::Shape;
use runstone::policy::simulator::{FRESH_KEYS, KeyOrder, SimWorkload, Simulator};
use runstone::{KeyspaceOptions, Result};

use super::engine::{Data, Loaded, plain_options};
use super::{Context, PaperReport};
use runstone_plot::{Axis, Chart, Line, LineChart};
use runstone_workloads::generators::{Latest, Rng};

const POLICY: &str = "garnering";

/// c in thousandths: leveling, and the two settings of section 4.3.
const SETTINGS: [u32; 3] = [1000, 800, 400];
/// `l0_share_percent` of the paper's system: level 0 does not wait.
const AT_TRIGGER: u32 = 0;
/// Key and value of YCSB.
const YCSB_KEY_BYTES: usize = 24;
const YCSB_VALUE_BYTES: usize = 1000;

/// Measures all claims.
pub fn run(context: &Context<'_>) -> Result<PaperReport> {
    let mut report = PaperReport::new("autumn", context.scale);
    report.notes.push(
        "reads are counted when all jobs are done and level 0 is empty; c = 1 is leveling, in the \
         paper RocksDB"
            .into(),
    );
    whole_database(context, &mut report)?;
    zero_result_gets(context, &mut report)?;
    sensitivity(context, &mut report)?;
    filters(context, &mut report)?;
    Ok(report)
}

/// Section 4.3: 80 GB of YCSB records, T = 5, tables of 64 MB, level 1 of 256 MB; all / 1024.
fn whole_database(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let seen = whole_databases(context, AT_TRIGGER)?;
    let waiting = whole_databases(context, default_share())?;
    let levels: Vec<usize> = seen.iter().map(|seen| seen.levels).collect();
    report.judge(
        "levels of 80 GB, c = 1 / 0.8 / 0.4 (4.3)",
        "5 / 4 / almost 3 (a 4th of one table)",
        each(&seen, |seen| seen.levels as f64, 0),
        "5 / 4 / 3, or 4 as in the paper",
        levels[0] == 5 && levels[1] == 4 && (3..=4).contains(&levels[2]),
    );
    let falls = |value: fn(&Seen) -> f64| seen.windows(2).all(|w| value(&w[1]) < value(&w[0]));
    report.judge(
        "runs that a seek positions, c = 1 / 0.8 / 0.4 (4.2.2)",
        "range reads get faster as c falls",
        each(&seen, |seen| seen.sought, 2),
        "falls with c",
        falls(|seen| seen.sought),
    );
    report.judge(
        "write amplification, c = 1 / 0.8 / 0.4 (4.2.2)",
        "lower c gives worse write performance",
        each(&seen, |seen| seen.written, 2),
        "rises as c falls",
        falls(|seen| -seen.written),
    );
    let here = format!(
        "{}; simulator {}, at the trigger {}",
        each(&waiting, |seen| seen.written, 2),
        each(&waiting, |seen| seen.simulated, 2),
        each(&seen, |seen| seen.simulated, 2)
    );
    let why = "our default: level 0 waits until it holds half of what it would rewrite";
    report.show("the same where level 0 waits, and by the simulator", "", here, why);
    report.judge(
        "YCSB D: hits in level 1, c = 1 / 0.8 / 0.4 (4.3)",
        "9% / 33% / 40%",
        each(&seen, |seen| seen.hits * 100.0, 1) + " %",
        "rises as c falls",
        falls(|seen| -seen.hits),
    );
    let most = seen.iter().map(|seen| seen.space).fold(0.0, f64::max);
    let least = seen.iter().map(|seen| seen.space).fold(f64::INFINITY, f64::min);
    report.judge(
        "space amplification after the load, c = 1 / 0.8 / 0.4 (4.3)",
        "87.42 / 87.49 / 87.61 GB, within 0.3%",
        each(&seen, |seen| seen.space, 4),
        "within 1% of each other",
        most <= least * 1.01,
    );
    Ok(())
}

/// What one setting of the whole database showed.
struct Seen {
    levels: usize,
    space: f64,
    written: f64,
    simulated: f64,
    sought: f64,
    hits: f64,
}

fn each(seen: &[Seen], value: fn(&Seen) -> f64, digits: usize) -> String {
    let values = seen.iter().map(|seen| format!("{:.digits$}", value(seen)));
    values.collect::<Vec<_>>().join(" / ")
}

fn whole_databases(context: &Context<'_>, l0_share_percent: u32) -> Result<Vec<Seen>> {
    let data = Data {
        records: (80 << 20) / (YCSB_KEY_BYTES + YCSB_VALUE_BYTES) as u64,
        key_bytes: YCSB_KEY_BYTES,
        value_bytes: YCSB_VALUE_BYTES,
        flush_bytes: 64 << 10,
    };
    let of = |c| {
        context.say(&format!(
            "80 MiB of YCSB records, c = {}, level 0 waits for {l0_share_percent}%",
            decimal(c)
        ));
        let shape = shape_options(context, 5, c, 256 << 10, 64 << 10);
        let shape = PolicyOptions { l0_share_percent, ..shape };
        let simulated = simulated(context, &shape, &data);
        let mut tree = load(context, shape, &data)?;
        Ok(Seen {
            levels: level_count(&tree.shape()),
            space: tree.space_amplification(),
            written: tree.write_amplification(),
            simulated,
            sought: runs_sought(context, &mut tree)?,
            hits: latest_hits(context, &mut tree)?,
        })
    };
    SETTINGS.into_iter().map(of).collect()
}

/// Write amplification of the same load, by metadata alone.
fn simulated(context: &Context<'_>, shape: &PolicyOptions, data: &Data) -> f64 {
    let entry_bytes = (data.key_bytes + data.value_bytes) as u64;
    let flush_bytes = context.scaled(data.flush_bytes).max(entry_bytes);
    let workload = SimWorkload {
        flush_bytes,
        entry_bytes,
        key_space: FRESH_KEYS,
        order: KeyOrder::Uniform,
        seed: 1,
        prefix_count: 1,
    };
    let flushes = context.scaled(data.records) * entry_bytes / flush_bytes;
    let policy = registry::find(POLICY).expect("a registered policy");
    let report = Simulator::new(policy, shape.clone(), workload).run(flushes);
    let report = report.expect("plans of a registered policy fit the shape");
    report.write_amplification_permille as f64 / 1000.0
}

/// Figure 2: two million entries of 16 + 50 bytes, T = 2. Judged with a level 1 that is small
/// beside the data, as in section 4.3; shown with the sizes of `OptimizeForSmallDb`, level 1 of
/// 10 MB and tables of 2 MB, where level 0 brings nearly a whole level 1 at once and the few levels
/// have holes.
fn zero_result_gets(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let claim = "gets without filters, c = 0.8 against leveling, T = 2 (figure 2b)";
    let paper = "119.9 -> 97.5 us, 19% less";
    let mut probes = Vec::new();
    for sizes in [(256 << 10, 64 << 10), (10 << 20, 2 << 20)] {
        for c in [1000, 800] {
            probes.push(probes_of_absent(context, c, sizes)?);
        }
    }
    let saved = |from: f64, to: f64| 1.0 - to / from;
    let here = |from: f64, to: f64| {
        format!("{from:.2} -> {to:.2} tables probed, {:.0}% less", saved(from, to) * 100.0)
    };
    report.judge(
        claim,
        paper,
        here(probes[0], probes[1]),
        "level 1 of 256 KiB: tables probed by zero-result gets at least 15% fewer",
        saved(probes[0], probes[1]) >= 0.15,
    );
    report.show(claim, paper, here(probes[2], probes[3]), "the paper's level 1 of 10 MB");
    Ok(())
}

/// Tables that a get of an absent key probes. Round-robin sinking leaves a hole in each level, of
/// another size at each moment, which a get of a key inside it does not probe; so gets are spread
/// over the last quarter of the load.
fn probes_of_absent(context: &Context<'_>, c: u32, (base, table): (u64, u64)) -> Result<f64> {
    context.say(&format!("2 million entries of 66 bytes, L1 of {base} bytes, c = {}", decimal(c)));
    let data = Data { records: 1_500_000, key_bytes: 16, value_bytes: 50, flush_bytes: table };
    let mut tree = load(context, shape_options(context, 2, c, base, table), &data)?;
    let (mut gets, mut probed) = (0, 0);
    while tree.records() < context.scaled(2_000_000) {
        let before = tree.counters();
        gets += tree.get_absent(context.scaled(10_000))?;
        probed += tree.counters().tables_probed - before.tables_probed;
        tree.insert()?;
        tree.insert_until_calm()?;
    }
    Ok(probed as f64 / gets.max(1) as f64)
}

/// Figure 3: c from 1 to 0.4, T = 3 and 5.
fn sensitivity(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let [written, sought, simulated] = sweep(context, AT_TRIGGER)?;
    let [waiting, ..] = sweep(context, default_share())?;
    let ends = |lines: &[Line]| {
        let end = |line: &Line| (line.points[0].1, line.points[SWEEP.len() - 1].1);
        lines.iter().map(end).collect::<Vec<_>>()
    };
    let text = |lines: &[Line]| {
        let of = |line: &Line| {
            let values = line.points.iter().map(|point| format!("{:.2}", point.1));
            format!("{}: {}", line.name, values.collect::<Vec<_>>().join(" / "))
        };
        lines.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    report.judge(
        "write amplification, c = 1 / 0.8 / 0.6 / 0.4 (figure 3a)",
        "random writes get slower as c falls",
        text(&written),
        "higher at 0.4 than at 1, T = 3 and 5",
        ends(&written).iter().all(|(first, last)| last > first),
    );
    let rows = [
        ("the same where level 0 waits (figure 3a)", text(&waiting), "our default"),
        (
            "the same by the simulator (figure 3a)",
            text(&simulated),
            "level 0 compactions at its trigger",
        ),
    ];
    for (claim, here, why) in rows {
        report.show(claim, "", here, why);
    }
    report.judge(
        "runs that a seek positions, c = 1 / 0.8 / 0.6 / 0.4 (figure 3b)",
        "small range reads get faster as c falls and as T rises",
        text(&sought),
        "lower at 0.4 than at 1, T = 3 and 5; at c = 1 lower for T = 5",
        ends(&sought).iter().all(|(first, last)| last < first)
            && sought[1].points[0].1 < sought[0].points[0].1,
    );
    let chart = |title: &str, y: &str, lines: Vec<Line>| {
        let (title, x, y) = (title.into(), Axis::linear("c"), Axis::linear(y));
        Chart::Line(LineChart { title, x, y, lines })
    };
    let named = |line: Line| Line { name: format!("{}, level 0 waits", line.name), ..line };
    let lines = written.into_iter().chain(waiting.into_iter().map(named)).collect();
    report.draw("figure-3a", chart("Random writes", "bytes written per byte of the user", lines));
    report.draw("figure-3b", chart("Short range reads", "runs sought per scan", sought));
    Ok(())
}

/// c of figure 3, in thousandths.
const SWEEP: [u32; 4] = [1000, 800, 600, 400];

/// Two GB of 16 + 100 bytes in random order; the sizes of figure 2; all / 64. Write amplification,
/// runs that a seek positions and write amplification by the simulator, a line per T each.
fn sweep(context: &Context<'_>, l0_share_percent: u32) -> Result<[Vec<Line>; 3]> {
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for size_ratio in [3, 5] {
        let line = || Line { name: format!("T = {size_ratio}"), points: Vec::new() };
        let mut lines = [line(), line(), line()];
        for c in SWEEP {
            context.say(&format!(
                "32 MiB, T = {size_ratio}, c = {}, level 0 waits for {l0_share_percent}%",
                decimal(c)
            ));
            let shape = shape_options(context, size_ratio, c, 160 << 10, 32 << 10);
            let shape = PolicyOptions { l0_share_percent, ..shape };
            let records = (32 << 20) / 116;
            let data = Data { records, key_bytes: 16, value_bytes: 100, flush_bytes: 32 << 10 };
            let simulated = simulated(context, &shape, &data);
            let mut tree = load(context, shape, &data)?;
            let written = tree.write_amplification();
            let values = [written, runs_sought(context, &mut tree)?, simulated];
            for (line, value) in lines.iter_mut().zip(values) {
                line.points.push((f64::from(c) / 1000.0, value));
            }
        }
        for (lines, line) in all.iter_mut().zip(lines) {
            lines.push(line);
        }
    }
    Ok(all)
}

/// Section 3: what filters cost gets of absent keys is the sum of their false-positive rates; the
/// optimal allocation makes that sum smaller for the same memory. The first rows have few levels;
/// the others a level 1 that is small beside the data, where allocation has something to divide.
fn filters(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for bits in [2, 5] {
        let seen = vain_reads(context, 800, (10 << 18, 2 << 18), bits, FilterAllocation::Uniform)?;
        let claim =
            format!("reads in vain of a zero-result get, {bits} filter bits per key, uniform (3)");
        seen.judge(report, &claim);
    }
    for c in [1000, 800] {
        for bits in [2, 5] {
            let vain = |kind| vain_reads(context, c, (256 << 10, 64 << 10), bits, kind);
            let optimal = vain(FilterAllocation::Optimal)?;
            let uniform = vain(FilterAllocation::Uniform)?;
            let at = format!("{bits} filter bits per key, c = {}", decimal(c));
            let claim = format!("reads in vain of a zero-result get, {at}");
            optimal.judge(report, &format!("{claim}, optimal (3)"));
            uniform.judge(report, &format!("{claim}, uniform (3)"));
            let (more, less) = (uniform.blocks, optimal.blocks);
            report.judge(
                &format!("optimal filters against uniform, {at} (3)"),
                "fewer reads in vain for the same memory",
                format!(
                    "{less:.3} / {more:.3} blocks, {:.0}% less; {:.2} / {:.2} bits per key held",
                    (1.0 - less / more) * 100.0,
                    optimal.bits_per_key,
                    uniform.bits_per_key
                ),
                "fewer, with at most 5% more filter memory",
                less < more && optimal.bits_per_key <= 1.05 * uniform.bits_per_key,
            );
        }
    }
    Ok(())
}

/// What filters let through.
struct VainReads {
    /// Blocks read per get of an absent key.
    blocks: f64,
    sum_of_rates: f64,
    /// Filter memory of the tree over its keys.
    bits_per_key: f64,
}

impl VainReads {
    fn judge(&self, report: &mut PaperReport, claim: &str) {
        let VainReads { blocks, sum_of_rates, .. } = self;
        report.judge(
            claim,
            "the sum of the filters' false-positive rates",
            format!("{blocks:.3} blocks, sum(p) = {sum_of_rates:.3}"),
            "within 10% of sum(p)",
            (blocks / sum_of_rates - 1.0).abs() <= 0.1,
        );
    }
}

/// Half a million entries of 66 bytes, T = 2.
fn vain_reads(
    context: &Context<'_>,
    c: u32,
    (base, table): (u64, u64),
    bits: u32,
    filter_allocation: FilterAllocation,
) -> Result<VainReads> {
    context.say(&format!(
        "500,000 entries of 66 bytes, c = {}, {bits} bits, {filter_allocation:?}",
        decimal(c)
    ));
    let data = Data { records: 500_000, key_bytes: 16, value_bytes: 50, flush_bytes: table };
    let options = KeyspaceOptions {
        shape: shape_options(context, 2, c, base, table),
        filter_bits_per_key_x10: bits * 10,
        filter_allocation,
        ..plain_options(POLICY)
    };
    let mut tree = load_with(context, options, &data)?;
    let before = tree.counters();
    let gets = tree.get_absent(context.scaled(200_000))?;
    let read = tree.counters().blocks_searched - before.blocks_searched;
    let shape = tree.shape();
    let sum = |of: fn(&runstone::policy::shape::Table) -> u64| -> u64 {
        shape.tables().map(|(_, table)| of(table)).sum()
    };
    Ok(VainReads {
        blocks: read as f64 / gets as f64,
        sum_of_rates: sum_of_rates(&shape),
        bits_per_key: sum(|table| table.filter_bits) as f64
            / sum(|table| table.entries).max(1) as f64,
    })
}

/// Sum over the tables of p = e^(-bits / keys * ln^2 2), each weighted by the share of the key
/// space that its bounds cover; keys are spread evenly over eight bytes. p = 1 without a filter.
fn sum_of_rates(shape: &Shape) -> f64 {
    let number = |key: &[u8]| {
        let head: [u8; 8] = key[..8].try_into().expect("keys have eight bytes or more");
        u64::from_be_bytes(head) as f64
    };
    let rate = |bits: u64, keys: u64| {
        let ln_2 = std::f64::consts::LN_2;
        (-(bits as f64) / keys.max(1) as f64 * ln_2 * ln_2).exp()
    };
    let of = |table: &runstone::policy::shape::Table| {
        let share = (number(&table.max_key) - number(&table.min_key)) / 2_f64.powi(64);
        share * rate(table.filter_bits, table.entries)
    };
    shape.tables().map(|(_, table)| of(table)).sum()
}

/// The numbers of a tree, at the scale of the context.
fn shape_options(
    context: &Context<'_>,
    size_ratio: u32,
    c_permille: u32,
    base_bytes: u64,
    table_bytes: u64,
) -> PolicyOptions {
    PolicyOptions {
        size_ratio,
        c_permille,
        l0_trigger: 4,
        l0_share_percent: AT_TRIGGER,
        base_bytes: context.scaled(base_bytes).max(MIN_TABLE_BYTES),
        table_bytes: context.scaled(table_bytes).max(MIN_TABLE_BYTES),
        ..PolicyOptions::default()
    }
}

fn default_share() -> u32 {
    PolicyOptions::default().l0_share_percent
}

fn load(context: &Context<'_>, shape: PolicyOptions, data: &Data) -> Result<Loaded> {
    load_with(context, KeyspaceOptions { shape, ..plain_options(POLICY) }, data)
}

fn load_with(context: &Context<'_>, options: KeyspaceOptions, data: &Data) -> Result<Loaded> {
    let data = Data {
        records: context.scaled(data.records),
        flush_bytes: context.scaled(data.flush_bytes),
        ..data.clone()
    };
    Loaded::new(options, &data)
}

/// Levels that hold tables, level 0 apart.
fn level_count(shape: &Shape) -> usize {
    shape.levels.iter().skip(1).filter(|level| !level.is_empty()).count()
}

/// Runs positioned per seek, over short scans from random keys.
fn runs_sought(context: &Context<'_>, tree: &mut Loaded) -> Result<f64> {
    let before = tree.counters();
    let scans = context.scaled(5_000);
    tree.scan(scans, 10)?;
    let sought = tree.counters().runs_sought - before.runs_sought;
    Ok(sought as f64 / scans as f64)
}

/// YCSB D: 95% gets of the latest records, 5% inserts. The share of gets that hit level 1.
fn latest_hits(context: &Context<'_>, tree: &mut Loaded) -> Result<f64> {
    let (mut latest, mut rng) = (Latest::new(tree.records()), Rng::new(2));
    let before = tree.counters();
    for _ in 0..context.scaled(100_000) {
        match rng.below(100) {
            0..5 => tree.insert()?,
            _ => {
                let key = tree.key(latest.next(&mut rng, tree.records()));
                let value = tree.store.get(key)?;
                assert!(value.is_some(), "a record that was written is found");
            }
        }
    }
    let after = tree.counters();
    let hits = (after.get_hits - before.get_hits).max(1);
    Ok((after.hits_level_1 - before.hits_level_1) as f64 / hits as f64)
}

fn decimal(permille: u32) -> String {
    format!("{}", f64::from(permille) / 1000.0)
}
