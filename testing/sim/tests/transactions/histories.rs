//! Random histories of three transactions over four keys, in one thread. A seed decides how they
//! interleave. They are judged by Adya's rules: committed transactions are nodes, and an arrow
//! leads from one to another that must come after it.
//!
//! - *write-write*: the second overwrote a version of the first;
//! - *write-read*: the second read a version of the first;
//! - *anti*: the second overwrote what the first had read, or added what the first's scan had
//!   missed.
//!
//! A history is serializable if no arrows form a cycle. A read of an aborted or intermediate write
//! is wrong by itself. The versions of a key are in the order of commits, which one thread knows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::{
    Error, Keyspace, ReadOptions, Store, Transaction, TransactionCursor, TransactionOptions,
    WriteOptions,
};
use runstone_sim::found::panics;
use runstone_sim::random::Random;

use crate::options;

const KEYS: u64 = 4;
const ACTORS: usize = 3;
const HISTORIES: u64 = 10_000;

/// A version of a key: the number of the write that made it, or 0 if there is none.
type Version = u64;

/// What the judge needs to know of a transaction.
#[derive(Clone, Debug, Default)]
struct Deeds {
    /// Versions of others that it read.
    reads: Vec<(u64, Version)>,
    /// All its writes of each key; the last one counts.
    writes: BTreeMap<u64, Vec<Version>>,
}

/// A transaction under way.
struct Actor {
    transaction: Transaction,
    deeds: Deeds,
    steps_left: u64,
}

/// The committed transactions, in order.
type Committed = Rc<RefCell<Vec<Deeds>>>;

/// What transactions do.
#[derive(Clone, Copy)]
struct Kind {
    options: TransactionOptions,
    /// Whether gets are for update. Then nobody scans.
    locks: bool,
}

const SERIALIZABLE: fn() -> Kind =
    || Kind { options: TransactionOptions::serializable(), locks: false };
const SNAPSHOT: fn() -> Kind = || Kind { options: TransactionOptions::default(), locks: false };
const LOCKS: fn() -> Kind = || {
    let lock_timeout = Duration::ZERO;
    let options = TransactionOptions::pessimistic().lock_timeout(lock_timeout);
    Kind { options, locks: true }
};

/// Each history has its own keys, so that many share a store.
fn key(history: u64, key: u64) -> Vec<u8> {
    format!("{history:06}/{key}").into_bytes()
}

fn version_of(value: Option<&[u8]>) -> Version {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("a version")))
}

struct History<'a> {
    store: &'a Store,
    keyspace: &'a Keyspace,
    number: u64,
    random: Random,
    kind: Kind,
    last_version: Version,
    committed: Committed,
}

impl History<'_> {
    fn begin(&mut self) -> Actor {
        let transaction = self.store.begin(self.kind.options).expect("begins");
        Actor { transaction, deeds: Deeds::default(), steps_left: 1 + self.random.below(4) }
    }

    /// One step of an actor. A lock error ends the actor.
    fn step(&mut self, actor: &mut Actor) -> Result<(), Error> {
        let Actor { transaction, deeds, .. } = actor;
        let number = self.random.below(KEYS);
        let name = key(self.number, number);
        match self.random.below(8) {
            0..3 => {
                let value = match self.kind.locks {
                    true => transaction.get_for_update(self.keyspace, &name)?,
                    false => transaction.get(self.keyspace, &name)?,
                };
                note_read(deeds, number, version_of(value.as_deref()));
            }
            3 | 4 if !self.kind.locks => self.scan(transaction, deeds),
            _ => {
                self.last_version += 1;
                transaction.put(self.keyspace, &name, self.last_version.to_be_bytes())?;
                deeds.writes.entry(number).or_default().push(self.last_version);
            }
        }
        Ok(())
    }

    /// Reads some first or last keys, including absent ones.
    fn scan(&mut self, transaction: &Transaction, deeds: &mut Deeds) {
        let (first, last) = (self.random.below(KEYS), KEYS - 1);
        let (low, high) = (key(self.number, first), key(self.number, last + 1));
        let options = ReadOptions::default().with_bounds(Some(&low), Some(&high));
        let mut cursor = transaction.cursor(self.keyspace, options).expect("opens");
        let is_upward = self.random.one_in(2);
        let most = self.random.below(KEYS + 1);
        if is_upward { cursor.seek_to_first() } else { cursor.seek_to_last() }.expect("seeks");
        let number =
            |cursor: &TransactionCursor| u64::from(cursor.key()[cursor.key().len() - 1] - b'0');
        let mut seen = BTreeMap::new();
        for _ in 0..most {
            if cursor.valid() {
                seen.insert(number(&cursor), version_of(Some(cursor.value())));
                if is_upward { cursor.next() } else { cursor.prev() }.expect("steps");
            }
        }
        // The keys before the cursor and at the cursor were read. What it did not show is absent.
        let edge = match cursor.valid() {
            true => {
                seen.insert(number(&cursor), version_of(Some(cursor.value())));
                number(&cursor)
            }
            false => {
                if is_upward {
                    last
                } else {
                    first
                }
            }
        };
        drop(cursor);
        let passed = if is_upward { first..=edge } else { edge..=last };
        for number in passed {
            note_read(deeds, number, seen.get(&number).copied().unwrap_or(0));
        }
    }

    /// Commits an actor; another one may commit between its check and the lock.
    fn commit(&mut self, actor: Actor, between: Option<Actor>) {
        if let Some(other) = between {
            let committed = Rc::clone(&self.committed);
            let other = Rc::new(RefCell::new(Some(other)));
            let step = move || {
                let other = other.borrow_mut().take().expect("stepped in once");
                end(other, &committed);
            };
            seeded::step_in(Waypoint::TransactionChecked, step);
        }
        end(actor, &self.committed);
    }
}

