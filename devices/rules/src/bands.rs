//! Levels of several runs on a tree that has one run in each of its levels: code that the flash
//! firmware and its simulator share.
//!
//! Each level of a policy is a *band* of levels of the tree: one for each run that it may have, the
//! older runs deeper. So the tree keeps its one rule, that deeper data is older: look-ups, scans,
//! commits and recovery know no runs, and nothing on flash says which run a table is in. A policy
//! of one run has bands of one level. A device may be opened with other bands: its order is kept,
//! and a leveled policy keeps runs that it finds deeper than it needs until a full compaction.
//!
//! Rejected: the number of a run in each table of the tree. Every reader would order tables by two
//! numbers, and devices would have another format.

use std::ops::Range;
use std::sync::Arc;

use runstone_policy::shape::{Level, Run, Shape, Table};

/// Policies that a device can use, and whether their levels have several runs. Other policies need
/// levels of overlapping tables, runs that represent intervals of flushes, or last levels that
/// deepen without an end.
const POLICIES: [(&str, bool); 4] =
    [("fragmented-leveling", false), ("leveling", false), ("garnering", false), ("tiering", true)];

/// What a device does in place of adaptive tiering, for the message that refuses it.
const FOR_ADAPTIVE: &str = ", and tiering with ratio=4 and filters does its work: it writes as \
    much and reads 5% more pages (runstone paper kvssd-beyond --only adaptive)";

/// Deepest level of a tree.
const DEEPEST: u32 = Shape::MAX_LEVELS - 1;
/// Fewest bands below level 0. The last of them compacts inside itself.
const FEWEST_BANDS: u32 = 4;

/// How many levels of the tree each level of a policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    width: u32,
}

/// Each band is one level.
impl Default for Bands {
    fn default() -> Self {
        Bands { width: 1 }
    }
}

impl Bands {
    /// The bands of a policy. The error is the reason why a device cannot have them.
    pub fn of(policy: &str, size_ratio: u32) -> Result<Bands, String> {
        let known = POLICIES.iter().find(|(name, _)| *name == policy);
        let Some((_, has_runs)) = known else {
            let instead = if policy == "adaptive-tiering" { FOR_ADAPTIVE } else { "" };
            return Err(format!(
                "{policy} needs levels that a device's tree does not have{instead}; choose among: \
                 {}",
                Bands::policy_names()
            ));
        };
        let (width, most) = (if *has_runs { size_ratio } else { 1 }, DEEPEST / FEWEST_BANDS);
        if width > most {
            return Err(format!(
                "{policy} with a size ratio of {width} keeps as many runs in a level, and a device \
                 has room for {most}; lower the ratio"
            ));
        }
        Ok(Bands { width })
    }

    /// Names of the policies that a device can use.
    pub fn policy_names() -> String {
        POLICIES.map(|(name, _)| name).join(", ")
    }

    /// The policy's level that a level of the tree is in.
    pub fn band(&self, level: u32) -> u32 {
        level.div_ceil(self.width)
    }

    /// The levels of the tree that form a level of the policy, newest first. If the tree is not
    /// that deep, returns the levels of its last band. Level 0 is a band of its own, and is a stack
    /// of tables.
    pub fn levels(&self, band: u32) -> Range<u32> {
        if band == 0 {
            return 0..1;
        }
        let first = (band.min(DEEPEST / self.width) - 1) * self.width + 1;
        first..first + self.width
    }

    /// The level to which a compaction writes if the policy wants its result in a band. `inputs`
    /// are the levels of its inputs; `meets` reports whether a level has tables that overlap the
    /// inputs.
    ///
    /// If runs of the band are inputs, the result is written to the oldest of them. Otherwise it is
    /// written as deep as possible without passing a level with tables that overlap it, so parts of
    /// a plan gather in one run. If even the newest level of the band has tables that overlap the
    /// inputs, the inputs are compacted into that level.
    pub fn target(
        &self,
        band: u32,
        inputs: impl Iterator<Item = u32>,
        meets: impl Fn(u32) -> bool,
    ) -> u32 {
        let levels = self.levels(band);
        if let Some(oldest) = inputs.filter(|level| levels.contains(level)).max() {
            return oldest;
        }
        let met = levels.clone().find(|level| meets(*level)).unwrap_or(levels.end);
        met.saturating_sub(1).max(levels.start)
    }

