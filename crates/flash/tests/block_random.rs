//! Files of a block SSD under faults drawn at random, against a model: geometry, over-provisioning,
//! trims; sparse writes, truncations, holes, renames over files, removals with handles open; a full
//! device; power cuts in a row, during opening too; programs and erases that fail.
//!
//! More devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo test
//! --release -p runstone-flash --test block_random`.

#[path = "support/failing.rs"]
mod failing;
#[path = "support/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use failing::Failing;
use random::{Random, one_in, one_of, seeds};
use runstone_flash::Error;
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::{FtlOptions, GcFrontier};
use runstone_flash::nand::{FaultPlan, Geometry, MemoryImage};
use runstone_storage::{Category, Storage, StorageFile};

const SEEDS: Range<u64> = 0..24;
const ROUNDS: u64 = 14;
const NAMES: u64 = 7;

/// A file: what it held at its last sync, and after each change since. The last is what it holds.
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

    /// Whether a power cut may have left this: a length that was, or a part of a write that was
    /// committed on its way, at the end of a block; and bytes that were there, or zeros where the
    /// file was shorter.
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

type Names = BTreeMap<String, u64>;

struct Run {
    image: MemoryImage,
    options: BlockOptions,
    storage: BlockStorage,
    files: BTreeMap<u64, Model>,
    /// The names at the last sync, and after each change since.
    names: Vec<Names>,
    /// Open handles; their files may have no name any more.
    handles: Vec<(u64, Arc<dyn StorageFile>)>,
    next_id: u64,
    /// Most bytes of a large write.
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
        channel_count: 1,
        die_count: 1,
    };
    // Some 200 to 600 host blocks.
    let block_blocks = geometry.page_bytes / 4096 * geometry.block_pages;
    let block_count = (200 + random.below(400) as u32) / block_blocks + 9;
    let ftl = FtlOptions {
        over_provision_percent: 5 + random.below(40) as u32,
        gc_frontier: one_of(random, &[GcFrontier::Split, GcFrontier::Shared]),
        is_trim_on: one_in(random, 2),
    };
    (Geometry { block_count, ..geometry }, BlockOptions { ftl, ..BlockOptions::default() })
}

fn is_power_cut(error: &runstone_storage::Error) -> bool {
    error.to_string().contains("power") || error.to_string().contains("failed; open")
}

