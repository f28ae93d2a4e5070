//! Three results with their causes turned off.
//!
//! * Memory for all indexes and filters. A get then reads only blocks of data: leveling's larger
//!   tree no longer costs anything in mix C, and tiering's tables cost a get of 124 bytes half as
//!   much.
//! * Gets before mix E. The load leaves tables that overlap. Few of the mix's scans are charged to
//!   those tables, but gets are.

use runstone_kv::Result;
use runstone_workloads::generators::ScrambledZipfian;

use super::sizes::{self, SIZES, uniform};
use super::tree::{KEY_BYTES, MEMORY_BYTES, Tree, each, sides_of, sides_with};
use super::ycsb::{C, INSERTS_IN_E, RECORDS, SCAN_DIVISOR, VALUE_BYTES, first_run};
use super::{EVERY, LAST, LEVELED, Rival, TIERED, rivals};
use crate::numbers::{list, ratio};
use crate::report::rows;
use crate::verdict::Rule::Beside;
use crate::{Context, PaperReport};

/// At this scale indexes and filters of a tree take about a MiB.
const ENOUGH_BYTES: u64 = 8 * MEMORY_BYTES;
const GETS_PER_RECORD: u64 = 2;

rows! {
    TIME_C = "time of YCSB C, PTierDB over leveled, all indexes and filters in memory",
        "0.40 to 0.83" => Beside("8 MiB of memory, not 1");
    TREES = "MB of tables in YCSB C: PTierDB, leveled",
        "" => Beside("the larger tree has more indexes and filters");
    TIME_E = "time of YCSB E over leveled after two gets a record: last level, every level",
        "0.40 to 0.83" => Beside("the paper's run loads, then runs E");
    GETS = "time per get of 124 B, tiered over PTierDB, all indexes and filters in memory",
        "reads 1.5 to 2 times as fast" => Beside("8 MiB of memory, not 1");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    mix_c(context, report)?;
    mix_e(context, report)?;
    gets(context, report)
}

fn these<const N: usize>(stores: [usize; N]) -> [Rival; N] {
    stores.map(|at| rivals()[at].clone())
}

fn mix_c(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let stores = these([LAST, LEVELED]);
    report.compare(&sides_with(&stores, ENOUGH_BYTES), &[])?;
    let records = context.scaled(RECORDS);
    let runs = each(context, "load, A, B, C with 8 MiB of memory", &stores, |rival| {
        first_run(Tree::with_memory(rival, VALUE_BYTES, ENOUGH_BYTES)?, records, C + 1)
    })?;
    report.show(TIME_C, ratio(runs[0].mixes[C].us, runs[1].mixes[C].us, 2, " us").0);
    report.show(TREES, list(runs.iter().map(|run| run.bytes as f64 / 1e6), 1));
    Ok(())
}

fn mix_e(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let stores = these([LEVELED, LAST, EVERY]);
    report.compare(&sides_of(&stores), &[])?;
    let records = context.scaled(RECORDS);
    let scans = each(context, "load, gets, E", &stores, |rival| {
        let mut tree = Tree::open(rival, VALUE_BYTES)?;
        tree.phase(records, Tree::insert)?;
        tree.phase(GETS_PER_RECORD * records, Tree::uniform_gets)?;
        let chooser = ScrambledZipfian::new(tree.records);
        tree.phase(records / SCAN_DIVISOR, |tree, count| {
            tree.scan_mix(&chooser, count, INSERTS_IN_E)
        })
    })?;
    report.show(TIME_E, list(scans[1..].iter().map(|scan| scan.us / scans[0].us), 2));
    Ok(())
}

fn gets(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let stores = these([TIERED, LAST]);
    report.compare(&sides_with(&stores, ENOUGH_BYTES), &[])?;
    let operations = context.scaled(sizes::OPERATIONS);
    let what = "uniform writes and reads of 124 bytes with 8 MiB of memory";
    let seen = each(context, what, &stores, |rival| {
        uniform(Tree::with_memory(rival, SIZES[0] - KEY_BYTES, ENOUGH_BYTES)?, operations)
    })?;
    report.show(GETS, ratio(seen[0].get_us, seen[1].get_us, 2, " us").0);
    Ok(())
}
