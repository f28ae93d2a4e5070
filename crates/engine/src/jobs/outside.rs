//! Debug builds compare the decisions of a compaction with this: rule I4 as it is written, without
//! the index that makes [`DropGuard`](runstone_policy::drop_guard::DropGuard) fast.

use std::collections::BTreeSet;

use runstone_policy::shape::{Level, Shape, Table, TableId};

use crate::keys::SeqNo;

/// Tombstones of a slice that are compared. Each needs a walk over all tables.
const MOST: usize = 64;

/// The tables around a compaction.
#[derive(Debug)]
pub(crate) struct Outside {
    shape: Shape,
    inputs: BTreeSet<TableId>,
    compared: usize,
}

impl Outside {
    /// The tables around the compaction of `inputs`; `None` in a release build.
    pub(crate) fn of(shape: &Shape, inputs: &BTreeSet<TableId>) -> Option<Outside> {
        let make = || Outside { shape: shape.clone(), inputs: inputs.clone(), compared: 0 };
        cfg!(debug_assertions).then(make)
    }

    /// Whether the tombstone of `key` at `seq` may be dropped, or enough were compared already.
    pub(crate) fn allows(&mut self, key: &[u8], seq: SeqNo) -> bool {
        self.compared += 1;
        self.compared > MOST || !self.holds_older(key, seq)
    }

    /// Whether a table that is no input covers the key, may have an older version, and is in or
    /// below the layer of an input that overlaps it. O(tables).
    fn holds_older(&self, key: &[u8], seq: SeqNo) -> bool {
        let covers = |table: &Table| *table.min_key <= *key && *key <= *table.max_key;
        let meets = |one: &Table, other: &Table| {
            one.min_key <= other.max_key && other.min_key <= one.max_key
        };
        let mut inputs: Vec<&Table> = Vec::new();
        for layer in layers(&self.shape) {
            let (own, others): (Vec<&Table>, Vec<&Table>) =
                layer.into_iter().partition(|table| self.inputs.contains(&table.id));
            inputs.extend(own);
            let mut older = others.into_iter().filter(|table| covers(table) && table.min_seq < seq);
            if older.any(|table| inputs.iter().any(|input| meets(input, table))) {
                return true;
            }
        }
        false
    }
}

/// The tables of each layer, from the newest to the oldest: a run, or a level whose tables overlap.
fn layers(shape: &Shape) -> Vec<Vec<&Table>> {
    let mut layers = Vec::new();
    for level in &shape.levels {
        match level {
            Level::Runs(runs) => {
                layers.extend(
                    runs.iter().map(|run| run.tables.iter().map(|table| &**table).collect()),
                );
            }
            Level::Overlapping(_) => layers.push(level.tables().map(|table| &**table).collect()),
        }
    }
    layers
}
