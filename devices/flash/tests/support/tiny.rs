//! A tiny KVSSD: its options, images, and a workload that fills it.

use super::support::{Random, State, Step, apply, model, scanned};
use runstone_flash::kvssd::{
    Direction, Durability, FilterAllocation, Form, KvSsd, KvSsdOptions, Partitioner, Placement,
    ValuePlacement,
};
use runstone_flash::nand::{Geometry, MemoryImage, Timing};
use runstone_flash::{Error, Result};

pub const TINY: Geometry = Geometry {
    page_bytes: 1024,
    spare_bytes: 64,
    block_pages: 8,
    block_count: 40,
    channel_count: 1,
    die_count: 1,
};

pub fn tiny() -> KvSsdOptions {
    KvSsdOptions {
        over_provision_percent: 5,
        memtable_pages: 8,
        level1_pages: 24,
        size_ratio: 4,
        l0_trigger: 2,
        checkpoint_commits: 8,
        wear_gap: 1,
        cuts: Partitioner::Size,
        ..KvSsdOptions::default()
    }
}

/// An image and its side file.
#[derive(Clone)]
pub struct Images {
    pub flash: MemoryImage,
    pub side: MemoryImage,
}

impl Images {
    pub fn new() -> Images {
        Images { flash: MemoryImage::new(), side: MemoryImage::new() }
    }

    pub fn duplicate(&self) -> Images {
        Images { flash: self.flash.duplicate(), side: self.side.duplicate() }
    }

    pub fn create(&self, options: &KvSsdOptions) -> KvSsd {
        self.create_on(geometry(options), options)
    }

    pub fn create_on(&self, geometry: Geometry, options: &KvSsdOptions) -> KvSsd {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::create(flash, side, geometry, Timing::PAPER, options.clone()).unwrap()
    }

    pub fn open(&self) -> Result<KvSsd> {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::open(flash, side, None, Timing::PAPER, None)
    }
}

pub fn key(at: u64) -> Vec<u8> {
    format!("key{at:05}").into_bytes()
}

/// Up to four writes.
pub fn step(random: &mut Random, keys: u64) -> Step {
    let count = if random.below(8) == 0 { 1 + random.below(4) } else { 1 };
    let write = |random: &mut Random| {
        let size = if random.below(150) == 0 { 2500 } else { random.below(120) };
        let value = vec![random.below(256) as u8; size as usize];
        (key(random.below(keys)), (random.below(7) > 0).then_some(value))
    };
    (0..count).map(|_| write(random)).collect()
}

pub fn expect(device: &mut KvSsd, state: &State, snapshot: u64, keys: u64) {
    for at in 0..keys + 2 {
        let key = key(at);
        assert_eq!(device.get_at(&key, snapshot).unwrap().as_ref(), state.get(&key), "{at}");
    }
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert!(scanned(device, Direction::Forward, snapshot) == expected);
    let backwards: Vec<_> = expected.into_iter().rev().collect();
    assert!(scanned(device, Direction::Reverse, snapshot) == backwards);
}

/// Tables of lLSM reserve room, streams of values keep blocks open, and runs keep versions that
/// newer runs hide. Such devices need more blocks.
pub fn geometry(options: &KvSsdOptions) -> Geometry {
    let block_count = match (options.form, options.values) {
        (_, ValuePlacement::Log | ValuePlacement::Groups) => 54,
        (Form::Append, _) => 46,
        _ if options.policy == "tiering" => 50,
        _ => TINY.block_count,
    };
    Geometry { block_count, ..TINY }
}

/// Separated values: the larger half of all values. The tree is small, and so are its levels.
pub fn apart(values: ValuePlacement) -> KvSsdOptions {
    KvSsdOptions { values, values_from: 60, level1_pages: 6, threshold: 4, ..tiny() }
}

/// lLSM.
pub fn appended() -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::llsm();
    KvSsdOptions { form, threshold, placement, ..tiny() }
}

/// dLSM.
pub fn delayed() -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::dlsm();
    KvSsdOptions { form, threshold, placement, ..tiny() }
}

/// Levels of several runs, which are merged by remapping if they are few.
pub fn tiered() -> KvSsdOptions {
    KvSsdOptions { threshold: 6, ..under("tiering") }
}

pub fn under(policy: &str) -> KvSsdOptions {
    KvSsdOptions { policy: policy.to_string(), ..tiny() }
}

/// Every feature that five papers give a device, except runs.
pub fn combined() -> KvSsdOptions {
    KvSsdOptions {
        policy: "garnering".to_string(),
        cuts: Partitioner::GlobalRange,
        filters: FilterAllocation::Optimal,
        ..apart(ValuePlacement::Groups)
    }
}

/// The number of tables that were not rewritten: remapped, virtual, or appended to.
pub fn reused(device: &KvSsd) -> u64 {
    device.counters().remapped_tables + device.counters().appended_segments
}

pub fn variants() -> Vec<KvSsdOptions> {
    let mut variants = vec![
        KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..tiny() },
        KvSsdOptions { placement: Placement::Mixed, ..tiny() },
        KvSsdOptions { durability: Durability::Log, ..tiny() },
        KvSsdOptions { policy: "leveling".to_string(), ..tiny() },
        KvSsdOptions { policy: "garnering".to_string(), ..tiny() },
        KvSsdOptions { threshold: 0, cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { threshold: 4, cuts: Partitioner::GlobalRange, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GroupedGlobalRange, ..tiny() },
    ];
    for threshold in [0, 2, 3, 4, 6] {
        variants.push(KvSsdOptions { threshold, ..tiny() });
    }
    variants.extend([delayed(), appended()]);
    variants.push(KvSsdOptions { threshold: 2, placement: Placement::PerTable, ..appended() });
    variants.push(KvSsdOptions { filters: FilterAllocation::Uniform, ..tiny() });
    variants.extend([apart(ValuePlacement::Log), apart(ValuePlacement::Groups)]);
    let values = ValuePlacement::Groups;
    variants.push(KvSsdOptions { values, durability: Durability::Log, ..apart(values) });
    variants.extend([combined(), tiered()]);
    variants.push(KvSsdOptions { threshold: 0, placement: Placement::PerTable, ..tiered() });
    let policy = tiered().policy;
    variants.push(KvSsdOptions { policy, ..combined() });
    let filters = FilterAllocation::Optimal;
    variants.extend(
        [tiny(), appended(), delayed(), tiered()]
            .map(|variant| KvSsdOptions { filters, ..variant }),
    );
    variants
}

/// Steps of the workload under power cuts: overwrites and deletes on a device that is two thirds
/// full. The seed is one with which every variant collects and moves cold blocks after step 2000.
pub fn cut_workload() -> Vec<Step> {
    let mut random = Random::new(319);
    (0..2600).map(|_| step(&mut random, 500)).collect()
}

/// Runs the steps. Returns where it stopped and why; `state` then has the acknowledged steps.
pub fn run(device: &mut KvSsd, steps: &[Step], state: &mut State) -> (usize, Option<Error>) {
    for (at, step) in steps.iter().enumerate() {
        if let Err(error) = apply(device, step) {
            return (at, Some(error));
        }
        model(state, step);
    }
    (steps.len(), None)
}
