//! Options of a store, and their limits. The options of keyspaces and of writes are in files of
//! their own.

use std::sync::Arc;
use std::time::Duration;

use runstone_policy::options::OptionDoc;
use runstone_policy::prefix::PrefixExtractor;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::callbacks::clock::{Clock, SystemClock};
use crate::callbacks::compaction_filter::CompactionFilter;
use crate::callbacks::event::EventListener;
use crate::callbacks::merge_operator::MergeOperator;
use crate::error::{Error, Result};
pub use crate::options::keyspace::{
    CompactionInstall, Compression, KeyspaceOptions, SubCompactions,
};
pub use crate::options::presets::{PRESETS, Preset};
use crate::options::setters::{default_doc, setter, with_setters};
pub use crate::options::write::WriteOptions;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Durability {
    /// A crash of the process: the log record has reached the operating system. Without a log
    /// ([`WalMode::Off`]), the write survives nothing before it is flushed.
    #[default]
    Buffered,
    /// A power loss: the log was synced (once per group of writers).
    Sync,
}

/// How the write-ahead log reaches the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WalMode {
    /// A memory copy into a mapped, preallocated segment where the storage can do that safely.
    #[default]
    Mapped,
    /// One positioned write per commit.
    Write,
    /// No log. A crash, even of the process alone, loses every write that is not flushed. What is
    /// left is the store as of an earlier moment (P2), which is the same moment for all keyspaces.
    /// Flushes write all keyspaces together. Refused with [`Durability::Sync`],
    /// `flush_at_close = false`, and placements whose collections write pointers. For caches, and
    /// for data that can be read again from elsewhere.
    Off,
}

/// Who runs flushes and compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Background {
    /// This many threads.
    Threads(usize),
    /// No thread: the owner calls [`crate::Store::run_one_job`], and a write that would wait runs
    /// jobs itself. For tests and simulation.
    Manual,
}

impl Background {
    fn of_cores() -> Background {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
        Background::Threads(cores.clamp(2, 8))
    }
}

