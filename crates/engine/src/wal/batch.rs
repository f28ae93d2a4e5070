//! An atomic batch of writes across keyspaces, held in the form in which the log stores it.
//!
//! ```text
//! operation := kind u8 | keyspace varint | key bytes | value bytes (not for deletes of one key)
//!              | place bytes, if the value is a pointer that no collection wrote
//! kind      := the entry's kind ([`Kind`]); 129 for a put that stores what a get has folded
//! value     := ... | expiry u64, in milliseconds since 1970, if the kind says that it expires
//! place     := where the record of the value is in its file (`values/early.rs`)
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use runstone_policy::shape::range_delete::RangeDelete;

use crate::error::{Error, Result};
use crate::keys::codec::{Decoded, Reader, Truncated, put_bytes, put_varint};
use crate::keys::expiry::{self, EXPIRY_BYTES};
use crate::keys::{KeyspaceId, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo, range_delete};

/// The kind of a put that a get made, not a user. Only readers of the history distinguish it from
/// other puts.
const FOLDED_PUT: u8 = 1 << 7 | Kind::Put as u8;

/// Writes that happen together or not at all (P3), in order. A batch names keyspaces by id, so it
/// is valid only for the open store whose handles made it; any other store refuses it.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// The places of the key and the value of the last write.
    key: Range<usize>,
    value: Range<usize>,
    /// The opening of the store to which its handles belong.
    opening: Option<u64>,
    count: u64,
    deletes: u64,
    /// The number of range deletes among the writes.
    range_deletes: u64,
    user_bytes: u64,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation<'a> {
    /// A put, an operand, a delete of a key or a range, or a value pointer that a collection moved.
    pub kind: Kind,
    /// The keyspace to which it writes.
    pub keyspace: KeyspaceId,
    /// The user key; for a range, its first key.
    pub key: &'a [u8],
    /// The value; empty for a delete. For a range, the least key after it; empty if it has no end.
    pub value: &'a [u8],
    /// Whether no user requested this put: a get stored the value that it had made of many operands
    /// of the key. The put does not change what readers of the key see.
    pub is_folded: bool,
    /// The encoded place of the record to which the value points. Empty if the value is no such
    /// pointer.
    pub(crate) place: &'a [u8],
}

