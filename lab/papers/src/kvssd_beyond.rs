//! Beyond the KVSSD paper: the effect of any compaction policy on a flash device, layer by layer,
//! and remapping compaction under the capacities of Garnering and under the cuts of Global-Range.
//!
//! 1. The workload of `kvssd` with half of its records, on the unchanged engine over the block SSD,
//!    under several policies: store and files x read-modify-write x collection = all writes.
//! 2. The device under fragmented leveling and under Garnering, with and without remapping, with
//!    all records.
//! 3. The device with tables cut by size, by Global-Range and by grouped Global-Range.
//! 4. The device with filters in its metadata pages.
//! 5. Adaptive tiering against tiering, both with filters, since the device refuses it.
//! 6. Separated values (`kvssd_axes.rs`).
//! 7. Levels of several runs (the same file).
//!
//! Only counters and simulated time are used.

use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::{FilterAllocation, KvSsdOptions, Partitioner};
use runstone_kv::Result;

use super::context::{Context, Part};
use super::kvssd_axes;
use super::kvssd_runs::{
    Load, OVER_PROVISION_PERCENT, Outcome, rewriting, run_device, run_engine, run_keyspace,
};
use super::numbers::{percent_more, strokes};
use super::report::{PaperReport, rows};
use super::verdict::Rule::*;

const POLICIES: [&str; 6] =
    ["fragmented-leveling", "leveling", "garnering", "tiering", "adaptive-tiering", "universal"];

rows! {
    LAYERS = "{}: {}; operations per simulated second; pages per get",
        "" => Beside("not in the paper: the engine's policies on its block SSD");
    WRITES = "all writes, nLSM -> rLSM, fragmented leveling / Garnering",
        "" => Beside("not in the paper: remapping under other capacities");
    PAGES = "pages read per get, nLSM -> rLSM, fragmented leveling / Garnering",
        "" => Beside("not in the paper; metadata included");
    SPEED = "operations per simulated second of rLSM, fragmented leveling / Garnering",
        "" => Beside("not in the paper");
    CUT_WRITES = "TH {}: all writes, cut by size / Global-Range / grouped",
        "" => Beside("not in the paper: remapping under bounds that levels share");
    CUT_PAGES = "TH {}: pages read per get; operations per simulated second; the same",
        "" => Beside("not in the paper");
    FILTER_PAGES = "{}: pages read per get without, with uniform and with optimal filters",
        "" => Beside("not in the paper, whose device has no filters; metadata included");
    FILTER_WRITES = "{}, the same: all writes; operations per simulated second",
        "" => Beside("not in the paper");
    ADAPTIVE = "{}, ten bits per key: all writes; operations per simulated second; pages per get",
        "" => Beside("not in the paper: why the device does without adaptive tiering");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note("block SSD: split frontiers, no trim, 5 percent set aside");
    report.note("every run asserts that its layers explain all programs");
    let parts: [Part<Context<'_>>; 7] = [
        ("policies", policy_rows),
        ("garnering", garnering_rows),
        ("global-range", global_range_rows),
        ("filters", filter_rows),
        ("adaptive", adaptive_rows),
        ("axes", kvssd_axes::run),
        ("runs", kvssd_axes::run_rows),
    ];
    context.measure(context, report, &parts)
}

fn policy_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::half(context);
    let mut show = |what: &str, layers: &str, here: String, run: &Outcome| {
        let (speed, pages) = (format!("{:.0}", run.operations_per_s), run.pages_per_get);
        let row = LAYERS.of(&[&what, &layers]);
        report.show(row, format!("{here} = {:.1}; {speed}; {pages:.2}", run.total()));
    };
    for policy in POLICIES {
        context.say(&format!("{policy} on a block SSD"));
        let run = run_engine(context, &load, policy, GcFrontier::Split, OVER_PROVISION_PERCENT)?;
        let here = format!("{:.2} x {:.3} x {:.3}", run.compaction, run.rmw, run.gc);
        let what = format!("{policy} on a block SSD");
        show(&what, "files x read-modify-write x collection", here, &run);
    }
    let run = run_device(context, &load, &load.device_options())?;
    let here = format!("{:.2} x {:.3}", run.compaction, run.gc);
    show("rLSM on the same load", "compaction x collection", here, &run);
    Ok(())
}

/// The device with a compaction policy, by rewriting and by remapping.
fn pair(context: &Context<'_>, load: &Load, policy: &str) -> Result<[Outcome; 2]> {
    let rlsm = KvSsdOptions { policy: policy.into(), ..load.device_options() };
    let nlsm = rewriting(rlsm.clone());
    context.say(&format!("nLSM and rLSM under {policy}"));
    Ok([run_device(context, load, &nlsm)?, run_device(context, load, &rlsm)?])
}