with_setters! {
    /// Options of a store. They are not stored, but given at every open.
    #[derive(Clone)]
    #[non_exhaustive]
    pub struct Options {
        /// Whether an open creates the store if there is none.
        pub create_if_missing: bool = true,
        /// Whether the store is only read: nothing on disk changes. The log is then replayed into
        /// memory.
        pub read_only: bool = false,
        /// Bound on memtables, log segments, block cache, index and filters together, in bytes. 1
        /// MiB or more.
        pub memory_budget_bytes: u64 = 512 << 20 => "512M",
        /// Threads for flushes and compactions. With at least 2, a long compaction does not delay
        /// flushes.
        pub background: Background = Background::of_cores() => "cores, 2 to 8",
        /// Threads that one large compaction may use. The outputs are the same for every number.
        pub compaction_slices: Option<usize> = None => "idle cores",
        /// Size of a log segment, in bytes. A larger batch gets a segment of its own, and does not
        /// hold other writers up. Mapped segments are smaller where five of them would take more
        /// than a quarter of the memory budget.
        pub wal_segment_bytes: u64 = 8 << 20 => "8M",
        /// Bytes of log at which the keyspace with the oldest unflushed write is flushed.
        pub max_wal_bytes: u64 = 1 << 30 => "1G",
        /// How log records reach the operating system: `mapped`, `write`, or `off` for no log.
        pub wal_mode: WalMode = WalMode::Mapped => "mapped",
        /// Whether closing the store writes its memtables to tables. If not, it syncs the log and
        /// leaves it, and the next open replays it. That is less work, and leaves no small table,
        /// for a program that opens the store, writes little, and ends.
        pub flush_at_close: bool = true,
        /// Tables and value files kept open. Those unused for the longest time are closed. The
        /// system's limit is read at open and never changed. The log takes up to half as many more,
        /// and everything else about ten.
        pub max_open_files: Option<usize> = None => "half of ulimit -n",
        /// Whether scans read many separated values at once through io_uring, if the kernel allows
        /// it. Otherwise the reads are announced and done one after another.
        pub io_uring: bool = false,
        /// Durability of writes that choose none: `buffered` or `sync`.
        pub durability: Durability = Durability::Buffered => "buffered",
        /// Highest ingest rate under back-pressure, in bytes per second. More pressure lowers it.
        pub max_delayed_bytes_per_second: u64 = 256 << 20 => "256M",
        /// Time without a write after which leftovers of deletes and overwrites are compacted;
        /// `None` for never. Scans then need not pass them, and the disk need not hold them. What
        /// the background writes for this is bounded by the leftovers that it removes: see
        /// [`runstone_policy::policy::idle`].
        pub idle_after: Option<Duration> = Some(Duration::from_secs(5)) => "5s",
        /// How often the background reads all tables and value files and checks them; `None` for
        /// never. A week is usual, a second the least. Damage is an event and a counter: see
        /// [`crate::Store::scrub`].
        pub scrub_every: Option<Duration> = None => "never",
        /// Bytes per second that the checks of `scrub_every` read.
        pub scrub_bytes_per_second: u64 = 16 << 20 => "16M",
        /// The most bytes of files and slots that are kept for followers in other processes.
        pub follower_keep_bytes: u64 = 1 << 30 => "1G",
        /// The longest time that files and slots are kept for followers, in seconds. A follower
        /// that refreshes later loses its lease, and opens the store again.
        pub follower_keep_seconds: u64 = 600,
        /// The most bytes of the log that are kept only for readers of its history. An archive or a
        /// mirror that was away continues where it was if the log reaches back that far. 0 sets no
        /// bound if `keep_log_seconds` does, and keeps nothing otherwise. A full disk takes them
        /// first.
        pub keep_log_bytes: u64 = 0,
        /// Seconds that they stay, at most, once no open needs them; 0 for no bound. A later open
        /// counts from their last write, by the clock of the machine.
        pub keep_log_seconds: u64 = 0,
        /// Seed of random ids. Set it for deterministic tests.
        pub seed: Option<u64> = None => "of the system",
        /// Receives flushes, compactions, stalls and errors.
        pub listener: Option<Arc<dyn EventListener>> = None => "none",
        /// The clock by which entries expire. Tests bring their own.
        pub clock: Arc<dyn Clock> = Arc::new(SystemClock) => "of the system",
        /// Prefix extractors that keyspaces may name with `prefix = "custom(NAME)"`.
        pub prefix_extractors: Vec<Arc<dyn PrefixExtractor>> = Vec::new() => "none",
        /// Compaction filters that keyspaces may name.
        pub compaction_filters: Vec<Arc<dyn CompactionFilter>> = Vec::new() => "none",
        /// Merge operators that keyspaces may name, besides those that are built in.
        pub merge_operators: Vec<Arc<dyn MergeOperator>> = Vec::new() => "none",
        /// Options of the default keyspace.
        pub keyspace: Option<KeyspaceOptions> = None => "stored, or balanced",
    }
    and store_setters! of options
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("create_if_missing", &self.create_if_missing)
            .field("read_only", &self.read_only)
            .field("memory_budget_bytes", &self.memory_budget_bytes)
            .field("background", &self.background)
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}

/// More than any machine has.
pub(crate) const MAX_BUDGET_BYTES: u64 = 1 << 46;
/// Smallest log segment.
pub(crate) const MIN_SEGMENT_BYTES: u64 = 64 << 10;
/// Together, mapped segments take at most the budget divided by this, unless their minimum size
/// takes more.
pub(crate) const MAPPED_LOG_FRACTION: u64 = 4;
/// Each segment is prepared as a whole, and up to three segments are prepared ahead.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The lowest rate that may be set for background work, in bytes per second. At a lower rate, a
/// gigabyte would take a day.
pub(crate) const LEAST_RATE_BYTES: u64 = 16 << 10;
/// Threads in the background, or of one compaction.
pub(crate) const MAX_THREADS: u64 = 256;
/// The background checks about once a second whether a scrub is due.
const LEAST_SCRUB_INTERVAL: Duration = Duration::from_secs(1);

