//! How a transaction runs: what it promises, and what it may take.

use std::time::Duration;

/// What a transaction is protected from. Each level holds among transactions and against lone
/// writes and batches alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Reads see one moment, and a key that somebody else wrote since then is not overwritten: no
    /// dirty read, no lost update, no torn view. Two transactions that read what the other writes
    /// may both commit (write skew). A pessimistic transaction overwrites what was committed before
    /// it took the key's lock, so it has this for keys that it first reads for update.
    #[default]
    Snapshot,
    /// The outcome is that of some order of the transactions, one after another, in which each
    /// comes where it commits. What was read is tracked and checked: keys, absent ones too, and the
    /// stretches that scans passed.
    Serializable,
}

/// When a transaction learns that another one is in its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionMode {
    /// At its commit, which then fails. Nobody waits. Best where conflicts are rare.
    #[default]
    Optimistic,
    /// When it first touches a key: a write, or a read for update, takes the key's lock or waits
    /// for it, and the commit checks nothing. So a value that came from `get`, as of the beginning,
    /// may be old by the time of the write: read for update what a write rests on. Only
    /// transactions take locks. A lone put does not ask for them, and changes a locked key at any
    /// time.
    Pessimistic,
}

/// How a transaction runs.
///
/// ```
/// use runstone::{Isolation, TransactionOptions};
///
/// let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
/// assert_eq!(options.max_tracked_bytes, 64 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What the transaction is protected from. A pessimistic one reads for update what it must
    /// protect, so it has no other level than `Snapshot`.
    pub isolation: Isolation,
    /// When it learns of others.
    pub mode: TransactionMode,
    /// Memory for what a serializable transaction read, roughly; a read beyond it fails. A scan
    /// takes the memory of two keys, however far it goes.
    pub max_tracked_bytes: usize,
    /// Most memory for the transaction's writes, estimated. A write that would exceed it fails and
    /// changes nothing. A range delete needs its own memory before it frees that of the writes that
    /// it removes. The commit takes as much again.
    pub max_write_bytes: usize,
    /// How long a pessimistic transaction waits for a lock.
    pub lock_timeout: Duration,
    /// How many locks it may hold; each takes about 100 bytes and its key twice.
    pub max_locks: usize,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            isolation: Isolation::Snapshot,
            mode: TransactionMode::Optimistic,
            max_tracked_bytes: 64 << 20,
            max_write_bytes: 256 << 20,
            lock_timeout: Duration::from_secs(1),
            max_locks: 1 << 20,
        }
    }
}

impl TransactionOptions {
    /// Optimistic, and protected from everything.
    pub fn serializable() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Serializable, ..Default::default() }
    }

    /// With locks.
    pub fn pessimistic() -> TransactionOptions {
        TransactionOptions { mode: TransactionMode::Pessimistic, ..Default::default() }
    }
}
