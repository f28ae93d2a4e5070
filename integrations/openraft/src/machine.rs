//! The state machine of a node: a keyspace, the effects of requests on it, and the switch to an
//! installed snapshot.
//!
//! Entries are applied in transactions, so a request sees what earlier ones wrote. Each transaction
//! also writes the number of the last entry in it: machine and number always agree, whatever a
//! crash loses.
//!
//! A snapshot is installed in three steps:
//! 1. A bulk load writes the entries of the stream to a fresh keyspace `state-N`.
//! 2. One synced batch names that keyspace as the machine, with the last entry and the membership
//!    that the snapshot has. Before this batch the machine is the old one, and after it the new
//!    one.
//! 3. The old keyspace is dropped. If the process ends between two steps, the next open drops the
//!    keyspaces that are not the machine.

use std::sync::Arc;
use std::time::Duration;

use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftTypeConfig, Snapshot,
    StorageError, StoredMembership,
};
use parking_lot::{Mutex, RwLock};
use runstone::{
    Batch, KeyRange, Keyspace, ReadOptions, Store, Transaction, TransactionOptions,
    TransactionScan, Value, WriteOptions,
};
use tokio::sync::watch;

use crate::base::{Base, Progress, key, seeded};
use crate::codec::encode;
use crate::error::{Error, blocking, during};
use crate::snapshot::{Builder, Current, Meta, SnapshotData, Source, id};
use crate::stream::Entries;

/// The size at which a transaction of entries is committed, and the next one begins.
const MOST_ENTRIES: usize = 1_000;
const MOST_BYTES: usize = 1 << 20;

/// How often a close checks whether the machine has ended, which openraft does not report.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The effects of requests. They must be deterministic: every node applies the same requests in the
/// same order, and must arrive at the same entries. So an implementation reads the state and
/// nothing else, not even a clock.
pub trait Machine<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Carries out a request, and returns the answer. A refusal is an answer, not an error.
    ///
    /// # Errors Errors that the state returned. The node then stops, and applies the request again
    /// when it is restarted.
    fn apply(&self, state: &mut State<'_>, request: C::D) -> runstone::Result<C::R>;

    /// The answer to entries without a request, which openraft adds for itself.
    fn nothing(&self) -> C::R;
}

/// The machine's entries while a request is applied, with the changes of earlier requests and of
/// this one.
#[derive(Debug)]
pub struct State<'a> {
    keyspace: &'a Keyspace,
    transaction: Transaction,
    written_bytes: usize,
}

impl State<'_> {
    /// Looks up a key.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&self, key: impl AsRef<[u8]>) -> runstone::Result<Option<Value>> {
        self.transaction.get(self.keyspace, key)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// If the key or the value is too long, or the transaction needs too much memory.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> runstone::Result<()> {
        self.written_bytes += key.as_ref().len() + value.as_ref().len();
        self.transaction.put(self.keyspace, key, value)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If the key is too long, or the transaction needs too much memory.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> runstone::Result<()> {
        self.written_bytes += key.as_ref().len();
        self.transaction.delete(self.keyspace, key)
    }

    /// Removes the keys of a range.
    ///
    /// # Errors
    /// If the range ends before it starts, or the transaction needs too much memory.
    pub fn delete_range(&mut self, range: impl KeyRange) -> runstone::Result<()> {
        self.transaction.delete_range(self.keyspace, range)
    }

    /// Iterates over entries in the order of their keys, in both directions.
    ///
    /// # Errors
    /// Those of the store.
    pub fn scan(&self, options: ReadOptions) -> runstone::Result<TransactionScan<'_>> {
        self.transaction.scan(self.keyspace, options)
    }
}

/// The machine of a node. [`crate::open`] makes it; pass it to `openraft::Raft::new`.
pub struct StateMachine<C: RaftTypeConfig, M> {
    parts: Arc<Parts<C, M>>,
    applied: Applied<C>,
    progress: watch::Sender<Progress>,
}

struct Parts<C: RaftTypeConfig, M> {
    base: Arc<Base>,
    machine: M,
    active: Arc<RwLock<Active>>,
    current: Arc<Current<C>>,
}

/// What the machine has applied, as `meta` has it.
struct Applied<C: RaftTypeConfig> {
    last: Option<LogId<C::NodeId>>,
    membership: StoredMembership<C::NodeId, C::Node>,
}

/// The keyspace that is the machine.
#[derive(Debug)]
struct Active {
    number: u64,
    keyspace: Keyspace,
}

/// Reads the machine as of its last applied entry, also after an installed snapshot has moved it to
/// another keyspace. A read that must be recent calls `Raft::ensure_linearizable` first.
#[derive(Clone, Debug)]
pub struct Reader {
    active: Arc<RwLock<Active>>,
    base: Arc<Base>,
}

