//! Compactions of a store: slices, cut flushes, copied blocks, cuts by prefix, the space bound,
//! tombstones, idle stores, scans, seeks.

mod copies;
mod flush_cuts;
mod idle;
mod prefix_rules;
mod scans;
mod seeks;
mod slices;
mod space_bound;
mod tombstones;
