//! The designs that are compared, and the data that they store.

use runstone::policy::Policy;
use runstone::unstable;
use runstone::{GcPointers, KeyspaceOptions, ValueOptions, ValuePlacement, WhenFull};
use runstone_workloads::generators::{ScrambledZipfian, THETA};

use crate::engine::plain_options;
use crate::sides::{NONE, Side};
use runstone::Thousandths;

/// The divisor of the specification's sizes.
const DIVISOR: u64 = 8;
pub(super) const KEY_BYTES: usize = 24;
/// Bytes that the paper counts as part of a pair, besides key and value.
const METADATA_BYTES: usize = 8;
/// Header of a record.
pub(super) const HEADER_BYTES: u64 = 18;
/// The paper's pairs of 1 KiB, times 2^20 as in the specification.
pub(super) const RECORDS: u64 = (1 << 20) / DIVISOR;
/// The write cache: 1.6 MiB, divided.
pub(super) const CACHE_BYTES: u64 = (1600 << 10) / DIVISOR;
/// Main segment of a group: groups are as large as in the specification, but fewer.
pub(super) const MAIN_BYTES: u64 = 8 << 20;
/// Log segment.
pub(super) const SLOT_BYTES: u32 = 128 << 10;
/// Level-0 tables that start a compaction if values are separated. The paper's LevelDB gathers keys
/// and pointers in a memtable of its own, of 4 MiB (level 1 has 10 MiB), under the cache
/// of whole pairs. Here a flush of the cache makes a table with a twentieth of the cache: four of
/// these would be compacted with 28 times their size.
pub(super) const POINTER_TABLES: u32 = 16;
/// Level-0 tables that start a compaction if all values are in the tree, as in LevelDB.
pub(super) const TABLES: u32 = 4;
/// Fewest seeks of a table before it is compacted: LevelDB's number for tables of up to 1.6 MiB.
/// Tables that are smaller by the divisor have the same number, so that a seek rewrites as much.
pub(super) const SEEKS: u32 = 100;
pub(super) const SCALED_SEEKS: u32 = SEEKS.div_ceil(DIVISOR as u32);
/// Settings of separated values in which the sides of a row may differ.
const RESERVE: &str = "reserve permille";
pub(super) const SEPARATED: &str = "separated from bytes";
pub(super) const COLD: &str = "cold streams";
pub(super) const GROUPS: &str = "groups";
pub(super) const SLOTS: &str = "log segment bytes";
/// Why a time in memory is not judged.
pub(super) const PROCESSOR: &str =
    "processor time depends on the machine, and no device is waited for";
/// The fewest pairs that fit into a slot.
const PAIRS_PER_SLOT: u64 = 8;

/// Records, and the sizes of their values, which alternate.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) records: u64,
    /// Skew of the updates.
    pub(super) theta: f64,
    /// Whether the curve of the updates has as many items as there are records. YCSB's curve, which
    /// the paper used, has ten billion items, and so fewer repetitions.
    pub(super) own_curve: bool,
    value_bytes: Vec<usize>,
}

impl Workload {
    /// Pairs of this many bytes, as the paper counts them.
    pub(super) fn of_pairs(records: u64, pair_bytes: usize) -> Workload {
        Workload::of_mix(records, &[pair_bytes])
    }

    /// Pairs whose sizes alternate.
    pub(super) fn of_mix(records: u64, pair_bytes: &[usize]) -> Workload {
        let values = pair_bytes.iter().map(|bytes| bytes - KEY_BYTES - METADATA_BYTES);
        Workload { records, theta: THETA, own_curve: false, value_bytes: values.collect() }
    }

    /// The same workload with another skew.
    pub(super) fn with_theta(&self, theta: f64) -> Workload {
        Workload { theta, ..self.clone() }
    }

    /// The same workload with a curve over its own records.
    pub(super) fn with_own_curve(&self) -> Workload {
        Workload { own_curve: true, ..self.clone() }
    }

    /// The generator that draws the updates.
    pub(super) fn draws(&self) -> ScrambledZipfian {
        match self.own_curve {
            true => ScrambledZipfian::of_own_curve(self.records, self.theta),
            false => ScrambledZipfian::with_theta(self.records, self.theta),
        }
    }

    pub(super) fn value_bytes(&self, record: u64) -> usize {
        self.value_bytes[(record % self.value_bytes.len() as u64) as usize]
    }

    pub(super) fn most_value_bytes(&self) -> usize {
        self.value_bytes.iter().copied().max().unwrap_or(0)
    }

    /// Bytes of the records of values that are separated.
    pub(super) fn data_bytes(&self, separate_at: u32) -> u64 {
        let apart = self.value_bytes.iter().filter(|bytes| **bytes >= separate_at as usize);
        let turn: u64 = apart.map(|bytes| (KEY_BYTES + bytes) as u64 + HEADER_BYTES).sum();
        turn * self.records / self.value_bytes.len() as u64
    }
}

/// One design.
#[derive(Clone)]
pub(super) struct Design {
    pub(super) keyspace: KeyspaceOptions,
    pub(super) memory_bytes: u64,
    pub(super) io_uring: bool,
}

