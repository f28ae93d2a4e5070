//! Turns a tree into rows of bars, which `runstone-plot` draws, and into a table of its levels.

use std::fmt::Write as _;

use runstone::ValueUsage;
use runstone_plot::picture::Paint;
use runstone_plot::rows::{Bar, Row, Rows, Section};
use runstone_plot::{escape, format_size};
use runstone_policy::shape::Table;

use super::{LevelPicture, Picture, ValueRow, left_out, value_rows};
use crate::encoding::shown;
use crate::layout::plural;
use crate::opened::Caption;

/// If a section has more rows than this, one line sums up the rest.
const MOST_ROWS: usize = 60;
/// Labels of the axis, if all of them fit.
const TICKS: usize = 9;
/// Colours of tables by their tombstones, of compactions, and of value files.
const PAINTS: [Paint; 10] = [
    Paint { fill: "#3f83c6", name: "table without tombstones" },
    Paint { fill: "#8a72c2", name: "up to 10% tombstones" },
    Paint { fill: "#d9962b", name: "up to 50% tombstones" },
    Paint { fill: "#cf4a3c", name: "more than 50% tombstones" },
    Paint { fill: "#8f8f8f", name: "parts of the next compaction, by turns" },
    Paint { fill: "#bdbdbd", name: "and the others" },
    Paint { fill: "#2f9e77", name: "live values" },
    Paint { fill: "#a8643c", name: "garbage" },
    Paint { fill: "#e3c14f", name: "garbage that snapshots keep" },
    Paint { fill: "#86bcd9", name: "values in the cold stream" },
];
const FIRST_PART: usize = 4;
const FIRST_VALUE: usize = 6;

/// The rows that are to be drawn.
pub fn rows(picture: &Picture, caption: &Caption) -> Rows {
    let mut sections: Vec<Section> = picture.levels.iter().map(|l| level(picture, l)).collect();
    sections.push(next_compaction(picture));
    sections.extend(picture.values.iter().map(values));
    Rows {
        title: format!("{}, keyspace {}", caption.store, picture.keyspace),
        notes: notes(picture, caption),
        paints: PAINTS.to_vec(),
        ticks: ticks(picture),
        sections,
    }
}

fn notes(picture: &Picture, caption: &Caption) -> Vec<String> {
    let mut notes = vec![
        caption.taken.clone(),
        format!(
            "{} in {}, policy {}; not flushed yet: {}",
            format_size(picture.bytes()),
            plural(picture.table_count() as u64, "table"),
            picture.policy,
            format_size(picture.memtable_bytes)
        ),
    ];
    notes.extend((!picture.features.is_empty()).then(|| picture.features.join("; ")));
    let from = left_out(&picture.axis);
    if let Some((first, _)) = picture.axis.ends() {
        let prefix = format!("Keys begin with {}.", shown(&first[..from]));
        notes.extend((from > 0).then_some(prefix));
        notes.push("Across: keys, each as far right as there are bytes below it.".into());
    }
    notes
}

/// The labels of the axis: keys of the store, without their common prefix.
fn ticks(picture: &Picture) -> Vec<(f64, String)> {
    let from = left_out(&picture.axis);
    let dots = if from > 0 { "…" } else { "" };
    let label = |key: &[u8]| match key.get(from..) {
        Some([]) | None => format!("{dots}(nothing)"),
        Some(rest) => format!("{dots}{}", shown(rest)),
    };
    picture.axis.ticks(TICKS).into_iter().map(|(place, key)| (place, label(key))).collect()
}

fn level(picture: &Picture, level: &LevelPicture) -> Section {
    let rows = level.runs.iter().take(MOST_ROWS).map(|run| Row {
        name: run.id.map_or("row".to_string(), |id| format!("run {id}")),
        size: format_size(run.bytes()),
        bars: run.tables.iter().map(|one| table(picture, one)).collect(),
        lines: Vec::new(),
    });
    let rest = level.runs.iter().skip(MOST_ROWS).map(|run| run.bytes());
    Section {
        heading: format!("L{}: {}", level.index, level_facts(level).join(", ")),
        is_on_axis: true,
        rows: rows.collect(),
        rest: rest_of(level.runs.len(), rest.sum()),
    }
}

