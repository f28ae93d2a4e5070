//! The picture as SVG, and as an HTML page that needs no other file.

use std::fmt::Write as _;

use runstone::ValueUsage;
use runstone_plot::escape;

use super::{LevelPicture, Picture, value_rows};
use crate::encoding::shown;
use crate::layout::plural;
use crate::output::size;

const WIDTH: usize = 1000;
const MARGIN: usize = 20;
const LABEL_WIDTH: usize = 110;
const RUN_HEIGHT: usize = 18;
const LEVEL_HEIGHT: usize = 30;

/// Draws the picture as an SVG document.
pub fn svg(picture: &Picture) -> String {
    let runs: usize = picture.levels.iter().map(|level| level.runs.len()).sum();
    let groups: usize = picture.values.iter().map(|file| value_rows(file).len()).sum();
    let headings = picture.levels.len() + 2 * picture.values.len() + 3;
    let height = MARGIN * 2 + headings * LEVEL_HEIGHT + (runs + groups) * RUN_HEIGHT;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    );
    let title = format!(
        "keyspace {}: {} in {}, policy {}",
        picture.keyspace,
        size(picture.bytes()),
        plural(picture.table_count() as u64, "table"),
        picture.policy
    );
    let _ = writeln!(text, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>");
    label(&mut text, MARGIN, MARGIN + 4, &title);
    let mut y = MARGIN + 12;
    for level in &picture.levels {
        y = draw_level(&mut text, picture, level, y);
    }
    label(
        &mut text,
        MARGIN,
        y + 22,
        &format!("next compaction: {}", picture.next_compaction_text()),
    );
    draw_slices(&mut text, picture, y + LEVEL_HEIGHT);
    y += 2 * LEVEL_HEIGHT;
    for file in &picture.values {
        y = draw_values(&mut text, file, y);
    }
    text.push_str("</svg>\n");
    text
}

/// Parts of a value file's groups: what they are, and their colours.
const VALUE_PARTS: [(&str, &str); 4] = [
    ("live", "hsl(210,55%,55%)"),
    ("garbage", "hsl(0,55%,55%)"),
    ("kept for snapshots", "hsl(40,75%,55%)"),
    ("in the cold stream", "hsl(210,40%,80%)"),
];

/// A value file: one bar per group, as long as what it holds against the largest.
fn draw_values(text: &mut String, file: &ValueUsage, top: usize) -> usize {
    let retired = if file.retired { ", retired" } else { "" };
    let (placement, bytes) = (file.placement.name(), size(file.bytes()));
    let slots = format!("{} slots of {}", file.used_slots, size(file.slot_bytes));
    let line = format!("{} ({placement}{retired}): {bytes} in {slots}", file.file);
    label(text, MARGIN, top + 20, &line);
    let mut y = top + LEVEL_HEIGHT;
    let rows = value_rows(file);
    let axis_width = (WIDTH - 2 * MARGIN - LABEL_WIDTH) as u64;
    let largest = rows.iter().map(|row| row.bytes()).max().unwrap_or(0).max(1);
    let place = |bytes: u64| (bytes as u128 * axis_width as u128 / largest as u128) as usize;
    for row in &rows {
        let mark = if row.quarantined { " damaged" } else { "" };
        label(text, MARGIN, y + 11, &format!("{} {}{mark}", row.name, size(row.bytes())));
        let mut before = 0;
        for ((name, colour), bytes) in VALUE_PARTS.into_iter().zip(row.parts) {
            let (from, to) = (place(before), place(before + bytes));
            before += bytes;
            let _ = writeln!(
                text,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{colour}\">\
                 <title>{}: {} {name}</title></rect>",
                MARGIN + LABEL_WIDTH + from,
                to - from,
                RUN_HEIGHT - 4,
                row.name,
                size(bytes)
            );
        }
        y += RUN_HEIGHT;
    }
    let mut x = MARGIN + LABEL_WIDTH;
    for (name, colour) in VALUE_PARTS {
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y + 6
        );
        label(text, x + 14, y + 15, name);
        x += 160;
    }
    y + LEVEL_HEIGHT
}

