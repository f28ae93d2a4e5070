//! Experiments 2, 6 and 9: the reserve; the cold stream; the sizes of main segments, log segments
//! and the write cache.

use runstone_kv::Result;

use super::bench::{Bench, Phase, named, times, with_log};
use super::designs::{
    CACHE_BYTES, COLD, Design, GROUPS, MAIN_BYTES, PROCESSOR, RECORDS, SCALED_SEEKS, SLOT_BYTES,
    SLOTS, Workload,
};
use super::rules;
use crate::numbers::{list, mib, ratio};
use crate::report::{Row, line_beside, rows};
use crate::sides::BUFFER;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};
use runstone_plot::Axis;

rows! {
    SPEEDS = "2: updates at a reserve of 10, 30, 50, 70, 90%, HashKV over vLog (figure 6a)",
        "3.1 to 4.7" => Beside(PROCESSOR);
    RESERVE_ALL = "2: bytes of updates at these reserves, HashKV over vLog (figure 6b)",
        "-30.1% to -57.3%" => Ratios(&[0.699; 5]);
    SEEKS_OFF = "2: bytes of updates at these reserves, HashKV over vLog, seek compaction off",
        "" => Beside("what the rule changes");
    RESERVE_BYTES = "2: value bytes of updates at these reserves (figure 6b)",
        "falls" => Falls;
    RULES = "2: value records at these reserves over the rules of 3.1 to 3.3, {}",
        "" => Beside("a check of the engine: both sides make the same updates");
    COLD_STREAM = "6: bytes of updates, a cold stream and 80% more space over none, \
        reserve 20% (figure 10)",
        "0.575, -42.5%" => Ratios(&[0.575]);
    COLD_BYTES = "6: bytes of the cold stream at equal space, 20, 50, 100% reserved in all",
        "0.575, -42.5%" => Ratios(&[0.575; 3]);
    COLD_SPEED = "6: updates in processor time, cold stream with more space; at equal space",
        "2.213, +121.3%" => Beside(PROCESSOR);
    COLD_SPACE = "6: MiB of the value file and of the cold stream: none, 20%; cold, {}",
        "" => Beside("what the space of the judged row is used for");
    SPACE_ALONE = "6: bytes of updates, 100% reserved over 20%, no cold stream",
        "" => Beside("what the same space brings without a cold stream");
    COLD_WRITTEN_BACK = "6: bytes, cold stream written back; space alone",
        "0.575, -42.5%" => Ratios(&[0.575]);
    COLD_LESS_SKEW = "6: bytes of the cold stream at theta 0.9 (figure 10)",
        "0.572, -42.8%" => Ratios(&[0.572]);
    COLD_BYTES_LESS_SKEW = "6: bytes at equal space at theta 0.9, 20, 50, 100% reserved in all",
        "0.572, -42.8%" => Beside(LESS_SKEW);
    MAIN_SEGMENTS = "9: bytes of updates, main segments {} to {} KiB, reserve 20% (figure 12d)",
        "bytes fall" => Falls;
    LOG_SEGMENTS = "9: bytes of updates, log segments {} to {} KiB, reserve 20% (figure 12e)",
        "+10.4% at 20%, about 0 at 50%" => Ratios(&[1.104]);
    WRITE_CACHE = "9: bytes of updates, write cache {} to {} KiB, reserve 20% (figure 12f)",
        "-16.3% at 20%" => Ratios(&[0.837]);
}

const PERCENTS: [&str; 5] = ["10%", "30%", "50%", "70%", "90%"];
pub(super) const RESERVES: [u32; 5] = [100, 300, 500, 700, 900];

/// Half the workload of the first experiment, with half as many groups.
fn workload(context: &Context<'_>) -> Workload {
    Workload::of_pairs(context.scaled(RECORDS / 2), 1024)
}

