//! Bugs that tests switch on, to show that they would find them. Compiled only with the feature
//! `seeded-bugs`, which no user turns on; a bug is on for the thread that asked for it.

use std::cell::Cell;

/// A known way to get it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A get in a level whose tables overlap stops at the first table that holds the key, instead
    /// of going on while a newer version is possible (rule I3).
    FirstHitInOverlappingLevel,
    /// A merge drops tombstones whenever its output is the deepest level, although tables outside
    /// the merge may overlap there (rule I4).
    TombstonesDroppedByDepth,
    /// Collection of values keeps only the newest version of each key, whatever snapshots see.
    CollectionForgetsSnapshots,
    /// Collection of a log writes the new place of a value although its key was written since it
    /// was looked up.
    RelocationOverwritesNewer,
}

thread_local! {
    static ON: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Runs `work` with the bug.
pub fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ON.set(None);
        }
    }
    ON.set(Some(bug));
    let _off = Off;
    work()
}

/// Whether the bug is on in this thread.
pub(crate) fn is_on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}
