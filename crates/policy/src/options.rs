//! The numbers that compaction policies share, and why a number is refused. They are not the
//! options of a store, which name a policy and contain these numbers.

use serde::{Deserialize, Serialize};

use crate::partition::Partitioner;
use crate::partition::prefix::CAP_FACTOR as PREFIX_CAP_FACTOR;
use crate::shape::plan::Cut;
use crate::units::Thousandths;

/// An option as its declaration states it: its doc comment and its default. Help texts and flags
/// are made from it, so the first sentence of each doc comment must make sense alone.
#[derive(Clone, Copy, Debug)]
pub struct OptionDoc {
    /// The name of its field, which is its name in text too.
    pub name: &'static str,
    /// The lines of its doc comment. Empty if users cannot set it.
    pub lines: &'static [&'static str],
    /// Its default as Rust code, then in words if the code does not make it clear.
    pub defaults: &'static [&'static str],
}

impl OptionDoc {
    /// The first sentence of the doc comment, without its full stop.
    pub fn summary(&self) -> String {
        let lines = self.lines.iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join(" ");
        let end = text.find(". ").unwrap_or(text.len());
        text[..end].trim_end_matches('.').to_string()
    }

    /// The default, in words if there are any.
    pub fn default(&self) -> &'static str {
        self.defaults.last().copied().unwrap_or_default()
    }
}

/// The only table of policy numbers: it generates the struct, its defaults, its docs, and the
/// setters of typed policies. A line gives the setter with its argument, then the field.
macro_rules! options {
    ($(
        $(#[doc = $doc:expr])+
        $(#[serde($($serde:tt)+)])?
        $setter:ident($of:ty) $name:ident: $type:ty = $default:expr;
    )+) => {
        /// What [`PolicyOptions`] holds, as plain fields, for simulators, firmware and tests. A
        /// policy ignores the numbers that it does not use. Crate `runstone` does not show it, so
        /// that numbers can come and go.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Numbers {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                $(#[serde($($serde)+)])?
                pub $name: $type,
            )+
        }

        impl Numbers {
            /// The meaning of each field, in the order of the fields, for help.
            #[doc(hidden)]
            pub const FIELDS: &'static [OptionDoc] = &[$(OptionDoc {
                name: stringify!($name),
                lines: &[$($doc),+],
                defaults: &[stringify!($default)],
            }),+];
        }

        impl Default for Numbers {
            fn default() -> Self {
                Numbers { $($name: $default,)+ }
            }
        }

        /// The setter of an option, in the `impl` of a policy whose field `0.options` has it. For
        /// the typed policies of crate `runstone`.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! policy_setter {
            $(($setter) => {
                $(#[doc = $doc])+
                #[doc = concat!(
                    "\n\nDefault: `", stringify!($default), "`. As text: `", stringify!($name), "`."
                )]
                pub fn $setter(mut self, $setter: $of) -> Self {
                    $crate::options::Numbers::of_mut(&mut self.0.options).$name = $setter.into();
                    self
                }
            };)+
        }
    };
}

