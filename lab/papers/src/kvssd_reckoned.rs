//! Figures 5a, 5b and 7 at the paper's own 15 GB, by counts alone: the simulator of flash, with the
//! paper's 10 million loads and 5 million operations. First the same model is compared with the
//! firmware and the block SSD, at their scale.

use runstone_kv::{Error, Result};
use runstone_policy::registry;
use runstone_simulator::flash::{FlashDesign, FlashError, FlashSimulator};

use super::kvssd_lab::{Lab, Run, draw_thresholds, judge_if_it_fits, judge_writes, sides};
use super::kvssd_runs::{Draw, Load, OVER_PROVISION_PERCENT};
use super::numbers::{ratio, strokes};
use super::report::{PaperReport, bars_beside, rows};
use super::verdict::Rule::*;

rows! {
    MODEL = "all writes by counts over the devices': LSM (split, shared), nLSM, rLSM(-), rLSM",
        "the devices'; within 10%" => AtMost(1.1);
    MODEL_COMPACTION = "compaction by counts over the devices', the same designs",
        "the devices'; within 10%" => AtMost(1.1);
    MODEL_COLLECTION = "collection by counts over the devices', the same designs",
        "the devices'; within 10%" => AtMost(1.1);
    COMPACTION_NLSM = "compaction at 15 GB by counts, LSM = nLSM (figure 5b)",
        "17.7 = 17.7" => Alike(0.05);
    READ_MODIFY_WRITE = "read-modify-write at 15 GB by counts, LSM over nLSM (figure 5b)",
        "1.5 / 1" => Ratios(&[1.5]);
    COLLECTION_NLSM = "collection at 15 GB by counts, LSM (the lower) over nLSM (figure 5b)",
        "3.6 / 1" => Ratios(&[3.6]);
    WRITES_NLSM = "all writes at 15 GB by counts, nLSM over LSM (split, shared) (figure 5a)",
        "17.7 / 93 = 0.19" => Ratios(&[0.19]);
    COMPACTION_RLSM = "compaction at 15 GB by counts, rLSM over nLSM (figure 5b)",
        "0.62, 38% less" => Ratios(&[0.62]);
    COLLECTION_RLSM = "collection at 15 GB by counts, rLSM over rLSM(-) (figure 5b)",
        "1.04 / 1.19 = 0.87" => Ratios(&[0.874]);
    COLLECTION_FULLER = "the same on fewer blocks: 3,576 (15e9 bytes), 3,500",
        "" => Beside("the paper prints one size");
    WRITES_RLSM = "all writes at 15 GB by counts, rLSM over LSM (split, shared) (figure 5a)",
        "11.4 / 93 = 0.12" => Ratios(&[0.12]);
    THRESHOLDS = "compaction at 15 GB by counts, TH 1 / 2 / 3 / 4 (figure 7a)",
        "falls, ever less" => Falls;
    THRESHOLDS_COLLECTION = "collection at 15 GB by counts, TH 1 / 2 / 3 / 4 (figure 7a)",
        "rises" => Rises;
    PROVISION_LSM = "collection of LSM at 15 GB by counts, 5 / 10 / 15% set aside (figure 7b)",
        "falls" => Falls;
}

const POLICY: &str = "fragmented-leveling";
const DESIGNS: [(Run, FlashDesign); 5] = [
    (Run::Split, FlashDesign::Lsm { is_split: true }),
    (Run::Shared, FlashDesign::Lsm { is_split: false }),
    (Run::Nlsm, FlashDesign::Nlsm),
    (Run::Mixed, FlashDesign::Mixed { threshold: 2 }),
    (Run::Rlsm, FlashDesign::Rlsm { threshold: 2 }),
];

pub(super) fn run(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&sides(lab), &[])?;
    beside_the_devices(lab, report)?;
    at_15_gb(lab, report)
}

/// The factors of compaction, read-modify-write and collection.
pub(super) type Layers = [f64; 3];

pub(super) fn all(layers: Layers) -> f64 {
    layers.iter().product()
}

/// Runs the workload by counts.
fn count(load: &Load, design: FlashDesign, set_aside_percent: u32) -> Result<Layers> {
    count_under(POLICY, load, design, set_aside_percent)
}

/// Does the same under a policy.
pub(super) fn count_under(
    policy: &str,
    load: &Load,
    design: FlashDesign,
    set_aside_percent: u32,
) -> Result<Layers> {
    let full = |error: FlashError| match error {
        FlashError::Setup(what) => Error::invalid(what, "this is a bug of the laboratory"),
        full => Error::Foreign { engine: "flash by counts".into(), what: full.to_string() },
    };
    let setup = load.flash_setup(policy, design, set_aside_percent);
    let policy = registry::find(policy).expect("it is in the registry");
    let mut flash = FlashSimulator::new(policy, setup).map_err(full)?;
    load.run_numbers(|number, written| match written {
        Some(_) => flash.put(number).map_err(full),
        None => Ok(()),
    })?;
    Ok(flash.costs().layers_permille().map(|permille| permille as f64 / 1000.0))
}

