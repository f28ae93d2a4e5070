//! A process or a machine that stops: at every I/O operation of the simulated storage, and at any
//! moment on real files. Not here: operations that fail (`faults`), bytes that change
//! (`corruption`).

mod awaited;
mod every_operation;
mod in_a_row;
mod kill;
mod option_changes;
mod owner;
mod power_cut;
mod seeded;
mod soak;

use std::sync::{Mutex, MutexGuard};

/// Keeps the tests on real files from running at the same time. A child process holds a copy of
/// every open file until its own program runs, so a store that another test reopens at that moment
/// seems to be in use.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