impl<'a> Operation<'a> {
    /// The value as it was put, without its expiry. For an operand, the operand; for a range
    /// delete, the end of the range.
    pub fn plain_value(&self) -> &'a [u8] {
        match self.kind {
            Kind::ExpiringPut => expiry::split(self.value).0,
            _ => self.value,
        }
    }

    /// When a put expires, in milliseconds since 1970; `None` if never.
    pub fn expires_ms(&self) -> Option<u64> {
        (self.kind == Kind::ExpiringPut).then(|| expiry::split(self.value).1)
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Binds the batch to an open store, if it is not bound to another.
    pub(crate) fn bind(&mut self, opening: u64) -> Result<()> {
        self.check_for(opening)?;
        self.opening = Some(opening);
        Ok(())
    }

    /// Refuses a store that the batch was not made for, because another store uses the same ids.
    pub(crate) fn check_for(&self, opening: u64) -> Result<()> {
        if self.opening.is_some_and(|own| own != opening) {
            let what = "the batch was made with keyspaces of another store, or before a reopen";
            return Err(Error::invalid(what, "make it anew with keyspaces of this store"));
        }
        Ok(())
    }

    pub(crate) fn push(
        &mut self,
        kind: Kind,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        check_sizes(key.len(), value.len())?;
        self.push_key(kind, keyspace, key);
        if kind != Kind::Delete {
            put_bytes(&mut self.bytes, value);
        }
        self.value = self.bytes.len() - value.len()..self.bytes.len();
        self.deletes += u64::from(matches!(kind, Kind::Delete | Kind::RangeDelete));
        self.range_deletes += u64::from(kind == Kind::RangeDelete);
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds a put that expires.
    pub(crate) fn push_expiring(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        at_ms: u64,
    ) -> Result<()> {
        check_sizes(key.len(), value.len() + EXPIRY_BYTES)?;
        self.push_key(Kind::ExpiringPut, keyspace, key);
        put_varint(&mut self.bytes, (value.len() + EXPIRY_BYTES) as u64);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(&at_ms.to_le_bytes());
        self.value = self.bytes.len() - value.len() - EXPIRY_BYTES..self.bytes.len();
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds a put whose value is in its file already. The value counts as if it were in the batch.
    pub(crate) fn push_early(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        (pointer, place): (&[u8], &[u8]),
        value_bytes: usize,
    ) {
        self.push_key(Kind::ValuePointer, keyspace, key);
        put_bytes(&mut self.bytes, pointer);
        self.value = self.bytes.len() - pointer.len()..self.bytes.len();
        put_bytes(&mut self.bytes, place);
        self.user_bytes += (key.len() + value_bytes) as u64;
    }

    /// Adds a put of the value that a get has folded.
    pub(crate) fn push_folded(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let at = self.bytes.len();
        self.push(Kind::Put, keyspace, key, value)?;
        self.bytes[at] = FOLDED_PUT;
        Ok(())
    }

    /// Adds one write of another batch as it is.
    pub(crate) fn push_same(&mut self, operation: &Operation<'_>) {
        let at = self.bytes.len();
        self.push_key(operation.kind, operation.keyspace, operation.key);
        if operation.is_folded {
            self.bytes[at] = FOLDED_PUT;
        }
        if operation.kind != Kind::Delete {
            put_bytes(&mut self.bytes, operation.value);
        }
        self.value = self.bytes.len() - operation.value.len()..self.bytes.len();
        self.deletes += u64::from(matches!(operation.kind, Kind::Delete | Kind::RangeDelete));
        self.range_deletes += u64::from(operation.kind == Kind::RangeDelete);
        self.user_bytes += (operation.key.len() + operation.value.len()) as u64;
    }

    #[inline]
    fn push_key(&mut self, kind: Kind, keyspace: KeyspaceId, key: &[u8]) {
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, u64::from(keyspace));
        put_bytes(&mut self.bytes, key);
        self.key = self.bytes.len() - key.len()..self.bytes.len();
        self.count += 1;
    }

    /// The kind, key and value of the only write; `None` if there is not exactly one.
    #[inline]
    pub(crate) fn only(&self) -> Option<(Kind, &[u8], &[u8])> {
        if self.count != 1 {
            return None;
        }
        let (kind, _) = decode_kind(self.bytes[0])?;
        Some((kind, &self.bytes[self.key.clone()], &self.bytes[self.value.clone()]))
    }

    /// An empty batch with room for `bytes` of keys and values, and for the fields that accompany
    /// them.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { bytes: Vec::with_capacity(bytes + bytes / 8), ..Batch::default() }
    }

    /// An empty batch of the same open store.
    pub(crate) fn without_writes(&self) -> Batch {
        Batch { opening: self.opening, ..Batch::default() }
    }

    /// Number of writes.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// How many of the writes are deletes.
    pub(crate) fn deletes(&self) -> u64 {
        self.deletes
    }

    /// Whether the batch deletes a range.
    #[inline]
    pub(crate) fn has_range_deletes(&self) -> bool {
        self.range_deletes > 0
    }

    /// The range deletes by keyspace, if the batch begins with `first_seq`.
    pub(crate) fn range_deletes(
        &self,
        first_seq: SeqNo,
    ) -> BTreeMap<KeyspaceId, Vec<Arc<RangeDelete>>> {
        let mut all: BTreeMap<KeyspaceId, Vec<Arc<RangeDelete>>> = BTreeMap::new();
        if self.has_range_deletes() {
            let ranges = (first_seq..).zip(self.operations());
            for (seq, one) in ranges.filter(|(_, one)| one.kind == Kind::RangeDelete) {
                let range = Arc::new(range_delete(one.key, seq, one.value));
                all.entry(one.keyspace).or_default().push(range);
            }
        }
        all
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the batch only deletes, and so frees space on a full disk.
    pub(crate) fn only_deletes(&self) -> bool {
        self.deletes == self.count
    }

    /// Key and value bytes.
    pub fn user_bytes(&self) -> u64 {
        self.user_bytes
    }

    /// Removes all writes, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.opening = None;
        (self.count, self.deletes, self.range_deletes) = (0, 0, 0);
        self.user_bytes = 0;
    }

    /// Frees memory after a large write, if the batch is kept for the next one.
    pub(crate) fn shrink(&mut self) {
        const KEPT_BYTES: usize = 1 << 20;
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Batch::new();
        }
    }

    /// Adds the writes of another batch of the same store after those of this one.
    ///
    /// # Errors
    /// If the other batch was made with keyspaces of another store.
    pub fn append(&mut self, other: &Batch) -> Result<()> {
        if let Some(opening) = other.opening {
            self.bind(opening)?;
        }
        if self.is_empty() {
            (self.key, self.value) = (other.key.clone(), other.value.clone());
        }
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.deletes += other.deletes;
        self.range_deletes += other.range_deletes;
        self.user_bytes += other.user_bytes;
        Ok(())
    }

    /// The encoded operations.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// The writes, in order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut reader = Reader::new(&self.bytes);
        std::iter::from_fn(move || {
            (!reader.is_empty()).then(|| take_operation(&mut reader).ok())?
        })
    }
}

