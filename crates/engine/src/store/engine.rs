//! Wires the parts of an open store. Each part owns one task; this file shows only how they are
//! connected.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::sync::{Mutex, rank};
use runstone_storage::StorageLock;

use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::collection::Collector;
use crate::jobs::compaction::Compactor;
use crate::jobs::flush::Flusher;
use crate::jobs::install::Installer;
use crate::jobs::prepare::Preparer;
use crate::jobs::runner::Runner;
use crate::jobs::supervisor::Supervisor;
use crate::keys::KeyspaceId;
use crate::options::store::WriteOptions;
use crate::read::get::Reader;
use crate::schedule::Schedule;
use crate::schedule::ready::Ready;
use crate::store::live::publish::Publishing;
use crate::store::live::request::Requests;
use crate::store::scrub::Scrubbing;
use crate::transaction::locks::LockTable;
use crate::visibility::snapshot::Visibility;
use crate::wal::batch::Batch;
use crate::wal::files::WalFiles;
use crate::wal::segments::Wal;
use crate::write::commit::{Committer, Shared};
use crate::write::later::Commit;
use crate::write::pressure::BackPressure;
use crate::write::siblings::Siblings;
use crate::write::syncing::Syncing;

/// An open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) pressure: Arc<BackPressure>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) runner: Arc<Runner>,
    /// The locks of pessimistic transactions.
    pub(crate) locks: Arc<LockTable>,
    /// The reports to other processes.
    pub(crate) publishing: Publishing,
    /// The requests of other processes.
    pub(crate) requests: Requests,
    /// The scrub of all files.
    pub(crate) scrubbing: Scrubbing,
    /// A checkpoint holds this lock while its flush limit is set.
    pub(crate) checkpointing: Mutex<rank::Checkpoint, ()>,
    /// Released at close, even if handles to the store outlive it.
    pub(crate) lock: Mutex<rank::StoreLock, Option<Box<dyn StorageLock>>>,
}

impl Engine {
    pub(crate) fn new(
        env: Arc<Env>,
        catalog: Arc<Catalog>,
        wal: (Wal, Arc<WalFiles>),
        visibility: Visibility,
        lock: Option<Box<dyn StorageLock>>,
        (ready, siblings): (Option<&Arc<Ready>>, &Arc<Siblings>),
        syncing: &Arc<Syncing>,
    ) -> Engine {
        let (last_seq, visibility) = (visibility.now(), Arc::new(visibility));
        let ready = ready.map(|ready| (Arc::clone(ready), env.opening));
        let schedule = Arc::new(Schedule::new(ready));
        let pressure = Arc::new(BackPressure::new(&env, &catalog, &visibility, siblings));
        let shared = Shared {
            env: Arc::clone(&env),
            catalog: Arc::clone(&catalog),
            visibility: Arc::clone(&visibility),
            schedule: Arc::clone(&schedule),
            pressure: Arc::clone(&pressure),
            syncing: (!env.is_manual()).then(|| Arc::clone(syncing)),
        };
        let committer = Arc::new(Committer::new(shared, wal.0, wal.1, last_seq));
        let reader =
            Arc::new(Reader::new(&env, &visibility, &schedule, Arc::clone(&committer) as _));
        let runner = runner(&env, &catalog, &visibility, &schedule, &pressure, &committer);
        Engine {
            env,
            catalog,
            visibility,
            schedule,
            pressure,
            committer,
            reader,
            runner: Arc::new(runner),
            locks: Arc::default(),
            publishing: Publishing::default(),
            requests: Requests::default(),
            scrubbing: Scrubbing::default(),
            checkpointing: Mutex::new(()),
            lock: Mutex::new(lock),
        }
    }

    /// Refuses a call after the close or in a fork, before the call takes a lock or makes a file.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.env.check_process()?;
        self.schedule.check_open()
    }

    /// Commits a batch, which may span keyspaces.
    pub(crate) fn write(&self, batch: &Batch, options: WriteOptions) -> Result<()> {
        let keyspaces = self.keyspaces_of(batch)?;
        let durability = self.env.durability(options);
        self.committer.commit(batch, &keyspaces, durability, &*self.runner)
    }

    /// Does the same, and returns a commit that can be awaited.
    pub(crate) fn write_later(&self, batch: &Batch, options: WriteOptions) -> Result<Commit> {
        let keyspaces = self.keyspaces_of(batch)?;
        let durability = self.env.durability(options);
        self.committer.commit_later(batch, &keyspaces, durability, &*self.runner)
    }

    /// The keyspaces that a batch writes to, each once, ordered by id.
    fn keyspaces_of(&self, batch: &Batch) -> Result<Vec<Arc<KeyspaceCore>>> {
        batch.check_for(self.env.opening)?;
        let ids: BTreeSet<KeyspaceId> = batch.operations().map(|one| one.keyspace).collect();
        let known = self.catalog.keyspaces.read();
        let find = |id: KeyspaceId| {
            let unknown = || Error::UnknownKeyspace { name: format!("#{id}") };
            known.get(&id).cloned().ok_or_else(unknown)
        };
        ids.into_iter().map(find).collect()
    }
}

fn runner(
    env: &Arc<Env>,
    catalog: &Arc<Catalog>,
    visibility: &Arc<Visibility>,
    schedule: &Arc<Schedule>,
    pressure: &Arc<BackPressure>,
    committer: &Arc<Committer>,
) -> Runner {
    let installer = Arc::new(Installer {
        env: Arc::clone(env),
        catalog: Arc::clone(catalog),
        schedule: Arc::clone(schedule),
        pressure: Arc::clone(pressure),
        visibility: Arc::clone(visibility),
    });
    let supervisor = Arc::new(Supervisor {
        env: Arc::clone(env),
        catalog: Arc::clone(catalog),
        schedule: Arc::clone(schedule),
    });
    let preparer = Arc::new(Preparer {
        env: Arc::clone(env),
        catalog: Arc::clone(catalog),
        schedule: Arc::clone(schedule),
        committer: Arc::clone(committer),
        supervisor: Arc::clone(&supervisor),
    });
    let collector = Arc::new(Collector {
        env: Arc::clone(env),
        catalog: Arc::clone(catalog),
        visibility: Arc::clone(visibility),
        schedule: Arc::clone(schedule),
        pressure: Arc::clone(pressure),
        committer: Arc::clone(committer),
        installer: Arc::clone(&installer),
    });
    Runner {
        env: Arc::clone(env),
        catalog: Arc::clone(catalog),
        visibility: Arc::clone(visibility),
        schedule: Arc::clone(schedule),
        committer: Arc::clone(committer),
        flusher: Flusher {
            env: Arc::clone(env),
            catalog: Arc::clone(catalog),
            visibility: Arc::clone(visibility),
            committer: Arc::clone(committer),
            installer: Arc::clone(&installer),
            preparer: Arc::clone(&preparer),
            collector: Arc::clone(&collector),
        },
        compactor: Compactor {
            env: Arc::clone(env),
            catalog: Arc::clone(catalog),
            visibility: Arc::clone(visibility),
            schedule: Arc::clone(schedule),
            installer: Arc::clone(&installer),
            preparer: Arc::clone(&preparer),
        },
        supervisor,
        installer,
        preparer,
        collector,
    }
}
