//! The keyspaces of an open store: what each consists of, and what the manifest says of them.

pub(crate) mod dead_ranges;
