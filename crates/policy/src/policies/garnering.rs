//! Garnering (Autumn): fragmented leveling whose levels grow wider as the tree gets deeper, so that
//! the tree has O(sqrt(log N)) levels. There are fewer runs to read, but more writing in the small
//! levels. Only the capacities are new: tables sink by the rules of fragmented leveling.
//!
//! 1. C_i / C_(i-1) = T / c^(L-i), so that C_i(L) = B T^i / c^((2L-1-i) i / 2), with c =
//!    `c` and `base_bytes` = B T, the capacity of level 1 if c = 1. c = 1 is leveling.
//! 2. L, the last level, is in the manifest: data alone does not show it. The effective L is max(L,
//!    deepest non-empty level, 1), so that any tree may be opened.
//! 3. Levels are picked by score and sink as in fragmented leveling; busy tables do not count.
//! 4. Delayed last-level compaction: when level L is above its capacity, it does not sink. The plan
//!    only stores L+1, and all capacities grow. The capacity of the old last level grows by 1/c^L,
//!    which is room for its data.
//! 5. Shrink: if level L is empty and L-1 contains at most C_(L-1)(L-1) / 2, store L-1. If L is not
//!    empty and the whole tree is within that limit, L-1 and L become one run of level L-1, and L-1
//!    is stored. All levels count, since their capacities shrink too, and the excess ends up in
//!    level L-1. The factor 1/2 keeps L from oscillating.
//!
//! Nothing here depends on the history of the tree, so c and T may change at any time: then the
//! capacities change, and levels above them sink by score. Source: Autumn §3.1.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::overlap::{collides, connect, level_rows, plan_groups};
use crate::policies::fragmented_leveling;
use crate::policies::leveled::{self, Leveled, Over};
use crate::policy::{Job, LevelTarget};
use crate::shape::plan::Plan;
use crate::shape::{Level, Shape, Table};
use crate::text::format_bytes;

/// Capacities are computed with this many bits after the point.
const FRACTION_BITS: u32 = 24;

pub(crate) static GARNERING: Leveled = Leveled {
    name: "garnering",
    doc: "fragmented leveling with fewer levels, which widen as data grows (Autumn)",
    targets,
    first: shrink,
    sink: deepen_or_sink,
    idle: fragmented_leveling::compact_inside_l0,
};

fn targets(shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
    let last_level = last_level(shape);
    let mut capacities = capacities_bytes(last_level, options);
    // A level below the last one contains data only once L is its number.
    capacities.extend(capacities_bytes(last_level + 1, options).last());
    let target = |(level, capacity_bytes): (u32, u64)| LevelTarget {
        capacity_bytes,
        ..leveled::target(level, options)
    };
    (0..).zip(capacities).map(target).collect()
}

/// L, see rule 2.
pub fn last_level(shape: &Shape) -> u32 {
    let stored = shape.state.last_level.min(Shape::MAX_LEVELS - 1);
    stored.max(shape.deepest().unwrap_or(0)).max(1)
}

/// Capacities of levels 0 to L in bytes, saturating. Unbounded at level 0, which is judged by runs,
/// and at the deepest level that a shape can have. O(L^2).
///
/// Computed from C_1 = base / c^(L-1) by rule 1, in fixed point. Each of at most L (L + 1) / 2
/// steps rounds down. The total error is below one millionth for a base of 4 KiB or more and L up
/// to 40, and zero for c = 1. The result saturates long before an L of 64 matters.
pub fn capacities_bytes(last_level: u32, options: &PolicyOptions) -> Vec<u64> {
    let (last_level, c) = (last_level.clamp(1, Shape::MAX_LEVELS), options.numbers.c.parts());
    let most = u128::from(u64::MAX) << FRACTION_BITS;
    let widen = |capacity: u128, times: u32| {
        let step = |wide: u128, _| (wide * 1000 / u128::from(c)).min(most);
        // c = 1 needs one step, not 64.
        if c == 1000 { capacity } else { (0..times).fold(capacity, step) }
    };
    let mut capacities = vec![u64::MAX];
    let mut capacity =
        widen(u128::from(options.numbers.base_bytes) << FRACTION_BITS, last_level - 1);
    for level in 1..=last_level {
        if level > 1 {
            let next = (capacity * u128::from(options.numbers.size_ratio)).min(most);
            capacity = widen(next, last_level - level);
        }
        let is_deepest = level + 1 >= Shape::MAX_LEVELS;
        let bytes = u64::try_from(capacity >> FRACTION_BITS).unwrap_or(u64::MAX);
        capacities.push(if is_deepest { u64::MAX } else { bytes });
    }
    capacities
}

/// Rules 3 and 4.
fn deepen_or_sink(job: &Job, over: &Over) -> Option<Plan> {
    if over.level != last_level(job.shape) {
        return fragmented_leveling::sink(job, over);
    }
    let next = over.level + 1;
    let why = format!("{}; it is the last, so L{next} becomes the last", over.reason);
    Some(Plan { last_level: Some(next), why, ..Plan::default() })
}

/// Rule 5. The plan waits for any job that touches either level, since that job may be filling it.
fn shrink(job: &Job) -> Option<Plan> {
    let Job { shape, busy, options, .. } = *job;
    let last_level = last_level(shape);
    let next_last = last_level - 1;
    if next_last == 0 || busy.writes_into(last_level) || busy.writes_into(next_last) {
        return None;
    }
    let (upper, lower) = (shape.level(next_last), shape.level(last_level));
    let limit_bytes = capacities_bytes(next_last, options)[next_last as usize] / 2;
    let small = |what: &str, bytes: u64| {
        let (bytes, limit) = (format_bytes(bytes), format_bytes(limit_bytes));
        format!("{what} {bytes}, at most {limit}; L{next_last} becomes the last")
    };
    let mut plan = Plan { last_level: Some(next_last), ..Plan::default() };
    if lower.is_empty() {
        let bytes = bytes_within(std::slice::from_ref(upper), limit_bytes)?;
        plan.why = small(&format!("L{last_level} is empty and L{next_last} holds"), bytes);
        return Some(plan);
    }
    let bytes = bytes_within(&shape.levels, limit_bytes)?;
    if upper.tables().chain(lower.tables()).any(|table| busy.tables.contains(&table.id)) {
        return None;
    }
    if upper.is_empty() {
        plan.relabel = vec![(last_level, next_last)];
    } else {
        let rows = [level_rows(next_last, upper), level_rows(last_level, lower)].concat();
        let groups = connect(rows);
        if collides(&groups, next_last, busy) {
            return None;
        }
        let compacted =
            plan_groups(groups, job.output_to(next_last), |lone| lone.level == next_last);
        plan = Plan { last_level: plan.last_level, ..compacted };
    }
    plan.why = small("the tree holds", bytes);
    Some(plan)
}

/// Sum of the table sizes, if it is within the limit. Sums from the deepest level up, which is
/// usually the fullest. Most trees are far larger than the limit, so the sum ends early; that
/// matters because it is computed at each pick.
fn bytes_within(levels: &[Level], limit_bytes: u64) -> Option<u64> {
    let add = |sum: u64, tables: &[Arc<Table>]| {
        let within = |sum: u64, table: &Arc<Table>| {
            sum.checked_add(table.bytes).filter(|sum| *sum <= limit_bytes)
        };
        tables.iter().try_fold(sum, within)
    };
    levels.iter().rev().try_fold(0, |sum, level| match level {
        Level::Runs(runs) => runs.iter().try_fold(sum, |sum, run| add(sum, &run.tables)),
        Level::Overlapping(tables) => add(sum, tables),
    })
}
