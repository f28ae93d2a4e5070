//! A tree on flash, without data: which pages flushes, compactions and collections program, for a
//! block SSD under files and for a device that keeps the tree itself (KVSSD). It shows what each
//! layer writes on devices that no test can fill. It does not model time, reads, power cuts or
//! deletions.
//!
//! Model. A record is its key, a u32, and all records have the same length. A page is a list of
//! keys. The policy is called in the same way as by the firmware, and each flush is followed by all
//! the jobs that it causes.
//!
//! 1. *Lsm.* Each table is a file whose extents are allocated next-fit, in requests of 64 KiB. A
//!    request programs each page that it touches (read-modify-write). Nothing is trimmed, so the
//!    blocks of removed files stay valid until they are overwritten (`drive.rs`).
//! 2. *Nlsm.* Each table has blocks of its own, and a metadata page.
//! 3. *Rlsm.* A compaction refers to existing pages, with clips, as long as a table has at most TH
//!    strata (`remap.rs`); each level fills blocks of its own. *Mixed* is rLSM(-): one block
//!    receives the pages of all levels.
//! 4. A commit programs a journal page. Above 92% of the device's limit nothing is remapped, and
//!    data that do not fit are refused ([`FlashError`]).
//!
//! Accuracy. Compared with the emulated devices (`runstone paper kvssd --only reckoned`: 1.5 GB,
//! uniform), compaction is within 4%, read-modify-write within 2% and collection within 3%.
//!
//! Left out: checkpoints, wear levelling, parts of compactions, the store's log and manifest.
//!
//! Cost. Memory: four bytes for each record that a page contains, and about 100 for each page; for
//! the block SSD 8 for each page. Most of the time is spent sorting the keys of rewritten tables.
//! 15 GB with 13.5 million writes take under a minute for each design.

mod drive;
mod firmware;
mod remap;
mod tree;

use thiserror::Error;

use drive::{BLOCK_BYTES, Drive};
use firmware::Firmware;
use remap::{Input, Known, Output};
use runstone_policy::options::PolicyOptions;
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::shape::plan::{Busy, Heat, Plan};
use runstone_random::mix64;
use runstone_rules::bands::Bands;
use tree::{Entry, Tree};

/// The fewest blocks of a device.
pub const MIN_BLOCKS: u32 = 24;
/// The most pages of a device.
pub const MOST_PAGES: u64 = 1 << 22;
/// Bytes of a record in a page besides key and value; the bytes of the page itself follow.
const RECORD_OVERHEAD_BYTES: u64 = 20;
const PAGE_OVERHEAD_BYTES: u64 = 16;

/// What keeps the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashDesign {
    /// Files on a block SSD.
    Lsm {
        /// Whether pages that collections move go to a block of their own.
        is_split: bool,
    },
    /// The device keeps the tree, and compactions rewrite tables.
    Nlsm,
    /// The device keeps the tree, and compactions remap pages. One block receives the pages of all
    /// levels.
    Mixed {
        /// TH: the most strata that a table may have.
        threshold: u8,
    },
    /// The device keeps the tree, and compactions remap pages. Each level has blocks of its own.
    Rlsm {
        /// TH: the most strata that a table may have.
        threshold: u8,
    },
}

/// The data to write, and the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSetup {
    /// What keeps the tree.
    pub design: FlashDesign,
    /// Bytes of a key and its value together.
    pub entry_bytes: u64,
    /// Blocks of the device.
    pub block_count: u32,
    /// Pages of a block. A table has the size of a block.
    pub block_pages: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Flash that is kept free of data, in percent.
    pub set_aside_percent: u32,
    /// Pages that a memtable fills.
    pub memtable_pages: u32,
    /// The options of the policy. Tables are cut by size.
    pub options: PolicyOptions,
}

