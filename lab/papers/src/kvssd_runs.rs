//! The workload of the KVSSD paper over the device and over the engine on a block SSD, and what
//! each layer wrote. The paper's rows are elsewhere.

use std::fs;
use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{KeyspaceOptions, Store};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::{FtlOptions, GcFrontier};
use runstone_flash::kvssd::{FilterAllocation, KvSsd, KvSsdOptions, Partitioner, Placement};
use runstone_flash::nand::{FileImage, Geometry, Image, MemoryImage, PageType, Timing};
use runstone_kv::{Error, Result};
use runstone_simulator::flash::{FlashDesign, FlashSetup};
use runstone_storage::process;

use runstone_workloads::generators::Rng;
use runstone_workloads::generators::keys::ycsb_key;
use runstone_workloads::generators::zipfian::{Latest, ScrambledZipfian};

use super::context::Context;
use super::engine::{do_jobs, plain_options, stepped_options};
use super::log_apart::LogApart;
use super::sides::{FILTERS, Side, TRIGGER};

/// Over-provisioning of the paper.
pub(super) const OVER_PROVISION_PERCENT: u32 = 5;
const KEY_BYTES: u64 = 24;
/// Bytes of a record in a page besides key and value: its slot.
const RECORD_OVERHEAD_BYTES: u64 = 20;

/// Largest device whose image is kept in memory, where pages are shared instead of copied.
const MEMORY_DEVICE_BYTES: u64 = 4 << 30;

/// Blocks of the device at T0: at the end 85% of its pages are valid under rLSM. With fewer blocks,
/// the engine's files would not fit with 15% set aside; in the paper they do.
const BLOCKS: f64 = 372.0;
/// Blocks of a device with more room, for runs that are not in the paper.
const ROOMY_BLOCKS: f64 = 384.0;

/// Which records are updated and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draw {
    Uniform,
    Zipfian,
    Latest,
}

impl Draw {
    pub(super) const ALL: [Draw; 3] = [Draw::Uniform, Draw::Zipfian, Draw::Latest];

    pub(super) fn name(self) -> &'static str {
        match self {
            Draw::Uniform => "uniform",
            Draw::Zipfian => "zipfian",
            Draw::Latest => "latest",
        }
    }
}

/// How large the workload is, and which records it touches.
pub(super) struct Load {
    pub(super) loads: u64,
    pub(super) operations: u64,
    pub(super) block_count: u32,
    value_bytes: usize,
    page_bytes: u32,
    /// Pages of a block and of a table.
    table_pages: u32,
    memtable_pages: u32,
    level1_pages: u32,
    pub(super) draw: Draw,
}

/// What a run wrote and read.
#[derive(Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) compaction: f64,
    pub(super) rmw: f64,
    pub(super) gc: f64,
    /// Operations per second of simulated time.
    pub(super) operations_per_s: f64,
    /// Operations that the emulator itself makes per second of processor time.
    pub(super) emulated_per_cpu_s: f64,
    /// Pages per get, including metadata. The engine has its indexes in memory. So its reads of
    /// indexes are counted as one page for each table that a get looks at, the least that an index
    /// takes.
    pub(super) pages_per_get: f64,
    /// Pages of metadata among the pages per get.
    pub(super) meta_pages_per_get: f64,
    /// Valid pages at the end, divided by all pages of the device.
    pub(super) fullness: f64,
    pub(super) ram_bytes_per_16_gb: f64,
    /// How often the device was full and made room by compacting.
    pub(super) squeezes: u64,
}

impl Outcome {
    /// Flash bytes per user byte.
    pub(super) fn total(&self) -> f64 {
        self.compaction * self.rmw * self.gc
    }
}

impl Load {
    /// A load on a device as full as the paper's.
    pub(super) fn of(context: &Context<'_>, draw: Draw) -> Load {
        Load { draw, ..Load::sized(context, BLOCKS) }
    }

    /// A load on a device with more room; any record is updated and read.
    pub(super) fn roomy(context: &Context<'_>) -> Load {
        Load::sized(context, ROOMY_BLOCKS)
    }

