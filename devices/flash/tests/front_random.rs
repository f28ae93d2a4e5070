//! The fronts of the KVSSD against models. Commands are drawn at random: keys and values at their
//! limits and past them, buffers of any size, iterators beside writes, key spaces that come and go,
//! snapshots that outlive a front, and keys written without the front. The devices meet a full
//! flash, power cuts, failing programs and erases, and openings with other options. The model
//! predicts each status, and a refused command changes nothing.
//!
//! More devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo test
//! --release -p runstone-flash --test front_random`.

#[path = "support/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::rc::Rc;

use random::{Random, fault_plan, one_in, one_of, seeds};
use runstone_flash::Error;
use runstone_flash::front::{
    IteratorId, KeyFilter, KeySpace, NvmeError, NvmeKv, OnMissing, OnRetrieve, Snia, SniaError,
    StoreIf, StoreMode,
};
use runstone_flash::kvssd::{
    Direction, Durability, Form, KvSsd, KvSsdOptions, Partitioner, Placement, ValuePlacement,
};
use runstone_flash::nand::{FaultPlan, Geometry, MemoryImage, Timing};

const SEEDS: Range<u64> = 225..249;
const ROUNDS: u64 = 8;
/// Conversations of a host with the device in a round, and commands in each of them.
const TALKS: u64 = 6;
const COMMANDS: u64 = 80;

type Value = Rc<Vec<u8>>;
type Pairs = BTreeMap<Vec<u8>, Value>;
type Spaces = BTreeMap<Vec<u8>, Pairs>;

/// The pairs that an iterator has yet to return.
type Rest = Vec<(Vec<u8>, Value)>;

/// The power was cut.
#[derive(Debug)]
struct Cut;

/// A device with its faults, and the limits from which a host draws its commands.
struct Bench {
    flash: MemoryImage,
    side: MemoryImage,
    device: KvSsd,
    keys: u64,
    value_bytes: u64,
    /// A snapshot and what it shows.
    held: Option<(u64, Pairs)>,
}

fn geometry(random: &mut Random) -> Geometry {
    let page_bytes = one_of(random, &[1024, 1024, 2048, 4096, 8192]);
    Geometry {
        page_bytes,
        spare_bytes: 64,
        block_pages: one_of(random, &[7, 8, 16]).min((page_bytes - 256) / 96),
        block_count: 48 + random.below(30) as u32,
        channel_count: one_of(random, &[1, 2]),
        die_count: one_of(random, &[1, 2]),
    }
}

fn options(random: &mut Random) -> KvSsdOptions {
    let placements = [Placement::PerTable, Placement::Mixed, Placement::PerLevel];
    let cuts = [Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange];
    let form = one_of(random, &[Form::Remap, Form::Remap, Form::Delay, Form::Append]);
    let cuts = if form == Form::Append { &cuts[..1] } else { &cuts };
    KvSsdOptions {
        threshold: one_of(random, &[0, 1, 2, 2, 6]),
        wear_gap: one_of(random, &[1, 3, 100]),
        policy: one_of(random, &["fragmented-leveling", "leveling", "garnering"]).to_string(),
        cuts: one_of(random, cuts),
        placement: one_of(random, &placements),
        durability: one_of(random, &[Durability::Capacitor, Durability::Log]),
        over_provision_percent: 5 + random.below(15) as u32,
        memtable_pages: 1 + random.below(12) as u32,
        level1_pages: 8 + random.below(40) as u32,
        size_ratio: 2 + random.below(6) as u32,
        l0_trigger: 1 + random.below(4) as u32,
        checkpoint_commits: 1 + random.below(16) as u32,
        form,
        has_filters: random.below(2) == 0,
        values: one_of(random, &ValuePlacement::ALL),
        values_from: one_of(random, &[1, 50, 400]),
    }
}

