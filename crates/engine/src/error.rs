//! The error type of the store: what happened, where, and what to do about it.
use runstone_storage::{Full, Operation};

/// How the path in a `NoSpace` error begins if the reserve of a value file is full.
pub(crate) const VALUES_OF: &str = "the value file of keyspace";

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. No error loses a write that was acknowledged before.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage refused an operation.
    #[error("{0}")]
    Storage(std::sync::Arc<runstone_storage::Error>),
    /// The bytes on disk differ from those that were written (P6).
    #[error("{file} is corrupt at byte {offset}: {what}")]
    Corruption {
        /// File name inside the store.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// An argument or option is out of range.
    #[error("{what}")]
    InvalidArgument {
        /// What was given and what is allowed.
        what: String,
        /// What to do instead.
        hint: String,
    },
    /// There is no store at the path.
    #[error("{path} is not a store")]
    NotAStore {
        /// The path as given.
        path: String,
    },
    /// The directory contains other files; no store is created among them.
    #[error("{path} holds files that are not expected there, such as {example}")]
    ForeignFiles {
        /// The path as given.
        path: String,
        /// One of the files.
        example: String,
    },
    /// The directory contains a database of LevelDB or RocksDB.
    #[error("{path} is a database of LevelDB or RocksDB")]
    OtherDatabase {
        /// The path as given.
        path: String,
    },
    /// The store was written by a newer release.
    #[error("{file} has format {found}; this release reads up to {supported}")]
    NewerFormat {
        /// File name inside the store.
        file: String,
        /// Format found.
        found: u32,
        /// Newest format known.
        supported: u32,
    },
    /// Another process, or another handle of this one, has the store open.
    #[error("{path} is in use by {}", name_of(*.process))]
    InUse {
        /// The path as given.
        path: String,
        /// The process that has it open, if the system reports it.
        process: Option<u32>,
    },
    /// The store was opened in a process that this one is a fork of. Nothing was done.
    #[error("the store was opened in another process, of which this one is a fork")]
    OtherProcess,
    /// The handle was opened for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// The disk, a quota or a limit is full. Reads continue; writes work again once space is back
    /// (P9).
    #[error("{full} on {path}: {what}")]
    NoSpace {
        /// What is used up.
        full: Full,
        /// The file or store that ran out of space.
        path: String,
        /// The operation that failed.
        what: String,
    },
    /// A background job or a sync failed. The store serves reads but accepts no writes until it is
    /// reopened (P7).
    #[error("the store stopped accepting writes: {cause}")]
    Stopped {
        /// The first failure.
        cause: Box<Error>,
    },
    /// There is no keyspace with that name.
    #[error("keyspace {name:?} does not exist")]
    UnknownKeyspace {
        /// The name as given.
        name: String,
    },
    /// A merge operator failed on a key. Nothing is lost: the operands of the key stay.
    #[error("merge operator {operator} failed on key \"{key}\": {what}")]
    MergeFailed {
        /// The name of the operator.
        operator: String,
        /// The key, escaped.
        key: String,
        /// The message of the operator.
        what: String,
    },
    /// Another writer changed a key that the transaction wrote or read, or other writers were so
    /// fast that sixteen checks did not keep up with them. Nothing was written.
    #[error("another write of key \"{}\" of keyspace {keyspace:?} came first", key.escape_ascii())]
    Conflict {
        /// The keyspace of the key.
        keyspace: String,
        /// The key. For a range delete or a scan, a key that both writers wrote or read.
        key: Vec<u8>,
    },
    /// Another transaction held the lock of a key for too long.
    #[error(
        "transaction {holder} held the lock of key \"{}\" of keyspace {keyspace:?} for too long",
        key.escape_ascii()
    )]
    LockTimeout {
        /// The keyspace of the key.
        keyspace: String,
        /// The key.
        key: Vec<u8>,
        /// The transaction that holds the lock.
        holder: u64,
    },
    /// Transactions wait for each other's locks, in a cycle that this one would have closed.
    #[error("transactions wait for each other: {cycle}")]
    Deadlock {
        /// Which transaction waits for which key, and which other transaction holds the lock of
        /// that key.
        cycle: String,
    },
    /// A listener, merge operator, compaction filter or source of a load made a call that could
    /// wait for itself, or for a lock that is held while it runs. Or a merge operator read a value
    /// that it has to compute itself.
    #[error("a callback called into the store that called it")]
    InsideCallback,
    /// The writer of the store revoked the lease of this follower, because the files kept for
    /// followers reached the limits of the store. What the follower was about to read may be gone.
    /// Or somebody put another copy of the store in its place.
    #[error("the writer of {path} keeps no files for this follower any more")]
    LeaseRevoked {
        /// The store.
        path: String,
    },
    /// The store has lost the end of its log in a power loss, or an older copy is in its place now,
    /// and the lost part had changes that the caller has read. Sequence numbers above the last
    /// common one now mean other writes.
    #[error("the history of {path} has forked: the last common number is {last_common}")]
    HistoryForked {
        /// The store.
        path: String,
        /// The last sequence number that both histories have in common.
        last_common: u64,
    },
    /// The store does not have the changes after the position where the caller wants to begin.
    #[error("{}", gone_text(path, *first, *why))]
    HistoryGone {
        /// The store.
        path: String,
        /// The first position that the store has.
        first: u64,
        /// Why the changes are gone.
        why: Gone,
    },
    /// The store was closed while the operation waited.
    #[error("the store is closed")]
    Closed,
}

