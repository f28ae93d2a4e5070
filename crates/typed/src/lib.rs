//! Typed keys and values for Runstone, through serde.
//!
//! A [`TypedKeyspace`] adds types to a [`runstone::Keyspace`], which stores bytes. Encoded keys
//! sort as the typed keys do ([`key`]), so ranges, prefixes and scans mean the same for both. A
//! value is stored as JSON, or in a [`ValueFormat`] of your own.
//!
//! ```
//! use runstone::{Batch, Options, Store, WriteOptions};
//! use runstone_typed::TypedKeyspace;
//!
//! # fn main() -> runstone::Result<()> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! let store = Store::open(dir.path(), Options::default())?;
//! // Temperatures by place and year.
//! type Degrees = TypedKeyspace<(String, i32), f64>;
//! let degrees = Degrees::new(store.open_keyspace("degrees", None)?);
//! degrees.put(&("Oslo".into(), -44), &4.5)?;
//! degrees.put(&("Oslo".into(), 1066), &5.25)?;
//! assert_eq!(degrees.get(&("Oslo".into(), 1066))?, Some(5.25));
//!
//! // Batches and transactions take typed writes, too.
//! let mut batch = Batch::new();
//! degrees.put_in(&mut batch, &("Rome".into(), -44), &15.5)?;
//! store.write(&batch, WriteOptions::default())?;
//!
//! // Years before our era come first, and a place is a prefix.
//! let oslo = degrees.prefix(&("Oslo".to_string(),))?;
//! let years = oslo.map(|entry| Ok(entry?.0.1)).collect::<runstone::Result<Vec<_>>>()?;
//! assert_eq!(years, [-44, 1066]);
//! # Ok(())
//! # }
//! ```
//!
//! All errors are those of `runstone`. A key or value that does not have the type causes
//! [`runstone::Error::InvalidArgument`], whose text contains the bytes.

#![forbid(unsafe_code)]

/// Runs the code of the how-to as tests.
#[cfg(doctest)]
mod how_to {
    #[doc = include_str!("../../../docs/how-to/typed-keys.md")]
    struct TypedKeys;
}

mod access;
mod format;
mod iter;
pub mod key;
mod keyspace;
mod prefix;

pub use access::{Reads, Writes};
pub use format::{Json, ValueFormat};
pub use iter::{TypedCursor, TypedScan};
pub use keyspace::TypedKeyspace;
pub use prefix::KeyPrefix;

/// Names types without storing values of them.
type Types<T> = std::marker::PhantomData<fn() -> T>;
