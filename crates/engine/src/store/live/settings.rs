//! The settings of a store that can be changed while it is open, besides the options of its
//! keyspaces. Each is one entry of [`SETTINGS`]. Changes are not stored in the store; the next open
//! begins with its options.
//!
//! Stores that share [`crate::Resources`] share the budget, the threads and the rate: a change acts
//! on all of them.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::memory::limit::limit_bytes;
use crate::options::store::{
    LEAST_RATE_BYTES, MAPPED_SEGMENTS, MAX_BUDGET_BYTES, MAX_THREADS, WalMode,
};
use crate::store::Store;
use crate::store::engine::Engine;
use crate::store::open::tell_limit;
use crate::store::resources::{Parts, no_threads};
use crate::store::scrub;
use runstone_policy::registry::{nearest, suggest};
use runstone_policy::units::parse_size;

/// A setting that can be changed.
struct Setting {
    name: &'static str,
    doc: &'static str,
    get: fn(&Open<'_>) -> String,
    /// Refuses a wrong value. A right value is set, unless the third argument is false.
    set: fn(&Open<'_>, &str, bool) -> Result<()>,
}

/// An open store.
pub(super) struct Open<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) parts: &'a Parts,
}

/// A setting of an open store, or an option of a keyspace, before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveChange {
    /// Its name.
    pub name: String,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
}

/// A setting of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveSetting {
    /// Its name, for [`Store::set_live`].
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Its value now.
    pub value: String,
}

impl LiveSetting {
    /// The names of all settings.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SETTINGS.iter().map(|setting| setting.name)
    }
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "memory_budget_bytes",
        doc: "bound on memtables, log segments, block cache, index and filters together",
        get: |open| open.parts.budget.bytes().to_string(),
        set: set_budget,
    },
    Setting {
        name: "background_threads",
        doc: "threads for flushes and compactions; a running job continues to its end",
        get: |open| match &open.parts.workers {
            Some(workers) => workers.count().to_string(),
            None => "none".to_string(),
        },
        set: set_threads,
    },
    Setting {
        name: "background_io_bytes_per_second",
        doc: "bytes per second that flushes, compactions and collections write, or unlimited",
        get: |open| match open.parts.common.io_rate.get() {
            Some(rate) => rate.to_string(),
            None => UNLIMITED.to_string(),
        },
        set: set_rate,
    },
    Setting {
        name: "target_p99",
        doc: "p99 latency of gets and writes above which background I/O slows down, or off",
        get: |open| match open.parts.common.io_rate.target.get() {
            Some(p99) => format!("{}us", p99.as_micros()),
            None => OFF.to_string(),
        },
        set: set_target,
    },
    Setting {
        name: "compactions",
        doc: "running, or paused until writers would be slowed down for want of one",
        get: |open| match open.engine.schedule.is_paused() {
            true => PAUSED.to_string(),
            false => RUNNING.to_string(),
        },
        set: set_compactions,
    },
    Setting {
        name: "scrub",
        doc: "bytes per second for a check of all files, which begins now, or off",
        get: |open| match open.engine.scrubbing.rate() {
            Some(rate) => rate.to_string(),
            None => OFF.to_string(),
        },
        set: set_scrub,
    },
];

/// The least target. Only operations that stay in memory are as fast.
const LEAST_TARGET_US: u64 = 10;
const MOST_TARGET_US: u64 = 60_000_000;
const UNLIMITED: &str = "unlimited";
const OFF: &str = "off";
const PAUSED: &str = "paused";
const RUNNING: &str = "running";

impl Store {
    /// Changes a setting of the open store: the bounds that [`crate::Options`] and
    /// [`crate::Resources`] set at the beginning, and whether compactions run. The change acts at
    /// once, and lasts until the store is closed. If stores share resources, the change acts on all
    /// of them, except for `compactions` and `scrub`. [`Store::live_settings`] lists the settings.
    /// Options of a keyspace are changed by [`Store::open_keyspace`].
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let change = store.set_live("memory_budget_bytes", "128M")?;
    /// assert_eq!((change.old.as_str(), change.new.as_str()), ("536870912", "134217728"));
    /// store.set_live("background_threads", "1")?;
    /// store.set_live("background_io_bytes_per_second", "10M")?;
    /// store.set_live("target_p99", "5ms")?;
    /// store.set_live("compactions", "paused")?;
    /// store.set_live("compactions", "running")?;
    /// assert!(store.set_live("background_threads", "0").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no such setting, or the value is not allowed. Then nothing is changed.
    pub fn set_live(&self, name: &str, value: &str) -> Result<LiveChange> {
        self.open_now(|open| open.change(name, value))
    }

    /// The settings of the open store that can be changed, with their values.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn live_settings(&self) -> Result<Vec<LiveSetting>> {
        self.open_now(|open| {
            let setting =
                |of: &Setting| LiveSetting { name: of.name, doc: of.doc, value: (of.get)(open) };
            Ok(SETTINGS.iter().map(setting).collect())
        })
    }

    fn open_now<T>(&self, act: impl FnOnce(&Open<'_>) -> Result<T>) -> Result<T> {
        self.inner.env.check_caller()?;
        let parts = self.opening.parts.lock().clone().ok_or(Error::Closed)?;
        act(&Open { engine: &self.inner, parts: &parts })
    }
}

