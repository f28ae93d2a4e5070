//! HashKV: hash-grouped values on the engine, compared with a value log and with values in the tree
//! (Chan et al.). It makes the specification's scaled run, divided by eight: 131,072 pairs of 24 +
//! 992 bytes, 16 groups (not 128) with main segments of 8 MiB and slots of 128 KiB, 200 KiB of
//! write cache. So a flush adds as many records to a group as in the paper, and a group has as many
//! slots.
//!
//! A run loads all pairs in random order (P0), then makes as many updates three times (P1 to P3),
//! chosen by YCSB's scrambled zipfian curve. P3 is compared, or P2 where a document says so. In
//! these phases every design pays for its collections.
//!
//! * `overall`: experiments 1 and 8.
//! * `parameters`: experiments 2, 6 and 9, with half the data; `rules` counts what the paper's
//!   algorithm writes in experiment 2.
//! * `sizes`: experiments 4 and 7, with half the data or less.
//! * `files`: experiment 1 again and experiment 5, on real files.
//! * `device`: experiment 1 on an emulated SSD, in simulated time.
//! * `timed`: experiments 2, 4 to 7 and 9 on that SSD.
//! * `threads`: section 3.8's threads and batches on that SSD.
//! * `seeks`: experiment 1 with LevelDB's seek compaction.
//! * `one_thread`: the same experiment, with the time of LevelDB's one thread.
//! * `reckoned`: experiments 1 and 2 at the paper's 40 GiB, by counts alone.
//! * `designs`, `bench`: the compared designs, and the program that loads and updates them.
//!
//! Except in `files`, `device` and `timed`, files are in memory and jobs run between operations, so
//! that bytes are functions of the options; a throughput is operations per second of processor
//! time, compactions and collections included.

mod bench;
mod designs;
mod device;
mod files;
mod one_thread;
mod overall;
mod parameters;
mod reckoned;
mod rules;
mod seeks;
mod sizes;
mod threads;
mod timed;

use runstone_kv::Result;

use super::context::Part;
use super::{Context, PaperReport};

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "updates follow YCSB's scrambled zipfian curve; unless a row says otherwise, a \
         throughput is per second of processor time on files in memory",
    );
    report.note("bytes are per byte of keys and values written by the user");
    let parts: [Part<Context<'_>>; 20] = [
        ("overall", overall::run),
        ("seeks", seeks::run),
        ("one-thread", one_thread::run),
        ("updates", files::updates),
        ("device", device::updates),
        ("reserve", parameters::reserve),
        ("sizes", sizes::pairs),
        ("scans", files::scans),
        ("scans-after-updates", files::scans_after_updates),
        ("hotness", parameters::hotness),
        ("selective", sizes::selective),
        ("parameters", parameters::segments_and_cache),
        ("timed-reserve", timed::reserve),
        ("timed-sizes", timed::pairs),
        ("timed-hotness", timed::hotness),
        ("timed-selective", timed::selective),
        ("timed-scans", timed::scans),
        ("threads", threads::run),
        ("timed-parameters", timed::parameters),
        ("reckoned", reckoned::run),
    ];
    context.measure(context, report, &parts)
}
