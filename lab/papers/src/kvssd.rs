//! "KVSSD: Close Integration of LSM Trees and Flash Translation Layer" (Wu, Lin, Chang; 2018): the
//! file engine on an emulated block SSD against a device that keeps the tree itself.
//!
//! 1. Load records in random order, then insert, update and read at 25, 65 and 10 percent; keys of
//!    24 bytes, values of 1000. Every run gets the same operations.
//! 2. `LSM` is the unchanged engine on `blockssd` with its log apart, in memory; `nLSM`, `rLSM(-)`
//!    and `rLSM` are the device. All use one compaction policy with one set of sizes.
//! 3. Layers multiply: compaction x read-modify-write x collection; each run asserts that its
//!    layers explain every program that the flash counted.
//!
//! 4. dLSM and lLSM are exact models of trees that count pages, with the same operations.
//!
//! Counters and simulated time only, but for the row that says how fast the emulator is.

use std::cell::RefCell;
use std::collections::BTreeMap;

use runstone::Result;
use runstone_flash::baseline::{DelayedTree, LightTree};
use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::{KvSsdOptions, Placement};
use runstone_flash::nand::Timing;

use super::context::{Context, Part};
use super::kvssd_runs::{
    Load, ModelOutcome, Outcome, rewriting, run_device, run_engine, run_model,
};
use super::numbers::{falls, is_within, percent_less, percent_more, rises, strokes};
use super::report::PaperReport;

/// Over-provisioning of the paper.
const OVER_PROVISION_PERCENT: u32 = 5;

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let lab = Lab { context, load: Load::uniform(context), done: RefCell::default() };
    let parts: [Part<Lab<'_>>; 7] = [
        ("layers", write_rows),
        ("throughput", throughput_rows),
        ("emulator", emulator_rows),
        ("thresholds", threshold_row),
        ("over-provision", provision_rows),
        ("latest", latest_rows),
        ("baselines", baseline_rows),
    ];
    context.measure(&lab, report, &parts)?;
    let Load { loads, operations, block_count, .. } = lab.load;
    let preset = Timing::PAPER.name;
    report.note(&format!(
        "{loads} loads and {operations} operations on {block_count} blocks; simulated flash of \
         preset {preset}"
    ));
    report.note("LSM: the engine's log is on another device, counted apart");
    report.note("shared and split: where the block SSD puts the pages that it moves");
    if context.is_t1 {
        report.note(
            "T1: an eighth of all sizes, but pages are a quarter, requests and headers whole: \
             less read-modify-write, more bytes per user byte on the device",
        );
    }
    Ok(())
}

/// A run that several parts look at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Run {
    /// The engine on a block SSD that keeps what it moves apart.
    Split,
    /// The engine on one that does not.
    Shared,
    Nlsm,
    /// rLSM(-).
    Mixed,
    Rlsm,
}

/// The family under the uniform distribution: each run is done once, when it is first asked for.
struct Lab<'a> {
    context: &'a Context<'a>,
    load: Load,
    done: RefCell<BTreeMap<Run, Outcome>>,
}

impl Lab<'_> {
    fn runs<const N: usize>(&self, runs: [Run; N]) -> Result<[Outcome; N]> {
        let mut outcomes = [Outcome::default(); N];
        for (run, outcome) in runs.into_iter().zip(&mut outcomes) {
            let found = self.done.borrow().get(&run).copied();
            *outcome = found.map_or_else(|| self.measure(run), Ok)?;
            self.done.borrow_mut().insert(run, *outcome);
        }
        Ok(outcomes)
    }

    fn measure(&self, run: Run) -> Result<Outcome> {
        let (options, percent) = (self.options(), OVER_PROVISION_PERCENT);
        match run {
            Run::Split => self.engine(&self.load, GcFrontier::Split, percent),
            Run::Shared => self.engine(&self.load, GcFrontier::Shared, percent),
            Run::Nlsm => self.device(rewriting(options)),
            Run::Mixed => self.device(KvSsdOptions { placement: Placement::Mixed, ..options }),
            Run::Rlsm => self.device(options),
        }
    }

    fn device(&self, options: KvSsdOptions) -> Result<Outcome> {
        let name = format!("{} with TH {}", options.name(), options.threshold);
        self.context.say(&name);
        run_device(self.context, &self.load, &options)
    }

    fn engine(&self, load: &Load, frontier: GcFrontier, op: u32) -> Result<Outcome> {
        self.context.say(&format!("LSM on a block SSD, {op} percent set aside"));
        run_engine(self.context, load, "fragmented-leveling", frontier, op)
    }

    fn options(&self) -> KvSsdOptions {
        let over_provision_percent = OVER_PROVISION_PERCENT;
        KvSsdOptions { over_provision_percent, ..self.load.device_options() }
    }
}

