//! "KVSSD: Close Integration of LSM Trees and Flash Translation Layer" (Wu, Lin, Chang; 2018): the
//! file engine on an emulated block SSD compared with a device that keeps the tree itself.
//!
//! 1. Load records in random order, then insert, update and read at 25, 65 and 10 percent; keys of
//!    24 bytes, values of 1000. Every run gets the same operations. Updates and reads pick any
//!    record (uniform), popular ones (zipfian) or recent ones (latest).
//! 2. `LSM` is the unchanged engine on `blockssd` with its log elsewhere, in memory; `nLSM`,
//!    `rLSM(-)` and `rLSM` are the device. All use one compaction policy with one set of sizes.
//! 3. Layers multiply: compaction x read-modify-write x collection; each run asserts that its
//!    layers account for every program that the flash counted.
//! 4. dLSM and lLSM, which the paper runs on a block SSD, are firmware on the same flash. lLSM gets
//!    a device with room for the pages that its tables reserve.
//! 5. `kvssd_reckoned`: the paper's 15 GB, by counts alone.
//!
//! Only counters and simulated time are used, except in the row for the emulator's own speed.

use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::KvSsdOptions;
use runstone_flash::nand::Timing;
use runstone_kv::Result;
use runstone_plot::Axis;

use super::context::{Context, Part};
use super::kvssd_lab::{
    LLSM_VOLUME, Lab, Run, all_sides, draw_thresholds, judge_if_it_fits, judge_writes, sides,
};
use super::kvssd_reckoned;
use super::kvssd_runs::{
    Draw, Load, OVER_PROVISION_PERCENT, Outcome, appending, delaying, try_device,
};
use super::numbers::{ratio, strokes};
use super::report::{PaperReport, bars_beside, line, rows};
use super::verdict::Rule::*;

