//! On real files, by the clock: updates with background threads (experiment 1), and scans of files
//! that are not in the page cache (experiment 5). The designs take turns, so that what disturbs the
//! machine disturbs all of them.

use std::fs::File;
use std::path::Path;

use runstone::GcPointers;
use runstone::unstable;
use runstone_kv::{Error, Result};
use runstone_workloads::median;
use rustix::fs::{Advice, fadvise};

use super::bench::{ALL, Bench, DATA, Phase};
use super::designs::{Design, RECORDS, Workload};
use crate::numbers::{list, mib, percent_more};
use crate::report::rows;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    UPDATES = "1: updates on files, HashKV over leveled, two threads, in turns (figure 5a)",
        "6.3 to 7.9" => Beside("by the clock and this machine's disk");
    COLD_SCANS = "5: cold scans of 1 MiB on files, HashKV over leveled: 256 B, 1, 4 KiB (figure 9)",
        "0.30, 0.64, 1.94" => Beside("by the clock and this machine's disk");
    BY_RING = "5: the same with io_uring",
        "" => Beside("not in the paper");
    READ_AHEAD = "5: gain of read-ahead in %: 256 B, 1, 4 KiB (figure 9)",
        "+81% at 256 B" => NotComparable("by the clock and this machine's disk");
    READS = "5: reads per scan, HashKV / leveled",
        "" => Beside("not in the paper: about one for each separated value");
    AFTER_UPDATES =
        "5: cold scans of 1 KiB pairs after updates, stable and written back over leveled",
        "" => Beside("not in the paper: what collections put together");
}

pub(super) fn updates(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let designs = [("leveled", Design::inline()), ("HashKV", Design::paper(&workload))];
    report.compare(&designs.each_ref().map(|(name, design)| design.side(name)), &[])?;
    let mut speeds = [Vec::new(), Vec::new()];
    let mut syncs = [0.0; 2];
    for turn in 1..=2 {
        for (at, (name, design)) in designs.iter().enumerate() {
            context.say(&format!("experiment 1 on files: {name}, turn {turn}"));
            let path = context.directory();
            let mut bench = Bench::on_files(&on_files(design), &workload, &path)?;
            let phase = bench.through(2)?;
            syncs[at] = phase.io(ALL, |io| io.syncs) as f64 / mib(phase.user_bytes);
            speeds[at].push(phase.per_second());
            drop(bench);
            remove(&path)?;
        }
    }
    let [inline, hashkv] = speeds.each_ref().map(|speeds| median(speeds.clone()));
    let ratio = hashkv / inline;
    report.show(
        UPDATES,
        format!(
            "{} / {} per second; medians {ratio:.2}; syncs per MiB {:.1} / {:.1}",
            list(&speeds[1], 0),
            list(&speeds[0], 0),
            syncs[1],
            syncs[0]
        ),
    );
    Ok(())
}

/// Back-pressure begins at six and twelve times the trigger. Without back-pressure, a phase would
/// leave compactions for which it did not pay.
fn on_files(design: &Design) -> Design {
    let mut design = design.clone();
    let trigger = unstable::numbers(&design.keyspace).l0_trigger;
    (design.keyspace.l0_slowdown_runs, design.keyspace.l0_stop_runs) = (6 * trigger, 12 * trigger);
    design
}

const DATA_BYTES: u64 = 64 << 20;
pub(super) const PAIR_BYTES: [usize; 3] = [256, 1 << 10, 4 << 10];
/// A scan reads 1 MiB of pairs.
pub(super) const SCAN_BYTES: u64 = 1 << 20;
const SCANS: u64 = 8;
const TURNS: usize = 3;

