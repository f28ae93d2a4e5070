//! Snapshots: registered points in the store's history. Compactions keep what a snapshot can see
//! until it is dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::sync::{Mutex, looked, rank};
use runstone_storage::fork::Process;

use crate::keys::SeqNo;
use crate::lease::holder::LeasePart;
use crate::visibility::cursors::Cursors;
use crate::visibility::publish::Publisher;

/// How many moments are read under one hold of their lock.
const PAGE: usize = 1024;

/// The writes that readers see, and the moments that live snapshots hold.
#[derive(Debug)]
pub(crate) struct Visibility {
    pub(crate) publisher: Publisher,
    live: Mutex<rank::Snapshots, Live>,
    /// How many moments were released.
    released: AtomicU64,
    pub(crate) cursors: Cursors,
    /// The part of a lease that is held as long as this store has readers.
    _lease: Option<LeasePart>,
    /// The process that opened the store. A forked process has copies of the snapshots, and of the
    /// lock in its state at the fork. Perhaps nobody there ever releases that lock, and nothing
    /// there needs what snapshots keep.
    process: Process,
}

/// Live snapshots.
#[derive(Debug, Default)]
struct Live {
    /// The moments of live snapshots, and how many handles hold each moment.
    handles: BTreeMap<Moment, usize>,
    /// The sequence numbers of snapshots that the program itself holds, and how many handles hold
    /// each. They are listed separately because there may be very many cursors.
    held: BTreeMap<SeqNo, usize>,
    /// The epoch that new snapshots get.
    epoch: u64,
    /// The last time of day that a flush or compaction reported.
    told_ms: u64,
}

/// Facts about the moment that a snapshot holds. Of two moments the one that was registered later
/// is not smaller in number, epoch or time, so the first of all has the least of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    seq: SeqNo,
    epoch: u64,
    /// The moment was not earlier than this, in milliseconds since 1970. No clock is read for it,
    /// because that would cost every cursor.
    since_ms: u64,
    /// Whether a cursor holds the moment, not the program. Cursors are opened and closed all the
    /// time.
    is_cursor: bool,
}

/// The versions that readers may still reach. Time does not go back: a number that once was below a
/// point, but was not a point itself, never becomes a point later.
#[derive(Debug)]
pub(crate) struct Readers {
    /// The sequence numbers that must stay visible, ascending: those of live snapshots, and the
    /// present.
    pub(crate) points: Vec<SeqNo>,
    /// No live snapshot was taken in an earlier epoch.
    pub(crate) oldest_epoch: u64,
}

impl Readers {
    /// Whether all these numbers are points. At some earlier time, the numbers were exactly the
    /// points up to the last of them. So no other point can be among them, and it is enough to
    /// count. If the readers are older than the numbers, the answer may be wrong either way, so a
    /// caller that acts on the answer must check again with newer readers. O(log points), because
    /// each cursor is a point.
    pub(crate) fn include(&self, numbers: &[SeqNo]) -> bool {
        numbers
            .last()
            .is_none_or(|last| self.points.partition_point(|point| point <= last) == numbers.len())
    }
}

impl Live {
    /// Counts one more handle.
    fn add(&mut self, moment: Moment) {
        *self.handles.entry(moment).or_default() += 1;
        if !moment.is_cursor {
            *self.held.entry(moment.seq).or_default() += 1;
        }
    }

    /// Counts one handle less. Returns whether it was the last handle of its moment.
    fn remove(&mut self, moment: Moment) -> bool {
        if !moment.is_cursor {
            count_down(&mut self.held, moment.seq);
        }
        count_down(&mut self.handles, moment)
    }
}

/// Decrements a count. Returns whether it is now zero.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) -> bool {
    let Entry::Occupied(mut count) = counts.entry(key) else { return false };
    *count.get_mut() -= 1;
    let is_last = *count.get() == 0;
    if is_last {
        count.remove();
    }
    is_last
}

impl Visibility {
    pub(crate) fn new(visible: SeqNo) -> Visibility {
        Visibility::leased(visible, None)
    }

    /// As `new`, for a view of a store to which another process writes.
    pub(crate) fn leased(visible: SeqNo, lease: Option<LeasePart>) -> Visibility {
        Visibility {
            publisher: Publisher::new(visible),
            live: Mutex::default(),
            released: AtomicU64::new(0),
            cursors: Cursors::default(),
            _lease: lease,
            process: Process::current(),
        }
    }

    /// The newest visible write.
    #[inline]
    pub(crate) fn now(&self) -> SeqNo {
        self.publisher.visible()
    }

