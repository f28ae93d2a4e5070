//! Shows what a reader sees: the newest visible version of each key inside its bounds, in both
//! directions.
//!
//! Forward, the first visible version of a key decides, and the others are skipped. Backward, the
//! versions of a key come oldest first: the last visible one before the key changes decides, and
//! the merge then already stands on the previous key.

use std::mem;
use std::sync::{Arc, OnceLock};

use runstone_storage::fork::Process;

use crate::base::error::{Error, Result, unsupported_kind};
use crate::base::expiry::{EXPIRY_BYTES, Expiry, expires, expiry_of, split};
use crate::base::key::{Kind, SeqNo, is_pointer, kind_of, seek_trailer, seq_of};
use crate::base::metrics::Counter;
use crate::catalog::dead_ranges::{DeadRange, Sees, Walk};
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::format::block::{AFTER_ALL_VERSIONS, BEFORE_ALL_VERSIONS};
use crate::format::record::Pointer;
use crate::read::ahead::{Next, ReadAhead, gone};
use crate::read::covers::Covers;
use crate::read::ends::Walking;
use crate::read::get::{Got, Moment, Reader};
use crate::read::merge::MergeIter;
use crate::read::options::ReadOptions;
use crate::read::source::sources;
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::lookup::FoundValue;
use crate::values::separation::{Pace, ValueFiles};
use crate::visibility::snapshot::Snapshot;

/// Versions of one key that a cursor steps over before it seeks behind the others. A seek costs as
/// much as some ten steps. The number is small in builds that seek bugs, so that few versions do.
const PATIENCE: u64 = if cfg!(feature = "seeded-bugs") { 2 } else { 8 };

/// Steps until a walk looks whether the store has moved on from what the cursor holds.
const RENEWAL_STEPS: u64 = if cfg!(feature = "seeded-bugs") { 4 } else { 1024 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Nowhere,
    /// On the merge's current entry.
    Forward,
    /// On an entry of `ahead`. The merge is behind the last of them, whose key is saved.
    ReadAhead,
    /// On the saved entry. The merge is before it.
    Backward,
}

/// A position among the visible keys of a keyspace, at one moment.
///
/// If the value of one entry cannot be made or read, the call that comes to it fails. The cursor
/// tells its key and is not valid, and the next step goes on behind it. After any other error it is
/// on no entry, and each step fails until the next seek: no error looks like the end.
///
/// A cursor keeps the memtables and tables that were there when it was opened. A cursor at a
/// snapshot, and so each [`Scan`], lets go of those that left the store when it seeks and as it
/// walks forward.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
/// use runstone::ReadOptions;
///
/// for key in ["a", "b", "c"] {
///     store.put(key, "value")?;
/// }
/// let mut cursor = store.default_keyspace().cursor(ReadOptions::default())?;
/// cursor.seek(b"b")?;
/// while cursor.valid() {
///     println!("{:?} = {:?}", cursor.key(), cursor.value());
///     cursor.next()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cursor {
    merge: MergeIter,
    place: Position,
    seq: SeqNo,
    sees: Sees,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// Forward: the key to skip. Backward: the current key.
    saved_key: Vec<u8>,
    saved_value: Option<Value>,
    /// Why the current entry has no value; without an entry, why steps fail.
    failed: Option<Box<Error>>,
    /// The one that opened the store. Here, because each step asks.
    process: Process,
    /// The trailer of the saved entry, and when it expires.
    saved_expiry: (u64, Option<u64>),
    /// The time by which entries have expired, from the first one that can on.
    now_ms: OnceLock<u64>,
    reader: Arc<Reader>,
    keyspace: Arc<KeyspaceCore>,
    steps: u64,
    /// The step at which the walk looks whether the store has moved on.
    renewal_at: u64,
    hidden_passed: u64,
    /// The entries passed on the way to the current one.
    walk: Walk,
    versions: Versions,
    /// The range deletes that it sees.
    covers: Covers,
    /// Keeps memtables and tables alive.
    view: Arc<View>,
    /// Entries read ahead while the walk goes forward and values are separated.
    ahead: ReadAhead,
    /// How separated values are read.
    access: Access,
    /// How many entries to read ahead next time.
    ahead_count: usize,
    /// How that number grows.
    pace: Pace,
    /// The files that hold separated values.
    values: Arc<ValueFiles>,
    keys_only: bool,
    /// Keeps all that the cursor sees in the store.
    held: Option<Snapshot>,
}

