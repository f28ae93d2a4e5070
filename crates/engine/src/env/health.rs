//! Whether an open store accepts writes: writable, out of space or of open files, or stopped by a
//! failure.

use std::sync::atomic::{AtomicU8, Ordering::*};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, rank};

use crate::callbacks::event::Event;
use crate::env::Env;
use crate::error::{Error, Result};

const WRITABLE: u8 = 0;
const NO_SPACE: u8 = 1;
const STOPPED: u8 = 2;

/// How long to wait before a job that found the disk full, or could open no file, is tried again.
pub(crate) const NO_SPACE_RETRY: Duration = Duration::from_millis(250);

/// Whether writes are accepted, and if not, why.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: AtomicU8,
    cause: Mutex<rank::Health, Option<(Error, Instant)>>,
}

impl Env {
    /// Refuses writes while the disk is full (P9) or after a failure (P7).
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_caller()?;
        if self.health.state.load(Acquire) == WRITABLE && !self.options.read_only {
            return Ok(());
        }
        self.check_writable_slow()
    }

    /// Refuses jobs in a stopped store. Without space, jobs may run, because they free space, and
    /// find out when there is space again.
    pub(crate) fn check_not_stopped(&self) -> Result<()> {
        match self.check_writable() {
            Err(error) if error.is_transient() => Ok(()),
            outcome => outcome,
        }
    }

    fn check_writable_slow(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut cause = self.health.cause.lock();
        match (self.health.state.load(Acquire), &mut *cause) {
            (STOPPED, Some((error, _))) => Err(Error::Stopped { cause: Box::new(error.clone()) }),
            // The caller runs the jobs, which find out whether there is space again.
            (NO_SPACE, Some(_)) if self.is_manual() => Ok(()),
            (NO_SPACE, Some((error, tried))) => {
                // Now and then one write is let through to find out whether there is space again.
                // If nothing is left to flush, no background job would find out.
                if tried.elapsed() >= NO_SPACE_RETRY {
                    *tried = Instant::now();
                    return Ok(());
                }
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }

    /// Returns the error of the last failure, unless the failure is over.
    pub(crate) fn check_healthy(&self) -> Result<()> {
        match (self.health.state.load(Acquire), &*self.health.cause.lock()) {
            (STOPPED, Some((error, _))) => Err(Error::Stopped { cause: Box::new(error.clone()) }),
            (NO_SPACE, Some((error, _))) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Stops writes: no write is acknowledged until the store is reopened.
    pub(crate) fn stop_writes(&self, error: &Error) {
        let error = match error {
            Error::Stopped { cause } => cause,
            error => error,
        };
        let mut cause = self.health.cause.lock();
        let is_news = self.health.state.swap(STOPPED, AcqRel) != STOPPED;
        if is_news {
            *cause = Some((error.clone(), Instant::now()));
        }
        drop(cause);
        self.throttle.wake();
        // Last, because a listener may panic.
        if is_news {
            tracing::error!(%error, "writes are stopped until the store is reopened");
            self.emit(|| Event::BackgroundError { error: error.clone() });
        }
    }

    /// Notes that a job or a log append failed. If the disk was full or too many files were open,
    /// no bytes were left behind, and the store waits until this is over. Any other failure may
    /// have left unknown bytes, and stops writes.
    pub(crate) fn note_job_error(&self, error: &Error) {
        if !error.is_transient() {
            return self.stop_writes(error);
        }
        let mut cause = self.health.cause.lock();
        let changed = self.health.state.compare_exchange(WRITABLE, NO_SPACE, AcqRel, Acquire);
        if changed == Err(NO_SPACE) {
            // The time of the last try stays.
            cause.iter_mut().for_each(|(last, _)| *last = error.clone());
        }
        if changed.is_ok() {
            tracing::warn!(%error, "writes are refused until the cause is gone");
            *cause = Some((error.clone(), Instant::now()));
            drop(cause);
            self.emit(|| Event::BackgroundError { error: error.clone() });
        }
        self.throttle.wake();
    }

    /// Notes that a job or a write succeeded, so the disk is no longer full, and the process may
    /// open files.
    pub(crate) fn note_success(&self) {
        if self.health.state.load(Relaxed) != NO_SPACE {
            return;
        }
        // Under the lock, so that a concurrent failure does not lose its cause.
        let mut cause = self.health.cause.lock();
        if self.health.state.compare_exchange(NO_SPACE, WRITABLE, AcqRel, Acquire).is_ok() {
            *cause = None;
            drop(cause);
            self.emit(|| Event::Recovered);
        }
    }

    /// Whether a failure stopped the store.
    pub(crate) fn is_stopped(&self) -> bool {
        self.health.state.load(Acquire) == STOPPED
    }

    /// Whether the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        let cause = || self.health.cause.lock();
        self.is_out_of_space() && cause().as_ref().is_some_and(|(error, _)| error.is_no_space())
    }

    /// Whether the store waits because the disk is full, or too many files are open.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.health.state.load(Acquire) == NO_SPACE
    }
}
