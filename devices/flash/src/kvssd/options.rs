//! Options that a KVSSD gets when it is made, and may get again when it is opened. This module
//! knows nothing of a device.

use runstone_policy::filters::FilterAllocation;
use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::partition::Partitioner;
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::registry;
use runstone_rules::bands::Bands;

use crate::error::{Error, Result};
use crate::kvssd::format::kv_page::{page_room_bytes, record_bytes};
use crate::nand::Geometry;
use crate::rest::Rest;

/// The smallest page that the firmware works with: its journal and metadata must fit.
const MIN_PAGE_BYTES: u32 = 1024;
/// The smallest device: room for the streams, for collection, and for some data.
const MIN_BLOCKS: u32 = 24;

/// A checkpoint keeps the placement, the form and the filters in one byte. The form and the filters
/// begin at these bits.
const FORM_SHIFT: u32 = 4;
const FILTERS_SHIFT: u32 = 6;

/// Where pages of keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// nLSM: each table has blocks of its own.
    PerTable = 0,
    /// rLSM(-): one block contains pages of all levels.
    Mixed = 1,
    /// rLSM: each level has its own block for the pages that flushes, compactions and collections
    /// write there.
    PerLevel = 2,
}

/// What a compaction does with the tables that it does not rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// rLSM: maps their pages to new tables.
    Remap = 0,
    /// dLSM: the compaction is delayed. All its tables together become one virtual table. Once it
    /// has more than TH real tables, all of them are rewritten.
    Delay = 1,
    /// lLSM: sinking data are appended to the tables below, as a segment of each. A table has at
    /// most TH segments, and the pages that it lacks to be full are reserved for them. A table that
    /// overflows is rewritten, and split in halves if necessary.
    Append = 2,
}

/// Where values that are large enough to be separated from their keys are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlacement {
    /// With their keys, in the pages of tables.
    Inline = 0,
    /// In one stream of pages, as in WiscKey. Compactions show which of the values are garbage.
    Log = 1,
    /// In one stream for each group of keys, by hash, as in HashKV. Reading a group shows which of
    /// its values are garbage, before compactions show it.
    Groups = 2,
}

impl ValuePlacement {
    /// Every placement, in the order of their numbers in a checkpoint.
    pub const ALL: [ValuePlacement; 3] =
        [ValuePlacement::Inline, ValuePlacement::Log, ValuePlacement::Groups];

    /// Name in a URL.
    pub fn name(self) -> &'static str {
        match self {
            ValuePlacement::Inline => "inline",
            ValuePlacement::Log => "log",
            ValuePlacement::Groups => "groups",
        }
    }
}

/// How an acknowledged write survives a power cut before it is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A capacitor saves the memtable: each write is stored in a side file once.
    Capacitor = 0,
    /// Writes are grouped into log pages on flash; a group is durable once it is synced or full.
    Log = 1,
}

/// Options of a device, which are kept in its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvSsdOptions {
    /// Where pages are written.
    pub placement: Placement,
    /// TH: the most strata of a remapped table; 0 never remaps. Under dLSM it is the most real
    /// tables of a virtual table, under lLSM the most segments of a table.
    pub threshold: u8,
    /// What a compaction does with tables that it does not rewrite.
    pub form: Form,
    /// Filters of pages, so that a get reads few pages in vain: none, up to ten bits for each key,
    /// or as many bits divided among the levels where they save most reads. The filters are in the
    /// metadata pages, of which they take at most half. Existing pages keep the filters that they
    /// have.
    pub filters: FilterAllocation,
    /// How acknowledged writes survive.
    pub durability: Durability,
    /// Flash that is kept free of user data, in percent.
    pub over_provision_percent: u32,
    /// Pages that the memtable fills.
    pub memtable_pages: u32,
    /// Capacity of level 1 in pages.
    pub level1_pages: u32,
    /// How many times larger each deeper level is. Under tiering it is also the number of runs, at
    /// most 15.
    pub size_ratio: u32,
    /// How many tables of level 0 start a compaction.
    pub l0_trigger: u32,
    /// Commits from one checkpoint to the next.
    pub checkpoint_commits: u32,
    /// Difference of erase counts from which cold blocks are moved.
    pub wear_gap: u32,
    /// Name of the policy that chooses what is compacted. It must be one that [`Bands`] knows.
    pub policy: String,
    /// Where a compaction cuts its tables: by size, or before the bounds of a fixed set, so that
    /// tables of different levels share these bounds. Existing tables stay as they are. The paper
    /// cuts by size; Global-Range wrote 12% less and read 2% more (docs/papers/kvssd.md).
    pub cuts: Partitioner,
    /// Where new values are stored. Existing values stay where they are.
    pub values: ValuePlacement,
    /// Values of at least this many bytes are separated from their keys.
    pub values_from: u32,
}

