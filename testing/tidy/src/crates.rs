//! Crates depend one way, and no file is dead.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files::{Files, rust};

/// A crate's folder, and which others of this repository it may name outside its tests.
pub type Edge<'a> = (&'a str, &'a [&'a str]);

/// The crates of the repository.
pub const EDGES: [Edge<'_>; 20] = [
    ("crates/random", &[]),
    // Only for its tests.
    ("crates/policy", &["random"]),
    ("crates/storage", &[]),
    ("crates/plot", &["policy"]),
    ("crates/foreign", &[]),
    // Faults are for its tests.
    ("crates/engine", &["fault-storage", "policy", "random", "storage"]),
    ("crates/typed", &["engine"]),
    ("crates/kv", &["engine"]),
    (
        "crates/cli",
        &[
            "engine",
            "foreign",
            "kv",
            "plot",
            "policy",
            "random",
            "storage",
            "device",
            "flash",
            "papers",
            "simulator",
            "workloads",
        ],
    ),
    ("devices/rules", &["policy"]),
    ("devices/flash", &["policy", "random", "rules", "storage"]),
    ("devices/device", &["engine", "flash", "kv", "policy"]),
    ("lab/command", &["cli"]),
    ("lab/workloads", &["engine", "kv", "random", "storage"]),
    ("lab/simulator", &["policy", "random", "rules"]),
    (
        "lab/papers",
        &["engine", "flash", "kv", "plot", "policy", "random", "simulator", "storage", "workloads"],
    ),
    ("lab/limits", &["engine", "storage", "workloads"]),
    ("testing/fault-storage", &["random", "storage"]),
    ("testing/sim", &["fault-storage", "engine", "flash", "policy", "random", "simulator"]),
    ("testing/tidy", &[]),
];

/// Manifests name only these crates.
pub fn dependencies(files: &Files, edges: &[Edge<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, allowed) in edges {
        let Some(text) = files.get(&format!("{place}/Cargo.toml")) else {
            found.push(format!("{place}/Cargo.toml: missing"));
            continue;
        };
        for (other, _) in edges {
            let name = other.rsplit('/').next().unwrap_or(other);
            let package = match name {
                "engine" => "runstone".to_string(),
                name => format!("runstone-{name}"),
            };
            let is_named = text.lines().any(|line| {
                let behind = line.strip_prefix(&package);
                behind.is_some_and(|behind| behind.starts_with(['.', ' ']))
            });
            if is_named && other != place && !allowed.contains(&name) {
                found.push(format!("{place}/Cargo.toml must not name {package}"));
            }
        }
    }
    found
}

/// What a program that embeds the store compiles of this repository, besides the store.
pub const OF_STORE: [&str; 3] = ["policy", "random", "storage"];

/// The crates of this repository that a crate needs to be built, in order, without those that only
/// its tests need. `cargo tree -e normal` shows the same.
pub fn brought_along(files: &Files, place: &str) -> Vec<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![place.to_string()]);
    while let Some(place) = waiting.pop() {
        let manifest = files.get(&format!("{place}/Cargo.toml")).map_or("", String::as_str);
        let mut is_normal = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                is_normal = line == "[dependencies]" || line.ends_with(".dependencies]");
            }
            let word = line.split(['.', ' ']).next().unwrap_or_default();
            let Some(name) = word.strip_prefix("runstone-").filter(|_| is_normal) else { continue };
            let others = EDGES.iter().map(|(place, _)| *place);
            let is_named = |place: &&str| place.rsplit('/').next() == Some(name);
            if found.insert(name.to_string()) {
                waiting.extend(others.filter(is_named).map(str::to_string));
            }
        }
    }
    found.into_iter().collect()
}

/// Every Rust file is declared as a module: a file that is not is never compiled.
pub fn dead_files(files: &Files) -> Vec<String> {
    let mut declared = BTreeSet::new();
    for (_, text) in rust(files) {
        for line in text.lines() {
            let line = line.trim_start();
            let prefixes = ["pub(crate) ", "pub(super) ", "pub "];
            let line = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line);
            declared.extend(line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')));
        }
    }
    let is_dead = |place: &&str| {
        let path = Path::new(place);
        let word =
            |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().to_string();
        let (stem, parent) =
            (word(path.file_stem()), word(path.parent().and_then(Path::file_name)));
        let is_target =
            ["tests", "benches", "examples", "bin", "targets"].contains(&parent.as_str());
        let is_root = ["lib", "main", "build"].contains(&stem.as_str());
        let name = if stem == "mod" { parent } else { stem };
        !is_target && !is_root && !declared.contains(name.as_str())
    };
    let dead = rust(files).map(|(place, _)| place).filter(is_dead);
    dead.map(|place| format!("{place}: declared by no module")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn a_dependency_against_the_order_is_found() {
        let edges: [Edge<'_>; 2] = [("crates/policy", &[]), ("crates/engine", &["policy"])];
        let engine = "[dependencies]\nrunstone-policy.workspace = true\n";
        let policy = "[dependencies]\nserde = \"1\"\n";
        let files = |policy| {
            of([("crates/engine/Cargo.toml", engine), ("crates/policy/Cargo.toml", policy)])
        };
        assert!(dependencies(&files(policy), &edges).is_empty());
        let found = dependencies(&files("runstone = \"1\"\n"), &edges);
        assert_eq!(found, ["crates/policy/Cargo.toml must not name runstone"]);
        let found = dependencies(&of([("crates/engine/Cargo.toml", engine)]), &edges);
        assert_eq!(found, ["crates/policy/Cargo.toml: missing"]);
    }

    #[test]
    fn what_a_crate_brings_along_is_followed_but_not_into_tests() {
        let engine = "[dependencies]\nrunstone-kv.workspace = true\n\
            [dev-dependencies]\nrunstone-sim.workspace = true\n";
        let files = of([
            ("crates/engine/Cargo.toml", engine),
            ("crates/kv/Cargo.toml", "[dependencies]\nrunstone-simulator = \"1\"\nserde = \"1\"\n"),
        ]);
        assert_eq!(brought_along(&files, "crates/engine"), ["kv", "simulator"]);
    }

    #[test]
    fn a_dead_file_is_found() {
        let files = of([
            ("a/src/lib.rs", "pub mod one;\nmod folder;\n"),
            ("a/src/one.rs", ""),
            ("a/src/folder/mod.rs", ""),
            ("a/tests/alone.rs", ""),
        ]);
        assert!(dead_files(&files).is_empty());
        let dead = [files, of([("a/src/two.rs", "")])].into_iter().flatten().collect();
        assert_eq!(dead_files(&dead), ["a/src/two.rs: declared by no module"]);
    }
}
