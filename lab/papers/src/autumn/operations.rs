//! Figure 2: the six operations of db_bench with values of three sizes, T = 2, c = 1 and 0.8, in
//! simulated device time. Sizes are the paper's, those of `OptimizeForSmallDb`, divided by eight;
//! as in db_bench, random keys are drawn from as many numbers as there are writes, so that 63% of
//! them exist. Neither side has filters or a cache.
//!
//! How full the last two levels are at one moment is a matter of chance. So reads are measured four
//! times, with a sixteenth of the writes in between, and their mean counts.

use runstone_kv::Result;

use super::client::{Client, Phase};
use super::{Setting, WHOLE_DATABASE, c_name};
use crate::device_time::{Flushes, Limits};
use crate::engine::write_amplification;
use crate::numbers::{ratio, strokes};
use crate::report::{bars, bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

const DIVISOR: u64 = 8;
const ENTRIES: u64 = 2_000_000 / DIVISOR;
const VALUE_BYTES: [usize; 3] = [50, 100, 200];
const READS: u64 = 2_000;
const MOMENTS: u64 = 4;
/// RocksDB's slowdown and stop by runs; the bytes are those of `OptimizeForSmallDb`.
const LIMITS: Limits = Limits {
    runs: [20, 36],
    debt_bytes: [(256 << 20) / DIVISOR, (1 << 30) / DIVISOR],
    flushes: Flushes::Queued,
    background_speed: 1,
};

const SETTING: Setting = Setting {
    size_ratio: 2,
    base_bytes: (10 << 20) / DIVISOR,
    table_bytes: (2 << 20) / DIVISOR,
    flush_bytes: (2 << 20) / DIVISOR,
    records: ENTRIES,
    key_bytes: 16,
    ..WHOLE_DATABASE
};

/// Steps after a seek.
const SCANS: [(&str, u64); 3] = [("seek", 0), ("seek and next 10", 10), ("seek and next 100", 100)];

rows! {
    WRITES = "us per write, fillrandom, values of 50 / 100 / 200 B, c = 0.8 over 1 (figure 2a)",
        "similar latency, no stalls; similar is 10% here" => AtMost(1.1);
    WRITES_IN_ORDER = "the same, fillseq (figure 2a)",
        "similar latency; similar is 10% here" => AtMost(1.1);
    IN_ORDER = "us per write, fillseq over fillrandom, 50 / 100 / 200 B, c = 1; 0.8 (figure 2a)",
        "lower latency when writing sequentially" => Falls;
    BY_VALUES = "us per write at 100 / 200 B over 50 B, c = 1; 0.8; fillseq, then fillrandom \
                 (figure 2a)",
        "higher latency as the value size increases" => Rises;
    WAITED = "share of fillrandom that writers waited, 50 / 100 / 200 B, c = 1; 0.8",
        "" => Beside("the paper saw no gain by fewer stalls in small loads");
    WRITE_TIMES = "us of these, fillrandom; fillseq, c = 0.8 and 1",
        "" => Beside("the figure prints no numbers");
    WRITTEN = "write amplification, fillrandom, values of 50 / 100 / 200 B, c = 1 and 0.8 (as 2a)",
        "" => Beside("the figure has times");
    GETS = "us per get, values of 50 B, c = 0.8 over 1 (figure 2b)",
        "97.5 / 119.9 = 0.81" => Ratios(&[0.813]);
    OTHER_GETS = "the same, values of 100 / 200 B (figure 2b)",
        "better" => Falls;
    SCANNED = "us per {}, values of {} B, c = 0.8 over 1 (figure 2c)",
        "{}" => Falls;
    OTHER_SCANS = "the same of the other six scans and values (figure 2c)",
        "better" => Falls;
    LESS_WITH_STEPS = "seek, and next 10, and next 100: c = 0.8 over 1, values of {} B (figure 2c)",
        "the improvement decreases as steps increase" => Rises;
}

/// Microseconds of one side with one size of values.
struct Seen {
    /// Fillseq and fillrandom.
    writes: [f64; 2],
    /// Write amplification of fillrandom.
    written: f64,
    /// Share of fillrandom during which writers waited.
    waited_percent: f64,
    get: f64,
    scans: [f64; 3],
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut seen: Vec<[Seen; 2]> = Vec::new();
    let side = |c_permille| Setting { c_permille, ..SETTING }.side(context);
    report.compare(&[1000, 800].map(side), &[])?;
    for value_bytes in VALUE_BYTES {
        let of = |c_permille| {
            let setting = Setting { c_permille, value_bytes, ..SETTING };
            context.say(&format!("values of {value_bytes} bytes, {}", c_name(c_permille)));
            measure(context, &setting)
        };
        seen.push([of(1000)?, of(800)?]);
    }
    judge_writes(report, &seen);
    judge_reads(report, &seen);
    draw(report, &seen);
    Ok(())
}

fn measure(context: &Context<'_>, setting: &Setting) -> Result<Seen> {
    let entries = context.scaled(ENTRIES);
    let mut ordered = Client::new(context, setting, LIMITS)?.ascending();
    let in_order = ordered.phase(entries, Client::insert)?.us();
    let mut client = Client::new(context, setting, LIMITS)?;
    let put_any = |client: &mut Client| {
        let record = client.rng.below(entries);
        client.put(record)
    };
    let at_random = client.phase(entries, put_any)?;
    let written = write_amplification(&at_random.counters);
    let clock = &client.lanes.clock;
    let waited_percent = clock.stalled_ns as f64 * 100.0 / clock.now_ns() as f64;
    // The records that `calm` added have larger numbers.
    client.records = entries;
    let reads = context.scaled(READS);
    let (mut get, mut scans) = (0.0, [0.0; 3]);
    for moment in 0..MOMENTS {
        if moment > 0 {
            client.phase(entries / 16, put_any)?;
        }
        client = client.calm()?;
        let mean = |client: &mut Client, read: &dyn Fn(&mut Client, u64) -> Result<()>| {
            let phase: Phase = client.phase(reads, |client| {
                let record = client.rng.below(entries);
                read(client, record)
            })?;
            Ok::<f64, runstone_kv::Error>(phase.us() / MOMENTS as f64)
        };
        get += mean(&mut client, &|client, record| client.find(record).map(drop))?;
        for (sum, (_, steps)) in scans.iter_mut().zip(SCANS) {
            *sum += mean(&mut client, &|client, record| client.scan(record, steps))?;
        }
    }
    Ok(Seen { writes: [in_order, at_random.us()], written, waited_percent, get, scans })
}

fn judge_writes(report: &mut PaperReport, seen: &[[Seen; 2]]) {
    let of = |value: &dyn Fn(&Seen) -> f64| -> [Vec<f64>; 2] {
        [0, 1].map(|side| seen.iter().map(|sides| value(&sides[side])).collect())
    };
    let against = |at: usize| {
        let [leveling, garnering] = of(&|one| one.writes[at]);
        let ratios: Vec<f64> = garnering.iter().zip(&leveling).map(|(g, l)| g / l).collect();
        (format!("{} and {}", strokes(&garnering, 2), strokes(&leveling, 2)), ratios)
    };
    for (row, at) in [(WRITES, 1), (WRITES_IN_ORDER, 0)] {
        let (_, ratios) = against(at);
        let apart: Vec<f64> = ratios.iter().map(|ratio| ratio.max(ratio.recip())).collect();
        report.judge(row, strokes(&ratios, 2), &apart);
    }
    let in_order = of(&|one| one.writes[0] / one.writes[1]);
    let here = in_order.each_ref().map(|ratios| strokes(ratios, 2)).join("; ");
    report.judge(IN_ORDER, here, &[1.0, most(&in_order.concat())]);
    let by_values =
        [0, 1].map(|at| of(&|one| one.writes[at]).map(|us| [us[1] / us[0], us[2] / us[0]]));
    let here = by_values.concat().iter().map(|steps| strokes(steps, 2)).collect::<Vec<_>>();
    let steps = by_values.concat().into_iter().flat_map(|[next, last]| [next, last / next]);
    report.judge(BY_VALUES, here.join("; "), &[1.0, steps.fold(f64::INFINITY, f64::min)]);
    let waited = of(&|one| one.waited_percent).map(|shares| strokes(&shares, 1));
    report.show(WAITED, waited.join("; ") + " %");
    report.show(WRITE_TIMES, [against(1).0, against(0).0].join("; "));
    let [leveling, garnering] = of(&|one| one.written).map(|column| strokes(&column, 2));
    report.show(WRITTEN, format!("{leveling} and {garnering}"));
}

fn judge_reads(report: &mut PaperReport, seen: &[[Seen; 2]]) {
    let gets = seen.iter().map(|[leveling, garnering]| garnering.get / leveling.get);
    let gets: Vec<f64> = gets.collect();
    let [leveling, garnering] = &seen[0];
    report.judge(GETS, ratio(garnering.get, leveling.get, 1, "").0, &gets[..1]);
    report.judge(OTHER_GETS, strokes(&gets[1..], 2), &[1.0, most(&gets[1..])]);
    let mut others = Vec::new();
    let mut in_order = Vec::new();
    for ([leveling, garnering], bytes) in seen.iter().zip(VALUE_BYTES) {
        let mut ratios = Vec::new();
        for (at, (name, steps)) in SCANS.iter().enumerate() {
            let (text, of_leveling) = ratio(garnering.scans[at], leveling.scans[at], 1, "");
            ratios.push(of_leveling);
            let (printed, rule): (&str, _) = match (bytes, steps) {
                (50, 0) => ("138.9 / 170.7 = 0.81", Ratios(&[0.813])),
                (200, 10) => ("improved by 9%", Ratios(&[0.91])),
                (200, 100) => ("improved by 5%", Ratios(&[0.95])),
                _ => {
                    others.push(of_leveling);
                    continue;
                }
            };
            report.judge(SCANNED.of(&[name, &bytes, &printed]).by(rule), text, &[of_leveling]);
        }
        in_order.push((bytes, ratios));
    }
    report.judge(OTHER_SCANS, strokes(&others, 2), &[1.0, most(&others)]);
    for (bytes, ratios) in in_order {
        report.judge(LESS_WITH_STEPS.of(&[&bytes]), strokes(&ratios, 2), &ratios);
    }
}

fn most(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

fn draw(report: &mut PaperReport, seen: &[[Seen; 2]]) {
    let names = ["c = 1", "c = 0.8"];
    let sizes = || VALUE_BYTES.map(|bytes| format!("{bytes} B"));
    let fills = ["fillseq", "fillrandom"];
    let writes = names.iter().enumerate().map(|(side, name)| {
        let of = |at: usize| seen.iter().map(move |sides| sides[side].writes[at]);
        bars(name, (0..2).flat_map(of))
    });
    let both = fills.iter().flat_map(|fill| sizes().map(|size| format!("{fill} {size}")));
    let us = "us per operation";
    report.draw_bars("figure-2a", ["Writes, simulated time", "values", us], both, writes.collect());
    let gets = names.iter().zip([119.937, 97.526]).enumerate().map(|(side, (name, paper))| {
        let here = seen.iter().map(|sides| sides[side].get);
        bars_beside(name, here, [paper, f64::NAN, f64::NAN])
    });
    let titles = ["Gets without filters, simulated time", "values", us];
    report.draw_bars("figure-2b", titles, sizes(), gets.collect());
    // For the largest values the paper prints the improvement of the longer reads.
    let improved = |at: usize, by: f64| seen[2][0].scans[at] * (1.0 - by);
    let [next_10, next_100] = [improved(1, 0.09), improved(2, 0.05)];
    const NONE: f64 = f64::NAN;
    let marks = [
        [170.742, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
        [138.864, NONE, NONE, NONE, NONE, next_10, NONE, NONE, next_100],
    ];
    let scans = names.iter().zip(marks).enumerate().map(|(side, (name, marks))| {
        let of = |at: usize| seen.iter().map(move |sides| sides[side].scans[at]);
        bars_beside(name, (0..SCANS.len()).flat_map(of), marks)
    });
    let each = SCANS.iter().flat_map(|(name, _)| sizes().map(|size| format!("{name} {size}")));
    report.draw_bars(
        "figure-2c",
        ["Range reads, simulated time", "values", us],
        each,
        scans.collect(),
    );
}
