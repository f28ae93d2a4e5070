//! Options of a store as TOML, the same in every language:
//!
//! ```toml
//! memory_budget_bytes = "1G"
//! durability = "sync"
//!
//! [keyspace]              # of the default keyspace, as `runstone help options` lists them
//! policy = "garnering"
//! ```
//!
//! and the resources that many stores share:
//!
//! ```toml
//! memory_budget_bytes = "512M"
//! background_threads = 4
//! max_open_files = 200
//! background_bytes_per_second = "100M"
//! ```

use std::time::Duration;

use runstone::{Background, Durability, KeyspaceOptions, Options, Resources, WalMode};
use runstone_policy::units;
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// A number of bytes, which may have a unit: `"64M"`.
#[derive(Debug, Deserialize)]
struct Bytes(#[serde(with = "units::size")] u64);

/// The options that the text may set. Others keep the store's defaults.
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
    /// 0 means never.
    idle_after_seconds: Option<u64>,
    /// 0 means never.
    scrub_every_seconds: Option<u64>,
    scrub_bytes_per_second: Option<Bytes>,
    follower_keep_bytes: Option<Bytes>,
    follower_keep_seconds: Option<u64>,
    keep_log_bytes: Option<Bytes>,
    keep_log_seconds: Option<u64>,
    keyspace: Option<toml::Table>,
}

/// The options that the text of resources may set.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ResourcesText {
    memory_budget_bytes: Option<Bytes>,
    background_threads: Option<usize>,
    max_open_files: Option<usize>,
    background_bytes_per_second: Option<Bytes>,
}

/// This text replaces the names of Rust's types in the parser's messages.
const NUMBER: &str = "expected a whole number from 0 up";

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let told =
            error.to_string().replace("expected usize", NUMBER).replace("expected u64", NUMBER);
        Failure::invalid(format!("the options do not parse: {}", told.trim()))
    })
}

/// The most background threads that a store or resources may have.
const MAX_THREADS: usize = 256;

/// Checks the number of threads here, because the engine has another name for the option.
fn check_threads(count: Option<usize>) -> Result<()> {
    let bound = match count {
        None | Some(1..=MAX_THREADS) => return Ok(()),
        Some(0) => "at least 1".to_string(),
        Some(_) => format!("at most {MAX_THREADS}"),
    };
    let count = count.unwrap_or_default();
    Err(Failure::invalid(format!("option background_threads is {count}, but must be {bound}")))
}

/// Makes resources from TOML. An empty text gives the defaults.
///
/// # Errors
/// If the text is not TOML, if it has unknown names or invalid values, or if no more threads can be
/// started.
pub fn of_resources(text: &str) -> Result<Resources> {
    let text: ResourcesText = read(text)?;
    check_threads(text.background_threads)?;
    let mut builder = Resources::builder();
    if let Some(Bytes(bytes)) = text.memory_budget_bytes {
        builder = builder.memory_budget(bytes);
    }
    if let Some(count) = text.background_threads {
        builder = builder.threads(count);
    }
    if let Some(count) = text.max_open_files {
        builder = builder.max_open_files(count);
    }
    if let Some(Bytes(bytes)) = text.background_bytes_per_second {
        builder = builder.background_bytes_per_second(bytes);
    }
    Ok(builder.build()?)
}

/// Refuses options of a store that its resources set instead.
///
/// # Errors
/// If the text names such an option.
pub fn check_sharing(text: &str) -> Result<()> {
    let text: Text = read(text)?;
    let named = [
        ("memory_budget_bytes", text.memory_budget_bytes.is_some()),
        ("background_threads", text.background_threads.is_some()),
        ("max_open_files", text.max_open_files.is_some()),
    ];
    match named.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::invalid(format!(
            "the resources set {name} for all stores that share them; leave it out here"
        ))),
        None => Ok(()),
    }
}

