//! A parked cursor keeps only this part of the memory of its sources. It contains the key and the
//! value that the cursor shows, which the user may have borrowed.

use crate::format::block::BlockCursor;
use crate::memtable::PinnedRecord;
use crate::read::ahead::ReadAhead;
use crate::read::source::Source;
use crate::values::Value;

/// The memory that contains the entry.
#[derive(Debug)]
pub(super) enum Kept {
    Nothing,
    /// A cursor on the entry, and the number of bytes after the value.
    Block(BlockCursor, usize),
    /// A record of a memtable, and the number of bytes after the value.
    Record(PinnedRecord, usize),
    /// Entries that were read ahead. Only the current one still has its value.
    Ahead(ReadAhead),
}

impl Kept {
    /// The current entry of a source. Its last `tail` bytes do not belong to the value.
    pub(super) fn of(source: Source, tail: usize) -> Kept {
        match source {
            Source::Memtable(memtable, iter) => match iter.record() {
                Some(record) => Kept::Record(memtable.pin(record), tail),
                None => Kept::Nothing,
            },
            Source::Run(iter) => {
                iter.into_cursor().map_or(Kept::Nothing, |cursor| Kept::Block(cursor, tail))
            }
        }
    }

    /// The current one of several entries that were read ahead.
    pub(super) fn ahead(mut ahead: ReadAhead) -> Kept {
        ahead.forget_others();
        Kept::Ahead(ahead)
    }

    pub(super) fn pin_value(&self) -> Value {
        match self {
            Kept::Nothing => Value::owned([]),
            Kept::Block(cursor, tail) => {
                let (block, at, len) = cursor.pin();
                Value::in_block(block, at, len).without_end(*tail)
            }
            Kept::Record(record, tail) => Value::pinned(record.clone()).without_end(*tail),
            Kept::Ahead(ahead) => ahead.value().cloned().unwrap_or_else(|| Value::owned([])),
        }
    }
}
