//! Walks the store as a transaction sees it: as of its snapshot, with its own writes on top.
//!
//! 1. The walk combines a cursor over the store and a position in the ordered write set. Going up,
//!    each is on its first key that was not passed; going down, on its last such key. The nearer of
//!    the two is shown, and the transaction's own write if keys are equal. Nothing of the store is
//!    copied.
//! 2. Keys that the transaction deleted are not shown, neither from its own writes nor from the
//!    store. If it deleted a range, the cursor over the store seeks to the other end of the range.
//! 3. When the walk turns around, it seeks, because both positions are behind it.
//! 4. In a serializable transaction each positioning reads one stretch of keys. The stretch is
//!    noted as large as it can get, and noted again where the walk turns. It is narrowed when the
//!    walk is over. A cursor that is leaked never reports how far it got, so it conflicts too
//!    often rather than too rarely.

use std::ops::Bound;
use std::sync::Arc;

use crate::sync::{Mutex, rank};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::read::cursor::Cursor;
use crate::read::ends::{Ends, Entry, Walking};
use crate::read::get::Reader;
use crate::read::options::ReadOptions;
use crate::transaction::read_set::{ReadSet, Span};
use crate::transaction::write_set::KeyspaceWrites;
use crate::values::Value;

/// The data over which a cursor of a transaction walks.
#[derive(Clone)]
pub(crate) struct Source<'t> {
    pub(crate) reader: &'t Arc<Reader>,
    pub(crate) core: Arc<KeyspaceCore>,
    /// The transaction's own writes, if there are any.
    pub(crate) writes: Option<&'t KeyspaceWrites>,
    /// Where to note what was read, if reads are tracked.
    pub(crate) reads: Option<&'t Mutex<rank::Reads, ReadSet>>,
}

/// A position among the keys of a keyspace as a transaction sees them. The transaction cannot write
/// while it has cursors. After an error it is in the same state as a [`Cursor`] after an error.
#[derive(Debug)]
pub struct TransactionCursor<'t> {
    below: Cursor,
    writes: Option<&'t KeyspaceWrites>,
    /// The write of the transaction that is current or next.
    own: Option<(&'t [u8], Option<&'t Value>)>,
    place: Place,
    /// Why the current entry has no value; without an entry, why steps fail.
    failed: Option<Box<Error>>,
    is_upward: bool,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    tracker: Option<Tracker<'t>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// On the entry of the cursor over the store.
    Below,
    /// On the transaction's own write.
    Own,
}

impl<'t> TransactionCursor<'t> {
    /// A cursor that is on no entry. `options` name the transaction's snapshot.
    pub(crate) fn open(source: Source<'t>, options: ReadOptions) -> Result<TransactionCursor<'t>> {
        let (start, end) = options.bounds();
        let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        let tracker = source.reads.filter(|_| !seeded!(ScansNotTracked)).map(|reads| Tracker {
            reads,
            core: Arc::clone(&source.core),
            number: None,
            low: None,
            high: Some(Vec::new()),
        });
        Ok(TransactionCursor {
            below: Cursor::open(source.reader, &source.core, options)?,
            writes: source.writes,
            own: None,
            place: Place::Nowhere,
            failed: None,
            is_upward: true,
            start,
            end,
            tracker,
        })
    }

    /// Whether the cursor is on an entry with a value.
    pub fn valid(&self) -> bool {
        self.place != Place::Nowhere && self.failed.is_none()
    }

    /// The key of the current entry; empty if there is none.
    pub fn key(&self) -> &[u8] {
        match (self.place, self.own) {
            (Place::Below, _) => self.below.key(),
            (Place::Own, Some((key, _))) => key,
            _ => &[],
        }
    }

    /// The value of the current entry; empty if there is none.
    pub fn value(&self) -> &[u8] {
        match (self.place, self.own) {
            (Place::Below, _) => self.below.value(),
            (Place::Own, Some((_, Some(value)))) => value,
            _ => &[],
        }
    }

    /// The value of the current entry, which stays valid after the next step.
    pub fn pin_value(&self) -> Value {
        match (self.place, self.own) {
            (Place::Below, _) => self.below.pin_value(),
            (Place::Own, Some((_, Some(value)))) => value.clone(),
            _ => Value::owned([]),
        }
    }

    /// Moves to the first key at or after `key`, inside the bounds.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let from = self.start.as_deref().filter(|start| *start > key).unwrap_or(key).to_vec();
        let outcome = self.seek_above(&from);
        self.noted(outcome)
    }

