//! A random KVSSD under faults, and what hosts of any front have in common.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;

use super::random::{Random, fault_plan, one_of};
use runstone_flash::Error;
use runstone_flash::kvssd::{
    Direction, Durability, FilterAllocation, Form, KvSsd, KvSsdOptions, Partitioner, Placement,
    ValuePlacement,
};
use runstone_flash::nand::{Geometry, MemoryImage, Timing};

pub const ROUNDS: u64 = 8;
/// The number of conversations of a host with the device in a round, and of commands in each.
pub const TALKS: u64 = 6;
pub const COMMANDS: u64 = 80;

pub type Value = Rc<Vec<u8>>;
pub type Pairs = BTreeMap<Vec<u8>, Value>;
pub type Spaces = BTreeMap<Vec<u8>, Pairs>;

/// The pairs that an iterator has yet to return.
pub type Rest = Vec<(Vec<u8>, Value)>;

/// The power was cut.
#[derive(Debug)]
pub struct Cut;

/// A device with its faults, and the limits from which a host draws its commands.
pub struct Bench {
    pub flash: MemoryImage,
    pub side: MemoryImage,
    pub device: KvSsd,
    pub keys: u64,
    pub value_bytes: u64,
    /// A snapshot and its content.
    pub held: Option<(u64, Pairs)>,
}

pub fn geometry(random: &mut Random) -> Geometry {
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

pub fn options(random: &mut Random) -> KvSsdOptions {
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
        filters: one_of(random, &FilterAllocation::ALL),
        values: one_of(random, &ValuePlacement::ALL),
        values_from: one_of(random, &[1, 50, 400]),
    }
}

impl Bench {
    /// `None` if the options do not fit the geometry.
    pub fn new(random: &mut Random) -> Option<Bench> {
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

    pub fn has_log(&self) -> bool {
        self.device.options().durability == Durability::Log
    }

    /// Sometimes changes the options, but keeps the durability, because the model depends on it.
    pub fn reopen(&mut self, random: &mut Random) {
        self.held = None;
        let open = |options| {
            let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
            KvSsd::open(flash, side, None, Timing::PAPER, options)
        };
        let durability = self.device.options().durability;
        let options = KvSsdOptions { durability, ..options(random) };
        let is_possible = options.check(&self.device.nand().geometry()).is_ok();
        let options = (is_possible && random.one_in(3)).then_some(options);
        let opened = match open(options) {
            // Separated values stay as they are.
            Err(Error::BadOption { name: "values", .. }) => open(None),
            opened => opened,
        };
        self.device = opened.expect("it opens");
        self.device.verify().expect("nothing is damaged");
    }

    pub fn set_faults(&mut self, random: &mut Random) {
        self.device.nand_mut().set_faults(fault_plan(random));
    }

    pub fn limits(&self) -> Limits {
        Limits {
            keys: self.keys,
            value_bytes: self.value_bytes,
            max_key: self.device.max_key_bytes(),
            max_value: self.device.max_value_bytes(),
        }
    }

    /// All entries on the device.
    pub fn entries(&mut self) -> Pairs {
        self.entries_at(u64::MAX)
    }

    pub fn entries_at(&mut self, snapshot: u64) -> Pairs {
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
    pub fn hold(&mut self, random: &mut Random) {
        if let Some((snapshot, pairs)) = self.held.take_if(|_| random.one_in(3)) {
            assert!(self.entries_at(snapshot) == pairs, "a snapshot shows its moment");
            self.device.release(snapshot);
        } else if self.held.is_none() && random.one_in(6) {
            self.held = Some((self.device.snapshot(), self.entries()));
        }
    }
}

/// Sizes that a host draws from.
#[derive(Clone, Copy)]
pub struct Limits {
    pub keys: u64,
    pub value_bytes: u64,
    pub max_key: usize,
    pub max_value: usize,
}

impl Limits {
    pub fn value(&self, random: &mut Random) -> Vec<u8> {
        let bytes = match random.below(60) {
            0 => self.max_value + 1,
            1 => self.max_value,
            2..6 => 0,
            _ => random.below(self.value_bytes) as usize,
        };
        vec![random.below(256) as u8; bytes]
    }

    /// A key of 1 to 16 bytes, rarely empty or one byte too long.
    pub fn nvme_key(&self, random: &mut Random) -> Vec<u8> {
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
    pub fn snia_key_bytes(&self) -> usize {
        (self.max_key - 5).min(255)
    }

    /// A key that iterators can select by its first bytes, rarely one too short or too long.
    pub fn snia_key(&self, random: &mut Random) -> Vec<u8> {
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

pub fn spread(at: u64) -> [u8; 8] {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The state that a device must be in, and the states that it may be in after a power cut. With a
/// log that is any state since the last sync.
pub struct Past<S> {
    pub states: Vec<S>,
    pub has_log: bool,
}

impl<S: Clone + Default> Past<S> {
    pub fn new(has_log: bool) -> Past<S> {
        Past { states: vec![S::default()], has_log }
    }

    pub fn now(&self) -> &S {
        &self.states[self.states.len() - 1]
    }

    pub fn change(&mut self, step: impl FnOnce(&mut S)) {
        if self.has_log {
            self.states.push(self.now().clone());
        }
        let last = self.states.len() - 1;
        step(&mut self.states[last]);
    }

    pub fn settle(&mut self, now: S) {
        self.states = vec![now];
    }
}

/// Counts of power cuts, refusals and iterated pairs.
#[derive(Default)]
pub struct Sums {
    pub cuts: u64,
    pub refusals: u64,
    pub listed: u64,
}

/// A full device keeps in its memtable the writes that have no room on flash, so `Full` is not a
/// failure.
pub fn is_done(outcome: runstone_flash::Result<()>) -> Result<bool, Cut> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::PowerCut) => Err(Cut),
        Err(Error::Full { .. } | Error::OutOfBlocks | Error::VersionsHeld { .. }) => Ok(false),
        Err(error) => panic!("{error}"),
    }
}

/// Maintenance between two conversations, at random.
pub fn between<S: Clone + Default>(
    bench: &mut Bench,
    past: &mut Past<S>,
    random: &mut Random,
) -> Result<(), Cut> {
    bench.hold(random);
    if random.one_in(2) && is_done(bench.device.sync())? {
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
