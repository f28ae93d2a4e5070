//! Unsafe code lives in listed modules only, and those number their obligations.

use crate::files::{Files, rust};

/// The only modules with unsafe code.
pub const MODULES: [&str; 16] = [
    "bindings/java/native/src/bytes.rs",
    "crates/engine/src/memory/region.rs",
    "crates/engine/src/memory/slabs.rs",
    "crates/engine/src/memtable/arena.rs",
    "crates/engine/src/memtable/btree.rs",
    "crates/engine/src/base/prefetch.rs",
    "crates/engine/src/read/lent.rs",
    "crates/engine/src/visibility/standing.rs",
    "lab/peers/src/peers/leveldb.rs",
    "lab/peers/src/peers/lmdb.rs",
    "testing/sim/tests/crash/owner.rs",
    "testing/sim/tests/crash/power_cut.rs",
    "crates/storage/src/fork.rs",
    "crates/storage/src/mapped.rs",
    "crates/storage/src/uring.rs",
    "crates/storage/src/write_back.rs",
];

/// Where each function takes pointers of another language. Each block has its reason there; what
/// callers owe stands in their header.
const BOUNDARIES: [&str; 1] = ["bindings/c/"];

/// Unsafe code is where it is listed, with a comment for each block.
pub fn unsafe_code(files: &Files, listed: &[&str]) -> Vec<String> {
    // Put together, so that this file does not find itself.
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
}
