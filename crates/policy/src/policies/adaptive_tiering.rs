//! Adaptive tiering (PTierDB): levels whose tables may overlap, cut where the key prefix changes. A
//! level sinks without reading the one below, and only keys that many tables share are rewritten.
//!
//! 1. A level that another policy left as runs becomes an overlapping one; nothing is rewritten.
//! 2. Compaction and split: at `l0_trigger` idle runs of level 0, these runs compact into level 1,
//!    each component of key overlap by itself. A lone table moves. Level 1 is not read. Outputs are
//!    cut by prefix ([`Cut::Prefix`]).
//! 3. Compaction and move: a level over base * T^(i-1) bytes sinks whole into the next one, which
//!    is not read, by the rules of `unions`. The deepest level gets the next number instead: it has
//!    no older versions below it, so it can be renumbered, and rewriting it gains nothing.
//! 4. Intra-level compaction: a table that gets access too often where tables overlap is compacted
//!    with all tables that overlap it. The tables of the deepest overlap are also compacted if it
//!    is deeper than T, or if more than a quarter of the level's entries are estimated to be
//!    obsolete. Without this guard, which the paper lacks, a load that only writes would never
//!    compact the last level.
//!
//! 5. If more than a quarter of the two deepest levels together is estimated to be obsolete, the
//!    upper one sinks before it is full, so that rule 4 can remove the obsolete entries. After the
//!    deepest level has got a new number, the level above may grow to the same size: without this
//!    rule the store could use twice the space of its data. (Not in the paper.)
//!
//! Age order. Between levels, I1 holds since a level sinks whole: none of its tables may be busy.
//! Tables that still arrive from above are newer. Inside a level there is no order; reads follow
//! rule I3 and compactions drop by rule I4. The paper's order by file number is unsafe: a file with
//! a larger number may contain older versions. Source: PTierDB §III-B, §III-C.

use std::collections::BTreeMap;
use std::slice;

use crate::options::{IntraLevel, PolicyOptions};
use crate::overlap::{Group, Output, Row, compaction_of, connect, level_rows};
use crate::policies::{leveled, overlapped};
use crate::policy::{CompactionPolicy, Job, LevelTarget};
use crate::shape::overlapping::{OverlappingTables, obsolete_share};
use crate::shape::plan::{Cut, Partitioner, Plan};
use crate::shape::{Level, RunSlot, Shape, Table};
use crate::text::{format_bytes, format_key};
use crate::units::Thousandths;

/// Estimated share of obsolete entries above which a level compacts inside itself.
pub const OBSOLETE_SHARE: Thousandths = Thousandths::of_parts(250);

/// See the module docs.
pub struct AdaptiveTiering;

impl CompactionPolicy for AdaptiveTiering {
    fn name(&self) -> &'static str {
        "adaptive-tiering"
    }

    fn doc(&self) -> &'static str {
        "tables overlap, cut by key prefix; levels sink by moves, reads trigger compactions \
         (PTierDB)"
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        overlapped::targets(shape, options)
    }

    fn own_partitioner(&self) -> Option<Partitioner> {
        Some(Partitioner::Prefix)
    }

    fn whole_output(&self, _: &Shape, _: u32, options: &PolicyOptions) -> (RunSlot, Cut) {
        (RunSlot::Overlapping, options.prefix_cut())
    }

    fn decide(&self, job: &Job<'_>) -> Option<Plan> {
        let cut = job.options.prefix_cut();
        job.adopt(cut)
            .or_else(|| job.compact_and_split(cut))
            .or_else(|| job.sink_levels())
            .or_else(|| job.sink_obsolete())
            .or_else(|| job.compact_inside())
    }
}

