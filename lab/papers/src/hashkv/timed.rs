//! The throughputs of experiments 2, 4 to 7 and 9 on an emulated block SSD that maps 4 KiB, in
//! simulated time, without filters and with 1 MiB of memory, as the paper's LevelDB ran. Updates
//! are those of P2, on a quarter of the first experiment's data; scans run on all of that data.

use runstone_kv::Result;
use runstone_plot::Axis;

use super::bench::{Bench, Phase, named};
use super::designs::{COLD, Design, GROUPS, RECORDS, SEPARATED, Workload};
use super::device::{self, SIX_SSDS, SMALL_PAGE_BYTES, SSD, Width};
use super::files;
use super::parameters::{
    COLD_LINE, HOTNESS_RESERVES, LESS_SKEW, LESS_THETA, RESERVES, SPACES, SWEEP_RESERVES, SWEEPS,
    draw_hotness, draw_reserves, written_back,
};
use super::sizes::{PAIR_BYTES, SEPARATE_AT, SHARES, SMALL_BYTES};
use crate::engine::do_jobs;
use crate::numbers::{list, ratio};
use crate::report::{bars_beside, line_beside, rows};
use crate::verdict::Rule::{self, *};
use crate::{Context, PaperReport};

const DATA_BYTES: u64 = RECORDS * 1024 / 4;
const SCANS_OF_EACH: u64 = 32;

rows! {
    RESERVES_VLOG = "2: updates on flash, HashKV over vLog, reserve 10 to 90% (figure 6a)",
        "3.1 to 4.7" => Ratios(&[3.1; 5]);
    PAIRS_LEVELED = "4: updates of 4 KiB on flash, HashKV over leveled (figure 8a)",
        "15.5" => Ratios(&[15.5]);
    PAIRS_LEVELED_SMALL = "4: the same for 256 B (figure 8a)",
        "below 1" => Falls;
    PAIRS_LEVELED_ALL = "4: the same for 1, 16, 64 KiB (figure 8a)",
        "" => Beside("the text has no numbers for these");
    PAIRS_VLOG = "4: updates of 256 B, 1, 4 KiB on flash, HashKV over vLog (figure 8a)",
        "2.2 to 5.1" => Ratios(&[2.2, 2.2, 2.2]);
    PAIRS_VLOG_LARGE = "4: the same for 64 KiB (figure 8a)",
        "0.893, -10.7%" => Ratios(&[0.893]);
    SCANS = "5: scans of 1 MiB of six SSDs, HashKV over leveled: 256 B, 1, 4 KiB (figure 9)",
        "0.30, 0.637, 1.942" => Ratios(&[0.30, 0.637, 1.942]);
    SCANS_VLOG = "5: the same over vLog (figure 9)",
        "similar" => Alike(0.1);
    SCANS_OF = "5: scans of {}, HashKV over leveled, vLog",
        "" => Beside("what requests side by side change");
    COLD_STREAM = "6: updates on flash, a cold stream and 80% more space over \
        none, reserve 20% (figure 10)",
        "2.213, +121.3%" => Ratios(&[2.213]);
    SPACE_ALONE = "6: updates on flash, 100% reserved over 20%, no cold stream",
        "" => Beside("what the same space brings without a cold stream");
    COLD_SPEED = "6: updates on flash at equal space, 20, 50, 100% reserved in all",
        "2.213, +121.3%" => Ratios(&[2.213; 3]);
    COLD_WRITTEN_BACK = "6: updates on flash, cold stream written back; space alone",
        "2.213, +121.3%" => Ratios(&[2.213]);
    COLD_LESS_SKEW = "6: updates on flash of the cold stream at theta 0.9 (figure 10)",
        "2.131, +113.1%" => Ratios(&[2.131]);
    COLD_SPEED_LESS_SKEW = "6: the same at equal space at theta 0.9, 20, 50, 100% in all",
        "2.131, +113.1%" => Beside(LESS_SKEW);
    SELECTIVE = "7: updates on flash, selective over all apart, large pairs of {} B \
        (figure 11)",
        "{}" => Ratios(&[1.232, 2.18]);
    SWEEP = "9: updates on flash, {} from {} to {} KiB, reserve 20, 50% (figure 12{})",
        "{}" => Ratios(&[1.525, 1.283]);
}