impl Design {
    /// All values in a leveled tree.
    pub(super) fn inline() -> Design {
        let policy = Policy::fragmented_leveling()
            .l0_trigger(TABLES)
            .base_bytes((10 << 20) / DIVISOR)
            .table_bytes((2 << 20) / DIVISOR);
        let keyspace = plain_options("fragmented-leveling")
            .policy(policy)
            .write_buffer_bytes(CACHE_BYTES)
            .filter_bits_per_key(10.0);
        Design { keyspace, memory_bytes: 16 << 20, io_uring: false }
    }

    /// HashKV: hash groups of 8 MiB, with a reserve of 30%.
    pub(super) fn hashkv(workload: &Workload) -> Design {
        let mut design = Design::inline().compacting_at(POINTER_TABLES);
        design.keyspace.values = ValueOptions::default()
            .placement(ValuePlacement::HashGrouped)
            .separate_at(1)
            .reserve(0.3)
            .when_full(WhenFull::Grow)
            .vlog_chunk_bytes(CACHE_BYTES);
        design.sized(workload, MAIN_BYTES, SLOT_BYTES)
    }

    /// The paper's configuration: pointers written back, and the trigger of LevelDB.
    pub(super) fn paper(workload: &Workload) -> Design {
        Design::hashkv(workload).writing_back().compacting_at(TABLES)
    }

    /// The value log with the trigger of LevelDB.
    pub(super) fn paper_vlog(workload: &Workload) -> Design {
        Design::vlog(workload).compacting_at(TABLES)
    }

    /// The design as one side of a comparison.
    pub(super) fn side(&self, name: &str) -> Side {
        let values = &self.keyspace.values;
        let is_apart = values.placement != ValuePlacement::Inline;
        let of = |setting: u64| if is_apart { setting.to_string() } else { NONE.into() };
        let mut placement = format!("{:?}", values.placement).to_lowercase();
        if values.placement == ValuePlacement::HashGrouped {
            placement.push_str(match values.gc_pointers {
                GcPointers::Writeback => ", pointers written back",
                _ => ", pointers stable",
            });
        }
        Side::keyspace(name, &self.keyspace)
            .apart_by(&format!("values {placement}"))
            .with("memory bytes", self.memory_bytes)
            .with(RESERVE, of(values.reserve.parts().into()))
            .with(SEPARATED, of(values.separate_at.into()))
            .with(COLD, of(values.cold_stream.into()))
            .with(GROUPS, of(values.groups.into()))
            .with(SLOTS, of(values.slot_bytes.into()))
    }

    /// A value log in the same space.
    pub(super) fn vlog(workload: &Workload) -> Design {
        let vlog =
            |keyspace: &mut KeyspaceOptions| keyspace.values.placement = ValuePlacement::Vlog;
        Design::hashkv(workload).with(vlog)
    }

    /// Groups and slots of these sizes, with room for the values that are separated.
    pub(super) fn sized(mut self, workload: &Workload, main_bytes: u64, slot_bytes: u32) -> Design {
        let values = &mut self.keyspace.values;
        let data_bytes = workload.data_bytes(values.separate_at);
        let largest = (workload.most_value_bytes() as u64 + 1024) * PAIRS_PER_SLOT;
        values.slot_bytes = (largest.min(1 << 30) as u32).max(slot_bytes);
        values.groups = (workload.data_bytes(1) / main_bytes).max(1) as u32;
        // Only runs at a small scale have less data than one group.
        let least_bytes = 2 * u64::from(values.groups) * u64::from(values.slot_bytes);
        values.capacity_bytes = data_bytes.max(least_bytes);
        self
    }

    /// Changes the options.
    pub(super) fn with(mut self, change: impl FnOnce(&mut KeyspaceOptions)) -> Design {
        change(&mut self.keyspace);
        self
    }

    pub(super) fn with_reserve(self, permille: u32) -> Design {
        self.with(|keyspace| keyspace.values.reserve = Thousandths::of_parts(permille))
    }

    /// Makes collections write pointers into the tree, as the paper's do.
    pub(super) fn writing_back(self) -> Design {
        self.with(|keyspace| keyspace.values.gc_pointers = GcPointers::Writeback)
    }

    /// Keeps smaller values in the tree.
    pub(super) fn separating_at(self, workload: &Workload, bytes: u32) -> Design {
        let design = self.with(|keyspace| keyspace.values.separate_at = bytes);
        design.sized(workload, MAIN_BYTES, SLOT_BYTES)
    }

    /// Uses another number of level-0 tables to start a compaction.
    pub(super) fn compacting_at(self, tables: u32) -> Design {
        self.with(|keyspace| unstable::numbers_mut(keyspace).l0_trigger = tables)
    }

    /// Switches on LevelDB's seek compaction: one seek for each 16 KiB of a table, and at least
    /// this many seeks.
    pub(super) fn seeking(self, least: u32) -> Design {
        self.with(|keyspace| {
            let shape = unstable::numbers_mut(keyspace);
            (shape.seek_compaction, shape.seek_bytes) = (true, 16 << 10);
            shape.least_seeks = least;
        })
    }

    /// Runs as the paper's LevelDB did: no filters, hardly any cache.
    pub(super) fn without_filters(self) -> Design {
        let design = Design { memory_bytes: 1 << 20, ..self };
        design.with(|keyspace| keyspace.filter_bits_per_key = 0.0.into())
    }
}
