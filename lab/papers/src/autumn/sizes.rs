//! Figure 5: databases of 15 to 60 GB at T = 2, c = 1 (LevelDB in the paper) and 0.8: on the engine
//! with all bytes divided by 512, in simulated device time, and by the simulator at the paper's own
//! size. Filters are computed there: a small table cannot have two bits per key, since a filter
//! takes at least a line of 64 bytes.

use runstone::policy::custom;
use runstone_kv::Result;
use runstone_plot::{Axis, Line};
use runstone_policy::filters;
use runstone_policy::registry;
use runstone_policy::shape::{Shape, Table};

use super::client::Client;
use super::{POLICY, Setting, WHOLE_DATABASE, c_name};
use crate::device_time::{Flushes, Limits};
use crate::numbers::{ratio, strokes};
use crate::report::{line_beside, rows};
use crate::simulated::{Writes, simulate_shape};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

const DIVISOR: u64 = 512;
const GB: [u64; 4] = [15, 30, 45, 60];
const ENTRY_BYTES: u64 = 16 + 100;
const READS: u64 = 4_000;
/// The filter budget of the figure.
const BITS_PER_KEY_X10: u32 = 20;
/// LevelDB's limits; LevelDB has none on bytes.
const LIMITS: Limits = Limits {
    runs: [8, 12],
    debt_bytes: [1 << 50, 1 << 50],
    flushes: Flushes::Queued,
    background_speed: 1,
};

/// LevelDB's level 1 and memtable over 512. Its table of 2 MiB would be one block, so tables are
/// four times as large.
const SETTING: Setting = Setting {
    size_ratio: 2,
    base_bytes: (10 << 20) / DIVISOR,
    table_bytes: (2 << 20) * 4 / DIVISOR,
    flush_bytes: (4 << 20) / DIVISOR,
    records: (15 << 30) / ENTRY_BYTES / DIVISOR,
    key_bytes: 16,
    value_bytes: 100,
    ..WHOLE_DATABASE
};

/// The paper's sizes. The model shows the policy all tables at each step, so tables are four
/// times as large there too.
const OWN_SIZE: Setting =
    Setting { base_bytes: 10 << 20, table_bytes: 8 << 20, flush_bytes: 4 << 20, ..SETTING };

rows! {
    WRITES = "us per write, {}, 1/512, c = 0.8 over 1 (figure 5a)",
        "comparable, 10% here: 0.97 at 60" => AtMost(1.1);
    GETS = "us per get without filters, {}, 1/512, c = 0.8 over 1 (figure 5b)",
        "better" => Falls;
    SCANS = "us per seek and next 10, 30 GB, 1/512, c = 0.8 over 1 (figure 5c)",
        "improved by 42%" => Ratios(&[0.58]);
    ALL_SCANS = "the same, {} (figure 5c)",
        "better" => Falls;
    TIMES = "us per write; get; seek and next 10 at these sizes, c = 0.8 and 1",
        "" => Beside("the text prints few of them");
    SIMULATED = "by the simulator at {}: write amplification, c = 1 and 0.8",
        "" => Beside("the figure has times");
    SIMULATED_GETS = "blocks per get of a random key, simulator at {}, c = 0.8 over 1 (figure 5b)",
        "better" => Falls;
    FILTERED_GETS = "blocks per get with optimal filters of 2 bits, the same sizes (figure 5b)",
        "better" => Falls;
    FILTERED_BLOCKS = "the ratios and blocks of these, c = 1 and 0.8",
        "" => Beside("the figure prints no numbers");
    LESS_WITH_FILTERS = "blocks per get, c = 0.8 over 1, without and with filters, {} (figure 5b)",
        "the improvement decreases with filters" => Rises;
    SIMULATED_SCANS = "runs that a seek positions, simulator at {}, c = 1 and 0.8 (figure 5c)",
        "" => Beside("a run is not a time");
}

