//! Experiments 1 and 8: load and updates, and the share of crash consistency in their cost.

use runstone_kv::Result;

use super::bench::{ALL, Bench, FileBytes, Phase};
use super::designs::{Design, MAIN_BYTES, POINTER_TABLES, PROCESSOR, RECORDS, Workload};
use crate::numbers::{list, mib, ratio};
use crate::report::{bars, bars_beside, rows};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    UPDATES_LEVELED = "1: updates, HashKV over leveled, {} (figure 5a)",
        "6.3 to 7.9" => NotComparable(PROCESSOR);
    UPDATES_VLOG = "1: updates, HashKV over vLog, {} (figure 5a)",
        "3.7 to 4.6" => NotComparable(PROCESSOR);
    BYTES_LEVELED = "1: bytes of load and updates, HashKV over leveled, {} (figure 5b)",
        "0.285, -71.5%" => Ratios(&[0.285]);
    BYTES_VLOG = "1: bytes of load and updates, HashKV over vLog, {} (figure 5b)",
        "0.504, -49.6%" => Ratios(&[0.504]);
    LOAD = "1: load, HashKV over leveled, {} (figure 5a)",
        "17.1" => NotComparable(PROCESSOR);
    LOAD_VLOG = "1: load, HashKV over vLog, {} (figure 5a)",
        "0.92" => NotComparable(PROCESSOR);
    OURS = "1: updates, stable pointers over leveled and vLog, a trigger of 16 tables for all",
        "" => NotComparable("beyond the paper: collections that write no pointers");
    POINTERS = "1: pointers written back by collections over stable ones (section 3.3)",
        "" => NotComparable("beyond the paper: the price of its scheme");
    VALUE_BYTES = "1: value bytes of updates, HashKV over vLog",
        "" => NotComparable("the paper does not count them apart");
    PEAK_VALUES = "1: peak of the value file, stable pointers",
        "" => NotComparable("not in the paper; bound: (1 + r) data and one group with its reserve");
    SIZES = "1: value file and tables at the end: leveled, vLog, HashKV, {} (figure 5c)",
        "very similar" => Alike(0.1);
    TABLE = "8: bytes of all phases per byte of the user: leveled, vLog, HashKV, {} (table 1)",
        "9.97, 5.64, 2.84" => NotComparable("table 1 with the percentages of figure 5b: a check");
    MANIFEST = "8: bytes of the manifest beside all others (table 1)",
        "1.042" => NotComparable("the paper's are journals of writes and collections: none here");
    SYNCS = "8: syncs in P3 (table 1)",
        "-6.5% throughput" => NotComparable("none of the syncs can be left out");
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

    /// All that load and updates wrote.
    fn written_mib(&self) -> f64 {
        mib(self.phases().map(|phase| phase.written(ALL)).sum())
    }

    /// What all phases wrote to some files, per byte of the user.
    fn written_part(&self, categories: &[&str]) -> f64 {
        let user: u64 = self.phases().map(|phase| phase.user_bytes).sum();
        self.phases().map(|phase| phase.written(categories)).sum::<u64>() as f64 / user as f64
    }

    /// What the last updates wrote, per byte of the user.
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
    /// Runs each with the same memory, filters and triggers.
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

    fn judge(&self, report: &mut PaperReport) {
        let Family { has, leveled, vlog, hashkv } = self;
        for (updates, bytes, load, other) in [
            (UPDATES_LEVELED, BYTES_LEVELED, LOAD, leveled),
            (UPDATES_VLOG, BYTES_VLOG, LOAD_VLOG, vlog),
        ] {
            report.show(updates.of(&[has]), hashkv.against(other).0);
            let (text, of_all) = ratio(hashkv.written_mib(), other.written_mib(), 0, " MiB");
            let text = format!("{text}; of P3 {} / {}", hashkv.bytes(), other.bytes());
            report.judge(bytes.of(&[has]), text, &[of_all]);
            let faster = hashkv.load.per_second() / other.load.per_second();
            report.show(load.of(&[has]), format!("{faster:.2}"));
        }
        let runs = [leveled, vlog, hashkv];
        let bytes = |run: &Run| run.end.values + run.end.tables;
        let sizes = runs.map(|run| bytes(run) as f64);
        let text = |run: &Run| {
            let FileBytes { values, tables } = run.end;
            format!(
                "{} {:.1} ({:.1} + {:.1}) MiB",
                run.name,
                mib(bytes(run)),
                mib(values),
                mib(tables)
            )
        };
        report.judge(SIZES.of(&[has]), runs.map(text).join("; "), &sizes);
        report.show(TABLE.of(&[has]), list(runs.map(|run| run.written_part(ALL)), 2));
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    let plain = ("without filters", Design::without_filters as fn(Design) -> Design);
    let family = Family::measure(context, report, &workload, plain)?;
    family.judge(report);
    draw(report, &family);
    let filtered = ("filters of 10 bits", std::convert::identity as fn(Design) -> Design);
    let family = Family::measure(context, report, &workload, filtered)?;
    family.judge(report);
    show_crash_consistency(report, &family.leveled, &family.hashkv);
    show_ours(context, report, &workload)
}

