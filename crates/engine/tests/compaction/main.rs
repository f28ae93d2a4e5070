//! Compactions of a store: slices, copied blocks, cuts by prefix, the space bound, tombstones,
//! idle stores.

mod copies;
mod idle;
mod prefix_rules;
mod slices;
mod space_bound;
mod tombstones;
