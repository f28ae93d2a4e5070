//! "KVSSD: Close Integration of LSM Trees and Flash Translation Layer" (Wu, Lin, Chang; 2018): the
//! file engine on an emulated block SSD against a device that keeps the tree itself.
//!
//! 1. Load records in random order, then insert, update and read at 25, 65 and 10 percent; keys of
//!    24 bytes, values of 1000. Every run gets the same operations.
//! 2. `LSM` is the unchanged engine on `blockssd` with its log apart, in memory; `nLSM`, `rLSM(-)`
//!    and `rLSM` are the device. All use one merge policy with one set of sizes.
//! 3. Layers multiply: compaction x read-modify-write x collection; each run asserts that its
//!    layers explain every program that the flash counted.
//!
//! 4. dLSM and lLSM are exact models of trees that count pages, with the same operations.
//!
//! Counters and simulated time only, but for the row that says how fast the emulator is.

use runstone::{Error, Result};
use runstone_flash::baseline::{DelayedTree, LightTree};
use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::{KvSsdOptions, Placement};

use super::context::Context;
use super::kvssd_runs::{Load, ModelOutcome, Outcome, run_device, run_engine, run_model};
use super::report::PaperReport;

/// Over-provisioning of the paper.
const OVER_PROVISION_PERCENT: u32 = 5;

pub(super) fn run(context: &Context<'_>) -> Result<PaperReport> {
    let mut report = PaperReport::new("kvssd", context.scale);
    let load = Load::uniform(context);
    let runs = Runs::measure(context, &load)?;
    write_rows(&mut report, &runs);
    throughput_rows(&mut report, &runs);
    threshold_row(context, &mut report, &load, &runs)?;
    provision_rows(context, &mut report, &load, &runs)?;
    latest_rows(context, &mut report, &runs)?;
    baseline_rows(context, &mut report, &load, &runs)?;
    report.notes.push(format!(
        "{} loads and {} operations on {} blocks; simulated flash of preset {}",
        load.loads, load.operations, load.block_count, runs.rlsm.timing
    ));
    report.notes.push("LSM: the engine's log is on another device, counted apart".into());
    report.notes.push("shared and split: where the block SSD puts the pages that it moves".into());
    Ok(report)
}

/// The family under the uniform distribution.
struct Runs {
    split: Outcome,
    shared: Outcome,
    nlsm: Outcome,
    mixed: Outcome,
    rlsm: Outcome,
}

fn device(context: &Context<'_>, load: &Load, options: KvSsdOptions) -> Result<Outcome> {
    context.say(&format!("{} with TH {}", options.name(), options.threshold));
    run_device(context, load, &options)
}

fn engine(context: &Context<'_>, load: &Load, frontier: GcFrontier, op: u32) -> Result<Outcome> {
    context.say(&format!("LSM on a block SSD, {op} percent set aside"));
    run_engine(context, load, "fragmented-leveling", frontier, op)
}

impl Runs {
    fn measure(context: &Context<'_>, load: &Load) -> Result<Runs> {
        let over_provision_percent = OVER_PROVISION_PERCENT;
        let rlsm = KvSsdOptions { over_provision_percent, ..load.device_options() };
        let mixed = KvSsdOptions { placement: Placement::Mixed, ..rlsm.clone() };
        let placement = Placement::PerTable;
        let nlsm = KvSsdOptions { placement, threshold: 0, ..rlsm.clone() };
        Ok(Runs {
            split: engine(context, load, GcFrontier::Split, OVER_PROVISION_PERCENT)?,
            shared: engine(context, load, GcFrontier::Shared, OVER_PROVISION_PERCENT)?,
            nlsm: device(context, load, nlsm)?,
            mixed: device(context, load, mixed)?,
            rlsm: device(context, load, rlsm)?,
        })
    }
}

fn saved(from: f64, to: f64) -> f64 {
    (1.0 - to / from) * 100.0
}