/// Why a device accepts no more writes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlashError {
    /// The setup is invalid.
    #[error("{0}")]
    Setup(String),
    /// Tables take all the space that the device may use.
    #[error("the device is full: tables have {live_pages} pages of at most {limit_pages}")]
    Full {
        /// Pages in use.
        live_pages: u64,
        /// The most pages that leave room to work.
        limit_pages: u64,
    },
    /// Files take all the space that the block SSD shows.
    #[error("the block SSD is full: {files} files and no free block")]
    FullFiles {
        /// Files that exist.
        files: u64,
    },
    /// Nothing can be collected.
    #[error("the device is full: no block is free, and no collection gains one")]
    OutOfBlocks,
}

/// Bytes by layer. Each layer writes at least as many as the layer above it, except for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCosts {
    /// Writes of the user.
    pub writes: u64,
    /// Bytes of these writes.
    pub user_bytes: u64,
    /// Bytes that flushes and compactions wrote, metadata and journal included.
    pub tree_bytes: u64,
    /// Bytes of the pages that these writes programmed. They are more than the bytes above if
    /// requests touch only parts of pages.
    pub page_bytes: u64,
    /// Bytes of all pages programmed.
    pub flash_bytes: u64,
    /// Compactions.
    pub compactions: u64,
    /// Tables made by remapping.
    pub remapped_tables: u64,
    /// Tables made by rewriting, flushes included.
    pub rewritten_tables: u64,
    /// Blocks emptied by collections.
    pub collections: u64,
}

impl FlashCosts {
    /// The factors of compaction, read-modify-write and collection, in thousandths. Their product
    /// is the factor of all writes.
    pub fn layers_permille(&self) -> [u64; 3] {
        [
            permille(self.tree_bytes, self.user_bytes),
            permille(self.page_bytes, self.tree_bytes),
            permille(self.flash_bytes, self.page_bytes),
        ]
    }

    /// Bytes written to flash per byte that the user wrote, in thousandths.
    pub fn total_permille(&self) -> u64 {
        permille(self.flash_bytes, self.user_bytes)
    }
}

fn permille(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1000 / u128::from(whole.max(1))) as u64
}

enum Medium {
    Firmware(Firmware),
    Drive(Drive),
}

/// A tree on a device.
pub struct FlashSimulator<'a> {
    policy: &'a dyn CompactionPolicy,
    setup: FlashSetup,
    tree: Tree,
    medium: Medium,
    memtable: Vec<u32>,
    memtable_records: usize,
    flushes: u64,
    costs: FlashCosts,
}

