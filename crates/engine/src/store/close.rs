//! The orderly end of a store.

use std::sync::atomic::Ordering::Release;

use crate::base::error::Result;
use crate::jobs::runner::MOST_FLUSHES;
use crate::store::engine::Engine;

impl Engine {
    /// First half of closing: refuses writes, and lets background work end after the current job.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.committer.close();
        self.env.throttle.wake();
        self.schedule.close();
        Ok(())
    }

    /// Second half, when no worker runs: flushes all memtables, so that the next open finds no log,
    /// or leaves them to the log if the options say so.
    pub(crate) fn finish_close(&self) -> Result<()> {
        self.schedule.wait_for_all();
        let outcome = match self.env.options.read_only || self.env.is_stopped() {
            true => Ok(()),
            false => self.settle_log(),
        };
        self.runner.purge();
        for keyspace in self.catalog.keyspaces.read().values() {
            keyspace.closed.store(true, Release);
        }
        *self.lock.lock() = None;
        outcome
    }

    fn settle_log(&self) -> Result<()> {
        let keyspaces = self.catalog.unflushed.all();
        if self.env.options.flush_at_close || keyspaces.is_empty() {
            self.committer.rotate(&keyspaces, |_| true);
            for together in keyspaces.chunks(MOST_FLUSHES) {
                while self.runner.flusher.flush_oldest(together)? {}
            }
            self.committer.remove_log();
        } else {
            self.committer.leave_log()?;
        }
        match &mut self.catalog.manifest.lock().log {
            Some(manifest) => manifest.prepare_current().and_then(|()| manifest.switch_current()),
            None => Ok(()),
        }
    }
}