    fn sized(context: &Context<'_>, blocks: f64) -> Load {
        if context.is_t1 {
            return Load::t1();
        }
        let blocks = blocks * context.scale + Load::work_blocks(context);
        Load {
            loads: context.scaled(1_000_000),
            operations: context.scaled(500_000),
            block_count: (blocks.round() as u32).max(40),
            ..Load::of_kib()
        }
    }

    /// Blocks for level 0, open blocks and a compaction. A smaller workload has a smaller device,
    /// but its tables and memtable stay as large as a block, so these need as much room as before.
    fn work_blocks(context: &Context<'_>) -> f64 {
        24.0 * (1.0 - context.scale).max(0.0)
    }

    /// The paper's records, pages and tables, with counts of zero.
    fn of_kib() -> Load {
        Load {
            loads: 0,
            operations: 0,
            block_count: 0,
            value_bytes: 1000,
            page_bytes: Geometry::default().page_bytes,
            table_pages: Geometry::default().block_pages,
            memtable_pages: 128,
            level1_pages: 320,
            draw: Draw::Uniform,
        }
    }

    /// T1: the paper's operations, with an eighth of the bytes of everything: 3,840 blocks of 512
    /// KiB, records of 130 bytes in their page, level 1 of 1.25 MiB. So tables contain as many
    /// records as at T0. Pages are a quarter, not an eighth: a metadata page must name all pages of
    /// a table, keys included, and keys stay at 24 bytes.
    fn t1() -> Load {
        Load {
            loads: 10_000_000,
            operations: 5_000_000,
            block_count: 3840,
            value_bytes: 86,
            page_bytes: 8 << 10,
            table_pages: 64,
            memtable_pages: 64,
            level1_pages: 160,
            draw: Draw::Uniform,
        }
    }

    /// The paper's device of 15 GB and its operations, for the model without data.
    pub(super) fn paper(context: &Context<'_>) -> Load {
        let blocks = 3840.0 * context.scale + Load::work_blocks(context);
        Load {
            loads: context.scaled(10_000_000),
            operations: context.scaled(5_000_000),
            block_count: (blocks.round() as u32).max(40),
            ..Load::of_kib()
        }
    }

    /// The setup of the model of flash, for this load and this device.
    pub(super) fn flash_setup(
        &self,
        policy: &str,
        design: FlashDesign,
        set_aside_percent: u32,
    ) -> FlashSetup {
        FlashSetup {
            design,
            entry_bytes: self.user_bytes(),
            block_count: self.block_count,
            block_pages: self.table_pages,
            page_bytes: u64::from(self.page_bytes),
            set_aside_percent,
            memtable_pages: self.memtable_pages,
            options: unstable::numbers(&self.keyspace(policy)).clone().into_options(),
        }
    }

    /// Bytes of a key and its value.
    pub(super) fn user_bytes(&self) -> u64 {
        KEY_BYTES + self.value_bytes as u64
    }

    /// Bytes of a record in its page.
    pub(super) fn record_bytes(&self) -> u64 {
        RECORD_OVERHEAD_BYTES + self.user_bytes()
    }

    /// The same load with a pointer in place of each value.
    pub(super) fn with_pointers(&self) -> Load {
        Load { value_bytes: 16, ..*self }
    }

    fn records_per_page(&self) -> u64 {
        const PAGE_HEADER_BYTES: u64 = 16;
        (u64::from(self.page_bytes) - PAGE_HEADER_BYTES) / self.record_bytes()
    }

    /// The same load on a device with this many times the blocks.
    pub(super) fn times(&self, volume: f64) -> Load {
        let block_count = (f64::from(self.block_count) * volume).round() as u32;
        Load { block_count, ..*self }
    }

    /// The load with half of the records, so that policies that keep several versions of a key fit
    /// too.
    pub(super) fn half(context: &Context<'_>) -> Load {
        Load::roomy(context).halved()
    }

    /// The load with half of the records and operations.
    pub(super) fn halved(self) -> Load {
        Load { loads: self.loads / 2, operations: self.operations / 2, ..self }
    }

