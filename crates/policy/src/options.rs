//! The numbers that compaction policies share, and why a number is refused. Not the store's
//! options: those name a policy and carry these.

use serde::{Deserialize, Serialize};

use crate::partition::Partitioner;
use crate::partition::prefix::CAP_FACTOR as PREFIX_CAP_FACTOR;
use crate::shape::plan::Cut;

/// What a compaction policy may be told. A policy ignores what it has no use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOptions {
    /// T: how many times larger a level is than the one above it. At least 2. Default 10.
    pub size_ratio: u32,
    /// Number of level-0 runs that calls for a compaction into level 1. At least 1. Default 8: a
    /// run costs a get little, since a filter probe is one cache miss, and a byte is rewritten half
    /// as often as with 4.
    pub l0_trigger: u32,
    /// Level 0 waits beyond its trigger until it holds this percentage of the level-1 bytes that it
    /// would rewrite, but no longer than twice the trigger. 0 compacts it at its trigger, as
    /// LevelDB and Autumn do. At most [`MAX_L0_SHARE_PERCENT`]. Default 50: a byte of level 0 then
    /// rewrites at most two of level 1. For `fragmented-leveling` and `garnering`.
    pub l0_share_percent: u32,
    /// Capacity of level 1, in bytes. At least [`MIN_TABLE_BYTES`]. Default 256 MiB.
    #[serde(with = "crate::units::size")]
    pub base_bytes: u64,
    /// Size at which an output table is closed, in bytes. At least [`MIN_TABLE_BYTES`]. Default
    /// 64 MiB.
    #[serde(with = "crate::units::size")]
    pub table_bytes: u64,
    /// c of Garnering, in thousandths: how much flatter the tree gets than a leveled one; 1000 is
    /// leveling. 1 to 1000. Default 800. For `garnering`.
    #[serde(rename = "c", with = "crate::units::thousandths")]
    pub c_permille: u32,
    /// K: most runs of a level above the last, for `fluid`, or most tables that overlap between two
    /// guards, for `guards`. At least 1. Default 9.
    pub max_runs: u32,
    /// Z: most runs of the last level. At least 1. Default 1. For `fluid`.
    pub last_level_runs: u32,
    /// T_s: least size of a table that is cut where the key prefix changes, in bytes. At least
    /// [`MIN_TABLE_BYTES`]. Default 4 MiB. For `adaptive-tiering`.
    #[serde(with = "crate::units::size")]
    pub split_bytes: u64,
    /// Which levels compact inside themselves when gets meet overlapping tables. Default `every`.
    /// For `adaptive-tiering`.
    pub intra_level: IntraLevel,
    /// What counts as an access that asks for such a compaction. Default `probes`. For
    /// `adaptive-tiering`.
    pub charge: Charge,
    /// Fewest accesses to a table that call for such a compaction. At least 1. Default 100. For
    /// `adaptive-tiering`.
    pub access_limit: u32,
    /// Bytes that the compaction may rewrite per access. A table waits until its accesses times
    /// this number reach the size of its compaction, and for `access_limit`. At least 1. Default 28
    /// KiB: LevelDB's seek accounting takes 16 KiB, but the mixes of YCSB are fastest here with
    /// more, at under half of leveling's writing (docs/how-to/choose-a-policy.md). For
    /// `adaptive-tiering`.
    #[serde(with = "crate::units::size")]
    pub access_bytes: u64,
    /// k: most runs of a stack. Under `universal`, the newest runs compact above this number
    /// whatever their sizes are. 1 to [`MAX_STACK_RUNS`]. Default 6. For `bigtable`, `constant`,
    /// `universal`, `binomial` and `min-latency`.
    pub stack_runs: u32,
    /// Number of runs at which the policy begins to compare sizes. At least 1. Default 4, as
    /// RocksDB. For `universal`.
    pub universal_trigger: u32,
    /// The policy compacts all runs once the newer ones reach this percentage of the oldest. At
    /// least 1. Default 200, as RocksDB. For `universal`.
    pub universal_amp_percent: u32,
    /// How many percent larger the next older run may be than those gathered. Default 1, as
    /// RocksDB. For `universal`.
    pub universal_ratio_percent: u32,
    /// Fewest runs gathered by size. At least 2. Default 2, as RocksDB. For `universal`.
    pub universal_min_width: u32,
    /// Most runs gathered. At least `universal_min_width`. Default unbounded, as RocksDB. For
    /// `universal`.
    pub universal_max_width: u32,
    /// The space bound, in percent. The whole tree is compacted once its tables take more than this
    /// share of what that compaction is estimated to leave, and the policy has nothing to do
    /// ([`crate::policy::space`]). Writers are slowed down above it. 0 is no bound, the default;
    /// else from [`MIN_SPACE_PERCENT`] to [`MAX_SPACE_PERCENT`].
    pub max_space_percent: u32,
    /// Where compactions cut their tables. Default `size`, which leaves the choice to a policy with
    /// a partitioner of its own: `adaptive-tiering` cuts by prefix, `guards` by global range. Those
    /// refuse all others.
    pub partitioner: Partitioner,
}