impl Default for KvSsdOptions {
    fn default() -> Self {
        KvSsdOptions {
            placement: Placement::PerLevel,
            threshold: 2,
            form: Form::Remap,
            filters: FilterAllocation::None,
            durability: Durability::Capacitor,
            over_provision_percent: 5,
            memtable_pages: 128,
            level1_pages: 320,
            size_ratio: 10,
            l0_trigger: 4,
            checkpoint_commits: 128,
            wear_gap: 100,
            policy: "fragmented-leveling".to_string(),
            cuts: Partitioner::GlobalRange,
            values: ValuePlacement::Inline,
            values_from: 256,
        }
    }
}

impl KvSsdOptions {
    /// nLSM: compactions rewrite, and each table has blocks of its own. Tables are cut by size:
    /// Global-Range would make tables that are less full, and the rest of a table's last block is
    /// lost.
    pub fn nlsm() -> KvSsdOptions {
        let (placement, cuts) = (Placement::PerTable, Partitioner::Size);
        KvSsdOptions { placement, threshold: 0, cuts, ..KvSsdOptions::default() }
    }

    /// dLSM: compactions of up to 20 tables are delayed. Each real table has blocks of its own.
    pub fn dlsm() -> KvSsdOptions {
        KvSsdOptions { form: Form::Delay, threshold: 20, ..KvSsdOptions::nlsm() }
    }

    /// lLSM: segments are appended to tables. Pages of all levels share blocks, because the lLSM of
    /// the paper cannot tell its device about levels.
    pub fn llsm() -> KvSsdOptions {
        let (form, placement) = (Form::Append, Placement::Mixed);
        KvSsdOptions { form, placement, threshold: 32, ..KvSsdOptions::nlsm() }
    }

    /// The variant of this name.
    pub fn by_name(name: &str) -> Option<KvSsdOptions> {
        match name {
            "nlsm" => Some(KvSsdOptions::nlsm()),
            "dlsm" => Some(KvSsdOptions::dlsm()),
            "llsm" => Some(KvSsdOptions::llsm()),
            "rlsm-" => {
                Some(KvSsdOptions { placement: Placement::Mixed, ..KvSsdOptions::default() })
            }
            "rlsm" => Some(KvSsdOptions::default()),
            _ => None,
        }
    }

