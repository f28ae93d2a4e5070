//! The headlines at the paper's own 40 GiB, by metadata alone: with all due jobs between two
//! flushes, and in lanes. Random keys, spread evenly.

use runstone::KeyspaceOptions;
use runstone::policy::custom;
use runstone::unstable;
use runstone_kv::Result;
use runstone_policy::partition::Partitioner;
use runstone_policy::policy::{CompactionPolicy, compaction_debt_bytes};
use runstone_policy::registry;
use runstone_simulator::{SimReport, Simulator};

use super::lanes::{DIVISOR, ENTRY_BYTES, LEVELED, lanes_of};
use super::load::STACKED;
use super::{FLUSH_BYTES, FLUSHES, Flushes, THREADS, paper_stack, side_of, tree};
use crate::device_time::{Backlog, Tree};
use crate::numbers::strokes;
use crate::report::rows;
use crate::sides::{self, SUB_COMPACTIONS};
use crate::simulated::{Writes, simulate, simulator};
use crate::verdict::Rule::*;
use crate::{Context, PaperReport};

rows! {
    OWN_PARTS = "bytes compacted per byte of the critical path; time of the writes by its bytes; \
                 simulator at 40 GiB, {}",
        "Global-Range up to 30% above Size; 8% faster than none, 13% than Size"
        => Ratios(&[1.3, 1.08, 1.13]);
    OWN_TABLES = "tables at the end, simulator at 40 GiB, {}: Global-Range over Size",
        "8% more; elsewhere 1.5 to 2 times as many" => AtMost(1.08);
    OWN_LEVELED = "write amplification, simulator at 40 GiB, Global-Range and leveled; {}",
        "leveled writes most" => Rises;
}

/// Whether jobs run in lanes, or all due jobs run between two flushes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jobs {
    Between,
    InLanes,
}

pub(super) fn own_size(context: &Context<'_>, report: &mut PaperReport) -> Result<()> {
    for flushes in [Flushes::Whole, Flushes::Cut] {
        let all = trees(flushes);
        let side = |(name, one): &(&str, _)| side_of(name, one).with(sides::THREADS, THREADS);
        let about = [SUB_COMPACTIONS, "cut flushes"];
        report.compare(&all.iter().map(side).collect::<Vec<_>>(), &about)?;
        for jobs in [Jobs::Between, Jobs::InLanes] {
            let of = |(name, options): &(&str, KeyspaceOptions)| {
                context.say(&format!("40 GiB by the simulator, {name}"));
                reckon(name, options, jobs)
            };
            let keys = match flushes {
                Flushes::Whole => "random keys",
                Flushes::Cut => "random keys, cut flushes",
            };
            let lanes = if jobs == Jobs::InLanes { ", in lanes" } else { "" };
            let seen: Vec<SimReport> = all.iter().map(of).collect();
            let at = format!("{keys}{lanes}");
            judge_parts(report, &seen[..STACKED.len()], &at);
            if flushes == Flushes::Whole {
                judge_trees(report, &seen, &at);
            }
        }
    }
    Ok(())
}

/// The four stacks and the leveled tree.
fn trees(flushes: Flushes) -> Vec<(&'static str, KeyspaceOptions)> {
    let theta = flushes.theta() * DIVISOR;
    let stacks = STACKED.map(|(name, one)| (name, paper_stack(one, theta, flushes)));
    let leveled = tree("fragmented-leveling", Partitioner::Size, theta);
    let mut all: Vec<_> = stacks.into_iter().chain([(LEVELED, leveled)]).collect();
    for (_, options) in &mut all {
        unstable::numbers_mut(options).base_bytes *= DIVISOR;
    }
    all
}

fn reckon(name: &str, options: &KeyspaceOptions, jobs: Jobs) -> SimReport {
    let flush_bytes = FLUSH_BYTES * DIVISOR;
    let writes = Writes {
        bytes: FLUSHES * flush_bytes,
        flush_bytes,
        entry_bytes: ENTRY_BYTES,
        keys: None,
        prefixes: 1,
    };
    if jobs == Jobs::Between {
        return simulate(options, &writes);
    }
    let policy = registry::find(&options.policy).expect("a registered policy");
    let mut tree = Modelled { simulator: simulator(options, &writes), options, policy };
    let mut lanes = lanes_of(name);
    let mut load = || -> Result<()> {
        for _ in 0..FLUSHES {
            for _ in 0..FLUSH_BYTES / ENTRY_BYTES {
                lanes.write(&mut tree, ENTRY_BYTES)?;
            }
            lanes.flush(&mut tree)?;
        }
        Ok(())
    };
    load().expect("a model has no errors");
    tree.simulator.report()
}

/// The tree of the simulator. All times are divided like the engine's bytes, so that the lanes are
/// the same.
struct Modelled<'a> {
    simulator: Simulator<'static>,
    options: &'a KeyspaceOptions,
    policy: &'static dyn CompactionPolicy,
}

impl Tree for Modelled<'_> {
    fn flush(&mut self) -> Result<u64> {
        Ok(fits(self.simulator.flush_alone()) / DIVISOR)
    }

    fn run_one_job(&mut self) -> Result<Option<u64>> {
        Ok(fits(self.simulator.run_one_job()).map(|bytes| bytes / DIVISOR))
    }

    fn backlog(&self) -> Backlog {
        let shape = self.simulator.shape();
        let options = custom::options_of(self.options);
        let debt_bytes = compaction_debt_bytes(shape, self.policy, options) / DIVISOR;
        Backlog { level_0_runs: shape.level(0).runs().len(), debt_bytes }
    }
}

fn fits<T, E: std::fmt::Debug>(result: std::result::Result<T, E>) -> T {
    result.expect("plans of a registered policy fit the shape")
}

fn judge_parts(report: &mut PaperReport, stacks: &[SimReport], at: &str) {
    let of = |value: fn(&SimReport) -> f64| -> Vec<f64> { stacks.iter().map(value).collect() };
    let through =
        of(|one| one.compaction_read_bytes as f64 / one.critical_read_bytes.max(1) as f64);
    let times =
        of(|one| (one.flushed_bytes + one.critical_read_bytes) as f64 / one.user_bytes as f64);
    let gains = [through[3] / through[1], times[0] / times[3], times[1] / times[3]];
    let here = [through, times].map(|each| strokes(each, 2)).join("; ");
    report.judge(OWN_PARTS.of(&[&at]).uncounted(), here, &gains);
}

fn judge_trees(report: &mut PaperReport, seen: &[SimReport], at: &str) {
    let count = |one: &SimReport| one.levels.iter().map(|level| level.table_count).sum::<u64>();
    let tables: Vec<f64> = seen[..STACKED.len()].iter().map(|one| count(one) as f64).collect();
    let row = OWN_TABLES.of(&[&at]).uncounted();
    report.judge(row, strokes(&tables, 0), &[tables[3] / tables[1]]);
    let written = [3, 4].map(|side: usize| seen[side].write_amplification_permille as f64 / 1000.0);
    report.judge(OWN_LEVELED.of(&[&at]).uncounted(), strokes(written, 2), &written);
}
