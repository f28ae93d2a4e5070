//! Experiments 1 and 8: load and updates, and what crash consistency costs of them.

use runstone::Result;

use super::bench::{ALL, Bench, PeakBytes, Phase};
use super::designs::{Design, MAIN_BYTES, POINTER_TABLES, RECORDS, TABLES, Workload};
use crate::numbers::{mib, percent_less, ratio};
use crate::report::{Row, bars, rows};
use crate::{Context, PaperReport};

rows! {
    SAME_EARLY = "1: the same, both with a level-0 trigger of 4 tables",
        "6.3 to 7.9" => "at least 3" if |faster| faster >= 3.0;
    SAME_LATE = "1: the same, both with a level-0 trigger of 16 tables",
        "6.3 to 7.9" => "16 tables of pairs are more than all of level 1, of pointers a seventh";
    POINTERS = "1: pointers written back by collections against stable ones (section 3.3)",
        "not measured" => "0.9 to 1.5 pointers per update by the specification's model";
    AGAINST_VLOG_A = "1: updates, HashKV against vLog (A), without filters (figure 5a)",
        "3.7 to 4.6" => "at least 3" if |faster| faster >= 3.0;
    AGAINST_VLOG_B = "1: updates, HashKV against vLog (B), with filters (figure 5a)",
        "not measured" => "at least 1.2" if |faster| faster >= 1.2;
    AGAINST_LEVELED =
        "1: updates, HashKV against leveled, level-0 triggers of 16 and 4 tables (figure 5a)",
        "6.3 to 7.9" => "at least 3" if |faster| faster >= 3.0;
    LOAD = "1: load, HashKV against leveled and vLog (B) (figure 5a)",
        "17.1, 0.92" => "processor time: no device waits";
    BYTES = "1: bytes of updates, HashKV against leveled (figure 5b)",
        "-71.5%" => "at least 60% fewer" if |less| less >= 60.0;
    VALUE_BYTES = "1: value bytes of updates, HashKV against vLog (B)",
        "not measured apart" => "2% to 12% fewer" if |less| (2.0..=12.0).contains(&less);
    BYTES_VLOG = "1: bytes of updates, HashKV against vLog (A), (B) (figure 5b)",
        "-49.6%" => "a tree without seek compactions does not write on look-ups";
    PEAK_VALUES = "1: peak of the value file, HashKV",
        "not measured" => "at most (1 + r) data + one group with its reserve = {} MiB"
        if |bytes, bound| bytes <= bound;
    PEAK_ALL = "1: peak of value file and tables, MiB (figure 5c)",
        "very similar" => "outputs counted beside their inputs";
    MANIFEST = "8: bytes of the manifest, of all others (table 1)",
        "+4.2%" => "at most 10%" if |percent| percent <= 10.0;
    SYNCS = "8: syncs in P3 (table 1)",
        "-6.5% throughput" => "a flush syncs values, table and manifest; none can be left out";
}

/// One design through P0 to P3.
struct Run {
    name: &'static str,
    load: Phase,
    updates: [Phase; 3],
    peak: PeakBytes,
}

impl Run {
    fn measure(name: &'static str, design: &Design, workload: &Workload) -> Result<Run> {
        let mut bench = Bench::in_memory(design, workload)?;
        let load = bench.load()?;
        let updates = [bench.update()?, bench.update()?, bench.update()?];
        Ok(Run { name, load, updates, peak: bench.peak() })
    }

    fn last(&self) -> &Phase {
        &self.updates[2]
    }

    fn bytes(&self) -> String {
        self.last().bytes_text()
    }

    /// How much faster the last updates were than another's, as text and as a number.
    fn against(&self, other: &Run) -> (String, f64) {
        ratio(self.last().per_second(), other.last().per_second(), 0, " per second")
    }
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    let designs = [
        ("inline", Design::inline()),
        // Without filters a look-up reads every table: more of them would slow it down.
        ("vLog (A)", Design::vlog(&workload).without_filters().compacting_at(TABLES)),
        ("vLog (B)", Design::vlog(&workload)),
        ("HashKV", Design::hashkv(&workload)),
        ("HashKV, 4 tables", Design::hashkv(&workload).compacting_at(TABLES)),
        ("inline, 16 tables", Design::inline().compacting_at(POINTER_TABLES)),
        ("HashKV, written back", Design::hashkv(&workload).writing_back()),
    ];
    let mut runs = Vec::new();
    for (name, design) in designs {
        context.say(&format!("experiment 1: {name}"));
        runs.push(Run::measure(name, &design, &workload)?);
    }
    let [inline, vlog_a, vlog_b, hashkv, early, late, back] = &runs[..] else { return Ok(()) };
    judge_throughput(report, inline, [vlog_a, vlog_b], hashkv);
    judge_triggers(report, [inline, late], [hashkv, early]);
    show_pointers(report, hashkv, back);
    judge_bytes(report, inline, [vlog_a, vlog_b], hashkv);
    judge_space(report, &workload, &runs[..4]);
    judge_crash_consistency(report, inline, hashkv);
    draw(report, &runs[..4]);
    Ok(())
}

