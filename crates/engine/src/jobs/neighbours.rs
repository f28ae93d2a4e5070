//! Finds which versions outside a compaction are next to the versions inside it. `drop_guard.rs` of
//! the policies decides by the shape of the tree. If the shape is not enough, the filters of the
//! tables decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::drop_guard::{LinkGuard, NewerGuard};
use runstone_policy::shape::{Table, TableId};

use crate::catalog::keyspace::View;
use crate::format::filter;
use crate::keys::{MAX_SEQ, SeqNo};
use crate::memtable::Memtable;
use crate::table::handle::TableHandle;
use crate::tree::version::Version;

/// Tables outside a compaction, opened for reading.
type Outside = BTreeMap<TableId, Arc<TableHandle>>;

/// Says which versions of a key are neighbours (I7).
pub(crate) struct Neighbours {
    guard: LinkGuard,
    outside: Outside,
}

impl Neighbours {
    /// The neighbours in the compaction of `inputs`. `None` if all its inputs' versions are
    /// neighbours.
    pub(crate) fn of(version: &Version, inputs: &BTreeSet<TableId>) -> Option<Neighbours> {
        let guard = LinkGuard::new(&version.shape, inputs);
        let outside = opened(version, guard.suspects());
        (!outside.is_empty()).then_some(Neighbours { guard, outside })
    }

    /// Whether no table outside has a version of the key between the two.
    pub(crate) fn are(&mut self, key: &[u8], newer: SeqNo, older: SeqNo) -> bool {
        let Neighbours { guard, outside } = self;
        guard.may_link(key, newer, older, |table| may_hold(outside, table, key))
            || seeded!(OperandsFoldedPastTables)
    }
}

/// Says whether a version that a compaction processes is the newest of its key.
pub(crate) struct Newest {
    guard: NewerGuard,
    outside: Outside,
    /// The memtables at the beginning. Each is newer than every table at that time.
    memtables: Vec<Arc<Memtable>>,
}

impl Newest {
    /// Judges by the view with which a compaction of `inputs` begins. Holds the view's memtables.
    pub(crate) fn of(view: &View, inputs: &BTreeSet<TableId>) -> Newest {
        let guard = NewerGuard::new(&view.version.shape, inputs);
        let outside = opened(&view.version, guard.suspects());
        Newest { guard, outside, memtables: view.memtables().cloned().collect() }
    }

    /// Whether no memtable and no table outside has a newer version of the key.
    pub(crate) fn is(&mut self, key: &[u8], seq: SeqNo) -> bool {
        let Newest { guard, outside, memtables } = self;
        let is_in_memory = |memtable: &Arc<Memtable>| memtable.get(key, MAX_SEQ).is_some();
        seeded!(FilterIgnoresNewer)
            || !memtables.iter().any(is_in_memory)
                && guard.is_newest(key, seq, |table| may_hold(outside, table, key))
    }
}

fn opened(version: &Version, tables: &[Arc<Table>]) -> Outside {
    let handle = |table: &Arc<Table>| Some((table.id, Arc::clone(version.handle(table.id)?)));
    tables.iter().filter_map(handle).collect()
}

/// Whether a table may contain a key that is within its bounds. `true` if the table cannot be read.
fn may_hold(outside: &Outside, table: &Table, key: &[u8]) -> bool {
    let reader = outside.get(&table.id).and_then(|handle| handle.reader().ok());
    reader.is_none_or(|reader| reader.may_contain(key, filter::hash(key)).unwrap_or(true))
}