/// The parts of the next compaction as bars, and the bounds of its cells as lines across them.
fn draw_slices(text: &mut String, picture: &Picture, y: usize) {
    let count = picture.parts().count();
    if count == 0 {
        return;
    }
    label(text, MARGIN, y + 11, &plural(count as u64, "part"));
    let axis_width = WIDTH - 2 * MARGIN - LABEL_WIDTH;
    let left = MARGIN + LABEL_WIDTH;
    for (i, part) in picture.parts().enumerate() {
        let (from, to) = picture.place_part(part, axis_width);
        let _ = writeln!(
            text,
            "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\">\
             <title>part {}: {}</title></rect>",
            left + from,
            to - from,
            RUN_HEIGHT - 4,
            ["#bbb", "#ddd"][i % 2],
            i + 1,
            size(part.bytes)
        );
    }
    for cut in picture.cuts() {
        let x = left + picture.place_key(cut, axis_width);
        let to = y + RUN_HEIGHT - 4;
        let _ =
            writeln!(text, "<line x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{to}\" stroke=\"#333\"/>");
    }
}

fn draw_level(text: &mut String, picture: &Picture, level: &LevelPicture, top: usize) -> usize {
    let line = format!("L{}  {}, {}", level.index, level.fill_text(), level.runs_text());
    label(text, MARGIN, top + 20, &line);
    let mut y = top + LEVEL_HEIGHT;
    let axis_width = WIDTH - 2 * MARGIN - LABEL_WIDTH;
    for run in &level.runs {
        let name = run.id.map_or("row".to_string(), |id| format!("run {id}"));
        label(text, MARGIN, y + 11, &format!("{name} {}", size(run.bytes())));
        for table in &run.tables {
            let (from, to) = picture.place(table, axis_width);
            let share = (table.tombstones * 100).checked_div(table.entries).unwrap_or(0);
            // Blue without tombstones, towards red with them.
            let hue = 210_u64.saturating_sub(share * 2);
            let tip = format!(
                "table {}: {}, {}, {}\n{} .. {}",
                table.id,
                size(table.bytes),
                plural(table.entries, "entry"),
                plural(table.tombstones, "tombstone"),
                shown(&table.min_key),
                shown(&table.max_key)
            );
            let _ = writeln!(
                text,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"hsl({hue},55%,55%)\" \
                 stroke=\"#fff\" stroke-width=\"0.5\"><title>{}</title></rect>",
                MARGIN + LABEL_WIDTH + from,
                to - from,
                RUN_HEIGHT - 4,
                escape(&tip)
            );
        }
        y += RUN_HEIGHT;
    }
    y
}

fn label(text: &mut String, x: usize, y: usize, line: &str) {
    let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(line));
}

/// A page with the drawing and a table of the levels.
pub fn html(picture: &Picture) -> String {
    let mut rows = String::new();
    for level in &picture.levels {
        let tombstones = level.tombstone_permille();
        let _ = writeln!(
            rows,
            "<tr><td>L{}</td><td>{}</td><td>{}</td><td>{}.{}%</td></tr>",
            level.index,
            escape(&level.fill_text()),
            escape(&level.runs_text()),
            tombstones / 10,
            tombstones % 10
        );
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <title>runstone: {name}</title>\n\
         <style>body{{font-family:sans-serif;margin:2em}}td,th{{padding:2px 12px;\
         text-align:left}}</style></head>\n<body>\n{svg}\
         <table><tr><th>level</th><th>bytes</th><th>runs</th><th>tombstones</th></tr>\n\
         {rows}</table>\n<p>Tables lie on a common axis of keys, by the rank of their bounds; \
         red ones hold many tombstones. Point at one for its numbers. What a group of a value file \
         has in the cold stream is drawn with the group and with the stream.</p>\n</body></html>\n",
        name = escape(&picture.keyspace),
        svg = svg(picture),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_balanced_and_escaped() {
        let picture = crate::picture::tests::sample();
        let drawn = svg(&picture);
        assert!(drawn.contains("&lt;&amp;&gt;"), "keys are escaped");
        for name in ["svg", "text", "title"] {
            let opened = drawn.matches(&format!("<{name}")).count();
            assert_eq!(opened, drawn.matches(&format!("</{name}>")).count(), "{name}");
        }
        // One per table, and four per group of the value file and its cold stream.
        assert_eq!(drawn.matches("<title>").count(), 5 + 4 * 3);
        assert!(drawn.contains("<title>group 0: 300 garbage</title>"), "{drawn}");
        assert!(drawn.contains("group 0 1.2K damaged"), "{drawn}");
        assert!(html(&picture).ends_with("</body></html>\n"));
    }
}
