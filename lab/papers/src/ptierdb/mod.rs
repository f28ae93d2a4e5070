//! PTierDB: what adaptive tiering writes, reads and stores on the engine, compared with the other
//! stores of the paper (Liu and Zhou). All sizes are the paper's divided by one number: memtable,
//! capacity of level 1, T_s, and the data. The number of operations is divided by the same number,
//! and so is the number of accesses to a table. The bytes that one access may rewrite are a
//! quotient of two divided numbers, so LevelDB's number stays.
//!
//! * `ycsb`: load, then the mixes A, B, C, F, D in the order of the paper; load again, then mix E.
//!   `figure_7` judges what the paper says about the mixes, `table_1` what the first of these runs
//!   writes and stores if tables are compressed.
//! * `budgets`: how table I depends on what an access may rewrite.
//! * `baselines`: figure 2: load and mix A at T = 6.
//! * `sizes`: figure 6: uniform writes, then uniform reads, of entries of four sizes; and the same
//!   writes by the simulator.
//! * `causes`: three results with their causes turned off.
//! * `simulated`: table I at the paper's own size, by metadata alone.
//! * `tree`, `machine`, `reasons`: a store under test, the machine that it runs on, and the reasons
//!   of its compactions.
//!
//! Jobs run between operations, so that a latency is the work of an operation with its share of the
//! compactions. Times are those of a simulated machine, and counters are functions of the options.
//! So nothing depends on the machine on which this runs.

mod baselines;
mod budgets;
mod causes;
mod figure_7;
mod machine;
mod reasons;
mod simulated;
mod sizes;
mod table_1;
mod tree;
mod ycsb;

use runstone::unstable;
use runstone::{KeyspaceOptions, ValueOptions, ValuePlacement};
use runstone_kv::Result;
use runstone_policy::options::{IntraLevel, Numbers};

use super::context::Part;
use super::engine::plain_options;
use super::{Context, PaperReport};

/// The divisor of the paper's sizes.
const DIVISOR: u64 = 200;
/// The paper's memtable; level 1 and T_s follow.
const FLUSH_BYTES: u64 = 16 << 20;
const BASE_BYTES: u64 = 10 << 20;
const SPLIT_BYTES: u64 = 4 << 20;
/// How often a table is accessed before it is compacted inside its level. The paper gives no
/// number. Its store is built on LevelDB, whose seek compaction allows one access for each 16 KiB
/// of a table, and at least 100 accesses.
#[derive(Clone, Copy)]
struct Budget {
    access_bytes: u64,
    access_limit: u64,
}

const LEVELDB: Budget = Budget { access_bytes: 16 << 10, access_limit: 100 };
/// Tables between two guards in PebblesDB, whose levels have four times as many guards as ours.
const PEBBLESDB_K: u32 = 2;
/// Larger than any file here: the paper's WiscKey has room enough to run without collections.
const NO_COLLECTION: u64 = 1 << 40;

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "leveled is full leveling, as in the paper; times are those of a simulated machine, \
         compactions included",
    );
    let nine = rivals().map(|(name, _)| name).join("; ");
    report.note(&format!("all nine are, in this order: {nine}; all mixes: A, B, C, F, D, E"));
    let parts: [Part<Context<'_>>; 5] = [
        ("ycsb", ycsb::run),
        ("baselines", baselines::run),
        ("sizes", sizes::run),
        ("simulated", simulated::run),
        ("causes", causes::run),
    ];
    context.measure(context, report, &parts)
}

/// A store of the comparison: its name and the options of its keyspace.
type Rival = (&'static str, KeyspaceOptions);

/// The stores of table I and of figures 6 and 7, and two that only we have: PTierDB with
/// compactions inside every level, and guards whose K depends on T. PebblesDB is the policy
/// `guards` with its own K. SILK's tree is LevelDB's: fragmented leveling.
fn rivals() -> [Rival; 9] {
    let of = |policy| options(policy, 10);
    let mut last = of("adaptive-tiering");
    unstable::numbers_mut(&mut last).intra_level = IntraLevel::Last;
    let mut guards = of("guards");
    unstable::numbers_mut(&mut guards).max_runs = PEBBLESDB_K;
    let mut wisckey = of("fragmented-leveling");
    wisckey.values = ValueOptions::default()
        .placement(ValuePlacement::Vlog)
        .separate_at(1)
        .capacity_bytes(NO_COLLECTION);
    [
        ("leveled", of("leveling")),
        ("tiered", of("tiering")),
        ("lazy-leveled", of("lazy-leveling")),
        ("fragmented", of("fragmented-leveling")),
        ("guards", guards),
        ("WiscKey", wisckey),
        ("PTierDB, every level", of("adaptive-tiering")),
        ("PTierDB, last level", last),
        ("guards, K = T - 1", of("guards")),
    ]
}

/// Indices into the stores of `rivals`.
const LEVELED: usize = 0;
const TIERED: usize = 1;
const LAZY: usize = 2;
const FRAGMENTED: usize = 3;
const GUARDS: usize = 4;
const WISCKEY: usize = 5;
const EVERY: usize = 6;
const LAST: usize = 7;
const GUARDS_T: usize = 8;
/// The policies that the paper compares with PTierDB.
const OTHERS: [usize; 6] = [LEVELED, TIERED, LAZY, FRAGMENTED, GUARDS, WISCKEY];

/// The paper's set-up at this scale: 10 filter bits, and a level 0 of four runs.
fn options(policy: &str, size_ratio: u32) -> KeyspaceOptions {
    let shape = Numbers {
        size_ratio,
        l0_trigger: 4,
        base_bytes: BASE_BYTES / DIVISOR,
        table_bytes: SPLIT_BYTES / DIVISOR,
        split_bytes: SPLIT_BYTES / DIVISOR,
        access_bytes: LEVELDB.access_bytes,
        access_limit: LEVELDB.access_limit.div_ceil(DIVISOR) as u32,
        // Used by `guards` alone: as many tables between two guards as tiering keeps runs.
        max_runs: size_ratio - 1,
        // The rule that level 0 waits for a share of level 1 is ours, not the paper's.
        l0_share_percent: 0,
        ..Numbers::default()
    };
    plain_options(policy)
        .policy(unstable::policy(policy, shape))
        .write_buffer_bytes(FLUSH_BYTES / DIVISOR)
        .filter_bits_per_key(10.0)
}
