//! Counts the seeks that reads waste on the tables of a keyspace, for its policy
//! (`seek_compaction`). All of it is a hint: counters are relaxed, and gone when the store closes.
//!
//! 1. A get that asked more than one table charges the first. So does an entry that a cursor
//!    samples, if two tables or more may hold its key.
//! 2. A table that has as many seeks as the rule allows it is noted, and the policy is asked. So a
//!    question costs O(noted tables), not O(tables).
//! 3. A table that moves starts again at zero, as a new table does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::options::PolicyOptions;
use runstone_policy::shape::TableId;

use crate::sync::{Mutex, rank};
use crate::table::handle::TableHandle;
use crate::tree::level::ReadLevel;
use crate::tree::version::Version;

/// The seeks of a keyspace. Its versions share them.
#[derive(Debug)]
pub struct Seeks {
    rule: PolicyOptions,
    /// Tables that have used up their seeks. Some may have left the tree, or moved.
    spent: Mutex<rank::SpentSeeks, BTreeSet<TableId>>,
}

impl Seeks {
    /// No seeks yet; `None` if the options do not ask for seek compaction.
    pub fn of(rule: &PolicyOptions) -> Option<Arc<Seeks>> {
        let seeks = || Arc::new(Seeks { rule: rule.clone(), spent: Mutex::new(BTreeSet::new()) });
        rule.seek_compaction.then(seeks)
    }

    /// Whether these options have the same rule.
    pub fn follow(&self, options: &PolicyOptions) -> bool {
        let rule = |of: &PolicyOptions| (of.seek_compaction, of.seek_bytes, of.least_seeks);
        rule(&self.rule) == rule(options)
    }

    /// Whether a table has used up its seeks.
    fn is_spent(&self, table: &TableHandle, seeks: u64) -> bool {
        seeks >= self.rule.allowed_seeks(table.meta().bytes)
    }

    /// Charges a seek. Returns whether it is time to ask the policy: when the table has just used
    /// up its seeks, and then at powers of two, in case the policy could do nothing.
    fn charge(&self, table: &TableHandle) -> bool {
        let seeks = table.charge_seek();
        let is_time = self.is_spent(table, seeks)
            && (!self.is_spent(table, seeks - 1) || seeks.is_power_of_two());
        is_time && {
            self.spent.lock().insert(table.meta().id);
            true
        }
    }

    /// The seeks of the tables that have used up theirs and are in the tree.
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
    /// Charges the first table that a get asks for a key, because it asked more than one. Returns
    /// whether it is time to ask the policy.
    #[cold]
    pub(crate) fn charge_seek(&self, key: &[u8]) -> bool {
        let first = self.seeks.as_ref().zip(self.tables_over(key).next());
        first.is_some_and(|(seeks, first)| seeks.charge(first))
    }

    /// The same for a key that a cursor sampled, if two tables or more may hold it.
    pub(super) fn charge_sampled_seek(&self, key: &[u8]) -> bool {
        let Some(seeks) = &self.seeks else { return false };
        let mut tables = self.tables_over(key);
        tables.next().zip(tables.next()).is_some_and(|(first, _)| seeks.charge(first))
    }

    /// The tables of runs that may hold a key, in the order of gets. Levels that another policy
    /// left overlapping are not asked.
    fn tables_over(&self, key: &[u8]) -> impl Iterator<Item = &TableHandle> {
        let runs = self.levels.iter().flat_map(|level| match &**level {
            ReadLevel::Runs(runs) => &runs[..],
            ReadLevel::Overlapping(_) => &[],
        });
        runs.filter_map(move |run| Some(&**run.find(key)?))
    }

    /// The seeks of the tables that have used up theirs.
    pub(super) fn spent_seeks(&self) -> BTreeMap<TableId, u64> {
        self.seeks.as_ref().map(|seeks| seeks.of_spent(self)).unwrap_or_default()
    }
}
