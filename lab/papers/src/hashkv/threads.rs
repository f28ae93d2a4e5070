//! Section 3.8's threads and batches, in simulated time on the block SSD of eight channels. The
//! engine has one thread here; concurrent requests represent the paper's 32
//! threads of flushes and 8 of collections. A flush writes to its groups, and a collection reads
//! its segments and writes the live records: none of these requests waits for another one.

use runstone::storage::{Category, Storage};
use runstone_flash::block::BlockStorage;
use runstone_kv::Result;
use runstone_random::mix64;

use super::bench::Bench;
use super::designs::{Design, RECORDS, Workload};
use super::device::{self, SMALL_PAGE_BYTES, SSD};
use crate::numbers::list;
use crate::report::rows;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    FLUSHES = "3.8: loads per second, 1, 32 requests side by side",
        "32 threads boost flushes" => Rises;
    COLLECTIONS = "3.8: updates per second, 1, 8 requests side by side",
        "8 threads boost collections" => Rises;
    BATCHES = "3.8: MiB per second flushed in batches of 1, 4 KiB",
        "larger batches write less at random" => Rises;
    LARGE_BATCHES = "3.8: the same in batches of 16, 64, 256 KiB",
        "" => Beside("more batches at once than channels, so that large ones lose nothing");
}

const REQUESTS: [u32; 3] = [1, 8, 32];

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let workload = Workload::of_pairs(context.scaled(RECORDS / 4), 1024);
    let design = Design::paper(&workload).without_filters();
    report.compare(&REQUESTS.map(|requests| design.side(&format!("{requests} requests"))), &[])?;
    let mut seen = [Vec::new(), Vec::new()];
    for requests in REQUESTS {
        context.say(&format!("section 3.8: {requests} requests under way"));
        let device = device::create(context, SMALL_PAGE_BYTES, SSD.with_requests(requests))?;
        let mut bench = Bench::on_device(&design, &workload, &device)?;
        seen[0].push(bench.load()?.per_second());
        bench.update()?;
        seen[1].push(bench.update()?.per_second());
    }
    let [loads, updates] = seen.each_ref().map(|speeds| &speeds[..]);
    let [one, eight, most] = loads else { return Ok(()) };
    report.judge(FLUSHES, list([one, most], 0) + &format!("; 8 give {eight:.0}"), &[*one, *most]);
    report.judge(COLLECTIONS, list(&updates[..2], 0), &updates[..2]);
    let speeds = [1, 4, 16, 64, 256].map(|kib| -> Result<f64> {
        let device = device::create(context, SMALL_PAGE_BYTES, SSD)?;
        flush_in_batches(&device, kib << 10)
    });
    let speeds: Vec<f64> = speeds.into_iter().collect::<Result<_>>()?;
    report.judge(BATCHES, list(&speeds[..2], 1), &speeds[..2]);
    report.show(LARGE_BATCHES, list(&speeds[2..], 1));
    Ok(())
}

/// The paper's ratios: 64 MiB of cache for 640 groups of 1 KiB pairs, divided by 16.
const GROUPS: u64 = 40;
const FLUSH_PAIRS: u64 = 4 << 10;
const PAIR_BYTES: u64 = 1 << 10;
const FLUSHES_OF_EACH: u64 = 8;
/// The room of a group, more than it receives.
const GROUP_BYTES: u64 = 4 << 20;

/// Appends the pairs of some flushes to groups in one large file, as the paper's prototype does. A
/// group's batch is written when it reaches `batch_bytes`; the rest is written at the end of a
/// flush, which then syncs.
fn flush_in_batches(device: &BlockStorage, batch_bytes: u64) -> Result<f64> {
    let file = device.create("values", Category::Value).map_err(runstone::Error::from)?;
    let mut groups = vec![(0, 0); GROUPS as usize];
    let begun_ns = device.layers().elapsed_ns;
    let write = |group: usize, (end, waiting): (u64, u64)| {
        let at = group as u64 * GROUP_BYTES + end;
        file.write_at(at, &vec![1; waiting as usize]).map(|()| (end + waiting, 0))
    };
    for flush in 0..FLUSHES_OF_EACH {
        for pair in 0..FLUSH_PAIRS {
            let group = (mix64(flush * FLUSH_PAIRS + pair) % GROUPS) as usize;
            groups[group].1 += PAIR_BYTES;
            if groups[group].1 >= batch_bytes {
                groups[group] = write(group, groups[group]).map_err(runstone::Error::from)?;
            }
        }
        for (group, now) in groups.iter_mut().enumerate() {
            *now = write(group, *now).map_err(runstone::Error::from)?;
        }
        file.sync().map_err(runstone::Error::from)?;
    }
    let took_ns = device.layers().elapsed_ns - begun_ns;
    let mib = (FLUSHES_OF_EACH * FLUSH_PAIRS * PAIR_BYTES) as f64 / f64::from(1 << 20);
    Ok(mib / (took_ns as f64 / 1e9))
}
