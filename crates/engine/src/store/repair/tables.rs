//! Finds the tables to read, and what belongs to which keyspace.
//!
//! | table | used |
//! |---|---|
//! | in force, by a manifest | always |
//! | named by a manifest, and gone from the tree | never: its deletes may be gone too |
//! | not named by a manifest that is whole | never: an orphan |
//! | not named, and the manifest is partial or missing | yes: its properties say where it belongs |

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::shape::Table;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_storage::Storage;

use super::Repairing;
use super::basis::{Basis, KnownTable};
use super::merge::Input;
use super::report::{Doubt, DoubtReason, RepairBasis};
use super::salvage::Salvage;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::format::properties::Properties;
use crate::keys::{KeyspaceId, SeqNo, is_pointer};
use crate::log::number_in;
use crate::table::handle::file_uid;
use crate::table::reader::TableReader;
use crate::table::table_name;

/// The tables of a keyspace.
#[derive(Default)]
pub(super) struct FoundTables {
    pub(super) inputs: Vec<Input>,
    /// Whether some of their entries point to value files.
    pub(super) has_pointers: bool,
}

/// A table that could be opened, with its properties. It is closed again, because there may be more
/// tables than files that can be open.
struct Opened {
    keyspace: KeyspaceId,
    id: u64,
    floor: Vec<u8>,
    /// The sequence number of the entries that are stored without one.
    number: SeqNo,
    numbers: (SeqNo, SeqNo),
    said: Said,
}

struct Said {
    uid: u64,
    properties: Properties,
    range_deletes: Result<Vec<RangeDelete>>,
}

/// Reads the properties of a table. Tries twice: a table that cannot be opened is lost, and the
/// second read may succeed.
fn ask(storage: &dyn Storage, cache: &Arc<Cache>, id: u64) -> Result<Said> {
    let open = || TableReader::inspect(storage, id, Arc::clone(cache));
    let reader = open().or_else(|_| open())?;
    let range_deletes = reader.range_deletes().or_else(|_| reader.range_deletes());
    let uid = reader.uid();
    Ok(Said { uid, properties: reader.properties().clone(), range_deletes })
}

/// Finds all tables, by keyspace. Damage is added to the report.
pub(super) fn find(
    repairing: &mut Repairing,
    storage: &Arc<dyn Storage>,
    basis: &Basis,
) -> Result<BTreeMap<KeyspaceId, FoundTables>> {
    let cache = Arc::new(Cache::new(0));
    let mut opened = Vec::new();
    for (id, known) in &basis.tables {
        match open_known(&**storage, &cache, basis, *id, known) {
            Ok(table) => opened.push(table),
            Err(error) => lose_known(repairing, basis, &known.meta, known.keyspace, &error),
        }
    }
    if basis.kind != RepairBasis::Manifest {
        opened.extend(open_unknown(repairing, &**storage, &cache, basis)?);
    }
    let mut found: BTreeMap<KeyspaceId, FoundTables> = BTreeMap::new();
    for table in opened {
        repairing.report.tables += 1;
        repairing.last_seq = repairing.last_seq.max(table.numbers.1);
        let made = input(storage, &cache, &table);
        let range_deletes = match table.said.range_deletes {
            Ok(ranges) => ranges,
            Err(error) => {
                repairing.lose(&table_name(table.id), error.to_string());
                let name = Some(basis.name_of(table.keyspace));
                let what = format!("the range deletes of {}: {error}", table_name(table.id));
                repairing.doubt_all(name, DoubtReason::MayBeOld, what);
                Vec::new()
            }
        };
        let of = found.entry(table.keyspace).or_default();
        of.has_pointers |= has_pointers(table.said.properties.kinds);
        of.inputs.push(Input { range_deletes, ..made });
    }
    Ok(found)
}

/// Whether a set of kinds, one bit each, has one that points to a value file.
fn has_pointers(kinds: u64) -> bool {
    (0..64).any(|kind| kinds >> kind & 1 == 1 && is_pointer(kind))
}

/// Opens a table and checks that it is the one that the manifest names.
fn open_known(
    storage: &dyn Storage,
    cache: &Arc<Cache>,
    basis: &Basis,
    id: u64,
    known: &KnownTable,
) -> Result<Opened> {
    let said = ask(storage, cache, id)?;
    let (meta, found) = (&known.meta, &said.properties);
    let is_it = basis.uid.is_none_or(|uid| file_uid(uid, id) == said.uid)
        && found.entries == meta.entries
        && *found.max_key == *meta.max_key;
    if !is_it {
        let what = "it is not the table that the manifest names";
        return Err(Error::corruption(table_name(id), 0, what));
    }
    Ok(Opened {
        keyspace: known.keyspace,
        id,
        floor: meta.min_key.to_vec(),
        number: meta.max_seq,
        numbers: (meta.min_seq, meta.max_seq),
        said,
    })
}

