//! Experiments 2, 6 and 9: the reserve; the cold stream; sizes of main segments, log segments and
//! write cache.

use runstone::Result;

use super::bench::{Bench, Phase};
use super::designs::{
    CACHE_BYTES, COLD, Design, GROUPS, MAIN_BYTES, PROCESSOR, RECORDS, SLOT_BYTES, SLOTS, Workload,
};
use crate::numbers::{list, mib, percent_more, ratio};
use crate::report::{Row, line, rows};
use crate::sides::BUFFER;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};
use runstone_plot::{Axis, Line};

rows! {
    SPEEDS = "2: updates at a reserve of 10, 30, 50, 70, 90%, HashKV over vLog (figure 6a)",
        "3.1 to 4.7" => NotComparable(PROCESSOR);
    RESERVE_BYTES = "2: value bytes of updates at these reserves (figure 6b)",
        "falls" => Falls;
    COLD_STREAM = "6: a cold stream in space of its own, on top of a reserve of 20% (figure 10)",
        "+113% to +121%, bytes -43%"
        => NotComparable("the cold stream's space is not in the reserve of the other side");
    COLD_BYTES = "6: bytes at equal space, with a cold stream over without, {} (figure 10)",
        "0.57, -43%" => Ratios(&[0.57]);
    COLD_SPEED = "6: updates at equal space, with a cold stream over without, {} (figure 10)",
        "2.13, +113%" => NotComparable(PROCESSOR);
    MAIN_SEGMENTS = "9: bytes of updates, main segments {} to {} KiB, reserve 20% (figure 12d)",
        "bytes fall" => Falls;
    LOG_SEGMENTS = "9: bytes of updates, log segments {} to {} KiB, reserve 20% (figure 12e)",
        "+10.4% at 20%, about 0 at 50%" => Ratios(&[1.104]);
    WRITE_CACHE = "9: bytes of updates, write cache {} to {} KiB, reserve 20% (figure 12f)",
        "-16.3% at 20%" => Ratios(&[0.837]);
}

pub(super) const RESERVES: [u32; 5] = [100, 300, 500, 700, 900];

/// Half of the first experiment: half as many groups.
fn workload(context: &Context<'_>) -> Workload {
    Workload::of_pairs(context.scaled(RECORDS / 2), 1024)
}

pub(super) fn reserve(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    let designs = [("HashKV", Design::paper(&workload)), ("vLog", Design::paper_vlog(&workload))];
    report.compare(&designs.each_ref().map(|(name, design)| design.side(name)), &[])?;
    let mut seen: Vec<(&str, Vec<Phase>)> = Vec::new();
    for (name, design) in designs {
        let mut phases = Vec::new();
        for permille in RESERVES {
            context.say(&format!("experiment 2: {name}, reserve {}%", permille / 10));
            let design = design.clone().with_reserve(permille);
            phases.push(Bench::in_memory(&design, &workload)?.through(3)?);
        }
        seen.push((name, phases));
    }
    let [(_, hashkv), (_, vlog)] = &seen[..] else { return Ok(()) };
    let speeds: Vec<f64> =
        hashkv.iter().zip(vlog).map(|(h, v)| h.per_second() / v.per_second()).collect();
    report.show(SPEEDS, list(&speeds, 2));
    let values: Vec<f64> = hashkv.iter().map(Phase::value_amplification).collect();
    report.judge(
        RESERVE_BYTES,
        format!(
            "{}; vLog {}",
            list(&values, 2),
            list(vlog.iter().map(Phase::value_amplification), 2)
        ),
        &values,
    );
    let lines = |value: fn(&Phase) -> f64| -> Vec<Line> {
        let of = |(name, phases): &(&str, Vec<Phase>)| {
            line(name, percents(&RESERVES).zip(phases.iter().map(value)))
        };
        seen.iter().map(of).collect()
    };
    let x = Axis::linear("reserve, %");
    let (y, speeds) = ("1000 per second of processor time", lines(|one| one.per_second() / 1e3));
    report.draw_lines("figure-6a", "Updates", x.clone(), y, speeds);
    report.draw_lines("figure-6b", "Bytes of updates", x, BYTES, lines(Phase::amplification));
    Ok(())
}

/// The vertical axis of bytes.
const BYTES: &str = "bytes per byte of the user";

pub(super) fn percents(permilles: &[u32]) -> impl Iterator<Item = f64> {
    permilles.iter().map(|permille| f64::from(*permille) / 10.0)
}

/// The first is the paper's for its features; the last has room for the cold stream beside that.
pub(super) const HOTNESS_RESERVES: [u32; 3] = [200, 500, 1000];

/// What a run with or without a cold stream took.
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
        let peak_mib = mib(bench.peak().values);
        Ok(Hotness { update, peak_mib, cold_mib: mib(cold_bytes) })
    }
}

