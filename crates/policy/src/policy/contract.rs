//! The trait of a compaction policy, which uses only metadata, and the figures that follow from its
//! targets alone (scores, debt). Not here: the policies themselves. They live in `policies/` and
//! are listed in the registry.

use crate::options::{OptionError, PolicyOptions};
use crate::shape::plan::{Busy, Cut, Heat, Partitioner, Plan};
use crate::shape::{Level, RunSlot, Shape};
use crate::units::Thousandths;

/// Decides what is compacted, and when. A policy is a pure function of its arguments. The data that
/// it must remember between calls (round-robin cursors, a last level, flush counts) is in the
/// shape's state. The manifest persists that state, so a reopened store continues where it stopped.
pub trait CompactionPolicy: Send + Sync {
    /// Name in options, in manifests and on the command line. Lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// One line for help texts and tables in the docs.
    fn doc(&self) -> &'static str;

    /// The partitioner by which the policy cuts tables, if it can work with no other.
    fn own_partitioner(&self) -> Option<Partitioner> {
        None
    }

    /// Refuses options with which the policy cannot work. This is called at open, before any
    /// `pick`. A policy with a partitioner of its own requires the default, `size`, in the options.
    fn check(&self, options: &PolicyOptions) -> Result<(), OptionError> {
        options.check_common()?;
        match self.own_partitioner() {
            Some(own) if ![own, Partitioner::Size].contains(&options.numbers.partitioner) => {
                let [own, asked] = [own, options.numbers.partitioner].map(|one| one.rule().name());
                Err(OptionError::OtherPartitioner { policy: self.name(), own, asked })
            }
            _ => Ok(()),
        }
    }

    /// The limits above which each level is over its target. Covers level 0 down to one level below
    /// the deepest in use, and at least levels 0 and 1.
    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget>;

    /// The run of a level that receives a compaction of the whole tree, and where its tables are
    /// cut.
    fn whole_output(&self, shape: &Shape, level: u32, options: &PolicyOptions) -> (RunSlot, Cut) {
        let run = shape.level(level).runs().first().map_or(u64::from(level), |run| run.id);
        (RunSlot::New(run), options.cut())
    }

    /// See [`compaction_debt_bytes`]. A policy whose compactions do not depend on levels over
    /// target computes its own estimate.
    fn debt_bytes(&self, shape: &Shape, options: &PolicyOptions) -> u64 {
        debt_of_levels(shape, &self.targets(shape, options))
    }

    /// The next job, or `None` if no further job can run now. A store calls `next_plan`, which
    /// calls this first.
    ///
    /// Promises: inputs exist and are not busy. Nothing is written where a running job writes,
    /// unless tables may overlap there. The edit made from the plan fits the shape, even after any
    /// running job was installed. I1 holds (newer versions never sink below older ones). Without
    /// flushes, repeated picking and applying ends.
    fn pick(
        &self,
        shape: &Shape,
        busy: &Busy,
        heat: &Heat,
        options: &PolicyOptions,
    ) -> Option<Plan> {
        self.decide(&Job { shape, busy, heat, options })
    }

    /// The decision of [`CompactionPolicy::pick`].
    fn decide(&self, job: &Job<'_>) -> Option<Plan>;
}

/// The arguments of [`CompactionPolicy::pick`].
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Job<'a> {
    /// The tree.
    pub shape: &'a Shape,
    /// The parts of the tree that running jobs use.
    pub busy: &'a Busy,
    /// How often the tables were read.
    pub heat: &'a Heat,
    /// The options of the keyspace.
    pub options: &'a PolicyOptions,
}

/// The limits of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelTarget {
    /// The most bytes of the level; `u64::MAX` means unbounded.
    pub capacity_bytes: u64,
    /// The most runs of the level.
    pub max_runs: u32,
}

impl LevelTarget {
    /// A level that is never over target.
    pub const UNBOUNDED: LevelTarget = LevelTarget { capacity_bytes: u64::MAX, max_runs: u32::MAX };

    /// The same with at most this many bytes.
    #[must_use]
    pub const fn capacity_bytes(self, capacity_bytes: u64) -> LevelTarget {
        LevelTarget { capacity_bytes, ..self }
    }

    /// The same with at most this many runs.
    #[must_use]
    pub const fn max_runs(self, max_runs: u32) -> LevelTarget {
        LevelTarget { max_runs, ..self }
    }

    /// Whether a level with these bytes and runs is over its target.
    pub fn is_over(&self, bytes: u64, run_count: usize) -> bool {
        bytes > self.capacity_bytes || run_count as u64 > u64::from(self.max_runs)
    }

    /// How full the level is: the larger of bytes / capacity and runs / (`max_runs` + 1).
    ///
    /// The divisor of runs is the count that triggers a compaction. So level 0 scores runs /
    /// trigger, and a level of at most one run that has one run scores 0.5, not 1.
    pub fn score(&self, bytes: u64, run_count: usize) -> Thousandths {
        let by_bytes = match self.capacity_bytes {
            u64::MAX => 0,
            capacity => u128::from(bytes) * 1000 / u128::from(capacity.max(1)),
        };
        let by_runs = run_count as u128 * 1000 / (u128::from(self.max_runs) + 1);
        Thousandths::saturating(by_bytes.max(by_runs))
    }
}

/// How full a level is; at 1 and above, a compaction is due. O(tables of the level).
pub fn score(level: &Level, target: &LevelTarget) -> Thousandths {
    target.score(level.bytes(), level.runs().len())
}

/// Estimate of the bytes that must still be rewritten until the tree has the form that its policy
/// wants. Back-pressure depends on it. O(tables).
pub fn compaction_debt_bytes(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
) -> u64 {
    policy.debt_bytes(shape, options)
}

/// The debt of a tree whose levels sink when they are over target.
///
/// 1. From the top: the excess of a level over its target sinks. The excess is the whole level if
///    it has too many runs (a compaction takes whole runs), or else its bytes over capacity.
/// 2. Each sinking byte is rewritten together with its share of the next level, bytes(next) /
///    bytes(level), if the next level is kept as one run. A level of many runs is not read
///    (tiering).
/// 3. The sinking bytes are added to the next level before that level is judged, as in a real
///    compaction.
///
/// The estimate is an upper bound: moves cost nothing and duplicates are dropped, which metadata
/// cannot show.
fn debt_of_levels(shape: &Shape, targets: &[LevelTarget]) -> u64 {
    let target = |level: u32| *targets.get(level as usize).unwrap_or(&LevelTarget::UNBOUNDED);
    let mut debt: u128 = 0;
    let mut sunk: u128 = 0;
    for index in 0..targets.len() as u32 {
        let level = shape.level(index);
        let bytes = u128::from(level.bytes()) + sunk;
        let capacity = u128::from(target(index).capacity_bytes);
        sunk = match level.runs().len() as u64 > u64::from(target(index).max_runs) {
            true => bytes,
            false => bytes.saturating_sub(capacity),
        };
        if sunk == 0 {
            continue;
        }
        let next_bytes = match target(index + 1).max_runs {
            0 | 1 => u128::from(shape.level(index + 1).bytes()),
            _ => 0,
        };
        debt += sunk + sunk * next_bytes / bytes.max(1);
    }
    u64::try_from(debt).unwrap_or(u64::MAX)
}
