//! Applies the changes of a manifest to a state, one after another.

use std::collections::BTreeMap;

use runstone_policy::shape::replay::Replay as ShapeReplay;

use crate::keys::KeyspaceId;
use crate::tree::manifest::{KeyspaceState, StoreState, check_shape};
use crate::tree::record::Change;

/// A state to which changes are applied. The trees that edits change are kept meanwhile in a form
/// to which many edits of large trees are applied fast. Dropping this value puts them back into the
/// state.
#[derive(Debug)]
pub struct Replay<'a> {
    state: &'a mut StoreState,
    trees: BTreeMap<KeyspaceId, ShapeReplay>,
}

impl<'a> Replay<'a> {
    /// Begins with a state.
    pub fn of(state: &'a mut StoreState) -> Replay<'a> {
        Replay { state, trees: BTreeMap::new() }
    }

    /// Applies one change.
    pub fn apply(&mut self, change: &Change) -> std::result::Result<(), String> {
        let state = &mut *self.state;
        match change {
            Change::Store { uid } => state.uid = *uid,
            Change::Counters { next_file, last_seq, log_floor, log_start_seq } => {
                state.next_file = state.next_file.max(*next_file);
                state.last_seq = state.last_seq.max(*last_seq);
                state.log_floor = *log_floor;
                state.log_start_seq = *log_start_seq;
            }
            Change::Log { synced_seq, next_keyspace } => {
                state.log_synced_seq = state.log_synced_seq.max(*synced_seq);
                state.next_keyspace = state.next_keyspace.max(*next_keyspace);
            }
            Change::History(history) => state.history = history.clone(),
            Change::NoLog => state.has_no_log = true,
            Change::Keyspace { id, name, options } => {
                if state.next_keyspace > 0 {
                    state.next_keyspace = state.next_keyspace.max(id.saturating_add(1));
                }
                let fresh = || KeyspaceState::new(String::new(), String::new());
                let entry = state.keyspaces.entry(*id).or_insert_with(fresh);
                entry.name.clone_from(name);
                entry.options.clone_from(options);
            }
            Change::Dropped { id } => {
                self.trees.remove(id);
                state.keyspaces.remove(id).ok_or("drops a keyspace that does not exist")?;
            }
            Change::Edit { id, flushed_seq, edit } => {
                let entry = state.keyspace(*id)?;
                let put_aside = || ShapeReplay::of(std::mem::take(&mut entry.shape));
                let tree = self.trees.entry(*id).or_insert_with(put_aside);
                tree.apply(edit).map_err(|bad| bad.to_string())?;
                entry.flushed_seq = entry.flushed_seq.max(*flushed_seq);
            }
            Change::Shape { id, flushed_seq, shape } => {
                let entry = state.keyspace(*id)?;
                self.trees.remove(id);
                entry.shape = check_shape(shape)?;
                entry.flushed_seq = *flushed_seq;
            }
            Change::ValueFile { id, layout } => {
                layout.check()?;
                let entry = state.keyspace(*id)?;
                entry.values.retain(|known| known.number != layout.number);
                entry.values.push(layout.clone());
                entry.values.sort_by_key(|layout| layout.number);
            }
            Change::Values { id, edit } => {
                state.keyspace(*id)?.value_file(edit.store)?.apply(edit)?;
            }
            Change::ValueFileGone { id, number } => {
                let entry = state.keyspace(*id)?;
                entry.value_file(*number)?;
                entry.values.retain(|known| known.number != *number);
            }
        }
        Ok(())
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        for (id, tree) in std::mem::take(&mut self.trees) {
            if let Some(entry) = self.state.keyspaces.get_mut(&id) {
                entry.shape = tree.finish();
            }
        }
    }
}
