//! What the store tells a listener: flushes, compactions, stalls, errors. Called from background
//! threads (stalls: from writers), in the middle of a job and with locks held. So a listener should
//! return quickly, and of its own store it may read only: all else gets [`Error::InsideEvent`].

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use crate::base::error::{Error, Result};

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
    Compacted {
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

thread_local! {
    /// Which opening of a store has its listener running in this thread.
    static INSIDE: Cell<u64> = const { Cell::new(NONE) };
}

const NONE: u64 = u64::MAX;
/// The listener of one store wrote to another, and that has told its own.
const SEVERAL: u64 = u64::MAX - 1;

/// While this lives, a listener runs in the thread.
pub(crate) struct Inside {
    before: u64,
}

impl Inside {
    pub(crate) fn of(opening: u64) -> Inside {
        let before = INSIDE.get();
        INSIDE.set(if before == NONE || before == opening { opening } else { SEVERAL });
        Inside { before }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Refuses what a listener calls that may wait for the listener.
#[inline]
pub(crate) fn check_outside(opening: u64) -> Result<()> {
    let inside = INSIDE.get();
    if inside == opening || inside == SEVERAL { Err(Error::InsideEvent) } else { Ok(()) }
}

/// Hears events.
pub trait EventListener: Send + Sync + Debug {
    /// Called once per event. One that panics stops the store if a job tells it.
    fn on_event(&self, event: &Event);
}