rows! {
    COMPACTION_NLSM = "compaction, LSM = nLSM (figure 5b)",
        "17.7 = 17.7" => Alike(0.05);
    READ_MODIFY_WRITE = "read-modify-write, LSM over nLSM (figure 5b)",
        "1.5 / 1" => Ratios(&[1.5]);
    COLLECTION_NLSM = "collection, LSM (the lower of split and shared) over nLSM (figure 5b)",
        "3.6 / 1" => Ratios(&[3.6]);
    WRITES_NLSM = "all writes, nLSM over LSM (split, shared) (figure 5a)",
        "0.19, 81% less" => Ratios(&[0.19]);
    COMPACTION_RLSM = "compaction, rLSM over nLSM (figure 5b)",
        "0.62, 38% less" => Ratios(&[0.62]);
    COLLECTION_RLSM = "collection, rLSM over rLSM(-) (figure 5b)",
        "1.04 / 1.19 = 0.87" => Ratios(&[0.874]);
    COLLECTION_OTHERS = "collection, rLSM over rLSM(-), zipfian; latest",
        "" => Beside("the paper prints it for uniform only");
    FULLNESS = "valid pages of the device at the end, nLSM / rLSM(-) / rLSM, percent",
        "" => Beside("the paper does not print it; its LSM fits where 15% is set aside");
    WRITES_RLSM = "all writes, rLSM over LSM (split, shared) (figure 5a)",
        "11.4 / 93 = 0.12" => Ratios(&[0.12]);
    THROUGHPUT = "simulated throughput, rLSM over LSM (split, shared) (figure 6a)",
        "up to 4.47" => Ratios(&[4.47]);
    PAGES_PER_GET = "pages read per get, metadata included, rLSM over LSM (figure 6b)",
        "up to 1.11" => AtMost(1.11);
    PAGES_IN_MEMORY = "the same, all metadata in memory on both sides",
        "" => Beside("the paper's designs read the metadata of tables from flash");
    EMULATOR = "the emulator: operations of rLSM per second of processor time",
        "" => Beside("the speed of our emulator, not of a device");
    RAM = "RAM of the device for 16 GB: tree, lists, counters, over the paper's (III-E)",
        "2 MB" => AtMost(1.0);
    THRESHOLDS = "compaction, TH 1 / 2 / 3 / 4 (figure 7a)",
        "falls, ever less" => Falls;
    THRESHOLDS_COLLECTION = "collection, TH 1 / 2 / 3 / 4 (figure 7a)",
        "rises" => Rises;
    PROVISION_LSM = "collection of LSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "falls" => Falls;
    PROVISION_RLSM = "collection of rLSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "flat" => Alike(0.05);
    LATEST_RLSM = "all writes of rLSM, Latest < Uniform (figure 5a)",
        "yes" => Rises;
    LATEST_LSM = "all writes of LSM, Latest < Uniform (figure 5a)",
        "yes" => Rises;
    PROVISION_DLSM = "collection of dLSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "falls" => NotComparable("in the paper it runs on a block SSD");
    PROVISION_LLSM = "collection of lLSM, 5 / 10 / 15 percent set aside (figure 7b)",
        "falls" => NotComparable("in the paper it runs on a block SSD");
    PAGES_DLSM = "pages read per get, metadata included, dLSM over LSM (figure 6b)",
        "up to 1.19" => AtMost(1.19);
    ORDER = "compaction over that of nLSM, lLSM < rLSM < dLSM < nLSM (figure 5b)",
        "yes" => Rises;
    ORDER_PAGES = "pages read per get over LSM, rLSM < dLSM < lLSM (figure 6b)",
        "1.11 < 1.19 < more" => Rises;
    WRITES_LLSM = "all writes, rLSM over lLSM",
        "" => Beside("the paper's lLSM pays for a block SSD below it");
    VOLUME = "volume that lLSM needs, times the device's (IV-B)",
        "more than 1, about 1.3 is enough" => Ratios(&[1.3]);
    VOLUMES_WRITES = "all writes of lLSM by volume, merging tables where it is full",
        "" => Beside("the paper's lLSM does not merge tables to make room");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let lab = Lab::new(context);
    let parts: [Part<Lab<'_>>; 8] = [
        ("layers", write_rows),
        ("throughput", throughput_rows),
        ("emulator", emulator_rows),
        ("thresholds", threshold_rows),
        ("over-provision", provision_rows),
        ("latest", latest_rows),
        ("baselines", baseline_rows),
        ("reckoned", kvssd_reckoned::run),
    ];
    context.measure(&lab, report, &parts)?;
    let Load { loads, operations, block_count, .. } = lab.load(Draw::Uniform);
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

/// Selects the number of a run that a figure shows.
type Figure = fn(&Outcome) -> f64;

fn write_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&sides(lab), &[])?;
    let runs = lab.runs([Run::Split, Run::Shared, Run::Nlsm])?;
    rewrite_rows(report, runs);
    let [split, shared, nlsm] = runs;
    let [mixed, rlsm] = lab.runs([Run::Mixed, Run::Rlsm])?;
    remap_rows(report, [split, shared, nlsm, mixed, rlsm]);
    let percent = [nlsm, mixed, rlsm].map(|run| 100.0 * run.fullness);
    report.show(FULLNESS, strokes(percent, 1));
    let mut others = Vec::new();
    for draw in [Draw::Zipfian, Draw::Latest] {
        let [mixed, rlsm] = lab.runs_of(draw, [Run::Mixed, Run::Rlsm])?;
        others.push(ratio(rlsm.gc, mixed.gc, 3, "").0);
    }
    report.show(COLLECTION_OTHERS, others.join("; "));
    let runs = lab.runs(Run::ALL)?;
    let layers: [(&str, usize, Figure); 3] = [
        ("compaction", 0, |run| run.compaction),
        ("read-modify-write", 1, |run| run.rmw),
        ("collection", 2, |run| run.gc),
    ];
    let layers = layers.map(|(name, at, of)| {
        bars_beside(name, runs.iter().map(of), Run::ALL.map(|run| run.printed()[at]))
    });
    let titles = ["Writes by layer, which multiply", "design", "bytes per byte of the layer above"];
    report.draw_bars("figure-5b", titles, Run::ALL.map(Run::name), layers.into());
    Ok(())
}

fn rewrite_rows(report: &mut PaperReport, [split, shared, nlsm]: [Outcome; 3]) {
    report.judge(
        COMPACTION_NLSM,
        format!("{:.2} = {:.2}", split.compaction, nlsm.compaction),
        &[split.compaction, nlsm.compaction],
    );
    report.judge(
        READ_MODIFY_WRITE,
        format!("{:.3} / {:.3}", split.rmw, nlsm.rmw),
        &[split.rmw / nlsm.rmw],
    );
    report.judge(
        COLLECTION_NLSM,
        format!("split {:.2}, shared {:.2} / {:.3}", split.gc, shared.gc, nlsm.gc),
        &[split.gc.min(shared.gc) / nlsm.gc],
    );
    judge_writes(report, WRITES_NLSM, [nlsm, split, shared].map(|run| run.total()));
}

