//! Finds tables whose entries have all expired. No reader sees them, so these tables are dropped
//! without being read. Not a policy: this is done before the policy is called.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::shape::plan::{Busy, Plan};
use crate::shape::{Level, SeqNo, Shape, Table, TableId};

/// A plan that drops the expired tables, if no job uses them.
///
/// 1. No snapshot sees an entry of such a table. For a sequence number, `until_ms` returns the time
///    up to which entries of that number and later ones count as expired. The time is earlier for
///    entries that a snapshot may see.
/// 2. An expired entry hides older versions of its key. So no remaining table in its layer or below
///    contains older entries between its bounds.
///
/// O(tables) if none has expired. Otherwise every run below each expired table is searched.
pub fn expired_plan(shape: &Shape, busy: &Busy, until_ms: impl Fn(SeqNo) -> u64) -> Option<Plan> {
    let is_free = |table: &Table| {
        table.has_expired(until_ms(table.min_seq)) && !busy.tables.contains(&table.id)
    };
    let mut expired: Vec<(u32, &Arc<Table>)> =
        shape.tables().filter(|(_, table)| is_free(table)).collect();
    loop {
        let ids: BTreeSet<TableId> = expired.iter().map(|(_, table)| table.id).collect();
        expired.retain(|(level, table)| !hides_others(shape, *level, table, &ids));
        if expired.len() == ids.len() {
            break;
        }
    }
    let drops: Vec<TableId> = expired.iter().map(|(_, table)| table.id).collect();
    let why = format!("{} tables hold only what has expired", drops.len());
    (!drops.is_empty()).then(|| Plan { drops, why, ..Plan::default() })
}

/// Whether a table may hide entries of other tables at its level or deeper. Tables in `gone` do not
/// count.
fn hides_others(shape: &Shape, level: u32, table: &Table, gone: &BTreeSet<TableId>) -> bool {
    let is_hidden = |other: &Arc<Table>| other.min_seq < table.max_seq && !gone.contains(&other.id);
    shape.levels.iter().skip(level as usize).any(|level| match level {
        Level::Runs(runs) => runs
            .iter()
            .any(|run| run.overlapping(&table.min_key, &table.max_key).iter().any(is_hidden)),
        Level::Overlapping(tables) => tables.meeting(&table.min_key, &table.max_key).any(is_hidden),
    })
}
