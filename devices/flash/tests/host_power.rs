//! The machine that emulates a device loses power. Any of the pages that it wrote to its files
//! since their last sync may be on the disk (`support/host.rs`). A device still opens, and has
//! every write that it acknowledged as synced and a prefix of the later ones.
//!
//! To test more cuts than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=400 cargo test
//! --release -p runstone-flash --test host_power`.

#[path = "support/host.rs"]
mod host;
mod support;

use host::Host;
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::{Ftl, FtlOptions, GcFrontier};
use runstone_flash::kvssd::{Direction, Durability, KvSsd, KvSsdOptions, ValuePlacement};
use runstone_flash::nand::{Geometry, Timing};
use runstone_flash::{Error, Result};
use runstone_storage::{Category, Storage, StorageFile};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::{Random, State, Step, apply, model, one_of, scanned, seeds};

const IMAGE: usize = 0;
const SIDE: usize = 1;
const PAGE: usize = 4096;

fn geometry(block_pages: u32, block_count: u32) -> Geometry {
    let page_bytes = PAGE as u32;
    let spare_bytes = 128;
    Geometry { page_bytes, spare_bytes, block_pages, block_count, channel_count: 1, die_count: 1 }
}

/// States that a power loss may leave: the last synced state and each state since.
struct History<T> {
    states: Vec<T>,
}

impl<T: Clone + PartialEq> History<T> {
    fn new(state: T) -> History<T> {
        History { states: vec![state] }
    }

    fn now(&self) -> &T {
        &self.states[self.states.len() - 1]
    }

    fn change(&mut self, step: impl FnOnce(&mut T)) {
        let mut state = self.now().clone();
        step(&mut state);
        self.states.push(state);
    }

