//! Rooms: the top modules of a crate, or those of a folder inside it, and which of them name which.
//! Arrows form no cycle, so that each room can be read knowing only those below it.
//!
//! 1. The files of a crate or folder are sorted by room. Code that only tests compile is left out.
//! 2. A path `crate::room::..`, or a `super` path that leaves the room, is an arrow. An item that
//!    the root re-exports means the room that has it.
//! 3. Rooms that reach each other are one cycle. A room is one floor above the highest room that it
//!    names.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::{Named, is_test_attribute, paths, tokens};
use crate::files::{Files, rust};

/// The rooms of one crate.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    /// By name.
    pub rooms: BTreeMap<String, Room>,
}

/// A top module.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// Lines of its files.
    pub lines: usize,
    /// Longest way down to a room that names no other. The rooms of a cycle share a floor.
    pub floor: usize,
    /// Rooms that it names, with the files that do.
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Rooms of its cycle, if it is in one.
    pub cycle: BTreeSet<String>,
}

/// Folders of all crates.
pub fn crates(files: &Files) -> BTreeSet<&str> {
    let roots = ["/src/lib.rs", "/src/main.rs"];
    let folder = |place| roots.iter().find_map(|root| str::strip_suffix(place, root));
    rust(files).filter_map(|(place, _)| folder(place)).collect()
}

/// Folders inside crates that have rooms of their own.
const INNER: [&str; 1] = ["devices/flash/src/kvssd"];

/// Everything that has rooms: crates, and folders inside them.
pub fn houses(files: &Files) -> BTreeSet<&str> {
    let mut houses = crates(files);
    houses.extend(INNER);
    houses
}

/// No two rooms of a house name each other, directly or through others.
pub fn cycles(files: &Files) -> Vec<String> {
    let of = |folder: &str| {
        let rooms = Rooms::of(files, folder);
        let found = rooms.cycles().into_iter();
        found.map(|cycle| format!("{folder}: {}", rooms.describe(&cycle))).collect::<Vec<_>>()
    };
    houses(files).into_iter().flat_map(of).collect()
}

impl Rooms {
    /// The rooms of the crate in a folder, or of a folder inside a crate.
    pub fn of(files: &Files, folder: &str) -> Rooms {
        let (home, root) = folder.split_once("/src/").unwrap_or((folder, ""));
        let source = format!("{home}/src/");
        let root: Vec<String> = root.split_terminator('/').map(str::to_string).collect();
        let inside: Vec<(&str, &str)> = rust(files)
            .filter_map(|(place, text)| Some((place.strip_prefix(&source)?, text)))
            .filter(|(place, _)| !place.starts_with("bin/") && module_of(place).starts_with(&root))
            .collect();
        let tests = test_modules(&inside);
        let is_test = |place: &str| {
            let module = module_of(place);
            (1..=module.len()).any(|len| tests.contains(&module[..len]))
        };
        let inside: Vec<_> = inside.into_iter().filter(|(place, _)| !is_test(place)).collect();
        let mut found = Rooms::default();
        for (place, text) in &inside {
            if let Some(name) = module_of(place).get(root.len()) {
                found.rooms.entry(name.clone()).or_default().lines += text.lines().count();
            }
        }
        let exports = found.exports(&root, &inside);
        for (place, text) in inside {
            found.add_arrows(&root, place, text, &exports);
        }
        found.find_cycles();
        found.find_floors();
        found
    }

    /// Items that the root re-exports, with their room.
    fn exports(&self, root: &[String], inside: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut exports = BTreeMap::new();
        for (_, text) in inside.iter().filter(|(place, _)| module_of(place) == root) {
            // In the root a path may begin with a room, as well as with `crate`.
            let mut words = tokens(text);
            for at in (1..words.len()).rev() {
                if words[at - 1] == "use" && self.rooms.contains_key(&words[at]) {
                    let names = ["crate".to_string()].into_iter().chain(root.iter().cloned());
                    words.splice(at..at, names.flat_map(|name| [name, "::".to_string()]));
                }
            }
            for named in paths(&words) {
                let room = first_inside(root, root, &named);
                let room = room.filter(|room| self.rooms.contains_key(room));
                exports.extend(room.map(|room| (named.alias, room)));
            }
        }
        exports
    }

    fn add_arrows(
        &mut self,
        root: &[String],
        place: &str,
        text: &str,
        exports: &BTreeMap<String, String>,
    ) {
        let module = module_of(place);
        let Some(own) = module.get(root.len()) else { return };
        for named in paths(&tokens(text)) {
            let Some(first) = first_inside(root, &module, &named) else { continue };
            let target = match self.rooms.contains_key(&first) {
                true => &first,
                false => exports.get(&first).unwrap_or(own),
            };
            if target != own {
                let room = self.rooms.entry(own.clone()).or_default();
                room.names.entry(target.clone()).or_default().insert(place.to_string());
            }
        }
    }

    fn reachable(&self, from: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(room) = waiting.pop() {
            for next in self.rooms[room].names.keys() {
                if reached.insert(next.clone()) {
                    waiting.push(next);
                }
            }
        }
        reached
    }

    fn find_cycles(&mut self) {
        let reach: BTreeMap<String, BTreeSet<String>> =
            self.rooms.keys().map(|name| (name.clone(), self.reachable(name))).collect();
        for (name, room) in &mut self.rooms {
            let both = reach[name].iter().filter(|other| reach[*other].contains(name));
            room.cycle = both.cloned().collect();
        }
    }