/// One side at one size: microseconds on the engine.
#[derive(Clone, Copy)]
struct Seen {
    write: f64,
    get: f64,
    scan: f64,
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let side = |c_permille| Setting { c_permille, ..SETTING }.side(context);
    report.compare(&[1000, 800].map(side), &[])?;
    let leveling = grow(context, &Setting { c_permille: 1000, ..SETTING })?;
    let garnering = grow(context, &Setting { c_permille: 800, ..SETTING })?;
    let ratios = |value: fn(&Seen) -> f64| -> Vec<f64> {
        leveling.iter().zip(&garnering).map(|(l, g)| value(g) / value(l)).collect()
    };
    let text = |value: fn(&Seen) -> f64| {
        let of = |seen: &[Seen]| strokes(seen.iter().map(value), 1);
        format!("{} and {}", of(&garnering), of(&leveling))
    };
    let (sizes, write) = (GB.map(|gb| gb.to_string()).join(" / ") + " GB", ratios(|s| s.write));
    let apart: Vec<f64> = write.iter().map(|ratio| ratio.max(ratio.recip())).collect();
    report.judge(WRITES.of(&[&sizes]), strokes(&write, 2), &apart);
    let gets = ratios(|seen| seen.get);
    report.judge(GETS.of(&[&sizes]), strokes(&gets, 2), &[1.0, most(&gets)]);
    let scans = ratios(|seen| seen.scan);
    report.judge(SCANS, ratio(garnering[1].scan, leveling[1].scan, 1, "").0, &scans[1..2]);
    report.judge(ALL_SCANS.of(&[&sizes]), strokes(&scans, 2), &[1.0, most(&scans)]);
    let all = [text(|seen| seen.write), text(|seen| seen.get), text(|seen| seen.scan)];
    report.show(TIMES, all.join("; "));
    draw(report, &[leveling, garnering]);
    Ok(())
}

