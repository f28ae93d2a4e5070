//! An open store of files, or an open device, as the commands see it. Each kind refuses what it
//! cannot do. How a store is opened is in `opening.rs`.

use std::path::Path;
use std::time::Duration;

use runstone::metrics::KeyspaceHeat;
use runstone::{Durability, Expiry, KeySurvey, Value as Bytes};
use runstone_kv::{KvStore, KvWrite};
use serde_json::Value;

use crate::counters::Counter;
use crate::failure::{Failure, Result};
use crate::keyspaces::Wish;
use crate::range::{Missing, Range, Visit};
use crate::transfer::Record;
use crate::transfer::progress::Progress;

/// Figures for people and for machines.
pub struct Figures {
    pub text: String,
    pub json: Value,
}

/// The findings of a check of every byte.
pub struct Verified {
    pub is_clean: bool,
    pub figures: Figures,
}

/// The largest key and value that a store accepts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub key_bytes: u64,
    pub value_bytes: u64,
}

impl Limits {
    /// The limits of a store of files.
    pub const FILES: Limits = Limits {
        key_bytes: runstone::MAX_KEY_BYTES as u64,
        value_bytes: runstone::MAX_VALUE_BYTES,
    };
}

/// The subject of a picture.
pub struct Caption {
    /// The name that the user gave.
    pub store: String,
    /// When it was drawn: `2026-11-27 17:30 UTC`.
    pub taken: String,
}

/// A store as a picture.
pub trait Drawing {
    fn svg(&self, caption: &Caption) -> String;
    /// A page that needs no other file.
    fn html(&self, caption: &Caption) -> String;
    fn to_json(&self) -> Value;
    /// Draws for a terminal of this width.
    fn to_text(&self, columns: usize) -> String;
}

/// The target of an import. It writes batches of records, each with the progress of the import so
/// far.
pub trait Target {
    /// The progress of an interrupted import of this source.
    fn left(&self) -> Result<Option<Progress>>;
    /// Continues with another keyspace, which is made with these options if it does not exist, by
    /// [`crate::keyspaces::open_or_make`]. The batch must be empty.
    fn turn_to(&mut self, _keyspace: &str, _wish: &Wish) -> Result<()> {
        let hint = "import one column family: --family NAME --keyspace default";
        Err(Failure::usage("a device has one keyspace", hint))
    }
    /// Adds a record to the batch; an error if it could never be written.
    fn put(&mut self, record: Record) -> runstone_kv::Result<()>;
    /// The type of the keyspace's counters, if it adds numbers. It accepts no other values.
    fn counter(&self) -> Option<Counter> {
        None
    }
    /// Whether [`Target::load`] may be called.
    fn can_load(&self) -> bool {
        false
    }
    /// Writes records with ascending keys, all or none. The load bypasses the batch, which must be
    /// empty.
    fn load(
        &mut self,
        _records: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        Err(Failure::usage("this store loads nothing", "import in batches: --batch"))
    }
    /// Whether the batch has reached its largest size or number of records.
    fn is_full(&self, most_records: u64) -> bool;
    /// Writes the batch with the progress of the import, which is `None` at the end.
    fn commit(&mut self, progress: Option<&Progress>) -> Result<()>;
    /// Closes the store.
    fn close(self: Box<Self>, is_complete: bool) -> Result<()>;
}

/// The entries of one keyspace.
pub trait Entries {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// The type of the keyspace's counters, if it adds numbers.
    fn counter(&self) -> Option<Counter> {
        None
    }
    /// Applies all writes or none.
    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()>;
    /// Writes an entry that expires.
    fn put_with_ttl(&self, _entry: &Record, _ttl: Duration, _durability: Durability) -> Result<()> {
        Err(Failure::usage("entries of a device do not expire", "use a store of files"))
    }
    /// When the value of a key expires; `None` if the key has no value.
    fn expiry(&self, key: &[u8]) -> Result<Option<Expiry>> {
        Ok(self.get(key)?.map(|_| Expiry::Never))
    }
    /// Writes an operand of the merge operator.
    fn merge(&self, _key: &[u8], _operand: &[u8], _durability: Durability) -> Result<()> {
        let hint = "use a store of files";
        Err(Failure::usage("a device has no merge operators", hint))
    }
    /// Deletes all keys of a range, however many, with one record. Returns about how many entries
    /// the range contained; `None` if the store has no such records.
    fn delete_range(&self, _range: &Range, _durability: Durability) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Visits the keys of a range in order. Returns the number of keys.
    fn walk(&self, range: &Range, visit: &mut Visit<'_>) -> Result<u64>;
    /// The same, but keys that damage hides are added to `missing`, and the walk continues after
    /// them.
    fn walk_past_damage(
        &self,
        range: &Range,
        visit: &mut Visit<'_>,
        _missing: &mut Vec<Missing>,
    ) -> Result<u64> {
        self.walk(range, visit)
    }
}

/// See the module docs.
pub trait Opened {
    /// The entries of the keyspace for which the store was opened.
    fn entries(&self) -> &dyn Entries;
    /// The default keyspace and the costs of the whole store, for measurements.
    fn kv(&self) -> &dyn KvStore;
    /// The names of the store's keyspaces; none if it can have only one.
    fn keyspaces(&self) -> Vec<String> {
        Vec::new()
    }
    /// About how many entries there are, if that is known without reading them.
    fn estimate(&self) -> Option<u64>;
    fn holds_data(&self) -> Result<bool>;
    fn limits(&self) -> Limits;
    /// The bytes that the store takes once it is closed.
    fn used_bytes(&self) -> u64;
    fn drawing(&self) -> Result<Box<dyn Drawing>>;
    /// Figures of one keyspace or of all, over the tables that overlap the range.
    fn stats(&self, keyspace: Option<&str>, range: &Range) -> Result<Figures>;
    /// Which keys of the keyspace are big.
    fn survey(&self, _limit: usize) -> Result<KeySurvey> {
        let hint = "use a store of files, or `runstone scan --keys-only`";
        Err(Failure::usage("a device keeps no index of its blocks to look at", hint))
    }
    /// Which keys are read most, of all keyspaces.
    fn heat(&self) -> Result<Vec<KeyspaceHeat>> {
        Err(Failure::usage("a device does not count reads of keys", "use a store of files"))
    }
    /// Compacts the keys of a range, in one keyspace or in all.
    fn compact(&self, keyspace: Option<&str>, range: &Range) -> Result<()>;
    /// Counters in the exposition format of Prometheus.
    fn prometheus(&self) -> Result<String>;
    fn verify(&self) -> Result<Verified>;
    /// The contents of a store that has no files; with `has_entries`, every page too.
    fn dump(&self, has_entries: bool) -> Result<Figures>;
    /// The costs of a demonstration whose readers see `live_bytes`.
    fn costs(&self, live_bytes: u64) -> Result<Figures>;
    /// Prepares the import of a source, which is `None` if it cannot be read again. `how` says how
    /// the source is read.
    fn into_target(
        self: Box<Self>,
        source: Option<&Path>,
        how: &str,
        durability: Durability,
    ) -> Result<Box<dyn Target>>;
    fn close(self: Box<Self>) -> Result<()>;
}
