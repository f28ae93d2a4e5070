//! Experiment 1 with LevelDB's seek compaction on every side, without filters: how much the
//! look-ups of a value log's collections make its tree write. It runs on the block SSD, where all
//! compactions share one lane as LevelDB's share one thread, and in memory, where they take no
//! time. It also shows the effect of parallel requests and of the size of the write cache.

use runstone_kv::Result;

use super::bench::{ALL, Bench, Phase, UNLOGGED, with_log};
use super::designs::{CACHE_BYTES, Design, RECORDS, SCALED_SEEKS, SEEKS, Workload};
use super::device::{self, SMALL_PAGE_BYTES, SSD, Width};
use crate::numbers::{list, mib, ratio};
use crate::report::{bars, bars_beside, rows};
use crate::sides;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    BYTES_LEVELED = "1: bytes of load and updates, HashKV over leveled (figure 5b)",
        "0.285, -71.5%" => Ratios(&[0.285]);
    BYTES_VLOG = "1: bytes of load and updates, HashKV over vLog (figure 5b)",
        "0.504, -49.6%" => Ratios(&[0.504]);
    UPDATES_LEVELED = "1: updates on flash, HashKV over leveled (figure 5a)",
        "6.3 to 7.9" => Ratios(&[6.3]);
    UPDATES_VLOG = "1: updates on flash, HashKV over vLog (figure 5a)",
        "3.7 to 4.6" => Ratios(&[3.7]);
    LOAD_LEVELED = "1: load of flash, HashKV over leveled (figure 5a)",
        "17.1" => Ratios(&[17.1]);
    LOAD_VLOG = "1: load of flash, HashKV over vLog (figure 5a)",
        "0.92" => Alike(0.1);
    SWITCH_BYTES = "1: bytes over vLog, {}, seeks off, scaled, unscaled",
        "" => Beside("what the rule changes");
    SWITCH_UPDATES = "1: updates over vLog, {}, seeks off, scaled, unscaled",
        "" => Beside("what the rule changes");
    ONE_REQUEST = "1: load over leveled, vLog, one lane, one request at a time; updates",
        "17.1, 0.92; 6.3 to 7.9, 3.7 to 4.6" => Beside("what requests side by side change");
    LARGE_CACHE = "1: load over vLog, write cache of 200, 1600 KiB",
        "0.92" => Beside("a flush brings a group 13 KiB, or 100 KiB as in the paper");
    SWITCH = "1: values and tables of P2 over vLog, {}, seeks off, scaled, unscaled",
        "" => Beside("what the rule changes");
}

/// The names of the limits, and the smallest number of seeks that a table is allowed.
const LIMITS: [(&str, Option<u32>); 3] =
    [("off", None), ("scaled", Some(SCALED_SEEKS)), ("unscaled", Some(SEEKS))];

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    for (place, width) in [("one lane", Some(SSD)), ("taking no time", None)] {
        let in_lane = width.is_some();
        let (mut seen, mut sides_of_vlog) = (Vec::new(), Vec::new());
        for (limits, least) in LIMITS {
            let seeking = |design: Design| match least {
                Some(least) => design.without_filters().seeking(least),
                None => design.without_filters(),
            };
            let designs =
                [Design::inline(), Design::paper_vlog(&workload), Design::paper(&workload)];
            let [leveled, vlog, hashkv] = designs.map(seeking);
            let sides = [leveled.side("leveled"), vlog.side("vLog"), hashkv.side("HashKV")];
            report.compare(&sides, &[])?;
            sides_of_vlog.push(vlog.side(&format!("vLog, {limits}")));
            let run = |name: &str, design: &Design| {
                context.say(&format!("experiment 1: {name}, {place}, seek compaction {limits}"));
                Run::measure(context, design, &workload, width)
            };
            let [vlog, hashkv] = [run("vLog", &vlog)?, run("HashKV", &hashkv)?];
            if in_lane && least == Some(SCALED_SEEKS) {
                let leveled = run("leveled", &leveled)?;
                judge(report, &leveled, &vlog, &hashkv);
                draw(report, [&leveled, &vlog, &hashkv]);
            }
            seen.push([vlog, hashkv]);
        }
        report.compare(&sides_of_vlog, &[sides::SEEKS])?;
        let all = |of: &dyn Fn(&[Run; 2]) -> f64| list(seen.iter().map(of), 2);
        let bytes = all(&|[vlog, hashkv]| hashkv.mib(UNLOGGED) / vlog.mib(UNLOGGED));
        report.show(SWITCH_BYTES.of(&[&place]), bytes);
        if in_lane {
            let updates = all(&|[vlog, hashkv]| hashkv.per_second() / vlog.per_second());
            report.show(SWITCH_UPDATES.of(&[&place]), updates);
        }
        let parts = seen.iter().map(|[vlog, hashkv]| ratio_of_phase_2(hashkv, vlog));
        report.show(SWITCH.of(&[&place]), parts.collect::<Vec<_>>().join("; "));
    }
    show_one_request(context, report, &workload)?;
    show_large_cache(context, report, &workload)
}

fn show_one_request(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
) -> Result<()> {
    context.say("experiment 1: one lane, one request at a time");
    let designs = [Design::inline(), Design::paper_vlog(workload), Design::paper(workload)];
    let run = |design: Design| {
        let design = design.without_filters().seeking(SCALED_SEEKS);
        Run::measure(context, &design, workload, Some(SSD.with_requests(1)))
    };
    let [leveled, vlog, hashkv] = designs.map(run);
    let (hashkv, others) = (hashkv?, [leveled?, vlog?]);
    let load = |run: &Run| run.0[0].per_second();
    let over = |of: &dyn Fn(&Run) -> f64| list(others.iter().map(|one| of(&hashkv) / of(one)), 2);
    report.show(ONE_REQUEST, format!("{}; {}", over(&load), over(&Run::per_second)));
    Ok(())
}

