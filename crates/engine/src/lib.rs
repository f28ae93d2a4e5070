//! Runstone: an embedded LSM key-value store whose shape is a choice.
//!
//! ```
//! use runstone::{Batch, Options, ReadOptions, Store, WriteOptions};
//!
//! # fn main() -> runstone::Result<()> {
//! # let directory = tempfile::tempdir().expect("temporary directory");
//! # let path = directory.path().join("store");
//! let store = Store::open(&path, Options::default())?;
//!
//! // Point operations on the default keyspace.
//! store.put("fruit/apple", "red")?;
//! store.put("fruit/banana", "yellow")?;
//! assert_eq!(store.get("fruit/apple")?.as_deref(), Some(&b"red"[..]));
//!
//! // A snapshot does not change.
//! let snapshot = store.snapshot();
//! store.delete("fruit/apple")?;
//! assert!(store.get("fruit/apple")?.is_none());
//! let fruits = store.default_keyspace();
//! assert!(fruits.get_at("fruit/apple", &snapshot)?.is_some());
//!
//! // Batches are atomic across keyspaces, and durable when they say so.
//! let ages = store.open_keyspace("ages", None)?;
//! let mut batch = Batch::new();
//! batch.put(fruits, "fruit/cherry", "dark")?;
//! batch.put(&ages, "cherry", "3 days")?;
//! store.write(&batch, WriteOptions::sync())?;
//!
//! // Iterators go both ways, inside bounds or a prefix.
//! let keys: Vec<Vec<u8>> =
//!     fruits.prefix(b"fruit/")?.rev().map(|item| Ok(item?.0)).collect::<runstone::Result<_>>()?;
//! assert_eq!(keys, [b"fruit/cherry".to_vec(), b"fruit/banana".to_vec()]);
//!
//! // Cursors seek.
//! let mut cursor = fruits.cursor(ReadOptions::default())?;
//! cursor.seek(b"fruit/c")?;
//! assert_eq!((cursor.key(), cursor.value()), (&b"fruit/cherry"[..], &b"dark"[..]));
//! store.close()
//! # }
//! ```
//!
//! # What to read
//!
//! | to | read |
//! |---|---|
//! | open, close, copy, verify | [`Store`], [`Options`], [`Store::checkpoint`], [`Store::verify`] |
//! | put, get and scan | [`Keyspace`], [`Batch`], [`WriteOptions`], [`Scan`], [`Cursor`] |
//! | read one moment, or change many keys at once | [`Snapshot`], [`Transaction`] |
//! | load sorted data | [`Keyspace::bulk_load`], [`SortedWriter`] |
//! | merge, expire or filter values | [`MergeOperator`], [`Expiry`], [`CompactionFilter`] |
//! | choose a tree, place values | [`KeyspaceOptions`], [`policy`], [`PRESETS`], [`ValueOptions`] |
//! | know what it does and costs | [`MetricsSnapshot`], [`EventListener`], [`Watch`] |
//! | run many stores in one process | [`Resources`] |
//! | know what failed | [`Error`], [`ErrorKind`] |
//! | put the files elsewhere | [`storage::Storage`] |
//! | see whole programs | `crates/engine/examples/` in the repository, one story each |
//!
//! [`Durability`] says what an acknowledged write survives. The repository has how-tos, and
//! describes every byte on disk (`docs/formats.md`) and the inner workings of the store
//! (`ARCHITECTURE.md`).
//!
//! Runstone runs on Linux; `docs/porting.md` says what other systems lack.

#![deny(unsafe_code)]