fn most(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

/// Grows a tree and measures it at each of the sizes. Keys are drawn from as many numbers as the
/// largest size has writes.
fn grow(context: &Context<'_>, setting: &Setting) -> Result<Vec<Seen>> {
    let step = context.scaled(SETTING.records);
    let keys = step * GB.len() as u64;
    let mut client = Client::new(context, setting, LIMITS)?;
    let (mut seen, mut us) = (Vec::new(), 0.0);
    client.records = keys;
    for gb in GB {
        context.say(&format!("{gb} GB / {DIVISOR}, {}", c_name(setting.c_permille)));
        us += client
            .phase(step, |client| {
                let record = client.rng.below(keys);
                client.put(record)
            })?
            .us();
        client = client.calm()?;
        let reads = context.scaled(READS);
        let get = client.phase(reads, |client| {
            let record = client.rng.below(keys);
            client.find(record).map(drop)
        })?;
        let scan = client.phase(reads, |client| {
            let record = client.rng.below(keys);
            client.scan(record, 10)
        })?;
        let write = us / (seen.len() + 1) as f64;
        seen.push(Seen { write, get: get.us(), scan: scan.us() });
    }
    Ok(seen)
}

fn draw(report: &mut PaperReport, sides: &[Vec<Seen>; 2]) {
    let lines = |value: fn(&Seen) -> f64, paper: [Vec<(f64, f64)>; 2]| -> Vec<Line> {
        let sides = ["c = 1", "c = 0.8"].into_iter().zip(sides).zip(paper);
        let lines = sides.map(|((name, seen), paper)| {
            let points = GB.map(|gb| gb as f64).into_iter().zip(seen.iter().map(value));
            line_beside(name, points, paper)
        });
        lines.collect()
    };
    let x = || Axis::linear("GB, divided by 512");
    let us = "us per operation, simulated time";
    let at_60 = [11.153, 10.776].map(|us| vec![(60.0, us)]);
    report.draw_lines("figure-5a", "Writes by size", x(), us, lines(|seen| seen.write, at_60));
    let none = [vec![], vec![]];
    report.draw_lines("figure-5b", "Gets by size", x(), us, lines(|seen| seen.get, none));
    let at_30 = [vec![], vec![(30.0, sides[0][1].scan * (1.0 - 0.42))]];
    let scans = lines(|seen| seen.scan, at_30);
    report.draw_lines("figure-5c", "Seek and next 10 by size", x(), us, scans);
}

/// One side at the paper's own size, by metadata alone.
struct Reckoned {
    written: f64,
    runs: f64,
    /// Blocks that a get of a key reads, without and with filters.
    blocks: [f64; 2],
}

/// Simulates figure 5 at the paper's own size.
pub(super) fn own_size(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let side = |c_permille| Setting { c_permille, ..OWN_SIZE }.side(context);
    report.compare(&[1000, 800].map(side), &[])?;
    let sizes = GB.map(|gb| gb.to_string()).join(" / ") + " GB";
    let reckon_all = |c_permille| -> Vec<Reckoned> {
        context.say(&format!("{sizes} by the simulator, {}", c_name(c_permille)));
        let setting = Setting { c_permille, ..OWN_SIZE };
        GB.iter().map(|gb| reckon(context, &setting, *gb << 30)).collect()
    };
    let [leveling, garnering] = [1000, 800].map(reckon_all);
    let both = |value: fn(&Reckoned) -> f64, digits: usize| {
        let of = |seen: &[Reckoned]| strokes(seen.iter().map(value), digits);
        format!("{} and {}", of(&leveling), of(&garnering))
    };
    let ratios = |value: fn(&Reckoned) -> f64| -> Vec<f64> {
        leveling.iter().zip(&garnering).map(|(l, g)| value(g) / value(l)).collect()
    };
    report.show(SIMULATED.of(&[&sizes]), both(|seen| seen.written, 1));
    report.show(SIMULATED_SCANS.of(&[&sizes]), both(|seen| seen.runs, 2));
    let [plain, filtered] = [ratios(|seen| seen.blocks[0]), ratios(|seen| seen.blocks[1])];
    let text = |ratios: &[f64], value| format!("{}; {}", strokes(ratios, 2), both(value, 2));
    let here = text(&plain, |seen| seen.blocks[0]);
    report.judge(SIMULATED_GETS.of(&[&sizes]).uncounted(), here, &[1.0, most(&plain)]);
    let here = text(&filtered, |seen| seen.blocks[1]);
    report.judge(FILTERED_GETS, strokes(&filtered, 2), &[1.0, most(&filtered)]);
    report.show(FILTERED_BLOCKS, here);
    let means = [&plain, &filtered].map(|of| of.iter().sum::<f64>() / of.len() as f64);
    report.judge(LESS_WITH_FILTERS.of(&[&"mean"]), strokes(means, 2), &means);
    Ok(())
}

fn reckon(context: &Context<'_>, setting: &Setting, bytes: u64) -> Reckoned {
    let options = setting.options(context);
    let bytes = context.scaled(bytes);
    let keys = bytes / ENTRY_BYTES;
    let writes = Writes {
        bytes,
        flush_bytes: context.scaled(setting.flush_bytes),
        entry_bytes: ENTRY_BYTES,
        keys: Some(keys),
        prefixes: 1,
    };
    let (report, shape) = simulate_shape(&options, &writes);
    let policy = registry::find(POLICY).expect("a registered policy");
    let targets = policy.targets(&shape, custom::options_of(&options));
    let deepest = shape.deepest().unwrap_or(0);
    let plan = filters::optimal(&shape, &targets, BITS_PER_KEY_X10, deepest);
    let rate = |level: usize| {
        let bits = f64::from(plan.millibits_per_key[level]) / 1000.0;
        (-bits * std::f64::consts::LN_2.powi(2)).exp()
    };
    Reckoned {
        written: report.write_amplification_permille as f64 / 1000.0,
        runs: report.runs_sought_per_scan_permille as f64 / 1000.0,
        blocks: [blocks_per_get(&shape, keys, |_| 1.0), blocks_per_get(&shape, keys, rate)],
    }
}

/// Blocks that a get of one of `keys` numbers reads, if filters pass the share `rate` of the keys
/// that a level does not have:
///
/// 1. A run contains the key with the probability `held`, its share of the keys, and one of its
///    tables covers the key with the probability `covered`, the share of the key space that its
///    tables span.
/// 2. A get that reaches the run reads a block of it with the probability `held + (covered - held)
///    rate`.
/// 3. It continues to the next run with the probability `1 - held`.
fn blocks_per_get(shape: &Shape, keys: u64, rate: impl Fn(usize) -> f64) -> f64 {
    let (mut blocks, mut reaching) = (0.0, 1.0);
    for (index, level) in shape.levels.iter().enumerate() {
        for run in level.runs() {
            let entries: u64 = run.tables.iter().map(|table| table.entries).sum();
            let span: u64 = run.tables.iter().map(|table| span(table)).sum();
            let [held, covered] = [entries, span].map(|keys_of| keys_of as f64 / keys as f64);
            blocks += reaching * (held + (covered - held).max(0.0) * rate(index));
            reaching *= 1.0 - held;
        }
    }
    blocks
}

/// Numbers between the bounds of a table of the simulator.
fn span(table: &Table) -> u64 {
    let number = |key: &[u8]| key.try_into().map_or(0, u64::from_be_bytes);
    number(&table.max_key) - number(&table.min_key) + 1
}