/// Runs only the load, for which flushes are the only difference between the two.
fn show_large_cache(
    context: &Context<'_>,
    report: &mut PaperReport,
    workload: &Workload,
) -> Result<()> {
    let mut ratios = Vec::new();
    for cache_bytes in [CACHE_BYTES, 8 * CACHE_BYTES] {
        context.say(&format!("experiment 1: load, write cache of {} KiB", cache_bytes >> 10));
        let [hashkv, vlog] = [Design::paper(workload), Design::paper_vlog(workload)].map(|one| {
            let one = Design { memory_bytes: 4 << 20, ..one.without_filters() };
            one.with(|keyspace| keyspace.write_buffer_bytes = cache_bytes)
        });
        report.compare(&[hashkv.side("HashKV"), vlog.side("vLog")], &[])?;
        let load = |design: &Design| -> Result<f64> {
            let device = device::create(context, SMALL_PAGE_BYTES, SSD)?;
            let mut bench = Bench::on_device(design, workload, &device)?.in_one_lane();
            Ok(bench.load()?.per_second())
        };
        ratios.push(load(&hashkv)? / load(&vlog)?);
    }
    report.show(LARGE_CACHE, list(ratios, 2));
    Ok(())
}

/// The phases P0 to P3.
struct Run([Phase; 4]);

impl Run {
    fn measure(
        context: &Context<'_>,
        design: &Design,
        workload: &Workload,
        width: Option<Width>,
    ) -> Result<Run> {
        let mut bench = match width {
            Some(width) => {
                let device = device::create(context, SMALL_PAGE_BYTES, width)?;
                Bench::on_device(design, workload, &device)?.in_one_lane()
            }
            None => Bench::in_memory(design, workload)?,
        };
        Ok(Run([bench.load()?, bench.update()?, bench.update()?, bench.update()?]))
    }

    /// MiB that all phases wrote to some files.
    fn mib(&self, files: &[&str]) -> f64 {
        mib(self.0.iter().map(|phase| phase.written(files)).sum())
    }

    /// Updates per second in phase P3.
    fn per_second(&self) -> f64 {
        self.0[3].per_second()
    }
}

/// Leveled has no look-ups, so the rule changes nothing there.
fn judge(report: &mut PaperReport, leveled: &Run, vlog: &Run, hashkv: &Run) {
    for (other, bytes, updates) in
        [(leveled, BYTES_LEVELED, UPDATES_LEVELED), (vlog, BYTES_VLOG, UPDATES_VLOG)]
    {
        for (row, files) in [(with_log(&bytes), ALL), (bytes, UNLOGGED)] {
            let (text, of_all) = ratio(hashkv.mib(files), other.mib(files), 0, " MiB");
            report.judge(row, text, &[of_all]);
        }
        let (text, faster) = ratio(hashkv.per_second(), other.per_second(), 0, " per second");
        report.judge(updates, text, &[faster]);
    }
    let load =
        |other: &Run| ratio(hashkv.0[0].per_second(), other.0[0].per_second(), 0, " per second");
    let [(of_leveled, faster), (of_vlog, close)] = [leveled, vlog].map(load);
    report.judge(LOAD_LEVELED, of_leveled, &[faster]);
    report.judge(LOAD_VLOG, of_vlog, &[1.0, close]);
}

/// The paper's bytes written per byte of the user, for leveled, vLog and HashKV: 454.6 GiB for
/// HashKV (table 1), and the others from HashKV's share of theirs, divided by the 160 GiB that the
/// user wrote.
const PAPER_BYTES: [f64; 3] = [9.97, 5.64, 2.84];

fn draw(report: &mut PaperReport, runs: [&Run; 3]) {
    let [leveled, vlog, hashkv] = runs;
    let faster = |at: usize, other: &Run| hashkv.0[at].per_second() / other.0[at].per_second();
    let times = [(0, leveled), (3, leveled), (0, vlog), (3, vlog)].map(|(at, run)| faster(at, run));
    let titles = ["Throughput of HashKV on a block SSD", "phase and rival", "times the rival's"];
    let categories = ["load, leveled", "updates, leveled", "load, vLog", "updates, vLog"];
    let bar = bars_beside("HashKV", times, [17.1, 6.3, 0.921, 3.7]);
    report.draw_bars("figure-5a", titles, categories, vec![bar]);
    let user = |run: &Run| mib(run.0.iter().map(|phase| phase.user_bytes).sum());
    let part = |files: &[&str]| runs.map(|run| run.mib(files) / user(run));
    let parts = vec![
        bars("values", part(&["value"])),
        bars("tables", part(&["table"])),
        bars_beside("all but the log", part(UNLOGGED), PAPER_BYTES),
    ];
    let titles = ["Bytes of load and updates", "design", "bytes per byte of the user"];
    report.draw_bars("figure-5b", titles, ["leveled", "vLog", "HashKV"], parts);
}

/// Values and tables that P2 wrote per byte of the user, without logs.
fn ratio_of_phase_2(hashkv: &Run, vlog: &Run) -> String {
    let parts = |run: &Run| ["value", "table"].map(|files| run.0[2].written_part(files));
    let [[values, tables], [values_vlog, tables_vlog]] = [hashkv, vlog].map(parts);
    let of_all = (values + tables) / (values_vlog + tables_vlog);
    let compactions = vlog.0[2].counters.compactions;
    format!(
        "{values:.2} + {tables:.2} / {values_vlog:.2} + {tables_vlog:.2} = {of_all:.2}, \
         {compactions} compactions of vLog"
    )
}