fn write_rows(report: &mut PaperReport, runs: &Runs) {
    let Runs { split, shared, nlsm, mixed, rlsm } = runs;
    report.judge(
        "compaction, LSM = nLSM (figure 5b)",
        "17.7 = 17.7",
        format!("{:.2} = {:.2}", split.compaction, nlsm.compaction),
        "within 5%",
        (split.compaction / nlsm.compaction - 1.0).abs() <= 0.05,
    );
    report.judge(
        "read-modify-write, LSM -> nLSM (figure 5b)",
        "1.5 -> 1",
        format!("{:.3} -> {:.3}", split.rmw, nlsm.rmw),
        "1.40 to 1.55 -> 1",
        (1.40..=1.55).contains(&split.rmw) && nlsm.rmw == 1.0,
    );
    report.judge(
        "collection, LSM (split / shared) -> nLSM (figure 5b)",
        "3.6 -> 1",
        format!("{:.2} / {:.2} -> {:.3}", split.gc, shared.gc, nlsm.gc),
        "2.5 to 7.5 -> at most 1.01",
        [split.gc, shared.gc].iter().all(|gc| (2.5..=7.5).contains(gc)) && nlsm.gc <= 1.01,
    );
    let (least, most) = (saved(split.total(), nlsm.total()), saved(shared.total(), nlsm.total()));
    report.judge(
        "all writes, nLSM against LSM (figure 5a)",
        "81% less",
        format!("{least:.0}% / {most:.0}% less"),
        "at least 70% less",
        least >= 70.0,
    );
    let less = saved(nlsm.compaction, rlsm.compaction);
    report.judge(
        "compaction, nLSM -> rLSM (figure 5b)",
        "38% less",
        format!("{:.2} -> {:.2}, {less:.0}% less", nlsm.compaction, rlsm.compaction),
        "27 to 40% less",
        (27.0..=40.0).contains(&less),
    );
    report.judge(
        "collection, rLSM(-) -> rLSM (figure 5b)",
        "1.19 -> 1.04 (14% less)",
        format!("{:.3} -> {:.3}", mixed.gc, rlsm.gc),
        "rLSM lower, at most 1.10",
        rlsm.gc < mixed.gc && rlsm.gc <= 1.10,
    );
    let less = saved(split.total(), rlsm.total());
    report.judge(
        "all writes, LSM (split / shared) -> rLSM (figure 5a)",
        "93 -> 11.4, 88% less",
        format!(
            "{:.1} / {:.1} -> {:.2}, {less:.0}% / {:.0}% less",
            split.total(),
            shared.total(),
            rlsm.total(),
            saved(shared.total(), rlsm.total())
        ),
        "at least 80% less",
        less >= 80.0,
    );
}

fn throughput_rows(report: &mut PaperReport, runs: &Runs) {
    let Runs { split, shared, nlsm, rlsm, .. } = runs;
    let ratios = [split, shared].map(|lsm| rlsm.operations_per_s / lsm.operations_per_s);
    report.judge(
        "simulated throughput, rLSM / LSM (figure 6a)",
        "up to 4.47",
        format!("{:.2} / {:.2}", ratios[0], ratios[1]),
        "3.5 to 6 with one of the frontiers",
        ratios.iter().any(|ratio| (3.5..=6.0).contains(ratio)),
    );
    let more = (rlsm.pages_per_get / nlsm.pages_per_get - 1.0) * 100.0;
    report.judge(
        "pages read per get, metadata included, nLSM -> rLSM (figure 6b)",
        "up to 11% more",
        format!("{:.2} -> {:.2}, {more:+.0}%", nlsm.pages_per_get, rlsm.pages_per_get),
        "less than 12% more",
        more < 12.0,
    );
    report.show(
        "pages read per get, LSM",
        "-",
        format!("{:.2}", split.pages_per_get),
        "no filters; the engine keeps indexes in memory",
    );
    report.show(
        "the emulator: operations of rLSM per second of processor time",
        "-",
        format!("{:.0}", rlsm.emulated_per_cpu_s),
        "the goal is 300,000; not the same everywhere",
    );
    report.show(
        "RAM of the device: tree, lists, counters (III-E)",
        "2 MB per 16 GB",
        format!("{:.2} MB per 16 GB", rlsm.ram_bytes_per_16_gb / f64::from(1 << 20)),
        "scaled from this device",
    );
}

fn threshold_row(
    context: &Context<'_>,
    report: &mut PaperReport,
    load: &Load,
    runs: &Runs,
) -> Result<()> {
    let mut compaction = Vec::new();
    for threshold in 1..=4 {
        compaction.push(match threshold {
            2 => runs.rlsm.compaction,
            _ => {
                let options = KvSsdOptions { threshold, ..load.device_options() };
                device(context, load, options)?.compaction
            }
        });
    }
    report.judge(
        "compaction, TH 1 / 2 / 3 / 4 (figure 7a)",
        "falls, ever less",
        joined(&compaction, 2),
        "falls",
        compaction.windows(2).all(|pair| pair[1] < pair[0]),
    );
    Ok(())
}

fn provision_rows(
    context: &Context<'_>,
    report: &mut PaperReport,
    load: &Load,
    runs: &Runs,
) -> Result<()> {
    let (mut lsm, mut rlsm) = (vec![runs.split.gc], vec![runs.rlsm.gc]);
    for percent in [10, 15] {
        lsm.push(engine(context, load, GcFrontier::Split, percent)?.gc);
        let options = KvSsdOptions { over_provision_percent: percent, ..load.device_options() };
        rlsm.push(device(context, load, options)?.gc);
    }
    report.judge(
        "collection of LSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "falls",
        joined(&lsm, 2),
        "falls",
        lsm.windows(2).all(|pair| pair[1] < pair[0]),
    );
    let (least, most) = rlsm.iter().fold((f64::MAX, 0.0), |(a, b), gc| (gc.min(a), gc.max(b)));
    report.judge(
        "collection of rLSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "flat",
        joined(&rlsm, 3),
        "within 5%",
        most <= least * 1.05,
    );
    Ok(())
}

