//! Files of a block SSD under random faults, against a model. The test draws the geometry, the
//! over-provisioning and trims. There are sparse writes, truncations, holes, renames over files,
//! removals with open handles, files with reserved space, and copies between two places. The device
//! and its directory fill up, programs and erases fail, and the power is cut several times in a
//! row, even during opening. Clean shutdowns are followed by opens with other options. A refused
//! call changes nothing, and a removed file leaves nothing behind.
//!
//! To test more devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo
//! test --release -p runstone-flash --test block_random`.

#[path = "support/failing.rs"]
mod failing;
#[path = "support/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use failing::Failing;
use random::{Random, one_of, seeds};
use runstone_flash::Error;
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::{FtlOptions, GcFrontier};
use runstone_flash::nand::{FaultPlan, Geometry, MemoryImage};
use runstone_storage::{Category, Result, Storage, StorageFile};

const SEEDS: Range<u64> = 0..24;
const ROUNDS: u64 = 14;
/// Number of file names in each of two places. Long names need more room than the directory has.
const NAMES: [u64; 2] = [9, 60];
/// The size of the journal on devices of this size.
const RING_BYTES: u64 = 2 * 32 * 4096;
const LONG_PLACE_BYTES: usize = 4000;
const LONG_NAME_BYTES: usize = 250;

/// A file: its content at its last sync and after each change since. The last one is current.
#[derive(Clone, Debug)]
struct Model {
    versions: Vec<Vec<u8>>,
}

impl Model {
    fn now(&self) -> &Vec<u8> {
        &self.versions[self.versions.len() - 1]
    }

    fn change(&mut self, step: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.now().clone();
        step(&mut content);
        self.versions.push(content);
    }

    fn sync(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    /// Whether a power cut may have left this content. Its length is a length that the file had, or
    /// a block boundary inside a write that was committed in part. Each byte is one that the file
    /// had there, or zero where the file was shorter.
    fn admits(&self, found: &[u8]) -> bool {
        let at = |version: &Vec<u8>, at: usize| version.get(at).copied().unwrap_or(0);
        let lens = || self.versions.iter().map(Vec::len);
        let is_part = found.len().is_multiple_of(4096)
            && lens().min() < Some(found.len())
            && lens().max() > Some(found.len());
        (is_part || lens().any(|len| len == found.len()))
            && (0..found.len())
                .all(|i| self.versions.iter().any(|version| at(version, i) == found[i]))
    }
}

/// A place and a name in it.
type Name = (usize, String);
type Names = BTreeMap<Name, u64>;

/// An open file, which may have no name any more.
#[derive(Clone)]
struct Handle {
    id: u64,
    file: Arc<dyn StorageFile>,
    capacity_bytes: Option<u64>,
}

struct Run {
    image: MemoryImage,
    options: BlockOptions,
    /// The same device, by place.
    storages: Vec<BlockStorage>,
    is_long: bool,
    /// The free space when there are no files.
    free_bytes: u64,
    files: BTreeMap<u64, Model>,
    /// The names at the last sync, and after each change since.
    names: Vec<Names>,
    handles: Vec<Handle>,
    next_id: u64,
    failures_left: u64,
    /// The length of the largest write.
    most_bytes: u64,
    cuts: u64,
    refusals: u64,
    collections: u64,
}

fn case(random: &mut Random) -> (Geometry, BlockOptions) {
    let geometry = Geometry {
        page_bytes: one_of(random, &[4096, 8192, 16384]),
        spare_bytes: 64,
        block_pages: one_of(random, &[4, 8, 16]),
        block_count: 0,
        channel_count: one_of(random, &[1, 2]),
        die_count: one_of(random, &[1, 2]),
    };
    // Some 200 to 600 host blocks.
    let block_blocks = geometry.page_bytes / 4096 * geometry.block_pages;
    let block_count = (200 + random.below(400) as u32) / block_blocks + 9;
    let ftl = FtlOptions {
        over_provision_percent: 5 + random.below(40) as u32,
        gc_frontier: one_of(random, &[GcFrontier::Split, GcFrontier::Shared]),
        is_trim_on: random.one_in(2),
    };
    let queue_depth = if geometry.channel_count > 1 { 4 } else { 1 };
    let options = BlockOptions { ftl, queue_depth, ..BlockOptions::default() };
    (Geometry { block_count, ..geometry }, options)
}

fn is_power_cut(error: &runstone_storage::Error) -> bool {
    error.to_string().contains("power") || error.to_string().contains("failed; open")
}

/// The device as seen from both places.
fn places(root: BlockStorage, is_long: bool) -> Vec<BlockStorage> {
    let place = if is_long { "p".repeat(LONG_PLACE_BYTES) } else { "place".to_string() };
    let sibling = root.open_sibling(Path::new(&place));
    vec![root, sibling]
}

impl Run {
    fn new(random: &mut Random) -> Run {
        let (geometry, options) = case(random);
        let image = MemoryImage::new();
        let storage = BlockStorage::create(Box::new(image.clone()), geometry, options).unwrap();
        let free_bytes = storage.free_bytes().unwrap();
        let is_long = random.one_in(3);
        // How many blocks of flash the device can lose and still work.
        let block_bytes = u64::from(geometry.page_bytes * geometry.block_pages);
        let visible_blocks = (free_bytes + RING_BYTES).div_ceil(block_bytes);
        let failures_left = (u64::from(geometry.block_count) - visible_blocks - 3).min(12);
        Run {
            image,
            options,
            storages: places(storage, is_long),
            is_long,
            free_bytes,
            failures_left,
            files: BTreeMap::new(),
            names: vec![Names::new()],
            handles: Vec::new(),
            next_id: 0,
            most_bytes: one_of(random, &[50_000, 150_000, 1_000_000]),
            cuts: 0,
            refusals: 0,
            collections: 0,
        }
    }

