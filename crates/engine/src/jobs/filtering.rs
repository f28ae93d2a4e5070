//! Shows entries to the keyspace's compaction filter while a compaction processes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_policy::shape::TableId;

use crate::callbacks::compaction_filter::{FilterDecision, Filtering};
use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::neighbours::Newest;
use crate::keys::SeqNo;
use crate::keys::expiry::{expiry_of, split};
use crate::keys::is_pointer;
use crate::table::iterator::Access;
use crate::values::separation::ValueFiles;

/// The filter of one slice of a compaction.
pub(crate) struct Filter {
    filtering: Arc<Filtering>,
    values: Arc<ValueFiles>,
    level: u32,
    /// Finds entries with no operand above them; `None` if the keyspace has no operands.
    newest: Option<Newest>,
    /// Whether the filter has panicked before: a panic is reported once.
    has_failed: bool,
    pub(crate) removed: u64,
    pub(crate) changed: u64,
}

impl Filter {
    /// The filter for a slice; `None` if the keyspace has no filter. `level` is the level that the
    /// compaction of `inputs` writes to.
    pub(super) fn of(
        keyspace: &KeyspaceCore,
        inputs: &BTreeSet<TableId>,
        level: u32,
    ) -> Option<Filter> {
        let (filtering, values) = (keyspace.filtering.load_full(), keyspace.values.load_full());
        if !filtering.is_used() {
            return None;
        }
        let has_operands = keyspace.merging.load().is_used();
        let newest = has_operands.then(|| Newest::of(&keyspace.view.load(), inputs));
        let (has_failed, removed, changed) = (false, 0, 0);
        Some(Filter { filtering, values, level, newest, has_failed, removed, changed })
    }

    /// Whether the filter may see an entry. An entry below an operand is only a part of a value.
    pub(super) fn may_see(&mut self, key: &[u8], seq: SeqNo) -> bool {
        self.newest.as_mut().is_none_or(|newest| newest.is(key, seq))
    }

    /// Decides what happens to an entry with a value. If the record of the value is gone, the entry
    /// stays, because a newer version hides it.
    pub(super) fn decide(
        &mut self,
        env: &Env,
        key: &[u8],
        trailer: u64,
        entry: &[u8],
    ) -> Result<FilterDecision> {
        let found;
        let value = if is_pointer(trailer) {
            match self.values.resolve(key, trailer, entry, Access::Sequential)? {
                Some(value) => {
                    found = value;
                    &found[..]
                }
                None => return Ok(FilterDecision::Keep),
            }
        } else if expiry_of(trailer, entry).is_some() {
            split(entry).0
        } else {
            entry
        };
        let decision = self.filtering.decide(self.level, key, value).unwrap_or_else(|what| {
            if !std::mem::replace(&mut self.has_failed, true) {
                let hint = "the entry stays; mend the filter, or set compaction_filter to \"\"";
                env.emit(|| Event::BackgroundError { error: Error::invalid(what, hint) });
            }
            FilterDecision::Keep
        });
        match &decision {
            FilterDecision::Keep => {}
            FilterDecision::Remove => self.removed += 1,
            FilterDecision::Change(_) => self.changed += 1,
        }
        Ok(decision)
    }
}
