//! A simulated device and processor for one client: what an operation, a flush or a compaction
//! takes follows from the bytes and the reads that the engine counts, so that latencies, throughput
//! and stalls are the same on every machine.
//!
//! The client and the background each have a lane of the device of their own. The background does
//! one flush or compaction after another; a write waits for it if too much is pending.

use std::collections::VecDeque;

/// Processor time of an operation.
const OPERATION_NS: u64 = 5_000;
/// Latency of one read of the device.
const READ_NS: u64 = 80_000;
/// The device moves this many bytes in a microsecond, in either direction: 500 MB/s.
const BYTES_PER_US: u64 = 500;
/// Bytes that a slowed writer may write in a microsecond: 16 MB/s, as in RocksDB.
const SLOWED_BYTES_PER_US: u64 = 16;

/// Memtables that wait for their flush until writers stop, as in RocksDB.
const MOST_WAITING_MEMTABLES: usize = 2;

/// The limits from which on writers are held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Runs in level 0 that slow writers down, and that stop them.
    pub(super) runs: [usize; 2],
    /// Bytes still to be compacted that slow writers down, and that stop them.
    pub(super) debt_bytes: [u64; 2],
}

/// The pending work of the tree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    pub(super) level_0_runs: usize,
    pub(super) debt_bytes: u64,
}

/// The time of both lanes.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// When the background has done what it began.
    free_at_ns: u64,
    /// When each memtable that waits is flushed.
    flushed_at_ns: VecDeque<u64>,
    backlog: Backlog,
    /// How often writers were held back by what a flush or a compaction left undone.
    pub(super) stalls: u64,
    /// How long writers waited.
    pub(super) stalled_ns: u64,
}

impl Clock {
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Whether the background may begin another job.
    pub(super) fn is_background_free(&self) -> bool {
        self.free_at_ns <= self.now_ns
    }

    /// The client's operation moves `bytes` and does this many reads.
    pub(super) fn operate(&mut self, reads: u64, bytes: u64) {
        self.now_ns += OPERATION_NS + reads * READ_NS + bytes * 1000 / BYTES_PER_US;
    }

    /// A memtable is full; its flush follows the current work of the background.
    pub(super) fn flush(&mut self, bytes: u64, backlog: Backlog, limits: &Limits) {
        self.free_at_ns = self.free_at_ns.max(self.now_ns) + bytes * 1000 / BYTES_PER_US;
        self.flushed_at_ns.push_back(self.free_at_ns);
        self.note(backlog, limits);
    }

    /// The background begins a compaction that moves this many bytes.
    pub(super) fn compact(&mut self, bytes: u64, backlog: Backlog, limits: &Limits) {
        self.free_at_ns += bytes * 1000 / BYTES_PER_US;
        self.note(backlog, limits);
    }

    /// Counts a stall if writers are held back from now on, as RocksDB does with each new version.
    fn note(&mut self, backlog: Backlog, limits: &Limits) {
        self.backlog = backlog;
        self.forget_flushed();
        self.stalls += u64::from(self.is_stopped(limits) || self.is_slowed(limits));
    }

    /// Whether a write has to wait until the background is free, and waits for it if so.
    pub(super) fn waits(&mut self, limits: &Limits) -> bool {
        self.forget_flushed();
        if !self.is_stopped(limits) || self.is_background_free() {
            return false;
        }
        // A flush may be done before the compaction that follows it.
        let until_ns = match self.flushed_at_ns.front() {
            Some(flushed_at_ns) if self.flushed_at_ns.len() >= MOST_WAITING_MEMTABLES => {
                *flushed_at_ns
            }
            _ => self.free_at_ns,
        };
        self.stalled_ns += until_ns - self.now_ns;
        self.now_ns = until_ns;
        true
    }

    /// Delays a write of this many bytes if writers are slowed down.
    pub(super) fn delay(&mut self, bytes: u64, limits: &Limits) {
        if self.is_slowed(limits) {
            let delay_ns = bytes * 1000 / SLOWED_BYTES_PER_US;
            self.stalled_ns += delay_ns;
            self.now_ns += delay_ns;
        }
    }

    /// The client waits until the background is free.
    pub(super) fn rest(&mut self) {
        self.now_ns = self.now_ns.max(self.free_at_ns);
        self.forget_flushed();
    }

    fn forget_flushed(&mut self) {
        while self.flushed_at_ns.front().is_some_and(|at_ns| *at_ns <= self.now_ns) {
            self.flushed_at_ns.pop_front();
        }
    }

    fn is_stopped(&self, limits: &Limits) -> bool {
        self.flushed_at_ns.len() >= MOST_WAITING_MEMTABLES
            || self.backlog.level_0_runs >= limits.runs[1]
            || self.backlog.debt_bytes >= limits.debt_bytes[1]
    }

    fn is_slowed(&self, limits: &Limits) -> bool {
        self.backlog.level_0_runs >= limits.runs[0]
            || self.backlog.debt_bytes >= limits.debt_bytes[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { runs: [3, 5], debt_bytes: [1000, 2000] };

    #[test]
    fn a_writer_waits_for_the_first_of_two_flushes() {
        let mut clock = Clock::default();
        clock.flush(500, Backlog::default(), &LIMITS);
        assert!(!clock.waits(&LIMITS) && clock.stalls == 0);
        clock.flush(500, Backlog::default(), &LIMITS);
        assert!(clock.waits(&LIMITS));
        assert_eq!((clock.now_ns(), clock.stalls, clock.stalled_ns), (1000, 1, 1000));
        assert!(!clock.waits(&LIMITS) && !clock.is_background_free());
    }

    #[test]
    fn a_backlog_slows_and_then_stops() {
        let mut clock = Clock::default();
        clock.compact(500, Backlog { level_0_runs: 3, debt_bytes: 0 }, &LIMITS);
        assert!(!clock.waits(&LIMITS));
        clock.delay(16, &LIMITS);
        assert_eq!((clock.now_ns(), clock.stalls), (1000, 1));
        clock.compact(500, Backlog { level_0_runs: 0, debt_bytes: 2000 }, &LIMITS);
        assert!(clock.waits(&LIMITS), "until the compaction is done");
        assert_eq!((clock.now_ns(), clock.stalls), (2000, 2));
        clock.compact(500, Backlog::default(), &LIMITS);
        clock.operate(2, 500);
        assert_eq!(clock.now_ns(), 2000 + 5_000 + 160_000 + 1000);
    }
}
