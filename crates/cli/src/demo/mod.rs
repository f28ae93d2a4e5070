//! The parts of the demonstration: input, phases, report.

pub mod input;
pub mod phases;
pub mod report;
