//! The throughputs of experiments 2, 4, 6 and 7 on an emulated block SSD that maps 4 KiB, in
//! simulated time, without filters and with 1 MiB of memory, as the paper's LevelDB ran. A quarter
//! of the first experiment's data, and P2.

use runstone::Result;
use runstone_plot::Axis;

use super::bench::{Bench, Phase};
use super::designs::{COLD, Design, GROUPS, RECORDS, SEPARATED, Workload};
use super::device::{self, SMALL_PAGE_BYTES};
use super::parameters::{HOTNESS_RESERVES, RESERVES, percents};
use super::sizes::{PAIR_BYTES, SEPARATE_AT, SHARES, SMALL_BYTES};
use crate::numbers::{list, ratio};
use crate::report::{line, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

const DATA_BYTES: u64 = RECORDS * 1024 / 4;

rows! {
    RESERVES_VLOG = "2: updates on a block SSD, HashKV over vLog, reserve 10 to 90% (figure 6a)",
        "3.1 to 4.7" => Ratios(&[3.1; 5]);
    PAIRS_LEVELED = "4: updates of 4 KiB on a block SSD, HashKV over leveled (figure 8a)",
        "15.5" => Ratios(&[15.5]);
    PAIRS_LEVELED_ALL = "4: the same for 256 B, 1, 4, 16, 64 KiB (figure 8a)",
        "below 1 at 256 B" => NotComparable("the figure prints no numbers for the others");
    PAIRS_VLOG = "4: updates of 256 B, 1, 4 KiB on a block SSD, HashKV over vLog (figure 8a)",
        "2.2 to 5.1" => Ratios(&[2.2, 2.2, 2.2]);
    PAIRS_VLOG_LARGE = "4: the same for 16, 64 KiB (figure 8a)",
        "0.89 at 64 KiB" => NotComparable("the text has 64 KiB only, where both designs converge");
    COLD_SPEED = "6: updates on a block SSD, with a cold stream over without, {} (figure 10)",
        "2.13, +113%" => Ratios(&[2.13]);
    SELECTIVE = "7: updates on a block SSD, selective over all apart, 1:2, 2:1, large {} (fig. 11)",
        "{}" => Ratios(&[1.232, 2.18]);
}

/// P2 of a design, as the paper's LevelDB ran.
fn measure(context: &Context<'_>, design: &Design, workload: &Workload) -> Result<Phase> {
    let device = device::create(device::geometry(context, SMALL_PAGE_BYTES))?;
    Bench::on_device(design, workload, &device)?.through(2)
}

/// How many updates of `one` there are for each of `other` in the same simulated time.
fn faster(one: &Phase, other: &Phase) -> f64 {
    one.per_second() / other.per_second()
}

pub(super) fn reserve(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let designs =
        [Design::paper(&workload), Design::paper_vlog(&workload)].map(Design::without_filters);
    let [hashkv, vlog] = &designs;
    report.compare(&[hashkv.side("HashKV"), vlog.side("vLog")], &[])?;
    let (mut speeds, mut ratios) = ([vec![], vec![]], vec![]);
    for permille in RESERVES {
        context.say(&format!("experiment 2 on flash: reserve {}%", permille / 10));
        let run =
            |design: &Design| measure(context, &design.clone().with_reserve(permille), &workload);
        let [hashkv, vlog] = [run(hashkv)?, run(vlog)?];
        ratios.push(faster(&hashkv, &vlog));
        speeds[0].push(hashkv.per_second() / 1e3);
        speeds[1].push(vlog.per_second() / 1e3);
    }
    report.judge(RESERVES_VLOG, list(&ratios, 2), &ratios);
    let lines = ["HashKV", "vLog"].into_iter().zip(speeds);
    let lines = lines.map(|(name, speeds)| line(name, percents(&RESERVES).zip(speeds))).collect();
    let (x, y) = (Axis::linear("reserve, %"), "1000 per simulated second");
    report.draw_lines("figure-6a-device", "Updates on a block SSD", x, y, lines);
    Ok(())
}

pub(super) fn pairs(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let (mut leveled, mut vlogs) = (Vec::new(), Vec::new());
    let mut speeds = [vec![], vec![], vec![]];
    let names = ["leveled", "vLog", "HashKV"];
    for pair_bytes in PAIR_BYTES {
        context.say(&format!("experiment 4 on flash: pairs of {pair_bytes} bytes"));
        let records = context.scaled(DATA_BYTES / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        let designs = [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)]
            .map(Design::without_filters);
        let sides: Vec<_> = names.iter().zip(&designs).map(|(name, one)| one.side(name)).collect();
        report.compare(&sides, &[])?;
        let mut phases = Vec::new();
        for (design, speeds) in designs.iter().zip(&mut speeds) {
            let phase = measure(context, design, &workload)?;
            speeds.push(phase.mib_per_second());
            phases.push(phase);
        }
        leveled.push(faster(&phases[2], &phases[0]));
        vlogs.push(faster(&phases[2], &phases[1]));
    }
    report.judge(PAIRS_LEVELED, list(&leveled[2..3], 2), &leveled[2..3]);
    report.show(PAIRS_LEVELED_ALL, list(&leveled, 2));
    report.judge(PAIRS_VLOG, list(&vlogs[..3], 2), &vlogs[..3]);
    report.show(PAIRS_VLOG_LARGE, list(&vlogs[3..], 2));
    let bytes = || PAIR_BYTES.map(|bytes| bytes as f64).into_iter();
    let lines = names.into_iter().zip(speeds).map(|(name, speeds)| line(name, bytes().zip(speeds)));
    let y = "MiB per simulated second";
    let x = Axis::bytes("pair");
    report.draw_lines("figure-8a-device", "Updates on a block SSD", x, y, lines.collect());
    Ok(())
}

pub(super) fn hotness(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    for permille in HOTNESS_RESERVES {
        let space = format!("{}% reserved in all", permille / 10);
        context.say(&format!("experiment 6 on flash: {space}"));
        let plain = Design::hashkv(&workload).with_reserve(permille).without_filters();
        let cold = plain.clone().with(|keyspace| keyspace.values.cold_stream = true);
        report.compare(&[plain.side("without"), cold.side("with")], &[COLD])?;
        let [plain, cold] = [&plain, &cold].map(|design| measure(context, design, &workload));
        let (plain, cold) = (plain?, cold?);
        let (text, gain) = ratio(cold.per_second() / 1e3, plain.per_second() / 1e3, 2, "");
        report.judge(COLD_SPEED.of(&[&space]), text, &[gain]);
    }
    Ok(())
}

pub(super) fn selective(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (large_bytes, paper, rule) in [
        (1 << 10, "1.23 to 2.18", Ratios(&[1.232, 2.18])),
        (4 << 10, "1.19 to 1.52", Ratios(&[1.192, 1.521])),
    ] {
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
        let row = SELECTIVE.of(&[&large_bytes, &paper]).by(rule);
        report.judge(row, list(&gains, 2), &[gains[0], gains[2]]);
    }
    Ok(())
}
