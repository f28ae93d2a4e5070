//! Options of a store as TOML, the same in every language:
//!
//! ```toml
//! memory_budget_bytes = "1G"
//! durability = "sync"
//!
//! [keyspace]              # of the default keyspace, as `runstone help options` lists them
//! policy = "garnering"
//! ```

use std::time::Duration;

use runstone::policy::units;
use runstone::{Background, Durability, KeyspaceOptions, Options, WalMode};
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// A number of bytes, which may have a unit: `"64M"`.
#[derive(Debug, Deserialize)]
struct Bytes(#[serde(with = "units::size")] u64);

/// What the text may say. What it leaves out keeps the store's default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    create_if_missing: Option<bool>,
    read_only: Option<bool>,
    memory_budget_bytes: Option<Bytes>,
    background_threads: Option<usize>,
    compaction_slices: Option<usize>,
    wal_segment_bytes: Option<Bytes>,
    max_wal_bytes: Option<Bytes>,
    wal_mode: Option<WalMode>,
    flush_at_close: Option<bool>,
    max_open_files: Option<usize>,
    io_uring: Option<bool>,
    durability: Option<Durability>,
    max_delayed_bytes_per_second: Option<Bytes>,
    /// 0: never.
    idle_after_seconds: Option<u64>,
    keyspace: Option<toml::Table>,
}

/// Reads the options of a store from TOML. An empty text gives the defaults.
///
/// # Errors
/// If the text is no TOML, or has unknown names or values that cannot work.
pub fn of_store(text: &str) -> Result<Options> {
    let text: Text = toml::from_str(text).map_err(|error| {
        Failure::invalid(format!("the options do not parse: {}", error.to_string().trim()))
    })?;
    let keyspace = text.keyspace.map(|table| of_keyspace(&table.to_string())).transpose()?;
    let default = Options::default();
    let bytes = |given: Option<Bytes>, default: u64| given.map_or(default, |bytes| bytes.0);
    let options = Options {
        create_if_missing: text.create_if_missing.unwrap_or(default.create_if_missing),
        read_only: text.read_only.unwrap_or(default.read_only),
        memory_budget_bytes: bytes(text.memory_budget_bytes, default.memory_budget_bytes),
        background: text.background_threads.map_or(default.background, Background::Threads),
        compaction_slices: text.compaction_slices,
        wal_segment_bytes: bytes(text.wal_segment_bytes, default.wal_segment_bytes),
        max_wal_bytes: bytes(text.max_wal_bytes, default.max_wal_bytes),
        wal_mode: text.wal_mode.unwrap_or(default.wal_mode),
        flush_at_close: text.flush_at_close.unwrap_or(default.flush_at_close),
        max_open_files: text.max_open_files,
        io_uring: text.io_uring.unwrap_or(default.io_uring),
        durability: text.durability.unwrap_or(default.durability),
        max_delayed_bytes_per_second: bytes(
            text.max_delayed_bytes_per_second,
            default.max_delayed_bytes_per_second,
        ),
        idle_after: match text.idle_after_seconds {
            None => default.idle_after,
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        },
        keyspace,
        ..default
    };
    options.check()?;
    Ok(options)
}

/// Options of a keyspace, as `runstone help options` lists them; `preset = "NAME"` alone gives
/// those of a preset.
///
/// # Errors
/// If the text is no TOML, or has unknown names or values that cannot work.
pub fn of_keyspace(text: &str) -> Result<KeyspaceOptions> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OnlyPreset {
        preset: String,
    }
    match toml::from_str::<OnlyPreset>(text) {
        Ok(only) => Ok(KeyspaceOptions::preset(&only.preset)?),
        Err(_) => Ok(KeyspaceOptions::from_toml(text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[test]
    fn text_sets_what_it_names() {
        let options = of_store(
            "memory_budget_bytes = '1G'\nbackground_threads = 3\ndurability = 'sync'\n\
             idle_after_seconds = 0\n[keyspace]\npolicy = 'garnering'\nblock_bytes = '8K'\n",
        )
        .expect("valid");
        assert_eq!(options.memory_budget_bytes, 1 << 30);
        assert_eq!(options.background, Background::Threads(3));
        assert_eq!((options.durability, options.idle_after), (Durability::Sync, None));
        let keyspace = options.keyspace.expect("given");
        assert_eq!((keyspace.policy.as_str(), keyspace.block_bytes), ("garnering", 8192));
        assert!(of_store("").expect("defaults").keyspace.is_none());
        let preset = of_keyspace("preset = 'balanced'").expect("known");
        assert_eq!(preset, KeyspaceOptions::preset("balanced").expect("known"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, name) in [
            ("memory_budget = 5", "memory_budget_bytes"),
            ("memory_budget_bytes = 5", "at least"),
            ("background_threads = 0", "background threads"),
            ("durability = 'always'", "sync"),
            ("keyspace = 5", "keyspace"),
            ("[keyspace]\npolicy = 'nice'", "nice"),
            ("[keyspace]\npreset = 'nice'", "preset"),
            ("[keyspace]\nblock_size = 5", "block_bytes"),
            ("= 5", "parse"),
        ] {
            let failure = of_store(text).expect_err(text);
            assert_eq!(failure.code, Code::InvalidArgument, "{text}");
            assert!(failure.message.contains(name), "{text}: {}", failure.message);
        }
    }
}