    fn now(&self) -> &Names {
        &self.names[self.names.len() - 1]
    }

    fn rename(&mut self, step: impl FnOnce(&mut Names)) {
        let mut names = self.now().clone();
        step(&mut names);
        self.names.push(names);
    }

    fn committed(&mut self) {
        self.names.drain(..self.names.len() - 1);
    }

    fn name(&self, random: &mut Random) -> Name {
        let number = random.below(NAMES[usize::from(self.is_long)]);
        let fill = if self.is_long { LONG_NAME_BYTES } else { 1 };
        (usize::from(!number.is_multiple_of(3)), format!("{number:0>fill$}"))
    }

    /// Adds a new file with these contents.
    fn add(&mut self, name: &Name, versions: Vec<Vec<u8>>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, Model { versions });
        self.rename(|names| _ = names.insert(name.clone(), id));
        id
    }

    /// An open handle, or a new one for a name.
    fn file(&mut self, random: &mut Random) -> Option<Handle> {
        if !self.handles.is_empty() && random.one_in(4) {
            return Some(one_of(random, &self.handles));
        }
        let names = self.now();
        let (name, id) = names.iter().nth(random.below(names.len().max(1) as u64) as usize)?;
        let file = self.storages[name.0].open(&name.1, Category::Table).unwrap();
        Some(Handle { id: *id, file, capacity_bytes: None })
    }

    /// Changes or reads the content of a file at random.
    fn change(&mut self, random: &mut Random) -> Result<()> {
        let Some(handle) = self.file(random) else { return Ok(()) };
        let Handle { id, file, capacity_bytes } = &handle;
        let len = self.files[id].now().len() as u64;
        match random.below(11) {
            0..5 => self.write(&handle, random),
            5 | 6 => {
                let new_len = random.below(len + 6000);
                if capacity_bytes.is_some() {
                    assert!(file.set_len(new_len).is_err() && file.punch(0, new_len).is_err());
                    return Ok(());
                }
                let change = |content: &mut Vec<u8>| content.resize(new_len as usize, 0);
                self.changed(*id, file.set_len(new_len), change)
            }
            7 if capacity_bytes.is_none() => {
                let (start, size) = (random.below(len + 1), random.below(30_000));
                let end = (start + size).min(len) as usize;
                let change = |content: &mut Vec<u8>| content[start as usize..end].fill(0);
                self.changed(*id, file.punch(start, size), change)
            }
            8 => {
                file.sync()?;
                // Nothing can find a file without a name, but a power cut may bring its name back.
                if self.now().values().any(|other| other == id) {
                    self.files.get_mut(id).unwrap().sync();
                }
                Ok(())
            }
            9 => file.allocate(random.below(len + 5000), random.below(self.most_bytes)),
            _ => {
                let start = random.below(len + 1);
                let mut found = vec![0xee; random.below(len - start + 1) as usize];
                file.read_at(start, &mut found)?;
                assert!(found == self.files[id].now()[start as usize..][..found.len()]);
                let past = file.read_at(start, &mut vec![0; (len - start) as usize + 1]);
                assert!(past.is_err(), "past the end");
                Ok(())
            }
        }
    }

    fn write(&mut self, handle: &Handle, random: &mut Random) -> Result<()> {
        let len = self.files[&handle.id].now().len() as u64;
        let far = one_of(random, &[1, 5000, 60_000]);
        let offset = if random.one_in(3) { len } else { random.below(len + far) };
        let most = one_of(random, &[300, 9000, self.most_bytes]);
        let data = vec![1 + random.below(255) as u8; random.below(most) as usize];
        let end = offset + data.len() as u64;
        let written = handle.file.write_at(offset, &data);
        if handle.capacity_bytes.is_some_and(|capacity_bytes| end > capacity_bytes) {
            assert!(written.is_err_and(|error| !is_power_cut(&error)), "past the capacity");
            return Ok(());
        }
        self.changed(handle.id, written, |content| {
            if !data.is_empty() {
                content.resize(content.len().max(end as usize), 0);
                content[offset as usize..][..data.len()].copy_from_slice(&data);
            }
        })
    }

