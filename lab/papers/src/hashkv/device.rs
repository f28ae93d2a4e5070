//! Experiment 1 on an emulated block SSD of one channel: the same operations, their costs in flash,
//! and the time for which they keep the flash busy. All of this is counted, so the figures are the
//! same everywhere.

use runstone_flash::block::{BlockOptions, BlockStorage, LayerReport};
use runstone_flash::ftl::FtlOptions;
use runstone_flash::nand::{Geometry, MemoryImage, PageType};
use runstone_kv::Result;

use super::bench::{Bench, Phase};
use super::designs::{Design, RECORDS, Workload};
use crate::kvssd_runs::failed;
use crate::numbers::list;
use crate::report::rows;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// The mapping unit of a usual SSD: the block that file systems write.
pub(super) const SMALL_PAGE_BYTES: u32 = 4 << 10;
/// A page of current flash. A device that maps such pages and gathers nothing reads and programs a
/// whole one for a partial write.
const LARGE_PAGE_BYTES: u32 = 16 << 10;
const BLOCK_BYTES: u32 = 2 << 20;
/// The parallelism of a device: its channels, and how many page requests may be under way at
/// once.
#[derive(Clone, Copy)]
pub(super) struct Width {
    channels: u32,
    requests: u32,
}

/// A device that does one thing at a time.
const ONE_CHANNEL: Width = Width { channels: 1, requests: 1 };
/// An SSD on SATA, which accepts 32 requests at once. Jobs are scaled down, so one SSD is enough
/// for them.
pub(super) const SSD: Width = Width { channels: 8, requests: 32 };
/// The paper's six SSDs. Its stripes of 4 KiB are pages. Scans have the paper's size.
pub(super) const SIX_SSDS: Width = Width { channels: 6 * 8, requests: 6 * 32 };

impl Width {
    pub(super) const fn with_requests(self, requests: u32) -> Width {
        Width { requests, ..self }
    }
}

/// The size of the device at scale 1 and below; larger scales have larger devices.
const DEVICE_BYTES: u32 = 320 << 20;

rows! {
    LARGE_PAGES = "1: leveled, vLog, HashKV on one that maps 16 KiB and gathers nothing",
        "" => Beside("a flush brings 13 KiB to each group: less than such a page");
    DEVICE_BYTES_MOVED = "1: bytes written to a device of {} pages, programmed, and read, {}",
        "" => Beside("the paper does not count them apart; log and manifest included");
    AGAINST = "1: load over leveled, vLog on flash, compactions when due; updates; {}",
        "17.1, 0.92; 6.3 to 7.9, 3.7 to 4.6" => Beside(
            "one channel; judged on eight, in one lane, with seek compaction");
}

/// P0 and P3 of one design.
struct Run {
    name: &'static str,
    load: Phase,
    phase: Phase,
    before: LayerReport,
    after: LayerReport,
    read_bytes: u64,
}

impl Run {
    fn per_second(&self) -> f64 {
        self.phase.per_second()
    }

    /// Bytes that reached the device, bytes that were programmed and bytes that were read, per byte
    /// of the user.
    fn bytes(&self) -> [f64; 3] {
        let (before, after) = (&self.before.device, &self.after.device);
        let written = after.host_bytes - before.host_bytes;
        let programmed = after.flash_bytes - before.flash_bytes;
        [written, programmed, self.read_bytes].map(|bytes| self.phase.part(bytes))
    }
}

pub(super) fn updates(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
    let keep = std::convert::identity as Filters;
    let families = [
        (UNFILTERED, Design::without_filters as Filters, SMALL_PAGE_BYTES),
        ("filters of 10 bits", keep, SMALL_PAGE_BYTES),
        ("filters of 10 bits", keep, LARGE_PAGE_BYTES),
    ];
    for (has, with, page_bytes) in families {
        let designs = [
            ("leveled", with(Design::inline())),
            ("vLog", with(Design::paper_vlog(&workload))),
            ("HashKV", with(Design::paper(&workload))),
        ];
        report.compare(&designs.each_ref().map(|(name, design)| design.side(name)), &[])?;
        let page = format!("{} KiB", page_bytes >> 10);
        let mut runs = Vec::new();
        for (name, design) in &designs {
            context.say(&format!("experiment 1 on flash of {page} pages: {name}, {has}"));
            runs.push(measure(name, design, &workload, create(context, page_bytes, ONE_CHANNEL)?)?);
        }
        let bytes = |run: &Run| {
            let [written, programmed, read] = run.bytes();
            format!("{} {written:.2}, {programmed:.2}, {read:.2}", run.name)
        };
        let moved: Vec<String> = runs.iter().map(bytes).collect();
        report.show(DEVICE_BYTES_MOVED.of(&[&page, &has]), moved.join("; "));
        match page_bytes {
            SMALL_PAGE_BYTES if has != UNFILTERED => show_small(report, has, &runs),
            // The rows of small pages without filters are in `seeks`.
            SMALL_PAGE_BYTES => {}
            _ => show_large(report, &runs),
        }
    }
    Ok(())
}

