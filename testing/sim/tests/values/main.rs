//! Separated values: collection, relocation and value files that come and go.

mod beside_threads;
mod hazards;
mod idle;
mod smallest;
