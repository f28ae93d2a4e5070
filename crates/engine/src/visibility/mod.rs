//! Which writes readers see: publication in order, and the snapshots that hold a moment.

#[cfg(test)]
mod model;
pub(crate) mod publish;
pub(crate) mod snapshot;

use crate::base::sync;
