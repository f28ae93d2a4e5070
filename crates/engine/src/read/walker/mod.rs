//! The walk of a cursor: the newest visible version of each key inside its bounds, in both
//! directions.
//!
//! Forward, the first visible version of a key decides, and the others are skipped. Backward, the
//! oldest version of a key comes first. The last visible version before the key changes decides,
//! and by then the merge is already on the previous key.
//!
//! When the view of a walk is out of date, the walk continues in the present view. Between two
//! calls a walk may be parked. It then keeps only its sequence number, its key and the entry that
//! it shows.

mod hidden;

use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use self::hidden::Versions;
use crate::catalog::dead_ranges::Walk;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::{Error, Result};
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::format::record::Pointer;
use crate::keys::expiry::{EXPIRY_BYTES, Expiry, expiry_of, split};
use crate::keys::{
    Kind, SeqNo, expires, is_inline, is_operand, is_pointer, kind_of, seek_trailer, seq_of,
    unsupported_kind,
};
use crate::metrics::{Counter, sampled};
use crate::read::ahead::{Next, ReadAhead, gone};
use crate::read::covers::Covers;
use crate::read::get::{Got, Reader};
use crate::read::kept::Kept;
use crate::read::merge::MergeIter;
use crate::read::options::ReadOptions;
use crate::read::source::sources;
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::lookup::FoundValue;
use crate::values::separation::{Pace, ValueFiles};
use crate::visibility::cursors::{Left, Park};
use crate::visibility::snapshot::Snapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Nowhere,
    /// On the merge's current entry.
    Forward,
    /// On an entry of `ahead`. The merge is after the last entry of `ahead`, whose key is saved.
    ReadAhead,
    /// On the saved entry. The merge is before it.
    Backward,
    /// On a parked entry, whose key is saved. The merge may be anywhere.
    Parked,
}

/// A walk over the visible keys of a keyspace, at one moment.
#[derive(Debug)]
pub(crate) struct Walker {
    merge: MergeIter,
    place: Position,
    seq: SeqNo,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// Forward: the key to skip. Backward and parked: the current key.
    saved_key: Vec<u8>,
    saved_value: Option<Value>,
    /// Why the current entry has no value; if there is no current entry, why steps fail.
    failed: Option<Box<Error>>,
    /// The trailer of the saved entry, and when it expires.
    saved_expiry: (u64, Option<u64>),
    /// The time by which entries count as expired. It is set when the walk reaches the first entry
    /// that can expire.
    now_ms: OnceLock<u64>,
    reader: Arc<Reader>,
    keyspace: Arc<KeyspaceCore>,
    steps: u64,
    hidden_passed: u64,
    /// The entries that were passed on the way to the current one.
    walk: Walk,
    versions: Versions,
    /// The range deletes that the walk sees.
    covers: Covers,
    /// Keeps memtables and tables alive. `None` while parked.
    view: Option<Arc<View>>,
    /// The entry that a parked cursor shows.
    kept: Kept,
    /// Entries read ahead while the walk moves forward and values are separated.
    ahead: ReadAhead,
    /// How separated values are read.
    access: Access,
    /// The number of entries to read ahead next time.
    ahead_count: usize,
    /// How that number grows.
    pace: Pace,
    /// The files that contain separated values; empty while parked.
    values: Arc<ValueFiles>,
    keys_only: bool,
    /// Makes the store keep everything that the cursor sees, whatever view the cursor uses.
    held: Option<Snapshot>,
}