/// Why a store does not have the changes after a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gone {
    /// The log begins after the position.
    Log,
    /// The store does not know the history of the position: it remembers 64 crashes and copies, and
    /// nothing of other stores.
    History,
    /// After the position there was a load whose tables were compacted.
    Load,
    /// The writes after the position may be to keyspaces that were dropped.
    Keyspace,
}

/// The kind of failure that an [`Error`] is, on which a program can base its decisions. The error
/// itself has the context, and says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file system refused an operation.
    Io,
    /// The bytes on disk differ from those that were written.
    Corruption,
    /// An argument or option is out of range: another may work.
    Invalid,
    /// There is no store at the path.
    NotAStore,
    /// The directory contains files that do not belong to a store, perhaps of LevelDB or RocksDB.
    ForeignFiles,
    /// A newer release wrote the store.
    NewerFormat,
    /// Another process, or another handle of this one, has the store open.
    InUse,
    /// The store was opened before a fork, by the other process.
    OtherProcess,
    /// The store is open for reading only.
    ReadOnly,
    /// The disk, a quota or a limit is full. Writes work again once there is space.
    NoSpace,
    /// A background job or a sync failed: the store accepts no writes before it is opened again.
    Stopped,
    /// No keyspace has that name.
    UnknownKeyspace,
    /// A merge operator failed on a key.
    MergeFailed,
    /// Somebody else wrote what a transaction read or wrote: begin again.
    Conflict,
    /// Another transaction held a lock for too long: begin again.
    LockTimeout,
    /// Transactions wait for each other: begin again.
    Deadlock,
    /// A callback called into the store that called it.
    InsideCallback,
    /// The writer keeps no files for this follower any more: follow the store again.
    LeaseRevoked,
    /// The store has lost what the caller has read: start again from its state.
    HistoryForked,
    /// The log does not reach back so far: start again from the state of the store.
    HistoryGone,
    /// The store was closed.
    Closed,
}