fn remap_rows(report: &mut PaperReport, [split, shared, nlsm, mixed, rlsm]: [Outcome; 5]) {
    let (text, of_all) = ratio(rlsm.compaction, nlsm.compaction, 2, "");
    report.judge(COMPACTION_RLSM, text, &[of_all]);
    let (text, of_all) = ratio(rlsm.gc, mixed.gc, 3, "");
    report.judge(COLLECTION_RLSM, text, &[of_all]);
    judge_writes(report, WRITES_RLSM, [rlsm, split, shared].map(|run| run.total()));
}

fn throughput_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&sides(lab), &[])?;
    let [split, shared, nlsm, rlsm] = lab.runs([Run::Split, Run::Shared, Run::Nlsm, Run::Rlsm])?;
    let ratios = [split, shared].map(|lsm| rlsm.operations_per_s / lsm.operations_per_s);
    report.judge(THROUGHPUT, strokes(ratios, 2), &[ratios[0].min(ratios[1])]);
    let pages = |of: Figure| {
        let [lsm, nlsm, rlsm] = [split, nlsm, rlsm].map(|run| of(&run));
        let text = format!("LSM {lsm:.2}, nLSM {nlsm:.2}, rLSM {rlsm:.2}: {:.2}", rlsm / lsm);
        (text, rlsm / lsm)
    };
    let (text, over_lsm) = pages(|run| run.pages_per_get);
    report.judge(PAGES_PER_GET, text, &[over_lsm]);
    report.show(PAGES_IN_MEMORY, pages(|run| run.pages_per_get - run.meta_pages_per_get).0);
    Ok(())
}

fn emulator_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&[lab.load(Draw::Uniform).device_side(&lab.options())], &[])?;
    let [rlsm] = lab.runs([Run::Rlsm])?;
    report.show(EMULATOR, format!("{:.0}", rlsm.emulated_per_cpu_s));
    let ram_mib = rlsm.ram_bytes_per_16_gb / f64::from(1 << 20);
    report.judge(RAM, format!("{ram_mib:.2} MB, scaled from this device"), &[ram_mib / 2.0]);
    Ok(())
}

fn threshold_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let load = lab.load(Draw::Uniform);
    let of = |threshold| KvSsdOptions { threshold, ..lab.options() };
    report.compare(&[1, 2, 3, 4].map(|threshold| load.device_side(&of(threshold))), &[])?;
    let (mut compaction, mut collection) = (Vec::new(), Vec::new());
    for threshold in 1..=4 {
        let outcome = match threshold {
            2 => lab.runs([Run::Rlsm])?[0],
            _ => lab.device(&load, of(threshold))?,
        };
        compaction.push(outcome.compaction);
        collection.push(outcome.gc);
    }
    report.judge(THRESHOLDS, strokes(&compaction, 2), &compaction);
    report.judge(THRESHOLDS_COLLECTION, strokes(&collection, 3), &collection);
    let title = "Compaction and collection of rLSM";
    draw_thresholds(report, ["figure-7a", title], [compaction, collection]);
    Ok(())
}

/// Compares the percentages of over-provisioning. At each of them, lLSM gets enough flash for the
/// same volume.
fn provision_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&all_sides(lab), &["blocks"])?;
    let first = lab.runs([Run::Split, Run::Rlsm, Run::Dlsm, Run::Llsm])?;
    let [lsm, mut rlsm, mut dlsm, mut llsm] = first.map(|run| vec![run.gc]);
    let load = lab.load(Draw::Uniform);
    let more = [10, 15].map(|percent| Ok(lab.engine(&load, GcFrontier::Split, percent)?.gc));
    let lsm = judge_if_it_fits(report, PROVISION_LSM, lsm[0], more.into_iter().collect())?;
    for percent in [10, 15] {
        let options = KvSsdOptions { over_provision_percent: percent, ..lab.options() };
        rlsm.push(lab.device(&load, options.clone())?.gc);
        dlsm.push(lab.device(&load, delaying(options.clone()))?.gc);
        let larger = LLSM_VOLUME * f64::from(100 - OVER_PROVISION_PERCENT);
        let larger = load.times(larger / f64::from(100 - percent));
        llsm.push(lab.device(&larger, appending(options))?.gc);
    }
    report.judge(PROVISION_RLSM, strokes(&rlsm, 3), &rlsm);
    report.show(PROVISION_DLSM, strokes(&dlsm, 3));
    report.show(PROVISION_LLSM, strokes(&llsm, 3));
    let designs = [("LSM (split)", lsm), ("dLSM", dlsm), ("lLSM", llsm), ("rLSM", rlsm)];
    let lines = designs.map(|(name, values)| line(name, [5.0, 10.0, 15.0].into_iter().zip(values)));
    let (x, y) = (Axis::linear("set aside, %"), "bytes per byte of the layer above");
    report.draw_lines("figure-7b", "Collection", x, y, lines.into());
    Ok(())
}