fn lose_known(
    repairing: &mut Repairing,
    basis: &Basis,
    meta: &Table,
    keyspace: KeyspaceId,
    error: &Error,
) {
    let name = table_name(meta.id);
    let is_missing = matches!(error, Error::Storage(error) if error.is_not_found());
    let what = match is_missing && basis.kind != RepairBasis::Manifest {
        // An edit that cannot be read may have removed the table.
        true => format!("{name} is not there: it is lost, or was compacted"),
        false => {
            repairing.lose(&name, error.to_string());
            format!("{name} is lost: {error}")
        }
    };
    repairing.report.doubts.push(Doubt {
        keyspace: Some(basis.name_of(keyspace)),
        from: meta.min_key.to_vec(),
        // A range delete may hide any key after its first one.
        to: (meta.range_deletes == 0).then(|| meta.max_key.to_vec()),
        numbers: Some((meta.min_seq, meta.max_seq)),
        reason: DoubtReason::MayBeOld,
        what,
    });
}

/// Opens the tables that the manifest does not name.
fn open_unknown(
    repairing: &mut Repairing,
    storage: &dyn Storage,
    cache: &Arc<Cache>,
    basis: &Basis,
) -> Result<Vec<Opened>> {
    let mut ids: Vec<u64> = storage
        .list()?
        .iter()
        .filter_map(|file| number_in(&file.name, "table"))
        .filter(|id| !basis.tables.contains_key(id) && !basis.gone.contains(id))
        .collect();
    ids.sort_unstable();
    let mut asked = Vec::new();
    for id in ids {
        match ask(storage, cache, id) {
            Ok(said) => asked.push((id, said)),
            Err(error) => {
                let name = table_name(id);
                repairing.lose(&name, error.to_string());
                repairing.doubt_all(None, DoubtReason::MayBeOld, format!("{name}: {error}"));
            }
        }
    }
    let uid = basis.uid.or_else(|| commonest_store(&asked));
    let mut opened = Vec::new();
    let mut newest = 1;
    for (id, said) in asked {
        let found = &said.properties;
        let home = found.home;
        let is_own = home.is_none_or(|home| Some(home.store) == uid)
            && uid.is_none_or(|uid| file_uid(uid, id) == said.uid);
        if !is_own {
            let what = "it is of another store, or under another name, and was not used";
            repairing.lose(&table_name(id), what);
            continue;
        }
        // A load gets its number after all writes before it are in tables.
        let is_load = found.is_numbered_later;
        let numbers = if is_load { (newest, newest) } else { (found.min_seq, found.max_seq) };
        newest = newest.max(numbers.1);
        let keyspace = home.map_or(0, |home| home.keyspace);
        let table = Opened { keyspace, id, floor: Vec::new(), number: numbers.1, numbers, said };
        doubt_unknown(repairing, basis, &table, home.is_some());
        opened.push(table);
    }
    Ok(opened)
}

/// Notes the doubts about facts that the properties of a table do not contain.
fn doubt_unknown(repairing: &mut Repairing, basis: &Basis, table: &Opened, has_home: bool) {
    let name = table_name(table.id);
    let found = &table.said.properties;
    let what = match (found.is_numbered_later, has_home) {
        (_, false) => format!("{name} does not say which keyspace it belongs to"),
        (true, _) => format!("{name} is of a load whose number is lost"),
        (false, true) => return,
    };
    repairing.report.doubts.push(Doubt {
        keyspace: has_home.then(|| basis.name_of(table.keyspace)),
        from: found.min_key.clone(),
        to: Some(found.max_key.clone()),
        numbers: None,
        reason: DoubtReason::MayBeOld,
        what,
    });
}

/// The store that most of the tables belong to.
fn commonest_store(asked: &[(u64, Said)]) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for home in asked.iter().filter_map(|(_, said)| said.properties.home) {
        *counts.entry(home.store).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid)
}

/// A source that opens the table again when the merge reaches it.
fn input(storage: &Arc<dyn Storage>, cache: &Arc<Cache>, table: &Opened) -> Input {
    let (storage, cache) = (Arc::clone(storage), Arc::clone(cache));
    let (id, number, floor) = (table.id, table.number, table.floor.clone());
    let own = table.said.properties.min_key.clone();
    let open = {
        let floor = floor.clone();
        move || {
            let reader = TableReader::inspect(&*storage, id, Arc::clone(&cache))?;
            Ok(Salvage::new(Arc::new(reader.numbered(number)), &floor))
        }
    };
    Input {
        table: Some(id),
        name: table_name(id),
        range_deletes: Vec::new(),
        min_key: own.max(floor),
        numbers: table.numbers,
        open: Box::new(open),
        is_aside: false,
    }
}
