//! The memory of memtables, and its limits.

use crate::env::Env;
use crate::options::store::{MAPPED_LOG_FRACTION, MAPPED_SEGMENTS, WalMode};
use crate::pace::throttle::fraction;

/// The memory of all memtables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buffers {
    /// Whether memtables use so much memory that the exact amount was measured.
    pub(super) is_full: bool,
    /// The memory of stores whose flushes run by themselves.
    pub(super) flushable: Part,
    /// The memory of the other stores. A flush that waits there may wait for ever.
    pub(super) stuck: Part,
    /// How much memory memtables had taken in total when this was measured.
    pub(super) measured_at_bytes: u64,
}

/// The memory of some memtables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) used_bytes: u64,
    /// The memory that waiting and running flushes will release.
    pub(super) waiting_bytes: u64,
}

impl Buffers {
    /// The memory that counts against the limits of a store. A store that flushes does not wait for
    /// one that does not: a quarter of the lower limit is its own, however much the other one uses.
    /// For a store that does not flush by itself, all memory counts.
    pub(super) fn of(&self, env: &Env) -> Part {
        let (soft, _) = buffer_limits(env);
        let Part { used_bytes, waiting_bytes } = self.flushable;
        match env.flushes_by_itself() {
            true => {
                let stuck_bytes = self.stuck.used_bytes.min(soft - soft / 4);
                Part { used_bytes: used_bytes + stuck_bytes, waiting_bytes }
            }
            false => Part {
                used_bytes: used_bytes + self.stuck.used_bytes,
                waiting_bytes: waiting_bytes + self.stuck.waiting_bytes,
            },
        }
    }

    /// The pressure on writers. It is zero while no flush would release anything.
    pub(super) fn permille(&self, env: &Env) -> u32 {
        let (soft, hard) = buffer_limits(env);
        let Part { used_bytes, waiting_bytes } = self.of(env);
        if waiting_bytes == 0 { 0 } else { fraction(used_bytes, soft, hard) }
    }
}

/// The two limits on the memory of memtables: half and three quarters of the budget, less the
/// mapped segments of the log. At the first limit, memtables are flushed early and writers slow
/// down. At the second, writers stop.
pub(crate) fn buffer_limits(env: &Env) -> (u64, u64) {
    let (options, budget) = (&env.options, env.memory_budget_bytes());
    let log = match options.wal_mode {
        // Other stores have logs too.
        _ if env.is_sharing => budget / MAPPED_LOG_FRACTION,
        WalMode::Mapped => options.log_segment_bytes() * MAPPED_SEGMENTS,
        WalMode::Write | WalMode::Off => 0,
    };
    // The log was laid out at open. The budget may be smaller by now, but not below twice the
    // mapped log.
    let rest = budget.saturating_sub(log).max(budget / 4);
    (rest / 2, rest / 4 * 3)
}
