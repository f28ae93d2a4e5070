//! The history of acknowledged and attempted writes, and the only judge of what crashes may leave
//! of this history. It judges one crash or several in a row, with fixed keyspaces or with keyspaces
//! that are made and dropped. Stores that report how many writes they have do not need it (`soak`,
//! `crash/power_cut.rs`): the count says which state to expect.

use std::collections::{BTreeMap, BTreeSet};

/// Content of a store: (keyspace number, key) -> value.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// Content of a keyspace.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Content of a store by the names of its keyspaces, including those without entries.
pub type Found = BTreeMap<String, Content>;

/// The number of each keyspace by name. A keyspace that is made again gets a new number.
pub type Named = BTreeMap<String, usize>;

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

/// The merge operator of workloads. Its operands do not commute, and an operand that is applied
/// twice changes the result.
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

    /// The change, but an operand becomes a put. In a transaction an operand is a read and a write.
    /// On a value that the transaction itself wrote and that expires later, its outcome would
    /// differ.
    pub fn without_operand(self) -> Change {
        match self {
            Change::Merge(operand) => Change::Put(operand),
            other => other,
        }
    }
}

/// Knows what a store must contain after any crashes: the state after every batch, and the
/// keyspaces.
///
/// 1. A batch is attempted, then acknowledged, and may be promised to survive a power loss.
/// 2. A keyspace is made or dropped by a step of its own, which is durable once acknowledged.
/// 3. Any number of crashes follow, until an open succeeds and its content is judged.
/// 4. What survived is settled, and the history continues from there.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The keyspaces; empty if the workload has the same keyspaces all the time.
    named: Named,
    /// The keyspaces if the making or the drop that is attempted has taken effect.
    maybe: Option<Named>,
    /// The number of the next keyspace.
    next: usize,
    /// Batches since `base`, in order; the last one may be unacknowledged.
    batches: Vec<Vec<Write>>,
    /// State before `batches[0]`.
    base: State,
    /// State after all acknowledged batches.
    state: State,
    acknowledged: usize,
    /// Batches known to survive a power loss.
    durable: usize,
    /// Whether power was lost since the content was last settled.
    power_lost: bool,
}

