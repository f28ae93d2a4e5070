//! Why the paper's LevelDB is slower than its written bytes explain: it compacts in one thread, and
//! six SSDs can absorb more than one thread can write. The paper has evidence for both. Its
//! RocksDB, which has several threads, writes 0.86 of LevelDB's bytes and updates 4.5 to 6.1 times
//! as fast (section 4.2). And HashKV makes 58,000 updates a second (table 1), LevelDB at most 1/6.3
//! of that; with 9.97 bytes written per byte of the user (figure 5b), and about as many read, its
//! thread moves 0.2 GB/s.
//!
//! LevelDB 1.23 on files in memory, on one core of a current server, moves 2 GB/s: 0.48 ns of
//! processor time for each byte read or written, 0.58 with Snappy. What held back the thread of the
//! paper was not measured.

use runstone_kv::Result;

use super::bench::Bench;
use super::designs::{Design, RECORDS, SCALED_SEEKS, Workload};
use super::device::{self, SIX_SSDS, SMALL_PAGE_BYTES, SSD, Width};
use crate::numbers::list;
use crate::report::rows;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// Bytes that the thread moves in a microsecond: without a limit, as LevelDB does here, and as it
/// did in the paper.
const BYTES_PER_US: [Option<u64>; 3] = [None, Some(2_000), Some(200)];

rows! {
    UPDATES = "{}: updates of {}, over leveled: one thread without limit, of 2, of 0.2 GB/s",
        "{}" => Beside("what the thread of LevelDB's compactions changes");
}

pub(super) fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for (experiment, paper, pair_bytes) in [(1, "6.3 to 7.9", 1 << 10), (4, "15.5", 4 << 10)] {
        let records = context.scaled((RECORDS << 10) / pair_bytes as u64);
        let workload = Workload::of_pairs(records, pair_bytes);
        let designs = [Design::inline(), Design::paper(&workload)]
            .map(|one| one.without_filters().seeking(SCALED_SEEKS));
        report.compare(&[designs[0].side("leveled"), designs[1].side("HashKV")], &[])?;
        for (ssds, width) in [("one SSD", SSD), ("six SSDs", SIX_SSDS)] {
            let mut speeds = [Vec::new(), Vec::new()];
            for bytes_per_us in BYTES_PER_US {
                context.say(&format!("experiment {experiment} on {ssds}: {bytes_per_us:?} MB/s"));
                for (speeds, design) in speeds.iter_mut().zip(&designs) {
                    speeds.push(per_second(context, design, &workload, width, bytes_per_us)?);
                }
            }
            let ratios = speeds[1].iter().zip(&speeds[0]).map(|(hashkv, other)| hashkv / other);
            let text = format!(
                "{} / {} per second = {}",
                list(&speeds[1], 0),
                list(&speeds[0], 0),
                list(ratios, 2)
            );
            let place = format!("{} KiB on {ssds}", pair_bytes >> 10);
            report.show(UPDATES.of(&[&experiment, &place, &paper]), text);
        }
    }
    Ok(())
}

/// Updates per second in phase P3.
fn per_second(
    context: &Context<'_>,
    design: &Design,
    workload: &Workload,
    width: Width,
    bytes_per_us: Option<u64>,
) -> Result<f64> {
    let device = device::create(context, SMALL_PAGE_BYTES, width)?;
    let mut bench = Bench::on_device(design, workload, &device)?.in_lane_of(bytes_per_us);
    Ok(bench.through(3)?.per_second())
}
