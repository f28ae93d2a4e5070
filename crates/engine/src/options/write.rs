//! How one write is done.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::store::Durability;

/// How one write is done.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
/// use runstone::WriteOptions;
/// use std::time::Duration;
///
/// let hour = Duration::from_secs(3600);
/// store.default_keyspace().put_with("session", "token", WriteOptions::sync().ttl(hour))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
    pub(crate) ttl: Option<Duration>,
}

impl WriteOptions {
    /// The write survives a power loss once it is acknowledged.
    pub fn sync() -> WriteOptions {
        WriteOptions::default().durability(Durability::Sync)
    }

    /// The write survives a crash of the process once it is acknowledged.
    pub fn buffered() -> WriteOptions {
        WriteOptions::default().durability(Durability::Buffered)
    }

    /// What the write survives; `None` for what the store was opened with.
    pub fn durability(mut self, durability: impl Into<Option<Durability>>) -> WriteOptions {
        self.durability = durability.into();
        self
    }

    /// How long after the write its entry expires, instead of the keyspace's `ttl_seconds`. For
    /// puts; other writes refuse it.
    pub fn ttl(mut self, ttl: Duration) -> WriteOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Refuses a time to live of a write that stores no value of its own.
    pub(crate) fn check_no_ttl(self, what: &str) -> Result<()> {
        match self.ttl {
            None => Ok(()),
            Some(_) => Err(Error::invalid(
                format!("{what} has no time to live"),
                "give it to the puts: Keyspace::put_with, Batch::put_with_ttl",
            )),
        }
    }
}