/// What survived a crash, judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survived {
    /// Batches that survived.
    pub batches: usize,
    /// Batches that were attempted.
    pub attempted: usize,
    /// Whether a keyspace was made or dropped by an attempt that was never acknowledged.
    pub changes_keyspaces: bool,
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

    /// The keyspaces after all acknowledged steps.
    pub fn named(&self) -> &Named {
        &self.named
    }

    /// What the store shows while nothing has gone wrong.
    pub fn shown(&self) -> Found {
        let content = |number| {
            let own = self.state.range((number, Vec::new())..(number + 1, Vec::new()));
            own.map(|((_, key), value)| (key.clone(), value.clone())).collect()
        };
        self.named.iter().map(|(name, number)| (name.clone(), content(*number))).collect()
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

    /// What was attempted was refused as a whole: it never happened.
    pub fn withdraw(&mut self) {
        assert!(self.acknowledged < self.batches.len(), "an attempt is withdrawn once");
        self.batches.truncate(self.acknowledged);
    }

    /// Everything acknowledged so far was promised to survive a power loss.
    pub fn synced(&mut self) {
        self.durable = self.acknowledged;
    }

    /// A keyspace is about to be made. Its number is new, so it begins empty.
    pub fn attempt_keyspace(&mut self, name: &str) {
        let mut named = self.named.clone();
        named.insert(name.to_string(), self.next);
        self.next += 1;
        self.maybe = Some(named);
    }

    /// A keyspace is about to be dropped.
    pub fn attempt_drop(&mut self, name: &str) {
        let mut named = self.named.clone();
        named.remove(name);
        self.maybe = Some(named);
    }

    /// The keyspace was made or dropped.
    pub fn acknowledge_keyspaces(&mut self) {
        self.named = self.maybe.take().expect("attempted before");
    }

    /// The process has died or the power was lost. After a power loss only durable batches are
    /// promised, whatever crashes follow, until the content is settled.
    pub fn crash(&mut self, power_lost: bool) {
        self.power_lost |= power_lost;
    }

    /// Whether this is the state of all batches but the last.
    pub fn judge_tail(&self, found: &State) -> bool {
        let mut state = self.base.clone();
        let (_, earlier) = self.batches.split_last().expect("at least one batch");
        earlier.iter().for_each(|batch| apply(&mut state, batch));
        &state == found
    }

    /// Judges the content after crashes: it must be the state after some prefix of the batches (P2,
    /// P3, P4) that includes every durable batch (P1), or, if no power was lost, every acknowledged
    /// batch. `Err` says what is wrong.
    pub fn judge(&self, found: &State) -> Result<Survived, String> {
        self.judge_within(found, |_| true)
    }

    /// Does the same for a store whose keyspaces are made and dropped. They must be the
    /// acknowledged keyspaces, or those that the attempted step would make.
    pub fn judge_keyspaces(&self, found: &Found) -> Result<Survived, String> {
        let mut wrong = None;
        let either = [(false, Some(&self.named)), (true, self.maybe.as_ref())];
        for (changes_keyspaces, named) in either {
            let Some(named) = named.filter(|named| named.keys().eq(found.keys())) else { continue };
            let state = numbered(found, named);
            let numbers: BTreeSet<usize> = named.values().copied().collect();
            match self.judge_within(&state, |number| numbers.contains(&number)) {
                Ok(survived) => return Ok(Survived { changes_keyspaces, ..survived }),
                Err(what) => wrong = Some(what),
            }
        }
        Err(wrong.unwrap_or_else(|| {
            let names: Vec<&String> = found.keys().collect();
            format!("{names:?} are there, not {:?} or {:?}", self.named, self.maybe)
        }))
    }

    /// Judges the content of some of the keyspaces, by their numbers.
    fn judge_within(
        &self,
        found: &State,
        is_there: impl Fn(usize) -> bool,
    ) -> Result<Survived, String> {
        let least = if self.power_lost { self.durable } else { self.acknowledged };
        let attempted = self.batches.len();
        let mut state = self.base.clone();
        let mut too_short = None;
        for batches in 0..=attempted {
            if batches > 0 {
                apply(&mut state, &self.batches[batches - 1]);
            }
            if state.iter().filter(|((number, _), _)| is_there(*number)).eq(found) {
                if batches >= least {
                    return Ok(Survived { batches, attempted, changes_keyspaces: false });
                }
                too_short = Some(batches);
            }
        }
        Err(match too_short {
            Some(count) => format!("only {count} batches survived, {least} were promised"),
            None => format!(
                "the content is that of no prefix of {attempted} batches ({least} promised): {}",
                difference(&self.state, found)
            ),
        })
    }

    /// Makes the surviving content the state from now on. It is durable, because an open that
    /// succeeds syncs what it found.
    pub fn settle(&mut self, survived: Survived) {
        let mut base = std::mem::take(&mut self.base);
        self.batches[..survived.batches].iter().for_each(|batch| apply(&mut base, batch));
        let maybe = self.maybe.take().filter(|_| survived.changes_keyspaces);
        let named = maybe.unwrap_or_else(|| std::mem::take(&mut self.named));
        *self = Oracle { named, next: self.next, ..Oracle::from_state(base) };
    }
}

/// The content by the number of each keyspace.
fn numbered(found: &Found, named: &Named) -> State {
    let mut state = State::new();
    for (name, content) in found {
        let own = content.iter().map(|(key, value)| ((named[name], key.clone()), value.clone()));
        state.extend(own);
    }
    state
}

/// Applies writes to the content of a store.
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

