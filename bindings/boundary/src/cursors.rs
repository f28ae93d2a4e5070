//! One type for cursors of stores and of transactions.

use runstone::Cursor;

use crate::failure::Result;
use crate::transactions::{Move, PagedCursor};

/// A cursor of a store or of a transaction.
#[derive(Debug)]
pub enum AnyCursor {
    /// A cursor of a store.
    Store(Box<Cursor>),
    /// A cursor of a transaction.
    Transaction(PagedCursor),
}

impl From<Cursor> for AnyCursor {
    fn from(cursor: Cursor) -> AnyCursor {
        AnyCursor::Store(Box::new(cursor))
    }
}

impl AnyCursor {
    /// Moves the cursor.
    #[inline]
    pub fn go(&mut self, to: Move<'_>) -> Result<()> {
        match self {
            AnyCursor::Transaction(cursor) => cursor.go(to),
            AnyCursor::Store(cursor) => Ok(match to {
                Move::First => cursor.seek_to_first(),
                Move::Last => cursor.seek_to_last(),
                Move::Next => cursor.next(),
                Move::Previous => cursor.prev(),
                Move::Seek(key) => cursor.seek(key),
                Move::SeekForPrevious(key) => cursor.seek_for_prev(key),
            }?),
        }
    }

    /// The current entry.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self {
            AnyCursor::Store(cursor) => cursor.valid().then(|| (cursor.key(), cursor.value())),
            AnyCursor::Transaction(cursor) => cursor.entry(),
        }
    }
}
