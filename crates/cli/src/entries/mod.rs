//! What is done with the entries of a keyspace, on the command line and in the shell: the arguments
//! and the work on a store that is open.

pub mod count;
pub mod delete;
pub mod get;
pub mod merge;
pub mod put;
pub mod scan;
pub mod ttl;
