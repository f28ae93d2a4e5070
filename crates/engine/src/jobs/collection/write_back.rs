//! Garbage collection of a hash group that writes pointers back, as HashKV does (§3.3). The group
//! alone decides whether a record is live, but the tree gets the record's new place. This mode
//! exists for comparison with stable pointers.
//!
//! 1. Remove the segments that an earlier collection emptied. While a snapshot holds them, nothing
//!    is collected.
//! 2. Close the group, and note from now on which keys are written to it (`FileState::dirty`).
//! 3. Scan it. The newest record of each key is live, unless a marker or a compaction says that the
//!    key has a newer version. Deletions and inline values leave such markers; without them their
//!    keys would come back (`Appender::mark`). A record that a range delete hides is not live. The
//!    tree knows that as long as it has the range delete or the pointer.
//! 4. Relocate the live records (`relocate`). A pointer is not written if a user wrote its key
//!    meanwhile: then the key is in a memtable or among the noted keys. Flushes need not wait,
//!    because a flush notes its keys before its memtable leaves the view, and this step loads the
//!    view first.
//!
//! The newest record of a group is the newest flushed version of its key for two reasons. Every
//! version that a flush writes has a record or a marker in its group, with its sequence number. And
//! a collection drops only whole groups. Sequence numbers decide, not positions: a copy of an older
//! version may be after a newer one.
//!
//! With a cold stream (§3.4), a record without another version of its key moves there. Its pointer
//! leads to the stream, and the group gets a tag: the version's key, number and place. So the
//! reasons above hold as before, with tags as records: a version that has a record or a tag is live
//! until a newer version of its key is in the group. A tag that is live is appended again, and the
//! tree is not written. The stream itself is collected as under stable pointers: records keep their
//! places, and those that are known to be dead are removed. A record of the stream is noted as dead
//! in two cases:
//!
//! - A compaction or flush dropped the pointer to it, without a newer pointer of its key that stays
//!   (`is_behind`). Then no reader needs it, whatever the group says. Its tag may stay behind, but
//!   nobody follows tags. No other pointer leads there: each move makes a new record.
//! - An edit removes condemned segments, and no tag in the remaining segments names the record. By
//!   then the tree has what hides its version: a newer version that was flushed, or a range delete
//!   up to which the log was synced. No snapshot is older than that.
//!
//! So a record is never removed while a reader needs it. It is eventually removed, because each
//! record of the stream gets its tag in the edit that brings the record, and a newer version or a
//! range delete removes the tag.
//!
//! A tag is trusted without the tree, so no tag may exist before the groups know everything. None
//! does: until then nothing cools, and afterwards older tables never return.
//!
//! All this fails while the tree has tables that are older than the value file. A compaction moves
//! their values into the groups one level at a time, so an old version may arrive before the
//! deletion above it. Until those tables are gone, each record is looked up in the tree, and the
//! newest marker of each key stays, because a record that it hides may still arrive. Compactions
//! write markers as flushes do, so that afterwards the groups know everything.

use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::Result;
use crate::jobs::collection::Collected;
use crate::jobs::collection::Collector;
use crate::jobs::collection::groups::ClosedGroup;
use crate::jobs::collection::relocate::{Emptied, Live};
use crate::keys::MAX_SEQ;
use crate::values::file::ValueFile;
use crate::values::liveness::{RecordEntry, newest, newest_markers};
use crate::visibility::snapshot::Readers;

/// The step that a collection begins with.
enum Begun {
    /// The condemned segments of this group can be removed.
    Freeing(u32),
    ClosedGroup(ClosedGroup),
}

impl ValueFile {
    /// Runs steps 1 and 2.
    fn begin(&self, readers: &Readers) -> std::result::Result<Begun, Collected> {
        let mut state = self.state.lock();
        if self.retired_at() != 0 {
            return Err(Collected::Nothing);
        }
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        match state.condemned_may_go(&readers.points) {
            Some(true) => {}
            Some(false) => return Err(Collected::Nothing),
            None => {
                drop(state);
                return self.close_group(readers).map(Begun::ClosedGroup);
            }
        }
        state.collecting = true;
        let group = state.condemned.front().map_or(0, |condemned| condemned.group);
        Ok(Begun::Freeing(group))
    }
}

