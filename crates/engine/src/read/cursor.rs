//! A position among the visible keys of a keyspace. The walk is in `walker/`.

use std::mem;
use std::sync::Arc;

use runstone_storage::fork::Process;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::expiry::Expiry;
use crate::read::ends::Walking;
use crate::read::get::Reader;
use crate::read::lent::Lent;
use crate::read::options::ReadOptions;
use crate::read::walker::Walker;
use crate::values::{COPIED_BYTES, Value};

use crate::visibility::snapshot::Visibility;
use crate::visibility::standing::Owner;

/// A position among the visible keys of a keyspace, at one moment.
///
/// If the value of an entry cannot be computed or read, the call that reaches the entry fails. The
/// cursor then shows the key but is not valid, and the next step continues after the entry. After
/// any other error the cursor is on no entry, and each step fails until the next seek, so that no
/// error looks like the end.
///
/// A cursor sees the store as of the moment at which it was opened, or as of its snapshot, and
/// compactions keep what it sees. When a memtable is flushed or tables are replaced, the cursor
/// releases them, even if nobody moves it. The cursor keeps the block of its entry, and its next
/// step costs a seek. If the cursor has released its memtables or tables and the store is then
/// closed, a step fails.
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
    lent: Lent,
    /// Whether the cursor is on an entry; `is_valid` says whether that entry has a value.
    is_on_key: bool,
    is_valid: bool,
    /// Bytes of keys and values to show before an entry is sampled, see [`Walker::sample`]; `None`
    /// if no policy wanted samples when it was opened.
    unsampled: Option<u64>,
    /// The process that opened the store. It is kept here because each step checks it.
    process: Process,
    walker: Owner<Walker>,
    visibility: Arc<Visibility>,
    /// The cursor's place in the list of all cursors.
    slot: usize,
}

impl Cursor {
    pub(crate) fn open(
        reader: &Arc<Reader>,
        keyspace: &Arc<KeyspaceCore>,
        options: ReadOptions,
    ) -> Result<Cursor> {
        let walker = Owner::new(Walker::open(reader, keyspace, options)?);
        let visibility = Arc::clone(&reader.visibility);
        let slot = visibility.cursors.add(Arc::clone(walker.standing()) as _);
        let process = keyspace.process();
        let is_sampled = keyspace.view.load().version.wants_samples();
        let unsampled = is_sampled.then(|| keyspace.bytes_to_sample());
        let (lent, is_on_key, is_valid) = (Lent::NOTHING, false, false);
        let mut cursor =
            Cursor { lent, is_on_key, is_valid, unsampled, process, walker, visibility, slot };
        // If a thread replaced the view after the walker loaded it, that thread did not know of the
        // cursor yet.
        cursor.walker.enter().catch_up()?;
        Ok(cursor)
    }

    /// Whether the cursor is on an entry with a value.
    #[inline]
    pub fn valid(&self) -> bool {
        self.is_valid
    }

    /// Whether the cursor is on an entry, with a value or not.
    #[inline]
    pub(crate) fn is_on_key(&self) -> bool {
        self.is_on_key
    }

    /// Whether this process opened the store, and is not a fork of that process.
    #[inline]
    pub(crate) fn is_at_home(&self) -> bool {
        self.process.is_current()
    }

    /// Why the current entry has no value.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.walker.look().failure().cloned()
    }

    /// The key of the current entry; empty if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.lent.key()
    }

    /// The value of the current entry; empty if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.lent.value()
    }

    /// The value of the current entry, which stays valid after the next step.
    pub fn pin_value(&self) -> Value {
        match self.value().len() > COPIED_BYTES && self.is_at_home() {
            true => self.walker.look().pin_value(),
            false => Value::owned(self.value()),
        }
    }

    /// The time until which the key of the current entry has its value. If the value was computed
    /// from operands and a base that expires, it changes at that time: then the operands apply to
    /// nothing. O(1), and O(operands) for such a value.
    pub fn expiry(&self) -> Result<Expiry> {
        match self.is_at_home() {
            true => self.walker.look().expiry(self.key()),
            false => Err(Error::OtherProcess),
        }
    }

    /// Moves to the first key at or after `key`, inside the bounds.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|walker| walker.seek(key.as_ref()))
    }

    /// Moves to the last key at or before `key`, inside the bounds.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|walker| walker.seek_for_prev(key.as_ref()))
    }

    /// Moves to the first key inside the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.go(Walker::seek_to_first)
    }

    /// Moves to the last key inside the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.go(Walker::seek_to_last)
    }

    /// Moves to the next key. It is not `Iterator::next`, because a cursor lends its entry and can
    /// fail.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.go(Walker::step_up)
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<()> {
        self.go(Walker::step_down)
    }

    /// Whether the separated value of the current entry is where its pointer says. O(1) reads.
    pub(crate) fn value_is_there(&mut self) -> Result<bool> {
        let mut is_there = true;
        self.go(|walker| {
            is_there = walker.value_is_there()?;
            Ok(())
        })?;
        Ok(is_there)
    }

    /// Moves the walker, and shows its entry. A forked process takes no step, because it could wait
    /// for a lock that a thread of the other process held.
    #[inline]
    fn go(&mut self, step: impl FnOnce(&mut Walker) -> Result<()>) -> Result<()> {
        if !self.is_at_home() {
            (self.lent, self.is_on_key, self.is_valid) = (Lent::NOTHING, false, false);
            return Err(Error::OtherProcess);
        }
        let mut inside = self.walker.enter();
        let outcome = match inside.is_called {
            false => step(&mut inside),
            true => inside.catch_up().and_then(|()| step(&mut inside)),
        };
        if let Err(error) = &outcome {
            inside.note(error);
        }
        self.lent = Lent::of(inside.entry());
        self.is_on_key = inside.is_on_key();
        self.is_valid = self.is_on_key && inside.failure().is_none();
        if let Some(left) = &mut self.unsampled {
            let shown = self.lent.key().len() + self.lent.value().len();
            *left = left.checked_sub(shown as u64).unwrap_or_else(|| inside.sample());
        }
        outcome
    }
}

impl Drop for Cursor {
    /// A forked process frees none of the shared memory, because it would wait for locks that
    /// threads of the other process held.
    fn drop(&mut self) {
        match self.is_at_home() {
            true => self.visibility.cursors.remove(self.slot),
            false => {
                mem::forget((Arc::clone(self.walker.standing()), Arc::clone(&self.visibility)))
            }
        }
    }
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
