//! The value of a key whose newest visible version is an operand. All operands down to the first
//! version of another kind are applied to that version, the base. Gets and cursors collect them in
//! one walk, newest first, through the memtables and then the tables (`tree/versions.rs`), and stop
//! at the base. So the cost of a read is proportional to the number of operands that no flush or
//! compaction has folded. The read holds all of them, because the operator gets them at once. A get
//! that applied many operands reports the result, and the store writes it (`store/write_back.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::Result;
use crate::keys::expiry::{expiry_of, split};
use crate::keys::{Kind, MAX_SEQ, SeqNo, kind_of, seek_trailer, seq_of, unsupported_kind};
use crate::memtable::btree::Record;
use crate::memtable::{Memtable, MemtableIter};
use crate::metrics::Counter;
use crate::read::get::{Got, Many, Reader};
use crate::table::iterator::Access;
use crate::tree::versions::VersionWalk;
use crate::values::Value;

/// If there are more operands than this, a later get should not apply them again, so the result is
/// written. Such a write happens at most once for this many operands. So a key that is changed as
/// often as it is read costs an additional sixty-fourth of a put per change.
const MANY_OPERANDS: usize = 64;

/// The value that a get of the present state computed from many operands.
pub(crate) struct Folded<'a> {
    pub(crate) value: &'a Value,
    pub(crate) newest: SeqNo,
    pub(super) view: &'a Arc<View>,
    /// The sequence number at which the get read.
    pub(super) seq: SeqNo,
}

impl Folded<'_> {
    /// Whether nobody has written to the key since the get. Called under the commit lock, when all
    /// sequence numbers that were given out are visible. As long as the view is the same, every
    /// newer write is in its memtables, because flushes and compactions replace the view. Loads
    /// replace it as well, but a view may have the tables of a load whose sequence number the get
    /// did not see.
    pub(crate) fn is_newest(&self, keyspace: &KeyspaceCore, key: &[u8]) -> bool {
        let is_written = |memtable: &Arc<Memtable>| {
            let is_later = |record: &Record| seq_of(record.trailer()) > self.seq;
            memtable.max_seq() > self.seq && memtable.get(key, MAX_SEQ).is_some_and(is_later)
        };
        Arc::ptr_eq(&keyspace.view.load(), self.view)
            && keyspace.last_load.load(Relaxed) <= self.seq
            && !self.view.memtables().any(is_written)
            && !self.view.memtables_hide(key, self.newest, MAX_SEQ)
    }
}

/// The versions of a key, from the newest visible one on.
struct Chain<'a> {
    reader: &'a Reader,
    keyspace: &'a KeyspaceCore,
    view: &'a View,
    key: &'a [u8],
    seq: SeqNo,
    /// The time at which a base counts as expired.
    now_ms: u64,
    /// How blocks are read.
    access: Access,
    /// The operands, newest first.
    operands: Vec<Value>,
    /// The sequence number of the newest operand.
    newest: SeqNo,
    /// When the base expires. Then the value changes by itself.
    expiry_ms: Option<u64>,
}

/// The role of a version for the operands above it.
enum Link {
    /// The version is an operand; older versions are needed too.
    Operand,
    /// The version is the base; `None` if there is none.
    Base(Option<Value>),
    /// The value of the base was collected.
    Collected,
}