impl Cursor {
    pub(crate) fn open(
        reader: &Arc<Reader>,
        keyspace: &Arc<KeyspaceCore>,
        options: ReadOptions,
    ) -> Result<Cursor> {
        options.check_bounds()?;
        match &options.snapshot {
            None => keyspace.check_readable()?,
            Some(snapshot) => {
                keyspace.check_open()?;
                reader.check_snapshot(snapshot)?;
            }
        }
        let before = reader.visibility.now();
        let (moment, now) = reader.moment_now(keyspace, options.snapshot.as_ref());
        let Moment { view, values, held } = moment;
        let access = Access::Cached { fill: options.fill_cache };
        let pace = values.pace(keyspace.options.load().values.scan_ahead_bytes);
        let seq = held.as_ref().map_or(now, Snapshot::seq);
        Ok(Cursor {
            merge: MergeIter::new(sources(&view, access)),
            place: Position::Nowhere,
            seq,
            sees: if seeded!(DeadRangesProvedByNumber) { seq..=seq } else { before.min(seq)..=seq },
            start: options.start,
            end: options.end,
            saved_key: Vec::new(),
            saved_value: None,
            failed: None,
            process: keyspace.process(),
            saved_expiry: (0, None),
            now_ms: OnceLock::new(),
            reader: Arc::clone(reader),
            keyspace: Arc::clone(keyspace),
            steps: 0,
            renewal_at: RENEWAL_STEPS,
            hidden_passed: 0,
            walk: Walk::default(),
            versions: Versions::default(),
            covers: Covers::of(&view, seq),
            view,
            ahead: ReadAhead::default(),
            access,
            ahead_count: pace.least,
            pace,
            values,
            keys_only: options.keys_only,
            held,
        })
    }

    /// Whether the cursor is on an entry with a value.
    #[inline]
    pub fn valid(&self) -> bool {
        self.place != Position::Nowhere && self.failed.is_none()
    }

    /// Whether the cursor is on an entry, with a value or not.
    #[inline]
    pub(crate) fn is_on_key(&self) -> bool {
        self.place != Position::Nowhere
    }

    /// Whether this process opened the store, and is no fork of the one that did.
    #[inline]
    pub(crate) fn is_at_home(&self) -> bool {
        self.process.is_current()
    }

    /// Frees nothing of what it shares: in a fork that would wait for locks which threads of the
    /// other process held.
    #[cold]
    fn leave_behind(&mut self) {
        mem::forget(mem::replace(&mut self.merge, MergeIter::new(Vec::new())));
        mem::forget((mem::take(&mut self.ahead), self.saved_value.take()));
        mem::forget((Arc::clone(&self.view), Arc::clone(&self.values)));
        mem::forget((Arc::clone(&self.reader), Arc::clone(&self.keyspace)));
    }