impl<'a> FlashSimulator<'a> {
    /// An empty tree on an empty device.
    pub fn new(
        policy: &'a dyn CompactionPolicy,
        setup: FlashSetup,
    ) -> Result<FlashSimulator<'a>, FlashError> {
        let (per_page, bands) = setup.check(policy)?;
        let FlashSetup { design, block_count, block_pages, page_bytes, .. } = setup;
        let percent = setup.set_aside_percent;
        let medium = match design {
            FlashDesign::Lsm { is_split } => {
                Medium::Drive(Drive::new(block_count, block_pages, page_bytes, percent, is_split))
            }
            _ => Medium::Firmware(Firmware::new(design, block_count, block_pages, percent)),
        };
        Ok(FlashSimulator {
            policy,
            tree: Tree::new(bands, per_page, page_bytes),
            medium,
            memtable: Vec::new(),
            memtable_records: per_page * setup.memtable_pages as usize,
            flushes: 0,
            costs: FlashCosts::default(),
            setup,
        })
    }

    /// Writes a record, by its number. Its key is a hash of the number.
    pub fn put(&mut self, record: u64) -> Result<(), FlashError> {
        self.costs.writes += 1;
        self.costs.user_bytes += self.setup.entry_bytes;
        self.memtable.push((mix64(record) >> 32) as u32);
        if self.memtable.len() >= self.memtable_records {
            self.memtable.sort_unstable();
            self.memtable.dedup();
        }
        if self.memtable.len() >= self.memtable_records {
            self.flush()?;
            self.settle()?;
        }
        Ok(())
    }

    /// What was written since the device was new. Records in the memtable count only as writes of
    /// the user, not in the layers below.
    pub fn costs(&self) -> FlashCosts {
        let page_bytes = self.setup.page_bytes;
        match &self.medium {
            Medium::Firmware(device) => FlashCosts {
                tree_bytes: device.tree_pages * page_bytes,
                page_bytes: device.tree_pages * page_bytes,
                flash_bytes: (device.tree_pages + device.moved_pages) * page_bytes,
                collections: device.collections,
                ..self.costs
            },
            Medium::Drive(drive) => FlashCosts {
                tree_bytes: drive.host_blocks * BLOCK_BYTES,
                page_bytes: drive.host_pages * page_bytes,
                flash_bytes: (drive.host_pages + drive.moved_pages) * page_bytes,
                collections: drive.collections,
                ..self.costs
            },
        }
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        let keys = std::mem::take(&mut self.memtable);
        let pages = self.setup.memtable_pages;
        if let Medium::Firmware(device) = &mut self.medium {
            device.check_room(pages, self.tree.band_count())?;
            let blocks = device.blocks_for(pages.into(), 1);
            device.make_room(blocks, &self.tree)?;
        }
        self.flushes += 1;
        self.write_tables(0, &keys, self.flushes)?;
        self.commit();
        Ok(())
    }

    /// Does all jobs that the policy wants now.
    fn settle(&mut self) -> Result<(), FlashError> {
        let (busy, heat) = (Busy::default(), Heat::default());
        let options = self.setup.options.clone();
        while let Some(plan) = self.policy.pick(&self.tree.shape(), &busy, &heat, &options) {
            self.run_plan(&plan)?;
        }
        Ok(())
    }

    fn run_plan(&mut self, plan: &Plan) -> Result<(), FlashError> {
        self.tree.remember(plan);
        for compaction in &plan.compactions {
            let ids = compaction.input_ids().map(|id| id as u32);
            let mut upper: Vec<u32> = ids.filter(|id| self.tree.node(*id).is_some()).collect();
            let level = self.target(compaction.output_level, &upper);
            upper.retain(|id| self.tree.node(*id).is_some_and(|node| node.level != level));
            self.sink(upper, level)?;
        }
        for step in &plan.moves {
            let id = step.table as u32;
            let Some(node) = self.tree.node(id) else { continue };
            let meets = |level: u32| {
                level > 0 && !self.tree.overlapping(level as usize, node.bounds()).is_empty()
            };
            let level = self.tree.bands.rest(step.to_level, node.level as u32, meets);
            if level as usize == node.level {
                continue;
            }
            match meets(level) {
                true => self.sink(vec![id], level as usize)?,
                false => self.tree.relabel(id, level as usize),
            }
        }
        for (from, to) in &plan.relabel {
            let all = (0, u32::MAX);
            for id in self.tree.overlapping(*from as usize, all) {
                self.tree.relabel(id, *to as usize);
            }
        }
        self.commit();
        Ok(())
    }

    /// The level of the tree that receives a compaction into a level of the policy.
    fn target(&self, band: u32, upper: &[u32]) -> usize {
        let range = self.tree.hull(upper);
        let meets = |level: u32| !self.tree.overlapping(level as usize, range).is_empty();
        let levels = upper.iter().filter_map(|id| Some(self.tree.node(*id)?.level as u32));
        self.tree.bands.target(band, levels, meets) as usize
    }

    /// Compacts tables with the tables of a level that they overlap.
    fn sink(&mut self, mut upper: Vec<u32>, level: usize) -> Result<(), FlashError> {
        self.tree.sort_by_age(&mut upper);
        let lower = self.tree.overlapping(level, self.tree.hull(&upper));
        let outputs = self.plan(&upper, &lower)?;
        let max_seq = self.tree.max_seq(upper.iter().chain(&lower));
        self.costs.compactions += 1;
        for output in outputs {
            match output {
                Output::Remap { entries, strata } => {
                    self.costs.remapped_tables += 1;
                    let id = self.tree.add(level, entries, strata.into(), max_seq);
                    if let Medium::Firmware(device) = &mut self.medium {
                        device.add_table(id, self.tree.band(level), std::iter::empty())?;
                    }
                }
                Output::Rewrite { entries, .. } => {
                    let keys = self.tree.pages.merge(&entries);
                    self.write_tables(level, &keys, max_seq)?;
                }
            }
        }
        for id in upper.into_iter().chain(lower) {
            let garbage = self.tree.remove(id);
            match &mut self.medium {
                Medium::Firmware(device) => device.remove_table(id, &garbage),
                Medium::Drive(drive) => drive.remove_file(id),
            }
        }
        self.commit();
        Ok(())
    }

    /// Plans again until the plan has the free blocks that it needs, because a collection moves
    /// pages of tables to other blocks.
    fn plan(&mut self, upper: &[u32], lower: &[u32]) -> Result<Vec<Output>, FlashError> {
        loop {
            let tree = &self.tree;
            let nodes = |ids: &[u32]| ids.iter().filter_map(|id| tree.node(*id)).collect();
            let (upper, lower): (Vec<_>, Vec<_>) = (nodes(upper), nodes(lower));
            let input = Input { upper, lower };
            let table_pages = self.setup.block_pages;
            let references = |page: u32| tree.pages.tables(page).len();
            let Medium::Firmware(device) = &mut self.medium else {
                return Ok(remap::rewrite(&input));
            };
            let threshold = match self.setup.design {
                _ if device.is_short(tree.band_count()) => 0,
                FlashDesign::Mixed { threshold } | FlashDesign::Rlsm { threshold } => threshold,
                FlashDesign::Lsm { .. } | FlashDesign::Nlsm => 0,
            };
            let outputs = match threshold {
                0 => remap::rewrite(&input),
                _ => remap::plan_compaction(
                    &input,
                    &Known {
                        threshold,
                        table_pages,
                        references: &references,
                        block: &|page| device.block(page),
                        tables: &|block| device.tables(block, &tree.pages),
                    },
                ),
            };
            let rewritten = outputs.iter().filter_map(|output| match output {
                Output::Rewrite { entries, .. } => Some(entries.len() as u64),
                Output::Remap { .. } => None,
            });
            let pages: u64 = rewritten.clone().sum();
            let tables = rewritten.map(|pages| 1 + pages / u64::from(table_pages.max(2) - 1)).sum();
            if !device.make_room(device.blocks_for(pages, tables), tree)? {
                return Ok(outputs);
            }
        }
    }

    /// Writes keys in order into new pages, and adds the pages to tables.
    fn write_tables(&mut self, level: usize, keys: &[u32], max_seq: u64) -> Result<(), FlashError> {
        let record_bytes = self.setup.record_bytes();
        let entries = self.tree.pages.pack(keys);
        let per_table = self.setup.block_pages as usize;
        let keys_per_table = per_table * self.tree.pages.per_page;
        for (entries, keys) in entries.chunks(per_table).zip(keys.chunks(keys_per_table)) {
            self.costs.rewritten_tables += 1;
            let id = self.tree.add(level, entries.to_vec(), 1, max_seq);
            match &mut self.medium {
                Medium::Firmware(device) => {
                    device.add_table(
                        id,
                        self.tree.band(level),
                        entries.iter().map(|entry: &Entry| entry.page),
                    )?;
                }
                Medium::Drive(drive) => drive.add_file(id, keys.len() as u64 * record_bytes)?,
            }
        }
        Ok(())
    }

    fn commit(&mut self) {
        if let Medium::Firmware(device) = &mut self.medium {
            device.commit();
        }
    }
}