fn end(actor: Actor, committed: &Committed) {
    let outcome = actor.transaction.commit(WriteOptions::default());
    match outcome {
        Ok(()) => committed.borrow_mut().push(actor.deeds),
        Err(Error::Conflict { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Notes a version that another transaction wrote. If the transaction has written the key itself,
/// it must see its last write.
fn note_read(deeds: &mut Deeds, key: u64, version: Version) {
    match deeds.writes.get(&key).and_then(|writes| writes.last()) {
        Some(own) => assert_eq!(version, *own, "a transaction sees its own writes"),
        None => deeds.reads.push((key, version)),
    }
}

/// Runs a history. Returns the committed transactions, in order. The last entry is a reader of the
/// outcome.
fn run(store: &Store, number: u64, kind: Kind) -> Vec<Deeds> {
    let keyspace = store.default_keyspace();
    let (random, committed) = (Random::new(number), Committed::default());
    let mut history = History { store, keyspace, number, random, kind, last_version: 0, committed };
    let mut actors: Vec<Option<Actor>> = (0..ACTORS).map(|_| None).collect();
    let mut begun = 0;
    while begun < 5 || actors.iter().any(Option::is_some) {
        let at = history.random.below(ACTORS as u64) as usize;
        let Some(mut actor) = actors[at].take() else {
            if begun < 5 {
                begun += 1;
                actors[at] = Some(history.begin());
            }
            continue;
        };
        if actor.steps_left > 0 {
            actor.steps_left -= 1;
            if history.step(&mut actor).is_ok() {
                actors[at] = Some(actor);
            }
        } else if !history.random.one_in(8) {
            let other = history.random.below(ACTORS as u64) as usize;
            let between = actors[other].take_if(|_| history.random.one_in(2) && !kind.locks);
            // A commit without writes is not checked.
            let (between, kept) = match actor.deeds.writes.is_empty() {
                true => (None, between),
                false => (between, None),
            };
            actors[other] = kept.or(actors[other].take());
            history.commit(actor, between);
        }
        if history.random.one_in(24) {
            store.flush().expect("flushes");
        }
    }
    let mut last = Deeds::default();
    for number in 0..KEYS {
        let value = keyspace.get(key(history.number, number)).expect("reads");
        last.reads.push((number, version_of(value.as_deref())));
    }
    let mut committed = history.committed.take();
    committed.push(last);
    committed
}

/// The arrows of a history, each with whether it is an anti dependency. Panics if somebody read a
/// version that no committed transaction left.
fn arrows(committed: &[Deeds]) -> BTreeSet<(usize, usize, bool)> {
    // The committed versions of each key, in order, each with its writer. The first is "none".
    let mut versions: BTreeMap<u64, Vec<(Version, Option<usize>)>> = BTreeMap::new();
    for (writer, deeds) in committed.iter().enumerate() {
        for (key, writes) in &deeds.writes {
            let last = *writes.last().expect("one at least");
            versions.entry(*key).or_insert_with(|| vec![(0, None)]).push((last, Some(writer)));
        }
    }
    let mut arrows = BTreeSet::new();
    for pairs in versions.values().map(|all| all.windows(2)) {
        let of_pair = |pair: &[(Version, Option<usize>)]| Some((pair[0].1?, pair[1].1?, false));
        arrows.extend(pairs.filter_map(of_pair));
    }
    for (reader, deeds) in committed.iter().enumerate() {
        for (key, version) in &deeds.reads {
            let Some(all) = versions.get(key) else {
                assert_eq!(*version, 0, "nobody committed a write of the key");
                continue;
            };
            let at = all.iter().position(|(one, _)| one == version);
            let at = at.expect("the version read is the last one of a committed transaction");
            arrows.extend(all[at].1.map(|writer| (writer, reader, false)));
            let next = all.get(at + 1).and_then(|(_, writer)| *writer);
            arrows.extend(next.map(|writer| (reader, writer, true)));
        }
    }
    arrows.into_iter().filter(|(from, to, _)| from != to).collect()
}

/// Whether some of these arrows form a cycle. The check removes nodes that no arrow reaches, until
/// no node is left or none can be removed.
fn has_cycle(arrows: &BTreeSet<(usize, usize, bool)>) -> bool {
    let mut left: BTreeSet<usize> = arrows.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    loop {
        let is_reached =
            |node: &usize| arrows.iter().any(|(from, to, _)| to == node && left.contains(from));
        let free: Vec<usize> = left.iter().copied().filter(|node| !is_reached(node)).collect();
        if free.is_empty() {
            return !left.is_empty();
        }
        free.iter().for_each(|node| _ = left.remove(node));
    }
}

/// Whether a cycle has at most one anti dependency: what `Snapshot` prevents.
fn has_cycle_of_one(arrows: &BTreeSet<(usize, usize, bool)>) -> bool {
    let plain: BTreeSet<_> = arrows.iter().copied().filter(|(_, _, is_anti)| !is_anti).collect();
    let anti = arrows.iter().filter(|(_, _, is_anti)| *is_anti);
    has_cycle(&plain)
        || anti.into_iter().any(|arrow| {
            let mut one = plain.clone();
            one.insert(*arrow);
            has_cycle(&one)
        })
}

/// Runs histories, and gives the arrows of each to a judge.
fn judge_all(count: u64, kind: Kind, mut judge: impl FnMut(u64, &BTreeSet<(usize, usize, bool)>)) {
    let mut committed_count = 0;
    for first in (0..count).step_by(250) {
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage, options()).expect("opens");
        for number in first..(first + 250).min(count) {
            let committed = run(&store, number, kind);
            committed_count += committed.len() as u64 - 1;
            judge(number, &arrows(&committed));
        }
    }
    assert!(committed_count > count, "{committed_count} of {count} histories' five committed");
}

#[test]
fn serializable_histories_have_no_cycle() {
    judge_all(HISTORIES, SERIALIZABLE(), |number, arrows| {
        assert!(!has_cycle(arrows), "history {number}: {arrows:?}");
    });
}

/// The same check for transactions that make all their reads for update.
#[test]
fn histories_with_locks_have_no_cycle() {
    judge_all(HISTORIES / 4, LOCKS(), |number, arrows| {
        assert!(!has_cycle(arrows), "history {number}: {arrows:?}");
    });
}

/// Under `Snapshot` each cycle has two anti dependencies. Such cycles must occur, or the search
/// would find none anywhere.
#[test]
fn snapshot_histories_have_write_skew_only() {
    let mut skewed = 0;
    judge_all(HISTORIES / 4, SNAPSHOT(), |number, arrows| {
        assert!(!has_cycle_of_one(arrows), "history {number}: {arrows:?}");
        skewed += u64::from(has_cycle(arrows));
    });
    assert!(skewed > 10, "{skewed}");
}

/// Whether the histories show a bug.
fn finds(bug: Bug) -> bool {
    panics(|| {
        seeded::with(bug, || {
            judge_all(HISTORIES / 4, SERIALIZABLE(), |_, arrows| assert!(!has_cycle(arrows)));
        });
    })
}

#[test]
fn a_scan_that_is_not_tracked_is_found() {
    assert!(finds(Bug::ScansNotTracked));
}

#[test]
fn a_check_before_the_lock_is_found() {
    assert!(finds(Bug::CheckedBeforeTheLock));
}

#[test]
fn a_write_before_the_commit_is_found() {
    assert!(finds(Bug::WrittenBeforeCommit));
}

#[test]
fn a_check_without_tables_is_found() {
    assert!(finds(Bug::TablesNotChecked));
}
