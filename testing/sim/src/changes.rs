//! Lives of a store whose options change while it is open and from one opening to the next: policy,
//! placement of values, partitioner and install of compactions. Transactions commit, sorted entries
//! are loaded, cursors walk across compactions, collections and such changes, and keyspaces are
//! dropped and made again.

use std::collections::BTreeMap;
use std::ops::Bound;

use runstone::unstable;
use runstone::{
    Background, Cursor, Error, GcPointers, Keyspace, KeyspaceOptions, Options, ReadOptions, Store,
    TransactionOptions, ValuePlacement,
};
use runstone_policy::registry::POLICIES;

use crate::oracle::{Change, Oracle, State, Write};
use crate::random::Random;
use crate::workload::{self, KEYSPACES, Operation, Run, keyspaces, options_for, set_programs};

/// The placements to draw from. Those where collections write pointers occur more often, because
/// they rest on the most assumptions.
const PLACEMENTS: [(ValuePlacement, GcPointers); 6] = [
    (ValuePlacement::Inline, GcPointers::Stable),
    (ValuePlacement::Vlog, GcPointers::Stable),
    (ValuePlacement::HashGrouped, GcPointers::Stable),
    (ValuePlacement::HashGrouped, GcPointers::Stable),
    (ValuePlacement::HashGrouped, GcPointers::Writeback),
    (ValuePlacement::HashGrouped, GcPointers::Writeback),
];

/// One step of a life.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation of the common workloads.
    Operation(Operation),
    /// Writes that a transaction commits, synced or not.
    Commit(Vec<Write>, bool),
    /// Loads sorted entries; the seed gives them.
    Load(u64),
    /// Changes the options of a keyspace.
    Change(usize, Box<KeyspaceOptions>),
    /// Walks a cursor while other work runs; the seed gives the moves.
    Walk(u64),
    /// Looks up many keys at once; the seed gives the keys.
    GetMany(u64),
    /// Drops the second keyspace and makes it again, empty.
    DropOther,
}

/// Steps of the life of a seed; `draw` separates them from other uses of the seed.
pub fn generate(seed: u64, draw: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(draw);
    let more = workload::generate(random.draw(), count).into_iter();
    more.map(|operation| match (operation, random.below(100)) {
        (Operation::Get(_), 0..25) => {
            let keyspace = random.below(KEYSPACES.len() as u64) as usize;
            Step::Change(keyspace, Box::new(keyspace_options(seed, random.draw())))
        }
        (Operation::Get(_), 25..45) => Step::Walk(random.draw()),
        (Operation::Get(_), 45..55) => Step::GetMany(random.draw()),
        (Operation::Get(_), 55..58) => Step::DropOther,
        (Operation::Get(_), 58..65) => Step::Load(random.draw()),
        (Operation::Write { writes, sync }, 0..15) => Step::Commit(writes, sync),
        (Operation::RunOneJob, 0..20) => Step::Operation(Operation::Collect),
        (operation, _) => Step::Operation(operation),
    })
    .collect()
}

/// Options of a life. The options that cannot change follow from the seed; the others are drawn.
pub fn options(seed: u64, draw: u64, background: Background) -> Options {
    let mut options = options_for(POLICIES[0].name(), seed, background);
    options.keyspace = Some(keyspace_options(seed, draw));
    options
}

fn keyspace_options(seed: u64, draw: u64) -> KeyspaceOptions {
    let fixed = options_for(POLICIES[0].name(), seed, Background::Manual);
    let fixed = fixed.keyspace.unwrap_or_default().values;
    let mut random = Random::new(draw);
    let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
    let drawn = options_for(policy.name(), draw, Background::Manual);
    let mut keyspace = drawn.keyspace.unwrap_or_default();
    let (placement, gc_pointers) = PLACEMENTS[random.below(PLACEMENTS.len() as u64) as usize];
    // A life has a merge operator or not. Not every placement works with one.
    let merges = seed.is_multiple_of(2);
    let (placement, gc_pointers) = match (merges, placement, gc_pointers) {
        (true, ValuePlacement::Vlog, _) | (true, _, GcPointers::Writeback) => {
            (ValuePlacement::HashGrouped, GcPointers::Stable)
        }
        _ => (placement, gc_pointers),
    };
    (keyspace.values.placement, keyspace.values.gc_pointers) = (placement, gc_pointers);
    let filters = !keyspace.compaction_filter.is_empty();
    set_programs(&mut keyspace, merges, filters);
    let values = &mut keyspace.values;
    (values.groups, values.slot_bytes) = (fixed.groups, fixed.slot_bytes);
    values.early = random.one_in(2);
    values.cold_stream = match gc_pointers {
        GcPointers::Stable => random.one_in(2),
        // Drawn from a separate stream, so that the other options of a life stay the same.
        _ => Random::new(draw ^ 0xc01d).one_in(2),
    };
    if random.one_in(4) {
        // A larger reserve than the data needs, so collections are rare.
        values.capacity_bytes = 4 << 20;
    }
    if random.one_in(3) {
        // Level 0 stays unchanged while the levels below are compacted.
        let shape = unstable::numbers_mut(&mut keyspace);
        shape.l0_trigger = 16;
        shape.universal_trigger = 16;
        (keyspace.l0_slowdown_runs, keyspace.l0_stop_runs) = (100, 200);
    }
    keyspace
}

