//! Decides for each keyspace how its tables get into the new store. It uses no file and no clock.
//!
//! Carried over: each whole table is linked or copied to its place in the tree, the readable
//! entries of a damaged table are written to a table at the same place, and the entries of the log
//! become a new run on top. Merged: all versions of all tables are written again
//! ([`super::merge`]). Merging assumes nothing about levels, value files and log, so it is used
//! when one of them is in doubt.

use super::report::RepairBasis;
use crate::keys::SeqNo;

/// What is known about the value files of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueFiles {
    /// It has none, and its tables do not point to any.
    None,
    /// They were not read yet.
    Unread,
    /// Each record verifies, and each visible pointer leads to one.
    Whole,
    /// At least one is damaged or missing, or a pointer leads nowhere.
    Damaged,
}

/// What is known about a keyspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// How it is known which tables are in force.
    pub(super) basis: RepairBasis,
    /// Whether all edits of the manifest apply one after another, with these tables and layouts.
    pub(super) is_tree_known: bool,
    /// Whether writes of a log that was kept aside are to be restored.
    pub(super) has_aside: bool,
    /// The smallest number in the log that is not in tables.
    pub(super) first_logged: Option<SeqNo>,
    /// The largest number in tables.
    pub(super) newest_in_tables: SeqNo,
    /// Whether a write of the log points to a value file.
    pub(super) has_logged_pointers: bool,
    pub(super) values: ValueFiles,
    /// Tables that are missing or do not verify; 0 before they were read.
    pub(super) unlike_tables: usize,
}

/// Why the tables of a keyspace are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A table and the tables that it was compacted from share sequence numbers, and it is not
    /// known which are in force. Only a merge counts each of their versions once.
    NotAllOfTheManifest,
    /// An edit is in the manifest but does not fit the tree before it. Then the order of age
    /// between runs is not known.
    TreeNotKnown,
    /// Writes of a log that was kept aside count only for keys that were not written since, and
    /// only a merge of all versions shows which keys those are.
    LogKeptAside,
    /// A run on top must be newer than the tree (I1).
    LogNotNewer,
    /// A collection of a hash group may decide from the group alone which record of a key is the
    /// newest. So a flush writes a record or a marker to the group for each write. If a repair made
    /// a run of the log, it would not do so, and an older value would come back. Also, pointers in
    /// the log lead to records that only a merge checks one by one.
    LogOverValues,
    /// Pointers would lead nowhere. A merge leaves out the values that cannot be read, and reports
    /// them.
    ValuesDamaged,
    /// The records that only a damaged table points to would never be counted as dead.
    TablesOfValuesDamaged,
}

/// Whether the tables of a keyspace are carried over, or why not. Files that were not read yet
/// count as whole, so a caller can call this before it reads them, and again afterwards.
pub(super) fn decide(facts: &Facts) -> Result<(), Why> {
    let logged_early = facts.first_logged.is_some_and(|first| first <= facts.newest_in_tables);
    let has_values = facts.values != ValueFiles::None || facts.has_logged_pointers;
    let conditions = [
        (facts.basis == RepairBasis::Manifest, Why::NotAllOfTheManifest),
        (facts.is_tree_known, Why::TreeNotKnown),
        (!facts.has_aside, Why::LogKeptAside),
        (!logged_early, Why::LogNotNewer),
        (!has_values || facts.first_logged.is_none(), Why::LogOverValues),
        (facts.values != ValueFiles::Damaged, Why::ValuesDamaged),
        (!has_values || facts.unlike_tables == 0, Why::TablesOfValuesDamaged),
    ];
    match conditions.into_iter().find(|(holds, _)| !holds) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Facts = Facts {
        basis: RepairBasis::Manifest,
        is_tree_known: true,
        has_aside: false,
        first_logged: None,
        newest_in_tables: 10,
        has_logged_pointers: false,
        values: ValueFiles::Whole,
        unlike_tables: 0,
    };

    const INLINE: Facts = Facts { values: ValueFiles::None, first_logged: Some(11), ..WHOLE };

    #[test]
    fn each_condition_alone_leads_to_a_merge() {
        assert_eq!((decide(&WHOLE), decide(&INLINE)), (Ok(()), Ok(())));
        let part = RepairBasis::PartOfManifest;
        let cases = [
            (Facts { basis: part, ..WHOLE }, Why::NotAllOfTheManifest),
            (Facts { is_tree_known: false, ..WHOLE }, Why::TreeNotKnown),
            (Facts { has_aside: true, ..WHOLE }, Why::LogKeptAside),
            (Facts { first_logged: Some(10), ..WHOLE }, Why::LogNotNewer),
            (Facts { first_logged: Some(11), ..WHOLE }, Why::LogOverValues),
            (Facts { has_logged_pointers: true, ..INLINE }, Why::LogOverValues),
            (Facts { values: ValueFiles::Damaged, ..WHOLE }, Why::ValuesDamaged),
            (Facts { unlike_tables: 1, ..WHOLE }, Why::TablesOfValuesDamaged),
        ];
        for (facts, why) in cases {
            assert_eq!(decide(&facts), Err(why), "{facts:?}");
        }
    }

    #[test]
    fn damaged_tables_without_separated_values_are_no_reason() {
        assert_eq!(decide(&Facts { unlike_tables: 3, ..INLINE }), Ok(()));
        assert_eq!(decide(&Facts { unlike_tables: 3, first_logged: None, ..INLINE }), Ok(()));
    }
}