    fn seek_above(&mut self, from: &[u8]) -> Result<()> {
        self.begin(Some(from), true)?;
        self.move_below(|below| below.seek(from))?;
        self.own = self.own_beyond(Bound::Included(from));
        self.settle()
    }

    /// Moves to the first key inside the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek([])
    }

    /// Moves to the last key at or before `key`, inside the bounds.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let behind = [key.as_ref(), &[0]].concat();
        match self.end.clone().filter(|end| *end <= behind) {
            Some(end) => self.seek_below(Some(&end)),
            None => self.seek_below(Some(&behind)),
        }
    }

    /// Moves to the last key inside the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        let end = self.end.clone();
        self.seek_below(end.as_deref())
    }

    /// Moves to the last key below this one.
    fn seek_below(&mut self, behind: Option<&[u8]>) -> Result<()> {
        let outcome = self.go_below(behind);
        self.noted(outcome)
    }

    fn go_below(&mut self, behind: Option<&[u8]>) -> Result<()> {
        self.begin(behind, false)?;
        self.below_before(behind)?;
        self.own = self.own_beyond(behind.map_or(Bound::Unbounded, Bound::Excluded));
        self.settle()
    }

    /// Moves to the next key. This is not `Iterator::next`, because a cursor lends its entry and
    /// can fail.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        let outcome = self.step(true);
        self.noted(outcome)
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<()> {
        let outcome = self.step(false);
        self.noted(outcome)
    }

    fn step(&mut self, is_upward: bool) -> Result<()> {
        if !self.leave()? {
            return Ok(());
        }
        // The place is set again once the step has reached an entry.
        let place = self.place;
        // Whether the cursor over the store has left its entry: a compaction filter may remove it
        // meanwhile, and the seek then ends at the next entry.
        let mut has_left = false;
        if self.is_upward != is_upward {
            self.turn();
            let key = self.key().to_vec();
            self.place = Place::Nowhere;
            self.move_below(|below| match is_upward {
                true => below.seek(&key),
                false => below.seek_for_prev(&key),
            })?;
            self.own = self.own_beyond(Bound::Included(&key));
            has_left = !self.below.is_on_key() || self.below.key() != key;
        }
        self.place = Place::Nowhere;
        match (place, self.own) {
            (Place::Own, Some((key, _))) => self.pass_own(key)?,
            _ if has_left => {}
            _ => self.step_below()?,
        }
        self.settle()
    }

    fn step_below(&mut self) -> Result<()> {
        match self.is_upward {
            true => self.move_below(Cursor::next),
            false => self.move_below(Cursor::prev),
        }
    }

    /// Passes the transaction's write of a key, and the entry that the store has for the key.
    fn pass_own(&mut self, key: &'t [u8]) -> Result<()> {
        if self.below.is_on_key() && self.below.key() == key {
            self.step_below()?;
        }
        self.own = self.own_beyond(Bound::Excluded(key));
        Ok(())
    }

    /// Shows the nearer of the two positions, or the next position that is not hidden.
    fn settle(&mut self) -> Result<()> {
        self.place = Place::Nowhere;
        loop {
            if self.jump()? {
                continue;
            }
            let is_below = self.below.is_on_key();
            let is_nearer = |key: &[u8]| match self.is_upward {
                true => key <= self.below.key(),
                false => key >= self.below.key(),
            };
            match self.own {
                Some((key, write)) if !is_below || is_nearer(key) => match write {
                    Some(_) => self.place = Place::Own,
                    None => {
                        self.pass_own(key)?;
                        continue;
                    }
                },
                _ if is_below => return self.show_below(),
                _ => {}
            }
            return Ok(());
        }
    }

    /// Moves the cursor over the store out of a range delete of the transaction. Returns whether it
    /// did.
    fn jump(&mut self) -> Result<bool> {
        let Some(writes) = self.writes.filter(|_| self.below.is_on_key()) else { return Ok(false) };
        let Some((start, end)) = writes.range_over(self.below.key()) else { return Ok(false) };
        match (self.is_upward, end) {
            (false, _) => self.below_before(Some(start))?,
            (true, Some(end)) => self.move_below(|below| below.seek(end))?,
            // The cursor is after the last key.
            (true, None) => {
                self.move_below(Cursor::seek_to_last)?;
                if self.below.is_on_key() {
                    self.move_below(Cursor::next)?;
                }
            }
        }
        Ok(true)
    }

    /// Moves the cursor over the store to the last key below this one.
    fn below_before(&mut self, behind: Option<&[u8]>) -> Result<()> {
        let Some(behind) = behind else { return self.move_below(Cursor::seek_to_last) };
        self.move_below(|below| below.seek_for_prev(behind))?;
        if self.below.is_on_key() && self.below.key() == behind {
            self.move_below(Cursor::prev)?;
        }
        Ok(())
    }

    /// Moves the cursor over the store. If it reaches an entry without a value, that is not an
    /// error yet: a write of the transaction may hide the entry.
    fn move_below(&mut self, go: impl FnOnce(&mut Cursor) -> Result<()>) -> Result<()> {
        let outcome = go(&mut self.below);
        if self.below.is_on_key() { Ok(()) } else { outcome }
    }

    /// Shows the entry of the cursor over the store.
    fn show_below(&mut self) -> Result<()> {
        self.place = Place::Below;
        if self.below.valid() {
            return Ok(());
        }
        let Some(error) = self.below.failure() else { return Ok(()) };
        self.failed = Some(Box::new(error.clone()));
        Err(error)
    }

    /// Refuses to continue in a fork, where a lock that another thread held may never be released.
    fn check_home(&self) -> Result<()> {
        if self.below.is_at_home() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    /// Begins a step. Returns `false` if there is nothing to step from.
    fn leave(&mut self) -> Result<bool> {
        self.check_home()?;
        match (self.place, self.failed.take()) {
            (Place::Nowhere, Some(error)) => Err(*error),
            (place, _) => Ok(place != Place::Nowhere),
        }
    }

    /// Notes the error of a step or seek that reached no entry.
    fn noted(&mut self, outcome: Result<()>) -> Result<()> {
        outcome.inspect_err(|error| {
            if self.place == Place::Nowhere {
                self.failed = Some(Box::new(error.clone()));
            }
        })
    }

    /// The transaction's first write from a bound on, in the direction of the walk.
    fn own_beyond(&self, from: Bound<&[u8]>) -> Option<(&'t [u8], Option<&'t Value>)> {
        let keys = &self.writes?.keys;
        let (key, write) = match self.is_upward {
            true => keys.range::<[u8], _>((from, Bound::Unbounded)).next()?,
            false => keys.range::<[u8], _>((Bound::Unbounded, from)).next_back()?,
        };
        let is_inside = match self.is_upward {
            true => self.end.as_ref().is_none_or(|end| key < end),
            false => self.start.as_ref().is_none_or(|start| key >= start),
        };
        is_inside.then_some((&key[..], write.as_ref().map(|put| &put.value)))
    }

    /// Begins a walk at a key, or at the end of all keys.
    fn begin(&mut self, at: Option<&[u8]>, is_upward: bool) -> Result<()> {
        self.check_home()?;
        self.reach();
        (self.place, self.failed) = (Place::Nowhere, None);
        self.is_upward = is_upward;
        let Some(tracker) = &mut self.tracker else { return Ok(()) };
        let (low, high) = match is_upward {
            true => (at, self.end.as_deref()),
            false => (self.start.as_deref(), at),
        };
        tracker.begin(at, Span::new(low.unwrap_or_default(), high))
    }

    fn turn(&mut self) {
        self.reach();
        self.is_upward = !self.is_upward;
        let Some(tracker) = &self.tracker else { return };
        match self.is_upward {
            true => tracker.note(tracker.low.as_deref(), self.end.as_deref()),
            false => tracker.note(self.start.as_deref(), tracker.high.as_deref()),
        }
    }

    /// Notes how far the walk got.
    fn reach(&mut self) {
        let Some(mut tracker) = self.tracker.take() else { return };
        match (self.place != Place::Nowhere, self.is_upward) {
            (true, _) => tracker.reach(self.key()),
            (false, true) => tracker.reach_end(self.end.as_deref()),
            (false, false) => tracker.low = Some(self.start.clone().unwrap_or_default()),
        }
        tracker.narrow();
        self.tracker = Some(tracker);
    }
}

