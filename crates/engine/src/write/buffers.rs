//! The memory of memtables, and its limits.

use crate::base::env::Env;
use crate::base::options::{MAPPED_LOG_FRACTION, MAPPED_SEGMENTS, WalMode};
use crate::base::throttle::fraction;

/// The memory of all memtables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buffers {
    /// Whether it takes so much that it was measured.
    pub(super) is_full: bool,
    pub(super) used_bytes: u64,
    /// What the flushes that wait or run will release.
    pub(super) waiting_bytes: u64,
    /// What memtables had ever taken when this was measured.
    pub(super) measured_at_bytes: u64,
}

impl Buffers {
    /// The pressure on writers; zero while no flush would release anything.
    pub(super) fn permille(&self, env: &Env) -> u32 {
        let (soft, hard) = buffer_limits(env);
        if self.waiting_bytes == 0 { 0 } else { fraction(self.used_bytes, soft, hard) }
    }
}

/// The two limits on memtable memory: half and three quarters of the budget, less the mapped
/// segments of the log. At the first, memtables are flushed early and writers slow down; at the
/// second, writers stop.
pub(crate) fn buffer_limits(env: &Env) -> (u64, u64) {
    let (options, budget) = (&env.options, env.options.memory_budget_bytes);
    let log = match options.wal_mode {
        // Other stores have logs too.
        _ if env.is_sharing => budget / MAPPED_LOG_FRACTION,
        WalMode::Mapped => options.log_segment_bytes() * MAPPED_SEGMENTS,
        WalMode::Write => 0,
    };
    let rest = budget - log;
    (rest / 2, rest / 4 * 3)
}