impl Bench {
    /// `None` if the options do not fit the geometry.
    fn new(random: &mut Random) -> Option<Bench> {
        let (geometry, options) = (geometry(random), options(random));
        options.check(&geometry).ok()?;
        let (flash, side) = (MemoryImage::new(), MemoryImage::new());
        let images = (Box::new(flash.clone()), Box::new(side.clone()));
        let device = KvSsd::create(images.0, images.1, geometry, Timing::PAPER, options);
        let device = device.expect("the options were checked");
        let value_bytes = one_of(random, &[1, 4]) * u64::from(geometry.page_bytes);
        // From a few keys to more than there is room for.
        let keys = geometry.data_bytes() * (5 + random.below(300)) / 100 / value_bytes;
        Some(Bench { flash, side, device, keys: keys.clamp(10, 600), value_bytes, held: None })
    }

    fn has_log(&self) -> bool {
        self.device.options().durability == Durability::Log
    }

    /// Sometimes changes the options, but keeps the durability, because the model depends on it.
    fn reopen(&mut self, random: &mut Random) {
        self.held = None;
        let open = |options| {
            let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
            KvSsd::open(flash, side, None, Timing::PAPER, options)
        };
        let durability = self.device.options().durability;
        let options = KvSsdOptions { durability, ..options(random) };
        let is_possible = options.check(&self.device.nand().geometry()).is_ok();
        let options = (is_possible && one_in(random, 3)).then_some(options);
        let opened = match open(options) {
            // Values that are apart stay as they are.
            Err(Error::BadOption { name: "values", .. }) => open(None),
            opened => opened,
        };
        self.device = opened.expect("it opens");
        self.device.verify().expect("nothing is damaged");
    }

    fn set_faults(&mut self, random: &mut Random) {
        self.device.nand_mut().set_faults(fault_plan(random));
    }

    fn limits(&self) -> Limits {
        Limits {
            keys: self.keys,
            value_bytes: self.value_bytes,
            max_key: self.device.max_key_bytes(),
            max_value: self.device.max_value_bytes(),
        }
    }

    /// Everything that lies on the device.
    fn entries(&mut self) -> Pairs {
        self.entries_at(u64::MAX)
    }

    fn entries_at(&mut self, snapshot: u64) -> Pairs {
        let mut found = Pairs::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            found.insert(key.to_vec(), Rc::new(value.to_vec()));
            true
        };
        let scanned = self.device.scan(None, Direction::Forward, snapshot, &mut visit);
        scanned.expect("it can be read");
        found
    }

    /// Takes a snapshot that outlives fronts, or checks the held one and releases it.
    fn hold(&mut self, random: &mut Random) {
        if let Some((snapshot, pairs)) = self.held.take_if(|_| one_in(random, 3)) {
            assert!(self.entries_at(snapshot) == pairs, "a snapshot shows its moment");
            self.device.release(snapshot);
        } else if self.held.is_none() && one_in(random, 6) {
            self.held = Some((self.device.snapshot(), self.entries()));
        }
    }
}

/// Sizes that a host draws from.
#[derive(Clone, Copy)]
struct Limits {
    keys: u64,
    value_bytes: u64,
    max_key: usize,
    max_value: usize,
}

impl Limits {
    fn value(&self, random: &mut Random) -> Vec<u8> {
        let bytes = match random.below(60) {
            0 => self.max_value + 1,
            1 => self.max_value,
            2..6 => 0,
            _ => random.below(self.value_bytes) as usize,
        };
        vec![random.below(256) as u8; bytes]
    }

    /// A key of 1 to 16 bytes, rarely empty or one byte too long.
    fn nvme_key(&self, random: &mut Random) -> Vec<u8> {
        match random.below(80) {
            0 => Vec::new(),
            1 => vec![7; 17],
            _ => {
                let at = random.below(self.keys);
                let mut key = [spread(at), spread(at + 1)].concat();
                key.truncate(16 - (at % 15) as usize);
                key
            }
        }
    }

    /// Longest key of a pair. Five bytes before it identify the key space.
    fn snia_key_bytes(&self) -> usize {
        (self.max_key - 5).min(255)
    }

    /// A key that iterators can select by its first bytes, rarely one too short or too long.
    fn snia_key(&self, random: &mut Random) -> Vec<u8> {
        let most = self.snia_key_bytes();
        let at = random.below(self.keys);
        let mut key = vec![b'a', (at % 3) as u8, (at % 5) as u8, (at % 7) as u8];
        key.extend_from_slice(&spread(at));
        match random.below(100) {
            0 => key.truncate(random.below(4) as usize),
            1 => key.resize(most + 1, 0),
            2 => key.resize(most, 0),
            3 => key.truncate(4),
            _ => {}
        }
        key
    }
}

