//! Cursors, scans and look-ups over keys that strain a tree. Keys consist of zeros or of 0xff, are
//! prefixes of other keys, are equal beyond the length of a head, or are as long as allowed. Reads
//! have bounds, prefixes and snapshots, and tables have tiny blocks and several partitions. A map
//! holds what each read must find.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Batch, Error, Keyspace, MAX_KEY_BYTES, Options, ReadOptions, Snapshot, Store,
};
use runstone_policy::registry::POLICIES;
use runstone_sim::random::{Random, for_seeds, number};
use runstone_sim::workload::options_for;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// The entries inside some bounds.
type Inside<'a> = BTreeMap<&'a Vec<u8>, &'a Vec<u8>>;

/// Which keys a store gets.
struct Keys {
    stem: Vec<u8>,
    letters: &'static [u8],
    most_letters: u64,
    numbers: u64,
}

impl Keys {
    fn new(random: &mut Random) -> Keys {
        let stem_bytes = [0, 0, 3, 8, 15, 16, 17, 40, 300][random.below(9) as usize];
        if random.one_in(12) {
            // Few keys have the greatest length.
            let stem = vec![b'u'; MAX_KEY_BYTES - 3];
            return Keys { stem, letters: &[0, 255], most_letters: 3, numbers: 0 };
        }
        let letters: [&[u8]; 4] = [&[0, 1, 255], &[0], b"ab", &[7, 8, 254, 255]];
        Keys {
            stem: (0..stem_bytes).map(|i| if i % 11 == 0 { 0xff } else { b'u' }).collect(),
            letters: letters[random.below(4) as usize],
            most_letters: [2, 6, 12, 30][random.below(4) as usize],
            numbers: [0, 0, 60, 3000][random.below(4) as usize],
        }
    }

