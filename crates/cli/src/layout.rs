//! Text within the columns of a terminal: folded lines, tables, plurals.

use std::io::{self, IsTerminal};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A column of words is not made narrower than this.
const LEAST_WORDS: usize = 20;

/// The number in the variable COLUMNS, or else the columns of the terminal, or else 100.
pub fn terminal_columns() -> usize {
    columns_of(&Table::new()).unwrap_or(100)
}

fn columns_of(terminal: &Table) -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    set.or(terminal.width().map(usize::from)).filter(|columns| *columns > 0)
}

/// The same for the terminal that shows errors; no bound if errors do not go to a terminal.
pub fn stderr_columns() -> usize {
    match io::stderr().is_terminal() {
        true => columns_of(Table::new().use_stderr()).unwrap_or(usize::MAX),
        false => usize::MAX,
    }
}

/// `1 table`, `2 tables`, `2 entries`, `2 keys`, `2 flushes`.
pub fn plural(count: u64, one: &str) -> String {
    let stem = one.strip_suffix('y').filter(|stem| !stem.ends_with('e'));
    match (count, stem) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if one.ends_with("sh") => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}

/// Breaks lines at blanks where they are longer than `width`; continuation lines are indented by
/// four columns more than the line.
pub fn fold(text: &str, width: usize) -> String {
    let mut folded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let blanks = line.len() - line.trim_start().len();
        let indent = (blanks + 4).min(width / 2);
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let len = word.trim_end().chars().count();
            if column + len > width && column > indent {
                folded.truncate(folded.trim_end_matches(' ').len());
                folded.push('\n');
                folded.push_str(&" ".repeat(indent));
                column = indent;
            }
            folded.push_str(word);
            column += word.chars().count();
        }
        folded.push_str(end);
    }
    folded
}

/// Lays out a table. Numbers are aligned to the right, words to the left. If the table is wider
/// than `width`, its last column is folded, provided that this column contains words and has room.
/// Otherwise the table is split into several, which all begin with the first column.
pub fn columns(header: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let cells = |i: usize| rows.iter().filter_map(move |row| row.get(i).map(String::as_str));
    let is_number = |i: usize| {
        let numbers = cells(i).filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
        i > 0 && numbers.count() * 2 > rows.len()
    };
    let breadth = |i: usize| {
        let longest = cells(i).chain([header[i]]).map(|cell| cell.chars().count()).max();
        longest.unwrap_or(0) + 2
    };
    let all: Vec<usize> = (0..header.len()).collect();
    let total: usize = all.iter().map(|i| breadth(*i)).sum();
    let Some(last) = header.len().checked_sub(1).filter(|_| total > width.saturating_add(2)) else {
        return table(header, rows, &all, &is_number);
    };
    let others = total - breadth(last);
    let is_folded = !is_number(last) && others + LEAST_WORDS <= width;
    let beside = if is_folded { others } else { breadth(0) };
    let mut rows = rows.to_vec();
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(last)) {
        *cell = fold(cell, width.saturating_sub(beside).max(LEAST_WORDS)).replace("\n    ", "\n");
    }
    if is_folded {
        return table(header, &rows, &all, &is_number);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut taken = usize::MAX;
    for i in all.into_iter().skip(1) {
        if taken.saturating_add(breadth(i)) > width {
            parts.push(vec![0]);
            taken = breadth(0);
        }
        taken += breadth(i);
        if let Some(part) = parts.last_mut() {
            part.push(i);
        }
    }
    let parts = parts.iter().map(|part| table(header, &rows, part, &is_number));
    parts.collect::<Vec<_>>().join("\n")
}

/// A table of some of the columns.
fn table(
    header: &[&str],
    rows: &[Vec<String>],
    shown: &[usize],
    is_number: &dyn Fn(usize) -> bool,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown.iter().map(|i| header[*i]));
    for row in rows {
        table.add_row(shown.iter().map(|i| row.get(*i).map_or("", String::as_str)));
    }
    for (i, column) in shown.iter().zip(table.column_iter_mut()) {
        column.set_padding((if *i == 0 { 0 } else { 1 }, 1));
        if is_number(*i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals() {
        let told = [(0, "table"), (1, "table"), (2, "entry"), (1, "entry"), (2, "key")];
        assert_eq!(
            told.map(|(n, one)| plural(n, one)),
            ["0 tables", "1 table", "2 entries", "1 entry", "2 keys"]
        );
    }

    #[test]
    fn lines_are_folded_at_blanks() {
        assert_eq!(fold("one two three\nfour\n", 8), "one two\n    three\nfour\n");
        assert_eq!(fold("  one two three", 9), "  one two\n    three");
        assert_eq!(fold("longer-than-that x", 8), "longer-than-that\n    x");
        assert_eq!(fold("as it is", usize::MAX), "as it is");
    }

    #[test]
    fn tables_stay_within_their_width() {
        let rows = vec![
            ["first", "1000000", "2000000", "it is described by some words"]
                .map(String::from)
                .to_vec(),
            ["second", "1", "2", "so is this"].map(String::from).to_vec(),
        ];
        let header = ["name", "count", "bytes", "what it is"];
        for width in [usize::MAX, 45, 40, 20] {
            let text = columns(&header, &rows, width);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= width.max(29), "{width}:\n{text}");
            let words = rows.iter().flatten().flat_map(|cell| cell.split(' '));
            words.for_each(|word| assert!(text.contains(word), "{width}: {word}\n{text}"));
        }
        assert_eq!(columns(&header, &rows, usize::MAX).lines().count(), 3);
    }
}