pub(super) fn scans(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let mut speeds = Vec::new();
    let mut reads = Vec::new();
    for pair_bytes in PAIR_BYTES {
        let records = context.scaled(DATA_BYTES / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        context.say(&format!("experiment 5: pairs of {pair_bytes} bytes"));
        let hashkv = Design::paper(&workload);
        let by_ring = Design { io_uring: true, ..hashkv.clone() };
        let none_ahead = hashkv.clone().with(|keyspace| keyspace.values.scan_ahead_bytes = 0);
        let designs =
            [Design::inline(), Design::paper_vlog(&workload), hashkv, by_ring, none_ahead]
                .map(with_little_memory);
        let names = ["leveled", "vLog", "HashKV", "HashKV by io_uring", "HashKV, none ahead"];
        let sides: Vec<_> = names.iter().zip(&designs).map(|(name, one)| one.side(name)).collect();
        report.compare(&sides, &[])?;
        let seen = scan_cold(context, &designs, &workload, (pair_bytes, 0))?;
        speeds.push(seen.each_ref().map(|phases| speed(phases)));
        let of = |design: usize| reads_of(&seen[design][TURNS - 1]);
        let ((count, mib), (leveled_count, leveled_mib)) = (of(2), of(0));
        reads.push(format!(
            "{pair_bytes} B {count:.0} / {leveled_count:.0} reads, {mib:.2} / {leveled_mib:.2} MiB",
        ));
    }
    let against_leveled =
        |design: usize| speeds.iter().map(move |speeds| speeds[design] / speeds[0]);
    report.show(COLD_SCANS, list(against_leveled(2), 2));
    report.show(BY_RING, list(against_leveled(3), 2));
    report
        .show(READ_AHEAD, list(speeds.iter().map(|speeds| percent_more(speeds[4], speeds[2])), 0));
    report.show(READS, reads.join("; "));
    Ok(())
}

/// Scans of a store that collections have rewritten: collections that write pointers back sort the
/// moved records by key, since each gets a new place in its stream in any case.
pub(super) fn scans_after_updates(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let pair_bytes = 1 << 10;
    let workload = Workload::of_pairs(context.scaled(DATA_BYTES / pair_bytes as u64), pair_bytes);
    context.say("experiment 5: scans after updates");
    let back = Design::paper(&workload);
    let stable = back.clone().with(|keyspace| keyspace.values.gc_pointers = GcPointers::Stable);
    let designs = [Design::inline(), stable, back].map(with_little_memory);
    let sides = ["leveled", "stable", "written back"].into_iter().zip(&designs);
    report.compare(&sides.map(|(name, one)| one.side(name)).collect::<Vec<_>>(), &[])?;
    let seen = scan_cold(context, &designs, &workload, (pair_bytes, 2))?;
    let [inline, stable, back] = seen.each_ref().map(|phases| speed(phases));
    let reads = seen.each_ref().map(|phases| reads_of(&phases[TURNS - 1]).0);
    report.show(
        AFTER_UPDATES,
        format!(
            "{:.2}, {:.2}; reads per scan {:.0}, {:.0}, leveled {:.0}",
            stable / inline,
            back / inline,
            reads[1],
            reads[2],
            reads[0]
        ),
    );
    Ok(())
}

/// The design with memory for a thirty-second of the data.
fn with_little_memory(design: Design) -> Design {
    Design { memory_bytes: 2 << 20, ..design }
}

/// Reads of a scan, and MiB that it reads.
fn reads_of(phase: &Phase) -> (f64, f64) {
    let per_scan = |count: u64| count as f64 / phase.operations as f64;
    let bytes = phase.io(DATA, |io| io.read_bytes);
    (per_scan(phase.io(DATA, |io| io.reads)), per_scan(bytes) / f64::from(1 << 20))
}

/// MiB per second, the median of the turns.
fn speed(phases: &[Phase]) -> f64 {
    median(phases.iter().map(Phase::mib_per_second).collect())
}

/// Loads a store of each design with pairs of `pair_bytes` and updates it in `updates` phases. Then
/// the stores are scanned alternately, each time after their files were removed from the page
/// cache.
fn scan_cold<const N: usize>(
    context: &Context<'_>,
    designs: &[Design; N],
    workload: &Workload,
    (pair_bytes, updates): (usize, usize),
) -> Result<[Vec<Phase>; N]> {
    let entries = SCAN_BYTES / pair_bytes as u64;
    let paths = [(); N].map(|()| context.directory());
    for (design, path) in designs.iter().zip(&paths) {
        let mut bench = Bench::on_files(&on_files(design), workload, path)?;
        bench.through(updates)?;
        bench.store.flush()?;
        bench.store.wait_idle()?;
        bench.store.close()?;
    }
    let mut seen = [(); N].map(|()| Vec::new());
    for _ in 0..TURNS {
        for ((design, path), phases) in designs.iter().zip(&paths).zip(&mut seen) {
            forget_pages(path)?;
            let mut bench = Bench::on_files(&on_files(design), workload, path)?;
            phases.push(bench.scans(SCANS, entries)?);
            bench.store.close()?;
        }
    }
    paths.iter().try_for_each(|path| remove(path))?;
    Ok(seen)
}

/// Removes the files of a directory from the page cache.
fn forget_pages(path: &Path) -> Result<()> {
    let forget = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(path)? {
            let file = File::open(entry?.path())?;
            // Only clean pages can be removed from the cache.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    };
    forget().map_err(|error| failed(path, "take out of the page cache", &error))
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_dir_all(path).map_err(|error| failed(path, "remove", &error))
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> Error {
    let what = format!("cannot {what} {}: {error}", path.display());
    Error::invalid(what, "set TMPDIR to a directory that takes files")
}
