//! The records that a crash left after a gap in the log. They are not used: they were not synced,
//! and the records that should come before them are lost (P2). In an unsynced log a flipped bit
//! looks like an ordinary power loss, so it is not an error. But a user who lost 20,000 records
//! because of one bit wants to know about it, and to have the records.
//!
//! So an open for writing renames the segments to `lost-NNNNNN.wal` and keeps them, reports them to
//! the listener, and counts the records. `dump` reads such a file. Together these files may have at
//! most [`MOST_BYTES`]; the oldest are removed first. A checkpoint leaves them out. Only `destroy`
//! and newer lost segments remove them.

use std::sync::Arc;

use runstone_storage::Storage;

use crate::callbacks::event::Event;
use crate::env::Env;
use crate::metrics::Counter;
use crate::wal::segments::{lost_name, lost_number, segment_name};

/// The largest size of all kept files together: eight segments of the default size.
const MOST_BYTES: u64 = 64 << 20;

/// The records that a replay did not use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LostLog {
    /// Valid records after the gap.
    pub(super) records: u64,
    /// The segments that contain them, ascending.
    pub(super) segments: Vec<u64>,
}

/// Keeps a segment that the store does not need any more.
pub(super) fn keep(storage: &dyn Storage, number: u64) -> runstone_storage::Result<()> {
    storage.rename(&segment_name(number), &lost_name(number))
}

/// Removes the oldest kept segments until the others are within the limit, and reports what this
/// open lost. If a file cannot be removed, the store still opens.
pub(super) fn tell(env: &Arc<Env>, lost: &LostLog) {
    if lost.records == 0 {
        return;
    }
    let kept = match env.options.read_only {
        true => Ok(Vec::new()),
        false => shorten(&*env.storage),
    };
    let mut kept = kept.unwrap_or_else(|error| {
        tracing::warn!(%error, "the kept segments of the log could not be listed or removed");
        Vec::new()
    });
    kept.retain(|name| lost_number(name).is_some_and(|number| lost.segments.contains(&number)));
    env.metrics.add(Counter::log_records_lost, lost.records);
    let records = lost.records;
    tracing::warn!(records, ?kept, "records of the log after a gap are not used");
    env.emit(|| Event::LogEndLost { records, kept });
}

/// Returns the names of the kept files, newest first.
fn shorten(storage: &dyn Storage) -> runstone_storage::Result<Vec<String>> {
    let mut files = storage.list()?;
    files.retain(|file| lost_number(&file.name).is_some());
    files.sort_by_key(|file| std::cmp::Reverse(lost_number(&file.name)));
    let (mut bytes, mut kept) = (0, Vec::new());
    for file in files {
        bytes += file.len_bytes;
        match bytes <= MOST_BYTES {
            true => kept.push(file.name),
            false => storage.remove(&file.name)?,
        }
    }
    Ok(kept)
}
