//! Runs claimed jobs. However a job ends, its claim is released and its error is noted. A job that
//! panics stops the store.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::catalog::Catalog;
use crate::env::Env;
use crate::env::health::NO_SPACE_RETRY;
use crate::error::{Error, Result};
use crate::schedule::Schedule;

/// Runs jobs that have claims.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) schedule: Arc<Schedule>,
}

impl Supervisor {
    /// Runs a job and releases its claim, even if the job panics: the thread may be a user's, which
    /// continues, and others wait for the job.
    pub(crate) fn run_claimed<T>(&self, claim: u64, job: impl FnOnce() -> T) -> T {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        if outcome.is_err() {
            self.stop_after_panic();
        }
        self.schedule.release(claim);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Stops the store after a job panicked. It may have left half a change in memory, so no write
    /// may be acknowledged, and no edit logged on top of it.
    pub(crate) fn stop_after_panic(&self) {
        let error = Error::invalid("a job panicked", "reopen the store and report the panic");
        // The listener that panicked may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| self.env.stop_writes(&error)));
        self.catalog.break_manifest();
    }

    /// Notes how a job ended, and returns `true` if it succeeded. `shows_space` means that the job
    /// fails on a full disk, so its success shows that there is space.
    pub(crate) fn note(&self, outcome: Result<()>, shows_space: bool) -> bool {
        match &outcome {
            Ok(()) if shows_space => self.env.note_success(),
            Ok(()) | Err(Error::Closed | Error::UnknownKeyspace { .. }) => {}
            Err(error) => {
                if error.is_transient() && !self.env.is_manual() {
                    self.schedule.lock().retry_at = Some(Instant::now() + NO_SPACE_RETRY);
                }
                self.env.note_job_error(error);
            }
        }
        outcome.is_ok()
    }
}