fn write_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let runs = lab.runs([Run::Split, Run::Shared, Run::Nlsm])?;
    rewrite_rows(report, runs);
    let [split, shared, nlsm] = runs;
    let [mixed, rlsm] = lab.runs([Run::Mixed, Run::Rlsm])?;
    remap_rows(report, [split, shared, nlsm, mixed, rlsm]);
    Ok(())
}

fn rewrite_rows(report: &mut PaperReport, [split, shared, nlsm]: [Outcome; 3]) {
    report.judge(
        "compaction, LSM = nLSM (figure 5b)",
        "17.7 = 17.7",
        format!("{:.2} = {:.2}", split.compaction, nlsm.compaction),
        "within 5%",
        is_within(0.05, split.compaction, nlsm.compaction),
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
    let [least, most] = [split, shared].map(|lsm| percent_less(lsm.total(), nlsm.total()));
    report.judge(
        "all writes, nLSM against LSM (figure 5a)",
        "81% less",
        format!("{least:.0}% / {most:.0}% less"),
        "at least 70% less",
        least >= 70.0,
    );
}

fn remap_rows(report: &mut PaperReport, [split, shared, nlsm, mixed, rlsm]: [Outcome; 5]) {
    let less = percent_less(nlsm.compaction, rlsm.compaction);
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
    let [less, most] = [split, shared].map(|lsm| percent_less(lsm.total(), rlsm.total()));
    report.judge(
        "all writes, LSM (split / shared) -> rLSM (figure 5a)",
        "93 -> 11.4, 88% less",
        format!(
            "{:.1} / {:.1} -> {:.2}, {less:.0}% / {most:.0}% less",
            split.total(),
            shared.total(),
            rlsm.total(),
        ),
        "at least 80% less",
        less >= 80.0,
    );
}

fn throughput_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let [split, shared, nlsm, rlsm] = lab.runs([Run::Split, Run::Shared, Run::Nlsm, Run::Rlsm])?;
    let ratios = [split, shared].map(|lsm| rlsm.operations_per_s / lsm.operations_per_s);
    report.judge(
        "simulated throughput, rLSM / LSM (figure 6a)",
        "up to 4.47",
        strokes(ratios, 2),
        "3.5 to 6 with one of the frontiers",
        ratios.iter().any(|ratio| (3.5..=6.0).contains(ratio)),
    );
    let more = percent_more(nlsm.pages_per_get, rlsm.pages_per_get);
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
    Ok(())
}

fn emulator_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let [rlsm] = lab.runs([Run::Rlsm])?;
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
    Ok(())
}

fn threshold_row(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let mut compaction = Vec::new();
    for threshold in 1..=4 {
        let outcome = match threshold {
            2 => lab.runs([Run::Rlsm])?[0],
            _ => lab.device(KvSsdOptions { threshold, ..lab.options() })?,
        };
        compaction.push(outcome.compaction);
    }
    report.judge(
        "compaction, TH 1 / 2 / 3 / 4 (figure 7a)",
        "falls, ever less",
        strokes(&compaction, 2),
        "falls",
        falls(&compaction),
    );
    Ok(())
}

