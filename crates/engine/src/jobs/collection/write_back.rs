//! Garbage collection of a hash group that writes pointers back, as HashKV does (§3.3): whether a
//! record is live is decided by the group alone, but the tree is told where it went. For comparison
//! with stable pointers.
//!
//! 1. What an earlier collection emptied goes first; as long as a snapshot holds it, nothing is.
//! 2. Close the group, and note from now on which keys are written to it
//!    (`FileState::dirty`).
//! 3. Scan it. Live is the newest record of each key, unless a marker or a compaction says that the
//!    version is no longer the key's. Deletions and inline values leave such markers, or their keys
//!    would come back: `Appender::mark`.
//! 4. Relocate what is live (`relocate`). A pointer is not written if a user wrote its key
//!    meanwhile: then the key is in a memtable, or among those that were noted. Flushes need not
//!    wait: one notes its keys before its memtable leaves the view, and the view is loaded first.
//!
//! Why the newest record of a group is the newest flushed version of its key: every version that a
//! flush writes has a record or a marker in its group, with its number, and a collection drops only
//! whole groups. Numbers decide, not places: a copy of an older version may lie behind a newer one.
//! This is not so while the tree has tables from before the value file: a compaction brings their
//! values into the groups one level at a time, perhaps an old version before the deletion above it.
//! Until those tables are gone each record is looked up in the tree, and the newest marker of each
//! key stays: what it hides may be yet to come. Compactions mark as flushes do, so that afterwards
//! the groups know everything.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::key::SeqNo;
use crate::catalog::keyspace::KeyspaceCore;
use crate::jobs::collection::Collected;
use crate::jobs::collection::Collector;
use crate::jobs::collection::groups::ClosedGroup;
use crate::jobs::collection::relocate::{Emptied, Live};
use crate::values::file::ValueFile;
use crate::values::liveness::{newest, newest_markers};

/// What there is to do.
enum Begun {
    /// Segments of this group wait for nobody any more.
    Freeing(u32),
    ClosedGroup(ClosedGroup),
}

impl ValueFile {
    /// Steps 1 and 2.
    fn begin(&self, points: &[SeqNo]) -> std::result::Result<Begun, Collected> {
        let mut state = self.state.lock();
        if self.retired_at() != 0 {
            return Err(Collected::Nothing);
        }
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        match state.condemned_may_go(points) {
            Some(true) => {}
            Some(false) => return Err(Collected::Nothing),
            None => {
                drop(state);
                return self.close_group(points).map(Begun::ClosedGroup);
            }
        }
        state.collecting = true;
        let group = state.condemned.front().map_or(0, |condemned| condemned.group);
        Ok(Begun::Freeing(group))
    }
}

impl Collector {
    /// Collects the group that promises most.
    pub(crate) fn collect_and_write_back(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
    ) -> Result<Collected> {
        // Pointers to a file that is retired meanwhile could outlive it.
        let _one_at_a_time = store.flushing.lock();
        // Copies that nobody points to would be garbage.
        self.env.check_not_stopped()?;
        // Before the seal: what a compact that settles the tree says of the group must be in it.
        let is_settled = is_settled(keyspace, store) || seeded!(GroupTrustedTooEarly);
        let begun = match store.begin(&self.visibility.points()) {
            Ok(begun) => begun,
            Err(outcome) => return Ok(outcome),
        };
        let (group, outcome) = match begun {
            Begun::Freeing(group) => (group, Ok(())),
            Begun::ClosedGroup(closed) => {
                (closed.group, self.empty_group(keyspace, store, closed, is_settled))
            }
        };
        let outcome = outcome.and_then(|()| self.free_condemned(keyspace, store));
        self.end_collection(store, group, outcome)
    }

    /// Steps 3 and 4.
    fn empty_group(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        closed: ClosedGroup,
        is_settled: bool,
    ) -> Result<()> {
        let scanned = store.scan(&closed.segments, &|| self.installer.check_wanted(keyspace))?;
        let mut kept = newest(&scanned, &closed.dead);
        let (live, markers): (Vec<Live<'_>>, _) = match is_settled {
            true => {
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
        let emptied = Emptied { group, segments, scanned: &scanned, markers, left };
        self.relocate(keyspace, store, &emptied, &live)
    }
}

/// Whether every table and memtable was written since the value file is there.
fn is_settled(keyspace: &KeyspaceCore, store: &ValueFile) -> bool {
    let is_alone = keyspace.values.load().retired.is_empty();
    let view = keyspace.view.load();
    is_alone && view.version.handles().all(|handle| handle.meta().id >= store.number)
}