fn latest_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&sides(lab), &[])?;
    for (row, run, digits) in [(LATEST_RLSM, Run::Rlsm, 2), (LATEST_LSM, Run::Split, 1)] {
        let [latest] = lab.runs_of(Draw::Latest, [run])?;
        let [uniform] = lab.runs([run])?;
        let (latest, uniform) = (latest.total(), uniform.total());
        let text = format!("{latest:.digits$} < {uniform:.digits$}");
        report.judge(row, text, &[latest, uniform]);
    }
    draw_loads(lab, report)
}

/// Figures 5a and 6: every design under every distribution.
fn draw_loads(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let mut loads = Vec::new();
    for draw in Draw::ALL {
        loads.push((draw, lab.runs_of(draw, Run::ALL)?));
    }
    let figures: [(_, _, Figure); 3] = [
        ("figure-5a", ["All writes", "design", "flash bytes per byte of the user"], Outcome::total),
        ("figure-6a", ["Throughput", "design", "operations per simulated second"], |run| {
            run.operations_per_s
        }),
        ("figure-6b", ["Pages read per get", "design", "pages"], |run| run.pages_per_get),
    ];
    for (name, titles, of) in figures {
        let printed = |draw: Draw| match (name, draw) {
            ("figure-5a", Draw::Uniform) => Run::ALL.map(|run| run.printed()[3]).to_vec(),
            _ => Vec::new(),
        };
        let all = loads
            .iter()
            .map(|(draw, runs)| bars_beside(draw.name(), runs.iter().map(of), printed(*draw)));
        report.draw_bars(name, titles, Run::ALL.map(Run::name), all.collect());
    }
    Ok(())
}

/// Volumes that are tried for lLSM, ascending.
const VOLUMES: [f64; 5] = [1.0, 1.1, 1.2, LLSM_VOLUME, 1.4];

/// Compares dLSM and lLSM with the others, and measures the volume that lLSM needs.
fn baseline_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    report.compare(&all_sides(lab), &["blocks"])?;
    let runs = [Run::Split, Run::Nlsm, Run::Dlsm, Run::Llsm, Run::Rlsm];
    let [split, nlsm, dlsm, llsm, rlsm] = lab.runs(runs)?;
    let (text, over_lsm) = ratio(dlsm.pages_per_get, split.pages_per_get, 2, "");
    report.judge(PAGES_DLSM, text, &[over_lsm]);
    let order = [llsm, rlsm, dlsm, nlsm].map(|one| one.compaction / nlsm.compaction);
    report.judge(ORDER, strokes(order, 3), &order);
    let order = [rlsm, dlsm, llsm].map(|one| one.pages_per_get / split.pages_per_get);
    report.judge(ORDER_PAGES, strokes(order, 2), &order);
    report.show(WRITES_LLSM, ratio(rlsm.total(), llsm.total(), 2, "").0);
    volume_rows(lab, report)
}

/// The paper's lLSM is full when its tables have reserved everything. Here the firmware then merges
/// tables until they are three quarters full, and only then refuses.
fn volume_rows(lab: &Lab<'_>, report: &mut PaperReport) -> Result<()> {
    let load = lab.load(Draw::Uniform);
    let (mut enough, mut texts) = (f64::NAN, Vec::new());
    for volume in VOLUMES {
        lab.context.say(&format!("lLSM on {volume} times the device"));
        let options = appending(lab.options());
        let run = try_device(lab.context, &load.times(volume), &options)?;
        texts.push(match &run {
            Ok(run) => format!("{volume}: {:.2}, merging {} times", run.total(), run.squeezes),
            Err(_) => format!("{volume}: full"),
        });
        if run.is_ok_and(|run| run.squeezes == 0) {
            enough = volume;
            break;
        }
    }
    report.judge(VOLUME, format!("{enough:.1} without merging, in steps of 0.1"), &[enough]);
    report.show(VOLUMES_WRITES, texts.join("; "));
    Ok(())
}