    /// Registers the present moment for a program.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        self.register(false)
    }

    /// Registers the present moment for a cursor.
    pub(crate) fn cursor_snapshot(self: &Arc<Self>) -> Snapshot {
        self.register(true)
    }

    fn register(self: &Arc<Self>, is_cursor: bool) -> Snapshot {
        if !self.process.is_current() {
            let moment = Moment { seq: self.now(), epoch: 0, since_ms: 0, is_cursor };
            return Snapshot { visibility: Arc::clone(self), moment };
        }
        // For compactions, reading the number and registering it is a single step, because they
        // collect live snapshots under the same lock.
        let mut live = self.live.lock();
        let (seq, epoch, since_ms) = (self.now(), live.epoch, live.told_ms);
        let moment = Moment { seq, epoch, since_ms, is_cursor };
        live.add(moment);
        drop(live);
        Snapshot { visibility: Arc::clone(self), moment }
    }

    /// The sequence numbers that compactions must keep visible, ascending: those of live snapshots,
    /// and the present.
    pub(crate) fn points(&self) -> Vec<SeqNo> {
        self.readers().points
    }

    /// The current readers.
    pub(crate) fn readers(&self) -> Readers {
        let live = self.live.lock();
        let (now, epoch) = (self.now(), live.epoch);
        let oldest = live.handles.first_key_value().map(|(moment, _)| *moment);
        drop(live);
        let (mut points, mut from) = (Vec::new(), oldest.map(Included));
        while let Some(begin) = from.take() {
            let live = self.live.lock();
            let page = live.handles.range((begin, Unbounded)).map(|(moment, _)| moment);
            let (mut last, before) = (None, points.len());
            points.extend(page.take(PAGE).take_while(|moment| moment.seq < now).map(|moment| {
                last = Some(*moment);
                moment.seq
            }));
            looked((points.len() - before) as u64);
            from = last.map(Excluded);
        }
        points.push(now);
        points.dedup();
        Readers { points, oldest_epoch: oldest.map_or(epoch, |moment| moment.epoch) }
    }

    /// A number that changes when readers may need less than before. It must be read before
    /// `readers`. O(1).
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Acquire)
    }

    /// The epoch of snapshots that are taken now.
    pub(crate) fn epoch(&self) -> u64 {
        self.live.lock().epoch
    }

    /// Distinguishes snapshots that are taken from now on from all earlier ones, even if there is
    /// no write in between.
    pub(crate) fn end_epoch(&self) {
        self.live.lock().epoch += 1;
    }

    /// The sequence number of the newest snapshot that the program holds; 0 if there is none.
    /// Changes that cursors tolerate use this number. If the snapshots of cursors counted, such
    /// changes would never get their turn. O(log n).
    pub(crate) fn newest_held(&self) -> SeqNo {
        self.live.lock().held.last_key_value().map_or(0, |(seq, _)| *seq)
    }

    /// Records the time. Returns the sequence number of the newest snapshot, or 0, and a time
    /// before which no live snapshot was taken. That time is `now_ms` if there is no snapshot.
    /// O(log snapshots).
    pub(crate) fn tell_time(&self, now_ms: u64) -> (SeqNo, u64) {
        let mut live = self.live.lock();
        live.told_ms = live.told_ms.max(now_ms);
        let since_ms = live.handles.first_key_value().map(|(moment, _)| moment.since_ms);
        let newest = live.handles.last_key_value().map_or(0, |(moment, _)| moment.seq);
        (newest, since_ms.unwrap_or(now_ms))
    }
}

/// A view of all keyspaces that later writes do not change (P5). Dropping it lets compactions
/// remove versions that only this snapshot could see.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
/// use runstone::ReadOptions;
///
/// store.put("k", "v")?;
/// let snapshot = store.snapshot();
/// store.delete("k")?;
/// let mut cursor = store.default_keyspace().cursor(ReadOptions::default().at(&snapshot))?;
/// cursor.seek_to_first()?;
/// assert_eq!((cursor.key(), cursor.value()), (&b"k"[..], &b"v"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    visibility: Arc<Visibility>,
    moment: Moment,
}

impl Snapshot {
    /// The sequence number of the snapshot. The snapshot sees all writes up to this one.
    pub fn seq(&self) -> SeqNo {
        self.moment.seq
    }

    /// Whether the snapshot belongs to the store with this visibility.
    pub(crate) fn is_of(&self, visibility: &Arc<Visibility>) -> bool {
        Arc::ptr_eq(&self.visibility, visibility)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        let (visibility, moment) = (Arc::clone(&self.visibility), self.moment);
        if visibility.process.is_current() {
            visibility.live.lock().add(moment);
        }
        Snapshot { visibility, moment }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.visibility.process.is_current() {
            return;
        }
        if self.visibility.live.lock().remove(self.moment) {
            self.visibility.released.fetch_add(1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_once_were_all_points_is_looked_up_by_counting() {
        let visibility = Arc::new(Visibility::new(1));
        let next = |seq| {
            visibility.publisher.set_visible(seq);
            visibility.snapshot()
        };
        let (first, second, third) = (visibility.snapshot(), next(4), next(6));
        let before = visibility.points();
        assert_eq!(before, [1, 4, 6]);
        let include = |count: usize| visibility.readers().include(&before[..count]);
        let _later = next(9);
        assert_eq!([0, 1, 2, 3].map(include), [true; 4]);
        drop(third);
        assert_eq!([0, 1, 2, 3].map(include), [true, true, true, false]);
        drop(first);
        assert_eq!([0, 1, 2, 3].map(include), [true, false, false, false]);
        drop(second);
        assert_eq!(visibility.released(), 3);
    }

    #[test]
    fn the_newest_snapshot_of_the_program_is_not_a_cursors() {
        let visibility = Arc::new(Visibility::new(7));
        assert_eq!(visibility.newest_held(), 0);
        let (first, cursor) = (visibility.snapshot(), visibility.cursor_snapshot());
        visibility.publisher.set_visible(9);
        let (second, _later) = (visibility.snapshot(), visibility.cursor_snapshot());
        let copy = second.clone();
        drop((cursor, second));
        assert_eq!(visibility.newest_held(), 9);
        drop(copy);
        assert_eq!(visibility.newest_held(), 7);
        drop(first);
        assert_eq!(visibility.newest_held(), 0);
    }
}