fn latest_rows(context: &Context<'_>, report: &mut PaperReport, runs: &Runs) -> Result<()> {
    let load = Load::latest(context);
    let latest = device(context, &load, load.device_options())?;
    report.judge(
        "all writes of rLSM, Latest < Uniform (figure 5a)",
        "yes",
        format!("{:.2} < {:.2}", latest.total(), runs.rlsm.total()),
        "lower",
        latest.total() < runs.rlsm.total(),
    );
    let latest = engine(context, &load, GcFrontier::Split, OVER_PROVISION_PERCENT)?;
    report.judge(
        "all writes of LSM, Latest < Uniform (figure 5a)",
        "yes",
        format!("{:.1} < {:.1}", latest.total(), runs.split.total()),
        "lower",
        latest.total() < runs.split.total(),
    );
    Ok(())
}

/// dLSM delays a merge until so many tables stand behind a compaction.
const DELAYED_TABLES: usize = 20;

/// The models after one workload.
struct Models {
    plain: ModelOutcome,
    delayed: ModelOutcome,
    light: ModelOutcome,
}

impl Models {
    fn measure(load: &Load) -> Result<Models> {
        let percent = OVER_PROVISION_PERCENT;
        let delayed =
            |most| run_model(load, percent, |sizes| Box::new(DelayedTree::new(sizes, most)));
        Ok(Models {
            plain: delayed(0)?,
            delayed: delayed(DELAYED_TABLES)?,
            light: run_model(load, percent, |sizes| Box::new(LightTree::new(sizes)))?,
        })
    }

    /// Pages per get, and how much more than the plain tree's in percent: dLSM, lLSM.
    fn reads(&self) -> (String, [f64; 2]) {
        let plain = self.plain.pages_per_get;
        let [delayed, light] = [&self.delayed, &self.light].map(|model| model.pages_per_get);
        let more = [delayed, light].map(|reads| (reads / plain - 1.0) * 100.0);
        let [more_delayed, more_light] = more;
        let text = format!(
            "{plain:.2} -> {delayed:.2}, {more_delayed:+.0}% / {light:.2}, {more_light:+.0}%"
        );
        (text, more)
    }
}

/// A model of the plain tree says what the models are worth beside the device. What a get reads
/// more depends on how deep the tree is, so that is also measured at the paper's depth.
fn baseline_rows(
    context: &Context<'_>,
    report: &mut PaperReport,
    load: &Load,
    runs: &Runs,
) -> Result<()> {
    context.say("models of dLSM and lLSM");
    let models = Models::measure(load)?;
    let Models { plain, delayed, light } = &models;
    let deep = Models::measure(&Load::as_deep_as_the_paper(context))?;
    report.judge(
        "compaction, model of nLSM / nLSM",
        "-",
        format!("{:.2} / {:.2}", plain.compaction, runs.nlsm.compaction),
        "within 15%: what the models are worth",
        (plain.compaction / runs.nlsm.compaction - 1.0).abs() <= 0.15,
    );
    report.judge(
        "compaction, lLSM < rLSM < dLSM < nLSM (figure 5b)",
        "yes",
        joined(&[light.compaction, runs.rlsm.compaction, delayed.compaction, plain.compaction], 2),
        "this order",
        light.compaction < runs.rlsm.compaction
            && runs.rlsm.compaction < delayed.compaction
            && delayed.compaction < plain.compaction,
    );
    let (text, more) = models.reads();
    report.judge(
        "pages read per get, nLSM -> dLSM / lLSM (figure 6b)",
        "up to 19% more; lLSM worst",
        text,
        "dLSM at most 19% more, lLSM most",
        more[0] <= 19.0 && more[0] < more[1],
    );
    report.show(
        "the same at the paper's depth, one level more",
        "up to 19% more; lLSM worst",
        deep.reads().0,
        "not the specified workload",
    );
    report.judge(
        "volume that lLSM needs, times the device's (V-B)",
        "more than 1, about 1.3 is enough",
        format!("{:.2}", light.volume),
        "more than 1, at most 1.3",
        1.0 < light.volume && light.volume <= 1.3,
    );
    Ok(())
}

fn joined(values: &[f64], digits: usize) -> String {
    let values = values.iter().map(|value| format!("{value:.digits$}"));
    values.collect::<Vec<_>>().join(" / ")
}

/// An error of the flash, for a report that cannot go on.
pub(super) fn failed(error: runstone_flash::Error) -> Error {
    Error::Foreign { engine: "flash".into(), what: error.to_string() }
}