impl Drop for TransactionCursor<'_> {
    fn drop(&mut self) {
        // In a fork, a thread that does not exist there may hold the lock of the read set.
        if self.below.is_at_home() {
            self.reach();
        }
    }
}

/// Tracks the stretch of keys that a walk passes.
#[derive(Debug)]
struct Tracker<'t> {
    reads: &'t Mutex<rank::Reads, ReadSet>,
    core: Arc<KeyspaceCore>,
    /// The index of the current walk's stretch in the read set.
    number: Option<usize>,
    /// The first key that the walk passed; `None` if that is after all keys.
    low: Option<Vec<u8>>,
    /// The least key after the stretch; `None` if there is none.
    high: Option<Vec<u8>>,
}

impl Tracker<'_> {
    fn begin(&mut self, at: Option<&[u8]>, most: Span) -> Result<()> {
        self.low = at.map(<[u8]>::to_vec);
        self.high = self.low.clone();
        self.number = None;
        self.number = Some(self.reads.lock().add_span(&self.core, most)?);
        Ok(())
    }

    fn reach(&mut self, key: &[u8]) {
        if self.low.as_ref().is_none_or(|low| key < &low[..]) {
            self.low = Some(key.to_vec());
        }
        if self.high.as_ref().is_some_and(|high| high[..] <= *key) {
            self.high = Some([key, &[0]].concat());
        }
    }

    fn reach_end(&mut self, end: Option<&[u8]>) {
        self.high = end.map(<[u8]>::to_vec);
    }

    fn narrow(&self) {
        self.note(self.low.as_deref(), self.high.as_deref());
    }

    /// Notes the keys from `low` to `high` as the stretch of the current walk.
    fn note(&self, low: Option<&[u8]>, high: Option<&[u8]>) {
        if let Some(number) = self.number {
            // A walk that begins after all keys and passes none has an empty stretch.
            let span = Span::new(low.unwrap_or_default(), high);
            self.reads.lock().narrow(self.core.id, number, span);
        }
    }
}