pub(super) fn hotness(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    let (mut plain, mut cooling) = (Vec::new(), Vec::new());
    for permille in HOTNESS_RESERVES {
        context.say(&format!("experiment 6: reserve {}%", permille / 10));
        let design = Design::hashkv(&workload).with_reserve(permille);
        let cold = design.clone().with(|keyspace| keyspace.values.cold_stream = true);
        report.compare(&[design.side("without"), cold.side("with")], &[COLD])?;
        plain.push(Hotness::of(&design, &workload)?);
        cooling.push(Hotness::of(&cold, &workload)?);
    }
    let (Some(first), Some(last)) = (plain.first(), cooling.last()) else { return Ok(()) };
    let gain = percent_more(first.update.per_second(), last.update.per_second());
    let (before, after) = (first.update.amplification(), last.update.amplification());
    let fewer = percent_more(before, after);
    report.show(
        COLD_STREAM,
        format!(
            "{gain:+.0}%; bytes {before:.2}, {after:.2} = {fewer:+.0}%; \
             value file {:.0}, {:.0} MiB, cold {:.0}",
            first.peak_mib, last.peak_mib, last.cold_mib
        ),
    );
    for ((permille, plain), cooling) in HOTNESS_RESERVES.iter().zip(&plain).zip(&cooling) {
        let space = format!("{}% reserved in all", permille / 10);
        let of =
            |value: fn(&Phase) -> f64| ratio(value(&cooling.update), value(&plain.update), 2, "");
        let (text, of_all) = of(Phase::amplification);
        let peaks = format!("value file {:.0} / {:.0} MiB", cooling.peak_mib, plain.peak_mib);
        report.judge(COLD_BYTES.of(&[&space]), format!("{text}; {peaks}"), &[of_all]);
        let text = of(|phase| phase.per_second() / 1e3).0;
        report.show(COLD_SPEED.of(&[&space]), text);
    }
    let lines = [("without", &plain), ("with a cold stream", &cooling)].map(|(name, seen)| {
        let bytes = seen.iter().map(|one| one.update.amplification());
        line(name, percents(&HOTNESS_RESERVES).zip(bytes))
    });
    let x = Axis::linear("reserve, %");
    report.draw_lines("figure-10", "Bytes of updates", x, BYTES, lines.into());
    Ok(())
}

/// One parameter of experiment 9.
struct Sweep {
    row: Row,
    name: &'static str,
    /// The setting that differs.
    about: &'static str,
    figure: char,
    kib: [u64; 3],
    with: fn(Design, &Workload, u64) -> Design,
}

const SWEEPS: [Sweep; 3] = [
    Sweep {
        row: MAIN_SEGMENTS,
        name: "main segments",
        about: GROUPS,
        figure: 'd',
        // 16, 64 and 256 log segments, as in the paper.
        kib: [512, 2 << 10, MAIN_BYTES >> 10],
        with: |design, workload, bytes| design.sized(workload, bytes, SLOT_BYTES / 4),
    },
    Sweep {
        row: LOG_SEGMENTS,
        name: "log segments",
        about: SLOTS,
        figure: 'e',
        kib: [32, SLOT_BYTES as u64 >> 10, 512],
        with: |design, workload, bytes| design.sized(workload, MAIN_BYTES, bytes as u32),
    },
    Sweep {
        row: WRITE_CACHE,
        name: "write cache",
        about: BUFFER,
        figure: 'f',
        kib: [64, CACHE_BYTES >> 10, 1 << 10],
        with: |design, _, bytes| design.with(|keyspace| keyspace.write_buffer_bytes = bytes),
    },
];

pub(super) fn segments_and_cache(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = workload(context);
    for sweep in &SWEEPS {
        let mut seen: [Vec<Phase>; 2] = [Vec::new(), Vec::new()];
        for (phases, reserve) in seen.iter_mut().zip([200, 500]) {
            let of = |kib: u64| {
                let design = Design::paper(&workload).with_reserve(reserve);
                (sweep.with)(design, &workload, kib << 10)
            };
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
    let change = |phases: &[Phase]| {
        let [first, .., last] = phases else { return 0.0 };
        percent_more(first.amplification(), last.amplification())
    };
    let (at_20, at_50) = (change(&seen[0]), change(&seen[1]));
    let Sweep { row, name, figure, kib: [least, .., most], .. } = sweep;
    let numbers = match row.rule {
        Falls => seen[0].iter().map(Phase::amplification).collect(),
        _ => vec![1.0 + at_20 / 100.0],
    };
    report.judge(
        row.clone().of(&[least, most]),
        format!(
            "20%: {} = {at_20:+.1}%; 50%: {} = {at_50:+.1}%",
            list(seen[0].iter().map(Phase::amplification), 2),
            list(seen[1].iter().map(Phase::amplification), 2)
        ),
        &numbers,
    );
    let lines = seen.iter().zip(["20% reserve", "50% reserve"]).map(|(phases, name)| {
        let bytes = phases.iter().map(Phase::amplification);
        line(name, sweep.kib.iter().map(|kib| (*kib << 10) as f64).zip(bytes))
    });
    let (figure, title) = (format!("figure-12{figure}"), format!("Bytes of updates: {name}"));
    report.draw_lines(&figure, &title, Axis::bytes(*name), BYTES, lines.collect());
}
