//! Options of one write.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::store::Durability;

/// Options of one write.
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

    /// What the write survives; `None` for the durability with which the store was opened.
    pub fn durability(mut self, durability: impl Into<Option<Durability>>) -> WriteOptions {
        self.durability = durability.into();
        self
    }

    /// The time from the write until its entry expires, instead of the keyspace's `ttl_seconds`. It
    /// is for puts; other writes refuse it.
    pub fn ttl(mut self, ttl: Duration) -> WriteOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Refuses a time to live for a write that stores no value.
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