fn spread(at: u64) -> [u8; 8] {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The state that a device must hold, and the states that it may hold after a power cut. With a log
/// that is any state since the last sync.
struct Past<S> {
    states: Vec<S>,
    has_log: bool,
}

impl<S: Clone + Default> Past<S> {
    fn new(has_log: bool) -> Past<S> {
        Past { states: vec![S::default()], has_log }
    }

    fn now(&self) -> &S {
        &self.states[self.states.len() - 1]
    }

    fn change(&mut self, step: impl FnOnce(&mut S)) {
        if self.has_log {
            self.states.push(self.now().clone());
        }
        let last = self.states.len() - 1;
        step(&mut self.states[last]);
    }

    fn settle(&mut self, now: S) {
        self.states = vec![now];
    }
}

/// Counts of power cuts, refusals and iterated pairs.
#[derive(Default)]
struct Sums {
    cuts: u64,
    refusals: u64,
    listed: u64,
}

/// A host that sends NVMe commands.
struct NvmeHost<'a> {
    nvme: NvmeKv<'a>,
    past: &'a mut Past<Pairs>,
    limits: Limits,
    sums: &'a mut Sums,
}

/// The code of a status; 0 means success.
fn status<T>(result: &Result<T, NvmeError>) -> Result<u8, Cut> {
    match result {
        Ok(_) => Ok(0),
        Err(NvmeError::Internal(Error::PowerCut)) => Err(Cut),
        Err(error) => Ok(error.code()),
    }
}

fn nvme_key_status(key: &[u8]) -> u8 {
    if (1..=16).contains(&key.len()) { 0 } else { 0x86 }
}

impl NvmeHost<'_> {
    /// Whether the device took the write. A full device may refuse it.
    fn is_taken(&mut self, found: u8, foretold: u8) -> bool {
        if foretold == 0 && found == 0x81 {
            self.sums.refusals += 1;
            return false;
        }
        assert_eq!(found, foretold);
        found == 0
    }

    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<(), Cut> {
        let key = self.limits.nvme_key(random);
        match random.below(10) {
            0..6 if random.below(100) < deletes => self.delete(&key, random)?,
            0..6 => self.store(&key, random)?,
            6 => self.list(&key, random)?,
            _ => {}
        }
        self.check(&key, random)
    }

    fn store(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.limits.value(random);
        let condition =
            one_of(random, &[StoreIf::Always, StoreIf::Always, StoreIf::Exists, StoreIf::Missing]);
        let is_there = self.past.now().contains_key(key);
        let foretold = match (nvme_key_status(key), condition) {
            (0, _) if value.len() > self.limits.max_value => 0x85,
            (0, StoreIf::Exists) if !is_there => 0x87,
            (0, StoreIf::Missing) if is_there => 0x89,
            (other, _) => other,
        };
        let found = status(&self.nvme.store(key, &value, condition))?;
        if self.is_taken(found, foretold) {
            self.past.change(|pairs| _ = pairs.insert(key.to_vec(), Rc::new(value)));
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let on_missing = one_of(random, &[OnMissing::Succeed, OnMissing::Fail]);
        let is_there = self.past.now().contains_key(key);
        let foretold = match nvme_key_status(key) {
            0 if on_missing == OnMissing::Fail && !is_there => 0x87,
            other => other,
        };
        let found = status(&self.nvme.delete(key, on_missing))?;
        if self.is_taken(found, foretold) {
            self.past.change(|pairs| _ = pairs.remove(key));
        }
        Ok(())
    }

    /// Checks a key against the model with both commands.
    fn check(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.past.now().get(key);
        let foretold = match nvme_key_status(key) {
            0 if value.is_none() => 0x87,
            other => other,
        };
        assert_eq!(status(&self.nvme.exist(key))?, foretold);
        let most = value.map_or(0, |value| value.len()) as u64;
        let mut buffer = vec![0xee; random.below(most + 3) as usize];
        let found = self.nvme.retrieve(key, &mut buffer);
        assert_eq!(status(&found)?, foretold);
        let Some(value) = value.filter(|_| foretold == 0) else { return Ok(()) };
        let part = value.len().min(buffer.len());
        assert!(found.is_ok_and(|bytes| bytes == value.len()));
        assert!(buffer[..part] == value[..part] && buffer[part..].iter().all(|b| *b == 0xee));
        Ok(())
    }

    fn list(&mut self, from: &[u8], random: &mut Random) -> Result<(), Cut> {
        let most = one_of(random, &[8, 100, 9000]);
        let mut buffer = vec![0xee; random.below(most) as usize];
        let mut whole = vec![0; 4];
        let mut count = 0_u32;
        let keys = self.past.now().range(from.to_vec()..).map(|(key, _)| key);
        for key in keys.filter(|key| key.len() <= 16) {
            let mut entry = (key.len() as u16).to_le_bytes().to_vec();
            entry.extend_from_slice(key);
            entry.resize(entry.len().next_multiple_of(4), 0);
            if whole.len() + entry.len() > buffer.len() {
                break;
            }
            whole.append(&mut entry);
            count += 1;
        }
        whole[..4].copy_from_slice(&count.to_le_bytes());
        let foretold = match from.len() {
            17.. => 0x86,
            _ if buffer.len() < 4 => 0x85,
            _ => 0,
        };
        let found = self.nvme.list(from, &mut buffer);
        assert_eq!(status(&found)?, foretold);
        if let Ok(used) = found {
            assert!(buffer[..used] == whole, "a list from {from:?}");
            self.sums.listed += u64::from(count);
        }
        Ok(())
    }
}