impl Chain<'_> {
    /// Collects versions down to the base. O(operands) steps.
    fn walk(&mut self) -> Result<Link> {
        for memtable in self.view.memtables() {
            let mut iter = MemtableIter::new(Arc::clone(memtable));
            iter.seek(self.key, seek_trailer(self.seq));
            while let Some(record) = iter.record().filter(|record| record.key() == self.key) {
                let pin = || Value::in_memtable(memtable, record);
                match self.take(record.trailer(), record.value(), pin)? {
                    Link::Operand => iter.next(),
                    end => return Ok(end),
                }
            }
        }
        self.walk_tables()
    }

    fn walk_tables(&mut self) -> Result<Link> {
        let mut end = Link::Base(None);
        let mut walk = VersionWalk::new(self.key, self.seq, self.access);
        let (view, metrics) = (self.view, &self.reader.env.metrics);
        let walked = walk.run(&view.version, &mut |cursor| {
            let (block, at, len) = cursor.pin();
            let pin = || Value::in_block(block, at, len);
            match self.take(cursor.trailer(), cursor.value(), pin)? {
                Link::Operand => Ok(true),
                link => {
                    end = link;
                    Ok(false)
                }
            }
        });
        metrics.add_all(&[
            (Counter::blocks_searched, walk.stats().blocks),
            (Counter::blocks_read, walk.stats().block_reads),
        ]);
        walked.map(|()| end)
    }

    /// Takes the next older version. `pin` returns its value.
    fn take(&mut self, trailer: u64, bytes: &[u8], pin: impl FnOnce() -> Value) -> Result<Link> {
        if self.view.hides(self.key, seq_of(trailer), self.seq) {
            return Ok(Link::Base(None));
        }
        let expiry = expiry_of(trailer, bytes);
        if expiry.is_some_and(|at_ms| at_ms <= self.now_ms) {
            return Ok(Link::Base(None));
        }
        self.expiry_ms = expiry;
        match Kind::from_u8(kind_of(trailer)) {
            Some(Kind::Merge) => {
                self.newest = self.newest.max(seq_of(trailer));
                self.operands.push(pin());
                Ok(Link::Operand)
            }
            Some(Kind::Put) => Ok(Link::Base(Some(pin()))),
            Some(Kind::ExpiringPut) => Ok(Link::Base(Some(Value::owned(split(bytes).0)))),
            Some(Kind::Delete) if seeded!(OperandsReadOverDeletes) => Ok(Link::Operand),
            Some(Kind::Delete | Kind::RangeDelete) => Ok(Link::Base(None)),
            Some(Kind::ValuePointer | Kind::Relocate | Kind::ExpiringPointer) => {
                match self.reader.follow_unexpired(self.keyspace, self.key, trailer, bytes)? {
                    Got::Value(value) => Ok(Link::Base(value)),
                    Got::Folded(many) => Ok(Link::Base(Some(many.value))),
                    Got::Collected => Ok(Link::Collected),
                }
            }
            None => Err(unsupported_kind(trailer)),
        }
    }

    fn value(self, base: Option<&[u8]>) -> Result<Got> {
        let operands: Vec<&[u8]> = self.operands.iter().rev().map(|operand| &**operand).collect();
        self.reader.env.metrics.add(Counter::operands_read, operands.len() as u64);
        let value = self.keyspace.merging.load().full(self.key, base, &operands)?;
        let (value, newest) = (Value::owned(value), self.newest);
        Ok(match operands.len() > MANY_OPERANDS && self.expiry_ms.is_none() {
            true => Got::Folded(Box::new(Many { value, newest })),
            false => Got::Value(Some(value)),
        })
    }
}

impl Reader {
    /// Applies the operands of a key that a reader at `seq` and `now_ms` sees. O(operands) steps.
    /// Not inlined, so that gets without operands stay small.
    #[inline(never)]
    pub(super) fn fold(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
        now_ms: u64,
        access: Access,
    ) -> Result<Got> {
        let mut chain = self.chain(keyspace, view, key, seq, now_ms, access);
        match chain.walk()? {
            Link::Base(base) => chain.value(base.as_deref()),
            Link::Operand => chain.value(None),
            Link::Collected => Ok(Got::Collected),
        }
    }

    /// When the base of a value that was computed from operands expires.
    pub(super) fn fold_expiry_ms(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
        now_ms: u64,
        access: Access,
    ) -> Result<Option<u64>> {
        let mut chain = self.chain(keyspace, view, key, seq, now_ms, access);
        chain.walk()?;
        Ok(chain.expiry_ms)
    }

    fn chain<'a>(
        &'a self,
        keyspace: &'a KeyspaceCore,
        view: &'a View,
        key: &'a [u8],
        seq: SeqNo,
        now_ms: u64,
        access: Access,
    ) -> Chain<'a> {
        let (reader, operands, newest, expiry_ms) = (self, Vec::new(), 0, None);
        Chain { reader, keyspace, view, key, seq, now_ms, access, operands, newest, expiry_ms }
    }
}
