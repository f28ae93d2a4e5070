//! Runs every program of `examples/`. A program that fails, or is not named here, fails a test.
//! Each program is a module here, so its `main` is `pub(crate)`, which has no effect on the program
//! itself.

use std::collections::BTreeSet;
use std::path::Path;

const MOST_LINES: usize = 80;

macro_rules! examples {
    ($($name:ident)+) => {
        #[path = "../examples"]
        mod programs {
            $(pub mod $name;)+
        }

        const NAMES: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                programs::$name::main().expect("the example runs");
            }
        )+
    };
}

examples! {
    async_tokio backup bulk_import cache_with_expiry compaction_filter counters custom_policy
    custom_storage events_and_metrics first_store large_values many_stores queue secondary_index
    snapshots time_series transactions
}

#[test]
fn every_example_is_run_and_short() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(directory).expect("the examples") {
        let path = file.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines: split it", path.display());
        found.insert(path.file_stem().expect("a name").to_string_lossy().into_owned());
    }
    let run: BTreeSet<String> = NAMES.iter().map(|name| name.to_string()).collect();
    assert_eq!(found, run, "name each example in tests/examples.rs");
}