    /// Why the current entry has no value.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failed.as_deref()
    }

    /// The key of the current entry; empty if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.place {
            Position::Forward => self.merge.current().map_or(&[], |(key, _)| key),
            Position::ReadAhead => self.ahead.key(),
            Position::Backward => &self.saved_key,
            Position::Nowhere => &[],
        }
    }

    /// The value of the current entry; empty if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match (self.place, &self.saved_value) {
            (Position::ReadAhead, _) => self.ahead.value().map_or(&[], |value| value),
            (_, Some(value)) => value,
            (Position::Forward, None) => self.inline_value(),
            _ => &[],
        }
    }

    /// The value of the current entry, which stays valid after the next step.
    pub fn pin_value(&self) -> Value {
        match (self.place, &self.saved_value) {
            (Position::ReadAhead, _) => {
                self.ahead.value().cloned().unwrap_or_else(|| Value::owned([]))
            }
            (_, Some(value)) => value.clone(),
            (Position::Forward, None) => self.pin_inline_value(),
            _ => Value::owned([]),
        }
    }

    /// Until when the key of the current entry has its value. A value that operands made of one
    /// that expires changes then: it is what they make of nothing from there on. O(1), and
    /// O(operands) for such a value.
    pub fn expiry(&self) -> Result<Expiry> {
        let (trailer, expiry_ms) = match self.place {
            Position::Forward => {
                let current = self.merge.current();
                let trailer = current.map_or(0, |(_, trailer)| trailer);
                (trailer, expiry_of(trailer, self.merge.value()))
            }
            Position::ReadAhead => self.ahead.expiry(),
            Position::Backward => self.saved_expiry,
            Position::Nowhere => (0, None),
        };
        if !self.valid() || kind_of(trailer) != Kind::Merge as u8 {
            return Ok(Expiry::of(expiry_ms));
        }
        let now_ms = *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
        let (keyspace, view, key) = (&self.keyspace, &self.view, self.key());
        let (reader, access) = (&self.reader, self.access);
        reader.fold_expiry_ms(keyspace, view, key, self.seq, now_ms, access).map(Expiry::of)
    }

    /// The value that the merge's current entry holds.
    #[inline]
    fn inline_value(&self) -> &[u8] {
        let value = self.merge.value();
        &value[..value.len() - self.tail()]
    }

    fn pin_inline_value(&self) -> Value {
        self.merge.pin_value().without_end(self.tail())
    }

    /// Bytes behind the value in the merge's current entry.
    #[inline]
    fn tail(&self) -> usize {
        let expires = self.merge.current().is_some_and(|(_, trailer)| expires(trailer));
        if expires { EXPIRY_BYTES.min(self.merge.value().len()) } else { 0 }
    }

    /// Moves to the first key at or after `key`, inside the bounds.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_key(key.as_ref())
    }

    fn seek_key(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.go_to(key);
        outcome.inspect_err(|error| self.note(error))
    }

    fn go_to(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek()?;
        let from = match &self.start {
            Some(start) if &start[..] > key => start,
            _ => key,
        };
        self.merge.seek(from, seek_trailer(self.seq))?;
        self.settle_forward(false)
    }

    /// Moves to the last key at or before `key`, inside the bounds.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_key_for_prev(key.as_ref())
    }

    fn seek_key_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.go_to_prev(key);
        outcome.inspect_err(|error| self.note(error))
    }

    fn go_to_prev(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek()?;
        match &self.end {
            Some(end) if &end[..] <= key => self.merge.seek_before(end, BEFORE_ALL_VERSIONS)?,
            _ => {
                // Versions of `key` itself count, so the seek goes before the first entry after all
                // of them.
                let mut behind = key.to_vec();
                behind.push(0);
                self.merge.seek_before(&behind, BEFORE_ALL_VERSIONS)?;
            }
        }
        self.settle_backward()
    }

    /// Moves to the first key inside the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let begun = self.begin_seek();
        let sought = begun.and_then(|()| match &self.start {
            Some(start) => self.merge.seek(start, BEFORE_ALL_VERSIONS),
            None => self.merge.seek_to_first(),
        });
        let outcome = sought.and_then(|()| self.settle_forward(false));
        outcome.inspect_err(|error| self.note(error))
    }

    /// Moves to the last key inside the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        let begun = self.begin_seek();
        let sought = begun.and_then(|()| match &self.end {
            Some(end) => self.merge.seek_before(end, BEFORE_ALL_VERSIONS),
            None => self.merge.seek_to_last(),
        });
        let outcome = sought.and_then(|()| self.settle_backward());
        outcome.inspect_err(|error| self.note(error))
    }

    /// Moves to the next key. It is not `Iterator::next`, because a cursor lends its entry and can
    /// fail.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let outcome = self.step_up();
        outcome.inspect_err(|error| self.note(error))
    }

    #[inline]
    fn step_up(&mut self) -> Result<()> {
        match self.leave()? {
            Position::Nowhere => Ok(()),
            Position::Forward => {
                self.save_current_key();
                if !self.renew_in_time()? {
                    self.merge.step()?;
                }
                if self.values.is_empty() || self.keys_only {
                    return self.settle_forward(true);
                }
                self.read_ahead()
            }
            Position::ReadAhead => {
                self.ahead.step();
                if !self.ahead.is_spent() || self.ahead.error.is_some() {
                    return self.show_ahead();
                }
                self.renew_in_time()?;
                self.read_ahead()
            }
            Position::Backward => {
                // The merge is before the current key and walks backward; the seek turns it around.
                self.merge.seek(&self.saved_key, BEFORE_ALL_VERSIONS)?;
                self.settle_forward(true)
            }
        }
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<()> {
        let outcome = self.step_down();
        outcome.inspect_err(|error| self.note(error))
    }

    fn step_down(&mut self) -> Result<()> {
        match self.leave()? {
            Position::Nowhere => Ok(()),
            Position::Forward => {
                self.save_current_key();
                self.merge.seek_before(&self.saved_key, BEFORE_ALL_VERSIONS)?;
                self.settle_backward()
            }
            Position::ReadAhead => {
                self.merge.seek_before(self.ahead.key(), BEFORE_ALL_VERSIONS)?;
                self.ahead.clear();
                self.settle_backward()
            }
            Position::Backward => self.settle_backward(),
        }
    }

    /// Moves the merge onto the present view, to the first entry of `saved_key`, if it is time and
    /// the view is another. Returns whether it did.
    fn renew_in_time(&mut self) -> Result<bool> {
        if self.steps < self.renewal_at {
            return Ok(false);
        }
        self.renewal_at = self.steps + RENEWAL_STEPS;
        let is_new = self.renew();
        if is_new {
            self.merge.seek(&self.saved_key, BEFORE_ALL_VERSIONS)?;
        }
        Ok(is_new)
    }

    /// Takes the present view instead of an older one, if a snapshot keeps what the cursor sees. A
    /// seek must follow if it returns `true`.
    fn renew(&mut self) -> bool {
        let Some(held) = &self.held else { return false };
        // The files of a closed store may belong to another process.
        if self.keyspace.check_open().is_err() {
            return false;
        }
        if Arc::ptr_eq(&self.view, &self.keyspace.view.load()) {
            return false;
        }
        let Moment { view, values, .. } = self.reader.moment(&self.keyspace, Some(held));
        self.merge = MergeIter::new(sources(&view, self.access));
        self.covers = Covers::of(&view, self.seq);
        (self.view, self.values) = (view, values);
        true
    }

    fn save_current_key(&mut self) {
        self.saved_key.clear();
        if let Some((key, _)) = self.merge.current() {
            self.saved_key.extend_from_slice(key);
        }
    }

    /// Gathers the next entries and their separated values. Entries of `saved_key` are skipped. An
    /// error on the way is told behind the entries before it.
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
        // A lone value is read when it is shown.
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
            let found = match is_put(trailer) {
                true => Ok(self.pin_inline_value()),
                false => self.fetch(&self.saved_key, trailer, &[]),
            };
            (None, found.map(FoundValue::Value))
        };
        self.ahead.push(&self.saved_key, Next { trailer, expiry_ms, pointer, found });
        self.merge.step()?;
        Ok(Some(bytes))
    }

    /// Moves onto the current entry of `ahead`. A value that cannot be read is an error only when
    /// the walk reaches it.
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
        self.saved_value = None;
        self.ahead.clear();
        self.ahead_count = self.pace.least;
        if !self.find_forward(skipping)? {
            return Ok(());
        }
        if let Some((key, trailer)) = self.merge.current().filter(|(_, t)| !is_put(*t)) {
            match self.fetch(key, trailer, self.merge.value()) {
                Ok(value) => self.saved_value = Some(value),
                Err(error) => return self.fail_at(Position::Forward, error),
            }
        }
        self.place = Position::Forward;
        Ok(())
    }

    /// Moves the merge on to the first visible entry; `false` if there is none. If `skipping`,
    /// entries of `saved_key` are skipped.
    fn find_forward(&mut self, mut skipping: bool) -> Result<bool> {
        self.walk.clear();
        if !skipping {
            // Left by an earlier walk; `end_walk` would take it for the last key that this walk
            // passed.
            self.saved_key.clear();
        }
        while let Some((key, trailer)) = self.merge.current() {
            if self.end.as_ref().is_some_and(|end| key >= &end[..]) {
                break;
            }
            let is_spent = skipping && key == &self.saved_key[..];
            if seq_of(trailer) <= self.seq && !is_spent {
                let (is_covered, is_past) = match Kind::from_u8(kind_of(trailer)) {
                    Some(Kind::Delete | Kind::RangeDelete) => (false, false),
                    Some(_) if self.covers.hide(key, seq_of(trailer)) => (true, false),
                    Some(_) if is_past(&self.now_ms, &self.reader, trailer, &self.merge) => {
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
                if is_past {
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

    /// Skips what the range delete over `saved_key` hides behind that, except in sources that may
    /// hold newer entries. Returns whether the merge has moved on.
    #[inline(never)]
    fn skip_covered_up(&mut self) -> Result<bool> {
        let stretch = self.covers.around(&self.saved_key);
        let moved = self.merge.skip_covered(stretch.end.as_deref(), stretch.seq)?;
        self.hidden_passed += u64::from(moved);
        // What was skipped lies between the keys that the walk passes.
        if moved {
            self.walk.pass_up(&self.saved_key, 0);
        }
        Ok(moved)
    }

    /// The same on the way down, from the current key on.
    #[inline(never)]
    fn skip_covered_down(&mut self) -> Result<()> {
        let Some((key, _)) = self.merge.current() else { return Ok(()) };
        let stretch = self.covers.around(key);
        if stretch.seq > 0 {
            self.merge.skip_covered(stretch.start.as_deref(), stretch.seq)?;
        }
        Ok(())
    }

    /// The dead range that the cursor may jump over from this key.
    fn range_over(&self, key: &[u8]) -> Option<Arc<DeadRange>> {
        let now_ms = || *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
        self.keyspace.dead_ranges.over(key, &self.sees, now_ms)
    }

    /// Steps past a hidden entry, or jumps over the dead range or the versions of a key that it is
    /// among. `expired_ms` is when the entry expired, or 0. Not inlined, so that walks without
    /// hidden entries stay fast.
    #[inline(never)]
    fn pass_up(&mut self, is_spent: bool, skipping: bool, expired_ms: u64) -> Result<()> {
        self.hidden_passed += 1;
        let Some((key, _)) = self.merge.current() else { return Ok(()) };
        // Versions of a key that was shown belong to no dead range.
        let is_inside = !is_spent || !self.walk.is_empty();
        if is_inside
            && self.walk.pass_up(key, expired_ms)
            && let Some(range) = self.range_over(key)
        {
            self.walk.jump_up(&range);
            return self.merge.seek(&range.high, BEFORE_ALL_VERSIONS);
        }
        if self.versions.pass(key) {
            // Either the key is decided, or its first visible version decides.
            let is_decided =
                skipping && key == &self.saved_key[..] || seeded!(VersionsSkippedForAllSnapshots);
            let next = if is_decided { AFTER_ALL_VERSIONS } else { seek_trailer(self.seq) };
            return self.merge.skip_versions(&self.versions.key, next);
        }
        self.merge.step()
    }

    /// Passes `saved_key` with its hidden entries; `expired_ms` is when the deciding one expired,
    /// or 0. If the next key lies in a dead range, jumps over the range.
    #[inline(never)]
    fn pass_down(&mut self, entries: u64, expired_ms: u64) -> Result<()> {
        self.hidden_passed += entries;
        if self.walk.pass_down(&self.saved_key, entries, expired_ms)
            && let Some((key, _)) = self.merge.current()
            && let Some(range) = self.range_over(key)
        {
            self.walk.jump_down(&range);
            return self.merge.seek_before(&range.low, BEFORE_ALL_VERSIONS);
        }
        Ok(())
    }

    /// Ends a walk, upward or downward, that has come to an entry to show, to its bound or to the
    /// end.
    #[inline]
    fn end_walk(&mut self, is_upward: bool) {
        if self.walk.is_long() {
            if is_upward {
                self.walk.end_up(&self.saved_key);
            }
            self.reader.committer.note_walk(&self.keyspace, &self.walk, &self.sees);
        }
    }

    /// Moves back to the last key with a visible value.
    fn settle_backward(&mut self) -> Result<()> {
        self.saved_value = None;
        // An older version's value may be collected already, so only the deciding one is fetched.
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
                    Some(_) if is_past(&self.now_ms, &self.reader, trailer, &self.merge) => {
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
    pub(crate) fn value_is_there(&self) -> Result<bool> {
        let Some((_, trailer)) = self.merge.current() else { return Ok(true) };
        if !is_pointer(trailer) {
            return Ok(true);
        }
        let pointer = Pointer::of_entry(self.merge.value())?;
        self.values.file(pointer.store).map_or(Ok(false), |store| store.holds(&pointer))
    }

    /// The value of a visible version that does not hold it: it points there, or is an operand.
    fn fetch(&self, key: &[u8], trailer: u64, pointer: &[u8]) -> Result<Value> {
        if self.keys_only {
            return Ok(Value::owned([]));
        }
        if kind_of(trailer) == Kind::Merge as u8 {
            let now_ms = *self.now_ms.get_or_init(|| self.reader.env.watch.now_ms());
            let (keyspace, view) = (&self.keyspace, &self.view);
            // A walk over many keys with many operands would write as many: only gets do.
            let (seq, access) = (self.seq, self.access);
            let value = match self.reader.fold(keyspace, view, key, seq, now_ms, access)? {
                Got::Value(value) => value,
                Got::Folded(many) => Some(many.value),
                // A compaction has folded the operands since the view was loaded, and the record of
                // their result hides that of the base. The present view leads to the result.
                Got::Collected => self.reader.get_registered(&self.keyspace, key, self.seq)?,
            };
            return Ok(value.unwrap_or_else(|| Value::owned([])));
        }
        self.reader.env.metrics.add(Counter::values_read, 1);
        self.values.resolve(key, trailer, pointer, self.access)?.map_or_else(|| gone(key), Ok)
    }

    /// Begins a step. The step sets the place again when it comes to an entry: after another error
    /// the merge may be anywhere, even on entries that should be skipped.
    #[inline]
    fn leave(&mut self) -> Result<Position> {
        self.steps += 1;
        if self.failed.is_some() || !self.is_at_home() {
            self.leave_failed()?;
        }
        Ok(mem::replace(&mut self.place, Position::Nowhere))
    }

    /// Leaves an entry without a value. Where there is no entry, the error holds. A fork has no
    /// step: it could wait for a lock that a thread of the other process held.
    #[cold]
    fn leave_failed(&mut self) -> Result<()> {
        if !self.is_at_home() {
            self.place = Position::Nowhere;
            return Err(Error::OtherProcess);
        }
        match self.failed.take() {
            Some(error) if self.place == Position::Nowhere => Err(*error),
            _ => Ok(()),
        }
    }

    /// Comes to an entry that has no value.
    #[cold]
    fn fail_at(&mut self, place: Position, error: Error) -> Result<()> {
        self.place = place;
        self.saved_value = Some(Value::owned([]));
        self.failed = Some(Box::new(error.clone()));
        Err(error)
    }

    /// Notes the error of a step or seek that came to no entry.
    #[cold]
    fn note(&mut self, error: &Error) {
        if self.place == Position::Nowhere {
            self.failed = Some(Box::new(error.clone()));
        }
    }

    /// Begins a seek, as [`Cursor::leave`] begins a step.
    fn begin_seek(&mut self) -> Result<()> {
        self.place = Position::Nowhere;
        self.failed = None;
        if !self.is_at_home() {
            return Err(Error::OtherProcess);
        }
        self.renew();
        let runs = self.merge.run_count() as u64;
        self.reader.env.metrics.add_all(&[(Counter::seeks, 1), (Counter::runs_sought, runs)]);
        Ok(())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if !self.is_at_home() {
            return self.leave_behind();
        }
        self.reader.env.metrics.add_all(&[
            (Counter::iterated, self.steps),
            (Counter::hidden_passed, self.hidden_passed),
        ]);
    }
}

/// Counts the versions of a key that a walk passes in a row.
#[derive(Debug, Default)]
struct Versions {
    key: Vec<u8>,
    passed: u64,
}

impl Versions {
    /// Passes a version. Returns whether to seek behind the others.
    fn pass(&mut self, key: &[u8]) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.passed = 0;
        }
        self.passed += 1;
        self.passed.is_multiple_of(PATIENCE)
    }
}

/// Whether a version holds its value.
#[inline]
fn is_put(trailer: u64) -> bool {
    matches!(kind_of(trailer), 1 | 6)
}

/// Whether the current entry expires and has, by the time of the cursor.
#[inline]
fn is_past(now_ms: &OnceLock<u64>, reader: &Reader, trailer: u64, merge: &MergeIter) -> bool {
    expires(trailer) && split(merge.value()).1 <= *now_ms.get_or_init(|| reader.env.watch.now_ms())
}

impl Walking for Cursor {
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
        self.is_on_key()
    }

    fn key(&self) -> &[u8] {
        Cursor::key(self)
    }

    fn value(&self) -> Value {
        self.pin_value()
    }
}
