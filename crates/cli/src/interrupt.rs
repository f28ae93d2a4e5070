//! Signals. At Ctrl-C, commands that may take long and can end between two entries do so, and clean
//! up. Elsewhere the signal ends the process, which does no harm to a store.

use std::os::raw::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};

use signal_hook::consts::SIGXFSZ;
pub use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Exit, Failure, Result};

static IS_ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes a signal request the command's end. A second signal ends the process, because some steps
/// do not check for the request.
pub fn watch(signals: &[c_int]) {
    for signal in signals {
        let register = |asked: &Arc<AtomicBool>| {
            let end = Exit::Interrupted as c_int;
            signal_hook::flag::register_conditional_shutdown(*signal, end, Arc::clone(asked))?;
            signal_hook::flag::register(*signal, Arc::clone(asked))
        };
        // Only a signal that cannot be caught is refused.
        let _ = register(&IS_ASKED);
    }
}

/// Makes a write beyond the limit of file sizes fail, so that the command can say so. Without this,
/// a signal would end the process without a message.
pub fn fail_at_limit() {
    // Only a signal that cannot be caught is refused.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// An error once the command has been asked to end.
pub fn check() -> Result<()> {
    match IS_ASKED.load(Relaxed) {
        true => Err(Failure::new(Exit::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// Forgets an earlier request to end.
pub fn clear() {
    IS_ASKED.store(false, Relaxed);
}
