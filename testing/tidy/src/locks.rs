//! Every lock of the engine has a rank, so that their order is checked where they are taken.

use crate::code::code;
use crate::files::{Files, rust};

/// The engine, and the room whose locks have ranks.
const ENGINE: &str = "crates/engine/src/";
const RANKED: &str = "crates/engine/src/sync/";

/// Locks of the standard library.
const LOCKS: [&str; 3] = ["Mutex", "RwLock", "Condvar"];

/// The engine's sources name no lock without a rank.
pub fn without_rank(files: &Files) -> Vec<String> {
    let engine = |place: &str| place.starts_with(ENGINE) && !place.starts_with(RANKED);
    let sources = rust(files).filter(|(place, _)| engine(place));
    let named = sources.flat_map(|(place, text)| {
        let code = code(text);
        let is_lock = |statement: &&str| {
            let is_std = statement.contains("std::sync::");
            statement.contains("parking_lot")
                || is_std && LOCKS.iter().any(|lock| statement.contains(lock))
        };
        let found = code.split(';').filter(is_lock).count();
        (0..found).map(move |_| format!("{place}: a lock without a rank; crate::sync has others"))
    });
    named.collect()
}

/// How comments state an order of locks.
const ORDERS: [&str; 5] = [
    "lock order:",
    "taken before `",
    "taken after `",
    "before the commit lock.",
    "after the commit lock.",
];

/// The order of locks is stated where it is checked, and nowhere else in the engine.
pub fn order_elsewhere(files: &Files) -> Vec<String> {
    let engine = |place: &str| place.starts_with(ENGINE) && !place.starts_with(RANKED);
    let mut found = Vec::new();
    for (place, text) in rust(files).filter(|(place, _)| engine(place)) {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_start().to_lowercase();
            if line.starts_with("//") && ORDERS.iter().any(|order| line.contains(order)) {
                found.push(format!("{place}:{number}: an order of locks; {RANKED}rank.rs has it"));
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
    fn a_lock_without_a_rank_is_found() {
        for bad in [
            "use parking_lot::Mutex;",
            "static A: std::sync::Mutex<u8> = a();",
            "use std::sync::{Arc, RwLock};",
        ] {
            let found = without_rank(&of([("crates/engine/src/write/log.rs", bad)]));
            assert_eq!(found.len(), 1, "{bad}");
        }
        let good = [
            ("crates/engine/src/sync/ranked.rs", "use parking_lot::Mutex;"),
            ("crates/cli/src/main.rs", "use parking_lot::Mutex;"),
            ("crates/engine/src/a.rs", "use crate::sync::Mutex;\n// parking_lot\n"),
            (
                "crates/engine/src/b.rs",
                "#[cfg(test)]\nmod tests {\n    use parking_lot::Mutex;\n}\n",
            ),
        ];
        assert!(without_rank(&of(good)).is_empty());
    }

    #[test]
    fn a_second_order_of_locks_is_found() {
        let place = "crates/engine/src/write/commit.rs";
        for bad in ["/// Held by a load. Taken before `large`.", "//! Lock order: a, then b."] {
            assert_eq!(order_elsewhere(&of([(place, bad)])).len(), 1, "{bad}");
        }
        let good = [
            ("crates/engine/src/sync/ranked.rs", "// Lock order: by rank."),
            (
                "crates/engine/src/a.rs",
                "// Taken before the view.\nlet what = \"lock order: none\";\n",
            ),
        ];
        assert!(order_elsewhere(&of(good)).is_empty());
    }
}