/// A store under test, with its oracle.
#[derive(Debug)]
pub struct Life {
    /// The run.
    pub run: Run,
}

impl Life {
    /// Starts on an open store whose content is the oracle's state.
    pub fn new(store: Store, oracle: Oracle) -> Life {
        Life { run: Run::new(store, oracle) }
    }

    fn store(&self) -> &Store {
        self.run.store.as_ref().expect("open between steps")
    }

    /// Applies one step. An error is the store's; a disagreement with the oracle panics.
    pub fn apply(
        &mut self,
        step: &Step,
        reopen: impl FnOnce() -> Result<Store, Error>,
    ) -> Result<(), Error> {
        match step {
            Step::Operation(operation) => self.run.apply(operation, reopen)?,
            Step::Commit(writes, sync) => {
                self.run.commit(writes, *sync, TransactionOptions::serializable())?;
            }
            Step::Load(seed) => self.load(*seed)?,
            Step::Change(keyspace, options) => self.change(*keyspace, options)?,
            Step::Walk(seed) => self.walk(*seed)?,
            Step::GetMany(seed) => self.get_many(*seed)?,
            Step::DropOther => self.drop_other()?,
        }
        Ok(())
    }

    fn change(&self, keyspace: usize, options: &KeyspaceOptions) -> Result<(), Error> {
        let store = self.store();
        // The keyspaces may not exist yet.
        keyspaces(store)?;
        store.open_keyspace(KEYSPACES[keyspace], Some(options.clone())).map(drop)
    }

    fn load(&mut self, seed: u64) -> Result<(), Error> {
        let mut random = Random::new(seed);
        let keyspace = random.below(KEYSPACES.len() as u64) as usize;
        let mut entry = || {
            let key = some_key(&mut random);
            (key, Some(vec![seed as u8; random.below(300) as usize]))
        };
        let entries: BTreeMap<_, _> = (0..20).map(|_| entry()).collect();
        let values = entries.iter().map(|(key, value)| (key, value.as_deref().unwrap_or_default()));
        self.run.load(keyspace, &entries, |to| to.bulk_load(values))
    }

    fn drop_other(&mut self) -> Result<(), Error> {
        if self.run.holds_snapshots() {
            // The held snapshots would show an empty keyspace.
            return Ok(());
        }
        self.store().sync()?;
        self.run.oracle.synced();
        let deletion = |(keyspace, key): &(usize, Vec<u8>)| Write {
            keyspace: *keyspace,
            key: key.clone(),
            change: Change::Delete,
        };
        let own = self.run.oracle.state().keys().filter(|(keyspace, _)| *keyspace == 1);
        let writes: Vec<Write> = own.map(deletion).collect();
        self.run.oracle.attempt(&writes);
        self.store().drop_keyspace(KEYSPACES[1])?;
        self.run.oracle.acknowledge();
        self.run.oracle.synced();
        keyspaces(self.store()).map(drop)
    }

    fn get_many(&self, seed: u64) -> Result<(), Error> {
        let mut random = Random::new(seed);
        let at = random.below(KEYSPACES.len() as u64) as usize;
        let keyspace = keyspaces(self.store())?.swap_remove(at);
        let keys: Vec<Vec<u8>> = (0..20).map(|_| some_key(&mut random)).collect();
        let found = keyspace.multi_get(&keys)?;
        for (key, value) in keys.into_iter().zip(found) {
            let expected = self.run.oracle.state().get(&(at, key.clone()));
            assert_eq!(value.as_deref(), expected.map(|value| &value[..]), "{key:?} of many");
        }
        Ok(())
    }