    fn draw(&self, random: &mut Random) -> Vec<u8> {
        let mut key = match random.below(24) {
            0 => return Vec::new(),
            1 => vec![0xff; random.below(20) as usize],
            2 => self.stem[..random.below(self.stem.len() as u64 + 1) as usize].to_vec(),
            _ => self.stem.clone(),
        };
        if self.numbers > 0 && !random.one_in(5) {
            key.extend_from_slice(format!("{:06}", random.below(self.numbers)).as_bytes());
            return key;
        }
        for _ in 0..random.below(self.most_letters + 1) {
            key.push(self.letters[random.below(self.letters.len() as u64) as usize]);
        }
        key
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(30) {
        0 => 0,
        1 => 3000 + random.below(3000),
        _ => random.below(90),
    };
    (0..len).map(|i| (random.draw() >> (i % 40)) as u8).collect()
}

struct World {
    storage: MemoryStorage,
    options: Options,
    store: Option<Store>,
    keys: Keys,
    now: Content,
    held: Vec<(Snapshot, Content)>,
}

impl World {
    fn new(seed: u64, random: &mut Random) -> World {
        let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
        let mut options = options_for(policy.name(), random.draw(), Background::Manual);
        options.seed = Some(seed);
        let keyspace = options.keyspace.as_mut().expect("given");
        if random.one_in(2) {
            // Tables of several partitions.
            keyspace.block_bytes = 256;
            let shape = unstable::numbers_mut(keyspace);
            shape.table_bytes = 1 << 20;
            shape.split_bytes = 1 << 20;
        }
        let storage = MemoryStorage::new();
        let keys = Keys::new(random);
        let mut world =
            World { storage, options, store: None, keys, now: Content::new(), held: Vec::new() };
        world.reopen().expect("opens");
        world
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.held.clear();
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        let storage = Arc::new(self.storage.clone());
        self.store = Some(Store::open_on(storage, self.options.clone())?);
        Ok(())
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn keyspace(&self) -> &Keyspace {
        self.store().default_keyspace()
    }

    fn write(&mut self, random: &mut Random) -> Result<(), Error> {
        let mut batch = Batch::new();
        let many = if self.keys.stem.len() < 1000 { 200 } else { 5 };
        let most = if random.one_in(3) { many } else { 4 };
        for _ in 0..1 + random.below(most) {
            let key = self.keys.draw(random);
            if random.one_in(4) {
                batch.delete(self.keyspace(), &key)?;
                self.now.remove(&key);
            } else {
                let value = value(random);
                batch.put(self.keyspace(), &key, &value)?;
                self.now.insert(key, value);
            }
        }
        self.store().write(&batch, Default::default())
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Error> {
        match random.below(40) {
            0..16 => self.write(random)?,
            16..18 => self.store().flush()?,
            18..24 => drop(self.store().run_one_job()?),
            24 if random.one_in(2) => self.store().compact()?,
            25 => {
                self.held.push((self.store().snapshot(), self.now.clone()));
                if self.held.len() > 3 {
                    self.held.remove(random.below(3) as usize);
                }
            }
            26 if random.one_in(4) => self.reopen()?,
            27..31 => self.look_up(random)?,
            31..33 => self.scan(random)?,
            _ => self.walk(random)?,
        }
        Ok(())
    }

    /// A point in time: now, or that of a snapshot.
    fn moment(&self, random: &mut Random) -> (Option<&Snapshot>, &Content) {
        match self.held.get(random.below(4) as usize) {
            Some((snapshot, content)) => (Some(snapshot), content),
            None => (None, &self.now),
        }
    }

    fn some_key(&self, content: &Content, random: &mut Random) -> Vec<u8> {
        let drawn = self.keys.draw(random);
        let from = (Bound::Included(&drawn), Bound::Unbounded);
        let mut key = match content.range::<Vec<u8>, _>(from).next() {
            Some((key, _)) if random.one_in(2) => key.clone(),
            _ => drawn,
        };
        match random.below(8) {
            0 => key.push(0),
            1 => drop(key.pop()),
            _ => {}
        }
        key
    }

    fn look_up(&self, random: &mut Random) -> Result<(), Error> {
        let (snapshot, content) = self.moment(random);
        let keys: Vec<_> = (0..30).map(|_| self.some_key(content, random)).collect();
        for key in &keys {
            let found = match snapshot {
                Some(snapshot) => self.keyspace().get_at(key, snapshot)?,
                None => self.keyspace().get(key)?,
            };
            assert_eq!(found.as_deref(), content.get(key).map(|v| &v[..]), "{:?}", short(key));
        }
        let found = self.keyspace().multi_get(&keys)?;
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found.as_deref(), self.now.get(key).map(|v| &v[..]), "{:?}", short(key));
        }
        Ok(())
    }

    /// Bounds of a read, or a prefix instead, and the entries inside.
    fn bounds<'a>(
        &self,
        content: &'a Content,
        random: &mut Random,
    ) -> ([Option<Vec<u8>>; 3], Inside<'a>) {
        let mut bound = |n| random.one_in(n).then(|| self.some_key(content, random));
        let (mut lo, mut hi, prefix) = (bound(2), bound(2), bound(4));
        if lo.as_ref().zip(hi.as_ref()).is_some_and(|(lo, hi)| lo > hi) {
            std::mem::swap(&mut lo, &mut hi);
        }
        let prefix = prefix.map(|key| key[..random.below(key.len() as u64 + 1) as usize].to_vec());
        let is_inside = |key: &&Vec<u8>| match &prefix {
            Some(prefix) => key.starts_with(prefix),
            None => {
                lo.as_ref().is_none_or(|lo| *key >= lo) && hi.as_ref().is_none_or(|hi| *key < hi)
            }
        };
        let inside = content.iter().filter(|(key, _)| is_inside(key)).collect();
        ([lo, hi, prefix], inside)
    }

