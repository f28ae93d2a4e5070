//! How a transaction runs: what it promises, and how much it may use.

use std::time::Duration;

use crate::options::setters::{default_doc, setter, with_setters};
use runstone_policy::options::OptionDoc;

/// What a transaction is protected from. Each level protects against other transactions, and
/// against lone writes and batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Reads see one moment, and a key that somebody else has written since then is not
    /// overwritten: no dirty read, no lost update, no torn view. Two transactions that each read
    /// what the other writes may both commit (write skew). A pessimistic transaction overwrites
    /// what was committed before it took the lock of the key. So it has this protection only for
    /// keys that it first reads for update.
    #[default]
    Snapshot,
    /// The outcome is as if the transactions ran one after another, in the order of their commits.
    /// Everything that is read is tracked and checked: keys, including absent ones, and the
    /// stretches that scans pass.
    Serializable,
}

/// When a transaction finds out that it conflicts with another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionMode {
    /// At its commit, which then fails. Nobody waits. This is best if conflicts are rare.
    #[default]
    Optimistic,
    /// When it first touches a key. A write, or a read for update, takes the lock of the key or
    /// waits for it, and the commit checks nothing. So a value from `get`, which reads the state at
    /// the beginning, may be old by the time of the write: read for update what a write depends on.
    /// Only transactions take locks. A lone put does not check them, and can change a locked key at
    /// any time.
    Pessimistic,
}

with_setters! {
    /// How a transaction runs.
    ///
    /// ```
    /// use runstone::{Isolation, TransactionOptions};
    ///
    /// let options = TransactionOptions::default().isolation(Isolation::Serializable);
    /// assert_eq!(options.max_tracked_bytes, 64 << 20);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct TransactionOptions {
        /// What the transaction is protected from. A pessimistic transaction reads for update what
        /// it must protect, so its only level is `Snapshot`.
        pub isolation: Isolation = Isolation::Snapshot,
        /// When the transaction finds out about conflicts.
        pub mode: TransactionMode = TransactionMode::Optimistic,
        /// Approximate memory for what a serializable transaction has read; a read beyond it fails.
        /// A scan uses the memory of two keys, however far it goes.
        pub max_tracked_bytes: usize = 64 << 20,
        /// The most memory for the transaction's writes, estimated. A write that would exceed it
        /// fails and changes nothing. A range delete needs its own memory before it frees the
        /// memory of the writes that it removes. The commit needs as much again.
        pub max_write_bytes: usize = 256 << 20,
        /// How long a pessimistic transaction waits for a lock.
        pub lock_timeout: Duration = Duration::from_secs(1),
        /// How many locks the transaction may hold. Each needs about 100 bytes and twice the size
        /// of its key.
        pub max_locks: usize = 1 << 20,
    }
}

impl TransactionOptions {
    /// Options of an optimistic transaction that is protected from everything.
    pub fn serializable() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Serializable, ..Default::default() }
    }

    /// Options of a transaction with locks.
    pub fn pessimistic() -> TransactionOptions {
        TransactionOptions { mode: TransactionMode::Pessimistic, ..Default::default() }
    }
}