    fn sync(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    /// Notes the state that a machine has after its power loss.
    fn settle(&mut self, found: T, place: &str) {
        assert!(self.states.contains(&found), "{place}: not a state since the last sync");
        self.states = vec![found];
    }
}

// KVSSD.

fn kvssd_options(seed: u64) -> KvSsdOptions {
    let form = match seed % 6 {
        1 => KvSsdOptions::dlsm(),
        2 => KvSsdOptions::nlsm(),
        _ => KvSsdOptions::default(),
    };
    let durability = if seed % 6 == 3 { Durability::Log } else { Durability::Capacitor };
    let values = if seed % 6 == 4 { ValuePlacement::Log } else { ValuePlacement::Inline };
    KvSsdOptions {
        durability,
        values,
        memtable_pages: 3,
        level1_pages: 10,
        size_ratio: 4,
        l0_trigger: 2,
        checkpoint_commits: 8,
        ..form
    }
}

fn step(random: &mut Random) -> Step {
    let count = 1 + random.below(3);
    let mut write = || {
        let key = format!("key{:03}", random.below(150)).into_bytes();
        let len = 1 + random.below(700) as usize;
        let value = (!random.one_in(5)).then(|| vec![random.below(256) as u8; len]);
        (key, value)
    };
    (0..count).map(|_| write()).collect()
}

/// Writes until the machine dies or all is done.
fn use_kvssd(
    device: &mut KvSsd,
    random: &mut Random,
    steps: u64,
    history: &mut History<State>,
) -> Result<()> {
    for _ in 0..steps {
        let step = step(random);
        history.change(|state| model(state, &step));
        apply(device, &step)?;
        if random.one_in(9) {
            device.sync()?;
            history.sync();
        }
        if random.one_in(40) {
            device.flush()?;
        }
        if random.one_in(120) {
            device.compact()?;
        }
    }
    Ok(())
}

fn open_kvssd(host: &Host) -> Result<KvSsd> {
    KvSsd::open(host.file(IMAGE), host.file(SIDE), None, Timing::PAPER, None)
}

fn create_kvssd(host: &Host, seed: u64) -> Result<KvSsd> {
    let (image, side) = (host.file(IMAGE), host.file(SIDE));
    KvSsd::create(image, side, geometry(8, 90), Timing::PAPER, kvssd_options(seed))
}

fn check_kvssd(host: &Host, history: &mut History<State>, place: &str) -> KvSsd {
    let mut device = open_kvssd(host).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = scanned(&mut device, Direction::Forward, u64::MAX).into_iter().collect();
    history.settle(found, place);
    device.verify().unwrap_or_else(|error| panic!("{place}: {error}"));
    device
}

/// Users saw this on `kvssd:` with its image in a file: after 10 synced writes and a flush the
/// power of their machine failed, and all 10 were gone. A flush cut the side file while the tables
/// that replace it were only in the page cache. Parts of later programs that did reach the disk
/// could make the image unreadable. Now the image is synced before the side file is cut, and before
/// a block is erased, and opening undoes all programs from the first one that did not reach the
/// disk.
#[test]
fn a_kvssd_keeps_what_it_synced() {
    for seed in seeds(0..6) {
        let start = Host::new(2);
        let mut device = create_kvssd(&start, seed).expect("the machine lives");
        let life = |device: &mut KvSsd| {
            let (mut history, mut random) = (History::new(State::new()), Random::new(seed));
            let done = use_kvssd(device, &mut random, 900, &mut history);
            (history, done)
        };
        let from = start.ops();
        life(&mut device).1.expect("the machine lives");
        assert!(device.counters().flushes > 20, "{:?}", device.counters());
        let ops = start.ops() - from;
        for cut in (seed..ops).step_by(ops as usize / 40) {
            let host = Host::new(2);
            let mut device = create_kvssd(&host, seed).expect("the machine lives");
            host.dies_in(cut);
            let (mut history, done) = life(&mut device);
            assert!(matches!(done, Err(Error::PowerCut)), "{done:?}");
            let states = history.states.clone();
            for survivor in 0..4 {
                let place = format!("seed {seed}, cut at {cut}, survivor {survivor}");
                history.states = states.clone();
                check_kvssd(&host.survivor(survivor + 4 * cut), &mut history, &place);
            }
        }
    }
}

/// The power fails several times in a row, even while the device is opened.
#[test]
fn a_kvssd_survives_power_losses_in_a_row() {
    for seed in seeds(0..12) {
        let mut random = Random::new(seed);
        let mut host = Host::new(2);
        drop(create_kvssd(&host, seed).expect("the machine lives"));
        let mut history = History::new(State::new());
        for round in 0..12 {
            let place = format!("seed {seed}, round {round}");
            let soon = one_of(&mut random, &[3, 30, 400, 4000]);
            host.dies_in(random.below(soon));
            let done = open_kvssd(&host)
                .and_then(|mut device| use_kvssd(&mut device, &mut random, 400, &mut history));
            assert!(matches!(done, Ok(()) | Err(Error::PowerCut)), "{place}: {done:?}");
            host = host.survivor(random.below(1 << 30));
            // What this boot finds is on the disk, so the next one finds it too.
            drop(check_kvssd(&host.survivor(1), &mut history, &place));
        }
    }
}

// Block SSD.

fn ftl_options(seed: u64) -> FtlOptions {
    let gc_frontier = if seed % 2 == 1 { GcFrontier::Shared } else { GcFrontier::Split };
    FtlOptions { gc_frontier, ..FtlOptions::default() }
}

fn open_ftl(host: &Host, seed: u64) -> Result<Ftl> {
    Ftl::open(host.file(IMAGE), None, Timing::PAPER, ftl_options(seed))
}

fn use_ftl(
    ftl: &mut Ftl,
    random: &mut Random,
    writes: u64,
    history: &mut History<Vec<u8>>,
) -> Result<()> {
    for _ in 0..writes {
        let (block, byte) = (random.below(ftl.block_count()), 1 + random.below(255) as u8);
        history.change(|state| state[block as usize] = byte);
        ftl.write(block, &[byte; PAGE])?;
        if random.one_in(30) {
            ftl.sync()?;
            history.sync();
        }
    }
    Ok(())
}

fn check_ftl(host: &Host, seed: u64, history: &mut History<Vec<u8>>, place: &str) -> Ftl {
    let mut ftl = open_ftl(host, seed).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut read = |block| {
        let mut data = [0; PAGE];
        ftl.read(block, &mut data).unwrap_or_else(|error| panic!("{place}: {error}"));
        data[0]
    };
    let found = (0..history.now().len() as u64).map(&mut read).collect();
    history.settle(found, place);
    assert!(ftl.is_consistent());
    ftl
}

/// Users saw this on `blockssd:`: host blocks that were synced and never written again were gone
/// after the power of their machine failed. A collection had moved them; the erase of their block
/// was on the disk, and their copies were not. Now the copies are synced before the erase.
#[test]
fn a_block_ssd_keeps_what_it_synced() {
    for seed in seeds(0..8) {
        let mut random = Random::new(seed);
        let mut host = Host::new(1);
        let made = Ftl::create(host.file(IMAGE), geometry(8, 20), Timing::PAPER, ftl_options(seed));
        let block_count = made.expect("the machine lives").block_count();
        let mut history = History::new(vec![0; block_count as usize]);
        for round in 0..30 {
            let place = format!("seed {seed}, round {round}");
            let soon = one_of(&mut random, &[3, 30, 400, 3000]);
            host.dies_in(random.below(soon));
            let done = open_ftl(&host, seed)
                .and_then(|mut ftl| use_ftl(&mut ftl, &mut random, 500, &mut history));
            assert!(matches!(done, Ok(()) | Err(Error::PowerCut)), "{place}: {done:?}");
            host = host.survivor(random.below(1 << 30));
            drop(check_ftl(&host.survivor(1), seed, &mut history, &place));
        }
    }
}

/// Syncs are expensive, unlike writes to a page cache. Only the erases of an overwritten device
/// need syncs, at most two for each.
#[test]
fn only_erases_cost_syncs() {
    let host = Host::new(1);
    let mut ftl =
        Ftl::create(host.file(IMAGE), geometry(8, 20), Timing::PAPER, ftl_options(0)).unwrap();
    let (before, _) = host.cost();
    let block_count = ftl.block_count();
    let write = |ftl: &mut Ftl, at| ftl.write(at % block_count, &[1; PAGE]).unwrap();
    (0..block_count).for_each(|at| write(&mut ftl, at));
    assert_eq!((host.cost().0 - before, ftl.counters().erases), (0, 0));
    (0..2000).for_each(|at| write(&mut ftl, at * 7));
    let (syncs, erases) = (host.cost().0 - before, ftl.counters().erases);
    assert!(erases > 200 && syncs <= 2 * erases, "{syncs} syncs, {erases} erases");
    assert_eq!(ftl.nand().image_syncs(), host.cost().0);
}

/// A file at its last sync and since: for each block, the bytes that may fill it, the newest last.
#[derive(Clone, Default)]
struct File {
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Whether the file was removed and no sync has recorded that yet.
    is_removed: bool,
}

impl File {
    fn sync(&mut self) {
        self.blocks.values_mut().for_each(|bytes| drop(bytes.drain(..bytes.len() - 1)));
    }
}

type Files = BTreeMap<String, File>;

fn use_files(
    storage: &BlockStorage,
    random: &mut Random,
    files: &mut Files,
) -> runstone_storage::Result<()> {
    let mut open: BTreeMap<String, Arc<dyn StorageFile>> = BTreeMap::new();
    for (name, _) in files.iter().filter(|(_, file)| !file.is_removed) {
        open.insert(name.clone(), storage.open(name, Category::Other)?);
    }
    for _ in 0..300 {
        if open.len() < 5 {
            let name = format!("file{}", random.below(1 << 40));
            let file = storage.create(&name, Category::Other)?;
            storage.sync_dir()?;
            files.retain(|_, file| !file.is_removed);
            files.insert(name.clone(), File::default());
            open.insert(name, file);
        }
        let names: Vec<String> = open.keys().cloned().collect();
        let name = one_of(random, &names);
        let (file, model) = (Arc::clone(&open[&name]), files.entry(name.clone()).or_default());
        match random.below(30) {
            0 => {
                model.is_removed = true;
                open.remove(&name);
                storage.remove(&name)?;
            }
            1..5 => {
                file.sync()?;
                model.sync();
            }
            _ => {
                let (first, byte) = (random.below(80), 1 + random.below(255) as u8);
                let count = 1 + random.below(20);
                for block in first..first + count {
                    model.blocks.entry(block).or_insert_with(|| vec![0]).push(byte);
                }
                let data = vec![byte; PAGE * count as usize];
                file.write_at(first * PAGE as u64, &data)?;
            }
        }
    }
    Ok(())
}

fn check_files(storage: &BlockStorage, files: &mut Files, place: &str) {
    let found = storage.list().expect("a list");
    let is_there = |name: &String| found.iter().any(|one| one.name == *name);
    for (name, model) in &*files {
        assert!(model.is_removed || is_there(name), "{place}: {name} is gone");
    }
    files.retain(|name, _| is_there(name));
    for (name, model) in files {
        model.is_removed = false;
        let file = storage.open(name, Category::Other).expect("it is there");
        let len = file.len().expect("it is open");
        for (block, bytes) in &mut model.blocks {
            let mut data = [0; PAGE];
            if (block + 1) * PAGE as u64 <= len {
                file.read_at(block * PAGE as u64, &mut data)
                    .unwrap_or_else(|error| panic!("{place}: {name}, block {block}: {error}"));
            }
            assert!(data.iter().all(|byte| *byte == data[0]), "{place}: {name}, block {block}");
            assert!(bytes.contains(&data[0]), "{place}: {name}, block {block}: {}", data[0]);
            *bytes = vec![data[0]];
        }
    }
}

/// Like [`a_block_ssd_keeps_what_it_synced`], for the files on it: everything that a sync of a file
/// or of the directory acknowledged is there, and a removal that was not synced leaves the file
/// whole.
#[test]
fn files_of_a_block_ssd_are_there_once_synced() {
    for seed in seeds(0..8) {
        let mut random = Random::new(seed);
        let mut host = Host::new(1);
        let options = BlockOptions { ftl: ftl_options(seed), ..BlockOptions::default() };
        let made = BlockStorage::create(host.file(IMAGE), geometry(16, 70), options);
        drop(made.expect("the machine lives"));
        let mut files = Files::new();
        for round in 0..10 {
            let place = format!("seed {seed}, round {round}");
            let soon = one_of(&mut random, &[30, 400, 4000]);
            host.dies_in(random.below(soon));
            if let Ok(storage) = BlockStorage::open(host.file(IMAGE), None, options) {
                let _ = use_files(&storage, &mut random, &mut files);
                host.dies_in(0);
            }
            host = host.survivor(random.below(1 << 30));
            let storage = BlockStorage::open(host.file(IMAGE), None, options);
            let storage = storage.unwrap_or_else(|error| panic!("{place}: {error}"));
            check_files(&storage, &mut files, &place);
        }
    }
}
