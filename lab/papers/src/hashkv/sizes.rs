//! Experiments 4 and 7: pairs of several sizes, and pairs of two sizes in one store. In addition to
//! the paper's figures: from which size on it is better to separate values.

use runstone_kv::Result;

use super::bench::{Bench, Phase, named, times, with_log};
use super::designs::{Design, GROUPS, PROCESSOR, SEPARATED, Workload};
use crate::numbers::{list, percent_more};
use crate::report::{bars_beside, line_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};
use runstone_plot::Axis;

const DATA_BYTES: u64 = 64 << 20;
const SIZES: [&str; 5] = ["256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB"];
pub(super) const PAIR_BYTES: [usize; 5] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

rows! {
    PAIRS_LEVELED = "4: updates of 4 KiB, HashKV over leveled (figure 8a)",
        "15.5; below 1 at 256 B" => Beside(PROCESSOR);
    PAIRS_VLOG = "4: updates of 256 B, 1, 4 KiB, HashKV over vLog (figure 8a)",
        "2.2 to 5.1; 0.89 at 64 KiB" => Beside(PROCESSOR);
    PAIRS_BYTES = "4: bytes of updates, HashKV over leveled: 256 B to 64 KiB (figure 8b)",
        "0.568 to 0.212, leveled rises, HashKV falls"
        => Ratios(&[0.568, 0.212]);
    PAIRS_BYTES_VLOG = "4: bytes of updates, HashKV over vLog: 256 B to 64 KiB (figure 8b)",
        "0.294 to 0.965, and the gap narrows" => Ratios(&[0.294, 0.965]);
    CACHED_SCANS =
        "5: scans of 100 values that are cached, HashKV over leveled: 256 B, 1, 4 KiB",
        "" => Beside("not in the paper, which scans from flash");
    CROSSOVER = "{}: 256 B, 1, 4, 16, 64 KiB",
        "" => Beside("for the choice of separate_at");
    SELECTIVE = "7: updates in processor time, selective over all apart, large pairs of {} B",
        "{}" => Beside(PROCESSOR);
    SELECTIVE_BYTES = "7: bytes of updates, selective over all apart, large pairs of {} B \
        (figure 11)",
        "{}" => Ratios(&[0.859, 0.604]);
}

/// The results of one design with one size.
struct Cell {
    update: Phase,
    get_us: f64,
    /// Scans of 100 entries.
    scan_us: f64,
}

impl Cell {
    /// Keeps the faster of two runs: their bytes are equal, but their times are not on a busy
    /// machine.
    fn improve(&mut self, again: Cell) {
        if again.update.took < self.update.took {
            self.update = again.update;
        }
        self.get_us = self.get_us.min(again.get_us);
        self.scan_us = self.scan_us.min(again.scan_us);
    }
}

pub(super) fn pairs(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut rows: Vec<[Cell; 3]> = Vec::new();
    for pair_bytes in PAIR_BYTES {
        let records = context.scaled(DATA_BYTES / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        let designs = [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)];
        let names = ["leveled", "vLog", "HashKV"];
        let sides: Vec<_> = names.iter().zip(&designs).map(|(name, one)| one.side(name)).collect();
        report.compare(&sides, &[])?;
        context.say(&format!("experiment 4: pairs of {pair_bytes} bytes"));
        let mut cells = measure(&designs, &workload)?;
        for (cell, again) in cells.iter_mut().zip(measure(&designs, &workload)?) {
            cell.improve(again);
        }
        rows.push(cells);
    }
    judge_pairs(report, &rows);
    judge_scans(report, &rows);
    show_crossover(report, &rows);
    draw_pairs(report, &rows);
    Ok(())
}

fn measure(designs: &[Design; 3], workload: &Workload) -> Result<[Cell; 3]> {
    let [inline, vlog, hashkv] = designs;
    Ok([cell(inline, workload)?, cell(vlog, workload)?, cell(hashkv, workload)?])
}

fn cell(design: &Design, workload: &Workload) -> Result<Cell> {
    let mut bench = Bench::in_memory(design, workload)?;
    let update = bench.through(2)?;
    // The first gets fill the cache.
    bench.gets((workload.records / 4).max(1))?;
    let gets = bench.gets((workload.records / 2).max(1))?;
    let scans = bench.scans((workload.records / 100).max(1), 100)?;
    Ok(Cell { update, get_us: gets.us(), scan_us: scans.us() })
}

fn judge_pairs(report: &mut PaperReport, rows: &[[Cell; 3]]) {
    let ratios = |other: usize| -> Vec<f64> {
        let speed = |cell: &Cell| cell.update.per_second();
        rows.iter().map(|row| speed(&row[2]) / speed(&row[other])).collect()
    };
    let (inline, vlog) = (ratios(0), ratios(1));
    let sizes = "of 256 B, 1, 4, 16, 64 KiB";
    report.show(PAIRS_LEVELED, format!("{} {sizes}", list(&inline, 2)));
    report.show(PAIRS_VLOG, format!("{} {sizes}", list(&vlog, 2)));
    for (row, other) in [(PAIRS_BYTES, 0), (PAIRS_BYTES_VLOG, 1)] {
        for (row, bytes) in [
            (with_log(&row), Phase::logged_amplification as fn(&Phase) -> f64),
            (row, Phase::amplification),
        ] {
            let of_all =
                rows.iter().map(|row| times(bytes(&row[2].update), bytes(&row[other].update)));
            let of_all: Vec<f64> = of_all.collect();
            let text = match row.is_claim {
                true => list(&of_all, 2),
                false => named(&SIZES, &of_all),
            };
            report.judge(row, text, &[of_all[0], of_all[4]]);
        }
    }
}

