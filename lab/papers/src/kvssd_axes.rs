//! What two axes of the engine would save on a KVSSD whose firmware does not have them: values
//! apart from keys, and levels of several runs.
//!
//! 1. Values apart: the device with pointers of 16 bytes in place of the values gives what the tree
//!    writes. A log that takes each value once is a page-mapped device whose pages are records,
//!    with the blocks that the pointers leave; about one record in eight, in blocks of an eighth.
//!    It gives what collection copies. A moved value writes its pointer anew, unless addresses are
//!    stable, as those of hash groups are.
//! 2. Levels of several runs: strata are runs, and a higher TH lets a table have more of them.

use std::collections::BTreeMap;

use runstone::Result;
use runstone_flash::ftl::{Ftl, FtlOptions, HOST_BLOCK_BYTES};
use runstone_flash::kvssd::KvSsdOptions;
use runstone_flash::nand::{Geometry, MemoryImage, Timing};

use super::context::Context;
use super::kvssd_runs::{Load, Outcome, failed, run_device};
use super::numbers::strokes;
use super::report::{PaperReport, rows};
use super::verdict::Rule::*;

rows! {
    VALUES = "values apart: the pointers' writes per user byte; collection of a log of values",
        "" => NotComparable("not in the paper; the log is not in the firmware");
    VALUES_WRITES = "all writes, values inside / apart at stable addresses / pointers written back",
        "" => NotComparable("not in the paper; the sum of parts that were measured");
    VALUES_PAGES = "pages read per get, values inside / apart",
        "" => NotComparable("not in the paper; metadata included");
    RUNS = "TH 2 / 4 / 8 / 16: all writes; pages read per get; operations per simulated second",
        "" => NotComparable("not in the paper, which ends at 4");
}

/// About one record in so many is in the log.
const SAMPLE: u32 = 8;
/// Blocks of the device that the tree of pointers takes, its room to work included.
const POINTER_BLOCKS: u32 = 40;

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    value_rows(context, report)?;
    let load = Load::half(context);
    let mut runs = Vec::new();
    for threshold in [2, 4, 8, 16] {
        context.say(&format!("rLSM with TH {threshold}"));
        let options = KvSsdOptions { threshold, ..load.device_options() };
        runs.push(run_device(context, &load, &options)?);
    }
    let line = |pick: fn(&Outcome) -> f64, digits| strokes(runs.iter().map(pick), digits);
    let (writes, pages) = (line(Outcome::total, 2), line(|run| run.pages_per_get, 2));
    report.show(RUNS, format!("{writes}; {pages}; {}", line(|run| run.operations_per_s, 0)));
    Ok(())
}

fn value_rows(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let load = Load::roomy(context);
    context.say("values inside, then pointers, then a log of values");
    let inside = run_device(context, &load, &load.device_options())?;
    let small = load.with_pointers();
    let pointers = run_device(context, &small, &small.device_options())?;
    let of_pointers = pointers.total() * small.user_bytes() as f64 / load.user_bytes() as f64;
    let collection = log_collection(&load)?;
    report.show(VALUES, format!("{of_pointers:.2}; {collection:.2}"));
    let of_values = collection * load.record_bytes() as f64 / load.user_bytes() as f64;
    let apart = [of_values + of_pointers, of_values + of_pointers * collection];
    report.show(VALUES_WRITES, strokes([inside.total(), apart[0], apart[1]], 2));
    report.show(VALUES_PAGES, strokes([inside.pages_per_get, pointers.pages_per_get + 1.0], 2));
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
