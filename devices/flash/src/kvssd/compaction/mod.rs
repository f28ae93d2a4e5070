//! Chooses the tables to compact: as the policy says, and when space is short.

pub(super) mod append;
mod filters;
mod flush;
mod job;
mod output;
mod piece;
pub(super) mod remap;

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_policy::plan::{Busy, Heat, Plan};

pub(super) use flush::flush;
use job::{Job, has_many_deletes, run};
use output::fill_pages;
use piece::hull;

use super::catalog::{Catalog, mark_stuck};
use super::collection::budget::full;
use super::collection::{after_commit, make_room};
use super::counters::Cause;
use super::format::key::Key;
use super::options::Form;
use super::tree::Node;
use super::tree::journal::node_bytes;
use crate::error::{Error, Result};

/// How many tables of lLSM are merged at a time when space is short.
const MERGED_TABLES: usize = 8;

/// Moves down the data that exceed the policy's limits, and rewrites tables that are full of
/// deletes. Tables that cannot be read stay, so that their readers get an error and not an older
/// version. The others are compacted around them.
pub(super) fn settle(catalog: &mut Catalog) -> Result<()> {
    let policy = catalog.options.compaction_policy()?;
    let numbers = catalog.options.policy_options(&catalog.space.nand.geometry());
    let heat = Heat::default();
    let mut may_merge = true;
    loop {
        let shape = catalog.tree.shape();
        let mut busy = Busy::default();
        busy.tables.clone_from(catalog.stuck.tables());
        if !may_merge {
            busy.tables.extend(catalog.tree.level(0).iter().map(|node| node.id));
        }
        let Some(plan) = policy.pick(&shape, &busy, &heat, &numbers) else { break };
        // Level 0 is merged within itself only if it cannot sink.
        let is_merge = plan.compactions.iter().any(|compaction| compaction.output_level == 0);
        if is_merge && !catalog.stuck.may_merge(catalog.tree.level(0).len()) {
            may_merge = false;
            continue;
        }
        let tables = Busy::of(&shape, [&plan]).tables;
        let done = match is_merge {
            true => merge_level0(catalog, &tables),
            false => run_plan(catalog, plan),
        };
        match done {
            Err(error) => mark_stuck(catalog, error, &tables)?,
            Ok(()) if is_merge => catalog.stuck.note_merge(catalog.tree.level(0).len()),
            Ok(()) => {}
        }
    }
    while let Some(node) = find_idle_deletes(catalog) {
        let (output_level, tables) = (node.level, BTreeSet::from([node.id]));
        let job = Job { upper: vec![node], output_level, is_rewrite: true, ..Job::default() };
        if let Err(error) = run(catalog, &job) {
            mark_stuck(catalog, error, &tables)?;
        }
    }
    Ok(())
}

/// Merges tables of level 0 within the level, part after part. The aim is fewer tables, not tables
/// of more strata.
fn merge_level0(catalog: &mut Catalog, tables: &BTreeSet<u64>) -> Result<()> {
    let is_other = |node: &&Arc<Node>| !tables.contains(&node.id);
    let others = catalog.tree.level(0).iter().filter(is_other).map(|node| node.id);
    let others: BTreeSet<u64> = others.collect();
    let mut from = Some(Key::default());
    while let Some(start) = from {
        let is_next = |node: &&Arc<Node>| !others.contains(&node.id) && node.fence.lo >= start;
        let upper: Vec<_> = catalog.tree.level(0).iter().filter(is_next).cloned().collect();
        if upper.is_empty() {
            break;
        }
        from = run(catalog, &Job { upper, is_rewrite: true, ..Job::default() })?;
    }
    Ok(())
}