    /// Each turn makes one more floor final, from the lowest up, so there are at most as many turns
    /// as rooms.
    fn find_floors(&mut self) {
        for _ in 0..self.rooms.len() {
            let floors: BTreeMap<String, usize> =
                self.rooms.iter().map(|(name, room)| (name.clone(), room.floor)).collect();
            for room in self.rooms.values_mut() {
                let below = room.names.keys().filter(|name| !room.cycle.contains(*name));
                let own = below.map(|name| floors[name] + 1).max().unwrap_or(0);
                let beside = room.cycle.iter().map(|name| floors[name]).max().unwrap_or(0);
                room.floor = own.max(beside);
            }
        }
    }

    /// Every cycle, listed once.
    pub fn cycles(&self) -> BTreeSet<BTreeSet<String>> {
        let cycles = self.rooms.values().map(|room| room.cycle.clone());
        cycles.filter(|cycle| !cycle.is_empty()).collect()
    }

    /// Describes a cycle: which of its rooms names which, and in which files.
    pub fn describe(&self, cycle: &BTreeSet<String>) -> String {
        let mut arrows = Vec::new();
        for name in cycle {
            for (other, files) in &self.rooms[name].names {
                if cycle.contains(other) {
                    let files: Vec<&str> = files.iter().map(String::as_str).collect();
                    arrows.push(format!("{name} names {other} in {}", files.join(", ")));
                }
            }
        }
        format!("a cycle: {}", arrows.join("; "))
    }
}

/// The first name after the root in a path that a module names. `None` if the path leads elsewhere.
fn first_inside(root: &[String], module: &[String], named: &Named) -> Option<String> {
    let kept = named.up.map_or(0, |up| module.len().saturating_sub(up));
    let path = [&module[..kept], &named.names].concat();
    path.strip_prefix(root)?.first().cloned()
}

/// Names from the root of the crate to the module of a file.
fn module_of(place: &str) -> Vec<String> {
    let mut names: Vec<String> =
        place.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    let is_folder = names.last().is_some_and(|last| last == "mod");
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_folder || is_root {
        names.pop();
    }
    names
}

/// Modules that are declared for tests only.
fn test_modules(inside: &[(&str, &str)]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (place, text) in inside {
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            let words = line.trim_end_matches(';').split_whitespace();
            let name = words.skip_while(|word| *word != "mod").nth(1);
            if let Some(name) = name.filter(|_| is_test && line.ends_with(';')) {
                found.insert([module_of(place), vec![name.to_string()]].concat());
            }
            is_test = is_test_attribute(line) || (is_test && line.starts_with("#["));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    const LIB: &str = "pub mod base;\npub mod tree;\npub mod wal;\npub use base::error::Error;\n";

    fn files(base: &str, tree: &str, wal: &str) -> Files {
        of([
            ("a/src/lib.rs", LIB),
            ("a/src/base/mod.rs", "pub mod error;\n"),
            ("a/src/base/error.rs", base),
            ("a/src/tree/mod.rs", "mod record;\n#[cfg(test)]\nmod tests;\n"),
            ("a/src/tree/record.rs", tree),
            ("a/src/tree/tests.rs", "use crate::wal::Wal;\n"),
            ("a/src/wal.rs", wal),
        ])
    }

    #[test]
    fn a_cycle_is_found() {
        let tree = "use crate::base::error::Error;\n";
        assert!(cycles(&files("", tree, "use crate::tree::Tree;")).is_empty());
        let found = cycles(&files("", "use crate::wal::Wal;", "fn f() { crate::tree::g() }"));
        let expected = "a: a cycle: tree names wal in tree/record.rs; wal names tree in wal.rs";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_cycle_over_super_groups_and_exports_is_found() {
        for back in [
            "use super::super::wal::Wal;",
            "use crate::{wal, Error};",
            "type W = super::super::wal::W;",
        ] {
            let found = cycles(&files("use crate::tree::Tree;", back, "use crate::Error;"));
            assert_eq!(found.len(), 1, "{back}: {found:?}");
            assert!(found[0].contains("wal names base in wal.rs"), "{found:?}");
        }
        assert!(cycles(&files("", "use super::sync::Mutex;", "use crate::Error;")).is_empty());
    }

    #[test]
    fn what_is_for_tests_makes_no_arrow() {
        let wal = "use crate::tree::Tree;\n";
        let tree = "#[cfg(test)]\nmod tests {\n    use crate::wal::Wal;\n}\n";
        assert!(cycles(&files("", tree, wal)).is_empty());
    }

    #[test]
    fn a_cycle_of_rooms_inside_a_folder_is_found() {
        let cycle = |low: &str| {
            let inner = "mod high;\nmod low;\npub use high::Top;\n";
            let files = of([
                ("a/src/lib.rs", "mod inner;\nmod other;\n"),
                ("a/src/inner/mod.rs", inner),
                ("a/src/inner/high.rs", "use super::low::Low;\nuse crate::other::Other;\n"),
                ("a/src/inner/low/mod.rs", low),
            ]);
            Rooms::of(&files, "a/src/inner").cycles().len()
        };
        for back in [
            "use crate::inner::high::Top;",
            "use super::Top;",
            "use super::high;",
            "use crate::inner::Top;",
        ] {
            assert_eq!(cycle(back), 1, "{back}");
        }
        assert_eq!(cycle("use crate::other::Top;\nuse crate::high::Top;\n"), 0);
    }

    #[test]
    fn floors_count_from_those_that_name_nothing() {
        let of = files("", "use crate::Error;\n", "use crate::tree::Tree;\nuse crate::Error;\n");
        let rooms = Rooms::of(&of, "a").rooms;
        let floors: Vec<_> = rooms.iter().map(|(name, room)| (&**name, room.floor)).collect();
        assert_eq!(floors, [("base", 0), ("tree", 1), ("wal", 2)]);
        assert_eq!(rooms["wal"].lines, 2);
    }
}
