//! Loads, writes and flushes end in the middle of a read while another load is under way, stepped
//! by hand. `features.rs` has the case that was found, and `beside.rs` the same with threads.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::{Background, Keyspace, Snapshot, Store, ValuePlacement};
use runstone_policy::registry::POLICIES;
use runstone_sim::found::panics;
use runstone_sim::random::{Random, for_seeds};

use super::beside::{open, options};

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

type State = BTreeMap<&'static str, String>;

/// A change to a store. A reader sees all of it or nothing.
#[derive(Clone, Debug)]
enum Step {
    Load(State),
    Put(&'static str, String),
    Delete(&'static str),
    Flush,
    Job,
}

impl Step {
    fn draw(random: &mut Random, number: &mut u64) -> Step {
        *number += 1;
        let key = KEYS[random.below(6) as usize];
        match random.below(8) {
            0..3 => Step::Load(some_keys(random, *number)),
            3..5 => Step::Put(key, format!("put {number}")),
            5 => Step::Delete(key),
            6 => Step::Flush,
            _ => Step::Job,
        }
    }

    fn apply(&self, store: &Store) {
        let keyspace = store.default_keyspace();
        match self {
            Step::Load(entries) => {
                let count = keyspace.bulk_load(entries.iter()).expect("loads");
                assert_eq!(count, entries.len() as u64);
            }
            Step::Put(key, value) => keyspace.put(key, value).expect("puts"),
            Step::Delete(key) => keyspace.delete(key).expect("deletes"),
            Step::Flush => store.flush().expect("flushes"),
            Step::Job => drop(store.run_one_job().expect("runs")),
        }
    }

    fn change(&self, state: &mut State) {
        match self {
            Step::Load(entries) => state.extend(entries.clone()),
            Step::Put(key, value) => drop(state.insert(key, value.clone())),
            Step::Delete(key) => drop(state.remove(key)),
            Step::Flush | Step::Job => {}
        }
    }
}

/// Some of the keys, at least one, with values of one load.
fn some_keys(random: &mut Random, number: u64) -> State {
    let chosen = 1 + random.below(63);
    let bits = KEYS.into_iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
    bits.map(|(_, key)| (key, format!("load {number}"))).collect()
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).expect("text")
}

/// The entries that a cursor shows.
fn scan(keyspace: &Keyspace) -> State {
    let pairs = keyspace.iter().expect("opens").map(|pair| pair.expect("reads"));
    let known = |key: &[u8]| *KEYS.iter().find(|known| known.as_bytes() == key).expect("a key");
    pairs.map(|(key, value)| (known(&key), text(&value))).collect()
}

fn get_all(keyspace: &Keyspace) -> State {
    let found = keyspace.multi_get(&KEYS).expect("reads");
    let pairs = KEYS.into_iter().zip(found);
    pairs.filter_map(|(key, value)| Some((key, text(&value?)))).collect()
}

fn get_at(keyspace: &Keyspace, snapshot: &Snapshot) -> State {
    let get = |key| keyspace.get_at(key, snapshot).expect("reads");
    KEYS.into_iter().filter_map(|key| Some((key, text(&get(key)?)))).collect()
}

/// Begins a load in a thread, and returns when the load has its sequence number but no reader may
/// see it yet. The load ends when the sender is dropped.
fn begin_load(keyspace: Keyspace, entries: State) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let ((ends, end), (numbered, is_numbered)) = (mpsc::channel::<()>(), mpsc::channel());
    let loading = thread::spawn(move || {
        seeded::step_in(Waypoint::LoadNumbered, move || {
            numbered.send(()).expect("the reader waits");
            end.recv().expect_err("nothing is sent");
        });
        keyspace.bulk_load(entries.iter()).expect("loads");
    });
    is_numbered.recv().expect("it comes there");
    (ends, loading)
}

/// In the middle of a read, steps are taken and a load begins. The read shows one of the moments
/// between the steps, and the next read shows the last of them.
fn read_between(random: &mut Random, store: &Store, number: &mut u64, state: &mut State) {
    let keyspace = store.default_keyspace();
    let before = (store.snapshot(), state.clone());
    let steps: Vec<Step> = (0..random.below(5)).map(|_| Step::draw(random, number)).collect();
    let mut moments = vec![state.clone()];
    for step in &steps {
        step.change(state);
        moments.push(state.clone());
    }
    let loaded = some_keys(random, *number + 1_000_000);
    let (begun, begin) = mpsc::channel();
    let kind = random.below(3);
    let place = if kind == 0 { Waypoint::GetViewLoaded } else { Waypoint::ViewLoaded };
    let (other, taken, entries) = (store.clone(), steps.clone(), loaded.clone());
    seeded::step_in(place, move || {
        taken.iter().for_each(|step| step.apply(&other));
        let loading = begin_load(other.default_keyspace().clone(), entries);
        begun.send(loading).expect("the reader waits");
    });
    match kind {
        0 => {
            let key = KEYS[random.below(6) as usize];
            let value = keyspace.get(key).expect("reads").map(|value| text(&value));
            let is_moment = moments.iter().any(|moment| moment.get(key) == value.as_ref());
            assert!(is_moment, "a get of {key}: {value:?} in {steps:?}");
        }
        1 => assert_moment(&scan(keyspace), &moments, &steps),
        _ => assert_moment(&get_all(keyspace), &moments, &steps),
    }
    assert!(seeded::has_stepped_in());
    let (ends, loading) = begin.recv().expect("it was begun");
    for seen in [scan(keyspace), get_all(keyspace)] {
        assert_eq!(seen, *state, "a load is under way, behind {steps:?}");
    }
    drop(ends);
    loading.join().expect("loads");
    state.extend(loaded);
    for seen in [scan(keyspace), get_all(keyspace)] {
        assert_eq!(seen, *state, "the load has ended");
    }
    assert_eq!(get_at(keyspace, &before.0), before.1, "an old snapshot");
}

fn assert_moment(seen: &State, moments: &[State], steps: &[Step]) {
    assert!(moments.contains(seen), "no moment: {seen:?} in {steps:?} from {:?}", moments[0]);
}

fn live(seed: u64) {
    let mut random = Random::new(seed);
    let policy = POLICIES[random.below(POLICIES.len() as u64) as usize].name();
    let placements = [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
    let placement = placements[random.below(3) as usize];
    let (storage, options) = (MemoryStorage::new(), options(policy, placement, Background::Manual));
    let store = open(&storage, &options);
    let (mut number, mut state) = (0, State::new());
    for _ in 0..random.below(10) {
        let step = Step::draw(&mut random, &mut number);
        step.apply(&store);
        step.change(&mut state);
    }
    for _ in 0..6 {
        read_between(&mut random, &store, &mut number, &mut state);
    }
    store.close().expect("closes");
    assert_eq!(scan(open(&storage, &options).default_keyspace()), state, "after a reopen");
}

#[test]
fn reads_see_a_moment_beside_any_two_loads() {
    for_seeds(60, live);
}

/// With the view that misses loads, readers see a state that never existed.
#[test]
fn the_generator_finds_views_that_miss_loads() {
    let finds = |seed: &u64| panics(|| seeded::with(Bug::LoadsMissedInViews, || live(*seed)));
    assert!((0..60).any(|seed| finds(&seed)), "not in 60 seeds");
}