    /// The options of the device. As in the paper, tables are cut by size.
    pub(super) fn device_options(&self) -> KvSsdOptions {
        KvSsdOptions {
            cuts: Partitioner::Size,
            memtable_pages: self.memtable_pages,
            level1_pages: self.level1_pages,
            ..KvSsdOptions::default()
        }
    }

    /// The engine's options, with the device's sizes and without filters.
    pub(super) fn keyspace(&self, policy: &str) -> KeyspaceOptions {
        let mut keyspace = plain_options(policy);
        let shape = unstable::numbers_mut(&mut keyspace);
        shape.table_bytes = self.bytes(self.table_pages);
        shape.base_bytes = self.bytes(self.level1_pages);
        shape.l0_trigger = 4;
        keyspace
    }

    /// The engine on a block SSD as a side of a comparison. Its memtables are flushed at the
    /// device's count of records.
    pub(super) fn engine_side(&self, name: &str, set_aside_percent: u32) -> Side {
        let keyspace = self.keyspace("fragmented-leveling");
        let numbers = unstable::numbers(&keyspace);
        let pages = |bytes: u64| bytes / u64::from(self.page_bytes);
        let design = format!("{} on a block SSD", keyspace.policy);
        Side::new(name, design)
            .with("memtable pages", self.memtable_pages)
            .with("level-1 pages", pages(numbers.base_bytes))
            .with("table pages", pages(numbers.table_bytes))
            .with("T", numbers.size_ratio)
            .with(TRIGGER, numbers.l0_trigger)
            .with("cuts", numbers.partitioner.rule().name())
            .with(FILTERS, keyspace.filter_bits_per_key.parts() / 10)
            .with("blocks", self.block_count)
            .with("percent set aside", set_aside_percent)
    }

    /// A device as a side of a comparison.
    pub(super) fn device_side(&self, options: &KvSsdOptions) -> Side {
        let design = format!("{}, TH {}", options.policy, options.threshold);
        let filters = match options.filters {
            FilterAllocation::None => "0",
            _ => "those of metadata pages",
        };
        Side::new(options.name(), design)
            .with("memtable pages", options.memtable_pages)
            .with("level-1 pages", options.level1_pages)
            .with("table pages", self.table_pages)
            .with("T", options.size_ratio)
            .with(TRIGGER, options.l0_trigger)
            .with("cuts", options.cuts.rule().name())
            .with(FILTERS, filters)
            .with("blocks", self.block_count)
            .with("percent set aside", options.over_provision_percent)
    }

    /// Bytes of `pages` pages.
    fn bytes(&self, pages: u32) -> u64 {
        u64::from(pages) * u64::from(self.page_bytes)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            block_count: self.block_count,
            page_bytes: self.page_bytes,
            block_pages: self.table_pages,
            ..Geometry::default()
        }
    }

    /// Key of a record.
    pub(super) fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        ycsb_key(number, &mut key);
        key
    }

    /// A value of the load's size.
    pub(super) fn value(&self) -> Vec<u8> {
        vec![0; self.value_bytes]
    }

    /// A device with all loaded records, none of them updated.
    pub(super) fn filled_device(&self, options: &KvSsdOptions) -> Result<KvSsd> {
        let (image, side) = (Box::new(MemoryImage::new()), Box::new(MemoryImage::new()));
        let made = KvSsd::create(image, side, self.geometry(), Timing::PAPER, options.clone());
        let mut device = made.map_err(failed)?;
        let value = self.value();
        for number in 0..self.loads {
            device.put(&self.key(number), &value).map_err(failed)?;
        }
        Ok(device)
    }

    /// Calls `put` or `get` for each operation. Returns how many there were.
    pub(super) fn run(
        &self,
        mut step: impl FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<u64> {
        let (mut value, mut key) = (vec![0; self.value_bytes], Vec::new());
        self.run_numbers(|number, written| {
            ycsb_key(number, &mut key);
            let Some(operation) = written else { return step(&key, None) };
            value[..8].copy_from_slice(&operation.to_le_bytes());
            step(&key, Some(&value))
        })
    }

    /// Does the same with the records' numbers; a write also has the number of its operation.
    pub(super) fn run_numbers(
        &self,
        mut step: impl FnMut(u64, Option<u64>) -> Result<()>,
    ) -> Result<u64> {
        let mut rng = Rng::new(1);
        let mut latest = Latest::new(self.loads);
        // As in YCSB, a popular record is drawn from all records that there will be, until one is
        // drawn that exists.
        let zipfian = ScrambledZipfian::new(self.loads + self.operations / 2);
        let mut records = 0;
        for operation in 0..self.loads + self.operations {
            let kind = if operation < self.loads { 0 } else { rng.below(100) };
            let number = match kind {
                0..25 => {
                    records += 1;
                    records - 1
                }
                _ => match self.draw {
                    Draw::Uniform => rng.below(records),
                    Draw::Latest => latest.next(&mut rng, records),
                    Draw::Zipfian => {
                        let mut drawn = std::iter::repeat_with(|| zipfian.next(&mut rng));
                        drawn.find(|number| *number < records).unwrap_or(0)
                    }
                },
            };
            step(number, (kind < 90).then_some(operation))?;
        }
        Ok(self.loads + self.operations)
    }
}

