//! The writer's side: writes the measurements of the store while somebody reads them.
//!
//! 1. A thread of the store runs this twice a second. Once a second it looks for leases: in a store
//!    that nobody watches, this costs one failed open.
//! 2. If there is a lease, it writes the file. If that fails, the store does not fail: on a full
//!    disk the reader sees an old file, whose age shows the failure.
//! 3. A snapshot takes O(keyspaces). The next one waits a hundred times as long as the last took,
//!    so that snapshots never use more than a hundredth of a core.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use runstone_storage::{Category, Storage};

use super::{EVERY, METRICS, METRICS_NEW, forget, request, since_1970_ms};
use crate::error::Result;
use crate::jobs::workers::Housekeeping;
use crate::pace::target::Seen;
use crate::store::engine::Engine;
use crate::store::resources::Parts;
use crate::store::scrub;
use crate::sync::{Mutex, rank};

/// How often latencies are read.
const LOOK: Duration = Duration::from_millis(450);
/// Snapshots may use one part in this many of a thread's time.
const PART_OF_TIME: u32 = 100;

/// The state of the reports. The lock is held while a report is written.
#[derive(Debug)]
pub(crate) struct Publishing {
    state: Mutex<rank::Publishing, State>,
    /// When latencies are read again.
    next_look: Mutex<rank::NextLook, Instant>,
}

#[derive(Debug)]
struct State {
    next_at: Instant,
    number: u64,
    /// After a close another process may have the store.
    is_closed: bool,
}

impl Default for Publishing {
    fn default() -> Publishing {
        let state = State { next_at: Instant::now(), number: 0, is_closed: false };
        Publishing { state: Mutex::new(state), next_look: Mutex::new(Instant::now()) }
    }
}

impl Publishing {
    /// Ends the reports, and removes the file, which tells watchers that the store is closed.
    pub(crate) fn close(&self, storage: &dyn Storage) {
        let mut state = self.state.lock();
        state.is_closed = true;
        if state.number > 0 {
            forget(storage, METRICS);
        }
    }
}

/// The housekeeping of a store, in the threads that run its jobs.
#[derive(Debug)]
pub(crate) struct House {
    engine: Weak<Engine>,
    parts: Weak<Parts>,
}

impl House {
    pub(crate) fn of(engine: &Arc<Engine>, parts: &Arc<Parts>) -> House {
        House { engine: Arc::downgrade(engine), parts: Arc::downgrade(parts) }
    }
}

impl Housekeeping for House {
    fn keep(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.follow_target(Instant::now());
            engine.publish_if_asked(Instant::now());
            request::look(&engine, &self.parts);
            scrub::start_if_due(&engine);
        }
    }
}

impl Engine {
    /// Adapts the rate of background I/O to the latency of reads and writes, if there is a target.
    fn follow_target(&self, now: Instant) {
        if self.env.io_rate.target.get().is_none() {
            self.env.metrics.lately.rest();
            return;
        }
        // Another thread may be doing this.
        let Some(mut next_at) = self.publishing.next_look.try_lock() else { return };
        if now < *next_at {
            return;
        }
        *next_at = now + LOOK;
        let (p99, is_busy) = self.env.metrics.take_lately();
        let is_pressing = self.env.throttle.permille() > 0;
        self.env.io_rate.follow(Seen { p99, is_busy, is_pressing }, now);
    }

    /// Writes a report, if one is due and somebody reads the reports.
    fn publish_if_asked(&self, now: Instant) {
        // Another thread may be doing this.
        let Some(mut state) = self.publishing.state.try_lock() else { return };
        if state.is_closed || now < state.next_at {
            return;
        }
        state.next_at = now + EVERY;
        if !self.catalog.tables.leases.are_wanted() {
            return;
        }
        let (took, told) = self.told(state.number + 1);
        state.number += 1;
        state.next_at = now + EVERY.max(took * PART_OF_TIME);
        if let Err(error) = write(&*self.env.storage, told.as_bytes()) {
            forget(&*self.env.storage, METRICS_NEW);
            tracing::debug!(%error, "the metrics of the store cannot be told to others");
        }
    }

    /// Makes the text of the file. Returns the time that this took, and the text.
    fn told(&self, number: u64) -> (Duration, String) {
        let began = Instant::now();
        // These are only numbers and texts, so this cannot fail.
        let metrics = serde_json::to_string(&self.metrics_snapshot()).unwrap_or_default();
        let heat = serde_json::to_string(&self.heat(began)).unwrap_or_default();
        let took = began.elapsed();
        let every_ms = EVERY.max(took * PART_OF_TIME).as_millis();
        let (process, written_ms) = (std::process::id(), since_1970_ms(SystemTime::now()));
        let told = format!(
            "{{\"runstone_metrics\":1,\"process\":{process},\"number\":{number},\
             \"written_ms\":{written_ms},\"every_ms\":{every_ms},\"metrics\":{metrics},\
             \"heat\":{heat}}}\n"
        );
        (took, told)
    }
}

/// Replaces the file with a new text.
fn write(storage: &dyn Storage, text: &[u8]) -> Result<()> {
    forget(storage, METRICS_NEW);
    storage.create(METRICS_NEW, Category::Other)?.write_at(0, text)?;
    Ok(storage.rename(METRICS_NEW, METRICS)?)
}
