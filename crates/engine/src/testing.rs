//! The internals that tests of the crate `runstone-sim` use: the readers of each file format, for
//! fuzz targets. This file has only re-exports. It is compiled with the feature `seeded-bugs`,
//! which no user turns on, and makes no promise of stability.

pub use crate::cache::Cache;
pub use crate::format::filter::hash;
pub use crate::keys::codec::Reader;
pub use crate::log::{LogHeader, LogKind, LogReader, LogWriter, Next};
pub use crate::options::store::KeyspaceOptions;
#[cfg(debug_assertions)]
pub use crate::sync::most_looked;
pub use crate::table::TABLE_FORMAT;
pub use crate::table::builder::{TableBuilder, TableLayout};
pub use crate::table::handle::{DiskUse, TableContext};
pub use crate::table::iterator::{Access, TableIter};
pub use crate::table::reader::{ProbeStats, TableReader};
pub use crate::tree::manifest::{Current, KeyspaceState, Manifest, StoreState, read_manifest};
pub use crate::tree::record::{BadRecord, Change, decode, encode};
pub use crate::values::layout::Layout;
pub use crate::wal::recovery::{LogStart, Recovered, replay};