/// With fewer open tables than this, nearly every read would open a table again.
const MIN_OPEN_FILES: usize = 8;
/// The limit if the process may open any number of files.
const MOST_OPEN_FILES: usize = 1 << 20;
/// The log's share of open files is one for this many tables and value files.
const LOG_FILES_FRACTION: usize = 4;

impl Options {
    /// The most tables and value files that may be open.
    pub(crate) fn open_file_limit(&self) -> usize {
        let half = || {
            let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
            usize::try_from(most).unwrap_or(usize::MAX).clamp(MIN_OPEN_FILES, MOST_OPEN_FILES)
        };
        self.max_open_files.unwrap_or_else(half)
    }

    /// How many finished log segments may stay open because no sync has covered them.
    pub(crate) fn log_file_limit(&self) -> usize {
        self.open_file_limit() / LOG_FILES_FRACTION
    }

    /// The size of a log segment.
    pub(crate) fn log_segment_bytes(&self) -> u64 {
        let share = self.memory_budget_bytes / MAPPED_LOG_FRACTION / MAPPED_SEGMENTS;
        match self.wal_mode {
            WalMode::Mapped => self.wal_segment_bytes.min(share.max(MIN_SEGMENT_BYTES)),
            WalMode::Write | WalMode::Off => self.wal_segment_bytes,
        }
    }

    /// Whether writes go to a log before they go to memtables.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.wal_mode != WalMode::Off
    }

    /// Refuses a keyspace that needs a log, if the store has none.
    pub(crate) fn check_log_for(&self, name: &str, keyspace: &KeyspaceOptions) -> Result<()> {
        if self.has_log() || self.read_only || !keyspace.values.relocates() {
            return Ok(());
        }
        Err(Error::invalid(
            format!(
                "keyspace {name:?} has collections that write pointers, and these need the log \
                 that wal_mode \"off\" leaves out"
            ),
            "choose hash groups with stable pointers or inline values, or another wal_mode",
        ))
    }

    /// Refuses numbers that cannot work; the error says which number and why.
    pub fn check(&self) -> Result<()> {
        let least = |name: &str, value: u64, min: u64| match value < min {
            true => Err(Error::invalid(
                format!("option {name} is {value}, but must be at least {min}"),
                format!("set {name} to {min} or more"),
            )),
            false => Ok(()),
        };
        let most = |name: &str, value: u64, max: u64| match value > max {
            true => Err(Error::invalid(
                format!("option {name} is {value}, but must be at most {max}"),
                format!("set {name} to {max} or less"),
            )),
            false => Ok(()),
        };
        least("memory_budget_bytes", self.memory_budget_bytes, 1 << 20)?;
        most("memory_budget_bytes", self.memory_budget_bytes, MAX_BUDGET_BYTES)?;
        least("wal_segment_bytes", self.wal_segment_bytes, MIN_SEGMENT_BYTES)?;
        most("wal_segment_bytes", self.wal_segment_bytes, MAX_SEGMENT_BYTES)?;
        least("max_wal_bytes", self.max_wal_bytes, self.wal_segment_bytes)?;
        least("max_delayed_bytes_per_second", self.max_delayed_bytes_per_second, 1 << 10)?;
        least("scrub_bytes_per_second", self.scrub_bytes_per_second, LEAST_RATE_BYTES)?;
        if let Some(slices) = self.compaction_slices {
            least("compaction_slices", slices as u64, 1)?;
            most("compaction_slices", slices as u64, MAX_THREADS)?;
        }
        if let Some(files) = self.max_open_files {
            least("max_open_files", files as u64, MIN_OPEN_FILES as u64)?;
        }
        if let Background::Threads(threads) = self.background {
            check_threads("option background", threads)?;
        }
        if let Some(every) = self.scrub_every.filter(|every| *every < LEAST_SCRUB_INTERVAL) {
            return Err(Error::invalid(
                format!(
                    "option scrub_every is {every:?}, but must be at least {LEAST_SCRUB_INTERVAL:?}"
                ),
                format!(
                    "set scrub_every to {LEAST_SCRUB_INTERVAL:?} or more, or to None for never"
                ),
            ));
        }
        if !self.has_log() && (self.durability == Durability::Sync || !self.flush_at_close) {
            let what = match self.durability {
                Durability::Sync => "durability \"sync\" needs the log",
                Durability::Buffered => "flush_at_close = false leaves writes to the log",
            };
            return Err(Error::invalid(
                format!("{what} that wal_mode \"off\" leaves out"),
                "leave one of the two options at its default",
            ));
        }
        let Some(keyspace) = &self.keyspace else { return Ok(()) };
        keyspace.check()
    }
}

