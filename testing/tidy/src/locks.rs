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
}