impl Job<'_> {
    /// Rule 3, for the shallowest level that is over its capacity and idle.
    fn sink_levels(&self) -> Option<Plan> {
        let deepest = self.shape.deepest()?;
        (1..=deepest).find_map(|index| {
            let bytes = self.shape.level(index).bytes();
            let capacity = leveled::capacity_bytes(index, self.options);
            if bytes <= capacity || !self.is_level_idle(index) || !self.can_receive(index + 1) {
                return None;
            }
            let (have, most) = (format_bytes(bytes), format_bytes(capacity));
            let reason = format!("L{index} over target: {have} of {most}");
            Some(match index == deepest {
                true => self.relabel(index, &reason),
                false => self.compact_and_move(index, &reason),
            })
        })
    }

    /// Rule 5. An entry of the deepest level is obsolete if the level above also contains its key.
    fn sink_obsolete(&self) -> Option<Plan> {
        let deepest = self.shape.deepest().filter(|deepest| *deepest >= 2)?;
        let index = deepest - 1;
        let (Level::Overlapping(upper), Level::Overlapping(last)) =
            (self.shape.level(index), self.shape.level(deepest))
        else {
            return None;
        };
        let entries = upper.stats().entries + last.stats().entries;
        // The two levels together contain at least the keys of the last, so no more than this can
        // be obsolete.
        let bound = obsolete_share(entries, last.stats().distinct_keys);
        if bound <= OBSOLETE_SHARE || !self.is_level_idle(index) {
            return None;
        }
        let mut keys = upper.keys().clone();
        keys.merge(last.keys());
        let obsolete = obsolete_share(entries, keys.estimate()?);
        if obsolete <= OBSOLETE_SHARE {
            return None;
        }
        let percent = obsolete.parts() / 10;
        let reason = format!("about {percent}% of L{index} and L{deepest} is obsolete");
        Some(self.compact_and_move(index, &reason))
    }

    fn relabel(&self, index: u32, reason: &str) -> Plan {
        let next = index + 1;
        Plan {
            relabel: vec![(index, next)],
            why: format!("{reason}; the deepest level becomes L{next}, nothing is rewritten"),
            ..Plan::default()
        }
    }

    fn compact_and_move(&self, index: u32, reason: &str) -> Plan {
        let mut plan = Plan::default();
        let output = self.overlapping(index + 1);
        for group in connect(level_rows(index, self.shape.level(index))) {
            match group {
                Group::Apart(row) => plan.moves.extend(row.moves(output)),
                Group::Joined(component) => {
                    for set in unions(component.rows) {
                        match set.as_slice() {
                            [lone] => plan.moves.extend(lone.moves(output)),
                            _ => plan.compactions.push(compaction_of(set, output)),
                        }
                    }
                }
            }
        }
        let compacted: usize =
            plan.compactions.iter().map(|compaction| compaction.input_ids().count()).sum();
        let (moved, next) = (plan.moves.len(), index + 1);
        plan.why = format!(
            "{reason}; {compacted} tables are compacted, {moved} move, L{next} is not read"
        );
        plan
    }

    /// Rule 4, deepest level first: most gets end there.
    fn compact_inside(&self) -> Option<Plan> {
        let deepest = self.shape.deepest()?;
        let shallowest = match self.options.numbers.intra_level {
            IntraLevel::Every => 1,
            IntraLevel::Last => deepest.max(1),
        };
        (shallowest..=deepest).rev().find_map(|index| match self.shape.level(index) {
            Level::Overlapping(tables) => {
                self.compact_hot(index, tables).or_else(|| self.guard(index, tables))
            }
            Level::Runs(_) => None,
        })
    }

    /// The compaction of the hottest table whose accesses exceed the cost of compacting it.
    fn compact_hot(&self, index: u32, tables: &OverlappingTables) -> Option<Plan> {
        let heat = |table: &Table| self.heat.accesses.get(&table.id).copied();
        if self.heat.accesses.is_empty() || tables.stats().depth < 2 {
            return None;
        }
        let allowed = |at: usize| {
            let bytes = tables.group_bytes(at);
            u64::from(self.options.numbers.access_limit)
                .max(bytes / self.options.numbers.access_bytes)
        };
        let mut hot: Vec<(u64, usize)> = (0..tables.len())
            .filter_map(|at| Some((heat(&tables[at])?, at)))
            .filter(|(accesses, at)| *accesses >= allowed(*at))
            .collect();
        hot.sort_by_key(|(accesses, at)| (std::cmp::Reverse(*accesses), *at));
        hot.into_iter().find_map(|(accesses, at)| {
            let (group, id) = (self.group(index, tables, &tables[at])?, tables[at].id);
            let (allowed, count) = (allowed(at), group.len() - 1);
            let why = format!(
                "L{index} table {id}: {accesses} accesses of {allowed}, with {count} that overlap \
                 it"
            );
            Some(self.inside(index, group, why))
        })
    }

    /// Compactions that no read triggers: of overlap that is too deep, or of too many obsolete
    /// entries.
    fn guard(&self, index: u32, tables: &OverlappingTables) -> Option<Plan> {
        let stats = tables.stats();
        let obsolete = stats.obsolete_share();
        let is_deep = stats.depth > self.options.numbers.size_ratio;
        if stats.depth < 2 || (!is_deep && obsolete <= OBSOLETE_SHARE) {
            return None;
        }
        let target = tables.get(stats.deepest)?;
        let group = self.group(index, tables, target)?;
        let at = format_key(&target.min_key);
        let why = match is_deep {
            true => format!("L{index}: {} tables overlap at {at}", stats.depth),
            false => {
                format!("L{index}: about {}% obsolete; most overlap at {at}", obsolete.parts() / 10)
            }
        };
        Some(self.inside(index, group, why))
    }

    /// A table and all tables that overlap it, if there are any and all are idle. A table that
    /// overlaps only those others may stay: I3 and I4 hold without it.
    fn group<'t>(
        &self,
        index: u32,
        tables: &'t OverlappingTables,
        target: &'t Table,
    ) -> Option<Vec<Row<'t>>> {
        let met = tables.meeting(&target.min_key, &target.max_key);
        let group: Vec<Row<'_>> =
            met.map(|table| Row::new(index, 0, slice::from_ref(table))).collect();
        let is_idle = group.iter().all(|row| self.is_idle(row.tables));
        (group.len() > 1 && is_idle).then_some(group)
    }

    fn inside(&self, index: u32, group: Vec<Row<'_>>, why: String) -> Plan {
        let why = format!("{why}; intra-level compaction");
        Plan {
            compactions: vec![compaction_of(group, self.overlapping(index))],
            why,
            ..Plan::default()
        }
    }

    fn overlapping(&self, level: u32) -> Output {
        overlapped::output(level, self.options.prefix_cut())
    }
}