/// Refuses keys and values beyond the format's limits.
pub(crate) fn check_sizes(key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > MAX_KEY_BYTES {
        return Err(Error::invalid(
            format!("the key has {key_bytes} bytes; the most is {MAX_KEY_BYTES}"),
            "store a hash as the key and the long key in the value",
        ));
    }
    if value_bytes as u64 > MAX_VALUE_BYTES {
        return Err(Error::invalid(
            format!("the value has {value_bytes} bytes; the most is {MAX_VALUE_BYTES}"),
            "split the value over several keys",
        ));
    }
    Ok(())
}

/// The kind of an operation, and whether a get has folded its value.
#[inline]
fn decode_kind(byte: u8) -> Option<(Kind, bool)> {
    match byte {
        FOLDED_PUT => Some((Kind::Put, true)),
        _ => Some((Kind::from_u8(byte)?, false)),
    }
}

/// Decodes one operation of a log record.
pub(crate) fn take_operation<'a>(reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    let (kind, is_folded) = decode_kind(reader.take_u8()?).ok_or(Truncated)?;
    let keyspace = KeyspaceId::try_from(reader.take_varint()?).map_err(|_| Truncated)?;
    let key = reader.take_bytes()?;
    let mut place: &[u8] = &[];
    let value = match kind {
        Kind::Delete => &[],
        Kind::Put | Kind::Merge | Kind::Relocate | Kind::RangeDelete => reader.take_bytes()?,
        Kind::ExpiringPut => {
            let entry = reader.take_bytes()?;
            if entry.len() < EXPIRY_BYTES {
                return Err(Truncated);
            }
            entry
        }
        Kind::ValuePointer => {
            let pointer = reader.take_bytes()?;
            place = reader.take_bytes()?;
            pointer
        }
        Kind::ExpiringPointer => return Err(Truncated),
    };
    Ok(Operation { kind, keyspace, key, value, is_folded, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the log decodes the only write as the batch describes it.
    #[test]
    fn the_only_write_is_known_as_it_was_encoded() {
        let fill: [fn(&mut Batch) -> Result<()>; 6] = [
            |batch| batch.push(Kind::Put, 300, b"key", b"value"),
            |batch| batch.push(Kind::Delete, 0, b"key", b""),
            |batch| batch.push(Kind::RangeDelete, 7, b"a", b""),
            |batch| batch.push(Kind::Merge, 1, &[9; 200], &[8; 70_000]),
            |batch| batch.push_expiring(2, b"", b"v", u64::MAX),
            |batch| batch.push_folded(3, b"key", b"value"),
        ];
        for fill in fill {
            let mut batch = Batch::new();
            assert!(batch.only().is_none());
            for _ in 0..2 {
                fill(&mut batch).expect("fits");
                let mut joined = Batch::new();
                joined.append(&batch).expect("is of no store");
                for batch in [&batch, &joined] {
                    let decoded = batch.operations().next().expect("one");
                    let only = batch.only().expect("one");
                    assert_eq!(only, (decoded.kind, decoded.key, decoded.value));
                }
                let mut copy = Batch::new();
                batch.operations().for_each(|one| copy.push_same(&one));
                assert_eq!(copy.encoded(), batch.encoded());
                joined.append(&batch).expect("is of no store");
                assert!(joined.only().is_none());
                batch.clear();
            }
        }
    }
}
