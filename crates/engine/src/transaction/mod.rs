//! Transactions without handles: what a transaction has written and read, the check at its commit,
//! and the locks of transactions that take locks. Users hold the transactions of
//! `store/transaction.rs`, which begins and commits them.
//!
//! - [`write_set`]: writes that nobody else sees yet, in order, with savepoints.
//! - [`read_set`]: keys and stretches of keys that were read, for the check.
//! - [`cursor`]: the store as of a snapshot, merged with a write set, in both directions.
//! - [`check`]: whether anybody wrote since the snapshot what a transaction read or wrote.
//! - [`locks`]: locks of keys, with timeouts, and the search for deadlocks.
//! - [`options`]: how a transaction runs.

pub(crate) mod check;
pub mod cursor;
pub(crate) mod locks;
pub mod options;
pub(crate) mod read_set;
pub(crate) mod write_set;

/// The code of the how-to is compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/how-to/transactions.md")]
struct HowTo;