/// Splits a group of connected tables into the sets that are compacted; a set of one moves. Follows
/// PTierDB §III-B2, and defines what the paper leaves open.
///
/// 1. Two tables are compacted if both contain many prefixes or both contain one; else both move.
/// 2. Of three or more, tables that share a prefix with two others are compacted.
/// 3. If only two tables contain a prefix, they are compacted, unless one of them contains no other
///    prefix.
/// 4. Sets that share a table become one set. A table in no set moves.
///
/// A table without a prefix list counts as having many prefixes: all that its bounds allow.
fn unions(rows: Vec<Row<'_>>) -> Vec<Vec<Row<'_>>> {
    let mut rows: Vec<Row<'_>> = rows.into_iter().flat_map(Row::split).collect();
    // Sets are returned in the order of their first tables.
    rows.sort_by_key(|row| {
        let table = &row.tables[0];
        (&table.min_key, &table.max_key, table.id)
    });
    let is_single = |at: usize| rows[at].tables[0].prefixes.len() == 1;
    let mut sets = Sets::new(rows.len());
    match rows.len() {
        2 if is_single(0) == is_single(1) => sets.join(0, 1),
        2 => {}
        _ => {
            for holders in holders_by_prefix(&rows).values() {
                let [first, second, ..] = holders[..] else { continue };
                if holders.len() > 2 || is_single(first) == is_single(second) {
                    holders.iter().for_each(|at| sets.join(first, *at));
                }
            }
        }
    }
    sets.split(rows)
}

/// For each prefix, the tables of a group (one per row) that contain it. A table without a list
/// counts as containing every prefix of the others that its bounds allow. Where tables without
/// lists overlap each other, the smallest key of each stands for a prefix.
fn holders_by_prefix<'a>(rows: &[Row<'a>]) -> BTreeMap<&'a [u8], Vec<usize>> {
    let mut holders: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    let tables = || rows.iter().flat_map(|row| row.tables).enumerate();
    for (at, table) in tables() {
        for prefix in &table.prefixes {
            holders.entry(prefix).or_default().push(at);
        }
    }
    for (_, table) in tables().filter(|(_, table)| table.prefixes.is_empty()) {
        holders.entry(&table.min_key).or_default();
    }
    for (at, table) in tables().filter(|(_, table)| table.prefixes.is_empty()) {
        for (prefix, own) in holders.range_mut(..=&*table.max_key) {
            if table.min_key.starts_with(prefix) || **prefix >= *table.min_key {
                own.push(at);
            }
        }
    }
    holders
}

/// Disjoint sets of table indices.
struct Sets {
    parents: Vec<usize>,
}

impl Sets {
    fn new(count: usize) -> Sets {
        Sets { parents: (0..count).collect() }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    /// The smaller index becomes the root, so that sets are returned in key order.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }

    fn split<T>(mut self, members: Vec<T>) -> Vec<Vec<T>> {
        let mut sets: BTreeMap<usize, Vec<T>> = BTreeMap::new();
        for (at, member) in members.into_iter().enumerate() {
            sets.entry(self.root(at)).or_default().push(member);
        }
        sets.into_values().collect()
    }
}
