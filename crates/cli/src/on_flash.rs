//! `simulate --flash`: how many bytes each layer of the flash below a tree writes. The model is
//! `runstone_simulator::flash`; it keeps a tree of its own, page by page, so it receives the user's
//! writes a second time.

use clap::ValueEnum;
use runstone_policy::options::PolicyOptions;
use runstone_policy::policy::CompactionPolicy;
use runstone_random::mix64;
use runstone_simulator::flash::{FlashCosts, FlashDesign, FlashError, FlashSetup, FlashSimulator};
use serde_json::{Value, json};

use crate::arguments::parse_size;
use crate::failure::{Failure, Result};
use crate::output::{columns, size};

/// Size of a table, and of a block, if no other size is given.
pub const TABLE_BYTES: u64 = 4 << 20;
/// The most writes to simulate. Each takes a few microseconds, with all the work that it causes.
const MOST_WRITES: u64 = 1 << 27;

/// The flash below.
#[derive(clap::Args)]
pub struct FlashArgs {
    /// What lies below: files on a block SSD, or a device that keeps the tree (KVSSD).
    #[arg(long, value_enum, value_name = "NAME,..", value_delimiter = ',')]
    flash: Vec<Name>,
    /// Size of the flash.
    #[arg(long, value_name = "SIZE", default_value = "15G", value_parser = parse_size)]
    device: u64,
    /// Size of a page of flash; a block is as large as a table.
    #[arg(long, value_name = "SIZE", default_value = "32K", value_parser = parse_size)]
    page: u64,
    /// Flash that is kept free of data, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5)]
    set_aside: u32,
    /// TH, the most strata of a table that rlsm remaps.
    #[arg(long = "th", value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=20))]
    threshold: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Files on a block SSD that writes what it moves to separate blocks
    Lsm,
    /// Files on a block SSD that does not
    LsmShared,
    /// A KVSSD that rewrites
    Nlsm,
    /// A KVSSD that remaps, one block for all levels
    #[value(name = "rlsm-")]
    Mixed,
    /// A KVSSD that remaps, blocks for each level
    Rlsm,
}

/// What the user writes, and the options of the tree.
pub struct Written<'a> {
    pub size_bytes: u64,
    pub entry_bytes: u64,
    pub memtable_bytes: u64,
    pub keys: u64,
    pub seed: u64,
    pub options: &'a PolicyOptions,
}

/// The result of one policy on one device.
pub struct OnFlash {
    policy: &'static str,
    design: String,
    costs: FlashCosts,
}

impl FlashArgs {
    /// Whether the arguments name any flash.
    pub fn is_asked(&self) -> bool {
        !self.flash.is_empty()
    }

    /// Simulates each policy on each device.
    pub fn reckon(
        &self,
        policies: &[&'static dyn CompactionPolicy],
        written: &Written<'_>,
    ) -> Result<Vec<OnFlash>> {
        let writes = (written.size_bytes / written.entry_bytes).max(1);
        if self.is_asked() && writes > MOST_WRITES {
            let what = format!("{writes} writes would take too long");
            let hint = format!("raise --entry-size: at most {MOST_WRITES} writes are reckoned");
            return Err(Failure::usage(what, hint).at("--flash"));
        }
        let mut all = Vec::new();
        for policy in policies {
            for name in &self.flash {
                let costs = self.run(*policy, *name, written, writes);
                let design = self.title(*name);
                let costs = costs.map_err(|error| self.refused(&design, &error))?;
                all.push(OnFlash { policy: policy.name(), design, costs });
            }
        }
        Ok(all)
    }

    fn run(
        &self,
        policy: &dyn CompactionPolicy,
        name: Name,
        written: &Written<'_>,
        writes: u64,
    ) -> std::result::Result<FlashCosts, FlashError> {
        let page = self.page.max(1);
        let block_pages = written.options.table_bytes() / page;
        let blocks = self.device / written.options.table_bytes().max(1);
        let threshold = self.threshold;
        let pages = |bytes: u64| u32::try_from(bytes / page).unwrap_or(u32::MAX);
        let mut flash = FlashSimulator::new(
            policy,
            FlashSetup {
                design: match name {
                    Name::Lsm => FlashDesign::Lsm { is_split: true },
                    Name::LsmShared => FlashDesign::Lsm { is_split: false },
                    Name::Nlsm => FlashDesign::Nlsm,
                    Name::Mixed => FlashDesign::Mixed { threshold },
                    Name::Rlsm => FlashDesign::Rlsm { threshold },
                },
                entry_bytes: written.entry_bytes,
                block_count: u32::try_from(blocks).unwrap_or(u32::MAX),
                block_pages: u32::try_from(block_pages).unwrap_or(u32::MAX),
                page_bytes: self.page,
                set_aside_percent: self.set_aside,
                memtable_pages: pages(written.memtable_bytes),
                options: written.options.clone(),
            },
        )?;
        for write in 0..writes {
            // Each write picks one of the keys at random. If there are more keys than writes, each
            // write has a key of its own.
            let record = match written.keys > MOST_WRITES {
                true => write,
                false => mix64(mix64(written.seed) ^ write) % written.keys,
            };
            flash.put(record)?;
        }
        Ok(flash.costs())
    }

    fn title(&self, name: Name) -> String {
        let value = name.to_possible_value();
        let name_text = value.as_ref().map_or("", |value| value.get_name());
        match name {
            Name::Mixed | Name::Rlsm => format!("{name_text}, TH {}", self.threshold),
            Name::Lsm | Name::LsmShared | Name::Nlsm => name_text.to_string(),
        }
    }

    fn refused(&self, design: &str, error: &FlashError) -> Failure {
        let hint = match error {
            FlashError::Setup(_) => "change --device, --page, --table-size, --memtable or --policy",
            _ => "raise --device, or write less with --size or --keys",
        };
        let device = size(self.device);
        Failure::usage(error, hint).at(format!("--flash {design}, --device {device}"))
    }
}

/// Fields are in JSON.md.
pub fn to_json(all: &[OnFlash]) -> Value {
    let one = |OnFlash { policy, design, costs }: &OnFlash| {
        let factors = costs.layers_permille().map(|factor| factor as f64 / 1000.0);
        let [compaction, read_modify_write, collection] = factors;
        json!({
            "policy": policy,
            "flash": design,
            "user_bytes": costs.user_bytes,
            "tree_bytes": costs.tree_bytes,
            "page_bytes": costs.page_bytes,
            "flash_bytes": costs.flash_bytes,
            "compaction_factor": compaction,
            "read_modify_write_factor": read_modify_write,
            "collection_factor": collection,
            "remapped_tables": costs.remapped_tables,
            "rewritten_tables": costs.rewritten_tables,
            "collections": costs.collections,
        })
    };
    all.iter().map(one).collect()
}

/// A table with a line for each policy on each device.
pub fn to_text(all: &[OnFlash]) -> String {
    let header =
        ["on flash", "compaction", "read-modify-write", "collection", "all / user", "remapped"];
    let thousandths = |number: u64| format!("{}.{:03}", number / 1000, number % 1000);
    let row = |OnFlash { policy, design, costs }: &OnFlash| {
        let tables = costs.remapped_tables + costs.rewritten_tables;
        let [compaction, read_modify_write, collection] = costs.layers_permille().map(thousandths);
        vec![
            format!("{policy}, {design}"),
            compaction,
            read_modify_write,
            collection,
            thousandths(costs.total_permille()),
            format!("{}%", costs.remapped_tables * 100 / tables.max(1)),
        ]
    };
    columns(&header, &all.iter().map(row).collect::<Vec<_>>())
}