fn run_nvme(seed: u64, sums: &mut Sums) {
    let mut random = Random(seed ^ 0x6e76_6d65);
    let Some(mut bench) = Bench::new(&mut random) else { return };
    let mut past = Past::new(bench.has_log());
    for _ in 0..ROUNDS {
        bench.set_faults(&mut random);
        let deletes = one_of(&mut random, &[5, 20, 70]);
        let limits = bench.limits();
        let mut talk = |bench: &mut Bench, past: &mut Past<Pairs>| {
            for _ in 0..TALKS {
                let nvme = NvmeKv::new(&mut bench.device);
                let mut host = NvmeHost { nvme, past, limits, sums };
                (0..COMMANDS).try_for_each(|_| host.step(&mut random, deletes))?;
                put_foreign(bench, past, &mut random)?;
                between(bench, past, &mut random)?;
            }
            Ok(())
        };
        if let Err(Cut) = talk(&mut bench, &mut past) {
            sums.cuts += 1;
            reopen_as_known(&mut bench, &mut past, &mut random);
        } else if one_in(&mut random, 6) {
            reopen_as_known(&mut bench, &mut past, &mut random);
        }
        assert!(bench.entries() == *past.now());
        bench.device.verify().expect("nothing is damaged");
    }
}

fn reopen_as_known(bench: &mut Bench, past: &mut Past<Pairs>, random: &mut Random) {
    bench.reopen(random);
    let found = bench.entries();
    assert!(past.states.contains(&found), "the device holds what never was");
    past.settle(found);
}

/// Writes a key that is too long for the command set, directly to the device.
fn put_foreign(bench: &mut Bench, past: &mut Past<Pairs>, random: &mut Random) -> Result<(), Cut> {
    let most = bench.device.max_key_bytes() as u64;
    let key = vec![random.below(256) as u8; 17 + random.below(most - 16) as usize];
    let value = vec![1; random.below(bench.value_bytes) as usize];
    if one_in(random, 3) && is_done(bench.device.put(&key, &value))? {
        past.change(|pairs| _ = pairs.insert(key, Rc::new(value)));
    }
    Ok(())
}

/// A full device keeps what it has no room for in the memtable, so that is no failure.
fn is_done(outcome: runstone_flash::Result<()>) -> Result<bool, Cut> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::PowerCut) => Err(Cut),
        Err(Error::Full { .. } | Error::OutOfBlocks | Error::VersionsHeld { .. }) => Ok(false),
        Err(error) => panic!("{error}"),
    }
}

