//! The ground that every room stands on: keys, errors, options, counters, health. It knows no tree,
//! no log and no job.

pub(crate) mod callback;
pub(crate) mod clock;
pub(crate) mod codec;
pub(crate) mod compaction_filter;
pub(crate) mod env;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod health;
pub(crate) mod io_rate;
pub(crate) mod key;
pub(crate) mod key_range;
pub(crate) mod keyspace_options;
pub(crate) mod merge_operator;
pub mod metrics;
pub(crate) mod options;
pub(crate) mod pace;
pub(crate) mod policy;
pub(crate) mod prefetch;
pub(crate) mod presets;
mod prometheus;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
pub(crate) mod setters;
pub(crate) mod threads;
pub(crate) mod throttle;
pub(crate) mod value_options;
pub(crate) mod write_back;
pub(crate) mod write_options;