pub(super) fn reserve(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    let [hashkv, vlog] = &through_reserves(context, report, &workload, None)?;
    let speeds = hashkv.iter().zip(vlog).map(|(h, v)| h.per_second() / v.per_second());
    report.show(SPEEDS, format!("from the least reserve on: {}", list(speeds, 2)));
    let [values, of_vlog] =
        [hashkv, vlog].map(|all| all.iter().map(Phase::value_amplification).collect::<Vec<_>>());
    report.judge(
        RESERVE_BYTES,
        format!("{}; vLog {}", list(&values, 2), list(&of_vlog, 2)),
        &values,
    );
    let ratios = |[hashkv, vlog]: [&[Phase]; 2], bytes: fn(&Phase) -> f64| -> Vec<f64> {
        hashkv.iter().zip(vlog).map(|(hashkv, vlog)| times(bytes(hashkv), bytes(vlog))).collect()
    };
    report.show(SEEKS_OFF, list(ratios([hashkv, vlog], Phase::amplification), 2));
    let seeking = &through_reserves(context, report, &workload, Some(SCALED_SEEKS))?;
    let of_seeking = |bytes| ratios(seeking.each_ref().map(|all| &all[..]), bytes);
    let [bytes, logged] = [Phase::amplification, Phase::logged_amplification].map(of_seeking);
    report.judge(with_log(&RESERVE_ALL), list(&logged, 2), &logged);
    report.judge(RESERVE_ALL, list(&bytes, 2), &bytes);
    draw_reserves(report, ("figure-6b", "Bytes of updates, HashKV"), bytes, [0.427, 0.699]);
    show_rules(report, &workload, ("YCSB's curve", hashkv));
    let workload = workload.with_own_curve();
    let design = Design::paper(&workload);
    let phases = RESERVES.map(|permille| {
        context.say(&format!("experiment 2: a curve over the pairs, reserve {}%", permille / 10));
        Bench::in_memory(&design.clone().with_reserve(permille), &workload)?.through(3)
    });
    let phases: Vec<Phase> = phases.into_iter().collect::<Result<_>>()?;
    show_rules(report, &workload, ("a curve over the pairs", &phases));
    Ok(())
}

/// Runs P3 of HashKV and of vLog at each reserve, without filters as in experiment 1. With
/// `least_seeks`, the smallest number of seeks that a table is allowed, LevelDB's seek compaction
/// is on.
fn through_reserves(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
    least_seeks: Option<u32>,
) -> Result<[Vec<Phase>; 2]> {
    let conditions = |design: Design| match least_seeks {
        Some(least) => design.without_filters().seeking(least),
        None => design.without_filters(),
    };
    let designs = [Design::paper(workload), Design::paper_vlog(workload)].map(conditions);
    let names = ["HashKV", "vLog"];
    let sides = [0, 1].map(|at| designs[at].side(names[at]));
    report.compare(&sides, &[])?;
    let mut seen = [Vec::new(), Vec::new()];
    for ((phases, design), name) in seen.iter_mut().zip(designs).zip(names) {
        for permille in RESERVES {
            let seeks = if least_seeks.is_some() { "on" } else { "off" };
            let reserve = permille / 10;
            context.say(&format!("experiment 2: {name}, reserve {reserve}%, seeks {seeks}"));
            let design = design.clone().with_reserve(permille);
            phases.push(Bench::in_memory(&design, workload)?.through(3)?);
        }
    }
    Ok(seen)
}

/// Shows whether hash groups write more than the paper's rules make them write, and how the curve
/// of the updates affects this.
fn show_rules(report: &mut PaperReport, workload: &Workload, (curve, phases): (&str, &[Phase])) {
    let values = Design::paper(workload).keyspace.values;
    let by_rules: Vec<f64> = RESERVES
        .iter()
        .filter_map(|permille| {
            rules::written(workload, values.groups, values.slot_bytes, *permille).last().copied()
        })
        .collect();
    let engine: Vec<f64> = phases.iter().map(Phase::value_records).collect();
    let shares = engine.iter().zip(&by_rules).map(|(engine, rules)| engine / rules);
    report.show(RULES.of(&[&curve]), named(&PERCENTS, &shares.collect::<Vec<_>>()));
}

/// HashKV divided by vLog at each reserve, with both ends of the range that the paper gives for
/// all.
pub(super) fn draw_reserves(
    report: &mut PaperReport,
    (figure, title): (&str, &str),
    ratios: Vec<f64>,
    paper: [f64; 2],
) {
    let marks = paper.into_iter().flat_map(|ratio| percents(&RESERVES).map(move |at| (at, ratio)));
    let line = line_beside("over vLog", percents(&RESERVES).zip(ratios), marks);
    report.draw_lines(figure, title, Axis::linear("reserve, %"), "times vLog's", vec![line]);
}

