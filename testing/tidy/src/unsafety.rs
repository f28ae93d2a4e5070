//! Unsafe code is in listed modules only, and these modules number their obligations.

use crate::code::code;
use crate::files::{Files, rust};

/// The only modules with unsafe code.
pub const MODULES: [&str; 19] = [
    "bindings/java/native/src/bytes.rs",
    "crates/engine/src/memory/region.rs",
    "crates/engine/src/memory/slabs.rs",
    "crates/engine/src/memtable/arena.rs",
    "crates/engine/src/memtable/btree/mod.rs",
    "crates/engine/src/memtable/btree/position.rs",
    "crates/engine/src/memtable/btree/tally.rs",
    "crates/engine/src/memory/prefetch.rs",
    "crates/engine/src/read/lent.rs",
    "crates/engine/src/visibility/standing.rs",
    "lab/peers/src/peers/leveldb.rs",
    "lab/peers/src/peers/lmdb.rs",
    "testing/sim/tests/crash/owner.rs",
    "testing/sim/tests/crash/power_cut.rs",
    "crates/storage/src/fork.rs",
    "crates/storage/src/mapped.rs",
    "crates/storage/src/uring.rs",
    "crates/storage/src/page_cache.rs",
    "crates/storage/src/write_back.rs",
];

/// Folders in which each function receives pointers from another language. Each block there states
/// its reason; what callers must guarantee is in their header.
const BOUNDARIES: [&str; 1] = ["bindings/c/"];

/// Unsafe code is where it is listed, with a comment for each block.
pub fn unsafe_code(files: &Files, listed: &[&str]) -> Vec<String> {
    // Assembled from parts, so that the check does not report this file.
    let openings = [["unsafe", " {"].concat(), ["unsafe", " impl"].concat()];
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        let is_listed = listed.contains(&place);
        let is_boundary = BOUNDARIES.iter().any(|folder| place.starts_with(folder));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let blocks = code.filter(|line| openings.iter().any(|open| line.contains(open))).count();
        let words = text.contains("bligation") || text.contains("//! * O1");
        match (blocks > 0, is_listed) {
            _ if is_boundary => {}
            (true, false) => found.push(format!("{place}: unsafe code in an unlisted module")),
            (false, true) => found.push(format!("{place}: listed, but without unsafe code")),
            (true, true) if !words => found.push(format!("{place}: obligations are missing")),
            _ => {}
        }
        if (is_listed || is_boundary) && text.matches("SAFETY:").count() < blocks {
            found.push(format!("{place}: {blocks} unsafe blocks, fewer SAFETY comments"));
        }
    }
    found
}

/// A file's unsafe code outside its tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Blocks.
    pub blocks: usize,
    /// Lines of these blocks that contain code, braces included.
    pub lines: usize,
    /// Lines of the file that contain code.
    pub all_lines: usize,
}

