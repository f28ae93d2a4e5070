//! Decides which writes readers see: publishes them in order, keeps the snapshots that hold a
//! moment, and takes memory back from idle cursors.

pub(crate) mod cursors;
#[cfg(test)]
mod model;
pub(crate) mod publish;
pub(crate) mod snapshot;
pub(crate) mod standing;
#[cfg(test)]
mod tests;

use crate::sync::cores as sync;
