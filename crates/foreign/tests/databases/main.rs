//! Databases that a small writer makes in the public formats: how they are read, what is refused,
//! and what damage does. Databases of the stores themselves are in `testing/foreign`.

mod damage;
mod reading;
mod refusals;
mod writer;
