//! The orderly end of a store.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::jobs::runner::MOST_FLUSHES;
use crate::store::engine::Engine;

impl Engine {
    /// The first half of a close: refuses writes, and lets background work end after the current
    /// job.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.committer.close();
        self.env.throttle.wake();
        self.schedule.close();
        Ok(())
    }

    /// The second half of a close, when no worker runs: flushes all memtables, so that the next
    /// open finds no log. If the options say so, their contents stay in the log instead.
    pub(crate) fn finish_close(&self) -> Result<()> {
        self.requests.close();
        self.scrubbing.wait();
        self.schedule.wait_for_all();
        let options = &self.env.options;
        let outcome = match options.read_only || self.env.is_stopped() {
            // Without a log, the unflushed writes of a stopped store are lost.
            true if !options.has_log() && !options.read_only => self.env.check_not_stopped(),
            true => Ok(()),
            false => self.settle_log(),
        };
        self.runner.purge();
        for keyspace in self.catalog.keyspaces.read().values() {
            keyspace.closed.store(true, Release);
        }
        let is_flushed = self.env.options.has_log() && self.catalog.unflushed.all().is_empty();
        self.committer.end_awaited(&outcome, is_flushed && !self.env.options.read_only);
        self.publishing.close(&*self.env.storage);
        *self.lock.lock() = None;
        outcome
    }

    /// Moves the log floor past the end of the log, if no flush has done so. The manifest says what
    /// part of the log is durable, so only a log below the floor may be removed.
    fn pass_log(&self) -> Result<()> {
        // After a drop, the last sequence numbers may belong to no keyspace. They are not assigned
        // again, because readers of the history may have seen them.
        let visible = self.visibility.now();
        let is_behind = self.catalog.manifest.lock().log_start.1 <= visible;
        if (is_behind || self.committer.kept().keeps()) && self.env.options.has_log() {
            // The log is also synced on a full disk, where nothing more may be written.
            self.committer.sync_through(visible)?;
        }
        // A segment that is not ended is above the floor, and must not be removed.
        self.committer.seal_log()?;
        let log_start = self.committer.log_floor_without(|_, _| false);
        let mut manifest = self.catalog.manifest.lock();
        if manifest.log_start.1 > self.catalog.durable_seq.load(Acquire) || manifest.log.is_none() {
            return Ok(());
        }
        self.catalog.append_edit(&mut manifest, Vec::new(), log_start)?;
        manifest.log_start = log_start;
        Ok(())
    }

    fn flush_all_for_close(&self, keyspaces: &[Arc<KeyspaceCore>]) -> Result<()> {
        let has_log = self.env.options.has_log();
        let at_once = if has_log { MOST_FLUSHES } else { keyspaces.len().max(1) };
        for together in keyspaces.chunks(at_once) {
            while self.flush_for_close(together)? {}
        }
        Ok(())
    }

    /// Flushes the oldest memtables of these keyspaces. Without a log, a keyspace that is dropped
    /// meanwhile must not keep the others from their flush.
    fn flush_for_close(&self, keyspaces: &[Arc<KeyspaceCore>]) -> Result<bool> {
        match self.runner.flusher.flush_oldest(keyspaces) {
            Err(Error::UnknownKeyspace { .. }) if !self.env.options.has_log() => {
                let is_there =
                    |one: &Arc<KeyspaceCore>| self.catalog.keyspaces.read().contains_key(&one.id);
                let there: Vec<_> = keyspaces.iter().filter(|one| is_there(one)).cloned().collect();
                self.runner.flusher.flush_oldest(&there)
            }
            outcome => outcome,
        }
    }

    fn settle_log(&self) -> Result<()> {
        self.committer.tell_opening();
        let keyspaces = self.catalog.unflushed.all();
        if self.env.options.flush_at_close || keyspaces.is_empty() {
            // The flushes then move the floor past the end of the log.
            if let Err(error) = self.committer.seal_log() {
                tracing::warn!(%error, "a segment of the log is not ended");
            }
            self.committer.rotate(&keyspaces, |_| true);
            let has_log = self.env.options.has_log();
            match self.flush_all_for_close(&keyspaces).and_then(|()| self.pass_log()) {
                // A backup or a follower may be about to read the log. The next open removes it.
                Ok(()) if self.catalog.tables.leases.are_held() => self.committer.drop_spares(),
                // The next open keeps the log.
                Ok(()) if self.committer.kept().keeps() => self.committer.leave_log()?,
                Ok(()) => self.committer.remove_log(),
                // Nothing is lost on a full disk: the log has all writes, and is synced.
                Err(error) if error.is_no_space() && has_log => self.committer.leave_log()?,
                Err(error) => return Err(error),
            }
        } else {
            self.committer.leave_log()?;
        }
        let named = match &mut self.catalog.manifest.lock().log {
            Some(manifest) => manifest.name_closed(),
            None => Ok(()),
        };
        // `CURRENT` already names this manifest, but with a smaller length.
        named.or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })
    }
}