const UNFILTERED: &str = "without filters";

/// The effect of a family of devices on each design.
type Filters = fn(Design) -> Design;

/// How many times as fast HashKV was as leveled and vLog, if compactions wait for nothing.
fn show_small(report: &mut PaperReport, has: &str, runs: &[Run]) {
    let [leveled, vlog, hashkv] = runs else { return };
    let updates = [leveled, vlog].map(|other| hashkv.per_second() / other.per_second());
    let load = [leveled, vlog].map(|other| hashkv.load.per_second() / other.load.per_second());
    report.show(AGAINST.of(&[&has]), format!("{}; {}", list(load, 2), list(updates, 2)));
}

fn show_large(report: &mut PaperReport, runs: &[Run]) {
    let [leveled, vlog, hashkv] = runs else { return };
    let speeds = list(runs.iter().map(Run::per_second), 0);
    let ratios = list([leveled, vlog].map(|other| hashkv.per_second() / other.per_second()), 2);
    report
        .show(LARGE_PAGES, format!("{speeds} per simulated second; HashKV against both {ratios}"));
}

fn geometry(context: &Context<'_>, page_bytes: u32) -> Geometry {
    let block_count = DEVICE_BYTES / BLOCK_BYTES;
    let scaled = context.scaled(block_count.into()) as u32;
    Geometry {
        page_bytes,
        block_pages: BLOCK_BYTES / page_bytes,
        block_count: block_count.max(scaled),
        ..Geometry::default()
    }
}

pub(super) fn create(context: &Context<'_>, page_bytes: u32, width: Width) -> Result<BlockStorage> {
    let ftl = FtlOptions { is_trim_on: true, ..FtlOptions::default() };
    let queue_depth = width.requests;
    let options = BlockOptions { ftl, queue_depth, syncs_image: false, ..BlockOptions::default() };
    let geometry = Geometry { channel_count: width.channels, ..geometry(context, page_bytes) };
    BlockStorage::create(Box::new(MemoryImage::new()), geometry, options).map_err(failed)
}

fn measure(
    name: &'static str,
    design: &Design,
    workload: &Workload,
    device: BlockStorage,
) -> Result<Run> {
    let pages_read = || device.with_nand(|nand| nand.counters().of(PageType::Host).reads);
    let mut bench = Bench::on_device(design, workload, &device)?;
    let load = bench.load()?;
    bench.update()?;
    bench.update()?;
    let (before, read_before) = (device.layers(), pages_read());
    let phase = bench.update()?;
    let page_bytes = device.with_nand(|nand| nand.geometry().page_bytes);
    let read_bytes = (pages_read() - read_before) * u64::from(page_bytes);
    Ok(Run { name, load, phase, before, after: device.layers(), read_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;

    /// Once, the device did not grow with the data: from a scale of 2 on it was full, and the paper
    /// ended with an error after minutes.
    #[test]
    fn the_device_has_room_for_the_data_at_any_scale() {
        for scale in [0.001, 0.5, 1.0, 2.0, 100.0] {
            let context = Context::new(Scale::Factor(scale), &|_| {}).expect("a directory");
            let workload = Workload::of_pairs(context.scaled(RECORDS), 1024);
            let geometry = geometry(&context, SMALL_PAGE_BYTES);
            assert!(geometry.check().is_ok() && geometry.data_bytes() >= u64::from(DEVICE_BYTES));
            assert!(geometry.data_bytes() > 2 * workload.data_bytes(1), "scale {scale}");
        }
    }
}
