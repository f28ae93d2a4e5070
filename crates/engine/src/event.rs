//! What the store tells a listener: flushes, merges, stalls, errors. Called from background threads
//! (stalls: from writers); a listener must not call back into the store and should return quickly.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::Error;

/// Something that happened.
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
    /// A plan was executed and installed.
    Merged {
        /// Keyspace name.
        keyspace: String,
        /// The policy's reason.
        why: String,
        /// Tables rewritten.
        input_tables: usize,
        /// Tables written.
        output_tables: usize,
        /// Tables that changed level untouched.
        moved_tables: usize,
        /// Bytes read.
        read_bytes: u64,
        /// Bytes written.
        written_bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// Writers are slowed down or held up, or no longer.
    Pressure {
        /// Keyspace name, or empty for the whole store.
        keyspace: String,
        /// How far from the first slowdown (0) to the stop (1000).
        permille: u32,
        /// Which limit.
        cause: &'static str,
    },
    /// Garbage of a value file was collected.
    ValuesCollected {
        /// Keyspace name.
        keyspace: String,
        /// Which group.
        group: u32,
        /// Bytes of its records before.
        bytes_before: u64,
        /// Bytes that somebody still needs.
        bytes_after: u64,
        /// Bytes copied.
        bytes_written: u64,
    },
    /// A background job failed.
    BackgroundError {
        /// Why.
        error: Error,
    },
    /// Space is back after a full disk; writes are accepted again.
    Recovered,
}

/// Hears events.
pub trait EventListener: Send + Sync + Debug {
    /// Called once per event.
    fn on_event(&self, event: &Event);
}
