//! Options of a keyspace and their limits.
//!
//! They are stored in the manifest as TOML and read back at reopen. Options that are given at the
//! reopen replace the stored ones, if the change is legal. They cover compaction policy, table
//! layout, filter memory and compression per level. In text, a size may have a unit (`"64M"`), and
//! ratios are decimals; in memory all of them are integers.

use runstone_policy::filters::{self, FilterAllocation};
use runstone_policy::options::{MAX_OPTION_BYTES, Numbers, OptionDoc, PolicyOptions};
pub use runstone_policy::partition::slices::SubCompactions;
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::prefix::{PrefixError, PrefixRule};
use runstone_policy::registry;
use runstone_policy::shape::Shape;
use runstone_policy::units::Tenths;
use serde::de::value::Error as ValueError;
use serde::de::{Error as _, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::callbacks::merge_operator::check_built_in;
use crate::error::{Error, Result};
use crate::options::policy::Policy;
use crate::options::setters::{default_doc, setter, with_setters};
use crate::options::values::{ValueOptions, ValuePlacement, check_range};

/// Block compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Compression {
    /// Stored uncompressed.
    None,
    /// LZ4: on one core, about 2 GB/s for compression and 15 GB/s for decompression.
    Lz4,
    /// Zstandard level 3: smaller, at about half the speed.
    Zstd,
}

/// When the outputs of a large compaction become part of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CompactionInstall {
    /// All at once, when the compaction is done. Until then the store holds inputs and outputs. If
    /// the store closes meanwhile, the finished parts are kept; after a crash the compaction starts
    /// again.
    #[default]
    Atomic,
    /// Part by part: inputs release their space as the compaction passes them, and finished parts
    /// are not repeated after a close or a crash. Each part costs an edit of the manifest, and so a
    /// sync.
    Incremental,
}

/// Reads a codec, or a list of them.
fn one_or_many<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Vec<Compression>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "none, lz4 or zstd, or a list of them")]
    enum Codecs {
        One(String),
        Many(Vec<String>),
    }
    let codec = |name: &String| {
        Compression::deserialize(name.as_str().into_deserializer()).map_err(|_: ValueError| {
            let near = registry::suggest(&registry::nearest(name, &["none", "lz4", "zstd"]));
            let what = "one of none, lz4 or zstd, or a list of them";
            D::Error::custom(format!("unknown codec `{name}`, expected {what}{near}"))
        })
    };
    match Codecs::deserialize(from)? {
        Codecs::One(one) => Ok(vec![codec(&one)?]),
        Codecs::Many(many) => many.iter().map(codec).collect(),
    }
}

/// Ten thousand years.
const MAX_TTL_SECONDS: u64 = 10_000 * 366 * 24 * 3600;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Leaves the choice of the prefix rule to the first compaction.
pub const AUTO_PREFIX: &str = "auto";

