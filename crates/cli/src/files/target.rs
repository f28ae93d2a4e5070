//! Imports into a keyspace. The progress of an import is part of the batch that contains the data.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use runstone::unstable;
use runstone::{Batch, Durability, Error, Expiry, Keyspace, Store, ValuePlacement, WriteOptions};
use runstone_policy::policy::space_percent;

use super::options_of;
use crate::counters::Counter;
use crate::failure::Result;
use crate::keyspaces::{self, Wish};
use crate::opened::Target;
use crate::transfer::Record;
use crate::transfer::progress::{Progress, ProgressRecord};

/// A batch also ends at this size, so that large values do not pile up in memory.
const MOST_BATCH_BYTES: u64 = 4 << 20;

/// At the end of an import, a keyspace that takes more than this percentage of its live bytes is
/// compacted: the import replaced many entries, and nothing compacts the keyspace once the command
/// has ended.
const MOST_SPACE_PERCENT: u32 = 140;

/// See the module docs.
pub struct StoreTarget {
    store: Store,
    keyspace: Keyspace,
    /// Keyspaces that the import has completed.
    earlier: Vec<Keyspace>,
    record: Option<ProgressRecord>,
    batch: Batch,
    writes: WriteOptions,
}

impl StoreTarget {
    /// Prepares the import of a source. Without a path, no progress is kept. `how` says how the
    /// source is read.
    pub fn new(
        (store, keyspace): (Store, Keyspace),
        source: Option<&Path>,
        how: &str,
        durability: Durability,
    ) -> Result<StoreTarget> {
        let record = source.map(|source| ProgressRecord::open(&store, source, how));
        let record = record.transpose()?;
        Ok(StoreTarget {
            store,
            keyspace,
            earlier: Vec::new(),
            record,
            batch: Batch::new(),
            writes: options_of(durability),
        })
    }
}

impl Target for StoreTarget {
    fn left(&self) -> Result<Option<Progress>> {
        self.record.as_ref().map_or(Ok(None), ProgressRecord::read)
    }

    fn turn_to(&mut self, keyspace: &str, wish: &Wish) -> Result<()> {
        let next = keyspaces::open_or_make(&self.store, keyspace, wish)?;
        self.earlier.push(std::mem::replace(&mut self.keyspace, next));
        Ok(())
    }

    /// An expired record is written too, and hides an older value of its key: in its source, the
    /// key has no value any more either.
    fn put(&mut self, record: Record) -> runstone_kv::Result<()> {
        let Record { key, value, expires_ms } = record;
        if let Some(Err(what)) = self.counter().map(|counter| counter.check(&value)) {
            return Err(Error::InvalidArgument { what, hint: String::new() }.into());
        }
        let at = |ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        let expiry = expires_ms.and_then(at).map_or(Expiry::Never, Expiry::At);
        Ok(self.batch.put_with_expiry(&self.keyspace, key, value, expiry)?)
    }

    fn counter(&self) -> Option<Counter> {
        Counter::of(&self.keyspace.options().merge_operator)
    }

    /// A load keeps values inline until compactions rewrite them. If values are separated, a load
    /// would write them twice.
    fn can_load(&self) -> bool {
        self.keyspace.options().values.placement == ValuePlacement::Inline
    }

    fn load(
        &mut self,
        records: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        self.keyspace.try_bulk_load(records).map(drop)
    }

    fn is_full(&self, most_records: u64) -> bool {
        self.batch.len() >= most_records || self.batch.user_bytes() >= MOST_BATCH_BYTES
    }

    fn commit(&mut self, progress: Option<&Progress>) -> Result<()> {
        match (&self.record, progress) {
            (Some(record), Some(progress)) => record.put(&mut self.batch, progress)?,
            (Some(record), None) => record.delete(&mut self.batch)?,
            (None, _) => {}
        }
        self.store.write(&self.batch, self.writes)?;
        self.batch.clear();
        Ok(())
    }

    fn close(self: Box<Self>, is_complete: bool) -> Result<()> {
        let StoreTarget { store, keyspace, mut earlier, record, .. } = *self;
        if let Some(record) = record.filter(|_| is_complete) {
            record.close(&store)?;
        }
        if is_complete {
            store.flush()?;
            earlier.push(keyspace);
            let of_one = |one: &Keyspace| space_percent(&unstable::shape(one), MOST_SPACE_PERCENT);
            let mut large = earlier.iter().filter(|one| of_one(one) > MOST_SPACE_PERCENT.into());
            // If there is no room for the outputs, the import is complete all the same.
            large.try_for_each(|one| match one.compact() {
                Err(error) if error.is_no_space() => Ok(()),
                outcome => outcome,
            })?;
        }
        drop(earlier);
        Ok(store.close()?)
    }
}
