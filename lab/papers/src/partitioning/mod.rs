//! Coordinated partitioning: the effect of bounds that all runs share on tables, moves and the
//! critical path of compactions (Mao and Hristidis), on the engine.
//!
//! - [`exact`]: figures 2 and 3 by the partitioners alone.
//! - [`load`]: loads under each partitioner and a leveled tree, with random and with skewed keys:
//!   write time, tables, compactions (figures 5 to 7, 9, 10, 12).
//! - [`lanes`]: loads in simulated time, where flushes gather while a compaction runs: which tree
//!   writes most, and reads of the trees that the loads leave (figures 8 and 11).
//! - [`reads`]: the cost of additional tables for reads when nothing is left to compact.
//! - [`own_size`]: the headlines at 40 GiB, by the simulator.
//! - [`ours`]: extensions of the paper, and claims that it does not measure: slices, space that
//!   compactions borrow, ascending keys, Global-Range inside a leveled tree.

mod exact;
mod lanes;
mod load;
mod ours;
mod own_size;
mod reads;

use runstone::unstable;
use runstone::{KeyspaceOptions, SubCompactions};
use runstone_kv::Result;
use runstone_policy::options::{MIN_TABLE_BYTES, Numbers};
use runstone_policy::partition::Partitioner;
use runstone_policy::partition::prefix::CAP_FACTOR;

use crate::context::Part;
use crate::engine::{Data, plain_options};
use crate::sides::{BUFFER, Side};
use crate::{Context, PaperReport};

/// Threads of a compaction: the paper's `max_subcompactions`.
const THREADS: usize = 16;
/// 40 GiB in memtables of 64 MiB, as in the paper; a memtable is a thousandth here.
const FLUSHES: u64 = 640;
const FLUSH_BYTES: u64 = 64 << 10;

pub fn run(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    report.note(
        "the critical path of a compaction is what the busiest of 16 threads reads, over all that \
         it reads; threads take its parts in key order",
    );
    report.note(
        "results are of none, size, local and global, in this order, reads also of leveled; in \
         slices of none, size, local, global, grouped, prefix and leveled",
    );
    let parts: [Part<Context<'_>>; 10] = [
        ("figures", exact::figures),
        ("load", load::load),
        ("clock", load::clock),
        ("lanes", lanes::lanes),
        ("own-size", own_size::own_size),
        ("reads", reads::reads),
        ("slices", ours::slices),
        ("borrowed-space", ours::borrowed_space),
        ("ascending", ours::ascending),
        ("leveled", ours::leveled),
    ];
    context.measure(context, report, &parts)
}

fn data(context: &Context<'_>) -> Data {
    data_of(context.scaled(FLUSHES))
}

fn data_of(flushes: u64) -> Data {
    let (key_bytes, value_bytes) = (16, 100);
    let records = flushes * FLUSH_BYTES / (key_bytes + value_bytes) as u64;
    Data { records, key_bytes, value_bytes, flush_bytes: FLUSH_BYTES }
}

/// A tree with RocksDB's defaults, which the paper keeps: at most 4 runs under universal
/// compaction; level 0 of a leveled tree is compacted at 4 runs, and level 1 has room for four
/// memtables.
fn tree(policy: &str, partitioner: Partitioner, theta: u64) -> KeyspaceOptions {
    let shape = Numbers {
        stack_runs: 4,
        l0_trigger: 4,
        l0_share_percent: 0,
        base_bytes: 4 * FLUSH_BYTES,
        partitioner,
        table_bytes: theta.max(MIN_TABLE_BYTES),
        // A table of one prefix is cut at sixteen times this size.
        split_bytes: (theta / CAP_FACTOR).max(MIN_TABLE_BYTES),
        ..Numbers::default()
    };
    plain_options(policy).policy(unstable::policy(policy, shape)).block_bytes(1024)
}

/// A tree as a side of a comparison. The bytes of its records decide when a memtable is flushed.
fn side_of(name: &str, options: &KeyspaceOptions) -> Side {
    Side::keyspace(name, options).with(BUFFER, FLUSH_BYTES)
}

/// Universal compaction in slices, which is our default.
fn stack(partitioner: Partitioner, theta: u64) -> KeyspaceOptions {
    tree("universal", partitioner, theta)
}

/// Universal compaction in the paper's sub-compactions, by whole tables.
fn paper_stack(partitioner: Partitioner, theta: u64, flushes: Flushes) -> KeyspaceOptions {
    stack(partitioner, theta)
        .sub_compactions(SubCompactions::Components)
        .partition_flushes(flushes == Flushes::Cut)
}

/// Whether the partitioner cuts flushes. The paper says that a flushed table may span the key
/// space; its figure 4 shows runs of several tables from "prior flushes and compactions".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushes {
    Whole,
    Cut,
}
