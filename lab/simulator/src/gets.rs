//! A phase of gets after the load: the heat that gets leave on overlapping tables, and the
//! compactions with which a policy reacts. Gets write nothing and take no time.
//!
//! In a level where two or more tables cover its key, a get charges each of them, as if no
//! table contained the key. Gets of present keys stop earlier, so this is an upper bound. Gets are
//! spread evenly over the key space and made in batches. A batch is so short that no table gains
//! more than a quarter of `access_limit` in it. After each batch the policy picks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{SimGets, covered_keys};
use super::spread::{mul_div, number, sweep};
use super::{Simulator, Totals, narrow};
use runstone_policy::options::Numbers;
use runstone_policy::shape::{EditError, Level, Shape, Table, TableId};

/// The largest number of units in which the gets of a phase are counted, so that sums over tables
/// and keys fit in 128 bits. A batch has many units.
const MOST_COUNTED: u64 = 1 << 40;
/// The largest number of batches of a phase. Beyond it, batches grow and jobs begin late, but the
/// phase ends.
const MOST_LOTS: u64 = 10_000;

impl Simulator<'_> {
    /// Runs this many gets, with the jobs that they cause.
    pub fn run_gets(&mut self, gets: u64) -> Result<SimGets, EditError> {
        let space = self.workload.key_space.max(1);
        let before = self.totals;
        let first = self.probed_permille();
        let every = gets.div_ceil(MOST_COUNTED).max(1);
        let (mut done, mut counted, mut probed, mut plans) = (0, 0_u128, 0_u128, None);
        let mut charges: BTreeMap<TableId, u128> = BTreeMap::new();
        let mut hot = BTreeMap::new();
        let mut covered = 0;
        while done < gets {
            if plans != Some(self.totals.plan_count) {
                plans = Some(self.totals.plan_count);
                hot = hot_keys(&self.shape);
                charges.retain(|id, _| hot.contains_key(id));
                covered = covered_keys(self.shape.tables().map(|(_, table)| table));
            }
            let lot = self.lot(&hot, gets).min(gets - done);
            done += lot;
            counted += u128::from(lot / every);
            probed += u128::from(lot / every) * covered;
            for (id, keys) in &hot {
                *charges.entry(*id).or_default() += u128::from(lot) * keys;
            }
            let accesses = |charge: u128| u64::try_from(charge / u128::from(space));
            let listed = charges.iter().map(|(id, c)| (*id, accesses(*c).unwrap_or(u64::MAX)));
            self.heat.accesses = listed.collect();
            self.settle()?;
        }
        self.heat.accesses.clear();
        let Totals { compaction_read_bytes, compacted_bytes, plan_count, .. } = self.totals;
        let mean = probed * 1000 / u128::from(space) / counted.max(1);
        Ok(SimGets {
            get_count: gets,
            tables_probed_per_get_permille: u64::try_from(mean).unwrap_or(u64::MAX),
            first_tables_probed_per_get_permille: first,
            last_tables_probed_per_get_permille: self.probed_permille(),
            compaction_read_bytes: narrow(compaction_read_bytes - before.compaction_read_bytes),
            compacted_bytes: narrow(compacted_bytes - before.compacted_bytes),
            plan_count: plan_count - before.plan_count,
        })
    }

    /// The number of gets until the policy picks again.
    fn lot(&self, hot: &BTreeMap<TableId, u128>, gets: u64) -> u64 {
        let Some(hottest) = hot.values().max() else {
            return gets;
        };
        let hottest = u64::try_from(*hottest).unwrap_or(u64::MAX).max(1);
        let quarter = u64::from(Numbers::of(&self.options).access_limit).div_ceil(4);
        mul_div(self.workload.key_space, quarter, hottest).max(gets / MOST_LOTS).max(1)
    }
}

/// For each table of an overlapping level, the number of keys that another table of the level also
/// covers. A table that never shares its level is not listed.
fn hot_keys(shape: &Shape) -> BTreeMap<TableId, u128> {
    let mut hot = BTreeMap::new();
    for level in &shape.levels {
        if let Level::Overlapping(tables) = level {
            let tables: Vec<&Arc<Table>> = tables.iter().collect();
            add_shared(&tables, &mut hot);
        }
    }
    hot
}

/// Makes one sweep over the bounds: between two of them the covering tables stay the same.
/// O(n log n + n depth).
fn add_shared(tables: &[&Arc<Table>], hot: &mut BTreeMap<TableId, u128>) {
    let end = |table: &Table| u128::from(number(&table.max_key)) + 1;
    let ranges = tables.iter().map(|table| (u128::from(number(&table.min_key)), end(table)));
    sweep(ranges, |from, to, covering| {
        if covering.len() > 1 {
            for covered in covering {
                *hot.entry(tables[*covered].id).or_default() += to - from;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::{FRESH_KEYS, KeyOrder, SimWorkload};
    use super::*;
    use runstone_policy::registry;

    /// Once, with 2^64 - 1 gets the sum exceeded 128 bits, and the report said that a get probes 7
    /// thousandths of a table.
    #[test]
    fn any_number_of_gets_probes_as_many_tables() {
        let workload = SimWorkload {
            flush_bytes: 64 << 10,
            entry_bytes: 128,
            key_space: FRESH_KEYS,
            order: KeyOrder::Uniform,
            seed: 1,
            prefix_count: 1,
        };
        let policy = registry::find("tiering").expect("registered");
        for gets in [1, 1000, MOST_COUNTED - 1, MOST_COUNTED + 1, u64::MAX] {
            let options = Numbers { l0_trigger: 64, ..Numbers::default() }.into_options();
            let mut simulator = Simulator::new(policy, options, workload.clone());
            simulator.run(40).expect("plans fit");
            let seen = simulator.run_gets(gets).expect("plans fit");
            let [first, mean] =
                [seen.first_tables_probed_per_get_permille, seen.tables_probed_per_get_permille];
            assert!(first > 39_000 && first.abs_diff(mean) <= 1, "{gets}: {first}, {mean}");
        }
    }
}
