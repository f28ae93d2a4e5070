//! Partitions a histogram by key prefix, as adaptive tiering does. A small compaction under
//! [`crate::plan::Cut::Prefix`] is cut key by key while it runs and needs no histogram. A
//! compaction in parts follows the same rule here, because its parts must agree on the cuts
//! beforehand. Sizes are input sizes: where versions are dropped, output tables are smaller by the
//! same amount.
//!
//! 1. T_s is theta / [`CAP_FACTOR`]. A table ends where the prefix changes, if it has T_s bytes and
//!    at least as many bytes remain.
//! 2. It ends after theta in any case. Without an extractor, a key is its own prefix.

use crate::partition::{CutKey, Input, Rule, successor};

/// The largest table of one prefix is this many times T_s; the paper sets no upper bound.
pub const CAP_FACTOR: u64 = 16;

pub(crate) static PREFIX: Rule = Rule { name: "prefix", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    let histogram = input.histogram;
    let split_bytes = (input.table_bytes / CAP_FACTOR).max(1);
    let prefix = |key| input.prefixer.map_or(key, |prefixer| prefixer.prefix(key));
    let mut cuts: Vec<CutKey> = Vec::new();
    let mut from = 0;
    let count = histogram.points().len();
    for at in 1..count {
        let (key, next) =
            (&*histogram.points()[at - 1].last_key, &*histogram.points()[at].last_key);
        let has_enough = histogram.bytes_of(&(from..at)) >= split_bytes
            && histogram.bytes_of(&(at..count)) >= split_bytes;
        let changes = has_enough && prefix(key) != prefix(next);
        let is_full = histogram.bytes_of(&(from..at + 1)) > input.table_bytes;
        if changes || is_full {
            // The prefix itself is the smallest key that has it. A user's own extractor may not
            // have this property.
            let start = prefix(next);
            let parts = changes && *start > *key && *start <= *next;
            cuts.push(if parts { start.into() } else { successor(key) });
            from = at;
        }
    }
    cuts
}
