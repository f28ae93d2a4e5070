//! Extensions of the paper, and claims that it does not measure: compactions in slices, the space
//! that they borrow, ascending keys, and Global-Range inside a leveled tree.

use runstone::CompactionInstall;
use runstone::unstable;
use runstone_kv::Result;
use runstone_policy::partition::Partitioner;

use super::load::Seen;
use super::{FLUSH_BYTES, FLUSHES, THREADS, data, data_of, side_of, stack, tree};
use crate::engine::{Loaded, write_amplification};
use crate::numbers::{percent_less, strokes};
use crate::report::{bars, rows};
use crate::sides;
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

/// N / theta divided by a power of two: the worst case except for rounding, and nearly the best.
const FILLS: [f64; 2] = [1.25, 0.93];

const COMPARED: [Partitioner; 6] = [
    Partitioner::None,
    Partitioner::Size,
    Partitioner::LocalRange,
    Partitioner::GlobalRange,
    Partitioner::GroupedGlobalRange,
    Partitioner::Prefix,
];
const NAMES: &str = "none / size / local / global / grouped / prefix / leveled";

rows! {
    SLICES = "bytes compacted per byte of the critical path, in slices, {}",
        "" => Beside("slices are ours: the paper's sub-compactions take whole tables");
    TABLES = "tables at the end, {}",
        "" => Beside("judged by the loads with the paper's sizes");
    BORROWED =
        "peak of table files over live bytes in a compaction of everything, atomic / incremental",
        "groups give back their space one by one" => Falls;
    ASCENDING = "ascending keys: bytes rewritten",
        "none: 100% moves" => Exactly(&[0.0]);
    LEVELED = "write amplification of leveling, T = {}, Size against Global-Range",
        "" => Beside("not in the paper, which leaves leveled trees to future work");
}

/// Compactions in slices, which every partitioner shortens.
pub(super) fn slices(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let total = (context.scaled(FLUSHES) * FLUSH_BYTES) as f64;
    // A table is at most a flush, as with the default options.
    for fill in FILLS {
        let power = (total / FLUSH_BYTES as f64 / fill).log2().ceil().max(3.0);
        let theta = (total / (fill * power.exp2())) as u64;
        let leveled = tree("fragmented-leveling", Partitioner::Size, theta);
        let stacks = COMPARED.map(|one| (one.rule().name(), stack(one, theta)));
        let all: Vec<_> = stacks.into_iter().chain([("leveled", leveled)]).collect();
        let side = |(name, one): &(&str, _)| side_of(name, one).with(sides::THREADS, THREADS);
        report.compare(&all.iter().map(side).collect::<Vec<_>>(), &[])?;
        let mut seen = Vec::new();
        for (name, one) in all {
            context.say(&format!("slices, {name}, N / theta = {fill} x 2^{power}"));
            seen.push(Seen::of(context, one, false, THREADS)?);
        }
        let at = format!(
            "theta = {:.2} flushes, N / theta = {fill} x 2^{power}",
            theta as f64 / FLUSH_BYTES as f64
        );
        report.show(SLICES.of(&[&at]), strokes(seen.iter().map(Seen::throughput), 2));
        let tables = seen.iter().map(|one| one.tables as f64);
        report.show(TABLES.of(&[&at]), strokes(tables, 0));
        let titles = [&format!("Slices, {at}")[..], "partitioner", "bytes / byte of critical path"];
        let through = bars("16 threads", seen.iter().map(Seen::throughput));
        let name = format!("slices-{}", (fill * 100.0) as u32);
        report.draw_bars(&name, titles, NAMES.split(" / "), vec![through]);
    }
    Ok(())
}

/// Compares a compaction of everything that keeps all inputs and outputs at the same time with one
/// that keeps only parts of them.
pub(super) fn borrowed_space(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    let options = |compaction_install| {
        stack(Partitioner::GlobalRange, FLUSH_BYTES).compaction_install(compaction_install)
    };
    let installs = [CompactionInstall::Atomic, CompactionInstall::Incremental];
    let side = |install| side_of(&format!("{install:?}").to_lowercase(), &options(install));
    report.compare(&installs.map(side), &[])?;
    let mut here = Vec::new();
    for install in installs {
        context.say(&format!("space of a full compaction, {install:?}"));
        let tree = Loaded::empty(options(install), &data(context), Some(1))?.load()?;
        let before = tree.store.metrics().table_bytes;
        tree.store.compact()?;
        let after = tree.store.metrics();
        let live = before.max(after.table_bytes);
        here.push((
            after.peak_table_file_bytes as f64 / live as f64,
            after.counters.compaction_parts,
        ));
    }
    let [(atomic, _), (incremental, parts)] = here[..] else { return Ok(()) };
    report.judge(
        BORROWED,
        format!("{atomic:.2} / {incremental:.2}, in {parts} edits of parts"),
        &[atomic, incremental],
    );
    Ok(())
}

pub(super) fn ascending(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    context.say("ascending keys");
    let data = data_of(context.scaled(FLUSHES / 4));
    let options = stack(Partitioner::GlobalRange, FLUSH_BYTES);
    report.compare(&[side_of("Global-Range", &options)], &[])?;
    let counters = Loaded::empty(options, &data, Some(1))?.load_ascending()?.counters();
    report.judge(
        ASCENDING,
        format!("{} rewritten, {} moved", counters.compaction_bytes_written, counters.bytes_moved),
        &[counters.compaction_bytes_written as f64],
    );
    Ok(())
}

/// Global-Range inside a leveled tree. Size gets the table size with which it makes as many tables.
pub(super) fn leveled(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for size_ratio in [2, 5] {
        context.say(&format!("leveled, T = {size_ratio}, Size against Global-Range"));
        let tree = |partitioner, theta: u64| -> Result<Seen> {
            let mut options = tree("garnering", partitioner, theta);
            (
                unstable::numbers_mut(&mut options).size_ratio,
                unstable::numbers_mut(&mut options).c,
            ) = (size_ratio, 1.0.into());
            let shape = unstable::numbers_mut(&mut options);
            shape.base_bytes = 4 * FLUSH_BYTES * u64::from(size_ratio);
            shape.l0_share_percent = 50;
            Seen::of(context, options, false, 1)
        };
        let global = tree(Partitioner::GlobalRange, FLUSH_BYTES / 2)?;
        let theta = global.bytes / global.tables.max(1) as u64;
        let size = tree(Partitioner::Size, theta)?;
        let [by_size, by_range] = [&size, &global].map(|one| write_amplification(&one.counters));
        let gain = percent_less(by_size, by_range);
        report.show(
            LEVELED.of(&[&size_ratio]),
            format!(
                "{by_size:.2} with {} tables -> {by_range:.2} with {}: {gain:.1}% less",
                size.tables, global.tables
            ),
        );
    }
    Ok(())
}