fn beside_the_devices(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let load = lab.load(Draw::Uniform);
    let devices = lab.runs(DESIGNS.map(|(run, _)| run))?;
    let [mut whole, mut compaction, mut collection] = [const { Vec::new() }; 3];
    for ((_, design), device) in DESIGNS.into_iter().zip(devices) {
        let counted = count(&load, design, OVER_PROVISION_PERCENT)?;
        whole.push(all(counted) / device.total());
        compaction.push(counted[0] / device.compaction);
        collection.push(counted[2] / device.gc);
    }
    let rows = [(MODEL, whole), (MODEL_COMPACTION, compaction), (MODEL_COLLECTION, collection)];
    for (row, ratios) in rows {
        let apart: Vec<f64> = ratios.iter().map(|ratio| ratio.max(ratio.recip())).collect();
        report.judge(row.uncounted(), strokes(&ratios, 2), &apart);
    }
    Ok(())
}

fn at_15_gb(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::paper(lab.context);
    let mut seen = [[0.0; 3]; 5];
    for ((run, design), seen) in DESIGNS.into_iter().zip(&mut seen) {
        lab.context.say(&format!("15 GB by counts: {}", run.name()));
        *seen = count(&load, design, OVER_PROVISION_PERCENT)?;
    }
    let [split, shared, nlsm, mixed, rlsm] = seen;
    let both = format!("{:.2} = {:.2}", split[0], nlsm[0]);
    report.judge(COMPACTION_NLSM.uncounted(), both, &[split[0], nlsm[0]]);
    let strokes3 = format!("{:.3} / {:.3}", split[1], nlsm[1]);
    report.judge(READ_MODIFY_WRITE.uncounted(), strokes3, &[split[1] / nlsm[1]]);
    let texts = format!("split {:.2}, shared {:.2} / {:.3}", split[2], shared[2], nlsm[2]);
    report.judge(COLLECTION_NLSM.uncounted(), texts, &[split[2].min(shared[2]) / nlsm[2]]);
    judge_writes(report, WRITES_NLSM.uncounted(), [nlsm, split, shared].map(all));
    let (text, of_all) = ratio(rlsm[0], nlsm[0], 2, "");
    report.judge(COMPACTION_RLSM.uncounted(), text, &[of_all]);
    let (text, of_all) = ratio(rlsm[2], mixed[2], 3, "");
    report.judge(COLLECTION_RLSM.uncounted(), text, &[of_all]);
    judge_writes(report, WRITES_RLSM.uncounted(), [rlsm, split, shared].map(all));
    let printed = |at: usize| DESIGNS.map(|(run, _)| run.printed()[at]);
    let named = ["compaction", "read-modify-write", "collection"].into_iter().enumerate();
    let bars = named
        .map(|(at, name)| bars_beside(name, seen.iter().map(|layers| layers[at]), printed(at)));
    let titles = ["Writes by layer at 15 GB, by counts", "design", "bytes per byte above"];
    let names = DESIGNS.map(|(run, _)| run.name());
    report.draw_bars("figure-5b-15-gb", titles, names, bars.collect());
    fuller(lab, &load, report)?;
    thresholds(lab, &load, rlsm, report)?;
    provision(lab, &load, split, report)
}

/// Adds rows for the share of space that is set aside.
fn provision(lab: &Lab<'_>, load: &Load, split: Layers, report: &mut PaperReport) -> Result<()> {
    let more = [10, 15].map(|percent| {
        lab.context.say(&format!("15 GB by counts: LSM (split), {percent} percent set aside"));
        count(load, FlashDesign::Lsm { is_split: true }, percent).map(|layers| layers[2])
    });
    let more: Result<Vec<f64>> = more.into_iter().collect();
    judge_if_it_fits(report, PROVISION_LSM.uncounted(), split[2], more)?;
    Ok(())
}

/// Shows the gain from separating hot and cold data if there is less room.
fn fuller(lab: &Lab<'_>, load: &Load, report: &mut PaperReport) -> Result<()> {
    let mut texts = Vec::new();
    for blocks in [3576.0, 3500.0] {
        lab.context.say(&format!("{blocks} blocks by counts"));
        let load = load.times(blocks / 3840.0);
        let [mixed, rlsm] =
            [FlashDesign::Mixed { threshold: 2 }, FlashDesign::Rlsm { threshold: 2 }]
                .map(|design| count(&load, design, OVER_PROVISION_PERCENT));
        texts.push(ratio(rlsm?[2], mixed?[2], 3, "").0);
    }
    report.show(COLLECTION_FULLER, texts.join("; "));
    Ok(())
}

fn thresholds(lab: &Lab<'_>, load: &Load, rlsm: Layers, report: &mut PaperReport) -> Result<()> {
    let (mut compaction, mut collection) = (Vec::new(), Vec::new());
    for threshold in 1..=4 {
        lab.context.say(&format!("15 GB by counts: TH {threshold}"));
        let layers = match threshold {
            2 => rlsm,
            _ => count(load, FlashDesign::Rlsm { threshold }, OVER_PROVISION_PERCENT)?,
        };
        compaction.push(layers[0]);
        collection.push(layers[2]);
    }
    report.judge(THRESHOLDS.uncounted(), strokes(&compaction, 2), &compaction);
    report.judge(THRESHOLDS_COLLECTION.uncounted(), strokes(&collection, 3), &collection);
    let titles = ["figure-7a-15-gb", "rLSM at 15 GB, by counts"];
    draw_thresholds(report, titles, [compaction, collection]);
    Ok(())
}