/// Refuses a number of background threads that cannot work. `name` is the caller's name for it.
pub(crate) fn check_threads(name: &str, threads: usize) -> Result<()> {
    let bound = match threads as u64 {
        0 => "at least 1".to_string(),
        1..=MAX_THREADS => return Ok(()),
        _ => format!("at most {MAX_THREADS}"),
    };
    Err(Error::invalid(
        format!("{name} is {threads} threads, but must be {bound}"),
        format!("use 1 to {MAX_THREADS} threads"),
    ))
}

/// The number of log segments prepared ahead if writers keep using them up. At a million small
/// writes a second, a segment lasts 60 ms, and the background may need as long to prepare a new
/// one.
pub(crate) const READY_SEGMENTS: usize = 3;
/// Finished segments that wait to be unmapped. A writer that finishes one more unmaps them itself.
pub(crate) const FINISHED_SEGMENTS: usize = 1;
/// The most segments that are mapped at a time: the current one, the spares, and the finished one.
pub(crate) const MAPPED_SEGMENTS: u64 = (READY_SEGMENTS + FINISHED_SEGMENTS + 1) as u64;
/// As `MAPPED_SEGMENTS`, for a store that shares resources, which prepares one segment ahead.
pub(crate) const SHARED_MAPPED_SEGMENTS: u64 = 3;

/// How long a stalled writer waits between checks of the state, if nobody wakes it.
pub(crate) const STALL_POLL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_sense_are_refused_with_their_bound() {
        let beyond = |options: Options| options.check().expect_err("beyond sense").to_string();
        let most = u64::MAX;
        let wide = Options { wal_segment_bytes: most, max_wal_bytes: most, ..Options::default() };
        assert!(beyond(wide).contains("at most 1073741824"));
        let many = Options { compaction_slices: Some(usize::MAX), ..Options::default() };
        assert!(beyond(many).contains("at most 256"));
        let few = Options { max_open_files: Some(7), ..Options::default() };
        assert!(beyond(few).contains("max_open_files is 7, but must be at least 8"));
        let none = Options { compaction_slices: Some(0), ..Options::default() };
        let none = none.check().expect_err("no slice compacts nothing").to_string();
        assert!(none.contains("compaction_slices is 0, but must be at least 1"), "{none}");
        for (threads, bound) in [(0, "at least 1"), (257, "at most 256")] {
            let told = beyond(Options::default().background(Background::Threads(threads)));
            let expected = format!("option background is {threads} threads, but must be {bound}");
            assert!(told.contains(&expected), "{told}");
        }
    }

    /// Without the refusal, scrubs would follow one another for ever.
    #[test]
    fn scrubs_without_a_pause_are_refused() {
        for every in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(999)] {
            let options = Options::default().scrub_every(every);
            let told = options.check().expect_err("no pause").to_string();
            let expected = format!("option scrub_every is {every:?}, but must be at least 1s");
            assert!(told.contains(&expected), "{told}");
        }
        for every in [Some(Duration::from_secs(1)), Some(Duration::MAX), None] {
            let options = Options { scrub_every: every, ..Options::default() };
            options.check().expect("it can work");
        }
    }
}
