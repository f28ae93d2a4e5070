//! Experiments 1 and 8: load and updates, and how much of their cost crash consistency accounts
//! for.

use runstone_kv::Result;

use super::bench::{ALL, Bench, FileBytes, Phase, UNLOGGED, named};
use super::designs::{Design, MAIN_BYTES, POINTER_TABLES, PROCESSOR, RECORDS, Workload};
use crate::numbers::{list, mib, ratio};
use crate::report::{Row, bars, bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    SPEEDS = "1: load and updates in processor time over leveled and vLog, {} (figure 5a)",
        "17.1, 0.92; 6.3 to 7.9, 3.7 to 4.6" => Beside(PROCESSOR);
    BYTES = "1: bytes over leveled, vLog, compactions take no time, {}",
        "0.285, 0.504" => Ratios(&[0.285, 0.504]);
    PARTS = "1: bytes of P3 with the log: leveled; vLog; HashKV, {}",
        "" => Beside("the paper does not count them apart");
    OURS = "1: updates, stable pointers over leveled and vLog, a trigger of 16 tables for all",
        "" => Beside("beyond the paper: collections that write no pointers");
    POINTERS = "1: pointers written back by collections over stable ones (section 3.3)",
        "" => Beside("beyond the paper: the price of its scheme");
    VALUE_BYTES = "1: value bytes of updates over vLog, stable pointers",
        "" => Beside("the paper does not count them apart");
    PEAK_VALUES = "1: peak of the value file, stable pointers",
        "" => Beside("not in the paper; bound: (1 + r) data and one group with its reserve");
    SIZES = "1: MiB at the end: leveled, vLog, HashKV, {} (figure 5c)",
        "very similar" => Alike(0.1);
    TABLE = "8: bytes of all phases with the log: leveled, vLog, HashKV, {} (table 1)",
        "9.97, 5.64, 2.84" => Beside("table 1 with the percentages of figure 5b: a check");
    MANIFEST = "8: bytes with crash consistency over without (table 1)",
        "1.042" => NotComparable("journals of writes and collections: none here");
    SYNCS = "8: throughput with crash consistency (table 1)",
        "-6.5%" => NotComparable("none of the syncs can be left out");
}

/// One design through P0 to P3.
struct Run {
    name: &'static str,
    load: Phase,
    updates: [Phase; 3],
    peak: FileBytes,
    end: FileBytes,
}

impl Run {
    fn measure(name: &'static str, design: &Design, workload: &Workload) -> Result<Run> {
        let mut bench = Bench::in_memory(design, workload)?;
        let load = bench.load()?;
        let updates = [bench.update()?, bench.update()?, bench.update()?];
        let [peak, end] = bench.files();
        Ok(Run { name, load, updates, peak, end })
    }

    fn last(&self) -> &Phase {
        &self.updates[2]
    }

    fn phases(&self) -> impl Iterator<Item = &Phase> {
        std::iter::once(&self.load).chain(&self.updates)
    }

    /// MiB that load and updates wrote to some files.
    fn written_mib(&self, files: &[&str]) -> f64 {
        mib(self.phases().map(|phase| phase.written(files)).sum())
    }

    /// Bytes that all phases wrote to some files, per byte of the user.
    fn written_part(&self, categories: &[&str]) -> f64 {
        let user: u64 = self.phases().map(|phase| phase.user_bytes).sum();
        self.phases().map(|phase| phase.written(categories)).sum::<u64>() as f64 / user as f64
    }

    /// Bytes that the last updates wrote, per byte of the user, as text.
    fn bytes(&self) -> String {
        self.last().bytes_text()
    }

    /// How much faster the last updates were than those of another design, as text and as a number.
    fn against(&self, other: &Run) -> (String, f64) {
        ratio(self.last().per_second(), other.last().per_second(), 0, " per second")
    }
}

/// The three designs of the paper, and their common settings.
struct Family {
    has: &'static str,
    leveled: Run,
    vlog: Run,
    hashkv: Run,
}

