//! The comparison as text: one line a store, one line a goal.

use crate::goals::Judged;
use crate::parent::Comparison;
use crate::plan::{Measured, Setup};

/// Renders everything.
pub fn render(comparison: &Comparison) -> String {
    let mut text = format!("{}\n\n", terms(&comparison.setup));
    let medians = comparison.medians.iter().map(|median| store_row(&median.measured));
    text.push_str(&align(std::iter::once(store_head(&comparison.setup)).chain(medians).collect()));
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

fn store_head(setup: &Setup) -> Vec<String> {
    let mut head = vec![
        "store",
        "load/s",
        "hit/s",
        "miss/s",
        "scan/s",
        "put p50 us",
        "p99.9 us",
        "worst ms",
        "not stolen",
        "peak MiB",
        "disk MB",
        "(open)",
        "written MB",
    ];
    if setup.settle {
        head.push("settle s");
    }
    if setup.runs > 0 {
        head.extend(["compacted MB", "compaction s", "cpu s", "MB/cpu s"]);
    }
    if setup.updates > 0 {
        head.extend(["update/s", "cpu us", "update disk MB"]);
    }
    if setup.pops > 0 {
        head.push("pop/s");
    }
    if setup.reopen {
        head.extend(["open ms", "first get us"]);
    }
    head.into_iter().map(String::from).collect()
}

fn store_row(run: &Measured) -> Vec<String> {
    let whole = |number: f64| format!("{number:.0}");
    let megabytes = |bytes: u64| whole(bytes as f64 / 1e6);
    let mut row = vec![
        run.engine.clone(),
        whole(run.loads_per_second),
        whole(run.hits_per_second),
        whole(run.misses_per_second),
        whole(run.scans_per_second),
        format!("{:.2}", run.put_p50_us),
        format!("{:.1}", run.put_p999_us),
        format!("{:.1}", run.put_worst_ms),
        format!("{:.1}", run.put_own_worst_ms),
        (run.peak_bytes >> 20).to_string(),
        megabytes(run.disk_bytes),
        megabytes(run.disk_open_bytes),
        megabytes(run.written_bytes),
    ];
    if run.settle_seconds > 0.0 {
        row.push(format!("{:.1}", run.settle_seconds));
    }
    if run.compaction_seconds > 0.0 {
        row.push(megabytes(run.compacted_bytes));
        row.extend([run.compaction_seconds, run.compaction_cpu_seconds].map(|s| format!("{s:.2}")));
        row.push(whole(run.compacted_per_cpu_second() / 1e6));
    }
    if run.updates_per_second > 0.0 {
        row.extend([whole(run.updates_per_second), format!("{:.1}", run.update_cpu_us)]);
        row.push(megabytes(run.update_disk_bytes));
    }
    if run.pops_per_second > 0.0 {
        row.push(whole(run.pops_per_second));
    }
    if let Some(open) = run.open {
        row.extend([format!("{:.1}", open.open_ms), whole(open.first_get_us)]);
    }
    row
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

/// Columns as wide as their widest cell: the first to the left, the others to the right.
fn align(rows: Vec<Vec<String>>) -> String {
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