    /// Name of the variant, for reports.
    pub fn name(&self) -> &'static str {
        match (self.form, self.placement) {
            (Form::Delay, _) => "dlsm",
            (Form::Append, _) => "llsm",
            (Form::Remap, Placement::PerTable) => "nlsm",
            (Form::Remap, Placement::Mixed) => "rlsm-",
            (Form::Remap, Placement::PerLevel) => "rlsm",
        }
    }

    /// Refuses options with which the firmware cannot work on this geometry.
    pub fn check(&self, geometry: &Geometry) -> Result<()> {
        geometry.check().map_err(Error::BadGeometry)?;
        if geometry.page_bytes < MIN_PAGE_BYTES {
            return Err(Error::BadGeometry("a KVSSD has pages of at least 1024 bytes"));
        }
        // A collection moves a block in one commit, so a journal page must be able to name all
        // tables of the block.
        if geometry.page_bytes < 256 + 96 * geometry.block_pages {
            return Err(Error::BadGeometry("a KVSSD has pages of 256 + 96 bytes per block page"));
        }
        if geometry.block_count < MIN_BLOCKS {
            return Err(Error::BadGeometry("a KVSSD has at least 24 blocks"));
        }
        // Named as in a URL.
        let ranges = [
            ("th", u32::from(self.threshold), 0, 32),
            ("op", self.over_provision_percent, 0, 90),
            ("memtable", self.memtable_pages, 1, 1 << 20),
            ("l1", self.level1_pages, 1, 1 << 24),
            ("ratio", self.size_ratio, 2, 1000),
            ("l0", self.l0_trigger, 1, 64),
            ("checkpoint_commits", self.checkpoint_commits, 1, 1 << 20),
            ("wear_gap", self.wear_gap, 1, u32::MAX),
        ];
        for (name, found, least, most) in ranges {
            if !(least..=most).contains(&found) {
                let why = format!("{found} is not from {least} to {most}");
                return Err(Error::BadOption { name, why });
            }
        }
        self.check_values(geometry)?;
        if cuts_code(self.cuts).is_none() {
            let name = self.cuts.rule().name();
            let why = format!("{name} has no meaning for pages; choose among: {}", cut_names());
            return Err(Error::BadOption { name: "cuts", why });
        }
        if self.form == Form::Append && self.cuts != Partitioner::Size {
            let name = self.cuts.rule().name();
            let why =
                format!("{name}: lLSM splits a table in halves, wherever those are; use size");
            return Err(Error::BadOption { name: "cuts", why });
        }
        let policy = self.compaction_policy()?;
        if self.form != Form::Remap && self.bands() != Ok(Bands::default()) {
            let why = format!("{}: {} keeps runs in a form of its own", self.policy, self.name());
            return Err(Error::BadOption { name: "compaction", why });
        }
        let checked = policy.check(&self.policy_options(geometry));
        checked.map_err(|error| Error::BadOption { name: "compaction", why: error.to_string() })
    }

    fn check_values(&self, geometry: &Geometry) -> Result<()> {
        let most = max_value_bytes(geometry);
        if self.values != ValuePlacement::Inline && !(1..=most).contains(&self.values_from) {
            let why = format!(
                "{} is not from 1 to {most}, the longest value of this geometry",
                self.values_from
            );
            return Err(Error::BadOption { name: "values_from", why });
        }
        Ok(())
    }

    /// How many groups a new device has. Each group keeps a block open and ends a page with each
    /// flush, so there are few on a small device and for a small memtable. There are at least two,
    /// so that their number distinguishes them from a log.
    pub(super) fn group_count(&self, geometry: &Geometry) -> u8 {
        const MOST_GROUPS: u32 = 8;
        let most = (geometry.block_count / 24).min(self.memtable_pages / 16);
        match self.values {
            ValuePlacement::Inline => 0,
            ValuePlacement::Log => 1,
            ValuePlacement::Groups => most.clamp(2, MOST_GROUPS) as u8,
        }
    }

    /// Values of at least this many bytes are separated by a flush; `None` if no value is.
    pub(super) fn apart_from(&self) -> Option<usize> {
        (self.values != ValuePlacement::Inline).then_some(self.values_from as usize)
    }

    /// How many commits there are from one checkpoint to the next. There are fewer on a small
    /// device, where the journal between two checkpoints would take too much of it.
    pub(super) fn checkpoint_interval(&self, geometry: &Geometry) -> u64 {
        const DEVICE_PART: u64 = 64;
        u64::from(self.checkpoint_commits).min((geometry.page_count() / DEVICE_PART).max(1))
    }

    /// The partitioner with this name.
    pub fn cuts_by_name(name: &str) -> Option<Partitioner> {
        CUTS.iter().copied().find(|cuts| cuts.rule().name() == name)
    }

    pub(super) fn compaction_policy(&self) -> Result<&'static dyn CompactionPolicy> {
        let wrong = |why: String| Error::BadOption { name: "compaction", why };
        let policy = registry::find(&self.policy).map_err(|error| wrong(error.to_string()))?;
        self.bands().map(|_| policy).map_err(wrong)
    }

    /// How the levels of the policy are laid out in the tree.
    pub(super) fn bands(&self) -> std::result::Result<Bands, String> {
        Bands::of(&self.policy, self.size_ratio)
    }

    /// The options of the policy, which counts in whole blocks of 4 KiB or more. Smaller pages,
    /// which only tests have, are scaled up uniformly in [`scaled_bytes`].
    pub(super) fn policy_options(&self, geometry: &Geometry) -> PolicyOptions {
        Numbers {
            size_ratio: self.size_ratio,
            l0_trigger: self.l0_trigger,
            base_bytes: scaled_bytes(self.level1_pages),
            table_bytes: scaled_bytes(geometry.block_pages),
            ..Numbers::default()
        }
        .into_options()
    }

    /// Encodes the options for a checkpoint.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let filters = FilterAllocation::ALL.iter().position(|one| *one == self.filters);
        bytes.extend_from_slice(&[
            self.placement as u8
                | (self.form as u8) << FORM_SHIFT
                | (filters.unwrap_or(0) as u8) << FILTERS_SHIFT,
            self.threshold,
            self.durability as u8,
            self.over_provision_percent as u8,
        ]);
        let numbers = [
            self.memtable_pages,
            self.level1_pages,
            self.size_ratio,
            self.l0_trigger,
            self.checkpoint_commits,
            self.wear_gap,
        ];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&(self.policy.len() as u16).to_le_bytes());
        bytes.extend_from_slice(self.policy.as_bytes());
        bytes.extend_from_slice(&[cuts_code(self.cuts).unwrap_or(0), self.values as u8]);
        bytes.extend_from_slice(&self.values_from.to_le_bytes());
    }

    pub(super) fn decode(rest: &mut Rest<'_>) -> Option<KvSsdOptions> {
        let [first, threshold, durability, percent] = rest.array()?;
        let form = (first >> FORM_SHIFT) & ((1 << (FILTERS_SHIFT - FORM_SHIFT)) - 1);
        let placement = first & ((1 << FORM_SHIFT) - 1);
        let forms = [Form::Remap, Form::Delay, Form::Append];
        let placements = [Placement::PerTable, Placement::Mixed, Placement::PerLevel];
        let durabilities = [Durability::Capacitor, Durability::Log];
        Some(KvSsdOptions {
            placement: *placements.get(usize::from(placement))?,
            form: *forms.get(usize::from(form))?,
            filters: *FilterAllocation::ALL.get(usize::from(first >> FILTERS_SHIFT))?,
            threshold,
            durability: *durabilities.get(usize::from(durability))?,
            over_provision_percent: u32::from(percent),
            memtable_pages: rest.u32()?,
            level1_pages: rest.u32()?,
            size_ratio: rest.u32()?,
            l0_trigger: rest.u32()?,
            checkpoint_commits: rest.u32()?,
            wear_gap: rest.u32()?,
            policy: rest.text()?,
            cuts: *CUTS.get(usize::from(rest.array::<1>()?[0]))?,
            values: *ValuePlacement::ALL.get(usize::from(rest.array::<1>()?[0]))?,
            values_from: rest.u32()?,
        })
    }
}

