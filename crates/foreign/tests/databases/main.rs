//! Tests with databases that a small writer makes in the public formats: reading, refusals, and
//! damage. Databases made by the stores themselves are in `testing/foreign`.

mod damage;
mod reading;
mod refusals;
mod writer;
