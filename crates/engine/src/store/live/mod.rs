//! What an open store reports to other processes besides its other files: its counters, sizes and
//! back-pressure. Also the changes that these processes request.
//!
//! While a reader holds a lease, the writer writes the file `metrics` once a second: it makes
//! `metrics.new` and renames it, so a reader always sees a whole file. Nothing is synced. The file
//! is JSON:
//!
//! ```text
//! {"runstone_metrics": 1, "process": .., "number": .., "written_ms": .., "every_ms": ..,
//!  "metrics": {..}, "heat": [..]}
//! ```
//!
//! - [`publish`]: the writer's side. [`watch`]: the reader's side.
//! - [`settings`]: what can be changed in an open store. [`request`]: how others request such
//!   changes.
//! - A close removes the file, and so does the next open after a crash. Until then its age shows
//!   that nobody writes it any more.
//! - A store whose jobs are run by hand has no housekeeping, and so reports nothing.

pub(crate) mod publish;
pub(crate) mod request;
pub(crate) mod settings;
pub(crate) mod watch;

use std::time::{Duration, SystemTime};

use runstone_storage::{Category, Storage};

use crate::error::Result;
use crate::metrics::{KeyspaceHeat, MetricsSnapshot};

/// The file with the report.
pub(crate) const METRICS: &str = "metrics";
/// The name of this file before it is whole.
const METRICS_NEW: &str = "metrics.new";
/// The file that records when the store was last scrubbed.
pub(crate) const SCRUBBED: &str = "scrubbed";
pub(crate) const SCRUBBED_NEW: &str = "scrubbed.new";
/// How often the writer reports.
const EVERY: Duration = Duration::from_secs(1);
/// A longer file was not written by a store. A keyspace needs about 400 bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Whether an open store leaves a file of this name for other processes.
pub(crate) fn is_live(name: &str) -> bool {
    let of_requests = [request::LOCK, request::REQUEST, request::ANSWER];
    let unfinished = [METRICS_NEW, request::REQUEST_NEW, request::ANSWER_NEW];
    let is_scrubbed = [SCRUBBED, SCRUBBED_NEW].contains(&name);
    name == METRICS || is_scrubbed || of_requests.contains(&name) || unfinished.contains(&name)
}

/// The report of the process that has a store open: see [`crate::Follower::live`] and
/// [`crate::Watch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveState {
    /// The process that writes to the store.
    pub process: u32,
    /// Counts the reports of this process since it opened the store.
    pub number: u64,
    /// When it was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// How long ago it was written. Zero if the clock was turned back since.
    pub age: Duration,
    /// How often the writer reports: once a second, or less often if it has very many keyspaces.
    pub every: Duration,
    /// The result of [`crate::Store::metrics`] in that process.
    pub metrics: MetricsSnapshot,
    /// The result of [`crate::Store::heat`] there; `None` if the release of the writer does not
    /// report it.
    pub heat: Option<Vec<KeyspaceHeat>>,
}

impl LiveState {
    /// Whether the report is from the last seconds. If not, the writer has ended, hangs, or does
    /// not report.
    pub fn is_current(&self) -> bool {
        self.age <= self.every * 2 + Duration::from_secs(3)
    }

    /// Parses a report that was read at `now`; `None` if the text is incomplete.
    fn parse(bytes: &[u8], now: SystemTime) -> Option<LiveState> {
        let mut told: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        if told["runstone_metrics"] != 1 {
            return None;
        }
        let number = |name: &str| told[name].as_u64();
        let written_ms = number("written_ms")?;
        Some(LiveState {
            process: u32::try_from(number("process")?).ok()?,
            number: number("number")?,
            written_ms,
            age: Duration::from_millis(since_1970_ms(now).saturating_sub(written_ms)),
            every: Duration::from_millis(number("every_ms")?.min(u64::from(u32::MAX))),
            metrics: serde_json::from_value(told.get_mut("metrics")?.take()).ok()?,
            heat: told.get_mut("heat").and_then(|heat| serde_json::from_value(heat.take()).ok()),
        })
    }
}

/// The last report of the writer; `None` if there is none that can be read.
fn read(storage: &dyn Storage) -> Result<Option<LiveState>> {
    let file = match storage.open(METRICS, Category::Other) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let len = file.len()?;
    if len > MOST_BYTES {
        return Ok(None);
    }
    let bytes = file.read_vec(0, len as usize)?;
    Ok(LiveState::parse(&bytes, SystemTime::now()))
}

/// Removes the reports of earlier writers, and requests to them. Called at open for each file.
pub(crate) fn clear(storage: &dyn Storage, name: &str) {
    if [METRICS, METRICS_NEW, SCRUBBED_NEW].contains(&name) {
        forget(storage, name);
    }
    request::clear(storage, name);
}

pub(crate) fn forget(storage: &dyn Storage, name: &str) {
    match storage.remove(name) {
        Err(error) if !error.is_not_found() => {
            tracing::debug!(%error, "what was told to other processes stays");
        }
        _ => {}
    }
}

pub(crate) fn since_1970_ms(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_tells_nothing() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let whole = br#"{"runstone_metrics":1,"process":7,"number":3,"written_ms":5000,
            "every_ms":1000,"metrics":{"counters":{"gets":9,"of_a_later_release":1}}}"#;
        let told = LiveState::parse(whole, at(6500)).expect("whole");
        assert_eq!((told.process, told.number, told.metrics.counters.gets), (7, 3, 9));
        assert_eq!((told.age, told.is_current()), (Duration::from_millis(1500), true));
        assert_eq!(told.heat, None, "which is not the same as that nothing is read");
        let heat = br#"{"runstone_metrics":1,"process":7,"number":3,"written_ms":5000,"every_ms":1,
            "metrics":{},"heat":[{"keyspace":"k","samples":2,"keys":[{"key":"61","samples":2}]}]}"#;
        let heat = LiveState::parse(heat, at(0)).and_then(|told| told.heat).expect("told");
        assert_eq!((heat[0].samples, &heat[0].keys[0].key[..]), (2, &b"a"[..]));
        let late = LiveState::parse(whole, at(11_000)).expect("whole");
        assert!(!late.is_current());
        let turned_back = LiveState::parse(whole, at(4000)).expect("whole");
        assert_eq!(turned_back.age, Duration::ZERO);
        for end in 0..whole.len() {
            assert!(LiveState::parse(&whole[..end], at(6500)).is_none(), "cut at {end}");
        }
        for other in [&b"[]"[..], b"{}", b"7", b"\0\0\0", br#"{"runstone_metrics":2}"#] {
            assert!(LiveState::parse(other, at(0)).is_none());
        }
    }
}
