//! Compaction policies as typed values: each built-in policy has a type with exactly the options
//! that it uses. The policies themselves are in the crate `runstone-policy`, whose registry finds
//! them by name.

use std::fmt::Display;

use runstone_policy::options::{Charge, IntraLevel, PolicyOptions};
use runstone_policy::partition::Partitioner;
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::policy_setter;
use serde::Deserialize;

use crate::error::Result;
use crate::options::keyspace::{KeyspaceOptions, overlay, said};

/// A compaction policy with its options, for [`KeyspaceOptions::policy()`].
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let path = dir.path().join("store");
/// use runstone::policy::Policy;
/// use runstone::{KeyspaceOptions, Store};
///
/// let options = KeyspaceOptions::default().policy(Policy::garnering().ratio(2).c(0.8));
/// let store = Store::builder(&path).keyspace(options).open()?;
/// # drop(store);
///
/// // A value out of range is refused at the open. The error gives its name and its bound.
/// let options = KeyspaceOptions::default().policy(Policy::garnering().c(1.5));
/// let error = Store::builder(&path).keyspace(options).open().expect_err("refused");
/// assert_eq!(error.to_string(), "option c is 1.5, but must be at most 1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) options: PolicyOptions,
    /// Why the text of an option was refused.
    pub(crate) refused: Option<String>,
}

impl Policy {
    fn of(name: &str) -> Policy {
        Policy { name: name.into(), options: PolicyOptions::default(), refused: None }
    }

    /// A policy by its name: a policy that the program registered ([`crate::policy::custom`]), or a
    /// built-in policy whose name was read as text.
    ///
    /// ```
    /// use runstone::KeyspaceOptions;
    /// use runstone::policy::Policy;
    ///
    /// let by_name = Policy::named("garnering").option("c", 0.4).option("base_bytes", "64M");
    /// let typed = Policy::garnering().c(0.4).base_bytes(64 << 20);
    /// let of = |policy: Policy| KeyspaceOptions::default().policy(policy);
    /// assert_eq!(of(by_name.into()), of(typed.into()));
    /// assert!(of(Policy::named("garnring").into()).check().is_err());
    /// ```
    pub fn named(name: &str) -> Named {
        Named(Policy::of(name))
    }