impl Walking for TransactionCursor<'_> {
    fn go_to_first(&mut self) -> Result<()> {
        self.seek_to_first()
    }

    fn go_to_last(&mut self) -> Result<()> {
        self.seek_to_last()
    }

    fn go_up(&mut self) -> Result<()> {
        self.next()
    }

    fn go_down(&mut self) -> Result<()> {
        self.prev()
    }

    fn has_entry(&self) -> bool {
        self.place != Place::Nowhere
    }

    fn key(&self) -> &[u8] {
        TransactionCursor::key(self)
    }

    fn value(&self) -> Value {
        self.pin_value()
    }
}

/// A standard iterator over keys and values as a transaction sees them, from both ends. Its errors
/// are those of a [`crate::Scan`].
#[derive(Debug)]
pub struct TransactionScan<'t> {
    source: Source<'t>,
    options: ReadOptions,
    ends: Ends<TransactionCursor<'t>>,
}

impl<'t> TransactionScan<'t> {
    pub(crate) fn new(source: Source<'t>, options: ReadOptions) -> TransactionScan<'t> {
        TransactionScan { source, options, ends: Ends::default() }
    }

    /// Iterates over the keys only. Separated values are not read.
    pub fn keys(mut self) -> impl DoubleEndedIterator<Item = Result<Vec<u8>>> {
        self.options = self.options.keys_only();
        self.map(|item| Ok(item?.0))
    }

    /// Iterates over the values only.
    pub fn values(self) -> impl DoubleEndedIterator<Item = Result<Value>> {
        self.map(|item| Ok(item?.1))
    }

    fn advance(&mut self, is_upward: bool) -> Option<Result<Entry>> {
        let open = || TransactionCursor::open(self.source.clone(), self.options.clone());
        self.ends.advance(is_upward, open)
    }
}

impl Iterator for TransactionScan<'_> {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

impl DoubleEndedIterator for TransactionScan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("keyspace", &self.core.name).finish_non_exhaustive()
    }
}
