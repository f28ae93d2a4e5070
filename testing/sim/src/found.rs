//! Tells whether a check finds a bug: runs work that may panic, and drops what the panic prints.
//! Tests of seeded bugs need this, since the checks of this crate panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use runstone::seeded::{self, Bug};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a check, and once more with a bug seeded, which it must find.
pub fn holds_and_finds(bug: Bug, check: impl Fn()) {
    check();
    assert!(panics(|| seeded::with(bug, &check)), "{bug:?} is not found");
}

/// Whether `work` panics. What it would print is dropped, in this thread only.
pub fn panics(work: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    outcome.is_err()
}