/// The options of nLSM that correspond to these of rLSM.
pub(super) fn rewriting(rlsm: KvSsdOptions) -> KvSsdOptions {
    KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..rlsm }
}

/// The options of dLSM that correspond to these of rLSM.
pub(super) fn delaying(rlsm: KvSsdOptions) -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::dlsm();
    KvSsdOptions { form, threshold, placement, ..rlsm }
}

/// The options of lLSM that correspond to these of rLSM.
pub(super) fn appending(rlsm: KvSsdOptions) -> KvSsdOptions {
    let KvSsdOptions { form, threshold, placement, .. } = KvSsdOptions::llsm();
    KvSsdOptions { form, threshold, placement, ..rlsm }
}

/// Runs the workload on a device of its own.
pub(super) fn run_device(
    context: &Context<'_>,
    load: &Load,
    options: &KvSsdOptions,
) -> Result<Outcome> {
    try_device(context, load, options)?
}

/// Does the same. The inner error is that of a device that is full before the end.
pub(super) fn try_device(
    context: &Context<'_>,
    load: &Load,
    options: &KvSsdOptions,
) -> Result<Result<Outcome>> {
    let geometry = load.geometry();
    let image = scratch_image(context, &geometry)?;
    let side = Box::new(MemoryImage::new());
    let cpu_s = process::cpu_seconds();
    let made = KvSsd::create(image, side, geometry, Timing::PAPER, options.clone());
    let mut device = made.map_err(failed)?;
    let mut is_full = false;
    let done = load.run(|key, value| match value {
        Some(value) => device.put(key, value).map_err(|error| {
            is_full = matches!(error, runstone_flash::Error::Full { .. });
            failed(error)
        }),
        None => {
            let found = device.get(key).map_err(failed)?;
            assert!(found.is_some(), "every record that is read was written");
            Ok(())
        }
    });
    let operations = match done {
        Err(full) if is_full => return Ok(Err(full)),
        done => done?,
    };
    let (layers, counters) = (device.write_amplification(), device.counters());
    Ok(Ok(Outcome {
        compaction: layers.tree_bytes as f64 / layers.user_bytes as f64,
        rmw: 1.0,
        gc: layers.flash_bytes as f64 / layers.tree_bytes as f64,
        operations_per_s: operations as f64 * 1e9 / device.nand().elapsed_ns() as f64,
        emulated_per_cpu_s: operations as f64 / (process::cpu_seconds() - cpu_s),
        pages_per_get: counters.get_pages as f64 / counters.gets.max(1) as f64,
        meta_pages_per_get: counters.get_meta_pages as f64 / counters.gets.max(1) as f64,
        fullness: device.live_pages() as f64 / geometry.page_count() as f64,
        ram_bytes_per_16_gb: device.ram().total_bytes() as f64 * (16_u64 << 30) as f64
            / geometry.data_bytes() as f64,
        squeezes: counters.squeezes,
    }))
}