impl FlashSetup {
    /// Bytes of a record in its page.
    fn record_bytes(&self) -> u64 {
        self.entry_bytes.saturating_add(RECORD_OVERHEAD_BYTES)
    }

    /// The records of a page and the layout of the tree, if the setup is valid.
    fn check(&self, policy: &dyn CompactionPolicy) -> Result<(usize, Bands), FlashError> {
        let refuse = |what: String| Err(FlashError::Setup(what));
        let bands =
            Bands::of(policy.name(), self.options.size_ratio()).map_err(FlashError::Setup)?;
        if let Err(error) = policy.check(&self.options) {
            return refuse(error.to_string());
        }
        if self.block_count < MIN_BLOCKS {
            let count = self.block_count;
            return refuse(format!("a device of {count} blocks; the least is {MIN_BLOCKS}"));
        }
        if u64::from(self.block_count) * u64::from(self.block_pages) > MOST_PAGES {
            return refuse(format!("more than {MOST_PAGES} pages would take too much memory"));
        }
        if self.set_aside_percent > 90 {
            return refuse(format!("{}% set aside; at most 90 are", self.set_aside_percent));
        }
        let is_odd = !self.page_bytes.is_multiple_of(BLOCK_BYTES) || self.page_bytes == 0;
        if is_odd || self.block_pages < 4 || self.memtable_pages == 0 {
            return refuse(format!(
                "pages are multiples of {BLOCK_BYTES} bytes, blocks have 4 or more, a memtable one"
            ));
        }
        match self.page_bytes.saturating_sub(PAGE_OVERHEAD_BYTES) / self.record_bytes().max(1) {
            0 => refuse(format!("a record of {} bytes fits no page", self.record_bytes())),
            per_page if per_page > u64::from(u16::MAX) => {
                refuse(format!("more than {} records in a page", u16::MAX))
            }
            per_page => Ok((per_page as usize, bands)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_policy::options::Numbers;
    use runstone_policy::registry;

    const PAGE_BYTES: u64 = 32 << 10;
    const RECORDS: u64 = 40_000;

    /// A device of 100 MB with blocks of 1 MiB; tables and memtable are a block.
    fn setup(design: FlashDesign, block_count: u32) -> FlashSetup {
        FlashSetup {
            design,
            entry_bytes: 1024,
            block_count,
            block_pages: 32,
            page_bytes: PAGE_BYTES,
            set_aside_percent: 5,
            memtable_pages: 32,
            options: Numbers {
                l0_trigger: 4,
                base_bytes: 80 * PAGE_BYTES,
                table_bytes: 32 * PAGE_BYTES,
                ..Numbers::default()
            }
            .into_options(),
        }
    }

    fn on(setup: FlashSetup) -> Result<FlashSimulator<'static>, FlashError> {
        FlashSimulator::new(registry::find("fragmented-leveling").unwrap(), setup)
    }

    fn run(design: FlashDesign) -> FlashSimulator<'static> {
        run_on(on(setup(design, 96)).unwrap())
    }

    fn run_tiered(design: FlashDesign) -> FlashSimulator<'static> {
        let tiering = registry::find("tiering").unwrap();
        run_on(FlashSimulator::new(tiering, setup(design, 280)).unwrap())
    }

