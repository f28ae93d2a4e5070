//! The events that a store reports to a listener: flushes, compactions, stalls, errors. Background
//! threads (for stalls, the writers) call it in the middle of a job and with locks held. So a
//! listener should return quickly, and may only read from its own store: all other calls fail with
//! [`Error::InsideCallback`].

use std::fmt::Debug;
use std::time::Duration;

use runstone_policy::units::Thousandths;

use crate::error::Error;

/// An event in a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A memtable became a level-0 run.
    Flushed {
        /// Keyspace name.
        keyspace: String,
        /// Table id.
        table: u64,
        /// File size.
        bytes: u64,
        /// Entries written.
        entries: u64,
        /// How long it took.
        took: Duration,
    },
    /// A plan of the policy was executed and installed.
    Compacted {
        /// Keyspace name.
        keyspace: String,
        /// The policy's reason.
        why: String,
        /// Tables rewritten.
        input_tables: usize,
        /// Tables written.
        output_tables: usize,
        /// Tables that changed level without being rewritten.
        moved_tables: usize,
        /// The number of parts that could run in parallel; moved tables belong to no part.
        parts: usize,
        /// Bytes read.
        read_bytes: u64,
        /// Bytes written.
        written_bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A bulk load or an ingest became part of a keyspace.
    Loaded {
        /// Keyspace name.
        keyspace: String,
        /// Tables written.
        tables: u64,
        /// Entries in them.
        entries: u64,
        /// Bytes written.
        bytes: u64,
        /// How long it took, including the waits for its source.
        took: Duration,
    },
    /// The cause of the pressure on writers changed, or it ended.
    Pressure {
        /// Keyspace name, or empty for the whole store.
        keyspace: String,
        /// How far writers are from the first slowdown (0) to the stop (1).
        level: Thousandths,
        /// The limit that causes the pressure.
        cause: &'static str,
    },
    /// Garbage of a value file was collected.
    ValuesCollected {
        /// Keyspace name.
        keyspace: String,
        /// The group that was collected.
        group: u32,
        /// Bytes of the group's records before the collection.
        bytes_before: u64,
        /// Bytes of the records that are still needed.
        bytes_after: u64,
        /// Bytes copied.
        bytes_written: u64,
    },
    /// A keyspace was opened without the compaction filter that it names: all entries stay.
    CompactionFilterMissing {
        /// Keyspace name.
        keyspace: String,
        /// The name of the filter.
        filter: String,
    },
    /// In a flush or a part of a compaction, a merge operator could not compute a value from a
    /// key's operands: it failed, or is not registered. The operands stay, and readers of the key
    /// get an error.
    MergeFailed {
        /// Keyspace name.
        keyspace: String,
        /// The number of such cases: one for a key, and one more for each snapshot between its
        /// operands.
        times: u64,
        /// The first error.
        error: Error,
    },
    /// A flush or a part of a compaction read more operands of a key than it may hold in memory,
    /// and left them unfolded. Reads have to apply all of them. A put or a get of the key ends
    /// this, and so does a compaction with a larger memory budget.
    OperandsPassed {
        /// Keyspace name.
        keyspace: String,
        /// The number of such cases: one for a key, and one more for each snapshot between its
        /// operands.
        times: u64,
        /// The key that this happened to first.
        key: Vec<u8>,
        /// Operands that were left unfolded.
        operands: u64,
        /// Their bytes.
        bytes: u64,
        /// The memory that the operands of one key may take: an eighth of the memory budget, and at
        /// most 64 MiB.
        limit_bytes: u64,
    },
    /// The open did not use the end of the log, because something before it was missing. That end
    /// had not been synced, so a power loss explains this. Without a power loss, the disk flipped a
    /// bit.
    LogEndLost {
        /// Valid records after the gap.
        records: u64,
        /// Files of the store that keep these records, newest first, for `dump`. Empty if the store
        /// was opened for reading, or if the records are too large.
        kept: Vec<String>,
    },
    /// The control group of the process allows less memory than the budget: the system may kill the
    /// process before the budget is used. Reported at the open.
    BudgetAboveLimit {
        /// [`crate::Options::memory_budget_bytes`].
        budget_bytes: u64,
        /// The memory that the group, or a group above it, allows.
        limit_bytes: u64,
    },
    /// The disk is full, so the part of the log that was kept only for readers of its history was
    /// removed ([`crate::Options::keep_log_bytes`]). A reader, mirror or archive that was not
    /// running may have to begin anew.
    KeptLogGivenUp {
        /// Segments that were removed.
        segments: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A scrub found damage in a file. The store continues, and a read of the damaged part returns
    /// an error.
    DamageFound {
        /// The name of the file inside the store.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A background job failed.
    BackgroundError {
        /// The error of the job.
        error: Error,
    },
    /// The disk was full and has space again; writes are accepted again.
    Recovered,
}

/// Receives the events of a store.
pub trait EventListener: Send + Sync + Debug {
    /// Called once per event. If it panics in a job, the store stops.
    fn on_event(&self, event: &Event);
}