/// How much of the ratio is owed to the number of level-0 tables that start a compaction.
fn judge_triggers(report: &mut PaperReport, [inline, late]: [&Run; 2], [hashkv, early]: [&Run; 2]) {
    let (_, faster) = early.against(inline);
    report.judge(SAME_EARLY, format!("{faster:.2}; HashKV {}", early.bytes()), &[faster]);
    report.show(SAME_LATE, format!("{:.2}; leveled {}", hashkv.against(late).1, late.bytes()));
}

/// Stable pointers beside the paper's own scheme.
fn show_pointers(report: &mut PaperReport, stable: &Run, back: &Run) {
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
}

fn judge_throughput(report: &mut PaperReport, inline: &Run, vlogs: [&Run; 2], hashkv: &Run) {
    let [vlog_a, vlog_b] = vlogs;
    let mut judge = |row: Row, other: &Run| {
        let (text, faster) = hashkv.against(other);
        report.judge(row, text, &[faster]);
    };
    judge(AGAINST_VLOG_A, vlog_a);
    judge(AGAINST_VLOG_B, vlog_b);
    judge(AGAINST_LEVELED, inline);
    let against = |other: &Run| hashkv.load.per_second() / other.load.per_second();
    report.show(LOAD, format!("{:.2}, {:.2}", against(inline), against(vlog_b)));
}

fn judge_bytes(report: &mut PaperReport, inline: &Run, vlogs: [&Run; 2], hashkv: &Run) {
    let less = |part: fn(&Phase) -> f64, other: &Run| {
        percent_less(part(other.last()), part(hashkv.last()))
    };
    let all = less(Phase::amplification, inline);
    report.judge(BYTES, format!("{} / {}: -{all:.1}%", hashkv.bytes(), inline.bytes()), &[all]);
    let [vlog_a, vlog_b] = vlogs;
    let values = less(Phase::value_amplification, vlog_b);
    report.judge(
        VALUE_BYTES,
        format!(
            "{:.2} / {:.2}: {:+.1}%",
            hashkv.last().value_amplification(),
            vlog_b.last().value_amplification(),
            -values
        ),
        &[values],
    );
    report.show(
        BYTES_VLOG,
        format!(
            "{:+.1}%, {:+.1}%; vLog (A) {}, (B) {}",
            -less(Phase::amplification, vlog_a),
            -less(Phase::amplification, vlog_b),
            vlog_a.bytes(),
            vlog_b.bytes()
        ),
    );
}

fn judge_space(report: &mut PaperReport, workload: &Workload, runs: &[Run]) {
    let data = workload.data_bytes(1);
    let text = |run: &Run| {
        let PeakBytes { values, tables, both } = run.peak;
        format!("{} {:.1} ({:.1} + {:.1})", run.name, mib(both), mib(values), mib(tables))
    };
    let (values, bound) = (runs[3].peak.values, data * 13 / 10 + MAIN_BYTES * 13 / 10);
    let here = format!("{:.1} MiB of {:.1} MiB data", mib(values), mib(data));
    report.judge(
        PEAK_VALUES.of(&[&format!("{:.1}", mib(bound))]),
        here,
        &[values as f64, bound as f64],
    );
    report.show(PEAK_ALL, runs.iter().map(text).collect::<Vec<_>>().join("; "));
}

/// Nothing of it can be switched off here, so its parts are counted.
fn judge_crash_consistency(report: &mut PaperReport, inline: &Run, hashkv: &Run) {
    let share = |run: &Run| {
        let [manifest, all] = [&["manifest"], ALL].map(|files| run.last().written(files));
        100.0 * manifest as f64 / (all - manifest) as f64
    };
    report.judge(
        MANIFEST,
        format!("+{:.2}%; leveled +{:.2}%", share(hashkv), share(inline)),
        &[share(hashkv)],
    );
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

fn draw(report: &mut PaperReport, runs: &[Run]) {
    let names = || runs.iter().map(|run| run.name);
    let speeds = |run: &Run| {
        let phases = std::iter::once(&run.load).chain(&run.updates);
        bars(run.name, phases.map(|phase| phase.per_second() / 1000.0))
    };
    report.draw_bars(
        "figure-5a",
        ["Throughput", "phase", "1000 operations per second of processor time"],
        ["P0", "P1", "P2", "P3"],
        runs.iter().map(speeds).collect(),
    );
    let part =
        |name, files: &str| bars(name, runs.iter().map(|run| run.last().written_part(files)));
    let parts = vec![part("values", "value"), part("tables", "table"), part("log", "wal")];
    let titles = ["Bytes written in P3", "design", "bytes per byte of the user"];
    report.draw_bars("figure-5b", titles, names(), parts);
    let peak =
        |name, of: fn(&PeakBytes) -> u64| bars(name, runs.iter().map(|run| mib(of(&run.peak))));
    let peaks = vec![peak("values", |peak| peak.values), peak("tables", |peak| peak.tables)];
    report.draw_bars("figure-5c", ["Peak of the files", "design", "MiB"], names(), peaks);
}