    /// A change that a power cut interrupted may be present in part. A change that a full device
    /// refused is absent.
    fn changed(
        &mut self,
        id: u64,
        outcome: Result<()>,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        if !matches!(&outcome, Err(error) if error.is_no_space()) {
            self.files.get_mut(&id).unwrap().change(change);
        }
        outcome
    }

    fn step(&mut self, random: &mut Random) -> Result<()> {
        let name = self.name(random);
        let is_there = self.now().contains_key(&name);
        let storage = self.storages[name.0].clone();
        match random.below(20) {
            0 | 1 if !is_there => self.create(&name, random),
            // When the directory should fill up, few files are removed.
            0 | 1 if self.is_long && !random.one_in(4) => Ok(()),
            0 | 1 => {
                self.rename(|names| _ = names.remove(&name));
                storage.remove(&name.1)
            }
            2 if is_there => {
                let to = (name.0, self.name(random).1);
                self.rename(|names| {
                    let id = names.remove(&name).unwrap();
                    names.insert(to.clone(), id);
                });
                storage.rename(&name.1, &to.1)
            }
            2 => {
                assert!(storage.remove(&name.1).is_err() && storage.rename(&name.1, "x").is_err());
                Ok(())
            }
            3 => {
                if random.one_in(2) && !self.handles.is_empty() {
                    self.handles.swap_remove(0);
                }
                Ok(())
            }
            4 => {
                storage.sync_dir()?;
                self.committed();
                Ok(())
            }
            5 if is_there && random.one_in(3) => self.link(&name),
            _ => self.change(random),
        }
    }

    fn create(&mut self, name: &Name, random: &mut Random) -> Result<()> {
        let category = one_of(random, &Category::ALL);
        let capacity_bytes = random.one_in(4).then(|| random.below(self.most_bytes));
        let storage = &self.storages[name.0];
        let made = match capacity_bytes {
            Some(capacity_bytes) => storage.create_mapped(&name.1, category, capacity_bytes),
            None => storage.create(&name.1, category),
        };
        if matches!(&made, Err(error) if error.is_no_space()) {
            return made.map(drop);
        }
        let zeros = capacity_bytes.map(|bytes| vec![0; bytes as usize]);
        let id = self.add(name, std::iter::once(Vec::new()).chain(zeros).collect());
        let file = made?;
        if random.one_in(3) {
            self.handles.push(Handle { id, file, capacity_bytes });
        }
        Ok(())
    }

    /// Copies a file to the other place, where the name may already exist.
    fn link(&mut self, name: &Name) -> Result<()> {
        let to = (1 - name.0, name.1.clone());
        let target = self.storages[to.0].clone();
        let linked = self.storages[name.0].link_into(&name.1, Category::Table, &target);
        if self.now().contains_key(&to) {
            assert!(linked.is_err_and(|error| !is_power_cut(&error)), "{to:?} is there");
            return Ok(());
        }
        if matches!(&linked, Err(error) if error.is_no_space()) {
            return linked;
        }
        let content = self.files[&self.now()[name]].now().clone();
        let id = self.add(&to, vec![Vec::new(), content]);
        linked?;
        self.files.get_mut(&id).unwrap().sync();
        Ok(())
    }

    fn compare(&self) {
        for (name, id) in self.now() {
            assert!(contents(&self.storages[name.0], &name.1) == *self.files[id].now());
        }
        let count: usize = self.storages.iter().map(|place| place.list().unwrap().len()).sum();
        assert_eq!(count, self.now().len());
        for Handle { id, file, .. } in &self.handles {
            let mut found = vec![0; file.len().unwrap() as usize];
            file.read_ahead(0, u64::MAX);
            file.read_at(0, &mut found).unwrap();
            assert!(found == *self.files[id].now());
        }
    }

    /// Closes the device and opens it with other options. Nothing is lost, except writes that a
    /// full directory refused.
    fn reopen(&mut self, random: &mut Random) {
        self.count_collections();
        self.storages[0].with_nand(|nand| nand.set_faults(FaultPlan::default()));
        self.handles.clear();
        if !self.is_long {
            self.files.values_mut().for_each(Model::sync);
            self.committed();
        }
        self.options.ftl.gc_frontier = one_of(random, &[GcFrontier::Split, GcFrontier::Shared]);
        self.options.ftl.is_trim_on = random.one_in(2);
        self.storages.clear();
        let image = Box::new(self.image.clone());
        let storage = BlockStorage::open(image, None, self.options).expect("it opens");
        self.storages = places(storage, self.is_long);
        self.judge();
    }