/// Judges warm scans; cold scans of files have a row of their own.
fn judge_scans(report: &mut PaperReport, rows: &[[Cell; 3]]) {
    let ratios = rows.iter().map(|row| row[0].scan_us / row[2].scan_us);
    report.show(CACHED_SCANS, named(&SIZES[..3], &ratios.collect::<Vec<_>>()));
}

fn show_crossover(report: &mut PaperReport, rows: &[[Cell; 3]]) {
    let mut show = |what: &str, value: fn(&Cell) -> f64, digits: usize| {
        let column = |design: usize| list(rows.iter().map(|row| value(&row[design])), digits);
        let here = format!("inline {}; vLog {}; HashKV {}", column(0), column(1), column(2));
        report.show(CROSSOVER.of(&[&what]), here);
    };
    show("bytes written per byte updated", |cell| cell.update.logged_amplification(), 2);
    show("us per update", |cell| cell.update.us(), 1);
    show("us per get", |cell| cell.get_us, 1);
    show("us per scan of 100 entries", |cell| cell.scan_us, 0);
}

fn draw_pairs(report: &mut PaperReport, rows: &[[Cell; 3]]) {
    let points = |other: usize| {
        let bytes = |cell: &Cell| cell.update.amplification();
        let ratio = move |row: &[Cell; 3]| bytes(&row[2]) / bytes(&row[other]);
        PAIR_BYTES.into_iter().map(|bytes| bytes as f64).zip(rows.iter().map(ratio))
    };
    let ends = |small: f64, large: f64| [(256.0, small), (65536.0, large)];
    let lines = vec![
        line_beside("over leveled", points(0), ends(0.568, 0.212)),
        line_beside("over vLog", points(1), ends(0.294, 0.965)),
    ];
    let x = Axis::bytes("pair");
    report.draw_lines("figure-8b", "Bytes of updates, HashKV", x, "times the rival's", lines);
}

/// Small pairs of 40 bytes with large ones, in these shares.
pub(super) const SHARES: [(&str, usize, usize); 3] = [("1:2", 1, 2), ("1:1", 1, 1), ("2:1", 2, 1)];
pub(super) const SMALL_BYTES: usize = 40;
pub(super) const SEPARATE_AT: u32 = 128;

pub(super) fn selective(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut series = Vec::new();
    for (large_bytes, paper, paper_bytes, shares) in [
        (1 << 10, "1.23 to 2.18", "0.604 to 0.859", &[0.859, 0.604]),
        (4 << 10, "1.19 to 1.52", "0.893 to 0.959", &[0.959, 0.893]),
    ] {
        let (mut speeds, mut bytes, mut logged) = (Vec::new(), Vec::new(), Vec::new());
        for (name, small, large) in SHARES {
            context.say(&format!("experiment 7: small to large {name}, {large_bytes} bytes"));
            let sizes = [vec![SMALL_BYTES; small], vec![large_bytes; large]].concat();
            let pair = sizes.iter().sum::<usize>() / sizes.len();
            let workload = Workload::of_mix(context.scaled(DATA_BYTES / 2 / pair as u64), &sizes);
            // 20% is the reserve with which the paper measures features.
            let design = Design::paper(&workload).with_reserve(200);
            let selective = design.clone().separating_at(&workload, SEPARATE_AT);
            let sides = [design.side("all apart"), selective.side("selective")];
            report.compare(&sides, &[SEPARATED, GROUPS])?;
            let [apart, selected] = in_turns([&design, &selective], &workload)?;
            speeds.push(percent_more(apart.per_second(), selected.per_second()));
            bytes.push(times(selected.amplification(), apart.amplification()));
            logged.push(selected.logged_amplification() / apart.logged_amplification());
        }
        report.show(
            SELECTIVE.of(&[&large_bytes, &paper]),
            format!("gains in % at 1:2, 1:1 and 2:1: {} each", list(&speeds, 1)),
        );
        let row = SELECTIVE_BYTES.of(&[&large_bytes, &paper_bytes]).by(Ratios(shares));
        let shares_of = SHARES.map(|(name, ..)| name);
        report.judge(with_log(&row), named(&shares_of, &logged), &[logged[0], logged[2]]);
        report.judge(row, list(&bytes, 3), &[bytes[0], bytes[2]]);
        let name = format!("large pairs of {large_bytes}");
        series.push(bars_beside(&name, bytes, [shares[0], f64::NAN, shares[1]]));
    }
    report.draw_bars(
        "figure-11",
        ["Bytes of updates, selective", "small to large pairs", "times those of all apart"],
        SHARES.map(|(name, ..)| name),
        series,
    );
    Ok(())
}

/// The faster of two runs of each design, which alternate.
fn in_turns(designs: [&Design; 2], workload: &Workload) -> Result<[Phase; 2]> {
    let run = |design: &Design| Bench::in_memory(design, workload)?.through(2);
    let mut best = [run(designs[0])?, run(designs[1])?];
    for (best, design) in best.iter_mut().zip(designs) {
        let again = run(design)?;
        if again.took < best.took {
            *best = again;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;

    /// Half of one record is no record: once, the time of a get was divided by zero, and shown
    /// as infinite.
    #[test]
    fn numbers_are_finite_at_the_least_scale() {
        let context = Context::new(Scale::Factor(0.001), &|_| {}).expect("a directory");
        let mut report = PaperReport::new("hashkv", 0.001);
        pairs(&context, &mut report).expect("memory");
        for row in report.rows.iter().chain(&report.beside) {
            assert!(!row.here.contains("inf") && !row.here.contains("NaN"), "{row:?}");
        }
    }
}