impl Error {
    /// What kind of failure it is.
    ///
    /// ```
    /// use runstone::{ErrorKind, Store};
    ///
    /// let error = Store::builder("/nowhere").max_wal_bytes(1).open().expect_err("refused");
    /// assert_eq!(error.kind(), ErrorKind::Invalid);
    /// assert!(error.to_string().starts_with("option max_wal_bytes is 1, but must be at least"));
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Storage(error) if error.is_no_space() => ErrorKind::NoSpace,
            Error::Storage(_) => ErrorKind::Io,
            Error::Corruption { .. } => ErrorKind::Corruption,
            Error::InvalidArgument { .. } => ErrorKind::Invalid,
            Error::NotAStore { .. } => ErrorKind::NotAStore,
            Error::ForeignFiles { .. } | Error::OtherDatabase { .. } => ErrorKind::ForeignFiles,
            Error::NewerFormat { .. } => ErrorKind::NewerFormat,
            Error::InUse { .. } => ErrorKind::InUse,
            Error::OtherProcess => ErrorKind::OtherProcess,
            Error::ReadOnly => ErrorKind::ReadOnly,
            Error::NoSpace { .. } => ErrorKind::NoSpace,
            Error::Stopped { .. } => ErrorKind::Stopped,
            Error::UnknownKeyspace { .. } => ErrorKind::UnknownKeyspace,
            Error::MergeFailed { .. } => ErrorKind::MergeFailed,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::LockTimeout { .. } => ErrorKind::LockTimeout,
            Error::Deadlock { .. } => ErrorKind::Deadlock,
            Error::InsideCallback => ErrorKind::InsideCallback,
            Error::LeaseRevoked { .. } => ErrorKind::LeaseRevoked,
            Error::HistoryForked { .. } => ErrorKind::HistoryForked,
            Error::HistoryGone { .. } => ErrorKind::HistoryGone,
            Error::Closed => ErrorKind::Closed,
        }
    }

    /// An out-of-range argument.
    pub fn invalid(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::InvalidArgument { what: what.into(), hint: hint.into() }
    }

    /// Bytes that do not fit the format.
    pub fn corruption(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption { file: file.into(), offset, what: what.into() }
    }

    /// The place of the failure, if it has one.
    pub fn place(&self) -> Option<String> {
        match self {
            Error::Storage(error) => Some(error.path.clone()),
            Error::Corruption { file, offset, .. } => Some(format!("{file} byte {offset}")),
            Error::NewerFormat { file, .. } => Some(file.clone()),
            Error::NotAStore { path }
            | Error::ForeignFiles { path, .. }
            | Error::OtherDatabase { path }
            | Error::InUse { path, .. }
            | Error::LeaseRevoked { path }
            | Error::HistoryForked { path, .. }
            | Error::HistoryGone { path, .. }
            | Error::NoSpace { path, .. } => Some(path.clone()),
            Error::Stopped { cause } => cause.place(),
            _ => None,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Error::Storage(error) => storage_hint(error),
            Error::Corruption { file, .. } => damage_hint(file).into(),
            Error::InvalidArgument { hint, .. } => hint.clone(),
            Error::NotAStore { .. } => "check the path, or create the store first".into(),
            Error::OtherDatabase { path } => format!(
                "`runstone import STORE leveldb:{path}` or `rocksdb:{path}` copies it into a store \
                 of a new directory"
            ),
            Error::ForeignFiles { .. } => "choose an empty or new directory".into(),
            Error::NewerFormat { .. } => "use a newer release of runstone".into(),
            Error::InUse { process: Some(id), .. } if *id == std::process::id() => {
                "use the store that is open in this process, or close it first".into()
            }
            Error::InUse { .. } => {
                "wait for the other process, or close it; a store that is open there is read by \
                 `Store::follow`"
                    .into()
            }
            Error::OtherProcess => "open the store after the fork, in one of the processes".into(),
            Error::ReadOnly => "open the store for writing".into(),
            Error::NoSpace { full, path, .. } => {
                format!("{}, then try again: no reopen is needed", space_hint(*full, path))
            }
            Error::Stopped { cause } => format!("fix the cause and reopen: {}", cause.hint()),
            Error::UnknownKeyspace { .. } => "create it, or list the keyspaces".into(),
            Error::MergeFailed { .. } => {
                "delete the key, or put a value that the operator takes: that ends its operands"
                    .into()
            }
            Error::Conflict { .. } => "begin the transaction again, and repeat its work".into(),
            Error::LockTimeout { .. } => {
                "roll back and begin again, raise lock_timeout, or hold locks for less time".into()
            }
            Error::Deadlock { .. } => {
                "roll back, so that the others go on, and begin again; transactions that take \
                 locks in the same order never meet this"
                    .into()
            }
            Error::InsideCallback => {
                "a callback may read what needs no merge operator; note the rest, and do it in \
                 another thread"
                    .into()
            }
            Error::LeaseRevoked { .. } => {
                "follow the store again; refresh more often, or raise follower_keep_bytes or \
                 follower_keep_seconds of the writer"
                    .into()
            }
            Error::HistoryForked { .. } => {
                "begin anew from the state of the store, or go back to the last common number"
                    .into()
            }
            Error::HistoryGone { why: Gone::Log, .. } => {
                "begin anew (ChangesFrom::Everything, --everything), or take the state \
                 (OnGap::State, --state); a larger keep_log_bytes keeps more"
                    .into()
            }
            Error::HistoryGone { .. } => {
                "begin anew (ChangesFrom::Everything, --everything), or take the state \
                 (OnGap::State, --state)"
                    .into()
            }
            Error::Closed => "reopen the store".into(),
        }
    }

    /// The error of a failed sync. If the sync itself finds the disk full, waiting does not help:
    /// the data to be synced are lost, and nobody tries again (P7).
    pub(crate) fn of_failed_sync(self) -> Error {
        if self.is_no_space() { Error::Stopped { cause: Box::new(self) } } else { self }
    }

    /// Whether the cause is damage on disk, even if it stopped the store.
    pub fn is_corruption(&self) -> bool {
        match self {
            Error::Stopped { cause } => cause.is_corruption(),
            _ => self.kind() == ErrorKind::Corruption,
        }
    }

    /// Whether the cause can end without a reopen: a full disk, or too many open files. The work
    /// left nothing half done, so it is tried again later.
    pub(crate) fn is_transient(&self) -> bool {
        self.is_no_space() || matches!(self, Error::Storage(error) if error.is_out_of_files())
    }

    /// Whether a transaction failed because of other transactions or writers, so that it may
    /// succeed if it begins again.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Conflict | ErrorKind::LockTimeout | ErrorKind::Deadlock)
    }

    /// Whether the store or the keyspace that was named does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotAStore | ErrorKind::UnknownKeyspace)
    }
}