/// Counts a file.
pub fn figures(text: &str) -> Figures {
    let opening = ["unsafe", " {"].concat();
    let text = code(text);
    let mut found = Figures::default();
    // How many braces are open inside a block; none outside.
    let mut depth = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        found.all_lines += 1;
        let from = if depth > 0 { Some(0) } else { line.find(&opening) };
        let Some(from) = from else { continue };
        found.lines += 1;
        found.blocks += line.matches(&opening).count();
        for sign in line[from..].chars() {
            match sign {
                '{' => depth += 1,
                // After the end of the block other braces may close.
                '}' if depth > 0 => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

/// The figures of each file with unsafe code as text, and their sums below `folders`.
pub fn report(files: &Files, folders: &[&str]) -> String {
    let mut text = String::new();
    for folder in folders {
        let mut sum = Figures::default();
        let is_counted = |place: &str| place.starts_with(folder) && !place.contains("/tests/");
        for (place, source) in rust(files).filter(|(place, _)| is_counted(place)) {
            let here = figures(source);
            sum.all_lines += here.all_lines;
            if here.blocks > 0 {
                sum.blocks += here.blocks;
                sum.lines += here.lines;
                text += &format!("{:5} blocks {:5} lines  {place}\n", here.blocks, here.lines);
            }
        }
        let Figures { blocks, lines, all_lines } = sum;
        text += &format!("{blocks:5} blocks {lines:5} lines of {all_lines}  {folder}\n\n");
    }
    text
}

/// The document that says how much unsafe code there is.
const COUNTED: &str = "docs/faults.md";

/// The document's numbers of blocks are those of the sources. It does not say how many lines they
/// have, because lines change with every formatting.
pub fn miscounted(files: &Files) -> Vec<String> {
    let text = files.get(COUNTED).map_or("", |text| text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let counts = ["crates/", "bindings/", "devices/"].map(|folder| (folder, sum(files, folder)));
    let says = |(folder, count): &(&str, usize)| match count {
        0 => format!("none in `{folder}`"),
        1 => format!("1 block in `{folder}`"),
        count => format!("{count} blocks in `{folder}`"),
    };
    let wrong = counts.iter().map(says).filter(|said| !text.contains(said));
    wrong.map(|said| format!("{COUNTED} does not say \"{said}\"")).collect()
}

/// Blocks below a folder, outside tests.
fn sum(files: &Files, folder: &str) -> usize {
    let is_counted = |place: &str| place.starts_with(folder) && !place.contains("/tests/");
    let counted = rust(files).filter(|(place, _)| is_counted(place));
    counted.map(|(_, text)| figures(text).blocks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    fn block(before: &str) -> String {
        format!("{before}\nfn f() {{\n    {} {{ g() }}\n}}\n", "unsafe")
    }

    #[test]
    fn unsafe_code_that_is_not_listed_is_found() {
        let text = block("//! * O1 it holds. SAFETY: it does.");
        assert!(unsafe_code(&of([("a.rs", &text)]), &["a.rs"]).is_empty());
        let found = unsafe_code(&of([("a.rs", &text)]), &[]);
        assert_eq!(found, ["a.rs: unsafe code in an unlisted module"]);
    }

    #[test]
    fn obligations_and_reasons_that_are_missing_are_found() {
        let found = unsafe_code(&of([("a.rs", &block(""))]), &["a.rs"]);
        let expected =
            ["a.rs: obligations are missing", "a.rs: 1 unsafe blocks, fewer SAFETY comments"];
        assert_eq!(found, expected);
        let found = unsafe_code(&of([("a.rs", "fn f() {}\n")]), &["a.rs"]);
        assert_eq!(found, ["a.rs: listed, but without unsafe code"]);
    }

    #[test]
    fn lines_of_blocks_are_counted() {
        let one = format!("fn f() {{ {} {{ g() }} }}\n", "unsafe");
        assert_eq!(figures(&one), Figures { blocks: 1, lines: 1, all_lines: 1 });
        let more = format!("let a = {} {{\n    // Why.\n    g({{ 1 }})\n}};\nh();\n", "unsafe");
        assert_eq!(figures(&more), Figures { blocks: 1, lines: 3, all_lines: 4 });
        let test = format!("#[cfg(test)]\nmod tests {{\n    {one}}}\n");
        assert_eq!(figures(&test).blocks, 0);
        let files = of([("a/b.rs", &one), ("c/d.rs", &more)]);
        assert!(report(&files, &["a/"]).ends_with("    1 blocks     1 lines of 1  a/\n\n"));
    }

    #[test]
    fn a_number_of_blocks_that_is_out_of_date_is_found() {
        let text = format!("{}{}", block("fn a() {}"), block("fn b() {}"));
        let counted = |said: &str| {
            miscounted(&of([
                ("crates/a/src/a.rs", &text),
                ("crates/a/tests/b.rs", &text),
                ("bindings/c.rs", &block("fn c() {}")),
                (COUNTED, said),
            ]))
        };
        let right = "There are 2 blocks in `crates/`, 1 block in\n`bindings/`, none in `devices/`.";
        assert_eq!(counted(right), [""; 0]);
        let found = counted(&right.replace("2 blocks", "3 blocks"));
        assert_eq!(found, ["docs/faults.md does not say \"2 blocks in `crates/`\""]);
    }
}