pub(super) fn percents(permilles: &[u32]) -> impl Iterator<Item = f64> {
    permilles.iter().map(|permille| f64::from(*permille) / 10.0)
}

/// The reserves of the comparison. The first is the paper's for its features; the last also has
/// room for the cold stream.
pub(super) const SPACES: [&str; 3] = ["20%", "50%", "100%"];
pub(super) const HOTNESS_RESERVES: [u32; 3] = [200, 500, 1000];

/// The paper's other skew, and why its rows are not judged.
pub(super) const LESS_THETA: f64 = 0.9;
pub(super) const LESS_SKEW: &str = "judged at theta 0.99; this tells whether the skew decides";

/// The costs of a run with or without a cold stream.
struct Hotness {
    update: Phase,
    peak_mib: f64,
    cold_mib: f64,
}

impl Hotness {
    fn of(design: &Design, workload: &Workload) -> Result<Hotness> {
        let mut bench = Bench::in_memory(design, workload)?;
        let update = bench.through(3)?;
        let cold = |file: &runstone::ValueUsage| file.cold.map_or(0, |cold| cold.bytes);
        let cold_bytes = bench.store.default_keyspace().value_usage().iter().map(cold).sum();
        let peak_mib = mib(bench.files()[0].values);
        Ok(Hotness { update, peak_mib, cold_mib: mib(cold_bytes) })
    }
}

pub(super) fn hotness(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    let (mut plain, mut cooling) = (Vec::new(), Vec::new());
    for permille in HOTNESS_RESERVES {
        let [without, with] = in_space(context, report, &workload, permille)?;
        plain.push(without);
        cooling.push(with);
    }
    let ([first, .., widest], [.., last]) = (&plain[..], &cooling[..]) else { return Ok(()) };
    // The paper gives the cold log a region of its own.
    judge_cold(report, &COLD_STREAM, last, first);
    let apart = |one: &Hotness| one.update.amplification() / first.update.amplification();
    report.show(SPACE_ALONE, format!("{:.2}", apart(widest)));
    let spaces = cooling.iter().map(|one| list([one.peak_mib, one.cold_mib], 0));
    let spaces = spaces.collect::<Vec<_>>().join("; ");
    let all = HOTNESS_RESERVES.map(|permille| format!("{}%", permille / 10)).join(", ");
    report.show(COLD_SPACE.of(&[&all]), format!("{:.0}; {spaces}", first.peak_mib));
    let bytes = |one: &Hotness| one.update.amplification();
    let ratios = cooling.iter().zip(&plain).map(|(cold, plain)| times(bytes(cold), bytes(plain)));
    let ratios: Vec<f64> = ratios.collect();
    report.judge(COLD_BYTES.uncounted(), list(&ratios, 2), &ratios);
    let faster =
        |(cold, plain): (&Hotness, &Hotness)| cold.update.per_second() / plain.update.per_second();
    let equal = list(cooling.iter().zip(&plain).map(faster), 2);
    let own = faster((last, first));
    report.show(COLD_SPEED, format!("{own:.2} with more space; at equal space {equal}"));
    let logged = |one: &Hotness| one.update.logged_amplification();
    let with_logs = cooling.iter().map(|one| logged(one) / logged(first)).collect();
    let lines = [(COLD_LINE, cooling.iter().map(apart).collect()), (COLD_LOGGED_LINE, with_logs)];
    draw_hotness(report, ("figure-10", "Bytes of updates"), lines, 0.575);
    let bytes = written_back(context, report, &workload, |design| {
        Ok(Bench::in_memory(design, &workload)?.through(3)?.amplification())
    })?;
    let ratios = [bytes[2] / bytes[0], bytes[1] / bytes[0]];
    report.judge(COLD_WRITTEN_BACK.uncounted(), list(ratios, 2), &ratios[..1]);
    show_less_skew(context, report, &workload)
}