impl Run {
    fn new(random: &mut Random) -> Run {
        let (geometry, options) = case(random);
        let image = MemoryImage::new();
        let storage = BlockStorage::create(Box::new(image.clone()), geometry, options).unwrap();
        Run {
            image,
            options,
            storage,
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

    /// A handle that is open, or one of a name.
    fn file(&mut self, random: &mut Random) -> Option<(u64, Arc<dyn StorageFile>)> {
        if !self.handles.is_empty() && one_in(random, 4) {
            return Some(one_of(random, &self.handles));
        }
        let (name, id) = self.now().iter().nth(random.below(NAMES) as usize)?;
        let (name, id) = (name.clone(), *id);
        Some((id, self.storage.open(&name, Category::Table).unwrap()))
    }

    /// Some change of the content of a file.
    fn change(&mut self, random: &mut Random) -> runstone_storage::Result<()> {
        let Some((id, file)) = self.file(random) else { return Ok(()) };
        let is_named = self.now().values().any(|other| *other == id);
        let model = self.files.get_mut(&id).unwrap();
        let len = model.now().len() as u64;
        match random.below(9) {
            0..5 => {
                let far = one_of(random, &[1, 5000, 60_000]);
                let offset = if one_in(random, 3) { len } else { random.below(len + far) };
                let most = one_of(random, &[300, 9000, self.most_bytes]);
                let data = vec![1 + random.below(255) as u8; 1 + random.below(most) as usize];
                let change = |content: &mut Vec<u8>| {
                    content.resize(content.len().max(offset as usize + data.len()), 0);
                    content[offset as usize..][..data.len()].copy_from_slice(&data);
                };
                // A write that met a power cut may be there in part.
                let written = file.write_at(offset, &data);
                if !matches!(&written, Err(error) if error.is_no_space()) {
                    model.change(change);
                }
                written
            }
            5 | 6 => {
                let new_len = random.below(len + 6000);
                model.change(|content| content.resize(new_len as usize, 0));
                file.set_len(new_len)
            }
            7 => {
                let (start, size) = (random.below(len + 1), random.below(30_000));
                let end = (start + size).min(len) as usize;
                model.change(|content| content[start as usize..end].fill(0));
                file.punch(start, size)
            }
            _ => {
                file.sync()?;
                // Without a name there is nothing to find it by; its name may yet come back.
                if is_named {
                    model.sync();
                }
                Ok(())
            }
        }
    }

    fn step(&mut self, random: &mut Random) -> runstone_storage::Result<()> {
        let name = format!("{}", random.below(NAMES));
        let is_there = self.now().contains_key(&name);
        match random.below(20) {
            0 | 1 if !is_there => {
                let id = self.next_id;
                self.next_id += 1;
                self.files.insert(id, Model { versions: vec![Vec::new()] });
                self.rename(|names| _ = names.insert(name.clone(), id));
                let file = self.storage.create(&name, Category::Table)?;
                if one_in(random, 3) {
                    self.handles.push((id, file));
                }
                Ok(())
            }
            0 | 1 => {
                self.rename(|names| _ = names.remove(&name));
                self.storage.remove(&name)
            }
            2 if is_there => {
                let to = format!("{}", random.below(NAMES));
                self.rename(|names| {
                    let id = names.remove(&name).unwrap();
                    names.insert(to.clone(), id);
                });
                self.storage.rename(&name, &to)
            }
            3 => {
                if one_in(random, 2) && !self.handles.is_empty() {
                    self.handles.swap_remove(0);
                }
                Ok(())
            }
            4 => {
                self.storage.sync_dir()?;
                self.committed();
                Ok(())
            }
            _ => self.change(random),
        }
    }

    fn compare(&self) {
        for (name, id) in self.now() {
            assert!(contents(&self.storage, name) == *self.files[id].now(), "{name}");
        }
        assert_eq!(self.storage.list().unwrap().len(), self.now().len());
        for (id, file) in &self.handles {
            let mut found = vec![0; file.len().unwrap() as usize];
            file.read_at(0, &mut found).unwrap();
            assert!(found == *self.files[id].now());
        }
    }

    /// Opens the device after a power cut, which may come again meanwhile.
    fn recover(&mut self, random: &mut Random) {
        self.cuts += 1;
        self.handles.clear();
        self.storage = loop {
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
        let found: BTreeMap<String, Vec<u8>> = self
            .storage
            .list()
            .unwrap()
            .into_iter()
            .map(|file| (file.name.clone(), contents(&self.storage, &file.name)))
            .collect();
        let explains = |names: &&Names| {
            names.keys().eq(found.keys())
                && names.iter().all(|(name, id)| self.files[id].admits(&found[name]))
        };
        let names = self.names.iter().rev().find(explains);
        let names = names.expect("the device holds what never was").clone();
        let ids: BTreeSet<u64> = names.values().copied().collect();
        self.files.retain(|id, _| ids.contains(id));
        for (name, id) in &names {
            self.files.insert(*id, Model { versions: vec![found[name].clone()] });
        }
        self.names = vec![names];
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
    if !one_in(random, 5) {
        let soon = one_of(random, &[5, 40, 400]);
        plan.power_cut_at = Some(random.below(soon));
    }
    if *failures_left > 0 && one_in(random, 4) {
        *failures_left -= 1;
        match one_in(random, 2) {
            true => plan.failing_programs.insert(random.below(100)),
            false => plan.failing_erases.insert(random.below(20)),
        };
    }
    plan
}

/// Cuts, refusals and erases of a seed's device.
fn run(seed: u64) -> [u64; 3] {
    let mut random = Random(seed ^ 0x626c_6f63);
    let mut run = Run::new(&mut random);
    let mut failures_left = 2;
    for _ in 0..ROUNDS {
        let plan = plan(&mut random, &mut failures_left);
        run.storage.with_nand(|nand| nand.set_faults(plan));
        for _ in 0..150 {
            match run.step(&mut random) {
                Ok(()) => {}
                Err(error) if error.is_no_space() => run.refusals += 1,
                Err(error) if is_power_cut(&error) => {
                    run.collections += run.storage.with_nand(|nand| nand.counters().total().erases);
                    run.recover(&mut random);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        run.compare();
    }
    run.storage.layers();
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
