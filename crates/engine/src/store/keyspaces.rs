//! Makes, changes and drops keyspaces.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::prefix::Prefixer;

use super::DEFAULT_KEYSPACE;
use crate::callbacks::compaction_filter::Filtering;
use crate::callbacks::merge_operator::Merging;
use crate::catalog::keyspace::KeyspaceCore;
use crate::catalog::settle::{check_values, settle_prefixer, settle_values, value_files};
use crate::error::{Error, Result};
use crate::options::store::KeyspaceOptions;
use crate::store::engine::Engine;
use crate::tree::manifest::KeyspaceState;
use crate::tree::record::Change;
use crate::values::file::ValueFile;
use crate::wal::note::{Note, NotedKeyspace};

impl Engine {
    pub(crate) fn open_keyspace(&self, name: &str, options: Option<KeyspaceOptions>) -> Result<()> {
        if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
            return Err(Error::invalid(
                format!("{name:?} is not a keyspace name"),
                "use 1 to 255 bytes without control characters",
            ));
        }
        if let Some(options) = &options {
            options.check()?;
            self.env.options.check_log_for(name, options)?;
        }
        self.env.check_caller()?;
        self.check_usable()?;
        let found = self.catalog.find_keyspace(name);
        reached!(KeyspaceFound);
        let outcome = match (found, options) {
            (Some(_), None) => Ok(()),
            (Some(existing), Some(options)) => self.change_options(&existing, options),
            (None, options) => self.make_keyspace(name, options.unwrap_or_default()),
        };
        outcome.inspect_err(|error| self.note_change_error(error))
    }

    /// Refuses options that [`Engine::open_keyspace`] would refuse for an existing keyspace, and
    /// changes nothing.
    pub(crate) fn check_options(&self, name: &str, options: &KeyspaceOptions) -> Result<()> {
        options.check()?;
        self.env.options.check_log_for(name, options)?;
        self.env.check_caller()?;
        self.check_usable()?;
        let found = self.catalog.find_keyspace(name);
        let keyspace = found.ok_or_else(|| Error::UnknownKeyspace { name: name.to_string() })?;
        if **keyspace.options.load() == *options {
            return Ok(());
        }
        self.env.check_writable()?;
        self.schedule.check_not_loading(Some(keyspace.id))?;
        self.check_fit(&keyspace, options).map(drop)
    }

    /// Refuses options that contradict the contents of the keyspace. Returns the rule that cuts its
    /// tables.
    fn check_fit(
        &self,
        keyspace: &KeyspaceCore,
        options: &KeyspaceOptions,
    ) -> Result<Option<Prefixer>> {
        options.check_same_operator(&keyspace.options.load())?;
        check_values(keyspace, &options.values)?;
        let stored = keyspace.view.load().version.shape.state.prefix.clone();
        settle_prefixer(stored.as_ref(), options, &self.env.options.prefix_extractors)
    }

    /// Stops writes after a failed change of keyspaces if the state on disk is unknown (P7). A
    /// refused option, a full disk or too many open files leave everything as it was.
    fn note_change_error(&self, error: &Error) {
        let is_fault = matches!(error, Error::Storage(_)) && !error.is_transient();
        if is_fault || self.catalog.is_manifest_broken() {
            self.env.stop_writes(error);
        }
    }

    /// Changes the options of an existing keyspace. Compactions under the old options end first.
    fn change_options(&self, keyspace: &Arc<KeyspaceCore>, options: KeyspaceOptions) -> Result<()> {
        if **keyspace.options.load() == options {
            return Ok(());
        }
        self.env.check_writable()?;
        self.schedule.check_not_loading(Some(keyspace.id))?;
        self.runner.without_jobs(keyspace, || {
            self.env.check_writable()?;
            let mut manifest = self.catalog.manifest.lock();
            keyspace.check_exists()?;
            let prefixer = self.check_fit(keyspace, &options)?;
            let (next_file, last_seq) = (&self.env.next_file, self.visibility.now());
            let values = settle_values(
                keyspace,
                &options.values,
                &self.catalog.tables,
                next_file,
                last_seq,
            )?;
            let mut changes = vec![Change::Keyspace {
                id: keyspace.id,
                name: keyspace.name.clone(),
                options: options.to_toml(),
            }];
            let before = keyspace.values.load().current.clone();
            let number_of = |store: &Option<Arc<ValueFile>>| store.as_ref().map(|s| s.number);
            if number_of(&values.current) != number_of(&before) {
                changes.extend(value_files(keyspace.id, &values));
            }
            let noted = NotedKeyspace {
                id: keyspace.id,
                name: keyspace.name.clone(),
                options: options.to_toml(),
            };
            let log_start = manifest.log_start;
            let appended = self.catalog.append_edit(&mut manifest, changes, log_start);
            appended.inspect_err(|_| {
                // New values are written to the same file as before.
                before.iter().for_each(|store| store.retire(0, 0));
            })?;
            self.committer.log_note(&manifest, &Note::Keyspace(noted));
            keyspace.values.store(Arc::new(values));
            *keyspace.prefixer.lock() = prefixer;
            let registered = &self.env.options.merge_operators;
            let opening = self.env.opening;
            let merging = Merging::find(&options.merge_operator, registered, opening);
            keyspace.merging.store(Arc::new(merging));
            let registered = &self.env.options.compaction_filters;
            let filtering = Filtering::find(&options.compaction_filter, registered, opening);
            keyspace.filtering.store(Arc::new(filtering));
            keyspace.ttl_ms.store(options.ttl_seconds * 1000, Relaxed);
            keyspace.early_at.store(options.values.early_at(), Relaxed);
            self.env.has_early.fetch_or(options.values.early_at() < u64::MAX, Relaxed);
            keyspace.change_seeks(options.numbers());
            keyspace.options.store(Arc::new(options));
            Ok::<(), Error>(())
        })?;
        keyspace.tell_missing_filter(&self.env);
        self.pressure.refresh([keyspace]);
        self.schedule.stir(keyspace.id);
        Ok(())
    }

    fn make_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<()> {
        self.env.check_writable()?;
        let mut manifest = self.catalog.manifest.lock();
        if self.catalog.find_keyspace(name).is_some() {
            // Another thread made the keyspace first, and the existing keyspace wins.
            return Ok(());
        }
        let state = KeyspaceState::new(name.to_string(), options.to_toml());
        let id = manifest.next_keyspace;
        let (tables, pool) = (&self.catalog.tables, &self.catalog.pool);
        let made = KeyspaceCore::open(id, &state, tables, pool, &self.env)?;
        let values =
            settle_values(&made, &options.values, &self.catalog.tables, &self.env.next_file, 0)?;
        let (name, options) = (state.name, state.options);
        let noted = NotedKeyspace { id, name: name.clone(), options: options.clone() };
        let mut changes = vec![Change::Keyspace { id, name, options }];
        changes.extend(value_files(id, &values));
        let log_start = manifest.log_start;
        self.catalog.append_edit(&mut manifest, changes, log_start)?;
        made.values.store(Arc::new(values));
        made.tell_missing_filter(&self.env);
        manifest.next_keyspace += 1;
        self.committer.log_note(&manifest, &Note::Keyspace(noted));
        self.catalog.keyspaces.write().insert(Arc::new(made));
        Ok(())
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        // A drop is allowed on a full disk, because it frees space.
        self.env.check_not_stopped()?;
        self.check_usable()?;
        let unknown = || Error::UnknownKeyspace { name: name.to_string() };
        let keyspace = self.catalog.find_keyspace(name).ok_or_else(unknown)?;
        reached!(KeyspaceFound);
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid(
                "the default keyspace cannot be dropped",
                "delete its keys, or use keyspaces of your own",
            ));
        }
        self.schedule.check_not_loading(Some(keyspace.id))?;
        if !self.committer.mark_dropped(&keyspace) {
            // Another thread is already dropping the keyspace.
            return Err(unknown());
        }
        self.schedule.wait_for_keyspace(keyspace.id);
        reached!(KeyspaceMarked);
        let mut manifest = self.catalog.manifest.lock();
        // The log floor moves past segments that only this keyspace's memtables needed. A close
        // removes the log segment by segment, and a crash in between must not leave a log that the
        // manifest needs and whose beginning is missing.
        let log_start = self.committer.log_floor_without(|other, _| other.id == keyspace.id);
        let mut append = || {
            self.env.check_not_stopped()?;
            let change = Change::Dropped { id: keyspace.id };
            self.catalog.append_edit(&mut manifest, vec![change], log_start)
        };
        let logged = match append() {
            Err(error) if error.is_no_space() && self.committer.spend_reserve() => append(),
            outcome => outcome,
        };
        if let Err(error) = logged {
            // The mark is cleared before the manifest lock is released: a checkpoint reads the mark
            // under that lock.
            keyspace.dropped.store(false, Release);
            drop(manifest);
            self.schedule.wake();
            self.note_change_error(&error);
            return Err(error);
        }
        self.committer.log_note(&manifest, &Note::Dropped(keyspace.id));
        manifest.flushed.remove(keyspace.id);
        manifest.log_start = log_start;
        self.catalog.remove_keyspace(&keyspace);
        drop(manifest);
        // The dropped keyspace no longer slows writers down.
        self.pressure.refresh([&keyspace]);
        let view = keyspace.view.load_full();
        view.version.handles().for_each(|handle| handle.mark_obsolete());
        self.catalog.remove_value_files(keyspace.values.load().all());
        self.committer.retire_log_below(log_start.0);
        if !self.env.options.has_log() {
            // A generation may have waited for this drop.
            self.schedule.wake();
        }
        Ok(())
    }
}
