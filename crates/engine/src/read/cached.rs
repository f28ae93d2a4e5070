//! Point reads that never wait for a file, for threads that must not block. They search the same
//! sources in the same order as gets, but only in memory: memtables, open tables, and the cache.

use std::sync::Arc;
use std::time::Instant;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::Result;
use crate::format::filter;
use crate::format::record::Pointer;
use crate::keys::{
    Kind, SeqNo, is_delete, is_operand, is_pointer, kind_of, seek_trailer, seq_of, unsupported_kind,
};
use crate::memtable::MemtableIter;
use crate::metrics::{Counter, sampled};
use crate::read::get::{Got, Reader, hit_counter};
use crate::table::iterator::Access;
use crate::table::reader::{ProbeStats, Seen};
use crate::values::Value;
use crate::values::lookup::ValueLookup;

/// The answer of [`crate::Keyspace::get_if_cached`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedGet {
    /// The key has this value.
    Value(Value),
    /// The key has no value.
    Absent,
    /// Memory does not have the answer: a get would read a file, and might wait for the disk.
    NeedsIo,
}

impl From<Option<Value>> for CachedGet {
    fn from(value: Option<Value>) -> CachedGet {
        value.map_or(CachedGet::Absent, CachedGet::Value)
    }
}

impl Reader {
    /// Looks up a key without reading a file, and without waiting for another thread that does.
    pub(crate) fn get_if_cached(&self, keyspace: &KeyspaceCore, key: &[u8]) -> Result<CachedGet> {
        keyspace.check_readable()?;
        // In the same order as in `get`.
        let view = keyspace.view.load();
        let seq = self.visibility.now();
        if keyspace.lacks_load(&view) {
            // This answer is given only until the load is published.
            return Ok(CachedGet::NeedsIo);
        }
        let mut stats = ProbeStats::default();
        let got = self.get_in_memory(keyspace, &view, key, seq, &mut stats)?;
        // If it needs I/O, the caller follows with a get that reads files, and that get is counted.
        if got != CachedGet::NeedsIo {
            if sampled() {
                self.env.metrics.heat.note(keyspace.id, key, Instant::now());
            }
            let is_hit = stats.in_memtable || stats.hit_level.is_some();
            self.env.metrics.add_all(&[
                (Counter::gets, 1),
                (hit_counter(&stats), u64::from(is_hit)),
                (Counter::get_hits, u64::from(got != CachedGet::Absent)),
            ]);
        }
        Ok(got)
    }

    fn get_in_memory(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<CachedGet> {
        if let Some((memtable, record)) = view.in_memtables(key, seq) {
            stats.in_memtable = true;
            let (trailer, value) = (record.trailer(), record.value());
            return if is_delete(trailer) || view.memtables_hide(key, seq_of(trailer), seq) {
                Ok(CachedGet::Absent)
            } else if kind_of(trailer) == Kind::Put as u8 {
                Ok(CachedGet::Value(Value::in_memtable(memtable, record)))
            } else if is_operand(trailer) {
                self.fold_in_memtables(keyspace, view, key, seq)
            } else if is_pointer(trailer) {
                self.value_in_cache(keyspace, key, trailer, value)
            } else {
                Ok(self.unexpired(value).map(Value::owned).into())
            };
        }
        let (seen, level) = view.version.search_in_memory(key, filter::hash(key), seq)?;
        let (found, block) = match seen {
            Seen::Hit(found, block) => (found, block),
            Seen::Nothing => return Ok(CachedGet::Absent),
            Seen::NotInMemory => return Ok(CachedGet::NeedsIo),
        };
        stats.hit_level = Some(level);
        if view.hides(key, seq_of(found.trailer), seq) {
            return Ok(CachedGet::Absent);
        }
        let entry = block.slice(found.value_at, found.value_len);
        match Kind::from_u8(kind_of(found.trailer)) {
            Some(Kind::Delete | Kind::RangeDelete) => Ok(CachedGet::Absent),
            Some(Kind::Put) => {
                Ok(CachedGet::Value(Value::in_block(&block, found.value_at, found.value_len)))
            }
            Some(Kind::ValuePointer | Kind::Relocate | Kind::ExpiringPointer) => {
                self.value_in_cache(keyspace, key, found.trailer, entry)
            }
            // The older versions may be anywhere.
            Some(Kind::Merge) => Ok(CachedGet::NeedsIo),
            Some(Kind::ExpiringPut) => {
                let len = self.unexpired(entry).map(|value| value.len() as u32);
                Ok(len.map(|len| Value::in_block(&block, found.value_at, len)).into())
            }
            None => Err(unsupported_kind(found.trailer)),
        }
    }

    /// The value behind a pointer, if the cache has it.
    fn value_in_cache(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        trailer: u64,
        entry: &[u8],
    ) -> Result<CachedGet> {
        if self.has_expired(trailer, entry) {
            return Ok(CachedGet::Absent);
        }
        let pointer = Pointer::of_entry(entry)?;
        let values = keyspace.values.load();
        // A record that is cached under the pointer's place is the record of this version, even if
        // a collection has moved it since, because such places are never reused.
        let wanted = ValueLookup { pointer, key, trailer };
        let access = Access::Cached { fill: true };
        let cached = values.file(pointer.store).and_then(|file| file.cached(&wanted, access));
        Ok(cached.map_or(CachedGet::NeedsIo, CachedGet::Value))
    }

    /// The value of a key with operands, if memtables contain all operands and their base.
    fn fold_in_memtables(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        key: &[u8],
        seq: SeqNo,
    ) -> Result<CachedGet> {
        let base = view.memtables().find_map(|memtable| {
            let mut iter = MemtableIter::new(Arc::clone(memtable));
            iter.seek(key, seek_trailer(seq));
            while let Some(record) = iter.record().filter(|record| record.key() == key) {
                let trailer = record.trailer();
                if !is_operand(trailer) || view.hides(key, seq_of(trailer), seq) {
                    return Some(trailer);
                }
                iter.next();
            }
            None
        });
        if base.is_none_or(is_pointer) {
            return Ok(CachedGet::NeedsIo);
        }
        let (now_ms, access) = (self.env.watch.now_ms(), Access::Cached { fill: true });
        match self.fold(keyspace, view, key, seq, now_ms, access)? {
            Got::Value(value) => Ok(value.into()),
            Got::Folded(many) => Ok(CachedGet::Value(many.value)),
            Got::Collected => Ok(CachedGet::NeedsIo),
        }
    }
}