impl Reader {
    /// Looks up a key. It may read from the disk.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&self, key: impl AsRef<[u8]>) -> runstone::Result<Option<Value>> {
        self.with(|keyspace| keyspace.get(&key))
    }

    /// Runs reads on the keyspace that is the machine. They run again if a snapshot is installed in
    /// the meantime and the keyspace is gone. A scan that began earlier continues.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn with<T>(&self, reads: impl Fn(&Keyspace) -> runstone::Result<T>) -> runstone::Result<T> {
        loop {
            let (number, keyspace) = {
                let active = self.active.read();
                (active.number, active.keyspace.clone())
            };
            match reads(&keyspace) {
                Err(runstone::Error::UnknownKeyspace { .. })
                    if self.active.read().number != number => {}
                outcome => return outcome,
            }
        }
    }

    /// Closes the store, and reports an error of its last flush. Call it after `Raft::shutdown`,
    /// when the `Raft` and all other readers are dropped, and await it before the store is opened
    /// again: the machine applies its last entries on its own, and this call waits for that.
    ///
    /// # Errors
    /// Those of [`Store::close`].
    pub async fn close(self) -> Result<(), Error> {
        let Reader { active, mut base } = self;
        drop(active);
        loop {
            match Arc::try_unwrap(base) {
                Ok(base) => return blocking(move || Ok(base.store.close()?)).await,
                Err(shared) => base = shared,
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// The store, for its metrics, a checkpoint or a backup. A checkpoint of a node is a copy of
    /// that node, with its vote and log: another node must never start from it.
    pub fn store(&self) -> &Store {
        &self.base.store
    }
}

fn name(number: u64) -> String {
    format!("state-{number}")
}

/// Finds the keyspace that is the machine. Drops other keyspaces that installations have left.
fn find(base: &Base) -> Result<Active, Error> {
    let number = base.read::<u64>(key::MACHINE)?.unwrap_or(0);
    let keyspace = base.store.open_keyspace(&name(number), base.settings.state.clone())?;
    if keyspace.options().ttl_seconds != 0 {
        let what = format!("a machine {:?} whose entries expire by themselves", name(number));
        return Err(Error::Layout { what });
    }
    let mut others = base.store.keyspaces();
    others.retain(|other| {
        let is_number = |rest: &str| rest.parse::<u64>().is_ok();
        other.strip_prefix("state-").is_some_and(is_number) && *other != name(number)
    });
    if seeded!(base.settings, LeftoversKept) {
        others.clear();
    }
    for other in others {
        tracing::info!(keyspace = other, "drops what an interrupted installation left");
        base.store.drop_keyspace(&other)?;
    }
    Ok(Active { number, keyspace })
}

impl<C: RaftTypeConfig, M> StateMachine<C, M> {
    pub(crate) fn open(base: Arc<Base>, machine: M) -> Result<StateMachine<C, M>, Error> {
        let active = Arc::new(RwLock::new(find(&base)?));
        let applied = Applied {
            last: base.read::<Option<_>>(key::APPLIED)?.flatten(),
            membership: base.read(key::MEMBERSHIP)?.unwrap_or_default(),
        };
        let current = Arc::new(Mutex::new(None));
        let progress = watch::Sender::new(applied.progress());
        let parts = Arc::new(Parts { base, machine, active, current });
        Ok(StateMachine { parts, applied, progress })
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Notes how far an apply or an installation has come, or that it failed: an append that waits
    /// for the progress must not wait for ever.
    fn note<T>(&mut self, outcome: Result<(T, Applied<C>), Error>) -> Result<T, Error> {
        match outcome {
            Ok((made, applied)) => {
                self.progress.send_replace(applied.progress());
                self.applied = applied;
                Ok(made)
            }
            Err(error) => {
                self.progress.send_modify(|progress| progress.has_failed = true);
                Err(error)
            }
        }
    }

    /// Makes a reader of the machine, for the code that answers requests of clients.
    pub fn reader(&self) -> Reader {
        let Parts { active, base, .. } = &*self.parts;
        Reader { active: Arc::clone(active), base: Arc::clone(base) }
    }

    /// Takes a snapshot of the machine as it is now.
    fn builder(&self) -> Builder<C> {
        let Parts { base, active, current, .. } = &*self.parts;
        let meta = Meta::<C> {
            last_log_id: self.applied.last.clone(),
            last_membership: self.applied.membership.clone(),
            snapshot_id: id::<C>(&self.applied.last),
        };
        let source = Source {
            keyspace: active.read().keyspace.clone(),
            snapshot: base.store.snapshot(),
            directory: base.settings.snapshots.clone(),
        };
        Builder { meta, source: Arc::new(source), current: Arc::clone(current) }
    }
}

impl<C: RaftTypeConfig> Applied<C> {
    fn progress(&self) -> Progress {
        let applied = self.last.as_ref().map_or(0, |last| last.index + 1);
        Progress { applied, has_failed: false }
    }

    fn put(&self, base: &Base, batch: &mut Batch) -> Result<(), Error> {
        base.put(batch, key::APPLIED, &self.last)?;
        base.put(batch, key::MEMBERSHIP, &self.membership)
    }
}

impl<C, M> Parts<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>>,
    M: Machine<C>,
{
    fn apply(
        &self,
        entries: Vec<Entry<C>>,
        mut applied: Applied<C>,
    ) -> Result<(Vec<C::R>, Applied<C>), Error> {
        let keyspace = self.active.read().keyspace.clone();
        let mut answers = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let transaction = self.base.store.begin(TransactionOptions::default())?;
            let mut state = State { keyspace: &keyspace, transaction, written_bytes: 0 };
            let most = answers.len() + MOST_ENTRIES;
            while answers.len() < most
                && state.written_bytes < MOST_BYTES
                && let Some(entry) = entries.next()
            {
                answers.push(self.apply_one(&mut state, entry, &mut applied)?);
            }
            self.commit(state, &applied)?;
        }
        Ok((answers, applied))
    }

    fn apply_one(
        &self,
        state: &mut State<'_>,
        entry: Entry<C>,
        applied: &mut Applied<C>,
    ) -> Result<C::R, Error> {
        applied.last = Some(entry.log_id.clone());
        Ok(match entry.payload {
            EntryPayload::Blank => self.machine.nothing(),
            EntryPayload::Normal(request) => self.machine.apply(state, request)?,
            EntryPayload::Membership(membership) => {
                applied.membership = StoredMembership::new(Some(entry.log_id), membership);
                let value = encode(key::MEMBERSHIP, &applied.membership)?;
                state.transaction.put(&self.base.meta, key::MEMBERSHIP, value)?;
                self.machine.nothing()
            }
        })
    }

    /// The commit is not synced: the entries are in the logs of most nodes, and writes that are
    /// lost at a power loss are applied again.
    fn commit(&self, state: State<'_>, applied: &Applied<C>) -> Result<(), Error> {
        let mut transaction = state.transaction;
        let value = encode(key::APPLIED, &applied.last)?;
        transaction.put(&self.base.meta, key::APPLIED, value)?;
        Ok(transaction.commit(WriteOptions::buffered())?)
    }

    /// Steps 1 to 3 of an installation.
    fn install(&self, stream: impl std::io::Read, applied: &Applied<C>) -> Result<(), Error> {
        let (base, store) = (&self.base, &self.base.store);
        let old = {
            let active = self.active.read();
            Active { number: active.number, keyspace: active.keyspace.clone() }
        };
        let number = old.number + 1;
        // A failed installation of this process may have left a keyspace of this name.
        if store.keyspaces().contains(&name(number)) {
            store.drop_keyspace(&name(number))?;
        }
        let options = Some((*old.keyspace.options()).clone());
        let keyspace = store.open_keyspace(&name(number), options)?;
        keyspace.try_bulk_load(Entries::new(stream))?;
        let mut batch = Batch::new();
        base.put(&mut batch, key::MACHINE, &number)?;
        if seeded!(base.settings, SwitchInTwo) {
            store.write(&batch, WriteOptions::sync())?;
            batch = Batch::new();
        }
        applied.put(base, &mut batch)?;
        store.write(&batch, WriteOptions::sync())?;
        *self.active.write() = Active { number, keyspace };
        Ok(store.drop_keyspace(&name(old.number))?)
    }
}

impl<C, M> RaftStateMachine<C> for StateMachine<C, M>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotData>,
    M: Machine<C>,
{
    type SnapshotBuilder = Builder<C>;

    async fn applied_state(
        &mut self,
    ) -> Result<
        (Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>),
        StorageError<C::NodeId>,
    > {
        Ok((self.applied.last.clone(), self.applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry<C>> = entries.into_iter().collect();
        let (parts, applied) = (Arc::clone(&self.parts), self.applied.clone());
        let outcome = blocking(move || parts.apply(entries, applied)).await;
        self.note(outcome).map_err(during(ErrorSubject::StateMachine, ErrorVerb::Write))
    }

    async fn get_snapshot_builder(&mut self) -> Builder<C> {
        self.builder()
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<SnapshotData>, StorageError<C::NodeId>> {
        let directory = self.parts.base.settings.snapshots.clone();
        let blank = blocking(move || Ok(SnapshotData::blank(directory.as_deref())?)).await;
        blank.map(Box::new).map_err(during(ErrorSubject::Snapshot(None), ErrorVerb::Write))
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let applied = Applied::<C> {
            last: meta.last_log_id.clone(),
            membership: meta.last_membership.clone(),
        };
        let parts = Arc::clone(&self.parts);
        let installed = async {
            let stream = snapshot.into_reader().await?;
            blocking(move || parts.install(stream, &applied).map(|()| ((), applied))).await
        };
        let outcome = installed.await;
        let subject = ErrorSubject::Snapshot(Some(meta.signature()));
        self.note(outcome).map_err(during(subject, ErrorVerb::Write))?;
        let mut builder = self.builder();
        builder.meta = meta.clone();
        *self.parts.current.lock() = Some((builder.meta, builder.source));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let current = self.parts.current.lock();
        Ok(current.as_ref().map(|(meta, source)| {
            let snapshot = Box::new(SnapshotData::of(Arc::clone(source)));
            Snapshot { meta: meta.clone(), snapshot }
        }))
    }
}

impl<C: RaftTypeConfig> Clone for Applied<C> {
    fn clone(&self) -> Self {
        Applied { last: self.last.clone(), membership: self.membership.clone() }
    }
}