impl Collector {
    /// Collects the group that can free most.
    pub(crate) fn collect_and_write_back(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
    ) -> Result<Collected> {
        // A file that is retired meanwhile could be removed while new pointers lead to it.
        let _one_at_a_time = store.flushing.lock();
        // In a stopped store no pointer to the copies could be written, so they would be garbage.
        self.env.check_not_stopped()?;
        // Checked before the group is closed: the markers of a compaction that settles the tree
        // must be in the closed segments.
        let is_settled = is_settled(keyspace, store) || seeded!(GroupTrustedTooEarly);
        let begun = match store.begin(&self.visibility.readers()) {
            Ok(begun) => begun,
            Err(outcome) => return Ok(outcome),
        };
        let (group, outcome) = match begun {
            Begun::Freeing(group) => (group, Ok(())),
            Begun::ClosedGroup(closed) if store.cold == Some(closed.group) => {
                (closed.group, self.collect_closed(keyspace, store, closed))
            }
            Begun::ClosedGroup(closed) => {
                (closed.group, self.empty_group(keyspace, store, closed, is_settled))
            }
        };
        let outcome = outcome.and_then(|()| self.free_condemned(keyspace, store));
        self.end_collection(store, group, outcome)
    }

    /// Runs steps 3 and 4.
    fn empty_group(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        closed: ClosedGroup,
        is_settled: bool,
    ) -> Result<()> {
        let scanned = store.scan(&closed.segments, &|| self.installer.check_wanted(keyspace))?;
        // If the tree is not settled, only the tags in `kept` are used, and there are none yet.
        let cools = store.cold.is_some() && keyspace.options.load().values.cold_stream;
        let mut kept = newest(&scanned, &closed.dead, cools);
        if scanned.is_too_large {
            // Copies are made in the order of keys, for scans. Records that have to be read again
            // are read in the order of the file.
            kept.entries.sort_unstable_by_key(|one| (one.segment, one.offset));
        }
        let (live, markers): (Vec<Live<'_>>, _) = match is_settled {
            true => {
                // The group does not know of range deletes.
                let view = keyspace.view.load();
                let is_deleted = |entry: &RecordEntry| {
                    view.hides(scanned.key(entry), entry.seq, MAX_SEQ)
                        && !seeded!(RelocationsIgnoreRangeDeletes)
                };
                let deleted = kept.entries.extract_if(.., |entry| is_deleted(entry));
                kept.dropped_tags.extend(deleted.filter(|entry| entry.tag.is_some()));
                let live = kept.entries.iter().map(|entry| Live { entry, seq: entry.seq });
                (live.collect(), Vec::new())
            }
            false => {
                let live = self.live_records(keyspace, store, &scanned)?;
                kept.keys = runstone_policy::sketch::Sketch::of_nothing();
                for one in &live {
                    kept.keys.add(ValueFile::sketch_hash(scanned.key(one.entry)));
                }
                (live, newest_markers(&scanned))
            }
        };
        reached!(LiveValuesFound);
        let (group, segments) = (closed.group, &closed.segments[..]);
        let left = Some(kept.keys);
        let dropped_tags = kept.dropped_tags.iter().filter_map(|entry| entry.tag).collect();
        let scanned = &scanned;
        let emptied = Emptied { group, segments, scanned, markers, left, dropped_tags };
        self.relocate(keyspace, store, &emptied, &live)
    }
}

/// Whether every table and memtable is newer than the value file.
fn is_settled(keyspace: &KeyspaceCore, store: &ValueFile) -> bool {
    let is_alone = keyspace.values.load().retired.is_empty();
    let view = keyspace.view.load();
    is_alone && view.version.handles().all(|handle| handle.meta().id >= store.number)
}
