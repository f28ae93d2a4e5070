//! The designs of the KVSSD paper under one load, each run once, and their settings; the code that
//! its rows on devices and by counts share.

use std::cell::RefCell;
use std::collections::BTreeMap;

use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::{KvSsdOptions, Placement};
use runstone_kv::{Error, Result};
use runstone_plot::Axis;

use super::context::Context;
use super::kvssd_runs::{
    Draw, Load, OVER_PROVISION_PERCENT, Outcome, appending, delaying, rewriting, run_device,
    run_engine,
};
use super::numbers::{ratio, strokes};
use super::report::{PaperReport, Row, line};
use super::sides::Side;
use super::verdict::Rule::NotComparable;

/// The size of lLSM's device in blocks of the others: 30% more, as in the paper.
pub(super) const LLSM_VOLUME: f64 = 1.3;

/// A run that several parts use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Run {
    /// The engine on a block SSD that writes what it moves to separate blocks.
    Split,
    /// The engine on a block SSD that mixes these pages with others.
    Shared,
    Nlsm,
    Dlsm,
    /// lLSM, on a larger device.
    Llsm,
    /// rLSM(-).
    Mixed,
    Rlsm,
}

impl Run {
    pub(super) const ALL: [Run; 7] =
        [Run::Split, Run::Shared, Run::Dlsm, Run::Llsm, Run::Nlsm, Run::Mixed, Run::Rlsm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Run::Split => "LSM (split)",
            Run::Shared => "LSM (shared)",
            Run::Nlsm => "nLSM",
            Run::Dlsm => "dLSM",
            Run::Llsm => "lLSM",
            Run::Mixed => "rLSM(-)",
            Run::Rlsm => "rLSM",
        }
    }
}

impl Run {
    /// Compaction, read-modify-write, collection, and all writes, as the paper prints them for
    /// uniform keys (figure 5). NaN where it prints none.
    pub(super) fn printed(self) -> [f64; 4] {
        match self {
            Run::Split | Run::Shared => [17.7, 1.5, 3.6, 93.0],
            Run::Nlsm => [17.7, 1.0, 1.0, 17.7],
            Run::Mixed => [11.0, 1.0, 1.19, 13.1],
            Run::Rlsm => [11.0, 1.0, 1.04, 11.4],
            Run::Dlsm | Run::Llsm => [f64::NAN; 4],
        }
    }
}

/// All runs of a load: each is made once, when it is first needed.
pub(super) struct Lab<'a> {
    pub(super) context: &'a Context<'a>,
    done: RefCell<BTreeMap<(Draw, Run), Outcome>>,
}

impl<'a> Lab<'a> {
    /// A lab in which nothing has run yet.
    pub(super) fn new(context: &'a Context<'a>) -> Lab<'a> {
        Lab { context, done: RefCell::default() }
    }

    /// Runs under the uniform distribution.
    pub(super) fn runs<const N: usize>(&self, runs: [Run; N]) -> Result<[Outcome; N]> {
        self.runs_of(Draw::Uniform, runs)
    }

    pub(super) fn runs_of<const N: usize>(
        &self,
        draw: Draw,
        runs: [Run; N],
    ) -> Result<[Outcome; N]> {
        let mut outcomes = [Outcome::default(); N];
        for (run, outcome) in runs.into_iter().zip(&mut outcomes) {
            let found = self.done.borrow().get(&(draw, run)).copied();
            *outcome = found.map_or_else(|| self.measure(draw, run), Ok)?;
            self.done.borrow_mut().insert((draw, run), *outcome);
        }
        Ok(outcomes)
    }

    fn measure(&self, draw: Draw, run: Run) -> Result<Outcome> {
        let (load, options, percent) = (self.load(draw), self.options(), OVER_PROVISION_PERCENT);
        match run {
            Run::Split => self.engine(&load, GcFrontier::Split, percent),
            Run::Shared => self.engine(&load, GcFrontier::Shared, percent),
            Run::Nlsm => self.device(&load, rewriting(options)),
            Run::Dlsm => self.device(&load, delaying(options)),
            Run::Llsm => self.device(&load.times(LLSM_VOLUME), appending(options)),
            Run::Mixed => {
                self.device(&load, KvSsdOptions { placement: Placement::Mixed, ..options })
            }
            Run::Rlsm => self.device(&load, options),
        }
    }

    pub(super) fn load(&self, draw: Draw) -> Load {
        Load::of(self.context, draw)
    }

    pub(super) fn device(&self, load: &Load, options: KvSsdOptions) -> Result<Outcome> {
        let (name, draw) = (options.name(), load.draw.name());
        self.context.say(&format!("{name} with TH {}, {draw}", options.threshold));
        run_device(self.context, load, &options)
    }

    pub(super) fn engine(&self, load: &Load, frontier: GcFrontier, op: u32) -> Result<Outcome> {
        let draw = load.draw.name();
        self.context.say(&format!("LSM on a block SSD, {op} percent set aside, {draw}"));
        run_engine(self.context, load, "fragmented-leveling", frontier, op)
    }

    pub(super) fn options(&self) -> KvSsdOptions {
        let over_provision_percent = OVER_PROVISION_PERCENT;
        KvSsdOptions { over_provision_percent, ..self.load(Draw::Uniform).device_options() }
    }
}

