//! Global-Range with larger cells: it halves until a cell has at most 8 theta bytes, then cuts each
//! cell evenly by size. Compactions still divide at the bounds of the large cells, and there are
//! hardly more tables than by size (the paper's §VI: "small partitions can be grouped together").
//! Inside a cell, bounds are not nested.

use crate::partition::global_range::halve;
use crate::partition::size::cut_row_evenly;
use crate::partition::{CutKey, Input, Rule, cells};

/// How many tables a cell may contain.
pub const CELL_TABLES: u64 = 8;

pub(crate) static GROUPED_GLOBAL_RANGE: Rule = Rule { name: "grouped-global-range", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    let Input { histogram, table_bytes, .. } = *input;
    let bounds = halve(histogram, table_bytes.saturating_mul(CELL_TABLES));
    let mut cuts = bounds.clone();
    for cell in cells(histogram, &bounds) {
        cut_row_evenly(histogram, cell, table_bytes, &mut cuts);
    }
    cuts.sort_unstable();
    cuts
}