/// Maintenance between two conversations, at random.
fn between<S: Clone + Default>(
    bench: &mut Bench,
    past: &mut Past<S>,
    random: &mut Random,
) -> Result<(), Cut> {
    bench.hold(random);
    if one_in(random, 2) && is_done(bench.device.sync())? {
        past.settle(past.now().clone());
    }
    match random.below(12) {
        0 => is_done(bench.device.flush())?,
        1 => is_done(bench.device.compact())?,
        2 => is_done(bench.device.checkpoint())?,
        _ => true,
    };
    Ok(())
}

/// A host that calls the API in the style of SNIA's.
struct SniaHost<'a> {
    api: Snia<'a>,
    past: &'a mut Past<Spaces>,
    limits: Limits,
    sums: &'a mut Sums,
    iterators: Vec<(IteratorId, Rest)>,
    /// The key space that is being deleted; after a power cut it may be there or not.
    doomed: Option<Vec<u8>>,
}

/// A status as text: variant and number.
fn said<T>(result: &Result<T, SniaError>) -> Result<String, Cut> {
    match result {
        Ok(_) => Ok("Ok".to_string()),
        Err(SniaError::Device(Error::PowerCut)) => Err(Cut),
        Err(error) => Ok(format!("{error:?}")),
    }
}

fn ok_or<E: Debug>(refusal: Option<E>) -> String {
    refusal.map_or("Ok".to_string(), |error| format!("{error:?}"))
}

