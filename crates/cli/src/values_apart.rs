//! `simulate --placement`: the cost of separated values in addition to the tree. The model is
//! `runstone_simulator::values`. The tree then contains a pointer for each value that flushes
//! write. With a log of values, it also contains a pointer for each value that a collection moves.

use clap::ValueEnum;
use runstone_simulator::SimReport;
use runstone_simulator::values::{Apart, Draws, ValueCosts, ValueSetup, ValueSimulator};
use serde_json::{Value, json};

use crate::arguments::parse_size;
use crate::failure::{Failure, Result};
use crate::option_docs::summary;
use crate::output::{columns, size};
use runstone_policy::units::Thousandths;

/// An entry of the tree: a key of 24 bytes with a pointer.
pub const POINTER_ENTRY_BYTES: u64 = 48;
/// Header of a record.
const HEADER_BYTES: u64 = 18;
/// The most records of a log, which is simulated record by record, in twelve bytes of memory each.
const MOST_RECORDS: u64 = 1 << 26;
const MOST_GROUPS: u32 = 1 << 20;
/// The most writes to simulate. Each takes about 30 ns.
const MOST_WRITES: u64 = 1 << 32;

/// Where values lie.
#[derive(clap::Args)]
pub struct PlacementArgs {
    #[arg(long, value_enum, default_value = "inline", help = summary("placement"))]
    placement: Name,
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, help = summary("reserve"))]
    reserve: f64,
    #[arg(long = "slot", value_name = "SIZE", default_value = "1M", value_parser = parse_size,
          help = summary("slot_bytes"))]
    slot_bytes: u64,
    #[arg(long, value_name = "N", help = summary("groups") + ". [default: one for each 64 MiB]")]
    groups: Option<u32>,
    /// Which records are updated once all keys are written.
    #[arg(long, value_enum, default_value = "zipfian")]
    updates: Updates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Inline,
    Vlog,
    HashGrouped,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Updates {
    Uniform,
    Zipfian,
}

/// What the user writes.
pub struct Written {
    pub size_bytes: u64,
    pub entry_bytes: u64,
    pub memtable_bytes: u64,
    pub keys: u64,
}

/// What happened to the values.
pub struct Values {
    placement: &'static str,
    costs: ValueCosts,
    user_bytes: u64,
    /// Entries of the tree.
    pub pointers: u64,
    /// How many of these entries one flush writes.
    pub pointers_per_flush: u64,
}

impl PlacementArgs {
    /// `None` if values are in the tree.
    pub fn reckon(&self, written: &Written) -> Result<Option<Values>> {
        if self.placement == Name::Inline {
            return Ok(None);
        }
        let is_log = self.placement == Name::Vlog;
        let writes = (written.size_bytes / written.entry_bytes).max(1);
        let records = writes.min(written.keys);
        self.check(written, records, writes)?;
        let record_bytes = written.entry_bytes + HEADER_BYTES;
        let data_bytes = records * record_bytes;
        let flush_records = (written.memtable_bytes / written.entry_bytes).max(1);
        let apart = match is_log {
            true => Apart::Log { chunk_slots: written.memtable_bytes.div_ceil(self.slot_bytes) },
            false => Apart::Groups {
                count: self
                    .groups
                    .unwrap_or(data_bytes.div_ceil(64 << 20).min(MOST_GROUPS.into()) as u32),
            },
        };
        let mut file = ValueSimulator::new(ValueSetup {
            apart,
            records,
            record_bytes,
            flush_records,
            slot_bytes: self.slot_bytes,
            reserve_permille: Thousandths::from(self.reserve).parts(),
            draws: match self.updates {
                Updates::Uniform => Draws::Uniform,
                Updates::Zipfian => Draws::Zipfian,
            },
        });
        let costs = file.load().plus(&file.update(writes - records));
        let (pointers, flushes) = (costs.pointers(is_log), writes.div_ceil(flush_records));
        Ok(Some(Values {
            placement: if is_log { "vlog" } else { "hash-grouped" },
            costs,
            user_bytes: written.size_bytes,
            pointers,
            pointers_per_flush: (pointers / flushes).max(1),
        }))
    }

    fn check(&self, written: &Written, records: u64, writes: u64) -> Result<()> {
        if !(0.0..=100.0).contains(&self.reserve) {
            let hint = "write a share such as 0.3";
            let what = "the reserve is not from 0 to 100";
            return Err(Failure::usage(what, hint).at(format!("--reserve {}", self.reserve)));
        }
        if written.entry_bytes + HEADER_BYTES > self.slot_bytes {
            return Err(
                Failure::usage("a record is larger than a slot", "raise --slot").at("--slot")
            );
        }
        if self.groups.is_some_and(|groups| !(1..=MOST_GROUPS).contains(&groups)) {
            let hint = format!("write 1 to {MOST_GROUPS}");
            return Err(Failure::usage("no such number of groups", hint).at("--groups"));
        }
        if records > MOST_RECORDS || writes > MOST_WRITES {
            let what = format!("{records} records with {writes} writes would take too long");
            let hint = format!("raise --entry-size: at most {MOST_RECORDS} records are reckoned");
            return Err(Failure::usage(what, hint).at("--placement"));
        }
        Ok(())
    }
}

impl Values {
    /// Fields are in JSON.md.
    pub fn to_json(&self) -> Value {
        let ValueCosts { flushed_bytes, collected_read_bytes, collected_bytes, .. } = self.costs;
        json!({
            "placement": self.placement,
            "user_bytes": self.user_bytes,
            "flushed_bytes": flushed_bytes,
            "collected_read_bytes": collected_read_bytes,
            "collected_bytes": collected_bytes,
            "collections": self.costs.collections,
            "grown": self.costs.grown,
            "pointers": self.pointers,
        })
    }

    /// A table of tree and values, with a line for each policy.
    pub fn to_text(&self, trees: &[(&str, &SimReport)]) -> String {
        let header = ["separated values", "tree", "values, flushes", "collections", "all / user"];
        let ValueCosts { flushed_bytes, collected_bytes, .. } = self.costs;
        let row = |(policy, report): &(&str, &SimReport)| {
            let tree_bytes = report.flushed_bytes.saturating_add(report.compacted_bytes);
            let all = tree_bytes.saturating_add(flushed_bytes + collected_bytes);
            vec![
                format!("{policy}, {}", self.placement),
                size(tree_bytes),
                size(flushed_bytes),
                size(collected_bytes),
                format!("{:.2}", all as f64 / self.user_bytes.max(1) as f64),
            ]
        };
        columns(&header, &trees.iter().map(row).collect::<Vec<_>>())
    }
}