/// Runs P2 of a design in the way in which the paper's LevelDB ran.
fn measure(context: &Context<'_>, design: &Design, workload: &Workload) -> Result<Phase> {
    let device = device::create(context, SMALL_PAGE_BYTES, SSD)?;
    Bench::on_device(design, workload, &device)?.through(2)
}

/// How many updates `one` makes for each update of `other` in the same simulated time.
fn faster(one: &Phase, other: &Phase) -> f64 {
    one.per_second() / other.per_second()
}

pub(super) fn reserve(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let designs =
        [Design::paper(&workload), Design::paper_vlog(&workload)].map(Design::without_filters);
    let [hashkv, vlog] = &designs;
    report.compare(&[hashkv.side("HashKV"), vlog.side("vLog")], &[])?;
    let mut ratios = vec![];
    for permille in RESERVES {
        context.say(&format!("experiment 2 on flash: reserve {}%", permille / 10));
        let run =
            |design: &Design| measure(context, &design.clone().with_reserve(permille), &workload);
        let [hashkv, vlog] = [run(hashkv)?, run(vlog)?];
        ratios.push(faster(&hashkv, &vlog));
    }
    report.judge(RESERVES_VLOG, list(&ratios, 2), &ratios);
    let titles = ("figure-6a", "Updates on a block SSD, HashKV");
    draw_reserves(report, titles, ratios, [3.1, 4.7]);
    Ok(())
}

pub(super) fn pairs(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let (mut leveled, mut vlogs) = (Vec::new(), Vec::new());
    let names = ["leveled", "vLog", "HashKV"];
    for pair_bytes in PAIR_BYTES {
        context.say(&format!("experiment 4 on flash: pairs of {pair_bytes} bytes"));
        let records = context.scaled(DATA_BYTES / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        let designs = [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)]
            .map(Design::without_filters);
        let sides: Vec<_> = names.iter().zip(&designs).map(|(name, one)| one.side(name)).collect();
        report.compare(&sides, &[])?;
        let run = |design: &Design| measure(context, design, &workload);
        let [inline, vlog, hashkv] = &designs;
        let hashkv = run(hashkv)?;
        leveled.push(faster(&hashkv, &run(inline)?));
        vlogs.push(faster(&hashkv, &run(vlog)?));
    }
    report.judge(PAIRS_LEVELED, list(&leveled[2..3], 2), &leveled[2..3]);
    report.judge(PAIRS_LEVELED_SMALL, list(&leveled[..1], 2), &[1.0, leveled[0]]);
    report.show(PAIRS_LEVELED_ALL, list([leveled[1], leveled[3], leveled[4]], 2));
    report.judge(PAIRS_VLOG, list(&vlogs[..3], 2), &vlogs[..3]);
    report.judge(
        PAIRS_VLOG_LARGE,
        format!("{:.2}; of 16 KiB {:.2}", vlogs[4], vlogs[3]),
        &vlogs[4..],
    );
    let points = |ratios: Vec<f64>| PAIR_BYTES.into_iter().map(|bytes| bytes as f64).zip(ratios);
    let at = |kib: f64, ratio: f64| (kib * 1024.0, ratio);
    let range = [2.2, 5.1].into_iter().flat_map(|ratio| [0.25, 1.0, 4.0].map(|kib| at(kib, ratio)));
    let lines = vec![
        line_beside("over leveled", points(leveled), [at(4.0, 15.5)]),
        line_beside("over vLog", points(vlogs), range.chain([at(64.0, 0.893)])),
    ];
    let (title, x) = ("Updates on a block SSD, HashKV", Axis::bytes("pair"));
    report.draw_lines("figure-8a", title, x, "times the rival's", lines);
    Ok(())
}

