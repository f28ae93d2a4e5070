//! Operands that cannot be joined, compared with a map, under snapshots and cursors that come and
//! go.

use std::sync::Arc;
use std::time::Duration;

use runstone::policy::Policy;
use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::{
    Background, Cursor, Keyspace, KeyspaceOptions, MergeOperator, Options, ReadOptions, Snapshot,
    Store,
};
use runstone_sim::found::holds_and_finds;
use runstone_sim::oracle::{Change, State, Write, apply};
use runstone_sim::random::{Random, for_seeds};

/// Appends with a comma. No operand can replace two.
#[derive(Debug)]
struct Commas;

impl MergeOperator for Commas {
    fn name(&self) -> &str {
        "commas"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.join(&b','))
    }
}

/// Readers from earlier times, with the entries that they see.
#[derive(Default)]
struct Readers {
    snapshots: Vec<(Snapshot, State)>,
    cursors: Vec<(Cursor, State)>,
}

fn open(random: &mut Random) -> Store {
    let policies = ["leveling", "guards", "fragmented-leveling", "tiering"];
    let policy = policies[random.below(policies.len() as u64) as usize];
    let toml = ["", "[values]\nplacement = \"hash-grouped\"\nseparate_at = 8"];
    let keyspace = KeyspaceOptions::from_toml(toml[random.below(2) as usize]).expect("options");
    let keyspace = keyspace.policy(Policy::named(policy)).merge_operator("commas");
    let options = Options::default()
        .background(Background::Manual)
        .keyspace(keyspace)
        .merge_operators(vec![Arc::new(Commas)]);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens")
}

fn key(random: &mut Random) -> Vec<u8> {
    vec![b'a' + random.below(4) as u8]
}

/// Mostly operands, so that chains grow.
fn change(random: &mut Random, step: u64) -> Change {
    let value = format!("value {step}").into_bytes();
    match random.below(40) {
        0 => Change::Put(value),
        1 => Change::PutLasting(value),
        2 => Change::Delete,
        3 => Change::DeleteRange(random.one_in(2).then(|| b"c".to_vec())),
        _ => Change::Merge(step.to_string().into_bytes()),
    }
}

fn write(keyspace: &Keyspace, state: &mut State, key: Vec<u8>, change: Change) {
    if change.is_nothing(&key) {
        return;
    }
    match &change {
        Change::Put(value) | Change::PutPassing(value) => keyspace.put(&key, value),
        Change::PutLasting(value) => {
            keyspace.put_with_ttl(&key, value, Duration::from_secs(10_000_000))
        }
        Change::Delete => keyspace.delete(&key),
        Change::Merge(operand) => keyspace.merge(&key, operand),
        Change::DeleteRange(Some(end)) => keyspace.delete_range(key.as_slice()..end.as_slice()),
        Change::DeleteRange(None) => keyspace.delete_range(key.as_slice()..),
    }
    .expect("writes");
    apply(state, &[Write { keyspace: 0, key, change }]);
}

/// All entries that a cursor shows. Gets would disturb the test: the store writes back the value
/// that a get makes of operands.
fn content(cursor: &mut Cursor) -> State {
    let mut found = State::new();
    cursor.seek_to_first().expect("seeks");
    while cursor.valid() {
        found.insert((0, cursor.key().to_vec()), cursor.value().to_vec());
        cursor.next().expect("steps");
    }
    found
}

impl Readers {
    fn come_or_go(&mut self, random: &mut Random, store: &Store, state: &State) {
        let some = |random: &mut Random, len: usize| random.below(len as u64) as usize;
        match random.below(4) {
            0 => self.snapshots.push((store.snapshot(), state.clone())),
            1 => {
                let keyspace = store.default_keyspace();
                let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
                cursor.seek_to_first().expect("seeks");
                self.cursors.push((cursor, state.clone()));
            }
            2 if !self.snapshots.is_empty() => {
                drop(self.snapshots.swap_remove(some(random, self.snapshots.len())));
            }
            3 if !self.cursors.is_empty() => {
                drop(self.cursors.swap_remove(some(random, self.cursors.len())));
            }
            _ => {}
        }
    }

    fn check(&mut self, store: &Store, state: &State) {
        let keyspace = store.default_keyspace();
        let mut now = keyspace.cursor(ReadOptions::default()).expect("opens");
        assert_eq!(&content(&mut now), state);
        for (snapshot, then) in &self.snapshots {
            let options = ReadOptions::default().at(snapshot);
            let mut cursor = keyspace.cursor(options).expect("opens");
            assert_eq!(&content(&mut cursor), then);
        }
        for (cursor, then) in &self.cursors {
            assert_eq!(cursor.valid(), !then.is_empty());
            if let Some(((_, key), value)) = then.first_key_value() {
                assert_eq!((cursor.key(), cursor.value()), (key.as_slice(), value.as_slice()));
            }
        }
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let store = open(&mut random);
    let (mut state, mut readers) = (State::new(), Readers::default());
    for step in 0..600 {
        let change = change(&mut random, step);
        write(store.default_keyspace(), &mut state, key(&mut random), change);
        if random.one_in(12) {
            readers.come_or_go(&mut random, &store, &state);
        }
        match random.below(40) {
            0 => store.flush().expect("flushes"),
            1 => store.compact().expect("compacts"),
            2 => while store.run_one_job().expect("runs") {},
            _ => continue,
        }
        readers.check(&store, &state);
    }
    assert!(store.verify().expect("verifies").is_clean());
}

#[test]
fn every_reader_sees_its_moment() {
    for_seeds(60, run);
}

#[test]
fn operands_folded_over_a_snapshot_are_found() {
    holds_and_finds(Bug::OperandsFoldedAcrossSnapshots, || for_seeds(10, run));
}