    /// The level to which a table moves without being rewritten. A table from above the band moves
    /// like the result of a compaction. A table in the last band sinks as deep as it can, or stays.
    pub fn rest(&self, band: u32, from: u32, meets: impl Fn(u32) -> bool) -> u32 {
        let levels = self.levels(band);
        if !levels.contains(&from) {
            return self.target(band, std::iter::empty(), meets);
        }
        (from + 1..levels.end).find(|level| meets(*level)).unwrap_or(levels.end) - 1
    }

    /// The levels that the policy sees. `stack` is the tree's level 0, newest first, and `runs` are
    /// the tables of its other levels.
    pub fn seen(
        &self,
        stack: impl Iterator<Item = Arc<Table>>,
        runs: impl Iterator<Item = Vec<Arc<Table>>>,
    ) -> Vec<Level> {
        let run = |id: u64, tables| Run { id, last_flush: 0, tables };
        let mut bands = vec![stack.map(|table| run(table.id, vec![table])).collect()];
        for (level, tables) in (1u32..).zip(runs) {
            let band = self.band(level) as usize;
            bands.resize_with(bands.len().max(band + 1), Vec::new);
            if !tables.is_empty() {
                bands[band].push(run(level.into(), tables));
            }
        }
        bands.into_iter().map(Level::Runs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_of_one_are_the_levels() {
        let bands = Bands::of("leveling", 10).unwrap();
        for level in 0..=DEEPEST {
            assert_eq!((bands.band(level), bands.levels(level)), (level, level..level + 1));
            assert_eq!(bands.target(level, [].into_iter(), |_| level % 2 == 0), level);
        }
    }

    #[test]
    fn a_band_holds_as_many_runs_as_the_ratio() {
        let bands = Bands::of("tiering", 4).unwrap();
        assert_eq!((bands.levels(0), bands.levels(1), bands.levels(2)), (0..1, 1..5, 5..9));
        let of: Vec<u32> = (0..10).map(|level| bands.band(level)).collect();
        assert_eq!(of, [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]);
        assert_eq!(bands.levels(15), 57..61);
        assert_eq!(bands.levels(40), 57..61, "the last band takes what is to go deeper");
    }

    #[test]
    fn a_run_goes_as_deep_as_it_meets_nothing() {
        let bands = Bands::of("tiering", 4).unwrap();
        let target = |inputs: &[u32], met: &[u32]| {
            bands.target(2, inputs.iter().copied(), |level| met.contains(&level))
        };
        assert_eq!(target(&[1, 2], &[]), 8);
        assert_eq!(target(&[1, 2], &[8]), 7);
        assert_eq!(target(&[1, 2], &[6, 8]), 5, "what is older is not passed");
        assert_eq!(target(&[1, 2], &[5, 8]), 5, "a full band compacts its newest run");
        assert_eq!(target(&[3, 7], &[7, 8]), 7, "a run that is an input keeps its place");
        assert_eq!(target(&[6, 7, 8], &[6, 7, 8]), 8);
        let rest = |from: u32, met: u32| bands.rest(2, from, |level| level == met);
        assert_eq!((rest(3, 8), rest(6, 8), rest(7, 8), rest(8, 7)), (7, 7, 7, 8));
    }

    #[test]
    fn what_a_device_cannot_hold_is_refused() {
        let error = Bands::of("universal", 4).unwrap_err();
        assert!(error.contains("leveling, garnering, tiering"), "{error}");
        assert!(Bands::of("tiering", 15).is_ok());
        assert_eq!(
            Bands::of("tiering", 16).unwrap_err(),
            "tiering with a size ratio of 16 keeps as many runs in a level, and a device has room \
             for 15; lower the ratio"
        );
    }
}
