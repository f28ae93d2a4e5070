//! What a parked cursor keeps of its sources: the memory that holds the key and the value which it
//! shows. Its user may have borrowed both.

use crate::format::block::BlockCursor;
use crate::memtable::PinnedRecord;
use crate::read::ahead::ReadAhead;
use crate::read::source::Source;
use crate::values::Value;

/// What holds the entry.
#[derive(Debug)]
pub(super) enum Kept {
    Nothing,
    /// A block, which is on the entry, and the bytes behind the value.
    Block(BlockCursor, usize),
    /// A record of a memtable, and the bytes behind the value.
    Record(PinnedRecord, usize),
    /// Entries read ahead, of which the others have no values any more.
    Ahead(ReadAhead),
}

impl Kept {
    /// The current entry of a source, of which the last `tail` bytes are not the value.
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

    /// The current one of several entries.
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
