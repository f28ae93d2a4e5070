//! Form of files: first lines, columns, lengths of functions, unfinished work, documents.

use crate::files::{Files, rust};

const MAX_COLUMNS: usize = 100;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 800;

/// Documents that must exist.
pub const DOCUMENTS: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/formats.md",
    "docs/limits.md",
];

/// Every Rust file opens with what it is.
pub fn first_lines(files: &Files) -> Vec<String> {
    let bare = rust(files).filter(|(_, text)| !text.starts_with("//! "));
    bare.map(|(place, _)| format!("{place}: line 1 is not a `//!` doc")).collect()
}

/// Lines of Rust files fit the limit of columns, and do not end with a space.
pub fn columns(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                found.push(format!("{place}:{number}: {columns} columns"));
            }
            if line.ends_with(' ') {
                found.push(format!("{place}:{number}: trailing space"));
            }
        }
    }
    found
}

/// Functions are short: from `fn` to the brace that closes at the same indentation, which rustfmt
/// guarantees.
pub fn function_lengths(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            let opens = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn "];
            let is_one_line = trimmed.ends_with([';', '}']);
            if !opens.iter().any(|open| trimmed.starts_with(open)) || is_one_line {
                continue;
            }
            let closing = format!("{}}}", " ".repeat(line.len() - trimmed.len()));
            let end = lines[start..].iter().position(|line| *line == closing);
            let length = end.map_or(1, |end| end + 1);
            if length > MAX_FUNCTION_LINES {
                found.push(format!("{place}:{}: {length} lines: {trimmed}", start + 1));
            }
        }
    }
    found
}

/// Sources and tests can be read in one sitting.
pub fn file_lengths(files: &Files) -> Vec<String> {
    let lengths = rust(files).map(|(place, text)| (place, text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > MAX_FILE_LINES);
    long.map(|(place, lines)| format!("{place}: {lines} lines")).collect()
}

/// Nothing is left unfinished, switched off or silenced.
pub fn unfinished(files: &Files) -> Vec<String> {
    // Assembled from parts, so that the check does not report this file.
    let banned = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
        ["#[ig", "nore"].concat(),
        ["allow(dead", "_code)"].concat(),
        ["allow(un", "used"].concat(),
        ["dbg", "!("].concat(),
    ];
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(word) = banned.iter().find(|word| line.contains(*word)) {
                found.push(format!("{place}:{number}: {word}"));
            }
        }
    }
    found
}

/// Each table of a document has a head: a blank line in a table ends it, and the rows below it
/// would show as text.
pub fn tables(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in files.iter().filter(|(place, _)| place.ends_with(".md")) {
        let lines: Vec<&str> = text.lines().collect();
        let is_row = |at: Option<&&str>| at.is_some_and(|line| line.starts_with('|'));
        let mut is_code = false;
        for (at, line) in lines.iter().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let begins = !is_code
                && line.starts_with('|')
                && !is_row(at.checked_sub(1).and_then(|before| lines.get(before)));
            let has_head = lines.get(at + 1).is_some_and(|next| next.starts_with("|-"));
            if begins && !has_head {
                found.push(format!("{place}:{}: a table without a head", at + 1));
            }
        }
    }
    found
}

/// Documents that say what is essential, and how many lines they may have: whoever adds to one
/// shortens it elsewhere.
pub const SHORT: [(&str, usize); 2] = [("ARCHITECTURE.md", 300), ("CHANGELOG.md", 60)];

/// Documents that must be short are short.
pub fn document_lengths(files: &Files, short: &[(&str, usize)]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, most) in short {
        let lines = files.get(*place).map_or(0, |text| text.lines().count());
        if lines > *most {
            found.push(format!("{place}: {lines} lines, of at most {most}"));
        }
    }
    found
}

/// Documents exist and their lines fit. Tables and links are exempt: they cannot be folded.
pub fn documents(files: &Files, documents: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for place in documents {
        let Some(text) = files.get(*place) else {
            found.push(format!("{place}: missing"));
            continue;
        };
        for (number, line) in (1..).zip(text.lines()) {
            let (columns, is_free) = (line.chars().count(), line.starts_with('|'));
            if columns > MAX_COLUMNS && !is_free && !line.contains("](") {
                found.push(format!("{place}:{number}: {columns} columns"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn a_file_without_its_first_line_is_found() {
        assert!(first_lines(&of([("a.rs", "//! What it is.\n")])).is_empty());
        let files = of([("a.rs", "//! What it is.\n"), ("b.rs", "fn f() {}\n"), ("c.md", "text")]);
        assert_eq!(first_lines(&files), ["b.rs: line 1 is not a `//!` doc"]);
    }

    #[test]
    fn a_wide_line_and_a_trailing_space_are_found() {
        let (fits, wide) = ("ü".repeat(100), "ü".repeat(101));
        assert!(columns(&of([("a.rs", &fits)])).is_empty());
        let text = format!("{fits}\n{wide}\nlast \n");
        assert_eq!(
            columns(&of([("a.rs", &text)])),
            ["a.rs:2: 101 columns", "a.rs:3: trailing space"]
        );
    }

    #[test]
    fn a_long_function_is_found() {
        let of_lines = |count: usize| {
            let body = "        work();\n".repeat(count - 2);
            format!("impl A {{\n    pub fn long() {{\n{body}    }}\n}}\n")
        };
        assert!(function_lengths(&of([("a.rs", &of_lines(70))])).is_empty());
        let found = function_lengths(&of([("a.rs", &of_lines(71))]));
        assert_eq!(found, ["a.rs:2: 71 lines: pub fn long() {"]);
    }

    #[test]
    fn a_long_file_is_found() {
        let (fits, long) = ("//! A.\n".repeat(800), "//! A.\n".repeat(801));
        let found = file_lengths(&of([("a.rs", &fits), ("b.rs", &long)]));
        assert_eq!(found, ["b.rs: 801 lines"]);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert!(unfinished(&of([("a.rs", "fn f() {}\n")])).is_empty());
        let later = ["to", "do!("].concat();
        let text = format!("fn f() {{\n    {later})\n}}\n");
        assert_eq!(unfinished(&of([("a.rs", &text)])), [format!("a.rs:2: {later}")]);
        let silenced = ["#[allow(dead", "_code)]"].concat();
        assert_eq!(unfinished(&of([("a.rs", &silenced)])).len(), 1);
    }

    #[test]
    fn a_document_that_grew_is_found() {
        let (fits, long) = ("word\n".repeat(60), "word\n".repeat(61));
        let short = [("A.md", 60), ("B.md", 60)];
        let found = document_lengths(&of([("A.md", &fits), ("B.md", &long)]), &short);
        assert_eq!(found, ["B.md: 61 lines, of at most 60"]);
    }

    #[test]
    fn a_table_that_is_cut_is_found() {
        let whole = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n```\n| left | right |\n```\n";
        assert!(tables(&of([("a.md", whole)])).is_empty());
        let cut = whole.replace("| 3 |", "\n| 3 |");
        assert_eq!(tables(&of([("a.md", &cut)])), ["a.md:5: a table without a head"]);
    }

    #[test]
    fn a_missing_document_and_a_wide_one_are_found() {
        let wide = "word ".repeat(30);
        let free = format!("| {wide}|\n[name]({wide}](\n");
        assert!(documents(&of([("A.md", &free)]), &["A.md"]).is_empty());
        let found = documents(&of([("A.md", &wide)]), &["A.md", "B.md"]);
        assert_eq!(found, ["A.md:1: 150 columns", "B.md: missing"]);
    }
}
