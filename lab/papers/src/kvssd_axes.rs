//! Measures two further axes of the engine on a KVSSD. Its firmware has separated values, and also
//! levels of several runs: as strata, or under tiering.
//!
//! 1. What separated values would save was estimated before they were built, from two parts. The
//!    device with pointers of 16 bytes in place of the values gives the writes of the tree. The
//!    copies of collections come from a model of a log that receives each value once: a page-mapped
//!    device whose pages are records, on the blocks that the pointers leave free. The model has
//!    about one record in eight, and blocks an eighth as large. The sum is still shown next to the
//!    measured figure.
//! 2. The device itself keeps the values, in a log or in groups. Measured are its writes, and the
//!    pages that it reads per get and per entry of a scan. A second run only updates, which ages
//!    the stream of values.
//! 3. All axes at once are measured: Garnering, Global-Range, optimal filters, values in groups.
//! 4. Levels of several runs are a part of their own: strata are runs, and with a higher TH a table
//!    may have more of them; under `tiering` a level has several runs.

use std::collections::BTreeMap;

use runstone_flash::ftl::{Ftl, FtlOptions, HOST_BLOCK_BYTES};
use runstone_flash::kvssd::{
    Direction, FilterAllocation, KvSsd, KvSsdOptions, Partitioner, ValuePlacement,
};
use runstone_flash::nand::{Geometry, MemoryImage, Timing};
use runstone_kv::Result;
use runstone_simulator::flash::FlashDesign;
use runstone_workloads::generators::Rng;

use super::context::Context;
use super::kvssd_reckoned::{all, count_under};
use super::kvssd_runs::{Load, OVER_PROVISION_PERCENT, Outcome, failed, run_device};
use super::numbers::strokes;
use super::report::{PaperReport, rows};
use super::verdict::Rule::*;

rows! {
    PARTS = "values apart, reckoned: the pointers' writes per user byte; collection of a log",
        "" => Beside("not in the paper; parts of the next row");
    VALUES_WRITES = "all writes, values inside / in a log / in groups; a log as reckoned",
        "" => Beside("not in the paper; measured on the device, but for the last");
    VALUES_PAGES = "pages read per get, the same; as reckoned",
        "" => Beside("not in the paper; metadata included");
    VALUES_SPEED = "operations per simulated second, values inside / in a log / in groups",
        "" => Beside("not in the paper");
    VALUES_SCANS = "pages read per entry of scans of 100, the same",
        "" => Beside("not in the paper; half of the records, none updated");
    VALUES_AGED = "all writes of updates alone, values in a log / in groups",
        "" => Beside("not in the paper; each record is written four times again");
    ALL = "Garnering, Global-Range, optimal filters, groups: all writes; pages per get; speed",
        "" => Beside("not in the paper: the five papers in one device");
    STRATA = "TH 2 / 4 / 8 / 16: all writes; pages read per get; operations per simulated second",
        "" => Beside("not in the paper, which ends at 4");
    TIERING = "tiering, T = {}, TH 0 / 2 / 4 / 10: the same",
        "" => Beside("not in the paper: its device has a run in a level");
    TIERING_RECKONED = "all writes by counts, rLSM / tiering, TH 2 / 4; then 15 GB half full",
        "" => Beside("not in the paper; the model of the rows at 15 GB");
    TIERING_FILTERED = "tiering, T = 10, with filters, TH 0 / 2 / 4 / 10: the same",
        "" => Beside("not in the paper, whose device has no filters");
}

/// The model of the log has about one record in this many.
const SAMPLE: u32 = 8;
/// Blocks of the device that the tree of pointers needs, including its room to work.
const POINTER_BLOCKS: u32 = 40;
/// Bytes from which values are separated: all of them, at either scale.
const VALUES_FROM: u32 = 64;
/// Scans that are measured, and their entries.
const SCANS: u64 = 200;
const SCAN_ENTRIES: u32 = 100;

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    value_rows(context, report)?;
    scan_rows(context, report)?;
    aged_rows(context, report)?;
    all_row(context, report)
}

pub(super) fn run_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::half(context);
    let mut show = |row, name: &str, base: &KvSsdOptions, thresholds: [u8; 4]| -> Result<()> {
        let mut runs = Vec::new();
        for threshold in thresholds {
            context.say(&format!("{name}, TH {threshold}"));
            let options = KvSsdOptions { threshold, ..base.clone() };
            runs.push(run_device(context, &load, &options)?);
        }
        let line = |pick: fn(&Outcome) -> f64, digits| strokes(runs.iter().map(pick), digits);
        let (writes, pages) = (line(Outcome::total, 2), line(|run| run.pages_per_get, 2));
        report.show(row, format!("{writes}; {pages}; {}", line(|run| run.operations_per_s, 0)));
        Ok(())
    };
    let leveled = load.device_options();
    show(STRATA, "one run in a level", &leveled, [2, 4, 8, 16])?;
    let tiered = KvSsdOptions { policy: "tiering".into(), ..leveled };
    for size_ratio in [10, 4] {
        let (row, options) =
            (TIERING.of(&[&size_ratio]), KvSsdOptions { size_ratio, ..tiered.clone() });
        show(row, &format!("tiering, T = {size_ratio}"), &options, [0, 2, 4, 10])?;
    }
    let filtered = KvSsdOptions { filters: FilterAllocation::Uniform, ..tiered };
    show(TIERING_FILTERED, "tiering with filters", &filtered, [0, 2, 4, 10])?;
    reckoned_row(context, &load, report)
}