/// The sides for the engine, nLSM, dLSM, rLSM(-) and rLSM.
pub(super) fn sides(lab: &Lab<'_>) -> [Side; 5] {
    let rlsm = lab.options();
    let mixed = KvSsdOptions { placement: Placement::Mixed, ..rlsm.clone() };
    let load = lab.load(Draw::Uniform);
    let devices = [rewriting(rlsm.clone()), delaying(rlsm.clone()), mixed, rlsm];
    let [nlsm, dlsm, mixed, rlsm] = devices.map(|options| load.device_side(&options));
    [load.engine_side("LSM", OVER_PROVISION_PERCENT), nlsm, dlsm, mixed, rlsm]
}

/// The variants of [`sides`], and lLSM, whose device is larger.
pub(super) fn all_sides(lab: &Lab<'_>) -> Vec<Side> {
    let larger = lab.load(Draw::Uniform).times(LLSM_VOLUME);
    let llsm = larger.device_side(&appending(lab.options()));
    sides(lab).into_iter().chain([llsm]).collect()
}

/// Judges the collections of a tree of files as more space is set aside. A file takes whole blocks,
/// and a larger tree needs more room to compact, so at other scales its files may not fit.
pub(super) fn judge_if_it_fits(
    report: &mut PaperReport,
    row: Row,
    first: f64,
    more: Result<Vec<f64>>,
) -> Result<Vec<f64>> {
    Ok(match more {
        Ok(more) => {
            let collection = [&[first], &more[..]].concat();
            report.judge(row, strokes(&collection, 2), &collection);
            collection
        }
        Err(error) if is_full(&error) => {
            report.show(row.by(NotComparable("too few blocks")), error.to_string());
            vec![first]
        }
        Err(error) => return Err(error),
    })
}

/// Whether a device, or the model of one, had no room.
fn is_full(error: &Error) -> bool {
    match error {
        Error::Store(error) => error.is_no_space(),
        // The model fails only for lack of room.
        _ => true,
    }
}

/// Judges all writes of a device divided by the engine's on each block SSD; the better block SSD
/// counts.
pub(super) fn judge_writes(report: &mut PaperReport, row: Row, [device, split, shared]: [f64; 3]) {
    let [split, shared] = [split, shared].map(|lsm| ratio(device, lsm, 2, ""));
    report.judge(row, format!("{}, {}", split.0, shared.0), &[split.1.max(shared.1)]);
}

/// Draws compaction and collection at TH 1 to 4, both relative to TH 1, as in the paper.
pub(super) fn draw_thresholds(
    report: &mut PaperReport,
    [name, title]: [&str; 2],
    seen: [Vec<f64>; 2],
) {
    let over_first = |(name, values): (&str, Vec<f64>)| {
        let points = values.iter().map(|value| value / values[0]);
        line(name, (1..=4).map(f64::from).zip(points))
    };
    let lines = ["compaction", "collection"].into_iter().zip(seen).map(over_first).collect();
    let (x, y) = (Axis::linear("TH"), "bytes written, over those at TH 1");
    report.draw_lines(name, title, x, y, lines);
}
