//! Finds the values that tables and the log point to.
//!
//! With a layout from a manifest, a pointer leads to its record as in an open store. Every record
//! is checked: by its checksum, and by the key and the sequence number in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_storage::{Category, Storage};

use super::basis::Basis;
use super::slots::Slots;
use crate::cache::Cache;
use crate::error::Result;
use crate::format::record::{ChecksumSeed, Pointer, record_bytes};
use crate::keys::codec::u32_at;
use crate::keys::{is_relocation, seq_of};
use crate::log::number_in;
use crate::table::handle::{TableContext, file_uid};
use crate::table::iterator::Access;
use crate::values::early::EarlyPlace;
use crate::values::file::{ValueFile, values_name};
use crate::values::lookup::ValueLookup;

/// Memory for footers of collected segments, in bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// The value files of a store.
#[derive(Debug)]
pub(super) struct FoundValues {
    /// The files that a manifest describes, by number.
    pub(super) files: BTreeMap<u64, ValueFile>,
    /// The records in the slots of each file. Used if a layout is missing, or does not lead to a
    /// record.
    slots: BTreeMap<u64, Slots>,
    /// Whether the layouts are those in force.
    pub(super) is_exact: bool,
    /// Files that differ from their description in the manifest, and how.
    pub(super) unlike_layout: Vec<(String, String)>,
    /// Files that cannot be used, and why.
    pub(super) lost: Vec<(String, String)>,
}

impl FoundValues {
    /// Opens the value files that can be opened.
    pub(super) fn open(storage: &Arc<dyn Storage>, basis: &Basis) -> Result<FoundValues> {
        let cache = Arc::new(Cache::new(CACHE_BYTES));
        let context = TableContext::new(Arc::clone(storage), cache, basis.uid.unwrap_or(0));
        let mut found = FoundValues {
            files: BTreeMap::new(),
            slots: BTreeMap::new(),
            is_exact: false,
            unlike_layout: Vec::new(),
            lost: Vec::new(),
        };
        let layouts = basis.keyspaces.values().flat_map(|keyspace| &keyspace.values);
        let mut known = BTreeMap::new();
        for layout in layouts {
            let uid = file_uid(context.store_uid, layout.number);
            known.insert(layout.number, (uid, layout.slot_bytes));
            match ValueFile::open(&context, layout.clone()) {
                Ok(file) => _ = found.files.insert(layout.number, file),
                Err(error) => {
                    let damage = (values_name(layout.number), error.to_string());
                    found.unlike_layout.push(damage);
                }
            }
        }
        let files = storage.list()?;
        for number in files.iter().filter_map(|file| number_in(&file.name, "values")) {
            match Slots::open(&**storage, number, known.get(&number).copied()) {
                Ok(slots) => _ = found.slots.insert(number, slots),
                Err(error) => found.lost.push((values_name(number), error.to_string())),
            }
        }
        Ok(found)
    }

    /// The value of a version that points to it, or why it cannot be read.
    pub(super) fn read(
        &mut self,
        key: &[u8],
        trailer: u64,
        entry: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        let pointer = Pointer::of_entry(entry).map_err(|error| error.to_string())?;
        let mut why = format!("value file {} is not known", pointer.store);
        if let Some(file) = self.files.get(&pointer.store) {
            match file.read(&ValueLookup { pointer, key, trailer }, Access::Sequential) {
                Ok(Some(value)) => return Ok(value.to_vec()),
                Ok(None) => why = "the record of the value is gone".to_string(),
                Err(error) => why = error.to_string(),
            }
        }
        // A layout in force says where each record is. Records elsewhere are older.
        if self.is_exact && self.files.contains_key(&pointer.store) {
            return Err(why);
        }
        let Some(slots) = self.slots.get_mut(&pointer.store) else { return Err(why) };
        let is_moved = is_relocation(trailer);
        slots.find(key, seq_of(trailer), is_moved, &pointer).ok_or(why)
    }

    /// Whether the layouts have a record for an entry that points to a value. The record is not
    /// read.
    pub(super) fn holds(&self, entry: &[u8]) -> bool {
        let Ok(pointer) = Pointer::of_entry(entry) else { return false };
        let file = self.files.get(&pointer.store);
        file.is_some_and(|file| file.holds(&pointer).unwrap_or(false))
    }

    /// The value of a write, if the value was in its file before the write was logged.
    pub(super) fn read_early(&self, key: &[u8], entry: &[u8], place: &[u8]) -> Option<Vec<u8>> {
        let pointer = Pointer::of_entry(entry).ok()?;
        let place = EarlyPlace::decode(place).ok()?;
        let slots = self.slots.get(&pointer.store)?;
        let seal = ChecksumSeed::new(slots.uid, place.generation);
        let len = record_bytes(key.len(), pointer.value_bytes as usize);
        let bytes = slots.read(place.slot, place.offset, len)?;
        let record = seal.take(&bytes, place.offset).ok()?;
        let is_it = record.key == key
            && !record.is_tag
            && !record.is_marker
            && record.value_bytes == pointer.value_bytes
            && u32_at(&bytes, 0) == Some(place.checksum);
        is_it.then(|| record.value.to_vec())
    }
}

/// Opens a value file for reading its slots.
pub(super) fn open_values(
    storage: &dyn Storage,
    number: u64,
) -> Result<Arc<dyn runstone_storage::StorageFile>> {
    Ok(storage.open(&values_name(number), Category::Value)?)
}
