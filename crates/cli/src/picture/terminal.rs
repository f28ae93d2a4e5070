//! The picture in characters: one line per run.
//!
//! ```text
//! L1  96M of 256M (37%)  1 run, wanted 1, of 3 tables  tombstones 0.2%
//!     run 12      96M  ████▓▓▓▓▓···███
//! ```

use runstone::ValueUsage;
use runstone_policy::text::format_key;

use super::{Picture, RunPicture, ValueRow, cells, left_out, tombstone_permille, value_rows};
use crate::layout::{fold, plural};
use crate::output::size;

const LABEL_COLUMNS: usize = 22;
/// If a level has more runs, one line sums them up.
const MOST_RUNS: usize = 24;
/// Labels of the axis, if there is room for all.
const MOST_TICKS: usize = 4;

/// Draws the picture; each line takes at most `columns`, or 60 if that is less.
pub fn draw(picture: &Picture, columns: usize) -> String {
    let width = columns.clamp(60, 200) - LABEL_COLUMNS;
    let mut text = format!(
        "keyspace {}: {} in {}, policy {}; not flushed yet: {}\n",
        picture.keyspace,
        size(picture.bytes()),
        plural(picture.table_count() as u64, "table"),
        picture.policy,
        size(picture.memtable_bytes)
    );
    if !picture.features.is_empty() {
        text.push_str(&format!("{}\n", picture.features.join("; ")));
    }
    for level in &picture.levels {
        let tombstones = level.tombstone_permille();
        text.push_str(&format!(
            "L{}  {}  {}  tombstones {}.{}%",
            level.index,
            level.fill_text(size),
            level.runs_text(),
            tombstones / 10,
            tombstones % 10
        ));
        let (ranges, expiring) = level.range_deletes_and_expiring();
        for (name, count) in [("range deletes", ranges), ("expiring", expiring)] {
            if count > 0 {
                text.push_str(&format!("  {name} {count}"));
            }
        }
        text.push('\n');
        for run in level.runs.iter().take(MOST_RUNS) {
            text.push_str(&draw_run(picture, run, width));
        }
        if level.runs.len() > MOST_RUNS {
            let bytes: u64 = level.runs.iter().skip(MOST_RUNS).map(RunPicture::bytes).sum();
            let more = level.runs.len() - MOST_RUNS;
            text.push_str(&format!("    and {more} more with {}\n", size(bytes)));
        }
    }
    if !picture.axis.is_empty() {
        text.push_str(&draw_axis(picture, width));
    }
    text.push_str(&format!("next compaction: {}\n", picture.next_compaction_text()));
    text.push_str(&draw_slices(picture, width));
    picture.values.iter().for_each(|file| text.push_str(&draw_values(file, width)));
    fold(&text, width + LABEL_COLUMNS)
}

/// A value file: one bar per group, whose length is its size relative to the largest group.
fn draw_values(file: &ValueUsage, width: usize) -> String {
    let bytes = file.bytes();
    let mut text = format!(
        "values {} ({}{}): {} in {} slots of {}\n    garbage {}, found dead {}, for snapshots {}, \
         cold {}\n",
        file.file,
        file.placement.name(),
        if file.retired { ", retired" } else { "" },
        size(bytes),
        file.used_slots,
        size(file.slot_bytes),
        size(file.garbage_bytes()),
        size(file.sum(|group| group.dead_bytes)),
        size(file.sum(|group| group.pinned_bytes)),
        size(file.sum(|group| group.cold_bytes)),
    );
    let rows = value_rows(file);
    let largest = rows.iter().map(ValueRow::bytes).max().unwrap_or(0).max(1);
    for row in rows.iter().take(MOST_RUNS) {
        let mut bar = String::new();
        let (mut bytes, mut drawn) = (0, 0);
        for (part, cell) in row.parts.into_iter().zip(["█", "░", "▒", "▓"]) {
            // Each part ends at its exact place, however the parts before it were rounded.
            bytes += part;
            let end = (u128::from(bytes) * width as u128 / u128::from(largest)) as usize;
            bar.push_str(&cell.repeat(end - drawn));
            drawn = end;
        }
        let mark = if row.quarantined { '!' } else { ' ' };
        let (name, bytes) = (&row.name, size(row.bytes()));
        text.push_str(&format!("    {name:<9}{bytes:>7}{mark} {bar}\n"));
    }
    if rows.len() > MOST_RUNS {
        let rest: u64 = rows.iter().skip(MOST_RUNS).map(ValueRow::bytes).sum();
        let more = rows.len() - MOST_RUNS;
        text.push_str(&format!("    and {more} more with {}\n", size(rest)));
    }
    let legend = "█ live  ░ garbage  ▒ for snapshots  ▓ in the cold stream  ! damaged";
    text.push_str(&format!("    {legend}\n"));
    text
}