/// Bytes, runs, and other figures of a level.
fn level_facts(level: &LevelPicture) -> Vec<String> {
    let (ranges, expiring) = level.range_deletes_and_expiring();
    let mut facts = vec![level.fill_text(format_size), level.runs_text()];
    let counts = [(ranges, "range delete"), (expiring, "expiring entry")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    facts.extend(counts.map(|(count, what)| plural(count, what)));
    facts
}

fn rest_of(rows: usize, bytes: u64) -> String {
    match rows.checked_sub(MOST_ROWS) {
        None | Some(0) => String::new(),
        Some(more) => format!("and {more} more with {}", format_size(bytes)),
    }
}

fn table(picture: &Picture, table: &Table) -> Bar {
    let permille = (table.tombstones * 1000).checked_div(table.entries).unwrap_or(0);
    let paint = match permille {
        _ if table.tombstones == 0 => 0,
        0..=100 => 1,
        101..=500 => 2,
        _ => 3,
    };
    let (from, to) = picture.axis.span(&table.min_key, &table.max_key);
    let mut tip = format!(
        "table {}: {}, {}, {}",
        table.id,
        format_size(table.bytes),
        plural(table.entries, "entry"),
        plural(table.tombstones, "tombstone"),
    );
    let counts =
        [(table.range_deletes, "range delete"), (table.expiries.entries, "expiring entry")];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(tip, ", {}", plural(count, what));
    }
    let _ = write!(tip, "\n{} .. {}", shown(&table.min_key), shown(&table.max_key));
    Bar { from, to, paint, tip }
}

/// The parts of a compaction on the axis of the tree, and the bounds of its cells as lines across
/// them.
fn next_compaction(picture: &Picture) -> Section {
    let parts = picture.parts().enumerate().map(|(at, part)| {
        let (from, to) = picture.part(part);
        let tip = format!("part {}: {}", at + 1, format_size(part.bytes));
        Bar { from, to, paint: FIRST_PART + at % 2, tip }
    });
    let bars: Vec<Bar> = parts.collect();
    let cells = picture.cuts().count() + picture.slices.len();
    let row = Row {
        name: plural(bars.len() as u64, "part"),
        size: plural(cells as u64, "cell"),
        lines: picture.cuts().map(|cut| picture.axis.at(cut)).collect(),
        bars,
    };
    let mut heading = format!("next compaction: {}", picture.next_compaction_text());
    if !row.lines.is_empty() {
        heading.push_str("; lines are bounds of cells");
    }
    let rows = if row.bars.is_empty() { Vec::new() } else { vec![row] };
    Section { heading, is_on_axis: !rows.is_empty(), rows, rest: String::new() }
}

/// A value file: one bar per group, whose length is its size relative to the largest group.
fn values(file: &ValueUsage) -> Section {
    let groups = value_rows(file);
    let largest = groups.iter().map(ValueRow::bytes).max().unwrap_or(0).max(1);
    let rows = groups.iter().take(MOST_ROWS).map(|group| {
        let mut before = 0;
        let parts = group.parts.into_iter().enumerate().map(|(at, bytes)| {
            let from = before as f64 / largest as f64;
            before += bytes;
            let name = PAINTS[FIRST_VALUE + at].name;
            let tip = format!("{}: {} {name}", group.name, format_size(bytes));
            (bytes, Bar { from, to: before as f64 / largest as f64, paint: FIRST_VALUE + at, tip })
        });
        let bars = parts.filter(|(bytes, _)| *bytes > 0).map(|(_, bar)| bar).collect();
        let mark = if group.quarantined { ", damaged" } else { "" };
        let name = format!("{}{mark}", group.name);
        Row { name, size: format_size(group.bytes()), bars, lines: Vec::new() }
    });
    let retired = if file.retired { ", retired" } else { "" };
    let (placement, bytes) = (file.placement.name(), format_size(file.bytes()));
    let slots = format!("{} slots of {}", file.used_slots, format_size(file.slot_bytes));
    let rest = groups.iter().skip(MOST_ROWS).map(ValueRow::bytes).sum();
    Section {
        heading: format!("values {} ({placement}{retired}): {bytes} in {slots}", file.file),
        is_on_axis: false,
        rows: rows.collect(),
        rest: rest_of(groups.len(), rest),
    }
}

