//! Prints the content of a value file, as the manifest in force describes it, without opening the
//! store.

use std::fmt::Write as _;

use runstone_storage::{Category, Storage, StorageFile};

use crate::error::{Error, Result};
use crate::format::record::ChecksumSeed;
use crate::table::handle::file_uid;
use crate::tree::manifest::{read_current, read_manifest};
use crate::values::file::{FIRST_SLOT, check_file, values_name};
use crate::values::layout::{Layout, Segment};

/// Describes groups and segments; if `records` is set, also every record.
pub(crate) fn dump_values(storage: &dyn Storage, number: u64, records: bool) -> Result<String> {
    let name = values_name(number);
    let current =
        read_current(storage)?.ok_or_else(|| Error::NotAStore { path: storage.location() })?;
    let (state, _) = read_manifest(storage, current)?;
    let mut files = state.keyspaces.values().flat_map(|keyspace| &keyspace.values);
    let layout = files.find(|layout| layout.number == number).ok_or_else(|| {
        Error::invalid(format!("the manifest does not name {name}"), "it will be removed at open")
    })?;
    let file = storage.open(&name, Category::Value)?;
    let uid = file_uid(state.uid, number);
    check_file(&*file, layout, uid)?;
    let mut out = format!(
        "values {number}: {}{}, {} groups, slots of {} bytes\n",
        layout.placement.name(),
        if layout.writes_back { " with pointers written back" } else { "" },
        layout.group_count(),
        layout.slot_bytes
    );
    for (i, group) in (0..).zip(&layout.groups) {
        let name = match layout.cold() == Some(i) {
            true => "cold stream".to_string(),
            false => format!("group {i}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{name}: {} records, {} bytes, garbage {}, found dead {} in {}, cold {}, end {}",
            group.records(),
            group.bytes(),
            group.garbage_bytes(),
            group.dead_bytes(),
            group.dead.len(),
            group.cold_bytes(),
            group.stream_end
        );
        for segment in group.segments.iter() {
            let _ = writeln!(out, "  {segment:?}");
            if records {
                dump_records(&*file, layout, segment, uid, &mut out)?;
            }
        }
    }
    Ok(out)
}

fn dump_records(
    file: &dyn StorageFile,
    layout: &Layout,
    segment: &Segment,
    uid: u64,
    out: &mut String,
) -> Result<()> {
    let start = FIRST_SLOT + u64::from(segment.slot) * u64::from(layout.slot_bytes);
    let len = file.len()?;
    if start.saturating_add(segment.bytes) > len {
        let what = "the file is shorter than the manifest says";
        return Err(Error::corruption(values_name(layout.number), len, what));
    }
    let bytes = file.read_vec(start, segment.bytes as usize)?;
    let seal = ChecksumSeed::new(uid, segment.generation);
    let mut at = 0;
    while at < bytes.len() {
        let record = match seal.take(&bytes[at..], at as u64) {
            Ok(record) => record,
            Err(what) => {
                let _ = writeln!(out, "    at {at}: {what}");
                break;
            }
        };
        let (key, value) = (record.key.escape_ascii(), record.value_bytes);
        let what = match (record.is_tag, record.is_marker) {
            (true, _) => format!("tag of a value of {value} bytes"),
            (_, true) => "marker: deleted, or inline".to_string(),
            _ => format!("value of {value} bytes"),
        };
        let _ = writeln!(out, "    at {at}: \"{key}\" #{} {what}", record.seq);
        at += record.len;
    }
    Ok(())
}
