//! `libleveldb.so.1`: the C interface of LevelDB 1.23 over Runstone. A program that was written for
//! LevelDB runs with it unchanged. Its databases are databases of Runstone. Those of LevelDB itself
//! are refused, and the error names the command that copies them.
//!
//! * [`database`]: opening, reading, writing, and the functions that LevelDB calls management.
//! * [`options`]: options, including comparators, filter policies, caches and environments as far
//!   as they are options. [`order`]: the caller's key order. [`batch`], [`iterator`]: the other
//!   objects.
//! * `caches`: how much memory the caches of all databases may use.
//! * [`handles`]: the types that C programs keep in place of objects. [`memory`]: errors, and
//!   memory that the caller frees.
//!
//! Where LevelDB leaves the behaviour undefined, such as the use of a closed object, this library
//! reports an error: handles are numbers of [`runstone_boundary::handles`].

// LevelDB's header states the requirements of each function.
#![allow(clippy::missing_safety_doc, non_camel_case_types, non_upper_case_globals)]

pub mod batch;
mod caches;
pub mod database;
mod destroy;
pub mod handles;
pub mod iterator;
pub mod memory;
pub mod options;
pub mod order;

pub(crate) use runstone_boundary::Result;