with_setters! {
    /// Options of one keyspace. They are stored with the keyspace.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct KeyspaceOptions {
        /// Compaction policy, by its name; `runstone policies` lists them.
        /// [`KeyspaceOptions::policy()`] sets it with its options.
        pub policy: String = "fragmented-leveling".into(),
        /// Numbers of the compaction policy.
        pub(crate) shape: PolicyOptions = PolicyOptions::default(),
        // Why the text of an option of the policy was refused.
        #[serde(skip)]
        pub(crate) refused: Option<String> = None,
        /// Memory at which a memtable is flushed, in bytes. Half of the memory budget if that is
        /// less.
        #[serde(with = "runstone_policy::units::size")]
        pub write_buffer_bytes: u64 = 64 << 20,
        /// Memtables that may wait for their flush before writers wait.
        pub max_immutable_memtables: u32 = 2,
        /// Raw size of a data block, in bytes.
        #[serde(with = "runstone_policy::units::size")]
        pub block_bytes: u32 = 4096,
        /// Entries of a block for each key that is stored whole.
        pub restart_interval: u32 = 4,
        /// Whether blocks carry a hash index for point reads.
        pub hash_index: bool = false,
        /// Filter memory in bits per key, from 0 (none) to 40. It is rounded to tenths.
        pub filter_bits_per_key: Tenths = Tenths::from(10.0),
        /// How filter memory is divided: `none`, `uniform`, or `optimal`, which gives small levels
        /// more. A get of an absent key then reads least (Autumn, Monkey).
        pub filter_allocation: FilterAllocation = FilterAllocation::Uniform,
        /// Prefix by which `adaptive-tiering` cuts tables: `auto`, `fixed(8)`, `delimiter(/)` or
        /// `custom(NAME)`; fixed once used. With `auto` the first compaction chooses a `fixed(n)`.
        /// It cannot change once a table was cut by it.
        pub prefix: String = AUTO_PREFIX.into(),
        /// When outputs of a large compaction become part of the tree: `atomic`, all at the end, or
        /// `incremental`.
        pub compaction_install: CompactionInstall = CompactionInstall::Atomic,
        /// How a compaction is split into parts that run side by side: `slices` of equal size, or
        /// `components` of whole tables. Components are tables that overlap, as in the
        /// coordinated-partitioning paper. They are for comparison: one table that spans all keys
        /// joins everything.
        pub sub_compactions: SubCompactions = SubCompactions::Slices,
        /// Whether the partitioner cuts flushes too, into tables of at most `shape.table_bytes`.
        /// Keys and values are counted as they are in memory, and `prefix` cuts no flush. Otherwise
        /// a flush is one table that usually spans all keys, and a compaction by whole tables that
        /// reads it is one part.
        pub partition_flushes: bool = false,
        /// Compression by level: `none`, `lz4` or `zstd`; the last holds for all deeper levels. In
        /// text, one codec may stand for all levels.
        #[serde(deserialize_with = "one_or_many")]
        pub compression: Vec<Compression> = vec![Compression::Lz4],
        /// Level-0 runs at which writers begin to be slowed down.
        pub l0_slowdown_runs: u32 = 24,
        /// Level-0 runs at which writers wait.
        pub l0_stop_runs: u32 = 48,
        /// Merge operator that operands are for, such as `add-i64`; empty for none; once set, it
        /// never changes. Built in are `add-i64`, `add-u64`, `min`, `max`, `append(SEPARATOR)` and
        /// `json-merge-patch`; a program may register others.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub merge_operator: String = String::new(),
        /// Filter, registered by the program, to which compactions show entries; empty for none.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub compaction_filter: String = String::new(),
        /// Seconds from a write until its entry expires, unless the write sets its own; 0 for
        /// never. It holds for writes from now on, and not for operands.
        #[serde(skip_serializing_if = "is_zero")]
        pub ttl_seconds: u64 = 0,
        /// Where values are stored.
        pub values: ValueOptions = ValueOptions::default(),
        /// Compaction debt at which writers begin to be slowed down, in bytes; 0 for no limit.
        /// Twice as much stops them.
        #[serde(with = "runstone_policy::units::size")]
        pub debt_slowdown_bytes: u64 = 16 << 30,
    }
}