/// Panics unless a store has this content, and names the first keys that differ.
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

    fn state(entries: &[(&str, &str)]) -> State {
        entries
            .iter()
            .map(|(key, value)| ((0, key.as_bytes().to_vec()), value.as_bytes().to_vec()))
            .collect()
    }

    /// Keyspaces by name, each with its keys, whose values are all "1".
    fn found(keyspaces: &[(&str, &[&str])]) -> Found {
        let content = |keys: &[&str]| -> Content {
            keys.iter().map(|key| (key.as_bytes().to_vec(), b"1".to_vec())).collect()
        };
        keyspaces.iter().map(|(name, keys)| (name.to_string(), content(keys))).collect()
    }

    fn after(oracle: &Oracle, power_lost: bool) -> Oracle {
        let mut oracle = oracle.clone();
        oracle.crash(power_lost);
        oracle
    }

    fn acknowledged(oracle: &mut Oracle, writes: &[Write]) {
        oracle.attempt(writes);
        oracle.acknowledge();
    }

    fn made(oracle: &mut Oracle, name: &str) {
        oracle.attempt_keyspace(name);
        oracle.acknowledge_keyspaces();
    }

    /// Three batches, of which the first is durable.
    fn three() -> Oracle {
        let mut oracle = Oracle::default();
        for (i, key) in ["a", "b", "c"].iter().enumerate() {
            acknowledged(&mut oracle, &[put(key, "1"), put("shared", &i.to_string())]);
            if i == 0 {
                oracle.synced();
            }
        }
        oracle
    }

    /// The oracle's report of what is wrong.
    fn wrong(judged: Result<Survived, String>) -> String {
        judged.expect_err("it is wrong")
    }

    #[test]
    fn only_prefixes_with_all_promises_pass() {
        let oracle = three();
        let (process, power) = (after(&oracle, false), after(&oracle, true));
        let full = oracle.state().clone();
        let all = Survived { batches: 3, attempted: 3, changes_keyspaces: false };
        assert_eq!([process.judge(&full), power.judge(&full)], [Ok(all), Ok(all)]);
        let first = state(&[("a", "1"), ("shared", "0")]);
        assert_eq!(power.judge(&first), Ok(Survived { batches: 1, ..all }));
        let short = wrong(process.judge(&first));
        assert!(short.contains("only 1 batches survived, 3 were promised"), "{short}");
        let lost = wrong(power.judge(&State::new()));
        assert!(lost.contains("only 0 batches survived, 1 were promised"), "P1: {lost}");
        let none = [
            ("a hole (P2)", state(&[("a", "1"), ("c", "1"), ("shared", "2")])),
            ("half a batch (P3)", state(&[("a", "1"), ("b", "1"), ("shared", "0")])),
            ("an older value", state(&[("a", "1"), ("b", "1"), ("c", "1"), ("shared", "1")])),
            ("what was never written", state(&[("a", "1"), ("d", "1"), ("shared", "0")])),
        ];
        for (what, content) in none {
            let told = wrong(power.judge(&content));
            assert!(told.contains("no prefix of 3 batches (1 promised)"), "{what}: {told}");
        }
    }

    #[test]
    fn deletes_do_not_resurrect() {
        let mut oracle = three();
        let delete = Write { keyspace: 0, key: b"a".to_vec(), change: Change::Delete };
        acknowledged(&mut oracle, &[delete]);
        acknowledged(&mut oracle, &[put("d", "1")]);
        oracle.synced();
        let mut found = oracle.state().clone();
        assert!(after(&oracle, true).judge(&found).is_ok());
        found.insert((0, b"a".to_vec()), b"1".to_vec());
        let told = wrong(after(&oracle, true).judge(&found));
        assert!(told.contains("no prefix") && told.contains("1 extra"), "P4: {told}");
    }

    #[test]
    fn an_attempt_is_there_or_not_unless_it_was_refused() {
        let mut oracle = three();
        let before = oracle.state().clone();
        oracle.attempt(&[put("d", "1")]);
        let mut all = before.clone();
        apply(&mut all, &[put("d", "1")]);
        let process = after(&oracle, false);
        assert_eq!(process.judge(&before).map(|survived| survived.batches), Ok(3));
        assert_eq!(process.judge(&all).map(|survived| survived.batches), Ok(4));
        assert!(oracle.judge_tail(&before) && !oracle.judge_tail(&all));
        oracle.withdraw();
        assert!(oracle.judge(&before).is_ok() && oracle.judge(&all).is_err());
        oracle.attempt(&[put("e", "1")]);
    }

    #[test]
    #[should_panic(expected = "one attempt at a time")]
    fn attempts_follow_each_other() {
        let mut oracle = three();
        oracle.attempt(&[put("d", "1")]);
        oracle.attempt(&[put("e", "1")]);
    }

    /// A power loss counts until the content is settled; the settled content is then promised.
    #[test]
    fn crashes_in_a_row_are_judged_together() {
        let first = state(&[("a", "1"), ("shared", "0")]);
        let mut oracle = three();
        oracle.crash(true);
        oracle.crash(false);
        let survived = oracle.judge(&first).expect("the power was lost before");
        oracle.settle(survived);
        assert_eq!(oracle.state(), &first);
        oracle.crash(false);
        assert!(oracle.judge(&first).is_ok());
        let told = wrong(oracle.judge(three().state()));
        assert!(told.contains("no prefix of 0 batches"), "what was lost is back: {told}");
        acknowledged(&mut oracle, &[put("d", "1")]);
        let told = wrong(oracle.judge(&first));
        assert!(told.contains("only 0 batches survived, 1 were promised"), "{told}");
        oracle.crash(true);
        assert!(oracle.judge(&first).is_ok(), "it was not durable");
        assert!(oracle.judge(&State::new()).is_err(), "what is settled is durable");
    }

    #[test]
    fn keyspaces_are_durable_once_acknowledged() {
        let mut oracle = Oracle::default();
        made(&mut oracle, "default");
        made(&mut oracle, "a");
        let in_a = Write { keyspace: oracle.named()["a"], ..put("k", "1") };
        acknowledged(&mut oracle, &[put("k", "1"), in_a]);
        let full = found(&[("a", &["k"]), ("default", &["k"])]);
        assert_eq!(oracle.shown(), full);
        let power = after(&oracle, true);
        assert!(power.judge_keyspaces(&full).is_ok());
        let none = power.judge_keyspaces(&found(&[("a", &[]), ("default", &[])]));
        assert_eq!(none.map(|survived| survived.batches), Ok(0));
        let half = wrong(power.judge_keyspaces(&found(&[("a", &[]), ("default", &["k"])])));
        assert!(half.contains("no prefix"), "half a batch (P3): {half}");
        for other in
            [found(&[("default", &[])]), found(&[("a", &[]), ("b", &[]), ("default", &[])])]
        {
            let told = wrong(power.judge_keyspaces(&other));
            assert!(told.contains("are there, not"), "a lost keyspace, one too many: {told}");
        }
    }

    /// A keyspace that is dropped and made again begins empty, and a drop promises nothing about
    /// the writes to other keyspaces.
    #[test]
    fn a_keyspace_that_is_made_again_begins_empty() {
        let mut oracle = Oracle::default();
        made(&mut oracle, "default");
        made(&mut oracle, "a");
        let before = oracle.named()["a"];
        acknowledged(&mut oracle, &[Write { keyspace: before, ..put("old", "1") }]);
        acknowledged(&mut oracle, &[put("k", "1")]);
        oracle.attempt_drop("a");
        let (with, without) =
            (found(&[("a", &["old"]), ("default", &["k"])]), found(&[("default", &["k"])]));
        let process = after(&oracle, false);
        let changes = |found| process.judge_keyspaces(found).map(|one| one.changes_keyspaces);
        assert_eq!([changes(&with), changes(&without)], [Ok(false), Ok(true)]);
        oracle.acknowledge_keyspaces();
        assert!(oracle.judge_keyspaces(&with).is_err(), "a drop that is undone");
        assert!(after(&oracle, true).judge_keyspaces(&found(&[("default", &[])])).is_ok());
        oracle.attempt_keyspace("a");
        oracle.crash(false);
        assert!(oracle.judge_keyspaces(&with).is_err(), "writes of the dropped one");
        let again = found(&[("a", &[]), ("default", &["k"])]);
        let survived = oracle.judge_keyspaces(&again).expect("made, and not acknowledged");
        assert!(survived.changes_keyspaces);
        oracle.settle(survived);
        assert_ne!(oracle.named()["a"], before);
        assert_eq!(oracle.shown(), again);
    }
}
