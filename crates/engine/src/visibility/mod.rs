//! Decides which writes readers see. It publishes writes in order, registers the moments that
//! snapshots hold, and takes memory back from idle cursors.

pub(crate) mod cursors;
#[cfg(test)]
mod model;
pub(crate) mod publish;
pub(crate) mod snapshot;
pub(crate) mod standing;
#[cfg(test)]
mod tests;

use crate::sync::cores as sync;