/// The results of `measure` for the paper's configuration with its pointers written back: with the
/// least space, with the most, and with the most and a cold stream.
pub(super) fn written_back(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
    measure: impl Fn(&Design) -> Result<f64>,
) -> Result<[f64; 3]> {
    context.say("experiment 6: pointers written back");
    let [least, .., most] = HOTNESS_RESERVES;
    let plain = |permille| Design::paper(workload).with_reserve(permille);
    let cold = plain(most).with(|keyspace| keyspace.values.cold_stream = true);
    report.compare(&[plain(most).side("without"), cold.side("with")], &[COLD])?;
    Ok([measure(&plain(least))?, measure(&plain(most))?, measure(&cold)?])
}

/// Judges the bytes with a cold stream over the bytes without. A second row counts the log, too.
fn judge_cold(report: &mut PaperReport, row: &Row, cold: &Hotness, plain: &Hotness) {
    let bytes: [fn(&Phase) -> f64; 2] = [Phase::amplification, Phase::logged_amplification];
    for (row, bytes) in [row.clone(), with_log(row)].into_iter().zip(bytes) {
        let (text, of_all) = ratio(bytes(&cold.update), bytes(&plain.update), 2, "");
        report.judge(row, text, &[of_all]);
    }
}

/// Compares runs without and with a cold stream in the same space.
fn in_space(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
    permille: u32,
) -> Result<[Hotness; 2]> {
    context.say(&format!("experiment 6: theta {}, reserve {}%", workload.theta, permille / 10));
    let design = Design::hashkv(workload).with_reserve(permille);
    let cold = design.clone().with(|keyspace| keyspace.values.cold_stream = true);
    report.compare(&[design.side("without"), cold.side("with")], &[COLD])?;
    Ok([Hotness::of(&design, workload)?, Hotness::of(&cold, workload)?])
}

fn show_less_skew(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
) -> Result<()> {
    let workload = workload.with_theta(LESS_THETA);
    let mut seen = Vec::new();
    for permille in HOTNESS_RESERVES {
        seen.push(in_space(context, report, &workload, permille)?);
    }
    let [Some([first, _]), Some([_, last])] = [seen.first(), seen.last()] else { return Ok(()) };
    let bytes = |one: &Hotness| one.update.amplification();
    let ratios = seen.iter().map(|[without, with]| bytes(with) / bytes(without));
    report.show(COLD_BYTES_LESS_SKEW, named(&SPACES, &ratios.collect::<Vec<_>>()));
    let (text, of_all) = ratio(bytes(last), bytes(first), 2, "");
    report.judge(COLD_LESS_SKEW.uncounted(), text, &[of_all]);
    Ok(())
}

/// The names of the lines of figure 10.
pub(super) const COLD_LINE: &str = "with a cold stream";
const COLD_LOGGED_LINE: &str = "the same with the log";

