//! PTierDB: what adaptive tiering writes, reads and holds beside the stores of its paper (Liu and
//! Zhou), on the engine. All sizes are the paper's divided by one number: memtable, capacity of
//! level 1, T_s, the bytes that a compaction may rewrite per access, and the data.
//!
//! * `ycsb`: table I and figure 7: load, then the mixes A, B, C, F, D in the order of the paper;
//!   load once more, then mix E. `files` is the part of it with files on the disk.
//! * `baselines`: figure 2: load and mix A at T = 6.
//! * `sizes`: figure 6: uniform writes, then uniform reads, of entries of four sizes.
//! * `simulated`: table I at the paper's own size, by metadata alone.
//! * `tree`, `reasons`: a store that is driven, and what its compactions were for.
//!
//! Jobs run between operations, so that a latency is the work of an operation with its share of the
//! compactions, and that counters are functions of the options. The stores take turns within each
//! phase: what disturbs the machine disturbs all.

mod baselines;
mod reasons;
mod simulated;
mod sizes;
mod tree;
mod ycsb;

use runstone::policy::options::{IntraLevel, PolicyOptions};
use runstone::{KeyspaceOptions, Result, ValueOptions, ValuePlacement};

use super::context::Part;
use super::engine::plain_options;
use super::sides::Side;
use super::{Context, PaperReport};

/// What the paper's sizes are divided by.
const DIVISOR: u64 = 200;
/// The paper's memtable, level 1 and T_s.
const FLUSH_BYTES: u64 = 16 << 20;
const BASE_BYTES: u64 = 10 << 20;
const SPLIT_BYTES: u64 = 4 << 20;
/// The default.
const ACCESS_BYTES: u64 = 28 << 10;
/// Beyond any file here: the paper's WiscKey has room enough to run without collections.
const NO_COLLECTION: u64 = 1 << 40;

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "leveled is full leveling, as in the paper; latencies are processor time per operation, \
         compactions included",
    );
    let parts: [Part<Context<'_>>; 6] = [
        ("files", ycsb::on_files),
        ("all-files", ycsb::all_on_files),
        ("ycsb", ycsb::run),
        ("baselines", baselines::run),
        ("sizes", sizes::run),
        ("simulated", simulated::run),
    ];
    context.measure(context, report, &parts)
}

/// A store of the comparison: its name and the options of its keyspace.
type Rival = (&'static str, KeyspaceOptions);

/// The stores of table I and of figures 6 and 7. PebblesDB is the policy `guards`. SILK's tree is
/// LevelDB's: fragmented leveling.
fn rivals() -> [Rival; 8] {
    let of = |policy| options(policy, 10);
    let mut last = of("adaptive-tiering");
    last.shape.intra_level = IntraLevel::Last;
    let mut wisckey = of("fragmented-leveling");
    wisckey.values = ValueOptions {
        placement: ValuePlacement::Vlog,
        separate_at: 1,
        capacity_bytes: NO_COLLECTION,
        ..ValueOptions::default()
    };
    [
        ("leveled", of("leveling")),
        ("tiered", of("tiering")),
        ("lazy-leveled", of("lazy-leveling")),
        ("fragmented", of("fragmented-leveling")),
        ("guards", of("guards")),
        ("WiscKey", wisckey),
        ("PTierDB, every level", of("adaptive-tiering")),
        ("PTierDB, last level", last),
    ]
}

/// The paper's set-up at this scale: 10 filter bits, level 0 of four runs.
fn options(policy: &str, size_ratio: u32) -> KeyspaceOptions {
    KeyspaceOptions {
        shape: PolicyOptions {
            size_ratio,
            l0_trigger: 4,
            base_bytes: BASE_BYTES / DIVISOR,
            table_bytes: SPLIT_BYTES / DIVISOR,
            split_bytes: SPLIT_BYTES / DIVISOR,
            access_bytes: ACCESS_BYTES / DIVISOR,
            // Tables between two guards, as many as tiering keeps runs. PebblesDB's two go with
            // four times as many guards per level.
            max_runs: size_ratio - 1,
            ..PolicyOptions::default()
        },
        write_buffer_bytes: FLUSH_BYTES / DIVISOR,
        filter_bits_per_key_x10: 100,
        ..plain_options(policy)
    }
}

fn sides_of(rivals: &[Rival]) -> Vec<Side> {
    let side = |(name, options): &Rival| match options.values.placement {
        ValuePlacement::Inline => Side::keyspace(name, options),
        placement => Side::keyspace(&format!("{name} ({})", placement.name()), options),
    };
    rivals.iter().map(side).collect()
}
