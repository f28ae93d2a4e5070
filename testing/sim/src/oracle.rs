//! The history of acknowledged and attempted writes, and what a crash may leave of it.

use std::collections::{BTreeMap, BTreeSet};

/// Content of a store: (keyspace number, key) -> value.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Number of the keyspace.
    pub keyspace: usize,
    /// Key.
    pub key: Vec<u8>,
    /// What happens to it.
    pub change: Change,
}

/// The merge operator of workloads. Its operands do not commute, and none counts twice unseen.
pub const OPERATOR: &str = "append(,)";

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Stores a value.
    Put(Vec<u8>),
    /// Stores a value that expires long after the workload.
    PutLasting(Vec<u8>),
    /// Stores a value that has expired when the write is done.
    PutPassing(Vec<u8>),
    /// Deletes the key.
    Delete,
    /// An operand of the merge operator [`OPERATOR`].
    Merge(Vec<u8>),
    /// Deletes all keys from this one up to another; without one, to the end.
    DeleteRange(Option<Vec<u8>>),
}

impl Change {
    /// Whether it deletes an empty range from `key` on. A transaction without other writes has
    /// nothing to sync.
    pub fn is_nothing(&self, key: &[u8]) -> bool {
        matches!(self, Change::DeleteRange(Some(end)) if **end <= *key)
    }

    /// A put of the operand, if it is one. In a transaction an operand is read and written: on a
    /// value that the transaction itself wrote and that expires later, the outcome is another.
    pub fn without_operand(self) -> Change {
        match self {
            Change::Merge(operand) => Change::Put(operand),
            other => other,
        }
    }
}

/// Knows the state after every batch.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Batches in order; the last one may be unacknowledged.
    batches: Vec<Vec<Write>>,
    /// State before `batches[0]`.
    base: State,
    /// State after all acknowledged batches.
    state: State,
    acknowledged: usize,
    /// Batches known to survive a power loss.
    durable: usize,
}

/// What survived a crash, judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survived {
    /// Batches that survived.
    pub batches: usize,
    /// Batches that were attempted.
    pub attempted: usize,
}

impl Oracle {
    /// A history that starts from a known state.
    pub fn from_state(state: State) -> Oracle {
        Oracle { base: state.clone(), state, ..Oracle::default() }
    }

    /// State after all acknowledged batches.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// A batch is about to be written.
    pub fn attempt(&mut self, writes: &[Write]) {
        assert_eq!(self.acknowledged, self.batches.len(), "one attempt at a time");
        self.batches.push(writes.to_vec());
    }

    /// The attempted batch was acknowledged.
    pub fn acknowledge(&mut self) {
        let batch = &self.batches[self.acknowledged];
        apply(&mut self.state, batch);
        self.acknowledged += 1;
    }

    /// Everything acknowledged so far was promised to survive a power loss.
    pub fn synced(&mut self) {
        self.durable = self.acknowledged;
    }

    /// Whether this is the state without exactly the last batch.
    pub fn judge_tail(&self, found: &State) -> bool {
        let mut state = self.base.clone();
        let (_, earlier) = self.batches.split_last().expect("at least one batch");
        earlier.iter().for_each(|batch| apply(&mut state, batch));
        &state == found
    }

    /// Judges the content after a crash: it must be the state after some prefix of the batches
    /// (P2, P3, P4) that holds every durable one (P1), or, if no power was lost, every acknowledged
    /// one. `Err` says what is wrong.
    pub fn judge(&self, found: &State, power_lost: bool) -> Result<Survived, String> {
        let least = if power_lost { self.durable } else { self.acknowledged };
        let mut state = self.base.clone();
        let mut too_short = None;
        for count in 0..=self.batches.len() {
            if count > 0 {
                apply(&mut state, &self.batches[count - 1]);
            }
            if &state == found {
                if count >= least {
                    return Ok(Survived { batches: count, attempted: self.batches.len() });
                }
                too_short = Some(count);
            }
        }
        Err(match too_short {
            Some(count) => format!("only {count} batches survived, {least} were promised"),
            None => format!(
                "the content is that of no prefix of {} batches ({least} promised): {}",
                self.batches.len(),
                difference(&self.state, found)
            ),
        })
    }
}

/// Applies writes to a content.
pub fn apply(state: &mut State, batch: &[Write]) {
    for write in batch {
        let place = (write.keyspace, write.key.clone());
        match &write.change {
            Change::Put(value) | Change::PutLasting(value) => {
                _ = state.insert(place, value.clone());
            }
            Change::Merge(operand) => match state.get_mut(&place) {
                Some(value) => {
                    value.push(b',');
                    value.extend_from_slice(operand);
                }
                None => _ = state.insert(place, operand.clone()),
            },
            Change::Delete | Change::PutPassing(_) => _ = state.remove(&place),
            Change::DeleteRange(end) => state.retain(|(keyspace, key), _| {
                let is_before = *keyspace != write.keyspace || *key < write.key;
                is_before || end.as_ref().is_some_and(|end| key >= end)
            }),
        }
    }
}

fn difference(expected: &State, found: &State) -> String {
    let missing = expected.keys().filter(|key| !found.contains_key(*key)).count();
    let extra = found.keys().filter(|key| !expected.contains_key(*key)).count();
    let other = expected.iter().filter(|(k, v)| found.get(*k).is_some_and(|f| f != *v)).count();
    format!("against the newest state {missing} missing, {extra} extra, {other} different")
}

/// Panics unless a store holds this content, and names the first keys that differ.
pub fn assert_same(found: &State, expected: &State, what: &str) {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let bytes = |state: &State, key| state.get(key).map(Vec::len);
    let wrong = keys.into_iter().filter(|key| found.get(key) != expected.get(key));
    let wrong: Vec<String> = wrong
        .take(8)
        .map(|key| {
            let (name, found) = (key.1.escape_ascii(), bytes(found, key));
            format!("{}/{name}: {found:?} for {:?} bytes", key.0, bytes(expected, key))
        })
        .collect();
    assert!(wrong.is_empty(), "{what}: {}; {}", difference(expected, found), wrong.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Write {
        Write { keyspace: 0, key: key.into(), change: Change::Put(value.into()) }
    }

    #[test]
    fn only_prefixes_with_all_promises_pass() {
        let mut oracle = Oracle::default();
        for (i, key) in ["a", "b", "c"].iter().enumerate() {
            oracle.attempt(&[put(key, "1"), put("shared", &i.to_string())]);
            oracle.acknowledge();
            if i == 0 {
                oracle.synced();
            }
        }
        let full = oracle.state().clone();
        assert!(oracle.judge(&full, false).is_ok());
        let mut hole = full.clone();
        hole.remove(&(0, b"b".to_vec()));
        assert!(oracle.judge(&hole, true).is_err(), "a hole (P2)");
        assert!(oracle.judge(&State::new(), true).is_err(), "a lost promise (P1)");
        let mut half = full.clone();
        half.insert((0, b"shared".to_vec()), b"1".to_vec());
        assert!(oracle.judge(&half, true).is_err(), "half a batch (P3)");
        let mut first = State::new();
        first.insert((0, b"a".to_vec()), b"1".to_vec());
        first.insert((0, b"shared".to_vec()), b"0".to_vec());
        assert_eq!(oracle.judge(&first, true), Ok(Survived { batches: 1, attempted: 3 }));
        assert!(oracle.judge(&first, false).is_err(), "acknowledged writes survive a process");
    }
}