/// Where an intra-level compaction may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntraLevel {
    /// In every overlapping level.
    #[default]
    Every,
    /// In the deepest level only, as the paper does.
    Last,
}

/// What is charged to a table's access counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Charge {
    /// Each table that a get asks where two or more overlap, filter included, as the paper does.
    #[default]
    Probes,
    /// Only a data block that the get read there in vain: this is what the device feels.
    BlockReads,
}

/// One block: a smaller table or level is all overhead.
pub const MIN_TABLE_BYTES: u64 = 4 << 10;

/// Level 0 then holds as much as it rewrites. A longer wait saves less and less for each run that
/// reads must ask.
pub const MAX_L0_SHARE_PERCENT: u32 = 100;

/// A tighter bound does not help: each byte would be rewritten more than ten times, and the
/// estimate of what is live errs by a few percent.
pub const MIN_SPACE_PERCENT: u32 = 110;

/// A hundred times what is live: nobody means a larger bound.
pub const MAX_SPACE_PERCENT: u32 = 10_000;

/// An exbibyte, for any number of bytes. Beyond 2^63 it could not be stored as TOML, and sums of a
/// few would overflow.
pub const MAX_OPTION_BYTES: u64 = 1 << 60;

/// A get may meet every run of a stack, so nobody wants more.
pub const MAX_STACK_RUNS: u32 = 1000;

impl Default for PolicyOptions {
    fn default() -> Self {
        PolicyOptions {
            size_ratio: 10,
            l0_trigger: 8,
            l0_share_percent: 50,
            base_bytes: 256 << 20,
            table_bytes: 64 << 20,
            c_permille: 800,
            max_runs: 9,
            last_level_runs: 1,
            split_bytes: 4 << 20,
            intra_level: IntraLevel::Every,
            charge: Charge::Probes,
            access_limit: 100,
            access_bytes: 28 << 10,
            stack_runs: 6,
            universal_trigger: 4,
            universal_amp_percent: 200,
            universal_ratio_percent: 1,
            universal_min_width: 2,
            universal_max_width: u32::MAX,
            max_space_percent: 0,
            partitioner: Partitioner::Size,
        }
    }
}

/// Why a policy refuses its options. `option` is the name of the option as text; numbers are those
/// of the field of [`PolicyOptions`], so `c` is in thousandths. Messages say it as it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The policy cuts tables by a partitioner of its own.
    #[error("{policy} cuts tables by {own}, not by {asked}; set partitioner to {own}, or leave it")]
    OtherPartitioner {
        /// Name of the policy.
        policy: &'static str,
        /// The partitioner that it needs.
        own: &'static str,
        /// The partitioner that was set.
        asked: &'static str,
    },
    /// A number is below the least that is allowed.
    #[error(
        "option {option} is {}, but must be at least {}",
        text(.option, .value),
        text(.option, .min)
    )]
    TooSmall {
        /// Its name.
        option: &'static str,
        /// What it was.
        value: u64,
        /// The least value allowed.
        min: u64,
    },
    /// A number is above the most that is allowed.
    #[error(
        "option {option} is {}, but must be at most {}",
        text(.option, .value),
        text(.option, .max)
    )]
    TooLarge {
        /// Its name.
        option: &'static str,
        /// What it was.
        value: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// A number is neither 0 nor as large as the least that makes sense.
    #[error("option {option} is {value}, but must be 0 (none) or at least {min}")]
    TooSmallButNotZero {
        /// Its name.
        option: &'static str,
        /// What it was.
        value: u64,
        /// The least value allowed but for 0.
        min: u64,
    },
}

