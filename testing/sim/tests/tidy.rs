//! Style is a test: what a reader may rely on in every file of the repository.
//!
//! * line 1 of every Rust file is a `//!` doc; lines have at most 100 columns, functions 70 lines;
//! * unsafe code lives in the listed modules only, and those number their obligations;
//! * dependencies between crates run one way; no file is dead; nothing is left unfinished.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_COLUMNS: usize = 100;
const MAX_FUNCTION_LINES: usize = 70;
/// The only modules with unsafe code.
const UNSAFE_MODULES: [&str; 6] = [
    "crates/engine/src/memtable/arena.rs",
    "crates/engine/src/memtable/btree.rs",
    "crates/engine/src/base/prefetch.rs",
    "testing/sim/tests/crash/power_cut.rs",
    "crates/storage/src/mapped.rs",
    "crates/storage/src/uring.rs",
];
/// Folders of crates.
const GROUPS: [&str; 4] = ["crates", "devices", "lab", "testing"];
/// Crates, and which others of this repository each may name outside its tests.
const EDGES: [(&str, &[&str]); 12] = [
    ("crates/policy", &[]),
    ("crates/storage", &[]),
    ("crates/plot", &["policy"]),
    ("crates/engine", &["policy", "storage"]),
    (
        "crates/cli",
        &["engine", "plot", "policy", "storage", "device", "flash", "papers", "workloads"],
    ),
    ("devices/flash", &["policy", "storage"]),
    ("devices/device", &["engine", "flash"]),
    ("lab/command", &["cli"]),
    ("lab/workloads", &["engine"]),
    ("lab/papers", &["engine", "flash", "plot", "workloads"]),
    ("lab/limits", &["engine", "workloads"]),
    ("testing/sim", &["engine", "flash"]),
];

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("testing/sim is two below the root").to_path_buf()
}

fn rust_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut waiting = GROUPS.map(|group| root().join(group)).to_vec();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("named").to_string_lossy().to_string();
            if path.is_dir() && name != "target" {
                waiting.push(path);
            } else if name.ends_with(".rs") {
                let place = path.strip_prefix(root()).expect("inside").display().to_string();
                files.push((place, fs::read_to_string(&path).expect("utf-8")));
            }
        }
    }
    files.sort();
    assert!(files.len() > 60, "{} files", files.len());
    files
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let bare = rust_files().into_iter().filter(|(_, text)| !text.starts_with("//! "));
    report(bare.map(|(place, _)| format!("{place}: line 1 is not a `//!` doc")).collect());
}

#[test]
fn lines_fit() {
    let mut problems = Vec::new();
    for (place, text) in rust_files() {
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > MAX_COLUMNS {
                problems.push(format!("{place}:{}: {} columns", number + 1, line.chars().count()));
            }
            if line.ends_with(' ') {
                problems.push(format!("{place}:{}: trailing space", number + 1));
            }
        }
    }
    report(problems);
}

/// Lines of each function: from its `fn` to the brace that closes at the same indentation, which
/// rustfmt guarantees.
#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    for (place, text) in rust_files() {
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            let opens = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn "];
            if !opens.iter().any(|open| trimmed.starts_with(open)) || trimmed.ends_with(';') {
                continue;
            }
            let indent = line.len() - trimmed.len();
            let closing = format!("{}}}", " ".repeat(indent));
            let rest = &lines[start..];
            let length = rest.iter().position(|line| *line == closing).map_or(1, |end| end + 1);
            if length > MAX_FUNCTION_LINES {
                problems.push(format!("{place}:{}: {length} lines: {trimmed}", start + 1));
            }
        }
    }
    report(problems);
}

#[test]
fn unsafe_code_is_where_it_is_listed() {
    let mut problems = Vec::new();
    for (place, text) in rust_files() {
        let is_listed = UNSAFE_MODULES.contains(&place.as_str());
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let blocks = code.filter(|l| l.contains("unsafe {") || l.contains("unsafe impl")).count();
        let words = text.contains("bligation") || text.contains("//! * O1");
        match (blocks > 0, is_listed) {
            (true, false) if !place.ends_with("tidy.rs") => {
                problems.push(format!("{place}: unsafe code in an unlisted module"));
            }
            (false, true) => problems.push(format!("{place}: listed, but without unsafe code")),
            (true, true) if !words => problems.push(format!("{place}: obligations are missing")),
            _ => {}
        }
        if is_listed && text.matches("SAFETY:").count() < blocks {
            problems.push(format!("{place}: {blocks} unsafe blocks, fewer SAFETY comments"));
        }
    }
    report(problems);
}

#[test]
fn dependencies_run_one_way() {
    let mut problems = Vec::new();
    for (place, allowed) in EDGES {
        let manifest = root().join(place).join("Cargo.toml");
        let text = fs::read_to_string(manifest).expect("every crate has one");
        for (other, _) in EDGES {
            let name = other.rsplit('/').next().expect("a folder in a group");
            let package = match name {
                "engine" => "runstone".to_string(),
                name => format!("runstone-{name}"),
            };
            let named = text.lines().any(|line| {
                line.starts_with(&format!("{package}.")) || line.starts_with(&format!("{package} "))
            });
            if named && other != place && !allowed.contains(&name) {
                problems.push(format!("{place}/Cargo.toml must not name {package}"));
            }
        }
    }
    report(problems);
}

/// A file that nothing declares as a module is compiled by nobody.
#[test]
fn no_file_is_dead() {
    let files = rust_files();
    let mut declared = BTreeSet::new();
    for (_, text) in &files {
        for line in text.lines() {
            let line = line.trim_start();
            let line = ["pub(crate) ", "pub(super) ", "pub "]
                .iter()
                .find_map(|prefix| line.strip_prefix(prefix))
                .unwrap_or(line);
            if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                declared.insert(name.to_string());
            }
        }
    }
    let roots = ["lib", "main", "build"];
    let mut problems = Vec::new();
    for (place, _) in &files {
        let path = Path::new(place);
        let stem = path.file_stem().expect("named").to_string_lossy().to_string();
        let parent = path.parent().and_then(Path::file_name).expect("named").to_string_lossy();
        let is_target = ["tests", "benches", "examples", "bin", "targets"].contains(&&*parent);
        let name = if stem == "mod" { parent.to_string() } else { stem.clone() };
        if !is_target && !roots.contains(&stem.as_str()) && !declared.contains(&name) {
            problems.push(format!("{place}: declared by no module"));
        }
    }
    report(problems);
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together, so that this file does not find itself.
    let banned = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
        ["#[ig", "nore"].concat(),
        ["allow(dead", "_code)"].concat(),
        ["allow(un", "used"].concat(),
        ["dbg", "!("].concat(),
    ];
    let mut problems = Vec::new();
    for (place, text) in rust_files() {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| line.contains(*word)) {
                problems.push(format!("{place}:{}: {word}", number + 1));
            }
        }
    }
    report(problems);
}

#[test]
fn documents_exist_and_their_lines_fit() {
    let mut problems = Vec::new();
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/formats.md",
        "docs/limits.md",
    ];
    for place in documents {
        let Ok(text) = fs::read_to_string(root().join(place)) else {
            problems.push(format!("{place}: missing"));
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            // Tables and links cannot be folded.
            let is_free = line.starts_with('|') || line.contains("](");
            if line.chars().count() > MAX_COLUMNS && !is_free {
                problems.push(format!("{place}:{}: {} columns", number + 1, line.chars().count()));
            }
        }
    }
    report(problems);
}