/// Measures scans of loaded data with very little memory, on devices that do more and more in
/// parallel.
pub(super) fn scans(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (name, width) in [
        ("six SSDs, one request at a time", SIX_SSDS.with_requests(1)),
        ("one SSD, 32 requests", SSD),
    ] {
        let [leveled, vlogs] = scans_on(context, report, (name, width))?;
        report.show(SCANS_OF.of(&[&name]), format!("{}; {}", list(leveled, 2), list(vlogs, 2)));
    }
    let [leveled, vlogs] = scans_on(context, report, ("six SSDs", SIX_SSDS))?;
    report.judge(SCANS, list(&leveled, 2), &leveled);
    let apart: Vec<f64> = vlogs.iter().map(|ratio| ratio.max(ratio.recip())).collect();
    report.judge(SCANS_VLOG, list(&vlogs, 2), &[&[1.0], &apart[..]].concat());
    let titles = ["Scans of 1 MiB of six block SSDs, HashKV", "pair", "times the rival's"];
    let bars = vec![
        bars_beside("over leveled", leveled, [0.30, 0.637, 1.942]),
        bars_beside("over vLog", vlogs, []),
    ];
    report.draw_bars("figure-9", titles, files::PAIR_BYTES.map(|bytes| format!("{bytes} B")), bars);
    Ok(())
}

/// How many times as fast HashKV scans as leveled and vLog, for each size of pairs.
fn scans_on(
    context: &Context<'_>,
    report: &mut PaperReport,
    (name, width): (&str, Width),
) -> Result<[Vec<f64>; 2]> {
    let mut ratios = [Vec::new(), Vec::new()];
    for pair_bytes in files::PAIR_BYTES {
        context.say(&format!("experiment 5 on flash: pairs of {pair_bytes} bytes, {name}"));
        let records = context.scaled(RECORDS * 1024 / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        let designs = [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)]
            .map(Design::without_filters);
        let sides = ["leveled", "vLog", "HashKV"].into_iter().zip(&designs);
        report.compare(&sides.map(|(name, one)| one.side(name)).collect::<Vec<_>>(), &[])?;
        let scan = |design: &Design| -> Result<f64> {
            let device = device::create(context, SMALL_PAGE_BYTES, width)?;
            let mut bench = Bench::on_device(design, &workload, &device)?;
            bench.load()?;
            bench.store.flush()?;
            do_jobs(&bench.store)?;
            bench.phase()?;
            let entries = files::SCAN_BYTES / pair_bytes as u64;
            Ok(bench.scans(SCANS_OF_EACH, entries)?.mib_per_second())
        };
        let [leveled, vlog, hashkv] = designs.each_ref().map(scan);
        let hashkv = hashkv?;
        for (ratios, other) in ratios.iter_mut().zip([leveled?, vlog?]) {
            ratios.push(hashkv / other);
        }
    }
    Ok(ratios)
}

/// Measures the throughputs of experiment 9.
pub(super) fn parameters(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let papers: [(&str, Rule); 3] = [
        ("+52.5%, +28.3%", Ratios(&[1.525, 1.283])),
        ("-16.1%, almost unchanged", Ratios(&[0.839])),
        ("+29.1% at 20%", Ratios(&[1.291])),
    ];
    for ((sweep, (paper, rule)), letter) in SWEEPS.iter().zip(papers).zip(["a", "b", "c"]) {
        let mut seen = [Vec::new(), Vec::new()];
        for (speeds, reserve) in seen.iter_mut().zip(SWEEP_RESERVES) {
            // The largest write cache needs more memory than the other experiments have.
            let of = |kib: u64| Design {
                memory_bytes: 4 << 20,
                ..sweep.design(&workload, reserve, kib).without_filters()
            };
            let side = |kib: u64| of(kib).side(&format!("{} of {kib} KiB", sweep.name));
            report.compare(&sweep.kib.map(side), &[sweep.about])?;
            context.say(&format!("experiment 9 on flash: {}, {}%", sweep.name, reserve / 10));
            for kib in sweep.kib {
                speeds.push(measure(context, &of(kib), &workload)?.per_second());
            }
        }
        let change = |speeds: &Vec<f64>| speeds[2] / speeds[0];
        let changes = seen.each_ref().map(change);
        let judged = if letter == "a" { &changes[..] } else { &changes[..1] };
        let row = SWEEP.of(&[&sweep.name, &sweep.kib[0], &sweep.kib[2], &letter, &paper]).by(rule);
        report.judge(row, list(changes, 2), judged);
        sweep.draw(report, ('a', "Updates on a block SSD"), seen, sweep.speed);
    }
    Ok(())
}

