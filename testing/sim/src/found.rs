//! Finds out whether a check finds a bug: runs work that may panic, and drops the output of the
//! panic. Tests of seeded bugs need this, since the checks of this crate panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use runstone::seeded::{self, Bug};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a check twice: as it is, and with a seeded bug, which the check must find.
pub fn holds_and_finds(bug: Bug, check: impl Fn()) {
    check();
    assert!(panics(|| seeded::with(bug, &check)), "{bug:?} is not found");
}

/// Like [`holds_and_finds`], for a bug that an assertion of the engine stops before any answer is
/// wrong: the panic message contains `what`. Without the assertion the check finds the bug too.
pub fn holds_and_trips(bug: Bug, what: &str, check: impl Fn()) {
    check();
    let said = panic_of(|| seeded::with(bug, &check));
    let said = said.unwrap_or_else(|| panic!("{bug:?} is not found"));
    assert!(said.contains(what), "{bug:?} is found by another check: {said}");
    let finds = || seeded::without_assertions(|| seeded::with(bug, &check));
    assert!(panics(finds), "{bug:?} is found by the assertion alone");
}

/// Whether `work` panics. Its output is dropped, in this thread only.
pub fn panics(work: impl FnOnce()) -> bool {
    panic_of(work).is_some()
}

/// The message of the panic of `work`, which is not printed.
pub fn panic_of(work: impl FnOnce()) -> Option<String> {
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
    let panic = outcome.err()?;
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}