/// The cells of the next compaction, and its parts, on the axis of the tree.
fn draw_slices(picture: &Picture, width: usize) -> String {
    if picture.parts().next().is_none() {
        return String::new();
    }
    let mut bounds = vec!['·'; width];
    for cut in picture.cuts() {
        let at = picture.axis.at(cut);
        bounds[cells((at, at), width).0] = '│';
    }
    let mut parts = vec!['·'; width];
    for (i, part) in picture.parts().enumerate() {
        let (from, to) = cells(picture.part(part), width);
        parts[from..to].fill(if i % 2 == 0 { '█' } else { '▓' });
    }
    let line = |name: &str, count: usize, drawn: Vec<char>| {
        let drawn: String = drawn.into_iter().collect();
        format!("    {name:<9}{count:>7}  {drawn}\n")
    };
    // Every compaction has one more cell than cuts.
    let cell_count = picture.cuts().count() + picture.slices.len();
    line("cells", cell_count, bounds) + &line("parts", picture.parts().count(), parts)
}

/// Keys of the store at their places: both ends, and those that fit in between.
fn draw_axis(picture: &Picture, width: usize) -> String {
    let from = left_out(&picture.axis);
    let dots = if from > 0 { ".." } else { "" };
    let label = |key: &[u8]| format!("{dots}{}", format_key(key.get(from..).unwrap_or(&[])));
    let ticks = picture.axis.ticks(MOST_TICKS);
    // A single key has only one end.
    let (before, last) = match &ticks[..] {
        [before @ .., (_, last)] if !before.is_empty() => (before, label(last)),
        all => (all, String::new()),
    };
    let end = width.saturating_sub(last.chars().count());
    let mut line = String::new();
    for (at, (place, key)) in before.iter().enumerate() {
        let (label, used) = (label(key), line.chars().count());
        let length = label.chars().count();
        // Each label but the first is centred at its place.
        let left = (place * width as f64) as usize;
        let left = if at == 0 { 0 } else { left.saturating_sub(length / 2) };
        if at == 0 || left >= used + 2 && left + length + 2 <= end {
            line.push_str(&" ".repeat(left.saturating_sub(used)));
            line.push_str(&label);
        }
    }
    let gap = end.saturating_sub(line.chars().count()).max(1);
    let margin = LABEL_COLUMNS;
    let line = format!("{:margin$}{line}{:gap$}{last}", "", "");
    format!("{}\n{:margin$}█▓ tables by turns  ▚ several  · none\n", line.trim_end(), "")
}

fn draw_run(picture: &Picture, run: &RunPicture, width: usize) -> String {
    let label = match run.id {
        Some(id) => format!("run {id}"),
        None => "row".to_string(),
    };
    let mut drawn = vec!['·'; width];
    let mut filled_to = 0;
    for (i, table) in run.tables.iter().enumerate() {
        let (from, to) = picture.place(table, width);
        let fill = if i % 2 == 0 { '█' } else { '▓' };
        for (at, cell) in drawn.iter_mut().enumerate().take(to).skip(from) {
            // Tables of a run are disjoint: if two share a cell, the picture is too narrow.
            *cell = if at < filled_to { '▚' } else { fill };
        }
        filled_to = filled_to.max(to);
    }
    let tombstones = tombstone_permille(run.tables.iter());
    let mark = if tombstones >= 500 { '†' } else { ' ' };
    let drawn: String = drawn.into_iter().collect();
    format!("    {label:<9}{:>7}{mark} {drawn}\n", size(run.bytes()))
}

#[cfg(test)]
mod tests {
    use runstone_policy::partition::slices::{Slice, Slices};

    use super::*;

    #[test]
    fn lines_fit_the_terminal() {
        let picture = crate::picture::tests::sample();
        let text = draw(&picture, 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("L0  9M of 12M (75%)  3 overlapping tables"), "{text}");
        assert!(text.contains(" \"<&>\" ") && text.contains(" \"z\"\n"), "{text}");
        assert!(!text.contains("parts"), "{text}");
        assert!(text.contains("run 7") && text.contains("next compaction: none is due"), "{text}");
    }

    #[test]
    fn the_next_compaction_shows_its_cells_and_parts() {
        let mut picture = crate::picture::tests::sample();
        let key = |key: &[u8]| Some(Box::from(key));
        let part = |lo, hi| Slice { lo, hi, bytes: 5 };
        picture.slices = vec![Slices {
            moves: vec![],
            cuts: vec![(*b"b").into(), (*b"n").into()],
            slices: vec![part(None, key(b"n")), part(key(b"n"), None)],
        }];
        let text = draw(&picture, 80);
        let line = |name: &str| text.lines().find(|line| line.trim().starts_with(name)).unwrap();
        assert!(line("cells").contains("3  ") && line("cells").matches('│').count() == 2, "{text}");
        let parts = line("parts");
        assert!(parts.contains("2  ") && parts.contains("█▓") && !parts.contains('·'), "{text}");
        assert_eq!(parts.chars().count(), line("run 7").chars().count(), "{text}");
    }
}
