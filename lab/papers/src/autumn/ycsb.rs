//! Figure 4, its stalls, and table 3: load and YCSB A to F in simulated device time. Each mix
//! begins when all jobs are done and level 0 is empty; while it runs, a job begins as soon as the
//! simulated background is free.

use runstone_kv::Result;
use runstone_plot::Axis;
use runstone_workloads::generators::{Latest, ScrambledZipfian};

use super::client::{Client, Phase};
use super::{Setting, WHOLE_DATABASE, c_name};
use crate::device_time::{Flushes, Limits};
use crate::engine::write_amplification;
use crate::numbers::{list, strokes};
use crate::report::{bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

const OPERATIONS: u64 = 40_000;
const ENTRIES_PER_SCAN: u64 = 100;
/// RocksDB's limits, with the byte limits scaled down by the same factor as the database.
const LIMITS: Limits = Limits {
    runs: [20, 36],
    debt_bytes: [64 << 20, 256 << 20],
    flushes: Flushes::Queued,
    background_speed: 1,
};

/// With a background that is this many times as fast as the client, no writer waits.
const FAST: u64 = 16;

/// Each mix with its percentage of writes.
const MIXES: [(&str, u64); 6] = [("A", 50), ("B", 5), ("C", 0), ("D", 5), ("E", 5), ("F", 50)];
/// What table 3 prints for a mix: its position, and the average, 95% and 99% in us for each c.
const TABLE_3: [(usize, [[f64; 3]; 3]); 3] = [
    (0, [[157.0, 513.0, 640.0], [148.0, 475.0, 612.0], [140.0, 443.0, 536.0]]),
    (2, [[149.0, 488.0, 595.0], [143.0, 454.0, 579.0], [117.0, 332.0, 459.0]]),
    (4, [[846.0, 1907.0, 2229.0], [822.0, 1851.0, 2141.0], [773.0, 1759.0, 2006.0]]),
];
/// The ratios of these numbers, in the same order: c = 0.8, then 0.4, over 1.
const TABLE_3_RATIOS: [[&[f64]; 2]; 3] = [
    [&[0.943, 0.926, 0.956], &[0.892, 0.864, 0.838]],
    [&[0.960, 0.930, 0.973], &[0.785, 0.680, 0.771]],
    [&[0.972, 0.971, 0.961], &[0.914, 0.922, 0.900]],
];

/// The numbers for figure 4 in the paper's text: throughput of load and mixes relative to c = 1,
/// for each side.
const FIGURE_4: [[f64; 7]; 3] = {
    const NONE: f64 = f64::NAN;
    [
        [NONE; 7],
        [NONE, NONE, NONE, 1.04, 1.2, NONE, NONE],
        [1.15, NONE, NONE, 1.24, 1.2, NONE, NONE],
    ]
};

rows! {
    LOAD = "throughput of the load in kops/s of simulated time, c = 1 / 0.8 / 0.4 (figure 4)",
        "15% more at c = 0.4" => Ratios(&[1.15]);
    LOAD_WRITTEN = "write amplification of that load, which level 0 joins as it can",
        "" => Beside("not in the paper");
    STALLS = "write stalls of the load, c = 1 / 0.8 / 0.4 (4.3)",
        "3403 / 2592 / 1265" => Ratios(&[0.762, 0.372]);
    LOAD_FAST = "throughput of the load beside a background {} times as fast, in kops/s; \
        its stalls",
        "15% more at c = 0.4" => Beside("what the wait for compactions decides");
    STALLED = "share of the load's simulated time that writers waited, c = 1 / 0.8 / 0.4",
        "" => Beside("not in the paper");
    LOAD_FIRST = "throughput of the load where a flush interrupts a compaction, in kops/s",
        "15% more at c = 0.4" => Ratios(&[1.15]);
    STALLS_FIRST = "write stalls of the load where a flush interrupts a compaction (4.3)",
        "3403 / 2592 / 1265" => Ratios(&[0.762, 0.372]);
    READ_ONLY = "throughput of YCSB C in kops/s of simulated time, c = 1 / 0.8 / 0.4 (figure 4)",
        "4% and 24% more" => Ratios(&[1.04, 1.24]);
    READ_LATEST = "throughput of YCSB D in kops/s of simulated time, c = 1 / 0.8 / 0.4 (figure 4)",
        "Autumn more than 20% more" => Ratios(&[1.2, 1.2]);
    INDEXES = "reads of indexes per get of YCSB A; C; D, not charged, c = 1 / 0.8 / 0.4",
        "" => Beside("as if all were pinned in memory; the paper names the option for level 0");
    AT_PAR = "time of YCSB A, B, E, F, c = 0.8 over 1; 0.4 over 1 (figure 4)",
        "Autumn at par or better; par is 5% here" => AtMost(1.05);
    AT_PAR_SPEEDS = "kops/s of these, c = 1 / 0.8 / 0.4",
        "" => Beside("the figure prints no numbers");
    TABLE_3_ROW = "average, 95%, 99% of reads in YCSB {}, c = {} over 1 (table 3)",
        "{}" => Falls;
    TABLE_3_TIMES = "us of these, c = 1; 0.8; 0.4",
        "{}" => Beside("the ratios are judged");
    ANSWERS = "YCSB D: gets in % that memtable, level 0, 1, 2, 3, deeper answer, c = 1; 0.8; 0.4",
        "level 1: 9; 33; 40" => Beside("the paper prints level 1 only, without its method");
}

struct Load {
    phase: Phase,
    stalls: f64,
    stalled_percent: f64,
}

/// The measurements of one side.
struct Seen {
    load: Load,
    /// The load with flushes that interrupt compactions.
    first: Load,
    /// The load with a fast background.
    fast: Load,
    mixes: Vec<Phase>,
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let (mut seen, mut sides) = (Vec::new(), Vec::new());
    for c_permille in [1000, 800, 400] {
        let setting = Setting { c_permille, ..WHOLE_DATABASE };
        context.say(&format!("YCSB on simulated time, {}", c_name(c_permille)));
        sides.push(setting.side(context));
        seen.push(measure(context, &setting)?);
    }
    report.compare(&sides, &[])?;
    judge_load(report, &seen);
    let (mut slower, mut speeds) = ([Vec::new(), Vec::new()], Vec::new());
    for (at, (mix, _)) in MIXES.iter().enumerate() {
        let kops = column(&seen, |one| one.mixes[at].kops_per_s);
        let more = [kops[1] / kops[0], kops[2] / kops[0]];
        match *mix {
            "C" => report.judge(READ_ONLY, strokes(&kops, 2), &more),
            "D" => report.judge(READ_LATEST, strokes(&kops, 2), &more),
            _ => {
                slower.iter_mut().zip(more).for_each(|(of, more)| of.push(more.recip()));
                speeds.push(strokes(&kops, 2));
            }
        }
    }
    let here = slower.each_ref().map(|of| strokes(of, 2)).join("; ");
    report.judge(AT_PAR, here, &slower.concat());
    report.show(AT_PAR_SPEEDS, speeds.join("; "));
    let indexes =
        [0, 2, 3].map(|at: usize| strokes(column(&seen, |one| one.mixes[at].index_reads), 2));
    report.show(INDEXES, indexes.join("; "));
    judge_latencies(report, &seen);
    show_answers(report, &seen);
    draw(report, &seen);
    Ok(())
}

fn column(seen: &[Seen], value: impl Fn(&Seen) -> f64) -> Vec<f64> {
    seen.iter().map(value).collect()
}

fn judge_load(report: &mut PaperReport, seen: &[Seen]) {
    let kops = column(seen, |one| one.load.phase.kops_per_s);
    report.judge(LOAD, strokes(&kops, 2), &[kops[2] / kops[0]]);
    let written = column(seen, |one| write_amplification(&one.load.phase.counters));
    report.show(LOAD_WRITTEN, strokes(&written, 2));
    let stalls = column(seen, |one| one.load.stalls);
    report.judge(STALLS, strokes(&stalls, 0), &[stalls[1] / stalls[0], stalls[2] / stalls[0]]);
    let kops = column(seen, |one| one.first.phase.kops_per_s);
    report.judge(LOAD_FIRST.uncounted(), strokes(&kops, 2), &[kops[2] / kops[0]]);
    let stalls = column(seen, |one| one.first.stalls);
    let shares = [stalls[1] / stalls[0], stalls[2] / stalls[0]];
    report.judge(STALLS_FIRST.uncounted(), strokes(&stalls, 0), &shares);
    let kops = strokes(column(seen, |one| one.fast.phase.kops_per_s), 2);
    let stalls = strokes(column(seen, |one| one.fast.stalls), 0);
    report.show(LOAD_FAST.of(&[&FAST]), format!("{kops}; {stalls}"));
    report.show(STALLED, strokes(column(seen, |one| one.load.stalled_percent), 1) + " %");
}

fn judge_latencies(report: &mut PaperReport, seen: &[Seen]) {
    for ((at, paper), ratios) in TABLE_3.iter().zip(TABLE_3_RATIOS) {
        let of = |side: usize| seen[side].mixes[*at].read_us;
        for (side, name) in [(1, "0.8"), (2, "0.4")] {
            let printed = list(ratios[side - 1], 2);
            let row = TABLE_3_ROW.of(&[&MIXES[*at].0, &name, &printed]);
            let shares: Vec<f64> = of(side).iter().zip(of(0)).map(|(us, of)| us / of).collect();
            report.judge(row.by(Ratios(ratios[side - 1])), list(&shares, 2), &shares);
        }
        let times = |us: [[f64; 3]; 3]| us.map(|us| strokes(us, 0)).join("; ");
        let here = times([0, 1, 2].map(of));
        report.show(TABLE_3_TIMES.of(&[&times(*paper)]), here);
    }
}

fn show_answers(report: &mut PaperReport, seen: &[Seen]) {
    let answers = seen.iter().map(|one| {
        let of = &one.mixes[3].counters;
        let hits = [
            of.hits_memtable,
            of.hits_level_0,
            of.hits_level_1,
            of.hits_level_2,
            of.hits_level_3,
            of.hits_deeper,
        ];
        strokes(hits.map(|hits| hits as f64 * 100.0 / of.get_hits.max(1) as f64), 1)
    });
    report.show(ANSWERS, answers.collect::<Vec<_>>().join("; "));
}

fn draw(report: &mut PaperReport, seen: &[Seen]) {
    let names = ["c = 1", "c = 0.8", "c = 0.4"];
    let phases = ["load"].into_iter().chain(MIXES.map(|(mix, _)| mix));
    let kops = |one: &Seen| -> Vec<f64> {
        [&one.load.phase].into_iter().chain(&one.mixes).map(|phase| phase.kops_per_s).collect()
    };
    let leveled = kops(&seen[0]);
    let over = seen.iter().zip(names).zip(FIGURE_4).map(|((one, name), paper)| {
        bars_beside(name, kops(one).into_iter().zip(&leveled).map(|(one, of)| one / of), paper)
    });
    let (titles, y) =
        (["YCSB, simulated time", "mix"], Axis::doubling("operations per second / c = 1"));
    report.draw_bars_over("figure-4", titles, y, phases, over.collect());
    let latencies = seen.iter().zip(names).enumerate().map(|(side, (one, name))| {
        let here = TABLE_3.iter().flat_map(|(at, _)| one.mixes[*at].read_us);
        bars_beside(name, here, TABLE_3.iter().flat_map(|(_, paper)| paper[side]))
    });
    let of_mix = |mix: &str| ["mean", "95%", "99%"].map(|of| format!("{mix} {of}"));
    let titles = ["Latency of reads, simulated time", "mix; mean and percentiles", "us"];
    let each = TABLE_3.iter().flat_map(|(at, _)| of_mix(MIXES[*at].0));
    report.draw_bars("table-3", titles, each, latencies.collect());
}

fn measure(context: &Context<'_>, setting: &Setting) -> Result<Seen> {
    let first = load(context, setting, Limits { flushes: Flushes::First, ..LIMITS })?.1;
    let fast = load(context, setting, Limits { background_speed: FAST, ..LIMITS })?.1;
    let (mut client, load) = load(context, setting, LIMITS)?;
    let mut mixes = Vec::new();
    for (mix, write_percent) in MIXES {
        client = client.calm()?;
        let operations = context.scaled(OPERATIONS) / if mix == "E" { 4 } else { 1 };
        let zipfian = ScrambledZipfian::new(client.records);
        let mut latest = Latest::new(client.records);
        mixes.push(client.phase(operations.max(1), |client| {
            let writes = client.rng.below(100) < write_percent;
            let record = match mix {
                "D" => latest.next(&mut client.rng, client.records),
                _ => zipfian.next(&mut client.rng),
            };
            match (mix, writes) {
                ("D" | "E", true) => client.insert(),
                ("E", false) => client.scan(record, ENTRIES_PER_SCAN - 1),
                ("F", true) => client.get(record).and_then(|()| client.put(record)),
                (_, true) => client.put(record),
                (_, false) => client.get(record),
            }
        })?);
    }
    Ok(Seen { load, first, fast, mixes })
}

fn load(context: &Context<'_>, setting: &Setting, limits: Limits) -> Result<(Client, Load)> {
    let mut client = Client::new(context, setting, limits)?;
    let phase = client.phase(setting.data(context).records, Client::insert)?;
    let clock = &client.lanes.clock;
    let stalled_percent = clock.stalled_ns as f64 * 100.0 / clock.now_ns() as f64;
    let load = Load { phase, stalls: clock.stalls as f64, stalled_percent };
    Ok((client, load))
}
