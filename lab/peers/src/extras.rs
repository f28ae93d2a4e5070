//! Features beyond puts and gets that only some stores offer: values that grow with operands, and
//! entries that expire. Counters have a file of their own.

use std::time::{SystemTime, UNIX_EPOCH};

use runstone::Durability;
use runstone_kv::Result;
use runstone_kv::{Direction, KvStore};

/// A store with a merge operator that appends operands to each other and never folds two of them
/// without a base: chains keep their length.
pub trait Appending {
    fn store(&self) -> &dyn KvStore;
    fn append(&self, key: &[u8], operand: &[u8]) -> Result<()>;
}

/// A store whose entries expire.
pub trait Expiring {
    fn store(&self) -> &dyn KvStore;
    fn put_until(&self, key: &[u8], value: &[u8], end: SystemTime) -> Result<()>;

    /// The first key that has not expired.
    fn first(&self) -> Result<Option<Vec<u8>>> {
        let mut first = None;
        self.store().scan(None, Direction::Forward, &mut |key, _| {
            first = Some(key.to_vec());
            false
        })?;
        Ok(first)
    }
}

/// The method of an application whose store has no expiry: the instant precedes the value, and
/// readers skip expired entries.
pub struct ByReader(pub Box<dyn KvStore>);

impl Expiring for ByReader {
    fn store(&self) -> &dyn KvStore {
        self.0.as_ref()
    }

    fn put_until(&self, key: &[u8], value: &[u8], end: SystemTime) -> Result<()> {
        let entry = [&millis(end).to_le_bytes(), value].concat();
        self.0.put(key, &entry, Durability::Buffered)
    }

    fn first(&self) -> Result<Option<Vec<u8>>> {
        let (mut first, now) = (None, SystemTime::now());
        self.0.scan(None, Direction::Forward, &mut |key, entry| {
            if !has_expired(entry, now) {
                first = Some(key.to_vec());
            }
            first.is_none()
        })?;
        Ok(first)
    }
}

/// Whether an entry of [`ByReader`] has expired.
pub fn has_expired(entry: &[u8], now: SystemTime) -> bool {
    entry.first_chunk().is_some_and(|end| u64::from_le_bytes(*end) <= millis(now))
}

fn millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
