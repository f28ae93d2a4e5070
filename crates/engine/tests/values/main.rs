//! Separated values of a store: what they hold, and what reading them costs.

mod model;
mod page_cache;
mod reads;
