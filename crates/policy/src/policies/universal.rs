//! Universal compaction, as RocksDB does it: runs of similar size compact, the newest first. All
//! runs compact when the newer ones outgrow the oldest, which bounds space. RocksDB's incremental
//! and periodic variants are not here.
//!
//! From `universal_trigger` runs on, the first of these that applies:
//!
//! 1. Space: the runs above the oldest together have `universal_amp_percent` of the oldest run's
//!    bytes or more. All runs compact.
//! 2. Size: runs are gathered from the newest on, at most `universal_max_width`, while the gathered
//!    runs plus `universal_ratio_percent` are at least as large as the next run. If
//!    `universal_min_width` or more are gathered, they compact. Otherwise the search starts again
//!    at the next older run.
//! 3. Number: there are more than `stack_runs`. Enough of the newest runs compact to return to that
//!    number, whatever their sizes, but at most `universal_max_width` at once.
//!
//! Compacting ends: each compaction leaves fewer runs. At rest there are fewer than the trigger or
//! at most `stack_runs`. Source: `UniversalCompactionBuilder::PickCompaction` of RocksDB. The rest
//! is in `stack.rs`.

use crate::options::PolicyOptions;
use crate::policies::stack::{Choice, Choose, Stack};

pub(crate) static UNIVERSAL: Stack = Stack {
    name: "universal",
    doc: "a stack of runs; those of similar size compact, all when space grows (RocksDB)",
    // A trigger above k lets more runs wait.
    max_runs: |options| options.numbers.stack_runs.max(options.numbers.universal_trigger - 1),
    choose: Choose::BySizes(choose),
};

/// Slot 0 is the newest.
fn choose(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    if (sizes.len() as u64) < u64::from(options.numbers.universal_trigger) || sizes.len() < 2 {
        return None;
    }
    by_space(sizes, options)
        .or_else(|| by_size(sizes, options))
        .or_else(|| by_number(sizes, options))
}

/// Rule 1.
fn by_space(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (oldest, newer) = sizes.split_last()?;
    let newer: u128 = newer.iter().map(|bytes| u128::from(*bytes)).sum();
    let percent = options.numbers.universal_amp_percent;
    let is_due = newer * 100 >= u128::from(percent) * u128::from(*oldest);
    let reason = format!("newer runs have {percent}% of the oldest");
    is_due.then_some(Choice { slots: 0..sizes.len(), reason })
}

/// Rule 2.
fn by_size(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let percent = 100 + u128::from(options.numbers.universal_ratio_percent);
    let gathered_from = |start: usize| {
        let mut gathered = u128::from(sizes[start]);
        let mut end = start + 1;
        while end - start < options.numbers.universal_max_width as usize
            && let Some(next) = sizes.get(end).map(|bytes| u128::from(*bytes))
            && gathered * percent / 100 >= next
        {
            gathered += next;
            end += 1;
        }
        (end - start >= options.numbers.universal_min_width as usize).then_some(start..end)
    };
    let slots = (0..sizes.len()).find_map(gathered_from)?;
    Some(Choice { slots, reason: "runs of similar size".to_owned() })
}

/// Rule 3.
fn by_number(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (count, most) = (sizes.len(), options.numbers.stack_runs as usize);
    if count <= most {
        return None;
    }
    let width = (count - most + 1).min(options.numbers.universal_max_width as usize);
    Some(Choice { slots: 0..width, reason: format!("{count} runs, at most {most}") })
}