    fn walk(&self, seed: u64) -> Result<(), Error> {
        let mut random = Random::new(seed);
        let at = random.below(KEYSPACES.len() as u64) as usize;
        let keyspace = keyspaces(self.store())?.swap_remove(at);
        let mut walk = Walk::new(&keyspace, at, self.run.oracle.state(), &mut random)?;
        for _ in 0..40 {
            walk.step(&mut random)?;
            match random.below(24) {
                0 => self.store().flush()?,
                1 | 2 => drop(self.store().run_one_job()?),
                3 => self.store().collect_values()?,
                4 if random.one_in(4) => self.store().compact()?,
                4 => {
                    let (from, to) = (some_key(&mut random), some_key(&mut random));
                    match from <= to {
                        true => keyspace.compact_range(from..to)?,
                        false => keyspace.compact_range(from..)?,
                    }
                }
                5 if random.one_in(2) => {
                    let seed = self.store().default_keyspace().options();
                    // The options of this seed have a merge operator only if this life has one.
                    let same = u64::from(seed.merge_operator.is_empty());
                    let mut options = keyspace_options(same, random.draw());
                    options.values.groups = seed.values.groups;
                    options.values.slot_bytes = seed.values.slot_bytes;
                    self.change(at, &options)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A cursor, and the entries that it must show.
struct Walk {
    cursor: Cursor,
    content: BTreeMap<Vec<u8>, Vec<u8>>,
    at: Option<Vec<u8>>,
}

impl Walk {
    fn new(
        keyspace: &Keyspace,
        number: usize,
        state: &State,
        random: &mut Random,
    ) -> Result<Walk, Error> {
        let mut bound = || (!random.one_in(2)).then(|| some_key(random));
        let (mut lo, mut hi) = (bound(), bound());
        if lo.as_ref().zip(hi.as_ref()).is_some_and(|(lo, hi)| lo > hi) {
            std::mem::swap(&mut lo, &mut hi);
        }
        let is_inside = |key: &Vec<u8>| {
            lo.as_ref().is_none_or(|lo| key >= lo) && hi.as_ref().is_none_or(|hi| key < hi)
        };
        let own = state.iter().filter(|((keyspace, _), _)| *keyspace == number);
        let content = own.map(|((_, key), value)| (key.clone(), value.clone()));
        let content = content.filter(|(key, _)| is_inside(key)).collect();
        let read = ReadOptions::default().with_bounds(lo.as_deref(), hi.as_deref());
        let read = read.fill_cache(random.one_in(2));
        Ok(Walk { cursor: keyspace.cursor(read)?, content, at: None })
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Error> {
        let next = |from: Bound<&Vec<u8>>| {
            let mut rest = self.content.range::<Vec<u8>, _>((from, Bound::Unbounded));
            rest.next().map(|(key, _)| key.clone())
        };
        let before = |to: Bound<&Vec<u8>>| {
            let mut rest = self.content.range::<Vec<u8>, _>((Bound::Unbounded, to));
            rest.next_back().map(|(key, _)| key.clone())
        };
        let key = some_key(random);
        self.at = match (random.below(12), &self.at) {
            (0..5, Some(at)) => {
                self.cursor.next()?;
                next(Bound::Excluded(at))
            }
            (5..9, Some(at)) => {
                self.cursor.prev()?;
                before(Bound::Excluded(at))
            }
            (9, _) => {
                self.cursor.seek_for_prev(&key)?;
                before(Bound::Included(&key))
            }
            (10, _) => {
                self.cursor.seek_to_last()?;
                before(Bound::Unbounded)
            }
            (11, _) => {
                self.cursor.seek_to_first()?;
                next(Bound::Unbounded)
            }
            _ => {
                self.cursor.seek(&key)?;
                next(Bound::Included(&key))
            }
        };
        let found = self.cursor.valid().then(|| (self.cursor.key(), self.cursor.value()));
        let expected = self.at.as_ref().map(|key| (&key[..], &self.content[key][..]));
        assert_eq!(found, expected, "a cursor that was walked");
        Ok(())
    }
}

fn some_key(random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0 => Vec::new(),
        1 => vec![0xff; random.below(9) as usize],
        _ => format!("key{:03}", random.below(60)).into_bytes(),
    }
}