fn run_plan(catalog: &mut Catalog, plan: Plan) -> Result<()> {
    let mut cursors = plan.cursors;
    let mut last_level = plan.last_level;
    for compaction in &plan.compactions {
        let inputs = compaction.inputs.iter().flat_map(|input| input.tables.iter());
        let mut upper: Vec<Arc<Node>> =
            inputs.filter_map(|id| catalog.tree.node(*id).cloned()).collect();
        let output_level = target(catalog, compaction.output_level, &upper);
        if upper.iter().any(|node| node.level != output_level) {
            upper.retain(|node| node.level != output_level);
        }
        upper.sort_by_key(|node| (std::cmp::Reverse(node.level), node.max_seq));
        let (cursors, last_level) = (std::mem::take(&mut cursors), last_level.take());
        let is_rewrite = false;
        run(catalog, &Job { upper, output_level, is_rewrite, cursors, last_level })?;
    }
    let mut moves = Vec::new();
    for (from, to) in plan.relabel {
        // Runs of one level that overlap would have to move one after another.
        let levels = catalog.tree.bands.levels(from);
        debug_assert_eq!(levels.len(), 1, "policies of several runs relabel nothing");
        let tables = levels.flat_map(|level| catalog.tree.level(level as usize));
        moves.extend(tables.map(|node| (node.id, to)));
    }
    moves.extend(plan.moves.iter().map(|step| (step.table, step.to_level)));
    move_tables(catalog, moves, cursors, last_level)
}

/// The level of the tree that receives a compaction into a level of the policy.
fn target(catalog: &Catalog, band: u32, upper: &[Arc<Node>]) -> u8 {
    let range = hull(upper);
    let meets = |level: u32| !catalog.tree.overlapping(level as usize, &range).is_empty();
    let levels = upper.iter().map(|node| u32::from(node.level));
    catalog.tree.bands.target(band, levels, meets) as u8
}

/// Moves tables to another level of the policy. A table that overlaps nothing there needs only
/// the journal page. Tables are given by id, because collections in between move their metadata
/// pages. The tables do not overlap each other.
fn move_tables(
    catalog: &mut Catalog,
    moves: Vec<(u64, u32)>,
    mut cursors: Vec<(u32, Box<[u8]>)>,
    last_level: Option<u32>,
) -> Result<()> {
    let mut moves = moves.into_iter().peekable();
    let is_relabelled = last_level.is_some_and(|last| last != catalog.tree.last_level);
    let mut is_due = is_relabelled || !cursors.is_empty();
    while is_due || moves.peek().is_some() {
        is_due = false;
        if !make_room(catalog, 0)? {
            return Err(full(catalog));
        }
        let mut moved = catalog.begin();
        let commit = &mut moved.commit;
        commit.cursors = std::mem::take(&mut cursors);
        commit.last_level = last_level.unwrap_or(commit.last_level);
        let mut used_bytes: usize = commit.cursors.iter().map(|(_, key)| 6 + key.len()).sum();
        let room = catalog.space.page_bytes() - 128;
        let mut sinking = None;
        while let Some((id, band)) = moves.peek().copied() {
            let Some(node) = catalog.tree.node(id) else {
                moves.next();
                continue;
            };
            used_bytes += 8 + node_bytes(&node.fence);
            if used_bytes > room {
                break;
            }
            moves.next();
            let meets = |level: u32| {
                level > 0 && !catalog.tree.overlapping(level as usize, &node.fence).is_empty()
            };
            let level = catalog.tree.bands.rest(band, node.level.into(), meets) as u8;
            if level == node.level {
                continue;
            }
            if meets(level.into()) {
                sinking = Some((Arc::clone(node), level));
                break;
            }
            commit.removed.push(id);
            commit.added.push(Node { level, ..Node::clone(node) });
        }
        catalog.counters.moved_tables += commit.added.len() as u64;
        catalog.transact(Cause::Compaction, |catalog| catalog.commit(moved))?;
        after_commit(catalog)?;
        if let Some((node, output_level)) = sinking {
            run(catalog, &Job { upper: vec![node], output_level, ..Job::default() })?;
        }
    }
    Ok(())
}

/// Finds a table with many deletes that no longer hide anything.
fn find_idle_deletes(catalog: &Catalog) -> Option<Arc<Node>> {
    let first_snapshot = catalog.snapshots.oldest().unwrap_or(u64::MAX);
    let is_idle = |node: &&Arc<Node>| {
        let level = usize::from(node.level);
        has_many_deletes(node.tombstones, node.record_count)
            && level > 0
            && !catalog.stuck.tables().contains(&node.id)
            && node.max_seq <= first_snapshot
            && (level + 1..catalog.tree.level_count())
                .all(|below| catalog.tree.overlapping(below, &node.fence).is_empty())
    };
    catalog.tree.nodes().find(is_idle).cloned()
}