options! {
    /// T: how many times larger a level is than the one above it. At least 2.
    ratio(u32) size_ratio: u32 = 10;
    /// Level-0 runs that call for a compaction into level 1. At least 1, and below
    /// `l0_slowdown_runs` of the keyspace. A run costs a get little, since a filter probe is one
    /// cache miss, and with 8 a byte is rewritten half as often as with 4.
    l0_trigger(u32) l0_trigger: u32 = 8;
    /// Size that level 0 waits for, in percent of the level-1 bytes that its compaction rewrites.
    /// For `fragmented-leveling` and `garnering`. It waits beyond its trigger, but no longer than
    /// for twice that many runs. 0 compacts it at its trigger, as LevelDB and Autumn do. At most
    /// 100. With 50, a byte of level 0 rewrites at most two of level 1.
    l0_share_percent(u32) l0_share_percent: u32 = 50;
    /// Capacity of level 1, in bytes. 4 KiB to 1 EiB.
    #[serde(with = "crate::units::size")]
    base_bytes(u64) base_bytes: u64 = 256 << 20;
    /// Size at which an output table is closed, in bytes. 4 KiB to 1 EiB.
    #[serde(with = "crate::units::size")]
    table_bytes(u64) table_bytes: u64 = 64 << 20;
    /// How flat the tree of `garnering` is, above 0 to 1; 1 is leveling. At least 0.001, rounded
    /// to thousandths.
    c(f64) c: Thousandths = Thousandths::from(0.8);
    /// K: for `fluid`, the most runs of a level above the last; for `guards`, the most tables that
    /// overlap between two guards. At least 1.
    max_runs(u32) max_runs: u32 = 9;
    /// Z: the most runs of the last level, for `fluid`. At least 1.
    last_level_runs(u32) last_level_runs: u32 = 1;
    /// T_s: least size of a table that is cut where the key prefix changes, in bytes. 4 KiB to
    /// 1 EiB. For `adaptive-tiering`, and for partitioner `prefix`.
    #[serde(with = "crate::units::size")]
    split_bytes(u64) split_bytes: u64 = 4 << 20;
    /// Which levels of `adaptive-tiering` compact inside themselves when gets meet overlapping
    /// tables: `every` or `last`.
    intra_level(IntraLevel) intra_level: IntraLevel = IntraLevel::Every;
    /// What counts as an access that asks `adaptive-tiering` for a compaction inside a level:
    /// `probes` or `block-reads`.
    charge(Charge) charge: Charge = Charge::Probes;
    /// Fewest accesses to a table that call for a compaction inside its level, for
    /// `adaptive-tiering`. At least 1.
    access_limit(u32) access_limit: u32 = 100;
    /// Bytes that a compaction inside a level may rewrite per access, for `adaptive-tiering`. A
    /// table waits until its accesses times this number reach the size of its compaction, and for
    /// `access_limit`. At least 1. LevelDB's seek accounting takes 16 KiB, which writes about as
    /// much (docs/papers/ptierdb.md).
    #[serde(with = "crate::units::size")]
    access_bytes(u64) access_bytes: u64 = 28 << 10;
    /// Whether tables that reads ask in vain are compacted, as in LevelDB: `true` or `false`. For
    /// `fragmented-leveling` and `leveling`. A get that asks more than one table charges the first
    /// of them with a seek, whatever its filter says. So does every MiB that cursors read, if two
    /// tables or more may hold its last key. A table that was charged often enough since it was
    /// written or moved sinks, once no size calls for a compaction. It pays where reads outnumber
    /// writes, most of all without filters.
    seek_compaction(bool) seek_compaction: bool = false;
    /// Bytes of a table for which `seek_compaction` allows it one seek. At least 1. A seek costs
    /// about as much as compacting this many bytes: 16 KiB in LevelDB.
    #[serde(with = "crate::units::size")]
    seek_bytes(u64) seek_bytes: u64 = 16 << 10;
    /// Fewest seeks that `seek_compaction` allows a table, whatever its size. At least 1.
    least_seeks(u32) least_seeks: u32 = 100;
    /// k: the most runs of a stack, for `bigtable`, `constant`, `universal`, `binomial` and
    /// `min-latency`. Under `universal`, the newest runs compact above this number whatever their
    /// sizes are. 1 to 1000, and below `l0_slowdown_runs` of the keyspace.
    stack_runs(u32) stack_runs: u32 = 6;
    /// Runs at which `universal` begins to compare sizes. At least 1. The default is RocksDB's.
    trigger(u32) universal_trigger: u32 = 4;
    /// Size of the newer runs, in percent of the oldest run, at which `universal` compacts all of
    /// them. At least 1. The default is RocksDB's.
    amp_percent(u32) universal_amp_percent: u32 = 200;
    /// Percentage by which the next older run may be larger than the runs that `universal` has
    /// gathered. The default is RocksDB's.
    ratio_percent(u32) universal_ratio_percent: u32 = 1;
    /// The fewest runs that `universal` gathers by size. At least 2. The default is RocksDB's.
    min_width(u32) universal_min_width: u32 = 2;
    /// The most runs that `universal` gathers. At least `universal_min_width`. The default is
    /// RocksDB's.
    max_width(u32) universal_max_width: u32 = u32::MAX;
    /// Percentage of what is live above which the whole tree is compacted; 0 for no bound. A bound
    /// is from 110 to 10000. The tree is compacted once its tables take more than this share of
    /// what that compaction is estimated to leave, and the policy has nothing to do. Writers are
    /// slowed down above it.
    max_space_percent(u32) max_space_percent: u32 = 0;
    /// Where compactions cut their tables: `none`, `size`, `local-range`, `global-range`,
    /// `grouped-global-range` or `prefix`. `size` leaves the choice to a policy with a partitioner
    /// of its own: `adaptive-tiering` cuts by prefix, `guards` by global range. Those refuse all
    /// others.
    partitioner(Partitioner) partitioner: Partitioner = Partitioner::Size;
}

