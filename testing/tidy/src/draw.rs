//! The rooms of a crate as text, and as a graph for Graphviz.

use std::fmt::Write;

use crate::rooms::{Room, Rooms};

/// Cycles first, then the floors from the top: each room, its lines, and which files name others.
pub fn text(folder: &str, rooms: &Rooms) -> String {
    let mut out = format!("{folder}\n");
    for cycle in rooms.cycles() {
        let _ = writeln!(out, "  {}", rooms.describe(&cycle));
    }
    for (name, room) in from_the_top(rooms) {
        let _ = writeln!(out, "  {} {name}, {} lines", room.floor, room.lines);
        for (other, files) in &room.names {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let _ = writeln!(out, "      {other}: {}", files.join(" "));
        }
    }
    out
}

/// A graph whose ranks are the floors; arrows of a cycle are red.
pub fn dot(folder: &str, rooms: &Rooms) -> String {
    let mut out = format!("digraph \"{folder}\" {{\n  node [shape=box];\n");
    for (name, room) in from_the_top(rooms) {
        let _ = writeln!(out, "  \"{name}\" [label=\"{name}\\n{} lines\"];", room.lines);
        for (other, files) in &room.names {
            let color = if room.cycle.contains(other) { ", color=red" } else { "" };
            let _ = writeln!(out, "  \"{name}\" -> \"{other}\" [label={}{color}];", files.len());
        }
    }
    let top = rooms.rooms.values().map(|room| room.floor).max().unwrap_or(0);
    for floor in 0..=top {
        let on = rooms.rooms.iter().filter(|(_, room)| room.floor == floor);
        let names: String = on.map(|(name, _)| format!(" \"{name}\";")).collect();
        let _ = writeln!(out, "  {{ rank=same;{names} }}");
    }
    out + "}\n"
}

fn from_the_top(rooms: &Rooms) -> Vec<(&String, &Room)> {
    let mut all: Vec<_> = rooms.rooms.iter().collect();
    all.sort_by_key(|(_, room)| std::cmp::Reverse(room.floor));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn both_drawings_show_rooms_arrows_and_cycles() {
        let files = of([
            ("a/src/lib.rs", "mod b;\nmod c;\nmod d;\n"),
            ("a/src/b.rs", "use crate::c::C;\n"),
            ("a/src/c.rs", "use crate::b::B;\nuse crate::d::D;\n"),
            ("a/src/d.rs", ""),
        ]);
        let rooms = Rooms::of(&files, "a");
        let expected = "a\n  a cycle: b names c in b.rs; c names b in c.rs\n  1 b, 1 lines\n      \
                        c: b.rs\n  1 c, 2 lines\n      b: c.rs\n      d: c.rs\n  0 d, 0 lines\n";
        assert_eq!(text("a", &rooms), expected);
        let dot = dot("a", &rooms);
        assert!(dot.contains("\"b\" -> \"c\" [label=1, color=red];"), "{dot}");
        assert!(dot.contains("\"c\" -> \"d\" [label=1];"), "{dot}");
        assert!(dot.contains("{ rank=same; \"b\"; \"c\"; }"), "{dot}");
    }
}
