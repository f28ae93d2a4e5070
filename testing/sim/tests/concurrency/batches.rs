//! Many threads on one store. A batch sets a group of keys over two keyspaces at once. Every reader
//! sees each group as one batch left it, and that batch is no older than the last one acknowledged
//! before the read. Meanwhile options change, values are collected, and everything is compacted and
//! copied. At the end the process dies in the middle of this work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use runstone::{
    Background, Batch, Cursor, Error, Keyspace, Options, ReadOptions, Snapshot, Store, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::changes;
use runstone_sim::random::{Random, for_seeds, number};

const NAMES: [&str; 2] = ["default", "other"];
const GROUPS: u64 = 12;
const MEMBERS: u64 = 6;
const WRITERS: u64 = 2;

/// The members of a group in one keyspace.
type Members = Vec<Option<Vec<u8>>>;

fn key(group: u64, member: u64) -> Vec<u8> {
    format!("{group:02}/{member}").into_bytes()
}

/// A member of a group after a turn: absent, short or long. Before the first turn there is none.
fn member(keyspace: usize, group: u64, turn: u64, member: u64) -> Option<Vec<u8>> {
    let place = (keyspace as u64) << 60 | group << 50 | member << 40;
    let mut random = Random::new(place | turn);
    let len = [0, 8, 60, 300, 3000][random.below(5) as usize];
    (turn > 0 && !random.one_in(4)).then(|| turn.to_le_bytes().repeat(len / 8 + 1))
}

struct World {
    store: Store,
    keyspaces: Vec<Keyspace>,
    /// The last turn of each group that was begun, and the last that was acknowledged.
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    is_dead: AtomicBool,
    is_over: AtomicBool,
}

/// Stops the other threads if one fails.
struct OverAfterPanic<'a>(&'a AtomicBool);

impl Drop for OverAfterPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), SeqCst);
    }
}

