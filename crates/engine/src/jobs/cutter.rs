//! Decides key by key where one output table of a compaction ends and the next begins, always
//! between two user keys (I2). The plan sets the rule ([`Cut`]).

use std::sync::Arc;

use runstone_policy::partition::CutKey;
use runstone_policy::plan::Cut;
use runstone_policy::prefix::Prefixer;

/// The state of a walk over ascending user keys.
#[derive(Clone, Debug)]
pub(crate) struct Cutter {
    rule: Rule,
    /// The number of cells that the walk has passed.
    cell: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    /// A table is full at this number of bytes.
    Size(u64),
    /// Cut where the prefix changes, see [`Cut::Prefix`].
    Prefix {
        split_bytes: u64,
        cap_bytes: u64,
        last_prefix: Vec<u8>,
        input_bytes: u64,
        input_entries: u64,
    },
    /// Cut before these keys.
    Cells(Arc<[CutKey]>),
}

impl Cutter {
    /// The rule of a plan, for a compaction with this input. Cells that are not known are cut by
    /// size.
    pub(crate) fn new(cut: Cut, input_bytes: u64, input_entries: u64) -> Cutter {
        let rule = match cut {
            Cut::Prefix { split_bytes, cap_bytes } => {
                let last_prefix = Vec::new();
                Rule::Prefix { split_bytes, cap_bytes, last_prefix, input_bytes, input_entries }
            }
            _ => Rule::Size(cut.cap_bytes()),
        };
        Cutter { rule, cell: 0 }
    }

    /// Known cells, for a walk that begins at `lo`.
    pub(crate) fn cells(cuts: Arc<[CutKey]>, lo: Option<&[u8]>) -> Cutter {
        let cell = lo.map_or(0, |lo| cuts.partition_point(|cut| **cut <= *lo));
        Cutter { rule: Rule::Cells(cuts), cell }
    }

    /// Whether a table may take all keys up to `bound` at once without comparing them, because
    /// there is no cut in between. With cuts by prefix, there may be a cut before any key. With
    /// cuts by size, a table that is full ends at the next key.
    pub(crate) fn allows_up_to(&self, bound: &[u8]) -> bool {
        match &self.rule {
            Rule::Size(_) => true,
            Rule::Prefix { .. } => false,
            Rule::Cells(cuts) => cuts.get(self.cell).is_none_or(|cut| *bound < **cut),
        }
    }

    /// The index of the cell that the last key is in.
    pub(crate) fn cell(&self) -> usize {
        self.cell
    }

    /// Whether a table of `table_bytes` ends before the new user key `key`, which `seen` input
    /// entries precede. Called once per user key, even if no table is open.
    pub(crate) fn cuts_before(
        &mut self,
        key: &[u8],
        prefixer: Option<&Prefixer>,
        table_bytes: u64,
        seen: u64,
    ) -> bool {
        match &mut self.rule {
            Rule::Size(bytes) => table_bytes >= *bytes,
            Rule::Cells(cuts) => {
                let before = self.cell;
                while cuts.get(self.cell).is_some_and(|cut| **cut <= *key) {
                    self.cell += 1;
                }
                self.cell > before
            }
            Rule::Prefix { split_bytes, cap_bytes, last_prefix, input_bytes, input_entries } => {
                let prefix = prefixer.map_or(key, |prefixer| prefixer.prefix(key));
                if last_prefix == prefix {
                    return table_bytes >= *cap_bytes;
                }
                last_prefix.clear();
                last_prefix.extend_from_slice(prefix);
                let left = u128::from(input_entries.saturating_sub(seen));
                let entries = u128::from((*input_entries).max(1));
                let left_bytes = (u128::from(*input_bytes) * left / entries) as u64;
                table_bytes >= *cap_bytes
                    || (table_bytes >= *split_bytes && left_bytes >= *split_bytes)
            }
        }
    }
}