impl KeyspaceOptions {
    /// The compaction policy, with its options: [`Policy`] has a constructor for each policy. It
    /// replaces all numbers that were set for a policy before, also by a preset.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Policy>) -> KeyspaceOptions {
        let Policy { name, options, refused } = policy.into();
        (self.policy, self.shape, self.refused) = (name, options, refused);
        self
    }

    /// Reads TOML. An unknown name is refused; the error lists the known names and the nearest one.
    pub fn from_toml(text: &str) -> Result<KeyspaceOptions> {
        let options = parse(text)?;
        options.check()?;
        Ok(options)
    }

    /// A copy of these options in which the options named in the TOML have its values.
    pub fn with_toml(&self, text: &str) -> Result<KeyspaceOptions> {
        self.check_refused()?;
        // Parsed by itself first, so that errors show the lines that the user wrote.
        parse(text)?;
        let table = |text: &str| text.parse::<toml::Table>().map_err(|error| unparsed(&error));
        let mut all = table(&self.to_toml())?;
        overlay(&mut all, table(text)?);
        KeyspaceOptions::from_toml(&all.to_string())
    }

    /// The options as TOML.
    pub fn to_toml(&self) -> String {
        // Plain numbers, strings and lists always serialise.
        toml::to_string(self).unwrap_or_default()
    }

    /// Fails if an option of the policy was given as text that does not parse.
    fn check_refused(&self) -> Result<()> {
        let hint = "`runstone help options` lists them under [shape]";
        self.refused.as_ref().map_or(Ok(()), |what| Err(Error::invalid(what, hint)))
    }

    /// Refuses values and combinations that cannot work.
    pub fn check(&self) -> Result<()> {
        self.check_refused()?;
        let policy = self.compaction_policy()?;
        policy.check(&self.shape)?;
        self.prefix_rule()?;
        self.values.check()?;
        self.check_programs()?;
        check_range("filter_bits_per_key", self.filter_bits_per_key.signed_parts(), 0..=400, 10)?;
        let ranges: [(&str, u64, u64, u64); 8] = [
            ("write_buffer_bytes", self.write_buffer_bytes, 64 << 10, 64 << 30),
            ("max_immutable_memtables", self.max_immutable_memtables.into(), 1, 64),
            ("block_bytes", self.block_bytes.into(), 256, 1 << 24),
            ("restart_interval", self.restart_interval.into(), 1, 1024),
            ("l0_slowdown_runs", self.l0_slowdown_runs.into(), 2, 1 << 20),
            ("l0_stop_runs", self.l0_stop_runs.into(), 3, 1 << 20),
            ("debt_slowdown_bytes", self.debt_slowdown_bytes, 0, MAX_OPTION_BYTES),
            ("ttl_seconds", self.ttl_seconds, 0, MAX_TTL_SECONDS),
        ];
        for (name, value, min, max) in ranges {
            check_range(name, value, min.into()..=max.into(), 1)?;
        }
        if self.shape.table_bytes() < u64::from(self.block_bytes) {
            return Err(Error::invalid(
                format!(
                    "table_bytes is {}, less than a block ({})",
                    self.shape.table_bytes(),
                    self.block_bytes
                ),
                "raise table_bytes or lower block_bytes: a table is cut between blocks at best",
            ));
        }
        let ordered = self.shape.l0_trigger() < self.l0_slowdown_runs
            && self.l0_slowdown_runs < self.l0_stop_runs;
        if !ordered {
            return Err(Error::invalid(
                format!(
                    "l0_trigger {} < l0_slowdown_runs {} < l0_stop_runs {} does not hold",
                    self.shape.l0_trigger(),
                    self.l0_slowdown_runs,
                    self.l0_stop_runs
                ),
                "a compaction must start before writers are slowed, and slow before they stop",
            ));
        }
        // A stack keeps all its runs in level 0. Below its limit of runs nothing is compacted, so
        // writers would wait for ever.
        let resting = policy.targets(&Shape::default(), &self.shape)[0].max_runs;
        if resting >= self.l0_slowdown_runs {
            return Err(Error::invalid(
                format!(
                    "{} lets {resting} runs rest in level 0; l0_slowdown_runs is {}",
                    self.policy, self.l0_slowdown_runs
                ),
                "raise l0_slowdown_runs and l0_stop_runs, or lower the larger of stack_runs and \
                 universal_trigger",
            ));
        }
        if self.compression.is_empty() {
            return Err(Error::invalid(
                "compression is an empty list",
                "name one codec per level, such as [\"lz4\"]; the last holds for deeper levels",
            ));
        }
        Ok(())
    }

    /// Refuses options that are incompatible with collections that write pointers. Such pointers
    /// would be above the operands of their keys, and above the value that a compaction filter has
    /// meanwhile changed or removed.
    fn check_programs(&self) -> Result<()> {
        if self.values.placement != ValuePlacement::Vlog && !self.values.writes_back() {
            return Ok(());
        }
        let refuse = |what: String| {
            let hint = "set values.placement to \"inline\", or to \"hash-grouped\" with \
                        values.gc_pointers = \"stable\"";
            Err(Error::invalid(what, hint))
        };
        if !self.merge_operator.is_empty() {
            return refuse(format!(
                "merge_operator {} does not go with a placement whose collections write pointers: \
                 those would lie above the operands",
                self.merge_operator
            ));
        }
        if !self.compaction_filter.is_empty() {
            return refuse(format!(
                "compaction_filter {} does not go with a placement whose collections write \
                 pointers: those would bring back what it removes",
                self.compaction_filter
            ));
        }
        Ok(())
    }

    /// Refuses a merge operator that is not built in, for programs that register none. Without the
    /// operator, operands are stored unchecked, and the values of their keys cannot be computed.
    pub fn check_built_in_operator(&self) -> Result<()> {
        check_built_in(&self.merge_operator)
    }

    /// Refuses a merge operator other than the one for which operands were written.
    pub(crate) fn check_same_operator(&self, stored: &KeyspaceOptions) -> Result<()> {
        let (old, new) = (&stored.merge_operator, &self.merge_operator);
        if old.is_empty() || old == new {
            return Ok(());
        }
        Err(Error::invalid(
            format!("the keyspace holds operands of merge operator {old}, not of {new:?}"),
            format!(
                "it cannot change: set merge_operator to {old:?}, or copy the entries into a new \
                 keyspace"
            ),
        ))
    }

    /// The numbers of the policy.
    pub(crate) fn numbers(&self) -> &Numbers {
        Numbers::of(&self.shape)
    }

    /// The prefix rule of the options; `None` for `auto`.
    pub(crate) fn prefix_rule(&self) -> Result<Option<PrefixRule>> {
        if self.prefix == AUTO_PREFIX {
            return Ok(None);
        }
        self.prefix.parse().map(Some).map_err(|error: PrefixError| {
            Error::invalid(
                format!("option prefix: {error}"),
                "write fixed(8), delimiter(/) or auto; custom(NAME) is for a program that passes \
                 the rule in Options::prefix_extractors",
            )
        })
    }

    /// The policy of the options.
    pub(crate) fn compaction_policy(&self) -> Result<&'static dyn CompactionPolicy> {
        registry::find(&self.policy).map_err(|unknown| {
            Error::invalid(unknown.to_string(), "`runstone help policies` describes them")
        })
    }

    /// The filter memory for a table that is about to be written to `level` of a tree.
    pub(crate) fn filter_millibits_per_key(&self, shape: &Shape, level: u32) -> u32 {
        let targets = match (self.filter_allocation, self.compaction_policy()) {
            // Only the optimal allocation needs the targets.
            (FilterAllocation::Optimal, Ok(policy)) => policy.targets(shape, &self.shape),
            _ => Vec::new(),
        };
        let (allocation, budget) = (self.filter_allocation, self.filter_bits_per_key.parts());
        filters::millibits_per_key(shape, &targets, allocation, budget, level)
    }
}

