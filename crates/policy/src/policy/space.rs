//! The space bound (`max_space_percent`): decides when so much of a tree is garbage that the whole
//! tree is compacted, whatever its policy is. Not a policy: it is called when the policy has
//! nothing to do.
//!
//! The whole tree is compacted if
//!
//! 1. no part of it is busy, and no plan for it is pending;
//! 2. it *could* contain as much garbage as the bound forbids (`may_free`);
//! 3. by the estimate of its live bytes, it does ([`live_bytes`]).
//!
//! The estimate alone is not enough. It errs, it counts tombstones that delete nothing as garbage,
//! and it cannot see which versions snapshots hold: a tree in which a compaction frees nothing
//! would be compacted again and again. Rule 2 depends on the shape alone. It guarantees that
//! compacting ends, and bounds the cost of compacting, whatever the estimate says.
//!
//! In tables that do not overlap, each key occurs in one table, so a compaction of them frees
//! nothing. The largest such set is *kept*; the other tables are *extra*. An entry of an extra
//! table is garbage, or it makes a kept entry garbage (a tombstone does, or a small value that
//! replaces a large one). That kept entry has about the mean size of kept entries.
//!
//! ```text
//! max(extra bytes, extra entries * kept bytes / kept entries) / all bytes >= (p - 100) / p
//! ```
//!
//! A compaction of the whole tree leaves tables that do not overlap, so no table is extra, and
//! picking ends. Before the next compaction, at least that share of the tree must be new: of p
//! compacted bytes, p - 100 were written since (or deleted by entries written since). By rule 3 a
//! compaction leaves 100 of p. So for the bound, each written byte is rewritten 100 / (p - 100)
//! times, or p / (p - 100) times if snapshots hold everything.
//!
//! The bound does not see garbage that a snapshot kept in a run (versions and tombstones), not even
//! after the snapshot is released. Nor does it see values that are separated from their keys.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::CompactionPolicy;
use crate::policy::whole::whole_compaction;
use crate::shape::overlapping::sublevels;
use crate::shape::plan::{Busy, Heat, Plan};
use crate::shape::{Level, Shape, Table};
use crate::sketch::Sketch;

/// The next job of a tree, as stores request it: the job that the policy chooses, or else the one
/// that the space bound of the options requires. It keeps the promises of
/// [`CompactionPolicy::pick`].
pub fn next_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    busy: &Busy,
    heat: &Heat,
    options: &PolicyOptions,
) -> Option<Plan> {
    let most = options.numbers.max_space_percent;
    let bound = || bound_plan(policy, shape, busy, options, most, live_bytes);
    policy.pick(shape, busy, heat, options).or_else(bound)
}

/// The compaction that a space bound requires when the policy has nothing to do. `most_percent` is
/// the bound; 0 means none.
///
/// `live_bytes` returns the bytes that a compaction of the whole tree would leave, or `None` if
/// that is not known: [`live_bytes`] in a store, the model's own figure in the simulator. The
/// function is called only if the result matters.
pub fn bound_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    busy: &Busy,
    options: &PolicyOptions,
    most_percent: u32,
    live_bytes: impl FnOnce(&Shape) -> Option<u64>,
) -> Option<Plan> {
    let is_idle = busy.tables.is_empty() && busy.ranges.is_empty() && shape.pending.is_none();
    if most_percent == 0 || !is_idle || !may_free(shape, most_percent) {
        return None;
    }
    let live = live_bytes(shape)?;
    let percent = percent_of(Sums::of(shape).bytes, live.into());
    if percent <= u64::from(most_percent) {
        return None;
    }
    let compaction = whole_compaction(shape, policy, options)?;
    let found = match live {
        0 => "nothing is live".to_owned(),
        _ => format!("space {percent}% of what is live, more than {most_percent}%"),
    };
    let why = format!("{found}: all into L{}", compaction.output_level);
    Some(Plan { compactions: vec![compaction], why, ..Plan::default() })
}

/// How much space the tables use, in percent of the live bytes, not counting space that a
/// compaction of the whole tree could not free. 0 if the result cannot exceed `most_percent`, or if
/// the live bytes are not known. A tree that was just compacted under a snapshot does not count as
/// above the bound, whatever the estimate says. So a writer that is slowed down above some
/// percentage is never slowed down for good. Like [`bound_plan`], this function estimates the live
/// bytes only if the result matters.
pub fn space_percent(shape: &Shape, most_percent: u32) -> u64 {
    if most_percent == 0 || !may_free(shape, most_percent) {
        return 0;
    }
    let all = Sums::of(shape);
    let kept = largest_disjoint(shape.tables().map(|(_, table)| table).collect());
    let garbage = most_garbage(all, kept) / kept.entries.max(1);
    let possible = percent_of(all.bytes, all.bytes.saturating_sub(garbage));
    live_bytes(shape).map_or(0, |live| percent_of(all.bytes, live.into()).min(possible))
}

/// Rounds up, so that even a slight excess over a bound counts.
fn percent_of(bytes: u128, live: u128) -> u64 {
    u64::try_from(bytes.saturating_mul(100).div_ceil(live.max(1))).unwrap_or(u64::MAX)
}

