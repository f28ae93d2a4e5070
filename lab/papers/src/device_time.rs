//! A simulated device and processor for one client: the time of an operation, a flush or a
//! compaction follows from the bytes and the reads that the engine counts, so that latencies,
//! throughput and stalls are the same on every machine.
//!
//! The client and the background each have their own lane of the device. The background does one
//! compaction at a time, and a flush after it or, as in RocksDB and LevelDB, before the rest of it
//! ([`Flushes`]). A write waits for the background if too much is pending. The engine does a whole
//! job when the job begins, so reads see its result from then on; the job's inputs count until its
//! simulated end.

use std::collections::VecDeque;

use runstone::metrics::CounterValues;
use runstone::{Store, unstable};
use runstone_kv::Result;

/// Processor time of an operation.
const OPERATION_NS: u64 = 5_000;
/// Latency of one read of the device.
const READ_NS: u64 = 80_000;
/// The device moves this many bytes in a microsecond, in either direction: 500 MB/s.
const BYTES_PER_US: u64 = 500;
/// Bytes that a slowed writer may write in a microsecond: 16 MB/s, as in RocksDB.
const SLOWED_BYTES_PER_US: u64 = 16;

/// Writers stop once this many memtables wait for their flush, as in RocksDB.
const MOST_WAITING_MEMTABLES: usize = 2;

/// When writers are held back, and when memtables are flushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Runs in level 0 that slow writers down, and that stop them.
    pub(super) runs: [usize; 2],
    /// Bytes still to be compacted that slow writers down, and that stop them.
    pub(super) debt_bytes: [u64; 2],
    pub(super) flushes: Flushes,
    /// How many times as fast the lane of the background is as that of the client.
    pub(super) background_speed: u64,
}

impl Limits {
    /// How long the background takes to move this many bytes.
    fn background_ns(&self, bytes: u64) -> u64 {
        bytes * 1000 / (BYTES_PER_US * self.background_speed)
    }
}

/// When a full memtable is flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flushes {
    /// After the running compaction.
    #[default]
    Queued,
    /// At once; the running compaction ends later by the time of the flush. RocksDB has a thread
    /// for flushes; LevelDB interrupts its compaction for a flush.
    First,
}

/// The pending work of the tree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// The runs in level 0; for a stack, all its runs.
    pub(super) level_0_runs: usize,
    pub(super) debt_bytes: u64,
}

/// A tree whose jobs run in simulated time: a store, or a model of one.
pub(super) trait Tree {
    /// Flushes the memtable. Returns the bytes written.
    fn flush(&mut self) -> Result<u64>;
    /// Does one job. Returns the bytes that it read and wrote, `None` if no job is due.
    fn run_one_job(&mut self) -> Result<Option<u64>>;
    fn backlog(&self) -> Backlog;
}

/// The time of both lanes.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// When the background will have finished the jobs that it began.
    free_at_ns: u64,
    /// When each waiting memtable will be flushed.
    flushed_at_ns: VecDeque<u64>,
    backlog: Backlog,
    /// Level-0 runs that the running compaction replaces. They count until it ends.
    replaced_runs: usize,
    /// How often writers were held back after a flush or a compaction, because of pending work.
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

    /// Adds the time of a client's operation that moves `bytes` bytes and does this many reads.
    fn operate(&mut self, reads: u64, bytes: u64) {
        self.now_ns += operation_ns(reads, bytes);
    }

    /// Flushes a full memtable, at the time that [`Flushes`] defines. Either way the flush delays
    /// the moment at which the background is free.
    fn flush(&mut self, bytes: u64, backlog: Backlog, limits: &Limits) {
        let took_ns = limits.background_ns(bytes);
        self.free_at_ns = self.free_at_ns.max(self.now_ns) + took_ns;
        let flushed_at_ns = match (limits.flushes, self.flushed_at_ns.back()) {
            (Flushes::Queued, _) => self.free_at_ns,
            (Flushes::First, last) => last.map_or(self.now_ns, |at| self.now_ns.max(*at)) + took_ns,
        };
        self.flushed_at_ns.push_back(flushed_at_ns);
        self.note(backlog, limits);
    }

    /// Begins a compaction in the background, which moves this many bytes and replaces this many
    /// runs of level 0.
    fn compact(&mut self, bytes: u64, replaced_runs: usize, backlog: Backlog, limits: &Limits) {
        self.free_at_ns += limits.background_ns(bytes);
        self.replaced_runs = match limits.flushes {
            Flushes::Queued => 0,
            Flushes::First => replaced_runs,
        };
        self.note(backlog, limits);
    }

    /// Counts a stall if writers are held back from now on, as RocksDB does with each new version.
    fn note(&mut self, backlog: Backlog, limits: &Limits) {
        self.backlog = backlog;
        self.forget_flushed();
        self.stalls += u64::from(self.is_stopped(limits) || self.is_slowed(limits));
    }

    /// Whether a write has to wait until the background is free. If so, this waits.
    pub(super) fn waits(&mut self, limits: &Limits) -> bool {
        self.forget_flushed();
        if !self.is_stopped(limits) || self.is_background_free() {
            return false;
        }
        // A flush may be finished before the compaction after it.
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

    /// Waits until the background is free.
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
            || self.level_0_runs() >= limits.runs[1]
            || self.backlog.debt_bytes >= limits.debt_bytes[1]
    }

    fn is_slowed(&self, limits: &Limits) -> bool {
        self.level_0_runs() >= limits.runs[0] || self.backlog.debt_bytes >= limits.debt_bytes[0]
    }

    fn level_0_runs(&self) -> usize {
        let replaced_runs = if self.is_background_free() { 0 } else { self.replaced_runs };
        self.backlog.level_0_runs + replaced_runs
    }
}

