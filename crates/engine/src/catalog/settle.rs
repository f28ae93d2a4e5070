//! Adapts a keyspace to its options: its value files, and the rule that cuts its tables. A change
//! of an option that cannot change is refused, and the error says what to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone_policy::prefix::{PrefixExtractor, PrefixRule, Prefixer};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::options::store::KeyspaceOptions;
use crate::options::values::{ValueOptions, ValuePlacement};
use crate::table::handle::TableContext;
use crate::tree::record::Change;
use crate::values::file::ValueFile;
use crate::values::layout::Layout;
use crate::values::separation::ValueFiles;

/// Adapts a keyspace's value files to its options.
pub(crate) fn settle_placement(
    keyspace: &KeyspaceCore,
    tables: &TableContext,
    next_file: &AtomicU64,
) -> Result<()> {
    let options = &keyspace.options.load().values;
    let settled = settle_values(keyspace, options, tables, next_file, 0)?;
    keyspace.values.store(Arc::new(settled));
    Ok(())
}

/// The value files for these options: the current one if it fits, otherwise a new one, or none for
/// inline values. Retired files stay beside it. `last_seq` is the last write that may have a value
/// in the current file.
pub(crate) fn settle_values(
    keyspace: &KeyspaceCore,
    options: &ValueOptions,
    tables: &TableContext,
    next_file: &AtomicU64,
    last_seq: SeqNo,
) -> Result<ValueFiles> {
    let old = keyspace.values.load_full();
    let mut values = ValueFiles { current: None, retired: old.retired.clone() };
    if let Some(current) = &old.current {
        let layout = current.layout();
        if layout.is_of(options) {
            check_same_file(&layout, options)?;
            values.current = Some(Arc::clone(current));
            return Ok(values);
        }
        values.retired.push(Arc::clone(current));
    }
    if options.placement != ValuePlacement::Inline {
        let number = next_file.fetch_add(1, Relaxed);
        let layout = Layout::new(number, options);
        values.current = Some(Arc::new(ValueFile::create(tables, layout)?));
    }
    if let Some(current) = &old.current {
        current.retire(next_file.load(Relaxed), last_seq);
    }
    Ok(values)
}

/// Refuses options that [`settle_values`] would refuse.
pub(crate) fn check_values(keyspace: &KeyspaceCore, options: &ValueOptions) -> Result<()> {
    let values = keyspace.values.load();
    let same = values.current.iter().map(|current| current.layout());
    same.filter(|layout| layout.is_of(options))
        .try_for_each(|layout| check_same_file(&layout, options))
}

/// Refuses a change of groups and slots, because pointers and places depend on them.
fn check_same_file(layout: &Layout, options: &ValueOptions) -> Result<()> {
    let fixed = [
        ("values.groups", u64::from(layout.group_count()), u64::from(options.group_count())),
        ("values.slot_bytes", layout.slot_bytes.into(), options.slot_bytes.into()),
    ];
    for (name, stored, given) in fixed {
        if stored != given {
            return Err(Error::invalid(
                format!("option {name} is {given}, but the keyspace was made with {stored}"),
                format!(
                    "it cannot change: set {name} to {stored}, or copy the entries into a new \
                     keyspace"
                ),
            ));
        }
    }
    Ok(())
}

/// The rule that cuts tables by prefix: the stored rule, or the rule in the options if none is
/// stored.
pub(crate) fn settle_prefixer(
    stored: Option<&PrefixRule>,
    options: &KeyspaceOptions,
    extractors: &[Arc<dyn PrefixExtractor>],
) -> Result<Option<Prefixer>> {
    let given = options.prefix_rule()?;
    if let (Some(stored), Some(given)) = (stored, &given)
        && stored != given
    {
        return Err(Error::invalid(
            format!("tables of this keyspace are cut by prefix {stored}, not by {given}"),
            format!(
                "the rule cannot change: set prefix to \"{stored}\" or \"auto\", or copy the \
                 entries into a new keyspace"
            ),
        ));
    }
    let rule = stored.or(given.as_ref());
    let resolved = rule.map(|rule| rule.resolve(extractors)).transpose();
    resolved.map_err(|error| {
        Error::invalid(error.to_string(), "register it under this name, as when the store was made")
    })
}

/// The manifest's description of all value files of a keyspace.
pub(crate) fn value_files(id: KeyspaceId, values: &ValueFiles) -> impl Iterator<Item = Change> {
    values.all().map(move |store| Change::ValueFile { id, layout: store.layout() })
}
