//! Compactions of a store: slices, copied blocks, cuts by prefix, the space bound, tombstones.

mod copies;
mod prefix_rules;
mod slices;
mod space_bound;
mod tombstones;
