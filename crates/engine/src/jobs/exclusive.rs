//! Work that a caller's thread does in place of the background threads, which wait meanwhile: a
//! full compaction, a full collection, and a change of options.

use std::sync::Arc;

use runstone_policy::plan::Plan;
use runstone_policy::range::range_plan;
use runstone_policy::shape::Shape;
use runstone_policy::whole::full_plan;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::jobs::collection::Collected;
use crate::jobs::liveness::Past;
use crate::jobs::runner::Runner;
use crate::schedule::{Claim, Held};
use crate::values::file::ValueFile;

impl Runner {
    /// Runs `change` while no job of the keyspace runs.
    pub(crate) fn without_jobs<T>(&self, keyspace: &KeyspaceCore, change: impl FnOnce() -> T) -> T {
        let _held = Held::everything(&self.schedule, keyspace.id);
        change()
    }

    /// Compacts a keyspace into one run, or only the keys of a range. Flushes continue meanwhile;
    /// other compactions of the keyspace wait.
    pub(crate) fn compact(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        range: Option<(&[u8], Option<&[u8]>)>,
    ) -> Result<()> {
        self.env.check_writable()?;
        if self.schedule.is_closing() {
            return Err(Error::Closed);
        }
        let held = Held::compactions(&self.schedule, keyspace.id);
        let options = keyspace.options.load();
        // A filter must see every entry.
        let settled_from = match keyspace.filtering.load().is_used() {
            true => u64::MAX,
            false => keyspace.values.load().settled_from(),
        };
        let wanted = |shape: &Shape| {
            let (policy, options) = (options.compaction_policy()?, &options.shape);
            let past = Past::now(&self.env, &self.visibility);
            let shape = &*shape.at(|seq| past.end_ms(seq));
            Ok(match range {
                Some(range) => range_plan(shape, policy, options, settled_from, range),
                None => full_plan(shape, policy, options, settled_from),
            })
        };
        // The pending plan runs first: otherwise its finished work would be done again.
        let pending = |shape: &Shape| Ok(shape.pending.as_deref().cloned());
        let outcome = self
            .run_exclusively(keyspace, &pending)
            .and_then(|()| self.run_exclusively(keyspace, &wanted));
        drop(held);
        self.note_outcome(outcome)
    }

    /// Notes the failure of work that a caller's thread did in place of the background threads.
    pub(crate) fn note_outcome<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if !matches!(error, Error::Closed | Error::UnknownKeyspace { .. }) {
                self.env.note_job_error(error);
            }
            if error.is_no_space() {
                self.release_held();
            }
        })
    }

    /// Runs `collect` in this thread on the current value file, when no background thread collects.
    /// Does nothing if there is no value file.
    pub(crate) fn collect_exclusively(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        collect: impl FnOnce(&Arc<ValueFile>) -> Result<Collected>,
    ) -> Result<Collected> {
        let id = keyspace.id;
        let claim = {
            let mut claims = self.schedule.lock();
            loop {
                self.installer.check_wanted(keyspace)?;
                self.env.check_not_stopped()?;
                if !claims.frozen.contains(&id) && !claims.is_collecting(id) {
                    break self.schedule.claim(&mut claims, Claim::Collect(keyspace.id));
                }
                self.schedule.wait_for_change(&mut claims, self.env.is_manual());
            }
        };
        // The file is looked up only now: an earlier change of placement may have removed the file.
        self.supervisor.run_claimed(claim, || match &keyspace.values.load_full().current {
            Some(store) => collect(store),
            None => Ok(Collected::Nothing),
        })
    }

    /// Runs a plan in this thread, while other compactions are held back.
    fn run_exclusively(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        choose: &dyn Fn(&Shape) -> Result<Option<Plan>>,
    ) -> Result<()> {
        let (claim, version, plan) = {
            let mut claims = self.schedule.lock();
            // A close waits for the claims that it finds, so no claim may begin after that.
            if self.schedule.is_closing() {
                return Err(Error::Closed);
            }
            let version = Arc::clone(&keyspace.view.load().version);
            let Some(plan) = choose(&version.shape)? else { return Ok(()) };
            let claim = Claim::Compaction(keyspace.id, plan.clone());
            (self.schedule.claim(&mut claims, claim), version, plan)
        };
        self.supervisor.run_claimed(claim, || self.compactor.run(keyspace, version, &plan))
    }

    /// Compacts each of the keyspaces into a single run, and collects the garbage in their value
    /// files. Some collections write pointers. The tree then has the new and the old pointers, so
    /// it is compacted again.
    pub(crate) fn compact_whole(&self, keyspaces: &[Arc<KeyspaceCore>]) -> Result<()> {
        keyspaces.iter().try_for_each(|keyspace| self.compact(keyspace, None))?;
        let collected = keyspaces.iter().try_for_each(|one| self.collect_all_values(one));
        self.note_outcome(collected)?;
        let is_written = |keyspace: &&Arc<KeyspaceCore>| {
            keyspace.values.load().write_pointers() && keyspace.holds_writes()
        };
        let written: Vec<_> = keyspaces.iter().filter(is_written).collect();
        if !written.is_empty() {
            self.flush_all()?;
        }
        written.into_iter().try_for_each(|keyspace| self.compact(keyspace, None))?;
        // A caller that compacts wants the space back.
        self.committer.trim_log();
        Ok(())
    }

    /// Collects as long as collections free something, then returns free slots to the file system.
    pub(crate) fn collect_all_values(&self, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
        loop {
            let collected = self.collect_exclusively(keyspace, |store| {
                match self.collector.collect(keyspace, store)? {
                    Collected::Nothing => store.shrink(true).map(|()| Collected::Nothing),
                    other => Ok(other),
                }
            })?;
            match (collected, &keyspace.values.load().current) {
                (Collected::Nothing, Some(store)) if store.state.lock().waits_for_flush() => {
                    self.flush_all()?;
                }
                (Collected::Nothing, _) => return Ok(()),
                (Collected::Busy, Some(store)) => self.collector.wait_for_collection(store)?,
                _ => {}
            }
        }
    }
}