/// Whether an error is of one kind.
macro_rules! is {
    ($($(#[$doc:meta])+ $name:ident $kind:ident;)+) => {
        impl Error {$(
            $(#[$doc])+
            pub fn $name(&self) -> bool {
                self.kind() == ErrorKind::$kind
            }
        )+}
    };
}

is! {
    /// Whether another handle or process has the store open.
    is_in_use InUse;
    /// Whether the call was wrong: another argument or option may work.
    is_invalid Invalid;
    /// Whether the store accepts no writes until it is opened again (P7).
    is_stopped Stopped;
    /// Whether the cause is a full disk, quota or limit (P9).
    is_no_space NoSpace;
    /// Whether the store was opened for reading only.
    is_read_only ReadOnly;
    /// Whether the store was closed.
    is_closed Closed;
}

/// What helps against a failure of the file system.
fn storage_hint(error: &runstone_storage::Error) -> String {
    use std::io::ErrorKind::{AlreadyExists, NotFound, PermissionDenied, ReadOnlyFilesystem};
    if error.is_not_found() && is_of_store(&error.path) {
        return format!("the file is missing: {}", damage_hint(&error.path));
    }
    let hint = match error.kind() {
        _ if error.is_out_of_files() => {
            "raise the limit of open files (`ulimit -n`), or lower Options::max_open_files so that \
             the rest of the process has enough; then try again"
        }
        _ if error.operation == Operation::Lock => {
            "see that no other process has the store open, then reopen it"
        }
        PermissionDenied => {
            "check owner and mode of the directory and its files; a store that is there can be \
             opened read-only"
        }
        ReadOnlyFilesystem => {
            "choose a directory that can be written; a store that is there can be opened read-only"
        }
        NotFound => "check the path",
        AlreadyExists => "choose an empty or new directory",
        _ => "check the device, then reopen the store",
    };
    hint.to_string()
}

/// How to make room when a write found none.
fn space_hint(full: Full, path: &str) -> &'static str {
    match full {
        Full::Space if path.ends_with(".wal") => {
            "free some space, 8 MiB or more for a segment of the log"
        }
        Full::Space if path.starts_with(VALUES_OF) => {
            "let snapshots go, or raise values.capacity_bytes or values.reserve"
        }
        Full::Space => "free some space",
        _ => full.hint(),
    }
}

/// What helps against damage in a file. A checkpoint on the same disk shares tables and value
/// files, so it has the same damage. A copy of the manifest or of the log fits only the other files
/// of the same copy.
fn damage_hint(file: &str) -> &'static str {
    match extension(file) {
        Some("manifest" | "wal") => WHOLE_COPY,
        _ if file.ends_with("CURRENT") => WHOLE_COPY,
        _ => {
            "restore this file from a copy on another disk (a checkpoint on this one shares it); \
             without a copy, `runstone repair STORE TARGET` makes a new store of what is left, and \
             lists what may be wrong, and `runstone export STORE FILE` saves what can be read; \
             `runstone verify` lists all damage"
        }
    }
}

const WHOLE_COPY: &str = "use a checkpoint or another copy as a whole, in place of this directory: \
    single files of it do not fit here; without one, `runstone repair STORE TARGET` makes a new \
    store of what is left, and lists what may be wrong";

fn extension(file: &str) -> Option<&str> {
    std::path::Path::new(file).extension().and_then(|extension| extension.to_str())
}

/// Whether a file with this name belongs to a store and must not be missing.
fn is_of_store(file: &str) -> bool {
    matches!(extension(file), Some("table" | "values" | "manifest" | "wal"))
}

/// Why the storage of a closed store refuses late operations.
#[derive(Debug, thiserror::Error)]
#[error("closed")]
pub(crate) struct StoreClosed;

impl From<runstone_storage::Error> for Error {
    fn from(error: runstone_storage::Error) -> Self {
        if error.source.get_ref().is_some_and(|source| source.is::<StoreClosed>()) {
            return Error::Closed;
        }
        if let Some(full) = error.full() {
            let what = error.operation.to_string();
            return Error::NoSpace { full, path: error.path.clone(), what };
        }
        Error::Storage(std::sync::Arc::new(error))
    }
}

impl From<runstone_policy::options::OptionError> for Error {
    fn from(error: runstone_policy::options::OptionError) -> Self {
        Error::invalid(error.to_string(), "see `runstone help options`")
    }
}
/// A process, in an error.
fn name_of(process: Option<u32>) -> String {
    match process {
        Some(id) if id == std::process::id() => "this process".into(),
        Some(id) => format!("process {id}"),
        None => "another process".into(),
    }
}

/// The message of [`Error::HistoryGone`].
fn gone_text(path: &str, first: u64, why: Gone) -> String {
    match why {
        Gone::Log => format!(
            "the log of {path} is not there any more: what is left begins after number {first}"
        ),
        Gone::History => format!(
            "{path} does not know the history of the position: it is that of another store, or \
             more than 64 crashes or copies have come since"
        ),
        Gone::Load => format!(
            "{path} has compacted the tables of a load that came after the position, so its \
             entries are not known any more"
        ),
        Gone::Keyspace => format!(
            "{path} has dropped a keyspace since the position, and its log does not reach back to \
             where it said which one"
        ),
    }
}