/// A table of the levels, and an explanation of the drawing.
pub fn below(picture: &Picture) -> String {
    if picture.table_count() == 0 && picture.values.is_empty() {
        return "<p>There are no tables yet.</p>\n".to_string();
    }
    let mut rows = String::new();
    for level in &picture.levels {
        let tombstones = level.tombstone_permille();
        // Writing to a string cannot fail.
        let _ = writeln!(
            rows,
            "<tr><td>L{}</td><td>{}</td><td>{}</td><td>{}.{}%</td></tr>",
            level.index,
            escape(&level.fill_text(format_size)),
            escape(&level.runs_text()),
            tombstones / 10,
            tombstones % 10
        );
    }
    let values = match picture.values.is_empty() {
        true => "",
        false => {
            " What a group of a value file has in the cold stream is drawn with the group and with \
             the stream."
        }
    };
    format!(
        "<table><tr><th>level</th><th>bytes</th><th>runs</th><th>tombstones</th></tr>\n\
         {rows}</table>\n<p>Tables lie where their keys do: a place on the axis is the fraction of \
         all bytes below its key, reckoned from the bounds and sizes of tables. Tables that share \
         keys lie above each other. Point at one for its numbers.{values}</p>\n"
    )
}

#[cfg(test)]
mod tests {
    use runstone_plot::page::{html, svg};
    use runstone_plot::picture::Picture as _;

    use super::*;

    fn caption() -> Caption {
        Caption { store: "a & b".into(), taken: "2026-11-27 17:30 UTC".into() }
    }

    #[test]
    fn the_drawing_tells_what_it_is() {
        let picture = crate::picture::tests::sample();
        let rows = rows(&picture, &caption());
        let drawn = rows.draw(960.0).svg;
        for text in [
            "a &amp; b, keyspace default",
            "2026-11-27 17:30 UTC",
            "&lt;&amp;&gt;",
            ">up to 10% tombstones<",
            ">garbage<",
            ">group 0, damaged<",
            ">1.2 KiB<",
            "<title>group 0: 300 B garbage</title>",
        ] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(!drawn.contains("without tombstones"), "what is not drawn is not in the legend");
        // One title per table, and one per part of a group that is not empty.
        assert_eq!(drawn.matches("<title>").count(), 5 + 4 + 1 + 1);
        assert!(html(&rows, &below(&picture)).ends_with("</body></html>\n"));
        assert!(svg(&rows).ends_with("</svg>\n"));
        let empty = Picture { levels: Vec::new(), values: Vec::new(), ..picture };
        assert!(below(&empty).contains("no tables yet"));
    }

    #[test]
    fn what_all_keys_begin_with_is_told_once() {
        let mut picture = crate::picture::tests::sample();
        picture.axis = crate::picture::tests::axis(&[
            (b"tenant/000000/accounts/1", b"tenant/000000/accounts/5\xff"),
            (b"tenant/000000/accounts/7", b"tenant/000000/accounts/9"),
        ]);
        let rows = rows(&picture, &caption());
        assert!(rows.notes.contains(&"Keys begin with tenant/000000/accounts/.".to_string()));
        let labels: Vec<&str> = rows.ticks.iter().map(|(_, label)| &label[..]).collect();
        assert_eq!(labels, ["…1", "…5\\xff", "…7", "…9"]);
    }
}
