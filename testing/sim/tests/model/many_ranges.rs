//! Range deletes in bursts, so that the encoded range deletes of a table use full blocks, single
//! entries, and a mixture. Random workloads rarely do this. After each few steps the store is
//! compared with a map, and so is a reader that learns of the range deletes from the tables alone.

use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{Background, Error, Store};
use runstone_policy::registry::POLICIES;
use runstone_sim::oracle::{Change, Oracle, Write, assert_same};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::{Operation, Run, keyspaces, options_for, read_all};

/// Keys with values. Range deletes use up to 130 more keys.
const KEYS: u64 = 600;
const STEPS: usize = 80;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

fn write(n: u64, change: Change) -> Write {
    Write { keyspace: 0, key: key(n), change }
}

/// Draws puts over a stretch, one range delete of any width, or many small ones.
fn writes(random: &mut Random) -> Vec<Write> {
    let from = random.below(KEYS);
    let up_to = |random: &mut Random, most: u64| (from + 1 + random.below(most)).min(KEYS);
    let of_range = |from: u64, to: u64| write(from, Change::DeleteRange(Some(key(to))));
    match random.below(6) {
        0..2 => {
            let to = up_to(random, 100);
            let put = |n| write(n, Change::Put(vec![b'a' + random.below(26) as u8; 30]));
            (from..to).map(put).collect()
        }
        2 => vec![of_range(from, up_to(random, KEYS))],
        3 => {
            // Both ends get an entry, so that the table overlaps others.
            let ends = [write(0, Change::Delete), write(KEYS, Change::Delete)];
            [of_range(from, up_to(random, 60))].into_iter().chain(ends).collect()
        }
        _ => {
            // Usually these range deletes cover adjacent keys without values, so none hides
            // another.
            let is_apart = !random.one_in(4);
            let count = [63, 64, 65, 100, 130][random.below(5) as usize];
            let small = |at| {
                let from = if is_apart { key(KEYS + at) } else { key(random.below(KEYS)) };
                let to = [&from[..], b"x"].concat();
                Write { keyspace: 0, key: from, change: Change::DeleteRange(Some(to)) }
            };
            (0..count).map(small).collect()
        }
    }
}

fn step(random: &mut Random, run: &mut Run, reopen: impl FnOnce() -> Result<Store, Error>) {
    let step = match random.below(20) {
        0..10 => Operation::Write { writes: writes(random), sync: false },
        10..15 => Operation::Flush,
        15 => Operation::Snapshot,
        16 => Operation::CheckSnapshot,
        17 if random.one_in(4) => Operation::Reopen,
        _ => Operation::RunOneJob,
    };
    run.apply(&step, reopen).unwrap_or_else(|error| panic!("{step:?}: {error}"));
}

fn check(policy: &str, seed: u64) {
    let mut options = options_for(policy, seed, Background::Manual);
    let mut random = Random::new(seed ^ 0x5e1f);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values = Default::default();
        let shape = unstable::numbers_mut(keyspace);
        shape.l0_trigger = 1 + random.below(3) as u32;
        shape.max_runs = 2 + random.below(3) as u32;
    }
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let reopen = || {
        let store = Store::open_on(Arc::clone(&storage), options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(reopen().expect("fresh"), Oracle::default());
    for i in 0..STEPS {
        step(&mut random, &mut run, reopen);
        if i % 8 == 7 {
            let store = run.store.as_ref().expect("open");
            store.wait_idle().expect("idle");
            let what = format!("{policy}, seed {seed}, step {i}");
            assert_same(&read_all(store, None).expect("reads"), run.oracle.state(), &what);
            store.sync().expect("syncs");
            let follower = Store::follow_on(Arc::clone(&storage), options.clone());
            let view = follower.expect("follows").store();
            assert_same(&read_all(&view, None).expect("reads"), run.oracle.state(), &what);
        }
    }
}

#[test]
fn many_ranges_and_few_under_every_policy() {
    for policy in POLICIES {
        for_seeds(8, |seed| check(policy.name(), seed));
    }
}