/// Where an intra-level compaction may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum IntraLevel {
    /// In every overlapping level.
    #[default]
    Every,
    /// In the deepest level only, as the paper does.
    Last,
}

/// The accesses that a table's counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Charge {
    /// Each probe of a table by a get where two or more tables overlap, even if only its filter is
    /// read, as in the paper.
    #[default]
    Probes,
    /// Only data blocks that the get read there in vain, because these cost the device time.
    BlockReads,
}

/// One block. A smaller table or level would be mostly overhead.
pub const MIN_TABLE_BYTES: u64 = 4 << 10;

/// At this value, level 0 contains as much as its compaction rewrites. A longer wait saves less and
/// less for each further run that reads must probe.
pub const MAX_L0_SHARE_PERCENT: u32 = 100;

/// A tighter bound does not help: each byte would be rewritten more than ten times, and the
/// estimate of the live bytes errs by a few percent.
pub const MIN_SPACE_PERCENT: u32 = 110;

/// A hundred times the live bytes. Nobody wants a larger bound.
pub const MAX_SPACE_PERCENT: u32 = 10_000;

/// An exbibyte, for any number of bytes. Beyond 2^63 it could not be stored as TOML, and sums of a
/// few would overflow.
pub const MAX_OPTION_BYTES: u64 = 1 << 60;

/// A get may have to probe every run of a stack, so nobody wants more.
pub const MAX_STACK_RUNS: u32 = 1000;

/// Why a policy refuses its options. `option` is the name of the option as text; the numbers of `c`
/// are in thousandths. Messages show them in the form that users write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// The refused number.
        value: i128,
        /// The least value allowed.
        min: i128,
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
        /// The refused number.
        value: i128,
        /// The largest value allowed.
        max: i128,
    },
    /// A number is neither 0 nor as large as the least that makes sense.
    #[error("option {option} is {value}, but must be 0 (none) or at least {min}")]
    TooSmallButNotZero {
        /// Its name.
        option: &'static str,
        /// The refused number.
        value: i128,
        /// The least value allowed besides 0.
        min: i128,
    },
}

/// A number in the form that users write for that option.
fn text(option: &str, number: &i128) -> String {
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

/// The numbers of a compaction policy. Programs set them by the typed policies of crate `runstone`,
/// by their names, or as TOML; see [`Numbers`] for crates that need all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyOptions {
    pub(crate) numbers: Numbers,
}

impl PolicyOptions {
    /// T: how many times larger a level is than the one above it.
    pub fn size_ratio(&self) -> u32 {
        self.numbers.size_ratio
    }

    /// Level-0 runs that call for a compaction into level 1.
    pub fn l0_trigger(&self) -> u32 {
        self.numbers.l0_trigger
    }

    /// Capacity of level 1, in bytes.
    pub fn base_bytes(&self) -> u64 {
        self.numbers.base_bytes
    }

    /// Size at which an output table is closed, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.numbers.table_bytes
    }

    /// Where compactions cut their tables. Only the partitioners that look at keys need a
    /// histogram.
    pub fn cut(&self) -> Cut {
        let Numbers { partitioner, table_bytes, .. } = self.numbers;
        match partitioner {
            Partitioner::None => Cut::Size(u64::MAX),
            Partitioner::Size => Cut::Size(table_bytes),
            Partitioner::Prefix => self.prefix_cut(),
            Partitioner::LocalRange
            | Partitioner::GlobalRange
            | Partitioner::GroupedGlobalRange => Cut::Cells { partitioner, table_bytes },
        }
    }

    /// Cuts where the prefix changes, or at the size cap even inside a prefix.
    pub(crate) fn prefix_cut(&self) -> Cut {
        let split_bytes = self.numbers.split_bytes;
        Cut::Prefix { split_bytes, cap_bytes: split_bytes.saturating_mul(PREFIX_CAP_FACTOR) }
    }

    /// The limits that hold for every policy. A policy's own `check` starts with this one.
    pub fn check_common(&self) -> Result<(), OptionError> {
        self.numbers.check()
    }
}

