//! Separated values of a store: their content, and the cost of reading them.

mod model;
mod page_cache;
mod reads;