impl World {
    fn of(store: Store, begun: &[u64], done: &[u64]) -> World {
        let keyspaces = NAMES.map(|name| store.open_keyspace(name, None).expect("opens"));
        let turns = |turns: &[u64]| turns.iter().map(|turn| AtomicU64::new(*turn)).collect();
        World {
            store,
            keyspaces: keyspaces.to_vec(),
            begun: turns(begun),
            done: turns(done),
            is_dead: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    fn turns(turns: &[AtomicU64]) -> Vec<u64> {
        turns.iter().map(|turn| turn.load(SeqCst)).collect()
    }

    /// Repeats some work until the end. Only a dead store may fail.
    fn repeat(&self, seed: u64, mut work: impl FnMut(&mut Random) -> Result<(), Error>) {
        let mut random = Random::new(seed);
        let _over = OverAfterPanic(&self.is_over);
        while !self.is_over.load(SeqCst) {
            if let Err(error) = work(&mut random) {
                assert!(self.is_dead.load(SeqCst), "{error}");
                return;
            }
        }
    }

    fn write(&self, writer: u64, random: &mut Random) -> Result<(), Error> {
        let group = random.below(GROUPS / WRITERS) * WRITERS + writer;
        let turn = self.begun[group as usize].fetch_add(1, SeqCst) + 1;
        let mut batch = Batch::new();
        for (at, keyspace) in self.keyspaces.iter().enumerate() {
            for number in 0..MEMBERS {
                match member(at, group, turn, number) {
                    Some(value) => batch.put(keyspace, key(group, number), value)?,
                    None => batch.delete(keyspace, key(group, number))?,
                };
            }
        }
        let is_synced = random.one_in(20);
        let options = if is_synced { WriteOptions::sync() } else { WriteOptions::default() };
        self.store.write(&batch, options)?;
        self.done[group as usize].store(turn, SeqCst);
        Ok(())
    }

    /// Finds the turn that left a group in this state.
    fn explain(&self, at: usize, group: u64, found: &Members, least: u64) -> u64 {
        let most = self.begun[group as usize].load(SeqCst);
        let is_left_by =
            |turn: &u64| (0..MEMBERS).map(|m| member(at, group, *turn, m)).eq(found.clone());
        (least..=most).find(is_left_by).unwrap_or_else(|| {
            let turns = found.iter().map(|value| {
                let turn = value.as_ref().and_then(|value| value.first_chunk());
                turn.map(|bytes| u64::from_le_bytes(*bytes))
            });
            let turns: Vec<_> = turns.collect();
            panic!("{}, group {group}: {turns:?}, turns {least} to {most}", NAMES[at])
        })
    }

    fn get_group(&self, random: &mut Random) -> Result<(), Error> {
        let (at, group) = (random.below(2) as usize, random.below(GROUPS));
        let least = self.done[group as usize].load(SeqCst);
        let keys: Vec<_> = (0..MEMBERS).map(|number| key(group, number)).collect();
        let found = self.keyspaces[at].multi_get(&keys)?;
        let found = found.into_iter().map(|value| value.map(|value| value.to_vec())).collect();
        self.explain(at, group, &found, least);
        Ok(())
    }

    fn scan(&self, random: &mut Random) -> Result<(), Error> {
        let at = random.below(2) as usize;
        let least = World::turns(&self.done);
        let found = groups(&self.keyspaces[at], ReadOptions::default(), random)?;
        for group in 0..GROUPS {
            self.explain(at, group, &found[group as usize], least[group as usize]);
        }
        Ok(())
    }

    /// Reads both keyspaces at a snapshot, more than once.
    fn look_back(&self, random: &mut Random) -> Result<(), Error> {
        let least = World::turns(&self.done);
        let snapshot = self.store.snapshot();
        let turns = self.turns_of(Some(&snapshot), random, &least)?;
        for _ in 0..random.below(4) {
            std::thread::yield_now();
            assert_eq!(self.turns_of(Some(&snapshot), random, &least)?, turns, "a snapshot stays");
        }
        Ok(())
    }

    /// The turn of each group, in both keyspaces.
    fn turns_of(
        &self,
        snapshot: Option<&Snapshot>,
        random: &mut Random,
        least: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let mut turns = Vec::new();
        for (at, keyspace) in self.keyspaces.iter().enumerate() {
            let options =
                snapshot.map_or_else(ReadOptions::default, |at| ReadOptions::default().at(at));
            let found = groups(keyspace, options, random)?;
            let turn =
                |group| self.explain(at, group, &found[group as usize], least[group as usize]);
            turns.push((0..GROUPS).map(turn).collect::<Vec<u64>>());
        }
        let one = turns.swap_remove(0);
        // Several turns may leave a group alike in one keyspace.
        for (group, (&turn, &other)) in one.iter().zip(&turns[0]).enumerate() {
            let is_alike = |at: usize| {
                (0..MEMBERS).all(|m| {
                    member(at, group as u64, turn, m) == member(at, group as u64, other, m)
                })
            };
            assert!(is_alike(0) || is_alike(1), "group {group}: a batch by half, {turn}, {other}");
        }
        Ok(one)
    }

    fn change(&self, seed: u64, random: &mut Random) -> Result<(), Error> {
        match random.below(12) {
            0 => self.store.compact(),
            1..4 => self.store.flush(),
            4..7 => self.store.collect_values(),
            7 => self.store.verify().map(|report| assert!(report.is_clean())),
            _ => {
                let options = changes::options(seed, random.draw(), Background::Manual).keyspace;
                self.store.open_keyspace(NAMES[random.below(2) as usize], options).map(drop)
            }
        }
    }

    fn copy(&self, storage: &SimStorage, options: &Options, number: u64) -> Result<(), Error> {
        let least = World::turns(&self.done);
        let place = format!("copy-{number}");
        self.store.checkpoint(&place)?;
        let copy = storage.open_sibling(place.as_ref()).expect("is there");
        let store = Store::open_on(Arc::new(copy), options.clone())?;
        let world = World::of(store, &World::turns(&self.begun), &least);
        world.turns_of(None, &mut Random::new(number), &least)?;
        Ok(())
    }
}

/// All groups of a keyspace, walked in either direction.
fn groups(
    keyspace: &Keyspace,
    options: ReadOptions,
    random: &mut Random,
) -> Result<Vec<Members>, Error> {
    let mut cursor = keyspace.cursor(options.fill_cache(random.one_in(2)))?;
    let step: fn(&mut Cursor) -> Result<(), Error> = match random.one_in(2) {
        true => {
            cursor.seek_to_first()?;
            Cursor::next
        }
        false => {
            cursor.seek_to_last()?;
            Cursor::prev
        }
    };
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    while cursor.valid() {
        let before = found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        assert!(before.is_none(), "{} twice", cursor.key().escape_ascii());
        step(&mut cursor)?;
    }
    let mut members =
        |group| (0..MEMBERS).map(|number| found.remove(&key(group, number))).collect();
    let groups = (0..GROUPS).map(&mut members).collect();
    assert!(found.is_empty(), "keys that nobody wrote");
    Ok(groups)
}

/// Runs the threads for this many turns; then the process dies.
fn live(seed: u64, turns: u64) {
    let storage = SimStorage::new(seed);
    let options = changes::options(seed, seed, Background::Threads(2));
    let open = |storage: &SimStorage| Store::open_on(Arc::new(storage.clone()), options.clone());
    let none = [0; GROUPS as usize];
    let world = World::of(open(&storage).expect("opens"), &none, &none);
    let after = std::thread::scope(|scope| {
        let world = &world;
        for writer in 0..WRITERS {
            scope.spawn(move || world.repeat(seed + writer, |random| world.write(writer, random)));
        }
        scope.spawn(|| world.repeat(seed + 10, |random| world.get_group(random)));
        scope.spawn(|| world.repeat(seed + 11, |random| world.scan(random)));
        scope.spawn(|| world.repeat(seed + 12, |random| world.look_back(random)));
        scope.spawn(|| world.repeat(seed + 13, |random| world.change(seed, random)));
        let mut copies = 0;
        let is_enough = || World::turns(&world.done).iter().sum::<u64>() >= turns;
        while !is_enough() && !world.is_over.load(SeqCst) {
            copies += 1;
            if copies <= 3 {
                world.copy(&storage, &options, copies).expect("copies");
            }
            std::thread::yield_now();
        }
        world.is_dead.store(true, SeqCst);
        let after = storage.process_crash();
        world.is_over.store(true, SeqCst);
        after
    });
    let (begun, done) = (World::turns(&world.begun), World::turns(&world.done));
    drop(world);
    let world = World::of(open(&after).expect("opens again"), &begun, &done);
    world.turns_of(None, &mut Random::new(seed), &done).expect("reads");
}

#[test]
fn groups_are_of_one_batch_for_every_thread() {
    let turns = number("RUNSTONE_STEPS", 400);
    for_seeds(6, |seed| live(seed, turns));
}