    /// The name of the policy as text.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A policy that is known by its name; see [`Policy::named`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Named(Policy);

impl Named {
    /// Sets an option by its name. The value has its text form: a number, a decimal, a size such as
    /// `64M`, or a word. `runstone help options` lists the options under `[shape]`. An unknown
    /// name, or a value that does not parse, is refused at the open.
    pub fn option(mut self, name: &str, value: impl Display) -> Named {
        if let Err(what) = self.0.set(name, &value.to_string()) {
            self.0.refused.get_or_insert(what);
        }
        self
    }
}

impl From<Named> for Policy {
    fn from(named: Named) -> Policy {
        named.0
    }
}

impl Policy {
    /// Reads one option. It is first read by itself, so that an error is about this option.
    fn set(&mut self, name: &str, value: &str) -> std::result::Result<(), String> {
        let number = value.parse().map(toml::Value::Integer).ok();
        let number = number.or_else(|| value.parse().map(toml::Value::Float).ok());
        let value = number.unwrap_or_else(|| toml::Value::String(value.into()));
        let one = toml::Table::from_iter([(name.to_string(), value)]);
        let failed = |error: toml::de::Error| format!("option {name}: {}", said(&error));
        PolicyOptions::deserialize(one.clone()).map_err(failed)?;
        let mut all = toml::Table::try_from(&self.options).map_err(|error| error.to_string())?;
        overlay(&mut all, one);
        self.options = PolicyOptions::deserialize(all).map_err(failed)?;
        Ok(())
    }
}

/// A type and a constructor per policy; its setters follow after the colon.
macro_rules! policies {
    ($(
        $(#[doc = $doc:expr])+
        $of:ident $type:ident $name:literal: $($setter:ident)+;
    )+) => {
        impl Policy {
            $(
                $(#[doc = $doc])+
                pub fn $of() -> $type {
                    $type(Policy::of($name))
                }
            )+
        }

        $(
            $(#[doc = $doc])+
            #[doc = concat!("\n\nAs text: `policy = \"", $name, "\"`.")]
            #[derive(Clone, Debug, PartialEq, Eq)]
            #[must_use]
            pub struct $type(Policy);

            impl $type {
                $(policy_setter!($setter);)+
            }

            impl From<$type> for Policy {
                fn from(policy: $type) -> Policy {
                    policy.0
                }
            }
        )+

        #[cfg(test)]
        fn all() -> Vec<Policy> {
            vec![$(Policy::$of().into()),+]
        }
    };
}

policies! {
    /// One run per level; tables sink one at a time with their overlap (LevelDB, RocksDB). The
    /// default of a keyspace.
    fragmented_leveling FragmentedLeveling "fragmented-leveling":
        ratio l0_trigger l0_share_percent base_bytes
        table_bytes partitioner split_bytes max_space_percent
        seek_compaction seek_bytes least_seeks;
    /// One run per level; a full level compacts whole into the next: fewest runs, most writing.
    leveling Leveling "leveling":
        ratio l0_trigger base_bytes table_bytes partitioner split_bytes max_space_percent
        seek_compaction seek_bytes least_seeks;
    /// T runs per level, compacted into one run of the next: least writing, most runs.
    tiering Tiering "tiering":
        ratio l0_trigger table_bytes partitioner split_bytes max_space_percent;
    /// T runs per level, one run in the last: space of leveling, writes near tiering.
    lazy_leveling LazyLeveling "lazy-leveling":
        ratio l0_trigger table_bytes partitioner split_bytes max_space_percent;
    /// K runs per level, Z in the last: anything between leveling and tiering (Dostoevsky).
    fluid Fluid "fluid":
        ratio l0_trigger base_bytes max_runs last_level_runs
        table_bytes partitioner split_bytes max_space_percent;
    /// Fragmented leveling with fewer levels, which widen as data grows (Autumn).
    garnering Garnering "garnering":
        ratio c l0_trigger l0_share_percent base_bytes
        table_bytes partitioner split_bytes max_space_percent;
    /// Tables overlap, cut by key prefix; levels sink by moves, and reads trigger compactions
    /// (PTierDB).
    adaptive_tiering AdaptiveTiering "adaptive-tiering":
        ratio l0_trigger base_bytes split_bytes
        intra_level charge access_limit access_bytes max_space_percent;
    /// Tables collect between guards and sink without reading the next level (PebblesDB's FLSM).
    guards Guards "guards": ratio l0_trigger base_bytes table_bytes max_runs max_space_percent;
    /// A stack of at most k runs; compacts down to a run larger than all newer ones (Bigtable,
    /// HBase).
    bigtable Bigtable "bigtable":
        stack_runs table_bytes partitioner split_bytes max_space_percent;
    /// A stack of at most k runs; one run more, and all are compacted: simple, most writing.
    constant Constant "constant":
        stack_runs table_bytes partitioner split_bytes max_space_percent;
    /// A stack of runs; compacts runs of similar size, and all runs when space grows (RocksDB).
    universal Universal "universal":
        stack_runs trigger amp_percent ratio_percent min_width max_width
        table_bytes partitioner split_bytes max_space_percent;
    /// A stack of at most k runs, compacted by flush count; few while the store is small.
    binomial Binomial "binomial":
        stack_runs table_bytes partitioner split_bytes max_space_percent;
    /// A stack of k runs, compacted by flush count; least writing for k.
    min_latency MinLatency "min-latency":
        stack_runs table_bytes partitioner split_bytes max_space_percent;
}

/// The options of a keyspace's policy, to ask a policy with.
pub fn options_of(options: &KeyspaceOptions) -> &PolicyOptions {
    &options.shape
}

/// The policy that a keyspace's options name.
///
/// # Errors
/// If no policy has that name.
pub fn policy_of(options: &KeyspaceOptions) -> Result<&'static dyn CompactionPolicy> {
    options.compaction_policy()
}

#[cfg(test)]
mod tests {
    use runstone_policy::registry;

    use super::*;

    #[test]
    fn every_policy_has_a_type() {
        let typed: Vec<String> = all().into_iter().map(|policy| policy.name).collect();
        let built_in: Vec<&str> = registry::POLICIES.iter().map(|policy| policy.name()).collect();
        assert_eq!(typed, built_in);
    }

    #[test]
    fn options_that_do_not_parse_are_refused_with_their_name() {
        let refused = |policy: Named| {
            let options = KeyspaceOptions::default().policy(policy);
            options.check().expect_err("refused").to_string()
        };
        let near = refused(Policy::named("tiering").option("size_ration", 4));
        assert!(near.contains("size_ration") && near.contains("did you mean size_ratio"), "{near}");
        let word = refused(Policy::named("tiering").option("size_ratio", "four"));
        assert!(word.contains("option size_ratio"), "{word}");
        let digits = refused(Policy::named("garnering").option("c", 0.8001));
        assert!(digits.contains("at most 3 digits"), "{digits}");
        let name = refused(Policy::named("tierin"));
        assert!(name.contains("did you mean tiering"), "{name}");
    }

    #[test]
    fn a_value_out_of_range_is_told_as_it_was_given() {
        let refused = |policy: Policy| {
            let options = KeyspaceOptions::default().policy(policy);
            options.check().expect_err("refused").to_string()
        };
        let below = refused(Policy::garnering().c(-0.5).into());
        assert_eq!(below, "option c is -0.5, but must be at least 0.001");
        let none = refused(Policy::garnering().c(f64::NAN).into());
        assert_eq!(none, "option c is no number, but must be at least 0.001");
        let ratio = refused(Policy::tiering().ratio(1).into());
        assert_eq!(ratio, "option size_ratio is 1, but must be at least 2");
    }
}