impl Walker {
    /// A walk that is on no entry.
    pub(super) fn open(
        reader: &Arc<Reader>,
        keyspace: &Arc<KeyspaceCore>,
        options: ReadOptions,
    ) -> Result<Walker> {
        options.check_bounds()?;
        match &options.snapshot {
            None => keyspace.check_readable()?,
            Some(snapshot) => {
                keyspace.check_open()?;
                reader.check_snapshot(snapshot)?;
            }
        }
        let visibility = &reader.visibility;
        let is_held = !seeded!(CursorDoesNotRegister);
        let held = options.snapshot.or_else(|| is_held.then(|| visibility.cursor_snapshot()));
        let seq = held.as_ref().map_or_else(|| visibility.now(), Snapshot::seq);
        let (view, values) = reader.present(keyspace);
        let access = Access::Cached { fill: options.fill_cache };
        let pace = values.pace(keyspace.options.load().values.scan_ahead_bytes);
        Ok(Walker {
            merge: MergeIter::new(sources(&view, access)),
            place: Position::Nowhere,
            seq,
            start: options.start,
            end: options.end,
            saved_key: Vec::new(),
            saved_value: None,
            failed: None,
            saved_expiry: (0, None),
            now_ms: OnceLock::new(),
            reader: Arc::clone(reader),
            keyspace: Arc::clone(keyspace),
            steps: 0,
            hidden_passed: 0,
            walk: Walk::default(),
            versions: Versions::default(),
            covers: Covers::of(&view, seq),
            view: Some(view),
            kept: Kept::Nothing,
            ahead: ReadAhead::default(),
            access,
            ahead_count: pace.least,
            pace,
            values,
            keys_only: options.keys_only,
            held,
        })
    }

    /// Whether the walk is on an entry. The entry may lack its value.
    #[inline]
    pub(super) fn is_on_key(&self) -> bool {
        self.place != Position::Nowhere
    }