/// Reads the options of a store from TOML. An empty text gives the defaults.
///
/// # Errors
/// If the text is not TOML, or has unknown names or invalid values.
pub fn of_store(text: &str) -> Result<Options> {
    let text: Text = read(text)?;
    check_threads(text.background_threads)?;
    let keyspace = text.keyspace.map(|table| of_keyspace(&table.to_string())).transpose()?;
    let mut options = Options::default();
    fn set<T>(option: &mut T, given: Option<T>) {
        if let Some(given) = given {
            *option = given;
        }
    }
    let bytes = |given: Option<Bytes>| given.map(|bytes| bytes.0);
    set(&mut options.create_if_missing, text.create_if_missing);
    set(&mut options.read_only, text.read_only);
    set(&mut options.memory_budget_bytes, bytes(text.memory_budget_bytes));
    set(&mut options.background, text.background_threads.map(Background::Threads));
    options.compaction_slices = text.compaction_slices;
    set(&mut options.wal_segment_bytes, bytes(text.wal_segment_bytes));
    set(&mut options.max_wal_bytes, bytes(text.max_wal_bytes));
    set(&mut options.wal_mode, text.wal_mode);
    set(&mut options.flush_at_close, text.flush_at_close);
    options.max_open_files = text.max_open_files;
    set(&mut options.io_uring, text.io_uring);
    set(&mut options.durability, text.durability);
    set(&mut options.max_delayed_bytes_per_second, bytes(text.max_delayed_bytes_per_second));
    if let Some(seconds) = text.idle_after_seconds {
        options.idle_after = (seconds > 0).then(|| Duration::from_secs(seconds));
    }
    if let Some(seconds) = text.scrub_every_seconds {
        options.scrub_every = (seconds > 0).then(|| Duration::from_secs(seconds));
    }
    set(&mut options.scrub_bytes_per_second, bytes(text.scrub_bytes_per_second));
    set(&mut options.follower_keep_bytes, bytes(text.follower_keep_bytes));
    set(&mut options.follower_keep_seconds, text.follower_keep_seconds);
    set(&mut options.keep_log_bytes, bytes(text.keep_log_bytes));
    set(&mut options.keep_log_seconds, text.keep_log_seconds);
    options.keyspace = keyspace;
    options.check()?;
    Ok(options)
}

/// Options of a keyspace, as `runstone help options` lists them; `preset = "NAME"` alone gives
/// those of a preset.
///
/// # Errors
/// If the text is not TOML, or has unknown names or invalid values.
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
        let kept = of_store(
            "keep_log_bytes = '1G'\nkeep_log_seconds = 7\nfollower_keep_bytes = '2G'\n\
             follower_keep_seconds = 8\nscrub_every_seconds = 604800\n\
             scrub_bytes_per_second = '1M'\n",
        )
        .expect("valid");
        assert_eq!((kept.keep_log_bytes, kept.keep_log_seconds), (1 << 30, 7));
        assert_eq!((kept.follower_keep_bytes, kept.follower_keep_seconds), (2 << 30, 8));
        let scrub = (kept.scrub_every, kept.scrub_bytes_per_second);
        assert_eq!(scrub, (Some(Duration::from_secs(604_800)), 1 << 20));
        let preset = of_keyspace("preset = 'balanced'").expect("known");
        assert_eq!(preset, KeyspaceOptions::preset("balanced").expect("known"));
    }

    #[test]
    fn resources_take_the_place_of_a_stores_own() {
        let text = "memory_budget_bytes = '8M'\nbackground_threads = 1\nmax_open_files = 9\n\
                    background_bytes_per_second = '1M'";
        let made = of_resources(text).expect("valid");
        assert_eq!(made.memory().budget_bytes, 8 << 20);
        check_sharing("max_wal_bytes = '9M'").expect("it is the store's");
        for name in ["memory_budget_bytes", "background_threads", "max_open_files"] {
            let failure = check_sharing(&format!("{name} = 20000000")).expect_err(name);
            assert!(failure.message.contains(name), "{}", failure.message);
        }
        for (text, name) in [
            ("memory_budget = 5", "memory_budget_bytes"),
            ("memory_budget_bytes = 5", "at least"),
            ("background_threads = 0", "background_threads is 0, but must be at least 1"),
            ("background_threads = 257", "background_threads is 257, but must be at most 256"),
            ("max_open_files = 1", "max_open_files"),
            ("background_bytes_per_second = 1", "background_bytes_per_second"),
            ("durability = 'sync'", "durability"),
        ] {
            let failure = of_resources(text).expect_err(text);
            assert!(failure.message.contains(name), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, name) in [
            ("memory_budget = 5", "memory_budget_bytes"),
            ("memory_budget_bytes = 5", "at least"),
            ("background_threads = 0", "background_threads is 0, but must be at least 1"),
            ("background_threads = 257", "background_threads is 257, but must be at most 256"),
            ("max_open_files = 'many'", "whole number"),
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