/// Stable pointers, and the trigger that suits tables of pointers.
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
    report.show(PEAK_VALUES, format!("{peak:.1} MiB of {data:.1} MiB data, bound {bound:.1}"));
    Ok(())
}

/// No part of it can be switched off here, so its parts are counted.
fn show_crash_consistency(report: &mut PaperReport, inline: &Run, hashkv: &Run) {
    let share = |run: &Run| {
        let [manifest, all] = [&["manifest"], ALL].map(|files| run.last().written(files));
        100.0 * manifest as f64 / (all - manifest) as f64
    };
    report.show(MANIFEST, format!("+{:.2}%; leveled +{:.2}%", share(hashkv), share(inline)));
    let syncs = |run: &Run| {
        let phase = run.last();
        let counters = &phase.counters;
        format!(
            "{} ({} flushes, {} compactions, {} collections)",
            phase.io(ALL, |io| io.syncs),
            counters.flushes,
            counters.compactions,
            counters.value_collections
        )
    };
    report.show(SYNCS, format!("{}; leveled {}", syncs(hashkv), syncs(inline)));
}

/// What the paper's text says about leveled, vLog and HashKV, in bytes per byte of the user: 454.6
/// GiB for HashKV (table 1) and its share of the others, of 160 GiB that were written.
const PAPER_BYTES: [f64; 3] = [9.97, 5.64, 2.84];

fn draw(report: &mut PaperReport, family: &Family) {
    let runs = [&family.leveled, &family.vlog, &family.hashkv];
    let names = || runs.map(|run| run.name);
    let part = |name, files: &[&str]| bars(name, runs.map(|run| run.written_part(files)));
    let all = bars_beside("all", runs.map(|run| run.written_part(ALL)), PAPER_BYTES);
    let parts =
        vec![part("values", &["value"]), part("tables", &["table"]), part("log", &["wal"]), all];
    let titles = ["Bytes of load and updates", "design", "bytes per byte of the user"];
    report.draw_bars("figure-5b", titles, names(), parts);
    let size = |name, of: fn(&FileBytes) -> u64| bars(name, runs.map(|run| mib(of(&run.end))));
    let sizes = vec![size("values", |end| end.values), size("tables", |end| end.tables)];
    report.draw_bars("figure-5c", ["Files at the end", "design", "MiB"], names(), sizes);
    let pair = [&family.leveled, &family.vlog];
    let phase = |name, of: fn(&Run) -> &Phase, paper: [f64; 2]| {
        bars_beside(name, pair.map(|run| of(run).amplification()), paper)
    };
    let phases = vec![
        phase("load", |run| &run.load, [f64::NAN, 1.6]),
        phase("updates (P1)", |run| &run.updates[0], [19.1, 19.7]),
    ];
    let titles = ["Write amplification; the paper's has no write cache", "design", titles[2]];
    report.draw_bars("figure-2", titles, pair.map(|run| run.name), phases);
}