fn garnering_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    let leveled = pair(context, &load, "fragmented-leveling")?;
    let garnered = pair(context, &load, "garnering")?;
    let shown = |pick: fn(&Outcome) -> f64| {
        let line = |runs: &[Outcome; 2]| {
            let [nlsm, rlsm] = runs.each_ref().map(pick);
            format!("{nlsm:.2} -> {rlsm:.2}, {:+.0}%", percent_more(nlsm, rlsm))
        };
        format!("{} / {}", line(&leveled), line(&garnered))
    };
    report.show(WRITES, shown(Outcome::total));
    report.show(PAGES, shown(|run| run.pages_per_get));
    report.show(
        SPEED,
        format!("{:.0} / {:.0}", leveled[1].operations_per_s, garnered[1].operations_per_s),
    );
    Ok(())
}

/// Remapping where tables are cut at bounds that all levels share: no page crosses a bound once it
/// has been rewritten, and a compaction reads whole tables of the level below; but tables are less
/// full, so there are more metadata pages. With one set of blocks per level, this is rLSM; nLSM
/// would need a third more blocks for its less full tables.
fn global_range_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    for threshold in [2, 0] {
        let mut runs = Vec::new();
        let all = [Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange];
        for cuts in all {
            context.say(&format!("TH {threshold}, tables cut by {}", cuts.rule().name()));
            let options = KvSsdOptions { threshold, cuts, ..load.device_options() };
            runs.push(run_device(context, &load, &options)?);
        }
        let line = |pick: fn(&Outcome) -> f64, digits| strokes(runs.iter().map(pick), digits);
        report.show(CUT_WRITES.of(&[&threshold]), line(Outcome::total, 2));
        let (pages, speeds) =
            (line(|run| run.pages_per_get, 2), line(|run| run.operations_per_s, 0));
        report.show(CUT_PAGES.of(&[&threshold]), format!("{pages}; {speeds}"));
    }
    Ok(())
}

/// Filters save the pages that a get would read in vain, but not the metadata pages, which contain
/// the filters.
fn filter_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    let rlsm = load.device_options();
    for (name, options) in [("nLSM", rewriting(rlsm.clone())), ("rLSM", rlsm)] {
        let mut runs = Vec::new();
        for filters in FilterAllocation::ALL {
            context.say(&format!("{name}, filters: {filters:?}"));
            runs.push(run_device(context, &load, &KvSsdOptions { filters, ..options.clone() })?);
        }
        let line = |pick: fn(&Outcome) -> f64, digits| strokes(runs.iter().map(pick), digits);
        report.show(FILTER_PAGES.of(&[&name]), line(|run| run.pages_per_get, 2));
        let (writes, speeds) = (line(Outcome::total, 2), line(|run| run.operations_per_s, 0));
        report.show(FILTER_WRITES.of(&[&name]), format!("{writes}; {speeds}"));
    }
    Ok(())
}

/// Adaptive tiering merges where gets look at many tables. With filters, a get looks at few tables
/// even without a merge. So both policies have filters here, and tiering on the device is compared
/// with itself.
fn adaptive_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::half(context);
    let mut show = |what: &str, run: &Outcome| {
        let (writes, speed) = (run.total(), run.operations_per_s);
        let (pages, meta) = (run.pages_per_get, run.meta_pages_per_get);
        let here = format!("{writes:.2}; {speed:.0}; {pages:.2}, {meta:.2} of metadata");
        report.show(ADAPTIVE.of(&[&what]), here);
    };
    for policy in ["tiering", "adaptive-tiering"] {
        let what = format!("{policy} on a block SSD");
        context.say(&format!("{what}, with filters"));
        let keyspace = load.keyspace(policy).filter_bits_per_key(10.0);
        let (frontier, percent) = (GcFrontier::Split, OVER_PROVISION_PERCENT);
        show(&what, &run_keyspace(context, &load, keyspace, frontier, percent)?);
    }
    let policy = "tiering".into();
    let options =
        KvSsdOptions { policy, filters: FilterAllocation::Uniform, ..load.device_options() };
    for size_ratio in [10, 4] {
        let options = KvSsdOptions { size_ratio, ..options.clone() };
        let what = format!("tiering, T = {size_ratio}, on flash itself");
        show(&what, &run_device(context, &load, &options)?);
    }
    Ok(())
}