    /// Writes all records once, then makes as many updates.
    fn run_on(mut flash: FlashSimulator<'static>) -> FlashSimulator<'static> {
        for number in 0..2 * RECORDS {
            let update = mix64(number) % RECORDS;
            flash.put(if number < RECORDS { number } else { update }).unwrap();
        }
        flash
    }

    #[test]
    fn layers_differ_as_the_paper_says() {
        let layers = |design| {
            let costs = run(design).costs();
            assert_eq!((costs.writes, costs.user_bytes), (2 * RECORDS, 2048 * RECORDS));
            costs.layers_permille()
        };
        let nlsm = layers(FlashDesign::Nlsm);
        let [mixed, rlsm] = [
            layers(FlashDesign::Mixed { threshold: 2 }),
            layers(FlashDesign::Rlsm { threshold: 2 }),
        ];
        let [split, shared] = [true, false].map(|is_split| layers(FlashDesign::Lsm { is_split }));
        assert_eq!(nlsm[1..], [1000, 1000], "tables end blocks, and die whole");
        assert!(split[0].abs_diff(nlsm[0]) * 100 < nlsm[0] * 8, "{split:?} {nlsm:?}");
        assert!((1400..1550).contains(&split[1]), "{split:?}");
        assert!(split[2] > 2000 && shared[2] > split[2], "{split:?} {shared:?}");
        assert!(rlsm[0] * 10 < nlsm[0] * 9, "{rlsm:?} {nlsm:?}");
        // At this size, hardly anything is collected with either design.
        assert!(rlsm[2] < 1200 && rlsm[2] * 100 <= mixed[2] * 101, "{rlsm:?} {mixed:?}");
    }

    /// No record is lost, and the live pages are those to which tables refer.
    #[test]
    fn remapped_tables_keep_every_key() {
        let leveled = [1, 2, 4].map(|threshold| run(FlashDesign::Rlsm { threshold }));
        let tiered = run_tiered(FlashDesign::Rlsm { threshold: 4 });
        for flash in leveled.into_iter().chain([tiered]) {
            let (costs, of) = (flash.costs(), (flash.policy.name(), flash.setup.design));
            assert!(costs.remapped_tables > 0 && costs.compactions > 0, "{of:?}: {costs:?}");
            let mut keys = flash.tree.keys();
            keys.extend(&flash.memtable);
            keys.sort_unstable();
            keys.dedup();
            let mut written: Vec<u32> =
                (0..RECORDS).map(|record| (mix64(record) >> 32) as u32).collect();
            written.sort_unstable();
            written.dedup();
            assert_eq!(keys, written, "{of:?}");
            let Medium::Firmware(device) = &flash.medium else { panic!("a device") };
            assert_eq!(device.live_pages(), flash.tree.live_pages(), "{of:?}");
        }
    }

    #[test]
    fn tiering_keeps_runs_and_writes_less() {
        let of_leveling = run(FlashDesign::Nlsm).costs().total_permille();
        let tiered = run_tiered(FlashDesign::Nlsm);
        let runs = tiered.tree.shape().levels.iter().map(|level| level.runs().len()).max();
        assert!(runs.is_some_and(|runs| runs > 1), "{runs:?}");
        let of_tiering = tiered.costs().total_permille();
        assert!(of_tiering * 2 < of_leveling, "{of_tiering} {of_leveling}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for design in [
            FlashDesign::Lsm { is_split: true },
            FlashDesign::Nlsm,
            FlashDesign::Mixed { threshold: 2 },
            FlashDesign::Rlsm { threshold: 2 },
        ] {
            let mut flash = on(setup(design, 40)).unwrap();
            let full = (0..RECORDS).find_map(|number| flash.put(number).err());
            assert!(full.as_ref().is_some_and(|one| one.to_string().contains("full")), "{full:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = setup(FlashDesign::Nlsm, 96);
        let refused = |setup: FlashSetup| match on(setup) {
            Err(FlashError::Setup(what)) => what,
            other => panic!("{:?}", other.err()),
        };
        let cases = [
            (FlashSetup { block_count: 23, ..good.clone() }, "a device of 23 blocks"),
            (FlashSetup { block_count: u32::MAX, ..good.clone() }, "too much memory"),
            (FlashSetup { set_aside_percent: 91, ..good.clone() }, "91% set aside"),
            (FlashSetup { page_bytes: 0, ..good.clone() }, "multiples of 4096"),
            (FlashSetup { page_bytes: 5000, ..good.clone() }, "multiples of 4096"),
            (FlashSetup { block_pages: 3, ..good.clone() }, "blocks have 4 or more"),
            (FlashSetup { memtable_pages: 0, ..good.clone() }, "a memtable one"),
            (FlashSetup { entry_bytes: 32 << 10, ..good.clone() }, "fits no page"),
            (FlashSetup { entry_bytes: u64::MAX, ..good.clone() }, "fits no page"),
        ];
        for (setup, word) in cases {
            let what = refused(setup);
            assert!(what.contains(word), "{word}: {what}");
        }
        let universal = registry::find("universal").unwrap();
        let error = FlashSimulator::new(universal, good).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("universal needs levels")));
    }
}