impl Family {
    /// Runs each design with the same memory, filters and triggers.
    fn measure(
        context: &Context<'_>,
        report: &mut PaperReport,
        workload: &Workload,
        (has, with): (&'static str, fn(Design) -> Design),
    ) -> Result<Family> {
        let designs = [
            ("leveled", with(Design::inline())),
            ("vLog", with(Design::paper_vlog(workload))),
            ("HashKV", with(Design::paper(workload))),
        ];
        let sides = designs.each_ref().map(|(name, design)| design.side(name));
        report.compare(&sides, &[])?;
        let run = |(name, design): &(&'static str, Design)| {
            context.say(&format!("experiment 1: {name}, {has}"));
            Run::measure(name, design, workload)
        };
        let [leveled, vlog, hashkv] = &designs;
        Ok(Family { has, leveled: run(leveled)?, vlog: run(vlog)?, hashkv: run(hashkv)? })
    }

    /// Judges only the sizes: bytes and speeds are judged with seek compaction.
    fn judge(&self, report: &mut PaperReport, sizes_row: Row) {
        let Family { has, leveled, vlog, hashkv } = self;
        let others = [leveled, vlog];
        let bytes = others.map(|run| hashkv.written_mib(UNLOGGED) / run.written_mib(UNLOGGED));
        report.judge(BYTES.of(&[has]).uncounted(), list(bytes, 2), &bytes);
        let faster = |of: fn(&Run) -> &Phase| {
            others.map(|other| of(hashkv).per_second() / of(other).per_second())
        };
        let ([load, load_vlog], [updates, updates_vlog]) =
            (faster(|run| &run.load), faster(Run::last));
        let text = format!(
            "load {load:.2} of leveled's, {load_vlog:.2} of vLog's; updates {updates:.2}, \
             {updates_vlog:.2}"
        );
        report.show(SPEEDS.of(&[has]), text);
        let runs = [leveled, vlog, hashkv];
        report.show(PARTS.of(&[has]), runs.map(Run::bytes).join("; "));
        let sizes = runs.map(|run| (run.end.values + run.end.tables) as f64 / f64::from(1 << 20));
        report.judge(sizes_row.of(&[has]), list(sizes, 1), &sizes);
        let table = runs.map(|run| run.written_part(ALL));
        report.show(TABLE.of(&[has]), named(&["leveled", "vLog", "HashKV"], &table));
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    let plain = ("without filters", Design::without_filters as fn(Design) -> Design);
    let family = Family::measure(context, report, &workload, plain)?;
    family.judge(report, SIZES);
    draw(report, &family);
    let filtered = ("filters of 10 bits", std::convert::identity as fn(Design) -> Design);
    let family = Family::measure(context, report, &workload, filtered)?;
    family.judge(report, SIZES.uncounted());
    show_crash_consistency(report, &family.leveled, &family.hashkv);
    show_ours(context, report, &workload)
}

/// Shows stable pointers, with the trigger that suits tables of pointers.
fn show_ours(context: &Context<'_>, report: &mut PaperReport, workload: &Workload) -> Result<()> {
    let designs = [
        ("leveled", Design::inline().compacting_at(POINTER_TABLES)),
        ("vLog", Design::vlog(workload)),
        ("stable", Design::hashkv(workload)),
        ("written back", Design::hashkv(workload).writing_back()),
    ];
    report.compare(&designs.each_ref().map(|(name, design)| design.side(name)), &[])?;
    let mut runs = Vec::new();
    for (name, design) in &designs {
        context.say(&format!("experiment 1: {name}, 16 tables"));
        runs.push(Run::measure(name, design, workload)?);
    }
    let [leveled, vlog, stable, back] = &runs[..] else { return Ok(()) };
    let against = |other: &Run| stable.against(other).0;
    report.show(OURS, format!("{}; {}", against(leveled), against(vlog)));
    let written = back.last().counters.value_pointers_written;
    report.show(
        POINTERS,
        format!(
            "{:.2} pointers per update; {}; bytes {} / {}; peak of the value file {:.1} / {:.1} \
             MiB",
            written as f64 / back.last().operations as f64,
            back.against(stable).0,
            back.bytes(),
            stable.bytes(),
            mib(back.peak.values),
            mib(stable.peak.values),
        ),
    );
    let [of_stable, of_vlog] = [stable, vlog].map(|run| run.last().value_amplification());
    report.show(VALUE_BYTES, ratio(of_stable, of_vlog, 2, "").0);
    let data = workload.data_bytes(1);
    let bound = data * 13 / 10 + MAIN_BYTES * 13 / 10;
    let [peak, data, bound] = [stable.peak.values, data, bound].map(mib);
    report.show(
        PEAK_VALUES,
        format!("{peak:.1} MiB of {data:.1} MiB data, with a bound of {bound:.1}"),
    );
    Ok(())
}

/// No part of crash consistency can be switched off here, so its parts are counted.
fn show_crash_consistency(report: &mut PaperReport, inline: &Run, hashkv: &Run) {
    let share = |run: &Run| {
        let [manifest, all] = [&["manifest"], ALL].map(|files| run.last().written(files));
        100.0 * manifest as f64 / (all - manifest) as f64
    };
    report.show(MANIFEST, format!("+{:.2}%; leveled +{:.2}%", share(hashkv), share(inline)));
    let syncs = |run: &Run| run.last().io(ALL, |io| io.syncs);
    report.show(SYNCS, format!("{} syncs; leveled {}", syncs(hashkv), syncs(inline)));
}

fn draw(report: &mut PaperReport, family: &Family) {
    let runs = [&family.leveled, &family.vlog, &family.hashkv];
    let names = || runs.map(|run| run.name);
    let size = |name, of: fn(&FileBytes) -> u64| bars(name, runs.map(|run| mib(of(&run.end))));
    let sizes = vec![size("values", |end| end.values), size("tables", |end| end.tables)];
    report.draw_bars("figure-5c", ["Files at the end", "design", "MiB"], names(), sizes);
    let pair = [&family.leveled, &family.vlog];
    let phase = |name, of: fn(&Run) -> &Phase, paper: [f64; 2]| {
        bars_beside(name, pair.map(|run| of(run).logged_amplification()), paper)
    };
    let phases = vec![
        phase("load", |run| &run.load, [f64::NAN, 1.6]),
        phase("updates (P1)", |run| &run.updates[0], [19.1, 19.7]),
    ];
    let titles = [
        "Write amplification; the paper's has no write cache",
        "design",
        "bytes per byte of the user",
    ];
    report.draw_bars("figure-2", titles, pair.map(|run| run.name), phases);
}