/// Whether a bug of `seeded::Bug` is on: never, unless tests ask for the feature.
#[cfg(feature = "seeded-bugs")]
macro_rules! seeded {
    ($bug:ident) => {
        $crate::seeded::is_on($crate::seeded::Bug::$bug)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! seeded {
    ($bug:ident) => {
        false
    };
}
/// Asserts an invariant. A test of a seeded bug can switch the assertion off, to see that its
/// oracle finds the bug as well.
#[cfg(feature = "seeded-bugs")]
macro_rules! invariant {
    ($holds:expr, $what:literal) => {
        assert!($holds || $crate::seeded::are_assertions_off(), $what)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! invariant {
    ($holds:expr, $what:literal) => {
        assert!($holds, $what)
    };
}
/// As `invariant`, for checks that are too slow for a release: it checks only in debug builds.
macro_rules! debug_invariant {
    ($holds:expr, $what:literal) => {
        if cfg!(debug_assertions) {
            invariant!($holds, $what);
        }
    };
}
/// Lets a test run code at a place of `seeded::Waypoint`.
#[cfg(feature = "seeded-bugs")]
macro_rules! reached {
    ($place:ident) => {
        $crate::seeded::at($crate::seeded::Waypoint::$place)
    };
}
#[cfg(not(feature = "seeded-bugs"))]
macro_rules! reached {
    ($place:ident) => {};
}

/// The code of the how-tos is run with the tests.
#[cfg(doctest)]
mod how_to {
    #[doc = include_str!("../../../docs/how-to/bulk-load.md")]
    struct BulkLoad;
    #[doc = include_str!("../../../docs/how-to/delete-ranges.md")]
    struct DeleteRanges;
    #[doc = include_str!("../../../docs/how-to/expire-entries.md")]
    struct ExpireEntries;
    #[doc = include_str!("../../../docs/how-to/filter-compactions.md")]
    struct FilterCompactions;
    #[doc = include_str!("../../../docs/how-to/follow-changes.md")]
    struct FollowChanges;
    #[doc = include_str!("../../../docs/how-to/merge-operators.md")]
    struct MergeOperators;
    #[doc = include_str!("../../../docs/how-to/use-from-tokio.md")]
    struct UseFromTokio;
}

mod cache;
mod callbacks;
mod catalog;
pub mod dump;
mod env;
mod error;
mod format;
mod jobs;
mod keys;
mod lease;
mod log;
mod memory;
mod memtable;
pub mod metrics;
mod options;
mod pace;
mod ranges;
mod read;
mod schedule;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
mod store;
mod sync;
mod table;
#[cfg(feature = "seeded-bugs")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod tree;
mod values;
mod visibility;
mod wal;
mod write;

/// Compaction policies as typed values, and the types that their options use. Crate
/// `runstone-policy` has the policies themselves.
pub mod policy {
    pub use runstone_policy::filters::FilterAllocation;
    pub use runstone_policy::options::{Charge, IntraLevel};
    pub use runstone_policy::partition::Partitioner;
    pub use runstone_policy::prefix::{PrefixError, PrefixExtractor, PrefixRule};

    pub use crate::options::policy::{
        AdaptiveTiering, Bigtable, Binomial, Constant, Fluid, FragmentedLeveling, Garnering,
        Guards, LazyLeveling, Leveling, MinLatency, Named, Policy, Tiering, Universal,
    };

    /// What a program needs to write a compaction policy of its own.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::policy::Policy;
    /// use runstone::policy::custom::plan::Plan;
    /// use runstone::policy::custom::shape::Shape;
    /// use runstone::policy::custom::{CompactionPolicy, Job, LevelTarget, PolicyOptions, registry};
    /// use runstone::{KeyspaceOptions, Store};
    ///
    /// struct Ours;
    ///
    /// impl CompactionPolicy for Ours {
    ///     fn name(&self) -> &'static str {
    ///         "ours"
    ///     }
    ///
    ///     fn doc(&self) -> &'static str {
    ///         "as tiering"
    ///     }
    ///
    ///     fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
    ///         registry::find("tiering").expect("built in").targets(shape, options)
    ///     }
    ///
    ///     fn decide(&self, job: &Job<'_>) -> Option<Plan> {
    ///         registry::find("tiering").expect("built in").decide(job)
    ///     }
    /// }
    ///
    /// registry::register(&Ours).expect("the name is free");
    /// let ours = Policy::named("ours").option("size_ratio", 4);
    /// let options = KeyspaceOptions::default().policy(ours);
    /// let store = Store::builder(dir.path()).keyspace(options).open()?;
    /// # store.close()
    /// # }
    /// ```
    pub mod custom {
        pub use runstone_policy::options::{OptionError, PolicyOptions};
        pub use runstone_policy::policy::{CompactionPolicy, Job, LevelTarget};

        pub use crate::options::policy::{options_of, policy_of};

        /// What a policy decides, and what it must leave alone.
        pub mod plan {
            pub use runstone_policy::plan::{
                Busy, BusyRange, Compaction, CompactionInput, Cut, Heat, Move, Plan,
            };
        }

        /// The policies by name, including those of the program.
        pub mod registry {
            pub use runstone_policy::registry::{NameTaken, UnknownPolicy, find, register};
        }

        /// The tree as a policy sees it: levels, runs and tables.
        pub mod shape {
            pub use runstone_policy::shape::expiry::Expiries;
            pub use runstone_policy::shape::overlapping::{OverlapStats, OverlappingTables};
            pub use runstone_policy::shape::{
                Level, PolicyState, Run, RunId, RunSlot, Shape, Table, TableId,
            };
        }
    }
}

/// Where a store keeps its files. Crate `runstone-storage` has what implementations share.
pub mod storage {
    pub use runstone_storage::{
        Access, Category, Counters, CountersSnapshot, Error, FileInfo, Full, LockMode,
        MemoryStorage, Operation, PosixStorage, ReadRequest, Result, Storage, StorageFile,
        StorageLock,
    };
}

pub use callbacks::clock::Clock;
pub use callbacks::compaction_filter::{CompactionFilter, FilterDecision};
pub use callbacks::event::{Event, EventListener};
pub use callbacks::merge_operator::MergeOperator;
pub use error::{Error, ErrorKind, Gone, Result};
pub use keys::expiry::Expiry;
pub use keys::range::KeyRange;
pub use keys::{KeyspaceId, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo, prefix_successor};
pub use metrics::MetricsSnapshot;
pub use options::store::{
    Background, CompactionInstall, Compression, Durability, KeyspaceOptions, Options, PRESETS,
    Preset, SubCompactions, WalMode, WriteOptions,
};
pub use options::values::{GcPointers, ValueOptions, ValuePlacement, WhenFull};
pub use read::cached::CachedGet;
pub use read::cursor::Cursor;
pub use read::options::ReadOptions;
pub use read::scan::Scan;
pub use runstone_policy::units::{Tenths, Thousandths};
pub use store::backup::archive::{Archiver, Archiving, Based};
pub use store::backup::deep::DeepReport;
pub use store::backup::restore_to::{Moment, Restored};
pub use store::backup::{ArchiveInfo, BackupInfo, Backups};
pub use store::builder::StoreBuilder;
pub use store::changes::{
    Change, Changed, Changes, ChangesFrom, Gap, Load, NotedKeyspace, OnGap, Position,
};
pub use store::mirror::{MIRROR_KEYSPACE, Mirror, Mirroring};
pub use store::resources::{Resources, ResourcesBuilder};
pub use store::sorted::{SortedFile, SortedWriter};
pub use store::unstable;
pub use store::{
    DEFAULT_KEYSPACE, Damage, Doubt, DoubtReason, Follower, KeySurvey, Keyspace, LiveChange,
    LiveRequest, LiveSetting, LiveState, PrefixBytes, RangeEstimate, RepairBasis, RepairOptions,
    RepairReport, Snapshot, Store, SurveyedKey, Transaction, VerifyReport, Watch,
};
pub use transaction::cursor::{TransactionCursor, TransactionScan};
pub use transaction::options::{Isolation, TransactionMode, TransactionOptions};
pub use values::Value;
pub use values::usage::{GroupUsage, ValueUsage};
pub use wal::batch::{Batch, Operation};
pub use write::later::Commit;
