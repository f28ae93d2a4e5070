//! Compaction filters: user code that looks at entries that compactions visit, and removes or
//! changes unwanted entries.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::callbacks::callback::Inside;
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::{MAX_VALUE_BYTES, check_length};

/// What happens to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// The entry stays as it is.
    Keep,
    /// The entry is removed, as if its key had been deleted when the entry was written. Older
    /// versions stay hidden.
    Remove,
    /// The entry gets this value. An entry that expires still expires at the same time.
    Change(Vec<u8>),
}

/// Looks at entries that compactions visit, and is called from several threads. The filter gets the
/// puts that current readers see, unless a [`Snapshot`](crate::Snapshot) saw them when the
/// compaction began. A snapshot that is taken while the compaction runs may see what the filter
/// did. So may cursors and scans: some are always open, so a filter that spared them would never
/// run. The filter gets no operands, and no values below operands, wherever the operands are when
/// the compaction begins. An operand that is written while the compaction runs applies to the old
/// value until the compaction is done, and then to the filter's result. Reads see an entry until a
/// compaction visits it; [`crate::Keyspace::compact`] visits all entries.
///
/// ```
/// use std::sync::Arc;
///
/// use runstone::{CompactionFilter, FilterDecision, KeyspaceOptions, Store};
///
/// /// Removes what belongs to a user who left.
/// #[derive(Debug)]
/// struct Left;
///
/// impl CompactionFilter for Left {
///     fn name(&self) -> &str {
///         "left"
///     }
///
///     fn decide(&self, _level: u32, key: &[u8], _value: &[u8]) -> FilterDecision {
///         match key.starts_with(b"bob/") {
///             true => FilterDecision::Remove,
///             false => FilterDecision::Keep,
///         }
///     }
/// }
///
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// let store = Store::builder(dir.path())
///     .compaction_filter(Arc::new(Left))
///     .keyspace(KeyspaceOptions::default().compaction_filter("left"))
///     .open()?;
/// store.put("alice/1", "stays")?;
/// store.put("bob/1", "goes")?;
/// store.compact()?;
/// assert_eq!(store.default_keyspace().iter()?.count(), 1);
/// # Ok(())
/// # }
/// ```
pub trait CompactionFilter: Debug + Send + Sync {
    /// The name that keyspaces give in `compaction_filter`.
    fn name(&self) -> &str;

    /// Decides about an entry that a compaction writes to `level`. If this method panics, or
    /// returns a value that is too long, the entry stays.
    fn decide(&self, level: u32, key: &[u8], value: &[u8]) -> FilterDecision;
}

/// The compaction filter of a keyspace.
#[derive(Debug)]
pub(crate) struct Filtering {
    /// `None` if the keyspace has none, or nobody has registered it.
    filter: Option<Arc<dyn CompactionFilter>>,
    /// The name of the filter, if nobody has registered it.
    missing: Option<String>,
    /// Identifies the open store that calls the filter.
    opening: u64,
}

impl Filtering {
    /// Finds the filter that a keyspace names, among the registered ones.
    pub(crate) fn find(
        name: &str,
        registered: &[Arc<dyn CompactionFilter>],
        opening: u64,
    ) -> Filtering {
        let named = registered.iter().find(|filter| filter.name() == name && !name.is_empty());
        let missing = (named.is_none() && !name.is_empty()).then(|| name.to_string());
        Filtering { filter: named.cloned(), missing, opening }
    }

    /// The name of the keyspace's filter, if nobody has registered that filter. All entries then
    /// stay.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(crate) fn is_used(&self) -> bool {
        self.filter.is_some()
    }

    /// The decision on an entry, or an error if the filter panicked or its new value is too long.
    pub(crate) fn decide(
        &self,
        level: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<FilterDecision, String> {
        let Some(filter) = &self.filter else { return Ok(FilterDecision::Keep) };
        let _inside = Inside::of(self.opening);
        let call = AssertUnwindSafe(|| filter.decide(level, key, value));
        let decision = catch_unwind(call).map_err(|_| "it panicked".to_string());
        let decision = decision.and_then(|decision| match decision {
            FilterDecision::Change(value) => {
                // If the old value expires, its expiry is stored with the new value.
                let most = MAX_VALUE_BYTES - EXPIRY_BYTES as u64;
                check_length(value, most).map(FilterDecision::Change)
            }
            other => Ok(other),
        });
        decision.map_err(|what| {
            let (name, key) = (filter.name(), key.escape_ascii());
            format!("compaction filter {name} failed at key \"{key}\": {what}")
        })
    }
}