    fn scan(&self, random: &mut Random) -> Result<(), Error> {
        let ([lo, hi, prefix], mut content) = self.bounds(&self.now, random);
        let mut scan = match prefix {
            Some(prefix) => self.keyspace().prefix(&prefix)?,
            None => {
                let bounds = ReadOptions::default();
                self.keyspace().scan(bounds.with_bounds(lo.as_deref(), hi.as_deref()))?
            }
        };
        loop {
            let (found, expected) = match random.one_in(2) {
                true => (scan.next(), content.pop_first()),
                false => (scan.next_back(), content.pop_last()),
            };
            let found = found.transpose()?;
            let both = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            let expected = expected.map(|(key, value)| (&key[..], &value[..]));
            assert!(both == expected, "{both:?} for {expected:?}");
            if found.is_none() {
                assert!(scan.next().is_none() && scan.next_back().is_none());
                return Ok(());
            }
        }
    }

    fn walk(&self, random: &mut Random) -> Result<(), Error> {
        let (snapshot, content) = self.moment(random);
        let ([lo, hi, prefix], inside) = self.bounds(content, random);
        let mut read = ReadOptions::default().fill_cache(random.one_in(2));
        read = match prefix {
            Some(prefix) => read.with_prefix(&prefix),
            None => read.with_bounds(lo.as_deref(), hi.as_deref()),
        };
        if let Some(snapshot) = snapshot {
            read = read.at(snapshot);
        }
        let mut cursor = self.keyspace().cursor(read)?;
        let mut at: Option<Vec<u8>> = None;
        let next = |from: Bound<&Vec<u8>>| {
            let mut rest = inside.range::<Vec<u8>, _>((from, Bound::Unbounded));
            rest.next().map(|(key, _)| (*key).clone())
        };
        let before = |to: Bound<&Vec<u8>>| {
            let mut rest = inside.range::<Vec<u8>, _>((Bound::Unbounded, to));
            rest.next_back().map(|(key, _)| (*key).clone())
        };
        let (forward, steps) = (random.below(9), random.below(60));
        for _ in 0..steps {
            let key = self.some_key(content, random);
            let turn = random.below(40);
            at = match (turn, &at) {
                (0, _) => {
                    cursor.seek_to_first()?;
                    next(Bound::Unbounded)
                }
                (1, _) => {
                    cursor.seek_to_last()?;
                    before(Bound::Unbounded)
                }
                (2..4, _) => {
                    cursor.seek_for_prev(&key)?;
                    before(Bound::Included(&key))
                }
                (4.., Some(at)) if turn % 9 >= forward => {
                    cursor.next()?;
                    next(Bound::Excluded(at))
                }
                (4.., Some(at)) => {
                    cursor.prev()?;
                    before(Bound::Excluded(at))
                }
                _ => {
                    cursor.seek(&key)?;
                    next(Bound::Included(&key))
                }
            };
            let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
            let expected = at.as_ref().map(|key| (&key[..], &inside[key][..]));
            let (f, e) = (found.map(|(key, _)| short(key)), expected.map(|(key, _)| short(key)));
            assert!(found == expected, "turn {turn}: {f:?} for {e:?}");
        }
        Ok(())
    }
}

fn short(key: &[u8]) -> String {
    let end = &key[key.len().saturating_sub(30)..];
    format!("{} bytes, ..{}", key.len(), end.escape_ascii())
}

fn live(seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, &mut random);
    for step in 0..steps {
        if let Err(error) = world.step(&mut random) {
            panic!("seed {seed}, step {step}: {error}");
        }
    }
    let report = world.store().verify().expect("verifies");
    assert!(report.is_clean(), "{report:?}");
    world.reopen().expect("reopens");
    let all: Content = world
        .keyspace()
        .iter()
        .expect("scans")
        .map(|item| item.map(|(key, value)| (key, value.to_vec())))
        .collect::<Result<_, _>>()
        .expect("reads");
    assert!(all == world.now, "seed {seed}: all after a reopen");
}

#[test]
fn cursors_show_what_a_map_holds() {
    let steps = number("RUNSTONE_STEPS", 300);
    for_seeds(12, |seed| live(seed, steps));
}
