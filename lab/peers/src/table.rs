//! The comparison as text: one line per store, one line per goal.

use crate::goals::Judged;
use crate::parent::Comparison;
use crate::plan::{Measured, Setup};

pub fn render(comparison: &Comparison) -> String {
    let medians: Vec<&Measured> = comparison.medians.iter().map(|m| &m.measured).collect();
    let mut text = format!("{}\n\n", terms(&comparison.setup));
    text.push_str(&align(rows(&comparison.setup, &medians)));
    if !comparison.goals.is_empty() {
        let head = ["goal", "against", "here", "wanted", ""].map(String::from).to_vec();
        let goals = comparison.goals.iter().map(goal_row);
        text.push('\n');
        text.push_str(&align(std::iter::once(head).chain(goals).collect()));
    }
    text
}

fn terms(setup: &Setup) -> String {
    format!(
        "{} keys of 16 + {} bytes, {} writer(s), cache {} MiB, memtable {} MiB, LZ4, 10 filter \
         bits, {} background threads, log on, no sync; reads {}",
        setup.num,
        setup.value_bytes,
        setup.writers,
        setup.cache_bytes >> 20,
        setup.memtable_bytes >> 20,
        setup.background_threads,
        if setup.settle { "after compactions settled" } else { "right after the load" },
    )
}

/// A column's name, and its cell for a store.
type Column = (&'static str, fn(&Measured) -> String);

/// A row of headings, and one for each store.
fn rows(setup: &Setup, runs: &[&Measured]) -> Vec<Vec<String>> {
    let columns = columns(setup);
    // Each name means one benchmark or several.
    let benchmarks = runs.first().map_or(Vec::new(), |run| run.benchmarks.keys().collect());
    let named = benchmarks.iter().map(|name| format!("{name}/s"));
    let head = columns.iter().map(|(name, _)| name.to_string()).chain(named).collect();
    let row = |run: &&Measured| {
        let rates = benchmarks.iter().map(|name| run.benchmarks.get(*name).copied());
        let more = rates.map(|rate| whole(rate.unwrap_or_default()));
        columns.iter().map(|(_, cell)| cell(run)).chain(more).collect()
    };
    std::iter::once(head).chain(runs.iter().map(row)).collect()
}

fn columns(setup: &Setup) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("store", |run| run.engine.clone()),
        ("load/s", |run| whole(run.loads_per_second)),
        ("hit/s", |run| whole(run.hits_per_second)),
        ("miss/s", |run| whole(run.misses_per_second)),
        ("scan/s", |run| whole(run.scans_per_second)),
        ("put p50 us", |run| format!("{:.2}", run.put_p50_us)),
        ("p99.9 us", |run| tenths(run.put_p999_us)),
        ("worst ms", |run| tenths(run.put_worst_ms)),
        ("not stolen", |run| tenths(run.put_own_worst_ms)),
        ("peak MiB", |run| (run.peak_bytes >> 20).to_string()),
        ("disk MB", |run| megabytes(run.disk_bytes)),
        ("(open)", |run| megabytes(run.disk_open_bytes)),
        ("written MB", |run| megabytes(run.written_bytes)),
    ];
    let mut add = |is_measured: bool, more: &[Column]| {
        columns.extend_from_slice(if is_measured { more } else { &[] });
    };
    add(setup.settle, &[("settle s", |run| tenths(run.settle_seconds))]);
    add(
        setup.runs > 0,
        &[
            ("compacted MB", |run| megabytes(run.compacted_bytes)),
            ("compaction s", |run| format!("{:.2}", run.compaction_seconds)),
            ("cpu s", |run| format!("{:.2}", run.compaction_cpu_seconds)),
            ("MB/cpu s", |run| whole(run.compacted_per_cpu_second() / 1e6)),
        ],
    );
    add(
        setup.updates > 0,
        &[
            ("update/s", |run| whole(run.updates_per_second)),
            ("cpu us", |run| tenths(run.update_cpu_us)),
            ("update disk MB", |run| megabytes(run.update_disk_bytes)),
        ],
    );
    add(setup.pops > 0, &[("queue pop/s", |run| whole(run.pops_per_second))]);
    add(setup.keyspaces > 0, &[("keyspaces put/s", |run| whole(run.keyspace_puts_per_second))]);
    add(
        setup.increments > 0,
        &[
            ("count: put/s", |run| offered(run.counted.puts_per_second)),
            ("merge/s", |run| offered(run.counted.merges_per_second)),
            ("get+put/s", |run| offered(run.counted.gets_and_puts_per_second)),
            ("optimistic/s", |run| offered(run.counted.optimistic_per_second)),
            ("pessimistic/s", |run| offered(run.counted.pessimistic_per_second)),
        ],
    );
    add(
        setup.range_deletes > 0,
        &[
            ("delete half us", |run| offered(run.range_deleted.half_us)),
            ("step us", |run| offered(run.range_deleted.step_us)),
            ("get/s then", |run| offered(run.range_deleted.gets_before_per_second)),
            ("range delete/s", |run| offered(run.range_deleted.deletes_per_second)),
            ("get/s under", |run| offered(run.range_deleted.gets_under_per_second)),
            ("flushed", |run| offered(run.range_deleted.gets_flushed_per_second)),
        ],
    );
    add(
        setup.reopen,
        &[
            ("open ms", |run| tenths(run.open.unwrap_or_default().open_ms)),
            ("first get us", |run| whole(run.open.unwrap_or_default().first_get_us)),
        ],
    );
    columns
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

/// The text of a number; empty if the store does not offer this.
fn offered(number: f64) -> String {
    if number > 0.0 { whole(number) } else { String::new() }
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

fn megabytes(bytes: u64) -> String {
    whole(bytes as f64 / 1e6)
}

fn goal_row(goal: &Judged) -> Vec<String> {
    let sign = if goal.at_least { ">=" } else { "<=" };
    vec![
        goal.what.to_string(),
        goal.against.to_string(),
        format!("{:.2}", goal.value),
        format!("{sign} {}", goal.bound),
        if goal.met { "met" } else { "MISSED" }.to_string(),
    ]
}

/// Aligns columns to their widest cells: the first to the left, the others to the right.
pub fn align(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| -> usize {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1"], ["long", "1000"]];
        let rows = rows.map(|row| row.map(String::from).to_vec()).to_vec();
        assert_eq!(align(rows), "a        1\nlong  1000\n");
    }
}