/// A number as users write that option.
fn text(option: &str, number: &u64) -> String {
    crate::units::decimal(*number, if option == "c" { 1000 } else { 1 })
}

impl OptionError {
    /// Name of the option that is refused.
    pub fn option(&self) -> &'static str {
        match self {
            OptionError::TooSmall { option, .. }
            | OptionError::TooLarge { option, .. }
            | OptionError::TooSmallButNotZero { option, .. } => option,
            OptionError::OtherPartitioner { .. } => "partitioner",
        }
    }
}

impl PolicyOptions {
    /// The limits that hold for every policy. A policy's own `check` starts with this one.
    ///
    /// `base_bytes` may be below `table_bytes`: level 1 then passes each table on at once, which is
    /// wasteful but correct, and shapes in tests are easier to read that way.
    pub fn check_common(&self) -> Result<(), OptionError> {
        let least = [
            ("size_ratio", u64::from(self.size_ratio), 2),
            ("l0_trigger", u64::from(self.l0_trigger), 1),
            ("base_bytes", self.base_bytes, MIN_TABLE_BYTES),
            ("table_bytes", self.table_bytes, MIN_TABLE_BYTES),
            ("c", u64::from(self.c_permille), 1),
            ("max_runs", u64::from(self.max_runs), 1),
            ("last_level_runs", u64::from(self.last_level_runs), 1),
            ("split_bytes", self.split_bytes, MIN_TABLE_BYTES),
            ("access_limit", u64::from(self.access_limit), 1),
            ("access_bytes", self.access_bytes, 1),
            ("stack_runs", u64::from(self.stack_runs), 1),
            ("universal_trigger", u64::from(self.universal_trigger), 1),
            ("universal_amp_percent", u64::from(self.universal_amp_percent), 1),
            ("universal_min_width", u64::from(self.universal_min_width), 2),
            (
                "universal_max_width",
                self.universal_max_width.into(),
                self.universal_min_width.into(),
            ),
        ];
        if let Some((option, value, min)) = least.into_iter().find(|(_, value, min)| value < min) {
            return Err(OptionError::TooSmall { option, value, min });
        }
        let space = u64::from(self.max_space_percent);
        if (1..u64::from(MIN_SPACE_PERCENT)).contains(&space) {
            let (option, min) = ("max_space_percent", MIN_SPACE_PERCENT.into());
            return Err(OptionError::TooSmallButNotZero { option, value: space, min });
        }
        let most = [
            ("max_space_percent", space, u64::from(MAX_SPACE_PERCENT)),
            ("c", u64::from(self.c_permille), 1000),
            ("l0_share_percent", u64::from(self.l0_share_percent), u64::from(MAX_L0_SHARE_PERCENT)),
            ("stack_runs", u64::from(self.stack_runs), u64::from(MAX_STACK_RUNS)),
            ("base_bytes", self.base_bytes, MAX_OPTION_BYTES),
            ("table_bytes", self.table_bytes, MAX_OPTION_BYTES),
            ("split_bytes", self.split_bytes, MAX_OPTION_BYTES),
            ("access_bytes", self.access_bytes, MAX_OPTION_BYTES),
        ];
        match most.into_iter().find(|(_, value, max)| value > max) {
            Some((option, value, max)) => Err(OptionError::TooLarge { option, value, max }),
            None => Ok(()),
        }
    }

    /// Where compactions cut their tables. Only the partitioners that look at keys need a
    /// histogram.
    pub fn cut(&self) -> Cut {
        let (partitioner, table_bytes) = (self.partitioner, self.table_bytes);
        match partitioner {
            Partitioner::None => Cut::Size(u64::MAX),
            Partitioner::Size => Cut::Size(table_bytes),
            Partitioner::Prefix => self.prefix_cut(),
            Partitioner::LocalRange
            | Partitioner::GlobalRange
            | Partitioner::GroupedGlobalRange => Cut::Cells { partitioner, table_bytes },
        }
    }
    /// Where the prefix changes; at the cap even inside a prefix.
    pub fn prefix_cut(&self) -> Cut {
        let split_bytes = self.split_bytes;
        Cut::Prefix { split_bytes, cap_bytes: split_bytes.saturating_mul(PREFIX_CAP_FACTOR) }
    }
}