/// The time of a tree and of its client.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) clock: Clock,
    limits: Limits,
    /// Writes are charged together once they have this many bytes: otherwise entries that are
    /// smaller than the paper's would take too much time.
    operation_bytes: u64,
    uncharged_bytes: u64,
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Lanes {
        Lanes { clock: Clock::default(), limits, operation_bytes: 0, uncharged_bytes: 0 }
    }

    /// The same lanes, for a client that writes entries of this many bytes.
    pub(super) fn of_entries(self, operation_bytes: u64) -> Lanes {
        Lanes { operation_bytes, ..self }
    }

    /// To be called before a write of this many bytes: waits and slows down as the limits say.
    pub(super) fn write(&mut self, tree: &mut impl Tree, bytes: u64) -> Result<()> {
        self.uncharged_bytes += bytes;
        if self.uncharged_bytes < self.operation_bytes {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.uncharged_bytes);
        self.catch_up(tree)?;
        while self.clock.waits(&self.limits) {
            self.catch_up(tree)?;
        }
        self.clock.delay(bytes, &self.limits);
        self.clock.operate(0, bytes);
        Ok(())
    }

    /// Flushes the memtable.
    pub(super) fn flush(&mut self, tree: &mut impl Tree) -> Result<()> {
        let written = tree.flush()?;
        self.clock.flush(written, tree.backlog(), &self.limits);
        Ok(())
    }

    /// To be called after a read that did this many reads of the device. Returns the time that the
    /// read took.
    pub(super) fn read(&mut self, reads: u64, bytes: u64) -> u64 {
        self.read_share(reads, bytes, 1.0)
    }

    /// Does the same, but only this share of the time passes for the background.
    pub(super) fn read_share(&mut self, reads: u64, bytes: u64, share: f64) -> u64 {
        let took_ns = operation_ns(reads, bytes);
        self.clock.now_ns += (took_ns as f64 * share) as u64;
        took_ns
    }

    /// Begins the due jobs for which the background is free by now.
    pub(super) fn catch_up(&mut self, tree: &mut impl Tree) -> Result<()> {
        while self.clock.is_background_free() {
            let runs_before = tree.backlog().level_0_runs;
            match tree.run_one_job()? {
                None => break,
                Some(0) => {}
                Some(bytes) => {
                    let backlog = tree.backlog();
                    let replaced_runs = runs_before.saturating_sub(backlog.level_0_runs);
                    self.clock.compact(bytes, replaced_runs, backlog, &self.limits);
                }
            }
        }
        Ok(())
    }
}

fn operation_ns(reads: u64, bytes: u64) -> u64 {
    OPERATION_NS + reads * READ_NS + bytes * 1000 / BYTES_PER_US
}

impl Tree for &Store {
    fn flush(&mut self) -> Result<u64> {
        let before = unstable::counters(self).flush_bytes_written;
        Store::flush(self)?;
        Ok(unstable::counters(self).flush_bytes_written - before)
    }

    fn run_one_job(&mut self) -> Result<Option<u64>> {
        let moved = |counters: CounterValues| {
            counters.compaction_bytes_read + counters.compaction_bytes_written
        };
        let before = moved(unstable::counters(self));
        let is_done = Store::run_one_job(self)?;
        Ok(is_done.then(|| moved(unstable::counters(self)) - before))
    }

    fn backlog(&self) -> Backlog {
        let shape = unstable::shape(self.default_keyspace());
        let debt_bytes = unstable::compaction_debt_bytes(self.default_keyspace());
        Backlog { level_0_runs: shape.level(0).runs().len(), debt_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        runs: [3, 5],
        debt_bytes: [1000, 2000],
        flushes: Flushes::Queued,
        background_speed: 1,
    };

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
        clock.compact(500, 0, Backlog { level_0_runs: 3, debt_bytes: 0 }, &LIMITS);
        assert!(!clock.waits(&LIMITS));
        clock.delay(16, &LIMITS);
        assert_eq!((clock.now_ns(), clock.stalls), (1000, 1));
        clock.compact(500, 0, Backlog { level_0_runs: 0, debt_bytes: 2000 }, &LIMITS);
        assert!(clock.waits(&LIMITS), "until the compaction is done");
        assert_eq!((clock.now_ns(), clock.stalls), (2000, 2));
        clock.compact(500, 0, Backlog::default(), &LIMITS);
        clock.operate(2, 500);
        assert_eq!(clock.now_ns(), 2000 + 5_000 + 160_000 + 1000);
    }
    #[test]
    fn flushes_go_first_and_replaced_runs_count_until_the_compaction_ends() {
        let (mut clock, limits) = (Clock::default(), Limits { flushes: Flushes::First, ..LIMITS });
        clock.compact(5000, 4, Backlog { level_0_runs: 1, debt_bytes: 0 }, &limits);
        clock.flush(500, Backlog { level_0_runs: 1, debt_bytes: 0 }, &limits);
        clock.flush(500, Backlog { level_0_runs: 1, debt_bytes: 0 }, &limits);
        assert_eq!((clock.flushed_at_ns[0], clock.flushed_at_ns[1]), (1000, 2000));
        assert_eq!(clock.free_at_ns, 12_000, "the compaction is interrupted");
        assert!(clock.waits(&limits) && clock.now_ns() == 1000);
        assert!(clock.waits(&limits) && clock.now_ns() == 12_000, "for five runs");
        assert!(!clock.waits(&limits) && !clock.is_slowed(&limits));
    }
}