/// Adds a row for levels of runs by counts: for the devices of the rows above, then at the
/// paper's 15 GB.
fn reckoned_row(context: &Context<'_>, load: &Load, report: &mut PaperReport) -> Result<()> {
    let mut texts = Vec::new();
    for load in [load, &Load::paper(context).halved()] {
        let mut totals = Vec::new();
        for (policy, threshold) in [("fragmented-leveling", 2), ("tiering", 2), ("tiering", 4)] {
            context.say(&format!("{} records by counts: {policy}, TH {threshold}", load.loads));
            let design = FlashDesign::Rlsm { threshold };
            totals.push(all(count_under(policy, load, design, OVER_PROVISION_PERCENT)?));
        }
        texts.push(strokes(totals, 2));
    }
    report.show(TIERING_RECKONED, texts.join("; "));
    Ok(())
}

fn value_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    context.say("values inside, in a log, in groups");
    let mut runs = Vec::new();
    for values in ValuePlacement::ALL {
        runs.push(run_device(context, &load, &placed(&load, values))?);
    }
    context.say("pointers, then a log of values");
    let small = load.with_pointers();
    let pointers = run_device(context, &small, &small.device_options())?;
    let of_pointers = pointers.total() * small.user_bytes() as f64 / load.user_bytes() as f64;
    let collection = log_collection(&load)?;
    report.show(PARTS, format!("{of_pointers:.2}; {collection:.2}"));
    let of_values = collection * load.record_bytes() as f64 / load.user_bytes() as f64;
    let line = |pick: fn(&Outcome) -> f64, digits| strokes(runs.iter().map(pick), digits);
    let (writes, reckoned) = (line(Outcome::total, 2), of_values + of_pointers);
    report.show(VALUES_WRITES, format!("{writes}; {reckoned:.2}"));
    let (pages, reckoned) = (line(|run| run.pages_per_get, 2), pointers.pages_per_get + 1.0);
    report.show(VALUES_PAGES, format!("{pages}; {reckoned:.2}"));
    report.show(VALUES_SPEED, line(|run| run.operations_per_s, 0));
    Ok(())
}

/// The options of the device with its values in this placement.
fn placed(load: &Load, values: ValuePlacement) -> KvSsdOptions {
    KvSsdOptions { values, values_from: VALUES_FROM, ..load.device_options() }
}

fn scan_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::half(context);
    let mut pages = Vec::new();
    for values in ValuePlacement::ALL {
        context.say(&format!("scans, values {}", values.name()));
        pages.push(pages_per_entry(&load, &placed(&load, values))?);
    }
    report.show(VALUES_SCANS, strokes(pages, 2));
    Ok(())
}

/// Pages that scans from these keys read for each entry.
fn pages_per_entry(load: &Load, options: &KvSsdOptions) -> Result<f64> {
    let mut device = load.filled_device(options)?;
    let reads = |device: &KvSsd| device.nand().counters().total().reads;
    let (before, mut entries) = (reads(&device), 0);
    for at in 0..SCANS {
        let mut left = SCAN_ENTRIES;
        let from = load.key(at * load.loads / SCANS);
        let mut visit = |_: &[u8], _: &[u8]| {
            (entries, left) = (entries + 1, left - 1);
            left > 0
        };
        device.scan(Some(&from), Direction::Forward, u64::MAX, &mut visit).map_err(failed)?;
    }
    Ok((reads(&device) - before) as f64 / f64::from(entries))
}

fn aged_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::half(context);
    let mut writes = Vec::new();
    for values in [ValuePlacement::Log, ValuePlacement::Groups] {
        context.say(&format!("updates alone, values {}", values.name()));
        let mut device = load.filled_device(&placed(&load, values))?;
        let before = device.write_amplification();
        let (mut rng, value) = (Rng::new(3), load.value());
        for _ in 0..4 * load.loads {
            device.put(&load.key(rng.below(load.loads)), &value).map_err(failed)?;
        }
        let after = device.write_amplification();
        let flash_bytes = after.flash_bytes - before.flash_bytes;
        writes.push(flash_bytes as f64 / (after.user_bytes - before.user_bytes) as f64);
    }
    report.show(VALUES_AGED, strokes(writes, 2));
    Ok(())
}

fn all_row(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    context.say("Garnering, Global-Range, optimal filters and groups");
    let options = KvSsdOptions {
        policy: "garnering".into(),
        cuts: Partitioner::GlobalRange,
        filters: FilterAllocation::Optimal,
        ..placed(&load, ValuePlacement::Groups)
    };
    let run = run_device(context, &load, &options)?;
    let (writes, pages, speed) = (run.total(), run.pages_per_get, run.operations_per_s);
    report.show(ALL, format!("{writes:.2}; {pages:.2}; {speed:.0}"));
    Ok(())
}

/// Programs per record of a log of records that is collected greedily.
fn log_collection(load: &Load) -> Result<f64> {
    let block_bytes = Geometry::default().block_bytes();
    let geometry = Geometry {
        page_bytes: HOST_BLOCK_BYTES,
        block_pages: (block_bytes / load.record_bytes()) as u32 / SAMPLE,
        block_count: load.block_count - POINTER_BLOCKS.min(load.block_count / 8),
        ..Geometry::default()
    };
    let image = Box::new(MemoryImage::new());
    let made = Ftl::create(image, geometry, Timing::PAPER, FtlOptions::default());
    let mut log = made.map_err(failed)?;
    let (mut slots, record) = (BTreeMap::new(), vec![0; HOST_BLOCK_BYTES as usize]);
    load.run(|key, value| {
        let is_drawn = key.iter().map(|digit| u32::from(*digit)).sum::<u32>() % SAMPLE == 0;
        if value.is_some() && is_drawn {
            let next = slots.len() as u64;
            let slot = *slots.entry(key.to_vec()).or_insert(next);
            log.write(slot, &record).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok(log.write_amplification().gc_milli() as f64 / 1000.0)
}