/// The image of a device for one run. The name of the file is removed at once, so that its space is
/// freed when the run is over.
fn scratch_image(context: &Context<'_>, geometry: &Geometry) -> Result<Box<dyn Image>> {
    if geometry.data_bytes() <= MEMORY_DEVICE_BYTES {
        return Ok(Box::new(MemoryImage::new()));
    }
    let path = context.directory();
    let image = FileImage::create(&path).map_err(failed)?;
    // A name that cannot be removed now is removed with the scratch directory.
    let _ = fs::remove_file(&path);
    Ok(Box::new(image))
}

/// Runs the workload on the engine over a block SSD. Memtables are flushed at the device's count of
/// records.
pub(super) fn run_engine(
    context: &Context<'_>,
    load: &Load,
    policy: &str,
    gc_frontier: GcFrontier,
    over_provision_percent: u32,
) -> Result<Outcome> {
    let keyspace = load.keyspace(policy);
    run_keyspace(context, load, keyspace, gc_frontier, over_provision_percent)
}

/// Does the same with these options of the engine. The page that is counted for a table's index
/// also represents its filters, as on the device.
pub(super) fn run_keyspace(
    context: &Context<'_>,
    load: &Load,
    keyspace: KeyspaceOptions,
    gc_frontier: GcFrontier,
    over_provision_percent: u32,
) -> Result<Outcome> {
    let image = scratch_image(context, &load.geometry())?;
    let cpu_s = process::cpu_seconds();
    let ftl = FtlOptions { over_provision_percent, gc_frontier, is_trim_on: false };
    let options = BlockOptions { ftl, syncs_image: false, ..BlockOptions::default() };
    let storage = BlockStorage::create(image, load.geometry(), options).map_err(failed)?;
    let store = open_store(keyspace, &storage)?;
    let reads = || storage.with_nand(|nand| nand.counters().of(PageType::Host).reads);
    let per_flush = u64::from(load.memtable_pages) * load.records_per_page();
    let (mut unflushed, mut user_bytes, mut gets, mut get_pages) = (0, 0, 0_u64, 0);
    let operations = load.run(|key, value| {
        let Some(value) = value else {
            let before = reads();
            assert!(store.get(key)?.is_some(), "every record that is read was written");
            gets += 1;
            get_pages += reads() - before;
            return Ok(());
        };
        store.put(key, value)?;
        user_bytes += load.user_bytes();
        unflushed += 1;
        if unflushed == per_flush {
            unflushed = 0;
            store.flush()?;
            do_jobs(&store)?;
        }
        Ok(())
    })?;
    let layers = storage.layers();
    let milli = |value: u64| value as f64 / 1000.0;
    let counters = store.metrics().counters;
    let meta_pages = counters.tables_probed;
    let outcome = Outcome {
        compaction: layers.device.host_bytes as f64 / user_bytes as f64,
        rmw: milli(layers.device.rmw_milli()),
        gc: milli(layers.device.gc_milli()),
        operations_per_s: operations as f64 * 1e9 / layers.elapsed_ns as f64,
        emulated_per_cpu_s: operations as f64 / (process::cpu_seconds() - cpu_s),
        pages_per_get: (get_pages + meta_pages) as f64 / gets.max(1) as f64,
        meta_pages_per_get: meta_pages as f64 / gets.max(1) as f64,
        fullness: 0.0,
        ram_bytes_per_16_gb: 0.0,
        squeezes: 0,
    };
    store.close()?;
    Ok(outcome)
}

/// The engine with almost no cache.
fn open_store(keyspace: KeyspaceOptions, storage: &BlockStorage) -> Result<Store> {
    let options = stepped_options(Some(keyspace), 48 << 20).compaction_slices(1);
    let apart = LogApart::new(Arc::new(storage.clone()), Arc::new(MemoryStorage::new()));
    Ok(Store::open_on(Arc::new(apart), options)?)
}

/// An error of the flash, for a report that cannot continue.
pub(super) fn failed(error: runstone_flash::Error) -> Error {
    Error::Foreign { engine: "flash".into(), what: error.to_string() }
}