/// Compacts table by table, until `is_enough` says so. Tables that cannot be read stay where they
/// are, and so do tables that would sink into them. Returns the first error of such a table.
pub(super) fn squeeze(
    catalog: &mut Catalog,
    is_enough: impl Fn(&Catalog) -> bool,
) -> Result<Option<Error>> {
    let bottom = catalog.tree.level_count().saturating_sub(1).max(1);
    let mut unread = None;
    for level in 0..bottom {
        let mut left = BTreeSet::new();
        while !is_enough(catalog) {
            let upper = next_squeezed(catalog, level, &left);
            if upper.is_empty() {
                break;
            }
            let output_level = squeezed_level(catalog, level, bottom, &upper);
            let Some(error) = squeeze_tables(catalog, upper.clone(), output_level)? else {
                continue;
            };
            unread.get_or_insert(error);
            left.extend(upper.iter().map(|node| node.id));
            if level == 0 {
                // The tables cannot sink, but may hide versions of each other.
                let tables = upper.iter().map(|node| node.id).collect();
                unless_unread(merge_level0(catalog, &tables))?;
                left.extend(catalog.tree.level(0).iter().map(|node| node.id));
            }
        }
    }
    // Under lLSM tables are also merged, so that fewer of them reserve space.
    let count = if catalog.options.form == Form::Append { MERGED_TABLES } else { 1 };
    let is_wasteful = |nodes: &&[Arc<Node>]| {
        let pages: u32 = nodes.iter().map(|node| node.charged_pages).sum();
        nodes.iter().any(|node| node.counter > 1 || node.tombstones > 0)
            || count > 1 && (pages.div_ceil(fill_pages(catalog)) as usize) < nodes.len()
    };
    let wasteful: Vec<Vec<Arc<Node>>> = (catalog.tree.level(bottom).chunks(count))
        .filter(is_wasteful)
        .map(<[Arc<Node>]>::to_vec)
        .collect();
    for upper in wasteful {
        let is_there = upper.iter().all(|node| catalog.tree.node(node.id).is_some());
        if is_there && !is_enough(catalog) {
            unread = unread.or(squeeze_tables(catalog, upper, bottom as u8)?);
        }
    }
    Ok(unread)
}

/// What sinks next from a level: all tables of level 0, or the first table that is not in `left`.
fn next_squeezed(catalog: &Catalog, level: usize, left: &BTreeSet<u64>) -> Vec<Arc<Node>> {
    let tables = catalog.tree.level(level);
    let is_new = |node: &&Arc<Node>| !left.contains(&node.id);
    match level {
        0 if tables.iter().all(|node| is_new(&node)) => tables.to_vec(),
        0 => Vec::new(),
        _ => tables.iter().find(is_new).cloned().into_iter().collect(),
    }
}

/// The level that tables sink to: one level of the policy at a time. When tables sank through all
/// levels at once, lLSM filled up in a case in which it otherwise does not (docs/papers/kvssd.md,
/// 1.1 volumes).
fn squeezed_level(catalog: &Catalog, level: usize, bottom: usize, upper: &[Arc<Node>]) -> u8 {
    let range = hull(upper);
    let meets = |below: &usize| !catalog.tree.overlapping(*below, &range).is_empty();
    let bands = catalog.tree.bands;
    let below = bands.levels(bands.band(level as u32) + 1).end as usize - 1;
    let last = below.min(bottom);
    (level + 1..last).find(meets).unwrap_or(last) as u8
}

/// Rewrites tables into a level. If a page cannot be read, the tables stay, and the error is
/// returned as a value.
fn squeeze_tables(
    catalog: &mut Catalog,
    upper: Vec<Arc<Node>>,
    output_level: u8,
) -> Result<Option<Error>> {
    let job = Job { upper, output_level, is_rewrite: true, ..Job::default() };
    unless_unread(run(catalog, &job))
}

fn unless_unread<T>(done: Result<T>) -> Result<Option<Error>> {
    match done {
        Ok(_) => Ok(None),
        Err(error @ (Error::Uncorrectable(_) | Error::PageDamaged(..))) => Ok(Some(error)),
        Err(other) => Err(other),
    }
}
