//! Garbage collection of value files.
//!
//! - [`groups`]: a hash group, without look-ups in the tree.
//! - [`vlog`]: the tail of a log, with look-ups in the tree.
//! - [`write_back`]: a group whose new pointers are written into the tree.
//! - [`relocate`]: the steps that the last two share.
//! - [`room`]: collections that a flush waits for.

mod groups;
mod relocate;
mod room;
mod vlog;
mod write_back;

pub(super) use groups::Crowding;

use std::sync::Arc;

use crate::callbacks::event::Event;
use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::install::Installer;
use crate::options::values::ValuePlacement;
use crate::schedule::Schedule;
use crate::values::file::ValueFile;
use crate::visibility::snapshot::Visibility;
use crate::write::commit::Committer;
use crate::write::pressure::BackPressure;

/// Collects garbage in value files.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) pressure: Arc<BackPressure>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) installer: Arc<Installer>,
}

/// How an attempt to collect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// Slots were freed, or become free when readers release them.
    Freed,
    /// Another collection or a flush is running.
    Busy,
    /// No group can free a slot.
    Nothing,
}

impl Collector {
    /// Collects the group of a keyspace's value file that can free most.
    pub(crate) fn collect(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
    ) -> Result<Collected> {
        if store.placement == ValuePlacement::Vlog {
            return self.collect_log(keyspace, store);
        }
        if store.writes_back {
            return self.collect_and_write_back(keyspace, store);
        }
        let closed = match store.close_group(&self.visibility.readers()) {
            Ok(closed) => closed,
            Err(outcome) => return Ok(outcome),
        };
        let group = closed.group;
        let outcome = self.collect_closed(keyspace, store, closed);
        self.end_collection(store, group, outcome)
    }

    /// Allows the next collection to begin, and quarantines a damaged group. A group that was in
    /// quarantine before gains nothing from another try, so its error is returned.
    pub(crate) fn end_collection(
        &self,
        store: &ValueFile,
        group: u32,
        outcome: Result<()>,
    ) -> Result<Collected> {
        store.end_collecting();
        match outcome {
            Err(error @ Error::Corruption { .. }) => {
                if !store.state.lock().quarantined.insert(group) {
                    return Err(error);
                }
                tracing::error!(%error, group, "a group is damaged; it is not collected");
                self.env.emit(|| Event::BackgroundError { error });
                Ok(Collected::Freed)
            }
            other => other.map(|()| Collected::Freed),
        }
    }
}
