//! The environment that all rooms of an open store share: options, storage, cache, counters, file
//! numbers, health. It does not know about trees, logs or jobs.

pub(crate) mod health;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use runstone_storage::Storage;
use runstone_storage::fork::Process;

use crate::callbacks::callback::{Inside, check_outside};
use crate::callbacks::clock::Watch;
use crate::callbacks::event::Event;
use crate::env::health::Health;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::options::store::{Background, Durability, Options, WriteOptions};
use crate::pace::io_rate::IoRate;
use crate::pace::pacing::Pace;
use crate::pace::throttle::Throttle;
use crate::sync::threads::Bell;

/// The environment of an open store.
#[derive(Debug)]
pub(crate) struct Env {
    /// The number of this opening among all openings in the process. A batch is bound to one
    /// opening.
    pub(crate) opening: u64,
    process: Process,
    /// Whether other stores draw on the same budget.
    pub(crate) is_sharing: bool,
    budget_bytes: Arc<AtomicU64>,
    pub(crate) options: Options,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) metrics: Metrics,
    pub(crate) next_file: Arc<AtomicU64>,
    /// The number of the manifest that `CURRENT` durably names.
    pub(crate) manifest: Arc<AtomicU64>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) health: Health,
    pub(crate) throttle: Throttle,
    pub(crate) pace: Pace,
    pub(crate) watch: Watch,
    pub(crate) io_rate: Arc<IoRate>,
    /// Whether any keyspace writes, or ever wrote, values to their file before it logs the writes.
    /// Each commit checks this one flag instead of every keyspace.
    pub(crate) has_early: AtomicBool,
}

/// What an environment may share with the environments of other stores.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) is_sharing: bool,
    /// The memory budget, which can change.
    pub(crate) budget_bytes: Arc<AtomicU64>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) io_rate: Arc<IoRate>,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            is_sharing: false,
            budget_bytes: Arc::default(),
            bell: Arc::default(),
            io_rate: Arc::new(IoRate::new(None)),
        }
    }
}

impl Env {
    pub(crate) fn new(
        options: Options,
        storage: Arc<dyn Storage>,
        next_file: Arc<AtomicU64>,
        common: &Common,
    ) -> Env {
        static OPENINGS: AtomicU64 = AtomicU64::new(0);
        Env {
            opening: OPENINGS.fetch_add(1, Relaxed),
            process: Process::current(),
            is_sharing: common.is_sharing,
            budget_bytes: Arc::clone(&common.budget_bytes),
            throttle: Throttle::new(options.max_delayed_bytes_per_second),
            pace: Pace::default(),
            watch: Watch::new(Arc::clone(&options.clock)),
            options,
            storage,
            metrics: Metrics::default(),
            next_file,
            manifest: Arc::default(),
            bell: Arc::clone(&common.bell),
            io_rate: Arc::clone(&common.io_rate),
            has_early: AtomicBool::new(false),
            health: Health::default(),
        }
    }

    /// Refuses a call from a fork of the process that opened the store, or from inside a callback
    /// that it could wait for.
    #[inline]
    pub(crate) fn check_caller(&self) -> Result<()> {
        match self.process.is_current() {
            true => check_outside(self.opening),
            false => Err(Error::OtherProcess),
        }
    }

    /// Refuses a call from a fork of the process that opened the store.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    /// Reports an event to the listener.
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.options.listener {
            let _inside = Inside::of(self.opening);
            listener.on_event(&event());
        }
    }

    pub(crate) fn durability(&self, options: WriteOptions) -> Durability {
        options.durability.unwrap_or(self.options.durability)
    }

    /// The present memory budget. The options contain the budget with which the store was opened.
    pub(crate) fn memory_budget_bytes(&self) -> u64 {
        self.budget_bytes.load(Relaxed)
    }

    /// Whether callers run the jobs one by one, instead of threads.
    pub(crate) fn is_manual(&self) -> bool {
        self.options.background == Background::Manual
    }

    /// Whether flushes run without any call of the user, and are not known to fail.
    pub(crate) fn flushes_by_itself(&self) -> bool {
        !self.is_manual() && !self.is_stopped() && !self.is_out_of_space()
    }

    /// The number of a new file. No number is given out twice.
    pub(crate) fn new_file(&self) -> u64 {
        self.next_file.fetch_add(1, Relaxed)
    }
}
