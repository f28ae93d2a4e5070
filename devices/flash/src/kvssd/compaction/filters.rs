//! How large the filters of new pages are: ten bits for each key, or as many divided among the
//! levels by the rule of `runstone_policy::filters`.
//!
//! A page that is remapped to another level rightly keeps its filter. A get of an absent key reads
//! a page with a probability equal to the page's share of all keys, so the best size of its filter
//! depends on its number of keys per share. That number is the density of the run for which the
//! page was written, and remapping does not change it.
//!
//! But the plan counts such a filter with the keys of its new level. So the excess of filters over
//! the plan is deducted from the budget, evenly for all keys. (In the engine such filters are
//! stale. They are few, and their keys are left out of the plan. Here they are the rule, and
//! without their keys the plan would be empty.)
//!
//! The filters of a table may fill half of a metadata page, which limits the bits for each key.
//! Bits that small levels cannot use are given to the other levels.

use runstone_policy::filters::{FilterAllocation, optimal_within};

use crate::kvssd::catalog::Catalog;
use crate::kvssd::format::page_filter::FilterSize;
use crate::kvssd::tree::Node;

/// The budget, in tenths of a bit for each key.
const BUDGET_TENTHS: u32 = 100;

/// The filters of pages that are written for a level of the tree. O(tables) if they are optimal.
pub(super) fn filter_size(catalog: &Catalog, level: u8) -> FilterSize {
    let table_pages = catalog.space.block_pages() as usize;
    let most_bytes = catalog.space.page_bytes() / (2 * table_pages);
    let uniform = BUDGET_TENTHS * 100;
    let millibits_per_key = match catalog.options.filters {
        FilterAllocation::None => 0,
        FilterAllocation::Optimal => planned(catalog, level, most_bytes).unwrap_or(uniform),
        _ => uniform,
    };
    FilterSize { millibits_per_key, most_bytes }
}

/// What the rule plans for a level; `None` if the tree is empty.
fn planned(catalog: &Catalog, level: u8, most_bytes: usize) -> Option<u32> {
    let (tree, options) = (&catalog.tree, &catalog.options);
    let of_tables =
        |count: &dyn Fn(&Node) -> u64| tree.nodes().map(|node| count(node)).sum::<u64>();
    let keys = of_tables(&|node| node.record_count).max(1) as f64;
    let pages = of_tables(&|node| node.charged_pages.into());
    let most_bits = (8 * most_bytes as u64 * pages) as f64 / keys;
    let shape = tree.shape();
    let numbers = options.policy_options(&catalog.space.nand.geometry());
    let targets = options.compaction_policy().ok()?.targets(&shape, &numbers);
    let band = tree.bands.band(level.into());
    let plan = |tenths| optimal_within(&shape, &targets, tenths, band, most_bits).millibits_per_key;
    let budget = f64::from(BUDGET_TENTHS);
    let bits = plan(budget);
    let excess = of_tables(&|node| {
        let planned = bits.get(tree.band(node) as usize).copied().unwrap_or(0);
        let planned = u64::from(planned) * node.record_count / 1000;
        catalog.references.filter_bits(node.id).saturating_sub(planned)
    });
    plan((budget - 10.0 * excess as f64 / keys).max(0.0)).get(band as usize).copied()
}