/// Draws lines of ratios at each reserve. The paper's number is for a cold log with a region of its
/// own. Only the widest reserve has that much space.
pub(super) fn draw_hotness(
    report: &mut PaperReport,
    (figure, title): (&str, &str),
    lines: impl IntoIterator<Item = (&'static str, Vec<f64>)>,
    paper: f64,
) {
    let widest = f64::from(HOTNESS_RESERVES[2]) / 10.0;
    let lines = lines.into_iter().enumerate().map(|(at, (name, ratios))| {
        let marks = [(widest, paper)].into_iter().filter(|_| at == 0);
        line_beside(name, percents(&HOTNESS_RESERVES).zip(ratios), marks)
    });
    let (x, y) = (Axis::linear("reserve in all, %"), "times those at 20% without");
    report.draw_lines(figure, title, x, y, lines.collect());
}

/// One parameter of experiment 9.
pub(super) struct Sweep {
    row: Row,
    pub(super) name: &'static str,
    /// The setting that differs.
    pub(super) about: &'static str,
    /// The sweep's place among the figures: a to c are throughputs, d to f bytes.
    figure: u8,
    pub(super) kib: [u64; 3],
    with: fn(Design, &Workload, u64) -> Design,
    /// The paper's ratio of the largest size over the smallest, at reserves of 20% and
    /// 50%.
    bytes: [f64; 2],
    pub(super) speed: [f64; 2],
}

pub(super) const SWEEP_RESERVES: [u32; 2] = [200, 500];

impl Sweep {
    /// The paper's configuration with a reserve, and this size of the parameter.
    pub(super) fn design(&self, workload: &Workload, reserve: u32, kib: u64) -> Design {
        (self.with)(Design::paper(workload).with_reserve(reserve), workload, kib << 10)
    }

    /// Draws results relative to the smallest size, for each reserve. `first` is the letter of the
    /// first sweep's figure.
    pub(super) fn draw(
        &self,
        report: &mut PaperReport,
        (first, title): (char, &str),
        seen: [Vec<f64>; 2],
        paper: [f64; 2],
    ) {
        let sizes = || self.kib.iter().map(|kib| (*kib << 10) as f64);
        let lines = seen.iter().zip(paper).zip(SWEEP_RESERVES).map(|((seen, paper), reserve)| {
            let points = sizes().zip(seen.iter().map(|value| value / seen[0]));
            let name = format!("{}% reserve", reserve / 10);
            line_beside(&name, points, sizes().next_back().map(|size| (size, paper)))
        });
        let figure = format!("figure-12{}", (first as u8 + self.figure) as char);
        let (title, x) = (format!("{title}: {}", self.name), Axis::bytes(self.name));
        report.draw_lines(&figure, &title, x, "times those of the least", lines.collect());
    }
}

pub(super) const SWEEPS: [Sweep; 3] = [
    Sweep {
        row: MAIN_SEGMENTS,
        name: "main segments",
        about: GROUPS,
        figure: 0,
        bytes: [f64::NAN; 2],
        speed: [1.525, 1.283],
        // 16, 64 and 256 log segments, as in the paper.
        kib: [512, 2 << 10, MAIN_BYTES >> 10],
        with: |design, workload, bytes| design.sized(workload, bytes, SLOT_BYTES / 4),
    },
    Sweep {
        row: LOG_SEGMENTS,
        name: "log segments",
        about: SLOTS,
        figure: 1,
        bytes: [1.104, 1.0],
        speed: [0.839, 1.0],
        kib: [32, SLOT_BYTES as u64 >> 10, 512],
        with: |design, workload, bytes| design.sized(workload, MAIN_BYTES, bytes as u32),
    },
    Sweep {
        row: WRITE_CACHE,
        name: "write cache",
        about: BUFFER,
        figure: 2,
        bytes: [0.837, f64::NAN],
        speed: [1.291, f64::NAN],
        kib: [64, CACHE_BYTES >> 10, 1 << 10],
        with: |design, _, bytes| design.with(|keyspace| keyspace.write_buffer_bytes = bytes),
    },
];

pub(super) fn segments_and_cache(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    for sweep in &SWEEPS {
        let mut seen: [Vec<Phase>; 2] = [Vec::new(), Vec::new()];
        for (phases, reserve) in seen.iter_mut().zip(SWEEP_RESERVES) {
            let of = |kib: u64| sweep.design(&workload, reserve, kib);
            let side = |kib: u64| of(kib).side(&format!("{} of {kib} KiB", sweep.name));
            report.compare(&sweep.kib.map(side), &[sweep.about])?;
            for kib in sweep.kib {
                let what = format!("{} of {kib} KiB, reserve {}%", sweep.name, reserve / 10);
                context.say(&format!("experiment 9: {what}"));
                phases.push(Bench::in_memory(&of(kib), &workload)?.through(2)?);
            }
        }
        judge_sweep(report, sweep, &seen);
    }
    Ok(())
}

fn judge_sweep(report: &mut PaperReport, sweep: &Sweep, seen: &[Vec<Phase>; 2]) {
    let Sweep { row, kib: [least, .., most], .. } = sweep;
    let row = row.clone().of(&[least, most]);
    let all = |bytes: fn(&Phase) -> f64| -> [Vec<f64>; 2] {
        seen.each_ref().map(|phases| phases.iter().map(bytes).collect())
    };
    let [bytes, logged] = [Phase::amplification, Phase::logged_amplification].map(all);
    for (row, [at_20, at_50]) in [(with_log(&row), &logged), (row, &bytes)] {
        let numbers = match row.rule {
            Falls => at_20.clone(),
            _ => vec![at_20[2] / at_20[0]],
        };
        let mut text = format!("{}; 50%: {}", list(at_20, 2), list(at_50, 2));
        if !row.is_claim {
            text.insert_str(0, "at a reserve of 20%: ");
        }
        report.judge(row, text, &numbers);
    }
    sweep.draw(report, ('d', "Bytes of updates"), bytes, sweep.bytes);
}