    /// Why the current entry has no value.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failed.as_deref()
    }

    /// Key and value of the current entry; empty if there is none.
    #[inline]
    pub(super) fn entry(&self) -> (&[u8], &[u8]) {
        match self.place {
            Position::Forward => {
                let Some((key, trailer, value)) = self.merge.entry() else { return (&[], &[]) };
                (key, self.saved_value.as_deref().unwrap_or_else(|| without_expiry(trailer, value)))
            }
            _ => self.saved_entry(),
        }
    }

    /// As `entry`, if the merge is not on the entry.
    fn saved_entry(&self) -> (&[u8], &[u8]) {
        match self.place {
            Position::ReadAhead => {
                (self.ahead.key(), self.ahead.value().map_or(&[], |value| value))
            }
            Position::Backward => {
                (&self.saved_key, self.saved_value.as_deref().unwrap_or_default())
            }
            _ => (&[], &[]),
        }
    }

    /// The value of the current entry, which stays valid after the next step.
    pub(super) fn pin_value(&self) -> Value {
        match (self.place, &self.saved_value) {
            (Position::ReadAhead, _) => {
                self.ahead.value().cloned().unwrap_or_else(|| Value::owned([]))
            }
            (_, Some(value)) => value.clone(),
            (Position::Forward, None) => self.pin_inline_value(),
            (Position::Parked, None) => self.kept.pin_value(),
            _ => Value::owned([]),
        }
    }

    /// The trailer of the current entry, and when it expires.
    fn trailer_and_expiry(&self) -> (u64, Option<u64>) {
        match self.place {
            Position::Forward => {
                let current = self.merge.current();
                let trailer = current.map_or(0, |(_, trailer)| trailer);
                (trailer, expiry_of(trailer, self.merge.value()))
            }
            Position::ReadAhead => self.ahead.expiry(),
            Position::Backward | Position::Parked => self.saved_expiry,
            Position::Nowhere => (0, None),
        }
    }

    /// The time until which the key of the current entry, which is `key`, has its value, see
    /// [`Cursor::expiry`](crate::Cursor::expiry).
    pub(super) fn expiry(&self, key: &[u8]) -> Result<Expiry> {
        let (trailer, expiry_ms) = self.trailer_and_expiry();
        let has_value = self.is_on_key() && self.failed.is_none();
        if !has_value || kind_of(trailer) != Kind::Merge as u8 {
            return Ok(Expiry::of(expiry_ms));
        }
        let now_ms = *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
        let (keyspace, view) = (&self.keyspace, &self.view()?);
        let (reader, access) = (&self.reader, self.access);
        reader.fold_expiry_ms(keyspace, view, key, self.seq, now_ms, access).map(Expiry::of)
    }

    /// The view to read in. For a parked walk it is the present view.
    fn view(&self) -> Result<Arc<View>> {
        match &self.view {
            Some(view) => Ok(Arc::clone(view)),
            None => self.keyspace.check_open().map(|()| self.keyspace.view.load_full()),
        }
    }

    fn pin_inline_value(&self) -> Value {
        let tail =
            self.merge.current().map_or(0, |(_, trailer)| tail_of(trailer, self.merge.value()));
        self.merge.pin_value().without_end(tail)
    }

    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek()?;
        self.note_heat(key);
        let from = match &self.start {
            Some(start) if &start[..] > key => start,
            _ => key,
        };
        self.merge.seek(from, seek_trailer(self.seq))?;
        self.settle_forward(false)
    }

    pub(super) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek()?;
        self.note_heat(key);
        match &self.end {
            Some(end) if &end[..] <= key => self.merge.seek_before(end, BEFORE_ALL_VERSIONS)?,
            _ => {
                // Versions of `key` itself count, so the seek goes to the last entry before the
                // next key.
                let mut behind = key.to_vec();
                behind.push(0);
                self.merge.seek_before(&behind, BEFORE_ALL_VERSIONS)?;
            }
        }
        self.settle_backward()
    }

    pub(super) fn seek_to_first(&mut self) -> Result<()> {
        self.begin_seek()?;
        match &self.start {
            Some(start) => {
                self.note_heat(start);
                self.merge.seek(start, BEFORE_ALL_VERSIONS)?;
            }
            None => self.merge.seek_to_first()?,
        }
        self.settle_forward(false)
    }

    pub(super) fn seek_to_last(&mut self) -> Result<()> {
        self.begin_seek()?;
        match &self.end {
            Some(end) => self.merge.seek_before(end, BEFORE_ALL_VERSIONS)?,
            None => self.merge.seek_to_last()?,
        }
        self.settle_backward()
    }

    #[inline]
    pub(super) fn step_up(&mut self) -> Result<()> {
        match self.leave()? {
            Position::Nowhere => Ok(()),
            Position::Forward => {
                self.save_current_key();
                self.merge.step()?;
                self.go_up()
            }
            Position::ReadAhead => {
                self.ahead.step();
                if !self.ahead.is_spent() || self.ahead.error.is_some() {
                    return self.show_ahead();
                }
                self.read_ahead()
            }
            Position::Backward => {
                // The merge is before the current key and walks backward; the seek turns it around.
                self.merge.seek(&self.saved_key, BEFORE_ALL_VERSIONS)?;
                self.settle_forward(true)
            }
            Position::Parked => {
                self.merge.seek(&self.saved_key, BEFORE_ALL_VERSIONS)?;
                self.go_up()
            }
        }
    }

    /// Continues after the saved key, as the keyspace's values require.
    #[inline]
    fn go_up(&mut self) -> Result<()> {
        if self.values.is_empty() || self.keys_only {
            return self.settle_forward(true);
        }
        self.read_ahead()
    }

    pub(super) fn step_down(&mut self) -> Result<()> {
        match self.leave()? {
            Position::Nowhere => return Ok(()),
            Position::Forward => {
                self.save_current_key();
                self.merge.seek_before(&self.saved_key, BEFORE_ALL_VERSIONS)?;
            }
            Position::ReadAhead => {
                self.merge.seek_before(self.ahead.key(), BEFORE_ALL_VERSIONS)?;
                self.ahead.clear();
            }
            Position::Backward => {}
            Position::Parked => self.merge.seek_before(&self.saved_key, BEFORE_ALL_VERSIONS)?,
        }
        self.settle_backward()
    }

    /// Continues in the present view, if the walk's view is out of date. Called before a step or
    /// seek of a cursor that was notified. The walk may already be parked; if not, this call parks
    /// it.
    #[cold]
    pub(super) fn catch_up(&mut self) -> Result<()> {
        drop(self.park());
        if self.view.is_some() {
            return Ok(());
        }
        // The files of a closed store may belong to another process.
        if let Err(error) = self.keyspace.check_open() {
            self.place = Position::Nowhere;
            return Err(error);
        }
        self.kept = Kept::Nothing;
        let (view, values) = self.reader.present(&self.keyspace);
        if seeded!(ParkedCursorSeesThePresent) {
            self.seq = self.reader.visibility.now();
        }
        invariant!(
            self.held.as_ref().is_none_or(|held| held.seq() == self.seq),
            "a cursor goes on at another moment than its own (P5)"
        );
        self.merge = MergeIter::new(sources(&view, self.access));
        self.covers = Covers::of(&view, self.seq);
        (self.view, self.values) = (Some(view), values);
        Ok(())
    }

    fn save_current_key(&mut self) {
        self.saved_key.clear();
        if let Some((key, _)) = self.merge.current() {
            self.saved_key.extend_from_slice(key);
        }
    }

    /// Gathers the next entries and their separated values. Entries of `saved_key` are skipped. An
    /// error on the way is reported after the entries before it.
    fn read_ahead(&mut self) -> Result<()> {
        self.saved_value = None;
        self.ahead.clear();
        let mut bytes = 0;
        let count = self.ahead_count;
        while self.ahead.is_spent() || self.ahead.len() < count && bytes < self.pace.bytes {
            match self.gather() {
                Ok(Some(more)) => bytes += more,
                Ok(None) => break,
                Err(error) => {
                    self.ahead.error = Some(error);
                    break;
                }
            }
        }
        self.ahead_count = self.pace.after(count);
        // A single value is read when it is shown.
        if self.ahead.len() > 1 {
            self.ahead.fetch(&self.values, self.access);
        }
        self.show_ahead()
    }

    /// Gathers one entry, and returns the bytes of its separated value; `None` at the end.
    fn gather(&mut self) -> Result<Option<u64>> {
        if !self.find_forward(true)? {
            return Ok(None);
        }
        self.save_current_key();
        let Some((_, trailer)) = self.merge.current() else { return Ok(None) };
        let expiry_ms = expiry_of(trailer, self.merge.value());
        let mut bytes = 0;
        let (pointer, found) = if is_pointer(trailer) {
            match Pointer::of_entry(self.merge.value()) {
                Ok(pointer) => {
                    bytes = u64::from(pointer.value_bytes);
                    (Some(pointer), Ok(FoundValue::Later(None)))
                }
                Err(error) => (None, Err(error)),
            }
        } else {
            let found = match is_inline(trailer) {
                true => Ok(self.pin_inline_value()),
                false => self.fetch(&self.saved_key, trailer, &[]),
            };
            (None, found.map(FoundValue::Value))
        };
        self.ahead.push(&self.saved_key, Next { trailer, expiry_ms, pointer, found });
        self.merge.step()?;
        Ok(Some(bytes))
    }

    /// Moves onto the current entry of `ahead`. A value that cannot be read becomes an error only
    /// when the walk reaches it.
    fn show_ahead(&mut self) -> Result<()> {
        if self.ahead.is_spent() {
            return self.ahead.error.take().map_or(Ok(()), Err);
        }
        let was_separated = match self.ahead.arrive(&self.values, self.access) {
            Ok(was_separated) => was_separated,
            Err(error) => return self.fail_at(Position::ReadAhead, error),
        };
        self.reader.env.metrics.add(Counter::values_read, was_separated.into());
        self.place = Position::ReadAhead;
        Ok(())
    }

    /// Moves on to the first visible entry. If `skipping`, entries of `saved_key` are skipped.
    fn settle_forward(&mut self, skipping: bool) -> Result<()> {
        if self.saved_value.is_some() {
            // The check saves ten instructions per step, which a drop of nothing would cost.
            self.saved_value = None;
        }
        if !self.ahead.is_empty() {
            self.ahead.clear();
        }
        self.ahead_count = self.pace.least;
        if !self.find_forward(skipping)? {
            return Ok(());
        }
        match self.merge.entry() {
            Some((key, trailer, value)) if !is_inline(trailer) => {
                match self.fetch(key, trailer, value) {
                    Ok(value) => self.saved_value = Some(value),
                    Err(error) => return self.fail_at(Position::Forward, error),
                }
            }
            _ => {}
        }
        self.place = Position::Forward;
        Ok(())
    }

    /// Moves the merge on to the first visible entry; `false` if there is none. If `skipping`,
    /// entries of `saved_key` are skipped.
    fn find_forward(&mut self, mut skipping: bool) -> Result<bool> {
        self.walk.clear();
        if !skipping {
            // The saved key is left over from an earlier walk. `end_walk` would mistake it for the
            // last key that this walk passed.
            self.saved_key.clear();
        }
        while let Some((key, trailer)) = self.merge.current() {
            if self.end.as_ref().is_some_and(|end| key >= &end[..]) {
                break;
            }
            let is_spent = skipping && key == &self.saved_key[..];
            if seq_of(trailer) <= self.seq && !is_spent {
                let (is_covered, has_expired) = match Kind::from_u8(kind_of(trailer)) {
                    Some(Kind::Delete | Kind::RangeDelete) => (false, false),
                    Some(_) if self.covers.hide(key, seq_of(trailer)) => (true, false),
                    Some(_) if has_expired(&self.now_ms, &self.reader, trailer, &self.merge) => {
                        (false, true)
                    }
                    Some(_) => {
                        self.end_walk(true);
                        return Ok(true);
                    }
                    None => return Err(unsupported_kind(trailer)),
                };
                self.saved_key.clear();
                self.saved_key.extend_from_slice(key);
                skipping = true;
                if is_covered && self.skip_covered_up()? {
                    continue;
                }
                if has_expired {
                    let expired_ms = split(self.merge.value()).1;
                    self.pass_up(false, true, expired_ms)?;
                    continue;
                }
            }
            self.pass_up(is_spent, skipping, 0)?;
        }
        self.end_walk(true);
        Ok(false)
    }

    /// Moves back to the last key with a visible value.
    fn settle_backward(&mut self) -> Result<()> {
        self.saved_value = None;
        // The value of an older version may be collected already, so only the value of the deciding
        // version is fetched.
        let mut pointer: Option<(u64, Vec<u8>)> = None;
        let mut deciding = false;
        // When the deciding version expired; 0 if it did not.
        let mut expired_ms = 0;
        // Counts entries of `saved_key`.
        let mut entries = 0;
        self.walk.clear();
        while let Some((key, trailer)) = self.merge.current() {
            if self.start.as_ref().is_some_and(|start| key < &start[..]) {
                break;
            }
            if seq_of(trailer) <= self.seq {
                if deciding && key != &self.saved_key[..] {
                    if self.saved_value.is_some() || pointer.is_some() {
                        break;
                    }
                    deciding = false;
                    self.pass_down(mem::take(&mut entries), mem::take(&mut expired_ms))?;
                    self.skip_covered_down()?;
                    continue;
                }
                if !deciding {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(key);
                    deciding = true;
                }
                pointer = None;
                expired_ms = 0;
                self.saved_value = match Kind::from_u8(kind_of(trailer)) {
                    Some(Kind::Delete | Kind::RangeDelete) => None,
                    Some(_) if self.covers.hide(key, seq_of(trailer)) => None,
                    Some(_) if has_expired(&self.now_ms, &self.reader, trailer, &self.merge) => {
                        expired_ms = split(self.merge.value()).1;
                        None
                    }
                    Some(Kind::Put | Kind::ExpiringPut) => Some(self.pin_inline_value()),
                    Some(_) => {
                        pointer = Some((trailer, self.merge.value().to_vec()));
                        None
                    }
                    None => return Err(unsupported_kind(trailer)),
                };
                self.saved_expiry = (trailer, expiry_of(trailer, self.merge.value()));
            }
            entries += 1;
            // A key's first entry is not counted: most keys have only one.
            if entries > 1 && self.versions.pass(key) {
                let visible = seek_trailer(self.seq);
                self.merge.skip_versions(&self.versions.key, visible)?;
            } else {
                self.merge.step()?;
            }
        }
        self.end_walk(false);
        let fetched = pointer.map(|(trailer, bytes)| self.fetch(&self.saved_key, trailer, &bytes));
        match fetched.transpose() {
            Ok(value) => self.saved_value = self.saved_value.take().or(value),
            Err(error) => return self.fail_at(Position::Backward, error),
        }
        if self.saved_value.is_some() {
            self.hidden_passed += entries.saturating_sub(1);
            self.place = Position::Backward;
        }
        Ok(())
    }

    /// Whether the separated value of the current entry is where its pointer says. O(1) reads.
    pub(super) fn value_is_there(&mut self) -> Result<bool> {
        if self.place == Position::Parked {
            let key = mem::take(&mut self.saved_key);
            self.seek(&key)?;
        }
        let Some((_, trailer)) = self.merge.current() else { return Ok(true) };
        if !is_pointer(trailer) {
            return Ok(true);
        }
        let pointer = Pointer::of_entry(self.merge.value())?;
        self.values.file(pointer.store).map_or(Ok(false), |store| store.holds(&pointer))
    }

    /// The value of a visible version whose entry does not contain the value, because it is a
    /// pointer or an operand.
    fn fetch(&self, key: &[u8], trailer: u64, pointer: &[u8]) -> Result<Value> {
        if self.keys_only {
            return Ok(Value::owned([]));
        }
        if is_operand(trailer) {
            let now_ms = *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
            let (keyspace, view) = (&self.keyspace, &self.view()?);
            // A walk over many keys with many operands would write as many values, so only gets
            // write back.
            let (seq, access) = (self.seq, self.access);
            let value = match self.reader.fold(keyspace, view, key, seq, now_ms, access)? {
                Got::Value(value) => value,
                Got::Folded(many) => Some(many.value),
                // A compaction has folded the operands since the view was loaded, and the record of
                // their result hides the record of the base. The present view leads to the result.
                Got::Collected => self.reader.get_registered(&self.keyspace, key, self.seq)?,
            };
            return Ok(value.unwrap_or_else(|| Value::owned([])));
        }
        self.reader.env.metrics.add(Counter::values_read, 1);
        self.values.resolve(key, trailer, pointer, self.access)?.map_or_else(|| gone(key), Ok)
    }

    /// Begins a step. The step sets the place again when it reaches an entry. After an error on the
    /// way, the merge may be anywhere, even on entries that should be skipped.
    #[inline]
    fn leave(&mut self) -> Result<Position> {
        self.steps += 1;
        if self.failed.is_some() {
            self.leave_failed()?;
        }
        Ok(mem::replace(&mut self.place, Position::Nowhere))
    }

    /// Leaves an entry without a value. If there is no entry, the error stays.
    #[cold]
    fn leave_failed(&mut self) -> Result<()> {
        match self.failed.take() {
            Some(error) if self.place == Position::Nowhere => Err(*error),
            _ => Ok(()),
        }
    }

    /// Reaches an entry that has no value.
    #[cold]
    fn fail_at(&mut self, place: Position, error: Error) -> Result<()> {
        self.place = place;
        // `ahead` has no value for this entry, but has one for the next entry, which the empty
        // value would hide.
        self.saved_value = (place != Position::ReadAhead).then(|| Value::owned([]));
        self.failed = Some(Box::new(error.clone()));
        Err(error)
    }

    /// Notes the error of a step or seek that reached no entry.
    #[cold]
    pub(super) fn note(&mut self, error: &Error) {
        if self.place == Position::Nowhere {
            self.failed = Some(Box::new(error.clone()));
        }
    }

    /// Charges the tables that may contain the current key, as gets charge the tables that they
    /// search: overlapping tables slow down a cursor too. Returns how many bytes to show before the
    /// next sample.
    #[cold]
    pub(super) fn sample(&self) -> u64 {
        if self.view.as_ref().is_some_and(|view| view.version.charge_sample(self.entry().0)) {
            self.reader.stir(&self.keyspace);
        }
        self.keyspace.bytes_to_sample()
    }

    /// Counts a seek as a read of its key, if it is sampled.
    #[inline]
    fn note_heat(&self, key: &[u8]) {
        if sampled() {
            self.reader.env.metrics.heat.note(self.keyspace.id, key, Instant::now());
        }
    }

    /// Begins a seek, as [`Walker::leave`] begins a step.
    fn begin_seek(&mut self) -> Result<()> {
        self.place = Position::Nowhere;
        self.failed = None;
        if self.view.is_none() {
            // The walk tries again, because it could not continue in the present view when the
            // cursor was notified.
            self.catch_up()?;
        }
        let runs = self.merge.run_count() as u64;
        self.reader.env.metrics.add_all(&[(Counter::seeks, 1), (Counter::runs_sought, runs)]);
        Ok(())
    }
}