/// Longest key: two keys and an entry must fit a metadata page, and a table must fit a journal
/// page. Clips end a byte after a key, and their lengths are stored in 16 bits.
pub(super) fn max_key_bytes(geometry: &Geometry) -> usize {
    (geometry.page_bytes as usize / 16).min(usize::from(u16::MAX) - 1)
}

/// Longest record: its pages must fit one block.
pub(super) fn max_record_bytes(geometry: &Geometry) -> usize {
    let pages = (geometry.block_pages as usize * 3 / 4).max(1);
    page_room_bytes(pages * geometry.page_bytes as usize)
}

/// Longest value.
pub(super) fn max_value_bytes(geometry: &Geometry) -> u32 {
    (max_record_bytes(geometry) - record_bytes(max_key_bytes(geometry), 0)) as u32
}

/// The partitioners of a device, by their numbers in a checkpoint.
const CUTS: [Partitioner; 3] =
    [Partitioner::Size, Partitioner::GlobalRange, Partitioner::GroupedGlobalRange];

fn cuts_code(cuts: Partitioner) -> Option<u8> {
    CUTS.iter().position(|known| *known == cuts).map(|at| at as u8)
}

/// The names of the partitioners, for messages.
pub fn cut_names() -> String {
    CUTS.map(|cuts| cuts.rule().name()).join(", ")
}

/// The size of a number of pages, as it is given to the policy.
pub(super) fn scaled_bytes(pages: u32) -> u64 {
    u64::from(pages) << 15
}