impl SniaHost<'_> {
    fn is_taken(&mut self, found: &str, foretold: &str) -> bool {
        if foretold == "Ok" && found == "CapacityExceeded" {
            self.sums.refusals += 1;
            return false;
        }
        assert_eq!(found, foretold);
        found == "Ok"
    }

    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<(), Cut> {
        if one_in(random, 25) {
            return self.spaces(random);
        }
        if one_in(random, 5) {
            return self.iterate(random);
        }
        let Some(space) = self.space(random) else { return self.spaces(random) };
        let key = self.limits.snia_key(random);
        match random.below(10) {
            0..6 if random.below(100) < deletes => self.delete(&space, &key)?,
            0..6 => self.store(&space, &key, random)?,
            6 => self.exist(&space, random)?,
            _ => {}
        }
        self.retrieve(&space, &key, random, deletes)
    }

    fn space(&mut self, random: &mut Random) -> Option<KeySpace> {
        let spaces = self.past.now();
        let name = spaces.keys().nth(random.below(spaces.len().max(1) as u64) as usize)?;
        Some(self.api.open_key_space(name).expect("it was made"))
    }

    fn pairs(&self, space: &KeySpace) -> (Vec<u8>, &Pairs) {
        let spaces = self.past.now().iter();
        let is_this = |name: &[u8]| self.api.open_key_space(name).ok().as_ref() == Some(space);
        let (name, pairs) = spaces.into_iter().find(|(name, _)| is_this(name)).expect("open");
        (name.clone(), pairs)
    }

    /// Makes, opens or deletes a key space.
    fn spaces(&mut self, random: &mut Random) -> Result<(), Cut> {
        let most = (self.limits.max_key - 1).min(255);
        let mut name = vec![b'0' + random.below(5) as u8];
        match random.below(12) {
            0 => name.clear(),
            1 => name.resize(most, 1),
            2 => name.resize(most + 1, 1),
            _ => {}
        }
        let is_legal = (1..=most).contains(&name.len());
        let is_there = self.past.now().contains_key(&name);
        if one_in(random, 2) {
            let foretold = match is_legal {
                false => "KeySpaceNameInvalid",
                true if is_there => "KeySpaceExist",
                true => "Ok",
            };
            let found = said(&self.api.create_key_space(&name))?;
            if self.is_taken(&found, foretold) {
                self.past.change(|spaces| _ = spaces.insert(name, Pairs::new()));
            }
        } else if is_there {
            let space = self.api.open_key_space(&name).expect("it was made");
            self.doomed = Some(name.clone());
            let found = said(&self.api.delete_key_space(space.clone()))?;
            self.doomed = None;
            if self.is_taken(&found, "Ok") {
                self.past.change(|spaces| _ = spaces.remove(&name));
                let gone = said(&self.api.store(&space, b"some", b"", StoreMode::Post))?;
                assert_eq!(gone, "KeySpaceNotExist");
            }
        } else {
            assert_eq!(said(&self.api.open_key_space(&name))?, "KeySpaceNotExist");
        }
        assert!(self.api.key_spaces().eq(self.past.now().keys()));
        Ok(())
    }

    fn key_refusal(&self, key: &[u8]) -> Option<SniaError> {
        let is_legal = (4..=self.limits.snia_key_bytes()).contains(&key.len());
        (!is_legal).then_some(SniaError::KeyLengthInvalid(key.len()))
    }

    fn store(&mut self, space: &KeySpace, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.limits.value(random);
        let modes =
            [StoreMode::Post, StoreMode::UpdateOnly, StoreMode::NoOverwrite, StoreMode::Append];
        let mode = one_of(random, &modes);
        let (name, pairs) = self.pairs(space);
        let old = pairs.get(key);
        let mut new = value.clone();
        if let (Some(old), StoreMode::Append) = (old, mode) {
            new = [old.as_slice(), &value].concat();
        }
        let (too_long, too_long_now) =
            (new.len() > self.limits.max_value, value.len() > self.limits.max_value);
        let refusal = self.key_refusal(key).or(match mode {
            _ if too_long_now => Some(SniaError::ValueLengthInvalid(value.len())),
            StoreMode::UpdateOnly if old.is_none() => Some(SniaError::KeyNotExist),
            StoreMode::NoOverwrite if old.is_some() => Some(SniaError::UpdateNotAllowed),
            _ if too_long => Some(SniaError::ValueLengthInvalid(new.len())),
            _ => None,
        });
        let found = said(&self.api.store(space, key, &value, mode))?;
        if self.is_taken(&found, &ok_or(refusal)) {
            let insert = |pairs: &mut Pairs| _ = pairs.insert(key.to_vec(), Rc::new(new));
            self.past.change(|spaces| spaces.get_mut(&name).map_or((), insert));
        }
        Ok(())
    }

    fn delete(&mut self, space: &KeySpace, key: &[u8]) -> Result<(), Cut> {
        let (name, pairs) = self.pairs(space);
        let missing = (!pairs.contains_key(key)).then_some(SniaError::KeyNotExist);
        let foretold = ok_or(self.key_refusal(key).or(missing));
        let found = said(&self.api.delete(space, key))?;
        if self.is_taken(&found, &foretold) {
            self.forget(&name, key);
        }
        Ok(())
    }

    fn forget(&mut self, name: &[u8], key: &[u8]) {
        let remove = |pairs: &mut Pairs| _ = pairs.remove(key);
        self.past.change(|spaces| spaces.get_mut(name).map_or((), remove));
    }

    /// Retrieves a value, which also shows whether a store or a delete changed anything.
    fn retrieve(
        &mut self,
        space: &KeySpace,
        key: &[u8],
        random: &mut Random,
        deletes: u64,
    ) -> Result<(), Cut> {
        let (name, pairs) = self.pairs(space);
        let value = pairs.get(key).cloned();
        let len = value.as_ref().map_or(0, |value| value.len());
        let offset = if one_in(random, 3) { random.below(len as u64 + 3) as usize } else { 0 };
        let rest = len.saturating_sub(offset);
        let mut buffer = vec![0xee; random.below(rest as u64 * 2 + 2) as usize];
        let is_last = random.below(400) < deletes;
        let then = if is_last { OnRetrieve::Delete } else { OnRetrieve::Keep };
        let refusal = self.key_refusal(key).or(match &value {
            None => Some(SniaError::KeyNotExist),
            Some(_) if offset > len => Some(SniaError::ValueOffsetInvalid(offset)),
            Some(_) if is_last && buffer.len() < rest => Some(SniaError::BufferSmall(rest)),
            Some(_) => None,
        });
        let found = self.api.retrieve(space, key, offset, &mut buffer, then);
        if self.is_taken(&said(&found)?, &ok_or(refusal)) {
            let (value, part) = (value.expect("it is there"), rest.min(buffer.len()));
            assert!(found.is_ok_and(|bytes| bytes == len));
            assert!(buffer[..part] == value[offset..offset + part]);
            assert!(buffer[part..].iter().all(|byte| *byte == 0xee));
            if is_last {
                self.forget(&name, key);
            }
        }
        Ok(())
    }

    fn exist(&mut self, space: &KeySpace, random: &mut Random) -> Result<(), Cut> {
        let keys: Vec<Vec<u8>> =
            (0..random.below(20)).map(|_| self.limits.snia_key(random)).collect();
        let (_, pairs) = self.pairs(space);
        let mut foretold = vec![0_u8; keys.len().div_ceil(8)];
        for (at, _) in keys.iter().enumerate().filter(|(_, key)| pairs.contains_key(*key)) {
            foretold[at / 8] |= 1 << (at % 8);
        }
        let refusal = keys.iter().find_map(|key| self.key_refusal(key));
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.api.exist(space, &slices);
        assert_eq!(said(&found)?, ok_or(refusal));
        assert!(found.map_or(true, |bitmap| bitmap == foretold));
        Ok(())
    }

    /// Opens, closes or advances an iterator.
    fn iterate(&mut self, random: &mut Random) -> Result<(), Cut> {
        if one_in(random, 3) || self.iterators.is_empty() {
            return self.open_iterator(random);
        }
        let at = random.below(self.iterators.len() as u64) as usize;
        if one_in(random, 5) {
            let (id, _) = self.iterators.swap_remove(at);
            assert_eq!(said(&self.api.close_iterator(id))?, "Ok");
            assert_eq!(said(&self.api.next_pairs(id, 1))?, "IteratorNotExist");
            return Ok(());
        }
        let (id, rest) = &mut self.iterators[at];
        let limit = random.below(6 * self.limits.value_bytes) as usize;
        let (mut count, mut used) = (0, 0);
        while let Some((key, value)) = rest.get(count) {
            if used + key.len() + value.len() > limit {
                break;
            }
            used += key.len() + value.len();
            count += 1;
        }
        let first = rest.first().filter(|_| count == 0);
        let refusal = first.map(|(key, value)| SniaError::BufferSmall(key.len() + value.len()));
        let found = self.api.next_pairs(*id, limit);
        assert_eq!(said(&found)?, ok_or(refusal));
        let foretold: Vec<_> = rest.drain(..count).collect();
        let pairs = found.unwrap_or_default().into_iter().map(|(k, v)| (k, Rc::new(v)));
        assert!(pairs.eq(foretold), "an iterator shows the moment of its opening");
        self.sums.listed += count as u64;
        Ok(())
    }

    fn open_iterator(&mut self, random: &mut Random) -> Result<(), Cut> {
        let Some(space) = self.space(random) else { return Ok(()) };
        let mask: [u8; 4] = std::array::from_fn(|_| one_of(random, &[0, 0, 0xff, 0xff, 1]));
        let pattern = [b'a', random.below(3) as u8, random.below(5) as u8, random.below(7) as u8];
        let admits = |key: &&Vec<u8>| (0..4).all(|i| (key[i] ^ pattern[i]) & mask[i] == 0);
        let (_, pairs) = self.pairs(&space);
        let pairs = pairs.iter().filter(|(key, _)| admits(key));
        let rest = pairs.map(|(key, value)| (key.clone(), Rc::clone(value))).collect();
        let refusal = (self.iterators.len() >= 16).then_some(SniaError::IteratorMax);
        let found = self.api.open_iterator(&space, KeyFilter { mask, pattern });
        assert_eq!(said(&found)?, ok_or(refusal));
        self.iterators.extend(found.map(|id| (id, rest)));
        Ok(())
    }
}