impl Park for Walker {
    /// Keeps the sequence number, the key and the entry that the cursor shows, if the view is out
    /// of date.
    fn park(&mut self) -> Option<Left> {
        let is_old = |view: &mut Arc<View>| !Arc::ptr_eq(view, &self.keyspace.view.load());
        if self.held.is_none() || self.keyspace.check_open().is_err() {
            return None;
        }
        let view = self.view.take_if(is_old)?;
        self.saved_expiry = self.trailer_and_expiry();
        let merge = mem::replace(&mut self.merge, MergeIter::new(Vec::new()));
        // Entries that an earlier walk forward has read ahead are dropped, too.
        let (mut ahead, values) = (mem::take(&mut self.ahead), mem::take(&mut self.values));
        let sources = match self.place {
            Position::Forward => {
                let (trailer, key) = merge.current().map_or((0, &[][..]), |(key, t)| (t, key));
                self.saved_key.clear();
                self.saved_key.extend_from_slice(key);
                let tail = tail_of(trailer, merge.value());
                let (current, others) = merge.into_current();
                self.kept = current.map_or(Kept::Nothing, |source| Kept::of(source, tail));
                others
            }
            Position::ReadAhead => {
                self.saved_key.clear();
                self.saved_key.extend_from_slice(ahead.key());
                self.kept = Kept::ahead(mem::take(&mut ahead));
                merge.into_current().1
            }
            _ => merge.into_current().1,
        };
        if self.place != Position::Nowhere {
            self.place = Position::Parked;
        }
        Some(Box::new((view, values, sources, ahead, mem::take(&mut self.covers))))
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        self.reader.env.metrics.add_all(&[
            (Counter::iterated, self.steps),
            (Counter::hidden_passed, self.hidden_passed),
        ]);
    }
}

/// The number of bytes after the value in an entry.
#[inline]
fn tail_of(trailer: u64, value: &[u8]) -> usize {
    if expires(trailer) { EXPIRY_BYTES.min(value.len()) } else { 0 }
}

/// The value that an entry contains.
#[inline]
fn without_expiry(trailer: u64, value: &[u8]) -> &[u8] {
    &value[..value.len() - tail_of(trailer, value)]
}

/// Whether the current entry has expired, by the time of the cursor.
#[inline]
fn has_expired(now_ms: &OnceLock<u64>, reader: &Reader, trailer: u64, merge: &MergeIter) -> bool {
    expires(trailer) && split(merge.value()).1 <= *now_ms.get_or_init(|| reader.env.watch.now_ms())
}