fn provision_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let [mut lsm, mut rlsm] = lab.runs([Run::Split, Run::Rlsm])?.map(|run| vec![run.gc]);
    for percent in [10, 15] {
        lsm.push(lab.engine(&lab.load, GcFrontier::Split, percent)?.gc);
        let options = KvSsdOptions { over_provision_percent: percent, ..lab.options() };
        rlsm.push(lab.device(options)?.gc);
    }
    report.judge(
        "collection of LSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "falls",
        strokes(&lsm, 2),
        "falls",
        falls(&lsm),
    );
    let (least, most) = rlsm.iter().fold((f64::MAX, 0.0), |(a, b), gc| (gc.min(a), gc.max(b)));
    report.judge(
        "collection of rLSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "flat",
        strokes(&rlsm, 3),
        "within 5%",
        most <= least * 1.05,
    );
    Ok(())
}

fn latest_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let [split, rlsm] = lab.runs([Run::Split, Run::Rlsm])?;
    let load = Load::latest(lab.context);
    lab.context.say("rlsm, records of late");
    let latest = run_device(lab.context, &load, &lab.options())?;
    report.judge(
        "all writes of rLSM, Latest < Uniform (figure 5a)",
        "yes",
        format!("{:.2} < {:.2}", latest.total(), rlsm.total()),
        "lower",
        latest.total() < rlsm.total(),
    );
    let latest = lab.engine(&load, GcFrontier::Split, OVER_PROVISION_PERCENT)?;
    report.judge(
        "all writes of LSM, Latest < Uniform (figure 5a)",
        "yes",
        format!("{:.1} < {:.1}", latest.total(), split.total()),
        "lower",
        latest.total() < split.total(),
    );
    Ok(())
}

/// dLSM delays a compaction until so many tables stand behind a compaction.
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
        let more = [delayed, light].map(|reads| percent_more(plain, reads));
        let [a, b] = more;
        (format!("{plain:.2} -> {delayed:.2}, {a:+.0}% / {light:.2}, {b:+.0}%"), more)
    }
}

/// A model of the plain tree says what the models are worth beside the device. What a get reads
/// more depends on how deep the tree is, so that is also measured at the paper's depth.
fn baseline_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let [nlsm, rlsm] = lab.runs([Run::Nlsm, Run::Rlsm])?;
    lab.context.say("models of dLSM and lLSM");
    let models = Models::measure(&lab.load)?;
    let Models { plain, delayed, light } = &models;
    report.judge(
        "compaction, model of nLSM / nLSM",
        "-",
        format!("{:.2} / {:.2}", plain.compaction, nlsm.compaction),
        "within 15%: what the models are worth",
        is_within(0.15, plain.compaction, nlsm.compaction),
    );
    let order = [light.compaction, rlsm.compaction, delayed.compaction, plain.compaction];
    report.judge(
        "compaction, lLSM < rLSM < dLSM < nLSM (figure 5b)",
        "yes",
        strokes(order, 2),
        "this order",
        rises(&order),
    );
    let (text, more) = models.reads();
    report.judge(
        "pages read per get, nLSM -> dLSM / lLSM (figure 6b)",
        "up to 19% more; lLSM worst",
        text,
        "dLSM at most 19% more, lLSM most",
        more[0] <= 19.0 && more[0] < more[1],
    );
    // T1 is that deep itself.
    if !lab.context.is_t1 {
        let deep = Models::measure(&Load::as_deep_as_the_paper(lab.context))?;
        report.show(
            "the same at the paper's depth, one level more",
            "up to 19% more; lLSM worst",
            deep.reads().0,
            "not the specified workload",
        );
    }
    report.judge(
        "volume that lLSM needs, times the device's (V-B)",
        "more than 1, about 1.3 is enough",
        format!("{:.2}", light.volume),
        "more than 1, at most 1.3",
        1.0 < light.volume && light.volume <= 1.3,
    );
    Ok(())
}