/// Estimate of the bytes that a compaction of the whole tree would leave. `None` if the keys of
/// some table are not known. O(tables), and the union of their sketches.
///
/// 1. Each layer (a run, or successive tables of an overlapping level) contains a key once. The
///    number of keys is estimated by sketches, for the whole tree and for each layer. The first is
///    divided by the sum of the others. The result is the share of entries that are the newest of
///    their key. A division by the counts of entries would err by 6.5%, so that a single run would
///    seem to contain garbage. With sketches on both sides the error cancels: for a large run and
///    others that only overwrite it, the share is exact.
/// 2. Each tombstone subtracts one key, which is the most that it deletes: some tombstones delete
///    nothing or were overwritten.
/// 3. Each key counts as the mean size of a put. A tombstone counts as nothing.
pub fn live_bytes(shape: &Shape) -> Option<u64> {
    let mut keys = Sketch::of_nothing();
    let mut layers_keys: u128 = 0;
    for layer in layers(shape) {
        let mut own = Sketch::of_nothing();
        layer.iter().for_each(|table| own.merge(&table.sketch));
        layers_keys += u128::from(own.estimate()?);
        keys.merge(&own);
    }
    let keys = u128::from(keys.estimate()?).min(layers_keys);
    let Sums { bytes, entries, tombstones } = Sums::of(shape);
    let newest = entries.saturating_mul(keys) / layers_keys.max(1);
    let live = newest.saturating_sub(tombstones);
    let put_count = entries.saturating_sub(tombstones).max(1);
    u64::try_from(bytes.saturating_mul(live) / put_count).ok()
}

/// Whether the tree could contain more garbage than this percentage of the live bytes allows: rule
/// 2 of the module docs. O(n log n) at most.
fn may_free(shape: &Shape, most_percent: u32) -> bool {
    let all = Sums::of(shape);
    let is_enough = |kept: Sums| could_be_garbage(all, kept, most_percent);
    // For any set of tables without overlaps, the tables outside it bound the garbage. In leveled
    // trees the deepest run is already large enough, so most decisions sort nothing: sorting 11,000
    // tables took 3.6 ms.
    let runs = shape.levels.iter().flat_map(Level::runs);
    let largest = runs.map(|run| Sums::default().with_all(&run.tables)).max();
    largest.is_none_or(is_enough)
        && is_enough(largest_disjoint(shape.tables().map(|(_, table)| table).collect()))
}

/// An upper bound on the bytes of garbage: the other tables, or the kept entries that they hide. It
/// is multiplied by the number of kept entries, to avoid a division. The numbers in a damaged
/// manifest may be anything.
fn most_garbage(all: Sums, kept: Sums) -> u128 {
    let hidden = (all.bytes - kept.bytes).saturating_mul(kept.entries);
    let hiding = (all.entries - kept.entries).saturating_mul(kept.bytes);
    hidden.max(hiding)
}

fn could_be_garbage(all: Sums, kept: Sums, most_percent: u32) -> bool {
    let most = u128::from(most_percent);
    let garbage = most_garbage(all, kept);
    let wanted = all.bytes.saturating_mul(kept.entries).saturating_mul(most.saturating_sub(100));
    garbage > 0 && garbage.saturating_mul(most) >= wanted
}

/// Sums over tables, wide enough that they cannot overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Sums {
    bytes: u128,
    entries: u128,
    tombstones: u128,
}

impl Sums {
    fn of(shape: &Shape) -> Sums {
        Sums::default().with_all(shape.tables().map(|(_, table)| table))
    }

    fn with_all<'a>(self, tables: impl IntoIterator<Item = &'a Arc<Table>>) -> Sums {
        tables.into_iter().fold(self, |sums, table| sums.with(table))
    }

    fn with(self, table: &Table) -> Sums {
        Sums {
            bytes: self.bytes + u128::from(table.bytes),
            entries: self.entries + u128::from(table.entries),
            tombstones: self.tombstones + u128::from(table.tombstones),
        }
    }
}

/// The most bytes that a set of tables without overlaps can have: weighted interval scheduling.
/// Tables are sorted by their ends. The best set of the first n is the best set without the last
/// table, or that table and the best set of those that end before it begins.
fn largest_disjoint(mut tables: Vec<&Arc<Table>>) -> Sums {
    tables.sort_unstable_by(|a, b| a.max_key.cmp(&b.max_key));
    let mut best = vec![Sums::default()];
    for (at, table) in tables.iter().enumerate() {
        let before = tables[..at].partition_point(|other| other.max_key < table.min_key);
        best.push(best[at].max(best[before].with(table)));
    }
    best[tables.len()]
}

/// Sets of tables that do not overlap: the runs, and rows of tables of each overlapping level.
fn layers(shape: &Shape) -> Vec<Vec<&Arc<Table>>> {
    let mut layers: Vec<Vec<&Arc<Table>>> = Vec::new();
    for level in &shape.levels {
        match level {
            Level::Runs(runs) => layers.extend(runs.iter().map(|run| run.tables.iter().collect())),
            Level::Overlapping(tables) => {
                let rows = sublevels(tables.iter().map(|table| &**table));
                let of_row = |row: &Vec<u32>| row.iter().map(|at| &tables[*at as usize]).collect();
                layers.extend(rows.iter().map(of_row));
            }
        }
    }
    layers
}