pub(super) fn hotness(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let speeds = in_spaces(context, report, &workload)?;
    let [[first, _], .., [widest, last]] = speeds;
    let over = |one: f64, other: f64| ratio(one / 1e3, other / 1e3, 2, "");
    let (text, gain) = over(last, first);
    report.judge(COLD_STREAM, text, &[gain]);
    report.show(SPACE_ALONE, format!("{:.2}", widest / first));
    let equal = speeds.map(|[plain, cold]| cold / plain);
    report.judge(COLD_SPEED.uncounted(), list(equal, 2), &equal);
    let gains = [(COLD_LINE, speeds.map(|[_, cold]| cold / first).to_vec())];
    draw_hotness(report, ("figure-10-device", "Updates on a block SSD"), gains, 2.213);
    let written_back = written_back(context, report, &workload, |design| {
        Ok(measure(context, &design.clone().without_filters(), &workload)?.per_second())
    })?;
    let gains = [written_back[2] / written_back[0], written_back[1] / written_back[0]];
    report.judge(COLD_WRITTEN_BACK.uncounted(), list(gains, 2), &gains[..1]);
    let speeds = in_spaces(context, report, &workload.with_theta(LESS_THETA))?;
    let [[first, _], .., [_, last]] = speeds;
    let (text, gain) = over(last, first);
    report.judge(COLD_LESS_SKEW.uncounted(), text, &[gain]);
    let equal = speeds.map(|[plain, cold]| cold / plain);
    report.show(COLD_SPEED_LESS_SKEW, named(&SPACES, &equal));
    Ok(())
}

/// Updates per second without and with a cold stream, at each total reserve.
fn in_spaces(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
) -> Result<[[f64; 2]; 3]> {
    let mut speeds = [[0.0; 2]; 3];
    for (speeds, permille) in speeds.iter_mut().zip(HOTNESS_RESERVES) {
        let (theta, percent) = (workload.theta, permille / 10);
        context.say(&format!("experiment 6 on flash: theta {theta}, {percent}% reserved in all"));
        let plain = Design::hashkv(workload).with_reserve(permille).without_filters();
        let cold = plain.clone().with(|keyspace| keyspace.values.cold_stream = true);
        report.compare(&[plain.side("without"), cold.side("with")], &[COLD])?;
        for (speed, design) in speeds.iter_mut().zip([&plain, &cold]) {
            *speed = measure(context, design, workload)?.per_second();
        }
    }
    Ok(speeds)
}

pub(super) fn selective(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut series = Vec::new();
    for (large_bytes, paper, ends) in
        [(1 << 10, "1.23 to 2.18", &[1.232, 2.18]), (4 << 10, "1.19 to 1.52", &[1.192, 1.521])]
    {
        let mut gains = Vec::new();
        for (name, small, large) in SHARES {
            context.say(&format!("experiment 7 on flash: {name}, {large_bytes} bytes"));
            let sizes = [vec![SMALL_BYTES; small], vec![large_bytes; large]].concat();
            let pair = sizes.iter().sum::<usize>() / sizes.len();
            let workload = Workload::of_mix(context.scaled(DATA_BYTES / 2 / pair as u64), &sizes);
            let apart = Design::paper(&workload).with_reserve(200).without_filters();
            let selective = apart.clone().separating_at(&workload, SEPARATE_AT);
            let sides = [apart.side("all apart"), selective.side("selective")];
            report.compare(&sides, &[SEPARATED, GROUPS])?;
            let apart = measure(context, &apart, &workload)?;
            gains.push(faster(&measure(context, &selective, &workload)?, &apart));
        }
        let row = SELECTIVE.of(&[&large_bytes, &paper]).by(Ratios(ends));
        report.judge(row, list(&gains, 2), &[gains[0], gains[2]]);
        let name = format!("large pairs of {large_bytes}");
        series.push(bars_beside(&name, gains, [ends[0], f64::NAN, ends[1]]));
    }
    let titles = ["Updates on a block SSD, selective", "small to large pairs", "times all apart"];
    report.draw_bars("figure-11-device", titles, SHARES.map(|(name, ..)| name), series);
    Ok(())
}