impl Numbers {
    /// The numbers of options.
    pub fn of(options: &PolicyOptions) -> &Numbers {
        &options.numbers
    }

    /// The same, to change them.
    pub fn of_mut(options: &mut PolicyOptions) -> &mut Numbers {
        &mut options.numbers
    }

    /// These numbers as the options of a policy.
    pub fn into_options(self) -> PolicyOptions {
        PolicyOptions { numbers: self }
    }

    /// The seeks that `seek_compaction` allows a table of this size.
    pub fn allowed_seeks(&self, table_bytes: u64) -> u64 {
        u64::from(self.least_seeks).max(table_bytes / self.seek_bytes.max(1))
    }

    /// Refuses what no policy can work with.
    ///
    /// `base_bytes` may be below `table_bytes`: then every table of level 1 sinks at once, which is
    /// wasteful but correct. It makes the shapes in tests easier to read.
    fn check(&self) -> Result<(), OptionError> {
        let least = [
            ("size_ratio", i128::from(self.size_ratio), 2),
            ("l0_trigger", i128::from(self.l0_trigger), 1),
            ("base_bytes", self.base_bytes.into(), MIN_TABLE_BYTES.into()),
            ("table_bytes", self.table_bytes.into(), MIN_TABLE_BYTES.into()),
            ("c", self.c.signed_parts(), 1),
            ("max_runs", i128::from(self.max_runs), 1),
            ("last_level_runs", i128::from(self.last_level_runs), 1),
            ("split_bytes", self.split_bytes.into(), MIN_TABLE_BYTES.into()),
            ("access_limit", i128::from(self.access_limit), 1),
            ("access_bytes", self.access_bytes.into(), 1),
            ("seek_bytes", self.seek_bytes.into(), 1),
            ("least_seeks", i128::from(self.least_seeks), 1),
            ("stack_runs", i128::from(self.stack_runs), 1),
            ("universal_trigger", i128::from(self.universal_trigger), 1),
            ("universal_amp_percent", i128::from(self.universal_amp_percent), 1),
            ("universal_min_width", i128::from(self.universal_min_width), 2),
            (
                "universal_max_width",
                self.universal_max_width.into(),
                self.universal_min_width.into(),
            ),
        ];
        if let Some((option, value, min)) = least.into_iter().find(|(_, value, min)| value < min) {
            return Err(OptionError::TooSmall { option, value, min });
        }
        let space = i128::from(self.max_space_percent);
        if (1..i128::from(MIN_SPACE_PERCENT)).contains(&space) {
            let (option, min) = ("max_space_percent", MIN_SPACE_PERCENT.into());
            return Err(OptionError::TooSmallButNotZero { option, value: space, min });
        }
        let most = [
            ("max_space_percent", space, i128::from(MAX_SPACE_PERCENT)),
            ("c", self.c.signed_parts(), 1000),
            (
                "l0_share_percent",
                i128::from(self.l0_share_percent),
                i128::from(MAX_L0_SHARE_PERCENT),
            ),
            ("stack_runs", i128::from(self.stack_runs), i128::from(MAX_STACK_RUNS)),
            ("base_bytes", self.base_bytes.into(), MAX_OPTION_BYTES.into()),
            ("table_bytes", self.table_bytes.into(), MAX_OPTION_BYTES.into()),
            ("split_bytes", self.split_bytes.into(), MAX_OPTION_BYTES.into()),
            ("access_bytes", self.access_bytes.into(), MAX_OPTION_BYTES.into()),
            ("seek_bytes", self.seek_bytes.into(), MAX_OPTION_BYTES.into()),
        ];
        match most.into_iter().find(|(_, value, max)| value > max) {
            Some((option, value, max)) => Err(OptionError::TooLarge { option, value, max }),
            None => Ok(()),
        }
    }
}