impl Open<'_> {
    pub(super) fn change(&self, name: &str, value: &str) -> Result<LiveChange> {
        let setting = find(name)?;
        self.engine.check_usable()?;
        if self.engine.env.options.read_only {
            return Err(Error::ReadOnly);
        }
        let old = (setting.get)(self);
        (setting.set)(self, value.trim(), true)?;
        Ok(LiveChange { name: name.to_string(), old, new: (setting.get)(self) })
    }

    /// Refuses a name or a value that [`Open::change`] would refuse.
    pub(super) fn check(&self, name: &str, value: &str) -> Result<()> {
        (find(name)?.set)(self, value.trim(), false)
    }
}

fn find(name: &str) -> Result<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let known: Vec<&str> = LiveSetting::names().collect();
        let near = suggest(&nearest(name, &known));
        Error::invalid(
            format!("no setting of an open store is named {name:?}{near}"),
            format!("the settings are {}", known.join(", ")),
        )
    })
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let what = format!("{name} is {value}, but must be {least} to {most}");
    Err(Error::invalid(what, format!("set {name} to {}", value.clamp(least, most))))
}

fn size(name: &str, value: &str) -> Result<u64> {
    parse_size(value).map_err(|what| {
        Error::invalid(format!("{name}: {what}"), "write a number of bytes, such as 256M")
    })
}

/// The log was laid out for the first budget, so a new budget must be at least twice the mapped
/// log.
fn set_budget(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let name = "memory_budget_bytes";
    let bytes = size(name, value)?;
    let env = &open.engine.env;
    let log_bytes = match env.options.wal_mode {
        WalMode::Mapped if !env.is_sharing => env.options.log_segment_bytes() * MAPPED_SEGMENTS,
        _ => 0,
    };
    within(name, bytes, (log_bytes * 2).max(1 << 20), MAX_BUDGET_BYTES)?;
    if acts {
        open.parts.set_budget(bytes);
        tell_limit(env, limit_bytes());
        open.engine.pressure.refresh(&open.engine.catalog.all());
    }
    Ok(())
}

fn set_threads(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let name = "background_threads";
    let count: u64 = value.parse().map_err(|_| {
        Error::invalid(format!("{name}: {value:?} is not a number"), "write a number, such as 4")
    })?;
    within(name, count, 1, MAX_THREADS)?;
    let workers = open.parts.workers.as_ref().filter(|_| !open.engine.env.is_manual());
    let Some(workers) = workers else {
        let what = "the jobs of this store are run by hand, so it has no threads";
        return Err(Error::invalid(what, "open it with threads"));
    };
    match acts {
        true => workers.start(count as usize).map_err(|error| no_threads(&error)),
        false => Ok(()),
    }
}

fn set_rate(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let name = "background_io_bytes_per_second";
    let rate = match value {
        UNLIMITED => None,
        _ => Some(size(name, value)?),
    };
    if let Some(bytes) = rate.filter(|bytes| *bytes < LEAST_RATE_BYTES) {
        return Err(Error::invalid(
            format!("{name} is {bytes}, but must be at least {LEAST_RATE_BYTES}"),
            format!("set it to {LEAST_RATE_BYTES} or more, or to {UNLIMITED}"),
        ));
    }
    if acts {
        open.parts.common.io_rate.set(rate);
    }
    Ok(())
}

fn set_target(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let name = "target_p99";
    let p99 = match value {
        OFF => None,
        _ => Some(latency(name, value)?),
    };
    if p99.is_some() && open.engine.env.is_manual() {
        let what = "the jobs of this store are run by hand, so nothing measures its latency";
        return Err(Error::invalid(what, "open it with threads"));
    }
    if acts {
        open.parts.common.io_rate.set_target(p99);
    }
    Ok(())
}

/// A latency, such as `500us`, `5ms` or `1s`.
fn latency(name: &str, value: &str) -> Result<Duration> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let micros = match &value[digits.len()..] {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        _ => None,
    };
    let parsed = digits.parse().ok().zip(micros).and_then(|(number, micros): (u64, u64)| {
        let micros = number.checked_mul(micros)?;
        (LEAST_TARGET_US..=MOST_TARGET_US).contains(&micros).then_some(micros)
    });
    parsed.map(Duration::from_micros).ok_or_else(|| {
        let what = format!("{name}: {value:?} is not a latency from 10us to 60s");
        Error::invalid(what, "write a number with us, ms or s, such as 5ms, or off")
    })
}

fn set_scrub(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let name = "scrub";
    if value == OFF {
        if acts {
            open.engine.scrubbing.stop();
        }
        return Ok(());
    }
    let rate = size(name, value)?;
    within(name, rate, LEAST_RATE_BYTES, u64::MAX)?;
    if open.engine.env.is_manual() {
        let what = "the jobs of this store are run by hand, so nothing scrubs in the background";
        return Err(Error::invalid(what, "call `Store::scrub` in the program"));
    }
    match acts {
        true => scrub::start(open.engine, rate).map_err(|error| no_threads(&error)),
        false => Ok(()),
    }
}

fn set_compactions(open: &Open<'_>, value: &str, acts: bool) -> Result<()> {
    let paused = match value {
        PAUSED => true,
        RUNNING => false,
        _ => {
            let what = format!("compactions: {value:?} is neither {PAUSED} nor {RUNNING}");
            return Err(Error::invalid(what, format!("set it to {PAUSED} or {RUNNING}")));
        }
    };
    if acts {
        open.engine.schedule.pause(paused);
    }
    Ok(())
}