/// The content of a device as the API shows it. Also checks that the device holds nothing else.
fn spaces_of(bench: &mut Bench) -> Spaces {
    let mut api = Snia::new(&mut bench.device).expect("it can be spoken to");
    let names: Vec<Vec<u8>> = api.key_spaces().map(<[u8]>::to_vec).collect();
    let mut spaces = Spaces::new();
    for name in names {
        let space = api.open_key_space(&name).expect("it is named");
        let id = api.open_iterator(&space, KeyFilter::default()).expect("the only one");
        let pairs = api.next_pairs(id, usize::MAX).expect("it can be read");
        api.close_iterator(id).expect("it is open");
        let pairs = pairs.into_iter().map(|(key, value)| (key, Rc::new(value))).collect();
        spaces.insert(name, pairs);
    }
    drop(api);
    let entries = bench.entries();
    // A full device marks what it cannot remove yet, by the number of its key space.
    let is_doomed = |key: &[u8]| entries.contains_key(&[&[2], &key[1..5]].concat());
    let is_named = |key: &[u8]| key[0] == 0 || (key[0] == 1 && !is_doomed(key));
    let count = spaces.values().map(|pairs| 1 + pairs.len()).sum::<usize>();
    assert_eq!(entries.keys().filter(|key| is_named(key)).count(), count, "nothing else is left");
    spaces
}

