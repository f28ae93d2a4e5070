//! Everything that a user may set: options of stores, keyspaces, values and writes, and their text
//! form.

pub(crate) mod keyspace;
pub(crate) mod policy;
pub(crate) mod presets;
pub(crate) mod setters;
pub(crate) mod store;
pub(crate) mod values;
pub(crate) mod write;