/// Reads TOML, without a check of combinations.
fn parse(text: &str) -> Result<KeyspaceOptions> {
    toml::from_str(text).map_err(|error| unparsed(&error))
}

fn unparsed(error: &toml::de::Error) -> Error {
    Error::invalid(
        format!("options do not parse: {}", said(error)),
        "`runstone help options` lists every option with its default",
    )
}

/// The parser's message, and the name or value that may have been meant.
pub(crate) fn said(error: &toml::de::Error) -> String {
    let message = error.to_string();
    format!("{}{}", message.trim(), meant(&message))
}

/// The known name or value that is nearest to an unknown one. The message quotes the unknown one
/// and then the known ones. Before that, it shows the line of the user, which may contain anything.
fn meant(message: &str) -> String {
    let after = |what: &str| message.rsplit_once(what).map(|(_, names)| names);
    let names = after("unknown field `").or_else(|| after("unknown variant `"));
    let Some(names) = names else { return String::new() };
    let mut quoted = names.split('`').step_by(2);
    let Some(unknown) = quoted.next() else { return String::new() };
    registry::suggest(&registry::nearest(unknown, &quoted.collect::<Vec<_>>()))
}

/// Overwrites the values of a table with those of another, section by section.
pub(crate) fn overlay(below: &mut toml::Table, above: toml::Table) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                below.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::presets::PRESETS;

    #[test]
    fn presets_are_valid_and_survive_toml() {
        for preset in PRESETS {
            let options = KeyspaceOptions::preset(preset.name).expect("known");
            options.check().expect("valid");
            assert_eq!(KeyspaceOptions::from_toml(&options.to_toml()).expect("own text"), options);
        }
        assert!(KeyspaceOptions::preset("balancd").is_err());
    }

    #[test]
    fn text_has_units_and_decimals() {
        let read = |text: &str| KeyspaceOptions::from_toml(text).expect(text);
        let of = |change: fn(&mut KeyspaceOptions)| {
            let mut options = KeyspaceOptions::default();
            change(&mut options);
            options
        };
        assert_eq!(read("block_bytes = '8K'"), of(|options| options.block_bytes = 8192));
        let zstd = of(|options| options.compression = vec![Compression::Zstd]);
        assert_eq!(read("compression = 'zstd'"), zstd);
        let all = of(|options| {
            options.filter_bits_per_key = 9.9.into();
            Numbers::of_mut(&mut options.shape).c = 0.401.into();
            options.values.reserve = 0.25.into();
        });
        let text = "filter_bits_per_key = 9.9\n[shape]\nc = 0.401\n[values]\nreserve = 0.25";
        assert_eq!(read(text), all);
        assert!(all.to_toml().contains("filter_bits_per_key = 9.9\n"), "{}", all.to_toml());
    }

    #[test]
    fn senseless_options_are_refused_with_a_reason() {
        let refused = |text: &str| KeyspaceOptions::from_toml(text).expect_err(text).to_string();
        assert!(refused("polcy = 'leveling'").contains("policy"), "names what is known");
        assert!(refused("policy = 'levelling'").contains("did you mean leveling"));
        assert!(refused("block_bytes = 1").contains("256"));
        let near = refused("blok_bytes = 1");
        assert!(near.contains("did you mean block_bytes?"), "{near}");
        for (text, near) in [
            ("compaction_install = 'atomik'", "atomic"),
            ("sub_compactions = 'slice'", "slices"),
            ("filter_allocation = 'optimum'", "optimal"),
            ("compression = ['lz4', 'zst']", "zstd"),
            ("[values]\nplacement = 'hash-groups'", "hash-grouped"),
            ("[values]\nwhen_full = 'stal'", "stall"),
            ("[values]\ngc_pointers = 'write-back'", "writeback"),
            ("[shape]\nintra_level = 'evry'", "every"),
            ("[shape]\ncharge = 'probe'", "probes"),
            ("[shape]\npartitioner = 'sized'", "size"),
        ] {
            let told = refused(text);
            assert!(told.contains(&format!("did you mean {near}")), "{told}");
        }
        let far = refused("compaction_install = 'tomorrow'");
        assert!(far.contains("`incremental`") && !far.contains("did you mean"), "{far}");
        assert!(refused("compression = []").contains("empty"));
        assert!(refused("l0_stop_runs = 3").contains("l0_trigger 8 < l0_slowdown_runs 24"));
        let tall = "policy = \"bigtable\"\n[shape]\nstack_runs = 24";
        assert!(refused(tall).contains("24 runs rest in level 0; l0_slowdown_runs is 24"));
        assert!(refused("[shape]\nsize_ratio = 1").contains("size_ratio"));
        assert!(refused("[shape]\nsplit_bytes = 0").contains("split_bytes"));
        assert!(refused("[shape]\ntable_bytes = 4095").contains("at least 4096"));
        let coarse = "block_bytes = 65536\n[shape]\ntable_bytes = 32768";
        assert!(refused(coarse).contains("table_bytes is 32768, less than a block (65536)"));
        assert!(refused("[shape]\nc = 0").contains("option c is 0, but must be at least 0.001"));
        assert!(refused("[shape]\nc = 1.001").contains("c is 1.001, but must be at most 1"));
        let bits = refused("filter_bits_per_key = 40.1");
        assert!(bits.contains("filter_bits_per_key is 40.1; allowed are 0 to 40"), "{bits}");
        let fewer = KeyspaceOptions::default().filter_bits_per_key(-1.0).check();
        let fewer = fewer.expect_err("below zero").to_string();
        assert_eq!(fewer, "option filter_bits_per_key is -1; allowed are 0 to 40");
        let reserve = refused("[values]\nreserve = 0");
        assert!(reserve.contains("option values.reserve is 0; allowed are 0.001 to 100"));
        assert!(refused("[shape]\nc = 0.8001").contains("at most 3 digits"));
        assert!(refused("block_bytes = '4X'").contains("no known unit"));
        assert!(refused("compression = 'zip'").contains("none, lz4 or zstd"));
        assert!(refused("[shape]\nl0_share_percent = 101").contains("at most 100"));
        let tight = refused("[shape]\nmax_space_percent = 109");
        assert!(tight.contains("max_space_percent is 109, but must be 0 (none) or at least 110"));
        assert!(refused("[shape]\nmax_space_percent = 10001").contains("at most 10000"));
        assert!(refused("policy = 'tierin'").contains("did you mean tiering"));
        assert!(refused("prefix = 'fixed(0)'").contains("between 1 and 64"));
        assert!(refused("prefix = 'first eight'").contains("fixed(8)"));
        assert!(refused(&format!("[shape]\nbase_bytes = {}", 1u64 << 61)).contains("at most"));
        assert!(refused(&format!("debt_slowdown_bytes = {}", 1u64 << 61)).contains("allowed are"));
    }
}