/// Runs a host for a while. Returns the key space that was being deleted at a power cut.
fn talk(
    bench: &mut Bench,
    past: &mut Past<Spaces>,
    random: &mut Random,
    sums: &mut Sums,
) -> Result<(), (Cut, Option<Vec<u8>>)> {
    let limits = bench.limits();
    let deletes = one_of(random, &[5, 20, 70]);
    for _ in 0..TALKS {
        let api = match Snia::new(&mut bench.device) {
            Ok(api) => api,
            Err(SniaError::Device(Error::PowerCut)) => return Err((Cut, None)),
            Err(error) => panic!("{error}"),
        };
        let (iterators, doomed) = (Vec::new(), None);
        let mut host = SniaHost { api, past, limits, sums, iterators, doomed };
        for _ in 0..COMMANDS {
            host.step(random, deletes).map_err(|cut| (cut, host.doomed.take()))?;
        }
        drop(host);
        between(bench, past, random).map_err(|cut| (cut, None))?;
    }
    Ok(())
}

fn run_snia(seed: u64, sums: &mut Sums) {
    let mut random = Random(seed ^ 0x736e_6961);
    let Some(mut bench) = Bench::new(&mut random) else { return };
    let mut past = Past::new(bench.has_log());
    for _ in 0..ROUNDS {
        bench.set_faults(&mut random);
        let talked = talk(&mut bench, &mut past, &mut random, sums);
        sums.cuts += u64::from(talked.is_err());
        if talked.is_err() || one_in(&mut random, 6) {
            bench.reopen(&mut random);
            let found = spaces_of(&mut bench);
            let mut without = past.now().clone();
            let doomed = talked.err().and_then(|(Cut, doomed)| doomed);
            doomed.iter().for_each(|name| _ = without.remove(name));
            let is_known = past.states.contains(&found) || without == found;
            assert!(is_known, "the device holds what never was");
            past.settle(found);
        }
        // The comparison must not meet the power cut of this round.
        bench.device.nand_mut().set_faults(FaultPlan::default());
        assert!(spaces_of(&mut bench) == *past.now());
        bench.device.verify().expect("nothing is damaged");
    }
}

fn run_all(run: fn(u64, &mut Sums)) {
    let mut sums = Sums::default();
    for seed in seeds(SEEDS) {
        let once = std::panic::AssertUnwindSafe(|| run(seed, &mut sums));
        assert!(std::panic::catch_unwind(once).is_ok(), "seed {seed}: see above");
    }
    let Sums { cuts, refusals, listed } = sums;
    println!("{cuts} power cuts, {refusals} refusals, {listed} keys or pairs listed");
    let is_enough = cuts > 30 && refusals > 50 && listed > 1000;
    assert!(is_enough || seeds(SEEDS) != SEEDS, "{cuts} {refusals} {listed}");
}

#[test]
fn random_nvme_commands_equal_a_model() {
    run_all(run_nvme);
}

#[test]
fn random_snia_commands_equal_a_model() {
    run_all(run_snia);
}
