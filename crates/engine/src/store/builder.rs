//! Opening a store with a builder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runstone_policy::prefix::PrefixExtractor;
use runstone_storage::Storage;

use crate::callbacks::clock::Clock;
use crate::callbacks::compaction_filter::CompactionFilter;
use crate::callbacks::event::EventListener;
use crate::callbacks::merge_operator::MergeOperator;
use crate::error::Result;
use crate::options::setters::{default_doc, setter};
use crate::options::store::{
    Background, Durability, KeyspaceOptions, Options, WalMode, store_setters,
};
use crate::store::Store;
use crate::store::resources::Resources;

/// Opens a store, or makes one. Options that are not set have their defaults; see
/// [`Store::builder`]. [`Options`] has the same options as a struct, and documents each of them.
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct StoreBuilder {
    place: Place,
    options: Options,
    resources: Option<Resources>,
}

#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    Storage(Arc<dyn Storage>),
}

/// Setters of options. Some options have a different name here, and some setters add one item at a
/// time.
macro_rules! each_setter {
    ([$at:ident] $(#[doc = $doc:expr])* memory_budget_bytes: $of:ty) => {
        $(#[doc = $doc])*
        pub fn memory_budget(mut self, bytes: $of) -> StoreBuilder {
            self.$at.memory_budget_bytes = bytes;
            self
        }
    };
    ([$at:ident] $(#[doc = $doc:expr])* background: $of:ty) => {
        $(#[doc = $doc])*
        pub fn threads(mut self, count: usize) -> StoreBuilder {
            self.$at.background = Background::Threads(count);
            self
        }
    };
    ([$at:ident] $(#[doc = $doc:expr])* prefix_extractors: $($of:tt)*) => {};
    ([$at:ident] $(#[doc = $doc:expr])* compaction_filters: $($of:tt)*) => {};
    ([$at:ident] $(#[doc = $doc:expr])* merge_operators: $($of:tt)*) => {};
    ($($all:tt)*) => { setter!($($all)*); };
}

impl StoreBuilder {
    store_setters!();

    /// Starts no background threads: the owner calls [`Store::run_one_job`].
    pub fn jobs_by_hand(mut self) -> StoreBuilder {
        self.options.background = Background::Manual;
        self
    }

    /// Registers a prefix extractor that keyspaces may name.
    pub fn prefix_extractor(mut self, extractor: Arc<dyn PrefixExtractor>) -> StoreBuilder {
        self.options.prefix_extractors.push(extractor);
        self
    }

    /// Registers a compaction filter that keyspaces may name.
    pub fn compaction_filter(mut self, filter: Arc<dyn CompactionFilter>) -> StoreBuilder {
        self.options.compaction_filters.push(filter);
        self
    }

    /// Registers a merge operator that keyspaces may name.
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> StoreBuilder {
        self.options.merge_operators.push(operator);
        self
    }

    /// Uses resources that other stores of the process share, instead of a budget, threads and open
    /// files of its own.
    pub fn resources(mut self, resources: &Resources) -> StoreBuilder {
        self.resources = Some(resources.clone());
        self
    }

    /// Opens the store, or makes one.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open(self) -> Result<Store> {
        match (self.place, self.resources) {
            (Place::Directory(path), None) => Store::open(path, self.options),
            (Place::Directory(path), Some(shared)) => shared.open(path, self.options),
            (Place::Storage(storage), None) => Store::open_on(storage, self.options),
            (Place::Storage(storage), Some(shared)) => shared.open_on(storage, self.options),
        }
    }
}

impl Store {
    /// Returns a builder that opens the store in a directory.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let path = dir.path().join("store");
    /// use runstone::{KeyspaceOptions, Store};
    ///
    /// let options = KeyspaceOptions::preset("write-heavy")?;
    /// let store = Store::builder(&path).memory_budget(64 << 20).keyspace(options).open()?;
    /// store.put("a", "1")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> StoreBuilder {
        StoreBuilder::at(Place::Directory(path.as_ref().to_path_buf()))
    }

    /// Returns a builder that opens the store on a storage.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// use std::sync::Arc;
    ///
    /// use runstone::Store;
    /// use runstone::storage::MemoryStorage;
    ///
    /// let store = Store::builder_on(Arc::new(MemoryStorage::new())).threads(1).open()?;
    /// store.put("a", "1")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder_on(storage: Arc<dyn Storage>) -> StoreBuilder {
        StoreBuilder::at(Place::Storage(storage))
    }
}

impl StoreBuilder {
    fn at(place: Place) -> StoreBuilder {
        StoreBuilder { place, options: Options::default(), resources: None }
    }
}
