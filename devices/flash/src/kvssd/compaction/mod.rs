//! Plans of compactions: what is remapped, appended and rewritten.

pub(super) mod append;
pub(super) mod remap;