    /// Opens the device after a power cut. Further cuts may happen during the opening.
    fn recover(&mut self, random: &mut Random) {
        self.count_collections();
        self.cuts += 1;
        self.handles.clear();
        self.storages.clear();
        let storage = loop {
            let soon = one_of(random, &[3, 10, 40, 1000, 1000]);
            let image = Failing::dies_after(&self.image, random.below(soon));
            let left = Arc::clone(&image.left);
            match BlockStorage::open(Box::new(image), None, self.options) {
                Ok(storage) => {
                    left.store(u64::MAX, Ordering::Relaxed);
                    break storage;
                }
                Err(Error::PowerCut) => self.cuts += 1,
                Err(error) => panic!("it opens: {error}"),
            }
        };
        self.storages = places(storage, self.is_long);
        self.judge();
    }

    fn count_collections(&mut self) {
        self.collections += self.storages[0].with_nand(|nand| nand.counters().total().erases);
    }

    /// Checks that an opened device is in one of the allowed states, and makes that state the
    /// current one.
    fn judge(&mut self) {
        let mut found: BTreeMap<Name, Vec<u8>> = BTreeMap::new();
        for (place, storage) in self.storages.iter().enumerate() {
            for file in storage.list().unwrap() {
                let content = contents(storage, &file.name);
                found.insert((place, file.name), content);
            }
        }
        let explains = |names: &&Names| {
            names.keys().eq(found.keys())
                && names.iter().all(|(name, id)| self.files[id].admits(&found[name]))
        };
        let names = self.names.iter().rev().find(explains);
        let names = names.expect("the device holds a state that never existed").clone();
        self.files.clear();
        for (name, id) in &names {
            self.files.insert(*id, Model { versions: vec![found[name].clone()] });
        }
        self.names = vec![names];
    }

    /// Removes all files, after which the whole device must be free.
    fn remove_all(&mut self) {
        self.storages[0].with_nand(|nand| nand.set_faults(FaultPlan::default()));
        self.handles.clear();
        self.now().keys().for_each(|(place, name)| self.storages[*place].remove(name).unwrap());
        self.storages[0].sync_dir().unwrap();
        assert_eq!(self.storages[0].free_bytes(), Some(self.free_bytes), "nothing is left");
    }
}

fn contents(storage: &BlockStorage, name: &str) -> Vec<u8> {
    let file = storage.open(name, Category::Table).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn plan(random: &mut Random, failures_left: &mut u64) -> FaultPlan {
    let mut plan = FaultPlan { seed: random.below(u64::MAX), ..FaultPlan::default() };
    if !random.one_in(5) {
        let soon = one_of(random, &[5, 40, 400]);
        plan.power_cut_at = Some(random.below(soon));
    }
    if *failures_left > 0 && random.one_in(4) {
        *failures_left -= 1;
        match random.one_in(2) {
            true => plan.failing_programs.insert(random.below(100)),
            false => plan.failing_erases.insert(random.below(20)),
        };
    }
    plan
}

/// Tests the device of a seed. Returns the numbers of cuts, refusals and erases.
fn run(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed ^ 0x626c_6f63);
    let mut run = Run::new(&mut random);
    for _ in 0..ROUNDS {
        let plan = plan(&mut random, &mut run.failures_left);
        run.storages[0].with_nand(|nand| nand.set_faults(plan));
        for _ in 0..150 {
            match run.step(&mut random) {
                Ok(()) => {}
                Err(error) if error.is_no_space() => run.refusals += 1,
                Err(error) if is_power_cut(&error) => {
                    run.recover(&mut random);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        run.compare();
        run.storages[0].layers();
        if random.one_in(4) {
            run.reopen(&mut random);
        }
    }
    run.remove_all();
    run.count_collections();
    [run.cuts, run.refusals, run.collections]
}

#[test]
fn random_files_under_random_faults_are_what_was_synced() {
    let mut sums = [0; 3];
    for seed in seeds(SEEDS) {
        let done = std::panic::catch_unwind(|| run(seed));
        let Ok(done) = done else { panic!("seed {seed}: see above") };
        sums.iter_mut().zip(done).for_each(|(sum, one)| *sum += one);
    }
    let [cuts, refusals, erases] = sums;
    println!("{cuts} power cuts, {refusals} refusals, {erases} erases");
    let is_enough = cuts > 100 && refusals > 20 && erases > 100;
    assert!(is_enough || seeds(SEEDS) != SEEDS, "{sums:?}");
}
