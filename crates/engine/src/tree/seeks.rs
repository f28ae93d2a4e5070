//! Counts the seeks that reads waste on the tables of a keyspace, for its policy
//! (`seek_compaction`). The counts are only hints: the counters are relaxed, and are lost when the
//! store closes.
//!
//! 1. A get that searched more than one table charges the first of them. So does an entry that a
//!    cursor samples, if two tables or more may contain its key.
//! 2. When a table has as many seeks as the rule allows it, it is noted, and the policy decides
//!    again. So a decision costs O(noted tables), not O(tables).
//! 3. When a table moves, its count starts again at zero, as for a new table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::options::Numbers;
use runstone_policy::shape::TableId;

use crate::sync::{Mutex, rank};
use crate::table::handle::TableHandle;
use crate::tree::level::ReadLevel;
use crate::tree::version::Version;

/// The seeks of a keyspace. Its versions share them.
#[derive(Debug)]
pub struct Seeks {
    rule: Numbers,
    /// Tables that have used up their seeks. Some of them may have left the tree or moved since.
    spent: Mutex<rank::SpentSeeks, BTreeSet<TableId>>,
}

impl Seeks {
    /// A count without seeks; `None` if the options do not enable seek compaction.
    pub fn of(rule: &Numbers) -> Option<Arc<Seeks>> {
        let seeks = || Arc::new(Seeks { rule: rule.clone(), spent: Mutex::new(BTreeSet::new()) });
        rule.seek_compaction.then(seeks)
    }

    /// Whether these options have the same rule.
    pub fn follow(&self, options: &Numbers) -> bool {
        let rule = |of: &Numbers| (of.seek_compaction, of.seek_bytes, of.least_seeks);
        rule(&self.rule) == rule(options)
    }

    /// Whether a table has used up its seeks.
    fn is_spent(&self, table: &TableHandle, seeks: u64) -> bool {
        seeks >= self.rule.allowed_seeks(table.meta().bytes)
    }

    /// Charges a seek. Returns whether the policy should decide again: when the table has just used
    /// up its seeks, and later at powers of two, in case the policy could do nothing before.
    fn charge(&self, table: &TableHandle) -> bool {
        let seeks = table.charge_seek();
        let is_time = self.is_spent(table, seeks)
            && (!self.is_spent(table, seeks - 1) || seeks.is_power_of_two());
        is_time && {
            self.spent.lock().insert(table.meta().id);
            true
        }
    }

    /// The seeks of the tables in the tree that have used up their seeks.
    fn of_spent(&self, tree: &Version) -> BTreeMap<TableId, u64> {
        let mut seeks = BTreeMap::new();
        self.spent.lock().retain(|id| {
            let charged = tree.handle(*id).map(|table| (table, table.seeks()));
            let spent = charged.filter(|(table, charged)| self.is_spent(table, *charged));
            seeks.extend(spent.map(|(_, charged)| (*id, charged)));
            spent.is_some()
        });
        seeks
    }
}

impl Version {
    /// Charges the first table that a get searched for a key, because the get searched more than
    /// one. Returns whether the policy should decide again.
    #[cold]
    pub(crate) fn charge_seek(&self, key: &[u8]) -> bool {
        let first = self.seeks.as_ref().zip(self.tables_over(key).next());
        first.is_some_and(|(seeks, first)| seeks.charge(first))
    }

    /// As `charge_seek`, for a key that a cursor sampled, if two tables or more may contain it.
    pub(super) fn charge_sampled_seek(&self, key: &[u8]) -> bool {
        let Some(seeks) = &self.seeks else { return false };
        let mut tables = self.tables_over(key);
        tables.next().zip(tables.next()).is_some_and(|(first, _)| seeks.charge(first))
    }

    /// The tables of runs that may contain a key, in the order in which gets search them. Levels
    /// that another policy left overlapping are not included.
    fn tables_over(&self, key: &[u8]) -> impl Iterator<Item = &TableHandle> {
        let runs = self.levels.iter().flat_map(|level| match &**level {
            ReadLevel::Runs(runs) => &runs[..],
            ReadLevel::Overlapping(_) => &[],
        });
        runs.filter_map(move |run| Some(&**run.find(key)?))
    }

    /// The seeks of the tables that have used up their seeks.
    pub(super) fn spent_seeks(&self) -> BTreeMap<TableId, u64> {
        self.seeks.as_ref().map(|seeks| seeks.of_spent(self)).unwrap_or_default()
    }
}
