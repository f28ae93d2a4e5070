//! Decides which writes readers see: publishes them in order, and keeps the snapshots that hold a
//! moment.

#[cfg(test)]
mod model;
pub(crate) mod publish;
pub(crate) mod snapshot;

use crate::base::sync;
