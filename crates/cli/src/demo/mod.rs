//! The demonstration's parts: what goes in, what is done with it, what is reported.

pub mod input;
pub mod phases;
pub mod report;
